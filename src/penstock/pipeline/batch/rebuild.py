"""Records again: from what Spark made of a group, and through what works on records in Python.

Main functions: ``rebuilt_rows`` and ``in_order`` (outcomes' rows as records), ``columns_of`` (the coordinates of
records as columns), ``apply_classic`` (a user's transform).

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord
from penstock.errors import as_exception
from penstock.pipeline.batch.assembly import LazyColumns
from penstock.pipeline.batch.batches import Stage
from penstock.pipeline.batch.segments import Classic, Failures
from penstock.pipeline.columns.header_columns import headers_column, headers_of_column
from penstock.pipeline.columns.records import from_arrow
from penstock.pipeline.plan.outcomes import GroupOutcome
from penstock.pipeline.plan.step import SideName

#: What records have under a name, in their order; None for what they have not.
Attributes: TypeAlias = Callable[[str], Sequence[Any]]

_SIDES: tuple[SideName, SideName] = ("key", "value")
_ROW: Final = itemgetter(0)
#: What records call the other columns.
_ATTRIBUTES: Final = {
    "topic": "topic",
    "partition": "kafka_partition",
    "timestamp": "timestamp",
    "headers": "raw_headers",
}


def side_values(outcome: GroupOutcome, side: SideName, rows: int) -> Sequence[object]:
    """The keys or values of an outcome as Python objects."""
    known = outcome.shape.side(side)
    column = outcome.columns.get(side)
    if known.absent or column is None:
        return [None] * rows
    return from_arrow(column, known.carrier if known.schema is None else known.schema, known.physical)


def rebuilt_rows(
    outcome: GroupOutcome, records: Mapping[int, ConnectRecord] | Sequence[ConnectRecord]
) -> list[tuple[int, ConnectRecord]]:
    """The records of an outcome with their rows, without dropped ones; what failed is in there still.

    Args:
        outcome: Its rows are rows of `records`; a row may be there several times.
        records: What the job was given, by row.
    """
    key_schema, value_schema = outcome.shape.key.schema, outcome.shape.value.schema

    def changed(rows: Sequence[int], keys: Sequence[object], values: Sequence[object]) -> list[ConnectRecord]:
        return [
            records[row].new_record(key_schema=key_schema, key=key, value_schema=value_schema, value=value)
            for row, key, value in zip(rows, keys, values, strict=True)
        ]

    return rows_of(outcome, len(records), changed)


def rows_of(
    outcome: GroupOutcome,
    count: int,
    make: Callable[[Sequence[int], Sequence[object], Sequence[object]], Sequence[ConnectRecord]],
) -> list[tuple[int, ConnectRecord]]:
    """As ``rebuilt_rows``, with records that `make` makes.

    Args:
        outcome: What came of a job.
        count: How many rows the job was given.
        make: Makes a record of each row, key and value, with their schemas. Nobody else has these records yet: what the
            job has changed beside is set in them.
    """
    rows = range(count) if outcome.rows is None else outcome.rows.tolist()
    keys, values = (side_values(outcome, side, len(rows)) for side in _SIDES)
    made = make(rows, keys, values)
    for name, attribute in _ATTRIBUTES.items():
        if name in outcome.columns:
            column = outcome.columns[name]
            found = headers_of_column(column) if name == "headers" else column.to_pylist()
            for record, value in zip(made, found, strict=True):
                setattr(record, attribute, value)
    pairs = zip(rows, made, strict=True)
    if outcome.dropped is None:
        return list(pairs)
    return [pair for pair, gone in zip(pairs, outcome.dropped.to_pylist(), strict=True) if not gone]


def in_order(
    made: Sequence[Sequence[tuple[int, ConnectRecord]]], rows: int, failures: Failures
) -> tuple[list[ConnectRecord], list[int] | None]:
    """Records of several outcomes, without failed ones, and their rows; None = row i is record i.

    Args:
        made: For each outcome, in the order of its rows; no row is in two.
        rows: How many there are in the batch.
        failures: What has failed.
    """
    found = sorted_rows(made, failures)
    records = [record for _, record in found]
    return records, None if len(found) == rows else [row for row, _ in found]


def sorted_rows(
    made: Sequence[Sequence[tuple[int, ConnectRecord]]], failures: Failures
) -> list[tuple[int, ConnectRecord]]:
    """Records with their rows, of several parts, in the order of the rows and without failed ones."""
    found = list(made[0]) if len(made) == 1 else sorted(chain.from_iterable(made), key=_ROW)
    if not failures.errors:
        return found
    return [one for one in found if failures.of_row(one[0]) is None]


def apply_classic(
    classic: Classic, live: list[ConnectRecord], positions: Sequence[int] | None, failures: Failures
) -> tuple[list[ConnectRecord], Sequence[int] | None]:
    """Runs a user's transform over records, in order; what it drops, or fails for, is not among its results."""
    kept: list[ConnectRecord] = []
    gone: list[int] = []
    apply = classic.apply
    for index, record in enumerate(live):
        try:
            result = apply(record)
        except BaseException as error:
            row = index if positions is None else positions[index]
            failures.raised(row, Stage.TRANSFORMATION, classic.name, as_exception(error))
            result = None
        if result is None:
            gone.append(index)
        else:
            kept.append(result)
    if not gone:
        return kept, positions
    left = np.delete(np.arange(len(live)) if positions is None else np.asarray(positions, dtype=np.int64), gone)
    return kept, left.tolist()


def attributes_of(records: Sequence[ConnectRecord]) -> Attributes:
    """Returns a function that gives an attribute of all records; it is looked up once for all who ask."""

    @cache
    def attribute(name: str) -> Sequence[Any]:
        try:
            return list(map(attrgetter(name), records))
        except AttributeError:  # records of a source have no offset in Kafka
            return [getattr(record, name, None) for record in records]

    return attribute


def columns_of(attributes: Attributes, positions: Sequence[int] | None, rows: int, failures: Failures) -> LazyColumns:
    """Topic, partition, timestamp, offset and headers by position in the batch.

    Notes headers that fit no column.

    Args:
        attributes: What the records have.
        positions: The position of each; None = 0, 1, 2, ...
        rows: How many there are in the batch.
        failures: Gets records with such headers.
    """

    def spread(values: Sequence[object]) -> Sequence[Any]:
        if positions is None:
            return values
        found: list[object] = [None] * rows
        for seq, value in zip(positions, values, strict=True):
            found[seq] = value
        return found

    def by_position(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array(spread(attributes(name)), kind)

    def on_bad(seq: int, error: Exception) -> None:
        failures.raised(seq, Stage.HEADER_CONVERTER, "org.apache.kafka.connect.header.ConnectHeaders", error)

    return LazyColumns(
        {
            "topic": lambda: by_position("topic", pa.string()),
            "partition": lambda: by_position("kafka_partition", pa.int32()),
            "timestamp": lambda: by_position("timestamp", pa.int64()),
            "offset": lambda: by_position("kafka_offset", pa.int64()),
            "headers": lambda: headers_column(spread(attributes("raw_headers")), on_bad),
        }
    )
