"""The words a setting is described with: its type, importance, display width and "no default".

Main types: `ConfigType`, `Importance`, `Width`, `NO_DEFAULT`. Constants only, usable from any thread.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


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
