"""The process of one task: starts it, calls it, ends it and reports its end.

``isolated`` makes the proxy of a task's class for the runners. It overrides the hooks that the class overrides and no
others, so that a runner treats it like the task; each method waits for its answer. ``initialize`` starts a new Python
process, not a fork: the worker has threads, a JVM and a Kafka client. Settings cross over the socket; command line and
environment hold none. The kernel kills it when the other end of a pipe is closed (see ``child``).

Threads: ``call`` from any; ``isolated-<task>`` reads answers and waits for the end, ``output-<task>`` reads what the
process prints, ``calls-shared`` serves the calls of threads that the author's code started.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
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
from penstock.model import ConnectorTaskId
from penstock.pipeline.batch.transfer import CrossedError, crossing_frame, frame_of, rebuilt
from penstock.pipeline.columns.records import table_of
from penstock.telemetry import Stack, log_context, waiting_for
from penstock.threads import StopEvent, start_within
from penstock.worker.isolation.channel import Channel, ChannelClosed, HandedOverObjects

log = logging.getLogger(__name__)
_output = logging.getLogger(f"{__package__}.output")

#: The time that a process may take to write out its output after a request to end.
_END_S: Final = 1.0
#: The time that its threads in the worker may take after that.
_JOIN_S: Final = 2.0
_LINE_BYTES: Final = 64 * 1024
#: The time limit for the stacks of its threads: a request for ``explain`` waits for them.
_STAND_S: Final = 0.5


class TaskProcess:
    """A process that holds one instance of a task.

    Args:
        memory_max: The most bytes of memory it may have; None for no limit.
    """

    def __init__(self, task: ConnectorTaskId, class_path: str, memory_max: int | None = None) -> None:
        self.task = task
        self._class_path = class_path
        self._memory_max = memory_max
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._life: int | None = None
        self._ended = False
        self._killed_for: str | None = None
        self._death: str | None = None
        #: Called when the process ends without a request; on its thread.
        self.on_death: Callable[[Exception], None] = lambda error: None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_up(self) -> bool:
        return self._channel is not None and not self._ended and self._death is None

    def start(self, handle: Callable[[str, tuple[Any, ...]], Any]) -> None:
        """Starts it and has it make the task.

        Raises:
            ConnectException: The process cannot be started, or was ended before it was ready.
            Exception: The error of importing the task's class or creating an instance.
        """
        with self._lock:
            if self._ended:
                raise ConnectException(f"The process of task {self.task} is not started: the task is ending")
            try:
                self._start(handle)
            except OSError as error:
                raise ConnectException(
                    f"The process of task {self.task} (task.isolation=process) cannot be started: {error}; "
                    "memory, processes (ulimit -u) or open files (ulimit -n) may be used up"
                ) from error
        levels = {
            name: one.level
            for name, one in logging.root.manager.loggerDict.items()
            if isinstance(one, logging.Logger) and one.level
        }
        self.call("make", self._class_path, list(sys.path), {**levels, "": logging.root.level}, self._memory_max)

    def call(self, name: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Calls the task's process; see ``Channel.call``.

        Raises:
            ConnectException: The process has ended; the message describes how.
        """
        channel = self._channel
        if channel is None:
            raise ConnectException(f"The process of task {self.task} was not started")
        try:
            with waiting_for("user_code", name, partial(self._stack, channel, channel.lane)):
                return channel.call(name, *args, timeout_s=timeout_s)
        except ChannelClosed:
            # The kind of end is known after the reading thread has ended.
            channel.join(_END_S + _JOIN_S)
            raise self._gone() from None

    def notify(self, name: str, *args: Any) -> None:
        """Sends a message to the task's process, without waiting."""
        channel = self._channel
        if channel is None:
            return
        try:
            channel.notify(name, *args)
        except ChannelClosed:
            raise self._gone() from None

    def kill(self) -> None:
        """Ends it at once, with all that it has started: its task missed its deadline. Returns at once. Thread: any."""
        with self._lock:
            already, self._ended = self._ended, True
            process, channel = self._process, self._channel
        if process is None or channel is None:
            return
        if not already:
            self._killed_for = "was killed: the task did not end within task.shutdown.graceful.timeout.ms"
            log.warning("The process %d of task %s is killed", process.pid, self.task)
        self._kill_group()
        channel.hang_up()

    def close(self) -> None:
        """Ends it, the task having stopped, and waits until nothing of it is left. Again: without effect."""
        with self._lock:
            self._ended = True
            channel = self._channel
        if channel is None:
            return
        channel.hang_up()
        if not channel.join(_END_S + _JOIN_S):
            log.error("The process %s of task %s does not end", self.pid, self.task)

    def _stack(self, channel: Channel, lane: str) -> Stack:
        """Returns the stack of the thread that serves a lane; empty if the process does not answer. Thread: any."""
        try:
            found: Stack = channel.call("stack", lane, timeout_s=_STAND_S)
        except (ChannelClosed, TimeoutError):
            return ()
        return found

    # ------------------------------------------------------------------ its life
    def _start(self, handle: Callable[[str, tuple[Any, ...]], Any]) -> None:
        with contextlib.ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.callback(theirs.close)
            failed = opened.enter_context(contextlib.ExitStack())
            failed.callback(ours.close)
            watched, life = os.pipe()
            opened.callback(os.close, watched)
            failed.callback(os.close, life)
            printed, out = os.pipe()
            opened.callback(os.close, out)
            failed.callback(os.close, printed)
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.child", str(theirs.fileno()), str(watched)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(theirs.fileno(), watched),
                process_group=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            failed.pop_all()
        self._life = life
        self._channel = Channel(ours, self._in_context(handle), side="w", lane_threads=False)
        start_within(f"output-{self.task}", lambda: self._read_output(printed))
        self._channel.start(f"isolated-{self.task}", self._reap)

    def _in_context(self, handle: Callable[[str, tuple[Any, ...]], Any]) -> Callable[[str, tuple[Any, ...]], Any]:
        def serve(name: str, args: tuple[Any, ...]) -> Any:
            with log_context(self.task.connector, self.task.task):
                return handle(name, args)

        return serve

    def _reap(self) -> None:
        """The connection is closed: waits for the process, and ends its remaining children. Thread: isolated."""
        process = self._process
        assert process is not None
        # Not with wait(), which would free its number before its group is ended.
        self._await_exit(process.pid)
        self._kill_group()
        status = process.wait()
        with self._lock:
            expected, self._ended = self._ended, True
            self._death = self._killed_for or _ending(process.pid, status)
            life, self._life = self._life, None
        if life is not None:
            os.close(life)
        if not expected:
            error = self._gone()
            log.error("%s", error)
            self.on_death(error)

    def _await_exit(self, pid: int) -> None:
        watched = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            poll.poll(_END_S * 1000)
        finally:
            os.close(watched)

    def _kill_group(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def _gone(self) -> ConnectException:
        return ConnectException(
            f"The process of task {self.task} (task.isolation=process) {self._death or self._killed_for or 'has ended'}"
        )

    def _read_output(self, printed: int) -> None:
        with log_context(self.task.connector, self.task.task), os.fdopen(printed, "rb") as lines:
            while line := lines.readline(_LINE_BYTES):
                _output.info("%s", line.decode(errors="replace").rstrip("\r\n"))


def _ending(pid: int, status: int) -> str:
    """Describes how a process ended.

    >>> _ending(17, 3)
    '(17) ended by itself, with exit status 3; restart the task to continue'
    >>> _ending(17, -11)
    '(17) was ended by signal 11 (SIGSEGV); restart the task to continue'
    """
    if status >= 0:
        return f"({pid}) ended by itself, with exit status {status}; restart the task to continue"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "a real-time signal"
    why = ": somebody killed it, or the system was out of memory" if -status == signal.SIGKILL else ""
    return f"({pid}) was ended by signal {-status} ({name}){why}; restart the task to continue"


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
            case "kafka_cluster_id":
                return context.kafka_cluster_id
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
