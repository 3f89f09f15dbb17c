"""The stores of a cluster on a real broker: workers that see each other, compaction, a broker that is killed."""

import threading
from collections.abc import Iterator, Sequence

import confluent_kafka as ck
import pytest
from testkit.brokers.log_lab import LogLab
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker
from penstock.errors import KafkaException, OffsetStoreException, ProducerFencedException
from penstock.kafka.topic_log.internal_topics import Kind, connector_offset_log
from penstock.kafka.topic_log.log import TopicLog
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TargetState, TaskStatus
from penstock.model.cluster_config import (
    Change,
    ClusterConfig,
    TasksCommitted,
    connector_entries,
    deletion_entries,
    target_entries,
    task_entries,
)
from penstock.stores.config import ConfigTopicStore
from penstock.stores.offsets import MergedOffsetStore, OffsetTopicStore
from penstock.stores.status import StatusTopicStore

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CONFIG = {"name": "c", "connector.class": "FileStreamSource", "topic": "t"}
TASK = {**CONFIG, "task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}
KEY = b'["c",{"filename":"/data/in.txt"}]'


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that compacts soon, and that may be killed."""
    properties = {"log.cleaner.backoff.ms": "200", "log.cleaner.threads": "2"}
    with EmbeddedBroker(tmp_path_factory.mktemp("own"), properties=properties) as node:
        yield node


@pytest.fixture
def lab(broker: EmbeddedBroker) -> Iterator[LogLab]:
    with LogLab(broker.bootstrap_servers) as lab:
        yield lab


@pytest.fixture
def fragile(own_broker: EmbeddedBroker) -> Iterator[LogLab]:
    with LogLab(own_broker.bootstrap_servers) as lab:
        yield lab


class Listener:
    def __init__(self) -> None:
        self.changes: list[Change] = []

    def __call__(self, config: ClusterConfig, changes: Sequence[Change]) -> None:
        self.changes += changes


def configs(lab: LogLab, listener: Listener | None = None, *, transactional: bool = False) -> ConfigTopicStore:
    log = lab.log(Kind.CONFIG, transactional=transactional)
    store = ConfigTopicStore(log, transactional=transactional)
    store.start(listener or Listener())
    return store


def offsets(lab: LogLab) -> OffsetTopicStore:
    log = lab.log(Kind.OFFSET)
    store = OffsetTopicStore(log, log.topic)
    store.start()
    return store


def statuses(lab: LogLab) -> StatusTopicStore:
    store = StatusTopicStore(lab.log(Kind.STATUS))
    store.start()
    return store


@pytest.mark.parametrize("transactional", [False, True])
def test_workers_agree_on_what_is_configured(lab: LogLab, transactional: bool) -> None:
    told = Listener()
    leader, follower = configs(lab, transactional=transactional), configs(lab, told, transactional=transactional)
    leader.claim()
    leader.write(connector_entries("c", CONFIG, TargetState.PAUSED), leading=True)
    follower.write(target_entries("c", TargetState.STARTED))
    after = leader.write(task_entries("c", [TASK, TASK]), leading=True)

    assert after.connectors["c"].tasks == (TASK, TASK)
    assert after.target("c") is TargetState.STARTED
    assert follower.refresh(20).connectors == after.connectors
    assert TasksCommitted("c") in told.changes
    # A worker that starts now knows the same.
    assert configs(lab, transactional=transactional).snapshot.connectors == after.connectors
    gone = leader.write(deletion_entries("c", leader.snapshot), leading=True)
    assert gone.connectors == {}
    assert configs(lab, transactional=transactional).snapshot.recorded == {}


def test_a_leader_that_was_replaced_writes_nothing_more(lab: LogLab) -> None:
    old, new = configs(lab, transactional=True), configs(lab, transactional=True)
    old.claim()
    old.write(connector_entries("c", CONFIG), leading=True)
    new.claim()

    with pytest.raises(ProducerFencedException):
        old.write(task_entries("c", [{**TASK, "from": "the old leader"}]), leading=True)
    new.write(task_entries("c", [TASK]), leading=True)

    assert new.snapshot.connectors["c"].tasks == (TASK,)
    assert old.refresh(20).connectors["c"].tasks == (TASK,)


def test_after_a_real_compaction_no_task_is_without_a_configuration(fragile: LogLab) -> None:
    fragile.worker |= {
        "config.storage.min.cleanable.dirty.ratio": "0.001",
        "config.storage.segment.ms": "100",
        "config.storage.delete.retention.ms": "0",
    }
    store = configs(fragile)
    store.write(connector_entries("c", CONFIG))
    store.write(task_entries("c", [TASK]))
    store.write(connector_entries("c", {**CONFIG, "topic": "u"}))
    store.write(connector_entries("gone", CONFIG))
    store.write(task_entries("gone", [TASK]))
    # As Java deletes: the records of tasks stay.
    store.write([("connector-gone", None), ("target-state-gone", None)])

    def compacted() -> bool:
        # Only what lies in front of the newest records is compacted.
        store.write(target_entries("c", TargetState.STARTED))
        keys = keys_of(fragile, fragile.topic(Kind.CONFIG))
        return keys.count("connector-c") == 1 and "connector-gone" not in keys

    await_true(compacted, lambda: keys_of(fragile, fragile.topic(Kind.CONFIG)), timeout_s=90)
    keys = keys_of(fragile, fragile.topic(Kind.CONFIG))
    assert keys.index("commit-c") < keys.index("connector-c")
    assert "task-gone-0" in keys
    fresh = configs(fragile)

    assert fresh.snapshot.connectors.keys() == {"c"}
    assert fresh.snapshot.connectors["c"].tasks == ()
    assert fresh.write(connector_entries("gone", CONFIG)).connectors["gone"].tasks == ()
    assert fresh.write(task_entries("c", [TASK])).connectors["c"].tasks == (TASK,)
    assert configs(fragile).snapshot.connectors["c"].tasks == (TASK,)


def keys_of(lab: LogLab, topic: str) -> list[str]:
    """The keys of the records that a topic still has."""
    consumer = ck.Consumer(
        {"bootstrap.servers": lab.worker["bootstrap.servers"], "group.id": "keys", "enable.partition.eof": True}
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    keys = []
    try:
        while (message := consumer.poll(20)) is not None and message.error() is None:
            keys.append((message.key() or b"").decode())
    finally:
        consumer.close()
    return keys


def test_configurations_and_offsets_survive_a_broker_that_is_killed_under_writes(
    own_broker: EmbeddedBroker, fragile: LogLab
) -> None:
    config, offset = configs(fragile), offsets(fragile)
    config.write(connector_entries("c", CONFIG))
    answered: dict[str, int] = {}
    ending = threading.Event()

    def write() -> None:
        number = 0
        while not ending.is_set():
            number += 1
            try:
                config.write(
                    task_entries("c", [{**TASK, "n": str(number), "i": str(i)} for i in range(3)]), timeout_s=60
                )
                answered["config"] = number
                offset.set({KEY: b'{"position":%d}' % number}, 60)
                answered["offset"] = number
            except (KafkaException, OffsetStoreException):
                continue

    writer = threading.Thread(target=write)
    writer.start()
    await_true(lambda: answered.get("offset", 0) > 20)
    own_broker.kill()
    own_broker.start()
    before = answered["offset"]
    await_true(lambda: answered["offset"] > before + 20)
    ending.set()
    writer.join(120)

    fresh = configs(fragile).snapshot.connectors["c"]
    assert not fresh.inconsistent
    # One whole set, at least as new as the last one that was answered.
    assert [task["i"] for task in fresh.tasks] == ["0", "1", "2"]
    assert {int(task["n"] or 0) >= answered["config"] for task in fresh.tasks} == {True}
    assert len({task["n"] for task in fresh.tasks}) == 1
    found = offsets(fragile).get([KEY], 60)[KEY]
    assert found is not None
    assert int(found.partition(b":")[2].rstrip(b"}")) >= answered["offset"]


def test_what_one_worker_says_of_states_all_come_to_know(lab: LogLab) -> None:
    here, there = statuses(lab), statuses(lab)
    changed: list[str] = []
    there.listen(changed.append)
    task = ConnectorTaskId("c", 0)

    here.put(ConnectorStatus("c", State.RUNNING, "here:1", None, "7", 1))
    here.put(TaskStatus(task, State.FAILED, "here:1", "KeyError: 'é'\n\tat x", "7", 1), safe=True)
    for _ in range(5):
        here.note_topics("c", ["t1", "t2"], 0)
    await_true(lambda: there.topics("c") == ["t1", "t2"] and bool(there.tasks("c")))

    assert there.connector("c") == ConnectorStatus("c", State.RUNNING, "here:1", None, "7", 1)
    assert there.tasks("c")[0].trace == "KeyError: 'é'\n\tat x"
    assert set(changed) == {"c"}
    late = statuses(lab)
    assert late.names() == {"c"}
    late.note_topics("c", ["t1"], 0)
    late.forget(task)
    late.forget("c")
    late.reset_topics("c")
    await_true(lambda: here.names() == set() and here.topics("c") == [])
    assert statuses(lab).names() == set()


def test_states_that_were_said_while_the_broker_was_away_are_written(
    own_broker: EmbeddedBroker, fragile: LogLab
) -> None:
    store, other = statuses(fragile), statuses(fragile)
    own_broker.kill()
    try:
        for state in (State.RUNNING, State.FAILED, State.RESTARTING, State.RUNNING):
            store.put(TaskStatus(ConnectorTaskId("c", 0), state, "here:1", generation=1))
        store.note_topics("c", ["t"], 0)
    finally:
        own_broker.start()

    await_true(lambda: [one.state for one in other.tasks("c")] == [State.RUNNING] and other.topics("c") == ["t"])


def test_an_offset_that_was_removed_does_not_come_back(lab: LogLab) -> None:
    here = offsets(lab)
    here.set({KEY: b'{"position":10}', b'["d",{}]': b"{}"})

    offsets(lab).set({KEY: None})

    assert here.get([KEY]) == {KEY: None}
    assert offsets(lab).entries() == {b'["d",{}]': b"{}"}


def test_offsets_of_a_task_that_moves_are_read_by_the_next_worker(lab: LogLab) -> None:
    here, there = offsets(lab), offsets(lab)

    for number in range(100):
        (here, there)[number % 2].set({KEY: b'{"position":%d}' % number})
        assert (there, here)[number % 2].get([KEY]) == {KEY: b'{"position":%d}' % number}


def test_a_connectors_own_topic_over_that_of_all(lab: LogLab) -> None:
    shared = offsets(lab)
    shared.set({KEY: b'{"position":1}', b'["c",{"filename":"/old"}]': b'{"position":7}'})
    own_topic = f"{lab.group}-own"
    lab.worker["offset.storage.topic"], before = own_topic, lab.worker["offset.storage.topic"]
    lab.topic(Kind.OFFSET)
    lab.worker["offset.storage.topic"] = before
    settings = connector_offset_log(lab.worker, {}, "c", 0, transactional=False)
    store = MergedOffsetStore(OffsetTopicStore(TopicLog(own_topic, settings, lab.admin), own_topic), shared)
    store.start()
    try:
        store.set({KEY: b'{"position":2}'}, 20)
        assert store.get([KEY]) == {KEY: b'{"position":2}'}
        await_true(lambda: shared.get([KEY]) == {KEY: b'{"position":2}'})
        assert store.entries().keys() == {KEY, b'["c",{"filename":"/old"}]'}
        store.set({KEY: None}, 20)
        assert store.get([KEY]) == {KEY: None}
        assert shared.get([KEY]) == {KEY: None}
    finally:
        store.stop()
