"""The security check of ``Sql`` expressions: what an expression may contain.

Spark SQL can read files, call Java code and reveal the worker's environment. An expression that passes this check
consists only of fields, constants, operators and the functions of ``functions``. The check reads its tokens, so it
works the same with a Spark Connect session, whose parser is not accessible:

* a function is a name before a bracket; each such name has to be in the list, without a catalog before it;
* a subquery begins after a bracket with one of a few words, which are accepted as fields only if no query can continue
  like that (``(values[0])`` but not ``(values - 1)``); ``select`` is never a field; relations and commands have two
  consecutive words (``FROM t``, ``TABLE t``), but after an operand only an operator, a closing bracket or the end may
  follow;
* Spark replaces ``${env:NAME}`` before it parses, even in texts and comments, so it is rejected everywhere;
* a name that is neither a field nor an alias would be a session variable, or ``current_user``: callers that know the
  fields reject all other names of ``ExpressionNames``.

With a classic session ``refuse_parsed`` also checks Spark's parse tree: it may contain only expressions of known
classes. The two checks are independent.

Spark evaluates constants during planning, on the driver, even when a configuration is only validated: a constant must
not be large or slow (``reader``). Everything that depends on a record is evaluated in a job with a time limit.

Main functions: ``read`` (``ExpressionNames``: the names of an expression), ``refuse_parsed``. Thread: any; ``read`` is
pure.

Source: ``SqlBaseParser`` of Spark 4.3.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from penstock.transforms.sql.functions import PARSED
from penstock.transforms.sql.reader import ExpressionReader, ensure_allowed
from penstock.transforms.sql.text import SqlRefused, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The longest text of one setting.
MAX_CHARACTERS: Final = 50_000
#: Texts whose tree has been checked, by session.
_passed: Final[WeakKeyDictionary[SparkSession, set[str]]] = WeakKeyDictionary()
_MOST_PASSED: Final = 1024


@dataclass(frozen=True)
class ExpressionNames:
    """The names of an expression.

    Attributes:
        columns: The first names of paths, except lambda variables.
        aliases: The names that the expression gives to columns.
    """

    columns: frozenset[str]
    aliases: frozenset[str]


@lru_cache(maxsize=1024)
def read(text: str, passing: frozenset[str] = frozenset()) -> ExpressionNames:
    """Reads an expression, or several with commas between them.

    Args:
        text: The expression.
        passing: Functions that are accepted although they are not allowed, to find other errors.

    Raises:
        SqlRefused: The expression contains something that is not allowed.

    >>> sorted(read("a.b + upper(c) as d, transform(xs, x -> x.y)").columns)
    ['a', 'c', 'xs']
    >>> read("reflect('java.lang.System', 'exit', 0)")
    Traceback (most recent call last):
    penstock.transforms.sql.text.SqlRefused: character 1: the function reflect cannot be used: it calls code by name
    """
    if len(text) > MAX_CHARACTERS:
        raise SqlRefused(f"it has {len(text)} characters; at most {MAX_CHARACTERS} are read. Use two transforms")
    found = re.search(r"\$\{", text)
    if found is not None:
        raise refused(found.start(), "${...} is replaced by settings and variables of the worker; write '$' || '{...'")
    reader = ExpressionReader(text, passing)
    reader.items()
    return ExpressionNames(frozenset(reader.columns), frozenset(reader.aliases))


def refuse_parsed(session: SparkSession, text: str) -> None:
    """Checks Spark's parse tree of an expression; does nothing on Spark Connect.

    Raises:
        SqlRefused: The tree has a node of an unknown class.
        ParseException: It is not a valid expression.
    """
    if text in _passed.setdefault(session, set()):
        return
    _refuse_parsed(session, text)
    texts = _passed[session]
    if len(texts) >= _MOST_PASSED:
        texts.clear()
    texts.add(text)


def parse(session: SparkSession, text: str) -> Any:
    """Spark's parse tree of an expression, in the JVM; None on Spark Connect.

    Raises:
        ParseException: It is not a valid expression.
    """
    java: Any = getattr(session, "_jsparkSession", None)
    return None if java is None else java.sessionState().sqlParser().parseExpression(text)


def _refuse_parsed(session: SparkSession, text: str) -> None:
    parsed = parse(session, text)
    if parsed is None:
        return
    for node in _nodes(json.loads(parsed.toJSON())):
        kind = node["class"].removeprefix("org.apache.spark.sql.catalyst.")
        if kind not in PARSED:
            raise SqlRefused(
                f"it has a {kind.rpartition('.')[2]}, which is not an expression over one record. "
                "Name fields that are called like a keyword in backticks"
            )
        if kind == "analysis.UnresolvedFunction":
            name = node["nameParts"].strip("[]").lower()
            ensure_allowed(name, 0)


def _nodes(value: Any) -> list[dict[str, Any]]:
    """All nodes of a tree as JSON, including nodes that are not children."""
    found: list[dict[str, Any]] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            if "class" in one:
                found.append(one)
            left += one.values()
    return found
