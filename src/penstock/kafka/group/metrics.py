"""The counts of a member of a group, as plain numbers.

Main types: ``GroupMetrics`` (a snapshot), ``GroupCounts`` (counts them). The owner derives metrics from them: those of
Kafka Connect (``connect-coordinator-metrics``) are totals, rates, averages and maxima of a ``Timed``.

Thread: ``GroupCounts`` is written only by the member's network thread; its snapshots are values.

Source: AbstractCoordinator.GroupCoordinatorMetrics of Kafka's clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Timed:
    """A count, and the total and maximum duration."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def plus(self, took_s: float) -> Timed:
        """Returns the counts with one more."""
        took_ms = took_s * 1000
        return Timed(self.count + 1, self.total_ms + took_ms, max(self.max_ms, took_ms))


@dataclass(frozen=True)
class GroupMetrics:
    """The numbers at a moment.

    Attributes:
        heartbeats: Heartbeats with a response, and their latency.
        joins: Successful JoinGroup requests.
        syncs: Successful SyncGroup requests.
        rebalances: Rounds from the request to join to the assignment.
        failed_rebalances: Rounds that ended without an assignment.
        losses: The number of times that all work had to stop.
        last_heartbeat_s: The time of the last sent heartbeat, in seconds of the monotonic clock; None before the first.
        last_answered_s: The time at which the last answered heartbeat was sent, likewise.
        last_rebalance_s: The time of the last assignment, likewise.
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
        """Counts a sent heartbeat."""
        self.snapshot = replace(self.snapshot, last_heartbeat_s=now)

    def heartbeat_answered(self, took_s: float) -> None:
        """Counts an answered heartbeat."""
        before = self.snapshot
        self.snapshot = replace(
            before, heartbeats=before.heartbeats.plus(took_s), last_answered_s=before.last_heartbeat_s
        )

    def join_answered(self, took_s: float) -> None:
        """Counts an answered JoinGroup."""
        self.snapshot = replace(self.snapshot, joins=self.snapshot.joins.plus(took_s))

    def sync_answered(self, took_s: float) -> None:
        """Counts an answered SyncGroup."""
        self.snapshot = replace(self.snapshot, syncs=self.snapshot.syncs.plus(took_s))

    def round_began(self, now: float) -> None:
        """Notes the start of a round; does nothing while a round is in progress."""
        if self._round_began is None:
            self._round_began = now

    def round_ended(self, now: float) -> None:
        """Counts a round that has ended with an assignment."""
        began, self._round_began = self._round_began, None
        took_s = 0.0 if began is None else now - began
        self.snapshot = replace(self.snapshot, rebalances=self.snapshot.rebalances.plus(took_s), last_rebalance_s=now)

    def round_failed(self) -> None:
        """Counts a round that has ended without an assignment."""
        self._round_began = None
        self.snapshot = replace(self.snapshot, failed_rebalances=self.snapshot.failed_rebalances + 1)

    def lost(self) -> None:
        """Counts a loss of all work."""
        self.snapshot = replace(self.snapshot, losses=self.snapshot.losses + 1)
