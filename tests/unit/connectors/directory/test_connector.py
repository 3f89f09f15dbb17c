"""The directory source at work on real files: its tasks, its connector, and the connector's own thread."""

import logging
import os
import threading
import time

import pytest
from testkit.doubles.contexts import FakeSourceContext, ManualClock
from testkit.waiting import await_true

from penstock.api import ExactlyOnceSupport, OffsetStorageReader, SourceConnectorContext
from penstock.connectors.directory import DirectorySourceConnector, DirectorySourceTask
from penstock.connectors.directory import task as task_module
from penstock.connectors.directory.connector import DirectoryMonitor, TaskShare
from penstock.connectors.directory.planning import (
    Committed,
)
from penstock.connectors.directory.settings import DirectorySourceConfig, TaskFiles, decode_files, encode_files
from penstock.errors import ConnectException, IllegalWorkerStateException


# ---------------------------------------------------------------------- tasks
class Offsets(OffsetStorageReader):
    """Committed offsets by path; counts the reads."""

    def __init__(self):
        self.stored = {}
        self.reads = 0
        self.broken = False

    def offset(self, partition):
        return self.offsets([partition])[0]

    def offsets(self, partitions):
        self.reads += 1
        if self.broken:
            raise ConnectException("the offset topic is away")
        return [self.stored.get(partition["filename"]) for partition in partitions]


def make_task(offsets, config, clock, task_class=DirectorySourceTask):
    task = task_class()
    task._clock = clock
    task.initialize(FakeSourceContext(offsets))
    task.start(config)
    return task


def pump(task, clock, rounds=50, step=0.1):
    """What a task hands over while time passes: (file name, lines, offset)."""
    found = []
    for _ in range(rounds):
        piece = task._round()
        if piece is None:
            clock.now += step
            continue
        frame = task._frame(piece)
        name = os.path.basename(frame.source_partition["filename"])
        found.append((name, frame.data.column("value").to_pylist(), frame.source_offset))
    return found


def task_over(*files, offsets=None, stale=None, clock=None, **props):
    offsets = offsets or Offsets()
    config = {"directories": "/unused", "topic": "t", "idle.ms": "1000", **props}
    config["task.files"] = encode_files(TaskFiles([str(file) for file in files], stale or {}))
    return make_task(offsets, config, clock or ManualClock(1000.0))


class TestTask:
    def test_offsets_keep_position_size_and_bytes_of_each_record(self, tmp_path):
        path = tmp_path / "f"
        path.write_text("a\nbbb\nccccc")
        task = task_over(path)
        frame = task.poll()
        assert (frame.topic, frame.data.column("value").to_pylist()) == ("t", ["a", "bbb"])
        assert frame.source_partition == {"filename": str(path)}
        assert frame.source_offset == {"position": 6, "size": 11, "bytes": 4}
        assert frame.offset_after(0) == {"position": 2, "size": 11, "bytes": 2}
        task.stop()

    def test_files_are_read_in_turn_each_in_frames_of_its_own(self, tmp_path):
        for name in "ab":
            (tmp_path / name).write_text(f"{name * 1000}\n" * 10_000)
        clock = ManualClock(1000.0)
        task = task_over(tmp_path / "a", tmp_path / "b", clock=clock)
        names = [name for name, _, _ in pump(task, clock, rounds=6)]
        assert names == ["a", "b", "a", "b", "a", "b"]
        task.stop()

    def test_the_committed_positions_are_read_at_once_and_resumed(self, tmp_path):
        offsets, clock = Offsets(), ManualClock(1000.0)
        for name in "abc":
            (tmp_path / name).write_text("one\ntwo\n")
        offsets.stored[str(tmp_path / "a")] = {"position": 4, "size": 8, "bytes": 4}
        offsets.stored[str(tmp_path / "b")] = {"position": 8, "size": 8, "bytes": 4}
        task = task_over(*(tmp_path / name for name in "abc"), offsets=offsets, clock=clock)
        assert offsets.reads == 1
        assert [(name, lines) for name, lines, _ in pump(task, clock)] == [("a", ["two"]), ("c", ["one", "two"])]
        task.stop()

    def test_a_last_line_without_an_end_is_complete_when_the_file_rests(self, tmp_path):
        clock, path = ManualClock(1000.0), tmp_path / "f"
        path.write_text("one\nha")
        task = task_over(path, clock=clock)
        assert [lines for _, lines, _ in pump(task, clock, rounds=8)] == [["one"]]
        with path.open("a") as out:
            out.write("lf")
        assert pump(task, clock, rounds=8) == []
        assert pump(task, clock) == [("f", ["half"], {"position": 8, "size": 8, "bytes": 4})]
        with path.open("a") as out:
            out.write("\nmore\n")
        assert [lines for _, lines, _ in pump(task, clock)] == [["", "more"]]
        task.stop()

    def test_an_idle_task_has_no_file_open_and_reads_on_when_one_grows(self, tmp_path):
        clock, path = ManualClock(1000.0), tmp_path / "f"
        path.write_text("one\n")
        task = task_over(path, clock=clock)
        assert len(pump(task, clock)) == 1
        assert not task._tails[0].is_open
        with path.open("a") as out:
            out.write("two\n")
        assert pump(task, clock) == [("f", ["two"], {"position": 8, "size": 8, "bytes": 4})]
        task.stop()

    def test_poll_of_an_idle_task_waits_until_the_task_stops(self, tmp_path, monkeypatch):
        monkeypatch.setattr(task_module, "POLL_LIMIT_S", 60)
        task = task_over(tmp_path / "absent")
        task._clock = time.monotonic
        timer = threading.Timer(0.05, task.context.stopping.set)
        timer.start()
        started = time.monotonic()
        assert task.poll() is None
        assert task.context.stopping.is_set()
        assert time.monotonic() - started < 30
        timer.join()

    def test_poll_of_an_idle_task_waits_for_a_limited_time(self, tmp_path, monkeypatch):
        monkeypatch.setattr(task_module, "POLL_LIMIT_S", 0.02)
        task = task_over(tmp_path / "absent")
        task._clock = time.monotonic
        started = time.monotonic()
        assert task.poll() is None
        assert time.monotonic() - started >= 0.02

    def test_a_file_that_vanished_before_it_was_read_is_a_warning(self, tmp_path, caplog):
        clock = ManualClock(1000.0)
        (tmp_path / "b").write_text("b\n")
        task = task_over(tmp_path / "a", tmp_path / "b", clock=clock)
        assert [name for name, _, _ in pump(task, clock)] == ["b"]
        assert caplog.text.count("was removed") == 1
        task.stop()

    def test_a_file_that_vanishes_while_it_is_read_is_read_to_its_end(self, tmp_path):
        clock, path = ManualClock(1000.0), tmp_path / "f"
        path.write_text("x" * 999 + "\n" + ("y" * 999 + "\n") * 9999 + "end")
        task = task_over(path, clock=clock)
        first = pump(task, clock, rounds=1)
        path.unlink()
        lines = [line for _, lines, _ in first + pump(task, clock) for line in lines]
        assert (len(lines), lines[-1]) == (10_001, "end")
        task.stop()

    @pytest.mark.parametrize("committed", [{"position": 6, "size": 6}, {"position": 2, "size": 6}])
    def test_a_file_smaller_than_at_its_commit_is_read_from_its_start(self, tmp_path, caplog, committed):
        offsets, clock, path = Offsets(), ManualClock(1000.0), tmp_path / "f"
        path.write_text("x\ny\n")
        offsets.stored[str(path)] = committed
        task = task_over(path, offsets=offsets, clock=clock)
        assert pump(task, clock)[0][1] == ["x", "y"]
        assert "read from its start" in caplog.text
        task.stop()

    def test_an_offset_of_an_earlier_file_is_not_used(self, tmp_path):
        offsets, clock, path = Offsets(), ManualClock(1000.0), tmp_path / "f"
        path.write_text("new one\nnew two\n")
        offsets.stored[str(path)] = {"position": 4, "size": 4, "bytes": 4}
        task = task_over(path, offsets=offsets, clock=clock, stale={str(path): Committed(4, 4)})
        assert pump(task, clock)[0][1] == ["new one", "new two"]
        offsets.stored[str(path)] = {"position": 8, "size": 16, "bytes": 8}
        task = task_over(path, offsets=offsets, clock=clock, stale={str(path): Committed(4, 4)})
        assert pump(task, clock)[0][1] == ["new two"]

    @pytest.mark.parametrize("rest", [True, False])
    def test_a_file_replaced_or_truncated_under_its_task_is_read_from_its_start(self, tmp_path, rest):
        clock, path = ManualClock(1000.0), tmp_path / "f"
        path.write_text("one\ntwo\n")
        task = task_over(path, clock=clock)
        pump(task, clock, rounds=50 if rest else 2)
        other = tmp_path / "other"
        other.write_text("a longer first line\n")
        os.replace(other, path)
        assert [lines for _, lines, _ in pump(task, clock)] == [["a longer first line"]]
        path.write_text("x\n")
        assert pump(task, clock) == [("f", ["x"], {"position": 2, "size": 2, "bytes": 2})]
        task.stop()

    def test_a_file_that_cannot_be_read_does_not_keep_the_task_from_the_others(self, tmp_path, caplog):
        clock = ManualClock(1000.0)
        (tmp_path / "bad").mkdir()
        (tmp_path / "good").write_text("x\n")
        task = task_over(tmp_path / "bad", tmp_path / "good", clock=clock)
        assert [name for name, _, _ in pump(task, clock)] == ["good"]
        assert caplog.text.count("is left for later") == 1
        (tmp_path / "bad").rmdir()
        (tmp_path / "bad").write_text("now\n")
        assert [lines for _, lines, _ in pump(task, clock, rounds=1000)] == [["now"]]
        task.stop()

    def test_few_files_are_open_at_a_time(self, tmp_path, monkeypatch):
        monkeypatch.setattr(task_module, "MAX_OPEN_FILES", 3)
        clock, files = ManualClock(1000.0), [tmp_path / f"{i}" for i in range(10)]
        for file in files:
            file.write_text("one\ntail")
        task = task_over(*files, clock=clock)
        found = pump(task, clock, rounds=10)
        assert sum(tail.is_open for tail in task._tails) == 3
        found += pump(task, clock, rounds=100)
        lines = sorted((name, line) for name, lines, _ in found for line in lines)
        assert lines == sorted((file.name, line) for file in files for line in ("one", "tail"))
        task.stop()

    def test_a_line_longer_than_a_chunk_is_one_line(self, tmp_path):
        clock, path = ManualClock(1000.0), tmp_path / "f"
        path.write_bytes(b"x" * 9_000_000 + b"\nend\n")
        task = task_over(path, clock=clock)
        assert [len(line) for _, lines, _ in pump(task, clock) for line in lines] == [9_000_000, 3]
        task.stop()


# ---------------------------------------------------------------------- connector and monitor
class FakeWorker(SourceConnectorContext):
    """Runs a connector's tasks by hand: applies what the monitor asks for, moves time, commits what tasks return."""

    def __init__(self, directory, max_tasks=2, clock=None, **props):
        self.clock = clock or ManualClock(1000.0)
        self.offsets = Offsets()
        self.props = {
            "directories": str(directory),
            "topic": "t",
            "idle.ms": "2000",
            "stall.timeout.ms": "60000",
            **props,
        }
        self.max_tasks = max_tasks
        self.tasks, self.configs = [], []
        self.reconfigurations, self.restarts, self.lines = 0, [], {}
        self.task_class = DirectorySourceTask
        self.connector = DirectorySourceConnector()
        self.connector.initialize(self)
        self.monitor = self.connector._monitor = self.watch(TaskShare())
        self.connector._props = dict(self.props)

    def watch(self, assignment):
        return DirectoryMonitor(DirectorySourceConfig.parse(self.props), self, assignment, clock=self.clock)

    def offset_storage_reader(self):
        return self.offsets

    def raise_error(self, error):
        raise AssertionError("nothing may fail the connector") from error

    def request_task_reconfiguration(self):
        self.reconfigurations += 1
        configs = self.connector.task_configs(self.max_tasks)
        if configs != self.configs:
            self.end()
            self.configs = configs
            self.tasks = [self.start_task(config) for config in configs]

    def restart_tasks(self, task_ids=None):
        ids = list(range(len(self.tasks))) if task_ids is None else list(task_ids)
        self.restarts.append(ids)
        for number in ids:
            self.tasks[number] = self.start_task(self.configs[number])

    def start_task(self, config):
        return make_task(self.offsets, config, self.clock, self.task_class)

    def run(self, seconds, step=1.0):
        """Lets time pass: tasks poll and commit, the monitor looks once a step."""
        for _ in range(round(seconds / step)):
            for number, task in enumerate(self.tasks):
                if task is not None:
                    self.poll(number, task)
            self.clock.now += step
            self.monitor.look()

    def poll(self, number, task):
        try:
            while (piece := task._round()) is not None:
                frame = task._frame(piece)
                path = frame.source_partition["filename"]
                self.lines.setdefault(os.path.basename(path), []).extend(frame.data.column("value").to_pylist())
                self.offsets.stored[path] = dict(frame.source_offset)
        except RuntimeError:
            self.tasks[number] = None  # FAILED: it stays there and does nothing, until it is restarted

    def files_of_tasks(self):
        return [
            [os.path.basename(path) for path in decode_files(config["task.files"]).paths] for config in self.configs
        ]

    def end(self):
        for task in self.tasks:
            if task is not None:
                task.stop()
        self.tasks = []


@pytest.fixture
def worker(tmp_path):
    made = FakeWorker(tmp_path)
    yield made
    made.end()


def sick_until(worker, file, restarts, act):
    """A task class whose tasks with a certain file misbehave until there were so many restarts."""

    class SickTask(DirectorySourceTask):
        def _round(self):
            if len(worker.restarts) < restarts and any(tail.path.endswith(file) for tail in self._tails):
                return act()
            return super()._round()

    return SickTask


def fail():
    raise RuntimeError("broken")


def hang():
    return None


class TestConnector:
    def test_tasks_come_with_files_go_when_all_are_done_and_come_back(self, tmp_path, worker):
        worker.run(3)
        assert (worker.reconfigurations, worker.configs) == (0, [])
        (tmp_path / "a").write_text("a1\na2\n")
        (tmp_path / "b").write_text("b1\n")
        (tmp_path / "c").write_text("c1")
        worker.run(1)
        assert worker.files_of_tasks() == [["a"], ["b", "c"]]
        worker.run(8)
        assert worker.lines == {"a": ["a1", "a2"], "b": ["b1"], "c": ["c1"]}
        assert worker.configs == []
        before = worker.reconfigurations
        worker.run(10)
        assert worker.reconfigurations == before
        with (tmp_path / "b").open("a") as out:
            out.write("b2\n")
        worker.run(1)
        assert worker.files_of_tasks() == [["b"]]
        worker.run(8)
        assert (worker.lines["b"], worker.configs) == (["b1", "b2"], [])
        assert worker.restarts == []

    def test_files_in_work_stay_with_their_task_when_others_appear(self, tmp_path, worker):
        (tmp_path / "b").write_text("b\n")
        (tmp_path / "c").write_text("c\n" * 100)
        worker.run(1)
        assert worker.files_of_tasks() == [["c"], ["b"]]
        (tmp_path / "a").write_text("a\n" * 50)
        worker.run(1)
        assert [[name for name in files if name != "a"] for files in worker.files_of_tasks()] == [["c"], ["b"]]

    def test_a_replaced_file_is_read_from_its_start_by_a_new_task(self, tmp_path, worker):
        (tmp_path / "daily").write_text("monday 1\n")
        worker.run(8)
        (tmp_path / ".new").write_text("tuesday 1\ntuesday 2\n")
        os.replace(tmp_path / ".new", tmp_path / "daily")
        worker.run(8)
        assert worker.lines == {"daily": ["monday 1", "tuesday 1", "tuesday 2"]}
        assert worker.configs == []

    @pytest.mark.parametrize("act", [fail, hang])
    def test_a_task_that_fails_or_hangs_is_restarted_and_loses_nothing(self, tmp_path, worker, act):
        worker.task_class = sick_until(worker, "sick", 2, act)
        (tmp_path / "sick").write_text("s1\ns2\n")
        (tmp_path / "well").write_text("w1\n")
        worker.run(59)
        assert worker.lines == {"well": ["w1"]}
        assert worker.restarts == []
        worker.run(3 * 61)
        assert worker.lines == {"well": ["w1"], "sick": ["s1", "s2"]}
        assert worker.restarts == [[0], [0]]
        assert worker.configs == []

    def test_only_the_stuck_task_is_restarted(self, tmp_path, worker):
        worker.task_class = sick_until(worker, "sick", 100, hang)
        (tmp_path / "sick").write_text("s1\n" * 100)
        path = tmp_path / "well"
        path.write_text("w\n")
        worker.run(1)
        assert worker.files_of_tasks() == [["sick"], ["well"]]
        for _ in range(130):
            with path.open("a") as out:
                out.write("w\n")
            worker.run(1)
        assert worker.restarts == [[0], [0]]
        assert len(worker.lines["well"]) >= 130

    def test_offsets_are_read_once_a_look_and_not_at_all_when_all_is_done(self, tmp_path, worker):
        for name in "abc":
            (tmp_path / name).write_text("x\n")
        worker.monitor.look()
        tasks = len(worker.tasks)
        assert worker.offsets.reads == 1 + tasks  # each task reads them once at its start
        worker.monitor.look()
        assert worker.offsets.reads == 2 + tasks
        worker.run(10)
        reads = worker.offsets.reads
        worker.run(5)
        assert worker.offsets.reads == reads

    def test_a_missing_directory_is_one_warning_and_no_crash(self, tmp_path, caplog):
        worker = FakeWorker(tmp_path / "later")
        worker.run(5)
        assert caplog.text.count("Cannot list directory") == 1
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "f").write_text("x\n")
        worker.run(10)
        assert (worker.lines, worker.configs) == ({"f": ["x"]}, [])
        os.rename(tmp_path / "later", tmp_path / "away")
        worker.run(5)
        os.rename(tmp_path / "away", tmp_path / "later")
        worker.run(10)
        assert worker.lines == {"f": ["x"]}
        assert caplog.text.count("Cannot list directory") == 2

    def test_a_file_that_shrinks_is_read_again_not_lost(self, tmp_path, worker):
        (tmp_path / "f").write_text("one\ntwo\n")
        worker.run(10)
        (tmp_path / "f").write_text("2\n")
        worker.run(10)
        assert (worker.lines, worker.configs) == ({"f": ["one", "two", "2"]}, [])

    def test_a_new_start_leaves_files_where_they_were(self, tmp_path, worker):
        for name, size in (("a", 10), ("b", 30), ("c", 20)):
            (tmp_path / name).write_text("x\n" * size)
        worker.monitor.look()
        files = worker.files_of_tasks()
        (tmp_path / "c").write_text("x\n" * 500)
        again = worker.watch(worker.monitor.assignment)
        again.look()
        assert [[os.path.basename(path) for path in group] for group in again.plan(2).groups] == files

    def test_the_first_plan_waits_for_the_first_look_only_so_long(self, tmp_path, monkeypatch):
        monkeypatch.setattr("penstock.connectors.directory.connector.FIRST_LOOK_S", 0.01)
        worker = FakeWorker(tmp_path)
        monitor = worker.watch(TaskShare([["/d/a"]]))
        assert monitor.plan(5) == TaskShare([["/d/a"]])

    def test_offsets_have_to_be_positions_in_files(self):
        connector = DirectorySourceConnector()
        key: frozenset[tuple[str, object]] = frozenset({("filename", "/d/a")})
        assert connector.alter_offsets({}, {key: {"position": 5}, frozenset({("odd", 1)}): None})
        assert connector.alter_offsets({}, {key: {"position": 5, "size": 6, "bytes": 1}})
        wrong: list[tuple[frozenset[tuple[str, object]], dict[str, object]]] = [
            (key, {"position": -1}),
            (key, {"position": 1, "size": "x"}),
            (frozenset({("x", 1)}), {"position": 1}),
        ]
        for partition, offset in wrong:
            with pytest.raises(ConnectException, match="has to"):
                connector.alter_offsets({}, {partition: offset})

    def test_it_can_deliver_exactly_once(self):
        assert DirectorySourceConnector().exactly_once_support({}) is ExactlyOnceSupport.SUPPORTED


class LiveContext(SourceConnectorContext):
    """A context for the monitor's own thread: notes what is asked for."""

    def __init__(self):
        self.offsets = Offsets()
        self.asked = threading.Semaphore(0)
        self.restarted = threading.Event()
        self.errors = []
        self.closed = False

    def check(self):
        if self.closed:
            raise IllegalWorkerStateException("closed")

    def request_task_reconfiguration(self):
        self.check()
        self.asked.release()

    def raise_error(self, error):
        self.errors.append(error)

    def restart_tasks(self, task_ids=None):
        self.check()
        self.restarted.set()

    def offset_storage_reader(self):
        self.check()
        return self.offsets


def monitors():
    return [thread for thread in threading.enumerate() if thread.name == "directory-monitor"]


@pytest.fixture
def live(tmp_path):
    context, connector = LiveContext(), DirectorySourceConnector()
    connector.initialize(context)
    props = {
        "directories": str(tmp_path),
        "topic": "t",
        "scan.interval.ms": "5",
        "idle.ms": "10",
        "stall.timeout.ms": "50",
    }
    yield context, connector, props
    connector.stop()
    assert monitors() == []


class TestMonitorThread:
    def test_it_lives_from_start_to_stop_and_again(self, tmp_path, live):
        context, connector, props = live
        connector.stop()
        for name in ("a", "b"):
            connector.start(props)
            assert len(monitors()) == 1
            connector.task_configs(1)
            (tmp_path / name).write_text("x\n")
            assert context.asked.acquire(timeout=30)
            connector.stop()
            assert monitors() == []
        connector.start(props)
        assert len(connector.task_configs(5)) == 2

    def test_starting_twice_leaves_one_thread(self, live):
        _, connector, props = live
        connector.start(props)
        connector.start(props)
        assert len(monitors()) == 1

    def test_tasks_that_commit_nothing_are_restarted(self, tmp_path, live):
        context, connector, props = live
        (tmp_path / "a").write_text("x\n")
        connector.start(props)
        assert len(connector.task_configs(1)) == 1
        assert context.restarted.wait(30)

    def test_offsets_that_cannot_be_read_are_one_warning_and_tried_again(self, tmp_path, live, caplog):
        context, connector, props = live
        (tmp_path / "a").write_text("x\n")
        context.offsets.broken = True
        connector.start(props)
        await_true(lambda: context.offsets.reads >= 3)
        context.offsets.broken = False
        assert len(connector.task_configs(1)) == 1
        assert caplog.text.count("Cannot read the committed offsets") == 1
        assert context.errors == []

    def test_it_ends_when_the_connector_was_abandoned(self, tmp_path, live, caplog):
        context, connector, props = live
        caplog.set_level(logging.INFO)
        (tmp_path / "a").write_text("x\n")
        connector.start(props)
        context.closed = True
        for thread in monitors():
            thread.join(30)
        assert monitors() == []
        assert "No longer watching" in caplog.text

    def test_a_fault_of_its_own_fails_the_connector(self, live, monkeypatch):
        context, connector, props = live

        def broken(*_):
            raise ZeroDivisionError

        monkeypatch.setattr(DirectoryMonitor, "look", broken)
        connector.start(props)
        for thread in monitors():
            thread.join(30)
        assert [type(error) for error in context.errors] == [ZeroDivisionError]
