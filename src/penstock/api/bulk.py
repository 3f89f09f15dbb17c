"""Bulk work: large bounded reads and writes that Spark executors do themselves, so that no row passes through the
worker.

``FrameSourceTask.poll`` returns a ``BulkFrame`` instead of a ``SourceFrame``: executors convert its rows and write them
to Kafka. For a ``BulkSinkTask`` executors fetch ranges of topics, convert the messages and write them to the target.
The worker plans, counts, and commits offsets after all the work is done.

PySpark is imported for the type checker only. Frames and ranges do not change after they are handed over; a task's
methods name their threads.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.api.frames.frame import SinkFrame, SourceFrame
from penstock.api.record import TopicPartition
from penstock.api.sink import AnySinkTask
from penstock.data import Schema
from penstock.errors import DataException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RUN: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BulkFrame:
    """One run of bulk work, from a ``FrameSourceTask``.

    Columns, types and schemas are those of a ``SourceFrame`` over a Spark DataFrame, and the bytes in Kafka are the
    same. Rows of one Spark partition arrive in order; Spark partitions are written concurrently, in any order.

    Executors write each Spark partition in transactions of at most 200,000 rows, each with a marker that records the
    progress of the partition. If an executor, the worker or the job is lost, the work after the last marker is
    repeated. So the query has to be repeatable: the same rows in the same Spark partitions each time that ``data`` is
    called for this run.

    The worker commits everything that was polled before the run, and calls ``poll`` again when the run and its offset
    are committed. After a restart of the task ``poll`` has to return the
    unfinished run again: derive ``run`` and the query from the committed offset.

    Attributes:
        data: Makes the rows: a function from a Spark session to a lazy DataFrame. The worker calls it on one of its
            threads, at least once. The session belongs to this run, with the views and settings of the worker's
            session.
        topic: The topic of all rows; None: the DataFrame has a column ``topic``.
        source_partition: The part of the source that the rows come from: a map of primitives.
        source_offset: Position after the run, committed when all rows are in Kafka.
        run: The name of this run, unique among the runs of the connector: letters, digits, dots, underscores and
            hyphens, at most 100 characters.
        value_schema: Schema of the values; None = schemaless, and for a plain table: derived from its columns.
        key_schema: Schema of the keys; None = schemaless.
        timestamp: Milliseconds of all rows; None: the time of sending.
        partition: Kafka partition of all rows; None: the producer chooses.
        value_fields: Names of the columns that are the fields of the value; None: all columns of a plain table.
        transactions: False if the cluster does not allow transactional ids: a failure may then duplicate rows.

    Raises:
        DataException: The name of the run is invalid, or ``data`` is not a function.

    Source: Penstock's own.
    """

    data: Callable[[SparkSession], DataFrame]
    topic: str | None
    source_partition: Mapping[str, object]
    source_offset: Mapping[str, object]
    run: str
    value_schema: Schema | None = None
    key_schema: Schema | None = None
    timestamp: int | None = None
    partition: int | None = None
    value_fields: Sequence[str] | None = None
    transactions: bool = True

    def __post_init__(self) -> None:
        run: Any = self.run
        if not isinstance(run, str) or not _RUN.fullmatch(run):
            raise DataException(
                f"The run of a BulkFrame is {run!r}; it is a name of at most 100 letters, digits, dots, underscores "
                "and hyphens, which no other run of the connector has"
            )
        if not callable(self.data):
            raise DataException(
                f"The data of a BulkFrame is a {type(self.data).__name__}; it is a function that makes a Spark "
                "DataFrame of a session, so that it can be made again when the session is lost"
            )

    def as_source_frame(self) -> SourceFrame:
        """The same rows as a frame that the worker writes itself; lazy."""
        return SourceFrame(
            self.data,
            self.topic,
            self.value_schema,
            dict(self.source_partition),
            dict(self.source_offset),
            key_schema=self.key_schema,
            timestamp=self.timestamp,
            partition=self.partition,
            value_fields=None if self.value_fields is None else tuple(self.value_fields),
        )


@dataclass(frozen=True, slots=True, order=True)
class TopicRange:
    """A range of consecutive messages of one topic partition.

    Attributes:
        topic: The topic.
        partition: Its partition.
        start: The offset of the first message.
        end: The offset after the last message. Offsets in between may be missing.
        attempt: The id of the attempt at this range, on executors; empty on the worker.

    >>> TopicRange("orders", 3, 0, 200_000).name
    'orders-3-00000000000000000000-00000000000000200000'

    Source: Penstock's own.
    """

    topic: str
    partition: int
    start: int
    end: int
    attempt: str = ""

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def name(self) -> str:
        """A file name for the range: the same for every attempt, and sorted by offset."""
        return f"{self.topic}-{self.partition}-{self.start:020d}-{self.end:020d}"


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """The result of a range that an executor has written.

    Attributes:
        range: The range, with the successful attempt.
        file: The return value of ``write``.
        rows: The number of rows that ``write`` received.

    Source: Penstock's own.
    """

    range: TopicRange
    file: object
    rows: int


def split_ranges(ranges: Iterable[TopicRange], most: int) -> list[TopicRange]:
    """Cuts ranges into parts of at most the given number of offsets.

    >>> [(one.start, one.end) for one in split_ranges([TopicRange("t", 0, 5, 12)], 3)]
    [(5, 8), (8, 11), (11, 12)]

    Source: Penstock's own.
    """
    return [
        TopicRange(one.topic, one.partition, start, min(start + most, one.end))
        for one in ranges
        for start in range(one.start, one.end, most)
    ]


class WaitingRanges:
    """Decides which ranges are long enough for a file, or have waited long enough; for ``BulkSinkTask.plan``.

    Args:
        rows: How many offsets a file should have.
        seconds: How long fewer may wait.

    >>> waiting, at = WaitingRanges(100, 60.0), TopicRange("t", 0, 0, 250)
    >>> [one.end for one in waiting.plan([at], 0.0)]
    [100, 200]
    >>> rest = TopicRange("t", 0, 200, 260)
    >>> waiting.plan([rest], 1.0), [one.end for one in waiting.plan([rest], 61.0)]
    ([], [260])

    Thread: the task's. Source: Penstock's own.
    """

    def __init__(self, rows: int, seconds: float) -> None:
        self._rows, self._seconds = rows, seconds
        self._since: dict[tuple[TopicPartition, int], float] = {}

    def plan(self, ranges: Sequence[TopicRange], now: float) -> list[TopicRange]:
        """The ranges that are written now, for ``BulkSinkTask.plan``.

        Args:
            ranges: What there is.
            now: A clock that only grows, in seconds.
        """
        since: dict[tuple[TopicPartition, int], float] = {}
        found = []
        for one in split_ranges(ranges, self._rows):
            if one.end - one.start < self._rows:
                begun = since[one.place, one.start] = self._since.get((one.place, one.start), now)
                if now - begun < self._seconds:
                    continue
            found.append(one)
        self._since = since
        return found


class BulkSinkTask(AnySinkTask):
    """Writes large ranges of topics: Spark executors fetch, convert and write them; the worker plans and commits.

    Lifecycle: ``open`` when partitions are assigned; then repeatedly ``plan`` with the messages after the committed
    offsets, ``write`` on executors for each range of the plan, and ``commit``. The worker commits the group's offsets
    after ``commit`` has returned. It does not call ``flush`` or ``pre_commit``.

    Lost work is repeated: another attempt repeats a range, another job repeats the ranges of a job, and after a restart
    of the task the worker calls ``plan`` again. So ``write`` must make nothing visible to readers, and ``commit`` makes
    it visible: results of ``write`` without a ``commit`` do not count. If the target stores its position, return it
    from ``positions``: then each message is written exactly once.

    The task itself is pickled and sent to executors, without its ``context``: attributes set by ``start`` must be
    picklable, or ``__getstate__`` must leave them out.

    Attributes:
        range_rows: The most offsets in one range of the default ``plan``.

    Thread: the task's own, except for ``write``: the main thread of a Python worker of Spark.
    Source: Penstock's own.
    """

    range_rows: ClassVar[int] = 200_000

    def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets at which the target resumes, if the target stores them; called after ``open``.

        A partition whose committed offset is smaller resumes from there. Finish an interrupted ``commit`` here.
        """
        return {}

    def plan(self, ranges: Sequence[TopicRange]) -> Sequence[TopicRange]:
        """Decides what the next job writes; called repeatedly while there are messages.

        Args:
            ranges: The available messages, one range for each partition with new messages.

        Returns:
            The ranges of the job; one executor writes each of them. The ranges of a partition must be consecutive and
            begin at its first offset. No ranges: the task waits for more messages.
        """
        return split_ranges(ranges, self.range_rows)

    @abstractmethod
    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> object:
        """Writes the messages of a range to a place that no reader sees yet. Runs on executors.

        Args:
            topic_range: The range; include its ``attempt`` in file names.
            batches: Its messages after converters and transforms, in order: frames of equal schemas, as
                ``FrameSinkTask.put`` receives them, without a session. ``write`` must consume all of them. Report bad
                rows with ``isolate`` and ``self.context.report``.

        Returns:
            A picklable value for ``commit``; None if nothing was written.

        Raises:
            RetriableException: Another attempt may succeed; there are four attempts.
            Exception: The job fails, and four failed jobs in a row make the task FAILED.
        """

    @abstractmethod
    def commit(self, files: Sequence[WrittenRange], ends: Mapping[TopicPartition, int]) -> None:
        """Makes the results of a job visible. They are durable when it returns.

        Args:
            files: The ranges for which ``write`` returned something, in order of partitions and offsets.
            ends: The offset after the job, for each of its partitions.

        Raises:
            RetriableException: Called again with the same arguments.
            Exception: Any other makes the task FAILED; nothing is committed.
        """

    def __getstate__(self) -> dict[str, object]:
        """The state that is sent to executors."""
        return {name: value for name, value in vars(self).items() if name != "context"}
