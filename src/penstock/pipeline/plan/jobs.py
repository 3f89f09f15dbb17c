"""Runs compiled steps on Spark: groups of records in, their outcomes out, one job for each large group.

A job reads Arrow and returns Arrow; nothing else depends on it, so it can run again (Invariant 6). Plans are kept by
``PlanOrder`` for as long as the session lives, and steps are values: tasks with equal chains share them. Small groups
share one job: one costs some milliseconds whatever it does, and its first run many more, so fifty tables in one poll
must not cost fifty plans. Each group keeps its own columns in the shared input, null in the rows of the others, and the
output picks by the number of the group. A Spark DataFrame that a task returned is the exception: its job is the task's
plan followed by the chain's.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api.arrow import for_spark
from penstock.errors import ConnectException, SparkOverdueException
from penstock.pipeline.columns.records import table_of
from penstock.pipeline.columns.sizes import cut_at, nbytes_of, slices_of
from penstock.pipeline.plan.chain import (
    GROUP_COLUMN,
    MAX_PLACES,
    OTHERS,
    Compiled,
    FaultPlace,
    GroupOutcome,
    OutcomeLeaf,
    ShapeGroup,
    Staged,
    compile_steps,
    final_columns,
    input_column,
    outcomes_of,
)
from penstock.pipeline.plan.isolated_jobs import (
    LOST_PLACE,
    Apart,
    PlanOrder,
    frame_order,
    in_parts,
    what_was_lost,
    with_error,
    without_content,
)
from penstock.pipeline.plan.step import Shape, TopicLookup, constant_of, looked_up
from penstock.pipeline.spark.gate import Passage, Passing, PythonWork
from penstock.pipeline.spark.isolated_session import Loss, SessionOrder
from penstock.pipeline.spark.prepared_plan import (
    DriverPlan,
    Mapped,
    PreparedQueries,
    arrow_of,
    driver_plan,
    release,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.pipeline.batch.source.frame_input import FrameColumns
    from penstock.pipeline.spark.gate import Gate
    from penstock.pipeline.spark.session import SparkRuntime

    #: A Spark DataFrame, or what makes it on the session that is there now.
    FrameData: TypeAlias = DataFrame | Callable[[SparkSession], DataFrame]

T = TypeVar("T")

MAX_PLANS: Final = 512
#: Group numbers are reused after this many, because they grow with the schemas that a worker has ever seen.
MAX_NUMBERS: Final = 1_024
#: A group with at least this many rows gets its own job.
LARGE_GROUP_ROWS: Final = 5_000
#: The most groups that share a job, because the time to analyse a plan grows with its width.
MAX_SHARED_GROUPS: Final = 64
#: Below this many rows a second partition costs more than it gains.
SPLIT_ROWS: Final = 4_000
#: Rows a partition has at most: bounds the memory of a task.
MAX_PARTITION_ROWS: Final = 100_000
_SUSPECTS: Final = ("TRANSFORMATION", "VALUE_CONVERTER")


@dataclass(frozen=True)
class Plan:
    """Everything a job needs but the data.

    Attributes:
        layers: Projections in order; each adds its columns to those there are. ``final`` is selected last.
        apart: True if outcomes of different shapes have columns of their own.
        reads: The columns of the record that the input needs in addition to keys and values.
        lookups: What has to be found for each topic before.
        mapped: What Python workers make of the rows in the place of a projection.
        counted: True if only the number of rows of its output counts: it gives back the input.
        driver_plans: By the schema of the input; None where PySpark's own way has to be taken.
        passed: The largest batch that it has taken, in bytes.
    """

    layers: Sequence[Sequence[Column]]
    final: Sequence[Column | str]
    ends: Sequence[OutcomeLeaf]
    apart: bool
    reads: frozenset[str] = frozenset()
    lookups: frozenset[TopicLookup] = frozenset()
    places: Mapping[int, FaultPlace] = field(default_factory=dict)
    mapped: Mapped | None = None
    counted: bool = False
    driver_plans: dict[pa.Schema, DriverPlan | None] = field(default_factory=dict)
    passed: list[int] = field(default_factory=lambda: [0])

    def projections(self) -> list[Sequence[Column | str]]:
        """Returns the projections that are selected, one after the other."""
        starred: list[Sequence[Column | str]] = [["*", *layer] for layer in self.layers]
        return [*starred, self.final]

    def outcomes(self, output: pa.Table, given: pa.Table | None, rows: np.ndarray | None) -> list[GroupOutcome]:
        """Returns the outcomes of its groups; ``rows``: the position in the batch of each row of input and output."""
        return outcomes_of(output, given, rows, self.ends, self.places, apart=self.apart)


class SparkJobs:
    """Runs groups on the worker's Spark session, with plans that are made once; a ``gate`` lets tasks with equal plans
    share jobs. Thread: any.
    """

    def __init__(self, runtime: SparkRuntime, gate: Gate | None = None) -> None:
        self._runtime = runtime
        self._gate = gate
        self._lock = threading.Lock()
        self._plans: OrderedDict[Hashable, object] = OrderedDict()
        self._numbers: OrderedDict[Hashable, int] = OrderedDict()
        self._prepared = PreparedQueries()
        self._passing = Passing()
        self._own = PythonWork()
        self._apart = Apart(runtime, self._own)

    def of_a_task(self) -> SparkJobs:
        """The same for one task, whose work in Python workers can be ended; plans and gate are those of all."""
        own = copy(self)
        own._own = PythonWork()
        own._apart = Apart(self._runtime, own._own)
        return own

    def end_python_work(self) -> None:
        """Ends what Python workers do for the task, and lets nothing more begin there. Thread: any; waits for the end.

        Spark ends the process of a worker that goes on for `spark.python.task.killTimeout`, 2 s.
        """
        self._own.end()

    def run(
        self, groups: Sequence[ShapeGroup], shared: Mapping[str, pa.Array | pa.ChunkedArray], rows: int, *, apart: bool
    ) -> list[GroupOutcome]:
        """Runs the groups of one batch of ``rows``; ``shared`` has the other columns of the record, for the whole
        batch.

        With ``apart`` outcomes of different shapes get columns of their own (sinks); otherwise all end as bytes.
        """
        large = [group for group in groups if group.size(rows) >= LARGE_GROUP_ROWS]
        small = [group for group in groups if group.size(rows) < LARGE_GROUP_ROWS]
        outcomes: list[GroupOutcome] = []
        for group in large:
            outcomes += self._run_one(group, shared, rows, apart)
        if len(small) == 1:
            outcomes += self._run_one(small[0], shared, rows, apart)
        elif small:
            for start in range(0, len(small), MAX_SHARED_GROUPS):
                outcomes += self._run_shared(small[start : start + MAX_SHARED_GROUPS], shared, rows, apart)
        return outcomes

    def through(self, table: pa.Table) -> pa.Table:
        """Sends a table through a plan that changes nothing: for columns that no step reads."""

        def job(session: SparkSession) -> pa.Table:
            plan = self._kept((self._runtime.generation, "through"), lambda: Plan((), ("*",), (), True))
            return self._execute(session, ("through", table.schema), table, plan)

        # What has cost a session here goes on without having seen one: it would be the same.
        return self._runtime.run(
            job, lambda loss: (lambda: table) if self._apart.takes(loss, nbytes_of(table)) else None
        ).cast(table.schema)

    def pass_by(self, messages: pa.Table) -> Passage:
        """Sends keys and values that are read or written elsewhere through a plan by their lengths; see
        ``Passing.begin``.
        """
        return self._passing.begin(messages, self._count_lengths)

    def _count_lengths(self, batches: pa.Table) -> None:
        def job(session: SparkSession) -> None:
            plan = self._kept(
                (self._runtime.generation, "pass by"),
                lambda: Plan((), [F.size(name).alias(name) for name in batches.column_names], (), True, counted=True),
            )
            self._execute(session, "pass by", batches, plan)

        self._runtime.run(job)

    def collect(
        self,
        table: pa.Table,
        plan: Callable[[DataFrame], tuple[DataFrame, Shape]],
        limit_s: float | None = None,
        instead: Callable[[Loss], None] | None = None,
    ) -> tuple[pa.Table, Shape]:
        """Sends a table through a plan that is made for it; returns the rows and what the plan says of them.

        The plan makes the output of the input and runs no job; both may take ``limit_s``. Without ``instead`` (see
        ``SparkRuntime.run``) a table that costs the session is tried in a session of its own.

        Raises:
            IsolatedSessionLostException: It is more than a session can do. The next calls of the task, for parts of
                the table, go to a session of their own.
            SparkOverdueException: It took longer, and there is no session of its own for it.
        """

        def job(session: SparkSession) -> tuple[pa.Table, Shape]:
            given = session.createDataFrame(self._partitioned(table))
            with self._runtime.within(limit_s):
                frame, shape = plan(given)
            try:
                # Waiting for room is no time of the plan's.
                with self._runtime.memory.room_for(nbytes), self._runtime.within(limit_s):
                    return arrow_of(frame), shape
            finally:
                release([given, frame])

        def alone(loss: Loss) -> Callable[[], tuple[pa.Table, Shape]] | None:
            order = frame_order(table, plan, limit_s) if self._apart.takes(loss, nbytes) else None
            if order is None:
                return None
            return lambda: self._frame_alone(order)

        nbytes = nbytes_of(table)
        if instead is not None:
            return self._runtime.run(job, instead)
        if self._apart.has_all and (order := frame_order(table, plan, limit_s)):
            return self._frame_alone(order)
        try:
            return self._runtime.run(job, alone)
        except SparkOverdueException as error:
            order = None if self._runtime.isolated is None else frame_order(table, plan, limit_s)
            if order is None:
                raise
            if table.num_rows > 1:
                # All of them together would take as long once more.
                raise self._apart.overdue(error) from error
        return self._frame_alone(order)

    def _frame_alone(self, order: SessionOrder) -> tuple[pa.Table, Shape]:
        data, shape = self._apart.run(order)
        return table_of(data), shape

    @property
    def parallelism(self) -> int:
        """The number of parts of a batch that are processed at once."""
        return self._runtime.parallelism

    def in_python_workers(self, mapped: Mapped, digest: str, rows: Sequence[bytes]) -> list[bytes]:
        """Sends rows to Spark's Python workers, several at once; returns what came of each, in order.

        Functions of equal ``digest`` do the same: their plan is kept. Raises ConnectException if the task's work was
        ended.
        """
        column = pa.chunked_array([pa.array([row], pa.binary()) for row in rows])
        table = pa.table([column], [mapped.column])

        def execute(sent: pa.Table) -> pa.Table:
            return self._runtime.run(lambda session: job(session, sent))

        def job(session: SparkSession, sent: pa.Table) -> pa.Table:
            key = (self._runtime.generation, "mapped", digest)
            plan = self._kept(key, lambda: Plan((), ("*",), (), True, mapped=mapped))
            with self._own.under_way(session):
                return _executed(session, sent, plan, self._prepared)

        # Its rows are not those of another batch: it shares a permit, not a job.
        # Room comes before a permit, everywhere: jobs that hold one and wait for the other would wait for each other.
        with self._runtime.memory.room_for(table.nbytes):
            output = execute(table) if self._gate is None else self._gate.run(object(), table, execute)
        made: list[bytes] = output.column(0).to_pylist()
        return made

    def plan_ahead(self, groups: Sequence[ShapeGroup]) -> Plan:
        """The plan of some groups of messages, for a query that runs it itself. Thread: one on which a session is up.

        The slot of each group is its place, unless there is only one.
        """
        slots: tuple[int | None, ...] = (None,) if len(groups) == 1 else tuple(range(len(groups)))
        return self._plan_of(PlanOrder.of(groups, slots=slots, apart=True))

    # ------------------------------------------------------------------ DataFrames of tasks
    def run_frame(self, columns: FrameColumns, steps: tuple[Staged, ...]) -> GroupOutcome:
        """The outcome of a DataFrame's rows after the steps. Part of a job of ``on_dataframe``."""
        assert columns.frame is not None, "the rows are a DataFrame"
        plan = self._plan_of(PlanOrder(((steps, columns.shape, columns.carried),), (None,), apart=False))
        return plan.outcomes(_collected(columns.frame, plan, own=False), None, None)[0]

    def planned(
        self, columns: FrameColumns, steps: tuple[Staged, ...], topic: str | None
    ) -> tuple[DataFrame, Shape, Mapping[int, FaultPlace]]:
        """The rows of a task's own plan after the steps, lazy; what is known of them, and where their faults arise.

        Columns: see ``final_columns``; order as before. ``topic`` is that of all rows; None: they have their own, and
        no step asks of topics.
        """
        assert columns.frame is not None, "the rows are a DataFrame"
        plan = self._plan_of(PlanOrder(((steps, columns.shape, columns.carried),), (None,), apart=False))
        frame = columns.frame
        for name, found in looked_up(plan.lookups, pa.array([topic], pa.string())).items():
            frame = frame.withColumn(name, constant_of(found))
        return _project(frame, plan)[-1], plan.ends[0].leaf.shape, plan.places

    def on_dataframe(self, data: FrameData, job: Callable[[DataFrame], T]) -> T:
        """Runs a job over a DataFrame that a task returned, or makes; one that is made runs again when the session is
        lost.

        Raises:
            ConnectException: Its rows do not fit into the session's memory.
            SparkSessionLostException: The DataFrame was made before, on a session that is lost: it cannot run again.
        """
        if callable(data):
            make = data
            return self._runtime.run(lambda session: job(make(session)), _refuse_large)
        frame = data
        return self._runtime.run_on(frame.sparkSession, lambda: job(frame))

    # ------------------------------------------------------------------ one group
    def _run_one(
        self, group: ShapeGroup, shared: Mapping[str, pa.Array | pa.ChunkedArray], rows: int, apart: bool
    ) -> list[GroupOutcome]:
        order = PlanOrder.of([group], apart=apart)
        output, given, plan = self._run_order(order, lambda plan: _table(group, shared, plan, rows))
        return plan.outcomes(output, given, group.rows)

    # ------------------------------------------------------------------ several groups
    def _run_shared(
        self, groups: Sequence[ShapeGroup], shared: Mapping[str, pa.Array | pa.ChunkedArray], rows: int, apart: bool
    ) -> list[GroupOutcome]:
        pairs = sorted(zip(self._slots(groups), groups, strict=True), key=lambda pair: pair[0])
        slots = tuple(slot for slot, _ in pairs)
        ordered = tuple(group for _, group in pairs)
        positions = [np.arange(rows) if group.rows is None else group.rows for group in ordered]
        places = np.concatenate(positions)
        order = PlanOrder.of(ordered, slots=slots, apart=apart)
        output, given, plan = self._run_order(order, lambda plan: _shared_table(ordered, slots, places, shared, plan))
        return plan.outcomes(output, given, places)

    # ------------------------------------------------------------------ on a session, or on one of its own
    def _run_order(self, order: PlanOrder, input_of: Callable[[Plan], pa.Table]) -> tuple[pa.Table, pa.Table, Plan]:
        """Returns what came of the rows, the rows, and their plan."""
        nbytes = passed = 0

        def job(session: SparkSession) -> tuple[pa.Table, pa.Table, Plan]:
            nonlocal nbytes, passed
            plan = self._plan_of(order)
            table = input_of(plan)
            nbytes, passed = nbytes_of(table), plan.passed[0]
            output = self._execute(session, order, table, plan)
            plan.passed[0] = max(passed, nbytes, 1)
            return output, table, plan

        def alone(loss: Loss) -> Callable[[], tuple[pa.Table, pa.Table, Plan]] | None:
            if not self._apart.takes(loss, nbytes, passed):
                return None
            return lambda: self._order_alone(order, input_of)

        if self._apart.has_all:
            return self._order_alone(order, input_of)
        return self._runtime.run(job, alone)

    def output_of(self, order: PlanOrder, table: pa.Table, instead: Callable[[Loss], None]) -> pa.Table:
        """Sends a table through the plan of an order: for the process of a session of its own."""
        return self._runtime.run(lambda session: self._execute(session, order, table, self._plan_of(order)), instead)

    def _order_alone(self, order: PlanOrder, input_of: Callable[[Plan], pa.Table]) -> tuple[pa.Table, pa.Table, Plan]:
        """Runs an order in a session of its own; the plan is that of the worker's session, which comes first."""
        plan = self._runtime.run(lambda session: self._plan_of(order))

        def run(part: pa.Table) -> pa.Table:
            return table_of(self._apart.run(order.on(part)))

        def lost(row: pa.Table, loss: Loss) -> pa.Table:
            return with_error(run(without_content(row, (GROUP_COLUMN,), _nulls)), what_was_lost(row, loss))

        table = input_of(plan)
        output = pa.concat_tables(in_parts(table, run, lost), promote_options="default")
        return output, table, replace(plan, places={**plan.places, LOST_PLACE: _suspect(order)})

    def _slots(self, groups: Sequence[ShapeGroup]) -> list[int]:
        """A number for each group of a job, the same for equal groups of later jobs: plans are kept by it."""
        seen: Counter[Hashable] = Counter()
        slots: list[int] = []
        with self._lock:
            for group in groups:
                kind = (group.steps, group.shape)
                # Two groups of one shape may meet in a job: values that deny their schema count as schemaless.
                key = (*kind, seen[kind])
                seen[kind] += 1
                number = self._numbers.get(key)
                if number is None:
                    # The groups of this job are the latest, so none of their numbers is taken away.
                    number = len(self._numbers)
                    if number >= MAX_NUMBERS:
                        _, number = self._numbers.popitem(last=False)
                    self._numbers[key] = number
                self._numbers.move_to_end(key)
                slots.append(number)
        return slots

    # ------------------------------------------------------------------ plans
    def _plan_of(self, order: PlanOrder) -> Plan:
        generation = self._runtime.generation
        return self._kept((generation, order), lambda: self._make_plan(generation, order))

    def _make_plan(self, generation: int, order: PlanOrder) -> Plan:
        parts: list[tuple[int | None, Compiled]] = []
        for (steps, shape, _), slot in zip(order.groups, order.slots, strict=True):
            compiled = self._kept((generation, slot, steps, shape), partial(compile_steps, steps, shape, slot))
            parts.append((slot, compiled))
        return _assemble(parts, order.apart, frozenset().union(*(carry for _, _, carry in order.groups)))

    def _kept(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
                return found  # type: ignore[return-value]
        made = make()
        with self._lock:
            self._plans[key] = made
            while len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
        return made

    def _execute(self, session: SparkSession, key: Hashable, table: pa.Table, plan: Plan) -> pa.Table:
        """Runs a plan on rows, no more at once than the session's memory has room for."""

        def execute(joined: pa.Table) -> pa.Table:
            return _executed(session, self._partitioned(joined), plan, self._prepared)

        def run(part: pa.Table) -> pa.Table:
            with memory.room_for(nbytes_of(part)):
                return execute(part) if self._gate is None else self._gate.run(key, part, execute)

        memory = self._runtime.memory
        starts = [0] if memory.job_bytes is None else cut_at(table, memory.job_bytes)
        if len(starts) == 1:
            return run(table)
        return pa.concat_tables([run(part) for part in slices_of(table, starts)])

    def _partitioned(self, table: pa.Table) -> pa.Table:
        """The table in as many chunks as there shall be partitions: Spark makes one of each chunk."""
        rows = table.num_rows
        parts = 1 if rows < SPLIT_ROWS else self._runtime.parallelism
        size = min(MAX_PARTITION_ROWS, -(-rows // parts)) if rows else 1
        table = table.combine_chunks()
        if size >= rows:
            return for_spark(table)
        # PySpark reads the offsets of a list as if it were not part of a longer one: parts with those are copies.
        return pa.table(
            {
                name: pa.chunked_array([_own(column.chunk(0).slice(start, size)) for start in range(0, rows, size)])
                for name, column in zip(table.column_names, table.columns, strict=True)
            }
        )


def _shared_table(
    groups: Sequence[ShapeGroup],
    slots: Sequence[int],
    order: np.ndarray,
    shared: Mapping[str, pa.Array | pa.ChunkedArray],
    plan: Plan,
) -> pa.Table:
    """The input of a job of several groups: columns for each of them, null in the rows of the others."""
    sizes = [len(order) if group.rows is None else len(group.rows) for group in groups]
    columns: dict[str, object] = {}
    start = 0
    numbers: list[np.ndarray] = []
    for group, slot, size in zip(groups, slots, sizes, strict=True):
        numbers.append(np.full(size, slot, dtype=np.int32))
        for name, column in group.columns.items():
            before = _nulls(start, column.type)
            after = _nulls(len(order) - start - size, column.type)
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            columns[f"{name}_{slot}"] = pa.chunked_array([before, *chunks, after], column.type)
        start += size
    columns[GROUP_COLUMN] = pa.array(np.concatenate(numbers))
    columns |= _others(shared, order, plan)
    return pa.table(columns)


def _others(
    shared: Mapping[str, pa.Array | pa.ChunkedArray], rows: np.ndarray | None, plan: Plan
) -> Mapping[str, object]:
    """The columns of some rows that a plan needs in addition to keys and values."""
    columns = {name: shared[name] for name in shared.keys() & plan.reads}
    if rows is not None:
        columns = {name: column.take(pa.array(rows)) for name, column in columns.items()}
    return columns | looked_up(plan.lookups, columns["topic"]) if plan.lookups else columns


def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """Nulls of a type. Where its fields must not be null (VARIANT) these hold nothing instead: Spark insists."""
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    parts = [_nulls(rows, one.type) if one.nullable else pa.repeat(pa.scalar(b"", one.type), rows) for one in fields]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.repeat(True, rows))


def _own(part: pa.Array) -> pa.Array:
    return pa.concat_arrays([part]) if _is_deep(part.type) else part


def _is_deep(kind: pa.DataType) -> bool:
    """True if something nested, or nulls without a type, is inside: in a slice PySpark takes these for longer."""
    if pa.types.is_struct(kind):
        return any(pa.types.is_nested(one.type) or pa.types.is_null(one.type) for one in kind)
    return bool(pa.types.is_nested(kind))


def _refuse_large(loss: Loss) -> Callable[[], NoReturn] | None:
    """For a query of a task: another session would be lost to it as well."""
    if not loss.out_of_memory or (loss.jobs > 1 and loss.count == 1):
        return None

    def refuse() -> NoReturn:
        raise ConnectException(
            f"The rows of a SourceFrame's query do not fit into Spark's memory: {loss.ended}. Let the query give fewer "
            "rows at once, and the next poll the rest, or raise spark.driver.memory of the worker"
        )

    return refuse


def _suspect(order: PlanOrder) -> FaultPlace:
    """The place of a record's error that may have arisen in any step: a transform, if there is one."""
    steps = [staged for steps, _, _ in order.groups for staged in steps]
    steps.sort(key=lambda staged: _SUSPECTS.index(staged.stage) if staged.stage in _SUSPECTS else len(_SUSPECTS))
    stage, name = (steps[0].stage, steps[0].executing_class) if steps else (_SUSPECTS[-1], "")
    return FaultPlace(stage, name, ConnectException.java_name, 0)


def _collected(frame: DataFrame, plan: Plan, *, own: bool) -> pa.Table:
    """The frame's rows after the plan; the JVM forgets them at once, and the frame too if it is our own."""
    frames = _project(frame, plan)
    try:
        return arrow_of(frames[-1])
    finally:
        release([frame, *frames] if own else frames)


def _executed(session: SparkSession, table: pa.Table, plan: Plan, prepared: PreparedQueries) -> pa.Table:
    """The rows of a batch after the plan."""
    if table.schema not in plan.driver_plans:
        plan.driver_plans[table.schema] = driver_plan(session, table.schema, plan.projections(), prepared, plan.mapped)
    ready = plan.driver_plans[table.schema]
    if ready is not None:
        if plan.counted:
            return table.slice(0, ready.count(table))
        return ready.collect(table)
    return _collected(session.createDataFrame(table), plan, own=True)


def _project(frame: DataFrame, plan: Plan) -> list[DataFrame]:
    """The frame after each projection of the plan; the last one is the result. Lazy."""
    frames: list[DataFrame] = []
    for columns in plan.projections():
        frame = frame.select(*columns)
        frames.append(frame)
    if plan.mapped is not None:
        frames.append(frame.mapInArrow(plan.mapped, plan.mapped.schema))
    return frames


def _table(group: ShapeGroup, shared: Mapping[str, pa.Array | pa.ChunkedArray], plan: Plan, rows: int) -> pa.Table:
    columns: dict[str, object] = {input_column(name, ""): column for name, column in group.columns.items()}
    columns |= _others(shared, group.rows, plan)
    if not columns:
        # Spark needs a column to count rows by.
        columns[GROUP_COLUMN] = pa.array(np.zeros(group.size(rows), dtype=np.int32))
    return pa.table(columns)


def _assemble(parts: Sequence[tuple[int | None, Compiled]], apart: bool, carry: frozenset[str]) -> Plan:
    """Puts the compiled groups of a job side by side."""
    depth = max(len(compiled.layers) for _, compiled in parts)
    layers = [
        [column for _, compiled in parts if level < len(compiled.layers) for column in compiled.layers[level]]
        for level in range(depth)
    ]
    ends: list[OutcomeLeaf] = []
    places: dict[int, FaultPlace] = {}
    reads: set[str] = set()
    lookups: set[TopicLookup] = set()
    for slot, compiled in parts:
        reads |= compiled.reads
        lookups |= compiled.lookups
        base = (slot or 0) * MAX_PLACES
        places |= {base + index: place for index, place in enumerate(compiled.places)}
        for leaf in compiled.leaves:
            taken = leaf.guard
            if len(parts) > 1:
                mine = F.col(GROUP_COLUMN) == F.lit(slot)
                taken = mine if taken is None else mine & taken
            ends.append(OutcomeLeaf(taken, leaf, compiled.suffix))
    if lookups:
        reads |= {"topic"}
    changed = {name for end in ends for name in end.leaf.changed if name in OTHERS} | carry
    final = final_columns(ends, apart, changed)
    return Plan(layers, final, ends, apart, frozenset(reads | changed), frozenset(lookups), places)
