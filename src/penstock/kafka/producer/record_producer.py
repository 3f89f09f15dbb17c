"""Sends single records, each with its own result: dead letter records, and records of internal topics.

Records that arrive during a send are sent together afterwards. A producer that has failed permanently, for example
because its login was rejected, is replaced, so that long-lived users recover after the cause is fixed.

Threads: any thread may call ``send``, the owner calls ``close``. The thread ``letters-<name>`` passes records on;
results arrive on it, on that of the ``ColumnProducer``, or on the caller's if a record is rejected.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.api import RecordMetadata
from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.producer.column_producer import RECORD_OVERHEAD_BYTES, ColumnProducer
from penstock.kafka.producer.in_flight import EachRow, ProducerClosedException
from penstock.kafka.producer.record_batches import ProducerRecord, batch_of
from penstock.kafka.settings.producer import ColumnSettings

logger = logging.getLogger(__name__)

#: The largest number of records that are sent together.
_TOGETHER: Final = 1000
_END_S: Final = 5.0
#: The minimum age of a failed producer before it is replaced, in seconds.
_RENEW_S: Final = 1.0

Answer = Callable[["Exception | None", "RecordMetadata | None"], None]


@dataclass(eq=False)
class _Letter:
    """One record, and the callback for its result."""

    record: ProducerRecord
    answer: Answer
    wanted: Callable[[], bool] | None
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        record = self.record
        contents = [record.key, record.value]
        contents += [text for name, value in record.headers for text in (name.encode(), value)]
        self.nbytes = RECORD_OVERHEAD_BYTES + sum(len(one or b"") for one in contents)


class RecordProducer:
    """A producer for records that come one at a time."""

    def __init__(self, settings: ColumnSettings, *, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_Letter] = deque()
        #: Records to send later, with their times.
        self._later: list[tuple[float, int, _Letter]] = []
        self._numbers = itertools.count()
        #: Records that wait or are in flight.
        self._open: set[_Letter] = set()
        self._bytes = 0
        self._ending = False
        self._producer, self._made_at = self._new_producer(), clock()
        self._thread = threading.Thread(target=self._serve, name=f"letters-{name}", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """The known reason why records cannot be sent; None if there is none."""
        return self._producer.trouble

    def send(
        self,
        record: ProducerRecord,
        answer: Answer,
        *,
        room_s: float | None = None,
        after_s: float = 0.0,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Queues one record. Waits only while `buffer.memory` bytes are queued.

        Args:
            answer: Called once with the error, or with None and the position in Kafka.
            room_s: The longest wait for room, after which the record is refused; None for no limit.
            after_s: The delay before the record is sent; until then it takes no room.
            wanted: Called when it is the record's turn; if it returns false, the record is not sent. Records that are
                queued later are sent later.
        """
        letter = _Letter(record, answer, wanted)
        with self._changed:
            if after_s > 0 and not self._ending:
                heapq.heappush(self._later, (self._clock() + after_s, next(self._numbers), letter))
                self._changed.notify_all()
                return
            room = self._changed.wait_for(lambda: self._ending or self._has_room(letter), room_s)
            if room and not self._ending:
                self._put(letter)
                self._changed.notify_all()
                return
        if room:
            answer(KafkaException(f"The producer of {self._name} is closed"), None)
        else:
            answer(
                KafkaRetriableException(
                    f"The producer of {self._name} has no room for more records, because those before are not stored "
                    f"yet: {self.trouble or 'the brokers did not answer'}"
                ),
                None,
            )

    def close(self, timeout_s: float) -> bool:
        """Waits for records in flight, then ends; other records get an error. Returns True if all were delivered."""
        with self._changed:
            delivered = self._changed.wait_for(lambda: not self._open, timeout_s)
            self._ending = True
            self._changed.notify_all()
        self._producer.close(0)
        self._thread.join(_END_S)
        with self._changed:
            delivered = delivered and not self._later
            self._open.update(letter for _, _, letter in self._later)
            self._later.clear()
            left = list(self._open)
        self._fail(left, KafkaException(f"The producer of {self._name} was closed before it was stored"))
        return delivered

    # ---------------------------------------------------------------- with the lock
    def _has_room(self, letter: _Letter) -> bool:
        return not self._open or self._bytes + letter.nbytes <= self._settings.buffer

    def _put(self, letter: _Letter) -> None:
        self._waiting.append(letter)
        self._open.add(letter)
        self._bytes += letter.nbytes

    def _due_s(self) -> float | None:
        """Moves due records to the waiting ones; returns the time until the next is due."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            self._put(heapq.heappop(self._later)[2])
        return self._later[0][0] - now if self._later else None

    # ---------------------------------------------------------------- thread "letters-<name>"
    def _serve(self) -> None:
        while letters := self._next():
            try:
                letters = [letter for letter in letters if self._is_wanted(letter)]
                if letters:
                    self._renew(letters)
                    batch = batch_of([letter.record for letter in letters])
                    self._producer.send(batch, EachRow(partial(self._answered, letters)))
            except ProducerClosedException as error:
                # If the producer is being closed, `close` answers the rest.
                if not self._ending:
                    self._fail(letters, error)
            except Exception as error:
                logger.exception("Records of %s cannot be sent", self._name)
                self._fail(letters, error)

    def _next(self) -> list[_Letter]:
        """Returns the records that are sent together next; waits for them. Empty if the producer is being closed."""
        with self._changed:
            while not self._ending:
                due_s = self._due_s()
                if self._waiting:
                    return [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]
                self._changed.wait(due_s)
        return []

    def _is_wanted(self, letter: _Letter) -> bool:
        if letter.wanted is None or letter.wanted():
            return True
        self._done(letter, KafkaRetriableException("It was not sent: it is not wanted any more"))
        return False

    def _renew(self, letters: Sequence[_Letter]) -> None:
        """Replaces a producer that sends no more records."""
        if not self._producer.has_failed or self._clock() < self._made_at + _RENEW_S:
            return
        spare = self._new_producer()
        with self._changed:
            if not self._ending:
                self._producer, spare = spare, self._producer
                self._made_at = self._clock()
            untold = self._open.difference(letters, self._waiting)
        spare.close(0)
        self._fail(untold, KafkaRetriableException(f"The producer of {self._name} has failed; it may be stored"))

    def _new_producer(self) -> ColumnProducer:
        return ColumnProducer(self._settings, name=self._name, each_row=True)

    # ---------------------------------------------------------------- answers
    def _fail(self, letters: Iterable[_Letter], error: Exception) -> None:
        for letter in letters:
            self._done(letter, error)

    def _answered(
        self, letters: Sequence[_Letter], row: int, error: Exception | None, place: RecordMetadata | None
    ) -> None:
        self._done(letters[row], error, place)

    def _done(self, letter: _Letter, error: Exception | None, place: RecordMetadata | None = None) -> None:
        with self._changed:
            if letter not in self._open:
                return
            self._open.remove(letter)
            self._bytes -= letter.nbytes
        try:
            letter.answer(error, place)
        except Exception:
            logger.exception("%s: an answer to a sent record failed", self._name)
        with self._changed:
            self._changed.notify_all()
