"""The rounds and heartbeats of a group's member, over connections of the worker's own.

Everything happens on one thread, in ``_turn``: a round waits for an answer, or for its owner, by taking turns, so that
heartbeats, time limits and calls from other threads go on meanwhile. Heartbeats and rounds share a connection, whose
requests a broker answers in order: no heartbeat is sent while a request of a round is in flight.

Thread: the member's own; ``post`` any.

Source: org.apache.kafka.clients.consumer.internals.AbstractCoordinator; KIP-62, KIP-394, KIP-800.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import confluent_kafka as ck

from penstock.errors import KafkaException, SaslAuthenticationException, SslAuthenticationException
from penstock.kafka.group.events import (
    INVALID_SESSION_TIMEOUT,
    LOGIN_REFUSED,
    TLS_FAILED,
    GroupEvents,
    GroupRefusedException,
    GroupView,
    RoundJoined,
    is_definite,
    refusal,
)
from penstock.kafka.group.session import LostReason, MemberState, RejoinBackoff
from penstock.kafka.group.settings import GroupSettings
from penstock.kafka.network.connections import ProducerConnections, transport_settings
from penstock.kafka.network.transport import Link, LinkLostException, Lookup
from penstock.kafka.protocol import (
    FIND_COORDINATOR,
    METADATA,
    Api,
    BrokerEndpoint,
    BrokerRequest,
    Message,
    find_group_coordinator_request,
    metadata_request,
    metadata_response,
    request,
    response,
)
from penstock.telemetry.logs import SeldomLog

logger = logging.getLogger("penstock.kafka.group")

JOIN_GROUP: Final = Message(Api.JOIN_GROUP, 5, "siisSs[sB]", "ihisss[sSB]")
JOIN_GROUP_WITH_REASON: Final = Message(Api.JOIN_GROUP, 8, "siisSs[sB]S", "ihiSSss[sSB]", flexible=True)
SYNC_GROUP: Final = Message(Api.SYNC_GROUP, 3, "sisS[sB]", "ihB")
HEARTBEAT: Final = Message(Api.HEARTBEAT, 3, "sisS", "ih")
LEAVE_GROUP: Final = Message(Api.LEAVE_GROUP, 3, "s[sS]", "ih[sSh]")
LEAVE_GROUP_WITH_REASON: Final = Message(Api.LEAVE_GROUP, 5, "s[sSS]", "ih[sSh]", flexible=True)
DESCRIBE_CONFIGS: Final = Message(Api.DESCRIBE_CONFIGS, 1, "[bs[s]]b", "i[hSbs[sSbbb[sSb]]]")
_NEEDS: Final = (METADATA, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)

_PROTOCOL_TYPE: Final = "connect"
_LONGEST_REASON: Final = 255
_OTHERS_BEGAN: Final = "another member has begun a round"
#: Heartbeats are sent slightly early, so that a rebalance that another member began is known within the interval.
_EARLY: Final = 0.9
#: The time in addition to the rebalance timeout, for the broker's answer to arrive.
_ROUND_EXTRA_S: Final = 5.0
_LIMITS_TIMEOUT_S: Final = 5.0
_LEAVE_S: Final = 5.0
_REFUSED_FIRST_S: Final = 1.0
_REFUSED_MOST_S: Final = 30.0
_BROKER_CONFIG: Final = 4
_MEMBER_ID_REQUIRED: Final = 79
_SESSION_LIMITS: Final = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")
_FOREVER: Final = float("inf")

_Error = ck.KafkaError
_MOVED: Final = frozenset({_Error.COORDINATOR_NOT_AVAILABLE, _Error.NOT_COORDINATOR})
_PASSING: Final = frozenset(
    {*_MOVED, _Error.COORDINATOR_LOAD_IN_PROGRESS, _Error.REQUEST_TIMED_OUT, _Error.NETWORK_EXCEPTION}
)


class _OwnerFailedError(Exception):
    """A callback of the owner in a round has failed."""


class _AgainError(Exception):
    """A round has failed for now: the member has to join again."""


class _RefusedError(Exception):
    """The broker rejects a request of a round, with this error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{_name(code)} (error {code})")
        self.code = code


class _LeavesError(Exception):
    """The member leaves its group in the middle of a round."""


class GroupLife:
    """A member from its first join to its end.

    Args:
        state: The state that survives a restart.
        calls: Runs a long call of the owner on another thread, and passes its result or exception to a function there.
        lookup: Looks up hosts; raises an ``OSError`` while a lookup is in progress, and posts ``wake`` at its end.
    """

    def __init__(
        self,
        settings: GroupSettings,
        events: GroupEvents,
        state: MemberState,
        calls: Callable[[Callable[[], object], Callable[[object, BaseException | None], None]], None],
        lookup: Lookup,
    ) -> None:
        self.state = state
        self._settings = settings
        self._events = events
        self._calls = calls
        network = settings.network
        self._seldom = SeldomLog(logger)
        self._connections = ProducerConnections(
            network,
            f"the group {settings.group_id}",
            _NEEDS,
            time.monotonic,
            lambda: None,
            self._seldom,
            owner=f"The member of the group {settings.group_id}",
            refused=self._connection_refused,
            transport=replace(
                transport_settings(network),
                connect_most=settings.connect_most_s,
                dead_after=settings.session_timeout_ms / 1000,
                lookup=lookup,
            ),
        )
        self._posted: deque[Callable[[], None]] = deque()
        self._retry = RejoinBackoff(network.retry_backoff, network.retry_backoff_max)
        self._patience = RejoinBackoff(_REFUSED_FIRST_S, _REFUSED_MOST_S)
        self._not_before = 0.0
        self._ended = False
        #: The reason and the time limit of a leave to come; and if the member ends after it.
        self._leaving: tuple[str, float, bool] | None = None
        self._in_round = False
        # The group, as the brokers know it.
        self._brokers: Mapping[int, BrokerEndpoint] = {}
        self._coordinator: tuple[int, BrokerEndpoint] | None = None
        self._searching = False
        self._search_at = 0.0
        # The member, as the coordinator knows it.
        self._member_id = ""
        self._generation = -1
        self._rejoin = True
        self._prepared = False
        self._waits = False
        self._beating = False
        self._beat_at = 0.0

    # --------------------------------------------------------------------------------------------------- from outside
    def run(self) -> None:
        """Keeps the membership until ``end`` is called. Raises an error that only a restart can fix."""
        try:
            while not self._ended:
                self._step()
        finally:
            self.close()

    def close(self) -> None:
        """Ends all connections."""
        self._connections.close()

    def post(self, call: Callable[[], None]) -> None:
        """Runs a call on the member's thread. Thread: any."""
        self._posted.append(call)
        self.wake()

    def wake(self) -> None:
        """Ends the current wait. Thread: any."""
        self._connections.wake()

    def rejoin(self) -> None:
        """Joins, or joins again."""
        self._rejoin = True

    def leave(self, reason: str) -> None:
        """Leaves the group. The owner is responsible for its work."""
        self._leaving = self._leaving or (reason, _LEAVE_S, False)

    def end(self, reason: str, timeout_s: float) -> None:
        """Leaves the group; then ``run`` returns."""
        self._leaving = (reason, timeout_s, True)

    # -------------------------------------------------------------------------------------------------------- joining
    def _step(self) -> None:
        if self._leaving is not None:
            reason, timeout_s, self._ended = self._leaving
            self._leaving = None
            self._leave(reason, timeout_s)
            return
        wants = self.state.joins and (self._rejoin or self._generation < 0)
        if not wants or time.monotonic() < self._not_before or not self._is_reachable():
            self._turn()
            return
        self._in_round = True
        try:
            self._round()
        except _AgainError:
            self._pause(self._retry)
        except _RefusedError as error:
            self._round_refused(error)
        except _LeavesError:
            pass
        except _OwnerFailedError as error:
            logger.exception("A round of the group %s has failed here", self._settings.group_id)
            self.state.counts.round_failed()
            self.lose(str(error))
            self._leaving = self._leaving or (str(error), _LEAVE_S, False)
            self._pause(self._retry)
        finally:
            self._in_round = False

    def _pause(self, backoff: RejoinBackoff) -> None:
        self._not_before = time.monotonic() + backoff.next_s()

    def _round(self) -> None:
        state, settings = self.state, self._settings
        state.counts.round_began(time.monotonic())
        while not self._prepared:
            # Work that is lost while the owner prepares has to stop, too.
            self._prepared = True
            self._prepare()
        if not self._is_reachable():
            raise _AgainError
        self._rejoin = True
        asked, losses, began_at = state.asked, state.counts.snapshot.losses, time.monotonic()
        protocols = self._protocols()
        _, code, generation, *_, protocol, leader, member_id, members = self._in_flight(
            self._versioned(
                JOIN_GROUP_WITH_REASON,
                JOIN_GROUP,
                (
                    settings.group_id,
                    settings.session_timeout_ms,
                    settings.rebalance_timeout_ms,
                    self._member_id,
                    None,
                    _PROTOCOL_TYPE,
                    protocols,
                ),
                state.reason[:_LONGEST_REASON],
            )
        )
        if code == _MEMBER_ID_REQUIRED:
            self._member_id = member_id
            return
        self._check(code)
        self._member_id, self._generation = member_id, generation
        state.counts.join_answered(time.monotonic() - began_at)
        assignments: Mapping[str, bytes] = {}
        if leader == member_id:
            said = {one: bytes(metadata) for one, _, metadata in members}
            assignments = self._assignments(protocol, leader, said)
        self._still_in(member_id, generation, losses)
        synced_at = time.monotonic()
        _, code, assigned = self._in_flight(
            request(SYNC_GROUP, settings.group_id, generation, member_id, None, list(assignments.items()))
        )
        self._check(code)
        took_s = time.monotonic() - synced_at
        state.counts.sync_answered(took_s)
        if took_s * 1000 > settings.session_timeout_ms:
            # The answer may be old, if this process was frozen meanwhile: only the broker knows.
            beat = request(HEARTBEAT, settings.group_id, generation, member_id, None)
            _, code = self._answer(beat, self._beat_timeout_s())
            self._check(code)
        self._still_in(member_id, generation, losses)
        self._rejoin = state.asked != asked
        if not self._rejoin:
            state.reason = _OTHERS_BEGAN
        self._prepared = False
        self._completed(RoundJoined(generation, member_id, protocol, assigned))

    def _still_in(self, member_id: str, generation: int, losses: int) -> None:
        """Raises ``_AgainError`` if the member is out of the round that it began, or has lost its work since.

        Its metadata, and so the leader's assignment, is outdated then.
        """
        if (self._member_id, self._generation) != (member_id, generation) or (
            self.state.counts.snapshot.losses != losses
        ):
            raise _AgainError

    def _check(self, code: int) -> None:
        """Handles the error code of a round."""
        if code == 0:
            return
        if self._note_error(code):
            raise _AgainError
        raise _RefusedError(code)

    def _note_error(self, code: int) -> bool:
        """Adapts to an error of the coordinator; False if that rejects the member for another reason."""
        if code in _MOVED:
            self._coordinator = None
        elif code == _Error.UNKNOWN_MEMBER_ID:
            self._forget_member()
            self.lose("the broker does not know this member any more")
        elif code == _Error.ILLEGAL_GENERATION:
            self._generation = -1
        elif code not in (*_PASSING, _Error.REBALANCE_IN_PROGRESS):
            return False
        return True

    def _round_refused(self, error: _RefusedError) -> None:
        code = _name(error.code)
        detail = self._session_limits() if code == INVALID_SESSION_TIMEOUT else str(error)
        self.state.counts.round_failed()
        refused = refusal(self._settings, code, detail)
        self._tell_refused(refused)
        if is_definite(code):
            self.lose(str(refused))
            self._pause(self._patience)
        else:
            self._pause(self._retry)

    def _connection_refused(self, error: KafkaException) -> float:
        """Notes that a broker refuses connections; returns the seconds for which not to try it again."""
        code, detail = "UNSUPPORTED_VERSION", str(error)
        if isinstance(error, SslAuthenticationException):
            code, detail = TLS_FAILED, str(error.__cause__ or error)
        elif isinstance(error, SaslAuthenticationException):
            code, detail = LOGIN_REFUSED, detail.partition(". Check")[0]
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

    def _session_limits(self) -> str:
        """The broker's limits for ``session.timeout.ms``; empty if it does not report them."""
        if self._coordinator is None:
            return ""
        asked = request(DESCRIBE_CONFIGS, [(_BROKER_CONFIG, str(self._coordinator[0]), list(_SESSION_LIMITS))], False)
        try:
            _, results = self._answer(asked, _LIMITS_TIMEOUT_S)
        except (_AgainError, _LeavesError):
            return ""
        found = {name: value for *_, configs in results for name, value, *_ in configs}
        return " and ".join(f"{name}={found[name]}" for name in _SESSION_LIMITS if name in found)

    # --------------------------------------------------------------------------------------------------------- leaving
    def _leave(self, reason: str, timeout_s: float) -> None:
        self.state.standing.leave()
        link = self._link()
        if link is not None and self._waits:
            # The broker would read it only after the response to a request of a round: another connection is needed.
            self._connections.drop(link, LinkLostException("The member leaves its group"))
        self._waits = False
        if self._member_id and self._coordinator is not None:
            logger.info("Leaving the group %s: %s", self._settings.group_id, reason)
            try:
                self._wait_while(lambda: not self._is_reachable(), deadline := time.monotonic() + timeout_s)
                why = reason[:_LONGEST_REASON]
                leaves = request(LEAVE_GROUP, self._settings.group_id, [(self._member_id, None)])
                if self._takes(LEAVE_GROUP_WITH_REASON):
                    who = [(self._member_id, None, why)]
                    leaves = request(LEAVE_GROUP_WITH_REASON, self._settings.group_id, who)
                self._answer(leaves, deadline - time.monotonic())
            except _AgainError as error:
                logger.warning("The group %s does not answer to leaving it: %s", self._settings.group_id, error)
        self._prepared = False
        self._forget_member()
        self._publish()

    def _forget_member(self) -> None:
        self._member_id, self._generation = "", -1

    # ----------------------------------------------------------------------------------------------------------- turns
    def _turn(self, until: float = _FOREVER) -> None:
        """Does what is due, and waits for an event, but not longer than until this time. Raises ``_LeavesError`` if the
        member has to leave its group, and is in a round.
        """
        while self._posted:
            self._posted.popleft()()
        now = time.monotonic()
        look_at = self._watch(now)
        if self._in_round and self._leaving is not None:
            raise _LeavesError
        if not self._waits:
            # The broker would answer a renewed login only after the request of a round, and nothing is sent meanwhile.
            self._connections.tend(now)
        self._reach(now)
        if self._is_beat_due(now):
            self._beat()
        waits = [until, look_at, *self._connections.times(now, waiting=True)]
        waits += [at for at in (self._not_before, self._beat_at, self._search_at) if at > now]
        self._connections.wait(0 if self._posted else min(waits) - time.monotonic())

    def _wait_while(self, condition: Callable[[], bool], until: float = _FOREVER) -> None:
        """Takes turns as long as a condition holds. Raises ``_AgainError`` if the time is over."""
        while condition():
            if time.monotonic() >= until:
                raise _AgainError("there is no answer in time")
            self._turn(until)

    def _watch(self, now: float) -> float:
        """Ends the work when a time limit is over; returns the time of the next look."""
        standing = self.state.standing
        standing.reached(self._is_reachable(), now)
        verdict = standing.verdict(now)
        if verdict is LostReason.NOT_POLLED:
            if not self.state.unpolled:
                self.state.unpolled = True
                limit = f"{self._settings.rebalance_timeout_ms} ms (rebalance.timeout.ms)"
                reason = f"{LostReason.NOT_POLLED.value} for {limit}"
                self.lose(reason)
                self._leaving = self._leaving or (reason, _LEAVE_S, False)
        elif verdict is not None:
            self.lose(verdict.value)
        self._publish()
        return now + standing.look_again_s(now)

    def lose(self, reason: str) -> None:
        """Work must stop, if there is any; the member then joins again without it."""
        if not self.state.standing.joined:
            return
        self.state.standing.leave()
        self.state.counts.lost()
        self.state.reason = reason
        self._prepared = False
        self._rejoin = True
        self._publish()
        logger.warning("The worker is out of the group %s and stops its work: %s", self._settings.group_id, reason)
        self._tell(self._events.lost, reason)

    # ----------------------------------------------------------------------------------------------------- coordinator
    def _link(self) -> Link | None:
        """The connection to the coordinator, if it can be used."""
        if self._coordinator is None:
            return None
        return self._connections.usable(self._coordinator[1])

    def _is_reachable(self) -> bool:
        return self._link() is not None

    def _takes(self, message: Message) -> bool:
        link = self._link()
        lowest, highest = (0, -1) if link is None else link.versions.get(message.api, (0, -1))
        return lowest <= message.version <= highest

    def _versioned(self, new: Message, old: Message, values: Sequence[Any], more: str) -> BrokerRequest:
        """The request in the newer version, which has one more field, or in the older one."""
        return request(new, *values, more) if self._takes(new) else request(old, *values)

    def _reach(self, now: float) -> None:
        """Connects to the coordinator, or asks any broker for it, if the member wants to be in its group."""
        if self._link() is not None or not (self.state.joins or self._member_id):
            return
        away = None if self._coordinator is None else self._coordinator[1]
        if away is not None:
            self._connections.to(away, now)
        if self._searching or now < self._search_at:
            return
        # A machine that is dead, or a broker that is frozen, must not delay the search for its successor.
        link = self._connections.any(now, self._brokers, away)
        if link is None:
            return
        self._searching = True

        def known(payload: memoryview) -> None:
            self._brokers = metadata_response(payload).brokers

        def found(payload: memoryview) -> None:
            self._searching = False
            network, before = self._settings.network, self._coordinator
            self._search_at = time.monotonic() + network.retry_backoff
            _, code, _, node, host, port = response(FIND_COORDINATOR, payload)
            if code == 0:
                self._coordinator = (node, BrokerEndpoint(host, port))
                if self._coordinator == before:
                    # It may be away for long.
                    self._search_at = time.monotonic() + network.retry_backoff_max
            elif code not in _PASSING:
                self._round_refused(_RefusedError(code))
                self._search_at = self._not_before

        def lost(_: LinkLostException) -> None:
            self._searching = False

        self._connections.ask(link, metadata_request([]), known)
        self._connections.ask(link, find_group_coordinator_request(self._settings.group_id), found, lost)

    def _answer(self, asked: BrokerRequest, timeout_s: float) -> list[Any]:
        """Asks the coordinator, and takes turns until there is an answer. Raises ``_AgainError`` if the connection was
        lost, or there is no answer in time.
        """
        found: list[list[Any]] = []
        lost: list[LinkLostException] = []
        link = self._link()
        if link is None:
            raise _AgainError("the coordinator is not connected")
        self._connections.ask(
            link,
            asked,
            lambda payload: found.append(response(asked.message, payload)),
            lost.append,
            timeout=timeout_s,
        )
        self._wait_while(lambda: not found and not lost, time.monotonic() + timeout_s)
        if lost:
            raise _AgainError(str(lost[0]))
        return found[0]

    def _in_flight(self, asked: BrokerRequest) -> list[Any]:
        """Sends a request that the broker answers when the other members are ready, and returns the answer."""
        standing = self.state.standing
        timeout_s = max(
            self._settings.network.request_timeout, self._settings.rebalance_timeout_ms / 1000 + _ROUND_EXTRA_S
        )
        standing.waits(True, time.monotonic())
        self._waits = True
        try:
            found = self._answer(asked, timeout_s)
            self._waits = False
            return found
        except _AgainError:
            self._waits = False
            raise
        finally:
            standing.waits(False, time.monotonic())

    # ------------------------------------------------------------------------------------------------------ heartbeats
    def _is_beat_due(self, now: float) -> bool:
        return (
            self._generation >= 0
            and not self._waits
            and not self._beating
            and now >= self._beat_at
            and self._is_reachable()
        )

    def _beat(self) -> None:
        link = self._link()
        if link is None:
            return
        state, settings, sent_at = self.state, self._settings, time.monotonic()
        self._beating = True
        self._beat_at = sent_at + settings.heartbeat_interval_ms / 1000 * _EARLY
        state.counts.heartbeat_sent(sent_at)

        def answered(payload: memoryview) -> None:
            _, code = response(HEARTBEAT, payload)
            self._beating = False
            state.counts.heartbeat_answered(time.monotonic() - sent_at)
            if code in (0, _Error.REBALANCE_IN_PROGRESS):
                state.standing.answered(sent_at)
            if code:
                self._note_error(code)
                self._rejoin = self._rejoin or code not in _PASSING

        def lost(_: LinkLostException) -> None:
            self._beating = False

        asked = request(HEARTBEAT, settings.group_id, self._generation, self._member_id, None)
        self._connections.ask(link, asked, answered, lost, timeout=self._beat_timeout_s())

    def _beat_timeout_s(self) -> float:
        return min(self._settings.network.request_timeout, self._settings.session_timeout_ms / 1000)

    # ----------------------------------------------------------------------------------------------------------- owner
    def _protocols(self) -> Sequence[tuple[str, bytes]]:
        try:
            return list(self._events.metadata())
        except Exception as error:
            raise _OwnerFailedError("the worker could not say what it runs") from error

    def _prepare(self) -> None:
        """Waits for the owner, up to the rebalance timeout."""
        generation, timeout_ms = self._generation, self._settings.rebalance_timeout_ms
        try:
            self._owner(lambda: self._events.before_join(generation), time.monotonic() + timeout_ms / 1000)
        except _AgainError:
            logger.warning(
                "The worker's work has not stopped within %d ms (rebalance.timeout.ms); it joins the group %s anyway",
                *(timeout_ms, self._settings.group_id),
            )

    def _assignments(self, protocol: str, leader: str, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        generation, last = self._generation, self.state.last_completed
        assigned: Any = self._owner(lambda: self._events.assign(protocol, leader, members, generation, last))
        return dict(assigned)

    def _owner(self, call: Callable[[], object], until: float = _FOREVER) -> object:
        """The result of a call of the owner that may take long."""
        ended: list[tuple[object, BaseException | None]] = []

        def end(value: object, error: BaseException | None) -> None:
            ended.append((value, error))
            self.wake()

        self._calls(call, end)
        self._wait_while(lambda: not ended, until)
        value, error = ended[0]
        if error is not None:
            raise _OwnerFailedError("the worker could not do its part of the round") from error
        return value

    def _completed(self, joined: RoundJoined) -> None:
        if not self.state.joins:
            return
        self.state.last_completed = joined.generation
        now = time.monotonic()
        self.state.standing.enter(now)
        self.state.counts.round_ended(now)
        self.state.refused = ""
        self._beat_at = now + self._settings.heartbeat_interval_ms / 1000 * _EARLY
        self._retry.reset()
        self._patience.reset()
        self._publish()
        logger.info(
            "Joined the group %s as %s: generation %d, protocol %s",
            *(self._settings.group_id, joined.member_id, joined.generation, joined.protocol),
        )
        self._tell(self._events.joined, joined)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Calls a callback of the owner; an error of the owner is logged and does not end the member."""
        try:
            call(*arguments)
        except Exception:
            logger.exception("The worker failed to handle an event of its group %s", self._settings.group_id)

    def _publish(self) -> None:
        where = str(self._coordinator[1]) if self._coordinator is not None and self._is_reachable() else None
        self.state.view = GroupView(self._member_id, self._generation, where, self.state.standing.joined)


def _name(code: int) -> str:
    """Kafka's name of an error."""
    return ck.KafkaError(code).name()
