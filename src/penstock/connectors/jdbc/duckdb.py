"""DuckDB: reads table definitions, and reads and writes rows as Arrow.

Main types: `DuckDbCatalog`, `DuckDbReader`, `DuckDbWriter`. The connections of a process to a file share one database;
another process cannot open it meanwhile. SQL is that of PostgreSQL, for which SQLAlchemy has words.

Thread: the task's; a connection has one statement at a time.

Source: the documentation of DuckDB, "Metadata Functions", "Concurrency" and "Python API".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from penstock.api.sink import RunStatement
from penstock.connectors.jdbc.addresses import DatabaseAddress
from penstock.connectors.jdbc.columns import TableColumn, TypeMapping, column_of
from penstock.connectors.jdbc.faults import FaultAndError, FaultKind, fault_of
from penstock.connectors.jdbc.sink.settings import JdbcSinkConfig
from penstock.connectors.jdbc.sink.statements import copied_deletes, copied_rows
from penstock.connectors.jdbc.sink.writing import TableChangeWriter, Write
from penstock.connectors.jdbc.source.position import RowPosition
from penstock.connectors.jdbc.source.queries import Bound, RowSelection
from penstock.connectors.jdbc.source.reading import ReadConnection
from penstock.connectors.jdbc.tables import Catalog, Table, TableName, unreachable
from penstock.errors import ConnectException

NAME: Final = "duckdb"
#: The rows of a write, as a table of its statements.
_ROWS: Final = "penstock_rows"
_OWN_SCHEMAS: Final = "('information_schema', 'pg_catalog')"


class _Quoting(postgresql.base.PGIdentifierPreparer):
    """Quotes every name: DuckDB has other reserved words, and takes no notice of upper and lower case."""

    def _requires_quotes(self, value: str) -> bool:
        return True


class DuckDbDialect(postgresql.base.PGDialect):
    """Words of SQL for statements that are made as text."""

    name = NAME
    preparer = _Quoting


def connect(address: DatabaseAddress, zone: str = "UTC") -> Any:
    """A connection of a process to a file, in a time zone.

    Raises:
        RetriableException: The file cannot be opened, or another process has it.
    """
    import duckdb

    try:
        opened = duckdb.connect(address.database)
        opened.execute(f"SET TimeZone = '{zone}'")
    except duckdb.Error as error:
        raise unreachable(address, error) from error
    return opened


class DuckDbCatalog(Catalog):
    """Looks into a database; see `Catalog`."""

    def __init__(self, address: DatabaseAddress, mapping: TypeMapping | None = None) -> None:
        self._address = address
        self._mapping = mapping or TypeMapping()

    @property
    def dialect(self) -> sa.engine.Dialect:
        """See `Catalog`."""
        return DuckDbDialect(paramstyle="named")  # type: ignore[no-untyped-call]

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection of DuckDB's own."""
        with closing(connect(self._address)) as opened:
            yield opened

    def tables(self, kinds: Sequence[str], schema_pattern: str | None = None) -> list[TableName]:
        """See `Catalog`."""
        wanted = [one.strip().upper().replace("TABLE", "BASE TABLE") for one in kinds]
        with self.connection() as opened:
            found = opened.execute(
                "SELECT table_schema, table_name FROM information_schema.tables "
                f"WHERE table_catalog = current_database() AND table_schema NOT IN {_OWN_SCHEMAS} "
                "AND list_contains(?, table_type) AND table_schema LIKE ?",
                [wanted, schema_pattern or "%"],
            ).fetchall()
        return sorted((TableName(schema, name) for schema, name in found), key=str)

    def table(self, name: TableName) -> Table | None:
        """See `Catalog`."""
        where = "database_name = current_database() AND schema_name = COALESCE(?, current_schema()) AND table_name = ?"
        of = [name.schema, name.name]
        with self.connection() as opened:
            columns = opened.execute(
                "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() "
                f"WHERE {where} ORDER BY column_index",
                of,
            ).fetchall()
            keys = opened.execute(
                f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {where} AND "
                "constraint_type = 'PRIMARY KEY'",
                of,
            ).fetchall()
            indexes = opened.execute(f"SELECT expressions FROM duckdb_indexes() WHERE {where}", of).fetchall()
        if not columns:
            return None
        key = tuple(keys[0][0]) if keys else ()
        defaulted = {one: str(default) for one, _, _, default in columns if default is not None}
        generated = [one for one, default in defaulted.items() if default.startswith("nextval(")]
        first_of = {re.sub(r"^\W*|\W.*$", "", str(one)) for (one,) in indexes}
        return Table(
            name,
            tuple(column_of(one, type_of(kind), nullable, self._mapping) for one, kind, nullable, _ in columns),
            key,
            frozenset(first_of | set(key[:1])),
            {one: type_of(kind) for one, kind, _, _ in columns},
            frozenset(one for one, _, nullable, _ in columns if not nullable and one not in defaulted),
            generated[0] if generated else None,
            frozenset(defaulted),
        )

    def query_columns(self, query: str) -> tuple[TableColumn, ...]:
        """The columns of a query.

        Raises:
            ConnectException: The database refuses it.
        """
        with self.connection() as opened:
            try:
                described = opened.execute(f"DESCRIBE SELECT * FROM ({query})").fetchall()
            except Exception as error:
                raise fault_of(self._address, error).error from error
        return tuple(column_of(one[0], type_of(one[1]), True, self._mapping) for one in described)


#: Types by their names. Those of MySQL say the width of a number and that it has no sign.
_TYPES: Final[dict[str, Callable[[], sa.types.TypeEngine[Any]]]] = {
    "BOOLEAN": sa.Boolean,
    "TINYINT": mysql.TINYINT,
    "UTINYINT": lambda: mysql.TINYINT(unsigned=True),
    "SMALLINT": sa.SmallInteger,
    "USMALLINT": lambda: mysql.SMALLINT(unsigned=True),
    "INTEGER": sa.Integer,
    "UINTEGER": lambda: mysql.INTEGER(unsigned=True),
    "BIGINT": sa.BigInteger,
    "UBIGINT": lambda: mysql.BIGINT(unsigned=True),
    "HUGEINT": lambda: sa.Numeric(38, 0),
    "UHUGEINT": lambda: sa.Numeric(38, 0),
    "FLOAT": sa.REAL,
    "DOUBLE": sa.Double,
    "VARCHAR": sa.Text,
    "BLOB": sa.LargeBinary,
    "DATE": sa.Date,
    "TIME": sa.Time,
    "TIMESTAMP": sa.DateTime,
    "TIMESTAMP_S": sa.DateTime,
    "TIMESTAMP_MS": sa.DateTime,
    "TIMESTAMP_NS": sa.DateTime,
    "TIMESTAMP WITH TIME ZONE": lambda: sa.DateTime(timezone=True),
    "JSON": sa.JSON,
    "UUID": postgresql.UUID,
}


def type_of(name: str) -> sa.types.TypeEngine[Any]:
    """The type that a column of DuckDB is said to have; one that is read and written as text has no type.

    >>> type_of("DECIMAL(9,2)"), type_of("INTEGER[]").item_type, type_of("STRUCT(a INTEGER)")
    (Numeric(precision=9, scale=2), Integer(), NullType())
    """
    if name.endswith("[]"):
        item = type_of(name.removesuffix("[]"))
        return sa.types.NullType() if isinstance(item, (sa.types.NullType, sa.ARRAY)) else sa.ARRAY(item)
    if found := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", name):
        return sa.Numeric(int(found[1]), int(found[2]))
    return _TYPES.get(name, sa.types.NullType)()


class DuckDbReader(ReadConnection):
    """A connection whose results are Arrow.

    Args:
        address: The file.
        catalog: Whose dialect statements are written in.
    """

    def __init__(self, address: DatabaseAddress, catalog: Catalog) -> None:
        self._address, self._dialect = address, catalog.dialect
        self._connection: Any = None

    def bound(self, selection: RowSelection, after: RowPosition) -> Bound:
        """See `ReadConnection`: no other process writes, and a transaction that commits later is not seen."""
        return Bound()

    def last(self, selection: RowSelection, after: RowPosition, bound: Bound) -> RowPosition | None:
        """See `ReadConnection`: its tables are read in one go."""
        return None

    def count(self, statement: sa.Select[Any]) -> int:
        """See `ReadConnection`."""
        with closing(connect(self._address)) as opened:
            try:
                return int(opened.sql(self._text(statement)).fetchall()[0][0])
            except Exception as error:
                raise fault_of(self._address, error).error from error

    def _text(self, statement: sa.Select[Any]) -> str:
        return str(statement.compile(dialect=self._dialect, compile_kwargs={"literal_binds": True}))

    def rows(self, selection: RowSelection, statement: sa.Select[Any], most_rows: int) -> Iterator[pa.RecordBatch]:
        """See `ReadConnection`."""
        text = self._text(statement)
        self._connection = connect(self._address)
        try:
            yield from self._connection.sql(text).to_arrow_reader(most_rows)
        except Exception as error:
            raise fault_of(self._address, error).error from error

    def close(self) -> None:
        """See `ReadConnection`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


class DuckDbWriter(TableChangeWriter):
    """Rows as they are, and one INSERT .. ON CONFLICT for all of them."""

    placeholder = "?"

    def __init__(self, config: JdbcSinkConfig) -> None:
        super().__init__(config)
        self._connection: Any = None

    def write(self, writes: Sequence[Write], before: Callable[[RunStatement], object] | None = None) -> None:
        """See `TableChangeWriter`."""
        if self._connection is None:
            self._connection = connect(self._address, self._config.db_timezone)
        connection = self._connection

        def run(statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
            found: Sequence[Sequence[Any]] = connection.execute(statement, list(parameters)).fetchall()
            return found

        try:
            connection.begin()
            if before is not None:
                before(run)
            for one in writes:
                self._write(connection, one)
            connection.commit()
        except Exception as error:
            # Not named here: the error knows this frame, and they would keep the rows until the collector runs.
            raise self._undone(connection, fault_of(self._address, error)) from error

    def _undone(self, connection: Any, fault: FaultAndError) -> ConnectException:
        """Undoes the transaction; returns the error."""
        with suppress(Exception):
            connection.rollback()
        if fault.kind is FaultKind.PASSING:
            self.close()
        return fault.error

    def close(self) -> None:
        """See `TableChangeWriter`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _run(self, statements: Sequence[str]) -> None:
        with closing(connect(self._address)) as connection:
            for statement in statements:
                try:
                    connection.execute(statement)
                except Exception as error:
                    raise fault_of(self._address, error).error from error

    def _write(self, connection: Any, one: Write) -> None:
        changes, name, dialect = one.changes, one.table.name, self._catalog.dialect
        keys = changes.keys
        if changes.deletes.num_rows:
            self._with_rows(
                connection, changes.deletes, copied_deletes(name, _ROWS, [(key, "") for key in keys], dialect)
            )
        if changes.rows.num_rows:
            columns = [(column, "") for column in changes.rows.column_names]
            mode = self._config.insert_mode
            self._with_rows(connection, changes.rows, copied_rows(name, _ROWS, columns, keys, mode, dialect))

    @staticmethod
    def _with_rows(connection: Any, rows: pa.Table, statement: str) -> None:
        connection.register(_ROWS, rows)
        connection.execute(statement).fetchall()
        connection.unregister(_ROWS)
