"""JSON messages straight to Java's text of their values, for sinks that write text. Main type: ``ReadJsonText``.

The messages of a batch mostly look alike, so the first one tells which fields to expect (``Guess``); where the guess
holds, the text is put together from the fields, in the order a Java ``HashMap`` of these keys has. All else goes the
long way.

Thread: builds expressions, on a pipeline thread; ``guess`` on the same thread.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.converters.json_envelope import BAD_SYNTAX
from penstock.converters.json_parsing import is_blank, parse_exactly, parse_quickly
from penstock.errors import DataException
from penstock.pipeline.expressions import rare
from penstock.pipeline.java_text import variant_text
from penstock.pipeline.step import NOTHING, SCHEMALESS_TEXT, Bag, Fault, Keep, Made, Shape, SideName, Step, StepPlan

if TYPE_CHECKING:
    from pyspark.sql import Column

_KINDS: Final[dict[type, str]] = {str: "STRING", int: "BIGINT", bool: "BOOLEAN"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_FIELDS: Final = 40


@dataclass(frozen=True)
class Guess:
    """The fields that the objects of a batch are expected to have, with their kinds, in the order of a HashMap."""

    fields: tuple[tuple[str, str], ...]

    @property
    def kinds(self) -> str:
        """What ``schema_of_variant`` says of such an object."""
        return "OBJECT<" + ", ".join(f"{name}: {kind}" for name, kind in sorted(self.fields)) + ">"


def guess(message: bytes | None) -> Guess | None:
    """What the other messages may look like; None = the message is no flat object."""
    if message is None or not message.startswith(b"{"):
        return None
    try:
        found = json.loads(message)
    except ValueError:
        return None
    if not 0 < len(found) <= MAX_FIELDS or not all(_NAME.fullmatch(name) for name in found):
        return None
    kinds = {name: _KINDS.get(type(value)) for name, value in found.items()}
    fields = tuple((name, kind) for name in hash_map_order(list(kinds)) if (kind := kinds[name]) is not None)
    return Guess(fields) if len(fields) == len(found) else None


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
class ReadJsonText(Step):
    """Reads one side of plain JSON as Java's text of each value."""

    side: SideName
    guess: Guess | None

    def plan(self, shape: Shape) -> StepPlan:
        if shape.side(self.side).absent:
            return StepPlan(shape.with_side(self.side, NOTHING))
        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, SCHEMALESS_TEXT), self._make, names, names)

    def _make(self, bag: Bag, keep: Keep) -> Made:
        text = keep(bag.side(self.side).cast("string"))
        quick = parse_quickly(text, keep)
        plain = quick.kinds.isin("STRING", "BIGINT", "BOOLEAN")
        fast = F.when(plain & quick.exact, F.try_variant_get(quick.value, "$", "string"))
        if self.guess is not None:
            fast = F.when((quick.kinds == self.guess.kinds) & quick.exact, _joined(quick.value, self.guess)).otherwise(
                fast
            )
        fast = keep(fast)
        slow = keep(F.when(text.isNotNull() & fast.isNull(), rare(text, _by_itself)))
        fault = Fault(slow.getField("bad"), BAD_SYNTAX, DataException.java_name)
        return Made({self.side: F.coalesce(fast, slow.getField("text"))}, (fault,))


def _joined(value: Column, known: Guess) -> Column:
    parts: list[Column] = []
    before = "{"
    for name, _ in known.fields:
        parts += [F.lit(f"{before}{name}="), F.try_variant_get(value, f"$.{name}", "string")]
        before = ", "
    return F.concat(*parts, F.lit("}"))


def _by_itself(text: Column) -> Column:
    def judged(value: Column) -> Column:
        bad = value.isNull() & ~(F.is_valid_utf8(text) & is_blank(text))
        return F.struct(variant_text(value).alias("text"), bad.alias("bad"))

    return rare(parse_exactly(text, "schemaless"), judged)
