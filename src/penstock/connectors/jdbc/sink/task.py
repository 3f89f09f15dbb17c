"""JDBC sink task: makes changes of the rows of a frame and writes them in one transaction.

Main type: `JdbcSinkTask`, on the task's thread. Needs SQLAlchemy and a driver.
"""

from __future__ import annotations

import decimal
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import FrameSinkTask, SinkFrame, TopicPartition, isolate
from penstock.api.rows import Rows
from penstock.connectors.jdbc.sink.changes import RowsRefused, changes_of
from penstock.connectors.jdbc.sink.settings import JdbcSinkConfig
from penstock.connectors.jdbc.sink.writing import Write, Writer, writer_for
from penstock.errors import ConnectException, DataException, RetriableException

log = logging.getLogger(__name__)


class JdbcSinkTask(FrameSinkTask):
    """Writes each frame in a transaction of its own, before ``put`` returns. A row that cannot be written is reported.

    At least once: a frame whose transaction was committed may come again after a kill. With ``insert.mode=upsert`` that
    changes nothing.
    """

    def __init__(self) -> None:
        self._config: JdbcSinkConfig | None = None
        self._writer: Writer | None = None
        self._retries = 0
        self._written: dict[TopicPartition, int] = {}

    def start(self, props: Mapping[str, str]) -> None:
        """Takes the settings; the connection is made for the first frame.

        Raises:
            ConfigException: The settings are wrong.
        """
        self._config = JdbcSinkConfig.parse(props)
        self._writer = writer_for(self._config)

    def put(self, frame: SinkFrame) -> None:
        """Writes the rows of a frame, and reports those that cannot be written.

        Raises:
            RetriableException: The database was away; the frame comes again, without the rows that are written.
            ConnectException: A table or column is missing, the retries are used up, or a row cannot be written and
                ``errors.tolerance`` does not allow that.
        """
        if not frame.num_rows:
            return
        writer = self._writer
        assert writer is not None
        try:
            self._deliver(frame.since(self._written))
        except RetriableException as error:
            self._retries += 1
            writer.forget()
            limit = self._settings.max_retries
            if 0 <= limit < self._retries:
                raise ConnectException(
                    f"{error}. Tried {self._retries} times (max.retries={limit}); restart the task when the "
                    "database is back"
                ) from error
            self.context.timeout(self._settings.retry_backoff_ms)
            raise
        except ConnectException:
            writer.forget()
            raise
        self._retries = 0
        self._written.clear()

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets how much of a frame is written: it comes from the beginning."""
        self._written.clear()

    def stop(self) -> None:
        """Closes the connection."""
        if self._writer is not None:
            self._writer.close()

    @property
    def _settings(self) -> JdbcSinkConfig:
        assert self._config is not None
        return self._config

    def _deliver(self, frame: SinkFrame) -> None:
        """Writes what can be written; when the database refuses rows, it is asked again for ever smaller parts."""
        good, writes = self._sifted(frame)

        def write(part: SinkFrame) -> None:
            self._write(part, writes if part is good else self._writes(part))

        isolate(write, good, errors=DataException, report=self._report)

    def _sifted(self, frame: SinkFrame) -> tuple[SinkFrame, list[Write]]:
        """The rows that are changes of tables, and these changes. The others are reported."""
        kept: list[np.ndarray] = []
        writes: list[Write] = []
        for topic, numbers in _by_topic(frame):
            rest = numbers
            while len(rest):
                try:
                    writes.append(self._changes(topic, frame.take(rest)))
                    break
                except RowsRefused as error:
                    self._report(frame, rest[error.rows], error)
                    rest = np.delete(rest, error.rows)
            kept.append(rest)
        rows = np.sort(np.concatenate(kept)) if kept else np.arange(0)
        return frame if len(rows) == frame.num_rows else frame.take(rows), writes

    def _report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> None:
        self.context.report(frame, rows, error)

    def _write(self, frame: SinkFrame, writes: list[Write]) -> None:
        assert self._writer is not None
        self._writer.write(writes)
        # If a later part fails for a while, the frame comes again, and these rows are left out.
        self._written.update(frame.next_offsets())

    def _writes(self, frame: SinkFrame) -> list[Write]:
        return [self._changes(topic, frame.take(numbers)) for topic, numbers in _by_topic(frame)]

    def _changes(self, topic: str, part: SinkFrame) -> Write:
        """The changes of the table of a topic.

        Raises:
            RowsRefused: Rows are no changes.
            ConnectException: The table, or a column, is not there.
        """
        assert self._writer is not None
        what = f"the records of topic {topic}"
        changes = changes_of(self._settings, part.table, part.origin, part.key_schema, part.value_schema, what)
        table = self._writer.table(self._settings.table_of(topic), changes.columns)
        return Write(table, replace(changes, rows=_storable(changes.rows)))


def _by_topic(frame: SinkFrame) -> list[tuple[str, np.ndarray]]:
    """The topics that rows have now, each with the numbers of its rows."""
    topics = frame.table.column("topic")
    numbers = np.arange(frame.num_rows)
    there = pc.unique(topics).to_pylist()
    if len(there) == 1:
        return [(there[0], numbers)]
    return [(one, numbers[pc.equal(topics, one).to_numpy()]) for one in there]


def _storable(rows: pa.Table) -> pa.Table:
    """The same rows, with decimals of any number of digits as text, which a database reads exactly."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_struct(field.type) and {one.name for one in field.type} == {"unscaled", "scale"}:
            rows = rows.set_column(place, field.name, _printed(rows.column(place)))
    return rows


def _printed(cells: pa.ChunkedArray) -> pa.Array:
    texts: list[str | None] = []
    for cell in cells.to_pylist():
        if cell is None or cell["unscaled"] is None:
            texts.append(None)
            continue
        number = int.from_bytes(cell["unscaled"], "big", signed=True)
        texts.append(format(decimal.Decimal(number).scaleb(-cell["scale"], decimal.Context(prec=1100)), "f"))
    return pa.array(texts, pa.string())
