"""Sends converted records to Kafka and tells, chunk by chunk, what has arrived.

Main types: `RecordProducer` (one for each source task), `Receipts` (who is told) and `FailedDelivery`.

The rows of a batch are handed to the client in chunks of up to 4,000: the client's ``produce`` is mapped over columns,
so that no Python code runs for a row. On the way back the client reports failures alone: a callback for each row would
cost more than all else that is done here. Its count of what it still holds says when the rest is stored: when it holds
nothing. So a batch waits until the one before it is stored, which takes a round trip, while Spark is at work on the
next. Only with `each_row` is every row reported, with its place. What is under way is bounded in bytes, with an
allowance for what the client needs for each record.

A broker refuses a whole request for the sake of one record in it (too large for its topic, no key on a compacted
topic). Rows refused like that are sent again one at a time, while nothing else is under way, so that only the bad one
is lost.

Where no failure is tolerated (`stops_at_failure`), a row that the client refuses by itself is the last one that is
handed over, and once a row of a chunk is known to have failed no further chunk is. What is behind is never reported.

Threads: `send`, `wait_delivered` and `close` belong to the task's delivery thread (or to the task thread after that one
ended). The producer owns one thread that waits for the client's delivery reports; `Receipts` are called on it, so that
delivery goes on while a `send` waits for room. `abort` may come from any thread.

Source: KafkaProducer as AbstractWorkerSourceTask of Kafka Connect uses it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import Any, Final, cast

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka import KafkaException as ClientException

from penstock.api import RecordMetadata
from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.client_log import CLIENT_LOG
from penstock.kafka.deliveries import Deliveries, FailedDelivery, Receipts, RecordTooLargeException, too_large
from penstock.kafka.produce_columns import ProduceColumns, columns_of, mean_bytes, spread
from penstock.kafka.wire import error_of
from penstock.pipeline.batches import ProduceBatch
from penstock.telemetry import log_context
from penstock.telemetry.seldom_log import SeldomLog

logger = logging.getLogger(__name__)

#: Rows handed over without letting another thread run.
CHUNK_ROWS: Final = 4_000
#: Rows are handed over in smaller chunks when they are large.
CHUNK_BYTES: Final = 1 << 20
#: What the client needs for a record beside its key and value.
RECORD_OVERHEAD_BYTES: Final = 700
_DEFAULT_BUFFER_KBYTES: Final = 32 * 1024
#: Longer polls of the client do not return when something has happened, but when the time is over.
_POLL_S: Final = 0.15
_INDEX_BITS: Final = 12
_NO_SECOND_CALLBACK: Final = repeat(None)
#: How long the producer's thread waits for the end of a hand-over when the client has nothing to report.
_HAND_OVER_S: Final = 0.005

#: What a broker may say to all records of a request because of one of them.
_SHARED_BLAME: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
_UNKNOWN_TOPIC: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
#: Errors after which this client never sends again.
_FATAL: Final = frozenset({KafkaError._FATAL, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FENCED})
_JAVA_NAMES: Final = {
    KafkaError._MSG_TIMED_OUT: "TimeoutException",
    KafkaError._UNKNOWN_TOPIC: "UnknownTopicOrPartitionException",
    KafkaError._UNKNOWN_PARTITION: "UnknownTopicOrPartitionException",
} | {
    code: error_of(code).java_name
    for code in (
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.POLICY_VIOLATION,
    )
}


class RecordProducer(Deliveries["_Chunk"]):
    """Sends the batches of one task.

    Args:
        settings: the client's own (librdkafka) settings; what they leave open is idempotent, with Java's partitioner.
        name: name of the task, for the thread and for messages.
        connector, task: what log lines are marked with.
        each_row: whether receipts are to say where each row went.
        stops_at_failure: whether nothing more is sent once a row has failed. Then `send` returns without having sent
            what is left, and no receipt names those rows. Invariants 1 and 3.

    Raises:
        KafkaException: a setting is wrong.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        name: str,
        connector: str = "",
        task: int | None = None,
        each_row: bool = False,
        stops_at_failure: bool = False,
    ) -> None:
        merged: dict[str, Any] = {"enable.idempotence": True, "partitioner": "murmur2_random", **settings}
        merged["delivery.report.only.error"] = not each_row
        merged.setdefault("error_cb", self._on_client_error)
        super().__init__(name)
        self._each_row = each_row
        # Without an answer of the broker the client counts offsets up from a negative number.
        self._offsets_known = str(merged.get("acks", merged.get("request.required.acks", "all"))) != "0"
        self._stops_at_failure = stops_at_failure
        self._seldom = SeldomLog(logger)
        self._limit = int(merged.get("queue.buffering.max.kbytes", _DEFAULT_BUFFER_KBYTES)) * 1024
        try:
            client = Producer(merged, logger=CLIENT_LOG)
        except (ClientException, ValueError, TypeError) as error:
            raise KafkaException(f"The producer of {name} cannot be made: {error}") from error
        self._client: Producer | None = client
        self._held = client.__len__
        self._produce = client.produce
        self._rejected: deque[tuple[_Chunk, int, Exception]] = deque()
        # Rows to be sent again alone, and whether one of them is under way. Only the producer's thread changes them.
        self._suspects: deque[tuple[_Chunk, int]] = deque()
        self._suspect_answer: Callable[..., None] | None = None
        self._served = 0
        self._row_ack = _row_ack_type(self._open)
        self._thread = threading.Thread(
            target=self._serve, args=(connector, task), name=f"producer-{name}", daemon=True
        )
        self._thread.start()

    def send(
        self,
        batch: ProduceBatch,
        receipts: Receipts,
        *,
        rows: pa.Array | None = None,
    ) -> None:
        """Hand rows over to the client, in order. Waits while too much is under way. Invariant 3.

        Sends nothing, or no more, once a row has failed and the producer stops at failures.

        Args:
            batch: converted records.
            receipts: is told of each chunk.
            rows: positions of the rows to send, ascending; None for all.

        Raises:
            ProducerClosedException: `abort` was called.
        """
        table = batch.table if rows is None else batch.table.take(rows)
        positions: Sequence[int] = range(table.num_rows) if rows is None else rows.to_pylist()
        size = mean_bytes(batch)
        if not self._each_row:
            self._wait_until_stored()
        step = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, size)))
        for first in range(0, table.num_rows, step):
            part = table.slice(first, step)
            count = part.num_rows
            chunk = _Chunk(
                replace(batch, table=part),
                positions[first : first + count],
                receipts,
                self._chunk_done,
                offsets_known=self._offsets_known,
            )
            number = self._admit(chunk, size + RECORD_OVERHEAD_BYTES)
            if number is None:
                return
            if self._each_row:
                chunk.metadata = {}
                code = number << _INDEX_BITS
                callbacks: Sequence[Callable[..., None]] = list(map(self._row_ack, range(code, code + count)))
            else:
                callbacks = (chunk.note_failure,)
            self._hand_over(chunk, columns_of(chunk.batch), callbacks)
            with self._state:
                chunk.handed_over = True
                self._state.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Wait for what is under way, give up the rest, release the client.

        Returns:
            Whether everything was delivered and the producer's thread has ended.
        """
        delivered = self.wait_delivered(timeout_s)
        self.abort()
        with self._state:
            self._ending = True
            self._state.notify_all()
        self._thread.join(max(1.0, 2 * _POLL_S))
        return delivered and not self._thread.is_alive()

    # ---------------------------------------------------------------- sending
    def _wait_until_stored(self) -> None:
        with self._state:
            self._state.wait_for(lambda: self._aborted or not self._open)

    def _admit(self, chunk: _Chunk, row_bytes: int) -> int | None:
        """Wait for room, then count the chunk as under way; None when nothing more is to be sent."""
        chunk.nbytes = len(chunk.rows) * row_bytes
        with self._state:
            self._state.wait_for(lambda: self._aborted or self._stopped or self._has_room(chunk.nbytes, row_bytes))
            self._check_open()
            if self._stopped:
                return None
            self._count_in(chunk)
            self._state.notify_all()
        return chunk.number

    def _has_room(self, nbytes: int, row_bytes: int) -> bool:
        if not self._open:
            return True
        if self._suspects:
            return False
        # Where rows are not reported all that is under way is of one batch, and the client counts it.
        under_way = self._bytes if self._each_row else self._held() * row_bytes
        return not under_way or under_way + nbytes <= self._limit

    def _hand_over(self, chunk: _Chunk, columns: ProduceColumns, callbacks: Sequence[Callable[..., None]]) -> None:
        at, end = 0, len(columns.values)
        while at < end:
            values = iter(columns.values[at:])
            try:
                # map and deque run in C: with no Python code in between this is as fast as the client takes records.
                deque(
                    map(
                        self._produce,
                        spread(columns.topics, at),
                        values,
                        spread(columns.keys, at),
                        spread(columns.partitions, at),
                        spread(callbacks, at),
                        _NO_SECOND_CALLBACK,
                        spread(columns.timestamps, at),
                        spread(columns.headers, at),
                    ),
                    maxlen=0,
                )
                return
            except BufferError:
                at = end - length_hint(values) - 1
                if (size := columns.bytes_at(at)) <= self._limit:
                    self._wait_for_reports()
                    continue
                # No amount of waiting makes room for this one.
                self._refuse(chunk, at, too_large(size, "buffer.memory", self._limit))
                at += 1
            except (ClientException, ValueError, TypeError) as error:
                # This row only.
                at = end - length_hint(values)
                self._refuse(chunk, at - 1, error)
            if self._stopped:
                return

    def _refuse(self, chunk: _Chunk, index: int, error: Exception) -> None:
        """The client did not take a row. The producer's thread counts it off, because only that thread counts."""
        self._stopped = self._stops_at_failure
        self._rejected.append((chunk, index, error))

    def _wait_for_reports(self) -> None:
        """The client's queue is full by its own count: wait until it has reported something."""
        with self._state:
            served = self._served
            self._state.wait_for(lambda: self._aborted or self._served != served)
            self._check_open()

    # ---------------------------------------------------------------- the producer's own thread
    def _serve(self, connector: str, task: int | None) -> None:
        with log_context(connector or self._name, task, "producer"):
            try:
                while self._serve_once():
                    pass
                self._release()
            except Exception:
                logger.exception("The producer of %s has failed and sends nothing any more", self._name)
                self.abort()

    def _serve_once(self) -> bool:
        with self._state:
            # Idle, the client is still served once a second: it logs and reports errors through poll.
            self._state.wait_for(lambda: self._open or self._ending, 1.0)
            if self._ending:
                return False
            if self._open and not self._each_row and not self._held():
                # Nothing to report: what is open is stored, or on its way into the client.
                self._state.wait_for(self._any_handed_over, _HAND_OVER_S)
            busy = bool(self._open)
        assert self._client is not None
        held = self._held()
        events = self._client.poll(_POLL_S if busy and held else 0)
        while self._rejected:
            chunk, index, error = self._rejected.popleft()
            if self._stops_at_failure:
                chunk.cut_behind(index)
            chunk.reject(index, error)
            events += 1
        if not self._each_row:
            self._settle_stored()
        self._send_next_suspect()
        if events or held != self._held():
            with self._state:
                self._served += 1
                self._state.notify_all()
        return True

    def _any_handed_over(self) -> bool:
        return self._ending or any(chunk.handed_over for chunk in self._open.values())

    def _settle_stored(self) -> None:
        """What was handed over before the client held nothing is stored, but for the failures it reported."""
        with self._state:
            handed_over = [chunk for chunk in self._open.values() if chunk.handed_over]
        # Only after it was noted what had been handed over: rows may go in at any moment.
        if self._held() or self._rejected:
            return
        if self._suspect_answer is not None:
            self._suspect_answer(None, None)
        for chunk in handed_over:
            chunk.handed_over = False
            self._chunk_done(chunk)

    def _release(self) -> None:
        client, self._client = self._client, None
        del self._produce, self._held
        if client is None:
            return
        if len(client):
            client.purge()
            client.poll(0)
        # The last reference ends the client's threads without waiting for what is still queued.
        del client

    def _send_next_suspect(self) -> None:
        """Send one of the rows that were refused together, alone: when nothing else is in the client."""
        if not self._suspects or self._suspect_answer is not None or self._held():
            return
        chunk, index = self._suspects[0]

        def answered(error: KafkaError | None, message: Message) -> None:
            self._suspect_answer = None
            self._suspects.popleft()
            chunk.count_row(index, error, message)

        self._suspect_answer = answered
        self._hand_over_alone(chunk, index, answered)

    def _hand_over_alone(self, chunk: _Chunk, index: int, answered: Callable[..., None]) -> None:
        row = columns_of(chunk.row(index))
        try:
            send = partial(self._produce, row.topics[0], row.values[0], row.keys[0], row.partitions[0], answered)
            send(timestamp=row.timestamps[0], headers=cast("Any", row.headers[0]))
        except (ClientException, BufferError) as error:
            self._suspect_answer = None
            self._suspects.popleft()
            chunk.reject(index, error)

    def _chunk_done(self, chunk: _Chunk) -> None:
        suspects = chunk.take_suspects()
        if suspects and not self._aborted:
            self._suspects.extend((chunk, index) for index in suspects)
            return
        with self._state:
            aborted = self._aborted
            self._stopped = self._stopped or (self._stops_at_failure and bool(chunk.errors))
            self._bytes -= chunk.nbytes
            self._state.notify_all()
        if not aborted:
            self._report(chunk)
        with self._state:
            # Only after the report: who waits for the last delivery sees its consequences.
            del self._open[chunk.number]
            self._state.notify_all()

    def _report(self, chunk: _Chunk) -> None:
        try:
            chunk.receipts.delivered(chunk.rows[0], chunk.rows[-1] + 1, chunk.failures(), chunk.metadata)
        except Exception:
            logger.exception("The acknowledgement of records of %s could not be handled", self._name)

    @property
    def trouble(self) -> str | None:
        """What keeps records from being sent, as far as is known."""
        return self._seldom.last

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal():
            logger.error("The producer of %s: %s; it sends nothing any more", self._name, error.str())
        elif error.code() != KafkaError._ALL_BROKERS_DOWN or self._seldom.last is None:
            # That all are down is said after what is wrong with each, which tells more.
            text = "The producer of %s: %s; the client keeps trying"
            self._seldom.warning(error.code(), text, self._name, error.str())


class _Chunk:
    """Rows that were handed over together. Only the producer's thread counts, by delivery reports. Invariant 1.

    Attributes:
        left: How many rows are still to be reported, where each is.
        offsets_known: The broker says where it has put rows; not with `acks=0`.
        handed_over: The client has all rows, and holds some of them as far as is known.
    """

    __slots__ = (
        "alone",
        "batch",
        "done",
        "errors",
        "handed_over",
        "left",
        "metadata",
        "nbytes",
        "number",
        "offsets_known",
        "receipts",
        "rows",
    )

    def __init__(
        self,
        batch: ProduceBatch,
        rows: Sequence[int],
        receipts: Receipts,
        done: Callable[[_Chunk], None],
        *,
        offsets_known: bool,
    ) -> None:
        self.batch = batch
        self.offsets_known = offsets_known
        self.alone = False
        self.handed_over = False
        self.rows = rows
        self.receipts = receipts
        self.done = done
        self.nbytes = 0
        self.number = -1
        self.left = len(rows)
        self.metadata: dict[int, RecordMetadata] | None = None
        # Index in the chunk where known, else the client's copy of the message.
        self.errors: list[tuple[int | Message, Exception | KafkaError]] = []

    def note_failure(self, error: KafkaError, message: Message) -> None:
        """One row has failed; rows that are stored are not reported."""
        self.errors.append((message, error))

    def count_row(self, index: int, error: KafkaError | None, message: Message) -> None:
        """The row at this index of the chunk is reported."""
        if error is not None:
            self.errors.append((index, error))
        elif self.metadata is not None:
            offset = message.offset() if self.offsets_known else None
            self.metadata[self.rows[index]] = RecordMetadata(
                message.topic() or "",
                message.partition() or 0,
                -1 if offset is None or offset < 0 else offset,
                _timestamp_of(message),
            )
        self.left -= 1
        if not self.left:
            self.done(self)

    def reject(self, index: int, error: Exception) -> None:
        """The client did not take the row at this index."""
        self.errors.append((index, error))
        if self.metadata is not None or self.alone:
            self.left -= 1
            if not self.left:
                self.done(self)

    def cut_behind(self, index: int) -> None:
        """The rows behind this index are not sent: the chunk ends here. Before any row is settled. Invariant 1."""
        self.left -= len(self.rows) - index - 1
        self.rows = self.rows[: index + 1]
        self.batch = replace(self.batch, table=self.batch.table.slice(0, index + 1))

    def failures(self) -> list[FailedDelivery]:
        """The failed rows, in order."""
        if not self.errors:
            return []
        topics = self.batch.table.column("topic").to_pylist()
        found = self._by_index()
        columns = columns_of(self.batch)
        return [
            _failure(self.rows[index], topics[index], found[index], columns.bytes_at(index)) for index in sorted(found)
        ]

    def row(self, index: int) -> ProduceBatch:
        """One row as a batch."""
        return replace(self.batch, table=self.batch.table.slice(index, 1))

    def take_suspects(self) -> list[int]:
        """Rows that may have been refused for the sake of another; once. They count as not reported again."""
        if self.alone or not self.errors:
            return []
        self.alone = True
        found = self._by_index()
        said_by_client = {where for where, error in self.errors if not isinstance(error, KafkaError)}
        suspects = [
            index
            for index, error in sorted(found.items())
            if index not in said_by_client and isinstance(error, KafkaError) and error.code() in _SHARED_BLAME
        ]
        self.errors = [(index, error) for index, error in found.items() if index not in suspects]
        self.left = len(suspects)
        return suspects

    def _by_index(self) -> dict[int, Exception | KafkaError]:
        found = {where: error for where, error in self.errors if isinstance(where, int)}
        unnamed = [(where, error) for where, error in self.errors if not isinstance(where, int)]
        if unnamed:
            columns = [self.batch.table.column(name).to_pylist() for name in ("topic", "key", "value")]
            contents: list[tuple[object, ...]] = list(zip(*columns, strict=True))
            for message, error in unnamed:
                found[_index_of((message.topic(), message.key(), message.value()), contents, found)] = error
        return found


def _index_of(content: tuple[object, ...], contents: Sequence[tuple[object, ...]], taken: Mapping[int, object]) -> int:
    """The first row with this content that is not known to have failed; equal rows are interchangeable."""
    free = [index for index in range(len(contents)) if index not in taken]
    # Not to be found: the earliest row that is left, so that no offset at or behind the lost one is committed.
    return next((index for index in free if contents[index] == content), free[0])


def _row_ack_type(chunks: Mapping[int, _Chunk]) -> Callable[[int], Callable[..., None]]:
    """Callbacks that know their row: a number that can be called.

    A subclass of int without attributes is not tracked by the garbage collector; a hundred thousand partial objects or
    closures under way would make it run again and again.
    """
    mask = (1 << _INDEX_BITS) - 1

    class RowAck(int):
        __slots__ = ()

        def __call__(self, error: KafkaError | None, message: Message) -> None:
            chunks[self >> _INDEX_BITS].count_row(self & mask, error, message)

    return RowAck


def _timestamp_of(message: Message) -> int | None:
    kind, timestamp = message.timestamp()
    return timestamp if kind else None


def _failure(row: int, topic: str, error: Exception | KafkaError, size: int) -> FailedDelivery:
    if isinstance(error, RecordTooLargeException):
        return FailedDelivery(row, topic, error, error.java_name)
    local = isinstance(error, ClientException)
    if isinstance(error, ClientException) and error.args and isinstance(error.args[0], KafkaError):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return FailedDelivery(row, topic, KafkaException(str(error)), "java.lang.IllegalArgumentException")
    code = error.code()
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        where = "the producer's max.request.size" if local else "the broker's or topic's max.message.bytes"
        return FailedDelivery(row, topic, too_large(size, where, None), RecordTooLargeException.java_name)
    name = _JAVA_NAMES.get(code)
    text = error_of(code).about(topic).text if code == KafkaError.TOPIC_EXCEPTION else error.str()
    kind = KafkaRetriableException if error.retriable() else KafkaException
    return FailedDelivery(
        row,
        topic,
        kind(text),
        KafkaException.java_name if name is None else f"org.apache.kafka.common.errors.{name}",
        unknown_topic=code in _UNKNOWN_TOPIC,
        fatal=code in _FATAL or error.fatal(),
    )
