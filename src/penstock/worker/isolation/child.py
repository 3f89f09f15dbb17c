"""The process of a task: holds the author's task, and calls it as the worker asks.

Run as ``python -m penstock.worker.isolation.child SOCKET PIPE``, two file descriptors. Each request of the task goes to
the worker's own contexts, so their rules and errors are the same. The process ends when the worker closes the socket,
and the kernel kills it and its group when the other end of the pipe is closed: a loop in native code may hold the
interpreter.

Threads: the main one waits for the end; one reads the socket; each thread of the worker that calls has a thread here.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, overload

from penstock.api import (
    Closing,
    ErrantRecordReporter,
    FrameSinkTask,
    FrameSourceTask,
    MetricName,
    OffsetStorageReader,
    PluginMetrics,
    Rows,
    SampleWindow,
    Sensor,
    SinkFrame,
    SinkRecord,
    SinkTaskContext,
    SourceFrame,
    SourceTask,
    SourceTaskContext,
    Stat,
    Task,
    TopicPartition,
    TransactionContext,
)
from penstock.api.bulk import BulkFrame
from penstock.errors import ConnectException, IllegalWorkerStateException, stack_trace
from penstock.pipeline.batch.transfer import crossing_frame, described, frame_of
from penstock.pipeline.columns.records import table_bytes
from penstock.telemetry import Stack
from penstock.telemetry.waits import stacks
from penstock.threads import StopEvent
from penstock.worker.isolation.channel import Channel, ChannelClosed, HandedOverObjects, thread_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.worker.source.transaction_boundaries import TransactionRequests

#: The measurable metrics that the worker reads by name. One process has one task.
_measurables: Final[dict[MetricName, Callable[[], float]]] = {}


def measured(name: MetricName) -> float:
    """Measures one of the task's metrics."""
    return float(_measurables[name]())


class _Offsets(OffsetStorageReader):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        found: list[dict[str, object] | None] = self._channel.call("offsets", [dict(one) for one in partitions])
        return found


class _Context:
    """The calls that the contexts of sources and sinks have, for a class to inherit before its own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._metrics = _ChildMetrics(channel)

    def configs(self) -> dict[str, str]:
        found: dict[str, str] = self._channel.call("configs")
        return found

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        self._channel.call("progress", done, total, unit)

    def plugin_metrics(self) -> PluginMetrics:
        return self._metrics

    def spark(self) -> SparkSession:
        raise IllegalWorkerStateException(NO_SPARK)


class ChildSourceTaskContext(_Context, SourceTaskContext):
    """The context of a source task.

    Attributes:
        requests: The task's requests for its transactions, collected until ``poll`` returns; None before it asks for a
            transaction context, or if it does not define their boundaries.
    """

    def __init__(self, channel: Channel, *, frames: bool = False) -> None:
        super().__init__(channel)
        self.stopping = StopEvent()
        self.requests: TransactionRequests | None = None
        self._frames = frames

    def offset_storage_reader(self) -> OffsetStorageReader:
        return _Offsets(self._channel)

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        self._channel.call("advance", dict(partition), None if offset is None else dict(offset))

    def transaction_context(self) -> TransactionContext | None:
        """See ``SourceTaskContext``. None if the worker's context has none."""
        if self.requests is None and self._channel.call("has_transactions"):
            from penstock.worker.source.transaction_boundaries import TransactionRequests

            self.requests = TransactionRequests("with task.isolation=process", frames=self._frames)
        return self.requests


class ChildSinkTaskContext(_Context, SinkTaskContext):
    """The context of a sink task."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._reporter = _Reporter(channel)
        self._calls: dict[int, Callable[[], object]] = {}
        self._numbers = itertools.count()

    @overload
    def offset(self, offsets: TopicPartition, offset: int) -> None: ...

    @overload
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def offset(self, offsets: TopicPartition | Mapping[TopicPartition, int], offset: int | None = None) -> None:
        self._channel.call("offset", *((offsets, offset) if isinstance(offsets, TopicPartition) else (dict(offsets),)))

    def timeout(self, timeout_ms: int) -> None:
        self._channel.call("timeout", timeout_ms)

    def assignment(self) -> frozenset[TopicPartition]:
        found: frozenset[TopicPartition] = self._channel.call("assignment")
        return found

    def pause(self, *partitions: TopicPartition) -> None:
        self._channel.call("pause", *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._channel.call("resume", *partitions)

    def request_commit(self) -> None:
        self._channel.call("request_commit")

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        return self._reporter if self._channel.call("has_reporter") else None

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        return self._reporter.report_rows(frame.take(rows), error)

    def every(self, seconds: float, call: Callable[[], object]) -> Callable[[], None]:
        if not callable(call):
            raise ValueError(f"every() takes a function without arguments, not a {type(call).__name__}")
        number = next(self._numbers)
        self._calls[number] = call
        self._channel.call("every", number, seconds)

        def end() -> None:
            if self._calls.pop(number, None) is not None:
                self._channel.call("end_call", number)

        return end

    def call_by_clock(self, number: int) -> None:
        """The time of a function has come."""
        call = self._calls.get(number)
        if call is not None:
            call()

    @property
    def is_closing(self) -> Closing:
        return Closing(self._channel.call("is_closing"))

    @property
    def is_backfill(self) -> bool:
        return bool(self._channel.call("is_backfill"))

    @property
    def kafka_cluster_id(self) -> str | None:
        found: str | None = self._channel.call("kafka_cluster_id")
        return found

    def reported(self, number: int) -> None:
        """A report is stored."""
        self._reporter.stored(number)


class _Reporter(ErrantRecordReporter):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._reports: dict[int, Future[None]] = {}

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        return self._reported("report", record, error)

    def report_rows(self, frame: SinkFrame, error: BaseException) -> Future[None]:
        return self._reported("report_rows", crossing_frame(frame), error)

    def _reported(self, what: str, content: object, error: BaseException) -> Future[None]:
        number = next(self._numbers)
        future: Future[None] = Future()
        # Before it is sent: the worker may say at once that it is stored.
        self._reports[number] = future
        try:
            self._channel.call(what, number, content, described(error))
        except BaseException:
            del self._reports[number]
            raise
        return future

    def stored(self, number: int) -> None:
        future = self._reports.pop(number, None)
        if future is not None:
            future.set_result(None)


class _ChildMetrics(PluginMetrics):
    """Metrics that are measured here when the worker reads them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sensors: dict[str, _ChildSensor] = {}

    def metric_name(self, name: str, description: str = "", tags: Mapping[str, str] | None = None) -> MetricName:
        found: MetricName = self._channel.call("metric_name", name, description, dict(tags or {}))
        return found

    def add_metric(self, metric_name: MetricName, measurable: Callable[[], float]) -> None:
        if not callable(measurable):
            raise ValueError(f"{metric_name.name} cannot be measured: {type(measurable).__name__} cannot be called")
        self._channel.call("add_metric", metric_name)
        _measurables[metric_name] = measurable

    def remove_metric(self, metric_name: MetricName) -> None:
        self._channel.call("remove_metric", metric_name)
        _measurables.pop(metric_name, None)

    def add_sensor(self, name: str) -> Sensor:
        if name in self._sensors:
            raise ValueError(f"There is a sensor {name} already: remove it before, or choose another name")
        sensor = self._sensors[name] = _ChildSensor(name, self, self._channel.call("window"))
        return sensor

    def remove_sensor(self, name: str) -> None:
        sensor = self._sensors.pop(name, None)
        if sensor is None:
            raise ValueError(f"There is no sensor {name}")
        sensor.remove()


class _ChildSensor(Sensor):
    def __init__(self, name: str, metrics: _ChildMetrics, window: SampleWindow) -> None:
        self._name = name
        self._metrics = metrics
        self._window = window
        self._lock = threading.Lock()
        self._stats: dict[MetricName, Stat] = {}

    @property
    def name(self) -> str:
        return self._name

    def add(self, metric_name: MetricName, stat: Stat) -> None:
        if not isinstance(stat, Stat):
            raise ValueError(f"{type(stat).__name__} is no Stat; sensor {self._name} needs one")

        def measure() -> float:
            with self._lock:
                return stat.measure(time.monotonic(), self._window)

        self._metrics.add_metric(metric_name, measure)
        with self._lock:
            self._stats[metric_name] = stat

    def record(self, value: float = 1.0) -> None:
        number = float(value)
        with self._lock:
            for stat in self._stats.values():
                stat.record(number, time.monotonic(), self._window)

    def remove(self) -> None:
        with self._lock:
            names = list(self._stats)
            self._stats.clear()
        for name in names:
            self._metrics.remove_metric(name)


NO_SPARK: Final = (
    "A task with task.isolation=process has no Spark session: the session is the worker's, and DataFrames cannot cross "
    "between processes. Use PyArrow tables, pandas or records, or set task.isolation=none"
)


def main() -> None:
    """Serves until the worker closes the socket."""
    connection, life = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(connection.fileno(), False)
    end_with_worker(life)
    host = TaskHost()
    ended = threading.Event()
    channel = Channel(connection, host.handle, side="c", lane_threads=True)
    host.channel = channel
    channel.start("calls", ended.set)
    ended.wait()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    # Not through the interpreter's own end, which waits for every thread that the author has left running.
    os._exit(0)


def end_with_worker(life: int) -> None:
    """Has the kernel kill this process and all of its group when the other end of a pipe is closed."""
    os.set_inheritable(life, False)
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(life, select.POLLIN)
    if poll.poll(0):
        # It was closed before the kernel was asked.
        os._exit(0)


class TaskHost:
    """The task and its context. Thread: a method runs on the lane of the worker's thread that calls it."""

    def __init__(self) -> None:
        self.channel: Channel
        self._task: Any = None
        self._context: ChildSourceTaskContext | ChildSinkTaskContext
        self._handed = HandedOverObjects()
        self._frames = 0
        self._offsets: dict[int, Callable[[int], Mapping[str, object]]] = {}
        self._methods: dict[str, Callable[..., Any]] = {
            name: getattr(self, name)
            for name in (
                *("make", "initialize", "poll", "put_frame", "stopping", "wakeup", "stop"),
                *("offset_after", "commit_record", "record_acknowledged", "frame_acknowledged", "commit_batch"),
            )
        }
        self._methods["measure"] = measured
        self._methods["stack"] = _stack
        self._methods["reported"] = self._reported
        self._methods["call_by_clock"] = self._call_by_clock

    def handle(self, name: str, args: tuple[Any, ...]) -> Any:
        own = self._methods.get(name)
        return own(*args) if own is not None else getattr(self._task, name)(*args)

    # ------------------------------------------------------------------ its life
    def make(self, path: str, places: Sequence[str], levels: Mapping[str, int], memory_max: int | None) -> None:
        sys.path[:] = places
        _log_to(self.channel, levels)
        from penstock.worker.task.slot import load_class

        cls = load_class(path)
        if memory_max is not None:
            # After the imports, and only for data: memory that is mapped and never used does not count.
            resource.setrlimit(resource.RLIMIT_DATA, (memory_max, memory_max))
        try:
            self._task = cls()
        except Exception as error:
            raise ConnectException(f"{cls.__name__} cannot be made: {type(error).__name__}: {error}") from error
        assert isinstance(self._task, Task)

    def initialize(self) -> None:
        if isinstance(self._task, SourceTask):
            self._context = ChildSourceTaskContext(self.channel, frames=isinstance(self._task, FrameSourceTask))
        else:
            self._context = ChildSinkTaskContext(self.channel)
        self._task.initialize(self._context)

    def wakeup(self) -> None:
        self.stopping()
        self._task.wakeup()

    def stop(self) -> None:
        self.stopping()
        self._task.stop()

    def stopping(self) -> None:
        """Sets the event of the context, whatever the task does."""
        context = getattr(self, "_context", None)
        if isinstance(context, ChildSourceTaskContext):
            context.stopping.set()

    # ------------------------------------------------------------------ sources
    def poll(self, keep: bool, forgotten: Sequence[int]) -> Any:
        """Polls the task, and returns its records and the ends of its transactions.

        Args:
            keep: True if the polled records are kept, because a hook of the task gets them later.
            forgotten: Frames whose positions are no longer needed.

        Returns:
            A frame as ``("frame", ...)``, records as ``("records", ...)``, else its kind, None for nothing; and for
            each end of a transaction the number of records before it (0: it is after all) and the kind of end.
        """
        for number in forgotten:
            self._offsets.pop(number, None)
        polled = self._task.poll()
        return self._answer(polled, keep), self._ends(polled)

    def _ends(self, polled: Any) -> list[tuple[int, str]]:
        assert isinstance(self._context, ChildSourceTaskContext)
        is_known = polled is None or isinstance(polled, SourceFrame | Sequence)
        if self._context.requests is None or not is_known:
            return []
        ends, count = [], 0
        for part, end in self._context.requests.cut(polled or None):
            count += 0 if isinstance(part, SourceFrame) else len(part)
            if end.name in ("COMMIT", "ABORT"):
                ends.append((count, end.name))
        return ends

    def _answer(self, polled: Any, keep: bool) -> Any:
        if polled is None:
            return None
        if isinstance(polled, SourceFrame):
            return self._frame(polled, keep)
        if isinstance(polled, BulkFrame):
            raise ConnectException(f"poll() of {type(self._task).__name__} returned a BulkFrame. {NO_SPARK}")
        if isinstance(self._task, FrameSourceTask) or not isinstance(polled, Sequence):
            return ("strange", type(polled).__name__)
        records = list(polled)
        if keep:
            self._handed.add(records)
        return ("records", records)

    def _frame(self, polled: SourceFrame, keep: bool) -> Any:
        import pyarrow as pa

        from penstock.pipeline.batch.source.frame_input import in_arrow

        frame = in_arrow(polled)
        if not isinstance(frame.data, pa.Table):
            raise ConnectException(f"poll() of {type(self._task).__name__} returned a Spark DataFrame. {NO_SPARK}")
        if keep:
            self._handed.add([frame])
        self._frames += 1
        if frame.offset_after is not None:
            self._offsets[self._frames] = frame.offset_after
        fields = None if frame.value_fields is None else list(frame.value_fields)
        about = (frame.topic, frame.value_schema, dict(frame.source_partition), dict(frame.source_offset))
        rest = (frame.key_schema, frame.timestamp, frame.partition, fields)
        number = None if frame.offset_after is None else self._frames
        return ("frame", table_bytes(frame.data), about, rest, number)

    def offset_after(self, number: int, row: int) -> dict[str, object]:
        return dict(self._offsets[number](row))

    def commit_record(self, number: int, *metadata: Any) -> None:
        self._task.commit_record(self._handed.at(number), *metadata)

    def record_acknowledged(self, number: int, metadata: Any) -> None:
        self._task.record_acknowledged(self._handed.at(number), metadata)

    def frame_acknowledged(self, number: int, places: Any) -> None:
        self._task.frame_acknowledged(self._handed.at(number), places)

    def commit_batch(self, number: int, acknowledged: int) -> None:
        self._task.commit_batch(self._handed.at(number), acknowledged)

    # ------------------------------------------------------------------ sinks
    def put_frame(self, *crossed: Any) -> None:
        assert isinstance(self._task, FrameSinkTask)
        assert isinstance(self._context, ChildSinkTaskContext)
        self._task.put(replace(frame_of(crossed), spark=_no_spark, _context=self._context))

    def _call_by_clock(self, number: int) -> None:
        assert isinstance(self._context, ChildSinkTaskContext)
        self._context.call_by_clock(number)

    def _reported(self, number: int) -> None:
        assert isinstance(self._context, ChildSinkTaskContext)
        self._context.reported(number)


def _stack(lane: str) -> Stack:
    idents = [thread.ident for thread in threading.enumerate() if thread.name == thread_of(lane)]
    found = stacks()
    return next((found[ident] for ident in idents if ident in found), [])


def _no_spark() -> Any:
    raise IllegalWorkerStateException(NO_SPARK)


class _ToWorker(logging.Handler):
    """Gives log lines to the worker, one at a time: a loop that logs does not fill the worker's memory."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def createLock(self) -> None:
        # The worker may call back while a line is on its way.
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            error = record.exc_info[1] if record.exc_info else None
            trace = "" if error is None else "\n" + stack_trace(error)
            self._channel.call("log", record.name, record.levelno, record.getMessage() + trace)
        except ChannelClosed:
            return
        except Exception:
            self.handleError(record)


def _log_to(channel: Channel, levels: Mapping[str, int]) -> None:
    logging.root.handlers[:] = [_ToWorker(channel)]
    logging.captureWarnings(True)
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)


if __name__ == "__main__":
    main()
