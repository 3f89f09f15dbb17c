"""The source task against files of SQLite, without Kafka: dates and times, which it keeps as text, and modes."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.real.connectors.jdbc.reading import Reading
from tests.real.connectors.jdbc.writing import Database

from penstock.connectors.jdbc.source.task import JdbcSourceTask
from penstock.errors import ConnectException

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that finds nothing returns soon."""
    monkeypatch.setattr(JdbcSourceTask, "poll_limit_s", 0.05)


@pytest.fixture
def file(tmp_path: Path) -> Database:
    """A file with a table."""
    database = Database.of_sqlite(tmp_path / "a.db")
    database.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, made DATETIME NOT NULL, day DATE, at TIME, name TEXT, raw BLOB)",
        "INSERT INTO t VALUES (1, '2024-07-01 12:00:00', '2024-02-29', '23:59:59', 'a', x'00ff')",
        "INSERT INTO t VALUES (2, '2024-07-01 13:00:00.000250', NULL, NULL, NULL, NULL)",
        "INSERT INTO t VALUES (3, '2024-07-02', NULL, NULL, NULL, NULL)",
    )
    return database


def reading(file: Database, settings: dict[str, str]) -> Reading:
    made = Reading(file, ["t"], {"timestamp.column.name": "made", **settings})
    made.tables = ["t"]
    made.start()
    return made


def test_dates_and_times_are_read_from_text(file: Database) -> None:
    frame = next(reading(file, {"mode": "bulk"}).frames())
    assert isinstance(frame.data, pa.Table)
    assert frame.data.column("value").to_pylist()[0] == {
        "id": 1,
        "made": datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC),
        "day": datetime.date(2024, 2, 29),
        "at": datetime.time(23, 59, 59),
        "name": "a",
        "raw": b"\x00\xff",
    }


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
def test_new_rows_are_followed_over_a_restart(file: Database, mode: str) -> None:
    found = reading(file, {"mode": mode, "batch.max.rows": "2"})
    assert found.read("id") == [1, 2, 3]
    found.start()
    assert found.read("id") == []
    file.run("INSERT INTO t (made) VALUES ('2024-07-03 00:00:00')")
    assert found.read("id") == [4]


@pytest.mark.parametrize(
    ("kind", "value", "settings", "said"),
    [
        ("text", "'a'", {"mode": "incrementing"}, "is TEXT, and mode=incrementing follows whole numbers"),
        ("real", "1.5", {"mode": "incrementing"}, "is REAL, and mode=incrementing follows whole numbers"),
        ("", "'a'", {"mode": "incrementing"}, "the column 'c' has a value that is no whole number"),
        ("real", "1.5", {"mode": "timestamp"}, "is REAL, and mode=timestamp follows dates with or without a time"),
        ("timestamp", "7", {"mode": "timestamp"}, "a column of dates or times has a value that is not written as one"),
    ],
)
def test_rows_are_not_followed_by_a_column_that_cannot_be(
    file: Database, kind: str, value: str, settings: dict[str, str], said: str
) -> None:
    file.run(f"CREATE TABLE u (c {kind} NOT NULL)", f"INSERT INTO u VALUES ({value})")
    made = Reading(file, ["u"], {"incrementing.column.name": "c", "timestamp.column.name": "c", **settings})
    made.tables = ["u"]
    made.start()
    with pytest.raises(ConnectException, match=said):
        made.read("c")


def test_an_integer_has_64_bits(file: Database) -> None:
    file.run("CREATE TABLE u (id integer PRIMARY KEY, at int)", "INSERT INTO u VALUES (5000000000, 1704100000000)")
    made = Reading(file, ["u"], {"mode": "incrementing"})
    made.tables = ["u"]
    made.start()
    assert made.read("id") == [5_000_000_000]
