"""What a client says when it logs in, against the examples of the standards."""

from __future__ import annotations

import base64
import hashlib
import hmac

import confluent_kafka as ck
import pytest

from penstock.clients.trouble import Trouble
from penstock.errors import AuthenticationException, KafkaRetriableException, SaslAuthenticationException
from penstock.kafka.consumer.offsets import ends_reading
from penstock.kafka.network.sasl import BearerLogin, Exchange, PlainLogin, ScramLogin, mechanism_of, refuses_login

#: RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> ScramLogin:
    return ScramLogin("sha256", "user", "pencil", NONCE)


def test_scram_says_what_the_example_of_its_standard_says() -> None:
    made = scram()
    assert made.name == "SCRAM-SHA-256"
    assert made.first() == FIRST
    assert made.respond(CHALLENGE) == PROOF
    assert made.respond(SIGNATURE) is None


def test_scram_by_sha_512_is_what_a_broker_that_knows_the_password_works_out() -> None:
    made = ScramLogin("sha512", "a,b=c", "päss", "abc")
    challenge = b"r=abcdef,s=c2FsdA==,i=5000"
    assert made.first() == b"n,,n=a=2Cb=3Dc,r=abc"
    salted = hashlib.pbkdf2_hmac("sha512", "päss".encode(), b"salt", 5000)
    message = b"n=a=2Cb=3Dc,r=abc," + challenge + b",c=biws,r=abcdef"
    proof = base64.b64decode((made.respond(challenge) or b"").rpartition(b",p=")[2])
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    client_key = bytes(a ^ b for a, b in zip(proof, hmac.digest(stored, message, "sha512"), strict=True))
    assert hashlib.sha512(client_key).digest() == stored
    server_key = hmac.digest(salted, b"Server Key", "sha512")
    assert made.respond(b"v=" + base64.b64encode(hmac.digest(server_key, message, "sha512"))) is None


def test_a_nonce_is_never_the_same() -> None:
    assert ScramLogin("sha256", "a", "b").first() != ScramLogin("sha256", "a", "b").first()


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (CHALLENGE.replace(b"i=4096", b"i=4095"), "4095 iterations; 4096 to 1000000"),
        (CHALLENGE.replace(b"i=4096", b"i=1000001"), "1000001 iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=-4096"), "-4096 iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=many"), "iteration count are missing"),
        (CHALLENGE.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s=***"), "salt or iteration"),
        (CHALLENGE.replace(b"r=rOpr", b"r=sOpr"), "does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue"),
        (b"", "iteration count are missing"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_challenge_that_is_none_is_refused(challenge: bytes, reason: str) -> None:
    with pytest.raises(SaslAuthenticationException, match=reason):
        scram().respond(challenge)


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (SIGNATURE.replace(b"v=6", b"v=7"), "does not know the password either"),
        (b"v=", "does not know the password either"),
        (b"v=???", "its signature is not base64"),
        (b"e=invalid-proof", "The broker says: invalid-proof"),
        (b"x=1", "does not know the password either"),
    ],
)
def test_a_broker_that_does_not_prove_itself_is_refused(final: bytes, reason: str) -> None:
    made = scram()
    made.respond(CHALLENGE)
    with pytest.raises(SaslAuthenticationException, match=reason):
        made.respond(final)


def test_a_token_is_shown_and_a_refusal_is_confirmed() -> None:
    bearer = BearerLogin("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==")
    assert bearer.first() == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert bearer.respond(b"") is None
    assert bearer.respond(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslAuthenticationException):
        bearer.respond(b"no json")


def test_an_exchange_goes_through_all_rounds_and_ends() -> None:
    exchange = Exchange(scram(), "a:1")
    assert exchange.agreed(0, ["SCRAM-SHA-256"]) == FIRST
    assert exchange.answered(0, None, CHALLENGE) == PROOF
    assert exchange.answered(0, None, SIGNATURE) is None


def test_a_refusal_says_what_the_broker_said_and_what_to_look_at_and_no_secret() -> None:
    with pytest.raises(SaslAuthenticationException) as caught:
        Exchange(PlainLogin("me", "s3cret"), "a:1").answered(
            58, "Authentication failed: Invalid username or password", b""
        )
    text = str(caught.value)
    assert "PLAIN at the broker a:1 has failed: Authentication failed: Invalid username or password" in text
    assert "sasl.jaas.config" in text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    ("code", "offered", "reason"),
    [
        (33, ["PLAIN", "GSSAPI"], "does not take sasl.mechanism=SCRAM-SHA-256, but PLAIN, GSSAPI"),
        (34, [], "has no SASL"),
        (35, [], "error 35"),
    ],
)
def test_a_mechanism_that_the_broker_does_not_have_is_named(code: int, offered: list[str], reason: str) -> None:
    with pytest.raises(SaslAuthenticationException, match=reason):
        Exchange(scram(), "a:1").agreed(code, offered)


def test_user_and_password_go_by_the_mechanism_of_the_settings() -> None:
    assert mechanism_of("PLAIN", "a", "b").first() == b"\0a\0b"
    assert mechanism_of("SCRAM-SHA-512", "a", "b").name == "SCRAM-SHA-512"


REFUSED = (
    "sasl_ssl://b:1/1: SASL authentication error: Authentication failed: Invalid username or password",
    "sasl_ssl://b:1/1: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported "
    "mechanisms: GSSAPI",
)
LOST = (
    "sasl_ssl://b:1/1: SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported "
    "mechanisms: (n/a) (after 1ms in state DOWN)",
    "sasl_plaintext://b:1/1: SASL SCRAM-SHA-512 mechanism handshake failed: Local: Timed out: broker's supported "
    "mechanisms: (n/a)",
)


@pytest.mark.parametrize(("text", "refused"), [*((one, True) for one in REFUSED), *((one, False) for one in LOST)])
def test_only_a_login_that_a_broker_refuses_ends_a_consumer(text: str, refused: bool) -> None:
    error = ck.KafkaError(ck.KafkaError._AUTHENTICATION, text)
    assert refuses_login(error) is refused
    assert ends_reading(error) is refused
    trouble = Trouble()
    trouble.told(error)
    assert trouble.is_login is refused
    expected = AuthenticationException if refused else KafkaRetriableException
    assert type(trouble.named("the cluster cannot be asked", "b:1")) is expected
