"""A worker's file: the settings that both modes have, and those of a standalone worker. Frozen values; any thread.

Classes stay text here, because these settings decide which plugins are found.

Source: WorkerConfig, StandaloneConfig, RestServerConfig and SslConfigs of Kafka 4.3; the last group is Penstock's own.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self
from urllib.parse import urlsplit

from penstock.api import SampleWindow
from penstock.config import (
    CaseInsensitiveValidString,
    ConfigProvider,
    ConfigTransformer,
    ConfigType,
    Importance,
    LambdaValidator,
    Password,
    Range,
    ValidString,
    setting,
)
from penstock.config.abstract_config import TypedConfig
from penstock.config.parse import invalid, java_trim
from penstock.errors import ConfigException
from penstock.settings.connector import with_prefix
from penstock.settings.plugin_classes import InvalidSettingsError, SettingFault, faults_of

_EXAMPLE: Final = "ex: http://localhost:8080,https://localhost:8443"
_ACTIONS: Final = ("set", "add", "setDate", "addDate")


def check_listeners(name: str, value: object) -> None:
    """Refuses a list without URLs, and URLs that are not http or https with a port."""
    if not isinstance(value, list):
        raise ConfigException(f"Invalid value type for listeners (expected list of URLs , {_EXAMPLE}).")
    if not value:
        raise ConfigException(f"Invalid value for listeners, at least one URL is expected, {_EXAMPLE}.")
    _check_urls(name, value)


def check_admin_listeners(name: str, value: object) -> None:
    """As `check_listeners`; accepts null (the API's listeners) and an empty list (no listeners)."""
    if value is None or value in ([], [""]):
        return
    if not isinstance(value, list):
        raise ConfigException(f"Invalid value type for admin.listeners (expected list of URLs , {_EXAMPLE}).")
    _check_urls(name, value)


def check_response_headers(name: str, value: object) -> None:
    """Refuses header rules that are not `[action] [header name]:[header value]`, separated by commas."""
    text = "" if value is None else str(value)
    if not java_trim(text):
        return
    for rule in next(csv.reader([text], skipinitialspace=True)):
        action, _, header = rule.strip().partition(" ")
        if action not in _ACTIONS:
            raise invalid(
                name, value, f"Invalid action in header rule '{rule.strip()}'; expected one of {', '.join(_ACTIONS)}"
            )
        header_name, colon, _ = header.partition(":")
        if not colon or not header_name.strip() or " " in header_name.strip():
            raise invalid(
                name, value, f"Invalid header rule '{rule.strip()}'; expected '[action] [header name]:[header value]'"
            )


def _check_urls(name: str, urls: list[object]) -> None:
    for url in urls:
        if not isinstance(url, str):
            raise ConfigException(f"Invalid type for {name} (expected String).")
        if not java_trim(url):
            raise ConfigException(f"Empty URL found when parsing {name} list.")
        _check_url(name, url)


def _check_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme.lower() in ("http", "https") and parts.port is not None
    except ValueError:
        good = False
    if not good:
        raise invalid(name, url, f"Expected a URL of http or https with a port, {_EXAMPLE}")


high: Final = partial(setting, importance=Importance.HIGH)
low: Final = partial(setting, importance=Importance.LOW)

JVM: Final = "Accepted for compatibility: a setting of the JVM."

_LISTENERS = "List of comma-separated URLs, ex: http://localhost:8080,https://localhost:8443."
_HEADER_RULES = (
    "Comma-separated header rules, where each header rule is of the form '[action] [header name]:[header value]' and "
    "optionally surrounded by double quotes if any part of a header rule contains a comma"
)


@dataclass(frozen=True)
class ConverterSettings:
    """A converter that the worker names."""

    class_text: str
    config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class ProviderSettings:
    """A provider of values kept outside of configurations."""

    name: str
    class_text: str
    params: Mapping[str, str] = field(repr=False)


class WorkerSettings(TypedConfig):
    """The settings of a worker in either mode.

    Attributes:
        raw: Every setting of the file, with placeholders resolved; unknown settings are kept.
    """

    raw: Mapping[str, str] = field(repr=False)
    bootstrap_servers: tuple[str, ...] = high(doc="Host:port pairs at which the Kafka cluster is found.")
    client_dns_lookup: str = setting(
        default="use_all_dns_ips",
        validator=ValidString("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        doc="How the clients use the addresses of a name.",
    )
    key_converter_class: str = high(
        "key.converter", type=ConfigType.CLASS, doc="The converter of keys, where a connector has none."
    )
    key_converter_plugin_version: str | None = low(default=None, doc="The version of that converter.")
    value_converter_class: str = high(
        "value.converter", type=ConfigType.CLASS, doc="The converter of values, where a connector has none."
    )
    value_converter_plugin_version: str | None = low(default=None, doc="The version of that converter.")
    task_shutdown_graceful_timeout_ms: int = low(
        type=ConfigType.LONG, default=5000, doc="The time that tasks have to stop before they are abandoned."
    )
    offset_flush_interval_ms: int = low(
        type=ConfigType.LONG, default=60000, doc="How often the offsets of tasks are committed."
    )
    offset_flush_timeout_ms: int = low(
        type=ConfigType.LONG, default=5000, doc="How long a commit of offsets may take before it is cancelled."
    )
    plugin_path: tuple[str, ...] | None = low(default=None, doc="Directories with plugins.")
    plugin_discovery: str = low(
        default="hybrid_warn",
        validator=CaseInsensitiveValidString("only_scan", "service_load", "hybrid_warn", "hybrid_fail"),
        doc="Accepted for compatibility: Python plugins are found in one way.",
    )
    metrics_sample_window_ms: int = low(
        type=ConfigType.LONG,
        default=30000,
        validator=Range.at_least(0),
        doc="The length of one sample of Max, Avg and Rate in the metrics of plugins.",
    )
    metrics_num_samples: int = low(default=2, validator=Range.at_least(1), doc="How many of these samples count.")
    metrics_recording_level: str = low(
        default="INFO", validator=ValidString("INFO", "DEBUG"), doc="Which metrics are recorded."
    )
    metric_reporters: tuple[str, ...] = low(
        default=("org.apache.kafka.common.metrics.JmxReporter",),
        doc="Accepted for compatibility: Java reporters cannot be loaded.",
    )
    header_converter_class: str = low(
        "header.converter",
        type=ConfigType.CLASS,
        default="org.apache.kafka.connect.storage.SimpleHeaderConverter",
        doc="The converter of headers, where a connector has none.",
    )
    header_converter_plugin_version: str | None = low(default=None, doc="The version of that converter.")
    provider_names: tuple[str, ...] = low(
        "config.providers", default=(), doc="Names of the providers of values kept outside of configurations."
    )
    override_policy: str = setting(
        "connector.client.config.override.policy",
        default="All",
        doc="Which client settings connectors may override: All, None, Principal, Allowlist or a class.",
    )
    override_allowlist: tuple[str, ...] = low(
        "connector.client.config.override.allowlist",
        default=(),
        doc="With the policy Allowlist: the client settings that connectors may override.",
    )
    topic_creation_enable: bool = low(default=True, doc="Create the topics of source connectors that ask for it.")
    topic_tracking_enable: bool = low(default=True, doc="Keep the topics that each connector has used.")
    topic_tracking_allow_reset: bool = low(default=True, doc="Let users reset those topics.")

    # REST
    listeners: tuple[str, ...] = low(
        default=("http://:8083",),
        validator=LambdaValidator(check_listeners, _LISTENERS),
        doc="The addresses of the REST API.",
    )
    advertised_host: str | None = low(
        "rest.advertised.host.name", default=None, doc="The host name that other workers use."
    )
    advertised_port: int | None = low("rest.advertised.port", default=None, doc="The port that other workers use.")
    advertised_protocol: str | None = low(
        "rest.advertised.listener", default=None, doc="The protocol that other workers use: http or https."
    )
    allow_origin: str = low(
        "access.control.allow.origin", default="", doc="The origins that browsers may call from; empty for none."
    )
    allow_methods: str = low(
        "access.control.allow.methods", default="", doc="The methods that they may use; empty for GET, POST, HEAD."
    )
    response_headers: str = low(
        "response.http.headers.config",
        default="",
        validator=LambdaValidator(check_response_headers, _HEADER_RULES),
        doc="Rules for the headers of answers.",
    )
    rest_extension_classes: tuple[str, ...] = low(default=(), doc="Classes that extend the REST API.")
    rest_basic_auth_file: str | None = low(
        default=None,
        doc="Penstock's own: a file of user=password lines; requests have to name one of these users, with its "
        "password. Unset, everybody who reaches a listener may use the API, unless an extension says otherwise.",
    )
    rest_basic_auth_read_only_users: tuple[str, ...] = low(
        default=(),
        doc="Penstock's own: users who may look (GET, HEAD, OPTIONS), but change, validate and preview nothing.",
    )
    admin_listeners: tuple[str, ...] | None = low(
        default=None,
        validator=LambdaValidator(check_admin_listeners, _LISTENERS),
        doc="The addresses of the admin part: unset for those of the API, empty for none.",
    )

    # TLS
    ssl_protocol: str = setting(default="TLSv1.3", doc="The TLS protocol.")
    ssl_provider: str | None = setting(default=None, doc="Accepted for compatibility: a provider of the JVM.")
    ssl_cipher_suites: tuple[str, ...] = low(default=(), doc="The cipher suites to use; empty for the usual ones.")
    ssl_enabled_protocols: tuple[str, ...] = setting(default=("TLSv1.2", "TLSv1.3"), doc="The protocols to accept.")
    ssl_keystore_type: str = setting(default="JKS", doc="PEM, PKCS12 or JKS; the key store itself counts.")
    ssl_keystore_location: str | None = high(default=None, doc="The key store's file.")
    ssl_keystore_password: Password | None = high(default=None, doc="The key store's password.")
    ssl_key_password: Password | None = high(default=None, doc="The password of the private key.")
    ssl_keystore_key: Password | None = high(default=None, doc="The private key itself, PEM.")
    ssl_keystore_certificate_chain: Password | None = high(default=None, doc="The certificate chain itself, PEM.")
    ssl_truststore_certificates: Password | None = high(default=None, doc="The trusted certificates themselves, PEM.")
    ssl_truststore_type: str = setting(default="JKS", doc="PEM, PKCS12 or JKS; the trust store itself counts.")
    ssl_truststore_location: str | None = high(default=None, doc="The trust store's file.")
    ssl_truststore_password: Password | None = high(default=None, doc="The trust store's password.")
    ssl_keymanager_algorithm: str = low(default="SunX509", doc=JVM)
    ssl_trustmanager_algorithm: str = low(default="PKIX", doc=JVM)
    ssl_endpoint_identification_algorithm: str = low(
        default="https", doc="https checks the host name of servers; empty does not."
    )
    ssl_secure_random_implementation: str | None = low(default=None, doc=JVM)
    ssl_engine_factory_class: str | None = low(
        type=ConfigType.CLASS, default=None, doc="Accepted for compatibility: a class of the JVM."
    )
    ssl_client_auth: str = low(
        default="none",
        validator=ValidString("required", "requested", "none"),
        doc="If clients of the REST API need a certificate.",
    )

    # Penstock's own
    batch_max_records: int = low(
        default=100_000,
        validator=Range.at_least(1),
        doc="The most records that pass the pipeline in one batch; more records a batch are faster and take more "
        "memory.",
    )
    batch_max_bytes: int = low(
        type=ConfigType.LONG,
        default=16 * 1024 * 1024,
        validator=Range.at_least(1),
        doc="The size in bytes at which a batch is full, whatever its number of records.",
    )
    spark_bypass: str = low(
        "penstock.spark.bypass",
        default="columns",
        validator=ValidString("columns", "never"),
        doc="What may go around Spark: 'columns' are those of a batch that no transform or converter in Spark reads, "
        "such as offsets or converted headers, JSON messages of usual form are read by Arrow, and small batches of "
        "many schemas and previews are transformed and converted record by record. With 'never' columns take one more "
        "job a batch, plans read JSON, and many schemas get a plan each.",
    )
    spark_executors_timeout_ms: int = low(
        "penstock.spark.executors.timeout.ms",
        type=ConfigType.LONG,
        default=30_000,
        validator=Range.at_least(1_000),
        doc="After how many milliseconds without an executor the session on a Spark cluster counts as lost and is "
        "replaced, as after a restart of its master; each further one that gets none is given twice the time, up to "
        "ten times this.",
    )
    bulk_storage_topic: str = low(
        "bulk.storage.topic",
        default="penstock-bulk",
        doc="The topic in which bulk runs of source connectors say how far they are; compacted, and made when the "
        "first run begins. bulk.storage.partitions (5), bulk.storage.replication.factor (-1, the broker's default) "
        "and any other bulk.storage.* say how.",
    )
    static_members: bool = low(
        "penstock.kafka.static.members",
        default=True,
        doc="Whether each sink task is a static member of its consumer group (group.instance.id): a worker that was "
        "killed then continues with its partitions as soon as it is started again. With 'false' the group first "
        "waits until the sessions of the old members have timed out (session.timeout.ms, 45 s). The worker's part of "
        "the ids is kept next to the offsets file. A group.instance.id of the user's own counts instead; where "
        "tasks.max is above 1, the number of the task is added to it.",
    )

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """Parses a worker's file whose placeholders are resolved; raises InvalidSettingsError with all faults."""
        definition = cls.definition()
        given: dict[str, object] = dict(properties)
        found = definition.validate_all(given)
        faults = faults_of(definition, given, found.values())
        values = {name: one.value for name, one in found.items() if not one.error_messages}
        faults.extend(_cross_faults(properties, values))
        # The definition accepts these nulls, as Kafka's does.
        for name in cls.never_null():
            if name in values and values[name] is None:
                faults.append(SettingFault.of(name, "null", "Value must be non-null", "null"))
        faults.extend(cls.cross_faults(properties, values))
        interval = values.get("offset.flush.interval.ms")
        if isinstance(interval, int) and interval < 1:
            # Kafka's definition accepts it, and then every source task fails.
            name, why = "offset.flush.interval.ms", "Value must be at least 1"
            faults.append(SettingFault.of(name, interval, why, str(interval)))
        if faults:
            raise InvalidSettingsError("Worker configuration", faults)
        return cls.of(values, **cls.beside(dict(properties), values))

    @classmethod
    def cross_faults(cls, properties: Mapping[str, str], values: Mapping[str, object]) -> list[SettingFault]:
        """Faults of combined settings that only one mode has."""
        return []

    @classmethod
    def beside(cls, raw: dict[str, str], values: Mapping[str, object]) -> dict[str, Any]:
        """The fields that are not settings."""
        return {"raw": raw}

    @property
    def key_converter(self) -> ConverterSettings:
        """The converter of keys for connectors without their own."""
        return ConverterSettings(self.key_converter_class, with_prefix(self.raw, "key.converter."))

    @property
    def value_converter(self) -> ConverterSettings:
        """The converter of values for connectors without their own."""
        return ConverterSettings(self.value_converter_class, with_prefix(self.raw, "value.converter."))

    @property
    def header_converter(self) -> ConverterSettings:
        """The converter of headers for connectors without their own."""
        return ConverterSettings(self.header_converter_class, with_prefix(self.raw, "header.converter."))

    @property
    def config_providers(self) -> tuple[ProviderSettings, ...]:
        """The providers of values kept outside of configurations."""
        return providers_of(self.raw)

    @property
    def sample_window(self) -> SampleWindow:
        """The sample window of the longest, the average and the rate of a metric."""
        # A length of 0 is allowed, but has no meaning.
        return SampleWindow(max(1, self.metrics_sample_window_ms) / 1000, self.metrics_num_samples)

    @property
    def all_through_spark(self) -> bool:
        """True if nothing may bypass Spark (``penstock.spark.bypass=never``)."""
        return self.spark_bypass == "never"

    def spark_settings(self) -> dict[str, str]:
        """The settings that are passed to Spark, `spark.` included."""
        return {name: value for name, value in self.raw.items() if name.startswith("spark.")}

    def rest_tls_settings(self, prefix: str = "listeners.https.") -> dict[str, str]:
        """The TLS settings of REST listeners: those below the prefix, else the plain `ssl.*` ones."""
        own = with_prefix(self.raw, prefix)
        return own or {name: value for name, value in self.raw.items() if name.startswith("ssl.")}


WORKER: Final = WorkerSettings.definition()


class StandaloneSettings(WorkerSettings):
    """The settings of a standalone worker."""

    offset_file: str = high(
        "offset.storage.file.filename", doc="The file in which the offsets of source connectors are kept."
    )
    config_storage_file_filename: str | None = low(
        default=None,
        doc="Penstock's own: the file in which configurations and target states of connectors made over REST outlive "
        "the worker; unset for the name of the offsets file with .connectors.json added; empty to forget them, as "
        "Kafka Connect does.",
    )

    @property
    def connector_file(self) -> str | None:
        """The file that stores the connectors, or None if the worker forgets them at its end."""
        named = self.config_storage_file_filename
        return f"{self.offset_file}.connectors.json" if named is None else named or None


STANDALONE: Final = StandaloneSettings.definition()


def providers_of(properties: Mapping[str, str]) -> tuple[ProviderSettings, ...]:
    """The config providers that a worker's file names; each needs a class."""
    names = [java_trim(name) for name in (properties.get("config.providers") or "").split(",")]
    providers = []
    for name in dict.fromkeys(filter(None, names)):
        prefix = f"config.providers.{name}."
        class_text = java_trim(properties.get(f"{prefix}class") or "")
        if not class_text:
            raise ConfigException(f'Missing required configuration "{prefix}class" which has no default value.')
        providers.append(ProviderSettings(name, class_text, with_prefix(properties, f"{prefix}param.")))
    return tuple(providers)


def resolve_placeholders(
    properties: Mapping[str, str], new_provider: Callable[[ProviderSettings], ConfigProvider]
) -> dict[str, str]:
    """A worker's file with its placeholders resolved.

    ``new_provider`` creates and configures a provider, which this function closes.
    """
    made: dict[str, ConfigProvider] = {}
    try:
        for settings in providers_of(properties):
            made[settings.name] = new_provider(settings)
        return ConfigTransformer(made).resolve(properties).complete()
    finally:
        for provider in made.values():
            provider.close()


#: As in Kafka's clients, a protocol before the host is ignored.
_SERVER: Final = re.compile(r".*?\[?[0-9a-zA-Z\-%._:]*\]?:([0-9]+)")
_HIGHEST_PORT: Final = 65535


def _cross_faults(properties: Mapping[str, str], values: Mapping[str, object]) -> list[SettingFault]:
    """Faults of combined settings, and faults that Kafka reports later."""
    faults = []
    name = "bootstrap.servers"
    servers = properties.get(name)
    if name in values and not java_trim(servers or ""):
        faults.append(SettingFault.of(name, servers, "Expected at least one host:port", servers))
    for server in filter(None, map(java_trim, (servers or "").split(","))):
        found = _SERVER.fullmatch(server)
        if found is None or int(found[1]) > _HIGHEST_PORT:
            faults.append(SettingFault.of(name, server, "Expected host:port", server))
    try:
        providers_of(properties)
    except ConfigException as error:
        faults.append(SettingFault("config.providers", properties.get("config.providers"), str(error)))
    return faults
