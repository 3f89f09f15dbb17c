"""Translates errors of Spark for users: the operation, Spark's message, and what to do.

Main functions: `explained`, `translated`. Pure but for reading texts of errors; any thread. Source: the error
conditions of Spark 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from penstock.errors import ConnectException, RetriableException

#: Packages of formats that do not come with Spark.
PACKAGES: Final = {
    "delta": "io.delta:delta-spark_2.13:VERSION, with spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION, with a catalog of spark.sql.catalog.NAME",
    "avro": "org.apache.spark:spark-avro_2.13:VERSION",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION, that of Spark",
    "hudi": "org.apache.hudi:hudi-spark-bundle_2.13:VERSION",
}
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\]")
_NO_FORMAT: Final = re.compile(
    r"DATA_SOURCE_NOT_FOUND|Failed to find (?:the )?data source|AVRO_NOT_LOADED|PROTOBUF_NOT_LOADED"
)
_NO_STREAM: Final = re.compile(r"does not support streamed reading|Micro-batch scan is not supported")
#: Spark's words in front of the error of a query.
_QUERY: Final = re.compile(r"\[STREAM_FAILED\][^\n]*?terminated with exception: ")
#: A class of Spark that a jar does not find as it was when it was made. A query's own error has only the method.
_OTHER_SPARK: Final = re.compile(
    r"(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error[^\n]*"
    r"|'[\w.\[\]$]+ org\.apache\.spark\.[^\n]*"
)
_NO_DRIVER: Final = re.compile(r"No suitable driver|ClassNotFoundException: \S*[Dd]river")
_NO_RIGHT: Final = re.compile(
    r"Permission denied|AccessControlException|AccessDenied|Access Denied|Forbidden|\b403\b|INSUFFICIENT_PERMISSIONS"
)
_NOT_CONFIGURED: Final = "DELTA_CONFIGURE_SPARK_SESSION"
_AWAY: Final = re.compile(r"Connection refused|ConnectException|UnknownHostException|SocketTimeout|Connection reset")
#: Spark's error conditions, what to do, and whether the error may be temporary.
_KNOWN: Final[dict[str, tuple[str, bool]]] = {
    "PATH_NOT_FOUND": ("it is looked for again", True),
    "UNABLE_TO_INFER_SCHEMA": (
        "there is no file of this format yet, or all are empty; spark.schema says the columns without one",
        True,
    ),
    "UNRESOLVED_COLUMN": ("correct the name in spark.query or the settings that name columns", False),
    "PARSE_SYNTAX_ERROR": ("correct spark.query or spark.schema", False),
    "TABLE_OR_VIEW_NOT_FOUND": ("create it, or correct the name; views are those of the worker's session", False),
    "CAST_INVALID_INPUT": (
        "a value does not fit its type: correct spark.schema, or use try_cast in spark.query",
        False,
    ),
    "DELTA_MISSING_CHANGE_DATA": (
        "ALTER TABLE .. SET TBLPROPERTIES (delta.enableChangeDataFeed = true) records changes after that; delete the "
        "connector's offsets to begin with the present rows of the table",
        False,
    ),
    "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE": (
        "this format has no such type: cast the column with a transform, or take another format",
        False,
    ),
    "FAILED_READ_FILE": (
        "mend the file or move it away; spark.option.ignoreCorruptFiles=true leaves out what cannot be read",
        False,
    ),
    "CONCURRENT_STREAM_LOG_UPDATE": ("another task still has the checkpoint, and this one waits for its end", True),
    "CONCURRENT_QUERY": ("another task still has the checkpoint, and this one waits for its end", True),
    "NOT_SUPPORTED_COMMAND_WITHOUT_HIVE_SUPPORT": ("this needs a catalog of tables", False),
}
_LONGEST: Final = 500
#: Beginnings of lines that describe a plan or a query, not its error.
_SAYS_NOTHING: Final = ("at ", "An error occurred while calling", "==", "'", "Identifier: [id", "Current ")


def explained(text: str, what: str, format: str, path: str) -> ConnectException:  # noqa: A002 - Spark's word
    """The error for a user.

    Args:
        text: Spark's message.
        what: The operation: a clause such as "reading /data/in".
        format: The requested format.
        path: The path, if any.

    Returns:
        A ``RetriableException`` if the error may be temporary.

    >>> print(explained("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: avro.", "reading /in", "avro", "/in"))
    spark.format: reading /in failed: the Spark session has no format avro. Add its jars to the worker's file, ...
    """
    text = _QUERY.sub("", text)
    condition = _CONDITION.search(text)
    name = condition[1] if condition is not None else ""
    said = _short(text)
    if name.startswith(_NOT_CONFIGURED):
        return ConnectException(
            f"{what} failed: the Spark session is not configured for Delta. Add to the worker's file, and start the "
            f"worker again: spark.jars.packages={PACKAGES['delta']}"
        )
    if _NO_FORMAT.search(text):
        package = PACKAGES.get(format.lower(), "GROUP:ARTIFACT:VERSION")
        return ConnectException(
            f"spark.format: {what} failed: the Spark session has no format {format}. Add its jars to the worker's "
            "file, "
            f"and start the worker again: spark.jars.packages={package}; or correct the name"
        )
    if (missing := _OTHER_SPARK.search(text)) is not None:
        return ConnectException(
            f"{what} failed: a jar in the Spark session, that of {format or 'its tables'} perhaps, was made for "
            f"another version of Spark ({missing[0][:200]}). Put the one for this version into spark.jars.packages of "
            "the worker's file, and start the worker again"
        )
    if _NO_STREAM.search(text):
        return ConnectException(
            f"spark.format: {what} failed: {format} has no reader of micro-batches, which mode=stream reads with. Take "
            f"another mode: incrementing or bulk ({said})"
        )
    if _NO_DRIVER.search(text):
        return ConnectException(
            f"{what} failed: the Spark session has no JDBC driver for this address. Add its jar to the worker's file, "
            f"spark.jars.packages=GROUP:ARTIFACT:VERSION, and name its class in spark.option.driver ({said})"
        )
    if name in _KNOWN:
        todo, passes = _KNOWN[name]
        kind = RetriableException if passes else ConnectException
        return kind(f"{what} failed: {said}; {todo}")
    if _NO_RIGHT.search(text):
        return ConnectException(
            f"{what} failed: the user of the worker's Spark has no right to {path or 'it'} ({said}); give it, or set "
            "other credentials"
        )
    if _AWAY.search(text):
        return RetriableException(f"{what} failed: the other system cannot be reached ({said})")
    return ConnectException(f"{what} failed: {said}")


def _short(text: str) -> str:
    """The essential part of an error, without plans and stack traces."""
    lines = [line.strip() for line in text.strip().splitlines()]
    telling = [line for line in lines if _CONDITION.search(line)] or [
        line for line in lines if line and not line.startswith(_SAYS_NOTHING)
    ]
    cause = next((line for line in reversed(lines) if line.startswith("Caused by: ")), "")
    first = telling[0] if telling else ""
    found = (
        first.removeprefix(": ") if not cause or _CONDITION.search(first) else f"{first.removeprefix(': ')} | {cause}"
    )
    found = re.sub(r"\s*SQLSTATE: \w{5}\s*;?.*$", "", found).strip().rstrip(".;")
    return found[:_LONGEST]


def is_of_spark(error: BaseException) -> bool:
    """True if Spark has answered with an error; False where the session itself has gone."""
    return any(one.__name__ in ("PySparkException", "Py4JJavaError") for one in type(error).__mro__)


def text_of(error: BaseException) -> str:
    """The text of Spark's error, with its causes."""
    java: Any = getattr(error, "java_exception", None)
    return str(error) if java is None else f"{java.toString()}\n{error}"


@contextmanager
def translated(what: str, format: str, path: str) -> Iterator[None]:  # noqa: A002 - Spark's word
    """Translates Spark's errors in the block for users; other errors pass unchanged.

    Raises:
        ConnectException: See ``explained``.
    """
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise explained(text_of(error), what, format, path) from error
