"""Schemaless maps that look alike, as a struct of typed columns.

The maps of a large batch mostly have the same keys with values of the same kinds. As a struct (``LayoutKind.OBJECT``)
they take a fraction of the work of single maps, because steps know the keys when the plan is made. Such a side has no
schema; its ``carrier`` is a struct schema with the keys as fields in order, so that a key's JSON does not depend on the
other records of its batch. If a step does not support it (``Step.takes``), its records are processed one by one.

Thread: any; ``_known`` is changed by single operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.data import Field, Schema, Type
from penstock.pipeline.columns.layout import ARROW_SCALARS, SCALAR, Layout, LayoutKind, arrow_type
from penstock.pipeline.columns.variant import TAGS, sort_keys
from penstock.pipeline.plan.step import Side

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Fewer maps go one by one, unless as many of their kind were there before: each other set of keys is another plan, and
#: a plan costs more than it saves them.
MIN_ROWS: Final = 2_000
MAX_MEMBERS: Final = 40
#: The most sets of keys that are laid out as structs, because each has its own plans.
_MAX_KNOWN: Final = 128

#: The possible types of a member, by the class of its values.
KINDS: Final[Mapping[type, Type]] = {
    str: Type.STRING,
    int: Type.INT64,
    float: Type.FLOAT64,
    bool: Type.BOOLEAN,
}
_known: dict[Schema, None] = {}


@dataclass(frozen=True)
class ValueDescription:
    """The description of the values under one key: a scalar schema (null is possible), or that of an object."""

    schema: Schema
    physical: Layout = SCALAR

    @classmethod
    def of(cls, kind: Type) -> ValueDescription:
        """Scalars of a kind that schemaless data has."""
        return cls(Schema(kind, optional=True))

    @property
    def is_object(self) -> bool:
        """True if the values are maps themselves."""
        return self.physical.form is LayoutKind.OBJECT


Members = Mapping[str, ValueDescription]


def members_of(side: Side) -> Members:
    """The members of the objects of a side, in their order."""
    assert side.carrier is not None, "an object has a carrier"
    pairs = zip(side.carrier.fields, side.physical.children, strict=True)
    return {field.name: ValueDescription(field.schema, layout) for field, layout in pairs}


def object_side(members: Members, *, present: bool = False) -> Side:
    """The side of objects with these members; ``present``: none is null."""
    carrier = _carrier(members, optional=True)
    return Side(None, _layout(members), carrier, present=present)


def object_member(members: Members, *, optional: bool) -> ValueDescription:
    """Objects as the member of others."""
    return ValueDescription(_carrier(members, optional=optional), _layout(members))


def object_column(value: Column, side: Side, columns: Mapping[str, Column]) -> Column:
    """Objects of these columns where ``value``, which ``side`` is about, is not null."""
    struct = F.struct(*[columns[name].alias(name) for name in sort_keys(columns)])
    return struct if side.present else F.when(value.isNotNull(), struct)


def as_struct(physical: Layout) -> Layout:
    """The layout as that of a value with schema: the columns are the same."""
    if physical.form is not LayoutKind.OBJECT:
        return physical
    return Layout(LayoutKind.STRUCT, tuple(as_struct(child) for child in physical.children))


def _carrier(members: Members, *, optional: bool) -> Schema:
    fields = tuple(Field(name, index, members[name].schema) for index, name in enumerate(sort_keys(members)))
    return Schema(Type.STRUCT, optional=optional, fields=fields)


def _layout(members: Members) -> Layout:
    return Layout(LayoutKind.OBJECT, tuple(members[name].physical for name in sort_keys(members)))


# ------------------------------------------------------------------------------------------------------- from records
def object_array(values: Sequence[object]) -> tuple[Side, pa.Array] | None:
    """A batch of dicts (or None) laid out as objects; None = they do not look alike, or are too few."""
    few = len(values) < MIN_ROWS
    if few and not _known:
        return None
    present = [value for value in values if value is not None]
    if not present:
        return None
    made = _array(present, _expected(present[0]))
    if made is None:
        return None
    member, array = made
    if member.schema not in _known:
        if few or len(_known) >= _MAX_KNOWN:
            return None
        _known[member.schema] = None
    names = {field.name: ValueDescription(field.schema, child) for field, child in _pairs(member)}
    side = object_side(names, present=len(present) == len(values))
    if side.present:
        return side, array
    places = iter(range(len(present)))
    pick = pa.array([None if value is None else next(places) for value in values], pa.int64())
    return side, array.take(pick)


def _pairs(member: ValueDescription) -> list[tuple[Field, Layout]]:
    return list(zip(member.schema.fields, member.physical.children, strict=True))


def _expected(value: object) -> Schema | None:
    """The objects that were laid out last with the keys of this one."""
    names = sort_keys(value) if type(value) is dict and all(type(key) is str for key in value) else None
    return next((one for one in reversed(list(_known)) if [field.name for field in one.fields] == names), None)


def _array(values: Sequence[object], expected: Schema | None) -> tuple[ValueDescription, pa.Array] | None:
    """Values of one kind as a column; None = they are not of one, or of none that an object can hold.

    Args:
        expected: What they are if all of them are null.
    """
    kinds = set(map(type, values))
    if kinds == {dict}:
        return _struct(values, expected)  # type: ignore[arg-type]
    kinds.discard(type(None))
    if not kinds and expected is not None and expected.type in KINDS.values():
        return ValueDescription.of(expected.type), pa.nulls(len(values), ARROW_SCALARS[expected.type])
    known = KINDS.get(kinds.pop()) if len(kinds) == 1 else None
    if known is None:
        return None
    try:
        return ValueDescription.of(known), pa.array(values, ARROW_SCALARS[known])
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        return None  # an integer of more than 64 bits, a lone surrogate


def _struct(
    values: Sequence[dict[object, object]], expected: Schema | None
) -> tuple[ValueDescription, pa.Array] | None:
    keys = tuple(values[0])
    if not 0 < len(keys) <= MAX_MEMBERS or not all(type(key) is str and key and key not in TAGS for key in keys):
        return None
    if any(tuple(value) != keys for value in values):
        return None
    before = expected.fields if expected is not None and expected.type is Type.STRUCT else ()
    fields = {field.name: field.schema for field in before}
    members: dict[str, ValueDescription] = {}
    arrays: dict[str, pa.Array] = {}
    for key, column in zip(keys, zip(*[value.values() for value in values], strict=True), strict=True):
        made = _array(column, fields.get(str(key)))
        if made is None:
            return None
        members[str(key)], arrays[str(key)] = made
    member = object_member(members, optional=False)
    inner = [arrays[field.name] for field in member.schema.fields]
    return member, pa.StructArray.from_arrays(inner, fields=list(arrow_type(member.schema, member.physical)))
