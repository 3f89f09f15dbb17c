"""Queries that Spark has planned run again with other rows, and only those that may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import Gate
from penstock.pipeline.spark.prepared_plan import (
    FEW_BATCHES,
    SMALL_BYTES,
    PreparedQueries,
    PreparedQuery,
    driver_plan,
    element,
)
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = pytest.mark.java

LARGE: Final = 4 * SMALL_BYTES


@pytest.fixture
def session(spark_runtime: SparkRuntime) -> SparkSession:
    return spark_runtime.session(180)


@pytest.fixture
def prepared() -> PreparedQueries:
    return PreparedQueries()


def collecting(
    session: SparkSession, prepared: PreparedQueries, *columns: Column | str
) -> Callable[[pa.Table], pa.Table]:
    plan = driver_plan(session, numbers(0, 1).schema, [columns], prepared)
    assert plan is not None
    return plan.collect


def numbers(first: int, count: int, parts: int = 1) -> pa.Table:
    """Numbers from `first` on, in chunks of `count`, with texts that make them as long as they are many."""
    chunks = [range(first + part * count, first + (part + 1) * count) for part in range(parts)]
    return pa.table(
        {
            "n": pa.chunked_array([pa.array(chunk, pa.int64()) for chunk in chunks]),
            "text": pa.chunked_array([pa.array([f"text {n}" for n in chunk]) for chunk in chunks]),
        }
    )


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("count", [3, LARGE // 8])
def test_every_batch_has_its_own_rows(session: SparkSession, prepared: PreparedQueries, count: int, parts: int) -> None:
    collect = collecting(session, prepared, (F.col("n") * 2).alias("twice"), F.upper("text").alias("text"))

    queries: set[PreparedQuery] = set()
    for batch in range(FEW_BATCHES + 4):
        table = numbers(batch * 1_000_000, count + batch, parts)
        rows = collect(table)
        assert rows.column("twice").to_pylist() == [2 * n for n in table.column("n").to_pylist()]
        assert rows.column("text").to_pylist() == [text.upper() for text in table.column("text").to_pylist()]

        queries |= {query for _, query in prepared._idle}

    assert len(queries) == 1


def test_small_and_large_batches_take_turns(session: SparkSession, prepared: PreparedQueries) -> None:
    collect = collecting(session, prepared, "*")

    for batch in range(12):
        table = numbers(batch, LARGE // 8 if batch % 3 == 0 else 2)
        assert collect(table).equals(table)


def test_no_rows_of_a_large_batch_stay_in_the_jvm(session: SparkSession, prepared: PreparedQueries) -> None:
    collect = collecting(session, prepared, "*")

    for first in (7, 70):
        table = numbers(first, LARGE // 8, parts=2)
        assert collect(table).equals(table)

    [(_, query)] = prepared._idle
    assert [element(array, 0) for array in query.arrays] == [None, None]


def test_batches_at_the_same_time_have_a_query_each(session: SparkSession, prepared: PreparedQueries) -> None:
    tasks = 4
    together = threading.Barrier(tasks)
    collect = collecting(session, prepared, (F.col("n") + 1).alias("n"))

    def some(task: int) -> None:
        for batch in range(6):
            together.wait(60)
            table = numbers(task * 1_000_000 + batch, LARGE // 8)
            assert collect(table).column("n").to_pylist() == [n + 1 for n in table.column("n").to_pylist()]

    with ThreadPoolExecutor(tasks) as pool:
        list(pool.map(some, range(tasks)))

    assert 1 <= len(prepared) <= tasks


def test_a_query_whose_job_has_failed_is_not_used_again(session: SparkSession, prepared: PreparedQueries) -> None:
    bad = F.when(F.col("n") == 7, F.raise_error(F.lit("seven"))).otherwise(F.col("n")).alias("n")
    collect = collecting(session, prepared, bad)

    with pytest.raises(Exception, match="seven"):
        collect(numbers(0, LARGE // 8))
    assert len(prepared) == 0

    assert collect(numbers(8, LARGE // 8)).num_rows == LARGE // 8
    assert len(prepared) == 1


@pytest.mark.parametrize("expression", ["rand()", "uuid()", "unix_micros(current_timestamp())"])
def test_what_depends_on_the_moment_is_planned_each_time(
    session: SparkSession, prepared: PreparedQueries, expression: str
) -> None:
    collect = collecting(session, prepared, F.expr(expression).alias("made"))
    table = numbers(0, LARGE // 8)

    seen = {collect(table).column("made")[0].as_py() for _ in range(3)}

    assert len(seen) == 3
    assert len(prepared) == 0


def test_what_needs_more_than_a_projection_is_planned_each_time(
    session: SparkSession, prepared: PreparedQueries
) -> None:
    ranked = F.row_number().over(Window.orderBy(F.col("n").desc())).alias("rank")
    collect = collecting(session, prepared, "n", ranked)

    for first in (0, 100, 200):
        rows = collect(numbers(first, LARGE // 8))
        assert rows.column("n")[0].as_py() == first + LARGE // 8 - 1
        assert rows.column("rank").to_pylist() == list(range(1, LARGE // 8 + 1))

    assert len(prepared) == 0


def test_batches_that_go_through_unchanged_keep_their_query(spark_runtime: SparkRuntime) -> None:
    spark_runtime.session(180)
    jobs = SparkJobs(spark_runtime, Gate(2))

    for first in range(FEW_BATCHES + 3):
        table = numbers(first, 5)
        assert jobs.through(table).equals(table)

    assert len(jobs._prepared) == 1


def test_rows_are_counted_and_stay_in_the_jvm_and_a_failure_is_sparks(
    session: SparkSession, prepared: PreparedQueries
) -> None:
    bad = F.when(F.col("n") == 7, F.raise_error(F.lit("seven"))).otherwise(F.col("n")).alias("n")
    plan = driver_plan(session, numbers(0, 1).schema, [[bad]], prepared)
    assert plan is not None

    for first, count in ((8, 3), (80, LARGE // 8), (8, 5)):
        assert plan.count(numbers(first, count)) == count
    with pytest.raises(PySparkException, match="seven"):
        plan.count(numbers(0, 10))
    assert len(prepared) == 0
    assert plan.count(numbers(8, 4)) == 4
