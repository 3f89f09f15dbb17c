"""Types of a table's columns, schema evolution, and casts of values to the columns of a table.

Main functions: ``stored`` and ``columns_for``, ``evolved``, ``fitted``. Pure; any thread. Needs PyArrow.

Source: Apache Iceberg's specification, "Schema Evolution"; Delta Lake's protocol, "Schema Serialization Format".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_list, is_text
from penstock.errors import DataException
from penstock.files.widening import inferred, widened

_DIGITS: Final = 38
_TIME: Final = pa.time64("us")


@dataclass(frozen=True, slots=True)
class Kinds:
    """The supported types of a format.

    Attributes:
        small_integers: True if it has integers of 8 and 16 bits.
        time: The type of times of the day.
        widens: True if columns can be widened.
        is_in_paths: True if the library names directories by the values of partitions, however long they are.
    """

    small_integers: bool
    time: pa.DataType
    widens: bool
    is_in_paths: bool


DELTA: Final = Kinds(True, pa.int32(), False, True)
ICEBERG: Final = Kinds(False, _TIME, True, False)


def stored(kind: pa.DataType, kinds: Kinds) -> pa.DataType | None:
    """The type of a column for values of a type; None if values do not determine it.

    >>> stored(pa.timestamp("ms", "UTC"), ICEBERG), stored(pa.int16(), ICEBERG), stored(pa.null(), DELTA)
    (TimestampType(timestamp[us, tz=UTC]), DataType(int32), None)
    """
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        fields = [(one.name, stored(one.type, kinds)) for one in kind]
        there = [pa.field(name, found) for name, found in fields if found is not None]
        return pa.struct(there) if there else None
    if is_list(kind):
        found = stored(kind.value_type, kinds)
        return None if found is None else pa.list_(pa.field("element", found))
    if pa.types.is_map(kind):
        found = stored(kind.item_type, kinds)
        return None if found is None else pa.map_(stored(kind.key_type, kinds), found)
    return _plain(kind, kinds)


def _plain(kind: pa.DataType, kinds: Kinds) -> pa.DataType:
    if is_text(kind):
        return pa.string()
    if pa.types.is_integer(kind):
        if kinds.small_integers or kind.bit_width > 32:
            return kind
        return pa.int32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision, _DIGITS), min(kind.scale, _DIGITS))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_time(kind):
        return kinds.time
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def columns_for(schema: pa.Schema, kinds: Kinds) -> pa.Schema:
    """The columns of a table for rows of a schema, without columns that have no value."""
    found = [(one, stored(one.type, kinds)) for one in schema]
    return pa.schema([pa.field(one.name, kind, one.nullable) for one, kind in found if kind is not None])


def evolved(table: pa.Schema, given: pa.Schema, kinds: Kinds, *, exists: bool) -> pa.Schema:
    """The columns of a table after it is extended for rows of another schema, as far as the format allows that.

    Columns are added, widened, and made optional if rows lack them; none is removed or narrowed.

    Args:
        table: The existing columns.
        given: The columns of rows, from ``columns_for``.
        kinds: The types of the format.
        exists: False if the table does not exist yet, so that a column can have any type.
    """
    fields = []
    for one in table:
        index = given.get_field_index(one.name)
        if index < 0:
            fields.append(one.with_nullable(True))
            continue
        other = given.field(index)
        kind = _wider(one.type, other.type, kinds) if exists else _any(one.type, other.type, kinds)
        fields.append(pa.field(one.name, kind, one.nullable or other.nullable))
    there = set(table.names)
    # A new column is null in existing rows.
    fields += [one.with_nullable(True) if exists else one for one in given if one.name not in there]
    return pa.schema(fields)


def _any(one: pa.DataType, other: pa.DataType, kinds: Kinds) -> pa.DataType:
    return stored(widened(one, other), kinds) or one


def _wider(one: pa.DataType, other: pa.DataType, kinds: Kinds) -> pa.DataType:
    """The type of an existing column after widening; the same type if it cannot be widened."""
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = []
        for field in one:
            index = other.get_field_index(field.name)
            kind = field.type if index < 0 else _wider(field.type, other.field(index).type, kinds)
            fields.append(pa.field(field.name, kind, field.nullable))
        there = set(one.names)
        more = [pa.field(field.name, field.type) for field in other if field.name not in there]
        return pa.struct([*fields, *more]) if more or fields != list(one) else one
    if is_list(one) and is_list(other):
        kind = _wider(one.value_type, other.value_type, kinds)
        return one if kind == one.value_type else pa.list_(pa.field("element", kind))
    if pa.types.is_map(one) and pa.types.is_map(other):
        kind = _wider(one.item_type, other.item_type, kinds)
        return one if kind == one.item_type else pa.map_(one.key_type, kind)
    if not kinds.widens:
        return one
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if one == pa.float32() and other == pa.float64():
        return other
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return max(one, other, key=lambda kind: kind.precision)
    return one


def fitted(array: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Casts values to the type of a column.

    Numbers are cast if nothing is lost; integers are rounded to floats; text is parsed as a number, date or time, and
    in a column of text everything else is JSON. An integer is milliseconds of a timestamp or time, and days of a date.

    Args:
        array: The values.
        wanted: The type.
        name: The column, for messages.

    Raises:
        DataException: A value does not fit.
    """
    try:
        return _fitted(array, wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError) as error:
        text = " ".join(str(error).split())
        raise DataException(
            f'A value of the field "{name}", {array.type}, does not fit the column, which is {wanted}: {text}'
        ) from error


def _fitted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    given = array.type
    if given == wanted:
        return array
    if pa.types.is_null(given):
        return pa.nulls(len(array), wanted)
    if pa.types.is_nested(wanted) or pa.types.is_nested(given):
        return _nested(array, wanted)
    if is_text(wanted):
        return array.cast(wanted) if is_text(given) else inferred(array.to_pylist(), wanted)
    if is_text(given):
        return _parsed(array, wanted)
    if pa.types.is_floating(wanted):
        found = array.cast(wanted, safe=False)
        if pa.types.is_floating(given) and pc.any(pc.and_(pc.is_inf(found), pc.is_finite(array))).as_py():
            raise ValueError("a number is too large")
        return found
    if pa.types.is_integer(given) and pa.types.is_timestamp(wanted):
        return array.cast(pa.int64()).cast(pa.timestamp("ms", wanted.tz)).cast(wanted)
    if pa.types.is_integer(given) and pa.types.is_time(wanted):
        return array.cast(pa.int32()).cast(pa.time32("ms")).cast(wanted)
    if pa.types.is_integer(given) and pa.types.is_date(wanted):
        return array.cast(pa.int32()).cast(wanted)
    if pa.types.is_boolean(given) != pa.types.is_boolean(wanted):
        raise TypeError(f"{given} is no {wanted}")
    if pa.types.is_time(given) and pa.types.is_integer(wanted):
        return array.cast(pa.time32("ms"), safe=False).cast(pa.int32()).cast(wanted)
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return array.cast(wanted, safe=False)
    if pa.types.is_decimal(wanted) and pa.types.is_floating(given):
        return array.cast(pa.string()).cast(wanted)
    return array.cast(wanted)


def _nested(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    given = array.type
    if pa.types.is_struct(wanted) and pa.types.is_struct(given):
        members = [
            _fitted(pc.struct_field(array, [index]), one.type)
            if (index := given.get_field_index(one.name)) >= 0
            else pa.nulls(len(array), one.type)
            for one in wanted
        ]
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=array.is_null())
    if is_list(wanted) and is_list(given):
        flat = (
            array
            if array.offset == 0 and pa.types.is_list(given)
            else pa.concat_arrays([array]).cast(pa.list_(given.value_type))
        )
        return pa.ListArray.from_arrays(
            flat.offsets, _fitted(flat.values, wanted.value_type), type=wanted, mask=_mask(flat)
        )
    if pa.types.is_map(wanted) and pa.types.is_map(given):
        flat = pa.concat_arrays([array]) if array.offset else array
        return pa.MapArray.from_arrays(
            flat.offsets,
            _fitted(flat.keys, wanted.key_type),
            _fitted(flat.items, wanted.item_type),
            type=wanted,
            mask=_mask(flat),
        )
    if is_text(wanted):
        return inferred(array.to_pylist(maps_as_pydicts="lossy"), wanted)
    if pa.types.is_map(wanted) and pa.types.is_struct(given):
        # An object of JSON is a map if the table says so; a missing field is no entry.
        rows = [
            None if row is None else [one for one in row.items() if one[1] is not None] for row in array.to_pylist()
        ]
        return pa.array(rows, wanted)
    raise TypeError(f"{given} is no {wanted}")


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _parsed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(wanted) and wanted.tz:
        try:
            return array.cast(wanted)
        except pa.ArrowInvalid:
            return array.cast(pa.timestamp(wanted.unit)).cast(wanted)
    if pa.types.is_binary(wanted) or not pa.types.is_nested(wanted):
        return array.cast(wanted)
    raise TypeError(f"text is no {wanted}")
