"""The life of a runner: what is called, in which order, and what is reported."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from tests.shares import QUICK

from penstock.model import State
from penstock.model.runner_life import (
    Failed,
    LogFailure,
    Report,
    RunnerEffect,
    RunnerEvent,
    RunnerLife,
    RunnerOrder,
    RunnerPhase,
    RunnerSignal,
    StopCall,
    TaskEnding,
    TaskRaised,
    step,
)

ERROR = ValueError("broken")
LATER = ValueError("later")
MADE = RunnerLife()
RUNNING: list[RunnerEvent] = [RunnerSignal.PROCEED, RunnerSignal.PROCEED, RunnerSignal.STARTED, RunnerSignal.PROCEED]


def run(*events: RunnerEvent, life: RunnerLife = MADE) -> tuple[RunnerLife, list[RunnerEffect]]:
    """The life after these events, and all that was to be done."""
    done: list[RunnerEffect] = []
    for event in events:
        life, effects = step(life, event)
        done += effects
    return life, done


def test_a_task_that_runs_and_ends_as_asked() -> None:
    life, done = run(
        *RUNNING,
        RunnerSignal.STOP_ASKED,
        RunnerSignal.POLL_RETURNED,
        RunnerSignal.PROCEED,
        RunnerSignal.DRAINED,
        RunnerSignal.STOP_RETURNED,
        RunnerSignal.CLOSED,
    )
    assert life.phase is RunnerPhase.ENDED
    assert done == [
        Report(State.RUNNING),
        RunnerOrder.INTERRUPT,
        RunnerOrder.CALL_WAKEUP,
        RunnerOrder.CALL_STOP,
        Report(State.UNASSIGNED),
    ]


def test_a_task_of_a_paused_connector_is_not_started_before_it_is_resumed() -> None:
    life, done = run(RunnerSignal.PROCEED, RunnerSignal.PROCEED, life=RunnerLife(paused=True))
    assert (life.phase, done) == (RunnerPhase.HELD, [Report(State.PAUSED)])
    assert run(RunnerSignal.RESUME_ASKED, RunnerSignal.PROCEED, life=life)[0].phase is RunnerPhase.PREPARING
    life, done = run(RunnerSignal.STOP_ASKED, RunnerSignal.PROCEED, RunnerSignal.CLOSED, life=life)
    assert (life.phase, done) == (RunnerPhase.ENDED, [RunnerOrder.INTERRUPT, Report(State.UNASSIGNED)])


def test_a_task_that_is_asked_to_stop_while_it_is_prepared_is_not_initialized() -> None:
    life, done = run(RunnerSignal.PROCEED, RunnerSignal.STOP_ASKED, RunnerSignal.PROCEED)
    assert (life.phase, done) == (RunnerPhase.CLOSING, [RunnerOrder.INTERRUPT])


def test_a_task_rests_and_goes_on_and_says_so() -> None:
    life, done = run(
        *RUNNING,
        RunnerSignal.PAUSE_ASKED,
        RunnerSignal.POLL_RETURNED,
        RunnerSignal.PROCEED,
        RunnerSignal.PROCEED,
        RunnerSignal.RESUME_ASKED,
        RunnerSignal.PROCEED,
    )
    assert life.phase is RunnerPhase.WORKING
    assert done == [Report(State.RUNNING), RunnerOrder.BEGIN_REST, Report(State.PAUSED), Report(State.RUNNING)]


def test_an_error_of_start_is_followed_by_stop_and_by_no_last_commit() -> None:
    life, done = run(
        RunnerSignal.PROCEED, RunnerSignal.PROCEED, TaskRaised(ERROR), RunnerSignal.STOP_RETURNED, RunnerSignal.CLOSED
    )
    assert life.phase is RunnerPhase.ENDED
    assert done == [
        LogFailure(ERROR, TaskEnding.NO),
        RunnerOrder.INTERRUPT,
        RunnerOrder.CALL_STOP,
        Report(State.FAILED, ERROR),
    ]


def test_an_error_of_poll_needs_no_wakeup_and_is_followed_by_a_last_commit() -> None:
    life, done = run(*RUNNING, RunnerSignal.POLL_RETURNED, TaskRaised(ERROR))
    assert life.phase is RunnerPhase.DRAINING
    assert done[1:] == [LogFailure(ERROR, TaskEnding.NO), RunnerOrder.INTERRUPT]


def test_a_failed_stage_ends_the_poll_and_the_first_error_is_reported() -> None:
    _, done = run(
        *RUNNING,
        Failed(ERROR),
        Failed(LATER),
        RunnerSignal.STOP_ASKED,
        RunnerSignal.POLL_RETURNED,
        RunnerSignal.PROCEED,
        RunnerSignal.DRAINED,
    )
    assert done[1:] == [
        LogFailure(ERROR, TaskEnding.NO),
        RunnerOrder.INTERRUPT,
        RunnerOrder.CALL_WAKEUP,
        RunnerOrder.CALL_STOP,
    ]
    life, _ = run(
        *RUNNING,
        Failed(ERROR),
        RunnerSignal.STOP_ASKED,
        RunnerSignal.POLL_RETURNED,
        RunnerSignal.PROCEED,
        RunnerSignal.DRAINED,
        RunnerSignal.STOP_RETURNED,
    )
    assert step(life, RunnerSignal.CLOSED)[1] == [Report(State.FAILED, ERROR)]


def test_an_error_after_stop_was_asked_is_logged_and_not_reported() -> None:
    life, done = run(
        *RUNNING,
        RunnerSignal.STOP_ASKED,
        RunnerSignal.POLL_RETURNED,
        TaskRaised(ERROR),
        RunnerSignal.DRAINED,
        RunnerSignal.STOP_RETURNED,
        RunnerSignal.CLOSED,
    )
    assert done[3:] == [LogFailure(ERROR, TaskEnding.STOP), RunnerOrder.CALL_STOP, Report(State.UNASSIGNED)]
    assert life.failure is ERROR


def test_a_poll_that_does_not_return_is_ended_by_stop_beside_it_and_not_stopped_again() -> None:
    life, done = run(*RUNNING, RunnerSignal.STOP_ASKED, RunnerSignal.POLL_OVERDUE, RunnerSignal.POLL_OVERDUE)
    assert done[-1] == RunnerOrder.CALL_STOP
    assert done.count(RunnerOrder.CALL_STOP) == 1
    waiting, done = run(RunnerSignal.POLL_RETURNED, RunnerSignal.PROCEED, RunnerSignal.DRAINED, life=life)
    assert (waiting.phase, done) == (RunnerPhase.CLOSING, [RunnerOrder.AWAIT_STOP])
    returned, done = run(
        RunnerSignal.STOP_RETURNED, RunnerSignal.POLL_RETURNED, RunnerSignal.PROCEED, RunnerSignal.DRAINED, life=life
    )
    assert (returned.phase, done) == (RunnerPhase.CLOSING, [])


def test_start_and_a_rest_are_not_taken_for_a_poll() -> None:
    for events in (
        [RunnerSignal.PROCEED, RunnerSignal.PROCEED],
        [*RUNNING, RunnerSignal.PAUSE_ASKED, RunnerSignal.POLL_RETURNED, RunnerSignal.PROCEED],
    ):
        assert RunnerOrder.CALL_STOP not in run(*events, RunnerSignal.STOP_ASKED, RunnerSignal.POLL_OVERDUE)[1]


def test_a_cancelled_task_reports_nothing_more() -> None:
    life, done = run(
        *RUNNING,
        RunnerSignal.CANCEL_ASKED,
        RunnerSignal.CANCEL_ASKED,
        Failed(ERROR),
        RunnerSignal.POLL_RETURNED,
        RunnerSignal.PROCEED,
        RunnerSignal.DRAINED,
    )
    assert done[1:] == [
        RunnerOrder.ABANDON,
        RunnerOrder.INTERRUPT,
        RunnerOrder.CALL_WAKEUP,
        LogFailure(ERROR, TaskEnding.CANCEL),
        RunnerOrder.CALL_STOP,
    ]
    assert run(RunnerSignal.STOP_RETURNED, RunnerSignal.CLOSED, life=life)[1] == []
    assert run(*RUNNING, RunnerSignal.STOP_ASKED, RunnerSignal.CANCEL_ASKED)[1][3:] == [RunnerOrder.ABANDON]


def test_what_comes_when_all_is_over_changes_nothing() -> None:
    life, _ = run(RunnerSignal.PROCEED, RunnerSignal.STOP_ASKED, RunnerSignal.PROCEED, RunnerSignal.CLOSED)
    assert run(
        RunnerSignal.STOP_ASKED,
        RunnerSignal.CANCEL_ASKED,
        Failed(ERROR),
        RunnerSignal.POLL_OVERDUE,
        life=life,
    ) == (life, [])


def test_the_short_ways_of_a_poll_are_those_of_the_rules() -> None:
    life, _ = run(*RUNNING[:-1])
    working, _ = step(life, RunnerSignal.PROCEED)
    between, _ = step(working, RunnerSignal.POLL_RETURNED)
    assert between is life
    for short in (life, working):
        for event in (RunnerSignal.PROCEED, RunnerSignal.POLL_RETURNED):
            # Another object of the same value takes the long way.
            same = RunnerLife(*short)
            assert same is not short
            if (short, event) != (life, RunnerSignal.POLL_RETURNED):
                assert step(same, event) == step(short, event)


@pytest.mark.parametrize(
    "event",
    [
        RunnerSignal.STARTED,
        RunnerSignal.POLL_RETURNED,
        RunnerSignal.DRAINED,
        RunnerSignal.STOP_RETURNED,
        RunnerSignal.CLOSED,
    ],
)
def test_what_cannot_happen_is_refused(event: RunnerEvent) -> None:
    with pytest.raises(ValueError, match="no transition"):
        step(RunnerLife(), event)


# ------------------------------------------------------------------ whatever happens
ASKED: list[RunnerEvent] = [
    RunnerSignal.PAUSE_ASKED,
    RunnerSignal.RESUME_ASKED,
    RunnerSignal.STOP_ASKED,
    RunnerSignal.CANCEL_ASKED,
    Failed(ERROR),
    RunnerSignal.POLL_OVERDUE,
]


def next_of_thread(life: RunnerLife, chance: random.Random) -> RunnerEvent | None:
    """What the task's thread may say next; None while it waits."""
    raises = chance.random() < 0.1
    match life.phase:
        case RunnerPhase.NEW | RunnerPhase.HELD | RunnerPhase.BETWEEN | RunnerPhase.RESTING:
            return RunnerSignal.PROCEED
        case RunnerPhase.PREPARING:
            return TaskRaised(LATER) if raises else RunnerSignal.PROCEED
        case RunnerPhase.STARTING:
            return TaskRaised(LATER) if raises else RunnerSignal.STARTED
        case RunnerPhase.WORKING:
            # A poll returns, a round of a sink comes to its end, or either has raised.
            if raises:
                return TaskRaised(LATER)
            return RunnerSignal.POLL_RETURNED if chance.random() < 0.5 else RunnerSignal.PROCEED
        case RunnerPhase.DRAINING:
            return TaskRaised(LATER) if raises else RunnerSignal.DRAINED
        case RunnerPhase.CLOSING:
            return None if life.stop is StopCall.UNDER_WAY else RunnerSignal.CLOSED
    return None


def check(before: RunnerLife, event: RunnerEvent, after: RunnerLife, done: list[RunnerEffect]) -> None:
    """What holds after each step."""
    assert done.count(RunnerOrder.CALL_STOP) <= 1
    assert done.count(RunnerOrder.CALL_WAKEUP) <= 1
    assert done.count(RunnerOrder.INTERRUPT) <= 1
    assert sum(isinstance(effect, LogFailure) for effect in done) <= 1
    assert (after.stop is StopCall.NONE) == (RunnerOrder.CALL_STOP not in done)
    reports = [effect for effect in done if isinstance(effect, Report)]
    assert sum(report.state is State.FAILED for report in reports) <= 1
    last = [report for report in reports if report.state in (State.FAILED, State.UNASSIGNED)]
    assert last == ([] if after.phase is not RunnerPhase.ENDED or after.is_cancelled else [reports[-1]])
    if before.is_ending and event is not RunnerSignal.CLOSED:
        assert not any(isinstance(effect, Report) for effect in step(before, event)[1])


def test_whatever_happens_stop_is_called_once_and_nothing_is_reported_behind_the_end() -> None:
    for seed in range(75 if QUICK else 300):
        live(random.Random(seed))


def live(chance: random.Random) -> None:
    """One life of random events, up to its end."""
    life, done, initialized = RunnerLife(paused=chance.random() < 0.3), list[RunnerEffect](), False
    for turn in range(200):
        events: list[RunnerEvent] = [RunnerSignal.STOP_ASKED] if turn >= 150 else list(ASKED)
        if life.stop is StopCall.UNDER_WAY:
            events.extend([RunnerSignal.STOP_RETURNED] * 3)
        if (own := next_of_thread(life, chance)) is not None:
            events += [own] * 12
        event = chance.choice(events)
        before = life
        life, effects = step(life, event)
        done += effects
        initialized = initialized or life.phase is RunnerPhase.STARTING
        check(before, event, life, done)
        assert initialized or RunnerOrder.CALL_STOP not in done
    assert life.phase is RunnerPhase.ENDED
    assert initialized == (RunnerOrder.CALL_STOP in done)


# ------------------------------------------------------------------ the table in the docs
CASES: list[tuple[str, RunnerLife]] = [
    ("-", RunnerLife()),
    ("a pause", RunnerLife(paused=True)),
    ("the end", RunnerLife(ending=TaskEnding.STOP)),
]
EVENTS: list[RunnerEvent] = [
    RunnerSignal.PROCEED,
    RunnerSignal.STARTED,
    RunnerSignal.POLL_RETURNED,
    TaskRaised(ERROR),
    RunnerSignal.DRAINED,
    RunnerSignal.CLOSED,
    *ASKED[2:],
]
ENDINGS = (RunnerPhase.DRAINING, RunnerPhase.CLOSING, RunnerPhase.ENDED)


def name_of(one: RunnerEvent | RunnerEffect) -> str:
    return one.value if isinstance(one, RunnerSignal | RunnerOrder) else type(one).__name__


def shown(effect: RunnerEffect) -> str:
    return f"Report({effect.state.value})" if isinstance(effect, Report) else name_of(effect)


def table() -> str:
    """What ``step`` does. Left out is what changes nothing, and what is the same whatever was asked before."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for event, phase in product(EVENTS, RunnerPhase):
        seen = set()
        for asked, base in CASES[2 if phase in ENDINGS else 0 :]:
            stop = StopCall.RETURNED if phase is RunnerPhase.CLOSING else StopCall.NONE
            life = base._replace(phase=phase, stop=stop)
            try:
                after, effects = step(life, event)
            except ValueError:
                continue
            target = "the same" if after.phase is phase else after.phase.value
            done = ", ".join(map(shown, effects)) or "-"
            if (effects or after != life) and (target, done) not in seen:
                seen.add((target, done))
                rows.setdefault((name_of(event), asked, target, done), []).append(phase.value)
    lines = ["| event | in | asked before | next phase | effects |", "| --- | --- | --- | --- | --- |"]
    for (name, asked, target, done), phases in rows.items():
        lines.append(f"| {name} | {', '.join(phases)} | {asked} | {target} | {done} |")
    return "\n".join(lines)


def test_the_table_in_the_docs_is_what_step_does() -> None:
    page = Path(__file__).parents[3] / "docs" / "task-life.md"
    assert table() in page.read_text(), f"docs/task-life.md should have this table:\n\n{table()}"
