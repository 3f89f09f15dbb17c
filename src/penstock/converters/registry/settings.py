"""The settings that all converters with a schema registry share, under Confluent's names.

Source: io.confluent.kafka.serializers.AbstractKafkaSchemaSerDeConfig, SchemaRegistryClientConfig.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from penstock.config import ConfigType, Importance, LambdaValidator, Password, Range, ValidString, setting
from penstock.converters.primitives import ConverterConfig
from penstock.errors import ConfigException
from penstock.keystores import read_store

log = logging.getLogger(__name__)

#: Names of parameters, the same in all converters, with ``generalized.sum.type.support``.
GENERAL_ENUM: Final = "org.apache.kafka.connect.data.Enum"
GENERAL_UNION: Final = "org.apache.kafka.connect.data.Union"

TOPIC_NAME: Final = "TopicNameStrategy"
RECORD_NAME: Final = "RecordNameStrategy"
TOPIC_RECORD_NAME: Final = "TopicRecordNameStrategy"
_STRATEGIES: Final = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
_STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_TLS: Final = "schema.registry.ssl."
_PEM: Final = "A PEM file; Java key stores and PKCS12 files have to be converted."


def without_password(url: str) -> str:
    """An address without its password, for display.

    >>> without_password("https://me:secret@registry:8081/x")
    'https://me:***@registry:8081/x'
    """
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{place}"))


def _check_urls(name: str, value: object) -> None:
    if not isinstance(value, list) or not value:
        raise ConfigException(name, "", "The address of a schema registry is missing, such as http://localhost:8081")
    for url in value:
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
        advice = "Use URL or USER_INFO. For SASL_INHERIT, put the same user and password in basic.auth.user.info"
        raise ConfigException(name, value, advice)


def _check_identification(name: str, value: object) -> None:
    if str(value).lower() != "https":
        advice = "Host names are always compared with the certificate; give the registry one that has its host name"
        raise ConfigException(name, value, advice)


_setting: Final = partial(setting, group="Schema Registry")
_low: Final = partial(_setting, importance=Importance.LOW)
_security: Final = partial(setting, importance=Importance.LOW, group="Schema Registry Security")
_secret: Final = partial(_security, default=Password(""))


def _strategy_setting(side: str) -> Any:
    return _setting(
        default=TOPIC_NAME,
        validator=LambdaValidator(_check_strategy, f"one of {', '.join(_STRATEGIES)}"),
        doc=f"The subject that schemas of {side}s are kept under: the topic's name with -{side}, the name of the "
        "record, or topic and record. Confluent's class names with their package are taken, too.",
    )


class RegistryConfig(ConverterConfig):
    """The settings that are the same for every format."""

    schema_registry_url: tuple[str, ...] = _setting(
        importance=Importance.HIGH,
        validator=LambdaValidator(_check_urls, "http:// or https:// addresses"),
        doc="Comma-separated addresses of the schema registry. When one does not answer, the next is asked.",
    )
    auto_register_schemas: bool = _setting(
        default=True, doc="Register the schema of written data when the subject has it not yet."
    )
    use_latest_version: bool = _setting(
        default=False,
        doc="Write with the latest schema of the subject instead of the data's own. Needs auto.register.schemas=false.",
    )
    latest_compatibility_strict: bool = _setting(
        default=True, doc="With use.latest.version: refuse data that cannot be read with the latest schema."
    )
    normalize_schemas: bool = _setting(
        default=False, doc="Have the registry normalize schemas that are registered or looked up."
    )
    latest_cache_ttl_sec: int = _low(
        type=ConfigType.LONG,
        default=-1,
        doc="With use.latest.version: seconds after which the latest schema is asked for again; -1 = never.",
    )
    use_schema_id: int = _setting(
        default=-1,
        doc="Write with the schema of this id. Needs auto.register.schemas=false; -1 = the data's own schema.",
    )
    key_subject_name_strategy: str = _strategy_setting("key")
    value_subject_name_strategy: str = _strategy_setting("value")
    schemas_cache_config: int = _low(
        default=1000, validator=Range.at_least(1), doc="How many schemas are remembered for each direction."
    )
    max_schemas_per_subject: int = _low(
        default=1000, validator=Range.at_least(1), doc="The same under its older name; the smaller one counts."
    )
    missing_id_cache_ttl_sec: int = _low(
        type=ConfigType.LONG,
        default=10,
        validator=Range.at_least(0),
        doc="Seconds for which an unknown id, or a schema that was refused, is not asked for again.",
    )
    max_retries: int = _low(
        default=3,
        validator=Range.at_least(0),
        doc="How often a request is repeated while the registry cannot be reached or answers with a server error. "
        "After that the record's error is a retriable one: errors.retry.timeout.",
    )
    retries_wait_ms: int = _low(
        default=1000,
        validator=Range.at_least(0),
        doc="Longest pause before the first repetition; doubled for each one.",
    )
    retries_max_wait_ms: int = _low(
        default=20000, validator=Range.at_least(0), doc="Longest pause before any repetition."
    )
    http_connect_timeout_ms: int = _low(
        default=10000, validator=Range.at_least(1), doc="Time for a connection to the registry."
    )
    http_read_timeout_ms: int = _low(
        default=10000, validator=Range.at_least(1), doc="Time for an answer of the registry."
    )
    proxy_host: str = _low(default="", doc="An HTTP proxy on the way to the registry.")
    proxy_port: int = _low(default=-1, doc="The port of the proxy.")

    credentials_source: str = _security(
        "basic.auth.credentials.source",
        default="URL",
        validator=LambdaValidator(_check_basic, "URL or USER_INFO"),
        doc="URL (user and password stand in the address) or USER_INFO (they are in basic.auth.user.info).",
    )
    user_info: Password = _secret("basic.auth.user.info", doc="user:password")
    older_user_info: Password = _secret("schema.registry.basic.auth.user.info", doc="The same under its older name.")
    bearer_auth_credentials_source: str = _security(
        default="",
        validator=ValidString("", "STATIC_TOKEN", "OAUTHBEARER"),
        doc="STATIC_TOKEN or OAUTHBEARER; empty: none.",
    )
    bearer_auth_token: Password = _secret(doc="The token of STATIC_TOKEN.")
    bearer_auth_logical_cluster: str = _security(default="", doc="Sent with a token, for Confluent Cloud.")
    bearer_auth_identity_pool_id: str = _security(default="", doc="Sent with a token, for Confluent Cloud.")
    bearer_auth_issuer_endpoint_url: str = _security(default="", doc="Where OAUTHBEARER gets its tokens.")
    bearer_auth_client_id: str = _security(default="", doc="The client id of OAUTHBEARER.")
    bearer_auth_client_secret: Password = _secret(doc="The client secret of OAUTHBEARER.")
    bearer_auth_scope: str = _security(default="", doc="The scope of OAUTHBEARER.")
    truststore_location: str = _security(f"{_TLS}truststore.location", default="", doc=f"Certificates to trust. {_PEM}")
    truststore_password: Password = _secret(f"{_TLS}truststore.password", doc="Not needed: PEM certificates have none.")
    truststore_type: str = _security(f"{_TLS}truststore.type", default="PEM", doc="Not needed: it has to be PEM.")
    keystore_location: str = _security(
        f"{_TLS}keystore.location", default="", doc=f"Key and certificate of this client. {_PEM}"
    )
    keystore_password: Password = _secret(f"{_TLS}keystore.password", doc="Password of the key.")
    keystore_type: str = _security(f"{_TLS}keystore.type", default="PEM", doc="Not needed: it has to be PEM.")
    key_password: Password = _secret(f"{_TLS}key.password", doc="Password of the key; wins over the store's.")
    endpoint_identification_algorithm: str = _security(
        f"{_TLS}endpoint.identification.algorithm",
        default="https",
        validator=LambdaValidator(_check_identification, "https"),
        doc="The host name is always compared with the certificate.",
    )

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the registry; the next one is tried if one does not answer."""
        return tuple(url.rstrip("/") for url in self.schema_registry_url)

    @property
    def shown_urls(self) -> str:
        """The addresses for messages, without passwords."""
        return ", ".join(without_password(url) for url in self.urls)

    @property
    def use_latest(self) -> bool:
        """True if messages are written with the subject's latest schema."""
        return self.use_latest_version and not self.auto_register_schemas

    @property
    def latest_ttl_s(self) -> float | None:
        """The seconds for which the latest schema is used before it is requested again; None = for ever."""
        return float(self.latest_cache_ttl_sec) if self.use_latest and self.latest_cache_ttl_sec >= 0 else None

    @property
    def use_id(self) -> int | None:
        """The id of the schema that messages are written with; None = the schema of the data."""
        return None if self.use_schema_id < 0 or self.auto_register_schemas else self.use_schema_id

    def strategy(self, is_key: bool) -> str:
        """The name of the subject name strategy for keys or for values."""
        return _strategy(self.key_subject_name_strategy if is_key else self.value_subject_name_strategy) or TOPIC_NAME

    @property
    def cache_size(self) -> int:
        """The number of cached schemas for each use."""
        return min(self.schemas_cache_config, self.max_schemas_per_subject)

    def warn_of_what_has_no_effect(self) -> None:
        """Logs settings that another setting overrides; as in Java, registration takes precedence, and many files have
        both.
        """
        for name, wanted in (
            ("use.latest.version", self.use_latest_version),
            ("use.schema.id", self.use_schema_id >= 0),
        ):
            if wanted and self.auto_register_schemas:
                log.warning("%s has no effect: it needs auto.register.schemas=false, which is true by default", name)

    def client(self) -> dict[str, object]:
        """The security and network settings of the registry's client, by Confluent's names.

        Raises:
            ConfigException: A setting that another setting requires is missing, or a file cannot be used.
        """
        return {**_network(self), **_basic(self), **_bearer(self), **_tls(self)}


def _network(config: RegistryConfig) -> dict[str, object]:
    connect, read = config.http_connect_timeout_ms / 1000, config.http_read_timeout_ms / 1000
    # The timeouts for connecting, reading, writing, and waiting for a free connection.
    found: dict[str, object] = {"timeout": (connect, read, read, connect)}
    if config.proxy_host:
        if config.proxy_port <= 0:
            raise ConfigException("proxy.port", config.proxy_port, "proxy.host needs it")
        found["proxy"] = f"http://{config.proxy_host}:{config.proxy_port}"
    return found


def _basic(config: RegistryConfig) -> dict[str, object]:
    if config.credentials_source != "USER_INFO":
        return {}
    info = config.user_info.value or config.older_user_info.value
    if ":" not in info:
        raise ConfigException("basic.auth.user.info must be user:password when basic.auth.credentials.source=USER_INFO")
    return {"basic.auth.user.info": info}


def _bearer(config: RegistryConfig) -> dict[str, object]:
    source = config.bearer_auth_credentials_source
    if not source:
        return {}
    needed = {"bearer.auth.token": config.bearer_auth_token.value} if source == "STATIC_TOKEN" else {
        "bearer.auth.issuer.endpoint.url": config.bearer_auth_issuer_endpoint_url,
        "bearer.auth.client.id": config.bearer_auth_client_id,
        "bearer.auth.client.secret": config.bearer_auth_client_secret.value,
    }  # fmt: skip
    for name, text in needed.items():
        if not text:
            raise ConfigException(f"{name} is missing; bearer.auth.credentials.source={source} needs it")
    found: dict[str, object] = {"bearer.auth.credentials.source": source, **needed}
    if source == "OAUTHBEARER":
        found["bearer.auth.scope"] = config.bearer_auth_scope
    # The client requires one, but only Confluent Cloud's registries use it.
    found["bearer.auth.logical.cluster"] = config.bearer_auth_logical_cluster
    if config.bearer_auth_identity_pool_id:
        found["bearer.auth.identity.pool.id"] = config.bearer_auth_identity_pool_id
    return found


def _tls(config: RegistryConfig) -> dict[str, object]:
    found: dict[str, object] = {}
    if config.truststore_location:
        found["ssl.ca.location"] = _pem_path(f"{_TLS}truststore.location", config.truststore_location)
    if config.keystore_location:
        found["ssl.certificate.location"] = _pem_path(f"{_TLS}keystore.location", config.keystore_location)
        # Always set, because otherwise the library would prompt for it on the terminal.
        found["ssl.key.password"] = config.key_password.value or config.keystore_password.value
    return found


def _pem_path(name: str, path: str) -> str:
    content = read_store(name, path)
    if b"-----BEGIN " not in content:
        advice = (
            "Java key stores and PKCS12 files cannot be read; write it as PEM (openssl pkcs12 -in FILE -out FILE.pem, "
            "after keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype pkcs12)"
        )
        raise ConfigException(name, path, advice)
    return path
