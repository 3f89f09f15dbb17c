"""The input and output of a job: groups of records, the final columns, and their interpretation for each group.

For sinks, a plan does not return keys or values that no step changes, but only their lengths: returning rows is half of
a plan's work, and more for texts of 1 KB. The outcome then uses the input column.

Main types: ``ShapeGroup`` (records of one shape that take the same steps), ``GroupOutcome`` (the result of a group) and
``OutcomeLeaf`` (a leaf of a group's chain, in which records may end). Main functions: ``unchanged`` (the outcome of a
group without steps), ``final_columns`` (ends to columns) and ``outcomes_of`` (rows to outcomes).

Thread: pure functions; columns are made while a session is up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.data import Type
from penstock.pipeline.columns.layout import LayoutKind, spark_type
from penstock.pipeline.plan.chain import FaultPlace, Leaf, Staged, input_column
from penstock.pipeline.plan.step import Shape, Side

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class ShapeGroup:
    """Records of one shape that take the same steps.

    Attributes:
        steps: The steps.
        shape: The shape of the input.
        rows: Their positions in the batch; None = the whole batch.
        columns: The columns ``key`` and ``value``, as long as ``rows``, unless they are absent.
        carry: Columns of the record to return although no step changes them.
    """

    steps: tuple[Staged, ...]
    shape: Shape
    rows: np.ndarray | None
    columns: Mapping[str, pa.ChunkedArray | pa.Array]
    carry: frozenset[str] = frozenset()

    def size(self, batch_rows: int) -> int:
        """Returns the number of records."""
        return batch_rows if self.rows is None else len(self.rows)


def unchanged(group: ShapeGroup, shared: Mapping[str, pa.Array | pa.ChunkedArray]) -> GroupOutcome:
    """Returns the outcome of a group without steps, for which no plan is needed.

    Args:
        group: The records.
        shared: The other columns of the record, for the whole batch.
    """
    carried = {name: shared[name] for name in group.carry}
    if group.rows is not None:
        carried = {name: column.take(pa.array(group.rows)) for name, column in carried.items()}
    columns = {
        name: column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        for name, column in {**group.columns, **carried}.items()
    }
    return GroupOutcome(group.rows, group.shape, columns, None, None, {})


_SIDES: Final = ("key", "value")
#: The columns of a record that come back where a step changed them.
OTHERS: Final = ("topic", "partition", "timestamp", "headers")


@dataclass(frozen=True)
class GroupOutcome:
    """The result of a group, or of a part of it that ended in another shape than the rest.

    Attributes:
        rows: Positions in the batch, in order; None = the whole batch.
        shape: The shape of the output.
        columns: What the job returned of the record: keys and values unless absent, others where a step changed them.
        error: ``struct<place, message>`` where a record failed, or None.
        dropped: True where a record was filtered, or None.
        places: What ``place`` refers to.
    """

    rows: np.ndarray | None
    shape: Shape
    columns: Mapping[str, pa.ChunkedArray]
    error: pa.ChunkedArray | None
    dropped: pa.ChunkedArray | None
    places: Mapping[int, FaultPlace]


@dataclass(frozen=True)
class OutcomeLeaf:
    """One leaf of one of the groups of a job: when it is taken and how its columns are called in the output."""

    taken: Column | None
    leaf: Leaf
    slot: int
    suffix: str = ""

    def changes(self, name: str) -> bool:
        """True if a step has changed a side, or there is none."""
        return name in self.leaf.changed or getattr(self.leaf.shape, name).absent


def final_columns(ends: Sequence[OutcomeLeaf], apart: bool, changed: set[str]) -> list[Column]:
    """Returns the columns that are selected last: keys, values, other changed columns, and the record's result."""
    final: list[Column] = []
    for name in _SIDES:
        if apart:
            final += [
                _handed_back(end, name).alias(f"{name}_{index}")
                for index, end in enumerate(ends)
                if not getattr(end.leaf.shape, name).absent
            ]
        elif any(not getattr(end.leaf.shape, name).absent for end in ends):
            written = [getattr(end.leaf.record, name) for end in ends]
            if len(ends) > 1:
                written = [column.cast("binary") for column in written]
            final.append(_choose(ends, written).alias(name))
    final += [_choose(ends, [getattr(end.leaf.record, name) for end in ends]).alias(name) for name in sorted(changed)]
    if apart and len(ends) > 1:
        final.append(_choose(ends, [F.lit(index) for index in range(len(ends))]).alias("leaf"))
    if any(end.leaf.error is not None for end in ends):
        final.append(_choose(ends, [_or_null(end.leaf.error) for end in ends]).alias("error"))
    if any(end.leaf.dropped is not None for end in ends):
        final.append(_choose(ends, [_or_null(end.leaf.dropped) for end in ends]).alias("dropped"))
    return final or [F.lit(None).cast("boolean").alias("dropped")]


def _handed_back(end: OutcomeLeaf, name: str) -> Column:
    column, side = getattr(end.leaf.record, name), getattr(end.leaf.shape, name)
    if end.changes(name):
        return collectable(column, side)
    has_length = side.physical.form is LayoutKind.SCALAR and side.carrier.type in (Type.STRING, Type.BYTES)
    return F.octet_length(column) if has_length else column.isNull()


def collectable(column: Column, side: Side) -> Column:
    """A column that toArrow takes: built structs made optional at every depth, no VARIANT that is null."""
    if side.is_variant:
        return F.coalesce(column, F.parse_json(F.lit("null")))
    if side.physical.form in (LayoutKind.SCALAR, LayoutKind.DECIMAL):
        return column
    return column.cast(spark_type(side.carrier, side.physical))


def _or_null(column: Column | None) -> Column:
    return F.lit(None) if column is None else column


def _choose(ends: Sequence[OutcomeLeaf], columns: Sequence[Column]) -> Column:
    if len(ends) == 1:
        return columns[0]
    chosen: Column | None = None
    for end, column in zip(ends, columns, strict=True):
        condition = F.lit(True) if end.taken is None else end.taken
        chosen = F.when(condition, column) if chosen is None else chosen.when(condition, column)
    assert chosen is not None
    return chosen


def outcomes_of(
    output: pa.Table,
    given: pa.Table | None,
    rows: np.ndarray | None,
    ends: Sequence[OutcomeLeaf],
    places: Mapping[int, FaultPlace],
    *,
    apart: bool,
) -> list[GroupOutcome]:
    """Returns the outcomes of the groups of a job.

    Args:
        output: Its rows, with the columns of ``final_columns``.
        given: What it was given, row by row the same; None where ends are not apart.
        rows: The position in the batch of each; None = all rows of the batch, in order.
        ends: Where its records may end.
        places: Where its faults arise.
        apart: Whether ends of different shapes have columns of their own.
    """
    if not apart:
        return [replace(outcome_of_bytes(output, ends[0].leaf.shape, places), rows=rows)]
    others, error, dropped = _beside(output)
    if len(ends) == 1:
        sides = _sides_of(output, given, ends[0], 0)
        return [GroupOutcome(rows, ends[0].leaf.shape, sides | others, error, dropped, places)]
    leaves = output.column("leaf").to_numpy()
    found: list[GroupOutcome] = []
    for index, end in enumerate(ends):
        mine = np.flatnonzero(leaves == index)
        if not len(mine):
            continue
        pick = pa.array(mine)
        sides = _sides_of(output, given, end, index)
        columns = {name: column.take(pick) for name, column in (sides | others).items()}
        positions = mine if rows is None else rows[mine]
        own_error = None if error is None else error.take(pick)
        own_dropped = None if dropped is None else dropped.take(pick)
        found.append(GroupOutcome(positions, end.leaf.shape, columns, own_error, own_dropped, places))
    return found


def outcome_of_bytes(output: pa.Table, shape: Shape, places: Mapping[int, FaultPlace]) -> GroupOutcome:
    """Returns the outcome of a whole batch whose steps end with bytes.

    Args:
        output: Its rows, with the columns of ``final_columns``.
        shape: What came out.
        places: Where its faults arise.
    """
    others, error, dropped = _beside(output)
    sides = {name: _bytes_of(output.column(name)) for name in _SIDES if name in output.column_names}
    return GroupOutcome(None, shape, sides | others, error, dropped, places)


def _beside(output: pa.Table) -> tuple[dict[str, pa.ChunkedArray], pa.ChunkedArray | None, pa.ChunkedArray | None]:
    """The columns besides keys and values; errors and dropped rows only if there are some."""
    others = {name: output.column(name) for name in OTHERS if name in output.column_names}
    error = output.column("error") if "error" in output.column_names else None
    if error is not None and error.null_count == len(error):
        error = None
    dropped = output.column("dropped") if "dropped" in output.column_names else None
    if dropped is not None and not pc.any(dropped).as_py():
        dropped = None
    return others, error, dropped


def _bytes_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column


def _sides_of(output: pa.Table, given: pa.Table | None, end: OutcomeLeaf, index: int) -> dict[str, pa.ChunkedArray]:
    names = set(output.column_names)
    assert given is not None, "ends are apart"
    return {
        name: output.column(f"{name}_{index}") if end.changes(name) else given.column(input_column(name, end.suffix))
        for name in _SIDES
        if f"{name}_{index}" in names
    }
