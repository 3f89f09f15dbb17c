"""Transforms that work on frames pass the suite for them, in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.unit.transforms.test_suites import rows

from penstock.api import ConnectRecord, Frame, FrameTransformation
from penstock.config import ConfigDef
from penstock.pipeline.spark.session import SparkRuntime
from penstock.testing.kit.suites.frame_transforms import FrameTransformSuite
from penstock.transforms.sql import Sql

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


class Counting(FrameTransformation):
    """Asks Spark how many rows there are."""

    def config(self) -> ConfigDef:
        return ConfigDef()

    def apply(self, frame: Frame) -> Frame:
        return frame.replace(dataframe=frame.dataframe.withColumn("timestamp", F.lit(frame.dataframe.count())))


class OfCounting(FrameTransformSuite):
    transform = Counting

    def records(self) -> Sequence[ConnectRecord]:
        return rows()[:2]


def test_a_transform_that_looks_at_the_rows_is_found(spark: Callable[[], SparkSession]) -> None:
    suite = OfCounting()
    suite._spark = spark
    with pytest.raises(AssertionError, match=r"apply\(\) ran \d+ jobs of Spark"):
        suite.test_apply_runs_no_spark_job()
    with pytest.raises(AssertionError, match="another one in a batch"):
        suite.test_a_frame_may_be_cut_anywhere()
