"""Reads JSON as Connect values, by schema. A schema is compiled to functions once; a record then costs one call of
orjson and one function call for each value.

It works record by record, in Python: the id in the first bytes of each message selects its schema, and Spark's JSON
functions do not support decimals, unions, and maps as arrays of entries.

Main functions: ``decode``, ``value_reader``. Thread: the returned functions have no state; any thread.
Source: io.confluent.connect.json.JsonSchemaData.toConnectData.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from penstock.converters.json.arrow.bytes import plain_json
from penstock.converters.json.values.reading import read_value
from penstock.converters.json.values.tree import first_json, node_kind, parse_json
from penstock.converters.registry.json_schema.writing import KEY_FIELD, VALUE_FIELD, has_object_form, is_union
from penstock.data import (
    LOGICAL_NAMES,
    Date,
    Decimal,
    Schema,
    Struct,
    Time,
    Timestamp,
    Type,
    round_to_float32,
)
from penstock.data.structs import map_key
from penstock.errors import DataException
from penstock.pipeline.columns.nesting import anywhere

Convert = Callable[[Any], Any]

_WIDTHS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PYTHON_KINDS: Final = {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT64: float}
_LOGICAL_INTEGERS: Final[Mapping[str | None, Callable[[Schema, int], Any]]] = {
    Date.LOGICAL_NAME: Date.to_logical,
    Time.LOGICAL_NAME: Time.to_logical,
    Timestamp.LOGICAL_NAME: Timestamp.to_logical,
}
_MISSING: Final = object()
_NUMBERS: Final = (int, float, decimal.Decimal)


def has_decimals(schema: Schema | None) -> bool:
    """True if numbers of a schema must be read exactly."""
    return anywhere(schema, lambda one: one.name == Decimal.LOGICAL_NAME)


def decode(data: bytes | memoryview, *, exact: bool) -> Any:
    """Parses the JSON of a message for ``value_reader``.

    Args:
        data: The JSON bytes of the message.
        exact: True if numbers with a fraction must keep all digits.

    Raises:
        DataException: It is not JSON.
    """
    try:
        # Jackson accepts some texts that orjson rejects: text after the value, escaped halves of pairs, leading zeros.
        return parse_json(bytes(data).decode()) if exact else orjson.loads(data)
    except (ValueError, RecursionError):
        pass
    try:
        return first_json(plain_json(bytes(data)))
    except (ValueError, RecursionError) as error:
        raise DataException(f"The message is not JSON: {error}") from error


def value_reader(schema: Schema) -> Convert:
    """Returns a function from parsed JSON to values of a schema.

    Null becomes the default, if any. The function raises ``DataException`` for a null if a value is required, and for a
    structure of another kind; numbers and texts follow Java's lenient rules.
    """
    read = _plain_reader(schema)
    default = schema.default

    def read_any(node: Any) -> Any:
        if node is not None:
            return read(node)
        if default is None and not schema.optional:
            raise DataException(f"Invalid null value for required {schema.type.name} field")
        return default

    return _quick(schema, read_any)


def _quick(schema: Schema, read_any: Convert) -> Convert:
    """The function with a fast path for the most frequent class of values."""
    kind = schema.type
    logical = _LOGICAL_INTEGERS.get(schema.name)
    if kind in _WIDTHS:
        limit = 1 << (_WIDTHS[kind] - 1)
        if logical is not None:
            return lambda node: (
                logical(schema, node) if type(node) is int and -limit <= node < limit else read_any(node)
            )
        return lambda node: node if type(node) is int and -limit <= node < limit else read_any(node)
    wanted = _PYTHON_KINDS.get(kind)
    if wanted is None or schema.name in LOGICAL_NAMES:
        return read_any
    return lambda node: node if type(node) is wanted else read_any(node)


def _plain_reader(schema: Schema) -> Convert:
    kind = schema.type
    if schema.name in LOGICAL_NAMES:
        return lambda node: read_value(schema, _exact(node))
    if kind in _FLOATS:
        return _float_reader(schema)
    if kind is Type.STRUCT:
        return _union_reader(schema) if is_union(schema) else _struct_reader(schema)
    if kind is Type.ARRAY:
        read = _part_reader(schema.value_schema)
        return lambda node: [read(one) for one in _array(node)]
    if kind is Type.MAP:
        return _map_reader(schema)
    return lambda node: _read_leaf(schema, node)


def _exact(node: Any) -> Any:
    """Numbers as in the tree of JsonConverter."""
    return decimal.Decimal(repr(node)) if isinstance(node, float) else node


def _read_leaf(schema: Schema, node: Any) -> Any:
    value = read_value(schema, _exact(node))
    if value is None:
        raise DataException(f"Invalid value for {schema.type.name}: the JSON has {node_kind(_exact(node))}")
    return value


def _float_reader(schema: Schema) -> Convert:
    single = schema.type is Type.FLOAT32

    def read(node: Any) -> Any:
        if isinstance(node, _NUMBERS) and not isinstance(node, bool):
            value = float(node) + 0.0
        else:
            # Java writes these as texts and reads them as 0: a number would change.
            value = _NOT_FINITE.get(node, 0.0) if isinstance(node, str) else 0.0
        return round_to_float32(value) if single else value

    return read


def _array(node: Any) -> Any:
    if not isinstance(node, list):
        raise DataException(f"Arrays should be encoded as JSON arrays, but found {node_kind(_exact(node))}")
    return node


def _part_reader(part: Schema | None) -> Convert:
    if part is None:
        raise DataException("An array or map does not say of which type its elements are")
    return value_reader(part)


def _map_reader(schema: Schema) -> Convert:
    read_value = _part_reader(schema.value_schema)
    if has_object_form(schema):

        def read_object(node: Any) -> Any:
            if not isinstance(node, dict):
                kind = node_kind(_exact(node))
                raise DataException(f"Maps with string fields should be encoded as JSON objects, but found {kind}")
            return {key: read_value(one) for key, one in node.items()}

        return read_object
    read_key = _part_reader(schema.key_schema)

    def read_entries(node: Any) -> Any:
        if not isinstance(node, list):
            kind = node_kind(_exact(node))
            raise DataException(
                f"Maps with non-string fields should be encoded as JSON array of objects, but found {kind}"
            )
        found = {}
        for entry in node:
            if not isinstance(entry, dict):
                raise DataException(f"Found invalid map entry instead of object: {node_kind(_exact(entry))}")
            if len(entry) != 2:
                raise DataException(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
            key = map_key(read_key(entry.get(KEY_FIELD)))
            found[key] = read_value(entry.get(VALUE_FIELD))
        return found

    return read_entries


def _struct_reader(schema: Schema) -> Convert:
    # A missing field becomes the default or null, even if a value is required; an explicit null is an error then.
    fields = [(field.name, value_reader(field.schema), field.schema.default) for field in schema.fields]

    def read(node: Any) -> Any:
        if not isinstance(node, dict):
            raise DataException(f"Structs should be encoded as JSON objects, but found {node_kind(_exact(node))}")
        values = []
        for name, read_field, default in fields:
            one = node.get(name, _MISSING)
            try:
                values.append(default if one is _MISSING else read_field(one))
            except DataException as error:
                raise DataException(f"field {name}: {error}") from error
        return Struct.unchecked(schema, values)

    return read


def _union_reader(schema: Schema) -> Convert:
    kinds = [(field, value_reader(field.schema)) for field in schema.fields]

    def read(node: Any) -> Any:
        best, most = None, 0
        for position, (field, _) in enumerate(kinds):
            if _is_simple_of(field.schema, node):
                best = position
                break
            matching = _matching_properties(field.schema, node)
            if matching > most:
                best, most = position, matching
        if best is None:
            raise DataException("Did not find matching oneof field for data")
        values = [None] * len(kinds)
        values[best] = kinds[best][1](node)
        return Struct.unchecked(schema, values)

    return read


def _is_simple_of(schema: Schema, node: Any) -> bool:
    """True if the JSON kind is enough to show that a value has this schema."""
    kind = schema.type
    if kind in _WIDTHS:
        return type(node) is int
    if kind in _FLOATS or (kind is Type.BYTES and schema.name == Decimal.LOGICAL_NAME and not isinstance(node, str)):
        return isinstance(node, _NUMBERS) and not isinstance(node, bool)
    if kind is Type.BOOLEAN:
        return isinstance(node, bool)
    if kind in (Type.STRING, Type.BYTES):
        return isinstance(node, str)
    if kind is Type.ARRAY:
        return isinstance(node, list)
    return kind is Type.MAP and isinstance(node, (list, dict))


def _matching_properties(schema: Schema, node: Any) -> int:
    """Counts the properties, at every depth, that match fields of a struct."""
    if schema.type is not Type.STRUCT or not isinstance(node, dict):
        return 0
    shared = [(field, node[field.name]) for field in schema.fields if field.name in node]
    return len(shared) + sum(_matching_properties(field.schema, one) for field, one in shared)
