"""Converts Avro schemas and values to Connect, by the rules of Confluent's AvroData.

fastavro returns raw values, such as the number of days of a date, and the branch of a union. The function for the
values of a schema is made once.

Main functions: ``connect_schema``, ``reader``. Thread: pure functions.
Source: io.confluent.connect.avro.AvroData.toConnectSchema, toConnectData.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from penstock.converters.registry.avro.forms import (
    ANYTHING,
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
    ENUM_DEFAULT,
    ENUM_DOC,
    FIELD_DEFAULT,
    FIELD_DOC,
    FIXED_SIZE,
    FROM_CARRIED,
    GENERAL_UNION_PREFIX,
    KEY_FIELD,
    MISSING,
    NAMESPACE,
    PLAIN_ENUM_DOC,
    PLAIN_RECORD_DOC,
    RECORD_DOC,
    UNION,
    VALUE_FIELD,
    AvroField,
    AvroOptions,
    AvroType,
    default_value,
    entry_types,
    is_map_entry,
    logical_name,
    short_name,
    union_field,
)
from penstock.converters.registry.settings import GENERAL_UNION
from penstock.data import STRING_SCHEMA as TEXT_KEYS
from penstock.data import Date, Decimal, Schema, SchemaBuilder, Struct, Time, Timestamp, Type
from penstock.data.structs import map_key
from penstock.errors import DataException

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
    """The Connect schema of an Avro schema; None for the schema of schemaless values.

    Args:
        found: The Avro schema.
        options: The converter's settings.
        version: The version of a schema without one.

    Raises:
        DataException: There is no corresponding Connect schema.
    """
    return None if found.name == ANYTHING else _convert(found, _Reading(options), version=version)


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
    default: Any = MISSING,
    version: int | None = None,
    field_doc: str | None = None,
) -> Schema:
    member = _only(found, reading.options)
    if member is not None:
        # As in Java, the field's own default is ignored; connect.default is used.
        return _convert(member, reading, optional=found.nullable is not None, field_doc=field_doc)
    builder = _builder(found, reading)
    properties = found.properties
    _set_doc(builder, found, reading.options, field_doc)
    _set_version(builder, properties.get(CONNECT_VERSION, version))
    _add_parameters(builder, properties, reading.options)
    said = properties.get(CONNECT_DEFAULT)
    if default is not MISSING and said is None and reading.options.metadata and not reading.options.field_docs_only:
        builder.parameter(FIELD_DEFAULT, "true")
    chosen = said if default is MISSING or default is None else default
    if chosen is not None:
        try:
            value = default_value(builder.build(), found, chosen, reading.options)
            if value is not None:
                builder.default_value(value)
        except DataException as error:
            # As in Java: the values are valid without it.
            log.warning("A default of the Avro schema %s is left out: %s", found.shown, error)
    _set_name(builder, found)
    if optional:
        builder.optional()
    return builder.build()


def _only(found: AvroType, options: AvroOptions) -> AvroType | None:
    """The single type of a union that is read as that type."""
    single = found.kind == "union" and len(found.branches) == 1 and options.flatten_single_unions
    return found.branches[0] if single else found.nullable


def _set_doc(builder: SchemaBuilder, found: AvroType, options: AvroOptions, field_doc: str | None) -> None:
    said = found.properties.get(CONNECT_DOC)
    doc = said if isinstance(said, str) else None
    if not options.field_docs_only:
        builder.doc(doc if options.metadata else None)
        return
    builder.doc(next((one for one in (field_doc, found.doc) if one is not None), doc))
    if options.metadata and found.doc is not None:
        builder.parameter(PLAIN_RECORD_DOC, found.doc)


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
    if kind == "int" and logical is None and CONNECT_TYPE in found.properties:
        small = _SMALL.get(found.properties[CONNECT_TYPE])
        if small is None:
            raise DataException("Connect type annotation for Avro int field is null")
        return SchemaBuilder(small)
    if kind in _PLAIN:
        builder = SchemaBuilder(_PLAIN[kind])
        return builder.parameter(FIXED_SIZE, str(found.size)) if kind == "fixed" else builder
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
    return None if found.name == ANYTHING else _convert(found, reading)


def _decimal(found: AvroType) -> SchemaBuilder:
    scale = found.properties.get("scale")
    # As in Java and in the specification: without a scale it is 0.
    builder = Decimal.builder(scale if isinstance(scale, int) else 0)
    precision = found.properties.get("precision")
    if precision is not None:
        if not isinstance(precision, int):
            raise DataException("precision property must be a JSON Integer.")
        if precision != DEFAULT_PRECISION:
            builder.parameter(DECIMAL_PRECISION, str(precision))
    return builder.parameter(FIXED_SIZE, str(found.size)) if found.kind == "fixed" else builder


def _enum(found: AvroType, options: AvroOptions) -> SchemaBuilder:
    assert found.name is not None, "enums have names"
    builder = SchemaBuilder.string()
    short = short_name(found.name)
    if options.metadata and found.doc is not None:
        builder.parameter(PLAIN_ENUM_DOC if options.field_docs_only else ENUM_DOC + short, found.doc)
    if options.metadata and found.default_symbol is not None and not options.field_docs_only:
        builder.parameter(ENUM_DEFAULT + short, found.default_symbol)
    parameter = options.enum_parameter
    builder.parameter(parameter, found.name)
    for place, symbol in enumerate(found.symbols):
        builder.parameter(f"{parameter}.{symbol}", str(place) if options.general_sums else symbol)
    return builder


def _array(found: AvroType, reading: _Reading) -> SchemaBuilder:
    assert found.items is not None, "arrays have items"
    if is_map_entry(found.items):
        keys, values = entry_types(found.items)
        return SchemaBuilder.untyped_map(_inner(keys, reading), _inner(values, reading))
    return SchemaBuilder.untyped_array(_inner(found.items, reading))


def _struct(found: AvroType, reading: _Reading) -> SchemaBuilder:
    builder = SchemaBuilder.struct()
    docs = reading.options.metadata and not reading.options.field_docs_only
    if docs and found.doc is not None:
        builder.parameter(RECORD_DOC, found.doc)
    for one in found.fields:
        if docs and one.doc is not None:
            builder.parameter(FIELD_DOC + one.name, one.doc)
        builder.field(one.name, _field(one, found, reading))
    return builder


def _field(one: AvroField, record: AvroType, reading: _Reading) -> Schema:
    if one.type.name == ANYTHING:
        _refuse(f"field {one.name} of {record.name} has no schema of its own")
    return _convert(one.type, reading, default=one.default, field_doc=one.doc)


def _union(found: AvroType, reading: _Reading) -> SchemaBuilder:
    builder = SchemaBuilder.struct().name(UNION)
    if reading.options.general_sums:
        name = f"{GENERAL_UNION_PREFIX}{reading.unions}"
        reading.unions += 1
        builder = SchemaBuilder.struct().name(name).parameter(GENERAL_UNION, name)
    for place, one in enumerate(found.branches):
        if one.kind == "null":
            builder.optional()
            continue
        name = union_field(one, reading.options, place)
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
    parameters = properties.get(CONNECT_PARAMETERS)
    if options.metadata and parameters is not None:
        if not isinstance(parameters, dict):
            raise DataException(f"Expected JSON object for schema parameters but found: {parameters}")
        for name, value in parameters.items():
            if not isinstance(value, str):
                raise DataException(f"Expected schema parameter values to be strings but found: {value}")
            builder.parameter(name, value)
    for name, value in properties.items():
        if name.startswith(AVRO_PREFIX):
            builder.parameter(name, value if isinstance(value, str) else json.dumps(value))


def _set_name(builder: SchemaBuilder, found: AvroType) -> None:
    name = found.properties.get(CONNECT_NAME)
    if name is not None and not isinstance(name, str):
        raise DataException(f"Invalid schema name: {name}")
    if name is None and found.kind in ("record", "enum", "fixed"):
        name = found.name
    known = builder.build().name
    # ``ConnectDefault``, and ``ConnectDefault2`` and so on, mean no name.
    if (
        name is None
        or name.startswith(f"{NAMESPACE}.{DEFAULT_NAME}")
        or (known == Decimal.LOGICAL_NAME and found.kind == "fixed" and CONNECT_NAME not in found.properties)
    ):
        return
    if known is not None and known != name:
        raise DataException(
            f"Mismatched names: name already added to SchemaBuilder ({known}) differs from name in source schema "
            f"({name})"
        )
    builder.name(name)


Convert = Callable[[Any], Any]

_BITS: Final = {Type.INT8: 8, Type.INT16: 16}
#: Any other byte is false.
_TRUE: Final = b"\1"
_PYTHON_TYPES: Final[Mapping[str, type]] = {
    "int": int, "long": int, "float": float, "double": float, "bytes": bytes, "string": str,
    "array": list, "map": dict,
}  # fmt: skip


def reader(found: AvroType, schema: Schema | None, options: AvroOptions) -> Convert | None:
    """Returns the function from fastavro's values to Connect's, or None if they are the same.

    Args:
        found: Their Avro type.
        schema: ``connect_schema`` of it.
        options: The converter's settings.
    """
    if schema is None:
        return _read_anything
    if found.kind == "union":
        return _union_reader(found, schema, options)
    if found.kind == "record":
        return _record_reader(found, schema, options)
    if found.kind in ("array", "map"):
        return _parts_reader(found, schema, options)
    if schema.type in _BITS:
        half = 1 << (_BITS[schema.type] - 1)
        return lambda value: (value + half) % (2 * half) - half
    if found.kind == "boolean":
        return _TRUE.__eq__
    if found.kind == "enum" and found.wire_symbols != found.symbols:
        symbols = dict(zip(found.wire_symbols, found.symbols, strict=True))
        return lambda value: symbols[value]
    logical = FROM_CARRIED.get(logical_name(schema) or "")
    return None if logical is None else lambda value: logical(schema, value)


def _same(value: Any) -> Any:
    return value


def _record_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert:
    names = [one.name for one in found.fields]
    parts = [
        (place, convert)
        for place, one in enumerate(found.fields)
        if (convert := reader(one.type, schema.fields[place].schema, options)) is not None
    ]

    def read(value: Any) -> Any:
        values = [value[name] for name in names]
        for place, convert in parts:
            values[place] = convert(values[place])
        return Struct.unchecked(schema, values)

    return read


def _parts_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert | None:
    assert found.items is not None, "arrays and maps have items"
    if schema.type is Type.MAP and found.kind == "array":
        return _entries_reader(found.items, schema, options)
    convert = reader(found.items, schema.value_schema, options)
    if convert is None:
        return None
    if found.kind == "array":
        return lambda value: [convert(one) for one in value]
    return lambda value: {key: convert(one) for key, one in value.items()}


def _entries_reader(entry: AvroType, schema: Schema, options: AvroOptions) -> Convert:
    keys, values = entry_types(entry)
    key_of = reader(keys, schema.key_schema, options) or _same
    value_of = reader(values, schema.value_schema, options) or _same

    def read(value: Any) -> Any:
        return {map_key(key_of(one[KEY_FIELD])): value_of(one[VALUE_FIELD]) for one in value}

    return read


def _union_reader(found: AvroType, schema: Schema, options: AvroOptions) -> Convert | None:
    member = _only(found, options)
    if member is not None:
        convert = reader(member, schema, options)
        if member.read_name is not None:
            inner = convert or _same
            return lambda value: None if value is None else inner(value[1])
        return None if convert is None else lambda value: None if value is None else convert(value)
    table: dict[object, tuple[int, Convert]] = {}
    wide = found.wide_branches
    for place, branch in enumerate(found.branches):
        if branch.kind == "null":
            continue
        field = schema.field(union_field(branch, options, place))
        assert field is not None, "the struct of a union has a field for each type"
        key = branch.kind if branch.kind in wide else branch.read_name or _PYTHON_TYPES[branch.kind]
        table[key] = (field.index, reader(branch, field.schema, options) or _same)
    size = len(schema.fields)

    def read(value: Any) -> Any:
        if value is None:
            return None
        kind = type(value)
        if kind is tuple:
            kind, value = value
        index, convert = table[kind]
        values: list[Any] = [None] * size
        values[index] = convert(value)
        return Struct.unchecked(schema, values)

    return read


def _read_anything(value: Any) -> Any:
    """A schemaless value, from a record with one field set."""
    for name, one in value.items():
        if one is None:
            continue
        if name == "array":
            return [_read_anything(part) for part in one]
        if name == "map":
            return {_read_anything(part[KEY_FIELD]): _read_anything(part[VALUE_FIELD]) for part in one}
        return one[1] == _TRUE if name == "boolean" else one
    return None
