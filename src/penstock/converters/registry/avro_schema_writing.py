"""Connect schemas to Avro schemas, by the rules of Confluent's AvroData: the same text, so that Java's id is found.

Main function: ``avro_text``.

Where Java writes a schema that no registry takes, this module does not: maps whose keys are no strings get names of
their own when there are several (``MapEntry2``), as Java names structs without name (``ConnectDefault2``); so do
structs of one name that differ.

Thread: pure functions.
Source: io.confluent.connect.avro.AvroData.fromConnectSchema, org.apache.avro.Schema.toString.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.converters.registry.avro_forms import (
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
    RECORD_DOC,
    UNION,
    VALUE_FIELD,
    AvroOptions,
    anything,
    default_json,
    has_no_json,
    has_text_keys,
    logical_name,
    short_name,
    spelt,
)
from penstock.data import Date, Decimal, Schema, Time, Timestamp, Type
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
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def avro_text(schema: Schema | None, options: AvroOptions) -> str:
    """The text of the Avro schema of a Connect schema; None: of schemaless values.

    Raises:
        DataException: Avro has no such schema.
    """
    node = anything() if schema is None else _Writer(options).type(schema, None)
    # As Java prints it: no blanks, and text as it is.
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def is_enum(schema: Schema) -> bool:
    """Whether a text came from an enum."""
    return schema.type is Type.STRING and ENUM in (schema.parameters or {})


def fixed_size(schema: Schema) -> str | None:
    """The size of the fixed type that bytes came from, when they did."""
    return (schema.parameters or {}).get(FIXED_SIZE) if schema.type is Type.BYTES else None


@dataclass
class _Writer:
    options: AvroOptions
    #: The full name of each named type that was written, by what it is; and the reverse.
    names: dict[tuple[Schema, str], str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def type(self, schema: Schema, space: str | None) -> Any:
        """A schema as a part of one in namespace ``space``."""
        if schema.type is Type.STRUCT and schema.name == UNION:
            return self._union(schema, space)
        base = self._base(schema, space)
        if not schema.optional:
            return base
        return [base, "null"] if schema.default is not None else ["null", base]

    def _union(self, schema: Schema, space: str | None) -> list[Any]:
        branches: list[Any] = ["null"] if schema.optional else []
        # A field stands for one type, and is optional because only one of them is set.
        return branches + [self._base(one.schema, space) for one in schema.fields]

    def _base(self, schema: Schema, space: str | None) -> Any:
        """What it is when it is not null."""
        if schema.type is Type.STRUCT:
            return self._record(schema, space)
        if self.options.enhanced and is_enum(schema):
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
            return self.type(schema, space)
        name = f"{NAMESPACE}.Anything"
        if name in self.taken:
            return _reference(name, space)
        self.taken.add(name)
        return anything()

    # ------------------------------------------------------------------ named types
    def _record(self, schema: Schema, space: str | None) -> Any:
        required = _required(schema)
        full = schema.name or f"{NAMESPACE}.{DEFAULT_NAME}"
        known = self.names.get((required, "record"))
        if known is not None:
            return _reference(known, space)
        name = self._take(full, required, "record")
        parameters = schema.parameters or {}
        node, inner = _head("record", name, space, parameters.get(RECORD_DOC))
        node["fields"] = [
            self._field(one.name, one.schema, inner, parameters.get(FIELD_DOC + one.name)) for one in schema.fields
        ]
        return node | self._properties(schema)

    def _field(self, name: str, schema: Schema | None, space: str | None, doc: str | None = None) -> dict[str, Any]:
        if _NAME.fullmatch(name) is None or "." in name:
            raise DataException(
                f"Avro allows no field of the name {name!r}: letters, digits and _ only, no digit first. Rename it, "
                "for example with the transform ReplaceField"
            )
        node: dict[str, Any] = {"name": name, "type": self._inner(schema, space)}
        if doc is not None:
            node["doc"] = doc
        if schema is None:
            return node
        if schema.default is None:
            return {**node, "default": None} if schema.optional else node
        default = default_json(schema, schema.default)
        return node if has_no_json(default) else {**node, "default": default}

    def _map(self, schema: Schema, space: str | None) -> dict[str, Any]:
        if has_text_keys(schema):
            return {"type": "map", "values": self._inner(schema.value_schema, space)}
        parts = Schema(Type.MAP, name=schema.name, key_schema=schema.key_schema, value_schema=schema.value_schema)
        known = self.names.get((parts, "entry"))
        if known is not None:
            return {"type": "array", "items": _reference(known, space)}
        full = schema.name or f"{NAMESPACE}.{MAP_ENTRY}"
        name = self._take(full, parts, "entry")
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
        full = parameters[ENUM]
        known = self.names.get((_required(schema), "enum"))
        if known is not None:
            return _reference(known, space)
        # As in Java these two are kept under the short name of the schema.
        short = short_name(schema.name or DEFAULT_NAME)
        node, _ = _head("enum", self._take(full, _required(schema), "enum"), space, parameters.get(ENUM_DOC + short))
        node["symbols"] = [value for name, value in parameters.items() if name.startswith(f"{ENUM}.")]
        if ENUM_DEFAULT + short in parameters:
            node["default"] = parameters[ENUM_DEFAULT + short]
        return node | self._properties(schema)

    def _fixed(self, schema: Schema, space: str | None) -> Any:
        assert schema.name is not None, "asked before"
        known = self.names.get((_required(schema), "fixed"))
        if known is not None:
            return _reference(known, space)
        node, _ = _head("fixed", self._take(schema.name, _required(schema), "fixed"), space, None)
        node["size"] = _whole(FIXED_SIZE, fixed_size(schema) or "")
        if logical_name(schema) == Decimal.LOGICAL_NAME:
            node |= _decimal(schema)
        return node | self._properties(schema)

    def _take(self, full: str, schema: Schema, what: str) -> str:
        """A name that is free, and remembers what has it."""
        if _NAME.fullmatch(full) is None:
            raise DataException(
                f"Avro allows no schema of the name {full!r}: letters, digits and _ only, no digit first, with dots "
                "between. Name it otherwise, for example with the transform SetSchemaMetadata"
            )
        name, number = full, 2
        while name in self.taken:
            name, number = f"{full}{number}", number + 1
        self.taken.add(name)
        self.names[schema, what] = name
        return name

    # ------------------------------------------------------------------ properties
    def _properties(self, schema: Schema) -> dict[str, Any]:
        """What Avro has no place for, in Java's order."""
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
        kept = {name: value for name, value in parameters.items() if name != FIELD_DEFAULT}
        if kept:
            found[CONNECT_PARAMETERS] = kept
        if schema.default is not None and FIELD_DEFAULT not in parameters:
            default = spelt(default_json(schema, schema.default))
            if not has_no_json(default):
                found[CONNECT_DEFAULT] = default
        if schema.name is not None:
            found[CONNECT_NAME] = schema.name
        if schema.type in (Type.INT8, Type.INT16):
            found[CONNECT_TYPE] = schema.type.value
        return found


def _head(kind: str, full: str, space: str | None, doc: str | None) -> tuple[dict[str, Any], str | None]:
    """The beginning of a named type, and the namespace of what is in it."""
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
    """The same schema, never null: what a name is defined for."""
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
