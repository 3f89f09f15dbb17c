"""What `bin/bench lines` does: the workloads of lines by processor time, thread by thread, behind the start.

Rates depend on all that a machine does, processor time much less: it is for machines that others use. Beside Java's
worker and this checkout's it measures those of other checkouts (`--beside`), for before and after.

Main function: `main`. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.runs import Contestant, adapt, line_counter, start_worker, topic_counter
from benchmarks.shapes.command import threads_of
from benchmarks.shapes.workers import THREAD_NAMES, Amounts, Figures, figures_of
from benchmarks.workloads import ALL_SETS, CLIENTS, Environment, Workload
from penstock.broker import EmbeddedBroker

#: Records behind those that count: what a client fetches ahead, so that a worker has as much in hand at the end.
_BEHIND: Final = 400_000
_numbers = count()


def main(arguments: Sequence[str]) -> int:
    """Parses the arguments, measures and prints; the exit code is 0.

    Raises:
        RuntimeError: A worker or a task failed, or records did not arrive in time.
    """
    parser = argparse.ArgumentParser(prog="bin/bench lines", description=__doc__)
    parser.add_argument("--only", default="", help="workloads whose name contains this text")
    parser.add_argument("--set", choices=list(ALL_SETS), default="main", help="main; all takes every workload")
    parser.add_argument("--clients", choices=list(CLIENTS), action="append", help="settings of the clients (larger)")
    parser.add_argument("--warm", type=int, default=600_000, help="records before it counts (600,000)")
    parser.add_argument("--records", type=int, default=800_000, help="records that count (800,000)")
    parser.add_argument("--rounds", type=int, default=1, help="how often; every second time in reversed order")
    parser.add_argument("--no-java", action="store_true", help="Penstock only")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another checkout to measure, too")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    amounts = Amounts(options.warm, options.records)
    others = {f"penstock in {path.name}": path.resolve() for path in options.beside}
    report: list[dict[str, object]] = []
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; processor time in microseconds a record")
    with tempfile.TemporaryDirectory(prefix="penstock-lines-") as scratch:
        directory = Path(scratch)
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
            total = options.warm + options.records + _BEHIND
            environment = Environment(broker.bootstrap_servers, directory, total, "larger")
            for workload in (one for one in ALL_SETS[options.set] if options.only in one.name):
                for clients in options.clients or ["larger"]:
                    here = replace(environment, clients=clients)
                    print(f"{workload.name} (client settings: {clients})")
                    for turn in range(options.rounds):
                        contestants = _contestants(others, java=not options.no_java)
                        for name, contestant, checkout in contestants[:: -1 if turn % 2 else 1]:
                            figures = _run(contestant, workload, here, amounts, checkout)
                            print(f"  {name:20} {figures.total:6.2f}  {figures.rate:9,.0f}/s  {threads_of(figures)}")
                            print("", end="", flush=True)
                            report.append(_told(workload, clients, name, figures))
                        print(f"  load average {os.getloadavg()[0]:.1f}", flush=True)
                    if options.json:
                        options.json.write_text(json.dumps(report, indent=2))
    return 0


def _contestants(others: Mapping[str, Path], *, java: bool) -> list[tuple[str, Contestant, Path | None]]:
    """Lists what takes part: the name printed, the worker to start, and its checkout if it is another one."""
    found: list[tuple[str, Contestant, Path | None]] = [("java", Contestant("java"), None)] if java else []
    found += [(name, Contestant("penstock"), of) for name, of in others.items()]
    return [*found, ("penstock", Contestant("penstock"), None)]


def _run(
    contestant: Contestant,
    workload: Workload,
    environment: Environment,
    amounts: Amounts,
    checkout: Path | None = None,
) -> Figures:
    """Lets a worker move records, and ends it when those that count have arrived."""
    name = f"lines-{next(_numbers)}"
    is_topic = workload.target == "topic"
    target = name if is_topic else str(environment.directory / f"{name}.txt")
    if is_topic:
        environment.create_topic(target, workload.partitions)
    connectors = workload.connectors(environment, target)
    adapt(connectors, contestant, workload)
    path = [THREAD_NAMES] if checkout is None else [THREAD_NAMES, checkout / "src", checkout]
    worker = start_worker(contestant, environment, dict(workload.worker), python_path=path)
    try:
        worker.await_rest()
        worker.await_health()
        for connector in connectors:
            worker.post("/connectors", {"name": connector["name"], "config": connector})
        seen = topic_counter(environment, target) if is_topic else line_counter(target)
        return figures_of(contestant, worker, workload.name, seen, amounts)
    finally:
        worker.stop()
        if is_topic:
            environment.delete_topic(target)
        else:
            Path(target).unlink(missing_ok=True)


def _told(workload: Workload, clients: str, name: str, figures: Figures) -> dict[str, object]:
    return {
        "name": workload.name,
        "clients": clients,
        "contestant": name,
        "us": figures.total,
        "rate": figures.rate,
        "threads": figures.threads,
    }
