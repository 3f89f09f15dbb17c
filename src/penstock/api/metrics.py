"""Metrics of a plugin's own: what it counts and measures, shown among those of the worker.

Main types: ``PluginMetrics`` (where metrics are added; contexts and ``Monitorable`` give it), ``MetricName``,
``Sensor`` (takes values as they happen) and the stats that make numbers of them: ``Value``, ``CumulativeSum``,
``CumulativeCount``, ``Max``, ``Min``, ``Avg``, ``Rate``.

Thread: any.
Source: org.apache.kafka.common.metrics, KIP-877.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class MetricName:
    """The name, group, description and tags of a metric. ``PluginMetrics.metric_name`` makes it.

    Source: org.apache.kafka.common.MetricName.

    Attributes:
        name: As the plugin calls it.
        description: For people.
        tags: The plugin's own tags, and behind them those the worker adds: connector, task and so on.
    """

    name: str
    description: str = field(default="", compare=False)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", MappingProxyType(dict(self.tags)))

    def __reduce__(self) -> tuple[type[MetricName], tuple[object, ...]]:
        # The tags cannot be pickled as they are kept.
        return MetricName, (self.name, self.description, dict(self.tags))

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.tags.items())))


@dataclass(frozen=True)
class SampleWindow:
    """Over what time ``Max``, ``Min``, ``Avg`` and ``Rate`` look: the latest samples, each of a fixed length.

    Source: org.apache.kafka.common.metrics.MetricConfig.

    Attributes:
        seconds: Length of a sample (``metrics.sample.window.ms``), more than 0.
        samples: How many count (``metrics.num.samples``), 1 or more.
    """

    seconds: float = 30.0
    samples: int = 2


class Stat(ABC):
    """A statistic that a metric of a sensor computes from recorded values. One object serves one metric.

    Thread: the sensor calls it under a lock.
    Source: org.apache.kafka.common.metrics.MeasurableStat.
    """

    @abstractmethod
    def record(self, value: float, now: float, window: SampleWindow) -> None:
        """Takes a value.

        Args:
            value: As it was recorded.
            now: Monotonic seconds.
            window: How long values of the past count.
        """

    @abstractmethod
    def measure(self, now: float, window: SampleWindow) -> float:
        """The number to show; arguments as for ``record``."""


class Value(Stat):
    """The latest value; 0 before the first. Source: org.apache.kafka.common.metrics.stats.Value.

    >>> value, window = Value(), SampleWindow()
    >>> value.record(3, 1.0, window); value.record(2, 1.5, window); value.measure(99.0, window)
    2
    """

    def __init__(self) -> None:
        self._latest = 0.0

    def record(self, value: float, now: float, window: SampleWindow) -> None:
        """See ``Stat``."""
        self._latest = value

    def measure(self, now: float, window: SampleWindow) -> float:
        """See ``Stat``."""
        return self._latest


class CumulativeSum(Stat):
    """The sum of all values; give its metric a name that ends in ``-total``.

    Source: org.apache.kafka.common.metrics.stats.CumulativeSum.
    """

    def __init__(self) -> None:
        self._sum = 0.0

    def record(self, value: float, now: float, window: SampleWindow) -> None:
        """See ``Stat``."""
        self._sum += value

    def measure(self, now: float, window: SampleWindow) -> float:
        """See ``Stat``."""
        return self._sum


class CumulativeCount(CumulativeSum):
    """The number of recorded values.

    Source: org.apache.kafka.common.metrics.stats.CumulativeCount.
    """

    def record(self, value: float, now: float, window: SampleWindow) -> None:
        """See ``Stat``."""
        super().record(1.0, now, window)


@dataclass
class _Sample:
    start: float
    count: int = 0
    total: float = 0.0
    largest: float = -math.inf
    smallest: float = math.inf


class _SampledStat(Stat):
    """A stat over the values of a window, kept as sums of a few samples."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now: float, window: SampleWindow) -> None:
        """See ``Stat``."""
        if not self._samples or now - self._samples[-1].start >= window.seconds:
            self._samples.append(_Sample(now))
        self._forget_old(now, window)
        latest = self._samples[-1]
        latest.count += 1
        latest.total += value
        latest.largest = max(latest.largest, value)
        latest.smallest = min(latest.smallest, value)

    def measure(self, now: float, window: SampleWindow) -> float:
        """See ``Stat``."""
        self._forget_old(now, window)
        return self._of(self._samples, now, window)

    def _forget_old(self, now: float, window: SampleWindow) -> None:
        while self._samples and now - self._samples[0].start >= window.seconds * window.samples:
            self._samples.popleft()

    @abstractmethod
    def _of(self, samples: deque[_Sample], now: float, window: SampleWindow) -> float: ...


class Max(_SampledStat):
    """The largest value of the window; NaN when there is none. Source: org.apache.kafka.common.metrics.stats.Max.

    >>> largest, window = Max(), SampleWindow(seconds=30, samples=2)
    >>> largest.record(5, 0.0, window); largest.record(3, 40.0, window)
    >>> largest.measure(59.0, window), largest.measure(60.0, window), largest.measure(100.0, window)
    (5, 3, nan)
    """

    def _of(self, samples: deque[_Sample], now: float, window: SampleWindow) -> float:
        return max((sample.largest for sample in samples), default=math.nan)


class Min(_SampledStat):
    """The smallest value of the window; NaN when there is none. Source: org.apache.kafka.common.metrics.stats.Min."""

    def _of(self, samples: deque[_Sample], now: float, window: SampleWindow) -> float:
        return min((sample.smallest for sample in samples), default=math.nan)


class Avg(_SampledStat):
    """The average of the window's values; NaN when there is none.

    Source: org.apache.kafka.common.metrics.stats.Avg.
    """

    def _of(self, samples: deque[_Sample], now: float, window: SampleWindow) -> float:
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else math.nan


class Rate(_SampledStat):
    """The sum of the window's values for each second: events a second when 1 is recorded for each.

    A window that has only begun counts as if all of its samples but the last were over, so that the first values do not
    look like a peak. Source: org.apache.kafka.common.metrics.stats.Rate.

    >>> rate, window = Rate(), SampleWindow(seconds=30, samples=2)
    >>> rate.record(60, 0.0, window)
    >>> rate.measure(1.0, window), rate.measure(40.0, window), rate.measure(60.0, window)
    (2.0, 1.5, 0.0)
    """

    def _of(self, samples: deque[_Sample], now: float, window: SampleWindow) -> float:
        if not samples:
            return 0.0
        least = window.seconds * max(1, window.samples - 1)
        return sum(sample.total for sample in samples) / max(now - samples[0].start, least)


class Sensor(ABC):
    """Takes values as they happen, for one metric or more. ``PluginMetrics.add_sensor`` makes it.

    Thread: any.
    Source: org.apache.kafka.common.metrics.Sensor.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """As it was added."""

    @abstractmethod
    def add(self, metric_name: MetricName, stat: Stat) -> None:
        """Adds a metric over the values recorded from now on.

        Args:
            metric_name: Of ``PluginMetrics.metric_name``.
            stat: A new one, for this metric alone.

        Raises:
            ValueError: There is such a metric already, the name is not of this plugin, or the sensor was removed.
            IllegalWorkerStateException: The plugin was closed.
        """

    @abstractmethod
    def record(self, value: float = 1.0) -> None:
        """Takes a value. Quick, and allowed after the end of the plugin: it then has no effect."""


class PluginMetrics(ABC):
    """The metrics of one plugin: a connector, task, converter, transform or predicate. The worker implements it.

    ``GET /metrics`` shows them as ``kafka_connect_plugins_<name>``, with the plugin's own tags and those that say whose
    they are: ``connector``, ``task`` for what belongs to a task, and ``converter``, ``transformation`` or
    ``predicate``. Hyphens and dots become underscores; a name that ends in ``-total`` is a counter. When the plugin
    ends, they go.

    Thread: any.
    Source: org.apache.kafka.common.metrics.PluginMetrics, KIP-877.

    Raises:
        IllegalWorkerStateException: From every method, once the connector or task has ended.
    """

    @abstractmethod
    def metric_name(self, name: str, description: str = "", tags: Mapping[str, str] | None = None) -> MetricName:
        """Creates the name of a metric.

        Args:
            name: Letters, digits, hyphens, dots and underscores, a letter first; ``rows-written-total``.
            description: For people: what is measured, in what unit.
            tags: More labels. Each set of values is a metric of its own, so there must be few.

        Raises:
            ValueError: A name cannot be shown, or a tag is one of the worker's.
        """

    @abstractmethod
    def add_metric(self, metric_name: MetricName, measurable: Callable[[], float]) -> None:
        """Adds a metric that is measured when somebody looks.

        Args:
            metric_name: Of ``metric_name``.
            measurable: Gives the number. It is called on a thread of the worker beside the plugin's own, must be quick,
                and is left out of what is shown while it raises or gives something else than a number.

        Raises:
            ValueError: The plugin has such a metric already, or the name is another plugin's.
        """

    @abstractmethod
    def remove_metric(self, metric_name: MetricName) -> None:
        """Removes a metric that ``add_metric`` added.

        Raises:
            ValueError: There is none.
        """

    @abstractmethod
    def add_sensor(self, name: str) -> Sensor:
        """Adds a sensor, to which metrics are added.

        Raises:
            ValueError: The plugin has a sensor of that name already.
        """

    @abstractmethod
    def remove_sensor(self, name: str) -> None:
        """Removes a sensor and its metrics.

        Raises:
            ValueError: There is none.
        """


class Monitorable(ABC):
    """A converter, header converter, transform or predicate with metrics of its own: name it as a second base.

    Connectors and tasks need it not; their contexts have ``plugin_metrics()``.
    Source: org.apache.kafka.common.metrics.Monitorable, KIP-877.
    """

    @abstractmethod
    def with_plugin_metrics(self, metrics: PluginMetrics) -> None:
        """Takes the metrics. Called once, after ``configure`` and before the first record; also in a preview, where
        nobody sees them.
        """
