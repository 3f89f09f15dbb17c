"""The ways of Oracle: its names, how a session is set up, and the types of a query's columns.

Main functions: `stored_name`, `quote_always`, `set_up`, `query_type`. Needs SQLAlchemy; python-oracledb in its thin
mode makes the connections.

Tested by the SQL and the arguments that it makes, not on a server.

Thread: any.

Source: the documentation of Oracle Database, "Database Object Names and Qualifiers" and "Format Models".
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import oracle
from sqlalchemy.engine import Dialect

from penstock.connectors.jdbc.url_forms import ORACLE

#: Numbers are printed with a point, and timestamps that have a zone with it.
_SETUP: Final = (
    "ALTER SESSION SET TIME_ZONE = 'UTC' NLS_NUMERIC_CHARACTERS = '.,' "
    "NLS_TIMESTAMP_TZ_FORMAT = 'YYYY-MM-DD\"T\"HH24:MI:SS.FF6TZH:TZM'"
)


def stored_name(name: str, dialect: Dialect) -> str:
    """A reflected name as the database keeps it: SQLAlchemy shows a name in upper case as one in lower case."""
    stored = dialect.denormalize_name(name) if dialect.name == ORACLE else name
    return str(stored)


def quote_always(dialect: Dialect) -> None:
    """Makes a dialect quote every name, so that each one is taken as it is written.

    Not for one that reflects: SQLAlchemy's own names of the dictionary are in lower case without quotes.
    """
    preparer: Any = dialect.identifier_preparer
    preparer._requires_quotes = lambda _: True


def set_up(connection: Any, _: object) -> None:
    """Sets up the session of a new connection of the driver: a listener of SQLAlchemy's event ``connect``."""
    with connection.cursor() as cursor:
        cursor.execute(_SETUP)


def query_type(described: Any) -> sa.types.TypeEngine[Any]:
    """The type of a column of a cursor of python-oracledb, from its description."""
    _, kind, _, _, precision, scale, *_ = described
    name = getattr(kind, "name", "")
    if name == "DB_TYPE_NUMBER":
        # A NUMBER without limits has the scale -127.
        return oracle.NUMBER(precision or None, None if scale == -127 else scale)  # type: ignore[no-untyped-call]
    return _TYPES.get(name, sa.types.NullType)()


_TYPES: Final[dict[str, type[sa.types.TypeEngine[Any]]]] = {
    "DB_TYPE_BINARY_FLOAT": sa.REAL,
    "DB_TYPE_BINARY_DOUBLE": sa.Double,
    "DB_TYPE_BINARY_INTEGER": sa.BigInteger,
    "DB_TYPE_BOOLEAN": sa.Boolean,
    "DB_TYPE_DATE": oracle.DATE,
    "DB_TYPE_TIMESTAMP": sa.DateTime,
    **dict.fromkeys(("DB_TYPE_VARCHAR", "DB_TYPE_NVARCHAR", "DB_TYPE_CHAR", "DB_TYPE_NCHAR", "DB_TYPE_LONG"), sa.Text),
    **dict.fromkeys(("DB_TYPE_CLOB", "DB_TYPE_NCLOB"), sa.Text),
    **dict.fromkeys(("DB_TYPE_RAW", "DB_TYPE_LONG_RAW", "DB_TYPE_BLOB"), sa.LargeBinary),
}
