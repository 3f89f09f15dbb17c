"""A source task with a real broker and a real offsets file; values are converted by a stand-in for Spark."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import confluent_kafka as ck
import pyarrow as pa
import pytest
from testkit.doubles.source_doubles import FakePipeline, HookedTask, ScriptedTask, offset_committer

from penstock.api import SourceFrame, SourceRecord
from penstock.broker import EmbeddedBroker
from penstock.kafka.admin import TopicAdmin, TopicCreator, plan_of
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.settings.client import admin_settings, producer_settings
from penstock.kafka.settings.producer import ColumnSettings
from penstock.model import ConnectorTaskId, State
from penstock.settings.topics import parse_topic_creation
from penstock.stores.offset_file import FileOffsetStore
from penstock.stores.offsets import OffsetReader, connector_offsets
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.source.offset_commit import wants_metadata
from penstock.worker.source.task import SourceServices, SourceTaskRunner
from penstock.worker.task.bounded_queue import BatchLimits
from penstock.worker.task.engine import TaskServices, TaskSession, TaskSpec

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAIT_S = 30.0


@dataclass
class Rig:
    """A runner against a broker."""

    servers: str
    store: FileOffsetStore
    task: ScriptedTask = field(default_factory=ScriptedTask)
    tolerance_all: bool = False
    topic_settings: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    propagation_s: float = 30.0
    limits: BatchLimits = field(default_factory=BatchLimits)

    def __post_init__(self) -> None:
        self.topic = f"source-{uuid.uuid4().hex[:8]}"
        worker = {"bootstrap.servers": self.servers}
        self.states: list[tuple[State, str | None]] = []
        self.changed = threading.Condition()
        admin_client = admin_settings(worker, client_id="source-test").checked()
        self.admin = TopicAdmin(admin_client.librdkafka, name="source-test")
        own = {f"producer.override.{name}": text for name, text in self.overrides.items()}
        client = ColumnSettings.of(producer_settings(worker, own, client_id="source-test"))
        self.producer = ColumnProducer(
            replace(client, propagation=self.propagation_s),
            name="c-0",
            connector="c",
            task=0,
            each_row=wants_metadata(self.task),
            stops_at_failure=not self.tolerance_all,
        )
        plan = plan_of(parse_topic_creation(self.topic_settings)) if self.topic_settings else None
        self.runner = SourceTaskRunner(
            TaskSpec(ConnectorTaskId("c", 0), self.task, {}, dict, self.limits, offset_flush_timeout_s=10.0),
            TaskServices(
                self.on_state,
                TaskSession("c-0"),
                ErrorHandler(
                    ErrorPolicy(tolerance_all=self.tolerance_all),
                    [],
                    counts=ErrorCounts(),
                    clock=lambda: 0,
                    random=random.Random(1).random,
                ),
                close=self.admin.close,
            ),
            SourceServices(
                pipeline=FakePipeline(),
                producer=self.producer,
                topics=TopicCreator("c-0", plan, self.admin),
                offset_reader=OffsetReader(self.store, "c"),
                committer=offset_committer(self.task, self.store, interval_s=0.05, timeout_s=10.0),
            ),
        )

    def on_state(self, state: State, trace: str | None) -> None:
        with self.changed:
            self.states.append((state, trace))
            self.changed.notify_all()

    def wait_state(self, wanted: State) -> str:
        with self.changed:
            assert self.changed.wait_for(lambda: any(state is wanted for state, _ in self.states), WAIT_S), self.states
            return next(trace or "" for state, trace in self.states if state is wanted)

    def record(self, position: int, value: str, *, source: str = "f") -> SourceRecord:
        return SourceRecord({"file": source}, {"position": position}, self.topic, value)

    def run(self, *polls: object) -> None:
        """Deliver these polls and stop."""
        self.task.give(*polls)
        self.runner.start()
        with self.task.available:
            assert self.task.available.wait_for(lambda: not self.task.polls, WAIT_S)
        self.runner.stop()
        assert self.runner.join(WAIT_S)

    def written(self, count: int) -> list[str]:
        return [value.decode() for value in read(self.servers, self.topic, count)]

    def committed(self) -> dict[object, object]:
        return {
            (partition or {}).get("file"): offset["position"]
            for partition, offset in connector_offsets(self.store, "c")
        }


def read(servers: str, topic: str, count: int | None) -> list[bytes]:
    """The values of a topic's only partition; fails when there are not exactly as many as expected."""
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True})
    values: list[bytes] = []
    try:
        consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"only {len(values)} of {count} records are in {topic}"
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                assert count in (None, len(values))
                return values
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileOffsetStore]:
    made = FileOffsetStore(tmp_path / "connect.offsets")
    made.start()
    yield made
    made.stop()


def test_records_arrive_in_order_and_their_offsets_are_in_the_file(
    broker: EmbeddedBroker, store: FileOffsetStore
) -> None:
    rig = Rig(broker.bootstrap_servers, store, limits=BatchLimits(max_records=1000))
    polls = [[rig.record(at + row, f"v{at + row}") for row in range(500)] for at in range(0, 20_000, 500)]
    rig.run(*polls)
    assert rig.written(20_000) == [f"v{row}" for row in range(20_000)]
    assert rig.committed() == {"f": 19_999}
    assert [state for state, _ in rig.states] == [State.RUNNING, State.UNASSIGNED]


def test_a_second_run_resumes_from_the_file(broker: EmbeddedBroker, store: FileOffsetStore, tmp_path: Path) -> None:
    first = Rig(broker.bootstrap_servers, store)
    first.run([first.record(1, "a"), first.record(2, "b")])
    store.stop()
    again = FileOffsetStore(tmp_path / "connect.offsets")
    again.start()
    try:
        assert OffsetReader(again, "c").offset({"file": "f"}) == {"position": 2}
    finally:
        again.stop()


def test_hooks_are_told_where_each_record_is(broker: EmbeddedBroker, store: FileOffsetStore) -> None:
    task = HookedTask()
    rig = Rig(broker.bootstrap_servers, store, task=task)
    rig.run([rig.record(1, "a"), rig.record(2, "drop"), rig.record(3, "b")])
    assert [entry for entry in task.told if entry[0] != "commit"] == [
        ("acknowledged", ("a", 0)),
        ("record", "a"),
        ("record", "drop"),
        ("acknowledged", ("b", 1)),
        ("record", "b"),
    ]


def test_topics_are_created_by_the_connectors_rules(broker: EmbeddedBroker, store: FileOffsetStore) -> None:
    rig = Rig(
        broker.bootstrap_servers,
        store,
        topic_settings={
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.groups": "mine",
            "topic.creation.mine.include": "source-.*",
            "topic.creation.mine.partitions": "3",
        },
    )
    admin = TopicAdmin(
        admin_settings({"bootstrap.servers": broker.bootstrap_servers}, client_id="look").checked().librdkafka,
        name="look",
    )
    rig.run([rig.record(1, "a")])
    assert admin.describe_topics([rig.topic])[rig.topic].partitions == 3
    admin.close()


@dataclass(frozen=True)
class Small:
    """A topic that takes small batches only."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    configs = {"max.message.bytes": "1000"}


def small_topic(rig: Rig) -> None:
    """Make the rig's topic refuse batches above 1,000 bytes: the broker says no, not the client."""
    rig.admin.create_topic(Small(rig.topic))


def test_a_record_the_broker_refuses_fails_the_task_behind_what_was_acknowledged(
    broker: EmbeddedBroker, store: FileOffsetStore
) -> None:
    rig = Rig(broker.bootstrap_servers, store, overrides={"linger.ms": "100"})
    small_topic(rig)
    rig.task.give([rig.record(1, "a")], [rig.record(2, "b" * 5000)], [rig.record(3, "c")])
    rig.runner.start()
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert "Unrecoverable exception from producer send callback" in trace
    assert "{'position': 2}" in trace
    assert rig.committed() == {"f": 1}
    # The record behind it may be there or not; its offset is not committed.
    assert b"a" in read(rig.servers, rig.topic, None)


def test_nothing_behind_a_record_that_is_too_large_for_the_client_is_sent_before_the_restart(
    broker: EmbeddedBroker, store: FileOffsetStore
) -> None:
    rig = Rig(broker.bootstrap_servers, store, overrides={"max.request.size": "2000"})
    large = [rig.record(1, "before"), rig.record(2, "x" * 5000), rig.record(3, "after")]
    rig.task.give(large, [rig.record(4, "later")])
    rig.runner.start()
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert "is 5000 bytes when serialized which is larger than the producer's max.request.size allows" in trace
    assert rig.written(1) == ["before"]
    assert rig.committed() == {"f": 1}

    again = Rig(broker.bootstrap_servers, store, tolerance_all=True, overrides={"max.request.size": "2000"})
    again.topic = rig.topic
    again.run(large[1:], [rig.record(4, "later")])
    assert again.written(3) == ["before", "after", "later"]
    assert again.committed() == {"f": 4}


def test_a_record_the_broker_refuses_is_skipped_when_errors_are_tolerated(
    broker: EmbeddedBroker, store: FileOffsetStore
) -> None:
    rig = Rig(
        broker.bootstrap_servers,
        store,
        tolerance_all=True,
        overrides={"linger.ms": "100"},
    )
    small_topic(rig)
    rig.run([rig.record(1, "a")], [rig.record(2, "b" * 5000)], [rig.record(3, "c")])
    assert sorted(rig.written(2)) == ["a", "c"]
    assert rig.committed() == {"f": 3}


def test_frames_are_written_and_committed(broker: EmbeddedBroker, store: FileOffsetStore) -> None:
    rig = Rig(broker.bootstrap_servers, store)
    values = [f"v{row}" for row in range(5000)]
    rig.run(SourceFrame(pa.table({"value": values}), rig.topic, None, {"file": "f"}, {"position": 77}))
    assert rig.written(5000) == values
    assert rig.committed() == {"f": 77}


def test_a_missing_topic_is_a_clear_error_and_no_endless_wait(tmp_path: Path, store: FileOffsetStore) -> None:
    with EmbeddedBroker(tmp_path / "kafka", properties={"auto.create.topics.enable": "false"}) as strict:
        rig = Rig(strict.bootstrap_servers, store, propagation_s=0.5)
        rig.task.give([rig.record(1, "a")])
        rig.runner.start()
        trace = rig.wait_state(State.FAILED)
        assert rig.runner.join(WAIT_S)
        assert f"cannot write to topic {rig.topic}: it does not exist and the broker does not create it" in trace
        assert rig.committed() == {}
