"""Changes of a sink's offsets over REST, with and without a member in its group."""

from __future__ import annotations

import uuid
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
)
from testkit.brokers.group_member import group_member
from testkit.processes.worker_process import WorkerProcess

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.broker import EmbeddedBroker
from penstock.kafka.admin import TopicAdmin

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


def entry(topic: str, partition: int, offset: int | None) -> dict[str, object]:
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": partition},
        "offset": None if offset is None else {"kafka_offset": offset},
    }


def test_only_what_is_named_changes_and_nothing_while_a_member_lives(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = f"moved-{uuid.uuid4().hex[:8]}"
    name = f"sink-{topic}"
    admin = TopicAdmin({"bootstrap.servers": broker.bootstrap_servers}, name="test", timeout_s=20)
    settings = {"connector.class": "FileStreamSink", "topics": topic, "file": str(tmp_path / "out")}
    offsets = f"/connectors/{name}/offsets"
    try:
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(topic, b"a")
        assert producer.flush(20) == 0
        body = {"name": name, "config": settings, "initial_state": "STOPPED"}
        assert shared_worker.ask("POST", "/connectors", body)[0] == 201
        with group_member(broker.bootstrap_servers, f"connect-{name}", topic) as consumer:
            # Nothing is committed yet.
            status, answer = shared_worker.ask("PATCH", offsets, {"offsets": [entry(topic, 0, None)]})
            assert (status, "safely retried" in str(answer)) == (409, True)
            consumer.commit(offsets=[ck.TopicPartition(topic, 0, 1, "a note")], asynchronous=False)
            for change in ([entry(topic, 0, 0)], [entry(topic, 0, None)]):
                status, answer = shared_worker.ask("PATCH", offsets, {"offsets": change})
                assert (status, "safely retried" in str(answer)) == (409, True)
            assert shared_worker.ask("DELETE", offsets)[0] == 409
        kept = {TopicPartition(topic, 0): OffsetAndMetadata(1, "a note")}
        assert admin.group_offsets(f"connect-{name}") == kept
        assert shared_worker.ask("PATCH", offsets, {"offsets": [entry(topic, 0, None)]})[0] == 200
        assert admin.group_offsets(f"connect-{name}") == {}
        # There is none any more, which is what was asked for.
        assert shared_worker.ask("PATCH", offsets, {"offsets": [entry(topic, 0, None)]})[0] == 200
        assert shared_worker.ask("PATCH", offsets, {"offsets": [entry(topic, 0, 1)]})[0] == 200
        assert shared_worker.ask("DELETE", offsets)[0] == 200
        assert admin.group_offsets(f"connect-{name}") == {}
    finally:
        shared_worker.ask("DELETE", f"/connectors/{name}")
        admin.close()


def test_offsets_of_a_sink_can_be_changed_as_soon_as_it_is_stopped(
    shared_worker: WorkerProcess, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = f"halted-{uuid.uuid4().hex[:8]}"
    name = f"sink of {topic}"
    out = tmp_path / "out"
    settings = {"connector.class": "FileStreamSink", "topics": topic, "file": str(out), "tasks.max": "2"}
    path = f"/connectors/{name.replace(' ', '%20')}"
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in (0, 1):
        producer.produce(topic, b"a", partition=partition)
    assert producer.flush(20) == 0
    try:
        body = {"name": name, "config": settings}
        assert shared_worker.ask("POST", "/connectors", body)[0] == 201
        shared_worker.wait(lambda: out.exists() and out.read_text().count("\n") == 2, "both records arrive")
        group = client.describe_consumer_groups([f"connect-{name}"])[f"connect-{name}"].result(20)
        assert len({one.group_instance_id for one in group.members} - {None, ""}) == 2, "static members"
        assert shared_worker.ask("PUT", f"{path}/stop")[0] == 204
        shared_worker.wait(lambda: shared_worker.get(f"{path}/tasks")[1] == [], "its tasks have gone")
        assert shared_worker.ask("PATCH", f"{path}/offsets", {"offsets": [entry(topic, 0, None)]})[0] == 200
        assert shared_worker.get(f"{path}/offsets")[1] == {"offsets": [entry(topic, 1, 1)]}
        assert shared_worker.ask("DELETE", f"{path}/offsets")[0] == 200
    finally:
        shared_worker.ask("DELETE", path)
