"""Source tasks, which read from a system and return records (``SourceTask``) or whole frames (``FrameSourceTask``).

Owning thread: the task's thread, unless a method says otherwise.

``SourceTask.plan_backfill`` and ``SourceTask.backfill`` read a range once more, next to the running connector:
``BackfillSpan`` is the requested range, ``BackfillPart`` a piece of work that the source has planned for it. Both are
values.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.api.connector import OffsetStorageReader, Task, TaskContext
from penstock.api.frames.frame import SourceFrame
from penstock.api.record import RecordMetadata, SourceRecord
from penstock.errors import BadRequestException, IllegalWorkerStateException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.api.bulk import BulkFrame
    from penstock.api.partitioned import Chunk


@dataclass(frozen=True, slots=True)
class BackfillSpan:
    """The range of a backfill: of times, or of positions.

    Attributes:
        start_ms: Rows that are not older than this time, in milliseconds since 1970; None for a range of positions.
        end_ms: Rows that are older than this time; set together with ``start_ms``.
        first: The first position, a text or a whole number; None for a range of times.
        end: The exclusive end position.
        of: The name of a table, file or other part of the source; None for all of them.

    Source: Penstock's own.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    first: str | int | None = None
    end: str | int | None = None
    of: str | None = None

    def times(self, advice: str) -> tuple[int, int]:
        """The first time and the exclusive end, in milliseconds since 1970.

        Args:
            advice: What to do if there are no times: the end of a sentence.

        Raises:
            BadRequestException: It goes by positions.
        """
        if self.start_ms is None or self.end_ms is None:
            raise BadRequestException(f"The range is one of positions, {self.first} to {self.end}: {advice}")
        return self.start_ms, self.end_ms

    def positions(self, advice: str) -> tuple[str | int, str | int]:
        """The first position and the exclusive end.

        Args:
            advice: What to do where there are none: the end of a sentence.

        Raises:
            BadRequestException: It goes by times.
        """
        if self.first is None or self.end is None:
            raise BadRequestException(f"The range is one of times: {advice}")
        return self.first, self.end

    def numbers(self, advice: str) -> tuple[int, int]:
        """The positions as whole numbers.

        Args:
            advice: What to do where they are none: the end of a sentence.

        Raises:
            BadRequestException: It goes by times, one of them is no whole number, or the second is not the greater one.

        >>> BackfillSpan(first="7", end=9).numbers("give whole numbers")
        (7, 9)
        """
        found = self.positions(advice)
        try:
            first, end = (int(one) for one in found)
        except ValueError:
            raise BadRequestException(
                f"The range is {found[0]} to {found[1]}, of which one is no number: {advice}"
            ) from None
        if not first < end:
            raise BadRequestException(
                f"The range {first} to {end} is empty: the end is exclusive, so it must be larger"
            )
        return first, end


@dataclass(frozen=True, slots=True)
class BackfillPart:
    """A piece of a backfill, read by one task from its start to its end.

    Attributes:
        partition: The source partition of its records, a map of primitives.
        reads: The range in the source's own terms, as JSON values: users see it, and ``backfill`` gets only this
            description.
        rows: The number of rows, or an upper bound; None if it is unknown without reading them.

    Source: Penstock's own.
    """

    partition: Mapping[str, Any]
    reads: Mapping[str, Any]
    rows: int | None = None

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        return {"partition": dict(self.partition), **self.reads, "rows": self.rows}


def _no_backfills(source: object) -> NotImplementedError:
    return NotImplementedError(f"{type(source).__name__} has no backfills: override plan_backfill() and backfill()")


class TransactionBoundary(Enum):
    """The places where transactions end with exactly-once delivery: the values of ``transaction.boundary``.

    Source: org.apache.kafka.connect.source.SourceTask.TransactionBoundary, KIP-618.
    """

    POLL = "poll"
    INTERVAL = "interval"
    CONNECTOR = "connector"


class TransactionContext(ABC):
    """Lets a task define where transactions end. Only workers with exactly-once delivery implement it.

    Thread: the task's. Source: org.apache.kafka.connect.source.TransactionContext, KIP-618.
    """

    @abstractmethod
    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Requests a commit after the next batch that ``poll`` returns, or after this record of it."""

    @abstractmethod
    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Requests that everything read since the last commit is discarded, after the next batch or after this record
        of it.
        """


class SourceTaskContext(TaskContext):
    """The interface through which a source task makes requests of the worker. The worker implements it.

    Attributes:
        stopping: An event, set when the task has to stop. A ``poll`` that waits for data should wait on it,
            ``self.context.stopping.wait(0.1)``, instead of sleeping.
        is_preview: True in a preview, which shows only some records and commits nothing: a task that normally commits
            preparatory positions first must read at once.

    Thread: any.
    Source: org.apache.kafka.connect.source.SourceTaskContext.
    """

    stopping: threading.Event
    is_preview: bool = False

    @abstractmethod
    def offset_storage_reader(self) -> OffsetStorageReader:
        """A reader of the committed source offsets, from which the task resumes.

        Raises:
            ConnectException: From the reader, after the task was abandoned.
        """

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """Moves the position of a source partition without a record.

        The position comes after all records that ``poll`` has returned so far, including those of the running ``poll``,
        or of the next one if none is running. The worker commits it once Kafka has all these records of the same source
        partition, within about a second, without waiting for ``offset.flush.interval.ms``. With exactly-once delivery
        it is part of the transaction of the last of these records, or of a separate transaction. A ``poll`` that raises
        commits nothing; its moves wait for the next one.

        Args:
            partition: The source partition, a map of primitives.
            offset: Where to resume; None: the stored offset of the source partition is deleted.

        Raises:
            DataException: The partition or offset cannot be stored.
            NotImplementedError: The context does not come from a worker and does not override this method.

        Source: Penstock's own.
        """
        raise NotImplementedError(f"{type(self).__name__} moves no positions: override advance()")

    def transaction_context(self) -> TransactionContext | None:
        """Returns the context for defining transaction boundaries, or None unless ``transaction.boundary=connector``.

        A standalone worker has no transactions and always answers None.
        """
        return None

    def spark(self) -> SparkSession:
        """The worker's Spark session, for a task that reads with Spark. Waits until the session is up.

        The session can be lost and replaced at any time: call this method in every ``poll``, and never make a session
        with ``SparkSession.builder``. If a task fails after a session that it used was lost, it does not become FAILED:
        the worker restarts it from its committed offsets, so that it can rebuild its state.

        Raises:
            IllegalWorkerStateException: This context has no session: a test made it.
            SparkUnavailableException: The session cannot start, or it is down while the task stops. Do not catch it.
        """
        raise IllegalWorkerStateException("This context has no Spark session; a worker's has one")


class SourceTask(Task):
    """Reads from a system, record by record.

    Lifecycle: ``poll`` repeatedly until the task has to stop. Records go through transforms and converters to Kafka in
    the order they were returned; the offset of a source partition is committed up to the first record that Kafka has
    not acknowledged.

    Attributes:
        context: The task's interface to the worker; available after ``initialize``.

    Thread: the task's own for ``start``, ``poll`` and ``stop``; ``stop`` comes from another thread if ``poll`` does not
    return. The hooks ``commit``, ``commit_record``, ``record_acknowledged``, ``frame_acknowledged`` and
    ``commit_batch`` come from threads of the worker, concurrently with ``poll``: state shared with ``poll`` needs a
    lock.
    Source: org.apache.kafka.connect.source.SourceTask; KIP-416 for the acknowledgement hooks.
    """

    TRANSACTION_BOUNDARY_CONFIG: ClassVar[str] = "transaction.boundary"

    context: SourceTaskContext

    def initialize(self, context: SourceTaskContext) -> None:
        """Stores the context. Called once, before ``start``. An override must call ``super().initialize``."""
        self.context = context

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | SourceFrame | BulkFrame | None:
        """Returns the next records, in order.

        Called repeatedly on the task's thread, except while the task is paused. May wait for data for a limited time (a
        second is a good bound), and should return at once when ``self.context.stopping`` is set or ``wakeup`` is
        called. Two seconds later the worker calls ``stop`` from another thread, to end a ``poll`` that waits for
        anything else; records that such a ``poll`` then returns are delivered, and an exception from it does not fail
        the task. Return None or an empty list if there is nothing now; the worker then waits a moment before the next
        call.

        Returned records belong to the worker; do not change them. They are not in Kafka yet: ``commit_record`` and
        ``commit`` tell when they are.

        Raises:
            RetriableException: (or KafkaRetriableException) Called again after ``retry_after_s`` of the error, or
                otherwise after a wait that grows up to ``source.retry.delay.max.ms``.
            Exception: Any other makes the task FAILED, after earlier records have been delivered and committed.
        """

    def commit(self) -> None:
        """Tells the task that its offsets were committed: a source that keeps its own position may move it now.

        Called on a worker's thread after each successful offset commit, even if nothing new was committed. The commit
        may cover less than ``poll`` has returned; use ``commit_record`` to learn which records are safe. May block, but
        the next commit waits for it. An exception is logged and has no other effect.
        """

    def commit_record(self, record: SourceRecord) -> None:
        """Tells the task that the worker is done with a record: Kafka acknowledged it, a transform dropped it, or it
        failed and was skipped.

        Called once for each record that ``poll`` returned (the same object), in the order of polls (a record that is
        done early waits for those before it), on a worker's thread; must be quick. Not called for records that are
        still in flight when the task fails, or that a crash loses. An exception is logged and has no other effect.
        Called only if it is overridden.

        It may be written like Java's, ``commit_record(self, record, metadata)`` or with ``metadata=None``: the worker
        then passes the metadata of ``record_acknowledged``, or None for a dropped or skipped record.
        Source: KIP-416.
        """

    def record_acknowledged(self, record: SourceRecord, metadata: RecordMetadata) -> None:
        """Tells the task that Kafka has stored a record, and where. Called just before ``commit_record`` of the same
        record.

        Never called for dropped or skipped records. ``record`` is the object ``poll`` returned, before transforms;
        ``metadata`` has the topic after transforms. Called on a worker's thread; must be quick. An exception is logged
        and has no other effect. Called only if it is overridden.
        Source: KIP-416.

        Args:
            record: As ``poll`` returned it.
            metadata: Topic and partition after transforms, offset, and timestamp in milliseconds.
        """

    def frame_acknowledged(self, frame: SourceFrame, places: Mapping[int, RecordMetadata]) -> None:
        """Tells the task that Kafka has stored a frame, and where: the counterpart of ``record_acknowledged`` for
        frames.

        Called just before ``commit_batch`` of the same frame, on a worker's thread; must be quick. Rows are stored in
        record batches, whose records have consecutive offsets: the positions of the first and last row give the
        positions of the rows between them, unless a transform has dropped rows, so that there are fewer offsets than
        rows. Never called for a frame without stored rows. An exception is logged and has no other effect. Called only
        if it is overridden.

        Args:
            frame: The frame as ``poll`` returned it.
            places: The position of the first and the last row of each record batch, by row of the frame, ascending.
                Topic and partition are those after transforms; the offset is -1 if the producer waits for no
                acknowledgement (``acks=0``).

        Source: KIP-416, for frames.
        """

    def commit_batch(self, frame: SourceFrame, acknowledged: int) -> None:
        """Tells the task that the worker is done with a frame: the counterpart of ``commit_record``, with one call for
        all rows.

        Called once for each frame that ``poll`` returned, in order, on a worker's thread; must be quick. Not called for
        a frame with rows that are still in flight when the task fails. An exception is logged and has no other effect.

        Args:
            frame: The frame as ``poll`` returned it.
            acknowledged: The number of its rows that Kafka has stored; the other rows were dropped by a transform or
                skipped.
        """

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        """Plans a backfill: the pieces of this task's share that are to be read once more.

        Called on an instance of its own, between ``start`` and ``stop``, without ``poll``; on a thread of the worker's.
        Its context has no committed offsets. May ask the source, and be called for a dry run only. A source that has no
        backfills leaves this and ``backfill`` out.

        Args:
            span: The range that was asked for.

        Returns:
            The pieces; none if the whole range belongs to other tasks.

        Raises:
            BadRequestException: The range is none of this source, or it can have no backfill as it is configured. The
                text says why and what to do.
            NotImplementedError: There are no backfills of this source.

        Source: Penstock's own.
        """
        raise _no_backfills(self)

    def backfill(
        self, part: BackfillPart, offset: Mapping[str, object] | None
    ) -> Iterator[Chunk | SourceFrame | BulkFrame | Sequence[SourceRecord]]:
        """Reads a piece of a backfill once, from its start to its end.

        A generator, called on an instance of its own, between ``start`` and ``stop``, in place of ``poll`` and with its
        promises: it checks ``context.stopping``, and a ``RetriableException`` asks for another call. The worker
        keeps the yielded offsets for this backfill only, and does not call the task's hooks for its records: the
        running connector stays as it is.

        Args:
            part: A result of ``plan_backfill``, perhaps of another instance.
            offset: The offset after the last yielded row, after a ``RetriableException``; None to begin at the start.

        Yields:
            Rows: a ``Chunk`` of the source partition of ``part``; or what ``poll`` returns.

        Source: Penstock's own.
        """
        raise _no_backfills(self)

    def wakeup(self) -> None:
        """Tells the task to stop: a waiting ``poll`` should return at once, with the records it has, or None.

        Called on a different thread than the task's, concurrently with ``poll``, at most once, and never during
        ``start``; must not block. ``stop`` follows: on the task's thread if ``poll`` returns within two seconds. A
        ``poll`` that waits on ``self.context.stopping`` needs no ``wakeup``.
        """

    def stop(self) -> None:
        """Ends: releases the resources of ``start``, and makes a waiting ``poll`` return.

        Called once. Usually that is on the task's thread, after everything else of the task has ended. If ``poll`` has
        not returned two seconds after ``context.stopping`` was set and ``wakeup`` was called, ``stop`` comes from
        another thread, concurrently with that ``poll``; the acknowledgement hooks and a last ``commit`` may follow it
        then. Everything else is as for ``Task.stop``.
        Source: the documentation of Kafka Connect, "Task Example - Source Task".
        """


class FrameSourceTask(SourceTask):
    """Reads from a system, a whole frame at a time: its rows never become Python objects.

    Everything is as for ``SourceTask``, except that ``poll`` returns a ``SourceFrame`` (or a ``BulkFrame`` of
    ``penstock.api.bulk``, which Spark executors write themselves), and that ``commit_batch`` replaces
    ``commit_record``, and ``frame_acknowledged`` replaces ``record_acknowledged``.

    Source: Penstock's own; Java Connect has no columnar tasks.
    """

    @abstractmethod
    def poll(self) -> SourceFrame | BulkFrame | None:
        """Returns the next frame, or None if there is nothing now. The rest is as for ``SourceTask.poll``."""
