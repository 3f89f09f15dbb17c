"""A compacted topic as a log that can be read to its end and written to; the stores of a distributed worker use it.

A write returns after its records are stored and have been passed to this log's own handler; ``read_to_end`` returns
after all records that existed at the call have been passed on.

Threads: any thread may write and wait; the handler runs on the thread of a ``LogReader``, which must not wait for
itself.

Source: org.apache.kafka.connect.util.KafkaBasedLog.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import confluent_kafka as ck

from penstock.api import TopicPartition
from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.admin import TopicAdmin, error_code
from penstock.kafka.open_transactions import HeldUpException, OpenTransactions
from penstock.kafka.topic_log.clients import (
    Done,
    Entry,
    Handler,
    LogPositions,
    LogReader,
    LogWriter,
    TransactionalWriter,
)
from penstock.kafka.topic_log.internal_topics import InternalTopic, LogSettings, ensure

T = TypeVar("T")


@dataclass
class _Round(Generic[T]):
    """One request, and the callers that wait for its answer."""

    done: bool = False
    answer: T | None = None
    error: Exception | None = None


class SharedQuestion(Generic[T]):
    """Makes one request for all callers that need its answer at the same time.

    Args:
        ask: Makes the request; its argument is the timeout in seconds.
    """

    def __init__(self, ask: Callable[[float], T], what: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._what = what
        self._clock = clock
        self._changed = threading.Condition()
        self._next: _Round[T] = _Round()
        self._under_way = False

    def answer(self, timeout_s: float) -> T:
        """The answer to a request that was made after this call began."""
        deadline = self._clock() + timeout_s
        while True:
            with self._changed:
                mine = self._next
                if not self._changed.wait_for(lambda: mine.done or not self._under_way, self._left(deadline)):  # noqa: B023
                    raise KafkaRetriableException(f"{self._what}: no answer within {timeout_s:.3g} s")
                if not mine.done:
                    self._under_way, self._next = True, _Round()
            if not mine.done:
                self._serve(mine, deadline)
            # Another caller may have had less time than this one.
            if not isinstance(mine.error, KafkaRetriableException) or not self._left(deadline):
                break
        if mine.error is not None:
            raise mine.error
        assert mine.answer is not None
        return mine.answer

    def _serve(self, one: _Round[T], deadline: float) -> None:
        one.error = KafkaRetriableException(f"{self._what} was abandoned")
        try:
            one.answer = self._ask(self._left(deadline))
            one.error = None
        except Exception as error:
            one.error = error
        finally:
            with self._changed:
                one.done, self._under_way = True, False
                self._changed.notify_all()

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock())


logger = logging.getLogger(__name__)

#: Cluster errors for a topic that is being created, or whose leader moves.
_PASSING: Final = frozenset({ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC})
_PAUSE_S: Final = 0.1
#: The interval in which a wait checks if it can still succeed.
_SLICE_S: Final = 0.5
#: The interval in which an idle log checks its topic: new partitions, or a new topic with the same name.
_LOOK_EVERY_S: Final = 30.0
_LOOK_S: Final = 2.0
_FLUSH_S: Final = 5.0
#: The time after which a wait looks for open transactions, and the interval of further checks.
_HELD_UP_S: Final = 3.0
_HELD_UP_AGAIN_S: Final = 10.0


@dataclass(frozen=True)
class _Seen:
    """A topic at one moment: its id, and the ends of its partitions."""

    topic_id: str
    ends: Mapping[int, int]


@dataclass(frozen=True)
class _Parts:
    """The parts of a log that was started."""

    positions: LogPositions
    reader: LogReader
    writer: LogWriter | None
    leader: TransactionalWriter | None
    question: SharedQuestion[_Seen]


class TopicLog:
    """One topic, read from its beginning and written to."""

    def __init__(
        self,
        topic: str,
        settings: LogSettings,
        admin: TopicAdmin | None,
        *,
        make_consumer: Callable[..., Any] = ck.Consumer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._admin = admin
        self._make_consumer = make_consumer
        self._clock = clock
        self._stopped = threading.Event()
        self._parts: _Parts | None = None
        self._adopting = threading.Lock()
        self._topic_id = ""
        self._known: frozenset[int] = frozenset()
        self._look_at = 0.0
        self._open_transactions = OpenTransactions(settings.writer, settings.group, settings.name)

    # ------------------------------------------------------------------ lifecycle
    def start(self, handle: Handler, timeout_s: float = 60.0) -> None:
        """Passes all records in the topic to the handler, and then new records as they arrive.

        It does not wait for records in or after an open transaction.

        Args:
            handle: The handler; it receives the records of each partition in order, on the log's thread.

        Raises:
            KafkaRetriableException: The timeout expired, for example because no broker is reachable. May be called
                again.
        """
        deadline = self._clock() + timeout_s
        self._stopped.clear()
        parts = self._new_parts(handle)
        try:
            seen = self._seen(timeout_s, stable=self._settings.committed_only)
            if self._stopped.is_set():
                raise self._closed()
            beginnings = self._cluster().beginning_offsets(self._partitions(seen.ends), timeout_s=self._left(deadline))
            self._topic_id, self._known = seen.topic_id, frozenset(seen.ends)
            self._look_at = self._clock() + _LOOK_EVERY_S
            parts.reader.add({at.partition: offset for at, offset in beginnings.items()})
            self._parts = parts
            parts.reader.start()
            self._await(parts, seen.ends, deadline, timeout_s, "being read to its end for the first time")
        except BaseException:
            self._parts = parts
            self.stop()
            raise

    def stop(self) -> None:
        """Closes the topic; waiting callers get an error. Safe to call twice, and after a failed start."""
        self._stopped.set()
        parts, self._parts = self._parts, None
        if parts is None:
            return
        parts.positions.close(f"The log of the topic {self.topic} was closed")
        if parts.writer is not None:
            parts.writer.stop(_FLUSH_S)
        if parts.leader is not None:
            parts.leader.stop()
        parts.reader.stop()

    # ------------------------------------------------------------------ requests, any thread but the log's own
    def read_to_end(self, timeout_s: float) -> None:
        """Waits until the handler has received everything that is in the topic now.

        Concurrent calls share one request for the end of the topic.
        """
        deadline = self._clock() + timeout_s
        parts = self._waitable()
        seen = parts.question.answer(timeout_s)
        self._await(parts, seen.ends, deadline, timeout_s, "being read to its end")

    def write(self, entries: Sequence[Entry], timeout_s: float = 30.0, *, transactional: bool = False) -> None:
        """Writes records; returns after they are stored and have been passed to the handler.

        Args:
            entries: Keys and values; None is a tombstone.
            transactional: True to write them in one transaction, with the producer that ``claim`` has created.

        Raises:
            ProducerFencedException: The transactional id is not claimed, or another worker has claimed it.
            KafkaRetriableException: The timeout expired; the records may still be stored.
            KafkaException: A record was rejected, or the log is closed.
        """
        if not entries:
            return
        deadline = self._clock() + timeout_s
        parts = self._waitable()
        writer = self._leader(parts) if transactional else parts.writer
        if writer is None:
            raise self._closed()
        reached = writer.write(entries, timeout_s)
        if not self._known.issuperset(reached):
            # The record may be in a partition that was added a moment ago.
            parts.question.answer(self._left(deadline))
        self._await(parts, reached, deadline, timeout_s, "reading back what was written")

    def write_async(
        self, key: bytes, value: bytes | None, done: Done, *, wanted: Callable[[], bool] = lambda: False
    ) -> None:
        """Writes one record; never waits.

        Args:
            key, value: The record; a value of None is a tombstone.
            done: Called once with the result, perhaps before this returns.
            wanted: Called after a retriable failure; returns True if the record must still be sent.
        """
        parts = self._parts
        if parts is None or parts.writer is None:
            done(self._closed())
            return
        parts.writer.send(key, value, done, wanted)

    def claim(self, timeout_s: float = 30.0) -> None:
        """Takes over the transactional id; its previous owner is fenced. Raises ``KafkaException`` if the log has no
        transactional id, or must not use it.
        """
        self._leader(self._waitable()).claim(timeout_s)

    # ------------------------------------------------------------------ within
    def _new_parts(self, handle: Handler) -> _Parts:
        positions, settings = LogPositions(), self._settings
        return _Parts(
            positions,
            LogReader(self.topic, settings, positions, handle, tick=self._tick, make_consumer=self._make_consumer),
            None if settings.read_only else LogWriter(self.topic, settings.writer, settings.name),
            None if settings.leader is None else TransactionalWriter(self.topic, settings.leader),
            SharedQuestion(self._look, f"Asking for the ends of the topic {self.topic}"),
        )

    def _leader(self, parts: _Parts) -> TransactionalWriter:
        if parts.leader is None:
            raise KafkaException(f"The log of the topic {self.topic} has no transactional id")
        return parts.leader

    def _waitable(self) -> _Parts:
        parts = self._parts
        if parts is None:
            raise self._closed()
        if parts.reader.is_own_thread:
            raise RuntimeError(f"The thread that hands over the records of {self.topic} must not wait for them")
        return parts

    def _cluster(self) -> TopicAdmin:
        if self._admin is None:
            raise self._closed()
        return self._admin

    def _closed(self) -> KafkaException:
        return KafkaException(f"The log of the topic {self.topic} is closed, or was not started")

    def _await(self, parts: _Parts, targets: Mapping[int, int], deadline: float, timeout_s: float, stage: str) -> None:
        """Waits until the handler has received these offsets. If that takes long, looks for transactions that hide
        them.
        """
        look_at, held_up = self._clock() + _HELD_UP_S, None
        while not parts.positions.wait(targets, min(_SLICE_S, self._left(deadline))):
            if self._settings.committed_only and self._clock() >= look_at:
                behind = parts.positions.behind(targets)
                places = [(self.topic, number) for number in sorted(behind)]
                held_up = self._open_transactions.look(places, max(_HELD_UP_S, self._left(deadline)))
                look_at = self._clock() + _HELD_UP_AGAIN_S
            if parts.reader.refused is not None:
                raise KafkaException(
                    f"The topic {self.topic} cannot be read: {parts.reader.refused}. Check the worker's credentials, "
                    "and allow its user the operations Read and Describe on this topic"
                )
            if not self._left(deadline):
                late = ", ".join(
                    f"partition {number} is at {parts.positions.reached(number)} of {offset}"
                    for number, offset in sorted(parts.positions.behind(targets).items())[:5]
                )
                took = f"The topic {self.topic}, {stage}, took longer than {timeout_s:.3g} s"
                if held_up is not None:
                    raise HeldUpException(held_up, took)
                trouble = f"; {parts.reader.trouble}" if parts.reader.trouble else ""
                raise KafkaRetriableException(f"{took}: {late}{trouble}")

    def _look(self, timeout_s: float) -> _Seen:
        """Queries the end of the topic, and adapts to changes of the topic."""
        parts = self._parts
        if parts is None:
            raise self._closed()
        generation = parts.positions.generation
        before = {number: parts.positions.reached(number) for number in self._known}
        stable = self._settings.committed_only and not self._settings.waits
        seen = self._seen(timeout_s, stable=stable)
        if _lost(seen, before):
            # An overloaded broker, or a new leader, may have returned a former end of the topic.
            seen = self._seen(timeout_s, stable=stable)
        with self._adopting:
            if parts.positions.generation == generation:
                self._adopt(parts, seen, before)
        return seen

    def _adopt(self, parts: _Parts, seen: _Seen, before: Mapping[int, int]) -> None:
        """Reads new partitions, or everything again if records that were read are gone."""
        if seen.topic_id != self._topic_id or _lost(seen, before):
            how = "was deleted and created again" if seen.topic_id != self._topic_id else "was truncated"
            logger.error(
                "The topic %s %s: what this worker has read of it is not there any more (%s). What is there now is "
                "read; write again what is missing, before workers are restarted and know nothing of it",
                self.topic,
                how,
                ", ".join(f"partition {n} up to offset {offset}" for n, offset in sorted(before.items()) if offset),
            )
            parts.reader.begin_anew(dict.fromkeys(seen.ends, 0))
        elif added := sorted(set(seen.ends) - self._known):
            logger.warning(
                "The topic %s has %d partitions now, %d more than before: records of a key that has moved to another "
                "partition have no order any more",
                self.topic,
                len(seen.ends),
                len(added),
            )
            parts.reader.add(dict.fromkeys(added, 0))
        self._topic_id, self._known = seen.topic_id, frozenset(seen.ends)

    def _seen(self, timeout_s: float, *, stable: bool) -> _Seen:
        """Queries the cluster; waits for a topic that is being created.

        Args:
            stable: True to end partitions at their last stable offset, where the oldest open transaction begins.
        """
        deadline = self._clock() + timeout_s
        while True:
            try:
                return self._ask(max(_PAUSE_S, self._left(deadline)), stable)
            except KafkaException as error:
                passing = isinstance(error, KafkaRetriableException) or error_code(error) in _PASSING
                if not passing or self._stopped.is_set():
                    raise
                if not self._left(deadline):
                    raise KafkaRetriableException(
                        f"The topic {self.topic}, being asked for its ends, took longer than {timeout_s:.3g} s: {error}"
                    ) from error
            self._stopped.wait(_PAUSE_S)

    def _ask(self, timeout_s: float, stable: bool) -> _Seen:
        deadline = self._clock() + timeout_s
        found = self._cluster().describe_topics([self.topic], timeout_s=timeout_s).get(self.topic)
        if found is None or not found.partitions:
            raise KafkaRetriableException(f"The topic {self.topic} does not exist")
        ends = self._cluster().end_offsets(
            self._partitions(range(found.partitions)),
            committed_only=stable,
            timeout_s=max(_PAUSE_S, self._left(deadline)),
        )
        return _Seen(found.topic_id, {at.partition: offset for at, offset in ends.items()})

    def _partitions(self, numbers: Sequence[int] | range | Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in numbers]

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock())

    def _tick(self) -> None:
        """Called by the reader between two fetches."""
        parts = self._parts
        if parts is None or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_EVERY_S
        try:
            self._look(_LOOK_S)
        except KafkaException as error:
            logger.debug("The topic %s could not be looked at: %s", self.topic, error)


def _lost(seen: _Seen, before: Mapping[int, int]) -> bool:
    return any(seen.ends.get(number, 0) < offset for number, offset in before.items())


class MadeLog(TopicLog):
    """The log of a topic that it creates when it is started, with an admin client of its own.

    Args:
        admin: The settings of the admin client, by librdkafka's names.
    """

    def __init__(self, topic: InternalTopic, settings: LogSettings, admin: Mapping[str, object]) -> None:
        super().__init__(topic.name, settings, None)
        self._internal_topic = topic
        self._admin_settings = admin

    def start(self, handle: Handler, timeout_s: float = 60.0) -> None:
        """Creates a missing topic first. Raises ``ConfigException`` if the topic cannot be used."""
        self.stop()
        self._admin = TopicAdmin(dict(self._admin_settings), name=f"the topic {self.topic}")
        try:
            ensure(self._admin, self._internal_topic)
            super().start(handle, timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        super().stop()
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
