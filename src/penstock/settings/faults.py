"""All faults of a configuration at once.

Main types: `SettingFault`, `InvalidSettingsError`. Values; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.config import ConfigDef, ConfigValue
from penstock.config.parse import HIDDEN, ConfigType, java_text
from penstock.errors import ConfigException


@dataclass(frozen=True)
class SettingFault:
    """A setting that is wrong.

    Attributes:
        key: The setting.
        value: The given text; None if it is missing; secrets are hidden.
        rule: The fault, in Kafka's words.
    """

    key: str
    value: str | None
    rule: str


class InvalidSettingsError(ConfigException):
    """A configuration that has faults, all of which are in `faults` and in the message."""

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
