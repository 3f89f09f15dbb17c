"""The first records of a source connector, read by a process that ends when the time is over.

Main type: ``SourceReaders``. Its reads block for the time that was allowed at most, and end for good: the process of a
source that blocks is killed. ``fork_server`` makes the processes.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.api import SourceFrame, SourceRecord
from penstock.errors import ConnectException
from penstock.model.payloads import PreviewLimits
from penstock.pipeline.batch.source.frame_input import frame_to_records
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
        records: In order.
        ended: The limit that ended the reading: records, bytes, seconds, end or error.
        error: The text of the error.
        cpu_s: The use of the process, in CPU seconds.
    """

    records: list[SourceRecord]
    ended: str
    error: str | None = None
    cpu_s: float = 0.0


class SourceReaders:
    """Reads sources in processes that end when the time is over.

    Args:
        spark: The ``spark.*`` settings of a session for a source that asks for one.

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
            cls: The connector's class.
            config: Its settings.
            limits: When to stop; the time runs from when the process is there, without the start of a session.

        Raises:
            ConnectException: no process can be made.
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
        """Ends the server and every process that it has made."""
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
