"""Single values of Connect's primitive types as values of another, and the schemas that go with them.

Main functions: ``cast_value`` (a value, also the default of a schema), ``cast_schema``, ``parse_spec``.

Thread: pure functions.
Source: org.apache.kafka.connect.transforms.Cast.
"""

from __future__ import annotations

import base64
import decimal
import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Final, cast

from penstock.data import Date, Schema, SchemaBuilder, Struct, Time, Timestamp, Type, java_double, java_float
from penstock.data.text import Float32, java_decimal, nearest_float32, round_to_float32
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.java_dates import print_millis
from penstock.pipeline.columns.java_dates.arithmetic import MILLIS_PER_DAY
from penstock.pipeline.columns.types import logical_name
from penstock.transforms.cast_columns import (
    DATE,
    INPUTS,
    NO_BYTES,
    OUT_OF_RANGE,
    SUPPORTED,
    TIME,
    TIMESTAMP,
    WIDTHS,
    no_input,
)
from penstock.transforms.requirements import java_class_of_value
from penstock.transforms.selection import copy_basics

OUTPUTS: Final = INPUTS - {Type.BYTES}
_INTEGER: Final = re.compile(r"[+-]?\d+")
_FLOAT: Final = re.compile(
    r"[\x00-\x20]*([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*"
)


# ------------------------------------------------------------------------------------------------------------ settings
def parse_spec(items: Sequence[str]) -> dict[str | None, Type]:
    """What to cast to what: types by field names; the one of the name None is that of the whole value.

    Raises:
        ConfigException: an item is no cast.
    """
    found: dict[str | None, Type] = {}
    for item in items:
        parts = item.split(":")
        # Java's split leaves out empty texts at the end.
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
    """The schema of cast values.

    Raises:
        DataException: a default cannot be cast, or the schema has no fields where fields are asked for.
    """
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
    """A value as one of another type.

    Raises:
        DataException: it cannot be one.
    """
    if value is None:
        return None
    made = _cast(schema, value, target)
    # Nothing else says later what it is.
    return Float32(made) if schema is None and target is Type.FLOAT32 and isinstance(made, float) else made


def _cast(schema: Schema | None, value: object, target: Type) -> object:
    kind = _type_of(value) if schema is None else schema.type
    if kind not in INPUTS:
        raise DataException(no_input(kind.name))
    if isinstance(value, (datetime, date, time)) or (schema is not None and _is_temporal(schema)):
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
        if isinstance(value, python):
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


def _is_temporal(schema: Schema) -> bool:
    return logical_name(schema) in (Date.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME)


def _moment(schema: Schema, value: object) -> tuple[int, int]:
    """Milliseconds since 1970, and the number that carries the value."""
    if schema.name == Date.LOGICAL_NAME:
        days = Date.from_logical(schema, cast("date | int", value))
        return days * MILLIS_PER_DAY, days
    if schema.name == Time.LOGICAL_NAME:
        millis = value if isinstance(value, int) else Time.from_logical(schema, cast("time", value))
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
    # Floats stop at the limits of int32 before they are cut to less.
    whole = _whole(number, max(32, bits))
    return (whole + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _whole(number: int | float | decimal.Decimal, bits: int) -> int:
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        limit = 1 << (bits - 1)
        return limit - 1 if number >= limit else -limit if number <= -limit else int(number)
    if isinstance(number, decimal.Decimal) and cast("int", number.as_tuple().exponent) >= 64:
        return 0  # a multiple of ten to a power is one of two to this power
    return (int(number) + (1 << 63)) % (1 << 64) - (1 << 63)
