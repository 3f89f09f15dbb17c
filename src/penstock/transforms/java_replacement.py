"""Replacements of Java's regular expressions: ``$1``, ``${name}`` and ``\\$``, read and checked before they run.

A wrong reference would otherwise fail in the JVM, and a whole job with it.

Thread: pure functions.
Source: java.util.regex.Matcher.appendReplacement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from penstock.config.java_regex import compile_java
from penstock.errors import ConfigException

#: Text, the number of a group, or (in a tuple) its name.
Part = str | int | tuple[str]


class ReplacementError(ValueError):
    """A replacement that Java refuses, with Java's text."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


class NoSuchGroupError(ReplacementError):
    """A replacement refers to a group that the expression does not have."""

    java_name: ClassVar[str] = "java.lang.IndexOutOfBoundsException"


def parse_replacement(text: str, groups: int, names: frozenset[str]) -> list[Part]:
    """The parts of a replacement.

    Args:
        text: The replacement.
        groups: How many groups the expression has.
        names: The names of its groups.

    Raises:
        ReplacementError: Java would refuse it.

    >>> parse_replacement("a$12\\\\$${n}", 1, frozenset({"n"}))
    ['a', 1, '2', '$', ('n',)]
    """
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
    return parts


def _reference(text: str, at: int, groups: int, names: frozenset[str]) -> tuple[Part, int]:
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


def _named(text: str, at: int, names: frozenset[str]) -> tuple[Part, int]:
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


def expand(parts: Sequence[Part], match: re.Match[str]) -> str:
    """The text of a replacement for one match; a group that took no part is empty."""
    texts = [part if isinstance(part, str) else match[part[0] if isinstance(part, tuple) else part] for part in parts]
    return "".join(text or "" for text in texts)


@lru_cache(maxsize=512)
def _groups(regex: str) -> tuple[int, frozenset[str]]:
    try:
        pattern = compile_java(regex)
    except ConfigException:
        # Right in Java, too much for Python: counted in the text.
        bare = re.sub(r"\\Q.*?(?:\\E|$)|\\.|\[(?:\\.|[^\]\\])*\]", "", regex)
        found = re.findall(r"\((?!\?)|\(\?<([a-zA-Z][a-zA-Z0-9]*)>", bare)
        return len(found), frozenset(filter(None, found))
    return pattern.groups, frozenset(pattern.groupindex)


def group_count(regex: str) -> int:
    """How many groups a Java expression has."""
    return _groups(regex)[0]


def group_names(regex: str) -> frozenset[str]:
    """The names of its groups."""
    return _groups(regex)[1]
