"""The result of a validation as REST answers it, and the masks of secrets in such answers.

A setting is a secret if its definition or its name says so, or if it was a secret before. ``Redaction`` removes secret
values from texts, as they are, in another case, quoted, escaped, encoded, cut or in pieces; their placeholder, or
``[hidden]``, replaces each part. Each text is read once, for all values together.

Thread: any; values and pure functions.
Source: org.apache.kafka.connect.runtime.rest.entities.ConfigInfos, AbstractHerder.generateResult.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, quote_plus

from penstock.config import ConfigDef, ConfigKey, ConfigType, ConfigValue, convert_to_string
from penstock.config.parse import HIDDEN, java_text
from penstock.config.suggestions import looks_secret
from penstock.errors import BadRequestException
from penstock.kafka.settings.table import ClientKind, is_client_secret
from penstock.settings.plugin_classes import CONVERTERS

REFERENCE: Final = re.compile(r"\$\{[^}:]*:[^}]*\}")
#: A shorter piece of a value may occur in any text; half of a short value reveals much of it.
_PIECE: Final = 6
_SHORTEST_PIECE: Final = 4
#: A shorter secret would match everywhere; a shorter value of a config provider is replaced where it is a word.
_SHORTEST_SECRET: Final = 4
#: Of a longer value, such as a file of certificates, only pieces of the beginning are replaced.
_LONGEST: Final = 16_384
_LONGEST_WORD: Final = 512
#: The encoded forms of values up to this length are replaced too.
_LONGEST_ENCODED: Final = 2_048
_QUOTED: Final = re.compile(r"\"((?:[^\"\\]|\\.)+)\"|'((?:[^'\\]|\\.)+)'", re.DOTALL)
#: Words of errors and help texts, which reveal nothing about a value that contains them.
_COMMON: Final = (
    "org.apache.kafka.connect.errors.connectexception dataexception retriableexception configexception",
    "org.apache.kafka.connect.json.jsonconverter org.apache.kafka.connect.storage.stringconverter",
    "org.apache.kafka.common.config.configexception org.apache.kafka.common.errors.",
    "org.apache.kafka.common.security.plain.plainloginmodule required username= password=",
    "org.apache.kafka.common.security.scram.scramloginmodule required username= password=",
    "org.apache.kafka.common.security.oauthbearer.oauthbearerloginmodule required clientid= clientsecret=",
    "invalid value for configuration connector. traceback (most recent call last): led to: caused by: penstock.",
    "http:// https:// localhost 127.0.0.1 configuration password connector topic partition offset record setting true",
    "false value missing required error failed number message schema field class that this with from there which have",
)


def _grams(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(len(text) - size + 1))


_COMMON_GRAMS: Final = frozenset(
    gram for text in _COMMON for size in range(_SHORTEST_PIECE, _PIECE + 1) for gram in _grams(text, size)
)


class Redaction:
    """Replaces values in texts.

    Args:
        provided: The values from config providers, each with its placeholder.
        secrets: Values to replace by ``[hidden]``.

    >>> redaction = Redaction({"hunter2!": "${file:/p:k}"}, ["s3cret-word"])
    >>> redaction.text("login of me:HUNTER2%21 failed, s3cret-wo... is wrong")
    'login of me:${file:/p:k} failed, [hidden]... is wrong'
    """

    def __init__(self, provided: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        self._words: dict[str, str] = {}
        self._grams: dict[str, str] = {}
        self._sizes: set[int] = set()
        for secret in secrets:
            for part in _parts_of_secret(secret):
                self._add(part, HIDDEN)
        # After the secrets: a placeholder is more informative than ``[hidden]``.
        for value, placeholder in provided.items():
            self._add(value, placeholder)
        words = sorted(self._words, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)") if words else None

    def __bool__(self) -> bool:
        """True if there is anything to replace."""
        return self._pattern is not None or bool(self._grams)

    def _add(self, value: str, shown: str) -> None:
        if not value.strip():
            return
        # Text around a placeholder is not secret: such a value counts only as a whole.
        whole = shown != HIDDEN and REFERENCE.sub("", shown) != ""
        for form in _forms(value[:_LONGEST]):
            plain = _folded(form)
            if len(plain) <= _LONGEST_WORD:
                self._words[plain] = shown
            if whole:
                continue
            size = min(_PIECE, max(_SHORTEST_PIECE, (len(plain) + 1) // 2))
            self._sizes |= {size}
            for gram in _grams(plain, size):
                if gram not in _COMMON_GRAMS:
                    self._grams[gram] = shown
        items = [] if whole else [item.strip() for item in value[:_LONGEST].split(",")]
        for item in items if len(items) > 1 else ():
            if 1 < len(item) <= _LONGEST_WORD:
                self._words[_folded(item)] = shown

    def text(self, text: str) -> str:
        """The text without the values."""
        if not self:
            return text
        folded = _folded(text)
        spans = (
            []
            if self._pattern is None
            else [(*one.span(), self._words[one[0]]) for one in self._pattern.finditer(folded)]
        )
        if self._grams:
            spans += self._pieces(folded)
        if not spans:
            return text
        shown: list[str] = []
        done = 0
        for begin, end, stands in _joined(spans):
            shown += (text[done:begin], stands)
            done = end
        return "".join([*shown, text[done:]])

    def _pieces(self, folded: str) -> Iterator[tuple[int, int, str]]:
        for size in self._sizes:
            for at, gram in enumerate(_grams(folded, size)):
                found = self._grams.get(gram)
                if found is not None:
                    yield at, at + size, found

    def body(self, value: object) -> object:
        """A JSON value without the values: in its texts, in names of members, and as whole numbers."""
        if not self:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name) if isinstance(name, str) else name: self.body(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.body(one) for one in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._words.get(str(value), value)
        return value

    def error(self, error: Exception) -> Exception:
        """The same error, or another of its class without the values in its text."""
        said = str(error)
        shown = self.text(said)
        if shown == said:
            return error
        kind = next((one for one in type(error).__mro__ if one.__module__ == "penstock.errors"), Exception)
        return kind(shown)  # type: ignore[no-any-return]


def _joined(spans: list[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """Joins spans that overlap, or are adjacent and have the same replacement."""
    spans.sort(key=lambda span: (span[0], -span[1]))
    begin, end, shown = spans[0]
    for one in spans[1:]:
        if one[0] < end or (one[0] == end and one[2] == shown):
            end = max(end, one[1])
        else:
            yield begin, end, shown
            begin, end, shown = one
    yield begin, end, shown


def _folded(text: str) -> str:
    """Lower case, letter by letter: positions stay the same."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(one.lower() if len(one.lower()) == 1 else one for one in text)


def _forms(value: str) -> set[str]:
    """Returns the forms in which a value may appear in a text."""
    forms = {value, value.strip()}
    if len(value) <= _LONGEST_ENCODED:
        data = value.encode("utf-8", "surrogatepass")
        quoted = (quote(data), quote(data, safe=""), quote_plus(data))
        escaped = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
        encoded = base64.b64encode(data).decode()
        forms |= {*quoted, *escaped, encoded.rstrip("="), encoded, data.hex()}
    return {form for form in forms if form}


def _parts_of_secret(secret: str) -> Iterator[str]:
    """Yields the secret parts of a secret, without a login module's class or the user name before a password."""
    quoted = [double or single for double, single in _QUOTED.findall(secret)]
    user, colon, password = secret.partition(":")
    if quoted:
        parts = quoted
    elif colon and not re.search(r"\s", user) and not secret.startswith("-"):
        parts = [secret, password]
    else:
        parts = [secret]
    return (part for part in parts if len(part.strip()) >= _SHORTEST_SECRET)


def provided_values(given: Mapping[str, str | None], resolved: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the values of the placeholders of a configuration, with the placeholders.

    >>> provided_values({"a": "<${env:N}>", "b": "2"}, {"a": "<two>", "b": "2"})
    {'<two>': '<${env:N}>', 'two': '${env:N}'}
    """
    found: dict[str, str] = {}
    for name, text in given.items():
        value = resolved.get(name)
        if text is None or value is None or value == text:
            continue
        found[value] = text
        found |= _placed(text, value)
    return {value: text for value, text in found.items() if value}


def _placed(text: str, value: str) -> dict[str, str]:
    """The values of the placeholders in a text; the values of adjacent placeholders are joined."""
    literals, references = REFERENCE.split(text), REFERENCE.findall(text)
    if not references or not value.startswith(literals[0]):
        return {}
    found: dict[str, str] = {}
    at, waiting = len(literals[0]), ""
    for number, reference in enumerate(references):
        waiting += reference
        after = literals[number + 1]
        if number == len(references) - 1:
            end = len(value) - len(after)
            if not value.endswith(after) or end < at:
                break
        elif not after:
            continue
        else:
            end = value.find(after, at)
            if end < 0:
                break
        found[value[at:end]] = waiting
        at, waiting = end + len(after), ""
    return found


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


#: A list of a thousand connectors has the same few names.
_remembered: Final = lru_cache(maxsize=4096)(_is_secret_name)


def masked(config: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    """A configuration that may be shown. A reference to an external value is not a secret itself.

    >>> masked({"user": "u", "password": "p", "pin": "${file:/t:k}"}, {"pin"})
    {'user': 'u', 'password': '[hidden]', 'pin': '${file:/t:k}'}
    """
    return {name: HIDDEN if _hides(name, value, secrets) else value for name, value in config.items()}


def _hides(name: str, value: str, secrets: Collection[str]) -> bool:
    return bool(value) and (name in secrets or is_secret_name(name)) and REFERENCE.fullmatch(value) is None


def masked_tasks(
    tasks: Sequence[Mapping[str, str]], config: Mapping[str, str], secrets: Collection[str]
) -> list[dict[str, str]]:
    """Task configurations that may be shown; a connector may pass its secrets to its tasks under other names.

    >>> masked_tasks([{"url": "x?pw=hunter2", "n": "1"}], {"password": "hunter2"}, ())
    [{'url': 'x?pw=[hidden]', 'n': '1'}]
    """
    values = [value for name, value in config.items() if _hides(name, value, secrets) and len(value) >= _SHORTEST]
    if not values:
        return [masked(task, secrets) for task in tasks]
    # A short value counts only as a word, because it may be part of another value by chance.
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
    """A configuration in which each mask that a user sent back has the secret's value again.

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
    """Refuses a mask for an unknown secret: the mask would be stored as the secret itself."""
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
    """Removes the secrets of a configuration, and the values of its placeholders, from texts about it."""
    values = [text for name, text in config.items() if text and (name in secrets or is_secret_name(name))]
    return Redaction(provided_values(config, resolved), values)


@dataclass(frozen=True)
class Finding:
    """The result of the validation of one setting.

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
        """True if its value must not be shown, by its definition or its name."""
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
        # A class is shown by the user's name for it, which may be an alias or a Java name.
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
    """The answer to a validation; ``name`` is the connector's class as it was given."""

    name: str
    groups: Sequence[str]
    findings: Sequence[Finding]
    warnings: Sequence[SettingWarning] = ()

    @property
    def error_count(self) -> int:
        """The number of errors of all settings together."""
        return sum(len(finding.value.error_messages) for finding in self.findings)

    def to_json(self) -> dict[str, object]:
        """The body of the answer: Java's, and ``warnings`` if there are any."""
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
    """The distinct groups of several definitions."""
    return list(dict.fromkeys(group for definition in definitions for group in definition.groups()))


def _text(value: object, kind: ConfigType | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return java_text(value) if kind is None else convert_to_string(value, kind)
    except BaseException:
        # A connector's own `validate` may return any object here; the answer must not fail.
        return java_text(value)
