"""A source task that delivers exactly once, against a broker and without a cluster: what a distributed worker gives its
task, put together for one task; values are converted by a stand-in for Spark.

Main types: ``ExactlyOnceSource`` (the task in its slot, with what it is made of), ``Surroundings`` (Kafka, and the
worker's own store of offsets); ``LinesTask`` and ``LineFramesTask`` read the lines of a file, as records and as frames,
and end transactions themselves where they may. Main function: ``visible``. Run as a module it is a process that a test
kills: ``SourceProcess`` starts it.

Thread: the test's.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import confluent_kafka as ck

from penstock.api import SampleWindow, SourceFrame, SourceRecord, SourceTask
from penstock.connectors.file.source import FileStreamSourceTask
from penstock.kafka.admin import TopicAdmin, TopicCreator
from penstock.kafka.settings.client import admin_settings
from penstock.kafka.topic_log import internal_topics as log_settings
from penstock.kafka.topic_log.internal_topics import InternalTopic, Kind, ensure
from penstock.kafka.topic_log.log import TopicLog
from penstock.model import ConnectorTaskId, ConnectorType, State
from penstock.plugins import Plugins
from penstock.settings import DistributedSettings, InstalledPlugins, SourceSettings
from penstock.stores.offsets import OffsetReader, OffsetTopicStore, connector_offsets
from penstock.telemetry import configure_logging
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.source.delivery_guarantee import SourceCommits, SourceOffsets
from penstock.worker.source.offset_commit import CommitHooks
from penstock.worker.source.task import SourceServices, SourceTaskRunner
from penstock.worker.task.bounded_queue import BatchLimits
from penstock.worker.task.engine import (
    TaskServices,
    TaskSession,
    TaskSpec,
)
from penstock.worker.task.slot import (
    StateReport,
    TaskRequest,
    TaskRunner,
    TaskSlot,
    load_class,
)
from testkit.doubles.source_doubles import FakePipeline
from testkit.waiting import await_true

WAIT_S = 60.0


def worker_settings(servers: str, **own: str) -> dict[str, str]:
    """The file of a distributed worker; what is its own has underscores for dots."""
    name = uuid.uuid4().hex[:8]
    return {
        "bootstrap.servers": servers,
        "group.id": f"group-{name}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "config.storage.topic": f"configs-{name}",
        "offset.storage.topic": f"offsets-{name}",
        "status.storage.topic": f"status-{name}",
        "offset.storage.partitions": "3",
        "offset.storage.replication.factor": "1",
        "exactly.once.source.support": "enabled",
        "listeners": "http://127.0.0.1:0",
        **{key.replace("_", "."): text for key, text in own.items()},
    }


def visible(
    servers: str, topic: str, *, committed: bool = True, fetch_wait_ms: int = 50, partition: int = 0
) -> list[str]:
    """The values in a partition of a topic that a reader sees now; nothing where the topic is not there yet.

    The reader finds the end when nothing new has come for `fetch_wait_ms`.
    """
    level = "read_committed" if committed else "read_uncommitted"
    consumer = ck.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": level,
            "fetch.wait.max.ms": fetch_wait_ms,
        }
    )
    values: list[str] = []
    try:
        if consumer.list_topics(topic, WAIT_S).topics[topic].error is not None:
            return []
        consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{topic} cannot be read"
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                return values
            else:
                # A topic that was just made may have no leader yet.
                assert error.code() in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC), error
                return []
    finally:
        consumer.close()


class LinesTask(SourceTask):
    """The lines of a file as records, some at a time.

    Ends its transaction behind every seventh, and where there is nothing more, where it may.
    """

    def start(self, props: Mapping[str, str]) -> None:
        self._path, self._topic = Path(props["file"]), props["topic"]
        self._partition = {"file": props["file"]}
        offset = self.context.offset_storage_reader().offset(self._partition)
        self._next = int(str((offset or {"line": 0})["line"]))

    def poll(self) -> list[SourceRecord] | None:
        lines = self._path.read_text().split("\n")[self._next : -1][:50]
        transactions = self.context.transaction_context()
        if not lines:
            if transactions is not None:
                transactions.commit_transaction()
            self.context.stopping.wait(0.02)
            return None
        numbers = range(self._next + 1, self._next + len(lines) + 1)
        polled = [
            SourceRecord(self._partition, {"line": number}, self._topic, line)
            for number, line in zip(numbers, lines, strict=True)
        ]
        self._next += len(lines)
        if transactions is not None:
            for record, number in zip(polled, numbers, strict=True):
                if number % 7 == 0:
                    transactions.commit_transaction(record)
        return polled

    def stop(self) -> None: ...


class LineFramesTask(FileStreamSourceTask):
    """The lines of a file as frames; ends its transaction behind every third, where it may."""

    _polls = 0

    def poll(self) -> SourceFrame | None:
        polled = super().poll()
        transactions = self.context.transaction_context()
        self._polls += 1
        if transactions is not None and (polled is None or self._polls % 3 == 0):
            transactions.commit_transaction()
        return polled


class Surroundings:
    """The worker's settings, and its own store of offsets.

    Args:
        worker: The content of its file.
    """

    def __init__(self, worker: Mapping[str, str]) -> None:
        self.settings = DistributedSettings.parse(worker)
        raw = self.settings.raw
        self.admin = TopicAdmin(admin_settings(raw, client_id="surroundings").checked().librdkafka, name="the test")
        topic = InternalTopic.of(Kind.OFFSET, raw)
        ensure(self.admin, topic)
        log = TopicLog(topic.name, log_settings.offset_log(raw, transactional=True), self.admin)
        self.shared = OffsetTopicStore(log, topic.name)
        self.shared.start()
        self.offsets = SourceOffsets(self.shared, raw, exactly_once=True)

    def close(self) -> None:
        """Lets all go."""
        self.shared.stop()
        self.admin.close()

    def __enter__(self) -> Surroundings:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class ExactlyOnceSource:
    """Task 0 of a connector, in a slot that makes it anew where it ends with its transaction.

    Attributes:
        around: What it works in.
        make_task: Makes the user's task.
        config: The connector's settings; its topic is in ``topic``.
        confirm, confirm_owner: As the herder would say.
        probe: Told the named points.
        limits: Of batches.
    """

    around: Surroundings
    make_task: Callable[[], SourceTask]
    config: dict[str, str] = field(default_factory=dict)
    confirm: Callable[[], None] = lambda: None
    confirm_owner: Callable[[float], bool] = lambda since_s: True
    probe: Callable[[str], None] = lambda point: None
    limits: BatchLimits = field(default_factory=BatchLimits)

    def __post_init__(self) -> None:
        name = self.config.setdefault("name", f"source-{uuid.uuid4().hex[:8]}")
        self.topic = self.config.setdefault("topic", name)
        self.config.setdefault("connector.class", "FileStreamSource")
        self.id = ConnectorTaskId(name, 0)
        self.states: list[tuple[State, str | None]] = []
        self.changed = threading.Condition()
        self.tasks: list[SourceTask] = []
        self.runners: list[SourceTaskRunner] = []
        self.request = TaskRequest(
            self.id,
            ConnectorType.SOURCE,
            self.config,
            self.config,
            lambda: self.config,
            False,
            1,
            confirm=self.confirm,
            confirm_owner=self.confirm_owner,
        )
        self.slot = TaskSlot(self.id, self._make, paused=False, on_state=self._on_state, stop_timeout_s=15.0)

    # ---------------------------------------------------------------- life
    def start(self) -> ExactlyOnceSource:
        """Starts it; does not wait."""
        self.slot.start()
        return self

    def stop(self) -> None:
        """Stops it and waits for its end."""
        self.slot.stop().result(WAIT_S)

    def wait_state(self, wanted: State, times: int = 1) -> str:
        """Waits until it was in a state so often; the trace that came with it."""

        def seen() -> list[str]:
            return [trace or "" for state, trace in self.states if state is wanted]

        with self.changed:
            assert self.changed.wait_for(lambda: len(seen()) >= times, WAIT_S), self.states
            return seen()[times - 1]

    def committed(self) -> dict[object, object]:
        """The source offsets as requests read them: a value for each, by the values of their partition."""
        with self.around.offsets.opened(self.id.connector, self.config) as store:
            found = connector_offsets(store, self.id.connector)
        return {next(iter((partition or {}).values())): next(iter(offset.values())) for partition, offset in found}

    def wait_committed(self, wanted: Mapping[object, object]) -> None:
        """Waits until these are the source offsets."""
        await_true(lambda: self.committed() == wanted, lambda: f"{self.committed()} {self.states}", WAIT_S)

    # ---------------------------------------------------------------- parts
    def _make(self, report: StateReport, paused: bool) -> TaskRunner:
        again = len(self.runners) > 0
        request = TaskRequest(**{**self.request.__dict__, "paused": paused, "again": again})
        settings = SourceSettings.parse(self.config, InstalledPlugins(Plugins.discover([])))
        task = self.make_task()
        self.tasks.append(task)
        commits = SourceCommits(self.around.settings, self.around.offsets, settings, SampleWindow(), self.probe)
        with ExitStack() as made:
            producer = commits.producer(self.id, task)
            made.callback(producer.close, 0)
            store, committer = commits.committer(request, producer, CommitHooks(task))
            made.callback(store.stop)
            errors = ErrorHandler(
                ErrorPolicy(tolerance_all=settings.errors_tolerance_all),
                [],
                counts=ErrorCounts(),
                clock=lambda: 0,
                random=random.Random(1).random,
            )
            source = SourceServices(
                pipeline=FakePipeline(),
                producer=producer,
                topics=TopicCreator(str(self.id), None, None),
                committer=committer,
                offset_reader=OffsetReader(store, self.id.connector),
                requests=commits.requests(self.id, task),
            )
            close = made.pop_all().close
        services = TaskServices(report, TaskSession(str(self.id)), errors, close=close, probe=self.probe)
        spec = TaskSpec(self.id, task, self.config, dict, self.limits, paused=paused)
        runner = SourceTaskRunner(spec, services, source)
        self.runners.append(runner)
        return runner

    def _on_state(self, state: State, trace: str | None) -> None:
        with self.changed:
            self.states.append((state, trace))
            self.changed.notify_all()


class SourceProcess:
    """One task after another in a process of its own.

    Args:
        directory: Where its files are.
        worker: The worker's file.
        config: The connector's settings.
        task_class: Of the task, by its path.
    """

    def __init__(self, directory: Path, worker: Mapping[str, str], config: Mapping[str, str], task_class: str) -> None:
        self.orders, self.log = directory / "end-at", directory / "log"
        self._disowned = directory / "disowned"
        self._argument = json.dumps([dict(worker), dict(config), task_class, str(self.orders), str(self._disowned)])
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, in place of one that has ended; does not wait."""
        out: IO[bytes]
        with self.log.open("ab") as out:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "testkit.doubles.exactly_once", self._argument], stdout=out, stderr=out
            )

    def end_at(self, point: str) -> None:
        """It kills itself the next time that it passes this point."""
        draft = self.orders.with_suffix(".draft")
        draft.write_text(point)
        draft.rename(self.orders)

    def disown(self) -> None:
        """From now on its group does not say any more that the task is its own."""
        self._disowned.touch()

    def wait_killed(self) -> None:
        """Waits until it has killed itself."""
        assert self.running is not None
        assert self.running.wait(WAIT_S) == -signal.SIGKILL, self.text()[-4000:]

    def signal(self, number: signal.Signals) -> None:
        """Signals it."""
        assert self.running is not None
        self.running.send_signal(number)

    def text(self) -> str:
        """Returns what was printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self) -> None:
        """Ends it."""
        if self.running is not None and self.running.poll() is None:
            self.running.send_signal(signal.SIGCONT)
            self.running.kill()
            self.running.wait(WAIT_S)


def main() -> None:
    """Runs one task until it is killed: the settings are JSON, and a file says where the process is to end itself."""
    worker, config, task_class, orders, disowned = json.loads(sys.argv[1])

    def end_here(point: str) -> None:
        try:
            wanted = Path(orders).read_text()
        except FileNotFoundError:
            return
        if wanted == point:
            Path(orders).unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    cls: Any = load_class(task_class)
    configure_logging()
    source = ExactlyOnceSource(
        Surroundings(worker), cls, config, confirm_owner=lambda _: not Path(disowned).exists(), probe=end_here
    )
    source.start()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while not ended.wait(0.05):
        if source.states and source.states[-1][0] is State.FAILED:
            print(source.states[-1][1], flush=True)
            os._exit(1)
    source.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
