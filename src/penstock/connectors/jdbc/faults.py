"""Errors of databases, sorted by what helps: waiting, another row, or another statement.

Main types: `Fault`, `FaultAndError`; `fault_of` sorts the error of a driver. Pure; any thread.

Source: the documentation of PostgreSQL, "PostgreSQL Error Codes", and the SQL standard for their classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.connectors.jdbc.addresses import Address
from penstock.errors import ConnectException, DataException, RetriableException


class Fault(Enum):
    """PASSING: the same again may work. ROW: a row is not accepted. STATEMENT: nothing of the kind will be."""

    PASSING = "passing"
    ROW = "row"
    STATEMENT = "statement"


@dataclass(frozen=True, slots=True)
class FaultAndError:
    """A kind of fault, and the error to raise for it."""

    kind: Fault
    error: ConnectException


#: Classes of SQLSTATE: connection, rollback, resources, intervention of an operator, and of the system.
_PASSING: Final = ("08", "40", "53", "55P03", "57", "58")
#: Classes of SQLSTATE: data, integrity, the check of a view, what a trigger raises, and two rows for one key.
_OF_ROWS: Final = ("21", "22", "23", "44", "P0001")
#: Errors of MySQL and MariaDB that pass: lost connections, dead locks, waits that took too long, too many connections.
_MYSQL_PASSING: Final = frozenset({1040, 1053, 1205, 1213, 2002, 2003, 2006, 2013, 2055})
#: Those of rows: duplicates, nulls, foreign keys, values out of range, too long, or of another type.
_MYSQL_ROWS: Final = frozenset({1048, 1062, 1216, 1217, 1264, 1265, 1292, 1366, 1406, 1451, 1452, 3819, 4025})
_LOST: Final = ("closed the connection", "no connection to the server", "could not receive data", "could not send data")


def fault_of(address: Address, error: BaseException) -> FaultAndError:
    """Sorts the error of a driver.

    Args:
        address: Where the database is.
        error: The error, of psycopg, ADBC, sqlite3 or PyMySQL; one of Penstock's own keeps its kind.
    """
    if isinstance(error, DataException):
        return FaultAndError(Fault.ROW, error)
    if isinstance(error, RetriableException):
        return FaultAndError(Fault.PASSING, error)
    if isinstance(error, ConnectException):
        return FaultAndError(Fault.STATEMENT, error)
    text = " ".join(str(error).split()) or type(error).__name__
    kind = _kind(error, text)
    if kind is Fault.PASSING:
        return FaultAndError(kind, RetriableException(f"The database {address.label} did not finish: {text}"))
    if kind is Fault.ROW:
        return FaultAndError(kind, DataException(f"The database {address.label} does not accept a row: {text}"))
    return FaultAndError(kind, ConnectException(f"The database {address.label} refuses the statement: {text}"))


def _kind(error: BaseException, text: str) -> Fault:
    state = getattr(error, "sqlstate", None) or ""
    if state:
        return Fault.PASSING if state.startswith(_PASSING) else _row_or_statement(state.startswith(_OF_ROWS))
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if number is not None:
        return Fault.PASSING if number in _MYSQL_PASSING else _row_or_statement(number in _MYSQL_ROWS)
    if "locked" in text or "busy" in text or any(lost in text for lost in _LOST):
        return Fault.PASSING
    return _row_or_statement(
        type(error).__name__ in ("IntegrityError", "DataError", "ConstraintException", "OverflowError")
    )


def _row_or_statement(is_row: bool) -> Fault:
    return Fault.ROW if is_row else Fault.STATEMENT
