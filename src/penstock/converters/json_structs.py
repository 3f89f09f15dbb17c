"""JSON objects of known members, read by Arrow.

Spark's ``from_json`` makes a parser, a decoder and buffers of 12 KB for each message: two microseconds in a warm JVM,
ten while it is still compiling. Arrow reads a batch as one text in a third of that, without Python's lock. It is asked
for what a pattern has matched alone (``json_objects.py``): of that no parser makes anything else.

Main function: ``read_structs``. Thread: a pure function.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj


def read_structs(texts: pa.ChunkedArray, kind: pa.StructType) -> pa.StructArray:
    """The objects that these texts are.

    Args:
        texts: Strings, each a JSON object with members of ``kind`` alone; null stays null.
        kind: Their members, all of which may be null.

    Returns:
        As many structs, in the same order.
    """
    rows = len(texts)
    given = pc.fill_null(texts, "{}").combine_chunks()
    whole = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), given)
    joined = pc.binary_join(whole, "\n")[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(joined),
        # One block, on this thread: the other core has the batch before.
        pj.ReadOptions(use_threads=False, block_size=joined.size + 1),
        pj.ParseOptions(
            explicit_schema=pa.schema(list(kind)), newlines_in_values=True, unexpected_field_behavior="error"
        ),
    )
    assert table.num_rows == rows, "one object a text"
    mask = pc.is_null(texts).combine_chunks() if texts.null_count else None
    members = [column.combine_chunks() for column in table.columns]
    return cast("pa.StructArray", pa.StructArray.from_arrays(members, fields=list(kind), mask=mask))
