"""The fence around the expressions of ``Sql``: what may stand in one, whatever Spark would make of it.

Spark SQL is a language that reads files, calls Java code and tells the worker's environment. An expression that is let
through here is made of fields, constants, operators and the functions of ``functions`` and of nothing else. It is
read from its tokens, so it is the same with a session on a Spark Connect server, which has no parser to ask:

* a function is a name in front of a bracket, and each of those has to be in the list, without a catalog in front of it;
* a subquery begins behind a bracket with one of a few words, which are fields only where no query can go on as they do
  (``(values[0])`` and not ``(values - 1)``), and ``select`` is none anywhere; a relation and a command have two words
  in a row (``FROM t``, ``TABLE t``), and after an operand comes an operator, a bracket that closes, or the end;
* ``${env:NAME}`` is replaced by Spark before it reads anything, also in texts and comments, and is refused anywhere;
* a name that is neither a field nor an alias would be a variable of the session, or ``current_user``: who knows the
  fields refuses what else ``Reading`` names.

With a classic session the tree that Spark's parser makes of it is looked at too (``refuse_parsed``): it has to be of
expressions of known classes. Neither of the two counts on the other.

Spark works out constants while it plans, on the driver, when a configuration is only looked at: a constant may not be
large or slow (``cost``). What depends on a record is worked out in a job, whose time is limited.

Main functions: ``read`` (``Reading``: the names of an expression), ``refuse_parsed``. Thread: any; ``read`` is pure.

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
from penstock.transforms.sql.reader import Reader, ensure_allowed
from penstock.transforms.sql.tokens import SqlRefused, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of the text of one setting.
MAX_CHARACTERS: Final = 50_000
#: Texts whose tree was looked at, by the session.
_passed: Final[WeakKeyDictionary[SparkSession, set[str]]] = WeakKeyDictionary()
_MOST_PASSED: Final = 1024


@dataclass(frozen=True)
class Reading:
    """The names of an expression.

    Attributes:
        columns: First names of paths that are no variable of a lambda.
        aliases: Names that the expression gives its columns.
    """

    columns: frozenset[str]
    aliases: frozenset[str]


@lru_cache(maxsize=1024)
def read(text: str, passing: frozenset[str] = frozenset()) -> Reading:
    """Reads an expression, or several with commas between them.

    Args:
        text: The expression.
        passing: Functions that pass although they are not allowed, for who wants to know what else there is.

    Raises:
        SqlRefused: Something may not stand in it.

    >>> sorted(read("a.b + upper(c) as d, transform(xs, x -> x.y)").columns)
    ['a', 'c', 'xs']
    >>> read("reflect('java.lang.System', 'exit', 0)")
    Traceback (most recent call last):
    penstock.transforms.sql.tokens.SqlRefused: character 1: the function reflect cannot be used: it calls code by name
    """
    if len(text) > MAX_CHARACTERS:
        raise SqlRefused(f"it has {len(text)} characters; at most {MAX_CHARACTERS} are read. Use two transforms")
    found = re.search(r"\$\{", text)
    if found is not None:
        raise refused(found.start(), "${...} is replaced by settings and variables of the worker; write '$' || '{...'")
    reader = Reader(text, passing)
    reader.items()
    return Reading(frozenset(reader.columns), frozenset(reader.aliases))


def refuse_parsed(session: SparkSession, text: str) -> None:
    """Looks at the tree that Spark makes of an expression; nothing is done on Spark Connect.

    Raises:
        SqlRefused: It has a part of a class that is not known.
        ParseException: It is no expression.
    """
    if text in _passed.setdefault(session, set()):
        return
    _refuse_parsed(session, text)
    texts = _passed[session]
    if len(texts) >= _MOST_PASSED:
        texts.clear()
    texts.add(text)


def parse(session: SparkSession, text: str) -> Any:
    """The tree that Spark makes of an expression, in the JVM; None on Spark Connect.

    Raises:
        ParseException: It is no expression.
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
    """All nodes of a tree as JSON, also those that are no children of another."""
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
