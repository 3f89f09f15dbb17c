"""The lifecycle of one runner of a task, source or sink, as a pure function.

``step(life, event) -> (life, effects)``: no thread, clock or I/O. The runner (``penstock.worker.task.engine``) holds a
``RunnerLife`` under its lock, feeds events from any thread, and performs the effects in order on that thread.
``penstock.worker.task.slot`` decides the status that the worker publishes from the reported states.

    NEW --> (HELD) --> PREPARING --> STARTING --> BETWEEN <--> WORKING, RESTING --> DRAINING --> CLOSING --> ENDED

The whole table is in ``docs/task-life.md``; a test compares it with this function.

Source: org.apache.kafka.connect.runtime.WorkerTask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.model.states import State


class RunnerPhase(Enum):
    """The phases of the task's thread; each value describes the phase."""

    NEW = "NEW"
    """Created. No method of the user's task was called, and `stop` will not be called."""
    HELD = "HELD"
    """Paused before `initialize`, because the connector is paused."""
    PREPARING = "PREPARING"
    """The runner prepares for `initialize`: a transactional id, a dead letter queue."""
    STARTING = "STARTING"
    """`initialize` and `start` are called. Afterwards `stop` will be called, once."""
    BETWEEN = "BETWEEN"
    """Started. The worker's own code runs between two calls of the task."""
    WORKING = "WORKING"
    """`poll`, or a round of a sink, is in progress."""
    RESTING = "RESTING"
    """Started, and paused."""
    DRAINING = "DRAINING"
    """The loop has ended. The runner finishes or abandons work in flight, then makes the last commit."""
    CLOSING = "CLOSING"
    """The task's `stop` was called, if needed; the runner releases the task's resources."""
    ENDED = "ENDED"
    """The end was reported, unless the task was cancelled."""


class TaskEnding(Enum):
    """The ways in which a task ends."""

    NO = "NO"
    """The task is not ending."""
    STOP = "STOP"
    """The worker requested the end. Errors are logged and not reported."""
    FAILURE = "FAILURE"
    """An error ended the task before any request."""
    CANCEL = "CANCEL"
    """The worker abandoned the task, which reports and commits nothing more. Invariant 4."""


class StopCall(Enum):
    """The progress of the one call of the task's `stop`."""

    NONE = "NONE"
    UNDER_WAY = "UNDER_WAY"
    RETURNED = "RETURNED"


class RunnerLife(NamedTuple):
    """The state.

    Attributes:
        paused: True if the task should pause.
        ending: The reason for its end.
        stop: The state of its `stop`.
        failure: The first error, even if it does not count.
    """

    phase: RunnerPhase = RunnerPhase.NEW
    paused: bool = False
    ending: TaskEnding = TaskEnding.NO
    stop: StopCall = StopCall.NONE
    failure: BaseException | None = None

    def at(self, phase: RunnerPhase) -> RunnerLife:
        made = self._replace(phase=phase)
        return next((one for one in (_BETWEEN_CALLS, _IN_CALL) if one == made), made)

    @property
    def is_ending(self) -> bool:
        """True if the task's loop must begin no further call."""
        return self.ending is not TaskEnding.NO

    @property
    def is_cancelled(self) -> bool:
        return self.ending is TaskEnding.CANCEL


#: The two states between which an undisturbed task alternates; see ``step``.
_BETWEEN_CALLS, _IN_CALL = RunnerLife(RunnerPhase.BETWEEN), RunnerLife(RunnerPhase.WORKING)


# ------------------------------------------------------------------ events
class RunnerSignal(Enum):
    """The events without data."""

    PROCEED = "Proceed"
    """The task's thread reached a point where it may rest or end, and requests its next phase."""
    STARTED = "Started"
    """The task's `start` has returned, and its stages run."""
    POLL_RETURNED = "PollReturned"
    """`poll` has returned or raised; another event reports the outcome."""
    DRAINED = "Drained"
    """No records are in flight any more, and the last commit is done."""
    STOP_RETURNED = "StopReturned"
    """The task's `stop` has returned or raised."""
    CLOSED = "Closed"
    """All resources of the task were released."""
    PAUSE_ASKED = "PauseAsked"
    """The worker requests a pause."""
    RESUME_ASKED = "ResumeAsked"
    """The worker requests a resume."""
    STOP_ASKED = "StopAsked"
    """The worker requests the end."""
    CANCEL_ASKED = "CancelAsked"
    """The task is abandoned."""
    POLL_OVERDUE = "PollOverdue"
    """`poll` has not returned some time after `wakeup`. If it is still running, another thread calls `stop`."""


@dataclass(frozen=True)
class TaskRaised:
    """The current work of the task's thread has raised an exception."""

    error: BaseException


@dataclass(frozen=True)
class Failed:
    """A stage, or something that the task needs, has failed."""

    error: BaseException


RunnerEvent = RunnerSignal | TaskRaised | Failed


# ------------------------------------------------------------------ effects
@dataclass(frozen=True)
class Report:
    """Report a state to the worker; FAILED comes with its error, after which the task may be created again."""

    state: State
    error: BaseException | None = None


class RunnerOrder(Enum):
    """The effects without data."""

    INTERRUPT = "Interrupt"
    """End the waits of the task's thread and of its stages that have become useless."""
    CALL_WAKEUP = "CallWakeup"
    """Call the task's `wakeup` from another thread, and feed `PollOverdue` some time later."""
    CALL_STOP = "CallStop"
    """Call the task's `stop`, on this thread."""
    AWAIT_STOP = "AwaitStop"
    """Wait for the call of `stop` in progress on another thread."""
    BEGIN_REST = "BeginRest"
    """Commit everything up to this point before the task pauses."""
    ABANDON = "Abandon"
    """Prevent all further commits, and abandon the work in flight. Invariant 4."""


@dataclass(frozen=True)
class LogFailure:
    """Write an error to the log; ``asked`` is the earlier request to the task."""

    error: BaseException
    asked: TaskEnding


RunnerEffect = RunnerOrder | Report | LogFailure
_Step = tuple[RunnerLife, Sequence[RunnerEffect]]

_NOTHING: Sequence[RunnerEffect] = ()
_IN_LOOP = frozenset({RunnerPhase.BETWEEN, RunnerPhase.WORKING, RunnerPhase.RESTING})
_BEFORE = frozenset({RunnerPhase.NEW, RunnerPhase.HELD, RunnerPhase.PREPARING})


def step(life: RunnerLife, event: RunnerEvent) -> _Step:
    """One transition.

    Raises:
        ValueError: the event is impossible in this phase.
    """
    # Two of these events come in each poll, so their results are precomputed, see ``at``.
    if life is _BETWEEN_CALLS and event is RunnerSignal.PROCEED:
        return _IN_CALL, _NOTHING
    if life is _IN_CALL and event is RunnerSignal.POLL_RETURNED:
        return _BETWEEN_CALLS, _NOTHING
    phase = life.phase
    match event:
        case RunnerSignal.PROCEED:
            return _proceed(life)
        case RunnerSignal.POLL_RETURNED if phase is RunnerPhase.WORKING:
            return life.at(RunnerPhase.BETWEEN), _NOTHING
        case RunnerSignal.STARTED if phase is RunnerPhase.STARTING:
            return life.at(RunnerPhase.BETWEEN), [] if life.is_ending else [Report(State.RUNNING)]
        case TaskRaised(error=error) if phase not in (RunnerPhase.CLOSING, RunnerPhase.ENDED):
            return _raised(life, error)
        case RunnerSignal.DRAINED if phase is RunnerPhase.DRAINING:
            return _closing(life)
        case RunnerSignal.STOP_RETURNED if life.stop is StopCall.UNDER_WAY:
            return life._replace(stop=StopCall.RETURNED), _NOTHING
        case RunnerSignal.CLOSED if phase is RunnerPhase.CLOSING:
            return life.at(RunnerPhase.ENDED), _last_words(life)
        case RunnerSignal.PAUSE_ASKED | RunnerSignal.RESUME_ASKED:
            return life._replace(paused=event is RunnerSignal.PAUSE_ASKED), _NOTHING
        case RunnerSignal.STOP_ASKED | RunnerSignal.CANCEL_ASKED | Failed() if phase is RunnerPhase.ENDED:
            return life, _NOTHING
        case RunnerSignal.STOP_ASKED:
            return (life, _NOTHING) if life.is_ending else (life._replace(ending=TaskEnding.STOP), _interrupted(life))
        case RunnerSignal.CANCEL_ASKED:
            if life.is_cancelled:
                return life, _NOTHING
            return life._replace(ending=TaskEnding.CANCEL), [RunnerOrder.ABANDON, *_interrupted(life)]
        case Failed(error=error):
            noted, told = _noted(life, error)
            return noted, [*told, *_interrupted(life)]
        case RunnerSignal.POLL_OVERDUE:
            if phase is RunnerPhase.WORKING and life.stop is StopCall.NONE:
                return life._replace(stop=StopCall.UNDER_WAY), [RunnerOrder.CALL_STOP]
            return life, _NOTHING
    raise ValueError(f"no transition from {life} on {event!r}")


def _proceed(life: RunnerLife) -> _Step:
    phase = life.phase
    if phase in _IN_LOOP:
        if life.is_ending:
            return life.at(RunnerPhase.DRAINING), _NOTHING
        rests = phase is RunnerPhase.RESTING
        if life.paused:
            begins: list[RunnerEffect] = [] if rests else [RunnerOrder.BEGIN_REST, Report(State.PAUSED)]
            return life.at(RunnerPhase.RESTING), begins
        return life.at(RunnerPhase.WORKING), [Report(State.RUNNING)] if rests else _NOTHING
    if phase not in _BEFORE:
        raise ValueError(f"no transition from {life} on {RunnerSignal.PROCEED!r}")
    if life.is_ending:
        return life.at(RunnerPhase.CLOSING), _NOTHING
    if phase is RunnerPhase.PREPARING:
        return life.at(RunnerPhase.STARTING), _NOTHING
    if life.paused:
        return life.at(RunnerPhase.HELD), [Report(State.PAUSED)] if phase is RunnerPhase.NEW else _NOTHING
    return life.at(RunnerPhase.PREPARING), _NOTHING


def _raised(life: RunnerLife, error: BaseException) -> _Step:
    """Handles an exception that ends the current call of the task's thread, so that no `wakeup` is needed."""
    noted, told = _noted(life, error)
    effects = [*told, *([] if life.is_ending else [RunnerOrder.INTERRUPT])]
    if life.phase in _BEFORE:
        return noted.at(RunnerPhase.CLOSING), effects
    if life.phase is RunnerPhase.STARTING:
        # Nothing was delivered, and the task's `commit` may not be ready for a call.
        closing, calls = _closing(noted)
        return closing, [*effects, *calls]
    return noted.at(RunnerPhase.DRAINING), effects


def _closing(life: RunnerLife) -> _Step:
    match life.stop:
        case StopCall.NONE:
            return life._replace(phase=RunnerPhase.CLOSING, stop=StopCall.UNDER_WAY), [RunnerOrder.CALL_STOP]
        case StopCall.UNDER_WAY:
            return life.at(RunnerPhase.CLOSING), [RunnerOrder.AWAIT_STOP]
    return life.at(RunnerPhase.CLOSING), _NOTHING


def _noted(life: RunnerLife, error: BaseException) -> _Step:
    """Notes an error: the first one counts, unless the end was requested before it."""
    if life.failure is not None:
        return life, _NOTHING
    ending = life.ending if life.is_ending else TaskEnding.FAILURE
    return life._replace(failure=error, ending=ending), [LogFailure(error, life.ending)]


def _interrupted(life: RunnerLife) -> list[RunnerEffect]:
    """Returns the effects of the task's end, once."""
    if life.is_ending:
        return []
    return [RunnerOrder.INTERRUPT, RunnerOrder.CALL_WAKEUP] if life.phase in _IN_LOOP else [RunnerOrder.INTERRUPT]


def _last_words(life: RunnerLife) -> list[RunnerEffect]:
    match life.ending:
        case TaskEnding.CANCEL:
            # Invariant 4: nothing is reported any more.
            return []
        case TaskEnding.FAILURE:
            return [Report(State.FAILED, life.failure)]
    return [Report(State.UNASSIGNED)]
