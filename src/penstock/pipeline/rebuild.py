"""Records again: from what Spark made of a group, and through what works on records in Python.

Main functions: ``rebuilt`` (an outcome's rows as records), ``columns_of`` (the coordinates of records as columns),
``apply_classic`` (a user's transform).

Thread: a task's pipeline thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, SinkRecord
from penstock.pipeline.assembly import LazyColumns
from penstock.pipeline.batches import Stage
from penstock.pipeline.header_columns import headers_column, headers_of_column
from penstock.pipeline.jobs import Outcome
from penstock.pipeline.records import from_arrow
from penstock.pipeline.segments import Classic, Failures
from penstock.pipeline.step import SideName

_SIDES: tuple[SideName, SideName] = ("key", "value")


def side_values(outcome: Outcome, side: SideName, rows: int) -> Sequence[object]:
    """The keys or values of an outcome as Python objects."""
    known = outcome.shape.side(side)
    column = outcome.columns.get(side)
    if known.absent or column is None:
        return [None] * rows
    return from_arrow(column, known.carrier if known.schema is None else known.schema, known.physical)


def rebuilt(outcome: Outcome, records: Mapping[int, ConnectRecord]) -> dict[int, ConnectRecord]:
    """The records of an outcome, without dropped ones; what failed is in there still."""
    return dict(rebuilt_rows(outcome, records))


def rebuilt_rows(outcome: Outcome, records: Mapping[int, ConnectRecord]) -> list[tuple[int, ConnectRecord]]:
    """The same where a row may have become several."""
    seqs = list(range(len(records))) if outcome.rows is None else outcome.rows.tolist()
    changes: dict[str, Sequence[Any]] = {}
    for side in _SIDES:
        changes[side] = side_values(outcome, side, len(seqs))
        changes[f"{side}_schema"] = [outcome.shape.side(side).schema] * len(seqs)
    for name in ("topic", "partition", "timestamp"):
        if name in outcome.columns:
            changes[name] = outcome.columns[name].to_pylist()
    if "headers" in outcome.columns:
        changes["headers"] = headers_of_column(outcome.columns["headers"])
    dropped = [False] * len(seqs) if outcome.dropped is None else outcome.dropped.to_pylist()
    names = list(changes)
    return [
        (seq, _with(records[seq], names, values))
        for seq, gone, *values in zip(seqs, dropped, *changes.values(), strict=True)
        if not gone
    ]


def _with(record: ConnectRecord, names: Sequence[str], values: Sequence[Any]) -> ConnectRecord:
    return record.new_record(**dict(zip(names, values, strict=True)))


def apply_classic(
    classic: Classic, live: list[ConnectRecord], positions: list[int] | None, failures: Failures
) -> tuple[list[ConnectRecord], list[int] | None]:
    """Runs a user's transform over records, in order; what it drops, or fails for, is not among its results."""
    kept: list[ConnectRecord] = []
    gone: list[int] = []
    apply = classic.apply
    for index, record in enumerate(live):
        try:
            result = apply(record)
        except Exception as error:
            failures.raised(index if positions is None else positions[index], Stage.TRANSFORMATION, classic.name, error)
            result = None
        if result is None:
            gone.append(index)
        else:
            kept.append(result)
    if not gone:
        return kept, positions
    left = np.delete(np.arange(len(live)) if positions is None else np.asarray(positions, dtype=np.int64), gone)
    return kept, left.tolist()


def columns_of(
    records: Sequence[ConnectRecord], positions: Sequence[int] | None, rows: int, failures: Failures
) -> LazyColumns:
    """Topic, partition, timestamp, offset and headers by position in the batch.

    Notes headers that fit no column.
    """

    def spread(values: list[object]) -> list[Any]:
        if positions is None:
            return values
        found: list[object] = [None] * rows
        for seq, value in zip(positions, values, strict=True):
            found[seq] = value
        return found

    def by_position(values: list[object], kind: pa.DataType) -> pa.Array:
        return pa.array(spread(values), kind)

    def on_bad(seq: int, error: Exception) -> None:
        failures.raised(seq, Stage.HEADER_CONVERTER, "org.apache.kafka.connect.header.ConnectHeaders", error)

    return LazyColumns(
        {
            "topic": lambda: by_position([record.topic for record in records], pa.string()),
            "partition": lambda: by_position([record.kafka_partition for record in records], pa.int32()),
            "timestamp": lambda: by_position([record.timestamp for record in records], pa.int64()),
            "offset": lambda: by_position(
                [record.kafka_offset if isinstance(record, SinkRecord) else None for record in records], pa.int64()
            ),
            "headers": lambda: headers_column(spread([record.raw_headers for record in records]), on_bad),
        }
    )
