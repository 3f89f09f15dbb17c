"""What a producer is to send, by topic partition, and what becomes of it.

Main types: `RecordAccumulator`; `Owner` is told what has become of record batches, `Retry` says how one is sent again.

When a broker refuses a batch for the sake of some of its records, those that it names are taken out, or the batch is
halved until the bad ones are alone. Where a batch may be stored though it counts as lost, or the other way round, the
producer's id is given up with its sequence numbers.

Thread: the producer's own. No I/O.

Source: RecordAccumulator (split batches, expiry) and Sender (completed batches) of Kafka's producer; KIP-467.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from confluent_kafka import KafkaError

from penstock.kafka.chunks import Encode, Piece
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.connections import backoff
from penstock.kafka.partition_queue import REMEMBERED, PartitionQueue
from penstock.kafka.producer_id import ProducerId
from penstock.kafka.protocol_errors import BLAMES_SOME, ID_GONE, NOT_STORED, ErrorKind, error_of
from penstock.kafka.wire import PartitionAnswer

#: A broker that failed may have done so before or after it stored the batch. Errors it has no name for count as this.
_BROKER_FAILED: Final = error_of(-1).name
_TIMED_OUT: Final = error_of(KafkaError.REQUEST_TIMED_OUT).saying("Local: Message timed out")


class Owner(Protocol):
    """Is told what has become of record batches. Thread: the producer's own."""

    def stored(self, piece: Piece, base_offset: int, append_time: int) -> None:
        """All records of a piece are in Kafka."""
        ...

    def replaced(self, piece: Piece, pieces: Sequence[Piece]) -> None:
        """A piece will be sent as these instead."""
        ...

    def lost(self, piece: Piece, positions: Iterable[int], kind: ErrorKind, *, unknown: bool, fatal: bool) -> None:
        """The records at these positions of a piece will never be stored.

        Args:
            piece: where they are.
            positions: of the records in it.
            kind: why.
            unknown: their topic does not exist.
            fatal: nothing can be sent any more.
        """
        ...


class Retry(Enum):
    """How a piece is sent again that a broker has not stored."""

    LATER = auto()
    WITH_NEW_ID = auto()


class RecordAccumulator:
    """Queues of pieces, one for each topic partition.

    Args:
        settings: of the producer.
        owner: is told what has become of each piece.
        encode: makes record batches anew when one is refused.
        producer_id: is given up where a piece may be stored though it counts as lost, or the other way round.

    Attributes:
        busy: Queues that are not empty.
    """

    def __init__(self, settings: ColumnSettings, owner: Owner, encode: Encode, producer_id: ProducerId) -> None:
        self.busy: dict[tuple[str, int], PartitionQueue[Piece]] = {}
        self._settings = settings
        self._owner = owner
        self._encode = encode
        self._producer_id = producer_id
        self._queues: dict[tuple[str, int], PartitionQueue[Piece]] = {}
        #: Topics whose records get the broker's time.
        self._stamped: set[str] = set()

    @property
    def under_way(self) -> bool:
        """Whether anything has no answer yet."""
        return any(queue.under_way for queue in self._queues.values())

    def retry_times(self) -> list[float]:
        """When queues that wait after an error may go on (monotonic seconds)."""
        return [queue.retry_at for queue in self.busy.values() if queue.retry_at]

    def add(self, pieces: Iterable[Piece]) -> None:
        """Pieces to be sent behind all that is here."""
        for piece in pieces:
            queue = self._queues.get(piece.place)
            if queue is None:
                limit = min(REMEMBERED, self._settings.requests)
                queue = self._queues[piece.place] = PartitionQueue(limit)
            queue.add(piece)
            self.busy[piece.place] = queue

    def renumber(self) -> None:
        """There is a new producer id: numbers begin at 0. Only while nothing is under way."""
        for queue in self._queues.values():
            queue.renumber()

    def discard(self) -> bool:
        """Drops everything without telling anybody; True if some of it may be on its way to a broker."""
        outstanding = any(queue.unsettled for queue in self._queues.values())
        self.busy.clear()
        if outstanding:
            # A new epoch follows, and with it numbers begin again.
            self._queues.clear()
        for queue in self._queues.values():
            queue.take_out()
        return outstanding

    def close(self) -> None:
        """Forgets everything. Nothing is told any more."""
        self.busy.clear()
        self._queues.clear()

    # ---------------------------------------------------------------- answers, in the order of sending
    def answered(self, piece: Piece, answer: PartitionAnswer, now: float) -> Retry | None:
        """Takes what a broker says to the first piece under way to its partition.

        Args:
            piece: What was sent.
            answer: What the broker says.
            now: Monotonic seconds.

        Returns:
            How it is sent again, where that is worth telling; None where it is settled, or waits for one before it.
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

    def _append_time(self, piece: Piece, answer: PartitionAnswer) -> int:
        """The broker's time of a batch, or -1 where its records keep their own."""
        if answer.log_append_time >= 0 and piece.sent == 1:
            self._stamped.add(piece.topic)
        # Of a batch that it has already a broker tells the latest of the records' own times, too.
        return answer.log_append_time if piece.topic in self._stamped else -1

    def unanswered(self, pieces: Iterable[Piece], why: str) -> None:
        """A connection was lost: nobody knows what became of what was under way on it."""
        # All that is under way of a partition is on one connection.
        for piece in pieces:
            piece.error = error_of(KafkaError.NETWORK_EXCEPTION).saying(why)
            piece.unsure = True
            queue = self._queues.get(piece.place)
            if queue is not None:
                queue.lost()

    def _put_off(self, queue: PartitionQueue[Piece], piece: Piece, code: int, now: float) -> None:
        queue.not_now(now + backoff(self._settings.retry_backoff, self._settings.retry_backoff_max, queue.attempts))
        piece.error = error_of(code)
        piece.unsure = piece.unsure or code not in NOT_STORED

    def _renew(self, code: int, now: float) -> Retry | None:
        if not self._producer_id.give_up(error_of(code)):
            return None
        # Brokers that do not take a new id either are not asked without a pause.
        self._producer_id.pause(now)
        return Retry.WITH_NEW_ID

    def _refused(self, queue: PartitionQueue[Piece], piece: Piece, answer: PartitionAnswer) -> None:
        """The broker will not store this batch as it is."""
        named = sorted({position for position, _ in answer.record_errors if 0 <= position < piece.count})
        kind = error_of(answer.error_code)
        instead: list[Piece] = []
        lost: Sequence[int] = range(piece.count)
        if named:
            lost = named
            # A broker names the first few alone: the rest goes in halves, so that many bad ones are soon found.
            instead = piece.without(named, self._encode)
            said = next((text for position, text in answer.record_errors if position == named[0] and text), None)
            kind = kind.saying(said or answer.error_message)
        elif answer.error_code in BLAMES_SOME and piece.count > 1:
            lost = ()
            instead = piece.halves(self._encode)
        else:
            kind = kind.saying(answer.error_message)
        may_be_stored = (queue.refused(instead) and piece.unsure) or kind.name == _BROKER_FAILED
        # With the rest of a transaction only records that are surely not stored can be left out.
        if may_be_stored or (self._producer_id.with_transactions and answer.error_code not in BLAMES_SOME):
            self._producer_id.give_up(kind)
        if lost:
            self._owner.lost(piece, lost, kind, unknown=False, fatal=False)
        self._owner.replaced(piece, instead)

    # ---------------------------------------------------------------- giving up
    def expire(self, now: float) -> None:
        """Gives up what took too long, or was sent too often."""
        before = now - self._settings.delivery_timeout
        retries = self._settings.retries
        for queue in list(self.busy.values()):
            if before > 0:
                self._take_out(queue, _TIMED_OUT, lambda piece: piece.created < before)
            # What was sent as often as it may be is lost with what was said to it last.
            head = queue.head
            if head is not None and head.sent > retries:
                self._take_out(queue, head.error or _TIMED_OUT, lambda piece: piece.sent > retries)

    def give_up_all(self, kind: ErrorKind) -> None:
        """Gives up everything that waits: nothing can be sent any more."""
        for place in list(self.busy):
            self.give_up(place, kind, fatal=True)

    def give_up(self, place: tuple[str, int], kind: ErrorKind, *, unknown: bool = False, fatal: bool = False) -> None:
        """Gives up everything that waits for a partition.

        Args:
            place: its topic and number.
            kind: why.
            unknown: the topic does not exist.
            fatal: nothing can be sent there any more.
        """
        self._take_out(self.busy[place], kind, unknown=unknown, fatal=fatal)

    def _take_out(
        self,
        queue: PartitionQueue[Piece],
        kind: ErrorKind,
        which: Callable[[Piece], bool] = lambda piece: True,
        *,
        unknown: bool = False,
        fatal: bool = False,
    ) -> None:
        """Gives up what waits for a partition, up to the first piece for which `which` does not hold."""
        taken, may_be_stored = queue.take_out(which)
        if may_be_stored:
            self._producer_id.give_up(kind)
        for piece in taken:
            self._owner.lost(piece, range(piece.count), kind, unknown=unknown, fatal=fatal)
            self._owner.replaced(piece, ())
        if taken and not queue:
            self.busy.pop(taken[0].place, None)
