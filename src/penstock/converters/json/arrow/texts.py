"""Java's text of schemaless JSON messages, for sinks that write text.

The texts of objects that can be read as columns are made from these columns by Arrow. The other messages are parsed in
C and printed kind by kind in Python. Messages that the parser in C reads differently than Java are left to the code for
single messages.

Main function: ``json_texts``. Thread: any; pure functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.converters.json.arrow.objects import ObjectMessages
from penstock.pipeline.columns.texts.arrow import text_of
from penstock.pipeline.columns.texts.values import java_texts
from penstock.pipeline.plan.step import ReadAtOnce, Sorted, TextsAtOnce


def json_texts(column: pa.ChunkedArray, found: Sorted, read: Callable[[pa.ChunkedArray], ReadAtOnce]) -> TextsAtOnce:
    """The texts of messages.

    Args:
        column: The messages.
        found: The messages that were read as columns.
        read: Reads single messages as values.
    """
    left = np.ones(len(column), dtype=bool)
    place = np.empty(len(column), dtype=np.int64)
    chunks: list[pa.Array] = []
    count = 0
    for code in found.read:
        hint = found.hints[code]
        assert isinstance(hint, ObjectMessages), "nothing else is read of plain JSON"
        mine = np.arange(len(column)) if found.codes is None else np.flatnonzero(found.codes == code)
        _, objects = found.read_rows(code, mine)
        assert hint.side.carrier is not None, "an object has a carrier"
        texts = [text_of(chunk, hint.side.carrier, hint.side.physical) for chunk in objects.chunks]
        if any(one is None for one in texts):
            continue
        chunks += texts
        place[mine] = count + np.arange(len(mine))
        left[mine] = False
        count += len(mine)
    if not left.any():
        return TextsAtOnce(_placed(chunks, place))
    others = np.flatnonzero(left)
    texts_of_others, odd = _printed(read(column.take(pa.array(others)) if count else column))
    place[others] = count + np.arange(len(others))
    return TextsAtOnce(_placed([*chunks, texts_of_others], place), others[odd].tolist())


def _placed(chunks: list[pa.Array], place: np.ndarray) -> pa.ChunkedArray:
    texts = pa.chunked_array(chunks, pa.string())
    return texts if (np.diff(place) == 1).all() else texts.take(pa.array(place))


def _printed(found: ReadAtOnce) -> tuple[pa.Array, np.ndarray]:
    """The texts of values, null for None; and the positions of values that have to be read one by one."""
    nulls = np.array([value is None for value in found.values])
    try:
        texts = java_texts(found.values)
    except RecursionError:
        return pa.nulls(len(nulls), pa.string()), np.arange(len(nulls))
    return pa.array(texts, pa.string(), mask=nulls), np.asarray(found.odd, dtype=np.int64)
