"""Bulk work: big bounded reads and writes that Spark's executors do themselves, without a row in the worker.

Main types: ``BulkFrame``, which ``FrameSourceTask.poll`` returns in the place of a ``SourceFrame``: executors convert
its rows and write them to Kafka. ``BulkSinkTask``: executors fetch ranges of topics, convert the messages and write
them to the target. The worker plans, counts, and commits offsets once all of it is there.

PySpark is named for the type checker only.

Owning thread: none for frames and ranges, which are not changed once they are handed over; a task's methods say it.
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

    Columns, types and schemas are those of a ``SourceFrame`` over a Spark DataFrame, and so are the bytes that go to
    Kafka. Rows of one Spark partition arrive in order, Spark partitions in any order beside each other.

    Executors write each Spark partition in transactions of at most 200,000 rows, and in the same transaction a marker
    that says how far the partition is. Whatever is lost meanwhile, an executor, the worker, the job, is done again
    behind its markers. So the query has to be repeatable: the same rows in the same Spark partitions each time that
    ``data`` is called for this run.

    ``poll`` is called again when the run has ended. After a restart of the task it has to return the run that was
    under way: derive ``run`` and the query from the committed offset.

    Attributes:
        data: Makes the rows: a function from a Spark session to a lazy DataFrame, called on a thread of the worker's,
            once or more often. The session is one for this run, with the views and settings of the worker's.
        topic: The topic of all rows; None: there is a column ``topic``.
        source_partition: What part of the source the rows are from: a map of primitives.
        source_offset: Position behind the run, committed when all rows are in Kafka.
        run: The name of this piece of work, unlike that of any other run of the connector: letters, digits, dots,
            underscores and hyphens, at most 100.
        value_schema: Schema of the values; None = schemaless, and of a plain table: derived from its columns.
        key_schema: Schema of the keys; None = schemaless.
        timestamp: Milliseconds of all rows; None: when they are sent.
        partition: Kafka partition of all rows; None: the producer chooses.
        value_fields: Names of the columns that are the fields of the value; None: all columns of a plain table.
        transactions: False where the cluster gives no transactional ids: rows may come twice after a failure then.

    Raises:
        DataException: The run has no such name, or ``data`` is no function.

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
    """Messages of one topic partition that follow each other.

    Attributes:
        topic: The topic.
        partition: Its partition.
        start: The offset of the first message.
        end: The offset behind the last one. Offsets between them may be missing.
        attempt: Tells the attempts at a range apart, on executors; empty on the worker.

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
        """A name for a file of the range: the same whoever writes it, and in the order of offsets."""
        return f"{self.topic}-{self.partition}-{self.start:020d}-{self.end:020d}"


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """A range that an executor has written.

    Attributes:
        range: The range, with the attempt that counts.
        file: The return value of ``write``.
        rows: How many rows ``write`` was given.

    Source: Penstock's own.
    """

    range: TopicRange
    file: object
    rows: int


def split_ranges(ranges: Iterable[TopicRange], most: int) -> list[TopicRange]:
    """Cuts ranges into parts of at most so many offsets.

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
    """Writes big ranges of topics: executors of Spark fetch, convert and write them, the worker plans and commits.

    Loop: ``open`` when partitions come; then ``plan`` with what is there behind the committed offsets, ``write`` on
    executors for each of its ranges, and ``commit``. The group's offsets are committed after ``commit`` has returned.
    ``flush`` and ``pre_commit`` are not called.

    What is lost meanwhile is done again: an attempt at a range by another one, a job by another one of the same ranges,
    and after a restart of the task ``plan`` is asked again. So ``write`` makes nothing visible, and ``commit`` does:
    what ``write`` has left behind without a ``commit`` counts for nothing. A task whose target knows how far it is
    says so in ``positions``, and each message is written once.

    The task itself is sent to executors, without its ``context``: what ``start`` has set has to be picklable, or is
    left out in ``__getstate__``.

    Attributes:
        range_rows: The most offsets that the default ``plan`` gives one executor at once.

    Thread: the task's own, but for ``write``: the main thread of a Python worker of Spark.
    Source: Penstock's own.
    """

    range_rows: ClassVar[int] = 200_000

    def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets at which the target goes on, where it knows them; asked after ``open``.

        A partition whose committed offset is smaller goes on from there. It is the place to finish a ``commit`` that
        was cut off.
        """
        return {}

    def plan(self, ranges: Sequence[TopicRange]) -> Sequence[TopicRange]:
        """Decides what the next job writes; asked again and again while there are messages.

        Args:
            ranges: What there is, one range for each partition with new messages.

        Returns:
            The ranges of the job, each written by one executor at once. Those of a partition follow each other from
            its first offset on. None: the task waits for more.
        """
        return split_ranges(ranges, self.range_rows)

    @abstractmethod
    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> object:
        """Writes the messages of a range, where no reader sees them yet. Runs on executors.

        Args:
            topic_range: The range; its ``attempt`` belongs into the names of files.
            batches: Its messages behind converters and transforms, in order: frames of equal schemas, as
                ``FrameSinkTask.put`` is given, without a session. All of them have to be taken. Rows are reported with
                ``isolate`` and ``self.context.report`` as there.

        Returns:
            What ``commit`` needs to know of it, picklable; None if nothing was written.

        Raises:
            RetriableException: Another attempt may work; there are four.
            Exception: The job fails, and four jobs in a row make the task FAILED.
        """

    @abstractmethod
    def commit(self, files: Sequence[WrittenRange], ends: Mapping[TopicPartition, int]) -> None:
        """Makes visible what a job has written. On return it is durable.

        Args:
            files: The ranges for which ``write`` returned something, in order of partitions and offsets.
            ends: The offset behind the job for each of its partitions.

        Raises:
            RetriableException: Called again with the same.
            Exception: Any other makes the task FAILED; nothing is committed.
        """

    def __getstate__(self) -> dict[str, object]:
        """The state that goes to executors."""
        return {name: value for name, value in vars(self).items() if name != "context"}
