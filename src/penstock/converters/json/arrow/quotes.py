"""Reads flat JSON objects by splitting them at their quotes, with a quarter of the work of a pattern and a parser.

If a message has no backslash and no control character, every quote begins or ends a string. So the text between two
quotes is either a string or the text around strings: colons, commas, numbers. A message that equals a known object in
everything except its values is an object with the same members. ``structs`` handles all other messages.

Main function: ``cut_objects``. Thread: pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.columns.layout import bytes_of, offsets_of, places_below, places_of

_BACKSLASH: Final = 0x5C
_QUOTE: Final = 0x22
_FIRST_PRINTABLE: Final = 0x20
_AROUND: Final = re.compile(r"( *: *)([^ ,}]+)( *[,}][ }]*)")


@dataclass(frozen=True)
class FlatMember:
    """A member whose value is a string, a number or a boolean.

    Attributes:
        name: Its name, which needs no escapes.
        pattern: The pattern of a value that is not a string; None = the value is a string.
    """

    name: str
    pattern: str | None


@dataclass(frozen=True)
class QuoteLayout:
    """The layout of messages.

    Attributes:
        runs: The texts before the first value, between values, and after the last value.
        quotes: The number of quotes.
    """

    runs: tuple[bytes, ...]
    quotes: int


def layout_of(message: str, members: Sequence[FlatMember]) -> QuoteLayout | None:
    """Returns the layout of a message, or None if it does not have exactly these members.

    Args:
        message: A JSON object with these members, in this order.
        members: Its members.

    >>> layout_of('{"id": 1, "name":"x"}', [FlatMember("id", "[0-9]+"), FlatMember("name", None)])
    QuoteLayout(runs=(b'{"id": ', b', "name":"', b'"}'), quotes=6)
    """
    pieces = message.split('"')
    runs = [pieces[0]]
    at = 1
    for member in members:
        if at + 1 >= len(pieces) or pieces[at] != member.name:
            return None
        runs[-1] += f'"{member.name}"'
        if member.pattern is None:
            if at + 3 >= len(pieces):
                return None
            runs[-1] += f'{pieces[at + 1]}"'
            runs.append(f'"{pieces[at + 3]}')
            at += 4
        else:
            around = _AROUND.fullmatch(pieces[at + 1])
            if around is None:
                return None
            runs[-1] += around[1]
            runs.append(around[3])
            at += 2
    return QuoteLayout(tuple(run.encode() for run in runs), len(pieces) - 1) if at == len(pieces) else None


def cut_objects(
    texts: pa.StringArray,
    layout: QuoteLayout,
    members: Sequence[FlatMember],
    wanted: np.ndarray,
    heads: np.ndarray | None = None,
) -> tuple[np.ndarray, dict[str, pa.StringArray]]:
    """Splits the objects with this layout.

    Args:
        texts: Messages.
        layout: Their layout.
        members: Their members.
        wanted: The rows to check.
        heads: The number of first bytes to skip, for each message; None = none.

    Returns:
        The rows that are such objects, and the text of each member's values in these rows.
    """
    if not len(texts):
        return np.empty(0, np.int64), {member.name: texts for member in members}
    data = bytes_of(texts)
    bounds = offsets_of(texts)
    bounds = bounds - bounds[0]
    begins, ends = bounds[:-1] if heads is None else bounds[:-1] + heads, bounds[1:]
    quotes = places_of(data, _QUOTE)
    firsts = np.searchsorted(quotes, begins)
    fits = wanted & (np.searchsorted(quotes, ends) - firsts == layout.quotes)
    fits[_rows_of_odd(data, bounds, begins)] = False
    rows = np.flatnonzero(fits)
    found = _quotes_of(quotes, firsts, rows, layout.quotes)
    cuts, good = _cut(begins[rows], ends[rows], found, layout, members)
    rows, parts = rows[good], _texts(data, cuts[good])
    same = _equal(parts, len(rows), layout.runs)
    # Runs and values alternate.
    rows, first = rows[same], np.flatnonzero(same) * 2 * len(layout.runs)
    cut: dict[str, pa.StringArray] = {}
    right = np.ones(len(rows), dtype=bool)
    for index, member in enumerate(members):
        cut[member.name] = parts.take(pa.array(first + 2 * index + 1))
        if member.pattern is not None:
            matched = pc.match_substring_regex(cut[member.name], f"\\A(?:{member.pattern})\\z")
            right &= matched.to_numpy(zero_copy_only=False)
    if not right.all():
        kept = pa.array(right)
        rows, cut = rows[right], {name: column.filter(kept) for name, column in cut.items()}
    return rows, cut


def _quotes_of(quotes: np.ndarray, firsts: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The positions of the quotes of each row, from its first quote on; a view if all rows have the same number."""
    each = len(quotes) // len(rows) if len(rows) else 0
    if each and len(quotes) == each * len(rows) and (firsts[rows] == np.arange(each - count, len(quotes), each)).all():
        return quotes.reshape(len(rows), each)[:, each - count :]
    found: np.ndarray = quotes[firsts[rows][:, None] + np.arange(count)]
    return found


def _cut(
    begins: np.ndarray, ends: np.ndarray, quotes: np.ndarray, layout: QuoteLayout, members: Sequence[FlatMember]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bounds of the runs and values of each row, and the rows that have room for them."""
    bounds = np.empty((len(begins), 2 * len(layout.runs)), np.int32)
    bounds[:, 0] = at = begins
    seen = 0
    for index, (member, (run, after)) in enumerate(zip(members, pairwise(layout.runs), strict=True)):
        seen += run.count(b'"')
        bounds[:, 2 * index + 1] = at + len(run)
        if member.pattern is None:
            at = quotes[:, seen]
        else:
            # The text after a number ends where the next name begins, or with the message.
            at = (quotes[:, seen] if seen < layout.quotes else ends) - len(after.split(b'"')[0])
        bounds[:, 2 * index + 2] = at
    bounds[:, -1] = ends
    good = (np.diff(bounds, axis=1) >= 0).all(axis=1)
    return bounds, good & (ends - at == len(layout.runs[-1]))


def _texts(data: np.ndarray, bounds: np.ndarray) -> pa.StringArray:
    """Parts of a text, each row followed by the text before the next row; nothing is copied."""
    flat = np.append(bounds.ravel(), bounds[-1:, -1])
    if not len(flat):
        return pa.array([], pa.string())
    return pa.StringArray.from_buffers(len(flat) - 1, pa.py_buffer(flat), pa.py_buffer(data))


def _equal(parts: pa.StringArray, rows: int, runs: Sequence[bytes]) -> np.ndarray:
    """Marks the rows that have exactly these runs, given that the lengths match."""
    places = np.arange(rows)[:, None] * (2 * len(runs)) + 2 * np.arange(len(runs))
    found = parts.take(pa.array(places.ravel())).buffers()[2]
    expected = np.frombuffer(b"".join(runs), np.uint8)
    there = np.frombuffer(found, np.uint8, rows * len(expected)) if rows else np.empty(0, np.uint8)
    same: np.ndarray = (there.reshape(rows, len(expected)) == expected).all(axis=1)
    return same


def _rows_of_odd(data: np.ndarray, bounds: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The rows, starting at a position, in which a quote may be part of a string, or a character is not allowed."""
    odd = places_of(data, _BACKSLASH)
    if data.min(initial=_FIRST_PRINTABLE) < _FIRST_PRINTABLE:
        odd = np.concatenate([odd, places_below(data, _FIRST_PRINTABLE)])
    rows = np.searchsorted(bounds, odd, side="right") - 1
    return np.unique(rows[odd >= begins[rows]])
