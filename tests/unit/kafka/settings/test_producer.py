"""What the producer of columns is made with, out of Java's settings."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigException
from penstock.kafka.protocol import BrokerEndpoint
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

WORKER = {"bootstrap.servers": "one:9092, [::1]:9093, SSL://two.example:9094"}


def taken(**own: str) -> ColumnSettings:
    worker = WORKER | {f"producer.{name.replace('_', '.')}": value for name, value in own.items()}
    return ColumnSettings.of(producer_settings(worker, {}, client_id="c"))


def test_the_workers_own_settings_are_taken() -> None:
    found = taken()
    assert found.bootstrap == (
        BrokerEndpoint("one", 9092),
        BrokerEndpoint("::1", 9093),
        BrokerEndpoint("two.example", 9094),
    )
    assert found.client_id == "c"
    assert found.buffer == 32 << 20
    assert found.request_size == 1 << 20
    assert found.delivery_timeout == (2**31 - 1) / 1000
    assert found.compression.code == 0
    assert (found.batch_size, found.stick) == (1_000_000, 16_384)
    assert (found.acks, found.idempotent, found.requests, found.retries) == (-1, True, 5, 2**31 - 1)
    assert (found.idle, found.rebootstrap, found.canonical_names) == (540.0, True, False)
    assert (found.tls, found.sasl, found.transactional_id) == (None, None, None)


def test_what_users_often_set_is_taken() -> None:
    found = taken(batch_size="262144", linger_ms="5", buffer_memory="1048576", compression_type="lz4", acks="all")
    assert (found.batch_size, found.stick, found.buffer, found.compression.code) == (262144, 262144, 1 << 20, 3)
    assert taken(partitioner_ignore_keys="true").partitioner == "keyless"
    round_robin = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    assert taken(partitioner_class=round_robin, partitioner_ignore_keys="true").partitioner == "round robin"


def test_what_a_client_library_was_needed_for_is_taken() -> None:
    found = taken(
        acks="1",
        connections_max_idle_ms="-1",
        send_buffer_bytes="4096",
        receive_buffer_bytes="-1",
        client_dns_lookup="resolve_canonical_bootstrap_servers_only",
        metadata_recovery_strategy="NONE",
        security_protocol="SSL",
        ssl_enabled_protocols="TLSv1.3",
    )
    assert (found.acks, found.idempotent, found.requests) == (1, False, 1)
    assert (found.idle, found.send_buffer, found.receive_buffer) == (0.0, 4096, 0)
    assert (found.canonical_names, found.rebootstrap) == (True, False)
    assert found.tls is not None
    assert found.tls.versions == ("TLSv1.3",)
    assert taken(enable_idempotence="false", max_in_flight_requests_per_connection="3").requests == 3


@pytest.mark.parametrize(
    ("own", "name", "reason"),
    [
        ({"bootstrap_servers": "one"}, "bootstrap.servers", "'one' is no address: it has to be host:port"),
        ({"bootstrap_servers": "a:1,:2"}, "bootstrap.servers", "':2' is no address"),
        ({"enable_idempotence": "true", "acks": "1"}, "acks", "needs it to be all"),
        ({"enable_idempotence": "true", "retries": "0"}, "retries", "needs it to be more than 0"),
        (
            {"enable_idempotence": "true", "max_in_flight_requests_per_connection": "6"},
            "max.in.flight.requests.per.connection",
            "at most 5",
        ),
        ({"transactional_id": "mine"}, "transactional.id", "exactly.once.source.support"),
        ({"security_protocol": "SSL", "ssl_enabled_protocols": "SSLv3"}, "ssl.enabled.protocols", "Only TLSv1.2"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(own: dict[str, str], name: str, reason: str) -> None:
    with pytest.raises(ConfigException, match=f"(?s){name}.*{reason}"):
        taken(**own)


def test_a_worker_gives_its_own_transactional_id_and_idempotence() -> None:
    worker = WORKER | {"producer.transactional.id": "mine", "producer.enable.idempotence": "false"}
    found = ColumnSettings.of(producer_settings(worker, {}, client_id="c", transactional_id="group-c-0"))
    assert (found.transactional_id, found.idempotent, found.transaction_timeout) == ("group-c-0", True, 60.0)
