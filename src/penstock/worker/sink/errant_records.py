"""Reports records, and rows of frames, for a sink task: the errant record reporter of KIP-610.

Main types: ``ErrantRecords`` (the reporter) and ``DeliveredMessages`` (finds the original bytes of a delivered record).
Where these are not at hand, ``RecordEncoder`` converts the record again; ``message_as_text`` does without converters.

Owning thread: ``report`` and ``find`` may be called from any thread, as the encoder; the rest from the task's thread.

Source: ``WorkerErrantRecordReporter``.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from typing import Final

import pyarrow as pa

from penstock.api import (
    Converter,
    ErrantRecordReporter,
    HeaderConverter,
    OffsetAndMetadata,
    Rows,
    SinkFrame,
    SinkRecord,
    TopicPartition,
)
from penstock.api.frames.rows import row_numbers
from penstock.data import Schema, value_text
from penstock.errors import ConnectException, as_exception, java_class_name
from penstock.pipeline.batch.batches import RecordError
from penstock.pipeline.batch.sink.frames import records_of_rows
from penstock.telemetry.logs import SeldomLog
from penstock.worker.errors.reporters import ConsumedMessage
from penstock.worker.errors.tolerance import TASK_PUT, ErrorHandler
from penstock.worker.sink.deliveries import SinkDelivery, message_at

logger = logging.getLogger(__name__)

_Convert = Callable[[Schema | None, object], bytes | None]


class RecordEncoder:
    """Converts records to messages, one at a time.

    A key, value or header that its converter refuses becomes text, where Java fails: the dead letter record is written
    in any case. The log reports this once a minute for each kind of failure.

    Args:
        key, value, header: Configured converters for this encoder only: another thread uses those of the pipeline.
        task: The task, for the log.
    """

    def __init__(self, key: Converter, value: Converter, header: HeaderConverter, *, task: str) -> None:
        self._key = key
        self._value = value
        self._header = header
        self._task = task
        self._lock = threading.Lock()
        self._seldom = SeldomLog(logger)

    def __call__(self, record: SinkRecord) -> ConsumedMessage:
        """The message of a record, with the coordinates that it was read from."""
        topic = record.topic
        with self._lock:
            return _message(
                record,
                self._or_text(record, "key", partial(self._key.from_connect_data, topic)),
                self._or_text(record, "value", partial(self._value.from_connect_data, topic)),
                lambda name: self._or_text(
                    record, f"header {name}", partial(self._header.from_connect_header, topic, name)
                ),
            )

    def _or_text(self, record: SinkRecord, what: str, convert: _Convert) -> _Convert:
        def converted(schema: Schema | None, value: object) -> bytes | None:
            try:
                return convert(schema, value)
            except BaseException as failure:
                self._note(record, what, as_exception(failure))
                return _as_text(schema, value)

        return converted

    def _note(self, record: SinkRecord, what: str, failure: Exception) -> None:
        self._seldom.warning(
            (what, type(failure)),
            "Task %s: the %s of the record reported at %s-%s, offset %d, cannot be converted to bytes; "
            "its dead letter holds it as text: %s: %s",
            self._task,
            what,
            record.original_topic,
            record.original_kafka_partition,
            record.original_kafka_offset,
            java_class_name(failure),
            failure,
        )


def message_as_text(record: SinkRecord) -> ConsumedMessage:
    """A message of a record without converters: bytes as they are, other values as text.

    >>> made = message_as_text(SinkRecord("t", 0, 7, {"a": [True, None]}, key=b"k"))
    >>> made.topic, made.offset, made.key, made.value
    ('t', 7, b'k', b'{"a":[true,null]}')
    """
    return _message(record, _as_text, _as_text, lambda name: _as_text)


def _message(record: SinkRecord, key: _Convert, value: _Convert, header: Callable[[str], _Convert]) -> ConsumedMessage:
    return ConsumedMessage(
        record.original_topic,
        record.original_kafka_partition or 0,
        record.original_kafka_offset,
        record.timestamp,
        int(record.timestamp_type),
        key(record.key_schema, record.key),
        value(record.value_schema, record.value),
        tuple((one.key, header(one.key)(one.schema, one.value)) for one in record.raw_headers or ()),
    )


def _as_text(schema: Schema | None, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        text = value_text(value, schema)
    except Exception:
        text = str(value)  # of a class that Connect does not know, or not what its schema says
    return text.encode(errors="replace")


SINK_TASK_JAVA_CLASS: Final = "org.apache.kafka.connect.sink.SinkTask"

_Coordinates = tuple[str, int | None, int]


class DeliveredMessages:
    """The messages that records were made of: a task may report a record some time after ``put``.

    A record keeps the messages of its batch alive, as Java's keeps its own: a task that buffers records keeps their
    original messages. Two limits bound the memory:

    - the newest batches are kept in any case, up to ``recent_bytes``, and the last one whatever its size;
    - older batches while the task holds one of their records, or a copy made by ``new_record``, or a frame or a part
      of one, and their offsets are not all committed; of these up to ``held_bytes``, the newest first.

    A task in a process of its own holds copies, for which only the first is kept.

    Args:
        committed: The committed offsets of the partitions that are assigned.
        recent_bytes: Bytes to keep of the latest deliveries.
        held_bytes: Bytes to keep, in addition, of older batches that the task holds.
    """

    def __init__(
        self,
        committed: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        *,
        recent_bytes: int = 64 * 1024 * 1024,
        held_bytes: int = 1024 * 1024 * 1024,
    ) -> None:
        self._committed = committed
        self._recent_bytes = recent_bytes
        self._held_bytes = held_bytes
        self._lock = threading.Lock()
        self._recent: deque[_DeliveredBatch] = deque()
        self._held: list[weakref.ref[_DeliveredBatch]] = []
        self._bytes = 0

    def remember(self, delivery: SinkDelivery) -> object:
        """A batch is about to be delivered for the first time; it may be tried again.

        Returns:
            A handle for its frames: the messages are kept while the handle is referenced.
        """
        if not delivery.table.num_rows:
            return None
        batch = _DeliveredBatch(delivery.table, delivery.ends)
        # In C: some nanoseconds a record.
        deque(map(_MARK, delivery.records or (), repeat(batch)), maxlen=0)
        with self._lock:
            self._recent.append(batch)
            self._bytes += batch.nbytes
            while self._bytes > self._recent_bytes and len(self._recent) > 1:
                oldest = self._recent.popleft()
                self._bytes -= oldest.nbytes
                self._held.append(weakref.ref(oldest))
                del oldest
            self._release()
        return batch

    def find(self, record: SinkRecord) -> ConsumedMessage | None:
        """The message a record was made from, where it is still kept."""
        wanted = (record.original_topic, record.original_kafka_partition, record.original_kafka_offset)
        own = record._delivered
        with self._lock:
            batches = [own] if isinstance(own, _DeliveredBatch) else []
            for batch in (*batches, *reversed(self._recent)):
                if (message := batch.find(wanted)) is not None:
                    return message
        return None

    def _release(self) -> None:
        """Drops committed batches, and batches beyond the limits."""
        committed = self._committed() if self._held else {}
        kept: list[weakref.ref[_DeliveredBatch]] = []
        left = self._held_bytes
        for held in reversed(self._held):
            batch = held()
            if batch is None:
                continue
            left -= batch.nbytes
            if left < 0 or batch.is_committed(committed):
                batch.release()
            else:
                kept.append(held)
        self._held = kept[::-1]


class _DeliveredBatch:
    """The messages of one delivery. Thread: any, under the lock of ``DeliveredMessages``."""

    __slots__ = ("__weakref__", "_ends", "_rows", "_table", "nbytes")

    def __init__(self, table: pa.Table, ends: Mapping[TopicPartition, int]) -> None:
        self._table: pa.Table | None = table
        self._ends = dict(ends)
        self._rows: dict[_Coordinates, int] = {}
        self.nbytes: int = table.nbytes

    def __reduce__(self) -> tuple[type, tuple[()]]:
        # A pickled record loses its message.
        return type(None), ()

    def find(self, wanted: _Coordinates) -> ConsumedMessage | None:
        table = self._table
        if table is None:
            return None
        if not self._rows:
            columns = (table[name].to_pylist() for name in ("topic", "partition", "offset"))
            self._rows.update(zip(zip(*columns, strict=True), range(table.num_rows), strict=True))
        row = self._rows.get(wanted)
        return None if row is None else message_at(table, row)

    def is_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
        """True if all offsets of the batch are committed; partitions that were revoked do not count."""
        return all(
            partition not in offsets or offsets[partition].offset >= end for partition, end in self._ends.items()
        )

    def release(self) -> None:
        self._table = None
        self._rows = {}


def reported_records(frame: SinkFrame, rows: Rows) -> list[SinkRecord]:
    """The records of some rows, one for each message.

    Raises:
        IndexError: The frame has no such row.
    """
    found: dict[_Coordinates, SinkRecord] = {}
    for record in records_of_rows(frame, row_numbers(rows, frame.num_rows)):
        record._delivered = frame._delivered
        at = (record.original_topic, record.original_kafka_partition, record.original_kafka_offset)
        found.setdefault(at, record)
    return list(found.values())


#: Sets the batch of a record.
_MARK: Final[Callable[[SinkRecord, _DeliveredBatch], None]] = vars(SinkRecord)["_delivered"].__set__


class ErrantRecords(ErrantRecordReporter):
    """Runs the task's reporters for records it could not put.

    Args:
        errors: The task's error handler.
        messages: Finds the original bytes.
        encode: Encodes a record whose original is gone, or which the task made itself; any thread.
    """

    def __init__(
        self, errors: ErrorHandler, messages: DeliveredMessages, encode: Callable[[SinkRecord], ConsumedMessage]
    ) -> None:
        self._errors = errors
        self._messages = messages
        self._encode = encode
        self._exceeded: ConnectException | None = None

    @property
    def has_reporters(self) -> bool:
        """True if at least one reporter receives the reports."""
        return self._errors.has_reporters

    def remember(self, delivery: SinkDelivery) -> object:
        """See ``DeliveredMessages``. Without reporters no message is needed."""
        return self._messages.remember(delivery) if self.has_reporters else None

    def report_rows(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        """Report rows of a frame; see ``penstock.api.SinkTaskContext``."""
        return _all_of([self.report(record, error) for record in reported_records(frame, rows)])

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Report a record; see ``penstock.api.ErrantRecordReporter``."""
        message = self._messages.find(record) or self._encode(record)
        failure = RecordError(
            0,
            TASK_PUT,
            SINK_TASK_JAVA_CLASS,
            java_class_name(error),
            str(error) if error.args else None,
            exception=error,
        )
        try:
            futures = self._errors.execute_failed(failure, message)
        except ConnectException as exceeded:
            self._exceeded = exceeded
            raise
        return _all_of(futures)

    def raise_if_exceeded(self) -> None:
        """Fails the task if it reported a record although no error is tolerated, and went on.

        Raises:
            ToleranceExceededException: The error that ``report`` raised.
        """
        if self._exceeded is not None:
            raise self._exceeded


def _all_of(futures: list[Future[None]]) -> Future[None]:
    """A future that is done when all of these are."""
    whole: Future[None] = Future()
    if not futures:
        whole.set_result(None)
        return whole
    lock = threading.Lock()
    left = [len(futures)]

    def one_done(_: Future[None]) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            whole.set_result(None)

    for future in futures:
        future.add_done_callback(one_done)
    return whole
