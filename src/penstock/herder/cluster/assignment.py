"""One round of the group, as its leader makes it: metadata of the members in, assignments out, both as bytes.

``plan_round`` decides a round, if the leader has read the config topic as far as every member. The sub-protocol chooses
between ``assign``, which moves as little as possible, and ``assign_eagerly``, which assigns everything again. The rules
of ``assign``:

- A unit that is not configured any more, or runs on two members, is revoked. A duplicate is assigned again in a later
  round.
- A new unit goes to the member with the least work, connectors first, then tasks.
- The units of a lost member wait for it to come back, up to ``max_delay_ms``. Afterwards members that joined without
  work get them; if there are none, the units count as new.
- While no units wait, members with more than their share give the excess back, and the next round assigns it. If that
  happens in several rounds in a row, the next time is delayed, longer each time.

Pure, except for a log line. The leader keeps the ``LeaderMemory``; another leader starts with an empty one.
``python -m differential.cluster`` compares rounds with Java's.

Source: KIP-415; IncrementalCooperativeAssignor and EagerAssignor of org.apache.kafka.connect.runtime.distributed.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import MappingProxyType
from typing import Final, TypeVar

from penstock.herder.cluster.connect_protocol import (
    Assignment,
    AssignmentError,
    BadProtocolException,
    MemberMetadata,
    Subprotocol,
    decode_metadata,
    encode_assignment,
)
from penstock.model.cluster_config import ClusterConfig
from penstock.model.states import NOTHING, ConnectorTaskId, Unit, Units, all_units

T = TypeVar("T", bound=Hashable)
log = logging.getLogger(__name__)
#: The factor of the delay if rounds that revoke units for the balance follow each other.
_BACK_OFF_FACTOR: Final = 40


@dataclass(frozen=True)
class LedRound:
    """The input of a round.

    Attributes:
        protocol: The name of the sub-protocol that the broker has picked.
        leader: The member id of this worker.
        members: The metadata of each member, the leader's included, by member id.
        generation: The generation of this round.
        last_completed: The generation of the last round whose assignment has reached this worker; -1 for none.
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
            members must join again, unless the leader reads that far and plans the round again.
    """

    assignments: Mapping[str, bytes]
    memory: LeaderMemory
    delay_ms: int = 0
    urls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    owners: Mapping[Unit, str] = field(default_factory=lambda: MappingProxyType({}))
    behind_offset: int | None = None


@dataclass(frozen=True)
class Dealt:
    """The work that the leader has assigned: task counts, and REST addresses of members and of each unit's owner."""

    task_counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    members: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    owners: Mapping[Unit, str] = field(default_factory=lambda: MappingProxyType({}))


def plan_round(led: LedRound, config: ClusterConfig, memory: LeaderMemory, max_delay_ms: int) -> PlannedRound:
    """Decides a round; ``max_delay_ms`` is the worker's ``scheduled.rebalance.max.delay.ms``.

    A member whose metadata cannot be read counts as one that runs nothing. It gets no work, because it may not
    understand an assignment.
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


def _running(metadata: MemberMetadata) -> Units:
    return NOTHING if metadata.current is None else metadata.current.assigned


@dataclass(frozen=True)
class LeaderMemory:
    """The leader's memory between two rounds.

    Attributes:
        assigned: All units that run after the last round if it succeeded, and the lost units that are not assigned yet.
        revoked: The units revoked in the last round.
        generation: The generation of the last round; -1 before the first.
        members: The members of the last round.
        took_for_balance: True if the last round revoked units only for the balance.
        rounds_taking: The number of such rounds in a row.
        candidates: Members that joined without work while lost units wait, in the order of joining.
        wait_until_ms: The time until which lost units wait, or balancing is delayed; 0 for neither.
        delay_ms: The delay that the leader sent to the members for that.
    """

    assigned: Units = NOTHING
    revoked: Units = NOTHING
    generation: int = -1
    members: frozenset[str] = frozenset()
    took_for_balance: bool = False
    rounds_taking: int = 0
    candidates: tuple[str, ...] = ()
    wait_until_ms: int = 0
    delay_ms: int = 0

    def without_delay(self) -> LeaderMemory:
        return replace(self, candidates=(), wait_until_ms=0, delay_ms=0)


@dataclass(frozen=True)
class Round:
    """The input of a round.

    Attributes:
        configured: All connectors and tasks of the config topic.
        running: The units that each member reports; has every member.
        generation: The generation of the group that this round makes.
        last_completed: The last generation in which this worker got an assignment.
        now_ms: The time.
    """

    configured: Units
    running: Mapping[str, Units]
    generation: int
    last_completed: int
    now_ms: int


@dataclass(frozen=True)
class RoundPlan:
    """The result of a round.

    Attributes:
        assigned: The units that each member gets in addition.
        revoked: The units that each member gives back.
        owners: All units that each member runs afterwards.
        delay_ms: The time after which the members join again; 0 for never.
    """

    assigned: Mapping[str, Units]
    revoked: Mapping[str, Units]
    owners: Mapping[str, Units]
    delay_ms: int


@dataclass
class _Loads:
    """The units that each member will run; changes while a round is decided."""

    connectors: dict[str, list[str]] = field(default_factory=dict)
    tasks: dict[str, list[ConnectorTaskId]] = field(default_factory=dict)

    @classmethod
    def of(cls, running: Mapping[str, Units]) -> _Loads:
        members = sorted(running)
        return cls(
            {one: list(running[one].connectors) for one in members}, {one: list(running[one].tasks) for one in members}
        )

    def units(self) -> dict[str, Units]:
        return {one: Units.of(self.connectors[one], self.tasks[one]) for one in self.connectors}

    def remove(self, gone: Mapping[str, Units]) -> None:
        for member, units in gone.items():
            left = Units.of(self.connectors[member], self.tasks[member]) - units
            self.connectors[member], self.tasks[member] = list(left.connectors), list(left.tasks)

    def idle(self) -> list[str]:
        return [one for one in self.connectors if not self.connectors[one] and not self.tasks[one]]

    def deal(self, units: Units) -> None:
        """Assigns units to the members with the least work of their kind."""
        _deal(self.connectors, units.connectors)
        _deal(self.tasks, units.tasks)

    def deal_round(self, units: Units, members: Sequence[str]) -> None:
        """Assigns units to these members in turn, regardless of their load."""
        for number, connector in enumerate(units.connectors):
            self.connectors[members[number % len(members)]].append(connector)
        for number, task in enumerate(units.tasks):
            self.tasks[members[number % len(members)]].append(task)


def assign(memory: LeaderMemory, now: Round, max_delay_ms: int) -> tuple[LeaderMemory, RoundPlan]:
    """Decides one round of the incremental protocol; see the module for the rules.

    Returns:
        The new memory, and the plan for the members.
    """
    active = Units.union(now.running[member] for member in sorted(now.running))
    previous = _previous(memory, now, active)
    deleted = previous - now.configured
    lost = (previous - active - deleted).ordered()
    created = (now.configured - previous - active).ordered()

    leaving = deleted + _twice(now.running)
    revoked = {member: units & leaving for member, units in now.running.items()}
    loads = _Loads.of(now.running)
    loads.remove(revoked)

    memory, dealt_again = _lost_work(memory, now, lost, loads, max_delay_ms)
    memory, surplus = _balance(memory, now, loads, max_delay_ms)
    loads.remove(surplus)
    for member, units in surplus.items():
        revoked[member] += units
    loads.deal(created + dealt_again)

    owners = loads.units()
    taken = {member: units for member, units in revoked.items() if units}
    memory = replace(
        memory,
        assigned=Units.union(owners.values()) - Units.union(taken.values()) + lost,
        revoked=Units.union(taken.values()),
        generation=now.generation,
        members=frozenset(now.running),
    )
    added = {member: units - now.running[member] for member, units in owners.items()}
    return memory, RoundPlan(added, taken, owners, memory.delay_ms)


def _previous(memory: LeaderMemory, now: Round, active: Units) -> Units:
    """The units that ran after the last round, as far as the leader can still rely on it."""
    # If the answers of a round did not reach this worker, they may not have reached the other members either.
    previous = memory.assigned if memory.generation == now.last_completed else NOTHING
    # A member still runs a revoked unit: the last round did not come into force.
    return active if memory.revoked & active else previous


def _twice(running: Mapping[str, Units]) -> Units:
    connectors = Counter(one for units in running.values() for one in units.connectors)
    tasks = Counter(one for units in running.values() for one in units.tasks)
    return Units.of(
        (one for one, count in connectors.items() if count > 1), (one for one, count in tasks.items() if count > 1)
    )


def _lost_work(
    memory: LeaderMemory, now: Round, lost: Units, loads: _Loads, max_delay_ms: int
) -> tuple[LeaderMemory, Units]:
    """Decides on the units of a lost member.

    Returns:
        The new memory, and the lost units that are assigned as if they were new. Units for members that joined since
        are in ``loads`` already.
    """
    if not lost and not memory.took_for_balance:
        return memory.without_delay(), NOTHING
    # No member is lost, so the members did not get the last answer; or there is no delay.
    if (memory.wait_until_ms <= 0 and memory.members <= now.running.keys()) or max_delay_ms == 0:
        return memory, lost
    if 0 < memory.wait_until_ms <= now.now_ms:
        candidates = [one for one in memory.candidates if one in now.running]
        if candidates:
            loads.deal_round(lost, candidates)
        return replace(memory.without_delay(), took_for_balance=False), NOTHING if candidates else lost
    waits = memory.wait_until_ms > now.now_ms
    delay_ms = min(memory.wait_until_ms - now.now_ms, max_delay_ms) if waits else max_delay_ms
    candidates = [*memory.candidates, *(one for one in loads.idle() if one not in memory.candidates)]
    memory = replace(memory, candidates=tuple(candidates), delay_ms=delay_ms, wait_until_ms=now.now_ms + delay_ms)
    return memory, NOTHING


def _balance(
    memory: LeaderMemory, now: Round, loads: _Loads, max_delay_ms: int
) -> tuple[LeaderMemory, dict[str, Units]]:
    """The units that members give back because they run more than their share."""
    if memory.delay_ms:
        return replace(memory, took_for_balance=False), {}
    surplus = _surplus(now.configured, loads)
    if not surplus:
        if memory.took_for_balance:
            memory = replace(memory, took_for_balance=False, rounds_taking=0)
        return memory, {}
    if not memory.took_for_balance:
        return replace(memory, took_for_balance=True), surplus
    rounds = memory.rounds_taking + 1
    memory = replace(memory, rounds_taking=rounds)
    delay_ms = back_off_ms(rounds, max_delay_ms)
    if delay_ms == 0:
        return memory, surplus
    return replace(memory, delay_ms=delay_ms, wait_until_ms=now.now_ms + delay_ms), {}


def back_off_ms(rounds: int, max_delay_ms: int) -> int:
    """The delay of balancing after ``rounds`` rounds in a row that revoked units for the balance.

    >>> [back_off_ms(rounds, 300_000) for rounds in (1, 2, 3, 4)]
    [40, 1600, 64000, 300000]
    """
    if max_delay_ms <= 1:
        return max_delay_ms
    exponent = min(rounds, math.log(max_delay_ms) / math.log(_BACK_OFF_FACTOR))
    return min(int(math.pow(_BACK_OFF_FACTOR, exponent)), max_delay_ms)


def _surplus(configured: Units, loads: _Loads) -> dict[str, Units]:
    if not configured or len(loads.idle()) == len(loads.connectors):
        return {}
    connectors = _above_share(len(configured.connectors), loads.connectors)
    tasks = _above_share(len(configured.tasks), loads.tasks)
    members = [one for one in loads.connectors if one in connectors or one in tasks]
    return {one: Units.of(connectors.get(one, ()), tasks.get(one, ())) for one in members}


def _above_share(total: int, loads: Mapping[str, Sequence[T]]) -> dict[str, Sequence[T]]:
    """The units of each member above its share of one kind: its first units, which it has had the longest."""
    share, extras = divmod(total, len(loads))
    sizes = Counter(len(units) for units in loads.values())
    if sizes[share + 1] == extras and sizes[share] + sizes[share + 1] == len(loads):
        return {}
    above: dict[str, Sequence[T]] = {}
    for member, units in loads.items():
        if len(units) <= share:
            continue
        # If the number is not divisible, some members may keep one more than the others.
        allowed = share + 1 if extras > 0 else share
        extras -= 1
        if len(units) > allowed:
            above[member] = units[: len(units) - allowed]
    return above


def _deal(loads: dict[str, list[T]], units: Iterable[T]) -> None:
    """Assigns each unit to a member with the least; ties go by the load, then the id, before this call."""
    order = sorted(loads, key=lambda member: (len(loads[member]), member))
    left = list(reversed(list(units)))
    while left:
        least = len(loads[order[0]])
        level = next((place for place, one in enumerate(order) if len(loads[one]) > least), len(order))
        for member in order[:level]:
            if left:
                loads[member].append(left.pop())


def assign_eagerly(members: Iterable[str], configured: Units) -> Mapping[str, Units]:
    """Assigns first connectors, then tasks, one after the other to the members (at least one) in the order of their
    ids.

    Connectors and tasks are assigned separately: with one task each, one member of two would get all connectors.

    >>> assign_eagerly(["m2", "m1"], Units.of(["a", "b", "c"]))["m1"].connectors
    ('a', 'c')
    """
    ids = sorted(members)
    connectors: dict[str, list[str]] = {member: [] for member in ids}
    tasks: dict[str, list[ConnectorTaskId]] = {member: [] for member in ids}
    turns = cycle(ids)
    work = configured.ordered()
    for connector in work.connectors:
        connectors[next(turns)].append(connector)
    for task in work.tasks:
        tasks[next(turns)].append(task)
    return {member: Units.of(connectors[member], tasks[member]) for member in ids}
