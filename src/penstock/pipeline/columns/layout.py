"""Connect schemas as column types: Connect ``Schema`` <-> Arrow type <-> Spark ``DataType``.

A schema does not fix its column type: a decimal that does not fit 38 digits, or a map with a null key, forces a wider
form on the whole frame. A ``Layout`` is chosen per frame and recorded next to the schema. Every field is nullable at
every depth: only the Connect schema says whether a value may be missing. A layout may also bound the characters of a
batch's strings, which is found from the bytes in a twentieth of a microsecond a record; a string without escapes is
written to JSON as it is, which saves several times that.
"""

from __future__ import annotations

import decimal
import enum
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.api.arrow import is_variant
from penstock.data import Date, Decimal, FarDate, FarTime, FarTimestamp, Field, Schema, Time, Timestamp, Type
from penstock.data.text import MILLIS_PER_DAY
from penstock.errors import DataException
from penstock.pipeline.columns.sizes import bytes_of, has_byte, parts_of

#: Of a decimal column.
MAX_DECIMAL_DIGITS: Final = 38
#: Schemas that something is remembered of.
_MAX_SCHEMAS: Final = 1024


class LayoutKind(enum.Enum):
    """The form in which the values of one schema node are stored in a column."""

    SCALAR = "scalar"
    """One plain column; temporal types are their raw integers (ms, ms of the day, days)."""
    DECIMAL = "decimal"
    """``decimal(38, scale)``: every value has the scale of the schema and at most 38 digits."""
    UNSCALED = "unscaled"
    """``struct<unscaled binary, scale int>``: two's complement big-endian digits, each value with its own scale."""
    ARRAY = "array"
    MAP = "map"
    """A map column: string keys, none of them null."""
    ENTRIES = "entries"
    """``array<struct<key, value>>``: any other map."""
    STRUCT = "struct"
    OBJECT = "object"
    """Schemaless maps that have all the same keys, with values of the same kinds: a struct of them."""
    VARIANT = "variant"
    """No schema (or values that deny their schema): see ``penstock.pipeline.columns.variant``."""


class TextBound(enum.IntEnum):
    """The bounds on the text of all values of a column; the higher one says more."""

    ANY = 0
    """Nothing."""
    BMP = 1
    """No character is beyond U+FFFF."""
    CLEAN = 2
    """JSON writes every character as it is: no quotes, backslashes, control characters, nothing beyond U+FFFF."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The physical choice for one schema of one frame: a form and the choices of the schema's children.

    Children: ARRAY (element), MAP and ENTRIES (key, value), STRUCT (one each field, in order), otherwise none.

    Attributes:
        text: What is known of the values as text; see ``penstock.pipeline.columns.layout``.
    """

    form: LayoutKind
    children: tuple[Layout, ...] = ()
    text: TextBound = TextBound.ANY


SCALAR: Final = Layout(LayoutKind.SCALAR)
#: One plain column of what JSON writes as it is: numbers, say.
CLEAN_SCALAR: Final = Layout(LayoutKind.SCALAR, text=TextBound.CLEAN)
DECIMAL: Final = Layout(LayoutKind.DECIMAL)
UNSCALED: Final = Layout(LayoutKind.UNSCALED)
VARIANT: Final = Layout(LayoutKind.VARIANT)

VARIANT_FIELDS: Final = (
    pa.field("value", pa.binary(), nullable=False),
    # Spark knows a variant by this mark on the second field of a struct.
    pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
)
VARIANT_ARROW: Final = pa.struct(list(VARIANT_FIELDS))
UNSCALED_ARROW: Final = pa.struct([pa.field("unscaled", pa.binary()), pa.field("scale", pa.int32())])
HEADERS_ARROW: Final = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string()), pa.field("schema", pa.int32()), pa.field("value", VARIANT_ARROW)]),
    )
)

UNSCALED_SPARK: Final = T.StructType().add("unscaled", T.BinaryType()).add("scale", T.IntegerType())
HEADERS_SPARK: Final = T.ArrayType(
    T.StructType().add("key", T.StringType()).add("schema", T.IntegerType()).add("value", T.VariantType())
)

ARROW_SCALARS: Final[dict[Type, pa.DataType]] = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_SPARK_SCALARS: Final[dict[Type, T.DataType]] = {
    Type.INT8: T.ByteType(),
    Type.INT16: T.ShortType(),
    Type.INT32: T.IntegerType(),
    Type.INT64: T.LongType(),
    Type.FLOAT32: T.FloatType(),
    Type.FLOAT64: T.DoubleType(),
    Type.BOOLEAN: T.BooleanType(),
    Type.STRING: T.StringType(),
    Type.BYTES: T.BinaryType(),
}
_LOGICAL_TYPES: Final[dict[str, Type]] = {
    Timestamp.LOGICAL_NAME: Type.INT64,
    Time.LOGICAL_NAME: Type.INT32,
    Date.LOGICAL_NAME: Type.INT32,
    Decimal.LOGICAL_NAME: Type.BYTES,
}


def logical_name(schema: Schema) -> str | None:
    """The name of the logical type a column of this schema holds, or None for a plain type.

    A known name on a type it does not belong to (a string named Date) is a plain type here.
    """
    name = schema.name
    return name if name is not None and _LOGICAL_TYPES.get(name) is schema.type else None


def is_decimal(schema: Schema) -> bool:
    """True if the schema is Connect's Decimal."""
    return schema.type is Type.BYTES and schema.name == Decimal.LOGICAL_NAME


def decimal_scale(schema: Schema) -> int | None:
    """The scale of a Decimal schema, None where the parameter is missing or no number."""
    text = (schema.parameters or {}).get("scale")
    try:
        scale = None if text is None else int(text)
    except ValueError:
        return None
    return scale if scale is not None and -(2**31) <= scale < 2**31 else None


@lru_cache(maxsize=_MAX_SCHEMAS)
def default_physical(schema: Schema | None) -> Layout:
    """The narrowest layout for a schema: what a frame uses until a value forces a wider one."""
    if schema is None:
        return VARIANT
    children = tuple(map(default_physical, parts_of(schema)))
    match schema.type:
        case Type.ARRAY:
            return Layout(LayoutKind.ARRAY, children)
        case Type.MAP:
            return Layout(LayoutKind.MAP if has_plain_keys(schema) else LayoutKind.ENTRIES, children)
        case Type.STRUCT:
            return Layout(LayoutKind.STRUCT, children)
        case _ if is_decimal(schema):
            scale = decimal_scale(schema)
            narrow = scale is not None and 0 <= scale <= MAX_DECIMAL_DIGITS and not _is_wide(schema.default)
            return DECIMAL if narrow else UNSCALED
        case _:
            return SCALAR


def _is_wide(default: object) -> bool:
    return isinstance(default, decimal.Decimal) and len(default.as_tuple().digits) > MAX_DECIMAL_DIGITS


def has_plain_keys(schema: Schema) -> bool:
    """True if a map schema has string keys, and so may be a map column."""
    return schema.key_schema is not None and schema.key_schema.type is Type.STRING


def members_of_layout(schema: Schema | None, physical: Layout) -> list[tuple[Schema | None, Layout]]:
    """The schemas inside of one, each with its layout; none in scalars and VARIANT."""
    return list(zip(parts_of(schema), physical.children, strict=True)) if schema and physical.children else []


@lru_cache(maxsize=_MAX_SCHEMAS)
def arrow_type(schema: Schema | None, physical: Layout | None = None) -> pa.DataType:
    """The Arrow type of a column of this schema; ``physical`` None means the default choice."""
    layout = default_physical(schema) if physical is None else physical
    if layout.form is LayoutKind.VARIANT or schema is None:
        return VARIANT_ARROW
    match layout.form:
        case LayoutKind.UNSCALED:
            return UNSCALED_ARROW
        case LayoutKind.DECIMAL:
            return pa.decimal128(MAX_DECIMAL_DIGITS, decimal_scale(schema))
        case LayoutKind.ARRAY:
            return pa.list_(pa.field("element", arrow_type(schema.value_schema, layout.children[0])))
        case LayoutKind.MAP | LayoutKind.ENTRIES:
            key = arrow_type(schema.key_schema, layout.children[0])
            value = arrow_type(schema.value_schema, layout.children[1])
            if layout.form is LayoutKind.MAP:
                return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
            return pa.list_(pa.field("element", pa.struct([pa.field("key", key), pa.field("value", value)])))
        case LayoutKind.STRUCT | LayoutKind.OBJECT:
            pairs = zip(schema.fields, layout.children, strict=True)
            return pa.struct([pa.field(field.name, arrow_type(field.schema, child)) for field, child in pairs])
        case _:
            return ARROW_SCALARS[schema.type]


@lru_cache(maxsize=_MAX_SCHEMAS)
def spark_type(schema: Schema | None, physical: Layout | None = None) -> T.DataType:
    """The Spark type of a column of this schema; ``physical`` None means the default choice."""
    layout = default_physical(schema) if physical is None else physical
    if layout.form is LayoutKind.VARIANT or schema is None:
        return T.VariantType()
    match layout.form:
        case LayoutKind.UNSCALED:
            return UNSCALED_SPARK
        case LayoutKind.DECIMAL:
            return T.DecimalType(MAX_DECIMAL_DIGITS, decimal_scale(schema) or 0)
        case LayoutKind.ARRAY:
            return T.ArrayType(spark_type(schema.value_schema, layout.children[0]))
        case LayoutKind.MAP | LayoutKind.ENTRIES:
            key = spark_type(schema.key_schema, layout.children[0])
            value = spark_type(schema.value_schema, layout.children[1])
            if layout.form is LayoutKind.MAP:
                return T.MapType(key, value)
            return T.ArrayType(T.StructType([T.StructField("key", key), T.StructField("value", value)]))
        case LayoutKind.STRUCT | LayoutKind.OBJECT:
            pairs = zip(schema.fields, layout.children, strict=True)
            return T.StructType([T.StructField(field.name, spark_type(field.schema, child)) for field, child in pairs])
        case _:
            return _SPARK_SCALARS[schema.type]


@lru_cache(maxsize=_MAX_SCHEMAS)
def holds_variant(physical: Layout) -> bool:
    """True if a column of this layout is a VARIANT, or has one inside."""
    return physical.form is LayoutKind.VARIANT or any(map(holds_variant, physical.children))


def holds_unscaled(physical: Layout) -> bool:
    """True if a column of this layout has decimals of any number of digits, at any depth."""
    return physical.form is LayoutKind.UNSCALED or any(map(holds_unscaled, physical.children))


def collectable(column: Column) -> Column:
    """A variant column as ``toArrow`` accepts it: Spark 4.3 refuses NULL there, so it holds the variant null."""
    return F.coalesce(column, F.parse_json(F.lit("null")))


def physical_of_arrow(column_type: pa.DataType, schema: Schema | None) -> Layout:
    """Reads the physical choice back from the Arrow type of a column that holds values of ``schema``."""
    if schema is None or is_variant(column_type):
        return VARIANT
    is_list = pa.types.is_list(column_type) or pa.types.is_large_list(column_type)
    match schema.type:
        case Type.ARRAY:
            return Layout(LayoutKind.ARRAY, (physical_of_arrow(column_type.value_type, schema.value_schema),))
        case Type.MAP if is_list:
            entry = column_type.value_type
            key = physical_of_arrow(entry.field("key").type, schema.key_schema)
            return Layout(LayoutKind.ENTRIES, (key, physical_of_arrow(entry.field("value").type, schema.value_schema)))
        case Type.MAP:
            key = physical_of_arrow(column_type.key_type, schema.key_schema)
            return Layout(LayoutKind.MAP, (key, physical_of_arrow(column_type.item_type, schema.value_schema)))
        case Type.STRUCT:
            types = [column_type.field(index).type for index in range(column_type.num_fields)]
            pairs = zip(types, schema.fields, strict=True)
            return Layout(LayoutKind.STRUCT, tuple(physical_of_arrow(one, field.schema) for one, field in pairs))
        case _ if pa.types.is_decimal(column_type):
            return DECIMAL
        case _:
            return UNSCALED if pa.types.is_struct(column_type) else SCALAR


def physical_of_spark(column_type: T.DataType, schema: Schema | None) -> Layout:
    """Reads the physical choice back from the Spark type of a column that holds values of ``schema``."""
    if schema is None:
        return VARIANT
    match column_type:
        case T.VariantType():
            return VARIANT
        case T.ArrayType(elementType=element) if schema.type is Type.MAP and isinstance(element, T.StructType):
            key = physical_of_spark(element["key"].dataType, schema.key_schema)
            return Layout(LayoutKind.ENTRIES, (key, physical_of_spark(element["value"].dataType, schema.value_schema)))
        case T.ArrayType(elementType=element):
            return Layout(LayoutKind.ARRAY, (physical_of_spark(element, schema.value_schema),))
        case T.MapType(keyType=key_type, valueType=value_type):
            key = physical_of_spark(key_type, schema.key_schema)
            return Layout(LayoutKind.MAP, (key, physical_of_spark(value_type, schema.value_schema)))
        case T.DecimalType():
            return DECIMAL
        case T.StructType() if schema.type is Type.STRUCT:
            pairs = zip(column_type.fields, schema.fields, strict=True)
            children = (physical_of_spark(one.dataType, field.schema) for one, field in pairs)
            return Layout(LayoutKind.STRUCT, tuple(children))
        case T.StructType():
            return UNSCALED
        case _:
            return SCALAR


_FROM_SPARK: Final[dict[type[T.DataType], Type]] = {type(one): kind for kind, one in _SPARK_SCALARS.items()}


def schema_of_spark(column_type: T.DataType, *, optional: bool = True) -> Schema | None:
    """The Connect schema of a Spark column a frame task made; None for VARIANT.

    Real dates, timestamps and times become the logical types. ``optional`` says whether the column is nullable.

    Raises:
        DataException: the type has no counterpart (intervals, for instance).
    """
    match column_type:
        case T.VariantType():
            return None
        case T.DecimalType():
            return _logical(Decimal.LOGICAL_NAME, optional, {"scale": str(column_type.scale)})
        case T.DateType():
            return _logical(Date.LOGICAL_NAME, optional)
        case T.TimestampType() | T.TimestampNTZType():
            return _logical(Timestamp.LOGICAL_NAME, optional)
        case T.TimeType():
            return _logical(Time.LOGICAL_NAME, optional)
        case T.CharType() | T.VarcharType():
            return Schema(Type.STRING, optional=optional)
        case T.ArrayType():
            element = schema_of_spark(column_type.elementType, optional=column_type.containsNull)
            return Schema(Type.ARRAY, optional=optional, value_schema=element)
        case T.MapType():
            key = schema_of_spark(column_type.keyType, optional=False)
            value = schema_of_spark(column_type.valueType, optional=column_type.valueContainsNull)
            return Schema(Type.MAP, optional=optional, key_schema=key, value_schema=value)
        case T.StructType():
            inner = [(one.name, schema_of_spark(one.dataType, optional=one.nullable)) for one in column_type.fields]
            return _struct_schema(inner, optional=optional)
        case _:
            kind = _FROM_SPARK.get(type(column_type))
            if kind is None:
                raise DataException(f"A column of Spark type {column_type.simpleString()} has no Connect schema")
            return Schema(kind, optional=optional)


def _logical(name: str, optional: bool, parameters: dict[str, str] | None = None) -> Schema:
    return Schema(_LOGICAL_TYPES[name], optional=optional, name=name, version=1, parameters=parameters)


def _struct_schema(inner: list[tuple[str, Schema | None]], *, optional: bool) -> Schema:
    fields: list[Field] = []
    for index, (name, schema) in enumerate(inner):
        if schema is None:
            raise DataException(f'The field "{name}" is a VARIANT: a struct of Connect needs a schema for each field')
        fields.append(Field(name, index, schema))
    return Schema(Type.STRUCT, optional=optional, fields=tuple(fields))


def has_all_required(schema: Schema | None, physical: Layout, column: pa.Array | pa.ChunkedArray) -> bool:
    """True if no required value is null, at any depth below the values of a column; they themselves may be null.

    The rows of a frame are not validated, and plans are smaller without that check.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return all(_has_all(schema, physical, chunk) for chunk in chunks if len(chunk))


def _has_all(schema: Schema | None, physical: Layout, chunk: pa.Array) -> bool:
    if schema is None:
        return True
    members: list[tuple[Schema | None, pa.Array]]
    match physical.form:
        case LayoutKind.STRUCT:
            values = chunk.drop_null() if chunk.null_count else chunk
            members = [(field.schema, values.field(place)) for place, field in enumerate(schema.fields)]
        case LayoutKind.ARRAY:
            members = [(schema.value_schema, chunk.flatten())]
        case LayoutKind.MAP:
            members = [(schema.key_schema, chunk.keys), (schema.value_schema, chunk.items)]
        case LayoutKind.ENTRIES:
            entries = chunk.flatten()
            members = [(schema.key_schema, entries.field(0)), (schema.value_schema, entries.field(1))]
        case _:
            return True
    return all(
        (inner is None or inner.optional or not values.null_count) and _has_all(inner, layout, values)
        for (inner, values), layout in zip(members, physical.children, strict=True)
    )


_FIRST_BEYOND_BMP = 0xF0
_FIRST_PRINTABLE = 0x20


def bounded(physical: Layout, column: pa.Array | pa.ChunkedArray) -> Layout:
    """The layout of a column, with bounds on what its strings hold."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return _bounded(physical, [chunk for chunk in chunks if len(chunk)])


def unbounded(physical: Layout) -> Layout:
    """The same layout when nothing is known of the strings any more."""
    if physical.text is TextBound.ANY and not physical.children:
        return physical
    return replace(physical, text=TextBound.ANY, children=tuple(unbounded(child) for child in physical.children))


def with_bound(physical: Layout, bound: TextBound) -> Layout:
    """The same layout when this holds for all strings."""
    if not physical.children:
        return replace(physical, text=bound)
    return replace(physical, children=tuple(with_bound(child, bound) for child in physical.children))


def lowest_bound(physical: Layout) -> TextBound:
    """Returns the bound of all strings of a column; ``ANY`` if nothing is known of a part of it."""
    if physical.form is LayoutKind.VARIANT:
        return TextBound.ANY
    if physical.children:
        return min(lowest_bound(child) for child in physical.children)
    return physical.text


def text_bound(text: str) -> TextBound:
    """Returns the bound of one text."""
    return _bound_of(np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8))


def _bounded(physical: Layout, chunks: list[pa.Array]) -> Layout:
    match physical.form:
        case LayoutKind.SCALAR | LayoutKind.DECIMAL | LayoutKind.UNSCALED:
            kind = chunks[0].type if chunks else None
            if kind is not None and pa.types.is_string(kind):
                return replace(physical, text=min(_bound_of(bytes_of(chunk)) for chunk in chunks))
            # Numbers, and bytes in base64, are written without escapes; without rows nothing is there to escape.
            return replace(physical, text=TextBound.CLEAN)
        case LayoutKind.STRUCT | LayoutKind.OBJECT:
            parts = [
                _bounded(child, [chunk.field(index) for chunk in chunks])
                for index, child in enumerate(physical.children)
            ]
        case LayoutKind.ARRAY:
            parts = [_bounded(physical.children[0], [chunk.values for chunk in chunks])]
        case LayoutKind.MAP:
            parts = [
                _bounded(physical.children[0], [chunk.keys for chunk in chunks]),
                _bounded(physical.children[1], [chunk.items for chunk in chunks]),
            ]
        case LayoutKind.ENTRIES:
            parts = [
                _bounded(child, [chunk.values.field(index) for chunk in chunks])
                for index, child in enumerate(physical.children)
            ]
        case _:
            return physical
    return replace(physical, children=tuple(parts))


def _bound_of(data: np.ndarray) -> TextBound:
    if not len(data):
        return TextBound.CLEAN
    if data.max() >= _FIRST_BEYOND_BMP:
        return TextBound.ANY
    escapes = data.min() < _FIRST_PRINTABLE or has_byte(data, ord('"')) or has_byte(data, ord("\\"))
    return TextBound.BMP if escapes else TextBound.CLEAN


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MILLIS: Final = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _MILLISECOND
_LAST_MILLIS: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - EPOCH) // _MILLISECOND
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()


def datetime_of_millis(millis: int) -> datetime | FarTimestamp:
    """Return the instant as an aware datetime (UTC), or a ``FarTimestamp`` outside of years 1 to 9999."""
    return EPOCH + timedelta(0, 0, 0, millis) if _FIRST_MILLIS <= millis <= _LAST_MILLIS else FarTimestamp(millis)


def time_of_millis(millis: int) -> time | FarTime:
    """Return the time of day, or a ``FarTime`` where it is outside of one day."""
    if not 0 <= millis < MILLIS_PER_DAY:
        return FarTime(millis)
    seconds, rest = divmod(millis, 1000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * 1000)


def date_of_days(days: int) -> date | FarDate:
    """Return the date, or a ``FarDate`` outside of years 1 to 9999."""
    ordinal = days + _EPOCH_DAY
    return date.fromordinal(ordinal) if 0 < ordinal <= _LAST_DAY else FarDate(days)


def millis_of_datetime(value: datetime) -> int:
    """Return milliseconds since 1970, rounded down; a datetime without zone is taken as UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MILLISECOND


def millis_of_time(value: time) -> int:
    """Return milliseconds of the day, rounded down."""
    return (value.hour * 3600 + value.minute * 60 + value.second) * 1000 + value.microsecond // 1000


def days_of_date(value: date) -> int:
    """Return days since 1970."""
    return value.toordinal() - _EPOCH_DAY
