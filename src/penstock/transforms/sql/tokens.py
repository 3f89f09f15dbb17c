"""The tokens of Spark SQL, with the same boundaries as Spark's own lexer.

A different boundary would let an expression hide code from the checks. So, as in Spark, bracketed comments nest, a
backslash continues a line comment on the next line, and a doubled quote does not end a text.

Main functions: ``pieces`` and ``meaningful``; readers of the tokens raise ``SqlRefused``. Thread: any; they are pure.

Source: ``SqlBaseLexer`` of Spark 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--(?:\\\n|[^\r\n])*|/\*)
    |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<number>\d[\w.]*)
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>->|=>|::|<=>|\|\||\|>|<<|>>>|>>|[<>=!]=|<>|.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


@dataclass(frozen=True)
class ExpressionToken:
    """A token of an expression.

    Attributes:
        kind: space (comments too), text, quoted, number, name or sign; an unclosed comment is a sign.
        text: The text as written.
        start: Its position in the expression.
    """

    kind: str
    text: str
    start: int

    @property
    def name(self) -> str:
        """The name or text without its quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text[1:-1] if self.kind == "text" else self.text

    @property
    def word(self) -> str:
        """An unquoted name or a sign, in lower case; empty for any other token."""
        return self.text.lower() if self.kind in ("name", "sign") else ""


def pieces(text: str) -> Iterator[ExpressionToken]:
    """All tokens in order; joined, they are the whole text."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, "any character is a sign"
        kind, end = found.lastgroup or "sign", found.end()
        if found[0] == "/*":
            kind, end = _comment(text, at)
        yield ExpressionToken(kind, text[at:end], at)
        at = end


def meaningful(text: str) -> list[ExpressionToken]:
    """The tokens without space and comments."""
    return [one for one in pieces(text) if one.kind != "space"]


def _comment(text: str, start: int) -> tuple[str, int]:
    """Kind and end of a text that begins like a bracketed comment; hints and unclosed comments are signs."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            is_hint = text.startswith("/*+", start)
            return ("sign" if is_hint else "space"), edge.end()
    return "sign", len(text)


class SqlRefused(ValueError):
    """A rejected expression; the message says where, what, why and what to do.

    Args:
        told: The message.
        function: The function that caused it; None if it has another cause.
        is_syntax: True if the order of the words is not valid in any expression.
    """

    def __init__(self, told: str, function: str | None = None, *, is_syntax: bool = False) -> None:
        super().__init__(told)
        self.function = function
        self.is_syntax = is_syntax


def refused(at: int, told: str, function: str | None = None) -> SqlRefused:
    """The error for a position in an expression."""
    return SqlRefused(f"character {at + 1}: {told}", function)
