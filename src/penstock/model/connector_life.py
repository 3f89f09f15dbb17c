"""The lifecycle of one connector instance as a pure function.

``step(state, event) -> (state, effects)``: no thread, clock or I/O. The connector's thread
(``penstock.worker.connector_runner``) feeds events and performs the effects in order.

    NEW --InitializeDone--> READY --Asked(STARTED)--> STARTING --StartDone--> RUNNING
    STARTING --StartPutOff--> WAITING --Asked(STARTED)--> STARTING     WAITING --Asked(PAUSED|STOPPED)--> that
    RUNNING --Asked(PAUSED|STOPPED)--> PAUSING|STOPPING --StopDone--> PAUSED|STOPPED --Asked(STARTED)--> STARTING
    any --error--> FAILED --Asked(STOPPED)--> STOPPED           any --ShutdownAsked--> (CLOSING) --> CLOSED

Source: org.apache.kafka.connect.runtime.WorkerConnector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from penstock.model.states import State, TargetState


class ConnectorPhase(Enum):
    """The phases of an instance's lifecycle; each value describes the phase."""

    NEW = "NEW"
    """Constructed; ``initialize`` has not returned."""
    READY = "READY"
    """Initialized; waits for its first target state."""
    STARTING = "STARTING"
    """``start`` is running."""
    WAITING = "WAITING"
    """``start`` asked to be called again, and the wait before the next call is not over."""
    RUNNING = "RUNNING"
    """``start`` has returned and ``stop`` was not called since."""
    PAUSING = "PAUSING"
    """``stop`` is running because of a pause."""
    STOPPING = "STOPPING"
    """``stop`` is running because of a stop request."""
    PAUSED = "PAUSED"
    """Not started, by request; tasks stay."""
    STOPPED = "STOPPED"
    """Not started, by request; tasks are gone."""
    FAILED = "FAILED"
    """An error ended the instance. ``stop`` must still be called if ``live`` is set."""
    CLOSING = "CLOSING"
    """``stop`` is running because the instance ends."""
    CLOSED = "CLOSED"
    """The end: context closed, no more calls."""


@dataclass(frozen=True)
class ConnectorLife:
    """The state: the phase, and True if ``stop`` of the user's instance must still be called."""

    phase: ConnectorPhase = ConnectorPhase.NEW
    live: bool = False


# ------------------------------------------------------------------ events
class ConnectorSignal(Enum):
    """The events without data."""

    INITIALIZE_DONE = "InitializeDone"
    """``initialize`` returned."""
    START_DONE = "StartDone"
    """``start`` returned."""
    START_PUT_OFF = "StartPutOff"
    """``start`` raised an error that asks for another call; ``Asked(STARTED)`` repeats it."""
    STOP_DONE = "StopDone"
    """``stop`` returned."""
    SHUTDOWN_ASKED = "ShutdownAsked"
    """The worker requested the end of the instance."""


@dataclass(frozen=True)
class Asked:
    """A user requested a target state."""

    target: TargetState


@dataclass(frozen=True)
class CallFailed:
    """The running method of the user raised an exception."""

    trace: str


@dataclass(frozen=True)
class ConnectorRaised:
    """The connector reported an error through ``context.raise_error``."""

    trace: str


ConnectorEvent = ConnectorSignal | Asked | CallFailed | ConnectorRaised


# ------------------------------------------------------------------ effects
class ConnectorOrder(Enum):
    """The effects without data."""

    CALL_START = "CallStart"
    """Call the instance's ``start`` and report ``StartDone`` or ``CallFailed``."""
    CALL_STOP = "CallStop"
    """Call the instance's ``stop`` and report ``StopDone`` or ``CallFailed``."""
    CLOSE_CONTEXT = "CloseContext"
    """Close the context and the offset reader; the thread ends."""


@dataclass(frozen=True)
class WriteStatus:
    """Publish a state."""

    state: State
    trace: str | None = None


@dataclass(frozen=True)
class TargetReached:
    """The requested target is reached: answer the request."""

    target: TargetState


@dataclass(frozen=True)
class TargetRefused:
    """The requested target cannot be reached: answer the request."""

    reason: str


ConnectorEffect = ConnectorOrder | WriteStatus | TargetReached | TargetRefused

_RESTING = {
    TargetState.PAUSED: (ConnectorPhase.PAUSED, State.PAUSED),
    TargetState.STOPPED: (ConnectorPhase.STOPPED, State.STOPPED),
}
#: The phases in which nothing runs and ``stop`` need not be called.
_IDLE = (ConnectorPhase.READY, ConnectorPhase.WAITING, ConnectorPhase.PAUSED, ConnectorPhase.STOPPED)
_STOPPING_FOR = {TargetState.PAUSED: ConnectorPhase.PAUSING, TargetState.STOPPED: ConnectorPhase.STOPPING}


def step(life: ConnectorLife, event: ConnectorEvent) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    """One transition.

    Raises:
        ValueError: the event is impossible in this state.
    """
    phase = life.phase
    if phase is ConnectorPhase.CLOSED:
        # A late raise_error from the connector's own thread: the context is closed, so the error is dropped.
        if isinstance(event, ConnectorRaised) or event is ConnectorSignal.SHUTDOWN_ASKED:
            return life, []
        raise ValueError(f"no transition from {phase.name} on {event!r}")
    match event:
        case ConnectorSignal.INITIALIZE_DONE if phase is ConnectorPhase.NEW:
            return replace(life, phase=ConnectorPhase.READY), []
        case ConnectorSignal.INITIALIZE_DONE if phase is ConnectorPhase.FAILED:
            return life, []  # raise_error came during initialize
        case Asked(target=target):
            return _asked(life, target)
        case ConnectorSignal.START_DONE if phase is ConnectorPhase.STARTING:
            return (
                ConnectorLife(ConnectorPhase.RUNNING, live=True),
                [WriteStatus(State.RUNNING), TargetReached(TargetState.STARTED)],
            )
        case ConnectorSignal.START_DONE if phase is ConnectorPhase.FAILED:
            # raise_error came during start and counts, but stop must be called now.
            return ConnectorLife(ConnectorPhase.FAILED, live=True), [
                TargetRefused("the connector raised an error while it started")
            ]
        case ConnectorSignal.START_PUT_OFF if phase is ConnectorPhase.STARTING:
            return ConnectorLife(ConnectorPhase.WAITING), [WriteStatus(State.UNASSIGNED)]
        case ConnectorSignal.START_PUT_OFF if phase is ConnectorPhase.FAILED:
            return life, [TargetRefused("the connector raised an error while it started")]
        case ConnectorSignal.STOP_DONE:
            return _stop_ended(life, None)
        case CallFailed(trace=trace):
            return _call_failed(life, trace)
        case ConnectorRaised(trace=trace):
            if phase in (ConnectorPhase.FAILED, ConnectorPhase.CLOSING):
                return life, []  # the first cause wins
            failed: list[ConnectorEffect] = [WriteStatus(State.FAILED, trace)]
            if phase is ConnectorPhase.WAITING:
                # No call in progress will answer the request when it ends.
                failed.append(TargetRefused("the connector raised an error before its start was called again"))
            return replace(life, phase=ConnectorPhase.FAILED), failed
        case ConnectorSignal.SHUTDOWN_ASKED:
            if life.live and phase is not ConnectorPhase.CLOSING:
                return replace(life, phase=ConnectorPhase.CLOSING), [ConnectorOrder.CALL_STOP]
            return ConnectorLife(ConnectorPhase.CLOSED), [WriteStatus(State.UNASSIGNED), ConnectorOrder.CLOSE_CONTEXT]
    raise ValueError(f"no transition from {phase.name} on {event!r}")


def _asked(life: ConnectorLife, target: TargetState) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    phase = life.phase
    if target is TargetState.STARTED:
        if phase is ConnectorPhase.RUNNING:
            return life, [TargetReached(target)]
        if phase in _IDLE:
            return replace(life, phase=ConnectorPhase.STARTING), [ConnectorOrder.CALL_START]
        if phase is ConnectorPhase.FAILED:
            return life, [TargetRefused("the connector has failed; restart it or fix its configuration")]
    else:
        resting, state = _RESTING[target]
        if phase is resting:
            return life, [TargetReached(target)]
        if phase is ConnectorPhase.RUNNING:
            return replace(life, phase=_STOPPING_FOR[target]), [ConnectorOrder.CALL_STOP]
        if phase in _IDLE:
            return replace(life, phase=resting), [WriteStatus(state), TargetReached(target)]
        if phase is ConnectorPhase.FAILED and target is TargetState.PAUSED:
            return life, [TargetRefused("a failed connector cannot be paused; restart it or stop it")]
        if phase is ConnectorPhase.FAILED:
            if life.live:
                return replace(life, phase=ConnectorPhase.STOPPING), [ConnectorOrder.CALL_STOP]
            return replace(life, phase=ConnectorPhase.STOPPED), [WriteStatus(state), TargetReached(target)]
    raise ValueError(f"no transition from {phase.name} on {Asked(target)!r}")


def _stop_ended(life: ConnectorLife, trace: str | None) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    """Handles the end of ``stop``, which raised ``trace`` unless None; it is not called again in either case."""
    phase = life.phase
    if phase is ConnectorPhase.CLOSING:
        last = WriteStatus(State.UNASSIGNED) if trace is None else WriteStatus(State.FAILED, trace)
        return ConnectorLife(ConnectorPhase.CLOSED), [last, ConnectorOrder.CLOSE_CONTEXT]
    if phase is ConnectorPhase.STOPPING:
        # A stop request ends in STOPPED even if the connector's own stop fails (which is logged).
        return ConnectorLife(ConnectorPhase.STOPPED), [WriteStatus(State.STOPPED), TargetReached(TargetState.STOPPED)]
    if phase is ConnectorPhase.PAUSING and trace is None:
        return ConnectorLife(ConnectorPhase.PAUSED), [WriteStatus(State.PAUSED), TargetReached(TargetState.PAUSED)]
    if phase is ConnectorPhase.PAUSING:
        return ConnectorLife(ConnectorPhase.FAILED), [
            WriteStatus(State.FAILED, trace),
            TargetRefused("the connector's stop failed"),
        ]
    if phase is ConnectorPhase.FAILED:
        # raise_error came while stop was running.
        return ConnectorLife(ConnectorPhase.FAILED), [TargetRefused("the connector raised an error while it stopped")]
    raise ValueError(f"no transition from {phase.name} at the end of stop")


def _call_failed(life: ConnectorLife, trace: str) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    phase = life.phase
    if phase in (ConnectorPhase.PAUSING, ConnectorPhase.STOPPING, ConnectorPhase.CLOSING):
        return _stop_ended(life, trace)
    if phase is ConnectorPhase.NEW:
        return ConnectorLife(ConnectorPhase.FAILED), [WriteStatus(State.FAILED, trace)]
    if phase is ConnectorPhase.STARTING:
        return ConnectorLife(ConnectorPhase.FAILED), [
            WriteStatus(State.FAILED, trace),
            TargetRefused("the connector's start failed"),
        ]
    if phase is ConnectorPhase.FAILED:
        # The call was in progress when raise_error came: the first error counts. stop is not called twice.
        return ConnectorLife(ConnectorPhase.FAILED), [TargetRefused("the connector has failed")]
    raise ValueError(f"no transition from {phase.name} on a failed call")
