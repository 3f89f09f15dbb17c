"""The conventions of Confluent's AvroData for what Avro cannot express: names and properties, forms, defaults.

Maps with other keys are arrays of entries, unions are structs, logical types are stored as primitives. Schemas are
trees with resolved names, and reduced schemas for fastavro (``plain``: without logical types, defaults and properties,
because values are converted here).

Source: io.confluent.connect.avro.AvroData, AvroDataConfig; the Avro specification, 1.12, "Schema Declaration" and
"Names".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.config import AbstractConfig, Importance, setting
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.formats import LOGICAL, scrubbed
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
from penstock.data import Schema, Struct, Type, round_to_float32, validate_value
from penstock.errors import DataException
from penstock.pipeline.columns.layout import logical_name

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "enum", "fixed"})
#: The Avro types for values of a Connect type, the best one first.
KINDS: Final = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32), ("int", "long", "float", "double")),
    Type.INT64: ("long", "int", "float", "double"),
    Type.FLOAT32: ("float", "double"),
    Type.FLOAT64: ("double", "float"),
    Type.BOOLEAN: ("boolean",),
    Type.STRING: ("string", "enum"),
    Type.BYTES: ("bytes", "fixed"),
    Type.ARRAY: ("array",),
    Type.MAP: ("map", "array"),
    Type.STRUCT: ("record",),
}
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
    """An Avro type. Types are compared by identity; records, enums and fixed have a full name and aliases.

    Attributes:
        kind: ``record``, ``union``, ``int`` ...
        items: Of an array, or the values of a map.
        properties: Everything that is not part of the structure.
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
    """The tree of a schema."""
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
            raise DataException(f"The text is not an Avro schema: {error}") from error

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
    """A schema for fastavro with the same encoding and raw values. ``known``: the names that are already defined.

    ``reading`` reads booleans as bytes, because fastavro treats every byte except 0 as true.
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


NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT_NAME: Final = "ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
ENTRY_NAME: Final = f"{NAMESPACE}.{MAP_ENTRY}"
KEY_FIELD: Final = "key"
VALUE_FIELD: Final = "value"

CONNECT_NAME: Final = "connect.name"
CONNECT_DOC: Final = "connect.doc"
CONNECT_VERSION: Final = "connect.version"
CONNECT_DEFAULT: Final = "connect.default"
CONNECT_PARAMETERS: Final = "connect.parameters"
CONNECT_TYPE: Final = "connect.type"
INTERNAL_TYPE: Final = "connect.internal.type"
FIXED_SIZE: Final = "connect.fixed.size"
DECIMAL_PRECISION: Final = "connect.decimal.precision"
DEFAULT_PRECISION: Final = 64

RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
#: The values of these two with ``discard.type.doc.default``.
PLAIN_RECORD_DOC: Final = "connect.record.doc"
PLAIN_ENUM_DOC: Final = "connect.enum.doc"
FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
FIELD_DEFAULT: Final = f"{NAMESPACE}.field.default"
ENUM_DOC: Final = f"{NAMESPACE}.enum.doc."
ENUM_DEFAULT: Final = f"{NAMESPACE}.enum.default."
UNION: Final = f"{NAMESPACE}.Union"
ENUM: Final = f"{NAMESPACE}.Enum"
ANYTHING: Final = f"{NAMESPACE}.Anything"
#: Parameters with this prefix are properties of the Avro type, and the reverse.
AVRO_PREFIX: Final = "avro"
#: Names of unions with ``generalized.sum.type.support``.
GENERAL_UNION_PREFIX: Final = "connect_union_"

_ANYTHING_FIELDS: Final = ("boolean", "bytes", "double", "float", "int", "long", "string")


def anything() -> dict[str, Any]:
    """The schema of schemaless values: a record with one field set."""
    entry_fields = [{"name": name, "type": "Anything"} for name in (KEY_FIELD, VALUE_FIELD)]
    entry = {"type": "record", "name": MAP_ENTRY, "fields": entry_fields}
    fields: list[dict[str, Any]] = [
        {"name": name, "type": ["null", name], "default": None} for name in _ANYTHING_FIELDS
    ]
    for name, items in (("array", "Anything"), ("map", entry)):
        fields.append({"name": name, "type": ["null", {"type": "array", "items": items}], "default": None})
    return {"type": "record", "name": "Anything", "namespace": NAMESPACE, "fields": fields}


_option: Final = partial(setting, default=False, group="Avro")
_low: Final = partial(_option, importance=Importance.LOW)


class AvroOptions(AbstractConfig):
    """The settings for the conversion of schemas."""

    enhanced: bool = _option(
        "enhanced.avro.schema.support",
        doc="Write enums that were read as enums again, and call the parts of unions by their full names.",
    )
    metadata: bool = _low(
        "connect.meta.data",
        default=True,
        doc="Keep the name, version, documentation, parameters and default of Connect schemas in the Avro schema.",
    )
    null_stays: bool = _low(
        "ignore.default.for.nullables", doc="Write null for an optional field that is null, and not its default."
    )
    scrub_names: bool = _option("scrub.invalid.names", doc="Replace what Avro does not take in names.")
    optional_map_keys: bool = _low(
        "allow.optional.map.keys",
        doc="Whether maps with optional string keys are Avro maps, and not arrays of entries.",
    )
    flatten_single_unions: bool = _low(
        "flatten.singleton.unions", default=True, doc="Whether a union of one type is read as that type."
    )
    general_sums: bool = _option(
        "generalized.sum.type.support", doc="Give enums and unions names that converters of all formats know."
    )
    field_docs_only: bool = _low(
        "discard.type.doc.default", doc="Keep the documentation and default of fields, and not those of their types."
    )

    @property
    def enum_parameter(self) -> str:
        """The parameter that contains an enum's name; its symbols are below it."""
        return GENERAL_ENUM if self.general_sums else ENUM

    @property
    def type_docs(self) -> bool:
        """True if types, and not only fields, keep documentation and defaults."""
        return self.metadata and not self.field_docs_only

    @property
    def writes_enums(self) -> bool:
        """True if texts that were enums are written as enums."""
        return self.enhanced or self.general_sums

    @property
    def record_doc(self) -> str:
        """The parameter that contains the documentation of a record."""
        return PLAIN_RECORD_DOC if self.field_docs_only else RECORD_DOC

    def name(self, name: str) -> str:
        """A name without dots in the Avro schema."""
        return scrubbed(name, may_begin="_") if self.scrub_names else name

    def full_name(self, name: str) -> str:
        """A full name in the Avro schema."""
        parts = name.split(".")
        while parts and not parts[-1]:
            parts.pop()
        if not parts:
            raise DataException(f"The schema name {name!r} has no last part, which Avro requires")
        return ".".join(self.name(part) for part in parts)


def is_name(name: str) -> bool:
    """True if a name without dots is valid for Java's Avro library: it may contain letters of any language."""
    return bool(name) and all(
        char == "_" or (char < "\U00010000" and (char.isalpha() or (place > 0 and char.isdecimal())))
        for place, char in enumerate(name)
    )


def is_union(schema: Schema) -> bool:
    """True if a struct represents a union: one field for each type, of which one is set."""
    return schema.type is Type.STRUCT and (schema.name == UNION or GENERAL_UNION in (schema.parameters or {}))


def short_name(full: str) -> str:
    """The last part of a dotted name."""
    return full.rpartition(".")[2]


def has_text_keys(schema: Schema, options: AvroOptions) -> bool:
    """True if a map is an Avro map; others are arrays of entries."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and (options.optional_map_keys or not keys.optional)


def union_field(branch: AvroType, options: AvroOptions, place: int) -> str:
    """Returns the field name, in the struct of a union, for the type at a position."""
    if options.general_sums:
        return f"{GENERAL_UNION_PREFIX}field_{place}"
    if branch.name is None:
        return branch.kind
    return branch.name if options.enhanced else short_name(branch.name)


def only_member(found: AvroType, options: AvroOptions) -> AvroType | None:
    """The single type of a union that is read as that type."""
    single = found.kind == "union" and len(found.branches) == 1 and options.flatten_single_unions
    return found.branches[0] if single else found.nullable


def is_map_entry(found: AvroType) -> bool:
    """True if arrays of this type are maps whose keys are not strings."""
    if found.kind != "record":
        return False
    return found.name == ENTRY_NAME or found.properties.get(INTERNAL_TYPE) == MAP_ENTRY


def entry_types(entry: AvroType) -> tuple[AvroType, AvroType]:
    """The types of key and value of a map stored as an array of entries."""
    fields = {one.name: one.type for one in entry.fields}
    if fields.keys() != {KEY_FIELD, VALUE_FIELD}:
        raise DataException(
            "Found map encoded as array of key-value pairs, but array elements do not match the expected format."
        )
    return fields[KEY_FIELD], fields[VALUE_FIELD]


class Single(float):
    """A 32-bit default, which is printed with fewer digits."""


def default_value(schema: Schema | None, found: AvroType, value: Any, options: AvroOptions) -> Any:
    """The Connect value of a default in a schema's JSON."""
    if value is None:
        return None
    if schema is None:
        raise DataException("A default of a schemaless value has no form in Connect")
    if found.kind == "union":
        return _union_default(schema, found, value, options)
    result = _plain_default(schema, found, value, options)
    logical = LOGICAL.get(schema.name)
    return result if logical is None or result is None else logical.to_logical(schema, result)


def _union_default(schema: Schema, found: AvroType, value: Any, options: AvroOptions) -> Any:
    first = found.branches[0]
    member = only_member(found, options)
    if member is not None:
        return default_value(schema, member, value, options)
    if first.kind == "null":
        return None
    name = union_field(first, options, 0)
    part = schema.field(name)
    assert part is not None, "the struct of a union has a field for each type"
    return Struct(schema).put(name, default_value(part.schema, first, value, options))


def _plain_default(schema: Schema, found: AvroType, value: Any, options: AvroOptions) -> Any:
    try:
        if found.kind in ("bytes", "fixed"):
            return value.encode("latin-1")
        if found.kind in ("float", "double"):
            # JSON has no numbers for NaN and the infinities.
            return round_to_float32(float(value)) if found.kind == "float" else float(value)
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


def default_json(schema: Schema | None, value: Any, options: AvroOptions) -> Any:
    """The JSON form of a default. NaN and the infinities stay floats, see ``spelt``."""
    if value is None:
        return None
    if schema is None:
        raise DataException("A default holds a value without a schema, which has no form in Avro")
    logical = logical_name(schema)
    carried = value if logical is None else LOGICAL[logical].from_logical(schema, value)
    kind = schema.type
    if kind is Type.BYTES:
        return bytes(carried).decode("latin-1")
    if kind is Type.ARRAY:
        return [default_json(schema.value_schema, one, options) for one in carried]
    if kind is Type.MAP and has_text_keys(schema, options):
        return {key: default_json(schema.value_schema, one, options) for key, one in carried.items()}
    if kind is Type.MAP:
        sides = (schema.key_schema, schema.value_schema)
        return [
            [default_json(side, one, options) for side, one in zip(sides, entry, strict=True)]
            for entry in carried.items()
        ]
    if kind is Type.STRUCT:
        assert isinstance(carried, Struct), "builders check defaults"
        if is_union(schema):
            # The default of a union belongs to its first type.
            first = schema.fields[0]
            return default_json(first.schema, carried.get(first.name), options)
        return {
            options.name(one.name): default_json(one.schema, carried.get(one.name), options) for one in schema.fields
        }
    validate_value(Schema(kind), carried)
    return Single(round_to_float32(carried)) if kind is Type.FLOAT32 else carried


def doubled(node: Any) -> Any:
    """Replaces 32-bit numbers by the 64-bit numbers that they become in the default of a field."""
    if isinstance(node, dict):
        return {name: doubled(one) for name, one in node.items()}
    return (
        [doubled(one) for one in node] if isinstance(node, list) else float(node) if isinstance(node, Single) else node
    )


def is_field_default(schema: Schema | None, value: Any, options: AvroOptions) -> bool:
    """True if a default is valid for an Avro field: in a union, at any depth, it must belong to the first type."""
    if schema is None:
        return False
    if is_union(schema):
        set_one = None if value is None else value.get(schema.fields[0].name)
        if schema.optional or set_one is None:
            return schema.optional and set_one is None
        return _is_plain_default(schema.fields[0].schema, set_one, options)
    null_first = schema.optional and (schema.default is None or schema.type is Type.STRUCT)
    return value is None if null_first else value is not None and _is_plain_default(schema, value, options)


def _is_plain_default(schema: Schema, value: Any, options: AvroOptions) -> bool:
    if schema.type is Type.ARRAY:
        return all(is_field_default(schema.value_schema, one, options) for one in value)
    if schema.type is Type.MAP and has_text_keys(schema, options):
        return all(is_field_default(schema.value_schema, one, options) for one in value.values())
    if schema.type is Type.MAP:
        return not value
    if schema.type is Type.STRUCT:
        return all(is_field_default(one.schema, value.get(one.name), options) for one in schema.fields)
    return not isinstance(value, float) or math.isfinite(value)


def spelt(node: Any) -> Any:
    """Replaces numbers that JSON does not have by texts."""
    if isinstance(node, float) and not math.isfinite(node):
        return "NaN" if math.isnan(node) else "Infinity" if node > 0 else "-Infinity"
    if isinstance(node, dict):
        return {name: spelt(one) for name, one in node.items()}
    return [spelt(one) for one in node] if isinstance(node, list) else node
