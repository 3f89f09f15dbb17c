"""The SQLite sink of the documentation, with the worker's own context."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest
from examples.sqlite_sink import SqliteSink, SqliteTask

from penstock.api import OffsetAndMetadata, SinkRecord, TopicPartition
from penstock.data import STRING_SCHEMA
from penstock.errors import IllegalWorkerStateException, RetriableException
from penstock.worker.sink.context import WorkerSinkTaskContext

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(place: TopicPartition, offset: int, value: object) -> SinkRecord:
    return SinkRecord(*place, offset, value, value_schema=STRING_SCHEMA)


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {{"t0": T0, "t1": T1}[name]: OffsetAndMetadata(offset) for name, offset in offsets.items()}


class Running:
    """A started task with its context and database file."""

    def __init__(self, database: Path, **settings: str) -> None:
        self.database = database
        connector = SqliteSink()
        connector.start({"name": "s", "topics": "t", "database": str(database), **settings})
        [config] = connector.task_configs(1)
        self.context = WorkerSinkTaskContext(
            "s task 0",
            read_config=dict,
            assignment=lambda: frozenset({T0, T1}),
            reporter=None,
            wake=lambda: None,
        )
        self.task: SqliteTask = connector.task_class()()
        self.task.initialize(self.context)
        self.task.start(config)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, closing: bool = False) -> object:
        self.context.set_closing(closing)
        try:
            return self.task.pre_commit(offsets)
        finally:
            self.context.set_closing(False)

    @property
    def rows(self) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.database) as connection:
            found = connection.execute('SELECT partition, "offset", value FROM records ORDER BY 1, 2').fetchall()
        connection.close()
        return found


@pytest.fixture
def running(tmp_path: Path):
    tasks: list[Running] = []

    def start(**settings: str) -> Running:
        tasks.append(Running(tmp_path / "sink.db", **{"buffer.ms": "3600000", **settings}))
        return tasks[-1]

    yield start
    for one in tasks:
        one.task.stop()


def test_a_periodic_commit_leaves_the_buffer_and_commits_what_is_before_it(running) -> None:
    sink = running()

    sink.task.put([record(T0, 5, "a"), record(T0, 6, "b")])

    # Records up to 8 of t-1 were dropped by a transform: nothing of them waits.
    assert sink.commit(at(t0=7, t1=9)) == at(t0=5, t1=9)
    assert sink.rows == []


def test_the_last_commit_writes_the_buffer_and_commits_everything(running) -> None:
    sink = running()
    sink.task.put([record(T0, 5, "a"), record(T1, 8, "b")])

    assert sink.commit(at(t0=6, t1=9), closing=True) == at(t0=6, t1=9)

    assert sink.rows == [(0, 5, "a"), (1, 8, "b")]


def test_a_full_buffer_is_written_before_more_is_taken(running) -> None:
    sink = running(**{"buffer.rows": "2"})

    sink.task.put([record(T0, 0, "a"), record(T0, 1, "b")])
    assert sink.rows == []
    sink.task.put([record(T0, 2, "c")])

    assert sink.rows == [(0, 0, "a"), (0, 1, "b")]
    assert sink.commit(at(t0=3)) == at(t0=2)


def test_an_old_buffer_is_written_also_when_nothing_more_comes(running) -> None:
    sink = running(**{"buffer.ms": "0"})

    sink.task.put([record(T0, 0, "a")])
    sink.task.put([])

    assert sink.rows == [(0, 0, "a")]
    assert sink.commit(at(t0=1)) == at(t0=1)


def test_records_of_lost_partitions_are_forgotten(running) -> None:
    sink = running()
    sink.task.put([record(T0, 5, "a"), record(T1, 8, "b")])

    sink.task.close([T1])  # Lost: no commit came before.

    assert sink.commit(at(t0=6), closing=True) == at(t0=6)
    assert sink.rows == [(0, 5, "a")]


def test_records_that_come_twice_are_there_once(running) -> None:
    sink = running()

    sink.task.put([record(T0, 5, "a"), record(T0, 5, "a")])
    sink.commit(at(t0=6), closing=True)

    assert sink.rows == [(0, 5, "a")]


def test_a_locked_database_makes_the_records_come_again_and_loses_none(running) -> None:
    sink = running(**{"buffer.rows": "1"})
    sink.task.database.execute("PRAGMA busy_timeout = 0")
    sink.task.put([record(T0, 0, "a")])
    other = sqlite3.connect(sink.database)
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(RetriableException, match="does not take 1 records now"):
        sink.task.put([record(T0, 1, "b")])
    assert sink.commit(at(t0=1)) == at(t0=0)
    other.rollback()
    other.close()
    sink.task.put([record(T0, 1, "b")])
    sink.commit(at(t0=2), closing=True)

    assert sink.rows == [(0, 0, "a"), (0, 1, "b")]


def test_renamed_topics_do_not_change_what_is_committed(running) -> None:
    sink = running()

    sink.task.put([record(T0, 5, "a").new_record(topic="renamed", partition=3)])

    assert sink.commit(at(t0=6)) == at(t0=5)


def test_null_keys_and_values_stay_null(running) -> None:
    sink = running()

    sink.task.put([SinkRecord("t", 0, 0, None)])
    sink.commit(at(t0=1), closing=True)

    assert sink.rows == [(0, 0, None)]


def test_stop_after_a_failed_start_is_harmless() -> None:
    SqliteTask().stop()


def test_the_context_says_when_it_is_closed(running) -> None:
    sink = running()
    sink.task.put([record(T0, 5, "a")])

    sink.context.close()

    with pytest.raises(IllegalWorkerStateException):
        sink.commit(at(t0=6))
