"""Named character sets of Java's regular expressions, and characters that are equal when case is ignored.

Character properties come from Python's Unicode data, or from ``regex`` if Python lacks them; Java's version of Unicode
may be older or newer. Any thread. Source: java.util.regex.CharPredicates, java.util.regex.Pattern.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

import regex

LAST_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of characters; ``of`` makes one.

    Attributes:
        ranges: First and last code point of each range, in order; there is a gap between any two.

    >>> (CharSet.of((97, 122)) - CharSet.of((120, 120))).ranges
    ((97, 119), (121, 122))
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> CharSet:
        """A set of some ranges, in any order."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return cls(tuple(joined))

    @classmethod
    def containing(cls, points: Iterable[int]) -> CharSet:
        """A set of some code points."""
        return cls.of(*((point, point) for point in points))

    @classmethod
    def from_text(cls, chars: str) -> CharSet:
        """A set of the characters of a text."""
        return cls.containing(map(ord, chars))

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet.of(*self.ranges, *other.ranges)

    def __and__(self, other: CharSet) -> CharSet:
        return ~(~self | ~other)

    def __sub__(self, other: CharSet) -> CharSet:
        return ~(~self | other)

    def __invert__(self) -> CharSet:
        around = [(-1, -1), *self.ranges, (LAST_POINT + 1, LAST_POINT + 1)]
        gaps = ((before[1] + 1, behind[0] - 1) for before, behind in pairwise(around))
        return CharSet(tuple((first, last) for first, last in gaps if first <= last))

    def __contains__(self, point: int) -> bool:
        return any(first <= point <= last for first, last in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    @property
    def only(self) -> int | None:
        """The only code point in the set; None if it has none or several."""
        return self.ranges[0][0] if len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1] else None

    def expression(self, escaped: Callable[[int], str]) -> str:
        r"""A regular expression for one character of the set, which must not be empty.

        >>> CharSet.of((97, 99), (46, 46)).expression(lambda point: f"\\x{point:02x}")
        '[\\x2ea-c]'
        """

        def shown(point: int) -> str:
            return chr(point) if point < 128 and chr(point).isalnum() else escaped(point)

        if self.only is not None:
            return shown(self.only)
        parts = [shown(first) if first == last else f"{shown(first)}-{shown(last)}" for first, last in self.ranges]
        return f"[{''.join(parts)}]"


ALL = CharSet.of((0, LAST_POINT))
NONE = CharSet()


LINE_ENDS: Final = CharSet.from_text("\n\r\u0085\u2028\u2029")
HORIZONTAL: Final = CharSet.from_text(" \t\u00a0\u1680\u180e\u202f\u205f\u3000") | CharSet.of((0x2000, 0x200A))
VERTICAL: Final = LINE_ENDS | CharSet.from_text("\x0b\f")
DIGITS: Final = CharSet.of((0x30, 0x39))
_LOWER: Final = CharSet.of((0x61, 0x7A))
_UPPER: Final = CharSet.of((0x41, 0x5A))
_ALPHA: Final = _LOWER | _UPPER
WORD: Final = _ALPHA | DIGITS | CharSet.from_text("_")
SPACE: Final = CharSet.from_text(" \t\n\x0b\f\r")
_GRAPH: Final = CharSet.of((0x21, 0x7E))

_POSIX: Final = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": CharSet.of((0, 0x7F)),
    "Alpha": _ALPHA,
    "Digit": DIGITS,
    "Alnum": _ALPHA | DIGITS,
    "Punct": _GRAPH - _ALPHA - DIGITS,
    "Graph": _GRAPH,
    "Print": CharSet.of((0x20, 0x7E)),
    "Blank": CharSet.from_text(" \t"),
    "Cntrl": CharSet.of((0, 0x1F), (0x7F, 0x7F)),
    "XDigit": DIGITS | CharSet.of((0x41, 0x46), (0x61, 0x66)),
    "Space": SPACE,
    "L1": CharSet.of((0, 0xFF)),
    "all": ALL,
}
#: Names for several categories.
_SEVERAL: Final = {
    "LC": ("Lu", "Ll", "Lt"),
    "LD": ("L", "Nd"),
    "javaLetter": ("L",),
    "javaLetterOrDigit": ("L", "Nd"),
    "javaDigit": ("Nd",),
    "javaTitleCase": ("Lt",),
    "javaSpaceChar": ("Z",),
    "javaISOControl": ("Cc",),
}
#: Names after ``Is``, in any case.
_SEVERAL_OF_UNICODE: Final = {
    "LETTER": ("L",),
    "DIGIT": ("Nd",),
    "TITLECASE": ("Lt",),
    "CONTROL": ("Cc",),
    "CNTRL": ("Cc",),
    "PUNCTUATION": ("P",),
    "PUNCT": ("P",),
}
#: Unicode properties: names after ``Is``, in any case; and those named after methods of ``java.lang.Character``.
_PROPERTIES: Final = {
    "ALPHABETIC": "Alphabetic",
    "ALPHA": "Alphabetic",
    "IDEOGRAPHIC": "Ideographic",
    "LOWERCASE": "Lowercase",
    "LOWER": "Lowercase",
    "UPPERCASE": "Uppercase",
    "UPPER": "Uppercase",
}
_JAVA_PROPERTIES: Final = {
    "javaAlphabetic": "Alphabetic",
    "javaIdeographic": "Ideographic",
    "javaLowerCase": "Lowercase",
    "javaUpperCase": "Uppercase",
}
#: These mean any letter that has cases, if case is ignored.
_CASED_CATEGORIES: Final = frozenset(("Lu", "Ll", "Lt"))
_CASED_PROPERTIES: Final = frozenset(("Lowercase", "Uppercase"))


def property_set(name: str, *, folds: bool) -> CharSet | None:
    """The characters of `\\p{name}`; None if the name is unknown here.

    Known are the POSIX classes (ASCII only, as in Java), the general categories, properties of ``java.lang.Character``
    and the common Unicode properties; scripts and blocks are not.

    >>> property_set("Alpha", folds=False).ranges, property_set("NoSuch", folds=False)
    (((65, 90), (97, 122)), None)
    """
    kind, equals, value = name.partition("=")
    if equals:
        return _by_java_name(value, folds) if kind.lower() in ("gc", "general_category") else None
    if name.startswith("Is"):
        found = _by_unicode_name(name[2:].upper(), folds)
        return _by_java_name(name[2:], folds) if found is None else found
    return _by_java_name(name, folds)


def _by_java_name(name: str, folds: bool) -> CharSet | None:
    if folds and name in ("Lower", "Upper"):
        return _ALPHA
    if folds and name in _CASED_CATEGORIES:
        return _of_categories(*_CASED_CATEGORIES)
    if folds and name == "javaTitleCase":
        return _cased()
    if name in _POSIX:
        return _POSIX[name]
    if name in _JAVA_PROPERTIES:
        return _of_property(_JAVA_PROPERTIES[name], folds)
    if name in _SEVERAL:
        return _of_categories(*_SEVERAL[name])
    known = {one[:length] for one in _by_category() for length in (1, 2)}
    return _of_categories(name) if name in known else None


def _by_unicode_name(name: str, folds: bool) -> CharSet | None:
    if folds and name == "TITLECASE":
        return _cased()
    if name in _PROPERTIES:
        return _of_property(_PROPERTIES[name], folds)
    if name in _SEVERAL_OF_UNICODE:
        return _of_categories(*_SEVERAL_OF_UNICODE[name])
    make = _MADE.get(name)
    return None if make is None else make()


@lru_cache(maxsize=1)
def _by_category() -> dict[str, CharSet]:
    """The characters of each general category; takes one pass over all of Unicode, about a quarter of a second."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    category, start = unicodedata.category("\0"), 0
    for point in range(1, sys.maxunicode + 2):
        other = unicodedata.category(chr(point)) if point <= sys.maxunicode else ""
        if other != category:
            found[category].append((start, point - 1))
            category, start = other, point
    return {name: CharSet(tuple(ranges)) for name, ranges in found.items()}


@lru_cache(maxsize=64)
def _of_categories(*names: str) -> CharSet:
    parts = [part for name, one in _by_category().items() if name.startswith(names) for part in one.ranges]
    return CharSet.of(*parts)


@lru_cache(maxsize=16)
def _property(name: str) -> CharSet:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    found = CharSet.of(*((one.start(), one.end() - 1) for one in regex.finditer(rf"\p{{{name}}}+", every)))
    return found - _of_categories("Cn")


def _of_property(name: str, folds: bool) -> CharSet:
    return _cased() if folds and name in _CASED_PROPERTIES else _property(name)


def _cased() -> CharSet:
    return _property("Lowercase") | _property("Uppercase") | _of_categories("Lt")


def _graph() -> CharSet:
    return ~_of_categories("Z", "Cc", "Cs", "Cn")


def _blank() -> CharSet:
    return _of_categories("Zs") | CharSet.from_text("\t")


#: Properties after ``Is`` that combine others.
_MADE: Final[dict[str, Callable[[], CharSet]]] = {
    "ALNUM": lambda: _property("Alphabetic") | _of_categories("Nd"),
    "ASSIGNED": lambda: ~_of_categories("Cn"),
    "BLANK": _blank,
    "GRAPH": _graph,
    "PRINT": lambda: (_graph() | _blank()) - _of_categories("Cc"),
    "WORD": lambda: _property("Alphabetic") | _of_categories("M", "Nd", "Pc") | CharSet.of((0x200C, 0x200D)),
    **dict.fromkeys(
        ("WHITE_SPACE", "WHITESPACE", "SPACE"), lambda: _of_categories("Z") | CharSet.of((9, 13), (0x85, 0x85))
    ),
    **dict.fromkeys(
        ("HEX_DIGIT", "HEXDIGIT", "XDIGIT"),
        lambda: _of_categories("Nd") | _POSIX["XDigit"] | CharSet.of((0xFF21, 0xFF26), (0xFF41, 0xFF46)),
    ),
}


# ------------------------------------------------------------------------------------------------------------- case
def folded(point: int, *, unicode: bool) -> CharSet:
    """The characters that equal a character when case is ignored.

    >>> [sorted(map(chr, folded(ord(char), unicode=True))) for char in "k1"]
    [['K', 'k', '\u212a'], ['1']]
    """
    char = chr(point)
    if not unicode:
        return CharSet.from_text(char.lower() + char.upper()) if point in _ALPHA else CharSet.from_text(char)
    upper = _simple_upper(point)
    lower = _simple_lower(upper)
    if upper == lower:
        return CharSet.from_text(char)
    return _by_fold().get(lower, NONE) | CharSet.containing((point, lower))


def folded_range(first: int, last: int, *, unicode: bool) -> CharSet:
    """The characters of a range, and all characters that equal one of them when case is ignored."""
    inside = CharSet.of((first, last))
    if not unicode:
        letters = [point for point in _ALPHA if ord(chr(point).swapcase()) in inside]
        return inside | CharSet.containing(letters)
    others = (point for point, (upper, lower) in _cases().items() if first <= upper <= last or first <= lower <= last)
    return inside | CharSet.containing(others)


@lru_cache(maxsize=1)
def _cases() -> dict[int, tuple[int, int]]:
    """The characters that have cases: their upper case, and the lower case of that."""
    found: dict[int, tuple[int, int]] = {}
    for point in range(sys.maxunicode + 1):
        upper = _simple_upper(point)
        lower = _simple_lower(upper)
        if upper != point or lower != point:
            found[point] = (upper, lower)
    return found


@lru_cache(maxsize=1)
def _by_fold() -> dict[int, CharSet]:
    same: defaultdict[int, list[int]] = defaultdict(list)
    for point, (_, lower) in _cases().items():
        same[lower].append(point)
    return {lower: CharSet.containing(points) for lower, points in same.items()}


def _simple_upper(point: int) -> int:
    """The upper case of one character, if that is also one character."""
    char = chr(point)
    upper = char.upper()
    # A letter with iota subscript has a single-character title case, which is used only at the beginning of a word.
    upper = upper if len(upper) == 1 else char.title()
    return ord(upper) if len(upper) == 1 else point


def _simple_lower(point: int) -> int:
    # Only I with a dot has a lower case of two characters.
    return ord(chr(point).lower()[0])
