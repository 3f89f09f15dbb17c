"""Checks of the expressions of ``Sql``, made when a connector is configured.

The checks find expressions that can never work, before there are records. The fields and their types are not known yet,
so Spark analyses the expressions with assumed types: first null, which fits any type, then other types where null is
rejected. An error that does not depend on types, such as an unknown function or an aggregate, is reported; all other
errors are left to the records.

The security check (``fence``) comes first, and needs no session.

Main functions: ``check_select`` and ``check_where``, which wait for a session that is starting. Thread: any.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from penstock.errors import ConfigException
from penstock.pipeline.columns.expressions import spark_text
from penstock.pipeline.spark.session import coming_session
from penstock.transforms.sql.fence import parse, read, refuse_parsed
from penstock.transforms.sql.functions import AGGREGATES
from penstock.transforms.sql.text import SqlRefused, calls_of, names_in, split_items, with_variant_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """Checks a list of expressions.

    Raises:
        ConfigException: An expression can never work; the text has Spark's message with the position in the expression.
    """
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
    """Checks a condition.

    Raises:
        ConfigException: The condition can never work; the text has Spark's message with the position.
    """
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
        columns = _columns(session, items, filters=name == "where") if harmless else []
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

    Raises:
        ParseException: Spark cannot parse the expression.
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


def _columns(session: SparkSession, items: Sequence[str], *, filters: bool) -> list[str]:
    """The names of the columns, if they are known without types."""
    return [column for item in items for column in _Trial(session, item, filters=filters).columns()]


class _Trial:
    """One expression over fields with assumed types."""

    def __init__(self, session: SparkSession, text: str, *, filters: bool) -> None:
        self._session = session
        self._text = text
        self._filters = filters
        self._names = sorted(names_in(text))

    def columns(self) -> list[str]:
        """The columns of the expression; none if they depend on types.

        Raises:
            AnalysisException: The expression can never work, whatever the types.
        """
        for assumed in _ASSUMED if self._names else _ASSUMED[:1]:
            try:
                return self._analysed(assumed).columns[1:]
            except AnalysisException as error:
                certain = (error.getCondition() or "").split(".")[0] in _CERTAIN
                if certain or not self._names or isinstance(error, ParseException):
                    raise
            except Py4JError:
                # Spark bugs: an analysis that ends in an assertion.
                continue
        return []

    def _analysed(self, assumed: str) -> DataFrame:
        fields = [F.lit(None).cast(assumed).alias(name) for name in self._names]
        frame = self._session.range(0).select(F.col("id").alias(_ROW), *fields)
        variants = [(name,) for name in self._names if assumed == "variant"]
        expression = F.expr(with_variant_paths(self._text, variants))
        made = frame.filter(expression).select(_ROW) if self._filters else frame.select(_ROW, expression)
        # A remote session only analyses at this point.
        _ = made.schema
        return made
