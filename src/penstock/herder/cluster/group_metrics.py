"""Counts the rounds of a group as one worker sees them, and publishes metrics of the group.

``publish_rounds`` makes ``connect-worker-rebalance-metrics``, ``publish_member`` ``connect-coordinator-metrics``, with
Kafka Connect's names after the usual export from JMX; a text there is a label here.

Source: DistributedHerder.HerderMetrics, WorkerCoordinator.WorkerCoordinatorMetrics and
AbstractCoordinator.GroupCoordinatorMetrics of Kafka.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.api import Avg, Max, SampleWindow
from penstock.kafka.group.session import GroupMetrics, Timed
from penstock.telemetry import Metrics

if TYPE_CHECKING:
    from penstock.herder.cluster.member import GroupPlace

REBALANCE: Final = "kafka_connect_worker_rebalance_"
COORDINATOR: Final = "kafka_connect_coordinator_"


class RoundCounts:
    """The rounds of one worker.

    A round begins for a worker when it is about to join, and ends when its assignment is in force; a round that another
    one overtakes is a part of that one.

    Args:
        clock: Monotonic seconds.
        window: The time window of the longest and the average duration.

    Thread: any.
    """

    def __init__(self, clock: Callable[[], float], window: SampleWindow) -> None:
        self._clock = clock
        self._window = window
        self._lock = threading.Lock()
        # The time at which the worker began to join; None while it does not.
        self._joins_s: float | None = None
        # The begin of each round that has ended in the group and is not in force here, by generation.
        self._coming: dict[int, float] = {}
        self.completed = 0
        self._last_s: float | None = None
        self._longest, self._average = Max(), Avg()

    def begins(self) -> None:
        """Notes that the worker is about to join."""
        with self._lock:
            if self._joins_s is None:
                self._joins_s = self._clock()

    def ends(self, generation: int) -> None:
        """Notes that a round has ended in the group."""
        with self._lock:
            began, self._joins_s = self._joins_s, None
            self._coming[generation] = self._clock() if began is None else began

    def lost(self) -> None:
        """Notes that the worker is out of the group, and joins again."""
        with self._lock:
            self._coming.clear()
        self.begins()

    def in_force(self, generation: int) -> None:
        """Notes that the assignment of this generation's round is in force and that the worker keeps all of it."""
        with self._lock:
            began = [self._coming.pop(one) for one in list(self._coming) if one <= generation]
            if not began:
                return
            now = self._clock()
            self.completed, self._last_s = self.completed + 1, now
            for stat in (self._longest, self._average):
                stat.record((now - min(began)) * 1000, now, self._window)

    @property
    def under_way(self) -> bool:
        """True if the worker joins, or its assignment is not in force yet."""
        with self._lock:
            return self._joins_s is not None or bool(self._coming)

    @property
    def longest_ms(self) -> float:
        """The longest of the window's rounds; NaN if there was none."""
        with self._lock:
            return self._longest.measure(self._clock(), self._window)

    @property
    def average_ms(self) -> float:
        """The average of the window's rounds; NaN if there was none."""
        with self._lock:
            return self._average.measure(self._clock(), self._window)

    @property
    def since_last_ms(self) -> float:
        """The milliseconds since a round came into force; infinity before the first."""
        last_s = self._last_s
        return math.inf if last_s is None else (self._clock() - last_s) * 1000


def publish_rounds(metrics: Metrics, place: Callable[[], GroupPlace], rounds: RoundCounts) -> None:
    """Publishes the rounds of a worker."""
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
    """Publishes the counters of a member; ``clock`` returns monotonic seconds, as the member's."""
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
        own |= _timed(what, time, read)
    _publish(metrics, COORDINATOR, own)


def _timed(what: str, time: str, read: Callable[[], Timed]) -> dict[str, Callable[[], float]]:
    return {
        f"{what}_total": lambda: read().count,
        f"{time}_avg": lambda: found.total_ms / found.count if (found := read()).count else math.nan,
        f"{time}_max": lambda: read().max_ms if read().count else math.nan,
    }


def _ago(then_s: float | None, now_s: float) -> float:
    """Kafka's clients report whole seconds, and -1 if there was no event."""
    return -1.0 if then_s is None else float(math.floor(max(0.0, now_s - then_s)))


def _publish(metrics: Metrics, prefix: str, values: Mapping[str, Callable[[], float]]) -> None:
    for name, read in values.items():
        metrics.gauge(prefix + name, lambda read=read: float(read()))  # type: ignore[misc]
