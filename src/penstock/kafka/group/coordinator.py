"""Rounds and heartbeats of a group's member, on kafka-python's coordinator.

Main types: ``GroupCoordinator``, ``RoundCallbacks`` (its callbacks). The hooks of ``BaseCoordinator`` begin with an
underscore and may change with any minor version: ``tests/real/kafka/test_group_member.py`` tests those in use.

This class adds what the library lacks: heartbeats continue while the leader assigns; the wait for a heartbeat ends with
the session; a request to join again during a round is remembered; LeaveGroup is sent even if a JoinGroup is in flight.

Thread: the member's own.

Source: org.apache.kafka.clients.consumer.internals.AbstractCoordinator; KIP-62, KIP-394, KIP-800.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kafka import errors
from kafka.coordinator.base import BaseCoordinator, Generation
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import (
    UNKNOWN_MEMBER_ID,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.structs import MemberState as Phase

from penstock.kafka.group.connections import GroupLoop
from penstock.kafka.group.events import GroupView, RoundJoined
from penstock.kafka.group.session import MemberState
from penstock.kafka.group.settings import GroupSettings

logger = logging.getLogger("penstock.kafka.group")

_PROTOCOL_TYPE: Final = "connect"
_LONGEST_REASON: Final = 255
_OTHERS_BEGAN: Final = "another member has begun a round"
#: Heartbeats are sent slightly early, so that a rebalance that another member began is known within the interval.
_EARLY: Final = 0.9
#: The time in addition to the rebalance timeout, for the broker's answer to arrive.
_ROUND_EXTRA_MS: Final = 5_000
_LIMITS_TIMEOUT_MS: Final = 5_000
_BROKER_CONFIG: Final = 4
_SESSION_LIMITS: Final = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")


# ------------------------------------------------------------------------------------------------------------- rounds
class RoundCallbacks(Protocol):
    """The callbacks of the coordinator."""

    @property
    def state(self) -> MemberState:
        """The state of the member."""

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """Name and metadata of each sub-protocol on offer."""

    async def prepared(self, generation: int) -> None:
        """Waits until the member may join."""

    async def assignments(
        self,
        protocol: str,
        leader: str,
        members: Mapping[str, bytes],
        generation: int,
        beat: Callable[[], Awaitable[None]],
    ) -> Mapping[str, bytes]:
        """Returns the assignment of each member; calls ``beat`` whenever a heartbeat is due meanwhile."""

    def completed(self, joined: RoundJoined) -> None:
        """Called when a round has given this member an assignment."""

    def lose(self, reason: str) -> None:
        """Called when this member is out of the group."""

    def wake(self) -> None:
        """Wakes the member's loop, so that it checks for new work."""


class GroupCoordinator(BaseCoordinator):  # type: ignore[misc]
    """Rounds and heartbeats."""

    def __init__(self, loop: GroupLoop, settings: GroupSettings, rounds: RoundCallbacks) -> None:
        self._settings = settings
        self._rounds = rounds
        self._plain_node: Any = None
        self._asked = 0
        super().__init__(
            loop.client,
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=max(1, int(settings.heartbeat_interval_ms * _EARLY)),
            max_poll_interval_ms=settings.rebalance_timeout_ms,
            request_timeout_ms=settings.network.request_timeout_ms,
            retry_backoff_ms=settings.network.retry_backoff_ms,
        )

    # ------------------------------------------------------------------------------------ requests by the member
    def is_reachable(self) -> bool:
        return self.coordinator_id is not None and bool(self._client.connected(self.coordinator_id))

    def view(self) -> GroupView:
        node = self._cluster.broker_metadata(self.coordinator_id) if self.is_reachable() else None
        return GroupView(
            self._generation.member_id,
            self._generation.generation_id,
            None if node is None else f"{node.host}:{node.port}",
            self._rounds.state.standing.joined,
        )

    def join_afresh(self) -> None:
        """Makes the next round begin with a check that the work has stopped."""
        self.rejoining = False
        self.request_rejoin()

    def reach_out(self) -> None:
        """Connects to the coordinator again, or looks for another one, without waiting for the next heartbeat."""
        if self.coordinator_id is not None:
            self._client.maybe_connect(self.coordinator_id)
        self._heartbeat_wakeup.notify()

    def still_polled(self) -> None:
        """Keeps the library's own poll timeout from ending the membership; ``Standing`` has the limit that counts."""
        self.heartbeat.poll()

    def end_heartbeats(self) -> None:
        self._close_heartbeat()

    def heartbeats_ended(self) -> bool:
        return self._heartbeat_loop_future is None or bool(self._heartbeat_loop_future.is_done)

    async def leave_group(self, reason: str, timeout_s: float) -> None:
        """Leaves the group with a request to the broker; it is no member afterwards, with or without a response."""
        member_id, node = self._generation.member_id, self.coordinator_id
        if self._join_task is not None and not self._join_task.is_done:
            # The broker would read it only after the response to a request of a round.
            node = self._plain_node
        if member_id != UNKNOWN_MEMBER_ID and node is not None:
            logger.info("Leaving the group %s: %s", self._settings.group_id, reason)
            who = LeaveGroupRequest.MemberIdentity(
                member_id=member_id, group_instance_id=None, reason=reason[:_LONGEST_REASON]
            )
            request = LeaveGroupRequest(group_id=self.group_id, member_id=member_id, members=[who])
            try:
                answer = await self._manager.wait_for(self._manager.send(request, node_id=node), timeout_s * 1000)
                self._handle_leave_group_response(answer)
            except KafkaError as error:
                logger.warning("The group %s does not answer to leaving it: %s", self._settings.group_id, error)
        self.rejoining = False
        self.reset_generation()

    async def session_limits(self) -> str:
        """The broker's limits for ``session.timeout.ms``; empty if it does not report them."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER_CONFIG,
            resource_name=str(self._plain_node),
            configuration_keys=list(_SESSION_LIMITS),
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
        try:
            answer = await self._manager.wait_for(
                self._manager.send(request, node_id=self.coordinator_id), _LIMITS_TIMEOUT_MS
            )
        except KafkaError:
            return ""
        found = {one.name: one.value for result in answer.results for one in result.configs}
        return " and ".join(f"{name}={found[name]}" for name in _SESSION_LIMITS if name in found)

    # --------------------------------------------------------------------------------------------- the library's hooks
    def protocol_type(self) -> str:
        return _PROTOCOL_TYPE

    def group_protocols(self) -> list[tuple[str, bytes]]:
        return list(self._rounds.protocols())

    def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Any:
        raise NotImplementedError("the leader's part is in _do_join_and_sync_async")

    def need_rejoin(self) -> bool:
        """See ``BaseCoordinator``. False while the member does not want to be in its group."""
        return bool(self._rounds.state.joins and super().need_rejoin())

    def request_rejoin(self) -> None:
        """See ``BaseCoordinator``. Wakes the member's loop as well."""
        super().request_rejoin()
        self._rounds.wake()

    def reset_generation(self, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        """See ``BaseCoordinator``. A member that the broker does not know stops its work."""
        super().reset_generation(member_id)
        if member_id == UNKNOWN_MEMBER_ID:
            self._rounds.lose("the broker does not know this member any more")
        self._rounds.wake()

    def _handle_find_coordinator_response(self, response: Any) -> Any:
        found = super()._handle_find_coordinator_response(response)
        self._plain_node = (response.coordinators[0] if response.coordinators else response).node_id
        return found

    async def _on_join_prepare_async(self, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        self._rounds.state.counts.round_began(time.monotonic())
        await self._rounds.prepared(generation)

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        self._rounds.completed(RoundJoined(generation, member_id, protocol, bytes(member_assignment_bytes)))
        if self._rounds.state.asked != self._asked:
            # The owner asked to join after the request of this round had been sent.
            self.rejoin_needed = True
        else:
            self._rounds.state.reason = _OTHERS_BEGAN

    async def _send_heartbeat_request(self) -> None:
        if self.coordinator_unknown():
            raise errors.CoordinatorNotAvailableError(self.coordinator_id)
        state, sent_at = self._rounds.state, time.monotonic()
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self._generation.generation_id,
            member_id=self._generation.member_id,
            group_instance_id=None,
        )
        state.counts.heartbeat_sent(sent_at)
        timeout_ms = min(self._settings.network.request_timeout_ms, self._settings.session_timeout_ms)
        try:
            answer = await self._manager.send(request, node_id=self.coordinator_id, request_timeout_ms=timeout_ms)
        except KafkaError as error:
            self._failed_request(self.coordinator_id, request, error)
            raise
        state.counts.heartbeat_answered(time.monotonic() - sent_at)
        if answer.error_code in (errors.NoError.errno, errors.RebalanceInProgressError.errno):
            state.standing.answered(sent_at)
        self._handle_heartbeat_response(answer, sent_at)

    async def _do_join_and_sync_async(self) -> bytes:
        if self.coordinator_unknown():
            raise errors.CoordinatorNotAvailableError(self.coordinator_id)
        state, began_at = self._rounds.state, time.monotonic()
        state.counts.round_began(began_at)
        self.state, self._asked, losses = Phase.REBALANCING, state.asked, state.counts.snapshot.losses
        answer = await self._in_round(self._join_request())
        self._process_join_group_response(answer, began_at)
        state.counts.join_answered(time.monotonic() - began_at)
        generation = self._generation
        assignments: Mapping[str, bytes] = {}
        if answer.leader == answer.member_id:
            members = {one.member_id: bytes(one.metadata) for one in answer.members}
            assignments = await self._rounds.assignments(
                answer.protocol_name, answer.leader, members, answer.generation_id, self._do_heartbeat
            )
        self._still_in(generation, losses)
        synced_at = time.monotonic()
        answer = await self._in_round(self._sync_request(generation, assignments))
        assigned: bytes = self._process_sync_group_response(answer, synced_at)
        took_s = time.monotonic() - synced_at
        state.counts.sync_answered(took_s)
        if took_s * 1000 > self._settings.session_timeout_ms:
            # The answer may be old, if this process was frozen meanwhile.
            await self._send_heartbeat_request()
        self._still_in(generation, losses)
        return assigned

    def _still_in(self, generation: Generation, losses: int) -> None:
        """True if the member is still in the round that it began, and has not lost work since.

        Otherwise its metadata, and so the leader's assignment, is outdated.

        Raises:
            RebalanceInProgressError: The member has to join again.
        """
        if self._generation is not generation or self._rounds.state.counts.snapshot.losses != losses:
            raise errors.RebalanceInProgressError

    def _join_request(self) -> Any:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            member_id=self._generation.member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocols=self.group_protocols(),
            reason=self._rounds.state.reason[:_LONGEST_REASON],
        )

    def _sync_request(self, generation: Generation, assignments: Mapping[str, bytes]) -> Any:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=generation.protocol,
            assignments=list(assignments.items()),
        )

    async def _in_round(self, request: Any) -> Any:
        """Sends a request that the broker answers when the other members are ready, and returns the answer."""
        standing = self._rounds.state.standing
        timeout_ms = max(
            self._settings.network.request_timeout_ms, self._settings.rebalance_timeout_ms + _ROUND_EXTRA_MS
        )
        standing.waits(True, time.monotonic())
        try:
            return await self._manager.send(request, node_id=self.coordinator_id, request_timeout_ms=timeout_ms)
        finally:
            standing.waits(False, time.monotonic())
