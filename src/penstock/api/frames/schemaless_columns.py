"""Typed columns of schemaless values, and their marks: which fields a value has, and which numbers are whole.

A column of objects is a struct of all their known fields. Such a column cannot express that an object lacks a field
(rather than having null there), or that a number is whole when the column holds doubles. *Marks* express both. They are
a second array with the same rows and the same nesting:

=================== =======================================================
column              marks
=================== =======================================================
struct              ``struct<mark uint8, fields struct<marks of each field>>``
list                ``struct<mark uint8, items list<marks of the items>>``
any other           ``uint8``
=================== =======================================================

A mark is null or 0 (the column is right as it is), ``ABSENT`` or ``WHOLE``.

Main functions: ``marks_type``, ``field_names``, ``present``, ``objects`` and ``objects_at``. The worker makes these
columns; parts whose values have no type in common are Spark VARIANT.

Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_variant
from penstock.api.frames.variant_fields import Variants
from penstock.data.variant_format import MAP_TAG

#: The object does not have the field.
ABSENT: Final = 1
#: A whole number in a column of doubles.
WHOLE: Final = 2
_MARK: Final = pa.uint8()
_NOTHING: Final = object()

#: Returns the values of a VARIANT column.
ReadVariants = Callable[["pa.Array"], Sequence[object]]


def is_object(kind: pa.DataType) -> bool:
    """True if a column of schemaless values holds objects as structs."""
    return bool(pa.types.is_struct(kind)) and not is_variant(kind)


def marks_type(kind: pa.DataType) -> pa.DataType:
    """The type of the marks of a column."""
    if is_object(kind):
        fields = pa.struct([pa.field(one.name, marks_type(one.type)) for one in kind])
        return pa.struct([pa.field("mark", _MARK), pa.field("fields", fields)])
    if pa.types.is_list(kind):
        items = pa.list_(pa.field("element", marks_type(kind.value_type)))
        return pa.struct([pa.field("mark", _MARK), pa.field("items", items)])
    return _MARK


def own_mark(marks: pa.Array) -> pa.Array:
    """The marks of the values themselves, without the marks of nested values."""
    return pc.struct_field(marks, [0]) if pa.types.is_struct(marks.type) else marks


def present(column: pa.Array, marks: pa.Array | None, steps: Sequence[str]) -> pa.Array:
    """True where a value has the field that a path leads to, null or not.

    Args:
        column: The values.
        marks: Their marks; None: every value has all fields.
        steps: The names on the path.
    """
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


def _member(column: pa.Array, marks: pa.Array | None, index: int) -> tuple[pa.Array, pa.Array | None]:
    inside = None if marks is None else pc.struct_field(pc.struct_field(marks, [1]), [index])
    return pc.struct_field(column, [index]), inside


def _variants_of(column: pa.Array, steps: Sequence[str]) -> Variants:
    values = Variants.of(pa.chunked_array([column]))
    for step in steps:
        values = values.step(step)
    return values


def read_variants(column: pa.Array) -> Sequence[object]:
    """The values of a VARIANT column as Python objects; maps whose keys are not strings become dicts again."""
    return _plain(_variants_of(column, ()))


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


def objects(column: pa.Array, marks: pa.Array | None, variants: ReadVariants = read_variants) -> list[object]:
    """The values of a column as Python objects: a dict has exactly the fields that the object had.

    Args:
        column: The values.
        marks: Their marks; None: every object has all fields, and numbers have the type of the column.
        variants: Reads VARIANT columns.
    """
    return [None if one is _NOTHING else one for one in _objects(column, marks, variants)]


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
