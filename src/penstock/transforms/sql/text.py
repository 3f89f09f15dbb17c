"""The analysis of the text of a Spark SQL expression: its parts, the fields it reads, the functions it calls.

Only Spark can interpret an expression. These functions read its tokens, to answer two questions before Spark can: where
the items of a list end, and which paths lead into a VARIANT. Spark writes a path as ``user.id`` for structs and
``user:id`` for VARIANTs; users need not know which of the two a field is. Spark also does not compare VARIANTs: one
that is compared with a literal is cast to the literal's type.

The tokens have the same boundaries as in Spark's own lexer, because a different boundary would let an expression hide
code from the checks: bracketed comments nest, a backslash continues a line comment on the next line, and a doubled
quote does not end a text.

Thread: any; pure. Source: ``SqlBaseLexer`` of Spark 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

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


#: A text in a subscript whose quotes can be exchanged: in the path of a VARIANT Spark accepts only single quotes.
_PLAIN_TEXT: Final = re.compile(r"\"[^\"'\\]*\"|'[^\"'\\]*'")
_NAMES: Final = ("name", "quoted")
_COMPARISONS: Final = frozenset(("=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">="))
#: Comparison operators that are words, with the words that may come between the operator and its literal.
_WORD_COMPARISONS: Final = {"in": "(", "between": "", "like": "", "ilike": "", "rlike": "", "regexp": ""}
#: Tokens after which an operand begins that is compared as a whole: ``-a = 1`` compares ``-a``.
_BEFORE_OPERAND: Final = frozenset(("", "(", ",", "and", "or", "not", "when", "then", "else", "case", "distinct"))
_BEHIND_OPERAND: Final = frozenset(("", ")", ",", "and", "or", "when", "then", "else", "end", "as", "is"))
_CASTS: Final = ("cast", "try_cast")
#: Above this not every integer has an exact double.
_EXACT_DOUBLES: Final = 2**53


@dataclass(frozen=True)
class Path:
    """A field of a field: ``user.addresses[0].city``.

    Attributes:
        names: The names of the steps, beginning with a column; a number in brackets counts as a name.
        start: Its start in the text.
        end: Its end in the text (exclusive).
        cast_type: The type of the literal that it is compared with; None without a comparison, or if it is cast.
        is_cast: True if the user casts it, with ``::`` or ``cast``.
    """

    names: tuple[str, ...]
    steps: tuple[ExpressionToken, ...]
    separators: tuple[ExpressionToken, ...]
    start: int
    end: int
    cast_type: str | None
    is_cast: bool


def split_items(text: str) -> list[str]:
    """Splits a list of expressions at commas, except inside brackets, quotes and comments.

    >>> split_items("a, concat(b, ',') as c")
    ['a', "concat(b, ',') as c"]
    """
    items: list[str] = []
    depth = start = 0
    for token in pieces(text):
        if token.kind != "sign":
            continue
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and depth == 0:
            items.append(text[start : token.start].strip())
            start = token.start + 1
    return [*items, text[start:].strip()]


def calls_of(text: str) -> list[str]:
    """The functions that an expression calls, in lower case.

    >>> calls_of("explode(split(`Upper`, ','))")
    ['explode', 'split']
    """
    tokens = meaningful(text)
    return [one.text.lower() for one, after in pairwise(tokens) if _is_call(one, after)]


def paths_of(text: str) -> list[Path]:
    """The paths of an expression. The result includes keywords, types and aliases: only Spark can distinguish them from
    fields.

    >>> [path.names for path in paths_of("upper(user.name) = `a b`['c'] and exists(xs, x -> x.y)")]
    [('user', 'name'), ('a b', 'c'), ('and',), ('xs',)]
    """
    tokens = meaningful(text)
    lambdas = _lambda_names(tokens)
    found: list[Path] = []
    at = 0
    while at < len(tokens):
        token, before = tokens[at], tokens[at - 1].text if at else ""
        called = at + 1 < len(tokens) and _is_call(token, tokens[at + 1])
        if token.kind not in _NAMES or called or before in (".", ":", "::") or token.name in lambdas:
            at += 1
            continue
        path, at = _path(tokens, at)
        found.append(path)
    return found


def names_in(text: str) -> frozenset[str]:
    """The first names of the paths of an expression: every name that may be a column."""
    return frozenset(path.names[0] for path in paths_of(text))


def with_variant_paths(text: str, variants: Collection[tuple[str | None, ...]]) -> str:
    """Rewrites paths into VARIANTs in Spark's syntax for them.

    Where possible, replacements keep their position, so that the positions in Spark's messages match the given text. A
    path that is compared with a literal is cast to the literal's type.

    Args:
        text: The expression.
        variants: Paths that are VARIANTs; None in one stands for any name.

    >>> with_variant_paths("user.id + record.topic + xs[0]['a'].b", {("user",), ("xs",)})
    "user:id + record.topic + xs:[0]['a'].b"
    >>> with_variant_paths("user.id >= 500 and name like 'b%' and size > 1", {("user",), ("name",)})
    "user:id::double >= 500 and name::string like 'b%' and size > 1"
    """
    changes: list[tuple[int, int, str]] = []
    for path in paths_of(text):
        root = _variant_root(path, variants)
        if root is None:
            continue
        if path.cast_type is not None:
            changes.append((path.end, path.end, f"::{path.cast_type}"))
        if root == len(path.names):
            continue
        separator = path.separators[root - 1]
        if separator.text == ".":
            changes.append((separator.start, separator.start + 1, ":"))
        elif separator.text == "[":
            changes.append((separator.start, separator.start, ":"))
        for step in path.steps[root:]:
            if step.kind == "text":
                changes.append((step.start, step.start + len(step.text), f"'{step.name}'"))
    return _changed(text, changes)


def with_typed_paths(text: str, kinds: Callable[[tuple[str, ...]], Literal["text", "other"] | None]) -> str:
    """Rewrites paths into typed columns of schemaless values.

    An index beyond the end of an array gives null, as it does in a VARIANT, and a text that is compared with a literal
    of another type is cast to it.

    Args:
        text: The expression.
        kinds: Returns the kind of a path; None: the path does not lead into such a column.

    >>> with_typed_paths("xs[0].a + 1 > n and s >= 5", lambda names: "text" if names == ("s",) else "other")
    'get(xs, 0).a + 1 > n and s::double >= 5'
    """
    changes: list[tuple[int, int, str]] = []
    for path in paths_of(text):
        kind = kinds(path.names)
        if kind is None:
            continue
        if kind == "text" and path.cast_type not in (None, "string"):
            changes.append((path.end, path.end, f"::{path.cast_type}"))
        if not any(step.kind == "number" for step in path.steps):
            continue
        written = text[path.start : path.steps[0].start + len(path.steps[0].text)]
        for separator, step in zip(path.separators, path.steps[1:], strict=True):
            if step.kind == "number":
                written = f"get({written}, {step.text})"
            elif separator.text == "[":
                written = f"{written}[{step.text}]"
            else:
                written = f"{written}.{step.text}"
        changes.append((path.start, path.end, written))
    return _changed(text, changes)


def _changed(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    for start, end, replacement in sorted(changes, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def lambda_fields(text: str) -> frozenset[str]:
    """The names of the fields of their variables that lambdas use.

    >>> sorted(lambda_fields("transform(xs, x -> x.a + x.b.c + y.d)"))
    ['a', 'b']
    """
    tokens = meaningful(text)
    variables = _lambda_names(tokens)
    return frozenset(
        third.name
        for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if first.kind in _NAMES and first.name in variables and second.text == "." and third.kind in _NAMES
    )


def untyped_paths(text: str, variants: Collection[tuple[str | None, ...]]) -> list[str]:
    """Returns the paths into a VARIANT that have no type, as the user wrote them.

    >>> untyped_paths("user.id * 2 > size and a::int = b and c = 1", {("user",), ("a",), ("b",), ("c",)})
    ['user.id', 'b']
    """
    found = [
        text[path.start : path.end]
        for path in paths_of(text)
        if path.cast_type is None and not path.is_cast and _variant_root(path, variants) is not None
    ]
    return list(dict.fromkeys(found))


def _variant_root(path: Path, variants: Collection[tuple[str | None, ...]]) -> int | None:
    """Returns the number of steps that lead to the VARIANT at the beginning of the path, or None if there is none."""
    return next((size for size in range(1, len(path.names) + 1) if _matches(path.names[:size], variants)), None)


def _is_call(token: ExpressionToken, after: ExpressionToken) -> bool:
    return token.kind == "name" and after.text == "("


def _path(tokens: list[ExpressionToken], at: int) -> tuple[Path, int]:
    """The path that begins at a name, and the position after it."""
    first = at
    steps, separators = [tokens[at]], []
    at += 1
    while at + 1 < len(tokens):
        separator, step = tokens[at], tokens[at + 1]
        if separator.text in (".", ":") and step.kind in _NAMES:
            size = 2
        elif separator.text == "[" and _is_subscript(step) and at + 2 < len(tokens) and tokens[at + 2].text == "]":
            size = 3
        else:
            break
        steps.append(step)
        separators.append(separator)
        at += size
    names = tuple(one.name for one in steps)
    start, end = tokens[first].start, tokens[at - 1].start + len(tokens[at - 1].text)
    is_cast = _word(tokens, at) == "::" or (_word(tokens, at) == "as" and _word(tokens, first - 2) in _CASTS)
    path = Path(names, tuple(steps), tuple(separators), start, end, _compared_type(tokens, first, at), is_cast)
    return path, at


def _compared_type(tokens: list[ExpressionToken], first: int, behind: int) -> str | None:
    """The type of the literal that the operand from ``first`` to ``behind`` is compared with."""
    before, after = _word(tokens, first - 1), _word(tokens, behind)
    if before in _BEFORE_OPERAND:
        if after == "not":
            behind += 1
            after = _word(tokens, behind)
        if after in _COMPARISONS:
            return _literal_type(tokens, behind + 1)
        if after in _WORD_COMPARISONS:
            skipped = _WORD_COMPARISONS[after]
            if skipped and _word(tokens, behind + 1) != skipped:
                return None
            return _literal_type(tokens, behind + 1 + len(skipped))
    if before in _COMPARISONS and after in _BEHIND_OPERAND:
        at = first - 2
        # The text is the last part of a timestamp or date literal.
        if _word(tokens, at - 1) in ("timestamp", "date"):
            at -= 1
        return _literal_type(tokens, at)
    return None


def _literal_type(tokens: list[ExpressionToken], at: int) -> str | None:
    """The type that a VARIANT needs for a comparison with the literal at a position; None if there is no literal."""
    word = _word(tokens, at)
    if word in ("-", "+"):
        at += 1
        word = _word(tokens, at)
        if not 0 <= at < len(tokens) or tokens[at].kind != "number":
            return None
    if not 0 <= at < len(tokens) or _word(tokens, at + 1) == "::":
        return None
    token = tokens[at]
    if token.kind == "text":
        return "string"
    if token.kind == "number":
        # A double keeps the fraction of a number; a decimal keeps every digit of a large integer.
        digits = token.text.rstrip("lL")
        return "decimal(38,0)" if digits.isdigit() and int(digits) >= _EXACT_DOUBLES else "double"
    if word in ("true", "false"):
        return "boolean"
    behind = at + 1 < len(tokens) and tokens[at + 1].kind == "text"
    return word if word in ("timestamp", "date") and behind else None


def _word(tokens: list[ExpressionToken], at: int) -> str:
    """A token in lower case; empty before the first and after the last token."""
    return tokens[at].text.lower() if 0 <= at < len(tokens) else ""


def _is_subscript(step: ExpressionToken) -> bool:
    return step.text.isdigit() or (step.kind == "text" and _PLAIN_TEXT.fullmatch(step.text) is not None)


def _lambda_names(tokens: list[ExpressionToken]) -> frozenset[str]:
    """The variables in ``x -> ...`` and ``(x, y) -> ...``."""
    found: set[str] = set()
    for at, token in enumerate(tokens):
        if token.text != "->" or at == 0:
            continue
        before = at - 1
        if tokens[before].text != ")":
            found.add(tokens[before].name)
            continue
        while before > 0 and tokens[before].text != "(":
            before -= 1
            if tokens[before].kind in _NAMES:
                found.add(tokens[before].name)
    return frozenset(found)


def _matches(names: tuple[str, ...], variants: Collection[tuple[str | None, ...]]) -> bool:
    return any(
        len(one) == len(names) and all(part in (None, name) for part, name in zip(one, names, strict=True))
        for one in variants
    )
