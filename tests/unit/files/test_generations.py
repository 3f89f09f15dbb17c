"""When open files are closed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from penstock.api import SinkRecord, TopicPartition
from penstock.connectors.files import FileSink
from penstock.files.generations import FileNames, Generations, OpenFile, Rotation, Rows
from penstock.testing import numbered, run_sink

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def rows(
    offsets: Sequence[int],
    *,
    times: Sequence[int] | None = None,
    directories: Sequence[str] = ("d",),
    codes: Sequence[int] | None = None,
    schema: int = 0,
    continued: bool = False,
    size: int = 8,
) -> Rows:
    count = len(offsets)
    return Rows(
        pa.table({"value": ["x" * size] * count}),
        np.array(offsets),
        np.array(times if times is not None else [0] * count),
        np.array(codes if codes is not None else [0] * count),
        directories,
        schema,
        continued,
    )


def rolling(limit: int = 1 << 20, records: int = 1000, **rotation: Any) -> Generations:
    return Generations(Rotation(records, **rotation), limit)


def closed(files: Generations) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in files.closed]


def test_the_count_is_that_of_a_partition_over_all_its_directories() -> None:
    files = rolling(records=4)
    files.append(HERE, rows(range(10), directories=["a", "b"], codes=[0, 1] * 5), 0)
    files.append(THERE, rows(range(3)), 0)
    assert closed(files) == [(0, 4), (4, 8)]
    assert [file.first for one in files.closed for file in one.files.values()] == [0, 1, 4, 5]
    assert (files.safe_offset(HERE), files.safe_offset(THERE)) == (0, 0)


def test_offsets_are_safe_up_to_the_first_generation_that_is_not_written() -> None:
    files = rolling(records=2)
    assert files.safe_offset(HERE) is None
    files.append(HERE, rows([3, 4, 7, 9, 11]), 0)
    assert files.safe_offset(HERE) == 3
    files.written(files.closed[0], 0)
    assert files.safe_offset(HERE) == 7
    files.written(files.closed[0], 0)
    assert files.safe_offset(HERE) == 11
    files.close([HERE])
    files.written(files.closed[0], 0)
    assert files.safe_offset(HERE) is None


def test_a_record_that_is_late_enough_begins_new_files_whatever_batches_there_were() -> None:
    times = [0, 50, 20, 100, 30, 199, 200, 201]
    for cut in range(1, 8):
        files = rolling(span_ms=100)
        files.append(HERE, rows(range(cut), times=times[:cut]), 0)
        files.append(HERE, rows(range(cut, 8), times=times[cut:]), 0)
        assert closed(files) == [(0, 3), (3, 6)]


def test_a_partition_without_records_is_closed_when_the_interval_is_over_on_the_clock() -> None:
    files = rolling(span_ms=100)
    files.append(HERE, rows([0]), 1000)
    files.append(HERE, rows([1]), 1050)
    files.close_due(1149)
    assert closed(files) == []
    files.close_due(1150)
    assert closed(files) == [(0, 2)]


def test_the_schedule_counts_from_midnight_where_the_zone_is() -> None:
    hour = 3_600_000
    assert Rotation(1, schedule_ms=hour).deadline_ms(hour + 1) == 2 * hour
    # Kathmandu's midnight was 18:30 in UTC then.
    zone = ZoneInfo("Asia/Kathmandu")
    assert Rotation(1, schedule_ms=hour, zone=zone).deadline_ms(0) == 1_800_000
    assert Rotation(1).deadline_ms(0) is None
    files = rolling(schedule_ms=1000)
    files.append(HERE, rows([0]), 1999)
    files.close_due(1999)
    assert closed(files) == []
    files.close_due(2000)
    assert closed(files) == [(0, 1)]


def test_a_file_of_the_wanted_size_closes_all_files_of_its_partition() -> None:
    files = rolling(size=4000)
    for first in range(0, 40, 10):
        files.append(HERE, rows(range(first, first + 10), directories=["a", "b"], codes=[0, 1] * 5, size=200), 0)
    ((start, end),) = closed(files)
    assert start == 0
    assert 34 <= end <= 40


def test_the_size_is_that_of_the_files_as_they_were_written_last() -> None:
    files = rolling(size=100_000, records=1_000_000)
    files.append(HERE, rows(range(100), size=2000), 0)
    (first,) = files.closed[:1]
    total = sum(one.total for one in first.files.values())
    files.written(first, int(total / 10))
    for one in files.closed:
        files.written(one, int(total / 10))
    files.append(THERE, rows(range(400), size=2000), 0)
    assert files.closed == ()
    files.append(THERE, rows(range(400, 700), size=2000), 0)
    assert len(files.closed) == 1


@pytest.mark.parametrize("offsets", [[0, 1, 1, 1, 2], [0, 0, 0, 1, 1]])
def test_rows_of_one_message_stay_together(offsets: list[int]) -> None:
    files = rolling(records=2)
    files.append(HERE, rows(offsets), 0)
    for one in files.closed:
        assert offsets.count(one.end - 1) == 0 or one.start < one.end
    bounds = [one.end for one in files.closed]
    assert all(offsets.index(end) > 0 and offsets[offsets.index(end) - 1] < end for end in bounds if end in offsets)


def test_a_message_whose_rows_are_not_all_there_keeps_its_files_open() -> None:
    files = rolling(records=2, schedule_ms=10)
    files.append(HERE, rows([0, 1], continued=True), 0)
    files.close_due(1000)
    files.close([HERE])
    assert closed(files) == []
    files.append(HERE, rows([1, 2]), 0)
    assert closed(files) == [(0, 2)]


def test_files_of_two_schemas_that_begin_with_one_message_have_two_numbers() -> None:
    files = rolling(records=3)
    files.append(HERE, rows([5], continued=True), 0)
    files.append(HERE, rows([5, 6], schema=1), 0)
    (one,) = files.closed
    assert [(file.first, file.number) for file in one.files.values()] == [(5, 0), (5, 1)]


def test_the_largest_blocks_are_moved_first_until_half_of_the_memory_is_free() -> None:
    files = rolling(limit=1000)
    for code, size in enumerate((10, 600, 300, 200)):
        files.append(HERE, rows([code], directories=[f"d{code}"], size=size), 0)
    moved = files.over_limit()
    assert [block.table.num_rows and block.held > 300 for _, block in moved] == [True, True]
    for _, block in moved:
        block.moved("elsewhere")
    assert files.over_limit() == []


def test_two_thousand_directories_hold_no_more_than_their_rows() -> None:
    files = rolling(records=10**6, limit=1 << 30)
    for batch in range(20):
        offsets = range(batch * 2000, batch * 2000 + 2000)
        files.append(HERE, rows(offsets, directories=[str(n) for n in range(2000)], codes=list(range(2000))), 0)
    generation = files._open[HERE]
    assert len(generation.files) == 2000
    assert len(generation.blocks) == 20
    assert {one.rows for one in generation.files.values()} == {20}


def test_many_small_batches_are_joined_and_their_rows_stay_in_order() -> None:
    files = rolling(records=10**6)
    values: dict[str, list[str]] = {"a": [], "b": []}
    for offset in range(0, 3000, 3):
        given = rows(range(offset, offset + 3), directories=["a", "b"], codes=[0, 1, 0])
        given.table = pa.table({"value": [str(number) for number in range(offset, offset + 3)]})
        files.append(HERE, given, 0)
        values["a"] += [str(offset), str(offset + 2)]
        values["b"] += [str(offset + 1)]
    generation = files._open[HERE]
    assert len(generation.blocks) < 600
    for file in generation.files.values():
        parts = [block.table.slice(start, count) for block, start, count in file.pieces]
        assert pa.concat_tables(parts).column("value").to_pylist() == values[file.directory]


def test_rows_of_a_large_frame_are_not_held_by_a_slice_of_it() -> None:
    files = rolling()
    large = rows(range(1000), size=1000)
    large.table = large.table.slice(10, 5)
    large.offsets, large.times, large.codes = np.arange(5), np.zeros(5), np.zeros(5, np.int64)
    files.append(HERE, large, 0)
    (block,) = files._open[HERE].blocks
    assert block.table.get_total_buffer_size() < 10_000


def test_what_goes_away_is_given_back() -> None:
    files = rolling(records=2)
    files.append(HERE, rows(range(3)), 0)
    files.append(THERE, rows(range(1)), 0)
    assert [(one.place, one.start) for one in files.forget([HERE])] == [(HERE, 0), (HERE, 2)]
    assert files.safe_offset(HERE) is None
    assert files.safe_offset(THERE) == 0


PLACE = TopicPartition("a.b+c", 12)


@pytest.mark.parametrize("offset", [0, 7, 9_999_999_999, 10_000_000_000])
@pytest.mark.parametrize("number", [0, 2])
def test_the_offset_of_a_name_can_be_read_again(offset: int, number: int) -> None:
    names = FileNames(extension=".json.gz")
    name = names.of(PLACE, OpenFile("d", offset, number))
    assert names.offset(PLACE, name) == offset
    assert names.offset(TopicPartition("a.b+c", 1), name) is None
    assert names.offset(TopicPartition("aXb+c", 12), name) is None


def test_names_sort_as_their_offsets_do_up_to_their_digits() -> None:
    names = FileNames(width=3)
    assert names.from_offset(PLACE, 7, 999) == "a.b+c+12+007"
    assert names.from_offset(PLACE, 998, 1001) == "a.b+c+12+"


def test_stale_are_files_whose_first_row_is_in_another_one() -> None:
    names = FileNames(width=2, extension=".a")
    there = [
        names.start(PLACE) + rest for rest in ("04.a", "05.a", "05.b", "07-1.a", "09.a", "10.a", "x.a", "06.a.tmp~")
    ]
    own = [names.start(PLACE) + "05.a"]
    stale = names.stale(PLACE, 5, 10, own, there)
    assert [name.removeprefix(names.start(PLACE)) for name in stale] == ["05.b", "07-1.a", "09.a"]


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/../../x", "/x", "a/b", "\u00fc x%2F", "a"])
@pytest.mark.parametrize("manifest", [True, False])
def test_the_name_of_a_connector_never_leads_out_of_its_directory(tmp_path: Path, name: str, manifest: bool) -> None:
    settings = {"name": name, "url": str(tmp_path / "root"), "format.class": "json", "flush.size": "2"}
    records = numbered([SinkRecord("t", 0, 0, {"a": row}) for row in range(5)])
    for _ in range(2):
        more = {"layout": "manifest"} if manifest else {}
        run_sink(FileSink, {**settings, **more}, records, timeout_s=5).finish(2)

    there = [one.relative_to(tmp_path) for one in tmp_path.rglob("*") if one.is_file()]
    kept = [one.parts for one in there if one.parts[:3] != ("root", "topics", "t")]
    assert {one[:3] if one[1] == "topics" else one[:2] for one in kept} == (
        {("root", "topics", "_manifests"), ("root", "topics", "_ranges"), ("root", "_owners")}
        if manifest
        else {("root", "_owners")}
    )
    texts = [(tmp_path / one).read_text() for one in there if one.parts[:3] == ("root", "topics", "t")]
    assert sum(one.count("\n") for one in texts) == 5
