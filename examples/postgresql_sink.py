"""A sink of a table of PostgreSQL that writes each record once: offsets move in the transaction that writes the rows.

The fields of the values are columns, and one of them the key of the table. A null value deletes the row of the record's
key. Rows that the table refuses are found alone and reported; while the database is away, records wait.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg

from penstock.api import (
    FrameSinkTask,
    OffsetAndMetadata,
    OffsetsInTarget,
    SinkConnector,
    SinkFrame,
    TopicPartition,
    isolate,
)
from penstock.config import AbstractConfig, NonEmptyString, Password, setting
from penstock.errors import ConnectException, DataException, RetriableException


class RowsConfig(AbstractConfig):
    url: Password = setting(doc="postgresql://user:password@host:port/database")
    table: str = setting(validator=NonEmptyString(), doc="The table. It has to be there.")
    columns: tuple[str, ...] = setting(doc="The fields that are written, each to the column of its name.")
    key: str = setting(default="id", doc="The one of them that is the key of the table, and that of the records.")


@contextmanager
def faults_of_database() -> Iterator[None]:
    """Says what is to be done about an error: wait, or leave a row out."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise RetriableException(f"The database is away: {error}") from error
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise DataException(f"The database does not accept a row: {error}") from error
    except psycopg.Error as error:
        raise ConnectException(f"The database refuses a statement: {error}") from error


def connect(config: RowsConfig) -> psycopg.Connection[Any]:
    with faults_of_database():
        return psycopg.connect(config.url.value, connect_timeout=5)


class RowsTask(FrameSinkTask):
    config_class = RowsConfig
    connection: psycopg.Connection[Any] | None = None

    def start(self, props: Mapping[str, str]) -> None:
        super().start(props)
        self.offsets = OffsetsInTarget(props["name"], placeholder="%s")
        config, quote = self.settings, '"{}"'.format
        names = ", ".join(map(quote, config.columns))
        changes = ", ".join(f"{quote(one)} = excluded.{quote(one)}" for one in config.columns)
        self.upsert = (
            f"INSERT INTO {quote(config.table)} ({names}) SELECT {names} FROM new "
            f"ON CONFLICT ({quote(config.key)}) DO UPDATE SET {changes}"
        )
        self.copy = f"COPY new ({names}) FROM STDIN"
        self.new_table = f"CREATE TEMPORARY TABLE new (LIKE {quote(config.table)}) ON COMMIT DROP"
        self.delete = f"DELETE FROM {quote(config.table)} WHERE {quote(config.key)} = ANY(%s)"

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        if self.connection is None or self.connection.closed:
            self.connection = connect(self.settings)
        with faults_of_database(), self.connection.transaction(), self.connection.cursor() as cursor:
            yield cursor

    def open(self, partitions: Collection[TopicPartition]) -> None:
        with self.transaction() as cursor:
            cursor.execute(self.offsets.create_statement)
            self.context.offset(self.offsets.claim(cursor, partitions))

    def put(self, frame: SinkFrame) -> None:
        isolate(self.write, self.offsets.new(frame), errors=DataException)

    def write(self, frame: SinkFrame) -> None:
        new = self.offsets.new(frame)  # What was written before `put` came again is left out.
        reached = new.next_offsets()
        keys, gone = new.table["key"].to_pylist(), new.table["value"].is_null().to_pylist()
        cells = zip(*(column.to_pylist() for column in new.fields(self.settings.columns)), strict=True)
        last = {key: None if is_gone else row for key, is_gone, row in zip(keys, gone, cells, strict=True)}
        with self.transaction() as cursor:
            self.offsets.move(cursor, reached)
            cursor.execute(self.delete, ([key for key, row in last.items() if row is None],))
            cursor.execute(self.new_table)
            with cursor.copy(self.copy) as copy:
                for row in filter(None, last.values()):
                    copy.write_row(row)
            cursor.execute(self.upsert)
        self.offsets.moved(reached)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {}  # The database knows; Kafka need not.

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self.offsets.forget(partitions)

    def stop(self) -> None:
        if self.connection is not None:
            self.connection.close()


class RowsSink(SinkConnector):
    config_class, task_class = RowsConfig, RowsTask

    def faults(self, settings: RowsConfig) -> Iterator[tuple[str, str]]:
        try:
            connect(settings).close()
        except ConnectException as error:
            yield "url", str(error)
