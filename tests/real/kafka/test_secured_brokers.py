"""The producer of columns against a real broker that encrypts and asks who is there, by each of its ways."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from testkit.brokers.embedded import SecuredBroker
from testkit.doubles.source_doubles import produce_batch

from penstock.api import RecordMetadata
from penstock.kafka.admin import TopicAdmin
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import FailedDelivery, ProducerClosedException
from penstock.kafka.producer.record_batches import ProducerRecord
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.kafka.settings.client import admin_settings, consumer_settings, producer_settings
from penstock.kafka.settings.producer import ColumnSettings

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAIT_S = 60.0
REAUTH_MS = 3000
TLS = Path(__file__).parents[2] / "data" / "tls"
STORE = {
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.location": str(TLS / "server.p12"),
    "ssl.keystore.password": "storepass",
    "ssl.key.password": "storepass",
}
CLIENTS = {
    "ssl.truststore.type": "PKCS12",
    "ssl.truststore.location": str(TLS / "trust.p12"),
    "ssl.truststore.password": "storepass",
}
MODULES = "org.apache.kafka.common.security."
SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "plain.sasl.jaas.config": f'{MODULES}plain.PlainLoginModule required user_me="secret";',
    "scram-sha-256.sasl.jaas.config": f"{MODULES}scram.ScramLoginModule required;",
    "scram-sha-512.sasl.jaas.config": f"{MODULES}scram.ScramLoginModule required;",
    "oauthbearer.sasl.jaas.config": f"{MODULES}oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";',
    **{
        f"{mechanism}.connections.max.reauth.ms": str(REAUTH_MS)
        for mechanism in ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
    },
}
LISTENERS = {
    "SSL": STORE,
    "MUTUAL": {"security.protocol": "SSL", "ssl.client.auth": "required", **STORE, **CLIENTS},
    "SASL_PLAINTEXT": SASL,
    "SASL_SSL": {**SASL, **STORE},
}
TRUST = {
    "ssl.truststore.location": str(TLS / "trust.jks"),
    "ssl.truststore.password": "storepass",
}


class Answers:
    """Notes what arrives."""

    def __init__(self) -> None:
        self.delivered_rows = 0
        self.failures: list[FailedDelivery] = []

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        self.delivered_rows += end - first - len(failures)
        self.failures += failures


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), listeners=LISTENERS) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            information = ScramCredentialInfo(mechanism, 8192)
            change = UserScramCredentialUpsertion("me", information, b"secret")
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)
        yield made


@pytest.fixture(scope="module")
def tokens() -> Iterator[str]:
    """The address of an endpoint that gives out unsecured tokens for five seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            now = time.time()
            parts = [json.dumps({"alg": "none"}), json.dumps({"sub": "me", "iat": now, "exp": now + 5, "scope": []})]
            coded = [base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"access_token": ".".join(coded) + "."}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def login(mechanism: str, password: str = "secret", tokens: str = "") -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        module = f"{MODULES}oauthbearer.OAuthBearerLoginModule required clientId='me' clientSecret='secret';"
        return {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": module,
            "sasl.oauthbearer.token.endpoint.url": tokens,
        }
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULES}{module} required username="me" password="{password}";',
    }


@contextmanager
def producer(broker: SecuredBroker, listener: str, settings: Mapping[str, str]) -> Iterator[ColumnProducer]:
    given = {"bootstrap.servers": broker.bootstrap_of(listener), **settings}
    worker = {f"producer.{name}": text for name, text in given.items()}
    made = ColumnProducer(ColumnSettings.of(producer_settings(worker, {}, client_id="c-0")), name="c-0")
    try:
        yield made
    finally:
        made.close(0)


def topic(broker: SecuredBroker, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    made = f"{name}-{time.monotonic_ns()}"
    admin.create_topics([NewTopic(made, 1, 1)])[made].result(30)
    return made


def stored(broker: SecuredBroker, name: str, count: int) -> list[str]:
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    found: list[str] = []
    try:
        consumer.assign([ck.TopicPartition(name, 0, 0)])
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [(one.value() or b"").decode() for one in consumer.consume(10_000, 1.0)]
        found += [(one.value() or b"").decode() for one in consumer.consume(10_000, 1.0)]
    finally:
        consumer.close()
    return found


WAYS = [
    ("SSL", "", ""),
    ("MUTUAL", "", ""),
    *(
        (protocol, mechanism, "")
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
]


def way(listener: str, mechanism: str, tokens: str) -> dict[str, str]:
    settings = {"security.protocol": "SSL" if listener == "MUTUAL" else listener}
    settings |= TRUST if "PLAINTEXT" not in listener else {}
    if listener == "MUTUAL":
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(TLS / "client.pem")}
    return settings | (login(mechanism, tokens=tokens) if mechanism else {})


@pytest.mark.parametrize(("listener", "mechanism", "_"), WAYS)
def test_records_arrive_by_every_way(broker: SecuredBroker, tokens: str, listener: str, mechanism: str, _: str) -> None:
    name, values, answers = topic(broker, "way"), [f"value {row}" for row in range(30_000)], Answers()
    with producer(broker, listener, way(listener, mechanism, tokens)) as made:
        made.send(produce_batch(values, [name] * len(values)), answers)
        assert made.wait_delivered(WAIT_S), made.trouble
    assert (answers.delivered_rows, answers.failures) == (len(values), [])
    assert stored(broker, name, len(values)) == values


def test_dead_letters_arrive_encrypted_by_who_has_logged_in(broker: SecuredBroker) -> None:
    name, told = topic(broker, "letters"), threading.Event()
    given = {"bootstrap.servers": broker.bootstrap_of("SASL_SSL"), **way("SASL_SSL", "SCRAM-SHA-256", "")}
    worker = {f"producer.{key}": text for key, text in given.items()}
    made = RecordProducer(ColumnSettings.of(producer_settings(worker, {}, client_id="l")), name="l")
    answers: list[Exception | None] = []

    def answer(error: Exception | None, _: RecordMetadata | None) -> None:
        answers.append(error)
        told.set()

    made.send(ProducerRecord(name, b"k", b"a letter", [("h", b"1")], 5), answer)
    assert told.wait(WAIT_S)
    assert made.close(WAIT_S)
    assert answers == [None]
    assert stored(broker, name, 1) == ["a letter"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_logging_in_again_under_load_loses_and_doubles_nothing(
    broker: SecuredBroker, tokens: str, mechanism: str
) -> None:
    name, answers, sent = topic(broker, "again"), Answers(), 0
    end = time.monotonic() + 3 * REAUTH_MS / 1000
    with producer(broker, "SASL_SSL", way("SASL_SSL", mechanism, tokens) | {"batch.size": "20000"}) as made:
        while time.monotonic() < end:
            made.send(produce_batch([str(row) for row in range(sent, sent + 1000)], [name] * 1000), answers)
            sent += 1000
            threading.Event().wait(0.01)
        assert made.wait_delivered(WAIT_S), made.trouble
        assert made.trouble is None, "no connection was lost"
    assert (answers.delivered_rows, answers.failures) == (sent, [])
    assert stored(broker, name, sent) == [str(row) for row in range(sent)]


@pytest.mark.parametrize(
    ("listener", "settings", "reason"),
    [
        ("SASL_PLAINTEXT", login("PLAIN", "wrong"), "Authentication failed: Invalid username or password"),
        ("SASL_SSL", TRUST | login("SCRAM-SHA-256", "wrong"), "Authentication failed during authentication due to inv"),
        ("SASL_SSL", TRUST | login("SCRAM-SHA-512", "wrong"), "Authentication failed during authentication due to inv"),
        ("SASL_SSL", TRUST | login("PLAIN") | {"sasl.mechanism": "GSSAPI"}, "sasl.jaas.config"),
        ("SSL", {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(TLS / "elsewhere.pem")}, "unable to get"),
        ("MUTUAL", TRUST, "ssl.keystore.*"),
        ("SSL", TRUST | {"security.protocol": "SASL_SSL"} | login("PLAIN"), "takes no logins, because it has no SASL"),
    ],
    ids=[
        "PLAIN",
        "SCRAM-256",
        "SCRAM-512",
        "GSSAPI without a key",
        "wrong authority",
        "no certificate",
        "no SASL there",
    ],
)
def test_what_is_not_accepted_ends_the_task_with_the_reason(
    broker: SecuredBroker, listener: str, settings: dict[str, str], reason: str
) -> None:
    name, answers = topic(broker, "refused"), Answers()
    protocol = {"security.protocol": "SSL" if listener == "MUTUAL" else listener}
    try:
        with producer(broker, listener, protocol | settings) as made:
            made.send(produce_batch(["a"], [name]), answers)
            assert made.wait_delivered(WAIT_S), made.trouble
        told = str(answers.failures[0].error)
        assert answers.failures[0].fatal
    except Exception as error:
        told = str(error)
    assert reason in told
    assert "wrong" not in told.replace("wrong authority", "")


@pytest.mark.parametrize(
    ("listener", "settings", "reason"),
    [
        ("SSL", {}, "TLS"),
        ("PLAINTEXT", {"security.protocol": "SSL", **TRUST}, "listens there without TLS (security.protocol)"),
        ("SASL_PLAINTEXT", {}, "closed the connection"),
    ],
    ids=["plain text to TLS", "TLS to plain text", "nobody to SASL"],
)
def test_the_wrong_protocol_is_told_at_once(
    broker: SecuredBroker, listener: str, settings: dict[str, str], reason: str
) -> None:
    name = topic(broker, "protocol")
    address = broker.bootstrap_servers if listener == "PLAINTEXT" else broker.bootstrap_of(listener)
    given = {f"producer.{name}": text for name, text in {"bootstrap.servers": address, **settings}.items()}
    made = ColumnProducer(ColumnSettings.of(producer_settings(given, {}, client_id="c")), name="c-0")

    def send() -> None:
        with contextlib.suppress(ProducerClosedException):
            made.send(produce_batch(["a"], [name]), Answers())

    try:
        sending = threading.Thread(target=send)
        sending.start()
        deadline = time.monotonic() + 5
        while made.trouble is None and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        assert reason in str(made.trouble)
    finally:
        made.close(0)
        sending.join(WAIT_S)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_consumer_and_admin_take_the_same_settings(broker: SecuredBroker, tokens: str, mechanism: str) -> None:
    worker = {"bootstrap.servers": broker.bootstrap_of("SASL_SSL"), **way("SASL_SSL", mechanism, tokens)}
    prefixed = {**worker, **{f"consumer.{name}": text for name, text in worker.items()}}
    name = topic(broker, "library")
    admin = TopicAdmin(admin_settings(worker, client_id="a").checked().librdkafka, name="a")
    client = consumer_settings(prefixed, {}, client_id="c", group_id="library").checked()
    consumer = ck.Consumer({**client.librdkafka, "log_level": 0})
    try:
        assert admin.topic_exists(name)
        assert name in consumer.list_topics(timeout=30).topics
    finally:
        consumer.close()
        admin.close()
