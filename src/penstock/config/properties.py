"""Java's properties format: the format of worker files, connector files and secret files.

`Prefixed` and `NamesByPrefix` look up the settings below a prefix without a scan of all settings: a configuration may
have many transforms, and each needs its own settings. Immutable values and pure functions; any thread.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

from penstock.errors import ConfigException

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE: Final = re.compile(r"[0-9a-fA-F]{4}")


#: Settings and secrets are never larger. Device files may be endless.
MOST_BYTES: Final = 16 << 20


def read_limited(path: str | Path) -> bytes:
    """Reads a file of settings or secrets; raises OSError also if it is larger than the limit."""
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(f"it is too large: more than {MOST_BYTES} bytes")
    return data


def load_properties(path: str | Path) -> dict[str, str]:
    """Reads a properties file, UTF-8.

    Raises:
        ConfigException: The file cannot be read, is too large, is not UTF-8 or has a malformed escape; the message says
            where.
    """
    try:
        text = read_limited(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigException(f"Could not read properties from file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigException(
            f"Could not read properties from file {path}: not UTF-8 at byte {error.start}; save it as UTF-8 or write "
            "other characters as \\uXXXX"
        ) from error
    return parse_properties(text, source=str(path))


def parse_properties(text: str, *, source: str = "properties") -> dict[str, str]:
    r"""Parses the text of a properties file; the last value of a repeated key counts.

    Args:
        text: The content.
        source: Its name in errors.

    Raises:
        ConfigException: The text has a malformed ``\u`` escape; the message names the line.

    >>> parse_properties("# worker\nname = a\\\n   b\nkey:\\u0041 = 1")
    {'name': 'ab', 'key': 'A = 1'}
    """
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            values[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ConfigException(f"{source}, line {number}: {error}") from error
    return values


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with joined continuations, without blank and comment lines, each with the number of its first line."""
    pending: list[str] = []
    start = 0
    for number, line in enumerate(_LINE_END.split(text), start=1):
        line = line.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            # A lone backslash leaves nothing: Java continues with the next line as if this one did not exist.
            pending += [line[:-1]] if line[:-1] else []
        else:
            yield start, "".join((*pending, line))
            pending = []
    if pending:
        yield start, "".join(pending)


def _split(line: str) -> tuple[str, str]:
    """Splits a line at the first unescaped separator: blanks with at most one `=` or `:` among them."""
    end = 0
    while end < len(line) and line[end] not in _BLANKS + "=:":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
        elif text[position : position + 1] == "u":
            digits = _UNICODE.match(text, position + 1)
            if digits is None:
                raise ValueError(
                    f"malformed \\uXXXX escape {text[position - 1 : position + 5]!r}; expected four hexadecimal digits"
                )
            out.append(chr(int(digits[0], 16)))
            position = digits.end()
        elif position < len(text):
            out.append(_ESCAPES.get(text[position], text[position]))
            position += 1
    joined = "".join(out)
    # Java's characters are UTF-16 units: two escapes may form one character.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


V = TypeVar("V")


class NamesByPrefix:
    """Names that can be looked up by prefix.

    >>> NamesByPrefix(["b.y", "a", "b.x"]).below("b.")
    ['b.y', 'b.x']
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._sorted = sorted(self._places)

    def below(self, prefix: str) -> list[str]:
        """The names that begin with a prefix, in their original order."""
        begin = end = bisect_left(self._sorted, prefix)
        while end < len(self._sorted) and self._sorted[end].startswith(prefix):
            end += 1
        return sorted(self._sorted[begin:end], key=self._places.__getitem__)


class Prefixed(Generic[V]):
    """A configuration whose settings can be looked up by prefix.

    >>> Prefixed({"t.x.type": "A", "name": "n", "t.x.": "no name"}).below("t.x.")
    {'type': 'A'}
    """

    def __init__(self, properties: Mapping[str, V]) -> None:
        self._properties = properties
        self._names = NamesByPrefix(properties)

    def below(self, prefix: str) -> dict[str, V]:
        """The settings below a prefix, with the prefix removed, in order; nulls are left out."""
        found = {name.removeprefix(prefix): self._properties[name] for name in self._names.below(prefix)}
        return {name: value for name, value in found.items() if name and value is not None}
