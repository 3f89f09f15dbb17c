"""The named character classes of Java's regular expressions, written for Python's `re`.

Main function: `property_class`. Pure functions, usable from any thread.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

LINE_ENDS: Final = r"\n\r\u0085\u2028\u2029"
HORIZONTAL: Final = r" \t\u00a0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
VERTICAL: Final = r"\n\x0b\f\r\u0085\u2028\u2029"

_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
_BY_TEST: Final[dict[str, Callable[[str], bool]]] = {
    "isalphabetic": lambda char: char.isalpha() or unicodedata.category(char) == "Nl",
    "isletter": str.isalpha,
    "isdigit": lambda char: unicodedata.category(char) == "Nd",
    "isuppercase": str.isupper,
    "islowercase": str.islower,
    "iswhite_space": lambda char: char.isspace() and char not in "\x1c\x1d\x1e\x1f",
    "javalowercase": str.islower,
    "javauppercase": str.isupper,
    "javaletter": str.isalpha,
    "javadigit": lambda char: unicodedata.category(char) == "Nd",
    "javaletterordigit": lambda char: char.isalpha() or unicodedata.category(char) == "Nd",
}
_CATEGORIES: Final = re.compile(r"L[ultmo]?|M[nec]?|N[dlo]?|P[dsecoif]?|S[mcko]?|Z[slp]?|C[cfosn]?")


def property_class(name: str) -> str | None:
    """The inside of a bracket expression for `\\p{name}`; None when the name is not known.

    Known are the POSIX classes, which are ASCII only as in Java, the general categories with and without
    `Is` or `general_category=`, and the common binary properties.

    >>> property_class("Alpha"), property_class("NoSuch")
    ('a-zA-Z', None)
    """
    if name in _POSIX:
        return _POSIX[name]
    lowered = name.lower()
    if lowered in _BY_TEST:
        return _ranges(lowered)
    bare = name
    for prefix in ("Is", "gc=", "general_category="):
        bare = bare.removeprefix(prefix)
    if bare == "LC":
        return "".join(map(_ranges, ("Lu", "Ll", "Lt")))
    return _ranges(bare) if _CATEGORIES.fullmatch(bare) else None


@lru_cache(maxsize=64)
def _ranges(name: str) -> str:
    """The characters of a category or property as ranges; one pass over all of Unicode, about a fifth of a second."""
    test = _BY_TEST.get(name) or (lambda char: unicodedata.category(char).startswith(name))
    parts: list[str] = []
    start: int | None = None
    for point in range(sys.maxunicode + 2):
        inside = point <= sys.maxunicode and test(chr(point))
        if inside and start is None:
            start = point
        elif not inside and start is not None:
            parts.append(f"\\U{start:08x}" if start == point - 1 else f"\\U{start:08x}-\\U{point - 1:08x}")
            start = None
    return "".join(parts)
