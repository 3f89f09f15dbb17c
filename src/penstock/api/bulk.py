"""Bulk work: big bounded reads whose rows Spark's executors convert and write to Kafka themselves.

Main type: ``BulkFrame``, which ``FrameSourceTask.poll`` returns in the place of a ``SourceFrame``. The worker plans the
run, counts, and commits its source offset when all of it is in Kafka; no row passes through the worker.

PySpark is named for the type checker only.

Owning thread: none; a frame is not changed once it is handed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.api.frame import SourceFrame
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
