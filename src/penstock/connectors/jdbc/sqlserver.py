"""The types of the columns of a query on SQL Server.

Main function: `query_type`. Needs SQLAlchemy for types; mssql-python makes the connections.

Tested by the types that it returns, not on a server.

Thread: any.

Source: PEP 249, for descriptions of cursors.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mssql


def query_type(described: Any) -> sa.types.TypeEngine[Any]:
    """The type of a column of a cursor of mssql-python, whose description names a type of Python."""
    _, kind, _, _, precision, scale, *_ = described
    if kind is decimal.Decimal:
        return sa.Numeric(precision, scale)
    return _TYPES.get(kind, sa.types.NullType)()


_TYPES: Final[dict[object, type[sa.types.TypeEngine[Any]]]] = {
    bool: sa.Boolean,
    int: sa.BigInteger,
    float: sa.Double,
    str: sa.Text,
    bytes: sa.LargeBinary,
    datetime.date: sa.Date,
    datetime.time: sa.Time,
    datetime.datetime: mssql.DATETIME2,
    uuid.UUID: mssql.UNIQUEIDENTIFIER,
}
