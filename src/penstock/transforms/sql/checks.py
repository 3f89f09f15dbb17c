"""The checks of ``Sql`` expressions: what an expression may contain (security), and whether Spark can run it.

*Security* (``read``, ``refuse_parsed``). Spark SQL can read files, call Java code and reveal the worker's environment.
An expression that passes has only fields, constants, operators and the functions of ``functions``. ``read`` looks
at its tokens, so it works the same with Spark Connect, whose parser is not accessible:

* a function is a name before a bracket; each such name has to be in the list, without a catalog before it;
* a subquery begins after a bracket with one of a few words, which are accepted as fields only if no query can continue
  like that (``(values[0])`` but not ``(values - 1)``); ``select`` is never a field; relations and commands have two
  consecutive words (``FROM t``, ``TABLE t``), but after an operand only an operator, a closing bracket or the end may
  follow;
* Spark replaces ``${env:NAME}`` before it parses, even in texts and comments, so it is rejected everywhere;
* a name that is neither a field nor an alias would be a session variable, or ``current_user``: callers that know the
  fields reject all other names of ``ExpressionNames``.

With a classic session ``refuse_parsed`` checks Spark's parse tree independently: it may contain only expressions of
known classes. Spark evaluates constants during planning, on the driver, even when a configuration is only validated: a
constant must not be large or slow (``reader``). Everything that depends on a record is evaluated with a time limit.

*Trial* (``check_select``, ``check_where``), before there are records. The types of fields are not known yet, so Spark
analyses the expressions with assumed types: first null, which fits any type, then other types where null is rejected.
Only errors that do not depend on types, such as an unknown function, are reported.

Thread: any; the trial waits for a session that is starting. Source: ``SqlBaseParser`` of Spark 4.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from penstock.errors import ConfigException
from penstock.pipeline.columns.expressions import spark_text
from penstock.pipeline.spark.session import coming_session
from penstock.transforms.sql.functions import AGGREGATES, PARSED
from penstock.transforms.sql.reader import ExpressionReader, ensure_allowed
from penstock.transforms.sql.text import SqlRefused, calls_of, names_in, refused, split_items, with_variant_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    """Checks Spark's parse tree of an expression; does nothing on Spark Connect."""
    if text in _passed.setdefault(session, set()):
        return
    _refuse_parsed(session, text)
    texts = _passed[session]
    if len(texts) >= _MOST_PASSED:
        texts.clear()
    texts.add(text)


def parse(session: SparkSession, text: str) -> Any:
    """Spark's parse tree of an expression, in the JVM; None on Spark Connect."""
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


#: A session takes five to fifteen seconds to start; requests to the worker time out after 90.
SESSION_WAIT_S: Final = 60.0
GENERATORS: Final = frozenset(
    ["explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"]
)
_ASSUMED: Final = ("void", "variant", "array<string>", "map<string,string>")
_ROW: Final = "__row"
_OUTSIDE: Final = "It is no expression over the fields of one record"
#: Spark errors that no field's type can cause.
_CERTAIN: Final = (
    "UNRESOLVED_ROUTINE",
    "WRONG_NUM_ARGS",
    "UNSUPPORTED_GENERATOR",
    "INVALID_WHERE_CONDITION",
    "MISSING_GROUP_BY",
    "MISSING_AGGREGATION",
    "NESTED_AGGREGATE_FUNCTION",
    "UNSUPPORTED_GROUPING_EXPRESSION",
    "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE",
    "TABLE_OR_VIEW_NOT_FOUND",
)


class _CannotTell(Exception):
    """No Spark session is available."""


def check_select(name: str, value: object) -> None:
    """Refuses a list of expressions that can never work, with Spark's message and the position."""
    if value is None:
        return
    items = split_items(str(value))
    if not all(items):
        raise ConfigException(name, value, "There is an expression missing")
    generators = [call for item in items for call in calls_of(item) if call in GENERATORS]
    if len(generators) > 1:
        told = f"{' and '.join(generators)} both make several records of one: Spark allows one of these in a select"
        raise ConfigException(name, value, told)
    _check(name, str(value))


def check_where(name: str, value: object) -> None:
    """Refuses a condition that can never work, with Spark's message and the position."""
    if value is None:
        return
    generators = [call for call in calls_of(str(value)) if call in GENERATORS]
    if generators:
        told = f"{generators[0]} makes several records of one: Spark allows that in select, not in where"
        raise ConfigException(name, value, told)
    _check(name, str(value))


def _check(name: str, text: str) -> None:
    refused = _refused(text)
    try:
        _ensure_works(name, text, refused)
    except _CannotTell:
        # Without a session no record passes either; if one comes up later, Spark reports the error for each record.
        if refused is not None and not refused.is_syntax:
            raise ConfigException(name, text, f"{_OUTSIDE}: {refused}") from refused


def _refused(text: str, passing: frozenset[str] = frozenset()) -> SqlRefused | None:
    try:
        read(text, passing)
    except SqlRefused as refused:
        return refused
    return None


@lru_cache(maxsize=256)
def _ensure_works(name: str, text: str, refused: SqlRefused | None) -> None:
    """Lets Spark check the expressions. A configuration is checked several times, so successful checks are cached."""
    session = coming_session(SESSION_WAIT_S)
    if session is None:
        raise _CannotTell
    items = [text] if name == "where" else [item for item in split_items(text) if item != "*"]
    try:
        harmless = refused is None or _spark_refuses_too(session, text, refused)
        if refused is None:
            for item in items:
                refuse_parsed(session, item)
        columns = [column for item in items if harmless for column in _columns(session, item, filters=name == "where")]
    except SqlRefused as error:
        raise ConfigException(name, text, f"{_OUTSIDE}: {error}") from error
    except ParseException as error:
        raise ConfigException(name, text, f"Spark cannot parse it: {spark_text(error)}") from error
    except AnalysisException as error:
        reason = "" if refused is None else f"; {refused}"
        raise ConfigException(name, text, f"Spark refuses it: {spark_text(error)}{reason}") from error
    except (PySparkException, Py4JError) as error:
        raise _CannotTell from error
    if refused is not None:
        raise ConfigException(name, text, f"{_OUTSIDE}: {refused}") from refused
    twice = [column for column in dict.fromkeys(columns) if columns.count(column) > 1]
    if twice and name != "where":
        raise ConfigException(name, text, f"It gives two columns one name: {', '.join(twice)}; rename one with AS")


def _spark_refuses_too(session: SparkSession, text: str, refused: SqlRefused) -> bool:
    """True if a rejected expression may be passed to Spark, whose message has the position in its own words.

    That is safe if the only faults are functions that Spark does not know, and aggregates.
    """
    passing: set[str] = set()
    found: SqlRefused | None = refused
    while found is not None and found.function is not None and found.function not in passing:
        if found.function not in AGGREGATES and session.catalog.functionExists(f"`{found.function}`"):
            return False
        passing.add(found.function)
        found = _refused(text, frozenset(passing))
    if found is not None and found.is_syntax:
        parse(session, text)
    return found is None


def _columns(session: SparkSession, text: str, *, filters: bool) -> list[str]:
    """The columns of an expression; none if they depend on types. Raises AnalysisException if no types fit."""
    names = sorted(names_in(text))
    for assumed in _ASSUMED if names else _ASSUMED[:1]:
        try:
            return _analysed(session, text, names, assumed, filters=filters).columns[1:]
        except AnalysisException as error:
            certain = (error.getCondition() or "").split(".")[0] in _CERTAIN
            if certain or not names or isinstance(error, ParseException):
                raise
        except Py4JError:
            # Spark bugs: an analysis that ends in an assertion.
            continue
    return []


def _analysed(session: SparkSession, text: str, names: Sequence[str], assumed: str, *, filters: bool) -> DataFrame:
    """An expression over fields that are all of one assumed type."""
    frame = session.range(0).select(F.col("id").alias(_ROW), *[F.lit(None).cast(assumed).alias(name) for name in names])
    expression = F.expr(with_variant_paths(text, [(name,) for name in names if assumed == "variant"]))
    made = frame.filter(expression).select(_ROW) if filters else frame.select(_ROW, expression)
    # A remote session only analyses at this point.
    _ = made.schema
    return made
