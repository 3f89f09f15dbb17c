"""TimestampConverter: changes how a field, or the whole key or value, writes a moment.

Classes ``TimestampConverterKey`` and ``TimestampConverterValue``. Text goes by the patterns of ``SimpleDateFormat``, as
leniently as in Java (``penstock.pipeline.java_dates``); all of it is Spark expressions, nothing runs in Python.
Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: org.apache.kafka.connect.transforms.TimestampConverter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as F

from penstock.api import Transformation
from penstock.api.transform import R
from penstock.config import (
    AbstractConfig,
    ConfigDef,
    Importance,
    LambdaValidator,
    Validator,
    ValidString,
    setting,
)
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.errors import ConfigException, ConnectException, DataException
from penstock.pipeline.java_dates import DateParser, DatePatternError, compile_pattern
from penstock.pipeline.java_dates.parsing import CENTURY
from penstock.pipeline.objects import Member, members_of, object_column, object_side
from penstock.pipeline.step import Bag, ColumnTransform, Fault, Keep, Made, Shape, Side, SideName, Split, Step, StepPlan
from penstock.pipeline.types import Form, Physical, spark_type
from penstock.transforms.requirements import NullPointerError, is_struct, java_class, no_struct, require_map
from penstock.transforms.settings import null_replacement, replaces_nulls
from penstock.transforms.sides import Demand, copy_basics, side_of, with_side
from penstock.transforms.struct_copies import copied_layout, field_column, field_value, filled, required_fault
from penstock.transforms.timestamp_formats import (
    DATE,
    PRECISIONS,
    STRING,
    TIME,
    TIMESTAMP,
    UNIX,
    Conversion,
    Converted,
    inferred,
    kind_of,
    misfit,
    schema_of,
)
from penstock.transforms.timestamp_router import check_date_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column

_PURPOSE: Final = "converting timestamp formats"
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
    """The settings of ``TimestampConverter``, which refuses a wrong pattern itself, with Java's message."""

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
    """The same with a check of the pattern, for validation."""

    format: str | None = _format(LambdaValidator(check_date_pattern))


@lru_cache(maxsize=256)
def converted_schema(schema: Schema, name: str, conversion: Conversion, defaults: bool) -> Schema:
    """The schema of a struct with one field converted.

    Raises:
        ConnectException: its default cannot be converted.
    """
    builder = copy_basics(schema, SchemaBuilder.struct())
    for one in schema.fields:
        converted = schema_of(conversion.target, optional=one.schema.optional) if one.name == name else one.schema
        builder.field(one.name, converted)
    if schema.optional:
        builder.optional()
    if isinstance(schema.default, Struct):
        values = _converted_values(schema.default, name, conversion, defaults)
        builder.default_value(Struct.unchecked(builder.build(), values))
    return builder.build()


def _converted_values(struct: Struct, name: str, conversion: Conversion, defaults: bool) -> list[object]:
    values = [field_value(struct, one, defaults=defaults) for one in struct.schema.fields]
    for one in struct.schema.fields:
        if one.name == name:
            values[one.index] = conversion.convert(values[one.index], kind_of(one.schema))
    return values


@dataclass(frozen=True)
class Convert(Step):
    """Converts one side."""

    side: SideName
    name: str | None
    conversion: Conversion
    defaults: bool
    bounds_text: ClassVar[bool] = True

    @property
    def _demand(self) -> Demand:
        return Demand(_PURPOSE, self.side)

    def takes(self, shape: Shape) -> bool:
        """See ``Step``. Without a schema only texts and whole numbers that become texts or numbers."""
        known = shape.side(self.side)
        if known.is_variant:
            return False
        if known.schema is not None or known.absent or self.name is None:
            return True
        if known.is_object:
            found = members_of(known).get(self.name) if self.name else None
            return self._stays_schemaless and bool(self.name) and (found is None or self._reads(found.schema))
        assert known.carrier is not None, "values of one kind have a carrier"
        return bool(self.name) or (self._stays_schemaless and self._reads(known.carrier))

    @property
    def _stays_schemaless(self) -> bool:
        return self.conversion.target in (STRING, UNIX)

    def _reads(self, schema: Schema) -> bool:
        return schema.type is Type.INT64 or (schema.type is Type.STRING and self.conversion.parser is not None)

    @property
    def _made(self) -> Member:
        """What is made of schemaless values."""
        kind = Type.STRING if self.conversion.target == STRING else Type.INT64
        return Member(Schema(kind, optional=True), self.conversion.layout)

    def plan(self, shape: Shape) -> StepPlan | Split:
        """See ``Step``."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape)
        if self.name is None:
            return self._plan_no_name(shape, known)
        if known.is_object:
            return self._plan_members(shape, known, self.name)
        if known.schema is None:
            return self._plan_kind(shape, known)
        if not self.name:
            return self._plan_whole(shape, known, known.schema)
        return self._plan_struct(shape, known, known.schema, self.name)

    def _converted(self, keep: Keep, column: Column, schema: Schema) -> tuple[Column, list[Fault]]:
        """A column with schema converted, and what can go wrong."""
        wrong = misfit(schema)
        if wrong is not None:
            return F.lit(None), [Fault(column.isNotNull(), wrong, DataException.java_name)]
        kind = kind_of(schema)
        raw = self.conversion.to_millis(column, kind)
        return self._from_raw(keep, column if kind == STRING else None, raw)

    def _from_raw(self, keep: Keep, text: Column | None, raw: Converted) -> tuple[Column, list[Fault]]:
        millis = keep(raw.column)
        made = keep(self.conversion.from_millis(millis, keep))
        faults = []
        if raw.problem is not None:
            faults.append(Fault(raw.problem.isNotNull(), raw.problem, raw.exception))
        elif text is not None:
            unread = self.conversion.unread(text, millis)
            faults.append(Fault(unread.isNotNull(), unread, DataException.java_name))
        if self.conversion.target == DATE:
            message = F.concat(F.lit(_NO_DATE), millis.cast("string"), F.lit(" ms"))
            faults.append(Fault(millis.isNotNull() & made.isNull(), message, DataException.java_name))
        return made, faults

    # ------------------------------------------------------------------ with schema
    def _plan_whole(self, shape: Shape, known: Side, schema: Schema) -> StepPlan:
        kind_of(schema)
        names = frozenset({self.side})
        converted = schema_of(self.conversion.target, optional=schema.optional)
        side = Side.of(converted, self.conversion.layout, present=known.present)

        def make(bag: Bag, keep: Keep) -> Made:
            column, faults = self._converted(keep, bag.side(self.side), schema)
            return Made({self.side: column}, faults)

        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_struct(self, shape: Shape, known: Side, before: Schema, name: str) -> StepPlan:
        if not is_struct(known):
            return self._no_struct(shape, before)
        schema = converted_schema(before, name, self.conversion, self.defaults)
        layouts = [
            self.conversion.layout if one.name == name else copied_layout(one, child, defaults=self.defaults)
            for one, child in zip(before.fields, known.physical.children, strict=True)
        ]
        side = Side.of(schema, Physical(Form.STRUCT, tuple(layouts)), present=known.present, complete=known.complete)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            columns: list[Column] = []
            faults: list[Fault] = []
            for one, child in zip(before.fields, known.physical.children, strict=True):
                column = field_column(value, one, child, defaults=self.defaults)
                if one.name == name:
                    column, faults = self._field(keep, value, column, one.schema)
                columns.append(column.alias(one.name))
            struct = F.struct(*columns)
            required = required_fault(
                value, [(one.name, one) for one in before.fields], defaults=self.defaults, complete=known.complete
            )
            whole = struct if known.present else F.when(value.isNotNull(), struct)
            return Made({self.side: whole}, faults if required is None else [*faults, required])

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _field(self, keep: Keep, value: Column, column: Column, schema: Schema) -> tuple[Column, list[Fault]]:
        try:
            kind_of(schema)
        except ConnectException as error:
            return F.lit(None), [Fault(value.isNotNull(), str(error), error.java_name)]
        made, faults = self._converted(keep, column, schema)
        return made, faults

    def _no_struct(self, shape: Shape, schema: Schema) -> StepPlan:
        def make(bag: Bag, keep: Keep) -> Made:
            message = f"{no_struct(_PURPOSE)}{java_class(schema)}"
            column = bag.side(self.side)
            exception = DataException.java_name
            listed = Fault(column.isNull(), "Cannot list fields on non-struct type", exception)
            return Made(faults=[Fault(column.isNotNull(), message, exception), listed])

        return StepPlan(shape, make, frozenset({self.side}))

    # ------------------------------------------------------------------ without
    def _plan_members(self, shape: Shape, known: Side, name: str) -> StepPlan:
        before = members_of(known)
        converted = self._made
        side = object_side({**before, name: converted}, present=known.present)

        def make(bag: Bag, keep: Keep) -> Made:
            value = bag.side(self.side)
            columns = {one: value.getField(one) for one in before}
            faults: list[Fault] = []
            if name in before:
                columns[name], faults = self._converted(keep, columns[name], before[name].schema)
            else:
                columns[name] = F.lit(None).cast(spark_type(converted.schema))
            return Made({self.side: object_column(value, known, columns)}, faults)

        names = frozenset({self.side})
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_kind(self, shape: Shape, known: Side) -> StepPlan | Split:
        """Values of one kind, which are no maps."""
        unfit = self._demand.unfit(shape, null_passes=True)
        carrier = known.carrier
        assert unfit is not None, "maps do not come here"
        assert carrier is not None, "nor do values of mixed kinds"
        if self.name:
            return unfit

        def make(bag: Bag, keep: Keep) -> Made:
            column, faults = self._converted(keep, bag.side(self.side), carrier)
            return Made({self.side: column}, faults)

        names = frozenset({self.side})
        side = Side(None, self._made.physical, self._made.schema)
        return StepPlan(shape.with_side(self.side, side), make, names, names)

    def _plan_no_name(self, shape: Shape, known: Side) -> StepPlan:
        if known.schema is not None:
            raise NullPointerError(_NULL_FIELD)

        def make(bag: Bag, keep: Keep) -> Made:
            return Made(faults=[Fault(bag.side(self.side).isNotNull(), _NULL_FIELD, NullPointerError.java_name)])

        return StepPlan(shape, make, frozenset({self.side}))


class _TimestampConverter(ColumnTransform, Transformation):
    side: ClassVar[SideName]
    _field: str | None = ""
    _conversion: Conversion
    _defaults: bool = True

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def configure(self, props: Mapping[str, object]) -> None:
        config = TimestampConverterConfig.parse(props)
        self._field, self._defaults = config.field, replaces_nulls(config.replace_null_with_default)
        target, precision, pattern = config.target_type, config.unix_precision, config.format or ""
        if not pattern.strip():
            if target == STRING:
                raise ConfigException(
                    "TimestampConverter requires format option to be specified when using string timestamps"
                )
            self._conversion = Conversion(target, precision, None)
            return
        try:
            tokens = compile_pattern(pattern)
        except DatePatternError as error:
            name = f"TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: {pattern}"
            raise ConfigException(name, f"{error.java_name}: {error}") from error
        short = any(token.letter in "yY" and token.count <= 2 for token in tokens if token.letter)
        self._conversion = Conversion(target, precision, self._parser(pattern) if short else DateParser(pattern))

    def _parser(self, pattern: str) -> DateParser:
        """The parser; years of two digits lie within 80 years before and 20 years after now."""
        today = datetime.fromtimestamp(self._clock(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        day = 28 if (today.month, today.day) == (2, 29) else today.day
        start = today.replace(year=today.year - CENTURY, day=day)
        return DateParser(pattern, int(start.timestamp()) * 1000, start.year)

    def config(self) -> ConfigDef:
        return _Checked.definition()

    def step(self) -> Step:
        return Convert(self.side, self._field, self._conversion, self._defaults)

    def apply(self, record: R) -> R:
        """The same for one record, for callers outside of a pipeline."""
        schema, value = side_of(record, self.side)
        if schema is None:
            return with_side(record, self.side, None, self._schemaless(value))
        if self._field is None:
            raise NullPointerError(_NULL_FIELD)
        if not self._field:
            converted = self._conversion.convert(value, kind_of(schema))
            return with_side(record, self.side, schema_of(self._conversion.target, optional=schema.optional), converted)
        if value is not None and not isinstance(value, Struct):
            raise DataException(f"{no_struct(_PURPOSE)}{java_class(schema)}")
        updated = converted_schema(schema, self._field, self._conversion, self._defaults)
        if isinstance(value, Struct):
            values = _converted_values(value, self._field, self._conversion, self._defaults)
            value = filled(updated, values)
        return with_side(record, self.side, updated, value)

    def _schemaless(self, value: object) -> object:
        if value is None:
            return None
        if self._field is None:
            raise NullPointerError(_NULL_FIELD)
        if not self._field:
            return self._conversion.convert(value, inferred(value))
        changed = dict(require_map(value, _PURPOSE))
        old = changed.get(self._field)
        changed[self._field] = None if old is None else self._conversion.convert(old, inferred(old))
        return changed


class TimestampConverterKey(_TimestampConverter):
    """TimestampConverter on the key."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.TimestampConverter$Key"
    side: ClassVar[SideName] = "key"


class TimestampConverterValue(_TimestampConverter):
    """TimestampConverter on the value."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.transforms.TimestampConverter$Value"
    side: ClassVar[SideName] = "value"
