"""The outcome of a validation as REST answers it: a definition and a value for each setting.

Main types: ``Finding`` (one setting), ``SettingWarning``, ``ConfigInfos``. Values; any thread.

Source: org.apache.kafka.connect.runtime.rest.entities.ConfigInfos, AbstractHerder.generateResult.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.config import ConfigDef, ConfigKey, ConfigType, ConfigValue, convert_to_string
from penstock.config.parse import java_text
from penstock.config.values import HIDDEN
from penstock.validation.secrets import is_secret_name


@dataclass(frozen=True)
class Finding:
    """The findings about one setting.

    Attributes:
        key: Its definition; None when nobody defines it.
        value: What the validation found.
        prefix: What stands before the names of ``key`` and ``value`` in the connector's configuration.
        given: The text in the configuration; None when there is none.
        provided: Whether that has a placeholder, whose value must not be shown.
    """

    key: ConfigKey | None
    value: ConfigValue
    prefix: str = ""
    given: str | None = None
    provided: bool = False

    @property
    def name(self) -> str:
        """The name in the connector's configuration."""
        return self.prefix + self.value.name

    @property
    def secret(self) -> bool:
        """True if its value must not be shown: its definition says so, or its name."""
        return (self.key is not None and self.key.type is ConfigType.PASSWORD) or is_secret_name(self.name)

    def to_json(self) -> dict[str, object]:
        """One entry of ``configs``."""
        definition = None if self.key is None else key_json(self.key, self.prefix)
        return {"definition": definition, "value": self._value_json()}

    def _value_json(self) -> dict[str, object]:
        kind = None if self.key is None else self.key.type
        item = ConfigType.STRING if kind is ConfigType.LIST else kind
        return {
            "name": self.name,
            "value": self._value_text(kind),
            "recommended_values": [_text(value, item) for value in self.value.recommended_values],
            "errors": list(self.value.error_messages),
            "visible": self.value.visible,
        }

    def _value_text(self, kind: ConfigType | None) -> str | None:
        if self.secret and self.value.value not in (None, ""):
            return HIDDEN
        if self.provided:
            return self.given
        # A class is shown by the name that the user gave it, which may be an alias or a Java name.
        if kind is ConfigType.CLASS and self.value.value is not None and self.given is not None:
            return self.given
        return _text(self.value.value, kind)


@dataclass(frozen=True)
class SettingWarning:
    """A warning about a setting that is odd, but does not stop the connector."""

    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"

    def to_json(self) -> dict[str, object]:
        """One entry of ``warnings``."""
        return {"name": self.name, "message": self.message}


@dataclass(frozen=True)
class ConfigInfos:
    """The answer to a validation.

    Attributes:
        name: The connector's class as it was given.
        groups: The headings, in order.
        findings: The settings, in order.
        warnings: What is no error.
    """

    name: str
    groups: Sequence[str]
    findings: Sequence[Finding]
    warnings: Sequence[SettingWarning] = ()

    @property
    def error_count(self) -> int:
        """The number of errors of all settings together."""
        return sum(len(finding.value.error_messages) for finding in self.findings)

    def to_json(self) -> dict[str, object]:
        """The body of the answer; as Java's, and with ``warnings`` where there are any."""
        warnings = {"warnings": [one.to_json() for one in self.warnings]} if self.warnings else {}
        return {
            "name": self.name,
            "error_count": self.error_count,
            "groups": list(self.groups),
            "configs": [finding.to_json() for finding in self.findings],
            **warnings,
        }


def key_json(key: ConfigKey, prefix: str = "") -> dict[str, object]:
    """The definition of a setting as REST shows it."""
    return {
        "name": prefix + key.name,
        "type": key.type.value,
        "required": not key.has_default,
        "default_value": key.default_text(),
        "importance": key.importance.value,
        "documentation": key.doc,
        "group": key.group,
        "width": key.width.value,
        "display_name": key.display_name,
        "dependents": [prefix + name for name in key.dependents],
        "order_in_group": key.order,
    }


def groups_of(definitions: Iterable[ConfigDef]) -> list[str]:
    """The groups of several definitions, each once."""
    return list(dict.fromkeys(group for definition in definitions for group in definition.groups()))


def _text(value: object, kind: ConfigType | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return java_text(value) if kind is None else convert_to_string(value, kind)
    except BaseException:
        # A connector's own validate may put any object here; the answer must not fail for it.
        return java_text(value)
