"""What the counters of a task look like as metrics."""

import math
import threading

import pytest
from testkit.doubles.sink_doubles import T0, T1, WAIT_S, Sink
from testkit.waiting import await_true

from penstock.api import SampleWindow
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.model import ConnectorTaskId
from penstock.telemetry import Metrics
from penstock.worker.errors import ErrorPolicy
from penstock.worker.sink import fetching as sink_threads
from penstock.worker.source.exactly_once import TransactionSizes
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task_metrics import publish_sink, withdraw


def test_a_sink_task_says_what_it_read_put_and_skipped_until_it_is_stopped() -> None:
    metrics, task = Metrics(), ConnectorTaskId("sink", 0)
    sink = Sink(policy=ErrorPolicy(tolerance_all=True))
    publish_sink(metrics, sink.runner)
    metrics.counter("of_another_task_total", connector="sink", task="1").add(1)
    sink.start({T0: 0})
    try:
        sink.consumer.add(T0, "a", "bad", "b")
        sink.wait_values("a", "b")
    finally:
        sink.stop()
    found = {name: value for name, tags, value in metrics.read() if tags == {"connector": "sink", "task": "0"}}
    assert found["kafka_connect_sink_task_sink_record_read_total"] == 3
    assert found["kafka_connect_sink_task_sink_record_send_total"] == 2
    assert found["kafka_connect_sink_task_offset_commit_completion_total"] == 1
    assert found["kafka_connect_task_error_total_records_skipped"] == 1
    assert found["kafka_connect_task_error_last_error_timestamp"] > 0
    withdraw(metrics, task)
    assert [name for name, _, _ in metrics.read()] == ["of_another_task_total"]


LAG = "kafka_connect_sink_task_sink_record_lag"


def lags(metrics: Metrics) -> dict[str, float]:
    """The lag by partition, and the largest."""
    return {tags.get("partition", "max"): value for name, tags, value in metrics.read() if name.startswith(LAG)}


def test_the_lag_of_a_sink_task_is_what_put_has_not_taken_of_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_threads, "_ENDS_S", 0.0)
    metrics, sink = Metrics(), Sink()
    publish_sink(metrics, sink.runner)
    assert lags(metrics) == {}
    inside, go_on = threading.Event(), threading.Event()

    def block(_: object) -> None:
        inside.set()
        assert go_on.wait(WAIT_S)

    sink.start({T0: 0, T1: 0})
    try:
        sink.task.hooks["put"] = block
        sink.consumer.add(T0, "a")
        assert inside.wait(WAIT_S)
        sink.consumer.add(T0, "b", "c")
        # Also what was fetched: it waits behind the call of put.
        await_true(lambda: lags(metrics) == {"0": 3, "1": 0, "max": 3}, lambda: str(lags(metrics)))
        go_on.set()
        sink.wait_values("a", "b", "c")
        await_true(lambda: lags(metrics) == {"0": 0, "1": 0, "max": 0}, lambda: str(lags(metrics)))
        assert {(*tags,) for name, tags, _ in metrics.read() if name == LAG} == {
            ("connector", "task", "topic", "partition")
        }
        sink.consumer.revoke(T0)
        assert lags(metrics) == {"1": 0, "max": 0}
    finally:
        go_on.set()
        sink.stop()
    assert lags(metrics) == {}


@pytest.mark.parametrize("end", ["stop", "failure", "cancel"])
def test_metrics_that_a_sink_task_adds_go_with_it(end: str) -> None:
    registry, go_on = Metrics(), threading.Event()
    sink = Sink(metrics=InstanceMetrics(registry, {"connector": "sink", "task": "0"})).start({T0: 0})
    try:
        own = sink.task.context.plugin_metrics()
        own.add_metric(own.metric_name("rows"), lambda: 1)
        assert registry.total("kafka_connect_plugins_rows", task="0") == 1
        if end == "cancel":
            sink.task.hooks["put"] = lambda _: go_on.wait(WAIT_S)
            sink.consumer.add(T0, "a")
            sink.task.diary.wait_for_entry("put")
            sink.runner.cancel()
            # Its thread goes on, beside its successor.
            assert list(registry.read()) == []
        elif end == "failure":
            sink.runner.fail(ConnectException("broken"))
    finally:
        go_on.set()
        if end == "failure":
            assert sink.runner.join(WAIT_S)
        sink.stop()
    assert list(registry.read()) == []
    with pytest.raises(IllegalWorkerStateException, match="closed: it has ended"):
        own.metric_name("rows")
    with pytest.raises(IllegalWorkerStateException, match="closed: the task has ended"):
        sink.task.context.plugin_metrics()


def test_the_sizes_of_transactions_are_those_of_the_latest() -> None:
    now = [0.0]
    sizes = TransactionSizes(SampleWindow(seconds=30, samples=2), lambda: now[0])
    assert math.isnan(sizes.measure("avg"))
    for records in (10, 2, 30):
        sizes.add(records)
    assert [sizes.measure(name) for name in ("min", "max", "avg")] == [2, 30, 14]
    now[0] = 90.0
    sizes.add(4)
    assert [sizes.measure(name) for name in ("min", "max", "avg")] == [4, 4, 4]
