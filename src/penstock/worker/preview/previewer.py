"""The preview of a connector's configuration on some records: each step of its chain, before and after.

Records come from the caller, from the source, or from the sink's topics. A source is read in a process that
``fork_server`` makes, and that is killed when the time is over. Records go through the connector's own chain record by
record, unless a transform needs frames: plans of users run in a process of their own (``chain``). ``Pace`` spreads
previews over time, because a low priority does not help where threads of the worker do half of the work.

Thread: ``preview`` blocks and is called on a thread of the caller's choice; a few run at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from penstock.api import SourceFrame, SourceRecord
from penstock.config.java_pattern import compile_java
from penstock.errors import ConnectException
from penstock.kafka.consumer.sampler import SampledMessage, sample
from penstock.kafka.settings.client import consumer_settings
from penstock.model import ConnectorType
from penstock.model.payloads import GivenRecord, PreviewLimits, PreviewRequest
from penstock.pipeline.batch.source.frame_input import frame_to_records
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings import SinkSettings
from penstock.settings.worker import WorkerSettings
from penstock.worker.preview.chain import (
    ChainView,
    PreviewProcess,
    gives_way,
    has_frames,
    plans_give_way,
    session_settings,
)
from penstock.worker.preview.fork_server import MESSAGE_BYTES, NICENESS, SESSION_S

#: The time limit of an answer of the server: its start on a busy machine takes longest.
_SERVER_TIMEOUT_S = 30.0
_SERVER_END_S = 5.0
_SESSION_END_S = 5.0
_HEADER = 8
_CHUNK = 1 << 16


@dataclass(frozen=True)
class FirstRecords:
    """The first records of a source.

    Attributes:
        ended: The limit that ended the reading: records, bytes, seconds, end or error.
    """

    records: list[SourceRecord]
    ended: str
    error: str | None = None
    cpu_s: float = 0.0


class SourceReaders:
    """Reads sources in processes that end when the time is over.

    Thread: any; several at once. ``close`` ends its server, which otherwise ends with this process.
    """

    def __init__(self, spark: Mapping[str, str]) -> None:
        self._spark = dict(spark)
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def first_records(self, cls: type, config: Mapping[str, str], limits: PreviewLimits) -> FirstRecords:
        """Reads the first records of a source; nothing is committed.

        Args:
            limits: When to stop; the time runs from when the process is there, without the start of a session.
        """
        request = {
            "class": f"{cls.__module__}:{cls.__qualname__}",
            "config": dict(config),
            "records": limits.records,
            "bytes": limits.bytes,
            "path": sys.path,
            "spark": self._spark,
        }
        read_end, write_end = os.pipe()
        try:
            try:
                pid = self._fork(json.dumps(request).encode(), write_end)
            finally:
                os.close(write_end)
            try:
                found = _collect(read_end, limits)
            finally:
                used = self._end(pid)
            return replace(found, cpu_s=used)
        finally:
            os.close(read_end)

    def close(self) -> None:
        with self._lock:
            self._close()

    # ------------------------------------------------------------------ the server
    def _fork(self, request: bytes, answers: int) -> int:
        asked = os.memfd_create("penstock-preview")
        try:
            with os.fdopen(os.dup(asked), "wb") as file:
                file.write(request)
            os.lseek(asked, 0, os.SEEK_SET)
            with self._lock:
                # An idle server ends by itself after a while; the first try may find that out.
                for _ in range(2):
                    with contextlib.suppress(OSError, ValueError):
                        return int(self._ask({"fork": True}, [asked, answers])["pid"])
                    self._close()
        finally:
            os.close(asked)
        raise ConnectException("The process that reads sources for previews does not start; the memory may be used up")

    def _end(self, pid: int) -> float:
        with self._lock:
            try:
                return float(self._ask({"end": pid})["cpu_s"])
            except (OSError, ValueError):
                # Without its channel the server ends, and all processes with it.
                self._close()
                return 0.0

    def _ask(self, command: Mapping[str, object], files: Sequence[int] = ()) -> dict[str, Any]:
        """Sends a command and waits for its answer. Caller holds the lock."""
        channel = self._channel or self._start()
        socket.send_fds(channel, [json.dumps(command).encode()], list(files))
        answer = channel.recv(MESSAGE_BYTES)
        if not answer:
            raise ConnectionResetError("the server has ended")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_SERVER_TIMEOUT_S)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "penstock.worker.preview.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        with contextlib.suppress(OSError):
            # Its children inherit it.
            os.setpriority(os.PRIO_PROCESS, self._server.pid, NICENESS)
        self._channel = ours
        return ours

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._server is not None:
            try:
                self._server.wait(_SERVER_END_S)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._server = self._channel = None


def _collect(pipe: int, limits: PreviewLimits) -> FirstRecords:
    deadline = time.monotonic() + limits.seconds
    paused = 0.0
    buffer = bytearray()
    records: list[SourceRecord] = []
    size = 0
    # Not select, which fails for descriptors above a thousand: a busy worker has many files open.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return FirstRecords(records, "seconds")
        chunk = os.read(pipe, _CHUNK)
        if not chunk:
            ended = "records" if len(records) >= limits.records else "bytes" if size >= limits.bytes else "end"
            return FirstRecords(records[: limits.records], ended)
        buffer += chunk
        while len(buffer) >= _HEADER and len(buffer) >= _HEADER + int.from_bytes(buffer[:_HEADER], "big"):
            length = int.from_bytes(buffer[:_HEADER], "big")
            message = bytes(buffer[_HEADER : _HEADER + length])
            del buffer[: _HEADER + length]
            size += length
            kind, content = pickle.loads(message)
            if kind == "error":
                return FirstRecords(records, "error", content)
            if kind == "session":
                now = time.monotonic()
                if content == "starts":
                    # The process itself stops sooner, and reports the reason.
                    paused, deadline = deadline - now, now + SESSION_S + _SESSION_END_S
                else:
                    deadline = now + paused
                continue
            if kind == "records":
                records += content
            else:
                rows, topic, value_schema, key_schema, timestamp, partition, fields = content
                table = pa.ipc.open_stream(rows).read_all()
                frame = SourceFrame(table, topic, value_schema, {}, {}, key_schema, timestamp, partition, None, fields)
                try:
                    records += frame_to_records(frame, table)
                except ConnectException as error:
                    # As it would end the task.
                    return FirstRecords(records, "error", str(error))


#: The share of all cores that previews may use.
SHARE: Final = 0.015
#: The assumed use of a preview before it has run, in CPU seconds; also the least that it counts, because some of it is
#: not measured (the request's way in and out).
USUAL_S: Final = 0.01
#: The number of previews that may begin at once after a rest, so that a user who tries one and then another need not
#: wait.
AHEAD: Final = 2


class Pace:
    """Delays previews by the CPU time of earlier previews."""

    def __init__(self, cores: int) -> None:
        self._rate = SHARE * cores
        self._lock = threading.Lock()
        #: Until then the share is used up.
        self._used_until = float("-inf")

    def begins(self, now: float) -> float:
        """Books a preview; returns the seconds to wait before it begins.

        Args:
            now: Monotonic seconds.

        >>> pace = Pace(cores=2)
        >>> [round(pace.begins(now), 3) for now in (100.0, 100.0, 100.0, 101.0)]
        [0.0, 0.0, 0.333, 0.0]
        """
        with self._lock:
            each = USUAL_S / self._rate
            free = max(self._used_until, now)
            self._used_until = free + each
            return max(0.0, free - (AHEAD - 1) * each - now)

    def ended(self, used_s: float) -> None:
        """A preview that was booked has ended."""
        with self._lock:
            self._used_until += max(0.0, used_s - USUAL_S) / self._rate


#: Reading costs next to nothing, and a source that blocks holds up a place for all of its time.
_AT_ONCE: Final = 4
#: The time limit of the plans of a preview, in addition to that of its reading, in seconds.
_PLANS_S: Final = 20.0
TURN: Final = f"waits for one of {_AT_ONCE} places: other previews have them"
CHAIN: Final = "takes the records through transforms and converters"


def paced_step(wait_s: float) -> str:
    """The step of a preview that begins after a wait.

    >>> paced_step(12.34)
    'waits 12.3 s: previews use at most 1.5 % of the processors, and earlier ones have used their share'
    >>> paced_step(0.0)
    'makes transforms and converters'
    """
    if not wait_s:
        return "makes transforms and converters"
    return (
        f"waits {wait_s:.1f} s: previews use at most {SHARE * 100:g} % of the processors, and earlier ones have used "
        "their share"
    )


class Previewer:
    """Makes previews with the plugins and the Spark session of a worker."""

    def __init__(self, settings: WorkerSettings, plugins: Plugins, runtime: SparkRuntime) -> None:
        self._settings = settings
        self._plugins = plugins
        self._view = ChainView(settings, plugins, runtime)
        self._session = PreviewProcess(settings)
        self._turn = threading.BoundedSemaphore(_AT_ONCE)
        self._pace = Pace(os.cpu_count() or 1)
        self._readers = SourceReaders(session_settings(settings.spark_settings()))

    def close(self) -> None:
        """Ends the processes that read sources, and that run the plans of previews."""
        self._readers.close()
        self._session.close()

    def preview(self, request: PreviewRequest) -> dict[str, object]:
        request.step(TURN)
        with self._turn, self._paced(request) as used, ExitStack() as made:
            if request.type is ConnectorType.SINK:
                return self._sink(request, made)
            return self._source(request, made, used)

    @contextmanager
    def _paced(self, request: PreviewRequest) -> Iterator[list[float]]:
        """Waits until a preview may begin; books the use of its processes, in CPU seconds."""
        wait_s = self._pace.begins(time.monotonic())
        request.step(paced_step(wait_s))
        threading.Event().wait(wait_s)
        began = time.thread_time()
        used: list[float] = []
        try:
            yield used
        finally:
            self._pace.ended(time.thread_time() - began + sum(used))

    # ------------------------------------------------------------------ sources
    def _source(self, request: PreviewRequest, made: ExitStack, used: list[float]) -> dict[str, object]:
        parts = self._view.source_parts(request.config, made)
        if request.records is None:
            cls = self._plugins.resolve_connector(request.config["connector.class"])
            request.step(f"reads the source, and {gives_way(NICENESS, os.getloadavg()[0], os.cpu_count() or 1)}")
            read = self._readers.first_records(cls, request.config, request.limits)
            used.append(read.cpu_s)
        else:
            read = FirstRecords([_source_record(one) for one in request.records[: request.limits.records]], "given")
        if has_frames(parts) and read.records:
            request.step(f"runs the transforms on Spark, and {plans_give_way()}")
            shown = self._session.of_source(request.config, read.records, _PLANS_S + request.limits.seconds)
        else:
            request.step(CHAIN)
            shown = self._view.of_source(parts, read.records)
        answer: dict[str, object] = {"type": "source", "ended_by": read.ended, "records": shown}
        if read.error is not None:
            answer["error"] = read.error
        return answer

    # ------------------------------------------------------------------ sinks
    def _sink(self, request: PreviewRequest, made: ExitStack) -> dict[str, object]:
        settings = self._view.sink_settings(request.config)
        parts = self._view.sink_parts(settings, made)
        if request.records is None:
            request.step("reads the topics of the sink")
            messages = self._sampled(request, settings)
        else:
            messages = [_message(one, seq) for seq, one in enumerate(request.records[: request.limits.records])]
        if has_frames(parts) and messages:
            request.step(f"runs the transforms on Spark, and {plans_give_way()}")
            shown = self._session.of_sink(request.config, messages, _PLANS_S + request.limits.seconds)
        else:
            request.step(CHAIN)
            shown = self._view.of_sink(parts, messages)
        return {
            "type": "sink",
            "ended_by": "given" if request.records is not None else "records" if messages else "end",
            "records": shown,
        }

    def _sampled(self, request: PreviewRequest, settings: SinkSettings) -> list[SampledMessage]:
        client = consumer_settings(self._settings.raw, settings.raw, client_id="penstock-preview", group_id="preview")
        topics = compile_java(settings.topics_regex) if settings.topics_regex else settings.topics
        limits = request.limits
        return sample(
            client.checked().librdkafka, topics, records=limits.records, size=limits.bytes, seconds=limits.seconds
        )


# ------------------------------------------------------------------ records in
def _source_record(given: GivenRecord) -> SourceRecord:
    record = SourceRecord(
        None, None, given.topic, given.value, key=given.key, partition=given.partition, timestamp=given.timestamp
    )
    for name, text in given.headers.items():
        record.headers.add_string(name, text)
    return record


def _message(given: GivenRecord, seq: int) -> SampledMessage:
    headers = [(name, text.encode()) for name, text in given.headers.items()]
    kind = -1 if given.timestamp is None else 0
    key, value = _given_bytes(given.key), _given_bytes(given.value)
    return SampledMessage(given.topic, given.partition or 0, seq, given.timestamp, kind, key, value, headers)


def _given_bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value).encode()
