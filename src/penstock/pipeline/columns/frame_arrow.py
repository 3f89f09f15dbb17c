"""Arrow columns of frames, cast to what their schemas need, and the union of two schemas.

A cell is taken as the Python object it holds: it is written as a record task's record with that object would be. A
column that its schema cannot hold without loss raises, and the error names the column, its type and the schema. What
records lose is lost here too: digits of a time below the millisecond, and digits that a FLOAT32 has no room for.

The usual column has the wanted type and is handed on as it is. Everything else is a cast in Arrow or NumPy, but for
decimals of more than 38 digits and schemaless columns of other than plain types, which go through Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_bytes, is_list, is_text, is_variant, one_array
from penstock.data import Date, Field, Schema, Time, Timestamp, Type
from penstock.data.text import MILLIS_PER_DAY
from penstock.errors import ConnectException
from penstock.pipeline.columns.expressions import TooManyDigits, decimals
from penstock.pipeline.columns.layout import (
    DECIMAL,
    MAX_DECIMAL_DIGITS,
    SCALAR,
    UNSCALED,
    UNSCALED_ARROW,
    Layout,
    LayoutKind,
    arrow_type,
    decimal_scale,
    default_physical,
    has_plain_keys,
    is_decimal,
    logical_name,
)
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.columns.sizes import fields_of

Column: TypeAlias = pa.Array | pa.ChunkedArray

_TICKS_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_INTEGERS: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64))
_FLOATS: Final = frozenset((Type.FLOAT32, Type.FLOAT64))
_UTC: Final = frozenset((None, "UTC", "Etc/UTC", "+00:00", "Z"))


# ------------------------------------------------------------------------------------------------------ with a schema
def fitted(column: Column, schema: Schema, path: str) -> tuple[Column, Layout]:
    """A column as its schema needs it, and how it is laid out; messages call it ``path``.

    Raises:
        ConnectException: The column's type, or one of its values, does not fit the schema.
    """
    layout = default_physical(schema)
    if column.type == arrow_type(schema, layout):
        return column, layout
    return _fit(one_array(column), schema, path)


def _fit(array: pa.Array, schema: Schema, path: str) -> tuple[pa.Array, Layout]:
    array = _plain(array)
    kind, layout = array.type, default_physical(schema)
    wanted = arrow_type(schema, layout)
    if kind == wanted:
        return array, layout
    if pa.types.is_null(kind):
        return pa.nulls(len(array), wanted), layout
    try:
        made = _cast(array, schema, path)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise unfit(path, kind, schema, error) from error
    if made is None:
        raise unfit(path, kind, schema)
    return made


def unfit(path: str, kind: object, schema: Schema, reason: object = None) -> ConnectException:
    """The error of a column that does not fit its schema."""
    told = "" if reason is None else f": {reason}"
    return ConnectException(
        f'The column "{path}" of a SourceFrame has the type {kind}, which does not fit {named(schema)}{told}'
    )


def named(schema: Schema) -> str:
    """A schema as messages name it, with the scale of a Decimal."""
    return f"{schema} of scale {decimal_scale(schema)}" if is_decimal(schema) else str(schema)


_ENCODED: Final = (pa.DictionaryType, pa.RunEndEncodedType, pa.BaseExtensionType)


def _plain(array: pa.Array) -> pa.Array:
    """The array without an encoding around its values."""
    while True:
        if isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        elif isinstance(array, pa.RunEndEncodedArray):
            array = pc.run_end_decode(array)
        elif isinstance(array, pa.ExtensionArray):
            array = array.storage
        else:
            return array


def _cast(array: pa.Array, schema: Schema, path: str) -> tuple[pa.Array, Layout] | None:
    """The array as the schema needs it; None where values of its type are never values of the schema."""
    name = logical_name(schema)
    if name is not None and not is_decimal(schema):
        made = _TEMPORAL_CASTS[name](array)
        return None if made is None else (made, SCALAR)
    match schema.type:
        case Type.BYTES if is_decimal(schema):
            return _decimals(array, schema)
        case Type.ARRAY:
            return _lists(array, schema, path)
        case Type.MAP:
            return _maps(array, schema, path)
        case Type.STRUCT:
            return _structs(array, schema, path)
        case _:
            return (array.cast(arrow_type(schema)), SCALAR) if _same_kind(array.type, schema.type) else None


def _same_kind(kind: pa.DataType, wanted: Type) -> bool:
    if wanted in _INTEGERS or wanted in _FLOATS:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
    if wanted is Type.STRING:
        return is_text(kind)
    return wanted is Type.BYTES and is_bytes(kind)


# ---------------------------------------------------------------------------------------------------------- temporal
def _timestamps(array: pa.Array) -> pa.Array | None:
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _ticks(array, kind.unit, 1_000)
    if pa.types.is_date(kind):
        return pc.multiply_checked(_dates(array).cast(pa.int64()), MILLIS_PER_DAY)
    return array.cast(pa.int64()) if pa.types.is_integer(kind) else None


def _times(array: pa.Array) -> pa.Array | None:
    kind = array.type
    if pa.types.is_time(kind):
        return _ticks(array, kind.unit, 1_000).cast(pa.int32())
    return array.cast(pa.int32()) if pa.types.is_integer(kind) else None


def _dates(array: pa.Array) -> Any:
    kind = array.type
    if pa.types.is_date32(kind):
        return array.view(pa.int32())
    if pa.types.is_date64(kind):
        return _divided(array.view(pa.int64()), MILLIS_PER_DAY).cast(pa.int32())
    if pa.types.is_timestamp(kind) and kind.tz in _UTC:
        ticks = array.view(pa.int64())
        per_day = _TICKS_PER_SECOND[kind.unit] * 86_400
        days = _divided(ticks, per_day)
        if not pc.all(pc.equal(pc.multiply(days, per_day), ticks), min_count=0).as_py():
            raise ValueError("Kafka Connect Date type should not have any time fields set to non-zero values.")
        return days.cast(pa.int32())
    return array.cast(pa.int32()) if pa.types.is_integer(kind) else None


_TEMPORAL_CASTS: Final = {
    Timestamp.LOGICAL_NAME: _timestamps,
    Time.LOGICAL_NAME: _times,
    Date.LOGICAL_NAME: _dates,
}


def _ticks(array: pa.Array, unit: str, wanted_per_second: int) -> pa.Array:
    """Times as int64 in another unit, rounded down."""
    ticks = array.view(pa.int32()).cast(pa.int64()) if array.type.bit_width == 32 else array.view(pa.int64())
    given = _TICKS_PER_SECOND[unit]
    if given <= wanted_per_second:
        return ticks if given == wanted_per_second else pc.multiply_checked(ticks, wanted_per_second // given)
    return _divided(ticks, given // wanted_per_second)


def _divided(array: pa.Array, by: int) -> pa.Array:
    """An int64 array divided, rounded down. Arrow's own division rounds towards zero."""
    if not len(array):
        return array
    numbers: np.ndarray = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]
    found = pa.array(np.floor_divide(numbers, by), pa.int64())
    return pc.if_else(array.is_valid(), found, None) if array.null_count else found


# ---------------------------------------------------------------------------------------------------------- decimals
def _decimals(array: pa.Array, schema: Schema) -> tuple[pa.Array, Layout] | None:
    if array.type == UNSCALED_ARROW:
        return _narrowed(array, schema)
    if not (pa.types.is_decimal(array.type) or pa.types.is_integer(array.type)):
        return None
    scale = decimal_scale(schema)
    if default_physical(schema) == DECIMAL:
        try:
            return array.cast(pa.decimal128(MAX_DECIMAL_DIGITS, scale)), DECIMAL
        except pa.ArrowInvalid:
            # Too long for the usual layout, or digits would be lost: the cast that has more room tells.
            array = array.cast(pa.decimal256(76, scale))
    made, errors, physical = to_arrow(array.to_pylist(), schema)
    for error in errors.values():
        raise ValueError(str(error))
    return made, physical


def _narrowed(array: pa.StructArray, schema: Schema) -> tuple[pa.Array, Layout]:
    """Digits and scales as a column of decimals, if all values have the scale of the schema and at most 38 digits."""
    scale, valid = decimal_scale(schema), array.is_valid()
    digits, scales = pc.struct_field(array, [0]), pc.struct_field(array, [1])
    given = pc.unique(scales.drop_null()).to_pylist()
    if default_physical(schema) != DECIMAL or given not in ([], [scale]) or digits.null_count != array.null_count:
        return array, UNSCALED
    offsets = np.frombuffer(digits.buffers()[1], np.int32)[digits.offset : digits.offset + len(digits) + 1]
    data = digits.buffers()[2]
    octets = np.concatenate([np.frombuffer(data or b"", np.uint8), np.zeros(1, np.uint8)])
    lengths = np.where(valid.to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    try:
        made = decimals(octets, offsets[:-1], lengths, pa.decimal128(MAX_DECIMAL_DIGITS, scale))
    except TooManyDigits:
        return array, UNSCALED
    return (pc.if_else(valid, made, None) if array.null_count else made), DECIMAL


# ------------------------------------------------------------------------------------------------------------ nested
def _lists(array: pa.Array, schema: Schema, path: str) -> tuple[pa.Array, Layout] | None:
    if not is_list(array.type):
        return None
    values, layout = _member(array.flatten(), schema.value_schema, f"{path}[]")
    physical = Layout(LayoutKind.ARRAY, (layout,))
    offsets, mask = _spans(array)
    return pa.ListArray.from_arrays(offsets, values, type=arrow_type(schema, physical), mask=mask), physical


def _maps(array: pa.Array, schema: Schema, path: str) -> tuple[pa.Array, Layout] | None:
    if pa.types.is_map(array.type):
        # The layout of a map is that of a list of structs, which knows what belongs to nulls.
        array = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    elif not (is_list(array.type) and pa.types.is_struct(array.type.value_type)):
        return None
    entries = array.flatten()
    if sorted(field.name for field in entries.type) != ["key", "value"]:
        return None
    members = dict(zip([field.name for field in entries.type], entries.flatten(), strict=True))
    keys, key_layout = _member(members["key"], schema.key_schema, f"{path}{{key}}")
    items, value_layout = _member(members["value"], schema.value_schema, f"{path}{{value}}")
    plain = has_plain_keys(schema) and keys.null_count == 0
    physical = Layout(LayoutKind.MAP if plain else LayoutKind.ENTRIES, (key_layout, value_layout))
    wanted = arrow_type(schema, physical)
    offsets, mask = _spans(array)
    if plain:
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=mask), physical
    pairs = pa.StructArray.from_arrays([keys, items], fields=list(wanted.value_type))
    return pa.ListArray.from_arrays(offsets, pairs, type=wanted, mask=mask), physical


def _structs(array: pa.Array, schema: Schema, path: str) -> tuple[pa.Array, Layout] | None:
    if not pa.types.is_struct(array.type) or is_variant(array.type):
        return None
    names = [field.name for field in array.type]
    if problem := unfit_fields(names, schema):
        raise ValueError(problem)
    if not schema.fields:
        return pa.array([{} if there else None for there in array.is_valid().to_pylist()], pa.struct([])), Layout(
            LayoutKind.STRUCT
        )
    # Flattened, so that a field is null where its struct is: what stands there says nothing.
    members = dict(zip(names, array.flatten(), strict=True))
    built = [
        _member(members.get(field.name, pa.nulls(len(array))), field.schema, joined(path, field.name))
        for field in schema.fields
    ]
    physical = Layout(LayoutKind.STRUCT, tuple(layout for _, layout in built))
    fields = list(arrow_type(schema, physical))
    return pa.StructArray.from_arrays([one for one, _ in built], fields=fields, mask=_mask(array)), physical


def unfit_fields(names: Sequence[str], schema: Schema) -> str | None:
    """Returns why columns of these names are not the fields of a struct schema, in any order; None if they are.

    A field that may be null, or has a default, may have no column.
    """
    wanted = {field.name: field.schema for field in schema.fields}
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"{quoted(twice)} stands there more than once"
    if unknown := sorted(set(names) - wanted.keys()):
        return f"the schema has no field {quoted(unknown)}; its fields are {quoted(wanted)}"
    absent = [name for name, one in wanted.items() if name not in names and not one.optional and one.default is None]
    return f"there is no column for the required field {quoted(absent)}" if absent else None


def quoted(names: Iterable[str]) -> str:
    """Names as messages list them."""
    return ", ".join(f'"{name}"' for name in names)


def joined(path: str, name: str) -> str:
    """Returns the name of a field of a column in messages; without a path it is a column itself."""
    return f"{path}.{name}" if path else name


def _member(array: pa.Array, schema: Schema | None, path: str) -> tuple[pa.Array, Layout]:
    if schema is not None:
        return _fit(array, schema, path)
    # Nulls inside of others have to be the null of VARIANT: that is how the items of a list are written.
    items, errors, physical = to_arrow([python_values(array, path)], Schema(Type.ARRAY))
    for error in errors.values():
        raise ValueError(str(error))
    return items.values, physical.children[0]


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _spans(array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Returns where each list starts in ``flatten()``, which leaves out what nulls hold, and which are null."""
    sizes = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.array(offsets), _mask(array)


# -------------------------------------------------------------------------------------------------- without a schema
def plain_schemaless(column: Column, path: str) -> tuple[Column, Type] | None:
    """A schemaless column whose cells are strings, numbers, booleans or bytes, which may stay a typed column.

    Returns:
        The column and what Python's objects of these cells are to Connect; None for any other column.

    Raises:
        ConnectException: An unsigned integer is beyond INT64.
    """
    if not isinstance(column, pa.ChunkedArray) or isinstance(column.type, _ENCODED):
        column = _plain(one_array(column))
    kind = column.type
    for schema_type, is_one, wanted in _PLAIN_KINDS:
        if is_one(kind):
            try:
                return column if kind == wanted else column.cast(wanted), schema_type
            except pa.ArrowInvalid as error:
                raise unfit(path, kind, Schema(schema_type), error) from error
    return None


_PLAIN_KINDS: Final = (
    (Type.STRING, is_text, pa.string()),
    (Type.INT64, pa.types.is_integer, pa.int64()),
    (Type.FLOAT64, pa.types.is_floating, pa.float64()),
    (Type.BOOLEAN, pa.types.is_boolean, pa.bool_()),
    (Type.BYTES, is_bytes, pa.binary()),
)


def python_values(column: Column, path: str) -> list[object]:
    """The cells as Python objects: dicts for structs and maps, dates, datetimes, times, decimals.

    Raises:
        ConnectException: Python has no object for one of them, or Connect none for its type.
    """
    kind = column.type
    strange = _strange(kind)
    if strange is not None:
        raise ConnectException(
            f'The column "{path}" of a SourceFrame has the type {kind} and no schema, and Connect has no values of the '
            f"type {strange}. Cast it to a type that has"
        )
    try:
        readable = _readable(kind)
        found = column if readable == kind else column.cast(readable, safe=False)
        values: list[object] = found.to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, OverflowError, ValueError, TypeError, KeyError) as error:
        raise ConnectException(
            f'The column "{path}" of a SourceFrame has the type {kind} and no schema, and a value that is no Python '
            f"object: {error}. Give the frame a schema"
        ) from error
    return values


def _strange(kind: pa.DataType) -> str | None:
    """A type inside of this one whose values are nothing to Connect."""
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return str(kind)
    if is_variant(kind):
        return "VARIANT, inside of others"
    return next((found for field in fields_of(kind) if (found := _strange(field.type)) is not None), None)


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type whose values Python has objects for: they count microseconds, not nanoseconds."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if pa.types.is_dictionary(kind):
        return _readable(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        value = kind.item_field.with_type(_readable(kind.item_type))
        return pa.map_(kind.key_field.with_type(_readable(kind.key_type)), value)
    if is_list(kind):
        value = kind.value_field.with_type(_readable(kind.value_type))
        return kind if value.type == kind.value_type else pa.large_list(value)
    return kind


# --------------------------------------------------------------------------------------------- the union of two schemas
_MAX_PAIRS: Final = 1024
#: From narrow to wide; each holds the numbers of those before it exactly.
_INTEGERS_BY_WIDTH: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_FLOATS_BY_WIDTH: Final = (Type.FLOAT32, Type.FLOAT64)
#: The narrowest type of floats that holds all integers of a type.
_FLOAT_FOR: Final = {Type.INT8: Type.FLOAT32, Type.INT16: Type.FLOAT32, Type.INT32: Type.FLOAT64}


@lru_cache(maxsize=_MAX_PAIRS)
def union_of(first: Schema, second: Schema) -> Schema | None:
    """The schema that holds the values of both; None where there is none.

    Names have to be the same, so that a date joins no number and an order no customer. Of version, doc and parameters
    the union has those of the first, and where it has none, of the second; a default stays if both have it.

    >>> union_of(Schema(Type.INT32), Schema(Type.INT64, optional=True))
    <Schema{INT64}>
    >>> union_of(Schema(Type.INT64), Schema(Type.FLOAT64)) is None
    True
    """
    if first == second:
        return first
    if first.name != second.name:
        return None
    kind = first.type if first.type is second.type else _wider(first, second)
    if kind is None or (first.name is not None and _scale(first) != _scale(second)):
        return None
    key, value = None, None
    fields = _fields(first, second) if kind is Type.STRUCT else ()
    if fields is None:
        return None
    if kind is Type.MAP:
        key = _inner(first.key_schema, second.key_schema)
        if key is None:
            return None
    if kind in (Type.ARRAY, Type.MAP):
        value = _inner(first.value_schema, second.value_schema)
        if value is None:
            return None
    return Schema(
        kind,
        optional=first.optional or second.optional,
        default=first.default if first.default == second.default else None,
        name=first.name,
        version=second.version if first.version is None else first.version,
        doc=first.doc or second.doc,
        parameters=_merged(first.parameters, second.parameters),
        key_schema=key,
        value_schema=value,
        fields=fields,
    )


def _wider(first: Schema, second: Schema) -> Type | None:
    if first.name is not None:
        return None
    one, other = first.type, second.type
    for kinds in (_INTEGERS_BY_WIDTH, _FLOATS_BY_WIDTH):
        if one in kinds and other in kinds:
            return max(one, other, key=kinds.index)
    whole, real = (one, other) if one in _FLOAT_FOR else (other, one)
    if whole in _FLOAT_FOR and real in _FLOATS_BY_WIDTH:
        return max(_FLOAT_FOR[whole], real, key=_FLOATS_BY_WIDTH.index)
    return None


def _scale(schema: Schema) -> str | None:
    return (schema.parameters or {}).get("scale")


def _inner(first: Schema | None, second: Schema | None) -> Schema | None:
    return None if first is None or second is None else union_of(first, second)


def _fields(first: Schema, second: Schema) -> tuple[Field, ...] | None:
    """The fields of two structs, those of the first one in front; None where one of both cannot be joined."""
    firsts = {field.name: field.schema for field in first.fields}
    seconds = {field.name: field.schema for field in second.fields}
    found: list[Schema] = []
    names = [*firsts, *(name for name in seconds if name not in firsts)]
    for name in names:
        if name in firsts and name in seconds:
            joined = union_of(firsts[name], seconds[name])
            if joined is None:
                return None
            found.append(joined)
        else:
            found.append(_optional(firsts.get(name) or seconds[name]))
    return tuple(Field(name, index, schema) for index, (name, schema) in enumerate(zip(names, found, strict=True)))


def _optional(schema: Schema) -> Schema:
    """The same for a field that may be missing. It has no default: missing is null."""
    return Schema(
        schema.type,
        optional=True,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        key_schema=schema.key_schema if schema.type is Type.MAP else None,
        value_schema=schema.value_schema if schema.type in (Type.MAP, Type.ARRAY) else None,
        fields=schema.fields if schema.type is Type.STRUCT else (),
    )


def _merged(first: Mapping[str, str] | None, second: Mapping[str, str] | None) -> Mapping[str, str] | None:
    return {**(second or {}), **(first or {})} or None
