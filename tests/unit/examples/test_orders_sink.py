"""The columnar sink of the documentation, with the worker's own context."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples.orders_sink import OrdersSink, OrdersTask
from testkit.doubles.contexts import ReportingSinkContext

from penstock.api import OffsetAndMetadata, SinkFrame, TopicPartition
from penstock.data import STRING_SCHEMA
from penstock.errors import DataException, OwnershipLostException, RetriableException

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "orders.db"


@pytest.fixture
def start(database: Path) -> Iterator[Callable[[], tuple[OrdersTask, ReportingSinkContext]]]:
    tasks: list[OrdersTask] = []

    def started() -> tuple[OrdersTask, ReportingSinkContext]:
        connector = OrdersSink()
        connector.start({"name": "s", "topics": "a,b", "database": str(database)})
        task, context = connector.task_class()(), ReportingSinkContext()
        task.initialize(context)
        task.start(connector.task_configs(1)[0])
        task.open([A, B])
        tasks.append(task)
        return task, context

    yield started
    for task in tasks:
        task.stop()


def orders(database: Path) -> list[tuple[str, str, int]]:
    connection = sqlite3.connect(database)
    found = connection.execute("SELECT * FROM orders ORDER BY id").fetchall()
    connection.close()
    return found


def frame_of(
    place: TopicPartition, first: int, rows: Sequence[tuple[str, Any]], context: ReportingSinkContext
) -> SinkFrame:
    """Rows of a topic that were routed to another one: keys, and totals or None."""
    count = len(rows)
    values = [None if total is None else {"customer": {"name": f"c{key}"}, "total": total} for key, total in rows]
    table = pa.table({"key": [key for key, _ in rows], "value": values})
    origin = pa.table({"topic": [place.topic] * count, "partition": [0] * count, "offset": range(first, first + count)})
    return SinkFrame(table, STRING_SCHEMA, None, origin=origin, _context=context)


def test_orders_come_and_go_and_their_places_are_those_they_were_read_from(start: Any, database: Path) -> None:
    task, context = start()

    task.put(frame_of(A, 0, [("1", 1.5), ("2", 2.25), ("1", None)], context))
    task.put(frame_of(B, 0, [("3", 10.0)], context))
    task.put(frame_of(B, 0, [("3", 10.0), ("4", 1.0)], context))

    assert orders(database) == [("2", "c2", 225), ("3", "c3", 1000), ("4", "c4", 100)]
    assert task.next == {A: 3, B: 2}
    assert task.pre_commit({A: OffsetAndMetadata(3)}) == {}
    _, later = start()
    assert later.take_rewinds() == {A: 3, B: 2}


def test_bad_orders_are_reported_and_the_others_are_there(start: Any, database: Path) -> None:
    task, context = start()

    task.put(frame_of(A, 0, [("1", 1.5), ("2", -1.0), ("3", 0.125), ("4", 4.0)], context))

    assert orders(database) == [("1", "c1", 150), ("4", "c4", 400)]
    assert [(at, told.partition(":")[0]) for at, told in context.reported] == [
        (1, "IntegrityError"),
        (2, "DataException"),
    ]
    assert DataException in type(DataException()).__mro__
    assert task.next == {A: 4}


def test_a_locked_database_asks_for_the_same_frame_again_and_nothing_is_reported(start: Any, database: Path) -> None:
    task, context = start()
    task.database.execute("PRAGMA busy_timeout=10")
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(RetriableException, match="does not take 2 rows now: database is locked"):
        task.put(frame_of(A, 0, [("1", 1.5), ("2", 1.0)], context))

    other.execute("ROLLBACK")
    other.close()
    task.put(frame_of(A, 0, [("1", 1.5), ("2", 1.0)], context))
    assert (len(orders(database)), context.reported) == (2, [])


def test_a_task_that_was_replaced_writes_nothing(start: Any, database: Path) -> None:
    old, context = start()
    new, other = start()
    new.put(frame_of(A, 0, [("1", 1.0)], other))

    with pytest.raises(OwnershipLostException, match="Another task has read"):
        old.put(frame_of(A, 0, [("1", 9.0), ("2", 9.0)], context))

    assert orders(database) == [("1", "c1", 100)]
    assert context.reported == []


def test_the_database_is_looked_after_by_the_clock(start: Any) -> None:
    _, context = start()
    assert context.calls.wait_s(0.0) > 0
    due = context.calls.next_due(float("1e12"))
    assert due is not None
    assert due.seconds == 60.0
    due.call()
