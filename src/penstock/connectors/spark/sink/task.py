"""Spark sink task: collects frames until they fill a file, and writes them. Main type: `SparkSinkTask`.

Thread: the task's.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.api import (
    FrameGatherer,
    FrameSinkTask,
    OffsetAndMetadata,
    SinkFrame,
    SinkTaskContext,
    TopicPartition,
    isolate,
)
from penstock.api.spark_types import struct_type
from penstock.connectors.setting_values import OnNull
from penstock.connectors.spark.sink.columns import RowColumns, joined, with_marks
from penstock.connectors.spark.sink.settings import SaveMode, SparkSinkConfig
from penstock.connectors.spark.sink.writing import SparkTableWriter
from penstock.errors import ConnectException, DataException, RetriableException

log = logging.getLogger(__name__)

#: The clock is looked at so often, at least, and at most.
_TICK_S: Final = (0.05, 1.0)


class SparkSinkTask(FrameSinkTask):
    """Writes records with Spark, and commits the offsets of written records."""

    config_class = SparkSinkConfig

    def start(self, props: Mapping[str, str]) -> None:
        """See ``Task.start``."""
        super().start(props)
        config: SparkSinkConfig = self.settings
        is_upsert = config.mode is SaveMode.UPSERT
        self._columns = RowColumns(
            arrow_types(config.spark_schema) if config.spark_schema.strip() else None,
            config.metadata_columns,
            config.metadata_columns_prefix,
            config.key_columns if is_upsert else (),
        )
        self._held = FrameGatherer(config.frame_min_rows, config.frame_max_wait_ms)
        self._writer = SparkTableWriter(config, self.context.spark)
        #: The rows of frames that wait for another try; rows that were bad are reported once.
        self._made: dict[int, list[pa.Table]] = {}
        shortest, longest = _TICK_S
        self.context.every(min(longest, max(shortest, config.frame_max_wait_ms / 4000)), self._write_due)

    def put(self, frame: SinkFrame) -> None:
        """Takes a frame; writes frames that are due.

        Raises:
            RetriableException: The target is unavailable; the frame is not taken twice.
            ConnectException: The target rejects the write, or a row is bad and ``errors.tolerance`` does not allow
                that.
        """
        self._held.add(frame)
        self._write_due()
        self._held.done()

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets before the first unwritten row; before partitions are revoked, everything is written."""
        if self.context.is_closing:
            try:
                self._write()
            except ConnectException as error:
                log.warning("Rows that wait could not be written, so they will be read again: %s", error)
        return self._held.safe(offsets)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions up, with rows that are not written."""
        self._held.forget(partitions)
        self._made.clear()

    def _write_due(self) -> None:
        if self._held.is_due:
            self._write()

    def _write(self) -> None:
        """Writes all that is held, as few files."""
        frames = self._held.frames
        if not frames:
            return
        try:
            done = 0
            tables = [(number, table) for number, frame in enumerate(frames) for table in self._tables(frame)]
            for last, table in joined(tables):
                self._writer.write(table)
                # Frames of which all is written; one in the middle may begin the next table, too.
                whole = last + 1 if all(number > last for number, _ in tables if number > last) else last
                self._release(whole - done)
                done = whole
            self._release(len(self._held.frames))
        except RetriableException:
            self.context.timeout(self.settings.retry_backoff_ms)
            raise
        self.context.request_commit()

    def _release(self, count: int) -> None:
        for frame in self._held.frames[:count]:
            self._made.pop(id(frame), None)
        if count:
            self._held.written(count)

    def _tables(self, frame: SinkFrame) -> list[pa.Table]:
        """The rows of a frame as they are written; bad ones are reported."""
        found = self._made.get(id(frame))
        if found is None:
            found = []
            column = frame.table.column("value")
            gone = np.ones(frame.num_rows, bool) if pa.types.is_null(column.type) else column.is_null().to_numpy()
            if gone.any() and not self.settings.deletes:
                if self.settings.behavior_on_null_values is OnNull.FAIL:
                    refuse_nulls(self.context, frame, gone)
                frame_rows = [(frame.take(np.flatnonzero(~gone)), False)]
            else:
                frame_rows = [(part, deletes) for part, deletes in _runs(frame, gone)]
            for part, deletes in frame_rows:
                self._collect(part, found, deletes=deletes)
            self._made[id(frame)] = found
        return found

    def _collect(self, part: SinkFrame, found: list[pa.Table], *, deletes: bool) -> None:
        marks = self.settings.mode is SaveMode.UPSERT

        def collect(rows: SinkFrame) -> None:
            table = self._columns.of_deleted(rows) if deletes else self._columns.of(rows)
            found.append(with_marks(table, deletes=deletes) if marks else table)

        if part.num_rows:
            isolate(collect, part, errors=DataException)


def refuse_nulls(context: SinkTaskContext, frame: SinkFrame, gone: np.ndarray) -> None:
    """Reports rows without values, as ``errors.tolerance`` says.

    Raises:
        ConnectException: It does not allow that.
    """
    error = DataException(
        "The value is null, which is no row: behavior.on.null.values=ignore leaves such records out, and with "
        "mode=upsert delete.enabled=true deletes the rows of their keys"
    )
    context.report(frame, np.flatnonzero(gone), error)


def _runs(frame: SinkFrame, gone: np.ndarray) -> list[tuple[SinkFrame, bool]]:
    """Parts of a frame whose rows all have values, or all have none, in order."""
    edges = [0, *(np.flatnonzero(gone[1:] != gone[:-1]) + 1).tolist(), frame.num_rows]
    return [
        (frame.slice(start, end - start), bool(gone[start])) for start, end in itertools.pairwise(edges) if end > start
    ]


def arrow_types(ddl: str) -> dict[str, pa.DataType]:
    """The columns of a DDL text as types of Arrow.

    >>> arrow_types("id bigint, total decimal(10,2)")
    {'id': DataType(int64), 'total': Decimal128Type(decimal128(10, 2))}
    """
    from pyspark.sql.pandas.types import to_arrow_type

    return {one.name: to_arrow_type(one.dataType) for one in struct_type(ddl).fields}
