"""Connections of the source: they run its statements and give the rows as Arrow.

Main types: `ReadConnection`, with `reader_for`; `AdbcReader` for PostgreSQL, whose driver makes Arrow in C, and
`CursorReader` for every other database. Needs SQLAlchemy and a driver.

Thread: the task's; a reader has one statement at a time.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.connectors.jdbc import mysql, oracle, sqlserver
from penstock.connectors.jdbc.addresses import DatabaseAddress
from penstock.connectors.jdbc.columns import TableColumn, TypeMapping, column_of, utc
from penstock.connectors.jdbc.faults import fault_of
from penstock.connectors.jdbc.source.late_commits import (
    RUNNING,
    Look,
    Running,
    Snapshot,
    bound_of_numbers,
    bound_of_timestamps,
    reader_name,
    unsettled,
)
from penstock.connectors.jdbc.source.position import RowPosition
from penstock.connectors.jdbc.source.queries import INCREMENTING, TIMESTAMP, Bound, RowSelection, utc_nanoseconds
from penstock.connectors.jdbc.tables import Catalog, TableName, unreachable
from penstock.connectors.jdbc.url_forms import ORACLE, SQL_SERVER
from penstock.errors import ConnectException

#: The findings about tables, by their names.
Looks: TypeAlias = dict[TableName | str, Look]

log = logging.getLogger(__name__)

#: About how large a batch of rows is, whatever the width of the rows.
_BATCH_BYTES: Final = 8 * 1024 * 1024
_BATCHES: Final = {"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)}
#: Rows of the first batch of a cursor, from which the size of the next ones is guessed, and of the smallest.
_FIRST_ROWS: Final = 1000
_LEAST_ROWS: Final = 50
#: The levels of isolation at which a transaction reads from one snapshot.
_OF_SNAPSHOTS: Final = ("REPEATABLE READ", "SERIALIZABLE")


class ReadConnection(ABC):
    """One connection, in a transaction that reads."""

    @abstractmethod
    def bound(self, selection: RowSelection, after: RowPosition) -> Bound:
        """The bound of a read, as the database sees its own transactions; begins the transaction.

        Raises:
            RetriableException: The database cannot be reached, or ended the connection.
        """

    @abstractmethod
    def last(self, selection: RowSelection, after: RowPosition, bound: Bound) -> RowPosition | None:
        """The position of the last row before a bound, in the transaction that `bound` has begun; None without one.

        Raises:
            RetriableException: The database cannot be reached, or ended the connection.
            ConnectException: It refuses the statement.
        """

    @abstractmethod
    def count(self, statement: sa.Select[Any]) -> int:
        """The number that a statement with one row and one column gives.

        Raises:
            RetriableException: The database cannot be reached, or ended the connection.
            ConnectException: It refuses the statement.
        """

    @abstractmethod
    def rows(self, selection: RowSelection, statement: sa.Select[Any], most_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of a statement of a selection, while they come.

        Raises:
            RetriableException: The database cannot be reached, or ended the connection.
            ConnectException: It refuses the statement.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the transaction and the connection, also in the middle of a result. Any thread."""


def reader_for(
    address: DatabaseAddress,
    catalog: Catalog,
    isolation: str | None = None,
    looks: Looks | None = None,
    exported: str | None = None,
) -> ReadConnection:
    """A reader with a connection of its own, not yet opened.

    Args:
        address: Where the database is.
        catalog: Makes connections of databases that have no ADBC driver.
        isolation: ``transaction.isolation.mode`` in SQL's words; None: the best for the mode.
        looks: What readers before have seen of tables, for those after; it is changed.
        exported: The name of an exported snapshot to read from, if it is still there.
    """
    if address.dialect.name == "postgresql":
        return AdbcReader(address, isolation, looks, exported)
    if address.dialect.name == "duckdb":
        from penstock.connectors.jdbc.duckdb import DuckDbReader

        return DuckDbReader(address, catalog)
    return CursorReader(address, catalog, isolation)


class AdbcReader(ReadConnection):
    """PostgreSQL through ADBC: binary COPY becomes Arrow in C."""

    def __init__(
        self,
        address: DatabaseAddress,
        isolation: str | None = None,
        looks: Looks | None = None,
        exported: str | None = None,
    ) -> None:
        self._address = address
        self._looks = {} if looks is None else looks
        self._isolation = isolation or "REPEATABLE READ"
        self._exported = exported if self._isolation in _OF_SNAPSHOTS else None
        self._connection: Any = None
        self._begun = False
        self._cursor: Any = None
        # ADBC's driver takes no parameters with COPY, and no doubled per cent signs.
        self._dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]

    def bound(self, selection: RowSelection, after: RowPosition) -> Bound:
        """See `ReadConnection`.

        Source: the function pg_current_snapshot and the view pg_stat_activity of PostgreSQL.
        """
        self._connect()
        if not isinstance(selection.source, str) and selection.mode.value != "bulk":
            running = self._one(RUNNING)
            if not selection.mode.has_timestamp:
                return self._bound_of_numbers(selection, after, running)
            self._begin()
            snapshot = Snapshot.of(*self._one(Snapshot.SQL))
            lowest = None
            if snapshot.has_running:
                (lowest,) = self._one(self._text(selection.lowest(after, unsettled(snapshot))))
            return bound_of_timestamps(snapshot, running, utc_nanoseconds(lowest, selection.zone))
        return Bound()

    def _bound_of_numbers(self, selection: RowSelection, after: RowPosition, running: Running) -> Bound:
        """Looks twice: the transactions of the first look may have ended by the second one, else by a later read."""
        highest, *transactions = self._one(self._text(selection.highest(after, Look.SQL)))
        self._begin()
        snapshot = Snapshot.of(*self._one(Snapshot.SQL))
        looks = [one for one in (self._looks.get(selection.source),) if one is not None]
        if isinstance(highest, int):
            looks.append(Look.of(highest, *transactions))
        bound = bound_of_numbers(after.incrementing, looks, snapshot, running)
        # The first of the unsettled ones: it is settled before any later one.
        waiting = [one for one in looks if not one.is_settled(snapshot)]
        self._looks.pop(selection.source, None)
        if waiting:
            self._looks[selection.source] = waiting[0]
        return bound

    def last(self, selection: RowSelection, after: RowPosition, bound: Bound) -> RowPosition | None:
        """See `ReadConnection`."""
        found = self._found(self._text(selection.last(after, bound)))
        return None if found is None else _position(selection, found)

    def count(self, statement: sa.Select[Any]) -> int:
        """See `ReadConnection`."""
        self._begin()
        return int(self._one(self._text(statement))[0])

    def rows(self, selection: RowSelection, statement: sa.Select[Any], most_rows: int) -> Iterator[pa.RecordBatch]:
        """See `ReadConnection`."""
        self._begin()
        cursor = self._cursor = self._connection.cursor()
        try:
            cursor.adbc_statement.set_options(**_BATCHES)
            cursor.execute(self._text(statement))
            yield from cursor.fetch_record_batch()
        except Exception as error:
            raise fault_of(self._address, error).error from error

    def close(self) -> None:
        """See `ReadConnection`."""
        cursor, self._cursor = self._cursor, None
        connection, self._connection, self._begun = self._connection, None, False
        for one in (cursor, connection):
            if one is not None:
                with suppress(Exception):
                    one.close()

    def _connect(self) -> None:
        if self._connection is not None:
            return
        import adbc_driver_postgresql.dbapi as driver

        try:
            self._connection = driver.connect(self._address.libpq_uri())
        except Exception as error:
            self.close()
            raise unreachable(self._address, error) from error

    def _begin(self) -> None:
        """Begins the transaction that reads, once."""
        self._connect()
        if self._begun:
            return
        try:
            self._begin_anew()
            if self._exported is not None and not self._takes(self._exported):
                # Its owner has ended; this transaction has failed with the question.
                self._begin_anew()
            self._exported = None
        except Exception as error:
            self.close()
            raise fault_of(self._address, error).error from error
        self._begun = True

    def _begin_anew(self) -> None:
        self._connection.rollback()
        with self._connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {self._isolation} READ ONLY")
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute(reader_name(self._address.options))

    def _takes(self, exported: str) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{exported}'")
        except Exception as error:
            log.info("The exported snapshot %s is gone; reading from another one: %s", exported, error)
            return False
        return True

    def _one(self, text: str) -> tuple[Any, ...]:
        found = self._found(text)
        assert found is not None, "it has a row in any case"
        return found

    def _found(self, text: str) -> tuple[Any, ...] | None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(text)
                row: tuple[Any, ...] | None = cursor.fetchone()
                return row
        except Exception as error:
            raise fault_of(self._address, error).error from error

    def _text(self, statement: sa.Select[Any]) -> str:
        return str(statement.compile(dialect=self._dialect, compile_kwargs={"literal_binds": True}))


class CursorReader(ReadConnection):
    """Any database of SQLAlchemy: a cursor is read in chunks, whose columns become Arrow."""

    def __init__(self, address: DatabaseAddress, catalog: Catalog, isolation: str | None = None) -> None:
        self._address = address
        self._engine = catalog.engine
        self._isolation = isolation
        self._connection: sa.Connection | None = None
        self._cursor: Any = None

    def bound(self, selection: RowSelection, after: RowPosition) -> Bound:
        """See `ReadConnection`: these databases do not tell which transactions are open."""
        return Bound()

    def last(self, selection: RowSelection, after: RowPosition, bound: Bound) -> RowPosition | None:
        """See `ReadConnection`."""
        try:
            found = self._opened().execute(selection.last(after, bound)).first()
        except sa.exc.DBAPIError as error:
            raise fault_of(self._address, error.orig or error).error from error
        except (TypeError, ValueError) as error:
            raise _unread(self._address, error) from error
        return None if found is None else _position(selection, tuple(found))

    def count(self, statement: sa.Select[Any]) -> int:
        """See `ReadConnection`."""
        try:
            return int(self._opened().execute(statement).scalar_one())
        except sa.exc.DBAPIError as error:
            raise fault_of(self._address, error.orig or error).error from error

    def _opened(self) -> sa.Connection:
        if self._connection is None:
            opened = self._engine.connect()
            self._connection = opened
            if self._isolation:
                self._connection = opened.execution_options(isolation_level=self._isolation)
        return self._connection

    def rows(self, selection: RowSelection, statement: sa.Select[Any], most_rows: int) -> Iterator[pa.RecordBatch]:
        """See `ReadConnection`."""
        try:
            result = self._opened().execution_options(stream_results=True).execute(statement)
            names, self._cursor = list(result.keys()), result.cursor
            count = min(most_rows, _FIRST_ROWS)
            while chunk := result.fetchmany(count):
                batch = _batch(selection, names, chunk)
                yield batch
                # So that wide rows take no more memory than others.
                count = min(most_rows, max(_LEAST_ROWS, _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
                del chunk, batch
        except sa.exc.DBAPIError as error:
            raise fault_of(self._address, error.orig or error).error from error
        except (TypeError, ValueError) as error:
            raise _unread(self._address, error) from error

    def close(self) -> None:
        """See `ReadConnection`."""
        connection, self._connection = self._connection, None
        cursor, self._cursor = self._cursor, None
        if connection is not None:
            with suppress(Exception):
                mysql.leave(cursor)
                connection.invalidate()
            with suppress(Exception):
                connection.close()


def _check_whole(selection: RowSelection, columns: Sequence[Sequence[object]]) -> None:
    """Raises ConnectException if the first value to count by is none: SQLite has any value in any column, and casts
    all to a number."""
    own = [place for place, one in enumerate(selection.columns) if one.name == selection.incrementing]
    first = next((value for place in own for value in columns[place] if value is not None), None)
    # The columns of a query of SQLite are read as text.
    printed = isinstance(first, str) and re.fullmatch(r"\s*[+-]?\d+\s*", first) is not None
    if isinstance(first, (str, bytes, float)) and not printed:
        raise ConnectException(
            f"incrementing.column.name: the column {selection.incrementing!r} has a value that is no whole number, "
            f"and mode={selection.mode.value} follows those: name another column, or cast it in a query"
        )


def _unread(address: DatabaseAddress, error: Exception) -> ConnectException:
    """The error of a value that the driver does not take for one of its column's type: SQLite has any value in any."""
    return ConnectException(
        f"{address.label}: a column of dates or times has a value that is not written as one: {error}. SQLite keeps "
        "them as text such as 2024-05-01 12:00:00; numbers can be made such text in a query, by datetime(..)"
    )


def _position(selection: RowSelection, found: tuple[Any, ...]) -> RowPosition:
    """The position that a row of `RowSelection.last` says."""
    timestamp = utc_nanoseconds(found[0], selection.zone) if selection.mode.has_timestamp else None
    return RowPosition(timestamp, int(found[-1]) if selection.mode.has_incrementing else None)


def _batch(selection: RowSelection, names: Sequence[str], rows: Sequence[sa.Row[Any]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [one.read_values(columns[place]) for place, one in enumerate(selection.columns)]
    for place in range(len(arrays), len(names)):
        if names[place] == INCREMENTING:
            _check_whole(selection, columns)
            arrays.append(pa.array(columns[place], pa.int64()))
        else:
            arrays.append(utc(pa.array(columns[place]), "UTC" if selection.zoned else selection.zone))
    assert set(names[len(selection.columns) :]) <= {INCREMENTING, TIMESTAMP}
    return pa.record_batch(arrays, names=names)


def query_columns(
    address: DatabaseAddress, catalog: Catalog, query: str, mapping: TypeMapping
) -> tuple[TableColumn, ...]:
    """The columns of a query, found by running it without taking a row.

    Raises:
        RetriableException: The database cannot be reached.
        ConnectException: It refuses the query.
    """
    if address.dialect.name == "duckdb":
        from penstock.connectors.jdbc.duckdb import DuckDbCatalog

        return DuckDbCatalog(address, mapping).query_columns(query)
    statement = sa.text(f"SELECT * FROM ({query}) penstock_source WHERE 1 = 0".replace(":", "\\:"))
    with catalog.connection() as connection:
        cursor = connection.execute(statement).cursor
        assert cursor is not None
        if connection.dialect.name == mysql.NAME:
            return tuple(column_of(name, kind, True, mapping) for name, kind in mysql.query_types(cursor))
        described = cursor.description
        type_of = {ORACLE: oracle.query_type, SQL_SERVER: sqlserver.query_type}.get(connection.dialect.name, _type_of)
    return tuple(column_of(one[0], type_of(one), True, mapping) for one in described)


def _type_of(described: Any) -> sa.types.TypeEngine[Any]:
    """The type of a column of a cursor: psycopg names it, SQLite has none."""
    shown = getattr(described, "type_display", None)
    if shown is None:
        return sa.types.NullType()
    name, *arguments = re.findall(r"[\w ]+|\[\]", shown)
    if "[]" in arguments:
        return sa.types.NullType()
    found = _NAMED.get(name.strip())
    if found is sa.Numeric and len(arguments) >= 1:
        numbers = [int(one) for one in arguments if one.strip().isdigit()]
        return sa.Numeric(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    return found() if found else sa.types.NullType()


_NAMED: Final[Mapping[str, Callable[[], sa.types.TypeEngine[Any]]]] = {
    "int2": sa.SmallInteger,
    "smallint": sa.SmallInteger,
    "int4": sa.Integer,
    "integer": sa.Integer,
    "int8": sa.BigInteger,
    "bigint": sa.BigInteger,
    "float4": sa.REAL,
    "real": sa.REAL,
    "float8": sa.Double,
    "double precision": sa.Double,
    "numeric": sa.Numeric,
    "bool": sa.Boolean,
    "boolean": sa.Boolean,
    "text": sa.Text,
    "varchar": sa.Text,
    "character varying": sa.Text,
    "bpchar": sa.Text,
    "character": sa.Text,
    "bytea": sa.LargeBinary,
    "date": sa.Date,
    "time": sa.Time,
    "time without time zone": sa.Time,
    "timestamp": sa.DateTime,
    "timestamp without time zone": sa.DateTime,
    "timestamptz": lambda: sa.DateTime(timezone=True),
    "timestamp with time zone": lambda: sa.DateTime(timezone=True),
}
