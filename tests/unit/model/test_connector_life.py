"""The life of a connector, transition by transition and under random events."""

import random

import pytest

from penstock.model import State, TargetState
from penstock.model.connector_life import (
    Asked,
    CallFailed,
    ConnectorEffect,
    ConnectorEvent,
    ConnectorLife,
    ConnectorOrder,
    ConnectorPhase,
    ConnectorRaised,
    ConnectorSignal,
    TargetReached,
    TargetRefused,
    WriteStatus,
    step,
)


def run(*events: ConnectorEvent) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    """The life after these events, and all effects."""
    life = ConnectorLife()
    effects: list[ConnectorEffect] = []
    for event in events:
        life, more = step(life, event)
        effects += more
    return life, effects


STARTED = (ConnectorSignal.INITIALIZE_DONE, Asked(TargetState.STARTED), ConnectorSignal.START_DONE)


def test_a_connector_starts_after_initialize() -> None:
    life, effects = run(*STARTED)
    assert life == ConnectorLife(ConnectorPhase.RUNNING, live=True)
    assert effects == [
        ConnectorOrder.CALL_START,
        WriteStatus(State.RUNNING),
        TargetReached(TargetState.STARTED),
    ]


def test_a_connector_that_begins_paused_is_not_started() -> None:
    life, effects = run(ConnectorSignal.INITIALIZE_DONE, Asked(TargetState.PAUSED))
    assert life == ConnectorLife(ConnectorPhase.PAUSED)
    assert effects == [WriteStatus(State.PAUSED), TargetReached(TargetState.PAUSED)]


def test_pause_and_resume_stop_and_start_the_same_instance() -> None:
    _, effects = run(
        *STARTED,
        Asked(TargetState.PAUSED),
        ConnectorSignal.STOP_DONE,
        Asked(TargetState.STARTED),
        ConnectorSignal.START_DONE,
    )
    assert [effect for effect in effects if effect in (ConnectorOrder.CALL_START, ConnectorOrder.CALL_STOP)] == [
        ConnectorOrder.CALL_START,
        ConnectorOrder.CALL_STOP,
        ConnectorOrder.CALL_START,
    ]


def test_stopping_a_paused_connector_does_not_call_stop_again() -> None:
    life, effects = run(*STARTED, Asked(TargetState.PAUSED), ConnectorSignal.STOP_DONE, Asked(TargetState.STOPPED))
    assert life == ConnectorLife(ConnectorPhase.STOPPED)
    assert effects.count(ConnectorOrder.CALL_STOP) == 1


def test_a_failing_stop_is_a_failed_pause_but_a_reached_stop() -> None:
    paused, effects = run(*STARTED, Asked(TargetState.PAUSED), CallFailed("t"))
    assert paused == ConnectorLife(ConnectorPhase.FAILED)
    assert WriteStatus(State.FAILED, "t") in effects
    stopped, effects = run(*STARTED, Asked(TargetState.STOPPED), CallFailed("t"))
    assert stopped == ConnectorLife(ConnectorPhase.STOPPED)
    assert effects[-1] == TargetReached(TargetState.STOPPED)


def test_only_a_stop_leads_out_of_a_failure() -> None:
    failed = (ConnectorSignal.INITIALIZE_DONE, Asked(TargetState.STARTED), CallFailed("t"))
    for target in (TargetState.STARTED, TargetState.PAUSED):
        life, effects = run(*failed, Asked(target))
        assert life.phase is ConnectorPhase.FAILED
        assert isinstance(effects[-1], TargetRefused)
    life, _ = run(*failed, Asked(TargetState.STOPPED), Asked(TargetState.STARTED), ConnectorSignal.START_DONE)
    assert life.phase is ConnectorPhase.RUNNING


def test_an_error_raised_by_a_started_connector_still_owes_it_a_stop() -> None:
    life, effects = run(
        *STARTED,
        ConnectorRaised("first"),
        ConnectorRaised("second"),
        ConnectorSignal.SHUTDOWN_ASKED,
        ConnectorSignal.STOP_DONE,
    )
    assert life == ConnectorLife(ConnectorPhase.CLOSED)
    assert [effect.trace for effect in effects if isinstance(effect, WriteStatus)] == [None, "first", None]
    assert effects[-3:] == [
        ConnectorOrder.CALL_STOP,
        WriteStatus(State.UNASSIGNED),
        ConnectorOrder.CLOSE_CONTEXT,
    ]


def test_a_shutdown_whose_stop_fails_ends_failed() -> None:
    _, effects = run(*STARTED, ConnectorSignal.SHUTDOWN_ASKED, CallFailed("t"))
    assert effects[-2:] == [WriteStatus(State.FAILED, "t"), ConnectorOrder.CLOSE_CONTEXT]


PUT_OFF = (ConnectorSignal.INITIALIZE_DONE, Asked(TargetState.STARTED), ConnectorSignal.START_PUT_OFF)


def test_a_start_that_was_put_off_is_called_again() -> None:
    life, effects = run(
        *PUT_OFF,
        Asked(TargetState.STARTED),
        ConnectorSignal.START_PUT_OFF,
        Asked(TargetState.STARTED),
        ConnectorSignal.START_DONE,
    )
    assert life == ConnectorLife(ConnectorPhase.RUNNING, live=True)
    assert effects.count(ConnectorOrder.CALL_START) == 3
    assert effects.count(TargetReached(TargetState.STARTED)) == 1
    assert WriteStatus(State.UNASSIGNED) in effects


@pytest.mark.parametrize("target", [TargetState.PAUSED, TargetState.STOPPED])
def test_a_connector_whose_start_was_put_off_rests_without_a_stop(target: TargetState) -> None:
    life, effects = run(*PUT_OFF, Asked(target))
    assert life == ConnectorLife(ConnectorPhase[target.value])
    assert effects[-2:] == [WriteStatus(State(target.value)), TargetReached(target)]
    assert ConnectorOrder.CALL_STOP not in effects


def test_a_connector_whose_start_was_put_off_ends_without_a_stop() -> None:
    life, effects = run(*PUT_OFF, ConnectorSignal.SHUTDOWN_ASKED)
    assert life == ConnectorLife(ConnectorPhase.CLOSED)
    assert ConnectorOrder.CALL_STOP not in effects


def test_an_error_raised_before_the_next_call_of_start_fails_it_and_answers_the_request() -> None:
    life, effects = run(*PUT_OFF, ConnectorRaised("t"))
    assert life == ConnectorLife(ConnectorPhase.FAILED)
    assert WriteStatus(State.FAILED, "t") in effects
    assert isinstance(effects[-1], TargetRefused)


def test_a_start_that_raises_an_error_in_two_ways_has_failed() -> None:
    life, effects = run(
        ConnectorSignal.INITIALIZE_DONE, Asked(TargetState.STARTED), ConnectorRaised("t"), ConnectorSignal.START_PUT_OFF
    )
    assert life == ConnectorLife(ConnectorPhase.FAILED)
    assert isinstance(effects[-1], TargetRefused)


def test_a_pair_that_cannot_happen_says_so() -> None:
    with pytest.raises(ValueError, match="no transition from NEW"):
        step(ConnectorLife(), ConnectorSignal.START_DONE)


@pytest.mark.parametrize("seed", range(200))
def test_random_lives_never_start_twice_nor_stop_what_is_not_started(seed: int) -> None:
    chance = random.Random(seed)
    life = ConnectorLife()
    started = closed = False
    pending: list[ConnectorEffect] = []
    life, _ = step(life, ConnectorSignal.INITIALIZE_DONE if chance.random() < 0.7 else CallFailed("init"))
    for _ in range(60):
        if pending:
            call = pending.pop(0)
            failed = chance.random() < 0.3
            event: ConnectorEvent
            if call is ConnectorOrder.CALL_START:
                assert not started
                started = not failed
                event = (
                    ConnectorSignal.START_DONE
                    if started
                    else ConnectorSignal.START_PUT_OFF
                    if chance.random() < 0.5
                    else CallFailed("t")
                )
            else:
                assert started
                started = False
                event = CallFailed("t") if failed else ConnectorSignal.STOP_DONE
            if chance.random() < 0.2:
                life, effects = step(life, ConnectorRaised("r"))
                assert not any(effect in (ConnectorOrder.CALL_START, ConnectorOrder.CALL_STOP) for effect in effects)
        elif life.phase is ConnectorPhase.CLOSED:
            closed = True
            assert not started
            break
        else:
            choices: list[ConnectorEvent] = [Asked(target) for target in TargetState]
            event = chance.choice([*choices, ConnectorRaised("r"), ConnectorSignal.SHUTDOWN_ASKED])
        life, effects = step(life, event)
        assert life.live == started
        pending += [effect for effect in effects if effect in (ConnectorOrder.CALL_START, ConnectorOrder.CALL_STOP)]
    assert closed or life.phase is not ConnectorPhase.CLOSED
