"""Backfills of files: which are in a range, where they are by now, and what becomes of bad ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.api import BackfillSpan
from penstock.connectors.files import FileSource
from penstock.errors import BadRequestException, ConnectException
from penstock.testing import BackfillRun, run_backfill

DAYS = [f"2026-11-0{day}" for day in range(1, 6)]


def settings(path: Path, **more: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"url": str(path), "topic": "t", "file.minimum.age.ms": "0", **named}


@pytest.fixture
def days(tmp_path: Path) -> Path:
    for number, day in enumerate(DAYS):
        file = tmp_path / f"{day}.json"
        file.write_text("".join(json.dumps({"day": day, "n": one}) + "\n" for one in range(3)))
        os.utime(file, (1000 + number, 1000 + number))
    return tmp_path


def seen(run: BackfillRun) -> list[str]:
    return [f"{one.get('day')} {one.get('n')}" for one in run.values if not isinstance(one, str)]


def rows(*days: str) -> list[str]:
    return [f"{day} {one}" for day in days for one in range(3)]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("tasks_max", [1, 3])
@pytest.mark.parametrize(
    "span",
    [
        BackfillSpan(first="2026-11-02", end="2026-11-04"),
        BackfillSpan(first="2026-11-02.json", end="2026-11-03.json0"),
        BackfillSpan(start_ms=1_001_000, end_ms=1_003_000),
    ],
)
def test_the_files_of_a_range_are_read_once(days: Path, span: BackfillSpan, tasks_max: int, again: bool) -> None:
    run = run_backfill(FileSource, settings(days), span, tasks_max=tasks_max, again=again)
    assert sorted(seen(run)) == rows("2026-11-02", "2026-11-03")
    assert sum(int(str(one.reads["files"])) for one in run.parts) == 2
    assert {one.topic for one in run.records} == {"t"}


def test_one_file_can_be_named_and_an_empty_range_has_no_parts(days: Path) -> None:
    everything = BackfillSpan(first="0", end="3", of="2026-11-05.json")
    assert seen(run_backfill(FileSource, settings(days), everything)) == rows("2026-11-05")
    assert run_backfill(FileSource, settings(days), BackfillSpan(first="3", end="4")).parts == []
    with pytest.raises(BadRequestException, match="give two names of files, or two times"):
        BackfillSpan(start_ms=1).positions("give two names of files, or two times")


@pytest.mark.parametrize(("policy", "day"), [("MOVE", ""), ("MOVEBYDATE", "1970-01-01/")])
def test_a_file_that_was_moved_when_it_was_read_is_read_from_there(days: Path, policy: str, day: str) -> None:
    (days / "done" / day).mkdir(parents=True)
    (days / f"{DAYS[1]}.json").rename(days / "done" / day / f"{DAYS[1]}.json")
    moved = settings(days, cleanup_policy=policy, finished_path=str(days / "done"))
    run = run_backfill(FileSource, moved, BackfillSpan(first="2026-11-02", end="2026-11-04"))
    assert seen(run) == rows("2026-11-02", "2026-11-03")
    assert (days / "done" / day / f"{DAYS[1]}.json").exists()


def test_nothing_is_moved_and_no_row_is_remembered_as_read(days: Path) -> None:
    config = settings(days, cleanup_policy="DELETE")
    for _ in range(2):
        assert len(run_backfill(FileSource, config, BackfillSpan(first="2", end="3")).records) == 15
    assert len(list(days.iterdir())) == 5


def test_bad_rows_and_files_are_left_out_and_sent_where_dead_letters_go(
    days: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (days / f"{DAYS[1]}.json").write_text('{"day": "2026-11-02", "n": 0}\nno json\n')
    (days / f"{DAYS[2]}.parquet").write_text("no Parquet")
    config = settings(days, errors_deadletterqueue_topic_name="dead")
    run = run_backfill(FileSource, config, BackfillSpan(first="2026-11-02", end="2026-11-04"))
    assert seen(run) == ["2026-11-02 0", *rows("2026-11-03")]
    assert [one.topic for one in run.records].count("dead") == 2
    assert "It is left out" in caplog.text
    config = settings(days, halt_on_error="true")
    with pytest.raises(ConnectException, match=r"2026-11-02.json, line 2: .* ask for the backfill again"):
        run_backfill(FileSource, config, BackfillSpan(first="2026-11-02", end="2026-11-03"))


def test_a_source_that_brings_topics_back_has_none(days: Path) -> None:
    (days / "topics").mkdir()
    with pytest.raises(BadRequestException, match="brings back what a FileSink has written"):
        run_backfill(FileSource, {"url": str(days)}, BackfillSpan(first="2", end="3"))
