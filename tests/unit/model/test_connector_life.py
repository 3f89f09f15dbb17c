"""The life of a connector, transition by transition and under random events."""

import random

import pytest

from penstock.model import State, TargetState
from penstock.model.connector_life import (
    Asked,
    CallConnectorStart,
    CallConnectorStop,
    CallFailed,
    CloseContext,
    ConnectorEffect,
    ConnectorEvent,
    ConnectorLife,
    ConnectorPhase,
    ConnectorRaised,
    InitializeDone,
    ShutdownAsked,
    StartDone,
    StartPutOff,
    StopDone,
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


STARTED = (InitializeDone(), Asked(TargetState.STARTED), StartDone())


def test_a_connector_starts_after_initialize() -> None:
    life, effects = run(*STARTED)
    assert life == ConnectorLife(ConnectorPhase.RUNNING, live=True)
    assert effects == [CallConnectorStart(), WriteStatus(State.RUNNING), TargetReached(TargetState.STARTED)]


def test_a_connector_that_begins_paused_is_not_started() -> None:
    life, effects = run(InitializeDone(), Asked(TargetState.PAUSED))
    assert life == ConnectorLife(ConnectorPhase.PAUSED)
    assert effects == [WriteStatus(State.PAUSED), TargetReached(TargetState.PAUSED)]


def test_pause_and_resume_stop_and_start_the_same_instance() -> None:
    _, effects = run(*STARTED, Asked(TargetState.PAUSED), StopDone(), Asked(TargetState.STARTED), StartDone())
    assert [effect for effect in effects if isinstance(effect, (CallConnectorStart, CallConnectorStop))] == [
        CallConnectorStart(),
        CallConnectorStop(),
        CallConnectorStart(),
    ]


def test_stopping_a_paused_connector_does_not_call_stop_again() -> None:
    life, effects = run(*STARTED, Asked(TargetState.PAUSED), StopDone(), Asked(TargetState.STOPPED))
    assert life == ConnectorLife(ConnectorPhase.STOPPED)
    assert effects.count(CallConnectorStop()) == 1


def test_a_failing_stop_is_a_failed_pause_but_a_reached_stop() -> None:
    paused, effects = run(*STARTED, Asked(TargetState.PAUSED), CallFailed("t"))
    assert paused == ConnectorLife(ConnectorPhase.FAILED)
    assert WriteStatus(State.FAILED, "t") in effects
    stopped, effects = run(*STARTED, Asked(TargetState.STOPPED), CallFailed("t"))
    assert stopped == ConnectorLife(ConnectorPhase.STOPPED)
    assert effects[-1] == TargetReached(TargetState.STOPPED)


def test_only_a_stop_leads_out_of_a_failure() -> None:
    failed = (InitializeDone(), Asked(TargetState.STARTED), CallFailed("t"))
    for target in (TargetState.STARTED, TargetState.PAUSED):
        life, effects = run(*failed, Asked(target))
        assert life.phase is ConnectorPhase.FAILED
        assert isinstance(effects[-1], TargetRefused)
    life, _ = run(*failed, Asked(TargetState.STOPPED), Asked(TargetState.STARTED), StartDone())
    assert life.phase is ConnectorPhase.RUNNING


def test_an_error_raised_by_a_started_connector_still_owes_it_a_stop() -> None:
    life, effects = run(*STARTED, ConnectorRaised("first"), ConnectorRaised("second"), ShutdownAsked(), StopDone())
    assert life == ConnectorLife(ConnectorPhase.CLOSED)
    assert [effect.trace for effect in effects if isinstance(effect, WriteStatus)] == [None, "first", None]
    assert effects[-3:] == [CallConnectorStop(), WriteStatus(State.UNASSIGNED), CloseContext()]


def test_a_shutdown_whose_stop_fails_ends_failed() -> None:
    _, effects = run(*STARTED, ShutdownAsked(), CallFailed("t"))
    assert effects[-2:] == [WriteStatus(State.FAILED, "t"), CloseContext()]


PUT_OFF = (InitializeDone(), Asked(TargetState.STARTED), StartPutOff())


def test_a_start_that_was_put_off_is_called_again() -> None:
    life, effects = run(*PUT_OFF, Asked(TargetState.STARTED), StartPutOff(), Asked(TargetState.STARTED), StartDone())
    assert life == ConnectorLife(ConnectorPhase.RUNNING, live=True)
    assert effects.count(CallConnectorStart()) == 3
    assert effects.count(TargetReached(TargetState.STARTED)) == 1
    assert WriteStatus(State.UNASSIGNED) in effects


@pytest.mark.parametrize("target", [TargetState.PAUSED, TargetState.STOPPED])
def test_a_connector_whose_start_was_put_off_rests_without_a_stop(target: TargetState) -> None:
    life, effects = run(*PUT_OFF, Asked(target))
    assert life == ConnectorLife(ConnectorPhase[target.value])
    assert effects[-2:] == [WriteStatus(State(target.value)), TargetReached(target)]
    assert CallConnectorStop() not in effects


def test_a_connector_whose_start_was_put_off_ends_without_a_stop() -> None:
    life, effects = run(*PUT_OFF, ShutdownAsked())
    assert life == ConnectorLife(ConnectorPhase.CLOSED)
    assert CallConnectorStop() not in effects


def test_an_error_raised_before_the_next_call_of_start_fails_it_and_answers_the_request() -> None:
    life, effects = run(*PUT_OFF, ConnectorRaised("t"))
    assert life == ConnectorLife(ConnectorPhase.FAILED)
    assert WriteStatus(State.FAILED, "t") in effects
    assert isinstance(effects[-1], TargetRefused)


def test_a_start_that_raises_an_error_in_two_ways_has_failed() -> None:
    life, effects = run(InitializeDone(), Asked(TargetState.STARTED), ConnectorRaised("t"), StartPutOff())
    assert life == ConnectorLife(ConnectorPhase.FAILED)
    assert isinstance(effects[-1], TargetRefused)


def test_a_pair_that_cannot_happen_says_so() -> None:
    with pytest.raises(ValueError, match="no transition from NEW"):
        step(ConnectorLife(), StartDone())


@pytest.mark.parametrize("seed", range(200))
def test_random_lives_never_start_twice_nor_stop_what_is_not_started(seed: int) -> None:
    chance = random.Random(seed)
    life = ConnectorLife()
    started = closed = False
    pending: list[ConnectorEffect] = []
    life, _ = step(life, InitializeDone() if chance.random() < 0.7 else CallFailed("init"))
    for _ in range(60):
        if pending:
            call = pending.pop(0)
            failed = chance.random() < 0.3
            event: ConnectorEvent
            if isinstance(call, CallConnectorStart):
                assert not started
                started = not failed
                event = StartDone() if started else StartPutOff() if chance.random() < 0.5 else CallFailed("t")
            else:
                assert started
                started = False
                event = CallFailed("t") if failed else StopDone()
            if chance.random() < 0.2:
                life, effects = step(life, ConnectorRaised("r"))
                assert not any(isinstance(effect, (CallConnectorStart, CallConnectorStop)) for effect in effects)
        elif life.phase is ConnectorPhase.CLOSED:
            closed = True
            assert not started
            break
        else:
            choices: list[ConnectorEvent] = [Asked(target) for target in TargetState]
            event = chance.choice([*choices, ConnectorRaised("r"), ShutdownAsked()])
        life, effects = step(life, event)
        assert life.live == started
        pending += [effect for effect in effects if isinstance(effect, (CallConnectorStart, CallConnectorStop))]
    assert closed or life.phase is not ConnectorPhase.CLOSED
