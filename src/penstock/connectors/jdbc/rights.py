"""Rights of the user on tables, asked of PostgreSQL, MySQL and MariaDB before the first row is read or written.

Main functions: `faults_of_rights`, `missing_rights`. Needs SQLAlchemy.

Thread: any.

Source: the documentation of PostgreSQL, "Access Privilege Inquiry Functions"; that of MariaDB, "EXPLAIN": it needs the
    rights of the statement, and does not run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from penstock.connectors.jdbc.addresses import DatabaseAddress
from penstock.connectors.jdbc.tables import TableName, catalog_of

_POSTGRESQL: Final = "postgresql"
#: A right on some columns may be enough; a statement that needs others says so.
_HELD: Final = sa.text(
    "SELECT current_user, n.nspname, has_schema_privilege(n.oid, 'USAGE'), has_any_column_privilege(c.oid, 'SELECT'), "
    "has_any_column_privilege(c.oid, 'INSERT'), has_any_column_privilege(c.oid, 'UPDATE'), "
    "has_table_privilege(c.oid, 'DELETE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = :name AND "
    "(n.nspname = :schema OR (CAST(:schema AS text) IS NULL AND pg_table_is_visible(c.oid)))"
)
_COLUMN: Final = sa.text(
    "SELECT column_name FROM information_schema.columns WHERE table_schema = COALESCE(:schema, DATABASE()) AND "
    "table_name = :name LIMIT 1"
)
_RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
_EXPLAINED: Final = {
    "SELECT": "EXPLAIN SELECT 1 FROM {table}",
    "INSERT": "EXPLAIN INSERT INTO {table} VALUES ()",
    "UPDATE": "EXPLAIN UPDATE {table} SET {column} = {column}",
    "DELETE": "EXPLAIN DELETE FROM {table}",
}
#: MySQL's errors for a right that is missing on a table, and on a column.
_DENIED: Final = (1142, 1143)


def faults_of_rights(address: DatabaseAddress, tables: Sequence[str], rights: Sequence[str]) -> list[tuple[str, str]]:
    """The setting that names the user, with a text for people, for each table on which he lacks a right.

    Args:
        address: The database; of one that has no such rights, or other ways to ask for them, nothing is said.
        tables: Names of tables; one that is not there is no fault here.
        rights: Of ``SELECT``, ``INSERT``, ``UPDATE`` and ``DELETE``.

    Raises:
        RetriableException: The database cannot be reached.
    """
    with catalog_of(address).connection() as connection:
        if address.dialect.name not in (_POSTGRESQL, "mysql", "mariadb"):
            return []
        found = [missing_rights(connection, TableName.of(one), rights) for one in tables]
    return [("connection.user", text) for text in found if text]


def missing_rights(connection: sa.Connection, name: TableName, rights: Sequence[str]) -> str | None:
    """Says which rights the user lacks on a table, and how to grant them; None if none, or if it sees no such table.

    Args:
        connection: To PostgreSQL, MySQL or MariaDB. Nothing is changed.
        name: The table.
        rights: See `faults_of_rights`.
    """
    quote = connection.dialect.identifier_preparer.quote
    if connection.dialect.name == _POSTGRESQL:
        found = connection.execute(_HELD, {"name": name.name, "schema": name.schema}).first()
        if found is None:
            return None
        user, schema, may_enter, *held = found
        grantee, on = quote(user), f"{quote(schema)}.{quote(name.name)}"
        if not may_enter:
            grant = f"GRANT USAGE ON SCHEMA {quote(schema)} TO {grantee}"
            return f"the user {user} has no right USAGE on the schema {schema} of the table {name}: run {grant}"
        lacking = [one for one, has in zip(_RIGHTS, held, strict=True) if one in rights and not has]
    else:
        # MySQL hides a table on which the user has no right, as if the table did not exist.
        column = connection.execute(_COLUMN, {"name": name.name, "schema": name.schema}).scalar()
        if column is None:
            return None
        on = ".".join(quote(one) for one in (name.schema, name.name) if one)
        explained = {right: one.format(table=on, column=quote(str(column))) for right, one in _EXPLAINED.items()}
        lacking = [one for one in _RIGHTS if one in rights and _is_denied(connection, explained[one])]
        user = str(connection.execute(sa.text("SELECT CURRENT_USER()")).scalar_one())
        grantee = "@".join(f"'{one}'" for one in user.rsplit("@", 1))
    if not lacking:
        return None
    names = ", ".join(lacking)
    return f"the user {user} has no right {names} on the table {name}: run GRANT {names} ON {on} TO {grantee}"


def _is_denied(connection: sa.Connection, statement: str) -> bool:
    try:
        connection.exec_driver_sql(statement.replace("%", "%%")).close()
    except sa.exc.DBAPIError as error:
        return error.orig is not None and error.orig.args[0] in _DENIED
    return False
