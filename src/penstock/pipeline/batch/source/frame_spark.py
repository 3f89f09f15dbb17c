"""Casts Spark columns of a frame task to the types of their schemas: the counterpart of ``frame_arrow``, as
expressions.

Main functions: ``fitted_column`` (a column with a schema), ``schemaless_column`` (one without) and ``misfit_of`` (the
error that a job raised for a value). Types are checked when the plan is made; values are checked by the expressions: a
value that its schema cannot hold ends the job. All of them are lazy; none runs a job.

Thread: pure functions that build expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.data import Date, Schema, Time, Timestamp, Type
from penstock.data.variant_format import MAP_TAG
from penstock.errors import ConnectException
from penstock.pipeline.columns.frame_arrow import joined, named, unfit, unfit_fields
from penstock.pipeline.columns.layout import (
    DECIMAL,
    SCALAR,
    UNSCALED,
    UNSCALED_SPARK,
    Layout,
    LayoutKind,
    decimal_scale,
    default_physical,
    has_plain_keys,
    is_decimal,
    logical_name,
    spark_type,
)
from penstock.pipeline.columns.variant.reading import DATE_TAG, TIME_TAG, TIMESTAMP_TAG
from penstock.pipeline.plan.frame_values import null_variant
from penstock.pipeline.plan.step import SCHEMALESS, SCHEMALESS_TEXT, Side

if TYPE_CHECKING:
    from pyspark.sql import Column

_MILLIS_PER_DAY: Final = 86_400_000
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

    Args:
        column: The values.
        kind: Their type.
        schema: Their schema.
        path: The name of the column in messages.

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
        return F.unix_date(column).cast("bigint") * F.lit(_MILLIS_PER_DAY).cast("bigint")
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
    """A column as VARIANT, NULL for null.

    Args:
        column: The values.
        kind: Their type.
        path: The name of the column in messages.
        tagged: True if a value without JSON is in an array with values of other kinds, which would hide it.
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
