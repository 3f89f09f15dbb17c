"""File sink task: takes frames into open files, closes these in time, and says which offsets are safe.

Main type: `FileSinkTask`, on the task's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.api import FrameSinkTask, OffsetAndMetadata, SinkFrame, TopicPartition, isolate
from penstock.api.arrow import one_array
from penstock.connectors.files.sink.compatibility import Compatibility, SchemaTrack
from penstock.connectors.files.sink.formats.avro import Avro
from penstock.connectors.files.sink.formats.format import Bytes, Csv, Format, JsonLines, Orc, Parquet
from penstock.connectors.files.sink.names import Names
from penstock.connectors.files.sink.partitioners import Partitioner
from penstock.connectors.files.sink.publishing import Publisher
from penstock.connectors.files.sink.rolling import RollingFiles, Rows
from penstock.connectors.files.sink.settings import FileSinkConfig, OnNull
from penstock.connectors.files.stores import Location, open_store
from penstock.errors import ConnectException, DataException, RetriableException

log = logging.getLogger(__name__)

#: The clock is looked at so often.
_TICK_S: Final = 0.5
_ESCAPES: Final = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\0": "\0"}


class FileSinkTask(FrameSinkTask):
    """Writes the records of each partition into files, and commits the offsets of files that are whole."""

    config_class = FileSinkConfig

    def __init__(self) -> None:
        self._files: RollingFiles | None = None
        self._publisher: Publisher | None = None
        self._taken: pa.Table | None = None
        self._is_again = False
        self._tracks: dict[str, SchemaTrack] = {}

    def start(self, props: Mapping[str, str]) -> None:
        """Takes the settings, and looks whether the store is there.

        Raises:
            ConfigException: The settings are wrong.
            RetriableException: The store is away.
            ConnectException: There is no such store, or no right to it.
        """
        config = FileSinkConfig.parse(props)
        self.settings: FileSinkConfig = config
        store = open_store(config.location(), self._location)
        store.check()
        self._format = format_of(config)
        self._partitioner: Partitioner = config.directories()
        names = Names(config.file_delim, config.filename_offset_zero_pad_width, self._format.name_end)
        self._publisher = Publisher(store, config.topics_dir, self._format, names, config.buffer_dir or None)
        self._store = store
        self._names = names
        self._files = RollingFiles(config.rotation(), config.buffer_bytes)
        self.context.every(_TICK_S, self._tick)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Ends uploads that an earlier owner of the partitions has left.

        Raises:
            RetriableException: The store is away.
        """
        publisher, _ = self._parts
        publisher.opened()
        starts = tuple(self._names.start(one) for one in partitions)
        try:
            count = self._store.end_unfinished(self.settings.topics_dir.strip("/"), starts)
        except RetriableException:
            raise
        except ConnectException as error:
            log.warning("Unfinished uploads of an earlier run, if there are any, stay: %s", error)
        else:
            if count:
                log.info("%d unfinished uploads of an earlier run were ended", count)

    def put(self, frame: SinkFrame) -> None:
        """Takes a frame; writes the files that are full by it.

        Raises:
            RetriableException: The store is away; what was taken is not taken again.
            ConnectException: The store refuses, or a row is bad and ``errors.tolerance`` does not allow that.
        """
        if frame.num_rows and frame.table is not self._taken:
            self._take(frame)
            self._taken = frame.table
        self._work()
        self._taken, self._is_again = None, False

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets in front of what is not in files yet; before partitions go, their files are closed."""
        _, files = self._parts
        if self.context.is_closing and self.settings.flush_on_close:
            files.close(offsets)
            try:
                self._publish()
            except ConnectException as error:
                log.warning("Open files could not be closed, so their records will be read again: %s", error)
        found = {}
        for place, given in offsets.items():
            waiting = files.safe_offset(place)
            # Where nothing waits it is also behind what a sink does not see: the ends of transactions.
            found[place] = given if waiting is None else OffsetAndMetadata(min(waiting, given.offset))
        return found

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions up, with what is not in files."""
        publisher, files = self._parts
        for generation in files.forget(partitions):
            publisher.forget(generation)
        self._taken = None

    def stop(self) -> None:
        """Lets go of files on this computer and of connections."""
        if self._publisher is not None:
            self._publisher.close()

    @property
    def _parts(self) -> tuple[Publisher, RollingFiles]:
        assert self._publisher is not None
        assert self._files is not None
        return self._publisher, self._files

    def _location(self) -> Location:
        return FileSinkConfig.parse(self.context.configs()).location()

    def _tick(self) -> None:
        _, files = self._parts
        files.close_due(_now_ms())
        self._work()

    def _take(self, frame: SinkFrame) -> None:
        _, files = self._parts
        new = frame.since(files.next_offsets)
        if new.num_rows < frame.num_rows and not self._is_again:
            raise ConnectException(_ALREADY_READ.format(*_first_place(frame)))
        reached = frame.next_offsets()
        for place, part in new.by_partition().items():
            self._append(place, self._without_nulls(part))
        for place, offset in reached.items():
            files.reached(place, offset)

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
            self._parts[1].append(place, self._rows(rows), _now_ms())

        if not part.num_rows:
            return
        try:
            # An error without any row is one of the schema, and so of all rows.
            self._rows(part.slice(0, 0))
        except DataException as error:
            self.context.report(part, np.arange(part.num_rows), error)
            return
        isolate(append, part, errors=DataException)

    def _rows(self, part: SinkFrame) -> Rows:
        """Rows as files hold them.

        Raises:
            DataException: One of them is bad.
        """
        times = self._partitioner.timestamps(part, _now_ms())
        codes, directories = self._partitioner.directories(part, times)
        number = 0
        if self._format.has_schema:
            track = self._track(part)
            column, schema = track.fit(one_array(part.table.column("value")), part.value_schema)
            if schema is not part.value_schema:
                at = part.table.column_names.index("value")
                part = replace(part, table=part.table.set_column(at, "value", column), value_schema=schema)
            number = track.number(schema)
        try:
            table = self._format.prepare(part)
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

    def _work(self) -> None:
        """Writes closed files, and keeps the memory of open ones within its limit."""
        publisher, files = self._parts
        try:
            self._publish()
            for generation, block in files.over_limit():
                publisher.move(generation, block)
        except RetriableException:
            self._is_again = True
            self.context.timeout(self.settings.retry_backoff_ms)
            raise

    def _publish(self) -> None:
        publisher, files = self._parts
        for generation in files.closed:
            size = publisher.publish(generation)
            files.written(generation, size)
            self.context.request_commit()


def format_of(config: FileSinkConfig) -> Format:
    """The format that the settings say."""
    columns, prefix = config.metadata_columns, config.metadata_columns_prefix
    match config.format:
        case "parquet":
            return Parquet(columns, prefix, config.parquet_codec)
        case "orc":
            return Orc(columns, prefix)
        case "avro":
            return Avro(config.avro_codec, columns, prefix)
        case "csv":
            return Csv(columns, prefix, config.compression)
        case "json":
            return JsonLines(columns, prefix, config.compression)
    separator = config.format_bytearray_separator
    for text, meant in _ESCAPES.items():
        separator = separator.replace(text, meant)
    return Bytes(separator.encode(), config.format_bytearray_extension, config.compression)


_ALREADY_READ: Final = (
    "Of topic {}, partition {} comes the offset {}, which was read before. The topic was deleted and made again, or "
    "its offsets were reset under the running task: its files would take the place of others of the same names. Set "
    "another topics.dir, or restart the task to go on with this one"
)


def _first_place(frame: SinkFrame) -> tuple[str, int, int]:
    at = frame.origin.slice(0, 1).to_pylist()[0]
    return at["topic"], at["partition"], at["offset"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
