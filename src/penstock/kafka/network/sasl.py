"""The login of a client at a broker: its messages, and the meaning of the responses. No I/O.

Source: KIP-152 (SaslAuthenticate); RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 (OAUTHBEARER).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import confluent_kafka as ck

from penstock.errors import SaslAuthenticationException

UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_STATE: Final = 34
_FEWEST_ROUNDS: Final = 4096
#: The maximum number of iterations; a broker that demands more only keeps the client busy.
_MOST_ROUNDS: Final = 1_000_000


class Mechanism(Protocol):
    """One login by one mechanism."""

    name: str

    def first(self) -> bytes:
        """Returns the client's first message."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Returns the client's message after an answer, or None if the login is complete."""


class PlainLogin:
    """PLAIN: user and password in clear text.

    Source: RFC 4616.

    >>> PlainLogin("tim", "tanstaaftanstaaf").first()
    b'\\x00tim\\x00tanstaaftanstaaf'
    """

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._said = b"\0".join([b"", username.encode(), password.encode()])

    def first(self) -> bytes:
        """See ``Mechanism``. User and password."""
        return self._said

    def respond(self, challenge: bytes) -> bytes | None:
        """See ``Mechanism``. No further message follows."""
        return None


class ScramLogin:
    """SCRAM: each side proves that it knows the password, without sending it. Without channel binding.

    Args:
        nonce: unique letters; generated if None.

    Source: RFC 5802.
    """

    def __init__(self, digest: str, username: str, password: str, nonce: str | None = None) -> None:
        self.name = f"SCRAM-SHA-{digest.removeprefix('sha')}"
        self._digest = digest
        # As in Kafka's own clients and brokers, names and passwords are not prepared (RFC 4013).
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None
        self._complete = False

    def first(self) -> bytes:
        """See ``Mechanism``. The user's name and a nonce."""
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """See ``Mechanism``. Sends the client's proof first; then checks the broker's."""
        if self._signature is None:
            return self._prove(challenge)
        if not self._complete:
            self._verify(challenge)
            self._complete = True
        return None

    def _prove(self, challenge: bytes) -> bytes:
        fields = self._fields(challenge)
        nonce = fields.get("r", "")
        try:
            salt, rounds = base64.b64decode(fields.get("s", ""), validate=True), int(fields.get("i", ""))
        except (ValueError, binascii.Error):
            raise self._wrong("salt or iteration count are missing") from None
        if not salt or not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._wrong("it does not continue what the client began")
        if not _FEWEST_ROUNDS <= rounds <= _MOST_ROUNDS:
            raise self._wrong(f"{rounds} iterations; {_FEWEST_ROUNDS} to {_MOST_ROUNDS} are taken")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        final = f"c=biws,r={nonce}"
        message = b",".join([self._bare.encode(), challenge, final.encode()])
        signature = self._hmac(hashlib.new(self._digest, client_key).digest(), message)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        fields = self._fields(challenge)
        if "e" in fields:
            raise SaslAuthenticationException(f"The broker says: {fields['e']}")
        try:
            signature = base64.b64decode(fields.get("v", ""), validate=True)
        except (ValueError, binascii.Error):
            raise self._wrong("its signature is not base64") from None
        assert self._signature is not None
        if not hmac.compare_digest(signature, self._signature):
            raise SaslAuthenticationException(
                "The broker does not know the password either: its signature is not what it must be. Whoever answers "
                "may not be the broker"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)

    def _fields(self, challenge: bytes) -> Mapping[str, str]:
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise self._wrong("it is not UTF-8") from None
        found: dict[str, str] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            found.setdefault(name, value)
        return found

    def _wrong(self, what: str) -> SaslAuthenticationException:
        return SaslAuthenticationException(f"The broker's answer is not what {self.name} says: {what}")


class BearerLogin:
    """OAUTHBEARER: a token that an authorization server has issued.

    Source: RFC 7628, KIP-255.
    """

    name = "OAUTHBEARER"

    def __init__(self, token: str, expired: Callable[[], bool] = lambda: False) -> None:
        self._token = token
        self._expired = expired
        self._refused: str | None = None

    @property
    def is_expired(self) -> bool:
        """True if the token has expired: a new one may be accepted."""
        return self._expired()

    def first(self) -> bytes:
        """See ``Mechanism``. The token and its extensions."""
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """See ``Mechanism``. Raises ``SaslAuthenticationException`` with the broker's reason, if it gives one."""
        if not challenge:
            return None
        # A broker refuses with JSON first; the login fails after the client has confirmed it.
        try:
            told = json.loads(challenge)
        except ValueError:
            raise SaslAuthenticationException("The broker's answer is not what OAUTHBEARER says") from None
        self._refused = str(told.get("status", challenge)) if isinstance(told, dict) else str(told)
        return b"\x01"


def mechanism_of(name: str, username: str, password: str) -> Mechanism:
    """The mechanism that logs in with user and password."""
    if name == "PLAIN":
        return PlainLogin(username, password)
    return ScramLogin(f"sha{name.rpartition('-')[2]}", username, password)


class Exchange:
    """One login: client and broker agree on the mechanism, then exchange its messages."""

    def __init__(self, mechanism: Mechanism, address: object) -> None:
        self.mechanism = mechanism
        self._address = address

    def agreed(self, error_code: int, offered: Sequence[str]) -> bytes:
        """Handles the broker's list of mechanisms; returns the first message. Raises ``SaslAuthenticationException`` if
        the client's mechanism is not among them.
        """
        if error_code == UNSUPPORTED_MECHANISM:
            names = ", ".join(offered) or "none"
            raise self._failed(f"it does not take sasl.mechanism={self.mechanism.name}, but {names}")
        if error_code == ILLEGAL_STATE:
            raise self._failed("its listener takes no logins, because it has no SASL (security.protocol)")
        if error_code:
            raise self._failed(f"it answers the handshake with error {error_code}")
        return self.mechanism.first()

    def answered(self, error_code: int, message: str | None, challenge: bytes) -> bytes | None:
        """Handles a response of the broker; returns the next message, or None when the login is complete. Raises
        ``SaslAuthenticationException`` if the broker rejects the login, or the client rejects the response.
        """
        if error_code:
            raise self._failed(message or f"error {error_code}")
        try:
            return self.mechanism.respond(challenge)
        except SaslAuthenticationException as error:
            raise self._failed(str(error)) from error

    def _failed(self, why: str) -> SaslAuthenticationException:
        return SaslAuthenticationException(
            f"The login with {self.mechanism.name} at the broker {self._address} has failed: {why}. Check "
            "sasl.mechanism, sasl.jaas.config and the other sasl.* settings of the client"
        )


#: A broker's own answer is "handshake failed: Broker: ...".
_LOST: Final = "handshake failed: Local: "


def refuses_login(error: ck.KafkaError) -> bool:
    """True if the broker has refused the login; False also if the connection ended before it answered.

    >>> refuses_login(ck.KafkaError(ck.KafkaError._AUTHENTICATION, "SASL authentication failed: bad password"))
    True
    >>> refuses_login(ck.KafkaError(ck.KafkaError._AUTHENTICATION, "mechanism handshake failed: Local: Timed out"))
    False
    """
    return error.code() == ck.KafkaError._AUTHENTICATION and _LOST not in error.str()
