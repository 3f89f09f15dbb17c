"""The producer of columns over TLS and with a login, against a broker that does what a test says."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from testkit.brokers.certificates import make_certificate
from testkit.brokers.cutting_proxy import CuttingProxy
from testkit.brokers.scripted_broker import ScriptedBroker
from testkit.brokers.scripted_login import ScriptedLogin
from testkit.doubles.contexts import Deliveries
from testkit.doubles.source_doubles import produce_batch

from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

WAIT_S = 20.0
TLS = Path(__file__).parents[2] / "data" / "tls"
SSL = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(TLS / "ca.pem"),
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def login(password: str = "secret", mechanism: str = "PLAIN", protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{PLAIN} required username="me" password="{password}";',
    }


def server_context(name: str = "server.pem", *, clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(TLS / name))
    if clients:
        context.load_verify_locations(str(TLS / "ca.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker({"t": 1})
    yield made
    made.stop()


@contextmanager
def producer(address: str, settings: Mapping[str, str]) -> Iterator[ColumnProducer]:
    quick = {"retry.backoff.ms": "10", "reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "50"}
    given = {f"producer.{name}": text for name, text in {"bootstrap.servers": address, **quick, **settings}.items()}
    made = ColumnProducer(ColumnSettings.of(producer_settings(given, {}, client_id="c-0")), name="c-0")
    try:
        yield made
    finally:
        made.close(0)


def numbered(count: int, width: int = 0) -> list[str]:
    return [f"value {row}".ljust(width, "x") for row in range(count)]


def stored(broker: ScriptedBroker) -> list[str]:
    return [(value or b"").decode() for value in broker.values("t", 0)]


def failure_of(broker: ScriptedBroker, settings: Mapping[str, str], address: str | None = None) -> FailedDelivery:
    """Why nothing arrives."""
    answers = Deliveries()
    with broker, producer(address or broker.bootstrap, settings) as made:
        made.send(produce_batch(["a"], ["t"]), answers)
        assert made.wait_delivered(WAIT_S)
        made.send(produce_batch(["b"], ["t"]), answers)
        assert made.wait_delivered(WAIT_S), "nothing that comes later waits either"
    assert stored(broker) == []
    assert [failed.row for failed in answers.failures] == [0, 0]
    assert all(failed.fatal for failed in answers.failures)
    return answers.failures[0]


# ---------------------------------------------------------------------------------------------------------------- TLS
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("own", [False, True], ids=["one way", "mutual"])
def test_everything_arrives_encrypted(broker: ScriptedBroker, version: str, own: bool) -> None:
    broker.tls = server_context(clients=own)
    key = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(TLS / "client.pem")} if own else {}
    values, answers = numbered(2000, 500), Deliveries()
    settings = {**SSL, **key, "ssl.enabled.protocols": version, "send.buffer.bytes": "8192", "batch.size": "300000"}
    with broker, producer(broker.bootstrap, settings) as made:
        made.send(produce_batch(values, ["t"] * 2000), answers)
        assert made.wait_delivered(WAIT_S)
    assert stored(broker) == values
    assert sorted(answers.rows) == list(range(2000))
    assert answers.failures == []


@pytest.mark.parametrize(
    ("server", "settings", "address", "reason"),
    [
        ("server.pem", {"ssl.truststore.location": str(TLS / "elsewhere.pem")}, None, "unable to get local issuer"),
        ("elsewhere.pem", {"ssl.truststore.location": str(TLS / "elsewhere.pem")}, None, "IP address mismatch"),
        ("elsewhere.pem", {}, None, "self-signed certificate"),
        ("server.pem", {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}, None, "do not agree on TLS"),
    ],
    ids=["wrong authority", "wrong name", "unknown certificate", "no cipher in common"],
)
def test_a_broker_that_is_not_accepted_ends_the_task_with_what_to_look_at(
    broker: ScriptedBroker, server: str, settings: dict[str, str], address: str | None, reason: str
) -> None:
    broker.tls = server_context(server)
    if "ssl.cipher.suites" in settings:
        broker.tls.maximum_version = ssl.TLSVersion.TLSv1_2
        broker.tls.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    failed = failure_of(broker, SSL | settings, address)
    assert reason in str(failed.error)
    assert "ssl." in str(failed.error)
    assert failed.java_name == "org.apache.kafka.common.errors.SslAuthenticationException"


def test_a_certificate_whose_time_is_over_is_not_accepted(broker: ScriptedBroker, tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "expired.pem", days=-1)
    broker.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.tls.load_cert_chain(str(made))
    failed = failure_of(broker, SSL | {"ssl.truststore.location": str(made)})
    assert "certificate has expired" in str(failed.error)


def test_without_a_check_of_names_any_name_of_a_known_authority_is_accepted(broker: ScriptedBroker) -> None:
    broker.tls = server_context("elsewhere.pem")
    own = {"ssl.truststore.location": str(TLS / "elsewhere.pem"), "ssl.endpoint.identification.algorithm": ""}
    with broker, producer(broker.bootstrap, SSL | own) as made:
        made.send(produce_batch(["a"], ["t"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert stored(broker) == ["a"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_that_misses_the_clients_certificate_says_so(broker: ScriptedBroker, version: ssl.TLSVersion) -> None:
    broker.tls = server_context(clients=True)
    broker.tls.maximum_version = version
    failed = failure_of(broker, SSL)
    assert "ssl.keystore.*" in str(failed.error)


def test_tls_to_a_port_without_it_is_told_at_once(broker: ScriptedBroker) -> None:
    class Talker(ScriptedBroker):
        def _talk(self, connection: socket.socket, number: int) -> None:
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1 << 16)

    failed = failure_of(Talker({"t": 1}), SSL)
    assert "does not speak TLS" in str(failed.error)
    assert "security.protocol=PLAINTEXT" in str(failed.error)


def test_tls_to_a_kafka_without_it_is_told_at_once(broker: ScriptedBroker, caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(ScriptedBroker):
        def _talk(self, connection: socket.socket, number: int) -> None:
            # As Kafka does with a request that says it has three hundred megabytes.
            with connection:
                connection.recv(1 << 16)

    with Refusing({"t": 1}) as kafka, producer(kafka.bootstrap, SSL | {"delivery.timeout.ms": "300"}) as made:
        made.send(produce_batch(["a"], ["t"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
        assert "within the TLS handshake" in str(made.trouble)
    assert "it listens there without TLS (security.protocol)" in caplog.text


def test_no_tls_to_a_port_with_it_is_told_at_once(broker: ScriptedBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.tls = server_context()
    with broker, producer(broker.bootstrap, {"delivery.timeout.ms": "300"}) as made:
        made.send(produce_batch(["a"], ["t"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert "speaks TLS: set security.protocol=SSL" in caplog.text or "it wants TLS there" in caplog.text


@pytest.mark.parametrize(
    ("way", "after"),
    [
        *(("sent", after) for after in (0, 1, 5, 200, 500, 700, 1000, 20_000, 100_000)),
        *(("received", after) for after in (0, 1, 5, 200, 1000, 1700, 2200, 2500)),
    ],
)
def test_a_connection_that_is_cut_anywhere_loses_nothing(broker: ScriptedBroker, way: str, after: int) -> None:
    broker.tls = server_context()
    values, answers = numbered(1000, 200), Deliveries()
    with broker, CuttingProxy(broker.port) as proxy:
        broker.advertise(proxy.port)
        for _ in range(2):
            proxy.cut_next(**{way: after})
        with producer(f"127.0.0.1:{proxy.port}", SSL | {"batch.size": "20000"}) as made:
            made.send(produce_batch(values, ["t"] * 1000), answers)
            assert made.wait_delivered(WAIT_S)
        assert proxy.cut
    assert stored(broker) == values
    assert answers.failures == []


# --------------------------------------------------------------------------------------------------------------- SASL
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_producer_logs_in_first(broker: ScriptedBroker, encrypted: bool) -> None:
    broker.tls = server_context() if encrypted else None
    broker.login = ScriptedLogin({"me": "secret"})
    settings = (SSL if encrypted else {}) | login(protocol="SASL_SSL" if encrypted else "SASL_PLAINTEXT")
    with broker, producer(broker.bootstrap, settings) as made:
        made.send(produce_batch(["a", "b"], ["t", "t"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert stored(broker) == ["a", "b"]
    assert broker.login.logins == 1


@pytest.mark.parametrize(
    ("settings", "mechanisms", "reason"),
    [
        (login("wrong"), ("PLAIN",), "Authentication failed: Invalid username or password"),
        (login(), ("SCRAM-SHA-512", "GSSAPI"), "does not take sasl.mechanism=PLAIN, but SCRAM-SHA-512, GSSAPI"),
    ],
    ids=["wrong password", "no such mechanism"],
)
def test_a_refused_login_ends_the_task_with_the_brokers_words(
    broker: ScriptedBroker, settings: dict[str, str], mechanisms: tuple[str, ...], reason: str
) -> None:
    broker.login = ScriptedLogin({"me": "secret"}, mechanisms=mechanisms)
    failed = failure_of(broker, settings)
    assert reason in str(failed.error)
    assert "sasl.jaas.config" in str(failed.error)
    assert "wrong" not in str(failed.error)
    assert failed.java_name == "org.apache.kafka.common.errors.SaslAuthenticationException"


@pytest.mark.slow
def test_a_session_is_renewed_before_it_ends_and_nothing_is_lost(broker: ScriptedBroker) -> None:
    broker.login = ScriptedLogin({"me": "secret"}, session_ms=1000)
    answers, count, pause = Deliveries(), 0, threading.Event()
    with broker, producer(broker.bootstrap, login() | {"batch.size": "2000"}) as made:
        while broker.login.logins < 3:
            made.send(produce_batch(numbered(100), ["t"] * 100), answers)
            count += 1
            pause.wait(0.01)
        assert made.wait_delivered(WAIT_S)
        assert len({seen.connection for seen in broker.requests}) == 1, "on the connection that is there"
    assert stored(broker) == numbered(100) * count
    assert (answers.failures, broker.login.expired) == ([], 0)


def test_a_password_that_changes_meanwhile_ends_the_task(broker: ScriptedBroker) -> None:
    broker.login = ScriptedLogin({"me": "secret"}, session_ms=200)
    answers = Deliveries()
    with broker, producer(broker.bootstrap, login()) as made:
        made.send(produce_batch(["a"], ["t"]), answers)
        assert made.wait_delivered(WAIT_S)
        broker.login.users["me"] = "another"
        while not answers.failures:
            made.send(produce_batch(["b"], ["t"]), answers)
            assert made.wait_delivered(WAIT_S)
    assert answers.failures[0].fatal
    assert "Invalid username or password" in str(answers.failures[0].error)


def test_an_idle_connection_is_closed_without_a_word_and_made_again(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = {"connections.max.idle.ms": "100", "metadata.max.age.ms": "600000"}
    with broker, producer(broker.bootstrap, settings) as made:
        made.send(produce_batch(["a"], ["t"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
        pause = threading.Event()
        while made._sender._connections._links:
            pause.wait(0.02)
        made.send(produce_batch(["b"], ["t"]), Deliveries())
        assert made.wait_delivered(WAIT_S)
    assert stored(broker) == ["a", "b"]
    assert caplog.text == ""
