"""The result of a validation as REST answers it, and the masks of secrets in such answers.

Main types: ``Finding`` (one setting, with definition and value), ``SettingWarning``, ``ConfigInfos``. Main functions:
``masked`` and ``masked_tasks`` hide secrets, ``unmasked`` restores the secret when a user sends the mask back,
``check_known`` refuses a mask without a secret; ``is_secret_name``, ``redaction_of``. A setting is a secret if its
definition or its name says so, or if it was a secret before. ``penstock.validation.redaction`` removes values from
texts.

Thread: any; values and pure functions.
Source: org.apache.kafka.connect.runtime.rest.entities.ConfigInfos, AbstractHerder.generateResult.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from penstock.config import ConfigDef, ConfigKey, ConfigType, ConfigValue, convert_to_string
from penstock.config.parse import HIDDEN, java_text
from penstock.config.secret_names import looks_secret
from penstock.errors import BadRequestException
from penstock.kafka.settings.table import ClientKind, is_client_secret
from penstock.settings.plugin_classes import CONVERTERS
from penstock.validation.redaction import REFERENCE, Redaction, provided_values

_CLIENT: Final = re.compile(rf"(?:{'|'.join(kind.value for kind in ClientKind)})\.override\.")
_BELOW: Final = re.compile(rf"(?:transforms|predicates)\.[^.]*\.|topic\.creation\.[^.]*\.|(?:{'|'.join(CONVERTERS)})\.")
#: Longer names are not remembered.
_USUAL: Final = 200
#: A shorter value may be in a task's settings by chance.
_SHORTEST: Final = 4
_TELLING: Final = 8


def is_secret_name(name: str) -> bool:
    """True if the name of a connector's setting marks it as a secret, whichever class reads it.

    >>> is_secret_name("admin.override.sasl.password"), is_secret_name("transforms.t.secret")
    (True, True)
    >>> is_secret_name("producer.override.acks"), is_secret_name("transforms.maskPassword.fields")
    (False, False)
    """
    return _remembered(name) if len(name) <= _USUAL else _is_secret_name(name)


def _is_secret_name(name: str) -> bool:
    client = _CLIENT.match(name)
    if client is not None:
        return is_client_secret(name[client.end() :])
    below = _BELOW.match(name)
    return looks_secret(name if below is None else name[below.end() :])


#: A thousand connectors that are listed have the same few names.
_remembered: Final = lru_cache(maxsize=4096)(_is_secret_name)


def masked(config: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """A configuration that may be shown. A reference to a value kept elsewhere is no secret itself.

    >>> masked({"user": "u", "password": "p", "pin": "${file:/t:k}"}, {"pin"})
    {'user': 'u', 'password': '[hidden]', 'pin': '${file:/t:k}'}
    """
    return {name: HIDDEN if _hides(name, value, secrets) else value for name, value in config.items()}


def _hides(name: str, value: str, secrets: Collection[str]) -> bool:
    return bool(value) and (name in secrets or is_secret_name(name)) and REFERENCE.fullmatch(value) is None


def masked_tasks(
    tasks: Sequence[Mapping[str, str]], config: Mapping[str, str], secrets: Collection[str]
) -> list[dict[str, str]]:
    """Task configurations that may be shown; a connector may give its secrets to its tasks under other names.

    Args:
        tasks: The configurations of the tasks.
        config: The connector's configuration.
        secrets: The connector's settings that must not be shown.

    >>> masked_tasks([{"url": "x?pw=hunter2", "n": "1"}], {"password": "hunter2"}, ())
    [{'url': 'x?pw=[hidden]', 'n': '1'}]
    """
    values = [value for name, value in config.items() if _hides(name, value, secrets) and len(value) >= _SHORTEST]
    if not values:
        return [masked(task, secrets) for task in tasks]
    # A short value counts where it is a word: it may be part of another by chance.
    found = re.compile(
        "|".join(
            re.escape(value) if len(value) >= _TELLING else rf"(?<!\w){re.escape(value)}(?!\w)"
            for value in sorted(values, key=len, reverse=True)
        )
    )
    shown = (masked(task, secrets) for task in tasks)
    return [{name: found.sub(HIDDEN, value) for name, value in task.items()} for task in shown]


def unmasked(
    config: Mapping[str, str | None], before: Mapping[str, str], secrets: Collection[str]
) -> dict[str, str | None]:
    """A configuration in which a secret that was sent back as it was shown has its value again.

    >>> unmasked({"user": "u", "password": "[hidden]"}, {"password": "p"}, ())
    {'user': 'u', 'password': 'p'}
    """
    return {
        name: before[name]
        if value == HIDDEN and name in before and (name in secrets or is_secret_name(name))
        else value
        for name, value in config.items()
    }


def check_known(config: Mapping[str, str], secrets: Collection[str]) -> None:
    """Refuses a mask for a secret that is unknown.

    Raises:
        BadRequestException: the mask would be stored as the secret itself.
    """
    unknown = sorted(
        name for name, text in config.items() if text == HIDDEN and (name in secrets or is_secret_name(name))
    )
    if unknown:
        raise BadRequestException(
            f"{HIDDEN} stands for the value that a connector has already, and this one has none for "
            f"{', '.join(unknown)}: give the value itself"
        )


def redaction_of(
    config: Mapping[str, str | None], resolved: Mapping[str, str | None], secrets: Collection[str]
) -> Redaction:
    """Removes the secrets of a configuration, and the values of its placeholders, from texts about it.

    Args:
        config: The configuration as given.
        resolved: The same with its placeholders resolved.
        secrets: The secret settings, in addition to those with a secret's name.
    """
    values = [text for name, text in config.items() if text and (name in secrets or is_secret_name(name))]
    return Redaction(provided_values(config, resolved), values)


@dataclass(frozen=True)
class Finding:
    """The findings about one setting.

    Attributes:
        key: Its definition; None if no class defines it.
        value: The result of the validation.
        prefix: The prefix of the names of ``key`` and ``value`` in the connector's configuration.
        given: The text in the configuration; None if there is none.
        provided: True if it has a placeholder, whose value must not be shown.
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
        warnings: Findings that are no errors.
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
