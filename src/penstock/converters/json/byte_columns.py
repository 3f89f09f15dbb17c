"""Converts columns of JSON messages to plain UTF-8, and remembers which kinds of messages a shortcut fits.

One scan of the bytes confirms nearly all messages (``plain_column``); ``plain_bytes`` corrects or rejects the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.converters.json.plain_bytes import (
    COVERED,
    ESCAPE,
    LIKE_NUMBERS,
    MARKS,
    MAX_NAME_LENGTH,
    MAX_NUMBER_LENGTH,
    STEP,
    UnreadableBytesError,
    is_utf8,
    plain_json,
)
from penstock.pipeline.columns.sizes import bytes_of, places_of

_QUOTE, _BACKSLASH = 0x22, 0x5C
_IN_NUMBERS: Final = np.frombuffer(LIKE_NUMBERS, np.uint8) == ord("1")
_IS_8_TO_F: Final = np.frombuffer(bytes(byte in b"89abcdefABCDEF" for byte in range(256)), bool)
_IS_C_TO_F: Final = np.frombuffer(bytes(byte in b"cdefCDEF" for byte in range(256)), bool)


@dataclass(frozen=True)
class PlainMessages:
    """Messages in plain UTF-8.

    Attributes:
        column: The messages; rejected ones are null.
        refused: The rejected rows, by reason.
        changed: True if some contained half of a surrogate pair, which columns cannot hold: it became ``?``.
    """

    column: pa.ChunkedArray
    refused: Mapping[str, list[int]] = field(default_factory=dict)
    changed: bool = False


def plain_column(column: pa.ChunkedArray) -> PlainMessages:
    """The messages of a column, ready for reading as columns."""
    found: dict[int, bytes | None] = {}
    refused: dict[str, list[int]] = {}
    changed = False
    for row in odd_rows(column):
        message = column[row].as_py()
        try:
            plain = plain_json(message)
        except UnreadableBytesError as error:
            refused.setdefault(str(error), []).append(row)
            found[row] = None
            continue
        marked = ESCAPE.sub(lambda escape: escape[0] if escape[1] is None else b"?", plain)
        changed = changed or marked != plain
        if marked != message:
            found[row] = marked
    return PlainMessages(with_rows(column, found), refused, changed)


def with_rows(column: pa.ChunkedArray, rows: Mapping[int, bytes | None]) -> pa.ChunkedArray:
    """The column with other messages in some rows."""
    if not rows:
        return column
    order = np.arange(len(column))
    order[list(rows)] = len(column) + np.arange(len(rows))
    return pa.chunked_array([*column.chunks, pa.array(rows.values(), column.type)]).take(pa.array(order))


def odd_rows(column: pa.ChunkedArray) -> list[int]:
    """The rows of messages that may not be plain, ascending; includes few plain ones."""
    odd: list[int] = []
    start = 0
    for chunk in column.chunks:
        odd += [start + row for row in _odd_rows(chunk)]
        start += len(chunk)
    return odd


def _odd_rows(chunk: pa.BinaryArray) -> list[int]:
    """The rows that may not be plain; includes few plain ones."""
    if not len(chunk):
        return []
    offsets = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = bytes_of(chunk)
    if not len(data):
        return []
    bounds = offsets.astype(np.int64) - offsets[0]
    odd = np.zeros(len(chunk), dtype=bool)
    if data.min() == 0:
        odd[_rows_of(places_of(data, 0), bounds)] = True
    if data.max() >= 0x80:
        there = bounds[:-1] < bounds[1:]
        odd[np.flatnonzero(there)[np.isin(data[bounds[:-1][there]], MARKS)]] = True
        odd |= _are_not_utf8(chunk)
    odd[_rows_of(_places_of_halves(data), bounds)] = True
    longest = int(np.diff(bounds).max())
    if longest > MAX_NUMBER_LENGTH:
        odd[_rows_of(_places_in_long_numbers(data), bounds)] = True
    if longest > MAX_NAME_LENGTH:
        odd[_rows_of(_places_in_long_strings(data), bounds)] = True
    if chunk.null_count:
        odd &= chunk.is_valid().to_numpy(zero_copy_only=False)
    rows: list[int] = np.flatnonzero(odd).tolist()
    return rows


def _rows_of(places: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return np.unique(np.searchsorted(bounds, places, side="right") - 1)


def _are_not_utf8(chunk: pa.BinaryArray) -> np.ndarray:
    try:
        chunk.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([one is not None and not is_utf8(one) for one in chunk.to_pylist()])
    return np.zeros(len(chunk), dtype=bool)


def _places_of_halves(data: np.ndarray) -> np.ndarray:
    """Returns where escapes may be half of a surrogate pair; includes whole pairs after a backslash."""
    places = places_of(data, _BACKSLASH)
    if not len(places):
        return places
    # Bytes after the end of the data are not part of an escape.
    ahead = np.append(data, np.zeros(12, np.uint8)) if places[-1] + 12 >= len(data) else data
    surrogates = (ahead[places + 1] == ord("u")) & ((ahead[places + 2] | 0x20) == ord("d"))
    places = places[surrogates & _IS_8_TO_F[ahead[places + 3]]]
    low = _IS_C_TO_F[ahead[places + 3]]
    paired = np.zeros(len(places), dtype=bool)
    both = ~low[:-1] & low[1:] & (np.diff(places) == 6)
    paired[:-1] |= both
    paired[1:] |= both
    suspect: np.ndarray = places[~paired | ((places > 0) & (data[places - 1] == _BACKSLASH))]
    return suspect


def _places_in_long_numbers(data: np.ndarray) -> np.ndarray:
    """The positions at which several bytes, one step apart, are all characters of numbers."""
    looked_at = _IN_NUMBERS[data[::STEP]]
    sums = np.cumsum(np.concatenate([[0], looked_at]))
    firsts = np.flatnonzero(sums[COVERED:] - sums[:-COVERED] == COVERED)
    # A number that is too long covers all of these, and the last one is in its own message.
    return (firsts + COVERED - 1) * STEP


def _places_in_long_strings(data: np.ndarray) -> np.ndarray:
    """Ends of strings, or of texts between two strings, that are longer than a name may be."""
    quotes = places_of(data, _QUOTE)
    quotes = quotes[(quotes == 0) | (data[quotes - 1] != _BACKSLASH)]
    ends: np.ndarray = quotes[1:][np.diff(quotes) > MAX_NAME_LENGTH]
    return ends


#: The number of batches that are not tried after one with too few matches.
_PAUSE: Final = 50


_MAX_KNOWN: Final = 1_000


class ShortcutMemory:
    """Remembers by key (a schema, for example) where a fast path has left too many messages.

    Args:
        worth: The fast path was not worthwhile if it left more than one in ``worth`` messages.

    >>> tries = ShortcutMemory(2)
    >>> tries.worth("schema")
    True
    >>> tries.note("schema", left=600, rows=1000)
    False
    >>> [tries.worth("schema") for _ in range(51)].index(True)
    50
    """

    def __init__(self, worth: int) -> None:
        self._worth = worth
        self._pause: dict[Hashable, int] = {}

    def worth(self, key: Hashable) -> bool:
        """True if the fast path should be tried for this batch."""
        left = self._pause.pop(key, 0)
        if left > 1:
            self._pause[key] = left - 1
        return not left

    def note(self, key: Hashable, left: int, rows: int) -> bool:
        """Records how many messages the fast path has left; True if it was worthwhile."""
        good = left * self._worth <= rows
        if not good:
            if len(self._pause) >= _MAX_KNOWN:
                self._pause.clear()
            self._pause[key] = _PAUSE
        return good
