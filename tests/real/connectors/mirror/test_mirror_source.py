"""Topics of one real cluster in another, through a real worker."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from testkit.processes.worker_group import GroupWorker
from testkit.processes.worker_process import WorkerProcess

from penstock.api import TopicPartition
from penstock.broker import EmbeddedBroker
from penstock.clients import KafkaCluster

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow]

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The source cluster; the session's broker is the target."""
    with EmbeddedBroker(tmp_path_factory.mktemp("east")) as broker:
        yield broker


def settings(east: EmbeddedBroker, west: EmbeddedBroker, topics: str, **more: str) -> dict[str, str]:
    """A configuration of MirrorMaker 2's connector, as its users have it."""
    return {
        "name": f"mirror-{uuid.uuid4().hex[:8]}",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "east",
        "target.cluster.alias": "west",
        "source.cluster.bootstrap.servers": east.bootstrap_servers,
        "target.cluster.bootstrap.servers": west.bootstrap_servers,
        "topics": topics,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "tasks.max": "2",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "source.consumer.metadata.max.age.ms": "1000",
        "producer.override.metadata.max.age.ms": "1000",
        **{name.replace("__", "."): text for name, text in more.items()},
    }


def create_topic(broker: EmbeddedBroker, partitions: int = 3, **configs: str) -> str:
    name = f"orders_{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new = NewTopic(name, partitions, 1, config={one.replace("_", "."): text for one, text in configs.items()})
    admin.create_topics([new])[name].result(30)
    return name


def send(broker: EmbeddedBroker, topic: str, numbers: range, partitions: int = 3) -> None:
    """Records of all kinds: null keys and values, empty ones, any bytes, headers, old timestamps."""
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
    for number in numbers:
        chance = random.Random(number)
        key = chance.choice([None, b"", b"key %d" % number, chance.randbytes(9)])
        value = chance.choice([None, b"", b"value %d" % number, chance.randbytes(50), b"\xff\x00" * 20])
        headers: Any = chance.choice([None, [("n", b"%d" % number)], [("a", b""), ("a", None), ("\xe4", b"\xff")]])
        producer.produce(topic, value, key, number % partitions, timestamp=1_600_000_000_000 + number, headers=headers)
    assert producer.flush(30) == 0


Row = tuple[int, Any, Any, Any, Any]


def rows(broker: EmbeddedBroker, topic: str, count: int, *, timeout_s: float = 60.0) -> list[Row]:
    """The records of a topic, partition by partition, once there are so many that committed transactions hold."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    try:
        found: list[Row] = []
        places = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([ck.TopicPartition(topic, one, ck.OFFSET_BEGINNING) for one in places])
        left = set(places)
        deadline = itertools.count()
        while (left or len(found) < count) and next(deadline) < timeout_s / 0.2:
            for message in consumer.consume(1000, 0.2):
                error: Any = message.error()
                if error is not None:
                    assert error.code() == ck.KafkaError._PARTITION_EOF, error
                    left.discard(message.partition() or 0)
                    continue
                stamp: Any = message.timestamp()
                found.append((message.partition() or 0, message.key(), message.value(), message.headers(), stamp[1]))
        return sorted(found, key=lambda row: (row[0], row[4]))
    finally:
        consumer.close()


def create(worker: WorkerProcess, config: dict[str, str]) -> str:
    status, answer = worker.ask("PUT", f"/connectors/{config['name']}/config", config)
    assert status == 201, answer
    return config["name"]


def test_records_of_all_kinds_come_over_as_they_are(
    east: EmbeddedBroker, broker: EmbeddedBroker, shared_worker: WorkerProcess
) -> None:
    topic = create_topic(east, delete_retention_ms="7200000", flush_messages="1000", retention_ms="-1")
    send(east, topic, range(3000))
    config = settings(east, broker, topic)
    body = {"config": config, "limits": {"records": 3, "seconds": 60}}
    shown: tuple[int, Any] = shared_worker.ask("POST", "/connector-plugins/MirrorSource/preview", body, timeout_s=100)
    assert (shown[0], len(shown[1]["records"])) == (200, 3), shown
    assert not exists(broker, f"east.{topic}")

    name = create(shared_worker, config)
    try:
        shared_worker.wait(lambda: exists(broker, f"east.{topic}"), "the topic is made")
        assert rows(broker, f"east.{topic}", 3000) == rows(east, topic, 3000)

        # While it runs: partitions, records and settings.
        admin = AdminClient({"bootstrap.servers": east.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
        target = KafkaCluster({"bootstrap.servers": broker.bootstrap_servers}, name="west").admin()
        source = KafkaCluster({"bootstrap.servers": east.bootstrap_servers}, name="east").admin()
        source.alter_topic_settings(topic, {"delete.retention.ms": "3600000"}, ["flush.messages"])
        shared_worker.wait(lambda: target.topics()[f"east.{topic}"] == 5, "partitions are added")
        send(east, topic, range(3000, 4000), partitions=5)
        assert rows(broker, f"east.{topic}", 4000) == rows(east, topic, 4000)
        shared_worker.wait(
            lambda: settings_of(target, f"east.{topic}") == {"delete.retention.ms": "3600000"}, "settings are copied"
        )
    finally:
        shared_worker.ask("DELETE", f"/connectors/{name}")


def test_what_is_gone_on_the_source_is_told_and_reading_goes_on(
    east: EmbeddedBroker, broker: EmbeddedBroker, shared_worker: WorkerProcess
) -> None:
    topic = create_topic(east, 1, retention_ms="-1")
    send(east, topic, range(100), 1)
    name = create(shared_worker, settings(east, broker, topic))
    admin = AdminClient({"bootstrap.servers": east.bootstrap_servers})
    try:
        shared_worker.wait(lambda: exists(broker, f"east.{topic}"), "the topic is made")
        rows(broker, f"east.{topic}", 100)
        # Retention overtakes the reader while it is stopped.
        assert shared_worker.ask("PUT", f"/connectors/{name}/stop")[0] == 204
        send(east, topic, range(100, 200), 1)
        cut = ck.TopicPartition(topic, 0, 150)
        admin.delete_records([cut])[cut].result(30)
        assert shared_worker.ask("PUT", f"/connectors/{name}/resume")[0] == 202
        assert len(rows(broker, f"east.{topic}", 150)) == 150
        said = f"{topic}-0 has no records before offset 150 any more: 50 were deleted before they could be mirrored"
        assert said in shared_worker.text()

        # The topic is made again while it runs.
        admin.delete_topics([topic])[topic].result(30)
        shared_worker.wait(lambda: not exists(east, topic), "the topic is deleted")
        admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result(30)
        send(east, topic, range(5), 1)
        assert len(rows(broker, f"east.{topic}", 155)) == 155
    finally:
        shared_worker.ask("DELETE", f"/connectors/{name}")


def test_a_source_that_is_away_is_seen_and_one_that_refuses_is_named(
    broker: EmbeddedBroker, shared_worker: WorkerProcess, free_port: int
) -> None:
    config = settings(broker, broker, "nothing", source__cluster__bootstrap__servers=f"127.0.0.1:{free_port}")
    name = create(shared_worker, config)
    try:

        def explained() -> str:
            return json.dumps(shared_worker.get(f"/connectors/{name}/explain")[1])

        shared_worker.wait(lambda: "source_retry" in explained(), "a task tries again", timeout_s=30)
        assert f"127.0.0.1:{free_port}" in explained()
        assert "source_retry" in json.dumps(shared_worker.get("/health")[1])
    finally:
        shared_worker.ask("DELETE", f"/connectors/{name}")
    status, answer = shared_worker.ask(
        "PUT", f"/connectors/{name}/config", {**config, "source.cluster.sasl.mechanism": "NOPE", "topics": "("}
    )
    assert status == 400
    assert "topics: Invalid" in json.dumps(answer) or "Invalid regex" in json.dumps(answer)


def test_a_group_goes_on_on_the_target_where_it_was_on_the_source(
    east: EmbeddedBroker, broker: EmbeddedBroker, shared_worker: WorkerProcess
) -> None:
    topic = create_topic(east, retention_ms="-1")
    send(east, topic, range(900))
    source = KafkaCluster({"bootstrap.servers": east.bootstrap_servers}, name="east").admin()
    target = KafkaCluster({"bootstrap.servers": broker.bootstrap_servers}, name="west").admin()
    group = f"readers-{topic}"
    # At the end of one partition, in the middle of the next, at the beginning of the third.
    source.alter_group_offsets(
        group, {TopicPartition(topic, number): at for number, at in ((0, 300), (1, 150), (2, 0))}
    )
    common = settings(east, broker, topic)
    kinds = {
        "Source": {"offset.lag.max": "10"},
        "Checkpoint": {
            "groups": group,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "checkpoints.topic.replication.factor": "1",
        },
        "Heartbeat": {"heartbeats.topic.replication.factor": "1"},
    }
    names = [
        create(
            shared_worker,
            {
                **common,
                "name": f"{common['name']}-{kind}",
                "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
                **more,
            },
        )
        for kind, more in kinds.items()
    ]
    try:
        there = [TopicPartition(f"east.{topic}", number) for number in range(3)]

        def offsets() -> list[int]:
            found = target.group_offsets(group, [f"east.{topic}"])
            return [found[place].offset if place in found else -1 for place in there]

        shared_worker.wait(
            lambda: offsets()[0] == 300 and offsets()[1] >= 139 and offsets()[2] == 0, "the group's offsets are set"
        )
        assert offsets()[1] <= 150, "no further than the group"
        # Other tests may have written heartbeats of theirs.
        shared_worker.wait(
            lambda: b"\x00\x04east\x00\x04west" in {row[1] for row in rows(broker, "heartbeats", 1)}, "a heartbeat"
        )
        assert rows(broker, "east.checkpoints.internal", 3)
    finally:
        for name in names:
            shared_worker.ask("DELETE", f"/connectors/{name}")


def test_a_worker_that_is_killed_mirrors_each_record_once(
    east: EmbeddedBroker, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = create_topic(east, retention_ms="-1")
    send(east, topic, range(3000))
    group = uuid.uuid4().hex[:8]
    worker = GroupWorker(tmp_path, broker.bootstrap_servers, group, {"exactly.once.source.support": "enabled"})
    try:
        worker.start()
        worker.wait(lambda: worker.get("/connectors") == (200, []), "it answers", timeout_s=120)
        create(worker, settings(east, broker, topic, exactly__once__support="required"))
        worker.wait(lambda: exists(broker, f"east.{topic}"), "the topic is made")
        for number in range(2):
            least = number * 3000 + 1
            assert len(rows(broker, f"east.{topic}", least, timeout_s=120)) >= least
            send(east, topic, range(3000 * (number + 1), 3000 * (number + 2)))
            worker.kill()
            worker.start()
        assert rows(broker, f"east.{topic}", 9000, timeout_s=120) == rows(east, topic, 9000)
    finally:
        worker.close()


def exists(broker: EmbeddedBroker, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics


def settings_of(admin: Any, topic: str) -> dict[str, str | None]:
    wanted = ("delete.retention.ms", "flush.messages")
    found = admin.topic_settings([topic])[topic]
    return {name: found[name].value for name in wanted if not found[name].is_default}
