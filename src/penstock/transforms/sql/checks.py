"""Checks of the expressions of ``Sql``, made when a connector is configured.

Whether expressions can work at all is asked when a connector is configured, before there are records. Which fields
there will be, and of what types, is not known then: Spark analyses the expressions over fields whose types are assumed,
null first, which can be taken for any type, then others for what refuses a null. An error that does not hang on types,
such as a function that is not there or an aggregate, is the user's; others are left to the records.

What may stand in an expression at all is said first, by the fence (``fence``), also without a session.

Main functions: ``check_select`` and ``check_where``, which wait for a session that is on its way. Thread: any.
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
from penstock.transforms.sql.text import calls_of, names_in, split_items, with_variant_paths
from penstock.transforms.sql.tokens import SqlRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A session takes five to fifteen seconds to start; requests to the worker wait 90.
SESSION_WAIT_S: Final = 60.0
GENERATORS: Final = frozenset(
    ["explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"]
)
_ASSUMED: Final = ("void", "variant", "array<string>", "map<string,string>")
_ROW: Final = "__row"
_OUTSIDE: Final = "It is no expression over the fields of one record"
#: Errors of Spark that no field's type can be the cause of.
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
    """There is no session to ask."""


def check_select(name: str, value: object) -> None:
    """Checks a list of expressions.

    Raises:
        ConfigException: It cannot work; with Spark's message, which has the position in the expression.
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
        ConfigException: It cannot work; with Spark's message, which has the position.
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
        # Without a session no record passes either; Spark says it of each of them, should one come up.
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
    """Asks Spark. A configuration is checked several times on its way to a task; what works is remembered."""
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
    """True if what was refused may be shown to Spark, whose message has the position in its own words.

    That is so when nothing is wrong but functions that Spark does not know, and aggregates.

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
    """The names of the columns, as far as they are known without their types."""
    return [column for item in items for column in _Trial(session, item, filters=filters).columns()]


class _Trial:
    """One expression over fields of types that are assumed."""

    def __init__(self, session: SparkSession, text: str, *, filters: bool) -> None:
        self._session = session
        self._text = text
        self._filters = filters
        self._names = sorted(names_in(text))

    def columns(self) -> list[str]:
        """The columns it makes; none where that hangs on types.

        Raises:
            AnalysisException: It cannot work, whatever the types.
        """
        for assumed in _ASSUMED if self._names else _ASSUMED[:1]:
            try:
                return self._analysed(assumed).columns[1:]
            except AnalysisException as error:
                certain = (error.getCondition() or "").split(".")[0] in _CERTAIN
                if certain or not self._names or isinstance(error, ParseException):
                    raise
            except Py4JError:
                # Spark's own bugs: analysis that ends in an assertion.
                continue
        return []

    def _analysed(self, assumed: str) -> DataFrame:
        fields = [F.lit(None).cast(assumed).alias(name) for name in self._names]
        frame = self._session.range(0).select(F.col("id").alias(_ROW), *fields)
        variants = [(name,) for name in self._names if assumed == "variant"]
        expression = F.expr(with_variant_paths(self._text, variants))
        made = frame.filter(expression).select(_ROW) if self._filters else frame.select(_ROW, expression)
        # A remote session analyses no sooner than this.
        _ = made.schema
        return made
