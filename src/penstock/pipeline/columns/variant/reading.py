"""Python values out of the VARIANT binary format of Spark and Parquet: see ``writing``, which writes it.

Main functions: ``decode`` (a schemaless value of its two binaries) and ``decode_typed`` (a value whose schema is kept
elsewhere: headers, small groups). Tagged objects become what they stand for.

Source: Parquet's VariantEncoding.md, for what the constants say.
Thread: pure functions; the caches are dicts written with single operations, safe from any thread.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Final, cast

from penstock.data import Date, FarTimestamp, Field, Schema, Struct, Time, Timestamp, Type
from penstock.data.structs import map_key
from penstock.data.variant_format import (
    ARRAY,
    BINARY,
    DATE,
    DECIMAL4,
    DECIMAL8,
    DECIMAL16,
    DOUBLE,
    FALSE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    MAP_TAG,
    NULL,
    PRIMITIVE,
    SHORT_STRING,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TRUE,
)
from penstock.errors import DataException
from penstock.pipeline.columns.temporal import EPOCH, date_of_days, datetime_of_millis, time_of_millis

STRUCT_TAG: Final = "\x00struct"
TIME_TAG: Final = "\x00time"
#: The limit of digits of any decimal. Java's JSON library reads no longer numbers, and Spark processes wide ones piece
#: by piece.
MAX_UNSCALED_DIGITS: Final = 1000
#: The bytes for any number of that many digits.
MAX_UNSCALED_BYTES: Final = 416
DECIMAL_TAG: Final = "\x00decimal"
DATE_TAG: Final = "\x00date"
TIMESTAMP_TAG: Final = "\x00timestamp"
TAGS: Final = frozenset((MAP_TAG, STRUCT_TAG, TIME_TAG, DECIMAL_TAG, DATE_TAG, TIMESTAMP_TAG))

#: The number of shapes of objects that are cached.
MAX_SHAPES: Final = 4096

_unpack_int16: Final = struct.Struct("<h").unpack_from
_unpack_int32: Final = struct.Struct("<i").unpack_from
_unpack_int64: Final = struct.Struct("<q").unpack_from
_unpack_double: Final = struct.Struct("<d").unpack_from


def rescaled(unscaled: int, scale: int) -> decimal.Decimal:
    """Return the decimal of an unscaled integer and a scale, exactly."""
    return decimal.Decimal(f"{unscaled}E{-scale}")


def decode(value: bytes, metadata: bytes) -> object:
    """Return the Python value of a variant's two binaries; the keys of an object come in the order of their data.

    Raises:
        DataException: the bytes are no variant.
    """
    try:
        return _read(value, 0, metadata)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DataException("Malformed variant") from error


def decode_typed(value: bytes, metadata: bytes, schema: Schema | None) -> object:
    """Return the value written by ``encode_typed`` (or computed by Spark) for a schema.

    Raises:
        DataException: the bytes are no variant, or no value of the schema.
    """
    plain = decode(value, metadata)
    return plain if schema is None else _raise(plain, schema)


def _raise(value: object, schema: Schema | None) -> object:
    """Undo ``_lower``: objects become Structs, raw integers of temporal types become dates and times where they fit."""
    if value is None or schema is None:
        return value
    match schema.type:
        case Type.STRUCT if isinstance(value, dict):
            return Struct.unchecked(schema, [_raise(value.get(field.name), field.schema) for field in schema.fields])
        case Type.ARRAY if isinstance(value, list):
            return [_raise(item, schema.value_schema) for item in value]
        case Type.MAP if isinstance(value, dict):
            return {key: _raise(item, schema.value_schema) for key, item in value.items()}
        case Type.FLOAT32 | Type.FLOAT64 if isinstance(value, (int, decimal.Decimal)):
            return float(value)
        case Type.INT64 if schema.name == Timestamp.LOGICAL_NAME and type(value) is int:
            return datetime_of_millis(value)
        case Type.INT32 if schema.name == Time.LOGICAL_NAME and type(value) is int:
            return time_of_millis(value)
        case Type.INT32 if schema.name == Date.LOGICAL_NAME and type(value) is int:
            return date_of_days(value)
        case _:
            return value


def _read(data: bytes, at: int, metadata: bytes) -> object:
    header = data[at]
    basic = header & 3
    if basic == SHORT_STRING:
        return _read_text(data[at + 1 : at + 1 + (header >> 2)])
    if basic == PRIMITIVE:
        reader = _READERS.get(header >> 2)
        if reader is None:
            raise DataException(f"Unknown type {header >> 2} in a variant")
        return reader(data, at + 1)
    if basic == ARRAY:
        return _read_array(data, at, metadata)
    return _read_object(data, at, metadata)


def _read_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogatepass")


def _read_array(data: bytes, at: int, metadata: bytes) -> list[object]:
    header = data[at]
    offset_size = (header >> 2 & 3) + 1
    width = 4 if header >> 4 & 1 else 1
    start = at + 1 + width
    count = int.from_bytes(data[at + 1 : start], "little")
    base = start + (count + 1) * offset_size
    offsets = _read_integers(data, start, count, offset_size)
    items = []
    for offset in offsets:  # as in ``_write``
        items.append(_read(data, base + offset, metadata))
    return items


def _read_object(data: bytes, at: int, metadata: bytes) -> object:
    header = data[at]
    ids_at = at + (5 if header & 0x40 else 2)
    count = int.from_bytes(data[at + 1 : ids_at], "little")
    offsets_at = ids_at + count * ((header >> 4 & 3) + 1)
    shape = (metadata, data[at:offsets_at])
    fields = _FIELDS.get(shape) or _learn_fields(shape, count)
    offset_size = (header >> 2 & 3) + 1
    base = offsets_at + (count + 1) * offset_size
    offsets = data[offsets_at:base] if offset_size == 1 else _read_integers(data, offsets_at, count, offset_size)
    result: dict[str, object] = {}
    last, ordered = -1, True
    for name, index in fields:
        offset = offsets[index]
        ordered = ordered and offset > last
        last = offset
        start = base + offset
        kind = data[start]
        if kind & 3 == SHORT_STRING:
            result[name] = _read_text(data[start + 1 : start + 1 + (kind >> 2)])
        elif kind & 3 == PRIMITIVE and kind in _BY_HEADER:
            result[name] = _BY_HEADER[kind](data, start + 1)
        else:
            result[name] = _read(data, start, metadata)
    if not ordered:
        in_order = sorted((offsets[index], name) for name, index in fields)
        result = {name: result[name] for _, name in in_order}
    if count == 1 and fields[0][0] in TAGS:
        return _read_tagged(fields[0][0], result[fields[0][0]])
    return result


_Fields = tuple[tuple[str, int], ...]
_FIELDS: Final[dict[tuple[bytes, bytes], _Fields]] = {}
"""(metadata, head of an object) -> its names, each with its position among the offsets, in the order of the ids (mostly
that of the data)."""


def _learn_fields(shape: tuple[bytes, bytes], count: int) -> _Fields:
    metadata, head = shape
    names = _names(metadata)
    id_size = (head[0] >> 4 & 3) + 1
    ids = _read_integers(head, len(head) - count * id_size, count, id_size)
    by_id = sorted((key, index) for index, key in enumerate(ids))
    fields = tuple((names[key], index) for key, index in by_id)
    if len(_FIELDS) >= MAX_SHAPES:
        _FIELDS.clear()
    _FIELDS[shape] = fields
    return fields


@lru_cache(maxsize=MAX_SHAPES)
def _names(metadata: bytes) -> tuple[str, ...]:
    size = (metadata[0] >> 6 & 3) + 1
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    offsets = _read_integers(metadata, 1 + size, count + 1, size)
    base = 1 + (count + 2) * size
    return tuple(_read_text(metadata[base + offsets[i] : base + offsets[i + 1]]) for i in range(count))


def _read_integers(data: bytes, at: int, count: int, size: int) -> bytes | tuple[int, ...]:
    end = at + count * size
    if size == 1:
        return data[at:end]
    if size == 3:
        return tuple(int.from_bytes(data[index : index + 3], "little") for index in range(at, end, 3))
    return struct.unpack_from(f"<{count}{'H' if size == 2 else 'I'}", data, at)


def _read_sized(data: bytes, at: int) -> bytes:
    size = int.from_bytes(data[at : at + 4], "little")
    return data[at + 4 : at + 4 + size]


def _read_decimal(data: bytes, at: int, width: int) -> decimal.Decimal:
    return rescaled(int.from_bytes(data[at + 1 : at + 1 + width], "little", signed=True), data[at])


def _read_micros(data: bytes, at: int) -> object:
    return _datetime_of_micros(struct.unpack_from("<q", data, at)[0])


def _datetime_of_micros(micros: int) -> object:
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return FarTimestamp(micros // 1000)


_READERS: Final[Mapping[int, Callable[[bytes, int], object]]] = {
    NULL: lambda _data, _at: None,
    TRUE: lambda _data, _at: True,
    FALSE: lambda _data, _at: False,
    INT8: lambda data, at: (data[at] ^ 0x80) - 0x80,
    INT16: lambda data, at: _unpack_int16(data, at)[0],
    INT32: lambda data, at: _unpack_int32(data, at)[0],
    INT64: lambda data, at: _unpack_int64(data, at)[0],
    DOUBLE: lambda data, at: _unpack_double(data, at)[0],
    DECIMAL4: lambda data, at: _read_decimal(data, at, 4),
    DECIMAL8: lambda data, at: _read_decimal(data, at, 8),
    DECIMAL16: lambda data, at: _read_decimal(data, at, 16),
    DATE: lambda data, at: date_of_days(struct.unpack_from("<i", data, at)[0]),
    TIMESTAMP: _read_micros,
    TIMESTAMP_NTZ: _read_micros,
    FLOAT: lambda data, at: struct.unpack_from("<f", data, at)[0],
    BINARY: _read_sized,
    STRING: lambda data, at: _read_text(_read_sized(data, at)),
}


_BY_HEADER: Final = {kind << 2: reader for kind, reader in _READERS.items()}


def _read_tagged(tag: str, content: object) -> object:
    if tag == TIME_TAG:
        return time_of_millis(cast("int", content))
    if tag == DATE_TAG:
        return date_of_days(cast("int", content))
    if tag == TIMESTAMP_TAG:
        # Microseconds, or in an array milliseconds that are too many for these.
        if isinstance(content, list):
            return FarTimestamp(content[0])
        return _datetime_of_micros(cast("int", content))
    parts = cast("list[object]", content)
    if tag == MAP_TAG:
        return {map_key(key): value for key, value in cast("list[tuple[object, object]]", parts)}
    if tag == DECIMAL_TAG:
        unscaled = int.from_bytes(cast("bytes", parts[0]), "big", signed=True)
        return rescaled(unscaled, cast("int", parts[1]))
    schema = _unpack_schema(cast("dict[str, object]", parts[0]))
    return Struct.unchecked(schema, cast("list[object]", parts[1]))


def _unpack_schema(packed: dict[str, object]) -> Schema:
    def child(name: str) -> Schema | None:
        inner = packed.get(name)
        return None if inner is None else _unpack_schema(cast("dict[str, object]", inner))

    fields = cast("list[tuple[str, dict[str, object]]]", packed.get("fields") or [])
    return Schema(
        Type(packed["type"]),
        optional=bool(packed["optional"]),
        default=packed["default"],
        name=cast("str | None", packed["name"]),
        version=cast("int | None", packed["version"]),
        doc=cast("str | None", packed["doc"]),
        parameters=cast("dict[str, str] | None", packed["parameters"]),
        key_schema=child("keys"),
        value_schema=child("values"),
        fields=[Field(name, index, _unpack_schema(inner)) for index, (name, inner) in enumerate(fields)],
    )
