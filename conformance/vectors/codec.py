"""The JSON in which recorded vectors write schemas and values, to and from ours, and when two of them are equal.

Main functions: ``decode_schema``, ``encode_schema``, ``decode_value``, ``encode_value``, ``equal_values``.

Vectors tell Java classes apart that Python does not. Without a schema, ``{"$int8": 1}`` becomes ``Int8``, an int that
remembers its width. Under a schema, a value of another class than the schema wants becomes a ``Mismatch``, which no
schema accepts. Comparison is by value: a width says nothing there.

Owning thread: none; pure functions.
"""

from __future__ import annotations

import base64
import decimal
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Final

from penstock.data import (
    Date,
    FarDate,
    FarMoment,
    FarTime,
    FarTimestamp,
    Field,
    Schema,
    Struct,
    Time,
    Timestamp,
    Type,
    java_double,
    java_float,
    round_to_float32,
)
from penstock.data.structs import map_key

__all__ = [
    "BigInteger",
    "Float32",
    "Int8",
    "Int16",
    "Int32",
    "Mismatch",
    "decode_schema",
    "decode_value",
    "encode_schema",
    "encode_value",
    "equal_values",
]

MILLIS_PER_DAY: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEMPORAL: Final = {
    Date.LOGICAL_NAME: Type.INT32,
    Time.LOGICAL_NAME: Type.INT32,
    Timestamp.LOGICAL_NAME: Type.INT64,
}
#: Integers beyond this are written as text: JSON readers would round them.
_EXACT: Final = 1 << 53


class Int8(int):
    """A Java Byte without a schema."""

    connect_type: ClassVar[Type | None] = Type.INT8


class Int16(int):
    """A Java Short without a schema."""

    connect_type: ClassVar[Type | None] = Type.INT16


class Int32(int):
    """A Java Integer without a schema."""

    connect_type: ClassVar[Type | None] = Type.INT32


class BigInteger(int):
    """A Java BigInteger: no Connect type at all."""

    connect_type: ClassVar[Type | None] = None


class Float32(float):
    """A Java Float without a schema."""

    connect_type: ClassVar[Type | None] = Type.FLOAT32


@dataclass(frozen=True)
class Mismatch:
    """A value of another Java class than the schema in context wants."""

    tag: str
    value: object


_TAGGED_TYPES: Final = {
    "$int8": Type.INT8,
    "$int16": Type.INT16,
    "$int32": Type.INT32,
    "$int64": Type.INT64,
    "$float32": Type.FLOAT32,
    "$float64": Type.FLOAT64,
}
_WIDTHS: Final[dict[str, Callable[[Any], object]]] = {
    "$int8": Int8,
    "$int16": Int16,
    "$int32": Int32,
    "$int64": int,
    "$float32": Float32,
    "$float64": float,
}
_WIDTH_TAGS: Final[dict[type, str]] = {Int8: "$int8", Int16: "$int16", Int32: "$int32"}


# -- schemas


def decode_schema(data: Mapping[str, Any] | None) -> Schema | None:
    """The schema a vector writes; None for none."""
    if data is None:
        return None
    kind = Type(data["type"])
    plain = Schema(
        kind,
        optional=bool(data.get("optional", False)),
        name=data.get("name"),
        version=data.get("version"),
        doc=data.get("doc"),
        parameters=data.get("parameters"),
        key_schema=decode_schema(data.get("keys")) if kind is Type.MAP else None,
        value_schema=decode_schema(data.get("values" if kind is Type.MAP else "items")),
        fields=[
            Field(item["name"], index, _required(decode_schema(item["schema"])))
            for index, item in enumerate(data.get("fields", ()))
        ],
    )
    if data.get("default") is None:
        return plain
    return Schema(
        kind,
        optional=plain.optional,
        default=decode_value(data["default"], plain),
        name=plain.name,
        version=plain.version,
        doc=plain.doc,
        parameters=plain.parameters,
        key_schema=plain.key_schema if kind is Type.MAP else None,
        value_schema=plain.value_schema if kind in (Type.MAP, Type.ARRAY) else None,
        fields=plain.fields if kind is Type.STRUCT else (),
    )


@lru_cache(maxsize=1024)
def encode_schema(schema: Schema | None) -> dict[str, Any] | None:
    """A schema as a vector writes it; what is unset or false is left out. Not to be changed: it is kept."""
    if schema is None:
        return None
    data: dict[str, Any] = {"type": schema.type.value}
    if schema.optional:
        data["optional"] = True
    for key in ("name", "version", "doc"):
        if getattr(schema, key) is not None:
            data[key] = getattr(schema, key)
    if schema.parameters is not None:
        data["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        # A default was made before its schema was finished, so a struct there has a schema without the default.
        context = schema.default.schema if isinstance(schema.default, Struct) else schema
        data["default"] = encode_value(schema.default, context)
    if schema.type is Type.ARRAY:
        data["items"] = encode_schema(schema.value_schema)
    elif schema.type is Type.MAP:
        data["keys"] = encode_schema(schema.key_schema)
        data["values"] = encode_schema(schema.value_schema)
    elif schema.type is Type.STRUCT:
        data["fields"] = [{"name": field.name, "schema": encode_schema(field.schema)} for field in schema.fields]
    return data


def _required(schema: Schema | None) -> Schema:
    if schema is None:
        raise ValueError("a struct field of a vector has no schema")
    return schema


# -- values, from vectors


def decode_value(data: Any, schema: Schema | None) -> object:
    """The value a vector writes.

    Args:
        data: What ``json.loads`` made of it.
        schema: The schema in context; None = schemaless.
    """
    match data:
        case None | bool() | str() | float():
            return data
        case int():
            # What a vector says about java.util.Date is tagged: a plain number is a Long where a Date is wanted.
            return Mismatch("$int64", data) if _is_temporal(schema) else data
        case list():
            items = schema.value_schema if schema is not None and schema.type is Type.ARRAY else None
            return [decode_value(item, items) for item in data]
        case dict():
            tag = next(iter(data), "")
            if tag.startswith("$"):
                return _decode_tagged(tag, data, schema)
            return _decode_object(data, schema)
        case _:
            raise ValueError(f"no value of a vector: {data!r}")


def _decode_object(data: dict[str, Any], schema: Schema | None) -> object:
    if schema is not None and schema.type is Type.STRUCT:
        values = [decode_value(data.get(field.name), field.schema) for field in schema.fields]
        return Struct.unchecked(schema, values)
    items = schema.value_schema if schema is not None and schema.type is Type.MAP else None
    return {key: decode_value(item, items) for key, item in data.items()}


def _decode_tagged(tag: str, data: dict[str, Any], schema: Schema | None) -> object:
    content = data[tag]
    if tag in _TAGGED_TYPES:
        return _decode_number(tag, content, schema)
    match tag:
        case "$bytes" | "$bytebuffer":
            return base64.b64decode(content)
        case "$decimal":
            return _decode_decimal(content, data["$scale"])
        case "$bigint":
            return BigInteger(content)
        case "$uuid":
            return uuid.UUID(content)
        case "$date" | "$time" | "$timestamp":
            return _decode_temporal(tag, content, schema)
        case "$map":
            keys = schema.key_schema if schema is not None and schema.type is Type.MAP else None
            items = schema.value_schema if schema is not None and schema.type is Type.MAP else None
            return {map_key(decode_value(key, keys)): decode_value(item, items) for key, item in content}
        case "$struct":
            return decode_value(content["fields"], decode_schema(content["schema"]))
        case _:
            raise ValueError(f"no tag of vectors: {tag}")


def _decode_number(tag: str, content: Any, schema: Schema | None) -> object:
    value: Any = int(content) if tag.startswith("$int") else float(content)
    if schema is None:
        return _WIDTHS[tag](value)
    if schema.type is _TAGGED_TYPES[tag] and not _is_temporal(schema):
        return value
    return Mismatch(tag, value)


def _decode_decimal(digits: str, scale: int) -> decimal.Decimal:
    # By digits, not by quantize: plain digits of a negative scale end in zeros that are no part of the unscaled value.
    sign, written, exponent = decimal.Decimal(digits).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"no decimal of a vector: {digits}")
    shift = exponent + scale
    kept = written + (0,) * shift if shift >= 0 else written[:shift] or (0,)
    return decimal.Decimal((sign, kept, -scale))


def _decode_temporal(tag: str, millis: int, schema: Schema | None) -> object:
    """A java.util.Date as the Python value the schema wants; without a schema the tag decides."""
    if schema is not None and _is_temporal(schema):
        name = schema.name
    else:
        name = {"$date": Date.LOGICAL_NAME, "$time": Time.LOGICAL_NAME, "$timestamp": Timestamp.LOGICAL_NAME}[tag]
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        if name == Date.LOGICAL_NAME and millis % MILLIS_PER_DAY == 0:
            return FarDate(millis // MILLIS_PER_DAY)
        return FarTime(millis) if name == Time.LOGICAL_NAME else FarTimestamp(millis)
    if name == Date.LOGICAL_NAME:
        # A Date with a time part stays a datetime: converting it fails, as in Java.
        return moment.date() if millis % MILLIS_PER_DAY == 0 else moment
    if name == Time.LOGICAL_NAME:
        return moment.time() if 0 <= millis < MILLIS_PER_DAY else FarTime(millis)
    return moment


def _is_temporal(schema: Schema | None) -> bool:
    return schema is not None and _TEMPORAL.get(schema.name or "") is schema.type


# -- values, to vectors


def encode_value(value: object, schema: Schema | None) -> Any:
    """A value as a vector writes it.

    Args:
        value: The value.
        schema: The schema in context; None = schemaless.
    """
    match value:
        case None | bool() | str():
            return value
        case Mismatch():
            return {value.tag: value.value}
        case int():
            return _encode_int(value, schema)
        case float():
            return _encode_float(value, schema)
        case bytes() | bytearray() | memoryview():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case decimal.Decimal():
            exponent = value.as_tuple().exponent
            scale = -exponent if isinstance(exponent, int) else 0
            digits = abs(value) if value.is_zero() else value
            return {"$decimal": format(digits, "f"), "$scale": scale}
        case datetime() | date() | time():
            return _encode_temporal(value, schema)
        case list() | tuple():
            items = schema.value_schema if schema is not None and schema.type is Type.ARRAY else None
            return [encode_value(item, items) for item in value]
        case dict():
            return _encode_map(value, schema)
        case Struct():
            return _encode_struct(value, schema)
        case uuid.UUID():
            return {"$uuid": str(value)}
        case _:
            raise ValueError(f"a {type(value).__name__} is no value of a vector: {value!r}")


def _encode_int(value: int, schema: Schema | None) -> Any:
    number = int(value)
    if isinstance(value, BigInteger):
        return {"$bigint": str(number)}
    if schema is not None and schema.name is not None and _is_temporal(schema):
        millis = number * MILLIS_PER_DAY if schema.name == Date.LOGICAL_NAME else number
        return {f"${schema.name.rpartition('.')[2].lower()}": millis, "$raw": number}
    if isinstance(value, FarMoment):
        return {f"${type(value).__name__.removeprefix('Far').lower()}": value.millis}
    if schema is None and type(value) in _WIDTH_TAGS:
        return {_WIDTH_TAGS[type(value)]: number}
    return number if -_EXACT <= number <= _EXACT else {"$int64": str(number)}


def _encode_float(value: float, schema: Schema | None) -> Any:
    single = isinstance(value, Float32) or (schema is not None and schema.type is Type.FLOAT32)
    if single:
        # Tagged even where the schema says it, so that the comparison knows to round.
        value = round_to_float32(value)
        return {"$float32": float(java_float(value)) if math.isfinite(value) else java_float(value)}
    return float(value) if math.isfinite(value) else {"$float64": java_double(value)}


def _encode_temporal(value: datetime | date | time, schema: Schema | None) -> dict[str, int]:
    match value:
        case datetime():
            raw = Timestamp.from_logical(Timestamp.SCHEMA, value)
            encoded = {"$timestamp": raw}
        case date():
            raw = Date.from_logical(Date.SCHEMA, value)
            encoded = {"$date": raw * MILLIS_PER_DAY}
        case _:
            raw = Time.from_logical(Time.SCHEMA, value)
            encoded = {"$time": raw}
    # Under a schema with the name of a logical type a plain number and the date it carries are one to us.
    return {**encoded, "$raw": raw} if _is_temporal(schema) else encoded


def _encode_map(value: dict[Any, Any], schema: Schema | None) -> Any:
    typed = schema is not None and schema.type is Type.MAP
    keys = schema.key_schema if schema is not None and typed else None
    items = schema.value_schema if schema is not None and typed else None
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: encode_value(item, items) for key, item in value.items()}
    return {"$map": [[encode_value(key, keys), encode_value(item, items)] for key, item in value.items()]}


def _encode_struct(value: Struct, schema: Schema | None) -> Any:
    fields = {field.name: encode_value(value.values[field.index], field.schema) for field in value.schema.fields}
    if schema is not None and schema == value.schema:
        return fields
    return {"$struct": {"schema": encode_schema(value.schema), "fields": fields}}


# -- equality


def equal_values(expected: Any, actual: Any) -> bool:
    """True if two values, as vectors write them, are the same to Python.

    Widths of integers and floats, byte[] and ByteBuffer, and the three names of java.util.Date are one. Maps have no
    order. An integer is not a float, 0.0 is not -0.0, a Decimal keeps its scale, NaN equals itself. Works for schemas
    too.

    >>> equal_values({"$int8": 1}, 1), equal_values(1, 1.0), equal_values({"a": 1, "b": 2}, {"b": 2, "a": 1})
    (True, False, True)
    """
    return _same(_simplify(expected), _simplify(actual))


@dataclass(frozen=True)
class _Moment:
    """A java.util.Date; ``raw`` is our number of days or milliseconds, where that is what we had."""

    millis: int
    raw: int | None = None


@dataclass(frozen=True)
class _Map:
    entries: tuple[tuple[object, object], ...]


@dataclass(frozen=True)
class _Tagged:
    tag: str
    parts: tuple[object, ...]


def _simplify(data: Any) -> object:
    """A vector's value with its tags resolved."""
    if isinstance(data, list):
        return [_simplify(item) for item in data]
    if not isinstance(data, dict):
        return data
    tag = next(iter(data), "")
    if not tag.startswith("$"):
        return _Map(tuple((key, _simplify(item)) for key, item in data.items()))
    content = data[tag]
    match tag:
        case "$int8" | "$int16" | "$int32" | "$int64" | "$bigint":
            return int(content)
        case "$float32":
            return Float32(content)
        case "$float64":
            return float(content)
        case "$bytes" | "$bytebuffer":
            return base64.b64decode(content)
        case "$decimal":
            return _Tagged(tag, (decimal.Decimal(content), data["$scale"]))
        case "$date" | "$time" | "$timestamp":
            return _Moment(content, data.get("$raw"))
        case "$map":
            return _Map(tuple((_simplify(key), _simplify(item)) for key, item in content))
        case "$struct":
            return _Tagged(tag, (_simplify(content["schema"]), _simplify(content["fields"])))
        case _:
            return _Tagged(tag, (_simplify(content),))


def _same(expected: object, actual: object) -> bool:
    match expected, actual:
        case (float(), float()):
            if isinstance(expected, Float32) or isinstance(actual, Float32):
                return float.__repr__(round_to_float32(expected)) == float.__repr__(round_to_float32(actual))
            return repr(expected) == repr(actual)
        case (list(), list()):
            return len(expected) == len(actual) and all(map(_same, expected, actual))
        case (_Map(), _Map()):
            return len(expected.entries) == len(actual.entries) and all(
                _has(actual, *entry) for entry in expected.entries
            )
        case (_Tagged(), _Tagged()):
            return expected.tag == actual.tag and all(map(_same, expected.parts, actual.parts))
        case (_Moment(), _Moment()):
            return expected.millis == actual.millis
        case (int(), _Moment()):
            # A Long under a schema named Timestamp is printed as a number; ours cannot tell it from a raw timestamp.
            return expected == actual.raw
        case _:
            return type(expected) is type(actual) and expected == actual


def _has(entries: _Map, key: object, item: object) -> bool:
    return any(_same(key, other_key) and _same(item, other) for other_key, other in entries.entries)
