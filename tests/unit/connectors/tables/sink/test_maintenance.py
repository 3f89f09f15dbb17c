"""Small files are joined and old versions removed between commits: rows, offsets and readers do not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.unit.connectors.tables import lakes
from tests.unit.connectors.tables.source.test_connector import read, settings, shown
from tests.unit.connectors.tables.writing import HERE, Writing

from penstock.connectors.tables import TableSink, TableSource
from penstock.connectors.tables.lake import CommitConflictException
from penstock.testing import run_source

formats = pytest.mark.parametrize("lake", lakes.FORMATS)


def files(path: Path, lake: str) -> int:
    """How many files the newest version has."""
    if lake == "delta":
        return len(DeltaTable(str(path / "lake/t")).file_uris())
    return len(list(lakes.iceberg(path, "t").scan().plan_files()))


def commits(writing: Writing, count: int, first: int = 0) -> None:
    for number in range(count):
        values = [{"id": first + 2 * number + one, "name": f"n{one}"} for one in range(2)]
        writing.put(values, first=first + 2 * number)
        writing.tick()


def maintain(writing: Writing) -> None:
    writing.task._maintenance._due = 0
    writing.tick()


@pytest.mark.slow
@formats
def test_small_files_become_few_with_the_same_rows_and_offsets(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, partition_by="name", compact_small_files="true")
    commits(writing, 4)
    assert files(tmp_path, lake) == 8
    maintain(writing)
    assert files(tmp_path, lake) == 2
    assert writing.ids() == list(range(8))
    commits(writing, 1, first=8)
    assert writing.ids() == list(range(10))
    assert files(tmp_path, lake) == 4
    again = Writing(tmp_path, lake)
    assert again.context.rewound == {HERE: 10}


@pytest.mark.slow
@formats
def test_a_source_of_the_table_passes_over_files_that_were_joined(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, compact_small_files="true")
    commits(writing, 3)
    with run_source(TableSource, settings(tmp_path, lake)) as source:
        source.finish(6)
        maintain(writing)
        commits(writing, 1, first=6)
        source.finish(8)
        assert sorted(number for number, _ in shown(source)) == list(range(8))
    assert len(read(tmp_path, lake, 8)) == 8


@pytest.mark.slow
@formats
def test_old_versions_go_and_the_newest_one_and_the_offsets_stay(tmp_path: Path, lake: str) -> None:
    writing = Writing(tmp_path, lake, compact_small_files="true", expire_older_than_ms="3600000")
    commits(writing, 3)
    maintain(writing)
    table: Any = writing.task._tables["t"].table
    there = len(list((tmp_path / "lake").rglob("*.parquet")))
    assert there == 4, "what was joined is less than an hour old"
    assert table.expire(0) == 3
    if lake == "delta":
        assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 1
    else:
        assert len(lakes.iceberg(tmp_path, "t").snapshots()) == 1
        assert table.expire(0) == 0
    assert writing.ids() == list(range(6))
    assert Writing(tmp_path, lake).context.rewound == {HERE: 6}


@formats
def test_a_writer_that_was_faster_keeps_its_rows_and_maintenance_waits_for_its_next_time(
    tmp_path: Path, lake: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writing = Writing(tmp_path, lake, compact_small_files="true")
    commits(writing, 2)
    table: Any = writing.task._tables["t"].table

    def outrun() -> int:
        raise CommitConflictException("The table t was changed by another writer")

    monkeypatch.setattr(table, "compact", outrun)
    maintain(writing)
    assert "is left as it is until the next maintenance: The table t was changed by another writer" in caplog.text
    commits(writing, 1, first=4)
    assert writing.ids() == list(range(6))


def test_rows_that_another_writer_adds_while_files_are_joined_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing(tmp_path, "iceberg", compact_small_files="true", schema_force_optional="true")
    commits(writing, 2)
    table: Any = writing.task._tables["t"].table
    made = table._files

    def files_and_another(rows: Any) -> Any:
        found = made(rows)
        lakes.make(tmp_path, "iceberg", "t", [[99]])
        return found

    table.refresh()
    monkeypatch.setattr(table, "_files", files_and_another)
    with pytest.raises(CommitConflictException):
        table.compact()
    assert writing.ids() == [0, 1, 2, 3, 99]


def test_one_task_does_it_and_an_age_below_an_hour_is_refused(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "delta", compact_small_files="true")
    commits(writing, 2)
    writing.context.assignment = lambda: frozenset([HERE._replace(partition=1)])  # type: ignore[method-assign]
    maintain(writing)
    assert files(tmp_path, "delta") == 2
    config = TableSink().validate({**writing.props, "expire.older.than.ms": "5"})
    assert "an hour (3600000) or more" in str([one.error_messages for one in config.config_values])
