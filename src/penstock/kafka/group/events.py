"""The messages of a member of a Kafka group to its owner, and its questions.

Main types: ``GroupEvents`` (the owner implements it), ``Joined`` (a round has ended for this member),
``GroupRefusedException`` (Kafka does not let it in), ``GroupView`` (what can be read of a member at any moment).
``refusal`` and ``is_definite`` say what it means that Kafka does not let a worker in, and what to do. Values and pure
functions.

Nothing here knows the library that speaks with Kafka: ``penstock.kafka.group.member`` can be replaced behind it.

Source: org.apache.kafka.connect.runtime.distributed.WorkerRebalanceListener, WorkerCoordinator; Kafka's protocol guide,
error codes of FindCoordinator, JoinGroup and SyncGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.errors import ConnectException
from penstock.kafka.group.settings import GroupSettings


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
    """The state of a member at a moment.

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

    def before_join(self, generation: int) -> None:
        """The member is about to join; it does so when this returns, or when the rebalance timeout is over.

        It waits here until the work has stopped that others may be given: all of it in the eager protocol, and after
        ``lost`` in any.

        Args:
            generation: That of the last round; -1 where there is none.
        """

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

    def joined(self, joined: Joined) -> None:
        """A round has ended for this member."""

    def lost(self, reason: str) -> None:
        """This member is out of the group, or cannot know that it is in: all of its work is to be given up.

        It joins again by itself. From now on ``metadata`` must name no work.
        """

    def refused(self, error: GroupRefusedException) -> None:
        """Kafka does not let it in. Told once for each cause, until it was let in again."""


INVALID_SESSION_TIMEOUT: Final = "INVALID_SESSION_TIMEOUT"
LOGIN_REFUSED: Final = "SASL_AUTHENTICATION_FAILED"
TLS_FAILED: Final = "TLS_HANDSHAKE_FAILED"


def is_definite(code: str) -> bool:
    """True if an error means that the broker does not take this member as it is; others may have passed by now."""
    return code in _TEXTS


def refusal(settings: GroupSettings, code: str, detail: str) -> GroupRefusedException:
    """The error for a code.

    Args:
        settings: Of the member.
        code: Kafka's name of the error, ``TLS_FAILED``, or whatever there is.
        detail: What is known beyond the code; the limits of the broker for ``INVALID_SESSION_TIMEOUT``.
    """
    text = _TEXTS.get(code, _other)(settings, detail)
    return GroupRefusedException(code, f"The worker cannot join the group {settings.group_id}: {text}")


def _other_members(settings: GroupSettings, detail: str) -> str:
    return (
        "its members are no Kafka Connect workers, or they have no protocol in common with this worker. Consumers and "
        "workers cannot share a group: set group.id to a name that nothing else uses (the consumers of a sink use "
        "connect-<its name>). Where other workers are in it, set connect.protocol as they do"
    )


def _session(settings: GroupSettings, detail: str) -> str:
    limits = detail or (
        "group.min.session.timeout.ms and group.max.session.timeout.ms, 6000 and 1800000 unless they were changed"
    )
    return (
        f"the broker does not allow session.timeout.ms={settings.session_timeout_ms}, its limits are {limits}. Set "
        "session.timeout.ms of the worker within them, or change them on all brokers"
    )


def _no_right(settings: GroupSettings, detail: str) -> str:
    return (
        f"the user of the worker has no right to it. Allow it to read the group, as in: kafka-acls --add "
        f'--allow-principal User:<name> --operation Read --group "{settings.group_id}"'
    )


def _full(settings: GroupSettings, detail: str) -> str:
    return "it has as many members as brokers allow (group.max.size). Stop a member, or raise that limit"


def _bad_name(settings: GroupSettings, detail: str) -> str:
    return "brokers take no such name. Set another group.id"


def _login(settings: GroupSettings, detail: str) -> str:
    mechanism = "" if settings.sasl is None else f" with {settings.sasl.mechanism}"
    return (
        f"a broker refuses the login{mechanism}: {detail}. Check sasl.mechanism, sasl.jaas.config and security.protocol"
    )


def _encryption(settings: GroupSettings, detail: str) -> str:
    return (
        f"no encrypted connection to a broker comes about: {detail}. Check ssl.truststore.location (who has signed the "
        "broker's certificate), ssl.keystore.location (where brokers want one of the worker), bootstrap.servers (the "
        "names have to be those of the certificate) and security.protocol"
    )


def _old_broker(settings: GroupSettings, detail: str) -> str:
    return f"the broker does not know a request that is needed: {detail}. Kafka 2.4 and newer have all of them"


def _other(settings: GroupSettings, detail: str) -> str:
    return f"the broker answers {detail}. Its log may say more"


_TEXTS: Final[Mapping[str, Callable[[GroupSettings, str], str]]] = {
    "INCONSISTENT_GROUP_PROTOCOL": _other_members,
    INVALID_SESSION_TIMEOUT: _session,
    "GROUP_AUTHORIZATION_FAILED": _no_right,
    "GROUP_MAX_SIZE_REACHED": _full,
    "INVALID_GROUP_ID": _bad_name,
    LOGIN_REFUSED: _login,
    "UNSUPPORTED_SASL_MECHANISM": _login,
    "ILLEGAL_SASL_STATE": _login,
    TLS_FAILED: _encryption,
    "UNSUPPORTED_VERSION": _old_broker,
}
