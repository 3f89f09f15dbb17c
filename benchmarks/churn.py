"""`python -m benchmarks.churn`: many connectors are created, move a line, and are deleted; does anything grow?

A standalone worker runs as a process of its own. Each round is a file source and a file sink with new names: the line
has to come out at the other end before both are deleted. What is watched: memory, threads and open files of the worker
and of its Spark JVM, that one's heap after a collection, and how many connectors the worker still knows.

Main types: `Sample`, `Churn`. Thread: main.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from testkit.processes.worker_process import WorkerProcess, resident_kb

from benchmarks.growth import grown
from penstock.broker import EmbeddedBroker

#: What a figure may differ by before it counts as growth: share, then amount.
TOLERANCE: Final = {
    "heap_mb": (0.10, 10.0),
    "jvm_rss_mb": (0.10, 60.0),
    "jvm_threads": (0.0, 8.0),
    "jvm_files": (0.0, 10.0),
    "rss_mb": (0.05, 20.0),
    "threads": (0.0, 3.0),
    "files": (0.0, 6.0),
    "connectors": (0.0, 0.0),
}
#: Connectors write to so many topics in turn: what the broker keeps of topics is not what is measured.
TOPICS: Final = 5
_LINE_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True)
class Sample:
    """What there was after so many connectors."""

    created: int
    per_second: float
    heap_mb: float
    jvm_rss_mb: float
    jvm_threads: int
    jvm_files: int
    rss_mb: float
    threads: int
    files: int
    connectors: int


class Churn:
    """Creates and deletes connectors of one worker.

    Args:
        worker: It runs.
        directory: For the files of the connectors.
    """

    def __init__(self, worker: WorkerProcess, directory: Path) -> None:
        self._worker = worker
        self._directory = directory

    def round(self, number: int) -> None:
        """One source and one sink from creation to deletion.

        Raises:
            RuntimeError: A request was refused.
        """
        text = f"line of round {number}"
        read, written = self._directory / "in", self._directory / "out"
        read.write_text(text + "\n")
        written.unlink(missing_ok=True)
        topic = f"churn-{number % TOPICS}"
        self._create(f"source-{number}", "FileStreamSource", file=str(read), topic=topic)
        self._create(f"sink-{number}", "FileStreamSink", file=str(written), topics=topic)
        self._worker.wait(
            lambda: written.exists() and text in written.read_text().splitlines(), f"the {text}", _LINE_TIMEOUT_S
        )
        for name in (f"source-{number}", f"sink-{number}"):
            self._ask("DELETE", f"/connectors/{name}", None, 204)

    def sample(self, created: int, per_second: float) -> Sample:
        """What there is now."""
        jvm = self._worker.jvm()
        assert jvm is not None, "the worker's JVM runs"
        for _ in range(2):
            # References that only a first collection frees are gone after the second.
            _jcmd(jvm, "GC.run")
        known = self._worker.get("/connectors")[1]
        assert isinstance(known, list)
        return Sample(
            created,
            per_second,
            _heap_mb(_jcmd(jvm, "GC.heap_info")),
            resident_kb(jvm) / 1024,
            len(os.listdir(f"/proc/{jvm}/task")),
            len(os.listdir(f"/proc/{jvm}/fd")),
            self._worker.resident_kb() / 1024,
            len(os.listdir(f"/proc/{self._worker.pid}/task")),
            len(os.listdir(f"/proc/{self._worker.pid}/fd")),
            len(known),
        )

    def _create(self, name: str, kind: str, **settings: str) -> None:
        config = {"connector.class": kind, "tasks.max": "1", **settings}
        self._ask("POST", "/connectors", {"name": name, "config": config}, 201)

    def _ask(self, method: str, path: str, body: object, expected: int) -> None:
        status, answer = self._worker.ask(method, path, body)
        if status != expected:
            raise RuntimeError(f"{method} {path} answered {status}: {answer}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the rounds and prints the samples; the exit code is 1 when something grows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connectors", type=int, default=1000, help="connectors to create and delete (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the samples to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-churn-") as name:
        directory = Path(name)
        with EmbeddedBroker(directory / "kafka") as broker:
            worker = WorkerProcess(directory / "worker", broker.bootstrap_servers)
            worker.spark_on_demand = False
            worker.start()
            try:
                worker.wait(lambda: worker.get("/")[0] == 200, "the worker answers")
                samples = run(Churn(worker, directory), options.connectors // 2)
            finally:
                worker.end()
                worker.close()
    if options.json:
        options.json.write_text(json.dumps([asdict(sample) for sample in samples], indent=1) + "\n")
    found = grown(samples, TOLERANCE)
    for line in found:
        print(f"GROWS {line}")
    print("something grows" if found else "nothing grows")
    return 1 if found else 0


def run(churn: Churn, rounds: int) -> list[Sample]:
    """The rounds, with twelve samples; prints a line for each."""
    every = max(1, rounds // 12)
    print("  created   each/s | heap MB  rss MB threads files | own rss MB threads files | connectors", flush=True)
    samples: list[Sample] = []
    last = time.monotonic()
    for number in range(1, rounds + 1):
        churn.round(number)
        if number % every == 0:
            samples.append(churn.sample(2 * number, 2 * every / (time.monotonic() - last)))
            last = time.monotonic()
            print(_line(samples[-1]), flush=True)
    return samples


def _line(one: Sample) -> str:
    jvm = f"{one.heap_mb:7.1f} {one.jvm_rss_mb:7.0f} {one.jvm_threads:7} {one.jvm_files:5}"
    own = f"{one.rss_mb:10.0f} {one.threads:7} {one.files:5}"
    return f"{one.created:9} {one.per_second:8.1f} | {jvm} | {own} | {one.connectors:10}"


def _jcmd(pid: int, command: str) -> str:
    return subprocess.run(["jcmd", str(pid), command], check=True, capture_output=True, text=True).stdout


def _heap_mb(heap_info: str) -> float:
    """What is used of both generations, by the parallel collector's report.

    >>> _heap_mb(" PSYoungGen total 1K, used 2048K [0x1\\n eden space 9K, 2% used\\n ParOldGen total 1K, used 1024K")
    3.0
    """
    used = re.findall(r"Gen\s+total \d+K, used (\d+)K", heap_info)
    if not used:
        raise ValueError(f"no generations in what jcmd says of the heap:\n{heap_info}")
    return sum(map(int, used)) / 1024


if __name__ == "__main__":
    sys.exit(main())
