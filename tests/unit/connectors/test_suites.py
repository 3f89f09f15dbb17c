"""Every connector that comes with Penstock, through the suites of the authors' kit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

from penstock.api import SinkRecord
from penstock.connectors.datagen import DatagenSource
from penstock.connectors.directory import DirectorySourceConnector
from penstock.connectors.file import FileStreamSinkConnector, FileStreamSourceConnector
from penstock.connectors.jdbc import JdbcSink, JdbcSource
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.testing.kit.suites.sinks import SinkSuite
from penstock.testing.kit.suites.sources import SourceSuite


class TestFileStreamSource(SourceSuite):
    connector = FileStreamSourceConnector
    count = 7

    def prepare(self, path: Path) -> dict[str, str]:
        file = path / "in.txt"
        file.write_text("".join(f"line {number}\n" for number in range(7)))
        return {"file": str(file), "topic": "t"}


class TestFileStreamSourceInSmallPolls(TestFileStreamSource):
    def prepare(self, path: Path) -> dict[str, str]:
        return {**super().prepare(path), "batch.size": "3"}


class TestDirectorySource(SourceSuite):
    connector = DirectorySourceConnector
    count = 12

    def prepare(self, path: Path) -> dict[str, str]:
        for file in "abc":
            (path / f"{file}.txt").write_text("".join(f"{file} {number}\n" for number in range(4)))
        return {"directories": str(path), "topic": "t", "scan.interval.ms": "10"}


class TestDatagen(SourceSuite):
    connector = DatagenSource
    count = 9
    tasks_max = 1  # Each task makes records of its own.

    def prepare(self, path: Path) -> dict[str, str]:
        return {"kafka.topic": "t", "quickstart": "orders", "iterations": "9", "max.interval": "1", "random.seed": "7"}


class TestFileStreamSink(SinkSuite):
    connector = FileStreamSinkConnector
    exactly_once = False

    def prepare(self, path: Path) -> dict[str, str]:
        self.file = path / "out.txt"
        return {"file": str(self.file)}

    def records(self) -> list[SinkRecord]:
        return [SinkRecord("t", number % 2, 0, f"line {number}", key=number) for number in range(6)]

    def contents(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


class TestJdbcSource(SourceSuite):
    connector = JdbcSource
    count = 9

    def prepare(self, path: Path) -> dict[str, str]:
        self.database = path / "a.db"
        with closing(sqlite3.connect(self.database)) as database:
            for table in ("one", "two"):
                database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name TEXT)")
            database.executemany("INSERT INTO one (name) VALUES (?)", [(f"name {row}",) for row in range(6)])
            database.executemany("INSERT INTO two (name) VALUES (?)", [(f"other {row}",) for row in range(3)])
            database.commit()
        return {
            "connection.url": f"jdbc:sqlite:{self.database}",
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "topic.prefix": "t-",
            "poll.interval.ms": "1",
            "table.poll.interval.ms": "1",
            "batch.max.rows": "4",
        }

    def change(self) -> int:
        with closing(sqlite3.connect(self.database)) as database:
            database.execute("ALTER TABLE one ADD COLUMN age INTEGER")
            database.execute("INSERT INTO one (name, age) VALUES ('new', 1)")
            database.commit()
        return 1


ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


class TestJdbcSink(SinkSuite):
    connector = JdbcSink
    deletes = True
    mode = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}

    def prepare(self, path: Path) -> dict[str, str]:
        self.database = path / "a.db"
        return {
            "connection.url": f"jdbc:sqlite:{self.database}",
            "auto.create": "true",
            "auto.evolve": "true",
            "retry.backoff.ms": "1",
            "max.retries": "1000",
            **self.mode,
        }

    def records(self) -> list[SinkRecord]:
        return [
            SinkRecord(
                "t",
                number % 2,
                0,
                Struct(ROW).put("id", number).put("name", f"name {number}"),
                value_schema=ROW,
                key=number,
                key_schema=INT64_SCHEMA,
            )
            for number in range(6)
        ]

    def contents(self) -> list[object]:
        with closing(sqlite3.connect(self.database)) as database:
            try:
                return database.execute("SELECT id, name FROM t ORDER BY id").fetchall()
            except sqlite3.OperationalError:
                return []

    @contextmanager
    def outage(self) -> Iterator[None]:
        impatient = partial(sqlite3.connect, timeout=0.01)
        with closing(sqlite3.connect(self.database, isolation_level=None)) as database:
            database.execute("BEGIN EXCLUSIVE")
            with mock.patch.object(sqlite3.dbapi2, "connect", impatient):
                yield
            database.execute("ROLLBACK")


class TestJdbcSinkWithOffsetsInTheTarget(TestJdbcSink):
    deletes = False
    mode = {"offsets.in.target": "true"}


class TestJdbcSinkAtLeastOnce(TestJdbcSink):
    deletes = exactly_once = False
    mode = {}
