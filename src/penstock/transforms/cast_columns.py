"""Values of Connect's primitive types as values of another, as Spark columns; the rules are those of Java's casts.

Main function: ``cast_typed``.

Integers wrap, floats stop at the limits of int64 and int32 and are then wrapped to what is narrower, strings are read
as Java's ``parseInt`` and ``parseDouble`` do, numbers print as Java prints them.

Thread: pure functions that build expressions, on a pipeline thread.
Source: org.apache.kafka.connect.transforms.Cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.data import Date, Decimal, Schema, Type
from penstock.pipeline.columns import decimal_columns as decimals
from penstock.pipeline.columns.expressions import apart, rare
from penstock.pipeline.columns.java_dates import compile_pattern, print_column
from penstock.pipeline.columns.java_dates.arithmetic import MILLIS_PER_DAY
from penstock.pipeline.columns.java_dates.parsing import ascii_digits_column
from penstock.pipeline.columns.types import CLEAN_SCALAR, Form, Physical, logical_name
from penstock.pipeline.plan.java_text import java_text
from penstock.pipeline.plan.step import Keep, unnamed

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
    """Why a type cannot be cast from."""
    return f"Cast transformation does not support casting from {kind}; supported types are [{SUPPORTED}, BYTES]"


@dataclass(frozen=True)
class Casted:
    """A column of the new type, and why a value has none (null where it has); None = each has one."""

    column: Column
    problem: Column | None = None


def casted_layout(schema: Schema, physical: Physical, target: Type) -> Physical:
    """The layout of ``cast_typed``: text stays what it is, the text of all else needs no escapes."""
    return CLEAN_SCALAR if target is not Type.STRING or schema.type is not Type.STRING else physical


def cast_typed(column: Column, schema: Schema, physical: Physical, target: Type, keep: Keep = unnamed) -> Casted:
    """Casts a column with schema. The column is used several times.

    What is costly is named by ``keep``: whoever uses a field of a struct would work it out again each time.
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
    """The text of a date, by its value: below one day a time, whole days a date, else both."""

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
        return _narrowed(_whole(column, target), target)
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


def _whole(column: Column, target: Type) -> Column:
    """A float as a bigint: stops at the limits of int64, or of int32 when less is asked for; NaN is 0."""
    limit = 2**63 if target is Type.INT64 else 2**31
    high, low = F.lit(limit - 1).cast("bigint"), F.lit(-limit).cast("bigint")
    number = column.cast("double")
    return (
        F.when(F.isnan(number), F.lit(0).cast("bigint"))
        .when(number >= float(limit), high)
        .when(number <= float(-limit), low)
        .otherwise(number.try_cast("bigint"))
    )


def _from_text(column: Column, target: Type, keep: Keep) -> Casted:
    if target is Type.STRING:
        return Casted(column)
    if target is Type.BOOLEAN:
        return Casted(F.lower(column) == "true")
    made = keep(_usual_number(column, target))
    bad = column.isNotNull() & made.isNull()
    return Casted(made, F.when(bad, F.concat(F.lit("Value ("), column, F.lit(f") {OUT_OF_RANGE}"))))


def _usual_number(text: Column, target: Type) -> Column:
    """``_number_of`` without regular expressions for what nearly all texts are: numbers that a program has written."""
    number = text.try_cast(SPARK_TYPES[target])
    # What Spark reads beyond what Java does it never prints so, or it is a name of an infinity or of NaN.
    usual = F.abs(number) < float("inf") if target in _FLOATS else number.cast("string") == text
    return F.when(usual, number).otherwise(rare(text, lambda one: _number_of(one, target)))


def _number_of(text: Column, target: Type) -> Column:
    """The number a text stands for in Java, null for none."""
    kind = SPARK_TYPES[target]
    if target in _FLOATS:
        special = F.lower(text).rlike("inf|nan")
        java = text.rlike("\\A[\\x00-\\x20]*[+-]?(?:NaN|Infinity)[\\x00-\\x20]*\\z")
        return F.when(~special | java | text.rlike("\\A[\\x00-\\x20]*[+-]?0[xX]"), text.try_cast(kind))
    digits = F.when(F.octet_length(text) == F.length(text), text).otherwise(ascii_digits_column(text))
    return F.when(digits.rlike("\\A[+-]?[0-9]+\\z"), digits.try_cast(kind))


def _from_decimal(column: Column, schema: Schema, physical: Physical, target: Type) -> Casted:
    if target is Type.STRING:
        return Casted(java_text(column, schema, physical))
    if physical.form is Form.DECIMAL:
        return Casted(_from_number_column(column, target))
    data, scale = column.getField("unscaled"), column.getField("scale")
    if target in _FLOATS:
        return Casted(decimals.java_text(data, scale).try_cast(SPARK_TYPES[target]))
    whole = decimals.low_bits(data, scale)
    return Casted(whole != 0 if target is Type.BOOLEAN else _narrowed(whole, target))


def _from_number_column(number: Column, target: Type) -> Column:
    """A decimal column as another type: cut to an integer and wrapped, or the nearest float."""
    if target in _FLOATS:
        return number.cast("string").try_cast(SPARK_TYPES[target])
    # Java writes small fractions with an exponent; before their point is nothing.
    plain = F.regexp_extract(number.cast("string"), "\\A(-?[0-9]*)(?:\\.[0-9]*)?\\z", 1).try_cast(_WIDE)
    whole = F.coalesce(plain, F.lit(0).cast(_WIDE))
    wrapped = F.coalesce(whole.try_cast("bigint"), apart(whole, decimals.low_bits_of_number))
    if target is Type.BOOLEAN:
        return F.when(number.isNotNull(), wrapped != 0)
    return F.when(number.isNotNull(), _narrowed(wrapped, target))
