"""The PostgreSQL source and sink of the documentation, through the suites of the authors' kit, on a real server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from examples.postgresql_sink import RowsSink
from examples.postgresql_source import TablesSource

from penstock.api import SinkRecord
from penstock.broker.postgresql import PostgreSql
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.testing import FrameSuite, SinkSuite, SourceSuite, numbered, run_sink, run_source
from penstock.testing.kit.lives import collect

pytestmark = pytest.mark.slow

ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


class OnPostgreSql:
    """A schema of its own for each test."""

    @pytest.fixture(autouse=True)
    def _server(self, postgresql: PostgreSql) -> Iterator[None]:
        self.url = f"postgresql://postgres@127.0.0.1:{postgresql.port}/postgres"
        self.schema = f"s{uuid.uuid4().hex[:8]}"
        with psycopg.connect(self.url, autocommit=True) as self.database:
            yield
            # Connections of tasks that were killed in the test, which nothing else closes.
            collect()
            self.database.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
            self.database.execute(f"DROP TABLE IF EXISTS {self.schema}_rows")

    def fresh(self) -> None:
        self.database.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
        self.database.execute(f"CREATE SCHEMA {self.schema}")


class TestTablesSource(OnPostgreSql, FrameSuite, SourceSuite):
    connector = TablesSource
    count = 9
    most_kills = 10
    wrong = {"url": "postgresql://postgres@127.0.0.1:1/postgres", "chunk.rows": "0"}

    def prepare(self, path: Path) -> dict[str, str]:
        self.fresh()
        for table, rows in (("one", 6), ("two", 3)):
            self.database.execute(
                f"CREATE TABLE {self.schema}.{table} (id BIGSERIAL PRIMARY KEY, name TEXT, price NUMERIC(8, 2), "
                "at TIMESTAMPTZ DEFAULT '2026-01-01T00:00:00Z', tags TEXT[])"
            )
            self.database.execute(
                f"INSERT INTO {self.schema}.{table} (name, price, tags) "
                f"SELECT 'n' || i, i + 0.25, ARRAY['a', 'b'] FROM generate_series(1, {rows}) i"
            )
        return {"url": self.url, "table.schema": self.schema, "topic.prefix": "t-", "chunk.rows": "4"}

    def change(self) -> int:
        self.database.execute(f"ALTER TABLE {self.schema}.one ADD COLUMN age INTEGER")
        self.database.execute(f"INSERT INTO {self.schema}.one (name, age) VALUES ('new', 7)")
        return 1

    def test_a_row_of_a_transaction_that_ends_late_is_not_missed(self, tmp_path: Path) -> None:
        settings = self.prepare(tmp_path)
        insert = f"INSERT INTO {self.schema}.two (name) VALUES (%s)"
        with run_source(TablesSource, settings) as source, psycopg.connect(self.url) as late:
            late.execute(insert, ("late",))
            self.database.execute(insert, ("early",))
            for _ in range(3):
                source.poll()
                source.commit()
            assert len(source.committed) == 9
            late.commit()
            for _ in range(3):
                source.poll()
                source.commit()

        assert [one.value.get("name") for one in source.committed[9:]] == ["late", "early"]  # type: ignore[attr-defined]


class TestRowsSink(OnPostgreSql, FrameSuite, SinkSuite):
    connector = RowsSink
    deletes = True
    most_kills = 10
    wrong = {"url": "postgresql://postgres@127.0.0.1:1/postgres", "table": ""}

    def prepare(self, path: Path) -> dict[str, str]:
        table = f"{self.schema}_rows"
        self.database.execute(f"DROP TABLE IF EXISTS {table}")
        self.database.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name TEXT CHECK (name <> 'bad'))")
        self.database.execute("DROP TABLE IF EXISTS penstock_offsets")
        return {"url": self.url, "table": table, "columns": "id,name"}

    def records(self) -> list[SinkRecord]:
        return [record(number, f"n{number}") for number in range(6)]

    def contents(self) -> list[Any]:
        return self.database.execute(f"SELECT * FROM {self.schema}_rows ORDER BY 1").fetchall()

    def test_a_row_that_the_table_refuses_is_reported_and_the_others_are_there(self, tmp_path: Path) -> None:
        given = [record(1, "a"), record(2, "bad"), record(3, "c")]
        with run_sink(RowsSink, self.prepare(tmp_path), numbered(given)) as sink:
            sink.finish()

        assert self.contents() == [(1, "a"), (3, "c")]
        [(refused, text)] = sink.reported
        assert refused.key == 2
        assert "does not accept a row" in text

    def test_a_connection_that_is_lost_costs_no_row(self, tmp_path: Path) -> None:
        with run_sink(RowsSink, self.prepare(tmp_path), numbered(self.records())) as sink:
            sink.put(1)
            self.database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND application_name = '' AND backend_type = 'client backend'"
            )
            sink.finish()

        assert len(self.contents()) == 6
        assert sink.reported == []
        assert "away" in sink.retries[0]


def record(number: int, name: str) -> SinkRecord:
    value = Struct(ROW).put("id", number).put("name", name)
    partition = number % 2
    return SinkRecord("t", partition, 0, value, value_schema=ROW, key=number, key_schema=INT64_SCHEMA)
