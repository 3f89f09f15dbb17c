"""Connectors without suites of their own package, through the suites of the authors' kit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.shares import QUICK
from tests.unit.connectors.http.web import Reply, Request, serving
from tests.unit.connectors.own_settings import OwnSettings

from penstock.api import SinkRecord
from penstock.connectors.datagen import DatagenSource
from penstock.connectors.directory import DirectorySourceConnector
from penstock.connectors.file import FileStreamSinkConnector, FileStreamSourceConnector
from penstock.connectors.http import HttpSink, HttpSource
from penstock.connectors.jdbc import JdbcSink, JdbcSource
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, SchemaBuilder, Struct
from penstock.testing import FrameSuite, SinkSuite, SourceSuite

#: Of a run that takes long.
KILLS = 5 if QUICK else 16


class TestFileStreamSource(FrameSuite, SourceSuite):
    connector = FileStreamSourceConnector
    count = 7

    def prepare(self, path: Path) -> dict[str, str]:
        file = path / "in.txt"
        file.write_text("".join(f"line {number}\n" for number in range(7)))
        return {"file": str(file), "topic": "t"}


class TestFileStreamSourceInSmallPolls(TestFileStreamSource):
    def prepare(self, path: Path) -> dict[str, str]:
        return {**super().prepare(path), "batch.size": "3"}


class TestDirectorySource(FrameSuite, SourceSuite):
    connector = DirectorySourceConnector
    count = 12

    def prepare(self, path: Path) -> dict[str, str]:
        for file in "abc":
            (path / f"{file}.txt").write_text("".join(f"{file} {number}\n" for number in range(4)))
        return {"directories": str(path), "topic": "t", "scan.interval.ms": "10"}


class TestDatagen(FrameSuite, SourceSuite):
    connector = DatagenSource
    count = 9
    most_kills = KILLS
    tasks_max = 1  # Each task makes records of its own.

    def prepare(self, path: Path) -> dict[str, str]:
        return {"kafka.topic": "t", "quickstart": "orders", "iterations": "9", "max.interval": "1", "random.seed": "7"}


class TestFileStreamSink(FrameSuite, SinkSuite):
    connector = FileStreamSinkConnector
    exactly_once = False

    def prepare(self, path: Path) -> dict[str, str]:
        self.file = path / "out.txt"
        return {"file": str(self.file)}

    def records(self) -> list[SinkRecord]:
        return [SinkRecord("t", number % 2, 0, f"line {number}", key=number) for number in range(6)]

    def contents(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


class TestJdbcSource(FrameSuite, SourceSuite):
    most_kills = KILLS
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
            "batch.max.rows": "4",
        }

    def change(self) -> int:
        with closing(sqlite3.connect(self.database)) as database:
            database.execute("ALTER TABLE one ADD COLUMN age INTEGER")
            database.execute("INSERT INTO one (name, age) VALUES ('new', 1)")
            database.commit()
        return 1


ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


class TestJdbcSink(OwnSettings, FrameSuite, SinkSuite):
    most_kills = KILLS
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
    own = ("offsets.in.target",)
    mode = {"offsets.in.target": "true"}


class TestJdbcSinkAtLeastOnce(TestJdbcSink):
    deletes = exactly_once = False
    own = ()
    mode = {}


class TestHttpSource(SourceSuite):
    most_kills = KILLS
    connector = HttpSource
    count = 7
    exact_offsets = False  # A kill repeats a page.
    wrong = {"http.api.url": "ftp://a", "request.interval.ms": "-1", "page.mode": "sideways", "auth.type": "guess"}

    @pytest.fixture(autouse=True)
    def _serving(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        with serving(self.answer) as self.web:
            yield

    def answer(self, request: Request) -> Reply:
        """Items behind an id, three at a time."""
        after = int(parse_qs(urlsplit(request.path).query)["after"][0])
        return Reply([{"id": number} for number in range(after + 1, min(after + 4, 8))])

    def prepare(self, path: Path) -> dict[str, str]:
        return {
            "http.api.url": f"{self.web.url}/items?after=${{offset}}",
            "topic": "t",
            "offset.pointer": "/id",
            "request.interval.ms": "0",
        }


class TestHttpSink(SinkSuite):
    most_kills = KILLS
    connector = HttpSink
    deletes = True
    wrong = {"http.api.url": "ftp://a", "batch.max.size": "0", "retry.on.status.codes": "abc"}

    @pytest.fixture(autouse=True)
    def _serving(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        self.away = False
        with serving(self.answer) as self.web:
            yield

    def answer(self, request: Request) -> Reply:
        if self.away:
            return Reply(b"away", 503)
        if request.method == "DELETE":
            self.rows.pop(request.path, None)
        else:
            self.rows[request.path] = json.loads(request.body)
        return Reply()

    def prepare(self, path: Path) -> dict[str, str]:
        self.rows: dict[str, object] = {}
        return {
            "http.api.url": f"{self.web.url}/${{topic}}/${{key}}",
            "http.request.method": "PUT",
            "behavior.on.null.values": "delete",
            "retry.backoff.ms": "1",
        }

    def records(self) -> list[SinkRecord]:
        return [SinkRecord("t", number % 2, 0, {"number": number}, key=str(number)) for number in range(6)]

    def contents(self) -> list[tuple[str, object]]:
        return sorted(self.rows.items())

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.away = True
        yield
        self.away = False
