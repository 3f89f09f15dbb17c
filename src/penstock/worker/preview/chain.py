"""Takes some records through a connector's converters and transforms, here or in a process of its own.

Observing transforms between the steps note the records; nothing is committed or written. A chain with frames runs Spark
plans that users wrote, which may take any time and all memory: ``PreviewProcess`` runs it in a process with a small
session (``python -m penstock.worker.preview.chain SOCKET PIPE``, two file descriptors). Settings and records cross over
the socket; command line and environment hold none of them. The process ends after a time without requests, when the
worker closes the socket, and, by the kernel, when the worker is gone.

Threads: any; one preview at a time in the process, whose answers ``previews-session`` reads. Inside, the main thread
waits for the end, one reads the socket, and each preview has one of its own.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

import pyarrow as pa

from penstock.api import ConnectRecord, FrameTransformation, SinkRecord, SourceRecord, Transformation
from penstock.config import ConfigDef
from penstock.data import Struct
from penstock.errors import ConnectException, SparkUnavailableException
from penstock.kafka.consumer.sampler import SampledMessage
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, RecordError, Stage, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import Gate
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import InstalledPlugins, SinkSettings, SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.isolation.channel import Channel, ChannelClosed
from penstock.worker.isolation.child import end_with_worker
from penstock.worker.task_parts import TaskParts, make_parts

R = TypeVar("R", bound=ConnectRecord)

_SEQ: Final = "penstock.preview"


def has_frames(parts: TaskParts) -> bool:
    """True if a transform works on frames: it runs Spark plans of its own."""
    return any(isinstance(stage.transformation, FrameTransformation) for stage in parts.transforms)


class ChainView:
    """Runs records through chains and shows the results, with the plugins and the Spark session of a process."""

    def __init__(self, settings: WorkerSettings, plugins: Plugins, runtime: SparkRuntime) -> None:
        self._settings = settings
        self._plugins = plugins
        self._classes = InstalledPlugins(plugins)
        self._runtime = runtime
        # A separate gate with room for one: previews wait for each other, and previews of one plan share its job, but
        # they never queue before the batches of tasks.
        self._jobs = SparkJobs(runtime, Gate(1))

    def source_parts(self, config: Mapping[str, str], made: ExitStack) -> TaskParts:
        settings = SourceSettings.parse(config, self._classes, topic_creation_enabled=False)
        return make_parts(self._settings, settings, self._plugins, made)

    def sink_parts(self, settings: SinkSettings, made: ExitStack) -> TaskParts:
        return make_parts(self._settings, settings, self._plugins, made)

    def sink_settings(self, config: Mapping[str, str]) -> SinkSettings:
        return SinkSettings.parse(config, self._classes)

    def of_source(self, parts: TaskParts, records: Sequence[SourceRecord]) -> list[dict[str, object]]:
        if not records:
            return []
        looks, chain = _looking(parts)
        numbered = [_numbered(record, seq) for seq, record in enumerate(records)]
        batch = SourcePipeline(self._runtime, self._spec(parts, chain), self._jobs).run(numbered)
        keys, values = (batch.table.column(name).to_pylist() for name in ("key", "value"))
        topics = batch.table.column("topic").to_pylist()
        shown: list[dict[str, object]] = []
        for seq, record in enumerate(records):
            steps = _steps(parts, looks, seq, batch.errors.get(seq))
            one: dict[str, object] = {"input": record_json(record), "steps": steps}
            if seq in batch.errors:
                one["error"] = _error_json(batch.errors[seq])
            elif looks[-1].seen.get(seq) is not None and batch.origins is None:
                message = {"topic": topics[seq], "key": _bytes_json(keys[seq]), "value": _bytes_json(values[seq])}
                one["output"] = message
            shown.append(one)
        return shown

    def of_sink(self, parts: TaskParts, messages: Sequence[SampledMessage]) -> list[dict[str, object]]:
        if not messages:
            return []
        looks, chain = _looking(parts)
        seqs = {(one.topic, one.partition, one.offset): seq for seq, one in enumerate(messages)}
        for look in looks:
            look.number = lambda record: seqs[_origin(cast("SinkRecord", record))]
        batch = SinkPipeline(self._runtime, self._spec(parts, chain), self._jobs).run(_consumed(messages))
        shown: list[dict[str, object]] = []
        for seq, message in enumerate(messages):
            one: dict[str, object] = {
                "input": message_json(message),
                "steps": _steps(parts, looks, seq, batch.errors.get(seq)),
            }
            if seq in batch.errors:
                one["error"] = _error_json(batch.errors[seq])
            else:
                last = looks[-1].seen.get(seq)
                one["output"] = None if last is None else record_json(last)
            shown.append(one)
        return shown

    def _spec(self, parts: TaskParts, chain: Sequence[TransformStage]) -> PipelineSpec:
        converters = parts.key_converter, parts.value_converter, parts.header_converter
        spec = PipelineSpec(*converters, chain, "preview", nothing_beside_spark=self._settings.all_through_spark)
        # Ten records are not worth a plan for each step, and tasks need the cores.
        return replace(spec, without_spark=not spec.nothing_beside_spark)


class _Look(Transformation):
    """Notes every record that comes by, by its number, and lets it pass."""

    def __init__(self) -> None:
        self.seen: dict[int, ConnectRecord] = {}
        self.number: Callable[[ConnectRecord], int] = _number_of_source

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, record: R) -> R | None:
        self.seen[self.number(record)] = record
        return record


def _looking(parts: TaskParts) -> tuple[list[_Look], list[TransformStage]]:
    """The chain with a look before the first step and after each."""
    looks = [_Look()]
    chain = [TransformStage("look-0", looks[0])]
    for number, stage in enumerate(parts.transforms, start=1):
        look = _Look()
        looks.append(look)
        chain += [stage, TransformStage(f"look-{number}", look)]
    return looks, chain


def _steps(parts: TaskParts, looks: Sequence[_Look], seq: int, error: RecordError | None) -> list[dict[str, object]]:
    """Returns the result of each transform for one record, up to where it was dropped or failed."""
    found = []
    for stage, before, after in zip(parts.transforms, looks[:-1], looks[1:], strict=True):
        if seq not in before.seen:
            break
        step: dict[str, object] = {"transform": stage.alias, "before": record_json(before.seen[seq])}
        if seq in after.seen:
            step["after"] = record_json(after.seen[seq])
        elif error is not None:
            step["error"] = _error_json(error)
        else:
            step["dropped"] = True
        found.append(step)
    return found


def _numbered(record: SourceRecord, seq: int) -> SourceRecord:
    return SourceRecord(
        {},
        {_SEQ: seq},
        record.topic,
        record.value,
        value_schema=record.value_schema,
        key=record.key,
        key_schema=record.key_schema,
        partition=record.kafka_partition,
        timestamp=record.timestamp,
        headers=record.raw_headers,
    )


def _number_of_source(record: ConnectRecord) -> int:
    offset = cast("SourceRecord", record).source_offset
    assert offset is not None
    return cast("int", offset[_SEQ])


def _origin(record: SinkRecord) -> tuple[str, int, int]:
    return record.original_topic, record.original_kafka_partition or 0, record.original_kafka_offset


def _consumed(messages: Sequence[SampledMessage]) -> pa.Table:
    columns: Mapping[str, list[Any]] = {
        "topic": [one.topic for one in messages],
        "partition": [one.partition for one in messages],
        "offset": [one.offset for one in messages],
        "timestamp": [one.timestamp for one in messages],
        "timestamp_type": [one.timestamp_type for one in messages],
        "key": [one.key for one in messages],
        "value": [one.value for one in messages],
        "headers": [[{"key": name, "value": data} for name, data in one.headers] or None for one in messages],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in CONSUMED_SCHEMA]
    return pa.table(arrays, schema=CONSUMED_SCHEMA)


# ------------------------------------------------------------------ records out
def record_json(record: ConnectRecord) -> dict[str, object]:
    """A record as JSON can show it."""
    found: dict[str, object] = {
        "topic": record.topic,
        "partition": record.kafka_partition,
        "timestamp": record.timestamp,
        "key": plain(record.key),
        "value": plain(record.value),
        "key_schema": None if record.key_schema is None else record.key_schema.type.value,
        "value_schema": None if record.value_schema is None else record.value_schema.type.value,
    }
    if record.raw_headers is not None and not record.raw_headers.is_empty():
        found["headers"] = [{"key": header.key, "value": plain(header.value)} for header in record.raw_headers]
    return found


def message_json(message: SampledMessage) -> dict[str, object]:
    """A message as JSON can show it."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _bytes_json(message.key),
        "value": _bytes_json(message.value),
        "headers": [{"key": name, "value": _bytes_json(data)} for name, data in message.headers],
    }


def unfinished(record: SourceRecord | SampledMessage, told: str) -> dict[str, object]:
    """Returns the entry for a record whose preview has not finished."""
    shown = record_json(record) if isinstance(record, SourceRecord) else message_json(record)
    error = {"stage": Stage.TRANSFORMATION, "class": None, "exception": ConnectException.java_name, "message": told}
    return {"input": shown, "steps": [], "error": error}


def _error_json(error: RecordError) -> dict[str, object]:
    return {
        "stage": error.stage,
        "class": error.executing_class,
        "exception": error.exception_class,
        "message": error.message,
    }


def _bytes_json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain(value: object) -> object:
    """Connect data as JSON can show it.

    >>> plain({1: b"a", "b": [None, 2.5]})
    {'1': {'base64': 'YQ=='}, 'b': [None, 2.5]}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(value).decode()}
        case list() | tuple():
            return [plain(item) for item in value]
        case Struct():
            return {field.name: plain(value.get(field.name)) for field in value.schema.fields}
        case Mapping():
            return {key if isinstance(key, str) else str(key): plain(item) for key, item in value.items()}
        case _:
            return str(value)


#: The time limit of the start of the session, on a busy machine.
_START_S: Final = 60.0
#: The extra time in which a preview's process may report that its time is over. User code in Python is ended after
#: that.
_GRACE_S: Final = 5.0
_END_S: Final = 5.0
#: The priority below the worker's: a preview must not slow running connectors.
PLANS_NICENESS: Final = 5


def gives_way(niceness: int, load: float, cores: int) -> str:
    """Says that a process of a preview gives way to other work, and if there is more of that than cores.

    >>> gives_way(5, 1.5, 2)
    'its process has a lower priority than the worker (nice 5)'
    >>> gives_way(10, 9.31, 2)
    'its process gives way to all other work (nice 10), and the machine is busy (load 9.3 on 2 cores)'
    """
    if load <= cores:
        return f"its process has a lower priority than the worker (nice {niceness})"
    return (
        f"its process gives way to all other work (nice {niceness}), and the machine is busy "
        f"(load {load:.1f} on {cores} cores)"
    )


def plans_give_way() -> str:
    """``gives_way`` of the process that runs plans, now."""
    return gives_way(PLANS_NICENESS, os.getloadavg()[0], os.cpu_count() or 1)


#: The time that an idle process is kept.
IDLE_S: Final = 120.0
#: The most bytes that a preview may show; the worker reads them into its memory.
MOST_BYTES: Final = 16 * 1024 * 1024
#: The JVM only serves the plans of a few records: a preview must show a plan that needs more.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-Xmn128m -XX:TieredStopAtLevel=1",
}
_KEPT: Final = (
    *("spark.remote", "spark.connect.", "spark.sql.", "spark.jars", "spark.hadoop.", "spark.pyspark.", "spark.python."),
    *("spark.driver.extraClassPath", "spark.driver.extraLibraryPath", "spark.local.dir"),
)


def session_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of the session for previews: the worker's settings that affect plans, and a small JVM.

    >>> session_settings({"spark.sql.ansi.enabled": "true", "spark.driver.memory": "8g"})["spark.driver.memory"]
    '512m'
    """
    return {**{name: value for name, value in settings.items() if name.startswith(_KEPT)}, **SETTINGS}


class PreviewProcess:
    """Runs chains with frames in a process of its own."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._life: int | None = None

    def of_source(
        self, config: Mapping[str, str], records: Sequence[SourceRecord], limit_s: float
    ) -> list[dict[str, object]]:
        """Previews the records of a source.

        Args:
            limit_s: The time limit of the chain for all of them, after the session has started.

        Returns:
            The view of each; with an error if the preview has not finished.
        """
        return self._shown("source", config, records, limit_s)

    def of_sink(
        self, config: Mapping[str, str], messages: Sequence[SampledMessage], limit_s: float
    ) -> list[dict[str, object]]:
        return self._shown("sink", config, messages, limit_s)

    def close(self) -> None:
        with self._state:
            self._closed = True
        self._end()

    def _shown(
        self, kind: str, config: Mapping[str, str], given: Sequence[Any], limit_s: float
    ) -> list[dict[str, object]]:
        with self._turn:
            # An idle process ends by itself after a while; the first try may find that out.
            for is_fresh in (self._channel is None, True):
                channel = self._channel or self._start()
                try:
                    how, content = channel.call(kind, dict(config), list(given), limit_s, timeout_s=limit_s + _GRACE_S)
                except ChannelClosed:
                    self._end()
                    if is_fresh:
                        how, content = "gone", None
                        break
                except TimeoutError:
                    self._end()
                    how, content = "late", limit_s
                    break
                else:
                    break
        if how == "shown":
            return list(content)
        told = _TOLD[how].format(limit_s=limit_s, memory=_MEMORY, priority=plans_give_way())
        return [unfinished(one, told) for one in given]

    # ------------------------------------------------------------------ the process
    def _start(self) -> Channel:
        """Starts it. Caller has the turn."""
        ours, theirs = socket.socketpair()
        watched, life = os.pipe()
        try:
            with self._state:
                if self._closed:
                    raise ConnectException("The worker is stopping")
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "penstock.worker.preview.chain", str(theirs.fileno()), str(watched)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), watched),
                    process_group=0,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
                self._life = life
                self._channel = Channel(ours, _serve, side="w", lane_threads=False)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, PLANS_NICENESS)
            self._channel.start("previews-session", _nothing)
        except OSError as error:
            ours.close()
            os.close(life)
            raise ConnectException(f"The process for previews cannot be started: {error}") from error
        finally:
            theirs.close()
            os.close(watched)
        channel = self._channel
        try:
            channel.call("start", list(sys.path), self._settings, _START_S, timeout_s=_START_S + _GRACE_S)
        except (ChannelClosed, TimeoutError) as error:
            self._end()
            raise ConnectException(
                f"The Spark session for previews is not up after {_START_S:.0f} s: {plans_give_way()}, or the memory "
                "is used up. Try again when there is less to do"
            ) from error
        except BaseException:
            self._end()
            raise
        return channel

    def _end(self) -> None:
        with self._state:
            process, self._process = self._process, None
            channel, self._channel = self._channel, None
            life, self._life = self._life, None
        if process is None or channel is None or life is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(life)
        channel.hang_up()
        channel.join(_END_S)


_MEMORY: Final = SETTINGS["spark.driver.memory"]
_TOLD: Final = {
    "late": (
        "the transforms took longer than {limit_s:.0f} s, and were ended; {priority}. Look for expressions that make "
        "very much of these records, or for patterns that try very many ways; limits.seconds of a preview gives it more"
    ),
    "lost": (
        "the transforms ended the Spark session of the preview, which has {memory} of memory: look for expressions "
        "that make very much of these records, or give the preview fewer or smaller ones"
    ),
    "large": "the transforms make more of these records than a preview can show: give it fewer or smaller ones",
    "gone": "the transforms ended the process of the preview",
}


def _serve(name: str, args: tuple[Any, ...]) -> Any:
    raise ConnectException(f"A preview has nothing to ask the worker for: {name}")


def _nothing() -> None:
    """Does nothing: the channel answers the waiting callers."""


# ------------------------------------------------------------------ inside the process
class PreviewHost:
    """Answers the worker. Thread: each call on one of its own, one at a time."""

    def __init__(self) -> None:
        self._runtime: Any = None
        self._view: Any = None
        self.used = time.monotonic()

    def handle(self, name: str, args: tuple[Any, ...]) -> Any:
        methods: dict[str, Callable[..., Any]] = {"start": self.start, "source": self.source, "sink": self.sink}
        try:
            return methods[name](*args)
        finally:
            self.used = time.monotonic()

    def start(self, places: Sequence[str], settings: Any, timeout_s: float) -> None:
        """Starts the session, and waits until it is up."""
        sys.path[:] = places
        self._runtime = SparkRuntime(session_settings(settings.spark_settings()), most_losses=1)
        self._runtime.start()
        self._runtime.session(timeout_s)
        self._view = ChainView(settings, Plugins.discover(settings.plugin_path or ()), self._runtime)

    def source(self, config: Mapping[str, str], records: Sequence[Any], timeout_s: float) -> tuple[str, object]:
        return self._shown(lambda made: self._view.of_source(self._view.source_parts(config, made), records), timeout_s)

    def sink(self, config: Mapping[str, str], messages: Sequence[Any], timeout_s: float) -> tuple[str, object]:

        def show(made: ExitStack) -> object:
            return self._view.of_sink(self._view.sink_parts(self._view.sink_settings(config), made), messages)

        return self._shown(show, timeout_s)

    def _shown(self, show: Callable[[ExitStack], object], timeout_s: float) -> tuple[str, object]:
        """Returns the view, or the reason why there is none: ``late``, ``lost`` or ``large``."""
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(self._runtime.jvm_pid)

        timer = threading.Timer(timeout_s, end)
        timer.start()
        try:
            with ExitStack() as made:
                shown = show(made)
            size = len(pickle.dumps(shown))
        except SparkUnavailableException as error:
            return ("late", timeout_s) if late.is_set() else ("lost", str(error))
        finally:
            timer.cancel()
        return ("large", size) if size > MOST_BYTES else ("shown", shown)


def _kill(pid: int | None) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Serves until the worker closes the socket, or asks for nothing any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    connection = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    end_with_worker(int(sys.argv[2]))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        # Of all processes of the worker the system ends this one first, when its memory is used up.
        score.write("1000")
    host = PreviewHost()
    ended = threading.Event()
    Channel(connection, host.handle, side="p", lane_threads=True).start("calls", ended.set)
    while not ended.wait(IDLE_S / 10) and time.monotonic() - host.used < IDLE_S:
        continue
    if host._runtime is not None:
        _kill(host._runtime.jvm_pid)
    os._exit(0)


if __name__ == "__main__":
    main()
