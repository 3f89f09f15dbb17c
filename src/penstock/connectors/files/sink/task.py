"""File sink task: adds frames to open files, closes the files, and returns the safe offsets.

Main type: `FileSinkTask`, on the task's thread.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.api import FrameSinkTask, OffsetAndMetadata, SinkFrame, TopicPartition, isolate
from penstock.connectors.files.sink.avro import AvroFormat
from penstock.connectors.files.sink.compatibility import Compatibility, SchemaTrack
from penstock.connectors.files.sink.formats import (
    BesideValues,
    BytesFormat,
    CsvFormat,
    Format,
    JsonLinesFormat,
    OrcFormat,
    ParquetFormat,
)
from penstock.connectors.files.sink.partitioners import DirectoryPartitioner
from penstock.connectors.files.sink.settings import FileSinkConfig
from penstock.connectors.setting_values import OnNull
from penstock.errors import DataException
from penstock.files import FileNames, Location, Owners, RollingFiles, Rows, open_store

_ESCAPES: Final = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\0": "\0"}


class FileSinkTask(FrameSinkTask):
    """Writes the records of each partition into files, and commits the offsets of complete files."""

    config_class = FileSinkConfig

    def __init__(self) -> None:
        self._files: RollingFiles | None = None
        self._tracks: dict[str, SchemaTrack] = {}

    def start(self, props: Mapping[str, str]) -> None:
        """Reads the settings, and checks if the store exists.

        Raises:
            ConfigException: The settings are wrong.
            RetriableException: The store is unreachable.
            ConnectException: There is no such store, or no right to it.
        """
        config = FileSinkConfig.parse(props)
        self.settings: FileSinkConfig = config
        store = open_store(config.location(), self._location)
        store.check()
        self._format = format_of(config)
        self._beside = [BesideValues(what, format_named(name, config)) for what, name in config.beside.items()]
        self._partitioner: DirectoryPartitioner = config.directories()
        self._files = RollingFiles(
            self.context,
            store,
            config.rotation(),
            self._format.write,
            FileNames(config.file_delim, config.filename_offset_zero_pad_width, self._format.name_end),
            root=config.topics_dir,
            buffer_bytes=config.buffer_bytes,
            buffer_dir=config.buffer_dir or None,
            retry_backoff_ms=config.retry_backoff_ms,
            beside=[one.file for one in self._beside],
            manifest=str(props["name"]) if config.layout == "manifest" else None,
            clock=self._now_ms,
            owners=Owners(
                str(props["name"]),
                f"{config.location().url}/{config.topics_dir}",
                config.renamed_from,
                self.context.kafka_cluster_id,
            ),
        )

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Ends uploads that an earlier owner of the partitions has left.

        Raises:
            RetriableException: The store is unreachable.
        """
        self._rolling.open(partitions)

    def put(self, frame: SinkFrame) -> None:
        """Adds a frame; writes the files that are full.

        Raises:
            RetriableException: The store is unreachable; rows that were taken are not taken again.
            ConnectException: The store refuses, or a row is bad and ``errors.tolerance`` does not allow that.
        """
        self._rolling.put(frame, lambda place, part: self._append(place, self._without_nulls(part)))

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets before the first row that is not in a file; before partitions are revoked, their files are
        closed.
        """
        return self._rolling.pre_commit(offsets, flush_on_close=self.settings.flush_on_close)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions, with rows that are not in files."""
        self._rolling.close(partitions)

    def stop(self) -> None:
        """Closes files on this computer and connections."""
        if self._files is not None:
            self._files.stop()

    @property
    def _rolling(self) -> RollingFiles:
        assert self._files is not None
        return self._files

    def _now_ms(self) -> int:
        return _now_ms()

    def _location(self) -> Location:
        return FileSinkConfig.parse(self.context.configs()).location()

    def _without_nulls(self, part: SinkFrame) -> SinkFrame:
        column = part.table.column("value")
        if not column.null_count and not pa.types.is_null(column.type):
            return part
        gone = column.is_null().to_numpy()
        if self.settings.behavior_on_null_values is OnNull.FAIL:
            error = DataException(
                "The value is null, which is no row of a file: behavior.on.null.values=ignore leaves such records out"
            )
            self.context.report(part, np.flatnonzero(gone), error)
        return part.take(np.flatnonzero(~gone))

    def _append(self, place: TopicPartition, part: SinkFrame) -> None:
        def append(rows: SinkFrame) -> None:
            self._rolling.append(place, self._rows(rows))

        if not part.num_rows:
            return
        try:
            append(part)
        except DataException:
            try:
                # An error without any row is one of the schema, and so of all rows.
                self._rows(part.slice(0, 0))
            except DataException as error:
                self.context.report(part, np.arange(part.num_rows), error)
                return
            isolate(append, part, errors=DataException)

    def _rows(self, part: SinkFrame) -> Rows:
        """Converts rows to those of files.

        Raises:
            DataException: One of them is bad.
        """
        times = self._partitioner.timestamps(part, _now_ms())
        codes, directories = self._partitioner.directories(part, times)
        number = 0
        if self._format.has_schema:
            track = self._track(part)
            column, schema = track.fit(part.table.column("value"), part.value_schema)
            if schema is not part.value_schema:
                at = part.table.column_names.index("value")
                part = replace(part, table=part.table.set_column(at, "value", column), value_schema=schema)
            number = track.number(schema)
        try:
            table = self._format.prepare(part)
            for one in self._beside:
                table = table.append_column(one.file.column, one.prepare(part))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataException(f"The values cannot be written as {self.settings.format}: {error}") from error
        offsets = part.origin.column("offset").to_numpy()
        return Rows(table, offsets, times, codes, directories, number, part.continued)

    def _track(self, part: SinkFrame) -> SchemaTrack:
        topic = part.origin.column("topic")[0].as_py() if part.num_rows else ""
        if not topic:
            return SchemaTrack(Compatibility.NONE)
        if topic not in self._tracks:
            self._tracks[topic] = SchemaTrack(self.settings.schema_compatibility)
        return self._tracks[topic]


def format_of(config: FileSinkConfig) -> Format:
    """The format of values in the settings."""
    return format_named(config.format, config, config.metadata_columns)


def format_named(name: str, config: FileSinkConfig, columns: Sequence[str] = ()) -> Format:
    """A format by its short name, with the compression of the settings.

    Args:
        name: The name.
        config: The settings.
        columns: The metadata that are columns.
    """
    prefix = config.metadata_columns_prefix
    match name:
        case "parquet":
            return ParquetFormat(columns, prefix, config.parquet_codec)
        case "orc":
            return OrcFormat(columns, prefix)
        case "avro":
            return AvroFormat(config.avro_codec, columns, prefix)
        case "csv":
            return CsvFormat(columns, prefix, config.compression)
        case "json":
            return JsonLinesFormat(columns, prefix, config.compression)
    # Whitespace around a setting's value is stripped, including a line end.
    separator = config.format_bytearray_separator or "\n"
    for text, meant in _ESCAPES.items():
        separator = separator.replace(text, meant)
    return BytesFormat(separator.encode(), config.format_bytearray_extension, config.compression)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
