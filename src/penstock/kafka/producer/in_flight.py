"""Rows in flight to Kafka, and the callbacks of a producer about them.

Thread: the thread that sends creates chunks, which then belong to the producer's thread; that thread calls
``Receipts``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.api import RecordMetadata
from penstock.errors import KafkaException
from penstock.kafka.producer.record_batches import EncodedBatch
from penstock.kafka.protocol import ErrorKind
from penstock.pipeline.batch.batches import ProduceBatch


class ProducerClosedException(KafkaException):
    """The producer was closed or aborted while records were being sent."""


class RecordTooLargeException(KafkaException):
    """A record that is larger than the limit of the client, the broker or the topic.

    Attributes:
        what: The message without the advice for the user of a connector.
    """

    java_name = "org.apache.kafka.common.errors.RecordTooLargeException"
    what = ""


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """A row that Kafka will not store.

    Attributes:
        row: The position in the batch.
        unknown_topic: True if the topic does not exist and the broker does not create it.
        fatal: True if the producer sends no more records.
    """

    row: int
    topic: str
    error: KafkaException
    java_name: str
    unknown_topic: bool = False
    fatal: bool = False


class Receipts(Protocol):
    """Receives the outcome of the rows of one batch. Thread: the producer's own; must not raise."""

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        """Called when all rows to send from `first` to `end - 1` are in Kafka, except the rows in `failures`.

        Args:
            first, end: positions in the batch; chunks of a batch do not overlap and may end in any order.
            metadata: the position in Kafka of each delivered row, by its position in the batch, or only of the first
                and last row of each record batch; None unless positions are reported.
        """


class EachRow:
    """`Receipts` that report the result of each row.

    Args:
        tell: Receives a row, its error, and its position; the position only if the producer reports each row.
    """

    def __init__(self, tell: Callable[[int, KafkaException | None, RecordMetadata | None], None]) -> None:
        self._tell = tell

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        failed = {one.row: one.error for one in failures}
        places = metadata or {}
        for row in range(first, end):
            self._tell(row, failed.get(row), places.get(row))


def too_large(size: int, setting: str, limit: int | None) -> RecordTooLargeException:
    """The error with Java's message, and advice.

    Args:
        size: bytes of the record's key and value.
        limit: the value of that setting in bytes, if it is known.
    """
    value = "" if limit is None else f" ({limit})"
    what = f"The message is {size} bytes when serialized which is larger than {setting}{value} allows"
    error = RecordTooLargeException(
        f"{what}. Raise producer.override.max.request.size and producer.override.buffer.memory of the connector and "
        "max.message.bytes of the topic, or set errors.tolerance=all to leave such records out"
    )
    error.what = what
    return error


Encode = Callable[[ProduceBatch, pa.Table], list[EncodedBatch]]


@dataclass(eq=False)
class ProducedRows:
    """Some rows of a batch. Invariant 1.

    Attributes:
        rows: The position of each row in the batch, ascending.
        sizes: The bytes of each row's key and value.
        nbytes: The bytes that count as in flight.
        number: The number of the chunk, ascending in the order of sending.
        left: The number of record batches that are neither stored nor lost.
        failures: The lost rows, by their index in the chunk.
        places: The position of each row in Kafka, by its position in the batch; None unless it is reported.
        batch_ends: True if `places` has only the first and the last row of each record batch.
    """

    batch: ProduceBatch
    rows: Sequence[int]
    sizes: np.ndarray
    receipts: Receipts
    nbytes: int
    number: int = -1
    left: int = 0
    failures: dict[int, FailedDelivery] = field(default_factory=dict)
    places: dict[int, RecordMetadata] | None = None
    batch_ends: bool = False

    def cut_behind(self, index: int) -> None:
        """Removes the rows after an index, before the chunk is sent: they are neither sent nor reported."""
        self.rows = self.rows[: index + 1]

    def sorted_failures(self) -> list[FailedDelivery]:
        return [self.failures[index] for index in sorted(self.failures)]

    def topic_of(self, index: int) -> str:
        if self.batch.topic is not None:
            return self.batch.topic
        topic: str = self.batch.table.column("topic")[index].as_py()
        return topic


@dataclass(eq=False, slots=True)
class PartitionBatch:
    """A record batch for one topic partition.

    Attributes:
        indices: The index in the chunk of each of its records, ascending.
        created: The time at which it was queued (monotonic seconds).
        unsure: True if it may be stored, because a broker did not answer or did not rule it out.
    """

    chunk: ProducedRows
    topic: str
    partition: int
    indices: np.ndarray
    encoded: EncodedBatch
    created: float
    sequence: int | None = None
    sent: int = 0
    error: ErrorKind | None = None
    unsure: bool = False

    @property
    def count(self) -> int:
        return self.encoded.count

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition

    def note_places(self, base_offset: int, append_time: int) -> None:
        """Notes the offset of its first record, and the broker's timestamp (-1 if records keep their own)."""
        places = self.chunk.places
        if places is None:
            return
        own = self.encoded.timestamps
        if self.chunk.batch_ends:
            for index in (0, -1):
                stamp = append_time if append_time >= 0 else own if isinstance(own, int) else int(own[index])
                offset = base_offset + index % self.count if base_offset >= 0 else -1
                row = self.chunk.rows[int(self.indices[index])]
                places[row] = RecordMetadata(self.topic, self.partition, offset, stamp)
            return
        times = repeat(append_time) if append_time >= 0 else repeat(own) if isinstance(own, int) else own.tolist()
        offsets = range(base_offset, base_offset + self.count) if base_offset >= 0 else repeat(-1)
        rows = map(self.chunk.rows.__getitem__, self.indices.tolist())
        places.update(
            zip(rows, map(RecordMetadata, repeat(self.topic), repeat(self.partition), offsets, times), strict=False)
        )

    def halves(self, encode: Encode) -> list[PartitionBatch]:
        """The same records in at least two batches."""
        return self._in_halves(self.indices, encode)

    def without(self, positions: Iterable[int], encode: Encode) -> list[PartitionBatch]:
        """The records except those at these positions, in at least two batches."""
        return self._in_halves(np.delete(self.indices, list(positions)), encode)

    def _in_halves(self, indices: np.ndarray, encode: Encode) -> list[PartitionBatch]:
        middle = len(indices) // 2
        return [*self.of(indices[:middle], encode), *self.of(indices[middle:], encode)]

    def of(self, indices: np.ndarray, encode: Encode) -> list[PartitionBatch]:
        """Makes record batches of some of its records; the chunk counts them in place of this one."""
        if not len(indices):
            return []
        table = self.chunk.batch.table.take(pa.array(indices))
        return [
            PartitionBatch(
                self.chunk,
                self.topic,
                self.partition,
                indices[made.first : made.first + made.count],
                made,
                self.created,
            )
            for made in encode(self.chunk.batch, table)
        ]
