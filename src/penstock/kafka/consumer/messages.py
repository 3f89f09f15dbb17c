"""Messages of the Kafka client as Arrow columns, and records that the client cannot read.

Records come in batches that are compressed and have a checksum as a whole. The client reports a batch that it cannot
unpack, or whose checksum is wrong, and reads and reports it again without end; after a wrong checksum it continues in
the middle of the batch and misreads the bytes there as records. So the consumer seeks back to the start of the batch,
and if the same batch fails again, to the offset after it. The client does not report the end of a batch: separate
clients, outside the group, find it by reading from later offsets.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import confluent_kafka as ck
import numpy as np
import pyarrow as pa

from penstock.api import TopicPartition
from penstock.kafka.settings.client import CLIENT_LOG
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, WIRE_HEADERS

_pausing = threading.Lock()
#: The number of threads that have paused the cycle collector, and whether it ran before the first.
_paused = 0
_ran_before = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses cycle collection in all threads while the block runs; for short blocks only.

    A fetch creates and drops tens of thousands of message objects, none of them in a cycle. Python's cycle collector
    would walk through all of them many times, which doubles the time of a fetch; reference counting frees them anyway.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    """
    global _paused, _ran_before
    with _pausing:
        if not _paused:
            _ran_before = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _pausing:
            _paused -= 1
            if not _paused and _ran_before:
                gc.enable()


def to_arrow(messages: Sequence[ck.Message], *, one_partition: bool) -> tuple[pa.Table, dict[TopicPartition, int]]:
    """Messages as columns, and the offset after the last message of each partition.

    Per-message work is C-level only: comprehensions over bound methods cost several times as much.

    Args:
        messages: At least one, none of them an error; offsets ascend within each partition.
        one_partition: True if all are of the same partition.
    """
    count = len(messages)
    columns: dict[str, Any] = {}
    if one_partition:
        topic, partition, first = _coordinates(messages[0])
        end = _coordinates(messages[-1])[2] + 1
        ends = {TopicPartition(topic, partition): end}
        columns["topic"] = pa.repeat(pa.scalar(topic, pa.string()), count)
        columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), count)
        # Offsets ascend, so first, last and count show if there is a gap (compaction, transactions).
        whole = end - first == count
        columns["offset"] = pa.array(
            np.arange(first, end, dtype=np.int64) if whole else list(map(ck.Message.offset, messages)), pa.int64()
        )
    else:
        topics: list[Any] = list(map(ck.Message.topic, messages))
        partitions: list[Any] = list(map(ck.Message.partition, messages))
        offsets: list[Any] = list(map(ck.Message.offset, messages))
        lasts = dict(zip(zip(topics, partitions, strict=True), offsets, strict=True))
        ends = {TopicPartition(topic, partition): offset + 1 for (topic, partition), offset in lasts.items()}
        columns["topic"] = pa.array(topics, pa.string())
        columns["partition"] = pa.array(partitions, pa.int32())
        columns["offset"] = pa.array(offsets, pa.int64())
    columns["timestamp"], columns["timestamp_type"] = _timestamps(messages)
    columns["key"] = _binary(list(map(ck.Message.key, messages)))
    columns["value"] = _binary(list(map(ck.Message.value, messages)))
    headers = list(map(ck.Message.headers, messages))
    none = headers.count(None) == count
    columns["headers"] = pa.nulls(count, WIRE_HEADERS) if none else pa.array(headers, WIRE_HEADERS)
    return pa.Table.from_arrays([columns[name] for name in CONSUMED_SCHEMA.names], schema=CONSUMED_SCHEMA), ends


def placeholder(partition: TopicPartition, offset: int) -> pa.Table:
    """One row for records that cannot be read: their position, without key, value and headers."""
    row = {"topic": partition.topic, "partition": partition.partition, "offset": offset, "timestamp_type": -1}
    return pa.Table.from_pylist([row], CONSUMED_SCHEMA)


def _coordinates(message: ck.Message) -> tuple[str, int, int]:
    coordinates: Any = (message.topic(), message.partition(), message.offset())
    topic, partition, offset = coordinates
    return topic, partition, offset


def _timestamps(messages: Sequence[ck.Message]) -> tuple[pa.Array, pa.Array]:
    """Milliseconds and type; the client counts types from 1 and has 0 for "none"."""
    # Each pair is dropped before the next one, so all pairs reuse the same memory.
    pairs = np.fromiter(chain.from_iterable(map(ck.Message.timestamp, messages)), np.int64, 2 * len(messages))
    kinds, stamps = pairs[::2], np.ascontiguousarray(pairs[1::2])
    unknown = kinds == ck.TIMESTAMP_NOT_AVAILABLE
    return pa.array(stamps, mask=unknown if unknown.any() else None), pa.array((kinds - 1).astype(np.int8))


def _binary(values: list[bytes | None]) -> pa.Array:
    return pa.nulls(len(values), pa.binary()) if values.count(None) == len(values) else pa.array(values, pa.binary())


logger = logging.getLogger(__name__)

_Error = ck.KafkaError
_ABOUT_RECORDS: Final = frozenset(
    {
        _Error._BAD_COMPRESSION,
        _Error._BAD_MSG,
        _Error._NOT_IMPLEMENTED,
        _Error._UNDERFLOW,
        _Error.INVALID_MSG,
        _Error.INVALID_MSG_SIZE,
        _Error.MSG_SIZE_TOO_LARGE,
    }
)
#: After this many failed reads a batch is skipped: damage on disk is permanent, damage in transit is not.
TRIES: Final = 2
#: A batch has no more records than fit into 31 bits, so the search for its end doubles its steps at most as often.
_MOST_STEPS: Final = 31
_ANSWER_S: Final = 30.0
_SLICE_S: Final = 0.2
_CLOSE_S: Final = 10.0


@dataclass(frozen=True)
class UnreadableRecords:
    """Records of one batch that cannot be read.

    Attributes:
        end: The offset after the last record.
    """

    partition: TopicPartition
    offset: int
    end: int
    reason: str

    def __str__(self) -> str:
        topic, number = self.partition
        last = self.end - 1
        which = f"offset {self.offset}" if last == self.offset else f"offsets {self.offset} to {last}, one batch,"
        what = "The record" if last == self.offset else "The records"
        return (
            f"{what} of topic {topic}, partition {number} at {which} cannot be read: {self.reason}. "
            "Either the batch is damaged, or unpacked it is larger than the consumer takes "
            "(consumer.override.receive.message.max.bytes, 2147483647 by default). With errors.tolerance=all it is "
            "passed over"
        )


def is_about_records(error: ck.KafkaError, topic: str | None) -> bool:
    """True if an error that the client returns in place of a message concerns records of its partition."""
    return topic is not None and error.code() in _ABOUT_RECORDS


class Troubles:
    """Counts how often reading has failed at a position of a partition.

    >>> troubles, at = Troubles(), TopicPartition("t", 0)
    >>> [troubles.is_final(at, 7), troubles.is_final(at, 7), troubles.is_final(at, 7), troubles.is_final(at, 8)]
    [False, True, False, False]
    """

    def __init__(self) -> None:
        self._tries: dict[TopicPartition, tuple[int, int]] = {}

    def is_final(self, partition: TopicPartition, position: int) -> bool:
        """Counts one more failure at a position; True if the batch must be skipped, which resets the count."""
        at, tries = self._tries.pop(partition, (position, 0))
        tries = tries + 1 if at == position else 1
        if tries >= TRIES:
            return True
        self._tries[partition] = (position, tries)
        return False

    def forget(self, partition: TopicPartition) -> None:
        self._tries.pop(partition, None)


def batch_start(told: int, position: int, end: int | None) -> int:
    """The first unreadable record: the client's offset, unless that is impossible.

    >>> batch_start(7, 5, 100), batch_start(3, 5, 100), batch_start(1 << 60, 5, 100), batch_start(-1001, 5, None)
    (7, 5, 5, 5)
    """
    return told if position <= told and (end is None or told < end) else position


def search_end(first: int, is_readable: Callable[[int], bool | None]) -> int | None:
    """Finds the offset after a batch with a number of reads that is logarithmic in its records.

    Args:
        is_readable: Tests a later offset: True if a read from there returns anything other than this batch, or nothing
            is there yet. None if the test failed.

    Returns:
        The offset; None if a test failed.

    >>> asked = []
    >>> search_end(10, lambda offset: asked.append(offset) or offset >= 17)
    17
    >>> asked
    [11, 12, 14, 18, 16, 17]
    """
    low, step = first, 1
    for _ in range(_MOST_STEPS):
        answer = is_readable(first + step)
        if answer is None:
            return None
        if answer:
            break
        low, step = first + step, step * 2
    high = first + step
    # The record at ``low`` belongs to the batch, the record at ``high`` does not.
    while high - low > 1:
        middle = (low + high) // 2
        answer = is_readable(middle)
        if answer is None:
            return None
        low, high = (low, middle) if answer else (middle, high)
    return high


def end_of_batch(settings: Mapping[str, object], partition: TopicPartition, first: int) -> int | None:
    """Finds the offset after an unreadable batch, by reading from later offsets. Returns the offset; None if Kafka did
    not respond in time.
    """
    own: dict[str, object] = {
        name: value
        for name, value in settings.items()
        if not name.startswith(("group.", "partition.assignment.")) and name not in ("on_commit", "error_cb")
    }
    own |= {
        # It does not join the group, but may have no rights to any other group.
        "group.id": settings.get("group.id", "penstock"),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # Offsets that a wrong checksum made up must not move the position.
        "auto.offset.reset": "error",
    }
    deadline = time.monotonic() + _ANSWER_S
    return search_end(first, lambda offset: _is_readable(own, partition, first, offset, deadline))


def _is_readable(
    settings: dict[str, object], partition: TopicPartition, first: int, offset: int, deadline: float
) -> bool | None:
    """True if a read from an offset returns anything other than the batch at ``first``; None if it takes too long.

    Each test has its own client, because a client that misreads bytes after a wrong checksum would affect later tests.
    """
    client = ck.Consumer(settings, logger=CLIENT_LOG)
    try:
        client.assign([ck.TopicPartition(partition.topic, partition.partition, offset)])
        while time.monotonic() < deadline:
            message = client.poll(_SLICE_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return True
            if error.code() in (_Error._PARTITION_EOF, _Error._AUTO_OFFSET_RESET, _Error.OFFSET_OUT_OF_RANGE):
                return True
            if is_about_records(error, message.topic()):
                told = message.offset()
                # Another unreadable batch is reported with its own first offset.
                return told is not None and first < told <= offset
        return None
    finally:
        _close(client)


def _close(client: ck.Consumer) -> None:
    """Closes a client. A client that was reading a damaged batch may never close: it is abandoned after 10 s."""
    closing = threading.Thread(target=client.close, name="close-question", daemon=True)
    closing.start()
    closing.join(_CLOSE_S)
    if closing.is_alive():
        logger.warning("The client that looks for the end of a damaged batch did not close within %g s", _CLOSE_S)
