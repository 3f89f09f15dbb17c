"""A cluster inside of the Kafka client: librdkafka's own double, without Java."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
import pytest

from penstock.clients import KafkaCluster


class MockCluster:
    """Three brokers, and what they were sent."""

    def __init__(self) -> None:
        self.producer = ck.Producer({"test.mock.num.brokers": 3, "linger.ms": 1})
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.bootstrap_servers = ",".join(f"{one.host}:{one.port}" for one in brokers)

    def send(self, topic: str, partition: int, *values: bytes | None, key: bytes | None = b"k") -> None:
        for number, value in enumerate(values):
            headers: Any = [("n", b"%d" % number), ("null", None)] if number % 2 else None
            self.producer.produce(topic, value, key, partition, headers=headers, timestamp=1000 + number)
        assert self.producer.flush(10) == 0

    def cluster(self, **settings: str) -> KafkaCluster:
        named = {name.replace("_", "."): text for name, text in settings.items()}
        return KafkaCluster({"bootstrap.servers": self.bootstrap_servers, **named}, name="the cluster east")


@pytest.fixture(scope="module")
def mock_cluster() -> MockCluster:
    return MockCluster()
