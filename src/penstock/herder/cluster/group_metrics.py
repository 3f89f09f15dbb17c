"""Counts the rounds of a group as one worker sees them, and publishes metrics of the group.

Main type: ``RoundCounts``. It receives the member's events and passes them on to their owner. A round begins for a
worker when it is about to join, and ends when its assignment is in force; a round that another one overtakes is a part
of that one. Main functions: ``publish_rounds`` (``connect-worker-rebalance-metrics``) and ``publish_member``
(``connect-coordinator-metrics``). The names are Kafka Connect's after the usual export from JMX; a text there is a
label here.

Thread: the member's threads report rounds, the herder's thread reports that one is in force, any thread reads.
Source: DistributedHerder.HerderMetrics, WorkerCoordinator.WorkerCoordinatorMetrics and
AbstractCoordinator.GroupCoordinatorMetrics of Kafka.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from penstock.api import Avg, Max, SampleWindow
from penstock.herder.cluster.member import GroupPlace
from penstock.kafka.group.events import GroupEvents, GroupRefusedException, RoundJoined
from penstock.kafka.group.session import GroupMetrics, Timed
from penstock.telemetry import Metrics


class RoundCounts(GroupEvents):
    """The rounds of one worker.

    Args:
        owner: Receives all events of the member.
        clock: Monotonic seconds.
        window: The time window of the longest and the average duration.
    """

    def __init__(self, owner: GroupEvents, clock: Callable[[], float], window: SampleWindow) -> None:
        self._owner = owner
        self._clock = clock
        self._window = window
        self._lock = threading.Lock()
        #: The time at which the worker began to join; None while it does not.
        self._joins_s: float | None = None
        #: The begin of each round that has ended in the group and is not in force here, by generation.
        self._coming: dict[int, float] = {}
        self._completed = 0
        self._last_s: float | None = None
        self._longest, self._average = Max(), Avg()

    # ------------------------------------------------------------------ events
    def in_force(self, generation: int) -> None:
        """Notes that the assignment of this generation's round is in force and that the worker keeps all of it."""
        with self._lock:
            began = [self._coming.pop(one) for one in list(self._coming) if one <= generation]
            if not began:
                return
            now = self._clock()
            self._completed, self._last_s = self._completed + 1, now
            for stat in (self._longest, self._average):
                stat.record((now - min(began)) * 1000, now, self._window)

    # ------------------------------------------------------------------ values
    @property
    def completed(self) -> int:
        """The number of rounds that have come into force."""
        return self._completed

    @property
    def under_way(self) -> bool:
        """True if the worker joins, or its assignment is not in force yet."""
        with self._lock:
            return self._joins_s is not None or bool(self._coming)

    @property
    def longest_ms(self) -> float:
        """The longest of the window's rounds; NaN if there was none."""
        return self._measured(self._longest)

    @property
    def average_ms(self) -> float:
        """The average of the window's rounds; NaN if there was none."""
        return self._measured(self._average)

    @property
    def since_last_ms(self) -> float:
        """The milliseconds since a round came into force; infinity before the first."""
        last_s = self._last_s
        return math.inf if last_s is None else (self._clock() - last_s) * 1000

    def _measured(self, stat: Max | Avg) -> float:
        with self._lock:
            return stat.measure(self._clock(), self._window)

    # ------------------------------------------------------------------ GroupEvents
    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """See ``GroupEvents``."""
        return self._owner.metadata()

    def before_join(self, generation: int) -> None:
        """See ``GroupEvents``."""
        self._joins()
        self._owner.before_join(generation)

    def assign(
        self, protocol: str, leader: str, members: Mapping[str, bytes], generation: int, last_completed: int
    ) -> Mapping[str, bytes]:
        """See ``GroupEvents``."""
        return self._owner.assign(protocol, leader, members, generation, last_completed)

    def joined(self, joined: RoundJoined) -> None:
        """See ``GroupEvents``."""
        with self._lock:
            began, self._joins_s = self._joins_s, None
            self._coming[joined.generation] = self._clock() if began is None else began
        self._owner.joined(joined)

    def lost(self, reason: str) -> None:
        """See ``GroupEvents``."""
        with self._lock:
            self._coming.clear()
        self._joins()
        self._owner.lost(reason)

    def refused(self, error: GroupRefusedException) -> None:
        """See ``GroupEvents``."""
        self._owner.refused(error)

    def _joins(self) -> None:
        with self._lock:
            if self._joins_s is None:
                self._joins_s = self._clock()


REBALANCE: Final = "kafka_connect_worker_rebalance_"
COORDINATOR: Final = "kafka_connect_coordinator_"


def publish_rounds(metrics: Metrics, place: Callable[[], GroupPlace], rounds: RoundCounts) -> None:
    """Publishes the rounds of a worker.

    Args:
        metrics: The registry that shows them.
        place: The worker's present place.
        rounds: Counts them.
    """
    own: Mapping[str, Callable[[], float]] = {
        "epoch": lambda: place().generation,
        "completed_rebalances_total": lambda: rounds.completed,
        "rebalancing": lambda: rounds.under_way,
        "rebalance_max_time_ms": lambda: rounds.longest_ms,
        "rebalance_avg_time_ms": lambda: rounds.average_ms,
        "time_since_last_rebalance_ms": lambda: rounds.since_last_ms,
    }
    _publish(metrics, REBALANCE, own)

    def leader() -> Iterable[tuple[Mapping[str, str], float]]:
        if (url := place().leader_url) is not None:
            yield {"leader_name": url}, 1.0

    def protocol() -> Iterable[tuple[Mapping[str, str], float]]:
        if (found := place().protocol) is not None:
            yield {"connect_protocol": found.name}, 1.0

    metrics.family(f"{REBALANCE}leader_name", leader)
    metrics.family(f"{REBALANCE}connect_protocol", protocol)


def publish_member(
    metrics: Metrics, place: Callable[[], GroupPlace], member: Callable[[], GroupMetrics], clock: Callable[[], float]
) -> None:
    """Publishes the counters of a member.

    Args:
        metrics: The registry that shows them.
        place: The worker's present place.
        member: The counters of the member.
        clock: Monotonic seconds, as the member's.
    """
    own: dict[str, Callable[[], float]] = {
        "assigned_connectors": lambda: len(place().assigned.connectors),
        "assigned_tasks": lambda: len(place().assigned.tasks),
        "heartbeat_total": lambda: member().heartbeats.count,
        "heartbeat_response_time_max": lambda: member().heartbeats.max_ms,
        "rebalance_latency_total": lambda: member().rebalances.total_ms,
        "failed_rebalance_total": lambda: member().failed_rebalances,
        "last_heartbeat_seconds_ago": lambda: _ago(member().last_heartbeat_s, clock()),
        "last_rebalance_seconds_ago": lambda: _ago(member().last_rebalance_s, clock()),
    }
    timed: Mapping[str, tuple[str, Callable[[], Timed]]] = {
        "join": ("join_time", lambda: member().joins),
        "sync": ("sync_time", lambda: member().syncs),
        "rebalance": ("rebalance_latency", lambda: member().rebalances),
    }
    for what, (time, read) in timed.items():
        own[f"{what}_total"] = _count(read)
        own[f"{time}_avg"] = _average(read)
        own[f"{time}_max"] = _longest(read)
    _publish(metrics, COORDINATOR, own)


def _count(read: Callable[[], Timed]) -> Callable[[], float]:
    return lambda: read().count


def _longest(read: Callable[[], Timed]) -> Callable[[], float]:
    return lambda: read().max_ms if read().count else math.nan


def _average(read: Callable[[], Timed]) -> Callable[[], float]:
    return lambda: found.total_ms / found.count if (found := read()).count else math.nan


def _ago(then_s: float | None, now_s: float) -> float:
    """Kafka's clients report whole seconds, and -1 if there was no event."""
    return -1.0 if then_s is None else float(math.floor(max(0.0, now_s - then_s)))


def _publish(metrics: Metrics, prefix: str, values: Mapping[str, Callable[[], float]]) -> None:
    for name, read in values.items():
        metrics.gauge(prefix + name, lambda read=read: float(read()))  # type: ignore[misc]
