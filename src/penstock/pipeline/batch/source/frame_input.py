"""Frames that tasks made: a ``SourceFrame``'s Arrow table or Spark DataFrame as a group of the pipeline.

Main functions: ``columns_of_table``, ``columns_of_dataframe``, and ``frame_to_records`` for steps that work record by
record. Main type: ``FrameColumns``.

Thread: pure functions; a task's pipeline thread, or that of its Spark jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from penstock.api import SourceFrame, SourceRecord
from penstock.api.arrow import connect_schema, is_variant, one_array
from penstock.data import ConnectHeaders, Field, Header, Schema, Timestamp, Type
from penstock.errors import ConnectException, DataException
from penstock.pipeline.batch.batches import WIRE_HEADERS, LazyColumns
from penstock.pipeline.batch.groups import side_column
from penstock.pipeline.batch.source.frame_spark import fitted_column, schemaless_column
from penstock.pipeline.batch.transfer import Same, Values
from penstock.pipeline.columns.frame_arrow import fitted, plain_schemaless, python_values
from penstock.pipeline.columns.header_columns import of_wire, wire_to_column
from penstock.pipeline.columns.layout import HEADERS_SPARK, SCALAR, bounded, collectable, schema_of_spark
from penstock.pipeline.columns.records import from_arrow
from penstock.pipeline.plan.step import NOTHING, SCHEMALESS, Shape, Side

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Column: TypeAlias = pa.Array | pa.ChunkedArray

#: Columns of a frame that are not keys or values, and their types.
OTHER_COLUMNS: Final = {"topic": pa.string(), "partition": pa.int32(), "timestamp": pa.int64(), "headers": WIRE_HEADERS}
_HEADER: Final = Schema(
    Type.STRUCT,
    optional=True,
    fields=(
        Field("key", 0, Schema(Type.STRING, optional=True)),
        Field("value", 1, Schema(Type.BYTES, optional=True)),
    ),
)
#: The types to which these columns are cast.
_OTHERS: Final = {
    "topic": Schema(Type.STRING, optional=True),
    "partition": Schema(Type.INT32, optional=True),
    "timestamp": Timestamp.builder().optional().build(),
    "headers": Schema(Type.ARRAY, optional=True, value_schema=_HEADER),
}


@dataclass(frozen=True)
class FrameColumns:
    """The pipeline's form of a frame.

    Attributes:
        shape: The known shape of keys and values.
        sides: The columns ``key`` and ``value``, when the frame is Arrow.
        others: The other columns of the frame, when it is Arrow.
        rows: The number of rows; None = a Spark DataFrame.
        frame: The Spark DataFrame, with columns for the constants of the frame.
        carried: The names of the other columns of its query, when it is a Spark DataFrame.
    """

    shape: Shape
    sides: Mapping[str, Column]
    others: Mapping[str, Column]
    rows: int | None
    frame: DataFrame | None = None
    carried: frozenset[str] = frozenset()


def in_arrow(frame: SourceFrame) -> SourceFrame:
    """Converts pandas rows or a record batch of a frame to a PyArrow table; returns any other frame unchanged.

    Raises:
        ConnectException: Its data has no rows, or pandas has a column that Arrow does not support.
    """
    data: Any = frame.data
    if isinstance(data, pa.Table) or callable(data):
        return frame
    kind = type(data)
    if isinstance(data, pa.RecordBatch):
        return replace(frame, data=pa.Table.from_batches([data]))
    if kind.__module__.startswith("pandas.") and kind.__name__ == "DataFrame":
        return replace(frame, data=_table_of_pandas(data))
    if not hasattr(kind, "sparkSession"):
        raise ConnectException(
            f"The data of a SourceFrame is a {kind.__name__}; it must be a PyArrow table, a pandas DataFrame, a Spark "
            "DataFrame, or a function that makes one of a Spark session"
        )
    return frame


def _table_of_pandas(data: Any) -> pa.Table:
    if kept := [str(name) for name in data.index.names if name is not None]:
        raise ConnectException(
            f"The index of a pandas DataFrame is no column of a SourceFrame: {_quoted(kept)} would be lost. "
            "reset_index() makes it a column, reset_index(drop=True) leaves it out"
        )
    try:
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ConnectException(f"A pandas DataFrame has a column that no PyArrow table can have: {error}") from error


def columns_of_table(frame: SourceFrame, table: pa.Table) -> FrameColumns:
    """Reads the layout of a frame's rows.

    Args:
        frame: Has the schemas and constants.
        table: The rows.

    Raises:
        ConnectException: The columns are not those of a frame, or one does not fit its schema. The whole frame is
            invalid.
    """
    fields = _fields_of(frame, table.column_names)
    names = set(table.column_names).difference(fields or ())
    sides: dict[str, Column] = {}
    if fields is None:
        value, values = _arrow_side(table.column("value"), "value", frame.value_schema)
    else:
        struct = _struct_of(table, fields)
        schema = _derived(connect_schema, struct.type) if frame.value_schema is None else frame.value_schema
        value, values = _arrow_side(struct, "", schema)
    if values is not None:
        sides["value"] = values
    key = NOTHING
    if "key" in names and not (frame.key_schema is None and table.column("key").null_count == table.num_rows):
        key, keys = _arrow_side(table.column("key"), "key", frame.key_schema)
        if keys is not None:
            sides["key"] = keys
    others = {name: fitted(table.column(name), schema, name)[0] for name, schema in _OTHERS.items() if name in names}
    return FrameColumns(Shape(key, value), sides, others, table.num_rows)


def _struct_of(table: pa.Table, fields: Sequence[str]) -> pa.StructArray:
    """The values of a table whose columns are their fields."""
    columns = [one_array(table.column(name)) for name in fields]
    return pa.StructArray.from_arrays(columns, fields=[table.schema.field(name) for name in fields])


def _derived(derive: Callable[..., Schema | None], kind: object) -> Schema:
    """The struct schema of a plain table's rows.

    Raises:
        ConnectException: A column has a type that no schema has.
    """
    try:
        schema = derive(kind, optional=False)
    except DataException as error:
        raise ConnectException(
            f"The schema of a SourceFrame cannot be derived from its columns: {error}. Give it a value_schema, or cast "
            "the column"
        ) from error
    assert schema is not None, "a struct has a schema"
    return schema


def _arrow_side(column: Column, path: str, schema: Schema | None) -> tuple[Side, Column | None]:
    if schema is None:
        return _schemaless_arrow(column, path)
    made, physical = fitted(column, schema, path)
    return Side.of(schema, bounded(physical, made)).without_nulls(made), made


def _schemaless_arrow(column: Column, path: str) -> tuple[Side, Column | None]:
    if is_variant(column.type):
        return SCHEMALESS, column
    plain = plain_schemaless(column, path)
    if plain is not None:
        typed, carrier = plain
        return Side(None, SCALAR, Schema(carrier, optional=True)), typed
    side, made, errors = side_column(python_values(column, path), None)
    for error in errors.values():
        raise ConnectException(
            f'The column "{path}" of a SourceFrame has the type {column.type} and no schema: {error}'
        ) from error
    return side, made


def columns_of_dataframe(frame: SourceFrame, data: DataFrame) -> FrameColumns:
    """Reads the layout of rows that are a Spark DataFrame.

    The number of rows is known only after a job, so the constants of the frame are columns here. A value that does not
    fit its schema fails the job, see ``frame_spark.misfit_of``.

    Raises:
        ConnectException: The columns are not those of a frame, or one does not fit its schema.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    types = {field.name: field.dataType for field in data.schema}
    fields = _fields_of(frame, data.columns)
    names = set(types).difference(fields or ())
    if fields is None:
        value, values = _spark_side(_named(data, "value"), types["value"], "value", frame.value_schema)
    else:
        kind = T.StructType([data.schema[name] for name in fields])
        schema = _derived(schema_of_spark, kind) if frame.value_schema is None else frame.value_schema
        struct = F.struct(*[_named(data, name).alias(name) for name in fields])
        value, values = _spark_side(struct, kind, "", schema)
    sides = {"value": values}
    key = NOTHING
    if "key" in names:
        key, sides["key"] = _spark_side(_named(data, "key"), types["key"], "key", frame.key_schema)
    chosen = [column.alias(name) for name, column in sides.items()]
    for name, schema in _OTHERS.items():
        if name in names:
            column = fitted_column(_named(data, name), types[name], schema, name)[0]
            chosen.append((of_wire(column) if name == "headers" else column).alias(name))
    carried = frozenset(name for name in OTHER_COLUMNS if name in names)
    columns = FrameColumns(Shape(key, value), {}, {}, None, None, carried)
    constants = {name: F.lit(constant) for name, constant in missing_constants(frame, columns).items()}
    if "headers" not in names:
        constants["headers"] = F.lit(None).cast(HEADERS_SPARK)
    return replace(columns, frame=data.select(*chosen).withColumns(constants))


def _named(data: DataFrame, name: str) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _spark_side(column: SparkColumn, kind: DataType, path: str, schema: Schema | None) -> tuple[Side, SparkColumn]:
    if schema is None:
        return schemaless_column(column, kind, path)
    made, physical = fitted_column(column, kind, schema, path)
    return Side.of(schema, physical), made


def _fields_of(frame: SourceFrame, names: Sequence[str]) -> Sequence[str] | None:
    """Returns the columns that are the fields of the values; None: the column ``value`` is the value.

    Raises:
        ConnectException: The names are ambiguous or incomplete.
    """
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConnectException(f"A SourceFrame has more than one column {_quoted(twice)}")
    fields = frame.value_fields
    if fields is None and "value" not in names:
        taken = [name for name in names if name in OTHER_COLUMNS or name == "key"]
        if taken:
            raise ConnectException(
                f'A SourceFrame without a column "value" has a column {_quoted(taken)}, which may be a field of the '
                f"value or the {_quoted(taken)} of the record. Say which columns are fields: value_fields=[...]"
            )
        if not names:
            raise ConnectException("A SourceFrame has no columns")
        fields = names
    rest = set(names).difference(fields or ())
    unknown = sorted(rest - OTHER_COLUMNS.keys() - ({"key", "value"} if fields is None else {"key"}))
    if unknown:
        beside = 'the column "value"' if fields is None else "value_fields"
        raise ConnectException(
            f"A SourceFrame has {beside} and also a column {_quoted(unknown)}, which would be lost. Leave it out, or "
            "name it among the fields of the value: value_fields=[...]"
        )
    if fields is not None and (absent := sorted(set(fields) - set(names))):
        raise ConnectException(
            f"A SourceFrame has no column {_quoted(absent)}, which its value_fields name; it has {_quoted(names)}"
        )
    if frame.topic is None and "topic" not in rest:
        raise ConnectException('A SourceFrame needs a topic: set "topic", or give it a column of that name')
    return fields


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def frame_to_records(frame: SourceFrame, table: pa.Table) -> list[SourceRecord]:
    """Converts the rows to records, for steps that work record by record (a user's transform after a frame task)."""
    columns = columns_of_table(frame, table)
    keys, values = (
        from_arrow(columns.sides[name], side.carrier, side.physical)
        if name in columns.sides
        else [None] * table.num_rows
        for name, side in (("key", columns.shape.key), ("value", columns.shape.value))
    )
    frame = replace(frame, value_schema=columns.shape.value.schema)
    return records_of(frame, columns.others, keys, values)


def missing_constants(frame: SourceFrame, columns: FrameColumns) -> dict[str, object]:
    """The constants of a frame, by the name of the column that it lacks."""
    constants = {"topic": frame.topic, "partition": frame.partition, "timestamp": frame.timestamp}
    return {name: value for name, value in constants.items() if name not in columns.carried | columns.others.keys()}


def shared_of(columns: FrameColumns, missing: Mapping[str, object], rows: int) -> LazyColumns:
    """The columns of an Arrow frame, and its constants, that steps may read in addition to keys and values."""
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
        frame: Has their schemas, and the constants of all rows.
        others: The attributes of each row, by the column's name.
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
            headers=headers_of_wire(headers),
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


def beside_of_frame(frame: SourceFrame, others: Mapping[str, Column], rows: int) -> dict[str, Values]:
    """Returns the attributes of the records of a frame, besides keys and values, by name.

    Args:
        frame: Has the constants of all rows.
        others: The attributes of each row, by the column's name.
        rows: The number of rows.
    """
    beside: dict[str, Values] = {
        "source_partition": Same(frame.source_partition),
        "source_offset": Same(None),
        "topic": Same(frame.topic),
        "kafka_partition": Same(frame.partition),
        "timestamp": Same(frame.timestamp),
        "raw_headers": Same(None),
    }
    attributes = {"topic": "topic", "partition": "kafka_partition", "timestamp": "timestamp"}
    beside |= {attributes[name]: column.to_pylist() for name, column in others.items() if name in attributes}
    if "headers" in others:
        beside["raw_headers"] = list(map(headers_of_wire, others["headers"].to_pylist()))
    return beside


def headers_of_wire(wire: list[dict[str, Any]] | None) -> ConnectHeaders | None:
    """The headers of a message, as bytes; None if it has none."""
    return None if wire is None else ConnectHeaders(Header(one["key"], one["value"]) for one in wire)


def rows_of_dataframe(frame: SourceFrame, data: DataFrame) -> DataFrame:
    """Converts the rows of a query to those of records; lazy, the same columns and order.

    Raises:
        ConnectException: A column has a type that is not supported.
    """
    columns_of_dataframe(frame, data)
    variants = [field.name for field in data.schema if field.dataType.typeName() == "variant"]
    return data.withColumns({name: collectable(data[name]) for name in variants})


def table_of_dataframe(frame: SourceFrame, data: DataFrame) -> pa.Table:
    """The same as a table; runs a job."""
    return rows_of_dataframe(frame, data).toArrow()
