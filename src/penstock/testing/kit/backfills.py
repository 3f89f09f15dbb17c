"""Runs a backfill of a source without a worker, a broker or Java: ``run_backfill``. Owning thread: the test's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.api import BackfillPart, BackfillSpan, Chunk, SourceConnector, SourceFrame, SourceRecord, SourceTask
from penstock.api.bulk import BulkFrame
from penstock.stores.memory import MemoryOffsetStore
from penstock.testing.kit.contexts import KitSourceConnectorContext, KitSourceContext
from penstock.testing.kit.frames import records_of_frame
from penstock.testing.kit.lives import checked_configs, props_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class BackfillRun:
    """A backfill that was run.

    Attributes:
        parts: What was planned, of all tasks.
        records: What was read, in order.
        calls: How often ``backfill`` was called.

    Source: Penstock's own.
    """

    parts: Sequence[BackfillPart]
    records: Sequence[SourceRecord]
    calls: int

    @property
    def values(self) -> list[Any]:
        """The values of the records."""
        return [one.value for one in self.records]


def run_backfill(
    connector: type[SourceConnector],
    settings: Mapping[str, str],
    span: BackfillSpan,
    *,
    tasks_max: int = 1,
    again: bool = False,
    spark: Callable[[], SparkSession] | None = None,
) -> BackfillRun:
    """Plans and reads a backfill of a source connector, as a worker does.

    Args:
        connector: Its class.
        settings: Its own settings.
        span: The range.
        tasks_max: The most tasks it may have.
        again: True to call ``backfill`` again after each yield, with the offset after it, as after a
            ``RetriableException``. It should read the same.
        spark: Gives a session, for a source that reads with Spark.

    Raises:
        BadRequestException: The range is refused.

    Source: Penstock's own.
    """
    store = MemoryOffsetStore()
    store.start()
    props = props_of(connector, settings, tasks_max)
    made = connector()
    made.initialize(KitSourceConnectorContext(props["name"], store))
    made.start(props)
    try:
        configs = checked_configs(made, tasks_max)
        kind: type[Any] = made.task_class()
    finally:
        made.stop()
    parts: list[BackfillPart] = []
    records: list[SourceRecord] = []
    calls = 0
    for config in configs:
        context = KitSourceContext(props["name"], config, store, spark)
        task: SourceTask = kind()
        task.initialize(context)
        try:
            task.start(config)
            planned = task.plan_backfill(span)
            parts += planned
            for part in planned:
                offset: Mapping[str, object] | None = None
                while True:
                    calls += 1
                    rows = iter(task.backfill(part, offset))
                    for one in rows:
                        found, offset = _records(one, part, spark)
                        records += found
                        if again:
                            break
                    else:
                        break
                    close = getattr(rows, "close", None)
                    if close is not None:
                        close()
        finally:
            task.stop()
            context.end()
    return BackfillRun(parts, records, calls)


def _records(
    rows: object, part: BackfillPart, spark: Callable[[], SparkSession] | None
) -> tuple[list[SourceRecord], Mapping[str, object] | None]:
    """The records of what was yielded, and the offset after them."""
    if isinstance(rows, Chunk):
        if rows.data is None:
            return [], rows.position(part.partition)
        rows = rows.frame(part.partition)
    if isinstance(rows, BulkFrame):
        rows = rows.as_source_frame()
    if isinstance(rows, SourceFrame):
        return records_of_frame(rows, spark), rows.source_offset
    assert isinstance(rows, Sequence), f"backfill() must not yield a {type(rows).__name__}"
    found = list(rows)
    return found, found[-1].source_offset
