"""Connect schemas of Arrow types. Pure; any thread.

Only this module and ``penstock.api.frames`` of the public API need PyArrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.data import Date, Decimal, Field, Schema, Time, Timestamp, Type
from penstock.errors import ConnectException, DataException


def connect_schema(arrow: pa.Schema | pa.DataType, *, optional: bool = False) -> Schema | None:
    """The Connect schema of the rows of a table, or of the values of a column.

    Args:
        arrow: The schema of a table, whose rows are structs without a name; or the type of a column.
        optional: True if the values may be null. Nested values follow the nullability of their fields.

    Returns:
        The schema; None for Spark's VARIANT, which has none.

    Raises:
        DataException: A type has no counterpart in Connect; the text names the type.

    Source: Penstock's own.

    >>> [field.name for field in connect_schema(pa.schema([("id", pa.int64()), ("name", pa.string())])).fields]
    ['id', 'name']
    >>> print(connect_schema(pa.decimal128(12, 2)))
    Schema{org.apache.kafka.connect.data.Decimal:BYTES}
    >>> connect_schema(pa.duration("s"))
    Traceback (most recent call last):
    penstock.errors.DataException: A column of Arrow type duration[s] has no Connect schema
    """
    if isinstance(arrow, pa.Schema):
        arrow = pa.struct(list(arrow))
    if is_variant(arrow):
        return None
    if pa.types.is_decimal(arrow):
        return _logical(Decimal.LOGICAL_NAME, Type.BYTES, optional, {Decimal.SCALE_FIELD: str(arrow.scale)})
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return connect_schema(arrow.value_type, optional=optional)
    if pa.types.is_struct(arrow):
        return Schema(Type.STRUCT, optional=optional, fields=_fields(arrow))
    if pa.types.is_map(arrow):
        key = connect_schema(arrow.key_type)
        value = connect_schema(arrow.item_type, optional=arrow.item_field.nullable)
        return Schema(Type.MAP, optional=optional, key_schema=key, value_schema=value)
    if is_list(arrow):
        element = arrow.value_field
        return Schema(
            Type.ARRAY, optional=optional, value_schema=connect_schema(element.type, optional=element.nullable)
        )
    for is_one, name, carrier in _TEMPORAL:
        if is_one(arrow):
            return _logical(name, carrier, optional)
    for is_one, kind in _PLAIN:
        if is_one(arrow):
            return Schema(kind, optional=optional)
    raise DataException(f"A column of Arrow type {arrow} has no Connect schema")


def arrow_type(schema: Schema | None) -> pa.DataType:
    """The Arrow type of a column whose values have a Connect schema: the inverse of ``connect_schema``.

    A Decimal is a decimal of 38 digits, of 76 where its scale needs them; a Timestamp a timestamp in milliseconds and
    UTC, a Time a time in milliseconds, a Date a date. Fields, items and values of maps are nullable where their schemas
    are optional. A type cannot hold names, versions, defaults and documentation of schemas, except the names of the
    four logical types. ``pa.schema(arrow_type(schema))`` is the schema of a plain table whose rows have a struct
    schema.

    Args:
        schema: The schema of the values; None: schemaless, Spark's VARIANT.

    Raises:
        DataException: The scale of a Decimal is not a whole number, or is out of the range of Arrow decimals.

    Source: Penstock's own.

    >>> from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder
    >>> row = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()
    >>> arrow_type(row)
    StructType(struct<id: int64 not null, name: string>)
    >>> connect_schema(arrow_type(row)) == row
    True
    """
    if schema is None:
        return _VARIANT
    logical = _LOGICAL_TYPES.get((schema.name or "", schema.type))
    if logical is not None:
        return logical
    if schema.name == Decimal.LOGICAL_NAME and schema.type is Type.BYTES:
        return _decimal_type(schema)
    if schema.type is Type.STRUCT:
        return pa.struct([_arrow_field(one.name, one.schema) for one in schema.fields])
    if schema.type is Type.MAP:
        key = pa.field("key", arrow_type(schema.key_schema), nullable=False)
        return pa.map_(key, _arrow_field("value", schema.value_schema))
    if schema.type is Type.ARRAY:
        return pa.list_(_arrow_field("item", schema.value_schema))
    return _CARRIERS[schema.type]


def _arrow_field(name: str, schema: Schema | None) -> pa.Field:
    return pa.field(name, arrow_type(schema), nullable=schema is None or schema.optional)


def _decimal_type(schema: Schema) -> pa.DataType:
    text = (schema.parameters or {}).get(Decimal.SCALE_FIELD)
    try:
        scale = int(text or "")
    except ValueError:
        raise DataException(f"Invalid scale parameter found in Decimal schema: {text!r} is no whole number") from None
    if abs(scale) > _MOST_DIGITS:
        raise DataException(f"No Arrow type has decimals of the scale {scale}: the most is {_MOST_DIGITS} digits")
    return pa.decimal128(_DIGITS, scale) if abs(scale) <= _DIGITS else pa.decimal256(_MOST_DIGITS, scale)


def _fields(arrow: pa.StructType) -> tuple[Field, ...]:
    fields = []
    for index, one in enumerate(arrow):
        schema = connect_schema(one.type, optional=one.nullable)
        if schema is None:
            raise DataException(
                f'The field "{one.name}" is a VARIANT: a struct of Connect needs a schema for each field'
            )
        fields.append(Field(one.name, index, schema))
    return tuple(fields)


def _logical(name: str, carrier: Type, optional: bool, parameters: dict[str, str] | None = None) -> Schema:
    return Schema(carrier, optional=optional, name=name, version=1, parameters=parameters)


def is_text(column_type: pa.DataType) -> bool:
    """True for Arrow's string types."""
    return bool(
        pa.types.is_string(column_type) or pa.types.is_large_string(column_type) or pa.types.is_string_view(column_type)
    )


def is_bytes(column_type: pa.DataType) -> bool:
    """True for Arrow's binary types."""
    return bool(
        pa.types.is_binary(column_type)
        or pa.types.is_large_binary(column_type)
        or pa.types.is_binary_view(column_type)
        or pa.types.is_fixed_size_binary(column_type)
    )


def is_list(column_type: pa.DataType) -> bool:
    """True for Arrow's list types."""
    return bool(
        pa.types.is_list(column_type)
        or pa.types.is_large_list(column_type)
        or pa.types.is_fixed_size_list(column_type)
        or pa.types.is_list_view(column_type)
        or pa.types.is_large_list_view(column_type)
    )


def is_variant(column_type: pa.DataType) -> bool:
    """True for the type that Spark uses for VARIANT."""
    if not pa.types.is_struct(column_type) or column_type.num_fields != 2:
        return False
    marks = [column_type.field(index).metadata or {} for index in range(2)]
    return any(mark.get(b"variant") == b"true" for mark in marks)


_TEMPORAL: Final = (
    (pa.types.is_timestamp, Timestamp.LOGICAL_NAME, Type.INT64),
    (pa.types.is_date, Date.LOGICAL_NAME, Type.INT32),
    (pa.types.is_time, Time.LOGICAL_NAME, Type.INT32),
)
#: The first type that can hold all values.
_PLAIN: Final = (
    (pa.types.is_boolean, Type.BOOLEAN),
    (pa.types.is_int8, Type.INT8),
    (pa.types.is_int16, Type.INT16),
    (pa.types.is_int32, Type.INT32),
    (pa.types.is_integer, Type.INT64),
    (pa.types.is_float16, Type.FLOAT32),
    (pa.types.is_float32, Type.FLOAT32),
    (pa.types.is_float64, Type.FLOAT64),
    (is_text, Type.STRING),
    (is_bytes, Type.BYTES),
)


#: The precision of Arrow's usual decimals, and of the longest.
_DIGITS: Final = 38
_MOST_DIGITS: Final = 76
_LOGICAL_TYPES: Final = {
    (Timestamp.LOGICAL_NAME, Type.INT64): pa.timestamp("ms", "UTC"),
    (Time.LOGICAL_NAME, Type.INT32): pa.time32("ms"),
    (Date.LOGICAL_NAME, Type.INT32): pa.date32(),
}
_CARRIERS: Final = {
    Type.BOOLEAN: pa.bool_(),
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
#: The metadata with which Spark marks it.
_VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def struct_column(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """Some columns of a table as one struct column, without a copy of columns with one chunk; raises ConnectException
    if one is missing.
    """
    lacking = [name for name in names if name not in table.column_names]
    if lacking:
        raise ConnectException(
            f"The table has no column {', '.join(lacking)}; it has {', '.join(table.column_names) or 'none'}"
        )
    cells = [one_array(table.column(name)) for name in names]
    return pa.StructArray.from_arrays(cells, fields=[table.schema.field(name) for name in names])


def table_of_values(values: Sequence[object], key: Sequence[str] = ()) -> tuple[pa.Table, pa.Table]:
    """Schemaless values, all of one kind, as the columns of a frame; ``key`` names the fields of dicts that form the
    key.

    Returns:
        A table with a column ``value``, and a column ``key`` if requested; and a table with the fields of the values as
        columns.

    Raises:
        ConnectException: The values are of several kinds, or lack a field of the key.
    """
    try:
        column = pa.array(list(values))
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise ConnectException(
            f"The values of a Chunk are of several kinds, or of one that no column holds: {error}. Give a table"
        ) from error
    fields = pa.Table.from_struct_array(column) if pa.types.is_struct(column.type) else pa.table({"value": column})
    table = pa.table({"value": column})
    return (table.append_column("key", struct_column(fields, key)) if key else table), fields


def for_spark(table: pa.Table) -> pa.Table:
    """A copy of a table that PySpark accepts.

    PySpark casts tables. In a slice of a longer column, Arrow casts untyped nulls inside structs and lists to the
    length of the whole column: such columns are copied.
    """
    for place, one in enumerate(table.schema):
        if pa.types.is_nested(one.type) and _holds_nulls(one.type):
            whole = pa.chunked_array([pa.concat_arrays([chunk]) for chunk in table.column(place).chunks], one.type)
            table = table.set_column(place, one, whole)
    return table


def _holds_nulls(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return bool(pa.types.is_null(kind))
    return any(_holds_nulls(kind.field(place).type) for place in range(kind.num_fields))


def slices_together(table: pa.Table, runs: Sequence[tuple[int, int]]) -> pa.Table:
    """The rows of runs (first row and length, at least one), without copying them."""
    return pa.concat_tables([table.slice(start, length) for start, length in runs])


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array; a column with one chunk is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
