"""The source path: converts polled records or frames to bytes for Kafka.

Records are grouped by their schemas, each group is one shape of plan; transforms and converters are Spark columns,
except for a user's own classes and the cases that ``groups`` decides, which run here record by record. Results are
assembled by position: row i of the result is record i of the batch. Header converters run here, once for each distinct
header.

Thread: one instance for each task, used by the task's pipeline thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException

from penstock.api import ConnectRecord, Converter, SourceFrame, SourceRecord
from penstock.pipeline.batch.batches import (
    Failures,
    LazyColumns,
    Moved,
    PendingBatch,
    PipelineSpec,
    PolledBatch,
    ProduceBatch,
    Submit,
    Why,
    without_patience,
)
from penstock.pipeline.batch.frames import FrameRunner
from penstock.pipeline.batch.groups import group_records, is_huge, parted_by_plan, why_batch_in_rows, why_rows
from penstock.pipeline.batch.headers import HeaderWriter
from penstock.pipeline.batch.row_path import (
    Attributes,
    OneSide,
    Rows,
    all_rows,
    apply_classic,
    attributes_of,
    columns_of,
    in_order,
    is_narrow,
    merged,
    parted,
    rebuilt_rows,
    rows_of,
    transformed,
)
from penstock.pipeline.batch.segments import (
    Classic,
    ColumnarSegment,
    Framed,
    Segment,
    Stateless,
    cut_transforms,
    why_one_process,
)
from penstock.pipeline.batch.source.assembly import (
    Assembly,
    frame_batch,
    messages_of,
    parted_by_writing,
    put_coordinates,
    write_headers,
    write_own_headers,
    written_columns,
)
from penstock.pipeline.batch.source.frame_input import (
    FrameColumns,
    beside_of_frame,
    columns_of_dataframe,
    columns_of_table,
    frame_to_records,
    misfit_of,
    missing_constants,
    records_of,
    shared_of,
    table_of_dataframe,
)
from penstock.pipeline.batch.stateless import Spreader
from penstock.pipeline.batch.transfer import (
    ShippedRecords,
    beside_of,
    by_row,
    can_be_part,
    joined,
    part_of_records,
    parts_of_outcomes,
    with_parts,
)
from penstock.pipeline.columns.sizes import make_room
from penstock.pipeline.plan.chain import GroupOutcome, ShapeGroup, Staged
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.plan.step import NOTHING, SIDES, ColumnConverter, RowConverter, Shape, SideName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.plan.jobs import FrameData
    from penstock.pipeline.spark.session import SparkRuntime


class SourcePipeline:
    """Converts batches of one source task to bytes for Kafka. Thread: the task's pipeline thread."""

    def __init__(
        self,
        runtime: SparkRuntime,
        spec: PipelineSpec,
        jobs: SparkJobs | None = None,
        moved: Moved = lambda paths: None,
    ) -> None:
        jobs = SparkJobs(runtime) if jobs is None else jobs
        make_room()
        self._jobs = jobs
        self._moved = moved
        self._spent = spec.spent
        self._converters: Mapping[SideName, Converter] = {"key": spec.key_converter, "value": spec.value_converter}
        self._headers = HeaderWriter(spec.header_converter)
        self._alone = {side: OneSide(side, converter) for side, converter in self._converters.items()}
        steps = [
            Staged(converter.writing(side), self._alone[side].stage, self._alone[side].name)
            for side, converter in self._converters.items()
            if isinstance(converter, ColumnConverter)
        ]
        #: The sides that are never columns.
        self._own = {side for side, one in self._converters.items() if not isinstance(one, ColumnConverter)}
        segments = cut_transforms(spec.transforms)
        self._has_transforms = bool(segments)
        self._spreader = Spreader(None if spec.without_spark else jobs, spec.spent)
        self._last = ColumnarSegment(tuple(steps))
        if not self._own and segments and isinstance(last := segments[-1], ColumnarSegment):
            segments.pop()
            self._last = ColumnarSegment((*last.steps, *steps), last.alone)
        self._segments: list[Segment] = segments
        self._frames = FrameRunner(jobs)
        self._must = spec.nothing_beside_spark
        self._without_spark = spec.without_spark
        # True if the last plan is only that of converters, which may write records without Spark.
        self._only_writes = self._last.steps == tuple(steps) and not (self._must or self._without_spark)
        stock = all(isinstance(self._converters[side], RowConverter) for side in self._own)
        self._stock = bool(self._own) and stock
        # True if frames only need converters, which may run outside of Spark.
        self._written_beside = not self._has_transforms and not self._without_spark and (self._stock or not self._own)

    def run(self, batch: PolledBatch) -> ProduceBatch:
        """Runs one batch. Blocks for the Spark job."""
        return self.begin(batch, PendingBatch).result()

    def begin(self, batch: PolledBatch, submit: Submit) -> PendingBatch[ProduceBatch]:
        """Begins one batch: all but its last Spark job, which ``submit`` gets, and so every call of a user's transform.

        The result is asked for on the thread of the pipeline, perhaps after other batches were begun, and blocks for
        the job.

        Raises:
            SparkUnavailableException: There is no Spark session and none can be started.
        """
        if isinstance(batch, SourceFrame):
            begun = self._begin_frame(batch, submit)
        else:
            begun = self._begin_records(batch, submit)
        return PendingBatch(partial(self._through, begun)) if self._must else begun

    def _through(self, begun: PendingBatch[ProduceBatch]) -> ProduceBatch:
        made = begun.result()
        return replace(made, table=self._jobs.through(made.table)) if made.table.num_rows else made

    @property
    def whole_plan(self) -> tuple[Staged, ...] | None:
        """The steps of all transforms and converters, if one plan has them all."""
        return None if self._segments or self._own or self._without_spark else self._last.steps

    @property
    def leaves_headers(self) -> bool:
        """True if frames without one plan for all steps keep their original headers, as bytes."""
        return self._stock and not self._has_transforms

    @property
    def changes_topic(self) -> bool:
        """True if records may go to other topics than that of their batch."""
        segments: list[Segment] = [*self._segments, self._last]
        return any(
            not isinstance(one, ColumnarSegment) or any(staged.step.changes_topic for staged in one.steps)
            for one in segments
        )

    @property
    def in_one_process(self) -> str | None:
        """The reason why the records have to pass through this process; None if any process may process them."""
        return why_one_process(self._segments)

    # ------------------------------------------------------------------ frames
    def _begin_frame(self, frame: SourceFrame, submit: Submit) -> PendingBatch[ProduceBatch]:
        data = frame.data
        first = self._segments[0] if self._segments else self._last
        straight = first is self._last and not self._own and not self._without_spark
        if not isinstance(data, pa.Table):
            # A step's topics are known only after the task's own plan has run.
            if straight and not any(one.step.asks_of_topic for one in self._last.steps):
                both = submit(partial(self._run_dataframe, frame, data))
                return PendingBatch(partial(self._finish_dataframe, frame, both))
            data = self._jobs.on_dataframe(data, partial(table_of_dataframe, frame))
            frame = replace(frame, data=data)
        if not data.num_rows:
            return PendingBatch(partial(Assembly(0).batch, Failures()))
        if self._written_beside and not is_huge(data) and (self._stock or not self._must):
            return self._begin_written_frame(frame, data, submit)
        if not isinstance(first, ColumnarSegment) or not (straight or self._segments) or self._without_spark:
            return self._begin_records(frame_to_records(frame, data), submit)
        columns = columns_of_table(frame, data)
        if why_rows(first.steps, columns.shape) is not None or (is_huge(data) and not self._must):
            return self._begin_records(frame_to_records(frame, data), submit)
        if not straight:
            return self._begin_read_frame(first, frame, columns, data.num_rows, submit)
        rows = data.num_rows
        group = ShapeGroup(self._last.steps, columns.shape, None, columns.sides)
        shared = shared_of(columns, missing_constants(frame, columns), rows)
        job = submit(partial(self._jobs.run, [group], shared, rows, apart=False))
        return PendingBatch(partial(self._finish_frame, frame, columns, job, rows))

    def _begin_written_frame(self, frame: SourceFrame, data: pa.Table, submit: Submit) -> PendingBatch[ProduceBatch]:
        """Begins a frame whose columns converters write without Spark; the remaining sides go through their plan."""
        columns, rows = columns_of_table(frame, data), data.num_rows
        written = {} if self._must else written_columns(self._converters, columns.shape, columns.sides)
        shape = columns.shape
        for side in self._own | written.keys():
            shape = shape.with_side(side, NOTHING)
        if why_rows(self._last.steps, shape) is not None:
            return self._begin_records(frame_to_records(frame, data), submit)
        sides = {name: columns.sides[name] for name in columns.sides if name not in self._own | written.keys()}
        unplanned, groups = parted_by_plan([ShapeGroup(self._last.steps, shape, None, sides)])
        shared = shared_of(columns, missing_constants(frame, columns), rows)
        job: PendingBatch[list[GroupOutcome]] = PendingBatch(lambda: unplanned)
        seen: PendingBatch[None] | None = None
        if groups:
            job = submit(partial(self._jobs.run, groups, shared, rows, apart=False))
        elif written and not self._own:
            # All sides are written: Spark sees the messages while the next batch begins.
            messages = pa.table({side: written.get(side, pa.nulls(rows, pa.binary())) for side in SIDES})
            seen = self._passing(messages, submit)
        passes = seen is None and not (groups or self._must)
        return PendingBatch(
            partial(self._finish_written_frame, frame, columns, job, rows, written, seen, passes=passes)
        )

    def _finish_written_frame(
        self,
        frame: SourceFrame,
        columns: FrameColumns,
        job: PendingBatch[list[GroupOutcome]],
        rows: int,
        written: Mapping[SideName, pa.Array | pa.ChunkedArray],
        seen: PendingBatch[None] | None,
        *,
        passes: bool,
    ) -> ProduceBatch:
        made = self._finish_frame(frame, columns, job, rows, partial(self._put_written, frame, columns, written))
        if seen is not None:
            seen.result()
        elif passes:
            self._jobs.pass_by(made.table.select(SIDES))()
        return made

    def _put_written(
        self,
        frame: SourceFrame,
        columns: FrameColumns,
        written: Mapping[SideName, pa.Array | pa.ChunkedArray],
        assembly: Assembly,
        failures: Failures,
    ) -> None:
        """Puts the columns in that converters made without a plan, and makes those of converters without columns."""
        for side, made in written.items():
            assembly.put(side, made)
        topic = None if "topic" in columns.others else frame.topic
        for side in SIDES:
            known = columns.shape.side(side)
            if side in self._own and not known.absent:
                column = columns.sides[side] if topic and is_narrow(known) else None
                made = self._alone[side].written_column(
                    topic, known.schema, column, np.arange(assembly.rows), partial(_some_records, frame), failures
                )
                assembly.put(side, made)

    def _run_dataframe(self, frame: SourceFrame, data: FrameData) -> tuple[FrameColumns, GroupOutcome] | pa.Table:
        """Runs the task's plan and the chain's as one job; gives the rows where the chain's has no columns for them."""

        def run(rows: DataFrame) -> tuple[FrameColumns, GroupOutcome] | pa.Table:
            columns = columns_of_dataframe(frame, rows)
            if why_rows(self._last.steps, columns.shape) is not None:
                return table_of_dataframe(frame, rows)
            return columns, self._jobs.run_frame(columns, self._last.steps)

        try:
            return self._jobs.on_dataframe(data, run)
        except PySparkException as error:
            if misfit := misfit_of(error):
                raise misfit from error
            raise

    def _finish_dataframe(
        self, frame: SourceFrame, job: PendingBatch[tuple[FrameColumns, GroupOutcome] | pa.Table]
    ) -> ProduceBatch:
        made = job.result()
        if isinstance(made, pa.Table):
            return self._begin_records(frame_to_records(frame, made), PendingBatch).result()
        columns, outcome = made
        rows = len(next(iter(outcome.columns.values())))
        return self._finish_frame(frame, columns, PendingBatch(lambda: [outcome]), rows)

    def _finish_frame(
        self,
        frame: SourceFrame,
        columns: FrameColumns,
        job: PendingBatch[list[GroupOutcome]],
        rows: int,
        write: Callable[[Assembly, Failures], None] = lambda *_: None,
    ) -> ProduceBatch:
        failures = Failures()
        made = frame_batch(frame, columns, job.result()[0], rows, self._headers, failures, write)
        self._moved(failures.paths(rows))
        return made

    def _begin_read_frame(
        self, first: ColumnarSegment, frame: SourceFrame, columns: FrameColumns, rows: int, submit: Submit
    ) -> PendingBatch[ProduceBatch]:
        """Begins a frame whose first segment is followed by a user's transform: its rows become records there."""
        failures = Failures()
        group = ShapeGroup(first.steps, columns.shape, None, columns.sides)
        shared = shared_of(columns, missing_constants(frame, columns), rows)
        outcomes = self._jobs.run([group], shared, rows, apart=True)
        failures.found(outcomes)
        rest = self._segments[1:]
        if self._stays_columns(rest, rows):
            beside = beside_of_frame(frame, columns.others, rows)
            laid: Sequence[ShippedRecords] = parts_of_outcomes(
                SourceRecord, outcomes, rows, beside, failures.failed(rows)
            )
            left: Rows = [], []
            if rest and isinstance(one := rest[0], Stateless):
                laid, left = self._spread(one, laid, rest[1:], failures)
            return self._go_on(*left, rows, failures, rest[1:], None, submit, laid)
        made = [_records_of(frame, columns, outcome, rows) for outcome in outcomes]
        live, positions = in_order(made, rows, failures)
        return self._go_on(live, positions, rows, failures, rest, None, submit)

    # ------------------------------------------------------------------ records
    def _begin_records(self, records: Sequence[SourceRecord], submit: Submit) -> PendingBatch[ProduceBatch]:
        why = Why.NO_SPARK if self._without_spark else None
        if not (self._must or self._without_spark):
            why = why_batch_in_rows(records)
        return self._go_on(list(records), None, len(records), Failures(), self._segments, why, submit)

    def _go_on(
        self,
        live: list[ConnectRecord],
        positions: Sequence[int] | None,
        rows: int,
        failures: Failures,
        segments: Sequence[Segment],
        why: Why | None,
        submit: Submit,
        laid: Sequence[ShippedRecords] = (),
    ) -> PendingBatch[ProduceBatch]:
        """Runs all segments but the last.

        Args:
            live: The remaining records.
            positions: Their rows; None: row i is record i.
            segments: The remaining segments, without the last one.
            why: The reason why the whole batch goes as rows; None if it does not.
            laid: Remaining records that are columns; there are some only before the last segment.
        """
        parts: Sequence[ShippedRecords] = ()
        planned = False
        for index, segment in enumerate(segments):
            started = time.perf_counter()
            behind = segments[index + 1 :]
            if isinstance(segment, Stateless) and parts:
                whole = [*parts, *([part_of_records(*all_rows(live, positions))] if live else [])]
                laid, (live, positions) = self._spread(segment, whole, behind, failures)
                parts = ()
            elif isinstance(segment, Stateless):
                given = all_rows(live, positions)
                laid, (live, positions) = self._stateless(segment, given, behind, failures, why)
            elif isinstance(segment, Classic):
                failures.went_as_rows(positions, Why.OWN_CLASS)
                live, positions = apply_classic(segment, live, positions, failures)
                self._spent(segment.alias, time.perf_counter() - started)
            elif isinstance(segment, Framed):
                live, positions = self._frames.apply(segment, live, positions, failures, rows, sink=False)
                rows = rows if failures.origins is None else len(failures.origins)
                self._spent(segment.alias, time.perf_counter() - started)
            else:
                leave = why is None and self._stays_columns(behind, len(live)) and can_be_part(live)
                found = self._apply_columns(segment, live, positions, failures, rows, why, leave)
                parts, (live, positions) = found[:2]
                planned = planned or found[2]
        laid, of_laid, left = self._parted_columns([*laid, *parts])
        if left[0]:
            live, positions = merged(all_rows(live, positions), left)
        groups: list[ShapeGroup] = []
        alone: Rows = [], []
        if self._last.steps and live:
            groups, rest, alone = self._parted(self._last, live, positions, failures, why)
            if alone[0]:
                alone = transformed(self._last, alone, failures)
                live, positions = merged(rest, alone)
        rest = all_rows(live, positions)
        attributes: Attributes = attributes_of(live)
        if laid:
            groups += of_laid
            attributes, positions = with_parts(*rest, laid)
        columns = columns_of(attributes, positions, rows, failures)
        written: list[GroupOutcome] = []
        if self._only_writes:
            written, groups = parted_by_writing(self._converters, groups)
        unplanned, groups = parted_by_plan(groups)
        unplanned += written
        job: PendingBatch[list[GroupOutcome]] | None = None
        if groups:
            job = submit(partial(self._jobs.run, groups, columns, rows, apart=False))
        finish = partial(
            self._finish_records, positions, attributes, rest, laid, alone, Assembly(rows), failures, columns, unplanned
        )
        beside_spark = bool(live) and not (planned or groups or self._must or self._without_spark)
        if beside_spark and written and not self._own:
            # Spark sees the messages while the next batch is begun.
            seen = self._passing(pa.concat_tables(map(messages_of, written)), submit)
            return PendingBatch(partial(self._finish_seen, finish, seen))
        return PendingBatch(partial(self._finish_without_plan, finish) if beside_spark else partial(finish, job))

    def _finish_without_plan(self, finish: Callable[[None], ProduceBatch]) -> ProduceBatch:
        """Sends bytes that no plan has made through one."""
        made = finish(None)
        if not made.table.num_rows or is_huge(made.table):
            return made
        if self._stock:
            self._jobs.pass_by(made.table.select(SIDES))()
            return made
        return replace(made, table=self._jobs.through(made.table))

    def _finish_seen(self, finish: Callable[[None], ProduceBatch], seen: PendingBatch[None]) -> ProduceBatch:
        made = finish(None)
        seen.result()
        return made

    def _passing(self, messages: pa.Table, submit: Submit) -> PendingBatch[None]:
        """Lets Spark see messages while further batches are begun."""
        passage = self._jobs.pass_by(messages)
        passed = submit(partial(passage, patient=True), shares=messages.nbytes)
        return PendingBatch(partial(without_patience, passage, passed))

    def _finish_records(
        self,
        positions: Sequence[int] | None,
        attributes: Attributes,
        live: Rows,
        laid: Sequence[ShippedRecords],
        alone: Rows,
        assembly: Assembly,
        failures: Failures,
        columns: LazyColumns,
        unplanned: Sequence[GroupOutcome],
        job: PendingBatch[list[GroupOutcome]] | None,
    ) -> ProduceBatch:
        # First, because the job may be making some of the columns at this moment.
        outcomes: Sequence[GroupOutcome] = unplanned if job is None else [*unplanned, *job.result()]
        if positions is not None:
            assembly.drop_all_but(positions, failures)
        put_coordinates(assembly, attributes, columns)
        failures.found(outcomes)
        headers_changed = any("headers" in outcome.columns for outcome in outcomes)
        if headers_changed:
            assembly.put("headers", columns["headers"])
        if outcomes and alone[0]:
            # Changes of columns do not apply to rows.
            rows = np.asarray(alone[1], dtype=np.int64)
            outcomes = [*outcomes, GroupOutcome(rows, Shape(NOTHING, NOTHING), {}, None, None, {})]
        assembly.take(outcomes)
        if headers_changed:
            write_headers(assembly, self._headers, failures)
        else:
            write_own_headers(assembly, self._headers, attributes, positions, failures)
        for side, one in self._alone.items():
            by_rows = alone
            if side in self._own:
                by_rows = live
                assembly.put(side, pa.nulls(assembly.rows, pa.binary()))
                for part in laid:
                    assembly.fill(side, part.rows.tolist(), one.written_part(part, failures))
            if by_rows[0]:
                assembly.fill(side, by_rows[1], one.written(by_rows, failures))
        if not all(isinstance(self._converters[side], RowConverter) for side in self._own):
            failures.went_as_rows(None, Why.OWN_CLASS)
        self._moved(failures.paths(assembly.rows))
        return assembly.batch(failures)

    # ------------------------------------------------------------------ transforms without state
    def _stateless(
        self, segment: Stateless, given: Rows, behind: Sequence[Segment], failures: Failures, why: Why | None
    ) -> tuple[Sequence[ShippedRecords], Rows]:
        """Runs transforms without state, in Python workers if that pays; ``why``: the batch goes as rows."""
        live, positions = given
        if why is Why.HUGE_VALUE or not self._spreader.takes(segment, len(live)) or not can_be_part(live):
            return (), self._spreader.here(segment, given, failures)
        return self._spread(segment, [part_of_records(live, positions)], behind, failures)

    def _spread(
        self, segment: Stateless, parts: Sequence[ShippedRecords], behind: Sequence[Segment], failures: Failures
    ) -> tuple[list[ShippedRecords], Rows]:
        """Runs a segment in Python workers and returns the results: as columns if only those are left, and the rest."""
        columns = not behind and bool(self._last.steps) and not self._own
        laid, left = self._spreader.run(segment, parts, failures, columns=columns)
        return joined(laid), left

    # ------------------------------------------------------------------ what stays columns
    def _stays_columns(self, behind: Sequence[Segment], rows: int) -> bool:
        """True if the result of a plan need not become records for the next step.

        The next step is then Python workers, or converters that write columns without Spark: these would make columns
        of the records again.
        """
        return self._spreader.takes(behind[0], rows) if behind else self._stock and not self._without_spark

    def _parted_columns(self, laid: Sequence[ShippedRecords]) -> tuple[list[ShippedRecords], list[ShapeGroup], Rows]:
        """Returns the parts that the last plan takes, their groups in it, and the records of the others.

        Sides that are written without the plan are in no group.
        """
        taken: list[ShippedRecords] = []
        groups: list[ShapeGroup] = []
        left: Rows = [], []
        for part in laid:
            assert part.shape is not None, "it is columns"
            shape = part.shape
            for side in self._own:
                shape = shape.with_side(side, NOTHING)
            if why_rows(self._last.steps, shape) is not None:
                left = merged(left, (part.records(), part.rows.tolist()))
                continue
            taken.append(part)
            columns = {name: column for name, column in part.columns.items() if name not in self._own}
            groups.append(ShapeGroup(self._last.steps, shape, part.rows, columns))
        return taken, groups if self._last.steps else [], left

    # ------------------------------------------------------------------ the two paths
    def _parted(
        self,
        segment: ColumnarSegment,
        live: list[ConnectRecord],
        positions: Sequence[int] | None,
        failures: Failures,
        why: Why | None,
    ) -> tuple[list[ShapeGroup], Rows, Rows]:
        """Returns the groups of the records that are columns, these records, and those that go as rows."""
        rows = all_rows(live, positions)
        if why is not None:
            failures.went_as_rows(positions, why)
            return [], ([], []), rows

        def on_bad(seq: int, side: SideName, error: Exception) -> None:
            self._alone[side].note(failures, seq, error)

        # A converter that ignores schemas takes any value, if no transform has to take it first.
        last = self._converters["value"]
        any_value = isinstance(last, ColumnConverter) and last.ignores_schema and not self._has_transforms
        # Sides that are written without Spark need not go there.
        without = self._own if segment is self._last else frozenset()
        found = group_records(
            live, positions, sink=False, on_bad=on_bad, any_value=any_value, mixed=False, without=without
        )
        groups: list[ShapeGroup] = []
        chosen: set[int] = set()
        for one in found:
            why = why_rows(segment.steps, one.shape)
            if why is None:
                groups.append(ShapeGroup(segment.steps, one.shape, one.rows, one.columns))
            else:
                failures.went_as_rows(one.rows, why)
                chosen.update(rows[1] if one.rows is None else one.rows.tolist())
        return groups, *parted(rows, chosen)

    def _apply_columns(
        self,
        segment: ColumnarSegment,
        live: list[ConnectRecord],
        positions: Sequence[int] | None,
        failures: Failures,
        rows: int,
        why: Why | None,
        leave: bool,
    ) -> tuple[Sequence[ShippedRecords], tuple[list[ConnectRecord], Sequence[int] | None], bool]:
        """Runs column steps whose result Python needs.

        Returns:
            The remaining parts, if they ``leave``, and records; and True if all went through a plan.
        """
        if not live:
            return (), (live, positions), False
        groups, rest, alone = self._parted(segment, live, positions, failures, why)
        outcomes = self._read(groups, rest, failures, rows)
        planned = not alone[0]
        if alone[0]:
            alone = transformed(segment, alone, failures)
        given, places = rest
        whole = len(given) == rows
        if leave and given:
            beside = beside_of(given)
            beside = beside if whole else by_row(beside, places, rows)
            return parts_of_outcomes(type(live[0]), outcomes, rows, beside, failures.failed(rows)), alone, planned
        known = given if whole else dict(zip(places, given, strict=True))
        made = [rebuilt_rows(outcome, known) for outcome in outcomes]
        left = in_order([*made, list(zip(alone[1], alone[0], strict=True))], rows, failures)
        return (), left, planned

    def _read(self, groups: list[ShapeGroup], rest: Rows, failures: Failures, rows: int) -> list[GroupOutcome]:
        if not groups:
            return []
        live, positions = rest
        shared = columns_of(attributes_of(live), None if len(live) == rows else positions, rows, failures)
        outcomes = self._jobs.run(groups, shared, rows, apart=True)
        failures.found(outcomes)
        return outcomes


def _some_records(frame: SourceFrame, rows: np.ndarray) -> list[ConnectRecord]:
    data: pa.Table = frame.data
    return list(frame_to_records(frame, data.take(pa.array(rows))))


def _records_of(
    frame: SourceFrame, columns: FrameColumns, outcome: GroupOutcome, rows: int
) -> list[tuple[int, ConnectRecord]]:
    """Returns the results of a job on rows of a frame, as records with their rows."""
    key, value = outcome.shape.key, outcome.shape.value
    frame = replace(frame, key_schema=key.schema, value_schema=value.schema)
    others = columns.others
    if outcome.rows is not None:
        pick = pa.array(outcome.rows)
        others = {name: column.take(pick) for name, column in others.items()}
    return rows_of(outcome, rows, lambda places, keys, values: records_of(frame, others, keys, values))
