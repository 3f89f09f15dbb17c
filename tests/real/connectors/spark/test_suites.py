"""The Spark connectors through the suites of the authors' kit, on a real session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api import BackfillSpan, SinkRecord
from penstock.connectors.spark import SparkSink, SparkSource
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.pipeline.spark.session import SparkRuntime
from penstock.testing import FrameSuite, SinkSuite, SourceSuite, run_backfill

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(autouse=True)
def session(spark_runtime: SparkRuntime, request: pytest.FixtureRequest) -> Iterator[None]:
    def current() -> object:
        found = spark_runtime.current(60.0)
        assert found is not None
        return found[0]

    request.cls.spark = staticmethod(current)
    yield
    request.cls.spark = None


class _Source(FrameSuite, SourceSuite):
    connector = SparkSource
    most_kills = 3
    timeout_s = 60.0
    stop_s = 3.0
    tasks_max = 1


class TestFiles(_Source):
    """Files of Parquet, one by one."""

    count = 9

    def prepare(self, path: Path) -> dict[str, str]:
        self.path = path
        for number in range(3):
            pq.write_table(pa.table({"id": range(3 * number, 3 * number + 3)}), path / f"{number}.parquet")
        return {"spark.format": "parquet", "spark.path": str(path), "mode": "files", "topic": "t"} | {
            "files.settle.ms": "0",
            "poll.interval.ms": "400",
        }

    def change(self) -> int:
        pq.write_table(pa.table({"id": [100], "more": ["x"]}), self.path / "later.parquet")
        return 1


class TestIncrementing(_Source):
    """Rows of JSON files by a column, in batches that cut rows of one value."""

    count = 12

    def prepare(self, path: Path) -> dict[str, str]:
        rows = [f'{{"n": {number // 2}, "name": "row {number}"}}' for number in range(12)]
        (path / "rows.json").write_text("\n".join(reversed(rows)))
        return {
            "spark.format": "json",
            "spark.path": str(path),
            "mode": "incrementing",
            "incrementing.column.name": "n",
            "topic": "t",
            "key.columns": "name",
            "batch.max.rows": "5",
            "poll.interval.ms": "400",
        }


class TestBulkQuery(_Source):
    """All rows of a query, sorted."""

    count = 20

    def prepare(self, path: Path) -> dict[str, str]:
        return {"spark.query": "SELECT id, id * 2 AS twice FROM range(20)", "mode": "bulk", "topic": "t"} | {
            "poll.interval.ms": "400"
        }


ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


class TestParquetSink(FrameSuite, SinkSuite):
    """Rows into Parquet, as many in a file as are put together."""

    connector = SparkSink
    exactly_once = False
    most_kills = 3
    timeout_s = 60.0
    stop_s = 10.0

    def prepare(self, path: Path) -> dict[str, str]:
        self.target = path / "out"
        return {"spark.format": "parquet", "spark.path": str(self.target)} | {
            "frame.min.rows": "4",
            "frame.max.wait.ms": "20",
            "metadata.columns": "partition,offset",
            "retry.backoff.ms": "1",
        }

    def records(self) -> list[SinkRecord]:
        return [
            SinkRecord("t", number % 2, 0, Struct(ROW).put("id", number).put("name", f"n{number}"), value_schema=ROW)
            for number in range(6)
        ]

    def contents(self) -> list[object]:
        files = sorted(self.target.glob("*.parquet")) if self.target.exists() else []
        return [(row["id"], row["name"]) for file in files for row in pq.read_table(file).to_pylist()]


class TestBackfills:
    """Ranges by columns of several types, which only Spark can compare."""

    def test_a_range_is_found_by_the_type_of_its_column(self, tmp_path: Path) -> None:
        days = pa.array(range(20_000, 20_009), pa.int32()).cast(pa.date32())
        times = pa.array([one * 86_400_000_000 for one in range(20_000, 20_009)], pa.timestamp("us", "UTC"))
        names = [f"n{one}" for one in range(9)]
        pq.write_table(pa.table({"id": range(9), "day": days, "at": times, "name": names}), tmp_path / "a.parquet")
        base = {"spark.format": "parquet", "spark.path": str(tmp_path), "topic": "t", "mode": "incrementing"}
        day_ms = 86_400_000
        of_days = BackfillSpan(start_ms=20_003 * day_ms, end_ms=20_005 * day_ms)
        for column, span in [
            ("id", BackfillSpan(first="3", end=5)),
            ("day", of_days),
            ("at", of_days),
            ("name", BackfillSpan(first="n3", end="n5")),
        ]:
            settings = {**base, "incrementing.column.name": column}
            run = run_backfill(SparkSource, settings, span, spark=self.spark)  # type: ignore[attr-defined]
            found = [one.get("id") for one in run.values], [one.rows for one in run.parts]
            assert found == ([3, 4], [2]), column
