"""The place of a distributed worker among the workers of its group.

``WorkerGroup`` applies each round: it starts the assigned units, stops the revoked ones, and knows the leader.

Threads: the herder's, except the methods of ``GroupEvents``, which the member calls on its own threads: they use
immutable values, and post. ``assign`` may read the config topic; only ``assign`` uses the leader's memory.
Source: DistributedHerder (handleRebalanceCompleted) and WorkerCoordinator of Kafka Connect; KIP-415.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from penstock.errors import ConnectException, KafkaException
from penstock.herder.cluster.assignment import Dealt, LeaderMemory, LedRound, plan_round
from penstock.herder.cluster.connect_protocol import (
    Assignment,
    AssignmentError,
    BadProtocolException,
    MemberMetadata,
    Subprotocol,
    decode_assignment,
    encode_metadata,
    offered,
)
from penstock.herder.cluster.group_metrics import RoundCounts
from penstock.herder.control_plane import ControlPlane, Membership, NotHereException, RebalanceExpectedException
from penstock.kafka.group.events import GroupEvents, GroupRefusedException, GroupView, RoundJoined
from penstock.kafka.group.session import GroupMetrics
from penstock.model.cluster_config import ClusterConfig
from penstock.model.states import NOTHING, Unit, Units, all_units
from penstock.settings import DistributedSettings

log = logging.getLogger(__name__)

#: The number of times that a worker tries to read the config topic before it stops its instances.
_SYNC_TRIES: Final = 5
#: The shortest pause between two of them, also where lost work does not wait: each costs the others a round.
_LEAST_BACK_OFF_S: Final = 1.0
_CLOSE_S: Final = 3.0
_NOT_DEALT: Final = "Worker is starting up: its group has not assigned the work yet."
_NO_LEADER: Final = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
)


class GroupMembership(Protocol):
    """The part of ``penstock.kafka.group.GroupMember`` that is used here; see there."""

    @property
    def view(self) -> GroupView: ...

    @property
    def metrics(self) -> GroupMetrics: ...

    def start(self) -> None: ...

    def rejoin(self, reason: str) -> None: ...

    def polled(self) -> None: ...

    def leave(self, reason: str) -> None: ...

    def close(self, timeout_s: float, reason: str = ...) -> bool: ...


@dataclass(frozen=True)
class GroupPlace:
    """A worker's place in its group.

    Attributes:
        member_id: The id that the broker gave it; empty before the first round.
        generation: The generation of its last round.
        protocol: The protocol of that round; None before the first.
        leader_id: The leader; None if unknown.
        leader_url: Its REST address.
        config_offset: The offset of the config topic at the assignment.
        assigned: The units that this worker is to run.
        leaving: The units that it is stopping, which the leader must not assign to other workers yet.
    """

    member_id: str = ""
    generation: int = 0
    protocol: Subprotocol | None = None
    leader_id: str | None = None
    leader_url: str | None = None
    config_offset: int = -1
    assigned: Units = NOTHING
    leaving: Units = NOTHING

    @property
    def leads(self) -> bool:
        """True if this worker leads."""
        return self.leader_id is not None and self.leader_id == self.member_id


class WorkerGroup(Membership, GroupEvents):
    """A worker's membership.

    Args:
        plane: The shared state of requests.
        settings: The worker's settings.
        url: Its REST address for other workers.
        new_member: Makes its member of the Kafka group.
        clock_ms: Milliseconds since the epoch.

    Attributes:
        settings: The worker's settings.
        member: Its member of the Kafka group.
        place: The known place in the group; read by any thread.
        dealt: The work that this worker has assigned, if it is the leader; read by any thread.
        rounds: The counts of its rounds.
        on_round: Called after each round that has come into force here, with True if this worker leads.
    """

    sole = False

    def __init__(
        self,
        plane: ControlPlane,
        settings: DistributedSettings,
        url: str,
        new_member: Callable[[GroupEvents], GroupMembership],
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self._plane = plane
        self.settings = settings
        self._url = url
        self.member = new_member(self)
        self._clock_ms = clock_ms
        self.rounds = RoundCounts(time.monotonic, settings.sample_window)
        self.on_round: Callable[[bool], None] = lambda leads: None
        self.place = GroupPlace()
        self.dealt = Dealt()
        self._ready = False
        # The reason why Kafka does not admit it; empty if it does.
        self._refusal = ""
        # Incremented when the worker drops out: the assignments of earlier rounds no longer count. Under the lock, like
        # the place: the member's thread takes all work away while the herder's thread may be about to note a change.
        self._life = 0
        self._moving = threading.Lock()
        # The assignments of rounds that have not come into force here yet, by generation: the next join may be sent
        # before that, and must name them.
        self._coming: dict[int, Units] = {}
        self._taking = asyncio.Lock()
        self._round = asyncio.Event()
        self._planned: asyncio.TimerHandle | None = None
        #: The config topic must be known up to this offset for an assignment of the present configuration.
        self._expected = -1
        self._breath: asyncio.Task[None] | None = None
        # Only the member's thread uses these.
        self._memory = LeaderMemory()

    # ------------------------------------------------------------------ Membership
    @property
    def obstacle(self) -> str | None:
        return self._refusal or (None if self._ready else _NOT_DEALT)

    @property
    def generation(self) -> int:
        return self.place.generation

    def begin(self) -> None:
        self.member.start()
        self._breath = self._plane.loop.begin("Showing the group that the herder is alive", self._breathe())

    def assigned(self, config: ClusterConfig) -> Units:
        return self.place.assigned

    def require_leader(self, config: Mapping[str, str | None] | None = None) -> None:
        # Invariant 8.
        if not self.place.leads:
            raise NotHereException(_NO_LEADER, self.place.leader_url, config)

    def require_owner(self, unit: Unit) -> None:
        place = self.place
        if unit in set(place.assigned):
            return
        raise NotHereException(_NO_LEADER, self.dealt.owners.get(unit) if place.leads else place.leader_url)

    def require_stable(self) -> None:
        if self.place.config_offset < self._expected:
            raise RebalanceExpectedException

    async def steady(self, *, dealt: bool) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.rebalance_timeout_ms / 1000
        while (left_s := end - loop.time()) > 0:
            place = self.place
            if place.leader_id is not None and (not dealt or place.config_offset >= self._expected):
                return
            await self.next_round(left_s)

    def configured(self, before: ClusterConfig, after: ClusterConfig) -> None:
        if after.task_counts != before.task_counts:
            self._expected = after.offset
            self._deal_if_changed(after)

    async def close(self) -> None:
        if self._breath is not None:
            self._breath.cancel()
        if self._planned is not None:
            self._planned.cancel()
        await self._plane.loop.off_loop("leave-group", lambda: self.member.close(_CLOSE_S, "the worker stops"))

    async def next_round(self, timeout_s: float) -> None:
        """Waits for the next round, at most for this time."""
        try:
            await asyncio.wait_for(self._round.wait(), timeout_s)
        except TimeoutError:
            return

    def heard_since(self, since_s: float) -> bool:
        """True if the broker has answered a heartbeat that was sent after a monotonic time. Thread: any."""
        heard_s = self.member.metrics.last_answered_s
        return heard_s is not None and heard_s > since_s and self.member.view.generation == self.place.generation

    def delay_left_ms(self) -> int | None:
        """The milliseconds until the group assigns the work of a lost worker; None if no such work waits."""
        if self._planned is None:
            return None
        return max(0, round((self._planned.when() - asyncio.get_running_loop().time()) * 1000))

    # ------------------------------------------------------------------ GroupEvents, threads of the member
    def metadata(self) -> Sequence[tuple[str, bytes]]:
        offset = self._plane.parts.config.snapshot.offset
        with self._moving:
            place = self.place
            held = Units.union((place.assigned, place.leaving, *self._coming.values()))
        current = None
        if held and place.leader_id is not None:
            current = Assignment(place.leader_id, place.leader_url or "", place.config_offset, held)
        told = MemberMetadata(self._url, offset, current)
        return [(one.value, encode_metadata(told, one.version)) for one in offered(self.settings.connect_protocol)]

    def before_join(self, generation: int) -> None:
        self.rounds.begins()
        timeout_s = self.settings.rebalance_timeout_ms / 1000
        try:
            self._plane.loop.submit(self.ready_to_join).result(timeout_s)
        except (ConnectException, TimeoutError) as error:
            log.warning("Some tasks or connectors have not ended before the group assigns them again: %s", error)

    def assign(
        self, protocol: str, leader: str, members: Mapping[str, bytes], generation: int, last_completed: int
    ) -> Mapping[str, bytes]:
        store, delay_ms = self._plane.parts.config, self.settings.max_rebalance_delay_ms
        config = store.snapshot
        led = LedRound(protocol, leader, members, generation, last_completed, self._clock_ms())
        plan = plan_round(led, config, self._memory, delay_ms)
        if plan.behind_offset is not None:
            try:
                config = store.refresh(self.settings.worker_sync_timeout_ms / 1000)
            except (ConnectException, KafkaException) as error:
                log.warning("The config topic cannot be read: %s", error)
            plan = plan_round(led, config, self._memory, delay_ms)
        self._memory = plan.memory
        dealt = Dealt(config.task_counts, plan.urls, plan.owners)
        self._plane.loop.post(lambda: setattr(self, "dealt", dealt))
        return plan.assignments

    def joined(self, joined: RoundJoined) -> None:
        self._refusal = ""
        self.rounds.ends(joined.generation)
        try:
            told = decode_assignment(joined.assignment)
        except BadProtocolException as error:
            log.error("The leader's assignment cannot be read, and this worker joins the group again: %s", error)
            self.member.rejoin("an assignment could not be read")
            return
        with self._moving:
            life, self._coming[joined.generation] = self._life, told.assigned
        self._plane.loop.spawn("Applying the assignment of the group", lambda: self._take_over(joined, told, life))

    def lost(self, reason: str) -> None:
        self.rounds.lost()
        with self._moving:
            self._life += 1
            self._coming.clear()
            # Before the member asks for the metadata of its next join.
            self.place = replace(self.place, assigned=NOTHING, leaving=NOTHING, leader_id=None, leader_url=None)
        self._plane.loop.post(lambda: self._drop_out(reason))

    def refused(self, error: GroupRefusedException) -> None:
        self._refusal = str(error)

    # ------------------------------------------------------------------ the herder's thread
    async def _breathe(self) -> None:
        """Reports to the member that the herder's thread is alive."""
        while True:
            self.member.polled()
            await asyncio.sleep(min(1.0, self.settings.rebalance_timeout_ms / 4000))

    async def _take_over(self, joined: RoundJoined, told: Assignment, life: int) -> None:
        """Applies an ended round: stops the revoked units, then runs the assigned ones."""
        async with self._taking:
            if life != self._life:
                return
            protocol, before = Subprotocol(joined.protocol), self.place
            eager = protocol is Subprotocol.EAGER
            place = GroupPlace(
                joined.member_id, joined.generation, protocol, told.leader, told.leader_url, told.config_offset
            )
            if not self._move(
                lambda held: replace(
                    place, assigned=NOTHING if eager else held.assigned - told.revoked, leaving=told.revoked
                ),
                life,
            ):
                return
            self._log_round(told)
            self._plane.reconcile()
            await self._plane.running.settled(told.revoked if not eager else self._plane.running.units)
            if not self._move(lambda held: replace(held, leaving=NOTHING), life):
                return
            if told.error is not AssignmentError.NONE:
                self._move(lambda held: held, life, come=True)
                await self._catch_up(told.config_offset, life)
                self.member.rejoin("the leader had not read all of the config topic")
                return
            if eager and before.protocol not in (None, Subprotocol.EAGER):
                # Other workers may still run units that this round assigns: they learn of the other protocol in this
                # round, too.
                self._move(lambda held: held, life, come=True)
                self.member.rejoin("the group uses the eager protocol now")
                return
            if not await self._catch_up(told.config_offset, life):
                self._move(lambda held: held, life, come=True)
                return
            if self._move(lambda held: replace(held, assigned=held.assigned + told.assigned), life, come=True):
                self._plane.reconcile()
                self._came_into_force(told)

    def _move(self, change: Callable[[GroupPlace], GroupPlace], life: int, *, come: bool = False) -> bool:
        """Changes the place; False if the worker has left the group since that life began.

        Args:
            change: Returns the new place for the former one.
            life: The value of ``_life`` when the change was decided.
            come: True if the round's assignment is in force, or never will be.
        """
        with self._moving:
            if life == self._life:
                self.place = change(self.place)
                if come:
                    self._coming.pop(self.place.generation, None)
            return life == self._life

    def _came_into_force(self, told: Assignment) -> None:
        self._ready = True
        self._round.set()
        self._round = asyncio.Event()
        if told.revoked:
            self.member.rejoin("units were revoked")
        self._plan_rejoin(told.delay_ms)
        if self.place.leads:
            self._deal_if_changed(self._plane.snapshot)
        self.rounds.in_force(self.place.generation)
        self.on_round(self.place.leads)

    def _log_round(self, told: Assignment) -> None:
        log.info(
            "Round %d of the group %s: %s leads%s; %d units are new, %d are revoked, %d were there%s",
            self.place.generation,
            self.settings.group_id,
            "this worker" if self.place.leads else told.leader_url,
            "" if self.place.protocol is None else f" ({self.place.protocol.value})",
            len(told.assigned),
            len(told.revoked),
            len(self.place.assigned),
            f"; the next one is in {told.delay_ms} ms" if told.delay_ms else "",
        )

    def _plan_rejoin(self, delay_ms: int) -> None:
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        if delay_ms > 0:
            self._planned = asyncio.get_running_loop().call_later(
                delay_ms / 1000, lambda: self.member.rejoin("the delay for the work of a lost worker is over")
            )

    def _deal_if_changed(self, config: ClusterConfig) -> None:
        """Requests a round, as the leader, if the configuration differs from the assigned work."""
        if self.place.leads and config.task_counts != self.dealt.task_counts:
            self.member.rejoin("connectors or numbers of tasks have changed")

    async def _catch_up(self, offset: int, life: int) -> bool:
        """Reads the config topic up to an offset; True if that succeeded and the assignment still counts."""
        store, timeout_s = self._plane.parts.config, self.settings.worker_sync_timeout_ms / 1000
        left = False
        for tries_left in range(_SYNC_TRIES, 0, -1):
            if store.snapshot.offset >= offset or life != self._life:
                break
            try:
                await self._plane.loop.off_loop("read-configs", lambda: store.refresh(timeout_s))
            except (ConnectException, KafkaException) as error:
                log.warning("The config topic cannot be read, and this worker leaves its group for now: %s", error)
                self.member.leave("the config topic could not be read in time")
                left = True
                await asyncio.sleep(self._back_off_s(tries_left))
        if store.snapshot.offset < offset and self._move(lambda held: replace(held, assigned=NOTHING), life):
            log.error("This worker cannot read the config topic, and stops its connectors and tasks")
            self._plane.reconcile()
        if left:
            self.member.rejoin("the config topic is tried again")
        return not left and life == self._life

    def _back_off_s(self, tries_left: int) -> float:
        if self.settings.connect_protocol == "eager":
            return self.settings.worker_unsync_backoff_ms / 1000
        return max(_LEAST_BACK_OFF_S, self.settings.max_rebalance_delay_ms / 10_000 / tries_left)

    def _drop_out(self, reason: str) -> None:
        log.warning("This worker stops its connectors and tasks: %s", reason)
        self._plan_rejoin(0)
        self._plane.reconcile()

    async def ready_to_join(self) -> None:
        """Waits until other workers may run the units that this worker does not name: all of them in the eager
        protocol.

        A deleted unit is not named either. A new leader does not know that it was ever assigned, and would leave it
        running.
        """
        place, life = self.place, self._life
        if place.protocol is Subprotocol.EAGER:
            gone = place.assigned
        else:
            gone = place.assigned - all_units(self._plane.snapshot.task_counts)
        if gone:
            if place.protocol is Subprotocol.EAGER:
                self._move(lambda held: replace(held, assigned=NOTHING), life)
                self._plane.reconcile()
            await self._plane.running.settled(gone)
            self._move(lambda held: replace(held, assigned=held.assigned - gone), life)
            self._plane.reconcile()
        if not self.place.assigned:
            await self._plane.running.settled(self._plane.running.units)
