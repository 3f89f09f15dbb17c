"""Fields of the values or keys of a frame: as typed columns (``fields_of``), their presence, and Python objects.

A schemaless column of objects is a struct of all their known fields. Such a column cannot express that an object lacks
a field (rather than having null there), or that a number is whole when the column holds doubles. *Marks* express both.
They are a second array with the same rows and the same nesting:

=================== =======================================================
column              marks
=================== =======================================================
struct              ``struct<mark uint8, fields struct<marks of each field>>``
list                ``struct<mark uint8, items list<marks of the items>>``
any other           ``uint8``
=================== =======================================================

A mark is null or 0 (the column is right as it is), ``ABSENT`` or ``WHOLE``. The worker makes these columns; values
without a type in common are Spark VARIANT (``variant_fields``). The module needs PyArrow: it is imported only when a
task uses fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_variant, one_array
from penstock.api.frames.variant_fields import Variants
from penstock.data.variant_format import MAP_TAG
from penstock.errors import DataException

#: The Arrow type of each field; None: the type of its schema, or of the values found.
FieldTypes: TypeAlias = "Mapping[str, pa.DataType | None]"
#: Returns the values of a VARIANT column.
ReadVariants = Callable[["pa.Array"], Sequence[object]]
#: The object does not have the field.
ABSENT: Final = 1
#: A whole number in a column of doubles.
WHOLE: Final = 2
_MARK: Final = pa.uint8()
_NOTHING: Final = object()
_MAX_DIGITS: Final = 38
_MOST_DIGITS: Final = 76


def fields_of(
    column: pa.ChunkedArray,
    names: Sequence[str | Sequence[str] | FieldTypes],
    place: Callable[[int], str],
    *,
    may_lack: bool = False,
) -> pa.Table:
    """Returns columns of fields; see ``SinkFrame.fields``.

    Args:
        column: The values.
        names: The fields and their requested types.
        place: Names the message of a row, for errors.
        may_lack: True if a field that no value has is null, as without a schema; False if it is an error.
    """

    wanted: dict[str, pa.DataType | None] = {}
    for one in names:
        wanted.update(one if isinstance(one, Mapping) else dict.fromkeys([one] if isinstance(one, str) else one))
    reader = _Reader(place, may_lack=may_lack)
    found = {name: reader.field(column, name, kind) for name, kind in wanted.items()}
    return pa.table(found)


def split_path(path: str) -> list[str]:
    """Splits a path into steps; a step in backticks may contain dots.

    >>> split_path("a.`b.c`.d")
    ['a', 'b.c', 'd']

    Raises:
        ValueError: A backtick is not closed.
    """
    steps: list[str] = []
    rest = path
    while True:
        if rest.startswith("`"):
            end = rest.find("`", 1)
            if end < 0 or rest[end + 1 : end + 2] not in ("", "."):
                raise ValueError(
                    f"The backtick at the beginning of {rest!r} has no partner at the end of a step: {path!r}"
                )
            step, more, rest = rest[1:end], end + 1 < len(rest), rest[end + 2 :]
        else:
            step, dot, rest = rest.partition(".")
            more = bool(dot)
        steps.append(step)
        if not more:
            return steps


def present(column: pa.Array, marks: pa.Array | None, steps: Sequence[str]) -> pa.Array:
    """True where a value has the field that a path leads to, null or not. Without ``marks`` all are there."""
    there = column.is_valid()
    for number, step in enumerate(steps):
        if is_variant(column.type):
            return pc.and_(there, pa.array(_variants_of(column, steps[number:]).starts >= 0))
        index = column.type.get_field_index(step) if is_object(column.type) else -1
        if index < 0:
            return pa.array([False] * len(column), pa.bool_())
        there = pc.and_(there, column.is_valid())
        column, marks = _member(column, marks, index)
        if marks is not None:
            there = pc.and_(there, pc.not_equal(own_mark(marks).fill_null(0), ABSENT))
    return there


def field_names(column: pa.Array, marks: pa.Array | None) -> list[str]:
    """The names of the fields that at least one value has, in the order of the columns."""
    if is_variant(column.type):
        values = Variants.of(pa.chunked_array([column]))
        known = {name for one in values.dictionaries if one is not None for name in Variants.names_of(one)}
        return [name for name in sorted(known) if (values.step(name).starts >= 0).any()]
    names = column.type.names if is_object(column.type) else []
    return [name for name in names if pc.any(present(column, marks, [name])).as_py()]


def objects_at(column: pa.Array, marks: pa.Array | None, steps: Sequence[str]) -> list[object]:
    """Returns ``objects`` of the field at the end of a path; None for rows without it."""
    for number, step in enumerate(steps):
        if is_variant(column.type):
            return _plain(_variants_of(column, steps[number:]))
        index = column.type.get_field_index(step) if is_object(column.type) else -1
        if index < 0:
            return [None] * len(column)
        column, marks = _member(column, marks, index)
    return objects(column, marks)


def read_variants(column: pa.Array) -> Sequence[object]:
    """The values of a VARIANT column as Python objects; maps whose keys are not strings become dicts again."""
    return _plain(_variants_of(column, ()))


def objects(column: pa.Array, marks: pa.Array | None, variants: ReadVariants = read_variants) -> list[object]:
    """The values of a column as Python objects: a dict has exactly the fields that the object had.

    Without ``marks`` every object has all fields, and numbers have the type of the column. ``variants`` reads VARIANT
    columns.
    """
    return [None if one is _NOTHING else one for one in _objects(column, marks, variants)]


def marks_type(kind: pa.DataType) -> pa.DataType:
    """The type of the marks of a column."""
    if is_object(kind):
        fields = pa.struct([pa.field(one.name, marks_type(one.type)) for one in kind])
        return pa.struct([pa.field("mark", _MARK), pa.field("fields", fields)])
    if pa.types.is_list(kind):
        items = pa.list_(pa.field("element", marks_type(kind.value_type)))
        return pa.struct([pa.field("mark", _MARK), pa.field("items", items)])
    return _MARK


def is_object(kind: pa.DataType) -> bool:
    """True if a column of schemaless values holds objects as structs."""
    return bool(pa.types.is_struct(kind)) and not is_variant(kind)


def own_mark(marks: pa.Array) -> pa.Array:
    """The marks of the values themselves, without the marks of nested values."""
    return pc.struct_field(marks, [0]) if pa.types.is_struct(marks.type) else marks


class _Reader:
    """Reads fields of one frame; the arguments are as for ``fields_of``."""

    def __init__(self, place: Callable[[int], str], *, may_lack: bool) -> None:
        self._place = place
        self._may_lack = may_lack

    def field(self, column: pa.ChunkedArray, name: str, wanted: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
        """One field of all values."""
        steps = split_path(name)
        while steps:
            kind = column.type
            if pa.types.is_null(kind):
                return pa.nulls(len(column), wanted or pa.null())
            if is_variant(kind):
                break
            step = steps.pop(0)
            if pa.types.is_struct(kind) and not _is_unscaled(kind):
                if self._may_lack and kind.get_field_index(step) < 0:
                    return pa.nulls(len(column), wanted or pa.null())
                column = pc.struct_field(column, [_index_of(kind, step, name)])
            elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
                column = pc.map_lookup(column, step, "first")
            elif self._may_lack:
                return pa.nulls(len(column), wanted or pa.null())
            else:
                raise DataException(f'There is no field "{name}": what "{step}" should be in is of the type {kind}')
        if is_variant(column.type):
            values = Variants.of(column)
            for step in steps:
                values = values.step(step)
            return values.read(wanted, lambda array, kind, rows: self._cast(array, kind, rows, name), name)
        array = _with_decimals(one_array(column))
        return array if wanted is None else self._cast(array, wanted, np.arange(len(array)), name)

    def _cast(self, array: pa.Array, wanted: pa.DataType, rows: np.ndarray, name: str) -> pa.Array:
        """Casts the array to a type; raises DataException if a value does not fit."""
        if array.type == wanted:
            return array
        try:
            return self._fit(array, wanted)
        except (pa.ArrowException, ValueError) as error:
            first = self._first_misfit(array, wanted)
            path = ".".join(split_path(name))
            raise DataException(
                f'The field "{path}" is of the type {array.type} and does not fit {wanted} in the message of '
                f"{self._place(int(rows[first]))}: {error}"
            ) from error

    def _first_misfit(self, array: pa.Array, wanted: pa.DataType) -> int:
        """Finds the first item of an array that does not fit, by bisection."""
        first, count = 0, len(array)
        while count > 1:
            half = count // 2
            try:
                self._fit(array.slice(first, half), wanted)
            except (pa.ArrowException, ValueError):
                count = half
            else:
                first, count = first + half, count - half
        return first

    def _fit(self, array: pa.Array, wanted: pa.DataType) -> pa.Array:
        """Casts the array. Raises ``ValueError`` if the type never fits, Arrow's error if some values do not fit."""
        given = array.type
        if given.equals(wanted):
            return array
        if pa.types.is_null(given):
            return pa.nulls(len(array), wanted)
        if is_variant(given) and not is_variant(wanted):
            return Variants.of(pa.chunked_array([array])).read(wanted, lambda part, kind, _: self._fit(part, kind), "")
        if pa.types.is_struct(wanted) and pa.types.is_struct(given):
            return self._struct(array, wanted)
        if pa.types.is_list(wanted) and pa.types.is_list(given):
            return self._list(array, wanted)
        return _cast(array, wanted)

    def _struct(self, array: pa.Array, wanted: pa.DataType) -> pa.Array:
        """The fields of a struct by their names."""
        members = []
        for one in wanted:
            index = array.type.get_field_index(one.name)
            if index >= 0:
                members.append(self._fit(_with_decimals(pc.struct_field(array, [index])), one.type))
            elif self._may_lack:
                members.append(pa.nulls(len(array), one.type))
            else:
                raise ValueError(f'it has no field "{one.name}"')
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=mask)

    def _list(self, array: pa.Array, wanted: pa.DataType) -> pa.Array:
        counts = array.value_lengths().fill_null(0).to_numpy()
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(offsets, self._fit(array.flatten(), wanted.value_type), type=wanted, mask=mask)


def _index_of(kind: pa.DataType, step: str, name: str) -> int:
    index = int(kind.get_field_index(step))
    if index < 0:
        there = ", ".join(f'"{one.name}"' for one in kind) or "none"
        raise DataException(f'There is no field "{step}" for "{name}"; the fields are {there}')
    return index


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Casts the array. Raises ``ValueError`` if the type never fits, Arrow's error if some values do not fit."""
    given = array.type
    if is_variant(given) or _kind(given) != _kind(wanted):
        if pa.types.is_timestamp(wanted) and pa.types.is_integer(given):
            return array.cast(pa.timestamp("ms", wanted.tz)).cast(wanted)
        raise ValueError("values of the one are none of the other")
    if pa.types.is_floating(given) and pa.types.is_decimal(wanted):
        found = array.cast(wanted)
        if not pc.all(pc.equal(found.cast(given), array), min_count=0).as_py():
            raise ValueError("digits would be lost")
        return found
    if pa.types.is_integer(given) and pa.types.is_decimal(wanted):
        # Arrow demands that the type holds every integer, whatever the values are.
        array = array.cast(pa.decimal256(_MOST_DIGITS, wanted.scale))
    return array.cast(wanted)


def _kind(kind: pa.DataType) -> object:
    """The kind of a type: values of one kind may be cast to each other's types."""

    types: Any = pa.types
    kinds: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
        (types.is_integer, types.is_floating, types.is_decimal),
        (types.is_string, types.is_large_string, types.is_string_view),
        (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
        (types.is_timestamp, types.is_date),
        (types.is_time,),
        (types.is_list, types.is_large_list, types.is_fixed_size_list),
    )
    return next((number for number, ones in enumerate(kinds) if any(is_one(kind) for is_one in ones)), str(kind.id))


def _is_unscaled(kind: pa.DataType) -> bool:
    """True if the column holds decimals as digits and scale, with any number of digits."""
    is_pair = pa.types.is_struct(kind) and kind.names == ["unscaled", "scale"]
    return bool(is_pair and pa.types.is_binary(kind.field(0).type))


def _with_decimals(array: pa.Array) -> pa.Array:
    """Converts decimals that came as digits and scale to a decimal column; returns any other array unchanged.

    Raises:
        DataException: A value has more digits than a decimal column can hold.
    """
    if not _is_unscaled(array.type):
        return array
    digits, scales = pc.struct_field(array, [0]), pc.struct_field(array, [1])
    there = np.flatnonzero(digits.is_valid().to_numpy(zero_copy_only=False))
    offsets = np.frombuffer(digits.buffers()[1], np.int32)[digits.offset : digits.offset + len(digits) + 1]
    sizes, ends = np.diff(offsets)[there], offsets[1:][there].astype(np.int64)
    longest = int(max(sizes, default=0))
    if longest > 31:
        raise DataException(f"A decimal has more than {_MOST_DIGITS} digits, which no column of decimals holds")
    wide = longest > 15
    width = 32 if wide else 16
    found = scales.to_numpy(zero_copy_only=False)[there].astype(np.int64)
    largest = int(max(found, default=0))
    wanted = pa.decimal256(_MOST_DIGITS, largest) if wide else pa.decimal128(_MAX_DIGITS, largest)
    if not len(there):
        return pa.nulls(len(array), wanted)
    data = np.frombuffer(digits.buffers()[2], np.uint8)
    sign = np.where(data[ends - sizes] & 0x80, 0xFF, 0).astype(np.uint8)
    numbers = np.empty((len(there), width), np.uint8)
    for index in range(width):
        inside = index < sizes
        numbers[:, index] = np.where(inside, data[np.where(inside, ends - 1 - index, 0)], sign)
    parts, places = [], []
    for scale in np.unique(found).tolist():
        pick = np.flatnonzero(found == scale)
        own = pa.decimal256(_MOST_DIGITS, scale) if wide else pa.decimal128(_MAX_DIGITS, scale)
        part = pa.Array.from_buffers(own, len(pick), [None, pa.py_buffer(np.ascontiguousarray(numbers[pick]))])
        parts.append(part if own == wanted else part.cast(wanted))
        places.append(there[pick])
    place = np.full(len(array), -1)
    where = np.concatenate(places)
    place[where] = np.arange(len(where))
    return pa.concat_arrays(parts).take(pa.array(place, mask=place < 0))


def _member(column: pa.Array, marks: pa.Array | None, index: int) -> tuple[pa.Array, pa.Array | None]:
    inside = None if marks is None else pc.struct_field(pc.struct_field(marks, [1]), [index])
    return pc.struct_field(column, [index]), inside


def _variants_of(column: pa.Array, steps: Sequence[str]) -> Variants:
    values = Variants.of(pa.chunked_array([column]))
    for step in steps:
        values = values.step(step)
    return values


def _plain(values: Variants) -> list[object]:
    found = values.objects()
    tagged = any(MAP_TAG in Variants.names_of(one) for one in values.dictionaries if one is not None)
    return [_untagged(one) for one in found] if tagged else found


def _untagged(value: object) -> object:
    if isinstance(value, list):
        return [_untagged(one) for one in value]
    if not isinstance(value, dict):
        return value
    pairs = value.get(MAP_TAG)
    if len(value) == 1 and isinstance(pairs, list):
        return {name: _untagged(one) for name, one in pairs}
    return {name: _untagged(one) for name, one in value.items()}


def _objects(column: pa.Array, marks: pa.Array | None, variants: ReadVariants) -> list[object]:
    kind = column.type
    found: list[object]
    if is_variant(kind):
        found = list(variants(column))
    elif pa.types.is_struct(kind):
        found = _dicts(column, marks, variants)
    elif pa.types.is_list(kind):
        found = _lists(column, marks, variants)
    else:
        found = column.to_pylist(maps_as_pydicts="lossy")
    if marks is None:
        return found
    own = own_mark(marks)
    if own.null_count == len(own):
        return found
    for row, mark in enumerate(own.to_pylist()):
        if mark == ABSENT:
            found[row] = _NOTHING
        elif mark == WHOLE:
            found[row] = int(found[row])  # type: ignore[call-overload]
    return found


def _dicts(column: pa.Array, marks: pa.Array | None, variants: ReadVariants) -> list[object]:
    names = column.type.names
    inside = [None] * len(names) if marks is None else pc.struct_field(marks, [1]).flatten()
    members = [_objects(one, beside, variants) for one, beside in zip(column.flatten(), inside, strict=True)]
    if not names:
        rows: list[object] = [{} for _ in range(len(column))]
    elif any(_NOTHING in one for one in members):
        rows = [
            {name: one for name, one in zip(names, row, strict=True) if one is not _NOTHING}
            for row in zip(*members, strict=True)
        ]
    else:
        rows = [dict(zip(names, row, strict=True)) for row in zip(*members, strict=True)]
    return _with_nulls(rows, column)


def _lists(column: pa.Array, marks: pa.Array | None, variants: ReadVariants) -> list[object]:
    inside = None if marks is None else pc.struct_field(marks, [1]).flatten()
    items = [None if one is _NOTHING else one for one in _objects(column.flatten(), inside, variants)]
    counts = column.value_lengths().fill_null(0).to_pylist()
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    return _with_nulls([items[start:end] for start, end in pairwise(ends)], column)


def _with_nulls(rows: list[object], column: pa.Array) -> list[object]:
    if column.null_count:
        for row, there in enumerate(column.is_valid().to_pylist()):
            if not there:
                rows[row] = None
    return rows
