"""The description of a failed record, and the reporter that writes it to the log.

Main types: ``ConsumedMessage`` (a message as it was fetched, before conversion), ``FailedRecord`` (the error and the
origin of the record), ``ErrorReporter`` (the protocol of log and dead letter queue), ``LogReporter`` and
``ErrorCounts`` (the plain counters that metrics read).

Owning thread: reporters may be called from the task's thread and from a producer's callback thread; they hold no state
that is not protected.

Source: ``ProcessingContext``, ``ErrorReporter`` and ``LogReporter`` of Kafka Connect.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from penstock import errors
from penstock.pipeline.batch.batches import RecordError

if TYPE_CHECKING:
    from penstock.api import TopicPartition

logger = logging.getLogger(__name__)

_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}


@dataclass
class ErrorCounts:
    """Plain counters (``task-error-metrics``); read by metrics from any thread."""

    total_record_failures: int = 0
    total_record_errors: int = 0
    total_records_skipped: int = 0
    total_retries: int = 0
    total_errors_logged: int = 0
    deadletterqueue_produce_requests: int = 0
    deadletterqueue_produce_failures: int = 0
    last_error_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ConsumedMessage:
    """One message as the consumer fetched it: the bytes a dead letter queue must repeat."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None
    timestamp_type: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record that failed for good.

    Attributes:
        error: Stage, class and exception.
        origin: The consumed message (sinks) or the record as ``poll`` returned it (sources); None when unknown.
        attempt: The number of attempts.
    """

    error: RecordError
    origin: object
    attempt: int = 1


class ErrorReporter(Protocol):
    """Receives every failed record, also the one that makes the task fail."""

    def report(self, failed: FailedRecord) -> Future[None] | None:
        """Report one record.

        Returns:
            A future that ends when the report is stored, or None when there is nothing to wait for. It never holds an
            exception: failures are logged and counted by the reporter.
        """

    def await_reports(self, partitions: Sequence[TopicPartition] | None, timeout_s: float) -> bool:
        """Wait until the reports of these partitions (None: of all) are stored; True if they were in time."""

    def close(self) -> None:
        """Release the reporter's resources; called once, at the end of the task."""


class LogReporter:
    """One ERROR line for each failed record (``errors.log.enable``).

    Keys and values of messages are never logged for sinks; for sources the whole record is, when messages are included.
    """

    def __init__(self, task: str, counts: ErrorCounts, *, include_messages: bool) -> None:
        self._task = task
        self._counts = counts
        self._include_messages = include_messages

    def report(self, failed: FailedRecord) -> None:
        """Write the line and the stack trace."""
        cause = exception_of(failed.error)
        logger.error("%s\n%s", failure_text(self._task, failed, self._include_messages), errors.stack_trace(cause))
        self._counts.total_errors_logged += 1

    def await_reports(self, partitions: Sequence[TopicPartition] | None, timeout_s: float) -> bool:
        """Nothing to wait for: a line is written when ``report`` returns."""
        return True

    def close(self) -> None:
        """Nothing to release."""


def failure_text(task: str, failed: FailedRecord, include_messages: bool) -> str:
    """The text of one log line.

    >>> converter = "org.apache.kafka.connect.json.JsonConverter"
    >>> error = RecordError(0, "VALUE_CONVERTER", converter, "x.DataException", "bad")
    >>> failure_text("sink-0", FailedRecord(error, ConsumedMessage("t", 1, 2)), True)
    "Error encountered in task sink-0. Executing stage 'VALUE_CONVERTER' with class \
'org.apache.kafka.connect.json.JsonConverter', where consumed record is {topic='t', partition=1, offset=2}."
    """
    error = failed.error
    executing = error.executing_class or "null"
    text = f"Error encountered in task {task}. Executing stage '{error.stage}' with class '{executing}'"
    if include_messages and failed.origin is not None:
        origin = failed.origin
        if isinstance(origin, ConsumedMessage):
            where = f"topic='{origin.topic}', partition={origin.partition}, offset={origin.offset}"
            if origin.timestamp_type in _TIMESTAMP_TYPES:
                where += f", timestamp={origin.timestamp}, timestampType={_TIMESTAMP_TYPES[origin.timestamp_type]}"
            text += f", where consumed record is {{{where}}}"
        else:
            text += f", where source record is = {origin}"
    return text + "."


def exception_of(error: RecordError) -> BaseException:
    """The exception of a failed record; where only its class name and text are known, an equal one.

    Errors found by column expressions have no exception object; traces and headers still show Kafka's class.
    """
    if error.exception is not None:
        return error.exception
    known = _exception_classes().get(error.exception_class)
    if known is not None:
        return known(error.message or "")
    return errors.ConnectException(f"{error.exception_class}: {error.message}")


def _exception_classes() -> dict[str, type[Exception]]:
    """Kafka's exceptions that can be made from a message, by their Java name."""
    found: dict[str, type[Exception]] = {}
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, Exception):
            name = value.__dict__.get("java_name")
            if isinstance(name, str):
                found[name] = value
    return found
