"""``infer_schema``: the schema a Python value seems to have.

Owning thread: none; pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.data.builder import SchemaBuilder
from penstock.data.far_moments import FarMoment
from penstock.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT64_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Schema,
    Type,
)
from penstock.data.structs import Struct
from penstock.errors import SchemaBuilderException

_INT64_LIMIT: Final = 1 << 63


def infer_schema(value: object) -> Schema | None:
    """The schema of a value, or None where there is none to infer.

    None for null, for empty lists and dicts, for elements of different types, and for numbers and dates that Connect
    has only with a schema (Decimal, date, time, datetime, integers beyond 64 bits). An int is INT64 and a float
    FLOAT64; a subclass may say otherwise with a class attribute ``connect_type``.

    Raises:
        SchemaBuilderException: A list or dict holds nothing but nulls.

    >>> infer_schema([1, None])._value_schema
    <Schema{INT64}>
    >>> infer_schema([1, "a"]) is None
    True

    Source: org.apache.kafka.connect.data.Values.inferSchema.
    """
    match value:
        case str():
            return STRING_SCHEMA
        case bool():
            return BOOLEAN_SCHEMA
        case FarMoment():
            return None
        case int():
            return _number(value, INT64_SCHEMA) if -_INT64_LIMIT <= value < _INT64_LIMIT else None
        case float():
            return _number(value, FLOAT64_SCHEMA)
        case bytes() | bytearray() | memoryview():
            return BYTES_SCHEMA
        case list() if value:
            found = _common(value)
            return None if found is None else SchemaBuilder.array(_element(*found)).build()
        case dict() if value:
            keys, items = _common(value), _common(value.values())
            if keys is None or items is None:
                return None
            return SchemaBuilder.map(_element(*keys), _element(*items)).build()
        case Struct():
            return value.schema
        case _:
            return None


def _number(value: int | float, usual: Schema) -> Schema | None:
    kind: Type | None = getattr(type(value), "connect_type", usual.type)
    if kind is usual.type:
        return usual
    return None if kind is None else Schema(kind)


def _common(values: Iterable[object]) -> tuple[Type | None, bool] | None:
    """The one type of all values that are not null, and whether there is a null; None when there is no such type."""
    kind: Type | None = None
    optional = False
    for value in values:
        if value is None:
            optional = True
            continue
        schema = infer_schema(value)
        if schema is None or (kind is not None and kind is not schema.type):
            return None
        kind = schema.type
    return kind, optional


def _element(kind: Type | None, optional: bool) -> Schema:
    if kind is None:
        raise SchemaBuilderException("type cannot be null")
    # As in Java, only the type is kept: the elements of nested arrays have no element schema.
    return Schema(kind, optional=optional)
