"""The ways of MySQL and MariaDB: how a connection is set up, columns of JSON, and the types of a query's columns.

Main functions: `connect_arguments`, `json_columns`, `query_types`, `leave`. Needs SQLAlchemy
and PyMySQL.

Thread: any.

Source: the documentation of MariaDB, "SQL_MODE", "JSON Data Type" and "Result Set Packets".
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

#: SQLAlchemy's name of both.
NAME: Final = "mysql"

#: The character set of tables that are made: the default of a server may know no emoji, and take ``A`` and ``a`` for
#: the same key.
CHARSET: Final = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

#: A TIMESTAMP is printed in UTC; a value that does not fit is refused, rather than cut, whatever the server's default;
#: and a result may wait for its reader for an hour.
_SETUP: Final = (
    "SET time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'), "
    "net_write_timeout = 3600"
)
#: Flags of a column in a result.
_UNSIGNED: Final = 32
#: The character set of bytes.
_BINARY: Final = 63


def connect_arguments() -> dict[str, Any]:
    """The arguments of a connection: dates and times stay text, since a zero date or 25 hours are none of Python's."""
    from pymysql.constants import FIELD_TYPE
    from pymysql.converters import conversions

    temporal = {FIELD_TYPE.TIMESTAMP, FIELD_TYPE.DATETIME, FIELD_TYPE.DATE, FIELD_TYPE.TIME}
    return {"init_command": _SETUP, "conv": {kind: one for kind, one in conversions.items() if kind not in temporal}}


def json_columns(connection: sa.Connection, schema: str | None, table: str) -> set[str]:
    """The columns of a table of MariaDB that were declared as JSON: it keeps them as text, and checks it."""
    if not getattr(connection.dialect, "is_mariadb", False):
        return set()
    found = connection.execute(
        sa.text(
            "SELECT c.column_name FROM information_schema.columns c JOIN information_schema.check_constraints k ON "
            "k.constraint_schema = c.table_schema AND k.table_name = c.table_name AND k.constraint_name = "
            "c.column_name WHERE c.table_schema = COALESCE(:schema, DATABASE()) AND c.table_name = :table AND "
            "k.check_clause LIKE 'json_valid(%)'"
        ),
        {"schema": schema, "table": table},
    )
    return {str(one) for (one,) in found}


def leave(cursor: Any) -> None:
    """Lets a cursor go whose result is not read to its end: PyMySQL would first read the rest of it."""
    result = getattr(cursor, "_result", None)
    if result is not None:
        result.unbuffered_active = False


def query_types(cursor: Any) -> list[tuple[str, sa.types.TypeEngine[Any]]]:
    """The names and types of the columns of a cursor of PyMySQL."""
    return [
        (described[0], _type(described, field.flags, field.charsetnr))
        for described, field in zip(cursor.description or (), cursor._result.fields, strict=True)
    ]


def _type(described: Any, flags: int, charset: int) -> sa.types.TypeEngine[Any]:
    from pymysql.constants import FIELD_TYPE

    code, length, scale = described[1], described[3], described[5]
    unsigned = bool(flags & _UNSIGNED)
    integers = {
        FIELD_TYPE.TINY: mysql.TINYINT,
        FIELD_TYPE.SHORT: mysql.SMALLINT,
        FIELD_TYPE.INT24: mysql.MEDIUMINT,
        FIELD_TYPE.LONG: mysql.INTEGER,
        FIELD_TYPE.LONGLONG: mysql.BIGINT,
    }
    if code in integers:
        made: sa.types.TypeEngine[Any] = integers[code](unsigned=unsigned)
        return made
    if code in (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL):
        # Its length counts the sign and the point.
        return mysql.DECIMAL(length - (not unsigned) - (scale > 0), scale)
    if code == FIELD_TYPE.BIT:
        return mysql.BIT(length)
    plain: dict[int, sa.types.TypeEngine[Any]] = {
        FIELD_TYPE.FLOAT: mysql.FLOAT(),
        FIELD_TYPE.DOUBLE: mysql.DOUBLE(),
        FIELD_TYPE.YEAR: mysql.YEAR(),
        FIELD_TYPE.DATE: sa.Date(),
        FIELD_TYPE.DATETIME: mysql.DATETIME(),
        FIELD_TYPE.TIMESTAMP: mysql.TIMESTAMP(),
        FIELD_TYPE.TIME: mysql.TIME(),
        FIELD_TYPE.JSON: mysql.JSON(),
    }
    if code in plain:
        return plain[code]
    return sa.LargeBinary() if charset == _BINARY else sa.Text()
