"""The worker's place among the workers that share the work.

Main types: ``Membership`` (what the herder needs of it), and ``SoleMember``, the group of one that a standalone worker
is.

Thread: every method is called on the herder's thread, unless it says otherwise.

The units that a worker is to run, derived from the configuration and its assignment.

Main types: ``ConnectorSpec`` and ``TaskSpec``, what one instance is made of; ``Unit``, the name of either. Main
function: ``spec_of``. An instance goes on as long as its spec stays equal; another spec means another instance.

Values and pure functions; any thread.
Source: DistributedHerder (startConnector, startTask) of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from penstock.assignors.assignment import Units
from penstock.errors import ConflictException, ConnectException
from penstock.model import ConnectorTaskId, TargetState
from penstock.model.cluster_config import ClusterConfig, Properties

Unit: TypeAlias = str | ConnectorTaskId
"""A connector by its name, or a task."""


@dataclass(frozen=True)
class ConnectorSpec:
    """The specification of an instance of a connector.

    Attributes:
        config: Its settings, placeholders unresolved.
        turn: Another number asks for another instance with the same settings.
    """

    config: Properties = field(repr=False)
    turn: int = 0


@dataclass(frozen=True)
class TaskSpec:
    """The specification of a task.

    Attributes:
        config: Its own settings, placeholders unresolved.
        connector: The connector's settings when these came into force: its converters, transforms and clients.
        count: How many tasks the connector has.
        generation: The commit that brought the settings, where every commit ends all tasks before it; else 0.
        turn: Another number asks for another instance with the same settings.
    """

    config: Properties = field(repr=False)
    connector: Properties = field(repr=False)
    count: int = field(default=1, compare=False)
    generation: int = 0
    turn: int = 0


Spec: TypeAlias = ConnectorSpec | TaskSpec


def connector_of(unit: Unit) -> str:
    """The connector that a unit is, or belongs to."""
    return unit if isinstance(unit, str) else unit.connector


def spec_of(config: ClusterConfig, unit: Unit, turn: int, *, fenced: bool = False) -> Spec | None:
    """Returns the current specification of a unit.

    Args:
        config: What is configured.
        unit: The connector or task.
        turn: How often it was asked to begin anew.
        fenced: Whether each commit of the connector's tasks ends all tasks before it (exactly-once sources).

    Returns:
        None when it is not to run at all: it is not configured, or a task of a connector that is to be stopped.
    """
    known = config.connectors.get(connector_of(unit))
    if known is None:
        return None
    if isinstance(unit, str):
        return ConnectorSpec(known.config, turn)
    stopped = config.target(unit.connector) is TargetState.STOPPED
    if stopped or unit.task >= len(known.tasks):
        return None
    # Of task configurations there are any only after a commit, and then it is known what was in force.
    applied = known.config if known.applied is None else known.applied
    return TaskSpec(known.tasks[unit.task], applied, len(known.tasks), known.generation if fenced else 0, turn)


class NotHereException(ConnectException):
    """Another worker has to serve this request.

    Attributes:
        url: The REST address of that worker; None when it is not known now.
        config: The configuration to send it, where the one that came says less: a secret was sent as it is shown.
    """

    def __init__(self, message: str, url: str | None, config: Mapping[str, str | None] | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.config = config


class RebalanceExpectedException(ConflictException):
    """An error: the configuration has changed, and the group has not dealt out the work anew yet."""

    def __init__(self) -> None:
        super().__init__(
            "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config "
            "change)"
        )


class Membership(Protocol):
    """The membership of a worker in its group: who leads, and what this worker was assigned to run."""

    @property
    def sole(self) -> bool:
        """True if there can be no other worker."""

    @property
    def generation(self) -> int:
        """Of the group, when it last dealt out the work. Thread: any."""

    @property
    def obstacle(self) -> str | None:
        """The reason why this worker has no place in its group, in a sentence; None if it has one. Thread: any."""

    def begin(self) -> None:
        """Takes its place: the worker serves."""

    def assigned(self, config: ClusterConfig) -> Units:
        """Returns the units that this worker was assigned to run."""

    def require_leader(self, config: Mapping[str, str | None] | None = None) -> None:
        """Lets the leader's requests pass on the leader only.

        Args:
            config: The configuration that the leader is to be sent.

        Raises:
            NotHereException: another worker leads.
        """

    def require_owner(self, unit: Unit) -> None:
        """Lets requests pass where the unit was given to.

        Raises:
            NotHereException: another worker has it, or knows who has.
        """

    def require_stable(self) -> None:
        """Lets requests pass that need to know who runs what.

        Raises:
            RebalanceExpectedException: that is about to change.
        """

    async def steady(self, *, dealt: bool) -> None:
        """Waits while the group deals out the work, as long as that may take; whether it has is for others to check.

        Args:
            dealt: Whether what is configured now must have been dealt out; else it is enough to know who leads.
        """

    def configured(self, before: ClusterConfig, after: ClusterConfig) -> None:
        """Told of each new snapshot: other connectors or numbers of tasks have to be dealt out."""

    async def close(self) -> None:
        """Leaves the group."""


class SoleMember:
    """A group of one: it leads, and runs everything."""

    sole = True
    generation = 0
    obstacle = None

    def begin(self) -> None:
        """See ``Membership``."""

    def assigned(self, config: ClusterConfig) -> Units:
        """See ``Membership``."""
        return all_units(config.task_counts)

    def require_leader(self, config: Mapping[str, str | None] | None = None) -> None:
        """See ``Membership``."""

    def require_owner(self, unit: Unit) -> None:
        """See ``Membership``."""

    def require_stable(self) -> None:
        """See ``Membership``."""

    async def steady(self, *, dealt: bool) -> None:
        """See ``Membership``."""

    def configured(self, before: ClusterConfig, after: ClusterConfig) -> None:
        """See ``Membership``."""

    async def close(self) -> None:
        """See ``Membership``."""


def all_units(task_counts: Mapping[str, int]) -> Units:
    """Every connector and task, by the number of tasks that each connector has."""
    tasks = (ConnectorTaskId(name, number) for name, count in task_counts.items() for number in range(count))
    return Units(tuple(task_counts), tuple(tasks))
