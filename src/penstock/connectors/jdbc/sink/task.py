"""JDBC sink task: turns the rows of a frame into changes and writes them in one transaction.

Main type: `JdbcSinkTask`, on the task's thread. Needs SQLAlchemy and a driver.
"""

from __future__ import annotations

import decimal
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.api import (
    FrameSinkTask,
    OffsetsInTarget,
    SinkFrame,
    TopicPartition,
    isolate,
)
from penstock.api.frames.frame import Rows
from penstock.connectors.jdbc import mysql
from penstock.connectors.jdbc.sink.changes import RowsRefused, Target, changes_of
from penstock.connectors.jdbc.sink.fitting import fits
from penstock.connectors.jdbc.sink.schemaless import is_schemaless, json_texts, typed_by, typed_keys
from penstock.connectors.jdbc.sink.settings import JdbcSinkConfig, PkMode
from penstock.connectors.jdbc.sink.writing import TableChangeWriter, Write, explained, writer_for
from penstock.connectors.jdbc.tables import Table
from penstock.data import Type
from penstock.errors import ConnectException, DataException, OwnershipLostException, RetriableException

log = logging.getLogger(__name__)


class JdbcSinkTask(FrameSinkTask):
    """Writes each frame in a transaction of its own, before ``put`` returns. A row that cannot be written is reported.

    At least once: a frame whose transaction was committed may come again after a kill. With ``insert.mode=upsert`` that
    changes nothing.
    """

    def __init__(self) -> None:
        self._config: JdbcSinkConfig | None = None
        self._writer: TableChangeWriter | None = None
        self._retries = 0
        self._written: dict[TopicPartition, int] = {}
        self._offsets: OffsetsInTarget | None = None
        self._reports: list[Future[None]] = []

    def start(self, props: Mapping[str, str]) -> None:
        """Takes the settings; the connection is made for the first frame.

        Raises:
            ConfigException: The settings are wrong.
        """
        self._config = JdbcSinkConfig.parse(props)
        self._writer = writer_for(self._config)
        if self._config.offsets_in_target:
            self._offsets = kept_offsets(props["name"], self._writer)

    def put(self, frame: SinkFrame) -> None:
        """Writes the rows of a frame, and reports rows that cannot be written.

        Raises:
            RetriableException: The database was unavailable; the frame comes again, without the written rows.
            ConnectException: A table or column is missing, the retries are used up, or a row cannot be written and
                ``errors.tolerance`` does not allow that.
        """
        if not frame.num_rows:
            return
        writer = self._database
        try:
            self._deliver(frame.since(self._written) if self._offsets is None else self._offsets.new(frame))
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
        """Begins where the table of offsets is, if there is one, and else where Kafka is.

        Raises:
            RetriableException: The database cannot be reached, ``connection.attempts`` times.
            ConnectException: The table of offsets cannot be made or written.
        """
        self._written.clear()
        self._reports.clear()
        if self._offsets is None:
            return
        for attempt in range(self._settings.connection_attempts):
            try:
                claimed = claim(self._database, self._offsets, partitions)
            except RetriableException:
                if attempt + 1 == self._settings.connection_attempts:
                    raise
                time.sleep(self._settings.connection_backoff_ms / 1000)
            else:
                self.context.offset(claimed)
                return

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives partitions up."""
        if self._offsets is not None:
            self._offsets.forget(partitions)

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
            try:
                self._write(part, writes if part is good and writes is not None else self._writes(part))
            except DataException:
                if part is good:
                    # If the table was altered so that it takes no record any more, that is the error.
                    self._database.forget()
                    self._writes(part)
                raise

        isolate(write, good, errors=DataException, report=self._report)
        if self._offsets is not None and (behind := self._offsets.pending(frame.next_offsets())):
            self._transaction([], behind)  # The last rows are reported.

    def _sifted(self, frame: SinkFrame) -> tuple[SinkFrame, list[Write] | None]:
        """The rows that are changes of tables, and these changes; None: bad rows are still among them.

        The others are reported.
        """
        kept: list[np.ndarray] = []
        writes: list[Write] | None = []
        for topic, numbers in _by_topic(frame):
            rest = numbers
            while len(rest):
                try:
                    changes = self._changes(topic, frame.take(rest))
                    writes = None if writes is None else writes + changes
                    break
                except RowsRefused as error:
                    self._report(frame, rest[error.rows], error)
                    rest = np.delete(rest, error.rows)
                except DataException:
                    writes = None  # It says of one row only that it is bad.
                    break
            kept.append(rest)
        rows = np.sort(np.concatenate(kept)) if kept else np.arange(0)
        return frame if len(rows) == frame.num_rows else frame.take(rows), writes

    def _report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> None:
        stored = self.context.report(frame, rows, error)
        if self._offsets is not None:
            self._reports.append(stored)

    def _write(self, frame: SinkFrame, writes: list[Write]) -> None:
        reached = frame.next_offsets()
        try:
            self._transaction(writes, reached)
        except (RetriableException, DataException, OwnershipLostException):
            raise
        except ConnectException as error:
            log.warning("%s. The table may have been altered: it is looked at again, and written to once more", error)
            self._database.forget()
            writes = self._writes(frame)
            try:
                self._transaction(writes, reached)
            except (RetriableException, DataException, OwnershipLostException):
                raise
            except ConnectException as again:
                raise explained(again, writes) from again
        # If a later part fails for a while, the frame comes again, and these rows are left out.
        self._written.update(reached)

    def _transaction(self, writes: list[Write], reached: Mapping[TopicPartition, int]) -> None:
        """Writes changes, and moves offsets with them if they are in the database."""
        offsets = self._offsets
        if offsets is None:
            self._database.write(writes)
            return
        for stored in self._reports:
            stored.result()  # An offset after a bad row may be committed only after its report is stored.
        self._reports.clear()
        self._database.write(writes, lambda run: offsets.move(run, reached))
        offsets.moved(reached)

    @property
    def _database(self) -> TableChangeWriter:
        assert self._writer is not None
        return self._writer

    def _writes(self, frame: SinkFrame) -> list[Write]:
        return [write for topic, numbers in _by_topic(frame) for write in self._changes(topic, frame.take(numbers))]

    def _changes(self, topic: str, part: SinkFrame) -> list[Write]:
        """The changes of the table of a topic.

        Raises:
            RowsRefused: Rows are no changes.
            DataException: The same, but it does not say which others are.
            ConnectException: The table, or a column, is not there.
        """
        config, name = self._settings, self._settings.table_of(topic)
        missing: Mapping[str, np.ndarray] = {}
        default_keys: Sequence[str] = ()
        schemaless = is_schemaless(part.table.column("value"), part.value_schema)
        if schemaless:
            found = self._database.known(name)
            default_keys = found.primary_key
            if config.pk_mode is PkMode.RECORD_KEY and is_schemaless(part.table.column("key"), part.key_schema):
                part = typed_keys(found, part, config.pk_fields or default_keys)
            part, missing = typed_by(found, part, config.fields, _other_columns(config, part))
        what = f"the records of topic {topic}"
        changes = changes_of(config, part.table, part.origin, part.key_schema, part.value_schema, what, default_keys)
        table = self._database.table(name, changes.columns, changes.rows)
        if table is None:
            return []
        for one in changes.columns:
            if not fits(one.schema, table.types[one.name], self._database.dialect, is_text=schemaless):
                raise RowsRefused(_misfit(one, table, what), None, part.num_rows)
        ready = replace(changes, rows=_storable(changes.rows, table), deletes=_storable(changes.deletes, table))
        return [Write(table, one) for one in ready.by_missing(missing)]


def _misfit(column: Target, table: Table, what: str) -> str:
    kind = table.types[column.name]
    return (
        f"The field {column.name!r} of {what} is {column.schema}, and the column of the table {table.name} is {kind}, "
        "which does not hold its values as they are: alter the column, or cast the field with the transform Cast"
    )


def _other_columns(config: JdbcSinkConfig, part: SinkFrame) -> Sequence[str]:
    """The columns whose values are not of the record's value."""
    if config.pk_mode is PkMode.KAFKA:
        return config.kafka_keys
    if config.pk_mode is not PkMode.RECORD_KEY:
        return ()
    schema = part.key_schema
    of_key = [one.name for one in schema.fields] if schema is not None and schema.type is Type.STRUCT else []
    return config.pk_fields or of_key


def kept_offsets(connector: str, writer: TableChangeWriter) -> OffsetsInTarget:
    """The offsets of a connector in the database of a writer."""
    return OffsetsInTarget(connector, placeholder=writer.placeholder, mysql=writer.dialect == mysql.NAME)


def claim(
    writer: TableChangeWriter, offsets: OffsetsInTarget, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Makes the table of offsets if it is not there, and the task the owner of partitions.

    Raises:
        RetriableException: The database cannot be reached.
        ConnectException: It refuses a statement.
    """
    found: dict[TopicPartition, int] = {}

    def run_claim() -> None:
        writer.write([], lambda run: found.update(offsets.claim(run, partitions)))

    try:
        run_claim()
    except RetriableException:
        raise
    except ConnectException:  # Usually there is no table yet. To make it needs more rights than to use it.
        create_offsets(writer, offsets)
        run_claim()
    return found


def create_offsets(writer: TableChangeWriter, offsets: OffsetsInTarget) -> None:
    """Makes the table of offsets if it is not there.

    Raises:
        RetriableException: The database cannot be reached.
        ConnectException: It refuses the statement.
    """
    for is_last in (False, True):
        try:
            writer.write([], lambda run: run(offsets.create_statement, ()))
            return
        except DataException:  # Another task makes it at the same time.
            if is_last:
                raise


def _by_topic(frame: SinkFrame) -> list[tuple[str, np.ndarray]]:
    """The topics that rows have now, each with the numbers of its rows."""
    topics = frame.table.column("topic")
    numbers = np.arange(frame.num_rows)
    there = pc.unique(topics).to_pylist()
    if len(there) == 1:
        return [(there[0], numbers)]
    return [(one, numbers[pc.equal(topics, one).to_numpy()]) for one in there]


def _storable(rows: pa.Table, table: Table) -> pa.Table:
    """The same rows, with what drivers do not take as text: decimals of any number of digits, and nested values."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_struct(field.type) and {one.name for one in field.type} == {"unscaled", "scale"}:
            rows = rows.set_column(place, field.name, _printed(rows.column(place)))
        elif pa.types.is_nested(field.type) and isinstance(table.types[field.name], sa.JSON):
            values = rows.column(place).to_pylist(maps_as_pydicts="lossy")
            rows = rows.set_column(place, field.name, json_texts(values))
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
