"""Connections of the sink: they read table definitions, create and alter tables, and write changes in a transaction.

Main types: `TableChangeWriter`, with `writer_for`; `AdbcWriter` for PostgreSQL, which loads rows by COPY, into the
table or into a temporary one and from there with one statement; `RowWriter` for every other database. Needs SQLAlchemy
and a driver.

Thread: the task's.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.api.sink import RunStatement
from penstock.connectors.jdbc import mysql
from penstock.connectors.jdbc.faults import FaultAndError, FaultKind, fault_of
from penstock.connectors.jdbc.sink.changes import TableChanges, Target
from penstock.connectors.jdbc.sink.direct import DESCRIBED, LEAST_ROWS, CopyTarget, DirectLoads
from penstock.connectors.jdbc.sink.fitting import widened
from penstock.connectors.jdbc.sink.settings import InsertMode, JdbcSinkConfig
from penstock.connectors.jdbc.sink.statements import (
    add_columns,
    cast_to,
    copied_deletes,
    copied_rows,
    create_table,
    delete_rows,
    quoted_name,
    temporary_table,
    widen_column,
    write_rows,
)
from penstock.connectors.jdbc.tables import Table, TableName, catalog_of, missing_table, unreachable
from penstock.errors import ConnectException, DataException, RetriableException


@dataclass(frozen=True, slots=True)
class Write:
    """Changes of one table.

    Attributes:
        table: The table, as it is.
        changes: Its rows and deletes.
    """

    table: Table
    changes: TableChanges


class TableChangeWriter(ABC):
    """Writes changes of tables.

    Args:
        config: The settings.
    """

    def __init__(self, config: JdbcSinkConfig) -> None:
        self._config = config
        self._address = config.address()
        self._catalog = catalog_of(self._address)
        self._tables: dict[str, Table] = {}

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the database."""
        return self._catalog.dialect.name

    def known(self, name: str) -> Table:
        """A table that is there.

        Raises:
            RetriableException: The database cannot be reached.
            ConnectException: There is none.
        """
        found = self._tables.get(name) or self._catalog.table(TableName.of(name))
        if found is None:
            raise ConnectException(
                f"{missing_table(TableName.of(name), self._address)}. Create it: values without a schema do not "
                "say which types its columns have, so auto.create makes none"
            )
        self._tables[name] = found
        return found

    def table(self, name: str, columns: Sequence[Target], rows: pa.Table) -> Table | None:
        """A table that has these columns: as it is, made, or altered, as the settings allow.

        Args:
            name: The table.
            columns: The columns to write.
            rows: Their values.

        Returns:
            The table; None if there is none, and no row to write either, only deletes.

        Raises:
            RetriableException: The database cannot be reached.
            ConnectException: The table, or a column, is not there and must not be made.
            DataException: A field cannot be a column.
        """
        known = self._tables.get(name)
        if known is None or _lacking(known, columns):
            try:
                known = self._look(name, columns, bool(rows.num_rows))
            except ConnectException as error:
                raise _of_schema(error, TableName.of(name)) from error
        if known is not None and self._config.auto_evolve:
            known = self._widened(known, columns, rows)
        if known is None:
            return None
        self._tables[name] = known
        keys = {one.name for one in columns if one.is_key}
        upserts = self._config.insert_mode is InsertMode.UPSERT and bool(rows.num_rows)
        if upserts and known.unique is not None and not any(one <= keys for one in known.unique):
            raise without_key(known, sorted(keys))
        forgotten = sorted(known.required - {one.name for one in columns})
        if forgotten and rows.num_rows and self._config.insert_mode is not InsertMode.UPDATE:
            raise ConnectException(
                f"The column {', '.join(forgotten)} of the table {known.name} must not be null and has no default, and "
                "records have no such field: give the column a default, or let a transform add the field"
            )
        return known

    def forget(self) -> None:
        """Looks at tables again when they are next written to."""
        self._tables.clear()

    #: The parameter placeholders for ``RunStatement``.
    placeholder: str

    @abstractmethod
    def write(self, writes: Sequence[Write], before: Callable[[RunStatement], object] | None = None) -> None:
        """Writes all changes in one transaction.

        Args:
            writes: The changes.
            before: Called first in that transaction, with a function that runs statements in it.

        Raises:
            RetriableException: The database ended the connection or the transaction; nothing was written.
            DataException: A row is not accepted; nothing was written.
            ConnectException: A statement is not accepted; nothing was written.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the connection."""

    def _look(self, text: str, columns: Sequence[Target], has_rows: bool) -> Table | None:
        name = TableName.of(text)
        found = self._catalog.table(name)
        if found is None:
            if not self._config.auto_create:
                raise ConnectException(f"{missing_table(name, self._address)}. Create it, or set auto.create=true")
            if not has_rows:
                return None
            try:
                self._run([create_table(name, columns, self._catalog.dialect)])
            except ConnectException:
                # Another task may have made it; not every database has IF NOT EXISTS.
                if self._catalog.table(name) is None:
                    raise
            found = self._catalog.table(name)
            if found is None:
                raise missing_table(name, self._address)
        lacking = _lacking(found, columns)
        if lacking:
            names = ", ".join(one.name for one in lacking)
            if not self._config.auto_evolve:
                raise ConnectException(
                    f"The table {name} has no column {names}, which records have as a field. Add it, set "
                    "auto.evolve=true, or name the fields to write in fields.include.list"
                )
            self._run(add_columns(name, lacking, self._catalog.dialect))
            found = self._catalog.table(name) or found
        return found

    def _widened(self, table: Table, columns: Sequence[Target], rows: pa.Table) -> Table:
        """The table, with columns that the values need wider altered."""
        statements = []
        for one in columns:
            kind = widened(one.schema, table.types[one.name], rows.column(one.name), self.dialect)
            if kind is not None:
                statements.append(widen_column(table.name, one.name, kind, self._catalog.dialect))
        if not statements:
            return table
        self._run(statements)
        return self._catalog.table(table.name) or table

    def _run(self, statements: Sequence[str]) -> None:
        with self._catalog.connection() as connection, connection.begin():
            for statement in statements:
                connection.exec_driver_sql(statement.replace("%", "%%") if "%" in statement else statement)


def _of_schema(error: ConnectException, name: TableName) -> ConnectException:
    """The same error, or if the schema of the table is not there, one that says why the table has one."""
    missing = rf"(?i)(schema|database)( name| with name)? ['\"]?{re.escape(name.schema or '')}\b"
    if name.schema is None or isinstance(error, RetriableException) or not re.search(missing, str(error)):
        return error
    return ConnectException(
        f"{error}. The table is {name.name!r} in the schema {name.schema!r}, because a dot in the topic or in "
        "table.name.format ends a schema. Create it; or take the dot out with the transform RegexRouter; or set "
        'table.name.format="${topic}", in quotation marks, for a table with the dot in its name'
    )


def without_key(table: Table, keys: Sequence[str]) -> ConnectException:
    """The error of an upsert into a table in which nothing keeps the keys of records unique."""
    has = f"its primary key is {', '.join(table.primary_key)}" if table.primary_key else "it has no primary key"
    return ConnectException(
        f"The table {table.name} has no unique index of {', '.join(keys)}, which insert.mode=upsert needs; {has}. "
        "Create one, or name the columns of its key in pk.fields"
    )


def explained(error: ConnectException, writes: Sequence[Write]) -> ConnectException:
    """The same error, or a clearer one if a database found no key for an upsert."""
    upserts = [one for one in writes if one.changes.keys]
    if upserts and any(text in str(error) for text in _WITHOUT_KEY):
        return without_key(upserts[0].table, upserts[0].changes.keys)
    return error


#: PostgreSQL's SQLSTATE, and texts of SQLite and DuckDB.
_WITHOUT_KEY: Final = ("42P10", "ON CONFLICT clause does not match", "not referenced by a UNIQUE/PRIMARY KEY")


def _lacking(table: Table, columns: Sequence[Target]) -> list[Target]:
    return [one for one in columns if one.name not in table.types]


def writer_for(config: JdbcSinkConfig) -> TableChangeWriter:
    """The writer of the database that the settings name."""
    kind = config.address().dialect.name
    if kind == "duckdb":
        from penstock.connectors.jdbc.duckdb import DuckDbWriter

        return DuckDbWriter(config)
    return AdbcWriter(config) if kind == "postgresql" else RowWriter(config)


class AdbcWriter(TableChangeWriter):
    """PostgreSQL through ADBC: Arrow becomes binary COPY in C."""

    placeholder = "$"

    def __init__(self, config: JdbcSinkConfig) -> None:
        super().__init__(config)
        self._connection: Any = None
        self._temporary: dict[tuple[tuple[str, str], ...], str] = {}
        #: The tables with rows of this transaction.
        self._filled: set[str] = set()
        self._direct: dict[TableName, DirectLoads] = {}
        #: The loads of this transaction straight into a table.
        self._tried: list[DirectLoads] = []

    def forget(self) -> None:
        """See `TableChangeWriter`."""
        super().forget()
        self._direct.clear()

    def write(self, writes: Sequence[Write], before: Callable[[RunStatement], object] | None = None) -> None:
        """See `TableChangeWriter`."""
        try:
            self._transact(writes, before)
        except ConnectException as error:
            if isinstance(error, RetriableException) or not self._tried:
                raise
            for load in self._tried:
                load.failed()
            self._transact(writes, before, may_try=False)
        for load in self._tried:
            load.worked()

    def _transact(
        self, writes: Sequence[Write], before: Callable[[RunStatement], object] | None, *, may_try: bool = True
    ) -> None:
        self._filled.clear()
        self._tried.clear()
        connection = self._open()

        def run(statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
            with connection.cursor() as other:
                other.execute(statement, parameters=tuple(parameters) or None)
                found: Sequence[Sequence[Any]] = other.fetchall() if other.description else ()
                return found

        try:
            with connection.cursor() as cursor:
                if before is not None:
                    before(run)
                for one in writes:
                    self._write(cursor, one, run if may_try else None)
            connection.commit()
        except Exception as error:
            # Not named here: the error knows this frame, and they would keep the rows until the collector runs.
            raise self._undone(connection, fault_of(self._address, error)) from error

    def _undone(self, connection: Any, fault: FaultAndError) -> ConnectException:
        """Undoes the transaction; returns the error."""
        if fault.kind is FaultKind.PASSING:
            self.close()
        else:
            self._temporary.clear()  # Made in the transaction that did not come to pass.
            with suppress(Exception):
                connection.rollback()
        return fault.error

    def close(self) -> None:
        """See `TableChangeWriter`."""
        connection, self._connection = self._connection, None
        self._temporary.clear()
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _open(self) -> Any:
        if self._connection is None:
            import adbc_driver_postgresql.dbapi as driver

            try:
                self._connection = driver.connect(self._address.libpq_uri())
                with self._connection.cursor() as cursor:
                    # A timestamp without a zone is one of this zone.
                    cursor.execute(f"SET TIME ZONE '{self._config.db_timezone}'")
                self._connection.commit()
            except Exception as error:
                self.close()
                raise unreachable(self._address, error) from error
        return self._connection

    def _write(self, cursor: Any, one: Write, run: RunStatement | None) -> None:
        """Makes the changes of a table; rows go straight into it if there is a function that asks what it is like."""
        table, changes, name = one.table, one.changes, one.table.name
        casts = [(column, cast_to(table.types.get(column))) for column in changes.rows.column_names]
        keys = changes.keys
        if changes.deletes.num_rows:
            temporary = self._copy(cursor, changes.deletes)
            cursor.execute(
                copied_deletes(name, temporary, [(column, cast) for column, cast in casts if column in keys])
            )
        if changes.rows.num_rows:
            load = None if run is None else self._direct_load(run, one)
            if load is not None:
                self._load(cursor, run, one, load)
                return
            temporary = self._copy(cursor, changes.rows)
            cursor.execute(copied_rows(name, temporary, casts, keys, self._config.insert_mode))

    def _direct_load(self, run: RunStatement, one: Write) -> DirectLoads | None:
        """The load straight into a table that is to be tried; None: by a temporary table."""
        rows, name = one.changes.rows, one.table.name
        if rows.num_rows < LEAST_ROWS:
            return None
        load = self._direct.get(name)
        if load is None:
            load = self._direct[name] = DirectLoads(self._look_at(run, name))
        takes = load.table.takes(rows.schema, one.changes.keys, self._config.insert_mode)
        return load if takes and load.are_worth_it() else None

    def _load(self, cursor: Any, run: RunStatement, one: Write, load: DirectLoads) -> None:
        name = one.table.name
        self._tried.append(load)
        cursor.adbc_ingest(name.name, one.changes.rows, mode="append", db_schema_name=name.schema)
        # After this the table cannot be altered before the commit: its key may have changed since it was read.
        if self._look_at(run, name) != load.table:
            del self._direct[name]
            raise ConnectException(f"The table {name} was altered")

    def _look_at(self, run: RunStatement, name: TableName) -> CopyTarget:
        found = run(DESCRIBED, [quoted_name(name, self._catalog.dialect)])
        return CopyTarget.of([one[1:] for one in found if not one[0]], [one for one in found if one[0]])

    def _copy(self, cursor: Any, rows: pa.Table) -> str:
        """Loads rows into a temporary table of their types, which commits empty."""
        shape = tuple((field.name, str(field.type)) for field in rows.schema)
        temporary = self._temporary.get(shape)
        if temporary is None:
            temporary = f"penstock_{len(self._temporary)}"
            cursor.execute(f'DROP TABLE IF EXISTS pg_temp."{temporary}"')
            cursor.execute(temporary_table(temporary, rows.schema))
            self._temporary[shape] = temporary
        elif temporary in self._filled:
            # A commit empties it for less: that makes no new file, and leaves no dead row in the catalog.
            cursor.execute(f'TRUNCATE "{temporary}"')
        self._filled.add(temporary)
        cursor.adbc_ingest(temporary, rows, mode="append", temporary=True)
        return temporary


class RowWriter(TableChangeWriter):
    """Any database of SQLAlchemy: statements with parameters, ``batch.size`` rows at a time."""

    def __init__(self, config: JdbcSinkConfig) -> None:
        super().__init__(config)
        self.placeholder = "%s" if self.dialect == mysql.NAME else "?"

    def write(self, writes: Sequence[Write], before: Callable[[RunStatement], object] | None = None) -> None:
        """See `TableChangeWriter`."""
        try:
            with warnings.catch_warnings():
                # SQLite keeps a Decimal as a double.
                warnings.simplefilter("ignore", sa.exc.SAWarning)
                with self._catalog.connection() as connection, connection.begin():
                    if before is not None:
                        before(partial(_run_on, connection))
                    for one in writes:
                        self._write(connection, one)
        except RetriableException:
            if self.dialect == mysql.NAME:
                self._refuse_large(writes)
            raise
        except (sa.exc.SQLAlchemyError, OverflowError) as error:
            raise fault_of(self._address, getattr(error, "orig", None) or error).error from error

    def _refuse_large(self, writes: Sequence[Write]) -> None:
        """Says that a row is larger than a message of MySQL may be: the server ends the connection without a word."""
        with self._catalog.connection() as connection:
            limit = connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one()
        largest = max((_largest_row(one.changes.rows) for one in writes), default=0)
        if largest > limit:
            raise DataException(
                f"The database {self._address.label} does not accept a row: it has {largest} bytes, and "
                f"max_allowed_packet of the server is {limit}"
            )

    def close(self) -> None:
        """See `TableChangeWriter`."""
        self._catalog.engine.dispose()

    def _write(self, connection: sa.Connection, one: Write) -> None:
        changes, keys = one.changes, one.changes.keys
        dialect = connection.dialect
        if changes.deletes.num_rows:
            statement = delete_rows(one.table, keys)
            for rows in self._rows(changes.deletes, one.table, keys, True):
                connection.execute(statement, rows)
        if changes.rows.num_rows:
            mode = self._config.insert_mode
            texts = [field.name for field in changes.rows.schema if pa.types.is_string(field.type)]
            holdlock = self._config.mssql_use_merge_holdlock
            statement = write_rows(one.table, changes.rows.column_names, keys, mode, dialect, texts, holdlock)
            for rows in self._rows(changes.rows, one.table, keys, mode is InsertMode.UPDATE):
                connection.execute(statement, rows)

    def _rows(
        self, rows: pa.Table, table: Table, keys: Sequence[str], with_keys: bool
    ) -> Iterator[list[dict[str, object]]]:
        zone = ZoneInfo(self._config.db_timezone)
        for batch in rows.to_batches(max_chunksize=self._config.batch_size):
            columns = {name: _values(batch.column(name), table, name, zone) for name in batch.schema.names}
            if with_keys:
                columns |= {f"key {key}": columns[key] for key in keys}
            names = list(columns)
            yield [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _largest_row(rows: pa.Table) -> int:
    """The bytes of text and binary cells of the row that has the most of them."""
    sizes = [
        pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
        for column in rows.columns
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    ]
    return int(pc.max(reduce(pc.add, sizes)).as_py() or 0) if sizes else 0


def _run_on(connection: sa.Connection, statement: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
    found = connection.exec_driver_sql(statement, tuple(parameters))
    return [tuple(row) for row in found.fetchall()] if found.returns_rows else []


def _values(cells: pa.Array, table: Table, name: str, zone: ZoneInfo) -> list[object]:
    """Cells as what the driver takes; an instant in a column without a zone is in ``db.timezone``.

    Drivers know no decimals, dates and times but in columns of such types: text has them as they are printed.
    """
    values: list[Any] = cells.to_pylist()
    kind = table.types[name]
    if pa.types.is_boolean(cells.type) and isinstance(kind, (sa.Numeric, sa.Integer)):
        return [None if one is None else int(one) for one in values]
    if pa.types.is_decimal(cells.type) and not isinstance(kind, sa.Numeric):
        print_or_count = int if isinstance(kind, sa.Integer) else "{:f}".format
        return [None if one is None else print_or_count(one) for one in values]
    if pa.types.is_timestamp(cells.type) and cells.type.tz and not table.is_zoned(name):
        values = [None if one is None else one.astimezone(zone).replace(tzinfo=None) for one in values]
        if not isinstance(kind, sa.DateTime):
            return [None if one is None else one.isoformat(" ", "milliseconds") for one in values]
    if (pa.types.is_date(cells.type) or pa.types.is_time(cells.type)) and isinstance(kind, sa.String):
        return [None if one is None else one.isoformat() for one in values]
    return values
