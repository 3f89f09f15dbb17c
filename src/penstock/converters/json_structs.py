"""JSON objects of known members, read by Arrow.

Spark's ``from_json`` makes a parser, a decoder and buffers of 12 KB for each message: two microseconds in a warm JVM,
ten while it is still compiling; VARIANT takes more. Arrow reads a batch as one text in a third of that, without
Python's lock. It is asked for what a pattern has matched alone. A pattern leaves no room for what parsers read in
different ways: half of a surrogate pair, large and leading digits, minus zero, members that are missing, double or in
another order. Matching is one pass of RE2: a third of a microsecond a message.

Main functions: ``object_pattern`` and ``matches`` (what may be read), ``read_structs``, ``bound_of``. Thread: pure
functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock.pipeline.columns.text_bounds import bytes_of, has_byte
from penstock.pipeline.columns.types import TextBound

SPACE: Final = "[ \\t\\r\\n]*"
_ESCAPE: Final = '\\\\(?:["\\\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))'
STRING: Final = f'"(?:[^"\\\\\\x00-\\x1f]|{_ESCAPE})*"'
BOOLEAN: Final = "true|false"
REAL: Final = "-?[1-9][0-9]{0,14}\\.[0-9]{1,17}|0\\.[0-9]{1,17}|-0\\.0{0,8}[1-9][0-9]{0,8}"
#: Numbers as Java writes doubles that are large or small.
SCIENTIFIC: Final = "-?[1-9]\\.[0-9]{1,17}E-?[0-9]{1,2}"

_FIRST_BEYOND_BMP: Final = 0xF0
_BACKSLASH: Final = ord("\\")


def whole(digits: int) -> str:
    """The pattern of whole numbers of up to so many digits."""
    return f"0|-?[1-9][0-9]{{0,{digits - 1}}}"


def object_pattern(members: Iterable[tuple[str, str]]) -> str:
    """The pattern of objects.

    Args:
        members: Name and pattern of the value of each, in order.
    """
    parts = [f'"{re.escape(name)}"{SPACE}:{SPACE}(?:{value})' for name, value in members]
    return f"\\{{{SPACE}{f'{SPACE},{SPACE}'.join(parts)}{SPACE}\\}}"


def matches(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Which texts are all of this pattern, space around it aside; null stays null."""
    return pc.match_substring_regex(texts, f"\\A{SPACE}{pattern}{SPACE}\\z")


def bound_of(texts: pa.ChunkedArray) -> TextBound:
    """What holds for all strings in texts that match a pattern."""
    bound = TextBound.CLEAN
    for chunk in texts.chunks:
        found = bytes_of(chunk)
        if found.max(initial=0) >= _FIRST_BEYOND_BMP:
            return TextBound.ANY
        if has_byte(found, _BACKSLASH):
            bound = TextBound.BMP
    return bound


def read_structs(texts: pa.ChunkedArray, kind: pa.StructType, *, inside: str | None = None) -> pa.StructArray:
    """The objects that these texts are.

    Args:
        texts: Strings, each a JSON object with members of ``kind`` alone; null stays null.
        kind: Their members, all of which may be null.
        inside: The texts are the rest of an object, behind the name of this member of it, the last one, and the colon.

    Returns:
        As many structs, in the same order.
    """
    rows = len(texts)
    before, nothing = ("", "{}") if inside is None else (f'{{"{inside}":', "{}}")
    given = pc.fill_null(texts, nothing).combine_chunks()
    whole_text = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), given)
    joined = memoryview(pc.binary_join(whole_text, f"\n{before}")[0].as_buffer())
    if before:
        joined = memoryview(b"".join((before.encode(), joined)))
    read = cast("pa.StructType", _with_doubles(kind))
    members = list(read) if inside is None else [pa.field(inside, read)]
    table = pj.read_json(
        pa.BufferReader(joined),
        # One block, on this thread: the other core has the batch before.
        pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
        pj.ParseOptions(explicit_schema=pa.schema(members), newlines_in_values=True, unexpected_field_behavior="error"),
    )
    assert table.num_rows == rows, "one object a text"
    columns = [column.combine_chunks() for column in table.columns]
    if inside is not None:
        columns = columns[0].flatten()
    mask = pc.is_null(texts).combine_chunks() if texts.null_count else None
    found = pa.StructArray.from_arrays(columns, fields=list(read), mask=mask)
    return cast("pa.StructArray", found if read.equals(kind) else found.cast(kind, safe=False))


def _with_doubles(kind: pa.DataType) -> pa.DataType:
    """A type with doubles for floats: Java reads a number as a double first."""
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_with_doubles(one.type)) for one in kind])
    return kind
