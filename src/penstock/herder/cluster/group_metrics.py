"""Publishes what a worker knows of its group as metrics.

Main functions: ``publish_rounds`` (``connect-worker-rebalance-metrics``) and ``publish_member``
(``connect-coordinator-metrics``). Names are those that Kafka Connect's have after the usual export from JMX; what is a
text there is a label here. Thread: any reads them.

Source: DistributedHerder.HerderMetrics, WorkerCoordinator.WorkerCoordinatorMetrics and
AbstractCoordinator.GroupCoordinatorMetrics of Kafka; metrics.md sections 8, 9 and 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from penstock.herder.cluster.group import Place
from penstock.herder.cluster.round_counts import RoundCounts
from penstock.kafka.group.metrics import GroupMetrics, Timed
from penstock.telemetry import Metrics

REBALANCE: Final = "kafka_connect_worker_rebalance_"
COORDINATOR: Final = "kafka_connect_coordinator_"


def publish_rounds(metrics: Metrics, place: Callable[[], Place], rounds: RoundCounts) -> None:
    """Publishes the rounds of a worker.

    Args:
        metrics: Where they are shown.
        place: What the worker knows of its place now.
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
    metrics: Metrics, place: Callable[[], Place], member: Callable[[], GroupMetrics], clock: Callable[[], float]
) -> None:
    """Publishes what a member does.

    Args:
        metrics: Where it is shown.
        place: What the worker knows of its place now.
        member: What the member has done up to now.
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
    """Kafka's clients tell whole seconds, and -1 where there was nothing."""
    return -1.0 if then_s is None else float(math.floor(max(0.0, now_s - then_s)))


def _publish(metrics: Metrics, prefix: str, values: Mapping[str, Callable[[], float]]) -> None:
    for name, read in values.items():
        metrics.gauge(prefix + name, lambda read=read: float(read()))  # type: ignore[misc]
