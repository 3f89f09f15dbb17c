"""What the clients of internal topics are made with: the table of section 6 of the configuration reference."""

import pytest

from penstock.errors import ConfigException
from penstock.kafka.protocol import BrokerEndpoint
from penstock.kafka.topic_log.internal_topics import (
    config_log,
    connector_offset_log,
    offset_log,
    shared_admin,
    status_log,
)

ALL = -1
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WORKER = {
    "bootstrap.servers": "kafka:9092",
    "group.id": "team",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{PLAIN} required username="u" password="secret";',
    "session.timeout.ms": "10000",
    "heartbeat.interval.ms": "3000",
    "consumer.fetch.max.wait.ms": "99",
}


def test_clients_are_called_by_group_and_purpose() -> None:
    logs = config_log(WORKER, transactional=True), offset_log(WORKER, transactional=False), status_log(WORKER)

    assert [log.name for log in logs] == ["team-configs", "team-offsets", "team-statuses"]
    assert [log.reader["client.id"] for log in logs] == ["team-configs", "team-offsets", "team-statuses"]
    assert [log.writer.client_id for log in logs] == ["team-configs", "team-offsets", "team-statuses"]
    assert logs[0].leader is not None
    assert logs[0].leader.client_id == "team-configs-leader"
    assert shared_admin(WORKER).client_id == "team-shared-admin"
    assert status_log({**WORKER, "client.id": "w1"}).name == "team-w1-statuses"
    assert shared_admin({"bootstrap.servers": "kafka:9092"}).client_id == "connect-shared-admin"


def test_the_workers_settings_without_a_prefix_apply_to_all_of_its_clients() -> None:
    log = config_log(WORKER, transactional=True)

    assert log.leader is not None
    for client in (log.reader, shared_admin(WORKER).librdkafka):
        assert client["security.protocol"] == "sasl_plaintext"
        assert client["sasl.password"] == "secret"
    for producer in (log.writer, log.leader):
        assert producer.sasl is not None
        assert (producer.tls, producer.sasl.password) == (None, "secret")
        assert producer.bootstrap == (BrokerEndpoint("kafka", 9092),)
    assert log.reader["fetch.wait.max.ms"] == 50
    assert log.reader["group.id"] == "team"
    # Those of the group's member are none of this consumer's.
    assert "session.timeout.ms" not in log.reader
    for shown in (repr(log), repr(log.writer), repr(log.leader)):
        assert "secret" not in shown


def test_writers_keep_order_and_javas_partitions_whatever_the_worker_says() -> None:
    own = {"acks": "0", "enable.idempotence": "true", "max.in.flight.requests.per.connection": "9"}
    worker = {**WORKER, **own, "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}

    for log in (config_log(worker, transactional=True), offset_log(worker, transactional=True), status_log(worker)):
        assert log.writer.acks == ALL
        assert not log.writer.idempotent
        assert log.writer.requests == 1
        assert log.writer.partitioner == ""
        assert log.writer.delivery_timeout == 30
        assert log.writer.transactional_id is None
    assert status_log(worker).writer.retries == 0
    assert offset_log(worker, transactional=True).writer.retries > 1000


def test_the_leader_has_the_transactional_id_of_the_group_and_no_other() -> None:
    worker = {**WORKER, "transactional.id": "mine", "enable.idempotence": "false", "partitioner.ignore.keys": "true"}
    log = config_log(worker, transactional=True)

    assert log.leader is not None
    assert log.leader.transactional_id == "connect-cluster-team"
    assert log.leader.idempotent
    assert (log.leader.acks, log.leader.partitioner) == (ALL, "")
    assert log.writer.transactional_id is None
    assert config_log(worker, transactional=False).leader is None


@pytest.mark.parametrize("transactional", [True, False])
def test_only_what_was_committed_is_read_where_transactions_are_written(transactional: bool) -> None:
    worker = {**WORKER, "isolation.level": "read_uncommitted", "auto.offset.reset": "latest"}
    expected = "read_committed" if transactional else "read_uncommitted"

    for make in (config_log, offset_log):
        log = make(worker, transactional=transactional)
        assert log.reader["isolation.level"] == expected
        assert log.committed_only is transactional
        # An offset may be behind what another task has not committed yet.
        assert log.waits is (make is offset_log)
        assert log.reader["auto.offset.reset"] == "earliest"
        assert log.reader["allow.auto.create.topics"] is False
    # A short wait costs requests: only where it is needed.
    assert ("fetch.wait.max.ms" in offset_log(WORKER, transactional=transactional).reader) is transactional


def test_a_connectors_own_offsets_topic_has_the_settings_of_its_clients() -> None:
    config = {
        "producer.override.bootstrap.servers": "other:9092",
        "consumer.override.bootstrap.servers": "other:9092",
        "producer.override.transactional.id": "mine",
        "producer.override.acks": "1",
        "producer.override.max.request.size": "5000",
    }
    log = connector_offset_log(WORKER, config, "orders", 2, transactional=True)

    assert log.reader["client.id"] == "connector-consumer-orders-2"
    assert log.reader["group.id"] == "connect-orders"
    assert log.reader["bootstrap.servers"] == "other:9092"
    assert log.writer.bootstrap == (BrokerEndpoint("other", 9092),)
    assert log.reader["isolation.level"] == "read_committed"
    assert log.reader["fetch.wait.max.ms"] == 99
    assert log.writer.client_id == "connector-offset-producer-orders-2"
    assert (log.writer.acks, log.writer.idempotent, log.writer.requests) == (ALL, False, 1)
    assert log.writer.request_size == 5000
    assert log.writer.transactional_id is None
    assert connector_offset_log(WORKER, {}, "orders", transactional=False).name == "connector-offsets-orders"
    uncommitted = {"consumer.override.isolation.level": "read_uncommitted"}
    for transactional, level in ((True, "read_committed"), (False, "read_uncommitted")):
        own = connector_offset_log(WORKER, uncommitted, "orders", transactional=transactional)
        assert (own.reader["isolation.level"], own.committed_only, own.waits) == (level, transactional, True)
    assert connector_offset_log(WORKER, {}, "orders", transactional=True, read_only=True).read_only


def test_the_offsets_of_a_connector_are_read_where_its_producers_write_them() -> None:
    config = {"producer.override.bootstrap.servers": "other:9092"}
    assert (
        connector_offset_log(WORKER, config, "orders", transactional=True).reader["bootstrap.servers"] == "other:9092"
    )
    named = {**config, "consumer.override.bootstrap.servers": "inside:9093"}
    assert (
        connector_offset_log(WORKER, named, "orders", transactional=True).reader["bootstrap.servers"] == "inside:9093"
    )


def test_a_setting_that_cannot_be_used_is_refused_with_its_name() -> None:
    worker = {**WORKER, "interceptor.classes": "com.example.Interceptor"}

    with pytest.raises(ConfigException) as raised:
        config_log(worker, transactional=False)

    assert raised.value.name == "interceptor.classes"
