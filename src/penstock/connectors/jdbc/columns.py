"""Columns of a table: the Connect schema of each, how it is selected, and its cells as Arrow.

Main types: `Column`, made by `column_of` from a reflected type; `TypeMapping`. Pure; any
thread. Needs SQLAlchemy and PyArrow.

Source: io.confluent.connect.jdbc.dialect.GenericDatabaseDialect (addFieldToSchema), for which type becomes which.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Text
from sqlalchemy import cast as sql_cast
from sqlalchemy import types as sql
from sqlalchemy.dialects import postgresql

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

#: The digits that an INT64 always holds, and those that a FLOAT64 does.
_LONG_DIGITS, _DOUBLE_DIGITS = 18, 15
#: The scale of a NUMERIC column that has none, where it becomes a Decimal.
_FREE_SCALE: Final = 18
_US: Final = pa.timestamp("us", "UTC")
_INTEGERS: Final = ((2, INT8_SCHEMA), (4, INT16_SCHEMA), (9, INT32_SCHEMA), (_LONG_DIGITS, INT64_SCHEMA))


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """Which types columns get.

    Attributes:
        numbers: ``numeric.mapping``.
        timestamps: ``timestamp.granularity``.
        zone: ``db.timezone``, the zone of timestamps that have none.
    """

    numbers: NumericMapping = NumericMapping.BEST_FIT
    timestamps: TimestampGranularity = TimestampGranularity.CONNECT_LOGICAL
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its name.
        schema: Its schema in the record, optional where the column may be null.
        arrow: The type of its cells in a frame.
        as_text: True if the database prints it, because drivers have no type for it.
        convert: From the cells as they were read to those of the frame.
    """

    name: str
    schema: Schema
    arrow: pa.DataType
    as_text: bool = False
    convert: Callable[[pa.Array], pa.Array] | None = None

    def expression(self, source: ColumnElement[Any]) -> ColumnElement[Any]:
        """The column in a SELECT, of the same column of the table."""
        return sql_cast(source, Text).label(self.name) if self.as_text else source

    def cells(self, read: pa.Array) -> pa.Array:
        """The cells of the frame.

        Raises:
            ConnectException: One of them is nothing that the schema can hold.
        """
        try:
            if isinstance(read, pa.ExtensionArray):
                read = read.storage
            made = read if self.convert is None else self.convert(read)
            return made if made.type == self.arrow else made.cast(self.arrow)
        except pa.ArrowInvalid as error:
            raise ConnectException(
                f"The column {self.name!r} has a value that {self.schema} cannot hold: {error}. numeric.mapping="
                "best_fit_eager_double makes numbers of any size, NaN among them, FLOAT64; a query can leave the row "
                "or the column out"
            ) from error

    def of_values(self, values: Iterable[object]) -> pa.Array:
        """The cells of the frame, of Python values that a cursor gave.

        Raises:
            ConnectException: One of them is nothing that the schema can hold.
        """
        return self.cells(_from_python(list(values)))


def column_of(name: str, kind: sql.TypeEngine[Any], nullable: bool, mapping: TypeMapping) -> Column:
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


def _base(name: str, kind: sql.TypeEngine[Any], mapping: TypeMapping) -> Column:
    if isinstance(kind, postgresql.DOMAIN):
        return _base(name, kind.data_type, mapping)
    if isinstance(kind, sql.ARRAY):
        return _array(name, kind, mapping)
    if isinstance(kind, sql.Boolean):
        return Column(name, BOOLEAN_SCHEMA, pa.bool_())
    if isinstance(kind, sql.SmallInteger):
        return Column(name, INT16_SCHEMA, pa.int16())
    if isinstance(kind, sql.BigInteger):
        return Column(name, INT64_SCHEMA, pa.int64())
    if isinstance(kind, sql.Integer):
        return _integer(name, kind)
    if isinstance(kind, sql.Float):
        return _float(name, kind)
    if isinstance(kind, sql.Numeric):
        return _numeric(name, kind, mapping.numbers)
    if isinstance(kind, sql.DateTime):
        return _timestamp(name, kind, mapping)
    if isinstance(kind, sql.Date):
        return Column(name, Date.SCHEMA, pa.date32())
    if isinstance(kind, sql.Time):
        if getattr(kind, "timezone", False):
            return Column(name, STRING_SCHEMA, pa.string(), as_text=True)
        return Column(name, Time.SCHEMA, pa.time64("us"))
    if isinstance(kind, (sql.LargeBinary, sql.BINARY, sql.VARBINARY, postgresql.BYTEA)):
        return Column(name, BYTES_SCHEMA, pa.binary())
    if isinstance(kind, sql.String) and not isinstance(kind, sql.Enum):
        return Column(name, STRING_SCHEMA, pa.string())
    return Column(name, STRING_SCHEMA, pa.string(), as_text=True)


def _integer(name: str, kind: sql.Integer) -> Column:
    # SQLite's INTEGER has 64 bits, whatever it is called; MySQL's has a sign or not.
    words = type(kind).__name__
    if words == "TINYINT":
        return Column(name, INT16_SCHEMA if getattr(kind, "unsigned", False) else INT8_SCHEMA, pa.int16())
    if getattr(kind, "unsigned", False):
        return Column(name, INT64_SCHEMA, pa.int64())
    return Column(name, INT32_SCHEMA, pa.int32())


def _float(name: str, kind: sql.Float[Any]) -> Column:
    single = type(kind).__name__ == "REAL" or (kind.precision is not None and kind.precision <= 24)
    if single and not isinstance(kind, sql.Double):
        return Column(name, FLOAT32_SCHEMA, pa.float32())
    return Column(name, FLOAT64_SCHEMA, pa.float64())


def _numeric(name: str, kind: sql.Numeric[Any], numbers: NumericMapping) -> Column:
    precision, scale = kind.precision, kind.scale
    fits = numbers is not NumericMapping.NONE
    if fits and precision is not None and not scale:
        for digits, schema in _INTEGERS:
            if precision <= digits:
                return Column(name, schema, _INTEGER_ARROW[schema.type.value], as_text=True)
    eager = numbers is NumericMapping.BEST_FIT_EAGER_DOUBLE
    best = numbers is NumericMapping.BEST_FIT and (precision is None or (bool(scale) and precision <= _DOUBLE_DIGITS))
    if eager or best:
        return Column(name, FLOAT64_SCHEMA, pa.float64(), as_text=True, convert=_doubles)
    digits = _FREE_SCALE if precision is None and scale is None else scale or 0
    return Column(name, Decimal.schema(digits), pa.decimal128(38, digits), as_text=True)


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


def _timestamp(name: str, kind: sql.DateTime, mapping: TypeMapping) -> Column:
    zone, form = mapping.zone, mapping.timestamps

    def instants(read: pa.Array) -> pa.Array:
        return utc(read, zone)

    if form is TimestampGranularity.CONNECT_LOGICAL:
        return Column(name, Timestamp.SCHEMA, _US, convert=instants)
    scale = 1000 if "nanos" in form.value else 1
    if form in (TimestampGranularity.MICROS_LONG, TimestampGranularity.NANOS_LONG):
        return Column(
            name,
            INT64_SCHEMA,
            pa.int64(),
            convert=lambda read: pc.multiply_checked(instants(read).cast(pa.int64()), scale),
        )
    if form in (TimestampGranularity.MICROS_STRING, TimestampGranularity.NANOS_STRING):
        return Column(
            name,
            STRING_SCHEMA,
            pa.string(),
            convert=lambda read: pc.multiply_checked(instants(read).cast(pa.int64()), scale).cast(pa.string()),
        )
    rest = "000" if scale == 1000 else ""
    return Column(
        name,
        STRING_SCHEMA,
        pa.string(),
        convert=lambda read: pc.binary_join_element_wise(
            pc.strftime(instants(read), "%Y-%m-%dT%H:%M:%S"), pa.scalar(f"{rest}Z"), ""
        ),
    )


def utc(read: pa.Array, zone: str) -> pa.Array:
    """Timestamps as microseconds in UTC; one without a zone is in ``zone``."""
    if pa.types.is_date(read.type):
        read = read.cast(pa.timestamp("us"))
    if read.type.tz is None:
        read = pc.assume_timezone(
            read.cast(pa.timestamp("us")), timezone=zone, ambiguous="earliest", nonexistent="earliest"
        )
    return read.cast(_US)


def _array(name: str, kind: sql.ARRAY[Any], mapping: TypeMapping) -> Column:
    item = _base(name, kind.item_type, mapping)
    if kind.dimensions not in (None, 1) or item.convert is not None or item.as_text:
        # Several dimensions, or items that the database has to print.
        return Column(name, STRING_SCHEMA, pa.string(), as_text=True)
    return Column(name, SchemaBuilder.array(optional(item.schema)).build(), pa.list_(item.arrow))


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
