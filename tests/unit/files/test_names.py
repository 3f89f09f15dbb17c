"""FileNames of files, and which of them an earlier run has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api import SinkRecord, TopicPartition
from penstock.connectors.files import FileSink
from penstock.files.generations import OpenFile
from penstock.files.names import FileNames
from penstock.testing import numbered, run_sink

HERE = TopicPartition("a.b+c", 12)


@pytest.mark.parametrize("offset", [0, 7, 9_999_999_999, 10_000_000_000])
@pytest.mark.parametrize("number", [0, 2])
def test_the_offset_of_a_name_can_be_read_again(offset: int, number: int) -> None:
    names = FileNames(extension=".json.gz")
    name = names.of(HERE, OpenFile("d", offset, number))
    assert names.offset(HERE, name) == offset
    assert names.offset(TopicPartition("a.b+c", 1), name) is None
    assert names.offset(TopicPartition("aXb+c", 12), name) is None


def test_names_sort_as_their_offsets_do_up_to_their_digits() -> None:
    names = FileNames(width=3)
    assert names.from_offset(HERE, 7, 999) == "a.b+c+12+007"
    assert names.from_offset(HERE, 998, 1001) == "a.b+c+12+"


def test_stale_are_files_whose_first_row_is_in_another_one() -> None:
    names = FileNames(width=2, extension=".a")
    there = [
        names.start(HERE) + rest for rest in ("04.a", "05.a", "05.b", "07-1.a", "09.a", "10.a", "x.a", "06.a.tmp~")
    ]
    own = [names.start(HERE) + "05.a"]
    stale = names.stale(HERE, 5, 10, own, there)
    assert [name.removeprefix(names.start(HERE)) for name in stale] == ["05.b", "07-1.a", "09.a"]


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
