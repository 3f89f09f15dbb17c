"""Compiles a run of steps into Spark projections: once for each shape of records; every batch reuses the result.

A compiled run is a list of layers, each one projection, and one or more leaves. There is one leaf unless a step
splits (its output schema depends on the record); then the later steps are compiled for each branch, and a record
belongs to the leaf of its branch. Column names end in the suffix of their group, so that the groups of a batch can
share one job. For sinks, a plan does not return keys or values that no step changes, but only their lengths: returning
rows is half of a plan's work, and more for texts of 1 KB. The outcome then uses the input column.

Thread: made on a pipeline thread while a session is up; holds columns of that session and is immutable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.data import Type
from penstock.errors import as_exception, java_class_name
from penstock.pipeline.columns.layout import LayoutKind, spark_type
from penstock.pipeline.plan.step import (
    BAG_COLUMNS,
    NOTHING,
    SIDES,
    Branch,
    ColumnPredicate,
    FoundByTopic,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    Side,
    Split,
    Step,
    StepFault,
    StepPlan,
    TopicLookup,
    TopicPredicate,
    TopicRoute,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

log = logging.getLogger(__name__)

#: Columns of a group that are not part of the record: which of the groups sharing a job a row belongs to.
GROUP_COLUMN = "group"
#: The places of the group in slot n are numbered from n times this on.
MAX_PLACES = 10_000


@dataclass(frozen=True)
class Staged:
    """A step of a chain and how its failures are reported."""

    step: Step
    stage: str
    executing_class: str


@dataclass(frozen=True)
class FaultPlace:
    """The place where a fault arises; the error column of a job holds its index."""

    stage: str
    executing_class: str
    exception_class: str
    position: int
    advice: str | None = None


@dataclass(frozen=True)
class Leaf:
    """One outcome of a compiled run.

    Attributes:
        guard: True for the records that end here; None = all (that are not in an earlier leaf).
        changed: Names of the columns of the record that differ from the input.
        error: ``struct<place int, message string>`` or null; None = nothing can go wrong.
        dropped: True for filtered records; None = none is.
    """

    guard: Column | None
    shape: Shape
    record: RecordColumns
    changed: frozenset[str]
    error: Column | None
    dropped: Column | None


@dataclass(frozen=True)
class Compiled:
    """A run of steps for one shape.

    Attributes:
        layers: Projections in order; each adds its columns to those there are.
        leaves: The outcomes, in order of precedence.
        places: What ``error.place`` refers to.
        lookups: What it needs to have found for each topic.
    """

    layers: Sequence[Sequence[Column]]
    leaves: Sequence[Leaf]
    places: Sequence[FaultPlace]
    reads: frozenset[str]
    lookups: frozenset[TopicLookup]
    suffix: str = ""


@dataclass
class _Program:
    """The state of the compilation of a run."""

    suffix: str
    layers: list[list[Column]] = field(default_factory=list)
    base: int = 0
    places: list[FaultPlace] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    names: int = 0
    # Columns of the input and of the layers: references, not expressions.
    named: list[Column] = field(default_factory=list)
    lookups: dict[TopicLookup, FoundByTopic] = field(default_factory=dict)

    def place(self, staged: Staged, fault: StepFault, position: int) -> int:
        place = FaultPlace(staged.stage, staged.executing_class, fault.exception, position, fault.advice)
        self.places.append(place)
        return self.base + len(self.places) - 1

    def by_topic(self, routes: tuple[TopicRoute, ...] | None, asked: TopicRoute | TopicPredicate) -> FoundByTopic:
        assert routes is not None, "a segment begins in front of such a step (segments.py)"
        lookup = TopicLookup(routes, asked)
        if lookup not in self.lookups:
            self.lookups[lookup] = lookup.in_plan()
            self.named.append(self.lookups[lookup].value)
        return self.lookups[lookup]


@dataclass
class _Path:
    """One branch while it is compiled: where it is and what has been found so far."""

    program: _Program
    shape: Shape
    record: RecordColumns
    # What has renamed the topics so far; None where other things than the topic itself count.
    routes: tuple[TopicRoute, ...] | None = ()
    level: int = 0
    changed: frozenset[str] = frozenset()
    guard: Column | None = None
    errors: tuple[Column, ...] = ()
    dropped: Column | None = None

    def keep(self, column: Column) -> Column:
        program = self.program
        # A projection that only renames costs Spark an analysis for each batch, and says nothing.
        if any(column is one for one in program.named):
            return column
        while len(program.layers) <= self.level:
            program.layers.append([])
        name = f"k{program.names}{program.suffix}"
        program.names += 1
        program.layers[self.level].append(column.alias(name))
        self.level += 1
        named = F.col(name)
        program.named.append(named)
        return named


def input_column(name: str, suffix: str) -> str:
    """The name of a column in the input of a group: keys and values differ in type, so each group has its own."""
    return f"{name}{suffix}" if name in ("key", "value") else name


def compile_steps(steps: Sequence[Staged], shape: Shape, slot: int | None = None) -> Compiled:
    """Plans the steps for one shape; ``slot`` is the number of the group in a shared job. Runs no job."""
    suffix = "" if slot is None else f"_{slot}"
    program = _Program(suffix, base=(slot or 0) * MAX_PLACES)
    sides = {"key": shape.key, "value": shape.value}
    columns = {
        name: F.lit(None) if name in sides and sides[name].absent else F.col(input_column(name, suffix))
        for name in BAG_COLUMNS
    }
    program.named += columns.values()
    record = RecordColumns(**columns, by_topic=partial(program.by_topic, ()))
    _walk(list(enumerate(steps)), _Path(program, shape, record))
    return Compiled(
        tuple(tuple(layer) for layer in program.layers),
        tuple(program.leaves),
        tuple(program.places),
        frozenset(program.reads),
        frozenset(program.lookups),
        suffix,
    )


def _walk(steps: list[tuple[int, Staged]], path: _Path) -> None:
    for index, (position, staged) in enumerate(steps):
        assert staged.step.takes(path.shape), "such records go another way (pipeline.batch.groups)"
        try:
            plan = staged.step.plan(path.shape)
        except BaseException as error:
            log.debug("%s cannot take records of this shape: %s", staged.executing_class, error)
            _fail(path, staged, position, as_exception(error))
            return
        if isinstance(plan, Split):
            _branch(plan, steps[index + 1 :], (position, staged), path)
            return
        _apply(plan, staged, position, path)
    _end(path)


def _apply(plan: StepPlan, staged: Staged, position: int, path: _Path) -> None:
    record = path.record
    path.program.reads |= plan.reads
    made = plan.make(record, path.keep)
    for fault in made.faults:
        _note(fault, staged, position, path)
    if made.drops is not None:
        drops = F.coalesce(made.drops, F.lit(False))
        path.dropped = drops if path.dropped is None else path.dropped | drops
    columns = dict(made.columns)
    for name in SIDES:
        # A struct of fields of a struct of fields ... would be written out once for each field at each depth.
        if name in columns and name in path.changed and plan.shape.side(name).physical.children:
            columns[name] = path.keep(columns[name])
    if "topic" in plan.writes:
        step, routes = staged.step, path.routes
        path.routes = (*routes, step) if isinstance(step, TopicRoute) and routes is not None else None
        record = replace(record, by_topic=partial(path.program.by_topic, path.routes))
    path.record = record.with_columns(columns)
    path.changed |= plan.writes | columns.keys()
    path.shape = plan.shape if staged.step.bounds_text else plan.shape.without_bounds(plan.writes)


def _note(fault: StepFault, staged: Staged, position: int, path: _Path) -> None:
    place = path.program.place(staged, fault, position)
    message = F.lit(fault.message) if isinstance(fault.message, str) else fault.message
    error = F.struct(F.lit(place).alias("place"), message.cast("string").alias("message"))
    conditions = [] if fault.condition is None else [fault.condition]
    if path.dropped is not None:
        conditions.append(~path.dropped)
    for condition in conditions:
        error = F.when(condition, error)
    path.errors = (*path.errors, error)


def _fail(path: _Path, staged: Staged, position: int, error: Exception) -> None:
    """Every record of this shape fails here."""
    _note(StepFault(None, str(error), java_class_name(error)), staged, position, path)
    path.shape = replace(path.shape, key=NOTHING, value=NOTHING)
    path.record = path.record.with_columns({"key": F.lit(None), "value": F.lit(None)})
    path.changed |= {"key", "value"}
    _end(path)


def _branch(split: Split, rest: list[tuple[int, Staged]], here: tuple[int, Staged], path: _Path) -> None:
    taken: Column | None = None
    for branch in split.branches:
        path.program.reads |= branch.reads
        guard = path.guard
        if branch.condition is not None:
            condition = path.keep(F.coalesce(branch.condition(path.record), F.lit(False)))
            guard = condition if guard is None else guard & condition
            taken = condition if taken is None else taken | condition
        way = replace(path, guard=guard)
        _apply(branch.plan, here[1], here[0], way)
        _walk(rest, way)


def _end(path: _Path) -> None:
    error = None
    if path.errors:
        # Built structs have required fields, which toArrow refuses next to a null struct: the cast makes them optional.
        error = F.coalesce(*path.errors, F.lit(None)).cast("struct<place:int,message:string>")
    leaf = Leaf(path.guard, path.shape, path.record, path.changed, error, path.dropped)
    path.program.leaves.append(leaf)


@dataclass(frozen=True)
class Conditional(Step):
    """A step that runs only where a predicate holds (or, negated, does not).

    Where both ways give one shape, columns are chosen record by record; otherwise the chain is split.
    """

    step: Step
    predicate: ColumnPredicate
    negate: bool = False

    @property
    def bounds_text(self) -> bool:  # type: ignore[override]
        return self.step.bounds_text

    @property
    def changes_topic(self) -> bool:  # type: ignore[override]
        return self.step.changes_topic

    @property
    def asks_of_topic(self) -> bool:  # type: ignore[override]
        return self.step.asks_of_topic or self.predicate.asks_of_topic

    def takes(self, shape: Shape) -> bool:
        return self.step.takes(shape) and self.predicate.takes(shape)

    def _inner(self, shape: Shape) -> StepPlan | Split:
        try:
            return self.step.plan(shape)
        except BaseException as error:
            # It fails where the predicate holds; the other records never come to it.
            log.debug("%s cannot take records of this shape: %s", self.step, error)
            fault = StepFault(None, str(error), java_class_name(error))
            return StepPlan(shape, lambda record, keep: Made(faults=(fault,)))

    def plan(self, shape: Shape) -> StepPlan | Split:
        """One branch for records that the predicate holds for; all others pass unchanged."""
        inner = self._inner(shape)
        holds = partial(self._holds, shape)
        reads = frozenset(self.predicate.reads)
        unchanged = Branch(None, self._asked(StepPlan(shape)))
        if isinstance(inner, Split):
            branches = [
                Branch(_both(holds, one.condition), self._asked(one.plan), reads | one.reads) for one in inner.branches
            ]
            return Split([*branches, unchanged])
        both = _one_shape(inner.shape, shape)
        if both is None:
            return Split([Branch(holds, self._asked(inner), reads), unchanged])
        return self._asked(_chosen(replace(inner, shape=both), holds, reads))

    def _asked(self, plan: StepPlan) -> StepPlan:
        """The plan, and before its own faults those of the predicate."""

        def make(record: RecordColumns, keep: NameColumn) -> Made:
            made = plan.make(record, keep)
            return replace(made, faults=(*self.predicate.faults(record), *made.faults))

        return replace(plan, make=make)

    def _holds(self, shape: Shape, record: RecordColumns) -> Column:
        condition = self.predicate.condition(record, shape)
        return ~condition if self.negate else condition


def _one_shape(one: Shape, other: Shape) -> Shape | None:
    """Returns the common shape of two that differ at most in what is known of their text; otherwise None."""
    if one == other:
        return one
    bare = one.without_bounds(SIDES)
    return bare if bare == other.without_bounds(SIDES) else None


def _both(
    first: Callable[[RecordColumns], Column], second: Callable[[RecordColumns], Column] | None
) -> Callable[[RecordColumns], Column]:
    return first if second is None else lambda record: first(record) & second(record)


def _chosen(plan: StepPlan, holds: Callable[[RecordColumns], Column], reads: frozenset[str]) -> StepPlan:
    """A plan of one shape that does not change the records for which ``holds`` is false."""

    def make(record: RecordColumns, keep: NameColumn) -> Made:
        condition = keep(holds(record))
        made = plan.make(record, keep)
        columns = {
            name: F.when(condition, column).otherwise(getattr(record, name)) for name, column in made.columns.items()
        }
        faults = [
            replace(one, condition=condition if one.condition is None else condition & one.condition)
            for one in made.faults
        ]
        return Made(columns, faults, None if made.drops is None else condition & made.drops)

    return StepPlan(plan.shape, make, plan.reads | plan.writes | reads, plan.writes)


@dataclass(frozen=True)
class ShapeGroup:
    """Records of one shape that take the same steps.

    Attributes:
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
    """Returns the outcome of a group without steps, for which no plan is needed."""
    carried = {name: shared[name] for name in group.carry}
    if group.rows is not None:
        carried = {name: column.take(pa.array(group.rows)) for name, column in carried.items()}
    columns = {
        name: column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        for name, column in {**group.columns, **carried}.items()
    }
    return GroupOutcome(group.rows, group.shape, columns, None, None, {})


#: The columns of a record that come back where a step changed them.
OTHERS: Final = ("topic", "partition", "timestamp", "headers")


@dataclass(frozen=True)
class GroupOutcome:
    """The result of a group, or of a part of it that ended in another shape than the rest.

    Attributes:
        rows: Positions in the batch, in order; None = the whole batch.
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
    suffix: str = ""

    def changes(self, name: str) -> bool:
        """True if a step has changed a side, or there is none."""
        return name in self.leaf.changed or getattr(self.leaf.shape, name).absent


def final_columns(ends: Sequence[OutcomeLeaf], apart: bool, changed: set[str]) -> list[Column]:
    """Returns the columns that are selected last: keys, values, other changed columns, and the record's result."""
    final: list[Column] = []
    for name in SIDES:
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
    """Returns the outcome of a whole batch whose steps end with bytes; ``output`` as in ``outcomes_of``."""
    others, error, dropped = _beside(output)
    sides = {name: _bytes_of(output.column(name)) for name in SIDES if name in output.column_names}
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
        for name in SIDES
        if f"{name}_{index}" in names
    }
