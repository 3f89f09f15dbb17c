"""Plain JSON messages that look alike, straight to typed columns (``penstock.pipeline.objects``).

The first message of a large batch says which members to expect. Where a pattern of them matches every other message,
they are read as structs: by Arrow, before Spark (``json_structs.py``), or by one ``from_json`` where nothing may go
around Spark. Otherwise all of them become VARIANT.

Main types: ``AlikeObjects`` (finds and reads them) and ``ReadObjects`` (the step).

Thread: one pipeline thread.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.converters.json_patterns import PLAIN_NAME
from penstock.converters.json_structs import (
    BOOLEAN,
    REAL,
    STRING,
    bound_of,
    matches,
    object_pattern,
    read_structs,
    whole,
)
from penstock.data import Type
from penstock.pipeline import objects
from penstock.pipeline.objects import Member, as_struct, object_member, object_side
from penstock.pipeline.step import NOTHING, Bag, Keep, Made, Shape, Side, SideName, Step, StepPlan
from penstock.pipeline.text_bounds import with_bound
from penstock.pipeline.types import TextBound, arrow_type, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCALARS: Final[Mapping[type, tuple[Type, str]]] = {
    str: (Type.STRING, STRING),
    int: (Type.INT64, whole(18)),
    float: (Type.FLOAT64, REAL),
    bool: (Type.BOOLEAN, BOOLEAN),
}
#: So many batches are not looked at after one whose messages differ.
_PAUSE: Final = 50
#: After so many different first messages none is looked at: each has plans of its own.
_MAX_KINDS: Final = 16


@dataclass(frozen=True)
class ObjectMessages:
    """What all messages of a batch hold.

    Attributes:
        side: The objects.
    """

    side: Side

    @property
    def as_read(self) -> Side:
        """The objects before the step: not yet such, for steps in front of it do not know them."""
        return replace(self.side, physical=as_struct(self.side.physical))


@dataclass(frozen=True)
class ReadObjects(Step):
    """Reads one side of messages that are known to be such objects."""

    side: SideName
    messages: ObjectMessages

    def takes_objects(self, shape: Shape) -> bool:
        return not shape.side(self.side).is_object

    def plan(self, shape: Shape) -> StepPlan:
        if shape.side(self.side).absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        known = self.messages.side
        if shape.side(self.side) == self.messages.as_read:
            return StepPlan(shape.with_side(self.side, known))
        kind = spark_type(known.carrier, known.physical).simpleString()
        names = frozenset({self.side})

        def make(bag: Bag, keep: Keep) -> Made:
            return Made({self.side: keep(F.from_json(bag.side(self.side).cast("string"), kind))})

        return StepPlan(shape.with_side(self.side, known), make, names, names)


class AlikeObjects:
    """Tells batches of messages that look alike; remembers how often that was not so."""

    def __init__(self) -> None:
        self._pause = 0
        self._patterns: dict[str, Member] = {}

    def find(self, column: pa.ChunkedArray) -> ObjectMessages | None:
        """What the messages are; None = they differ, hold something else, or are too few."""
        if len(column) < objects.MIN_ROWS:
            return None
        if self._pause:
            self._pause -= 1
            return None
        found = self._matched(column)
        if found is None:
            self._pause = _PAUSE
        return found

    def read(self, column: pa.ChunkedArray, found: ObjectMessages) -> pa.ChunkedArray:
        """The objects of a column of which ``find`` has said what they are."""
        kind = arrow_type(found.side.carrier, found.side.physical)
        return pa.chunked_array([read_structs(column.cast(pa.string()), cast("pa.StructType", kind))])

    def _matched(self, column: pa.ChunkedArray) -> ObjectMessages | None:
        pattern = _pattern_of(column[0].as_py())
        if pattern is None:
            return None
        text, member = pattern
        if text not in self._patterns and len(self._patterns) >= _MAX_KINDS:
            return None
        self._patterns[text] = member
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            return None  # not UTF-8
        if not pc.all(matches(texts, text), min_count=0).as_py():
            return None
        bound = bound_of(texts)
        members = dict(zip([field.name for field in member.schema.fields], _bounded(member, bound), strict=True))
        return ObjectMessages(object_side(members, present=column.null_count == 0))


def _bounded(member: Member, bound: TextBound) -> list[Member]:
    pairs = zip(member.schema.fields, member.physical.children, strict=True)
    return [Member(field.schema, with_bound(layout, bound)) for field, layout in pairs]


def _pattern_of(message: bytes | None) -> tuple[str, Member] | None:
    """The pattern of messages like this one, and what they are; None = this is no such object."""
    if message is None or not message.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(message, object_pairs_hook=_Pairs)
    except ValueError:
        return None
    return _object_pattern(found) if isinstance(found, _Pairs) else None


class _Pairs(list[tuple[str, Any]]):
    """The members of an object as they stand in its text."""


def _object_pattern(pairs: _Pairs) -> tuple[str, Member] | None:
    names = [name for name, _ in pairs]
    if not 0 < len(names) <= objects.MAX_MEMBERS or len(set(names)) < len(names):
        return None
    members: dict[str, Member] = {}
    parts: list[tuple[str, str]] = []
    for name, value in pairs:
        found = _value_pattern(value) if PLAIN_NAME.fullmatch(name) else None
        if found is None:
            return None
        pattern, members[name] = found
        parts.append((name, pattern))
    return object_pattern(parts), object_member(members, optional=False)


def _value_pattern(value: Any) -> tuple[str, Member] | None:
    if isinstance(value, _Pairs):
        return _object_pattern(value)
    known = _SCALARS.get(type(value))
    return None if known is None else (f"null|{known[1]}", Member.of(known[0]))
