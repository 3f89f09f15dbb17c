"""The sink of the documentation that reports records."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from examples.numbers_sink import NumbersSink, NumbersTask

from penstock.api import ErrantRecordReporter, SinkRecord
from penstock.errors import ConnectException, DataException
from penstock.worker.sink.context import WorkerSinkTaskContext


class Reports(ErrantRecordReporter):
    """Takes every report, or none."""

    def __init__(self, *, tolerant: bool = True) -> None:
        self.offsets: list[int] = []
        self._tolerant = tolerant

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        assert isinstance(error, DataException)
        if not self._tolerant:
            raise ConnectException("nothing is tolerated")
        self.offsets.append(record.kafka_offset)
        return Future()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    tasks: list[NumbersTask] = []

    def started(reporter: ErrantRecordReporter | None) -> NumbersTask:
        connector = NumbersSink()
        connector.start({"name": "n", "topics": "t", "file": str(tmp_path / "numbers")})
        task = connector.task_class()()
        context = WorkerSinkTaskContext(
            "n task 0", read_config=dict, assignment=frozenset, reporter=reporter, wake=lambda: None
        )
        task.initialize(context)
        task.start(connector.task_configs(1)[0])
        tasks.append(task)
        return task

    yield started
    for task in tasks:
        task.stop()


def records(*values: object) -> list[SinkRecord]:
    return [SinkRecord("t", 0, offset, value) for offset, value in enumerate(values)]


def test_bad_records_are_reported_and_the_others_written(start, tmp_path: Path) -> None:
    reports = Reports()
    task = start(reports)

    task.put(records("1", "one", 2.5, {"not": "a number"}))
    task.flush({})

    assert (tmp_path / "numbers").read_text() == "1.0\n2.5\n"
    assert reports.offsets == [1, 3]


def test_without_a_reporter_the_error_ends_the_task(start) -> None:
    with pytest.raises(DataException):
        start(None).put(records("one"))


def test_where_nothing_is_tolerated_the_reporter_ends_the_task(start) -> None:
    with pytest.raises(ConnectException, match="nothing is tolerated"):
        start(Reports(tolerant=False)).put(records("one"))


def test_stop_copes_with_a_task_that_did_not_start() -> None:
    NumbersTask().stop()
