"""Connect schemas as JSON and back, as JsonConverter has them; and single values, for defaults and headers.

Main functions: ``schema_text``, ``read_schema``, ``write_value``, ``read_value``. They handle a schema once, or a
header: records go through Spark columns (``json_columns``, ``json_reading``), which say the same.

Thread: pure functions.
Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, Final

from penstock.data import LOGICAL_NAMES, Date, Decimal, Schema, SchemaBuilder, Struct, Time, Timestamp, Type
from penstock.data.text import java_decimal, java_double, java_float, round_to_float32
from penstock.data.validate import map_key, null_refused
from penstock.errors import DataException, SchemaBuilderException
from penstock.pipeline.types import decimal_scale, logical_name
from penstock.pipeline.variant import MAX_UNSCALED_BYTES, MAX_UNSCALED_DIGITS

_NAMES: Final = {
    Type.INT8: "int8",
    Type.INT16: "int16",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
    Type.ARRAY: "array",
    Type.MAP: "map",
    Type.STRUCT: "struct",
}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}
_WIDTHS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
NULL_REQUIRED: Final = "Conversion error: null value for field that is required and has no default value"
NO_SCHEMA_TYPE: Final = "Schema must contain 'type' field"


class _Missing:
    """What stands for JSON where there is none."""


MISSING: Final = _Missing()
BAD_DECIMAL: Final = "Invalid bytes for Decimal field"
BAD_SCALE: Final = f"{BAD_DECIMAL}: its schema has no scale, or one that is no number"
LONG_DECIMAL: Final = (
    f"A decimal has {MAX_UNSCALED_DIGITS} digits ({MAX_UNSCALED_BYTES} bytes) at most, and a scale of 32 bits"
)
#: Java's kinds of JSON nodes, for messages.
_NODE_KINDS: Final[dict[type, str]] = {
    dict: "OBJECT",
    list: "ARRAY",
    str: "STRING",
    bool: "BOOLEAN",
    int: "NUMBER",
    decimal.Decimal: "NUMBER",
    type(None): "NULL",
    _Missing: "MISSING",
}
#: What Jackson writes otherwise than Python: escapes have upper-case digits, and characters beyond U+FFFF are escaped.
_OTHERWISE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)|[\U00010000-\U0010ffff]")


# ------------------------------------------------------------------------------------------------ writing
def quote(text: str) -> str:
    """A JSON string as Jackson's UTF-8 writer makes it."""
    return _OTHERWISE.sub(_escaped, json.dumps(text, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] == "\\":
        return f"\\u{found[2:].upper()}" if found[1] == "u" else found
    point = ord(found) - 0x10000
    return f"\\u{0xD800 + (point >> 10):04X}\\u{0xDC00 + (point & 0x3FF):04X}"


@lru_cache(maxsize=1000)
def _plain_schema_text(schema: Schema, numeric: bool) -> str:
    return _schema_text(schema, numeric)


def schema_text(schema: Schema, *, numeric: bool) -> str:
    """The JSON of a schema.

    Args:
        schema: The schema.
        numeric: Whether decimals are numbers (in defaults).

    Raises:
        DataException: It has a default that cannot be written.
    """
    return _plain_schema_text(schema, numeric)


def _schema_text(schema: Schema, numeric: bool, field: str | None = None) -> str:
    parts = [f'"type":"{_NAMES[schema.type]}"']
    if schema.type is Type.ARRAY:
        parts.append(f'"items":{_part(schema.value_schema, numeric)}')
    elif schema.type is Type.MAP:
        parts.append(f'"keys":{_part(schema.key_schema, numeric)}')
        parts.append(f'"values":{_part(schema.value_schema, numeric)}')
    elif schema.type is Type.STRUCT:
        fields = ",".join(_schema_text(one.schema, numeric, one.name) for one in schema.fields)
        parts.append(f'"fields":[{fields}]')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{quote(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{quote(schema.doc)}')
    if schema.parameters is not None:
        pairs = ",".join(f"{quote(key)}:{quote(value)}" for key, value in schema.parameters.items())
        parts.append(f'"parameters":{{{pairs}}}')
    if schema.default is not None:
        parts.append(f'"default":{write_value(schema, schema.default, numeric=numeric, defaults=True)}')
    if field is not None:
        parts.append(f'"field":{quote(field)}')
    return "{" + ",".join(parts) + "}"


def _part(schema: Schema | None, numeric: bool) -> str:
    return "null" if schema is None else _schema_text(schema, numeric)


def write_value(schema: Schema | None, value: Any, *, numeric: bool, defaults: bool) -> str:
    """The JSON text of one value.

    Raises:
        DataException: It does not fit its schema, or has no JSON.
    """
    if value is None:
        if schema is None:
            return "null"
        if schema.default is not None and defaults:
            return write_value(schema, schema.default, numeric=numeric, defaults=defaults)
        if schema.optional:
            return "null"
        raise DataException(NULL_REQUIRED)
    if schema is not None and schema.name in _LOGICAL_WRITERS:
        return _LOGICAL_WRITERS[schema.name](schema, value, numeric)
    kind = _kind_of(value) if schema is None else schema.type
    try:
        return _write_plain(schema, kind, value, numeric, defaults)
    except (TypeError, AttributeError, ValueError) as error:
        raise DataException(f"Invalid type for {kind.name}: {type(value).__name__}") from error


def _kind_of(value: Any) -> Type:
    kinds: dict[type, Type] = {
        bool: Type.BOOLEAN,
        int: Type.INT64,
        float: Type.FLOAT64,
        str: Type.STRING,
        bytes: Type.BYTES,
        list: Type.ARRAY,
        dict: Type.MAP,
        Struct: Type.STRUCT,
    }
    kind = kinds.get(type(value))
    if kind is None:
        raise DataException(f"Values of {type(value).__name__} do not have a corresponding schema type.")
    return kind


def _write_plain(schema: Schema | None, kind: Type, value: Any, numeric: bool, defaults: bool) -> str:
    def inner(part: Schema | None, one: Any) -> str:
        return write_value(part, one, numeric=numeric, defaults=defaults)

    if kind in _WIDTHS:
        if type(value) is not int:
            raise TypeError(value)
        return str(value)
    if kind is Type.BOOLEAN:
        if type(value) is not bool:
            raise TypeError(value)
        return "true" if value else "false"
    if kind in (Type.FLOAT32, Type.FLOAT64):
        text = java_float(value) if kind is Type.FLOAT32 else java_double(value)
        return text if math.isfinite(value) else f'"{text}"'
    if kind is Type.STRING:
        return quote(value)
    if kind is Type.BYTES:
        return f'"{base64.b64encode(value).decode()}"'
    if kind is Type.ARRAY:
        item = None if schema is None else schema.value_schema
        return f"[{','.join(inner(item, one) for one in value)}]"
    if kind is Type.MAP:
        return _write_map(schema, value, inner)
    if schema is None or value.schema != schema:
        raise DataException("Mismatching schema.")
    pairs = zip(schema.fields, value.values, strict=True)
    return "{" + ",".join(f"{quote(field.name)}:{inner(field.schema, one)}" for field, one in pairs) + "}"


def _write_map(schema: Schema | None, value: Mapping[Any, Any], inner: Any) -> str:
    keys = None if schema is None else schema.key_schema
    values = None if schema is None else schema.value_schema
    if schema is None:
        as_object = all(isinstance(key, str) for key in value)
    else:
        as_object = keys is not None and keys.type is Type.STRING
    if as_object:
        pairs = (f"{quote('null' if key is None else key)}:{inner(values, one)}" for key, one in value.items())
        return "{" + ",".join(pairs) + "}"
    return "[" + ",".join(f"[{inner(keys, key)},{inner(values, one)}]" for key, one in value.items()) + "]"


def _write_decimal(schema: Schema, value: Any, numeric: bool) -> str:
    if not isinstance(value, decimal.Decimal):
        raise DataException(f"Invalid type for Decimal, expected BigDecimal but was {type(value).__name__}")
    if numeric:
        return java_decimal(value)
    return f'"{base64.b64encode(Decimal.from_logical(schema, value)).decode()}"'


def _write_date(schema: Schema, value: Any, numeric: bool) -> str:
    if not isinstance(value, (date, int)):
        raise DataException(f"Invalid type for Date, expected Date but was {type(value).__name__}")
    return str(Date.from_logical(schema, value))


def _write_time(schema: Schema, value: Any, numeric: bool) -> str:
    if not isinstance(value, (time, int)):
        raise DataException(f"Invalid type for Time, expected Date but was {type(value).__name__}")
    return str(Time.from_logical(schema, value))


def _write_timestamp(schema: Schema, value: Any, numeric: bool) -> str:
    if not isinstance(value, (datetime, int)):
        raise DataException(f"Invalid type for Timestamp, expected Date but was {type(value).__name__}")
    return str(Timestamp.from_logical(schema, value))


_LOGICAL_WRITERS: Final[dict[str | None, Callable[..., str]]] = {
    Decimal.LOGICAL_NAME: _write_decimal,
    Date.LOGICAL_NAME: _write_date,
    Time.LOGICAL_NAME: _write_time,
    Timestamp.LOGICAL_NAME: _write_timestamp,
}


# ------------------------------------------------------------------------------------------------ reading
def parse_json(text: str) -> Any:
    """One JSON value; numbers with fraction or exponent are ``Decimal``, as Java's tree holds them.

    Raises:
        ValueError: It is not JSON.
    """
    return json.loads(text, parse_float=decimal.Decimal, parse_constant=_no_constant)


_LEADING_ZEROS: Final = re.compile(r"(?<![\d.eE+\-])(-?)0+(?=\d)|(?<=[eE][+\-])(?!)")
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^"]+|"')


def first_json(data: bytes) -> Any:
    """The first JSON value in the bytes, as Jackson reads it: the rest is ignored, leading zeros pass, blank is null.

    Raises:
        ValueError: They do not begin with a JSON value.
    """
    text = data.decode("utf-8").removeprefix("\ufeff").lstrip(" \t\r\n")
    if not text:
        return None
    decoder = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_no_constant)
    pieces = (one if one[0] == '"' else _LEADING_ZEROS.sub(r"\1", one) for one in _STRINGS.findall(text))
    cleaned = "".join(pieces)
    node, end = decoder.raw_decode(cleaned)
    if cleaned[end : end + 1] not in ("", " ", "\t", "\r", "\n") and cleaned[end - 1].isalnum():
        raise ValueError(f"a number or word goes on with {cleaned[end]!r}")
    return node


def is_blank(data: bytes) -> bool:
    """Whether there is no JSON value in the bytes."""
    return not data.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def read_schema(node: Any, *, defaults: bool = True) -> Schema | None:
    """The schema in parsed JSON.

    Raises:
        DataException: It is none.
        SchemaBuilderException: It cannot be built: a default that does not fit, a field name used twice.
    """
    if node is None:
        return None
    kind = node.get("type") if isinstance(node, dict) else None
    if not isinstance(kind, str):
        raise DataException(NO_SCHEMA_TYPE)
    if kind not in _TYPES:
        raise DataException(f"Unknown schema type: {kind}")
    builder = _builder(_TYPES[kind], node, defaults)
    optional = node.get("optional")
    builder = builder.optional() if optional is True else builder.required()
    if isinstance(node.get("name"), str):
        builder.name(node["name"])
    version = node.get("version")
    if isinstance(version, int) and not isinstance(version, bool):
        builder.version(_wrap(version, 32))
    if isinstance(node.get("doc"), str):
        builder.doc(node["doc"])
    _read_parameters(builder, node.get("parameters"))
    if "default" in node:
        _read_default(builder, node["default"], defaults)
    return builder.build()


def _builder(kind: Type, node: Mapping[str, Any], defaults: bool) -> SchemaBuilder:
    if kind is Type.ARRAY:
        items = node.get("items")
        if items is None:
            raise DataException("Array schema did not specify the element type")
        return SchemaBuilder.array(_must(items, defaults))
    if kind is Type.MAP:
        if node.get("keys") is None:
            raise DataException("Map schema did not specify the key type")
        if node.get("values") is None:
            raise DataException("Map schema did not specify the value type")
        return SchemaBuilder.map(_must(node["keys"], defaults), _must(node["values"], defaults))
    if kind is Type.STRUCT:
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise DataException('Struct schema\'s "fields" argument is not an array.')
        builder = SchemaBuilder.struct()
        for field in fields:
            name = field.get("field") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise DataException("Struct schema's field name not specified properly")
            builder.field(name, _must(field, defaults))
        return builder
    return SchemaBuilder.type(kind)


def _must(node: Any, defaults: bool) -> Schema:
    schema = read_schema(node, defaults=defaults)
    if schema is None:
        raise DataException(NO_SCHEMA_TYPE)
    return schema


def _read_parameters(builder: SchemaBuilder, parameters: Any) -> None:
    if not isinstance(parameters, dict):
        return
    for key, value in parameters.items():
        if not isinstance(value, str):
            raise DataException("Schema parameters must have string values.")
        builder.parameter(key, value)


def _read_default(builder: SchemaBuilder, node: Any, defaults: bool) -> None:
    plain = builder.build()
    value = read_value(plain, node, defaults=defaults)
    if value is None and plain.optional:
        return
    if value is None:
        raise SchemaBuilderException("Invalid default value") from DataException("the default is of another type")
    if isinstance(value, Struct):
        # Java compares the default's schema with the one being built, which has a default by then.
        raise SchemaBuilderException("Invalid default value") from DataException("Struct schemas do not match.")
    builder.default_value(value)


def denied_type(schema: Schema) -> str | None:
    """Why a schema has no values: Java makes them what its name says, which is no value of its type.

    None = it has. Integers may carry dates and times, whatever their width.
    """
    name = schema.name
    if name not in LOGICAL_NAMES or logical_name(schema) is not None:
        return None
    if schema.type in _WIDTHS and name != Decimal.LOGICAL_NAME:
        return None
    return f"A schema of type {schema.type.name} cannot be named {name}: its values would be of another class"


def read_value(schema: Schema | None, node: Any, *, defaults: bool = True) -> Any:
    """The Connect value of parsed JSON, by Java's lenient rules.

    Raises:
        DataException: It has no value of that schema.
    """
    if schema is None:
        return _read_schemaless(node)
    if node is None:
        if schema.default is not None and defaults:
            return schema.default
        if schema.optional:
            return None
        raise DataException(f"Invalid null value for required {schema.type.name} field")
    denied = denied_type(schema)
    if denied is not None:
        raise DataException(denied)
    reader = _LOGICAL_READERS.get(schema.name)
    if reader is None:
        return _read_plain(schema, node, defaults)
    value = reader(schema, node)
    return _read_plain(schema, node, defaults) if logical_name(schema) is None else value


def _read_schemaless(node: Any) -> Any:
    if isinstance(node, decimal.Decimal):
        return float(node) + 0.0
    if isinstance(node, bool):
        return node
    if isinstance(node, int):
        return _wrap(node, 64)
    if isinstance(node, list):
        return [_read_schemaless(one) for one in node]
    if isinstance(node, dict):
        return {key: _read_schemaless(one) for key, one in node.items()}
    return node


def _wrap(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


def _double(number: Any) -> float:
    try:
        return float(number) + 0.0
    except OverflowError:
        return math.copysign(math.inf, number)


def _read_plain(schema: Schema, node: Any, defaults: bool) -> Any:
    kind = schema.type
    if kind in _WIDTHS:
        return _whole(node, _WIDTHS[kind])
    if kind in (Type.FLOAT32, Type.FLOAT64):
        number = _double(node) if _is_number(node) else 0.0
        return round_to_float32(number) if kind is Type.FLOAT32 else number
    if kind is Type.BOOLEAN:
        return node is True
    if kind is Type.STRING:
        return node if isinstance(node, str) else None
    if kind is Type.BYTES:
        return _base64(node) if isinstance(node, str) else None
    if kind is Type.ARRAY:
        items = node if isinstance(node, list) else list(node.values()) if isinstance(node, dict) else []
        return [read_value(schema.value_schema, one, defaults=defaults) for one in items]
    if kind is Type.MAP:
        return _read_map(schema, node, defaults)
    if not isinstance(node, dict):
        raise DataException(f"Structs should be encoded as JSON objects, but found {node_kind(node)}")
    values: list[Any] = []
    for field in schema.fields:
        value = read_value(field.schema, node.get(field.name), defaults=defaults)
        _require(field.schema, value, f'field: "{field.name}"')
        values.append(value)
    return Struct.unchecked(schema, values)


def _require(schema: Schema | None, value: Any, place: str) -> None:
    """Refuses nulls of other JSON, a number for a string say, where a struct must have a value.

    Structs inside have been through this before.
    """
    if schema is None:
        return
    if value is None:
        if not schema.optional:
            raise DataException(null_refused(schema, place))
    elif schema.type is Type.ARRAY:
        for item in value:
            _require(schema.value_schema, item, f"element of array {place}")
    elif schema.type is Type.MAP:
        for key, item in value.items():
            _require(schema.key_schema, key, f"key of map {place}")
            _require(schema.value_schema, item, f"value of map {place}")


def _read_map(schema: Schema, node: Any, defaults: bool) -> dict[Any, Any]:
    keys = schema.key_schema
    if keys is None or keys.type is Type.STRING:
        if not isinstance(node, dict):
            raise DataException(
                f"Maps with string fields should be encoded as JSON objects, but found {node_kind(node)}"
            )
        return {key: read_value(schema.value_schema, one, defaults=defaults) for key, one in node.items()}
    if not isinstance(node, list):
        raise DataException(
            f"Maps with non-string fields should be encoded as JSON arrays of tuples, but found {node_kind(node)}"
        )
    found: dict[Any, Any] = {}
    for entry in node:
        if not isinstance(entry, list):
            raise DataException(f"Found invalid map entry instead of array tuple: {node_kind(entry)}")
        if len(entry) != 2:
            raise DataException(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
        key = map_key(read_value(keys, entry[0], defaults=defaults))
        found[key] = read_value(schema.value_schema, entry[1], defaults=defaults)
    return found


def node_kind(node: Any) -> str:
    """What Java calls this kind of JSON node."""
    return _NODE_KINDS.get(type(node), "NULL")


def _is_number(node: Any) -> bool:
    return isinstance(node, (int, decimal.Decimal)) and not isinstance(node, bool)


def _whole(node: Any, bits: int) -> int:
    return _wrap(int(node), bits) if _is_number(node) else 0


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataException("Invalid bytes field") from error


def _read_decimal(schema: Schema, node: Any) -> Any:
    if _is_number(node):
        return _decimal_of_number(decimal.Decimal(node))
    if isinstance(node, str):
        return _decimal_of_base64(schema, node)
    raise DataException(
        f"Invalid type for Decimal, underlying representation should be numeric or bytes but was {node_kind(node)}"
    )


def _decimal_of_number(number: decimal.Decimal) -> decimal.Decimal:
    _, digits, exponent = number.as_tuple()
    if len(digits) > MAX_UNSCALED_DIGITS or not -(2**31) <= -int(exponent) < 2**31:
        raise DataException(LONG_DECIMAL)
    # Java's has no minus zero.
    return number.copy_abs() if number.is_zero() else number


def _decimal_of_base64(schema: Schema, text: str) -> decimal.Decimal:
    if decimal_scale(schema) is None:
        raise DataException(BAD_SCALE)
    try:
        data = _base64(text)
    except DataException as error:
        raise DataException(BAD_DECIMAL) from error
    if not data:
        raise DataException(BAD_DECIMAL)
    if len(data) > MAX_UNSCALED_BYTES:
        raise DataException(LONG_DECIMAL)
    return Decimal.to_logical(schema, data)


def _read_date(schema: Schema, node: Any) -> Any:
    if type(node) is not int or _wrap(node, 32) != node:
        raise DataException(
            f"Invalid type for Date, underlying representation should be integer but was {node_kind(node)}"
        )
    return Date.to_logical(schema, node)


def _read_time(schema: Schema, node: Any) -> Any:
    if type(node) is not int or _wrap(node, 32) != node:
        raise DataException(
            f"Invalid type for Time, underlying representation should be integer but was {node_kind(node)}"
        )
    return Time.to_logical(schema, node)


def _read_timestamp(schema: Schema, node: Any) -> Any:
    if type(node) is not int:
        raise DataException(
            f"Invalid type for Timestamp, underlying representation should be integral but was {node_kind(node)}"
        )
    return Timestamp.to_logical(schema, _wrap(node, 64))


_LOGICAL_READERS: Final[dict[str | None, Any]] = {
    Decimal.LOGICAL_NAME: _read_decimal,
    Date.LOGICAL_NAME: _read_date,
    Time.LOGICAL_NAME: _read_time,
    Timestamp.LOGICAL_NAME: _read_timestamp,
}
