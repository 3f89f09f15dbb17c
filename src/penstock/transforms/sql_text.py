"""What the text of a Spark SQL expression names: its parts, the fields it reads, the functions it calls.

Spark alone knows what an expression means. These functions read no more than its tokens, for what has to be known
before Spark can be asked: where a list is parted, and which paths lead into a VARIANT. Spark has two ways to write a
path, ``user.id`` for structs and ``user:id`` for VARIANTs; who writes an expression need not know which a field is.

Main functions: ``split_items``, ``paths_of``, ``calls_of``, ``with_variant_paths``. Thread: pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<number>\d[\w.]*)
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>->|::|.)""",
    re.VERBOSE | re.DOTALL,
)
#: A text in a subscript whose quotes can be exchanged: Spark takes single ones only in the path of a VARIANT.
_PLAIN_TEXT: Final = re.compile(r"\"[^\"'\\]*\"|'[^\"'\\]*'")
_NAMES: Final = ("name", "quoted")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def name(self) -> str:
        """What a name or a text is without its quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text[1:-1] if self.kind == "text" else self.text


@dataclass(frozen=True)
class Path:
    """A field of a field: ``user.addresses[0].city``.

    Attributes:
        names: Of each step, the first one that of a column; a number in brackets counts as a name.
    """

    names: tuple[str, ...]
    steps: tuple[_Token, ...]
    separators: tuple[_Token, ...]


def split_items(text: str) -> list[str]:
    """The expressions of a list that commas part, except in brackets, quotes and comments.

    >>> split_items("a, concat(b, ',') as c")
    ['a', "concat(b, ',') as c"]
    """
    items: list[str] = []
    depth = start = 0
    for token in _tokens(text):
        if token.kind != "sign":
            continue
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and depth == 0:
            items.append(text[start : token.start].strip())
            start = token.start + 1
    return [*items, text[start:].strip()]


def calls_of(text: str) -> list[str]:
    """The functions that an expression calls, in lower case.

    >>> calls_of("explode(split(`Upper`, ','))")
    ['explode', 'split']
    """
    tokens = _meaningful(text)
    return [one.text.lower() for one, after in pairwise(tokens) if _is_call(one, after)]


def paths_of(text: str) -> list[Path]:
    """The paths of an expression. Keywords, types and aliases are among them: only Spark tells them from fields.

    >>> [path.names for path in paths_of("upper(user.name) = `a b`['c'] and exists(xs, x -> x.y)")]
    [('user', 'name'), ('a b', 'c'), ('and',), ('xs',)]
    """
    tokens = _meaningful(text)
    lambdas = _lambda_names(tokens)
    found: list[Path] = []
    at = 0
    while at < len(tokens):
        token, before = tokens[at], tokens[at - 1].text if at else ""
        called = at + 1 < len(tokens) and _is_call(token, tokens[at + 1])
        if token.kind not in _NAMES or called or before in (".", ":", "::") or token.name in lambdas:
            at += 1
            continue
        path, at = _path(tokens, at)
        found.append(path)
    return found


def names_in(text: str) -> frozenset[str]:
    """The first names of its paths: all that can be a column."""
    return frozenset(path.names[0] for path in paths_of(text))


def with_variant_paths(text: str, variants: Collection[tuple[str | None, ...]]) -> str:
    """The expression with Spark's syntax for VARIANTs where a path leads into one.

    What can be is replaced in its place, so that the positions in Spark's messages are those of the given text.

    Args:
        text: The expression.
        variants: Paths that are VARIANTs; None in one stands for any name.

    >>> with_variant_paths("user.id + record.topic + xs[0]['a'].b", {("user",), ("xs",)})
    "user:id + record.topic + xs:[0]['a'].b"
    """
    changes: list[tuple[int, int, str]] = []
    for path in paths_of(text):
        root = next((size for size in range(1, len(path.names)) if _matches(path.names[:size], variants)), None)
        if root is None:
            continue
        separator = path.separators[root - 1]
        if separator.text == ".":
            changes.append((separator.start, separator.start + 1, ":"))
        elif separator.text == "[":
            changes.append((separator.start, separator.start, ":"))
        for step in path.steps[root:]:
            if step.kind == "text":
                changes.append((step.start, step.start + len(step.text), f"'{step.name}'"))
    for start, end, replacement in reversed(changes):
        text = text[:start] + replacement + text[end:]
    return text


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        yield _Token(found.lastgroup or "sign", found[0], found.start())


def _meaningful(text: str) -> list[_Token]:
    return [one for one in _tokens(text) if one.kind != "space"]


def _is_call(token: _Token, after: _Token) -> bool:
    return token.kind == "name" and after.text == "("


def _path(tokens: list[_Token], at: int) -> tuple[Path, int]:
    """The path that begins at a name, and the place behind it."""
    steps, separators = [tokens[at]], []
    at += 1
    while at + 1 < len(tokens):
        separator, step = tokens[at], tokens[at + 1]
        if separator.text in (".", ":") and step.kind in _NAMES:
            size = 2
        elif separator.text == "[" and _is_subscript(step) and at + 2 < len(tokens) and tokens[at + 2].text == "]":
            size = 3
        else:
            break
        steps.append(step)
        separators.append(separator)
        at += size
    return Path(tuple(one.name for one in steps), tuple(steps), tuple(separators)), at


def _is_subscript(step: _Token) -> bool:
    return step.text.isdigit() or (step.kind == "text" and _PLAIN_TEXT.fullmatch(step.text) is not None)


def _lambda_names(tokens: list[_Token]) -> frozenset[str]:
    """The variables in ``x -> ...`` and ``(x, y) -> ...``."""
    found: set[str] = set()
    for at, token in enumerate(tokens):
        if token.text != "->" or at == 0:
            continue
        before = at - 1
        if tokens[before].text != ")":
            found.add(tokens[before].name)
            continue
        while before > 0 and tokens[before].text != "(":
            before -= 1
            if tokens[before].kind in _NAMES:
                found.add(tokens[before].name)
    return frozenset(found)


def _matches(names: tuple[str, ...], variants: Collection[tuple[str | None, ...]]) -> bool:
    return any(
        len(one) == len(names) and all(part in (None, name) for part, name in zip(one, names, strict=True))
        for one in variants
    )
