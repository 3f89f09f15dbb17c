"""Failed records: retried, skipped, or the end of the task, and reported to the log or to a dead letter queue.

``ErrorHandler`` applies the ``errors.*`` settings; the decisions are the pure functions ``retry_delay_ms`` and
``verdict``. Batches are handled on the task's thread or its pipeline thread; reports may come from any thread, answers
of the queue on its producer's thread; a lock guards the counters.

Source: ``RetryWithToleranceOperator``, ``ProcessingContext``, ``ErrorReporter``, ``LogReporter``,
``DeadLetterQueueReporter`` and ``ErrorHandlingMetrics`` of Kafka Connect 4.3.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from random import random as any_share
from typing import TYPE_CHECKING, Final, Protocol

from penstock import errors
from penstock.api import Converter, HeaderConverter, SinkRecord, SourceRecord
from penstock.data import Schema, value_text
from penstock.errors import (
    AlreadyExistsException,
    ConnectException,
    ServiceDeniedException,
    ServiceUnavailableException,
    ToleranceExceededException,
    as_exception,
    java_class_name,
    stack_trace,
)
from penstock.kafka.admin import NewTopic, TopicMaker
from penstock.kafka.producer.record_batches import ProducerRecord
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.model import ConnectorTaskId
from penstock.pipeline.batch.batches import RecordError
from penstock.telemetry import waiting_for
from penstock.telemetry.logs import SeldomLog

if TYPE_CHECKING:
    from penstock.api import RecordMetadata, TopicPartition

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
        origin: The consumed message (sinks) or the record as ``poll`` returned it (sources); None when unknown.
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
        return True

    def close(self) -> None:
        """Release the reporter's resources; called once, at the end of the task."""
        return


class LogReporter(ErrorReporter):
    """One ERROR line for each failed record (``errors.log.enable``).

    Keys and values of messages are never logged for sinks; for sources the whole record is, when messages are included.
    """

    def __init__(self, task: str, counts: ErrorCounts, *, include_messages: bool) -> None:
        self._task = task
        self._counts = counts
        self._include_messages = include_messages

    def report(self, failed: FailedRecord) -> None:
        cause = exception_of(failed.error)
        logger.error("%s\n%s", failure_text(self._task, failed, self._include_messages), errors.stack_trace(cause))
        self._counts.total_errors_logged += 1


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
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    return {name: kind for kind in kinds if isinstance(name := vars(kind).get("java_name"), str)}


_Convert = Callable[[Schema | None, object], bytes | None]


class RecordEncoder:
    """Converts records to messages, one at a time.

    A key, value or header that its converter refuses becomes text, where Java fails: the dead letter record is written
    in any case. The log reports this once a minute for each kind of failure.

    Args:
        key, value, header: Configured converters for this encoder only: another thread uses those of the pipeline.
    """

    def __init__(self, key: Converter, value: Converter, header: HeaderConverter, *, task: str) -> None:
        self._key = key
        self._value = value
        self._header = header
        self._task = task
        self._lock = threading.Lock()
        self._seldom = SeldomLog(logger)

    def __call__(self, record: SinkRecord) -> ConsumedMessage:
        topic = record.topic
        with self._lock:
            return _message(
                record,
                self._or_text(record, "key", partial(self._key.from_connect_data, topic)),
                self._or_text(record, "value", partial(self._value.from_connect_data, topic)),
                lambda name: self._or_text(
                    record, f"header {name}", partial(self._header.from_connect_header, topic, name)
                ),
            )

    def _or_text(self, record: SinkRecord, what: str, convert: _Convert) -> _Convert:
        def converted(schema: Schema | None, value: object) -> bytes | None:
            try:
                return convert(schema, value)
            except BaseException as failure:
                self._note(record, what, as_exception(failure))
                return _as_text(schema, value)

        return converted

    def _note(self, record: SinkRecord, what: str, failure: Exception) -> None:
        self._seldom.warning(
            (what, type(failure)),
            "Task %s: the %s of the record reported at %s-%s, offset %d, cannot be converted to bytes; "
            "its dead letter holds it as text: %s: %s",
            self._task,
            what,
            record.original_topic,
            record.original_kafka_partition,
            record.original_kafka_offset,
            java_class_name(failure),
            failure,
        )


def message_as_text(record: SinkRecord) -> ConsumedMessage:
    """A message of a record without converters: bytes as they are, other values as text.

    >>> made = message_as_text(SinkRecord("t", 0, 7, {"a": [True, None]}, key=b"k"))
    >>> made.topic, made.offset, made.key, made.value
    ('t', 7, b'k', b'{"a":[true,null]}')
    """
    return _message(record, _as_text, _as_text, lambda name: _as_text)


def _message(record: SinkRecord, key: _Convert, value: _Convert, header: Callable[[str], _Convert]) -> ConsumedMessage:
    return ConsumedMessage(
        record.original_topic,
        record.original_kafka_partition or 0,
        record.original_kafka_offset,
        record.timestamp,
        int(record.timestamp_type),
        key(record.key_schema, record.key),
        value(record.value_schema, record.value),
        tuple((one.key, header(one.key)(one.schema, one.value)) for one in record.raw_headers or ()),
    )


def _as_text(schema: Schema | None, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        text = value_text(value, schema)
    except Exception:
        text = str(value)  # of a class that Connect does not know, or not what its schema says
    return text.encode(errors="replace")


HEADER_PREFIX: Final = "__connect.errors."
_CLOSE_S: Final = 5.0


@dataclass(frozen=True)
class DeadLetterSettings:
    """``errors.deadletterqueue.*`` of one connector."""

    topic: str
    replication_factor: int = 3
    context_headers: bool = False


def create_topic(settings: DeadLetterSettings, maker: TopicMaker) -> None:
    """Make the topic unless it is there: one partition."""
    try:
        if maker.topic_exists(settings.topic):
            return
        logger.warning("The dead letter topic %s does not exist; creating it", settings.topic)
        maker.create_topic(NewTopic(settings.topic, 1, settings.replication_factor))
    except AlreadyExistsException:
        return
    except Exception as failure:
        raise ConnectException(
            f"Could not initialize dead letter queue with topic={settings.topic}, "
            f"replication factor {settings.replication_factor}: {failure}. Create the topic, or set "
            "errors.deadletterqueue.topic.replication.factor to no more than the number of brokers."
        ) from failure


class DeadLetterQueue:
    """Sends failed messages to the queue's topic, without waiting.

    A message that cannot be sent is logged and counted; its offset is committed all the same once that is known.

    Args:
        producer: Owned and closed by the queue.
    """

    def __init__(
        self, settings: DeadLetterSettings, task: ConnectorTaskId, producer: RecordProducer, counts: ErrorCounts
    ) -> None:
        self._settings = settings
        self._task = task
        self._producer = producer
        self._counts = counts
        self._changed = threading.Condition()
        self._pending: Counter[tuple[str, int]] = Counter()

    def report(self, failed: FailedRecord) -> Future[None]:
        """Send one message; the future is done when it is stored, or known not to be."""
        done: Future[None] = Future()
        origin = failed.origin
        with self._changed:
            self._counts.deadletterqueue_produce_requests += 1
            if not isinstance(origin, ConsumedMessage):
                self._counts.deadletterqueue_produce_failures += 1
                done.set_result(None)
                return done
            partition = (origin.topic, origin.partition)
            self._pending[partition] += 1
        headers = list(origin.headers)
        if self._settings.context_headers:
            headers.extend(context_headers(failed, origin, self._task))

        def answer(error: Exception | None, _: RecordMetadata | None) -> None:
            if error is not None:
                logger.error(
                    "Task %s could not write the message of %s-%d at offset %d to the dead letter topic %s: %s",
                    self._task,
                    origin.topic,
                    origin.partition,
                    origin.offset,
                    self._settings.topic,
                    error,
                )
            with self._changed:
                if error is not None:
                    self._counts.deadletterqueue_produce_failures += 1
                self._pending[partition] -= 1
                if self._pending[partition] == 0:
                    del self._pending[partition]
                self._changed.notify_all()
            done.set_result(None)

        record = ProducerRecord(self._settings.topic, origin.key, origin.value, headers, origin.timestamp)
        self._producer.send(record, answer)
        return done

    def await_reports(self, partitions: Sequence[TopicPartition] | None, timeout_s: float) -> bool:
        """Wait until no reports of these partitions (None: of any) are in flight; True if that happened in time."""

        def stored() -> bool:
            if partitions is None:
                return not self._pending
            return not any((tp[0], tp[1]) in self._pending for tp in partitions)

        with self._changed:
            return self._changed.wait_for(stored, timeout_s)

    def close(self) -> None:
        """Wait a moment for the reports in flight, then end the producer."""
        if not self._producer.close(_CLOSE_S):
            logger.error("Task %s: not all dead letters were written to %s in time", self._task, self._settings.topic)


def context_headers(
    failed: FailedRecord, origin: ConsumedMessage, task: ConnectorTaskId
) -> list[tuple[str, bytes | None]]:
    """Returns the headers that describe the failure in a dead letter record: UTF-8 text, in Kafka Connect's order."""
    error = failed.error
    values: dict[str, str | None] = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "connector.name": task.connector,
        "task.id": str(task.task),
        "stage": error.stage,
        "class.name": error.executing_class,
        "exception.class.name": error.exception_class,
        "exception.message": error.message,
        "exception.stacktrace": stack_trace(exception_of(error), root_first=False),
    }
    return [(HEADER_PREFIX + name, None if text is None else text.encode()) for name, text in values.items()]


KAFKA_PRODUCE: Final = "KAFKA_PRODUCE"
KAFKA_CONSUME: Final = "KAFKA_CONSUME"
TASK_PUT: Final = "TASK_PUT"
TASK_POLL: Final = "TASK_POLL"

#: Stages in which any exception may be tolerated; in other stages only Connect's retriable one. Java lacks the first of
#: them: its consumer cannot skip an unreadable message.
TOLERABLE_STAGES: Final = frozenset(
    {KAFKA_CONSUME, "TRANSFORMATION", "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER"}
)

#: Delay before the first retry; doubled for each further one.
RETRY_DELAY_MIN_MS: Final = 300

TOLERANCE_EXCEEDED: Final = "Tolerance exceeded in error handler"
UNHANDLED: Final = "Unhandled exception in error handler."


@dataclass(frozen=True)
class ErrorPolicy:
    """The ``errors.*`` settings of one connector.

    Attributes:
        retry_timeout_ms: ``errors.retry.timeout``; 0 = never, -1 = no limit.
    """

    tolerance_all: bool = False
    retry_timeout_ms: int = 0
    retry_delay_max_ms: int = 60_000
    log_enable: bool = False
    log_include_messages: bool = False

    def deadline_ms(self, started_ms: int) -> int | None:
        """Until when an operation that began at ``started_ms`` is retried; None = for ever."""
        return None if self.retry_timeout_ms < 0 else started_ms + self.retry_timeout_ms


class ToleranceVerdict(enum.Enum):
    """The decision on a record that failed for good."""

    SKIP = "skip"
    """The record is left out, the task continues."""
    EXCEEDED = "exceeded"
    """The task fails: nothing is tolerated (``errors.tolerance=none``)."""
    UNHANDLED = "unhandled"
    """The task fails: this kind of error is not tolerable in its stage, whatever the setting."""


@dataclass(frozen=True)
class FatalRecord:
    """The record whose failure ends the task.

    Attributes:
        seq: Its position in the batch; the failure does not affect records before it.
    """

    seq: int
    exception: ConnectException


def retry_delay_ms(
    attempt: int, *, now_ms: int, deadline_ms: int | None, max_delay_ms: int, random: Callable[[], float]
) -> int | None:
    """Returns the delay after the failed ``attempt`` (1, 2, ...), or None if no time is left for another attempt.

    >>> retry_delay_ms(1, now_ms=0, deadline_ms=None, max_delay_ms=60_000, random=lambda: 0.5)
    300
    >>> retry_delay_ms(3, now_ms=0, deadline_ms=1_000, max_delay_ms=60_000, random=lambda: 0.5)
    1000
    >>> retry_delay_ms(30, now_ms=0, deadline_ms=None, max_delay_ms=60_000, random=lambda: 0.5)
    30000
    >>> retry_delay_ms(1, now_ms=1_000, deadline_ms=1_000, max_delay_ms=60_000, random=lambda: 0.5) is None
    True
    """
    if deadline_ms is not None and now_ms >= deadline_ms:
        return None
    # The shift is bounded: after 40 doublings every possible maximum is exceeded.
    delay = RETRY_DELAY_MIN_MS << min(attempt - 1, 40)
    if delay > max_delay_ms:
        delay = int(random() * max_delay_ms)
    if deadline_ms is not None and now_ms + delay > deadline_ms:
        delay = max(0, deadline_ms - now_ms)
    return delay


#: ``errors.tolerance=all`` does not skip records while a service that a converter asks is unreachable.
_OF_NO_RECORD: Final = (ServiceUnavailableException, ServiceDeniedException)


def verdict(policy: ErrorPolicy, error: RecordError) -> ToleranceVerdict:
    """Decides the outcome of an error that is not retried: the record is skipped, or the task fails."""
    if error.stage not in TOLERABLE_STAGES and not error.retriable:
        return ToleranceVerdict.UNHANDLED
    tolerated = policy.tolerance_all and not isinstance(error.exception, _OF_NO_RECORD)
    return ToleranceVerdict.SKIP if tolerated else ToleranceVerdict.EXCEEDED


class ErrorHandler:
    """Applies one task's ``ErrorPolicy``.

    Args:
        counts: The counters; the dead letter queue counts into the same ones.
        clock: Milliseconds since the epoch.
        random: Uniform in [0, 1).
        cancelled: Ends waiting for a retry, as ``give_up`` does; None: an event of its own.

    Thread: see the module; the reporters are called outside of the lock.
    """

    def __init__(
        self,
        policy: ErrorPolicy,
        reporters: Sequence[ErrorReporter],
        *,
        counts: ErrorCounts | None = None,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        random: Callable[[], float] = any_share,
        cancelled: threading.Event | None = None,
        owner: str = "",
    ) -> None:
        self.policy = policy
        self._owner = owner
        self.counts = ErrorCounts() if counts is None else counts
        self._reporters = list(reporters)
        self._clock = clock
        self._random = random
        self._cancelled = threading.Event() if cancelled is None else cancelled
        self._lock = threading.Lock()
        self._abandoned = False

    @property
    def has_reporters(self) -> bool:
        """True if failed records are reported (``errant_record_reporter`` depends on it)."""
        return bool(self._reporters)

    @property
    def ending(self) -> bool:
        """True if retries have ended because the task stops; retriable errors may be left over."""
        return self._cancelled.is_set()

    def give_up(self) -> None:
        """Nothing more is tried again. Thread: any."""
        self._cancelled.set()

    def abandon(self) -> None:
        """The task was cancelled: nothing is reported any more. Thread: any."""
        self._abandoned = True
        self._cancelled.set()

    def report_to(self, reporters: Sequence[ErrorReporter]) -> None:
        """Adds reporters; called before the first record fails."""
        self._reporters.extend(reporters)

    def handle_batch(
        self,
        errors: Mapping[int, RecordError],
        describe: Callable[[int], object],
        *,
        attempts: Mapping[int, int] | None = None,
    ) -> FatalRecord | None:
        """Report the failed records of a batch in order, up to the first one that the task cannot get over.

        Returns:
            The record that ends the task (its report has been made), or None if all are skipped.
        """
        for seq in sorted(errors):
            fatal = self.handle_failure(errors[seq], describe(seq), attempt=(attempts or {}).get(seq, 1))
            if fatal is not None:
                return FatalRecord(seq, fatal)
        return None

    def handle_failure(self, error: RecordError, origin: object, *, attempt: int = 1) -> ConnectException | None:
        """Report one failed record; the exception to fail the task with, or None to skip the record."""
        decision = verdict(self.policy, error)
        self._count_failure(skipped=decision is ToleranceVerdict.SKIP)
        self.report(FailedRecord(error, origin, attempt))
        if decision is ToleranceVerdict.SKIP:
            return None
        return self._caused(TOLERANCE_EXCEEDED if decision is ToleranceVerdict.EXCEEDED else UNHANDLED, error, origin)

    def execute_failed(self, error: RecordError, origin: object) -> list[Future[None]]:
        """Report an error found outside of the pipeline: asynchronous send errors and reports of a sink task.

        Any such error is tolerable with ``errors.tolerance=all``.

        Raises:
            ToleranceExceededException: With ``errors.tolerance=none``, after the report was made.
        """
        self._count_failure(skipped=False)
        futures = self.report(FailedRecord(error, origin))
        if not self.policy.tolerance_all:
            raise self._caused(TOLERANCE_EXCEEDED, error, origin)
        return futures

    def retry(
        self, errors: Mapping[int, RecordError], rerun: Callable[[list[int]], Mapping[int, RecordError]]
    ) -> tuple[dict[int, RecordError], dict[int, int]]:
        """Try the records with retriable errors again until they pass, fail otherwise, or time is up.

        Records after an error that ends the task anyway are not retried.

        Args:
            rerun: Runs these positions (or more) again and returns the errors found, by the same positions; the caller
                keeps the results of the other ones.

        Returns:
            The remaining errors, and the number of attempts of each retried record.
        """
        left = dict(errors)
        tries: dict[int, int] = {}
        started = self._clock()
        attempt = 1
        while True:
            again = retriable_positions(left, tolerance_all=self.policy.tolerance_all)
            if not again or not self._wait_for_retry(left[again[0]], attempt, started, len(again)):
                return left, tries
            attempt += 1
            remaining = rerun(again)
            for seq in again:
                tries[seq] = attempt
                del left[seq]
            left.update(remaining)

    def report(self, failed: FailedRecord) -> list[Future[None]]:
        """Inform all reporters; the failure of one is logged, and the rest are still informed."""
        futures = []
        for reporter in () if self._abandoned else self._reporters:
            try:
                future = reporter.report(failed)
            except Exception:
                logger.exception("A report of a failed record could not be made by %s", type(reporter).__name__)
                continue
            if future is not None:
                futures.append(future)
        return futures

    def _caused(self, text: str, error: RecordError, origin: object) -> ConnectException:
        """Returns the exception that the task fails with: Kafka's words, and where it happened."""
        owner = f"task {self._owner}, " if self._owner else ""
        message = f"{text.removesuffix('.')} ({owner}stage {error.stage}, {place_of(origin)})"
        exception = (ToleranceExceededException if text == TOLERANCE_EXCEEDED else ConnectException)(message)
        exception.__cause__ = exception_of(error)
        return exception

    def _wait_for_retry(self, error: RecordError, attempt: int, started_ms: int, records: int) -> bool:
        """Count the failed attempt and wait; False if there is no further attempt."""
        now = self._clock()
        delay = retry_delay_ms(
            attempt,
            now_ms=now,
            deadline_ms=self.policy.deadline_ms(started_ms),
            max_delay_ms=self.policy.retry_delay_max_ms,
            random=self._random,
        )
        if delay is None or self._cancelled.is_set():
            return False
        with self._lock:
            self.counts.total_record_failures += records
        away = error.exception if isinstance(error.exception, ServiceUnavailableException) else None
        reason = "record_retry" if away is None else away.waits_for
        with waiting_for(reason, f"{error.stage}: {error.message}"):
            if self._cancelled.wait(delay / 1000):
                return False
        with self._lock:
            self.counts.total_retries += records
        return True

    def _count_failure(self, *, skipped: bool) -> None:
        with self._lock:
            self.counts.total_record_failures += 1
            self.counts.total_record_errors += 1
            self.counts.last_error_timestamp = self._clock()
            if skipped:
                self.counts.total_records_skipped += 1


def retriable_positions(errors: Mapping[int, RecordError], *, tolerance_all: bool) -> list[int]:
    """Positions to try again; without tolerance only those before the first error that ends the task.

    >>> bad = RecordError(1, "TRANSFORMATION", "T", "E", "m")
    >>> slow = RecordError(0, "TRANSFORMATION", "T", "R", "m", retriable=True)
    >>> retriable_positions({0: slow, 1: bad, 2: slow}, tolerance_all=False)
    [0]
    >>> retriable_positions({0: slow, 1: bad, 2: slow}, tolerance_all=True)
    [0, 2]
    """
    found = []
    for seq in sorted(errors):
        if errors[seq].retriable:
            found.append(seq)
        elif not tolerance_all:
            break
    return found


def place_of(origin: object) -> str:
    """Describes the origin of a record, for messages: never its content.

    >>> place_of(ConsumedMessage("t", 1, 2))
    'topic t, partition 1, offset 2'
    >>> place_of(SourceRecord({"file": "a"}, {"line": 3}, "t", "text"))
    "topic t, source partition {'file': 'a'}, source offset {'line': 3}"
    """
    if isinstance(origin, ConsumedMessage):
        return f"topic {origin.topic}, partition {origin.partition}, offset {origin.offset}"
    if isinstance(origin, SourceRecord):
        source = f"source partition {origin.source_partition}, source offset {origin.source_offset}"
        return f"topic {origin.topic}, {source}"
    return "an unknown record" if origin is None else str(origin)
