"""The process that runs the Spark plans of previews, from both ends: ``PreviewProcess`` in the worker, ``main`` inside.

A user's code for Spark may take any time and all memory, so it gets a process of its own with a small session. Settings
and records cross over a socket; command line and environment hold none of them. The process ends after a time without
requests, when the worker closes the socket, and, by the kernel, when the worker is gone.

Threads: ``PreviewProcess`` any, one preview at a time; ``previews-session`` reads answers. Inside, the main thread
waits for the end, one reads the socket, and each preview has one of its own.
"""

from __future__ import annotations

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
from typing import Any, Final

from penstock.api import SourceRecord
from penstock.errors import ConnectException, SparkUnavailableException
from penstock.kafka.consumer.sampler import SampledMessage
from penstock.pipeline.spark.session import SparkRuntime
from penstock.plugins import Plugins
from penstock.settings.worker import WorkerSettings
from penstock.worker.isolation.channel import Channel, ChannelClosed
from penstock.worker.isolation.child import end_with_worker
from penstock.worker.preview.chain import ChainView, unfinished

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
                    [sys.executable, "-m", "penstock.worker.preview.process", str(theirs.fileno()), str(watched)],
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
