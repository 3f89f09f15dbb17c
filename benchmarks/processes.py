"""Workers as processes, and what they use.

Main types: `WorkerProcess` (a started worker with its REST address), `Usage` (CPU and memory of a process tree).
Thread: `Usage` samples on a thread of its own between `start` and `stop`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BUSY = re.compile(r'^penstock_stage_busy_seconds_total\{.*stage="(\w+)".*\} (\S+)$', re.MULTILINE)
TICKS = os.sysconf("SC_CLK_TCK")


def process_tree(root: int) -> list[int]:
    """The process and all its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue.extend(children.get(pid, ()))
    return found


def memory_bytes(pid: int) -> int:
    """Proportional set size: shared pages count once over all processes."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, without its children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def thread_seconds(root: int) -> dict[tuple[str, int, int, str], float]:
    """CPU seconds of each thread of a process tree, by the process's program and id, and the thread's id and name.

    The system cuts the names of programs and threads off behind fifteen characters.
    """
    found: dict[tuple[str, int, int, str], float] = {}
    for pid in process_tree(root):
        try:
            program = Path(f"/proc/{pid}/comm").read_text().strip()
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            directory = Path(f"/proc/{pid}/task/{thread}")
            try:
                name = directory.joinpath("comm").read_text().strip()
                nanoseconds = int(directory.joinpath("schedstat").read_text().split()[0])
            except OSError:
                continue
            found[program, pid, int(thread), name] = nanoseconds / 1e9
    return found


@dataclass
class Usage:
    """Samples what a process tree uses until it is stopped.

    Attributes:
        peak_bytes: the largest memory seen.
        cpu_by_pid: the latest CPU seconds of each process ever seen; ended processes keep theirs.
    """

    root: int
    peak_bytes: int = 0
    cpu_by_pid: dict[int, float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Usage:
        """Begins to sample."""
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Takes a last sample."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._sample()

    def cpu_seconds_now(self) -> float:
        """CPU seconds of all processes up to this moment."""
        self._sample()
        return self.cpu_seconds

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all processes up to the last sample, half a second ago at most."""
        return sum(self.cpu_by_pid.values())

    def _run(self) -> None:
        while not self._over.wait(0.5):
            self._sample()

    def _sample(self) -> None:
        pids = process_tree(self.root)
        self.peak_bytes = max(self.peak_bytes, sum(memory_bytes(pid) for pid in pids))
        for pid in pids:
            self.cpu_by_pid[pid] = max(self.cpu_by_pid.get(pid, 0.0), cpu_seconds(pid))


class WorkerProcess:
    """A standalone worker, Java's or ours.

    Args:
        command: program and arguments, configuration files included.
        url: where its REST interface listens.
        log: the file for what it prints.
        environment: added to this process's environment.
    """

    def __init__(self, command: Sequence[str], url: str, log: Path, environment: dict[str, str]) -> None:
        self.url = url
        self.log = log
        self.started = time.monotonic()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                list(command),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.usage = Usage(self._process.pid).start()

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def get(self, path: str) -> Any:
        """The JSON answer to a GET request, or None when there is none."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def busy_seconds(self) -> dict[str, float]:
        """Seconds that the stages of all tasks were at work; empty for a worker that does not tell."""
        try:
            with urllib.request.urlopen(self.url + "/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        found: dict[str, float] = {}
        for stage, seconds in _BUSY.findall(text):
            found[stage] = found.get(stage, 0.0) + float(seconds)
        return found

    def post(self, path: str, body: object) -> int:
        """Sends JSON; the status code."""
        return self._ask("POST", path, json.dumps(body).encode())

    def delete(self, path: str) -> int:
        """Deletes what is there; the status code."""
        return self._ask("DELETE", path, None)

    def _ask(self, method: str, path: str, body: bytes | None) -> int:
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error

    def await_rest(self, timeout_s: float = 60) -> float:
        """Waits for the first REST answer; seconds since the start of the process."""
        pause = threading.Event()
        while self.get("/") is None:
            if self._process.poll() is not None or time.monotonic() - self.started > timeout_s:
                raise RuntimeError(f"the worker does not answer on {self.url}; see {self.log}")
            pause.wait(0.02)
        return time.monotonic() - self.started

    def await_health(self, timeout_s: float = 60) -> None:
        """Waits until it takes requests: in a cluster behind the first round."""
        pause, deadline = threading.Event(), time.monotonic() + timeout_s
        while self.get("/health") is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the worker is not healthy on {self.url}; see {self.log}")
            pause.wait(0.02)

    def failures(self) -> list[str]:
        """The first trace line of every failed connector and task."""
        found = []
        for name, entry in (self.get("/connectors?expand=status") or {}).items():
            status = entry["status"]
            for part in [status["connector"], *status["tasks"]]:
                if part["state"] == "FAILED":
                    found.append(f"{name}: {part.get('trace', '')[:300]}")
        return found

    def stop(self) -> None:
        """Ends the worker and takes the last samples."""
        self.usage.stop()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(10)
