"""Runs a source without a worker, a broker or Java: ``run_source``; a backfill of one: ``run_backfill``.

Main type: ``SourceRun``. A run is a log of records, as Kafka would have it, a store of offsets, and tasks that are
started, polled, stopped and killed on the test's own thread.

Owning thread: the test's.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.api import (
    BackfillPart,
    BackfillSpan,
    Chunk,
    FrameSourceTask,
    RecordMetadata,
    SourceConnector,
    SourceFrame,
    SourceRecord,
    SourceTask,
)
from penstock.api.bulk import BulkFrame
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader, OffsetWriter, connector_offsets
from penstock.testing.kit.contexts import KitSourceConnectorContext, KitSourceContext
from penstock.testing.kit.frames import records_of_frame
from penstock.testing.kit.lives import (
    ASKS_AGAIN,
    TRY_AGAIN_S,
    KilledException,
    Run,
    checked_configs,
    props_of,
    until_it_works,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The time for which the last poll waits before the task has to stop, in seconds.
_LAST_POLL_S: Final = 0.02


@dataclass(eq=False)
class _Polled:
    """A record that was polled and is not committed.

    Attributes:
        life: The task.
        record: With its offset.
        ends: True if the offset may be committed after it.
        frame: The frame that it is a row of.
        is_last: True if it is the last row.
        moves: True if there is no record: only the position has moved.
    """

    life: _Life
    record: SourceRecord
    ends: bool = True
    frame: SourceFrame | None = None
    is_last: bool = False
    moves: bool = False


class _Life:
    """One task, from its start to its end."""

    def __init__(self, task: SourceTask, context: KitSourceContext, config: Mapping[str, str]) -> None:
        self.task = task
        self.context = context
        self.config = dict(config)

    def acknowledge(self, part: Sequence[_Polled], first: int) -> None:
        """Calls the hooks for records that Kafka has stored, from an offset of the log on."""
        for place, one in enumerate(part, first):
            if one.frame is not None:
                if one.is_last:
                    rows = one.frame.num_rows or 0
                    last = RecordMetadata(one.record.topic or "", one.record.kafka_partition or 0, place)
                    begin = last._replace(offset=place - rows + 1)
                    self.task.frame_acknowledged(one.frame, {0: begin, rows - 1: last})
                    self.task.commit_batch(one.frame, one.frame.num_rows or 0)
                continue
            if one.moves:
                continue
            metadata = RecordMetadata(one.record.topic or "", 0, place)
            self.task.record_acknowledged(one.record, metadata)
            commit: Callable[..., object] = self.task.commit_record
            if len(inspect.signature(commit).parameters) > 1:
                commit(one.record, metadata)
            else:
                commit(one.record)


class SourceRun(Run[SourceConnector, _Life]):
    """A source that a test runs; see ``run_source``.

    Attributes:
        records: What Kafka has, in order: what was delivered. After a kill some may be there twice.
        committed: The same without those whose offset was not committed: what a reader of committed transactions sees
            with exactly-once. With a source whose offsets are exact none is missing and none is there twice.
        steps: The names of the steps, in order: ``start``, ``poll``, ``acknowledged``, ``stored``, ``committed``,
            ``stop``. ``kill_at`` counts in it.
        retries: The texts of ``RetriableException`` that tasks have raised.
        killed: Called after each kill, for what the end of a process would do and the garbage collector does not.

    Source: Penstock's own.
    """

    def __init__(
        self,
        connector: type[SourceConnector],
        settings: Mapping[str, str],
        *,
        tasks_max: int = 1,
        kill_at: int | None = None,
        timeout_s: float = 30.0,
        spark: Callable[[], SparkSession] | None = None,
    ) -> None:
        super().__init__(connector, settings, tasks_max, kill_at, timeout_s, spark)
        self.records: list[SourceRecord] = []
        self.committed: list[SourceRecord] = []
        self._store = MemoryOffsetStore()
        self._store.start()
        self._context: KitSourceConnectorContext | None = None
        self._pending: list[_Polled] = []

    @property
    def values(self) -> list[object]:
        """The values of ``committed``."""
        return [one.value for one in self.committed]

    def offset(self, partition: Mapping[str, object]) -> dict[str, Any] | None:
        """The committed offset of a source partition, as the task would read it."""
        return OffsetReader(self._store, "kit").offset(partition)

    def offsets(self) -> list[tuple[dict[str, object] | None, dict[str, object]]]:
        """All source partitions and their committed offsets."""
        return connector_offsets(self._store, "kit")

    def poll(self) -> list[SourceRecord]:
        """Polls each task once; starts them first.

        Returns:
            What they gave, in order; the rows of frames as records. It waits for ``commit``.
        """
        self._begin()
        found: list[_Polled] = []
        for life in self._lives or ():
            try:
                found += _polled(life, self._spark)
            except ASKS_AGAIN as error:
                self.retries.append(str(error))
                time.sleep(TRY_AGAIN_S)
        self._pending += found
        if found:
            self._steps.made("poll")
        return [one.record for one in found if not one.moves]

    def commit(self, count: int | None = None) -> None:
        """Delivers what was polled, and commits its offsets.

        Args:
            count: The number of waiting records, fewer if no offset of the frame is at that point; None for all.
        """
        part = self._pending if count is None else self._pending[:count]
        while part and not part[-1].ends:
            part = part[:-1]
        self._pending = self._pending[len(part) :]
        lives = self._lives or ()
        for life in lives:
            life.acknowledge([one for one in part if one.life is life], len(self.records))
        delivered = [one.record for one in part if not one.moves]
        self.records += delivered
        self._steps.made("acknowledged")
        writer = OffsetWriter(self._store, "kit")
        for one in part:
            if one.ends and one.record.source_partition is not None:
                writer.put(one.record.source_partition, one.record.source_offset)
        writer.flush()
        self.committed += delivered
        self._steps.made("stored")
        for life in lives:
            life.task.commit()
        self._steps.made("committed")

    def finish(self, count: int | None = None, *, by_records: bool = True, ends: bool = True) -> SourceRun:
        """Polls and commits to the end, through the kill, and stops.

        Args:
            count: The number of records to read, as in ``committed``; None: until two polls in a row return nothing.
            by_records: True: offsets are committed at several points of a poll. False: after each poll.
            ends: False: the source has more records than ``count``. If True, it is polled once more after a kill, so
                that repeated records are seen.

        Returns:
            The run itself.

        Raises:
            AssertionError: The records have not come in time.
        """
        deadline = time.monotonic() + self._timeout_s
        quiet = 0
        while True:
            try:
                while (len(self.committed) < count) if count is not None else quiet < 2:
                    polled = self.poll()
                    quiet = 0 if polled else quiet + 1
                    for part in _parts(len(polled) if by_records else 0):
                        self.commit(part)
                    if polled:
                        self.commit()
                    if time.monotonic() > deadline:
                        raise AssertionError(
                            f"{len(self.committed)} of {count} records have come in {self._timeout_s} s: some were lost"
                            + (f"; the last error: {self.retries[-1]}" if self.retries else "")
                        )
                if ends and self._steps.killed is not None:
                    self.last_poll()
                self.stop()
                return self
            except KilledException:
                # Its traceback holds the tasks, which have to go now: the kill comes when it is gone.
                pass
            self.kill()

    def stop(self) -> None:
        """Stops as a worker does: what was polled is committed, then the tasks and the connector are stopped."""
        self._stop_tasks()
        self._stop_connector()

    def rebalance(self, tasks_max: int) -> None:
        """Asks the connector for other tasks, which go on where those before were stopped."""
        self._begin()
        self._stop_tasks()
        self._tasks_max = tasks_max
        self._start_tasks()

    def pause(self) -> None:
        """Stops tasks and connector; the same connector instance is started again by the next call."""
        self._stop_tasks()
        if self._connector is not None:
            self._connector.stop()

    def last_poll(self) -> float:
        """Stops a poll while it waits: stops each task a moment after its ``poll`` was called.

        Returns:
            The longest time between the stop and the return, in seconds. The records of that poll wait for ``commit``.
        """
        self._begin()
        slowest = 0.0
        for life in self._lives or ():
            told = threading.Timer(_LAST_POLL_S, _tell, [life])
            life.context.waits.short = False
            started = time.monotonic()
            told.start()
            self._pending += _polled(life, self._spark)
            told.join()
            slowest = max(slowest, time.monotonic() - started - _LAST_POLL_S)
        return slowest

    def _abandon(self, lives: Sequence[_Life]) -> None:
        self._pending = []
        for life in lives:
            life.context.end()

    def _stop_connector(self) -> None:
        super()._stop_connector()
        if self._context is not None:
            self._context.closed = True

    def _begin(self) -> None:
        if self._connector is None:
            props = props_of(self._class, self._settings, self._tasks_max)
            self._connector = self._class()
            self._context = KitSourceConnectorContext("kit", self._store)
            self._connector.initialize(self._context)
            self._start_connector(self._connector, props)
            self._start_tasks()
        elif self._lives is None:
            # It was paused.
            self._start_connector(self._connector, props_of(self._class, self._settings, self._tasks_max))
            self._start_tasks()
        assert self._context is not None
        if self._context.error is not None:
            raise self._context.error
        if self._context.wants_tasks.is_set():
            self._context.wants_tasks.clear()
            self._replace_tasks()

    def _start_tasks(self) -> None:
        self._lives = []
        for config in self._task_configs():
            self._lives.append(self._start_task(config))
        self._steps.made("start")

    def _start_task(self, config: Mapping[str, str]) -> _Life:
        assert self._connector is not None
        task: SourceTask = self._connector.task_class()()
        life = _Life(task, KitSourceContext("kit", config, self._store, self._spark), config)
        task.initialize(life.context)
        until_it_works(lambda: task.start(dict(config)), "start", self.retries, self._timeout_s)
        return life

    def _replace_tasks(self) -> None:
        """Starts tasks with the connector's new configurations; those whose configuration is the same go on."""
        wanted = self._task_configs()
        if wanted == [one.config for one in self._lives or ()]:
            return
        self.commit()
        before = {tuple(sorted(one.config.items())): one for one in self._lives or ()}
        kept = [before.pop(tuple(sorted(config.items())), None) for config in wanted]
        for life in before.values():
            _end(life)
        self._lives = [one or self._start_task(config) for one, config in zip(kept, wanted, strict=True)]

    def _stop_tasks(self) -> None:
        lives = self._lives
        for life in lives or ():
            _tell(life)
        if lives is not None and self._pending:
            self.commit()
        self._lives = None
        for life in lives or ():
            _end(life)
        if lives is not None:
            self._steps.made("stop")


def run_source(
    connector: type[SourceConnector],
    settings: Mapping[str, str],
    *,
    tasks_max: int = 1,
    kill_at: int | None = None,
    timeout_s: float = 30.0,
    spark: Callable[[], SparkSession] | None = None,
) -> SourceRun:
    """A run of a source connector, without a worker, a broker or Java.

    Use it in a ``with`` block, and say what happens: ``poll``, ``commit``, ``kill``, ``restart``, ``rebalance``,
    ``pause``. Or call ``finish``, which does all of it to the end. The seconds that tasks wait on ``context.stopping``
    take no time.

    A kill drops the tasks without ``stop``, and forgets what was not committed: files and connections that only the
    task has are closed by the garbage collector, as the end of a process would.

    Args:
        connector: Its class.
        settings: Its own settings.
        tasks_max: The most tasks it may have.
        kill_at: The number of the step at which ``finish`` kills it, from 0; see ``SourceRun.steps``.
        timeout_s: How long ``finish`` waits for records, and a ``start`` that asks for another try is repeated.
        spark: Gives a session, for a source that reads with Spark: the fixture ``spark`` of
            ``penstock.testing.kit.fixtures``. Without it, nothing needs Java.

    Source: Penstock's own.
    """
    return SourceRun(connector, settings, tasks_max=tasks_max, kill_at=kill_at, timeout_s=timeout_s, spark=spark)


def _polled(life: _Life, spark: Callable[[], SparkSession] | None) -> list[_Polled]:
    found = _given(life, spark)
    moved = [_Polled(life, SourceRecord(*one, "", None), moves=True) for one in life.context.moved]
    life.context.moved.clear()
    return [*found, *moved]


def _given(life: _Life, spark: Callable[[], SparkSession] | None) -> list[_Polled]:
    given: object = life.task.poll()
    if given is None:
        return []
    if isinstance(given, BulkFrame):
        # What executors would write, once in all.
        given = given.as_source_frame()
    if isinstance(given, SourceFrame):
        return list(_rows(life, given, spark))
    if isinstance(life.task, FrameSourceTask) or not isinstance(given, Sequence):
        wanted = "a SourceFrame" if isinstance(life.task, FrameSourceTask) else "a sequence of SourceRecords"
        raise AssertionError(f"poll() must return {wanted} or None, not a {type(given).__name__}")
    strange = [one for one in given if not isinstance(one, SourceRecord)]
    if strange:
        raise AssertionError(f"poll() must return SourceRecords, not a {type(strange[0]).__name__} among them")
    return [_Polled(life, one) for one in given]


def _rows(life: _Life, frame: SourceFrame, spark: Callable[[], SparkSession] | None) -> Iterator[_Polled]:
    """The rows of a frame, each with the position after it, if the frame has it."""
    records = records_of_frame(frame, spark)
    last = len(records) - 1
    if not records:
        # Only the position has moved.
        moved = SourceRecord(frame.source_partition, frame.source_offset, "", None)
        yield _Polled(life, moved, frame=frame, is_last=True, moves=True)
    for row, record in enumerate(records):
        inside = None if frame.offset_after is None or row == last else frame.offset_after(row)
        record.source_offset = frame.source_offset if row == last else inside
        yield _Polled(life, record, row == last or inside is not None, frame, row == last)


def _parts(count: int) -> Iterator[int]:
    """The numbers of records to commit at a time, so that offsets lie in the middle of what was polled.

    >>> list(_parts(1)), list(_parts(2)), list(_parts(9))
    ([], [1], [1, 4, 3])
    """
    if count > 1:
        yield 1
    if count > 3:
        yield (count - 1) // 2
        yield count - 2 - (count - 1) // 2


def _tell(life: _Life) -> None:
    life.context.stopping.set()
    life.task.wakeup()


def _end(life: _Life) -> None:
    life.task.stop()
    life.context.end()


@dataclass(frozen=True)
class BackfillRun:
    """A backfill that was run.

    Attributes:
        parts: What was planned, of all tasks.
        records: What was read, in order.
        calls: How often ``backfill`` was called.

    Source: Penstock's own.
    """

    parts: Sequence[BackfillPart]
    records: Sequence[SourceRecord]
    calls: int

    @property
    def values(self) -> list[Any]:
        """The values of the records."""
        return [one.value for one in self.records]


def run_backfill(
    connector: type[SourceConnector],
    settings: Mapping[str, str],
    span: BackfillSpan,
    *,
    tasks_max: int = 1,
    again: bool = False,
    spark: Callable[[], SparkSession] | None = None,
) -> BackfillRun:
    """Plans and reads a backfill of a source connector, as a worker does.

    Args:
        connector: Its class.
        settings: Its own settings.
        span: The range.
        tasks_max: The most tasks it may have.
        again: True to call ``backfill`` again after each yield, with the offset after it, as after a
            ``RetriableException``. It should read the same.
        spark: Gives a session, for a source that reads with Spark.

    Raises:
        BadRequestException: The range is refused.

    Source: Penstock's own.
    """
    store = MemoryOffsetStore()
    store.start()
    props = props_of(connector, settings, tasks_max)
    made = connector()
    made.initialize(KitSourceConnectorContext(props["name"], store))
    made.start(props)
    try:
        configs = checked_configs(made, tasks_max)
        kind: type[Any] = made.task_class()
    finally:
        made.stop()
    parts: list[BackfillPart] = []
    records: list[SourceRecord] = []
    calls = 0
    for config in configs:
        context = KitSourceContext(props["name"], config, store, spark)
        task: SourceTask = kind()
        task.initialize(context)
        try:
            task.start(config)
            planned = task.plan_backfill(span)
            parts += planned
            for part in planned:
                offset: Mapping[str, object] | None = None
                while True:
                    calls += 1
                    rows = iter(task.backfill(part, offset))
                    for one in rows:
                        found, offset = _records(one, part, spark)
                        records += found
                        if again:
                            break
                    else:
                        break
                    close = getattr(rows, "close", None)
                    if close is not None:
                        close()
        finally:
            task.stop()
            context.end()
    return BackfillRun(parts, records, calls)


def _records(
    rows: object, part: BackfillPart, spark: Callable[[], SparkSession] | None
) -> tuple[list[SourceRecord], Mapping[str, object] | None]:
    """The records of what was yielded, and the offset after them."""
    if isinstance(rows, Chunk):
        if rows.data is None:
            return [], rows.position(part.partition)
        rows = rows.frame(part.partition)
    if isinstance(rows, BulkFrame):
        rows = rows.as_source_frame()
    if isinstance(rows, SourceFrame):
        return records_of_frame(rows, spark), rows.source_offset
    assert isinstance(rows, Sequence), f"backfill() must not yield a {type(rows).__name__}"
    found = list(rows)
    return found, found[-1].source_offset
