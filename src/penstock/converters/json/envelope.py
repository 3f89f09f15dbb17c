"""Finds the schema of each JSON message before Spark parses it: messages with one schema begin with the same bytes.

Writers usually begin every message of a topic with the same ``{"schema":S,"payload":``. Python scans the first message
with an unknown beginning to find the end of its schema text; Arrow then finds all other messages with this beginning.
Messages in another order (payload first) are rewritten to this form one by one. So a batch with one schema costs one
scan and one pass in C, and needs no Spark job to find the groups. The beginning, often longer than the payload, is cut
off: readers get the payload with the closing brace of the envelope and whatever follows.

Thread: a task's pipeline thread.
Source: org.apache.kafka.connect.json.JsonConverter.toConnectData.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.converters.json.byte_columns import with_rows
from penstock.converters.json.values import parse_json, read_value, without_leading_zeros, write_value
from penstock.data import Schema, SchemaBuilder, Struct, Type
from penstock.data.conversions import wrap
from penstock.data.text import json_string
from penstock.errors import DataException, SchemaBuilderException, java_class_name
from penstock.pipeline.columns.sizes import TOO_DEEP_SCHEMA, exceeds
from penstock.pipeline.plan.step import Sorted

_NAMES: Final = {kind: kind.value for kind in Type} | {Type.FLOAT32: "float", Type.FLOAT64: "double"}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}
_NO_TYPE: Final = "Schema must contain 'type' field"


@lru_cache(maxsize=1000)
def schema_text(schema: Schema, *, numeric: bool) -> str:
    """The JSON of a schema; ``numeric``: decimals in defaults are written as numbers."""
    return _schema_text(schema, numeric)


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
        parts.append(f'"name":{json_string(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{json_string(schema.doc)}')
    if schema.parameters is not None:
        pairs = ",".join(f"{json_string(key)}:{json_string(value)}" for key, value in schema.parameters.items())
        parts.append(f'"parameters":{{{pairs}}}')
    if schema.default is not None:
        parts.append(f'"default":{write_value(schema, schema.default, numeric=numeric, defaults=True)}')
    if field is not None:
        parts.append(f'"field":{json_string(field)}')
    return "{" + ",".join(parts) + "}"


def _part(schema: Schema | None, numeric: bool) -> str:
    return "null" if schema is None else _schema_text(schema, numeric)


def read_schema(node: Any, *, defaults: bool = True) -> Schema | None:
    """The schema in parsed JSON.

    Raises:
        DataException: The JSON is not a schema.
        SchemaBuilderException: The schema is invalid: a default does not fit, or two fields have the same name.
    """
    if node is None:
        return None
    kind = node.get("type") if isinstance(node, dict) else None
    if not isinstance(kind, str):
        raise DataException(_NO_TYPE)
    if kind not in _TYPES:
        raise DataException(f"Unknown schema type: {kind}")
    builder = _builder(_TYPES[kind], node, defaults)
    optional = node.get("optional")
    builder = builder.optional() if optional is True else builder.required()
    if isinstance(node.get("name"), str):
        builder.name(node["name"])
    version = node.get("version")
    if isinstance(version, int) and not isinstance(version, bool):
        builder.version(wrap(version, 32))
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
        raise DataException(_NO_TYPE)
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
        # Java compares the default's schema with the schema under construction, which already has the default.
        raise SchemaBuilderException("Invalid default value") from DataException("Struct schemas do not match.")
    builder.default_value(value)


LACKS_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
BAD_SYNTAX: Final = "Converting byte[] to Kafka Connect data failed due to serialization error: "
#: With more different beginnings in a batch, each message is scanned by itself.
MAX_PASSES: Final = 64

_HEAD: Final = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*')
_TURN: Final = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:')
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True)
class Envelope:
    """Messages with one schema (None = schemaless), without everything up to ``"payload":``."""

    schema: Schema | None


@dataclass(frozen=True)
class UnreadableMessages:
    """Messages that cannot be read."""

    message: str
    exception: str


@dataclass(frozen=True)
class NoMessage:
    """Null messages."""


NO_MESSAGE: Final = NoMessage()
Hint = Envelope | UnreadableMessages | NoMessage

_REFUSED_SYNTAX: Final = UnreadableMessages(BAD_SYNTAX, DataException.java_name)
_REFUSED_SHAPE: Final = UnreadableMessages(LACKS_ENVELOPE, DataException.java_name)


def advice_on(message: str, side: str) -> str | None:
    """Returns advice on messages with this error: a sentence that follows Java's message."""
    if message == LACKS_ENVELOPE:
        return f"To read them, set {side}.converter.schemas.enable=false if your records are plain JSON"
    if message == BAD_SYNTAX:
        return (
            f"the message is not JSON. Set {side}.converter to the converter it was written with, or "
            "errors.tolerance=all to pass over such messages"
        )
    return None


@dataclass(frozen=True)
class _Scan:
    """The beginning of a message in the common form, and the rest of the message if it had to be rewritten."""

    head: bytes
    schema_text: str
    rewritten: bytes | None = None


class Envelopes:
    """Groups messages by schema text and caches the schemas of the last ``size`` texts."""

    def __init__(self, size: int, *, defaults: bool) -> None:
        self._size = max(1, size)
        self._defaults = defaults
        self._known: OrderedDict[bytes, Hint] = OrderedDict()
        self._schemas: OrderedDict[str, Schema | None] = OrderedDict()

    def schema_of(self, node: object) -> Schema | None:
        """The schema in one message's JSON; equal schemas are the same object, so that comparing them is fast."""
        text = repr(node)
        if text in self._schemas:
            self._schemas.move_to_end(text)
            return self._schemas[text]
        schema = read_schema(node, defaults=self._defaults)
        self._schemas[text] = schema
        if len(self._schemas) > self._size:
            self._schemas.popitem(last=False)
        return schema

    def sort(self, column: pa.ChunkedArray) -> Sorted:
        """Gives each message its hint, and removes the bytes before the payload.

        What follows would look through a schema in each message, which is often longer than the payload.
        """
        rows = len(column)
        hints: dict[Hint, int] = {}
        codes = np.full(rows, -1, dtype=np.int32)
        heads = np.zeros(rows, dtype=np.int32)
        rewritten: dict[int, bytes | None] = {}
        if column.null_count:
            codes[column.is_null().to_numpy()] = hints.setdefault(NO_MESSAGE, 0)
        passes = 0
        left = np.flatnonzero(codes < 0)
        rest: pa.ChunkedArray = column.take(pa.array(left)) if column.null_count else column
        while len(left):
            first = rest[0].as_py()
            scan = _scan(first)
            if isinstance(scan, _Scan) and scan.rewritten is None and passes < MAX_PASSES:
                passes += 1
                same = pc.starts_with(rest, scan.head).to_numpy()
                codes[left[same]] = hints.setdefault(self._hint(scan), len(hints))
                heads[left[same]] = len(scan.head)
                if same.all():
                    break
                keep = np.flatnonzero(~same)
                left, rest = left[keep], rest.take(pa.array(keep))
                continue
            left, rest = self._one_by_one(left, rest, passes >= MAX_PASSES, (codes, heads), hints, rewritten)
        deep = any(isinstance(hint, Envelope) and exceeds(hint.schema) for hint in hints)
        column = with_rows(without_heads(column, heads), rewritten)
        return Sorted(tuple(hints), codes if len(hints) > 1 else None, column, deep=deep)

    def _one_by_one(
        self,
        left: np.ndarray,
        rest: pa.ChunkedArray,
        to_the_end: bool,
        found: tuple[np.ndarray, np.ndarray],
        hints: dict[Hint, int],
        rewritten: dict[int, bytes | None],
    ) -> tuple[np.ndarray, pa.ChunkedArray]:
        """Scans messages until one has the common beginning; returns that message and all later ones."""
        codes, heads = found
        for index, row in enumerate(left.tolist()):
            scan = _scan(rest[index].as_py())
            if isinstance(scan, UnreadableMessages):
                codes[row] = hints.setdefault(scan, len(hints))
                continue
            if scan.rewritten is not None:
                rewritten[row] = scan.rewritten
            elif not to_the_end:
                return left[index:], rest.slice(index)
            else:
                heads[row] = len(scan.head)
            codes[row] = hints.setdefault(self._hint(scan), len(hints))
        return left[:0], rest

    def _hint(self, scan: _Scan) -> Hint:
        found = self._known.get(scan.head)
        if found is not None:
            self._known.move_to_end(scan.head)
            return found
        hint = self._read(scan)
        self._known[scan.head] = hint
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return hint

    def _read(self, scan: _Scan) -> Hint:
        try:
            schema = read_schema(parse_json(scan.schema_text), defaults=self._defaults)
        except ValueError:
            return _REFUSED_SYNTAX
        except RecursionError:
            return UnreadableMessages(TOO_DEEP_SCHEMA, DataException.java_name)
        except Exception as error:  # The schema is part of the message, so this is an error of the message.
            return UnreadableMessages(str(error), java_class_name(error))
        return Envelope(schema)


def _scan(data: bytes) -> _Scan | UnreadableMessages:
    """Finds the end of a message's schema."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _REFUSED_SYNTAX
    head = _HEAD.match(text)
    if head is not None:
        try:
            _, end = _DECODER.raw_decode(text, head.end())
        except ValueError:
            return _scan_any(text)
        turn = _TURN.match(text, end)
        if turn is not None:
            return _Scan(text[: turn.end()].encode(), text[head.end() : end])
    return _scan_any(text)


def _scan_any(text: str) -> _Scan | UnreadableMessages:
    """Finds schema and payload in any order, and rewrites the message to the common form."""
    at = _skip(text, 0)
    if at == len(text):
        return _REFUSED_SHAPE
    try:
        try:
            members = _members(text, at)
        except ValueError:
            text = without_leading_zeros(text)
            members = _members(text, at)
    except ValueError:
        return _REFUSED_SYNTAX
    if members is None or members.keys() != {"schema", "payload"}:
        return _REFUSED_SHAPE
    head = f'{{"schema":{members["schema"]},"payload":'
    return _Scan(head.encode(), members["schema"], f"{members['payload']}}}".encode())


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None, "no blank is a match, too"
    return match.end()


def _members(text: str, at: int) -> dict[str, str] | None:
    """The texts of an object's members; None = it is JSON, but not an object.

    Raises:
        ValueError: It is not JSON.
    """
    if text[at] != "{":
        _DECODER.raw_decode(text, at)
        return None
    members: dict[str, str] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members
    while True:
        if text[at : at + 1] != '"':
            raise ValueError("a name is missing")
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("a colon is missing")
        start = _skip(text, at + 1)
        _, at = _DECODER.raw_decode(text, start)
        members[name] = text[start:at]
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "}":
            return members
        if mark != ",":
            raise ValueError("a comma is missing")
        at = _skip(text, at + 1)


def without_heads(column: pa.ChunkedArray, heads: np.ndarray) -> pa.ChunkedArray:
    """Removes the given number of first bytes from each message; null stays null.

    >>> without_heads(pa.chunked_array([[b"ab:1", None, b"c:2"]], pa.binary()), np.array([3, 0, 2])).to_pylist()
    [b'1', None, b'2']
    """
    ends = np.cumsum([0, *map(len, column.chunks)])
    parts = [_cut(chunk, heads[ends[index] : ends[index + 1]]) for index, chunk in enumerate(column.chunks)]
    return pa.chunked_array(parts, column.type)


def _cut(chunk: pa.BinaryArray, heads: np.ndarray) -> pa.BinaryArray:
    if not heads.any():
        return chunk
    size = len(chunk)
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[chunk.offset : chunk.offset + size + 1]
    # An array of the same bytes, twice as long, with alternating heads and rests: every other item is a rest.
    halves = np.empty(2 * size + 1, dtype=np.int32)
    halves[::2] = bounds
    halves[1::2] = bounds[:-1] + heads
    both = pa.Array.from_buffers(chunk.type, 2 * size, [None, pa.py_buffer(halves), data])
    gone = chunk.is_null().to_numpy(zero_copy_only=False) if chunk.null_count else None
    return both.take(pa.array(np.arange(1, 2 * size, 2), mask=gone))
