"""The metrics that connectors, tasks, converters, transforms and predicates add themselves.

Main type: ``InstanceMetrics``, of one instance of a connector or task and of all its plugins; closed with it. The
worker's own counts are in ``penstock.worker.task_metrics`` and ``StartupCounts``.

Thread: any. A plugin's measurables run on the thread that reads the metrics; one that fails is logged and left out.

Source: org.apache.kafka.common.metrics.internals.PluginMetricsImpl, KIP-877.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.api import MetricName, PluginMetrics, SampleWindow, Sensor, Stat
from penstock.errors import IllegalWorkerStateException
from penstock.telemetry import MetricFamily, Metrics

log = logging.getLogger(__name__)

#: The prefix of the names of plugins' metrics: Kafka Connect's group ``plugins`` after the usual export from JMX.
PREFIX: Final = "kafka_connect_plugins_"
#: Tags that identify the owner of a metric. A plugin may use none of them, not even a tag that it does not get.
OWNERS: Final = frozenset({"connector", "task", "converter", "transformation", "predicate"})
_WINDOW: Final = SampleWindow()
#: The time that a reader waits for another reader of the same metric.
_BUSY_S: Final = 1.0

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class InstanceMetrics:
    """The metrics of the plugins of one connector instance or task instance.

    Args:
        labels: ``connector``, and ``task`` for a task.
    """

    def __init__(
        self,
        metrics: Metrics,
        labels: Mapping[str, str],
        *,
        window: SampleWindow = _WINDOW,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._labels = dict(labels)
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._families: dict[tuple[str, frozenset[tuple[str, str]]], MetricFamily] = {}
        self._closed = False

    @classmethod
    def unread(cls) -> InstanceMetrics:
        """Metrics that are not shown, for previews and tests."""
        return cls(Metrics(), {})

    def plugin(self, **labels: str) -> PluginMetrics:
        """The metrics of one plugin.

        Args:
            labels: Identifies it among the instance's plugins: ``converter``, ``transformation``, ``predicate``.
        """
        return _WorkerPluginMetrics(self, {**self._labels, **labels})

    def close(self) -> None:
        """The instance has ended: its metrics go, and no more can be added. Closing again has no effect."""
        with self._lock:
            self._closed = True
            families = list(self._families.values())
            self._families.clear()
        for family in families:
            self._metrics.drop(family)

    # -- For the metrics of its plugins
    @property
    def window(self) -> SampleWindow:
        return self._window

    def now(self) -> float:
        return self._clock()

    def check_open(self, where: str) -> None:
        if self._closed:
            raise IllegalWorkerStateException(f"The metrics of {where} are closed: it has ended")

    def add(self, where: str, name: MetricName, measure: Callable[[], float]) -> MetricFamily:
        exported, tags = PREFIX + _spelled(name.name), {_spelled(tag): text for tag, text in name.tags.items()}
        key = exported, frozenset(tags.items())
        with self._lock:
            self.check_open(where)
            if key in self._families:
                raise ValueError(
                    f"{where} has a metric {name.name} with the tags {dict(name.tags)} already (as {exported}): "
                    "remove that one before, or give one of them another name or other tags"
                )
            read = _Reading(f"{where}: metric {name.name}", measure)
            self._families[key] = family = self._metrics.family(exported, read, name.description, **tags)
        return family

    def remove(self, family: MetricFamily) -> None:
        with self._lock:
            for key in [key for key, found in self._families.items() if found is family]:
                del self._families[key]
        self._metrics.drop(family)


class _Reading:
    """Reads a metric; gives nothing while the plugin raises, and logs the first reason."""

    def __init__(self, what: str, measure: Callable[[], float]) -> None:
        self._what = what
        self._measure = measure
        self._busy = threading.Lock()
        self._failing = False

    def __call__(self) -> list[tuple[Mapping[str, str], float]]:
        # Only one reader blocks on a measurable that hangs; later readers leave it out.
        if not self._busy.acquire(timeout=_BUSY_S):
            return []
        try:
            value = _number(self._measure())
        except BaseException:
            if not self._failing:
                log.warning("%s cannot be measured and is not shown until it can be", self._what, exc_info=True)
            self._failing = True
            return []
        finally:
            self._busy.release()
        self._failing = False
        return [({}, value)]


def _number(value: object) -> float:
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is not a number")
    return float(value)  # type: ignore[arg-type] # what is no number raises TypeError


def _spelled(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


class _WorkerPluginMetrics(PluginMetrics):
    def __init__(self, instance: InstanceMetrics, labels: Mapping[str, str]) -> None:
        self._instance = instance
        self._labels = dict(labels)
        self.where = "The plugin" + "".join(f" {label}={text}" for label, text in labels.items())
        self._lock = threading.Lock()
        self._measured: dict[MetricName, MetricFamily] = {}
        self._sensors: dict[str, _WorkerSensor] = {}

    def metric_name(self, name: str, description: str = "", tags: Mapping[str, str] | None = None) -> MetricName:
        self._instance.check_open(self.where)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{self.where} cannot call a metric {name!r}: "
                "a name is letters, digits, hyphens, dots and underscores, a letter first"
            )
        own = dict(tags or {})
        self._check_tags(name, own)
        return MetricName(name, description, {**own, **self._labels})

    def _check_tags(self, name: str, tags: Mapping[Any, Any]) -> None:
        spellings: dict[str, str] = {}
        for tag, text in tags.items():
            if not isinstance(tag, str) or not _NAME.fullmatch(tag):
                wrong = "a tag's name is letters, digits, hyphens, dots and underscores, a letter first"
            elif _spelled(tag) in OWNERS:
                wrong = f"the worker's own tags are {', '.join(sorted(OWNERS))}; choose another name"
            elif not isinstance(text, str):
                wrong = f"its value must be text, not {type(text).__name__}"
            elif (other := spellings.setdefault(_spelled(tag), tag)) != tag:
                wrong = f"it is shown as {_spelled(tag)}, as is the tag {other!r}"
            else:
                continue
            raise ValueError(f"{self.where} cannot give the metric {name} the tag {tag!r}: {wrong}")

    def check_name(self, name: MetricName) -> None:
        """A name made by hand must be one that ``metric_name`` would make."""
        own = {tag: text for tag, text in name.tags.items() if tag not in self._labels}
        if self.metric_name(name.name, tags=own) != name:
            raise ValueError(
                f"{self.where} cannot have a metric with the tags {dict(name.tags)}: "
                "make its name with metric_name() of the same plugin"
            )

    def add_metric(self, metric_name: MetricName, measurable: Callable[[], float]) -> None:
        self.check_name(metric_name)
        if not callable(measurable):
            raise ValueError(
                f"{self.where} cannot measure {metric_name.name}: {type(measurable).__name__} cannot be called"
            )
        with self._lock:
            self._measured[metric_name] = self._instance.add(self.where, metric_name, measurable)

    def remove_metric(self, metric_name: MetricName) -> None:
        self._instance.check_open(self.where)
        with self._lock:
            family = self._measured.pop(metric_name, None)
        if family is None:
            raise ValueError(
                f"{self.where} has added no metric {metric_name.name} with the tags {dict(metric_name.tags)}; "
                "those of a sensor are removed with it"
            )
        self._instance.remove(family)

    def add_sensor(self, name: str) -> Sensor:
        self._instance.check_open(self.where)
        with self._lock:
            if name in self._sensors:
                raise ValueError(f"{self.where} has a sensor {name} already: remove it before, or choose another name")
            self._sensors[name] = sensor = _WorkerSensor(name, self, self._instance)
        return sensor

    def remove_sensor(self, name: str) -> None:
        self._instance.check_open(self.where)
        with self._lock:
            sensor = self._sensors.pop(name, None)
        if sensor is None:
            raise ValueError(f"{self.where} has no sensor {name}")
        sensor.remove()


class _WorkerSensor(Sensor):
    def __init__(self, name: str, plugin: _WorkerPluginMetrics, instance: InstanceMetrics) -> None:
        self._name = name
        self._plugin = plugin
        self._instance = instance
        self._lock = threading.Lock()
        self._stats: list[Stat] = []
        self._families: list[MetricFamily] = []
        self._removed = False

    @property
    def name(self) -> str:
        return self._name

    def add(self, metric_name: MetricName, stat: Stat) -> None:
        self._plugin.check_name(metric_name)
        if not isinstance(stat, Stat):
            raise ValueError(f"{self._plugin.where}: {type(stat).__name__} is no Stat; sensor {self._name} needs one")

        def measure() -> float:
            with self._lock:
                return stat.measure(self._instance.now(), self._instance.window)

        with self._lock:
            if self._removed:
                raise ValueError(f"{self._plugin.where}: sensor {self._name} was removed and takes no more metrics")
            self._families.append(self._instance.add(self._plugin.where, metric_name, measure))
            self._stats.append(stat)

    def record(self, value: float = 1.0) -> None:
        number, window = _number(value), self._instance.window
        with self._lock:
            now = self._instance.now()
            for stat in self._stats:
                stat.record(number, now, window)

    def remove(self) -> None:
        with self._lock:
            self._removed = True
            families = list(self._families)
            self._families.clear()
            self._stats.clear()
        for family in families:
            self._instance.remove(family)
