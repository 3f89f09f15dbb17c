"""Frames that tasks made: a ``SourceFrame``'s Arrow table or Spark DataFrame as a group of the pipeline.

Spark columns are cast to the types of their schemas by expressions, the counterpart of ``frame_arrow``: types are
checked when the plan is made, values when it runs; a value that its schema cannot hold ends the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.api import SourceFrame, SourceRecord
from penstock.api.arrow import connect_schema, is_variant, one_array
from penstock.data import ConnectHeaders, Date, Field, Header, Schema, Time, Timestamp, Type
from penstock.data.text import MILLIS_PER_DAY
from penstock.data.variant_format import MAP_TAG
from penstock.errors import ConnectException, DataException
from penstock.pipeline.batch.batches import WIRE_HEADERS, LazyColumns
from penstock.pipeline.batch.groups import side_column
from penstock.pipeline.batch.headers import of_wire, wire_to_column
from penstock.pipeline.batch.transfer import Same, Values
from penstock.pipeline.columns.frame_arrow import (
    fitted,
    joined,
    named,
    plain_schemaless,
    python_values,
    quoted,
    unfit,
    unfit_fields,
)
from penstock.pipeline.columns.layout import (
    DECIMAL,
    HEADERS_SPARK,
    SCALAR,
    UNSCALED,
    UNSCALED_SPARK,
    Layout,
    LayoutKind,
    bounded,
    collectable,
    decimal_scale,
    default_physical,
    has_plain_keys,
    is_decimal,
    logical_name,
    schema_of_spark,
    spark_type,
)
from penstock.pipeline.columns.records import from_arrow
from penstock.pipeline.columns.variant import DATE_TAG, TIME_TAG, TIMESTAMP_TAG
from penstock.pipeline.plan.frame_values import null_variant
from penstock.pipeline.plan.step import NOTHING, SCHEMALESS, SCHEMALESS_TEXT, Shape, Side

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


_INTEGERS: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FLOATS: Final = (T.FloatType, T.DoubleType)
_TEXTS: Final = (T.StringType, T.CharType, T.VarcharType)
_NUMBERS: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64))
#: The beginning of the errors of these expressions; users' own plans may raise, too.
_MISFIT: Final = 'The column "'
_MISFIT_END: Final = "a value cannot be held without loss"


def misfit_of(error: Exception) -> ConnectException | None:
    """The error of a column that does not fit its schema, if a job failed for one of its values."""
    text = str(error)
    start, end = text.find(_MISFIT), text.find(_MISFIT_END)
    return ConnectException(text[start : end + len(_MISFIT_END)]) if 0 <= start < end else None


# ------------------------------------------------------------------------------------------------------ with a schema
def fitted_column(column: Column, kind: T.DataType, schema: Schema, path: str) -> tuple[Column, Layout]:
    """Casts a column to its schema; returns it with its layout.

    Raises:
        ConnectException: The column's type does not fit the schema.
    """
    layout = default_physical(schema)
    wanted = spark_type(schema, layout)
    if kind.simpleString() == wanted.simpleString():
        return column, layout
    if isinstance(kind, T.NullType):
        return column.cast(wanted), layout
    try:
        made = _cast(column, kind, schema, path)
    except ValueError as error:
        raise unfit(path, kind.simpleString(), schema, error) from error
    if made is None:
        raise unfit(path, kind.simpleString(), schema)
    return made


def _cast(column: Column, kind: T.DataType, schema: Schema, path: str) -> tuple[Column, Layout] | None:
    """Casts a column to its schema; None if values of its type are never values of the schema."""

    def checked(made: Column, bad: Column) -> Column:
        told = f'{_MISFIT}{path}" of a SourceFrame has the type {kind.simpleString()}, which does not fit '
        return F.when(bad, F.raise_error(F.lit(f"{told}{named(schema)}: {_MISFIT_END}"))).otherwise(made)

    name = logical_name(schema)
    if name is not None and not is_decimal(schema):
        made = _TEMPORAL_CASTS[name](column, kind, checked)
        return None if made is None else (made, SCALAR)
    match schema.type:
        case Type.BYTES if is_decimal(schema):
            return _decimal(column, kind, schema, checked)
        case Type.ARRAY if isinstance(kind, T.ArrayType):
            items, layout = _mapped(column, kind.elementType, schema.value_schema, f"{path}[]")
            return items, Layout(LayoutKind.ARRAY, (layout,))
        case Type.MAP:
            return _map(column, kind, schema, path)
        case Type.STRUCT if isinstance(kind, T.StructType):
            return _struct(column, kind, schema, path)
        case Type.STRING if isinstance(kind, _TEXTS):
            return column.cast("string"), SCALAR
        case wanted if wanted in _NUMBERS and isinstance(kind, (*_INTEGERS, *_FLOATS)):
            return _number(column, kind, spark_type(schema), checked), SCALAR
        case _:
            return None


_Checked = Callable[["Column", "Column"], "Column"]


def _number(column: Column, kind: T.DataType, wanted: T.DataType, checked: _Checked) -> Column:
    order: list[type[T.DataType]] = [*_INTEGERS, *_FLOATS]
    made = column.try_cast(wanted)
    if isinstance(kind, _FLOATS) and isinstance(wanted, _FLOATS):
        return made
    is_wider = order.index(type(kind)) < order.index(type(wanted))
    if is_wider and isinstance(wanted, _INTEGERS):
        return made
    back = made.try_cast(kind)
    return checked(made, column.isNotNull() & ~F.coalesce(back == column, F.lit(False)))


def _integer(column: Column, kind: T.DataType, wanted: T.DataType, checked: _Checked) -> Column | None:
    if not isinstance(kind, _INTEGERS):
        return None
    return column if type(kind) is type(wanted) else _number(column, kind, wanted, checked)


def _timestamp(column: Column, kind: T.DataType, checked: _Checked) -> Column | None:
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        # The worker's session uses UTC; Spark rounds down here.
        return F.unix_millis(column.cast("timestamp"))
    if isinstance(kind, T.DateType):
        return F.unix_date(column).cast("bigint") * F.lit(MILLIS_PER_DAY).cast("bigint")
    return _integer(column, kind, T.LongType(), checked)


def _time(column: Column, kind: T.DataType, checked: _Checked) -> Column | None:
    if isinstance(kind, T.TimeType):
        return F.time_to_millis(column).cast("int")
    return _integer(column, kind, T.IntegerType(), checked)


def _date(column: Column, kind: T.DataType, checked: _Checked) -> Column | None:
    if isinstance(kind, T.DateType):
        return F.unix_date(column)
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        day = column.cast("date")
        return checked(F.unix_date(day), day.cast(kind) != column)
    return _integer(column, kind, T.IntegerType(), checked)


_TEMPORAL_CASTS: Final = {Timestamp.LOGICAL_NAME: _timestamp, Time.LOGICAL_NAME: _time, Date.LOGICAL_NAME: _date}


def _decimal(column: Column, kind: T.DataType, schema: Schema, checked: _Checked) -> tuple[Column, Layout] | None:
    if kind.simpleString() == UNSCALED_SPARK.simpleString():
        return column, UNSCALED
    if not isinstance(kind, (T.DecimalType, *_INTEGERS)):
        return None
    if default_physical(schema) != DECIMAL:
        raise ValueError(f"Spark has no decimals of the scale {decimal_scale(schema)}")
    made = column.try_cast(spark_type(schema, DECIMAL))
    bad = column.isNotNull() & ~F.coalesce(made.try_cast(kind) == column, F.lit(False))
    return checked(made, bad), DECIMAL


def _mapped(column: Column, kind: T.DataType, schema: Schema | None, path: str) -> tuple[Column, Layout]:
    """Casts each item of an array."""
    layouts: list[Layout] = []

    def cast(one: Column) -> Column:
        made, layout = _member(one, kind, schema, path)
        layouts.append(layout)
        return made

    return F.transform(column, cast), layouts[0]


def _member(column: Column, kind: T.DataType, schema: Schema | None, path: str) -> tuple[Column, Layout]:
    if schema is not None:
        return fitted_column(column, kind, schema, path)
    return F.coalesce(_object(column, kind, path), null_variant()), SCHEMALESS.physical


def _map(column: Column, kind: T.DataType, schema: Schema, path: str) -> tuple[Column, Layout] | None:
    if isinstance(kind, T.MapType):
        types = {"key": kind.keyType, "value": kind.valueType}
        column = F.map_entries(column)
    elif isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.StructType):
        types = {field.name: field.dataType for field in kind.elementType}
    else:
        return None
    if sorted(types) != ["key", "value"]:
        return None
    layouts: list[Layout] = []

    def pair(one: Column) -> Column:
        key, key_layout = _member(one.getField("key"), types["key"], schema.key_schema, f"{path}{{key}}")
        value, layout = _member(one.getField("value"), types["value"], schema.value_schema, f"{path}{{value}}")
        layouts.extend((key_layout, layout))
        return F.struct(key.alias("key"), value.alias("value"))

    entries = F.transform(column, pair)
    plain = isinstance(kind, T.MapType) and has_plain_keys(schema)
    physical = Layout(LayoutKind.MAP if plain else LayoutKind.ENTRIES, (layouts[0], layouts[1]))
    return (F.map_from_entries(entries) if plain else entries), physical


def _struct(column: Column, kind: T.StructType, schema: Schema, path: str) -> tuple[Column, Layout]:
    if problem := unfit_fields(kind.names, schema):
        raise ValueError(problem)
    if not schema.fields:
        return column, Layout(LayoutKind.STRUCT)
    types = {field.name: field.dataType for field in kind}
    members: list[Column] = []
    layouts: list[Layout] = []
    for field in schema.fields:
        there = field.name in types
        member = column.getField(field.name) if there else F.lit(None)
        made, layout = fitted_column(
            member, types.get(field.name, T.NullType()), field.schema, joined(path, field.name)
        )
        members.append(made.alias(field.name))
        layouts.append(layout)
    return F.when(column.isNotNull(), F.struct(*members)), Layout(LayoutKind.STRUCT, tuple(layouts))


# -------------------------------------------------------------------------------------------------- without a schema
def schemaless_column(column: Column, kind: T.DataType, path: str) -> tuple[Side, Column]:
    """Returns a column without schema, and its properties: cells become the values of their Python objects.

    Raises:
        ConnectException: Connect has no values of this type.
    """
    for classes, schema_type, wanted in _PLAIN_KINDS:
        if isinstance(kind, classes):
            fitting = column if kind.simpleString() == wanted else column.cast(wanted)
            return Side(None, SCALAR, Schema(schema_type, optional=True)), fitting
    if isinstance(kind, T.NullType):
        return SCHEMALESS_TEXT, column.cast("string")
    return SCHEMALESS, _object(column, kind, path)


_PLAIN_KINDS: Final[tuple[tuple[tuple[type[T.DataType], ...], Type, str], ...]] = (
    (_TEXTS, Type.STRING, "string"),
    (_INTEGERS, Type.INT64, "bigint"),
    (_FLOATS, Type.FLOAT64, "double"),
    ((T.BooleanType,), Type.BOOLEAN, "boolean"),
    ((T.BinaryType,), Type.BYTES, "binary"),
)


def _object(column: Column, kind: T.DataType, path: str, *, tagged: bool = False) -> Column:
    """A column as VARIANT, NULL for null; ``tagged`` if it is in an array with values of other kinds, which would hide
    it.
    """

    def inside(one: Column, inner: T.DataType, *, beside: bool = tagged) -> Column:
        return F.coalesce(_object(one, inner, path, tagged=beside), null_variant())

    def marked(tag: str, content: Column) -> Column:
        return F.when(column.isNotNull(), F.to_variant_object(F.struct(content.cast("variant").alias(tag))))

    match kind:
        case T.VariantType():
            return column
        case T.NullType():
            return F.lit(None).cast("variant")
        case T.DecimalType() if not tagged:
            return column.cast("variant")
        case T.DateType():
            return marked(DATE_TAG, F.unix_date(column)) if tagged else column.cast("variant")
        case T.TimestampType() | T.TimestampNTZType():
            instant = column.cast("timestamp")
            return marked(TIMESTAMP_TAG, F.unix_micros(instant)) if tagged else instant.cast("variant")
        case T.TimeType():
            return marked(TIME_TAG, F.time_to_millis(column))
        case T.ArrayType():
            return F.transform(column, lambda one: inside(one, kind.elementType)).cast("variant")
        case T.MapType() if isinstance(kind.keyType, _TEXTS):
            return F.to_variant_object(F.transform_values(column, lambda _, one: inside(one, kind.valueType)))
        case T.MapType():

            def pair(one: Column) -> Column:
                parts = [(one.getField("key"), kind.keyType), (one.getField("value"), kind.valueType)]
                return F.array(*[inside(part, inner, beside=True) for part, inner in parts]).cast("variant")

            return marked(MAP_TAG, F.transform(F.map_entries(column), pair))
        case T.StructType() if not kind.fields:
            return F.when(column.isNotNull(), F.parse_json(F.lit("{}")))
        case T.StructType():
            members = [inside(column.getField(field.name), field.dataType).alias(field.name) for field in kind]
            return F.when(column.isNotNull(), F.to_variant_object(F.struct(*members)))
    for classes, _, wanted in _PLAIN_KINDS:
        if isinstance(kind, classes):
            return column.cast(wanted).cast("variant")
    where = ", in a map whose keys are no strings" if tagged else ""
    raise ConnectException(
        f'The column "{path}" of a SourceFrame has no schema, and Connect has no values of the type '
        f"{kind.simpleString()}{where}. Cast it to a type that has"
    )


ArrowColumn: TypeAlias = pa.Array | pa.ChunkedArray

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
    sides: Mapping[str, ArrowColumn]
    others: Mapping[str, ArrowColumn]
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
            f"The index of a pandas DataFrame is no column of a SourceFrame: {quoted(kept)} would be lost. "
            "reset_index() makes it a column, reset_index(drop=True) leaves it out"
        )
    try:
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ConnectException(f"A pandas DataFrame has a column that no PyArrow table can have: {error}") from error


def columns_of_table(frame: SourceFrame, table: pa.Table) -> FrameColumns:
    """Reads the layout of a frame's rows.

    Raises:
        ConnectException: The columns are not those of a frame, or one does not fit its schema.
    """
    fields = _fields_of(frame, table.column_names)
    names = set(table.column_names).difference(fields or ())
    sides: dict[str, ArrowColumn] = {}
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


def _arrow_side(column: ArrowColumn, path: str, schema: Schema | None) -> tuple[Side, ArrowColumn | None]:
    if schema is None:
        return _schemaless_arrow(column, path)
    made, physical = fitted(column, schema, path)
    return Side.of(schema, bounded(physical, made)).without_nulls(made), made


def _schemaless_arrow(column: ArrowColumn, path: str) -> tuple[Side, ArrowColumn | None]:
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
    fit its schema fails the job, see ``misfit_of``.

    Raises:
        ConnectException: The columns are not those of a frame, or one does not fit its schema.
    """
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


def _named(data: DataFrame, name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _spark_side(column: Column, kind: DataType, path: str, schema: Schema | None) -> tuple[Side, Column]:
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
        raise ConnectException(f"A SourceFrame has more than one column {quoted(twice)}")
    fields = frame.value_fields
    if fields is None and "value" not in names:
        taken = [name for name in names if name in OTHER_COLUMNS or name == "key"]
        if taken:
            raise ConnectException(
                f'A SourceFrame without a column "value" has a column {quoted(taken)}, which may be a field of the '
                f"value or the {quoted(taken)} of the record. Say which columns are fields: value_fields=[...]"
            )
        if not names:
            raise ConnectException("A SourceFrame has no columns")
        fields = names
    rest = set(names).difference(fields or ())
    unknown = sorted(rest - OTHER_COLUMNS.keys() - ({"key", "value"} if fields is None else {"key"}))
    if unknown:
        beside = 'the column "value"' if fields is None else "value_fields"
        raise ConnectException(
            f"A SourceFrame has {beside} and also a column {quoted(unknown)}, which would be lost. Leave it out, or "
            "name it among the fields of the value: value_fields=[...]"
        )
    if fields is not None and (absent := sorted(set(fields) - set(names))):
        raise ConnectException(
            f"A SourceFrame has no column {quoted(absent)}, which its value_fields name; it has {quoted(names)}"
        )
    if frame.topic is None and "topic" not in rest:
        raise ConnectException('A SourceFrame needs a topic: set "topic", or give it a column of that name')
    return fields


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
    makers |= {name: partial(one_array, column) for name, column in columns.others.items()}
    wire = columns.others.get("headers", pa.nulls(rows, WIRE_HEADERS))
    makers["headers"] = partial(wire_to_column, wire)
    return LazyColumns(makers)


def _repeated(name: str, value: object, rows: int) -> pa.Array:
    kind = OTHER_COLUMNS[name]
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def records_of(
    frame: SourceFrame, others: Mapping[str, ArrowColumn], keys: Sequence[object], values: Sequence[object]
) -> list[SourceRecord]:
    """Records with these keys and values; ``others`` has the attributes of each row, ``frame`` the constants of all."""
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


def beside_of_frame(frame: SourceFrame, others: Mapping[str, ArrowColumn], rows: int) -> dict[str, Values]:
    """Returns the attributes of the records of a frame, besides keys and values, by name."""
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
