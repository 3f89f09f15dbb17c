"""The Spark source over tables in memory in place of Spark: each mode through the suites, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.api import ExactlyOnceSupport
from penstock.api.arrow import connect_schema
from penstock.connectors.spark import SparkSource
from penstock.connectors.spark.source import modes, planning
from penstock.connectors.spark.source import task as source_task
from penstock.connectors.spark.source.chunks import QueryChunks
from penstock.connectors.spark.source.planning import File
from penstock.connectors.spark.source.settings import SparkSourceConfig
from penstock.errors import BadRequestException, ConnectException, RetriableException
from penstock.testing import FrameSuite, SourceSuite, run_source


class Memory:
    """What ``Reader`` does, over tables."""

    tables: ClassVar[dict[str, tuple[File, pa.Table]]] = {}
    query: ClassVar[pa.Table] = pa.table({"id": [1]})
    piece_rows: ClassVar[int] = 2
    asked: ClassVar[list[list[str]]] = []
    missing: ClassVar[bool] = False

    def __init__(self, config: SparkSourceConfig, session: Callable[[], Any]) -> None:
        self.config = config

    def files(self) -> list[File]:
        if Memory.missing:
            raise RetriableException("there is no such path")
        return [file for file, _ in Memory.tables.values()]

    def of_files(self, files: Sequence[File]) -> pa.Table:
        Memory.asked.append([one.path for one in files])
        return pa.concat_tables([Memory.tables[one.path][1] for one in files])

    def all(self) -> pa.Table:
        return Memory.query

    def sorted(self, rows: pa.Table) -> pa.Table:
        return rows

    def at_once(self, rows: pa.Table) -> pa.Table:
        return rows

    def pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        for first in range(0, rows.num_rows, Memory.piece_rows):
            yield rows.slice(first, Memory.piece_rows)

    def records(self, rows: pa.Table) -> QueryChunks:
        schema = connect_schema(rows.schema)
        assert schema is not None
        return QueryChunks(schema, self.config.topic, self.config.key_columns, self.config.timestamp_column)


def add(path: str, modified_ms: int, ids: Sequence[int], *, size: int = 10, **columns: Sequence[object]) -> None:
    Memory.tables[path] = File(path, modified_ms, size), pa.table({"id": pa.array(ids, pa.int64()), **columns})


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    Memory.tables, Memory.asked, Memory.missing = {}, [], False
    monkeypatch.setattr(source_task, "SparkReader", Memory)
    monkeypatch.setattr(planning, "MOST_FILES", 2)


LARGE = planning.MOST_BYTES + 1
BASE = {"topic": "t", "poll.interval.ms": "400", "files.settle.ms": "0"}
FILES = {**BASE, "spark.format": "parquet", "spark.path": "/in", "mode": "files"}


class TestNewFiles(FrameSuite, SourceSuite):
    connector = SparkSource
    count = 12
    tasks_max = 1

    def prepare(self, path: Path) -> dict[str, str]:
        Memory.tables = {}
        add("b", 1000, [0, 1])
        add("a", 2000, [2])
        add("c", 3000, range(3, 10), size=LARGE)
        add("d", 3000, [10])
        add("e", 3001, [11])
        return {**FILES, "key.columns": "id"}

    def change(self) -> int:
        add("f", 4000, [100], more=["x"])
        return 1


class TestBulkFiles(FrameSuite, SourceSuite):
    connector = SparkSource
    count = 12
    tasks_max = 1

    def prepare(self, path: Path) -> dict[str, str]:
        return {**TestNewFiles().prepare(path), "mode": "bulk"}


class TestBulk(FrameSuite, SourceSuite):
    connector = SparkSource
    count = 7
    tasks_max = 1

    def prepare(self, path: Path) -> dict[str, str]:
        Memory.query = pa.table({"id": range(7), "value": range(7), "key": ["x"] * 7})
        return {**BASE, "spark.query": "SELECT 1", "mode": "bulk", "key.columns": "id"}


def test_a_file_is_read_once_and_again_when_it_was_changed() -> None:
    add("a", 1000, [1])
    with run_source(SparkSource, FILES) as run:
        run.finish(1)
    assert [str(one) for one in run.values] == ["Struct{id=1}"]


def polled(run: Any, polls: int = 8) -> list[str]:
    found = []
    for _ in range(polls):
        found += [str(one.value) for one in run.poll() or ()]
        run.commit()
    return found


def test_files_that_come_late_are_read_within_the_time_and_named_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    add("a", 1_000_000, [1])
    with run_source(SparkSource, {**FILES, "files.late.ms": "1000"}) as run:
        assert polled(run) == ["Struct{id=1}"]
        add("b", 999_500, [2])
        assert polled(run) == ["Struct{id=2}"]
        add("c", 998_000, [3])
        assert polled(run) == []
        add("d", 1_009_000, [4])
        assert polled(run) == ["Struct{id=4}"]
        assert polled(run) == []
    told = [one.getMessage() for one in caplog.records if "files.late.ms" in one.getMessage()]
    assert len(told) == 1
    assert "c" in told[0]


def test_a_file_waits_until_it_is_as_it_was_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    add("a", 10_000, [1])
    now = [10_500]
    monkeypatch.setattr(modes, "_now_ms", lambda: now[0])
    with run_source(SparkSource, {**FILES, "files.settle.ms": "1000"}) as run:
        assert polled(run) == []
        now[0] = 11_000
        assert polled(run) == ["Struct{id=1}"]


def test_all_rows_come_again_after_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000]
    monkeypatch.setattr(modes, "_now_ms", lambda: now[0])
    Memory.query = pa.table({"id": [1, 2, 3]})
    with run_source(SparkSource, {**BASE, "spark.query": "SELECT 1", "mode": "bulk", "bulk.interval.ms": "500"}) as run:
        assert len(polled(run)) == 3
        now[0] = 1499
        assert polled(run) == []
        now[0] = 1500
        assert len(polled(run)) == 3
        run.kill()
        assert polled(run) == []


def test_a_file_that_was_changed_while_it_was_read_is_read_from_its_beginning() -> None:
    add("a", 1000, range(6), size=LARGE)
    with run_source(SparkSource, {**FILES, "mode": "bulk"}) as run:
        assert [str(one.value) for one in run.poll() or ()] == ["Struct{id=0}", "Struct{id=1}"]
        run.commit()
        run.kill()
        add("a", 1001, [7, 8], size=LARGE)
        assert polled(run) == ["Struct{id=7}", "Struct{id=8}"]


def test_a_path_that_is_not_there_is_waited_for() -> None:
    Memory.missing = True
    add("a", 1000, [1])
    with run_source(SparkSource, FILES) as run:
        assert polled(run, 3) == []
        assert run.retries[0] == "there is no such path"
        Memory.missing = False
        run.finish(1)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"key.columns": "nope"}, "key.columns: there is no column nope; there are id, at"),
        ({"timestamp.column": "nope"}, "timestamp.column: there is no column nope"),
        ({"timestamp.column": "at"}, "timestamp.column: at is"),
    ],
)
def test_a_column_that_is_not_there_fails_the_task_with_those_that_are(settings: dict[str, str], text: str) -> None:
    add("a", 1000, [1], at=["noon"])
    with run_source(SparkSource, {**FILES, **settings}) as run, pytest.raises(ConnectException) as failed:
        run.poll()
    assert text in str(failed.value)


def test_the_timestamp_is_that_of_a_column_and_the_column_stays() -> None:
    add("a", 1000, [1], at=pa.array([5], pa.timestamp("ms", "UTC")))
    with run_source(SparkSource, {**FILES, "timestamp.column": "at"}) as run:
        run.finish(1)
    assert run.records[0].timestamp == 5


def test_offsets_that_are_none_are_refused() -> None:
    place = frozenset({("source", "/in"), ("mode", "files")})
    source = SparkSource()
    assert source.alter_offsets(FILES, {place: {"through": 5, "names": "[]"}, frozenset({("x", 1)}): None})
    with pytest.raises(BadRequestException, match="no source partition of this connector"):
        source.alter_offsets(FILES, {frozenset({("source", "/other"), ("mode", "files")}): {"through": 5}})
    with pytest.raises(BadRequestException, match="no offset of mode=files"):
        source.alter_offsets(FILES, {place: {"run": 5}})


def test_positions_are_exact_but_for_all_rows_of_what_may_change() -> None:
    query = {**BASE, "spark.query": "SELECT 1", "mode": "bulk"}
    assert SparkSource().exactly_once_support(FILES) is ExactlyOnceSupport.SUPPORTED
    assert SparkSource().exactly_once_support(query) is ExactlyOnceSupport.UNSUPPORTED
