"""The parts of Java's regular expressions: a reader of everything that matches one character, and translated pieces.

Thread: one thread reads a pattern; the rest are immutable values and pure functions.
Source: java.util.regex.Pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NoReturn

from penstock.config.char_classes import (
    DIGITS,
    HORIZONTAL,
    NONE,
    SPACE,
    VERTICAL,
    WORD,
    CharSet,
    folded,
    folded_range,
    property_set,
)

_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "r": 0x0D, "f": 0x0C, "a": 0x07, "e": 0x1B}
_SETS: Final = {"d": DIGITS, "w": WORD, "s": SPACE, "h": HORIZONTAL, "v": VERTICAL}
_VERTICAL_TAB: Final = 0x0B
_OCTAL: Final = re.compile(r"[0-3]?[0-7]{1,2}")
_BRACED: Final = re.compile(r"\{([0-9a-fA-F]+)\}")
_TWO: Final = re.compile(r"[0-9a-fA-F]{2}")
_FOUR: Final = re.compile(r"[0-9a-fA-F]{4}")
_LOW_SURROGATE: Final = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_UNTIL_QUOTE: Final = re.compile(r"((?:[^\\]|\\(?!Q).)*)\\Q", re.DOTALL)
_AFTER_AMPERSAND: Final = tuple(" \t\n\x0b\f\r#")
_BLANKS: Final = re.compile(r"[ \t\n\x0b\f\r]+")
_COMMENT: Final = re.compile("#[^\n\r\u0085\u2028\u2029]*")
_UNIX_COMMENT: Final = re.compile("#[^\n]*")


class JavaRegexError(ValueError):
    """A pattern that Java rejects; the text is that of Java's PatternSyntaxException."""

    def __init__(self, description: str, pattern: str, index: int) -> None:
        near = f" near index {index}" if index >= 0 else ""
        mark = f"\n{' ' * index}^" if 0 <= index < len(pattern) else ""
        super().__init__(f"{description}{near}\n{pattern}{mark}")


def shown_for_limited(point: int) -> str:
    """A code point in the syntax of ``regex``."""
    return f"\\{chr(point)}" if 0x20 < point < 0x7F else f"\\U{point:08x}"


def shown_for_linear(point: int) -> str:
    """A code point in the syntax of RE2."""
    return f"\\{chr(point)}" if 0x20 < point < 0x7F else f"\\x{{{point:x}}}"


def unquoted(pattern: str) -> str:
    r"""The pattern with escapes instead of quotes; Java does the same before it parses a pattern.

    >>> unquoted(r"a\Qb.1\E|\Q\E")
    'ab\\.1|'
    """
    parts: list[str] = []
    at = 0
    while found := _UNTIL_QUOTE.match(pattern, at):
        end = pattern.find("\\E", found.end())
        quoted = pattern[found.end() : len(pattern) if end < 0 else end]
        # A leading digit would become part of a preceding escape.
        number = re.match("[0-9]?", quoted)
        assert number is not None
        parts += [found[1], *(f"\\x3{digit}" for digit in number[0]), *map(_escaped, quoted[number.end() :])]
        at = len(pattern) if end < 0 else end + 2
    return "".join((*parts, pattern[at:]))


def _escaped(char: str) -> str:
    return char if not char.isascii() or char.isalnum() else f"\\{char}"


class CharacterReader:
    """Walks through a pattern.

    Attributes:
        at: The current position.
        flags: The letters of the flags that are set at this position.
    """

    def __init__(self, pattern: str) -> None:
        self._shown = pattern
        self._text = unquoted(pattern)
        self.at = 0
        self.flags: frozenset[str] = frozenset()

    # ------------------------------------------------------------------ the text
    def fail(self, description: str, index: int | None = None) -> NoReturn:
        """Raises an error with its cause and index (by default the current position)."""
        raise JavaRegexError(description, self._shown, self.at if index is None else index)

    def unsupported(self, what: str) -> NoReturn:
        """Raises an error for a part of the pattern that Java accepts but this translation does not support."""
        self.fail(f"Not supported here: {what}", self.at - 1)

    @property
    def ended(self) -> bool:
        """True if the whole pattern has been read."""
        return self.at >= len(self._text)

    @property
    def end(self) -> int:
        """The index after the last character of the pattern."""
        return len(self._text)

    def peek(self, length: int = 1) -> str:
        """The next characters, without moving the position."""
        return self._text[self.at : self.at + length]

    def accept(self, text: str) -> bool:
        """Reads a text if it comes next; returns True if it did."""
        if self._text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def take(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Reads the match of an expression at this position; None if it does not match or matches nothing."""
        found = expression.match(self._text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def skip_comments(self) -> None:
        """Skips blanks and comments if the flag ``x`` is set."""
        if "x" in self.flags:
            comment = _UNIX_COMMENT if "d" in self.flags else _COMMENT
            while self.take(_BLANKS) or self.take(comment):
                pass

    # ------------------------------------------------------------------ one character
    def single(self, point: int) -> CharSet:
        """One character, with the current flags."""
        if "i" not in self.flags:
            return CharSet.of((point, point))
        return folded(point, unicode="u" in self.flags)

    def escaped(self, *, in_range: bool = False) -> int | CharSet:
        """Reads the rest of an escape after the backslash: a code point, or a set of them."""
        start = self.at
        char = self.peek()
        if not char:
            self.fail("Unexpected internal error", self.at)
        self.at += 1
        if char == "v" and in_range:
            return _VERTICAL_TAB
        if char in _SETS:
            return _SETS[char]
        if char.lower() in _SETS:
            return ~_SETS[char.lower()]
        if char in "pP":
            found = self._property()
            return ~found if char == "P" else found
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "c":
            return self._control()
        if char in "xu0":
            return self._code_point(char)
        if char == "N":
            self.unsupported("\\N{...}; write the character itself or its number: \\x{...}")
        if char.isascii() and char.isalnum():
            self.fail("Illegal/unsupported escape sequence", start)
        return ord(char)

    def _control(self) -> int:
        self.skip_comments()
        control = self.peek()
        if not control:
            self.fail("Illegal control escape sequence")
        self.at += 1
        return ord(control) ^ 64

    def _code_point(self, kind: str) -> int:
        if kind == "0":
            if (octal := self.take(_OCTAL)) is None:
                self.fail("Illegal octal escape sequence")
            return int(octal[0], 8)
        if kind == "x":
            if found := self.take(_BRACED):
                point = int(found[1], 16)
                if point > 0x10FFFF:
                    self.fail("Hexadecimal codepoint is too big")
                return point
            if (found := self.take(_TWO)) is None:
                self.fail("Illegal hexadecimal escape sequence")
            return int(found[0], 16)
        if (found := self.take(_FOUR)) is None:
            self.fail("Illegal Unicode escape sequence")
        high = int(found[0], 16)
        if 0xD800 <= high < 0xDC00 and (low := self.take(_LOW_SURROGATE)):
            return 0x10000 + ((high - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        return high

    def _property(self) -> CharSet:
        if self.accept("{"):
            end = self._text.find("}", self.at)
            if end < 0:
                self.fail("Unclosed character family", len(self._text) - 1)
            name = self._text[self.at : end]
            self.at = end + 1
        else:
            name = self.peek()
            self.at += 1
        found = property_set(name, folds="i" in self.flags)
        if found is None and (name.startswith(("In", "Is", "java")) or "=" in name):
            self.unsupported(f"the character property {{{name}}}")
        if found is None:
            self.fail(f"Unknown character property name {{{name}}}", self.at - 1)
        return found

    # ------------------------------------------------------------------ classes in brackets
    def bracket(self) -> CharSet:
        """A class in brackets, to its closing bracket."""
        self.at += 1
        negated = self.accept("^")
        found = self._members()
        self.at += 1
        return ~found if negated else found

    def _members(self) -> CharSet:
        """The members of a class, up to its closing bracket."""
        found: CharSet | None = None
        members = 0
        while True:
            self.skip_comments()
            if self.ended:
                self.fail("Unclosed character class", self.end - 1)
            if found is not None and self.peek() == "]":
                return found
            if self.accept("&&"):
                right = self._right(members)
                if right is not None:
                    found, members = right if found is None else found & right, 1
                continue
            member = self.bracket() if self.peek() == "[" else self._member()
            found = member if found is None else found | member
            members += 1

    def _right(self, members: int) -> CharSet | None:
        """Reads the right side of ``&&``: classes and members, up to the next ``&&`` or the end.

        None if there is no right side; in Java a single member on the left then stays as it is.
        """
        found: CharSet | None = None
        self.skip_comments()
        while self.peek() not in ("]", "&"):
            one = self.bracket() if self.peek() == "[" else self._members()
            found = one if found is None else found | one
            self.skip_comments()
        if found is None and not members:
            self.fail("Bad class syntax", self.at - 1)
        if (found is None and members > 1) or (self.peek() == "&" and self.peek(2) != "&&"):
            self.unsupported("a class with nothing, or a single &, behind &&")
        return found

    def _member(self) -> CharSet:
        """A character, a range, or an escape for several characters."""
        first = self._end_of_range(in_range=self._text[self.at + 2 : self.at + 3] == "-")
        if isinstance(first, CharSet):
            return first
        self.skip_comments()
        behind = self._text[self.at + 1 : self.at + 2]
        if self.peek() != "-" or behind in ("[", "]"):
            return self.single(first)
        start = self.at
        self.at += 1
        self.skip_comments()
        if self.ended:
            self.fail("Illegal character range")
        last = self._end_of_range(in_range=True)
        if isinstance(last, CharSet):
            self.fail("Illegal character range", self.at - 1)
        if last < first:
            self.fail("Illegal character range", start + 1)
        if "i" in self.flags:
            return folded_range(first, last, unicode="u" in self.flags)
        return CharSet.of((first, last))

    def _end_of_range(self, *, in_range: bool) -> int | CharSet:
        if not self.accept("\\"):
            char = self.peek()
            self.at += 1
            if char == "&" and "x" in self.flags and self.peek() in _AFTER_AMPERSAND:
                self.unsupported("a blank or comment behind &, with the flag x")
            return ord(char)
        if self.peek() and self.peek() in "bBAZzGRXk123456789":
            self.fail("Illegal/unsupported escape sequence")
        return self.escaped(in_range=in_range)


_ENDS: Final = r"\r\u0085\u2028\u2029"
#: A line terminator at which a line ends: not the second half of one.
_LINE_FEED: Final = r"(?<!\r)\n"
LAST_LINE_END: Final = rf"(?=\r\n\Z|[{_ENDS}]?\Z|{_LINE_FEED}\Z)"
LINE_END: Final = rf"(?=[{_ENDS}]|\Z|{_LINE_FEED})"
LINE_BEGINNING: Final = r"(?:\A|(?<=[\n\u0085\u2028\u2029])|(?<=\r)(?!\n))(?!\Z)"
_WORD: Final = r"[_\p{L}\p{Nd}]"
#: Combining marks belong to the preceding letter or digit, unless Java has to write one of them as two characters.
_SHORT: Final = r"(?![\U00010000-\U0010ffff])"
_BASE: Final = rf"{_SHORT}[\p{{L}}\p{{Nd}}](?:{_SHORT}\p{{Mn}})"
_WORD_BEFORE: Final = rf"(?:(?<={_WORD})|(?<={_BASE}+))"
_WORD_BEHIND: Final = rf"(?:(?={_WORD})|(?=\p{{Mn}})(?<={_BASE}*))"
WORD_BOUNDARY: Final = rf"(?:{_WORD_BEFORE}(?!{_WORD_BEHIND})|(?!{_WORD_BEFORE}){_WORD_BEHIND})"


@dataclass(frozen=True, slots=True)
class PatternPiece:
    r"""A part of a pattern.

    Attributes:
        limited: The part for ``regex``.
        linear: The part for RE2, without groups; None = RE2 does not support it.
        least: The minimum number of characters that it matches.
        weight: The minimum number of parts that ``regex`` expands it to.
        fixed: True if Java sees no choice in it: Java does not backtrack into its repetitions, and its groups keep
            their last match.
        groups: The numbers of its groups, including its own.
        own: Its own group number.
        late: The groups that Java sets only when the match is complete, so to the match of an earlier repetition.
        breaks: True if it contains a line break (``\R``), which Java does not count as a choice.
        is_group: True if it is a group that matches characters.
        is_one: True if a quantifier may follow it.
    """

    limited: str
    linear: str | None = None
    least: int = 0
    weight: int = 1
    fixed: bool = True
    groups: frozenset[int] = frozenset()
    own: int | None = None
    late: frozenset[int] = frozenset()
    breaks: bool = False
    is_group: bool = False
    is_one: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """A quantifier; ``high`` None = unlimited, ``kind`` is the suffix: empty, ? or +."""

    text: str
    low: int
    high: int | None
    kind: str = ""

    @property
    def is_optional(self) -> bool:
        """True if the quantifier is ``?``: zero or one."""
        return (self.low, self.high) == (0, 1)


@lru_cache(maxsize=1024)
def of_set(chars: CharSet) -> PatternPiece:
    """A piece that matches one character of a set."""
    if chars == NONE:
        return PatternPiece("(?!)", r"[^\x{0}-\x{10ffff}]", least=1)
    # Never as a negated set: `regex` reads [^a]|[^b] as matching nothing.
    return PatternPiece(chars.expression(shown_for_limited), chars.expression(shown_for_linear), least=1, is_one=True)


def _joined(pieces: Sequence[PatternPiece], between: str) -> tuple[str, str | None]:
    linear = [piece.linear for piece in pieces]
    known = [one for one in linear if one is not None]
    return between.join(piece.limited for piece in pieces), between.join(known) if len(known) == len(linear) else None


def in_order(pieces: Sequence[PatternPiece]) -> PatternPiece:
    """A sequence of pieces."""
    return PatternPiece(
        *_joined(pieces, ""),
        least=sum(piece.least for piece in pieces),
        weight=sum(piece.weight for piece in pieces),
        fixed=all(piece.fixed for piece in pieces),
        groups=frozenset().union(*(piece.groups for piece in pieces)),
        late=frozenset().union(*(piece.late for piece in pieces)),
        breaks=any(piece.breaks for piece in pieces),
    )


def either(ways: Sequence[PatternPiece]) -> PatternPiece:
    """An alternative of several pieces."""
    if len(ways) == 1:
        return ways[0]
    limited, linear = _joined(ways, "|")
    least = min(way.least for way in ways)
    return replace(in_order(ways), limited=limited, linear=linear, least=least, fixed=False)


LINE_BREAK: Final = PatternPiece(
    f"(?:\\r\\n|{VERTICAL.expression(shown_for_limited)})",
    f"(?:\\r\\n|{VERTICAL.expression(shown_for_linear)})",
    least=1,
    breaks=True,
    is_one=True,
)
