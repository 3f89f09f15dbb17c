"""The source path: what a task polled becomes bytes for Kafka.

Main types: ``SourcePipeline`` and ``build_source_pipeline``. Records are grouped by their schemas, each group is one
shape of plan; transforms and converters are Spark columns, except a user's own classes, which run here record by
record. The groups meet again by position: row i of the result is record i of the batch.

Header converters run here, in Python, once for each distinct header (there are few, and most repeat).

Thread: one instance a task, used by the task's pipeline thread.
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
from penstock.errors import DataException
from penstock.pipeline.assembly import Assembly, LazyColumns
from penstock.pipeline.batches import PipelineSpec, ProduceBatch, SourceRecords, Stage, Submit, when_asked
from penstock.pipeline.chain import Staged
from penstock.pipeline.frame import (
    FrameColumns,
    columns_of_dataframe,
    columns_of_table,
    frame_to_records,
    missing_constants,
    records_of,
    shared_of,
)
from penstock.pipeline.frame_spark import misfit_of
from penstock.pipeline.framing import FrameRunner
from penstock.pipeline.grouping import group_records
from penstock.pipeline.headers import HeaderWriter
from penstock.pipeline.jobs import Group, Outcome, SparkJobs
from penstock.pipeline.nesting import make_room
from penstock.pipeline.odd_maps import Rows, merged, odd_rows, split, transformed_alone
from penstock.pipeline.rebuild import apply_classic, columns_of, in_order, rebuilt_rows, rows_of
from penstock.pipeline.segments import Classic, Columns, Failures, Framed, Segment, class_name, cut_transforms
from penstock.pipeline.singly import is_huge, not_for_plans, singly
from penstock.pipeline.step import ColumnConverter, SideName
from penstock.pipeline.types import collectable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.jobs import FrameData
    from penstock.pipeline.session import SparkRuntime

_STAGES: Mapping[SideName, str] = {"key": Stage.KEY_CONVERTER, "value": Stage.VALUE_CONVERTER}
_SIDES: tuple[SideName, SideName] = ("key", "value")


def build_source_pipeline(
    runtime: SparkRuntime,
    spec: PipelineSpec,
    jobs: SparkJobs | None = None,
    moved: Callable[[int], None] = lambda records: None,
) -> SourcePipeline:
    """Makes the pipeline of one source task.

    Args:
        runtime: Owner of the Spark session.
        spec: Converters and transforms, configured.
        jobs: Runs and keeps the plans; the worker's tasks share one. None = an own one.
        moved: Told of each batch how many records of it went through Spark: all of them.
    """
    return SourcePipeline(spec, SparkJobs(runtime) if jobs is None else jobs, moved)


class SourcePipeline:
    """Turns batches of one source task into bytes for Kafka. Thread: the task's pipeline thread."""

    def __init__(
        self, spec: PipelineSpec, jobs: SparkJobs, moved: Callable[[int], None] = lambda records: None
    ) -> None:
        make_room()
        self._jobs = jobs
        self._moved = moved
        self._spent = spec.spent
        self._converters: Mapping[SideName, Converter] = {"key": spec.key_converter, "value": spec.value_converter}
        self._names = {side: class_name(converter) for side, converter in self._converters.items()}
        self._headers = HeaderWriter(spec.header_converter)
        steps = [
            Staged(converter.writing(side), _STAGES[side], self._names[side])
            for side, converter in self._converters.items()
            if isinstance(converter, ColumnConverter)
        ]
        self._own = {side: one for side, one in self._converters.items() if not isinstance(one, ColumnConverter)}
        segments = cut_transforms(spec.transforms)
        self._has_transforms = bool(segments)
        self._writing = tuple(steps)
        self._last = Columns(self._writing)
        if not self._own and segments and isinstance(last := segments[-1], Columns):
            segments.pop()
            self._last = Columns((*last.steps, *steps), last.alone)
        self._segments: list[Segment] = segments
        self._frames = FrameRunner(jobs)
        # Bytes that are made by a user's own converters alone have seen no plan when they are done.
        self._whole = spec.nothing_beside_spark or (not self._last.steps and not spec.without_spark)
        self._must = spec.nothing_beside_spark
        alone = singly(spec) if self._last.steps else None
        self._singly = None if alone is None else SourcePipeline(alone, jobs, moved)

    def run(self, batch: SourceRecords | SourceFrame) -> ProduceBatch:
        """Runs one batch. Blocks for the Spark job.

        Raises:
            SparkUnavailableException: There is no Spark session and none can be started.
        """
        return self.begin(batch, when_asked)()

    def begin(self, batch: SourceRecords | SourceFrame, submit: Submit) -> Callable[[], ProduceBatch]:
        """Begins one batch: all but its last Spark job, and so every call of a user's transform.

        Args:
            batch: What was polled.
            submit: Gets that job, which can run on any thread, and gives what waits for its result.

        Returns:
            What ends the batch, to be called once, on the thread of the pipeline; it may be called after other batches
            were begun, and blocks for the job.

        Raises:
            SparkUnavailableException: There is no Spark session and none can be started.
        """
        if self._singly is not None and _not_for_plans(batch):
            return self._singly.begin(batch, submit)
        if isinstance(batch, SourceFrame):
            finish = self._begin_frame(batch, submit)
        else:
            finish = self._begin_records(batch.records, submit)

        def end() -> ProduceBatch:
            made = finish()
            if self._whole and made.table.num_rows and (self._must or not is_huge(made.table)):
                made = replace(made, table=self._jobs.through(made.table))
            self._moved(made.table.num_rows)
            return made

        return end

    # ------------------------------------------------------------------ frames
    def _begin_frame(self, frame: SourceFrame, submit: Submit) -> Callable[[], ProduceBatch]:
        data = frame.data
        first = self._segments[0] if self._segments else None
        if isinstance(first, Columns) and isinstance(data, pa.Table) and data.num_rows:
            return self._begin_read_frame(first, frame, data, submit)
        if first is not None or self._own:
            table = data if isinstance(data, pa.Table) else self._jobs.on_dataframe(data, partial(_rows_of, frame))
            return self._begin_records(frame_to_records(frame, table), submit)
        if not isinstance(data, pa.Table):
            return self._begin_dataframe(frame, data, submit)
        columns = columns_of_table(frame, data)
        rows = columns.rows or 0
        if not rows:
            return lambda: Assembly(0).batch(Failures())
        group = Group(self._last.steps, columns.shape, None, columns.sides)
        shared = shared_of(columns, missing_constants(frame, columns), rows)
        result = submit(lambda: self._jobs.run([group], shared, rows, apart=False))
        return lambda: self._finish_frame(frame, columns, result()[0], rows)

    def _begin_dataframe(self, frame: SourceFrame, data: FrameData, submit: Submit) -> Callable[[], ProduceBatch]:
        """The task's own plan and the chain's behind it are one job."""
        read = partial(columns_of_dataframe, frame)

        def job() -> tuple[FrameColumns, Outcome]:
            try:
                return self._jobs.run_frame(data, self._last.steps, read)
            except PySparkException as error:
                if misfit := misfit_of(error):
                    raise misfit from error
                raise

        result = submit(job)

        def finish() -> ProduceBatch:
            columns, outcome = result()
            return self._finish_frame(frame, columns, outcome, len(next(iter(outcome.columns.values()))))

        return finish

    def _finish_frame(self, frame: SourceFrame, columns: FrameColumns, outcome: Outcome, rows: int) -> ProduceBatch:
        failures = Failures()
        assembly = Assembly(rows)
        failures.found([outcome])
        for name, column in columns.others.items():
            assembly.put(name, column)
        for name, value in missing_constants(frame, columns).items():
            assembly.put_constant(name, value)
        assembly.take([outcome])
        if "headers" in outcome.columns:
            self._write_headers(assembly, failures)
        return assembly.batch(failures)

    def _begin_read_frame(
        self, first: Columns, frame: SourceFrame, table: pa.Table, submit: Submit
    ) -> Callable[[], ProduceBatch]:
        """The rows become records behind the first segment, which a user's transform follows."""
        failures = Failures()
        columns = columns_of_table(frame, table)
        rows = columns.rows or 0
        group = Group(first.steps, columns.shape, None, columns.sides)
        shared = shared_of(columns, missing_constants(frame, columns), rows)
        outcomes = self._jobs.run([group], shared, rows, apart=True)
        failures.found(outcomes)
        made = [_records_of(frame, columns, outcome, rows) for outcome in outcomes]
        live, positions = in_order(made, rows, failures)
        return self._go_on(live, positions, rows, failures, self._segments[1:], submit)

    # ------------------------------------------------------------------ records
    def _begin_records(self, records: Sequence[SourceRecord], submit: Submit) -> Callable[[], ProduceBatch]:
        return self._go_on(list(records), None, len(records), Failures(), self._segments, submit)

    def _go_on(
        self,
        live: list[ConnectRecord],
        positions: list[int] | None,
        rows: int,
        failures: Failures,
        segments: Sequence[Segment],
        submit: Submit,
    ) -> Callable[[], ProduceBatch]:
        """Runs the segments, but for the last."""
        for segment in segments:
            started = time.perf_counter()
            if isinstance(segment, Classic):
                live, positions = apply_classic(segment, live, positions, failures)
                self._spent(segment.alias, time.perf_counter() - started)
            elif isinstance(segment, Framed):
                live, positions = self._frames.apply(segment, live, positions, failures, rows, sink=False)
                rows = rows if failures.origins is None else len(failures.origins)
                self._spent(segment.alias, time.perf_counter() - started)
            else:
                live, positions = self._apply_columns(segment, live, positions, failures, rows)
        groups: list[Group] = []
        if self._last.steps and live:
            groups, odd = self._groups(self._last, live, positions, failures)
            if odd:
                live, positions, groups = self._groups_apart(live, positions, odd, failures)
        columns = columns_of(live, positions, rows, failures)
        result: Callable[[], list[Outcome]] = list
        if groups:
            result = submit(lambda: self._jobs.run(groups, columns, rows, apart=False))
        return lambda: self._finish_records(live, positions, rows, failures, columns, result)

    def _finish_records(
        self,
        live: Sequence[ConnectRecord],
        positions: list[int] | None,
        rows: int,
        failures: Failures,
        columns: LazyColumns,
        result: Callable[[], list[Outcome]],
    ) -> ProduceBatch:
        # First: the job may be making some of the columns at this moment.
        outcomes = result()
        assembly = Assembly(rows)
        if positions is not None:
            assembly.drop_all_but(positions, failures)
        _put_coordinates(assembly, live, columns)
        failures.found(outcomes)
        headers_changed = any("headers" in outcome.columns for outcome in outcomes)
        if headers_changed:
            assembly.put("headers", columns["headers"])
        assembly.take(outcomes)
        if headers_changed:
            self._write_headers(assembly, failures)
        else:
            self._write_own_headers(assembly, live, positions, failures)
        for side, converter in self._own.items():
            assembly.put(side, _convert_own(side, converter, self._names[side], live, positions, rows, failures))
        return assembly.batch(failures)

    # ------------------------------------------------------------------ headers
    def _write_headers(self, assembly: Assembly, failures: Failures) -> None:
        """The headers are a column of the plan's output."""
        kept = assembly.kept(failures)
        topics, headers = assembly.column("topic"), assembly.column("headers")
        if len(kept) == assembly.rows:
            assembly.put("headers", self._headers.write_column(headers, topics, kept, failures))
            return
        pick = pa.array(kept)
        written = self._headers.write_column(headers.take(pick), topics.take(pick), kept, failures)
        place = np.full(assembly.rows, -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        assembly.put("headers", written.take(pa.array(place, mask=place < 0)))

    def _write_own_headers(
        self, assembly: Assembly, live: Sequence[ConnectRecord], positions: Sequence[int] | None, failures: Failures
    ) -> None:
        """The headers are those the records had."""
        if not any(record.raw_headers for record in live):
            return
        kept = assembly.kept(failures)
        if len(kept) < len(live):
            by_position = dict(zip(range(len(live)) if positions is None else positions, live, strict=True))
            positions = kept.tolist()
            live = [by_position[seq] for seq in positions]
        headers = self._headers.write(live, positions, assembly.rows, failures)
        if headers is not None:
            assembly.put("headers", headers)

    def _groups(
        self, segment: Columns, live: Sequence[ConnectRecord], positions: list[int] | None, failures: Failures
    ) -> tuple[list[Group], frozenset[int]]:
        """The groups of some records, unless the segment's transforms have to see some of these rows one by one."""
        bad = Failures()
        bad.origins = failures.origins

        def on_bad(seq: int, side: SideName, error: Exception) -> None:
            bad.raised(seq, _STAGES[side], self._names[side], error)

        # A converter that ignores schemas takes any value, if no transform has to take it first.
        last = self._converters["value"]
        any_value = isinstance(last, ColumnConverter) and last.ignores_schema and not self._has_transforms
        found = group_records(live, positions, sink=False, on_bad=on_bad, any_value=any_value)
        odd = odd_rows(found) if segment.alone else frozenset()
        if odd:
            return [], odd
        failures.errors.update(bad.errors)
        return [Group(segment.steps, one.shape, one.rows, one.columns) for one in found], odd

    def _groups_apart(
        self, live: list[ConnectRecord], positions: list[int] | None, odd: frozenset[int], failures: Failures
    ) -> tuple[list[ConnectRecord], list[int], list[Group]]:
        """The same for the last segment where there are odd rows, which then have to be written only."""
        rest, ones = split(live, positions, odd)
        groups, _ = self._groups(self._last, *rest, failures)
        made = transformed_alone(self._last, ones, failures)
        written, _ = self._groups(Columns(self._writing), *made, failures)
        return *merged(rest, made), [*groups, *written]

    def _apply_columns(
        self, segment: Columns, live: list[ConnectRecord], positions: list[int] | None, failures: Failures, rows: int
    ) -> tuple[list[ConnectRecord], list[int] | None]:
        """Runs column steps whose result a classic transform needs as records."""
        if not live:
            return live, positions
        groups, odd = self._groups(segment, live, positions, failures)
        alone: Rows = [], []
        if odd:
            (live, positions), ones = split(live, positions, odd)
            groups, _ = self._groups(segment, live, positions, failures)
            alone = transformed_alone(segment, ones, failures)
        shared = columns_of(live, positions, rows, failures)
        by_row = live if positions is None else dict(zip(positions, live, strict=True))
        outcomes = self._jobs.run(groups, shared, rows, apart=True)
        failures.found(outcomes)
        made = [rebuilt_rows(outcome, by_row) for outcome in outcomes]
        if odd:
            made.append(list(zip(alone[1], alone[0], strict=True)))
        return in_order(made, rows, failures)


def _not_for_plans(batch: SourceRecords | SourceFrame) -> bool:
    if isinstance(batch, SourceFrame):
        return isinstance(batch.data, pa.Table) and is_huge(batch.data)
    return not_for_plans(batch.records)


def _convert_own(
    side: SideName,
    converter: Converter,
    name: str,
    live: Sequence[ConnectRecord],
    positions: Sequence[int] | None,
    rows: int,
    failures: Failures,
) -> pa.Array:
    """Runs a user's own converter, record by record."""
    data: list[bytes | None] = [None] * rows
    for seq, record in zip(range(len(live)) if positions is None else positions, live, strict=True):
        if failures.of_row(seq) is not None:
            continue
        schema, value = (record.key_schema, record.key) if side == "key" else (record.value_schema, record.value)
        try:
            made: object = converter.from_connect_data(record.topic, schema, value, record.headers)
            if made is not None and not isinstance(made, (bytes, bytearray, memoryview)):
                raise DataException(f"{name} must return bytes or None, got {type(made).__name__}")
            data[seq] = made if made is None else bytes(made)
        except Exception as error:
            failures.raised(seq, _STAGES[side], name, error)
    return pa.array(data, pa.binary())


def _records_of(
    frame: SourceFrame, columns: FrameColumns, outcome: Outcome, rows: int
) -> list[tuple[int, ConnectRecord]]:
    """What a job made of rows of a frame, as records with their rows."""
    key, value = outcome.shape.key, outcome.shape.value
    frame = replace(frame, key_schema=key.schema, value_schema=value.schema)
    others = columns.others
    if outcome.rows is not None:
        pick = pa.array(outcome.rows)
        others = {name: column.take(pick) for name, column in others.items()}
    return rows_of(outcome, rows, lambda places, keys, values: records_of(frame, others, keys, values))


def _rows_of(frame: SourceFrame, data: DataFrame) -> pa.Table:
    # Says which column has a type that cannot be taken, before the job runs.
    columns_of_dataframe(frame, data)
    variants = [field.name for field in data.schema if field.dataType.typeName() == "variant"]
    return data.withColumns({name: collectable(data[name]) for name in variants}).toArrow()


def _put_coordinates(assembly: Assembly, records: Sequence[ConnectRecord], columns: LazyColumns) -> None:
    """Topic, partition and timestamp; most batches have one topic, and neither of the others."""
    for name, values in (
        ("topic", {record.topic for record in records}),
        ("partition", {record.kafka_partition for record in records}),
        ("timestamp", {record.timestamp for record in records}),
    ):
        if len(values) == 1:
            assembly.put_constant(name, next(iter(values)))
        elif values:
            assembly.put(name, columns[name])
