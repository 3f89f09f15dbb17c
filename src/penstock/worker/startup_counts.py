"""Counts the starts of connectors and tasks on a worker, and how they ended.

Main types: ``StartupCounts``, and ``Startup`` for one start.

Thread: any; what one ``Startup`` is told comes one at a time.
Source: org.apache.kafka.connect.runtime.Worker.WorkerMetricsGroup (there the counters of tasks stay at 0, KAFKA-18489).
"""

from __future__ import annotations

from typing import Final

from penstock.model import State
from penstock.telemetry import Counter, Metrics

#: Then ``connector`` or ``task``, and what of its start is counted.
PREFIX: Final = "kafka_connect_worker_"


class Startup:
    """One start of a connector or task, which succeeds or fails at most once.

    Args:
        attempts: Counts that it began.
        successes: Counts that it was RUNNING.
        failures: Counts that it was FAILED before.
        resting: It is created PAUSED or STOPPED: its start begins when it is resumed.
    """

    def __init__(self, attempts: Counter, successes: Counter, failures: Counter, *, resting: bool) -> None:
        self._attempts = attempts
        self._outcomes = {State.RUNNING: successes, State.FAILED: failures}
        self._begun = False
        self._ended = False
        if not resting:
            self._begin()

    def reached(self, state: State) -> None:
        """The connector or task is in this state now."""
        outcome = self._outcomes.get(state)
        if outcome is None or self._ended:
            return
        self._begin()
        self._ended = True
        outcome.add()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._attempts.add()


class StartupCounts:
    """The counters of a worker.

    >>> metrics = Metrics()
    >>> starting = StartupCounts(metrics).task()
    >>> starting.reached(State.RUNNING); starting.reached(State.FAILED)
    >>> [metrics.total(f"{PREFIX}task_startup_{what}_total") for what in ("attempts", "success", "failure")]
    [1.0, 1.0, 0.0]
    """

    def __init__(self, metrics: Metrics) -> None:
        self._counters = {
            kind: tuple(metrics.counter(f"{PREFIX}{kind}_startup_{what}_total") for what in _COUNTED)
            for kind in ("connector", "task")
        }

    def connector(self, *, resting: bool = False) -> Startup:
        """A start of a connector begins, unless it is created resting."""
        return Startup(*self._counters["connector"], resting=resting)

    def task(self, *, resting: bool = False) -> Startup:
        """A start of a task begins, unless it is created resting."""
        return Startup(*self._counters["task"], resting=resting)


_COUNTED: Final = ("attempts", "success", "failure")
