"""Defaults, between Connect's values and the JSON of an Avro schema.

Main functions: ``default_value`` (JSON to Connect), ``default_json`` (the reverse).

Thread: pure functions.
Source: io.confluent.connect.avro.AvroData.defaultValueFromAvro, defaultValueFromConnect.
"""

from __future__ import annotations

import math
from typing import Any, Final

from penstock.converters.registry.avro_forms import (
    FROM_CARRIED,
    entry_types,
    has_text_keys,
    to_carried,
    union_field,
)
from penstock.converters.registry.avro_names import KEY_FIELD, UNION, VALUE_FIELD, AvroOptions
from penstock.converters.registry.avro_types import MISSING, AvroType
from penstock.data import Schema, Struct, Type, validate_value
from penstock.errors import DataException

#: In place of a value of a union's second type, which is no default in Avro.
NO_JSON: Final = object()


def default_value(schema: Schema | None, found: AvroType, value: Any, options: AvroOptions) -> Any:
    """The Connect value of a default, as it stands in a schema's JSON.

    Raises:
        DataException: It is no such value.
    """
    if value is None:
        return None
    if schema is None:
        raise DataException("A default of a schemaless value has no form in Connect")
    if found.kind == "union":
        return _union_default(schema, found, value, options)
    result = _plain_default(schema, found, value, options)
    converter = FROM_CARRIED.get(schema.name) if schema.name is not None else None
    return result if converter is None or result is None else converter(schema, result)


def _union_default(schema: Schema, found: AvroType, value: Any, options: AvroOptions) -> Any:
    first = found.branches[0]
    member = found.nullable if len(found.branches) > 1 else first
    if member is not None:
        return default_value(schema, member, value, options)
    if first.kind == "null":
        return None
    name = union_field(first, options)
    part = schema.field(name)
    assert part is not None, "the struct of a union has a field for each type"
    return Struct(schema).put(name, default_value(part.schema, first, value, options))


def _plain_default(schema: Schema, found: AvroType, value: Any, options: AvroOptions) -> Any:
    try:
        if found.kind in ("bytes", "fixed"):
            return value.encode("latin-1")
        if found.kind in ("float", "double"):
            # NaN and the infinities have no number in JSON.
            return float(value)
        if found.kind == "array":
            return _array_default(schema, found, value, options)
        if found.kind == "map":
            assert found.items is not None, "maps have values"
            return {key: default_value(schema.value_schema, found.items, one, options) for key, one in value.items()}
        if found.kind == "record":
            result = Struct(schema)
            for one in found.fields:
                part = schema.field(one.name)
                assert part is not None, "the schema is made of the record"
                given = value.get(one.name, None if one.default is MISSING else one.default)
                result.put(one.name, default_value(part.schema, one.type, given, options))
            return result
    except (AttributeError, TypeError, ValueError) as error:
        raise DataException(f"Invalid default for Avro type {found.shown}: {value}") from error
    return value


def _array_default(schema: Schema, found: AvroType, value: Any, options: AvroOptions) -> Any:
    assert found.items is not None, "arrays have items"
    if schema.type is not Type.MAP:
        return [default_value(schema.value_schema, found.items, one, options) for one in value]
    keys, values = entry_types(found.items)
    entries = [(one[KEY_FIELD], one[VALUE_FIELD]) if isinstance(one, dict) else tuple(one) for one in value]
    return {
        default_value(schema.key_schema, keys, key, options): default_value(schema.value_schema, values, one, options)
        for key, one in entries
    }


def default_json(schema: Schema | None, value: Any) -> Any:
    """A default as it stands in a schema's JSON. NaN and the infinities stay floats, see ``spelt``.

    Raises:
        DataException: It is no value of the schema.
    """
    if value is None:
        return None
    if schema is None:
        raise DataException("A default holds a value without a schema, which has no form in Avro")
    converter = to_carried(schema)
    carried = value if converter is None else converter(schema, value)
    kind = schema.type
    if kind is Type.BYTES:
        return bytes(carried).decode("latin-1")
    if kind is Type.ARRAY:
        return [default_json(schema.value_schema, one) for one in carried]
    if kind is Type.MAP and has_text_keys(schema):
        return {key: default_json(schema.value_schema, one) for key, one in carried.items()}
    if kind is Type.MAP:
        return [
            {KEY_FIELD: default_json(schema.key_schema, key), VALUE_FIELD: default_json(schema.value_schema, one)}
            for key, one in carried.items()
        ]
    if kind is Type.STRUCT:
        assert isinstance(carried, Struct), "builders check defaults"
        if schema.name == UNION:
            # The default of a union is one of its first type.
            first = schema.fields[0]
            set_one = carried.get(first.name)
            return NO_JSON if schema.optional or set_one is None else default_json(first.schema, set_one)
        return {one.name: default_json(one.schema, carried.get(one.name)) for one in schema.fields}
    validate_value(Schema(kind), carried)
    return carried


def has_no_json(node: Any) -> bool:
    """Whether a default holds what the default of an Avro field cannot be."""
    if node is NO_JSON:
        return True
    if isinstance(node, float):
        return not math.isfinite(node)
    if isinstance(node, dict):
        return any(has_no_json(one) for one in node.values())
    return isinstance(node, list) and any(has_no_json(one) for one in node)


def spelt(node: Any) -> Any:
    """The same with such numbers as text."""
    if isinstance(node, float) and not math.isfinite(node):
        return "NaN" if math.isnan(node) else "Infinity" if node > 0 else "-Infinity"
    if isinstance(node, dict):
        return {name: spelt(one) for name, one in node.items()}
    return [spelt(one) for one in node] if isinstance(node, list) else node
