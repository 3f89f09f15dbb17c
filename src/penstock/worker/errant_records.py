"""Records that a sink task reports by itself: the errant record reporter of KIP-610.

Main types: ``ErrantRecords`` (the reporter) and ``DeliveredMessages`` (finds the original bytes of a delivered record).

Owning thread: ``report`` may be called from any thread, the rest from the task's thread.

Source: ``WorkerErrantRecordReporter``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import pyarrow as pa

from penstock.api import ErrantRecordReporter, SinkRecord
from penstock.errors import ConnectException, java_class_name
from penstock.pipeline.batches import RecordError
from penstock.worker.error_report import ConsumedMessage
from penstock.worker.sink_delivery import message_at
from penstock.worker.tolerance import TASK_PUT, ErrorHandler

SINK_TASK_JAVA_CLASS: Final = "org.apache.kafka.connect.sink.SinkTask"

_Coordinates = tuple[str, int | None, int]


class DeliveredMessages:
    """The messages of the last batches, by original coordinates: a task may report a record some time after ``put``.

    Args:
        max_bytes: How much is kept; the newest batch is kept whatever its size.
    """

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._tables: deque[tuple[pa.Table, dict[_Coordinates, int]]] = deque()
        self._bytes = 0

    def remember(self, table: pa.Table) -> None:
        """A batch is about to be delivered."""
        with self._lock:
            self._tables.append((table, {}))
            self._bytes += table.nbytes
            while self._bytes > self._max_bytes and len(self._tables) > 1:
                self._bytes -= self._tables.popleft()[0].nbytes

    def find(self, record: SinkRecord) -> ConsumedMessage | None:
        """The message a record was made from, unless that was too long ago."""
        wanted = (record.original_topic, record.original_kafka_partition, record.original_kafka_offset)
        with self._lock:
            for table, rows in reversed(self._tables):
                if not rows:
                    columns = (table[name].to_pylist() for name in ("topic", "partition", "offset"))
                    rows.update(zip(zip(*columns, strict=True), range(table.num_rows), strict=True))
                if wanted in rows:
                    return message_at(table, rows[wanted])
        return None


class ErrantRecords(ErrantRecordReporter):
    """Runs the task's reporters for records it could not put.

    Args:
        errors: The task's error handler.
        messages: Where original bytes are found.
        encode: Makes a message of a record whose original is gone, or which the task made itself.
    """

    def __init__(
        self, errors: ErrorHandler, messages: DeliveredMessages, encode: Callable[[SinkRecord], ConsumedMessage]
    ) -> None:
        self._errors = errors
        self._messages = messages
        self._encode = encode
        self._exceeded: ConnectException | None = None

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
        """Fail the task if it swallowed that no error is tolerated.

        Raises:
            ToleranceExceededException: What ``report`` raised.
        """
        if self._exceeded is not None:
            raise self._exceeded


def _all_of(futures: list[Future[None]]) -> Future[None]:
    """Done when all of them are."""
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
