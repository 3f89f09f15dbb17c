"""A connector's configuration, parsed.

Main types: `ConnectorSettings`, `SourceSettings`, `SinkSettings`, and the `PluginSpec` and `TransformSpec` of the
classes they name. Frozen values; any thread. Parsing makes instances of transforms and predicates to ask for
their settings.

Source: ConnectorConfig, SourceConnectorConfig and SinkConnectorConfig of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from penstock.config import ConfigDef, ConfigValue
from penstock.config.parse import java_text
from penstock.errors import ConfigException
from penstock.settings.connector_definitions import CONNECTOR, ISOLATION, SINK, SOURCE
from penstock.settings.enrichment import enrich
from penstock.settings.plugin_classes import PluginClasses, class_resolver
from penstock.settings.sink_topics import check_topics, require_valid_topics
from penstock.settings.topics import TopicCreation, parse_topic_creation, uses_topic_creation

_MASKED: Final = ("predicate", "negate")
_T = TypeVar("_T")


@dataclass(frozen=True)
class PluginSpec:
    """A class and the settings it is configured with, as text and without their prefix."""

    type: type
    config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class PredicateSpec:
    """A predicate by its alias."""

    alias: str
    type: type
    config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class TransformSpec:
    """One step of the chain of transformations.

    Attributes:
        predicate: The alias of the predicate that decides for which records it runs; None for all.
        negate: It runs for the records that the predicate does not take.
        config: Its settings, without `predicate` and `negate`.
    """

    alias: str
    type: type
    predicate: str | None
    negate: bool
    config: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class ConnectorSettings:
    """What sources and sinks have in common.

    Attributes:
        raw: The whole configuration, as it was given to the parser.
        connector_class: The text that names the connector's class.
        key_converter: The connector's own converter, or None for the worker's; so for value and header.
        transforms: The chain, in order.
        predicates: The predicates that the chain names, by alias.
        errors_retry_timeout_ms: 0 for no retry, -1 for ever.
        task_isolated: Each task has a process of its own.
        task_memory_max: The most bytes of data that such a process may have; None for no limit.
    """

    raw: Mapping[str, str] = field(repr=False)
    name: str
    connector_class: str
    tasks_max: int
    tasks_max_enforce: bool
    key_converter: PluginSpec | None
    value_converter: PluginSpec | None
    header_converter: PluginSpec | None
    transforms: tuple[TransformSpec, ...]
    predicates: Mapping[str, PredicateSpec]
    reload_on_expiry: bool
    errors_retry_timeout_ms: int
    errors_retry_delay_max_ms: int
    errors_tolerance_all: bool
    errors_log_enable: bool
    errors_log_include_messages: bool
    task_isolated: bool
    task_memory_max: int | None

    @classmethod
    def parse(cls, properties: Mapping[str, str], classes: PluginClasses) -> ConnectorSettings:
        """Parses the settings that every connector has; used before it is known if it is a source or a sink.

        Raises:
            ConfigException: The first fault found.
        """
        return cls(**_common(properties, connector_values(properties, classes)))

    def overrides(self, client: str) -> dict[str, str]:
        """The client settings `<client>.override.*` without that prefix; client is producer, consumer or admin."""
        return with_prefix(self.raw, f"{client}.override.")


@dataclass(frozen=True)
class SourceSettings(ConnectorSettings):
    """A source connector's settings.

    Attributes:
        topic_creation: The rules for new topics; None when the broker decides.
        offsets_topic: The connector's own offsets topic, or None for the worker's.
        exactly_once_required: Start only if it delivers exactly once.
        transaction_boundary: `poll`, `interval` or `connector`.
    """

    topic_creation: TopicCreation | None
    offsets_topic: str | None
    exactly_once_required: bool
    transaction_boundary: str
    transaction_boundary_interval_ms: int | None

    @classmethod
    def parse(
        cls, properties: Mapping[str, str], classes: PluginClasses, *, topic_creation_enabled: bool = True
    ) -> SourceSettings:
        """Parses a source connector's configuration.

        Args:
            properties: The configuration with its placeholders resolved.
            classes: Where classes are found.
            topic_creation_enabled: The worker's `topic.creation.enable`.

        Raises:
            ConfigException: The first fault found.
        """
        values = source_values(properties, classes)
        creates = topic_creation_enabled and uses_topic_creation(properties)
        return cls(
            **_common(properties, values),
            topic_creation=parse_topic_creation(properties) if creates else None,
            offsets_topic=_optional(values, "offsets.storage.topic", str),
            exactly_once_required=_get(values, "exactly.once.support", str).lower() == "required",
            transaction_boundary=_get(values, "transaction.boundary", str).lower(),
            transaction_boundary_interval_ms=_optional(values, "transaction.boundary.interval.ms", int),
        )


@dataclass(frozen=True)
class SinkSettings(ConnectorSettings):
    """A sink connector's settings.

    Attributes:
        topics: The topics it reads; empty with `topics_regex`.
        topics_regex: A regular expression in Java's syntax, or None.
        dlq_topic: The topic for records that fail, or None.
    """

    topics: tuple[str, ...]
    topics_regex: str | None
    dlq_topic: str | None
    dlq_replication_factor: int
    dlq_context_headers: bool

    @classmethod
    def parse(cls, properties: Mapping[str, str], classes: PluginClasses) -> SinkSettings:
        """Parses a sink connector's configuration.

        Raises:
            ConfigException: The first fault found.
        """
        values = sink_values(properties, classes)
        require_valid_topics(properties)
        return cls(
            **_common(properties, values),
            topics=tuple(map(str, _get(values, "topics", list))),
            topics_regex=_get(values, "topics.regex", str) or None,
            dlq_topic=_get(values, "errors.deadletterqueue.topic.name", str) or None,
            dlq_replication_factor=_get(values, "errors.deadletterqueue.topic.replication.factor", int),
            dlq_context_headers=_get(values, "errors.deadletterqueue.context.headers.enable", bool),
        )

    @property
    def reports_errant_records(self) -> bool:
        """If a task is given a reporter for bad records: there is a dead letter queue, or errors are logged."""
        return self.dlq_topic is not None or self.errors_log_enable


def connector_values(properties: Mapping[str, object], classes: PluginClasses) -> dict[str, object]:
    """The parsed values of the settings that every connector has, transforms and predicates included.

    Raises:
        ConfigException: The first fault found.
    """
    return _values(CONNECTOR, properties, classes)


def source_values(properties: Mapping[str, object], classes: PluginClasses) -> dict[str, object]:
    """As `connector_values`, with a source's settings."""
    return _values(SOURCE, properties, classes)


def sink_values(properties: Mapping[str, object], classes: PluginClasses) -> dict[str, object]:
    """As `connector_values`, with a sink's settings."""
    return _values(SINK, properties, classes)


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


def _values(base: ConfigDef, properties: Mapping[str, object], classes: PluginClasses) -> dict[str, object]:
    resolve = class_resolver(classes)
    # First alone, as Kafka does: a fault in these settings is reported before one in a transform.
    base.parse(properties, resolve_class=resolve)
    return enrich(ConfigDef(base, ISOLATION), properties, classes, require_full=True).parse(
        properties, resolve_class=resolve
    )


def _common(properties: Mapping[str, str], values: Mapping[str, object]) -> dict[str, Any]:
    return {
        "raw": dict(properties),
        "name": _get(values, "name", str),
        "connector_class": _get(values, "connector.class", str),
        "tasks_max": _get(values, "tasks.max", int),
        "tasks_max_enforce": _get(values, "tasks.max.enforce", bool),
        "key_converter": _converter(properties, values, "key.converter"),
        "value_converter": _converter(properties, values, "value.converter"),
        "header_converter": _converter(properties, values, "header.converter"),
        "transforms": _transforms(properties, values),
        "predicates": _predicates(properties, values),
        "reload_on_expiry": values["config.action.reload"] == "restart",
        "errors_retry_timeout_ms": _get(values, "errors.retry.timeout", int),
        "errors_retry_delay_max_ms": _get(values, "errors.retry.delay.max.ms", int),
        "errors_tolerance_all": values["errors.tolerance"] == "all",
        "errors_log_enable": _get(values, "errors.log.enable", bool),
        "errors_log_include_messages": _get(values, "errors.log.include.messages", bool),
        "task_isolated": values["task.isolation"] == "process",
        "task_memory_max": _optional(values, "task.isolation.memory.max.bytes", int),
    }


def _converter(properties: Mapping[str, str], values: Mapping[str, object], setting: str) -> PluginSpec | None:
    cls = _optional(values, setting, type)
    return None if cls is None else PluginSpec(cls, with_prefix(properties, f"{setting}."))


def _transforms(properties: Mapping[str, str], values: Mapping[str, object]) -> tuple[TransformSpec, ...]:
    known = _get(values, "predicates", list)
    specs = []
    for alias in map(str, _get(values, "transforms", list)):
        prefix = f"transforms.{alias}."
        predicate = _optional(values, f"{prefix}predicate", str)
        if predicate is not None and predicate not in known:
            raise ConfigException(
                f"{prefix}predicate",
                predicate,
                f"No predicate has this alias; the setting 'predicates' names {java_text(known)}",
            )
        config = {name: value for name, value in with_prefix(properties, prefix).items() if name not in _MASKED}
        specs.append(
            TransformSpec(
                alias, _get(values, f"{prefix}type", type), predicate, _get(values, f"{prefix}negate", bool), config
            )
        )
    return tuple(specs)


def _predicates(properties: Mapping[str, str], values: Mapping[str, object]) -> dict[str, PredicateSpec]:
    specs = {}
    for alias in map(str, _get(values, "predicates", list)):
        prefix = f"predicates.{alias}."
        cls = _get(values, f"{prefix}type", type)
        specs[alias] = PredicateSpec(alias, cls, with_prefix(properties, prefix))
    return specs


def _get(values: Mapping[str, object], setting: str, kind: type[_T]) -> _T:
    value = values.get(setting)
    if not isinstance(value, kind):
        # Definitions let an explicit null pass; without this the worker would fail later and less clearly.
        raise ConfigException(setting, java_text(value), "Value must be non-null")
    return value


def _optional(values: Mapping[str, object], setting: str, kind: type[_T]) -> _T | None:
    return None if values.get(setting) is None else _get(values, setting, kind)
