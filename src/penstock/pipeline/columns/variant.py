"""Schemaless values in a column: Python values <-> the VARIANT binary format of Spark and Parquet.

A variant is a value binary and a metadata binary; the metadata is the dictionary of all object keys. What VARIANT
cannot say is written as a *tagged object*: an object of one key, that key being one of ``TAGS``. A dict of the user's
that looks like one is itself written as a tagged map, so a tag cannot clash. Spark derives the kind of an array from
the common type of its items, which hides dates or decimals among others: there these are tagged, too.

Source: Parquet's VariantEncoding.md, for what the constants say.
Thread: pure functions; the caches are dicts written with single operations, safe from any thread.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Final, cast

from penstock.data import Date, FarDate, FarMoment, FarTime, FarTimestamp, Field, Schema, Struct, Time, Timestamp, Type
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
    OBJECT,
    PRIMITIVE,
    SHORT_STRING,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TRUE,
)
from penstock.errors import DataException
from penstock.pipeline.columns.layout import (
    EPOCH,
    date_of_days,
    datetime_of_millis,
    days_of_date,
    millis_of_time,
    time_of_millis,
)
from penstock.pipeline.columns.sizes import MAX_LEVELS, is_deep, value_too_deep

#: A map with a key that is no string is, under ``MAP_TAG``, an array of ``[key, value]`` arrays.
#: A Struct inside of schemaless data: ``[schema object, array of field values]``.
STRUCT_TAG: Final = "\x00struct"
#: A time of day: milliseconds.
TIME_TAG: Final = "\x00time"
#: A decimal outside of 38 digits, or with a scale outside of 0..38: ``[unscaled binary, scale]``.
DECIMAL_TAG: Final = "\x00decimal"
#: A date beside values of another kind in an array: its days since 1970.
DATE_TAG: Final = "\x00date"
#: A timestamp beside such values: microseconds since 1970, or ``[milliseconds]`` that are too many for these.
TIMESTAMP_TAG: Final = "\x00timestamp"
TAGS: Final = frozenset((MAP_TAG, STRUCT_TAG, TIME_TAG, DECIMAL_TAG, DATE_TAG, TIMESTAMP_TAG))
#: The limit of digits of any decimal. Java's JSON library reads no longer numbers, and Spark processes wide ones piece
#: by piece.
MAX_UNSCALED_DIGITS: Final = 1000
#: The bytes for any number of that many digits.
MAX_UNSCALED_BYTES: Final = 416
#: The number of shapes of objects that are cached.
MAX_SHAPES: Final = 4096
NULL_VALUE: Final = b"\x00"
#: The metadata of a variant without objects.
NO_KEYS: Final = b"\x01\x00\x00"
#: Spark refuses a larger variant, and a whole job with it.
MAX_BYTES: Final = 128 * 1024 * 1024
#: A level takes four bytes at least, so most values need no look at how deeply they are nested.
_SHALLOW_BYTES: Final = 4 * MAX_LEVELS
_MICROSECOND: Final = timedelta(microseconds=1)

_TRUE_BYTES: Final = bytes((TRUE << 2,))
_FALSE_BYTES: Final = bytes((FALSE << 2,))
_SHORT_HEADERS: Final = tuple(bytes((size << 2 | SHORT_STRING,)) for size in range(64))
_SMALL_INTS: Final = {number: struct.pack("<Bb", INT8 << 2, number) for number in range(-128, 128)}
_pack_int16: Final = struct.Struct("<Bh").pack
_pack_int32: Final = struct.Struct("<Bi").pack
_pack_int64: Final = struct.Struct("<Bq").pack
_pack_double: Final = struct.Struct("<Bd").pack
_pack_size: Final = struct.Struct("<BI").pack

Keys = dict[str, int]


# --------------------------------------------------------------------------------------------------------- writing
def encode(value: object) -> tuple[bytes, bytes]:
    """The value and metadata binaries of a schemaless value.

    Raises:
        DataException: the value, or a part of it, is nothing Connect knows.
    """
    if type(value) is dict:
        shape = _SHAPES.get(tuple(value)) or _learn_shape(tuple(value))
        if shape is not None:
            flat = shape.encode(value)
            if flat is not None:
                return flat, shape.metadata
    else:
        scalar = _SCALARS.get(type(value))
        if scalar is not None:
            return scalar(value), NO_KEYS
    keys: Keys = {}
    data = _write(value, keys)
    if len(data) > MAX_BYTES:
        raise DataException(f"A schemaless value of {len(data)} bytes is larger than a variant may be ({MAX_BYTES})")
    if len(data) > _SHALLOW_BYTES and is_deep(value):
        raise value_too_deep()
    return data, _metadata(tuple(keys))


def encode_typed(value: object, schema: Schema | None) -> tuple[bytes, bytes]:
    """The binaries of a value whose schema is kept separately: a Struct becomes a plain object of its fields."""
    return encode(value if schema is None else _lower(value))


def _lower(value: object) -> object:
    if isinstance(value, Struct):
        names = (field.name for field in value.schema.fields)
        return {name: _lower(item) for name, item in zip(names, value.values, strict=True)}
    if isinstance(value, list):
        return [_lower(item) for item in value]
    if isinstance(value, dict):
        return {key: _lower(item) for key, item in value.items()}
    return value


class _Shape:
    """The common part of dicts with the same string keys in the same order."""

    __slots__ = ("_heads", "_sorted", "metadata")

    def __init__(self, keys: tuple[str, ...]) -> None:
        ids = {key: index for index, key in enumerate(keys)}
        self._sorted = [ids[key] for key in sort_keys(keys)]
        self.metadata = _metadata(keys)
        self._heads: dict[int, bytes] = {}

    def encode(self, value: dict[str, object]) -> bytes | None:
        """Returns the binary of a dict of scalars, None if a value is no scalar."""
        try:
            parts = [_SCALARS[type(item)](item) for item in value.values()]
        except KeyError:
            return None
        body = b"".join(parts)
        size = _width(len(body))
        head = self._heads.get(size)
        if head is None:
            head = self._heads[size] = _object_head(self._sorted, size)
        return head + _integers(_offsets(parts, self._sorted), size) + body


_SHAPES: Final[dict[tuple[object, ...], _Shape]] = {}


def _learn_shape(keys: tuple[object, ...]) -> _Shape | None:
    if not all(type(key) is str for key in keys) or (len(keys) == 1 and keys[0] in TAGS) or len(keys) > 1000:
        return None
    if len(_SHAPES) >= MAX_SHAPES:
        _SHAPES.clear()
    shape = _Shape(cast("tuple[str, ...]", keys))
    _SHAPES[keys] = shape
    return shape


def sort_keys(keys: Iterable[str]) -> list[str]:
    """The keys in the order of Java's String.compareTo (by UTF-16 units), which Spark searches by."""
    found = list(keys)
    if all(map(str.isascii, found)):
        return sorted(found)
    return sorted(found, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def _text(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        # A lone surrogate: kept as the three bytes it would have, so that it comes back.
        return value.encode("utf-8", "surrogatepass")


def _write_string(value: str) -> bytes:
    data = _text(value)
    size = len(data)
    return _SHORT_HEADERS[size] + data if size < 64 else _pack_size(STRING << 2, size) + data


def _write_int(value: int) -> bytes:
    small = _SMALL_INTS.get(value)
    if small is not None:
        return small
    if -0x8000 <= value < 0x8000:
        return _pack_int16(INT16 << 2, value)
    if -0x80000000 <= value < 0x80000000:
        return _pack_int32(INT32 << 2, value)
    if -(1 << 63) <= value < 1 << 63:
        return _pack_int64(INT64 << 2, value)
    raise DataException(f"Schemaless integers are int64: {value} is out of range")


def _write_bytes(value: bytes | bytearray) -> bytes:
    return _pack_size(BINARY << 2, len(value)) + value


def _write_far(value: FarMoment, keys: Keys) -> bytes:
    if isinstance(value, FarDate):
        return _pack_int32(DATE << 2, value)
    if isinstance(value, FarTime):
        return _write_tagged(TIME_TAG, int(value), keys)
    micros = int(value) * 1000
    if -(1 << 63) <= micros < 1 << 63:
        return _pack_int64(TIMESTAMP << 2, micros)
    return _write_tagged(TIMESTAMP_TAG, [int(value)], keys)


def _micros(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MICROSECOND


_SCALARS: Final[Mapping[type, Callable[..., bytes]]] = {
    str: _write_string,
    int: _write_int,
    float: lambda value: _pack_double(DOUBLE << 2, value),
    bool: lambda value: _TRUE_BYTES if value else _FALSE_BYTES,
    type(None): lambda _: NULL_VALUE,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    memoryview: lambda value: _write_bytes(value.tobytes()),
    datetime: lambda value: _pack_int64(TIMESTAMP << 2, _micros(value)),
    date: lambda value: _pack_int32(DATE << 2, days_of_date(value)),
}


def _write(value: object, keys: Keys, *, looked: bool = False) -> bytes:
    """The binary of a value; ``looked``: it is in an array that hides nothing, or whose hidden values are tagged."""
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar(value)
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and not (len(value) == 1 and next(iter(value)) in TAGS):
            return _write_object(cast("dict[str, object]", value), keys, looked=looked)
        return _write_tagged(MAP_TAG, [[key, item] for key, item in value.items()], keys)
    if isinstance(value, (list, tuple)):
        parts = []
        # An array's kind hides a decimal, date or timestamp if values of other kinds stand in the same place.
        if not looked and _holds_foreign(value) and _is_mixed(value):
            value = cast("list[object]", _tagged(value))
        for item in value:  # a comprehension would be one more call for each level of nesting
            parts.append(_write(item, keys, looked=True))
        return _write_array(parts)
    if isinstance(value, decimal.Decimal):
        return _write_decimal(value, keys)
    if isinstance(value, Struct):
        return _write_tagged(STRUCT_TAG, [_pack_schema(value.schema), value.values], keys)
    if isinstance(value, time):
        return _write_tagged(TIME_TAG, millis_of_time(value), keys)
    if isinstance(value, FarMoment):
        return _write_far(value, keys)
    if isinstance(value, _Tagged):
        return _write_tagged(value.tag, value.content, keys)
    for base in (bool, int, float, str, bytes, datetime, date):
        if isinstance(value, base):
            return _SCALARS[base](value)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    raise DataException(f"A value of the Python class {name} is nothing that schemaless Connect data can hold")


@dataclass(frozen=True, slots=True)
class _Tagged:
    """A value that is written as a tagged object although it has a kind of its own."""

    tag: str
    content: object


#: Kinds of items that need no check in an array: they hide nothing.
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_FOREIGN: Final = frozenset((decimal.Decimal, date, datetime, FarDate, FarTimestamp))
_CONTAINERS: Final = (dict, list, tuple)


def _holds_foreign(items: list[object] | tuple[object, ...]) -> bool:
    todo: list[Iterable[object]] = [items]
    seen: set[int] = set()
    while todo:
        container = todo.pop()
        if id(container) in seen:
            continue  # perhaps it holds itself, which is for the writer to refuse
        seen.add(id(container))
        inside = list(container.values() if isinstance(container, dict) else container)
        kinds = set(map(type, inside))
        if not kinds.isdisjoint(_FOREIGN):
            return True
        if not kinds <= _PLAIN:
            todo += [one for one in inside if isinstance(one, _CONTAINERS)]
    return False


def _is_mixed(items: object) -> bool:
    found: dict[tuple[str | None, ...], set[type]] = {}
    todo: list[tuple[tuple[str | None, ...], object]] = [((), items)]
    while todo:
        place, value = todo.pop()
        if len(place) > MAX_LEVELS:
            return True  # too deep anyway
        if isinstance(value, dict):
            # Maps with other keys are tagged as a whole: there the names do not matter.
            todo += [((*place, str(key)), item) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            todo += [((*place, None), item) for item in value]
        if value is not None:
            found.setdefault(place, set()).add(type(value))
    return any(len(kinds) > 1 for kinds in found.values())


def _tagged(value: object) -> object:
    """A copy of an array, or of a part of one, with its decimals, dates and timestamps tagged."""
    if isinstance(value, decimal.Decimal):
        unscaled, scale = unscale(value)
        return _Tagged(DECIMAL_TAG, [unscaled_bytes(unscaled), scale])
    if isinstance(value, datetime):
        return _Tagged(TIMESTAMP_TAG, _micros(value))
    if isinstance(value, date):
        return _Tagged(DATE_TAG, days_of_date(value))
    if isinstance(value, FarDate):
        return _Tagged(DATE_TAG, int(value))
    if isinstance(value, FarTimestamp):
        return _Tagged(TIMESTAMP_TAG, [int(value)])
    if isinstance(value, dict):
        return {key: _tagged(item) for key, item in value.items()}
    return [_tagged(item) for item in value] if isinstance(value, (list, tuple)) else value


def _write_object(value: dict[str, object], keys: Keys, *, looked: bool) -> bytes:
    ids = {key: keys.setdefault(key, len(keys)) for key in value}
    parts = []
    for item in value.values():  # as in ``_write``
        parts.append(_write(item, keys, looked=looked))
    positions = {key: position for position, key in enumerate(value)}
    order = sort_keys(value)
    body = b"".join(parts)
    size = _width(len(body))
    head = _object_head([ids[key] for key in order], size)
    return head + _integers(_offsets(parts, [positions[key] for key in order]), size) + body


def _offsets(parts: list[bytes], order: list[int]) -> list[int]:
    """Return where each part starts, in the order of the sorted keys, and the end of the last.

    The data itself stays in the order of the dict, as Spark writes it: that is how a reader gets the order back.
    """
    starts = list(accumulate(map(len, parts), initial=0))
    return [*[starts[position] for position in order], starts[-1]]


def _write_tagged(tag: str, content: object, keys: Keys) -> bytes:
    key = keys.setdefault(tag, len(keys))
    body = _write(content, keys)
    size = _width(len(body))
    return _object_head([key], size) + _integers((0, len(body)), size) + body


def _write_array(parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    size = _width(len(body))
    large = len(parts) > 0xFF
    head = bytes((large << 4 | (size - 1) << 2 | ARRAY,)) + len(parts).to_bytes(4 if large else 1, "little")
    return head + _integers(accumulate(map(len, parts), initial=0), size) + body


def _write_decimal(value: decimal.Decimal, keys: Keys) -> bytes:
    unscaled, scale = unscale(value)
    digits = len(str(abs(unscaled)))
    if not 0 <= scale <= 38 or digits > 38:
        return _write_tagged(DECIMAL_TAG, [unscaled_bytes(unscaled), scale], keys)
    for kind, width, limit in ((DECIMAL4, 4, 9), (DECIMAL8, 8, 18)):
        if digits <= limit and scale <= limit:
            return bytes((kind << 2, scale)) + unscaled.to_bytes(width, "little", signed=True)
    return bytes((DECIMAL16 << 2, scale)) + unscaled.to_bytes(16, "little", signed=True)


def unscale(value: decimal.Decimal) -> tuple[int, int]:
    """The digits of a decimal as one integer, and its scale.

    Raises:
        DataException: it is NaN or infinite, which Java's BigDecimal cannot be, or too long for a batch.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataException(f"A decimal of Connect is a number, not {value}")
    if len(digits) > MAX_UNSCALED_DIGITS:
        raise DataException(f"A decimal of {len(digits)} digits is too long: {MAX_UNSCALED_DIGITS} is the limit.")
    magnitude = int("".join(map(str, digits)) or "0")
    return -magnitude if sign else magnitude, -exponent


def unscaled_bytes(unscaled: int) -> bytes:
    """The shortest two's complement big-endian bytes, as Java's BigInteger.toByteArray."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _width(largest: int) -> int:
    return 1 if largest < 0x100 else 2 if largest < 0x10000 else 3 if largest < 0x1000000 else 4


def _integers(numbers: Iterable[int], size: int) -> bytes:
    if size == 1:
        return bytes(numbers)
    found = list(numbers)
    if size == 3:
        return b"".join(number.to_bytes(3, "little") for number in found)
    return struct.pack(f"<{len(found)}{'H' if size == 2 else 'I'}", *found)


def _object_head(ids: list[int], offset_size: int) -> bytes:
    large = len(ids) > 0xFF
    id_size = _width(max(ids, default=0))
    header = large << 6 | (id_size - 1) << 4 | (offset_size - 1) << 2 | OBJECT
    return bytes((header,)) + len(ids).to_bytes(4 if large else 1, "little") + _integers(ids, id_size)


@lru_cache(maxsize=MAX_SHAPES)
def _metadata(keys: tuple[str, ...]) -> bytes:
    texts = [_text(key) for key in keys]
    body = b"".join(texts)
    size = _width(max(len(body), len(texts)))
    head = bytes((1 | (size - 1) << 6,)) + len(texts).to_bytes(size, "little")
    return head + _integers(accumulate(map(len, texts), initial=0), size) + body


def _pack_schema(schema: Schema) -> dict[str, object]:
    packed: dict[str, object] = {"type": schema.type.value, "optional": schema.optional, "default": schema.default}
    packed |= {"name": schema.name, "version": schema.version, "doc": schema.doc}
    packed["parameters"] = None if schema.parameters is None else dict(schema.parameters)
    if schema.type is Type.STRUCT:
        packed["fields"] = [[field.name, _pack_schema(field.schema)] for field in schema.fields]
    if schema.type is Type.MAP:
        packed["keys"] = None if schema.key_schema is None else _pack_schema(schema.key_schema)
    if schema.type in (Type.MAP, Type.ARRAY):
        packed["values"] = None if schema.value_schema is None else _pack_schema(schema.value_schema)
    return packed


# --------------------------------------------------------------------------------------------------------- reading
_unpack_int16: Final = struct.Struct("<h").unpack_from
_unpack_int32: Final = struct.Struct("<i").unpack_from
_unpack_int64: Final = struct.Struct("<q").unpack_from
_unpack_double: Final = struct.Struct("<d").unpack_from


def rescaled(unscaled: int, scale: int) -> decimal.Decimal:
    """The decimal of an unscaled integer and a scale, exactly."""
    return decimal.Decimal(f"{unscaled}E{-scale}")


def decode(value: bytes, metadata: bytes) -> object:
    """Returns the Python value of a variant's two binaries; the keys of an object come in the order of their data.

    Raises:
        DataException: the bytes are no variant.
    """
    try:
        return _read(value, 0, metadata)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DataException("Malformed variant") from error


def decode_typed(value: bytes, metadata: bytes, schema: Schema | None) -> object:
    """Returns the value written by ``encode_typed`` (or computed by Spark) for a schema; raises as ``decode`` does."""
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
#: (metadata, head of an object) -> its names, each with its position among the offsets, in the order of the ids (mostly
#: that of the data).
_FIELDS: Final[dict[tuple[bytes, bytes], _Fields]] = {}


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
