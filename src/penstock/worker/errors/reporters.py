"""Failed records: their description, their messages, and the reporters that write them to the log or send them to a
topic.

Main types: ``ConsumedMessage`` (a message as it was fetched, before conversion), ``FailedRecord`` (the error and the
origin of the record), ``ErrorReporter`` (the protocol of both reporters), ``LogReporter``, ``DeadLetterQueue`` (failed
messages, as fetched, in a separate topic; ``context_headers`` describes the failure) and ``ErrorCounts`` (the plain
counters that metrics read). Where the message of a reported record is gone, ``RecordEncoder`` converts the record
again; ``message_as_text`` does without converters.

Owning thread: reports may come from any thread, and answers of the queue on its producer's thread; state is protected.

Source: ``ProcessingContext``, ``ErrorReporter``, ``LogReporter`` and ``DeadLetterQueueReporter`` of Kafka Connect.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from penstock import errors
from penstock.api import Converter, HeaderConverter, SinkRecord
from penstock.data import Schema, value_text
from penstock.errors import AlreadyExistsException, ConnectException, as_exception, java_class_name, stack_trace
from penstock.kafka.admin import NewTopic, TopicMaker
from penstock.kafka.producer.record_batches import ProducerRecord
from penstock.kafka.producer.record_producer import Answer
from penstock.model import ConnectorTaskId
from penstock.pipeline.batch.batches import RecordError
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


_Convert = Callable[[Schema | None, object], bytes | None]


class RecordEncoder:
    """Converts records to messages, one at a time.

    A key, value or header that its converter refuses becomes text, where Java fails: the dead letter record is written
    in any case. The log reports this once a minute for each kind of failure.

    Args:
        key, value, header: Configured converters for this encoder only: another thread uses those of the pipeline.
        task: The task, for the log.
    """

    def __init__(self, key: Converter, value: Converter, header: HeaderConverter, *, task: str) -> None:
        self._key = key
        self._value = value
        self._header = header
        self._task = task
        self._lock = threading.Lock()
        self._seldom = SeldomLog(logger)

    def __call__(self, record: SinkRecord) -> ConsumedMessage:
        """The message of a record, with the coordinates that it was read from."""
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


class DeadLetterSender(Protocol):
    """The part of ``penstock.kafka.producer.record_producer.RecordProducer`` that the queue needs; see there."""

    def send(self, record: ProducerRecord, answer: Answer) -> None:
        """Sends one record; calls ``answer`` once with the result."""

    def close(self, timeout_s: float) -> bool:
        """Sends the waiting records and ends the producer; False if that took too long."""


@dataclass(frozen=True)
class DeadLetterSettings:
    """``errors.deadletterqueue.*`` of one connector.

    Attributes:
        topic: ``topic.name``.
        replication_factor: ``topic.replication.factor``.
        context_headers: ``context.headers.enable``.
    """

    topic: str
    replication_factor: int = 3
    context_headers: bool = False


def create_topic(settings: DeadLetterSettings, maker: TopicMaker) -> None:
    """Make the topic unless it is there: one partition.

    Raises:
        ConnectException: It is missing and cannot be created.
    """
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
        settings: The connector's settings.
        task: The task.
        producer: Owned and closed by the queue.
        counts: The task's error counters.
    """

    def __init__(
        self, settings: DeadLetterSettings, task: ConnectorTaskId, producer: DeadLetterSender, counts: ErrorCounts
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
