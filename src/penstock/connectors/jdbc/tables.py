"""Tables of a database: their columns, keys and indexes, read by reflection.

Main types: `Table`, `TableName`; `Catalog`, which reads them over its own connections. Needs SQLAlchemy.

Thread: any; one call at a time.
"""

from __future__ import annotations

import fnmatch
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect, Engine, Inspector
from sqlalchemy.pool import NullPool

from penstock.connectors.jdbc import mysql, oracle
from penstock.connectors.jdbc.addresses import DatabaseAddress
from penstock.connectors.jdbc.columns import TableColumn, TypeMapping, column_of, is_zoned
from penstock.connectors.jdbc.faults import fault_of
from penstock.connectors.jdbc.url_forms import ORACLE, SQL_SERVER
from penstock.errors import ConnectException, RetriableException

_QUOTES: Final = '"`'
_PART: Final = re.compile(r'"[^"]+"|`[^`]+`|[^.]+')
_PARTS: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The name of a table.

    Attributes:
        schema: Its schema, None where the database has none (SQLite) or has it as the database (MySQL).
        name: The table.
    """

    schema: str | None
    name: str

    def __str__(self) -> str:
        """The text that ``of`` reads: a part with a dot in it is in quotation marks."""
        return ".".join(f'"{one}"' if "." in one else one for one in (self.schema, self.name) if one)

    @staticmethod
    def of(text: str) -> TableName:
        """A name as it is written in settings: ``schema.table`` or ``table``, where ``"a.b"`` is one part.

        >>> TableName.of("public.orders"), TableName.of('"shop.orders"')
        (TableName(schema='public', name='orders'), TableName(schema=None, name='shop.orders'))
        """
        if not _PARTS.fullmatch(text):
            return TableName(None, text)
        *schema, name = (one[1:-1] if one[0] in _QUOTES and one[0] == one[-1] else one for one in _PART.findall(text))
        return TableName(schema[-1] if schema else None, name)


@dataclass(frozen=True, slots=True)
class Table:
    """A table, as it was found.

    Attributes:
        name: Its name.
        columns: In the order of the table.
        primary_key: The names of its columns, empty without one.
        leading: The first column of each index and of the primary key.
        types: The reflected type of each column.
        required: The columns that an INSERT has to name: NOT NULL, without a default.
        generated: The first column whose values the database generates, None without one.
        defaulted: The columns that the database gives a value of its own, if a row has none.
        unique: The columns of each key and unique index; None where the database itself refuses an upsert without one.
    """

    name: TableName
    columns: tuple[TableColumn, ...]
    primary_key: tuple[str, ...]
    leading: frozenset[str]
    types: dict[str, sa.types.TypeEngine[Any]]
    required: frozenset[str]
    generated: str | None
    defaulted: frozenset[str] = frozenset()
    unique: frozenset[frozenset[str]] | None = None

    def is_zoned(self, name: str) -> bool:
        """True if the column holds timestamps with a time zone."""
        return is_zoned(self.types.get(name))

    def column(self, name: str) -> TableColumn | None:
        """The column of that name, or the only one that is so named but for upper and lower case."""
        exact = [one for one in self.columns if one.name == name]
        alike = exact or [one for one in self.columns if one.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None


class Catalog:
    """Looks into a database.

    Args:
        address: Where it is.
        mapping: Which schemas columns get.
    """

    def __init__(self, address: DatabaseAddress, mapping: TypeMapping | None = None) -> None:
        self._address = address
        self._mapping = mapping or TypeMapping()
        url = address.sqlalchemy_url()
        arguments = mysql.connect_arguments() if url.get_backend_name() == mysql.NAME else {}
        self._engine = self._reflecting = _engine(url, arguments)
        if url.get_backend_name() == ORACLE:
            self._engine = _engine(url, arguments)
            oracle.quote_always(self._engine.dialect)
            sa.event.listen(self._engine, "connect", oracle.set_up)

    @property
    def dialect(self) -> Dialect:
        """SQLAlchemy's words for the database."""
        return self._engine.dialect

    @property
    def address(self) -> DatabaseAddress:
        """The address of the database."""
        return self._address

    @property
    def engine(self) -> Engine:
        """Makes connections; keeps none open."""
        return self._engine

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for one visit.

        Raises:
            RetriableException: The database cannot be reached, or refuses the login; or it ends the connection, or is
                locked, in the middle of the visit.
            ConnectException: It refuses a statement of the visit.
        """
        with self._visit(self._engine) as opened:
            yield opened

    @contextmanager
    def _visit(self, engine: Engine) -> Iterator[Connection]:
        try:
            opened = engine.connect()
        except sa.exc.DBAPIError as error:
            raise unreachable(self._address, error.orig or error) from error
        try:
            with opened:
                yield opened
        except sa.exc.DBAPIError as error:
            raise fault_of(self._address, error.orig or error).error from error

    def tables(self, kinds: Sequence[str], schema_pattern: str | None = None) -> list[TableName]:
        """The tables of the schemas that match, sorted.

        Args:
            kinds: ``table.types``: TABLE, VIEW, or both.
            schema_pattern: An SQL pattern (``%``, ``_``); None: all but the database's own.
        """
        wanted = {kind.strip().upper() for kind in kinds}
        found: list[TableName] = []
        with self._visit(self._reflecting) as connection:
            inspector = sa.inspect(connection)
            default = inspector.default_schema_name
            for schema in self._schemas(inspector, schema_pattern):
                shown = None if schema == default and self._address.dialect.name in ("sqlite",) else schema
                if "TABLE" in wanted or "PARTITIONED TABLE" in wanted:
                    found += [TableName(shown, name) for name in inspector.get_table_names(schema)]
                if "VIEW" in wanted:
                    found += [TableName(shown, name) for name in inspector.get_view_names(schema)]
        return sorted({self._stored(name) for name in found}, key=str)

    def _stored(self, name: TableName) -> TableName:
        dialect = self._reflecting.dialect
        schema = None if name.schema is None else oracle.stored_name(name.schema, dialect)
        return TableName(schema, oracle.stored_name(name.name, dialect))

    def _schemas(self, inspector: Inspector, pattern: str | None) -> list[str | None]:
        if self._address.dialect.name == "sqlite":
            return ["main"]
        if self._engine.dialect.name == ORACLE and not pattern:
            # Each user is a schema, those of the server among them.
            return [inspector.default_schema_name]
        own = {"information_schema", "INFORMATION_SCHEMA", "pg_catalog", "mysql", "performance_schema", "sys", "guest"}
        names = [name for name in inspector.get_schema_names() if name not in own]
        if self._engine.dialect.name == SQL_SERVER:
            # Its fixed roles are schemas too.
            names = [name for name in names if not name.startswith("db_")]
        if self._engine.dialect.name == mysql.NAME and self._address.database and not pattern:
            return [self._address.database]
        glob = pattern.replace("%", "*").replace("_", "?") if pattern else "*"
        dialect = self._reflecting.dialect
        return [name for name in names if fnmatch.fnmatchcase(oracle.stored_name(name, dialect), glob)]

    def table(self, name: TableName) -> Table | None:
        """The table with its columns; None if there is none of that name."""
        dialect = self._reflecting.dialect
        with self._visit(self._reflecting) as connection:
            inspector = sa.inspect(connection)
            table, schema = name.name, name.schema
            if dialect.name == ORACLE:
                # As it is, where SQLAlchemy takes lower case for any case.
                table = sa.sql.quoted_name(table, True)
                schema = None if schema is None else sa.sql.quoted_name(schema, True)
            try:
                with warnings.catch_warnings():
                    # A type that SQLAlchemy does not know is read as text.
                    warnings.simplefilter("ignore", sa.exc.SAWarning)
                    described = inspector.get_columns(table, schema)
                key = inspector.get_pk_constraint(table, schema)["constrained_columns"]
                indexes = inspector.get_indexes(table, schema)
                indexed = [one["column_names"][:1] for one in indexes]
            except sa.exc.NoSuchTableError:
                return None
            unique = None
            if self._engine.dialect.name == mysql.NAME:
                unique = _unique(inspector, name, key, indexes)
                of_json = mysql.json_columns(connection, name.schema, name.name)
                described = [{**one, "type": sa.JSON()} if one["name"] in of_json else one for one in described]
        described = [{**one, "name": oracle.stored_name(one["name"], dialect)} for one in described]
        key = [oracle.stored_name(one, dialect) for one in key]
        generated = [one["name"] for one in described if _is_generated(one, key, self._engine.dialect.name)]
        if self._engine.dialect.name == "sqlite":
            # Another name of the row's number, which is never null.
            described = [{**one, "nullable": one["nullable"] and one["name"] not in generated} for one in described]
            # Its INTEGER has 64 bits.
            described = [
                {**one, "type": sa.BigInteger()} if type(one["type"]) is sa.INTEGER else one for one in described
            ]
        leading = {oracle.stored_name(str(one[0]), dialect) for one in indexed if one and one[0]} | set(key[:1])
        return Table(
            name,
            tuple(column_of(one["name"], one["type"], one["nullable"], self._mapping) for one in described),
            tuple(key),
            frozenset(leading),
            {one["name"]: one["type"] for one in described},
            frozenset(
                one["name"]
                for one in described
                if not one["nullable"]
                and one.get("default") is None
                and not one.get("identity")
                and not one.get("computed")
                and one["name"] not in generated
            ),
            generated[0] if generated else None,
            frozenset(
                one["name"]
                for one in described
                if one.get("default") is not None or one.get("computed") or one["name"] in generated
            ),
            unique,
        )


def _unique(
    inspector: Inspector, name: TableName, key: Sequence[str], indexes: Sequence[Any]
) -> frozenset[frozenset[str]] | None:
    """The columns of the keys of a table; None for a view, whose tables have them."""
    found = [frozenset(key), *(frozenset(one["column_names"]) for one in indexes if one["unique"])]
    if not any(found) and name.name in inspector.get_view_names(name.schema):
        return None
    return frozenset(one for one in found if one)


def catalog_of(address: DatabaseAddress, mapping: TypeMapping | None = None) -> Catalog:
    """The catalog of a database, by its kind."""
    if address.dialect.name == "duckdb":
        from penstock.connectors.jdbc.duckdb import DuckDbCatalog

        return DuckDbCatalog(address, mapping)
    return Catalog(address, mapping)


def _engine(url: sa.URL, arguments: dict[str, Any]) -> Engine:
    return sa.create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=arguments)


def _is_generated(column: Any, key: Sequence[str], dialect: str) -> bool:
    """True if the database gives the column its values, in rising order."""
    if column.get("identity") or column.get("autoincrement") is True:
        return True
    if str(column.get("default") or "").startswith("nextval("):
        return True
    # SQLite's own: the only column of the key, if it is an integer.
    return dialect == "sqlite" and list(key) == [column["name"]] and type(column["type"]).__name__ == "INTEGER"


def unreachable(address: DatabaseAddress, error: BaseException) -> RetriableException:
    """The error of a database that cannot be reached or refuses the login."""
    text = str(error).strip().splitlines()
    return RetriableException(
        f"Cannot connect to {address.label} as {address.user or 'the default user'}: "
        f"{' '.join(text) or type(error).__name__}. Check connection.url, connection.user and connection.password, and "
        "that the database runs and lets this host in"
    )


def missing_table(name: TableName, address: DatabaseAddress) -> ConnectException:
    """The error of a table that is not there, or that the user may not see."""
    return ConnectException(
        f"There is no table {name} in {address.label}, or the user {address.user or 'of the connection'} may not see it"
    )
