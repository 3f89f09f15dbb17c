"""One run: a worker is started, moves the records of a workload, and is measured.

Main functions: `run_once`, `measure_latency`; main types: `Contestant`, `RunResult`.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import confluent_kafka as ck

from benchmarks.figures import Sample, percentile, steady_rate
from benchmarks.processes import WorkerProcess
from benchmarks.workloads import CLIENTS, FILE_SOURCE, Environment, Workload
from penstock.broker import CONNECT_COORDINATES, free_port, resolve_jars
from penstock.broker.jars import find_java

JAVA_OPTIONS = ["-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-Djava.awt.headless=true"]
CHECKOUT = Path(__file__).resolve().parents[1]
numbers = itertools.count()


@dataclass(frozen=True)
class Contestant:
    """Who runs: `java` or `penstock`.

    Attributes:
        kind: Which of them.
        batch_size: The file source's, when it is not the default.
        is_distributed: Whether it is a worker of a cluster, the only one of its group.
    """

    kind: str
    batch_size: int | None = None
    is_distributed: bool = False

    @property
    def name(self) -> str:
        """For the table."""
        return self.kind if self.batch_size is None else f"{self.kind} batch.size={self.batch_size}"


@dataclass(frozen=True)
class RunResult:
    """What one run gave.

    Attributes:
        rate: records a second, first fifth cut.
        arrived: how many records were there in the end.
        peak_mib, cpu_s: of all processes of the worker.
        rest_s, first_record_s: from the start of the process.
        stages: share of the time that each stage was at work, over all tasks; empty for Java.
    """

    contestant: str
    rate: float
    arrived: int
    peak_mib: float
    cpu_s: float
    rest_s: float
    first_record_s: float
    stages: dict[str, float]


def start_worker(
    contestant: Contestant,
    environment: Environment,
    settings: dict[str, str],
    *,
    java_plugins: Sequence[str] = (),
    java_classes: Sequence[Path] = (),
    python_path: Sequence[Path] = (),
) -> WorkerProcess:
    """Starts a worker without connectors.

    Args:
        contestant: whose.
        environment: broker and files.
        settings: of the worker.
        java_plugins: Maven coordinates of plugins that Java's worker has.
        java_classes: jars and directories of classes that Java's worker has beside its own.
        python_path: directories in which Penstock's worker finds modules beside those of this checkout.
    """
    number = next(numbers)
    mode = "distributed" if contestant.is_distributed else "standalone"
    port = free_port()
    directory = environment.directory / f"run-{number}-{contestant.kind}"
    directory.mkdir()
    url = f"http://127.0.0.1:{port}"
    properties = {
        "bootstrap.servers": environment.bootstrap_servers,
        "listeners": url,
        **(
            _group(f"bench-{number}")
            if contestant.is_distributed
            else {"offset.storage.file.filename": str(directory / "offsets")}
        ),
        "offset.flush.interval.ms": "10000",
        **CLIENTS[environment.clients],
        **settings,
    }
    if contestant.kind == "java":
        properties["plugin.discovery"] = "only_scan"
    file = directory / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    if contestant.kind == "java":
        class_path = ":".join(map(str, [*java_classes, *resolve_jars((*CONNECT_COORDINATES, *java_plugins))]))
        main = f"org.apache.kafka.connect.cli.Connect{mode.title()}"
        command = [str(find_java()), *JAVA_OPTIONS, "-cp", class_path, main, str(file)]
    else:
        command = [str(Path(sys.executable).with_name(f"connect-{mode}")), str(file)]
    path = os.pathsep.join(filter(None, [*map(str, python_path), str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    return WorkerProcess(command, url, directory / "worker.log", {"PYTHONPATH": path})


def _group(name: str) -> dict[str, str]:
    topics = {f"{kind}.storage.topic": f"{name}-{kind}s" for kind in ("config", "offset", "status")}
    return {
        "group.id": name,
        **topics,
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
    }


def run_once(contestant: Contestant, workload: Workload, environment: Environment, timeout_s: float = 300) -> RunResult:
    """Moves all records once.

    Raises:
        RuntimeError: the worker or a task failed, or the records did not arrive in time, or too many did.
    """
    number = next(numbers)
    total = environment.records
    target = f"bench-{number}" if workload.target == "topic" else str(environment.directory / f"bench-out-{number}.txt")
    if workload.target == "topic":
        environment.create_topic(target, workload.partitions)
    connectors = workload.connectors(environment, target)
    adapt(connectors, contestant, workload)
    count = topic_counter(environment, target) if workload.target == "topic" else line_counter(target)
    worker = start_worker(contestant, environment, dict(workload.worker))
    try:
        rest_s = worker.await_rest()
        for connector in connectors:
            worker.post("/connectors", {"name": connector["name"], "config": connector})
        samples, busy = follow(worker, count, total, timeout_s)
        arrived = count()
        worker.usage.stop()
        moved_from = next(moment for moment, seen in samples if seen > 0)
        if arrived != total:
            raise RuntimeError(f"{contestant.name}: {arrived} records arrived of {total}; see {worker.log}")
        return RunResult(
            contestant.name,
            steady_rate(samples, total),
            arrived,
            worker.usage.peak_bytes / 2**20,
            worker.usage.cpu_seconds,
            rest_s,
            moved_from - worker.started,
            {stage: seconds / max(0.001, samples[-1][0] - moved_from) for stage, seconds in busy.items()},
        )
    finally:
        worker.stop()
        if workload.target == "topic":
            environment.delete_topic(target)
        else:
            Path(target).unlink(missing_ok=True)


def adapt(connectors: list[dict[str, str]], contestant: Contestant, workload: Workload) -> None:
    """Changes the connectors of a workload to what the contestant runs."""
    for connector in connectors:
        if contestant.kind == "penstock":
            connector |= workload.only_here
        elif contestant.batch_size is not None and connector["connector.class"] == FILE_SOURCE:
            connector["batch.size"] = str(contestant.batch_size)


def follow(
    worker: WorkerProcess, count: Callable[[], int], total: int, timeout_s: float
) -> tuple[list[Sample], dict[str, float]]:
    """Counts until all has arrived; what was seen, and how long each stage worked since the first arrival."""
    pause = threading.Event()
    samples: list[Sample] = []
    deadline = time.monotonic() + timeout_s
    next_check = time.monotonic() + 5
    before: dict[str, float] | None = None
    while not samples or samples[-1][1] < total:
        samples.append((time.monotonic(), count()))
        if samples[-1][1] and before is None:
            before = worker.busy_seconds()
        if time.monotonic() > next_check:
            next_check += 5
            if failures := worker.failures():
                raise RuntimeError(f"{failures[0]}; see {worker.log}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{samples[-1][1]} of {total} records after {timeout_s:.0f} s; see {worker.log}")
        pause.wait(0.05)
    since = before or {}
    return samples, {stage: at - since.get(stage, 0.0) for stage, at in worker.busy_seconds().items()}


def topic_counter(environment: Environment, topic: str) -> Callable[[], int]:
    """Counts the offsets of a topic that is there already."""
    # Records of open transactions are there, too.
    consumer = ck.Consumer(
        {
            "bootstrap.servers": environment.bootstrap_servers,
            "group.id": f"count-{topic}",
            "isolation.level": "read_uncommitted",
        }
    )
    pause = threading.Event()
    # Right after a topic was created the broker may name it without partitions.
    while not (known := consumer.list_topics(topic, 10).topics[topic].partitions):
        pause.wait(0.05)
    partitions = [ck.TopicPartition(topic, number) for number in known]

    def count() -> int:
        return sum(consumer.get_watermark_offsets(partition, timeout=10)[1] for partition in partitions)

    return count


def line_counter(path: str) -> Callable[[], int]:
    """Counts line feeds; bytes that were counted are not read again."""
    state = {"position": 0, "lines": 0}

    def count() -> int:
        try:
            with Path(path).open("rb") as data:
                data.seek(state["position"])
                while chunk := data.read(1 << 20):
                    state["position"] += len(chunk)
                    state["lines"] += chunk.count(b"\n")
        except FileNotFoundError:
            return 0
        return state["lines"]

    return count


def measure_latency(
    contestant: Contestant, workload: Workload, environment: Environment, rate: float | None, seconds: float
) -> dict[str, float]:
    """Appends lines that carry their time and sees when they can be read.

    Args:
        contestant: who runs.
        workload: a source workload.
        environment: broker and files.
        rate: lines a second; None: one at a time, each after the one before was read.
        seconds: for how long.

    Returns:
        p50 and p99 in milliseconds, and how many lines were measured; with a rate of the lines behind the first fifth,
        as with rates of records, and beside it p99 of all.
    """
    number = next(numbers)
    topic, path = f"bench-latency-{number}", environment.directory / f"latency-{number}.txt"
    environment.create_topic(topic)
    path.touch()
    connector = {**workload.connectors(environment, topic)[0], "file": str(path), "topic": topic}
    adapt([connector], contestant, workload)
    worker = start_worker(contestant, environment, {**workload.worker, "producer.linger.ms": "0"})
    consumer = ck.Consumer(
        {"bootstrap.servers": environment.bootstrap_servers, "group.id": topic, "fetch.wait.max.ms": 10}
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    delays: list[float] = []
    try:
        worker.await_rest()
        worker.await_health()
        worker.post("/connectors", {"name": connector["name"], "config": connector})
        with path.open("ab", buffering=0) as out:
            for _ in range(20):  # warm
                out.write(_stamped())
                _read_delay(consumer, 90)
            if rate is None:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    out.write(_stamped())
                    delays.append(_read_delay(consumer, 30))
            else:
                delays = _under_load(consumer, topic, out.write, rate, seconds)
    finally:
        consumer.close()
        worker.stop()
        environment.delete_topic(topic)
    measured = delays if rate is None else delays[len(delays) // 5 :]
    return {
        "p50_ms": percentile(measured, 0.5),
        "p99_ms": percentile(measured, 0.99),
        "p99_from_start_ms": percentile(delays, 0.99),
        "lines": len(measured),
    }


def _stamped() -> bytes:
    return b"%020d" % time.time_ns() + b"x" * 74 + b"\n"


def _delay(value: bytes | None) -> float:
    assert value is not None
    digits = value[value.index(b"0", value.index(b'"line"')) :][:20]
    return (time.time_ns() - int(digits)) / 1e6


def _read_delay(consumer: ck.Consumer, timeout_s: float) -> float:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            return _delay(message.value())
    raise RuntimeError(f"no record within {timeout_s} s")


def _under_load(
    consumer: ck.Consumer, topic: str, write: Callable[[bytes], object], rate: float, seconds: float
) -> list[float]:
    place = ck.TopicPartition(topic, 0)
    before = consumer.get_watermark_offsets(place, timeout=10)[1]
    delays: list[float] = []
    written = 0
    over = threading.Event()

    def append() -> None:
        nonlocal written
        start = time.monotonic()
        while (passed := time.monotonic() - start) < seconds:
            due = int(passed * rate) - written
            if due > 0:
                # They are written at one moment; a time for each would cost what the worker needs.
                write(_stamped() * due)
                written += due
            over.wait(0.01)

    writer = threading.Thread(target=append, name="appender")
    writer.start()
    deadline = time.monotonic() + seconds + 60
    readable = 0
    while (writer.is_alive() or readable < before + written) and time.monotonic() < deadline:
        # Only the next line that can be read is fetched: reading them all takes as much as the worker has.
        consumer.seek(ck.TopicPartition(topic, 0, ck.OFFSET_END))
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            delays.append(_delay(message.value()))
        readable = consumer.get_watermark_offsets(place, timeout=10)[1]
    writer.join()
    if readable < before + written:
        raise RuntimeError(f"{readable - before} of {written} lines arrived")
    return delays


def as_dict(result: RunResult) -> dict[str, object]:
    """For the JSON report."""
    return asdict(result)
