"""Sends converted records to Kafka in transactions.

A row that Kafka rejects as too large or invalid is certainly not stored, so if failures are tolerated the rest of the
transaction can be committed. If the outcome of a batch is unknown, it cannot.

Threads: as for ``ColumnProducer``; all methods about transactions belong to the thread that calls ``send``.

Source: KafkaProducer as ExactlyOnceWorkerSourceTask of Kafka Connect uses it; KIP-98, KIP-360.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.api import RecordMetadata
from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    KafkaRetriableException,
    TransactionAbortableException,
)
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.in_flight import FailedDelivery, ProducedRows, ProducerClosedException, Receipts
from penstock.kafka.producer.partitioner import murmur2
from penstock.kafka.producer.record_batches import ProducerRecord, batch_of
from penstock.kafka.producer.transaction import Transaction, TransactionPhase
from penstock.pipeline.batch.batches import ProduceBatch


class TransactionalProducer(ColumnProducer):
    """Sends the batches of one task in transactions.

    Args:
        stops_at_failure: True if a failed row makes its transaction fail; if False, the other rows can be committed.
    """

    _failed: FailedDelivery | None = None
    _discards = False

    @property
    def _id(self) -> str | None:
        return self._settings.transactional_id

    @property
    def transaction_timeout_s(self) -> float:
        """``transaction.timeout.ms``: Kafka ends a transaction that is open for longer."""
        return self._settings.transaction_timeout

    @property
    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch, for messages and tests."""
        with self._state:
            return self._transaction.identity

    @property
    def ended(self) -> KafkaException | None:
        """The reason why the open transaction cannot be committed, or None as long as it can."""
        with self._state:
            if self._aborted:
                return ProducerClosedException(f"The producer of {self._name} was closed")
            if self._sender.failure is not None:
                return KafkaException(self._sender.failure.text)
            return self._transaction.failure

    def init_transactions(self, timeout_s: float) -> None:
        """Takes the transactional id: fences older instances and aborts their open transactions.

        Returns when the coordinator has answered. It may be called again after a timeout.

        Raises:
            KafkaRetriableException: the coordinator did not answer in time.
            TransactionalIdAuthorizationException: the user has no right to the id.
            KafkaException: the producer has failed permanently.
        """
        with self._state:
            if self._transaction.phase is TransactionPhase.NEW:
                self._transaction.initialize()
            self._sender.wake()
            self._wait(lambda: self._transaction.phase is TransactionPhase.READY, timeout_s)
            self._raise_failure()
            if self._transaction.phase is not TransactionPhase.READY:
                raise KafkaRetriableException(
                    f"The coordinator of the transactional id {self._id} did not answer within {timeout_s:g} s: "
                    f"{self.trouble or 'nothing is known of why'}"
                )

    def send(
        self,
        batch: ProduceBatch,
        receipts: Receipts,
        *,
        rows: pa.Array | None = None,
        within_s: float = threading.TIMEOUT_MAX,
    ) -> None:
        """Sends rows, in order, as part of the open transaction; begins one if there is none.

        Args:
            rows: positions of the rows to send, ascending; None for all.

        Raises:
            TransactionAbortableException: the open transaction cannot be committed any more.
            ProducerFencedException: another producer has the transactional id.
            ProducerClosedException: `ColumnProducer.abort` was called.
            KafkaRetriableException: it took longer; the remaining rows are not sent.
        """
        with self._state:
            self._transaction.begin(self._clock())
        super().send(batch, receipts, rows=rows, within_s=within_s)
        with self._state:
            self._raise_failure()

    def send_offsets_entries(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Sends unconverted records in the open transaction: the source offsets of Kafka Connect.

        They go to the partitions that Java chooses for their keys, regardless of the producer's partitioner.

        Raises:
            KafkaException: as `send`; or the topic cannot be written to.
        """
        if not entries:
            return
        with self._state:
            self._transaction.begin(self._clock())
        count = self._partitions(topic)
        if not isinstance(count, int):
            raise count(0).error
        partitions = (murmur2(pa.array([key for key, _ in entries], pa.binary())) & np.int32(0x7FFFFFFF)) % count
        records = [
            ProducerRecord(topic, key, value, partition=partition)
            for (key, value), partition in zip(entries, partitions.tolist(), strict=True)
        ]
        super().send(batch_of(records), _Offsets(self._note_failure))
        with self._state:
            self._raise_failure()

    def wait_delivered(self, timeout_s: float) -> bool:
        """Waits until nothing is in flight; False if the time is over, or no more rows will be stored."""
        with self._state:
            self._state.wait_for(
                lambda: self._aborted or not self._open or self._transaction.failure is not None, timeout_s
            )
            return not self._aborted and not self._open

    def commit(self, timeout_s: float) -> None:
        """Waits until all records are stored, then commits. On return the transaction is durable.

        It may be called again after a timeout, or if the outcome is unknown.

        Raises:
            KafkaRetriableException: not all records were stored in time; no commit was requested.
            TransactionAbortableException: a row failed, so it cannot be committed; call `abort_transaction`.
            ProducerFencedException: another producer has the transactional id; nothing was committed.
            CommitOutcomeUnknownException: the request to commit got no answer.
        """
        deadline = self._clock() + timeout_s
        with self._state:
            self._wait(lambda: not self._open or self._transaction.failure is not None, timeout_s)
            self._raise_failure()
            if self._failed is not None and self._transaction.phase is TransactionPhase.OPEN:
                raise TransactionAbortableException(
                    f"The transaction of {self._id} cannot be committed: a record for topic {self._failed.topic} "
                    f"failed: {self._failed.error}"
                ) from self._failed.error
            if self._open:
                raise KafkaRetriableException(
                    f"The records of the transaction of {self._id} were not stored within {timeout_s:g} s: "
                    f"{self.trouble or 'nothing is known of why'}"
                )
            self._transaction.commit()
            self._sender.wake()
            self._wait(lambda: self._transaction.phase is TransactionPhase.READY, deadline - self._clock())
            self._raise_failure()
            if self._transaction.phase is not TransactionPhase.READY:
                raise CommitOutcomeUnknownException(
                    f"The coordinator of {self._id} has not answered the commit within {timeout_s:g} s: "
                    f"{self.trouble or 'nothing is known of why'}. Commit again to ask on"
                )

    def abort_transaction(self, timeout_s: float) -> None:
        """Aborts the open transaction: none of its records count, and receipts do not report the rest.

        It may be called again after a timeout.

        Raises:
            KafkaRetriableException: the coordinator did not answer in time.
            ProducerFencedException: another producer has the transactional id.
            CommitOutcomeUnknownException: it may have been committed; call `commit` to find out.
        """
        with self._state:
            self._check_open()
            if self._transaction.fatal:
                self._raise_failure()
            if self._transaction.phase in (TransactionPhase.OPEN, TransactionPhase.COMMITTING):
                if self._transaction.phase is TransactionPhase.COMMITTING:
                    self._transaction.check_abort()
                self._incoming.clear()
                self._discards = True
                self._sender.wake()
            elif self._transaction.phase not in (TransactionPhase.ABORTING, TransactionPhase.RENEWING):
                self._transaction.abort(outstanding=False)
            self._wait(lambda: not self._discards and self._transaction.phase is TransactionPhase.READY, timeout_s)
            self._raise_failure()
            if self._discards or self._transaction.phase is not TransactionPhase.READY:
                raise KafkaRetriableException(
                    f"The coordinator of {self._id} has not answered the abort within {timeout_s:g} s: "
                    f"{self.trouble or 'nothing is known of why'}"
                )

    # ---------------------------------------------------------------- inside
    @property
    def _transaction(self) -> Transaction:
        assert self._sender.transaction is not None
        return self._sender.transaction

    def _wait(self, done: Callable[[], bool], timeout_s: float) -> None:
        """Waits until a condition holds, or can never hold. The lock is held."""
        self._state.wait_for(
            lambda: (
                done()
                or self._aborted
                or self._sender.failure is not None
                or (self._transaction.failure is not None and not self._discards)
            ),
            max(0.0, min(timeout_s, threading.TIMEOUT_MAX)),
        )
        self._check_open()

    def _raise_failure(self) -> None:
        if self._sender.failure is not None:
            raise KafkaException(self._sender.failure.text)
        if self._transaction.failure is not None and not self._discards:
            raise self._transaction.failure

    def _note_failure(self, failed: FailedDelivery) -> None:
        with self._state:
            self._failed = self._failed or failed

    def _take(self) -> None:
        with self._state:
            if self._discards:
                self._discard()
            elif self._transaction.expire(self._clock()):
                self._state.notify_all()
        super()._take()

    def _discard(self) -> None:
        outstanding = self._sender.discard()
        self._open.clear()
        self._bytes = 0
        self._stopped = False
        self._failed = None
        self._discards = False
        # An error that ends the producer meanwhile is kept as its failure.
        with contextlib.suppress(KafkaException):
            self._transaction.abort(outstanding=outstanding)
        self._state.notify_all()

    def _is_halted(self) -> bool:
        return super()._is_halted() or self._transaction.failure is not None

    def _report(self, chunk: ProducedRows) -> None:
        if chunk.failures and (self._stops_at_failure or any(one.fatal for one in chunk.failures.values())):
            self._note_failure(chunk.sorted_failures()[0])
        super()._report(chunk)


class _Offsets:
    """Receipts of offsets: if they fail, the transaction must not be committed."""

    def __init__(self, failed: Callable[[FailedDelivery], None]) -> None:
        self._failed = failed

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        if failures:
            self._failed(failures[0])
