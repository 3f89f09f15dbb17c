"""Spark source connector. Main type: `SparkSource`, which the worker calls on the connector's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api import ExactlyOnceSupport, PartitionedSource, Task
from penstock.api.connector import ConnectorTransactionBoundaries
from penstock.connectors.spark.settings import local_path
from penstock.connectors.spark.source.planning import FilesRead
from penstock.connectors.spark.source.settings import ReadMode, SparkSourceConfig
from penstock.errors import BadRequestException

#: The fields of an offset, one of which each has, by mode.
_FIELDS = {
    ReadMode.BULK: "run",
    ReadMode.FILES: "through",
    ReadMode.INCREMENTING: "value",
    ReadMode.VERSIONS: "version",
    ReadMode.STREAM: "batch",
}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= -1


class SparkSource(PartitionedSource):
    """Reads files, tables or queries with Spark, and writes their rows to a topic.

    Source: Penstock's own; the modes are those of the JDBC source, and of Spark's file source.
    """

    config_class = SparkSourceConfig
    settings: SparkSourceConfig
    interval_s = 3600.0

    def task_class(self) -> type[Task]:
        """The task that reads, or has executors read and write."""
        # Need PyArrow.
        if self.settings.spark_bulk:
            from penstock.connectors.spark.source.bulk import SparkBulkSourceTask

            return SparkBulkSourceTask
        from penstock.connectors.spark.source.task import SparkSourceTask

        return SparkSourceTask

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """The data that is read: one source partition."""
        return [{"source": self.settings.label, "mode": self.settings.mode.value}]

    def obstacles(self, props: Mapping[str, str]) -> Sequence[str]:
        """Says that the path is not there."""
        path = SparkSourceConfig.parse(props).spark_path
        place = local_path(path)
        return [] if place is None or place.exists() else [f"the path {path} does not exist"]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Positions can be found again, except in ``mode=bulk`` if the data may change meanwhile."""
        config = SparkSourceConfig.parse(props)
        is_exact = config.mode is not ReadMode.BULK or config.is_of_files
        return ExactlyOnceSupport.SUPPORTED if is_exact else ExactlyOnceSupport.UNSUPPORTED

    def can_define_transaction_boundaries(self, props: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Each read is one transaction."""
        return ConnectorTransactionBoundaries.SUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, object]], Mapping[str, object] | None],
    ) -> bool:
        """Checks new offsets. Removing is always allowed.

        Raises:
            BadRequestException: A partition or an offset is none of this source.
        """
        config = SparkSourceConfig.parse(props)
        field = _FIELDS[config.mode]
        for key, offset in offsets.items():
            partition = dict(key)
            if offset is None:
                continue
            if partition != {"source": config.label, "mode": config.mode.value}:
                raise BadRequestException(
                    f"{partition} is no source partition of this connector, which has "
                    f"{ {'source': config.label, 'mode': config.mode.value} }"
                )
            if field not in offset:
                raise BadRequestException(f"{dict(offset)} is no offset of mode={config.mode.value}: it has no {field}")
            if config.mode is ReadMode.INCREMENTING:
                if offset.get("column") != config.incrementing_column_name.strip():
                    raise BadRequestException(
                        f"{dict(offset)} is no offset of this connector: its column is not "
                        f"{config.incrementing_column_name}, as incrementing.column.name says"
                    )
            elif not _is_whole(offset[field]):
                raise BadRequestException(
                    f"{dict(offset)} is no offset of mode={config.mode.value}: {field} has to be a whole number"
                )
            if config.mode is ReadMode.FILES:
                FilesRead.of(offset)
        return True
