"""Tokens from an endpoint, and how a producer keeps one that is valid."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from penstock.errors import SaslAuthenticationException
from penstock.kafka.network.credentials import Credentials, TokenException, claims_of, credentials_of, fetch
from penstock.kafka.network.sasl import BearerLogin, Mechanism
from penstock.kafka.settings.security import SaslSettings, TokenSettings

WAIT_S = 10.0
CLIENT, JWT_BEARER = "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"


def jwt(**claims: object) -> str:
    parts = [json.dumps({"alg": "none"}), json.dumps(claims)]
    return ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts) + "."


class Endpoint:
    """A token endpoint that answers what a test says."""

    def __init__(self) -> None:
        self.forms: list[dict[str, list[str]]] = []
        self.authorizations: list[str | None] = []
        self.answers: list[tuple[int, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.forms.append(parse_qs(form))
                outer.authorizations.append(self.headers.get("Authorization"))
                code, text = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(code)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def test_client_credentials_are_shown_and_the_token_lives_as_long_as_it_says(endpoint: Endpoint) -> None:
    token = jwt(sub="me", iat=1000, exp=2000)
    endpoint.answers = [(200, json.dumps({"access_token": token}))]
    found = fetch(TokenSettings(endpoint.url, CLIENT, "id", "s:e", "a b"), now=1100)
    assert (found.text, found.renew_at, found.expires_at) == (token, 1800.0, 2000.0)
    assert endpoint.forms == [{"grant_type": [CLIENT], "scope": ["a b"]}]
    assert endpoint.authorizations == ["Basic " + base64.b64encode(b"id:s:e").decode()]


def test_a_token_that_is_no_jwt_lives_as_long_as_the_endpoint_says(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, json.dumps({"access_token": "opaque", "expires_in": 100}))]
    found = fetch(TokenSettings(endpoint.url, CLIENT), now=1000)
    assert (found.text, found.renew_at, found.expires_at) == ("opaque", 1080.0, 1100.0)
    assert claims_of("a.b.c") == {}


@pytest.mark.parametrize(
    ("answer", "retriable", "reason"),
    [
        ((401, '{"error":"invalid_client"}'), False, "invalid_client"),
        ((503, "busy"), True, "503"),
        ((429, "later"), True, "429"),
        ((200, "no json"), True, "no JSON object"),
        ((200, "{}"), False, "no access_token"),
    ],
)
def test_what_is_no_token_says_why_and_whether_to_ask_again(
    endpoint: Endpoint, answer: tuple[int, str], retriable: bool, reason: str
) -> None:
    endpoint.answers = [answer]
    with pytest.raises(TokenException, match=reason) as caught:
        fetch(TokenSettings(endpoint.url, CLIENT, "id", "s3cret"))
    assert caught.value.retriable is retriable
    assert "sasl.oauthbearer.token.endpoint.url" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_an_endpoint_that_is_not_there_is_asked_again() -> None:
    with pytest.raises(TokenException) as caught:
        fetch(TokenSettings("http://127.0.0.1:1/token", CLIENT))
    assert caught.value.retriable


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_an_assertion_is_signed_with_the_key_that_is_named(endpoint: Endpoint, algorithm: str, tmp_path: Path) -> None:
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    key = rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "key.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    template = tmp_path / "template.json"
    template.write_text(json.dumps({"header": {"kid": "k"}, "payload": {"tenant": "t"}}))
    endpoint.answers = [(200, json.dumps({"access_token": "a"}))]
    assertion = {
        "algorithm": algorithm,
        "private.key.file": str(path),
        "template.file": str(template),
        "claim.aud": "them",
        "claim.iss": "us",
        "claim.exp.seconds": "60",
        "claim.jti.include": "true",
    }
    fetch(TokenSettings(endpoint.url, JWT_BEARER, assertion=assertion), now=1000)
    (sent,) = endpoint.forms[0]["assertion"]
    head, body, signature = sent.split(".")
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    if isinstance(key, rsa.RSAPrivateKey):
        key.public_key().verify(raw, f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        key.public_key().verify(der, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    claims = claims_of(sent)
    assert len(claims.pop("jti")) == 36
    assert claims == {"iat": 1000, "exp": 1060, "nbf": 940, "tenant": "t", "aud": "them", "iss": "us"}


def test_an_assertion_in_a_file_is_shown_as_it_is(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "assertion").write_text("x.y.z\n")
    endpoint.answers = [(200, json.dumps({"access_token": "a"}))]
    fetch(TokenSettings(endpoint.url, JWT_BEARER, assertion={"file": str(tmp_path / "assertion")}))
    assert endpoint.forms[0]["assertion"] == ["x.y.z"]
    with pytest.raises(TokenException, match=r"private\.key\.file or \.file is needed"):
        fetch(TokenSettings(endpoint.url, JWT_BEARER))


# ------------------------------------------------------------------------------------------------------- credentials
def credentials(url: str) -> tuple[Credentials, threading.Event]:
    awake = threading.Event()
    tokens = TokenSettings(url, CLIENT, backoff=0.01, backoff_max=0.02)
    return credentials_of(SaslSettings("OAUTHBEARER", tokens=tokens), "c-0", awake.set), awake


def next_of(made: Credentials, awake: threading.Event) -> Mechanism:
    deadline = time.monotonic() + WAIT_S
    while (found := made.mechanism("a")) is None:
        assert time.monotonic() < deadline
        awake.wait(0.05)
        awake.clear()
    return found


def test_one_token_serves_all_logins_until_most_of_its_life_is_over(endpoint: Endpoint) -> None:
    now = time.time()
    lasting, over = jwt(iat=now, exp=now + 1000), jwt(iat=now - 900, exp=now + 100)
    endpoint.answers = [(200, json.dumps({"access_token": over})), (200, json.dumps({"access_token": lasting}))]
    made, awake = credentials(endpoint.url)
    assert lasting.encode() in next_of(made, awake).first()
    assert lasting.encode() in next_of(made, awake).first()
    assert len(endpoint.forms) == 2
    made.close()


def test_an_endpoint_that_fails_for_now_is_asked_again_and_one_that_refuses_is_not(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, "busy"), (503, "busy"), (200, json.dumps({"access_token": "a", "expires_in": 9}))]
    made, awake = credentials(endpoint.url)
    bearer = next_of(made, awake)
    assert isinstance(bearer, BearerLogin)
    assert not bearer.is_expired
    assert len(endpoint.forms) == 3
    made.close()
    endpoint.answers = [(401, "no")]
    refused, awake = credentials(endpoint.url)
    with pytest.raises(SaslAuthenticationException, match="401"):
        next_of(refused, awake)
    refused.close()
