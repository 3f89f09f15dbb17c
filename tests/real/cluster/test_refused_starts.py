"""Workers whose topics or group are not what they need: refused or kept out, with words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from testkit.processes.worker_group import GroupWorker

from penstock.broker import EmbeddedBroker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def worker(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[GroupWorker]:
    made = GroupWorker(tmp_path / "worker", broker.bootstrap_servers, f"refused-{tmp_path.name}")
    yield made
    made.close()


def make_topic(servers: str, name: str, partitions: int, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(name, partitions, 1, config={"cleanup.policy": policy})])
    for future in made.values():
        future.result(30)


@pytest.mark.parametrize(
    ("kind", "partitions", "policy", "says"),
    [
        ("config", 2, "compact", ("config.storage.topic", "must have a single partition", "it has 2")),
        ("status", 2, "compact,delete", ("status.storage.topic", "cleanup.policy=compact", "kafka-configs --alter")),
    ],
)
def test_a_topic_that_would_lose_records_ends_the_start(
    worker: GroupWorker, kind: str, partitions: int, policy: str, says: tuple[str, ...]
) -> None:
    servers = worker.settings["bootstrap.servers"]
    make_topic(servers, worker.settings[f"{kind}.storage.topic"], partitions, policy)

    worker.start()

    assert worker.wait_ended() == 1
    (line,) = [line for line in worker.text().splitlines() if " ERROR " in line and "cannot start" in line]
    assert [text for text in says if text not in line] == []
    assert "Traceback" not in worker.text()


def test_more_replicas_than_there_are_brokers_end_the_start(worker: GroupWorker) -> None:
    worker.change({"offset.storage.replication.factor": "3"})

    worker.start()

    assert worker.wait_ended() == 1
    assert "Set offset.storage.replication.factor=1 or start more brokers" in worker.text()


def test_a_group_that_consumers_use_is_waited_for_and_joined_when_they_have_gone(worker: GroupWorker) -> None:
    servers, group = worker.settings["bootstrap.servers"], worker.settings["group.id"]
    make_topic(servers, f"{group}-read", 1, "delete")
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": "somebody"})
    consumer.subscribe([f"{group}-read"])
    while not consumer.assignment():
        consumer.poll(0.2)
    worker.start()

    def health() -> tuple[int, str]:
        consumer.poll(0)
        status, body = worker.ask("GET", "/health", timeout_s=10)
        return status, str(body["message"]) if isinstance(body, dict) else ""

    worker.wait(lambda: "Consumers and workers cannot share a group" in health()[1], "it says why", 90)
    assert health()[0] == 503
    assert group in health()[1]
    assert "set group.id" in health()[1]
    # It is no reason to end, and nothing is lost meanwhile.
    consumer.close()
    worker.wait(lambda: health_of(worker) == 200, "it is in", 90)


def health_of(worker: GroupWorker) -> int:
    return worker.ask("GET", "/health", timeout_s=10)[0]
