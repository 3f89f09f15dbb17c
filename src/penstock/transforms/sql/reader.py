"""Reads an ``Sql`` expression from its tokens, and rejects texts that are not expressions over one record.

It accepts more than Spark's grammar, but nothing that leads out of an expression; ``checks`` explains why. ``Cost``
refuses large and slow constants, which Spark evaluates on its driver during planning.

Thread: any; a reader is used once. Source: ``SqlBaseParser`` of Spark 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from penstock.transforms.sql.functions import ALLOWED, REFUSED
from penstock.transforms.sql.text import ExpressionToken, SqlRefused, meaningful, refused

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
        """Counts a call; refuses one that certainly costs too much, or reads a file."""
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
        """Refuses a constant that would slow down Spark's planning; ``before`` has the counts at its start."""
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


#: Limits the nesting, because Spark's planner is recursive and must not exhaust its stack.
MAX_DEPTH: Final = 64
MAX_TOKENS: Final = 10_000

_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?(?:[eE]\d+)?(?:[lLsSyYdDfF]|[bB][dD])?|\d\w*", re.ASCII)
#: The part of a number before the sign of its exponent.
_HALF_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?[eE]", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SIGN_TEXT: Final = "+ - * / % & | ^ || << >> >>> = == <=> != <> < <= > >="
_SIGNS: Final = frozenset(_SIGN_TEXT.split())
_INFIX: Final = _SIGNS | {"and", "or", "div", "between"}
_PREFIX: Final = frozenset(("+", "-", "~", "!"))
_BEHIND_FIELD: Final = frozenset(("is", "in", "not", "as", "like", "ilike", "rlike", "regexp", "collate"))
_PATTERNS: Final = frozenset(("like", "ilike", "rlike", "regexp"))
_TYPED: Final = frozenset(("date", "time", "timestamp", "timestamp_ltz", "timestamp_ntz", "x"))
_UNIT_TEXT: Final = "year quarter month week day hour minute second millisecond microsecond nanosecond"
_UNITS: Final = frozenset(
    [
        *(unit + end for unit in _UNIT_TEXT.split() for end in ("", "s")),
        *("dayofyear", "yearofweek", "dayofweek", "dow", "isodow", "doy"),
    ]
)
#: Words that are values, or harmless Spark functions without brackets.
_VALUES: Final = frozenset(
    ("null", "true", "false", "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")
)
#: Functions of Spark's parser that are not in its function list.
_IN_GRAMMAR: Final = frozenset(("timestampadd", "timestampdiff", "try_cast"))
_BY_UNIT: Final = frozenset(("timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff"))
#: Words that replace a comma, by function.
_PARTED: Final = {
    "substring": ("from", "for"),
    "substr": ("from", "for"),
    "trim": ("from",),
    "overlay": ("placing", "from", "for"),
    "position": ("in",),
    "extract": ("from",),
}
#: Words that begin a query, and tokens that cannot follow them in a query.
_QUERIES: Final = frozenset(("from", "values", "table", "with", "map", "reduce", "transform"))
_NO_QUERY: Final = _SIGNS - _PREFIX - {"*"} | {"::", "[", ".", ",", ")"}
_TRIMMED: Final = frozenset(("both", "leading", "trailing"))

_NO_QUERIES: Final = (
    "SELECT: an expression sees one record, and no queries or tables; a field of this name goes in backticks"
)


def ensure_allowed(name: str, at: int) -> None:
    """Refuses a function that no expression may call; the name is in lower case and without a catalog."""
    if name in ALLOWED or name in _IN_GRAMMAR:
        return
    if name == "select":
        raise refused(at, _NO_QUERIES)
    reason = REFUSED.get(name)
    if reason is not None:
        raise refused(at, f"the function {name} cannot be used: {reason}", name)
    raise refused(
        at,
        f"there is no function {name} that can be used here; functions that were registered by name are no part of "
        "this, a FrameTransformation in Python can call them",
        name,
    )


@dataclass
class ExpressionReader:
    """Reads one text.

    Args:
        text: One expression, or several with commas between them.
        passing: Functions that are accepted although they are not allowed.

    Attributes:
        columns: The first names of paths, except lambda variables.
        aliases: The names given to columns.
    """

    text: str
    passing: frozenset[str]
    columns: set[str] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tokens = meaningful(self.text)
        if len(self.tokens) > MAX_TOKENS:
            raise SqlRefused(f"it has {len(self.tokens)} words and signs; at most {MAX_TOKENS} are read")
        self.at = 0
        self.depth = 0
        self.variables: list[str] = []
        self.cost = Cost()

    # ------------------------------------------------------------------ tokens
    def _peek(self, ahead: int = 0) -> ExpressionToken:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ExpressionToken("end", "", len(self.text))

    def _next(self) -> ExpressionToken:
        token = self._peek()
        self.at += 1
        return token

    def _takes(self, *words: str) -> bool:
        """Takes the next token if it is one of these."""
        if self._peek().word not in words or not self._peek().word:
            return False
        self.at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._unexpected(f"{word} is missing")

    def _unexpected(self, wanted: str) -> SqlRefused:
        token = self._peek()
        if token.word == "select":
            return refused(token.start, _NO_QUERIES)
        shown = token.text if len(token.text) <= 40 else f"{token.text[:40]}..."
        where = f"{shown} cannot stand here" if shown else "it ends too soon"
        return SqlRefused(
            f"character {token.start + 1}: {where}: {wanted}. An expression is made of fields, constants, operators "
            "and functions; a name of several words, or one that is a keyword, goes in backticks",
            is_syntax=True,
        )

    # ------------------------------------------------------------------ lists
    def items(self) -> None:
        """Reads the text to its end; raises SqlRefused."""
        while True:
            self._expression()
            self._alias()
            if self._peek().kind == "end":
                return
            if not self._takes(","):
                raise self._unexpected("an operator or a comma is missing")

    def _alias(self) -> None:
        if self._takes("as"):
            if self._takes("("):
                while True:
                    self.aliases.add(self._name())
                    if not self._takes(","):
                        break
                self._expect(")")
                return
            self.aliases.add(self._name())
        elif self._peek().kind in ("name", "quoted") and self._peek(1).text in ("", ","):
            self.aliases.add(self._name())

    def _name(self) -> str:
        token = self._next()
        if token.kind == "quoted" or (token.kind == "name" and _NAME.fullmatch(token.text)):
            return token.name
        self.at -= 1
        raise self._unexpected("a name is missing")

    def _listed(self) -> None:
        """Reads expressions separated by commas, up to the closing bracket; at least one."""
        self._expression()
        while self._takes(","):
            self._expression()
        self._expect(")")

    # ------------------------------------------------------------------ expressions
    def _expression(self) -> int:
        """Reads operands with operators between them; returns the nesting depth of calls."""
        began, start = self.cost.now(), self._peek().start
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise refused(start, f"brackets are deeper than {MAX_DEPTH}")
        deepest = self._operand()
        while self._operator():
            deepest = max(deepest, self._operand())
        self.depth -= 1
        if self.cost.uses == began.uses:
            self.cost.ensure_small(began, start, self._peek().start, deepest)
        return deepest

    def _operator(self) -> bool:
        """Takes the operator after an operand; False if the expression ends."""
        while True:
            word = self._peek().word
            if word in _INFIX:
                self.at += 1
                return True
            if word in _PATTERNS or (word == "in" and self._peek(1).text == "("):
                self.at += 1
                if self._is_operand_next(word):
                    return True
                self._expect("(")
                self._listed()
                continue
            if word == "not" and self._peek(1).word in (*_PATTERNS, "in", "between"):
                self.at += 1
                continue
            if word == "is":
                self.at += 1
                self._takes("not")
                if self._takes("distinct"):
                    self._expect("from")
                    return True
                if not self._takes("null", "true", "false", "unknown"):
                    raise self._unexpected("IS wants NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
            elif word == "escape" and self._peek(1).kind == "text":
                self.at += 2
            elif word == "::":
                self.at += 1
                self._type()
            elif word == "collate":
                self.at += 1
                self._name()
                while self._takes("."):
                    self._name()
            elif not self._step(word):
                return False

    def _is_operand_next(self, word: str) -> bool:
        """True if an operand follows IN, LIKE or a similar operator, rather than a list in brackets."""
        if word == "in":
            return False
        self.cost.searching += 1
        return not self._takes("any", "some", "all")

    def _step(self, word: str) -> bool:
        """Takes a step into a value; False if there is none."""
        if word == "." or (word == ":" and self._peek(1).word != "["):
            self.at += 1
            if not (word == "." and self._takes("*")):
                self._name_or_number()
        elif word in ("[", ":"):
            self.at += 1 if word == "[" else 2
            self._expression()
            self._expect("]")
        else:
            return False
        return True

    def _name_or_number(self) -> None:
        if self._peek().kind == "number" and "." not in self._peek().text:
            self.at += 1
        else:
            self._name()

    # ------------------------------------------------------------------ operands
    def _operand(self) -> int:
        while self._peek().word in _PREFIX or (self._peek().word == "not" and self._begins_operand(self._peek(1))):
            self.at += 1
        token = self._peek()
        if token.word == "." and self._peek(1).kind == "number":
            self.at += 1
            token = self._peek()
        if token.kind == "number":
            if _HALF_NUMBER.fullmatch(token.text) and self._peek(1).word in ("+", "-"):
                self.at += 2
            if _NUMBER.fullmatch(self._peek().text) is None:
                raise self._unexpected("a number is missing")
            self.at += 1
            return 0
        if token.kind == "text":
            while self._peek().kind == "text":
                self.at += 1
            return 0
        if token.word == "*":
            self.at += 1
            self.cost.uses += 1
            if self._takes("except"):
                self._expect("(")
                self._listed()
            if self._peek().text not in (",", ")", ""):
                raise self._unexpected("* is all fields, and stands by itself")
            return 0
        if token.word == "(":
            return self._bracket()
        if token.kind not in ("name", "quoted"):
            raise self._unexpected("a field or a value is missing")
        return self._named()

    def _begins_operand(self, token: ExpressionToken) -> bool:
        return token.kind in ("name", "quoted", "number", "text") or token.word in ("(", *_PREFIX)

    def _bracket(self) -> int:
        names = self._lambda_names()
        if names:
            return self._lambda(names)
        self.at += 1
        deepest = self._expression()
        while self._takes(","):
            deepest = max(deepest, self._expression())
        self._expect(")")
        return deepest

    def _lambda_names(self) -> list[str]:
        """Takes the variables of ``(x, y) -> ...``; empty if the tokens are not a lambda."""
        began, names = self.at, []
        self.at += 1
        while self._peek().kind in ("name", "quoted"):
            names.append(self._next().name)
            if not self._takes(","):
                break
        if names and self._takes(")") and self._takes("->"):
            return names
        self.at = began
        return []

    def _lambda(self, names: list[str]) -> int:
        self.variables += names
        # Spark does not evaluate functions over lists during planning: lambda variables count like fields.
        self.cost.uses += 1
        deepest = self._expression()
        del self.variables[len(self.variables) - len(names) :]
        return deepest

    def _named(self) -> int:
        token, after = self._peek(), self._peek(1)
        word = token.word
        if word in ("select", "not"):
            raise self._unexpected("a field is missing")
        if after.text == "(":
            return self._call()
        if word in _QUERIES and self.at and self.tokens[self.at - 1].text == "(":
            number = after.text == "." and self._peek(2).kind == "number"
            if after.text not in _NO_QUERY or number:
                raise refused(token.start, _NO_QUERIES.replace("SELECT", token.text))
        if after.text == "->":
            self.at += 2
            return self._lambda([token.name])
        if word == "case" and (after.word == "when" or self._goes_on_as_case(after)):
            return self._case()
        if word == "interval" and self._begins_interval():
            return self._interval()
        if word in _TYPED and after.kind == "text":
            self.at += 2
            return 0
        if word in _VALUES:
            # A field has precedence: ``current_date`` is a field if the record has it.
            self.at += 1
            return 0
        name = self._name()
        if name not in self.variables:
            self.columns.add(name)
        self.cost.uses += 1
        return 0

    def _goes_on_as_case(self, after: ExpressionToken) -> bool:
        """True if ``case`` begins a CASE expression and is not a field."""
        return self._begins_operand(after) and after.word not in _INFIX and after.word not in _BEHIND_FIELD

    def _case(self) -> int:
        self.at += 1
        deepest = 0
        if self._peek().word != "when":
            deepest = self._expression()
        while self._takes("when"):
            deepest = max(deepest, self._expression())
            self._expect("then")
            deepest = max(deepest, self._expression())
        if self._takes("else"):
            deepest = max(deepest, self._expression())
        self._expect("end")
        return deepest

    def _begins_interval(self) -> bool:
        """True if ``interval`` begins an interval and is not a field."""
        signed = self._peek(1).word in ("+", "-")
        amount, unit = self._peek(1 + signed), self._peek(2 + signed)
        return amount.kind in ("number", "text") and (not signed or unit.word in _UNITS)

    def _interval(self) -> int:
        self.at += 1
        self._takes("+", "-")
        self.at += 1
        while self._takes(*_UNITS):
            if self._takes("to"):
                self._takes(*_UNITS)
                return 0
            signed = self._peek().word in ("+", "-")
            if self._peek(signed).kind not in ("number", "text") or self._peek(signed + 1).word not in _UNITS:
                return 0
            self.at += 1 + signed
        return 0

    # ------------------------------------------------------------------ calls
    def _call(self) -> int:
        token = self._next()
        name = token.name.lower()
        if self.at >= 2 and self.tokens[self.at - 2].text in (".", ":"):
            raise refused(token.start, f"{token.text}() is called by a path; functions go without one")
        if name not in self.passing:
            ensure_allowed(name, token.start)
        self._expect("(")
        if name in ("cast", "try_cast"):
            deepest = self._expression()
            self._expect("as")
            self._type()
            self._expect(")")
            return deepest
        if name == "trim":
            self._trimmed()
        behind = "," if name in _BY_UNIT else "from" if name == "extract" else None
        if behind is not None and self._peek(1).word == behind and self._peek().word in _UNITS:
            self.at += 2
        arguments, deepest = self._arguments((*_PARTED.get(name, ()), ","), named=name == "struct")
        self.cost.note(name, token, arguments)
        return deepest + 1

    def _trimmed(self) -> None:
        if self._peek().word in _TRIMMED and self._peek(1).text not in (")", ",", "."):
            self.at += 1
            self._takes("from")

    def _arguments(self, separators: tuple[str, ...], *, named: bool) -> tuple[list[list[ExpressionToken]], int]:
        """The tokens of each argument, and the nesting depth of their calls."""
        found: list[list[ExpressionToken]] = []
        deepest = 0
        while not self._takes(")"):
            began = self.at
            if self._peek().kind in ("name", "quoted") and self._peek(1).text == "=>":
                self.at += 2
            deepest = max(deepest, self._expression())
            found.append(self.tokens[began : self.at])
            if named and (self._takes("as") or self._peek().kind in ("name", "quoted")):
                self._name()
            if self._peek().text != ")":
                if not self._takes(*separators):
                    raise self._unexpected("a comma or a bracket is missing")
                if self._peek().text == ")":
                    raise self._unexpected("an argument is missing")
        return found, deepest

    # ------------------------------------------------------------------ types
    def _type(self) -> None:
        name = self._name().lower()
        if name in ("array", "map", "struct") and self._takes("<", "<>"):
            if self.tokens[self.at - 1].text != "<>":
                self._members(named=name == "struct")
            return
        if name == "interval":
            if self._peek().word in _UNITS:
                self.at += 1
            if self._peek().word == "to" and self._peek(1).word in _UNITS:
                self.at += 2
            return
        if name == "timestamp" and self._peek().word in ("with", "without") and self._peek(1).word in ("time", "local"):
            while self._takes("with", "without", "local", "time", "zone"):
                pass
            return
        if self._takes("("):
            while self._peek().kind in ("number", "name") or self._peek().text == ",":
                self.at += 1
            self._expect(")")
        if self._peek().word == "collate":
            self.at += 1
            self._name()

    def _members(self, *, named: bool) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._unexpected(f"types are deeper than {MAX_DEPTH}")
        while True:
            if named:
                self._name()
                self._takes(":")
            self._type()
            if self._takes("not"):
                self._expect("null")
            if self._peek().word == "comment" and self._peek(1).kind == "text":
                self.at += 2
            if not self._takes(","):
                break
        self.depth -= 1
        self._closes()

    def _closes(self) -> None:
        """Takes one ``>``, even from a token with several."""
        token = self._peek()
        if not token.text.startswith(">"):
            raise self._unexpected("> is missing")
        self.at += 1
        if len(token.text) > 1:
            self.at -= 1
            self.tokens[self.at] = ExpressionToken("sign", token.text[1:], token.start + 1)
