"""Writes records to one topic in transactions, by a producer that one worker at a time may be.

Main type: ``TransactionalWriter``. Whoever claims the transactional id fences the one that had it: that one's open
transaction is aborted, and whatever it still tries to write raises ``ProducerFencedException``. It may claim again.

Thread: any; one write or claim at a time.
Source: KIP-618; org.apache.kafka.connect.storage.KafkaConfigBackingStore (claimWritePrivileges, sendPrivileged).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
    TransactionAbortableException,
)
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.deliveries import EachRow
from penstock.kafka.log_writer import Acknowledged, Entry
from penstock.kafka.producer_records import ProducerRecord, batch_of
from penstock.kafka.transactional_producer import TransactionalProducer

logger = logging.getLogger(__name__)

#: An abort gets so long at least.
_ABORT_S: Final = 1.0
_STOP_S: Final = 5.0


class TransactionalWriter:
    """The writing side of a log, in transactions.

    Args:
        topic: Where to write.
        settings: Of the producer, a transactional id among them.
        make_producer: Makes it.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        topic: str,
        settings: ColumnSettings,
        *,
        make_producer: Callable[..., Any] = TransactionalProducer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._id = settings.transactional_id
        self._make_producer = make_producer
        self._clock = clock
        self._turn = threading.Lock()
        #: What claims the id, or has it.
        self._producer: Any = None
        self._claimed = False
        self._ended = False

    def claim(self, timeout_s: float) -> None:
        """Takes the transactional id, from whoever has it.

        Raises:
            KafkaRetriableException: The cluster did not answer in time.
            KafkaException: The producer cannot be made, or must not have this id.
        """
        deadline = self._clock() + timeout_s
        with self._taking_turns(deadline):
            self._drop()
            self._producer = self._make_producer(
                self._settings, name=self._settings.client_id, each_row=True, stops_at_failure=True
            )
            try:
                # One that came too late for `stop` to see it.
                self._check_open()
                self._producer.init_transactions(self._left(deadline))
            except KafkaException as error:
                raise self._given_up("could not be claimed", error) from error
            self._claimed = True

    def write(self, entries: Sequence[Entry], timeout_s: float) -> dict[int, int]:
        """Writes records in one transaction and waits until it is committed.

        Returns:
            The offset behind the last one of each partition.

        Raises:
            ProducerFencedException: The id is not claimed, or not any more; nothing is stored.
            KafkaRetriableException: It was not committed in time; it may be committed all the same. The id has to be
                claimed again.
            KafkaException: A record was refused; nothing is stored.
        """
        deadline = self._clock() + timeout_s
        with self._taking_turns(deadline):
            if not self._claimed:
                raise ProducerFencedException(
                    f"Nothing is written to the topic {self._topic}: the transactional id {self._id} has to be claimed "
                    "first"
                )
            answers = Acknowledged(self._topic, entries)
            batch = batch_of([ProducerRecord(self._topic, key, value) for key, value in entries])
            try:
                self._producer.send(batch, EachRow(answers.take), within_s=self._left(deadline))
                self._producer.commit(self._left(deadline))
            except TransactionAbortableException as error:
                self._abort(deadline)
                raise self._not_committed(error, answers) from error
            except KafkaException as error:
                raise self._given_up("could not write", error) from error
            except BaseException:
                # What is open must not be committed with the next.
                self._drop()
                raise
            return answers.reached

    def stop(self) -> None:
        """Lets the producer go; who claims or writes gets an error. A transaction under way is aborted later."""
        self._ended = True
        producer = self._producer
        if producer is not None:
            producer.abort()
        if self._turn.acquire(timeout=_STOP_S):
            try:
                self._drop()
            finally:
                self._turn.release()

    @contextlib.contextmanager
    def _taking_turns(self, deadline: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=self._left(deadline)):
            raise KafkaRetriableException(f"An earlier transaction on the topic {self._topic} has not ended in time")
        try:
            self._check_open()
            yield
        finally:
            self._turn.release()

    def _check_open(self) -> None:
        if self._ended:
            raise KafkaException(f"The producer {self._id} is closed")

    def _abort(self, deadline: float) -> None:
        """Ends a transaction that cannot be committed; where that fails the claim is lost."""
        try:
            self._producer.abort_transaction(max(_ABORT_S, self._left(deadline)))
        except KafkaException as error:
            logger.warning("A transaction on the topic %s could not be aborted (%s)", self._topic, error)
            self._drop()

    def _not_committed(self, error: KafkaException, answers: Acknowledged) -> KafkaException:
        """Why a transaction was aborted: because of a record, where one is known."""
        if answers.error is not None:
            return answers.error
        if not self._claimed:
            error = ProducerFencedException(str(error))
        return self._refusal("could not write", error)

    def _given_up(self, what: str, error: KafkaException) -> KafkaException:
        """Gives the claim up after a failure; returns the error for the caller."""
        if isinstance(error, CommitOutcomeUnknownException):
            why = self._producer.trouble or "the coordinator did not answer in time"
            error = KafkaRetriableException(
                f"whether its transaction was committed is not known ({why}); the next claim settles that"
            )
        self._drop()
        return self._refusal(what, error)

    def _refusal(self, what: str, error: KafkaException) -> KafkaException:
        text = f"The producer {self._id} {what} (topic {self._topic}): {error}"
        if isinstance(error, ProducerFencedException):
            return ProducerFencedException(f"{text}; it can be claimed again")
        return (KafkaRetriableException if isinstance(error, KafkaRetriableException) else KafkaException)(text)

    def _drop(self) -> None:
        producer, self._producer, self._claimed = self._producer, None, False
        if producer is not None:
            producer.close(0)

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock())
