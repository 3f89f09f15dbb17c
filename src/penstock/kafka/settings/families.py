"""Settings that depend on each other: families that form one value, and settings that adjust or exclude each other.

Main functions: `compression`, `tls`, `sasl`. Each takes all Java settings and returns a value for any Kafka client
(`penstock.kafka.settings.security`), and the faults found. `adjust_producer`, `adjust_consumer` and `fit_together`
adjust and refuse; `LeftOut` is a setting that is not used.

Source: org.apache.kafka.common.config.{SslConfigs, SaslConfigs}; org.apache.kafka.common.security.JaasConfig.
Thread: any; apart from reading key stores, everything is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock.errors import ConfigException
from penstock.kafka.settings import values as value
from penstock.kafka.settings.security import KerberosSettings, SaslSettings, TlsSettings, TokenSettings
from penstock.kafka.settings.values import COMPRESSIONS, Compression, RdValue, items
from penstock.keystores import KeyMaterial, enabled_versions, key_material, trusted_certificates

V = TypeVar("V")


@dataclass
class TranslatedFamily(Generic[V]):
    """The result of one family: its value, and faults and unused settings by Java name."""

    value: V | None = None
    faults: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)


_JAVA_LEVELS: Final = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
#: LZ4's highest level.
_HIGHEST: Final = {"gzip": 9, "lz4": 12, "zstd": 22}


def compression(settings: Mapping[str, str]) -> TranslatedFamily[Compression]:
    """`compression.type` and the level of that type; a level that is too high becomes the highest."""
    part = TranslatedFamily[Compression]()
    kind = settings.get("compression.type", "none").strip()
    if kind not in COMPRESSIONS:
        part.faults["compression.type"] = f"String must be one of: {', '.join(COMPRESSIONS)}"
    level: int | None = None
    for name, (java_lowest, java_highest) in _JAVA_LEVELS.items():
        key = f"compression.{name}.level"
        if key not in settings:
            continue
        try:
            given = value.java_number(settings[key])
            if not java_lowest <= given <= java_highest or (name == "gzip" and given == 0):
                raise ValueError(f"Value must be between {java_lowest} and {java_highest}")
        except ValueError as error:
            part.faults[key] = str(error)
            continue
        if name == kind:
            level = min(given, _HIGHEST[name])
        else:
            part.unused[key] = f"compression.type is {kind}"
    if not part.faults:
        part.value = Compression.named(kind, level)
    return part


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


#: The number of requests in flight whose sequence numbers a broker remembers.
IDEMPOTENT_REQUESTS = 5
# As in Java: an optional protocol, which is ignored, and a host with its port.
_ADDRESS = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")


@dataclass(frozen=True)
class LeftOut:
    """A setting that is not used, or must not be, with its value (secrets hidden) and the reason."""

    name: str
    value: str
    reason: str


def adjust_producer(java: Mapping[str, str], result: Mapping[str, RdValue], refused: list[LeftOut]) -> None:
    """Checks settings of a producer that depend on each other.

    Args:
        java: all settings, including defaults.
        result: the converted values.
        refused: receives conflicting settings.
    """
    for address in items(java.get("bootstrap.servers", "")):
        found = _ADDRESS.fullmatch(address)
        if found is None or not found[1]:
            reason = f"{address!r} is no address: it has to be host:port"
            refused.append(LeftOut("bootstrap.servers", java["bootstrap.servers"], reason))
    if result.get("enable.idempotence") is not True:
        return
    limits = {
        "acks": (result.get("acks", "all") != "all", "all"),
        "retries": (result.get("retries", 1) == 0, "more than 0"),
        "max.in.flight.requests.per.connection": (
            int(result.get("max.in.flight.requests.per.connection", 1)) > IDEMPOTENT_REQUESTS,
            f"at most {IDEMPOTENT_REQUESTS}",
        ),
    }
    for name, (at_odds, needed) in limits.items():
        if at_odds:
            reason = f"an idempotent producer (enable.idempotence=true) needs it to be {needed}"
            refused.append(LeftOut(name, java[name], reason))


def adjust_consumer(
    java: Mapping[str, str], defaults: Mapping[str, str], result: dict[str, RdValue], unused: list[LeftOut]
) -> None:
    """Adjusts settings of a consumer that depend on each other.

    Args:
        java: all settings, including defaults.
        defaults: Java's defaults, to report only settings that were set.
        result: the converted values; some are changed.
        unused: receives settings that have no effect in combination with other settings.
    """
    # The client commits nothing by itself, whatever is set.
    result["enable.auto.commit"] = False
    if result.get("group.protocol") == "consumer":
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            if result.pop(name, None) is not None and java[name] != defaults.get(name):
                unused.append(LeftOut(name, java[name], "with group.protocol=consumer the broker decides"))
    elif "session.timeout.ms" in result or "max.poll.interval.ms" in result:
        # librdkafka refuses a session that is longer than the poll interval; Java does not.
        session = int(result.get("session.timeout.ms", 45_000))
        result["session.timeout.ms"] = min(session, int(result.get("max.poll.interval.ms", 300_000)))
    if "fetch.max.bytes" in result:
        # librdkafka requires that a fetch is at least as large as the largest message that a producer may send, even
        # without a producer, and that either is at least 1000. A larger message still arrives.
        result["fetch.max.bytes"] = max(1000, int(result["fetch.max.bytes"]))
        result.setdefault("message.max.bytes", min(1_000_000, result["fetch.max.bytes"]))


def fit_together(result: dict[str, RdValue]) -> None:
    """Adjusts combinations of settings that librdkafka refuses in any client and Java accepts.

    Args:
        result: the converted values; some are changed.
    """
    first, longest = int(result.get("reconnect.backoff.ms", 100)), int(result.get("reconnect.backoff.max.ms", 10_000))
    if first > longest:
        # As in Java: all pauses are then as long as the longest.
        result["reconnect.backoff.ms"] = longest
