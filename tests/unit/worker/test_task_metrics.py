"""What the counters of a task look like as metrics."""

from penstock.model import ConnectorTaskId
from penstock.telemetry import Metrics
from penstock.testing.sink_doubles import T0, Sink
from penstock.worker.task_metrics import publish_sink, withdraw
from penstock.worker.tolerance import ErrorPolicy


def test_a_sink_task_says_what_it_read_put_and_skipped_until_it_is_stopped() -> None:
    metrics, task = Metrics(), ConnectorTaskId("sink", 0)
    sink = Sink(policy=ErrorPolicy(tolerance_all=True))
    publish_sink(metrics, task, sink.runner)
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
