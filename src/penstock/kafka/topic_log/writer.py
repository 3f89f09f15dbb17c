"""Writes records to one topic: several and wait, or one with a callback, or several in a transaction.

Threads: any thread may write; callbacks run on the threads of a ``RecordProducer``, which this class owns.
Transactional writes and claims happen one at a time.

Source: org.apache.kafka.connect.util.KafkaBasedLog; KIP-618; KafkaConfigBackingStore (claimWritePrivileges,
sendPrivileged).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from penstock.api import RecordMetadata
from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
    TransactionAbortableException,
)
from penstock.kafka.producer.in_flight import EachRow, RecordTooLargeException
from penstock.kafka.producer.record_batches import ProducerRecord, batch_of
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.producer import ColumnSettings

Entry = tuple[bytes, "bytes | None"]
Done = Callable[["Exception | None"], None]

#: The shortest and longest pause before a record is sent again; it is doubled each time.
_AGAIN_S: Final = (0.1, 5.0)


def write_error(topic: str, key: bytes, error: Exception) -> KafkaException:
    """The error of a record that could not be written, with advice."""
    text = f"The record {key.decode(errors='replace')} could not be written to the topic {topic}: "
    if isinstance(error, RecordTooLargeException):
        advice = "raise max.request.size of the worker and max.message.bytes of the topic, or make it smaller"
        return KafkaException(f"{text}{error.what}; {advice}")
    passing = isinstance(error, KafkaRetriableException)
    return (KafkaRetriableException if passing else KafkaException)(f"{text}{error}")


class Acknowledged:
    """The results of some records."""

    def __init__(self, topic: str, entries: Sequence[Entry]) -> None:
        self._topic = topic
        self._keys = [key for key, _ in entries]
        self._changed = threading.Condition()
        self._open = len(entries)
        self._awaited = True
        #: The error of the first record that could not be stored.
        self.error: KafkaException | None = None
        #: The offset after the last record of each partition.
        self.reached: dict[int, int] = {}

    def take(self, row: int, error: Exception | None, place: RecordMetadata | None) -> None:
        with self._changed:
            self._open -= 1
            if error is not None:
                self.error = self.error or write_error(self._topic, self._keys[row], error)
            elif place is not None:
                self.reached[place.partition] = max(self.reached.get(place.partition, 0), place.offset + 1)
            self._changed.notify_all()

    def is_awaited(self) -> bool:
        """True if a caller still waits for the results."""
        return self._awaited

    def wait(self, timeout_s: float, trouble: Callable[[], str | None]) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: not self._open, timeout_s)
            self._awaited = False
            if self.error is not None:
                raise self.error
            if not in_time:
                why = f" ({known})" if (known := trouble()) else ""
                raise KafkaRetriableException(
                    f"{self._open} records for the topic {self._topic} were not acknowledged in time{why}; they may "
                    "still be stored"
                )


class LogWriter:
    """The writing side of a log."""

    def __init__(
        self, topic: str, settings: ColumnSettings, name: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._letters = RecordProducer(settings, name=name)

    def write(self, entries: Sequence[Entry], timeout_s: float) -> dict[int, int]:
        """Writes records, waits until they are stored, and returns the offset after each partition's last record."""
        deadline = self._clock() + timeout_s
        answers = Acknowledged(self._topic, entries)
        for row, (key, value) in enumerate(entries):
            self._letters.send(
                ProducerRecord(self._topic, key, value),
                partial(answers.take, row),
                room_s=self._left(deadline),
                # Records that were not sent within that time are not sent any more.
                wanted=answers.is_awaited,
            )
        answers.wait(self._left(deadline), lambda: self._letters.trouble)
        return answers.reached

    def send(self, key: bytes, value: bytes | None, done: Done, wanted: Callable[[], bool] = lambda: False) -> None:
        """Writes one record; never waits.

        Args:
            done: Called once with the result, perhaps before this returns.
            wanted: Called after a retriable failure; returns True if the record must be sent again.
        """
        self._send(ProducerRecord(self._topic, key, value), key, done, wanted, 0.0)

    def stop(self, timeout_s: float) -> None:
        """Waits for records in flight, then ends; remaining records get an error. Safe to call twice."""
        self._letters.close(timeout_s)

    def _send(self, record: ProducerRecord, key: bytes, done: Done, wanted: Callable[[], bool], after_s: float) -> None:
        def answer(error: Exception | None, _: RecordMetadata | None) -> None:
            if isinstance(error, KafkaRetriableException) and wanted():
                first_s, most_s = _AGAIN_S
                self._send(record, key, done, wanted, min(most_s, max(first_s, 2 * after_s)))
            else:
                done(None if error is None else write_error(self._topic, key, error))

        self._letters.send(record, answer, room_s=0, after_s=after_s, wanted=wanted if after_s else None)

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock())


logger = logging.getLogger(__name__)

#: The minimum time for an abort.
_ABORT_S: Final = 1.0
_STOP_S: Final = 5.0


class TransactionalWriter:
    """The writing side of a log, in transactions."""

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
        #: The producer that claims or owns the id.
        self._producer: Any = None
        self._claimed = False
        self._ended = False

    def claim(self, timeout_s: float) -> None:
        """Takes the transactional id from its current owner."""
        deadline = self._clock() + timeout_s
        with self._taking_turns(deadline):
            self._drop()
            self._producer = self._make_producer(
                self._settings, name=self._settings.client_id, each_row=True, stops_at_failure=True
            )
            try:
                # Fails if `stop` came before it could see this producer.
                self._check_open()
                self._producer.init_transactions(self._left(deadline))
            except KafkaException as error:
                raise self._given_up("could not be claimed", error) from error
            self._claimed = True

    def write(self, entries: Sequence[Entry], timeout_s: float) -> dict[int, int]:
        """Writes records in one transaction and waits until it is committed.

        Returns:
            The offset after the last record of each partition.

        Raises:
            ProducerFencedException: The id is not claimed, or another worker owns it now; nothing is stored.
            KafkaRetriableException: The commit did not finish in time; it may still succeed. Claim the id again.
            KafkaException: A record was rejected; nothing is stored.
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
                # The open records must not be committed with the next transaction.
                self._drop()
                raise
            return answers.reached

    def stop(self) -> None:
        """Releases the producer; waiting claims and writes get an error. An open transaction is aborted later."""
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
        """Aborts a transaction that cannot be committed; if that fails, the claim is lost."""
        try:
            self._producer.abort_transaction(max(_ABORT_S, self._left(deadline)))
        except KafkaException as error:
            logger.warning("A transaction on the topic %s could not be aborted (%s)", self._topic, error)
            self._drop()

    def _not_committed(self, error: KafkaException, answers: Acknowledged) -> KafkaException:
        """Returns the reason why a transaction was aborted: the error of a record, if one is known."""
        if answers.error is not None:
            return answers.error
        if not self._claimed:
            error = ProducerFencedException(str(error))
        return self._refusal("could not write", error)

    def _given_up(self, what: str, error: KafkaException) -> KafkaException:
        """Drops the claim after a failure; returns the error for the caller."""
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
