"""Tables of a real PostgreSQL through a real worker, Kafka and Spark, into tables of PostgreSQL and SQLite."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from testkit.processes.worker_process import WorkerProcess

from penstock.broker.postgresql import PostgreSql

pytestmark = [pytest.mark.broker, pytest.mark.java, pytest.mark.slow]

WITH_SCHEMAS = {
    f"{part}.{setting}": value
    for part in ("key.converter", "value.converter")
    for setting, value in (("", "org.apache.kafka.connect.json.JsonConverter"), ("schemas.enable", "true"))
}
CONVERTERS = {name.removesuffix("."): value for name, value in WITH_SCHEMAS.items()}


def rows(server: PostgreSql, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/postgres") as connection:
        return connection.execute(query.encode()).fetchall()


def milliseconds(moment: object) -> datetime:
    assert isinstance(moment, datetime)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=None)


def create(worker: WorkerProcess, settings: dict[str, str]) -> None:
    status, answer = worker.ask("PUT", f"/connectors/{settings['name']}/config", settings)
    assert status == 201, answer


def test_rows_go_from_postgresql_to_postgresql_and_sqlite_and_changes_follow(
    shared_worker: WorkerProcess, postgresql: PostgreSql, tmp_path: Path
) -> None:
    name = f"orders_{uuid.uuid4().hex[:8]}"
    postgresql.execute(
        f"""
        CREATE TABLE {name} (id bigserial PRIMARY KEY, customer text NOT NULL, amount numeric(12,2), paid boolean,
            weight real, total numeric(30,6), note varchar(20), made timestamptz NOT NULL DEFAULT now(), day date,
            at time, picture bytea, code uuid, tags text[], extra jsonb);
        INSERT INTO {name} (customer, amount, paid, weight, total, note, day, at, picture, code, tags, extra)
        SELECT 'customer ' || n, n * 1.25, n % 2 = 0, n * 0.5, n * 1234567890123.456789, CASE WHEN n % 3 = 0 THEN
            'third' END, date '2024-02-28' + n, time '10:00' + n * interval '1 s', '\\x00ff', gen_random_uuid(),
            ARRAY['a', n::text], jsonb_build_object('n', n)
        FROM generate_series(1, 1000) n
        """
    )
    target, database = f"copy_of_{name}", tmp_path / "shop.db"
    source = {
        "name": f"from-{name}",
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connection.url": postgresql.jdbc_url,
        "mode": "timestamp+incrementing",
        "timestamp.column.name": "made",
        "incrementing.column.name": "id",
        "table.whitelist": name,
        "topic.prefix": "shop-",
        "poll.interval.ms": "200",
        **CONVERTERS,
    }
    sink = {
        "name": f"to-{name}",
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "connection.url": postgresql.jdbc_url,
        "topics": f"shop-{name}",
        "table.name.format": target,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "auto.create": "true",
        "auto.evolve": "true",
        "consumer.override.metadata.max.age.ms": "500",
        **CONVERTERS,
    }
    lite = {
        **sink,
        "name": f"lite-{name}",
        "connection.url": f"jdbc:sqlite:{database}",
        "table.name.format": "orders",
        "transforms": "plain",
        "transforms.plain.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.plain.exclude": "tags",
    }
    create(shared_worker, source)
    create(shared_worker, sink)
    create(shared_worker, lite)

    def copied() -> list[tuple[object, ...]]:
        found = rows(postgresql, f"SELECT to_regclass('{target}')")
        if found == [(None,)]:
            return []
        return rows(postgresql, f"SELECT id, customer, amount, made FROM {target} ORDER BY id")

    def expected() -> list[tuple[object, ...]]:
        found = rows(postgresql, f"SELECT id, customer, amount::float8, made FROM {name} ORDER BY id")
        return [(*row[:3], milliseconds(row[3])) for row in found]

    shared_worker.wait(lambda: len(copied()) == 1000, "all rows are in PostgreSQL", timeout_s=90)
    assert copied() == expected()
    postgresql.execute(f"UPDATE {name} SET customer = 'changed', made = now() WHERE id = 7")
    postgresql.execute(f"INSERT INTO {name} (customer, amount) VALUES ('late', 0.10)")
    shared_worker.wait(lambda: copied() == expected(), "changes and new rows follow", timeout_s=60)

    def in_sqlite() -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(database)) as connection:
            made = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'orders'").fetchone()
            query = "SELECT id, customer FROM orders ORDER BY id"
            return connection.execute(query).fetchall() if made == (1,) else []

    shared_worker.wait(lambda: in_sqlite() == [row[:2] for row in expected()], "SQLite has the same rows", timeout_s=60)
    for connector in (source, sink, lite):
        assert shared_worker.ask("DELETE", f"/connectors/{connector['name']}")[0] == 204


def test_bad_records_go_to_the_dead_letter_queue_and_offsets_are_in_the_database(
    shared_worker: WorkerProcess, postgresql: PostgreSql
) -> None:
    name = f"events_{uuid.uuid4().hex[:8]}"
    postgresql.execute(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, extra jsonb); CREATE TABLE {name}_copy (id bigint "
        f"CHECK (id <> 7), note text); INSERT INTO {name} SELECT n, '[1]' FROM generate_series(1, 20) n"
    )
    source = {
        "name": f"from-{name}",
        "connector.class": "JdbcSource",
        "connection.url": postgresql.jdbc_url,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.include.list": name,
        "topic.prefix": "shop-",
        "poll.interval.ms": "200",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    sink = {
        "name": f"to-{name}",
        "connector.class": "JdbcSink",
        "connection.url": postgresql.jdbc_url,
        "topics": f"shop-{name}",
        "table.name.format": f"{name}_copy",
        "fields.include.list": "id",
        "offsets.in.target": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"dead-{name}",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "consumer.override.metadata.max.age.ms": "500",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    create(shared_worker, source)
    create(shared_worker, sink)

    def offset() -> list[tuple[object, ...]]:
        if rows(postgresql, "SELECT to_regclass('penstock_offsets')") == [(None,)]:
            return []
        query = f"SELECT sum(next_offset) FROM penstock_offsets WHERE connector = 'to-{name}' AND next_offset > 0"
        return rows(postgresql, query)

    shared_worker.wait(lambda: offset() == [(20,)], "the offsets are in the database", timeout_s=90)
    assert rows(postgresql, f"SELECT id FROM {name}_copy ORDER BY id") == [(n,) for n in range(1, 21) if n != 7]
    assert shared_worker.ask("POST", f"/connectors/{sink['name']}/restart?includeTasks=true")[0] in (202, 204)
    postgresql.execute(f"INSERT INTO {name} VALUES (21, NULL)")
    shared_worker.wait(lambda: offset() == [(21,)], "the task goes on", timeout_s=60)
    assert rows(postgresql, f"SELECT count(*) FROM {name}_copy") == [(20,)]
    for connector in (source, sink):
        assert shared_worker.ask("DELETE", f"/connectors/{connector['name']}")[0] == 204


def test_a_connector_whose_database_is_away_at_its_start_goes_on_when_it_is_back(
    shared_worker: WorkerProcess, tmp_path: Path
) -> None:
    name, here, away = f"notes_{uuid.uuid4().hex[:8]}", tmp_path / "here", tmp_path / "away"
    here.mkdir()
    with closing(sqlite3.connect(here / "shop.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, note TEXT)")
        connection.execute("INSERT INTO notes VALUES (1, 'before')")
    sink = {
        "name": f"to-{name}",
        "connector.class": "JdbcSink",
        "connection.url": f"jdbc:sqlite:{tmp_path / 'copy.db'}",
        "topics": f"{name}-notes",
        "table.name.format": "notes",
        "auto.create": "true",
        **CONVERTERS,
    }
    source = {
        "name": f"from-{name}",
        "connector.class": "JdbcSource",
        "connection.url": f"jdbc:sqlite:{here / 'shop.db'}",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": f"{name}-",
        "poll.interval.ms": "200",
        **CONVERTERS,
    }

    def copied() -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
            made = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'notes'").fetchone()
            return connection.execute("SELECT * FROM notes ORDER BY id").fetchall() if made == (1,) else []

    def of_connector() -> dict[str, Any]:
        body = shared_worker.get(f"/connectors/from-{name}/status")[1]
        return body["connector"] if isinstance(body, dict) else {}

    create(shared_worker, source)
    create(shared_worker, sink)
    shared_worker.wait(lambda: copied() == [(1, "before")], "the first row is there")
    here.rename(away)
    assert shared_worker.ask("POST", f"/connectors/from-{name}/restart?includeTasks=true")[0] == 202
    shared_worker.wait(lambda: of_connector().get("waiting_for", {}).get("reason") == "source_retry", "it waits")
    assert of_connector()["state"] == "UNASSIGNED"
    with closing(sqlite3.connect(away / "shop.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO notes VALUES (2, 'after')")
    away.rename(here)
    shared_worker.wait(lambda: copied() == [(1, "before"), (2, "after")], "both go on")
    assert shared_worker.states(f"from-{name}") == ["RUNNING", "RUNNING"]
    for connector in (source, sink):
        assert shared_worker.ask("DELETE", f"/connectors/{connector['name']}")[0] == 204
