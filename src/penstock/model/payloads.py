"""Shapes of REST's answers about connectors, as values with a ``to_json``, and the request for a preview.

Main types: ``ConnectorInfo``, ``TaskInfo``, ``ConnectorView`` (all information about one connector), ``ServerInfo``,
``PluginInfo``; ``PreviewRequest``, a configuration with optional records, and its ``PreviewLimits``. Immutable, so that
the herder can hand them to any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.model.states import ConnectorStatus, ConnectorTaskId, ConnectorType, State, TargetState, TaskStatus


@dataclass(frozen=True)
class ServerInfo:
    """Answer of ``GET /``."""

    version: str
    commit: str
    kafka_cluster_id: str | None

    def to_json(self) -> dict[str, object]:
        """The body of the answer."""
        return {"version": self.version, "commit": self.commit, "kafka_cluster_id": self.kafka_cluster_id}


@dataclass(frozen=True)
class PluginInfo:
    """One entry of ``GET /connector-plugins``."""

    class_name: str
    type: str
    version: str | None

    def to_json(self) -> dict[str, object]:
        """The entry, without ``version`` if the plugin has none."""
        body: dict[str, object] = {"class": self.class_name, "type": self.type}
        if self.version is not None:
            body["version"] = self.version
        return body


@dataclass(frozen=True)
class TaskInfo:
    """A task with the settings from the connector (placeholders unresolved)."""

    id: ConnectorTaskId
    config: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """One entry of ``GET /connectors/{name}/tasks``."""
        return {"id": self.id.to_json(), "config": dict(self.config)}


@dataclass(frozen=True)
class ConnectorInfo:
    """A connector with its configuration (placeholders unresolved) and its tasks."""

    name: str
    config: Mapping[str, str]
    tasks: Sequence[ConnectorTaskId]
    type: ConnectorType

    def to_json(self) -> dict[str, object]:
        """The body of ``GET /connectors/{name}``."""
        return {
            "name": self.name,
            "config": dict(self.config),
            "tasks": [task.to_json() for task in self.tasks],
            "type": self.type.value,
        }


@dataclass(frozen=True)
class ConnectorView:
    """All information about one connector at one moment.

    Attributes:
        name: The connector.
        config: Its settings as given.
        type: Source or sink; unknown if its class could not be loaded.
        target: Its target state.
        status: The state of the connector; None before its first report.
        task_configs: Settings of each task, in order.
        tasks: The states of the tasks, in order.
    """

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

    def info(self) -> ConnectorInfo:
        """Returns the answer of ``GET /connectors/{name}``."""
        ids = [ConnectorTaskId(self.name, number) for number in range(len(self.task_configs))]
        return ConnectorInfo(self.name, self.config, ids, self.type)

    def task_infos(self) -> list[TaskInfo]:
        """Returns the answer of ``GET /connectors/{name}/tasks``."""
        return [TaskInfo(ConnectorTaskId(self.name, n), config) for n, config in enumerate(self.task_configs)]

    def status_json(
        self, beside: Callable[[ConnectorTaskId | str], Mapping[str, object]] = lambda unit: {}
    ) -> dict[str, object] | None:
        """Returns the answer of ``GET /connectors/{name}/status``, or None if no state is known yet.

        Args:
            beside: Returns the further fields of a task, or of the connector by its name; see
                ``TaskStatus.to_json``.
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
    """The limits at which a preview ends.

    Attributes:
        records: The most records.
        seconds: The time limit, even if the connector does not return.
        bytes: The most bytes of records.
    """

    records: int = 10
    seconds: float = 5.0
    bytes: int = 1024 * 1024


@dataclass(frozen=True)
class GivenRecord:
    """A record from the caller.

    Attributes:
        topic: Its topic.
        key, value: Values from JSON; for a sink a text is the bytes of the message, and other values become JSON.
        partition, timestamp: Its stated partition and timestamp.
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
        type: Source or sink.
        config: The connector's configuration, placeholders resolved.
        records: The caller's records; None to read some from the source, or from the sink's topics.
        limits: The limits of reading.
    """

    type: ConnectorType
    config: Mapping[str, str] = field(repr=False)
    records: Sequence[GivenRecord] | None = None
    limits: PreviewLimits = field(default_factory=PreviewLimits)
