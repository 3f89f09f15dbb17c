"""The short way to the driver JVM does what PySpark's own does."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject
from pyspark import __version__
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.pipeline.spark import prepared_plan as driver_plans
from penstock.pipeline.spark.prepared_plan import FEW_BATCHES, DriverPlan, PreparedQueries, driver_plan
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = pytest.mark.java

ROWS = pa.table(
    {
        "n": pa.array([1, None, 3, 4], pa.int64()),
        "text": pa.array(["a", "ü" * 40_000, None, ""]),
        "raw": pa.array([b"\x00", None, b"", b"x" * 100_000]),
        "real": pa.array([0.5, float("nan"), None, -0.0]),
        "flag": pa.array([True, None, False, True]),
        "price": pa.array([Decimal("1.10"), None, Decimal("-0.01"), Decimal("0.00")], pa.decimal128(38, 2)),
        "inner": pa.array([{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}, {"a": 4, "b": []}]),
        "pairs": pa.array([[("k", 1)], None, [], [("l", None)]], pa.map_(pa.string(), pa.int32())),
    }
)


@pytest.fixture
def session(spark_runtime: SparkRuntime) -> SparkSession:
    return spark_runtime.session(180)


def planned(session: SparkSession, table: pa.Table, *projections: Any) -> DriverPlan:
    made = driver_plan(session, table.schema, projections, PreparedQueries())
    assert made is not None
    return made


def test_the_installed_release_of_pyspark_is_one_it_was_tried_with() -> None:
    assert __version__.startswith(driver_plans.KNOWN_RELEASES)


@pytest.mark.parametrize("chunks", [1, 3])
def test_rows_come_back_as_pyspark_gives_them(session: SparkSession, chunks: int) -> None:
    table = pa.concat_tables([ROWS] * chunks)
    projections = [["*", (F.col("n") + 1).alias("m")], [F.to_json("inner").alias("json"), *ROWS.column_names, "m"]]
    frame = session.createDataFrame(table)
    for columns in projections:
        frame = frame.select(*columns)
    plan = planned(session, table, *projections)

    expected = frame.toArrow()
    first, second = plan.collect(table), plan.collect(table)

    assert first.schema.equals(expected.schema)
    assert [str(row) for row in first.to_pylist()] == [str(row) for row in expected.to_pylist()]
    assert str(second.to_pylist()) == str(first.to_pylist())


def test_no_rows_have_the_schema_of_rows(session: SparkSession) -> None:
    plan = planned(session, ROWS, ["n", F.upper("text").alias("t")])

    assert plan.collect(ROWS.slice(0, 0)).schema == plan.collect(ROWS).schema


def test_a_job_that_fails_says_what_pyspark_says_and_the_next_one_runs(session: SparkSession) -> None:
    table = pa.table({"n": list(range(10_000))})
    columns = [F.when(F.col("n") == 7, F.raise_error(F.lit("seven"))).otherwise(F.col("n")).alias("n")]
    plan = planned(session, table, columns)

    with pytest.raises(Exception, match="seven") as own:
        session.createDataFrame(table).select(*columns).toArrow()
    with pytest.raises(type(own.value), match="seven"):
        plan.collect(table)
    assert plan.collect(table.slice(8)).num_rows == table.num_rows - 8


def test_what_pyspark_would_change_on_the_way_goes_its_own_way(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = pa.array([datetime(2026, 1, 1, tzinfo=UTC)])
    for column in (moment, pa.array([[moment[0].as_py()]])):
        assert driver_plan(session, pa.schema({"t": column.type}), [["t"]], PreparedQueries()) is None
    assert driver_plan(session, pa.schema([]), [[F.lit(1)]], PreparedQueries()) is None

    monkeypatch.setattr(driver_plans, "KNOWN_RELEASES", ("3.5.",))
    assert driver_plan(session, ROWS.schema, [["n"]], PreparedQueries()) is None


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_nothing_of_a_batch_stays_and_no_collector_is_needed(session: SparkSession) -> None:
    table = pa.table({"n": [1, 2, 3]})
    plan = planned(session, table, ["*", F.lit(1).alias("m")], ["m", "n"])

    def kept_after(batches: int) -> int:
        for _ in range(batches):
            plan.collect(table)
        return sum(isinstance(one, JavaObject) for one in gc.get_objects())

    assert kept_after(2) == kept_after(2)
    assert kept_after(FEW_BATCHES) == kept_after(10), "that of a prepared query stays"
