"""What one sink that is fed with large messages does to ten others of its worker.

`.venv/bin/python -m benchmarks.large_messages [--minutes N]` measures the delay of ten calm sinks, from a message being
written to its line being in the file: first by themselves, then beside a sink whose topic gets twenty messages of 14 MB
and a text of 100 MB again and again (zstd, NUL bytes: some kilobytes each). It prints both, and how many Spark sessions
were lost. Aimed at: the delay at most doubles, and no session is lost.

Thread: the main one feeds; one thread looks at the files, one feeds the large messages.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import confluent_kafka as ck
import numpy as np
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ClientTopic  # type: ignore[attr-defined]
from testkit.processes.worker_process import WorkerProcess, resident_kb

from penstock.broker import EmbeddedBroker

CALM: Final = 10
_MB: Final = 1024 * 1024
_EACH_S: Final = 0.5
_LOOK_S: Final = 0.02
_REST_S: Final = 5.0
_WARM_S: Final = 15.0
#: Of the time, what is measured without large messages.
_QUIET_PART: Final = 0.25


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_messages", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    with (
        tempfile.TemporaryDirectory(prefix="penstock-large-") as scratch,
        EmbeddedBroker(Path(scratch) / "kafka") as broker,
    ):
        worker = WorkerProcess(Path(scratch) / "worker", broker.bootstrap_servers)
        worker.spark_on_demand = False
        worker.start()
        try:
            worker.wait(lambda: "Spark session 1 is up" in worker.text(), "Spark is up", 180)
            _measure(worker, broker.bootstrap_servers, minutes * 60)
        finally:
            worker.end()
            worker.close()


def _measure(worker: WorkerProcess, servers: str, seconds: float) -> None:
    calm = [f"calm-{number}" for number in range(CALM)]
    _make_topics(servers, calm, 1)
    _make_topics(servers, ["large"], 4)
    files = [worker.directory / name for name in calm]
    for name, file in zip(calm, files, strict=True):
        _sink(worker, name, str(file))
    flow = _Flow(servers, calm, files)
    flow.run(_WARM_S)
    quiet = flow.run(seconds * _QUIET_PART)
    _print("by themselves", quiet)
    _sink(worker, "large", os.devnull, **{"tasks.max": "4", "errors.tolerance": "all"})
    ended = threading.Event()
    feeding = threading.Thread(target=_feed_large, args=(servers, ended), name="feed-large")
    feeding.start()
    try:
        beside = flow.run(seconds * (1 - _QUIET_PART))
    finally:
        ended.set()
        feeding.join()
    _print("beside large messages", beside)
    ratio = float(np.median(beside) / np.median(quiet))
    lost = worker.text().count("ERROR The Spark JVM ")
    print(f"the delay is {ratio:.2f} times as long (aimed at 2); {lost} Spark sessions were lost (aimed at 0)")
    put = worker.metric("kafka_connect_sink_task_sink_record_send_total", "large")
    print(f"large: {worker.states('large')}, {put} records")
    print(f"the worker's process has {resident_kb(worker.pid) // 1024} MB")


def _print(what: str, delays: Sequence[float]) -> None:
    half, most, worst = np.percentile(delays, [50, 95, 100]) * 1000
    print(f"{what}: {len(delays)} lines, delay {half:.0f} ms, 95% {most:.0f} ms, longest {worst:.0f} ms", flush=True)


def _sink(worker: WorkerProcess, topic: str, file: str, **more: str) -> None:
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": file, **more}
    status, body = worker.ask("PUT", f"/connectors/{topic}/config", config)
    assert status == 201, body


def _make_topics(servers: str, names: Sequence[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([ClientTopic(name, partitions, 1) for name in names]).values():
        future.result(60)


class _Flow:
    """Messages that are their own time, and when each was in its file."""

    def __init__(self, servers: str, topics: Sequence[str], files: Sequence[Path]) -> None:
        self._producer = ck.Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._topics = topics
        self._files = files
        self._read = dict.fromkeys(files, 0)

    def run(self, seconds: float) -> list[float]:
        """Writes for so long; the delays of all lines that came."""
        delays: list[float] = []
        written = 0
        end = time.time() + seconds
        due = time.time()
        pause = threading.Event()
        while time.time() < end or (len(delays) < written and time.time() < end + 120):
            if due <= time.time() < end:
                due += _EACH_S
                for topic in self._topics:
                    self._producer.produce(topic, repr(time.time()).encode())
                    written += 1
                self._producer.poll(0)
            for file in self._files:
                delays += self._new_in(file)
            pause.wait(_LOOK_S)
        self._producer.flush(10)
        assert len(delays) == written, f"{written - len(delays)} lines are missing"
        return delays

    def _new_in(self, file: Path) -> list[float]:
        if not file.exists() or file.stat().st_size == self._read[file]:
            return []
        with file.open("rb") as stream:
            stream.seek(self._read[file])
            lines = stream.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read[file] += sum(map(len, whole))
        return [time.time() - float(line) for line in whole]


def _feed_large(servers: str, ended: threading.Event) -> None:
    producer = ck.Producer(
        {"bootstrap.servers": servers, "compression.type": "zstd", "message.max.bytes": 300 * _MB, "linger.ms": 0}
    )
    while not ended.is_set():
        for size in (*[14 * _MB] * 20, 100 * _MB):
            producer.produce("large", bytes(size))
            producer.flush(60)
        ended.wait(_REST_S)


if __name__ == "__main__":
    main()
