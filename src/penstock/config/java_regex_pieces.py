"""The parts of a regular expression while it is written anew for the engines that run it here.

Main types: ``Piece``, ``Count``. Main functions: ``of_set``, ``in_order`` and ``either`` make pieces; the constants are
anchors as ``regex`` has to be told them. Thread: immutable values and pure functions.
Source: java.util.regex.Pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from penstock.config.java_char_classes import NONE, VERTICAL, CharSet
from penstock.config.java_regex_characters import shown_for_limited, shown_for_linear

_ENDS: Final = r"\r\u0085\u2028\u2029"
#: A line end in front of which a line ends: not the second half of one.
_LINE_FEED: Final = r"(?<!\r)\n"
LAST_LINE_END: Final = rf"(?=\r\n\Z|[{_ENDS}]?\Z|{_LINE_FEED}\Z)"
LINE_END: Final = rf"(?=[{_ENDS}]|\Z|{_LINE_FEED})"
LINE_BEGINNING: Final = r"(?:\A|(?<=[\n\u0085\u2028\u2029])|(?<=\r)(?!\n))(?!\Z)"
_WORD: Final = r"[_\p{L}\p{Nd}]"
#: Marks belong to the letter or digit in front of them, unless Java has to write one of them as two characters.
_SHORT: Final = r"(?![\U00010000-\U0010ffff])"
_BASE: Final = rf"{_SHORT}[\p{{L}}\p{{Nd}}](?:{_SHORT}\p{{Mn}})"
_WORD_BEFORE: Final = rf"(?:(?<={_WORD})|(?<={_BASE}+))"
_WORD_BEHIND: Final = rf"(?:(?={_WORD})|(?=\p{{Mn}})(?<={_BASE}*))"
WORD_BOUNDARY: Final = rf"(?:{_WORD_BEFORE}(?!{_WORD_BEHIND})|(?!{_WORD_BEFORE}){_WORD_BEHIND})"


@dataclass(frozen=True, slots=True)
class Piece:
    r"""A part of a pattern.

    Attributes:
        limited: It for ``regex``.
        linear: It for RE2, without its groups; None = RE2 cannot do it.
        least: How many characters it takes at least.
        weight: How many parts ``regex`` writes out for it at least.
        fixed: Whether Java finds no choice in it: repeated, it is not tried in another way, and groups within keep
            what they took last.
        groups: The numbers of the groups within, its own among them.
        own: The number of the group that it is.
        late: Those of them that Java sets when the match is complete, and so to what an earlier time took.
        breaks: Whether there is a line break (``\R``) within, which Java does not count as a choice.
        is_group: Whether it is a group that takes characters.
        is_one: Whether a quantifier may be written behind it.
    """

    limited: str
    linear: str | None
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
    """A quantifier; ``high`` None = as often as it goes, ``kind`` is what is written behind it: nothing, ? or +."""

    text: str
    low: int
    high: int | None
    kind: str = ""

    @property
    def is_optional(self) -> bool:
        """Whether the quantifier is ``?``: once or not at all."""
        return (self.low, self.high) == (0, 1)


@lru_cache(maxsize=1024)
def of_set(chars: CharSet) -> Piece:
    """A piece that matches one character of a set."""
    if chars == NONE:
        return Piece("(?!)", r"[^\x{0}-\x{10ffff}]", least=1)
    # Never as what is left out: `regex` takes [^a]|[^b] for nothing.
    return Piece(chars.expression(shown_for_limited), chars.expression(shown_for_linear), least=1, is_one=True)


def anchor(limited: str, linear: str | None = None) -> Piece:
    """A piece that matches a place and no character; ``linear`` is None where RE2 cannot say it."""
    return Piece(limited, linear)


def _joined(pieces: Sequence[Piece], between: str) -> tuple[str, str | None]:
    linear = [piece.linear for piece in pieces]
    known = [one for one in linear if one is not None]
    return between.join(piece.limited for piece in pieces), between.join(known) if len(known) == len(linear) else None


def in_order(pieces: Sequence[Piece]) -> Piece:
    """Pieces one behind the other."""
    return Piece(
        *_joined(pieces, ""),
        least=sum(piece.least for piece in pieces),
        weight=sum(piece.weight for piece in pieces),
        fixed=all(piece.fixed for piece in pieces),
        groups=frozenset().union(*(piece.groups for piece in pieces)),
        late=frozenset().union(*(piece.late for piece in pieces)),
        breaks=any(piece.breaks for piece in pieces),
    )


def either(ways: Sequence[Piece]) -> Piece:
    """One of several pieces."""
    if len(ways) == 1:
        return ways[0]
    limited, linear = _joined(ways, "|")
    least = min(way.least for way in ways)
    return replace(in_order(ways), limited=limited, linear=linear, least=least, fixed=False)


LINE_BREAK: Final = Piece(
    f"(?:\\r\\n|{VERTICAL.expression(shown_for_limited)})",
    f"(?:\\r\\n|{VERTICAL.expression(shown_for_linear)})",
    least=1,
    breaks=True,
    is_one=True,
)
