"""Source tasks: they read from a system and hand over records (``SourceTask``) or whole frames (``FrameSourceTask``).

Owning thread: the task's thread, unless a method says otherwise.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from penstock.api.connector import OffsetStorageReader, Task, TaskContext
from penstock.api.frames.frame import SourceFrame
from penstock.api.metrics import PluginMetrics
from penstock.api.record import RecordMetadata, SourceRecord
from penstock.errors import IllegalWorkerStateException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.api.bulk import BulkFrame


class TransactionBoundary(Enum):
    """The places where transactions end with exactly-once delivery: the values of ``transaction.boundary``.

    Source: org.apache.kafka.connect.source.SourceTask.TransactionBoundary, KIP-618.
    """

    POLL = "poll"
    INTERVAL = "interval"
    CONNECTOR = "connector"


class TransactionContext(ABC):
    """Lets a task say where transactions end. A worker implements it that delivers exactly once.

    Thread: the task's. Source: org.apache.kafka.connect.source.TransactionContext, KIP-618.
    """

    @abstractmethod
    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Asks for a commit after the batch that ``poll`` returns next, or after this record of it."""

    @abstractmethod
    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Asks to discard what was read since the last commit, after the next batch or after this record of it."""


class SourceTaskContext(TaskContext):
    """The interface through which a source task makes requests of the worker. The worker implements it.

    Attributes:
        stopping: Set when the task is asked to stop. A ``poll`` that waits for data should wait on it,
            ``self.context.stopping.wait(0.1)``, instead of sleeping.
        is_preview: True if only some records are to be shown: nothing is committed, so a task that would prepare its
            work in positions reads at once instead.

    Thread: any.
    Source: org.apache.kafka.connect.source.SourceTaskContext.
    """

    stopping: threading.Event
    is_preview: bool = False

    @abstractmethod
    def configs(self) -> dict[str, str]:
        """The task's newest configuration, with placeholders replaced again (a secret may have changed)."""

    @abstractmethod
    def offset_storage_reader(self) -> OffsetStorageReader:
        """A reader of committed source offsets: where to resume.

        Raises:
            ConnectException: From the reader, once the task is abandoned.
        """

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """Moves the position in a source partition where there is no record to move it.

        It counts behind all records that ``poll`` has returned before, and behind those that the ``poll`` under way, or
        else the next one, returns. It is committed once Kafka has all of them that are of the same source partition,
        within about a second, without waiting for ``offset.flush.interval.ms``. With exactly-once it is in the
        transaction of the last of them, which ends where ``transaction.boundary`` says, or in one of its own. A
        ``poll`` that raises commits nothing; what it has moved waits for the next one.

        Args:
            partition: The source partition, a map of primitives.
            offset: Where to resume; None: the source partition is forgotten.

        Raises:
            DataException: One of them cannot be stored.
            NotImplementedError: From a context that is none of a worker's and does not override it.

        Source: Penstock's own.
        """
        raise NotImplementedError(f"{type(self).__name__} moves no positions: override advance()")

    def transaction_context(self) -> TransactionContext | None:
        """Returns the context for defining transaction boundaries, or None unless ``transaction.boundary=connector``.

        A standalone worker has no transactions and always answers None.
        """
        return None

    def plugin_metrics(self) -> PluginMetrics:
        """Returns the registry for the task's own metrics, which ``GET /metrics`` shows until the task ends.

        Source: KIP-877.

        Raises:
            NotImplementedError: From a context that is none of a worker's and does not override it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no plugin metrics: override plugin_metrics()")

    def spark(self) -> SparkSession:
        """The worker's Spark session, for a task that reads with Spark. Waits until it is up.

        It can be lost at any time, and another one takes its place: ask for it in every ``poll``, and never make one
        with ``SparkSession.builder``. A task that fails after a session it had used was lost is not FAILED but started
        again where its committed offsets end, so that it can make anew what it keeps.

        Raises:
            IllegalWorkerStateException: This context has none: one that a test has made.
            SparkUnavailableException: It cannot start, or is not there and the task is to stop. Let it pass.
        """
        raise IllegalWorkerStateException("This context has no Spark session; a worker's has one")


class SourceTask(Task):
    """Reads from a system, record by record.

    Loop: ``poll`` until stop is asked. Records go through transforms and converters to Kafka in the order they were
    returned; the offset of a source partition is committed up to the first record that Kafka has not acknowledged.

    Attributes:
        context: What the task may ask of the worker; there from ``initialize`` on.

    Thread: the task's own for ``start``, ``poll`` and ``stop``; ``stop`` comes from another one when ``poll`` does not
    return. The hooks ``commit``, ``commit_record``, ``record_acknowledged``, ``frame_acknowledged`` and
    ``commit_batch`` come from threads of the worker, beside ``poll``: what they share with ``poll`` needs a lock.
    Source: org.apache.kafka.connect.source.SourceTask; KIP-416 for the acknowledgement hooks.
    """

    TRANSACTION_BOUNDARY_CONFIG: ClassVar[str] = "transaction.boundary"

    context: SourceTaskContext

    def initialize(self, context: SourceTaskContext) -> None:
        """Takes the context. Called once, before ``start``. Overriding it: call this one too."""
        self.context = context

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | SourceFrame | BulkFrame | None:
        """The next records, in order.

        Called again and again on the task's thread, and not while the task is paused. May wait for data for a limited
        time (a second is a good bound), and should return at once when ``self.context.stopping`` is set or ``wakeup``
        is called. Two seconds after that ``stop`` is called from another thread, to end a ``poll`` that waits for
        something else; what such a ``poll`` then returns is delivered, and what it raises is not taken for a failure.
        Nothing now: None or an empty list; the worker then waits a moment before it asks again.

        Returned records belong to the worker; do not change them. Returning them promises nothing about Kafka yet: that
        comes with ``commit_record`` and ``commit``.

        Raises:
            RetriableException: (or KafkaRetriableException) Called again after ``retry_after_s`` of the error, else
                after a wait that grows up to ``source.retry.delay.max.ms``.
            Exception: Any other makes the task FAILED, after what was polled before has been delivered and committed.
        """

    def commit(self) -> None:
        """Offsets of this task were committed: a source that keeps its own position may move it now.

        Called on a worker's thread after each successful offset commit, also one with nothing new. What is committed
        may be less than what ``poll`` has returned, so use ``commit_record`` to learn what is safe. May block, but the
        next commit waits for it. An exception is logged and does no harm.
        """

    def commit_record(self, record: SourceRecord) -> None:
        """The worker is done with a record: Kafka acknowledged it, a transform dropped it, or it failed and was
        skipped.

        Called once for each record that ``poll`` returned (the same object), in the order of polls (a record that is
        done early waits for those before it), on a worker's thread; must be quick. It is not called for records that
        are still on their way when the task fails, nor for those a crash loses. An exception is logged and does no
        harm. Only called if it is overridden.

        May be written as Java's, ``commit_record(self, record, metadata)`` or with ``metadata=None``: the worker then
        calls it with what ``record_acknowledged`` is told, or with None for a record that was dropped or skipped.
        Source: KIP-416.
        """

    def record_acknowledged(self, record: SourceRecord, metadata: RecordMetadata) -> None:
        """Kafka has stored a record, and where. Called just before ``commit_record`` of the same record.

        Never called for dropped or skipped records. ``record`` is the object ``poll`` returned, before transforms;
        ``metadata`` has the topic after transforms. Called on a worker's thread; must be quick. An exception is logged
        and does no harm. Only called if it is overridden.
        Source: KIP-416.

        Args:
            record: As ``poll`` returned it.
            metadata: Topic and partition after transforms, offset, and timestamp in milliseconds.
        """

    def frame_acknowledged(self, frame: SourceFrame, places: Mapping[int, RecordMetadata]) -> None:
        """Kafka has stored a frame, and where: what ``record_acknowledged`` is for frames.

        Called just before ``commit_batch`` of the same frame, on a worker's thread; must be quick. Rows are stored in
        record batches, whose records have offsets without a gap: the places of its first and last row tell those of the
        rows between them, unless there are fewer offsets than rows, because a transform has dropped some. Never called
        for a frame of which nothing was stored. An exception is logged and does no harm. Only called if it is
        overridden.

        Args:
            frame: The frame as ``poll`` returned it.
            places: By row of the frame, ascending: where the first and the last row of each record batch are. Topic and
                partition are those after transforms; the offset is -1 where the producer waits for no answer
                (``acks=0``).

        Source: KIP-416, for frames.
        """

    def commit_batch(self, frame: SourceFrame, acknowledged: int) -> None:
        """The worker is done with a frame: what ``commit_record`` is for frames, without a call for each row.

        Called once for each frame that ``poll`` returned, in order, on a worker's thread; must be quick. It is not
        called for a frame of which a row is still on its way when the task fails. An exception is logged and does no
        harm.

        Args:
            frame: The frame as ``poll`` returned it.
            acknowledged: How many of its rows Kafka has stored; the others were dropped by a transform or skipped.
        """

    def wakeup(self) -> None:
        """Stop was asked: a waiting ``poll`` should return at once (with what it has, or None).

        Called on another thread than the task's, beside ``poll``, at most once, and never while ``start`` still runs;
        must not block. ``stop`` follows: on the task's thread if ``poll`` returns within two seconds. A ``poll`` that
        waits on ``self.context.stopping`` needs no ``wakeup``.
        """

    def stop(self) -> None:
        """Ends: releases what ``start`` opened, and lets a ``poll`` return that still waits.

        Called once. Usually that is on the task's thread, when nothing else of the task runs or will run. When ``poll``
        has not returned two seconds after ``context.stopping`` was set and ``wakeup`` was called, ``stop`` comes from
        another thread, beside that ``poll``; the acknowledgement hooks and a last ``commit`` may follow it then.
        Everything else is as for ``Task.stop``.
        Source: the documentation of Kafka Connect, "Task Example - Source Task".
        """


class FrameSourceTask(SourceTask):
    """Reads from a system, a whole frame at a time: its rows never become Python objects.

    Everything is as for ``SourceTask``, except that ``poll`` returns a ``SourceFrame`` (or a ``BulkFrame`` of
    ``penstock.api.bulk``, which executors of Spark write themselves), and that ``commit_batch`` takes
    the place of ``commit_record`` and ``record_acknowledged``.

    Source: Penstock's own; Java Connect has no columnar tasks.
    """

    @abstractmethod
    def poll(self) -> SourceFrame | BulkFrame | None:
        """The next frame, or None: nothing now. The rest is as for ``SourceTask.poll``."""
