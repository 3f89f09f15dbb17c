"""The credentials of a client, and its logins over connections.

Tokens and Kerberos tickets need the network, so a separate thread fetches them, which ``close`` joins; the thread of
the connections does not block. ``Login`` logs in before a connection is used, and again before the session ends.

Source: KIP-768 and KIP-1139 (tokens), KIP-368 (sessions that end), ExpiringCredentialRefreshingLogin, KerberosLogin and
SaslClientAuthenticator of Kafka's clients; RFC 4752, RFC 6749 section 4.4, RFC 7523.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import random
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.errors import ConfigException, KafkaException, SaslAuthenticationException
from penstock.kafka.network.sasl import BearerLogin, Exchange, Mechanism, mechanism_of
from penstock.kafka.network.transport import Link, LinkLostException
from penstock.kafka.protocol import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    BrokerRequest,
    request,
    response,
)
from penstock.kafka.settings.security import KerberosSettings, SaslSettings, TokenSettings
from penstock.telemetry.logs import SeldomLog

#: No protection of the following messages, and no limit of their size.
_NO_LAYER: Final = 1
_LAYERS_BYTES: Final = 4


def gssapi_library() -> Any:
    """The package gssapi."""
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigException(
            "sasl.mechanism",
            "GSSAPI",
            "it needs the Python package gssapi: pip install 'penstock[kerberos]' (which needs the development files "
            f"of Kerberos, libkrb5-dev on Debian). The import says: {error}",
        ) from error


class Kerberos:
    """One login."""

    name = "GSSAPI"

    def __init__(self, context: Any, token: bytes) -> None:
        self._context = context
        self._token = token
        self._agreed = False

    def first(self) -> bytes:
        """See ``Mechanism``. The token of the ticket."""
        return self._token

    def respond(self, challenge: bytes) -> bytes | None:
        """See ``Mechanism``. Verifies the broker, then agrees with it on a security layer."""
        if self._agreed:
            return None
        try:
            if not self._context.complete:
                # No message is left once the broker has proved its identity; the security layers follow.
                return bytes(self._context.step(challenge) or b"")
            return self._agree(challenge)
        except SaslAuthenticationException:
            raise
        except Exception as error:
            raise SaslAuthenticationException(f"Kerberos says: {error}") from error

    def _agree(self, challenge: bytes) -> bytes:
        offered = bytes(self._context.unwrap(challenge).message)
        if len(offered) != _LAYERS_BYTES or not offered[0] & _NO_LAYER:
            raise SaslAuthenticationException("The broker asks for a protection that Kafka's clients do not have")
        self._agreed = True
        return bytes(self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message)


def kerberos_login(settings: KerberosSettings, host: str) -> Kerberos:
    """Gets a ticket for a broker."""
    gssapi = gssapi_library()
    try:
        name = gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal) if settings.principal else None
        store = {"client_keytab": settings.keytab, "ccache": "MEMORY:"} if settings.keytab else None
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        service = gssapi.Name(f"{settings.service}@{host}", gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        context = gssapi.SecurityContext(name=service, creds=credentials, usage="initiate", flags=flags)
        return Kerberos(context, bytes(context.step() or b""))
    except Exception as error:
        who = settings.principal or "the client"
        raise SaslAuthenticationException(
            f"There is no Kerberos ticket of {who} for {settings.service}@{host}: {error}. Check sasl.jaas.config "
            "(principal, keyTab), sasl.kerberos.service.name and krb5.conf"
        ) from error


logger = logging.getLogger(__name__)
R = TypeVar("R")

_END_S: Final = 1.0


class Credentials(Protocol):
    """Makes the mechanism of each login."""

    def mechanism(self, host: str) -> Mechanism | None:
        """The mechanism of a login at a broker; None while it is being prepared, then `wake` is called. Raises
        ``SaslAuthenticationException`` if there are no credentials, and a retry does not help.
        """

    def close(self) -> None:
        """Ends a preparation in progress."""


def credentials_of(settings: SaslSettings, name: str, wake: Callable[[], None]) -> Credentials:
    """Creates the credentials of these settings.

    Args:
        wake: called from another thread when a requested mechanism is ready.
    """
    if settings.tokens is not None:
        return _Tokens(settings.tokens, name, wake)
    if settings.kerberos is not None:
        gssapi_library()
        return _Tickets(settings.kerberos, name, wake)
    return _Password(settings)


class _Password:
    def __init__(self, settings: SaslSettings) -> None:
        self._settings = settings

    def mechanism(self, host: str) -> Mechanism | None:
        return mechanism_of(self._settings.mechanism, self._settings.username, self._settings.password)

    def close(self) -> None:
        pass


class _Errand(Generic[R]):
    """Runs one long call at a time, on a separate thread."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name = name
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._found: R | None = None
        self._failure: Exception | None = None

    def begin(self, call: Callable[[], R]) -> None:
        """Starts the call, unless one is running."""
        if self._thread is not None:
            return

        def run() -> None:
            try:
                self._found = call()
            except Exception as error:
                self._failure = error
            self._wake()

        self._thread = threading.Thread(target=run, name=f"login-{self._name}", daemon=True)
        self._thread.start()

    def ended(self) -> R | None:
        """Returns the result of the call, once; None while it runs, or if none was begun."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        found, failure = self._found, self._failure
        self._found = self._failure = None
        if failure is not None:
            raise failure
        return found

    def close(self) -> None:
        """Waits a moment for the call to end."""
        if self._thread is not None:
            self._thread.join(_END_S)


class _Tokens:
    """The newest token; fetches another one before it expires."""

    def __init__(self, settings: TokenSettings, name: str, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._name = name
        self._errand = _Errand[AccessToken](name, wake)
        self._seldom = SeldomLog(logger)
        self._token: AccessToken | None = None
        self._failed = 0
        self._not_before = 0.0

    def mechanism(self, host: str) -> Mechanism | None:
        try:
            self._token = self._errand.ended() or self._token
        except TokenException as error:
            if not error.retriable:
                raise SaslAuthenticationException(str(error)) from error
            wait = min(self._settings.backoff_max, self._settings.backoff * 2.0 ** min(self._failed, 30))
            self._failed, self._not_before = self._failed + 1, time.monotonic() + wait
            self._seldom.warning("token", "The login of %s: %s; the client asks again", self._name, error)
        now, token = time.time(), self._token
        if token is not None and now < token.renew_at:
            self._failed = 0
            return self._bearer(token)
        if time.monotonic() >= self._not_before:
            self._errand.begin(lambda: fetch(self._settings))
        elif token is not None and now < token.expires_at:
            return self._bearer(token)
        return None

    def _bearer(self, token: AccessToken) -> BearerLogin:
        return BearerLogin(token.text, lambda: time.time() >= token.expires_at)

    def close(self) -> None:
        self._errand.close()


class _Tickets:
    """A ticket for each login at a broker."""

    def __init__(self, settings: KerberosSettings, name: str, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._name = name
        self._wake = wake
        self._errands: dict[str, _Errand[Kerberos]] = {}

    def mechanism(self, host: str) -> Mechanism | None:
        errand = self._errands.setdefault(host, _Errand(self._name, self._wake))
        try:
            found = errand.ended()
        except KafkaException as error:
            raise SaslAuthenticationException(str(error)) from error
        if found is None:
            errand.begin(lambda: kerberos_login(self._settings, host))
        return found

    def close(self) -> None:
        for errand in self._errands.values():
            errand.close()


_LARGEST_ANSWER: Final = 1 << 20
#: The fraction of its lifetime after which a token is renewed.
_RENEW_AFTER: Final = 0.8
_DEFAULT_LIFE_S: Final = 3600.0
_RETRIED: Final = frozenset({408, 425, 429})


class TokenException(KafkaException):
    """No token was issued.

    Attributes:
        retriable: True if another request may help.
    """

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the client's secret is only for the configured address and scheme."""

    def redirect_request(self, *given: Any, **more: Any) -> None:
        """Returns None: a redirect is an error, like any other answer without a token."""
        return


@dataclass(frozen=True)
class AccessToken:
    """A token and its lifetime, in seconds of `time.time`."""

    text: str = field(repr=False)
    renew_at: float
    expires_at: float


def fetch(settings: TokenSettings, now: float | None = None) -> AccessToken:
    """Requests a token from the endpoint. Raises ``TokenException`` if it returns none, or cannot be reached."""
    now = time.time() if now is None else now
    form = {"grant_type": settings.grant_type}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if settings.grant_type.endswith("jwt-bearer"):
        form["assertion"] = _assertion(settings, now)
    if settings.scope:
        form["scope"] = settings.scope
    if settings.client_id:
        pair = f"{settings.client_id}:{settings.client_secret}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
    request = urllib.request.Request(settings.url, urllib.parse.urlencode(form).encode(), headers)
    context = None
    if settings.url.startswith("https://"):
        context = ssl.create_default_context()
        if settings.trusted:
            context.load_verify_locations(cadata=settings.trusted)
    try:
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=max(settings.connect_timeout, settings.read_timeout)) as answer:
            body = answer.read(_LARGEST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(500).decode("utf-8", "replace").strip()
        retriable = error.code >= 500 or error.code in _RETRIED
        raise TokenException(_text(settings, f"{error.code} {error.reason}: {said}"), retriable=retriable) from error
    except (OSError, ValueError) as error:
        raise TokenException(_text(settings, str(error)), retriable=True) from error
    return _token(settings, body, now)


def _token(settings: TokenSettings, body: bytes, now: float) -> AccessToken:
    try:
        told = json.loads(body)
        text = told.get("access_token") or told.get("id_token")
    except (ValueError, AttributeError) as error:
        raise TokenException(_text(settings, "its answer is no JSON object"), retriable=True) from error
    if not isinstance(text, str) or not text:
        raise TokenException(_text(settings, "its answer has no access_token"), retriable=False)
    claims = claims_of(text)
    life = told.get("expires_in")
    expires = claims.get("exp")
    if not isinstance(expires, int | float):
        expires = now + (float(life) if isinstance(life, int | float) else _DEFAULT_LIFE_S)
    began = claims.get("iat")
    begin = min(now, float(began)) if isinstance(began, int | float) else now
    return AccessToken(text, max(now, begin + (float(expires) - begin) * _RENEW_AFTER), float(expires))


def claims_of(token: str) -> dict[str, Any]:
    """Returns the claims of a token; empty if it is no JWT."""
    parts = token.split(".")
    if len(parts) < 2:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(settings: TokenSettings, why: str) -> str:
    return (
        f"No token from {settings.url} (sasl.oauthbearer.token.endpoint.url): {why}. Check "
        "sasl.oauthbearer.client.credentials.*, sasl.oauthbearer.scope and sasl.oauthbearer.assertion.*"
    )


# -------------------------------------------------------------------------------------------------------- assertions
def _assertion(settings: TokenSettings, now: float) -> str:
    given = settings.assertion
    try:
        if "file" in given:
            return Path(given["file"]).read_text(encoding="utf-8").strip()
        return jwt_assertion(settings, now)
    except (OSError, ValueError, TypeError) as error:
        raise TokenException(
            f"The assertion for {settings.url} cannot be made (sasl.oauthbearer.assertion.*): {error}", retriable=False
        ) from error


def jwt_assertion(settings: TokenSettings, now: float) -> str:
    """A signed JWT with the claims that the settings name.

    Raises:
        OSError, ValueError, TypeError: a file cannot be read, or holds no suitable key.
    """
    given = settings.assertion
    template: dict[str, Any] = {}
    if "template.file" in given:
        template = json.loads(Path(given["template.file"]).read_text(encoding="utf-8"))
    algorithm = given.get("algorithm", "RS256")
    header = {"alg": algorithm, "typ": "JWT", **template.get("header", {})}
    claims: dict[str, Any] = {
        "iat": int(now),
        "exp": int(now) + int(given.get("claim.exp.seconds", "300")),
        "nbf": int(now) - int(given.get("claim.nbf.seconds", "60")),
        **template.get("payload", {}),
    }
    for name in ("aud", "iss", "sub"):
        if f"claim.{name}" in given:
            claims[name] = given[f"claim.{name}"]
    if given.get("claim.jti.include") == "true":
        claims["jti"] = str(uuid.uuid4())
    signed = f"{_part(header)}.{_part(claims)}"
    return f"{signed}.{_base64(_signature(settings, algorithm, signed.encode()))}"


def _signature(settings: TokenSettings, algorithm: str, message: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    passphrase = settings.assertion.get("private.key.passphrase")
    path = settings.assertion.get("private.key.file")
    if not path:
        raise ValueError("sasl.oauthbearer.assertion.private.key.file or .file is needed")
    key = load_pem_private_key(Path(path).read_bytes(), passphrase.encode() if passphrase else None)
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(message, padding.PKCS1v15(), hashes.SHA256())
    raise ValueError(f"{path} holds no key for {algorithm}")


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


#: A new login begins within this fraction of a session's lifetime.
_AGAIN: Final = (0.85, 0.95)


#: Sends a request over a connection, and passes on its answer.
Ask = Callable[[Link, BrokerRequest, Callable[[memoryview], None]], None]


class Login:
    """The logins over one connection.

    Attributes:
        begin_at: When the next login begins (monotonic seconds): at once for the first, later before the session ends.
    """

    def __init__(self, link: Link, credentials: Credentials, ask: Ask, clock: Callable[[], float]) -> None:
        self._link = link
        self._credentials = credentials
        self._ask = ask
        self._clock = clock
        self.begin_at = float("-inf")

    def begin(self) -> None:
        """Starts the login if the credentials are ready; otherwise call it again. Raises
        ``SaslAuthenticationException`` if there are no credentials.
        """
        mechanism = self._credentials.mechanism(self._link.address.host)
        if mechanism is None:
            return
        self.begin_at = float("inf")
        self._link.usable = False
        exchange = Exchange(mechanism, self._link.address)

        def agreed(payload: memoryview) -> None:
            self._say(exchange, exchange.agreed(*response(SASL_HANDSHAKE, payload)))

        self._ask(self._link, request(SASL_HANDSHAKE, mechanism.name), agreed)

    def _say(self, exchange: Exchange, said: bytes) -> None:
        def answered(payload: memoryview) -> None:
            *answer, lifetime_ms = response(SASL_AUTHENTICATE, payload)
            try:
                more = exchange.answered(*answer)
            except SaslAuthenticationException as error:
                if isinstance(exchange.mechanism, BearerLogin) and exchange.mechanism.is_expired:
                    # The next attempt fetches another token.
                    raise LinkLostException(f"The token had expired: {error}") from error
                raise
            if more is not None:
                self._say(exchange, more)
                return
            self._link.usable = True
            if lifetime_ms > 0:
                self.begin_at = self._clock() + lifetime_ms / 1000 * random.uniform(*_AGAIN)

        self._ask(self._link, request(SASL_AUTHENTICATE, said), answered)
