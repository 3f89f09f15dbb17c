"""Chooses the partitions of rows as the Java producer does, a column at a time.

Source: KIP-480 and KIP-794 (sticky partitions), BuiltInPartitioner and Utils.murmur2 of Kafka's clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_R: Final = np.uint32(24)
_WORD_BYTES: Final = 4
#: The number of words of each key that are hashed for all keys together.
_COMMON_WORDS: Final = 16
#: With fewer keys than this, a step for all of them takes longer in numpy than in Python.
_FEW_KEYS: Final = 50

#: For each number of bytes after the last whole word (0 to 3): the shift that keeps only these bytes of the last four
#: bytes of a key, and the factor that follows. A shift by 32 keeps none.
_TAIL_SHIFTS: Final = np.array([32, 24, 16, 8], np.uint32)
_TAIL_FACTORS: Final = np.array([1, _M, _M, _M], np.uint32)


def murmur2(keys: pa.Array) -> Int32s:
    """The hash by which Kafka spreads keys over partitions.

    Takes about 12 ns for each four bytes of a key, ten times that for the few keys that are far longer than the others,
    and memory in proportion to the bytes of all keys, regardless of the differences of their lengths.

    Args:
        keys: Array of type binary without nulls. May be a slice.

    Returns:
        The hash of each key, with its sign.

    Source: org.apache.kafka.common.utils.Utils.murmur2.

    >>> murmur2(pa.array([b"foobar", b""], pa.binary())).tolist()
    [-790332482, 275646681]
    """
    count = len(keys)
    if count == 0:
        return np.empty(0, np.int32)
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32, count + 1, keys.offset * 4).astype(np.int64)
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    # One word of zeros comes first, so that the four bytes before the end of the first key can be read.
    padded = np.zeros(_WORD_BYTES + size, np.uint8)
    if size:
        padded[_WORD_BYTES:] = np.frombuffer(data, np.uint8, size, first)
    words = np.ndarray((size + 1,), "<u4", padded, strides=(1,))
    ends += _WORD_BYTES - first
    starts, ends = ends[:-1], ends[1:]
    lengths = ends - starts
    hashes = lengths.astype(np.uint32) ^ _SEED
    _hash_words(hashes, words, starts, lengths >> 2)
    rest = lengths & 3
    hashes ^= words[ends - _WORD_BYTES] >> _TAIL_SHIFTS[rest]
    hashes *= _TAIL_FACTORS[rest]
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes.view(np.int32)


def _hash_words(hashes: _Words, words: _Words, starts: Int64s, counts: Int64s) -> None:
    """Adds the whole words of each key to its hash, in place: the first word of all keys, then the second, and so on.

    `words` has the word that begins at each byte; `counts` has the number of words of each key.
    """
    step = int(counts.min()) if len(counts) > _FEW_KEYS else min(int(counts.min()), _COMMON_WORDS)
    for done in range(step):
        hashes *= _M
        hashes ^= _mixed(words[starts + done * _WORD_BYTES])
    left = np.flatnonzero(counts > step)
    at, until, partial = starts[left] + step * _WORD_BYTES, counts[left], hashes[left]
    while len(left) > _FEW_KEYS or (len(left) and step < _COMMON_WORDS):
        partial *= _M
        partial ^= _mixed(words[at])
        at += _WORD_BYTES
        step += 1
        goes_on = until > step
        if not goes_on.all():
            hashes[left] = partial
            left, at, until, partial = left[goes_on], at[goes_on], until[goes_on], partial[goes_on]
    for key, begin, end, value in zip(left.tolist(), at.tolist(), until.tolist(), partial.tolist(), strict=True):
        hashes[key] = _hash_rest(value, words[begin : begin + (end - step) * _WORD_BYTES : _WORD_BYTES])


def _hash_rest(value: int, words: _Words) -> int:
    """The hash of a key of many words, continued from that of the earlier words: each step needs the previous one."""
    factor = int(_M)
    for mixed in _mixed(words).tolist():
        value = (value * factor & 0xFFFFFFFF) ^ mixed
    return value


def _mixed(words: _Words) -> _Words:
    mixed = words * _M
    mixed ^= mixed >> _R
    mixed *= _M
    return mixed


@dataclass(slots=True)
class _Sticky:
    """The current partition for rows of a topic, and the bytes sent to it since it was selected."""

    partition: int
    sent: int = 0


class Partitioner:
    """Chooses partitions like the Java producer without a configured partitioner.

    A row goes to the partition that it names, otherwise to the one of its key. Rows with neither stay at one partition
    of their topic for about a batch of bytes, then move to another. All partitions are equally likely: the load of
    their brokers, and missing leaders, are ignored. Unlike Java's, it never chooses the same partition again, since
    that would be no change.

    Source: KIP-794, with ``partitioner.adaptive.partitioning.enable=false``.
    """

    def __init__(self, *, batch_size: int, kind: str = "", random: Random | None = None) -> None:
        """Makes a partitioner that has not chosen a partition yet.

        Args:
            batch_size: ``batch.size``: the bytes after which rows without key change their partition. Less than one
                counts as one: each row that has bytes is then followed by a change.
            kind: Empty for Java's default; "keyless" if rows with a key are treated like those without
                (``partitioner.ignore.keys``); "round robin" if, in addition, each row goes to the next partition.
        """
        self._batch_size = max(1, batch_size)
        self._ignore_keys = kind in ("keyless", "round robin")
        self._in_turn = kind == "round robin"
        self._random = random or Random()
        self._sticky: dict[str, _Sticky] = {}

    def choose(
        self, topic: str, count: int, *, named: pa.Array | None, keys: pa.Array | None, sizes: Int64s
    ) -> int | Int32s:
        """Chooses the partition of each row.

        Args:
            named: The partitions that rows name (int32 with nulls), None when no row does. They are not checked.
            keys: The keys of the rows (binary with nulls), None when no row has one. An empty key is a key.
            sizes: The bytes of each row (int64).

        Returns:
            The partition of each row, or one for all of them. An array may be read-only.
        """
        if named is not None and named.null_count == len(named):
            named = None
        if named is None and count == 1:
            return 0
        if keys is not None and (self._ignore_keys or count == 1 or keys.null_count == len(keys)):
            keys = None
        if named is None and keys is None:
            return self._stay(topic, count, sizes)
        if named is not None and named.null_count == 0:
            return _one_if_same(named.to_numpy())
        if named is None and keys is not None and keys.null_count == 0:
            return _one_if_same(_partitions_of(keys, count))
        chosen = np.empty(len(sizes), np.int32)
        free = np.ones(len(sizes), np.bool_)
        if named is not None:
            free = named.is_null().to_numpy(zero_copy_only=False)
            chosen[~free] = named.drop_null().to_numpy()
        if keys is not None:
            keyed = free & keys.is_valid().to_numpy(zero_copy_only=False)
            chosen[keyed] = _partitions_of(keys.filter(pa.array(keyed)), count)
            free = free & ~keyed
        if free.any():
            chosen[free] = 0 if count == 1 else self._stay(topic, count, sizes[free])
        return _one_if_same(chosen)

    def _stay(self, topic: str, count: int, sizes: Int64s) -> int | Int32s:
        """Partitions of rows that have neither key nor partition."""
        rows = len(sizes)
        if rows == 0:
            return np.empty(0, np.int32)
        if self._in_turn:
            return self._next_ones(topic, count, rows)
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = _Sticky(self._random.randrange(count))
        ends = np.cumsum(sizes)
        partitions: list[int] = []
        lengths: list[int] = []
        row = before = 0
        while row < rows:
            if sticky.sent >= self._batch_size or sticky.partition >= count:
                sticky.partition, sticky.sent = self._another(sticky.partition, count), 0
            full = int(ends.searchsorted(before + self._batch_size - sticky.sent))
            end = min(full + 1, rows)
            partitions.append(sticky.partition)
            lengths.append(end - row)
            after = int(ends[end - 1])
            sticky.sent += after - before
            row, before = end, after
        if len(partitions) == 1:
            return partitions[0]
        return np.repeat(np.array(partitions, np.int32), lengths)

    def _next_ones(self, topic: str, count: int, rows: int) -> Int32s:
        """Each row goes to the partition after that of the previous row. Source: RoundRobinPartitioner."""
        turn = self._sticky.setdefault(topic, _Sticky(0))
        chosen = (np.arange(turn.partition, turn.partition + rows) % count).astype(np.int32)
        turn.partition = (turn.partition + rows) % count
        return chosen

    def _another(self, partition: int, count: int) -> int:
        """Any partition except this one; the topic may no longer have it."""
        if partition >= count:
            return self._random.randrange(count)
        chosen = self._random.randrange(count - 1)
        return chosen + (chosen >= partition)


def _partitions_of(keys: pa.Array, count: int) -> Int32s:
    return (murmur2(keys) & np.int32(0x7FFFFFFF)) % np.int32(count)


def _one_if_same(partitions: Int32s) -> int | Int32s:
    if len(partitions) and (partitions == partitions[0]).all():
        return int(partitions[0])
    return partitions
