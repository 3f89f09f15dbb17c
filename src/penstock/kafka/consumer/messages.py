"""Messages of the Kafka client as Arrow columns.

Main functions: ``to_arrow``, and ``placeholder`` for unreadable records. A fetch creates and drops tens of thousands of
message objects, none of them in a cycle. Python's cycle collector would walk through all of them many times, which
doubles the time of a fetch; reference counting frees them anyway. So ``collector_paused`` pauses it during the loop.

Thread: any; pauses of several threads may overlap.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import confluent_kafka as ck
import numpy as np
import pyarrow as pa

from penstock.api import TopicPartition
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, WIRE_HEADERS


class _Pauses:
    """The number of threads that have paused the garbage collector, and its state before the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def enter(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses cycle collection in all threads while the block runs; for short blocks only.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    """
    _pauses.enter()
    try:
        yield
    finally:
        _pauses.leave()


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
    """Topic, partition and offset; a message that is not an error has all three."""
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
