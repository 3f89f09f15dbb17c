"""Columns of a table: their Connect schemas, select expressions, and cells as Arrow.

Main types: `TableColumn`, made by `column_of` from a reflected type; `TypeMapping`. Pure; any
thread. Needs SQLAlchemy and PyArrow.

Source: io.confluent.connect.jdbc.dialect.GenericDatabaseDialect (addFieldToSchema), for the mapping of types.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Text
from sqlalchemy import cast as sql_cast
from sqlalchemy import types as sql
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql

from penstock.connectors.jdbc.mappings import NumericMapping, TimestampGranularity
from penstock.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaBuilder,
    Time,
    Timestamp,
    Type,
)
from penstock.errors import ConnectException

#: The digits that always fit an INT64 and a FLOAT64.
_LONG_DIGITS, _DOUBLE_DIGITS = 18, 15
#: The scale of a NUMERIC column that has none, where it becomes a Decimal.
_FREE_SCALE: Final = 18
_US: Final = pa.timestamp("us", "UTC")
#: Text in an expression: Oracle casts numbers to no CLOB, and SQL Server's TEXT is deprecated.
_PRINTED: Final = Text().with_variant(oracle.VARCHAR2(4000), "oracle").with_variant(mssql.NVARCHAR(), "mssql")
_INTEGERS: Final = ((2, INT8_SCHEMA), (4, INT16_SCHEMA), (9, INT32_SCHEMA), (_LONG_DIGITS, INT64_SCHEMA))


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """The settings that decide the types of columns.

    Attributes:
        numbers: ``numeric.mapping``.
        timestamps: ``timestamp.granularity``.
        zone: ``db.timezone``, the zone of timestamps that have none.
    """

    numbers: NumericMapping = NumericMapping.BEST_FIT
    timestamps: TimestampGranularity = TimestampGranularity.CONNECT_LOGICAL
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table.

    Attributes:
        name: Its name.
        schema: Its schema in the record, optional where the column may be null.
        arrow: The type of its cells in a frame.
        as_text: True if the database prints it, because drivers have no type for it.
        items_as_text: The same of the items of an array.
        convert: From the cells as they were read to those of the frame.
        zoned: True if the database says which moments its timestamps are.
    """

    name: str
    schema: Schema
    arrow: pa.DataType
    as_text: bool = False
    convert: Callable[[pa.Array], pa.Array] | None = None
    zoned: bool = False
    items_as_text: bool = False

    def expression(self, source: ColumnElement[Any]) -> ColumnElement[Any]:
        """The column in a SELECT, of the same column of the table."""
        if self.items_as_text:
            return sql_cast(source, sql.ARRAY(Text)).label(self.name)
        return sql_cast(source, _PRINTED).label(self.name) if self.as_text else source

    def cells(self, read: pa.Array) -> pa.Array:
        """The cells of the frame.

        Args:
            read: Cells as they were read.

        Raises:
            ConnectException: One of them is nothing that the schema can hold.
        """
        try:
            if isinstance(read, pa.ExtensionArray):
                read = read.storage
            made = read if self.convert is None else self.convert(read)
            made = made if made.type == self.arrow else made.cast(self.arrow)
        except (pa.ArrowException, OverflowError) as error:
            raise self._not_held(error) from error
        if made.null_count > read.null_count and not self.schema.optional:
            raise ConnectException(
                f"The column {self.name!r} is NOT NULL and has a zero date, which is null in a record: allow null in "
                "the column, or replace the value"
            )
        return made

    def read_values(self, values: Iterable[object]) -> pa.Array:
        """Cells as they were read, of Python values that a cursor gave.

        Raises:
            ConnectException: One of them is nothing that the schema can hold.
        """
        try:
            return _from_python(list(values))
        except (pa.ArrowException, OverflowError) as error:
            raise self._not_held(error) from error

    def _not_held(self, error: Exception) -> ConnectException:
        is_number = self.schema.name in (None, Decimal.LOGICAL_NAME) and self.schema.type is not Type.STRING
        advice = "numeric.mapping=best_fit_eager_double makes NUMERICs of any size, NaN among them, FLOAT64; "
        return ConnectException(
            f"The column {self.name!r} has a value that {self.schema} cannot hold: {error}. {advice * is_number}A "
            "query can leave the row or the column out, or make text of it"
        )


def column_of(name: str, kind: sql.TypeEngine[Any], nullable: bool, mapping: TypeMapping) -> TableColumn:
    """The column of a reflected type.

    A type without a counterpart in Connect (UUID, JSON, ranges, intervals, addresses, types of extensions) becomes
    STRING, as the database prints it.
    """
    made = _base(name, kind, mapping)
    return replace(made, schema=optional(made.schema)) if nullable else made


def optional(schema: Schema) -> Schema:
    """The same schema, for values that may be null."""
    items = schema.value_schema if schema.type is Type.ARRAY else None
    builder = SchemaBuilder(schema.type) if items is None else SchemaBuilder.array(items)
    return builder.name(schema.name).version(schema.version).parameters(schema.parameters or {}).optional().build()


def is_zoned(kind: sql.TypeEngine[Any] | None) -> bool:
    """True if values of a type are moments, whatever the zone of the session: MySQL's TIMESTAMP is one, too."""
    has_zone = getattr(kind, "timezone", False) or getattr(kind, "local_timezone", False)
    return bool(has_zone) or isinstance(kind, (mysql.TIMESTAMP, mssql.DATETIMEOFFSET))


def is_whole(column: TableColumn, kind: sql.TypeEngine[Any] | None, dialect: str) -> bool:
    """True if the values of a column can be counted up, as far as its type says: SQLite's queries have none.

    Args:
        column: The column.
        kind: Its reflected type, None for a column of a query.
        dialect: SQLAlchemy's name of the database.
    """
    kind = kind.data_type if isinstance(kind, postgresql.DOMAIN) else kind
    if kind is None:
        return dialect == "sqlite" or not _is_no_number(column.arrow)
    if isinstance(kind, (sql.NullType, sql.Integer)):
        return True
    return isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float)


def is_moment(column: TableColumn, kind: sql.TypeEngine[Any] | None, dialect: str) -> bool:
    """True if the values of a column are dates, with or without a time; arguments as for `is_whole`. In SQLite they
    may be text.
    """
    kind = kind.data_type if isinstance(kind, postgresql.DOMAIN) else kind
    if kind is None:
        return dialect == "sqlite" or pa.types.is_timestamp(column.arrow) or pa.types.is_date(column.arrow)
    if isinstance(kind, (sql.NullType, sql.DateTime, sql.Date)):
        return True
    return dialect == "sqlite" and isinstance(kind, sql.String)


def _is_no_number(kind: pa.DataType) -> bool:
    kinds = pa.types
    is_one = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
    # Decimals of any number of digits.
    return not is_one and not kinds.is_struct(kind)


def _base(name: str, kind: sql.TypeEngine[Any], mapping: TypeMapping) -> TableColumn:
    if isinstance(kind, postgresql.DOMAIN):
        return _base(name, kind.data_type, mapping)
    if type(kind).__module__.startswith("sqlalchemy.dialects.mysql") and (made := _of_mysql(name, kind)):
        return made
    if isinstance(kind, sql.ARRAY):
        return _array(name, kind, mapping)
    if isinstance(kind, sql.Boolean):
        return TableColumn(name, BOOLEAN_SCHEMA, pa.bool_())
    if isinstance(kind, sql.SmallInteger):
        return TableColumn(name, INT16_SCHEMA, pa.int16())
    if isinstance(kind, sql.BigInteger):
        return TableColumn(name, INT64_SCHEMA, pa.int64())
    if isinstance(kind, sql.Integer):
        return _integer(name)
    if isinstance(kind, sql.Float):
        return _float(name, kind)
    if isinstance(kind, sql.Numeric):
        return _numeric(name, kind, mapping.numbers)
    if isinstance(kind, sql.DateTime):
        # Oracle's driver gives a timestamp without its zone.
        is_printed = is_zoned(kind) and isinstance(kind, oracle.TIMESTAMP)
        return replace(_timestamp(name, kind, mapping), zoned=is_zoned(kind), as_text=is_printed)
    if isinstance(kind, sql.Date):
        return TableColumn(name, Date.SCHEMA, pa.date32(), convert=_without_zeros)
    if isinstance(kind, sql.Time):
        if getattr(kind, "timezone", False):
            return TableColumn(name, STRING_SCHEMA, pa.string(), as_text=True)
        return TableColumn(name, Time.SCHEMA, pa.time64("us"), convert=_times)
    if isinstance(kind, (mssql.MONEY, mssql.SMALLMONEY)):
        # Printed, they would lose two of their four places.
        return replace(_numeric(name, sql.Numeric(19, 4), mapping.numbers), as_text=False)
    if isinstance(kind, sql._Binary):
        return TableColumn(name, BYTES_SCHEMA, pa.binary())
    if isinstance(kind, sql.String) and not isinstance(kind, sql.Enum):
        return TableColumn(name, STRING_SCHEMA, pa.string())
    return TableColumn(name, STRING_SCHEMA, pa.string(), as_text=True)


def _integer(name: str) -> TableColumn:
    return TableColumn(name, INT32_SCHEMA, pa.int32())


def _of_mysql(name: str, kind: sql.TypeEngine[Any]) -> TableColumn | None:
    """The column of a type that only MySQL and MariaDB have, None for others: numbers without a sign, bits."""
    unsigned = bool(getattr(kind, "unsigned", False))
    for classes, signed, other in _MYSQL_INTEGERS:
        if isinstance(kind, classes):
            schema = other if unsigned else signed
            return TableColumn(name, schema, _INTEGER_ARROW[schema.type.value])
    if isinstance(kind, mysql.FLOAT):
        return TableColumn(name, FLOAT32_SCHEMA, pa.float32())
    if isinstance(kind, mysql.BIT):
        length = kind.length or 1
        for bits, schema in ((8, INT8_SCHEMA), (16, INT16_SCHEMA), (32, INT32_SCHEMA), (64, INT64_SCHEMA)):
            if length < bits:
                return TableColumn(name, schema, _INTEGER_ARROW[schema.type.value], convert=_bits)
        return TableColumn(name, Decimal.schema(0), pa.decimal128(38, 0), convert=_bits)
    return None


#: Types, the schema of one with a sign, and that of one without.
_MYSQL_INTEGERS: Final = (
    (mysql.TINYINT, INT8_SCHEMA, INT16_SCHEMA),
    (mysql.SMALLINT, INT16_SCHEMA, INT32_SCHEMA),
    (mysql.MEDIUMINT, INT32_SCHEMA, INT32_SCHEMA),
    (mysql.BIGINT, INT64_SCHEMA, INT64_SCHEMA),
    (mysql.INTEGER, INT32_SCHEMA, INT64_SCHEMA),
    (mysql.YEAR, INT32_SCHEMA, INT32_SCHEMA),
)


def _bits(read: pa.Array) -> pa.Array:
    numbers = [None if one is None else decimal.Decimal(int.from_bytes(one, "big")) for one in read.to_pylist()]
    return pa.array(numbers, pa.decimal128(38, 0))


def _float(name: str, kind: sql.Float[Any]) -> TableColumn:
    single = type(kind).__name__ == "REAL" or (kind.precision is not None and kind.precision <= 24)
    if single and not isinstance(kind, sql.Double):
        return TableColumn(name, FLOAT32_SCHEMA, pa.float32())
    return TableColumn(name, FLOAT64_SCHEMA, pa.float64())


def _numeric(name: str, kind: sql.Numeric[Any], numbers: NumericMapping) -> TableColumn:
    precision, scale = kind.precision, kind.scale
    fits = numbers is not NumericMapping.NONE
    if fits and precision is not None and not scale:
        for digits, schema in _INTEGERS:
            if precision <= digits:
                return TableColumn(name, schema, _INTEGER_ARROW[schema.type.value], as_text=True)
    eager = numbers is NumericMapping.BEST_FIT_EAGER_DOUBLE
    best = numbers is NumericMapping.BEST_FIT and (precision is None or (bool(scale) and precision <= _DOUBLE_DIGITS))
    if eager or best:
        return TableColumn(name, FLOAT64_SCHEMA, pa.float64(), as_text=True, convert=_doubles)
    digits = _FREE_SCALE if precision is None and scale is None else scale or 0
    return TableColumn(name, Decimal.schema(digits), pa.decimal128(38, digits), as_text=True)


_INTEGER_ARROW: Final = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64()}
_ODD_DOUBLES: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _doubles(printed: pa.Array) -> pa.Array:
    if not pa.types.is_string(printed.type):
        return printed.cast(pa.float64())
    odd = pc.is_in(printed, pa.array(list(_ODD_DOUBLES)))
    if not pc.any(odd).as_py():
        return printed.cast(pa.float64())
    plain = pc.if_else(odd, None, printed).cast(pa.float64())
    for text, value in _ODD_DOUBLES.items():
        plain = pc.if_else(pc.fill_null(pc.equal(printed, text), False), pa.scalar(value), plain)
    return plain


def _timestamp(name: str, kind: sql.DateTime, mapping: TypeMapping) -> TableColumn:
    zone, form = "UTC" if isinstance(kind, mysql.TIMESTAMP) else mapping.zone, mapping.timestamps

    def instants(read: pa.Array) -> pa.Array:
        return utc(read, zone)

    if form is TimestampGranularity.CONNECT_LOGICAL:
        return TableColumn(name, Timestamp.SCHEMA, _US, convert=instants)
    scale = 1000 if "nanos" in form.value else 1
    if form in (TimestampGranularity.MICROS_LONG, TimestampGranularity.NANOS_LONG):
        return TableColumn(
            name,
            INT64_SCHEMA,
            pa.int64(),
            convert=lambda read: pc.multiply_checked(instants(read).cast(pa.int64()), scale),
        )
    if form in (TimestampGranularity.MICROS_STRING, TimestampGranularity.NANOS_STRING):
        return TableColumn(
            name,
            STRING_SCHEMA,
            pa.string(),
            convert=lambda read: pc.multiply_checked(instants(read).cast(pa.int64()), scale).cast(pa.string()),
        )
    rest = "000" if scale == 1000 else ""
    return TableColumn(
        name,
        STRING_SCHEMA,
        pa.string(),
        convert=lambda read: pc.binary_join_element_wise(
            pc.strftime(instants(read), "%Y-%m-%dT%H:%M:%S"), pa.scalar(f"{rest}Z"), ""
        ),
    )


def utc(read: pa.Array, zone: str) -> pa.Array:
    """Timestamps as microseconds in UTC; one without a zone is in ``zone``.

    Raises:
        ArrowInvalid: The cells are neither timestamps nor dates nor text of these.
    """
    if pa.types.is_string(read.type):
        read = _parsed(_without_zeros(read))
    elif pa.types.is_date(read.type) or pa.types.is_null(read.type):
        read = read.cast(pa.timestamp("us"))
    elif not pa.types.is_timestamp(read.type):
        raise pa.ArrowInvalid(f"a value of the type {read.type} is no timestamp")
    if read.type.tz is None:
        read = pc.assume_timezone(
            read.cast(pa.timestamp("us")), timezone=zone, ambiguous="earliest", nonexistent="earliest"
        )
    return read.cast(_US)


def _times(read: pa.Array) -> pa.Array:
    if not pa.types.is_string(read.type):
        return read
    # Arrow parses no times.
    return pc.binary_join_element_wise("1970-01-01", read, " ").cast(pa.timestamp("us")).cast(pa.time64("us"))


def _parsed(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return texts.cast(_US)


def _without_zeros(read: pa.Array) -> pa.Array:
    """Text of dates, of which MySQL's zero dates (``0000-00-00``, ``2024-02-00``) are null."""
    if not pa.types.is_string(read.type):
        return read
    return pc.if_else(pc.match_substring_regex(read, r"^\d{4}-(00-\d\d|\d\d-00)"), None, read)


def _array(name: str, kind: sql.ARRAY[Any], mapping: TypeMapping) -> TableColumn:
    item = _base(name, kind.item_type, mapping)
    printed = item.as_text and not isinstance(kind, postgresql.ARRAY)
    if kind.dimensions not in (None, 1) or printed or item.schema.type is Type.ARRAY:
        # Several dimensions, or a database that prints no items.
        return TableColumn(name, STRING_SCHEMA, pa.string(), as_text=True)
    schema = SchemaBuilder.array(optional(item.schema)).build()
    convert = None if item.convert is None and not item.as_text else partial(_of_items, item)
    return TableColumn(name, schema, pa.list_(item.arrow), convert=convert, items_as_text=item.as_text)


def _of_items(item: TableColumn, read: pa.ListArray) -> pa.ListArray:
    """The same lists, of the cells that their items are."""
    ends = np.concatenate([[0], np.cumsum(pc.list_value_length(read).fill_null(0).to_numpy(zero_copy_only=False))])
    mask = read.is_null() if read.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), item.cells(read.flatten()), mask=mask)


def _from_python(values: list[object]) -> pa.Array:
    """Cells of the values of a cursor: what they are decides, since SQLite's cells have types of their own."""
    first = next((one for one in values if one is not None), None)
    if isinstance(first, decimal.Decimal):
        return pa.array([None if one is None else str(one) for one in values], pa.string())
    if isinstance(first, datetime):
        return pa.array(values, pa.timestamp("us", "UTC" if first.tzinfo else None))
    if isinstance(first, (date, time, memoryview, bytearray)):
        return pa.array([bytes(one) if isinstance(one, (memoryview, bytearray)) else one for one in values])
    return pa.array(values)
