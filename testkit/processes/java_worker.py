"""A distributed worker of Java Kafka Connect as a process, for tests: what it reads and writes is what counts.

Main type: ``JavaWorker``. Thread: the test's. Its jars are fetched on first use, as those of the embedded broker are.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from penstock.broker import CONNECT_COORDINATES, free_port, resolve_jars
from penstock.broker.jars import find_java
from penstock.broker.process import OwnerGuard
from testkit.processes.worker_process import poll_s

_START_S: Final = 120.0
_STOP_S: Final = 30.0
_REQUEST_S: Final = 95.0
_CONVERTER: Final = "org.apache.kafka.connect.storage.StringConverter"


class JavaWorker:
    """Starts a worker and stops it at the end.

    Args:
        directory: Its working directory, with its log in ``java.log``; made when it is not there.
        settings: Of the worker: brokers, group and topics at least.
        plugins: Maven coordinates of more connectors that it has.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], plugins: Sequence[str] = ()) -> None:
        self.directory = directory
        self.port = free_port()
        self._settings = {
            "key.converter": _CONVERTER,
            "value.converter": _CONVERTER,
            "offset.flush.interval.ms": "200",
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
            "scheduled.rebalance.max.delay.ms": "0",
            **settings,
        }
        self._plugins = tuple(plugins)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: OwnerGuard | None = None

    @property
    def worker_id(self) -> str:
        """The worker's id."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> JavaWorker:
        """Starts it and waits until it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={text}\n".replace("\\", "\\\\") for key, text in self._settings.items()]
        (self.directory / "worker.properties").write_text("".join(lines), encoding="utf-8")
        class_path = os.pathsep.join(map(str, resolve_jars((*CONNECT_COORDINATES, *self._plugins))))
        self._guard = OwnerGuard()
        with (self.directory / "java.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path),
                    *("org.apache.kafka.connect.cli.ConnectDistributed", "worker.properties"),
                ],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._guard.watch(self._process.pid)
        self.wait(lambda: self.ask("GET", "/health")[0] == 200, "it is healthy", _START_S)
        return self

    def stop(self) -> None:
        """Stops it in order, or kills it when that takes too long."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._guard is not None:
            self._guard.release()
            self._guard = None

    def __enter__(self) -> JavaWorker:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def log(self) -> str:
        """All that it has logged."""
        return (self.directory / "java.log").read_text(encoding="utf-8", errors="replace")

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the body of an answer; 0 while it does not listen."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_S) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        except OSError:
            return 0, None
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            # Before it has all its resources, and for requests that it does not know, it answers with a page.
            return status, text.decode(errors="replace")

    def states(self, connector: str) -> list[str]:
        """The states of a connector and its tasks; nothing where it has none."""
        status, body = self.ask("GET", f"/connectors/{connector}/status")
        if status != 200:
            return []
        return [body["connector"]["state"], *(task["state"] for task in body["tasks"])]

    def wait(self, holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Waits for something to become true.

        Raises:
            AssertionError: It did not, or the worker has ended; with the end of its log.
        """
        began = time.monotonic()
        pause = threading.Event()
        while not holds():
            ended = self._process is None or self._process.poll() is not None
            assert not ended, f"the worker has ended: {self.log()[-3000:]}"
            waited_s = time.monotonic() - began
            assert waited_s < timeout_s, f"not seen: {what}\n{self.log()[-3000:]}"
            pause.wait(poll_s(waited_s))
