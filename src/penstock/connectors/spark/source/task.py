"""Spark source task: reads in the mode of its settings. Main type: `SparkSourceTask`, on the task's thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.api import BackfillPart, BackfillSpan, Chunk, PartitionedTask, assigned_partitions
from penstock.api.partitioned import Partition
from penstock.connectors.spark.source.backfill import SparkBackfill
from penstock.connectors.spark.source.modes import ReadStrategy, reading_of
from penstock.connectors.spark.source.reading import SparkReader
from penstock.connectors.spark.source.settings import ReadMode, SparkSourceConfig
from penstock.connectors.spark.source.streams import StagedBatches, Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkSourceTask(PartitionedTask):
    """Reads rows with Spark, and resumes after the rows that are in Kafka."""

    config_class = SparkSourceConfig

    def start(self, props: Mapping[str, str]) -> None:
        """See ``PartitionedTask.start``."""
        super().start(props)
        config: SparkSourceConfig = self.settings
        self.idle_s = config.poll_interval_ms / 1000
        self._props = dict(props)
        self._reader = SparkReader(config, self._session)
        self._reading = self._mode_of(config)

    def read(self, partition: Partition, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``PartitionedTask.read``."""
        # An offset without a value is that of a column before its first value.
        return self._reading.read(offset)

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        """See ``SourceTask.plan_backfill``: one part, of files, of values of a column, or of versions."""
        (partition,) = assigned_partitions(self._props)
        return SparkBackfill(self.settings, self._reader, partition).plan(span)

    def backfill(self, part: BackfillPart, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``SourceTask.backfill``."""
        return SparkBackfill(self.settings, self._reader, part.partition, self.context.progress).read(part, offset)

    def _mode_of(self, config: SparkSourceConfig) -> ReadStrategy:
        if config.mode is not ReadMode.STREAM:
            return reading_of(config, self._reader, self.context.progress)
        staged = StagedBatches(config.spark_checkpoint_path.strip(), self._props["name"])
        (partition,) = assigned_partitions(self._props)
        offsets = self.context.offset_storage_reader()
        return Streams(config, self._reader, staged, lambda: offsets.offset(partition), self.context.stopping)

    def _session(self) -> SparkSession:
        return self.context.spark()
