"""The directory source: its decisions with a clock of their own, its scans of real directories."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.config import ConfigTransformer, EnvVarConfigProvider
from penstock.connectors.directory import DirectorySourceConnector
from penstock.connectors.directory.connector import scan_directories
from penstock.connectors.directory.planning import (
    Committed,
    FileState,
    FileTracker,
    Scan,
    StallWatch,
    Work,
    assign,
    parse_offset,
)
from penstock.connectors.directory.settings import DirectorySourceConfig, TaskFiles, decode_files, encode_files
from penstock.errors import ConfigException, ConnectException

# ---------------------------------------------------------------------- planning
paths = st.text("abcdef", min_size=1, max_size=2)


class TestAssign:
    @examples(40)
    @given(
        st.dictionaries(paths, st.integers(0, 100)),
        st.lists(st.lists(paths, max_size=4), max_size=5),
        st.integers(1, 5),
    )
    def test_every_file_has_one_task_and_no_task_is_empty(self, remaining, previous, max_tasks):
        groups = assign(remaining, previous, max_tasks)
        assert sorted(path for group in groups for path in group) == sorted(remaining)
        assert len(groups) == min(max_tasks, len(remaining))
        assert all(groups)
        assert groups == assign(remaining, previous, max_tasks)

    @examples(40)
    @given(st.dictionaries(paths, st.integers(0, 100), min_size=1), st.integers(1, 5))
    def test_asked_again_it_moves_nothing(self, remaining, max_tasks):
        groups = assign(remaining, [], max_tasks)
        assert assign(dict.fromkeys(remaining, 1), groups, max_tasks) == groups

    def test_new_files_go_to_the_task_with_the_fewest_bytes_and_others_stay(self):
        before = assign({"a": 100, "b": 10}, [], 2)
        assert before == [["a"], ["b"]]
        assert assign({"a": 100, "b": 10, "c": 50, "d": 60}, before, 2) == [["a"], ["b", "c", "d"]]

    def test_bytes_are_balanced(self):
        assert assign({"a": 50, "b": 40, "c": 30, "d": 20}, [], 2) == [["a", "d"], ["b", "c"]]

    def test_a_task_that_ran_out_takes_from_the_busiest(self):
        assert assign({"b": 50, "c": 40}, [["a"], ["b", "c"]], 2) == [["b"], ["c"]]

    def test_fewer_tasks_take_over_the_files_of_the_others(self):
        assert assign({"a": 1, "b": 1, "c": 1}, [["a"], ["b"], ["c"]], 2) == [["a", "c"], ["b"]]

    def test_nothing_to_read_makes_no_task(self):
        assert assign({}, [["a"]], 3) == []


def state(path="/d/a", size=10, mtime=1, inode=1):
    return FileState(path, size, mtime, (1, inode))


class TestFileTracker:
    def test_a_file_is_finished_when_all_is_committed_and_it_has_rested(self):
        tracker = FileTracker(idle_s=5)
        assert tracker.observe(Scan([state()]), {"/d/a": None}, (), 0).remaining == {"/d/a": 10}
        assert tracker.observe(Scan([state()]), {"/d/a": Committed(6, 10)}, ["/d/a"], 100).remaining == {"/d/a": 4}
        grown = Scan([state(size=12, mtime=2)])
        assert tracker.observe(grown, {"/d/a": Committed(12, 12)}, ["/d/a"], 101).remaining == {"/d/a": 0}
        assert tracker.observe(grown, {"/d/a": Committed(12, 12)}, ["/d/a"], 105.9).remaining == {"/d/a": 0}
        assert tracker.observe(grown, {"/d/a": Committed(12, 12)}, ["/d/a"], 106).remaining == {}

    def test_a_complete_or_empty_file_without_a_task_does_not_get_one(self):
        tracker = FileTracker(idle_s=5)
        scan = Scan([state("/d/a"), state("/d/b", size=0)])
        assert tracker.observe(scan, {"/d/a": Committed(10, 10)}, (), 0).remaining == {}

    def test_offsets_of_finished_files_are_not_read_again_until_they_change(self):
        tracker = FileTracker(idle_s=5)
        done, busy = state("/d/a"), state("/d/b")
        assert tracker.undecided(Scan([done, busy])) == ["/d/a", "/d/b"]
        tracker.observe(Scan([done, busy]), {"/d/a": Committed(10, 10), "/d/b": None}, (), 0)
        assert tracker.undecided(Scan([done, busy])) == ["/d/b"]
        assert tracker.observe(Scan([done, busy]), {"/d/b": None}, (), 1).remaining == {"/d/b": 10}
        grown = Scan([state("/d/a", size=11, mtime=2), busy])
        assert tracker.undecided(grown) == ["/d/a", "/d/b"]
        work = tracker.observe(grown, {"/d/a": Committed(10, 10), "/d/b": None}, (), 2)
        assert work.remaining == {"/d/a": 1, "/d/b": 10}

    @pytest.mark.parametrize(
        "other",
        [state(size=25, mtime=2, inode=2), state(size=10, mtime=2, inode=2), state(size=4, mtime=2)],
    )
    def test_a_finished_file_that_was_replaced_is_read_from_its_start(self, other):
        tracker = FileTracker(idle_s=0)
        old = {"/d/a": Committed(10, 10)}
        tracker.observe(Scan([state()]), old, (), 0)
        work = tracker.observe(Scan([other]), old, (), 1)
        assert (work.remaining, work.stale) == ({"/d/a": other.size}, {"/d/a": Committed(10, 10)})
        work = tracker.observe(Scan([other]), {"/d/a": Committed(3, other.size)}, ["/d/a"], 2)
        assert (work.remaining, work.stale) == ({"/d/a": other.size - 3}, {})

    def test_a_finished_file_truncated_and_grown_beyond_its_offset_is_read_from_its_start(self):
        tracker = FileTracker(idle_s=0)
        old = {"/d/a": Committed(10, 10)}
        for now, found in enumerate([state(), state(size=0, mtime=2)]):
            assert tracker.observe(Scan([found]), old, (), now).remaining == {}
        work = tracker.observe(Scan([state(size=30, mtime=3)]), old, (), 3)
        assert (work.remaining, work.stale) == ({"/d/a": 30}, {"/d/a": Committed(10, 10)})

    def test_another_inode_alone_is_not_another_file(self):
        tracker = FileTracker(idle_s=0)
        old = {"/d/a": Committed(10, 10)}
        tracker.observe(Scan([state()]), old, (), 0)
        assert tracker.observe(Scan([state(inode=2)]), old, (), 1).remaining == {}

    def test_a_file_made_again_is_new_but_one_that_was_away_for_a_moment_is_not(self):
        tracker = FileTracker(idle_s=0)
        old = {"/d/a": Committed(10, 10)}
        tracker.observe(Scan([state()]), old, (), 0)
        tracker.observe(Scan([]), old, (), 1)
        assert tracker.observe(Scan([state()]), old, (), 2).remaining == {}
        tracker.observe(Scan([]), old, (), 3)
        work = tracker.observe(Scan([state(size=20, mtime=5, inode=3)]), old, (), 4)
        assert (work.remaining, work.stale) == ({"/d/a": 20}, {"/d/a": Committed(10, 10)})

    def test_a_removed_file_keeps_its_task_while_that_gets_on_with_it(self, caplog):
        tracker = FileTracker(idle_s=5)
        tracker.observe(Scan([state()]), {"/d/a": None}, (), 0)
        assert "/d/a" in tracker.observe(Scan([]), {"/d/a": None}, ["/d/a"], 1).remaining
        assert "was removed with 10 bytes that are not committed yet" in caplog.text
        assert "/d/a" in tracker.observe(Scan([]), {"/d/a": Committed(5, 10)}, ["/d/a"], 5).remaining
        assert "/d/a" in tracker.observe(Scan([]), {"/d/a": Committed(5, 10)}, ["/d/a"], 9).remaining
        assert tracker.observe(Scan([]), {"/d/a": Committed(5, 10)}, ["/d/a"], 10).remaining == {}

    @pytest.mark.parametrize("scan", [Scan([], failed=frozenset({"/d"})), Scan([], unreadable=frozenset({"/d/a"}))])
    def test_what_cannot_be_looked_at_stays_as_it_is(self, scan):
        tracker = FileTracker(idle_s=5)
        tracker.observe(Scan([state()]), {"/d/a": None}, (), 0)
        work = tracker.observe(scan, {"/d/a": None}, ["/d/a"], 100)
        assert (work.remaining, work.readable) == ({"/d/a": 10}, frozenset())
        assert tracker.observe(Scan([state()]), {"/d/a": None}, ["/d/a"], 101).readable == {"/d/a"}

    def test_an_offset_that_makes_no_sense_counts_as_none(self, caplog):
        assert parse_offset("/d/a", {"position": "x"}) is None
        assert "read from its start" in caplog.text
        assert parse_offset("/d/a", {"position": 3}) == Committed(3, None)


class TestStallWatch:
    groups = (["a"], ["b", "c"])

    def work(self, readable=frozenset("abc"), **committed):
        remaining = {path: 10 - position for path, position in committed.items()}
        return Work(remaining, {}, readable, {path: Committed(position) for path, position in committed.items()})

    def test_a_task_whose_offsets_do_not_move_is_stuck(self):
        watch = StallWatch(60)
        assert watch.stalled(self.groups, self.work(a=0, b=0, c=0), 0) == []
        assert watch.stalled(self.groups, self.work(a=0, b=0, c=1), 59) == []
        assert watch.stalled(self.groups, self.work(a=0, b=0, c=1), 60) == [0]
        assert watch.stalled(self.groups, self.work(a=0, b=0, c=1), 119) == [1]

    def test_a_restarted_task_gets_as_long_again(self):
        watch = StallWatch(60)
        times = [now for now in range(0, 200, 10) if watch.stalled([["a"]], self.work(a=0), now)]
        assert times == [60, 120, 180]

    def test_waiting_with_nothing_to_read_is_not_being_stuck(self):
        watch = StallWatch(60)
        watch.stalled([["a"]], self.work(a=10), 0)
        assert watch.stalled([["a"]], self.work(a=10), 100) == []
        watch.stalled([["a"]], self.work(a=9), 110)
        assert watch.stalled([["a"]], self.work(a=9), 169) == []
        assert watch.stalled([["a"]], self.work(a=9), 170) == [0]

    def test_nothing_is_expected_of_files_that_cannot_be_read(self):
        watch = StallWatch(60)
        for now in (0, 100, 200):
            assert watch.stalled([["a"]], self.work(readable=frozenset(), a=0), now) == []

    def test_other_files_are_a_new_start(self):
        watch = StallWatch(60)
        watch.stalled([["a"]], self.work(a=0), 0)
        assert watch.stalled([["a", "b"]], self.work(a=0, b=0), 59) == []
        assert watch.stalled([["a", "b"]], self.work(a=0, b=0), 100) == []
        assert watch.stalled([["a", "b"]], self.work(a=0, b=0), 119) == [0]


# ---------------------------------------------------------------------- settings
class TestSettings:
    def test_directories_are_absolute_and_named_once(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        settings = DirectorySourceConfig.parse({"directories": f"in,{tmp_path}/in/,out", "topic": "t"})
        assert settings.paths == (f"{tmp_path}/in", f"{tmp_path}/out")
        assert (settings.file_pattern, settings.recursive, settings.scan_interval_ms) == ("*", False, 1000)

    @pytest.mark.parametrize(
        ("props", "setting"),
        [
            ({"topic": "t"}, "directories"),
            ({"directories": "", "topic": "t"}, "directories"),
            ({"directories": "d"}, "topic"),
            ({"directories": "d", "topic": "t", "scan.interval.ms": "0"}, "scan.interval.ms"),
            ({"directories": "d", "topic": "t", "idle.ms": "500", "stall.timeout.ms": "500"}, "stall.timeout.ms"),
        ],
    )
    def test_wrong_settings_are_refused_by_start_and_by_validate(self, props, setting):
        with pytest.raises(ConfigException, match=setting):
            DirectorySourceConfig.parse(props)
        assert list(DirectorySourceConnector().validate(props).errors()) == [setting]

    @examples(40)
    @given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), unique=True))
    def test_any_names_survive_the_task_configuration(self, names):
        files = TaskFiles(names, {name: Committed(3, 4) for name in names[::2]})
        assert decode_files(encode_files(files)) == files

    def test_a_name_is_never_taken_for_a_placeholder(self):
        text = encode_files(TaskFiles(["/d/${env:HOME}"]))
        replaced = ConfigTransformer({"env": EnvVarConfigProvider()}).transform({"task.files": text})["task.files"]
        assert decode_files(replaced).paths == ["/d/${env:HOME}"]

    @pytest.mark.parametrize("text", [None, "", "5", '[{"x": 1}]'])
    def test_another_task_configuration_is_a_clear_error(self, text):
        with pytest.raises(ConnectException, match=r"task\.files"):
            decode_files(text)


# ---------------------------------------------------------------------- scanning
class TestScan:
    def scan(self, *directories, **props):
        self.complaints: dict[str, str] = {}
        props = {"directories": ",".join(map(str, directories)), "topic": "t", **props}
        return scan_directories(DirectorySourceConfig.parse(props), self.complaints.__setitem__)

    def test_regular_files_that_match_are_found_in_order(self, tmp_path):
        for name in ("b.log", "a.log", "c.txt", ".hidden.log"):
            (tmp_path / name).write_text("x\n")
        (tmp_path / "dir.log").mkdir()
        os.mkfifo(tmp_path / "pipe.log")
        found = self.scan(tmp_path, **{"file.pattern": "*.log"})
        assert [(os.path.basename(file.path), file.size) for file in found.files] == [("a.log", 2), ("b.log", 2)]
        assert self.complaints == {}

    def test_a_leading_dot_has_to_be_asked_for(self, tmp_path):
        (tmp_path / ".a").write_text("x")
        assert not self.scan(tmp_path).files
        assert len(self.scan(tmp_path, **{"file.pattern": ".*"}).files) == 1

    def test_directories_below_are_watched_when_asked_for(self, tmp_path):
        (tmp_path / "x" / "y").mkdir(parents=True)
        (tmp_path / ".snapshot").mkdir()
        for directory in ("x", "x/y", ".snapshot"):
            (tmp_path / directory / "f").write_text("x")
        (tmp_path / "x" / "loop").symlink_to(tmp_path)
        assert not self.scan(tmp_path).files
        found = self.scan(tmp_path, tmp_path / "x", recursive="true")
        assert [file.path for file in found.files] == [f"{tmp_path}/x/f", f"{tmp_path}/x/y/f"]

    def test_a_missing_directory_is_a_clear_warning_and_the_others_are_looked_at(self, tmp_path):
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "f").write_text("x")
        found = self.scan(tmp_path / "gone", tmp_path / "here")
        assert len(found.files) == 1
        assert found.failed == {f"{tmp_path}/gone"}
        assert found.may_still_have(f"{tmp_path}/gone/f")
        assert "No such file or directory" in self.complaints[f"{tmp_path}/gone"]

    def test_a_file_that_may_not_be_read_is_left_out_with_a_warning(self, tmp_path, monkeypatch):
        (tmp_path / "f").write_text("x")
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        found = self.scan(tmp_path)
        assert (found.files, found.unreadable) == ([], {f"{tmp_path}/f"})
        assert "may not be read" in self.complaints[f"{tmp_path}/f"]

    def test_a_name_that_is_not_utf8_is_left_out_with_a_warning(self, tmp_path):
        (tmp_path / os.fsdecode(b"\xff")).write_text("x")
        assert not self.scan(tmp_path).files
        assert "not UTF-8" in next(iter(self.complaints.values()))
