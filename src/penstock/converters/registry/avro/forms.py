"""The conventions of Confluent's AvroData for what Avro cannot express: names and properties, forms, defaults.

Maps with other keys are arrays of entries, unions are structs, logical types are stored as primitives.

Main type: ``AvroOptions`` (the converter's settings). Main functions: ``has_text_keys``, ``is_map_entry``,
``union_field``, ``logical_name``; ``default_value`` (JSON to Connect) and ``default_json``.

Thread: constants, values and pure functions.
Source: io.confluent.connect.avro.AvroData, AvroDataConfig.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from penstock.config import AbstractConfig, Importance, setting
from penstock.converters.registry.avro.types import MISSING, AvroType
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
from penstock.data import Date, Decimal, Schema, Struct, Time, Timestamp, Type, round_to_float32, validate_value
from penstock.errors import DataException

NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT_NAME: Final = "ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
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


class AvroOptions(AbstractConfig):
    """The settings for the conversion of schemas."""

    enhanced: bool = setting(
        "enhanced.avro.schema.support",
        default=False,
        doc="Write enums that were read as enums again, and call the parts of unions by their full names.",
        group="Avro",
    )
    metadata: bool = setting(
        "connect.meta.data",
        default=True,
        importance=Importance.LOW,
        doc="Keep the name, version, documentation, parameters and default of Connect schemas in the Avro schema.",
        group="Avro",
    )
    null_stays: bool = setting(
        "ignore.default.for.nullables",
        default=False,
        importance=Importance.LOW,
        doc="Write null for an optional field that is null, and not its default.",
        group="Avro",
    )
    scrub_names: bool = setting(
        "scrub.invalid.names",
        default=False,
        doc="Replace what Avro does not take in names.",
        group="Avro",
    )
    optional_map_keys: bool = setting(
        "allow.optional.map.keys",
        default=False,
        importance=Importance.LOW,
        doc="Whether maps with optional string keys are Avro maps, and not arrays of entries.",
        group="Avro",
    )
    flatten_single_unions: bool = setting(
        "flatten.singleton.unions",
        default=True,
        importance=Importance.LOW,
        doc="Whether a union of one type is read as that type.",
        group="Avro",
    )
    general_sums: bool = setting(
        "generalized.sum.type.support",
        default=False,
        doc="Give enums and unions names that converters of all formats know.",
        group="Avro",
    )
    field_docs_only: bool = setting(
        "discard.type.doc.default",
        default=False,
        importance=Importance.LOW,
        doc="Keep the documentation and default of fields, and not those of their types.",
        group="Avro",
    )

    @property
    def enum_parameter(self) -> str:
        """The parameter that contains an enum's name; its symbols are below it."""
        return GENERAL_ENUM if self.general_sums else ENUM

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
        return scrubbed(name) if self.scrub_names else name

    def full_name(self, name: str) -> str:
        """A full name in the Avro schema.

        Raises:
            DataException: The name has no last part.
        """
        parts = name.split(".")
        while parts and not parts[-1]:
            parts.pop()
        if not parts:
            raise DataException(f"A schema has the name {name!r}, which says nothing; Avro wants one")
        return ".".join(self.name(part) for part in parts)


def is_name(name: str) -> bool:
    """True if a name without dots is valid for Java's Avro library: it may contain letters of any language."""
    return bool(name) and all(
        char == "_" or (char < "\U00010000" and (char.isalpha() or (place > 0 and char.isdecimal())))
        for place, char in enumerate(name)
    )


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)


def scrubbed(name: str) -> str:
    """Turns a text into a valid Avro name.

    >>> scrubbed("a-b c"), scrubbed("_id"), scrubbed("3d"), scrubbed("fine"), scrubbed("\u00e4")
    ('a_b_c', '_id', 'x3d', 'fine', '_C3_A4')
    """
    if not name or _PLAIN.fullmatch(name):
        return name
    encoded = quote(name, safe="*", errors="replace").replace("~", "%7E").replace("%20", "+")
    return _NOT_PLAIN.sub("_", f"x{encoded}" if encoded[0].isdigit() else encoded)


def is_union(schema: Schema) -> bool:
    """True if a struct represents a union: one field for each type, of which one is set."""
    return schema.type is Type.STRUCT and (schema.name == UNION or GENERAL_UNION in (schema.parameters or {}))


def short_name(full: str) -> str:
    """The last part of a dotted name."""
    return full.rpartition(".")[2]


_CARRIERS: Final = {
    Decimal.LOGICAL_NAME: Type.BYTES,
    Time.LOGICAL_NAME: Type.INT32,
    Timestamp.LOGICAL_NAME: Type.INT64,
    Date.LOGICAL_NAME: Type.INT32,
}
_TO_CARRIED: Final[dict[str, Any]] = {
    Decimal.LOGICAL_NAME: Decimal.from_logical,
    Time.LOGICAL_NAME: Time.from_logical,
    Timestamp.LOGICAL_NAME: Timestamp.from_logical,
    Date.LOGICAL_NAME: Date.from_logical,
}
#: Converts a raw value to the value of a logical type.
FROM_CARRIED: Final[Mapping[str, Any]] = {
    Decimal.LOGICAL_NAME: Decimal.to_logical,
    Date.LOGICAL_NAME: Date.to_logical,
    Time.LOGICAL_NAME: Time.to_logical,
    Timestamp.LOGICAL_NAME: Timestamp.to_logical,
}


def logical_name(schema: Schema) -> str | None:
    """The name of a schema's logical type, if the schema has the right base type."""
    return schema.name if schema.name is not None and _CARRIERS.get(schema.name) is schema.type else None


def to_carried(schema: Schema) -> Any:
    """Returns the function from a logical type's value to the raw one, or None for schemas without a logical type."""
    name = logical_name(schema)
    return None if name is None else _TO_CARRIED[name]


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


def is_map_entry(found: AvroType) -> bool:
    """True if arrays of this type are maps whose keys are not strings."""
    if found.kind != "record":
        return False
    return found.name == f"{NAMESPACE}.{MAP_ENTRY}" or found.properties.get(INTERNAL_TYPE) == MAP_ENTRY


def entry_types(entry: AvroType) -> tuple[AvroType, AvroType]:
    """The types of key and value of a map stored as an array of entries.

    Raises:
        DataException: The entry has other fields.
    """
    fields = {one.name: one.type for one in entry.fields}
    if fields.keys() != {KEY_FIELD, VALUE_FIELD}:
        raise DataException(
            "Found map encoded as array of key-value pairs, but array elements do not match the expected format."
        )
    return fields[KEY_FIELD], fields[VALUE_FIELD]


class Single(float):
    """A 32-bit default, which is printed with fewer digits."""


def default_value(schema: Schema | None, found: AvroType, value: Any, options: AvroOptions) -> Any:
    """The Connect value of a default in a schema's JSON.

    Raises:
        DataException: The JSON does not fit the schema.
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
    single = len(found.branches) == 1 and options.flatten_single_unions
    member = first if single else found.nullable
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
    """The JSON form of a default. NaN and the infinities stay floats, see ``spelt``.

    Raises:
        DataException: The default does not fit the schema.
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
