"""Checks and translations of single settings of the file source: encodings, zones, patterns of Java, characters.

Main names: the validators ``CHARSET``, ``CHARACTER``, ``PATTERN`` and ``SCHEMA``; ``character``,
``strptime_pattern``, which translates a checked text. Pure; any thread.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from penstock.config import LambdaValidator
from penstock.config.patterns.translation import compile_java
from penstock.connectors.files.source.schemas import parse_schema
from penstock.errors import ConfigException

_PATTERNS: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MMM": "%b", "MM": "%m", "M": "%m", "dd": "%d", "d": "%d", "HH": "%H",
    "H": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p", "XXX": "%z", "XX": "%z", "X": "%z", "Z": "%z",
    "EEE": "%a",
}  # fmt: skip


def check_charset(name: str, value: object) -> None:
    """Raises ConfigException if Python has no such encoding."""
    try:
        codecs.lookup(str(value))
        "".encode(str(value))
    except (LookupError, ValueError) as error:
        raise ConfigException(name, value, "is no encoding that is known; write UTF-8 or ISO-8859-1") from error


def _check_pattern(name: str, value: object) -> None:
    compile_java(str(value), name=name)


def _check_schema(name: str, value: object) -> None:
    if value:
        try:
            parse_schema(str(value))
        except ValueError as error:
            raise ConfigException(name, value, str(error)) from error


def _check_character(name: str, value: object) -> None:
    try:
        character(str(value))
    except ValueError as error:
        raise ConfigException(name, value, "is one ASCII character, or the number of one; 0 for none") from error


def character(text: str) -> str | None:
    r"""Parses a character in a setting.

    >>> character("9"), character(";"), character("59"), character("0"), character("\\t")
    ('\t', ';', ';', None, '\t')
    """
    if text in ("\\t", "\t"):
        return "\t"
    if len(text) != 1 and not text.isdigit():
        raise ValueError(text)
    number = int(text) if text.isdigit() else ord(text)
    if number > 127:
        raise ValueError(text)
    return chr(number) if number else None


def strptime_pattern(pattern: str) -> str:
    """Converts a pattern of Java's to one of ``strptime``.

    >>> strptime_pattern("yyyy-MM-dd'T'HH:mm:ss")
    '%Y-%m-%dT%H:%M:%S'
    """
    out = []
    for found in re.finditer(r"'([^']*)'|(([A-Za-z])\3*)|([^A-Za-z']+)", pattern):
        if found[2]:
            if found[2] not in _PATTERNS:
                raise ValueError(
                    f'has the pattern {pattern}, whose "{found[2]}" is not there: write {", ".join(_PATTERNS)}'
                )
            out.append(_PATTERNS[found[2]])
        else:
            out.append((found[1] or found[4] or "'").replace("%", "%%"))
    return "".join(out)


CHARSET: Final = LambdaValidator(check_charset, "the name of an encoding")
CHARACTER: Final = LambdaValidator(_check_character, "a character, or its number; 0: none")
PATTERN: Final = LambdaValidator(_check_pattern, "a regular expression")
SCHEMA: Final = LambdaValidator(_check_schema, "a list of fields, or JSON")
