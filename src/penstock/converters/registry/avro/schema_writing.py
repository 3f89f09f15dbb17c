"""Converts Connect schemas to Avro schemas by the rules of Confluent's AvroData, with the same text, so that they have
the same ids.

Main function: ``avro_text``.

Some schemas that Java writes are rejected by every registry; this module differs there: several maps whose keys are not
strings get different names (``MapEntry2``), like Java's structs without a name (``ConnectDefault2``); so do different
structs with the same name.

Thread: pure functions.
Source: io.confluent.connect.avro.AvroData.fromConnectSchema, org.apache.avro.Schema.toString.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.converters.registry.avro.forms import (
    AVRO_PREFIX,
    CONNECT_DEFAULT,
    CONNECT_DOC,
    CONNECT_NAME,
    CONNECT_PARAMETERS,
    CONNECT_TYPE,
    CONNECT_VERSION,
    DECIMAL_PRECISION,
    DEFAULT_NAME,
    DEFAULT_PRECISION,
    ENUM,
    ENUM_DEFAULT,
    ENUM_DOC,
    FIELD_DEFAULT,
    FIELD_DOC,
    FIXED_SIZE,
    INTERNAL_TYPE,
    KEY_FIELD,
    MAP_ENTRY,
    NAMESPACE,
    PLAIN_ENUM_DOC,
    VALUE_FIELD,
    AvroOptions,
    Single,
    anything,
    default_json,
    doubled,
    has_text_keys,
    is_field_default,
    is_name,
    is_union,
    logical_name,
    short_name,
    spelt,
)
from penstock.converters.registry.settings import GENERAL_ENUM
from penstock.converters.registry.shapes import shape
from penstock.data import Date, Decimal, Schema, Time, Timestamp, Type, java_double, java_float
from penstock.errors import DataException

_KINDS: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_LOGICAL_TYPES: Final = {
    Decimal.LOGICAL_NAME: "decimal",
    Time.LOGICAL_NAME: "time-millis",
    Timestamp.LOGICAL_NAME: "timestamp-millis",
    Date.LOGICAL_NAME: "date",
}
_ENUMS: Final = frozenset({ENUM, GENERAL_ENUM})
#: Prefixes of parameters that make schemas with the same name different types.
_SHAPING: Final = (FIXED_SIZE, DECIMAL_PRECISION, *_ENUMS)


_ESCAPES: Final = {ord('"'): '\\"', ord("\\"): "\\\\"} | {place: f"\\u{place:04X}" for place in range(32)} | {
    ord(char): f"\\{name}" for char, name in zip("\b\f\n\r\t", "bfnrt", strict=True)
}  # fmt: skip


def avro_text(schema: Schema | None, options: AvroOptions) -> str:
    """The text of the Avro schema of a Connect schema; None: schemaless values.

    Raises:
        DataException: Avro cannot express the schema.
    """
    return _printed(anything() if schema is None else _Writer(options).part(schema, None))


def _printed(node: Any) -> str:
    """JSON as Java's Avro prints it: without blanks, texts unescaped, numbers as in Java."""
    if isinstance(node, dict):
        return f"{{{','.join(f'{_printed(name)}:{_printed(one)}' for name, one in node.items())}}}"
    if isinstance(node, list):
        return f"[{','.join(map(_printed, node))}]"
    if isinstance(node, str):
        return f'"{node.translate(_ESCAPES)}"'
    if isinstance(node, Single):
        return java_float(node)
    return java_double(node) if isinstance(node, float) else json.dumps(node)


def is_enum(schema: Schema, options: AvroOptions) -> bool:
    """True if a text is written as an enum."""
    return options.writes_enums and schema.type is Type.STRING and not _ENUMS.isdisjoint(schema.parameters or {})


def fixed_size(schema: Schema) -> str | None:
    """The size of the Avro fixed type that bytes were read from, or None."""
    return (schema.parameters or {}).get(FIXED_SIZE) if schema.type is Type.BYTES else None


@dataclass
class _Writer:
    options: AvroOptions
    #: The full name of each named type written so far, by its content; and the reverse.
    names: dict[object, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    #: The number of types without a name.
    unnamed: int = 0

    def part(self, schema: Schema, space: str | None, *, inside: bool = False) -> Any:
        """A schema as a part of a schema in namespace ``space``; ``inside``: of an array or map."""
        if is_union(schema):
            return self._union(schema, space)
        if not schema.optional:
            return self._base(schema, space)
        # As in Java: a record comes second whatever its default is, unless arrays or maps use it after its definition.
        first = schema.default is not None and (schema.type is not Type.STRUCT or (inside and self._known(schema)))
        base = self._base(schema, space)
        return [base, "null"] if first else ["null", base]

    def _union(self, schema: Schema, space: str | None) -> list[Any]:
        branches: list[Any] = ["null"] if schema.optional else []
        # A field represents one type, and is optional only because just one field is set.
        return branches + [self._base(one.schema, space) for one in schema.fields]

    def _base(self, schema: Schema, space: str | None) -> Any:
        """Returns the Avro schema of a Connect schema, without null."""
        if schema.type is Type.STRUCT:
            return self._record(schema, space)
        if is_enum(schema, self.options):
            return self._enum(schema, space)
        if fixed_size(schema) is not None and schema.name is not None:
            return self._fixed(schema, space)
        if schema.type is Type.ARRAY:
            node: dict[str, Any] = {"type": "array", "items": self._inner(schema.value_schema, space)}
        elif schema.type is Type.MAP:
            node = self._map(schema, space)
        else:
            node = {"type": _KINDS[schema.type]}
            if logical_name(schema) == Decimal.LOGICAL_NAME:
                node |= _decimal(schema)
        node |= self._properties(schema)
        return node["type"] if len(node) == 1 else node

    def _inner(self, schema: Schema | None, space: str | None) -> Any:
        if schema is not None:
            return self.part(schema, space, inside=True)
        name = f"{NAMESPACE}.Anything"
        if name in self.taken:
            return _reference(name, space)
        self.taken.add(name)
        return anything()

    # ------------------------------------------------------------------ named types
    def _known(self, schema: Schema) -> bool:
        """True if a struct of this name and shape was defined before."""
        return schema.name is not None and shape(schema, _SHAPING) in self.names

    def _record(self, schema: Schema, space: str | None) -> Any:
        # Structs with the same name and shape share one type, even if other properties differ; the first use counts.
        # Structs without a name must be equal in everything.
        kind: object = _required(schema) if schema.name is None else shape(schema, _SHAPING)
        known = self.names.get(kind)
        if known is not None:
            return _reference(known, space)
        name = self._take(self._full_name(schema.name), kind)
        parameters = schema.parameters or {}
        node, inner = _head("record", name, space, parameters.get(self.options.record_doc))
        docs = {} if self.options.field_docs_only else parameters
        node["fields"] = [
            self._field(one.name, one.schema, inner, docs.get(FIELD_DOC + one.name)) for one in schema.fields
        ]
        return node | self._properties(schema)

    def _full_name(self, name: str | None) -> str:
        if name is not None:
            return self.options.full_name(name)
        self.unnamed += 1
        return f"{NAMESPACE}.{DEFAULT_NAME}{self.unnamed if self.unnamed > 1 else ''}"

    def _field(self, name: str, schema: Schema | None, space: str | None, doc: str | None = None) -> dict[str, Any]:
        written = self.options.name(name)
        if not is_name(written):
            raise DataException(
                f"Avro allows no field of the name {name!r}: letters, digits and _ only, no digit first. Rename it, "
                "for example with the transform ReplaceField, or set scrub.invalid.names=true"
            )
        kind = self._inner(None, space) if schema is None else self.part(schema, space)
        node: dict[str, Any] = {"name": written, "type": kind}
        if self.options.field_docs_only:
            doc = None if schema is None else schema.doc
        if doc is not None:
            node["doc"] = doc
        if schema is None:
            return node
        if schema.default is None:
            return {**node, "default": None} if schema.optional else node
        default = default_json(schema, schema.default, self.options)
        fits = is_field_default(schema, schema.default, self.options)
        return {**node, "default": doubled(default)} if fits else node

    def _map(self, schema: Schema, space: str | None) -> dict[str, Any]:
        if has_text_keys(schema, self.options):
            return {"type": "map", "values": self._inner(schema.value_schema, space)}
        parts = Schema(Type.MAP, name=schema.name, key_schema=schema.key_schema, value_schema=schema.value_schema)
        known = self.names.get(parts)
        if known is not None:
            return {"type": "array", "items": _reference(known, space)}
        name = self._take(f"{NAMESPACE}.{MAP_ENTRY}" if schema.name is None else self._full_name(schema.name), parts)
        node, inner = _head("record", name, space, None)
        node["fields"] = [
            self._field(KEY_FIELD, schema.key_schema, inner),
            self._field(VALUE_FIELD, schema.value_schema, inner),
        ]
        if name != f"{NAMESPACE}.{MAP_ENTRY}":
            node[INTERNAL_TYPE] = MAP_ENTRY
        return {"type": "array", "items": node}

    def _enum(self, schema: Schema, space: str | None) -> Any:
        parameters = schema.parameters or {}
        full = parameters.get(self.options.enum_parameter)
        if full is None:
            raise DataException(f"An enum has no parameter {self.options.enum_parameter}, which is its name: {schema}")
        # As in Java these two are stored under the short name of the schema.
        short = short_name(self._full_name(schema.name))
        prefix = f"{self.options.enum_parameter}."
        symbols = [name.removeprefix(prefix) for name in parameters if name.startswith(prefix)]
        for symbol in symbols:
            if not is_name(symbol):
                raise DataException(f"Avro allows no symbol {symbol!r} in the enum {full}: letters, digits and _ only")
        known = self.names.get((full, *symbols))
        if known is not None:
            return _reference(known, space)
        doc = parameters.get(ENUM_DOC + short) if not self.options.field_docs_only else parameters.get(PLAIN_ENUM_DOC)
        node, _ = _head("enum", self._take(full, (full, *symbols)), space, doc)
        node["symbols"] = symbols
        if not self.options.field_docs_only and ENUM_DEFAULT + short in parameters:
            node["default"] = parameters[ENUM_DEFAULT + short]
        return node | self._properties(schema)

    def _fixed(self, schema: Schema, space: str | None) -> Any:
        size = _whole(FIXED_SIZE, fixed_size(schema) or "")
        full = self._full_name(schema.name)
        known = self.names.get((full, size))
        if known is not None:
            return _reference(known, space)
        node, _ = _head("fixed", self._take(full, (full, size)), space, None)
        node["size"] = size
        if logical_name(schema) == Decimal.LOGICAL_NAME:
            node |= _decimal(schema)
        return node | self._properties(schema)

    def _take(self, full: str, kind: object) -> str:
        """Finds a free name and records its owner."""
        if not is_name(short_name(full)):
            raise DataException(
                f"Avro allows no schema of the name {full!r}: letters, digits and _ only in its last part, no digit "
                "first. Name it otherwise, for example with the transform SetSchemaMetadata, or set "
                "scrub.invalid.names=true"
            )
        name, number = full, 2
        while name in self.taken:
            name, number = f"{full}{number}", number + 1
        self.taken.add(name)
        self.names[kind] = name
        return name

    # ------------------------------------------------------------------ properties
    def _properties(self, schema: Schema) -> dict[str, Any]:
        """Returns the properties that Avro itself does not have, in Java's order."""
        found: dict[str, Any] = {}
        parameters = schema.parameters or {}
        if self.options.metadata:
            found = self._metadata(schema, parameters)
        logical = logical_name(schema)
        if logical is not None:
            found["logicalType"] = _LOGICAL_TYPES[logical]
        for name, value in parameters.items():
            if name.startswith(AVRO_PREFIX):
                found[name] = value
        return found

    def _metadata(self, schema: Schema, parameters: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if schema.doc is not None:
            found[CONNECT_DOC] = schema.doc
        if schema.version is not None:
            found[CONNECT_VERSION] = schema.version
        flagged = FIELD_DEFAULT in parameters and not self.options.field_docs_only
        kept = {name: value for name, value in parameters.items() if name != FIELD_DEFAULT or not flagged}
        if kept:
            found[CONNECT_PARAMETERS] = kept
        if schema.default is not None and not flagged:
            found[CONNECT_DEFAULT] = spelt(default_json(schema, schema.default, self.options))
        if schema.name is not None:
            found[CONNECT_NAME] = schema.name
        if schema.type in (Type.INT8, Type.INT16):
            found[CONNECT_TYPE] = schema.type.value
        return found


def _head(kind: str, full: str, space: str | None, doc: str | None) -> tuple[dict[str, Any], str | None]:
    """The beginning of a named type, and the namespace of its parts."""
    own, _, short = full.rpartition(".")
    node: dict[str, Any] = {"type": kind, "name": short}
    if own != (space or ""):
        node["namespace"] = own
    if doc is not None:
        node["doc"] = doc
    return node, own or None


def _reference(full: str, space: str | None) -> str:
    own, _, short = full.rpartition(".")
    return short if own == (space or "") else full


def _required(schema: Schema) -> Schema:
    """The same schema without null: a named type is defined for that."""
    if not schema.optional:
        return schema
    return Schema(
        schema.type,
        default=schema.default,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        fields=schema.fields if schema.type is Type.STRUCT else (),
    )


def _decimal(schema: Schema) -> dict[str, Any]:
    parameters = schema.parameters or {}
    precision = parameters.get(DECIMAL_PRECISION)
    return {
        "scale": Decimal.scale(schema),
        "precision": DEFAULT_PRECISION if precision is None else _whole(DECIMAL_PRECISION, precision),
    }


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DataException(f"The schema parameter {name} must be a whole number, and is {text}") from error
