"""Tokens for OAUTHBEARER, from a token endpoint.

Main types: `AccessToken`, `TokenException`; main function: `fetch`, which makes one request and blocks until the
response or the timeout. `jwt_assertion` signs the assertion for the grant type jwt-bearer.
`penstock.kafka.network.credentials` decides when and on which thread to fetch.

Thread: any.

Source: RFC 6749 section 4.4, RFC 7523; KIP-768, KIP-1139; HttpJwtRetriever and DefaultAssertionCreator of Kafka.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import KafkaException
from penstock.kafka.settings.security import TokenSettings

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
    """Follows no redirect: the client's secret is for the address that was configured, and for no other scheme."""

    def redirect_request(self, *given: Any, **more: Any) -> None:
        """None: a redirect is an error, like any other answer without a token."""
        return


@dataclass(frozen=True)
class AccessToken:
    """A token and its lifetime, in seconds of `time.time`."""

    text: str = field(repr=False)
    renew_at: float
    expires_at: float


def fetch(settings: TokenSettings, now: float | None = None) -> AccessToken:
    """Requests a token from the endpoint.

    Raises:
        TokenException: it returns none, or cannot be reached.
    """
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
    """Returns the claims of a token; nothing if it is no JWT."""
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
