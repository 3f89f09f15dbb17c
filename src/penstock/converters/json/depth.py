"""Finds JSON messages that are nested too deeply, before anything parses them.

The length of a message, or for long messages the number of opening brackets, decides nearly all cases: both take one
pass in C over the column. Only the remaining messages are checked one by one.

Main functions: ``without_deep`` (of a column) and ``is_too_deep`` (of one message). Thread: any.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.columns.layout import bytes_of, offsets_of, places_of
from penstock.pipeline.columns.nesting import MAX_LEVELS

TOO_DEEP: Final = f"the message has more than {MAX_LEVELS} levels of nesting"

_STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|$)', re.DOTALL)
_STEPS: Final = np.zeros(256, dtype=np.int32)
_STEPS[list(b"{[")] = 1
_STEPS[list(b"}]")] = -1


def without_deep(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, np.ndarray | None]:
    """Replaces messages that are nested too deeply by null.

    Returns:
        The column, and the replaced rows; None = no rows.
    """
    long = np.flatnonzero(pc.greater(pc.binary_length(column), MAX_LEVELS).fill_null(False).to_numpy())
    if not len(long):
        return column, None
    found = column if len(long) == len(column) else column.take(pa.array(long))
    many = long[np.concatenate([_opened(chunk) for chunk in found.chunks]) > MAX_LEVELS]
    deep = [row for row in many.tolist() if is_too_deep(column[row].as_py())]
    if not deep:
        return column, None
    mask = np.zeros(len(column), dtype=np.bool_)
    mask[deep] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, column.type), column), np.array(deep)


def _opened(chunk: pa.BinaryArray) -> np.ndarray:
    """Counts the opening brackets of each message, including those in strings."""
    if not len(chunk):
        return np.empty(0, np.int64)
    bounds = offsets_of(chunk)
    # The two brackets differ only in this bit.
    places = places_of(bytes_of(chunk), ord("[") & ord("{"), mask=0xFF ^ (ord("[") ^ ord("{")))
    return np.diff(np.searchsorted(places, bounds - bounds[0]))


def is_too_deep(message: bytes) -> bool:
    """True if a message is nested too deeply."""
    return message.count(b"{") + message.count(b"[") > MAX_LEVELS and levels(message) > MAX_LEVELS


def levels(message: bytes) -> int:
    """Counts the levels of nested objects and arrays in a text, whether it is JSON or not.

    >>> levels(b'{"a[[[": [1, {"\\\\"{": 2}]}'), levels(b"[]"), levels(b"1")
    (3, 1, 0)
    """
    steps = _STEPS[np.frombuffer(_STRINGS.sub(b"", message), dtype=np.uint8)]
    return int(np.cumsum(steps).max(initial=0))
