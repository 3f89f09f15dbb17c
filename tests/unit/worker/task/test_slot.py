"""A task whose runner ends with its Spark session gets another runner.

What the worker makes of a connector's task configurations.
"""

from __future__ import annotations

import threading

import pytest
from testkit.connectors.probes import ProbeTask
from testkit.waiting import await_true
from tools.chaos.cases.troublemakers import no_more_threads

from penstock.connectors.file import FileStreamSourceTask
from penstock.errors import ConnectException
from penstock.model import ConnectorTaskId, State
from penstock.plugins.stock import TASK_CLASSES
from penstock.worker.task.slot import (
    MAX_VAIN,
    StateReport,
    TaskPhase,
    TaskRunner,
    TaskSlot,
    changed,
    check_count,
    class_name,
    complete,
    load_class,
)
from penstock.worker.task.waiting import Hints

TASK = ConnectorTaskId("c", 0)
WAIT_S = 10.0


class Runner:
    """Ends as a test says."""

    def __init__(self, report: StateReport, *, paused: bool) -> None:
        self.report = report
        self.paused = paused
        self.has_delivered = False
        self.retry_at_ms: int | None = None
        self.hints = Hints()
        self.calls: list[str] = []
        self.started = threading.Event()
        self.ended = threading.Event()

    def start(self) -> None:
        self.calls.append("start")
        if "stop" in self.calls:
            self.end(State.UNASSIGNED)
        else:
            self.report(State.PAUSED if self.paused else State.RUNNING, None)
        self.started.set()

    def end(self, state: State) -> None:
        self.report(state, "why")
        self.ended.set()

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def stop(self) -> None:
        self.calls.append("stop")
        if self.started.is_set():
            self.end(State.UNASSIGNED)

    def cancel(self) -> None:
        self.calls.append("cancel")

    def fail(self, error: Exception) -> None:
        self.end(State.FAILED)

    def join(self, timeout_s: float | None = None) -> bool:
        return self.ended.wait(timeout_s)


class Rig:
    """A slot and the runners that it has made."""

    def __init__(self) -> None:
        self.runners: list[Runner] = []
        self.states: list[State] = []
        self.may_build = threading.Event()
        self.may_build.set()
        self.slot = TaskSlot(
            TASK, self.make, paused=False, on_state=lambda state, _: self.states.append(state), stop_timeout_s=WAIT_S
        )

    def make(self, report: StateReport, paused: bool) -> TaskRunner:
        assert self.may_build.wait(WAIT_S)
        self.runners.append(Runner(report, paused=paused))
        return self.runners[-1]

    def runner(self, number: int) -> Runner:
        """That one, when it has started."""
        await_true(lambda: len(self.runners) > number)
        assert self.runners[number].started.wait(WAIT_S)
        return self.runners[number]


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.slot.start()
    return made


def test_a_runner_that_lost_its_session_is_replaced(rig: Rig) -> None:
    rig.runner(0).end(State.RESTARTING)

    assert rig.runner(1) is not rig.runners[0]
    await_true(lambda: rig.slot.phase is TaskPhase.RUNNING)
    assert rig.states == [State.RUNNING, State.RESTARTING, State.RUNNING]
    rig.slot.stop().result(WAIT_S)
    assert rig.runners[1].calls == ["start", "stop"]


def test_a_pause_that_came_meanwhile_counts(rig: Rig) -> None:
    first = rig.runner(0)
    rig.may_build.clear()
    first.end(State.RESTARTING)
    rig.slot.pause()
    rig.may_build.set()

    second = rig.runner(1)
    assert second.paused or "pause" in second.calls


def test_a_task_that_is_stopped_while_it_is_built_again_ends(rig: Rig) -> None:
    first = rig.runner(0)
    rig.may_build.clear()
    first.end(State.RESTARTING)
    ended = rig.slot.stop()
    assert not ended.done()
    rig.may_build.set()
    ended.result(WAIT_S)

    assert rig.runners[1].calls == ["stop", "start"]
    assert rig.states == [State.RUNNING, State.RESTARTING, State.UNASSIGNED]


def test_a_task_that_brings_down_each_session_fails(rig: Rig) -> None:
    for number in range(MAX_VAIN):
        rig.runner(number).end(State.RESTARTING)

    assert rig.states[-1] is State.FAILED
    assert rig.slot.phase is TaskPhase.FAILED
    assert len(rig.runners) == MAX_VAIN


def test_a_task_that_has_delivered_something_may_lose_its_session_again(rig: Rig) -> None:
    for number in range(2 * MAX_VAIN):
        runner = rig.runner(number)
        runner.has_delivered = number % 2 == 0
        runner.end(State.RESTARTING)

    assert rig.runner(2 * MAX_VAIN).calls == ["start"]
    assert State.FAILED not in rig.states


def test_a_task_that_gets_no_thread_fails_and_one_whose_end_nobody_can_wait_for_is_abandoned(rig: Rig) -> None:
    rig.runner(0)
    other = Rig()
    with no_more_threads():
        rig.slot.stop().result(0)
        other.slot.start()
        other.slot.stop().result(0)

    assert rig.runners[0].calls[-1] == "cancel"
    assert rig.slot.phase is TaskPhase.CANCELLED
    assert (other.states, other.runners) == ([State.FAILED], [])


class Outer:
    """Holds a nested class."""

    class Inner:
        """Is named with a colon."""


class OwnTask(FileStreamSourceTask):
    """Does something of its own."""


def test_a_placeholder_is_put_back_only_where_the_value_is_that_of_the_placeholder() -> None:
    raw = {"password": "${env:SECRET}", "user": "${env:USER}", "file": "x"}
    resolved = {"password": "hunter2", "user": "ann", "file": "x"}
    (task,) = complete(
        [{"password": "hunter2", "user": "per-task", "file": "y"}],
        task_class=ProbeTask,
        sink=False,
        raw=raw,
        resolved=resolved,
    )
    assert task == {
        "password": "${env:SECRET}",
        "user": "per-task",
        "file": "y",
        "task.class": "testkit.connectors.probes.ProbeTask",
    }


def test_sink_tasks_get_the_topics_with_their_placeholder() -> None:
    raw, resolved = {"topics": "${env:T}"}, {"topics": "orders"}
    assert complete([{}], task_class=ProbeTask, sink=True, raw=raw, resolved=resolved)[0]["topics"] == "${env:T}"
    assert "topics" not in complete([{}], task_class=ProbeTask, sink=False, raw=raw, resolved=resolved)[0]


@pytest.mark.parametrize(
    ("new", "old", "now", "then", "expected"),
    [
        ([{"a": "1"}], [{"a": "1"}], {"x": "1"}, {"x": "1"}, False),
        ([{"a": "2"}], [{"a": "1"}], {"x": "1"}, {"x": "1"}, True),
        ([{"a": "1"}], [{"a": "1"}, {}], {"x": "1"}, {"x": "1"}, True),
        ([{"a": "1"}], [{"a": "1"}], {"x": "2"}, {"x": "1"}, True),
        ([{"a": "1"}], [{"a": "1"}], {"x": "1"}, None, True),
        ([], [], {"x": "2"}, {"x": "1"}, False),
    ],
)
def test_tasks_are_restarted_when_they_or_their_connector_changed(
    new: list[dict[str, str]],
    old: list[dict[str, str]],
    now: dict[str, str],
    then: dict[str, str] | None,
    expected: bool,
) -> None:
    assert changed(new, old, connector_now=now, connector_then=then) is expected


def test_as_many_tasks_as_allowed_pass() -> None:
    check_count("a", 2, 2)
    with pytest.raises(ConnectException, match=r"connector a has generated 3 .*tasks\.max\.enforce=false"):
        check_count("a", 3, 2)


def test_a_class_is_found_again_by_its_path() -> None:
    assert load_class(class_name(ProbeTask)) is ProbeTask
    assert class_name(Outer.Inner).endswith(":Outer.Inner")
    with pytest.raises(ConnectException, match=r"gone\.Task cannot be imported"):
        load_class("gone.Task")


@pytest.mark.parametrize("java_name", TASK_CLASSES)
def test_a_task_class_that_java_has_is_stored_under_javas_name_and_found_by_both(java_name):
    cls = load_class(java_name)

    assert vars(cls)["java_name"] == java_name
    assert class_name(cls) == java_name
    assert complete([{}], task_class=cls, sink=False, raw={}, resolved={}) == [{"task.class": java_name}]
    assert load_class(f"{cls.__module__}.{cls.__qualname__}") is cls


def test_a_class_that_extends_such_a_task_keeps_its_own_name():
    assert class_name(OwnTask).endswith("test_slot.OwnTask")
