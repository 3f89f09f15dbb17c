"""Compares types of fields with types of columns: finds misfits and columns that can be widened.

Main functions: `fits`, `widened`. Pure; any thread. Needs SQLAlchemy and PyArrow.

Source: the documentation of PostgreSQL, "Type Conversion".
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.data import Date, Decimal, Schema, Time, Timestamp, Type

_INTEGERS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
_NESTED: Final = (Type.STRUCT, Type.MAP, Type.ARRAY)
_SMALL, _MIDDLE = 2**15, 2**31
#: Names of the temporal logical types, and the columns that hold them without loss.
_TEMPORAL: Final[dict[str, tuple[type[Any], ...]]] = {
    Timestamp.LOGICAL_NAME: (sa.DateTime,),
    Date.LOGICAL_NAME: (sa.Date, sa.DateTime),
    Time.LOGICAL_NAME: (sa.Time,),
}


def fits(schema: Schema, kind: sa.types.TypeEngine[Any], dialect: str, is_text: bool = False) -> bool:
    """True if a column takes the values of a field, but for single ones that are out of its range.

    A float does not fit an integer, nor a text a number, nor a timestamp a date: the database would refuse, round or
    cut them. A text fits each type that is written as one: UUID, enums, JSON, addresses.

    Args:
        schema: That of the field.
        kind: The type of the column, as it was found.
        dialect: SQLAlchemy's name of the database.
        is_text: True if the values are text that the database is to parse.
    """
    if isinstance(kind, sa.types.NullType):
        return True
    if isinstance(kind, postgresql.DOMAIN):
        return fits(schema, kind.data_type, dialect, is_text)
    if isinstance(kind, sa.JSON):
        return is_text or schema.type is Type.STRING or schema.type in _NESTED
    if isinstance(kind, sa.ARRAY):
        items = schema.value_schema if schema.type is Type.ARRAY else None
        return items is not None and fits(items, kind.item_type, dialect)
    if schema.type in _NESTED:
        return False
    is_words = isinstance(kind, sa.String) and not isinstance(kind, sa.Enum)
    if schema.name in _TEMPORAL:
        # SQLite has no such types, and Oracle none for a time: text holds them as it is printed.
        return isinstance(kind, _TEMPORAL[schema.name]) or (dialect in ("sqlite", "oracle") and is_words)
    if schema.name == Decimal.LOGICAL_NAME:
        whole = int((schema.parameters or {}).get("scale", "0")) <= 0
        return is_words or isinstance(kind, (sa.Numeric, sa.Float)) or (whole and isinstance(kind, sa.Integer))
    return _plain_fits(schema.type, kind, dialect, is_words, is_text)


def _plain_fits(carrier: Type, kind: sa.types.TypeEngine[Any], dialect: str, is_words: bool, is_text: bool) -> bool:
    is_bytes = isinstance(kind, sa.types._Binary) or type(kind).__name__ in ("BLOB", "BYTEA")
    if carrier is Type.BYTES:
        return is_bytes
    if is_words:
        return True
    is_number = isinstance(kind, (sa.Numeric, sa.Float))
    if carrier in _INTEGERS:
        return is_number or isinstance(kind, sa.Integer)
    if carrier in _FLOATS:
        return is_number
    if carrier is Type.BOOLEAN:
        numbers = (sa.Integer, sa.Numeric) if dialect == "oracle" else sa.Integer
        return isinstance(kind, sa.Boolean) or (dialect != "postgresql" and isinstance(kind, numbers))
    is_temporal = isinstance(kind, (sa.DateTime, sa.Date, sa.Time))
    of_other_kind = is_number or is_bytes or isinstance(kind, (sa.Integer, sa.Boolean))
    return not of_other_kind and (is_text or not is_temporal)


def widened(
    schema: Schema, kind: sa.types.TypeEngine[Any], cells: pa.ChunkedArray, dialect: str
) -> sa.types.TypeEngine[Any] | None:
    """The type that a column needs for these values, None if its own will do.

    Only a type that holds each value of the one before: INTEGER becomes BIGINT for a number that needs it, REAL becomes
    DOUBLE PRECISION for doubles, VARCHAR becomes TEXT for a text that is longer, NUMERIC loses its limits for a decimal
    with more places. Only on PostgreSQL; SQLite's columns have no limits.

    Args:
        schema: That of the field.
        kind: The type of the column.
        cells: The values.
        dialect: SQLAlchemy's name of the database.
    """
    if dialect != "postgresql":
        return None
    if schema.type in _INTEGERS and not schema.name and isinstance(kind, sa.Integer):
        return _integer(kind, cells)
    if schema.type is Type.FLOAT64 and isinstance(kind, sa.REAL) and not isinstance(kind, sa.Double):
        return sa.Double()
    if schema.type is Type.STRING and isinstance(kind, sa.VARCHAR) and kind.length is not None:
        longest = pc.max(pc.utf8_length(cells)).as_py() if pa.types.is_string(cells.type) else None
        return sa.Text() if longest is not None and longest > kind.length else None
    if schema.name == Decimal.LOGICAL_NAME and isinstance(kind, sa.Numeric):
        scale = int((schema.parameters or {}).get("scale", "0"))
        return sa.Numeric() if kind.precision is not None and scale > (kind.scale or 0) else None
    return None


def _integer(kind: sa.Integer, cells: pa.ChunkedArray) -> sa.types.TypeEngine[Any] | None:
    if isinstance(kind, sa.BigInteger) or getattr(kind, "unsigned", False):
        return None
    found = pc.min_max(cells)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is None:
        return None
    needs_long = not -_MIDDLE <= low <= high < _MIDDLE
    if isinstance(kind, sa.SmallInteger):
        return sa.BigInteger() if needs_long else None if -_SMALL <= low <= high < _SMALL else sa.Integer()
    return sa.BigInteger() if needs_long else None
