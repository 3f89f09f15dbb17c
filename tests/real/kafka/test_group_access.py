"""How a member of a workers' group gets to brokers that encrypt, ask for a login and give rights."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from testkit.brokers.embedded import SecuredBroker
from testkit.brokers.group_owner import QUICK, GroupOwner, run_member

pytestmark = [pytest.mark.broker, pytest.mark.slow]

DATA = Path(__file__).parents[2] / "data" / "tls"
SECRET = "open;sesame,=1"
_LOGIN = "org.apache.kafka.common.security"
_KEYS = {
    "ssl.keystore.location": str(DATA / "server.p12"),
    "ssl.keystore.password": "storepass",
    "ssl.keystore.type": "PKCS12",
}
_TRUST = {
    "ssl.truststore.location": str(DATA / "trust.p12"),
    "ssl.truststore.password": "storepass",
    "ssl.truststore.type": "PKCS12",
}
_LISTENERS = {
    "SSL": _KEYS,
    "ELSEWHERE": {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(DATA / "elsewhere.pem"),
        "ssl.keystore.type": "PEM",
    },
    "MUTUAL": {"security.protocol": "SSL", "ssl.client.auth": "required", **_KEYS, **_TRUST},
    "PLAIN": {
        "security.protocol": "SASL_SSL",
        **_KEYS,
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required "
        f'user_alice="{SECRET}" user_eve="{SECRET}";',
    },
    "SCRAM": {
        "security.protocol": "SASL_SSL",
        **_KEYS,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    },
    "SHORT": {
        "security.protocol": "SASL_SSL",
        **_KEYS,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        "connections.max.reauth.ms": "4000",
    },
    "TOKENS": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
        "connections.max.reauth.ms": "3600000",
    },
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with a listener for each way in; all users may do anything, but for eve."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:bob;User:CN=client",
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), properties=properties, listeners=_LISTENERS) as broker:
        give_password(broker, "alice", SECRET)
        with run_member(plain(broker), first := GroupOwner()):
            first.wait_joined()
        yield broker


def give_password(broker: SecuredBroker, user: str, password: str) -> None:
    """Lets a user log in with SCRAM."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30)


def plain(broker: SecuredBroker, servers: str = "", **more: str) -> dict[str, str]:
    found = {
        "bootstrap.servers": servers or broker.bootstrap_servers,
        "group.id": f"workers-{uuid4().hex[:8]}",
        **QUICK,
    }
    return found | {name.replace("_", "."): text for name, text in more.items()}


def encrypted(broker: SecuredBroker, listener: str, **more: str) -> dict[str, str]:
    return plain(broker, broker.bootstrap_of(listener), security_protocol="SSL", **more) | _TRUST


def logged_in(broker: SecuredBroker, listener: str, mechanism: str, user: str, secret: str = SECRET) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return encrypted(broker, listener) | {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{_LOGIN}.{module} required username="{user}" password="{secret}";',
    }


def joins(worker: Mapping[str, str]) -> None:
    with run_member(worker, one := GroupOwner("one")), run_member(worker, two := GroupOwner("two")):
        one.wait_joined("one of 2")
        two.wait_joined("two of 2")
        assert not one.all("refused") + two.all("refused")


def refusal(worker: Mapping[str, str]) -> str:
    with run_member(worker, owner := GroupOwner()):
        error = owner.wait("refused").about
        assert not owner.all("joined")
        return f"{error.code}: {error}"


def test_members_join_over_an_encrypted_connection(secured: SecuredBroker) -> None:
    joins(encrypted(secured, "SSL"))


@pytest.mark.parametrize(
    "trust",
    [
        {"ssl.truststore.location": str(DATA / "trust.jks"), "ssl.truststore.password": "storepass"},
        {"ssl.truststore.location": str(DATA / "ca.pem"), "ssl.truststore.type": "PEM"},
        {"ssl.truststore.certificates": (DATA / "ca.pem").read_text(), "ssl.truststore.type": "PEM"},
    ],
    ids=["JKS", "PEM file", "PEM text"],
)
def test_the_brokers_signer_may_stand_in_any_kind_of_store(secured: SecuredBroker, trust: Mapping[str, str]) -> None:
    joins(plain(secured, secured.bootstrap_of("SSL"), security_protocol="SSL") | dict(trust))


def test_a_broker_that_wants_a_certificate_of_the_worker_gets_it(secured: SecuredBroker) -> None:
    own = {"ssl.keystore.location": str(DATA / "client.pem"), "ssl.keystore.type": "PEM"}
    joins(encrypted(secured, "MUTUAL") | own)


def test_a_worker_without_the_certificate_that_a_broker_wants_is_told(secured: SecuredBroker) -> None:
    told = refusal(encrypted(secured, "MUTUAL"))
    assert told.startswith("TLS_HANDSHAKE_FAILED")
    assert "ssl.keystore.location (where brokers want one of the worker)" in told


def test_a_broker_whose_signer_is_not_trusted_is_refused(secured: SecuredBroker) -> None:
    told = refusal(plain(secured, secured.bootstrap_of("SSL"), security_protocol="SSL"))
    assert told.startswith("TLS_HANDSHAKE_FAILED")
    assert "certificate verify failed" in told
    assert "Check ssl.truststore.location" in told


def test_a_broker_has_to_have_the_name_of_its_certificate_unless_that_is_turned_off(secured: SecuredBroker) -> None:
    worker = plain(secured, secured.bootstrap_of("ELSEWHERE"), security_protocol="SSL") | {
        "ssl.truststore.location": str(DATA / "elsewhere.pem"),
        "ssl.truststore.type": "PEM",
    }
    told = refusal(worker)
    assert told.startswith("TLS_HANDSHAKE_FAILED")
    assert "IP address mismatch" in told
    assert "bootstrap.servers (the names have to be those of the certificate)" in told
    joins(worker | {"ssl.endpoint.identification.algorithm": ""})


@pytest.mark.parametrize(
    ("listener", "mechanism"), [("PLAIN", "PLAIN"), ("SCRAM", "SCRAM-SHA-256"), ("SCRAM", "SCRAM-SHA-512")]
)
def test_members_log_in_over_an_encrypted_connection(secured: SecuredBroker, listener: str, mechanism: str) -> None:
    joins(logged_in(secured, listener, mechanism, "alice"))


@pytest.mark.parametrize(("listener", "mechanism"), [("PLAIN", "PLAIN"), ("SCRAM", "SCRAM-SHA-512")])
def test_a_wrong_password_is_told_and_shown_nowhere(
    secured: SecuredBroker, listener: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = refusal(logged_in(secured, listener, mechanism, "alice", "not-that-secret"))
    assert told.startswith("SASL_AUTHENTICATION_FAILED")
    assert "Check sasl.mechanism, sasl.jaas.config" in told
    assert "not-that-secret" not in told + caplog.text


def test_a_mechanism_that_the_broker_does_not_have_is_told(secured: SecuredBroker) -> None:
    told = refusal(logged_in(secured, "PLAIN", "SCRAM-SHA-512", "alice"))
    assert told.startswith("SASL_AUTHENTICATION_FAILED")
    assert "SCRAM-SHA-512" in told


def test_a_password_that_is_mended_at_the_broker_lets_the_member_in(secured: SecuredBroker) -> None:
    worker = logged_in(secured, "SCRAM", "SCRAM-SHA-512", "bob", "new secret")
    with run_member(worker, owner := GroupOwner("bob")):
        owner.wait("refused")
        give_password(secured, "bob", "new secret")
        assert owner.wait_joined("bob of 1", timeout_s=60)
        assert len(owner.all("refused")) == 1


def test_a_user_without_the_right_to_the_group_is_told_how_to_get_it(secured: SecuredBroker) -> None:
    worker = logged_in(secured, "PLAIN", "PLAIN", "eve")
    told = refusal(worker)
    assert told.startswith("GROUP_AUTHORIZATION_FAILED")
    assert f'kafka-acls --add --allow-principal User:<name> --operation Read --group "{worker["group.id"]}"' in told


def test_a_member_stays_in_its_group_when_its_login_has_to_be_renewed(secured: SecuredBroker) -> None:
    owner = GroupOwner("one")
    with run_member(logged_in(secured, "SHORT", "SCRAM-SHA-512", "alice"), owner) as member:
        owner.wait_joined()
        began = time.monotonic()
        while time.monotonic() - began < 10:
            threading.Event().wait(0.2)
        # Two lives of a login later.
        assert member.view.joined
        assert member.metrics.heartbeats.count >= 8
        assert not owner.all("lost") + owner.all("refused")


class _Tokens(BaseHTTPRequestHandler):
    """Gives out tokens that nobody has signed; the broker is set to take them."""

    asked: list[dict[str, str]]
    life_s: float

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(dict(self.headers))
        now = time.time()
        parts = ({"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + self.life_s, "scope": "kafka"})
        token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
        body = json.dumps({"access_token": f"{token}.", "expires_in": self.life_s}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def token_endpoint(life_s: float) -> Iterator[tuple[str, list[dict[str, str]]]]:
    asked: list[dict[str, str]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Tokens", (_Tokens,), {"asked": asked, "life_s": life_s}))
    thread = threading.Thread(target=server.serve_forever, name="tokens")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_members_log_in_with_tokens_and_fetch_new_ones_in_time(secured: SecuredBroker) -> None:
    with token_endpoint(life_s=5) as (url, asked):
        worker = plain(
            secured,
            secured.bootstrap_of("TOKENS"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_client_credentials_client_id="me",
            sasl_oauthbearer_client_credentials_client_secret="secret",
            sasl_jaas_config=f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
        )
        owner = GroupOwner("one")
        with run_member(worker, owner) as member:
            owner.wait_joined()
            began = time.monotonic()
            while time.monotonic() - began < 11:
                threading.Event().wait(0.2)
            assert member.view.joined
            assert not owner.all("lost") + owner.all("refused")
            assert 2 <= len(asked) <= 5
