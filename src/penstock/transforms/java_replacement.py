"""Replacements of Java's regular expressions: ``$1``, ``${name}`` and ``\\$``.

Thread: pure functions.
Source: java.util.regex.Matcher.appendReplacement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from penstock.config.java_pattern import JavaPattern

#: Text, the number of a group, or (in a tuple) its name.
Part = str | int | tuple[str]


class ReplacementError(ValueError):
    """A replacement that Java refuses, with Java's text."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


class UncertainGroupError(ReplacementError):
    """A replacement refers to a group that may hold another text here than in Java."""


class NoSuchGroupError(ReplacementError):
    """A replacement refers to a group that the expression does not have."""

    java_name: ClassVar[str] = "java.lang.IndexOutOfBoundsException"


def replace_first(pattern: JavaPattern, text: str, replacement: str) -> str:
    """A text with another in the place of what is found first in it.

    Raises:
        ReplacementError: Java would refuse the replacement.
        PatternTimeoutException: The search takes too long.
    """
    match = pattern.find(text)
    if match is None:
        return text
    parts = parse_replacement(replacement, pattern)
    return text[: match.start()] + _expand(parts, match) + text[match.end() :]


def parse_replacement(text: str, pattern: JavaPattern) -> list[Part]:
    """The parts of a replacement, with the groups of a pattern.

    Raises:
        ReplacementError: Java would refuse it.

    >>> from penstock.config.java_regex import compile_java
    >>> parse_replacement("a$12\\\\$${n}", compile_java("(?<n>x)"))
    ['a', 1, '2', '$', ('n',)]
    """
    groups, names = pattern.groups, pattern.groupindex
    parts: list[Part] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            if at == len(text):
                raise ReplacementError("character to be escaped is missing")
            parts.append(text[at])
            at += 1
        elif char == "$":
            part, at = _reference(text, at, groups, names)
            parts.append(part)
        else:
            parts.append(char)
    for part in parts:
        number = names[part[0]] if isinstance(part, tuple) else part
        if number in pattern.uncertain_groups:
            raise UncertainGroupError(
                f"Group {number} is not supported here: it is in look-around, in an independent group or in a "
                "repetition, where it holds in Java what it took last, perhaps in a try that failed"
            )
    return parts


def _reference(text: str, at: int, groups: int, names: Mapping[str, int]) -> tuple[Part, int]:
    if at == len(text):
        raise ReplacementError("Illegal group reference: group index is missing")
    if text[at] == "{":
        return _named(text, at + 1, names)
    if not "0" <= text[at] <= "9":
        raise ReplacementError("Illegal group reference")
    number = int(text[at])
    at += 1
    # More digits belong to the number for as long as there is such a group.
    while at < len(text) and "0" <= text[at] <= "9" and number * 10 + int(text[at]) <= groups:
        number = number * 10 + int(text[at])
        at += 1
    if number > groups:
        raise NoSuchGroupError(f"No group {number}")
    return number, at


def _named(text: str, at: int, names: Mapping[str, int]) -> tuple[Part, int]:
    match = re.compile(r"[a-zA-Z0-9]*").match(text, at)
    name = "" if match is None else match.group()
    end = at + len(name)
    if not name:
        raise ReplacementError("named capturing group is missing trailing '}'")
    if text[end : end + 1] != "}":
        raise ReplacementError("named capturing group is missing trailing '}'")
    if name[0].isdigit():
        raise ReplacementError(f"capturing group name {{{name}}} starts with digit character")
    if name not in names:
        raise ReplacementError(f"No group with name {{{name}}}")
    return (name,), end + 1


def _expand(parts: Sequence[Part], match: re.Match[str]) -> str:
    """The text of a replacement for one match; a group that took no part is empty."""
    texts = [part if isinstance(part, str) else match[part[0] if isinstance(part, tuple) else part] for part in parts]
    return "".join(text or "" for text in texts)
