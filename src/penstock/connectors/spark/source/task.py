"""Spark source task: reads on in the mode of its settings. Main type: `SparkSourceTask`, on the task's thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.api import Chunk, PartitionedTask
from penstock.api.partitioned import Partition
from penstock.connectors.spark.source.modes import reading_of
from penstock.connectors.spark.source.reading import Reader
from penstock.connectors.spark.source.settings import SparkSourceConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkSourceTask(PartitionedTask):
    """Reads rows of Spark, and goes on behind those that are in Kafka."""

    config_class = SparkSourceConfig

    def start(self, props: Mapping[str, str]) -> None:
        """See ``PartitionedTask.start``."""
        super().start(props)
        config: SparkSourceConfig = self.settings
        self.idle_s = config.poll_interval_ms / 1000
        reader = Reader(config, self._session)
        self._reading = reading_of(config, reader, self.context.progress)

    def read(self, partition: Partition, offset: Mapping[str, Any] | None) -> Iterator[Chunk]:
        """See ``PartitionedTask.read``."""
        # An offset without a value is that of a column before its first value.
        return self._reading.read(offset)

    def _session(self) -> SparkSession:
        return self.context.spark()
