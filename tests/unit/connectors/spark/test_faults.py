"""Errors of Spark as errors for users."""

from __future__ import annotations

import pytest

from penstock.connectors.spark.faults import explained
from penstock.errors import RetriableException

NO_DRIVER = """An error occurred while calling o60.save.
: java.sql.SQLException: No suitable driver
\tat java.sql/java.sql.DriverManager.getDriver(DriverManager.java:299)"""
NO_COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or parameter named `nope` cannot be resolved. \
Did you mean one of the following? [`id`]. SQLSTATE: 42703;
'Project ['nope]
+- Range (0, 3, step=1, splits=Some(1))"""
NO_DELTA = (
    "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] This Delta operation requires the SparkSession ..."
)
QUERY = "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: {}"
OTHER_SPARK = """org.apache.spark.sql.streaming.StreamingQueryException: \
'void org.apache.spark.sql.execution.LogicalRDD.<init>(scala.collection.immutable.Seq, boolean)'
=== Streaming Query ===
Identifier: [id = 020e1e47, runId = cc2ca46e]
Current Committed Offsets: {}"""
DENIED = "java.io.FileNotFoundException: /in/a.parquet (Permission denied)"


@pytest.mark.parametrize(
    ("text", "parts", "passes"),
    [
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.", ["spark.jars.packages=io.delta"], False),
        (NO_DELTA, ["spark.sql.extensions=io.delta.sql", "start the worker again"], False),
        (NO_DRIVER, ["spark.jars.packages", "spark.option.driver"], False),
        (NO_COLUMN, ["`nope` cannot be resolved", "correct the name"], False),
        ("[PATH_NOT_FOUND] Path does not exist: file:/in. SQLSTATE: 42K03", ["Path does not exist: file:/in"], True),
        ("[UNABLE_TO_INFER_SCHEMA] Unable to infer schema for Parquet.", ["spark.schema says the columns"], True),
        (DENIED, ["no right to /in"], False),
        ("java.net.ConnectException: Connection refused", ["cannot be reached"], True),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file /in/a. SQLSTATE: KD001",
            ["/in/a", "mend"],
            False,
        ),
        ("Data source jdbc does not support streamed reading.", ["no reader of micro-batches", "incrementing"], False),
        (QUERY.format("[CONCURRENT_QUERY] Another instance is running. SQLSTATE: 0A000"), ["waits for its end"], True),
        (QUERY.format("[FAILED_READ_FILE.NO_HINT] Encountered error while reading /in/a."), ["/in/a", "mend"], False),
        (OTHER_SPARK, ["another version of Spark ('void org.apache.spark.sql", "spark.jars.packages"], False),
        ("java.lang.NoClassDefFoundError: org/apache/spark/sql/X", ["another version of Spark (NoClassDef"], False),
        ("something new", ["something new"], False),
        ("=== Streaming Query ===\nIdentifier: [id = 1]\nCurrent Committed Offsets: {}\nthe rest", ["the rest"], False),
    ],
)
def test_an_error_says_what_was_asked_why_it_failed_and_what_to_do(text: str, parts: list[str], passes: bool) -> None:
    error = explained(text, "reading /in", "delta", "/in")
    assert "reading /in failed" in str(error)
    assert all(part in str(error) for part in parts)
    assert isinstance(error, RetriableException) is passes
    assert "\n" not in str(error)
    assert "SQLSTATE" not in str(error)
    assert "Project" not in str(error)
