"""What the JVM keeps of batches that are done with."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject

from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.prepared_plan import DriverPlan, release
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
    messages = pa.table({"key": pa.nulls(20, pa.binary()), "value": table.column("value")})

    def kept_after(batches: int) -> int:
        for _ in range(batches):
            jobs.through(table)
            jobs.pass_by(messages)()
        return sum(isinstance(one, JavaObject) for one in gc.get_objects())

    # The first batches are not worth a query that is kept.
    first = kept_after(20)
    assert kept_after(20) <= first


def test_of_batches_that_pass_by_one_row_each_crosses_with_the_lengths_of_their_messages(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[pa.Table, int]] = []
    count = DriverPlan.count

    def noted(plan: DriverPlan, table: pa.Table) -> int:
        made = count(plan, table)
        seen.append((table, made))
        return made

    monkeypatch.setattr(DriverPlan, "count", noted)
    values = [b"\xff\xfe", None, b"", "\u00e4".encode(), b"\x00" * 300] * 2_000
    chunks = [pa.array(values[start : start + 3_000], pa.binary()) for start in range(0, len(values), 3_000)]
    messages = pa.table({"key": pa.nulls(len(values), pa.binary()), "value": pa.chunked_array(chunks)})
    texts = pa.table({"key": ["a", None], "value": ["\u00e4", "text"]})
    jobs = SparkJobs(spark_runtime)

    waits = [jobs.pass_by(messages), jobs.of_a_task().pass_by(texts), jobs.pass_by(messages.slice(1, 2))]
    for wait in waits:
        wait()

    [(crossed, counted)] = seen
    lengths = [None if one is None else len(one) for one in values]
    assert crossed.column("value").to_pylist() == [lengths, [2, 4], [None, 0]]
    assert crossed.column("key").to_pylist() == [None, [1, None], None]
    assert counted == len(waits)
