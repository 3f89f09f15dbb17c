"""GSSAPI: a login with a Kerberos ticket.

Main type: `Kerberos` (one login), made by `begin`, which may ask the key distribution centre and blocks meanwhile.
Needs the package gssapi, which `pip install penstock[kerberos]` brings.

Thread: `begin` any; a `Kerberos` belongs to the thread that owns its connection.

Source: RFC 4752; SaslClientAuthenticator and KerberosLogin of Kafka.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from penstock.errors import ConfigException, SaslAuthenticationException
from penstock.kafka.security import KerberosSettings

#: No protection of what follows, and no limit of its size.
_NO_LAYER: Final = 1
_LAYERS_BYTES: Final = 4


def library() -> Any:
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
        context: the security context of gssapi, begun.
        token: what it said first.
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
        """See ``Mechanism``. Lets the broker prove itself, then agrees with it on a security layer."""
        if self._agreed:
            return None
        try:
            if not self._context.complete:
                # Nothing is left to say when the broker has proved itself; the layers follow.
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


def begin(settings: KerberosSettings, host: str) -> Kerberos:
    """Take a ticket for a broker.

    Args:
        settings: who logs in.
        host: of the broker.

    Raises:
        ConfigException: gssapi is not installed.
        SaslAuthenticationException: there is no ticket to be had.
    """
    gssapi = library()
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
