"""Checks the transforms, predicates and converters of a connector's configuration, and lists plugins for REST.

A definition checks each setting by itself. The class checks combinations of settings, and files, when it is configured:
Java Connect does that only in each task, here the validation tries it. Only classes that come with Penstock are tried:
they open no connection when they are configured; users' classes may, or may start threads that would keep running.

Thread: that of the validation, or another one that may run users' code (imports, ``config``, constructors); stateless.
Source: org.apache.kafka.connect.runtime.AbstractHerder (validateConverterConfig, connectorPluginConfig).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.api import Converter, HeaderConverter
from penstock.config import ConfigDef, ConfigValue
from penstock.config.parse import HIDDEN
from penstock.config.properties import NamesByPrefix, Prefixed
from penstock.errors import BadRequestException, ConfigException, NotFoundException, as_exception
from penstock.model.payloads import PluginInfo
from penstock.plugins import PluginKind, PluginNotFoundException, Plugins
from penstock.settings import SINK, SOURCE, InstalledPlugins, with_prefix
from penstock.settings.connector import OF_THE_WORKER
from penstock.settings.plugin_classes import CONVERTERS, changed_code
from penstock.validation.config_infos import Finding, key_json

log = logging.getLogger(__name__)


def check_converters(
    config: Mapping[str, str], found: Mapping[str, ConfigValue], classes: InstalledPlugins
) -> tuple[list[Finding], list[ConfigDef]]:
    """Checks the settings below each converter's name; errors of the name itself are added to ``found``."""
    findings: list[Finding] = []
    definitions: list[ConfigDef] = []
    for setting, kind in CONVERTERS.items():
        text, named = config.get(setting), found.get(setting)
        if text is None or named is None or named.error_messages:
            continue
        definition = _definition(text, kind, named, classes)
        if definition is None:
            continue
        own = {"converter.type": setting.removesuffix(".converter"), **with_prefix(config, f"{setting}.")}
        try:
            values = definition.validate(own)
        except BaseException as error:
            named.add_error_message(f"Failed to perform config validation for {text}{_reason(error)}")
            continue
        definitions.append(definition)
        keys = definition.keys
        findings += [
            Finding(keys.get(value.name), value, f"{setting}.", config.get(f"{setting}.{value.name}"))
            for value in values
        ]
    return findings, definitions


def _definition(text: str, kind: PluginKind, named: ConfigValue, classes: InstalledPlugins) -> ConfigDef | None:
    """The settings that a converter defines; None if it has none or cannot be used, which is noted."""
    try:
        cls = classes.find_class(kind, text)
        if not issubclass(cls, (Converter, HeaderConverter)):
            named.add_error_message(f"Failed to load class {text}: it is no {kind.noun}")
            return None
        instance = cls()
    except BaseException as error:
        named.add_error_message(f"Failed to load class {text}{_reason(error)}")
        return None
    try:
        definition: object = instance.config()
    except BaseException as error:
        named.add_error_message(f"Failed to load ConfigDef from {text}{_reason(error)}")
        return None
    if not isinstance(definition, ConfigDef):
        log.warning("%s.config() has not returned a ConfigDef; its settings are not checked", text)
        return None
    return definition


def _reason(error: BaseException) -> str:
    text = str(as_exception(error))
    return f": {text}" if text else f": {type(error).__name__}"


_OURS: Final = ("penstock.converters.", "penstock.transforms.")


def try_plugins(config: Mapping[str, str], values: Mapping[str, ConfigValue], findings: Sequence[Finding]) -> None:
    """Configures the classes as a trial, and adds their errors to the settings at fault.

    A class whose settings have faults in ``findings`` is not tried.
    """
    by_name = {finding.name: finding for finding in findings}
    ordered = NamesByPrefix(by_name)
    for setting, prefix, arguments in _trials(config, values):
        cls = values[setting].value if setting in values and setting in by_name else None
        if not isinstance(cls, type) or not cls.__module__.startswith(_OURS):
            continue
        if any(by_name[name].value.error_messages for name in (*ordered.below(prefix), setting)):
            continue
        instance: Any = cls()
        try:
            instance.configure(*arguments)
        except BaseException as error:
            _note(setting, prefix, error, config, by_name)
        finally:
            instance.close()


def _trials(
    config: Mapping[str, str], values: Mapping[str, ConfigValue]
) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """The settings that name a class, the prefix of its own settings, and the arguments of its ``configure``."""
    settings = Prefixed(config)
    for kind in ("transforms", "predicates"):
        aliases = values[kind].value if kind in values else None
        for alias in dict.fromkeys(map(str, aliases)) if isinstance(aliases, list) else ():
            prefix = f"{kind}.{alias}."
            own = {name: text for name, text in settings.below(prefix).items() if name not in OF_THE_WORKER.keys}
            yield f"{prefix}type", prefix, (own,)
    for setting in CONVERTERS:
        if config.get(setting) is not None:
            own = {**with_prefix(config, f"{setting}."), "converter.type": setting.partition(".")[0]}
            side = () if setting == "header.converter" else (setting == "key.converter",)
            yield setting, f"{setting}.", (own, *side)


def _note(
    setting: str, prefix: str, fault: BaseException, config: Mapping[str, str], by_name: Mapping[str, Finding]
) -> None:
    """Adds a fault to its setting, or to the setting of the class if it concerns several."""
    about = fault.name if isinstance(fault, ConfigException) else None
    finding = by_name.get(f"{prefix}{about}") if about else None
    if isinstance(fault, ConfigException) and finding is not None:
        shown = HIDDEN if finding.secret else fault.value
        error = ConfigException(finding.name, shown, fault.reason)
    else:
        finding = by_name[setting]
        error = ConfigException(setting, config.get(setting), str(as_exception(fault)) or type(fault).__name__)
    finding.value.add_error_message(str(error))


class PluginCatalog:
    """The plugins of a worker."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def entries(self) -> list[PluginInfo]:
        """Every plugin, by type and name."""
        return [PluginInfo(one.name, one.kind.value, one.version) for one in self._plugins.descriptors()]

    def settings_of(self, name: str) -> list[dict[str, object]]:
        """The settings of a plugin, its own first, then those of every plugin of its kind."""
        kind, cls = self._find(name)
        try:
            instance = cls()
            ask = getattr(instance, "config", None)
            own: object = ConfigDef() if ask is None else ask()
        except BaseException as error:
            raise BadRequestException(f"{name} cannot tell its settings: {type(error).__name__}: {error}") from error
        if not isinstance(own, ConfigDef):
            raise BadRequestException(f"{name}.config() must return a ConfigDef, and has returned {type(own).__name__}")
        keys = dict(own.keys)
        base = {PluginKind.SOURCE: SOURCE, PluginKind.SINK: SINK}.get(kind)
        if base is not None:
            for key in base.keys.values():
                keys.setdefault(key.name, key)
        return [key_json(key) for key in keys.values()]

    def changed_code(self, config: Mapping[str, str]) -> str | None:
        """Returns the message about a connector whose code has changed on disk since it was loaded, or None."""
        return changed_code(self._plugins, config)

    def _find(self, name: str) -> tuple[PluginKind, type]:
        for kind in PluginKind:
            try:
                found = self._plugins.discovered(kind, name)
            except PluginNotFoundException as error:
                raise BadRequestException(str(error)) from error
            if found is not None:
                return kind, found
        raise NotFoundException(f"Unknown plugin {name}.")
