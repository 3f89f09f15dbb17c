"""What a thousand connectors with two waiting tasks each cost on three workers: memory, CPU, time of changes.

`.venv/bin/python -m benchmarks.many_connectors [--connectors N]` prints each figure beside what is aimed at. All times
are taken from the journal that connectors and tasks write, so nothing is asked of the workers while they are measured.
Thread: the main one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import QUICK, WorkerGroup
from testkit.processes.worker_process import children, resident_kb

from penstock.broker import EmbeddedBroker

TASKS: Final = 2
_IDLE_S: Final = 30.0
#: As without the setting; tests commit more often.
_INTERVAL: Final = {"offset.flush.interval.ms": "60000"}
_AT_ONCE: Final = 4
_TICK: Final = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_connectors", description=__doc__)
    parser.add_argument("--connectors", type=int, default=1000)
    count = parser.parse_args().connectors
    with tempfile.TemporaryDirectory(prefix="penstock-many-") as scratch:
        directory = Path(scratch)
        with (
            EmbeddedBroker(directory / "kafka") as broker,
            WorkerGroup(directory, broker.bootstrap_servers, _INTERVAL) as group,
        ):
            _measure(group, Probes(directory), count)


def _measure(group: WorkerGroup, probes: Probes, count: int) -> None:
    names = [f"many-{number:04}" for number in range(count)]
    units = {unit for name in names for unit in (name, *(f"{name}-{task}" for task in range(TASKS)))}
    # Without orders nothing looks for files: what is measured is the worker's.
    config = {**probes.config(TASKS), "orders": ""}
    began = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lambda name: group.create(name, config), names):
            pass
    print(f"{count} connectors created in {time.monotonic() - began:.1f} s", flush=True)
    _wait_started(group, probes, units, 0, 900)
    group.settled(timeout_s=600)
    print(f"all of {len(units)} units run after {time.monotonic() - began:.1f} s", flush=True)

    processes = [pid for worker in group.workers for pid in (worker.pid, *children(worker.pid))]
    before, began = _cpu_s(processes), time.monotonic()
    threading.Event().wait(_IDLE_S)
    cores = (_cpu_s(processes) - before) / (time.monotonic() - began)
    resident = sum(map(resident_kb, processes)) / 1024**2
    print(f"waiting: {resident:.2f} GiB (aimed at 6), {cores:.2f} cores (aimed at 0.5)", flush=True)

    name, mark, began = names[count // 2], len(probes.calls()), time.monotonic()
    group.put(name, {**config, "topic": "changed"}, worker=group.followers()[0])
    changed = {name, *(f"{name}-{task}" for task in range(TASKS))}
    last_s = _wait_started(group, probes, changed, mark, 120)
    print(f"a configuration is changed in {last_s - began:.2f} s (aimed at 3)", flush=True)

    group.settled(timeout_s=120)
    victim = group.followers()[0]
    theirs = {unit for unit, worker in group.where().items() if worker is victim}
    mark = len(probes.calls())
    victim.kill()
    began = time.monotonic()
    last_s = _wait_started(group, probes, theirs, mark, 300)
    session_s = int(QUICK["session.timeout.ms"]) / 1000
    took_s = last_s - began - session_s
    print(f"{len(theirs)} units of a killed worker run {took_s:.1f} s after its session's end (aimed at 30)")


def _wait_started(group: WorkerGroup, probes: Probes, units: Collection[str], mark: int, timeout_s: float) -> float:
    """Waits until these units were started after so many entries of the journal; when the last one was."""
    last_s = 0.0

    def lacking() -> str:
        nonlocal last_s
        started = {
            call.unit: call.at_s for call in probes.calls()[mark:] if call.call == "start" and call.unit in units
        }
        last_s = max(started.values(), default=0.0)
        missing = len(units) - len(started)
        if missing:
            threading.Event().wait(0.5)
        return f"{missing} of {len(units)} were not started" if missing else ""

    group.wait_while(lacking, "units are started", timeout_s)
    return last_s


def _cpu_s(processes: Collection[int]) -> float:
    """What processes have used so far, in seconds of one core."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes]
    return sum(int(one[11]) + int(one[12]) for one in fields) / _TICK


if __name__ == "__main__":
    main()
