"""Statements of the sink: they make a table, add columns to it, and write rows.

Main functions: `create_table`, `add_columns`, `write_rows`, `delete_rows`, for rows that are parameters;
`copied_rows` and `copied_deletes`, for PostgreSQL, whose rows are in a temporary table. Pure; any thread. Needs
SQLAlchemy.

Source: io.confluent.connect.jdbc.dialect, for the types of columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql, sqlite
from sqlalchemy.engine import Dialect

from penstock.connectors.jdbc import mysql as mysql_ways
from penstock.connectors.jdbc.sink.changes import Target
from penstock.connectors.jdbc.sink.merge import MERGING, Merge
from penstock.connectors.jdbc.sink.settings import InsertMode
from penstock.connectors.jdbc.tables import Table, TableName
from penstock.connectors.jdbc.url_forms import ORACLE, SQL_SERVER
from penstock.data import Decimal, Schema, Type
from penstock.errors import DataException

_PLAIN: Final[dict[Type, Any]] = {
    Type.INT8: sa.SmallInteger,
    Type.INT16: sa.SmallInteger,
    Type.INT32: sa.Integer,
    Type.INT64: sa.BigInteger,
    Type.FLOAT32: sa.REAL,
    Type.FLOAT64: sa.Double,
    Type.BOOLEAN: sa.Boolean,
    Type.STRING: sa.Text,
    Type.BYTES: sa.LargeBinary,
}
_LOGICAL: Final = "org.apache.kafka.connect.data."
#: Their classes of types have no annotations.
_ORACLE: Final[Any] = oracle
_SQL_SERVER: Final[Any] = mssql
#: Text and bytes of a key, where a key needs a length: each database has a limit for the bytes of an index.
_OF_KEYS: Final[dict[str, dict[Type, sa.types.TypeEngine[Any]]]] = {
    mysql_ways.NAME: {Type.STRING: sa.String(256), Type.BYTES: sa.VARBINARY(256)},
    ORACLE: {Type.STRING: _ORACLE.NVARCHAR2(255), Type.BYTES: _ORACLE.RAW(255)},
    SQL_SERVER: {Type.STRING: _SQL_SERVER.NVARCHAR(450), Type.BYTES: _SQL_SERVER.VARBINARY(900)},
}
#: Types of a database by the name or the type of the schema, where the general ones would not hold each value. MySQL's
#: TEXT and BLOB end at 64 KiB, and its dates with a time at the second.
_OF_DIALECTS: Final[dict[str, dict[object, sa.types.TypeEngine[Any]]]] = {
    mysql_ways.NAME: {
        f"{_LOGICAL}Time": mysql.TIME(fsp=6),
        f"{_LOGICAL}Timestamp": mysql.DATETIME(fsp=6),
        Type.STRING: mysql.LONGTEXT(),
        Type.BYTES: mysql.LONGBLOB(),
        Type.FLOAT32: mysql.FLOAT(),
    },
    ORACLE: {
        f"{_LOGICAL}Date": _ORACLE.DATE(),
        f"{_LOGICAL}Time": _ORACLE.VARCHAR2(15),
        f"{_LOGICAL}Timestamp": _ORACLE.TIMESTAMP(),
        Type.BOOLEAN: _ORACLE.NUMBER(1, 0),
        Type.INT8: _ORACLE.NUMBER(3, 0),
        Type.INT16: _ORACLE.NUMBER(5, 0),
        Type.INT32: _ORACLE.NUMBER(10, 0),
        Type.INT64: _ORACLE.NUMBER(19, 0),
        Type.FLOAT32: _ORACLE.BINARY_FLOAT(),
        Type.FLOAT64: _ORACLE.BINARY_DOUBLE(),
        Type.STRING: _ORACLE.CLOB(),
        Type.BYTES: _ORACLE.BLOB(),
    },
    SQL_SERVER: {
        f"{_LOGICAL}Date": sa.DATE(),
        f"{_LOGICAL}Time": _SQL_SERVER.TIME(6),
        f"{_LOGICAL}Timestamp": _SQL_SERVER.DATETIME2(6),
        Type.STRING: _SQL_SERVER.NVARCHAR(),
        Type.BYTES: _SQL_SERVER.VARBINARY("max"),
    },
}
_MYSQL_DIGITS, _MYSQL_SCALE = 65, 30


def column_type(schema: Schema, is_key: bool, dialect: Dialect, where: str) -> sa.types.TypeEngine[Any]:
    """The type of a new column.

    Raises:
        DataException: A column cannot hold values of this schema.
    """
    is_mysql = dialect.name == mysql_ways.NAME
    if schema.name == Decimal.LOGICAL_NAME:
        scale = int((schema.parameters or {})["scale"])
        if is_mysql and scale > _MYSQL_SCALE:
            raise DataException(f"{where} has {scale} decimal places, and a DECIMAL of {dialect.name} at most 30")
        if is_mysql:
            return sa.Numeric(_MYSQL_DIGITS, max(scale, 0))
        return sa.Numeric(38, scale) if dialect.name != "postgresql" else sa.Numeric()
    own = _OF_DIALECTS.get(dialect.name, {})
    if is_key and schema.name is None:
        own = own | _OF_KEYS.get(dialect.name, {})
    if (found := own.get(schema.name or schema.type)) is not None:
        return found
    if schema.name == f"{_LOGICAL}Date":
        return sa.Date()
    if schema.name == f"{_LOGICAL}Time":
        return sa.Time()
    if schema.name == f"{_LOGICAL}Timestamp":
        return sa.DateTime()
    if schema.type is Type.ARRAY and schema.value_schema is not None and dialect.name == "postgresql":
        return sa.ARRAY(column_type(schema.value_schema, False, dialect, where))
    plain = _PLAIN.get(schema.type)
    if plain is None:
        raise DataException(
            f"{where} is {schema}, which a column cannot hold: flatten it with the transform Flatten, leave it out "
            "with fields.include.list or ReplaceField, or make it text before"
        )
    made: sa.types.TypeEngine[Any] = plain()
    return made


def create_table(name: TableName, columns: Sequence[Target], dialect: Dialect) -> str:
    """A table with a column for each field, and the primary key.

    Raises:
        DataException: A field has no type of a column.
    """
    table = sa.Table(
        name.name,
        sa.MetaData(),
        *(
            sa.Column(
                one.name,
                column_type(one.schema, one.is_key, dialect, f"The field {one.name!r} for the table {name}"),
                primary_key=one.is_key,
                nullable=one.schema.optional and not one.is_key,
                autoincrement=False,
            )
            for one in columns
        ),
        schema=name.schema,
    )
    if dialect.name == mysql_ways.NAME:
        table.kwargs.update(mysql_ways.CHARSET)
    made = sa.schema.CreateTable(table, if_not_exists=dialect.name not in MERGING)
    return str(made.compile(dialect=dialect)).strip()


def add_columns(name: TableName, columns: Sequence[Target], dialect: Dialect) -> list[str]:
    """A statement for each column to add.

    Raises:
        DataException: A field has no type of a column, or is neither optional nor has a default.
    """
    quoted = quoted_name(name, dialect)
    add = "ADD" if dialect.name in MERGING else "ADD COLUMN"
    made = []
    for one in columns:
        where = f"The field {one.name!r} for the table {name}"
        kind = column_type(one.schema, False, dialect, where).compile(dialect=dialect)
        if not one.schema.optional and one.schema.default is None:
            raise DataException(
                f"{where} has neither a default nor may it be null, so the column cannot be added: rows that are there "
                "would have no value. Add it to the table, or make the field optional"
            )
        made.append(f"ALTER TABLE {quoted} {add} {dialect.identifier_preparer.quote(one.name)} {kind} NULL")
    return made


def quoted_name(name: TableName, dialect: Dialect) -> str:
    """The name of a table in SQL."""
    quote = dialect.identifier_preparer.quote
    return f"{quote(name.schema)}.{quote(name.name)}" if name.schema else quote(name.name)


def widen_column(name: TableName, column: str, kind: sa.types.TypeEngine[Any], dialect: Dialect) -> str:
    """A statement that gives a column another type, on PostgreSQL."""
    quoted, text = dialect.identifier_preparer.quote(column), kind.compile(dialect=dialect)
    return f"ALTER TABLE {quoted_name(name, dialect)} ALTER COLUMN {quoted} TYPE {text}"


def write_rows(
    found: Table,
    columns: Sequence[str],
    keys: Sequence[str],
    mode: InsertMode,
    dialect: Dialect,
    texts: Collection[str] = (),
    holdlock: bool = True,
) -> sa.Executable:
    """The statement of one row, whose parameters are named by the columns.

    Args:
        found: The table, whose types say in which form a driver takes a value.
        columns: The columns to write.
        keys: Those of the primary key.
        mode: ``insert.mode``.
        dialect: The database.
        texts: The columns whose values are text, which the database is given as it is, whatever their types.
        holdlock: ``mssql.use.merge.holdlock``.

    Raises:
        DataException: The database has no upsert that is known here.
    """
    as_it_is = [one for one in texts if not isinstance(found.types[one], sa.Text)]
    found = replace(found, types={**found.types, **dict.fromkeys(as_it_is, sa.types.NullType())})
    table = _typed(found, columns)
    rest = [one for one in columns if one not in keys]
    values: dict[str, Any] = {one: sa.bindparam(one, type_=found.types[one]) for one in columns}
    if mode is InsertMode.UPDATE:
        return sa.update(table).where(_is_row(table, found, keys)).values({one: values[one] for one in rest or columns})
    if mode is InsertMode.INSERT:
        return sa.insert(table).values(values)
    if dialect.name == mysql_ways.NAME:
        # PyMySQL makes one statement of many rows in this form, and not in that with an alias for the new row.
        changed = {one: sa.func.values(sa.column(one)) for one in rest or keys}
        return mysql.insert(table).values(values).on_duplicate_key_update(changed)
    if dialect.name in MERGING:
        return Merge(table, keys, holdlock)
    if dialect.name in ("sqlite", "postgresql"):
        upsert: Any = (sqlite if dialect.name == "sqlite" else postgresql).insert(table).values(values)
        made: sa.Executable = (
            upsert.on_conflict_do_update(index_elements=list(keys), set_={one: upsert.excluded[one] for one in rest})
            if rest
            else upsert.on_conflict_do_nothing(index_elements=list(keys))
        )
        return made
    raise DataException(f"insert.mode=upsert is not known for {dialect.name}: use insert or update")


def delete_rows(found: Table, keys: Sequence[str]) -> sa.Executable:
    """The statement that deletes one row, whose parameters are named ``key NAME``."""
    table = _typed(found, keys)
    return sa.delete(table).where(_is_row(table, found, keys))


def _typed(found: Table, columns: Sequence[str]) -> sa.TableClause:
    typed: list[Any] = [sa.column(one, found.types[one]) for one in columns]
    return sa.table(found.name.name, *typed, schema=found.name.schema)


def _is_row(table: sa.TableClause, found: Table, keys: Sequence[str]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[key] == sa.bindparam(f"key {key}", type_=found.types[key]) for key in keys))


# ------------------------------------------------------------------ PostgreSQL, from a temporary table


_POSTGRESQL: Final[Dialect] = postgresql.dialect()  # type: ignore[no-untyped-call]


def temporary_table(name: str, schema: pa.Schema) -> str:
    """A temporary table for rows of these types, which each commit empties."""
    quote = _POSTGRESQL.identifier_preparer.quote
    columns = ", ".join(f"{quote(field.name)} {copied_type(field.type)}" for field in schema)
    return f"CREATE TEMPORARY TABLE IF NOT EXISTS {quote(name)} ({columns}) ON COMMIT DELETE ROWS"


def copied_type(kind: pa.DataType) -> str:
    """PostgreSQL's type for the values of an Arrow type that COPY sends."""
    if pa.types.is_list(kind):
        return f"{copied_type(kind.value_type)}[]"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    for matches, name in _COPIED:
        if matches(kind):
            return name
    return "text"


_COPIED: Final = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "int2"),
    (pa.types.is_int16, "int2"),
    (pa.types.is_int32, "int4"),
    (pa.types.is_int64, "int8"),
    (pa.types.is_float32, "float4"),
    (pa.types.is_float64, "float8"),
    (pa.types.is_decimal, "numeric"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
)


def copied_rows(
    name: TableName,
    temporary: str,
    columns: Sequence[tuple[str, str]],
    keys: Sequence[str],
    mode: InsertMode,
    dialect: Dialect | None = None,
) -> str:
    """Writes the rows of a temporary table.

    Args:
        name: The table.
        temporary: The temporary table, with columns of the same names.
        columns: Names of the columns, each with the type to cast it to, empty where its own will do.
        keys: The columns of the primary key.
        mode: ``insert.mode``.
        dialect: One that speaks as PostgreSQL does; None: PostgreSQL itself.
    """
    dialect = dialect or _POSTGRESQL
    quote = dialect.identifier_preparer.quote
    target = quoted_name(name, dialect)
    named = ", ".join(quote(column) for column, _ in columns)
    values = ", ".join(_cast(f"{quote(temporary)}.{quote(column)}", kind) for column, kind in columns)
    rest = [column for column, _ in columns if column not in keys]
    if mode is InsertMode.UPDATE:
        types = dict(columns)
        changed = ", ".join(
            f"{quote(one)} = {_cast(f'{quote(temporary)}.{quote(one)}', types[one])}" for one in rest or keys
        )
        same = _same(temporary, columns, keys, dialect)
        return f"UPDATE {target} AS target SET {changed} FROM {quote(temporary)} WHERE {same}"
    text = f"INSERT INTO {target} ({named}) SELECT {values} FROM {quote(temporary)}"
    if mode is InsertMode.INSERT:
        return text
    of_keys = ", ".join(quote(key) for key in keys)
    if not rest:
        return f"{text} ON CONFLICT ({of_keys}) DO NOTHING"
    changed = ", ".join(f"{quote(one)} = excluded.{quote(one)}" for one in rest)
    return f"{text} ON CONFLICT ({of_keys}) DO UPDATE SET {changed}"


def copied_deletes(
    name: TableName, temporary: str, keys: Sequence[tuple[str, str]], dialect: Dialect | None = None
) -> str:
    """Deletes the rows whose keys are in a temporary table; arguments as for `copied_rows`."""
    dialect = dialect or _POSTGRESQL
    quote = dialect.identifier_preparer.quote
    same = _same(temporary, keys, [key for key, _ in keys], dialect)
    return f"DELETE FROM {quoted_name(name, dialect)} AS target USING {quote(temporary)} WHERE {same}"


def _same(temporary: str, columns: Sequence[tuple[str, str]], keys: Sequence[str], dialect: Dialect) -> str:
    quote = dialect.identifier_preparer.quote
    return " AND ".join(
        f"target.{quote(column)} = {_cast(f'{quote(temporary)}.{quote(column)}', kind)}"
        for column, kind in columns
        if column in keys
    )


def cast_to(kind: sa.types.TypeEngine[Any] | None) -> str:
    """The type that a copied column is cast to, empty where assigning it does what is needed.

    Text is not cast to a text of limited length: a cast would cut it, where assigning it is refused.
    """
    if kind is None or isinstance(kind, sa.types.NullType):
        return ""
    if isinstance(kind, sa.String) and not isinstance(kind, sa.Enum):
        return ""
    return str(kind.compile(dialect=_POSTGRESQL))


def _cast(cells: str, kind: str) -> str:
    return f"{cells}::{kind}" if kind else cells
