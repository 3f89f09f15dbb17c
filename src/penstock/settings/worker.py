"""A worker's configuration, parsed.

Main types: `WorkerSettings`, `StandaloneSettings`, `ConverterSettings`, `ProviderSettings`. Frozen values; any
thread. Classes stay text here: which plugins there are depends on these settings.

Source: WorkerConfig and StandaloneConfig of Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.api import SampleWindow
from penstock.config import ConfigProvider, ConfigTransformer
from penstock.config.parse import java_trim
from penstock.errors import ConfigException
from penstock.settings.connector import with_prefix
from penstock.settings.faults import Fault, InvalidSettingsError, faults_of
from penstock.settings.worker_definition import WorkerConfig, high, low


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


class WorkerSettings(WorkerConfig):
    """The settings of a worker in either mode.

    Attributes:
        raw: Every setting of the file, with placeholders resolved; settings that nobody knows are kept.
    """

    raw: Mapping[str, str] = field(repr=False)

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
        values = {name: one.value for name, one in found.items() if not one.error_messages}
        faults.extend(_cross_faults(properties, values))
        # Nulls that the definition lets pass, as Kafka's does.
        for name in cls.never_null():
            if name in values and values[name] is None:
                rule = f"Invalid value null for configuration {name}: Value must be non-null"
                faults.append(Fault(name, "null", rule))
        faults.extend(cls.cross_faults(properties, values))
        interval = values.get("offset.flush.interval.ms")
        if isinstance(interval, int) and interval < 1:
            # Kafka's definition takes it, and then every source task fails.
            rule = f"Invalid value {interval} for configuration offset.flush.interval.ms: Value must be at least 1"
            faults.append(Fault("offset.flush.interval.ms", str(interval), rule))
        if faults:
            raise InvalidSettingsError("Worker configuration", faults)
        return cls.of(values, **cls.beside(dict(properties), values))

    @classmethod
    def cross_faults(cls, properties: Mapping[str, str], values: Mapping[str, object]) -> list[Fault]:
        """Faults of such a worker's settings that only show when more than one is looked at.

        Args:
            properties: As given.
            values: Those that have no fault of their own, parsed.
        """
        return []

    @classmethod
    def beside(cls, raw: dict[str, str], values: Mapping[str, object]) -> dict[str, Any]:
        """The fields that are no settings."""
        return {"raw": raw}

    @property
    def key_converter(self) -> ConverterSettings:
        """The converter of keys, where a connector has none."""
        return ConverterSettings(self.key_converter_class, with_prefix(self.raw, "key.converter."))

    @property
    def value_converter(self) -> ConverterSettings:
        """The converter of values, where a connector has none."""
        return ConverterSettings(self.value_converter_class, with_prefix(self.raw, "value.converter."))

    @property
    def header_converter(self) -> ConverterSettings:
        """The converter of headers, where a connector has none."""
        return ConverterSettings(self.header_converter_class, with_prefix(self.raw, "header.converter."))

    @property
    def config_providers(self) -> tuple[ProviderSettings, ...]:
        """The providers of values kept outside of configurations."""
        return providers_of(self.raw)

    @property
    def sample_window(self) -> SampleWindow:
        """What the longest, the average and the rate of a metric look at."""
        # A length of 0 is allowed and means nothing.
        return SampleWindow(max(1, self.metrics_sample_window_ms) / 1000, self.metrics_num_samples)

    @property
    def all_through_spark(self) -> bool:
        """Whether nothing may go around Spark (``penstock.spark.bypass=never``)."""
        return self.spark_bypass == "never"

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
        """Where the connectors are kept; None to forget them when the worker ends."""
        named = self.config_storage_file_filename
        return f"{self.offset_file}.connectors.json" if named is None else named or None


STANDALONE: Final = StandaloneSettings.definition()


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


#: As Kafka's clients read it: a protocol in front of the host is passed over.
_SERVER: Final = re.compile(r".*?\[?[0-9a-zA-Z\-%._:]*\]?:([0-9]+)")
_HIGHEST_PORT: Final = 65535


def _cross_faults(properties: Mapping[str, str], values: Mapping[str, object]) -> list[Fault]:
    """Faults that only show when more than one setting is looked at, or that Kafka reports later."""
    faults = []
    servers = properties.get("bootstrap.servers")
    if "bootstrap.servers" in values and not java_trim(servers or ""):
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
    return faults
