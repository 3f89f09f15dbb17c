"""First loads of tables in ranges, from a real PostgreSQL and SQLite, without Kafka."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.real.connectors.jdbc.snapshots import Worker

from penstock.api import SourceTaskContext
from penstock.broker.postgresql import PostgreSql
from penstock.connectors.jdbc.source import task
from penstock.errors import ConnectException

pytestmark = pytest.mark.slow

#: So that tables of some thousands of rows are cut.
SMALL = {"snapshot.chunk.size": "500", "batch.max.rows": "100"}


@pytest.fixture
def made() -> Iterator[Callable[..., Worker]]:
    """Makes workers, which end with the test."""
    workers: list[Worker] = []

    def make(*args: Any, **named: Any) -> Worker:
        workers.append(Worker(*args, **named))
        return workers[-1]

    yield make
    for one in workers:
        one.kill()


def settings(server: PostgreSql, table: str, **more: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {"connection.url": server.jdbc_url, "table.include.list": table, **SMALL, **given}


def ids(row: Mapping[str, Any]) -> object:
    return row["id"]


def test_a_snapshot_is_read_in_ranges_by_two_tasks_and_then_goes_on(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker]
) -> None:
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY, note text);"
        f"INSERT INTO {name} (note) SELECT 'note ' || n FROM generate_series(1, 6000) n; ANALYZE {name}"
    )
    worker = made(settings(postgresql, name, mode="incrementing"), ids, tasks=2)
    worker.start()
    worker.run_until(lambda: len(worker.rows) > 1000)
    postgresql.execute(f"INSERT INTO {name} (note) SELECT 'late' FROM generate_series(1, 700)")
    worker.run_until(lambda: worker.is_settled(f"public.{name}"))
    worker.run_until(lambda: len(worker.rows) == 6700)
    assert set(worker.rows.values()) == {1}
    assert worker.most_ranges == 12
    assert min(worker.shares.values()) > 1000
    assert worker.store.of(f"public.{name}") == {"incrementing": 6700}
    # About half of the rows each.
    assert max(done or 0 for done, _ in worker.told) == max(total or 0 for _, total in worker.told) > 2000


KEYS = {
    "text": ("code text", "'k' || md5(n::text)"),
    "collated": ('code text COLLATE "pg_c_utf8"', "CASE n % 3 WHEN 0 THEN 'ä' WHEN 1 THEN 'Z' ELSE 'a''%:' END || n"),
    "uuid": ("code uuid", "md5(n::text)::uuid"),
    "timestamp": ("code timestamptz", "timestamptz '2020-01-01 00:00:00.000001+00' + n * interval '1.000003 s'"),
    "numeric": ("code numeric(20,3)", "n * 1.001 - 1000"),
    "uneven": ("code bigint", "CASE WHEN n < 2900 THEN n ELSE n::bigint * n * n * 1000 END"),
    "negative": ("code integer", "1500 - n"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type_and_any_spread(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker], kind: str
) -> None:
    column, value = KEYS[kind]
    postgresql.execute(
        f"CREATE TABLE {name} (id bigint, {column} PRIMARY KEY, at timestamptz NOT NULL);"
        f"INSERT INTO {name} SELECT n, {value}, now() - n * interval '1 s' FROM generate_series(1, 3000) n"
    )
    more = {"mode": "timestamp", "timestamp.column.name": "at"}
    worker = made({**settings(postgresql, name), **more}, ids)
    worker.start()
    worker.run_until(lambda: worker.most_ranges > 1)
    worker.turn(lose=True)
    worker.restart()
    worker.run_until(lambda: worker.is_settled(f"public.{name}"))
    assert sorted(worker.rows, key=str) == sorted(range(1, 3001), key=str)
    assert sum(worker.rows.values()) <= 3000 + 3 * 100


def test_a_compound_key_kills_at_every_step_and_changes_meanwhile(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker]
) -> None:
    """Nothing is missed, and each kill repeats at most a chunk of each range that is read."""
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial, shop text, code uuid, at timestamptz NOT NULL DEFAULT clock_timestamp(),"
        " PRIMARY KEY (shop, code));"
        f"INSERT INTO {name} (shop, code) SELECT 'shop ' || n % 7, gen_random_uuid() FROM generate_series(1, 4000) n"
    )
    more = {"mode": "timestamp+incrementing", "timestamp.column.name": "at", "incrementing.column.name": "id"}
    worker = made({**settings(postgresql, name), **more}, lambda row: (row["id"], row["shop"]), tasks=2)
    worker.start()
    kills = 0
    for step in range(400):
        lose = step % 5 == 4 and kills < 30
        worker.turn(lose=lose)
        if lose:
            kills += 1
            worker.restart()
            if step % 3 == 0:
                postgresql.execute(f"INSERT INTO {name} (shop, code) VALUES ('shop 3', gen_random_uuid())")
                postgresql.execute(
                    f"UPDATE {name} SET shop = 'moved', at = clock_timestamp() WHERE code = "
                    f"(SELECT code FROM {name} WHERE shop <> 'moved' ORDER BY code LIMIT 1)"
                )
        if worker.is_settled(f"public.{name}"):
            break
    with closing(psycopg.connect(f"postgresql://postgres@127.0.0.1:{postgresql.port}/postgres")) as connection:
        wanted = set(connection.execute(f"SELECT id, shop FROM {name}".encode()).fetchall())
    worker.run_until(lambda: worker.is_settled(f"public.{name}") and wanted <= set(worker.rows))
    assert kills > 5
    repeated = sum(worker.rows.values()) - len(worker.rows)
    assert repeated <= kills * 2 * 100


def test_small_tables_and_those_without_a_key_are_read_in_one_go(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker]
) -> None:
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY); INSERT INTO {name} SELECT FROM generate_series(1, 900);"
        f"ANALYZE {name}"
    )
    worker = made(settings(postgresql, name, mode="incrementing"), ids)
    worker.start()
    worker.run_until(lambda: len(worker.rows) == 900)
    assert worker.most_ranges == 0
    assert list(worker.rows) == list(range(1, 901))


def test_a_partitioned_table_is_cut_as_others(postgresql: PostgreSql, name: str, made: Callable[..., Worker]) -> None:
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);"
        f"CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');"
        f"CREATE TABLE {name}_b PARTITION OF {name} FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');"
        f"INSERT INTO {name} (day) SELECT date '2020-06-01' + n % 400 FROM generate_series(1, 2000) n; ANALYZE {name}"
    )
    worker = made(settings(postgresql, name, mode="incrementing"), ids)
    worker.start()
    worker.run_until(lambda: worker.is_settled(f"public.{name}"))
    assert worker.most_ranges == 4
    assert worker.rows == dict.fromkeys(range(1, 2001), 1)


def test_a_table_whose_keys_cannot_be_looked_at_is_read_in_one_go(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectException("TABLESAMPLE clause can only be applied to tables and materialized views")

    monkeypatch.setattr(task, "keys_of", refuse)
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY); INSERT INTO {name} SELECT FROM generate_series(1, 1500);"
        f"ANALYZE {name}"
    )
    worker = made(settings(postgresql, name, mode="incrementing"), ids)
    worker.start()
    worker.run_until(lambda: len(worker.rows) == 1500)
    assert worker.most_ranges == 0


def test_ranges_are_read_from_one_snapshot_and_from_others_when_that_is_gone(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker]
) -> None:
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY, note text);"
        f"INSERT INTO {name} (note) SELECT 'first' FROM generate_series(1, 3000); ANALYZE {name}"
    )
    worker = made(settings(postgresql, name, mode="incrementing"), lambda row: (row["id"], row["note"]))
    worker.start()
    worker.run_until(lambda: worker.most_ranges > 0)
    # One range has begun; the others still see what was there.
    postgresql.execute(f"UPDATE {name} SET note = 'second'")
    worker.run_until(lambda: len(worker.rows) >= 2000)
    assert {row[1] for row in worker.rows} == {"first"}
    postgresql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        " AND query LIKE '%pg_export_snapshot%'"
    )
    worker.run_until(lambda: worker.is_settled(f"public.{name}"))
    assert {row[0] for row in worker.rows} == set(range(1, 3001))
    assert {row[1] for row in worker.rows} == {"first", "second"}


def test_a_table_that_begins_at_the_present_moment_misses_nothing_between_two_polls(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker]
) -> None:
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());"
        f"INSERT INTO {name} SELECT FROM generate_series(1, 10)"
    )
    more = {"mode": "timestamp", "timestamp.column.name": "at", "timestamp.initial": "-1"}
    worker = made({**settings(postgresql, name), **more}, ids)
    worker.start()
    worker.run_until(lambda: worker.store.of(f"public.{name}") is not None)
    postgresql.execute(f"INSERT INTO {name} DEFAULT VALUES")
    worker.restart()
    worker.run_until(lambda: bool(worker.rows))
    assert set(worker.rows) == {11}


@pytest.mark.parametrize("key", ["id INTEGER PRIMARY KEY", "id INTEGER NOT NULL, code TEXT NOT NULL PRIMARY KEY"])
def test_sqlite_with_kills(tmp_path: Path, made: Callable[..., Worker], key: str) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE t ({key}, note TEXT)")
        columns = "(id, note, code)" if "code" in key else "(id, note)"
        for n in range(1, 3001):
            row = (n, "x", f"k{n * 7919 % 3001}") if "code" in key else (n, "x")
            database.execute(f"INSERT INTO t {columns} VALUES ({', '.join('?' * len(row))})", row)
        database.commit()
    more = {"mode": "incrementing", "incrementing.column.name": "id", "connection.url": f"jdbc:sqlite:{path}"}
    worker = made({**more, "table.include.list": "t", **SMALL}, ids, tasks=2)
    worker.start()
    kills = 0
    for step in range(200):
        lose = step % 4 == 3
        worker.turn(lose=lose)
        if lose:
            kills += 1
            worker.restart()
        if worker.is_settled("t"):
            break
    worker.run_until(lambda: worker.is_settled("t"))
    assert set(worker.rows) == set(range(1, 3001))
    assert worker.most_ranges > 3
    assert sum(worker.rows.values()) - 3000 <= kills * 2 * 100


def test_a_preview_shows_rows_of_a_large_table_at_once(
    postgresql: PostgreSql, name: str, made: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourceTaskContext, "is_preview", True)
    postgresql.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY); INSERT INTO {name} SELECT FROM generate_series(1, 1500);"
        f"ANALYZE {name}"
    )
    worker = made(settings(postgresql, name, mode="incrementing"), ids)
    worker.start()
    assert worker.turn() > 0
