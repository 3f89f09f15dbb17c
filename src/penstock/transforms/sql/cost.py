"""The cost of an expression of ``Sql``, as far as its text tells it.

Spark works out constants while it plans, on its driver, also when a configuration is only looked at: a constant may not
be large, nor take long. What hangs on a record is worked out in a job, whose time is limited (``Sql``); there only the
numbers that stand in the expression are looked at.

Main type: ``Cost``. Thread: the one that reads the expression; nothing is shared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from penstock.transforms.sql.tokens import Token, refused

#: What a function that makes much of little may be told to make, where the number stands in the expression.
MAX_COUNT: Final = 1_000_000
#: How many characters a constant may grow to, and how deep its calls may be.
MAX_CONSTANT: Final = 10_000_000
MAX_CONSTANT_CALLS: Final = 5

#: Functions that make much of little, with the places of the numbers that say how much; none where texts say it.
_GROWING: Final[dict[str, tuple[int, ...]]] = {
    "sequence": (0, 1, 2),
    "repeat": (1,),
    "array_repeat": (1,),
    "space": (0,),
    "lpad": (1,),
    "rpad": (1,),
    "randstr": (0,),
    **dict.fromkeys(("format_string", "printf", "replace", "regexp_replace", "array_join", "concat_ws"), ()),
}
_FORMATTED: Final = frozenset(("format_string", "printf"))
_WIDE: Final = re.compile(r"%[^a-zA-Z%]*\d{7}")
#: Operators and functions whose time can grow without bound with a text.
_SEARCHING: Final = re.compile(r"like|ilike|rlike|regexp\w*|split|levenshtein|xpath\w*")
#: Functions of XML, with the place of their options: some name files that are read.
_XML_OPTIONS: Final = {"from_xml": 2, "schema_of_xml": 1, "to_xml": 1}
_XML_NAMES: Final = """
rowtag attributeprefix valuetag nullvalue dateformat timestampformat timestampntzformat mode excludeattribute charset
columnnameofcorruptrecord ignoresurroundingspaces ignorenamespace inferschema samplingratio locale timezone encoding
wildcardcolname preferdate prefersdecimal arrayelementname declaration roottag
"""
_XML_KNOWN: Final = frozenset(_XML_NAMES.split())


@dataclass
class Cost:
    """Notes on the part of an expression that was read so far.

    Attributes:
        uses: How many fields and variables of lambdas there were; a part that adds none is constant.
        growing: How many functions make much of little.
        searching: How many functions and operators search in a text.
        largest: The largest number that one of the growing functions was told.
        unsure: Where one was told something else than a number; -1 where none was.
    """

    uses: int = 0
    growing: int = 0
    searching: int = 0
    largest: int = 1
    unsure: int = -1

    def now(self) -> Cost:
        """The notes as they are."""
        return replace(self)

    def note(self, name: str, token: Token, arguments: Sequence[Sequence[Token]]) -> None:
        """Notes a call.

        Args:
            name: Of the function, in lower case.
            token: Where it stands.
            arguments: The tokens of each argument.

        Raises:
            SqlRefused: It is sure to cost too much, or to read a file.
        """
        if name in _XML_OPTIONS:
            _ensure_known_options(name, token, arguments[_XML_OPTIONS[name] :])
        self.searching += _SEARCHING.fullmatch(name) is not None
        if name not in _GROWING:
            return
        self.growing += 1
        if name in _FORMATTED and any(one.kind == "text" and _WIDE.search(one.text) for one in chain(*arguments)):
            raise refused(token.start, f"{name} is told a width of more than {MAX_COUNT}")
        counts = [_plain_number(arguments[place]) for place in _GROWING[name] if place < len(arguments)]
        if None in counts:
            self.unsure = token.start
        plain = [abs(count) for count in counts if count is not None]
        made = max(plain, default=1)
        if name == "sequence" and len(counts) == len(plain) >= 2:
            first, last, step = [count for count in counts if count is not None] + [1] * (3 - len(counts))
            made = abs(last - first) // max(1, abs(step))
        elif name == "sequence":
            made = 1
        if made > MAX_COUNT:
            raise refused(token.start, f"{name} is told to make {made}; at most {MAX_COUNT} are made")
        self.largest = max(self.largest, made)

    def ensure_small(self, before: Cost, start: int, end: int, depth: int) -> None:
        """Refuses a constant that would cost much while Spark plans.

        Args:
            before: The notes when it began.
            start: Where it began.
            end: Behind its last character.
            depth: How deep its calls are.

        Raises:
            SqlRefused: It would.
        """
        growing, searches = self.growing - before.growing, self.searching > before.searching
        if self.unsure >= start:
            raise refused(self.unsure, "in a constant, this wants plain numbers to say how much it makes")
        if searches:
            raise refused(start, "a search in a constant text is not made; write what it gives")
        if growing > 1 or depth > MAX_CONSTANT_CALLS or (growing and self.largest * (end - start) > MAX_CONSTANT):
            raise refused(start, "this constant is too large or too deep to be worked out; write what it gives")


def _plain_number(argument: Sequence[Token]) -> int | None:
    """The number that an argument is; None where it is something else."""
    sign = -1 if argument and argument[0].text == "-" else 1
    digits = argument[-1].text.rstrip("lLsSyY") if argument and argument[-1].kind == "number" else ""
    return sign * int(digits) if len(argument) <= 1 + (sign < 0) and digits.isdigit() else None


def _ensure_known_options(name: str, token: Token, options: Sequence[Sequence[Token]]) -> None:
    """Lets through options of XML whose names stand in the expression and name no file."""
    for given in options:
        words = [one.text for one in given]
        keys, separators = given[2:-1:4], given[3:-1:2]
        well_formed = (
            words[:2] == ["map", "("]
            and words[-1] == ")"
            and all(one.kind == "text" and "\\" not in one.text for one in given[2:-1:2])
            and all(one.text == "," for one in separators)
        )
        if not well_formed:
            raise refused(token.start, f"the options of {name} are written as map('name', 'value', ...)")
        for key in keys:
            if key.name.lower() not in _XML_KNOWN:
                raise refused(
                    key.start,
                    f"the option {key.text} of {name} cannot be used: it is none of those that "
                    "only say how XML is written; files such as schemas are not read",
                )
