"""Parsing of setting values to their types and back to text, by Java's rules, and the types that describe settings.

Python's own conversions accept more than Java's (`int("1_0")`, `float("inf")`, `str.strip()` of every Unicode blank),
so this module spells out the grammars. Any thread; a `ConfigValue` belongs to one thread while it changes.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.config.importable import refusal, said
from penstock.data.text import java_double
from penstock.errors import ConfigException

HIDDEN: Final = "[hidden]"


class Password:
    """A secret, hidden in logs, tracebacks and responses.

    Source: org.apache.kafka.common.config.types.Password.

    >>> print(Password("s3cret"), repr(Password("s3cret")), Password("s3cret").value)
    [hidden] [hidden] s3cret
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        """The secret itself."""
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Password, self._value))


@dataclass
class ConfigValue:
    """The result of the validation of one setting.

    Attributes:
        name: The setting.
        value: The parsed value; None if it could not be parsed or is null.
        recommended_values: Values that a user interface may offer.
        error_messages: Every fault found, in Java's words.
        visible: False if the setting does not apply, given the other values.

    Source: org.apache.kafka.common.config.ConfigValue.
    """

    name: str
    value: object = None
    recommended_values: list[object] = field(default_factory=list)
    error_messages: list[str] = field(default_factory=list)
    visible: bool = True

    def add_error_message(self, message: str) -> None:
        """Adds a fault."""
        self.error_messages.append(message)


@dataclass(frozen=True)
class Config:
    """The outcome of validating one configuration: a `ConfigValue` for each setting.

    Source: org.apache.kafka.common.config.Config.
    """

    config_values: Sequence[ConfigValue]

    def errors(self) -> dict[str, list[str]]:
        """The settings with faults, and their faults."""
        return {value.name: list(value.error_messages) for value in self.config_values if value.error_messages}


class ConfigType(Enum):
    """The type of a setting, to which its text is parsed.

    Source: ConfigDef.Type of Kafka 4.3.
    """

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(Enum):
    """The importance of a setting.

    Source: ConfigDef.Importance of Kafka 4.3.
    """

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"

    @property
    def rank(self) -> int:
        """The sort key: 0 for HIGH, 2 for LOW."""
        return ("HIGH", "MEDIUM", "LOW").index(self.value)


class Width(Enum):
    """The width of a setting's input field in a user interface.

    Source: ConfigDef.Width of Kafka 4.3.
    """

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class NoDefault:
    """The type of `NO_DEFAULT`, its only value."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = NoDefault()
"""Marks a setting without a default, which is required; `None` is a real default."""


ClassResolver = Callable[[str, str], type]
"""Finds the class that a setting names, from the setting's name and its text.

Raises LookupError if the class does not exist, or ConfigException with its own message."""

_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
#: The characters that `\\s` matches in Java's expressions.
_SPACES: Final = " \t\n\x0b\f\r"
_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL_FLOAT: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_FLOAT: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")

_INTEGER_KINDS: Final = {
    ConfigType.SHORT: (16, "16-bit integer (short)"),
    ConfigType.INT: (32, "32-bit integer"),
    ConfigType.LONG: (64, "64-bit integer (long)"),
}


def java_trim(text: str) -> str:
    """Trims like Java's `String.trim`: removes every character up to and including the space from both ends."""
    return text.strip(_JAVA_BLANKS)


def parse_type(name: str, value: object, kind: ConfigType, *, resolve_class: ClassResolver | None = None) -> object:
    """Parses a raw value, mostly text, to the type of its setting.

    Args:
        name: The setting, for the message.
        value: Text, or a value that already has the type. None stays None.
        kind: The type to parse to.
        resolve_class: Finds classes for CLASS settings; if None, the text is kept.

    Raises:
        ConfigException: The value does not fit the type.

    >>> parse_type("tasks.max", " +7 ", ConfigType.INT)
    7
    """
    if value is None:
        return None
    if kind is ConfigType.BOOLEAN:
        return _parse_boolean(name, value)
    if kind is ConfigType.STRING:
        return _parse_string(name, value)
    if kind in _INTEGER_KINDS:
        return _parse_integer(name, value, kind)
    if kind is ConfigType.DOUBLE:
        return _parse_double(name, value)
    if kind is ConfigType.LIST:
        return _parse_list(name, value)
    if kind is ConfigType.PASSWORD:
        return value if isinstance(value, Password) else Password(_parse_string(name, value))
    return _parse_class(name, value, resolve_class)


def convert_to_string(value: object, kind: ConfigType) -> str | None:
    """The text of a parsed value, as a default is shown; secrets stay hidden.

    >>> convert_to_string(["a", "b"], ConfigType.LIST)
    'a,b'
    """
    if value is None:
        return None
    if kind is ConfigType.LIST and isinstance(value, list | tuple):
        return ",".join(java_text(item) for item in value)
    return java_text(value)


def java_text(value: object) -> str:
    """Prints a configuration value like Java's `String.valueOf`.

    >>> java_text([True, None, 1e7])
    '[true, null, 1.0E7]'
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, Password):
        return HIDDEN
    if isinstance(value, list | tuple):
        return "[" + ", ".join(java_text(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{java_text(k)}={java_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, type):
        # Ports of Kafka's classes keep the names that users know.
        return str(vars(value).get("java_name") or class_path(value))
    return str(value)


def class_path(cls: type) -> str:
    """The dotted path by which `import_class` finds a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def import_class(text: str, *, restricted: bool = False) -> type:
    """Finds a Python class by its path `package.module.Class` or `package.module:Class`.

    Args:
        text: The path.
        restricted: True if only plugin modules may be imported, because the path comes from a request; modules that are
            already loaded are searched in any case.

    Raises:
        LookupError: The module or class does not exist, or does not belong to a plugin.
    """
    module_name, _, class_name = text.partition(":") if ":" in text else text.rpartition(".")
    if not module_name or not class_name:
        raise LookupError(f"{text!r} is not the path of a class; expected package.module.Class")
    # Looking into a loaded module runs no code.
    if restricted and module_name not in sys.modules and (why := refusal(module_name)) is not None:
        raise LookupError(said(text, why))
    try:
        found: object = importlib.import_module(module_name)
        for part in class_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"Class {text} could not be found: {error}") from error
    if not isinstance(found, type):
        raise LookupError(f"{text} is not a class")
    return found


def find_class(name: str, text: str) -> type:
    """Finds a class in plugin modules; a `ClassResolver` for settings that contain Python paths.

    Raises:
        ConfigException: The class does not exist, its module does not belong to a plugin, or the import fails; the
            message says which.
    """
    try:
        return import_class(text, restricted=True)
    except LookupError as error:
        raise ConfigException(name, text, str(error)) from error
    except BaseException as error:
        problem = f"Class {text} cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigException(name, text, problem) from error


def invalid(name: str, value: object, message: str) -> ConfigException:
    """A ConfigException about a value, which is printed here so that a secret cannot leak later."""
    return ConfigException(name, java_text(value), message)


def _parse_boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        lowered = java_trim(value).lower()
        if lowered in ("true", "false"):
            return lowered == "true"
    raise invalid(name, value, "Expected value to be either true or false")


def _parse_string(name: str, value: object) -> str:
    if isinstance(value, str):
        return java_trim(value)
    raise invalid(name, value, f"Expected value to be a string, but it was a {class_path(type(value))}")


def _parse_integer(name: str, value: object, kind: ConfigType) -> int:
    bits, description = _INTEGER_KINDS[kind]
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    if isinstance(value, str):
        text = java_trim(value)
        # Java accepts digits of any script, but reads UTF-16 units, so not digits beyond U+FFFF.
        if _INTEGER.fullmatch(text) and max(text) <= "\uffff" and len(text) < 4000:
            number = int(text)
            if -(1 << bits - 1) <= number < 1 << bits - 1:
                return number
        raise invalid(name, value, f"Not a number of type {kind.value}")
    raise invalid(name, value, f"Expected value to be a {description}, but it was a {class_path(type(value))}")


def _parse_double(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        text = java_trim(value)
        if _DECIMAL_FLOAT.fullmatch(text):
            return float(text.rstrip("fFdD") if not text.endswith("y") else text)
        if hexadecimal := _HEX_FLOAT.fullmatch(text):
            try:
                return float.fromhex(hexadecimal[1])
            except OverflowError:
                return float("-inf") if text.startswith("-") else float("inf")
        raise invalid(name, value, "Not a number of type DOUBLE")
    raise invalid(name, value, f"Expected value to be a double, but it was a {class_path(type(value))}")


def _parse_list(name: str, value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        text = java_trim(value)
        # Not by an expression for a comma with blanks around it, which takes quadratic time for a long run of blanks.
        return [item.strip(_SPACES) for item in text.split(",")] if text else []
    raise invalid(name, value, "Expected a comma separated list.")


def _parse_class(name: str, value: object, resolve_class: ClassResolver | None) -> object:
    if isinstance(value, type):
        return value
    if not isinstance(value, str):
        raise invalid(name, value, "Expected a Class instance or class name.")
    text = java_trim(value)
    if resolve_class is None:
        return text
    try:
        return resolve_class(name, text)
    except LookupError as error:
        raise invalid(name, value, f"Class {value} could not be found.") from error
