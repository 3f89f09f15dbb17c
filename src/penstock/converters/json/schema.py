"""Connect schemas as JSON, and back.

Main functions: ``schema_text``, ``read_schema``. Defaults of schemas are values: see
``penstock.converters.json.values.writing`` and ``penstock.converters.json.values.reading``.

Thread: pure functions.
Source: org.apache.kafka.connect.json.JsonConverter (asJsonSchema, asConnectSchema).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from penstock.converters.json.values.reading import read_value
from penstock.converters.json.values.writing import write_value
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.data.conversions import wrap
from penstock.data.text import json_string
from penstock.errors import DataException, SchemaBuilderException

_NAMES: Final = {
    Type.INT8: "int8",
    Type.INT16: "int16",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
    Type.ARRAY: "array",
    Type.MAP: "map",
    Type.STRUCT: "struct",
}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}
_NO_TYPE: Final = "Schema must contain 'type' field"


@lru_cache(maxsize=1000)
def _plain_schema_text(schema: Schema, numeric: bool) -> str:
    return _schema_text(schema, numeric)


def schema_text(schema: Schema, *, numeric: bool) -> str:
    """The JSON of a schema.

    Args:
        schema: The schema.
        numeric: True if decimals (in defaults) are written as numbers.

    Raises:
        DataException: A default cannot be written.
    """
    return _plain_schema_text(schema, numeric)


def _schema_text(schema: Schema, numeric: bool, field: str | None = None) -> str:
    parts = [f'"type":"{_NAMES[schema.type]}"']
    if schema.type is Type.ARRAY:
        parts.append(f'"items":{_part(schema.value_schema, numeric)}')
    elif schema.type is Type.MAP:
        parts.append(f'"keys":{_part(schema.key_schema, numeric)}')
        parts.append(f'"values":{_part(schema.value_schema, numeric)}')
    elif schema.type is Type.STRUCT:
        fields = ",".join(_schema_text(one.schema, numeric, one.name) for one in schema.fields)
        parts.append(f'"fields":[{fields}]')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{json_string(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{json_string(schema.doc)}')
    if schema.parameters is not None:
        pairs = ",".join(f"{json_string(key)}:{json_string(value)}" for key, value in schema.parameters.items())
        parts.append(f'"parameters":{{{pairs}}}')
    if schema.default is not None:
        parts.append(f'"default":{write_value(schema, schema.default, numeric=numeric, defaults=True)}')
    if field is not None:
        parts.append(f'"field":{json_string(field)}')
    return "{" + ",".join(parts) + "}"


def _part(schema: Schema | None, numeric: bool) -> str:
    return "null" if schema is None else _schema_text(schema, numeric)


def read_schema(node: Any, *, defaults: bool = True) -> Schema | None:
    """The schema in parsed JSON.

    Raises:
        DataException: The JSON is not a schema.
        SchemaBuilderException: The schema is invalid: a default does not fit, or two fields have the same name.
    """
    if node is None:
        return None
    kind = node.get("type") if isinstance(node, dict) else None
    if not isinstance(kind, str):
        raise DataException(_NO_TYPE)
    if kind not in _TYPES:
        raise DataException(f"Unknown schema type: {kind}")
    builder = _builder(_TYPES[kind], node, defaults)
    optional = node.get("optional")
    builder = builder.optional() if optional is True else builder.required()
    if isinstance(node.get("name"), str):
        builder.name(node["name"])
    version = node.get("version")
    if isinstance(version, int) and not isinstance(version, bool):
        builder.version(wrap(version, 32))
    if isinstance(node.get("doc"), str):
        builder.doc(node["doc"])
    _read_parameters(builder, node.get("parameters"))
    if "default" in node:
        _read_default(builder, node["default"], defaults)
    return builder.build()


def _builder(kind: Type, node: Mapping[str, Any], defaults: bool) -> SchemaBuilder:
    if kind is Type.ARRAY:
        items = node.get("items")
        if items is None:
            raise DataException("Array schema did not specify the element type")
        return SchemaBuilder.array(_must(items, defaults))
    if kind is Type.MAP:
        if node.get("keys") is None:
            raise DataException("Map schema did not specify the key type")
        if node.get("values") is None:
            raise DataException("Map schema did not specify the value type")
        return SchemaBuilder.map(_must(node["keys"], defaults), _must(node["values"], defaults))
    if kind is Type.STRUCT:
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise DataException('Struct schema\'s "fields" argument is not an array.')
        builder = SchemaBuilder.struct()
        for field in fields:
            name = field.get("field") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise DataException("Struct schema's field name not specified properly")
            builder.field(name, _must(field, defaults))
        return builder
    return SchemaBuilder.type(kind)


def _must(node: Any, defaults: bool) -> Schema:
    schema = read_schema(node, defaults=defaults)
    if schema is None:
        raise DataException(_NO_TYPE)
    return schema


def _read_parameters(builder: SchemaBuilder, parameters: Any) -> None:
    if not isinstance(parameters, dict):
        return
    for key, value in parameters.items():
        if not isinstance(value, str):
            raise DataException("Schema parameters must have string values.")
        builder.parameter(key, value)


def _read_default(builder: SchemaBuilder, node: Any, defaults: bool) -> None:
    plain = builder.build()
    value = read_value(plain, node, defaults=defaults)
    if value is None and plain.optional:
        return
    if value is None:
        raise SchemaBuilderException("Invalid default value") from DataException("the default is of another type")
    if isinstance(value, Struct):
        # Java compares the default's schema with the schema under construction, which already has the default.
        raise SchemaBuilderException("Invalid default value") from DataException("Struct schemas do not match.")
    builder.default_value(value)
