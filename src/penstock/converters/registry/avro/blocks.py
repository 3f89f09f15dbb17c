"""Reads and writes many Avro messages of one schema as Arrow columns, field by field over all messages.

A tree of small readers or writers is made once for a schema. Messages of unsupported schemas (unions of three types,
recursive records, records without fields; for reading, maps whose keys are not texts; for writing, conversions between
kinds of numbers) are read or written one by one, like messages that do not seem to fit their schema: ``codec`` and
``values`` do that, or report the error.

Source: the Avro specification, 1.12, "Binary Encoding"; docs/decisions/avro-in-blocks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.converters.json.plain_bytes import is_utf8
from penstock.converters.json.writing import unscaled_bytes
from penstock.converters.registry.avro.forms import (
    AvroOptions,
    AvroType,
    entry_types,
    is_map_entry,
    is_union,
    only_member,
)
from penstock.converters.registry.avro.values import branch_for, fits
from penstock.converters.registry.wire import Cursors, Pieces, Source, WritableRows, texts_of
from penstock.data import Decimal, Schema, Time, Type
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
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.columns.sizes import exceeds
from penstock.pipeline.plan.step import WrittenAtOnce

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


#: More bytes do not fit 32-bit offsets.
MAX_BYTES: Final = 1 << 30
#: Columns are written in parts of this many bytes, because the matrices of numbers are several times as large.
PART_BYTES: Final = 4 << 20


class _NodeWriter(Protocol):
    """Writes the values of a type."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        """Appends the bytes of values; those of a null are arbitrary, the caller marks it if nulls are not allowed."""


class AvroColumnWriter:
    """Writes values of one schema."""

    def __init__(self, schema: Schema, node: _NodeWriter) -> None:
        self._schema = schema
        self._node = node

    def write(self, head: bytes, values: Sequence[object] | pa.Array) -> WrittenAtOnce | None:
        """Messages with a head; ``values`` may be a column in the narrowest layout of their schema."""
        try:
            column = values if isinstance(values, pa.Array) else to_arrow(values, self._schema)[0]
            # A null has no message of this schema; what fits no column is null there.
            rows = WritableRows(column.is_null().to_numpy(zero_copy_only=False))
            if column.nbytes + len(head) * len(column) > MAX_BYTES:
                return None
            return WrittenAtOnce(pa.concat_arrays(list(self._parts(head, column, rows))), rows.wrong)
        except Exception:  # Too many bytes, or an error of one value.
            return None

    def _parts(self, head: bytes, column: pa.Array, rows: WritableRows) -> Iterator[pa.BinaryArray]:
        count = len(column)
        size = max(1, count * PART_BYTES // max(1, column.nbytes))
        for start in range(0, max(1, count), size):
            part = column.slice(start, size)
            pieces = Pieces(len(part))
            self._node.write(part, rows.some(np.arange(start, start + len(part))), pieces)
            yield pieces.join(head)


def avro_column_writer(schema: Schema | None, found: AvroType, options: AvroOptions) -> AvroColumnWriter | None:
    """Returns the writer of many values of a schema, or None if they are written one by one."""
    # Top-level bytes are written without their length.
    if schema is None or found.kind == "bytes" or exceeds(schema):
        return None
    try:
        return AvroColumnWriter(schema, _nullable_writer(schema, found, options, None))
    except _NoColumns:
        return None


def _nullable_writer(schema: Schema, found: AvroType, options: AvroOptions, default: Any) -> _NodeWriter:
    """Returns the node for values that may be null; `default`: written instead of null, or None."""
    filled = None
    if default is not None:
        filled, errors, _ = to_arrow([default], schema)
        if errors:
            raise _NoColumns
    if found.kind != "union":
        return _RequiredWriter(_writer(schema, found, options), filled)
    branch = None if is_union(schema) else branch_for(schema, found.branches, options)
    if branch is None:
        raise _NoColumns
    nothing = next((place for place, one in enumerate(found.branches) if one.kind == "null"), None)
    place = next(place for place, one in enumerate(found.branches) if one is branch)
    return _OptionalWriter(_writer(schema, branch, options), place, nothing, filled)


def _writer(schema: Schema, found: AvroType, options: AvroOptions) -> _NodeWriter:
    """Returns the node for non-null values."""
    if found.recursive or not fits(schema, found, options) or is_union(schema):
        raise _NoColumns
    if logical_name(schema) == Decimal.LOGICAL_NAME:
        return _DecimalWriter(schema) if found.kind == "bytes" else _refused()
    if schema.type is Type.STRUCT:
        return _record_writer(schema, found, options)
    if schema.type is Type.ARRAY or schema.type is Type.MAP:
        return _several_writer(schema, found, options)
    if found.kind in _WHOLE and schema.type in _WHOLE[found.kind]:
        return _WholeWriter(schema)
    make = _SCALAR_WRITERS.get((schema.type, found.kind))
    return _refused() if make is None else make(schema, found)


def _several_writer(schema: Schema, found: AvroType, options: AvroOptions) -> _NodeWriter:
    assert found.items is not None, "arrays and maps have items"
    assert schema.value_schema is not None, "arrays and maps have items"
    if schema.type is Type.MAP and found.kind == "array":
        types = entry_types(found.items)
        if tuple(one.type for one in found.items.fields) != types:
            raise _NoColumns
        assert schema.key_schema is not None, "maps have keys"
        keys = _nullable_writer(schema.key_schema, types[0], options, None)
        return _EntriesWriter(keys, _nullable_writer(schema.value_schema, types[1], options, None))
    items = _nullable_writer(schema.value_schema, found.items, options, None)
    return (
        _ListWriter(items) if schema.type is Type.ARRAY else _EntriesWriter(_RequiredWriter(_TextWriter(), None), items)
    )


def _refused() -> _NodeWriter:
    raise _NoColumns


def _record_writer(schema: Schema, found: AvroType, options: AvroOptions) -> _NodeWriter:
    by_name = {options.name(field.name): field for field in schema.fields}
    parts: list[tuple[int, _NodeWriter]] = []
    for one in found.fields:
        field = next((by_name[name] for name in (one.name, *one.aliases) if name in by_name), None)
        if field is None:
            raise _NoColumns
        default = None if options.null_stays and field.schema.optional else field.schema.default
        parts.append((field.index, _nullable_writer(field.schema, one.type, options, default)))
    return _RecordWriter(parts) if parts else _refused()


def _present(column: pa.Array) -> np.ndarray | None:
    """Marks the rows that have a value; None if all have one."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None


class _WithDefaultWriter:
    """Replaces nulls by a default: a column of it, or None."""

    def __init__(self, inner: _NodeWriter, default: pa.Array | None) -> None:
        self._inner = inner
        self._default = default

    def _filled(self, column: pa.Array) -> pa.Array:
        if self._default is None or not column.null_count:
            return column
        places = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.arange(len(column)), len(column))
        return pa.concat_arrays([column, self._default.cast(column.type)]).take(pa.array(places))


class _RequiredWriter(_WithDefaultWriter):
    """Values that must not be null."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        column = self._filled(column)
        there = _present(column)
        if there is not None:
            rows.mark(~there)
        self._inner.write(column, rows, pieces)


class _OptionalWriter(_WithDefaultWriter):
    """A union whose values have the branch ``place`` or are null (``nothing``, the branch of null, if any)."""

    def __init__(self, inner: _NodeWriter, place: int, nothing: int | None, default: pa.Array | None) -> None:
        super().__init__(inner, default)
        self._place = place
        self._nothing = nothing

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        column = self._filled(column)
        there = _present(column)
        if there is None:
            pieces.varints(np.full(len(column), self._place, dtype=np.int64), None)
            self._inner.write(column, rows, pieces)
            return
        if self._nothing is None:
            rows.mark(~there)
        pieces.varints(np.where(there, self._place, self._nothing or 0).astype(np.int64), None)
        if isinstance(self._inner, _ScalarWriter):
            self._inner.write(column, rows, pieces)
        elif there.any():
            # Items of null values take no bytes.
            which = np.flatnonzero(there)
            part = Pieces(len(which))
            self._inner.write(column.take(pa.array(which)), rows.some(which), part)
            places = np.zeros(len(column), dtype=np.int64)
            places[which] = np.arange(len(which))
            pieces.long(part.join().take(pa.array(places, mask=~there)).fill_null(b""))


class _ScalarWriter:
    """Values whose nulls take no bytes."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        raise NotImplementedError


#: The Connect types that have number columns for an Avro type.
_WHOLE: Final[Mapping[str, frozenset[Type]]] = {
    "int": frozenset((Type.INT8, Type.INT16, Type.INT32)),
    "long": frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64)),
}


class _WholeWriter(_ScalarWriter):
    def __init__(self, schema: Schema) -> None:
        self._time = logical_name(schema) == Time.LOGICAL_NAME

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        numbers = (column if there is None else column.fill_null(0)).to_numpy().astype(np.int64)
        if self._time:
            rows.mark((numbers < 0) | (numbers > MILLIS_PER_DAY))
        pieces.varints(numbers, there)


class _FixedWriter(_ScalarWriter):
    """Numbers of a fixed width."""

    def __init__(self, layout: str) -> None:
        self._layout = layout

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        filled = column if there is None else column.fill_null(pa.scalar(0).cast(column.type))
        values = filled.to_numpy(zero_copy_only=False).astype(self._layout)
        data = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        kept = np.ones(data.shape, dtype=bool)
        pieces.short(data, kept if there is None else kept & there[:, np.newaxis])


class _BytesWriter(_ScalarWriter):
    """Bytes with their length, or of a fixed length."""

    def __init__(self, size: int | None = None) -> None:
        self._size = size

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        data = column if there is None else column.fill_null(b"")
        lengths = pc.binary_length(data).to_numpy().astype(np.int64)
        if self._size is None:
            pieces.varints(lengths, there)
        else:
            wrong = lengths != self._size
            rows.mark(wrong if there is None else wrong & there)
        pieces.long(data)


class _TextWriter(_ScalarWriter):
    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        data = (column if there is None else column.fill_null("")).cast(pa.binary())
        try:
            # A column may contain half of a surrogate pair.
            data.cast(pa.string())
        except pa.ArrowInvalid:
            rows.mark(np.array([not is_utf8(one) for one in data.to_pylist()]))
        pieces.varints(pc.binary_length(data).to_numpy().astype(np.int64), there)
        pieces.long(data)


class _DecimalWriter(_BytesWriter):
    """Numbers, in either layout of decimals."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._scale = Decimal.scale(schema)

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        if pa.types.is_decimal(column.type):
            super().write(unscaled_bytes(column), rows, pieces)
            return
        digits, scales = column.flatten()
        rows.mark(pc.not_equal(scales, self._scale).fill_null(False).to_numpy(zero_copy_only=False))
        super().write(digits, rows, pieces)


class _EnumWriter(_ScalarWriter):
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        places = pc.index_in(column, self._symbols)
        if places.null_count:
            unknown = places.is_null().to_numpy(zero_copy_only=False)
            rows.mark(unknown if there is None else unknown & there)
            places = places.fill_null(0)
        pieces.varints(places.to_numpy().astype(np.int64), there)


_SCALAR_WRITERS: Final[Mapping[tuple[Type, str], Callable[[Schema, AvroType], _NodeWriter]]] = {
    (Type.BOOLEAN, "boolean"): lambda *_: _FixedWriter("u1"),
    (Type.FLOAT32, "float"): lambda *_: _FixedWriter("<f4"),
    (Type.FLOAT64, "double"): lambda *_: _FixedWriter("<f8"),
    (Type.STRING, "string"): lambda *_: _TextWriter(),
    (Type.STRING, "enum"): lambda _, found: _EnumWriter(found.symbols),
    (Type.BYTES, "bytes"): lambda *_: _BytesWriter(),
    (Type.BYTES, "fixed"): lambda _, found: _BytesWriter(found.size),
}


@dataclass
class _RecordWriter:
    """A record: for each of its fields the position in the struct, and its writer."""

    fields: Sequence[tuple[int, _NodeWriter]]

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        for place, node in self.fields:
            node.write(column.field(place), rows, pieces)


class _SeveralWriter:
    """Items after their count, followed by 0; only 0 for no items."""

    def __init__(self, *parts: _NodeWriter) -> None:
        self._parts = parts

    def _write(self, column: pa.Array, items: Sequence[pa.Array], rows: WritableRows, pieces: Pieces) -> None:
        offsets = column.offsets.to_numpy()
        counts = np.diff(offsets).astype(np.int64)
        there = _present(column)
        if there is not None:
            counts[~there] = 0
        first, last = int(offsets[0]), int(offsets[-1])
        if first == last:
            pieces.varints(counts, None)
            return
        owners = np.repeat(np.arange(len(column)), np.diff(offsets))
        part = Pieces(last - first)
        inside = rows.some(owners)
        for node, one in zip(self._parts, items, strict=True):
            node.write(one.slice(first, last - first), inside, part)
        made = part.join()
        bounds = np.frombuffer(made.buffers()[1], np.int32, len(made) + 1, made.offset * 4)[offsets - first]
        several = pa.Array.from_buffers(
            pa.binary(), len(column), [None, pa.py_buffer(np.ascontiguousarray(bounds)), made.buffers()[2]]
        )
        filled = counts > 0
        pieces.varints(counts, filled)
        pieces.long(several)
        pieces.varints(np.zeros(len(column), dtype=np.int64), None)


class _ListWriter(_SeveralWriter):
    """Arrays."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        self._write(column, [column.values], rows, pieces)


class _EntriesWriter(_SeveralWriter):
    """Maps, as maps or as lists of entries: both have the same bytes."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        if pa.types.is_map(column.type):
            self._write(column, [column.keys, column.items], rows, pieces)
        else:
            entries = column.values
            self._write(column, [entries.field(0), entries.field(1)], rows, pieces)
