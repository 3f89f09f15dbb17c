"""The settings for encryption and login of any Kafka client: parsed from Java's, for librdkafka and for OpenSSL.

Source: org.apache.kafka.common.config.{SslConfigs, SaslConfigs}; org.apache.kafka.common.security.JaasConfig.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock.errors import ConfigException
from penstock.kafka.settings import values as value
from penstock.kafka.settings.values import RdValue
from penstock.keystores import (
    KeyMaterial,
    enabled_versions,
    key_material,
    load_key,
    openssl_cipher,
    set_ciphers,
    set_versions,
    trust,
    trusted_certificates,
)


@dataclass(frozen=True)
class LeftOut:
    """A setting that is not used, or must not be, with its value (secrets hidden) and the reason."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class TlsSettings:
    """The encryption of connections.

    Attributes:
        trusted: Certificates, PEM; empty for the system's.
        keys: The client's certificates for brokers, the first of each kind of key; empty for none.
        check_name: True if a broker's certificate must be for its host name.
        ciphers: Java's names of cipher suites; empty for OpenSSL's own.
        versions: Java's names of the versions of TLS; empty for all.
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
        client_id, client_secret, scope: The client's credentials for the endpoint, unless empty.
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
    """The login of a client."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenSettings | None = None
    kerberos: KerberosSettings | None = None


V = TypeVar("V")


@dataclass
class TranslatedFamily(Generic[V]):
    """The result of one family: its value, and faults and unused settings by Java name."""

    value: V | None = None
    faults: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)


def tls(settings: Mapping[str, str]) -> TranslatedFamily[TlsSettings]:
    """Key and trust stores (PEM as file or text, PKCS12, JKS), host name check, cipher suites, versions.

    They apply only to encrypted connections, because a worker's file may name the stores of its https listeners. Reads
    the files.
    """
    part = TranslatedFamily[TlsSettings]()
    word = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if word not in ("https", "", "none"):
        part.faults["ssl.endpoint.identification.algorithm"] = "String must be one of: https, or empty for no check"
    if settings.get("security.protocol", "PLAINTEXT").strip().upper() not in ("SSL", "SASL_SSL"):
        return part
    trusted = ""
    keys: tuple[KeyMaterial, ...] = ()
    versions: tuple[str, ...] = ()
    try:
        trusted = _trusted(settings, part)
    except ConfigException as error:
        part.faults[error.name or "ssl.truststore.location"] = error.reason
    try:
        keys = _keys(settings, part)
    except ConfigException as error:
        part.faults[error.name or "ssl.keystore.location"] = error.reason
    try:
        versions = enabled_versions(settings.get("ssl.enabled.protocols", ""))
    except ConfigException as error:
        part.faults["ssl.enabled.protocols"] = error.reason
    part.value = TlsSettings(
        trusted,
        keys,
        check_name=word == "https",
        ciphers=tuple(value.items(settings.get("ssl.cipher.suites", ""))),
        versions=versions,
        key_location=settings.get("ssl.keystore.location", ""),
    )
    return part


def _trusted(settings: Mapping[str, str], part: TranslatedFamily[TlsSettings]) -> str:
    if settings.get("ssl.truststore.certificates") and settings.get("ssl.truststore.location"):
        part.faults["ssl.truststore.certificates"] = "set either this or ssl.truststore.location"
    return trusted_certificates(settings)


def _keys(settings: Mapping[str, str], part: TranslatedFamily[TlsSettings]) -> tuple[KeyMaterial, ...]:
    key, chain = settings.get("ssl.keystore.key", ""), settings.get("ssl.keystore.certificate.chain", "")
    if bool(key) != bool(chain):
        missing = "ssl.keystore.certificate.chain" if key else "ssl.keystore.key"
        part.faults[missing] = "a private key and its certificate chain are needed together"
    return tuple(key_material(settings))


_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler",)
_RETRIEVERS: Final = {
    "DefaultJwtRetriever": "client_credentials",
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}


#: Below `sasl.oauthbearer.assertion.`, with the conversions that check them.
_ASSERTION: Final = {
    "algorithm": value.one_of({"rs256": "RS256", "es256": "ES256"}, ignore_case=True),
    "claim.aud": value.same,
    "claim.exp.seconds": value.integer(1, 2**31 - 1),
    "claim.iss": value.same,
    "claim.jti.include": value.boolean,
    "claim.nbf.seconds": value.integer(0, 2**31 - 1),
    "claim.sub": value.same,
    "file": value.same,
    "private.key.file": value.same,
    "private.key.passphrase": value.same,
    "template.file": value.same,
}


def sasl(settings: Mapping[str, str]) -> TranslatedFamily[SaslSettings]:
    """Mechanism and credentials: PLAIN, SCRAM, OAUTHBEARER with a token endpoint, GSSAPI."""
    part = TranslatedFamily[SaslSettings]()
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    if not protocol.startswith("SASL"):
        return part
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    try:
        module, options = parse_jaas(settings["sasl.jaas.config"]) if "sasl.jaas.config" in settings else ("", {})
    except ValueError as error:
        part.faults["sasl.jaas.config"] = str(error)
        return part
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        _password_login(mechanism, module, options, part)
    elif mechanism == "OAUTHBEARER":
        _token_login(settings, module, options, part)
    elif mechanism == "GSSAPI":
        _kerberos_login(settings, module, options, part)
    else:
        part.faults["sasl.mechanism"] = (
            "String must be one of: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI"
        )
    return part


def _password_login(
    mechanism: str, module: str, options: Mapping[str, str], part: TranslatedFamily[SaslSettings]
) -> None:
    expected = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    if module != expected or not {"username", "password"} <= options.keys():
        part.faults["sasl.jaas.config"] = (
            f"{mechanism} needs the {expected} of Kafka with username and password, as in: "
            f'...{expected} required username="me" password="secret";'
        )
        return
    if options.get("tokenauth", "false").lower() == "true":
        part.faults["sasl.jaas.config"] = "delegation tokens (tokenauth) are not available"
        return
    part.value = SaslSettings(mechanism, options["username"], options["password"])


def _token_login(
    settings: Mapping[str, str], module: str, options: Mapping[str, str], part: TranslatedFamily[SaslSettings]
) -> None:
    if module not in ("", "OAuthBearerLoginModule"):
        part.faults["sasl.jaas.config"] = f"OAUTHBEARER needs Kafka's OAuthBearerLoginModule, not {module}"
    handler = settings.get("sasl.login.callback.handler.class", "").rpartition(".")[2]
    if handler and handler not in _HANDLERS:
        part.faults["sasl.login.callback.handler.class"] = (
            "a Java callback handler cannot be loaded; Kafka's own OAuthBearerLoginCallbackHandler with "
            "sasl.oauthbearer.token.endpoint.url is available"
        )
    retriever = settings.get("sasl.oauthbearer.jwt.retriever.class", "DefaultJwtRetriever").rpartition(".")[2]
    if retriever not in _RETRIEVERS:
        part.faults["sasl.oauthbearer.jwt.retriever.class"] = (
            f"a Java class cannot be loaded; available: {', '.join(_RETRIEVERS)}"
        )
        return
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url.startswith(("http://", "https://")):
        part.faults["sasl.oauthbearer.token.endpoint.url"] = (
            "OAUTHBEARER needs the http or https address of a token endpoint; tokens in files and unsecured tokens are "
            "not available"
        )
        return

    def seconds(name: str, default: int) -> float:
        try:
            return value.java_number(settings.get(name) or str(default), "LONG") / 1000
        except ValueError as error:
            part.faults[name] = str(error)
            return 0.0

    part.value = SaslSettings(
        "OAUTHBEARER",
        tokens=TokenSettings(
            url,
            _RETRIEVERS[retriever],
            settings.get("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId", ""),
            settings.get("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret", ""),
            settings.get("sasl.oauthbearer.scope") or options.get("scope", ""),
            _assertion(settings, part),
            _trusted_by_endpoint(settings),
            connect_timeout=seconds("sasl.login.connect.timeout.ms", 10_000),
            read_timeout=seconds("sasl.login.read.timeout.ms", 10_000),
            backoff=seconds("sasl.login.retry.backoff.ms", 100),
            backoff_max=seconds("sasl.login.retry.backoff.max.ms", 10_000),
        ),
    )


def _assertion(settings: Mapping[str, str], part: TranslatedFamily[SaslSettings]) -> dict[str, str]:
    found = {}
    for name, convert in _ASSERTION.items():
        key = f"sasl.oauthbearer.assertion.{name}"
        if not settings.get(key, "").strip():
            continue
        try:
            converted = convert(settings[key])
        except ValueError as error:
            part.faults[key] = str(error)
            continue
        found[name] = str(converted).lower() if isinstance(converted, bool) else str(converted)
    return found


def _trusted_by_endpoint(settings: Mapping[str, str]) -> str:
    try:
        return trusted_certificates(settings)
    except ConfigException:
        # If brokers need it, `tls` has reported the fault.
        return ""


def _kerberos_login(
    settings: Mapping[str, str], module: str, options: Mapping[str, str], part: TranslatedFamily[SaslSettings]
) -> None:
    if module != "Krb5LoginModule":
        part.faults["sasl.jaas.config"] = (
            "GSSAPI (the default of sasl.mechanism) needs the Krb5LoginModule with a keyTab"
        )
        return
    for option, letters in _IN_COMMAND.items():
        if not letters.fullmatch(options.get(option, "")):
            part.faults["sasl.jaas.config"] = (
                f"{option} may have letters, digits and some of ._/@+- only: a command of the shell takes the ticket"
            )
            return
    part.value = SaslSettings(
        "GSSAPI",
        kerberos=KerberosSettings(
            settings.get("sasl.kerberos.service.name") or options.get("serviceName", "kafka"),
            options.get("principal", ""),
            options.get("keyTab", ""),
            settings.get("sasl.kerberos.kinit.cmd", ""),
        ),
    )


#: librdkafka puts both into a command, without quotes or between double ones, and the shell runs it. A hyphen in front
#: would be an option of that command.
_IN_COMMAND: Final = {
    "principal": re.compile(r"(?:\w[\w./@+-]*)?", re.ASCII),
    "keyTab": re.compile(r"(?:[\w./][\w./@+: -]*)?", re.ASCII),
}


_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;="']+)|([=;]))""", re.DOTALL)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    r"""The login module's simple class name and its options.

    >>> parse_jaas('org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b;\\"c";')
    ('PlainLoginModule', {'username': 'a', 'password': 'b;"c'})

    Raises:
        ValueError: not one login module with a control flag and options, ended by a semicolon; the text is not shown.
    """
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError("a quote is not closed")
        double, single, word, mark = found.groups()
        quoted = double if double is not None else single
        tokens.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else mark or word)
        position = found.end()
    if len(tokens) < 3 or tokens[-1] != ";":
        raise ValueError('expected: <login module class> required <option>="<value>" ...;')
    module, flag, body = tokens[0], tokens[1], tokens[2:-1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("the word after the login module must be required, requisite, sufficient or optional")
    if ";" in body and body.index(";") % 3 == 0:
        raise ValueError("only one login module is possible")
    if len(body) % 3 or any(mark != "=" for mark in body[1::3]):
        raise ValueError('an option is not of the form name="value"')
    return module.rpartition(".")[2], dict(zip(body[0::3], body[2::3], strict=True))


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Creates the TLS context of the worker's own connections. Raises ``ConfigException`` if OpenSSL rejects a key, a
    certificate or the cipher suites.
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
_LIBRDKAFKA_ASSERTION = {"template.file": "jwt.template.file"}


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
            **{f"assertion.{_LIBRDKAFKA_ASSERTION.get(name, name)}": text for name, text in tokens.assertion.items()},
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
