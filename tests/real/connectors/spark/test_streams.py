"""``mode=stream`` on a real session: what a query stages comes once and in order, through a kill and a restart."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.spark.source.reading import SparkReader
from penstock.connectors.spark.source.settings import SparkSourceConfig
from penstock.connectors.spark.source.streams import StagedBatches, Streams
from penstock.errors import ConnectException
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]


class Lab:
    def __init__(self, runtime: SparkRuntime, path: Path, **own: str) -> None:
        self.runtime, self.path = runtime, path
        settings = {"topic": "t", "mode": "stream", "spark.checkpoint.path": str(path), **own}
        self.config = SparkSourceConfig.parse(settings)
        self.rows: list[Any] = []
        self.offset: Mapping[str, Any] | None = None

    def run(self, most: int = 100) -> None:
        """Reads some chunks with a task of its own."""
        reader = SparkReader(self.config, lambda: self.runtime.session(60))
        task = Streams(self.config, reader, StagedBatches(str(self.path), "c"), lambda: self.offset, threading.Event())
        chunks = task.read(self.offset)
        for _, chunk in zip(range(most), chunks, strict=False):
            if chunk.data is not None:
                data: Any = chunk.data
                self.rows += data.to_pylist()
            self.offset = chunk.offset
        chunks.close()  # type: ignore[attr-defined]


def test_files_and_a_query_over_a_reader_of_micro_batches_come_once(
    spark_runtime: SparkRuntime, tmp_path: Path
) -> None:
    given = tmp_path / "in"
    given.mkdir()
    for number in range(3):
        (given / f"{number}.json").write_text(f'{{"id": {number}, "name": "n{number}"}}\n')
    own = {"spark.format": "json", "spark.path": str(given), "spark.schema": "id bigint, name string"}
    lab = Lab(spark_runtime, tmp_path / "state", **own, **{"spark.option.maxFilesPerTrigger": "1"})
    lab.run(most=1)
    lab.run()
    assert sorted(one["id"] for one in lab.rows) == [0, 1, 2]
    assert lab.offset == {"batch": 2, "source": '{"logOffset":2}'}
    (given / "later.json").write_text('{"id": 3, "name": null}\n')
    lab.run()
    assert lab.rows[3:] == [{"id": 3, "name": None}]
    lists = tmp_path / "state" / "c" / "rows" / "_spark_metadata"
    assert sorted(one.name for one in lists.glob("[0-9]*")) == ["2", "3"]


def test_a_format_without_a_reader_of_micro_batches_is_named(spark_runtime: SparkRuntime, tmp_path: Path) -> None:
    lab = Lab(spark_runtime, tmp_path, **{"spark.format": "jdbc", "spark.option.url": "jdbc:h2:mem:x"})
    with pytest.raises(ConnectException, match=r"spark.format: reading .* no reader of micro-batches"):
        lab.run()
    for format_name, artifact in (("kafka", "spark-sql-kafka-0-10"), ("delta", "delta-spark")):
        own = {"spark.format": format_name, "spark.path": str(tmp_path), "spark.option.subscribe": "t"}
        with pytest.raises(
            ConnectException, match=rf"has no format {format_name}\. .*spark\.jars\.packages=.*{artifact}"
        ):
            Lab(spark_runtime, tmp_path, **own).run()
    rate = Lab(spark_runtime, tmp_path, **{"spark.format": "rate-micro-batch", "spark.option.rowsPerBatch": "5"})
    rate.run(most=2)
    rate.run(most=2)
    # Those of a batch are in the order of Spark's partitions.
    assert sorted(one["value"] for one in rate.rows[:5]) == list(range(5))
    assert sorted(one["value"] for one in rate.rows) == list(range(10))
