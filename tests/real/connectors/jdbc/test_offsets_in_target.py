"""Offsets in the database that the sink writes to: kills at each step, tasks that were replaced, bad rows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from tests.real.connectors.jdbc.writing import HERE, Database, Start, Writing, record

from penstock.connectors.jdbc import JdbcSink
from penstock.connectors.jdbc.sink.writing import TableChangeWriter
from penstock.errors import ConnectException, OwnershipLostException, RetriableException
from penstock.testing.kit.lives import KilledException

pytestmark = pytest.mark.slow

SETTINGS = {"offsets.in.target": "true"}
TOPIC = [record(n, f"n{n}") for n in range(30)]


@pytest.fixture(autouse=True)
def table(database: Database, name: str) -> None:
    """A table without a key, where each row that comes twice is there twice."""
    database.run(
        f"CREATE TABLE {name} (id bigint CHECK (id <> 13), name text)", "DROP TABLE IF EXISTS penstock_offsets"
    )


def ids(database: Database, name: str) -> list[int]:
    return [one for (one,) in database.rows(f"SELECT id FROM {name} ORDER BY id")]


def kept(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT connector, topic, kafka_partition, next_offset FROM penstock_offsets")


def deliver(writing: Writing, size: int = 5, committed: int = 0, until: int = 30) -> None:
    """The rows of the topic from where the task wants to begin, else from Kafka's offset."""
    place = writing.context.take_rewinds().get(HERE, committed)
    while place < until:
        writing.put(TOPIC[place : min(place + size, until)], first=place)
        place += size


def before_the_transaction(write: Any, writer: TableChangeWriter, arguments: Sequence[Any]) -> None:
    raise KilledException


def in_the_transaction(write: Any, writer: TableChangeWriter, arguments: Sequence[Any]) -> None:
    writes, move = arguments

    def dies(run: Any) -> None:
        move(run)
        raise KilledException

    write(writer, writes, dies)


def after_the_commit(write: Any, writer: TableChangeWriter, arguments: Sequence[Any]) -> None:
    write(writer, *arguments)
    raise KilledException


@pytest.mark.parametrize("step", [before_the_transaction, in_the_transaction, after_the_commit])
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    start: Start, database: Database, name: str, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = start(database, name, SETTINGS)
    deliver(writing, until=10)
    kind = type(writing.task._database)
    write = kind.write
    monkeypatch.setattr(kind, "write", lambda writer, *arguments: step(write, writer, arguments))
    with pytest.raises(KilledException):
        writing.put(TOPIC[10:15], first=10)
    monkeypatch.undo()
    writing.task.stop()
    again = start(database, name, SETTINGS)
    deliver(again, size=7)
    assert ids(database, name) == [n for n in range(30) if n != 13]
    assert kept(database) == [("s", "t", 0, 30)]
    assert again.reported == [13]


def test_a_task_that_was_replaced_writes_nothing_whether_or_not_the_next_one_has_written(
    start: Start, database: Database, name: str
) -> None:
    stale = start(database, name, SETTINGS)
    deliver(stale, until=10)
    owner = start(database, name, SETTINGS)
    with pytest.raises(OwnershipLostException, match="belongs to another task"):
        stale.put(TOPIC[10:15], first=10)
    deliver(owner, until=12)
    with pytest.raises(OwnershipLostException, match="was replaced"):
        stale.put(TOPIC[10:12], first=10)
    deliver(owner, committed=12)
    assert ids(database, name) == [n for n in range(30) if n != 13]
    assert owner.context.reported[0][0] == 13


def test_an_owner_waits_for_the_transaction_of_the_one_before(start: Start, database: Database, name: str) -> None:
    stale = start(database, name, SETTINGS)
    assert stale.task._offsets is not None
    # DuckDB does not wait for another transaction: the task tries again.
    patient = {**SETTINGS, "connection.backoff.ms": "100", "connection.attempts": "200"}
    with closing(database.connect()) as open_transaction:
        cursor = open_transaction.cursor()
        cursor.execute("BEGIN")
        # As a task moves it; without RETURNING, DuckDB sees conflicts in single columns only.
        returning = "RETURNING next_offset" if database.kind == "duckdb" else ""
        cursor.execute(f"UPDATE penstock_offsets SET next_offset = 4 {returning}")
        started: list[Writing] = []
        thread = threading.Thread(target=lambda: started.append(start(database, name, patient)))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        open_transaction.commit()
    thread.join(30)
    assert started[0].context.take_rewinds() == {HERE: 4}


def test_a_commit_whose_answer_was_lost_is_seen(
    start: Start, database: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = start(database, name, SETTINGS)
    kind = type(writing.task._database)
    write = kind.write

    def is_lost(writer: TableChangeWriter, *arguments: Any) -> None:
        write(writer, *arguments)
        raise RetriableException("no answer")

    monkeypatch.setattr(kind, "write", is_lost)
    with pytest.raises(RetriableException, match="no answer"):
        writing.put(TOPIC[:5])
    monkeypatch.undo()
    with pytest.raises(RetriableException, match="whose end was not seen"):
        writing.put(TOPIC[:5])
    writing.put(TOPIC[:5])
    writing.put(TOPIC[5:7], first=5)
    assert ids(database, name) == list(range(7))


@pytest.mark.parametrize("bad", [[4], [0], [0, 1, 2, 3, 4]])
def test_offsets_pass_bad_rows_when_their_reports_are_stored(
    start: Start, database: Database, name: str, bad: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = start(database, name, SETTINGS)
    stored: list[Future[None]] = []

    class Stored(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            assert kept(database)[0][3] <= bad[0]
            stored.append(self)

    report = writing.context.report
    monkeypatch.setattr(writing.context, "report", lambda *args: (report(*args), Stored())[1])
    writing.put([record(13 if n in bad else n, None) for n in range(5)])
    assert kept(database) == [("s", "t", 0, 5)]
    assert len(stored) == len(bad)
    assert ids(database, name) == [n for n in range(5) if n not in bad]


def test_a_topic_that_was_made_again_is_an_error_and_not_a_loss(start: Start, database: Database, name: str) -> None:
    deliver(start(database, name, SETTINGS), until=10)
    again = start(database, name, SETTINGS)
    with pytest.raises(ConnectException, match="deleted and made again"):
        again.put(TOPIC[:5])
    assert ids(database, name) == list(range(10))


def test_offsets_that_a_user_sets_count(start: Start, database: Database, name: str) -> None:
    writing = start(database, name, SETTINGS)
    deliver(writing, until=10)
    assert JdbcSink().alter_offsets(writing.props, {HERE: 7})
    assert start(database, name, SETTINGS).context.take_rewinds() == {HERE: 7}
    assert JdbcSink().alter_offsets(writing.props, {HERE: None})
    assert start(database, name, SETTINGS).context.take_rewinds() == {}


def test_rows_of_a_router_keep_the_offsets_of_where_they_were_read(start: Start, database: Database, name: str) -> None:
    writing = start(database, name, SETTINGS)
    writing.put(TOPIC[:5], topic="routed")
    assert kept(database) == [("s", "t", 0, 5)]
