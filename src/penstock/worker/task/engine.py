"""One task, source or sink, on a thread: its settings (``TaskSpec``), the worker's services, and its lifecycle.

``TaskEngine`` feeds the pure state machine of ``penstock.model.runner_life`` and performs its effects. A lost Spark
session takes with it everything that a task made on it, so an instance that fails after it used such a session
(``TaskSession``) ends, and another one starts at its committed offsets; that one has used no lost session, so an error
that has nothing to do with Spark then fails the task.

Threads: ``task-<id>``, owned here, makes every call of the user's task, except ``wakeup`` and the ``stop`` of a task
whose ``poll`` does not return. The public methods come from any thread and return at once, except ``join``.

Source: WorkerTask of Kafka Connect.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar

from penstock.api import Task
from penstock.errors import (
    ConnectException,
    FencedInstanceIdException,
    IllegalWorkerStateException,
    SparkSessionLostException,
    SparkStoppedException,
    SparkUnavailableException,
    stack_trace,
)
from penstock.model import ConnectorTaskId, State
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
from penstock.model.states import Progress
from penstock.pipeline.spark.jvm import brief
from penstock.telemetry import log_context, no_probe, waiting_for
from penstock.threads import OwnedThread, StopEvent
from penstock.worker.errors import ErrorCounts, ErrorHandler
from penstock.worker.task.bounded_queue import BatchLimits, SharedLoad
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.waiting import Retries, RetryBackoff, asks_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: The interval at which a thread that waits for a session checks for the end of the task.
_LOOK_S: Final = 0.2


class Sessions(Protocol):
    """The part of ``SparkRuntime`` that is needed here."""

    @property
    def up(self) -> bool:
        """True if there is a session now."""

    @property
    def generation(self) -> int:
        """Counts the sessions that came up."""

    def current(self, timeout_s: float) -> tuple[SparkSession, int] | None:
        """The session and its generation; None when it is not there in time. Raises when it cannot start."""

    def is_lost(self, generation: int, error: BaseException) -> bool:
        """True if the session of that generation is gone."""


class TaskSession:
    """The session for one instance of a task.

    Attributes:
        in_put: The newest session that the ``put`` in progress has used; the sink's loop clears it before each ``put``.
    """

    def __init__(self, owner: str, sessions: Sessions | None = None) -> None:
        self._owner = owner
        self._sessions = sessions
        self._ending = threading.Event()
        self._lock = threading.Lock()
        # The oldest session that was used: when it is gone, something that the task keeps may be.
        self._oldest: int | None = None
        self.in_put: int | None = None

    @waiting_for("spark")
    def session(self) -> SparkSession:
        """The session, once it is up.

        Raises:
            IllegalWorkerStateException: This process has no Spark session.
            SparkUnavailableException: It cannot start.
            SparkStoppedException: The session is lost, and the task or the worker is to stop.
        """
        sessions = self._sessions
        if sessions is None:
            raise IllegalWorkerStateException(f"Task {self._owner} has no Spark session")
        while (found := sessions.current(_LOOK_S)) is None:
            if self._ending.is_set():
                raise SparkStoppedException(f"Task {self._owner} is stopping and does not wait for a Spark session")
        session, generation = found
        self._note(generation)
        self.in_put = generation
        return session

    def used(self) -> None:
        """Notes that the task uses the present session, or the next one if none is up."""
        sessions = self._sessions
        if sessions is not None:
            self._note(sessions.generation + (0 if sessions.up else 1))

    def end(self) -> None:
        """Ends all waits for a session, because the task is to end."""
        self._ending.set()

    def named(self, error: BaseException) -> BaseException:
        """The error that a task fails with: that its session was lost, if it had used one that is gone.

        Asks the JVM, or the server, if it is alive: not for a thread that must not wait for some seconds.
        """
        if isinstance(error, SparkUnavailableException) or not self._is_lost(self._oldest, error):
            return error
        lost = SparkSessionLostException(
            f"the Spark session that the task had used was lost, then: {brief(error)}. If that happens again and "
            "again, raise spark.driver.memory or let its plans read less"
        )
        lost.__cause__ = error
        return lost

    # ------------------------------------------------------------------ sinks
    @property
    def up(self) -> bool:
        return self._sessions is not None and self._sessions.up

    def lost_in_put(self, error: BaseException) -> bool:
        """True if ``put`` used a session that was lost since."""
        return self._is_lost(self.in_put, error)

    def _note(self, generation: int) -> None:
        with self._lock:
            if self._oldest is None:
                self._oldest = generation

    def _is_lost(self, generation: int | None, error: BaseException) -> bool:
        return generation is not None and self._sessions is not None and self._sessions.is_lost(generation, error)


TaskT = TypeVar("TaskT", bound=Task)
TaskT_co = TypeVar("TaskT_co", bound=Task, covariant=True)


@dataclass(frozen=True)
class TaskSpec(Generic[TaskT_co]):
    """A task and its settings.

    Attributes:
        task: The user's instance; not initialized yet.
        config: The settings for its ``start``, placeholders resolved.
        offset_flush_interval_s: ``offset.flush.interval.ms``. (The committer of a source has its own.)
        offset_flush_timeout_s: ``offset.flush.timeout.ms``: the time limit for work in flight at the end, and for a
            commit.
        paused: True if it starts paused; then it is initialized only when it is resumed.
    """

    id: ConnectorTaskId
    task: TaskT_co
    config: Mapping[str, str]
    read_config: Callable[[], Mapping[str, str]]
    limits: BatchLimits = field(default_factory=BatchLimits)
    offset_flush_interval_s: float = 60.0
    offset_flush_timeout_s: float = 5.0
    paused: bool = False
    backoff: RetryBackoff = field(default_factory=lambda: RetryBackoff(60.0, "source.retry.delay.max.ms"))

    @property
    def name(self) -> str:
        return f"{self.id.connector} task {self.id.task}"


@dataclass(frozen=True)
class TaskServices:
    """The services that a worker gives each task. The runner closes them, even if the task never starts.

    Attributes:
        report: Called with RUNNING, PAUSED and FAILED, and with UNASSIGNED or RESTARTING at the end; on the task's
            thread, must not block.
        close: Called after everything else has ended: closes transforms, converters, admin clients.
        abandoned: Called when the task is cancelled and commits nothing more; must not block.
        note_topics: Notes the topics of the records of a batch (KIP-558). Called again for each batch, because users
            may reset the topics. Any thread; must not block.
    """

    report: Callable[[State, str | None], None]
    session: TaskSession
    errors: ErrorHandler
    load: SharedLoad = field(default_factory=SharedLoad)
    metrics: InstanceMetrics = field(default_factory=InstanceMetrics.unread)
    close: Callable[[], None] = lambda: None
    abandoned: Callable[[], None] = lambda: None
    probe: Callable[[str], None] = no_probe
    note_topics: Callable[[Sequence[str]], None] = lambda topics: None


class TransactionLostException(ConnectException):
    """The open transaction of a source task can never be committed; its records have to be read again.

    Args:
        outside: True if the cause lies outside of the task, such as brokers that do not answer. Then the task is
            created again without a limit.
    """

    def __init__(self, message: str, *, outside: bool = False) -> None:
        super().__init__(message)
        self.outside = outside


class StartPutOffException(ConnectException):
    """The task was paused while its ``start`` waited for a retry: it is created again, paused."""


def state_after(error: BaseException, *, shares_id: bool = False) -> State:
    """Returns the state of a task that ended by an error: FAILED, or about to start again.

    Args:
        shares_id: True if the workers of a group use one static member id for the task. A frozen worker that wakes may
            join with it and fence the task on its new worker, until its group corrects it a moment later.
    """
    again = isinstance(error, SparkSessionLostException | TransactionLostException | StartPutOffException)
    fenced = shares_id and isinstance(error, FencedInstanceIdException)
    return State.RESTARTING if again or fenced else State.FAILED


#: Fed at each turn of the loop.
_TURNS: Final = (RunnerSignal.PROCEED, RunnerSignal.POLL_RETURNED)
_GOES_ON: Final = TaskEnding.NO
#: The line in the log of a task that has failed; tools look for it.
STAYS_FAILED: Final = "failed, and stays FAILED until it is restarted"


class TaskEngine(ABC, Generic[TaskT]):
    """One task, from start to end."""

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
        #: The progress that the task last reported.
        self._progress: Progress | None = None
        self._thread = OwnedThread(f"task-{spec.id}", self._run)

    # ---------------------------------------------------------------- any thread
    @property
    def error_counts(self) -> ErrorCounts:
        return self._services.errors.counts

    def _set_progress(self, progress: Progress | None) -> None:
        """Stores the progress that the task reports. Thread: any."""
        self._progress = progress

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Pause after the call in progress; polled records are still delivered, a sink stays in its group."""
        self._feed(RunnerSignal.PAUSE_ASKED)

    def resume(self) -> None:
        self._feed(RunnerSignal.RESUME_ASKED)

    def stop(self) -> None:
        """Finish what is in flight within ``offset.flush.timeout.ms``, commit, end."""
        self._feed(RunnerSignal.STOP_ASKED)

    def fail(self, error: BaseException) -> None:
        """End with an error that is not the task's own call's, as FAILED; the first error counts."""
        self._feed(Failed(error))

    def cancel(self) -> None:
        """Abandon the task: it commits and reports nothing more. Invariant 4."""
        self._feed(RunnerSignal.CANCEL_ASKED)
        self.retries.ended()
        self._services.abandoned()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the task; False when it has not ended in time."""
        return self._thread.join(timeout_s)

    # ---------------------------------------------------------------- overridden by sources and sinks
    # The reason in ``explain`` for a task that asked for a retry.
    _retry_reason: ClassVar[str]

    @abstractmethod
    def _prepare(self) -> None:
        """Prepare the services for `initialize`; may block until the task is to end."""

    @abstractmethod
    def _start(self) -> None:
        """Call the task's `initialize` and `start`, and start the other stages."""

    @abstractmethod
    def _round(self, *, resting: bool) -> None:
        """Make one call of the task's loop, or rest until something changes."""

    @abstractmethod
    def _drain(self) -> None:
        """Finish or abandon the work in flight, and make the last commit."""

    @abstractmethod
    def _release(self) -> None:
        """Release the task's resources, including ``services.close``."""

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
        return state_after(error)

    # ---------------------------------------------------------------- the task's thread
    def _run(self) -> None:
        with log_context(self.id.connector, self.id.task):
            self._raising(self._live)
            if self._life.phase is RunnerPhase.DRAINING:
                self._raising(self._drain)
                self._feed(RunnerSignal.DRAINED)
            self._quietly("releasing what it used", self._release)
            self.retries.ended()
            self._services.metrics.close()
            self._feed(RunnerSignal.CLOSED)

    def _live(self) -> None:
        while self._feed(RunnerSignal.PROCEED).phase is RunnerPhase.HELD:
            self._rest()
        if self._life.phase is not RunnerPhase.PREPARING:
            return
        self._prepare()
        if self._feed(RunnerSignal.PROCEED).phase is not RunnerPhase.STARTING:
            return
        self._round_began = time.monotonic()
        self._start()
        self._feed(RunnerSignal.STARTED)
        self._loop()

    def _loop(self) -> None:
        while (phase := self._feed(RunnerSignal.PROCEED).phase) is not RunnerPhase.DRAINING:
            self._round_began = time.monotonic()
            self._round(resting=phase is RunnerPhase.RESTING)

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
        """Wait until the time of a retry; shorter if the task is paused or ends."""
        delay_s = self.retries.failed(call, error)
        with waiting_for(self._retry_reason), self._changed:
            self._changed.wait_for(lambda: self._life.paused or self._life.is_ending, delay_s)

    def _rest(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._life.paused or self._life.is_ending)

    def _raising(self, call: Callable[[], None]) -> None:
        """Makes a call whose exception ends the task."""
        try:
            call()
        except BaseException as error:
            self._feed(TaskRaised(self._services.session.named(error)))

    def _quietly(self, what: str, call: Callable[[], object]) -> None:
        """Makes a call whose exception, ``sys.exit`` included, is logged, and does not stop the caller."""
        try:
            call()
        except BaseException:
            logger.exception("An error in %s of task %s", what, self.id)

    # ---------------------------------------------------------------- events and effects, on any thread
    def _feed(self, event: RunnerEvent) -> RunnerLife:
        """Apply an event and perform its effects; returns the new state."""
        with self._lock:
            life, effects = step(self._life, event)
            self._life = life
            # The waiting threads are woken by requests and at the end, not at each turn of the loop.
            if life.ending is not _GOES_ON or event not in _TURNS:
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
            case RunnerOrder.INTERRUPT:
                self._interrupt()
                self._stopping.set()
                self._services.session.end()
            case RunnerOrder.CALL_WAKEUP:
                self._wake()
            case RunnerOrder.CALL_STOP:
                self._quietly("the task's stop()", self._spec.task.stop)
                self._feed(RunnerSignal.STOP_RETURNED)
            case RunnerOrder.AWAIT_STOP:
                with self._changed:
                    self._changed.wait_for(lambda: self._life.stop is StopCall.RETURNED)
            case RunnerOrder.BEGIN_REST:
                self._begin_rest()
            case LogFailure(error=error, asked=asked):
                self._log(error, asked)
            case RunnerOrder.ABANDON:
                self._services.errors.abandon()
                self._abandon()
                self._services.metrics.close()

    def _log(self, error: BaseException, asked: TaskEnding) -> None:
        if asked is TaskEnding.CANCEL:
            logger.debug("Task %s ended by an error after it was cancelled: %s", self.id, error)
        elif isinstance(error, SparkStoppedException):
            logger.info("Task %s: %s; what it had read and not yet delivered is read again", self.id, error)
        elif asked is TaskEnding.STOP and asks_again(error) and self.retries.count:
            logger.info("Task %s is stopped before its start() has worked: %s", self.id, error)
        elif asked is TaskEnding.STOP:
            logger.error("Task %s had an error while it was stopping", self.id, exc_info=error)
        elif self._state_after(error) is State.RESTARTING:
            logger.warning("Task %s: %s; it is started again where its committed offsets end", self.id, error)
        else:
            logger.error("Task %s %s", self.id, STAYS_FAILED, exc_info=error)
