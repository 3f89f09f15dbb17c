"""The example of a source of many things."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from examples.logs_source import LogsSource, LogsTask
from tests.unit.examples.source_context import Context

from penstock.api import SourceFrame
from penstock.api.partitioned import PARTITIONS_CONFIG


def started(folder: Path, context: Context) -> LogsTask:
    source = LogsSource()
    source.settings = source.config_class.parse({"folder": str(folder), "topic": "logs"})
    task = LogsTask()
    task.initialize(context)
    task.start({"folder": str(folder), "topic": "logs", PARTITIONS_CONFIG: json.dumps(source.partitions())})
    return task


def seen(frame: SourceFrame | None) -> tuple[object, list[object], object]:
    assert frame is not None
    assert isinstance(frame.data, pa.Table)
    rows = [row["text"] for row in frame.data.column("value").to_pylist()]
    return frame.source_partition["file"], rows, frame.source_offset


def test_each_file_goes_on_where_its_offset_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\ntwo\n")
    (tmp_path / "b.csv").write_text("text\nthree\n")
    context = Context()
    context.commit({"file": "a.csv"}, {"rows": 1})
    task = started(tmp_path, context)
    assert [seen(task.poll()), seen(task.poll())] == [
        ("a.csv", ["two"], {"rows": 2}),
        ("b.csv", ["three"], {"rows": 1}),
    ]
    task.stop()
