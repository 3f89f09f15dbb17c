"""The sink path: consumed messages become records, or frames, for a sink task.

Main types: ``SinkPipeline`` and ``build_sink_pipeline``. Converters first sort the messages by what their bytes need
(the schema of a JSON message is in the message); each pair of a key's and a value's sort is one group. Reading and
transforms are Spark columns, except a user's own classes, which run here record by record.

Thread: one instance a task, used by the task's pipeline thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, Converter, SinkRecord, TimestampType, ValueForm
from penstock.data import ConnectHeaders
from penstock.pipeline.assembly import LazyColumns
from penstock.pipeline.batches import ConsumedBatch, PipelineSpec, SinkBatch, Stage, Submit, when_asked
from penstock.pipeline.chain import Staged
from penstock.pipeline.framing import FrameRunner
from penstock.pipeline.grouping import RecordGroup, group_records
from penstock.pipeline.header_columns import headers_column, headers_of_column
from penstock.pipeline.headers import HeaderReader, HeaderWriter
from penstock.pipeline.java_text import AsText
from penstock.pipeline.jobs import Group, Outcome, SparkJobs
from penstock.pipeline.nesting import make_room
from penstock.pipeline.odd_maps import Rows, odd_rows, split, transformed_alone
from penstock.pipeline.quick_steps import QuickTries, part_of, put_together, quick_steps, rows_left
from penstock.pipeline.rebuild import apply_classic, columns_of, in_order, rebuilt_rows, side_values
from penstock.pipeline.segments import Classic, Columns, Failures, Framed, class_name, cut_transforms
from penstock.pipeline.singly import are_many, is_huge, singly
from penstock.pipeline.sink_frames import frames_of
from penstock.pipeline.step import NOTHING, RAW, RAW_TEXT, ColumnConverter, Shape, Side, SideName, Sorted, Step

if TYPE_CHECKING:
    from penstock.pipeline.session import SparkRuntime

_STAGES: Mapping[SideName, str] = {"key": Stage.KEY_CONVERTER, "value": Stage.VALUE_CONVERTER}
_SIDES: tuple[SideName, SideName] = ("key", "value")
_TIMESTAMP_TYPES = {int(kind): kind for kind in TimestampType}


def build_sink_pipeline(
    runtime: SparkRuntime,
    spec: PipelineSpec,
    jobs: SparkJobs | None = None,
    moved: Callable[[int], None] = lambda records: None,
) -> SinkPipeline:
    """Makes the pipeline of one sink task.

    Args:
        runtime: Owner of the Spark session.
        spec: Converters and transforms, configured; ``value_form`` None = the task takes records.
        jobs: Runs and keeps the plans; the worker's tasks share one. None = an own one.
        moved: Told of each batch how many records of it went through Spark: all of them.
    """
    return SinkPipeline(runtime, spec, SparkJobs(runtime) if jobs is None else jobs, moved)


class SinkPipeline:
    """Turns batches of consumed messages into what one sink task takes. Thread: the task's pipeline thread."""

    def __init__(
        self,
        runtime: SparkRuntime,
        spec: PipelineSpec,
        jobs: SparkJobs,
        moved: Callable[[int], None] = lambda records: None,
    ) -> None:
        make_room()
        self._session = runtime.session if spec.session is None else spec.session
        self._jobs = jobs
        self._moved = moved
        self._spent = spec.spent
        self._whole = spec.nothing_beside_spark
        self._without_spark = spec.without_spark
        self._form = spec.value_form
        self._converters: Mapping[SideName, Converter] = {"key": spec.key_converter, "value": spec.value_converter}
        self._names = {side: class_name(converter) for side, converter in self._converters.items()}
        self._headers = HeaderReader(spec.header_converter)
        self._header_writer = HeaderWriter(spec.header_converter)
        self._header_name = class_name(spec.header_converter)
        self._own = {side: one for side, one in self._converters.items() if not isinstance(one, ColumnConverter)}
        segments = cut_transforms(spec.transforms)
        self._first: tuple[Staged, ...] = ()
        if not self._own and segments and isinstance(segments[0], Columns):
            self._first = segments[0].steps
            segments = segments[1:]
        self._segments = segments
        self._framer = FrameRunner(jobs)
        text = Staged(AsText("value"), Stage.VALUE_CONVERTER, self._names["value"])
        self._last: tuple[Staged, ...] = (text,) if self._form is ValueForm.TEXT else ()
        # Without anything in Python in between, a frame task's batch is one plan from bytes to frame.
        self._straight = self._form is not None and not segments and not self._own
        # Values go from bytes to text in one step, where nothing has to see them in between.
        self._text_at_once = self._straight and not self._first and self._form is ValueForm.TEXT
        self._tries = QuickTries()
        alone = singly(spec) if spec.value_form is None and len(self._own) < len(_SIDES) else None
        self._singly = None if alone is None else SinkPipeline(runtime, alone, jobs, moved)

    def run(self, batch: ConsumedBatch) -> SinkBatch:
        """Runs one batch. Blocks for the Spark job.

        Raises:
            SparkUnavailableException: There is no Spark session and none can be started.
        """
        return self.begin(batch, when_asked)()

    def begin(self, batch: ConsumedBatch, submit: Submit) -> Callable[[], SinkBatch]:
        """Begins one batch, up to its first Spark job.

        Args:
            batch: What was consumed.
            submit: Gets that job, which can run on any thread, and gives what waits for its result.

        Returns:
            What ends the batch, to be called once, on the thread of the pipeline; it may be called after other batches
            were begun. Every call of a user's transform or converter is in it, but for that of a header converter whose
            headers a column step reads.

        Raises:
            SparkUnavailableException: There is no Spark session and none can be started.
        """
        table = batch.table
        finish = self._begin(self._jobs.through(table) if self._whole and table.num_rows else table, submit)

        def end() -> SinkBatch:
            made = finish()
            self._moved(table.num_rows)
            return made

        return end

    def _begin(self, table: pa.Table, submit: Submit) -> Callable[[], SinkBatch]:
        if not table.num_rows:
            return lambda: SinkBatch(None if self._form else (), () if self._form else None, {}, 0)
        groups, deep = self._sorted(table)
        if self._singly is not None and (deep or are_many(len(groups), table.num_rows) or is_huge(table)):
            return self._singly._begin(table, submit)
        failures = Failures()
        read = self._begin_reading(groups, table, failures, submit)
        return lambda: self._finish(read(), table, failures)

    def _finish(self, outcomes: Sequence[Outcome], table: pa.Table, failures: Failures) -> SinkBatch:
        rows = table.num_rows
        if self._straight:
            return self._frames(outcomes, table, failures)
        records = self._records(outcomes, table, failures)
        live, positions = self._transform(records, failures, rows)
        consumed = rows
        if failures.origins is not None:
            rows = len(failures.origins)
            table = table.take(pa.array(failures.origins))
        if self._form is not None:
            groups = _with_steps(self._grouped(live, positions, failures), self._last)
            outcomes = (
                self._jobs.run(groups, columns_of(live, positions, rows, failures), rows, apart=True) if live else []
            )
            failures.found(outcomes)
            return self._frames(outcomes, table, failures)
        aligned: list[SinkRecord | None] = [None] * rows
        for seq, record in zip(positions, live, strict=True):
            if isinstance(record, SinkRecord):
                aligned[seq] = record
        there = {failures.seq(seq) for seq in positions}
        dropped = consumed - len(there | failures.errors.keys())
        return SinkBatch(aligned, None, failures.errors, dropped, failures.origins)

    # ------------------------------------------------------------------ reading
    def _begin_reading(
        self, groups: Sequence[Group], table: pa.Table, failures: Failures, submit: Submit
    ) -> Callable[[], Sequence[Outcome]]:
        rows = table.num_rows
        makers: dict[str, Callable[[], pa.Array | pa.ChunkedArray]] = {
            name: partial(table.column, name) for name in ("topic", "partition", "timestamp", "offset")
        }
        makers["headers"] = partial(self._headers_column, table, failures)
        shared = LazyColumns(makers)
        if self._without_spark and not any(group.steps for group in groups):
            return lambda: [Outcome(group.rows, group.shape, group.columns, None, None, {}) for group in groups]
        steps = self._quick_steps(groups)
        if steps is not None:
            quickly = submit(lambda: self._quickly(groups[0], steps, shared, rows))
            return lambda: self._finish_quickly(steps, *quickly(), rows, failures)
        read = submit(lambda: self._jobs.run(groups, shared, rows, apart=True))

        def finish() -> Sequence[Outcome]:
            outcomes = read()
            failures.found(outcomes)
            return outcomes

        return finish

    def _quick_steps(self, groups: Sequence[Group]) -> tuple[Staged, ...] | None:
        """Steps that do for most rows; None = not for these groups."""
        if not self._straight or len(groups) != 1:
            return None
        return next((steps for steps in quick_steps(groups[0]) if self._tries.worth(steps)), None)

    def _quickly(
        self, group: Group, steps: tuple[Staged, ...], shared: LazyColumns, rows: int
    ) -> tuple[Outcome, np.ndarray, Sequence[Outcome]]:
        """Most rows by a quick plan, and by the full one those that it has left."""
        quick = self._jobs.run([replace(group, steps=steps)], shared, rows, apart=True)[0]
        left = rows_left(group, quick)
        rest = self._jobs.run([part_of(group, left)], shared, rows, apart=True) if len(left) else []
        return quick, left, rest

    def _finish_quickly(
        self,
        steps: tuple[Staged, ...],
        quick: Outcome,
        left: np.ndarray,
        rest: Sequence[Outcome],
        rows: int,
        failures: Failures,
    ) -> Sequence[Outcome]:
        self._tries.note(steps, len(left), rows)
        failures.found((quick, *rest))
        return put_together(quick, left, rest) if rest else [quick]

    def _headers_of(self, table: pa.Table, failures: Failures) -> list[ConnectHeaders | None]:
        topics = table.column("topic")
        return self._headers.read(lambda row: str(topics[row].as_py()), table.column("headers"), failures)

    def _headers_column(self, table: pa.Table, failures: Failures) -> pa.Array:
        def on_bad(row: int, error: Exception) -> None:
            failures.raised(row, Stage.HEADER_CONVERTER, self._header_name, error)

        return headers_column(self._headers_of(table, failures), on_bad)

    def _sorted(self, table: pa.Table) -> tuple[list[Group], bool]:
        """One group for each pair of hints, and whether a schema is among them that is too deep for a good plan."""
        columns = {side: table.column(side) for side in _SIDES}
        sides = {side: RAW if columns[side].null_count < len(columns[side]) else NOTHING for side in _SIDES}
        found: dict[SideName, Sorted] = {}
        for side in _SIDES:
            converter = self._converters[side]
            if isinstance(converter, ColumnConverter):
                found[side] = (
                    converter.sort(columns[side])
                    if self._text_at_once
                    else converter.sort_values(
                        columns[side], transformed=bool(self._first), beside_spark=not self._whole
                    )
                )
                rewritten = found[side].column
                columns[side] = columns[side] if rewritten is None else rewritten
                if converter.reads_text and not sides[side].absent:
                    sides[side], columns[side] = _as_text(columns[side])
            else:
                found[side] = Sorted(hints=(None,))
        groups: list[Group] = []
        for rows, codes in _pairs(found["key"], found["value"], table.num_rows):
            steps = self._reading({side: found[side].hints[codes[side]] for side in _SIDES})
            given = {side: found[side].read.get(codes[side], (sides[side], columns[side])) for side in _SIDES}
            present: dict[str, pa.ChunkedArray] = {
                name: column for name, (side, column) in given.items() if not side.absent
            }
            if rows is not None:
                present = {side: column.take(pa.array(rows)) for side, column in present.items()}
            groups.append(Group(steps, Shape(given["key"][0], given["value"][0], sink=True), rows, present))
        return groups, any(one.deep for one in found.values())

    def _reading(self, hints: Mapping[SideName, Hashable]) -> tuple[Staged, ...]:
        short = self._short_cut(hints["value"])
        steps = [
            Staged(
                short if side == "value" and short is not None else converter.reading(side, hints[side]),
                _STAGES[side],
                self._names[side],
            )
            for side, converter in self._converters.items()
            if isinstance(converter, ColumnConverter)
        ]
        last = self._last if self._straight and short is None else ()
        return (*steps, *self._first, *last)

    def _short_cut(self, hint: Hashable) -> Step | None:
        """Bytes to text in one step, where nothing has to see the values in between."""
        converter = self._converters["value"]
        if not self._text_at_once:
            return None
        return converter.reading_text("value", hint) if isinstance(converter, ColumnConverter) else None

    # ------------------------------------------------------------------ records
    def _records(self, outcomes: Sequence[Outcome], table: pa.Table, failures: Failures) -> dict[int, ConnectRecord]:
        """The records of the batch by row, without failed and dropped ones."""
        changed = [outcome for outcome in outcomes if "headers" in outcome.columns]
        headers: list[ConnectHeaders | None] = [None] * table.num_rows
        if len(changed) < len(outcomes):
            headers = self._headers_of(table, failures)
        for outcome in changed:
            rows = range(table.num_rows) if outcome.rows is None else outcome.rows.tolist()
            for row, one in zip(rows, headers_of_column(outcome.columns["headers"]), strict=True):
                headers[row] = one
        names = ("topic", "partition", "offset", "timestamp", "timestamp_type")
        coordinates = [table.column(name).to_pylist() for name in names]
        raw = {side: table.column(side) for side in self._own}
        records: dict[int, ConnectRecord] = {}
        for outcome in outcomes:
            self._fill(outcome, coordinates, headers, raw, records, failures)
        return records

    def _fill(
        self,
        outcome: Outcome,
        coordinates: Sequence[Sequence[object]],
        headers: Sequence[ConnectHeaders | None],
        raw: Mapping[SideName, pa.ChunkedArray],
        records: dict[int, ConnectRecord],
        failures: Failures,
    ) -> None:
        topics, partitions, offsets, timestamps, kinds = coordinates
        rows = range(len(topics)) if outcome.rows is None else outcome.rows.tolist()
        keys = side_values(outcome, "key", len(rows))
        values = side_values(outcome, "value", len(rows))
        changed = {
            name: outcome.columns[name].to_pylist()
            for name in ("topic", "partition", "timestamp")
            if name in outcome.columns
        }
        dropped = None if outcome.dropped is None else outcome.dropped.to_pylist()
        key_schema, value_schema = outcome.shape.key.schema, outcome.shape.value.schema
        errors = failures.errors
        for place, row in enumerate(rows):
            if row in errors or (dropped is not None and dropped[place]):
                continue
            record: SinkRecord = SinkRecord(
                topics[row],
                partitions[row],
                offsets[row],
                values[place],
                value_schema=value_schema,
                key=keys[place],
                key_schema=key_schema,
                timestamp=timestamps[row],
                timestamp_type=_TIMESTAMP_TYPES[kinds[row]],
                headers=headers[row],
            )
            for side, column in raw.items():
                read = self._read_own(side, record, column[row].as_py(), row, failures)
                if read is None:
                    break
                record = read
            else:
                if changed:
                    record = record.new_record(**{name: column[place] for name, column in changed.items()})
                records[row] = record

    def _read_own(
        self, side: SideName, record: SinkRecord, data: bytes | None, row: int, failures: Failures
    ) -> SinkRecord | None:
        """Runs a user's own converter on one message."""
        try:
            schema, value = self._own[side].to_connect_data(record.topic, data, record.headers)
        except Exception as error:
            failures.raised(row, _STAGES[side], self._names[side], error)
            return None
        if side == "key":
            return record.new_record(key_schema=schema, key=value)
        return record.new_record(value_schema=schema, value=value)

    # ------------------------------------------------------------------ transforms that are not in the first plan
    def _transform(
        self, records: Mapping[int, ConnectRecord], failures: Failures, rows: int
    ) -> tuple[list[ConnectRecord], list[int]]:
        positions = sorted(records)
        live = [records[row] for row in positions]
        for segment in self._segments:
            started = time.perf_counter()
            if isinstance(segment, Classic):
                live, kept = apply_classic(segment, live, positions, failures)
                positions = positions if kept is None else kept
                self._spent(segment.alias, time.perf_counter() - started)
                continue
            if isinstance(segment, Framed):
                live, kept = self._framer.apply(segment, live, positions, failures, rows, sink=True)
                rows = rows if failures.origins is None else len(failures.origins)
                self._spent(segment.alias, time.perf_counter() - started)
                positions = list(range(rows)) if kept is None else kept
                continue
            bad = Failures()
            bad.origins = failures.origins
            found = self._grouped(live, positions, bad)
            alone: Rows = [], []
            if odd := odd_rows(found):
                (live, positions), ones = split(live, positions, odd)
                found = self._grouped(live, positions, failures)
                alone = transformed_alone(segment, ones, failures)
            else:
                failures.errors.update(bad.errors)
            groups = _with_steps(found, segment.steps)
            by_position = dict(zip(positions, live, strict=True))
            outcomes = self._jobs.run(groups, columns_of(live, positions, rows, failures), rows, apart=True)
            failures.found(outcomes)
            made = [rebuilt_rows(outcome, by_position) for outcome in outcomes]
            if odd:
                made.append(list(zip(alone[1], alone[0], strict=True)))
            live, kept = in_order(made, rows, failures)
            positions = list(range(rows)) if kept is None else kept
        return live, positions

    def _grouped(self, live: Sequence[ConnectRecord], positions: list[int], failures: Failures) -> list[RecordGroup]:
        def on_bad(seq: int, side: SideName, error: Exception) -> None:
            failures.raised(seq, _STAGES[side], self._names[side], error)

        return group_records(live, positions, sink=True, on_bad=on_bad)

    # ------------------------------------------------------------------ frames
    def _frames(self, outcomes: Sequence[Outcome], table: pa.Table, failures: Failures) -> SinkBatch:
        rows = table.num_rows
        present = np.zeros(rows, dtype=bool)
        for outcome in outcomes:
            positions = np.arange(rows) if outcome.rows is None else outcome.rows
            kept = True if outcome.dropped is None else ~outcome.dropped.fill_null(False).to_numpy().astype(bool)
            present[positions] = kept
        present[failures.failed(rows)] = False
        outcomes = [self._with_wire_headers(outcome, table, present, failures) for outcome in outcomes]
        present[failures.failed(rows)] = False
        frames = frames_of(outcomes, table, ~present, self._session)
        dropped = max(0, int(rows - present.sum() - failures.failed(rows).sum()))
        return SinkBatch(None, frames, failures.errors, dropped, failures.origins)

    def _with_wire_headers(self, outcome: Outcome, table: pa.Table, present: np.ndarray, failures: Failures) -> Outcome:
        """A frame has its headers as bytes: those a transform changed are written again."""
        if "headers" not in outcome.columns:
            return outcome
        seqs = np.arange(table.num_rows) if outcome.rows is None else outcome.rows
        headers = outcome.columns["headers"].combine_chunks()
        topics = outcome.columns["topic"] if "topic" in outcome.columns else table.column("topic").take(pa.array(seqs))
        kept = np.flatnonzero(present[seqs])
        pick = pa.array(kept)
        written = self._header_writer.write_column(headers.take(pick), topics.take(pick), seqs[kept], failures)
        place = np.full(len(seqs), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        wire = pa.chunked_array([written.take(pa.array(place, mask=place < 0))])
        return replace(outcome, columns={**outcome.columns, "headers": wire})


def _with_steps(found: Sequence[RecordGroup], steps: tuple[Staged, ...]) -> list[Group]:
    return [Group(steps, one.shape, one.rows, one.columns) for one in found]


def _as_text(column: pa.ChunkedArray) -> tuple[Side, pa.ChunkedArray]:
    """Messages as strings, if all of them are UTF-8."""
    try:
        return RAW_TEXT, column.cast(pa.string())
    except pa.ArrowInvalid:
        return RAW, column


def _pairs(keys: Sorted, values: Sorted, rows: int) -> list[tuple[np.ndarray | None, Mapping[SideName, int]]]:
    """The rows of each pair of hints, by their indices; None = all rows."""
    if keys.codes is None and values.codes is None:
        return [(None, {"key": 0, "value": 0})]
    zeros = np.zeros(rows, dtype=np.int64)
    key_codes = zeros if keys.codes is None else keys.codes.astype(np.int64)
    value_codes = zeros if values.codes is None else values.codes.astype(np.int64)
    width = len(values.hints)
    both = key_codes * width + value_codes
    return [
        (np.flatnonzero(both == code), {"key": code // width, "value": code % width})
        for code in np.unique(both).tolist()
    ]
