"""What a JSON Schema demands, as a tree of criteria: types, enums, combinations, references to follow.

Several criteria in one schema (a type and an ``enum``, properties and an ``allOf``) count as if they stood in an
``allOf``; a schema that says of no type is told by its keywords.

Main types: ``Criterion``, ``Criteria`` (makes them). Main functions: ``parsed_schema``, ``schemas_by_name``.
Thread: pure functions.
Source: org.everit.json.schema, for what a keyword makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from penstock.errors import DataException

#: What says of which type a schema is that does not say it.
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
    """Referenced schemas, found by their names and by the ids they give themselves.

    Raises:
        DataException: One is not JSON.
    """
    named = {name: _resource(parsed_schema(one, f"the referenced schema {name}")) for name, one in references.items()}
    return Registry().with_resources(named.items())


def parsed_schema(text: str, what: str) -> Any:
    """The JSON of a schema.

    Args:
        text: The schema.
        what: What it is, for errors.

    Raises:
        DataException: It is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataException(f"Cannot read {what}: it is not JSON: {error}") from error


def _resource(contents: Any) -> Resource[Any]:
    return DRAFT7.create_resource(contents)


@dataclass(frozen=True)
class Criterion:
    """One condition of a JSON Schema, with what else the schema says.

    Attributes:
        kind: A type, ``enum``, ``oneOf``, ``allOf``, or ``ref``.
        node: The schema it is from.
        resolver: Finds what it refers to.
        said: Where title, default and the like stand: nowhere for a criterion among others.
        parts: Criteria of a combination.
    """

    kind: str
    node: Any
    resolver: Resolver
    said: Mapping[str, Any]
    parts: tuple[Criterion, ...] = field(default=())


class Criteria:
    """Makes the criteria of a JSON Schema.

    Args:
        named: Referenced schemas by name.
    """

    def __init__(self, named: Schemas) -> None:
        self._named = named

    def of_root(self, node: Any) -> Criterion:
        """What a whole schema demands."""
        return self.of(node, self._named.resolver_with_root(_resource(node)))

    def of(self, node: Any, resolver: Resolver) -> Criterion:
        """What a schema demands; several criteria are an ``allOf``."""
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
        """What the schema demands that a ``$ref`` means."""
        name = reference.node["$ref"]
        try:
            found = reference.resolver.lookup(name)
        except Unresolvable as error:
            # A root with an id of its own makes the name relative to it; the registry's name counts.
            if name not in self._named:
                raise DataException(
                    f"The JSON Schema refers to {name}, which it does not hold, and which is not among the references "
                    f"that it was registered with ({', '.join(self._named) or 'there are none'})"
                ) from error
            return self.of(self._named.contents(name), self._named.resolver(name))
        return self.of(found.contents, found.resolver)
