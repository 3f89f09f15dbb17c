"""Counters and gauges with tags, readable at any moment.

Main types: ``Metrics`` (the registry of one worker, passed on: there is no global one), ``Counter``, ``Gauge``.
Updates and reads from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

#: Records that went through Spark, by connector.
SPARK_RECORDS_TOTAL = "penstock_spark_records_total"
#: Seconds that users' own transforms took, by connector and transform.
TRANSFORM_SECONDS_TOTAL = "penstock_transform_seconds_total"

_Key = tuple[str, tuple[tuple[str, str], ...]]


class Counter:
    """A number that only grows."""

    __slots__ = ("_lock", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0.0

    def add(self, amount: float = 1) -> None:
        """Adds a number that is not negative."""
        if amount < 0:
            raise ValueError(f"a counter cannot go down (by {amount})")
        with self._lock:
            self._value += amount

    @property
    def value(self) -> float:
        """The sum so far."""
        return self._value


class Gauge:
    """A number that is computed when somebody asks."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    @property
    def value(self) -> float:
        """The number now."""
        return self._read()


class Metrics:
    """The metrics of one worker.

    Thread: any.

    >>> metrics = Metrics()
    >>> metrics.counter("records_total", connector="a", task="0").add(3)
    >>> metrics.counter("records_total", connector="b", task="0").add(4)
    >>> metrics.total("records_total")
    7.0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[_Key, Counter] = {}
        self._gauges: dict[_Key, Gauge] = {}

    def counter(self, name: str, **tags: str) -> Counter:
        """The counter of that name and tags, made when it is not there yet."""
        with self._lock:
            return self._counters.setdefault(_key(name, tags), Counter())

    def gauge(self, name: str, read: Callable[[], float], **tags: str) -> Gauge:
        """Registers how to read a gauge; an earlier one of that name and tags is replaced."""
        gauge = Gauge(read)
        with self._lock:
            self._gauges[_key(name, tags)] = gauge
        return gauge

    def remove(self, **tags: str) -> None:
        """Forgets all metrics that carry these tags, so that deleted connectors leave nothing behind."""
        wanted = set(tags.items())
        with self._lock:
            for table in (self._counters, self._gauges):
                for key in [key for key in table if wanted <= set(key[1])]:
                    del table[key]

    def total(self, name: str, **tags: str) -> float:
        """Sum over all counters and gauges of a name that carry these tags."""
        wanted = set(tags.items())
        return float(sum(value for found, own, value in self.read() if found == name and wanted <= set(own.items())))

    def read(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Name, tags and value of each metric, ordered by name and tags."""
        with self._lock:
            everything: list[tuple[_Key, Counter | Gauge]] = [*self._counters.items(), *self._gauges.items()]
        for (name, tags), metric in sorted(everything, key=lambda entry: entry[0]):
            yield name, dict(tags), metric.value


def _key(name: str, tags: Mapping[str, str]) -> _Key:
    return name, tuple(sorted(tags.items()))
