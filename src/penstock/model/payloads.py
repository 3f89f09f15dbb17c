"""The values of REST's requests and answers: connectors and plugins, previews, backfills.

Immutable, so that the herder can hand them to any thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.model.states import ConnectorStatus, ConnectorTaskId, ConnectorType, State, TargetState, TaskStatus

if TYPE_CHECKING:
    from penstock.api import BackfillPart


@dataclass(frozen=True)
class PluginInfo:
    """One entry of ``GET /connector-plugins``."""

    class_name: str
    type: str
    version: str | None

    def to_json(self) -> dict[str, object]:
        body: dict[str, object] = {"class": self.class_name, "type": self.type}
        if self.version is not None:
            body["version"] = self.version
        return body


@dataclass(frozen=True)
class ConnectorView:
    """All information about one connector at one moment; ``status`` is None before its first report."""

    name: str
    config: Mapping[str, str]
    type: ConnectorType
    target: TargetState
    status: ConnectorStatus | None = None
    task_configs: Sequence[Mapping[str, str]] = ()
    tasks: Sequence[TaskStatus] = field(default=())

    def restarting(self, connector: bool, tasks: Collection[int]) -> ConnectorView:
        """The same with the state RESTARTING for the connector or these tasks, which keep their traces."""
        status = self.status
        return replace(
            self,
            status=replace(status, state=State.RESTARTING) if connector and status is not None else status,
            tasks=tuple(
                replace(task, state=State.RESTARTING) if task.id.task in tasks else task for task in self.tasks
            ),
        )

    def info_json(self) -> dict[str, object]:
        """The answer of ``GET /connectors/{name}``."""
        return {
            "name": self.name,
            "config": dict(self.config),
            "tasks": [task.to_json() for task in self._ids()],
            "type": self.type.value,
        }

    def tasks_json(self) -> list[dict[str, object]]:
        """The answer of ``GET /connectors/{name}/tasks``."""
        return [
            {"id": task.to_json(), "config": dict(config)}
            for task, config in zip(self._ids(), self.task_configs, strict=True)
        ]

    def _ids(self) -> list[ConnectorTaskId]:
        return [ConnectorTaskId(self.name, number) for number in range(len(self.task_configs))]

    def status_json(
        self, beside: Callable[[ConnectorTaskId | str], Mapping[str, object]] = lambda unit: {}
    ) -> dict[str, object] | None:
        """The answer of ``GET /connectors/{name}/status``, or None if no state is known yet.

        Args:
            beside: Returns the further fields of a task, or of the connector by its name.
        """
        if self.status is None:
            return None
        return {
            "name": self.name,
            "connector": {**self.status.to_json(), **beside(self.name)},
            "tasks": [task.to_json(beside(task.id)) for task in self.tasks],
            "type": self.type.value,
        }


@dataclass(frozen=True)
class PreviewLimits:
    """The limits of a preview: records, seconds (even if the connector does not return), and bytes of records."""

    records: int = 10
    seconds: float = 5.0
    bytes: int = 1024 * 1024


@dataclass(frozen=True)
class GivenRecord:
    """A record from the caller.

    Attributes:
        key, value: Values from JSON; for a sink a text is the bytes of the message, and other values become JSON.
        headers: Texts by name.
    """

    topic: str
    key: object = None
    value: object = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PreviewRequest:
    """The configuration and records of a preview.

    Attributes:
        config: The connector's configuration, placeholders resolved.
        records: The caller's records; None to read some from the source, or from the sink's topics.
        step: Called with what the preview does now, for the error of a timeout; any thread.
    """

    type: ConnectorType
    config: Mapping[str, str] = field(repr=False)
    records: Sequence[GivenRecord] | None = None
    limits: PreviewLimits = field(default_factory=PreviewLimits)
    step: Callable[[str], None] = field(default=lambda step: None, repr=False, compare=False)


class BackfillState(enum.Enum):
    """The states of a backfill."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, order=True)
class BackfillRange:
    """Messages of one topic partition, from the offset ``start`` up to ``end``, exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    def to_json(self) -> dict[str, object]:
        return {
            "kafka_topic": self.topic,
            "kafka_partition": self.partition,
            "start_offset": self.start,
            "end_offset": self.end,
        }


@dataclass(frozen=True)
class BackfillRequest:
    """A request to read a range again.

    Attributes:
        start_ms: The time of the first messages, or rows; None for a request by offsets.
        end_ms: The time before which they end; None for the time of the request.
        ranges: The messages of a sink, for a request by offsets.
        span: The first position of a source and the one after the last, for a request by offsets.
        of: A part of a source, such as a table or a file; None for all parts.
        dry_run: True to return the plan only.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    ranges: Sequence[BackfillRange] = ()
    span: tuple[str | int, str | int] | None = None
    of: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class BackfillQuestion:
    """A request, and the connector that it is about.

    Attributes:
        config: The connector's settings, placeholders resolved.
        tasks: Functions that read the settings of each of its tasks, with placeholders resolved again.
    """

    name: str
    kind: ConnectorType
    config: Mapping[str, str]
    tasks: Sequence[Callable[[], Mapping[str, str]]]
    request: BackfillRequest


@dataclass(frozen=True)
class BackfillShare:
    """The part of a source's backfill that has the settings of one of its tasks, which ``read_config`` reads."""

    read_config: Callable[[], Mapping[str, str]]
    parts: Sequence[BackfillPart]


@dataclass(frozen=True)
class BackfillView:
    """A backfill as readers see it.

    Attributes:
        began, ended: Times in ISO 8601.
        reads: The ranges that it reads, in the shape of REST.
        records: The number of records that it has read.
        total: The maximum number of records; None if unknown.
        trace: The error that failed it.
        positions: For each source or topic partition the position after the delivered records.
        progress: The progress that its task reports, in the shape of REST.
        waiting_for: The wait of its task for a retry, in the shape of REST.
    """

    state: BackfillState
    worker_id: str
    began: str
    reads: Sequence[Mapping[str, object]]
    records: int = 0
    total: int | None = None
    ended: str | None = None
    trace: str | None = None
    positions: Sequence[Mapping[str, object]] = ()
    progress: Mapping[str, object] | None = None
    waiting_for: Mapping[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        found: dict[str, object] = {
            "state": self.state.value,
            "worker_id": self.worker_id,
            "began": self.began,
            "ended": self.ended,
            "records": self.records,
            "total": self.total,
            "reads": [dict(one) for one in self.reads],
            "positions": [dict(one) for one in self.positions],
        }
        more = {"progress": self.progress, "waiting_for": self.waiting_for, "trace": self.trace}
        return {**found, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True)
class BackfillPlan:
    """The work of a backfill.

    Attributes:
        reads: The ranges to read, in the shape of REST.
        writes: A description of the target.
        total: The maximum number of records; None if unknown.
        ranges: The messages, for a sink.
        shares: The parts, for a source.
    """

    reads: Sequence[Mapping[str, object]]
    writes: str
    total: int | None
    ranges: Sequence[BackfillRange] = ()
    shares: Sequence[BackfillShare] = ()

    def to_json(self, name: str) -> dict[str, object]:
        """The answer to a dry run."""
        return {"name": name, "dry_run": True, "reads": list(self.reads), "total": self.total, "writes": self.writes}
