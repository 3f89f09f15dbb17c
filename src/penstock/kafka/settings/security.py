"""The settings for encryption and login of any Kafka client.

Main types: `TlsSettings`, `SaslSettings` with `TokenSettings` and `KerberosSettings`. `families` creates them from
Java's settings; `librdkafka_tls` and `librdkafka_sasl` convert them to librdkafka's settings, `client_context` to an
OpenSSL context for the worker's own connections.

Thread: none; values.

Source: org.apache.kafka.common.config.{SslConfigs, SaslConfigs}; librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.kafka.settings.values import RdValue
from penstock.keystores import KeyMaterial, load_key, openssl_cipher, set_ciphers, set_versions, trust


@dataclass(frozen=True)
class TlsSettings:
    """The encryption of connections.

    Attributes:
        trusted: Certificates, PEM; empty for the system's.
        keys: The client's certificates for brokers, the first of each kind of key; empty for none.
        check_name: True if a broker's certificate must be for its host name.
        ciphers: Java's names of cipher suites; empty for OpenSSL's own.
        versions: Java's names of the versions of TLS; empty for all.
        key_location: The origin of the keys, for messages.
    """

    trusted: str = field(default="", repr=False)
    keys: tuple[KeyMaterial, ...] = field(default=(), repr=False)
    check_name: bool = True
    ciphers: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    key_location: str = ""


@dataclass(frozen=True)
class TokenSettings:
    """The source of tokens for OAUTHBEARER.

    Attributes:
        url: The token endpoint.
        grant_type: OAuth's name of the grant.
        client_id, client_secret, scope: The client's credentials for the endpoint, unless empty.
        assertion: `sasl.oauthbearer.assertion.*` by the rest of the name, as texts; for the grant type jwt-bearer.
        trusted: Trusted certificates, PEM, in addition to the system's.
        connect_timeout, read_timeout: The timeouts of a request, in seconds.
        backoff, backoff_max: The wait between two failed requests, in seconds.
    """

    url: str
    grant_type: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    assertion: Mapping[str, str] = field(default_factory=dict, repr=False)
    trusted: str = field(default="", repr=False)
    connect_timeout: float = 10.0
    read_timeout: float = 10.0
    backoff: float = 0.1
    backoff_max: float = 10.0


@dataclass(frozen=True)
class KerberosSettings:
    """The principal and service of a GSSAPI login.

    Attributes:
        service: The first part of the brokers' principals.
        principal: The client's principal; empty for that of the key table or the ticket.
        keytab: The file of its key; empty for an existing ticket.
        kinit: `sasl.kerberos.kinit.cmd`, empty for the default.
    """

    service: str = "kafka"
    principal: str = ""
    keytab: str = ""
    kinit: str = ""


@dataclass(frozen=True)
class SaslSettings:
    """The login of a client.

    Attributes:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.
        username, password: For PLAIN and SCRAM.
        tokens: For OAUTHBEARER.
        kerberos: For GSSAPI.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenSettings | None = None
    kerberos: KerberosSettings | None = None


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Creates the TLS context of the worker's own connections.

    Raises:
        ConfigException: OpenSSL rejects a key, a certificate or the cipher suites.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = settings.check_name
    context.verify_mode = ssl.CERT_REQUIRED
    set_versions(context, settings.versions)
    set_ciphers(context, settings.ciphers)
    if settings.trusted:
        trust(context, settings.trusted)
    else:
        context.load_default_certs()
    for material in reversed(settings.keys):
        load_key(context, material, settings.key_location)
    return context


def librdkafka_tls(settings: TlsSettings) -> dict[str, RdValue]:
    """The encryption in librdkafka's settings, which take one key."""
    found: dict[str, RdValue] = {}
    if settings.trusted:
        found["ssl.ca.pem"] = settings.trusted
    if settings.keys:
        material = settings.keys[0]
        found |= {"ssl.key.pem": material.key, "ssl.certificate.pem": material.chain or material.key}
        if material.password:
            found["ssl.key.password"] = material.password
    found["ssl.endpoint.identification.algorithm"] = "https" if settings.check_name else "none"
    named = [suite for suite in map(openssl_cipher, settings.ciphers) if suite]
    if named:
        found["ssl.cipher.suites"] = ":".join(named)
    return found


#: librdkafka's names for the rest of `sasl.oauthbearer.assertion.`, if they differ.
_ASSERTION = {"template.file": "jwt.template.file"}


def librdkafka_sasl(settings: SaslSettings) -> dict[str, RdValue]:
    """The login in librdkafka's settings."""
    found: dict[str, RdValue] = {"sasl.mechanism": settings.mechanism}
    if settings.username:
        found |= {"sasl.username": settings.username, "sasl.password": settings.password}
    if (tokens := settings.tokens) is not None:
        found |= {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.grant.type": tokens.grant_type}
        given = {
            "token.endpoint.url": tokens.url,
            "client.id": tokens.client_id,
            "client.secret": tokens.client_secret,
            "scope": tokens.scope,
            **{f"assertion.{_ASSERTION.get(name, name)}": text for name, text in tokens.assertion.items()},
        }
        found |= {f"sasl.oauthbearer.{name}": text for name, text in given.items() if text}
    if (kerberos := settings.kerberos) is not None:
        found["sasl.kerberos.service.name"] = kerberos.service
        if kerberos.principal:
            found["sasl.kerberos.principal"] = kerberos.principal
        if kerberos.keytab:
            found["sasl.kerberos.keytab"] = kerberos.keytab
        if kerberos.kinit:
            command = f'{kerberos.kinit} -t "%{{sasl.kerberos.keytab}}" -k %{{sasl.kerberos.principal}}'
            found["sasl.kerberos.kinit.cmd"] = command
    return found
