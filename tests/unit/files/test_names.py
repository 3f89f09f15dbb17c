"""FileNames of files, and which of them an earlier run has left."""

from __future__ import annotations

import pytest

from penstock.api import TopicPartition
from penstock.files.generations import OpenFile
from penstock.files.names import FileNames

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
