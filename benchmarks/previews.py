"""`python -m benchmarks.previews`: what twenty previews at once cost a connector that runs.

A source runs at full speed, or with `--rate` at a set pace. Windows without previews and windows of the same length in
which twenty are always under way take turns; each is compared with the mean of its two neighbours, and the median of
these ratios counts.

Thread: the main thread measures; each preview has a thread that waits for its answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from benchmarks.figures import median
from benchmarks.processes import WorkerProcess, cpu_seconds, process_tree
from penstock.broker import EmbeddedBroker, free_port

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
TOPIC = "steady"


@dataclass
class Window:
    """What happened in one stretch of time.

    Attributes:
        rate: Records of the source a second.
        seconds: How long it took.
        cpu: CPU seconds of the worker, its JVM and other processes of it.
        waits: How long each preview took.
        endings: What ended each preview's reading.
    """

    rate: float
    seconds: float
    cpu: float
    waits: list[float] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)


class Bench:
    """A worker with a source that runs, and the file that is previewed."""

    def __init__(self, worker: WorkerProcess, servers: str, file: Path, at_once: int) -> None:
        self._worker = worker
        self._reader = ck.Consumer({"bootstrap.servers": servers, "group.id": "previews"})
        self._pid = worker.usage.root
        self._file = file
        self._at_once = at_once

    def quiet(self, seconds: float) -> Window:
        """A stretch without previews."""
        before, cpu, began = self.written(), self._cpu(), time.monotonic()
        threading.Event().wait(seconds)
        took = time.monotonic() - began
        return Window((self.written() - before) / took, took, self._cpu() - cpu)

    def busy(self, seconds: float) -> Window:
        """A stretch in which many previews are under way all the time: whoever has an answer asks again."""
        before, cpu, began = self.written(), self._cpu(), time.monotonic()
        found = Window(0, 0, 0)
        threads = [threading.Thread(target=self._previews, args=(found, began + seconds)) for _ in range(self._at_once)]
        for thread in threads:
            thread.start()
        threading.Event().wait(seconds)
        found.seconds = time.monotonic() - began
        found.rate = (self.written() - before) / found.seconds
        found.cpu = self._cpu() - cpu
        for thread in threads:
            thread.join()
        return found

    def written(self) -> int:
        """Records of the source that are in Kafka: the worker's own count comes in steps of seconds."""
        try:
            _, end = self._reader.get_watermark_offsets(ck.TopicPartition(TOPIC, 0), timeout=30)
        except ck.KafkaException:  # the source has not made its topic yet
            return 0
        return int(end)

    def close(self) -> None:
        """Ends its consumer."""
        self._reader.close()

    def _previews(self, window: Window, until: float) -> None:
        config = {
            "connector.class": "FileStreamSource",
            "file": str(self._file),
            "topic": "previewed",
            "transforms": "hoist",
            "transforms.hoist.type": "HoistField$Value",
            "transforms.hoist.field": "line",
        }
        while (began := time.monotonic()) < until:
            answer = post(self._worker.url, "/connector-plugins/FileStreamSource/preview", {"config": config})
            window.waits.append(time.monotonic() - began)
            window.endings.append(answer["ended_by"])

    def _cpu(self) -> float:
        return sum(cpu_seconds(pid) for pid in process_tree(self._pid) if pid)


def post(url: str, path: str, body: object) -> Any:
    """The answer to a POST request."""
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"POST {path}: {error.code} {error.read()[:500]!r}") from error


def main() -> int:
    """Measures; the exit code is 1 when previews cost more than they may."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.previews", description=__doc__)
    parser.add_argument("--rate", type=int, default=0, help="records a second of the source; 0 for full speed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument("--window", type=float, default=10.0, help="seconds with, or without, previews")
    parser.add_argument("--most", type=float, default=0.05, help="the share of its speed that the source may lose")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-previews-") as scratch:
        lost = _measure(Path(scratch), options)
    print(f"the source lost {lost:.1%} of its speed (median of {options.rounds} rounds; at most {options.most:.0%})")
    return 0 if lost <= options.most else 1


def _measure(directory: Path, options: argparse.Namespace) -> float:
    previewed = directory / "previewed.txt"
    previewed.write_text("".join(f"line {number}\n" for number in range(100_000)))
    with EmbeddedBroker(directory / "kafka", heap="1g") as broker:
        worker = _worker(directory, broker.bootstrap_servers)
        try:
            worker.await_rest()
            config = {
                "connector.class": "benchmarks.steady_source.SteadySource",
                "topic": TOPIC,
                "rate": str(options.rate),
            }
            post(worker.url, "/connectors", {"name": "steady", "config": config})
            bench = Bench(worker, broker.bootstrap_servers, previewed, options.at_once)
            pause = threading.Event()
            while bench.written() < min(1_000_000, (options.rate or 100_000) * 10):
                pause.wait(0.2)
            bench.busy(1.0)  # the first one starts the process that reads sources
            try:
                return _rounds(bench, options)
            finally:
                bench.close()
        finally:
            worker.stop()


def _rounds(bench: Bench, options: argparse.Namespace) -> float:
    losses = []
    before = bench.quiet(options.window)
    for number in range(options.rounds):
        busy = bench.busy(options.window)
        after = bench.quiet(options.window)
        usual = (before.rate + after.rate) / 2
        losses.append(1 - busy.rate / usual)
        waits = sorted(busy.waits)
        print(
            f"round {number + 1}: {usual:,.0f} records/s, {busy.rate:,.0f} with {len(busy.waits)} previews"
            f" ({losses[-1]:+.1%} lost); CPU {before.cpu / before.seconds:.2f} and {busy.cpu / busy.seconds:.2f} s/s;"
            f" a preview took {waits[0]:.1f} to {waits[-1]:.1f} s, ended by {sorted(set(busy.endings))}",
            flush=True,
        )
        before = after
    return median(losses)


def _worker(directory: Path, brokers: str) -> WorkerProcess:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    properties = {
        "bootstrap.servers": brokers,
        "listeners": url,
        "offset.storage.file.filename": directory / "offsets",
        "key.converter": STRINGS,
        "value.converter": STRINGS,
    }
    file = directory / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [str(Path(sys.executable).with_name("connect-standalone")), str(file)]
    return WorkerProcess(command, url, directory / "worker.log", {})


if __name__ == "__main__":
    sys.exit(main())
