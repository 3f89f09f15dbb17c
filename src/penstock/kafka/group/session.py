"""The membership of a group member in time: when it has to stop its work, and what it counts. No I/O.

The member has to stop when no heartbeat got a response for ``session.timeout.ms``, when there is no connection to the
coordinator for ``heartbeat.interval.ms``, and when its owner has not responded for ``rebalance.timeout.ms``.

Thread: the member's network thread; ``Standing.polled`` any, and the fields that say so.

Source: Heartbeat and AbstractCoordinator of Kafka's clients; WorkerCoordinator.poll.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from penstock.kafka.group.events import GroupView


@dataclass(frozen=True)
class Timed:
    """A count, and the total and maximum duration."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def plus(self, took_s: float) -> Timed:
        took_ms = took_s * 1000
        return Timed(self.count + 1, self.total_ms + took_ms, max(self.max_ms, took_ms))


@dataclass(frozen=True)
class GroupMetrics:
    """The numbers at a moment.

    Attributes:
        last_heartbeat_s: The time of the last sent heartbeat, in seconds of the monotonic clock; None before the first.
        last_answered_s: The time at which the last answered heartbeat was sent, likewise.
    """

    heartbeats: Timed = Timed()
    joins: Timed = Timed()
    syncs: Timed = Timed()
    rebalances: Timed = Timed()
    failed_rebalances: int = 0
    losses: int = 0
    last_heartbeat_s: float | None = None
    last_answered_s: float | None = None
    last_rebalance_s: float | None = None


class GroupCounts:
    """Counts the requests and rounds of a member.

    Attributes:
        snapshot: The current numbers; it is replaced as a whole, so any thread may read it.
    """

    def __init__(self) -> None:
        self.snapshot = GroupMetrics()
        self._round_began: float | None = None

    def heartbeat_sent(self, now: float) -> None:
        self.snapshot = replace(self.snapshot, last_heartbeat_s=now)

    def heartbeat_answered(self, took_s: float) -> None:
        before = self.snapshot
        self.snapshot = replace(
            before, heartbeats=before.heartbeats.plus(took_s), last_answered_s=before.last_heartbeat_s
        )

    def join_answered(self, took_s: float) -> None:
        self.snapshot = replace(self.snapshot, joins=self.snapshot.joins.plus(took_s))

    def sync_answered(self, took_s: float) -> None:
        self.snapshot = replace(self.snapshot, syncs=self.snapshot.syncs.plus(took_s))

    def round_began(self, now: float) -> None:
        """Notes the start of a round; does nothing while a round is in progress."""
        if self._round_began is None:
            self._round_began = now

    def round_ended(self, now: float) -> None:
        began, self._round_began = self._round_began, None
        took_s = 0.0 if began is None else now - began
        self.snapshot = replace(self.snapshot, rebalances=self.snapshot.rebalances.plus(took_s), last_rebalance_s=now)

    def round_failed(self) -> None:
        self._round_began = None
        self.snapshot = replace(self.snapshot, failed_rebalances=self.snapshot.failed_rebalances + 1)

    def lost(self) -> None:
        self.snapshot = replace(self.snapshot, losses=self.snapshot.losses + 1)


class LostReason(Enum):
    """The reasons why a member has to stop its work."""

    NOT_POLLED = "the worker's own loop has not answered"
    """The owner is stuck and would not act on messages of the group."""
    SESSION_OVER = "no heartbeat was answered"
    """The broker considers this member dead, and gives its work to other members."""
    OUT_OF_REACH = "the group's coordinator is out of reach"
    """There is no connection to the coordinator, which may soon consider this member dead."""


@dataclass(frozen=True)
class Limits:
    """The time limits of each state, in seconds.

    Attributes:
        heartbeat_s: The time between two heartbeats, and without a coordinator.
        session_s: The time without an answer to a heartbeat.
        poll_s: The time without a sign of life of the owner.
    """

    heartbeat_s: float
    session_s: float
    poll_s: float


class Standing:
    """The member's own view of its membership.

    The broker restarts the session when a heartbeat arrives. The member measures from the time of sending, so that it
    stops its work before another member gets it. While it waits for other members in a round, heartbeats get no
    response, and the broker keeps it as a member.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._polled_at = now
        self._answered_at = now
        self._unreachable_since: float | None = None
        self._waits = False
        self._joined = False

    @property
    def joined(self) -> bool:
        """True if the member is in the group, so that it has to stop its work before it leaves."""
        return self._joined

    def enter(self, now: float) -> None:
        self._joined = True
        self._answered_at = now
        self._unreachable_since = None

    def leave(self) -> None:
        """Notes that the member is out of the group, or has stopped its work."""
        self._joined = False

    def polled(self, now: float) -> None:
        """Notes that the owner is alive. Thread: any."""
        self._polled_at = now

    def answered(self, sent_at: float) -> None:
        """Notes that the broker has responded to a request sent at that time, and knows this member."""
        self._answered_at = max(self._answered_at, sent_at)

    def waits(self, waiting: bool, now: float) -> None:
        """Notes if a request of a round is in flight, whose response waits for the other members."""
        if self._waits and not waiting:
            self._answered_at = now
        self._waits = waiting

    def reached(self, reachable: bool, now: float) -> None:
        if reachable:
            self._unreachable_since = None
        elif self._unreachable_since is None:
            self._unreachable_since = now

    def is_polled(self, now: float) -> bool:
        return now - self._polled_at <= self._limits.poll_s

    def verdict(self, now: float) -> LostReason | None:
        """Returns the reason why the member has to stop its work now, or None if it need not."""
        if not self.is_polled(now):
            return LostReason.NOT_POLLED
        if not self._joined:
            return None
        if not self._waits and now - self._answered_at > self._limits.session_s:
            return LostReason.SESSION_OVER
        if self._unreachable_since is not None and now - self._unreachable_since >= self._limits.heartbeat_s:
            return LostReason.OUT_OF_REACH
        return None

    def look_again_s(self, now: float) -> float:
        """Returns the seconds until the next check of ``verdict``.

        Connections are checked four times in a heartbeat interval, because their end causes no event.
        """
        left_s = self._polled_at + self._limits.poll_s - now
        if self._joined and not self._waits:
            left_s = min(left_s, self._answered_at + self._limits.session_s - now)
        # Slightly later than the limit, not earlier.
        return min(max(left_s, 0.0) + 0.001, self._limits.heartbeat_s / 4)


class RejoinBackoff:
    """The wait before the next attempt: longer each time, up to a limit, and random, so that members do not retry
    together.

    Args:
        chance: Returns random numbers from 0 to 1.

    >>> backoff = RejoinBackoff(1, 5, lambda: 0.5)
    >>> [backoff.next_s() for _ in range(4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    def __init__(self, first_s: float, most_s: float, chance: Callable[[], float] = random.random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._failures = 0

    def next_s(self) -> float:
        """Counts one more failure and returns the wait after it, varied by up to a fifth at random."""
        plain_s = min(self._first_s * 2.0 ** min(self._failures, 30), self._most_s)
        self._failures += 1
        return plain_s * (0.8 + 0.4 * self._chance())

    def reset(self) -> None:
        self._failures = 0


@dataclass
class MemberState:
    """The state of a member that survives a restart of the loop.

    Attributes:
        view: A snapshot that any thread may read.
        requested: The owner wants to be in the group. Written by any thread.
        unpolled: It left because the owner did not respond; the next sign of life from the owner ends this state.
        closing: It has to end. Written by any thread.
        asked: The number of requests of the owner to join again. Written by any thread.
        reason: Why it joins, for the broker's log. Written by any thread.
        last_completed: The generation of the last round whose assignment has arrived; -1 for none.
        refused: The code of the last reported rejection; empty after a successful join.
    """

    standing: Standing
    counts: GroupCounts = field(default_factory=GroupCounts)
    view: GroupView = field(default_factory=GroupView)
    requested: bool = True
    unpolled: bool = False
    closing: bool = False
    asked: int = 0
    reason: str = "the worker starts"
    last_completed: int = -1
    refused: str = ""

    @property
    def joins(self) -> bool:
        return self.requested and not self.unpolled and not self.closing
