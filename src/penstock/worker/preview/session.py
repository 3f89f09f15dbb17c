"""The process that runs the plans of previews, on a Spark session of its own with little memory.

Run as ``python -m penstock.worker.preview.session SOCKET PIPE``, two file descriptors. A preview that ends this
session, or exceeds its time, affects no other preview. The process ends after a time without requests, when the worker
closes the socket, and, by the kernel, when the worker is gone.

Main function: ``main``. Threads: the main one waits for the end; one reads the socket; each preview has one of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from penstock.errors import SparkUnavailableException
from penstock.worker.isolation.channel import Channel
from penstock.worker.isolation.child import end_with_worker

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
        """Starts the session, and waits until it is up.

        Raises:
            SparkUnavailableException: It is not up in time.
        """
        sys.path[:] = places
        from penstock.pipeline.spark.session import SparkRuntime
        from penstock.plugins import Plugins
        from penstock.worker.preview.chain import ChainView

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
