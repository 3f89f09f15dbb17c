"""Rows of a batch that a `ColumnProducer` sends together, and the record batches that are made of them.

Main types: `Chunk` keeps account of its rows until each of them is stored or lost; `Piece` is one record batch of it
for one topic partition, which can be made anew of fewer rows when the broker does not take it whole.

Thread: made on the thread that sends; once handed over they belong to the producer's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa

from penstock.api import RecordMetadata
from penstock.kafka.deliveries import FailedDelivery, Receipts
from penstock.kafka.protocol_errors import ErrorKind
from penstock.kafka.record_batches import EncodedBatch
from penstock.pipeline.batch.batches import ProduceBatch

Encode = Callable[[ProduceBatch, pa.Table], list[EncodedBatch]]


@dataclass(eq=False)
class Chunk:
    """Some rows of a batch. Invariant 1.

    Attributes:
        batch: What the rows are of; its table is that of the chunk alone.
        rows: Position of each row in the batch that was to be sent, ascending.
        sizes: Bytes of each row's key and value.
        receipts: Who is told.
        nbytes: What counts as under way.
        number: Of the chunk, ascending in the order of sending.
        left: Pieces that are neither stored nor lost.
        failures: Rows that are lost, by their index in the chunk.
        places: Where each row is, by position in the batch; None when nobody asks.
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

    def cut_behind(self, index: int) -> None:
        """Leaves out the rows behind an index, before the chunk is handed over: they are not sent, nor reported."""
        self.rows = self.rows[: index + 1]

    def sorted_failures(self) -> list[FailedDelivery]:
        """The failures, in the order of rows."""
        return [self.failures[index] for index in sorted(self.failures)]

    def topic_of(self, index: int) -> str:
        """The topic of a row."""
        if self.batch.topic is not None:
            return self.batch.topic
        topic: str = self.batch.table.column("topic")[index].as_py()
        return topic


@dataclass(eq=False, slots=True)
class Piece:
    """A record batch for one topic partition.

    Attributes:
        indices: For each of its records the row's index in the chunk, ascending.
        created: When it was handed over (monotonic seconds).
        sequence: Number of its first record, see `PartitionQueue`.
        sent: How often it was sent.
        error: What was said to it last, where it is sent again.
        unsure: Whether it may be stored: a broker did not answer, or not that it surely is not.
    """

    chunk: Chunk
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
        """How many records it has."""
        return self.encoded.count

    @property
    def place(self) -> tuple[str, int]:
        """Where it is sent."""
        return self.topic, self.partition

    def note_places(self, base_offset: int, append_time: int) -> None:
        """Notes the offset of its first record, and the broker's time (-1 if records keep their own)."""
        places = self.chunk.places
        if places is None:
            return
        own = self.encoded.timestamps
        times = repeat(append_time) if append_time >= 0 else repeat(own) if isinstance(own, int) else own.tolist()
        offsets = range(base_offset, base_offset + self.count) if base_offset >= 0 else repeat(-1)
        rows = map(self.chunk.rows.__getitem__, self.indices.tolist())
        places.update(
            zip(rows, map(RecordMetadata, repeat(self.topic), repeat(self.partition), offsets, times), strict=False)
        )

    def halves(self, encode: Encode) -> list[Piece]:
        """The same records in two parts or more."""
        return self._in_halves(self.indices, encode)

    def without(self, positions: Iterable[int], encode: Encode) -> list[Piece]:
        """The records without those at these positions, in two parts or more."""
        return self._in_halves(np.delete(self.indices, list(positions)), encode)

    def _in_halves(self, indices: np.ndarray, encode: Encode) -> list[Piece]:
        middle = len(indices) // 2
        return [*self.of(indices[:middle], encode), *self.of(indices[middle:], encode)]

    def of(self, indices: np.ndarray, encode: Encode) -> list[Piece]:
        """Makes pieces of some of its records; the chunk counts them in place of this one."""
        if not len(indices):
            return []
        table = self.chunk.batch.table.take(pa.array(indices))
        return [
            Piece(
                self.chunk,
                self.topic,
                self.partition,
                indices[made.first : made.first + made.count],
                made,
                self.created,
            )
            for made in encode(self.chunk.batch, table)
        ]
