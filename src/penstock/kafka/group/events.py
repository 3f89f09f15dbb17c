"""The callbacks of a Kafka group member to its owner, and what a rejection means.

Source: org.apache.kafka.connect.runtime.distributed.WorkerRebalanceListener, WorkerCoordinator; Kafka's protocol guide,
error codes of FindCoordinator, JoinGroup and SyncGroup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.errors import ConnectException
from penstock.kafka.group.settings import GroupSettings


@dataclass(frozen=True)
class RoundJoined:
    """A round has ended for this member."""

    generation: int
    member_id: str
    protocol: str
    assignment: bytes = field(repr=False)


@dataclass(frozen=True)
class GroupView:
    """A snapshot of a member's state.

    Attributes:
        member_id: The broker's id of the member; empty before the first join and after a removal.
        generation: The generation of its last round; -1 if there is none.
        coordinator: Host and port of the broker that leads the group; None while it is not connected.
        joined: True if it is in the group with the assignment of its last round.
    """

    member_id: str = ""
    generation: int = -1
    coordinator: str | None = None
    joined: bool = False


class GroupRefusedException(ConnectException):
    """Kafka does not allow this worker to join its group; the text says why, and what to do.

    The member keeps trying, at growing intervals, because rights and settings of brokers can change while it runs.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class GroupEvents(Protocol):
    """The owner of a member.

    Thread: ``before_join`` and ``assign`` run on a separate thread of the member, never at the same time. All other
    callbacks run on the member's network thread and must return at once, because heartbeats wait for them.
    """

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Name and metadata of each sub-protocol on offer, the preferred one first; called at every join."""

    def before_join(self, generation: int) -> None:
        """Called before the member joins; it joins when this returns, or when the rebalance timeout expires.

        Wait here until work that other members may get has stopped: all of it in the eager protocol, and after ``lost``
        in any protocol.

        Args:
            generation: The generation of the last round; -1 if there is none.
        """

    def assign(
        self, protocol: str, leader: str, members: Mapping[str, bytes], generation: int, last_completed: int
    ) -> Mapping[str, bytes]:
        """Called on the leader: returns the assignment of each member. It may take some seconds; the other members
        wait.

        An exception ends the round: this member leaves the group, and joins again after a pause.

        Args:
            last_completed: The generation of the last round whose assignment reached this member; -1 for none.

        Returns:
            The assignments, by member id. A member that is left out gets no assignment.
        """

    def joined(self, joined: RoundJoined) -> None:
        """Called when a round has ended for this member."""

    def lost(self, reason: str) -> None:
        """Called when this member is out of the group, or cannot know that it is in: all of its work must stop.

        It joins again automatically. After this call ``metadata`` must name no work.
        """

    def refused(self, error: GroupRefusedException) -> None:
        """Called when Kafka rejects this member, once for each cause until a join succeeds."""


INVALID_SESSION_TIMEOUT: Final = "INVALID_SESSION_TIMEOUT"
LOGIN_REFUSED: Final = "SASL_AUTHENTICATION_FAILED"
TLS_FAILED: Final = "TLS_HANDSHAKE_FAILED"

_LOGIN: Final = (
    "a broker refuses the login{mechanism}: {detail}. Check sasl.mechanism, sasl.jaas.config and security.protocol"
)
_LIMITS: Final = (
    "group.min.session.timeout.ms and group.max.session.timeout.ms, 6000 and 1800000 unless they were changed"
)
_OTHER: Final = "the broker answers {detail}. Its log may say more"
#: The errors for which the broker rejects the member as it is, with the advice; other errors may be temporary.
_TEXTS: Final[Mapping[str, str]] = {
    "INCONSISTENT_GROUP_PROTOCOL": (
        "its members are no Kafka Connect workers, or they have no protocol in common with this worker. Consumers and "
        "workers cannot share a group: set group.id to a name that nothing else uses (the consumers of a sink use "
        "connect-<its name>). Where other workers are in it, set connect.protocol as they do"
    ),
    INVALID_SESSION_TIMEOUT: (
        "the broker does not allow session.timeout.ms={session_ms}, its limits are {limits}. Set session.timeout.ms of "
        "the worker within them, or change them on all brokers"
    ),
    "GROUP_AUTHORIZATION_FAILED": (
        "the user of the worker has no right to it. Allow it to read the group, as in: kafka-acls --add "
        '--allow-principal User:<name> --operation Read --group "{group}"'
    ),
    "GROUP_MAX_SIZE_REACHED": (
        "it has as many members as brokers allow (group.max.size). Stop a member, or raise that limit"
    ),
    "INVALID_GROUP_ID": "brokers do not accept this name. Set another group.id",
    LOGIN_REFUSED: _LOGIN,
    "UNSUPPORTED_SASL_MECHANISM": _LOGIN,
    "ILLEGAL_SASL_STATE": _LOGIN,
    TLS_FAILED: (
        "the TLS handshake with a broker fails: {detail}. Check ssl.truststore.location (who has signed the "
        "broker's certificate), ssl.keystore.location (where brokers want one of the worker), bootstrap.servers (the "
        "names have to be those of the certificate) and security.protocol"
    ),
    "UNSUPPORTED_VERSION": (
        "the broker does not know a request that is needed: {detail}. Kafka 2.4 and newer have all of them"
    ),
}


def is_definite(code: str) -> bool:
    """True if an error means that the broker rejects this member as it is; other errors may be temporary."""
    return code in _TEXTS


def refusal(settings: GroupSettings, code: str, detail: str) -> GroupRefusedException:
    """The error for Kafka's name of an error, or ``TLS_FAILED``; the detail may be the broker's limits."""
    sasl = settings.network.sasl
    text = _TEXTS.get(code, _OTHER).format(
        group=settings.group_id,
        session_ms=settings.session_timeout_ms,
        limits=detail or _LIMITS,
        mechanism="" if sasl is None else f" with {sasl.mechanism}",
        detail=detail,
    )
    return GroupRefusedException(code, f"The worker cannot join the group {settings.group_id}: {text}")
