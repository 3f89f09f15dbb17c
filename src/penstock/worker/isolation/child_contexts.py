"""The contexts of a task in a process of its own, which pass each request on to the worker.

Main types: ``ChildSourceTaskContext``, ``ChildSinkTaskContext``. The worker's own contexts answer the calls, so their
rules and errors are the same.

Thread: any; see ``penstock.api`` for what each method allows.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, overload

from penstock.api import (
    Closing,
    ErrantRecordReporter,
    MetricName,
    OffsetStorageReader,
    PluginMetrics,
    Rows,
    SampleWindow,
    Sensor,
    SinkFrame,
    SinkRecord,
    SinkTaskContext,
    SourceTaskContext,
    Stat,
    TopicPartition,
    TransactionContext,
)
from penstock.errors import IllegalWorkerStateException
from penstock.threads import StopEvent
from penstock.worker.isolation.channel import Channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.worker.source.transaction_boundaries import TransactionRequests

#: The measurable metrics that the worker reads by name. One process has one task.
_measurables: Final[dict[MetricName, Callable[[], float]]] = {}


def measured(name: MetricName) -> float:
    """Measures one of the task's metrics."""
    return float(_measurables[name]())


class _Offsets(OffsetStorageReader):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        found: list[dict[str, object] | None] = self._channel.call("offsets", [dict(one) for one in partitions])
        return found


class ChildSourceTaskContext(SourceTaskContext):
    """The context of a source task.

    Args:
        channel: The channel to the worker.
        frames: True if the task returns frames.

    Attributes:
        requests: The task's requests for its transactions, collected until ``poll`` returns; None before it asks for a
            transaction context, or if it does not define their boundaries.
    """

    def __init__(self, channel: Channel, *, frames: bool = False) -> None:
        self.stopping = StopEvent()
        self.requests: TransactionRequests | None = None
        self._frames = frames
        self._channel = channel
        self._metrics = _ChildMetrics(channel)

    def configs(self) -> dict[str, str]:
        """See ``SourceTaskContext``."""
        found: dict[str, str] = self._channel.call("configs")
        return found

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceTaskContext``."""
        return _Offsets(self._channel)

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """See ``SourceTaskContext``."""
        self._channel.call("advance", dict(partition), None if offset is None else dict(offset))

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        """See ``SourceTaskContext``."""
        self._channel.call("progress", done, total, unit)

    def transaction_context(self) -> TransactionContext | None:
        """See ``SourceTaskContext``. None if the worker's context has none."""
        if self.requests is None and self._channel.call("has_transactions"):
            from penstock.worker.source.transaction_boundaries import TransactionRequests

            self.requests = TransactionRequests("with task.isolation=process", frames=self._frames)
        return self.requests

    def plugin_metrics(self) -> PluginMetrics:
        """See ``SourceTaskContext``."""
        return self._metrics

    def spark(self) -> SparkSession:
        """See ``SourceTaskContext``. Raises ``IllegalWorkerStateException``: the session is in the worker's process."""
        from penstock.worker.isolation.child import NO_SPARK

        raise IllegalWorkerStateException(NO_SPARK)


class ChildSinkTaskContext(SinkTaskContext):
    """The context of a sink task."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._metrics = _ChildMetrics(channel)
        self._reporter = _Reporter(channel)
        self._calls: dict[int, Callable[[], object]] = {}
        self._numbers = itertools.count()

    def configs(self) -> dict[str, str]:
        """See ``SinkTaskContext``."""
        found: dict[str, str] = self._channel.call("configs")
        return found

    @overload
    def offset(self, offsets: TopicPartition, offset: int) -> None: ...

    @overload
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def offset(self, offsets: TopicPartition | Mapping[TopicPartition, int], offset: int | None = None) -> None:
        """See ``SinkTaskContext``."""
        self._channel.call("offset", *((offsets, offset) if isinstance(offsets, TopicPartition) else (dict(offsets),)))

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        """See ``SinkTaskContext``."""
        self._channel.call("progress", done, total, unit)

    def spark(self) -> SparkSession:
        """See ``SinkTaskContext``. Raises ``IllegalWorkerStateException``: the session is in the worker's process."""
        from penstock.worker.isolation.child import NO_SPARK

        raise IllegalWorkerStateException(NO_SPARK)

    def timeout(self, timeout_ms: int) -> None:
        """See ``SinkTaskContext``."""
        self._channel.call("timeout", timeout_ms)

    def assignment(self) -> frozenset[TopicPartition]:
        """See ``SinkTaskContext``."""
        found: frozenset[TopicPartition] = self._channel.call("assignment")
        return found

    def pause(self, *partitions: TopicPartition) -> None:
        """See ``SinkTaskContext``."""
        self._channel.call("pause", *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """See ``SinkTaskContext``."""
        self._channel.call("resume", *partitions)

    def request_commit(self) -> None:
        """See ``SinkTaskContext``."""
        self._channel.call("request_commit")

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """See ``SinkTaskContext``."""
        return self._reporter if self._channel.call("has_reporter") else None

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        """See ``SinkTaskContext``."""
        return self._reporter.report_rows(frame.take(rows), error)

    def every(self, seconds: float, call: Callable[[], object]) -> Callable[[], None]:
        """See ``SinkTaskContext``."""
        if not callable(call):
            raise ValueError(f"every() takes a function without arguments, not a {type(call).__name__}")
        number = next(self._numbers)
        self._calls[number] = call
        self._channel.call("every", number, seconds)

        def end() -> None:
            if self._calls.pop(number, None) is not None:
                self._channel.call("end_call", number)

        return end

    def call_by_clock(self, number: int) -> None:
        """The time of a function has come."""
        call = self._calls.get(number)
        if call is not None:
            call()

    def plugin_metrics(self) -> PluginMetrics:
        """See ``SinkTaskContext``."""
        return self._metrics

    @property
    def is_closing(self) -> Closing:
        """See ``SinkTaskContext``."""
        return Closing(self._channel.call("is_closing"))

    @property
    def is_backfill(self) -> bool:
        """See ``SinkTaskContext``."""
        return bool(self._channel.call("is_backfill"))

    def reported(self, number: int) -> None:
        """A report is stored."""
        self._reporter.stored(number)


class _Reporter(ErrantRecordReporter):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._reports: dict[int, Future[None]] = {}

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        return self._reported("report", record, error)

    def report_rows(self, frame: SinkFrame, error: BaseException) -> Future[None]:
        from penstock.pipeline.batch.crossing import crossing_frame

        return self._reported("report_rows", crossing_frame(frame), error)

    def _reported(self, what: str, content: object, error: BaseException) -> Future[None]:
        from penstock.pipeline.batch.crossing import described

        number = next(self._numbers)
        future: Future[None] = Future()
        # Before it is sent: the worker may say at once that it is stored.
        self._reports[number] = future
        try:
            self._channel.call(what, number, content, described(error))
        except BaseException:
            del self._reports[number]
            raise
        return future

    def stored(self, number: int) -> None:
        future = self._reports.pop(number, None)
        if future is not None:
            future.set_result(None)


class _ChildMetrics(PluginMetrics):
    """Metrics that are measured here when the worker reads them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sensors: dict[str, _ChildSensor] = {}

    def metric_name(self, name: str, description: str = "", tags: Mapping[str, str] | None = None) -> MetricName:
        found: MetricName = self._channel.call("metric_name", name, description, dict(tags or {}))
        return found

    def add_metric(self, metric_name: MetricName, measurable: Callable[[], float]) -> None:
        if not callable(measurable):
            raise ValueError(f"{metric_name.name} cannot be measured: {type(measurable).__name__} cannot be called")
        self._channel.call("add_metric", metric_name)
        _measurables[metric_name] = measurable

    def remove_metric(self, metric_name: MetricName) -> None:
        self._channel.call("remove_metric", metric_name)
        _measurables.pop(metric_name, None)

    def add_sensor(self, name: str) -> Sensor:
        if name in self._sensors:
            raise ValueError(f"There is a sensor {name} already: remove it before, or choose another name")
        sensor = self._sensors[name] = _ChildSensor(name, self, self._channel.call("window"))
        return sensor

    def remove_sensor(self, name: str) -> None:
        sensor = self._sensors.pop(name, None)
        if sensor is None:
            raise ValueError(f"There is no sensor {name}")
        sensor.remove()


class _ChildSensor(Sensor):
    def __init__(self, name: str, metrics: _ChildMetrics, window: SampleWindow) -> None:
        self._name = name
        self._metrics = metrics
        self._window = window
        self._lock = threading.Lock()
        self._stats: dict[MetricName, Stat] = {}

    @property
    def name(self) -> str:
        return self._name

    def add(self, metric_name: MetricName, stat: Stat) -> None:
        if not isinstance(stat, Stat):
            raise ValueError(f"{type(stat).__name__} is no Stat; sensor {self._name} needs one")

        def measure() -> float:
            with self._lock:
                return stat.measure(time.monotonic(), self._window)

        self._metrics.add_metric(metric_name, measure)
        with self._lock:
            self._stats[metric_name] = stat

    def record(self, value: float = 1.0) -> None:
        number = float(value)
        with self._lock:
            for stat in self._stats.values():
                stat.record(number, time.monotonic(), self._window)

    def remove(self) -> None:
        with self._lock:
            names = list(self._stats)
            self._stats.clear()
        for name in names:
            self._metrics.remove_metric(name)
