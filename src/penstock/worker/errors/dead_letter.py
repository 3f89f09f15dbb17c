"""The dead letter queue of a sink connector: failed messages, as fetched, in a separate topic.

Main types: ``DeadLetterQueue`` (an ``ErrorReporter``) and ``DeadLetterSettings``; ``context_headers`` makes the headers
that describe the failure.

Owning thread: reports may come from any thread; answers come on the producer's thread. A lock guards the pending
reports.

Source: ``DeadLetterQueueReporter``.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import AlreadyExistsException, ConnectException, stack_trace
from penstock.kafka.admin.topic_creation import NewTopic, TopicMaker
from penstock.kafka.producer.record_producer import Answer
from penstock.kafka.producer.records import ProducerRecord
from penstock.model import ConnectorTaskId
from penstock.worker.errors.reporters import ConsumedMessage, ErrorCounts, FailedRecord, exception_of

if TYPE_CHECKING:
    from penstock.api import RecordMetadata, TopicPartition

logger = logging.getLogger(__name__)

HEADER_PREFIX: Final = "__connect.errors."
_CLOSE_S: Final = 5.0


class LetterSender(Protocol):
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
        self, settings: DeadLetterSettings, task: ConnectorTaskId, producer: LetterSender, counts: ErrorCounts
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
