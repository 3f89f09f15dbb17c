"""Classifies errors of databases by remedy: waiting, another row, or another statement.

Main types: `FaultKind`, `FaultAndError`; `fault_of` classifies the error of a driver. Pure; any thread.

Source: the documentation of PostgreSQL, "PostgreSQL Error Codes", and the SQL standard for their classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.connectors.jdbc.addresses import DatabaseAddress
from penstock.errors import ConnectException, DataException, RetriableException


class FaultKind(Enum):
    """PASSING: the same again may work. ROW: a row is not accepted. STATEMENT: nothing of the kind will be."""

    PASSING = "passing"
    ROW = "row"
    STATEMENT = "statement"


@dataclass(frozen=True, slots=True)
class FaultAndError:
    """A kind of fault, and the error to raise for it."""

    kind: FaultKind
    error: ConnectException


_NO_ROW: Final = " does not accept a row"
_NO_STATEMENT: Final = " refuses the statement"
#: Classes of SQLSTATE: connection, rollback, resources, intervention of an operator, and of the system.
_PASSING: Final = ("08", "40", "53", "55P03", "57", "58")
#: Classes of SQLSTATE: data, integrity, the check of a view, what a trigger raises, and two rows for one key.
_OF_ROWS: Final = ("21", "22", "23", "44", "P0001")
#: Errors of MySQL and MariaDB that pass: lost and ended connections, dead locks, waits that took too long, a full disk,
#: a server that has no place, stops, or has become a replica, which takes no writes.
# fmt: off
_MYSQL_PASSING: Final = frozenset({
    0, 1020, 1021, 1040, 1041, 1053, 1114, 1129, 1152, 1158, 1159, 1160, 1161, 1180, 1203, 1205, 1213,
    1226, 1290, 1317, 1792, 1836, 1927, 1969, 2002, 2003, 2006, 2013, 2055, 3024, 3572,
})
# fmt: on
#: Those of rows: duplicates, nulls, foreign keys and checks, values out of range, too long, or of another type, texts
#: of another character set, too much for one message, and what a trigger raises.
# fmt: off
_MYSQL_ROWS: Final = frozenset({
    1022, 1048, 1062, 1118, 1153, 1216, 1217, 1264, 1265, 1292, 1300, 1366, 1367, 1406, 1411, 1416,
    1441, 1451, 1452, 1526, 1644, 1690, 3140, 3730, 3819, 3948, 4025, 4078,
})
# fmt: on
#: Errors of Oracle that pass: dead locks, busy rows, a server that starts, stops or has no place, lost connections.
# fmt: off
_ORACLE_PASSING: Final = frozenset({
    "ORA-00018", "ORA-00020", "ORA-00028", "ORA-00054", "ORA-00060", "ORA-01012", "ORA-01013", "ORA-01033", "ORA-01034",
    "ORA-01089", "ORA-01090", "ORA-01092", "ORA-01536", "ORA-01555", "ORA-01652", "ORA-01653", "ORA-01654", "ORA-03113",
    "ORA-03114", "ORA-03135", "ORA-08177", "ORA-12514", "ORA-12516", "ORA-12520", "ORA-12528", "ORA-12537", "ORA-12541",
    "ORA-12570", "ORA-12571", "ORA-25408", "DPY-1001", "DPY-4011", "DPY-4024", "DPY-6000", "DPY-6005",
})
#: Those of rows: duplicates, nulls, checks, foreign keys, values that are too large or of another form.
_ORACLE_ROWS: Final = frozenset({
    "ORA-00001", "ORA-01400", "ORA-01401", "ORA-01407", "ORA-01426", "ORA-01438", "ORA-01461", "ORA-01722", "ORA-01830",
    "ORA-01839", "ORA-01841", "ORA-01843", "ORA-01858", "ORA-01861", "ORA-02290", "ORA-02291", "ORA-02292", "ORA-12899",
    "ORA-26093", "ORA-30926",
})
# fmt: on
#: The numbers that triggers raise.
_ORACLE_RAISED: Final = range(20_000, 21_000)
#: Classes of DuckDB: another transaction has changed the row, another process has the file, the disk is full.
_DUCKDB_PASSING: Final = ("TransactionException", "IOException", "ConnectionException", "InterruptException")
#: Classes of errors of rows, of SQLite, of Python and of DuckDB.
_NAMES_OF_ROWS: Final = (
    "IntegrityError",
    "DataError",
    "OverflowError",
    "ConstraintException",
    "ConversionException",
    "OutOfRangeException",
    "InvalidInputException",
)
#: Texts of errors that pass, of drivers that have nothing else: SQLite's, and lost connections.
_PASSING_TEXTS: Final = (
    "locked",
    "busy",
    "disk is full",
    "disk I/O error",
    "closed the connection",
    "no connection to the server",
    "could not receive data",
    "could not send data",
)
#: An error of ADBC: its statement, which does not identify a row, then PostgreSQL's message.
_STATEMENT_OF_ADBC: Final = re.compile(r"^[A-Z_]+: \[libpq\] .*?': ERROR: (.*?)[ .]*\. SQLSTATE: (\w+)$")
#: Part of PyMySQL's error for values that it does not send.
_NOT_A_NUMBER: Final = "can not be used with MySQL"


def fault_of(address: DatabaseAddress, error: BaseException) -> FaultAndError:
    """Sorts the error of a driver.

    Args:
        address: Where the database is.
        error: The error, of psycopg, ADBC, sqlite3, PyMySQL, python-oracledb or mssql-python; one of Penstock's own
            keeps its kind.
    """
    if isinstance(error, DataException):
        return FaultAndError(FaultKind.ROW, error)
    if isinstance(error, RetriableException):
        return FaultAndError(FaultKind.PASSING, error)
    if isinstance(error, ConnectException):
        return FaultAndError(FaultKind.STATEMENT, error)
    text = " ".join(str(error).split()) or type(error).__name__
    kind = _kind(error, text)
    if kind is FaultKind.PASSING:
        return FaultAndError(kind, RetriableException(f"The database {address.label} did not finish: {text}"))
    if kind is FaultKind.ROW:
        text = _STATEMENT_OF_ADBC.sub(r"\1 (SQLSTATE \2)", text)
        return FaultAndError(kind, DataException(f"The database {address.label}{_NO_ROW}: {text}"))
    return FaultAndError(kind, ConnectException(f"The database {address.label}{_NO_STATEMENT}: {text}"))


def without_reason(error: ConnectException) -> ConnectException:
    """The same error without what the database says, which may show parts of a statement; others stay as they are."""
    text = str(error)
    for said in (_NO_ROW, _NO_STATEMENT):
        if said in text:
            return type(error)(
                f"{text.partition(said)[0]}{said}. What the database says may show parts of query.masked and is left "
                "out: run the statement with a client of the database to see it"
            )
    return error


def _kind(error: BaseException, text: str) -> FaultKind:
    # PyMySQL has both, and a state that says little.
    number = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if number is not None:
        return FaultKind.PASSING if number in _MYSQL_PASSING else _row_or_statement(number in _MYSQL_ROWS)
    code = getattr(error.args[0], "full_code", "") if error.args else ""
    if code:
        return FaultKind.PASSING if code in _ORACLE_PASSING else _row_or_statement(_is_oracle_row(code))
    if type(error).__module__.startswith("mssql_python") and type(error).__name__ == "OperationalError":
        # Its drivers tell SQLSTATEs by classes: connections, dead locks and time-outs are of this one.
        return FaultKind.PASSING
    state = getattr(error, "sqlstate", None) or ""
    if state:
        return FaultKind.PASSING if state.startswith(_PASSING) else _row_or_statement(state.startswith(_OF_ROWS))
    if _NOT_A_NUMBER in text:
        return FaultKind.ROW
    name = type(error).__name__
    if name in _DUCKDB_PASSING:
        return FaultKind.PASSING
    if any(one in text for one in _PASSING_TEXTS):
        return FaultKind.PASSING
    return _row_or_statement(name in _NAMES_OF_ROWS)


def _is_oracle_row(code: str) -> bool:
    """True if a code is that of a row, or raised by a trigger.

    >>> _is_oracle_row("ORA-00001"), _is_oracle_row("ORA-20123"), _is_oracle_row("ORA-00942")
    (True, True, False)
    """
    number = code.partition("-")[2]
    return code in _ORACLE_ROWS or (code.startswith("ORA-") and number.isdigit() and int(number) in _ORACLE_RAISED)


def _row_or_statement(is_row: bool) -> FaultKind:
    return FaultKind.ROW if is_row else FaultKind.STATEMENT
