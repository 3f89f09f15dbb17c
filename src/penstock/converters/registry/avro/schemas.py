"""Converts Avro schemas to Connect schemas and back, by the rules of Confluent's AvroData.

Avro schemas are written with Java's text, so that they have the same ids. Some schemas that Java writes are rejected by
every registry; this module differs there: several maps whose keys are not strings get different names (``MapEntry2``),
like Java's structs without a name (``ConnectDefault2``); so do different structs with the same name.

Source: io.confluent.connect.avro.AvroData.toConnectSchema, fromConnectSchema; org.apache.avro.Schema.toString.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from penstock.converters.registry.avro import forms
from penstock.converters.registry.avro.forms import AvroField, AvroOptions, AvroType, Single
from penstock.converters.registry.formats import shape
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
from penstock.data import STRING_SCHEMA as TEXT_KEYS
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type, java_double, java_float
from penstock.errors import DataException
from penstock.pipeline.columns.layout import logical_name

log = logging.getLogger(__name__)
_PLAIN: Final = {
    "boolean": Type.BOOLEAN,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
    "double": Type.FLOAT64,
    "float": Type.FLOAT32,
    "int": Type.INT32,
    "long": Type.INT64,
    "string": Type.STRING,
}
_SMALL: Final = {"int8": Type.INT8, "int16": Type.INT16}


def connect_schema(found: AvroType, options: AvroOptions, version: int | None = None) -> Schema | None:
    """The Connect schema of an Avro schema; None for the schema of schemaless values. ``version``: if the schema has
    none.
    """
    return None if found.name == forms.ANYTHING else _convert(found, _Reading(options), version=version)


@dataclass
class _Reading:
    """A conversion of one schema."""

    options: AvroOptions
    #: The number of unions that need a name.
    unions: int = 0


def _convert(
    found: AvroType,
    reading: _Reading,
    *,
    optional: bool = False,
    default: Any = forms.MISSING,
    version: int | None = None,
    field_doc: str | None = None,
) -> Schema:
    member = forms.only_member(found, reading.options)
    if member is not None:
        # As in Java, the field's own default is ignored; connect.default is used.
        return _convert(member, reading, optional=found.nullable is not None, field_doc=field_doc)
    builder = _builder(found, reading)
    properties = found.properties
    _set_doc(builder, found, reading.options, field_doc)
    _set_version(builder, properties.get(forms.CONNECT_VERSION, version))
    _add_parameters(builder, properties, reading.options)
    said = properties.get(forms.CONNECT_DEFAULT)
    if default is not forms.MISSING and said is None and reading.options.type_docs:
        builder.parameter(forms.FIELD_DEFAULT, "true")
    chosen = said if default is forms.MISSING or default is None else default
    if chosen is not None:
        try:
            value = forms.default_value(builder.build(), found, chosen, reading.options)
            if value is not None:
                builder.default_value(value)
        except DataException as error:
            # As in Java: the values are valid without it.
            log.warning("A default of the Avro schema %s is left out: %s", found.shown, error)
    _set_name(builder, found)
    if optional:
        builder.optional()
    return builder.build()


def _set_doc(builder: SchemaBuilder, found: AvroType, options: AvroOptions, field_doc: str | None) -> None:
    said = found.properties.get(forms.CONNECT_DOC)
    doc = said if isinstance(said, str) else None
    if not options.field_docs_only:
        builder.doc(doc if options.metadata else None)
        return
    builder.doc(next((one for one in (field_doc, found.doc) if one is not None), doc))
    if options.metadata and found.doc is not None:
        builder.parameter(forms.PLAIN_RECORD_DOC, found.doc)


def _builder(found: AvroType, reading: _Reading) -> SchemaBuilder:
    kind, logical = found.kind, found.properties.get("logicalType")
    if found.recursive:
        _refuse(f"the record {found.name} contains itself, and a schema of Connect cannot here")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(found)
    if kind == "int" and logical in ("date", "time-millis"):
        return Date.builder() if logical == "date" else Time.builder()
    if kind == "long" and logical == "timestamp-millis":
        return Timestamp.builder()
    if kind == "int" and logical is None and forms.CONNECT_TYPE in found.properties:
        small = _SMALL.get(found.properties[forms.CONNECT_TYPE])
        if small is None:
            raise DataException("Connect type annotation for Avro int field is null")
        return SchemaBuilder(small)
    if kind in _PLAIN:
        builder = SchemaBuilder(_PLAIN[kind])
        return builder.parameter(forms.FIXED_SIZE, str(found.size)) if kind == "fixed" else builder
    if kind == "enum":
        return _enum(found, reading.options)
    if kind == "array":
        return _array(found, reading)
    if kind == "map":
        assert found.items is not None, "maps have values"
        return SchemaBuilder.untyped_map(TEXT_KEYS, _inner(found.items, reading))
    if kind == "record":
        return _struct(found, reading)
    if kind == "union":
        return _union(found, reading)
    raise DataException("Standalone null schemas are not supported by this converter")


def _refuse(reason: str) -> NoReturn:
    raise DataException(f"An Avro schema has no Connect schema: {reason}")


def _inner(found: AvroType, reading: _Reading) -> Schema | None:
    """Returns the schema of elements, or None if they are schemaless."""
    return None if found.name == forms.ANYTHING else _convert(found, reading)


def _decimal(found: AvroType) -> SchemaBuilder:
    scale = found.properties.get("scale")
    # As in Java and in the specification: without a scale it is 0.
    builder = Decimal.builder(scale if isinstance(scale, int) else 0)
    precision = found.properties.get("precision")
    if precision is not None:
        if not isinstance(precision, int):
            raise DataException("precision property must be a JSON Integer.")
        if precision != forms.DEFAULT_PRECISION:
            builder.parameter(forms.DECIMAL_PRECISION, str(precision))
    return builder.parameter(forms.FIXED_SIZE, str(found.size)) if found.kind == "fixed" else builder


def _enum(found: AvroType, options: AvroOptions) -> SchemaBuilder:
    assert found.name is not None, "enums have names"
    builder = SchemaBuilder.string()
    short = forms.short_name(found.name)
    if options.metadata and found.doc is not None:
        builder.parameter(forms.PLAIN_ENUM_DOC if options.field_docs_only else forms.ENUM_DOC + short, found.doc)
    if options.type_docs and found.default_symbol is not None:
        builder.parameter(forms.ENUM_DEFAULT + short, found.default_symbol)
    parameter = options.enum_parameter
    builder.parameter(parameter, found.name)
    for place, symbol in enumerate(found.symbols):
        builder.parameter(f"{parameter}.{symbol}", str(place) if options.general_sums else symbol)
    return builder


def _array(found: AvroType, reading: _Reading) -> SchemaBuilder:
    assert found.items is not None, "arrays have items"
    if forms.is_map_entry(found.items):
        keys, values = forms.entry_types(found.items)
        return SchemaBuilder.untyped_map(_inner(keys, reading), _inner(values, reading))
    return SchemaBuilder.untyped_array(_inner(found.items, reading))


def _struct(found: AvroType, reading: _Reading) -> SchemaBuilder:
    builder = SchemaBuilder.struct()
    docs = reading.options.type_docs
    if docs and found.doc is not None:
        builder.parameter(forms.RECORD_DOC, found.doc)
    for one in found.fields:
        if docs and one.doc is not None:
            builder.parameter(forms.FIELD_DOC + one.name, one.doc)
        builder.field(one.name, _field(one, found, reading))
    return builder


def _field(one: AvroField, record: AvroType, reading: _Reading) -> Schema:
    if one.type.name == forms.ANYTHING:
        _refuse(f"field {one.name} of {record.name} has no schema of its own")
    return _convert(one.type, reading, default=one.default, field_doc=one.doc)


def _union(found: AvroType, reading: _Reading) -> SchemaBuilder:
    builder = SchemaBuilder.struct().name(forms.UNION)
    if reading.options.general_sums:
        name = f"{forms.GENERAL_UNION_PREFIX}{reading.unions}"
        reading.unions += 1
        builder = SchemaBuilder.struct().name(name).parameter(GENERAL_UNION, name)
    for place, one in enumerate(found.branches):
        if one.kind == "null":
            builder.optional()
            continue
        name = forms.union_field(one, reading.options, place)
        if builder.has_field(name):
            raise DataException(f"Multiple union schemas map to the Connect union field name {name}")
        builder.field(name, _convert(one, reading, optional=True))
    return builder


def _set_version(builder: SchemaBuilder, version: Any) -> None:
    if version is None:
        return
    if isinstance(version, bool) or not isinstance(version, int | float):
        raise DataException(f"Invalid Connect version found: {version}")
    version = int(version)
    if version < 0:
        return
    known = builder.build().version
    if known is not None and known != version:
        raise DataException(
            f"Mismatched versions: version already added to SchemaBuilder ({known}) differs from version in source "
            f"schema ({version})"
        )
    builder.version(version)


def _add_parameters(builder: SchemaBuilder, properties: Mapping[str, Any], options: AvroOptions) -> None:
    parameters = properties.get(forms.CONNECT_PARAMETERS)
    if options.metadata and parameters is not None:
        if not isinstance(parameters, dict):
            raise DataException(f"Expected JSON object for schema parameters but found: {parameters}")
        for name, value in parameters.items():
            if not isinstance(value, str):
                raise DataException(f"Expected schema parameter values to be strings but found: {value}")
            builder.parameter(name, value)
    for name, value in properties.items():
        if name.startswith(forms.AVRO_PREFIX):
            builder.parameter(name, value if isinstance(value, str) else json.dumps(value))


def _set_name(builder: SchemaBuilder, found: AvroType) -> None:
    name = found.properties.get(forms.CONNECT_NAME)
    if name is not None and not isinstance(name, str):
        raise DataException(f"Invalid schema name: {name}")
    if name is None and found.kind in ("record", "enum", "fixed"):
        name = found.name
    known = builder.build().name
    # ``ConnectDefault``, and ``ConnectDefault2`` and so on, mean no name.
    if (
        name is None
        or name.startswith(f"{forms.NAMESPACE}.{forms.DEFAULT_NAME}")
        or (known == Decimal.LOGICAL_NAME and found.kind == "fixed" and forms.CONNECT_NAME not in found.properties)
    ):
        return
    if known is not None and known != name:
        raise DataException(
            f"Mismatched names: name already added to SchemaBuilder ({known}) differs from name in source schema "
            f"({name})"
        )
    builder.name(name)


_LOGICAL_TYPES: Final = {
    Decimal.LOGICAL_NAME: "decimal",
    Time.LOGICAL_NAME: "time-millis",
    Timestamp.LOGICAL_NAME: "timestamp-millis",
    Date.LOGICAL_NAME: "date",
}
_ENUMS: Final = frozenset({forms.ENUM, GENERAL_ENUM})
#: Prefixes of parameters that make schemas with the same name different types.
_SHAPING: Final = (forms.FIXED_SIZE, forms.DECIMAL_PRECISION, *_ENUMS)
_ESCAPES: Final = {ord('"'): '\\"', ord("\\"): "\\\\"} | {place: f"\\u{place:04X}" for place in range(32)} | {
    ord(char): f"\\{name}" for char, name in zip("\b\f\n\r\t", "bfnrt", strict=True)
}  # fmt: skip


def avro_text(schema: Schema | None, options: AvroOptions) -> str:
    """The text of the Avro schema of a Connect schema; None: schemaless values."""
    return _printed(forms.anything() if schema is None else _Writer(options).part(schema, None))


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
    return (schema.parameters or {}).get(forms.FIXED_SIZE) if schema.type is Type.BYTES else None


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
        if forms.is_union(schema):
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
            node = {"type": forms.KINDS[schema.type][0]}
            if logical_name(schema) == Decimal.LOGICAL_NAME:
                node |= _decimal_properties(schema)
        node |= self._properties(schema)
        return node["type"] if len(node) == 1 else node

    def _inner(self, schema: Schema | None, space: str | None) -> Any:
        if schema is not None:
            return self.part(schema, space, inside=True)
        if forms.ANYTHING in self.taken:
            return _reference(forms.ANYTHING, space)
        self.taken.add(forms.ANYTHING)
        return forms.anything()

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
            self._field(one.name, one.schema, inner, docs.get(forms.FIELD_DOC + one.name)) for one in schema.fields
        ]
        return node | self._properties(schema)

    def _full_name(self, name: str | None) -> str:
        if name is not None:
            return self.options.full_name(name)
        self.unnamed += 1
        return f"{forms.NAMESPACE}.{forms.DEFAULT_NAME}{self.unnamed if self.unnamed > 1 else ''}"

    def _field(self, name: str, schema: Schema | None, space: str | None, doc: str | None = None) -> dict[str, Any]:
        written = self.options.name(name)
        if not forms.is_name(written):
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
        default = forms.default_json(schema, schema.default, self.options)
        fits = forms.is_field_default(schema, schema.default, self.options)
        return {**node, "default": forms.doubled(default)} if fits else node

    def _map(self, schema: Schema, space: str | None) -> dict[str, Any]:
        if forms.has_text_keys(schema, self.options):
            return {"type": "map", "values": self._inner(schema.value_schema, space)}
        parts = Schema(Type.MAP, name=schema.name, key_schema=schema.key_schema, value_schema=schema.value_schema)
        known = self.names.get(parts)
        if known is not None:
            return {"type": "array", "items": _reference(known, space)}
        name = self._take(forms.ENTRY_NAME if schema.name is None else self._full_name(schema.name), parts)
        node, inner = _head("record", name, space, None)
        node["fields"] = [
            self._field(forms.KEY_FIELD, schema.key_schema, inner),
            self._field(forms.VALUE_FIELD, schema.value_schema, inner),
        ]
        if name != forms.ENTRY_NAME:
            node[forms.INTERNAL_TYPE] = forms.MAP_ENTRY
        return {"type": "array", "items": node}

    def _enum(self, schema: Schema, space: str | None) -> Any:
        parameters = schema.parameters or {}
        full = parameters.get(self.options.enum_parameter)
        if full is None:
            raise DataException(f"An enum has no parameter {self.options.enum_parameter}, which is its name: {schema}")
        # As in Java these two are stored under the short name of the schema.
        short = forms.short_name(self._full_name(schema.name))
        prefix = f"{self.options.enum_parameter}."
        symbols = [name.removeprefix(prefix) for name in parameters if name.startswith(prefix)]
        for symbol in symbols:
            if not forms.is_name(symbol):
                raise DataException(f"Avro allows no symbol {symbol!r} in the enum {full}: letters, digits and _ only")
        known = self.names.get((full, *symbols))
        if known is not None:
            return _reference(known, space)
        doc = parameters.get(forms.PLAIN_ENUM_DOC if self.options.field_docs_only else forms.ENUM_DOC + short)
        node, _ = _head("enum", self._take(full, (full, *symbols)), space, doc)
        node["symbols"] = symbols
        if not self.options.field_docs_only and forms.ENUM_DEFAULT + short in parameters:
            node["default"] = parameters[forms.ENUM_DEFAULT + short]
        return node | self._properties(schema)

    def _fixed(self, schema: Schema, space: str | None) -> Any:
        size = _whole(forms.FIXED_SIZE, fixed_size(schema) or "")
        full = self._full_name(schema.name)
        known = self.names.get((full, size))
        if known is not None:
            return _reference(known, space)
        node, _ = _head("fixed", self._take(full, (full, size)), space, None)
        node["size"] = size
        if logical_name(schema) == Decimal.LOGICAL_NAME:
            node |= _decimal_properties(schema)
        return node | self._properties(schema)

    def _take(self, full: str, kind: object) -> str:
        """Finds a free name and records its owner."""
        if not forms.is_name(forms.short_name(full)):
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
            if name.startswith(forms.AVRO_PREFIX):
                found[name] = value
        return found

    def _metadata(self, schema: Schema, parameters: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if schema.doc is not None:
            found[forms.CONNECT_DOC] = schema.doc
        if schema.version is not None:
            found[forms.CONNECT_VERSION] = schema.version
        flagged = forms.FIELD_DEFAULT in parameters and not self.options.field_docs_only
        kept = {name: value for name, value in parameters.items() if name != forms.FIELD_DEFAULT or not flagged}
        if kept:
            found[forms.CONNECT_PARAMETERS] = kept
        if schema.default is not None and not flagged:
            found[forms.CONNECT_DEFAULT] = forms.spelt(forms.default_json(schema, schema.default, self.options))
        if schema.name is not None:
            found[forms.CONNECT_NAME] = schema.name
        if schema.type in (Type.INT8, Type.INT16):
            found[forms.CONNECT_TYPE] = schema.type.value
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


def _decimal_properties(schema: Schema) -> dict[str, Any]:
    parameters = schema.parameters or {}
    precision = parameters.get(forms.DECIMAL_PRECISION)
    return {
        "scale": Decimal.scale(schema),
        "precision": forms.DEFAULT_PRECISION if precision is None else _whole(forms.DECIMAL_PRECISION, precision),
    }


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DataException(f"The schema parameter {name} must be a whole number, and is {text}") from error
