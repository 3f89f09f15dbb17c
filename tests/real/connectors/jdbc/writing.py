"""A sink task in the test's own process, and databases it writes to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import psycopg
import pyarrow as pa
from testkit.doubles.contexts import ReportingSinkContext
from testkit.processes.mariadb import MariaDb

from penstock.api import SinkFrame, TopicPartition
from penstock.broker.postgresql import PostgreSql
from penstock.connectors.jdbc import JdbcSink
from penstock.connectors.jdbc.sink.task import JdbcSinkTask
from penstock.data import INT64_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder
from penstock.pipeline.columns.layout import VARIANT_FIELDS
from penstock.pipeline.columns.schemaless import SchemalessColumn, column_of
from penstock.pipeline.columns.variant import encode

VALUE = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()
HERE = TopicPartition("t", 0)


class Database:
    """A database of the tests: runs statements over connections of its own.

    Attributes:
        kind: ``postgresql``, ``mariadb``, ``sqlite`` or ``duckdb``.
    """

    def __init__(self, url: str, kind: str, connect: Callable[[], Any]) -> None:
        self.url = url
        self.kind = kind
        self._connect = connect

    @staticmethod
    def of_postgresql(server: PostgreSql) -> Database:
        """A database of a server."""
        url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        return Database(server.jdbc_url, "postgresql", lambda: psycopg.connect(url))

    @staticmethod
    def of_mariadb(server: MariaDb) -> Database:
        """A database of a server."""
        return Database(server.jdbc_url, "mariadb", server.connect)

    @staticmethod
    def of_sqlite(path: Path) -> Database:
        """The database of a file."""
        return Database(f"jdbc:sqlite:{path}", "sqlite", lambda: sqlite3.connect(path))

    @staticmethod
    def of_duckdb(path: Path) -> Database:
        """The database of a file."""
        return Database(f"jdbc:duckdb:{path}", "duckdb", lambda: _DuckDb(path))

    def connect(self) -> Any:
        """A connection of the driver."""
        return self._connect()

    def run(self, *statements: str) -> None:
        """Runs statements in a transaction."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]


class _DuckDb:
    """A connection that begins transactions by itself, as those of the other drivers do."""

    def __init__(self, path: Path) -> None:
        self._connection = duckdb.connect(str(path))

    def cursor(self) -> _DuckDb:
        return self

    def execute(self, statement: str) -> None:
        self._connection.execute(statement)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._connection.fetchall()

    def commit(self) -> None:
        with suppress(duckdb.TransactionException):
            self._connection.commit()

    def close(self) -> None:
        with suppress(duckdb.Error):
            self._connection.close()


class Writing:
    """A started sink task."""

    def __init__(self, database: Database, table: str, settings: Mapping[str, str], tolerant: bool = True) -> None:
        self.props = {
            "name": "s",
            "topics": "t",
            "connection.url": database.url,
            "table.name.format": table,
            "retry.backoff.ms": "0",
            **settings,
        }
        self.context = ReportingSinkContext(tolerant=tolerant)
        self.task: JdbcSinkTask = JdbcSink().task_class()()  # type: ignore[assignment]
        self.task.initialize(self.context)
        self.task.start(self.props)
        self.task.open([HERE])

    @property
    def reported(self) -> list[int]:
        """The offsets of the rows that were reported."""
        return [offset for offset, _ in self.context.reported]

    def frame(
        self,
        values: Sequence[Any] | pa.Array | SchemalessColumn,
        schema: Schema | None = VALUE,
        *,
        keys: Sequence[Any] | pa.Array | SchemalessColumn | None = None,
        key_schema: Schema | None = STRING_SCHEMA,
        first: int = 0,
        topic: str = "t",
        kind: pa.DataType | None = None,
    ) -> SinkFrame:
        """Records of the topic ``t``, with the offsets from ``first`` on; ``topic`` is where a router sent them."""
        marks = {
            name: one.marks for name, one in (("key", keys), ("value", values)) if isinstance(one, SchemalessColumn)
        }
        keys = keys.array if isinstance(keys, SchemalessColumn) else keys
        values = values.array if isinstance(values, SchemalessColumn) else values
        count = len(values)
        if schema is VALUE:
            kind = pa.struct([("id", pa.int64()), ("name", pa.string())])
        keys = pa.nulls(count) if keys is None else keys
        table = pa.table(
            {
                "topic": [topic] * count,
                "partition": [0] * count,
                "offset": range(first, first + count),
                "key": keys,
                "value": pa.array(values, kind) if not isinstance(values, pa.Array) else values,
            }
        )
        origin = pa.table(
            {
                "topic": ["t"] * count,
                "partition": pa.array([0] * count, pa.int32()),
                "offset": range(first, first + count),
            }
        )
        beside = pa.table(marks) if marks else None
        return SinkFrame(table, key_schema, schema, origin=origin, _context=self.context, _marks=beside)

    def put(self, *args: Any, **named: Any) -> None:
        """Gives the task a frame."""
        self.task.put(self.frame(*args, **named))


def schemaless(values: Sequence[object]) -> SchemalessColumn:
    """Values as JSON without a schema has them."""
    column, errors = column_of(values)
    assert not errors
    return column


def variants(values: Sequence[object]) -> pa.Array:
    """The same as VARIANT, which is what values without a common type are."""
    pairs = [(b"\x00", b"\x01\x00\x00") if value is None else encode(value) for value in values]
    data, names = pa.array([one[0] for one in pairs], pa.binary()), pa.array([one[1] for one in pairs], pa.binary())
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays([data, names], fields=list(VARIANT_FIELDS), mask=mask)


def record(number: int | None, name: str | None) -> dict[str, Any]:
    """A value."""
    return {"id": number, "name": name}


Start: TypeAlias = Callable[..., Writing]
