"""A member of a Kafka group of workers: it exchanges bytes and does not know connectors.

Heartbeats continue while the leader assigns and while work stops. A member stops its work when a limit of ``session``
is exceeded or the broker does not know it; after the work has stopped it joins again.

Threads: the member's own, ``group-member``, from ``start`` to ``close``; ``group-call`` for long calls of the owner,
and ``group-names`` for host name lookups, if needed. The methods may be called from any thread.

Source: org.apache.kafka.connect.runtime.distributed.WorkerGroupMember, WorkerCoordinator.
"""

from __future__ import annotations

import logging
import threading
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
    GroupView,
    RoundJoined,
    is_definite,
    refusal,
)
from penstock.kafka.group.session import GroupMetrics, Limits, LostReason, MemberState, RejoinBackoff, Standing
from penstock.kafka.group.settings import GroupSettings
from penstock.telemetry.logs import SeldomLog

_LEAVE_S: Final = 5.0
_REFUSED_FIRST_S: Final = 1.0
_REFUSED_MOST_S: Final = 30.0
_SHORTEST_STEP_MS: Final = 1_000


class _OwnerFailedError(Exception):
    """A callback of the owner in a round has failed."""


class GroupLife:
    """A member from its first join to its end."""

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
        self._coordinator.request_rejoin()

    def wake(self) -> None:
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
        assigning = self._owner(self._events.assign, protocol, leader, members, generation, self.state.last_completed)
        while True:
            try:
                return dict(await self._loop.within(assigning, self._settings.heartbeat_interval_ms))
            except KafkaTimeoutError:
                await beat()

    def completed(self, joined: RoundJoined) -> None:
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


_LIBRARY: Final = "kafka"
#: The beginnings of lines that repeat other lines or only announce a retry.
_SAID_ELSEWHERE: Final = (
    "%s: socket disconnected",
    "%s: Error receiving network data",
    "Bootstrap failed",
    "Bootstrap %s not ready",
    "No node available for metadata refresh",
)


class _Chatter(logging.Handler):
    """Passes only new messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seldom = SeldomLog(logging.getLogger("penstock.kafka.group"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and not str(record.msg).startswith(_SAID_ELSEWHERE):
            self._seldom.warning(cause_of(record), "Group client: %s", record.getMessage())


def cause_of(record: logging.LogRecord) -> object:
    """The cause of a log line: its error, or the kind of line.

    The library reports one lost connection for the socket, the connection, the request and the coordinator, with one
    error.
    """
    errors = [str(one) for one in record.args or () if isinstance(one, BaseException)]
    return errors[0] if errors else (record.name, record.msg)


def tame() -> None:
    """Sends all further lines of the library in this process through ``_Chatter``."""
    logger = logging.getLogger(_LIBRARY)
    if any(isinstance(handler, _Chatter) for handler in logger.handlers):
        return
    logger.addHandler(_Chatter())
    logger.setLevel(logging.WARNING)
    logger.propagate = False


logger = logging.getLogger("penstock.kafka.group")

_BROKEN_FIRST_S: Final = 0.5
_BROKEN_MOST_S: Final = 30.0


class GroupMember:
    """A member of a group."""

    def __init__(self, settings: GroupSettings, events: GroupEvents) -> None:
        self._settings = settings
        self._events = events
        self._access = Access.of(settings)
        limits = Limits(
            settings.heartbeat_interval_ms / 1000,
            settings.session_timeout_ms / 1000,
            settings.rebalance_timeout_ms / 1000,
        )
        self._state = MemberState(Standing(limits, time.monotonic()))
        self._calls = GroupCalls("group-call")
        self._closing = threading.Event()
        self._life: GroupLife | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="group-member", daemon=True)

    @property
    def view(self) -> GroupView:
        return self._state.view

    @property
    def metrics(self) -> GroupMetrics:
        return self._state.counts.snapshot

    def start(self) -> None:
        """Starts joining. The owner counts as alive after this call."""
        tame()
        self.polled()
        self._thread.start()

    def rejoin(self, reason: str) -> None:
        """Joins again, even after ``leave``; returns at once.

        The leader starts a rebalance, and so does a member whose metadata has changed. A member with the same metadata
        receives its last assignment again.
        """
        self._state.reason = reason
        self._state.asked += 1
        self._state.requested = True
        self._post(GroupLife.rejoin)

    def polled(self) -> None:
        """Reports that the owner's loop is alive.

        Without this call for the rebalance timeout the member leaves the group; with the next call it joins again.
        """
        self._state.standing.polled(time.monotonic())
        if self._state.unpolled:
            self._state.unpolled = False
            self._post(GroupLife.rejoin)

    def leave(self, reason: str) -> None:
        """Leaves the group until ``rejoin``; returns at once. ``lost`` is not called."""
        self._state.requested = False
        self._post(lambda life: life.leave(reason))

    def close(self, timeout_s: float, reason: str = "the worker stops") -> bool:
        """Leaves the group and ends all threads.

        Returns:
            True if all threads have ended.
        """
        deadline = time.monotonic() + timeout_s
        self._state.closing = True
        self._closing.set()
        # The rest of the time is for the end of the thread.
        self._post(lambda life: life.end(reason, timeout_s * 0.8))
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        ended = [part.close(max(0.0, deadline - time.monotonic())) for part in (self._calls, self._access)]
        return all(ended) and not self._thread.is_alive()

    def _post(self, call: Callable[[GroupLife], None]) -> None:
        with self._lock:
            life = self._life
        if life is not None:
            life.post(lambda: call(life))

    def _run(self) -> None:
        pause = RejoinBackoff(_BROKEN_FIRST_S, _BROKEN_MOST_S)
        while not self._closing.is_set():
            try:
                life = GroupLife(self._settings, self._events, self._state, self._calls, self._access)
                with self._lock:
                    self._life = life
                # If it is closed before its loop first runs, this is the only report of its end.
                if self._closing.is_set():
                    life.end("the worker stops", 0.0)
                life.run()
                return
            except Exception:
                logger.exception("The client of the group %s broke; another one takes over", self._settings.group_id)
                self._give_up()
            self._closing.wait(pause.next_s())

    def _give_up(self) -> None:
        if self._state.standing.joined:
            self._state.standing.leave()
            self._state.counts.lost()
            try:
                self._events.lost("the client of the group broke")
            except Exception:
                logger.exception("The worker failed to handle an event of its group")
