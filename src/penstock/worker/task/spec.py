"""The specification of a task, source or sink: its settings, and the services that its worker gives it.

Main types: ``TaskSpec``, ``TaskServices``, ``BatchLimits``. Values; the task factory makes them. What sources and sinks
need beside these is in ``SourceServices`` of ``penstock.worker.source.task`` and ``SinkServices`` of
``penstock.worker.sink.task``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.api import Task
from penstock.model import ConnectorTaskId, State
from penstock.worker.errors.tolerance import ErrorHandler
from penstock.worker.task.bounded_queue import BatchLimits, SharedLoad
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.retries import Backoff
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
        config: For its ``start``, placeholders resolved.
        read_config: Reads that again (``context.configs()``).
        limits: How large batches may grow.
        offset_flush_interval_s: ``offset.flush.interval.ms``. (That of a source is its committer's.)
        offset_flush_timeout_s: ``offset.flush.timeout.ms``: for what is under way at the end, and for a commit.
        backoff: How long to wait before a call is made again that asked for it.
        paused: Whether it rests from the beginning; it is not initialized before it is resumed then.
    """

    id: ConnectorTaskId
    task: TaskT_co
    config: Mapping[str, str]
    read_config: Callable[[], Mapping[str, str]]
    limits: BatchLimits = field(default_factory=BatchLimits)
    offset_flush_interval_s: float = 60.0
    offset_flush_timeout_s: float = 5.0
    paused: bool = False
    backoff: Backoff = field(default_factory=lambda: Backoff(60.0, "source.retry.delay.max.ms"))

    @property
    def name(self) -> str:
        """The task, for messages of sinks."""
        return f"{self.id.connector} task {self.id.task}"


@dataclass(frozen=True)
class TaskServices:
    """The services that a worker gives each task. The runner ends what can be ended, even if the task never starts.

    Attributes:
        report: Told RUNNING, PAUSED and FAILED, and UNASSIGNED or RESTARTING at the end; on the task's thread, must not
            block.
        session: Spark's, as this instance of the task uses it.
        errors: What happens to failed records.
        load: Of all tasks of the worker.
        metrics: Those that the task and its parts add themselves.
        close: Called when all else has ended: closes transforms, converters, admin clients.
        abandoned: Called when the task is cancelled and commits nothing more; must not block.
        probe: Told named points of the data path, for kill tests.
    """

    report: Callable[[State, str | None], None]
    session: TaskSession
    errors: ErrorHandler
    load: SharedLoad = field(default_factory=SharedLoad)
    metrics: InstanceMetrics = field(default_factory=InstanceMetrics.unread)
    close: Callable[[], None] = lambda: None
    abandoned: Callable[[], None] = lambda: None
    probe: Callable[[str], None] = no_probe
