"""Writes single Connect values as JSON: headers, defaults of schemas, and values that columns do not support.

Main function: ``write_value``. Records go through Spark columns (``penstock.converters.json.writing``), with the same
results.

Thread: pure functions.
Source: org.apache.kafka.connect.json.JsonConverter (convertToJson).
"""

from __future__ import annotations

import base64
import decimal
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from typing import Any, ClassVar, Final

from penstock.data import Date, Decimal, FarMoment, Schema, Struct, Time, Timestamp, Type
from penstock.data.text import Float32, has_text_keys, in_order, java_decimal, java_double, java_float, json_string
from penstock.errors import DataException
from penstock.pipeline.columns.java_classes import java_class_of_value
from penstock.pipeline.columns.texts.json import NULL_REQUIRED

_NO_TYPE: Final = "does not have corresponding schema type."
#: Half of a surrogate pair, which UTF-8 cannot encode.
_HALF: Final = re.compile("[\ud800-\udfff]")
_WHOLE: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64))


def write_value(schema: Schema | None, value: Any, *, numeric: bool, defaults: bool) -> str:
    """The JSON text of one value.

    Raises:
        DataException: The value does not fit its schema, or cannot be expressed in JSON.
    """
    if value is None:
        if schema is None:
            return "null"
        if schema.default is not None and defaults:
            return write_value(schema, schema.default, numeric=numeric, defaults=defaults)
        if schema.optional:
            return "null"
        raise DataException(NULL_REQUIRED)
    if schema is not None and schema.name in _LOGICAL_WRITERS:
        return _LOGICAL_WRITERS[schema.name](schema, value, numeric)
    kind = _kind_of(value) if schema is None else schema.type
    try:
        return _write_plain(schema, kind, value, numeric, defaults)
    except (TypeError, AttributeError, ValueError) as error:
        raise DataException(f"Invalid type for {kind.name}: {type(value).__name__}") from error


def _kind_of(value: Any) -> Type:
    kinds: dict[type, Type] = {
        bool: Type.BOOLEAN,
        int: Type.INT64,
        Float32: Type.FLOAT32,
        float: Type.FLOAT64,
        str: Type.STRING,
        bytes: Type.BYTES,
        bytearray: Type.BYTES,
        memoryview: Type.BYTES,
        list: Type.ARRAY,
        tuple: Type.ARRAY,
        dict: Type.MAP,
        Struct: Type.STRUCT,
    }
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise DataException(f"Java class class java.math.BigInteger {_NO_TYPE}")
    kind = kinds.get(type(value)) or next((kind for one, kind in kinds.items() if isinstance(value, one)), None)
    if kind is None or isinstance(value, FarMoment):
        raise UntypedValueError(f"Java class class {java_class_of_value(value)} {_NO_TYPE}")
    return kind


class UntypedValueError(DataException):
    """A schemaless value has a class that JSON cannot express."""

    java_name: ClassVar[str] = DataException.java_name


def place_of_untyped(value: Any) -> str | None:
    """Returns the path of the first such value in a schemaless value, as ``a.b[2]``; None if it is the value itself.

    >>> place_of_untyped({"a": 1, "items": [{"at": date(2020, 1, 1)}]})
    'items[0].at'
    """
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, one = left.pop()
        if isinstance(one, dict):
            left += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(list(one.items()))]
        elif isinstance(one, (list, tuple)):
            left += [(f"{path}[{index}]", item) for index, item in reversed(list(enumerate(one)))]
        elif one is not None:
            try:
                _kind_of(one)
            except DataException:
                return path or None
    return None


def _write_plain(schema: Schema | None, kind: Type, value: Any, numeric: bool, defaults: bool) -> str:
    def inner(part: Schema | None, one: Any) -> str:
        return write_value(part, one, numeric=numeric, defaults=defaults)

    if kind in _WHOLE:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(value)
        return str(int(value))
    if kind is Type.BOOLEAN:
        if type(value) is not bool:
            raise TypeError(value)
        return "true" if value else "false"
    if kind in (Type.FLOAT32, Type.FLOAT64):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError(value)
        text = java_float(value) if kind is Type.FLOAT32 else java_double(value)
        return text if math.isfinite(value) else f'"{text}"'
    if kind is Type.STRING:
        return _text(value)
    if kind is Type.BYTES:
        return f'"{base64.b64encode(value).decode()}"'
    if kind is Type.ARRAY:
        item = None if schema is None else schema.value_schema
        return f"[{','.join(inner(item, one) for one in value)}]"
    if kind is Type.MAP:
        return _write_map(schema, value, inner)
    if schema is None or value.schema != schema:
        raise DataException("Mismatching schema.")
    pairs = zip(schema.fields, value.values, strict=True)
    return "{" + ",".join(f"{_text(field.name)}:{inner(field.schema, one)}" for field, one in pairs) + "}"


def _text(value: str) -> str:
    text = json_string(value)
    return text if text.isascii() else _HALF.sub(lambda found: f"\\u{ord(found[0]):04X}", text)


def _write_map(schema: Schema | None, value: Mapping[Any, Any], inner: Any) -> str:
    keys = None if schema is None else schema.key_schema
    values = None if schema is None else schema.value_schema
    if schema is None:
        as_object = has_text_keys(value)
    else:
        as_object = keys is not None and keys.type is Type.STRING
    if as_object:
        # Schemaless maps have no order of their own.
        named: Iterable[tuple[Any, Any]] = value.items() if schema is not None else in_order(dict(value))
        pairs = (f"{_text('null' if key is None else key)}:{inner(values, one)}" for key, one in named)
        return "{" + ",".join(pairs) + "}"
    return "[" + ",".join(f"[{inner(keys, key)},{inner(values, one)}]" for key, one in value.items()) + "]"


def _write_decimal(schema: Schema, value: Any, numeric: bool) -> str:
    if not isinstance(value, decimal.Decimal):
        raise DataException(f"Invalid type for Decimal, expected BigDecimal but was {type(value).__name__}")
    if numeric:
        return java_decimal(value)
    return f'"{base64.b64encode(Decimal.from_logical(schema, value)).decode()}"'


def _temporal_writer(
    logical: type[Date] | type[Time] | type[Timestamp], kind: type[date] | type[time]
) -> Callable[[Schema, Any, bool], str]:
    from_logical: Callable[[Schema, Any], int] = logical.from_logical

    def write(schema: Schema, value: Any, numeric: bool) -> str:
        if not isinstance(value, (kind, int)):
            raise DataException(f"Invalid type for {logical.__name__}, expected Date but was {type(value).__name__}")
        return str(from_logical(schema, value))

    return write


_LOGICAL_WRITERS: Final[dict[str | None, Callable[[Schema, Any, bool], str]]] = {
    Decimal.LOGICAL_NAME: _write_decimal,
    Date.LOGICAL_NAME: _temporal_writer(Date, date),
    Time.LOGICAL_NAME: _temporal_writer(Time, time),
    Timestamp.LOGICAL_NAME: _temporal_writer(Timestamp, datetime),
}
