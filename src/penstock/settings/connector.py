"""A connector's configuration, parsed.

Main types: `ConnectorSettings`, `SourceSettings`, `SinkSettings`, and the `PluginSpec` and `TransformSpec` of the
classes they name. Frozen values; any thread. Parsing makes instances of transforms and predicates to ask for
their settings.

Source: ConnectorConfig, SourceConnectorConfig and SinkConnectorConfig of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.config import ConfigDef, ConfigType, ConfigValue, setting
from penstock.config.abstract_config import TypedConfig
from penstock.config.parse import java_text
from penstock.config.prefixes import Prefixed
from penstock.errors import ConfigException
from penstock.settings.connector_definitions import (
    ISOLATION,
    OF_SINKS,
    OF_SOURCES,
    SINK,
    ConnectorConfig,
    FramesConfig,
    IsolationConfig,
    SinkConnectorConfig,
    SourceConnectorConfig,
    SourceRetryConfig,
)
from penstock.settings.enrichment import OF_THE_WORKER, TransformConfig, enrich
from penstock.settings.plugin_classes import PluginClasses, class_resolver
from penstock.settings.sink_topics import check_topics, require_valid_topics
from penstock.settings.topics import TopicCreation, parse_topic_creation, uses_topic_creation


@dataclass(frozen=True)
class PluginSpec:
    """A class and the settings it is configured with, as text and without their prefix."""

    type: type
    config: Mapping[str, str] = field(repr=False)


class PredicateSpec(TypedConfig):
    """A predicate by its alias."""

    alias: str
    type: type = setting(type=ConfigType.CLASS)
    config: Mapping[str, str] = field(repr=False)


class TransformSpec(TransformConfig):
    """One step of the chain of transformations.

    Attributes:
        predicate: The alias of the predicate that decides for which records it runs; None for all.
        negate: It runs for the records that the predicate does not take.
        config: Its settings, without `predicate` and `negate`.
    """

    alias: str
    type: type = setting(type=ConfigType.CLASS)
    config: Mapping[str, str] = field(repr=False)


class ConnectorSettings(ConnectorConfig):
    """The common settings of sources and sinks.

    Attributes:
        raw: The whole configuration, as it was given to the parser.
        transforms: The chain, in order.
        predicates: The predicates that the chain names, by alias.
        isolation: Whether each task has a process of its own.
    """

    raw: Mapping[str, str] = field(repr=False)
    transforms: tuple[TransformSpec, ...]
    predicates: Mapping[str, PredicateSpec]
    isolation: IsolationConfig

    @classmethod
    def parse(cls, properties: Mapping[str, str], classes: PluginClasses) -> Self:
        """Parses the settings that every connector has; used before it is known if it is a source or a sink.

        Raises:
            ConfigException: The first fault found.
        """
        values = connector_values(cls.definition(), properties, classes)
        return cls.of(values, **_beside(properties, values))

    @property
    def key_converter(self) -> PluginSpec | None:
        """The connector's own converter of keys, or None for the worker's."""
        return self._converter("key", self.key_converter_class)

    @property
    def value_converter(self) -> PluginSpec | None:
        """The connector's own converter of values, or None for the worker's."""
        return self._converter("value", self.value_converter_class)

    @property
    def header_converter(self) -> PluginSpec | None:
        """The connector's own converter of headers, or None for the worker's."""
        return self._converter("header", self.header_converter_class)

    def _converter(self, side: str, cls: type | None) -> PluginSpec | None:
        return None if cls is None else PluginSpec(cls, with_prefix(self.raw, f"{side}.converter."))

    @property
    def errors_tolerance_all(self) -> bool:
        """True if bad records are skipped."""
        return self.errors_tolerance == "all"


class SourceSettings(SourceConnectorConfig, ConnectorSettings):
    """A source connector's settings.

    Attributes:
        topic_creation: The rules for new topics; None when the broker decides.
        retry: How long a call waits that asked to be made again.
    """

    topic_creation: TopicCreation | None
    retry: SourceRetryConfig

    @classmethod
    def parse(
        cls, properties: Mapping[str, str], classes: PluginClasses, *, topic_creation_enabled: bool = True
    ) -> Self:
        """Parses a source connector's configuration.

        Args:
            properties: The configuration with its placeholders resolved.
            classes: Where classes are found.
            topic_creation_enabled: The worker's `topic.creation.enable`.

        Raises:
            ConfigException: The first fault found.
        """
        values = connector_values(cls.definition(), properties, classes, OF_SOURCES)
        beside = _beside(properties, values)
        creates = topic_creation_enabled and uses_topic_creation(properties)
        topics = parse_topic_creation(properties) if creates else None
        return cls.of(values, **beside, topic_creation=topics, retry=SourceRetryConfig.of(values))


class SinkSettings(SinkConnectorConfig, ConnectorSettings):
    """A sink connector's settings.

    Attributes:
        frames: How records become frames.
    """

    frames: FramesConfig

    @classmethod
    def parse(cls, properties: Mapping[str, str], classes: PluginClasses) -> Self:
        """Parses a sink connector's configuration.

        Raises:
            ConfigException: The first fault found.
        """
        values = connector_values(cls.definition(), properties, classes, OF_SINKS)
        require_valid_topics(properties)
        return cls.of(values, **_beside(properties, values), frames=FramesConfig.of(values))

    @property
    def reports_errant_records(self) -> bool:
        """If a task is given a reporter for bad records: there is a dead letter queue, or errors are logged."""
        return bool(self.dlq_topic) or self.errors_log_enable


def connector_values(
    base: ConfigDef, properties: Mapping[str, object], classes: PluginClasses, own: ConfigDef = ISOLATION
) -> dict[str, object]:
    """The parsed values of the settings that every connector has, transforms and predicates included.

    Args:
        base: `CONNECTOR`, `SOURCE` or `SINK`.
        properties: The configuration.
        classes: Where classes are found.
        own: Settings beside Kafka Connect's.

    Raises:
        ConfigException: The first fault found.
    """
    resolve = class_resolver(classes)
    # First alone, as Kafka does: a fault in these settings is reported before one in a transform.
    base.parse(properties, resolve_class=resolve)
    return enrich(ConfigDef(base, own), properties, classes, require_full=True).parse(properties, resolve_class=resolve)


def validate_connector(
    base: ConfigDef, properties: Mapping[str, object], classes: PluginClasses, own: ConfigDef | None = None
) -> tuple[ConfigDef, dict[str, ConfigValue]]:
    """Validates a connector's configuration without stopping at the first fault.

    Args:
        base: `CONNECTOR`, `SOURCE` or `SINK`; for `SINK` the topics are checked too.
        properties: The configuration.
        classes: Where classes are found.
        own: Settings beside Kafka Connect's.

    Returns:
        The definition with the settings of transforms and predicates, and the outcome for each setting.
    """
    definition = enrich(ConfigDef(base, own or ConfigDef()), properties, classes, require_full=False)
    found = definition.validate_all(properties, resolve_class=class_resolver(classes))
    if base is SINK:
        check_topics(properties, found)
    return definition, found


def with_prefix(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings that begin with a prefix, without it; nulls are left out.

    >>> with_prefix({"producer.acks": "1", "name": "x"}, "producer.")
    {'acks': '1'}
    """
    return {
        name.removeprefix(prefix): value
        for name, value in properties.items()
        if name.startswith(prefix) and name != prefix and value is not None
    }


def _beside(properties: Mapping[str, str], values: Mapping[str, object]) -> dict[str, Any]:
    """The fields of `ConnectorSettings` that are no settings."""
    named = ConnectorConfig.of(values)
    return {
        "raw": dict(properties),
        "transforms": _transforms(named, properties, values),
        "predicates": _predicates(named, properties, values),
        "isolation": IsolationConfig.of(values),
    }


def _transforms(
    named: ConnectorConfig, properties: Mapping[str, str], values: Mapping[str, object]
) -> tuple[TransformSpec, ...]:
    specs = []
    settings, predicates = Prefixed(properties), frozenset(named.predicate_aliases)
    for alias in named.transform_aliases:
        prefix = f"transforms.{alias}."
        own = settings.below(prefix)
        config = {name: value for name, value in own.items() if name not in OF_THE_WORKER.keys}
        spec = TransformSpec.of(values, prefix, alias=alias, config=config)
        if spec.predicate is not None and spec.predicate not in predicates:
            raise ConfigException(
                f"{prefix}predicate",
                spec.predicate,
                "No predicate has this alias; the setting 'predicates' names "
                f"{java_text(list(named.predicate_aliases))}",
            )
        specs.append(spec)
    return tuple(specs)


def _predicates(
    named: ConnectorConfig, properties: Mapping[str, str], values: Mapping[str, object]
) -> dict[str, PredicateSpec]:
    prefixes = {alias: f"predicates.{alias}." for alias in named.predicate_aliases}
    settings = Prefixed(properties)
    return {
        alias: PredicateSpec.of(values, prefix, alias=alias, config=settings.below(prefix))
        for alias, prefix in prefixes.items()
    }
