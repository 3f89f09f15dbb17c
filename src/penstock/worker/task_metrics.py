"""Publishes the counters of tasks as metrics.

Main functions: ``publish_source``, ``publish_sink`` and ``withdraw``. The runners keep plain counters; a metric reads
them on request. The names are Kafka Connect's after the usual export from JMX. Thread: any.

Source: runtime.SourceTask/SinkTaskMetricsGroup and ErrorHandlingMetrics of Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from penstock.model import ConnectorTaskId
from penstock.telemetry import BusyTimes, Metrics
from penstock.worker.errors import ErrorCounts
from penstock.worker.sink.task import SinkTaskRunner
from penstock.worker.source.exactly_once import TransactionCommitter
from penstock.worker.source.task import SourceTaskRunner

SOURCE: Final = "kafka_connect_source_task_"
SINK: Final = "kafka_connect_sink_task_"
STAGE_BUSY: Final = "penstock_stage_busy_seconds_total"
#: The progress that a task reports.
PROGRESS: Final = "penstock_task_progress_"
#: Of a task's present bulk run, or its last one.
BULK: Final = "penstock_bulk_"
ERRORS: Final = "kafka_connect_task_error_"


def publish_source(metrics: Metrics, runner: SourceTaskRunner) -> None:
    """Publish the counters of a source task, in place of an earlier instance's."""
    polls, delivery, commits = runner.counts, runner.delivery, runner.committer.counts
    submitted = runner.committer.submitted
    own: Mapping[str, Callable[[], float]] = {
        "source_record_poll_total": lambda: polls.records,
        "source_record_write_total": lambda: delivery.records_written,
        "source_record_active_count": lambda: submitted.rows_left,
        "poll_failure_total": lambda: polls.failures,
        "retries_total": lambda: runner.retries.total,
        "retries_in_a_row": lambda: runner.retries.count,
        "offset_commit_success_total": lambda: commits.successes,
        "offset_commit_failure_total": lambda: commits.failures,
        "offset_commit_last_time_ms": lambda: commits.last_duration_s * 1000,
    }
    _publish(metrics, runner.id, SOURCE, own)
    if isinstance(runner.committer, TransactionCommitter):
        sizes = runner.committer.sizes
        sized = {f"transaction_size_{name}": partial(sizes.measure, name) for name in ("min", "max", "avg")}
        _publish(metrics, runner.id, SOURCE, sized)
    _publish_busy(metrics, runner.id, runner.busy)
    _publish_progress(metrics, runner)
    _publish_bulk(metrics, runner)
    _publish_errors(metrics, runner.id, runner.error_counts)


def publish_sink(metrics: Metrics, runner: SinkTaskRunner) -> None:
    """Publish the counters of a sink task, in place of an earlier instance's."""
    task, commits = runner.id, runner.commits
    own: Mapping[str, Callable[[], float]] = {
        "sink_record_read_total": lambda: runner.counts.records_read,
        "sink_record_send_total": lambda: runner.counts.records_put,
        "put_batch_total": lambda: runner.counts.puts,
        "put_batch_max_time_ms": lambda: runner.counts.put_time_max_ms,
        "put_batch_time_ms_total": lambda: runner.counts.put_time_ms,
        "partition_count": lambda: runner.counts.partitions,
        "retries_total": lambda: runner.retries.total,
        "retries_in_a_row": lambda: runner.retries.count,
        "offset_commit_seq_no": lambda: commits.sequence,
        "offset_commit_completion_total": lambda: commits.successes,
        "offset_commit_failure_total": lambda: commits.failures,
        "offset_commit_skip_total": lambda: commits.skipped,
    }
    _publish(metrics, task, SINK, own)
    metrics.family(SINK + "sink_record_lag", lambda: _lags(runner), **_tags(task))
    metrics.family(SINK + "sink_record_lag_max", lambda: _largest_lag(runner), **_tags(task))
    _publish_busy(metrics, task, runner.busy)
    _publish_progress(metrics, runner)
    _publish_bulk(metrics, runner)
    _publish_errors(metrics, task, runner.error_counts)


def _lags(runner: SinkTaskRunner) -> Iterable[tuple[Mapping[str, str], float]]:
    for partition, lag in sorted(runner.lag.items()):
        yield {"topic": partition.topic, "partition": str(partition.partition)}, lag


def _largest_lag(runner: SinkTaskRunner) -> Iterable[tuple[Mapping[str, str], float]]:
    if lags := runner.lag.values():
        yield {}, max(lags)


def withdraw(metrics: Metrics, task: ConnectorTaskId) -> None:
    """Removes the metrics of a task that was stopped."""
    metrics.remove(**_tags(task))


def _publish_progress(metrics: Metrics, runner: SourceTaskRunner | SinkTaskRunner) -> None:
    for part in ("done", "total"):
        metrics.family(PROGRESS + part, partial(_progress, runner, part), **_tags(runner.id))


def _publish_bulk(metrics: Metrics, runner: SourceTaskRunner | SinkTaskRunner) -> None:
    """Numbers of the present bulk run of a source, or the last one, and of all jobs of a sink; nothing before."""
    for name in ("rows", "records", "bytes", "failed", "partitions_done", "partitions"):
        metrics.family(f"{BULK}{name}", partial(_bulk, runner, name), **_tags(runner.id))


def _bulk(runner: SourceTaskRunner | SinkTaskRunner, name: str) -> Iterable[tuple[Mapping[str, str], float]]:
    if runner.bulk is None:
        return
    done, partitions = runner.bulk.totals
    if partitions:
        found = {
            "rows": done.rows,
            "records": done.sent,
            "bytes": done.nbytes,
            "failed": done.failed,
            "partitions_done": done.partitions,
            "partitions": partitions,
        }
        yield {}, float(found[name])


def _progress(runner: SourceTaskRunner | SinkTaskRunner, part: str) -> Iterable[tuple[Mapping[str, str], float]]:
    told = runner.hints.progress
    if told is not None and (value := getattr(told, part)) is not None:
        yield {"unit": told.unit}, float(value)


def _publish_busy(metrics: Metrics, task: ConnectorTaskId, busy: BusyTimes) -> None:
    for stage in busy.stages:
        metrics.gauge(STAGE_BUSY, partial(busy.seconds, stage), stage=stage, **_tags(task))


def _publish_errors(metrics: Metrics, task: ConnectorTaskId, counts: ErrorCounts) -> None:
    own: Mapping[str, Callable[[], float]] = {
        "total_record_failures": lambda: counts.total_record_failures,
        "total_record_errors": lambda: counts.total_record_errors,
        "total_records_skipped": lambda: counts.total_records_skipped,
        "total_retries": lambda: counts.total_retries,
        "total_errors_logged": lambda: counts.total_errors_logged,
        "deadletterqueue_produce_requests": lambda: counts.deadletterqueue_produce_requests,
        "deadletterqueue_produce_failures": lambda: counts.deadletterqueue_produce_failures,
        "last_error_timestamp": lambda: counts.last_error_timestamp,
    }
    _publish(metrics, task, ERRORS, own)


def _publish(metrics: Metrics, task: ConnectorTaskId, prefix: str, values: Mapping[str, Callable[[], float]]) -> None:
    for name, read in values.items():
        metrics.gauge(prefix + name, _as_float(read), **_tags(task))


def _as_float(read: Callable[[], float]) -> Callable[[], float]:
    return lambda: float(read())


def _tags(task: ConnectorTaskId) -> dict[str, str]:
    return {"connector": task.connector, "task": str(task.task)}
