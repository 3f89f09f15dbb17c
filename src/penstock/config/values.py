"""Values that come out of configuration: hidden passwords and the outcome of a validation.

Main types: `Password`, `ConfigValue`, `Config`. None of them is shared between threads while it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

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
