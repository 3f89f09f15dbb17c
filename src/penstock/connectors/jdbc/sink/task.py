"""JDBC sink task: makes changes of the rows of a frame and writes them in one transaction.

Main type: `JdbcSinkTask`, on the task's thread. Needs SQLAlchemy and a driver.
"""

from __future__ import annotations

import decimal
import logging
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import FrameSinkTask, SinkFrame
from penstock.connectors.jdbc.sink.changes import changes_of
from penstock.connectors.jdbc.sink.settings import JdbcSinkConfig
from penstock.connectors.jdbc.sink.writing import Write, Writer, writer_for
from penstock.errors import ConnectException, RetriableException

log = logging.getLogger(__name__)


class JdbcSinkTask(FrameSinkTask):
    """Writes each frame in a transaction of its own, before ``put`` returns.

    At least once: a frame whose transaction was committed may come again after a kill. With ``insert.mode=upsert`` that
    changes nothing.
    """

    def __init__(self) -> None:
        self._config: JdbcSinkConfig | None = None
        self._writer: Writer | None = None
        self._retries = 0

    def start(self, props: Mapping[str, str]) -> None:
        """Takes the settings; the connection is made for the first frame.

        Raises:
            ConfigException: The settings are wrong.
        """
        self._config = JdbcSinkConfig.parse(props)
        self._writer = writer_for(self._config)

    def put(self, frame: SinkFrame) -> None:
        """Writes the rows of a frame.

        Raises:
            RetriableException: The database was away; the frame comes again.
            DataException: A row is not accepted.
            ConnectException: A table or column is missing, or the retries are used up.
        """
        assert self._config is not None
        assert self._writer is not None
        if not frame.num_rows:
            return
        try:
            self._write(frame, self._config, self._writer)
        except RetriableException as error:
            self._retries += 1
            self._writer.forget()
            if 0 <= self._config.max_retries < self._retries:
                raise ConnectException(
                    f"{error}. Tried {self._retries} times (max.retries={self._config.max_retries}); restart the task "
                    "when the database is back"
                ) from error
            self.context.timeout(self._config.retry_backoff_ms)
            raise
        except ConnectException:
            self._writer.forget()
            raise
        self._retries = 0

    def stop(self) -> None:
        """Closes the connection."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, frame: SinkFrame, config: JdbcSinkConfig, writer: Writer) -> None:
        writes = []
        topics = pc.unique(frame.table.column("topic")).to_pylist()
        for topic in topics:
            part = frame.table if len(topics) == 1 else frame.table.filter(pc.equal(frame.table.column("topic"), topic))
            changes = changes_of(
                config,
                part,
                part.select(["topic", "partition", "offset"]),
                frame.key_schema,
                frame.value_schema,
                f"the records of topic {topic}",
            )
            table = writer.table(config.table_of(topic), changes.columns)
            writes.append(Write(table, replace(changes, rows=_storable(changes.rows))))
        writer.write(writes)


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
