"""Flat JSON objects cut at their quotes: for long ones this takes a third of the time of a pattern, or less.

Where no message of a batch holds a backslash or a control character, every quote begins or ends a string. So what is
between two quotes is the text of a string, or what stands around strings: colons, commas, numbers. A message that is
cut like the first one, equal in all but its values, is the object that the first one is. Whatever else a message may
be is left to others.

Main type: ``Layout``. Main functions: ``is_plain``, ``layout_of`` and ``cut``. Thread: pure functions; ``cut`` builds
expressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock.pipeline.columns.text_bounds import bytes_of, has_byte

if TYPE_CHECKING:
    from pyspark.sql import Column

    from penstock.pipeline.plan.step import Keep

_BACKSLASH: Final = 0x5C
_FIRST_PRINTABLE: Final = 0x20
_AROUND: Final = re.compile(r"( *: *)([^ ,}]+)( *[,}] *)")


@dataclass(frozen=True)
class Layout:
    """How messages are written, between their quotes.

    Attributes:
        parts: In order: what has to be just so, None for the text of a string, and for other values what stands before
            and behind them.
    """

    parts: tuple[str | tuple[str, str] | None, ...]


def is_plain(column: pa.ChunkedArray) -> bool:
    """Whether every quote in these bytes begins or ends a string, if they are JSON."""
    return all(_is_plain(bytes_of(chunk)) for chunk in column.chunks)


def _is_plain(text: np.ndarray) -> bool:
    return not len(text) or bool(text.min() >= _FIRST_PRINTABLE and not has_byte(text, _BACKSLASH))


def layout_of(message: str, members: Mapping[str, object]) -> Layout | None:
    """How a plain message is written.

    Args:
        message: A JSON object.
        members: What it holds: strings, whole numbers and booleans.

    Returns:
        None when it holds more than these: one of its names comes twice.

    >>> layout_of('{"id":1,"name":"x"}', {"id": 1, "name": "x"}).parts
    ('{', 'id', (':', ','), 'name', ':', None, '}')
    """
    pieces = message.split('"')
    parts: list[str | tuple[str, str] | None] = [pieces[0]]
    at = 1
    for name, value in members.items():
        if at + 1 >= len(pieces) or pieces[at] != name:
            return None
        if isinstance(value, str):
            if at + 3 >= len(pieces) or pieces[at + 2] != value:
                return None
            parts += [name, pieces[at + 1], None, pieces[at + 3]]
            at += 4
        else:
            around = _AROUND.fullmatch(pieces[at + 1])
            if around is None:
                return None
            parts += [name, (around[1], around[3])]
            at += 2
    return Layout(tuple(parts)) if at == len(pieces) else None


def cut(text: Column, layout: Layout, patterns: Mapping[str, str], keep: Keep) -> tuple[Column, dict[str, Column]]:
    """What the objects are cut into that are written like this.

    Args:
        text: Plain messages.
        layout: How they are written.
        patterns: What the value of each member looks like, by its name in the order of the message.
        keep: Names a column that is used several times.

    Returns:
        Whether a message is such an object, or null; and the text of each value, which says nothing of other messages.
    """
    pieces = keep(F.split(text, '"', -1))
    taken = F.size(pieces) == len(layout.parts)
    names = iter(patterns)
    values: dict[str, Column] = {}
    for index, part in enumerate(layout.parts):
        piece = F.get(pieces, F.lit(index))
        if isinstance(part, str):
            taken = taken & (piece == F.lit(part))
        elif part is None:
            values[next(names)] = piece
        else:
            name = next(names)
            before, behind = part
            taken = taken & piece.rlike(f"^{re.escape(before)}{patterns[name]}{re.escape(behind)}\\z")
            around = len(before) + len(behind)
            values[name] = F.substring(piece, F.lit(len(before) + 1), F.length(piece) - around)
    return taken, values
