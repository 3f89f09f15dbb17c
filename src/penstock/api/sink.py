"""Sink tasks, which receive records (``SinkTask``) or whole frames (``FrameSinkTask``) and write them to a system.

Main types: ``SinkTask``, ``FrameSinkTask``, ``SinkTaskContext``, ``ErrantRecordReporter``; ``OffsetsInTarget`` keeps a
sink's offsets in the database that it writes to, in the same transaction as the rows.

Owning thread: the task's thread, for every method.
Source: org.apache.kafka.connect.sink; ``OffsetsInTarget`` is Penstock's own.
"""

from __future__ import annotations

import os
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, overload

from penstock.api.connector import Task, TaskContext
from penstock.api.frames.frame import OF_NO_ROW, Rows, SinkFrame, ValueForm
from penstock.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from penstock.errors import ConnectException, IllegalWorkerStateException, OwnershipLostException, RetriableException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ErrantRecordReporter(ABC):
    """Reports records that a task could not put, following ``errors.tolerance``. Source: KIP-610.

    Thread: any.
    """

    @abstractmethod
    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Reports a record to the log and the dead letter queue. The task goes on with the next record.

        Does not wait: the future completes when the report is stored. The worker does not commit offsets past the
        record before that.

        Args:
            record: The record that ``put`` received, or a copy by ``new_record``. The dead letter record repeats the
                original message bytes, if its offset is not committed yet; a record that the task made itself is
                converted by the connector's converters.
            error: The cause; the report contains its class and text.

        Returns:
            Completes when every reporter has stored the report. It never holds an exception.

        Raises:
            ConnectException: ``errors.tolerance`` does not allow the error. Do not catch it: it fails the task.
        """


class Closing(int):
    """A truth value that may also be called. Source: KIP-275, where ``isClosing`` is a method."""

    __slots__ = ()

    def __call__(self) -> bool:
        """The truth value itself."""
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))

    __str__ = __repr__


class SinkTaskContext(TaskContext):
    """The interface through which a sink task makes requests of the worker. The worker implements it.

    Thread: the task's; only ``configs``, ``request_commit``, ``errant_record_reporter``, ``report`` and
        ``plugin_metrics`` may be called from other threads.
    Source: org.apache.kafka.connect.sink.SinkTaskContext; KIP-275 for ``is_closing``.

    Raises:
        IllegalWorkerStateException: From every method, before ``initialize`` and after the task has closed.
    """

    @overload
    def offset(self, offsets: TopicPartition, offset: int) -> None: ...

    @overload
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    @abstractmethod
    def offset(self, offsets: TopicPartition | Mapping[TopicPartition, int], offset: int | None = None) -> None:
        """Sets the positions of partitions: the next ``put`` receives records from these offsets.

        Tasks that keep offsets in their own system call it in ``open``. It takes effect before the next ``put``, and
        the offsets also become the committed position.
        """

    @abstractmethod
    def timeout(self, timeout_ms: int) -> None:
        """Limits the time until the next call of ``put``, with or without records; used once.

        Without records a ``SinkTask`` receives an empty list, a ``FrameSinkTask`` a frame without rows. Use ``every``
        for periodic work.

        After ``put`` raises RetriableException this is the wait until the same records come again, unless the error has
        a ``retry_after_s``.
        """

    def every(self, seconds: float, call: Callable[[], object]) -> Callable[[], None]:
        """Calls a function periodically, on the task's thread, between two calls of ``put``.

        The first call comes after ``seconds``, also on a quiet topic, while the connector is paused, and while ``put``
        waits for a retry. Each later call comes ``seconds`` after the beginning of the one before. If ``put`` is
        running at that time the call comes late, and missed calls are dropped. No calls come after the last
        ``pre_commit`` of the task begins.

        Errors are as for ``put``: after RetriableException the worker calls the function again after the error's
        ``retry_after_s``, ``timeout`` or the default back-off, and calls no ``put`` before that; any other exception
        makes the task FAILED.

        Args:
            seconds: The interval; may be a fraction.
            call: A function without arguments.

        Returns:
            A function that ends the calls.

        Raises:
            ValueError: ``seconds`` is not above 0, or ``call`` cannot be called.
            NotImplementedError: The context does not come from a worker and does not override this method.

        Source: Penstock's own.
        """
        raise NotImplementedError(f"{type(self).__name__} has no clock: override every()")

    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned to this task now."""

    @abstractmethod
    def pause(self, *partitions: TopicPartition) -> None:
        """Stops delivery of records of these partitions until ``resume``, or until they are revoked.

        Raises:
            IllegalWorkerStateException: One of them is not assigned.
        """

    @abstractmethod
    def resume(self, *partitions: TopicPartition) -> None:
        """Continues delivery of records of these partitions.

        Raises:
            IllegalWorkerStateException: One of them is not assigned.
        """

    @abstractmethod
    def request_commit(self) -> None:
        """Asks for an offset commit before the next ``put``; a hint."""

    @abstractmethod
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Returns the reporter for records that the task cannot put, or None if error reporting is not configured."""

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        """Reports rows of a frame that the task cannot put to the log and the dead letter queue. The other rows are not
        affected.

        The dead letter record of a row is the message that the row comes from: topic, partition, offset, key, value and
        headers as read, before any transform. A message with several bad rows is reported once. Does not wait, like
        ``ErrantRecordReporter.report``.

        Args:
            frame: The frame that ``put`` received, or a part of it.
            rows: One row number, several, or a mask, relative to ``frame``; may be empty.
            error: The cause; the report contains its class and text.

        Returns:
            Completes when every report is stored. It never holds an exception. Without a dead letter queue and an error
            log there is nothing to store: with ``errors.tolerance=all`` the rows are skipped.

        Raises:
            ConnectException: ``errors.tolerance`` does not allow the error. Do not catch it: it fails the task.
            IndexError: A row does not exist.
            NotImplementedError: The context does not come from a worker and does not override this method.

        Source: Penstock's own; KIP-610 for records.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no reports of rows: override report()")

    def blames_rows(self, error: BaseException) -> bool:
        """False if the cause of a failed write is an outage of the system or the Spark session, not a bad row.

        ``isolate`` calls it, and raises such an error unchanged.
        """
        return not isinstance(error, OF_NO_ROW)

    def spark(self) -> SparkSession:
        """The worker's Spark session, for a task that writes with Spark. Waits until the session is up.

        The session can be lost and replaced at any time: call this method each time instead of keeping the session. If
        a ``put``, or a function of ``every``, fails because the session was lost, the worker calls it again; do not
        catch the exception.

        Raises:
            IllegalWorkerStateException: This context has no session: a test made it, or the task runs in a process of
                its own (``task.isolation=process``).
            SparkUnavailableException: The session cannot start, or it is down while the task stops. Do not catch it.

        Source: Penstock's own.
        """
        raise IllegalWorkerStateException("This context has no Spark session; a worker's has one")

    @property
    @abstractmethod
    def is_closing(self) -> Closing:
        """True if this ``pre_commit`` is the last one for its partitions: a rebalance or the task's end follows.

        Works as an attribute, ``if self.context.is_closing:``, and as the method of the KIP,
        ``self.context.is_closing()``.

        True from just before that ``pre_commit`` until its commit is done; False in ``put``, in ``pre_commit`` and
        ``flush`` of other commits, in ``close`` and in ``stop``. Source: KIP-275.
        """

    @property
    def is_backfill(self) -> bool:
        """True for a task that reads a range of the topics once more, while the tasks of the connector run.

        A sink that keeps offsets in its target writes such records without checking the offsets, and does not change
        them.
        It is the same from ``initialize`` to ``stop``. Source: Penstock's own.
        """
        return False

    @property
    def kafka_cluster_id(self) -> str | None:
        """The id of the worker's Kafka cluster; None where there is none, such as in a test.

        Names of connectors are unique within a cluster: a sink that keeps state in its target by the connector's name
        tells connectors of one name apart with it. Source: Penstock's own; the same id as that of ``GET /``.
        """
        return None


class AnySinkTask(Task):
    """The common base of ``SinkTask`` and ``FrameSinkTask``: everything except ``put``. Subclass one of these two.

    Lifecycle: ``open`` when partitions are assigned; then ``put`` repeatedly, with a ``pre_commit`` between two calls
    every ``offset.flush.interval.ms``; ``pre_commit`` and ``close`` when partitions are revoked; ``stop`` at the end.

    Attributes:
        context: The task's interface to the worker; available after ``initialize``.

    Thread: the task's own, for every method; no two of them run at once.
    Source: org.apache.kafka.connect.sink.SinkTask.
    """

    TOPICS_CONFIG: ClassVar[str] = "topics"
    TOPICS_REGEX_CONFIG: ClassVar[str] = "topics.regex"

    context: SinkTaskContext

    def initialize(self, context: SinkTaskContext) -> None:
        """Stores the context. Called once, before ``start``. An override must call ``super().initialize``."""
        self.context = context

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Prepares for newly assigned partitions: opens writers, or sets the read positions with ``context.offset``.

        Called after ``start``, and at each rebalance with the new partitions only, before any of their records. May
        block for a while (the consumer group waits).

        Raises:
            RetriableException: (or KafkaRetriableException) Called again after ``retry_after_s`` of the error, or
                otherwise after a wait that grows up to ``errors.retry.delay.max.ms``, with any partitions assigned
                meanwhile. Nothing is put or committed before it succeeds. Partitions that are revoked before it
                succeeds are not closed.
            Exception: Any other makes the task FAILED.
        """

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Makes everything put so far durable, and waits until it is.

        Called by the default ``pre_commit`` only. May block.

        Args:
            offsets: The position after the last record put, for each partition.

        Raises:
            Exception: The worker does not commit, rewinds the task to the last committed offsets, and delivers the
                records again. The task does not fail.
        """

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that are safe to commit.

        Called every ``offset.flush.interval.ms``, after ``context.request_commit``, before partitions are revoked and
        before the task ends. May block. The default flushes everything and returns all offsets.

        A task that buffers returns the positions up to which its records are durable, and keeps the rest for later.
        **Check** ``self.context.is_closing``: if it is true, no later commit comes for these partitions. Flush the
        buffer now and return its offsets; otherwise the next owner of the partitions reads the buffered records again.
        If it is false, the buffer may go on filling.

        Args:
            offsets: The position after the last record put, for each partition (when closing: for each revoked
                partition).

        Returns:
            The positions to commit: at most the given ones. A partition that is left out keeps its committed position;
            an empty map commits nothing, for tasks that keep offsets in their own system.

        Raises:
            Exception: Nothing is committed. Unless closing, the worker rewinds the task to the last committed offsets
                and delivers the records again. The task does not fail.
        """
        self.flush(offsets)
        return offsets

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Closes the writers of revoked partitions and forgets their records.

        Called after the last ``pre_commit`` for them, at rebalances and before ``stop``. If the task lost its
        partitions (the group went on without this task), no ``pre_commit`` came before: discard all records that are
        not durable. May block for a while. An exception makes the task FAILED.
        """


class SinkTask(AnySinkTask):
    """Puts records into a system, one list at a time. Source: org.apache.kafka.connect.sink.SinkTask."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Writes records, which are in order of their offsets within each partition. They need not be durable until
        ``flush``.

        The worker calls it with an empty list when there are no records (also while paused), so that the task can do
        time-based work. May block, but a call longer than ``max.poll.interval.ms`` loses the partitions.

        Raises:
            RetriableException: (or KafkaRetriableException) The same records come again, after ``context.timeout`` or
                the default back-off; nothing else is delivered before.
            Exception: Any other makes the task FAILED. To skip a bad record instead, pass it to
                ``context.errant_record_reporter()`` and go on.
        """


class FrameSinkTask(AnySinkTask):
    """Puts whole frames into a system: their rows never become Python objects.

    Attributes:
        value_form: The form of the values; see ``ValueForm``.

    Source: Penstock's own; Java Connect has no columnar tasks.
    """

    value_form: ClassVar[ValueForm] = ValueForm.COLUMNS

    @abstractmethod
    def put(self, frame: SinkFrame) -> None:
        """Writes a frame. The rows need not be durable until ``flush``.

        Called for each run of records with equal schemas; a null value belongs to the run around it. An idle task
        receives a frame without rows only after it called ``context.timeout``; use ``context.every`` for periodic work.
        ``frame.table`` is in memory; ``frame.dataframe()`` is lazy, and each action on it runs a Spark job. Errors are
        as for
        ``SinkTask.put``: after RetriableException the same frame comes again. Pass bad rows to ``context.report``, or
        let ``isolate`` find them.
        """


#: A DB-API cursor in the caller's transaction, or a function that runs a statement in it and returns the rows.
RunStatement: TypeAlias = "Callable[[str, Sequence[object]], Sequence[Sequence[Any]]] | Any"

#: The offset of a partition without written rows.
_NOTHING: Final = -1


class OffsetsInTarget:
    """Keeps the offsets of a sink task in a table of its database, so that each record is written exactly once.

    A task calls ``claim`` in ``open``, in a transaction; ``new`` in ``put``; ``move`` in the transaction that writes
    the rows, before it writes them; ``moved`` after the commit of that transaction; and ``forget`` in ``close``.

    A task that was frozen or cut off and then replaced cannot write: its ``move`` finds that another task has claimed
    the partition, or that the offset has changed, and raises, and the task rolls the transaction back. A ``claim``
    waits for a running transaction that has moved the offset, and then sees the moved offset.

    The table ``penstock_offsets`` has the columns ``connector``, ``topic``, ``kafka_partition``, ``next_offset`` (-1:
    nothing was written) and ``owner``, the name of the task instance. It works with databases that have INSERT .. ON
    CONFLICT and RETURNING (PostgreSQL, SQLite from 3.35, DuckDB), and with MySQL and MariaDB (InnoDB).

    Args:
        connector: The name of the connector.
        placeholder: The driver's parameter placeholder: ``?``, ``%s``, or ``$`` for numbered ones (``$1``, ``$2``).
        table: The name of the table, as written in SQL.
        mysql: True for MySQL and MariaDB, which have INSERT .. ON DUPLICATE KEY UPDATE.

    Attributes:
        owner: The name of this task instance, unique for each instance.

    Source: Penstock's own.
    """

    def __init__(
        self, connector: str, *, placeholder: str = "?", table: str = "penstock_offsets", mysql: bool = False
    ) -> None:
        self.owner = f"{socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex}"
        self._connector = connector
        self._placeholder = placeholder
        self._table = table
        self._mysql = mysql
        self._next: dict[TopicPartition, int] = {}
        self._claimed: dict[TopicPartition, int] = {}

    @property
    def create_statement(self) -> str:
        """The statement that creates the table if it does not exist."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (connector VARCHAR(255) NOT NULL, topic VARCHAR(255) NOT NULL, "
            "kafka_partition BIGINT NOT NULL, next_offset BIGINT NOT NULL, owner VARCHAR(512) NOT NULL, "
            "PRIMARY KEY (connector, topic, kafka_partition))"
            # MySQL servers have various default engines and collations; these have transactions and are case-sensitive.
            + (" ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if self._mysql else "")
        )

    def claim(self, run: RunStatement, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Makes this task the owner of partitions, and loads their offsets.

        Args:
            run: Runs statements in a transaction, which the caller must commit before it reads the first row; a DB-API
                cursor or a function, as for all methods.
            partitions: The partitions that ``open`` received.

        Returns:
            Where to resume, for ``context.offset``; partitions without written rows are left out.
        """
        statement = self._upsert("owner") + ("" if self._mysql else " RETURNING next_offset")
        for place in sorted(partitions):
            rows = _rows(run, statement, (self._connector, *place, _NOTHING, self.owner))
            found = int((self._row(run, place) if self._mysql else rows)[0][0])
            self._next[place] = self._claimed[place] = found
        return {place: self._next[place] for place in partitions if self._next[place] != _NOTHING}

    def new(self, frame: SinkFrame) -> SinkFrame:
        """The rows of a frame that are not written yet.

        Raises:
            ConnectException: A message has an offset below the one where this task began: its topic was deleted and
                created again, so the offsets in the table belong to the old topic.
        """
        read = frame.origin.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "min")])
        for one in read.to_pylist():
            place, first = TopicPartition(one["topic"], one["partition"]), one["offset_min"]
            if first < self._claimed.get(place, _NOTHING):
                raise ConnectException(
                    f"The topic {place.topic}, partition {place.partition}, was read from the offset {first}, and the "
                    f"table {self._table} says that all before {self._claimed[place]} is written: the topic was "
                    "deleted and made again. Reset the offsets of the connector to write its messages"
                )
        return frame.since({place: offset for place, offset in self._next.items() if offset != _NOTHING})

    def move(self, run: RunStatement, reached: Mapping[TopicPartition, int]) -> None:
        """Advances the offsets from where this task left them.

        Args:
            run: Runs statements in the transaction that writes the rows.
            reached: The offsets after the rows, as ``frame.next_offsets()`` returns them.

        Raises:
            OwnershipLostException: Another task has claimed a partition. Roll the transaction back.
            RetriableException: The previous transaction, whose outcome was unknown, was committed after all. Roll back;
                the frame comes again, without the written rows.
        """
        statement = self._sql(
            "UPDATE {table} SET next_offset = ? WHERE connector = ? AND topic = ? AND kafka_partition = ? "
            "AND next_offset = ? AND owner = ?" + ("" if self._mysql else " RETURNING next_offset")
        )
        for place, offset in sorted(reached.items()):
            known = self._next.get(place)
            if known is None or not self._move(run, statement, place, known, offset):
                raise self._refused(run, place)

    def _move(self, run: RunStatement, statement: str, place: TopicPartition, known: int, offset: int) -> bool:
        """Advances one offset; False if it is not as this task left it."""
        as_left = not self._mysql or [tuple(one) for one in self._row(run, place)] == [(known, self.owner)]
        changed = as_left and _rows(run, statement, (offset, self._connector, *place, known, self.owner))
        return as_left if self._mysql else bool(changed)

    def moved(self, reached: Mapping[TopicPartition, int]) -> None:
        """Confirms that the transaction of this ``move`` was committed."""
        self._next.update(reached)

    def pending(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets that are ahead of those in the table."""
        return {place: offset for place, offset in reached.items() if offset > self._next.get(place, _NOTHING)}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions; call it in ``close``. The table keeps their offsets."""
        for place in partitions:
            self._next.pop(place, None)
            self._claimed.pop(place, None)

    def alter(self, run: RunStatement, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Sets offsets, as ``Connector.alter_offsets`` receives them; None: nothing counts as written."""
        upsert = self._upsert("next_offset", "owner")
        delete = self._sql("DELETE FROM {table} WHERE connector = ? AND topic = ? AND kafka_partition = ?")
        for place, offset in sorted(offsets.items()):
            if offset is None:
                _rows(run, delete, (self._connector, *place))
            else:
                _rows(run, upsert, (self._connector, *place, offset, "offsets were set"))

    def _refused(self, run: RunStatement, place: TopicPartition) -> ConnectException:
        """The error for an offset that is not as this task left it."""
        found = self._row(run, place)
        where = f"topic {place.topic}, partition {place.partition}"
        if found and found[0][1] == self.owner and place in self._next:
            self._next[place] = int(found[0][0])
            return RetriableException(
                f"The rows of {where} were written up to the offset {found[0][0]} by a transaction whose end "
                "was not seen"
            )
        owner = f"another task ({found[0][1]})" if found else "no task: its row was deleted"
        return OwnershipLostException(
            f"In {self._table} {where} of the connector {self._connector} belongs to {owner}. This task "
            f"({self.owner}) was replaced and wrote none of these records; restart it if it is the only one"
        )

    def _row(self, run: RunStatement, place: TopicPartition) -> Sequence[Sequence[Any]]:
        """Offset and owner of a partition; on MySQL a locking read, which sees the latest commit and blocks later
        ones.
        """
        statement = "SELECT next_offset, owner FROM {table} WHERE connector = ? AND topic = ? AND kafka_partition = ?"
        return _rows(run, self._sql(statement + " FOR UPDATE" * self._mysql), (self._connector, *place))

    def _upsert(self, *changed: str) -> str:
        values = "INSERT INTO {table} (connector, topic, kafka_partition, next_offset, owner) VALUES (?, ?, ?, ?, ?) "
        if self._mysql:
            return self._sql(
                f"{values}ON DUPLICATE KEY UPDATE {', '.join(f'{one} = VALUES({one})' for one in changed)}"
            )
        new = ", ".join(f"{one} = excluded.{one}" for one in changed)
        return self._sql(f"{values}ON CONFLICT (connector, topic, kafka_partition) DO UPDATE SET {new}")

    def _sql(self, statement: str) -> str:
        """A statement with the driver's placeholders."""
        parts = statement.format(table=self._table).split("?")
        if self._placeholder != "$":
            return self._placeholder.join(parts)
        return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))


def _rows(run: Any, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
    """Runs a statement and returns its rows."""
    execute = getattr(run, "execute", None)
    if execute is None:
        rows: Sequence[Sequence[Any]] = run(statement, parameters)
        return rows
    execute(statement, parameters)
    return run.fetchall() if run.description else []
