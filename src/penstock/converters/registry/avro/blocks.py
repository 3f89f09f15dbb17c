"""Reads Avro messages of one schema as Arrow columns, field by field over all messages.

A tree of small readers is made once for a schema. Messages of unsupported schemas (unions of three types, recursive
records, maps whose keys are not texts, records without fields) are read one by one, and so are messages that do not
seem to fit their schema: ``codec`` reads them or reports the error.

Source: the Avro specification, 1.12, "Binary Encoding"; docs/decisions/avro-in-blocks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.converters.registry.avro.forms import AvroOptions, AvroType, is_map_entry, only_member
from penstock.converters.registry.wire import Cursors, Source, texts_of
from penstock.data import Schema, Time, Type
from penstock.data.text import MILLIS_PER_DAY
from penstock.pipeline.columns.expressions import TooManyDigits, decimals
from penstock.pipeline.columns.layout import (
    MAX_DECIMAL_DIGITS,
    LayoutKind,
    arrow_type,
    decimal_scale,
    default_physical,
    is_decimal,
    logical_name,
)
from penstock.pipeline.columns.sizes import exceeds

_INT_BITS: Final = 31
#: The number of items of each message that are always read here ..
_FREE_STEPS: Final = 8
#: .. more items are read as long as this many messages have some left.
_MIN_IN_STEP: Final = 64


class _NoColumns(Exception):
    """A schema without column support."""


class _Node(Protocol):
    """Reads the values of a type into columns of ``kind``; each takes at least ``least`` bytes."""

    kind: pa.DataType
    least: int

    def read(self, cursors: Cursors) -> pa.Array:
        """The next value of each message; arbitrary for marked messages."""


class AvroBlocks:
    """Reads messages of one schema."""

    def __init__(self, node: _Node, schema: Schema) -> None:
        self._node = node
        self.schema = schema
        self.physical = default_physical(schema)

    def read(self, source: Source, at: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray] | None:
        """See ``ColumnReader``. Bytes after a value are ignored, as when messages are read one by one. None if a
        decimal needs a wider layout.
        """
        cursors = Cursors(source, at.copy(), ends.copy())
        try:
            column = self._node.read(cursors)
        except TooManyDigits:
            return None
        return column, cursors.bad


def avro_blocks(found: AvroType, schema: Schema | None, options: AvroOptions) -> AvroBlocks | None:
    """Returns a reader of messages of a schema as columns, or None if columns are not possible."""
    # Top-level bytes are written without their length.
    if schema is None or found.kind == "bytes" or exceeds(schema):
        return None
    try:
        return AvroBlocks(_node(found, schema, options), schema)
    except _NoColumns:
        return None


def _node(found: AvroType, schema: Schema | None, options: AvroOptions) -> _Node:
    if schema is None or found.recursive:
        raise _NoColumns
    if found.kind == "union":
        return _union_node(found, schema, options)
    if found.kind == "record" and found.fields and schema.type is Type.STRUCT:
        pairs = zip(found.fields, schema.fields, strict=True)
        return _Record(arrow_type(schema), [_node(one.type, field.schema, options) for one, field in pairs])
    if found.kind in ("array", "map"):
        return _items_node(found, schema, options)
    if found.kind == "enum":
        return _Enum(found.symbols)
    if found.kind in ("bytes", "fixed"):
        size = found.size if found.kind == "fixed" else None
        if not is_decimal(schema):
            return _Bytes(size)
        if default_physical(schema).form is not LayoutKind.DECIMAL:
            raise _NoColumns
        return _Decimal(_Bytes(size), decimal_scale(schema) or 0)
    if found.kind in ("int", "long"):
        return _Whole(arrow_type(schema), int32=found.kind == "int", time=logical_name(schema) == Time.LOGICAL_NAME)
    scalar = _SCALARS.get(found.kind)
    if scalar is None:
        raise _NoColumns
    return scalar


def _union_node(found: AvroType, schema: Schema, options: AvroOptions) -> _Node:
    member = only_member(found, options)
    if member is None:
        raise _NoColumns
    return _Optional(_node(member, schema, options), list(found.branches).index(member), len(found.branches))


def _items_node(found: AvroType, schema: Schema, options: AvroOptions) -> _Node:
    assert found.items is not None, "arrays and maps have items"
    if found.kind == "array" and (schema.type is Type.MAP or is_map_entry(found.items)):
        raise _NoColumns
    items = _node(found.items, schema.value_schema, options)
    parts = [items] if found.kind == "array" else [_TEXTS, items]
    if not sum(part.least for part in parts):
        # Any number of them takes no bytes.
        raise _NoColumns
    return _Items(arrow_type(schema), parts)


@dataclass
class _Whole:
    kind: pa.DataType
    int32: bool
    time: bool
    least: int = 1

    def read(self, cursors: Cursors) -> pa.Array:
        found = cursors.varints()
        if self.int32:
            cursors.mark((found >> _INT_BITS) != (found >> (2 * _INT_BITS + 1)))
        if self.time:
            cursors.mark((found < 0) | (found > MILLIS_PER_DAY))
        # As in Java, a number for eight or sixteen bits is truncated.
        return pa.array(found.astype(self.kind.to_pandas_dtype()))


@dataclass
class _Scalar:
    kind: pa.DataType
    least: int
    read: Callable[[Cursors], pa.Array]


class _Bytes:
    """Bytes with their length, or of a fixed length."""

    kind = pa.binary()

    def __init__(self, size: int | None = None) -> None:
        self._size = size
        self.least = 1 if size is None else size

    def spans(self, cursors: Cursors) -> tuple[np.ndarray, np.ndarray]:
        """Returns the start and the length of the bytes of each message."""
        lengths = cursors.varints() if self._size is None else np.full(len(cursors), self._size, dtype=np.int64)
        return cursors.spans(lengths)

    def read(self, cursors: Cursors) -> pa.Array:
        return cursors.source.slices(*self.spans(cursors))


_TEXTS: Final = _Scalar(
    pa.string(), 1, lambda cursors: texts_of(cursors.source.slices(*cursors.spans(cursors.varints())), cursors)
)
_SCALARS: Final[Mapping[str, _Node]] = {
    "boolean": _Scalar(pa.bool_(), 1, lambda cursors: pa.array(cursors.octets() == 1)),
    "float": _Scalar(pa.float32(), 4, lambda cursors: pa.array(cursors.floats())),
    "double": _Scalar(pa.float64(), 8, lambda cursors: pa.array(cursors.doubles())),
    "string": _TEXTS,
}


class _Enum:
    kind = pa.string()
    least = 1

    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, cursors: Cursors) -> pa.Array:
        place = cursors.varints()
        wrong = (place < 0) | (place >= len(self._symbols))
        cursors.mark(wrong)
        return self._symbols.take(pa.array(place, mask=wrong) if wrong.any() else pa.array(place))


class _Decimal:
    def __init__(self, digits: _Bytes, scale: int) -> None:
        self._digits = digits
        self.least = digits.least
        self.kind = pa.decimal128(MAX_DECIMAL_DIGITS, scale)

    def read(self, cursors: Cursors) -> pa.Array:
        starts, lengths = self._digits.spans(cursors)
        return decimals(cursors.source.octets, starts, lengths, self.kind)


@dataclass
class _Optional:
    """A union of null and one more type, or of one type only."""

    inner: _Node
    place: int
    branches: int

    def __post_init__(self) -> None:
        self.kind = self.inner.kind
        self.least = 1

    def read(self, cursors: Cursors) -> pa.Array:
        found = cursors.varints()
        cursors.mark((found < 0) | (found >= self.branches))
        there = found == self.place
        if there.all():
            return self.inner.read(cursors)
        rows = np.flatnonzero(there)
        if not len(rows):
            return pa.nulls(len(cursors), self.kind)
        some = cursors.some(rows)
        part = self.inner.read(some)
        cursors.put(rows, some)
        place = np.zeros(len(cursors), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        return part.take(pa.array(place, mask=~there))


class _Record:
    def __init__(self, kind: pa.StructType, fields: Sequence[_Node]) -> None:
        self.kind = kind
        self._fields = fields
        self.least = sum(one.least for one in fields)

    def read(self, cursors: Cursors) -> pa.Array:
        return pa.StructArray.from_arrays([one.read(cursors) for one in self._fields], fields=list(self.kind))


class _Items:
    """An array or a map: blocks of items. Reads the first items of all messages, then the second items, and so on.

    A message with many more items than the others is read separately.
    """

    least = 1

    def __init__(self, kind: pa.DataType, parts: Sequence[_Node]) -> None:
        self.kind = kind
        self._parts = parts
        self._least = sum(part.least for part in parts)

    def read(self, cursors: Cursors) -> pa.Array:
        steps: list[list[pa.Array]] = []
        owners: list[np.ndarray] = []
        counts = np.zeros(len(cursors), dtype=np.int64)
        left = np.zeros(len(cursors), dtype=np.int64)
        live = np.arange(len(cursors))
        while len(live := self._with_items(cursors, live, left)):
            if len(steps) >= _FREE_STEPS and len(live) < _MIN_IN_STEP:
                rest = np.zeros(len(cursors), dtype=bool)
                rest[live] = True
                cursors.mark(rest)
                break
            some = cursors.some(live)
            steps.append([part.read(some) for part in self._parts])
            owners.append(live)
            cursors.put(live, some)
            left[live] -= 1
            counts[live] += 1
            if some.bad.any():
                live = live[~some.bad]
        return self._assembled(cursors, steps, owners, counts)

    def _with_items(self, cursors: Cursors, live: np.ndarray, left: np.ndarray) -> np.ndarray:
        """The messages that have one more item, after the heads of their blocks."""
        heads = live[left[live] == 0]
        if len(heads):
            some = cursors.some(heads)
            count = some.varints()
            sized = np.flatnonzero(count < 0)
            if len(sized):
                count[sized] = -count[sized]
                also = some.some(sized)
                also.varints()
                some.put(sized, also)
            some.mark((count < 0) | (count > (some.ends - some.at) // self._least))
            left[heads] = np.where(some.bad, 0, count)
            cursors.put(heads, some)
            live = live[left[live] > 0]
        return live

    def _assembled(
        self, cursors: Cursors, steps: Sequence[Sequence[pa.Array]], owners: Sequence[np.ndarray], counts: np.ndarray
    ) -> pa.Array:
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        if not steps:
            items = [pa.array([], part.kind) for part in self._parts]
        elif len(steps) == 1:
            items = list(steps[0])
        else:
            order = pa.array(np.argsort(np.concatenate(owners), kind="stable"))
            items = [pa.concat_arrays(column).take(order) for column in zip(*steps, strict=True)]
        if len(items) == 1:
            return pa.ListArray.from_arrays(pa.array(offsets), items[0], type=self.kind)
        self._mark_twice(cursors, items[0], counts)
        return pa.MapArray.from_arrays(pa.array(offsets), *items, type=self.kind)

    def _mark_twice(self, cursors: Cursors, keys: pa.Array, counts: np.ndarray) -> None:
        """Marks messages with a duplicate key: reading them one by one decides which entry counts."""
        if not len(keys) or not (counts > 1).any():
            return
        codes = keys.dictionary_encode()
        rows = np.repeat(np.arange(len(counts)), counts)
        pairs = np.sort(rows * len(codes.dictionary) + codes.indices.to_numpy())
        again = pairs[1:][pairs[1:] == pairs[:-1]]
        if len(again):
            wrong = np.zeros(len(counts), dtype=bool)
            wrong[again // len(codes.dictionary)] = True
            cursors.mark(wrong)
