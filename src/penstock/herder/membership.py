"""The worker's membership in its group, and the units that it runs by its assignment.

Main types: ``Membership`` (the herder's interface to a group), and ``SoleMember``, the group of one of a standalone
worker; ``AssignedConnector`` and ``AssignedTask``, the settings of one instance; ``Unit``, the name of either. Main
function: ``spec_of``. An instance keeps running as long as its spec stays equal; another spec replaces the instance.

Thread: the herder's for every method of ``Membership``, unless it says otherwise. Specs are values and pure functions.
Source: DistributedHerder (startConnector, startTask) of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from penstock.errors import ConflictException, ConnectException
from penstock.model import TargetState
from penstock.model.cluster_config import ClusterConfig, Properties
from penstock.model.states import Unit, Units, all_units, connector_of


@dataclass(frozen=True)
class AssignedConnector:
    """The specification of an instance of a connector.

    Attributes:
        config: Its settings, placeholders unresolved.
        turn: A changed number requests another instance with the same settings.
    """

    config: Properties = field(repr=False)
    turn: int = 0


@dataclass(frozen=True)
class AssignedTask:
    """The specification of a task.

    Attributes:
        config: The task's own settings, placeholders unresolved.
        connector: The connector's settings when these came into force: its converters, transforms and clients.
        count: The number of tasks of the connector.
        generation: The commit of the settings, if every commit ends all earlier tasks; else 0.
        turn: A changed number requests another instance with the same settings.
    """

    config: Properties = field(repr=False)
    connector: Properties = field(repr=False)
    count: int = field(default=1, compare=False)
    generation: int = 0
    turn: int = 0


Spec: TypeAlias = AssignedConnector | AssignedTask


def spec_of(config: ClusterConfig, unit: Unit, turn: int, *, fenced: bool = False) -> Spec | None:
    """Returns the current specification of a unit.

    Args:
        config: The configuration.
        unit: The connector or task.
        turn: The number of its restarts.
        fenced: True if each commit of the connector's tasks ends all earlier tasks (exactly-once sources).

    Returns:
        None if it shall not run: it is not configured, or a task of a stopped connector.
    """
    known = config.connectors.get(connector_of(unit))
    if known is None:
        return None
    if isinstance(unit, str):
        return AssignedConnector(known.config, turn)
    stopped = config.target(unit.connector) is TargetState.STOPPED
    if stopped or unit.task >= len(known.tasks):
        return None
    # Task configurations exist only after a commit, which records the settings in force.
    applied = known.config if known.applied is None else known.applied
    return AssignedTask(known.tasks[unit.task], applied, len(known.tasks), known.generation if fenced else 0, turn)


class NotHereException(ConnectException):
    """Another worker has to serve this request.

    Attributes:
        url: The REST address of that worker; None if it is unknown now.
        config: The configuration to send, if the received one is incomplete: it had a secret in its hidden form.
    """

    def __init__(self, message: str, url: str | None, config: Mapping[str, str | None] | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.config = config


class RebalanceExpectedException(ConflictException):
    """An error: the configuration has changed, and the group has not assigned the work again yet."""

    def __init__(self) -> None:
        super().__init__(
            "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config "
            "change)"
        )


class Membership(Protocol):
    """The membership of a worker in its group: the leader, and the units assigned to this worker."""

    @property
    def sole(self) -> bool:
        """True if there can be no other worker."""

    @property
    def generation(self) -> int:
        """The generation of the group at its last assignment. Thread: any."""

    @property
    def obstacle(self) -> str | None:
        """The reason why this worker has no place in its group, in a sentence; None if it has one. Thread: any."""

    def begin(self) -> None:
        """Starts the membership: the worker serves."""

    def assigned(self, config: ClusterConfig) -> Units:
        """Returns the units that are assigned to this worker."""

    def require_leader(self, config: Mapping[str, str | None] | None = None) -> None:
        """Raises an error unless this worker is the leader.

        Args:
            config: The configuration to send to the leader.

        Raises:
            NotHereException: another worker is the leader.
        """

    def require_owner(self, unit: Unit) -> None:
        """Raises an error unless this worker runs the unit.

        Raises:
            NotHereException: another worker runs it, or knows its worker.
        """

    def require_stable(self) -> None:
        """Raises an error while the assignment is unknown.

        Raises:
            RebalanceExpectedException: the assignment is about to change.
        """

    async def steady(self, *, dealt: bool) -> None:
        """Waits while the group assigns the work, at most for its time limit; the caller must check the result.

        Args:
            dealt: True to wait for an assignment of the present configuration; False to wait only for the leader.
        """

    def configured(self, before: ClusterConfig, after: ClusterConfig) -> None:
        """Called with each new snapshot: added connectors or tasks need an assignment."""

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
