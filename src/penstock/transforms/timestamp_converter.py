"""TimestampConverter: converts a field, or the whole key or value, to another representation of a timestamp.

Every conversion goes through milliseconds since 1970. Text follows patterns of ``SimpleDateFormat``, as leniently as in
Java (``penstock.pipeline.columns.java_dates``).

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.TimestampConverter; java.util.concurrent.TimeUnit.
"""

from __future__ import annotations

import time as system_time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as F

from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, Validator, ValidString, setting
from penstock.data import Date, FarMoment, Schema, SchemaBuilder, Struct, Time, Timestamp, Type
from penstock.data.text import MILLIS_PER_DAY
from penstock.errors import ConfigException, ConnectException, DataException
from penstock.pipeline.columns.date_parsing import CENTURY, DateParser
from penstock.pipeline.columns.java_dates import (
    COLUMNS,
    DatePatternError,
    PatternToken,
    compile_pattern,
    print_column,
    print_millis,
)
from penstock.pipeline.columns.java_text import java_class, java_class_of_value
from penstock.pipeline.columns.layout import (
    CLEAN_SCALAR,
    SCALAR,
    Layout,
    date_of_days,
    datetime_of_millis,
    logical_name,
    text_bound,
    time_of_millis,
)
from penstock.pipeline.plan.map_structs import ValueDescription, members_of
from penstock.pipeline.plan.step import NameColumn, Shape, SideName, StepFault
from penstock.transforms.definition import NullPointerError, StockTransform, null_replacement, pair, replaces_nulls
from penstock.transforms.fields import Change, FieldSelection, Nulls, OfChanges, copy_basics
from penstock.transforms.topics import check_date_pattern

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
    """The representation of a schema's values; raises ConnectException if it is none of a timestamp."""
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
        """Converts one value; raises NullPointerError for a text if no pattern is set."""
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
    """The representation of a schemaless value; raises DataException if it is not a timestamp."""
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


_NULL_FIELD: Final = 'The setting "field" is null'
_NO_DATE: Final = "The timestamp is too far away for a Date, which counts days in 32 bits: "


def _format(validator: Validator | None) -> Any:
    return setting(
        default="",
        validator=validator,
        doc="A SimpleDateFormat-compatible format for the timestamp. Used to generate the output when type=string "
        "or used to parse the input if the input is a string.",
    )


class TimestampConverterConfig(AbstractConfig):
    """The settings of ``TimestampConverter``. The transform itself rejects a wrong pattern, with Java's message."""

    field: str | None = setting(
        default="",
        importance=Importance.HIGH,
        doc="The field containing the timestamp, or empty if the entire value is a timestamp",
    )
    target_type: str = setting(
        validator=ValidString(STRING, UNIX, DATE, TIME, TIMESTAMP),
        importance=Importance.HIGH,
        doc="The desired timestamp representation: string, unix, Date, Time, or Timestamp",
    )
    format: str | None = _format(None)
    unix_precision: str = setting(
        default="milliseconds",
        validator=ValidString(*PRECISIONS),
        importance=Importance.LOW,
        doc="The desired Unix precision for the timestamp: seconds, milliseconds, microseconds, or nanoseconds. "
        "Used to generate the output when type=unix or used to parse the input if the input is a Long."
        "Note: This SMT will cause precision loss during conversions from, and to, values with sub-millisecond "
        "components.",
    )
    replace_null_with_default: bool | None = null_replacement()


class _Checked(TimestampConverterConfig):
    """The same settings with a check of the pattern, for validation."""

    format: str | None = _format(LambdaValidator(check_date_pattern))


@dataclass(frozen=True)
class Converting(Change):
    """Converts a timestamp to another representation."""

    conversion: Conversion

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        return self.conversion.layout

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        try:
            kind, wrong = kind_of(schema), misfit(schema)
        except ConnectException as error:
            return F.lit(None), [StepFault(None, str(error), error.java_name)]
        if wrong is not None:
            return F.lit(None), [StepFault(column.isNotNull(), wrong, DataException.java_name)]
        raw = self.conversion.to_millis(column, kind)
        millis = keep(raw.column)
        made = keep(self.conversion.from_millis(millis, keep))
        faults = []
        if raw.problem is not None:
            faults.append(StepFault(raw.problem.isNotNull(), raw.problem, raw.exception))
        elif kind == STRING:
            unread = self.conversion.unread(column, millis)
            faults.append(StepFault(unread.isNotNull(), unread, DataException.java_name))
        if self.conversion.target == DATE:
            message = F.concat(F.lit(_NO_DATE), millis.cast("string"), F.lit(" ms"))
            faults.append(StepFault(millis.isNotNull() & made.isNull(), message, DataException.java_name))
        return made, faults

    def member(self, known: ValueDescription | None) -> ValueDescription:
        kind = Type.STRING if self.conversion.target == STRING else Type.INT64
        return ValueDescription(Schema(kind, optional=True), self.conversion.layout)

    def value(self, schema: Schema | None, value: object) -> object:
        if schema is not None:
            return self.conversion.convert(value, kind_of(schema))
        return None if value is None else self.conversion.convert(value, inferred(value))


class Unnamed(Change):
    """An error for all values if the setting "field" is null."""

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        return physical

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        return column, [StepFault(column.isNotNull(), _NULL_FIELD, NullPointerError.java_name)]

    def member(self, known: ValueDescription | None) -> ValueDescription:
        return known or ValueDescription.of(Type.STRING)

    def value(self, schema: Schema | None, value: object) -> object:
        raise NullPointerError(_NULL_FIELD)


@dataclass(frozen=True)
class Convert(OfChanges):
    """Converts a key or value, or a field of it."""

    side: SideName
    name: str | None
    conversion: Conversion
    defaults: bool
    purpose: ClassVar[str] = "converting timestamp formats"
    nulls: ClassVar[Nulls] = Nulls.CHANGE

    @cached_property
    def whole(self) -> Change | None:
        if self.name is None:
            return Unnamed()
        return Converting(self.conversion) if not self.name else None

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        return {self.name: Converting(self.conversion)} if self.name else {}

    def updated(self, schema: Schema) -> Schema:
        if self.name is None:
            raise NullPointerError(_NULL_FIELD)
        if not self.name:
            kind_of(schema)
            return schema_of(self.conversion.target, optional=schema.optional)
        builder = copy_basics(schema, SchemaBuilder.struct())
        for one in schema.fields:
            converted = schema_of(self.conversion.target, optional=one.schema.optional)
            builder.field(one.name, converted if one.name == self.name else one.schema)
        if schema.optional:
            builder.optional()
        if isinstance(schema.default, Struct):
            made = FieldSelection(builder.build(), self.picks(schema), self.defaults, checked=False).struct(
                schema.default
            )
            builder.default_value(made)
        return builder.build()

    def takes(self, shape: Shape) -> bool:
        """Without a schema only texts and whole numbers, and only if they become texts or numbers."""
        known = shape.side(self.side)
        if known.is_variant:
            return False
        if known.schema is not None or known.absent or self.name is None:
            return True
        stays_schemaless = self.conversion.target in (STRING, UNIX)
        if known.is_object:
            found = members_of(known).get(self.name)
            return stays_schemaless and bool(self.name) and (found is None or self._reads(found.schema))
        assert known.carrier is not None, "values of one kind have a carrier"
        return bool(self.name) or (stays_schemaless and self._reads(known.carrier))

    def _reads(self, schema: Schema) -> bool:
        return schema.type is Type.INT64 or (schema.type is Type.STRING and self.conversion.parser is not None)


class _TimestampConverter(StockTransform[TimestampConverterConfig]):
    """Converts a field, or the whole key or value, to another representation of a timestamp."""

    settings = TimestampConverterConfig

    def __init__(self, clock: Callable[[], float] = system_time.time) -> None:
        self._clock = clock

    def config(self) -> ConfigDef:
        return _Checked.definition()

    def define(self, config: TimestampConverterConfig) -> Convert:
        conversion = self._conversion(config.target_type, config.unix_precision, config.format or "")
        return Convert(self.side, config.field, conversion, replaces_nulls(config.replace_null_with_default))

    def _conversion(self, target: str, precision: str, pattern: str) -> Conversion:
        if not pattern.strip():
            if target == STRING:
                raise ConfigException(
                    "TimestampConverter requires format option to be specified when using string timestamps"
                )
            return Conversion(target, precision, None)
        try:
            tokens = compile_pattern(pattern)
        except DatePatternError as error:
            name = f"TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: {pattern}"
            raise ConfigException(name, f"{error.java_name}: {error}") from error
        short = any(token.letter in "yY" and token.count <= 2 for token in tokens if token.letter)
        return Conversion(target, precision, self._parser(pattern) if short else DateParser(pattern))

    def _parser(self, pattern: str) -> DateParser:
        """The parser; two-digit years lie between 80 years ago and 20 years ahead."""
        today = datetime.fromtimestamp(self._clock(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        day = 28 if (today.month, today.day) == (2, 29) else today.day
        start = today.replace(year=today.year - CENTURY, day=day)
        return DateParser(pattern, int(start.timestamp()) * 1000, start.year)


TimestampConverterKey, TimestampConverterValue = pair(_TimestampConverter)
