"""The fields of schemaless values that ``Sql`` expressions see as typed columns, and how expressions use them.

A field is a column of the type that its values have in a batch. A path to a missing field, or into a value that is not
an object, has to give null instead of an error of Spark's planner: so missing fields are added to the columns, with
Spark's null type. A field stays VARIANT if the expression says so (``user:id``, ``variant_get(...)``), if its values
have no type in common, or if the expression casts an object or array.

Thread: any; pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api.arrow import is_variant
from penstock.api.frames.fields import is_object
from penstock.transforms.sql.text import Path, lambda_fields, paths_of

_NULL: Final = pa.null()


@dataclass(frozen=True)
class FieldsAsked:
    """The fields, nested fields and casts that expressions use.

    Attributes:
        kinds: The required type of each field that may be a typed column: a struct or a list of nulls, or null.
        casts: The casted paths, as names of steps; a number is an index.
        members: The names of item fields that lambdas use.
    """

    kinds: Mapping[str, pa.DataType]
    casts: frozenset[tuple[str, ...]]
    members: frozenset[str]

    def filled(self, columns: Mapping[str, pa.Array], mixed: Collection[str] = ()) -> dict[str, pa.Array]:
        """The columns of fields, extended by missing nested fields; without columns that stay VARIANT.

        Args:
            columns: The columns by field name.
            mixed: Fields with whole numbers among doubles, whose texts must show them as whole numbers.
        """
        return {
            name: self._filled(column, self.kinds[name])
            for name, column in columns.items()
            if not _has_variant(column.type) and not self._is_cast(name, column.type, is_mixed=name in mixed)
        }

    def _is_cast(self, name: str, kind: pa.DataType, *, is_mixed: bool) -> bool:
        """True if a cast of the typed column would differ from a cast of the original value."""
        return any(
            path[0] == name and (is_mixed or pa.types.is_nested(_type_at(kind, path[1:]))) for path in self.casts
        )

    def _filled(self, column: pa.Array, asked: pa.DataType) -> pa.Array:
        if pa.types.is_null(asked) and pa.types.is_list(column.type) and self.members:
            inner = column.type.value_type
            if pa.types.is_null(inner) or is_object(inner):
                asked = pa.list_(pa.struct([(name, _NULL) for name in sorted(self.members)]))
        if pa.types.is_null(asked):
            return column
        if pa.types.is_struct(asked) and is_object(column.type):
            return self._struct(column, asked)
        if pa.types.is_list(asked) and pa.types.is_list(column.type):
            counts = column.value_lengths().fill_null(0).to_numpy()
            offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
            items = self._filled(column.flatten(), asked.value_type)
            return pa.ListArray.from_arrays(offsets, items, mask=column.is_null() if column.null_count else None)
        return pa.nulls(len(column), asked)

    def _struct(self, column: pa.Array, asked: pa.StructType) -> pa.Array:
        kinds = {one.name: one.type for one in asked}
        there = column.type.names
        members = [self._filled(pc.struct_field(column, [at]), kinds.get(name, _NULL)) for at, name in enumerate(there)]
        new = [name for name in kinds if name not in there]
        members += [pa.nulls(len(column), kinds[name]) for name in new]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(members, names=[*there, *new], mask=mask)


def fields_asked(texts: Iterable[str]) -> FieldsAsked:
    """Returns the fields that some expressions use. The result may include other names, which no column has."""
    kinds: dict[str, pa.DataType | None] = {}
    casts: set[tuple[str, ...]] = set()
    members: set[str] = set()
    for text in texts:
        members |= lambda_fields(text)
        if "variant" in text.lower():
            return FieldsAsked({}, frozenset(), frozenset())
        for path in paths_of(text):
            name = path.names[0]
            asked = None if any(one.text == ":" for one in path.separators) else _asked(path)
            known = kinds.get(name, _NULL)
            kinds[name] = None if asked is None or known is None else _joined(known, asked)
            if path.is_cast:
                casts.add(path.names)
    return FieldsAsked(
        {name: kind for name, kind in kinds.items() if kind is not None}, frozenset(casts), frozenset(members)
    )


def _asked(path: Path) -> pa.DataType:
    def around(inner: pa.DataType, step: tuple[str, bool]) -> pa.DataType:
        name, is_index = step
        return pa.list_(inner) if is_index else pa.struct([(name, inner)])

    steps = [(token.name, token.kind == "number") for token in path.steps[1:]]
    return reduce(around, reversed(steps), _NULL)


def _joined(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Returns the type that satisfies both requirements, or None if no type does."""
    if pa.types.is_null(one) or pa.types.is_null(other):
        return other if pa.types.is_null(one) else one
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = _joined(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    if not (pa.types.is_struct(one) and pa.types.is_struct(other)):
        return None
    fields = {field.name: field.type for field in one}
    for field in other:
        both = _joined(fields.get(field.name, _NULL), field.type)
        if both is None:
            return None
        fields[field.name] = both
    return pa.struct(list(fields.items()))


def _has_variant(kind: pa.DataType) -> bool:
    if is_variant(kind):
        return True
    if pa.types.is_list(kind):
        return _has_variant(kind.value_type)
    return is_object(kind) and any(_has_variant(one.type) for one in kind)


def type_at(kinds: Mapping[str, pa.DataType], names: tuple[str, ...]) -> pa.DataType:
    """The type at the end of a path; the null type if the path does not exist."""
    return _type_at(kinds[names[0]], names[1:]) if names[0] in kinds else _NULL


def _type_at(kind: pa.DataType, steps: tuple[str, ...]) -> pa.DataType:
    for step in steps:
        if pa.types.is_list(kind):
            kind = kind.value_type
        elif is_object(kind) and kind.get_field_index(step) >= 0:
            kind = kind.field(kind.get_field_index(step)).type
        else:
            return _NULL
    return kind
