"""One round of the group, as its leader makes it: metadata of the members in, assignments out, both as bytes.

Main function: ``plan_round``; types: ``LedRound`` (the input of a round), ``PlannedRound`` (its result), ``Dealt`` (the
part of the result that the leader keeps). The leader may assign only if it has read the config topic as far as every
member; then the sub-protocol decides the method. The codecs and assignors are in
``penstock.assignors.connect_protocol`` and ``penstock.assignors.assignment``.

Pure, except for a log line about a member that cannot be read; any thread. The leader keeps the ``LeaderMemory``.

Source: org.apache.kafka.connect.runtime.distributed.EagerAssignor, IncrementalCooperativeAssignor
(performAssignment).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.assignors.assignment import LeaderMemory, Round, assign, assign_eagerly
from penstock.assignors.connect_protocol import (
    Assignment,
    AssignmentError,
    BadProtocolException,
    MemberMetadata,
    Subprotocol,
    decode_metadata,
    encode_assignment,
)
from penstock.model.cluster_config import ClusterConfig
from penstock.model.states import NOTHING, Unit, Units, all_units

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LedRound:
    """The input of a round.

    Attributes:
        protocol: The name of the sub-protocol that the broker has picked.
        leader: The member id of this worker.
        members: The metadata of each member, the leader's included, by member id.
        generation: The generation of this round.
        last_completed: The generation of the last round whose assignment has reached this worker; -1 for none.
        now_ms: The time.
    """

    protocol: str
    leader: str
    members: Mapping[str, bytes]
    generation: int
    last_completed: int
    now_ms: int


@dataclass(frozen=True)
class PlannedRound:
    """The result of a round.

    Attributes:
        assignments: The assignment of each member.
        memory: The state that the leader keeps for later rounds.
        delay_ms: The time after which the members join again; 0 for never.
        urls: The REST address of each member, by id.
        owners: The REST address of the member that runs each unit once the round is over.
        behind_offset: If not None, a member has read the config topic up to this offset and the leader has not: all
            members must join again. A leader that can read that far within the time of a round does so, and plans the
            round again.
    """

    assignments: Mapping[str, bytes]
    memory: LeaderMemory
    delay_ms: int = 0
    urls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    owners: Mapping[Unit, str] = field(default_factory=lambda: MappingProxyType({}))
    behind_offset: int | None = None


@dataclass(frozen=True)
class Dealt:
    """The work that the leader has assigned.

    Attributes:
        task_counts: The number of tasks of each connector.
        members: The REST address of each member, by id.
        owners: The REST address of the member that runs each unit.
    """

    task_counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    members: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    owners: Mapping[Unit, str] = field(default_factory=lambda: MappingProxyType({}))


def plan_round(led: LedRound, config: ClusterConfig, memory: LeaderMemory, max_delay_ms: int) -> PlannedRound:
    """Decides a round.

    A member whose metadata cannot be read counts as one that runs nothing. It gets no work, because it may not
    understand an assignment.

    Args:
        led: The input of the round.
        config: The configuration that the leader has read.
        memory: The leader's state from earlier rounds.
        max_delay_ms: The worker's ``scheduled.rebalance.max.delay.ms``.
    """
    protocol = Subprotocol(led.protocol)
    told = _readable(led.members)
    leader_url = told[led.leader].url if led.leader in told else ""
    highest = max((metadata.config_offset for metadata in told.values()), default=-1)

    def encoded(assignments: Mapping[str, Assignment], otherwise: Assignment) -> dict[str, bytes]:
        return {
            member: encode_assignment(assignments.get(member, otherwise), protocol.version) for member in led.members
        }

    if highest > config.offset:
        mismatch = Assignment(led.leader, leader_url, highest, error=AssignmentError.CONFIG_MISMATCH)
        return PlannedRound(encoded({}, mismatch), memory, behind_offset=highest)

    configured = all_units(config.task_counts)
    urls = {member: metadata.url for member, metadata in told.items()}

    def owners(given: Mapping[str, Units]) -> dict[Unit, str]:
        return {unit: urls[member] for member, units in given.items() for unit in units}

    nothing = Assignment(led.leader, leader_url, config.offset)
    if protocol is Subprotocol.EAGER:
        shares = assign_eagerly(told, configured) if told else {}
        given = {member: Assignment(led.leader, leader_url, config.offset, units) for member, units in shares.items()}
        return PlannedRound(encoded(given, nothing), memory, 0, urls, owners(shares))

    running = {member: _running(metadata) for member, metadata in told.items()}
    now = Round(configured, running, led.generation, led.last_completed, led.now_ms)
    memory, plan = assign(memory, now, max_delay_ms)
    given = {
        member: Assignment(
            led.leader,
            leader_url,
            config.offset,
            plan.assigned[member],
            plan.revoked.get(member, NOTHING),
            plan.delay_ms,
        )
        for member in told
    }
    return PlannedRound(encoded(given, nothing), memory, plan.delay_ms, urls, owners(plan.owners))


def _running(metadata: MemberMetadata) -> Units:
    return NOTHING if metadata.current is None else metadata.current.assigned


def _readable(members: Mapping[str, bytes]) -> dict[str, MemberMetadata]:
    told: dict[str, MemberMetadata] = {}
    for member, data in members.items():
        try:
            told[member] = decode_metadata(data)
        except BadProtocolException as error:
            log.warning(
                "The member %s of the group gets no work, because its metadata cannot be read: %s", member, error
            )
    return told
