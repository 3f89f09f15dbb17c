"""Schemaless values in a column: Python values into the VARIANT binary format of Spark and Parquet.

Main functions: ``encode`` (one value, its two binaries) and ``encode_typed`` (a value whose schema is kept elsewhere:
headers, small groups); ``reading`` is the way back. A variant is a value binary and a metadata binary; the
metadata is the dictionary of all object keys.

What VARIANT cannot say is written as a *tagged object*: an object of one key, that key being one of ``TAGS``. A dict of
the user's that looks like one is itself written as a tagged map, so a tag cannot clash:

================= ========================================================================================
``MAP_TAG``       a map with a key that is no string: array of ``[key, value]`` arrays
``STRUCT_TAG``    a Struct inside of schemaless data: ``[schema object, array of field values]``
``TIME_TAG``      a time of day: milliseconds
``DECIMAL_TAG``   a decimal outside of 38 digits, or with a scale outside of 0..38: ``[unscaled binary, scale]``
``DATE_TAG``      a date beside values of another kind in an array: its days since 1970
``TIMESTAMP_TAG`` a timestamp beside such values: microseconds since 1970
================= ========================================================================================

Spark derives the kind of an array from the common type of its items, which hides dates or decimals among others: there
decimals are tagged, too.

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

from penstock.data import FarDate, FarMoment, FarTime, FarTimestamp, Schema, Struct, Type
from penstock.data.variant_format import (
    ARRAY,
    BINARY,
    DATE,
    DECIMAL4,
    DECIMAL8,
    DECIMAL16,
    DOUBLE,
    FALSE,
    INT8,
    INT16,
    INT32,
    INT64,
    MAP_TAG,
    OBJECT,
    SHORT_STRING,
    STRING,
    TIMESTAMP,
    TRUE,
)
from penstock.errors import DataException
from penstock.pipeline.columns.sizes import MAX_LEVELS, is_deep, value_too_deep
from penstock.pipeline.columns.temporal import EPOCH, millis_of_time
from penstock.pipeline.columns.variant.reading import (
    DATE_TAG,
    DECIMAL_TAG,
    MAX_SHAPES,
    MAX_UNSCALED_DIGITS,
    STRUCT_TAG,
    TAGS,
    TIME_TAG,
    TIMESTAMP_TAG,
)

NULL_VALUE: Final = b"\x00"
NO_KEYS: Final = b"\x01\x00\x00"
"""The metadata of a variant without objects."""

MAX_BYTES: Final = 128 * 1024 * 1024
"""Spark refuses a larger variant, and a whole job with it."""

#: A level takes four bytes at least, so most values need no look at how deeply they are nested.
_SHALLOW_BYTES: Final = 4 * MAX_LEVELS
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
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
    """Return the value and metadata binaries of a schemaless value.

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
    """Returns the binaries of a value whose schema is kept separately: a Struct becomes a plain object of its fields.

    Raises:
        DataException: the value, or a part of it, is nothing Connect knows.
    """
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
    """The common part of dicts with the same string keys in the same order: metadata, positions, object headers."""

    __slots__ = ("_heads", "_sorted", "metadata")

    def __init__(self, keys: tuple[str, ...]) -> None:
        ids = {key: index for index, key in enumerate(keys)}
        self._sorted = [ids[key] for key in sort_keys(keys)]
        self.metadata = _metadata(keys)
        self._heads: dict[int, bytes] = {}

    def encode(self, value: dict[str, object]) -> bytes | None:
        """Return the binary of a dict of scalars, None when a value is no scalar."""
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
    """Return the keys in the order of Java's String.compareTo (by UTF-16 units), which Spark searches by."""
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


def _write_date(value: date) -> bytes:
    return _pack_int32(DATE << 2, value.toordinal() - _EPOCH_DAY)


def _write_datetime(value: datetime) -> bytes:
    return _pack_int64(TIMESTAMP << 2, _micros(value))


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
    datetime: _write_datetime,
    date: _write_date,
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
        if not looked and _hides(value):
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


def _hides(items: list[object] | tuple[object, ...]) -> bool:
    """True if an array's kind hides a decimal, date or timestamp: values of other kinds stand in the same place."""
    return _holds_foreign(items) and _is_mixed(items)


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
        return _Tagged(DATE_TAG, value.toordinal() - _EPOCH_DAY)
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
    return _write_object_of_parts(keys.setdefault(tag, len(keys)), _write(content, keys))


def _write_object_of_parts(key: int, body: bytes) -> bytes:
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
    """Return the digits of a decimal as one integer, and its scale.

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
    """Return the shortest two's complement big-endian bytes, as Java's BigInteger.toByteArray."""
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


# ------------------------------------------------------------------------------------- schemas inside schemaless data
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
