"""Values that a plan leaves to the worker, value by value (``step.Left``): their columns, and what becomes of them.

Spark has no expression for some of what Java does, a ``java.util.Date`` of schemaless data as text say. Where one would
take a plan many times as large for values that hardly any batch has, the plan only finds them and hands them over, in a
column of its own that is NULL elsewhere.

Main functions: ``left_values`` (a column of the plan) and ``fill`` (what it made, completed). Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.pipeline.records import from_arrow
from penstock.pipeline.step import Left, SideName
from penstock.pipeline.variant_building import null_variant

if TYPE_CHECKING:
    from pyspark.sql import Column


def left_column(side: SideName, index: int) -> str:
    """What the column of a side is called, for the leaf of that index."""
    return f"left_{side}_{index}"


def left_values(left: Left, here: Column | None) -> Column:
    """The column: the values of the rows that end ``here`` (None: all do). A VARIANT has its own null for NULL."""
    column = left.column if here is None else F.when(here, left.column)
    return F.coalesce(column, null_variant()) if left.known.is_variant else column


def fill(
    columns: Mapping[str, pa.ChunkedArray], lefts: Sequence[Left], given: Mapping[SideName, pa.ChunkedArray]
) -> dict[str, pa.ChunkedArray]:
    """Puts what the worker makes in the place of what the plan has made.

    Args:
        columns: What it has made, by name.
        lefts: What it leaves.
        given: The values that are left, by side, in the same rows.
    """
    filled = dict(columns)
    for left in lefts:
        column = given[left.side]
        mask = _there(left, column)
        if not pc.any(mask).as_py():
            continue
        values = from_arrow(column.filter(mask), left.known.schema, left.known.physical)
        made = pa.array([left.make(value, left.known.schema) for value in values], pa.binary())
        whole = filled[left.side].combine_chunks()
        filled[left.side] = pa.chunked_array([pc.replace_with_mask(whole, mask, made.cast(whole.type))])
    return filled


def _there(left: Left, column: pa.ChunkedArray) -> pa.Array:
    if not left.known.is_variant:
        return column.is_valid().combine_chunks()
    # VARIANT's null is one byte; what is left has more.
    return pc.greater(pc.binary_length(pc.struct_field(column.combine_chunks(), "value")), 1)
