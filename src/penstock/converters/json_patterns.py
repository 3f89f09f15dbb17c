"""Flat JSON objects straight to text by one regular expression: no parser, no value in between.

Messages of a topic mostly have the same members in the same order, strings without escapes and small whole numbers.
Of these a pattern finds each value's text as it is, and Java's text of the object is put together from them in the same
pass. Whatever else a message may be does not match, and is left to those who read JSON properly.

Main function: ``rewrite``. Thread: pure functions that build expressions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.data import Schema, Type

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Names that need no escapes in JSON, in a pattern or in a replacement.
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: More members are left to the parser: a pattern with many groups is slow.
MAX_MEMBERS: Final = 40

# Java looks single characters up in a table; a range among them would be one more call for each character.
_CONTROLS: Final = "".join(f"\\x{code:02x}" for code in range(32))
STRING: Final = f'"([^"\\\\{_CONTROLS}]*)"'
BOOLEAN: Final = "(true|false)"
_SPACE: Final = "[ \\t\\r\\n]*"
#: Digits that any number of the type may have; minus zero is zero to Java, so it is not among these numbers.
_DIGITS: Final = {Type.INT8: 2, Type.INT16: 4, Type.INT32: 9, Type.INT64: 18}


def whole(kind: Type = Type.INT64) -> str:
    """The pattern of a whole number that surely fits the type."""
    return f"(0|-?[1-9][0-9]{{0,{_DIGITS[kind] - 1}}}+)"


@dataclass(frozen=True)
class Member:
    """A member of the object: its name, and the pattern of its value, with one group."""

    name: str
    value: str


def members_of(schema: Schema | None) -> tuple[Member, ...] | None:
    """The members of a struct's JSON in the order of its schema; None = its values have no simple patterns."""
    if schema is None or schema.type is not Type.STRUCT or not 0 < len(schema.fields) <= MAX_MEMBERS:
        return None
    found: list[Member] = []
    for field in schema.fields:
        kind = field.schema.type
        if not PLAIN_NAME.fullmatch(field.name) or field.schema.name is not None:
            return None
        if kind is Type.STRING:
            found.append(Member(field.name, STRING))
        elif kind is Type.BOOLEAN:
            found.append(Member(field.name, BOOLEAN))
        elif kind in _DIGITS:
            found.append(Member(field.name, whole(kind)))
        else:
            return None
    return tuple(found)


def rewrite(text: Column, members: Sequence[Member], template: str, *, end: str = "") -> Column:
    """The text of each object by a template; any other text as it is, which the template's result never equals.

    Args:
        text: JSON texts.
        members: What the objects hold, in order.
        template: What takes their place; ``$1`` is the first member's value.
        end: What follows an object in the text, as a pattern.
    """
    inner = f"{_SPACE},{_SPACE}".join(f'"{one.name}"{_SPACE}:{_SPACE}{one.value}' for one in members)
    return F.regexp_replace(text, f"^{_SPACE}\\{{{_SPACE}{inner}{_SPACE}\\}}{_SPACE}{end}\\z", template)
