"""Frames that tasks made: a ``SourceFrame``'s Arrow table or Spark DataFrame as a group of the pipeline.

Main functions: ``columns_of_table``, ``columns_of_dataframe``, and ``frame_to_records`` for what works record by
record. Main type: ``FrameColumns``.

Thread: pure functions; a task's pipeline thread, or that of its Spark jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from penstock.api import SourceFrame, SourceRecord
from penstock.data import ConnectHeaders, Header, Schema
from penstock.errors import ConnectException, DataException
from penstock.pipeline.assembly import LazyColumns
from penstock.pipeline.batches import WIRE_HEADERS
from penstock.pipeline.header_columns import of_wire, wire_to_column
from penstock.pipeline.records import from_arrow
from penstock.pipeline.step import NOTHING, Shape, Side
from penstock.pipeline.text_bounds import bounded
from penstock.pipeline.types import (
    HEADERS_SPARK,
    arrow_type,
    physical_of_arrow,
    physical_of_spark,
    schema_of_arrow,
    schema_of_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Column: TypeAlias = pa.Array | pa.ChunkedArray

#: Columns of a frame that are not keys or values, and their types.
OTHER_COLUMNS: Final = {"topic": pa.string(), "partition": pa.int32(), "timestamp": pa.int64(), "headers": WIRE_HEADERS}
_SPARK_TYPES: Final = {"topic": "string", "partition": "int", "timestamp": "bigint"}


@dataclass(frozen=True)
class FrameColumns:
    """A frame as the pipeline takes it.

    Attributes:
        shape: What is known of keys and values.
        sides: The columns ``key`` and ``value``, when the frame is Arrow.
        others: The other columns the frame has, when it is Arrow.
        rows: How many rows; None = a Spark DataFrame.
        frame: The Spark DataFrame, with a column for what the frame says of all its rows.
        carried: Names of the other columns it came with, when it is a Spark DataFrame.
    """

    shape: Shape
    sides: Mapping[str, Column]
    others: Mapping[str, Column]
    rows: int | None
    frame: DataFrame | None = None
    carried: frozenset[str] = frozenset()


def columns_of_table(frame: SourceFrame, table: pa.Table) -> FrameColumns:
    """Reads the layout of a frame's rows.

    Args:
        frame: Says the rest.
        table: The rows.

    Raises:
        ConnectException: There is no column ``value``, or a column does not fit its schema. The whole frame is wrong.
    """
    names = _checked_names(frame, table.column_names)
    value, values = _arrow_side(table, "value", frame.value_schema)
    sides: dict[str, Column] = {"value": values}
    key = NOTHING
    if "key" in names and not (frame.key_schema is None and table.column("key").null_count == table.num_rows):
        key, sides["key"] = _arrow_side(table, "key", frame.key_schema)
    others = {
        name: table.column(name).cast(kind) if table.column(name).type != kind else table.column(name)
        for name, kind in OTHER_COLUMNS.items()
        if name in names
    }
    return FrameColumns(Shape(key, value), sides, others, table.num_rows)


def _arrow_side(table: pa.Table, name: str, schema: Schema | None) -> tuple[Side, Column]:
    column = table.column(name)
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if schema is None:
        carrier = schema_of_arrow(column.type)
        return Side(None, physical_of_arrow(column.type, carrier), carrier), column
    try:
        physical = physical_of_arrow(column.type, schema)
        wanted = arrow_type(schema, physical)
        fitting = column if column.type == wanted else column.cast(wanted)
    except (pa.ArrowException, DataException, ValueError, KeyError, AttributeError) as error:
        raise ConnectException(
            f'The column "{name}" of a SourceFrame has the type {column.type}, which does not fit {schema}: {error}'
        ) from error
    return Side.of(schema, bounded(physical, fitting)).without_nulls(fitting), fitting


def columns_of_dataframe(frame: SourceFrame, data: DataFrame) -> FrameColumns:
    """The same for rows that are a Spark DataFrame.

    How many there are is known only once a job is done, so what the frame says of all its rows are columns here.

    Raises:
        ConnectException: As above.
    """
    from pyspark.sql import functions as F

    names = _checked_names(frame, data.columns)
    value = _spark_side(data, "value", frame.value_schema)
    key = _spark_side(data, "key", frame.key_schema) if "key" in names else NOTHING
    carried = frozenset(name for name in OTHER_COLUMNS if name in names)
    chosen = [F.col(name) for name in ("key", "value") if name in names]
    if "headers" in names:
        chosen.append(of_wire(F.col("headers")).alias("headers"))
    chosen += [F.col(name).cast(kind).alias(name) for name, kind in _SPARK_TYPES.items() if name in names]
    columns = FrameColumns(Shape(key, value), {}, {}, None, None, carried)
    constants = {name: F.lit(constant) for name, constant in missing_constants(frame, columns).items()}
    if "headers" not in names:
        constants["headers"] = F.lit(None).cast(HEADERS_SPARK)
    return replace(columns, frame=data.select(*chosen).withColumns(constants))


def _checked_names(frame: SourceFrame, names: Sequence[str]) -> set[str]:
    if "value" not in names:
        raise ConnectException(
            f'A SourceFrame needs a column "value"; this one has {", ".join(sorted(names)) or "none"}'
        )
    if frame.topic is None and "topic" not in names:
        raise ConnectException('A SourceFrame needs a topic: set "topic", or give it a column of that name')
    return set(names)


def _spark_side(data: DataFrame, name: str, schema: Schema | None) -> Side:
    kind = data.schema[name].dataType
    if schema is None:
        carrier = schema_of_spark(kind)
        return Side(None, physical_of_spark(kind, carrier), carrier)
    return Side.of(schema, physical_of_spark(kind, schema))


def frame_to_records(frame: SourceFrame, table: pa.Table) -> list[SourceRecord]:
    """The rows as records, for what works record by record (a user's transform in front of a frame task)."""
    columns = columns_of_table(frame, table)
    values = _side_values(columns.sides["value"], columns.shape.value)
    keys = _side_values(columns.sides["key"], columns.shape.key) if "key" in columns.sides else [None] * len(values)
    return records_of(frame, columns.others, keys, values)


def missing_constants(frame: SourceFrame, columns: FrameColumns) -> dict[str, object]:
    """What the frame says of all its rows at once, by the name of the column that it does not have."""
    constants = {"topic": frame.topic, "partition": frame.partition, "timestamp": frame.timestamp}
    return {name: value for name, value in constants.items() if name not in columns.carried | columns.others.keys()}


def shared_of(columns: FrameColumns, missing: Mapping[str, object], rows: int) -> LazyColumns:
    """What steps may read of an Arrow frame beside keys and values: its columns, and what it says of all its rows."""
    makers = {name: partial(_repeated, name, value, rows) for name, value in missing.items()}
    makers |= {name: partial(_itself, column) for name, column in columns.others.items()}
    wire = columns.others.get("headers", pa.nulls(rows, WIRE_HEADERS))
    makers["headers"] = partial(wire_to_column, wire)
    return LazyColumns(makers)


def _repeated(name: str, value: object, rows: int) -> pa.Array:
    kind = OTHER_COLUMNS[name]
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _itself(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column


def records_of(
    frame: SourceFrame, others: Mapping[str, Column], keys: Sequence[object], values: Sequence[object]
) -> list[SourceRecord]:
    """Records with these keys and values.

    Args:
        frame: Says their schemas, and what it says of all rows.
        others: What it says of each, by the column's name.
        keys: One for each row.
        values: One for each row.
    """
    rows = len(values)

    def other(name: str, constant: object) -> list[Any]:
        return others[name].to_pylist() if name in others else [constant] * rows

    return [
        SourceRecord(
            frame.source_partition,
            None,
            topic,
            value,
            value_schema=frame.value_schema,
            key=key,
            key_schema=frame.key_schema,
            partition=partition,
            timestamp=timestamp,
            headers=_headers(headers),
        )
        for topic, key, value, partition, timestamp, headers in zip(
            other("topic", frame.topic),
            keys,
            values,
            other("partition", frame.partition),
            other("timestamp", frame.timestamp),
            other("headers", None),
            strict=True,
        )
    ]


def _headers(wire: list[dict[str, Any]] | None) -> ConnectHeaders | None:
    return None if wire is None else ConnectHeaders(Header(one["key"], one["value"]) for one in wire)


def _side_values(column: Column, side: Side) -> list[object]:
    return from_arrow(column, side.carrier, side.physical)
