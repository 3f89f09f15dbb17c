"""Single JSON values, by Java's rules: headers, defaults of schemas, and values without columns.

Records go through Spark columns (``reading``, ``WriteJson``), with the same results. Values without a schema use a
parser and a writer in C where these do not differ from Java, as they do for large integers and characters beyond
U+FFFF. In trees of Python values numbers with fraction or exponent are ``Decimal``, as Java's tree holds them.

Source: org.apache.kafka.connect.json.JsonConverter (convertToConnect, convertToJson), JsonDeserializer;
com.fasterxml.jackson.databind.JsonNode.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from typing import Any, ClassVar, Final, cast

import orjson

from penstock.data import LOGICAL_NAMES, Date, Decimal, FarMoment, Schema, Struct, Time, Timestamp, Type
from penstock.data.conversions import wrap
from penstock.data.structs import map_key, null_refused
from penstock.data.text import (
    Float32,
    has_text_keys,
    in_order,
    java_decimal,
    java_double,
    java_float,
    json_string,
    round_to_float32,
)
from penstock.errors import DataException
from penstock.pipeline.columns.java_text import java_class_of_value
from penstock.pipeline.columns.json_text import NULL_REQUIRED
from penstock.pipeline.columns.layout import decimal_scale, logical_name
from penstock.pipeline.columns.variant import MAX_UNSCALED_BYTES, MAX_UNSCALED_DIGITS


class _Missing:
    """A marker for missing JSON."""


MISSING: Final = _Missing()
#: Java's names for kinds of JSON nodes, for messages.
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
_LEADING_ZEROS: Final = re.compile(r"(?<![\d.eE+\-])(-?)0+(?=\d)")
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^"]+|"')


def parse_json(text: str) -> Any:
    """One JSON value; numbers with fraction or exponent are ``Decimal``, as Java's tree holds them.

    Raises:
        ValueError: It is not JSON.
    """
    return json.loads(text, parse_float=decimal.Decimal, parse_constant=_no_constant)


def first_json(data: bytes) -> Any:
    """The first JSON value in plain JSON, as Jackson reads it: the rest is ignored, leading zeros are allowed, blank is
    null.

    Raises:
        ValueError: The bytes do not begin with a JSON value.
    """
    text = data.decode("utf-8").lstrip(" \t\r\n")
    if not text:
        return None
    decoder = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_no_constant)
    cleaned = without_leading_zeros(text)
    node, end = decoder.raw_decode(cleaned)
    following = cleaned[end : end + 1]
    if _goes_on(cleaned[end - 1], following):
        raise ValueError(f"a number or word goes on with {following!r}")
    return node


def without_leading_zeros(text: str) -> str:
    """Removes leading zeros from numbers, which Jackson is configured to accept.

    >>> without_leading_zeros('{"a 01": [-007, 0.10]}')
    '{"a 01": [-7, 0.10]}'
    """
    return "".join(one if one[0] == '"' else _LEADING_ZEROS.sub(r"\1", one) for one in _STRINGS.findall(text))


def _goes_on(last: str, following: str) -> bool:
    """True if a number or word continues: white space ends a number, a character outside of names ends a word."""
    if not following or following in " \t\r\n" or not last.isalnum():
        return False
    return last.isdigit() or (following >= "0" and (f"_{following}".isidentifier() or following == "$"))


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def node_kind(node: Any) -> str:
    """Returns Java's name of this kind of JSON node."""
    return _NODE_KINDS.get(type(node), "NULL")


_WIDTHS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
BAD_DECIMAL: Final = "Invalid bytes for Decimal field"
BAD_SCALE: Final = f"{BAD_DECIMAL}: its schema has no scale, or one that is no number"
LONG_DECIMAL: Final = (
    f"A decimal has {MAX_UNSCALED_DIGITS} digits ({MAX_UNSCALED_BYTES} bytes) at most, and a scale of 32 bits"
)


def denied_type(schema: Schema) -> str | None:
    """Returns why no value is valid for a schema: Java converts to the logical type of its name, not to its own type.

    None = values are valid. Integers of any width may carry dates and times.
    """
    name = schema.name
    if name not in LOGICAL_NAMES or logical_name(schema) is not None:
        return None
    if schema.type in _WIDTHS and name != Decimal.LOGICAL_NAME:
        return None
    return f"A schema of type {schema.type.name} cannot be named {name}: its values would be of another class"


def read_value(schema: Schema | None, node: Any, *, defaults: bool = True) -> Any:
    """The Connect value of parsed JSON, by Java's lenient rules."""
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
        return wrap(node, 64)
    if isinstance(node, list):
        return [_read_schemaless(one) for one in node]
    if isinstance(node, dict):
        return {key: _read_schemaless(one) for key, one in node.items()}
    return node


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
    """Rejects nulls that came from other JSON, such as a number for a string, if a struct requires a value.

    Nested structs have been checked before.
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


def _is_number(node: Any) -> bool:
    return isinstance(node, (int, decimal.Decimal)) and not isinstance(node, bool)


def _whole(node: Any, bits: int) -> int:
    if not _is_number(node):
        return 0
    if isinstance(node, decimal.Decimal) and cast("int", node.as_tuple().exponent) >= bits:
        # A multiple of a power of ten is a multiple of the same power of two. As an integer it might have a billion
        # digits.
        return 0
    return wrap(int(node), bits)


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
    # Java's integer has no minus zero.
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


def _int32_reader(logical: type[Date] | type[Time]) -> Callable[[Schema, Any], Any]:
    def read(schema: Schema, node: Any) -> Any:
        if type(node) is not int or wrap(node, 32) != node:
            raise DataException(
                f"Invalid type for {logical.__name__}, underlying representation should be integer but was "
                f"{node_kind(node)}"
            )
        return logical.to_logical(schema, node)

    return read


def _read_timestamp(schema: Schema, node: Any) -> Any:
    if type(node) is not int:
        raise DataException(
            f"Invalid type for Timestamp, underlying representation should be integral but was {node_kind(node)}"
        )
    return Timestamp.to_logical(schema, wrap(node, 64))


_LOGICAL_READERS: Final[dict[str | None, Callable[[Schema, Any], Any]]] = {
    Decimal.LOGICAL_NAME: _read_decimal,
    Date.LOGICAL_NAME: _int32_reader(Date),
    Time.LOGICAL_NAME: _int32_reader(Time),
    Timestamp.LOGICAL_NAME: _read_timestamp,
}


_NO_TYPE: Final = "does not have corresponding schema type."
#: Half of a surrogate pair, which UTF-8 cannot encode.
_HALF: Final = re.compile("[\ud800-\udfff]")
_WHOLE: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64))


def write_value(schema: Schema | None, value: Any, *, numeric: bool, defaults: bool) -> str:
    """The JSON text of one value."""
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


_KINDS: Final[Mapping[type, Type]] = {
    bool: Type.BOOLEAN, int: Type.INT64, Float32: Type.FLOAT32, float: Type.FLOAT64, str: Type.STRING,
    bytes: Type.BYTES, bytearray: Type.BYTES, memoryview: Type.BYTES, list: Type.ARRAY, tuple: Type.ARRAY,
    dict: Type.MAP, Struct: Type.STRUCT,
}  # fmt: skip


def _kind_of(value: Any) -> Type:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise DataException(f"Java class class java.math.BigInteger {_NO_TYPE}")
    kind = _KINDS.get(type(value)) or next((kind for one, kind in _KINDS.items() if isinstance(value, one)), None)
    if kind is None or isinstance(value, FarMoment):
        raise UntypedValueError(f"Java class class {java_class_of_value(value)} {_NO_TYPE}")
    return kind


class UntypedValueError(DataException):
    """A schemaless value has a class that JSON cannot express."""

    java_name: ClassVar[str] = DataException.java_name


def place_of_untyped(value: Any) -> str | None:
    """Returns the path of the first such value in a schemaless value, as ``a.b[2]``; None if it is the value itself.

    >>> place_of_untyped({"a": 1, "items": [{"at": date(2020, 1, 1)}]})
    'items[0].at'
    """
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, one = left.pop()
        if isinstance(one, dict):
            left += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(list(one.items()))]
        elif isinstance(one, (list, tuple)):
            left += [(f"{path}[{index}]", item) for index, item in reversed(list(enumerate(one)))]
        elif one is not None:
            try:
                _kind_of(one)
            except DataException:
                return path or None
    return None


def _write_plain(schema: Schema | None, kind: Type, value: Any, numeric: bool, defaults: bool) -> str:
    def inner(part: Schema | None, one: Any) -> str:
        return write_value(part, one, numeric=numeric, defaults=defaults)

    if kind in _WHOLE:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(value)
        return str(int(value))
    if kind is Type.BOOLEAN:
        if type(value) is not bool:
            raise TypeError(value)
        return "true" if value else "false"
    if kind in (Type.FLOAT32, Type.FLOAT64):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError(value)
        text = java_float(value) if kind is Type.FLOAT32 else java_double(value)
        return text if math.isfinite(value) else f'"{text}"'
    if kind is Type.STRING:
        return _text(value)
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
    return "{" + ",".join(f"{_text(field.name)}:{inner(field.schema, one)}" for field, one in pairs) + "}"


def _text(value: str) -> str:
    text = json_string(value)
    return text if text.isascii() else _HALF.sub(lambda found: f"\\u{ord(found[0]):04X}", text)


def _write_map(schema: Schema | None, value: Mapping[Any, Any], inner: Any) -> str:
    keys = None if schema is None else schema.key_schema
    values = None if schema is None else schema.value_schema
    if schema is None:
        as_object = has_text_keys(value)
    else:
        as_object = keys is not None and keys.type is Type.STRING
    if as_object:
        # Schemaless maps have no order of their own.
        named: Iterable[tuple[Any, Any]] = value.items() if schema is not None else in_order(dict(value))
        pairs = (f"{_text('null' if key is None else key)}:{inner(values, one)}" for key, one in named)
        return "{" + ",".join(pairs) + "}"
    return "[" + ",".join(f"[{inner(keys, key)},{inner(values, one)}]" for key, one in value.items()) + "]"


def _write_decimal(schema: Schema, value: Any, numeric: bool) -> str:
    if not isinstance(value, decimal.Decimal):
        raise DataException(f"Invalid type for Decimal, expected BigDecimal but was {type(value).__name__}")
    if numeric:
        return java_decimal(value)
    return f'"{base64.b64encode(Decimal.from_logical(schema, value)).decode()}"'


def _temporal_writer(
    logical: type[Date] | type[Time] | type[Timestamp], kind: type[date] | type[time]
) -> Callable[[Schema, Any, bool], str]:
    from_logical: Callable[[Schema, Any], int] = logical.from_logical

    def write(schema: Schema, value: Any, numeric: bool) -> str:
        if not isinstance(value, (kind, int)):
            raise DataException(f"Invalid type for {logical.__name__}, expected Date but was {type(value).__name__}")
        return str(from_logical(schema, value))

    return write


_LOGICAL_WRITERS: Final[dict[str | None, Callable[[Schema, Any, bool], str]]] = {
    Decimal.LOGICAL_NAME: _write_decimal,
    Date.LOGICAL_NAME: _temporal_writer(Date, date),
    Time.LOGICAL_NAME: _temporal_writer(Time, time),
    Timestamp.LOGICAL_NAME: _temporal_writer(Timestamp, datetime),
}


_MAX: Final = 2**63
_TEXT: Final = frozenset((str,))
#: Bytes of characters beyond U+FFFF, and escapes with letters as digits, which Java writes in upper case.
_OTHERWISE: Final = re.compile(rb"[\xf0-\xff]|\\u")
#: Floats in this range have no exponent in either writer.
_LOW, _HIGH = 1e-3, 1e7


def read_schemaless(data: bytes) -> object:
    """The value of the first JSON value in a message; None for a blank message.

    Raises:
        ValueError: The message does not begin with a JSON value.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return read_value(None, first_json(data))
    return value if _is_exact(value) else read_value(None, first_json(data))


def _is_exact(value: Any) -> bool:
    """True if Java reads the same value: Java wraps integers to 64 bits and has no minus zero."""
    kind = type(value)
    if kind is dict:
        return all(map(_is_exact, value.values()))
    if kind is list:
        return all(map(_is_exact, value))
    if kind is int:
        return bool(-_MAX <= value < _MAX)
    # This parser returns a float for a number that is too large for an integer.
    return kind is not float or bool(value != 0 and -_MAX < value < _MAX)


def write_schemaless(value: object, *, numeric: bool, defaults: bool) -> bytes:
    """The JSON of a value. Maps are sorted by key, independent of the batch."""
    if _is_plain(value):
        try:
            data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError:
            pass  # Half of a surrogate pair, or nested too deeply.
        else:
            if not _OTHERWISE.search(data):
                return data
    try:
        return write_value(None, value, numeric=numeric, defaults=defaults).encode()
    except UntypedValueError as error:
        place = place_of_untyped(value)
        where = "" if place is None else f" It is the value of {place}."
        raise DataException(
            f"{error}{where} Give it a type with a schema (value_schema of the record or frame, a table with typed "
            "columns), or make text or a number of it"
        ) from None


def _is_plain(value: Any) -> bool:
    """True if the writer in C writes the value like Java, apart from its texts."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is dict:
        return {*map(type, value)} <= _TEXT and all(map(_is_plain, value.values()))
    if kind is list:
        return all(map(_is_plain, value))
    if kind is int:
        return bool(-_MAX <= value < _MAX)
    return kind is float and (value == 0 or _LOW <= value < _HIGH or -_HIGH < value <= -_LOW)
