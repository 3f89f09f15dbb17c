"""The queues of record batches to send, by topic partition and in order, and the handling of responses. No I/O.

A batch keeps its sequence number while its outcome is unknown: if the broker has stored it, it drops the duplicate.
Only if the broker has rejected a batch, so that certainly neither it nor any later batch was stored, are its numbers
reused for the next one. While a batch has to be sent again, no new batch is sent until all batches in flight have a
response, so that the order is kept (Invariant 3). No new batch is sent either while a retry is in flight: the broker
would forget the numbers by which it recognizes duplicates.

When a broker rejects a batch because of some of its records, the records that it names are removed, or the batch is
halved until the bad records are isolated. If a batch may be stored although it counts as lost, or the reverse, the
producer gets a new id and new sequence numbers.

Source: RecordAccumulator and Sender of Kafka's producer; KIP-467; KIP-98 (sequence numbers), KIP-360 (a new producer
id).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from confluent_kafka import KafkaError

from penstock.kafka.producer.in_flight import Encode, PartitionBatch
from penstock.kafka.producer.transaction import Transaction
from penstock.kafka.protocol import BLAMES_SOME, ID_GONE, NOT_STORED, ErrorKind, PartitionAnswer, error_of
from penstock.kafka.settings.producer import ColumnSettings, backoff

#: The number of batches of one producer and partition that a broker remembers by their numbers.
REMEMBERED: Final = 5
_NUMBERS: Final = 1 << 31


class Numbered(Protocol):
    """The queue's interface to a record batch.

    Attributes:
        created: When it was made (monotonic seconds).
        sequence: Number of its first record; None until it is sent.
    """

    created: float
    sequence: int | None

    @property
    def count(self) -> int:
        """The number of records; each takes a sequence number."""


B = TypeVar("B", bound=Numbered)


class PartitionQueue(Generic[B]):
    """The batches for one topic partition that wait, and those in flight.

    Attributes:
        retry_at: The time before which nothing is sent (monotonic seconds).
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self.retry_at = 0.0
        self.attempts = 0
        self._waiting: deque[B] = deque()
        self._under_way: deque[B] = deque()
        self._again: list[B] = []
        #: The number of batches in flight that were sent before; they come first.
        self._repeated = 0
        self._freed: int | None = None
        #: The number of batches to send again that precede the one whose numbers are free; they keep their numbers.
        self._before_freed = 0
        self._next = 0
        # True if the broker has stored a batch of the current producer id. It accepts any number for the first batch.
        self._known = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way) + len(self._again)

    @property
    def under_way(self) -> int:
        """The number of batches that have no answer yet."""
        return len(self._under_way)

    @property
    def unsettled(self) -> bool:
        """True if the outcome of a sent batch is unknown."""
        waiting = self.head
        return bool(self._under_way or self._again or (waiting is not None and waiting.sequence is not None))

    @property
    def head(self) -> B | None:
        """The first batch that waits, if any."""
        return self._waiting[0] if self._waiting else None

    def add(self, batch: B) -> None:
        """Appends a batch."""
        self._waiting.append(batch)

    def ready(self, now: float) -> B | None:
        """The batch that may be sent now, if any."""
        settling = self._again or self._freed is not None
        if not self._waiting or settling or now < self.retry_at:
            return None
        if len(self._under_way) >= (self._most if self._known else 1):
            return None
        if self._repeated and self._waiting[0].sequence is None:
            return None
        return self._waiting[0]

    def send(self) -> B:
        """Takes the batch that is ready; after this it has its sequence number."""
        batch = self._waiting.popleft()
        if batch.sequence is None:
            batch.sequence = self._next
            self._next = (self._next + batch.count) % _NUMBERS
        else:
            self._repeated += 1
        self._under_way.append(batch)
        return batch

    # ---------------------------------------------------------------- answers, in the order of sending
    def stored(self) -> B:
        """Removes the first batch in flight, which is stored, and returns it."""
        self._known = True
        self.attempts = 0
        batch = self._pop()
        self._settle()
        return batch

    def not_now(self, retry_at: float) -> None:
        """Sends the first batch in flight again with the same number, because a broker may store it later."""
        # Later batches of the same round do not count as a further attempt.
        self.attempts += not self._again
        self._again.append(self._pop())
        self.retry_at = max(self.retry_at, retry_at)
        self._settle()

    def out_of_sequence(self) -> bool:
        """Sends the first batch in flight again, because the broker lacks a batch before it. Returns True if that was
        expected: an earlier batch will be sent again, or was refused. If False, the broker's numbers differ from this
        queue's, and a new producer id is needed.
        """
        expected = bool(self._again) or self._freed is not None
        self._again.append(self._pop())
        self._settle()
        return expected

    def refused(self, instead: Iterable[B] = ()) -> bool:
        """Removes the first batch in flight, which will never be stored; batches without numbers may replace it.
        Returns True if it may be in Kafka nevertheless, because it was sent before. The next batch with its numbers
        would look like a duplicate, so a new producer id is needed.
        """
        sent_before = self._repeated > 0
        batch = self._pop()
        if self._freed is None:
            self._freed = batch.sequence
            self._before_freed = len(self._again)
        self._again += instead
        self._settle()
        return sent_before

    def lost(self) -> None:
        """Sends all batches in flight again with the same numbers, because their outcome is unknown."""
        self._again += self._under_way
        self._under_way.clear()
        self._repeated = 0
        self._settle()

    # ---------------------------------------------------------------- all partitions
    def renumber(self) -> None:
        """Restarts sequence numbers at 0 for a new producer id. Call it only while nothing is in flight."""
        assert not self._under_way
        for batch in self._waiting:
            batch.sequence = None
        self._next = 0
        self._known = False

    def take_out(self, which: Callable[[B], bool] = lambda batch: True) -> tuple[list[B], bool]:
        """Removes waiting batches, up to the first one for which `which` is false. Returns the batches; and True if one
        of them may be in Kafka nevertheless, so that a new producer id is needed.
        """
        taken: list[B] = []
        while self._waiting and which(self._waiting[0]):
            taken.append(self._waiting.popleft())
        return taken, any(batch.sequence is not None for batch in taken)

    def _pop(self) -> B:
        self._repeated = max(0, self._repeated - 1)
        return self._under_way.popleft()

    def _settle(self) -> None:
        """Puts the batches to send again first, once every batch has an answer."""
        if self._under_way:
            return
        self._waiting.extendleft(reversed(self._again))
        self._again = []
        if self._freed is not None:
            for batch in islice(self._waiting, self._before_freed, None):
                batch.sequence = None
            self._next = self._freed
            self._freed = None


#: The error of a broker that may have stored the batch before it failed; unknown errors count as this one.
_BROKER_FAILED: Final = error_of(-1).name
_TIMED_OUT: Final = error_of(KafkaError.REQUEST_TIMED_OUT).saying("Local: Message timed out")


class Owner(Protocol):
    """Receives the results of record batches. Thread: the producer's own."""

    def stored(self, piece: PartitionBatch, base_offset: int, append_time: int) -> None:
        """Called when all records of a record batch are in Kafka."""

    def replaced(self, piece: PartitionBatch, pieces: Sequence[PartitionBatch]) -> None:
        """Called when several record batches will be sent in place of one."""

    def lost(
        self, piece: PartitionBatch, positions: Iterable[int], kind: ErrorKind, *, unknown: bool, fatal: bool
    ) -> None:
        """Called when the records at these positions of a record batch will never be stored.

        Args:
            fatal: True if no more records can be sent.
        """


class Retry(Enum):
    """The ways in which a record batch that a broker has not stored is sent again."""

    LATER = auto()
    WITH_NEW_ID = auto()


class RecordAccumulator:
    """Queues of record batches, one for each topic partition.

    Args:
        producer_id: replaced if a batch may be stored although it counts as lost, or the reverse.

    Attributes:
        busy: Queues that are not empty.
    """

    def __init__(self, settings: ColumnSettings, owner: Owner, encode: Encode, producer_id: ProducerId) -> None:
        self.busy: dict[tuple[str, int], PartitionQueue[PartitionBatch]] = {}
        self._settings = settings
        self._owner = owner
        self._encode = encode
        self._producer_id = producer_id
        self._queues: dict[tuple[str, int], PartitionQueue[PartitionBatch]] = {}
        #: Topics whose records get the broker's timestamp.
        self._stamped: set[str] = set()

    @property
    def under_way(self) -> bool:
        """True if any batch is in flight."""
        return any(queue.under_way for queue in self._queues.values())

    def retry_times(self) -> list[float]:
        """Returns the times when queues that wait after an error may continue (monotonic seconds)."""
        return [queue.retry_at for queue in self.busy.values() if queue.retry_at]

    def add(self, pieces: Iterable[PartitionBatch]) -> None:
        """Appends record batches to their queues."""
        for piece in pieces:
            queue = self._queues.get(piece.place)
            if queue is None:
                limit = min(REMEMBERED, self._settings.requests)
                queue = self._queues[piece.place] = PartitionQueue(limit)
            queue.add(piece)
            self.busy[piece.place] = queue

    def renumber(self) -> None:
        """Restarts sequence numbers at 0 for a new producer id. Call it only while nothing is in flight."""
        for queue in self._queues.values():
            queue.renumber()

    def discard(self) -> bool:
        """Drops everything without reporting it; True if some of it may be in flight to a broker."""
        outstanding = any(queue.unsettled for queue in self._queues.values())
        self.busy.clear()
        if outstanding:
            # A new epoch follows, whose numbers restart at 0.
            self._queues.clear()
        for queue in self._queues.values():
            queue.take_out()
        return outstanding

    def close(self) -> None:
        """Forgets everything. No more results are reported."""
        self.busy.clear()
        self._queues.clear()

    # ---------------------------------------------------------------- answers, in the order of sending
    def answered(self, piece: PartitionBatch, answer: PartitionAnswer, now: float) -> Retry | None:
        """Handles the answer for the first record batch in flight to its partition. Returns the kind of retry, if it
        shall be logged; None if the batch is settled, or waits for an earlier one.
        """
        queue = self._queues.get(piece.place)
        if queue is None:
            return None
        code = answer.error_code
        retry: Retry | None = None
        if code in (0, KafkaError.DUPLICATE_SEQUENCE_NUMBER):
            queue.stored()
            self._owner.stored(piece, answer.base_offset, self._append_time(piece, answer))
        elif code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not queue.out_of_sequence():
                retry = self._renew(code, now)
        elif code in ID_GONE:
            queue.not_now(0.0)
            retry = self._renew(code, now)
        elif error_of(code).retriable:
            self._put_off(queue, piece, code, now)
            retry = Retry.LATER
        else:
            self._refused(queue, piece, answer)
        if not queue:
            self.busy.pop(piece.place, None)
        return retry

    def _append_time(self, piece: PartitionBatch, answer: PartitionAnswer) -> int:
        """The broker's time of a batch, or -1 if its records keep their own."""
        if answer.log_append_time >= 0 and piece.sent == 1:
            self._stamped.add(piece.topic)
        # For a duplicate batch a broker returns the latest of the records' own times, too.
        return answer.log_append_time if piece.topic in self._stamped else -1

    def unanswered(self, pieces: Iterable[PartitionBatch], why: str) -> None:
        """Handles a lost connection: the outcome of its batches in flight is unknown."""
        # All batches in flight of a partition use one connection.
        for piece in pieces:
            piece.error = error_of(KafkaError.NETWORK_EXCEPTION).saying(why)
            piece.unsure = True
            queue = self._queues.get(piece.place)
            if queue is not None:
                queue.lost()

    def _put_off(self, queue: PartitionQueue[PartitionBatch], piece: PartitionBatch, code: int, now: float) -> None:
        queue.not_now(now + backoff(self._settings.retry_backoff, self._settings.retry_backoff_max, queue.attempts))
        piece.error = error_of(code)
        piece.unsure = piece.unsure or code not in NOT_STORED

    def _renew(self, code: int, now: float) -> Retry | None:
        if not self._producer_id.give_up(error_of(code)):
            return None
        # The pause protects brokers that do not give a new id either.
        self._producer_id.pause(now)
        return Retry.WITH_NEW_ID

    def _refused(self, queue: PartitionQueue[PartitionBatch], piece: PartitionBatch, answer: PartitionAnswer) -> None:
        named = sorted({position for position, _ in answer.record_errors if 0 <= position < piece.count})
        kind = error_of(answer.error_code)
        instead: list[PartitionBatch] = []
        lost: Sequence[int] = range(piece.count)
        if named:
            lost = named
            # A broker names only the first few bad records. Halving the rest isolates many bad records quickly.
            instead = piece.without(named, self._encode)
            said = next((text for position, text in answer.record_errors if position == named[0] and text), None)
            kind = kind.saying(said or answer.error_message)
        elif answer.error_code in BLAMES_SOME and piece.count > 1:
            lost = ()
            instead = piece.halves(self._encode)
        else:
            kind = kind.saying(answer.error_message)
        may_be_stored = (queue.refused(instead) and piece.unsure) or kind.name == _BROKER_FAILED
        # A transaction can leave out only records that are certainly not stored.
        if may_be_stored or (self._producer_id.with_transactions and answer.error_code not in BLAMES_SOME):
            self._producer_id.give_up(kind)
        if lost:
            self._owner.lost(piece, lost, kind, unknown=False, fatal=False)
        self._owner.replaced(piece, instead)

    # ---------------------------------------------------------------- expiry
    def expire(self, now: float) -> None:
        """Reports batches as lost that have exceeded their time or their number of attempts."""
        before = now - self._settings.delivery_timeout
        retries = self._settings.retries
        for queue in list(self.busy.values()):
            if before > 0:
                self._take_out(queue, _TIMED_OUT, lambda piece: piece.created < before)
            # A batch at its limit of attempts is lost with its last error.
            head = queue.head
            if head is not None and head.sent > retries:
                self._take_out(queue, head.error or _TIMED_OUT, lambda piece: piece.sent > retries)

    def give_up_all(self, kind: ErrorKind) -> None:
        for place in list(self.busy):
            self.give_up(place, kind, fatal=True)

    def give_up(self, place: tuple[str, int], kind: ErrorKind, *, unknown: bool = False, fatal: bool = False) -> None:
        """Reports all waiting batches of a partition as lost.

        Args:
            fatal: True if no more records can be sent there.
        """
        self._take_out(self.busy[place], kind, unknown=unknown, fatal=fatal)

    def _take_out(
        self,
        queue: PartitionQueue[PartitionBatch],
        kind: ErrorKind,
        which: Callable[[PartitionBatch], bool] = lambda piece: True,
        *,
        unknown: bool = False,
        fatal: bool = False,
    ) -> None:
        """Reports waiting batches of a partition as lost, up to the first one for which `which` is false."""
        taken, may_be_stored = queue.take_out(which)
        if may_be_stored:
            self._producer_id.give_up(kind)
        for piece in taken:
            self._owner.lost(piece, range(piece.count), kind, unknown=unknown, fatal=fatal)
            self._owner.replaced(piece, ())
        if taken and not queue:
            self.busy.pop(taken[0].place, None)


#: The id and epoch of a producer that is not idempotent.
_NOBODY: Final = (-1, -1)


class ProducerId:
    """The producer id and epoch of the record batches to send.

    Args:
        idempotent: True if the producer has an id.
        pause_s: The pause before the next request after brokers gave no id, in seconds.

    Attributes:
        current: Id and epoch; None while there are none.
        given_up: True if a new id is needed once nothing is in flight.
    """

    def __init__(
        self, *, idempotent: bool, pause_s: float, transaction: Transaction | None, state: threading.Condition
    ) -> None:
        self.current: tuple[int, int] | None = None if idempotent else _NOBODY
        self.given_up = False
        self._idempotent = idempotent
        self._pause_s = pause_s
        self._transaction = transaction
        self._state = state
        self._asking = False
        self._ask_at = 0.0

    @property
    def with_transactions(self) -> bool:
        return self._transaction is not None

    @property
    def question_at(self) -> float | None:
        """The time when a broker may be asked for an id (monotonic seconds), or None if that is not needed."""
        if self.current is not None or self._asking or self._transaction is not None:
            return None
        return self._ask_at

    def asked(self) -> None:
        self._asking = True

    def heard(self) -> None:
        """Notes that the request was answered, or will never be."""
        self._asking = False

    def take(self, producer_id: int, epoch: int) -> None:
        self.current = (producer_id, epoch)

    def pause(self, now: float) -> None:
        """Pauses requests, because a broker gave no id, or no longer knows the producer's."""
        self._ask_at = now + self._pause_s

    def follow(self) -> bool:
        """Takes the current id of the transaction. Returns True if it is a new id, so that sequence numbers restart."""
        if self._transaction is None:
            return False
        with self._state:
            identity = self._transaction.identity
        if identity == self.current:
            return False
        self.current = identity
        return True

    def give_up(self, kind: ErrorKind) -> bool:
        """Abandons the sequence numbers: a batch may be in Kafka although it counts as lost, or the reverse. Returns
        True if the producer continues with another id. A transaction fails then; without any id nothing happens.
        """
        if self._transaction is not None:
            with self._state:
                self._transaction.fail(kind, new_epoch=True)
                self._state.notify_all()
            return False
        self.given_up = self._idempotent
        return self._idempotent

    def drop(self) -> None:
        """Drops the abandoned id when nothing is in flight, so that a new one is requested."""
        self.given_up = False
        self.current = None
