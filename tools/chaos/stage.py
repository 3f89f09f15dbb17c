"""The environment of a fault: a worker in which numbered lines flow from a file through a topic into a file.

Main types: `Stage`, `Trouble`, `Peak` (the most memory that a process had). Thread: the test's.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from testkit.processes.file_flow import Feeder, FileFlow
from testkit.processes.worker_process import WorkerProcess, resident_kb

from penstock.broker import EmbeddedBroker
from tools.chaos.cases.troublemakers import Troublemaker
from tools.chaos.proxy import KafkaProxy

#: The class of `Troublemaker` by the name that a configuration has.
TROUBLEMAKER: Final = f"{Troublemaker.__module__}.{Troublemaker.__name__}"


@dataclass(frozen=True)
class Trouble:
    """A connector with a `Troublemaker`.

    Attributes:
        name: Of the connector.
        until: The file whose end ends the fault.
    """

    name: str
    until: Path

    def is_there(self) -> bool:
        """True if the fault has come, where the task tells that."""
        return self.until.with_suffix(".reached").exists()


class Stage:
    """A worker, the flow in it, and a broker; a context that starts and ends the worker.

    Args:
        directory: for all files.
        broker: runs already.
        settings: more worker properties.

    Attributes:
        proxy: Between the worker and the broker.
    """

    def __init__(
        self,
        directory: Path,
        broker: EmbeddedBroker,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory, self.broker = directory, broker
        self.proxy = KafkaProxy(broker.port)
        own = {"task.shutdown.graceful.timeout.ms": "1000"} | dict(settings or {})
        self._settings = own
        self._numbers = itertools.count()
        self._pid = 0

    def __enter__(self) -> Stage:
        with ExitStack() as opened:
            opened.enter_context(self.proxy)
            self.flow = FileFlow(self.directory, self.proxy.servers, self._settings)
            self.worker: WorkerProcess = self.flow.worker
            opened.callback(self.worker.close)
            opened.enter_context(Feeder(self.flow.source, lines_at_once=20))
            self.worker.start(piped=True)
            self.flow.wait_growth(0)
            self.worker.wait_running(self.flow.source_name, self.flow.sink_name)
            self._pid = self.worker.pid
            self._opened = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._opened:
            if kind is None:
                self.goes_on()
                assert self.worker.end() == 0, self.worker.text()[-4000:]

    # ---------------------------------------------------------------- what must hold
    def goes_on(self, timeout_s: float = 60) -> None:
        """Every line written so far arrives, the worker is the same process and answers, and the flow's tasks run."""
        self.flow.wait_all(timeout_s)
        assert self.worker.running is not None
        assert (self.worker.running.poll(), self.worker.pid) == (None, self._pid)
        self.worker.wait(lambda: self.worker.ask("GET", "/health", timeout_s=10)[0] == 200, "health", 30)
        for name in (self.flow.source_name, self.flow.sink_name):
            assert self.worker.states(name) == ["RUNNING", "RUNNING"], self.worker.trace(name)

    # ---------------------------------------------------------------- connectors
    def name(self, kind: str) -> str:
        """A name that nothing else on this stage has."""
        return f"{self.flow.topic}-{kind}-{next(self._numbers)}"

    @contextmanager
    def connector(self, config: Mapping[str, str], *, runs: bool = True) -> Iterator[str]:
        """A connector beside the flow, deleted at the end; its name."""
        name = self.name("beside")
        status, body = self.worker.ask("PUT", f"/connectors/{name}/config", dict(config))
        assert status == 201, body
        try:
            if runs:
                self.worker.wait_running(name)
            yield name
        finally:
            # The worker may be at its limits just then.
            self.worker.wait(lambda: self.worker.ask("DELETE", f"/connectors/{name}")[0] in (204, 404), "deletion")

    @contextmanager
    def trouble(self, fault: str) -> Iterator[Trouble]:
        """A task with this fault while the context lasts."""
        until = self.directory / f"{fault}-{next(self._numbers)}"
        until.touch()
        own = {"connector.class": TROUBLEMAKER, "topic": "none", "fault": fault, "until": str(until)}
        with self.connector(own, runs=False) as name:
            try:
                yield Trouble(name, until)
            finally:
                until.unlink(missing_ok=True)

    def fails(self, name: str, timeout_s: float = 60) -> str:
        """Waits until the task has failed; its trace."""
        self.worker.wait(lambda: self.worker.states(name)[1:] == ["FAILED"], f"{name} fails", timeout_s)
        return self.worker.trace(name)

    def wait_lines(self, file: Path, count: int, timeout_s: float = 90) -> set[str]:
        """Waits until a file has so many different whole lines; those."""

        def lines() -> set[str]:
            text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            return set(text.rpartition("\n")[0].split("\n")) - {""}

        self.worker.wait(lambda: len(lines()) >= count, f"{count} lines in {file.name}", timeout_s)
        return lines()

    def position(self) -> int:
        """The source offset of the flow that is committed."""
        _, body = self.worker.get(f"/connectors/{self.flow.source_name}/offsets")
        assert isinstance(body, dict), body
        return max((int(entry["offset"]["position"]) for entry in body["offsets"]), default=0)

    # ---------------------------------------------------------------- Kafka
    def create_topic(self, topic: str, partitions: int) -> None:
        """Makes a topic; one that the broker has made by itself meanwhile gets more partitions."""
        client = self._admin()
        try:
            client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            if partitions > 1:
                client.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""
        client = self._admin()
        client.delete_topics([topic])[topic].result(30)

    def _admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})

    def produce(self, topic: str, values: Iterable[bytes], partitions: int = 1, **settings: object) -> int:
        """Sends messages without keys, partition after partition; how many there were."""
        producer = ck.Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 20, **settings})
        faults: list[object] = []

        def told(error: object, _: object) -> None:
            if error is not None:
                faults.append(error)

        count = 0
        for count, value in enumerate(values, 1):
            while True:
                try:
                    producer.produce(topic, value, partition=count % partitions, on_delivery=told)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(120) == 0
        assert not faults, faults[0]
        return count


class Peak:
    """A context in which the memory of a process is looked at ten times a second.

    Args:
        pid: of the process.

    Attributes:
        before_mb: At the beginning.
        most_mb: The most so far.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak")
        self.before_mb = self.most_mb = resident_kb(pid) / 1024

    @property
    def added_mb(self) -> float:
        """The increase since the beginning."""
        return self.most_mb - self.before_mb

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._over.wait(0.1):
            try:
                self.most_mb = max(self.most_mb, resident_kb(self._pid) / 1024)
            except (OSError, StopIteration):
                return


def lasting(seconds: float) -> Iterator[None]:
    """Turns of a loop for so long, ten a second."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        threading.Event().wait(0.1)
