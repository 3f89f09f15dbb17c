"""Adds the settings of a connector's transforms and predicates to its definition.

Main function: `enrich`. Main type: `TransformConfig`, what the worker itself reads of each transform. Makes an instance
of each class to ask for its settings, so it runs users' code.

Source: ConnectorConfig.enrich of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.config import ConfigDef, ConfigType, Importance, LambdaValidator, Width, setting
from penstock.config.abstract_config import TypedConfig
from penstock.config.parse import parse_type
from penstock.errors import ConfigException
from penstock.plugins import PluginKind
from penstock.settings.connector_definitions import PREDICATES, TRANSFORMS
from penstock.settings.plugin_classes import PluginClasses, class_resolver, definition_of, kind_of_setting

_log = logging.getLogger(__name__)


class TransformConfig(TypedConfig):
    """The settings that the worker itself reads below the alias of a transform; the transform does not see them."""

    predicate: str | None = setting(
        default=None, doc="The alias of a predicate used to determine whether to apply this transformation."
    )
    negate: bool = setting(default=False, doc="Whether the configured predicate should be negated.")


OF_THE_WORKER: Final = TransformConfig.definition()


def enrich(
    base: ConfigDef, properties: Mapping[str, object], classes: PluginClasses, *, require_full: bool
) -> ConfigDef:
    """The definition with the settings below `transforms.<alias>.` and `predicates.<alias>.`.

    Args:
        base: The settings of the connector.
        properties: Its configuration, which names the aliases and classes.
        classes: Where the classes are found.
        require_full: Raise when a class cannot be asked for its settings. Otherwise only `type` and
            `plugin.version` of such an alias are added, and validating `type` reports the fault.

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
    """Offers the plugins that are installed."""

    classes: PluginClasses
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
    classes: PluginClasses

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
        definition.define(
            f"{prefix}type",
            ConfigType.CLASS,
            validator=LambdaValidator(_TypeCheck(self, prefix), f"valid configs for {alias} {noun.lower()}"),
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

    def check_negate(self, prefix: str) -> None:
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
class _TypeCheck:
    """The validator of `type`: the class must be usable, and `negate` must have a `predicate`."""

    aliases: _Aliases
    prefix: str

    def __call__(self, name: str, value: object) -> None:
        self.aliases.check_negate(self.prefix)
        # Null when the class was not found, which is reported already.
        if value is not None:
            definition_of(name, self.aliases.kind, value)
