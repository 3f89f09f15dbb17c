"""The settings of a group's member, out of those of the worker."""

from pathlib import Path

import pytest

from penstock.errors import ConfigException
from penstock.kafka.group.settings import GroupSettings, group_settings

DATA = Path(__file__).parents[3] / "data" / "tls"
LEAST = {"bootstrap.servers": "a:9092, b:9093", "group.id": "workers"}


def settings(**more: str) -> GroupSettings:
    return group_settings(
        LEAST | {name.replace("_", "."): text for name, text in more.items()}, client_id="connect-h:8083"
    )


def test_what_is_not_set_is_as_in_java():
    found = settings()
    assert (found.group_id, found.client_id) == ("workers", "connect-h:8083")
    assert (found.session_timeout_ms, found.rebalance_timeout_ms, found.heartbeat_interval_ms) == (
        10_000,
        60_000,
        3_000,
    )
    network = found.network
    assert [str(one) for one in network.bootstrap] == ["a:9092", "b:9093"]
    assert (network.client_id, network.request_timeout, network.metadata_max_age) == ("connect-h:8083", 40, 300)
    assert (network.retry_backoff, network.retry_backoff_max) == (0.1, 1)
    assert (network.reconnect_backoff, network.reconnect_backoff_max) == (0.05, 1)
    assert (network.connect_timeout, found.connect_most_s, network.idle) == (10, 30, 540)
    assert (network.send_buffer, network.receive_buffer) == (131_072, 32_768)
    assert network.rebootstrap
    assert (network.tls, network.sasl) == (None, None)


def test_the_workers_settings_without_a_prefix_count():
    found = settings(
        session_timeout_ms="6000",
        rebalance_timeout_ms="5000",
        heartbeat_interval_ms="1000",
        client_id="mine",
        request_timeout_ms="9000",
        reconnect_backoff_max_ms="2000",
        socket_connection_setup_timeout_max_ms="40000",
        metadata_max_age_ms="1000",
        connections_max_idle_ms="-1",
        send_buffer_bytes="-1",
        metadata_recovery_strategy="none",
    )
    assert (found.session_timeout_ms, found.rebalance_timeout_ms, found.heartbeat_interval_ms) == (6_000, 5_000, 1_000)
    assert found.client_id == "mine"
    network = found.network
    assert (network.client_id, network.request_timeout, network.reconnect_backoff_max) == ("mine", 9, 2)
    assert (found.connect_most_s, network.metadata_max_age, network.idle, network.send_buffer) == (40, 1, 0, 0)
    assert not network.rebootstrap


def test_later_attempts_to_connect_have_no_less_time_than_the_first():
    assert settings(socket_connection_setup_timeout_ms="60000").connect_most_s == 60


def test_those_of_connectors_clients_do_not_count():
    found = settings(consumer_session_timeout_ms="1", admin_request_timeout_ms="1", producer_client_id="no")
    assert (found.session_timeout_ms, found.network.request_timeout) == (10_000, 40)


def test_stores_and_logins_are_read_and_kept_out_of_texts():
    worker = LEAST | {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(DATA / "trust.jks"),
        "ssl.truststore.password": "storepass",
        "ssl.endpoint.identification.algorithm": "",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" '
        'password="open sesame";',
    }
    settings = group_settings(worker, client_id="c")
    found = settings.network
    assert found.tls is not None
    assert found.sasl is not None
    assert not found.tls.check_name
    assert (found.sasl.username, found.sasl.password) == ("u", "open sesame")
    assert "open sesame" not in repr(settings) + repr(found)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"group_id": " "}, "configuration group.id: Workers that share it share the work"),
        ({"session_timeout_ms": "soon"}, "Invalid value soon for configuration session.timeout.ms: Not a number"),
        ({"rebalance_timeout_ms": "0"}, "configuration rebalance.timeout.ms: Value must be at least 1"),
        (
            {"heartbeat_interval_ms": "10000"},
            "configuration heartbeat.interval.ms: It must be below session.timeout.ms, which is 10000",
        ),
        ({"bootstrap_servers": " , "}, "configuration bootstrap.servers"),
        ({"request_timeout_ms": "long"}, "configuration request.timeout.ms"),
        ({"security_protocol": "SASL"}, "configuration security.protocol"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "NTLM"},
            "configuration sasl.mechanism: String must be one of: PLAIN",
        ),
        ({"sasl_login_class": "a.b.Login"}, "configuration sasl.login.class: a Java login class cannot be loaded"),
        ({"ssl_engine_factory_class": "a.B"}, "configuration ssl.engine.factory.class: a Java TLS engine cannot"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_to_do(more, words):
    with pytest.raises(ConfigException) as caught:
        settings(**more)
    assert words in str(caught.value)


def test_all_faults_are_told_at_once():
    with pytest.raises(ConfigException) as caught:
        settings(group_id="", session_timeout_ms="x", ssl_engine_factory_class="a.B")
    assert "3 settings of the worker's group cannot be used" in str(caught.value)


def test_a_password_that_cannot_be_used_is_not_shown():
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'x required a="sesame',
    }
    with pytest.raises(ConfigException) as caught:
        group_settings(LEAST | login, client_id="c")
    assert "sasl.jaas.config" in str(caught.value)
    assert "sesame" not in str(caught.value)
