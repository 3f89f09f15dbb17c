"""The lifecycle of a group member: when it joins, and when it stops its work.

Main type: ``GroupLife``. ``penstock.kafka.group.member`` runs it on its thread, and starts a new one if it fails.
``coordinator`` implements the protocol, ``session`` the time limits. Heartbeats continue while the leader assigns and
while work stops. A member stops its work when a limit is exceeded or the broker does not know it; after the work has
stopped it joins again automatically.

Thread: the member's own.

Source: org.apache.kafka.connect.runtime.distributed.WorkerCoordinator, WorkerGroupMember.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from penstock.kafka.group.connections import Access, GroupCalls, GroupLoop, KafkaError, KafkaTimeoutError, error_code
from penstock.kafka.group.coordinator import GroupCoordinator
from penstock.kafka.group.events import (
    INVALID_SESSION_TIMEOUT,
    GroupEvents,
    GroupRefusedException,
    RoundJoined,
    is_definite,
    refusal,
)
from penstock.kafka.group.session import LostReason, MemberState, RejoinBackoff
from penstock.kafka.group.settings import GroupSettings
from penstock.telemetry.logs import SeldomLog

logger = logging.getLogger("penstock.kafka.group")

_LEAVE_S: Final = 5.0
_REFUSED_FIRST_S: Final = 1.0
_REFUSED_MOST_S: Final = 30.0
_SHORTEST_STEP_MS: Final = 1_000


class _OwnerFailedError(Exception):
    """A callback of the owner in a round has failed."""


class GroupLife:
    """A member from its first join to its end.

    Args:
        settings: The settings of the member.
        events: The owner.
        state: The state that survives a restart of the loop.
        calls: Runs long calls of the owner.
        access: Encryption, login and name lookup for brokers.
    """

    def __init__(
        self,
        settings: GroupSettings,
        events: GroupEvents,
        state: MemberState,
        calls: GroupCalls,
        access: Access,
    ) -> None:
        self.state = state
        self._settings = settings
        self._events = events
        self._calls = calls
        self._loop = GroupLoop(settings, access, self._connection_refused)
        self._coordinator = GroupCoordinator(self._loop, settings, self)
        self._bell = self._loop.bell()
        network = settings.network
        self._retry = RejoinBackoff(network.retry_backoff_ms / 1000, network.retry_backoff_max_ms / 1000)
        self._seldom = SeldomLog(logger)
        self._patience = RejoinBackoff(_REFUSED_FIRST_S, _REFUSED_MOST_S)
        self._ended = False
        self._broken: Exception | None = None

    # --------------------------------------------------------------------------------------------------- from outside
    def run(self) -> None:
        """Keeps the membership until ``end`` is called.

        Raises:
            Exception: An error that only a restart can fix.
        """
        for body in (self._be_member, self._watch):
            self._loop.begin(partial(self._guarded, body))
        try:
            while not self._ended:
                self._loop.turn()
            if self._broken is not None:
                raise self._broken
        finally:
            self._coordinator.end_heartbeats()
            self._loop.close(self._coordinator.heartbeats_ended)

    def post(self, call: Callable[[], None]) -> None:
        """Runs a call on the member's thread. Thread: any."""
        self._loop.post(call)

    def rejoin(self) -> None:
        """Joins, or joins again."""
        self._coordinator.request_rejoin()

    def wake(self) -> None:
        """Wakes the loop, so that it checks for new work."""
        self._bell.notify()

    def leave(self, reason: str) -> None:
        """Leaves the group. The owner is responsible for its work."""
        self._loop.begin(partial(self._guarded, partial(self._leave, reason, _LEAVE_S)))

    def end(self, reason: str, timeout_s: float) -> None:
        """Leaves the group; then ``run`` returns."""

        async def ending() -> None:
            await self._leave(reason, timeout_s)
            self._ended = True

        self._loop.begin(partial(self._guarded, ending))

    # -------------------------------------------------------------------------------------------------------- joining
    async def _guarded(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await body()
        except Exception as error:
            self._broken = self._broken or error
            self._ended = True

    async def _be_member(self) -> None:
        while True:
            if not self.state.joins:
                await self._bell()
                continue
            try:
                if await self._is_in():
                    await self._bell()
            except KafkaError as error:
                await self._loop.pause(await self._pause_after(error))
            except _OwnerFailedError as error:
                logger.exception("A round of the group %s has failed here", self._settings.group_id)
                self.state.counts.round_failed()
                self.lose(str(error))
                await self._leave(str(error), _LEAVE_S)
                await self._loop.pause(self._retry.next_s())

    async def _is_in(self) -> bool:
        """Joins if needed; True once the member is in the group. Returns soon, so that the loop can find brokers."""
        step_ms = max(self._settings.heartbeat_interval_ms, _SHORTEST_STEP_MS)
        if not await self._loop.found_brokers(step_ms):
            return False
        if await self._coordinator.ensure_active_group_async(timeout_ms=step_ms):
            return not self._coordinator.need_rejoin()
        if self._settings.network.rebootstrap and not self._coordinator.is_reachable():
            self._loop.find_brokers_anew()
        return False

    async def _pause_after(self, error: Any) -> float:
        """Handles a failed attempt; returns the seconds to wait before the next."""
        if error.retriable:
            return self._retry.next_s()
        code = error_code(error)
        detail = await self._coordinator.session_limits() if code == INVALID_SESSION_TIMEOUT else str(error)
        self.state.counts.round_failed()
        refused = refusal(self._settings, code, detail)
        self._tell_refused(refused)
        if not is_definite(code):
            return self._retry.next_s()
        self.lose(str(refused))
        return self._patience.next_s()

    def _connection_refused(self, code: str, detail: str) -> float:
        """Notes that a broker refuses connections; returns the seconds for which not to try it again."""
        refused = refusal(self._settings, code, detail)
        if self.state.standing.joined:
            self._seldom.warning(code, "%s", refused)
        else:
            self._tell_refused(refused)
        return self._patience.next_s()

    def _tell_refused(self, error: GroupRefusedException) -> None:
        if self.state.refused != error.code:
            self.state.refused = error.code
            logger.error("%s", error)
            self._tell(self._events.refused, error)

    async def _leave(self, reason: str, timeout_s: float) -> None:
        self.state.standing.leave()
        await self._coordinator.leave_group(reason, timeout_s)
        self._publish()

    # -------------------------------------------------------------------------------------------------------- standing
    async def _watch(self) -> None:
        standing = self.state.standing
        while True:
            now = time.monotonic()
            reachable = self._coordinator.is_reachable()
            standing.reached(reachable, now)
            if standing.joined and not reachable:
                self._coordinator.reach_out()
            self._coordinator.still_polled()
            self._loop.keep_login_fresh()
            verdict = standing.verdict(now)
            if verdict is LostReason.NOT_POLLED:
                await self._put_out()
            elif verdict is not None:
                self.lose(verdict.value)
            self._publish()
            await self._loop.pause(standing.look_again_s(now))

    async def _put_out(self) -> None:
        if self.state.unpolled:
            return
        self.state.unpolled = True
        reason = f"{LostReason.NOT_POLLED.value} for {self._settings.rebalance_timeout_ms} ms (rebalance.timeout.ms)"
        self.lose(reason)
        await self._leave(reason, _LEAVE_S)

    def lose(self, reason: str) -> None:
        """See ``RoundCallbacks``: work must stop, if there is any; the member then joins again without it."""
        if not self.state.standing.joined:
            return
        self.state.standing.leave()
        self.state.counts.lost()
        self.state.reason = reason
        self._coordinator.join_afresh()
        self._publish()
        logger.warning("The worker is out of the group %s and stops its work: %s", self._settings.group_id, reason)
        self._tell(self._events.lost, reason)

    # ---------------------------------------------------------------------------------------------------------- rounds
    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """See ``RoundCallbacks``."""
        try:
            return self._events.metadata()
        except Exception as error:
            raise _OwnerFailedError("the worker could not say what it runs") from error

    async def prepared(self, generation: int) -> None:
        """See ``RoundCallbacks``: waits for the owner up to the rebalance timeout."""
        try:
            preparing = self._owner(self._events.before_join, generation)
            await self._loop.within(preparing, self._settings.rebalance_timeout_ms)
        except KafkaTimeoutError:
            logger.warning(
                "The worker's work has not stopped within %d ms (rebalance.timeout.ms); it joins the group %s anyway",
                *(self._settings.rebalance_timeout_ms, self._settings.group_id),
            )

    async def assignments(
        self,
        protocol: str,
        leader: str,
        members: Mapping[str, bytes],
        generation: int,
        beat: Callable[[], Awaitable[None]],
    ) -> Mapping[str, bytes]:
        """See ``RoundCallbacks``."""
        assigning = self._owner(self._events.assign, protocol, leader, members, generation, self.state.last_completed)
        while True:
            try:
                return dict(await self._loop.within(assigning, self._settings.heartbeat_interval_ms))
            except KafkaTimeoutError:
                await beat()

    def completed(self, joined: RoundJoined) -> None:
        """See ``RoundCallbacks``."""
        if not self.state.joins:
            return
        self.state.last_completed = joined.generation
        now = time.monotonic()
        self.state.standing.enter(now)
        self.state.counts.round_ended(now)
        self.state.refused = ""
        self._retry.reset()
        self._patience.reset()
        self._publish()
        logger.info(
            "Joined the group %s as %s: generation %d, protocol %s",
            *(self._settings.group_id, joined.member_id, joined.generation, joined.protocol),
        )
        self._tell(self._events.joined, joined)

    def _owner(self, call: Callable[..., object], *arguments: object) -> Any:
        """Begins a call of the owner that may take long."""

        def calling() -> object:
            try:
                return call(*arguments)
            except Exception as error:
                raise _OwnerFailedError("the worker could not do its part of the round") from error

        return self._loop.elsewhere(self._calls, calling)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Calls a callback of the owner; an error of the owner is logged and does not end the member."""
        try:
            call(*arguments)
        except Exception:
            logger.exception("The worker failed to handle an event of its group %s", self._settings.group_id)

    def _publish(self) -> None:
        self.state.view = self._coordinator.view()
