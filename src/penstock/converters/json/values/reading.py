"""Converts parsed JSON to single Connect values by Java's lenient rules: headers, and defaults of schemas.

Main functions: ``read_value``; ``denied_type`` finds schemas without valid values. Records go through Spark columns
(``penstock.converters.json.spark.reading``, ``penstock.converters.json.spark.lenient``), with the same results.

Thread: pure functions.
Source: org.apache.kafka.connect.json.JsonConverter (convertToConnect).
"""

from __future__ import annotations

import base64
import binascii
import decimal
import math
from collections.abc import Callable
from typing import Any, Final, cast

from penstock.converters.json.values.tree import node_kind
from penstock.data import LOGICAL_NAMES, Date, Decimal, Schema, Struct, Time, Timestamp, Type
from penstock.data.conversions import wrap
from penstock.data.structs import map_key, null_refused
from penstock.data.text import round_to_float32
from penstock.errors import DataException
from penstock.pipeline.columns.layout import decimal_scale, logical_name
from penstock.pipeline.columns.variant.reading import MAX_UNSCALED_BYTES, MAX_UNSCALED_DIGITS

_WIDTHS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
BAD_DECIMAL: Final = "Invalid bytes for Decimal field"
BAD_SCALE: Final = f"{BAD_DECIMAL}: its schema has no scale, or one that is no number"
LONG_DECIMAL: Final = (
    f"A decimal has {MAX_UNSCALED_DIGITS} digits ({MAX_UNSCALED_BYTES} bytes) at most, and a scale of 32 bits"
)


def denied_type(schema: Schema) -> str | None:
    """Returns why no value is valid for a schema: Java converts to the logical type of its name, not to its own type.

    None = values are valid. Integers of any width may carry dates and times.
    """
    name = schema.name
    if name not in LOGICAL_NAMES or logical_name(schema) is not None:
        return None
    if schema.type in _WIDTHS and name != Decimal.LOGICAL_NAME:
        return None
    return f"A schema of type {schema.type.name} cannot be named {name}: its values would be of another class"


def read_value(schema: Schema | None, node: Any, *, defaults: bool = True) -> Any:
    """The Connect value of parsed JSON, by Java's lenient rules.

    Raises:
        DataException: The JSON cannot be converted to the schema.
    """
    if schema is None:
        return _read_schemaless(node)
    if node is None:
        if schema.default is not None and defaults:
            return schema.default
        if schema.optional:
            return None
        raise DataException(f"Invalid null value for required {schema.type.name} field")
    denied = denied_type(schema)
    if denied is not None:
        raise DataException(denied)
    reader = _LOGICAL_READERS.get(schema.name)
    if reader is None:
        return _read_plain(schema, node, defaults)
    value = reader(schema, node)
    return _read_plain(schema, node, defaults) if logical_name(schema) is None else value


def _read_schemaless(node: Any) -> Any:
    if isinstance(node, decimal.Decimal):
        return float(node) + 0.0
    if isinstance(node, bool):
        return node
    if isinstance(node, int):
        return wrap(node, 64)
    if isinstance(node, list):
        return [_read_schemaless(one) for one in node]
    if isinstance(node, dict):
        return {key: _read_schemaless(one) for key, one in node.items()}
    return node


def _double(number: Any) -> float:
    try:
        return float(number) + 0.0
    except OverflowError:
        return math.copysign(math.inf, number)


def _read_plain(schema: Schema, node: Any, defaults: bool) -> Any:
    kind = schema.type
    if kind in _WIDTHS:
        return _whole(node, _WIDTHS[kind])
    if kind in (Type.FLOAT32, Type.FLOAT64):
        number = _double(node) if _is_number(node) else 0.0
        return round_to_float32(number) if kind is Type.FLOAT32 else number
    if kind is Type.BOOLEAN:
        return node is True
    if kind is Type.STRING:
        return node if isinstance(node, str) else None
    if kind is Type.BYTES:
        return _base64(node) if isinstance(node, str) else None
    if kind is Type.ARRAY:
        items = node if isinstance(node, list) else list(node.values()) if isinstance(node, dict) else []
        return [read_value(schema.value_schema, one, defaults=defaults) for one in items]
    if kind is Type.MAP:
        return _read_map(schema, node, defaults)
    if not isinstance(node, dict):
        raise DataException(f"Structs should be encoded as JSON objects, but found {node_kind(node)}")
    values: list[Any] = []
    for field in schema.fields:
        value = read_value(field.schema, node.get(field.name), defaults=defaults)
        _require(field.schema, value, f'field: "{field.name}"')
        values.append(value)
    return Struct.unchecked(schema, values)


def _require(schema: Schema | None, value: Any, place: str) -> None:
    """Rejects nulls that came from other JSON, such as a number for a string, if a struct requires a value.

    Nested structs have been checked before.
    """
    if schema is None:
        return
    if value is None:
        if not schema.optional:
            raise DataException(null_refused(schema, place))
    elif schema.type is Type.ARRAY:
        for item in value:
            _require(schema.value_schema, item, f"element of array {place}")
    elif schema.type is Type.MAP:
        for key, item in value.items():
            _require(schema.key_schema, key, f"key of map {place}")
            _require(schema.value_schema, item, f"value of map {place}")


def _read_map(schema: Schema, node: Any, defaults: bool) -> dict[Any, Any]:
    keys = schema.key_schema
    if keys is None or keys.type is Type.STRING:
        if not isinstance(node, dict):
            raise DataException(
                f"Maps with string fields should be encoded as JSON objects, but found {node_kind(node)}"
            )
        return {key: read_value(schema.value_schema, one, defaults=defaults) for key, one in node.items()}
    if not isinstance(node, list):
        raise DataException(
            f"Maps with non-string fields should be encoded as JSON arrays of tuples, but found {node_kind(node)}"
        )
    found: dict[Any, Any] = {}
    for entry in node:
        if not isinstance(entry, list):
            raise DataException(f"Found invalid map entry instead of array tuple: {node_kind(entry)}")
        if len(entry) != 2:
            raise DataException(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
        key = map_key(read_value(keys, entry[0], defaults=defaults))
        found[key] = read_value(schema.value_schema, entry[1], defaults=defaults)
    return found


def _is_number(node: Any) -> bool:
    return isinstance(node, (int, decimal.Decimal)) and not isinstance(node, bool)


def _whole(node: Any, bits: int) -> int:
    if not _is_number(node):
        return 0
    if isinstance(node, decimal.Decimal) and cast("int", node.as_tuple().exponent) >= bits:
        # A multiple of a power of ten is a multiple of the same power of two. As an integer it might have a billion
        # digits.
        return 0
    return wrap(int(node), bits)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataException("Invalid bytes field") from error


def _read_decimal(schema: Schema, node: Any) -> Any:
    if _is_number(node):
        return _decimal_of_number(decimal.Decimal(node))
    if isinstance(node, str):
        return _decimal_of_base64(schema, node)
    raise DataException(
        f"Invalid type for Decimal, underlying representation should be numeric or bytes but was {node_kind(node)}"
    )


def _decimal_of_number(number: decimal.Decimal) -> decimal.Decimal:
    _, digits, exponent = number.as_tuple()
    if len(digits) > MAX_UNSCALED_DIGITS or not -(2**31) <= -int(exponent) < 2**31:
        raise DataException(LONG_DECIMAL)
    # Java's integer has no minus zero.
    return number.copy_abs() if number.is_zero() else number


def _decimal_of_base64(schema: Schema, text: str) -> decimal.Decimal:
    if decimal_scale(schema) is None:
        raise DataException(BAD_SCALE)
    try:
        data = _base64(text)
    except DataException as error:
        raise DataException(BAD_DECIMAL) from error
    if not data:
        raise DataException(BAD_DECIMAL)
    if len(data) > MAX_UNSCALED_BYTES:
        raise DataException(LONG_DECIMAL)
    return Decimal.to_logical(schema, data)


def _int32_reader(logical: type[Date] | type[Time]) -> Callable[[Schema, Any], Any]:
    def read(schema: Schema, node: Any) -> Any:
        if type(node) is not int or wrap(node, 32) != node:
            raise DataException(
                f"Invalid type for {logical.__name__}, underlying representation should be integer but was "
                f"{node_kind(node)}"
            )
        return logical.to_logical(schema, node)

    return read


def _read_timestamp(schema: Schema, node: Any) -> Any:
    if type(node) is not int:
        raise DataException(
            f"Invalid type for Timestamp, underlying representation should be integral but was {node_kind(node)}"
        )
    return Timestamp.to_logical(schema, wrap(node, 64))


_LOGICAL_READERS: Final[dict[str | None, Callable[[Schema, Any], Any]]] = {
    Decimal.LOGICAL_NAME: _read_decimal,
    Date.LOGICAL_NAME: _int32_reader(Date),
    Time.LOGICAL_NAME: _int32_reader(Time),
    Timestamp.LOGICAL_NAME: _read_timestamp,
}
