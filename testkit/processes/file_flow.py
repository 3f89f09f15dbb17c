"""Lines that flow from a file through a topic into another file, in a worker that tests disturb.

Main types: `FileFlow` (the worker and both files), `Feeder` (appends lines while it is open). Thread: the test's; the
feeder has one of its own.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

from penstock.api import TopicPartition
from penstock.errors import KafkaException
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.consumer.sampler import read_values
from testkit.processes.worker_process import WorkerProcess


class Feeder:
    """Appends numbered lines to a file until it is closed, whether anybody reads them or not.

    Args:
        path: of the file.
        lines_at_once: how many are written in one go.
        line: what has the place of a number.
        per_s: how often a second. Each time is a batch for Spark at the source and at the sink.
    """

    def __init__(
        self,
        path: Path,
        lines_at_once: int = 80,
        line: bytes = b"line %08d, \xc3\xa4 bit longer than its number\n",
        *,
        per_s: float = 2,
    ) -> None:
        self._path, self._lines_at_once, self._line, self._pause_s = path, lines_at_once, line, 1 / per_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder")

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(10)

    def _run(self) -> None:
        number = 0
        with self._path.open("ab", buffering=0) as out:
            while not self._closed.wait(self._pause_s):
                numbers = range(number, number + self._lines_at_once)
                out.write(b"".join(self._line % n for n in numbers))
                number += self._lines_at_once


class FileFlow:
    """A worker with a file source and a file sink on a topic of their own; its Spark session starts with it.

    Args:
        directory: for its files.
        bootstrap_servers: Kafka.
        settings: more worker properties.
        endable: whether the worker can be made to kill itself at a named point.
    """

    def __init__(
        self,
        directory: Path,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
        *,
        endable: bool = False,
    ) -> None:
        self.servers = bootstrap_servers
        self.topic = f"flow-{uuid.uuid4().hex[:8]}"
        self.source_name, self.sink_name = f"{self.topic}-in", f"{self.topic}-out"
        self.source, self.sink = directory / "in.txt", directory / "out.txt"
        own = {"offset.flush.interval.ms": "250"}
        self.worker = WorkerProcess(directory, bootstrap_servers, own | dict(settings or {}), endable=endable)
        self.worker.spark_on_demand = False
        self.worker.add(
            "source.properties",
            {"name": self.source_name, "connector.class": "FileStreamSource"}
            | {"file": str(self.source), "topic": self.topic},
        )
        self.worker.add(
            "sink.properties",
            {"name": self.sink_name, "connector.class": "FileStreamSink", "file": str(self.sink)}
            | {"topics": self.topic},
        )
        self.source.touch()
        self.sink.touch()

    def start(self) -> None:
        """Starts the worker and waits until lines arrive."""
        before = self.sink.stat().st_size
        self.worker.start()
        self.wait_growth(before)

    def wait_growth(self, before: int, timeout_s: float = 300) -> None:
        """Waits until the worker has a JVM, unless that starts on demand, and then for lines behind these bytes.

        What was converted before a JVM ended may still be written when it is gone.
        """
        if not self.worker.spark_on_demand:
            self.worker.wait(lambda: self.worker.jvm() is not None, "a JVM is there", timeout_s)
        before = max(before, self.sink.stat().st_size)
        self.worker.wait(lambda: self.sink.stat().st_size > before, "lines arrive", timeout_s)

    def wait_all(self, timeout_s: float = 120) -> set[str]:
        """Waits until every line of the source's file is in the sink's; those lines."""
        wanted = set(self.source.read_text(encoding="utf-8").splitlines())
        self.worker.wait(lambda: wanted <= set(self.sunk()), "every line arrives", timeout_s)
        return wanted

    def sunk(self) -> list[str]:
        """The lines of the sink's file, an unfinished last one left out."""
        return self.sink.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0].split("\n")

    def sent_count(self) -> int:
        """Returns the number of records in the topic; 0 before it exists."""
        partition = TopicPartition(self.topic, 0)
        admin = TopicAdmin({"bootstrap.servers": self.servers}, name="the test")
        try:
            return admin.end_offsets([partition])[partition] if admin.topic_exists(self.topic) else 0
        except KafkaException:
            return 0  # it has no leader yet
        finally:
            admin.close()

    def sent(self) -> list[str]:
        """The records in the topic."""
        return [(value or b"").decode() for value in read_values(self.servers, self.topic, self.sent_count(), 60)]
