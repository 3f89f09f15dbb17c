"""The worker's place among the workers that share the work.

Main types: ``Membership`` (what the herder needs of it), and ``SoleMember``, the group of one that a standalone worker
is.

Thread: every method is called on the herder's thread, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.assignors.units import Units
from penstock.errors import ConflictException, ConnectException
from penstock.herder.wanted import Unit
from penstock.model import ConnectorTaskId
from penstock.model.cluster_config import ClusterConfig


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
