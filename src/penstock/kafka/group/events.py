"""What a member of a Kafka group tells its owner, and what it asks.

Main types: ``GroupEvents`` (the owner implements it), ``Joined`` (a round has ended for this member),
``GroupRefusedException`` (Kafka does not let it in), ``GroupView`` (what can be read of a member at any moment).

Nothing here knows the library that speaks with Kafka: ``penstock.kafka.group.member`` can be replaced behind it.

Source: org.apache.kafka.connect.runtime.distributed.WorkerRebalanceListener, WorkerCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import ConnectException


@dataclass(frozen=True)
class Joined:
    """A round has ended for this member.

    Attributes:
        generation: Of the group; it grows with every round.
        member_id: What the broker calls this member.
        protocol: The sub-protocol that the broker has picked.
        assignment: What the leader tells this member.
    """

    generation: int
    member_id: str
    protocol: str
    assignment: bytes = field(repr=False)


@dataclass(frozen=True)
class GroupView:
    """What is known of a member at a moment.

    Attributes:
        member_id: What the broker calls it; empty before the first join and after it was put out.
        generation: That of its last round; -1 while it is in none.
        coordinator: Host and port of the broker that leads the group; None while no connection to it stands.
        joined: Whether it is in the group, with what its last round gave it.
    """

    member_id: str = ""
    generation: int = -1
    coordinator: str | None = None
    joined: bool = False


class GroupRefusedException(ConnectException):
    """Kafka does not let this worker into its group; the text says why, and what to do.

    The member goes on trying, at growing intervals: rights and settings of brokers can be changed while it runs.

    Attributes:
        code: Kafka's name of the error, as ``INVALID_SESSION_TIMEOUT``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class GroupEvents(Protocol):
    """The owner of a member.

    Thread: ``before_join`` and ``assign`` are called on a thread of the member that exists for them; they never run at
    the same time. All others are called on the member's network thread, and have to return at once: heartbeats wait for
    them.
    """

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Name and metadata of each sub-protocol on offer, the preferred one first; asked at every join."""
        ...

    def before_join(self, generation: int) -> None:
        """The member is about to join; it does so when this returns, or when the rebalance timeout is over.

        It waits here until the work has stopped that others may be given: all of it in the eager protocol, and after
        ``lost`` in any.

        Args:
            generation: That of the last round; -1 where there is none.
        """
        ...

    def assign(
        self, protocol: str, leader: str, members: Mapping[str, bytes], generation: int, last_completed: int
    ) -> Mapping[str, bytes]:
        """Asked of the leader: what each member is told. It may take some seconds; the others wait.

        An exception ends the round: this member leaves the group, and joins again after a pause.

        Args:
            protocol: The sub-protocol that the broker has picked.
            leader: The id of this member.
            members: Their metadata, by member id; this member is among them.
            generation: That of this round.
            last_completed: That of the last round whose assignment reached this member; -1 for none.

        Returns:
            The assignments, by member id. Who is missing is told nothing.
        """
        ...

    def joined(self, joined: Joined) -> None:
        """A round has ended for this member."""
        ...

    def lost(self, reason: str) -> None:
        """This member is out of the group, or cannot know that it is in: all of its work is to be given up.

        It joins again by itself. From now on ``metadata`` must name no work.
        """
        ...

    def refused(self, error: GroupRefusedException) -> None:
        """Kafka does not let it in. Told once for each cause, until it was let in again."""
        ...
