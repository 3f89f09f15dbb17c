"""Patterns of ``SimpleDateFormat``: what is a field, what is text.

Thread: pure functions, safe from any thread.
Source: java.text.SimpleDateFormat.compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

LETTERS: Final = frozenset("GyMdkHmsSEDFwWahKzZYuXL")


class DatePatternError(ValueError):
    """A pattern that Java refuses, with Java's text."""

    java_name: ClassVar[str] = "java.lang.IllegalArgumentException"


@dataclass(frozen=True, slots=True)
class PatternToken:
    """A field (``letter``, as often as ``count``) or, without a letter, ``text`` that stands for itself."""

    letter: str = ""
    count: int = 0
    text: str = ""


#: A regular expression that is several times as long is made of a pattern, and Spark plans each of its fields.
_LONGEST: Final = 1_000


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> tuple[PatternToken, ...]:
    """The parts of a pattern.

    Raises:
        DatePatternError: a letter that means nothing, a quote without end, an impossible ``X``; too many letters.

    >>> [token.letter * token.count or token.text for token in compile_pattern("yyyy-MM'T'''HH")]
    ['yyyy', '-', 'MM', "T'", 'HH']
    """
    if len(pattern) > _LONGEST:
        raise DatePatternError(f"A pattern has {_LONGEST} characters at most, and this one has {len(pattern)}")
    tokens: list[PatternToken] = []
    at, quoted = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            if pattern[at + 1 : at + 2] == "'":
                _add_text(tokens, "'")
                at += 2
                continue
            quoted = not quoted
            if quoted:
                # Parts of one letter on both sides of a quoted text are two fields.
                tokens.append(PatternToken())
        elif quoted or not (char.isascii() and char.isalpha()):
            _add_text(tokens, char)
        elif char not in LETTERS:
            raise DatePatternError(f"Illegal pattern character '{char}'")
        elif tokens and tokens[-1].letter == char:
            tokens[-1] = PatternToken(char, tokens[-1].count + 1)
        else:
            tokens.append(PatternToken(char, 1))
        at += 1
    if quoted:
        raise DatePatternError("Unterminated quote")
    for token in tokens:
        if token.letter == "X" and token.count > 3:
            raise DatePatternError(f"invalid ISO 8601 format: length={token.count}")
    return tuple(token for token in tokens if token.letter or token.text)


def _add_text(tokens: list[PatternToken], text: str) -> None:
    if tokens and not tokens[-1].letter:
        tokens[-1] = PatternToken(text=tokens[-1].text + text)
    else:
        tokens.append(PatternToken(text=text))


def quoted(text: str) -> str:
    """Text that stands for itself, in Java's and in Python's expressions."""
    return "".join(char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}" for char in text)
