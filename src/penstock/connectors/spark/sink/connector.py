"""Spark sink connector. Main type: `SparkSink`, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.api import SinkConnector, Task, TopicPartition
from penstock.connectors.spark.sink.settings import SparkSinkConfig


class SparkSink(SinkConnector):
    """Writes topics with Spark: to files, tables, or any other target of a Spark format.

    Source: Penstock's own; KIP-275 for writing before partitions are revoked.
    """

    config_class = SparkSinkConfig
    has_positions = True

    def task_class(self) -> type[Task]:
        """The task that writes frames, or has executors write."""
        # Need PyArrow.
        if self.settings.spark_bulk:
            from penstock.connectors.spark.sink.bulk import SparkBulkSinkTask

            return SparkBulkSinkTask
        from penstock.connectors.spark.sink.task import SparkSinkTask

        return SparkSinkTask

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Any offsets do: records from an earlier one on are written again. With ``spark.bulk`` they replace files."""
        config = SparkSinkConfig.parse(props)
        if config.spark_bulk:
            from penstock.connectors.spark.sink.bulk import files_of

            files_of(config, props["name"]).reset(offsets)
        return True
