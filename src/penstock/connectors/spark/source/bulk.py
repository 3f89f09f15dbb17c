"""Rows that executors write themselves: `SparkBulkSourceTask`, the task of ``spark.bulk=true``.

Thread: the task's; ``data`` of a frame: the worker's for the run. Source: Penstock's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.api import BackfillPart, BackfillSpan, FrameSourceTask
from penstock.api.bulk import BulkFrame
from penstock.connectors.spark.source.backfill import SparkBackfill
from penstock.connectors.spark.source.modes import Runs
from penstock.connectors.spark.source.reading import SparkReader
from penstock.connectors.spark.source.settings import SparkSourceConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkBulkSourceTask(FrameSourceTask):
    """Returns all rows as one run of executors."""

    config_class = SparkSourceConfig

    def start(self, props: Mapping[str, str]) -> None:
        """See ``Task.start``."""
        super().start(props)
        config: SparkSourceConfig = self.settings
        self._partition = {"source": config.label, "mode": config.mode.value}
        self._offset = self.context.offset_storage_reader().offset(self._partition)
        self._runs = Runs(config.bulk_interval_ms)

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        """See ``SourceTask.plan_backfill``: one part, of files or of values of a column."""
        return SparkBackfill(self.settings, SparkReader(self.settings, self.context.spark), self._partition).plan(span)

    def backfill(self, part: BackfillPart, offset: Mapping[str, object] | None) -> Iterator[BulkFrame]:
        """See ``SourceTask.backfill``: one run of executors."""
        if offset is None:
            yield SparkBackfill(self.settings, SparkReader(self.settings, self.context.spark), part.partition).run(part)

    def poll(self) -> BulkFrame | None:
        """The run that is in progress or due.

        Raises:
            RetriableException: The data is currently unavailable.
            ConnectException: The data cannot be read.
        """
        config: SparkSourceConfig = self.settings
        run = self._runs.number(self._offset)
        if run is None:
            self.context.stopping.wait(config.poll_interval_ms / 1000)
            return None
        reader = SparkReader(config, self.context.spark)
        records = reader.records(reader.all())
        # The same each time that this run is returned.
        offset = {"run": run, "done": True}

        def rows(session: SparkSession) -> DataFrame:
            return records.columns_of(SparkReader(config, lambda: session).all())

        frame = BulkFrame(
            data=rows,
            topic=config.topic,
            source_partition=self._partition,
            source_offset=offset,
            # Other data, which the connector reads since its settings were changed, is another run.
            run=f"bulk-{run}-{hashlib.sha256(config.label.encode()).hexdigest()[:8]}",
            value_schema=records.schema,
            key_schema=records.key_schema,
        )
        self._offset = offset
        return frame
