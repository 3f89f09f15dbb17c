"""The classes that settings name, the settings that those classes define, and the faults of settings. Any thread."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.config import ClassResolver, ConfigDef, ConfigValue, import_class
from penstock.config.parse import HIDDEN, ConfigType, java_text
from penstock.errors import ConfigException, ConnectException, as_exception
from penstock.plugins import PluginKind, PluginNotFoundException, Plugins
from penstock.plugins.kinds import PluginRefusedException

#: The settings that name a connector's converters, with the kind of each.
CONVERTERS: Final = {
    "key.converter": PluginKind.CONVERTER,
    "value.converter": PluginKind.CONVERTER,
    "header.converter": PluginKind.HEADER_CONVERTER,
}
_FORMS: Final = ("Key", "Value")


class InstalledPlugins:
    """The classes of a worker's plugins, and other Python classes of importable modules by their paths."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def find_class(self, kind: PluginKind | None, text: str) -> type:
        """Returns the class of this name, preferably of this kind; raises LookupError if there is none."""
        kinds = list(PluginKind)
        refused: PluginRefusedException | None = None
        for candidate in kinds if kind is None else [kind, *(other for other in kinds if other is not kind)]:
            try:
                found = self._plugins.find(candidate, text)
            except PluginRefusedException as error:
                refused = refused or error
            except PluginNotFoundException as error:
                # With a cause, the module exists and its import failed: keep the reason.
                if error.__cause__ is not None and candidate is kind:
                    raise
            else:
                if found is not None:
                    return found
        if refused is not None and kind is not None:
            raise refused
        return self._base_of_both_forms(text) or import_class(text, restricted=True)

    def _base_of_both_forms(self, text: str) -> type | None:
        """The base of ``text$Key`` and ``text$Value``, so that the error can name these, as Java's does."""
        try:
            key, value = (self._plugins.find(PluginKind.TRANSFORMATION, f"{text}${side}") for side in _FORMS)
        except PluginNotFoundException:
            return None
        if key is None or value is None:
            return None
        return next(one for one in key.__mro__ if issubclass(value, one))

    def installed(self, kind: PluginKind) -> list[str]:
        return [plugin.name for plugin in self._plugins.descriptors([kind])]


def class_resolver(classes: InstalledPlugins) -> ClassResolver:
    """Finds the classes of the CLASS settings of a connector: converters, transforms and predicates by their kind."""

    def resolve(name: str, text: str) -> type:
        try:
            return classes.find_class(kind_of_setting(name), text)
        except ConnectException as error:
            raise ConfigException(name, text, str(error)) from error

    return resolve


def ensure_concrete_subclass(base: type, cls: type) -> None:
    """Refuses a class that does not extend ``base``, or is abstract."""
    if not issubclass(cls, base):
        wanted = base.__name__.removeprefix("Base")
        raise ConfigException(f"Class class {java_text(cls)} does not implement the {wanted} interface")
    children = ", ".join(java_text(child) for child in _concrete_neighbours(cls))
    # A base class for its own module lacks the parts of its subclasses, such as the side of a transform.
    if inspect.isabstract(cls) or (cls.__name__.startswith("_") and children):
        suggestion = f" Did you mean {children}?" if children else ""
        raise ConfigException(f"This class is abstract and cannot be created.{suggestion}")


def definition_of(setting: str, kind: PluginKind, cls: object) -> ConfigDef:
    """The settings that a transform or predicate defines; creates an instance to get them."""
    if not isinstance(cls, type):
        raise ConfigException(setting, cls, f"Not a {kind.noun}")
    ensure_concrete_subclass(kind.base(), cls)
    try:
        definition: object = cls().config()
    except BaseException as error:
        raise ConfigException(
            setting, java_text(cls), f"Error getting config definition from {kind.noun}: {as_exception(error)}"
        ) from error
    if not isinstance(definition, ConfigDef):
        raise ConfigException(setting, java_text(cls), f"{java_text(cls)}.config() must return a ConfigDef")
    return definition


def kind_of_setting(setting: str) -> PluginKind | None:
    """The kind of class that a connector's setting names; None for settings that name none."""
    if setting.startswith("transforms.") and setting.endswith(".type"):
        return PluginKind.TRANSFORMATION
    if setting.startswith("predicates.") and setting.endswith(".type"):
        return PluginKind.PREDICATE
    return CONVERTERS.get(setting)


def changed_code(plugins: Plugins, config: Mapping[str, str]) -> str | None:
    """Returns the message about a connector whose code has changed on disk since this process loaded it, or None."""
    modules = set()
    for setting, text in config.items():
        kind = kind_of_setting(setting)
        # The search for a missing class reports it.
        with contextlib.suppress(ConnectException):
            if setting == "connector.class":
                modules.add(plugins.resolve_connector(text).__module__)
            elif kind is not None:
                modules.add(plugins.resolve(kind, text).__module__)
    changed = plugins.code.changed(modules)
    if not changed:
        return None
    return (
        f"The code of {', '.join(changed)} has changed on disk since this worker loaded it. The worker still runs "
        "the loaded code: restart the worker to run the new code"
    )


def _concrete_neighbours(cls: type) -> Iterable[type]:
    """The classes of the same module that can be used instead of an abstract one, in the order of definition."""
    members = vars(sys.modules[cls.__module__]).values() if cls.__module__ in sys.modules else ()
    for member in members:
        own = isinstance(member, type) and member.__module__ == cls.__module__
        if own and issubclass(member, cls) and member is not cls and not inspect.isabstract(member):
            yield member


@dataclass(frozen=True)
class SettingFault:
    """A wrong setting: its text with secrets hidden (None if it is missing), and the fault in Kafka's words."""

    key: str
    value: str | None
    rule: str

    @classmethod
    def of(cls, name: str, value: object, why: str, text: str | None = None) -> SettingFault:
        """The fault of a value, in the form that Kafka's messages have."""
        return cls(name, text, f"Invalid value {value} for configuration {name}: {why}")


class InvalidSettingsError(ConfigException):
    """A configuration with faults; `faults` and the message have all of them."""

    def __init__(self, what: str, faults: Sequence[SettingFault]) -> None:
        lines = "".join(f"\n  {fault.rule}" for fault in faults)
        super().__init__(f"{what} is invalid and contains the following {len(faults)} error(s):{lines}")
        self.faults = tuple(faults)


def faults_of(definition: ConfigDef, properties: dict[str, object], found: Iterable[ConfigValue]) -> list[SettingFault]:
    """The faults that a validation found, in the order of definition."""
    faults: list[SettingFault] = []
    for value in found:
        key = definition.keys.get(value.name)
        secret = key is not None and key.type is ConfigType.PASSWORD
        given = properties.get(value.name)
        text = None if value.name not in properties else HIDDEN if secret else java_text(given)
        faults.extend(SettingFault(value.name, text, message) for message in value.error_messages)
    return faults
