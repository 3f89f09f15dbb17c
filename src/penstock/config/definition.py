"""Definitions of configurations: the settings, and how they are parsed and checked.

One thread builds a `ConfigDef`; afterwards it is only read, and `parse` and `validate` may run on any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.config.parse import (
    NO_DEFAULT,
    ClassResolver,
    ConfigType,
    ConfigValue,
    Importance,
    NoDefault,
    Width,
    convert_to_string,
    parse_type,
)
from penstock.config.suggestions import names_a_secret
from penstock.config.validators import Validator, ValidList
from penstock.errors import ConfigException

_log = logging.getLogger(__name__)


class Recommender(Protocol):
    """Offers values for a setting, and decides if the setting applies, given the other values.

    Source: ConfigDef.Recommender of Kafka 4.3.
    """

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        """The values to offer.

        Raises:
            ConfigException: The values cannot be found; this becomes an error of the setting.
        """

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        """True if the setting applies, given the other values."""


@dataclass(frozen=True)
class ConfigKey:
    """The definition of one setting.

    Attributes:
        default: The parsed default, or `NO_DEFAULT` when the setting is required.
        group: The heading under which it is shown; `order` is its position there.
        dependents: Settings whose recommended values and visibility depend on this one.

    Source: ConfigDef.ConfigKey of Kafka 4.3.
    """

    name: str
    type: ConfigType
    default: object
    validator: Validator | None
    importance: Importance
    doc: str
    group: str | None
    order: int
    width: Width
    display_name: str
    dependents: tuple[str, ...]
    recommender: Recommender | None

    @property
    def has_default(self) -> bool:
        """False for a required setting."""
        return not isinstance(self.default, NoDefault)

    def default_text(self) -> str | None:
        """The default as text; None if there is none or it is null."""
        return convert_to_string(self.default, self.type) if self.has_default else None


class ConfigDef:
    """An ordered set of setting definitions.

    Source: org.apache.kafka.common.config.ConfigDef of Kafka 4.3.

    >>> definition = ConfigDef().define("retries", ConfigType.INT, default=3, doc="How often to try again.")
    >>> definition.parse({"retries": "5"})
    {'retries': 5}
    """

    def __init__(self, *parts: ConfigDef) -> None:
        """Creates a definition, starting with the settings of other definitions."""
        self._keys: dict[str, ConfigKey] = {}
        # Ordered; a dict, because each transform adds a group.
        self._groups: dict[str, None] = {}
        self._below: dict[str, ConfigKey] = {}
        self._in_order: list[ConfigKey] | None = None
        for part in parts:
            for key in part.keys.values():
                self.define_key(key)
            self._below |= part.below

    def define(
        self,
        name: str,
        type: ConfigType,  # noqa: A002 - the word of Kafka's API
        *,
        default: object = NO_DEFAULT,
        validator: Validator | None = None,
        importance: Importance = Importance.MEDIUM,
        doc: str = "",
        group: str | None = None,
        order: int = -1,
        width: Width = Width.NONE,
        display_name: str | None = None,
        dependents: Sequence[str] = (),
        recommender: Recommender | None = None,
    ) -> ConfigDef:
        """Adds a setting and returns this definition.

        Args:
            name: The setting.
            type: The type that its text is parsed to.
            default: The default, as text or as a value of the type; None is a real default. Omitted: the setting is
                required.
            validator: Checks the parsed value, and the default.
            importance: Its importance.
            doc: A text for people.
            group: The heading under which it is shown.
            order: Its position in the group.
            width: The width of the input field.
            display_name: The name that people see; by default `name`.
            dependents: Settings whose recommended values and visibility depend on this one.
            recommender: Offers values.

        Raises:
            ConfigException: The setting exists, or its default does not fit its type or validator.
        """
        if not isinstance(default, NoDefault):
            default = parse_type(name, default, type)
            if validator is not None:
                validator.ensure_valid(name, default)
        return self.define_key(
            ConfigKey(
                name=name,
                type=type,
                default=default,
                validator=validator,
                importance=importance,
                doc=doc,
                group=group,
                order=order,
                width=width,
                display_name=name if display_name is None else display_name,
                dependents=tuple(dependents),
                recommender=recommender,
            )
        )

    def define_key(self, key: ConfigKey) -> ConfigDef:
        """Adds a complete definition.

        Raises:
            ConfigException: The setting exists.
        """
        if key.name in self._keys:
            raise ConfigException(f"Configuration {key.name} is defined twice.")
        if key.group is not None:
            self._groups.setdefault(key.group)
        self._keys[key.name] = key
        self._in_order = None
        return self

    def define_below(
        self, prefix: str, *, importance: Importance = Importance.MEDIUM, doc: str = "", group: str | None = None
    ) -> ConfigDef:
        """Adds all settings whose names begin with a prefix, and returns this definition.

        They are texts, or of type PASSWORD if the name suggests a secret. ``parse`` returns them as one dict under the
        prefix, with the prefix removed from the names; ``validate`` returns a value for each of them in the properties.

        Args:
            prefix: The beginning of their names, including the final dot.
            importance: Their importance.
            doc: A text for people.
            group: The heading under which they are shown.

        Raises:
            ConfigException: The prefix is defined already.

        Source: Penstock's own.

        >>> definition = ConfigDef().define_below("option.", doc="Options of the format.")
        >>> definition.parse({"option.sep": ";", "name": "n"})
        {'option.': {'sep': ';'}}
        >>> [(one.name, one.value) for one in definition.validate({"option.apiToken": "t"})]
        [('option.apiToken', [hidden])]
        """
        if prefix in self._below:
            raise ConfigException(f"Configuration {prefix} is defined twice.")
        made = ConfigDef().define(
            f"{prefix}<name>", ConfigType.STRING, default=None, importance=importance, doc=doc, group=group
        )
        self._below[prefix] = made.keys[f"{prefix}<name>"]
        return self

    def of_names(self, names: Iterable[str]) -> ConfigDef:
        """The definition for one configuration, with a setting for each of its names below a prefix.

        Returns this definition itself if there are no such names.
        """
        found = {
            name: _key_below(prefix, name, key)
            for prefix, key in self._below.items()
            for name in names
            if name.startswith(prefix) and len(name) > len(prefix) and name not in self._keys
        }
        if not found:
            return self
        made = ConfigDef(self)
        for key in found.values():
            made.define_key(key)
        return made

    def embed(self, key_prefix: str, group_prefix: str, starting_order: int, child: ConfigDef) -> ConfigDef:
        """Adds the settings of another definition under a prefix, and returns this definition.

        Validators and recommenders of the embedded definition see names without the prefix, so their messages have no
        prefix.
        """
        for order, key in enumerate(child.sorted_keys(), start=starting_order):
            self.define_key(
                replace(
                    key,
                    name=key_prefix + key.name,
                    validator=None if key.validator is None else _EmbeddedValidator(key_prefix, key.validator),
                    group=group_prefix + (f": {key.group}" if key.group is not None else ""),
                    order=order,
                    dependents=tuple(key_prefix + dependent for dependent in key.dependents),
                    recommender=None if key.recommender is None else _EmbeddedRecommender(key_prefix, key.recommender),
                )
            )
        return self

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """The definitions by name, in the order of definition."""
        return self._keys

    @property
    def below(self) -> Mapping[str, ConfigKey]:
        """The definitions of the settings below a prefix, by prefix; each represents all names below it."""
        return self._below

    def names(self) -> list[str]:
        """The names of all settings, in the order of definition."""
        return list(self._keys)

    def groups(self) -> list[str]:
        """The groups, in the order in which they were first used."""
        return list(self._groups)

    def default_values(self) -> dict[str, object]:
        """The defaults of all settings that have one."""
        return {key.name: key.default for key in self._keys.values() if key.has_default}

    def sorted_keys(self) -> list[ConfigKey]:
        """The definitions in display order: by group, order, required first, importance, name."""
        ranks = {group: rank for rank, group in enumerate(self._groups)}

        def place(key: ConfigKey) -> tuple[int, int, bool, int, str]:
            rank = -1 if key.group is None else ranks[key.group]
            return rank, key.order, key.has_default, key.importance.rank, key.name

        return sorted(self._keys.values(), key=place)

    def parse(
        self, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None
    ) -> dict[str, object]:
        """The typed values of all settings; settings that are not defined are ignored.

        Args:
            properties: The configuration. A null counts as given: the default is not used.
            resolve_class: Finds the classes of CLASS settings; without it their text is kept.

        Raises:
            ConfigException: The first fault found, in the order of definition.
        """
        undefined = self._undefined_dependents()
        if undefined:
            raise ConfigException(
                f"Some configurations in are referred in the dependents, but not defined: {','.join(undefined)}"
            )
        parsed = {key.name: _parse_value(key, properties, resolve_class) for key in self._keys.values()}
        for prefix in self._below:
            parsed[prefix] = {
                name.removeprefix(prefix): _parse_value(key, properties, resolve_class)
                for name, key in self.of_names(properties).keys.items()
                if name.startswith(prefix) and properties.get(name) is not None and name not in self._keys
            }
        return parsed

    def validate(
        self, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None
    ) -> list[ConfigValue]:
        """Checks every setting and collects all faults instead of raising the first.

        Args:
            properties: The configuration. A null counts as given: the default is not used.
            resolve_class: Finds the classes of CLASS settings; without it their text is kept.

        Returns:
            A value for each setting, in the order of definition.
        """
        return list(self.validate_all(properties, resolve_class=resolve_class).values())

    def validate_all(
        self, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None
    ) -> dict[str, ConfigValue]:
        """The result of `validate`, by name.

        A value that does not parse counts as null in later steps, so its validator may report a second fault.
        """
        whole = self.of_names(properties)
        if whole is not self:
            return whole.validate_all(properties, resolve_class=resolve_class)
        values = {name: ConfigValue(name) for name in self._keys}
        for name in self._undefined_dependents():
            message = f"{name} is referred in the dependents, but not defined."
            values[name] = ConfigValue(name, error_messages=[message], visible=False)
        parsed: dict[str, object] = {}
        order = self._in_order = self._in_order or self._dependency_order()
        for key in order:
            _validate_value(key, properties, resolve_class, values[key.name])
            parsed[key.name] = values[key.name].value
        for key in order:
            _recommend(key, parsed, values[key.name])
        return values

    def _undefined_dependents(self) -> list[str]:
        named = (name for key in self._keys.values() for name in key.dependents if name not in self._keys)
        return list(dict.fromkeys(named))

    def _dependency_order(self) -> list[ConfigKey]:
        """Every setting once, before its dependents; settings in a dependency cycle come last."""
        dependents = {name for key in self._keys.values() for name in key.dependents}
        ordered: dict[str, ConfigKey] = {}

        def visit(names: Iterable[str]) -> None:
            for name in names:
                if name in self._keys and name not in ordered:
                    ordered[name] = self._keys[name]
                    visit(self._keys[name].dependents)

        visit(name for name in self._keys if name not in dependents)
        visit(self._keys)
        return list(ordered.values())


class _EmbeddedValidator:
    """The validator of an embedded setting: passes the name without the prefix."""

    def __init__(self, prefix: str, base: Validator) -> None:
        self._prefix = prefix
        self._base = base

    def ensure_valid(self, name: str, value: object) -> None:
        self._base.ensure_valid(name.removeprefix(self._prefix), value)

    def __str__(self) -> str:
        return str(self._base)


class _EmbeddedRecommender:
    """The recommender of an embedded setting: passes only the settings of its own definition."""

    def __init__(self, prefix: str, base: Recommender) -> None:
        self._prefix = prefix
        self._base = base

    def valid_values(self, name: str, parsed: Mapping[str, object]) -> list[object]:
        return self._base.valid_values(name.removeprefix(self._prefix), self._own(parsed))

    def visible(self, name: str, parsed: Mapping[str, object]) -> bool:
        return self._base.visible(name.removeprefix(self._prefix), self._own(parsed))

    def _own(self, parsed: Mapping[str, object]) -> dict[str, object]:
        own = (item for item in parsed.items() if item[0].startswith(self._prefix))
        return {name.removeprefix(self._prefix): value for name, value in own}


def _key_below(prefix: str, name: str, key: ConfigKey) -> ConfigKey:
    kind = ConfigType.PASSWORD if names_a_secret(name.removeprefix(prefix)) else key.type
    return replace(key, name=name, display_name=name, type=kind)


def _missing(key: ConfigKey) -> str:
    return f'Missing required configuration "{key.name}" which has no default value.'


def _parse_value(key: ConfigKey, properties: Mapping[str, object], resolve_class: ClassResolver | None) -> object:
    if key.name in properties:
        value = parse_type(key.name, properties[key.name], key.type, resolve_class=resolve_class)
    elif key.has_default:
        value = key.default
    else:
        raise ConfigException(_missing(key))
    if isinstance(key.validator, ValidList) and isinstance(value, list):
        unique = list(dict.fromkeys(value))
        if len(unique) != len(value):
            _log.warning("Configuration key %r contains duplicate values, which are removed: %s", key.name, unique)
            value = unique
    if key.validator is not None:
        key.validator.ensure_valid(key.name, value)
    return value


def _validate_value(
    key: ConfigKey, properties: Mapping[str, object], resolve_class: ClassResolver | None, result: ConfigValue
) -> None:
    value: object = None
    if key.name in properties:
        try:
            value = parse_type(key.name, properties[key.name], key.type, resolve_class=resolve_class)
        except ConfigException as error:
            result.add_error_message(str(error))
    elif key.has_default:
        value = key.default
    else:
        result.add_error_message(_missing(key))
    if key.validator is not None:
        try:
            key.validator.ensure_valid(key.name, value)
        except ConfigException as error:
            result.add_error_message(str(error))
        except BaseException as error:
            result.add_error_message(_failed(key, "validator", error))
    result.value = value


def _recommend(key: ConfigKey, parsed: Mapping[str, object], result: ConfigValue) -> None:
    if key.recommender is None:
        return
    try:
        result.recommended_values = list(key.recommender.valid_values(key.name, parsed))
        result.visible = key.recommender.visible(key.name, parsed)
    except ConfigException as error:
        result.add_error_message(str(error))
    except BaseException as error:
        result.add_error_message(_failed(key, "recommender", error))


def _failed(key: ConfigKey, what: str, error: BaseException) -> str:
    """The message for an error in plugin code, which is not a fault of the value."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"The {what} of configuration {key.name} raised {text}"
