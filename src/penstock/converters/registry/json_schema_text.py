"""Connect schema to JSON Schema, in the dialect of Confluent's converter.

What JSON Schema cannot say is kept beside it: ``connect.type`` (the width of numbers, bytes, maps),
``connect.version``, ``connect.parameters``, ``connect.index`` (properties have no order of their own). An optional
schema is a ``oneOf`` with null, a schema's name is its ``title``, its doc the ``description``.

Main function: ``json_schema_text``. Thread: pure functions.
Source: io.confluent.connect.json.JsonSchemaData.fromConnectSchema.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.converters.registry.general_names import GENERAL_ENUM
from penstock.converters.registry.json_schema_names import (
    CONNECT_INDEX,
    CONNECT_PARAMETERS,
    CONNECT_TYPE,
    CONNECT_VERSION,
    JSON_ENUM,
    KEY_FIELD,
    NAMESPACE,
    NULL_SYMBOL,
    VALUE_FIELD,
    JsonSchemaOptions,
    has_object_form,
    is_union,
)
from penstock.converters.registry.json_schema_writing import value_writer
from penstock.data import Decimal, Schema, Type
from penstock.errors import DataException

_INTEGERS: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64})
_NULL: Final = {"type": "null"}


def json_schema_text(schema: Schema, options: JsonSchemaOptions) -> str:
    """The JSON Schema of a Connect schema.

    Args:
        schema: The schema.
        options: What the converter's settings say.

    Raises:
        DataException: A default cannot be written, or an array or map does not say what it holds.

    >>> json_schema_text(Schema(Type.INT8), JsonSchemaOptions())
    '{"type":"integer","connect.type":"int8"}'
    """
    return orjson.dumps(_node(schema, options, None)).decode()


def _node(
    schema: Schema, options: JsonSchemaOptions, index: int | None, *, optional: bool | None = None
) -> dict[str, Any]:
    """One schema; ``optional=False``: as if it were required."""
    nullable = schema.optional if optional is None else optional
    if is_union(schema):
        kinds = [_node(field.schema, options, field.index, optional=False) for field in schema.fields]
        node: dict[str, Any] = {"oneOf": [_NULL, *kinds] if nullable else kinds}
    else:
        node = _plain(schema, options)
        _describe(node, schema, options)
        if nullable:
            node = {"oneOf": [_NULL, node]}
    if index is not None:
        node[CONNECT_INDEX] = index
    return node


def _plain(schema: Schema, options: JsonSchemaOptions) -> dict[str, Any]:
    kind = schema.type
    if kind in _INTEGERS:
        return {"type": "integer", CONNECT_TYPE: kind.value}
    if kind in (Type.FLOAT32, Type.FLOAT64):
        return {"type": "number", CONNECT_TYPE: kind.value}
    if kind is Type.BOOLEAN:
        return {"type": "boolean"}
    if kind is Type.STRING:
        return _string(schema, options)
    if kind is Type.BYTES:
        number = schema.name == Decimal.LOGICAL_NAME and options.numeric_decimals
        return {"type": "number" if number else "string", CONNECT_TYPE: "bytes"}
    if kind is Type.ARRAY:
        return {"type": "array", "items": _part(schema, schema.value_schema, options)}
    if kind is Type.MAP:
        return _map(schema, options)
    node: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _node(field.schema, options, field.index) for field in schema.fields},
    }
    if not options.additional_properties:
        node["additionalProperties"] = False
    return node


def _string(schema: Schema, options: JsonSchemaOptions) -> dict[str, Any]:
    parameters = schema.parameters or {}
    if GENERAL_ENUM not in parameters and JSON_ENUM not in parameters:
        return {"type": "string"}
    prefix = f"{options.enum_parameter}."
    symbols = [name.removeprefix(prefix) for name in parameters if name.startswith(prefix)]
    return {"enum": [None if symbol == NULL_SYMBOL else symbol for symbol in symbols]}


def _map(schema: Schema, options: JsonSchemaOptions) -> dict[str, Any]:
    if has_object_form(schema):
        values = _part(schema, schema.value_schema, options)
        return {"type": "object", "additionalProperties": values, CONNECT_TYPE: "map"}
    entry = {
        KEY_FIELD: _part(schema, schema.key_schema, options, 0),
        VALUE_FIELD: _part(schema, schema.value_schema, options, 1),
    }
    return {"type": "array", "items": {"type": "object", "properties": entry}, CONNECT_TYPE: "map"}


def _part(whole: Schema, part: Schema | None, options: JsonSchemaOptions, index: int | None = None) -> dict[str, Any]:
    if part is None:
        raise DataException(
            f"{whole} does not say of which type its elements are, so it has no JSON Schema; give them a schema"
        )
    return _node(part, options, index)


def _describe(node: dict[str, Any], schema: Schema, options: JsonSchemaOptions) -> None:
    if schema.name is not None:
        node["title"] = schema.name
    if schema.version is not None:
        node[CONNECT_VERSION] = schema.version
    if schema.doc is not None:
        node["description"] = schema.doc
    parameters = {name: text for name, text in (schema.parameters or {}).items() if not name.startswith(NAMESPACE)}
    if parameters:
        node[CONNECT_PARAMETERS] = parameters
    if schema.default is not None:
        node["default"] = value_writer(schema, options)(schema.default)
