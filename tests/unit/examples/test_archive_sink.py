"""The example of a bulk sink: what is listed is there once, whichever attempts and commits came before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from examples.archive_sink import ArchiveSink, ArchiveTask

from penstock.api import SinkFrame, TopicPartition
from penstock.api.bulk import TopicRange, WrittenRange

PLACE = TopicPartition("t", 0)


def frames(first: int, end: int) -> Iterator[SinkFrame]:
    yield SinkFrame(pa.table({"value": pa.array([f"v{one}" for one in range(first, end)])}), None, None)


def task(path: Path) -> ArchiveTask:
    made = ArchiveTask()
    made.start({"directory": str(path)})
    return made


def test_files_count_once_they_are_listed(tmp_path: Path) -> None:
    one = task(tmp_path)
    lost = TopicRange("t", 0, 0, 5, "lost")
    one.write(lost, frames(0, 5))
    assert one.positions([PLACE]) == {}
    for start in (0, 5):
        counted = TopicRange("t", 0, start, start + 5, "kept")
        one.commit([WrittenRange(counted, one.write(counted, frames(start, start + 5)), 5)], {PLACE: start + 5})
    assert task(tmp_path).positions([PLACE, TopicPartition("t", 1)]) == {PLACE: 10}
    ((_, listed),) = json.loads((tmp_path / "list.json").read_text()).items()
    lines = [line for name in listed["files"] for line in (tmp_path / name).read_text().split()]
    assert lines == [f"v{number}" for number in range(10)]


def test_the_connector_names_its_task() -> None:
    made: object = ArchiveSink().task_class()
    assert made is ArchiveTask
