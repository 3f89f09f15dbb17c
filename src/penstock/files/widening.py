"""Types that only widen: one Arrow type that holds the values of two, and columns cast to it.

Main functions: ``widened``, ``conform``, and ``inferred`` for Python objects. Pure; any thread.

Source: Penstock's own.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_list, is_text

_MOST: Final = 76


def widened(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds the values of both; text, which then holds JSON, where no other does.

    >>> widened(pa.struct([("a", pa.int64())]), pa.struct([("a", pa.float64()), ("b", pa.string())]))
    StructType(struct<a: double, b: string>)
    >>> widened(pa.int64(), pa.string())
    DataType(string)
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _structs(one, other)
    if is_list(one) and is_list(other):
        return pa.list_(widened(one.value_type, other.value_type))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        return pa.map_(one.key_type, widened(one.item_type, other.item_type))
    if _is_number(one) and _is_number(other):
        return _numbers(one, other)
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and one.tz == other.tz:
        return max(one, other, key=lambda kind: ("s", "ms", "us", "ns").index(kind.unit))
    return pa.string()


def merged(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The columns of both, each wide enough for both."""
    if one.equals(other):
        return one
    return pa.schema(list(_structs(pa.struct(list(one)), pa.struct(list(other)))))


def conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values in a type that ``widened`` gave."""
    given = array.type
    if given == wanted:
        return array
    if pa.types.is_null(given):
        return pa.nulls(len(array), wanted)
    if pa.types.is_struct(wanted) and pa.types.is_struct(given):
        if array.offset:
            array = pa.concat_arrays([array])
        members = [
            conform(pc.struct_field(array, [index]), one.type)
            if (index := given.get_field_index(one.name)) >= 0
            else pa.nulls(len(array), one.type)
            for one in wanted
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=mask)
    if (is_text(wanted) and not is_text(given)) or pa.types.is_nested(given):
        return inferred(array.to_pylist(maps_as_pydicts="lossy"), wanted)
    # Integers of more digits than a float has are rounded.
    return array.cast(wanted, safe=not pa.types.is_floating(wanted))


def inferred(values: Sequence[object], wanted: pa.DataType | None = None) -> pa.Array:
    """Converts Python objects, as parsed from JSON, to a column.

    Args:
        wanted: Its type; None: one that holds all of them.

    >>> inferred([{"a": 1}, {"a": 2.5, "b": [True]}]).type
    StructType(struct<a: double, b: list<item: bool>>)
    >>> inferred([1, "x"]).to_pylist()
    ['1', 'x']
    """
    kind = _type_of(values) if wanted is None else wanted
    return pa.array([_shaped(value, kind) for value in values], kind)


def json_text(value: object) -> str:
    """A value as JSON; bytes as base64."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _structs(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    fields = []
    for field in one:
        index = other.get_field_index(field.name)
        kind = field.type if index < 0 else widened(field.type, other.field(index).type)
        fields.append(pa.field(field.name, kind))
    names = {field.name for field in one}
    return pa.struct([*fields, *(pa.field(field.name, field.type) for field in other if field.name not in names)])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return pa.float32() if one == other == pa.float32() else pa.float64()
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    digits = [(19, 0) if pa.types.is_integer(kind) else (kind.precision, kind.scale) for kind in (one, other)]
    scale = max(places for _, places in digits)
    whole = max(precision - places for precision, places in digits)
    if whole + scale <= 38:
        return pa.decimal128(38, scale)
    return pa.decimal256(_MOST, min(scale, _MOST)) if whole + scale <= _MOST else pa.string()


def _type_of(values: Sequence[object]) -> pa.DataType:
    found = pa.null()
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        members: dict[str, list[object]] = {}
        for one in objects:
            for name, value in one.items():
                members.setdefault(str(name), []).append(value)
        found = pa.struct([(name, _type_of(items)) for name, items in members.items()])
    lists = [value for value in values if isinstance(value, (list, tuple))]
    if lists:
        found = widened(found, pa.list_(_type_of([item for one in lists for item in one])))
    for kind in {type(value) for value in values} - {dict, list, tuple, type(None)}:
        found = widened(found, _plain_type(kind, [value for value in values if type(value) is kind]))
    return found


def _plain_type(kind: type, values: Sequence[Any]) -> pa.DataType:
    if kind is int:
        return pa.int64() if all(-(1 << 63) <= value < 1 << 63 for value in values) else pa.string()
    if kind is Decimal:
        try:
            found = pa.array(values).type
        except (pa.ArrowException, ValueError):
            return pa.string()
        return pa.decimal128(38, found.scale) if found.precision <= 38 else found
    plain = {bool: pa.bool_(), float: pa.float64(), str: pa.string(), bytes: pa.binary(), datetime.date: pa.date32()}
    if kind is datetime.datetime:
        return pa.timestamp("ms", "UTC")
    return plain.get(kind, pa.string())


def _shaped(value: Any, kind: pa.DataType) -> Any:
    """A value as ``pa.array`` takes it for a type."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {one.name: _shaped(value.get(one.name), one.type) for one in kind}
    if is_list(kind) and isinstance(value, (list, tuple)):
        return [_shaped(item, kind.value_type) for item in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(key, _shaped(item, kind.item_type)) for key, item in value.items()]
    if is_text(kind) and not isinstance(value, str):
        return json_text(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return value


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)
