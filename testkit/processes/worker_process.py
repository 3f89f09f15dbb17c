"""A standalone worker as a process of its own, in a directory of its own, for tests that signal and kill it.

Main type: `WorkerProcess`; `children`, `resident_kb`, `cpu_seconds` and `is_running` look at processes by their ids,
and `poll_s` says how often a test looks at what it waits for. Thread: the test's.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar

from penstock.broker import free_port
from testkit.spark_settings import QUICK_START

_POLL_S = 0.1
_MOST_POLL_S = 0.5
# Tests may run as root, which may read and write every file; users' workers may not. Drops CAP_DAC_OVERRIDE and
# CAP_DAC_READ_SEARCH with PR_CAPBSET_DROP, which is refused, and not needed, for other users.
_GIVE_UP_FILE_RIGHTS = """
import ctypes, os, sys
for capability in (1, 2):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class WorkerProcess:
    """One worker after another with the same files: what they print is in `log`.

    Args:
        directory: where its files are, and its working directory.
        bootstrap_servers: Kafka.
        settings: more worker properties.
        endable: whether `end_at` may be used.

    Attributes:
        module: what a worker of this kind is started with.
        spark_on_demand: True if its Spark session starts with the first batch (`spark_on_demand`); False if it starts
            with the worker, as a user's does.
        headers: of every request that is asked here, such as who asks.
    """

    module: ClassVar[str] = "penstock.cli.worker.standalone"

    def __init__(
        self,
        directory: Path,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
        *,
        endable: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.log = directory / "log"
        self.port = free_port()
        self.headers: dict[str, str] = {"Content-Type": "application/json"}
        self.spark_on_demand = True
        self.running: subprocess.Popen[bytes] | None = None
        self.arguments: list[str] = []
        self._orders = directory / "end-at"
        self._endable = endable
        self._copying: threading.Thread | None = None
        self.settings = {
            "bootstrap.servers": bootstrap_servers,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{self.port}",
            **QUICK_START,
            **self.kept(),
            **(settings or {}),
        }
        self.add("worker.properties", self.settings)

    def kept(self) -> dict[str, str]:
        """The settings that say where a worker of this kind keeps what outlives it."""
        return {"offset.storage.file.filename": str(self.directory / "offsets")}

    # ---------------------------------------------------------------- files
    def add(self, name: str, settings: Mapping[str, str]) -> None:
        """Writes a properties file and adds it to the command."""
        self.arguments.append(str(self._written(name, settings)))

    def change(self, settings: Mapping[str, str]) -> None:
        """Changes worker properties; the next start reads them."""
        self.settings |= settings
        self._written("worker.properties", self.settings)

    def _written(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return path

    def text(self) -> str:
        """All that was printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    # ---------------------------------------------------------------- life
    def start(self, *, piped: bool = False) -> None:
        """Starts the worker, without the rights of the superuser to files of others.

        Args:
            piped: what it prints goes through a pipe, for `limit_files`.
        """
        module = ["testkit.processes.ending_worker", str(self._orders)] if self._endable else [self.module]
        if self.spark_on_demand:
            module = ["testkit.processes.spark_on_demand", *module]
        command = [sys.executable, "-S", "-c", _GIVE_UP_FILE_RIGHTS, sys.executable]
        # With the fault handler, so that a worker that does not end can tell what its threads do.
        command += ["-X", "faulthandler", "-m", *module, *self.arguments]
        with self.log.open("ab") as out:
            self.running = subprocess.Popen(
                command,
                stdout=subprocess.PIPE if piped else out,
                stderr=subprocess.STDOUT if piped else out,
                cwd=self.directory,
                bufsize=0,
                # For `end`, which may signal all of it.
                process_group=0,
            )
        if piped:
            self._copying = threading.Thread(target=self._copy, args=(self.running.stdout,), name="log-copy")
            self._copying.start()

    def limit_files(self, size: int) -> None:
        """From now on the worker can write no file beyond so many bytes, as on a full disk; -1 ends that."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _copy(self, output: IO[bytes]) -> None:
        with output, self.log.open("ab", buffering=0) as log:
            while data := output.read(65536):
                log.write(data)

    @property
    def pid(self) -> int:
        """Of the worker."""
        assert self.running is not None
        return self.running.pid

    def wait_running(self, *connectors: str, timeout_s: float = 90) -> None:
        """Waits until these connectors and their tasks run."""
        for name in connectors:
            self.wait(lambda: _all_running(self.states(name)), f"{name} runs", timeout_s)  # noqa: B023

    def wait(self, holds: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
        """Waits for something; fails with the end of the log when it does not come, or the worker ends."""
        began = time.monotonic()
        pause = threading.Event()
        while not holds():
            assert self.running is not None
            ended = self.running.poll()
            assert ended is None or holds(), f"{what}: the worker ended with {ended}\n{self.text()[-4000:]}"
            waited_s = time.monotonic() - began
            assert waited_s < timeout_s, f"{what}: not within {timeout_s} s\n{self.text()[-4000:]}"
            pause.wait(poll_s(waited_s))

    def wait_ended(self, timeout_s: float = 60) -> int:
        """Waits for the end; the exit code, negative for a signal.

        When the end does not come, it fails with the end of the log, which then tells what each thread did.
        """
        assert self.running is not None
        try:
            return self.running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.running.send_signal(signal.SIGABRT)
            self.running.wait(timeout_s)
            raise AssertionError(f"the worker has not ended within {timeout_s} s\n{self.text()[-8000:]}") from None

    def end(
        self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 60, *, others: Sequence[int] | None = None
    ) -> int:
        """Signals the worker and waits for its end; its exit code.

        Args:
            number: the signal.
            timeout_s: for the end.
            others: processes to signal first; with any, even none, the signal goes to the worker's whole group.
        """
        assert self.running is not None
        for pid in others or ():
            os.kill(pid, number)
        if others is None:
            self.running.send_signal(number)
        else:
            os.killpg(self.pid, number)
        return self.wait_ended(timeout_s)

    def end_at(self, point: str) -> None:
        """The worker kills itself the next time it passes this point (see `testkit.processes.ending_worker`)."""
        assert self._endable
        draft = self._orders.with_suffix(".draft")
        draft.write_text(point)
        draft.rename(self._orders)

    def jvm(self) -> int | None:
        """The process id of the worker's Spark JVM."""
        return next((pid for pid in children(self.pid) if _command(pid)[:1] and "java" in _command(pid)[0]), None)

    def resident_kb(self) -> int:
        """Memory of the worker's own process, without the JVM."""
        return resident_kb(self.pid)

    def close(self) -> None:
        """Ends what still runs."""
        if self.running is not None and self.running.poll() is None:
            self.running.send_signal(signal.SIGCONT)
            self.running.kill()
            self.running.wait(10)
        if self._copying is not None:
            self._copying.join(10)

    # ---------------------------------------------------------------- REST
    def get(self, path: str) -> tuple[int, object]:
        """Status and body; status 0 when nobody answers."""
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = 30) -> tuple[int, object]:
        """Status and body of any request; status 0 when nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, self.headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                content = reply.read()
                return reply.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")
        except OSError:
            return 0, None

    def metric(self, name: str, connector: str, task: int = 0) -> float | None:
        """A task's metric as ``/metrics`` shows it; None when it is not there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        wanted = f'{name}{{connector="{connector}",task="{task}"}} '
        return next((float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted)), None)

    def states(self, name: str) -> list[str]:
        """State of a connector, then those of its tasks."""
        status, body = self.get(f"/connectors/{name}/status")
        if status != 200 or not isinstance(body, dict):
            return []
        return [body["connector"]["state"], *(task["state"] for task in body["tasks"])]

    def trace(self, name: str, task: int = 0) -> str:
        """Returns why a task has failed; empty if it has not."""
        status, body = self.get(f"/connectors/{name}/status")
        if status != 200 or not isinstance(body, dict) or len(body["tasks"]) <= task:
            return ""
        return str(body["tasks"][task].get("trace", ""))


def poll_s(waited_s: float) -> float:
    """The seconds until something that has been waited for so long is looked at again.

    A worker that starts, and a machine that is busy, have other things to do than to answer ten times a second.

    >>> [poll_s(waited) for waited in (0.0, 1.0, 5.0, 60.0)]
    [0.1, 0.1, 0.25, 0.5]
    """
    return min(_MOST_POLL_S, max(_POLL_S, waited_s / 20))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def resident_kb(pid: int) -> int:
    """The memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def is_running(pid: int) -> bool:
    """True if a process exists and has not ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_gone(pids: Sequence[int], timeout_s: float) -> list[int]:
    """Waits until none of the processes runs; those that still do when the time is over."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        pause.wait(_POLL_S)
    return left


def _command(pid: int) -> list[str]:
    try:
        return [part.decode(errors="replace") for part in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:
        return []


def _all_running(states: Sequence[str]) -> bool:
    return len(states) > 1 and set(states) == {"RUNNING"}
