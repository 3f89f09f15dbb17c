"""The Spark types for reading the values of a schema from JSON.

Integers are read as Spark's widest type and then checked, so that an integer that is too large for its field is an
error and not null; decimals keep their original scale.

Main functions: ``layout_of`` (a schema's layout), ``widened`` and ``in_range`` (types and their ranges),
``lenient_numbers`` (the required way to parse numbers). Thread: any; pure, and columns are built without a job.
Source: org.apache.kafka.connect.json.JsonConverter, TO_CONNECT_CONVERTERS and LOGICAL_CONVERTERS.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from operator import and_
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.converters.json.spark.parsing import Numbers
from penstock.data import Schema, Type
from penstock.pipeline.columns.layout import (
    SCALAR,
    UNSCALED,
    Layout,
    LayoutKind,
    default_physical,
    has_plain_keys,
    is_decimal,
)
from penstock.pipeline.columns.nesting import anywhere

if TYPE_CHECKING:
    from pyspark.sql import Column

_BITS_OF: Final = {"byte": 8, "short": 16, "integer": 32}


@lru_cache(maxsize=1024)
def layout_of(schema: Schema | None) -> Layout:
    """The layout of read values: decimals keep their original scale."""
    if schema is None:
        return default_physical(None)
    if is_decimal(schema):
        return UNSCALED
    match schema.type:
        case Type.ARRAY:
            return Layout(LayoutKind.ARRAY, (layout_of(schema.value_schema),))
        case Type.MAP:
            form = LayoutKind.MAP if has_plain_keys(schema) else LayoutKind.ENTRIES
            return Layout(form, (layout_of(schema.key_schema), layout_of(schema.value_schema)))
        case Type.STRUCT:
            return Layout(LayoutKind.STRUCT, tuple(layout_of(field.schema) for field in schema.fields))
        case _:
            return SCALAR


def widened(kind: T.DataType) -> T.DataType:
    """A wider type for the first read of numbers: doubles for floats, as in Java, and 64 bits for all integers.

    In a struct that Spark makes of a VARIANT, an integer that is too large for its field would become null.
    """
    match kind:
        case T.FloatType():
            return T.DoubleType()
        case T.ByteType() | T.ShortType() | T.IntegerType():
            return T.LongType()
        case T.ArrayType():
            return T.ArrayType(widened(kind.elementType), kind.containsNull)
        case T.StructType():
            return T.StructType([T.StructField(one.name, widened(one.dataType), one.nullable) for one in kind])
        case _:
            return kind


def in_range(column: Column, kind: T.DataType) -> Column | None:
    """True if no integer of a widened value is too large for its type; None if there are no such integers."""
    match kind:
        case T.ByteType() | T.ShortType() | T.IntegerType():
            half = 1 << (_BITS_OF[kind.typeName()] - 1)
            return column.isNull() | column.between(F.lit(-half), F.lit(half - 1))
        case T.ArrayType():
            element = kind.elementType
            if not _has_narrow_integers(element):
                return None
            return column.isNull() | F.forall(column, lambda item: cast("Column", in_range(item, element)))
        case T.StructType():
            parts = [found for one in kind if (found := in_range(column.getField(one.name), one.dataType)) is not None]
            return reduce(and_, parts) if parts else None
        case _:
            return None


def _has_narrow_integers(kind: T.DataType) -> bool:
    """True if ``in_range`` returns a column."""
    if isinstance(kind, T.ArrayType):
        return _has_narrow_integers(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(_has_narrow_integers(one.dataType) for one in kind)
    return isinstance(kind, (T.ByteType, T.ShortType, T.IntegerType))


def lenient_numbers(schema: Schema | None) -> Numbers:
    """Returns how a schema needs numbers to be parsed: decimals need their text, with the scale."""
    if schema is None:
        return "schemaless"
    return "text" if anywhere(schema, is_decimal) else "typed"
