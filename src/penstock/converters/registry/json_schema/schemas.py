"""Converts JSON Schemas to Connect schemas, also those that other tools wrote, and back.

Keywords without a meaning for Connect (lengths, patterns, ``not``, ``if``) are ignored. Rejected are schemas without a
Connect schema: an empty schema (it allows anything), a lone ``null``, arrays without a type of items, and recursive
schemas (a Connect schema is a value here and cannot contain itself). A JSON Schema is first parsed into a tree of
criteria: several criteria in one schema (a type and an ``enum``, properties and an ``allOf``) count as an ``allOf``;
keywords determine the type of a schema without one.

Additional properties keep what JSON Schema cannot express: ``connect.type`` (the width of numbers, bytes, maps),
``connect.version``, ``connect.parameters``, ``connect.index`` (properties have no order of their own). An optional
schema is a ``oneOf`` with null, a schema's name is its ``title``, its doc the ``description``.

Source: io.confluent.connect.json.JsonSchemaData.toConnectSchema, fromConnectSchema; org.everit.json.schema for the
meaning of keywords.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from penstock.converters.registry.formats import INTEGER_BITS, key_part, value_part
from penstock.converters.registry.json_schema.values import (
    CONNECT_INDEX,
    CONNECT_PARAMETERS,
    CONNECT_TYPE,
    CONNECT_VERSION,
    GENERAL_UNION_PREFIX,
    JSON_ENUM,
    JSON_UNION,
    KEY_FIELD,
    NAMESPACE,
    NULL_SYMBOL,
    VALUE_FIELD,
    JsonSchemaOptions,
    has_object_form,
    is_union,
    value_reader,
    value_writer,
)
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
from penstock.data import STRING_SCHEMA, Decimal, Schema, SchemaBuilder, Type
from penstock.errors import DataException

#: Keywords that determine the type of a schema without one.
_TELLING: Final = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties"),
    "array": ("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
Schemas = Registry[Any]
#: ``referencing`` does not export the class.
Resolver = Any
_COMBINED: Final = ("allOf", "anyOf", "oneOf")


def schemas_by_name(references: Mapping[str, str]) -> Schemas:
    """Referenced schemas, by their names and by the ids in the schemas."""
    named = {name: _resource(parsed_schema(one, f"the referenced schema {name}")) for name, one in references.items()}
    return Registry().with_resources(named.items())


def parsed_schema(text: str, what: str) -> Any:
    """The JSON of a schema, which errors describe as ``what``."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataException(f"Cannot read {what}: it is not JSON: {error}") from error


def _resource(contents: Any) -> Resource[Any]:
    return DRAFT7.create_resource(contents)


@dataclass(frozen=True)
class Criterion:
    """One condition of a JSON Schema, with the schema's other properties.

    Attributes:
        kind: A type, ``enum``, ``oneOf``, ``allOf``, or ``ref``.
        node: The schema that contains it.
        said: The schema with title, default and so on; none for one of several criteria.
        parts: Criteria of a combination.
    """

    kind: str
    node: Any
    resolver: Resolver
    said: Mapping[str, Any]
    parts: tuple[Criterion, ...] = field(default=())


class Criteria:
    """Makes the criteria of a JSON Schema."""

    def __init__(self, named: Schemas) -> None:
        self._named = named

    def of_root(self, node: Any) -> Criterion:
        """Returns the criterion of a whole schema."""
        return self.of(node, self._named.resolver_with_root(_resource(node)))

    def of(self, node: Any, resolver: Resolver) -> Criterion:
        """Returns the criterion of a schema; several criteria are an ``allOf``."""
        if isinstance(node, bool) or not isinstance(node, dict):
            raise DataException(f"The JSON Schema {json.dumps(node)} says of no type, so it has no Connect schema")
        if "$id" in node:
            resolver = resolver.in_subresource(_resource(node))
        if "$ref" in node:
            return Criterion("ref", node, resolver, node)
        found = tuple(self._criteria(node, resolver))
        if not found:
            shown = json.dumps(node)[:200]
            raise DataException(
                f"The JSON Schema {shown} takes values of any type, which no Connect schema does; give it a type"
            )
        if len(found) == 1:
            only = found[0]
            return Criterion(only.kind, node, resolver, node, only.parts)
        return Criterion("allOf", node, resolver, node, found)

    def _criteria(self, node: Mapping[str, Any], resolver: Resolver) -> Iterator[Criterion]:
        types = node.get("type")
        if types is None:
            types = [name for name, keywords in _TELLING.items() if any(word in node for word in keywords)][:1]
        names = [types] if isinstance(types, str) else list(types)
        if len(names) == 1:
            yield Criterion(names[0], node, resolver, {})
        elif names:
            each = tuple(Criterion(name, node, resolver, {}) for name in names)
            yield Criterion("oneOf", node, resolver, {}, each)
        if "enum" in node or "const" in node:
            yield Criterion("enum", node, resolver, {})
        for word in _COMBINED:
            parts = node.get(word)
            if isinstance(parts, list) and parts:
                kind = "allOf" if word == "allOf" else "oneOf"
                yield Criterion(kind, node, resolver, {}, tuple(self.of(one, resolver) for one in parts))

    def target(self, reference: Criterion) -> Criterion:
        """Returns the criterion of the schema that a ``$ref`` refers to."""
        name = reference.node["$ref"]
        try:
            found = reference.resolver.lookup(name)
        except Unresolvable as error:
            # A root with its own id makes the name relative to it, but the registry's name counts.
            if name not in self._named:
                raise DataException(
                    f"The JSON Schema refers to {name}, which it does not hold, and which is not among the references "
                    f"that it was registered with ({', '.join(self._named) or 'there are none'})"
                ) from error
            return self.of(self._named.contents(name), self._named.resolver(name))
        return self.of(found.contents, found.resolver)


_SIMPLE: Final = ("boolean", "integer", "number", "string")


def connect_schema(
    text: str, references: Mapping[str, str], options: JsonSchemaOptions, version: int | None = None
) -> Schema:
    """The Connect schema of a JSON Schema with references by name; ``version`` is used unless ``connect.version`` is
    set.

    >>> connect_schema('{"type": "integer", "title": "Age"}', {}, JsonSchemaOptions())
    <Schema{Age:INT64}>
    """
    root = parsed_schema(text, "the schema")
    criteria = Criteria(schemas_by_name(references))
    try:
        return _Reading(options, criteria).schema(criteria.of_root(root), version=version)
    except (AttributeError, TypeError, KeyError, RecursionError) as error:
        raise DataException(f"Cannot read the schema: it is no JSON Schema, or nested too deep: {error}") from error


class _Reading:
    """Reads one JSON Schema."""

    def __init__(self, options: JsonSchemaOptions, criteria: Criteria) -> None:
        self._options = options
        self._criteria = criteria
        self._unions = 0
        self._open: list[int] = []

    def schema(self, criterion: Criterion, *, version: int | None = None, optional: bool = False) -> Schema:
        """The Connect schema of a criterion."""
        mark = id(criterion.node)
        if criterion.kind == "ref":
            if mark in self._open:
                raise DataException(
                    f"The JSON Schema holds itself by way of {criterion.node['$ref']}; such schemas have no finite "
                    "Connect schema"
                )
            self._open.append(mark)
            target = self._criteria.target(criterion)
            result = self.schema(target, version=version, optional=optional)
            self._open.pop()
            return result
        if criterion.kind == "allOf":
            return self._all_of(criterion, version, optional)
        if criterion.kind == "oneOf":
            kinds = [part for part in criterion.parts if part.kind != "null"]
            with_null = len(kinds) < len(criterion.parts)
            if len(kinds) == 1 and (with_null or self._options.flatten_single_unions):
                return self.schema(kinds[0], version=version, optional=optional or with_null)
            builder = self._union(kinds, with_null)
        else:
            builder = self._builder(criterion)
        return self._described(builder, criterion.said, version, optional)

    def _builder(self, criterion: Criterion) -> SchemaBuilder:
        kind, node = criterion.kind, criterion.node
        connect = criterion.said.get(CONNECT_TYPE)
        if kind in _SIMPLE:
            return SchemaBuilder.type(_simple_type(kind, connect))
        if kind == "enum":
            return self._enum(node["enum"] if "enum" in node else [node["const"]])
        if kind == "array":
            return self._array(criterion, connect)
        if kind == "object":
            if connect == "map":
                values = node.get("additionalProperties")
                return SchemaBuilder.map(STRING_SCHEMA, self.schema(self._criteria.of(values, criterion.resolver)))
            return self._struct(criterion)
        if kind == "null":
            raise DataException("A JSON Schema that takes null and nothing else has no Connect schema")
        raise DataException(f"JSON Schema has no type {kind!r}")

    def _enum(self, symbols: list[Any]) -> SchemaBuilder:
        name = self._options.enum_parameter
        builder = SchemaBuilder.string().parameter(name, "")
        for place, one in enumerate(symbols):
            symbol = NULL_SYMBOL if one is None else one if isinstance(one, str) else json.dumps(one)
            builder.parameter(f"{name}.{symbol}", str(place) if self._options.general_sums else symbol)
        return builder

    def _union(self, kinds: list[Criterion], with_null: bool) -> SchemaBuilder:
        if self._options.general_sums:
            name, prefix = f"{GENERAL_UNION_PREFIX}{self._unions}", f"{GENERAL_UNION_PREFIX}field_"
            self._unions += 1
            builder = SchemaBuilder.struct().name(name).parameter(GENERAL_UNION, name)
        else:
            prefix = f"{JSON_UNION}.field."
            builder = SchemaBuilder.struct().name(JSON_UNION)
        for place, kind in enumerate(kinds):
            builder.field(f"{prefix}{place}", self.schema(kind, optional=True))
        return builder.optional() if with_null else builder

    def _array(self, criterion: Criterion, connect: Any) -> SchemaBuilder:
        items = criterion.node.get("items")
        if items is None or isinstance(items, list):
            raise DataException("Array schema did not specify the items type")
        entry = self._criteria.of(items, criterion.resolver)
        if connect == "map" and entry.kind == "object":
            sides = items.get("properties", {})
            if KEY_FIELD not in sides or VALUE_FIELD not in sides:
                raise DataException(f"The entries of a map have no {KEY_FIELD} and {VALUE_FIELD}: {json.dumps(items)}")
            key, value = (self._criteria.of(sides[name], entry.resolver) for name in (KEY_FIELD, VALUE_FIELD))
            return SchemaBuilder.map(self.schema(key), self.schema(value))
        return SchemaBuilder.array(self.schema(entry))

    def _struct(self, criterion: Criterion) -> SchemaBuilder:
        return self._with_fields(dict(self._properties(criterion, ())))

    def _with_fields(self, properties: Mapping[str, tuple[Criterion, bool]]) -> SchemaBuilder:
        def place(item: tuple[str, tuple[Criterion, bool]]) -> tuple[bool, int]:
            index = item[1][0].node.get(CONNECT_INDEX)
            return (False, index) if isinstance(index, int) else (True, 0)

        builder = SchemaBuilder.struct()
        for name, (criterion, required) in sorted(properties.items(), key=place):
            optional = self._options.optional_unless_required and not required
            builder.field(name, self.schema(criterion, optional=optional))
        return builder

    def _properties(self, criterion: Criterion, seen: tuple[int, ...]) -> Iterator[tuple[str, tuple[Criterion, bool]]]:
        """The properties of an object, of its references, and of all parts of an ``allOf``."""
        if criterion.kind == "object":
            required = criterion.node.get("required", ())
            for name, node in criterion.node.get("properties", {}).items():
                yield name, (self._criteria.of(node, criterion.resolver), name in required)
        elif criterion.kind == "ref" and id(criterion.node) not in seen:
            target = self._criteria.target(criterion)
            yield from self._properties(target, (*seen, id(criterion.node)))
        elif criterion.kind == "allOf":
            for part in criterion.parts:
                yield from self._properties(part, seen)

    def _all_of(self, criterion: Criterion, version: int | None, optional: bool) -> Schema:
        properties = dict(self._properties(criterion, ()))
        if properties:
            builder = self._with_fields(properties)
            return builder.optional().build() if optional else builder.build()
        if len(criterion.parts) == 1:
            return self.schema(criterion.parts[0], version=version, optional=optional)
        by_kind = {part.kind: part for part in criterion.parts}
        for kind in ("oneOf", "allOf", "enum", "number", "integer", "string", "ref"):
            chosen = by_kind.get(kind)
            if chosen is None:
                continue
            if kind == "enum":
                # Listed numbers are numbers, and a single constant text is a string; listed texts are an enum.
                texts = by_kind.get("string")
                numbers = by_kind.get("integer") or by_kind.get("number")
                chosen = numbers or (texts if texts and "const" in chosen.node else chosen)
            return self.schema(chosen, version=version, optional=optional)
        shown = json.dumps(criterion.node)[:200]
        raise DataException(f"The combination of criteria in {shown} has no Connect schema")

    def _described(
        self, builder: SchemaBuilder, said: Mapping[str, Any], version: int | None, optional: bool
    ) -> Schema:
        title = said.get("title")
        plain = builder.build()
        if isinstance(title, str) and plain.name is None:
            builder.name(title)
        own = said.get(CONNECT_VERSION)
        builder.version(own if isinstance(own, int) else version)
        if isinstance(said.get("description"), str):
            builder.doc(said["description"])
        parameters = said.get(CONNECT_PARAMETERS)
        if isinstance(parameters, dict):
            builder.parameters({name: str(text) for name, text in parameters.items()})
        if said.get("default") is not None:
            builder.default_value(value_reader(builder.build())(said["default"]))
        if optional:
            builder.optional()
        return builder.build()


def _simple_type(kind: str, connect: Any) -> Type:
    if kind == "boolean":
        return Type.BOOLEAN
    if kind == "string":
        return Type.BYTES if connect == "bytes" else Type.STRING
    if connect is None:
        return Type.INT64 if kind == "integer" else Type.FLOAT64
    try:
        found = Type(connect)
    except ValueError:
        raise DataException(f"Unsupported type {connect}") from None
    if not found.is_primitive or found in (Type.STRING, Type.BOOLEAN):
        raise DataException(f"Unsupported type {connect}")
    return found


_NULL: Final = {"type": "null"}


def json_schema_text(schema: Schema, options: JsonSchemaOptions) -> str:
    """The JSON Schema of a Connect schema.

    Raises:
        DataException: A default cannot be written, or an array or map has no schema for its items.

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
    if kind in INTEGER_BITS:
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
        return {"type": "array", "items": _node(value_part(schema), options, None)}
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
        values = _node(value_part(schema), options, None)
        return {"type": "object", "additionalProperties": values, CONNECT_TYPE: "map"}
    entry = {KEY_FIELD: _node(key_part(schema), options, 0), VALUE_FIELD: _node(value_part(schema), options, 1)}
    return {"type": "array", "items": {"type": "object", "properties": entry}, CONNECT_TYPE: "map"}


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
