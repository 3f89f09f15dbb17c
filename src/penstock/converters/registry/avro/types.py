"""Avro schemas as trees with resolved names, and reduced schemas for fastavro.

Main types: ``AvroType``, ``AvroField``. Main functions: ``read_avro`` (the text of a schema), ``plain`` (the schema for
fastavro: without logical types, defaults and properties, because values are converted here).

Thread: pure functions over trees that are not changed.
Source: the Avro specification, 1.12, "Schema Declaration" and "Names".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.converters.registry.client import SchemaText
from penstock.errors import DataException

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "enum", "fixed"})
#: Keys of a schema that are not properties.
_STRUCTURE: Final = frozenset(
    {"type", "name", "namespace", "doc", "fields", "items", "values", "symbols", "size", "aliases"}
)
#: Branches of a union whose values look the same in Python; fastavro needs help to distinguish them.
ALIKE: Final = ({"int", "long"}, {"float", "double"})
#: The logical type that marks the wider one of them.
WIDE: Final = "penstock-wide"


_NO_NAMESPACE: Final = "penstock.no.namespace"
_BOOLEAN: Final = "penstock.boolean"
_ASCII_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AbsentDefault:
    """No default, as distinct from the default null."""


MISSING: Final = AbsentDefault()


@dataclass(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: Any = MISSING
    doc: str | None = None
    aliases: Sequence[str] = ()


@dataclass(eq=False)
class AvroType:
    """An Avro type. Types are compared by identity.

    Attributes:
        kind: ``record``, ``union``, ``int`` ...
        name: The full name of a record, enum or fixed.
        fields: Of a record.
        items: Of an array, or the values of a map.
        symbols: Of an enum.
        default_symbol: Of an enum that has one.
        size: Of a fixed.
        branches: Of a union.
        doc: Of a record or enum.
        aliases: Other names of a record, enum or fixed.
        properties: All other properties.
        recursive: True if a record contains itself, at some depth.
    """

    kind: str
    name: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    items: AvroType | None = None
    symbols: Sequence[str] = ()
    default_symbol: str | None = None
    size: int = 0
    branches: Sequence[AvroType] = ()
    doc: str | None = None
    aliases: Sequence[str] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    recursive: bool = False

    @property
    def record_name(self) -> str | None:
        """The full name of a record, enum or fixed."""
        return self.name

    @property
    def wire_symbols(self) -> Sequence[str]:
        """The symbols of an enum for fastavro, replaced if it does not accept them, such as Java's letters."""
        if all(_ASCII_NAME.fullmatch(one) for one in self.symbols):
            return self.symbols
        return tuple(f"s{place}" for place in range(len(self.symbols)))

    @property
    def shown(self) -> str:
        """The name of the type in messages."""
        return self.name if self.name is not None else self.kind

    @property
    def branch_name(self) -> str:
        """The name that fastavro uses for the type in a union."""
        if self.name is None:
            return self.kind
        # Inside a foreign namespace, a name without a namespace would belong to that namespace.
        return self.name if "." in self.name else f"{_NO_NAMESPACE}.{self.name}"

    @property
    def read_name(self) -> str | None:
        """The name that fastavro uses when it reads the type in a union; None if it infers the type from the value."""
        return _BOOLEAN if self.kind == "boolean" else None if self.name is None else self.branch_name

    @property
    def wide_branches(self) -> frozenset[str]:
        """The kinds of a union's types that have the same Python class as a narrower type of the union."""
        kinds = {one.kind for one in self.branches}
        return frozenset(kind for pair in ALIKE if pair <= kinds for kind in pair & {"long", "double"})

    @property
    def nullable(self) -> AvroType | None:
        """The other branch of a union of null and one more; None for all other types."""
        if self.kind != "union" or len(self.branches) != 2:
            return None
        others = [one for one in self.branches if one.kind != "null"]
        return others[0] if len(others) == 1 else None


def read_avro(schema: SchemaText) -> AvroType:
    """The tree of a schema.

    Raises:
        DataException: The text is not an Avro schema.
    """
    reader = _Reader()
    for one in schema.references:
        reader.add(one.schema)
    return reader.read(schema.text)


class _Reader:
    def __init__(self) -> None:
        self._names: dict[str, AvroType] = {}
        self._open: list[AvroType] = []

    def add(self, schema: SchemaText) -> None:
        for one in schema.references:
            self.add(one.schema)
        self.read(schema.text)

    def read(self, text: str) -> AvroType:
        try:
            # A schema may be the bare name of a primitive, as in the registry's oldest entries.
            return self._type(text if text in PRIMITIVES else json.loads(text), None)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataException(f"What should be an Avro schema is none: {error}") from error

    def _type(self, node: Any, namespace: str | None) -> AvroType:
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            return AvroType("union", branches=[self._type(one, namespace) for one in node])
        if not isinstance(node, dict) or "type" not in node:
            raise DataException(f"An Avro schema has {json.dumps(node)[:100]} where a type should be")
        kind = node["type"]
        if not isinstance(kind, str):
            return self._type(kind, namespace)
        properties = {name: value for name, value in node.items() if name not in _STRUCTURE}
        if kind in PRIMITIVES:
            return AvroType(kind, properties=properties)
        if kind in ("array", "map"):
            inner = self._type(self._part(node, "items" if kind == "array" else "values"), namespace)
            return AvroType(kind, items=inner, properties=properties)
        if kind in NAMED or kind == "error":
            return self._definition(node, "record" if kind == "error" else kind, namespace, properties)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str | None) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise DataException(f"An Avro schema names {full}, which is neither in it nor in its references")
        if found in self._open:
            # All records between the two contain themselves, too.
            for one in self._open[self._open.index(found) :]:
                one.recursive = True
        return found

    def _definition(
        self, node: Mapping[str, Any], kind: str, namespace: str | None, properties: Mapping[str, Any]
    ) -> AvroType:
        name = str(self._part(node, "name"))
        space, dot, short = name.rpartition(".")
        space = (space if dot else node.get("namespace", namespace)) or ""
        full = f"{space}.{short}" if space else short
        found = AvroType(kind, name=full, doc=node.get("doc"), properties=properties)
        found.aliases = tuple(one if "." in one or not space else f"{space}.{one}" for one in node.get("aliases") or ())
        self._names[full] = found
        if kind == "enum":
            found.symbols = tuple(self._part(node, "symbols"))
            found.properties = {key: value for key, value in properties.items() if key != "default"}
            found.default_symbol = node.get("default")
        elif kind == "fixed":
            found.size = int(self._part(node, "size"))
        else:
            self._open.append(found)
            for one in self._part(node, "fields"):
                part = self._type(self._part(one, "type"), space)
                found.fields.append(
                    AvroField(
                        str(self._part(one, "name")),
                        part,
                        one.get("default", MISSING),
                        one.get("doc"),
                        tuple(one.get("aliases") or ()),
                    )
                )
            self._open.pop()
        return found

    def _part(self, node: Mapping[str, Any], name: str) -> Any:
        if not isinstance(node, dict) or name not in node:
            raise DataException(f"An Avro schema has no {name} in {json.dumps(node)[:100]}")
        return node[name]


def plain(found: AvroType, known: set[str] | None = None, *, reading: bool = False) -> Any:
    """A schema for fastavro with the same encoding and raw values.

    Args:
        found: The type.
        known: The names that are already defined.
        reading: True to read booleans as bytes, because fastavro treats every byte except 0 as true.
    """
    known = set() if known is None else known
    name = found.read_name if reading else None if found.name is None else found.branch_name
    if name is not None:
        if name in known:
            return name
        known.add(name)
        if found.kind == "enum":
            return {"type": "enum", "name": name, "symbols": list(found.wire_symbols)}
        if found.kind in ("fixed", "boolean"):
            return {"type": "fixed", "name": name, "size": found.size if found.kind == "fixed" else 1}
        fields = [{"name": one.name, "type": plain(one.type, known, reading=reading)} for one in found.fields]
        return {"type": "record", "name": name, "fields": fields}
    if found.items is not None:
        part = "items" if found.kind == "array" else "values"
        return {"type": found.kind, part: plain(found.items, known, reading=reading)}
    if found.kind == "union":
        wide = found.wide_branches
        return [
            {"type": one.kind, "logicalType": WIDE} if one.kind in wide else plain(one, known, reading=reading)
            for one in found.branches
        ]
    return found.kind
