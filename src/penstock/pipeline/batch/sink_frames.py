"""Outcomes to the frames of a frame sink: runs of rows with equal schemas, in the order they were consumed.

Main function: ``frames_of``; ``with_wire_headers`` and ``changed_columns`` are for what transforms have changed.

Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, SinkFrame
from penstock.data import ConnectHeaders, Date, Schema, Time, Timestamp, Type
from penstock.pipeline.columns.types import Form, Physical, logical_name
from penstock.pipeline.plan.outcomes import Outcome
from penstock.pipeline.plan.step import Side, SideName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.batch.headers import HeaderWriter
    from penstock.pipeline.batch.segments import Failures

_TEMPORAL = {
    Timestamp.LOGICAL_NAME: pa.timestamp("ms", "UTC"),
    Date.LOGICAL_NAME: pa.date32(),
    Time.LOGICAL_NAME: pa.time32("ms"),
}
_SIDES: tuple[SideName, SideName] = ("key", "value")


def frames_of(
    outcomes: Sequence[Outcome], table: pa.Table, gone: np.ndarray, session: Callable[[], SparkSession]
) -> list[SinkFrame]:
    """Cuts the batch into frames.

    Args:
        outcomes: What came of its groups.
        table: The batch as it was consumed.
        gone: True for the rows that failed or were dropped.
        session: Gives the Spark session.
    """
    rows = table.num_rows
    if len(outcomes) == 1 and outcomes[0].rows is None and not gone.any():
        return [_frame(outcomes[0], table, None, None, session)] if rows else []
    outcomes = _united(outcomes, rows)
    owner = np.full(rows, -1, dtype=np.int64)
    place = np.zeros(rows, dtype=np.int64)
    for index, outcome in enumerate(outcomes):
        positions = np.arange(rows) if outcome.rows is None else outcome.rows
        owner[positions] = index
        place[positions] = np.arange(len(positions))
    owner[gone] = -1
    kept = np.flatnonzero(owner >= 0)
    return [_frame(outcomes[owner[run[0]]], table, run, place[run], session) for run in _runs(kept, owner)]


def _united(outcomes: Sequence[Outcome], rows: int) -> list[Outcome]:
    """Outcomes that look the same in a frame as one: their rows may alternate, and each run is a frame."""
    alike: dict[Hashable, list[Outcome]] = {}
    for outcome in outcomes:
        sides = tuple((known.schema, known.absent) for known in map(outcome.shape.side, _SIDES))
        kind = (sides, frozenset((name, column.type) for name, column in outcome.columns.items()))
        alike.setdefault(kind, []).append(outcome)
    return [found[0] if len(found) == 1 else _one_of(found, rows) for found in alike.values()]


def _one_of(outcomes: Sequence[Outcome], rows: int) -> Outcome:
    first = outcomes[0]
    positions = [np.arange(rows) if one.rows is None else one.rows for one in outcomes]
    columns = {
        name: pa.chunked_array([chunk for one in outcomes for chunk in one.columns[name].chunks], column.type)
        for name, column in first.columns.items()
    }
    return replace(first, rows=np.concatenate(positions), columns=columns)


def _runs(kept: np.ndarray, owner: np.ndarray) -> Iterator[np.ndarray]:
    """The kept rows, cut where the next one belongs to another outcome."""
    if len(kept):
        yield from np.split(kept, np.flatnonzero(np.diff(owner[kept])) + 1)


def _frame(
    outcome: Outcome,
    table: pa.Table,
    rows: np.ndarray | None,
    places: np.ndarray | None,
    session: Callable[[], SparkSession],
) -> SinkFrame:
    part = table if rows is None else table.take(pa.array(rows))
    columns = {name: part.column(name) for name in ("topic", "partition", "offset", "timestamp", "timestamp_type")}
    for name in ("topic", "partition", "timestamp"):
        if name in outcome.columns:
            columns[name] = _picked(outcome.columns[name], places)
    for side in _SIDES:
        known = outcome.shape.side(side)
        column = outcome.columns.get(side)
        if known.absent or column is None:
            columns[side] = pa.nulls(part.num_rows)
        else:
            columns[side] = _with_dates(_picked(column, places), known)
    changed = outcome.columns.get("headers")
    columns["headers"] = part.column("headers") if changed is None else _picked(changed, places)
    return SinkFrame(pa.table(columns), outcome.shape.key.schema, outcome.shape.value.schema, session)


def _picked(column: pa.ChunkedArray, places: np.ndarray | None) -> pa.ChunkedArray:
    return column if places is None else column.take(pa.array(places))


def _with_dates(column: pa.ChunkedArray, side: Side) -> pa.ChunkedArray:
    """Raw numbers of the temporal types as real dates and times."""
    kind = _dated(column.type, side.schema, side.physical)
    return column if kind is None else column.cast(kind)


def _dated(kind: pa.DataType, schema: Schema | None, physical: Physical) -> pa.DataType | None:
    """The type with dates in it; None = there are none."""
    if schema is None or physical.form is Form.VARIANT:
        return None
    name = logical_name(schema)
    if name in _TEMPORAL:
        return _TEMPORAL[name]
    if schema.type is Type.ARRAY:
        inner = _dated(kind.value_type, schema.value_schema, physical.children[0])
        return None if inner is None else pa.list_(kind.value_field.with_type(inner))
    if physical.form is Form.MAP:
        inner = _dated(kind.item_type, schema.value_schema, physical.children[1])
        return None if inner is None else pa.map_(kind.key_field, kind.item_field.with_type(inner))
    if physical.form is Form.ENTRIES:
        pair = kind.value_type
        parts = ((schema.key_schema, physical.children[0]), (schema.value_schema, physical.children[1]))
        dated = _dated_fields(pair, parts)
        return None if dated is None else pa.list_(kind.value_field.with_type(dated))
    if physical.form is Form.STRUCT:
        return _dated_fields(kind, zip([one.schema for one in schema.fields], physical.children, strict=True))
    return None


def _dated_fields(kind: pa.StructType, parts: Iterable[tuple[Schema | None, Physical]]) -> pa.DataType | None:
    """The struct with dates in it; None = there are none."""
    inner = [_dated(field.type, schema, child) for field, (schema, child) in zip(kind, parts, strict=True)]
    if all(one is None for one in inner):
        return None
    pairs = zip(kind, inner, strict=True)
    return pa.struct([field if one is None else field.with_type(one) for field, one in pairs])


def changed_columns(
    live: Sequence[ConnectRecord], headers: Sequence[ConnectHeaders | None], table: pa.Table
) -> frozenset[str]:
    """Which columns of messages transforms have changed, beside keys and values."""
    now = {
        "topic": [one.topic for one in live],
        "partition": [one.kafka_partition for one in live],
        "timestamp": [one.timestamp for one in live],
    }
    changed = {name for name, values in now.items() if values != table.column(name).to_pylist()}
    if any((one.raw_headers or None) != (before or None) for one, before in zip(live, headers, strict=True)):
        changed.add("headers")
    return frozenset(changed)


def with_wire_headers(
    outcome: Outcome, table: pa.Table, present: np.ndarray, writer: HeaderWriter, failures: Failures
) -> Outcome:
    """Writes headers that a transform changed again as bytes, for frames."""
    if "headers" not in outcome.columns:
        return outcome
    seqs = np.arange(table.num_rows) if outcome.rows is None else outcome.rows
    headers = outcome.columns["headers"].combine_chunks()
    topics = outcome.columns["topic"] if "topic" in outcome.columns else table.column("topic").take(pa.array(seqs))
    kept = np.flatnonzero(present[seqs])
    pick = pa.array(kept)
    written = writer.write_column(headers.take(pick), topics.take(pick), seqs[kept], failures)
    place = np.full(len(seqs), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    wire = pa.chunked_array([written.take(pa.array(place, mask=place < 0))])
    return replace(outcome, columns={**outcome.columns, "headers": wire})
