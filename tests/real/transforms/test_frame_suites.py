"""Transforms that work on frames pass the suite for them, in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession
from tests.unit.transforms.test_suites import rows

from penstock.api import ConnectRecord
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
