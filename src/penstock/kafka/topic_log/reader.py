"""Reads all partitions of one topic from the beginning, without a group, and passes the records on in order.

The reader survives all failures of brokers. If the topic has lost records that were already read, or was created again,
the reader logs an error and starts again from the beginning: it forgets all positions, and ignores late updates of the
old ones.

Threads: ``log-<topic>``, started and joined here, owns the consumer and calls the handler. It executes requests of
other threads between two fetches. ``LogPositions``: any.

Source: org.apache.kafka.connect.util.KafkaBasedLog.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import confluent_kafka as ck

from penstock.errors import KafkaException
from penstock.kafka.network.sasl import refuses_login
from penstock.kafka.settings.client import CLIENT_LOG
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


logger = logging.getLogger(__name__)

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
