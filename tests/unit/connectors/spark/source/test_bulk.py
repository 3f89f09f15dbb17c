"""The runs of a source whose rows executors write: the same one again until its offset is committed."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.unit.examples.source_context import Context

from penstock.connectors.spark import SparkSource
from penstock.connectors.spark.source import bulk as module
from penstock.connectors.spark.source.bulk import SparkBulkSourceTask
from penstock.data import SchemaBuilder
from penstock.errors import ConnectException

SETTINGS = {
    "name": "load",
    "topic": "t",
    "mode": "bulk",
    "spark.bulk": "true",
    "spark.format": "parquet",
    "spark.path": "/in",
    "poll.interval.ms": "1",
}
PARTITION = {"source": "/in", "mode": "bulk"}
NAME = hashlib.sha256(b"/in").hexdigest()[:8]
SCHEMA = SchemaBuilder.struct().field("id", SchemaBuilder.int64().build()).build()


class Records:
    schema, key_schema = SCHEMA, None

    @staticmethod
    def columns_of(rows: object) -> object:
        return ("columns of", rows)


class Reader:
    """Reads nothing, and says with which session."""

    def __init__(self, config: Any, session: Any) -> None:
        self._session = session

    def all(self) -> object:
        return ("rows of", self._session())

    def records(self, rows: object) -> type[Records]:
        return Records


class SparkContext(Context):
    def spark(self) -> Any:
        return "the worker's"


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> SparkContext:
    monkeypatch.setattr(module, "SparkReader", Reader)
    return SparkContext()


def started(context: SparkContext) -> SparkBulkSourceTask:
    connector = SparkSource()
    connector.start(SETTINGS)
    task = connector.task_class()()
    connector.stop()
    assert isinstance(task, SparkBulkSourceTask)
    task.initialize(context)
    task.start(SETTINGS)
    return task


def test_all_rows_are_one_run_and_nothing_follows_it(context: SparkContext) -> None:
    task = started(context)
    frame = task.poll()
    assert frame is not None
    session: Any = "the run's"
    made: object = frame.data(session)
    assert made == ("columns of", ("rows of", "the run's"))
    assert (frame.topic, frame.run, frame.source_partition, frame.source_offset) == (
        "t",
        f"bulk-1-{NAME}",
        PARTITION,
        {"run": 1, "done": True},
    )
    assert (frame.value_schema, frame.key_schema) == (SCHEMA, None)
    assert task.poll() is None


def test_other_data_is_another_run(context: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    first = started(context).poll()
    monkeypatch.setitem(SETTINGS, "spark.path", "/other")
    other = started(context).poll()
    assert first is not None
    assert other is not None
    assert first.run != other.run


def test_a_restart_returns_the_same_run_until_it_is_committed(context: SparkContext) -> None:
    first, again = started(context).poll(), started(context).poll()
    assert first is not None
    assert again is not None
    assert (first.run, first.source_offset) == (again.run, again.source_offset)
    context.commit(PARTITION, {"run": 1, "done": True})
    assert started(context).poll() is None


def test_an_offset_that_a_reading_worker_has_left_in_the_middle_is_a_run_of_its_own(context: SparkContext) -> None:
    context.commit(PARTITION, {"run": 2, "through": "b.parquet"})
    frame = started(context).poll()
    assert frame is not None
    assert (frame.run, frame.source_offset) == (f"bulk-2-{NAME}", {"run": 2, "done": True})


def test_an_offset_of_another_mode_is_named(context: SparkContext) -> None:
    context.commit(PARTITION, {"through": 5})
    with pytest.raises(ConnectException, match=r"is none of mode=bulk: reset the connector's offsets"):
        started(context).poll()
