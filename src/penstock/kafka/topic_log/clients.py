"""The reading and writing clients of one internal topic.

``LogReader`` reads all partitions from the beginning, without a group, and survives all failures of brokers. If the
topic has lost records that were already read, or was created again, it logs an error and starts again from the
beginning: it forgets all positions, and ignores late updates of the old ones. ``LogWriter`` writes several records and
waits, or one with a callback; ``TransactionalWriter`` several in a transaction, of which only one worker at a time is
the producer.

Threads: ``log-<topic>``, started and joined by the reader, owns the consumer and calls the handler; it executes
requests of other threads between two fetches. Any thread may write; callbacks run on the threads of a
``RecordProducer``. Transactional writes and claims happen one at a time.

Source: org.apache.kafka.connect.util.KafkaBasedLog; KIP-618; KafkaConfigBackingStore (claimWritePrivileges,
sendPrivileged).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import confluent_kafka as ck

from penstock.api import RecordMetadata
from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
    TransactionAbortableException,
)
from penstock.kafka.network.sasl import refuses_login
from penstock.kafka.producer.in_flight import EachRow, RecordTooLargeException
from penstock.kafka.producer.record_batches import ProducerRecord, batch_of
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.client import CLIENT_LOG
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.topic_log.internal_topics import LogSettings
from penstock.telemetry.logs import SeldomLog


class LogPositions:
    """The positions of one log.

    >>> positions = LogPositions()
    >>> positions.advance(positions.generation, {0: 5, 1: 2})
    >>> positions.behind({0: 5, 1: 3, 2: 0})
    {1: 3}
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reached: dict[int, int] = {}
        self._generation = 0
        self._closed: str | None = None

    @property
    def generation(self) -> int:
        """Counts how often reading began."""
        return self._generation

    def reached(self, partition: int) -> int:
        """The offset after the last record of a partition passed on; 0 before the first one."""
        return self._reached.get(partition, 0)

    def advance(self, generation: int, reached: Mapping[int, int]) -> None:
        """Records the reader's progress, after the handler has received the records."""
        with self._changed:
            if generation == self._generation:
                self._reached.update(reached)
                self._changed.notify_all()

    def begin_anew(self) -> int:
        """Forgets all positions. Returns the generation of the records that are read after this."""
        with self._changed:
            self._reached.clear()
            self._generation += 1
            return self._generation

    def behind(self, targets: Mapping[int, int]) -> dict[int, int]:
        return {partition: offset for partition, offset in targets.items() if self.reached(partition) < offset}

    def wait(self, targets: Mapping[int, int], timeout_s: float) -> bool:
        """Waits until all targets were reached. Returns False if the time was over before that."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed is not None or not self.behind(targets), timeout_s)
            if not self.behind(targets):
                return True
            if self._closed is not None:
                raise KafkaException(self._closed)
            return False

    def close(self, reason: str) -> None:
        """Ends all waits, and every later one, with this reason."""
        with self._changed:
            self._closed = reason
            self._changed.notify_all()


_Error = ck.KafkaError
_POLL_S: Final = 0.2
_AT_ONCE: Final = 2_000
_CLOSE_S: Final = 5.0
#: The client keeps trying, because a user may grant the right later; callers should not wait for that.
_REFUSED: Final = frozenset({_Error.TOPIC_AUTHORIZATION_FAILED, _Error.CLUSTER_AUTHORIZATION_FAILED})
#: The group is only a name here.
_OF_GROUPS: Final = frozenset({_Error.GROUP_AUTHORIZATION_FAILED})


class LogRecord(NamedTuple):
    """One record of a log; a value of None is a tombstone."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = -1


Handler = Callable[[Sequence[LogRecord]], None]


class LogReader:
    """The reading side of a log.

    Args:
        handle: Receives the records of each partition in order. Its exceptions are logged, and the records count as
            passed on.
        tick: Called several times a second, between fetches.
    """

    def __init__(
        self,
        topic: str,
        settings: LogSettings,
        positions: LogPositions,
        handle: Handler,
        *,
        tick: Callable[[], None] = lambda: None,
        make_consumer: Callable[..., Any] = ck.Consumer,
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._positions = positions
        self._handle = handle
        self._tick = tick
        self._make_consumer = make_consumer
        self._consumer: Any = None
        self._seldom = SeldomLog(logger)
        self._ending = threading.Event()
        self._orders: deque[Callable[[], None]] = deque()
        self._starts: dict[int, int] = {}
        self._generation = positions.generation
        self._thread = threading.Thread(target=self._run, name=f"log-{topic}", daemon=True)
        #: The permanent reason why nothing can be read, until a user fixes it; None if there is none.
        self.refused: str | None = None

    @property
    def trouble(self) -> str | None:
        """The latest error that the client reported, or None if there was none."""
        return self._seldom.last

    @property
    def is_own_thread(self) -> bool:
        """True if this is the thread that calls the handler, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Begins to read the partitions that ``add`` has named."""
        own = {"enable.partition.eof": True, "error_cb": self._complain}
        try:
            self._consumer = self._make_consumer({**self._settings.reader, **own}, logger=CLIENT_LOG)
        except (ck.KafkaException, ValueError, TypeError) as error:
            raise KafkaException(f"The consumer {self._settings.name} cannot be made: {error}") from error
        self._thread.start()

    def add(self, beginnings: Mapping[int, int]) -> None:
        """Reads these partitions too."""

        def order() -> None:
            self._starts = {**beginnings, **self._starts}
            self._assign()

        self._orders.append(order)

    def begin_anew(self, beginnings: Mapping[int, int]) -> None:
        """Reads everything again, from these partitions only; earlier records no longer count."""
        generation = self._positions.begin_anew()

        def order() -> None:
            self._generation = generation
            self._starts = dict(beginnings)
            self._assign()

        self._orders.append(order)

    def stop(self) -> None:
        """Ends the thread and closes the consumer. Safe to call twice, and if it was not started."""
        self._ending.set()
        if self._thread.ident is None:
            if self._consumer is not None:
                self._consumer.close()
            return
        if not self.is_own_thread:
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                logger.warning("The consumer %s did not end within %g s", self._settings.name, _CLOSE_S)

    # ------------------------------------------------------------------ thread "log-<topic>"
    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._once()
        except BaseException:
            logger.exception("The thread that reads the topic %s ended by an error", self._topic)
            self._positions.close(
                f"The topic {self._topic} is not read any more: its thread ended by an error (see the log)"
            )
        finally:
            self._consumer.close()

    def _once(self) -> None:
        while self._orders:
            self._orders.popleft()()
        self._tick()
        try:
            # The second call takes the messages that have arrived. Only the first waits, and only for one message.
            first = self._consumer.poll(_POLL_S)
            messages = [] if first is None else [first, *self._consumer.consume(_AT_ONCE, 0)]
        except ck.KafkaException as error:
            self._complain(error.args[0])
            self._ending.wait(_POLL_S)
            return
        if messages:
            self._take(messages)

    def _assign(self) -> None:
        reached = self._positions.reached
        self._consumer.assign(
            [ck.TopicPartition(self._topic, number, reached(number) or start) for number, start in self._starts.items()]
        )

    def _take(self, messages: Sequence[Any]) -> None:
        records: list[LogRecord] = []
        reached: dict[int, int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                number, offset = message.partition(), message.offset()
                records.append(LogRecord(number, offset, message.key(), message.value(), message.timestamp()[1]))
                self._check_order(number, offset, reached)
                reached[number] = offset + 1
            elif error.code() == _Error._PARTITION_EOF:
                self._check_order(message.partition(), message.offset(), reached)
                reached[message.partition()] = message.offset()
            else:
                self._complain(error)
        if reached:
            self.refused = None
        if records:
            try:
                self._handle(records)
            except Exception:
                logger.exception("Records of the topic %s could not be used: %s", self._topic, _named(records))
        self._positions.advance(self._generation, reached)

    def _check_order(self, partition: int, offset: int, reached: Mapping[int, int]) -> None:
        before = reached.get(partition)
        if before is None:
            before = self._positions.reached(partition) if self._generation == self._positions.generation else 0
        if offset < before:
            logger.error(
                "The topic %s has lost records: partition %d was read up to offset %d, and goes on at %d. It was "
                "truncated (unclean leader election), or deleted and created again. What is there now is read; write "
                "again what is missing",
                self._topic,
                partition,
                before,
                offset,
            )

    def _complain(self, error: ck.KafkaError) -> None:
        if error.code() in _OF_GROUPS:
            return
        if error.code() in _REFUSED or refuses_login(error):
            self.refused = error.str()
        self._seldom.warning(
            error.code(), "%s: %s; the client keeps trying to read %s", self._settings.name, error.str(), self._topic
        )


def _named(records: Sequence[LogRecord]) -> str:
    return ", ".join(f"{one.key!r} at {one.partition}-{one.offset}" for one in records[:10])


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
