"""A connector's configuration, parsed.

Parsing makes instances of transforms and predicates to ask for their settings, so it runs users' code. The results are
frozen values; any thread.
Source: ConnectorConfig (enrich), SourceConnectorConfig and SinkConnectorConfig of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from penstock.config import ConfigDef, ConfigType, ConfigValue, Importance, LambdaValidator, Width, setting
from penstock.config.abstract_config import TypedConfig
from penstock.config.parse import java_text, parse_type
from penstock.config.properties import Prefixed
from penstock.errors import ConfigException
from penstock.plugins import PluginKind
from penstock.settings.connector_definitions import (
    ISOLATION,
    OF_SINKS,
    OF_SOURCES,
    PREDICATES,
    SINK,
    TRANSFORMS,
    ConnectorConfig,
    FramesConfig,
    IsolationConfig,
    SinkConnectorConfig,
    SourceConnectorConfig,
    SourceRetryConfig,
)
from penstock.settings.plugin_classes import InstalledPlugins, class_resolver, definition_of, kind_of_setting
from penstock.settings.topics import (
    TopicCreation,
    check_topics,
    parse_topic_creation,
    require_valid_topics,
    uses_topic_creation,
)

_log = logging.getLogger(__name__)


class TransformConfig(TypedConfig):
    """The settings below the alias of a transform that only the worker reads."""

    predicate: str | None = setting(
        default=None, doc="The alias of a predicate used to determine whether to apply this transformation."
    )
    negate: bool = setting(default=False, doc="Whether the configured predicate should be negated.")


OF_THE_WORKER: Final = TransformConfig.definition()


def enrich(
    base: ConfigDef, properties: Mapping[str, object], classes: InstalledPlugins, *, require_full: bool
) -> ConfigDef:
    """The definition with the settings below `transforms.<alias>.` and `predicates.<alias>.`.

    Args:
        base: The settings of the connector.
        properties: Its configuration, which names the aliases and classes.
        classes: Loads the classes.
        require_full: True to raise if the settings of a class are unavailable. Otherwise only `type` and
            `plugin.version` of its alias are added, and validating `type` reports the fault.

    Raises:
        ConfigException: See `require_full`.
    """
    enriched = ConfigDef()
    for key in base.keys.values():
        kind = kind_of_setting(key.name)
        enriched.define_key(key if kind is None else replace(key, recommender=_Installed(classes, kind)))
    for aliases in (
        _Aliases("transforms", TRANSFORMS, PluginKind.TRANSFORMATION, properties, classes),
        _Aliases("predicates", PREDICATES, PluginKind.PREDICATE, properties, classes),
    ):
        aliases.add_to(enriched, require_full=require_full)
    return enriched


@dataclass(frozen=True)
class _Installed:
    classes: InstalledPlugins
    kind: PluginKind

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        del name, parsed
        return list(self.classes.installed(self.kind))

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        del name, parsed
        return True


@dataclass(frozen=True)
class _Aliases:
    """The aliases in `transforms` or in `predicates`."""

    setting: str
    group: str
    kind: PluginKind
    properties: Mapping[str, object]
    classes: InstalledPlugins

    def add_to(self, definition: ConfigDef, *, require_full: bool) -> None:
        aliases = parse_type(self.setting, self.properties.get(self.setting), ConfigType.LIST)
        for alias in dict.fromkeys(aliases if isinstance(aliases, list) else ()):
            if not isinstance(alias, str):
                raise ConfigException(f"Item in {self.setting} property is not of type String")
            self._add_alias(definition, alias, require_full=require_full)

    def _add_alias(self, definition: ConfigDef, alias: str, *, require_full: bool) -> None:
        prefix = f"{self.setting}.{alias}."
        group = f"{self.group}: {alias}"
        noun = self.kind.noun

        def check(name: str, value: object) -> None:
            self._check_negate(prefix)
            # Null if the class was not found, which is reported already.
            if value is not None:
                definition_of(name, self.kind, value)

        definition.define(
            f"{prefix}type",
            ConfigType.CLASS,
            validator=LambdaValidator(check, f"valid configs for {alias} {noun.lower()}"),
            importance=Importance.HIGH,
            doc=f"Class for the '{alias}' {noun.lower()}.",
            group=group,
            order=0,
            width=Width.LONG,
            display_name=f"{noun} type for {alias}",
            recommender=_Installed(self.classes, self.kind),
        )
        definition.define(
            f"{prefix}plugin.version",
            ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            doc=f"Version of the '{alias}' {noun.lower()}.",
            group=group,
            order=1,
            width=Width.LONG,
            display_name=f"{noun} version for {alias}",
        )
        try:
            own = self._own_settings(prefix)
        except ConfigException:
            if require_full:
                raise
            return
        definition.embed(prefix, group, 2, own)

    def _check_negate(self, prefix: str) -> None:
        """Refuses `negate` without `predicate`."""
        negate, predicate = f"{prefix}negate", f"{prefix}predicate"
        is_transform = self.kind is PluginKind.TRANSFORMATION
        if is_transform and negate in self.properties and predicate not in self.properties:
            raise ConfigException(
                f"Config '{negate}' was provided but there is no config '{predicate}' defining a predicate to be "
                "negated."
            )

    def _own_settings(self, prefix: str) -> ConfigDef:
        setting = f"{prefix}type"
        text = self.properties.get(setting)
        cls = parse_type(setting, text, ConfigType.CLASS, resolve_class=class_resolver(self.classes))
        own = definition_of(setting, self.kind, cls)
        if self.kind is not PluginKind.TRANSFORMATION:
            return own
        definition = ConfigDef(OF_THE_WORKER)
        for key in own.keys.values():
            if key.name in OF_THE_WORKER.keys:
                _log.warning("The transformation's own setting %s%s is hidden by the worker's", prefix, key.name)
            else:
                definition.define_key(key)
        return definition


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
    """One step of the chain of transformations; ``config`` is without `predicate` and `negate`."""

    alias: str
    type: type = setting(type=ConfigType.CLASS)
    config: Mapping[str, str] = field(repr=False)


class ConnectorSettings(ConnectorConfig):
    """The common settings of sources and sinks.

    Attributes:
        raw: The whole configuration, as passed to the parser.
        transforms: The chain, in order.
        predicates: The predicates that the chain names, by alias.
        isolation: True if each task has a separate process.
    """

    raw: Mapping[str, str] = field(repr=False)
    transforms: tuple[TransformSpec, ...]
    predicates: Mapping[str, PredicateSpec]
    isolation: IsolationConfig

    @classmethod
    def parse(cls, properties: Mapping[str, str], classes: InstalledPlugins) -> Self:
        """Parses the settings that every connector has, before its type (source or sink) is known."""
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
    """A source connector's settings; ``topic_creation`` is None if the broker decides."""

    topic_creation: TopicCreation | None
    retry: SourceRetryConfig

    @classmethod
    def parse(
        cls, properties: Mapping[str, str], classes: InstalledPlugins, *, topic_creation_enabled: bool = True
    ) -> Self:
        """Parses a configuration whose placeholders are resolved; raises the first fault."""
        values = connector_values(cls.definition(), properties, classes, OF_SOURCES)
        beside = _beside(properties, values)
        creates = topic_creation_enabled and uses_topic_creation(properties)
        topics = parse_topic_creation(properties) if creates else None
        return cls.of(values, **beside, topic_creation=topics, retry=SourceRetryConfig.of(values))


class SinkSettings(SinkConnectorConfig, ConnectorSettings):
    """A sink connector's settings."""

    frames: FramesConfig

    @classmethod
    def parse(cls, properties: Mapping[str, str], classes: InstalledPlugins) -> Self:
        """Parses a configuration whose placeholders are resolved; raises the first fault."""
        values = connector_values(cls.definition(), properties, classes, OF_SINKS)
        require_valid_topics(properties)
        return cls.of(values, **_beside(properties, values), frames=FramesConfig.of(values))


def connector_values(
    base: ConfigDef, properties: Mapping[str, object], classes: InstalledPlugins, own: ConfigDef = ISOLATION
) -> dict[str, object]:
    """The parsed values of the settings that every connector has, transforms and predicates included."""
    resolve = class_resolver(classes)
    # Parsed first, as in Kafka: a fault in these settings is reported before one in a transform.
    base.parse(properties, resolve_class=resolve)
    return enrich(ConfigDef(base, own), properties, classes, require_full=True).parse(properties, resolve_class=resolve)


def validate_connector(
    base: ConfigDef, properties: Mapping[str, object], classes: InstalledPlugins, own: ConfigDef | None = None
) -> tuple[ConfigDef, dict[str, ConfigValue]]:
    """The definition with the settings of transforms and predicates, and the outcome for each setting."""
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
    """The fields of `ConnectorSettings` that are not settings."""
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
