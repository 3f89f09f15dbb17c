"""Ranges of topics as files that executors write: `SparkBulkSinkTask`, the task of ``spark.bulk=true``.

Thread: the task's; ``write``: a Python worker's of Spark. Source: Penstock's own.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.api import SinkFrame, TopicPartition, isolate
from penstock.api.arrow import one_array
from penstock.api.bulk import BulkSinkTask, TopicRange, WaitingRanges, WrittenRange
from penstock.connectors.files.sink.formats import CsvFormat, Format, JsonLinesFormat, OrcFormat, ParquetFormat
from penstock.connectors.setting_values import OnNull
from penstock.connectors.spark.settings import local_path
from penstock.connectors.spark.sink.columns import RowColumns
from penstock.connectors.spark.sink.range_files import Note, RangeFile, RangeFiles
from penstock.connectors.spark.sink.settings import SparkSinkConfig
from penstock.connectors.spark.sink.task import arrow_types, refuse_nulls
from penstock.errors import DataException


class SparkBulkSinkTask(BulkSinkTask):
    """Writes files of ranges, and commits the offsets of files that were moved to their final names."""

    config_class = SparkSinkConfig

    def start(self, props: Mapping[str, str]) -> None:
        """See ``Task.start``.

        Raises:
            RetriableException: The directory cannot be looked at.
        """
        super().start(props)
        config: SparkSinkConfig = self.settings
        self._files = files_of(config, props["name"])
        self._files.check()
        self._waits = WaitingRanges(config.frame_min_rows, config.frame_max_wait_ms / 1000)

    def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Finishes a commit that was cut off, and returns the offsets that the directory has."""
        return self._files.positions(partitions)

    def plan(self, ranges: Sequence[TopicRange]) -> Sequence[TopicRange]:
        """Ranges of ``frame.min.rows``, and shorter ones that have waited for ``frame.max.wait.ms``."""
        return self._waits.plan(ranges, time.monotonic())

    def write(self, topic_range: TopicRange, batches: Iterator[SinkFrame]) -> list[RangeFile]:
        """Writes the files of a range: one, unless its columns change."""
        kind = format_of(self.settings)
        written: list[RangeFile] = []
        tables = self._tables(kind, batches)
        for schema, run in itertools.groupby(tables, key=lambda table: table.schema):
            with self._files.staged(topic_range, len(written), kind.name_end) as (file, out):
                kind.write(run, schema, out)
            written.append(file)
        return written

    def commit(self, files: Sequence[WrittenRange], ends: Mapping[TopicPartition, int]) -> None:
        """Moves the files of a job to their place."""
        found: dict[TopicPartition, list[RangeFile]] = {}
        starts: dict[TopicPartition, int] = {}
        for one in files:
            made: Sequence[RangeFile] = one.file  # type: ignore[assignment]
            found.setdefault(one.range.place, []).extend(made)
            starts.setdefault(one.range.place, one.range.start)
        self._files.commit(found, {place: Note(starts[place], end) for place, end in ends.items()})

    def _tables(self, kind: Format, batches: Iterator[SinkFrame]) -> Iterator[pa.Table]:
        """The rows of frames as a format holds them; bad ones are reported."""
        config: SparkSinkConfig = self.settings
        types = arrow_types(config.spark_schema) if config.spark_schema.strip() else None
        columns = RowColumns(types, config.metadata_columns, config.metadata_columns_prefix, ())
        for frame in batches:
            column = frame.table.column("value")
            gone = np.ones(frame.num_rows, bool) if pa.types.is_null(column.type) else column.is_null().to_numpy()
            if gone.any():
                if config.behavior_on_null_values is OnNull.FAIL:
                    refuse_nulls(self.context, frame, gone)
                frame = frame.take(np.flatnonzero(~gone))
            found: list[pa.Table] = []

            def collect(rows: SinkFrame, found: list[pa.Table] = found) -> None:
                found.append(kind.prepare(_as_frame(columns.of(rows))))

            if frame.num_rows:
                isolate(collect, frame, errors=DataException)
            yield from found


def files_of(config: SparkSinkConfig, connector: str) -> RangeFiles:
    """The files of a connector; a relative path is one of the worker's directory, also on executors."""
    path = config.spark_path
    local = local_path(path)
    return RangeFiles(path if local is None else os.path.abspath(local), connector)


def format_of(config: SparkSinkConfig) -> Format:
    """The format of files, as settings say it."""
    compression = config.options().get("compression", "").lower()
    match config.format:
        case "orc":
            return OrcFormat()
        case "csv":
            return CsvFormat(compression=compression or "none")
        case "json":
            return JsonLinesFormat(compression=compression or "none")
        case _:
            return ParquetFormat(compression=compression or "snappy")


def _as_frame(table: pa.Table) -> SinkFrame:
    """Columns as the fields of values."""
    arrays = [one_array(one) for one in table.columns]
    value = pa.StructArray.from_arrays(arrays, fields=list(table.schema))
    return SinkFrame(pa.table({"value": value}), None, None)
