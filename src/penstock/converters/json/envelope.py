"""Finds the schema of each JSON message before Spark sees it: messages of one schema text begin with the same bytes.

``{"schema":S,"payload":`` is the beginning of every message of one topic as writers make them. The first message that
has no known beginning is scanned in Python for where its schema text ends; Arrow then finds all others that begin so.
What is written in another order (payload first) is put into this form, one message at a time. So a batch of one
schema costs one scan and one pass in C, and no Spark job has to find the groups. The beginning says the same in every
message, and is often longer than the payload: it is passed over where payloads are read here, and cut off of those that
Spark reads, which is given the payload with the closing brace of the envelope, whatever else stands there.

Main type: ``Envelopes`` (one converter's memory of schema texts). Hints: ``Envelope``, ``Refused``, ``NO_MESSAGE``.

Thread: a task's pipeline thread.
Source: org.apache.kafka.connect.json.JsonConverter.toConnectData.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.converters.json.schema import read_schema
from penstock.converters.json.values.tree import parse_json, without_leading_zeros
from penstock.data import Schema
from penstock.errors import DataException, java_class_name
from penstock.pipeline.columns.nesting import TOO_DEEP_SCHEMA, exceeds
from penstock.pipeline.plan.step import Sorted

LACKS_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
BAD_SYNTAX: Final = "Converting byte[] to Kafka Connect data failed due to serialization error: "
#: Beyond so many different beginnings in a batch each message is scanned by itself.
MAX_PASSES: Final = 64

_HEAD: Final = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*')
_TURN: Final = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:')
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True)
class Envelope:
    """Messages of one schema, cut off behind ``"payload":``.

    Attributes:
        schema: The schema; None = schemaless.
    """

    schema: Schema | None


@dataclass(frozen=True)
class Refused:
    """Messages that cannot be read."""

    message: str
    exception: str


@dataclass(frozen=True)
class NoMessage:
    """Null messages."""


NO_MESSAGE: Final = NoMessage()
Hint = Envelope | Refused | NoMessage

_REFUSED_SYNTAX: Final = Refused(BAD_SYNTAX, DataException.java_name)
_REFUSED_SHAPE: Final = Refused(LACKS_ENVELOPE, DataException.java_name)


def advice_on(message: str, side: str) -> str | None:
    """Returns advice on messages with this error: a sentence that follows Java's."""
    if message == LACKS_ENVELOPE:
        return f"To read them, set {side}.converter.schemas.enable=false if your records are plain JSON"
    if message == BAD_SYNTAX:
        return (
            f"the message is not JSON. Set {side}.converter to the converter it was written with, or "
            "errors.tolerance=all to pass over such messages"
        )
    return None


def bad_syntax() -> DataException:
    """The error of a message that is not JSON."""
    return DataException(BAD_SYNTAX)


def lacks_envelope() -> DataException:
    """The error of a message without schema and payload."""
    return DataException(LACKS_ENVELOPE)


@dataclass(frozen=True)
class _Scan:
    """The beginning of a message in the common form, and the rest if the message had to be rewritten."""

    head: bytes
    schema_text: str
    rewritten: bytes | None = None


class Envelopes:
    """Sorts messages by schema text and remembers the schemas.

    Args:
        size: How many schema texts to remember.
        defaults: Whether nulls are replaced by defaults while schemas are read.
    """

    def __init__(self, size: int, *, defaults: bool) -> None:
        self._size = max(1, size)
        self._defaults = defaults
        self._known: OrderedDict[bytes, Hint] = OrderedDict()
        self._schemas: OrderedDict[str, Schema | None] = OrderedDict()

    def schema_of(self, node: object) -> Schema | None:
        """The schema of one message, by its JSON: the same object for equal ones, which makes them quick to compare.

        Raises:
            DataException: it is no schema.
        """
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
        """Gives each message its hint, and cuts off what comes before the payload."""
        found, heads = self.find(column)
        return found if heads is None else replace(found, column=without_heads(column, heads))

    def find(self, column: pa.ChunkedArray) -> tuple[Sorted, np.ndarray | None]:
        """Gives each message its hint.

        Returns:
            The messages, as they came, and how many bytes of each come before its payload; or, where some had to be
            rewritten, without these bytes, and None.
        """
        rows = len(column)
        hints: dict[Hint, int] = {}
        codes = np.full(rows, -1, dtype=np.int32)
        heads = np.zeros(rows, dtype=np.int32)
        rewritten: dict[int, bytes] = {}
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
        found = Sorted(tuple(hints), codes if len(hints) > 1 else None, deep=deep)
        if not rewritten:
            return found, heads
        return replace(found, column=_replaced(without_heads(column, heads), rewritten)), None

    def _one_by_one(
        self,
        left: np.ndarray,
        rest: pa.ChunkedArray,
        to_the_end: bool,
        found: tuple[np.ndarray, np.ndarray],
        hints: dict[Hint, int],
        rewritten: dict[int, bytes],
    ) -> tuple[np.ndarray, pa.ChunkedArray]:
        """Scans messages until one begins as most do; returns what is left from there on."""
        codes, heads = found
        for index, row in enumerate(left.tolist()):
            scan = _scan(rest[index].as_py())
            if isinstance(scan, Refused):
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
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return hint

    def _read(self, scan: _Scan) -> Hint:
        try:
            schema = read_schema(parse_json(scan.schema_text), defaults=self._defaults)
        except ValueError:
            return _REFUSED_SYNTAX
        except RecursionError:
            return Refused(TOO_DEEP_SCHEMA, DataException.java_name)
        except Exception as error:  # the schema is the message's, so the message is at fault
            return Refused(str(error), java_class_name(error))
        return Envelope(schema)


def _scan(data: bytes) -> _Scan | Refused:
    """Finds where the schema of a message ends."""
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


def _scan_any(text: str) -> _Scan | Refused:
    """Finds schema and payload in any order, and puts the message into the common form."""
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
    return at if match is None else match.end()


def _members(text: str, at: int) -> dict[str, str] | None:
    """The texts of an object's members; None = it is JSON, but no object.

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
    """Each message without so many of its first bytes; null stays null.

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
    # The same bytes as an array twice as long, head and rest in turn: every other entry is what stays.
    halves = np.empty(2 * size + 1, dtype=np.int32)
    halves[::2] = bounds
    halves[1::2] = bounds[:-1] + heads
    both = pa.Array.from_buffers(chunk.type, 2 * size, [None, pa.py_buffer(halves), data])
    gone = chunk.is_null().to_numpy(zero_copy_only=False) if chunk.null_count else None
    return both.take(pa.array(np.arange(1, 2 * size, 2), mask=gone))


def _replaced(column: pa.ChunkedArray, rewritten: dict[int, bytes]) -> pa.ChunkedArray:
    if not rewritten:
        return column
    order = np.arange(len(column))
    order[list(rewritten)] = len(column) + np.arange(len(rewritten))
    both = pa.chunked_array([*column.chunks, pa.array(rewritten.values(), column.type)])
    return both.take(pa.array(order))
