"""JSON messages straight to Java's text of their values, for sinks that write text.

The messages of a batch mostly look alike, so the first one tells which fields to expect (``Guess``), or the schema
does. Messages that can be cut at their quotes, or that a pattern of these fields matches, become text at once; of plain
JSON in the order a Java ``HashMap`` of the keys has. That is a step by itself, with a plan that is small however much
JSON can say. What it leaves goes through another one: the message is parsed, and where the guess still holds the text
is put together from the fields. The rest goes the long way.

Main types: ``MatchJsonText`` and ``ReadJsonText`` for plain JSON, ``MatchEnvelopeText`` and ``ReadEnvelopeText`` for
messages with their schema.

Thread: builds expressions, on a pipeline thread; ``guess`` on the same thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.converters.json_envelope import BAD_SYNTAX, Envelope, advice_on
from penstock.converters.json_parsing import Text, parse_exactly, parse_quickly, text_of
from penstock.converters.json_patterns import (
    BOOLEAN,
    MAX_MEMBERS,
    PLAIN_NAME,
    STRING,
    Member,
    members_of,
    rewrite,
    whole,
)
from penstock.converters.json_quotes import Layout, cut, is_plain, layout_of
from penstock.converters.json_reading import ReadJson
from penstock.errors import DataException
from penstock.pipeline.columns.expressions import rare
from penstock.pipeline.plan.java_text import AsText, text_of_json
from penstock.pipeline.plan.step import (
    NOTHING,
    SCHEMALESS_TEXT,
    Bag,
    Fault,
    Keep,
    Made,
    Shape,
    SideName,
    Step,
    StepPlan,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

_KINDS: Final[dict[type, str]] = {str: "STRING", int: "BIGINT", bool: "BOOLEAN"}
_PATTERNS: Final = {"STRING": STRING, "BIGINT": whole(), "BOOLEAN": BOOLEAN}


@dataclass(frozen=True)
class Guess:
    """The fields that the objects of a batch are expected to have, with their kinds.

    Attributes:
        fields: In the order of a HashMap.
        names: The names in the order of the message.
        layout: How the first message is written, where no quote of the batch is part of a string. Objects that are
            written differently are the same.
    """

    fields: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    layout: Layout | None = field(default=None, compare=False)

    @property
    def kinds(self) -> str:
        """What ``schema_of_variant`` says of such an object."""
        return "OBJECT<" + ", ".join(f"{name}: {kind}" for name, kind in sorted(self.fields)) + ">"

    def rewritten(self, text: Text, layout: Layout | None, keep: Keep) -> Column:
        """Java's text of the objects that are just so, written in any way or in this one; null for other messages."""
        kinds = dict(self.fields)
        patterns = {name: _PATTERNS[kinds[name]] for name in self.names}
        if layout is not None:
            taken, values = cut(text.column, layout, patterns, keep)
            return text.if_utf8(F.when(taken, self.text_of(values)))
        places = {name: number for number, name in enumerate(self.names, 1)}
        template = ", ".join(f"{name}=${places[name]}" for name, _ in self.fields)
        members = [Member(name, pattern) for name, pattern in patterns.items()]
        return _matched(text, keep(rewrite(text.column, members, f"{{{template}}}")))

    def text_of(self, values: Mapping[str, Column]) -> Column:
        """Java's text of an object with these values, which are text already; null where one is null."""
        parts: list[Column] = []
        before = "{"
        for name, _ in self.fields:
            parts += [F.lit(f"{before}{name}="), values[name]]
            before = ", "
        return F.concat(*parts, F.lit("}"))


def guess(messages: pa.ChunkedArray) -> Guess | None:
    """What the messages of a batch may look like; None = there is none, or the first one is no flat object."""
    message = messages[0].as_py() if len(messages) else None
    if message is None or not message.startswith(b"{"):
        return None
    try:
        found = json.loads(message)
    except ValueError:
        return None
    if not 0 < len(found) <= MAX_MEMBERS or not all(PLAIN_NAME.fullmatch(name) for name in found):
        return None
    kinds = {name: _KINDS.get(type(value)) for name, value in found.items()}
    fields = tuple((name, kind) for name in hash_map_order(list(kinds)) if (kind := kinds[name]) is not None)
    if len(fields) < len(found):
        return None
    return Guess(fields, tuple(found), layout_of(message.decode(), found) if is_plain(messages) else None)


def hash_map_order(names: list[str]) -> list[str]:
    """ASCII strings in the order a ``java.util.HashMap`` iterates over them when they were put in this order.

    >>> hash_map_order(["source", "line"])
    ['line', 'source']
    """
    size = 16
    while len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _bucket(name, size))


def _bucket(name: str, size: int) -> int:
    number = 0
    for character in name:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    return (number ^ (number >> 16)) & (size - 1)


@dataclass(frozen=True)
class MatchJsonText(Step):
    """Java's text of the plain JSON objects that are as guessed; null for all others.

    Attributes:
        side: Key or value.
        guess: What the objects hold.
        layout: How they are written; None = in any way.
    """

    side: SideName
    guess: Guess
    layout: Layout | None

    def matching(self) -> Step | None:
        """See ``Step``. Where messages are cut at their quotes, the slower step that leaves less is the pattern."""
        return None if self.layout is None else MatchJsonText(self.side, self.guess, None)

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        names = frozenset({self.side})

        def make(bag: Bag, keep: Keep) -> Made:
            text = text_of(shape, bag, self.side, keep)
            return Made({self.side: self.guess.rewritten(text, self.layout, keep)})

        return StepPlan(shape.with_side(self.side, SCHEMALESS_TEXT), make, names, names)


@dataclass(frozen=True)
class ReadJsonText(Step):
    """Reads one side of plain JSON as Java's text of each value."""

    side: SideName
    guess: Guess | None

    def matching(self) -> Step | None:
        """See ``Step``. There is one if a guess could be made."""
        return None if self.guess is None else MatchJsonText(self.side, self.guess, self.guess.layout)

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``."""
        if shape.side(self.side).absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, SCHEMALESS_TEXT), partial(self._make, shape), names, names)

    def _make(self, shape: Shape, bag: Bag, keep: Keep) -> Made:
        text = text_of(shape, bag, self.side, keep)
        quick = parse_quickly(text, keep)
        plain = quick.kinds.isin("STRING", "BIGINT", "BOOLEAN")
        fast = F.when(plain & quick.exact, F.try_variant_get(quick.value, "$", "string"))
        if self.guess is not None:
            fast = F.when((quick.kinds == self.guess.kinds) & quick.exact, _joined(quick.value, self.guess)).otherwise(
                fast
            )
        fast = keep(fast)
        left = text.column.isNotNull() & fast.isNull()
        slow = keep(F.when(left, rare(text.column, lambda x: _by_itself(text.having(x)))))
        fault = Fault(slow.getField("bad"), BAD_SYNTAX, DataException.java_name, advice_on(BAD_SYNTAX, self.side))
        return Made({self.side: F.coalesce(fast, slow.getField("text"))}, (fault,))


@dataclass(frozen=True)
class MatchEnvelopeText(Step):
    """Java's text of structs whose payload is as simple as their schema; null for all others.

    Attributes:
        full: Reads what this one leaves.
        members: The fields.
    """

    full: ReadEnvelopeText
    members: tuple[Member, ...]

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. The side it makes is the one that ``ReadEnvelopeText`` makes."""
        side = self.full.side
        names = frozenset({side})

        def make(bag: Bag, keep: Keep) -> Made:
            payload = text_of(shape, bag, side, keep)
            template = ",".join(f"{one.name}=${number}" for number, one in enumerate(self.members, 1))
            rewritten = keep(rewrite(payload.column, self.members, f"Struct{{{template}}}", end="\\}"))
            return Made({side: _matched(payload, rewritten)})

        return StepPlan(self.full.plan(shape).shape, make, names, names)


@dataclass(frozen=True)
class ReadEnvelopeText(Step):
    """Reads one side of JSON with schemas as Java's text of each struct.

    Attributes:
        side: Key or value.
        envelope: The schema of these messages.
        defaults: Whether nulls are replaced by defaults.
    """

    side: SideName
    envelope: Envelope
    defaults: bool

    def matching(self) -> Step | None:
        """See ``Step``. There is one for structs whose fields are all simple."""
        members = members_of(self.envelope.schema)
        return None if members is None else MatchEnvelopeText(self, members)

    def plan(self, shape: Shape) -> StepPlan:
        """See ``Step``. It reads by ``ReadJson`` and writes by ``AsText``, in one step."""
        if shape.side(self.side).absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        reading = ReadJson(self.side, self.envelope, None, self.defaults).plan(shape)
        writing = AsText(self.side).plan(reading.shape)

        def make(bag: Bag, keep: Keep) -> Made:
            left = reading.make(bag, keep)
            read = bag.with_columns(left.columns)
            text = writing.make(read, keep).columns.get(self.side, read.side(self.side))
            return Made({self.side: text}, left.faults)

        names = frozenset({self.side})
        return StepPlan(writing.shape, make, names, names)


def _matched(text: Text, rewritten: Column) -> Column:
    """The rewritten text, or null where it is the text itself: the pattern has not matched."""
    return text.if_utf8(F.when(rewritten != text.column, rewritten))


def _joined(value: Column, known: Guess) -> Column:
    return known.text_of({name: F.try_variant_get(value, f"$.{name}", "string") for name in known.names})


def _by_itself(text: Text) -> Column:
    def judged(value: Column) -> Column:
        bad = value.isNull() & ~text.is_blank
        return F.struct(text_of_json(value).alias("text"), bad.alias("bad"))

    return rare(parse_exactly(text, "schemaless"), judged)
