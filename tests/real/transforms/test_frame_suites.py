"""Transforms that work on frames pass the suite for them, in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession
from tests.unit.transforms.test_suites import rows

from penstock.api import ConnectRecord, Frame
from penstock.pipeline.spark.session import SparkRuntime
from penstock.testing.kit.suites.frame_transforms import FrameTransformSuite
from penstock.transforms.sql.transform import Sql

pytestmark = pytest.mark.java


@pytest.fixture
def spark(spark_runtime: SparkRuntime) -> Callable[[], SparkSession]:
    """The session of this run in the place of one of the kit's own."""
    return lambda: spark_runtime.session(60)


class TestSql(FrameTransformSuite):
    transform = Sql
    settings: ClassVar = {"select": "id, upper(name) AS name"}

    def records(self) -> Sequence[ConnectRecord]:
        return rows()


class Counting(Sql):
    """A transform that works on the whole batch while its plan is made."""

    def apply(self, frame: Frame) -> Frame:
        made = super().apply(frame)
        assert made.dataframe.count() >= 0
        return made


class Collecting(Sql):
    def apply(self, frame: Frame) -> Frame:
        frame.dataframe.limit(1).collect()
        return super().apply(frame)


@pytest.mark.parametrize("transform", [Counting, Collecting])
def test_a_job_of_spark_while_the_plan_is_made_is_found(
    transform: type[Sql], spark: Callable[[], SparkSession]
) -> None:
    suite = TestSql()
    suite.transform = transform  # type: ignore[misc]
    suite._spark = spark
    with pytest.raises(AssertionError, match=r"apply has run \d jobs of Spark"):
        suite.test_making_the_plan_runs_no_job()
    assert spark().conf.get("spark.sql.execution.arrow.localRelationThreshold") != "0"
