"""Parsing of one setting's value to its type, and back to text, with Java's rules and words.

Python's own conversions are more generous than Java's (`int("1_0")`, `float("inf")`, `str.strip()` of
every Unicode blank), so the grammars are spelled out here. Pure functions, usable from any thread.

Values that come out of configuration: hidden passwords and the outcome of a validation.

Main types: `Password`, `ConfigValue`, `Config`. None of them is shared between threads while it changes.

The words a setting is described with: its type, importance, display width and "no default".

Main types: `ConfigType`, `Importance`, `Width`, `NO_DEFAULT`. Constants only, usable from any thread.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Final

from penstock.config.importable import refusal, said
from penstock.errors import ConfigException

HIDDEN: Final = "[hidden]"


class Password:
    """A secret that does not show in logs, tracebacks and answers.

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
        value: The parsed value; None when it could not be parsed or is null.
        recommended_values: Values that a user interface may offer.
        error_messages: Every fault found, in Java's words.
        visible: False when the setting has no meaning next to the other values.

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
        """The settings that have faults, with the faults."""
        return {value.name: list(value.error_messages) for value in self.config_values if value.error_messages}


class ConfigType(Enum):
    """The type a setting's text is parsed to.

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
    """The importance of a setting in the list of all settings.

    Source: ConfigDef.Importance of Kafka 4.3.
    """

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"

    @property
    def rank(self) -> int:
        """0 for HIGH, 2 for LOW: the sorting order."""
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
    """The type of `NO_DEFAULT`; it has that one value."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = NoDefault()
"""Says that a setting has no default and so must be given; `None` is a real default."""


ClassResolver = Callable[[str, str], type]
"""Finds the class for the name of a setting and its text.

Raises LookupError when there is none, or ConfigException to choose the message itself."""

_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
#: What `\\s` of Java's expressions takes.
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
    """Removes what Java's `String.trim` removes: every character up to and including the space."""
    return text.strip(_JAVA_BLANKS)


def parse_type(name: str, value: object, kind: ConfigType, *, resolve_class: ClassResolver | None = None) -> object:
    """Parses a raw value, mostly text, to the type of its setting.

    Args:
        name: The setting, for the message.
        value: Text, or a value that already has the type. None stays None.
        kind: The type asked for.
        resolve_class: Finds classes for CLASS settings; without it the text is kept.

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
    """The text that Java's `String.valueOf` makes of a configuration value.

    >>> java_text([True, None, 1e7])
    '[true, null, 1.0E7]'
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, Password):
        return HIDDEN
    if isinstance(value, list | tuple):
        return "[" + ", ".join(java_text(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{java_text(k)}={java_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, type):
        # Ports of Kafka's classes keep the name that their users know.
        return str(vars(value).get("java_name") or class_path(value))
    return str(value)


def class_path(cls: type) -> str:
    """The dotted path by which `import_class` finds a class again."""
    return f"{cls.__module__}.{cls.__qualname__}"


def import_class(text: str, *, restricted: bool = False) -> type:
    """Finds a Python class by its path `package.module.Class` or `package.module:Class`.

    Args:
        text: The path.
        restricted: Whether only modules of plugins are imported, because the path comes from a request; one that is
            loaded already is looked into, whatever it belongs to.

    Raises:
        LookupError: No such module or class, or one that is none of a plugin.
    """
    module_name, _, class_name = text.partition(":") if ":" in text else text.rpartition(".")
    if not module_name or not class_name:
        raise LookupError(f"{text!r} is not the path of a class; expected package.module.Class")
    # To look into a module that is loaded runs nothing.
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
    """Finds a class in the modules of plugins; a `ClassResolver` for settings that hold paths of Python.

    Raises:
        ConfigException: There is none, its module is none of a plugin, or importing it fails; the message says which.
    """
    try:
        return import_class(text, restricted=True)
    except LookupError as error:
        raise ConfigException(name, text, str(error)) from error
    except BaseException as error:
        problem = f"Class {text} cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigException(name, text, problem) from error


def invalid(name: str, value: object, message: str) -> ConfigException:
    """A ConfigException about a value, which is turned to text here so that a secret cannot leak later."""
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
        # Java reads digits of any script, but character by character, so not those beyond U+FFFF.
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
        # Not by an expression for a comma with blanks around it: a long run of blanks takes that quadratic time.
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


def _double_text(value: float) -> str:
    """Java's Double.toString: plain from 0.001 up to 10 million, with an exponent outside."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else text + ".0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits)).rstrip("0") or "0"
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{exponent + len(digits) - 1}"
