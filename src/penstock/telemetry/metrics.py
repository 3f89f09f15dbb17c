"""Counters and gauges with tags, readable at any moment, also as text for Prometheus (``metrics_text``).

``Metrics`` is the registry of one worker, passed as an argument: there is no global one. Thread: any.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

#: Records that went through Spark, by connector, by their path, and by the reason why they did not go as columns.
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
        if amount < 0:
            raise ValueError(f"a counter cannot go down (by {amount})")
        with self._lock:
            self._value += amount

    @property
    def value(self) -> float:
        return self._value


class MetricFamily:
    """Gauges of one name, which may come and go; their numbers are computed at each read."""

    __slots__ = ("_read", "description", "key")

    def __init__(
        self, key: _Key, read: Callable[[], Iterable[tuple[Mapping[str, str], float]]], description: str
    ) -> None:
        self.key = key
        self.description = description
        self._read = read

    def read(self) -> Iterator[tuple[dict[str, str], float]]:
        for more, value in self._read():
            yield {**dict(self.key[1]), **more}, value


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
        self._families: dict[_Key, MetricFamily] = {}

    # Parameters before the slash are positional, so that tags can have any name.
    def counter(self, name: str, /, **tags: str) -> Counter:
        """The counter of that name and tags; creates it if needed."""
        with self._lock:
            return self._counters.setdefault(_key(name, tags), Counter())

    def gauge(self, name: str, read: Callable[[], float], /, **tags: str) -> None:
        """Registers the function that reads a gauge; replaces an earlier gauge of that name and tags."""
        self.family(name, lambda: [({}, read())], **tags)

    def family(
        self,
        name: str,
        read: Callable[[], Iterable[tuple[Mapping[str, str], float]]],
        description: str = "",
        /,
        **tags: str,
    ) -> MetricFamily:
        """Registers the function that reads gauges that come and go; replaces an earlier family of that name and tags.

        ``read`` yields the further tags and the value of each gauge; ``description`` is the help text.
        """
        family = MetricFamily(_key(name, tags), read, description)
        with self._lock:
            self._families[family.key] = family
        return family

    def drop(self, family: MetricFamily) -> None:
        """Removes a family, unless another one has replaced it."""
        with self._lock:
            if self._families.get(family.key) is family:
                del self._families[family.key]

    def remove(self, /, **tags: str) -> None:
        """Removes all metrics that carry these tags, so that no metrics of deleted connectors remain."""
        wanted = set(tags.items())
        with self._lock:
            for table in (self._counters, self._families):
                for key in [key for key in table if wanted <= set(key[1])]:
                    del table[key]

    def total(self, name: str, /, **tags: str) -> float:
        """Sum over all counters and gauges of a name that carry these tags."""
        wanted = set(tags.items())
        return float(sum(value for found, own, value in self.read() if found == name and wanted <= set(own.items())))

    def read(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Name, tags and value of each metric, ordered by name and tags."""
        with self._lock:
            everything: list[tuple[_Key, Counter | MetricFamily]] = [*self._counters.items(), *self._families.items()]
        for (name, tags), metric in sorted(everything, key=lambda entry: entry[0]):
            if isinstance(metric, MetricFamily):
                for all_tags, value in metric.read():
                    yield name, all_tags, value
            else:
                yield name, dict(tags), metric.value

    def descriptions(self) -> dict[str, str]:
        """The description of each metric, where one is known."""
        with self._lock:
            families = sorted(self._families.items(), key=lambda entry: entry[0], reverse=True)
        # If one name has several descriptions, the first one is used.
        return {name: family.description for (name, _), family in families if family.description}


def _key(name: str, tags: Mapping[str, str]) -> _Key:
    return name, tuple(sorted(tags.items()))


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(
    metrics: Iterable[tuple[str, Mapping[str, str], float]], descriptions: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Metrics ordered by name in Prometheus' text format; names that end in ``_total`` are counters.

    >>> print(metrics_text([("a_total", {"connector": "x", "task": "0"}, 3.0), ("b", {}, 0.5)]), end="")
    # TYPE a_total counter
    a_total{connector="x",task="0"} 3
    # TYPE b gauge
    b 0.5
    """
    lines: list[str] = []
    last = None
    for name, tags, value in metrics:
        if name != last:
            if name in descriptions:
                lines.append(f"# HELP {name} {_one_line(descriptions[name])}")
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            last = name
        labels = ",".join(f'{tag}="{_escaped(text)}"' for tag, text in tags.items())
        lines.append(f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value) if value == int(value) else value)


def _escaped(text: str) -> str:
    return _one_line(text).replace('"', '\\"')


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
