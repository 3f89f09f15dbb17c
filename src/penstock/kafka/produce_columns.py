"""Some rows of a batch as the parallel lists that the Kafka client's ``produce`` is mapped over.

Main type: `ProduceColumns`, made by `columns_of` for a chunk of rows at a time, so that a batch never exists as Python
objects. Everything is list work in C; there is no Python code for each row, except where rows have headers.

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
    """Columns of equal length. Each is a list with a value for each row, or a tuple of the one value all rows have.

    Attributes:
        values: Always a list.
    """

    values: list[bytes | None]
    topics: Sequence[str]
    keys: Sequence[bytes | None]
    partitions: Sequence[int]
    timestamps: Sequence[int]
    headers: Sequence[Headers | None]

    def bytes_at(self, row: int) -> int:
        """Size of a row's key and value."""
        key = self.keys[0] if isinstance(self.keys, tuple) else self.keys[row]
        return len(self.values[row] or b"") + len(key or b"")


def spread(column: Sequence[object], first: int) -> Iterable[object]:
    """A column's values from row `first` on; without end for a constant.

    >>> list(spread([1, 2, 3], 1)), next(iter(spread((7,), 1)))
    ([2, 3], 7)
    """
    if isinstance(column, tuple):
        return repeat(column[0])
    return column[first:] if first else column


def columns_of(batch: ProduceBatch) -> ProduceColumns:
    """The rows of a batch, or of a part of one."""
    table = batch.table
    return ProduceColumns(
        values=table.column("value").to_pylist(),
        topics=(batch.topic,) if batch.topic is not None else table.column("topic").to_pylist(),
        keys=table.column("key").to_pylist() if batch.has_keys else (None,),
        partitions=_integers(table.column("partition"), ANY_PARTITION) if batch.has_partition else (ANY_PARTITION,),
        timestamps=_timestamps(batch, table),
        headers=_headers(table.column("headers")) if batch.has_headers else (None,),
    )


def mean_bytes(batch: ProduceBatch) -> int:
    """Average size of key and value."""
    table = batch.table
    nbytes: int = table.column("value").nbytes + (table.column("key").nbytes if batch.has_keys else 0)
    return nbytes // max(1, len(table))


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
