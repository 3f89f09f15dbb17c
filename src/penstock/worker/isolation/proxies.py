"""Proxies of tasks for the runners; the methods run in a separate process.

Main function: ``isolated``, makes the proxy of a task's class. The proxy overrides the hooks that the class overrides
and no others, so that a runner treats it like the task.

Thread: as for the task; each method waits for its answer. The process is started by ``initialize``: a task that rests
from the beginning has none.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from penstock.api import (
    AnySinkTask,
    FrameSinkTask,
    FrameSourceTask,
    MetricName,
    OffsetAndMetadata,
    SampleWindow,
    SinkFrame,
    SinkRecord,
    SinkTask,
    SinkTaskContext,
    SourceFrame,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
    Task,
    TopicPartition,
)
from penstock.api.bulk import BulkSinkTask
from penstock.errors import ConnectException
from penstock.pipeline.batch.crossing import CrossedError, crossing_frame, frame_of, rebuilt, table_of
from penstock.threads import StopEvent
from penstock.worker.isolation.channel import HandedOverObjects
from penstock.worker.isolation.process import TaskProcess

log = logging.getLogger(__name__)

#: The time limit of the process to measure one metric: ``GET /metrics`` waits for it.
_MEASURE_S: Final = 0.5
_HOOKS: Final = ("commit_record", "record_acknowledged", "frame_acknowledged", "commit_batch")
#: The methods of a context that forward to the worker's context.
_ASKED: Final = (
    "configs",
    "offset",
    "timeout",
    "assignment",
    "pause",
    "resume",
    "request_commit",
    "advance",
    "progress",
)


def isolated(cls: type[Task], process: TaskProcess) -> Any:
    """The proxy of a task that runs in a separate process.

    Args:
        cls: The author's class; not made here.
        process: Of this one task.

    Raises:
        ConnectException: It is no class of source or sink tasks.
    """
    bases: tuple[tuple[type[Task], type[_Isolated]], ...] = (
        (FrameSourceTask, _IsolatedSource),
        (SourceTask, _IsolatedSource),
        (FrameSinkTask, _IsolatedFrameSink),
        (SinkTask, _IsolatedSink),
    )
    if issubclass(cls, BulkSinkTask):
        raise ConnectException(
            f"{cls.__module__}.{cls.__qualname__} works in Spark's executors, which are processes of their own: "
            "leave task.isolation out"
        )
    base, proxy = next((pair for pair in bases if issubclass(cls, pair[0])), (None, None))
    if base is None or proxy is None:
        raise ConnectException(f"{cls.__module__}.{cls.__qualname__} extends no class of source or sink tasks")
    attributes: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    if issubclass(cls, FrameSinkTask):
        attributes["value_form"] = cls.value_form
    hooks = [name for name in _HOOKS if getattr(cls, name, None) is not getattr(SourceTask, name)]
    if base in (SourceTask, FrameSourceTask):
        attributes.update({name: _hook(cls, name) for name in hooks})
        attributes["_tells"] = bool(hooks)
        attributes["_commits"] = cls.commit is not SourceTask.commit  # type: ignore[attr-defined]
    return type(cls.__name__, (proxy, base), attributes)(process)


def _hook(cls: type[Task], name: str) -> Callable[..., None]:
    def told(self: _IsolatedSource, item: object, *more: object) -> None:
        self._tell(name, item, more)

    # The worker chooses the arguments of a hook by its signature.
    told.__signature__ = inspect.signature(getattr(cls, name))  # type: ignore[attr-defined]
    return told


class _Isolated(Task):
    """The common base of all proxies."""

    def __init__(self, process: TaskProcess) -> None:
        self._process = process

    def start(self, props: Mapping[str, str]) -> None:
        self._process.call("start", dict(props))

    def stop(self) -> None:
        if self._process.is_up:
            self._process.call("stop")

    def _handle(self, context: Any, name: str, args: tuple[Any, ...]) -> Any:
        """Serves the task's calls of its context."""
        if name in _ASKED:
            return getattr(context, name)(*args)
        match name:
            case "log":
                logger, level, text = args
                logging.getLogger(logger).log(level, "%s", text)
            case "metric_name":
                return context.plugin_metrics().metric_name(*args)
            case "add_metric":
                (metric,) = args
                context.plugin_metrics().add_metric(metric, lambda: self._measured(metric))
            case "remove_metric":
                context.plugin_metrics().remove_metric(*args)
            case "window":
                return SampleWindow()
            case _:
                return self._answer(context, name, args)
        return None

    def _answer(self, context: Any, name: str, args: tuple[Any, ...]) -> Any:
        raise ConnectException(f"The process of task {self._process.task} asks for {name}, which is nothing it may ask")

    def _measured(self, metric: MetricName) -> float:
        found: float = self._process.call("measure", metric, timeout_s=_MEASURE_S)
        return found


class _IsolatedSource(_Isolated, SourceTask):
    _tells = False
    _commits = False

    def __init__(self, process: TaskProcess) -> None:
        super().__init__(process)
        self._handed = HandedOverObjects()
        self._forgotten: deque[int] = deque()

    def initialize(self, context: SourceTaskContext) -> None:
        self.context = context
        self._process.start(lambda name, args: self._handle(context, name, args))
        self._process.call("initialize")
        if isinstance(context.stopping, StopEvent):
            context.stopping.then(self._tell_stopping)

    def _tell_stopping(self) -> None:
        """Sets the event of the context in the process, without waiting for the task's present call."""
        if self._process.is_up:
            with suppress(ConnectException):
                self._process.notify("stopping")

    def poll(self) -> Sequence[SourceRecord] | SourceFrame | None:
        forgotten = [self._forgotten.popleft() for _ in range(len(self._forgotten))]
        answer, ends = self._process.call("poll", self._tells, forgotten)
        polled: Any = self._polled(answer)
        if ends:
            self._end_transactions(polled, ends)
        return polled  # type: ignore[no-any-return]

    def _end_transactions(self, polled: Any, ends: Sequence[tuple[int, str]]) -> None:
        """Passes the requests of the task in the process on to the worker's transaction context."""
        context = self.context.transaction_context()
        assert context is not None
        for count, end in ends:
            ask = context.commit_transaction if end == "COMMIT" else context.abort_transaction
            ask(polled[count - 1] if count else None)

    def _polled(self, answer: Any) -> Any:
        if answer is None:
            return None
        kind, content, *more = answer
        if kind == "strange":
            # The runner reports the wrong type.
            return type(content, (), {})()
        polled: Any = content if kind == "records" else self._frame(content, *more)
        if self._tells:
            self._handed.add(polled if kind == "records" else [polled])
        return polled

    def _frame(self, rows: Any, about: tuple[Any, ...], rest: tuple[Any, ...], number: int | None) -> SourceFrame:
        key_schema, timestamp, partition, fields = rest
        offset_after = None
        if number is not None:
            offset_after = _OffsetAfter(self._process, number)
            # Called when the frame is released, also within a call: the next poll passes the number on.
            weakref.finalize(offset_after, self._forgotten.append, number)
        topic, value_schema, source_partition, source_offset = about
        return SourceFrame(
            table_of(rows),
            topic,
            value_schema,
            source_partition,
            source_offset,
            key_schema,
            timestamp,
            partition,
            offset_after,
            fields,
        )

    def commit(self) -> None:
        if self._commits:
            self._process.call("commit")

    def wakeup(self) -> None:
        if self._process.is_up:
            self._process.call("wakeup")

    def _tell(self, name: str, item: object, more: tuple[object, ...]) -> None:
        self._process.notify(name, self._handed.number_of(item), *more)

    def _answer(self, context: SourceTaskContext, name: str, args: tuple[Any, ...]) -> Any:
        if name == "offsets":
            return context.offset_storage_reader().offsets(*args)
        if name == "has_transactions":
            return context.transaction_context() is not None
        return super()._answer(context, name, args)


class _OffsetAfter:
    """Asks the task for the position after a row of one frame."""

    def __init__(self, process: TaskProcess, number: int) -> None:
        self._process = process
        self._number = number

    def __call__(self, row: int) -> Mapping[str, object]:
        found: dict[str, object] = self._process.call("offset_after", self._number, row)
        return found


class _IsolatedAnySink(_Isolated, AnySinkTask):
    def __init__(self, process: TaskProcess) -> None:
        super().__init__(process)
        self._ends_of_calls: dict[int, Callable[[], None]] = {}

    def initialize(self, context: SinkTaskContext) -> None:
        self.context = context
        self._process.start(lambda name, args: self._handle(context, name, args))
        self._process.call("initialize")

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self._process.call("open", list(partitions))

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self._process.call("close", list(partitions))

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._process.call("flush", dict(offsets))

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        found: Mapping[TopicPartition, OffsetAndMetadata] = self._process.call("pre_commit", dict(offsets))
        return found

    def _answer(self, context: SinkTaskContext, name: str, args: tuple[Any, ...]) -> Any:
        match name:
            case "has_reporter":
                return context.errant_record_reporter() is not None
            case "is_closing":
                return bool(context.is_closing)
            case "is_backfill":
                return context.is_backfill
            case "report":
                self._report(context, *args)
                return None
            case "report_rows":
                self._report_rows(context, *args)
                return None
            case "every":
                self._every(context, *args)
                return None
            case "end_call":
                self._ends_of_calls.pop(*args)()
                return None
            case _:
                return super()._answer(context, name, args)

    def _report(self, context: SinkTaskContext, number: int, record: SinkRecord, error: CrossedError) -> None:
        reporter = context.errant_record_reporter()
        if reporter is None:
            raise ConnectException("There is no reporter for records that cannot be put")
        reporter.report(record, rebuilt(error)).add_done_callback(lambda stored: self._stored(number, stored))

    def _report_rows(
        self, context: SinkTaskContext, number: int, crossed: tuple[Any, ...], error: CrossedError
    ) -> None:
        frame = frame_of(crossed)
        reported = context.report(frame, range(frame.num_rows), rebuilt(error))
        reported.add_done_callback(lambda stored: self._stored(number, stored))

    def _every(self, context: SinkTaskContext, number: int, seconds: float) -> None:
        self._ends_of_calls[number] = context.every(seconds, lambda: self._process.call("call_by_clock", number))

    def _stored(self, number: int, stored: Future[None]) -> None:
        try:
            self._process.notify("reported", number)
        except ConnectException:
            log.debug("Report %d is stored, and the task that asked for it has ended", number)


class _IsolatedSink(_IsolatedAnySink, SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None:
        self._process.call("put", list(records))


class _IsolatedFrameSink(_IsolatedAnySink, FrameSinkTask):
    def put(self, frame: SinkFrame) -> None:
        self._process.call("put_frame", *crossing_frame(frame))
