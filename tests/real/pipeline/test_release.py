"""What the JVM keeps of batches that are done with."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject

from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.driver.calls import release
from penstock.pipeline.spark.driver.prepared_plan import DriverPlan
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = pytest.mark.java


def test_a_released_frame_is_gone_from_the_jvm_while_python_still_has_it(spark_runtime: SparkRuntime) -> None:
    session = spark_runtime.session()
    frame = session.createDataFrame(pa.table({"n": [1, 2, 3]}))
    java: Any = frame._jdf
    assert java.schema().size() == 1

    release([frame])

    with pytest.raises(Exception, match="does not exist"):
        java.schema()


@pytest.fixture
def seldom() -> Iterator[None]:
    """The collector as good as off."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000)
    yield
    gc.set_threshold(*before)


@pytest.mark.slow
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


def test_messages_that_pass_by_are_measured_in_one_partition_whatever_their_bytes_are(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, pa.Table]] = []
    collect = DriverPlan.collect

    def noted(plan: DriverPlan, table: pa.Table) -> pa.Table:
        made = collect(plan, table)
        seen.append((table.column("value").num_chunks, made))
        return made

    monkeypatch.setattr(DriverPlan, "collect", noted)
    values = [b"\xff\xfe", None, b"", "\u00e4".encode(), b"\x00" * 300] * 2_000
    chunks = [pa.array(values[start : start + 3_000], pa.binary()) for start in range(0, len(values), 3_000)]
    messages = pa.table({"key": pa.nulls(len(values), pa.binary()), "value": pa.chunked_array(chunks)})

    SparkJobs(spark_runtime).pass_by(messages)

    [(partitions, lengths)] = seen
    assert partitions == 1
    assert lengths.column("key_0").null_count == len(values)
    assert lengths.column("value_0").to_pylist() == [None if one is None else len(one) for one in values]
