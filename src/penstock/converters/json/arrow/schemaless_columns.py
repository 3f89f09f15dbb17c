"""Schemaless JSON of many messages as Python values, for records.

A pattern over the whole column finds the messages that the parser in C may read in another way than Java. They, and
those that it refuses, are left to ``penstock.converters.json.values.schemaless``, one by one.

Main function: ``read_schemaless_column``. Thread: any; pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

#: A number that the parser may not read as Java does: minus zero, one with an exponent, or one of more digits than fit
#: in 64 bits. A text may hold the same, and is read by itself for nothing.
_INEXACT: Final = r"(?:\A|[:,\[ \t\r\n])(?:-0|-?[0-9]{19}|-?[0-9]+(?:\.[0-9]+)?[eE])"


def read_schemaless_column(column: pa.ChunkedArray, others: Sequence[int] = ()) -> tuple[list[object], list[int]]:
    """The values of many messages, as ``read_schemaless`` has them; None for null.

    Args:
        column: The messages.
        others: The positions of messages that are left in any case.

    Returns:
        The values, and in ascending order the positions of messages that ``read_schemaless`` has to read: None stands
        for their values.
    """
    rows = len(column)
    if column.null_count == rows:
        return [None] * rows, []
    inexact = pc.match_substring_regex(column, _INEXACT).fill_null(False)
    odd: list[int] = []
    if others or pc.any(inexact).as_py():
        left = inexact.to_numpy().astype(bool)
        left[np.asarray(others, dtype=np.int64)] = True
        odd = np.flatnonzero(left).tolist()
        column = pc.if_else(pa.array(left), pa.scalar(None, column.type), column)
    if column.null_count:
        column = column.fill_null(b"null")
    values: list[object] = []
    # A call of a function for each would take as long as the parser does.
    keep, parse = values.append, orjson.loads
    for row, message in enumerate(column.to_pylist()):
        try:
            keep(parse(message))
        except orjson.JSONDecodeError:
            keep(None)
            odd.append(row)
    return values, sorted(odd)
