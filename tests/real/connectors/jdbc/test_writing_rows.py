"""The sink task against PostgreSQL and SQLite, without Kafka: bad rows, tombstones, keys of messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.real.connectors.jdbc.writing import VALUE, Database, Start, record

from penstock.broker.postgresql import PostgreSql
from penstock.errors import ConnectException, RetriableException

pytestmark = pytest.mark.slow

UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "k", "fields.whitelist": "name"}


@pytest.mark.parametrize("bad", [[0], [9], [3, 4], [0, 5, 9], list(range(10))])
def test_bad_rows_are_reported_and_the_others_written(
    start: Start, database: Database, name: str, bad: list[int]
) -> None:
    database.run(f"CREATE TABLE {name} (id bigint CHECK (id < 100), name text)")
    writing = start(database, name, {})
    writing.put([record(n + 1000 * (n in bad), f"n{n}") for n in range(10)])
    assert database.rows(f"SELECT id FROM {name}") == [(n,) for n in range(10) if n not in bad]
    assert writing.reported == bad
    assert all("does not accept a row" in text for _, text in writing.context.reported)


@pytest.mark.parametrize(
    ("columns", "number", "text"),
    [
        ("id bigint, name text", 1, "a\0b"),
        ("id smallint, name text", 70_000, "a"),
        ("id bigint, name varchar(2)", 1, "abc"),
        ("id bigint, name text NOT NULL", 1, None),
        ("id bigint PRIMARY KEY, name text", 0, "a"),
    ],
)
def test_what_postgresql_refuses_is_one_row(
    start: Start, postgresql: PostgreSql, name: str, columns: str, number: int, text: str | None
) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(f"CREATE TABLE {name} ({columns})")
    writing = start(database, name, {})
    writing.put([record(0, "x"), record(number, text), record(2, "y")])
    assert database.rows(f"SELECT id FROM {name} ORDER BY id") == [(0,), (2,)]
    assert writing.reported == [1]


def test_a_wrong_enum_a_trigger_and_two_spellings_of_a_key_stop_no_other_row(
    start: Start, postgresql: PostgreSql, name: str
) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(
        f"CREATE TYPE {name}_e AS ENUM ('a', 'b')",
        f"CREATE TABLE {name} (id bigint, name {name}_e)",
        f"CREATE FUNCTION {name}_f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.id = 3 THEN RAISE EXCEPTION 'no three'; END IF; RETURN NEW; END $$",
        f"CREATE TRIGGER g BEFORE INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_f()",
    )
    writing = start(database, name, {})
    writing.put([record(1, "a"), record(2, "c"), record(3, "b"), record(4, "b")])
    assert database.rows(f"SELECT id, name::text FROM {name}") == [(1, "a"), (4, "b")]
    assert writing.reported == [1, 2]


def test_with_tolerance_none_the_rows_before_are_written_and_the_task_fails(
    start: Start, database: Database, name: str
) -> None:
    database.run(f"CREATE TABLE {name} (id bigint CHECK (id < 100), name text)")
    writing = start(database, name, {}, tolerant=False)
    with pytest.raises(ConnectException, match="Tolerance exceeded"):
        writing.put([record(1, "a"), record(200, "b"), record(3, "c")])
    assert database.rows(f"SELECT id FROM {name}") == [(1,)]


@pytest.mark.parametrize("gone", [[0], [3], [1, 2], [0, 1, 2, 3]])
def test_tombstones_delete_wherever_they_stand(start: Start, database: Database, name: str, gone: list[int]) -> None:
    database.run(f"CREATE TABLE {name} (k varchar(9) PRIMARY KEY, name text)")
    writing = start(database, name, {**UPSERT, "delete.enabled": "true"})
    writing.put([record(n, "old") for n in range(4)], keys=[f"k{n}" for n in range(4)])
    values: list[Any] = [None if n in gone else record(n, "new") for n in range(4)]
    writing.put(values, keys=[f"k{n}" for n in range(4)], first=4)
    assert database.rows(f"SELECT k, name FROM {name} ORDER BY k") == [
        (f"k{n}", "new") for n in range(4) if n not in gone
    ]
    assert writing.reported == []


@pytest.mark.parametrize("gone", [[0], [3], [0, 1, 2, 3]])
def test_without_delete_enabled_tombstones_are_reported(
    start: Start, database: Database, name: str, gone: list[int]
) -> None:
    database.run(f"CREATE TABLE {name} (k varchar(9) PRIMARY KEY, name text)")
    writing = start(database, name, UPSERT)
    values: list[Any] = [None if n in gone else record(n, "new") for n in range(4)]
    writing.put(values, keys=[f"k{n}" for n in range(4)])
    assert database.rows(f"SELECT k FROM {name} ORDER BY k") == [(f"k{n}",) for n in range(4) if n not in gone]
    assert writing.reported == gone


def test_null_keys_are_reported(start: Start, database: Database, name: str) -> None:
    database.run(f"CREATE TABLE {name} (k varchar(9) PRIMARY KEY, name text)")
    writing = start(database, name, UPSERT)
    writing.put([record(1, "a"), record(2, "b"), record(3, "c")], keys=["x", None, "y"])
    writing.put([record(4, "a")], keys=None, key_schema=None, first=3)
    assert database.rows(f"SELECT k FROM {name} ORDER BY k") == [("x",), ("y",)]
    assert writing.reported == [1, 3]


def test_the_key_of_a_message_is_where_it_was_read_behind_a_router_too(
    start: Start, database: Database, name: str
) -> None:
    settings = {"insert.mode": "upsert", "pk.mode": "kafka", "auto.create": "true", "table.name.format": name}
    writing = start(database, name, settings)
    for _ in range(2):
        writing.put([record(1, "a"), record(2, "b")], topic="routed", first=7)
    found = database.rows(f"SELECT __connect_topic, __connect_partition, __connect_offset, id FROM {name} ORDER BY id")
    assert found == [("t", 0, 7, 1), ("t", 0, 8, 2)]


def test_rows_that_are_written_are_left_out_when_the_frame_comes_again(
    start: Start, database: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(f"CREATE TABLE {name} (id bigint CHECK (id < 100), name text)")
    writing = start(database, name, {})
    assert writing.task._writer is not None
    write, calls = writing.task._writer.write, []

    def fails_once(writes: Any) -> None:
        calls.append(len(writes))
        if len(calls) == 3:
            raise RetriableException("the database is away")
        write(writes)

    monkeypatch.setattr(writing.task._writer, "write", fails_once)
    frame = writing.frame([record(1, "a"), record(2, "b"), record(300, "c"), record(4, "d")], VALUE)
    with pytest.raises(RetriableException):
        writing.task.put(frame)
    assert database.rows(f"SELECT id FROM {name}") == [(1,), (2,)]
    writing.task.put(frame)
    assert database.rows(f"SELECT id FROM {name}") == [(1,), (2,), (4,)]
    assert writing.reported == [2]


def test_topics_of_one_frame_go_to_their_tables_with_bad_rows_in_both(
    start: Start, database: Database, name: str
) -> None:
    for table in ("a", "b"):
        database.run(f"CREATE TABLE {name}_{table} (id bigint CHECK (id < 100), name text)")
    writing = start(
        database, "", {"table.name.format": f"{name}_${{topic}}", "offsets.in.target": "true", "name": name}
    )
    values = [record(1, "a"), record(200, "a"), record(3, "b"), None, record(400, "b"), record(5, "a")]
    frame = writing.frame(values)
    topics = pa.array(["a", "a", "b", "b", "b", "a"])
    writing.task.put(replace(frame, table=frame.table.set_column(0, "topic", topics)))
    assert database.rows(f"SELECT id FROM {name}_a") == [(1,), (5,)]
    assert database.rows(f"SELECT id FROM {name}_b") == [(3,)]
    assert sorted(writing.reported) == [1, 3, 4]
    assert database.rows(f"SELECT next_offset FROM penstock_offsets WHERE connector = '{writing.props['name']}'") == [
        (6,)
    ]


@pytest.mark.parametrize("settings", [{}, {"offsets.in.target": "true"}])
def test_a_server_that_ends_connections_costs_no_row(
    start: Start, postgresql: PostgreSql, name: str, settings: dict[str, str]
) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(f"CREATE TABLE {name} (id bigint CHECK (id <> 5), name text)")
    writing = start(database, name, {**settings, "name": name})
    for first in range(0, 40, 10):
        frame = writing.frame([record(first + n, "x") for n in range(10)], first=first)
        if first:
            database.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND backend_type = 'client backend'"
            )
            with pytest.raises(RetriableException):
                writing.task.put(frame)
        writing.task.put(frame)
    assert database.rows(f"SELECT id FROM {name} ORDER BY id") == [(n,) for n in range(40) if n != 5]
    assert writing.reported == [5]


def test_a_task_tries_as_often_as_it_may(start: Start, postgresql: PostgreSql, name: str) -> None:
    database = Database.of_postgresql(postgresql)
    database.run(f"CREATE TABLE {name} (id bigint, name text)")
    writing = start(database, name, {"max.retries": "2"})
    locked = database.connect()
    try:
        locked.execute(f"LOCK TABLE {name}")
        writing.task._database._tables.clear()
        writing.put([])
        database.run("ALTER ROLE postgres IN DATABASE postgres SET lock_timeout = '50ms'")
        frame = writing.frame([record(1, "a")])
        for _ in range(2):
            with pytest.raises(RetriableException, match="lock timeout"):
                writing.task.put(frame)
        with pytest.raises(ConnectException, match=r"Tried 3 times .max.retries=2.; restart the task"):
            writing.task.put(frame)
    finally:
        locked.close()
        database.run("ALTER ROLE postgres IN DATABASE postgres RESET lock_timeout")
    writing.task.put(frame)
    assert database.rows(f"SELECT id FROM {name}") == [(1,)]


@pytest.mark.parametrize(
    ("key", "has"),
    [
        ("", "it has no primary key"),
        (", PRIMARY KEY (id, name)", "its primary key is id, name"),
    ],
)
def test_an_upsert_needs_a_key_of_the_table(start: Start, database: Database, name: str, key: str, has: str) -> None:
    database.run(f"CREATE TABLE {name} (id bigint NOT NULL, name varchar(9) NOT NULL{key})")
    writing = start(database, name, {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"})
    for _ in range(2):
        with pytest.raises(ConnectException, match=rf"{name} has no unique index of id, which .*; {has}\. Create"):
            writing.put([record(1, "a")])
    assert database.rows(f"SELECT * FROM {name}") == []
    database.run(f"CREATE UNIQUE INDEX {name}_i ON {name} (id)")
    writing.put([record(1, "a"), record(1, "b")])
    writing.put([record(1, "c")], first=2)
    assert database.rows(f"SELECT id, name FROM {name}") == [(1, "c")]
