"""Configurations as classes: one class defines the settings and holds their parsed values. Any thread.

Source: org.apache.kafka.common.config.AbstractConfig of Kafka 4.3.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Final, Self

from penstock.config.definition import ConfigDef, Recommender
from penstock.config.parse import NO_DEFAULT, ClassResolver, ConfigType, Importance, Password, Width
from penstock.config.validators import Validator, ValidString
from penstock.errors import ConfigException

_METADATA: Final = "setting"
_TYPES: Final[Mapping[object, ConfigType]] = {
    bool: ConfigType.BOOLEAN,
    str: ConfigType.STRING,
    int: ConfigType.INT,
    float: ConfigType.DOUBLE,
    tuple[str, ...]: ConfigType.LIST,
    type: ConfigType.CLASS,
    Password: ConfigType.PASSWORD,
}


#: The options for all settings below a prefix.
_OF_PREFIXES: Final = ("importance", "doc", "group")


class _Described(typing.NamedTuple):
    """The arguments of `setting`: three with defaults from the field, and ``more`` for `ConfigDef.define`."""

    name: str | None
    type: ConfigType | None
    validator: Validator | None
    more: Mapping[str, Any]


def setting(
    name: str | None = None,
    type: ConfigType | None = None,  # noqa: A002 - the word of Kafka's API
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
) -> Any:
    """Describes a field of an `AbstractConfig`; see `ConfigDef.define` for the other arguments.

    Args:
        name: The setting; by default the field's name, with dots for underscores.
        type: The type that its text is parsed to; by default the type of the field's annotation. An `int` is INT; pass
            LONG or SHORT for these.
        default: A value of the field's type; None is a real default. Omitted: the setting is required.
        validator: Checks the parsed value, and the default. An Enum field accepts the values of its members; it needs
            no validator.
    """
    more = {
        "importance": importance,
        "doc": doc,
        "group": group,
        "order": order,
        "width": width,
        "display_name": display_name,
        "dependents": dependents,
        "recommender": recommender,
    }
    metadata = {_METADATA: _Described(name, type, validator, more)}
    return field(metadata=metadata) if default is NO_DEFAULT else field(default=default, metadata=metadata)


@typing.dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, field))
class TypedConfig:
    """A frozen dataclass whose fields are settings, see `AbstractConfig`, and other values, which `of` receives.

    Use it for a configuration that is parsed together with another, so that its own settings are not enough.
    """

    def __init_subclass__(cls) -> None:
        try:
            dataclass(frozen=True, kw_only=True)(cls)
        except (TypeError, ValueError) as error:  # `setting()` without an annotation, or a mutable default.
            raise TypeError(
                f"{cls.__module__}.{cls.__qualname__}: {error}. A setting is written `name: type = setting(...)`, with "
                "a tuple as the default of a list"
            ) from error

    @classmethod
    def definition(cls) -> ConfigDef:
        """The definition of the settings; always the same object, which must not change."""
        return _defined(cls)[0]

    @classmethod
    def never_null(cls) -> tuple[str, ...]:
        """The settings that reject null."""
        return tuple(one.name for one in _defined(cls)[1] if not one.nullable)

    @classmethod
    def of(cls, values: Mapping[str, object], prefix: str = "", /, **others: Any) -> Self:
        """An instance from values that were parsed and checked before.

        Args:
            values: The values by setting, including all that the class defines.
            prefix: The prefix of its settings in ``values``.
            others: The fields that are not settings.

        Raises:
            ConfigException: A value is null, or a text instead of a class, and its field does not allow that.
        """
        parsed = {one.attribute: one.value_of(prefix + one.name, values) for one in _defined(cls)[1]}
        return typing.cast(Any, cls)(**parsed, **others)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class AbsentSetting:
    """A setting that similar connectors have and this one does not support: ignoring it would change the result.

    Attributes:
        instead: What users should do instead.
        harmless: Values that ask for the existing behaviour, in any letter case; they are ignored.

    Source: Penstock's own.
    """

    instead: str
    harmless: tuple[str, ...] = ("",)


class AbstractConfig(TypedConfig):
    """A configuration whose fields are its settings. Each subclass automatically becomes a frozen dataclass.

    A field is a `bool`, `str`, `int`, `float`, `tuple[str, ...]`, `Password`, an Enum of texts, or a `type` (a class),
    or one of these or None; or a `Mapping[str, str | Password]` for all settings below a prefix, which is its name. The
    settings of a base class come first; a redefined setting keeps its position.

    Source: org.apache.kafka.common.config.AbstractConfig of Kafka 4.3; the fields are Penstock's own.

    >>> class ReaderConfig(AbstractConfig):
    ...     path: str = setting(doc="The file to read.")
    ...     batch_rows: int = setting(default=500, doc="Rows of one poll.")
    >>> ReaderConfig.parse({"path": "a.txt", "batch.rows": "20"})
    ReaderConfig(path='a.txt', batch_rows=20)
    >>> ReaderConfig.definition().names()
    ['path', 'batch.rows']
    """

    #: Unsupported settings of similar connectors, by name: a configuration with one of them is rejected.
    absent: ClassVar[Mapping[str, AbsentSetting]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _check_all_are_settings(cls)
        _check_faults(cls)

    @classmethod
    def parse(cls, properties: Mapping[str, object], *, resolve_class: ClassResolver | None = None) -> Self:
        """The values of all settings; undefined settings are ignored.

        Args:
            properties: The configuration. A null counts as given: the default is not used.
            resolve_class: Finds the classes of fields of type class, such as `find_class`; without it these are
                rejected. CLASS settings in fields of type str stay texts.

        Raises:
            ConfigException: The first fault found: of ``refused``, of single settings in the order of definition, or of
                ``faults``.
        """
        for name, text in cls.refused(properties):
            raise ConfigException(f"{name}: {text}")
        config = cls._of_texts(properties, resolve_class)
        for name, text in config.faults(properties):
            raise ConfigException(f"{name}: {text}")
        return config

    @classmethod
    def _of_texts(cls, properties: Mapping[str, object], resolve_class: ClassResolver | None) -> Self:
        """The values without the checks of ``refused`` and ``faults``."""
        texts = {one.name for one in _defined(cls)[1] if one.kind is str}

        def resolve(name: str, text: str) -> Any:
            return text if resolve_class is None or name in texts else resolve_class(name, text)

        return cls.of(cls.definition().parse(properties, resolve_class=resolve))

    def faults(self, properties: Mapping[str, object]) -> Iterable[tuple[str, str]]:
        """The conflicts between settings that are valid one by one; override it, the default finds none.

        `parse` raises the first conflict; `Connector.validate` reports all of them. It must not connect to a system:
        `Connector.faults` may.

        Args:
            properties: The configuration that was parsed, for settings without a field.

        Returns:
            Names of settings, each with a text for people.

        >>> class RangeConfig(AbstractConfig):
        ...     first: int = setting(default=1)
        ...     last: int = setting(default=9)
        ...
        ...     def faults(self, properties):
        ...         if self.last < self.first:
        ...             yield "last", f"must not be lower than first, which is {self.first}"
        >>> RangeConfig.parse({"first": "10"})
        Traceback (most recent call last):
        penstock.errors.ConfigException: last: must not be lower than first, which is 10
        """
        return ()

    @classmethod
    def refused(cls, properties: Mapping[str, object]) -> list[tuple[str, str]]:
        """The settings of a configuration that are in ``absent``, each with a message for people."""
        return [
            (name, f"is not there: {one.instead}")
            for name, one in cls.absent.items()
            if properties.get(name) is not None
            and str(properties[name]).strip().lower() not in [text.lower() for text in one.harmless]
        ]


def _check_all_are_settings(cls: type) -> None:
    for one in fields(cls):
        if _METADATA not in one.metadata:
            kind = one.type if isinstance(one.type, str) else inspect.formatannotation(one.type)
            described = "" if one.default is MISSING else f"default={one.default!r}"
            raise TypeError(
                f"{cls.__module__}.{cls.__qualname__}: the field {one.name} has no setting(). Write `{one.name}: "
                f"{kind} = setting({described})`; what is no setting has no annotation, or ClassVar[{kind}]"
            )


def _check_faults(cls: type[AbstractConfig]) -> None:
    """Refuses a method or setting that has the name of the hook by chance: each `parse` would fail."""
    hook = inspect.getattr_static(cls, "faults")
    fits = "faults" not in [one.name for one in fields(cls)]
    if fits and inspect.isfunction(hook):
        try:
            inspect.signature(hook).bind(cls, {})
        except TypeError:
            fits = False
    if not fits:
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__}: `parse` calls faults to find conflicts between settings. Write "
            "`def faults(self, properties)`, or give this another name"
        )


@dataclass(frozen=True)
class _Setting:
    """A field that is a setting."""

    owner: str
    attribute: str
    name: str
    kind: Any
    nullable: bool
    default: object
    described: _Described

    def define(self, definition: ConfigDef) -> None:
        if typing.get_origin(self.kind) is Mapping:
            more = {name: value for name, value in self.described.more.items() if name in _OF_PREFIXES}
            definition.define_below(self.name, **more)
            return
        type_, validator, default = self.described.type, self.described.validator, self.default
        if self._is_enum:
            type_ = type_ or ConfigType.STRING
            validator = validator or ValidString(*(member.value for member in self.kind))
            default = default.value if isinstance(default, Enum) else default
        type_ = type_ or _TYPES.get(self.kind)
        if type_ is None:
            raise TypeError(
                f"{self.owner}: {self.attribute} is a {self.kind}, which no setting can be: see AbstractConfig"
            )
        if isinstance(default, tuple):
            default = list(default)
        definition.define(self.name, type_, default=default, validator=validator, **self.described.more)

    def value_of(self, name: str, values: Mapping[str, object]) -> object:
        """The field's value; ``name`` is the setting's name in the values."""
        parsed = values[name]
        if parsed is None:
            if not self.nullable:
                raise ConfigException(name, None, "Value must be non-null")
            return None
        if self._is_enum:
            return _member(self.kind, str(parsed))
        if self.kind is type and not isinstance(parsed, type):
            raise ConfigException(name, parsed, "Expected a class")
        return tuple(parsed) if isinstance(parsed, list) else parsed

    @property
    def _is_enum(self) -> bool:
        return isinstance(self.kind, type) and issubclass(self.kind, Enum)


#: The settings of each class; computed on first use, because annotations may refer to later definitions.
_found: Final[dict[type, tuple[ConfigDef, tuple[_Setting, ...]]]] = {}


def _defined(cls: type) -> tuple[ConfigDef, tuple[_Setting, ...]]:
    if cls not in _found:
        definition, settings = ConfigDef(), _settings_of(cls)
        for one in settings:
            one.define(definition)
        _found[cls] = definition, settings
    return _found[cls]


def _settings_of(cls: type) -> tuple[_Setting, ...]:
    hints = typing.get_type_hints(cls)
    owner = f"{cls.__module__}.{cls.__qualname__}"
    return tuple(_setting_of(owner, one, hints[one.name]) for one in fields(cls) if _METADATA in one.metadata)


def _setting_of(owner: str, one: Field[Any], hint: object) -> _Setting:
    described: _Described = one.metadata[_METADATA]
    kind, nullable = _without_none(hint)
    name = described.name or one.name.replace("_", ".")
    default = NO_DEFAULT if one.default is MISSING else one.default
    return _Setting(owner, one.name, name, kind, nullable, default, described)


def _member(kind: type[Enum], text: str) -> Enum:
    """The member with this value; in any letter case, because validators may allow that, unless two members differ only
    in case.
    """
    same = [one for one in kind if one.value.lower() == text.lower()]
    return same[0] if len(same) == 1 else kind(text)


def _without_none(hint: Any) -> tuple[Any, bool]:
    """The annotation without None, and True if it contained None."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    rest = [one for one in typing.get_args(hint) if one is not types.NoneType]
    return (rest[0] if len(rest) == 1 else hint), len(rest) < len(typing.get_args(hint))
