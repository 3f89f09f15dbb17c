"""Sends converted records to Kafka as whole columns: no Python code runs for a record, neither for sending nor for
results.

The worker has its own producer because client libraries need a call and an object for each record, which takes about
three times the processor time. A batch is sent in chunks, so that the first one is in flight while the next is encoded.

Threads: ``send``, ``wait_delivered`` and ``close`` belong to the task's delivery thread (or to the task thread after
the delivery thread has ended). The producer owns one thread, which communicates with the brokers and calls
``Receipts``. Any thread may call ``abort``.

Source: KafkaProducer as AbstractWorkerSourceTask of Kafka Connect uses it; KIP-98 (record batches, idempotence).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.producer.in_flight import (
    FailedDelivery,
    PartitionBatch,
    ProducedRows,
    ProducerClosedException,
    Receipts,
    RecordTooLargeException,
    too_large,
)
from penstock.kafka.producer.partitioner import Partitioner
from penstock.kafka.producer.record_batches import EncodedBatch, encode, joined
from penstock.kafka.producer.sender import Sender
from penstock.kafka.protocol import ErrorKind, error_of
from penstock.kafka.settings.producer import ColumnSettings
from penstock.pipeline.batch.batches import ProduceBatch
from penstock.telemetry import log_context, waiting_for

logger = logging.getLogger(__name__)

#: The number of rows that are encoded together.
CHUNK_ROWS: Final = 10_000
#: The largest size of a chunk in flight, for large rows.
CHUNK_BYTES: Final = 4 << 20
#: The memory of a record in flight in addition to its key and value. Both count twice: as a row, which may have to be
#: encoded again, and encoded.
RECORD_OVERHEAD_BYTES: Final = 64
#: The largest useful number of bytes in flight, whatever ``buffer.memory`` allows.
MOST_UNDER_WAY_BYTES: Final = 16 << 20
_ERRORS: Final = "org.apache.kafka.common.errors."
_TOO_LARGE: Final = frozenset({"RecordTooLargeException", "RecordBatchTooLargeException"})
#: The longest name of a topic by Kafka's rules; a much longer one does not even fit a request.
_LONGEST_NAME: Final = 249
_END_S: Final = 1.0

Failure = Callable[[int], FailedDelivery]


class ColumnProducer:
    """Sends the batches of one task.

    Args:
        each_row: True if receipts report the position of each row.
        batch_ends: True if they report only the positions of the first and the last row of each record batch.
        stops_at_failure: True if nothing more is sent after a row has failed. Then `send` returns without having sent
            the rest, and no receipt names those rows. Invariants 1 and 3.
    """

    def __init__(
        self,
        settings: ColumnSettings,
        *,
        name: str,
        connector: str = "",
        task: int | None = None,
        each_row: bool = False,
        batch_ends: bool = False,
        stops_at_failure: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        #: Protects the rows in flight; ``send`` waits for it.
        self._state = threading.Condition()
        self._open: dict[int, ProducedRows] = {}
        self._bytes = 0
        self._next_number = 0
        self._stopped = False
        self._aborted = False
        self._ending = False
        self._settings = settings
        self._each_row = each_row
        self._batch_ends = batch_ends
        self._stops_at_failure = stops_at_failure
        self._clock = clock
        self._partitioner = Partitioner(batch_size=settings.stick, kind=settings.partitioner)
        self._incoming: deque[tuple[ProducedRows, list[PartitionBatch]]] = deque()
        self._sender = Sender(settings, name, self, self._encode, self._state, clock)
        self._thread = threading.Thread(
            target=self._serve, args=(connector, task), name=f"producer-{name}", daemon=True
        )
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """True if no further rows will ever be stored, for example after a refused login."""
        return self._aborted or self._sender.failure is not None

    def send(
        self,
        batch: ProduceBatch,
        receipts: Receipts,
        *,
        rows: pa.Array | None = None,
        within_s: float = threading.TIMEOUT_MAX,
    ) -> None:
        """Sends rows, in order. Waits while too many bytes are in flight. Invariant 3.

        Sends nothing, or no more, once a row has failed and the producer stops at failures.

        Args:
            rows: positions of the rows to send, ascending; None for all.

        Raises:
            ProducerClosedException: `abort` was called.
        """
        deadline = self._clock() + within_s
        table = batch.table if rows is None else batch.table.take(rows)
        positions: Sequence[int] = range(table.num_rows) if rows is None else rows.to_pylist()
        whole = replace(batch, table=table)
        sizes = _sizes(whole)
        for first, end, nbytes in _chunks(whole, sizes):
            chunk = ProducedRows(
                replace(batch, table=table.slice(first, end - first)),
                positions[first:end],
                sizes[first:end],
                receipts,
                nbytes,
                places={} if self._each_row or self._batch_ends else None,
                batch_ends=self._batch_ends and not self._each_row,
            )
            if not self._admit(chunk, deadline):
                return
            try:
                pieces = list(self._pieces(chunk, deadline))
            except BaseException:
                self._forget(chunk)
                raise
            chunk.left = len(pieces)
            with self._state:
                self._stopped = self._stopped or (self._stops_at_failure and bool(chunk.failures))
                self._incoming.append((chunk, pieces))
            self._sender.wake()

    def wait_delivered(self, timeout_s: float) -> bool:
        """Waits until nothing is in flight; False if the time is over or `abort` was called."""
        with self._state:
            return self._state.wait_for(lambda: self._aborted or not self._open, timeout_s) and not self._aborted

    def abort(self) -> None:
        """Abandons everything in flight: a waiting `send` fails, and nothing is reported any more. Does not block."""
        with self._state:
            self._aborted = True
            self._state.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Waits for the rows in flight, abandons the rest, and ends the connections. Returns True if everything was
        delivered and the producer's thread has ended.
        """
        delivered = self.wait_delivered(timeout_s)
        self.abort()
        with self._state:
            self._ending = True
        self._sender.wake()
        self._thread.join(_END_S)
        return delivered and not self._thread.is_alive()

    # ---------------------------------------------------------------- sending, on the thread that sends
    def _admit(self, chunk: ProducedRows, deadline: float) -> bool:
        """Waits for room, then counts the chunk as in flight; False if no more rows may be sent."""
        limit = min(self._settings.buffer, MOST_UNDER_WAY_BYTES)
        with self._state, waiting_for("broker"):
            room = self._state.wait_for(
                lambda: self._aborted or self._is_halted() or not self._open or self._bytes + chunk.nbytes <= limit,
                self._left(deadline),
            )
            self._check_open()
            if self._is_halted():
                return False
            if not room:
                raise self._late("there is no room: the records before are not stored yet")
            self._count_in(chunk)
        return True

    def _check_open(self) -> None:
        if self._aborted:
            raise ProducerClosedException(f"The producer of {self._name} was closed while records were being sent")

    def _count_in(self, chunk: ProducedRows) -> None:
        """Counts rows as in flight. The condition is held."""
        chunk.number = self._next_number
        self._next_number += 1
        self._open[chunk.number] = chunk
        self._bytes += chunk.nbytes

    def _is_halted(self) -> bool:
        return self._stopped

    def _forget(self, chunk: ProducedRows) -> None:
        """Drops an unsent chunk: `send` fails, and receipts are not called."""
        with self._state:
            del self._open[chunk.number]
            self._bytes -= chunk.nbytes
            self._state.notify_all()

    def _left(self, deadline: float) -> float:
        return max(0.0, min(deadline - self._clock(), threading.TIMEOUT_MAX))

    def _late(self, why: str) -> KafkaRetriableException:
        known = f" ({self.trouble})" if self.trouble else ""
        return KafkaRetriableException(f"The producer of {self._name} could not send records in time: {why}{known}")

    def _pieces(self, chunk: ProducedRows, deadline: float) -> Iterator[PartitionBatch]:
        """The record batches of a chunk; other rows are noted as failed."""
        topics = self._topics(chunk)
        counts = {topic: self._partitions(topic, deadline) for topic, _ in topics}
        refused = self._too_large(chunk)
        for topic, indices in topics:
            found = counts[topic]
            if not isinstance(found, int):
                refused |= dict.fromkeys(range(chunk.batch.table.num_rows) if indices is None else indices, found)
            elif chunk.batch.has_partition:
                refused |= self._not_there(chunk, topic, indices, found)
        if refused:
            topics = self._leave_out(chunk, refused, topics)
        for topic, indices in topics:
            found = counts[topic]
            if isinstance(found, int):
                yield from self._pieces_of(chunk, topic, indices, found)

    @property
    def trouble(self) -> str | None:
        """The known reason why records cannot be sent; None if there is none."""
        return self._sender.trouble

    def _topics(self, chunk: ProducedRows) -> list[tuple[str, np.ndarray | None]]:
        """Each topic with the indices of its rows; None for all rows."""
        if chunk.batch.topic is not None:
            return [(chunk.batch.topic, None)]
        coded = joined(chunk.batch.table.column("topic")).dictionary_encode()
        names: list[str] = coded.dictionary.to_pylist()
        if len(names) == 1:
            return [(names[0], None)]
        return [(names[code], indices) for code, indices in _groups(coded.indices.to_numpy(zero_copy_only=False))]

    def _partitions(self, topic: str, deadline: float = threading.TIMEOUT_MAX) -> int | Failure:
        """Returns the number of partitions of a topic, or the error of sending to it. Waits for metadata."""
        if len(topic) > _LONGEST_NAME:
            return partial(_failure, topic, error_of(KafkaError.TOPIC_EXCEPTION))
        view = self._sender.view
        expired_at = self._clock() + self._settings.delivery_timeout
        with self._state:
            if (known := view.partitions(topic)) is not None:
                return known
            view.want(topic, self._clock())
            self._sender.wake()
            with waiting_for("broker"):
                self._state.wait_for(
                    lambda: (
                        self._aborted
                        or view.partitions(topic) is not None
                        or view.fault(topic) is not None
                        or self._sender.failure is not None
                    ),
                    self._left(min(expired_at, deadline)),
                )
            self._check_open()
            known, fault = view.partitions(topic), view.fault(topic)
        if known is not None:
            return known
        if self._sender.failure is not None:
            return partial(_failure, topic, self._sender.failure, fatal=True)
        if fault is not None:
            return partial(_failure, topic, fault.kind, unknown=fault.unknown)
        if deadline < expired_at:
            raise self._late(f"the partitions of topic {topic} are not known yet")
        text = f"the partitions of topic {topic} could not be found out within delivery.timeout.ms"
        return partial(_failure, topic, error_of(KafkaError.REQUEST_TIMED_OUT).saying(text))

    def _too_large(self, chunk: ProducedRows) -> dict[int, Failure]:
        """Rows that are larger than a request or than the limit of bytes in flight."""
        limit = min(self._settings.request_size, self._settings.buffer)
        if chunk.nbytes <= limit:
            return {}
        return {
            index: partial(self._too_large_here, chunk.topic_of(index), int(chunk.sizes[index]))
            for index in np.flatnonzero(chunk.sizes > limit).tolist()
        }

    def _too_large_here(self, topic: str, size: int, row: int) -> FailedDelivery:
        if size > self._settings.buffer:
            return _too_large(topic, row, size, "buffer.memory", self._settings.buffer)
        return _too_large(topic, row, size, "the producer's max.request.size")

    def _not_there(self, chunk: ProducedRows, topic: str, indices: np.ndarray | None, count: int) -> dict[int, Failure]:
        """The failures of rows that name a partition which their topic does not have."""
        named = pc.fill_null(chunk.batch.table.column("partition"), 0).to_numpy()
        wrong = (named < 0) | (named >= count)
        if indices is not None:
            chosen = np.zeros(len(wrong), bool)
            chosen[indices] = True
            wrong &= chosen
        kind = error_of(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return {
            index: partial(
                _failure, topic, kind.saying(f"partition {named[index]} does not exist, topic {topic} has {count}")
            )
            for index in np.flatnonzero(wrong).tolist()
        }

    def _leave_out(
        self, chunk: ProducedRows, refused: dict[int, Failure], topics: list[tuple[str, np.ndarray | None]]
    ) -> list[tuple[str, np.ndarray | None]]:
        """Notes failures, and returns the remaining rows of each topic. Invariants 1 and 3."""
        last = len(chunk.rows)
        if self._stops_at_failure:
            last = min(refused)
            refused = {last: refused[last]}
        for index, failure in refused.items():
            chunk.failures[index] = failure(chunk.rows[index])
        left = np.ones(len(chunk.rows), bool)
        left[list(refused)] = False
        left[last:] = False
        if self._stops_at_failure:
            chunk.cut_behind(last)
        everything = np.arange(len(left))
        kept = [(topic, everything if indices is None else indices) for topic, indices in topics]
        return [(topic, indices[left[indices]]) for topic, indices in kept]

    def _pieces_of(
        self, chunk: ProducedRows, topic: str, indices: np.ndarray | None, count: int
    ) -> Iterator[PartitionBatch]:
        table = chunk.batch.table if indices is None else chunk.batch.table.take(pa.array(indices))
        if not table.num_rows:
            return
        everything = np.arange(table.num_rows) if indices is None else indices
        batch = chunk.batch
        chosen = self._partitioner.choose(
            topic,
            count,
            named=joined(table.column("partition")) if batch.has_partition else None,
            keys=joined(table.column("key")) if batch.has_keys else None,
            sizes=chunk.sizes if indices is None else chunk.sizes[indices],
        )
        if isinstance(chosen, int):
            parts = [(chosen, everything, table)]
        else:
            parts = [(partition, everything[rows], table.take(pa.array(rows))) for partition, rows in _groups(chosen)]
        created = self._clock()
        for partition, rows, part in parts:
            for made in self._encode(batch, part):
                yield PartitionBatch(chunk, topic, partition, rows[made.first : made.first + made.count], made, created)

    def _encode(self, batch: ProduceBatch, table: pa.Table) -> list[EncodedBatch]:
        return encode(
            table,
            limit=self._settings.batch_size,
            compression=self._settings.compression,
            now=time.time_ns() // 1_000_000,
            keys=batch.has_keys,
            headers=batch.has_headers,
            timestamp=batch.timestamp,
        )

    # ---------------------------------------------------------------- the producer's own thread
    def _serve(self, connector: str, task: int | None) -> None:
        with log_context(connector, task, "producer") if connector else contextlib.nullcontext():
            try:
                while not self._ending:
                    self._take()
                    self._sender.step()
            except Exception:
                logger.exception("The producer of %s has failed and sends nothing any more", self._name)
                self.abort()
            finally:
                self._sender.close()

    def _take(self) -> None:
        with self._state:
            incoming = list(self._incoming)
            self._incoming.clear()
        for chunk, pieces in incoming:
            self._sender.add(pieces)
            if not chunk.left:
                self._finish(chunk)

    def stored(self, piece: PartitionBatch, base_offset: int, append_time: int) -> None:
        piece.note_places(base_offset, append_time)
        self._count_off(piece.chunk, 1)

    def replaced(self, piece: PartitionBatch, pieces: Sequence[PartitionBatch]) -> None:
        self._count_off(piece.chunk, 1 - len(pieces))

    def lost(
        self, piece: PartitionBatch, positions: Iterable[int], kind: ErrorKind, *, unknown: bool, fatal: bool
    ) -> None:
        chunk = piece.chunk
        for index in piece.indices[list(positions)].tolist():
            row = chunk.rows[index]
            if kind.java_name in _TOO_LARGE:
                setting = "the broker's or topic's max.message.bytes"
                chunk.failures[index] = _too_large(piece.topic, row, int(chunk.sizes[index]), setting)
            else:
                chunk.failures[index] = _failure(piece.topic, kind, row, unknown=unknown, fatal=fatal)
        with self._state:
            self._stopped = self._stopped or self._stops_at_failure
            self._state.notify_all()

    def _count_off(self, chunk: ProducedRows, pieces: int) -> None:
        chunk.left -= pieces
        if not chunk.left:
            self._finish(chunk)

    def _finish(self, chunk: ProducedRows) -> None:
        with self._state:
            aborted = self._aborted
            self._bytes -= chunk.nbytes
            self._state.notify_all()
        if not aborted:
            self._report(chunk)
        with self._state:
            # After the report, so that a caller that waits for the last delivery sees its consequences.
            del self._open[chunk.number]
            self._state.notify_all()

    def _report(self, chunk: ProducedRows) -> None:
        try:
            chunk.receipts.delivered(chunk.rows[0], chunk.rows[-1] + 1, chunk.sorted_failures(), chunk.places)
        except Exception:
            logger.exception("The acknowledgement of records of %s could not be handled", self._name)


def _failure(topic: str, kind: ErrorKind, row: int, *, unknown: bool = False, fatal: bool = False) -> FailedDelivery:
    exception = KafkaRetriableException if kind.retriable else KafkaException
    java_name = _ERRORS + kind.java_name
    return FailedDelivery(row, topic, exception(kind.about(topic).text), java_name, unknown_topic=unknown, fatal=fatal)


def _too_large(topic: str, row: int, size: int, setting: str, limit: int | None = None) -> FailedDelivery:
    return FailedDelivery(row, topic, too_large(size, setting, limit), RecordTooLargeException.java_name)


def _chunks(batch: ProduceBatch, sizes: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """First row, end and bytes in flight of each chunk; a row larger than a chunk is a chunk by itself."""
    count = batch.table.num_rows
    if not count:
        return
    headers = batch.table.column("headers").nbytes // count if batch.has_headers else 0
    ends = np.cumsum(2 * (sizes + headers) + RECORD_OVERHEAD_BYTES)
    first = before = 0
    while first < count:
        end = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))
        end = max(first + 1, min(end, first + CHUNK_ROWS))
        after = int(ends[end - 1])
        yield first, end, after - before
        first, before = end, after


def _sizes(batch: ProduceBatch) -> np.ndarray:
    names = ("key", "value") if batch.has_keys else ("value",)
    lengths = [pc.fill_null(pc.binary_length(batch.table.column(name)), 0).to_numpy() for name in names]
    total: np.ndarray = np.add.reduce(lengths, axis=0, dtype=np.int64)
    return total


def _groups(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each distinct number, ascending, with its positions."""
    order = np.argsort(codes, kind="stable")
    for positions in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield int(codes[positions[0]]), positions
