"""The settings that all converters with a schema registry share, under Confluent's names.

Main type: ``RegistrySettings``. Main functions: ``define_registry``, ``read_settings``.

Thread: constants and pure functions.
Source: io.confluent.kafka.serializers.AbstractKafkaSchemaSerDeConfig, SchemaRegistryClientConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit, urlunsplit

from penstock.config import ConfigDef, ConfigType, Importance, LambdaValidator, Password, Range, Validator, ValidString
from penstock.converters.settings import define_type
from penstock.errors import ConfigException

log = logging.getLogger(__name__)

TOPIC_NAME: Final = "TopicNameStrategy"
RECORD_NAME: Final = "RecordNameStrategy"
TOPIC_RECORD_NAME: Final = "TopicRecordNameStrategy"
_STRATEGIES: Final = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
_STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_REGISTRY: Final = "Schema Registry"
_SECURITY: Final = "Schema Registry Security"


@dataclass(frozen=True)
class RegistrySettings:
    """What was set, as the converter and its client use it.

    Attributes:
        urls: Where the registry is; the next one is tried when one does not answer.
        auto_register: Whether new schemas are registered.
        use_latest: Whether messages are written with the subject's latest schema.
        latest_strict: Whether the latest schema has to be compatible with that of the data.
        latest_ttl_s: For how long the latest schema is written with before it is asked for again; None = for ever.
        use_id: The id of the schema that messages are written with; None = that of the data.
        normalize: Whether the registry normalizes schemas.
        strategies: The name of the subject name strategy for keys (True) and for values (False).
        cache_size: How many schemas are remembered for each use.
        missing_ttl_s: For how long it is remembered that an id is not there, or that a schema was refused.
        tries: How often a request is made before an outage is an error of the record.
        first_wait_s: Longest pause before the second try; doubled for each further one.
        longest_wait_s: Longest pause of all.
        client: The security and network settings of the registry's client, by Confluent's names.
    """

    urls: tuple[str, ...]
    auto_register: bool
    use_latest: bool
    latest_strict: bool
    latest_ttl_s: float | None
    use_id: int | None
    normalize: bool
    strategies: Mapping[bool, str]
    cache_size: int
    missing_ttl_s: float
    tries: int
    first_wait_s: float
    longest_wait_s: float
    client: Mapping[str, object]

    @property
    def shown_urls(self) -> str:
        """The addresses for messages, without passwords."""
        return ", ".join(without_password(url) for url in self.urls)


def without_password(url: str) -> str:
    """An address as it may be shown.

    >>> without_password("https://me:secret@registry:8081/x")
    'https://me:***@registry:8081/x'
    """
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{place}"))


def define_registry() -> ConfigDef:
    """A new definition with the settings that are the same for every format."""
    definition = define_type(ConfigDef())
    _define_subjects(definition)
    _define_requests(definition)
    _define_security(definition)
    return definition


def _define_subjects(definition: ConfigDef) -> None:
    where = definition.define(
        "schema.registry.url",
        ConfigType.LIST,
        importance=Importance.HIGH,
        validator=LambdaValidator(_check_urls, "http:// or https:// addresses"),
        doc="Comma-separated addresses of the schema registry. When one does not answer, the next is asked.",
        group=_REGISTRY,
    )
    for name, default, doc in (
        ("auto.register.schemas", True, "Register the schema of written data when the subject has it not yet."),
        ("use.latest.version", False, "Write with the latest schema of the subject instead of the data's own. Needs "
         "auto.register.schemas=false."),
        ("latest.compatibility.strict", True, "With use.latest.version: refuse data whose schema the registry finds "
         "incompatible with the latest one."),
        ("normalize.schemas", False, "Have the registry normalize schemas that are registered or looked up."),
    ):  # fmt: skip
        where.define(name, ConfigType.BOOLEAN, default=default, doc=doc, group=_REGISTRY)
    where.define(
        "latest.cache.ttl.sec",
        ConfigType.LONG,
        default=-1,
        importance=Importance.LOW,
        doc="With use.latest.version: seconds after which the latest schema is asked for again; -1 = never.",
        group=_REGISTRY,
    ).define(
        "use.schema.id",
        ConfigType.INT,
        default=-1,
        doc="Write with the schema of this id. Needs auto.register.schemas=false; -1 = the data's own schema.",
        group=_REGISTRY,
    )
    for side in ("key", "value"):
        where.define(
            f"{side}.subject.name.strategy",
            ConfigType.STRING,
            default=TOPIC_NAME,
            validator=LambdaValidator(_check_strategy, f"one of {', '.join(_STRATEGIES)}"),
            doc=f"The subject that schemas of {side}s are kept under: the topic's name with -{side}, the name of the "
            "record, or topic and record. Confluent's class names with their package are taken, too.",
            group=_REGISTRY,
        )
    where.define(
        "schemas.cache.config",
        ConfigType.INT,
        default=1000,
        validator=Range.at_least(1),
        importance=Importance.LOW,
        doc="How many schemas are remembered for each direction.",
        group=_REGISTRY,
    ).define(
        "max.schemas.per.subject",
        ConfigType.INT,
        default=1000,
        validator=Range.at_least(1),
        importance=Importance.LOW,
        doc="The same under its older name; the smaller one counts.",
        group=_REGISTRY,
    )


def _define_requests(definition: ConfigDef) -> None:
    for name, kind, default, doc in (
        ("missing.id.cache.ttl.sec", ConfigType.LONG, 10, "Seconds for which an unknown id, or a schema that "
         "was refused, is not asked for again."),
        ("max.retries", ConfigType.INT, 3, "How often a request is repeated while the registry cannot be reached or "
         "answers with a server error. After that the record's error is a retriable one: errors.retry.timeout."),
        ("retries.wait.ms", ConfigType.INT, 1000, "Longest pause before the first repetition; doubled for each one."),
        ("retries.max.wait.ms", ConfigType.INT, 20000, "Longest pause before any repetition."),
        ("http.connect.timeout.ms", ConfigType.INT, 10000, "Time for a connection to the registry."),
        ("http.read.timeout.ms", ConfigType.INT, 10000, "Time for an answer of the registry."),
    ):  # fmt: skip
        least = Range.at_least(1 if "timeout" in name else 0)
        definition.define(
            name, kind, default=default, validator=least, importance=Importance.LOW, doc=doc, group=_REGISTRY
        )
    definition.define(
        "proxy.host",
        ConfigType.STRING,
        default="",
        importance=Importance.LOW,
        doc="An HTTP proxy on the way to the registry.",
        group=_REGISTRY,
    ).define(
        "proxy.port",
        ConfigType.INT,
        default=-1,
        importance=Importance.LOW,
        doc="The port of the proxy.",
        group=_REGISTRY,
    )


def _define_security(definition: ConfigDef) -> None:
    pem = "A PEM file; Java key stores and PKCS12 files have to be converted."
    for name, kind, default, doc in (
        ("basic.auth.credentials.source", ConfigType.STRING, "URL", "URL (user and password stand in the address) or "
         "USER_INFO (they are in basic.auth.user.info)."),
        ("basic.auth.user.info", ConfigType.PASSWORD, "", "user:password"),
        ("schema.registry.basic.auth.user.info", ConfigType.PASSWORD, "", "The same under its older name."),
        ("bearer.auth.credentials.source", ConfigType.STRING, "", "STATIC_TOKEN or OAUTHBEARER; empty: none."),
        ("bearer.auth.token", ConfigType.PASSWORD, "", "The token of STATIC_TOKEN."),
        ("bearer.auth.logical.cluster", ConfigType.STRING, "", "Sent with a token, for Confluent Cloud."),
        ("bearer.auth.identity.pool.id", ConfigType.STRING, "", "Sent with a token, for Confluent Cloud."),
        ("bearer.auth.issuer.endpoint.url", ConfigType.STRING, "", "Where OAUTHBEARER gets its tokens."),
        ("bearer.auth.client.id", ConfigType.STRING, "", "The client id of OAUTHBEARER."),
        ("bearer.auth.client.secret", ConfigType.PASSWORD, "", "The client secret of OAUTHBEARER."),
        ("bearer.auth.scope", ConfigType.STRING, "", "The scope of OAUTHBEARER."),
        ("schema.registry.ssl.truststore.location", ConfigType.STRING, "", "Certificates to trust. " + pem),
        ("schema.registry.ssl.truststore.password", ConfigType.PASSWORD, "", "Not needed: PEM certificates have none."),
        ("schema.registry.ssl.truststore.type", ConfigType.STRING, "PEM", "Not needed: it has to be PEM."),
        ("schema.registry.ssl.keystore.location", ConfigType.STRING, "", "Key and certificate of this client. " + pem),
        ("schema.registry.ssl.keystore.password", ConfigType.PASSWORD, "", "Password of the key."),
        ("schema.registry.ssl.keystore.type", ConfigType.STRING, "PEM", "Not needed: it has to be PEM."),
        ("schema.registry.ssl.key.password", ConfigType.PASSWORD, "", "Password of the key; wins over the store's."),
        ("schema.registry.ssl.endpoint.identification.algorithm", ConfigType.STRING, "https", "The host name is always "
         "compared with the certificate."),
    ):  # fmt: skip
        validator: Validator | None = None
        if name == "basic.auth.credentials.source":
            validator = LambdaValidator(_check_basic, "URL or USER_INFO")
        elif name == "bearer.auth.credentials.source":
            validator = ValidString("", "STATIC_TOKEN", "OAUTHBEARER")
        elif name.endswith("algorithm"):
            validator = LambdaValidator(_check_identification, "https")
        definition.define(
            name, kind, default=default, validator=validator, importance=Importance.LOW, doc=doc, group=_SECURITY
        )


def _check_urls(name: str, value: object) -> None:
    urls = cast("list[str]", value)
    if not urls:
        raise ConfigException(name, "", "The address of a schema registry is missing, such as http://localhost:8081")
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = without_password(url)
            raise ConfigException(name, shown, "It is no address of the form http://host:port or https://host:port")


def _check_strategy(name: str, value: object) -> None:
    if _strategy(str(value)) is None:
        raise ConfigException(
            name,
            value,
            f"It must be one of {', '.join(_STRATEGIES)}, with or without Confluent's package; strategies of one's own "
            "are Java classes and do not run here",
        )


def _strategy(text: str) -> str | None:
    name = text.removeprefix(_STRATEGY_PACKAGE)
    return name if name in _STRATEGIES else None


def _check_basic(name: str, value: object) -> None:
    if value not in ("URL", "USER_INFO"):
        advice = "URL and USER_INFO are there. For SASL_INHERIT, put the same user and password in basic.auth.user.info"
        raise ConfigException(name, value, advice)


def _check_identification(name: str, value: object) -> None:
    if str(value).lower() != "https":
        advice = "Host names are always compared with the certificate; give the registry one that has its host name"
        raise ConfigException(name, value, advice)


def read_settings(values: Mapping[str, object]) -> RegistrySettings:
    """Settings as they are used, from parsed values.

    Raises:
        ConfigException: A setting that another one needs is missing, or a file cannot be used.
    """
    auto = bool(values["auto.register.schemas"])
    latest = bool(values["use.latest.version"])
    use_id = cast("int", values["use.schema.id"])
    for name, wanted in (("use.latest.version", latest), ("use.schema.id", use_id >= 0)):
        if wanted and auto:
            # As in Java, where registering wins; many files have both.
            log.warning("%s has no effect: it needs auto.register.schemas=false, which is true by default", name)
    ttl = cast("int", values["latest.cache.ttl.sec"])
    return RegistrySettings(
        urls=tuple(url.rstrip("/") for url in cast("list[str]", values["schema.registry.url"])),
        auto_register=auto,
        use_latest=latest and not auto,
        latest_strict=bool(values["latest.compatibility.strict"]),
        latest_ttl_s=float(ttl) if latest and not auto and ttl >= 0 else None,
        use_id=None if use_id < 0 or auto else use_id,
        normalize=bool(values["normalize.schemas"]),
        strategies={
            True: _strategy(str(values["key.subject.name.strategy"])) or TOPIC_NAME,
            False: _strategy(str(values["value.subject.name.strategy"])) or TOPIC_NAME,
        },
        cache_size=min(cast("int", values["schemas.cache.config"]), cast("int", values["max.schemas.per.subject"])),
        missing_ttl_s=float(cast("int", values["missing.id.cache.ttl.sec"])),
        tries=1 + cast("int", values["max.retries"]),
        first_wait_s=cast("int", values["retries.wait.ms"]) / 1000,
        longest_wait_s=cast("int", values["retries.max.wait.ms"]) / 1000,
        client={**_network(values), **_basic(values), **_bearer(values), **_tls(values)},
    )


def _network(values: Mapping[str, object]) -> dict[str, object]:
    connect = cast("int", values["http.connect.timeout.ms"]) / 1000
    read = cast("int", values["http.read.timeout.ms"]) / 1000
    # Time for connecting, reading, writing, and for a free connection.
    found: dict[str, object] = {"timeout": (connect, read, read, connect)}
    if values["proxy.host"]:
        if cast("int", values["proxy.port"]) <= 0:
            raise ConfigException("proxy.port", values["proxy.port"], "proxy.host needs it")
        found["proxy"] = f"http://{values['proxy.host']}:{values['proxy.port']}"
    return found


def _basic(values: Mapping[str, object]) -> dict[str, object]:
    if values["basic.auth.credentials.source"] != "USER_INFO":
        return {}
    info = _secret(values, "basic.auth.user.info") or _secret(values, "schema.registry.basic.auth.user.info")
    if ":" not in info:
        raise ConfigException("basic.auth.user.info must be user:password when basic.auth.credentials.source=USER_INFO")
    return {"basic.auth.user.info": info}


def _bearer(values: Mapping[str, object]) -> dict[str, object]:
    source = str(values["bearer.auth.credentials.source"])
    if not source:
        return {}
    static = source == "STATIC_TOKEN"
    needed = ["bearer.auth.token"] if static else [
        "bearer.auth.issuer.endpoint.url", "bearer.auth.client.id", "bearer.auth.client.secret",
    ]  # fmt: skip
    found: dict[str, object] = {"bearer.auth.credentials.source": source}
    for name in needed:
        text = _secret(values, name)
        if not text:
            raise ConfigException(f"{name} is missing; bearer.auth.credentials.source={source} needs it")
        found[name] = text
    if not static:
        found["bearer.auth.scope"] = str(values["bearer.auth.scope"])
    # The client wants one, the registries of others than Confluent Cloud do not.
    found["bearer.auth.logical.cluster"] = str(values["bearer.auth.logical.cluster"])
    if values["bearer.auth.identity.pool.id"]:
        found["bearer.auth.identity.pool.id"] = str(values["bearer.auth.identity.pool.id"])
    return found


def _tls(values: Mapping[str, object]) -> dict[str, object]:
    prefix = "schema.registry.ssl."
    found: dict[str, object] = {}
    trust, store = values[prefix + "truststore.location"], values[prefix + "keystore.location"]
    if trust:
        found["ssl.ca.location"] = _pem_path(prefix + "truststore.location", str(trust))
    if store:
        found["ssl.certificate.location"] = _pem_path(prefix + "keystore.location", str(store))
        password = _secret(values, prefix + "key.password") or _secret(values, prefix + "keystore.password")
        # Always set: without one the library would ask for it on the terminal.
        found["ssl.key.password"] = password
    return found


def _pem_path(name: str, path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ConfigException(name, path, f"It cannot be read: {error.strerror or error}") from error
    if b"-----BEGIN " not in content:
        advice = (
            "Java key stores and PKCS12 files cannot be read; write it as PEM (openssl pkcs12 -in FILE -out FILE.pem, "
            "after keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype pkcs12)"
        )
        raise ConfigException(name, path, advice)
    return path


def _secret(values: Mapping[str, object], name: str) -> str:
    value = values[name]
    return value.value if isinstance(value, Password) else str(value)
