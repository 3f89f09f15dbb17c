"""Backfills of tables, in a file of SQLite and one of DuckDB: which rows are in a range, and what is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.api import BackfillSpan
from penstock.connectors.jdbc import JdbcSource
from penstock.errors import BadRequestException
from penstock.testing import BackfillRun, run_backfill

#: Some of one moment, so that a range of times ends between rows that differ in their numbers only.
ROWS = [(one, f"2024-07-01 12:00:{one // 3:02d}", f"n{one}") for one in range(1, 13)]
TABLE = "CREATE TABLE {} (id INTEGER PRIMARY KEY, made TIMESTAMP NOT NULL, name TEXT)"
NOON_MS = 1_719_835_200_000


def filled(opened: Any) -> None:
    for table in ("orders", "people"):
        opened.execute(TABLE.format(table))
        opened.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", ROWS if table == "orders" else ROWS[:2])
    opened.commit()
    opened.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    filled(sqlite3.connect(tmp_path / "a.db"))
    return f"jdbc:sqlite:{tmp_path / 'a.db'}"


def settings(url: str, mode: str, **more: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    of_mode = {"incrementing.column.name": "id"} if "incrementing" in mode else {}
    times = {"timestamp.column.name": "made"} if "timestamp" in mode else {}
    return {
        "connection.url": url,
        "mode": mode,
        "topic.prefix": "p-",
        "batch.max.rows": "2",
        **of_mode,
        **times,
        **named,
    }


def ids(run: BackfillRun, topic: str = "p-orders") -> list[Any]:
    found = zip(run.values, run.records, strict=True)
    return [value.get("id") for value, record in found if record.topic == topic]


@pytest.mark.parametrize("mode", ["incrementing", "timestamp+incrementing"])
@pytest.mark.parametrize("again", [False, True])
def test_rows_between_two_numbers_are_read_once_in_their_order(url: str, mode: str, again: bool) -> None:
    run = run_backfill(JdbcSource, settings(url, mode), BackfillSpan(first="3", end=9), tasks_max=2, again=again)
    assert ids(run) == [3, 4, 5, 6, 7, 8]
    (part,) = run.parts
    assert str(part.partition["table"]).endswith("orders"), "people has no such rows"
    assert (part.reads, part.rows) == ({"column": "id", "by": "number", "from": 3, "to": 9}, 6)


@pytest.mark.parametrize("again", [False, True])
def test_rows_between_two_times_are_read_once_in_their_order(url: str, again: bool) -> None:
    span = BackfillSpan(start_ms=NOON_MS + 1000, end_ms=NOON_MS + 3000)
    run = run_backfill(JdbcSource, settings(url, "timestamp+incrementing"), span, again=again)
    assert ids(run) == [3, 4, 5, 6, 7, 8]
    assert [(one.reads["column"], one.rows) for one in run.parts] == [("made", 6)]


def test_rows_between_two_times_are_read_by_times_only(url: str) -> None:
    span = BackfillSpan(start_ms=NOON_MS, end_ms=NOON_MS + 1000)
    run = run_backfill(JdbcSource, settings(url, "timestamp"), span)
    assert (sorted(ids(run)), sorted(ids(run, "p-people")), [one.rows for one in run.parts]) == ([1, 2], [1, 2], [2, 2])


def test_one_table_can_be_named_and_a_query_has_a_backfill_too(url: str) -> None:
    everything = BackfillSpan(first=0, end=100, of="people")
    assert [one.topic for one in run_backfill(JdbcSource, settings(url, "incrementing"), everything).records] == [
        "p-people",
        "p-people",
    ]
    query = settings(url, "incrementing", query="SELECT id, name FROM orders WHERE id <> 4")
    run = run_backfill(JdbcSource, query, BackfillSpan(first=3, end=7))
    assert (ids(run, "p-"), [one.partition for one in run.parts]) == (["3", "5", "6"], [{"query": "query"}])


@pytest.mark.slow
def test_tables_of_duckdb_have_backfills(tmp_path: Path) -> None:
    import duckdb

    filled(duckdb.connect(str(tmp_path / "a.db")))
    config = settings(f"jdbc:duckdb:{tmp_path / 'a.db'}", "timestamp+incrementing")
    assert ids(run_backfill(JdbcSource, config, BackfillSpan(first=3, end=9), again=True)) == [3, 4, 5, 6, 7, 8]
    span = BackfillSpan(start_ms=NOON_MS + 1000, end_ms=NOON_MS + 3000)
    assert ids(run_backfill(JdbcSource, config, span)) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("mode", "span", "text"),
    [
        ("bulk", BackfillSpan(first=1, end=2), "mode=bulk goes by no column"),
        ("bulk", BackfillSpan(start_ms=1, end_ms=2), "mode=bulk goes by no column"),
        (
            "incrementing",
            BackfillSpan(start_ms=1, end_ms=2),
            "give two whole numbers, .* mode=incrementing goes by no time",
        ),
        ("incrementing", BackfillSpan(first="a", end="b"), "of which one is no number"),
        ("incrementing", BackfillSpan(first=5, end=5), "is empty"),
        ("timestamp", BackfillSpan(first=1, end=2), "give two times, since mode=timestamp goes by no number"),
        ("timestamp+incrementing", BackfillSpan(first="x", end="y"), "or two times"),
    ],
)
def test_what_the_mode_does_not_go_by_is_refused_with_what_to_give(
    tmp_path: Path, mode: str, span: BackfillSpan, text: str
) -> None:
    opened = sqlite3.connect(tmp_path / "a.db")
    opened.execute(TABLE.format("orders"))
    opened.close()
    with pytest.raises(BadRequestException, match=text):
        run_backfill(JdbcSource, settings(f"jdbc:sqlite:{tmp_path / 'a.db'}", mode), span)
