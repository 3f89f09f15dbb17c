"""The life of one task as its worker sees it, as a pure function.

``step(state, event) -> (state, effects)``. The worker feeds its requests to a task and the reports of the task's
runner; the effects are the statuses to publish. It keeps late reports of a cancelled or stopped task out of the status.

Source: org.apache.kafka.connect.runtime.WorkerTask.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.model.states import State


class TaskPhase(Enum):
    """The phases of a task's lifecycle; each value describes the phase."""

    BUILDING = "BUILDING"
    """Its converters, transforms and clients are being made."""
    STARTING = "STARTING"
    """Its thread runs; it has not said RUNNING or PAUSED yet."""
    RUNNING = "RUNNING"
    """It moves records, or would if there were any."""
    PAUSED = "PAUSED"
    """It rests by request and keeps its resources."""
    FAILED = "FAILED"
    """It ended by an error."""
    STOPPING = "STOPPING"
    """It was asked to end and has not ended yet."""
    ENDED = "ENDED"
    """It ended as asked."""
    CANCELLED = "CANCELLED"
    """It missed its deadline and was abandoned; nothing it says counts any more."""


@dataclass(frozen=True)
class Built:
    """The runner exists and its thread starts."""


@dataclass(frozen=True)
class Reports:
    """The runner reports a state."""

    state: State
    trace: str | None = None


@dataclass(frozen=True)
class TaskStopAsked:
    """The worker asks the task to end."""


@dataclass(frozen=True)
class TaskCancelAsked:
    """The worker abandons the task."""


TaskEvent = Built | Reports | TaskStopAsked | TaskCancelAsked


@dataclass(frozen=True)
class BuildAgain:
    """Replace the runner, which has ended, by another one."""


@dataclass(frozen=True)
class PublishStatus:
    """Report to the herder."""

    state: State
    trace: str | None = None


TaskEffect = PublishStatus | BuildAgain

_PHASE_OF = {State.RUNNING: TaskPhase.RUNNING, State.PAUSED: TaskPhase.PAUSED, State.FAILED: TaskPhase.FAILED}
_ALIVE = {TaskPhase.BUILDING, TaskPhase.STARTING, TaskPhase.RUNNING, TaskPhase.PAUSED}


def step(phase: TaskPhase, event: TaskEvent) -> tuple[TaskPhase, list[TaskEffect]]:
    """One transition.

    Raises:
        ValueError: the pair of phase and event cannot happen.
    """
    match event:
        case TaskCancelAsked():
            return TaskPhase.CANCELLED, []
        # Invariant 4: the reports of a cancelled task do not count.
        case _ if phase is TaskPhase.CANCELLED:
            return phase, []
        case Built():
            if phase is TaskPhase.BUILDING:
                return TaskPhase.STARTING, []
            if phase is TaskPhase.STOPPING:
                return phase, []
        case TaskStopAsked():
            if phase in _ALIVE:
                return TaskPhase.STOPPING, []
            return phase, []
        case Reports(state=state, trace=trace):
            return _reported(phase, state, trace)
    raise ValueError(f"no transition from {phase.name} on {event!r}")


def _reported(phase: TaskPhase, state: State, trace: str | None) -> tuple[TaskPhase, list[TaskEffect]]:
    if phase in (TaskPhase.FAILED, TaskPhase.ENDED):
        return phase, []  # the end of the thread after its failure was reported
    if state is State.UNASSIGNED:
        return TaskPhase.ENDED, [PublishStatus(State.UNASSIGNED)]
    if phase is TaskPhase.STOPPING:
        # An error after stop was asked is logged by the runner; the status is that of a task that ended.
        ended = state in (State.FAILED, State.RESTARTING)
        return (TaskPhase.ENDED, [PublishStatus(State.UNASSIGNED)]) if ended else (phase, [])
    if state is State.RESTARTING:
        return TaskPhase.BUILDING, [PublishStatus(state, trace), BuildAgain()]
    if state in _PHASE_OF:
        return _PHASE_OF[state], [PublishStatus(state, trace)]
    raise ValueError(f"a task in {phase.name} cannot report {state.name}")
