"""The context of a sink task: its requests, which are kept until the loop takes them, and its reports of bad records.

Owning thread: the task's, except where ``penstock.api.SinkTaskContext`` says otherwise; ``report`` and ``find`` may be
called from any thread.

Source: ``WorkerSinkTaskContext`` and ``WorkerErrantRecordReporter``; KIP-275 for ``is_closing``, KIP-610 for reports.
"""

from __future__ import annotations

import logging
import math
import operator
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final, SupportsIndex, overload

import pyarrow as pa

from penstock.api import (
    Closing,
    ErrantRecordReporter,
    OffsetAndMetadata,
    PluginMetrics,
    Rows,
    SinkFrame,
    SinkRecord,
    SinkTaskContext,
    TopicPartition,
)
from penstock.api.frames.frame import row_numbers
from penstock.errors import ConnectException, IllegalWorkerStateException, java_class_name
from penstock.model.states import Progress
from penstock.pipeline.batch.batches import RecordError
from penstock.pipeline.batch.sink.frames import records_of_rows
from penstock.worker.errors import TASK_PUT, ConsumedMessage, ErrorHandler
from penstock.worker.sink.deliveries import SinkDelivery, message_at
from penstock.worker.task.plugin_metrics import InstanceMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

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
    """The records of some rows, one for each message."""
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
        return self._errors.has_reporters

    def remember(self, delivery: SinkDelivery) -> object:
        """See ``DeliveredMessages``. Without reporters no message is needed."""
        return self._messages.remember(delivery) if self.has_reporters else None

    def report_rows(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        return _all_of([self.report(record, error) for record in reported_records(frame, rows)])

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
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
        """Fails the task if it reported a record although no error is tolerated, and went on."""
        if self._exceeded is not None:
            raise self._exceeded


def _all_of(futures: list[Future[None]]) -> Future[None]:
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


@dataclass(eq=False)
class ClockCall:
    """One function that is called again and again.

    Attributes:
        seconds: From the beginning of one call to that of the next.
        due: Monotonic seconds.
        asks_again: True while its last call has raised ``RetriableException``: nothing else is delivered before it.
    """

    seconds: float
    call: Callable[[], object]
    due: float
    asks_again: bool = False

    def began(self, now: float) -> None:
        """The call begins: calls that were missed are not made up for."""
        self.due = now + self.seconds

    def ask_again(self, at: float) -> None:
        """Schedules the call for that time, before the next delivery."""
        self.asks_again, self.due = True, at


class ClockCalls:
    """All of a task's.

    >>> calls = ClockCalls()
    >>> end = calls.add(10.0, list, now=100.0)
    >>> calls.next_due(109.0), calls.next_due(110.0) is not None, calls.wait_s(103.0)
    (None, True, 7.0)
    >>> end()
    >>> calls.wait_s(103.0)
    inf
    """

    def __init__(self) -> None:
        self._calls: list[ClockCall] = []

    def add(self, seconds: float, call: Callable[[], object], *, now: float) -> Callable[[], None]:
        """Adds a function.

        Args:
            seconds: From one call to the next; the first one comes after as long.
            now: Monotonic seconds.

        Returns:
            A function that ends the calls; calling it again has no effect.
        """
        if not (math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"every() takes a number of seconds above 0, not {seconds!r}")
        if not callable(call):
            raise ValueError(f"every() takes a function without arguments, not a {type(call).__name__}")
        added = ClockCall(seconds, call, now + seconds)
        self._calls.append(added)

        def end() -> None:
            self._calls = [one for one in self._calls if one is not added]

        return end

    def next_due(self, now: float) -> ClockCall | None:
        """The one that is due longest; None: none is. One that asks again keeps the others waiting."""
        waiting = [one for one in self._calls if one.asks_again] or self._calls
        first = min(waiting, key=lambda one: one.due, default=None)
        return first if first is not None and first.due <= now else None

    def wait_s(self, now: float) -> float:
        """Returns the seconds until the next call is due; infinity if there is none."""
        return max(0.0, min((one.due for one in self._calls), default=math.inf) - now)

    @property
    def asks_again_at(self) -> float | None:
        """The time when the call is due that has asked to be made again, or None if none has."""
        return next((one.due for one in self._calls if one.asks_again), None)


class WorkerSinkTaskContext(SinkTaskContext):
    """The context of one task instance.

    Args:
        reporter: Receives bad records; None when error reporting is not configured.
        errant: Receives bad rows of frames, also when error reporting is not configured; None: they are not reported.
        lost_session: True if the loss of a Spark session caused an error.
        wake: Wakes the loop for a request from another thread.
    """

    def __init__(
        self,
        task: str,
        *,
        read_config: Callable[[], Mapping[str, str]],
        assignment: Callable[[], frozenset[TopicPartition]],
        reporter: ErrantRecordReporter | None,
        wake: Callable[[], None],
        errant: ErrantRecords | None = None,
        lost_session: Callable[[BaseException], bool] = lambda error: False,
        metrics: InstanceMetrics | None = None,
        progress: Callable[[Progress | None], None] = lambda progress: None,
        spark: Callable[[], SparkSession] | None = None,
        is_backfill: bool = False,
        kafka_cluster_id: str | None = None,
    ) -> None:
        self._task = task
        self._is_backfill = is_backfill
        self._kafka_cluster_id = kafka_cluster_id
        self._read_config = read_config
        self._assignment = assignment
        self._reporter = reporter
        self._errant = errant
        self._lost_session = lost_session
        self._progress = progress
        self._spark = spark
        self.calls = ClockCalls()
        self._wake = wake
        self._plugin_metrics = (metrics or InstanceMetrics.unread()).plugin()
        self._rewinds: dict[TopicPartition, int] = {}
        self._timeout_ms = -1
        self._paused: set[TopicPartition] = set()
        self._commit_requested = False
        self._closing = False
        self._closed = False

    # -- For the author of the task ----------------------------------------------------------------------------------

    def configs(self) -> dict[str, str]:
        self._check_open()
        return dict(self._read_config())

    @overload
    def offset(self, offsets: TopicPartition, offset: int) -> None: ...

    @overload
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def offset(self, offsets: TopicPartition | Mapping[TopicPartition, int], offset: int | None = None) -> None:
        self._check_open()
        wanted = {offsets: offset} if isinstance(offsets, TopicPartition) else offsets
        for partition, position in wanted.items():
            if position is None:
                logger.warning("%s: ignoring a rewind of %s without an offset", self._task, partition)
            else:
                self._rewinds[TopicPartition(*partition)] = self._whole(partition, position)

    def _whole(self, partition: TopicPartition, position: SupportsIndex) -> int:
        try:
            offset = operator.index(position)
        except TypeError:
            offset = -1
        if offset < 0:
            raise ConnectException(
                f"{self._task} cannot go on with {partition} at offset {position!r}: "
                "it must be a whole number, 0 or more"
            )
        return offset

    def timeout(self, timeout_ms: int) -> None:
        self._check_open()
        self._timeout_ms = timeout_ms

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        self._progress(None if done is None else Progress(done, total, unit))

    def spark(self) -> SparkSession:
        return super().spark() if self._spark is None else self._spark()

    def assignment(self) -> frozenset[TopicPartition]:
        self._check_open()
        return self._assignment()

    def pause(self, *partitions: TopicPartition) -> None:
        self._check_assigned("pause", partitions)
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._check_assigned("resume", partitions)
        self._paused.difference_update(partitions)

    def request_commit(self) -> None:
        """Commit at the next round. Thread: any."""
        self._check_open()
        self._commit_requested = True
        self._wake()

    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Returns the reporter for records that cannot be put. Thread: any."""
        self._check_open()
        return self._reporter

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        """Report rows of a frame. Thread: any."""
        self._check_open()
        return (
            super().report(frame, rows, error) if self._errant is None else self._errant.report_rows(frame, rows, error)
        )

    def blames_rows(self, error: BaseException) -> bool:
        return super().blames_rows(error) and not self._lost_session(error)

    def every(self, seconds: float, call: Callable[[], object]) -> Callable[[], None]:
        self._check_open()
        return self.calls.add(seconds, call, now=time.monotonic())

    def plugin_metrics(self) -> PluginMetrics:
        """Returns the registry for the task's own metrics. Thread: any."""
        self._check_open()
        return self._plugin_metrics

    @property
    def is_backfill(self) -> bool:
        self._check_open()
        return self._is_backfill

    @property
    def kafka_cluster_id(self) -> str | None:
        self._check_open()
        return self._kafka_cluster_id

    @property
    def is_closing(self) -> Closing:
        self._check_open()
        return Closing(self._closing)

    # -- For the loop ------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def retain(self, assigned: frozenset[TopicPartition]) -> None:
        self._paused &= assigned

    def forget_rewinds(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            self._rewinds.pop(partition, None)

    def take_rewinds(self) -> dict[TopicPartition, int]:
        rewinds, self._rewinds = self._rewinds, {}
        return rewinds

    def take_timeout_ms(self) -> int | None:
        timeout, self._timeout_ms = self._timeout_ms, -1
        return timeout if timeout > 0 else None

    @property
    def commit_requested(self) -> bool:
        return self._commit_requested

    def clear_commit_request(self) -> None:
        self._commit_requested = False

    def set_closing(self, closing: bool) -> None:
        self._closing = closing

    def close(self) -> None:
        """Every later call fails."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalWorkerStateException(f"The context of {self._task} is closed: the task has ended")

    def _check_assigned(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        self._check_open()
        strange = [str(partition) for partition in partitions if partition not in self._assignment()]
        if strange:
            raise IllegalWorkerStateException(
                f"{self._task} cannot {what} {', '.join(strange)}: not assigned to this task"
            )
