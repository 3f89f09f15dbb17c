"""Transforms that change the type or the schema of a key, a value or its fields: Cast and SetSchemaMetadata.

Cast follows Java: integers wrap; floats saturate at the limits of int64 or int32 and then wrap to narrower types;
strings are parsed as by ``parseInt`` and ``parseDouble``; numbers print as in Java.

Thread: configured once; ``step`` and ``apply`` on a pipeline thread.
Source: Cast and SetSchemaMetadata of org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

import base64
import decimal
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final, cast

from pyspark.sql import functions as F

from penstock.api.transform import R
from penstock.config import AbstractConfig, Importance, LambdaValidator, setting
from penstock.data import (
    Date,
    Decimal,
    FarMoment,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
    java_double,
    java_float,
)
from penstock.data.text import MILLIS_PER_DAY, Float32, java_decimal, nearest_float32, round_to_float32
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns import expressions
from penstock.pipeline.columns.date_parsing import ascii_digits_column
from penstock.pipeline.columns.expressions import apart, rare
from penstock.pipeline.columns.java_dates import compile_pattern, print_column, print_millis
from penstock.pipeline.columns.java_text import java_class_of_value
from penstock.pipeline.columns.layout import CLEAN_SCALAR, Layout, LayoutKind, logical_name
from penstock.pipeline.plan.frame_values import java_text
from penstock.pipeline.plan.map_structs import ValueDescription
from penstock.pipeline.plan.step import NameColumn, Shape, Side, SideName, StepFault, StepPlan, unnamed
from penstock.transforms.definition import StockTransform, null_replacement, pair, replaces_nulls
from penstock.transforms.fields import (
    NO_FIELDS,
    Change,
    FieldSelection,
    Nulls,
    OfChanges,
    OfFields,
    copy_basics,
    side_of,
    with_side,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


SUPPORTED: Final = "INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING"
INPUTS: Final = frozenset(
    (
        Type.INT8,
        Type.INT16,
        Type.INT32,
        Type.INT64,
        Type.FLOAT32,
        Type.FLOAT64,
        Type.BOOLEAN,
        Type.STRING,
        Type.BYTES,
    )
)
OUT_OF_RANGE: Final = "was out of range for requested data type"
NO_BYTES: Final = "Unexpected type in Cast transformation: class [B"
WIDTHS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
SPARK_TYPES: Final = {
    Type.INT8: "tinyint",
    Type.INT16: "smallint",
    Type.INT32: "int",
    Type.INT64: "bigint",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
}
TIME: Final = compile_pattern("HH:mm:ss.SSS'Z'")
DATE: Final = compile_pattern("yyyy-MM-dd")
TIMESTAMP: Final = compile_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_FLOATS: Final = frozenset((Type.FLOAT32, Type.FLOAT64))
_WIDE: Final = "decimal(38,0)"


def no_input(kind: str) -> str:
    """Returns the error message for a type that cannot be cast."""
    return f"Cast transformation does not support casting from {kind}; supported types are [{SUPPORTED}, BYTES]"


@dataclass(frozen=True)
class Casted:
    """A column of the new type, and the error of each value (null = no error); None = no value has an error."""

    column: Column
    problem: Column | None = None


def casted_layout(schema: Schema, physical: Layout, target: Type) -> Layout:
    """The layout of ``cast_typed``: strings keep theirs; the text of other values needs no escapes."""
    return CLEAN_SCALAR if target is not Type.STRING or schema.type is not Type.STRING else physical


def cast_typed(column: Column, schema: Schema, physical: Layout, target: Type, keep: NameColumn = unnamed) -> Casted:
    """Casts a column with a schema. The input column is used several times.

    ``keep`` names expensive expressions, which each use of a struct field would otherwise compute again.
    """
    kind = SPARK_TYPES[target]
    if schema.type not in INPUTS:
        return _refused(column, kind, no_input(schema.type.name))
    logical = logical_name(schema)
    if logical == Decimal.LOGICAL_NAME:
        casted = _from_decimal(column, schema, physical, target)
        return Casted(keep(casted.column), casted.problem)
    if logical is not None and target is Type.STRING:
        millis = column.cast("bigint")
        return Casted(keep(moment_text(millis * F.lit(MILLIS_PER_DAY) if logical == Date.LOGICAL_NAME else millis)))
    match schema.type:
        case Type.STRING:
            return _from_text(column, target, keep)
        case Type.BYTES:
            return Casted(F.base64(column)) if target is Type.STRING else _refused(column, kind, NO_BYTES)
        case Type.BOOLEAN:
            if target in (Type.STRING, Type.BOOLEAN):
                return Casted(column.cast(kind))
            return Casted(column.cast("int").cast(kind))
        case _:
            return Casted(_from_number(column, schema.type, target))


def _refused(column: Column, kind: str, message: str) -> Casted:
    return Casted(F.lit(None).cast(kind), F.when(column.isNotNull(), F.lit(message)))


def moment_text(millis: Column) -> Column:
    """The text of a date by its value: below one day a time, whole days a date, otherwise both."""

    def text(moment: Column) -> Column:
        return (
            F.when(moment < MILLIS_PER_DAY, print_column(TIME, moment))
            .when(moment % MILLIS_PER_DAY == 0, print_column(DATE, moment))
            .otherwise(print_column(TIMESTAMP, moment))
        )

    return F.when(millis.isNotNull(), apart(millis, text))


def _from_number(column: Column, source: Type, target: Type) -> Column:
    if source is target:
        return column
    if target is Type.STRING or target in _FLOATS:
        return column.cast(SPARK_TYPES[target])
    if source in _FLOATS:
        if target is Type.BOOLEAN:
            return ~F.isnan(column) & (F.abs(column) >= 1)
        return _narrowed(_whole_column(column, target), target)
    if target is Type.BOOLEAN:
        return column != 0
    if WIDTHS[target] >= WIDTHS[source]:
        return column.cast(SPARK_TYPES[target])
    return _narrowed(column.cast("bigint"), target)


def _narrowed(number: Column, target: Type) -> Column:
    """The lowest bits of a bigint."""
    spare = 64 - WIDTHS[target]
    wrapped = number if spare == 0 else F.shiftright(F.shiftleft(number, spare), spare)
    return wrapped.cast(SPARK_TYPES[target])


def _whole_column(column: Column, target: Type) -> Column:
    """A float as a bigint: saturates at the limits of int64, or of int32 for narrower targets; NaN is 0."""
    limit = 2**63 if target is Type.INT64 else 2**31
    high, low = F.lit(limit - 1).cast("bigint"), F.lit(-limit).cast("bigint")
    number = column.cast("double")
    return (
        F.when(F.isnan(number), F.lit(0).cast("bigint"))
        .when(number >= float(limit), high)
        .when(number <= float(-limit), low)
        .otherwise(number.try_cast("bigint"))
    )


def _from_text(column: Column, target: Type, keep: NameColumn) -> Casted:
    if target is Type.STRING:
        return Casted(column)
    if target is Type.BOOLEAN:
        return Casted(F.lower(column) == "true")
    made = keep(_usual_number(column, target))
    bad = column.isNotNull() & made.isNull()
    return Casted(made, F.when(bad, F.concat(F.lit("Value ("), column, F.lit(f") {OUT_OF_RANGE}"))))


def _usual_number(text: Column, target: Type) -> Column:
    """``_number_of`` without regular expressions, for the usual texts: numbers that a program has written."""
    number = text.try_cast(SPARK_TYPES[target])
    # Texts that Spark accepts and Java does not are never printed the same way again, or name infinity or NaN.
    usual = F.abs(number) < float("inf") if target in _FLOATS else number.cast("string") == text
    return F.when(usual, number).otherwise(rare(text, lambda one: _number_of(one, target)))


def _number_of(text: Column, target: Type) -> Column:
    """The number of a text in Java's syntax; null if there is none."""
    kind = SPARK_TYPES[target]
    if target in _FLOATS:
        special = F.lower(text).rlike("inf|nan")
        java = text.rlike("\\A[\\x00-\\x20]*[+-]?(?:NaN|Infinity)[\\x00-\\x20]*\\z")
        return F.when(~special | java | text.rlike("\\A[\\x00-\\x20]*[+-]?0[xX]"), text.try_cast(kind))
    digits = F.when(F.octet_length(text) == F.length(text), text).otherwise(ascii_digits_column(text))
    return F.when(digits.rlike("\\A[+-]?[0-9]+\\z"), digits.try_cast(kind))


def _from_decimal(column: Column, schema: Schema, physical: Layout, target: Type) -> Casted:
    if target is Type.STRING:
        return Casted(java_text(column, schema, physical))
    if physical.form is LayoutKind.DECIMAL:
        return Casted(_from_number_column(column, target))
    data, scale = column.getField("unscaled"), column.getField("scale")
    if target in _FLOATS:
        return Casted(expressions.java_text(data, scale).try_cast(SPARK_TYPES[target]))
    whole = expressions.low_bits(data, scale)
    return Casted(whole != 0 if target is Type.BOOLEAN else _narrowed(whole, target))


def _from_number_column(number: Column, target: Type) -> Column:
    """A decimal column as another type: truncated to an integer and wrapped, or the nearest float."""
    if target in _FLOATS:
        return number.cast("string").try_cast(SPARK_TYPES[target])
    # Java writes small fractions with an exponent; nothing comes before their point.
    plain = F.regexp_extract(number.cast("string"), "\\A(-?[0-9]*)(?:\\.[0-9]*)?\\z", 1).try_cast(_WIDE)
    whole = F.coalesce(plain, F.lit(0).cast(_WIDE))
    wrapped = F.coalesce(whole.try_cast("bigint"), apart(whole, expressions.low_bits_of_number))
    if target is Type.BOOLEAN:
        return F.when(number.isNotNull(), wrapped != 0)
    return F.when(number.isNotNull(), _narrowed(wrapped, target))


OUTPUTS: Final = INPUTS - {Type.BYTES}
_INTEGER: Final = re.compile(r"[+-]?\d+")
_FLOAT: Final = re.compile(
    r"[\x00-\x20]*([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*"
)


# ------------------------------------------------------------------------------------------------------------ settings
def parse_spec(items: Sequence[str]) -> dict[str | None, Type]:
    """Parses ``spec``: types by field name; the key None is the type of the whole value."""
    found: dict[str | None, Type] = {}
    for item in items:
        parts = item.split(":")
        # Java's split drops empty texts at the end.
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        if len(parts) > 2:
            raise ConfigException("renames", list(items), f"Invalid rename mapping: {item}")
        if len(parts) == 1:
            found[None] = _output(parts[0].strip())
        else:
            found[parts[0].strip()] = _output(parts[1].strip())
    if None in found and len(items) > 1:
        raise ConfigException(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast "
            "in their spec"
        )
    return found


def _output(text: str) -> Type:
    try:
        kind = Type[text.upper()]
    except KeyError:
        java = f"No enum constant org.apache.kafka.connect.data.Schema.Type.{text.upper()}"
        name = f"Invalid type found in casting spec: {text}"
        raise ConfigException(name, f"java.lang.IllegalArgumentException: {java}") from None
    if kind not in OUTPUTS:
        what = f"Cast transformation does not support casting to {kind.name}"
        raise ConfigException(f"{what}; supported types are [{SUPPORTED}]")
    return kind


# ------------------------------------------------------------------------------------------------------------- schemas
def cast_schema(schema: Schema, casts: tuple[tuple[str | None, Type], ...]) -> Schema:
    """The schema of cast values; raises DataException if a default cannot be cast, or there are no fields."""
    wanted = dict(casts)
    if None in wanted:
        target = wanted[None]
        builder = copy_basics(schema, SchemaBuilder.type(target))
    else:
        target = Type.STRUCT
        builder = copy_basics(schema, SchemaBuilder.struct())
        for one in schema.fields:
            kind = wanted.get(one.name)
            builder.field(one.name, one.schema if kind is None else _cast_field(one.schema, kind))
    if schema.optional:
        builder.optional()
    if schema.default is not None:
        builder.default_value(cast_value(schema, schema.default, target))
    return builder.build()


def _cast_field(schema: Schema, kind: Type) -> Schema:
    builder = SchemaBuilder.type(kind)
    if schema.optional:
        builder.optional()
    if schema.default is not None:
        builder.default_value(cast_value(schema, schema.default, kind))
    return builder.build()


# -------------------------------------------------------------------------------------------------------------- values
def cast_value(schema: Schema | None, value: object, target: Type) -> object:
    """Casts one value; raises DataException if it cannot be cast."""
    if value is None:
        return None
    made = _cast(schema, value, target)
    # The type of the value must not be lost, because no schema names it.
    return Float32(made) if schema is None and target is Type.FLOAT32 and isinstance(made, float) else made


_TEMPORAL: Final = (Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME)


def _cast(schema: Schema | None, value: object, target: Type) -> object:
    kind = _type_of(value) if schema is None else schema.type
    if kind not in INPUTS:
        raise DataException(no_input(kind.name))
    is_moment = isinstance(value, (datetime, date, time, FarMoment))
    if is_moment or (schema is not None and schema.name is not None and logical_name(schema) in _TEMPORAL):
        millis, raw = _moment(cast("Schema", schema), value)
        if target is Type.STRING:
            tokens = TIME if millis < MILLIS_PER_DAY else TIMESTAMP if millis % MILLIS_PER_DAY else DATE
            return print_millis(tokens, millis)
        value = raw
    match value:
        case bool():
            number: int | float | decimal.Decimal = int(value)
        case int() | float() | decimal.Decimal():
            number = value
        case str():
            return _of_text(value, target)
        case _:
            if target is Type.STRING:
                return base64.b64encode(cast("bytes", value)).decode("ascii")
            raise DataException(NO_BYTES)
    if target is Type.STRING:
        return _text(value, kind)
    return _of_number(number, target)


def _type_of(value: object) -> Type:
    for python, kind in _PYTHON_TYPES:
        if isinstance(value, python) and not isinstance(value, FarMoment):
            return kind
    raise DataException(
        f"Cast transformation was passed a value of type class {java_class_of_value(value)} "
        "which is not supported by Connect's data API"
    )


_PYTHON_TYPES: Final[tuple[tuple[type, Type], ...]] = (
    (bool, Type.BOOLEAN),
    (int, Type.INT64),
    (Float32, Type.FLOAT32),
    (float, Type.FLOAT64),
    (str, Type.STRING),
    (bytes, Type.BYTES),
    (list, Type.ARRAY),
    (dict, Type.MAP),
    (Struct, Type.STRUCT),
)


def _moment(schema: Schema, value: object) -> tuple[int, int]:
    """Milliseconds since 1970, and the stored number of the value."""
    if schema.name == Date.LOGICAL_NAME:
        days = Date.from_logical(schema, cast("date | int", value))
        return days * MILLIS_PER_DAY, days
    if schema.name == Time.LOGICAL_NAME:
        millis = int(value) if isinstance(value, int) else Time.from_logical(schema, cast("time", value))
        return millis, millis
    millis = Timestamp.from_logical(schema, cast("datetime | int", value))
    return millis, millis


def _text(value: object, kind: Type) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return java_float(value) if kind is Type.FLOAT32 else java_double(value)
        case decimal.Decimal():
            return java_decimal(value)
        case _:
            return str(value)


def _of_text(text: str, target: Type) -> object:
    if target is Type.STRING:
        return text
    if target is Type.BOOLEAN:
        return text.lower() == "true"
    if target in WIDTHS:
        number = int(text) if _INTEGER.fullmatch(text) else None
        half = 1 << (WIDTHS[target] - 1)
        if number is not None and -half <= number < half:
            return number
    else:
        double = _float_of(text)
        if double is not None:
            return round_to_float32(double) if target is Type.FLOAT32 else double
    raise DataException(f"Value ({text}) {OUT_OF_RANGE}")


def _float_of(text: str) -> float | None:
    """``Double.parseDouble``."""
    match = _FLOAT.fullmatch(text)
    if match is None:
        return None
    sign, special, plain, hexadecimal = match.groups()
    if special:
        number = math.nan if special == "NaN" else math.inf
    else:
        number = float(plain) if plain else float.fromhex(hexadecimal)
    return -number if sign == "-" else number


def _of_number(number: int | float | decimal.Decimal, target: Type) -> object:
    if target is Type.FLOAT64:
        return float(number)
    if target is Type.FLOAT32:
        return round_to_float32(number) if isinstance(number, float) else nearest_float32(number)
    if target is Type.BOOLEAN:
        return _whole(number, 64) != 0
    bits = WIDTHS[target]
    # Floats saturate at int32 before they wrap to narrower types.
    whole = _whole(number, max(32, bits))
    return (whole + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _whole(number: int | float | decimal.Decimal, bits: int) -> int:
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        limit = 1 << (bits - 1)
        return limit - 1 if number >= limit else -limit if number <= -limit else int(number)
    if isinstance(number, decimal.Decimal) and cast("int", number.as_tuple().exponent) >= 64:
        return 0  # A multiple of a power of ten is a multiple of the same power of two.
    return (int(number) + (1 << 63)) % (1 << 64) - (1 << 63)


#: Schemaless integers have 64 bits.
_SCHEMALESS: Final = {Type.INT8: Type.INT64, Type.INT16: Type.INT64, Type.INT32: Type.INT64}


def _check_spec(name: str, value: object) -> None:
    if not value:
        raise ConfigException("Must specify at least one field to cast.")
    parse_spec(cast("list[str]", value))


class CastConfig(AbstractConfig):
    """The settings of ``Cast``."""

    spec: tuple[str, ...] = setting(
        validator=LambdaValidator(_check_spec, "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"),
        importance=Importance.HIGH,
        doc="List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of Maps "
        "or Structs. A single type to cast the entire value. Valid types are int8, int16, int32, int64, float32, "
        "float64, boolean, and string. Note that binary fields can only be cast to string.",
    )
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class CastTo(Change):
    """Converts a value to another type."""

    target: Type

    def layout(self, schema: Schema, physical: Layout) -> Layout:
        return casted_layout(schema, physical, self.target)

    def column(
        self, column: Column, schema: Schema, physical: Layout, keep: NameColumn
    ) -> tuple[Column, Sequence[StepFault]]:
        casted = cast_typed(column, schema, physical, self.target, keep)
        if casted.problem is None:
            return casted.column, ()
        return casted.column, [StepFault(casted.problem.isNotNull(), casted.problem, DataException.java_name)]

    def member(self, known: ValueDescription | None) -> ValueDescription:
        schema = Schema(_SCHEMALESS.get(self.target, self.target), optional=True)
        return ValueDescription(schema, CLEAN_SCALAR if known is None else self.layout(known.schema, known.physical))

    def value(self, schema: Schema | None, value: object) -> object:
        return cast_value(schema, value, self.target)


@dataclass(frozen=True)
class Casts(OfChanges):
    """Casts a key or value, or fields of it."""

    side: SideName
    casts: tuple[tuple[str | None, Type], ...]
    defaults: bool
    purpose: ClassVar[str] = "cast types"
    schema_first: ClassVar[bool] = True

    @cached_property
    def whole(self) -> Change | None:
        return next((CastTo(kind) for name, kind in self.casts if name is None), None)

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        return {name: CastTo(kind) for name, kind in self.casts if name is not None}

    def updated(self, schema: Schema) -> Schema:
        return cast_schema(schema, self.casts)


class _Cast(StockTransform[CastConfig]):
    """Converts fields, or the whole key or value, to another primitive type, by the rules of Java."""

    settings = CastConfig

    def define(self, config: CastConfig) -> Casts:
        casts = tuple(parse_spec(config.spec).items())
        return Casts(self.side, casts, replaces_nulls(config.replace_null_with_default))


CastKey, CastValue = pair(_Cast)


_NO_SCHEMA: Final = "Schema required for [updating schema metadata]"


class SetSchemaMetadataConfig(AbstractConfig):
    """The settings of ``SetSchemaMetadata``."""

    schema_name: str | None = setting(default=None, importance=Importance.HIGH, doc="Schema name to set.")
    schema_version: int | None = setting(default=None, importance=Importance.HIGH, doc="Schema version to set.")
    replace_null_with_default: bool | None = null_replacement()


@dataclass(frozen=True)
class SetMetadata(OfFields):
    """Sets name and version of the schema of the key or value."""

    side: SideName
    name: str | None
    version: int | None
    defaults: bool
    purpose: ClassVar[str] = "updating schema metadata"
    nulls: ClassVar[Nulls] = Nulls.CHANGE
    schema_first: ClassVar[bool] = True

    def select(self, schema: Schema) -> FieldSelection:
        if schema.type is not Type.STRUCT:
            raise DataException(NO_FIELDS)
        updated = Schema(
            schema.type,
            optional=schema.optional,
            default=schema.default,
            name=schema.name if self.name is None else self.name,
            version=schema.version if self.version is None else self.version,
            doc=schema.doc,
            parameters=schema.parameters,
            fields=schema.fields,
        )
        return FieldSelection.of_all(updated, schema.fields, self.defaults)

    def unfit(self, shape: Shape) -> StepPlan | None:
        """A value without a schema is a fault of its record; a value that contradicts its schema is not."""
        known = shape.side(self.side)
        if known.absent:
            return StepPlan(shape)
        if known.schema is None:
            return self.failing(shape, _NO_SCHEMA)
        if known.physical.form is LayoutKind.STRUCT:
            return None
        schema = self.selected(known.schema).schema
        return StepPlan(shape.with_side(self.side, Side.of(schema, known.physical, present=known.present)))

    def apply(self, record: R) -> R | None:
        schema, value = side_of(record, self.side)
        if schema is None and value is not None:
            raise DataException(_NO_SCHEMA)
        if schema is None or value is None or isinstance(value, Struct):
            return super().apply(record)
        return with_side(record, self.side, self.selected(schema).schema, value)


class _SetSchemaMetadata(StockTransform[SetSchemaMetadataConfig]):
    """Gives the schema of the key or value a name, a version or both."""

    settings = SetSchemaMetadataConfig

    def define(self, config: SetSchemaMetadataConfig) -> SetMetadata:
        defaults = replaces_nulls(config.replace_null_with_default)
        if config.schema_name is None and config.schema_version is None:
            raise ConfigException("Neither schema name nor version configured")
        return SetMetadata(self.side, config.schema_name, config.schema_version, defaults)


SetSchemaMetadataKey, SetSchemaMetadataValue = pair(_SetSchemaMetadata)
