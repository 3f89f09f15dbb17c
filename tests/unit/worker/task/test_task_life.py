"""Which words of a task count."""

import pytest

from penstock.model import State
from penstock.worker.task.slot import (
    BuildAgain,
    PublishStatus,
    Reports,
    TaskEffect,
    TaskEvent,
    TaskPhase,
    TaskSignal,
    step,
)


def run(*events: TaskEvent) -> tuple[TaskPhase, list[TaskEffect]]:
    """The phase after these events, and what was to be done."""
    phase = TaskPhase.BUILDING
    published: list[TaskEffect] = []
    for event in events:
        phase, effects = step(phase, event)
        published += effects
    return phase, published


def test_a_task_that_runs_and_ends_as_asked() -> None:
    phase, published = run(TaskSignal.BUILT, Reports(State.RUNNING), TaskSignal.STOP, Reports(State.UNASSIGNED))
    assert phase is TaskPhase.ENDED
    assert published == [PublishStatus(State.RUNNING), PublishStatus(State.UNASSIGNED)]


def test_a_failure_is_the_last_word() -> None:
    phase, published = run(
        TaskSignal.BUILT, Reports(State.RUNNING), Reports(State.FAILED, "t"), Reports(State.UNASSIGNED)
    )
    assert phase is TaskPhase.FAILED
    assert published[-1] == PublishStatus(State.FAILED, "t")


def test_a_failure_after_stop_was_asked_is_an_end() -> None:
    _, published = run(TaskSignal.BUILT, TaskSignal.STOP, Reports(State.RUNNING), Reports(State.FAILED, "t"))
    assert published == [PublishStatus(State.UNASSIGNED)]


def test_a_task_that_is_to_start_again_is_built_again() -> None:
    phase, done = run(TaskSignal.BUILT, Reports(State.RUNNING), Reports(State.RESTARTING, "t"))
    assert phase is TaskPhase.BUILDING
    assert done[1:] == [PublishStatus(State.RESTARTING, "t"), BuildAgain()]

    phase, done = run(TaskSignal.BUILT, Reports(State.RESTARTING), TaskSignal.BUILT, Reports(State.RUNNING))
    assert phase is TaskPhase.RUNNING
    assert done[-1] == PublishStatus(State.RUNNING)


def test_a_task_that_was_asked_to_stop_is_not_built_again() -> None:
    phase, done = run(TaskSignal.BUILT, TaskSignal.STOP, Reports(State.RESTARTING))
    assert (phase, done) == (TaskPhase.ENDED, [PublishStatus(State.UNASSIGNED)])


def test_nothing_counts_after_a_cancel() -> None:
    phase, published = run(
        TaskSignal.BUILT,
        TaskSignal.STOP,
        TaskSignal.CANCEL,
        Reports(State.FAILED, "t"),
        TaskSignal.BUILT,
        TaskSignal.STOP,
    )
    assert phase is TaskPhase.CANCELLED
    assert published == []


def test_a_task_that_could_not_be_built_is_failed() -> None:
    assert run(Reports(State.FAILED, "t")) == (TaskPhase.FAILED, [PublishStatus(State.FAILED, "t")])


def test_states_that_a_task_cannot_have_are_refused() -> None:
    with pytest.raises(ValueError, match="STOPPED"):
        run(TaskSignal.BUILT, Reports(State.STOPPED))
