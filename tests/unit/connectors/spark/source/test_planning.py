"""Which files are new, and what an offset keeps of those that were read."""

from __future__ import annotations

import pytest

from penstock.connectors.spark.source.planning import (
    MOST_BYTES,
    MOST_FILES,
    MOST_NAMES,
    Begun,
    File,
    FilesRead,
    begun_in,
    groups,
)
from penstock.errors import ConnectException


def test_every_file_is_read_once_whatever_the_order_in_which_files_appear() -> None:
    ledger, read = FilesRead(), []
    seen: list[File] = []
    for wave in (["b", "a"], ["c"], [], ["d", "e"]):
        seen += [File(name, 100 + 10 * (ord(name) - 97), 1) for name in wave]
        new, late = ledger.split(seen)
        read += [one.path for one in new]
        ledger = FilesRead.of(ledger.with_read(new, 1000).offset())
        assert late == []
    assert read == ["a", "b", "c", "d", "e"]


def test_a_file_that_is_older_than_the_newest_one_is_new_within_the_time_and_late_behind_it() -> None:
    ledger = FilesRead().with_read([File("a", 1000, 1)], 300)
    new, late = ledger.split([File("a", 1000, 1), File("b", 700, 1), File("c", 699, 1)])
    assert ([one.path for one in new], [one.path for one in late]) == (["b"], ["c"])


def test_a_file_that_is_changed_is_new() -> None:
    ledger = FilesRead().with_read([File("a", 1000, 1)], 300)
    assert ledger.split([File("a", 1001, 1)])[0] == [File("a", 1001, 1)]
    assert ledger.split([File("a", 1000, 2)])[0] == [File("a", 1000, 2)]


def test_a_ledger_stays_small_however_many_files_there_are() -> None:
    ledger = FilesRead()
    files = [File(f"f{number}", number, 1) for number in range(5 * MOST_NAMES)]
    for first in range(0, len(files), MOST_NAMES // 2):
        ledger = ledger.with_read(files[first : first + MOST_NAMES // 2], 10**9)
    assert len(ledger.marks) == MOST_NAMES
    assert len(str(ledger.offset())) < 60_000
    assert ledger.split(files)[0] == []


def test_files_of_one_moment_are_all_kept_where_more_of_them_are_than_names() -> None:
    files = [File(f"f{number}", 7, 1) for number in range(MOST_NAMES + 5)]
    ledger = FilesRead().with_read(files, 1000)
    assert ledger.split([*files, File("new", 7, 1)])[0] == [File("new", 7, 1)]


def test_an_offset_of_another_mode_is_refused() -> None:
    with pytest.raises(ConnectException, match="none of mode=files: reset"):
        FilesRead.of({"run": 1})
    with pytest.raises(ConnectException, match="none of mode=files"):
        FilesRead.of({"through": 1, "names": "no list"})


def test_small_files_are_read_together_and_a_large_one_by_itself() -> None:
    small = [File(f"s{number}", 0, 10) for number in range(2 * MOST_FILES + 1)]
    large = File("large", 0, MOST_BYTES + 1)
    found = list(groups([*small, large, small[0]]))
    assert [len(group) for group in found] == [MOST_FILES, MOST_FILES, 1, 1, 1]
    assert found[3] == [large]


def test_rows_of_a_file_are_left_out_only_if_it_is_as_it_was() -> None:
    begun = begun_in({"through": 0, "file": "a", "modified": 5, "row": 30})
    assert begun == Begun("a", 5, 30)
    assert begun.rows_of(File("a", 5, 1)) == 30
    assert begun.rows_of(File("a", 6, 1)) == 0
    assert begun.rows_of(File("b", 5, 1)) == 0
    assert begun_in({"through": 0}) is None
