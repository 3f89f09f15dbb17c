"""Backfills of the Spark source, over tables in memory in place of Spark: what is in a range, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.connectors.spark.source.test_bulk import SparkContext
from tests.unit.connectors.spark.source.test_connector import Memory, add

from penstock.api import BackfillSpan
from penstock.connectors.spark import SparkSource
from penstock.connectors.spark.source import bulk as bulk_module
from penstock.connectors.spark.source import planning
from penstock.connectors.spark.source import task as source_task
from penstock.connectors.spark.source.backfill import bounds_of
from penstock.errors import BadRequestException
from penstock.testing import BackfillRun, run_backfill

BASE = {"topic": "t", "poll.interval.ms": "400", "files.settle.ms": "0"}
FILES = {**BASE, "spark.format": "parquet", "spark.path": "/in"}
QUERY = {**BASE, "spark.query": "SELECT * FROM t", "incrementing.column.name": "id"}


class Filtered(Memory):
    """With what backfills need besides."""

    kinds = {"id": "long", "at": "timestamp", "day": "date", "name": "string"}

    def on(self, session: Callable[[], Any]) -> Filtered:
        return self

    def kind_of(self, column: str) -> str:
        return self.kinds[column]

    def within(self, column: str, first: Any, end: Any) -> pa.Table:
        stored = Memory.query.column(column)
        stored = stored.cast(pa.int64()) if self.kinds[column] == "timestamp" else stored
        return Memory.query.filter(pc.and_(pc.greater_equal(stored, first), pc.less(stored, end)))

    def count(self, rows: pa.Table) -> int:
        return int(rows.num_rows)

    def sql(self, text: str) -> list[dict[str, Any]]:
        return [{"version": 4}]

    def option(self, **options: Any) -> Any:
        version = int(options["startingVersion"])
        return Version(pa.table({"id": [10 * version, 10 * version + 1], "_change_type": ["insert", "insert"]}))


class Version:
    """Rows of a version, which are filtered by Spark."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def where(self, condition: str) -> pa.Table:
        return self.rows


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    Memory.tables, Memory.asked, Memory.missing = {}, [], False
    for module in (source_task, bulk_module):
        monkeypatch.setattr(module, "SparkReader", Filtered)
    monkeypatch.setattr(planning, "MOST_FILES", 2)


def ids(run: BackfillRun) -> list[int]:
    return [one.get("id") for one in run.values]


def files(*names: str, large: str = "") -> None:
    for place, name in enumerate(names):
        size = planning.MOST_BYTES + 1 if name == large else 10
        add(f"file:///in/{name}", 1000 * place, range(10 * place, 10 * place + 5), size=size)


@pytest.mark.parametrize("mode", ["files", "bulk"])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("span", [BackfillSpan(first="d=2", end="d=4"), BackfillSpan(start_ms=1000, end_ms=3000)])
def test_the_files_of_a_range_are_read_once(mode: str, span: BackfillSpan, again: bool) -> None:
    files("d=1/a", "d=2/b", "d=3/c", "d=4/d", large="d=3/c")
    run = run_backfill(SparkSource, {**FILES, "mode": mode}, span, again=again)
    assert ids(run) == [10, 11, 12, 13, 14, 20, 21, 22, 23, 24]
    (part,) = run.parts
    assert (part.reads["files"], part.rows, part.partition) == (2, None, {"source": "/in", "mode": mode})
    assert run_backfill(SparkSource, {**FILES, "mode": mode}, BackfillSpan(first="e", end="f")).parts == []


@pytest.mark.parametrize(
    ("what", "mode"),
    [(QUERY, "bulk"), (QUERY, "incrementing"), ({**FILES, "incrementing.column.name": "id"}, "incrementing")],
)
@pytest.mark.parametrize("again", [False, True])
def test_rows_are_found_by_the_column_that_the_range_goes_by(what: dict[str, str], mode: str, again: bool) -> None:
    times = pa.array([number * 1_000_000 for number in range(9)], pa.timestamp("us", "UTC"))
    Memory.query = pa.table({"id": pa.array(range(9), pa.int64()), "at": times})
    settings = {**what, "mode": mode, "key.columns": "id"}
    run = run_backfill(SparkSource, settings, BackfillSpan(first="3", end=7), again=again)
    assert (ids(run), run.parts[0].rows) == ([3, 4, 5, 6], 4)
    assert run.parts[0].reads == {"column": "id", "by": "values", "from": 3, "to": 7}
    assert run_backfill(SparkSource, settings, BackfillSpan(first=30, end=70)).parts == []


def test_times_go_by_a_column_of_times_or_there_is_none() -> None:
    times = pa.array([number * 1_000_000 for number in range(9)], pa.timestamp("us", "UTC"))
    Memory.query = pa.table({"id": pa.array(range(9), pa.int64()), "at": times})
    by_time = {**BASE, "spark.query": "SELECT * FROM t", "mode": "incrementing", "incrementing.column.name": "at"}
    assert ids(run_backfill(SparkSource, by_time, BackfillSpan(start_ms=2000, end_ms=4000))) == [2, 3]
    with pytest.raises(BadRequestException, match="give two times"):
        run_backfill(SparkSource, by_time, BackfillSpan(first="a", end="b"))
    with pytest.raises(BadRequestException, match=r"set timestamp.column to a column of timestamps"):
        run_backfill(SparkSource, {**by_time, "incrementing.column.name": "id"}, BackfillSpan(start_ms=1, end_ms=2))
    with pytest.raises(BadRequestException, match=r"set incrementing.column.name"):
        run_backfill(SparkSource, {**BASE, "spark.query": "SELECT 1", "mode": "bulk"}, BackfillSpan(first=1, end=2))


@pytest.mark.parametrize("again", [False, True])
def test_versions_of_a_table_are_its_changes(again: bool) -> None:
    settings = {**BASE, "spark.format": "delta", "spark.path": "/in", "mode": "versions"}
    run = run_backfill(SparkSource, settings, BackfillSpan(first=3, end=9), again=again)
    assert (ids(run), run.parts[0].reads["to"]) == ([30, 31, 40, 41], 5)
    assert run_backfill(SparkSource, settings, BackfillSpan(first=5, end=9)).parts == []


def test_executors_do_a_range_as_a_run_with_the_same_name_each_time() -> None:
    settings = {**FILES, "mode": "bulk", "spark.bulk": "true"}
    files("d=1/a", "d=2/b", "d=3/c")
    connector = SparkSource()
    connector.start({"name": "x", **settings})
    found = []
    for end in ("d=3", "d=3", "d=4"):
        task: Any = connector.task_class()()
        task.initialize(SparkContext())
        task.start({"name": "x", **settings})
        (part,) = task.plan_backfill(BackfillSpan(first="d=2", end=end))
        (frame,) = task.backfill(part, None)
        assert list(task.backfill(part, frame.source_offset)) == []
        found.append(frame)
    first, again, other = found
    assert first.run == again.run != other.run
    assert first.run.startswith("backfill-")
    assert (first.source_partition, first.source_offset["done"]) == ({"source": "/in", "mode": "bulk"}, True)
    connector.stop()


@pytest.mark.parametrize(
    ("kind", "span", "expected"),
    [
        ("integer", BackfillSpan(first="-3", end=4), (-3, 4)),
        ("decimal(10,2)", BackfillSpan(first="9.5", end="10.25"), ("9.5", "10.25")),
        ("date", BackfillSpan(first="2026-11-02", end="2026-11-03"), ("2026-11-02", "2026-11-03")),
        ("date", BackfillSpan(start_ms=1, end_ms=86_400_001), ("1970-01-02", "1970-01-03")),
        ("string", BackfillSpan(first="b", end="ba"), ("b", "ba")),
        ("timestamp", BackfillSpan(start_ms=5, end_ms=6), (5000, 6000)),
        (
            "timestamp_ntz",
            BackfillSpan(start_ms=5, end_ms=1500),
            ("1970-01-01 00:00:00.005000", "1970-01-01 00:00:01.500000"),
        ),
    ],
)
def test_bounds_are_values_as_they_are_stored(kind: str, span: BackfillSpan, expected: Sequence[object]) -> None:
    assert bounds_of("c", kind, span) == expected


@pytest.mark.parametrize(
    ("kind", "first", "end", "text"),
    [
        ("long", "x", "y", "no number"),
        ("decimal(10,2)", "10.25", "9.5", "is empty"),
        ("decimal(10,2)", "x", "9.5", "one is no decimal"),
        ("date", "2026-13-02", "2027-01-01", "one is no date: give two values of the column c"),
        ("string", "b", "a", "is empty"),
        ("timestamp", "2026-11-02", "2026-11-03", "give two times"),
    ],
)
def test_bounds_that_are_none_are_refused(kind: str, first: str, end: str, text: str) -> None:
    with pytest.raises(BadRequestException, match=text):
        bounds_of("c", kind, BackfillSpan(first=first, end=end))


def test_a_part_of_one_thing_has_no_name() -> None:
    with pytest.raises(BadRequestException, match="reads one thing, /in"):
        run_backfill(SparkSource, {**FILES, "mode": "files"}, BackfillSpan(first="a", end="b", of="x"))
