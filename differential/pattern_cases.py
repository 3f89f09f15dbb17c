"""Random regular expressions in Java's syntax, with texts and a replacement.

Main type: ``PatternCases``. A case is a dict as ``Patterns.java`` reads it: ``pattern``, ``texts``, ``replacement``.
Patterns are made by a grammar, each part together with a text that it may match; now and then a pattern is spoiled.

Thread: any; an instance belongs to one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

#: A part of a pattern, and what makes a text for it.
Part = tuple[str, Callable[[], str]]

_COMMON: Final = "aaabbbAB01-_. "
#: Letters that fold in odd ways, marks, digits of other scripts, ends of lines, a letter beyond 16 bits.
_ODD: Final = "kKsSiI\u017f\u212a\u0130\u0131éÉßµµΣσς\u01c5\u01c4\u0301\u0660\u0905\u00aa\u2160\u00bd\u30a2"
_LINES: Final = "\n\r\n\r\u0085\u2028\u2029\x0b\f\t\u00a0\u3000"
_BEYOND: Final = "\U00010400\U00010428\U0001f600"
_WORDS: Final = ("ab", "aab", "abab", "orders", "order", "-eu", "abc")
_SYNTAX: Final = "()[]{}*+?|^$.\\&-,:=!<>0123kpQEdx#ab \n"
_ESCAPES: Final = {
    "\\d": "0",
    "\\D": "a",
    "\\w": "a",
    "\\W": "-",
    "\\s": " ",
    "\\S": "b",
    "\\h": "\t",
    "\\H": "a",
    "\\v": "\n",
    "\\V": "a",
    "\\R": "\r\n",
    "\\t": "\t",
    "\\n": "\n",
    "\\r": "\r",
    "\\f": "\f",
    "\\a": "\x07",
    "\\e": "\x1b",
    "\\x41": "A",
    "\\x{61}": "a",
    "\\u0062": "b",
    "\\0101": "A",
    "\\012": "\n",
    "\\cA": "\x01",
    "\\-": "-",
    "\\.": ".",
    "\\_": "_",
    "\\uD801\\uDC00": "\U00010400",
    "\\x{10428}": "\U00010428",
    "\\\\": "\\",
}
_PROPERTIES: Final = {
    "Lu": "A",
    "Ll": "a",
    "L": "b",
    "N": "0",
    "Nd": "0",
    "P": "-",
    "Upper": "B",
    "Lower": "a",
    "Alpha": "a",
    "Punct": "_",
    "Space": " ",
    "IsAlphabetic": "é",
    "IsUppercase": "A",
    "IsLowercase": "a",
    "javaLowerCase": "a",
    "javaUpperCase": "A",
    "M": "\u0301",
    "Mn": "\u0301",
    "Z": " ",
    "S": "=",
    "C": "\n",
    "IsDigit": "0",
    "javaLetterOrDigit": "a",
    "gc=Lu": "A",
    "IsL": "a",
    "LC": "a",
    "Lt": "\u01c5",
    "IsWhite_Space": "\n",
    "ASCII": "a",
    "Cntrl": "\t",
    "XDigit": "a",
    "Alnum": "1",
    "Graph": "a",
    "Print": "b",
    "Blank": "\t",
    "Nl": "\u2160",
    "No": "\u00bd",
    "Lo": "\u0905",
    "IsTitlecase": "\u01c5",
    "Cn": "a",
    "Pc": "_",
}
_UNSUPPORTED: Final = ("\\G", "\\X", "\\b{g}", "\\N{DIGIT ONE}", "\\p{IsLatin}", "\\p{InGreek}", "(?U)", "\\p{Nope}")
_COUNTS: Final = (
    *("*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{0}", "{1}", "{2}", "{0,1}", "{1,2}", "{0,2}", "{2,3}?"),
    *("{1,}", "{2,}?", "{0,3}+", "{2}+", "{1,2}?", "{3}", "{0,1}?", "{0,}"),
)


class PatternCases:
    """Makes cases.

    Args:
        seed: Equal seeds make equal cases.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._groups = 0
        self._names: list[str] = []
        self._closed: list[int] = []

    def case(self) -> dict[str, Any]:
        """The next case."""
        self._groups, self._names, self._closed = 0, [], []
        self._odd = self._chance.random() < 0.4
        pattern, sample = self._alternatives(self._pick([1, 2, 2, 3]))
        if self._chance.random() < 0.3:
            pattern = self._pick(["(?i)", "(?m)", "(?s)", "(?x)", "(?d)", "(?iu)", "(?im)", "(?md)", "(?u)"]) + pattern
        if self._chance.random() < 0.1:
            pattern = self._spoiled(pattern)
        texts = [sample() for _ in range(4)]
        texts += [self._text(6), self._text(12), self._spoiled(texts[0], self._letters()), ""]
        texts += [one.swapcase() for one in texts[:1]]
        ends = ["\n", "\r\n", "\r", "\u2028", "b", "a"]
        texts += [texts[1] + self._pick(ends), self._pick(ends) + texts[2]]
        return {"pattern": pattern, "texts": texts, "replacement": self._replacement()}

    def _pick(self, some: Sequence[Any]) -> Any:
        return self._chance.choice(some)

    def _letters(self) -> str:
        return _COMMON + _ODD + _LINES + _BEYOND if self._odd else _COMMON

    def _text(self, most: int) -> str:
        return "".join(self._pick(self._letters()) for _ in range(self._chance.randrange(most + 1)))

    def _spoiled(self, text: str, letters: str = _SYNTAX) -> str:
        chars = list(text)
        for _ in range(self._pick([1, 1, 2])):
            at = self._chance.randrange(len(chars) + 1)
            chars[at : at + self._pick([0, 0, 1])] = self._pick(letters) if self._chance.random() < 0.7 else []
        return "".join(chars)

    def _replacement(self) -> str:
        parts = ["x", "$0", "$1", "$2", "$3", "\\$", "-", "$12", "${n1}", "$"]
        return "".join(self._pick(parts[:7] if self._chance.random() < 0.9 else parts) for _ in range(3))

    # ------------------------------------------------------------------ the grammar
    def _alternatives(self, depth: int) -> Part:
        ways = [self._sequence(depth) for _ in range(self._pick([1, 1, 1, 2, 3]))]
        return "|".join(text for text, _ in ways), lambda: str(self._pick(ways)[1]())

    def _sequence(self, depth: int) -> Part:
        parts = [self._repeated(depth) for _ in range(self._pick([0, 1, 1, 2, 2, 3, 4]))]
        return "".join(text for text, _ in parts), lambda: "".join(sample() for _, sample in parts)

    def _repeated(self, depth: int) -> Part:
        text, sample = self._atom(depth)
        if self._chance.random() > 0.4:
            return text, sample
        count = self._pick(_COUNTS)
        least = 2 if "{2" in count else 3 if "{3" in count else 0 if count[0] in "*?" or "{0" in count else 1
        most = 1 if count[0] == "?" or "0,1" in count else 0 if count == "{0}" else 3
        return text + count, lambda: "".join(sample() for _ in range(self._chance.randint(least, max(least, most))))

    def _atom(self, depth: int) -> Part:
        kinds: list[tuple[int, Callable[[], Part]]] = [
            (40, self._literal),
            (8, lambda: (".", lambda: str(self._pick(self._letters())))),
            (14, self._bracket),
            (10, self._escape),
            (5, self._property),
            (8, self._anchor),
            (5, self._reference),
            (2, self._quote),
            (1, lambda: (self._pick(_UNSUPPORTED), str) if self._chance.random() < 0.3 else self._literal()),
        ]
        if depth:
            kinds += [
                (20, lambda: self._capturing(depth - 1)),
                (8, lambda: self._group("(?:", depth - 1)),
                (3, lambda: self._group(f"(?{self._pick(['i', 's', 'm', 'x', '-i', 'iu', 'd', 'i-s'])}:", depth - 1)),
                (3, lambda: self._group("(?>", depth - 1)),
                (5, lambda: self._around(depth - 1)),
                (2, lambda: (self._pick(["(?i)", "(?-i)", "(?s)", "(?m)", "(?x)", "(?d)", "(?iu)"]), str)),
            ]
        return self._chance.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]()

    def _literal(self) -> Part:
        if self._chance.random() < 0.1:
            word = self._pick(_WORDS)
            return word, lambda: word
        char = self._pick(self._letters())
        text = f"\\{char}" if char in "-. " and self._chance.random() < 0.7 else char
        return text, lambda: char

    def _escape(self) -> Part:
        text, example = self._pick(list(_ESCAPES.items()))
        return text, lambda: example

    def _property(self) -> Part:
        name, example = self._pick(list(_PROPERTIES.items()))
        if self._chance.random() < 0.2:
            return f"\\P{{{name}}}", lambda: str(self._pick(self._letters()))
        return (f"\\p{name}" if len(name) == 1 and self._chance.random() < 0.5 else f"\\p{{{name}}}"), lambda: example

    def _anchor(self) -> Part:
        return self._pick(["^", "$", "\\b", "\\B", "\\A", "\\Z", "\\z", "^", "$"]), str

    def _reference(self) -> Part:
        if self._names and self._chance.random() < 0.4:
            return f"\\k<{self._pick(self._names)}>", lambda: "a"
        closed = self._closed if self._closed and self._chance.random() < 0.9 else [1, 2]
        return f"\\{self._pick(closed)}", lambda: str(self._pick("ab"))

    def _quote(self) -> Part:
        inside = "".join(self._pick("ab1.*[-") for _ in range(self._pick([0, 1, 2, 3])))
        return f"\\Q{inside}\\E", lambda: inside

    def _capturing(self, depth: int) -> Part:
        self._groups += 1
        number, opening = self._groups, "("
        if self._chance.random() < 0.2:
            opening = f"(?<n{number}>"
        part = self._group(opening, depth)
        self._closed.append(number)
        if opening != "(":
            self._names.append(f"n{number}")
        return part

    def _group(self, opening: str, depth: int) -> Part:
        text, sample = self._alternatives(depth)
        return f"{opening}{text})", sample

    def _around(self, depth: int) -> Part:
        kind = self._pick(["(?=", "(?!", "(?<=", "(?<!"])
        text, _ = self._alternatives(depth)
        return f"{kind}{text})", str

    # ------------------------------------------------------------------ classes in brackets
    def _bracket(self, depth: int = 1) -> Part:
        members = [self._member(depth) for _ in range(self._pick([1, 1, 2, 3]))]
        text = "".join(member for member, _ in members)
        if self._chance.random() < 0.15:
            right = self._bracket(0)[0] if self._chance.random() < 0.6 else self._member(0)[0]
            text = f"{text}&&{right}"
        negated = "^" if self._chance.random() < 0.2 else ""
        chosen = self._pick(members)[1]
        return f"[{negated}{text}]", lambda: str(self._pick(self._letters())) if negated else chosen()

    def _member(self, depth: int) -> Part:
        kind = self._chance.random()
        if kind < 0.45:
            char = self._pick(self._letters() + "&[]^$.*") if self._chance.random() < 0.3 else self._pick("abAB01")
            return (f"\\{char}" if char in "[]^-&" and self._chance.random() < 0.8 else char), lambda: char
        if kind < 0.7:
            first, last = sorted(self._pick("abcxyzABXY019") for _ in range(2))
            if self._odd and self._chance.random() < 0.3:
                first, last = sorted(self._pick(_ODD + _LINES + "az") for _ in range(2))
            return f"{first}-{last}", lambda: first
        if kind < 0.85 or not depth:
            text, example = self._pick(list(_ESCAPES.items()))
            return ("\\d" if text == "\\R" else text), lambda: example
        if kind < 0.93:
            return self._property()
        return self._bracket(depth - 1)
