"""The source offsets that are safe to commit: acknowledged by Kafka without a gap, per source partition.

A row is settled when Kafka acknowledged it, a transform dropped it, or it failed and was skipped: all three advance the
offset. A row that failed with ``errors.tolerance=none`` is never settled, so neither its offset nor a later one of its
source partition is ever committed; other source partitions continue. With exactly-once the offsets of all rows go into
the transaction of these rows. Positions that moved without a record (`Moves`) count after the records of their poll.

Pure: no I/O, no clock. Settling rows is one slice assignment, finding the first gap one search in a byte array. Any
thread; one lock guards everything.

Source: org.apache.kafka.connect.runtime.SubmittedRecords; KIP-416 and KIP-910 for dropped records.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final, TypeGuard

from penstock.api import SourceFrame, SourceRecord
from penstock.stores.offsets import key_bytes, partition_identity, value_bytes

#: A source partition and the position in it; None: the partition is forgotten.
Move = tuple[Mapping[str, object], Mapping[str, object] | None]


class Moves:
    """The positions that a task has reported and that are not in a batch yet; the last one of a source partition
    counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[Hashable, Move] = {}

    def add(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """Takes a position.

        Raises:
            DataException: It cannot be stored.
        """
        # Here, where the author sees it: later it would fail the task without saying where it is from.
        key_bytes("", partition)
        value_bytes(offset)
        move = dict(partition), None if offset is None else dict(offset)
        with self._lock:
            self._told[partition_identity(partition)] = move

    def take(self) -> list[Move]:
        with self._lock:
            told, self._told = self._told, {}
            return list(told.values())


logger = logging.getLogger(__name__)

Partition = Mapping[str, object] | None
Offset = Mapping[str, object] | None

_SETTLED: Final = 1
_partition_of = attrgetter("source_partition")


@dataclass(frozen=True, slots=True, eq=False)
class FramePart(SourceFrame):
    """Rows of a frame that is too large to go as a whole.

    Attributes:
        first: Its row that is the first one here.
    """

    whole: SourceFrame | None = None
    first: int = 0
    is_last: bool = False

    @property
    def ends_inside(self) -> bool:
        """True if the position after the last row is not known: ``source_offset`` is that of the whole frame."""
        return not self.is_last and self.offset_after is None


class _Unknown:
    """The offset in the middle of a frame that cannot name it."""


UNKNOWN: Final = _Unknown()


def _known(offset: Offset | _Unknown) -> TypeGuard[Offset]:
    return offset is not UNKNOWN


def position_after(frame: SourceFrame, row: int) -> Mapping[str, object] | None:
    """The source offset after a row inside of a frame, as its task reports it; None if it does not.

    An error of the task, or a value that is no offset, only means that less is committed, and more is read again.
    """
    if frame.offset_after is None:
        return None
    try:
        position = frame.offset_after(row)
        # An offset that cannot be written would also block the offsets of other source partitions.
        value_bytes(position)
    except Exception as error:
        logger.warning("offset_after(%d) of a frame gives no position (%s: %s)", row, type(error).__name__, error)
        return None
    return position


@dataclass(slots=True)
class _Part:
    """The rows of one source partition within one batch.

    Attributes:
        identity: The key by which batches recognize the source partition.
        rows: Its rows in ascending order; None for all rows of the batch.
        offset_at: The source offset after a row of the batch.
        offered: How many of the rows have been offered for commit already.
        moves: True if it is a position that has moved without a record.
    """

    identity: Hashable
    partition: Partition
    rows: list[int] | None
    offset_at: Callable[[int], Offset | _Unknown]
    submission: Submission
    offered: int = 0
    moves: bool = False

    def settled_prefix(self) -> int:
        """Counts the rows that are settled before the first that is not."""
        done = self.submission.done
        gap = done.find(0) if self.rows is None else bytes(map(done.__getitem__, self.rows)).find(0)
        return self.count if gap < 0 else gap

    @property
    def count(self) -> int:
        return len(self.submission.done) if self.rows is None else len(self.rows)

    def offset_after_prefix(self, prefix: int) -> Offset | _Unknown:
        return self.offset_at(prefix - 1 if self.rows is None else self.rows[prefix - 1])


class Submission:
    """One batch, with a flag for each row that is settled.

    Attributes:
        done: One byte a row, 1 if it is settled. Only `SubmittedOffsets` changes it.

    Thread: see the module; made by `of_records` or `of_frame`.
    """

    __slots__ = ("done", "left", "parts", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.done = bytearray(size)
        self.left = size
        self.parts: list[_Part] = []

    @classmethod
    def of_records(cls, records: Sequence[SourceRecord], identify: Callable[[Partition], Hashable]) -> Submission:
        """A batch of records."""
        submission = cls(len(records))

        def offset_at(row: int) -> Offset:
            return records[row].source_offset

        grouped = _rows_by_partition(records, identify)
        for identity, (partition, rows) in grouped.items():
            submission.parts.append(
                _Part(identity, partition, None if len(grouped) == 1 else rows, offset_at, submission)
            )
        return submission

    @classmethod
    def of_frame(cls, frame: SourceFrame, rows: int, identify: Callable[[Partition], Hashable]) -> Submission:
        """A frame of `rows` rows. Its inner positions are known only if it has `offset_after`. Invariant 1."""
        submission = cls(rows)

        def offset_at(row: int) -> Offset | _Unknown:
            if row == rows - 1 and not (isinstance(frame, FramePart) and frame.ends_inside):
                return frame.source_offset
            position = position_after(frame, row)
            return UNKNOWN if position is None else position

        submission.parts.append(
            _Part(identify(frame.source_partition), frame.source_partition, None, offset_at, submission)
        )
        return submission

    @classmethod
    def of_moves(
        cls, moves: Sequence[tuple[Partition, Offset]], identify: Callable[[Partition], Hashable]
    ) -> Submission:
        """Positions that have moved without a record: each counts in its turn. The last one of a partition counts."""
        submission = cls(0)
        for identity, (partition, offset) in {identify(one[0]): one for one in moves}.items():
            submission.parts.append(_Part(identity, partition, None, partial(_always, offset), submission, moves=True))
        return submission


def _always(offset: Offset, row: int) -> Offset:
    return offset


class SubmittedOffsets:
    """The batches of one task between poll and acknowledgement. Invariant 1."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[_Part]] = {}
        self._committable: dict[Hashable, tuple[Partition, Offset]] = {}
        self._rows_left = 0
        self._moves_left = 0

    @property
    def rows_left(self) -> int:
        return self._rows_left

    @property
    def moves_left(self) -> int:
        """Positions that have moved without a record, and wait for the records before them."""
        return self._moves_left

    @property
    def is_empty(self) -> bool:
        """True if nothing was added that was not taken."""
        with self._lock:
            return not self._queues and not self._committable

    def add(self, submission: Submission, settled: Iterable[int] = ()) -> None:
        """Queue a batch after the earlier ones of its source partitions.

        Args:
            settled: rows that are not sent at all: dropped by a transform, or failed and skipped.
        """
        with self._lock:
            for part in submission.parts:
                self._queues.setdefault(part.identity, deque()).append(part)
                self._moves_left += part.moves
            self._rows_left += submission.size
            self._mark(submission, settled)
            if submission.size == 0:
                # A frame without rows, or positions that have moved: they count at once, in their turn.
                self._advance(submission)

    def settle_range(self, submission: Submission, first: int, end: int) -> bool:
        """Settle rows `first` to `end - 1`; True if the whole batch is settled now."""
        with self._lock:
            new = (end - first) - submission.done.count(_SETTLED, first, end)
            submission.done[first:end] = b"\x01" * (end - first)
            return self._count(submission, new)

    def settle_rows(self, submission: Submission, rows: Iterable[int]) -> bool:
        """Settle single rows; True if the whole batch is settled now."""
        with self._lock:
            return self._mark(submission, rows)

    def take_committable(self) -> list[tuple[Partition, Offset]]:
        """The newest committable offset of each source partition that moved since the last call. Invariant 1."""
        with self._lock:
            for identity in list(self._queues):
                self._scan(identity)
            taken, self._committable = self._committable, {}
            return list(taken.values())

    def take_all(self) -> list[tuple[Partition, Offset]]:
        """The newest offset of each source partition that moved since the last call, settled or not. Invariant 7.

        For offsets that count together with all that was added, or not at all.
        """
        with self._lock:
            for queue in self._queues.values():
                for part in queue:
                    self._offer(part)
            self._queues.clear()
            taken, self._committable = self._committable, {}
            return list(taken.values())

    def settle_all(self) -> None:
        """Settle all queued batches: their records were abandoned on purpose, and must not be read again."""
        with self._lock:
            open_ones = {id(part.submission): part.submission for queue in self._queues.values() for part in queue}
            for submission in open_ones.values():
                new = submission.done.count(0)
                submission.done[:] = b"\x01" * submission.size
                self._count(submission, new)

    def _mark(self, submission: Submission, rows: Iterable[int]) -> bool:
        done = submission.done
        new = 0
        for row in rows:
            if not done[row]:
                done[row] = _SETTLED
                new += 1
        return self._count(submission, new)

    def _count(self, submission: Submission, new: int) -> bool:
        submission.left -= new
        self._rows_left -= new
        if submission.left == 0 and new:
            self._advance(submission)
        return submission.left == 0

    def _advance(self, submission: Submission) -> None:
        """Forget complete batches as soon as they lead their queues, so that memory does not grow between commits."""
        for part in submission.parts:
            queue = self._queues.get(part.identity)
            while queue and queue[0].submission.left == 0:
                self._offer(queue.popleft())
            if queue is not None and not queue:
                del self._queues[part.identity]
        # A part knows its batch: without this both would stay, with the offsets, until Python looks for cycles.
        submission.parts = []

    def _scan(self, identity: Hashable) -> None:
        """Take the settled rows of the batches at the head of a queue, whole or in part."""
        queue = self._queues[identity]
        while queue:
            part = queue[0]
            prefix = part.settled_prefix()
            if prefix < part.count:
                self._offer_prefix(part, prefix)
                return
            self._offer(queue.popleft())
        del self._queues[identity]

    def _offer(self, part: _Part) -> None:
        self._moves_left -= part.moves
        offset = part.offset_after_prefix(part.count)
        if _known(offset):
            self._committable[part.identity] = (part.partition, offset)

    def _offer_prefix(self, part: _Part, prefix: int) -> None:
        if prefix <= part.offered:
            return
        part.offered = prefix
        offset = part.offset_after_prefix(prefix)
        if _known(offset):
            self._committable[part.identity] = (part.partition, offset)


def _rows_by_partition(
    records: Sequence[SourceRecord], identify: Callable[[Partition], Hashable]
) -> dict[Hashable, tuple[Partition, list[int]]]:
    """Source partitions in order of appearance, with their rows. One comparison a record where they come in runs."""
    partitions = list(map(_partition_of, records))
    if partitions and partitions.count(partitions[0]) == len(partitions) and _one_kind(partitions):
        return {identify(partitions[0]): (partitions[0], [])}
    # The key of a partition is computed once for each object or, if a task makes a new map for each record, for each
    # text, which distinguishes 1 from True as the key does, but is computed in C.
    keys: list[Hashable] = list(map(id, partitions))
    if len(set(keys)) > len(keys) // 4:
        keys = list(map(repr, partitions))
    rows_of_key: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows_of_key[key].append(row)
    grouped: dict[Hashable, tuple[Partition, list[int]]] = {}
    for rows in rows_of_key.values():
        first = partitions[rows[0]]
        _, known = grouped.setdefault(identify(first), (first, []))
        known.extend(rows)
    for _, rows in grouped.values():
        rows.sort()
    return grouped


def _one_kind(partitions: list[Partition]) -> bool:
    """True if equal maps are also equal for Kafka Connect: Python's ``1 == True == 1.0`` must not join partitions."""
    first = partitions[0]
    return first is None or all(isinstance(value, str) for value in first.values())
