"""Clients of a cluster by the names of Kafka's Java clients."""

from __future__ import annotations

import uuid

import pytest
from tests.unit.clients.conftest import MockCluster

from penstock.api import TopicPartition
from penstock.clients import KafkaCluster
from penstock.errors import ConfigException, KafkaException, KafkaRetriableException
from penstock.kafka.settings.table import ClientKind

SASL = {
    "bootstrap.servers": "b:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";',
}


def test_settings_of_all_clients_are_translated_for_each() -> None:
    cluster = KafkaCluster({**SASL, "max.poll.records": "5", "linger.ms": "5", "fetch.min.bytes": "7"}, name="east")
    assert cluster.faults() == []
    made = cluster._made(ClientKind.CONSUMER, {"isolation.level": "read_committed"})
    assert (made["sasl.username"], made["sasl.mechanism"], made["fetch.min.bytes"]) == ("u", "SCRAM-SHA-512", 7)
    assert made["isolation.level"] == "read_committed"
    admin = cluster._made(ClientKind.ADMIN, {})
    assert admin["sasl.password"] == "p"
    assert "fetch.min.bytes" not in admin


def test_what_no_client_can_have_is_named() -> None:
    found = dict(
        KafkaCluster(
            {"security.protocol": "NOPE", "plugin.library.paths": "/x", "ssl.truststore.location": "/no/such"},
            name="east",
        ).faults(consumer={"isolation.level": "some"})
    )
    assert found["bootstrap.servers"] == "east has no bootstrap.servers: name its brokers, as host:port"
    assert {"security.protocol", "plugin.library.paths", "isolation.level"} <= found.keys()
    with pytest.raises(ConfigException, match=r"a connector may not set plugin\.library\.paths"):
        KafkaCluster({"bootstrap.servers": "b:1", "plugin.library.paths": "/x"}, name="east").reader()
    with pytest.raises(ConfigException, match=r"isolation\.level"):
        KafkaCluster({"bootstrap.servers": "b:1"}, name="east").reader({"isolation.level": "some"})


def test_names_that_some_client_has_are_known() -> None:
    assert KafkaCluster.knows("sasl.jaas.config")
    assert KafkaCluster.knows("queued.min.messages")
    assert not KafkaCluster.knows("sasl.jass.config")


def test_records_are_written_in_order(mock_cluster: MockCluster) -> None:
    topic = f"w-{uuid.uuid4().hex[:8]}"
    writer = mock_cluster.cluster().writer({"batch.size": "1", "compression.type": "lz4"})
    for number in range(20):
        writer.send(topic, b"k", b"%d" % number, partition=1)
    assert writer.flush(20)
    assert writer.trouble is None
    reader = mock_cluster.cluster().reader()
    reader.assign({TopicPartition(topic, 1): 0})
    values: list[object] = []
    for _ in range(100):
        values += [value for one in reader.fetch(0.1) for value in one.table.column("value").to_pylist()]
        if len(values) == 20:
            break
    assert values == [b"%d" % number for number in range(20)]
    reader.close()
    writer.close()


def test_a_writer_without_brokers_says_why(free_port: int) -> None:
    writer = KafkaCluster(
        {"bootstrap.servers": f"127.0.0.1:{free_port}", "delivery.timeout.ms": "1000"}, name="west"
    ).writer()
    writer.send("t", None, b"v")
    assert not writer.flush(0.5)
    assert writer.trouble is not None
    assert "refused" in writer.trouble
    writer.close()


def test_topics_are_counted(mock_cluster: MockCluster) -> None:
    topic = f"a-{uuid.uuid4().hex[:8]}"
    mock_cluster.send(topic, 0, b"v")
    admin = mock_cluster.cluster().admin(timeout_s=10)
    assert admin.topics()[topic] == 4
    assert admin.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}
    assert admin.describe([]) == {}
    assert admin.topic_settings([]) == {}
    admin.close()
    with pytest.raises(KafkaException, match="is closed"):
        admin.topics()


def test_a_cluster_that_is_away_is_named_with_the_cause(free_port: int) -> None:
    admin = KafkaCluster({"bootstrap.servers": f"127.0.0.1:{free_port}"}, name="west").admin(timeout_s=0.5)
    with pytest.raises(KafkaRetriableException, match=f"west: .*127.0.0.1:{free_port}"):
        admin.topics()
    admin.close()
