"""Reads the schemaless JSON of many messages as Python values, for records.

A pattern over the whole column finds the messages that the parser in C may read differently than Java. These messages,
and messages that the parser rejects, are left to ``penstock.converters.json.values.schemaless``, one by one.

Main function: ``read_schemaless_column``. Thread: any; pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

#: A number that the parser may read differently than Java: minus zero, a number with an exponent, or one with more
#: digits than fit in 64 bits. A match inside a text only costs time.
_INEXACT: Final = r"(?:\A|[:,\[ \t\r\n])(?:-0|-?[0-9]{19}|-?[0-9]+(?:\.[0-9]+)?[eE])"


def read_schemaless_column(column: pa.ChunkedArray, others: Sequence[int] = ()) -> tuple[list[object], list[int]]:
    """The values of many messages, the same as ``read_schemaless`` returns; None for null.

    Args:
        column: The messages.
        others: The positions of messages that are not read in any case.

    Returns:
        The values, and the ascending positions of messages that ``read_schemaless`` has to read, whose values are None
        here.
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
    # One function call for each message would take as long as the parser.
    keep, parse = values.append, orjson.loads
    for row, message in enumerate(column.to_pylist()):
        try:
            keep(parse(message))
        except orjson.JSONDecodeError:
            keep(None)
            odd.append(row)
    return values, sorted(odd)
