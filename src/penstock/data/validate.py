"""Does a value fit a schema? ``validate_value`` raises when it does not.

Null fits an optional schema only: a default does not make a required schema take null (``Struct.put`` and
``Struct.validate`` look at defaults themselves).

Owning thread: none; pure functions.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, Final, cast

from penstock.data.schema import Schema, Type
from penstock.errors import DataException

_RANGES: Final = {
    Type.INT8: (-(1 << 7), (1 << 7) - 1),
    Type.INT16: (-(1 << 15), (1 << 15) - 1),
    Type.INT32: (-(1 << 31), (1 << 31) - 1),
    Type.INT64: (-(1 << 63), (1 << 63) - 1),
}

#: The Python classes of each type. Integers are compared by exact class: bool is an int to Python, not to Connect.
_CLASSES: Final[dict[Type, tuple[type, ...]]] = {
    Type.FLOAT32: (float,),
    Type.FLOAT64: (float,),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list,),
    Type.MAP: (dict,),
}

_LOGICAL: Final[dict[str, Callable[[object], bool]]] = {
    "org.apache.kafka.connect.data.Decimal": lambda value: isinstance(value, decimal.Decimal),
    # A plain int is the raw number of days or milliseconds, for what datetime cannot hold.
    "org.apache.kafka.connect.data.Date": lambda value: isinstance(value, date) or type(value) is int,
    "org.apache.kafka.connect.data.Time": lambda value: isinstance(value, time) or type(value) is int,
    "org.apache.kafka.connect.data.Timestamp": lambda value: isinstance(value, datetime) or type(value) is int,
}


def validate_value(schema: Schema, value: object, name: str | None = None) -> None:
    """Checks that a value fits a schema.

    Args:
        schema: The schema.
        value: The value.
        name: Name of the field it is for; only used in the message.

    Raises:
        DataException: It does not fit, at some depth.

    >>> from penstock.data import INT8_SCHEMA
    >>> validate_value(INT8_SCHEMA, 127)
    >>> validate_value(INT8_SCHEMA, 128, "age")
    Traceback (most recent call last):
        ...
    penstock.errors.DataException: Invalid value for schema with type INT8: 128 is out of range for field: "age"

    Source: org.apache.kafka.connect.data.ConnectSchema.validateValue.
    """
    check_value(schema, value, "value" if name is None else f'field: "{name}"')


def check_value(schema: Schema, value: object, location: str) -> None:
    """As ``validate_value``, with the place spelt out: ``value`` or ``field: "age"``."""
    if value is None:
        if not schema.optional:
            raise DataException(null_refused(schema, location))
        return
    kind = schema.type
    logical = _LOGICAL.get(schema.name) if schema.name is not None else None
    if logical is not None:
        if not logical(value):
            raise _mismatch(schema, value, location)
        return
    if kind in _RANGES:
        if type(value) is not int:
            raise _mismatch(schema, value, location)
        low, high = _RANGES[kind]
        if not low <= value <= high:
            subject = f"Invalid value for schema{_named(schema)} with type {kind.name}"
            raise DataException(f"{subject}: {value} is out of range for {location}")
        return
    if kind is Type.STRUCT:
        _check_struct(schema, value, location)
        return
    if not isinstance(value, _CLASSES[kind]):
        raise _mismatch(schema, value, location)
    if kind is Type.ARRAY:
        place = f"element of array {location}"
        items = _present(schema.value_schema, place)
        for item in cast("list[object]", value):
            check_value(items, item, place)
    elif kind is Type.MAP:
        key_place, value_place = f"key of map {location}", f"value of map {location}"
        keys = _present(schema.key_schema, key_place)
        values = _present(schema.value_schema, value_place)
        for key, item in cast("dict[object, object]", value).items():
            check_value(keys, _as_value(key) if isinstance(key, tuple) else key, key_place)
            check_value(values, item, value_place)


def null_refused(schema: Schema, location: str) -> str:
    """What is said of a null where a value is required; the place as for ``check_value``."""
    return f"Invalid value: null used for required {location}, schema type: {schema.type.name}"


def _check_struct(schema: Schema, value: object, location: str) -> None:
    # Structs check their values with this module, so it can know them only once both are loaded.
    from penstock.data.structs import Struct

    if not isinstance(value, Struct):
        raise _mismatch(schema, value, location)
    if value.schema != schema:
        raise DataException("Struct schemas do not match.")
    value.validate()


def map_key(key: object) -> Any:
    """A key as a Python dict can hold it: an array, which has no hash as a list, becomes a tuple.

    Raises:
        DataException: It is a map, or holds one: nothing in Python stands for it.
    """
    if isinstance(key, (list, tuple)):
        return tuple(map(map_key, key))
    if isinstance(key, dict):
        raise DataException("A map cannot be the key of a map")
    return key


def _as_value(key: object) -> object:
    """What ``map_key`` made a tuple is an array again."""
    return [_as_value(item) for item in key] if isinstance(key, tuple) else key


def _present(schema: Schema | None, location: str) -> Schema:
    if schema is None:
        raise DataException(f"No schema defined for {location}")
    return schema


def _mismatch(schema: Schema, value: object, location: str) -> DataException:
    cls = type(value).__name__
    return DataException(
        f"Invalid value for schema{_named(schema)} with type {schema.type.name}: a Python {cls} for {location}"
    )


def _named(schema: Schema) -> str:
    return "" if schema.name is None else f' "{schema.name}"'
