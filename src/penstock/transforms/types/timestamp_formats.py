"""The timestamp representations of TimestampConverter, and the conversions between them.

Main types: ``Conversion`` (the relevant settings) with ``to_millis`` and ``from_millis`` for columns and their
counterparts for one value. Every conversion goes through milliseconds since 1970.

Thread: immutable; columns are built on a pipeline thread.
Source: org.apache.kafka.connect.transforms.TimestampConverter; java.util.concurrent.TimeUnit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.data import Date, FarMoment, Schema, SchemaBuilder, Time, Timestamp, Type
from penstock.errors import ConnectException, DataException
from penstock.pipeline.columns.java_dates import DateParser, PatternToken, compile_pattern, print_column, print_millis
from penstock.pipeline.columns.java_dates.arithmetic import COLUMNS, MILLIS_PER_DAY
from penstock.pipeline.columns.layout import CLEAN_SCALAR, SCALAR, Layout, logical_name, text_bound
from penstock.pipeline.columns.temporal import date_of_days, datetime_of_millis, time_of_millis
from penstock.pipeline.plan.step import NameColumn
from penstock.transforms.fields.requirements import NullPointerError, java_class, java_class_of_value

if TYPE_CHECKING:
    from pyspark.sql import Column

STRING: Final = "string"
UNIX: Final = "unix"
DATE: Final = "Date"
TIME: Final = "Time"
TIMESTAMP: Final = "Timestamp"
PRECISIONS: Final = ("nanoseconds", "microseconds", "milliseconds", "seconds")
NO_FORMAT: Final = 'The setting "format" is empty, so text cannot be read as a timestamp'

_LOGICAL: Final = {Timestamp.LOGICAL_NAME: TIMESTAMP, Date.LOGICAL_NAME: DATE, Time.LOGICAL_NAME: TIME}
_BUILDERS: Final = {
    STRING: SchemaBuilder.string,
    UNIX: SchemaBuilder.int64,
    DATE: Date.builder,
    TIME: Time.builder,
    TIMESTAMP: Timestamp.builder,
}
_MAX: Final = 2**63 - 1
#: Units in a millisecond, or, if negative, milliseconds in a unit.
_UNITS: Final = {"nanoseconds": 1_000_000, "microseconds": 1_000, "milliseconds": 1, "seconds": -1_000}


def schema_of(kind: str, *, optional: bool) -> Schema:
    """The schema of a representation."""
    builder = _BUILDERS[kind]()
    return builder.optional().build() if optional else builder.build()


def kind_of(schema: Schema) -> str:
    """Returns the representation of a schema's values.

    Raises:
        ConnectException: The schema is not a timestamp representation.
    """
    logical = _LOGICAL.get(schema.name or "")
    if logical is not None:
        return logical
    if schema.type is Type.STRING:
        return STRING
    if schema.type is Type.INT64:
        return UNIX
    raise ConnectException(f"Schema {schema} does not correspond to a known timestamp type format")


@dataclass(frozen=True)
class Converted:
    """A column, the error message of each value (null = no error), and the exception class."""

    column: Column
    problem: Column | None = None
    exception: str = DataException.java_name


@dataclass(frozen=True)
class Conversion:
    """A conversion from any representation to a given one.

    Attributes:
        target: The target representation.
        precision: The unit of unix timestamps.
        parser: Parses text; its pattern also formats text. None = no pattern is set.
    """

    target: str
    precision: str
    parser: DateParser | None

    @property
    def _tokens(self) -> Sequence[PatternToken]:
        assert self.parser is not None, "text is the target only where there is a pattern"
        return compile_pattern(self.parser.pattern)

    @property
    def layout(self) -> Layout:
        """The layout of converted values: text contains digits, English names and the text of the pattern."""
        if self.target != STRING:
            return CLEAN_SCALAR
        return replace(SCALAR, text=text_bound("".join(token.text for token in self._tokens)))

    def _unreadable(self, text: str) -> str:
        pattern = "" if self.parser is None else self.parser.pattern
        return f"Could not parse timestamp: value ({text}) does not match pattern ({pattern})"

    # ------------------------------------------------------------------ columns
    def to_millis(self, column: Column, kind: str) -> Converted:
        """Milliseconds of a representation. ``column`` is used several times."""
        match kind:
            case "string":
                return self._parsed(column)
            case "unix":
                return Converted(self._unix_to_millis(column))
            case "Date":
                return Converted(column.cast("bigint") * F.lit(MILLIS_PER_DAY))
            case _:
                return Converted(column.cast("bigint"))

    def _parsed(self, column: Column) -> Converted:
        if self.parser is None:
            problem = F.when(column.isNotNull(), F.lit(NO_FORMAT))
            return Converted(F.lit(None).cast("bigint"), problem, NullPointerError.java_name)
        # The result is named, so that the error check does not compute the regular expression and arithmetic again.
        return Converted(self.parser.column(column))

    def unread(self, text: Column, millis: Column) -> Column:
        """The error message for a text that could not be parsed; null if it could."""
        start, end = self._unreadable("\0").split("\0")
        bad = text.isNotNull() & millis.isNull()
        return F.when(bad, F.concat(F.lit(start), text, F.lit(end)))

    def _unix_to_millis(self, column: Column) -> Column:
        unit = _UNITS[self.precision]
        if unit == 1:
            return column
        return _scaled(column, -unit) if unit < 0 else F.call_function("div", column, F.lit(unit))

    def from_millis(self, millis: Column, keep: NameColumn) -> Column:
        """The target representation as its column type (``int`` days for Date). ``millis`` is used several times."""
        match self.target:
            case "string":
                return print_column(self._tokens, millis, keep)
            case "unix":
                unit = _UNITS[self.precision]
                if unit == 1:
                    return millis
                return _scaled(millis, unit) if unit > 0 else F.call_function("div", millis, F.lit(-unit))
            case "Date":
                days: Column = COLUMNS.div(millis, MILLIS_PER_DAY)
                return days.try_cast("int")
            case "Time":
                return F.pmod(millis, F.lit(MILLIS_PER_DAY)).cast("int")
            case _:
                return millis

    # ------------------------------------------------------------------ one value
    def convert(self, value: object, kind: str) -> object:
        """Converts one value.

        Raises:
            DataException: The value contradicts its schema, or is text that does not match the pattern.
            NullPointerError: The value is text, and no pattern is set.
        """
        if value is None:
            return None
        return self._value_of(self._millis_of(value, kind))

    def _millis_of(self, value: object, kind: str) -> int:
        if kind == STRING and isinstance(value, str):
            if self.parser is None:
                raise NullPointerError(NO_FORMAT)
            millis = self.parser.parse(value)
            if millis is None:
                raise DataException(self._unreadable(value))
            return millis
        if isinstance(value, FarMoment) and kind != STRING:
            return value.millis
        if kind == UNIX and isinstance(value, int):
            unit = _UNITS[self.precision]
            return _saturated(value * -unit) if unit < 0 else _truncated(value, unit)
        if isinstance(value, datetime):
            return Timestamp.from_logical(Timestamp.SCHEMA, value)
        if isinstance(value, (date, int)) and kind == DATE:
            return Date.from_logical(Date.SCHEMA, value) * MILLIS_PER_DAY
        if isinstance(value, date):
            return Date.from_logical(Date.SCHEMA, value) * MILLIS_PER_DAY
        if isinstance(value, time):
            return Time.from_logical(Time.SCHEMA, value)
        if isinstance(value, int) and kind in (TIME, TIMESTAMP):
            return value
        raise DataException(expected(kind, java_class_of_value(value)))

    def _value_of(self, millis: int) -> object:
        match self.target:
            case "string":
                return print_millis(self._tokens, millis)
            case "unix":
                unit = _UNITS[self.precision]
                return _saturated(millis * unit) if unit > 0 else _truncated(millis, -unit)
            case "Date":
                return date_of_days(millis // MILLIS_PER_DAY)
            case "Time":
                return time_of_millis(millis % MILLIS_PER_DAY)
            case _:
                return datetime_of_millis(millis)


def expected(kind: str, java: str) -> str:
    """Java's message for a value of the wrong type."""
    what = {STRING: "string timestamp to be a String", UNIX: "Unix timestamp to be a Long"}
    return f"Expected {what.get(kind, f'{kind} to be a java.util.Date')}, but found class {java}"


def misfit(schema: Schema) -> str | None:
    """Returns why the values of a schema contradict its name, or None if they do not."""
    if schema.name in _LOGICAL and logical_name(schema) is None:
        return expected(kind_of(schema), java_class(schema))
    return None


def _scaled(column: Column, factor: int) -> Column:
    """A product that saturates at the limits of int64."""
    product = F.try_multiply(column, F.lit(factor).cast("bigint"))
    limit = F.when(column > 0, F.lit(_MAX)).otherwise(F.lit(-_MAX - 1))
    return F.when(column.isNotNull(), F.coalesce(product, limit))


def _saturated(number: int) -> int:
    return max(-_MAX - 1, min(_MAX, number))


def _truncated(number: int, divisor: int) -> int:
    whole = abs(number) // divisor
    return whole if number >= 0 else -whole


def inferred(value: object) -> str:
    """Returns the representation of a schemaless value.

    Raises:
        DataException: The value is not a timestamp.
    """
    if isinstance(value, (date, time, FarMoment)):
        return TIMESTAMP
    if isinstance(value, int) and not isinstance(value, bool):
        return UNIX
    if isinstance(value, str):
        return STRING
    raise DataException(no_timestamp(java_class_of_value(value)))


def no_timestamp(java: str) -> str:
    """Java's message for a schemaless value that is not a timestamp."""
    return f"TimestampConverter does not support class {java} objects as timestamps"
