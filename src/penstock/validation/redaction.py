"""Removes secret values from texts, in every form.

Main types: ``Redaction``. Main functions: ``provided_values``, the values of the placeholders of a configuration. A
text may have a value as it is, in another case, quoted, escaped, encoded, cut or in pieces; each such part is replaced
by its placeholder, or by ``[hidden]``. Each text is read once, for all values together.

Pure; any thread.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

from penstock.config.parse import HIDDEN

REFERENCE: Final = re.compile(r"\$\{[^}:]*:[^}]*\}")
#: A shorter piece of a value may occur in any text; half of a short value reveals much of it.
_PIECE: Final = 6
_SHORTEST_PIECE: Final = 4
#: A secret that is shorter would be found everywhere; one of a config provider is replaced where it is a word.
_SHORTEST_SECRET: Final = 4
#: Of a longer value, such as a file of certificates, only the pieces of the beginning count.
_LONGEST: Final = 16_384
_LONGEST_WORD: Final = 512
#: Of so long a value the encoded forms count too.
_LONGEST_ENCODED: Final = 2_048
_QUOTED: Final = re.compile(r"\"((?:[^\"\\]|\\.)+)\"|'((?:[^'\\]|\\.)+)'", re.DOTALL)
#: Words of errors and help texts, which reveal nothing of a value that contains them.
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
        # Text around a placeholder is no secret: such a value counts as a whole.
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
        """The same of a JSON value: its texts, names of members, and numbers that are a value as a whole."""
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
        """The same error, or one of its class without the values in its text."""
        said = str(error)
        shown = self.text(said)
        if shown == said:
            return error
        kind = next((one for one in type(error).__mro__ if one.__module__ == "penstock.errors"), Exception)
        return kind(shown)  # type: ignore[no-any-return]


def _joined(spans: list[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """Spans that overlap, or meet and stand for the same, as one."""
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
    """Yields the secret parts of a secret: neither a login module's class nor the user in front of a password."""
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
    """Returns the values that the placeholders of a configuration were replaced with.

    Args:
        given: As given.
        resolved: With its placeholders resolved.

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
