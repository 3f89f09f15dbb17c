"""The specification of a task, source or sink: its settings, and the services that its worker gives it.

Main types: ``TaskSpec``, ``TaskServices``, ``TaskSession``, and ``Sessions``, the part of ``SparkRuntime`` that it
needs. A lost session takes with it everything that a task made on it: DataFrames, cached tables. So an instance that
fails
after the loss of a session that it used is not to blame: it ends, and another instance starts at its committed offsets.
The new instance has used no lost session, so an error that has nothing to do with Spark then fails the task. Values;
the task factory makes them. The additional needs of sources and sinks are in ``SourceServices`` of
``penstock.worker.source.task`` and ``SinkServices`` of ``penstock.worker.sink.task``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from penstock.api import Task
from penstock.errors import (
    IllegalWorkerStateException,
    SparkSessionLostException,
    SparkStoppedException,
    SparkUnavailableException,
)
from penstock.model import ConnectorTaskId, State
from penstock.pipeline.spark.driver.jvm import brief
from penstock.telemetry import no_probe, waiting_for
from penstock.worker.errors.tolerance import ErrorHandler
from penstock.worker.task.bounded_queue import BatchLimits, SharedLoad
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.waiting import RetryBackoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    Args:
        owner: The task, for messages.
        sessions: The worker's; None = there is none.

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


TaskT_co = TypeVar("TaskT_co", bound=Task, covariant=True)


@dataclass(frozen=True)
class TaskSpec(Generic[TaskT_co]):
    """A task and its settings.

    Attributes:
        id: Connector and number.
        task: The user's instance; not initialized yet.
        config: The settings for its ``start``, placeholders resolved.
        read_config: Reads them again (``context.configs()``).
        limits: The limits of a batch.
        offset_flush_interval_s: ``offset.flush.interval.ms``. (The committer of a source has its own.)
        offset_flush_timeout_s: ``offset.flush.timeout.ms``: the time limit for work in flight at the end, and for a
            commit.
        backoff: The delay before the retry of a call.
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
        """The task, for messages of sinks."""
        return f"{self.id.connector} task {self.id.task}"


@dataclass(frozen=True)
class TaskServices:
    """The services that a worker gives each task. The runner closes them, even if the task never starts.

    Attributes:
        report: Called with RUNNING, PAUSED and FAILED, and with UNASSIGNED or RESTARTING at the end; on the task's
            thread, must not block.
        session: The Spark session, as this instance of the task uses it.
        errors: Handles failed records.
        load: The load of all tasks of the worker.
        metrics: The metrics that the task and its parts add.
        close: Called after everything else has ended: closes transforms, converters, admin clients.
        abandoned: Called when the task is cancelled and commits nothing more; must not block.
        probe: Called at named points of the data path, for kill tests.
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
