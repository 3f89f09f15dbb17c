"""Files of ranges: whatever dies at whichever step of a commit, each message is in one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.api import TopicPartition
from penstock.api.bulk import TopicRange
from penstock.connectors.spark.sink.range_files import Note, RangeFile, RangeFiles
from penstock.errors import ConfigException, ConnectException
from penstock.testing.kit.lives import KilledException

PLACE = TopicPartition("my-topic", 0)


class Dying:
    """A file system in which the n-th step is the last one."""

    def __init__(self, inner: Any, steps: int) -> None:
        self._inner, self.left = inner, steps

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def step(*args: Any, **options: Any) -> Any:
            if self.left == 0:
                raise KilledException
            self.left -= 1
            return call(*args, **options)

        return step


class Task:
    """Writes the offsets of a partition into files, in jobs of two ranges."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = RangeFiles(str(path), "lake")
        self.position = 0

    def write(self, start: int, end: int, attempt: str) -> RangeFile:
        one = TopicRange(*PLACE, start, end, attempt)
        with self.files.staged(one, 0, ".txt") as (file, out):
            out.write("".join(f"{number}\n" for number in range(start, end)).encode())
        return file

    def job(self, end: int, attempt: str) -> None:
        """From the position on; what was written before is somewhere in a file of another attempt."""
        start = max(self.position, self.files.positions([PLACE]).get(PLACE, 0))
        if start < end:
            middle = (start + end) // 2
            cuts = [(start, middle), (middle, end)] if middle > start else [(start, end)]
            made = [self.write(*one, attempt) for one in cuts]
            self.files.commit({PLACE: made}, {PLACE: Note(start, end)})
        self.position = end

    def seen(self) -> Counter[int]:
        found = [one for one in self.path.iterdir() if one.is_file()]
        return Counter(int(line) for one in found for line in one.read_text().split())


def test_whatever_dies_at_any_step_of_a_commit_each_message_is_there_once(tmp_path: Path) -> None:
    for steps in range(40):
        path = tmp_path / str(steps)
        task = Task(path)
        task.job(4, "a")
        dying = Dying(task.files._fs, steps)
        task.files._fs = dying
        try:
            task.job(10, "b")
            died = False
        except KilledException:
            died = True
        # The group has the offset of the first job: nothing was committed.
        again = Task(path)
        again.position = 4
        again.job(13, "c")
        assert again.seen() == Counter(range(13)), steps
        if not died:
            assert steps > 10, "steps were counted"
            return
    raise AssertionError("the commit never came to its end")


def test_files_of_attempts_that_did_not_count_are_no_readers_and_go(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.write(0, 5, "lost")
    assert task.seen() == Counter()
    task.job(10, "kept")
    assert [one.name for one in sorted((tmp_path / "_penstock" / "lake").iterdir())] == ["my-topic-0.json"]
    assert task.seen() == Counter(range(10))


def test_a_task_that_was_replaced_is_refused_when_it_wakes(tmp_path: Path) -> None:
    old, new = Task(tmp_path), Task(tmp_path)
    made = old.write(0, 7, "old")
    new.job(10, "new")
    with pytest.raises(ConnectException, match="written up to offset 10 by another task"):
        old.files.commit({PLACE: [made]}, {PLACE: Note(0, 7)})
    assert new.seen() == Counter(range(10))


def test_a_commit_that_is_called_again_changes_nothing(tmp_path: Path) -> None:
    task = Task(tmp_path)
    made = {PLACE: [task.write(0, 7, "one")]}
    for _ in range(2):
        task.files.commit(made, {PLACE: Note(0, 7)})
    assert task.seen() == Counter(range(7))


@pytest.mark.parametrize("offset", [None, 0, 4])
def test_what_comes_again_after_a_reset_replaces_its_files(tmp_path: Path, offset: int | None) -> None:
    task = Task(tmp_path)
    for number, end in enumerate((4, 8, 12)):
        task.job(end, f"first{number}")
    again = Task(tmp_path)
    again.files.reset({PLACE: offset})
    again.position = offset or 0
    again.job(14, "again")
    again.job(16, "more")
    assert again.seen() == Counter(range(16))


def test_offsets_that_are_gone_leave_a_gap_and_no_error(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.job(4, "one")
    task.position = 9
    task.job(12, "two")
    assert task.seen() == Counter([*range(4), *range(9, 12)])


@pytest.mark.parametrize(
    ("path", "root"), [("/data/lake/", "/data/lake"), ("file:///data/lake", "/data/lake"), ("file:/a", "/a")]
)
def test_paths_are_those_that_spark_takes(path: str, root: str) -> None:
    assert RangeFiles(path, "x")._root == root


def test_a_file_system_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigException, match="is nothing that PyArrow can write to"):
        RangeFiles("dbfs:/lake", "x")


def test_a_note_that_is_none_is_named(tmp_path: Path) -> None:
    Task(tmp_path).job(4, "one")
    (tmp_path / "_penstock" / "lake" / "my-topic-0.json").write_text("{}")
    with pytest.raises(ConnectException, match=r"A note of a sink with .* cannot be read"):
        Task(tmp_path).files.positions([PLACE])


def test_files_are_found_by_partition(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.job(4, "one")
    other: Sequence[str] = ["my-topic-01-x.txt", "my-topic-0-y.txt", "unlike.txt"]
    for name in other:
        (tmp_path / name).write_text("")
    assert len(list(task.files._files_of(str(tmp_path), PLACE))) == 2
