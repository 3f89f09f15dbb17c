"""The last stage of a source task: converted batches go to the producer, acknowledgements come back.

Main types: `SourceDelivery` (one for each task), `BatchProducer` (the methods that it needs of a producer).

Thread: `deliver` belongs to the task's delivery thread; acknowledgements arrive on the producer's own thread.

Source: AbstractWorkerSourceTask.sendRecords and WorkerSourceTask.producerSendFailed of Kafka Connect.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import RecordMetadata, SourceFrame
from penstock.errors import ConnectException, ToleranceExceededException
from penstock.kafka.admin import TopicCreator
from penstock.kafka.producer.in_flight import FailedDelivery, Receipts
from penstock.pipeline.batch.batches import ProduceBatch, RecordError
from penstock.stores.offsets import partition_identity
from penstock.worker.errors.tolerance import KAFKA_PRODUCE, ErrorHandler
from penstock.worker.source.conversion import Outgoing, place_in_source, refuse_malformed
from penstock.worker.source.offset_commit import Committer
from penstock.worker.source.submitted import Submission

logger = logging.getLogger(__name__)

#: Name of the point between handing records over and their acknowledgement, for `probe`.
AFTER_SEND_BEFORE_ACK = "after-send-before-ack"
_PRODUCER_CLASS = "org.apache.kafka.clients.producer.KafkaProducer"
#: The errors of a broker for a record that arrives after the end of its transaction.
_OF_TRANSACTIONS = frozenset(
    f"org.apache.kafka.common.errors.{name}" for name in ("InvalidTxnStateException", "TransactionAbortableException")
)


class BatchProducer(Protocol):
    """The part of ``penstock.kafka.producer.column_producer.ColumnProducer`` that is needed here."""

    @property
    def trouble(self) -> str | None:
        """The reason why records cannot be sent, as far as it is known."""

    def send(self, batch: ProduceBatch, receipts: Receipts, *, rows: pa.Array | None = None) -> None:
        """Hand rows over, in order; waits while too many bytes are in flight; raises after an abort."""

    def wait_delivered(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False after the timeout."""

    def abort(self) -> None:
        """Abandon the rows in flight; does not block."""

    def close(self, timeout_s: float) -> bool:
        """Wait for the rows in flight, abandon the rest, release the client."""


@dataclass
class DeliveryCounts:
    """Plain counters; read by metrics from any thread."""

    records_written: int = 0


class SourceDelivery:
    """Sends the batches of one task and records which of their rows Kafka has acknowledged.

    Args:
        owner: the task, for messages.
        producer: the task's producer.
        topics: makes sure that topics exist.
        errors: handles records that Kafka refuses.
        committer: commits delivered records; it has the task's hooks.
        fail: fails the task; the first failure counts. Called on the producer's thread.
        probe: called at the named points where a kill test stops.
        note_topics: gets the topics of acknowledged rows; called on the producer's thread.
    """

    def __init__(
        self,
        owner: str,
        producer: BatchProducer,
        topics: TopicCreator,
        errors: ErrorHandler,
        *,
        committer: Committer,
        fail: Callable[[BaseException], None],
        probe: Callable[[str], None],
        note_topics: Callable[[Sequence[str]], None],
    ) -> None:
        self.counts = DeliveryCounts()
        self._owner = owner
        self._producer = producer
        self._topics = topics
        self._errors = errors
        self._committer = committer
        self._submitted = committer.submitted
        self._hooks = committer.hooks
        self._fail = fail
        self._probe = probe
        self._note_topics = note_topics

    def deliver(self, outgoing: Outgoing) -> None:
        """Send one batch; batches come in the order of polls.

        Raises:
            ConnectException: a topic cannot be made, or must not be written to.
            KafkaException: the producer has failed.
            ProducerClosedException: the producer was aborted.
        """
        source = outgoing.source
        if isinstance(source, SourceFrame):
            submission = Submission.of_frame(source, outgoing.size, partition_identity)
        else:
            try:
                submission = Submission.of_records(source, partition_identity)
            except Exception as error:
                refuse_malformed(self._owner, source, error)
                raise
        sends = outgoing.size > 0 and (outgoing.rows is None or len(outgoing.rows) > 0)
        # Invariant 1: the batch is queued below before its first row is sent.
        if sends:
            topics = _topics(outgoing)
            self._refuse_own(topics)
            self._topics.ensure(topics)
        self._hooks.add(source, submission)
        self._submitted.add(submission, outgoing.settled)
        if outgoing.settled or not sends:
            self._committer.settled()
        if sends:
            self._producer.send(outgoing.batch, _BatchReceipts(self, outgoing, submission), rows=outgoing.rows)
            self._probe(AFTER_SEND_BEFORE_ACK)
        if outgoing.moved:
            # Invariant 1: after the batch, and so after all records of these source partitions.
            self._submitted.add(Submission.of_moves(outgoing.moved, partition_identity))
            self._committer.settled()

    def _refuse_own(self, topics: Sequence[str]) -> None:
        if self._committer.own_topic in topics:
            raise ConnectException(
                f"Task {self._owner} returned a record for the topic {self._committer.own_topic}, in which its own "
                "source offsets are: with exactly-once it could never read them again, because a read waits for the "
                "end of the task's own transaction. Send records to another topic, or set offsets.storage.topic of "
                "the connector"
            )

    def note(self, outgoing: Outgoing, chunk: tuple[int, int], failures: Sequence[FailedDelivery]) -> None:
        """Notes the topics of the rows of a chunk that Kafka has. Thread: the producer's."""
        first, end = chunk
        if len(failures) == end - first:
            return
        column = outgoing.batch.table.column("topic")
        if outgoing.batch.topic is not None:
            self._note_topics([outgoing.batch.topic])
        elif failures or outgoing.rows is not None:
            failed = {failure.row for failure in failures}
            self._note_topics(
                _distinct(column.take([row for row in _rows_sent(outgoing, *chunk) if row not in failed]))
            )
        else:
            self._note_topics(_distinct(column.slice(first, end - first)))

    def arrived(
        self,
        outgoing: Outgoing,
        submission: Submission,
        chunk: tuple[int, int],
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        """A chunk of a batch has its answers. Thread: the producer's."""
        first, end = chunk
        sent = end - first - (bisect_left(outgoing.settled, end) - bisect_left(outgoing.settled, first))
        # Invariant 1: a row that Kafka refused settles only when that is tolerated.
        lost = {failed.row for failed in failures if not self._tolerated(outgoing, failed)}
        self._hooks.acknowledged(submission, sent - len(failures), metadata)
        if lost:
            self._submitted.settle_rows(submission, [row for row in range(first, end) if row not in lost])
        else:
            self._submitted.settle_range(submission, first, end)
        self.counts.records_written += sent - len(failures)
        self._committer.settled()

    def arrived_spread(
        self,
        outgoing: Outgoing,
        submission: Submission,
        left: Counter[int],
        chunk: tuple[int, int],
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        """The same if a record became several rows: the last of them settles the record, and then the task's hook is
        called.

        Args:
            left: The number of rows of each record in flight.
        """
        lost = {failed.row for failed in failures if not self._tolerated(outgoing, failed)}
        done: list[int] = []
        sent = _rows_sent(outgoing, *chunk)
        for row in sent:
            record = outgoing.record_of(row)
            # A lost row is never counted down, so its record is never settled.
            left[record] -= row not in lost
            if not left[record]:
                done.append(record)
                del left[record]
        placed = {outgoing.record_of(row): place for row, place in (metadata or {}).items()}
        self._hooks.acknowledged(submission, len(done), placed)
        self._submitted.settle_rows(submission, done)
        self.counts.records_written += len(sent) - len(failures)
        self._committer.settled()

    def _tolerated(self, outgoing: Outgoing, failed: FailedDelivery) -> bool:
        """Report a record that Kafka refused; True if the task continues without it."""
        if failed.java_name in _OF_TRANSACTIONS:
            # Nothing is wrong with the record, and its transaction cannot be committed.
            return False
        record = outgoing.record_of(failed.row)
        where = f"topic {failed.topic}, {place_in_source(outgoing.source, record)}"
        if failed.unknown_topic:
            # Not a matter of one record: the next ones would be lost in the same way, without end.
            self._fail_with(
                f"Task {self._owner} cannot write to topic {failed.topic}: it does not exist and the broker does not "
                f"create it ({where}). Create the topic, set topic.creation.default.partitions and "
                "topic.creation.default.replication.factor for the connector, or allow auto.create.topics.enable on "
                "the broker.",
                failed,
            )
            return False
        if failed.fatal or not self._errors.policy.tolerance_all:
            self._fail_with(
                f"Unrecoverable exception from producer send callback: task {self._owner}, {where}: {failed.error}",
                failed,
            )
            return False
        source = outgoing.source
        origin: object = where if isinstance(source, SourceFrame) else source[record]
        error = RecordError(
            record, KAFKA_PRODUCE, _PRODUCER_CLASS, failed.java_name, str(failed.error), exception=failed.error
        )
        try:
            self._errors.execute_failed(error, origin)
        except ToleranceExceededException as exceeded:
            self._fail(exceeded)
            return False
        return True

    def _fail_with(self, text: str, failed: FailedDelivery) -> None:
        failure = ConnectException(text)
        failure.__cause__ = failed.error
        self._fail(failure)


class _BatchReceipts:
    """Passes the answers for one batch on, with the batch they are about."""

    __slots__ = ("_delivery", "_left", "_outgoing", "_submission")

    def __init__(self, delivery: SourceDelivery, outgoing: Outgoing, submission: Submission) -> None:
        self._delivery = delivery
        self._outgoing = outgoing
        self._submission = submission
        #: The number of rows in flight of each record, if records became several rows.
        self._left: Counter[int] | None = None
        if outgoing.batch.origins is not None:
            self._left = Counter(map(outgoing.record_of, _rows_sent(outgoing)))

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        outgoing, submission, chunk = self._outgoing, self._submission, (first, end)
        self._delivery.note(outgoing, chunk, failures)
        if self._left is None:
            self._delivery.arrived(outgoing, submission, chunk, failures, metadata)
        else:
            self._delivery.arrived_spread(outgoing, submission, self._left, chunk, failures, metadata)


def _rows_sent(outgoing: Outgoing, first: int = 0, end: int | None = None) -> list[int]:
    """The rows that are sent, of those from ``first`` up to ``end``."""
    size = outgoing.batch.table.num_rows
    last = size if end is None else min(end, size)
    if outgoing.rows is None:
        return list(range(first, last))
    rows = outgoing.rows.to_numpy()
    start, stop = np.searchsorted(rows, [first, last]).tolist()
    found: list[int] = rows[start:stop].tolist()
    return found


def _topics(outgoing: Outgoing) -> list[str]:
    if outgoing.batch.topic is not None:
        return [outgoing.batch.topic]
    return _distinct(outgoing.to_send().column("topic"))


def _distinct(column: pa.ChunkedArray) -> list[str]:
    return [topic for topic in pc.unique(column).to_pylist() if topic is not None]
