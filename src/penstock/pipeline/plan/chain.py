"""Compiles a run of steps into Spark projections: once for each shape of records; every batch reuses the result.

Main types: ``Staged`` (a step and its position), ``compile_steps`` (steps and a shape to ``Compiled``), ``Compiled``
(the projections, the output columns and the possible errors).

A compiled run is a list of layers, each one projection, and one or more leaves. There is one leaf unless a step
splits (its output schema depends on the record); then the later steps are compiled for each branch, and a record
belongs to the leaf of its branch. Column names end in the suffix of their group, so that the groups of a batch can
share one job.

Thread: made on a pipeline thread while a session is up; holds columns of that session and is immutable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.errors import as_exception, java_class_name
from penstock.pipeline.plan.step import (
    BAG_COLUMNS,
    NOTHING,
    Branch,
    ColumnPredicate,
    Made,
    NameColumn,
    RecordColumns,
    Shape,
    SideName,
    Split,
    Step,
    StepFault,
    StepPlan,
)
from penstock.pipeline.plan.topics import FoundByTopic, TopicLookup, TopicPredicate, TopicRoute

if TYPE_CHECKING:
    from pyspark.sql import Column

log = logging.getLogger(__name__)

#: Columns of a group that are not part of the record: which of the groups sharing a job a row belongs to.
GROUP_COLUMN = "group"
_SIDES: Final[tuple[SideName, ...]] = ("key", "value")
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
        shape: Their shape.
        record: Their columns.
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
        reads: Columns of the record the run uses.
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
    """Plans the steps for one shape.

    Args:
        steps: The steps, in order.
        shape: The shape of the input.
        slot: The number of the group among the groups of a shared job; None = it has a job of its own.

    Thread: needs a live Spark session (columns are made in it); runs no job.
    """
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
    for name in _SIDES:
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
        """See ``Step``. As the step inside."""
        return self.step.bounds_text

    @property
    def changes_topic(self) -> bool:  # type: ignore[override]
        """See ``Step``. As the step inside."""
        return self.step.changes_topic

    @property
    def asks_of_topic(self) -> bool:  # type: ignore[override]
        """See ``Step``. True if the step inside or the predicate asks."""
        return self.step.asks_of_topic or self.predicate.asks_of_topic

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Only where the step inside and the predicate do."""
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
        """See ``Step``. One branch for records that the predicate holds for; all others pass unchanged."""
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
    bare = one.without_bounds(_SIDES)
    return bare if bare == other.without_bounds(_SIDES) else None


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
