"""Plans a run of bulk work on a session: the query after the chain's plan, in a stable set of Spark partitions.

Main types: ``Chain`` (the chain of the rows), ``Planned`` (a query, ready for ``mapInArrow``). Main functions:
``run_session`` (a session for one run), ``planned``; ``check_repeatable`` refuses queries that give other rows each
time.

Thread: that of a run's job; nothing here runs a job of Spark.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from penstock.api import SourceFrame
from penstock.errors import ConnectException
from penstock.pipeline.batch.groups import why_rows
from penstock.pipeline.batch.source.frame_input import columns_of_dataframe, rows_of_dataframe
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.worker.bulk.executor import HASH, ExecutorPath, PlannedPath, RowPath
from penstock.worker.bulk.shipping import Parts

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
    """The steps that the rows go through.

    Attributes:
        pipeline: The task's pipeline, for the steps of its plan.
        jobs: Compiles them.
        parts: The recipes from which executors make the rest.
    """

    pipeline: SourcePipeline
    jobs: SparkJobs
    parts: Parts


@dataclass(frozen=True)
class Planned:
    """A query after the chain.

    Attributes:
        rows: The rows for executors; lazy. Ends with the column ``HASH``.
        path: The path of the rows on executors.
        partitions: The number of its Spark partitions.
    """

    rows: DataFrame
    path: ExecutorPath
    partitions: int


def run_session(session: SparkSession, cores: int) -> SparkSession:
    """A session with the settings and views of another one, whose queries have the same partitions on every cluster.

    Args:
        session: A classic session.
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
    """Refuses a query that gives other rows when it is made again, as far as that can be seen.

    Args:
        data: The query.
        again: Makes it again.
        run: The run, for messages.

    Raises:
        ConnectException: It does.
    """
    first: Any = data._jdf
    plan = first.queryExecution().optimizedPlan()
    text = plan.canonicalized().toString()
    if "Limit" in text and "Sort [" not in text:
        log.warning(
            "The query of the run '%s' takes some rows of all without an order: which ones may be another matter when "
            "a part of it is done again. Order the rows before the limit",
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
