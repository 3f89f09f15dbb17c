"""The rows of a batch as the parallel lists that the Kafka client's ``produce`` is mapped over.

Main type: `ProduceColumns`, made by `columns_of`. Everything is list work in C; there is no Python code for each row,
except where rows have headers.

Thread: none; values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.batches import ProduceBatch

#: What the client takes for "no partition chosen" and "no timestamp given".
ANY_PARTITION: Final = -1
NO_TIMESTAMP: Final = 0

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class ProduceColumns:
    """Columns of equal length; a list of length one with `constant` stands for the same value in each row.

    Attributes:
        table: The rows they were made of, to find a row again by its content.
        values: One for each row.
        others: Topic, key, partition, timestamp and headers: a list of one value for each row, or a single value in a
            tuple of one.
        mean_bytes: Average size of key and value.
    """

    table: pa.Table
    values: list[bytes | None]
    topics: Sequence[str]
    keys: Sequence[bytes | None]
    partitions: Sequence[int]
    timestamps: Sequence[int]
    headers: Sequence[Headers | None]
    mean_bytes: int

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.values)

    def topic_at(self, row: int) -> str:
        """The topic of a row."""
        return self.topics[0] if isinstance(self.topics, tuple) else self.topics[row]


def spread(column: Sequence[object], first: int, end: int) -> Iterable[object]:
    """A column's values of rows `first` to `end - 1`.

    >>> list(spread([1, 2, 3], 1, 3)), next(iter(spread((7,), 0, 2)))
    ([2, 3], 7)
    """
    return repeat(column[0], end - first) if isinstance(column, tuple) else column[first:end]


def columns_of(batch: ProduceBatch, rows: pa.Array | None) -> ProduceColumns:
    """Take the rows to send out of a batch.

    Args:
        batch: converted records.
        rows: their positions, ascending; None for all.
    """
    table = batch.table if rows is None else batch.table.take(rows)
    keys, values = table.column("key"), table.column("value")
    nbytes = values.nbytes + (keys.nbytes if batch.has_keys else 0)
    return ProduceColumns(
        table=table,
        values=values.to_pylist(),
        topics=(batch.topic,) if batch.topic is not None else table.column("topic").to_pylist(),
        keys=keys.to_pylist() if batch.has_keys else (None,),
        partitions=_integers(table.column("partition"), ANY_PARTITION) if batch.has_partition else (ANY_PARTITION,),
        timestamps=_timestamps(batch, table),
        headers=_headers(table.column("headers")) if batch.has_headers else (None,),
        mean_bytes=nbytes // max(1, table.num_rows),
    )


def _timestamps(batch: ProduceBatch, table: pa.Table) -> Sequence[int]:
    if batch.timestamp is not None:
        return (_wire_timestamp(batch.timestamp),)
    column = table.column("timestamp")
    if column.null_count == table.num_rows:
        return (NO_TIMESTAMP,)
    column = pc.if_else(pc.equal(column, 0), 1, column)
    return _integers(pc.if_else(pc.equal(column, -1), NO_TIMESTAMP, column), NO_TIMESTAMP)


def _wire_timestamp(timestamp: int) -> int:
    # The client cannot say 1970-01-01T00:00:00.000, it takes 0 for "now": one millisecond late is the nearest it can.
    return {0: 1, -1: NO_TIMESTAMP}.get(timestamp, timestamp)


def _integers(column: pa.ChunkedArray, instead_of_null: int) -> list[int]:
    filled: list[int] = pc.fill_null(column, instead_of_null).to_pylist()
    return filled


def _headers(column: pa.ChunkedArray) -> list[Headers | None]:
    found: list[Headers | None] = []
    for chunk in column.chunks:
        entries = chunk.flatten()
        pairs = list(zip(entries.field("key").to_pylist(), entries.field("value").to_pylist(), strict=True))
        at = 0
        for length in pc.list_value_length(chunk).to_pylist():
            found.append(pairs[at : at + length] if length else None)
            at += length or 0
    return found
