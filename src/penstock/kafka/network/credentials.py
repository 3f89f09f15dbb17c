"""The credentials of a producer: a mechanism for each login, prepared in advance if that takes a while.

Main type: `Credentials`, made by `credentials_of`. Tokens and Kerberos tickets are fetched on a separate thread,
because both need the network; the caller does not block. `Kerberos` is one login with a ticket (GSSAPI); it needs the
package gssapi, which `pip install penstock[kerberos]` brings.

Thread: the one that owns the connections. Each fetch has a thread of its own, which `close` joins.

Source: KIP-768 (tokens), ExpiringCredentialRefreshingLogin and KerberosLogin of Kafka's clients; RFC 4752.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.errors import ConfigException, KafkaException, SaslAuthenticationException
from penstock.kafka.network import tokens
from penstock.kafka.network.sasl import BearerLogin, Mechanism, mechanism_of
from penstock.kafka.settings.security import KerberosSettings, SaslSettings, TokenSettings
from penstock.telemetry.logs import SeldomLog

#: No protection of the following messages, and no limit of their size.
_NO_LAYER: Final = 1
_LAYERS_BYTES: Final = 4


def gssapi_library() -> Any:
    """The package gssapi.

    Raises:
        ConfigException: it is not installed.
    """
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
    """One login.

    Args:
        context: the started security context of gssapi.
        token: its first token.
    """

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
                # No message is left when the broker has proved its identity; the layers follow.
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
    """Gets a ticket for a broker.

    Args:
        settings: the principal and its key table.
        host: the host of the broker.

    Raises:
        ConfigException: gssapi is not installed.
        SaslAuthenticationException: there is no ticket.
    """
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
        """The mechanism of a login at a broker; None while it is being prepared, then `wake` is called.

        Raises:
            SaslAuthenticationException: there are no credentials, and a retry does not help.
        """

    def close(self) -> None:
        """Ends a preparation in progress."""


def credentials_of(settings: SaslSettings, name: str, wake: Callable[[], None]) -> Credentials:
    """Creates the credentials of these settings.

    Args:
        settings: mechanism and secrets.
        name: the producer's name, for threads and messages.
        wake: called from another thread when a requested mechanism is ready.

    Raises:
        ConfigException: a package is missing.
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
    """Runs one long call at a time, on a thread of its own."""

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
        """Returns the result of the call, once; None while it runs, or if none was begun.

        Raises:
            Exception: the exception of the call.
        """
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        found, failure = self._found, self._failure
        self._found = self._failure = None
        if failure is not None:
            raise failure
        return found

    def close(self) -> None:
        """Waits a moment for its end."""
        if self._thread is not None:
            self._thread.join(_END_S)


class _Tokens:
    """The newest token; fetches another one before it expires."""

    def __init__(self, settings: TokenSettings, name: str, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._name = name
        self._errand = _Errand[tokens.AccessToken](name, wake)
        self._seldom = SeldomLog(logger)
        self._token: tokens.AccessToken | None = None
        self._failed = 0
        self._not_before = 0.0

    def mechanism(self, host: str) -> Mechanism | None:
        try:
            self._token = self._errand.ended() or self._token
        except tokens.TokenException as error:
            if not error.retriable:
                raise SaslAuthenticationException(str(error)) from error
            wait = min(self._settings.backoff_max, self._settings.backoff * 2.0 ** min(self._failed, 30))
            self._failed, self._not_before = self._failed + 1, time.monotonic() + wait
            self._seldom.warning("token", "The producer of %s: %s; it is asked again", self._name, error)
        now, token = time.time(), self._token
        if token is not None and now < token.renew_at:
            self._failed = 0
            return self._bearer(token)
        if time.monotonic() >= self._not_before:
            self._errand.begin(lambda: tokens.fetch(self._settings))
        elif token is not None and now < token.expires_at:
            return self._bearer(token)
        return None

    def _bearer(self, token: tokens.AccessToken) -> BearerLogin:
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
