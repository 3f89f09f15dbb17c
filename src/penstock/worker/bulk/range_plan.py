"""The query of a bulk sink's job: ranges, a compiled plan in front of what executors write if the messages need one.

Main function: ``written_rows``. The plan is made for the first messages of the job's topics, which the worker reads.
Whatever other messages need goes record by record on executors, with the same result.

Thread: that of the job; nothing here runs a job of Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.api.bulk import TopicRange
from penstock.errors import KafkaException
from penstock.pipeline.batch.sink.ahead import plan_ahead, projected
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.worker.bulk.range_work import RangeFetch, RangeWork, TopicReading, messages_of
from penstock.worker.bulk.shipping import own_path, packed, shipped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

#: With fewer messages a plan costs more than it saves.
MIN_PLANNED: Final = 20_000
#: Topics whose first messages are looked at.
_SAMPLED: Final = 4
_PATIENCE_S: Final = 5.0


def written_rows(session: SparkSession, work: RangeWork, payload: bytes, jobs: SparkJobs, what: str) -> DataFrame:
    """The query that writes ranges: a column ``answer``, a row for each range; lazy.

    Args:
        session: The run's session.
        work: Writes the ranges.
        payload: The work, packed.
        jobs: Compiles the plan.
        what: The work, for messages.
    """
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
