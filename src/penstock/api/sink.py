"""Sink tasks: they are given records (``SinkTask``) or whole frames (``FrameSinkTask``) and put them into a system.

Owning thread: the task's thread, for every method.

Offsets of a sink that live in the database it writes to, and move in the transaction that writes the rows.

Main type: `OffsetsInTarget`.

Owning thread: the task's.
Source: Penstock's own.
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
from penstock.api.frames.frame import SinkFrame, ValueForm
from penstock.api.frames.rows import OF_NO_ROW, Rows
from penstock.api.metrics import PluginMetrics
from penstock.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from penstock.errors import ConnectException, IllegalWorkerStateException, OwnershipLostException, RetriableException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.api.frames.frame import SinkFrame


class ErrantRecordReporter(ABC):
    """Takes records a task could not put, as ``errors.tolerance`` says. Source: KIP-610.

    Thread: any.
    """

    @abstractmethod
    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Reports a record: log, dead letter queue. The task goes on with the next record.

        Does not wait: the future is done when the report is stored. Offsets past the record are not committed before
        that.

        Args:
            record: As it was given to ``put``, or a copy by ``new_record``. The message it came from is repeated as it
                was read, until its offset is committed; that of a record the task made itself is what the connector's
                converters make of it.
            error: Why; its class and text are in the report.

        Returns:
            Done when every reporter has stored the report. It never holds an exception.

        Raises:
            ConnectException: ``errors.tolerance`` does not allow it; let it pass, the task fails.
        """


class Closing(int):
    """A truth value that may be called, too. Source: KIP-275, where ``isClosing`` is a method."""

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
        ``plugin_metrics`` may be used from others.
    Source: org.apache.kafka.connect.sink.SinkTaskContext; KIP-275 for ``is_closing``.

    Raises:
        IllegalWorkerStateException: From every method, before the task is initialized or after it was closed.
    """

    @abstractmethod
    def configs(self) -> dict[str, str]:
        """The task's newest configuration, with placeholders replaced again (a secret may have changed)."""

    @overload
    def offset(self, offsets: TopicPartition, offset: int) -> None: ...

    @overload
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    @abstractmethod
    def offset(self, offsets: TopicPartition | Mapping[TopicPartition, int], offset: int | None = None) -> None:
        """Rewinds partitions: records from these offsets on are delivered next.

        For tasks that keep offsets in their own system: call it in ``open``. Takes effect before the next ``put``, and
        also becomes the committed position.
        """

    @abstractmethod
    def timeout(self, timeout_ms: int) -> None:
        """The next call of ``put`` comes after at most this time, with or without records; used once.

        Without records a ``SinkTask`` is given an empty list, a ``FrameSinkTask`` a frame without rows. For work that
        the clock triggers again and again there is ``every``.

        With RetriableException raised from ``put``: how long to wait before the same records come again, where the
        error has no ``retry_after_s``.
        """

    def every(self, seconds: float, call: Callable[[], object]) -> Callable[[], None]:
        """Calls a function again and again, on the task's thread, between two calls of ``put``.

        The first call comes after ``seconds``, also on a quiet topic, while the connector is paused, and while ``put``
        waits for its next try; a later one as long after the beginning of the one before. A call that cannot be made in
        time, because ``put`` is at work, comes late, and those missed are not made up for. None comes from the last
        ``pre_commit`` of the task on.

        Errors are as for ``put``: after RetriableException the function is called again, when that says, after
        ``timeout`` or the default back-off, and nothing is put before that; any other exception makes the task FAILED.

        Args:
            seconds: From one call to the next; may be a fraction.
            call: Takes no arguments.

        Returns:
            A function that ends the calls.

        Raises:
            ValueError: ``seconds`` is not above 0, or ``call`` cannot be called.
            NotImplementedError: From a context that is none of a worker's and does not override it.

        Source: Penstock's own.
        """
        raise NotImplementedError(f"{type(self).__name__} has no clock: override every()")

    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this task has now."""

    @abstractmethod
    def pause(self, *partitions: TopicPartition) -> None:
        """No records of these partitions until ``resume``; lasts until they are taken away.

        Raises:
            IllegalWorkerStateException: One of them is not assigned.
        """

    @abstractmethod
    def resume(self, *partitions: TopicPartition) -> None:
        """Records of these partitions again.

        Raises:
            IllegalWorkerStateException: One of them is not assigned.
        """

    @abstractmethod
    def request_commit(self) -> None:
        """Asks for an offset commit before the next ``put``; a hint."""

    @abstractmethod
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """Returns the reporter for records that cannot be put, or None if error reporting is not configured."""

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        """Reports rows of a frame that cannot be put: log, dead letter queue. The task goes on with the other rows.

        The dead letter of a row is the message that it was made of: topic, partition, offset, key, value and headers as
        read, whatever transforms have made of it. Of a message that several rows were made of there is one. Does not
        wait, as ``ErrantRecordReporter.report``.

        Args:
            frame: As it was given to ``put``, or a part of it.
            rows: One row, some, or a mask, counted in ``frame``; none is fine.
            error: Why; its class and text are in the report.

        Returns:
            Done when every report is stored. It never holds an exception. Without a dead letter queue and a log of
            errors there is nothing to store: with ``errors.tolerance=all`` the rows are skipped.

        Raises:
            ConnectException: ``errors.tolerance`` does not allow it; let it pass, the task fails.
            IndexError: There is no such row.
            NotImplementedError: From a context that is none of a worker's and does not override it.

        Source: Penstock's own; KIP-610 for records.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no reports of rows: override report()")

    def blames_rows(self, error: BaseException) -> bool:
        """False if an error of a write says nothing of its rows: the system, or the Spark session, was away.

        ``isolate`` asks it, and then raises the error as it is.
        """
        return not isinstance(error, OF_NO_ROW)

    def plugin_metrics(self) -> PluginMetrics:
        """Returns the registry for the task's own metrics, which ``GET /metrics`` shows until the task ends.

        Source: KIP-877.

        Raises:
            NotImplementedError: From a context that is none of a worker's and does not override it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no plugin metrics: override plugin_metrics()")

    def spark(self) -> SparkSession:
        """The worker's Spark session, for a task that writes with Spark. Waits until it is up.

        It can be lost at any time, and another one takes its place: ask for it each time. A ``put``, or a function of
        ``every``, that fails because it was lost is called again; let the exception pass.

        Raises:
            IllegalWorkerStateException: This context has none: one that a test has made, or one in a process of its own
                (``task.isolation=process``).
            SparkUnavailableException: It cannot start, or is not there and the task is to stop. Let it pass.

        Source: Penstock's own.
        """
        raise IllegalWorkerStateException("This context has no Spark session; a worker's has one")

    @property
    @abstractmethod
    def is_closing(self) -> Closing:
        """True if this ``pre_commit`` is the last one for its partitions: a rebalance or the task's end follows.

        May be read, ``if self.context.is_closing:``, and called as in the proposal, ``self.context.is_closing()``.

        True from just before that ``pre_commit`` until its commit is done; False in ``put``, in ``pre_commit`` and
        ``flush`` of other commits, in ``close`` and in ``stop``. Source: KIP-275.
        """


class AnySinkTask(Task):
    """The common base of ``SinkTask`` and ``FrameSinkTask``: everything but ``put``. Subclass one of those.

    Loop: ``open`` when partitions come; then ``put`` again and again, with ``pre_commit`` between two calls of it every
    ``offset.flush.interval.ms``; ``pre_commit`` and ``close`` when partitions go; ``stop`` at the end.

    Attributes:
        context: What the task may ask of the worker; there from ``initialize`` on.

    Thread: the task's own, for every method; no two of them run at once.
    Source: org.apache.kafka.connect.sink.SinkTask.
    """

    TOPICS_CONFIG: ClassVar[str] = "topics"
    TOPICS_REGEX_CONFIG: ClassVar[str] = "topics.regex"

    context: SinkTaskContext

    def initialize(self, context: SinkTaskContext) -> None:
        """Takes the context. Called once, before ``start``. Overriding it: call this one too."""
        self.context = context

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions were assigned: make writers, or set where to read from with ``context.offset``.

        Called after ``start`` and at each rebalance with the new ones only, before any of their records. May block for
        a while (the consumer group waits).

        Raises:
            RetriableException: (or KafkaRetriableException) Called again after ``retry_after_s`` of the error, else
                after a wait that grows up to ``errors.retry.delay.max.ms``, with partitions that have come meanwhile.
                Nothing is put or committed before; what goes before it was opened is not closed.
            Exception: Any other makes the task FAILED.
        """

    def flush(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Makes everything put so far durable, and waits until it is.

        Called by the default ``pre_commit`` only. May block.

        Args:
            offsets: The positions after the last records put, for each partition.

        Raises:
            Exception: The offsets are not committed, and the task is rewound to the last committed ones: those records
                come again. The task does not fail.
        """

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Offsets are about to be committed: which of them are safe?

        Called every ``offset.flush.interval.ms``, after ``context.request_commit``, before partitions are taken away
        and before the task ends. May block. The default flushes everything and returns all of them.

        A task that buffers returns the positions up to which its records are durable, and keeps the rest for later.
        **Look at** ``self.context.is_closing``: when it is true, no later commit comes for these partitions. Flush what
        is buffered now and return those offsets; else the records of the buffer are read again by the next owner of the
        partitions, and the work on them is lost. When it is false, a buffer may go on filling.

        Args:
            offsets: The positions after the last records put, for each partition (those that go away, when closing).

        Returns:
            The positions to commit: at most those given. A partition left out keeps its committed position; an empty
            map commits nothing, for tasks that keep offsets in their own system.

        Raises:
            Exception: Nothing is committed. Unless closing, the task is rewound to the last committed offsets and those
                records come again. The task does not fail.
        """
        self.flush(offsets)
        return offsets

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions go away: close their writers, forget their records.

        Called after the last ``pre_commit`` for them, at rebalances and before ``stop``. When partitions were lost (the
        group went on without this task), there was no such ``pre_commit``: discard what is not durable. May block for a
        while. An exception makes the task FAILED.
        """


class SinkTask(AnySinkTask):
    """Puts records into a system, one list at a time. Source: org.apache.kafka.connect.sink.SinkTask."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Takes records, in order of their offsets within each partition. Need not make them durable: ``flush`` does.

        Called again and again; with an empty list when there is nothing (also while paused), so that time-based work
        can be done. May block, but a call longer than ``max.poll.interval.ms`` loses the partitions.

        Raises:
            RetriableException: (or KafkaRetriableException) The same records come again, after ``context.timeout`` or
                the default back-off; nothing else is delivered before.
            Exception: Any other makes the task FAILED. To skip a bad record instead, give it to
                ``context.errant_record_reporter()`` and go on.
        """


class FrameSinkTask(AnySinkTask):
    """Puts whole frames into a system: their rows never become Python objects.

    Attributes:
        value_form: How values are given; see ``ValueForm``.

    Source: Penstock's own; Java Connect has no columnar tasks.
    """

    value_form: ClassVar[ValueForm] = ValueForm.COLUMNS

    @abstractmethod
    def put(self, frame: SinkFrame) -> None:
        """Takes a frame. Need not make it durable: ``flush`` does.

        Called for each run of records with equal schemas; a null value is in the run around it. When there is nothing
        it is called, with a frame without rows, only if ``context.timeout`` has asked for that; ``context.every`` calls
        a function by the clock. ``frame.table`` is there already; ``frame.dataframe()`` is lazy, and an action on it
        runs a Spark job of its own. Errors are as for ``SinkTask.put``: after RetriableException the same frame comes
        again. Bad rows are given to ``context.report``, or found by ``isolate``.
        """


#: A cursor of the DB-API, in the caller's transaction; or a function that runs a statement there, and gives its rows.
RunStatement: TypeAlias = "Callable[[str, Sequence[object]], Sequence[Sequence[Any]]] | Any"

#: The offset of a partition of which nothing was written.
_NOTHING: Final = -1


class OffsetsInTarget:
    """The offsets of a sink task, in a table of its database: each record is written once.

    A task calls ``claim`` in ``open``, in a transaction; ``new`` in ``put``; ``move`` in the transaction that writes
    the rows, before it writes them; ``moved`` when that is committed; and ``forget`` in ``close``.

    A task that was replaced, because it was frozen or cut off, writes nothing: its ``move`` finds that another task has
    claimed the partition, or that the offset is not the one it left, and the transaction is to be rolled back. A
    ``claim`` waits for a transaction that has moved the offset, and then sees what it left.

    The table is ``penstock_offsets`` with the columns ``connector``, ``topic``, ``kafka_partition``, ``next_offset``
    (-1: nothing was written) and ``owner``, a name of the task. It works with databases that have INSERT .. ON CONFLICT
    and RETURNING (PostgreSQL, SQLite from 3.35, DuckDB), and with MySQL and MariaDB (InnoDB).

    Args:
        connector: The name of the connector.
        placeholder: Where parameters stand in a statement of the driver: ``?``, ``%s``, or ``$``, which is numbered:
            ``$1``, ``$2``.
        table: The name of the table, as it stands in SQL.
        mysql: True for MySQL and MariaDB, which have INSERT .. ON DUPLICATE KEY UPDATE.

    Attributes:
        owner: The name of this task, another one for each instance.

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
        """The statement that makes the table, if it is not there."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (connector VARCHAR(255) NOT NULL, topic VARCHAR(255) NOT NULL, "
            "kafka_partition BIGINT NOT NULL, next_offset BIGINT NOT NULL, owner VARCHAR(512) NOT NULL, "
            "PRIMARY KEY (connector, topic, kafka_partition))"
            # There the engine and the collation are the server's choice: these have transactions, and tell A from a.
            + (" ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if self._mysql else "")
        )

    def claim(self, run: RunStatement, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Makes this task the owner of partitions, and loads their offsets.

        Args:
            run: Runs statements in a transaction, which is to be committed before the first row is read; a cursor of
                the DB-API, or a function, as for all methods.
            partitions: As ``open`` is given them.

        Returns:
            Where to go on, for ``context.offset``; a partition of which nothing was written is not among them.
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
            ConnectException: A message lies before the offset where this task began: its topic was deleted and made
                again, so that the offsets of the table are those of other messages.
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
        """Moves offsets on, from where this task left them.

        Args:
            run: Runs statements in the transaction that writes the rows.
            reached: The offsets behind the rows, as ``frame.next_offsets()`` gives them.

        Raises:
            OwnershipLostException: Another task has claimed a partition. Roll the transaction back.
            RetriableException: The transaction before, whose end was not seen, was committed after all. Roll back; the
                frame comes again, without the rows that are written.
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
        """Moves an offset; False if it is not as this task left it."""
        as_left = not self._mysql or [tuple(one) for one in self._row(run, place)] == [(known, self.owner)]
        changed = as_left and _rows(run, statement, (offset, self._connector, *place, known, self.owner))
        return as_left if self._mysql else bool(changed)

    def moved(self, reached: Mapping[TopicPartition, int]) -> None:
        """Says that a transaction with this ``move`` was committed."""
        self._next.update(reached)

    def pending(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets that are behind those of the table."""
        return {place: offset for place, offset in reached.items() if offset > self._next.get(place, _NOTHING)}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions up, as ``close`` is given them. The table keeps their offsets."""
        for place in partitions:
            self._next.pop(place, None)
            self._claimed.pop(place, None)

    def alter(self, run: RunStatement, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Sets offsets, as ``alter_offsets`` of a connector is given them; None: nothing counts as written."""
        upsert = self._upsert("next_offset", "owner")
        delete = self._sql("DELETE FROM {table} WHERE connector = ? AND topic = ? AND kafka_partition = ?")
        for place, offset in sorted(offsets.items()):
            if offset is None:
                _rows(run, delete, (self._connector, *place))
            else:
                _rows(run, upsert, (self._connector, *place, offset, "offsets were set"))

    def _refused(self, run: RunStatement, place: TopicPartition) -> ConnectException:
        """The error of an offset that is not as this task left it."""
        found = self._row(run, place)
        where = f"topic {place.topic}, partition {place.partition}"
        if found and found[0][1] == self.owner and place in self._next:
            self._next[place] = int(found[0][0])
            return RetriableException(
                f"The rows of {where} were written up to the offset {found[0][0]} by a transaction whose end "
                "was not seen"
            )
        owner = f"another task ({found[0][1]})" if found else "nobody any more: its row was deleted"
        return OwnershipLostException(
            f"In {self._table} {where} of the connector {self._connector} belongs to {owner}. This task "
            f"({self.owner}) was replaced and has written nothing of these records; restart it if it is the only one"
        )

    def _row(self, run: RunStatement, place: TopicPartition) -> Sequence[Sequence[Any]]:
        """Offset and owner of a partition; MySQL is asked for what is committed now, and keeps it until then."""
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
        """A statement with the placeholders of the driver."""
        parts = statement.format(table=self._table).split("?")
        if self._placeholder != "$":
            return self._placeholder.join(parts)
        return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))


def _rows(run: Any, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
    """Runs a statement, and gives the rows that it returns."""
    execute = getattr(run, "execute", None)
    if execute is None:
        rows: Sequence[Sequence[Any]] = run(statement, parameters)
        return rows
    execute(statement, parameters)
    return run.fetchall() if run.description else []
