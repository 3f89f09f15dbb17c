"""The life of one connector instance as a pure function.

``step(state, event) -> (state, effects)``: no thread, clock or I/O. The connector's thread
(``penstock.worker.connector.runner``) feeds events and performs the effects in order.

    NEW --InitializeDone--> READY --Asked(STARTED)--> STARTING --StartDone--> RUNNING
    RUNNING --Asked(PAUSED|STOPPED)--> PAUSING|STOPPING --StopDone--> PAUSED|STOPPED --Asked(STARTED)--> STARTING
    any --error--> FAILED --Asked(STOPPED)--> STOPPED           any --ShutdownAsked--> (CLOSING) --> CLOSED

Source: org.apache.kafka.connect.runtime.WorkerConnector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from penstock.model.states import State, TargetState


class Phase(Enum):
    """The phases of an instance's lifecycle; each value describes the phase."""

    NEW = "NEW"
    """Constructed; ``initialize`` has not returned."""
    READY = "READY"
    """Initialized; waits for its first target state."""
    STARTING = "STARTING"
    """``start`` is running."""
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
    """An error ended it. ``stop`` is still owed when ``live`` is set."""
    CLOSING = "CLOSING"
    """``stop`` is running because the instance goes away."""
    CLOSED = "CLOSED"
    """The end: context closed, no more calls."""


@dataclass(frozen=True)
class ConnectorLife:
    """The state: the phase, and True if ``stop`` of the user's instance is still to be called."""

    phase: Phase = Phase.NEW
    live: bool = False


# ------------------------------------------------------------------ events
@dataclass(frozen=True)
class InitializeDone:
    """``initialize`` returned."""


@dataclass(frozen=True)
class Asked:
    """A user requested a target state."""

    target: TargetState


@dataclass(frozen=True)
class StartDone:
    """``start`` returned."""


@dataclass(frozen=True)
class StopDone:
    """``stop`` returned."""


@dataclass(frozen=True)
class CallFailed:
    """The user's method that was running raised."""

    trace: str


@dataclass(frozen=True)
class Raised:
    """The connector said so itself, through ``context.raise_error``."""

    trace: str


@dataclass(frozen=True)
class ShutdownAsked:
    """The instance is to end."""


ConnectorEvent = InitializeDone | Asked | StartDone | StopDone | CallFailed | Raised | ShutdownAsked


# ------------------------------------------------------------------ effects
@dataclass(frozen=True)
class CallStart:
    """Call the instance's ``start`` and report ``StartDone`` or ``CallFailed``."""


@dataclass(frozen=True)
class CallStop:
    """Call the instance's ``stop`` and report ``StopDone`` or ``CallFailed``."""


@dataclass(frozen=True)
class WriteStatus:
    """Publish a state."""

    state: State
    trace: str | None = None


@dataclass(frozen=True)
class Reached:
    """The requested target is reached: answer the request."""

    target: TargetState


@dataclass(frozen=True)
class Refused:
    """The requested target cannot be reached: answer the request."""

    reason: str


@dataclass(frozen=True)
class CloseContext:
    """Close the context and the offset reader; the thread ends."""


ConnectorEffect = CallStart | CallStop | WriteStatus | Reached | Refused | CloseContext

_RESTING = {TargetState.PAUSED: (Phase.PAUSED, State.PAUSED), TargetState.STOPPED: (Phase.STOPPED, State.STOPPED)}
_STOPPING_FOR = {TargetState.PAUSED: Phase.PAUSING, TargetState.STOPPED: Phase.STOPPING}


def step(life: ConnectorLife, event: ConnectorEvent) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    """One transition.

    Raises:
        ValueError: the pair of state and event cannot happen.
    """
    phase = life.phase
    if phase is Phase.CLOSED:
        # A late raise_error from the connector's own thread: the context is closed, and the error has no receiver.
        if isinstance(event, (Raised, ShutdownAsked)):
            return life, []
        raise ValueError(f"no transition from {phase.name} on {event!r}")
    match event:
        case InitializeDone() if phase is Phase.NEW:
            return replace(life, phase=Phase.READY), []
        case InitializeDone() if phase is Phase.FAILED:
            return life, []  # raise_error came during initialize
        case Asked(target=target):
            return _asked(life, target)
        case StartDone() if phase is Phase.STARTING:
            return (
                ConnectorLife(Phase.RUNNING, live=True),
                [WriteStatus(State.RUNNING), Reached(TargetState.STARTED)],
            )
        case StartDone() if phase is Phase.FAILED:
            # raise_error came during start; it won, but stop is owed now.
            return ConnectorLife(Phase.FAILED, live=True), [Refused("the connector raised an error while it started")]
        case StopDone():
            return _stop_ended(life, None)
        case CallFailed(trace=trace):
            return _call_failed(life, trace)
        case Raised(trace=trace):
            if phase in (Phase.FAILED, Phase.CLOSING):
                return life, []  # the first cause wins
            return replace(life, phase=Phase.FAILED), [WriteStatus(State.FAILED, trace)]
        case ShutdownAsked():
            if life.live and phase is not Phase.CLOSING:
                return replace(life, phase=Phase.CLOSING), [CallStop()]
            return ConnectorLife(Phase.CLOSED), [WriteStatus(State.UNASSIGNED), CloseContext()]
    raise ValueError(f"no transition from {phase.name} on {event!r}")


def _asked(life: ConnectorLife, target: TargetState) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    phase = life.phase
    if target is TargetState.STARTED:
        if phase is Phase.RUNNING:
            return life, [Reached(target)]
        if phase in (Phase.READY, Phase.PAUSED, Phase.STOPPED):
            return replace(life, phase=Phase.STARTING), [CallStart()]
        if phase is Phase.FAILED:
            return life, [Refused("the connector has failed; restart it or fix its configuration")]
    else:
        resting, state = _RESTING[target]
        if phase is resting:
            return life, [Reached(target)]
        if phase is Phase.RUNNING:
            return replace(life, phase=_STOPPING_FOR[target]), [CallStop()]
        if phase in (Phase.READY, Phase.PAUSED, Phase.STOPPED):
            return replace(life, phase=resting), [WriteStatus(state), Reached(target)]
        if phase is Phase.FAILED and target is TargetState.PAUSED:
            return life, [Refused("a failed connector cannot be paused; restart it or stop it")]
        if phase is Phase.FAILED:
            if life.live:
                return replace(life, phase=Phase.STOPPING), [CallStop()]
            return replace(life, phase=Phase.STOPPED), [WriteStatus(state), Reached(target)]
    raise ValueError(f"no transition from {phase.name} on {Asked(target)!r}")


def _stop_ended(life: ConnectorLife, trace: str | None) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    """``stop`` returned, or raised ``trace``. Either way it is not called again."""
    phase = life.phase
    if phase is Phase.CLOSING:
        last = WriteStatus(State.UNASSIGNED) if trace is None else WriteStatus(State.FAILED, trace)
        return ConnectorLife(Phase.CLOSED), [last, CloseContext()]
    if phase is Phase.STOPPING:
        # A stop request ends in STOPPED even when the connector's own stop fails (it is logged).
        return ConnectorLife(Phase.STOPPED), [WriteStatus(State.STOPPED), Reached(TargetState.STOPPED)]
    if phase is Phase.PAUSING and trace is None:
        return ConnectorLife(Phase.PAUSED), [WriteStatus(State.PAUSED), Reached(TargetState.PAUSED)]
    if phase is Phase.PAUSING:
        return ConnectorLife(Phase.FAILED), [WriteStatus(State.FAILED, trace), Refused("the connector's stop failed")]
    if phase is Phase.FAILED:
        # raise_error came while stop was running.
        return ConnectorLife(Phase.FAILED), [Refused("the connector raised an error while it stopped")]
    raise ValueError(f"no transition from {phase.name} at the end of stop")


def _call_failed(life: ConnectorLife, trace: str) -> tuple[ConnectorLife, list[ConnectorEffect]]:
    phase = life.phase
    if phase in (Phase.PAUSING, Phase.STOPPING, Phase.CLOSING):
        return _stop_ended(life, trace)
    if phase is Phase.NEW:
        return ConnectorLife(Phase.FAILED), [WriteStatus(State.FAILED, trace)]
    if phase is Phase.STARTING:
        return ConnectorLife(Phase.FAILED), [WriteStatus(State.FAILED, trace), Refused("the connector's start failed")]
    if phase is Phase.FAILED:
        # The call was in progress when raise_error came: the first cause stays. stop is not tried twice.
        return ConnectorLife(Phase.FAILED), [Refused("the connector has failed")]
    raise ValueError(f"no transition from {phase.name} on a failed call")
