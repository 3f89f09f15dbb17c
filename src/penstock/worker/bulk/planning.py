"""Plans bulk work on a session, for sources (a run) and sinks (ranges of topics).

``planned`` is the query of a run after the chain's plan, in a stable set of Spark partitions. ``written_rows`` is the
query of a sink's job, with a compiled plan in front of what executors write if the messages need one: it is made for
the first messages of the job's topics, and whatever other messages need goes record by record on executors, with the
same result. Thread: that of a run's job; nothing here runs a job of Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from penstock.api import SourceFrame, TopicPartition
from penstock.api.bulk import TopicRange
from penstock.errors import ConnectException, KafkaException
from penstock.model.states import Progress
from penstock.pipeline.batch.groups import why_rows
from penstock.pipeline.batch.sink.ahead import plan_ahead, projected
from penstock.pipeline.batch.source.frame_input import columns_of_dataframe, rows_of_dataframe
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.worker.bulk.executor import HASH, ExecutorPath, PlannedPath, RowPath
from penstock.worker.bulk.range_work import RangeFetch, RangeWork, TopicReading, messages_of
from penstock.worker.bulk.shipping import Parts, own_path, packed, shipped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.api.bulk import BulkFrame

log = logging.getLogger(__name__)

#: Rows that an executor's Python holds at once, in addition to the rows in flight to Kafka.
ROWS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 16 << 20
#: A shuffle in the text of a physical plan. A broadcast leaves rows in their partitions.
_SHUFFLE: Final = re.compile(r"(?<!Broadcast)Exchange ")


@dataclass(frozen=True)
class Chain:
    """The steps that the rows go through."""

    pipeline: SourcePipeline
    jobs: SparkJobs
    parts: Parts


@dataclass(frozen=True)
class Planned:
    """A query after the chain.

    Attributes:
        rows: The rows for executors; lazy. Ends with the column ``HASH``.
    """

    rows: DataFrame
    path: ExecutorPath
    partitions: int


def run_session(session: SparkSession, cores: int) -> SparkSession:
    """A session with the settings and views of another one, whose queries have the same partitions on every cluster.

    Args:
        cores: The number of cores by which Spark divides data without partitions of its own.

    Raises:
        ConnectException: It is one of Spark Connect.
    """
    context = getattr(session, "_sc", None)
    if context is None:
        raise ConnectException(
            "Bulk work needs a session that the worker drives itself (spark.master); with Spark Connect "
            "(spark.remote) the partitions of a query are unknown. Return a SourceFrame there"
        )
    inner: Any = session
    own = type(session)(context, inner._jsparkSession.cloneSession())
    for name, value in (
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.sql.leafNodeDefaultParallelism", str(cores)),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_AT_ONCE)),
        ("spark.sql.execution.arrow.maxBytesPerBatch", str(_BYTES_AT_ONCE)),
    ):
        own.conf.set(name, value)
    return own


def planned(session: SparkSession, frame: BulkFrame, chain: Chain) -> Planned:
    """Plans the rows of a frame.

    Raises:
        ConnectException: They do not fit their schemas, the chain cannot leave the worker, or the query gives other
            rows each time.
    """
    why = chain.pipeline.in_one_process
    if why is not None:
        raise ConnectException(
            f"Bulk work is done by Spark's executors, and {why}. Declare it stateless if it is, leave it out, or "
            "return a SourceFrame, which the worker writes itself"
        )
    data = _made(session, frame)
    check_repeatable(data, lambda: _made(session, frame), frame.run)
    about = frame.as_source_frame()
    rows, path = _planned(data, about, chain) or _rows(data, about, chain)
    jdf: Any = rows._jdf
    plan = jdf.queryExecution().executedPlan().toString()
    if _SHUFFLE.search(plan) and "Sort [" not in plan:
        # A shuffle gives the rows of a partition in the order in which they arrive, another one each time.
        rows = rows.sortWithinPartitions(HASH)
        jdf = rows._jdf
    return Planned(rows, path, int(jdf.queryExecution().toRdd().getNumPartitions()))


def _made(session: SparkSession, frame: BulkFrame) -> DataFrame:
    made: Any = frame.data(session)
    if not hasattr(type(made), "mapInArrow"):
        raise ConnectException(
            f"The data of a BulkFrame has returned a {type(made).__name__}; it has to return a Spark DataFrame"
        )
    found: DataFrame = made
    return found


def _planned(data: DataFrame, frame: SourceFrame, chain: Chain) -> tuple[DataFrame, ExecutorPath] | None:
    """The rows after the plan of the whole chain; None if the chain cannot be one plan."""
    steps = chain.pipeline.whole_plan
    if steps is None:
        return None
    columns = columns_of_dataframe(frame, data)
    if why_rows(steps, columns.shape) is not None:
        return None
    if any(one.step.asks_of_topic for one in steps) and "topic" in columns.carried:
        if "headers" not in columns.carried:
            return None
        raise ConnectException(
            "Bulk work cannot ask a transform of topics, such as RegexRouter, for rows that have a column topic and a "
            "column headers. Name the topics in the query, and leave the transform out, or return a SourceFrame"
        )
    rows, shape, places = chain.jobs.planned(columns, steps, frame.topic)
    sides = [F.col(name) for name in ("key", "value") if name in rows.columns]
    number = F.xxhash64(*sides) if sides else F.lit(0).cast("bigint")
    return rows.withColumn(HASH, number), PlannedPath(shape, places, columns.carried, chain.parts)


def _rows(data: DataFrame, frame: SourceFrame, chain: Chain) -> tuple[DataFrame, ExecutorPath]:
    """The rows as they are."""
    rows = rows_of_dataframe(frame, data)
    if HASH in rows.columns:
        raise ConnectException(f'A column of a BulkFrame cannot be called "{HASH}"')
    known = [F.col(f"`{one.name.replace('`', '``')}`") for one in data.schema if _can_be_hashed(one.dataType)]
    number = F.xxhash64(*known) if known else F.lit(0).cast("bigint")
    return rows.withColumn(HASH, number), RowPath(chain.parts, chain.pipeline.leaves_headers)


def _can_be_hashed(kind: DataType) -> bool:
    text = kind.simpleString()
    return "map<" not in text and "variant" not in text


#: The reason why a query with values that differ between plans is refused.
_NOT_REPEATABLE: Final = (
    "it gives other rows each time that it is planned (rand(), uuid(), current_timestamp() or the like)"
)


def check_repeatable(data: DataFrame, again: Any, run: str) -> None:
    """Refuses a query that gives other rows when it is made again, as far as that can be seen."""
    first: Any = data._jdf
    plan = first.queryExecution().optimizedPlan()
    text = plan.canonicalized().toString()
    if "Limit" in text and "Sort [" not in text:
        log.warning(
            "The query of the run '%s' takes some rows of all without an order: another attempt may get other rows. "
            "Order the rows before the limit",
            run,
        )
    now = first.queryExecution().analyzed().containsPattern(_current_like(data))
    if plan.deterministic() and not now:
        return
    other: Any = again()._jdf
    if now or other.queryExecution().optimizedPlan().canonicalized().toString() != text:
        raise ConnectException(
            f"The query of the run '{run}' is not repeatable: {_NOT_REPEATABLE}. What is lost of a run is read again, "
            "so give a seed, read the time once in Python and use it as a literal, or write the rows to a table first"
        )


def _current_like(data: DataFrame) -> Any:
    jvm: Any = data.sparkSession._jvm
    return jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()


#: With fewer messages a plan costs more than it saves.
MIN_PLANNED: Final = 20_000
#: Topics whose first messages are looked at.
_SAMPLED: Final = 4
_PATIENCE_S: Final = 5.0


def written_rows(session: SparkSession, work: RangeWork, payload: bytes, jobs: SparkJobs, what: str) -> DataFrame:
    """The query that writes ranges: a column ``answer``, a row for each range; lazy."""
    count = len(work.ranges)
    rows = session.range(0, count, 1, count)
    made = None
    if sum(one.end - one.start for one in work.ranges) >= MIN_PLANNED:
        made = plan_ahead(work.reading.pipeline(), jobs, samples_of(work.ranges, work.reading))
    if made is None:
        return rows.mapInArrow(shipped(payload, own_path()), "answer binary")
    from pyspark.sql.pandas.types import from_arrow_schema

    ahead, plan = made
    fetch = packed(RangeFetch(work.ranges, work.reading, ahead), what)
    laid_out = rows.mapInArrow(shipped(fetch, own_path()), from_arrow_schema(ahead.schema))
    write = packed(replace(work, ahead=ahead), what)
    return projected(laid_out, ahead, plan).mapInArrow(shipped(write, own_path()), "answer binary")


def samples_of(ranges: Sequence[TopicRange], reading: TopicReading) -> list[pa.Table]:
    """The first messages of some topics."""
    first: dict[str, TopicRange] = {}
    for one in ranges:
        first.setdefault(one.topic, one)
    found = []
    for one in list(first.values())[:_SAMPLED]:
        messages = messages_of(one, reading, _PATIENCE_S)
        try:
            found += [table for table in [next(messages, None)] if table is not None]
        except KafkaException as error:
            log.debug("No messages of %s to plan by: %s", one.topic, error)
        finally:
            messages.close()
    return found


def open_ranges(
    positions: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[TopicRange]:
    """The messages that are not written yet, as one range for each partition that has some.

    Args:
        positions: The next offset of each partition.
        begins: The offset of the first message that each partition still has.
        ends: The offset after the last message of each.

    >>> at = TopicPartition("t", 0)
    >>> open_ranges({at: 5}, {at: 7}, {at: 9})
    [TopicRange(topic='t', partition=0, start=7, end=9, attempt='')]
    >>> open_ranges({at: 9}, {at: 7}, {at: 9})
    []
    """
    found = [
        TopicRange(*place, max(position, begins.get(place, position)), ends[place])
        for place, position in positions.items()
        if place in ends
    ]
    return sorted(one for one in found if one.start < one.end)


def checked_plan(given: Sequence[TopicRange], planned: object, task: str) -> list[TopicRange]:
    """Returns the ranges that a task has planned, in order.

    Raises:
        ConnectException: The answer is not a list of ranges that follow each other, starting at the first offsets.

    >>> whole = TopicRange("t", 0, 5, 9)
    >>> checked_plan([whole], [TopicRange("t", 0, 5, 7)], "Task")
    [TopicRange(topic='t', partition=0, start=5, end=7, attempt='')]
    >>> checked_plan([whole], [TopicRange("t", 0, 6, 9)], "Task")
    Traceback (most recent call last):
    penstock.errors.ConnectException: plan() of Task has returned t-0 from 6 to 9, and there is t-0 from 5 to 9: the \
ranges of a partition follow each other, without a gap, from the first offset that it was given
    """
    if not isinstance(planned, Sequence) or not all(isinstance(one, TopicRange) for one in planned):
        raise ConnectException(f"plan() of {task} must return a sequence of TopicRange, got {planned!r}")
    wholes = {one.place: one for one in given}
    next_of = {place: one.start for place, one in wholes.items()}
    found = sorted(planned)
    for one in found:
        whole = wholes.get(one.place)
        if whole is None:
            raise ConnectException(f"plan() of {task} has returned {_text(one)}, of which it was given nothing")
        if one.start != next_of[one.place] or not one.start < one.end <= whole.end:
            raise ConnectException(
                f"plan() of {task} has returned {_text(one)}, and there is {_text(whole)}: the ranges of a partition "
                "follow each other, without a gap, from the first offset that it was given"
            )
        next_of[one.place] = one.end
    return found


def ends_of_ranges(ranges: Sequence[TopicRange]) -> dict[TopicPartition, int]:
    """The offset after the last range of each partition."""
    found: dict[TopicPartition, int] = {}
    for one in ranges:
        found[one.place] = max(one.end, found.get(one.place, 0))
    return found


def told_ranges(done: int, ranges: Sequence[TopicRange], seconds: float) -> Progress:
    """The progress of a job.

    >>> ranges = [TopicRange("t", 0, at, at + 100_000) for at in range(0, 400_000, 100_000)]
    >>> told_ranges(2, ranges, 10.0).text
    'up to 400,000 messages of 1 partition, some 10 s left'
    """
    places = len({one.place for one in ranges})
    messages = sum(one.end - one.start for one in ranges)
    text = f"up to {messages:,} messages of {places} partition{'' if places == 1 else 's'}"
    if done and seconds > 0:
        text += f", some {(len(ranges) - done) * seconds / done:.0f} s left"
    return Progress(done, len(ranges), "ranges", text)


def _text(one: TopicRange) -> str:
    return f"{one.topic}-{one.partition} from {one.start} to {one.end}"
