"""What the file source makes of files, good and bad."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files import FileSource
from penstock.connectors.files.source.ledger import FileOutcome
from penstock.connectors.files.source.listing import Cleanup, OnDone
from penstock.data import Struct
from penstock.errors import ConnectException, RetriableException
from penstock.files import Found
from penstock.files.store import of_system
from penstock.testing import MemoryStore, run_source
from penstock.testing.kit.sources import SourceRun

QUICK = {"topic": "t", "file.minimum.age.ms": "0", "empty.poll.wait.ms": "10"}


def source(path: Path, **settings: str) -> SourceRun:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return run_source(FileSource, {"url": str(path), **QUICK, **named}, timeout_s=30)


def read(path: Path, **settings: str) -> list[Any]:
    """The values of all records, structs as dicts."""
    with source(path, **settings) as run:
        run.finish()
    return [plain(one.value) for one in run.records]


def plain(value: Any) -> Any:
    """A value with dicts in the place of structs."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, Struct):
        return {field.name: plain(value.get(field)) for field in value.schema.fields}
    return value


def test_types_of_csv_are_found_and_widened_where_later_rows_do_not_fit(tmp_path: Path) -> None:
    rows = [f"{number},{number},2026-01-02 03:04:05,true,x" for number in range(40_000)]
    (tmp_path / "a.csv").write_text("\n".join(["id,price,at,ok,name", *rows, "7,1.5,later,false,"]))

    found = read(tmp_path)

    assert found[0] | {"at": None} == {"id": 0, "price": 0, "at": None, "ok": True, "name": "x"}
    assert found[-1] == {"id": 7, "price": 1.5, "at": "later", "ok": False, "name": None}
    assert len(found) == 40_001


def test_the_dialect_of_csv_is_that_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfnote\r\nid;'na;me'\r\n1;'a\r\nb'\r\n2;\r\n3;''\r\n")

    found = read(tmp_path, csv_separator_char="59", csv_quote_char="'", csv_skip_lines="1")

    assert found == [{"id": 1, "na;me": "a\r\nb"}, {"id": 2, "na;me": None}, {"id": 3, "na;me": ""}]


def test_a_schema_of_the_settings_decides_and_rows_that_do_not_fit_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("id,name,extra\n1,a,x\nb,c,x\n,d,x\n3,e,x\n4,f,x,y\n")

    found = read(tmp_path, value_schema="id int32 not null, name string, day date")

    assert found == [{"id": 1, "name": "a", "day": None}, {"id": 3, "name": "e", "day": None}]
    assert "a.csv, line 3" in caplog.text
    assert "a.csv, line 4: has no value in" in caplog.text
    assert "a.csv, line 6: has 4 fields, and the header 3" in caplog.text


def test_a_bad_row_fails_the_task_where_it_shall_behind_the_rows_before_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,a\n2,b\n3,c,d\n4,e\n")

    with source(tmp_path, halt_on_error="true") as run:
        run.poll()
        run.commit()
        with pytest.raises(ConnectException, match=r"a.csv, line 4: has 3 fields, .* halt.on.error=false"):
            run.poll()
    assert [plain(one.value)["id"] for one in run.records] == [1, 2]

    (tmp_path / "a.csv").write_text("id,name\n1,a\n2,b\n3,c\n4,e\n")
    assert [one["id"] for one in read(tmp_path, halt_on_error="true")] == [1, 2, 3, 4]


def test_bad_rows_and_files_are_dead_letters_with_file_line_and_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": \n[1]\n{"id": 2}\n')
    (tmp_path / "b.parquet").write_text("nothing of the kind")

    with source(tmp_path, errors_deadletterqueue_topic_name="bad") as run:
        run.finish()

    letters = [one for one in run.records if one.topic == "bad"]
    assert [plain(one.value) for one in run.records if one.topic == "t"] == [{"id": 1}, {"id": 2}]
    assert [one.value for one in letters] == ['{"id": ', "[1]", ""]
    headers = [{header.key: header.value for header in one.headers} for one in letters]
    assert [one["line"] for one in headers] == [b"2", b"3", b"0"]
    assert headers[0]["file"] == f"{tmp_path}/a.jsonl".encode()
    assert "is no whole file of Parquet" in str(headers[2]["error"])


def test_json_whose_fields_change_their_types_is_widened(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "at": "2026-01-01"},
        {"id": "x", "new": {"a": [1, 2.5]}},
        {"id": None, "new": {"b": "2026-01-01"}},
    ]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, rows)))

    assert read(tmp_path) == [
        {"id": "1", "at": "2026-01-01", "new": None},
        {"id": "x", "at": None, "new": {"a": [1.0, 2.5], "b": None}},
        {"id": None, "at": None, "new": {"a": None, "b": "2026-01-01"}},
    ]


@pytest.mark.parametrize("text", ['[{"id": 1},\n {"id": 2}]', '{\n "id": 1\n}\n{\n "id": 2\n}\n'])
def test_json_over_several_lines_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)

    assert read(tmp_path) == [{"id": 1}, {"id": 2}]


def test_files_are_read_in_the_order_of_the_settings(tmp_path: Path) -> None:
    for name, age, text in (("b", 30, "old"), ("a", 20, "middle text"), ("c", 10, "new")):
        (tmp_path / f"{name}.txt").write_text(text)
        os.utime(tmp_path / f"{name}.txt", (time.time() - age,) * 2)

    assert read(tmp_path) == ["middle text", "old", "new"]
    assert read(tmp_path, files_sort_attributes="LastModifiedAsc") == ["old", "middle text", "new"]
    assert read(tmp_path, files_sort_attributes="LengthDesc") == ["middle text", "old", "new"]
    assert read(tmp_path, files_sort_attributes="NameDesc") == ["new", "old", "middle text"]


def test_a_file_that_comes_later_is_read_whatever_its_name_and_time(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("first")
    with source(tmp_path) as run:
        run.finish(1)
        (tmp_path / "a.txt").write_text("late")
        os.utime(tmp_path / "a.txt", (1, 1))
        run.finish(2)
    assert run.values == ["first", "late"]


def test_files_that_are_new_are_left_until_they_are_old_enough(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("new")
    (tmp_path / "b.txt").write_text("old")
    os.utime(tmp_path / "b.txt", (time.time() - 100,) * 2)

    assert read(tmp_path, file_minimum_age_ms="60000") == ["old"]


def test_files_are_moved_and_deleted_once_their_offsets_are_committed(tmp_path: Path) -> None:
    files, finished, failed = tmp_path / "in", tmp_path / "in" / "done", tmp_path / "bad"
    (files / "sub").mkdir(parents=True)
    (files / "sub" / "a.txt").write_text("one")
    (files / "b.parquet").write_text("no Parquet")

    with source(files, finished_path=str(finished), error_path=str(failed)) as run:
        for _ in range(3):
            run.poll()
        assert (files / "sub" / "a.txt").exists()
        run.commit()
        for _ in range(20):
            run.poll()
            run.commit()
        assert (finished / "sub" / "a.txt").read_text() == "one"
        assert (failed / "b.parquet").exists()
        assert not (files / "b.parquet").exists()
        # The same name once more is another file.
        (files / "sub" / "a.txt").write_text("two")
        run.finish(2)
    assert run.values == ["one", "two"]
    (files / "c.txt").write_text("three")
    with source(files, cleanup_policy="DELETE", input_path_walk_recursively="false") as run:
        run.finish(1)
        for _ in range(20):
            run.poll()
            run.commit()
    assert not (files / "c.txt").exists()


def test_a_file_that_grows_while_it_is_read_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntw")
    parts = iter(["o\nthr", "ee\nfour\nfi"])
    with source(tmp_path) as run:
        run._begin()
        task: Any
        (task,) = run.tasks
        opened = task._store.open

        def open_(found: Any) -> Any:
            with path.open("a") as file:
                file.write(next(parts, ""))
            return opened(found)

        task._store.open = open_
        run.finish(4, ends=False)
    assert run.values == ["one", "two", "three", "four"]
    with source(tmp_path) as run:
        run.finish()
    assert run.values == ["one", "two", "three", "four", "fi"]


def test_a_file_that_goes_while_it_is_read_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("gone")
    (tmp_path / "b.txt").write_text("there")
    with source(tmp_path) as run:
        task: Any
        run._begin()
        (task,) = run.tasks
        opened = task._store.open

        def open_(found: Any) -> Any:
            (tmp_path / "a.txt").unlink(missing_ok=True)
            return opened(found)

        task._store.open = open_
        run.finish(1)
    assert run.values == ["there"]


def test_a_file_that_may_not_be_read_is_tried_again_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("denied")
    (tmp_path / "b.txt").write_text("there")
    with source(tmp_path) as run:
        run._begin()
        task: Any
        (task,) = run.tasks
        opened, denied = task._store.open, [True]

        def open_(found: Any) -> Any:
            if found.key == "a.txt" and denied:
                raise of_system(PermissionError(13, "Permission denied"), "a.txt", "read")
            return opened(found)

        task._store.open = open_
        run.finish(1, ends=False)
        assert run.values == ["there"]
        run._begin()
        (task,) = run.tasks
        task._store.open = open_
        for _ in range(5):
            run.poll()
        assert "Permission denied. Check the path, and that the worker's user may read there" in run.retries[-1]
        denied.clear()
        task._now_ms = lambda: (time.time() + 100) * 1000
        run.finish(2)
    assert run.values == ["there", "denied"]


def test_odd_files_are_read_or_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("id,name\n")
    (tmp_path / "twice.csv").write_text("id,id,\n1,2,3\n")
    (tmp_path / "nul.txt").write_bytes(b"a\0b\n\xff\xfe\nok\n")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"x" * 100_000)[:50])
    (tmp_path / "what.xyz").write_text("?")
    (tmp_path / "_hidden.txt").write_text("?")
    (tmp_path / "crlf.txt").write_bytes(b"a\r\nb")

    found = read(tmp_path)

    assert found == ["a", "b", "a\0b", "ok", {"id": 1, "id_2": 2, "column_3": 3}]
    for text in (
        'twice.csv has several columns called "id"',
        "nul.txt, line 2",
        "cut.txt.gz cannot be unpacked",
        "what.xyz has a name that tells no format",
    ):
        assert text in caplog.text


def test_keys_times_and_headers_are_those_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,at\n1,2026-01-01T00:00:00\n")
    with source(
        tmp_path,
        key_fields="id",
        timestamp_mode="FIELD",
        timestamp_field="at",
        parser_timestamp_timezone="Europe/Berlin",
        metadata_location="HEADERS",
    ) as run:
        run.finish()
    (record,) = run.records
    assert (plain(record.key), record.timestamp) == ({"id": 1}, 1767222000000)
    assert {one.key: one.value for one in record.headers}["file.name"] == b"a.csv"


def test_topics_are_found_by_patterns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a/x.txt", "b/x.txt", "c/x.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    with source(tmp_path, topic="", topic_regex_list="one:a/.*,two:b/.*") as run:
        run.finish()
    assert [(one.topic, one.value) for one in run.records] == [("one", "a/x.txt"), ("two", "b/x.txt")]
    assert "c/x.txt belongs to no topic" in caplog.text


def test_parquet_of_types_that_connect_has_not_is_named_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"d": pa.array([1], pa.duration("s"))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"d": pa.array([1], pa.uint8())}), tmp_path / "b.parquet")

    assert read(tmp_path) == [{"d": 1}]
    assert "a.parquet has columns that are no records: A column of Arrow type duration[s]" in caplog.text


def test_a_store_that_is_away_is_named_and_reading_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    faults = iter([RetriableException("away")] * 3)
    with source(tmp_path) as run:
        run._begin()
        task: Any
        (task,) = run.tasks
        opened = task._store.open

        def open_(found: Any) -> Any:
            if (fault := next(faults, None)) is not None:
                raise fault
            return opened(found)

        task._store.open = open_
        run.finish(1)
    assert run.values == ["one"]
    assert run.retries == ["away"] * 3


def test_manifests_of_a_file_sink_are_no_files_to_be_read(tmp_path: Path) -> None:
    for name in ("a.json", "_manifests/c/1.json", "_ranges/c/t+0+0.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"id": 1}\n')
    assert read(tmp_path) == [{"id": 1}]


def test_names_that_are_not_utf8_are_read_reported_and_moved(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.csv")).write_text("id\n1\n2,3\n")

    with source(
        tmp_path,
        metadata_location="HEADERS",
        errors_deadletterqueue_topic_name="letters",
        finished_path="done",
    ) as run:
        run.finish()

    assert [(one.topic, plain(one.value)) for one in run.records] == [("letters", "2,3"), ("t", {"id": 1})]
    header = run.records[0].headers.last_with_name("file")
    assert header is not None
    assert isinstance(header.value, bytes)
    assert b"a\xff.csv" in header.value
    with source(tmp_path / "done") as run:
        run.finish()
    assert [plain(one.value) for one in run.records] == [{"id": 1}]


DEEP = {
    "objects.json": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "field.json": b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}",
    "less.json": b'{"x":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}",
}


@pytest.fixture
def calls_of_python() -> Iterator[None]:
    """Python's own limit of nested calls: pipelines that earlier tests made have raised it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize("name", DEEP)
def test_a_line_that_is_nested_too_deep_is_a_bad_row(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, calls_of_python: None
) -> None:
    (tmp_path / name).write_bytes(b'{"b":1}\n' + DEEP[name] + b'\n{"b":2}\n')

    assert read(tmp_path) == [{"b": 1}, {"b": 2}]
    assert f"{name}, line 2" in caplog.text


NESTED_FILES = {
    "a.xml": b"<r>" + b"<a>" * 3000 + b"</a>" * 3000 + b"</r>",
    "a.json": b"[\n" * 3000 + b"]\n" * 3000,
    "a.csv": b'"id,name\n' + b"1,a\n" * 50_000,
}


@pytest.mark.parametrize("name", NESTED_FILES)
def test_a_file_that_no_parser_takes_is_left_out(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / name).write_bytes(NESTED_FILES[name])
    (tmp_path / "b.jsonl").write_text('{"b":1}\n')

    assert read(tmp_path) == [{"b": 1}]
    assert f"{name} " in caplog.text


@pytest.mark.parametrize("value", ["", "||", "\u00b2", "\u20ac", "300"])
def test_what_is_no_character_is_a_wrong_setting(value: str) -> None:
    found = FileSource().validate({"name": "n", "url": "/x", "topic": "t", "csv.separator.char": value})

    assert "is one ASCII character" in str(found.errors()["csv.separator.char"])


def test_a_file_of_any_time_has_a_day() -> None:
    store = MemoryStore()
    for seconds in (0, 3_000_000_000, 300_000_000_000):
        store.put("a", io.BytesIO(b"x"), 1)
        Cleanup(store, OnDone.MOVE_BY_DATE, "done")(Found("a", 1, seconds * 1_000_000_000), FileOutcome.READ)

    assert list(store.files) == ["done/1970-01-01/a", "done/2065-01-24/a", "done/11476-08-15/a"]
