"""The notation in which the examples of the documentation write schemas and values.

Main functions: ``read_schema`` and ``write_schema``, ``read_value`` and ``write_value``, ``read_typed`` and
``write_typed`` (a value with its schema: ``{"id": 7} as {id: int32}``).

A schema is a type (``int32``, ``string``, ...), a logical type (``Timestamp``, ``Decimal(2)``), an array
``[string]``, a map ``map<string, int32>`` or a struct ``{id: int32, name: string?}``, which may have a name and a
version in front (``Order v2 {...}``). ``?`` behind it says that it is optional, ``= 7`` what a null stands for, and
``with {"a": "b"}`` that it has this parameter.

A value is JSON. Bytes are base64, moments are ISO 8601, a Decimal is text. Without a schema these say what they are:
``{"$bytes": "aGk="}``, ``{"$timestamp": "2017-01-03T06:30:01.864Z"}``, ``{"$decimal": "1.50"}``.

Thread: pure functions.
"""

from __future__ import annotations

import base64
import decimal
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, Final

from penstock.data import Date, Decimal, Field, Schema, SchemaBuilder, Struct, Time, Timestamp, Type

_LOGICAL: Final[dict[str, Callable[[], SchemaBuilder]]] = {
    "Date": Date.builder,
    "Time": Time.builder,
    "Timestamp": Timestamp.builder,
}
_PRIMITIVES: Final = {one.value: one for one in Type if one.is_primitive}
_TOKEN: Final = re.compile(r"\s*([\w.$-]+|[{}\[\]<>(),:?=])")
_PLAIN_NAME: Final = re.compile(r"[\w.$-]+\Z")
_VERSION: Final = re.compile(r"v(\d+)\Z")


# ---------------------------------------------------------------------------------------------------------- schemas
def read_schema(text: str) -> Schema:
    """The schema that a text writes.

    Raises:
        ValueError: It is none.

    >>> write_schema(read_schema("Order v2 {id: int32, tags: [string]?, at: Timestamp, n: int64? = 7}"))
    'Order v2 {id: int32, tags: [string]?, at: Timestamp, n: int64? = 7}'
    """
    reader = _Reader(text)
    schema = reader.schema()
    reader.end()
    return schema


class _Reader:
    """Reads a schema from its text. Thread: the caller's."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        return "" if found is None else found[1]

    def _next(self, *wanted: str) -> str:
        found = _TOKEN.match(self._text, self._at)
        if found is None or (wanted and found[1] not in wanted):
            raise ValueError(f"no schema: {self._text!r} at {self._at}, wanted {' or '.join(wanted) or 'a name'}")
        self._at = found.end()
        return found[1]

    def end(self) -> None:
        """Nothing may follow."""
        if self._text[self._at :].strip():
            raise ValueError(f"no schema: {self._text!r}, {self._text[self._at :]!r} is too much")

    def schema(self) -> Schema:
        """The next schema."""
        builder = self._builder()
        if self._peek() == "?":
            self._next("?")
            builder.optional()
        if self._peek() == "=":
            self._next("=")
            builder.default_value(read_value(self._json(), builder.build()))
        if self._peek() == "with":
            self._next("with")
            for name, text in self._json().items():
                builder.parameter(name, text)
        return builder.build()

    def _json(self) -> Any:
        """JSON that stands here."""
        start = len(self._text) - len(self._text[self._at :].lstrip())
        data, self._at = json.JSONDecoder().raw_decode(self._text, start)
        return data

    def _builder(self) -> SchemaBuilder:
        token = self._next()
        if token == "[":
            items = self.schema()
            self._next("]")
            return SchemaBuilder.array(items)
        if token == "map":
            self._next("<")
            keys = self.schema()
            self._next(",")
            values = self.schema()
            self._next(">")
            return SchemaBuilder.map(keys, values)
        if token == "Decimal":
            self._next("(")
            scale = int(self._next())
            self._next(")")
            return Decimal.builder(scale)
        if token in _LOGICAL:
            return _LOGICAL[token]()
        if token in _PRIMITIVES and self._peek() != "{":
            return SchemaBuilder.type(_PRIMITIVES[token])
        return self._struct(token)

    def _struct(self, token: str) -> SchemaBuilder:
        builder = SchemaBuilder.struct()
        if token != "{":
            builder.name(token)
            version = _VERSION.match(self._peek())
            if version is not None:
                self._next()
                builder.version(int(version[1]))
            self._next("{")
        while self._peek() != "}":
            name = self._next()
            self._next(":")
            builder.field(name, self.schema())
            if self._peek() == ",":
                self._next(",")
        self._next("}")
        return builder


def write_schema(schema: Schema) -> str:
    """The text of a schema.

    Raises:
        ValueError: It has what the notation cannot say, such as a documentation.
    """
    text = _described(schema) + ("?" if schema.optional else "")
    if schema.default is not None:
        text += f" = {_json(write_value(schema.default, schema))}"
    if schema.parameters and _logical_name(schema) is None:
        text += f" with {_json(dict(schema.parameters))}"
    if read_schema(text) != schema:
        raise ValueError(f"the notation has no words for all of {schema}: {text}")
    return text


def _described(schema: Schema) -> str:
    logical = _logical_name(schema)
    if logical is not None:
        return f"Decimal({Decimal.scale(schema)})" if logical == "Decimal" else logical
    match schema.type:
        case Type.ARRAY:
            return f"[{_inner(schema.value_schema)}]"
        case Type.MAP:
            return f"map<{_inner(schema.key_schema)}, {_inner(schema.value_schema)}>"
        case Type.STRUCT:
            known = [schema.name, None if schema.version is None else f"v{schema.version}"]
            fields = ", ".join(f"{_name(field)}: {write_schema(field.schema)}" for field in schema.fields)
            return " ".join([*filter(None, known), f"{{{fields}}}"])
        case _:
            return str(schema.type.value)


def _logical_name(schema: Schema) -> str | None:
    """Returns the name of a logical type, or None for all else."""
    logical = (schema.name or "").removeprefix("org.apache.kafka.connect.data.")
    return logical if logical == "Decimal" or logical in _LOGICAL else None


def _inner(schema: Schema | None) -> str:
    if schema is None:
        raise ValueError("the notation has no words for elements without a schema")
    return write_schema(schema)


def _name(field: Field) -> str:
    if not _PLAIN_NAME.match(field.name):
        raise ValueError(f"the notation has no words for a field called {field.name!r}")
    return field.name


# ----------------------------------------------------------------------------------------------------------- values
def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_READ: Final[dict[str, Callable[[Any], object]]] = {
    "$bytes": base64.b64decode,
    "$decimal": decimal.Decimal,
    "$timestamp": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
}


def _kind(schema: Schema) -> str | None:
    """Returns the tag that an untagged value of a schema has by default, or None if it has none."""
    logical = (schema.name or "").removeprefix("org.apache.kafka.connect.data.").lower()
    if f"${logical}" in _READ:
        return f"${logical}"
    return "$bytes" if schema.type is Type.BYTES else None


def read_value(data: Any, schema: Schema | None) -> object:
    """The value that JSON writes, which has been parsed."""
    if data is None:
        return None
    if schema is None:
        return _read_schemaless(data)
    kind = _kind(schema)
    if kind is not None:
        return _READ[kind](data)
    match schema.type:
        case Type.ARRAY:
            return [read_value(one, schema.value_schema) for one in data]
        case Type.MAP if isinstance(data, list):
            return {_key(key, schema): read_value(one, schema.value_schema) for key, one in data}
        case Type.MAP:
            return {key: read_value(one, schema.value_schema) for key, one in data.items()}
        case Type.STRUCT:
            unknown = data.keys() - {field.name for field in schema.fields}
            if unknown:
                raise ValueError(f"{sorted(unknown)} are no fields of {write_schema(schema)}")
            return Struct.unchecked(schema, [read_value(data.get(field.name), field.schema) for field in schema.fields])
        case Type.FLOAT32 | Type.FLOAT64:
            return float(data)
        case _:
            return data


def _key(data: Any, schema: Schema) -> Any:
    return read_value(data, schema.key_schema)


def _read_schemaless(data: Any) -> object:
    if isinstance(data, list):
        return [_read_schemaless(one) for one in data]
    if not isinstance(data, dict):
        return data
    tag = next(iter(data), "")
    if len(data) == 1 and tag in _READ:
        return _READ[tag](data[tag])
    return {key: _read_schemaless(one) for key, one in data.items()}


def write_value(value: object, schema: Schema | None) -> Any:
    """A value as what ``json.dumps`` takes."""
    match value:
        case Struct():
            return {field.name: write_value(value.values[field.index], field.schema) for field in value.schema.fields}
        case dict():
            inner = schema.value_schema if schema is not None else None
            if all(isinstance(key, str) for key in value):
                # Maps have no order of their own.
                return {key: write_value(value[key], inner) for key in sorted(value)}
            keys = schema.key_schema if schema is not None else None
            return [[write_value(key, keys), write_value(one, inner)] for key, one in value.items()]
        case list():
            inner = schema.value_schema if schema is not None else None
            return [write_value(one, inner) for one in value]
        case bytes():
            tag, text = "$bytes", base64.b64encode(value).decode("ascii")
        case decimal.Decimal():
            tag, text = "$decimal", str(value)
        case datetime():
            tag, text = "$timestamp", _iso(value)
        case date():
            tag, text = "$date", value.isoformat()
        case time():
            tag, text = "$time", value.isoformat(timespec="auto")
        case _:
            return value
    return {tag: text} if schema is None else text


def read_typed(text: str) -> tuple[Schema | None, object]:
    """Schema and value of a text; without ``as`` there is no schema."""
    data, end = json.JSONDecoder().raw_decode(text.lstrip())
    rest = text.lstrip()[end:].strip()
    if not rest:
        return None, read_value(data, None)
    word, _, written = rest.partition(" ")
    if word != "as":
        raise ValueError(f"no value: {text!r}, {rest!r} is too much")
    schema = read_schema(written)
    return schema, read_value(data, schema)


def write_typed(schema: Schema | None, value: object) -> Sequence[str]:
    """The text of a value, and of its schema where it has one."""
    text = _json(write_value(value, schema))
    return [text] if schema is None else [text, f"as {write_schema(schema)}"]


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)
