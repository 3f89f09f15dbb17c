"""The source on files of SQLite: columns that a mapping names, statements that are not shown, clocks that go back."""

from __future__ import annotations

import logging
import sqlite3
import time
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.jdbc import JdbcSource
from penstock.connectors.jdbc.source import task as reading
from penstock.connectors.jdbc.source.column_mappings import ColumnMapping
from penstock.connectors.jdbc.source.settings import JdbcSourceConfig
from penstock.data import Struct
from penstock.errors import ConnectException
from penstock.testing import SourceRun, run_source

NOON = 1_704_110_400
#: Quick to start: no table is cut, and a poll that finds nothing returns soon.
SETTINGS = {"topic.prefix": "t-", "snapshot.chunk.size": "0", "poll.interval.ms": "1"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.JdbcSourceTask, "poll_limit_s", 0.05)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "a.db"
    run(
        file,
        "CREATE TABLE orders (number INTEGER PRIMARY KEY, made DATETIME, changed DATETIME NOT NULL)",
        "CREATE TABLE people (id INTEGER PRIMARY KEY, at DATETIME NOT NULL)",
        "INSERT INTO orders VALUES (1, NULL, '2024-01-01 11:00:00'), (2, '2024-01-01 11:30:00', '2024-01-01 11:30:00')",
        "INSERT INTO people VALUES (7, '2024-01-01 11:59:00')",
    )
    return file


def run(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as database:
        for one in statements:
            database.execute(one)
        database.commit()


def settings(file: Path, **named: str) -> dict[str, str]:
    more = {name.replace("_", "."): value for name, value in named.items()}
    return {**SETTINGS, "connection.url": f"jdbc:sqlite:{file}", **more}


def first_fields(found: SourceRun) -> list[Any]:
    return [one.get(one.schema.fields[0].name) for one in found.values if isinstance(one, Struct)]


@pytest.mark.parametrize("pattern", ["orders", ".*orders", r"a\.db\.orders"])
def test_a_mapping_takes_the_whole_name_with_or_without_the_database(pattern: str) -> None:
    mapping = ColumnMapping("timestamp.column.mapping", [f"{pattern}:[ a | b ]", "people:[c]"], 2)
    assert mapping.columns_of("orders", "a.db") == ("a", "b")
    assert mapping.columns_of("people", "a.db") == ("c",)


@pytest.mark.parametrize(("table", "which"), [("orders_old", "none"), ("people", "'people', 'p.*'")])
def test_a_table_that_no_pattern_or_several_match_is_named(table: str, which: str) -> None:
    mapping = ColumnMapping("timestamp.column.mapping", ["orders:[a]", "people:[b]", "p.*:[c]"], 2)
    with pytest.raises(ConnectException, match=f"match the table {table}, and {which} does"):
        mapping.columns_of(table, "a.db")


def test_a_pattern_may_hold_colons() -> None:
    assert ColumnMapping("incrementing.column.mapping", ["(?:orders|people):id"], 1).columns_of("people", "") == ("id",)


@pytest.mark.parametrize(
    "named",
    [
        {"mode": "timestamp", "timestamp_column_mapping": "orders:[made|changed],people:[at]"},
        {"mode": "incrementing", "incrementing_column_mapping": "orders:number, people:id"},
        {
            "mode": "timestamp+incrementing",
            "timestamp_column_mapping": ".*orders:[changed],.*people:[at]",
            "incrementing_column_mapping": ".*orders:[number],.*people:[id]",
        },
    ],
)
def test_tables_are_read_by_the_columns_that_a_mapping_gives_them(file: Path, named: dict[str, str]) -> None:
    with run_source(JdbcSource, settings(file, **named)) as found:
        assert sorted(first_fields(found.finish(3))) == [1, 2, 7]


@pytest.mark.parametrize(
    ("entries", "said"),
    [("orders:[changed]", "match the table people, and none does"), ("orders:[changed],people:[gone]", "'gone'")],
)
def test_a_table_without_a_column_of_a_mapping_is_told_before_anything_is_read(
    file: Path, entries: str, said: str
) -> None:
    config = JdbcSourceConfig.parse(settings(file, mode="timestamp", timestamp_column_mapping=entries))
    [(name, text)] = JdbcSource().faults(config)
    assert name == "timestamp.column.mapping"
    assert said in text


def test_a_masked_query_is_read_and_shown_nowhere(file: Path) -> None:
    statement = "SELECT id AS secret_word FROM people"
    given = settings(file, mode="incrementing", incrementing_column_name="secret_word", query_masked=statement)
    with run_source(JdbcSource, given) as found:
        # SQLite does not say of which type the columns of a query are.
        assert first_fields(found.finish(1)) == ["7"]
    config = JdbcSourceConfig.parse(given)
    assert config.statement == statement
    assert "secret" not in f"{config.query_masked!s}{config.query_masked!r}{config.query!r}"


@pytest.mark.parametrize("statement", ["SELECT secret_word FROM people", "SELECT FROM secret_word", "secret_word(1)"])
def test_no_error_of_a_masked_query_shows_it(file: Path, statement: str) -> None:
    given = settings(file, mode="bulk", query_masked=statement)
    [(name, text)] = JdbcSource().faults(JdbcSourceConfig.parse(given))
    assert name == "query.masked"
    assert "refuses the statement" in text
    with pytest.raises(ConnectException) as raised:
        reading.Tables(JdbcSourceConfig.parse(given)).describe(None)
    shown = "".join(traceback.format_exception(raised.value)) + text
    assert "secret" not in shown
    [(name, text)] = JdbcSource().faults(JdbcSourceConfig.parse(settings(file, mode="bulk", query=statement)))
    assert (name, "secret" in text or "syntax" in text) == ("query", True), "one that may be shown is explained"


class Clock:
    """The clock of a worker, which a test sets."""

    def __init__(self) -> None:
        self.seconds = NOON

    def time(self) -> float:
        return self.seconds

    def time_ns(self) -> int:
        return self.seconds * 1_000_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "delay_s"), [("timestamp", 0), ("timestamp+incrementing", 10)])
def test_a_clock_that_goes_back_loses_and_doubles_no_row_and_is_told(
    file: Path, mode: str, delay_s: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    monkeypatch.setattr(reading, "PATIENCE_S", 0.0)
    given = settings(
        file,
        mode=mode,
        timestamp_column_name="at",
        incrementing_column_name="id" if "inc" in mode else "",
        table_include_list="people",
        timestamp_delay_interval_ms=str(delay_s * 1000),
    )
    with run_source(JdbcSource, given) as found, caplog.at_level(logging.WARNING):

        def read() -> list[Any]:
            polled = found.poll() + found.poll()
            found.commit()
            return [one.value.get("id") for one in polled if isinstance(one.value, Struct)]

        assert read() == [7]
        assert "clock" not in caplog.text
        at = found.offset({"protocol": "1", "table": "people"})
        run(file, "INSERT INTO people VALUES (8, '2024-01-01 12:00:05')")
        clock.seconds = NOON - 7200
        assert read() == []
        found.rebalance(1)
        # A row of the time that the clock has gone back to lies in front of the position, as one that commits late.
        assert read() == []
        assert found.offset({"protocol": "1", "table": "people"}) == at, "the position does not go back"
        told = [one.getMessage() for one in caplog.records if "clock" in one.getMessage()]
        assert len(told) == 2, "once for each task"
        assert "Rows of people are held back by a clock that says 2024-01-01" in told[0]
        assert "reading has come to 2024-01-01 11:59:00 UTC" in told[0]
        clock.seconds = NOON + 20
        assert read() == [8]
        assert read() == []
