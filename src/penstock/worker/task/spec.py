"""The specification of a task, source or sink: its settings, and the services that its worker gives it.

Main types: ``TaskSpec``, ``TaskServices``, ``BatchLimits``. Values; the task factory makes them. The additional needs
of sources and sinks are in ``SourceServices`` of ``penstock.worker.source.task`` and ``SinkServices`` of
``penstock.worker.sink.task``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.api import Task
from penstock.model import ConnectorTaskId, State
from penstock.worker.errors.tolerance import ErrorHandler
from penstock.worker.task.bounded_queue import BatchLimits, SharedLoad
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.retries import RetryBackoff
from penstock.worker.task.session import TaskSession

TaskT_co = TypeVar("TaskT_co", bound=Task, covariant=True)


def no_probe(point: str) -> None:
    """The probe outside of kill tests."""


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
