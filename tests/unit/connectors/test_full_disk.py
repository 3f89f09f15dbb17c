"""Sinks of files on a disk that takes no more: an error that says so, and no record lost once there is room again."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.api import SinkRecord
from penstock.connectors.file import FileStreamSinkConnector
from penstock.connectors.jdbc import JdbcSink
from penstock.data import INT64_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from penstock.errors import ConnectException
from penstock.testing import SinkRun, numbered, run_sink

ROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", STRING_SCHEMA).build()
ROOM = 256 * 1024
#: More than there is room for.
COUNT = 60
NAME = "x" * 10_000


@contextmanager
def full_at(nbytes: int) -> Iterator[None]:
    """No file of this process takes more bytes, as on a disk that is full: the system writes a part, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def records(count: int = COUNT) -> Sequence[SinkRecord]:
    rows = (Struct(ROW).put("id", number).put("name", f"{number:03d}{NAME}") for number in range(count))
    return numbered([SinkRecord("t", 0, 0, row, value_schema=ROW, key=None) for row in rows])


def written_by(sink: SinkRun, batch: int) -> None:
    """Puts and commits as long as records are taken."""
    while sink.put(batch):
        sink.commit()


def rows_of(database: Path) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        return [row for (row,) in connection.execute("SELECT id FROM t ORDER BY id")]


@pytest.mark.parametrize("mode", [{"insert.mode": "insert"}, {"offsets.in.target": "true"}], ids=["insert", "offsets"])
def test_a_table_on_a_full_disk_is_written_once_there_is_room(mode: dict[str, str], tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    url, more = f"jdbc:sqlite:{database}", {"auto.create": "true", "retry.backoff.ms": "1", "max.retries": "1000"}
    with run_sink(JdbcSink, {"connection.url": url, **more, **mode}, records()) as sink:
        assert sink.put(5) == 5
        sink.commit()
        with full_at(ROOM):
            written_by(sink, 5)
            written = rows_of(database)
            assert sink.put(5) == 0, "it stays full"
            assert rows_of(database) == written, "a transaction is written as a whole"
        assert sink.retries
        for text in sink.retries:
            assert f"The database sqlite:{database} did not finish: " in text.replace("///", "")
            assert "disk" in text
        sink.finish(5)
    assert rows_of(database) == list(range(COUNT))


def test_a_table_on_a_full_disk_fails_the_task_once_the_retries_are_used_up(tmp_path: Path) -> None:
    given = {"connection.url": f"jdbc:sqlite:{tmp_path / 'a.db'}", "auto.create": "true", "retry.backoff.ms": "1"}
    with run_sink(JdbcSink, {**given, "max.retries": "1"}, records()) as sink:
        with full_at(ROOM), pytest.raises(ConnectException, match=r"disk.*Tried 2 times \(max.retries=1\); restart"):
            written_by(sink, 5)
        committed = next(iter(sink.committed.values()))
        assert rows_of(tmp_path / "a.db") == list(range(committed))


def test_lines_on_a_full_disk_are_written_once_there_is_room(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    lines = [f"{number:03d}{NAME}" for number in range(COUNT)]
    given = numbered([SinkRecord("t", 0, 0, one, value_schema=STRING_SCHEMA, key=None) for one in lines])
    with run_sink(FileStreamSinkConnector, {"file": str(file)}, given) as sink:
        with full_at(ROOM), pytest.raises(ConnectException, match=rf"Cannot write to {file}: .*delivered again"):
            written_by(sink, 1)
        [committed] = sink.committed.values()
        assert file.stat().st_size == ROOM, "a part of the last line is there"
        assert file.read_text().split("\n")[:committed] == lines[:committed]
        sink.kill()
        sink.finish(7)
    assert file.read_text() == "".join(f"{one}\n" for one in lines), "the half of a line is not left in it"
