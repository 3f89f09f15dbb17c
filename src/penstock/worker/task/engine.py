"""The life of one task, the same for sources and sinks: its thread, its lock, what it reports and how it ends.

Main type: ``TaskEngine``, which ``SourceTaskRunner`` and ``SinkTaskRunner`` fill in. What may happen when is decided by
the pure machine of ``penstock.model.runner_life``; the engine feeds it and performs its effects. ``state_after`` says
what follows when a task has ended by an error: it is FAILED, or made anew at its committed offsets, as after a
``TransactionLostException``.

Threads: ``task-<id>``, owned here, makes every call of the user's task, but for ``wakeup`` and the ``stop`` of a task
whose ``poll`` does not return. The public methods come from any thread and return at once, except ``join``.

Source: WorkerTask of Kafka Connect.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar

from penstock.api import Task
from penstock.errors import (
    ConnectException,
    FencedInstanceIdException,
    SparkSessionLostException,
    SparkStoppedException,
    SparkUnavailableException,
    stack_trace,
)
from penstock.model import State
from penstock.model.progress import Progress
from penstock.model.runner_life import (
    Abandon,
    AwaitStop,
    BeginRest,
    CallStop,
    CallWakeup,
    CancelAsked,
    Closed,
    Drained,
    Ending,
    Failed,
    Interrupt,
    LogFailure,
    PauseAsked,
    Phase,
    PollReturned,
    Proceed,
    Raised,
    Report,
    ResumeAsked,
    RunnerEffect,
    RunnerEvent,
    RunnerLife,
    Started,
    StopAsked,
    StopCall,
    StopReturned,
    step,
)
from penstock.telemetry import log_context, waiting_for
from penstock.threads import OwnedThread, StopEvent
from penstock.worker.errors.reporters import ErrorCounts
from penstock.worker.task.retries import Retries, asks_again
from penstock.worker.task.spec import TaskServices, TaskSpec


class TransactionLostException(ConnectException):
    """The open transaction of a source task can never be committed; its records have to be read again.

    Args:
        message: What has happened, and what to do if it happens again and again.
        outside: Whether what lies outside of the task is the cause: brokers that do not answer. Then the task is made
            anew as often as it takes.
    """

    def __init__(self, message: str, *, outside: bool = False) -> None:
        super().__init__(message)
        self.outside = outside


class StartPutOffException(ConnectException):
    """The task was paused while its ``start`` waited to be called again: it is made anew, and rests."""


def state_after(error: BaseException, *, shares_id: bool = False) -> State:
    """Returns the state of a task that ended by an error: FAILED, or about to start again.

    Args:
        error: The error.
        shares_id: Whether the workers of a group have one static member id for the task. A worker that was frozen may
            join with it when it wakes, and fence the task where it runs by now; its group tells it a moment later.
    """
    again = isinstance(error, SparkSessionLostException | TransactionLostException | StartPutOffException)
    fenced = shares_id and isinstance(error, FencedInstanceIdException)
    return State.RESTARTING if again or fenced else State.FAILED


logger = logging.getLogger(__name__)

TaskT = TypeVar("TaskT", bound=Task)

#: Fed at each round.
_PROCEED: Final = Proceed()
_TURNS: Final = frozenset({Proceed, PollReturned})
_GOES_ON: Final = Ending.NO


class TaskEngine(ABC, Generic[TaskT]):
    """One task, from start to end.

    Args:
        spec: The task and its settings.
        services: What its worker gives it. A cancelled task reports nothing more.
    """

    def __init__(self, spec: TaskSpec[TaskT], services: TaskServices) -> None:
        self.id = spec.id
        self._spec = spec
        self._services = services
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # Replaced as a whole under the lock; any thread may read it.
        self._life = RunnerLife(paused=spec.paused)
        #: Set when the task is to end, for its context and for waits.
        self._stopping = StopEvent()
        self._round_began = time.monotonic()
        #: Calls of the task that asked to be made again.
        self.retries = Retries(spec.id, self._retry_reason, spec.backoff)
        #: How far the task says that it is.
        self._progress: Progress | None = None
        self._thread = OwnedThread(f"task-{spec.id}", self._run)

    # ---------------------------------------------------------------- any thread
    @property
    def error_counts(self) -> ErrorCounts:
        """Failed records."""
        return self._services.errors.counts

    def _set_progress(self, progress: Progress | None) -> None:
        """The task says how far it is. Thread: any."""
        self._progress = progress

    def start(self) -> None:
        """Start the task's thread."""
        self._thread.start()

    def pause(self) -> None:
        """Rest after the call that is under way; what was polled is still delivered, a sink stays in its group."""
        self._feed(PauseAsked())

    def resume(self) -> None:
        """Go on."""
        self._feed(ResumeAsked())

    def stop(self) -> None:
        """Finish what is in flight within ``offset.flush.timeout.ms``, commit, end."""
        self._feed(StopAsked())

    def fail(self, error: BaseException) -> None:
        """End with an error that is not the task's own call's, as FAILED; the first error counts."""
        self._feed(Failed(error))

    def cancel(self) -> None:
        """Abandon the task: it commits and reports nothing more. Invariant 4."""
        self._feed(CancelAsked())
        self.retries.ended()
        self._services.abandoned()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the task; False when it has not ended in time."""
        return self._thread.join(timeout_s)

    # ---------------------------------------------------------------- what a source or a sink does
    #: What ``explain`` calls a task that asked for a call again.
    _retry_reason: ClassVar[str]

    @abstractmethod
    def _prepare(self) -> None:
        """Make ready what `initialize` needs; may block until the task is to end."""

    @abstractmethod
    def _start(self) -> None:
        """Call the task's `initialize` and `start`, and start the other stages."""

    @abstractmethod
    def _round(self, *, resting: bool) -> None:
        """Make one call of the task's loop, or rest until something changes."""

    @abstractmethod
    def _drain(self) -> None:
        """Finish what is under way, or give it up, and make the last commit."""

    @abstractmethod
    def _release(self) -> None:
        """Let go what the task used, ``services.close`` included."""

    @abstractmethod
    def _interrupt(self) -> None:
        """The end has come: limit the waits of all stages. Thread: any."""

    @abstractmethod
    def _abandon(self) -> None:
        """See to it that nothing more is committed. Thread: any. Invariant 4."""

    def _begin_rest(self) -> None:
        """The task is about to rest."""

    def _wake(self) -> None:
        """Have the task's `wakeup` called, on another thread. Thread: any."""

    def _state_after(self, error: BaseException) -> State:
        """Returns the state that follows an error: FAILED, or a new start."""
        return state_after(error)

    # ---------------------------------------------------------------- the task's thread
    def _run(self) -> None:
        with log_context(self.id.connector, self.id.task):
            self._raising(self._live)
            if self._life.phase is Phase.DRAINING:
                self._raising(self._drain)
                self._feed(Drained())
            self._quietly("releasing what it used", self._release)
            self.retries.ended()
            self._services.metrics.close()
            self._feed(Closed())

    def _live(self) -> None:
        while self._feed(_PROCEED).phase is Phase.HELD:
            self._rest()
        if self._life.phase is not Phase.PREPARING:
            return
        self._prepare()
        if self._feed(_PROCEED).phase is not Phase.STARTING:
            return
        self._round_began = time.monotonic()
        self._start()
        self._feed(Started())
        self._loop()

    def _loop(self) -> None:
        while (phase := self._feed(_PROCEED).phase) is not Phase.DRAINING:
            self._round_began = time.monotonic()
            self._round(resting=phase is Phase.RESTING)

    def _call_start(self) -> None:
        """Call the task's `start`, again where it asks for that."""
        while True:
            try:
                self._spec.task.start(dict(self._spec.config))
            except Exception as error:
                if not asks_again(error) or isinstance(error, SparkUnavailableException) or self._life.is_ending:
                    raise
                self._await_retry("start", error)
                if self._life.is_ending:
                    raise
                if self._life.paused:
                    raise StartPutOffException(
                        f"its start() has asked to be called again, and it is paused meanwhile ({error})"
                    ) from error
            else:
                self.retries.succeeded()
                return

    def _await_retry(self, call: str, error: Exception) -> None:
        """Wait until a call is to be made again; less long where the task is paused or to end."""
        delay_s = self.retries.failed(call, error)
        with waiting_for(self._retry_reason), self._changed:
            self._changed.wait_for(lambda: self._life.paused or self._life.is_ending, delay_s)

    def _rest(self) -> None:
        """Wait until the task is not paused any more, or is to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._life.paused or self._life.is_ending)

    def _raising(self, call: Callable[[], None]) -> None:
        """Makes a call whose exception ends the task."""
        try:
            call()
        except BaseException as error:
            self._feed(Raised(self._services.session.named(error)))

    def _quietly(self, what: str, call: Callable[[], object]) -> None:
        """Makes a call whose exception, ``sys.exit`` included, is logged, and does not prevent what follows."""
        try:
            call()
        except BaseException:
            logger.exception("An error in %s of task %s", what, self.id)

    # ---------------------------------------------------------------- events and effects, on any thread
    def _feed(self, event: RunnerEvent) -> RunnerLife:
        """Take an event and do what follows from it; the life behind it."""
        with self._lock:
            life, effects = step(self._life, event)
            self._life = life
            # Who waits is woken by what was asked and at the end, not at each turn of the loop.
            if life.ending is not _GOES_ON or type(event) not in _TURNS:
                self._changed.notify_all()
        for effect in effects:
            self._perform(effect)
        return life

    def _perform(self, effect: RunnerEffect) -> None:
        match effect:
            case Report(state=state, error=None):
                self._services.report(state, None)
            case Report(error=BaseException() as error):
                self._services.report(self._state_after(error), stack_trace(error))
            case Interrupt():
                self._interrupt()
                self._stopping.set()
                self._services.session.end()
            case CallWakeup():
                self._wake()
            case CallStop():
                self._quietly("the task's stop()", self._spec.task.stop)
                self._feed(StopReturned())
            case AwaitStop():
                with self._changed:
                    self._changed.wait_for(lambda: self._life.stop is StopCall.RETURNED)
            case BeginRest():
                self._begin_rest()
            case LogFailure(error=error, asked=asked):
                self._log(error, asked)
            case Abandon():
                self._services.errors.abandon()
                self._abandon()
                self._services.metrics.close()

    def _log(self, error: BaseException, asked: Ending) -> None:
        if asked is Ending.CANCEL:
            logger.debug("Task %s ended by an error after it was cancelled: %s", self.id, error)
        elif isinstance(error, SparkStoppedException):
            logger.info("Task %s: %s; what it had read and not yet delivered is read again", self.id, error)
        elif asked is Ending.STOP and asks_again(error) and self.retries.count:
            logger.info("Task %s is stopped before its start() has worked: %s", self.id, error)
        elif asked is Ending.STOP:
            logger.error("Task %s had an error while it was stopping", self.id, exc_info=error)
        elif self._state_after(error) is State.RESTARTING:
            logger.warning("Task %s: %s; it is started again where its committed offsets end", self.id, error)
        else:
            logger.error("Task %s failed and will not go on before it is restarted", self.id, exc_info=error)
