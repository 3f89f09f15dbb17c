"""Sources with many partitions (tables, files, feeds), each with its own position.

``PartitionedSource`` lists the partitions, and ``PartitionedTask`` reads them (``ReadingTask`` uses the ``read`` of the
source).

Owning thread: the connector's and the task's, as for every connector; each ``PartitionedSource`` also has a thread,
``partitions``, on which it lists the partitions again.
"""

from __future__ import annotations

import contextvars
import json
import logging
import random
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.api.connector import SourceConnector
from penstock.api.frames.frame import SourceFrame
from penstock.api.source import FrameSourceTask, _no_backfills
from penstock.config import find_class, import_class
from penstock.data import Schema
from penstock.errors import ConnectException, IllegalWorkerStateException, RetriableException

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.api.connector import Task
    from penstock.api.source import BackfillPart, BackfillSpan

log = logging.getLogger(__name__)

#: The task setting that holds its partitions. The connector sets it.
PARTITIONS_CONFIG = "task.partitions"
#: The setting of a ``ReadingTask`` that names the class of its source. The connector sets it.
SOURCE_CONFIG = "task.source.class"
#: The time that a connector's thread may take to end.
_END_S = 3.0
_MOMENT_S = 0.001

Partition = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The waits between retries after failures.

    Attributes:
        first_s: The wait after the first failure, in seconds.
        longest_s: The longest wait. Each wait is twice as long as the one before.
        jitter: The fraction of a wait that may be subtracted at random, so that many tasks do not retry at once.

    >>> [RetryPolicy(jitter=0).wait_s(failures) for failures in (1, 2, 3, 7, 100)]
    [1.0, 2.0, 4.0, 60.0, 60.0]

    Source: Penstock's own.
    """

    first_s: float = 1.0
    longest_s: float = 60.0
    jitter: float = 0.2

    def wait_s(
        self, failures: int, error: BaseException | None = None, chance: Callable[[], float] | None = None
    ) -> float:
        """The seconds to wait.

        Args:
            failures: The number of consecutive failures, 1 or more.
            error: The last failure; ``retry_after_s`` of a ``RetriableException`` takes precedence.
            chance: Returns a number from 0 to 1; None: Python's ``random``.
        """
        asked = getattr(error, "retry_after_s", None)
        if isinstance(asked, float):
            return asked
        wait = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 40))
        return wait * (1 - self.jitter * (chance or random.random)())


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Rows of one partition, in order, and the position after them.

    Attributes:
        data: The rows: a plain table or one with a column ``value``, as in ``SourceFrame``; or a list of schemaless
            values of one kind: texts, numbers, or dicts, where a missing field is null; None: only the position has
            moved, see ``SourceTaskContext.advance``.
        topic: The topic of the rows; None: ``data`` has a column ``topic``.
        offset: The position after the last row. None: taken from ``offset_columns``.
        offset_columns: The names of the columns that hold a position: the values of a row in these columns are the
            offset after the row. A mapping renames columns to fields of the offset. For dicts, names of fields.
        offset_after: A function that returns the position after a row, for positions that are not in columns.
        key: The names of the columns that form the key, a struct. For dicts, names of fields, which form a dict.
        value_schema: Schema of the values; None: derived from the columns.
        key_schema: Schema of the keys; None: derived from the columns.
        timestamp: Milliseconds of all rows; None: the time of sending.

    Source: Penstock's own.
    """

    data: pa.Table | Sequence[object] | None
    topic: str | None = None
    offset: Mapping[str, Any] | None = None
    offset_columns: Sequence[str] | Mapping[str, str] = ()
    offset_after: Callable[[int], Mapping[str, Any]] | None = None
    key: Sequence[str] = ()
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    timestamp: int | None = None

    def frame(self, partition: Partition) -> SourceFrame:
        """The chunk as a frame of a partition.

        Raises:
            ConnectException: The chunk has no position, names a missing column, or has values of several kinds.
        """
        from penstock.api.arrow import table_of_values

        data: Any = self.data
        if data is None:
            raise ConnectException(f"A Chunk of {dict(partition)} has no rows, only a position")
        table = rows = data
        key: Sequence[str] = self.key
        if isinstance(data, Sequence):
            table, rows = table_of_values(data, self.key)
            key = ()
        after = self.offset_after or self._by_columns(rows)
        last = self.offset
        if last is None and after is not None and table.num_rows:
            last = after(table.num_rows - 1)
        return SourceFrame.of(
            table,
            self.topic,
            key=key,
            value_schema=self.value_schema,
            key_schema=self.key_schema,
            source_partition=partition,
            source_offset=_there(last, partition),
            offset_after=after,
            timestamp=self.timestamp,
        )

    def position(self, partition: Partition) -> Mapping[str, Any]:
        """The position after the chunk, for a chunk without rows.

        Raises:
            ConnectException: The chunk has no position.
        """
        return _there(self.offset, partition)

    def _by_columns(self, table: pa.Table) -> Callable[[int], Mapping[str, Any]] | None:
        names = self.offset_columns
        columns = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        if not columns:
            return None
        lacking = [name for name in columns.values() if name not in table.column_names]
        if lacking:
            raise ConnectException(
                f"offset_columns names {', '.join(lacking)}, which the table has not; it has "
                f"{', '.join(table.column_names)}"
            )
        places = {field: table.column(name) for field, name in columns.items()}
        return lambda row: {field: column[row].as_py() for field, column in places.items()}


def _there(offset: Mapping[str, Any] | None, partition: Partition) -> Mapping[str, Any]:
    if offset is None:
        raise ConnectException(
            f"A Chunk of {dict(partition)} has no position: give it offset, or offset_columns and rows"
        )
    return offset


class PartitionedSource(SourceConnector):
    """A source connector that reads a list of partitions, which may change while it runs.

    Set ``config_class``, list the partitions in ``partitions``, and read one in ``read``. The connector calls
    ``partitions`` again every ``interval_s``; only tasks whose share has changed are reconfigured and restarted.

    ``read`` runs in the tasks: each task has its own instance of this class, which has ``props`` and ``settings`` but
    is never initialized or started. A source that keeps state between reads sets ``task_class`` to a subclass of
    ``PartitionedTask`` and implements ``read`` there.

    Attributes:
        interval_s: The interval between calls of ``partitions``, in seconds. Override it to use a setting.
        idle_s: See ``PartitionedTask``.
        retry_policy: See ``PartitionedTask``.

    Source: KIP-131, Motivation: a connector with a thread that monitors its source for changes.
    """

    interval_s: float = 60.0
    idle_s: float = 1.0
    retry_policy: RetryPolicy = RetryPolicy()
    _partitions: list[Partition]
    _shares: list[list[str]]
    _watching: threading.Thread | None = None
    _stop_watching: threading.Event

    def partitions(self) -> Sequence[Partition]:
        """Lists everything to read now: source partitions, maps of primitives.

        The default is a single partition, with the connector's name. Called by ``start`` on the connector's thread,
        later on the thread ``partitions``; may block for a while.

        Raises:
            RetriableException: The source cannot be reached: ``start`` is called again, see ``Connector.start``.
            ConnectException: It cannot be read. In ``start`` this makes the connector FAILED. Later, any error is
                logged once, and the call is repeated.
        """
        return [{"source": self.props.get("name", "")}]

    def read(self, partition: Partition, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """Reads the next chunks of one partition; see ``PartitionedTask.read``. Runs in a task, on a separate
        instance.
        """
        raise ConnectException(f"{type(self).__name__} has neither a method read() nor a task_class")

    def plan_backfill(self, partitions: Sequence[Partition], span: BackfillSpan) -> Sequence[BackfillPart]:
        """Plans a backfill of some partitions; see ``SourceTask.plan_backfill``. Runs on an instance of its own.

        Raises:
            NotImplementedError: There are no backfills of this source.
        """
        raise _no_backfills(self)

    def backfill(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """Reads a piece of a backfill; see ``SourceTask.backfill``. Runs in a task, on an instance of its own."""
        raise _no_backfills(self)

    if not TYPE_CHECKING:

        def task_class(self) -> type[Task]:
            """The task that calls ``read``."""
            return ReadingTask

    def start(self, props: Mapping[str, str]) -> None:
        """See ``Connector.start``. An override must call ``super().start`` last."""
        super().start(props)
        self._partitions = _distinct(self.partitions())
        if not hasattr(self, "_shares"):
            self._shares = []
        self._stop_watching = threading.Event()
        # In a copy of the connector's context, so that log lines name the connector.
        context = contextvars.copy_context()
        self._watching = threading.Thread(
            target=context.run, args=(self._watch, self._stop_watching), name="partitions", daemon=True
        )
        self._watching.start()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The configuration with a share of the partitions for each task; no tasks if there are no partitions."""
        self._shares = share_out([_text(one) for one in self._partitions], self._shares, max_tasks)
        made = dict(self.props)
        if self.task_class() is ReadingTask:
            made[SOURCE_CONFIG] = f"{type(self).__module__}.{type(self).__qualname__}"
        return [{**made, PARTITIONS_CONFIG: _list_of(share)} for share in self._shares]

    def stop(self) -> None:
        """See ``Connector.stop``. An override must call ``super().stop``."""
        super().stop()
        watching, self._watching = self._watching, None
        if watching is not None:
            self._stop_watching.set()
            watching.join(_END_S)

    def _watch(self, stopping: threading.Event) -> None:
        complaint = ""
        while not stopping.wait(self.interval_s):
            try:
                found = _distinct(self.partitions())
                complaint = ""
                if stopping.is_set():
                    return
                if {_text(one) for one in found} != {_text(one) for one in self._partitions}:
                    log.info("There are %d partitions to read now, %d before", len(found), len(self._partitions))
                    self._partitions = found
                    self.context().request_task_reconfiguration()
            except IllegalWorkerStateException:
                return
            except Exception as error:
                if complaint != str(error):
                    complaint = str(error)
                    log.warning("Cannot look for new partitions, trying again: %s", error)


class PartitionedTask(FrameSourceTask):
    """Reads its share of the partitions of a ``PartitionedSource`` in turn, one chunk from each.

    Implement ``read``. This class handles turns, offsets, pauses, and retries of a failing partition while the other
    partitions go on. When all partitions fail, ``poll`` raises the error of one of them.

    Attributes:
        idle_s: The wait before a partition whose ``read`` has ended is read again, in seconds.
        most_open: The most reads that are open at once; each may hold a connection or a file.
        retry_policy: The waits before a failed partition is read again.

    Source: Penstock's own.
    """

    idle_s: float = 1.0
    most_open: ClassVar[int] = 4
    retry_policy: RetryPolicy = RetryPolicy()
    #: The time that ``poll`` waits when there is nothing to read, in seconds.
    poll_limit_s: ClassVar[float] = 1.0
    _turns: list[_Turn]
    _clock: _Clock
    _next: int = 0
    _has_moved: bool = False

    def may_open(self, partition: Partition, reading: Sequence[Partition]) -> bool:
        """True if a partition may be opened in addition to the open ones; by default, fewer than ``most_open``."""
        return len(reading) < self.most_open

    @abstractmethod
    def read(self, partition: Partition, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """Reads the next chunks of one partition: yields chunks, and ends when there is nothing more for now.

        Called on the task's thread, again ``idle_s`` after it has ended. It is a generator, which the worker closes
        midway when the task stops: release resources in a ``finally``.

        Args:
            partition: One of the partitions that ``partitions`` returned.
            offset: The position after the last chunk, with the types that were stored; None: from the start.

        Raises:
            RetriableException: The partition cannot be read now. It is read again later, after ``retry_after_s`` of the
                error if that is set.
            ConnectException: It cannot be read, perhaps permanently. It is also retried, as long as other partitions
                can be read.
        """

    def start(self, props: Mapping[str, str]) -> None:
        """Finds the committed positions. An override must call ``super().start``."""
        super().start(props)
        partitions = assigned_partitions(props)
        positions = self.positions(partitions)
        self._clock = _Clock()
        self._turns = [_Turn(*one) for one in zip(partitions, positions, strict=True)]

    def positions(self, partitions: Sequence[Partition]) -> Sequence[Mapping[str, Any] | None]:
        """The start positions: by default, the committed offsets."""
        return self.context.offset_storage_reader().offsets(partitions)

    def poll(self) -> SourceFrame | None:
        """See ``FrameSourceTask.poll``."""
        left_s = self.poll_limit_s
        while not self.context.stopping.is_set():
            frame = self._round()
            if frame is not None or self._has_moved or left_s <= 0:
                boundaries = self.context.transaction_context()
                if boundaries is not None:
                    # A chunk is a transaction if the connector defines the boundaries; otherwise only positions have
                    # moved.
                    boundaries.commit_transaction()
                self._has_moved = False
                return frame
            now = self._clock.now()
            due_s = min((one.due - now for one in self._turns), default=left_s)
            # Wait at least a moment, so that the waits end however often a partition is due.
            wait_s = min(left_s, max(_MOMENT_S, due_s))
            self._clock.wait(self.context.stopping, wait_s)
            left_s -= wait_s
        return None

    def stop(self) -> None:
        """Closes the open reads. An override must call ``super().stop``."""
        super().stop()
        for one in getattr(self, "_turns", []):
            one.close()

    def _round(self) -> SourceFrame | None:
        """Visits each partition once, from where the last round stopped, up to the first one that has rows."""
        for _ in range(len(self._turns)):
            if self.context.stopping.is_set():
                return None
            one = self._turns[self._next]
            self._next = (self._next + 1) % len(self._turns)
            if one.chunks is None:
                reading = [turn.partition for turn in self._turns if turn.chunks is not None]
                if one.due > self._clock.now() or not self.may_open(one.partition, reading):
                    continue
                one.chunks = self.read(one.partition, one.offset)
            frame = self._chunk_of(one)
            if frame is not None:
                return frame
        return None

    def _chunk_of(self, one: _Turn) -> SourceFrame | None:
        assert one.chunks is not None
        try:
            chunk = next(one.chunks, None)
            if chunk is not None and chunk.data is None:
                one.offset = chunk.position(one.partition)
                self.context.advance(one.partition, one.offset)
                self._has_moved = True
                one.recovered()
                return None
            frame = None if chunk is None else chunk.frame(one.partition)
        except Exception as error:
            one.failed(error, self._clock.now() + self.retry_policy.wait_s(one.failures + 1, error))
            self._raise_if_all_failed()
            return None
        one.recovered()
        if frame is None:
            one.close()
            one.due = self._clock.now() + self.idle_s
            return None
        one.offset = frame.source_offset
        return frame

    def _raise_if_all_failed(self) -> None:
        errors = [one.error for one in self._turns if one.error is not None]
        if len(errors) < len(self._turns):
            return
        error = next((error for error in errors if isinstance(error, RetriableException)), errors[-1])
        if isinstance(error, RetriableException):
            # No need to poll until the first partition is due.
            wait_s = max(0.0, min(one.due for one in self._turns) - self._clock.now())
            raise RetriableException(str(error), retry_after_s=wait_s) from error
        raise error


class ReadingTask(PartitionedTask):
    """Reads with the ``read`` of its source's class, on a separate instance.

    Source: Penstock's own.
    """

    _source: PartitionedSource

    def start(self, props: Mapping[str, str]) -> None:
        """Makes the instance that reads, and finds the committed positions."""
        name = props.get(SOURCE_CONFIG, "")
        found = import_class(name)
        if not issubclass(found, PartitionedSource):
            raise ConnectException(f"The task setting '{SOURCE_CONFIG}' names {name}, which is no PartitionedSource")
        self._source = found()
        self._source.props = dict(props)
        if found.config_class is not None:
            self.settings = self._source.settings = found.config_class.parse(props, resolve_class=find_class)
        self.idle_s, self.retry_policy = self._source.idle_s, self._source.retry_policy
        super().start(props)

    def read(self, partition: Partition, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``PartitionedTask.read``."""
        return self._source.read(partition, offset)

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        """See ``SourceTask.plan_backfill``."""
        return self._source.plan_backfill([one.partition for one in self._turns], span)

    def backfill(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``SourceTask.backfill``."""
        return self._source.backfill(part, offset)


class _Clock:
    """Measures a wait by its nominal length, because a test may pass an event whose waits are short."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def now(self) -> float:
        return time.monotonic() + self._ahead_s

    def wait(self, event: threading.Event, seconds: float) -> None:
        end = self.now() + seconds
        if not event.wait(seconds):
            self._ahead_s += max(0.0, end - self.now())


class _Turn:
    """The state of one partition of a task: its position, its open read, and when it is due."""

    def __init__(self, partition: Partition, offset: Mapping[str, Any] | None) -> None:
        self.partition = partition
        self.offset = offset
        self.chunks: Iterator[Chunk] | None = None
        self.due = 0.0
        self.error: Exception | None = None
        self.failures = 0

    def close(self) -> None:
        """Closes the open read."""
        chunks, self.chunks = self.chunks, None
        end = getattr(chunks, "close", None)
        if end is not None:
            try:
                end()
            except Exception as error:
                log.warning("The end of reading %s failed: %s", dict(self.partition), error)

    def failed(self, error: Exception, due: float) -> None:
        """Notes a failure and the time of the next try; logs it once, until the error changes."""
        self.close()
        self.failures += 1
        self.due = due
        if str(error) != str(self.error):
            log.warning("Cannot read %s, trying again: %s", dict(self.partition), error)
        self.error = error

    def recovered(self) -> None:
        """Notes that reading works again."""
        if self.error is not None:
            log.info("%s can be read again", dict(self.partition))
        self.error, self.failures = None, 0


def share_out(items: Sequence[str], before: Sequence[Sequence[str]], most: int) -> list[list[str]]:
    """Distributes items among at most ``most`` groups of nearly equal size, moving as few items as possible.

    >>> share_out(["a", "b", "c"], [], 2)
    [['a', 'c'], ['b']]
    >>> share_out(["a", "b", "c", "d"], [["a", "c"], ["b"]], 2)
    [['a', 'c'], ['b', 'd']]
    >>> share_out(["c", "d", "e"], [["a", "c"], ["b", "d"]], 5)
    [['c'], ['d'], ['e']]
    >>> share_out([], [["a"]], 2)
    []
    """
    there, count = set(items), min(len(items), most)
    groups = [[item for item in group if item in there] for group in before]
    groups = [group for group in groups if group][:count]
    groups += [[] for _ in range(count - len(groups))]
    placed = {item for group in groups for item in group}
    for item in items:
        if item not in placed:
            min(groups, key=len).append(item)
    while groups and max(map(len, groups)) - min(map(len, groups)) > 1:
        min(groups, key=len).append(max(groups, key=len).pop())
    return groups


def _distinct(partitions: Sequence[Partition]) -> list[Partition]:
    return list({_text(one): dict(one) for one in partitions}.values())


def _text(partition: Partition) -> str:
    return json.dumps(dict(partition), sort_keys=True, ensure_ascii=False)


def _list_of(texts: Sequence[str]) -> str:
    """Partitions as text for a configuration; escaped so that no dollar sign starts a placeholder."""
    return f"[{','.join(texts)}]".replace("$", "\\u0024")


def assigned_partitions(props: Mapping[str, str]) -> list[dict[str, Any]]:
    """The partitions of a task, for tasks of a ``PartitionedSource`` that are not a ``PartitionedTask``.

    Args:
        props: The task's configuration.

    Raises:
        ConnectException: The configuration has no list of partitions.

    Source: Penstock's own.
    """
    text = props.get(PARTITIONS_CONFIG)
    try:
        found = json.loads(text or "")
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConnectException(
            f"The task setting '{PARTITIONS_CONFIG}' is not a list of partitions: {text!r}. The connector makes it; it "
            "is not to be set by hand"
        )
    return found
