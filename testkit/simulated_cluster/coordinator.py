"""Kafka's coordinator of a group, and the members that talk to it, in virtual time.

Main types: ``Coordinator``; ``SimulatedMember``, what a ``WorkerGroup`` takes for its member of the group.

It follows the classic protocol as far as a group of workers can tell: a round begins when a member joins, leaves, or is
not heard of for the session's time; the others hear of it with their next heartbeat, and the round goes on without
those that have not joined within the rebalance time. Answers take a moment, and may be lost.

Thread: that of the simulation.
Source: KIP-415, KIP-394; the Kafka protocol guide, "Group Membership API".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.kafka.group.events import GroupEvents, GroupView, RoundJoined
from penstock.kafka.group.session import GroupMetrics
from testkit.simulated_cluster.clock import NodeLoop, VirtualLoop

_RETRY_S: Final = 0.1


class Owner(GroupEvents, Protocol):
    """A ``WorkerGroup``, whose wait before a join is a coroutine here."""

    async def ready_to_join(self) -> None: ...


@dataclass
class _Seat:
    """A member as the coordinator knows it."""

    member: SimulatedMember
    protocols: dict[str, bytes] = field(default_factory=dict)
    heard_s: float = 0.0
    joined: bool = False


class Coordinator:
    """The group.

    Args:
        loop: The clock.
        delay_s: How long a request or an answer takes.
        session_s, rebalance_s: As the workers set them.

    Attributes:
        reachable: Whether anybody can talk to it.
    """

    def __init__(
        self, loop: VirtualLoop, delay_s: Callable[[], float], *, session_s: float, rebalance_s: float
    ) -> None:
        self.loop = loop
        self.delay_s = delay_s
        self.session_s = session_s
        self.rebalance_s = rebalance_s
        self.reachable = True
        self.generation = 0
        self.seats: dict[str, _Seat] = {}
        self.leader: str | None = None
        self._preparing = False
        self._assigning = False
        self._round: asyncio.TimerHandle | None = None
        self._count = 0
        loop.create_task(self._expire())

    # ------------------------------------------------------------------ requests
    def join(self, member: SimulatedMember, protocols: Mapping[str, bytes]) -> bool:
        """A member joins, or joins again; False where it is none any more."""
        member_id = member.member_id
        if member_id and member_id not in self.seats:
            return False
        if not member_id:
            self._count += 1
            member_id = member.member_id = f"{member.node}-{self._count:03}"
            self.seats[member_id] = _Seat(member)
        seat = self.seats[member_id]
        seat.protocols, seat.joined, seat.heard_s = dict(protocols), True, self.loop.time()
        self._prepare()
        self._complete_if_all()
        return True

    def heartbeat(self, member_id: str, generation: int) -> str:
        """Returns the answer to a heartbeat: ``ok``, ``rebalance``, ``old`` (generation) or ``unknown`` (member)."""
        seat = self.seats.get(member_id)
        if seat is None:
            return "unknown"
        seat.heard_s = self.loop.time()
        if self._preparing:
            return "ok" if seat.joined else "rebalance"
        return "ok" if self._assigning or generation == self.generation else "old"

    def leave(self, member_id: str) -> None:
        """A member leaves."""
        if self.seats.pop(member_id, None) is not None:
            self._prepare()
            self._complete_if_all()

    def sync(self, leader: str, generation: int, assignments: Mapping[str, bytes]) -> None:
        """The leader says what each member is to be told."""
        if generation != self.generation or leader != self.leader or not self._assigning:
            return
        self._assigning = False
        protocol = self._protocol()
        for member_id, seat in self.seats.items():
            told = assignments.get(member_id)
            if told is not None:
                seat.member.answer(RoundJoined(generation, member_id, protocol, told), seat.member.request)

    # ------------------------------------------------------------------ inside
    def _prepare(self) -> None:
        if self._preparing or not self.seats:
            return
        self._preparing, self._assigning = True, False
        for seat in self.seats.values():
            # Who joined to begin this round has joined; the others have to.
            seat.joined = seat.joined and seat.heard_s == self.loop.time()
        self._round = self.loop.call_later(self.rebalance_s, self._complete)

    def _complete_if_all(self) -> None:
        if self._preparing and all(seat.joined for seat in self.seats.values()):
            self._complete()

    def _complete(self) -> None:
        if not self._preparing:
            return
        if self._round is not None:
            self._round.cancel()
        self._preparing = False
        self.seats = {one: seat for one, seat in self.seats.items() if seat.joined}
        if not self.seats:
            self.leader = None
            return
        self.generation += 1
        self._assigning = True
        if self.leader not in self.seats:
            self.leader = next(iter(self.seats))
        protocol = self._protocol()
        members = {one: seat.protocols[protocol] for one, seat in self.seats.items()}
        for seat in self.seats.values():
            seat.joined = False
        leader, generation = self.seats[self.leader].member, self.generation
        self.loop.call_later(self.delay_s(), leader.asked_to_assign, protocol, members, generation)

    def _protocol(self) -> str:
        common = set.intersection(*(set(seat.protocols) for seat in self.seats.values()))
        first = next(iter(self.seats.values())).protocols
        return next(one for one in first if one in common)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self.session_s / 20)
            now = self.loop.time()
            late = [
                one
                for one, seat in self.seats.items()
                if now - seat.heard_s > self.session_s and not (self._preparing and seat.joined)
            ]
            for member_id in late:
                self.leave(member_id)


class SimulatedMember:
    """One member.

    Args:
        coordinator: Of its group.
        node: Name of the worker.
        node_loop: Its herder's thread, which freezes and dies with the process.
        owner: Is told what the rounds bring.
        heartbeat_s: How often it is heard.
        lost_answers: Whether the answer that is about to come gets lost.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        node: str,
        node_loop: NodeLoop,
        owner: Owner,
        *,
        heartbeat_s: float,
        lost_answers: Callable[[], bool],
    ) -> None:
        self.node = node
        self.member_id = ""
        self._coordinator = coordinator
        self._node_loop = node_loop
        self._owner = owner
        self._heartbeat_s = heartbeat_s
        self._lost_answers = lost_answers
        self._generation = -1
        self._completed = -1
        self._joining = False
        self._wanted = True
        self._in_group = False
        self._silent_s = 0.0
        self._heard_s: float | None = None
        self._joins: asyncio.Task[None] | None = None
        self._again = False
        #: Of the request to join that is under way: the answer to another one does not come any more.
        self.request = 0

    @property
    def view(self) -> GroupView:
        """See ``GroupMember``."""
        return GroupView(self.member_id, self._generation, None, self._in_group)

    @property
    def metrics(self) -> GroupMetrics:
        """See ``GroupMember``: when it was heard last."""
        return GroupMetrics(last_answered_s=self._heard_s)

    # ------------------------------------------------------------------ the owner's calls
    def start(self) -> None:
        """See ``GroupMember``."""
        self._coordinator.loop.create_task(self._beat())
        self.rejoin("first")

    def rejoin(self, reason: str) -> None:
        """See ``GroupMember``."""
        self._wanted = True
        if self._joining or (self._joins is not None and not self._joins.done()):
            # Requests come one after the other.
            self._again = True
            return
        self._joins = self._coordinator.loop.create_task(self._join())

    def polled(self) -> None:
        """See ``GroupMember``."""

    def leave(self, reason: str) -> None:
        """See ``GroupMember``."""
        self._wanted = False
        self._depart()

    def close(self, timeout_s: float, reason: str = "") -> bool:
        """See ``GroupMember``."""
        self._wanted = False
        self._depart()
        return True

    # ------------------------------------------------------------------ the coordinator's answers
    def asked_to_assign(self, protocol: str, members: Mapping[str, bytes], generation: int) -> None:
        """It leads, and decides."""

        def decide() -> None:
            told = self._owner.assign(protocol, self.member_id, members, generation, self._completed)
            leader, delay = self.member_id, self._coordinator.delay_s()
            if self._coordinator.reachable:
                self._coordinator.loop.call_later(delay, self._coordinator.sync, leader, generation, told)
            else:
                self._coordinator.loop.call_later(self._heartbeat_s, self._join_anew, "what it decided got lost")

        self._node_loop.post(decide)

    def answer(self, joined: RoundJoined, request: int) -> None:
        """The round is over."""
        if self._lost_answers():
            # The client asks again when its request is over, and is told to join.
            self._coordinator.loop.call_later(self._heartbeat_s, self._join_anew, "an answer was lost")
            return

        def take() -> None:
            if joined.member_id != self.member_id or request != self.request:
                return
            self._generation = self._completed = joined.generation
            self._joining, self._in_group = False, True
            self._owner.joined(joined)
            if self._again:
                self.rejoin("asked meanwhile")

        self._coordinator.loop.call_later(self._coordinator.delay_s(), self._node_loop.post, take)

    # ------------------------------------------------------------------ inside
    def _depart(self) -> None:
        if self.member_id and self._coordinator.reachable:
            self._coordinator.leave(self.member_id)
        self.member_id, self._generation = "", -1
        self._in_group = self._joining = False
        self.request += 1

    async def _join(self) -> None:
        while self._wanted and not self._node_loop.dead:
            self._again = False
            await self._owner.ready_to_join()
            await asyncio.sleep(self._coordinator.delay_s())
            if self._node_loop.has_died():
                return
            if self._node_loop.frozen or not self._coordinator.reachable:
                await asyncio.sleep(_RETRY_S)
                continue
            self.request += 1
            self._joining = self._coordinator.join(self, dict(self._owner.metadata()))
            if self._joining:
                return
            self.member_id, self._in_group = "", False
            self._owner.lost("not a member any more")

    async def _beat(self) -> None:
        while not self._node_loop.dead:
            await asyncio.sleep(self._heartbeat_s)
            if self._node_loop.frozen or not self.member_id or not self._wanted:
                continue
            if not self._coordinator.reachable:
                self._silent_s += self._heartbeat_s
                if self._in_group and self._silent_s >= self._heartbeat_s:
                    self._drop_out("no coordinator")
                continue
            self._silent_s = 0.0
            answered = self._coordinator.heartbeat(self.member_id, self._generation)
            if answered == "unknown" or (answered == "old" and not self._joining):
                self.member_id = ""
                self._drop_out("not a member any more")
            elif answered == "ok":
                self._heard_s = self._coordinator.loop.time()
            elif answered == "rebalance":
                self._join_anew("the group deals out its work")

    def _drop_out(self, reason: str) -> None:
        self._in_group = False
        self._owner.lost(reason)
        self._join_anew(reason)

    def _join_anew(self, reason: str) -> None:
        """Nothing comes of the request that is under way."""
        self._joining = False
        self.request += 1
        self.rejoin(reason)
