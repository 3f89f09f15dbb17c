"""The command behind `bin/bench eos`: what exactly-once costs a source, here and with Java's worker.

One distributed worker after another moves the lines of a file through two transforms into a topic: at least once, and
in transactions with the boundaries `poll` and `interval`. Each run is read again with `read_committed`: a line that is
missing, doubled or out of order ends the benchmark. Then lone lines are appended, and read once they are committed.

Main types: `Way` (how records are delivered), `Outcome`. Thread: the main thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import confluent_kafka as ck

from benchmarks.figures import steady_rate
from benchmarks.processes import WorkerProcess
from benchmarks.runs import Contestant, adapt, follow, measure_latency, numbers, start_worker, topic_counter
from benchmarks.workloads import MAIN_SET, Environment
from penstock.broker import KAFKA_VERSION, EmbeddedBroker

#: What is to be reached: rates over our own at-least-once, over Java's exactly-once, and a lone line.
OF_AT_LEAST_ONCE: Final = {"interval": 0.8, "poll": 0.6}
OVER_JAVA: Final = 1.5
LONE_LINE_MS: Final = 200.0
JAVA_BATCH_SIZES: Final = (None, 10_000)
_COMMITTED_S: Final = 60.0
_DIGITS: Final = 12


@dataclass(frozen=True)
class Way:
    """How records are delivered.

    Attributes:
        name: For the table.
        connector: Settings of the connector.
        exactly_once: Whether the worker writes in transactions.
    """

    name: str
    connector: Mapping[str, str]
    exactly_once: bool = True


WAYS: Final = (
    Way("at least once", {}, exactly_once=False),
    Way("poll", {"transaction.boundary": "poll"}),
    Way("interval", {"transaction.boundary": "interval"}),
)


@dataclass(frozen=True)
class Outcome:
    """What one run gave.

    Attributes:
        contestant, way: Who, and how.
        rate: Records a second, first fifth cut.
        cpu_us: CPU time of all processes of the worker from the first record to the last commit, microseconds a record.
        load: The machine's load average over a minute behind the run: who else was at work.
    """

    contestant: str
    way: str
    rate: float
    cpu_us: float
    load: float


def main(arguments: Sequence[str]) -> int:
    """Parses the arguments and runs; the exit code is 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="bin/bench eos", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="records a run moves (2 million)")
    parser.add_argument("--no-java", action="store_true", help="Penstock alone")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Kafka {KAFKA_VERSION}, distributed workers, "
        f"{options.records:,} records a run"
    )
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        directory = Path(scratch)
        with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
            environment = Environment(broker.bootstrap_servers, directory, options.records, "default")
            outcomes = _outcomes(environment, with_java=not options.no_java)
            lone = _lone_line(environment)
    targets = _targets(outcomes, lone["p50_ms"])
    for text, value, wanted, reached in targets:
        print(f"  {text:52} {value:8.2f} (target {wanted:g}{'' if reached else ', missed'})")
    if options.json:
        report = {"runs": [asdict(one) for one in outcomes], "lone_line": lone, "targets": targets}
        options.json.write_text(json.dumps(report, indent=2))
    return 0 if all(reached for *_, reached in targets) else 1


def _outcomes(environment: Environment, *, with_java: bool) -> list[Outcome]:
    contestants = [Contestant("penstock", is_distributed=True)]
    if with_java:
        contestants += [Contestant("java", size, is_distributed=True) for size in JAVA_BATCH_SIZES]
    found = []
    for way in WAYS:
        for contestant in contestants:
            one = run_once(contestant, way, environment)
            print(
                f"  {one.contestant:26} {one.way:14} {one.rate:10,.0f} records/s  CPU {one.cpu_us:6.2f} us a record  "
                f"load {one.load:.1f}",
                flush=True,
            )
            found.append(one)
    return found


def run_once(contestant: Contestant, way: Way, environment: Environment, timeout_s: float = 300) -> Outcome:
    """Moves all lines once.

    Raises:
        RuntimeError: The worker or the task failed, or not each line is there once and in order.
    """
    topic = f"bench-eos-{next(numbers)}"
    environment.create_topic(topic)
    workload = MAIN_SET[0]
    [connector] = workload.connectors(environment, topic)
    connector |= way.connector
    adapt([connector], contestant, workload)
    worker = start_worker(contestant, environment, {**workload.worker, **_support(way)})
    try:
        worker.await_rest()
        worker.await_health()
        worker.post("/connectors", {"name": connector["name"], "config": connector})
        # Markers of transactions have offsets, too: one for each commit, which is next to nothing here.
        count, before = topic_counter(environment, topic), list[float]()

        def counted() -> int:
            found = count()
            if found and not before:
                before.append(worker.usage.cpu_seconds)
            return found

        samples, _ = follow(worker, counted, environment.records, timeout_s)
        _await_committed(worker, connector)
        worker.usage.stop()
        cpu_us = (worker.usage.cpu_seconds - before[0]) / environment.records * 1e6
        worker.stop()
        _check(environment, topic)
        rate = steady_rate(samples, environment.records)
        return Outcome(contestant.name, way.name, rate, cpu_us, os.getloadavg()[0])
    finally:
        worker.stop()
        environment.delete_topic(topic)


def _support(way: Way) -> dict[str, str]:
    return {"exactly.once.source.support": "enabled" if way.exactly_once else "disabled"}


def _await_committed(worker: WorkerProcess, connector: Mapping[str, str]) -> None:
    """Waits until the offset behind the last line is committed."""
    end, pause, deadline = Path(connector["file"]).stat().st_size, threading.Event(), time.monotonic() + _COMMITTED_S
    while _position(worker.get(f"/connectors/{connector['name']}/offsets")) != end:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the last line is not committed after {_COMMITTED_S:g} s; see {worker.log}")
        pause.wait(0.1)


def _position(answer: Any) -> object:
    return answer["offsets"][0]["offset"].get("position") if answer and answer["offsets"] else None


def _check(environment: Environment, topic: str) -> None:
    """Reads what is committed: each line once, in order."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": environment.bootstrap_servers,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    expected = 0
    try:
        while True:
            for message in consumer.consume(10_000, 30):
                if message.error() is not None:
                    if expected != environment.records:
                        raise RuntimeError(f"{expected} of {environment.records} lines are committed in {topic}")
                    return
                value = message.value() or b""
                first = value.index(b'"line":"') + 8
                if int(value[first : first + _DIGITS]) != expected:
                    raise RuntimeError(f"{value[:80]!r} comes as line {expected} of {topic}")
                expected += 1
    finally:
        consumer.close()


def _lone_line(environment: Environment) -> dict[str, float]:
    workload = replace(MAIN_SET[0], worker={**MAIN_SET[0].worker, "exactly.once.source.support": "enabled"})
    found = measure_latency(Contestant("penstock", is_distributed=True), workload, environment, None, 20)
    print(
        f"  a lone line, poll, append until readable: p50 {found['p50_ms']:.0f} ms, p99 {found['p99_ms']:.0f} ms, "
        f"{found['lines']} lines"
    )
    return found


def _targets(outcomes: Sequence[Outcome], lone_ms: float) -> list[tuple[str, float, float, bool]]:
    """What was reached: text, value, target, whether."""
    ours = {one.way: one.rate for one in outcomes if one.contestant == "penstock"}
    java: dict[str, float] = {}
    for one in outcomes:
        if one.contestant != "penstock":
            java[one.way] = max(java.get(one.way, 0.0), one.rate)
    found = []
    for way, share in OF_AT_LEAST_ONCE.items():
        ratio = ours[way] / ours["at least once"]
        found.append((f"{way}, over at least once", ratio, share, ratio >= share))
        if way in java:
            ratio = ours[way] / java[way]
            found.append((f"{way}, over Java's with the same boundary", ratio, OVER_JAVA, ratio >= OVER_JAVA))
    found.append(("a lone line with poll, ms", lone_ms, LONE_LINE_MS, lone_ms <= LONE_LINE_MS))
    return found
