"""The statement MERGE, by which Oracle and SQL Server write a row whether it is there or not.

Main type: `Merge`. Pure; any thread. Needs SQLAlchemy.

Source: the SQL standard, "merge statement"; io.confluent.connect.jdbc.dialect, OracleDatabaseDialect and
    SqlServerDatabaseDialect, for HOLDLOCK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from penstock.connectors.jdbc.url_forms import ORACLE, SQL_SERVER

#: The databases that need it.
MERGING: Final = (ORACLE, SQL_SERVER)


class Merge(sa.Executable, sa.ClauseElement):
    """Updates the row that has the key, or inserts one. Its parameters are named by the columns.

    Args:
        table: The table, with the columns to write.
        keys: The columns of the primary key.
        holdlock: True: SQL Server keeps its lock between looking for the row and inserting it, so that two tasks
            cannot both insert.
    """

    inherit_cache = False

    def __init__(self, table: sa.TableClause, keys: Sequence[str], holdlock: bool) -> None:
        self.table = table
        self.keys = keys
        self.holdlock = holdlock


@compiles(Merge)
def _text(element: Merge, compiler: Any, **options: Any) -> str:
    is_sql_server = compiler.dialect.name == SQL_SERVER
    quote = compiler.preparer.quote
    columns = list(element.table.c)
    row = sa.select(*(_cell(one, is_sql_server).label(one.name) for one in columns))
    same = " AND ".join(f"target.{quote(key)} = incoming.{quote(key)}" for key in element.keys)
    rest = [one.name for one in columns if one.name not in element.keys]
    changed = ", ".join(f"target.{quote(name)} = incoming.{quote(name)}" for name in rest)
    named = ", ".join(quote(one.name) for one in columns)
    values = ", ".join(f"incoming.{quote(one.name)}" for one in columns)
    lock = " WITH (HOLDLOCK)" if element.holdlock and is_sql_server else ""
    alias = " AS target" if is_sql_server else " target"
    return (
        f"MERGE INTO {compiler.preparer.format_table(element.table)}{lock}{alias} "
        f"USING ({compiler.process(row, **options)}) incoming ON ({same})"
        + (f" WHEN MATCHED THEN UPDATE SET {changed}" if rest else "")
        + f" WHEN NOT MATCHED THEN INSERT ({named}) VALUES ({values})"
        + (";" if is_sql_server else "")
    )


def _cell(column: sa.ColumnElement[Any], is_sql_server: bool) -> sa.ColumnElement[Any]:
    name = str(column.name)
    value: sa.ColumnElement[Any] = sa.bindparam(name, type_=column.type)
    # Here SQL Server could not tell the type of a null.
    typed = is_sql_server and not isinstance(column.type, sa.types.NullType)
    return sa.cast(value, column.type) if typed else value
