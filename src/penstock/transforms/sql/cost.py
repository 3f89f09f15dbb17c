"""An estimate of the cost of an ``Sql`` expression, from its text.

Spark evaluates constants during planning, on its driver, even when a configuration is only validated: a constant must
not be large or slow. Everything that depends on a record is evaluated in a job with a time limit (``Sql``); there only
the literal numbers are checked.

Main type: ``Cost``. Thread: the thread that reads the expression; nothing is shared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from penstock.transforms.sql.tokens import ExpressionToken, refused

#: The largest literal number for functions whose output may be much larger than their input.
MAX_COUNT: Final = 1_000_000
#: The longest constant, in characters, and the deepest nesting of its calls.
MAX_CONSTANT: Final = 10_000_000
MAX_CONSTANT_CALLS: Final = 5

#: Functions whose output may be much larger than their input, with the positions of the arguments that determine the
#: size; none if texts determine it.
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
#: Operators and functions whose time can grow without bound with the length of a text.
_SEARCHING: Final = re.compile(r"like|ilike|rlike|regexp\w*|split|levenshtein|xpath\w*")
#: XML functions, with the position of their options: some options name files to read.
_XML_OPTIONS: Final = {"from_xml": 2, "schema_of_xml": 1, "to_xml": 1}
_XML_NAMES: Final = """
rowtag attributeprefix valuetag nullvalue dateformat timestampformat timestampntzformat mode excludeattribute charset
columnnameofcorruptrecord ignoresurroundingspaces ignorenamespace inferschema samplingratio locale timezone encoding
wildcardcolname preferdate prefersdecimal arrayelementname declaration roottag
"""
_XML_KNOWN: Final = frozenset(_XML_NAMES.split())


@dataclass
class Cost:
    """The counts for the part of an expression that was read so far.

    Attributes:
        uses: The number of fields and lambda variables; a part that adds none is constant.
        growing: The number of functions with potentially large output.
        searching: The number of functions and operators that search a text.
        largest: The largest number passed to one of the growing functions.
        unsure: The position of an argument of one that is not a literal number; -1 if there is none.
    """

    uses: int = 0
    growing: int = 0
    searching: int = 0
    largest: int = 1
    unsure: int = -1

    def now(self) -> Cost:
        """A copy of the current counts."""
        return replace(self)

    def note(self, name: str, token: ExpressionToken, arguments: Sequence[Sequence[ExpressionToken]]) -> None:
        """Counts a call.

        Args:
            name: The function's name, in lower case.
            token: Its position.
            arguments: The tokens of each argument.

        Raises:
            SqlRefused: The call certainly costs too much, or reads a file.
        """
        if name in _XML_OPTIONS:
            _ensure_known_options(name, token, arguments[_XML_OPTIONS[name] :])
        self.searching += _SEARCHING.fullmatch(name) is not None
        if name not in _GROWING:
            return
        self.growing += 1
        if name in _FORMATTED and any(one.kind == "text" and _WIDE.search(one.text) for one in chain(*arguments)):
            raise refused(token.start, f"{name} has a width of more than {MAX_COUNT}")
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
            raise refused(token.start, f"{name} would make {made}; at most {MAX_COUNT} are allowed")
        self.largest = max(self.largest, made)

    def ensure_small(self, before: Cost, start: int, end: int, depth: int) -> None:
        """Rejects a constant that would slow down Spark's planning.

        Args:
            before: The counts at its beginning.
            start: Its start.
            end: Its end (exclusive).
            depth: The nesting depth of its calls.

        Raises:
            SqlRefused: The constant costs too much.
        """
        growing, searches = self.growing - before.growing, self.searching > before.searching
        if self.unsure >= start:
            raise refused(self.unsure, "in a constant, this wants plain numbers to say how much it makes")
        if searches:
            raise refused(start, "a search in a constant text is not made; write what it gives")
        if growing > 1 or depth > MAX_CONSTANT_CALLS or (growing and self.largest * (end - start) > MAX_CONSTANT):
            raise refused(start, "this constant is too large or too deep to be worked out; write what it gives")


def _plain_number(argument: Sequence[ExpressionToken]) -> int | None:
    """The value of an argument that is a literal number; None for any other argument."""
    sign = -1 if argument and argument[0].text == "-" else 1
    digits = argument[-1].text.rstrip("lLsSyY") if argument and argument[-1].kind == "number" else ""
    return sign * int(digits) if len(argument) <= 1 + (sign < 0) and digits.isdigit() else None


def _ensure_known_options(name: str, token: ExpressionToken, options: Sequence[Sequence[ExpressionToken]]) -> None:
    """Accepts XML options only if their names are literals and name no file."""
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
                    f"the option {key.text} of {name} cannot be used: only options for "
                    "the form of the XML are allowed; files such as schemas are not read",
                )
