"""A process that makes the processes which read sources for previews: forked, each is there in milliseconds.

A Python process of its own for each preview would spend half a second of CPU on importing the same modules. This one
imports them once, at a low priority that its children inherit. A child reads the first records of a source connector,
so that one that blocks can be ended; nothing is committed.

Run as ``python -m penstock.worker.preview.fork_server FD`` with a socket on FD. Commands and answers are JSON:
``{"fork": true}`` with two files, the request and the pipe for the records, is answered by ``{"pid": ...}``;
``{"end": pid}`` ends that process and its group, and is answered with ``{"cpu_s": ...}``. A child pickles its result:
``("records", list)``, ``("frame", table and schemas)``, ``("error", text)``. The worker's side is ``SourceReaders``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from penstock.api import OffsetStorageReader, PluginMetrics, SourceConnectorContext, SourceFrame, SourceTaskContext
from penstock.api.bulk import BulkFrame
from penstock.errors import RetriableException, SparkUnavailableException
from penstock.worker.task.plugin_metrics import InstanceMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE_S = 0.05
#: The time limit of the start of a session; it does not count against the time of the preview.
SESSION_S: Final = 60.0


class _NoOffsets(OffsetStorageReader):
    """A preview begins at the beginning."""

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        return None

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        return [None for _ in partitions]


class _ConnectorContext(SourceConnectorContext):
    is_preview = True

    def __init__(self) -> None:
        self._plugin_metrics = InstanceMetrics.unread().plugin()

    def plugin_metrics(self) -> PluginMetrics:
        return self._plugin_metrics

    def offset_storage_reader(self) -> OffsetStorageReader:
        return _NoOffsets()

    def request_task_reconfiguration(self) -> None:
        """There is one look, so nothing to configure again."""

    def raise_error(self, error: BaseException) -> None:
        raise error

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        """There is one task, once."""


class _Session:
    """The Spark session of a source that asks for one: it has a small JVM of its own, which ends with this process.

    Args:
        answers: The stream on which the worker learns that a session starts, and that it is up.
    """

    def __init__(self, settings: Mapping[str, str], answers: IO[bytes]) -> None:
        self._settings = settings
        self._answers = answers
        self._runtime: Any = None

    def __call__(self) -> SparkSession:
        if self._runtime is None:
            # Imports PySpark, which most previews do without.
            from penstock.pipeline.spark.session import SparkRuntime

            _send(self._answers, ("session", "starts"))
            runtime = SparkRuntime(self._settings, most_losses=1)
            runtime.start()
            runtime.session(SESSION_S)
            self._runtime = runtime
            _send(self._answers, ("session", "is up"))
        session: SparkSession = self._runtime.session()
        return session


class _TaskContext(SourceTaskContext):
    is_preview = True

    def __init__(self, config: Mapping[str, str], session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._config = dict(config)
        self.stopping = threading.Event()
        self._plugin_metrics = InstanceMetrics.unread().plugin()

    def configs(self) -> dict[str, str]:
        return dict(self._config)

    def plugin_metrics(self) -> PluginMetrics:
        return self._plugin_metrics

    def offset_storage_reader(self) -> OffsetStorageReader:
        return _NoOffsets()

    def spark(self) -> SparkSession:
        return self._session()

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """Nothing is committed."""


def answer(request: Mapping[str, Any], answers: IO[bytes]) -> None:
    """Reads until the limit; the worker has the process ended when the time is over.

    Args:
        request: Class and settings of the connector, limits, paths of modules, and settings of a Spark session.
    """
    sys.path[:] = request["path"]
    try:
        _read(request, answers)
    except BaseException as error:
        _send(answers, ("error", f"{type(error).__name__}: {error}"))


def _read(request: Mapping[str, Any], answers: IO[bytes]) -> None:
    module, _, name = request["class"].partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    connector = found()
    connector.initialize(_ConnectorContext())
    connector.start(dict(request["config"]))
    configs = connector.task_configs(1)
    if not configs:
        return
    task = connector.task_class()()
    session = _Session(request["spark"], answers)
    task.initialize(_TaskContext(configs[0], session))
    task.start(dict(configs[0]))
    pause = threading.Event()
    left_records, left_bytes = int(request["records"]), int(request["bytes"])
    while left_records > 0 and left_bytes > 0:
        try:
            polled = task.poll()
        except SparkUnavailableException:
            # It was tried several times.
            raise
        except RetriableException:
            polled = None
        if not polled:
            pause.wait(_PAUSE_S)
            continue
        count, size = _send_polled(answers, polled, left_records, session)
        left_records -= count
        left_bytes -= size


def _send_polled(answers: IO[bytes], polled: Any, limit: int, session: Callable[[], SparkSession]) -> tuple[int, int]:
    if isinstance(polled, BulkFrame):
        polled = polled.as_source_frame()
    if not isinstance(polled, SourceFrame):
        records = list(polled)[:limit]
        return len(records), _send(answers, ("records", records))
    import pyarrow as pa

    if not isinstance(polled.data, pa.Table):
        # Imports PySpark, which most previews do without.
        from penstock.pipeline.batch.source.frame_input import in_arrow

        polled = in_arrow(polled)
    data: Any = polled.data
    if not isinstance(data, pa.Table):
        data = (data(session()) if callable(data) else data).limit(limit).toArrow()
    # Written as a stream, because pickling a slice would send the memory of the whole table, and because taking rows
    # by their numbers imports pandas: ten times the work of all else here.
    table = data.slice(0, limit)
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, table.schema) as stream:
        stream.write_table(table)
    content = rows.getvalue().to_pybytes()
    frame = (polled.topic, polled.value_schema, polled.key_schema, polled.timestamp, polled.partition)
    return table.num_rows, _send(answers, ("frame", (content, *frame, polled.value_fields)))


def _send(answers: IO[bytes], message: object) -> int:
    data = pickle.dumps(message)
    answers.write(len(data).to_bytes(8, "big") + data)
    answers.flush()
    return len(data)


#: The priority below the worker's: a preview must not slow running connectors. With a still lower priority, on a
#: machine without idle time, a preview's time would end before its first step.
NICENESS: Final = 10
#: The time that the server outlives its last command.
IDLE_S: Final = 120.0
MESSAGE_BYTES: Final = 4096
#: The modules that every reader needs: imported once. Only the children import users' modules, in their present
#: version.
_NEEDED: Final = ("pyarrow.compute", "penstock.connectors.file")


def main() -> None:
    """Serves until the worker has gone, or asks for nothing any more."""
    # Ctrl-C goes to the worker, which closes the socket when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _NEEDED:
        importlib.import_module(name)
    gc.freeze()
    channel = socket.socket(fileno=int(sys.argv[1]))
    children: set[int] = set()
    try:
        while True:
            channel.settimeout(None if children else IDLE_S)
            try:
                data, files, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 2)
            except TimeoutError:
                return
            if not data:
                return
            command: dict[str, Any] = json.loads(data)
            if "fork" in command:
                pid = _fork(channel, files)
                children.add(pid)
                channel.sendall(json.dumps({"pid": pid}).encode())
            else:
                children.discard(command["end"])
                used = _end(command["end"])
                channel.sendall(json.dumps({"cpu_s": used}).encode())
    except ConnectionError:
        return
    finally:
        for pid in children:
            _end(pid)


def _fork(channel: socket.socket, files: list[int]) -> int:
    request, answers = files
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            # In the parent, too, so that there is a group to end, however soon the command for that comes.
            os.setpgid(pid, pid)
        os.close(request)
        os.close(answers)
        return pid
    try:
        # A separate group: a source may start processes, which must end with it. Not a session: some systems share time
        # among sessions first, and priorities count within one session only.
        os.setpgid(0, 0)
        channel.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with os.fdopen(request, "rb") as asked, os.fdopen(answers, "wb") as found:
            answer(json.load(asked), found)
    finally:
        # Exit without the handlers and threads that the source has left: nothing of the server runs in its child.
        os._exit(0)


def _end(pid: int) -> float:
    """Ends a process and its group; the CPU seconds it has used."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        _, _, usage = os.wait4(pid, 0)
        return usage.ru_utime + usage.ru_stime
    return 0.0


if __name__ == "__main__":
    main()
