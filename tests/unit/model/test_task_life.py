"""Which words of a task count."""

import pytest

from penstock.model import State
from penstock.model.task_life import (
    Built,
    CancelAsked,
    PublishStatus,
    Reports,
    StopAsked,
    TaskEvent,
    TaskPhase,
    step,
)


def run(*events: TaskEvent) -> tuple[TaskPhase, list[PublishStatus]]:
    """The phase after these events, and what was published."""
    phase, published = TaskPhase.BUILDING, []
    for event in events:
        phase, effects = step(phase, event)
        published += effects
    return phase, published


def test_a_task_that_runs_and_ends_as_asked() -> None:
    phase, published = run(Built(), Reports(State.RUNNING), StopAsked(), Reports(State.UNASSIGNED))
    assert phase is TaskPhase.ENDED
    assert published == [PublishStatus(State.RUNNING), PublishStatus(State.UNASSIGNED)]


def test_a_failure_is_the_last_word() -> None:
    phase, published = run(Built(), Reports(State.RUNNING), Reports(State.FAILED, "t"), Reports(State.UNASSIGNED))
    assert phase is TaskPhase.FAILED
    assert published[-1] == PublishStatus(State.FAILED, "t")


def test_a_failure_after_stop_was_asked_is_an_end() -> None:
    _, published = run(Built(), StopAsked(), Reports(State.RUNNING), Reports(State.FAILED, "t"))
    assert published == [PublishStatus(State.UNASSIGNED)]


def test_nothing_counts_after_a_cancel() -> None:
    phase, published = run(Built(), StopAsked(), CancelAsked(), Reports(State.FAILED, "t"), Built(), StopAsked())
    assert phase is TaskPhase.CANCELLED
    assert published == []


def test_a_task_that_could_not_be_built_is_failed() -> None:
    assert run(Reports(State.FAILED, "t")) == (TaskPhase.FAILED, [PublishStatus(State.FAILED, "t")])


def test_states_that_a_task_cannot_have_are_refused() -> None:
    with pytest.raises(ValueError, match="STOPPED"):
        run(Built(), Reports(State.STOPPED))
