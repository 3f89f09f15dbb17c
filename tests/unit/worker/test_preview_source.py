"""The first records of a source, read by a process that can be ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.api import SourceConnector, SourceRecord, SourceTask
from penstock.config import ConfigDef
from penstock.connectors.file import FileStreamSourceConnector
from penstock.errors import ConnectException
from penstock.model.preview import PreviewLimits
from penstock.worker.preview_source import first_records

pytestmark = pytest.mark.slow


class CountingTask(SourceTask):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)
        self.count = 0
        if "pid" in props:
            Path(props["pid"]).write_text(str(os.getpid()))

    def poll(self) -> list[SourceRecord]:
        match self.props["do"]:
            case "block":
                threading.Event().wait()
            case "fail":
                raise ConnectException("no such table")
        self.count += 1
        return [SourceRecord({"n": 1}, {"at": self.count}, "t", {"number": self.count})] * 3

    def stop(self) -> None: ...


class Counting(SourceConnector):
    def start(self, props: Mapping[str, str]) -> None:
        self.props = dict(props)

    def task_class(self) -> type[Any]:
        return CountingTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [] if self.props["do"] == "nothing" else [self.props]

    def stop(self) -> None: ...

    def config(self) -> ConfigDef:
        return ConfigDef()


def test_reading_ends_with_the_number_of_records() -> None:
    read = first_records(Counting, {"do": "count"}, PreviewLimits(records=7, seconds=30))
    assert [record.value for record in read.records] == [{"number": n} for n in (1, 1, 1, 2, 2, 2, 3)]
    assert (read.ended, read.error) == ("records", None)


def test_reading_ends_with_the_bytes() -> None:
    read = first_records(Counting, {"do": "count"}, PreviewLimits(records=10_000, seconds=30, bytes=2_000))
    assert 0 < len(read.records) < 1_000
    assert read.ended == "bytes"


def test_a_source_that_blocks_for_ever_is_gone_after_its_time(tmp_path: Path) -> None:
    begin = time.monotonic()
    pid = tmp_path / "pid"
    read = first_records(Counting, {"do": "block", "pid": str(pid)}, PreviewLimits(seconds=6))
    assert (read.records, read.ended) == ([], "seconds")
    assert time.monotonic() - begin < 12
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_an_error_of_the_source_is_told() -> None:
    read = first_records(Counting, {"do": "fail"}, PreviewLimits(seconds=30))
    assert (read.records, read.ended) == ([], "error")
    assert read.error == "ConnectException: no such table"


def test_a_source_without_tasks_has_no_records() -> None:
    assert first_records(Counting, {"do": "nothing"}, PreviewLimits(seconds=30)).ended == "end"


def test_a_columnar_source_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("".join(f"line {number}\n" for number in range(100)))
    config = {"file": str(file), "topic": "t", "name": "f"}
    read = first_records(FileStreamSourceConnector, config, PreviewLimits(records=4, seconds=30))
    assert [record.value for record in read.records] == [f"line {number}" for number in range(4)]
    assert {record.topic for record in read.records} == {"t"}
    assert read.ended == "records"
