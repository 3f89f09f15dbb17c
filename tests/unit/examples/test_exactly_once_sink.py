"""The exactly-once sink of the documentation, with the worker's own context."""

import sqlite3

import pytest
from examples.exactly_once_sink import ExactlyOnceSink

from penstock.api import OffsetAndMetadata, SinkRecord, TopicPartition
from penstock.data import STRING_SCHEMA
from penstock.errors import OwnershipLostException, RetriableException
from penstock.worker.sink.context import WorkerSinkTaskContext

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(place, offset):
    return SinkRecord(*place, offset, f"{place.partition}-{offset}", value_schema=STRING_SCHEMA)


@pytest.fixture
def database(tmp_path):
    return tmp_path / "sink.db"


@pytest.fixture
def start(database):
    tasks = []

    def start(*partitions):
        connector = ExactlyOnceSink()
        connector.start({"name": "s", "topics": "t", "database": str(database)})
        [config] = connector.task_configs(1)
        task = connector.task_class()()
        context = WorkerSinkTaskContext(
            "s task 0", read_config=dict, assignment=lambda: frozenset(partitions), reporter=None, wake=lambda: None
        )
        task.initialize(context)
        task.start(config)
        task.open(list(partitions))
        tasks.append(task)
        return task, context

    yield start
    for task in tasks:
        task.stop()


def values(database):
    connection = sqlite3.connect(database)
    found = [value for (value,) in connection.execute('SELECT value FROM lines ORDER BY partition, "offset", rowid')]
    connection.close()
    return found


def test_a_new_task_goes_on_where_the_database_is(start, database):
    task, context = start(T0, T1)
    assert context.take_rewinds() == {}
    task.put([record(T0, 3), record(T1, 0), record(T0, 5)])
    assert task.pre_commit({T0: OffsetAndMetadata(6), T1: OffsetAndMetadata(1)}) == {}
    task.stop()

    later, context = start(T0, T1)
    assert context.take_rewinds() == {T0: 6, T1: 1}
    later.put([record(T0, 5), record(T0, 9)])
    assert values(database) == ["0-3", "0-5", "0-9", "1-0"]


@pytest.mark.parametrize("known", [True, False])
def test_a_task_that_was_replaced_writes_nothing(start, database, known):
    if known:
        start(T0)[0].put([record(T0, 0)])
    zombie, _ = start(T0, T1)
    owner, _ = start(T0)
    owner.put([record(T0, 1), record(T0, 2)])
    with pytest.raises(OwnershipLostException, match="Another task has read t on"):
        zombie.put([record(T1, 0), record(T0, 1), record(T0, 2)])
    owner.put([record(T0, 3)])
    assert values(database) == [*(["0-0"] if known else []), "0-1", "0-2", "0-3"]


def test_a_database_that_is_locked_is_tried_again(start, database):
    task, _ = start(T0)
    other = sqlite3.connect(database, isolation_level=None)
    task.database.execute("PRAGMA busy_timeout = 0")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RetriableException, match="does not take 1 records now"):
        task.put([record(T0, 0)])
    other.execute("ROLLBACK")
    other.close()
    task.put([record(T0, 0)])
    assert values(database) == ["0-0"]


def test_offsets_that_a_user_changes_are_changed_in_the_database(start, database):
    task, _ = start(T0, T1)
    task.put([record(T0, 0), record(T1, 4)])
    props = {"database": str(database)}
    assert ExactlyOnceSink().alter_offsets(props, {T0: 7, T1: None})
    assert start(T0, T1)[1].take_rewinds() == {T0: 7}
    assert ExactlyOnceSink().alter_offsets(props, {})
    assert start(T0, T1)[1].take_rewinds() == {}
