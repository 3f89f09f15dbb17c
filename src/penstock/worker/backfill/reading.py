"""Reads a backfill of a source: a source task that returns the records of the planned parts, one part after the other.

Main types: ``PartsTask`` and ``FramePartsTask``, which a runner runs as a source task, and which call the author's
``backfill``; ``SourceBackfill``, the end of such a task. Main functions: ``parts_task``, ``plan_parts``.

Offsets go to a store of the backfill's own. After all records a position of a separate source partition moves: once it
is committed, Kafka's client has got all records.

Thread: the task's, as for every source task; ``SourceBackfill``: any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.api import (
    BackfillPart,
    BackfillSpan,
    Chunk,
    FrameSourceTask,
    OffsetStorageReader,
    PluginMetrics,
    SourceFrame,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
)
from penstock.api.bulk import BulkFrame
from penstock.errors import ConnectException, DataException
from penstock.model.payloads import BackfillShare
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader, value_bytes
from penstock.worker.source.task import SourceTaskRunner
from penstock.worker.task.plugin_metrics import InstanceMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: The source partition that moves after the last record.
_END: Final = {"backfill": "end"}
_IDLE_S: Final = 0.2

MakeTask = Callable[[Mapping[str, str]], SourceTask]
Rows = Chunk | SourceFrame | Sequence[SourceRecord]


class _PartsContext(SourceTaskContext):
    """The context of an author's task in a backfill: the runner's, with the settings of that task, and no positions.

    Args:
        context: The runner's.
        read_config: Reads the settings.
    """

    def __init__(self, context: SourceTaskContext, read_config: Callable[[], Mapping[str, str]]) -> None:
        self.stopping = context.stopping
        self._context = context
        self._read_config = read_config

    def configs(self) -> dict[str, str]:
        return dict(self._read_config())

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceTaskContext``; there is nothing committed."""
        return self._context.offset_storage_reader()

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """See ``SourceTaskContext``; the connector's positions are none of a backfill's."""

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        self._context.progress(done, total, unit)

    def plugin_metrics(self) -> PluginMetrics:
        return self._context.plugin_metrics()

    def spark(self) -> SparkSession:
        return self._context.spark()


class PartsTask(SourceTask):
    """Reads the parts of a backfill in order.

    Args:
        shares: The parts, by the task whose settings they use.
        make: Makes an instance of the author's task from its settings.

    Attributes:
        is_read: True if all rows were returned.
    """

    def __init__(self, shares: Sequence[BackfillShare], make: MakeTask) -> None:
        self.is_read = False
        self._make = make
        self._left = [(share, part) for share in shares for part in share.parts]
        self._task: tuple[BackfillShare, SourceTask] | None = None
        self._rows: Iterator[Rows | BulkFrame] | None = None
        self._offset: Mapping[str, object] | None = None

    def start(self, props: Mapping[str, str]) -> None:
        """See ``Task.start``; the author's tasks are started by ``poll``, each when it is its turn."""

    def poll(self) -> Any:
        """The next rows of the part that is read: a frame, records, a run of executors, or None."""
        while self._left and not self.context.stopping.is_set():
            share, part = self._left[0]
            rows = self._next(share, part)
            if rows is None:
                self._left.pop(0)
                self._rows, self._offset = None, None
                continue
            if isinstance(rows, Chunk):
                if rows.data is None:
                    self._offset = rows.position(part.partition)
                    continue
                rows = rows.frame(part.partition)
            if isinstance(rows, list | tuple):
                if not rows:
                    continue
                offset = rows[-1].source_offset
            elif isinstance(rows, SourceFrame | BulkFrame):
                offset = rows.source_offset
            else:
                raise ConnectException(
                    f"backfill() of {type(self._task_of(share)).__name__} must yield Chunks, SourceFrames, BulkFrames "
                    f"or lists of SourceRecords, got {type(rows).__name__}"
                )
            # An offset that cannot be stored would never count as delivered.
            value_bytes(offset)
            self._offset = offset
            return rows
        if not self._left and not self.is_read:
            self._end_task()
            self.context.advance(_END, {"read": True})
            self.is_read = True
        else:
            self.context.stopping.wait(_IDLE_S)
        return None

    def _next(self, share: BackfillShare, part: BackfillPart) -> Rows | BulkFrame | None:
        if self._rows is None:
            self._rows = iter(self._task_of(share).backfill(part, self._offset))
        try:
            return next(self._rows, None)
        except BaseException:
            # If the error asks for a retry, the next call continues after the last yielded record.
            self._close_rows()
            raise

    def _task_of(self, share: BackfillShare) -> SourceTask:
        if self._task is not None and self._task[0] is share:
            return self._task[1]
        self._end_task()
        config = dict(share.read_config())
        task = self._make(config)
        task.initialize(_PartsContext(self.context, share.read_config))
        self._task = share, task
        try:
            task.start(config)
        except BaseException:
            self._end_task()
            raise
        return task

    def wakeup(self) -> None:
        task = self._task
        if task is not None:
            task[1].wakeup()

    def stop(self) -> None:
        self._end_task()

    def _close_rows(self) -> None:
        rows, self._rows = self._rows, None
        close = getattr(rows, "close", None)
        if close is not None:
            # The generator runs on the task's thread while stop() comes from another thread.
            with suppress(ValueError):
                close()

    def _end_task(self) -> None:
        self._close_rows()
        task, self._task = self._task, None
        if task is not None:
            try:
                task[1].stop()
            except Exception:
                log.warning("The stop() of a task of this backfill failed", exc_info=True)


class FramePartsTask(PartsTask, FrameSourceTask):
    """The same for tasks that return frames."""


def parts_task(shares: Sequence[BackfillShare], make: MakeTask, kind: type[SourceTask]) -> PartsTask:
    """The task of a backfill.

    Args:
        shares: The parts that it reads.
        make: Makes an instance of the author's task from its settings.
        kind: The author's class.
    """
    return (FramePartsTask if issubclass(kind, FrameSourceTask) else PartsTask)(shares, make)


class _PlanContext(SourceTaskContext):
    """The context of an author's task that only plans."""

    def __init__(self, config: Mapping[str, str], spark: Callable[[], SparkSession]) -> None:
        self.stopping = threading.Event()
        self._config = config
        self._spark = spark
        self._metrics = InstanceMetrics.unread().plugin()
        store = MemoryOffsetStore()
        store.start()
        self._offsets = OffsetReader(store, "")

    def configs(self) -> dict[str, str]:
        return dict(self._config)

    def offset_storage_reader(self) -> OffsetStorageReader:
        return self._offsets

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None: ...

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None: ...

    def plugin_metrics(self) -> PluginMetrics:
        return self._metrics

    def spark(self) -> SparkSession:
        return self._spark()


def plan_parts(
    task: SourceTask, config: Mapping[str, str], span: BackfillSpan, spark: Callable[[], SparkSession]
) -> list[BackfillPart]:
    """Asks a task of an author's for its part of a backfill. Runs its code: any thread but the herder's.

    Args:
        task: An instance of its own.
        config: Its settings.
        span: The requested span.
        spark: Gives the worker's session.

    Raises:
        ConnectException: The task returned something other than parts.
        Exception: The error that the task raises.
    """
    task.initialize(_PlanContext(config, spark))
    try:
        task.start(dict(config))
        found: Any = task.plan_backfill(span)
    finally:
        with suppress(Exception):
            task.stop()
    if not isinstance(found, Sequence) or not all(isinstance(one, BackfillPart) for one in found):
        raise ConnectException(
            f"plan_backfill() of {type(task).__name__} must return a sequence of BackfillParts, got {found!r}"
        )
    return list(found)


class SourceBackfill:
    """A source's task that reads the parts of a backfill; see ``BackfillTask``.

    Args:
        runner: The task.
        reading: The source task that it runs.
        shares: The parts that the task reads.
        store: The store of its offsets.
    """

    def __init__(
        self, runner: SourceTaskRunner, reading: PartsTask, shares: Sequence[BackfillShare], store: MemoryOffsetStore
    ) -> None:
        self._runner = runner
        self._reading = reading
        self._parts = [part for share in shares for part in share.parts]
        self._offsets = OffsetReader(store, runner.id.connector)
        store.start()

    @property
    def runner(self) -> SourceTaskRunner:
        return self._runner

    @property
    def all_done(self) -> bool:
        if self._runner.committer.counts.failures:
            # A store in memory fails for nothing else.
            self._runner.fail(DataException("An offset of this backfill cannot be stored; the log says why"))
        if not self._reading.is_read or self._offsets.offset(_END) is None:
            return False
        return self._runner.committer.submitted.rows_left == 0

    @property
    def unread(self) -> Sequence[object]:
        """See ``BackfillTask``: all that was read is delivered before the task is done."""
        return ()

    @property
    def records(self) -> int:
        return self._runner.counts.records

    @property
    def positions(self) -> Sequence[Mapping[str, object]]:
        partitions = list({repr(sorted(one.partition.items())): one.partition for one in self._parts}.values())
        found = zip(partitions, self._offsets.offsets(partitions), strict=True)
        return [{"partition": dict(one), "offset": offset} for one, offset in found if offset is not None]
