"""Jobs leave nothing in the JVM, although a worker's collector runs seldom."""

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject

from penstock.pipeline.jobs import SparkJobs
from penstock.pipeline.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture
def seldom() -> Iterator[None]:
    """The collector as good as off."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("seldom")
def test_no_object_of_a_job_outlives_it(spark_runtime: SparkRuntime) -> None:
    jobs = SparkJobs(spark_runtime)
    table = pa.table({"value": pa.array([b"x"] * 20)})

    def kept_after(batches: int) -> int:
        for _ in range(batches):
            jobs.through(table)
        return sum(isinstance(one, JavaObject) for one in gc.get_objects())

    first = kept_after(5)
    assert kept_after(20) <= first + 20
