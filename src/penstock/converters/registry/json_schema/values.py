"""Converts values to JSON and back, in the dialect of Confluent's converter, and has its settings.

A schema is compiled to functions once; a record then costs one function call for each value and one call of orjson.

Source: io.confluent.connect.json.JsonSchemaData.fromConnectData, toConnectData; JsonSchemaDataConfig.
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from functools import partial
from typing import Any, Final

import orjson

from penstock.config import AbstractConfig, CaseInsensitiveValidString, Importance, setting
from penstock.converters.json.plain_bytes import plain_json
from penstock.converters.json.values import first_json, node_kind, parse_json, read_value
from penstock.converters.registry.formats import (
    INTEGER_BITS,
    LOGICAL,
    check_logical,
    check_struct,
    key_part,
    refuse,
    value_part,
)
from penstock.converters.registry.settings import GENERAL_ENUM, GENERAL_UNION
from penstock.data import (
    LOGICAL_NAMES,
    Date,
    Decimal,
    Schema,
    Struct,
    Time,
    Timestamp,
    Type,
    java_decimal,
    java_float,
    round_to_float32,
)
from penstock.data.structs import map_key
from penstock.errors import DataException
from penstock.pipeline.columns.sizes import anywhere

Convert = Callable[[Any], Any]
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PYTHON_KINDS: Final = {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT64: float}
_MISSING: Final = object()
_NUMBERS: Final = (int, float, decimal.Decimal)


def has_decimals(schema: Schema | None) -> bool:
    """True if numbers of a schema must be read exactly."""
    return anywhere(schema, lambda one: one.name == Decimal.LOGICAL_NAME)


def decode(data: bytes | memoryview, *, exact: bool) -> Any:
    """Parses the JSON of a message for ``value_reader``; ``exact``: numbers with a fraction keep all digits."""
    try:
        # Jackson accepts some texts that orjson rejects: text after the value, escaped halves of pairs, leading zeros.
        return parse_json(bytes(data).decode()) if exact else orjson.loads(data)
    except (ValueError, RecursionError):
        pass
    try:
        return first_json(plain_json(bytes(data)))
    except (ValueError, RecursionError) as error:
        raise DataException(f"The message is not JSON: {error}") from error


def value_reader(schema: Schema) -> Convert:
    """Returns a function from parsed JSON to values of a schema.

    Null becomes the default, if any. The function raises ``DataException`` for a null if a value is required, and for a
    structure of another kind; numbers and texts follow Java's lenient rules.
    """
    read = _plain_reader(schema)
    default = schema.default

    def read_any(node: Any) -> Any:
        if node is not None:
            return read(node)
        if default is None and not schema.optional:
            raise DataException(f"Invalid null value for required {schema.type.name} field")
        return default

    return _quick(schema, read_any)


def _quick(schema: Schema, read_any: Convert) -> Convert:
    """The function with a fast path for the most frequent class of values."""
    kind = schema.type
    logical = None if schema.name == Decimal.LOGICAL_NAME else LOGICAL.get(schema.name)
    if kind in INTEGER_BITS:
        limit = 1 << (INTEGER_BITS[kind] - 1)
        if logical is not None:
            return lambda node: (
                logical.to_logical(schema, node) if type(node) is int and -limit <= node < limit else read_any(node)
            )
        return lambda node: node if type(node) is int and -limit <= node < limit else read_any(node)
    wanted = _PYTHON_KINDS.get(kind)
    if wanted is None or schema.name in LOGICAL_NAMES:
        return read_any
    return lambda node: node if type(node) is wanted else read_any(node)


def _plain_reader(schema: Schema) -> Convert:
    kind = schema.type
    if schema.name in LOGICAL_NAMES:
        return lambda node: read_value(schema, _exact(node))
    if kind in _FLOATS:
        return _float_reader(schema)
    if kind is Type.STRUCT:
        return _union_reader(schema) if is_union(schema) else _struct_reader(schema)
    if kind is Type.ARRAY:
        read = value_reader(value_part(schema))
        return lambda node: [read(one) for one in _array(node)]
    if kind is Type.MAP:
        return _map_reader(schema)
    return lambda node: _read_leaf(schema, node)


def _exact(node: Any) -> Any:
    """Numbers as in the tree of JsonConverter."""
    return decimal.Decimal(repr(node)) if isinstance(node, float) else node


def _read_leaf(schema: Schema, node: Any) -> Any:
    value = read_value(schema, _exact(node))
    if value is None:
        raise DataException(f"Invalid value for {schema.type.name}: the JSON has {node_kind(_exact(node))}")
    return value


def _float_reader(schema: Schema) -> Convert:
    single = schema.type is Type.FLOAT32

    def read(node: Any) -> Any:
        if isinstance(node, _NUMBERS) and not isinstance(node, bool):
            value = float(node) + 0.0
        else:
            # Java writes these as texts and reads them as 0: a number would change.
            value = _NOT_FINITE.get(node, 0.0) if isinstance(node, str) else 0.0
        return round_to_float32(value) if single else value

    return read


def _array(node: Any) -> Any:
    if not isinstance(node, list):
        raise DataException(f"Arrays should be encoded as JSON arrays, but found {node_kind(_exact(node))}")
    return node


def _map_reader(schema: Schema) -> Convert:
    read_value = value_reader(value_part(schema))
    if has_object_form(schema):

        def read_object(node: Any) -> Any:
            if not isinstance(node, dict):
                kind = node_kind(_exact(node))
                raise DataException(f"Maps with string fields should be encoded as JSON objects, but found {kind}")
            return {key: read_value(one) for key, one in node.items()}

        return read_object
    read_key = value_reader(key_part(schema))

    def read_entries(node: Any) -> Any:
        if not isinstance(node, list):
            kind = node_kind(_exact(node))
            raise DataException(
                f"Maps with non-string fields should be encoded as JSON array of objects, but found {kind}"
            )
        found = {}
        for entry in node:
            if not isinstance(entry, dict):
                raise DataException(f"Found invalid map entry instead of object: {node_kind(_exact(entry))}")
            if len(entry) != 2:
                raise DataException(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
            key = map_key(read_key(entry.get(KEY_FIELD)))
            found[key] = read_value(entry.get(VALUE_FIELD))
        return found

    return read_entries


def _struct_reader(schema: Schema) -> Convert:
    # A missing field becomes the default or null, even if a value is required; an explicit null is an error then.
    fields = [(field.name, value_reader(field.schema), field.schema.default) for field in schema.fields]

    def read(node: Any) -> Any:
        if not isinstance(node, dict):
            raise DataException(f"Structs should be encoded as JSON objects, but found {node_kind(_exact(node))}")
        values = []
        for name, read_field, default in fields:
            one = node.get(name, _MISSING)
            try:
                values.append(default if one is _MISSING else read_field(one))
            except DataException as error:
                raise DataException(f"field {name}: {error}") from error
        return Struct.unchecked(schema, values)

    return read


def _union_reader(schema: Schema) -> Convert:
    kinds = [(field, value_reader(field.schema)) for field in schema.fields]

    def read(node: Any) -> Any:
        best, most = None, 0
        for position, (field, _) in enumerate(kinds):
            if _is_simple_of(field.schema, node):
                best = position
                break
            matching = _matching_properties(field.schema, node)
            if matching > most:
                best, most = position, matching
        if best is None:
            raise DataException("Did not find matching oneof field for data")
        values = [None] * len(kinds)
        values[best] = kinds[best][1](node)
        return Struct.unchecked(schema, values)

    return read


def _is_simple_of(schema: Schema, node: Any) -> bool:
    """True if the JSON kind is enough to show that a value has this schema."""
    kind = schema.type
    if kind in INTEGER_BITS:
        return type(node) is int
    if kind in _FLOATS or (kind is Type.BYTES and schema.name == Decimal.LOGICAL_NAME and not isinstance(node, str)):
        return isinstance(node, _NUMBERS) and not isinstance(node, bool)
    if kind is Type.BOOLEAN:
        return isinstance(node, bool)
    if kind in (Type.STRING, Type.BYTES):
        return isinstance(node, str)
    if kind is Type.ARRAY:
        return isinstance(node, list)
    return kind is Type.MAP and isinstance(node, (list, dict))


def _matching_properties(schema: Schema, node: Any) -> int:
    """Counts the properties, at every depth, that match fields of a struct."""
    if schema.type is not Type.STRUCT or not isinstance(node, dict):
        return 0
    shared = [(field, node[field.name]) for field in schema.fields if field.name in node]
    return len(shared) + sum(_matching_properties(field.schema, one) for field, one in shared)


#: Parameters with this prefix belong to the converter; they are not written to ``connect.parameters``.
NAMESPACE: Final = "io.confluent.connect.json"
CONNECT_TYPE: Final = "connect.type"
CONNECT_VERSION: Final = "connect.version"
CONNECT_PARAMETERS: Final = "connect.parameters"
CONNECT_INDEX: Final = "connect.index"
#: The fields of an entry of a map whose keys are not strings.
KEY_FIELD: Final = "key"
VALUE_FIELD: Final = "value"
JSON_ENUM: Final = f"{NAMESPACE}.Enum"
JSON_UNION: Final = f"{NAMESPACE}.OneOf"
#: Names of unions with ``generalized.sum.type.support``.
GENERAL_UNION_PREFIX: Final = "connect_union_"
#: The name of a null symbol of an enum in parameters.
NULL_SYMBOL: Final = "<NULL>"
_option: Final = partial(setting, group="JSON Schema")
_off: Final = partial(_option, default=False)
_on: Final = partial(_option, default=True)


class JsonSchemaOptions(AbstractConfig):
    """The settings of a JSON Schema converter for schemas and values."""

    additional_properties: bool = _on(
        "object.additional.properties", doc="Whether the schemas of objects allow properties that are not listed."
    )
    optional_unless_required: bool = _off(
        "use.optional.for.nonrequired", doc="Whether properties that a schema does not require are optional."
    )
    flatten_single_unions: bool = _on(
        "flatten.singleton.unions", doc="Whether a oneOf, anyOf or allOf of one schema is read as that schema."
    )
    general_sums: bool = _off(
        "generalized.sum.type.support", doc="Give enums and unions names that converters of all formats know."
    )
    ignore_defaults: bool = _off(
        "ignore.default.for.nullables", doc="Write a null as null although its field has a default."
    )
    fail_invalid: bool = _off(
        "json.fail.invalid.schema",
        doc="Whether values that the JSON Schema does not allow (by length, pattern, range and the like) are errors.",
    )
    decimal_format: str = _option(
        default="BASE64",
        validator=CaseInsensitiveValidString("BASE64", "NUMERIC"),
        importance=Importance.LOW,
        doc="How decimals are written: BASE64 or NUMERIC, in any case. Both are read.",
    )

    @property
    def numeric_decimals(self) -> bool:
        """True if decimals are written as numbers."""
        return self.decimal_format.upper() == "NUMERIC"

    @property
    def enum_parameter(self) -> str:
        """The parameter that marks a string as an enum."""
        return GENERAL_ENUM if self.general_sums else JSON_ENUM


def is_union(schema: Schema) -> bool:
    """True if a struct represents a union: one field for each type, of which one is set."""
    if schema.type is not Type.STRUCT:
        return False
    return schema.name == JSON_UNION or GENERAL_UNION in (schema.parameters or {})


def has_object_form(schema: Schema) -> bool:
    """True if maps of a schema are JSON objects: their keys are strings, and never null."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional


def encode(write: Convert, value: object) -> bytes:
    """The JSON of a value."""
    try:
        return orjson.dumps(write(value))
    except TypeError as error:
        raise DataException(f"The value has no JSON: {error}") from error


def value_writer(schema: Schema, options: JsonSchemaOptions) -> Convert:
    """Returns a function from values of a schema to values for orjson; it accepts None too.

    The function raises ``DataException`` for a value that does not fit, with the path of its fields.
    """
    write = _plain_writer(schema, options)
    if schema.default is None or options.ignore_defaults:
        return lambda value: None if value is None else write(value)
    default = write(schema.default)
    return lambda value: default if value is None else write(value)


def _plain_writer(schema: Schema, options: JsonSchemaOptions) -> Convert:
    if schema.name in _LOGICAL_WRITERS:
        return _LOGICAL_WRITERS[schema.name](schema, options)
    kind = schema.type
    if kind is Type.STRUCT:
        return _union_writer(schema, options) if is_union(schema) else _struct_writer(schema, options)
    if kind is Type.ARRAY:
        write = value_writer(value_part(schema), options)
        return lambda value: [write(one) for one in _of_type(list, kind, value)]
    if kind is Type.MAP:
        return _map_writer(schema, options)
    return _PRIMITIVE_WRITERS[kind]


def _of_type(cls: type | tuple[type, ...], kind: Type, value: Any) -> Any:
    return value if isinstance(value, cls) else refuse(kind, value)


def _exactly(cls: type, kind: Type) -> Convert:
    return lambda value: value if type(value) is cls else refuse(kind, value)


def _float32(value: Any) -> Any:
    _of_type(float, Type.FLOAT32, value)
    # The shortest number for this float32: 0.1, not 0.10000000149011612.
    return float(java_float(value)) if math.isfinite(value) else java_float(value)


def _float64(value: Any) -> Any:
    _of_type(float, Type.FLOAT64, value)
    return value if math.isfinite(value) else java_float(value)


def _bytes(value: Any) -> Any:
    return base64.b64encode(_of_type((bytes, bytearray, memoryview), Type.BYTES, value)).decode()


_PRIMITIVE_WRITERS: Final[Mapping[Type, Convert]] = {
    **{kind: _exactly(int, kind) for kind in INTEGER_BITS},
    Type.FLOAT32: _float32,
    Type.FLOAT64: _float64,
    Type.BOOLEAN: _exactly(bool, Type.BOOLEAN),
    Type.STRING: lambda value: _of_type(str, Type.STRING, value),
    Type.BYTES: _bytes,
}


def _decimal_writer(schema: Schema, options: JsonSchemaOptions) -> Convert:
    def write(value: Any) -> Any:
        check_logical("Decimal", value, decimal.Decimal)
        if options.numeric_decimals:
            if not value.is_finite():
                raise DataException(f"Decimal value {value} has no finite value and cannot be encoded")
            return orjson.Fragment(java_decimal(value))
        return base64.b64encode(Decimal.from_logical(schema, value)).decode()

    return write


def _date_like_writer(logical: Any, *classes: type) -> Callable[[Schema, JsonSchemaOptions], Convert]:
    def make(schema: Schema, options: JsonSchemaOptions) -> Convert:
        def write(value: Any) -> Any:
            check_logical(logical.__name__, value, *classes)
            return logical.from_logical(schema, value)

        return write

    return make


_LOGICAL_WRITERS: Final[Mapping[str | None, Callable[[Schema, JsonSchemaOptions], Convert]]] = {
    Decimal.LOGICAL_NAME: _decimal_writer,
    Date.LOGICAL_NAME: _date_like_writer(Date, date, int),
    Time.LOGICAL_NAME: _date_like_writer(Time, time, int),
    Timestamp.LOGICAL_NAME: _date_like_writer(Timestamp, datetime, int),
}


def _map_writer(schema: Schema, options: JsonSchemaOptions) -> Convert:
    write_value = value_writer(value_part(schema), options)
    write_key = value_writer(key_part(schema), options)
    if has_object_form(schema):

        def write_object(value: Any) -> Any:
            found = {write_key(key): write_value(one) for key, one in _of_type(dict, Type.MAP, value).items()}
            if None in found:
                raise DataException("A map with required string keys has a null key")
            return found

        return write_object

    def write_entries(value: Any) -> Any:
        pairs = _of_type(dict, Type.MAP, value).items()
        return [{KEY_FIELD: write_key(key), VALUE_FIELD: write_value(one)} for key, one in pairs]

    return write_entries


def _struct_writer(schema: Schema, options: JsonSchemaOptions) -> Convert:
    # A required field that is null is left out, as in Confluent's converter: the reader's default applies.
    fields = [(field.name, value_writer(field.schema, options), not field.schema.optional) for field in schema.fields]

    def write(value: Any) -> Any:
        check_struct(schema, value, "Mismatching schema.")
        found = {}
        for (name, write_field, leave_out), one in zip(fields, value.values, strict=True):
            try:
                node = write_field(one)
            except DataException as error:
                raise DataException(f"field {name}: {error}") from error
            if node is not None or not leave_out:
                found[name] = node
        return found

    return write


def _union_writer(schema: Schema, options: JsonSchemaOptions) -> Convert:
    writers = [value_writer(field.schema, options) for field in schema.fields]

    def write(value: Any) -> Any:
        check_struct(schema, value, "Mismatching schema.")
        for write_one, one in zip(writers, value.values, strict=True):
            if (node := write_one(one)) is not None:
                return node
        return None

    return write
