"""A worker's configuration, parsed.

Main types: `WorkerSettings`, `StandaloneSettings`, `ConverterSettings`, `ProviderSettings`. Frozen values; any
thread. Classes stay text here: which plugins there are depends on these settings.

Source: WorkerConfig and StandaloneConfig of Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from penstock.config import ConfigDef, ConfigProvider, ConfigTransformer, Password
from penstock.config.parse import java_trim
from penstock.errors import ConfigException
from penstock.settings.connector import with_prefix
from penstock.settings.faults import Fault, InvalidSettingsError, faults_of
from penstock.settings.worker_definition import STANDALONE, WORKER

_CLIENTS: Final = ("producer", "consumer", "admin")
_T = TypeVar("_T")


@dataclass(frozen=True)
class ConverterSettings:
    """A converter that the worker names.

    Attributes:
        class_text: The text that names the class.
        config: Its settings, without their prefix.
    """

    class_text: str
    config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class ProviderSettings:
    """A provider of values kept outside of configurations.

    Attributes:
        name: What placeholders call it.
        class_text: The text that names the class.
        params: What it is configured with.
    """

    name: str
    class_text: str
    params: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker in either mode.

    Attributes:
        raw: Every setting of the file, with placeholders resolved; settings that nobody knows are kept.
        values: The parsed values of the settings that are defined.
        admin_listeners: None for those of the API; empty for no admin endpoints.
    """

    raw: Mapping[str, str] = field(repr=False)
    values: Mapping[str, object]
    bootstrap_servers: tuple[str, ...]
    key_converter: ConverterSettings
    value_converter: ConverterSettings
    header_converter: ConverterSettings
    task_shutdown_graceful_timeout_ms: int
    offset_flush_interval_ms: int
    offset_flush_timeout_ms: int
    plugin_path: tuple[str, ...]
    config_providers: tuple[ProviderSettings, ...]
    override_policy: str
    override_allowlist: tuple[str, ...]
    topic_creation_enable: bool
    topic_tracking_enable: bool
    topic_tracking_allow_reset: bool
    listeners: tuple[str, ...]
    advertised_host: str | None
    advertised_port: int | None
    advertised_protocol: str | None
    allow_origin: str
    allow_methods: str
    response_headers: str
    rest_extension_classes: tuple[str, ...]
    admin_listeners: tuple[str, ...] | None
    batch_max_records: int
    batch_max_bytes: int
    metrics_sample_window_ms: int
    metrics_num_samples: int

    @classmethod
    def definition(cls) -> ConfigDef:
        """The settings that such a worker knows."""
        return WORKER

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """Parses the content of a worker's file.

        Args:
            properties: The settings; see `resolve_placeholders` for a file with placeholders.

        Raises:
            InvalidSettingsError: The settings have faults; all of them are listed.
        """
        definition = cls.definition()
        given: dict[str, object] = dict(properties)
        found = definition.validate_all(given)
        faults = faults_of(definition, given, found.values())
        faults.extend(_cross_faults(properties, found.keys() - {fault.key for fault in faults}))
        interval = found["offset.flush.interval.ms"].value
        if isinstance(interval, int) and interval < 1:
            # Kafka's definition takes it, and then every source task fails.
            rule = f"Invalid value {interval} for configuration offset.flush.interval.ms: Value must be at least 1"
            faults.append(Fault("offset.flush.interval.ms", str(interval), rule))
        if faults:
            raise InvalidSettingsError("Worker configuration", faults)
        values = {name: value.value for name, value in found.items()}
        return cls(**cls._fields(dict(properties), values))

    @classmethod
    def _fields(cls, raw: dict[str, str], values: dict[str, object]) -> dict[str, Any]:
        return {
            "raw": raw,
            "values": values,
            "bootstrap_servers": _texts(values, "bootstrap.servers"),
            "key_converter": _converter(raw, values, "key.converter"),
            "value_converter": _converter(raw, values, "value.converter"),
            "header_converter": _converter(raw, values, "header.converter"),
            "plugin_path": tuple(path for path in _texts(values, "plugin.path") if path),
            "config_providers": providers_of(raw),
            "override_policy": _get(values, "connector.client.config.override.policy", str),
            "override_allowlist": _texts(values, "connector.client.config.override.allowlist"),
            "listeners": _texts(values, "listeners"),
            "advertised_host": values["rest.advertised.host.name"],
            "advertised_port": values["rest.advertised.port"],
            "advertised_protocol": values["rest.advertised.listener"],
            "allow_origin": _get(values, "access.control.allow.origin", str),
            "allow_methods": _get(values, "access.control.allow.methods", str),
            "response_headers": _get(values, "response.http.headers.config", str),
            "rest_extension_classes": _texts(values, "rest.extension.classes"),
            "admin_listeners": None if values["admin.listeners"] is None else _texts(values, "admin.listeners"),
            **{field: _get(values, name, int) for field, name in _NUMBERS.items()},
            **{field: _get(values, name, bool) for field, name in _SWITCHES.items()},
        }

    def client_settings(self, client: str) -> dict[str, str]:
        """What connectors' clients of a kind are given by the worker: the settings below `<client>.`.

        Args:
            client: `producer`, `consumer` or `admin`.
        """
        return with_prefix(self.raw, f"{client}.")

    def own_client_settings(self) -> dict[str, str]:
        """The settings without a client's prefix: for the worker's own clients, which ignore what they do not know."""
        prefixes = tuple(f"{client}." for client in _CLIENTS)
        return {name: value for name, value in self.raw.items() if not name.startswith((*prefixes, "spark."))}

    @property
    def all_through_spark(self) -> bool:
        """Whether nothing may go around Spark (``penstock.spark.bypass=never``)."""
        return self.values["penstock.spark.bypass"] == "never"

    @property
    def producer_of_columns(self) -> bool:
        """Whether source tasks may send columns without the client library (``penstock.kafka.producer=columns``)."""
        return self.values["penstock.kafka.producer"] == "columns"

    @property
    def static_members(self) -> bool:
        """Whether sink tasks are static members of their groups (``penstock.kafka.static.members``)."""
        return self.values["penstock.kafka.static.members"] is True

    def spark_settings(self) -> dict[str, str]:
        """The settings that are passed to Spark, `spark.` included."""
        return {name: value for name, value in self.raw.items() if name.startswith("spark.")}

    def rest_tls_settings(self, prefix: str = "listeners.https.") -> dict[str, str]:
        """The TLS settings of REST listeners: those below the prefix, else the plain `ssl.*` ones.

        Args:
            prefix: `listeners.https.` or `admin.listeners.https.`.
        """
        own = with_prefix(self.raw, prefix)
        return own or {name: value for name, value in self.raw.items() if name.startswith("ssl.")}

    def secret(self, name: str) -> str | None:
        """The text of a PASSWORD setting."""
        value = self.values.get(name)
        return value.value if isinstance(value, Password) else None


@dataclass(frozen=True)
class StandaloneSettings(WorkerSettings):
    """The settings of a standalone worker.

    Attributes:
        offset_file: Where the offsets of source connectors are kept.
        connector_file: Where the connectors are kept; None to forget them when the worker ends.
    """

    offset_file: str
    connector_file: str | None

    @classmethod
    def definition(cls) -> ConfigDef:
        """The settings that a standalone worker knows."""
        return STANDALONE

    @classmethod
    def _fields(cls, raw: dict[str, str], values: dict[str, object]) -> dict[str, Any]:
        offset_file = _get(values, "offset.storage.file.filename", str)
        connector_file = values["config.storage.file.filename"]
        if connector_file is None:
            connector_file = f"{offset_file}.connectors.json"
        return {
            **super()._fields(raw, values),
            "offset_file": offset_file,
            "connector_file": connector_file or None,
        }


def providers_of(properties: Mapping[str, str]) -> tuple[ProviderSettings, ...]:
    """The config providers that a worker's file names.

    Raises:
        ConfigException: A provider has no class.
    """
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
    """A worker's file with its `${provider:[path:]key}` placeholders resolved.

    Args:
        properties: The file's content.
        new_provider: Makes and configures a provider; it is closed here.

    Raises:
        ConfigException: A provider cannot be made, cannot read a path, or has no value for a placeholder.
    """
    made: dict[str, ConfigProvider] = {}
    try:
        for settings in providers_of(properties):
            made[settings.name] = new_provider(settings)
        return ConfigTransformer(made).resolve(properties).complete()
    finally:
        for provider in made.values():
            provider.close()


_NUMBERS: Final = {
    "task_shutdown_graceful_timeout_ms": "task.shutdown.graceful.timeout.ms",
    "offset_flush_interval_ms": "offset.flush.interval.ms",
    "offset_flush_timeout_ms": "offset.flush.timeout.ms",
    "batch_max_records": "batch.max.records",
    "batch_max_bytes": "batch.max.bytes",
    "metrics_sample_window_ms": "metrics.sample.window.ms",
    "metrics_num_samples": "metrics.num.samples",
}
_SWITCHES: Final = {
    "topic_creation_enable": "topic.creation.enable",
    "topic_tracking_enable": "topic.tracking.enable",
    "topic_tracking_allow_reset": "topic.tracking.allow.reset",
}


#: As Kafka's clients read it: a protocol in front of the host is passed over.
_SERVER: Final = re.compile(r".*?\[?[0-9a-zA-Z\-%._:]*\]?:([0-9]+)")
_HIGHEST_PORT: Final = 65535


def _cross_faults(properties: Mapping[str, str], sound: set[str]) -> list[Fault]:
    """Faults that only show when more than one setting is looked at, or that Kafka reports later."""
    faults = []
    servers = properties.get("bootstrap.servers")
    if "bootstrap.servers" in sound and not java_trim(servers or ""):
        rule = f"Invalid value {servers} for configuration bootstrap.servers: Expected at least one host:port"
        faults.append(Fault("bootstrap.servers", servers, rule))
    for server in filter(None, map(java_trim, (servers or "").split(","))):
        found = _SERVER.fullmatch(server)
        if found is None or int(found[1]) > _HIGHEST_PORT:
            rule = f"Invalid value {server} for configuration bootstrap.servers: Expected host:port"
            faults.append(Fault("bootstrap.servers", server, rule))
    try:
        providers_of(properties)
    except ConfigException as error:
        faults.append(Fault("config.providers", properties.get("config.providers"), str(error)))
    nulls = [name for name in ("key.converter", "value.converter", "header.converter") if _is_null(properties, name)]
    for name in nulls:
        rule = f"Invalid value null for configuration {name}: Value must be non-null"
        faults.append(Fault(name, "null", rule))
    return faults


def _is_null(properties: Mapping[str, str], name: str) -> bool:
    return name in properties and properties.get(name) is None


def _converter(raw: Mapping[str, str], values: Mapping[str, object], setting: str) -> ConverterSettings:
    return ConverterSettings(_get(values, setting, str), with_prefix(raw, f"{setting}."))


def _texts(values: Mapping[str, object], setting: str) -> tuple[str, ...]:
    value = values.get(setting)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _get(values: Mapping[str, object], setting: str, kind: type[_T]) -> _T:
    value = values[setting]
    if not isinstance(value, kind):
        raise InvalidSettingsError(
            "Worker configuration",
            [Fault(setting, None, f"Invalid value null for configuration {setting}: Value must be non-null")],
        )
    return value
