"""A plugin's own metrics, shown together with the worker's.

``PluginMetrics`` is the registry, which contexts and ``Monitorable`` provide; a ``Sensor`` takes values as they happen,
and the stats aggregate them.

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
        name: The plugin's name for it.
        description: A text for people.
        tags: The plugin's own tags, followed by the worker's: connector, task and so on.
    """

    name: str
    description: str = field(default="", compare=False)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", MappingProxyType(dict(self.tags)))

    def __reduce__(self) -> tuple[type[MetricName], tuple[object, ...]]:
        # The tags are a mapping proxy, which cannot be pickled.
        return MetricName, (self.name, self.description, dict(self.tags))

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.tags.items())))


@dataclass(frozen=True)
class SampleWindow:
    """The time window of ``Max``, ``Min``, ``Avg`` and ``Rate``: the latest samples, each of a fixed length.

    Source: org.apache.kafka.common.metrics.MetricConfig.

    Attributes:
        seconds: Length of a sample (``metrics.sample.window.ms``), more than 0.
        samples: The number of samples (``metrics.num.samples``), 1 or more.
    """

    seconds: float = 30.0
    samples: int = 2


class Stat(ABC):
    """A statistic over the recorded values of a sensor. Each metric needs its own object.

    Thread: the sensor calls it under a lock.
    Source: org.apache.kafka.common.metrics.MeasurableStat.
    """

    @abstractmethod
    def record(self, value: float, now: float, window: SampleWindow) -> None:
        """Adds a value.

        Args:
            value: The recorded value.
            now: Monotonic seconds.
            window: The time for which past values count.
        """

    @abstractmethod
    def measure(self, now: float, window: SampleWindow) -> float:
        """Returns the current number; arguments as for ``record``."""


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
    """The sum of all values; end its metric's name in ``-total``.

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
    """A stat over the values of a window, which keeps one aggregate for each sample."""

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
    """The sum of the window's values for each second: record 1 for each event to get events a second.

    A new window counts all its samples except the last as complete, so that the first values do not look like a peak.
    Source: org.apache.kafka.common.metrics.stats.Rate.

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
    """Records values for one or more metrics. ``PluginMetrics.add_sensor`` makes it.

    Thread: any.
    Source: org.apache.kafka.common.metrics.Sensor.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name given to ``add_sensor``."""

    @abstractmethod
    def add(self, metric_name: MetricName, stat: Stat) -> None:
        """Adds a metric over the values that are recorded after this call.

        Args:
            metric_name: A name made by ``PluginMetrics.metric_name``.
            stat: A new object, for this metric only.

        Raises:
            ValueError: The metric exists already, the name belongs to another plugin, or the sensor was removed.
            IllegalWorkerStateException: The plugin was closed.
        """

    @abstractmethod
    def record(self, value: float = 1.0) -> None:
        """Records a value. Quick; has no effect after the end of the plugin."""


class PluginMetrics(ABC):
    """The metrics of one plugin: a connector, task, converter, transform or predicate. The worker implements it.

    ``GET /metrics`` shows them as ``kafka_connect_plugins_<name>``, with the plugin's own tags and those of its owner:
    ``connector``, ``task`` if it belongs to a task, and ``converter``, ``transformation`` or ``predicate``. Hyphens and
    dots become underscores; a name that ends in ``-total`` is a counter. The metrics are removed when the plugin ends.

    Thread: any.
    Source: org.apache.kafka.common.metrics.PluginMetrics, KIP-877.

    Raises:
        IllegalWorkerStateException: From every method, after the connector or task has ended.
    """

    @abstractmethod
    def metric_name(self, name: str, description: str = "", tags: Mapping[str, str] | None = None) -> MetricName:
        """Creates the name of a metric.

        Args:
            name: Letters, digits, hyphens, dots and underscores, a letter first; ``rows-written-total``.
            description: A text for people with the quantity and its unit.
            tags: More labels. Each combination of values is a separate metric, so there must be few.

        Raises:
            ValueError: A name has other characters, or a tag is one of the worker's.
        """

    @abstractmethod
    def add_metric(self, metric_name: MetricName, measurable: Callable[[], float]) -> None:
        """Adds a metric that is measured each time it is read.

        Args:
            metric_name: A name made by ``metric_name``.
            measurable: Returns the number. The worker calls it on its own thread, concurrently with the plugin; it must
                be quick. The metric is not shown while this raises or returns anything other than a number.

        Raises:
            ValueError: The metric exists already, or the name belongs to another plugin.
        """

    @abstractmethod
    def remove_metric(self, metric_name: MetricName) -> None:
        """Removes a metric that ``add_metric`` added.

        Raises:
            ValueError: The metric does not exist.
        """

    @abstractmethod
    def add_sensor(self, name: str) -> Sensor:
        """Adds a sensor; add metrics to it with ``Sensor.add``.

        Raises:
            ValueError: The plugin has a sensor of that name already.
        """

    @abstractmethod
    def remove_sensor(self, name: str) -> None:
        """Removes a sensor and its metrics.

        Raises:
            ValueError: The sensor does not exist.
        """


class Monitorable(ABC):
    """The second base class of a converter, header converter, transform or predicate that has its own metrics.

    Connectors and tasks do not need it: their contexts have ``plugin_metrics()``.
    Source: org.apache.kafka.common.metrics.Monitorable, KIP-877.
    """

    @abstractmethod
    def with_plugin_metrics(self, metrics: PluginMetrics) -> None:
        """Receives the registry. Called once, after ``configure`` and before the first record; also in a preview, which
        shows no metrics.
        """
