"""What executors write of frames, in each format, and which ranges are planned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, orc, parquet

from penstock.api import SinkFrame, TopicPartition
from penstock.api.bulk import TopicRange, WrittenRange
from penstock.connectors.spark.sink.bulk import SparkBulkSinkTask

PLACE = TopicPartition("t", 0)
ROWS: list[dict[str, Any] | None] = [{"id": one, "name": f"n{one}"} for one in range(4)]


class Context:
    """Takes reports."""

    def __init__(self) -> None:
        self.reported: list[int] = []

    def report(self, frame: SinkFrame, rows: Any, error: BaseException) -> None:
        self.reported += (
            pa.array(range(frame.num_rows)).take(pa.array([rows] if isinstance(rows, int) else rows)).to_pylist()
        )

    def blames_rows(self, error: BaseException) -> bool:
        return True


def frame(rows: Sequence[dict[str, Any] | None], context: Any = None, first: int = 0) -> SinkFrame:
    count = len(rows)
    columns = {
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "key": pa.nulls(count),
        "value": pa.array(rows),
    }
    return SinkFrame(pa.table(columns), None, None, _context=context)


def run(path: Path, frames: Sequence[SinkFrame], context: Any = None, **own: str) -> list[Path]:
    """Writes a range, commits it and returns the files."""
    task = SparkBulkSinkTask()
    settings = {"spark.format": "parquet", **{name.replace("__", "."): text for name, text in own.items()}}
    task.start({"name": "lake", "topics": "t", "spark.path": str(path), "spark.bulk": "true", **settings})
    task.context = context
    one = TopicRange(*PLACE, 0, 10, "attempt")
    task.commit([WrittenRange(one, task.write(one, iter(frames)), 10)], {PLACE: 10})
    assert task.positions([PLACE]) == {PLACE: 10}
    return sorted(found for found in path.iterdir() if found.is_file())


READERS: dict[str, Any] = {
    "parquet": lambda file: parquet.read_table(file).to_pylist(),
    "orc": lambda file: orc.read_table(file).to_pylist(),
    "csv": lambda file: csv.read_csv(file).to_pylist(),
    "json": lambda file: [json.loads(line) for line in file.read_text().splitlines()],
}


@pytest.mark.parametrize("kind", READERS)
def test_a_range_is_a_file_of_each_format(tmp_path: Path, kind: str) -> None:
    options = {"spark__option__header": "true"} if kind == "csv" else {}
    (file,) = run(tmp_path, [frame(ROWS[:2]), frame(ROWS[2:], first=2)], spark__format=kind, **options)
    assert READERS[kind](file) == ROWS
    assert file.name.startswith("t-0-00000000000000000000-00000000000000000010.")


def test_columns_that_change_are_a_file_of_their_own(tmp_path: Path) -> None:
    files = run(tmp_path, [frame(ROWS[:2]), frame([{"id": "text"}])])
    assert sorted(parquet.read_table(one).num_rows for one in files) == [1, 2]


def test_a_range_without_rows_has_no_file_and_counts(tmp_path: Path) -> None:
    assert run(tmp_path, []) == []


def test_types_and_places_are_those_of_the_settings(tmp_path: Path) -> None:
    (file,) = run(
        tmp_path,
        [frame(ROWS)],
        spark__schema="id int, name string",
        metadata__columns="offset",
        spark__format="parquet",
    )
    table = parquet.read_table(file)
    assert [str(one.type) for one in table.schema] == ["int32", "string", "int64"]
    assert table.column("kafka_offset").to_pylist() == [0, 1, 2, 3]


def test_null_values_and_values_that_do_not_fit_are_reported(tmp_path: Path) -> None:
    context = Context()
    (file,) = run(tmp_path, [frame([*ROWS, None], context)], context)
    assert parquet.read_table(file).num_rows == 4
    assert context.reported == [4]
    context = Context()
    bad = [{"id": 1 << 40}, {"id": 3}]
    (file,) = run(tmp_path / "typed", [frame(bad, context)], context, spark__schema="id int")
    assert parquet.read_table(file).to_pylist() == [{"id": 3}]
    assert context.reported == [0]


def test_a_relative_path_is_one_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = SparkBulkSinkTask()
    task.start({"name": "lake", "topics": "t", "spark.path": "lake", "spark.format": "parquet", "spark.bulk": "true"})
    assert task._files._root == str(tmp_path / "lake")
