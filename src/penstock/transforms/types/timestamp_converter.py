"""TimestampConverter: converts a field, or the whole key or value, to another representation of a timestamp.

Classes ``TimestampConverterKey`` and ``TimestampConverterValue``. Text follows patterns of ``SimpleDateFormat``, as
leniently as in Java (``penstock.pipeline.columns.java_dates``). Everything is Spark expressions; no Python code runs
for a record of a plan.
Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.TimestampConverter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as F

from penstock.config import AbstractConfig, ConfigDef, Importance, LambdaValidator, Validator, ValidString, setting
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.errors import ConfigException, ConnectException, DataException
from penstock.pipeline.columns.java_dates import DateParser, DatePatternError, compile_pattern
from penstock.pipeline.columns.java_dates.parsing import CENTURY
from penstock.pipeline.columns.layout import Layout
from penstock.pipeline.plan.map_structs import ValueDescription, members_of
from penstock.pipeline.plan.step import NameColumn, Shape, SideName, StepFault
from penstock.transforms.definition import StockTransform, null_replacement, pair, replaces_nulls
from penstock.transforms.fields.definition import Nulls, OfChanges
from penstock.transforms.fields.requirements import NullPointerError
from penstock.transforms.fields.selection import Change, FieldSelection, copy_basics
from penstock.transforms.topics.timestamp_router import check_date_pattern
from penstock.transforms.types.timestamp_formats import (
    DATE,
    PRECISIONS,
    STRING,
    TIME,
    TIMESTAMP,
    UNIX,
    Conversion,
    inferred,
    kind_of,
    misfit,
    schema_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

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
        """See ``Change``."""
        return self.conversion.layout

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        """See ``Change``."""
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
        """See ``Change``."""
        kind = Type.STRING if self.conversion.target == STRING else Type.INT64
        return ValueDescription(Schema(kind, optional=True), self.conversion.layout)

    def value(self, schema: Schema | None, value: object) -> object:
        """See ``Change``."""
        if schema is not None:
            return self.conversion.convert(value, kind_of(schema))
        return None if value is None else self.conversion.convert(value, inferred(value))


class Unnamed(Change):
    """An error for all values if the setting "field" is null."""

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        """See ``Change``."""
        return physical

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        """See ``Change``."""
        return column, [StepFault(column.isNotNull(), _NULL_FIELD, NullPointerError.java_name)]

    def member(self, known: ValueDescription | None) -> ValueDescription:
        """See ``Change``."""
        return known or ValueDescription.of(Type.STRING)

    def value(self, schema: Schema | None, value: object) -> object:
        """See ``Change``."""
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
        """See ``OfChanges``."""
        if self.name is None:
            return Unnamed()
        return Converting(self.conversion) if not self.name else None

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        """See ``OfChanges``."""
        return {self.name: Converting(self.conversion)} if self.name else {}

    def updated(self, schema: Schema) -> Schema:
        """See ``OfChanges``."""
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
        """See ``Step``. Without a schema only texts and whole numbers, and only if they become texts or numbers."""
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
    settings = TimestampConverterConfig

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
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
