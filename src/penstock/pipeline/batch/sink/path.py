"""The sink path: converts consumed messages to records or frames for a sink task.

Converters first sort the messages by what their bytes need (the schema of a JSON message is in the message); each pair
of a key's and a value's sort is one group. Reading and transforms are Spark columns, except for a user's own classes
and the cases that ``groups`` decides, which run here record by record.

Thread: one instance for each task, used by the task's pipeline thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from penstock.api import ConnectRecord, Converter, SinkRecord, ValueForm
from penstock.data import ConnectHeaders
from penstock.pipeline.batch.batches import (
    Failures,
    LazyColumns,
    Moved,
    PendingBatch,
    PipelineSpec,
    SinkBatch,
    Stage,
    Submit,
    Why,
    without_patience,
)
from penstock.pipeline.batch.frames import FrameRunner
from penstock.pipeline.batch.groups import (
    are_many,
    group_records,
    is_huge,
    parted_by_plan,
    rows_of_pairs,
    why_messages_in_rows,
    why_rows,
)
from penstock.pipeline.batch.headers import HeaderReader, HeaderWriter, headers_column
from penstock.pipeline.batch.row_path import (
    MessageReader,
    OneSide,
    Rows,
    apply_classic,
    attributes_of,
    beside_of_messages,
    columns_of,
    in_order,
    java_text_of,
    parted,
    rebuilt_rows,
    transformed,
)
from penstock.pipeline.batch.segments import (
    Classic,
    ColumnarSegment,
    Framed,
    Segment,
    Stateless,
    class_name,
    cut_transforms,
    why_one_process,
)
from penstock.pipeline.batch.sink.frames import (
    LooseValues,
    TypedPart,
    add_of_records,
    changed_columns,
    frames_of,
    topics_of,
    with_texts,
    with_wire_headers,
    without_loose,
)
from penstock.pipeline.batch.stateless import Spreader
from penstock.pipeline.batch.transfer import ShippedRecords, can_be_part, part_of_records, parts_of_outcomes
from penstock.pipeline.columns.schemaless import KnownTypes
from penstock.pipeline.columns.sizes import make_room
from penstock.pipeline.plan.chain import GroupOutcome, ShapeGroup, Staged, unchanged
from penstock.pipeline.plan.frame_values import AsText, AsVariant
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.plan.step import (
    NOTHING,
    RAW,
    RAW_TEXT,
    SCHEMALESS_TEXT,
    SIDES,
    ColumnConverter,
    RowConverter,
    Shape,
    Side,
    SideName,
    Sorted,
)
from penstock.pipeline.spark.gate import Passage

if TYPE_CHECKING:
    from penstock.pipeline.spark.session import SparkRuntime

#: The sides that are typed columns in frames if they have no schema, by the form of their values.
_TYPED: Final[Mapping[ValueForm | None, tuple[SideName, ...]]] = {
    ValueForm.COLUMNS: ("key", "value"),
    ValueForm.TEXT: ("key",),
}
#: The hint of values that are already texts.
_AT_ONCE: Final = "at once"


@dataclass(frozen=True)
class GroupsAhead:
    """The groups of a batch, before their plan; ``shared`` has the other columns of the record, for the whole batch.

    ``failed`` tells if a message has failed, as far as columns were taken.
    """

    groups: Sequence[ShapeGroup]
    shared: Mapping[str, pa.Array | pa.ChunkedArray]
    failed: Callable[[], bool]


class SinkPipeline:
    """Converts batches of consumed messages to the records or frames of one sink task. Thread: its pipeline thread."""

    def __init__(
        self,
        runtime: SparkRuntime,
        spec: PipelineSpec,
        jobs: SparkJobs | None = None,
        moved: Moved = lambda paths: None,
    ) -> None:
        jobs = SparkJobs(runtime) if jobs is None else jobs
        make_room()
        self._session = runtime.session if spec.session is None else spec.session
        self._jobs = jobs
        self._moved = moved
        self._spent = spec.spent
        self._whole = spec.nothing_beside_spark
        self._without_spark = spec.without_spark
        self._no_session = spec.no_session
        self._form = spec.value_form
        self._join = spec.frames_join
        self._converters: Mapping[SideName, Converter] = {"key": spec.key_converter, "value": spec.value_converter}
        self._header_writer = HeaderWriter(spec.header_converter)
        self._header_name = class_name(spec.header_converter)
        self._alone = {side: OneSide(side, converter) for side, converter in self._converters.items()}
        #: The sides that are never columns.
        self._own = {
            side for side, one in self._converters.items() if not isinstance(one, (ColumnConverter, RowConverter))
        }
        segments = cut_transforms(spec.transforms)
        self._first = ColumnarSegment(())
        if not self._own and segments and isinstance(first := segments[0], ColumnarSegment):
            self._first = first
            segments = segments[1:]
        self._segments = segments
        self._headers = HeaderReader(spec.header_converter)
        self._reader = MessageReader(self._alone, self._own, self._headers, self._first)
        self._framer = FrameRunner(jobs)
        self._spreader = Spreader(None if spec.without_spark or spec.no_session else jobs, spec.spent)
        self._last: tuple[Staged, ...] = ()
        if self._form in (ValueForm.TEXT, ValueForm.VARIANT):
            last = AsText("value") if self._form is ValueForm.TEXT else AsVariant()
            self._last = (Staged(last, Stage.VALUE_CONVERTER, self._alone["value"].name),)
        # Without Python code in between, a frame task's batch is one plan from bytes to frame.
        self._straight = self._form is not None and not segments and not self._own
        #: The sides that frames have as typed columns if they have no schema, and those of them that are read here, not
        #: by a plan.
        self._typed = frozenset(_TYPED.get(self._form, ()))
        self._loose: frozenset[SideName] = frozenset()
        if self._straight and not self._first.steps:
            self._loose = frozenset(side for side in self._typed if _is_schemaless(self._converters[side]))
        self._known = KnownTypes()
        # Values without a schema become objects of records, which no step needs as columns.
        self._as_objects = not (self._first.steps or self._whole or self._form) and _is_schemaless(spec.value_converter)
        # Texts look the same in a frame, whichever way they were made.
        self._texts_alone = self._straight and not self._first.steps and self._form is ValueForm.TEXT

    @property
    def in_one_process(self) -> str | None:
        """The reason why the messages have to pass through this process; None if any process may process them."""
        return why_one_process(self._segments)

    def run(self, batch: pa.Table) -> SinkBatch:
        """Runs one batch. Blocks for the Spark job."""
        return self.begin(batch, PendingBatch).result()

    def begin(self, batch: pa.Table, submit: Submit) -> PendingBatch[SinkBatch]:
        """Begins one batch, up to its first Spark job, which ``submit`` gets and any thread can run.

        The result is asked for on the thread of the pipeline, perhaps after other batches were begun. Every call of a
        user's transform or converter is in it, but for that of a header converter whose headers a column step reads.

        Raises:
            SparkUnavailableException: There is no Spark session and none can be started.
        """
        if not batch.num_rows:
            return PendingBatch(lambda: SinkBatch(None if self._form else (), () if self._form else None, {}, 0))
        table = self._jobs.through(batch) if self._whole else batch
        failures = Failures()
        groups, alone, why, messages = self._parted(table, failures, no_session=self._no_session)
        job = self._begin_reading(groups, self._shared(table, failures), table, messages, failures, submit)
        # This runs while Spark processes earlier batches; failures are noted when that is done.
        loose = self._begin_loose(table, failures)

        def finish() -> SinkBatch:
            outcomes = job.result()
            failures.found(outcomes)
            made = self._finish(outcomes, alone, table, failures, why, loose())
            self._moved(failures.paths(table.num_rows, consumed=True))
            return made

        return PendingBatch(finish)

    def _begin_loose(self, table: pa.Table, failures: Failures) -> Callable[[], Mapping[SideName, LooseValues]]:
        """Reads keys and values that no plan reads; the returned function notes failures."""
        topics, everything = table.column("topic"), np.arange(table.num_rows)
        objects = {side: self._alone[side].all_objects(table.column(side)) for side in self._loose}
        left = [side for side in self._loose if objects[side] is None]
        values = {side: self._alone[side].all_values(topics, table.column(side)) for side in left}

        def finish() -> Mapping[SideName, LooseValues]:
            loose = {side: LooseValues(side, objects=objects.get(side)) for side in SIDES if side in self._typed}
            for side in reversed(SIDES):  # Java reads keys first, so their errors count.
                if side not in values:
                    continue
                loose[side].add(everything, values[side][0])
                for row, error in values[side][1].items():
                    if side == "key" or failures.of_row(row) is None:
                        self._alone[side].note(failures, row, error)
            return loose

        return finish

    # ------------------------------------------------------------------ a plan that another process runs
    def groups_ahead(self, table: pa.Table, *, whole: bool = True) -> GroupsAhead | None:
        """The groups of a batch all of whose messages need a plan; None for any other batch.

        See ``penstock.pipeline.batch.sink.ahead``, which has the plan run elsewhere and calls ``end`` then. Unless
        ``whole`` some messages may need none, and some may be unreadable.
        """
        failures = Failures()
        groups, rest, _, _ = self._parted(table, failures, no_session=False, mixed=not whole)
        unplanned, groups = parted_by_plan(groups)
        if not groups or (whole and (len(rest) or unplanned)):
            return None
        return GroupsAhead(groups, self._shared(table, failures), lambda: bool(failures.errors))

    def end(self, table: pa.Table, outcomes: Sequence[GroupOutcome]) -> SinkBatch:
        """Ends a batch whose groups have been through their plan elsewhere."""
        failures = Failures()
        loose = self._begin_loose(table, failures)
        failures.found(outcomes)
        made = self._finish(outcomes, np.arange(0), table, failures, None, loose())
        self._moved(failures.paths(table.num_rows, consumed=True))
        return made

    def _parted(
        self, table: pa.Table, failures: Failures, *, no_session: bool, mixed: bool = False
    ) -> tuple[list[ShapeGroup], np.ndarray, Why | None, pa.Table]:
        """Returns the groups of the messages that are columns; the rows of the others; the reason if the batch goes as
        rows; and the messages, as they were sorted.
        """
        everything = np.arange(table.num_rows)
        if self._without_spark:
            return [], everything, Why.NO_SPARK, table
        if self._own:
            failures.went_as_rows(None, Why.OWN_CLASS)
        if len(self._own) == len(SIDES):
            return [], everything, None, table
        if self._form is ValueForm.TEXT and not self._whole and is_huge(table):
            failures.went_as_rows(None, Why.HUGE_VALUE)
            return [], everything, Why.HUGE_VALUE, table
        if self._as_objects and table.column("value").null_count < table.num_rows:
            failures.went_as_rows(None, Why.MIXED_VALUES)
            return [], everything, None, table
        found, unread, deep, changed, messages = self._sorted(table, failures)
        if self._loose:
            found = [one for one in found if not (one.shape.key.absent and one.shape.value.absent)]
        if not self._whole and self._form is None:
            why = why_messages_in_rows(len(found), table, deep=deep, changed=changed)
            if why is not None:
                failures.went_as_rows(None, why)
                return [], everything, why, table
        to_records = self._form is None and not self._whole
        groups: list[ShapeGroup] = []
        left = np.zeros(table.num_rows, dtype=bool)
        if len(unread):
            failures.went_as_rows(unread, Why.ONE_BY_ONE)
        for one in found:
            why = why_rows(one.steps, one.shape, to_records=to_records)
            if why is None and no_session and parted_by_plan([one])[1]:
                why = Why.NO_SPARK
            if why is None:
                groups.append(one)
                continue
            if self._texts_alone:
                failures.went_as_rows(one.rows, why)
                groups.append(self._as_texts(one, table, failures))
                continue
            left[everything if one.rows is None else one.rows] = True
            # All rows of frames, so that rows of both paths do not alternate: each run of equal columns is a frame.
            failures.went_as_rows(one.rows if self._form is None else None, why)
        if self._form is not None and left.any() and not mixed:
            return [], everything, None, table
        left[unread] = True
        return groups, np.flatnonzero(left), None, messages

    def _as_texts(self, group: ShapeGroup, table: pa.Table, failures: Failures) -> ShapeGroup:
        """Handles messages whose values became texts one by one; their keys go through the plan like those of the
        others.
        """
        rows = np.arange(table.num_rows) if group.rows is None else group.rows
        mine = table.select(["topic", "value"]).take(pa.array(rows))
        topics, values = (column.to_pylist() for column in mine.columns)
        texts = self._alone["value"].texts(topics, values, rows.tolist(), failures)
        steps = tuple(one for one in group.steps if getattr(one.step, "side", None) == "key")
        columns = {**group.columns, "value": texts}
        return replace(group, steps=steps, shape=group.shape.with_side("value", SCHEMALESS_TEXT), columns=columns)

    def _finish(
        self,
        outcomes: Sequence[GroupOutcome],
        alone: np.ndarray,
        table: pa.Table,
        failures: Failures,
        why: Why | None,
        loose: Mapping[SideName, LooseValues],
    ) -> SinkBatch:
        rows = table.num_rows
        if self._straight and not len(alone):
            if (headers := table.column("headers")).null_count < rows:
                self._headers.look_at(table.column("topic"), headers, failures)
            return self._frames(outcomes, table, failures, loose)
        read: Sequence[GroupOutcome] = ()
        if self._straight:
            # Frames hold the results of the plan.
            read, outcomes = outcomes, ()
        headers = self._reader.headers_before(outcomes, alone, table, failures)
        live, positions = self._transformed(outcomes, alone, table, headers, failures, why)
        consumed = rows
        if failures.origins is not None:
            rows = len(failures.origins)
            table = table.take(pa.array(failures.origins))
        if self._form is not None:
            before = [headers[failures.seq(row)] for row in positions]
            made = self._framed(live, positions, before, table, failures, loose)
            return self._frames([*read, *made], table, failures, loose)
        if len(live) == consumed and failures.origins is None and set(map(type, live)) == {SinkRecord}:
            return SinkBatch(cast("list[SinkRecord]", live), None, failures.errors, 0)
        aligned: list[SinkRecord | None] = [None] * rows
        for seq, record in zip(positions, live, strict=True):
            if isinstance(record, SinkRecord):
                aligned[seq] = record
        there = set(positions) if failures.origins is None else {failures.seq(seq) for seq in positions}
        dropped = consumed - len(there | failures.errors.keys())
        return SinkBatch(aligned, None, failures.errors, dropped, failures.origins)

    # ------------------------------------------------------------------ reading
    def _shared(self, table: pa.Table, failures: Failures) -> LazyColumns:
        """The columns of the record, without keys and values."""
        makers: dict[str, Callable[[], pa.Array | pa.ChunkedArray]] = {
            name: partial(table.column, name) for name in ("topic", "partition", "timestamp", "offset")
        }
        makers["headers"] = partial(self._headers_column, table, failures)
        return LazyColumns(makers)

    def _begin_reading(
        self,
        groups: Sequence[ShapeGroup],
        shared: Mapping[str, pa.Array | pa.ChunkedArray],
        table: pa.Table,
        messages: pa.Table,
        failures: Failures,
        submit: Submit,
    ) -> PendingBatch[list[GroupOutcome]]:
        rows = table.num_rows
        if not groups and self._without_spark:
            return PendingBatch(list)
        unplanned, planned = ([], list(groups)) if self._whole else parted_by_plan(groups)

        # As bytes, all messages go through a plan.
        beside: pa.Table | None = messages
        if planned:
            rows_beside = [one.rows for one in unplanned if one.rows is not None]
            beside = messages.take(pa.array(np.sort(np.concatenate(rows_beside)))) if rows_beside else None
        seen = self._pass_by(beside)

        def job() -> list[GroupOutcome]:
            seen(patient=not planned)
            return [*unplanned, *self._jobs.run(planned, shared, rows, apart=True)] if planned else unplanned

        read = submit(job, shares=None if planned else table.nbytes)
        return read if planned else PendingBatch(partial(without_patience, seen, read))

    def _pass_by(self, messages: pa.Table | None) -> Passage:
        """Sends messages without further steps through a plan, by length; returns a function that waits for it."""
        if messages is None or self._whole or self._no_session or is_huge(messages):
            return lambda *, patient=False: None
        return self._jobs.pass_by(messages.select(SIDES))

    def _headers_column(self, table: pa.Table, failures: Failures) -> pa.Array:
        def on_bad(row: int, error: Exception) -> None:
            failures.raised(row, Stage.HEADER_CONVERTER, self._header_name, error)

        return headers_column(self._reader.headers_of(table, failures), on_bad)

    def _sorted(self, table: pa.Table, failures: Failures) -> tuple[list[ShapeGroup], np.ndarray, bool, bool, pa.Table]:
        """Returns one group for each pair of hints; the rows that a converter reads one by one; True if a schema is too
        deep for a plan; True if texts lack something; and the messages, without the schemas that they contain.
        """
        columns = {side: table.column(side) for side in SIDES}
        nothing = {side for side in SIDES if side in self._loose or columns[side].null_count == len(columns[side])}
        sides = {side: NOTHING if side in nothing else RAW for side in SIDES}
        found: dict[SideName, Sorted] = {}
        for side in SIDES:
            converter = self._converters[side]
            if side in self._loose:
                found[side] = Sorted(hints=(None,))
            elif side == "value" and (made := self._texts_at_once(table, failures)) is not None:
                found[side] = Sorted(hints=(_AT_ONCE,), read={0: (SCHEMALESS_TEXT, made)})
            elif isinstance(converter, ColumnConverter):
                worked_on = bool(self._first.steps) or (side == "value" and self._form is ValueForm.TEXT)
                found[side] = converter.sort(columns[side], worked_on=worked_on, beside_spark=not self._whole)
                rewritten = found[side].column
                columns[side] = columns[side] if rewritten is None else rewritten
                unread = len(found[side].read) < len(found[side].hints)
                if converter.reads_text and unread and not sides[side].absent:
                    sides[side], columns[side] = _as_text(columns[side])
            elif isinstance(converter, RowConverter):
                found[side] = converter.read_columns(columns[side], table.column("topic"), self._worth_columns)
            else:
                found[side] = Sorted(hints=(None,))
        groups: list[ShapeGroup] = []
        for rows, codes in rows_of_pairs(found["key"], found["value"], table.num_rows):
            steps = self._reading({side: found[side].hints[codes[side]] for side in SIDES})
            given = {
                side: found[side].read_rows(codes[side], rows)
                if codes[side] in found[side].read
                else (sides[side], _rows_of(columns[side], rows))
                for side in SIDES
            }
            present: dict[str, pa.ChunkedArray] = {
                name: column for name, (side, column) in given.items() if not side.absent
            }
            group = ShapeGroup(steps, Shape(given["key"][0], given["value"][0], sink=True), rows, present)
            groups.append(with_texts(group) if self._texts_alone and not self._whole else group)
        single = np.zeros(table.num_rows, dtype=bool)
        for one in found.values():
            if one.codes is not None:
                single |= one.codes < 0
        deep, changed = (any(getattr(one, name) for one in found.values()) for name in ("deep", "changed"))
        return groups, np.flatnonzero(single), deep, changed, pa.table(columns)

    def _worth_columns(self, schemas: int, rows: int) -> bool:
        """True if columns are worthwhile for this number of schemas and messages."""
        return self._whole or self._form is not None or not are_many(schemas, rows)

    def _reading(self, hints: Mapping[SideName, Hashable]) -> tuple[Staged, ...]:
        steps = [
            Staged(converter.reading(side, hints[side]), self._alone[side].stage, self._alone[side].name)
            for side, converter in self._converters.items()
            if isinstance(converter, ColumnConverter) and hints[side] != _AT_ONCE and side not in self._loose
        ]
        return (*steps, *self._first.steps, *(self._last if self._straight else ()))

    def _texts_at_once(self, table: pa.Table, failures: Failures) -> pa.ChunkedArray | None:
        """The texts of all values, if they are available before the plan without columns."""
        values = table.column("value")
        if not self._texts_alone or self._whole or values.null_count == len(values):
            return None
        return self._alone["value"].texts_at_once(table, failures)

    # ------------------------------------------------------------------ transforms that are not in the first plan
    def _transformed(
        self,
        outcomes: Sequence[GroupOutcome],
        alone: np.ndarray,
        table: pa.Table,
        headers: Sequence[ConnectHeaders | None],
        failures: Failures,
        why: Why | None,
    ) -> Rows:
        """The records after all transforms."""
        segments, rows = self._segments, table.num_rows
        parts: list[ShippedRecords] = []
        first = segments[0] if segments else None
        leave = not self._own and self._spreader.takes(first, rows - len(alone))
        if leave:
            beside = beside_of_messages(table, headers)
            parts = parts_of_outcomes(SinkRecord, outcomes, rows, beside, failures.failed(rows))
            outcomes, segments = (), segments[1:]
        given = self._reader.records(outcomes, alone, table, headers, failures)
        if leave and isinstance(first, Stateless):
            if given[0]:
                parts.append(part_of_records(*given))
            _, given = self._spreader.run(first, parts, failures, columns=False)
        return self._transform(given, segments, failures, rows, why)

    def _transform(
        self, given: Rows, segments: Sequence[Segment], failures: Failures, rows: int, why: Why | None
    ) -> Rows:
        live, positions = given
        for segment in segments:
            started = time.perf_counter()
            if isinstance(segment, Stateless):
                live, positions = self._stateless(segment, (live, positions), failures, why)
                continue
            if isinstance(segment, Classic):
                failures.went_as_rows(positions, Why.OWN_CLASS)
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
            live, positions = self._apply_columns(segment, (live, positions), failures, rows, why)
        return live, positions

    def _stateless(self, segment: Stateless, given: Rows, failures: Failures, why: Why | None) -> Rows:
        if why is Why.HUGE_VALUE or not self._spreader.takes(segment, len(given[0])) or not can_be_part(given[0]):
            return self._spreader.here(segment, given, failures)
        return self._spreader.run(segment, [part_of_records(*given)], failures, columns=False)[1]

    def _apply_columns(
        self, segment: ColumnarSegment, given: Rows, failures: Failures, rows: int, why: Why | None
    ) -> Rows:
        """Runs column steps between transforms in Python, for the records that are columns."""
        groups: list[ShapeGroup] = []
        in_plans = why is None and not self._no_session
        for one in self._grouped(segment.steps, *given, failures, mixed=False) if in_plans else ():
            reason = why_rows(one.steps, one.shape)
            if reason is None:
                groups.append(one)
            else:
                failures.went_as_rows(one.rows, reason)
        taken = {row for one in groups for row in (range(rows) if one.rows is None else one.rows.tolist())}
        alone, (live, positions) = parted(given, taken)
        made: list[list[tuple[int, ConnectRecord]]] = []
        if groups:
            by_position = dict(zip(positions, live, strict=True))
            columns = columns_of(attributes_of(live), positions, rows, failures)
            outcomes = self._jobs.run(groups, columns, rows, apart=True)
            failures.found(outcomes)
            made += [rebuilt_rows(outcome, by_position) for outcome in outcomes]
        if alone[0]:
            live, positions = transformed(segment, alone, failures)
            made.append(list(zip(positions, live, strict=True)))
        live, kept = in_order(made, rows, failures)
        return live, list(range(rows)) if kept is None else kept

    def _grouped(
        self,
        steps: tuple[Staged, ...],
        live: Sequence[ConnectRecord],
        positions: Sequence[int],
        failures: Failures,
        *,
        mixed: bool,
        loose: Set[SideName] = frozenset(),
    ) -> list[ShapeGroup]:
        def on_bad(seq: int, side: SideName, error: Exception) -> None:
            self._alone[side].note(failures, seq, error)

        found = group_records(live, positions, sink=True, on_bad=on_bad, mixed=mixed, loose=loose)
        return [ShapeGroup(steps, one.shape, one.rows, one.columns) for one in found]

    # ------------------------------------------------------------------ frames
    def _framed(
        self,
        live: list[ConnectRecord],
        positions: Sequence[int],
        headers: Sequence[ConnectHeaders | None],
        table: pa.Table,
        failures: Failures,
        loose: Mapping[SideName, LooseValues],
    ) -> list[GroupOutcome]:
        """Converts records to columns of frames, and collects keys and values without a schema in ``loose``.

        ``headers`` are those before transforms in Python.
        """
        if not live:
            return []
        steps = self._last
        carry = changed_columns(live, headers, table.take(pa.array(positions)))
        if self._form is ValueForm.TEXT:
            steps = ()
            live = [
                one
                if one.value is None
                else one.new_record(value_schema=None, value=java_text_of(one.value, one.value_schema))
                for one in live
            ]
        left = {side: one for side, one in loose.items() if side not in self._loose}
        add_of_records(left, live, np.asarray(positions, dtype=np.int64))
        found = self._grouped(steps, live, positions, failures, mixed=True, loose=self._typed)
        groups = [replace(one, carry=carry) for one in found]
        columns = columns_of(attributes_of(live), positions, table.num_rows, failures)
        if not steps:
            # A plan, which these messages have already passed, would change nothing.
            return [unchanged(one, columns) for one in groups]
        outcomes = self._jobs.run(groups, columns, table.num_rows, apart=True)
        failures.found(outcomes)
        return outcomes

    def _frames(
        self,
        outcomes: Sequence[GroupOutcome],
        table: pa.Table,
        failures: Failures,
        loose: Mapping[SideName, LooseValues],
    ) -> SinkBatch:
        rows = table.num_rows
        typed: dict[SideName, Sequence[TypedPart]] = {}
        if self._typed:
            outcomes = [without_loose(one, rows, loose) for one in outcomes]
            topics = topics_of(outcomes, table)
            for side, one in loose.items():
                typed[side] = one.typed(topics, self._known, partial(self._alone[side].note, failures))
        present = np.zeros(rows, dtype=bool)
        for outcome in outcomes:
            positions = np.arange(rows) if outcome.rows is None else outcome.rows
            kept = True if outcome.dropped is None else ~outcome.dropped.fill_null(False).to_numpy().astype(bool)
            present[positions] = kept
        # Not all messages without a schema are in a plan; if they are read here, no step drops any.
        present |= bool(self._loose)
        present[failures.failed(rows)] = False
        outcomes = [with_wire_headers(outcome, table, present, self._header_writer, failures) for outcome in outcomes]
        present[failures.failed(rows)] = False
        assert self._form is not None, "the task takes frames"
        frames = frames_of(
            outcomes,
            table,
            ~present,
            self._session,
            form=self._form,
            join=self._join,
            origins=failures.origins,
            typed=typed,
        )
        dropped = max(0, int(rows - present.sum() - failures.failed(rows).sum()))
        return SinkBatch(None, frames, failures.errors, dropped, failures.origins)


def _is_schemaless(converter: Converter) -> bool:
    return isinstance(converter, ColumnConverter) and converter.is_schemaless


def _rows_of(column: pa.ChunkedArray, rows: np.ndarray | None) -> pa.ChunkedArray:
    return column if rows is None else column.take(pa.array(rows))


def _as_text(column: pa.ChunkedArray) -> tuple[Side, pa.ChunkedArray]:
    """Messages as strings, if all of them are UTF-8."""
    try:
        return RAW_TEXT, column.cast(pa.string())
    except pa.ArrowInvalid:
        return RAW, column
