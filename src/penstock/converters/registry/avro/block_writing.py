"""Writes many values of one schema as Avro, field by field over all values.

A tree of small writers is made once for a schema. Values of unsupported schemas (unions of several types, maps whose
keys are not texts, conversions between kinds of numbers) are written one by one, and so are values that do not seem to
fit their schema: ``values`` writes them or reports the error.

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
from penstock.converters.registry.avro.forms import AvroOptions, AvroType, entry_types, is_union
from penstock.converters.registry.avro.values import branch_for, fits
from penstock.converters.registry.wire import Pieces, WritableRows
from penstock.data import Decimal, Schema, Time, Type
from penstock.data.text import MILLIS_PER_DAY
from penstock.pipeline.columns.layout import logical_name
from penstock.pipeline.columns.records import to_arrow
from penstock.pipeline.columns.sizes import exceeds
from penstock.pipeline.plan.step import WrittenAtOnce

#: More bytes do not fit 32-bit offsets.
MAX_BYTES: Final = 1 << 30
#: Columns are written in parts of this many bytes, because the matrices of numbers are several times as large.
PART_BYTES: Final = 4 << 20


class _NoColumns(Exception):
    """A schema without column support."""


class _Node(Protocol):
    """Writes the values of a type."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        """Appends the bytes of values; those of a null are arbitrary, the caller marks it if nulls are not allowed."""


class AvroColumnWriter:
    """Writes values of one schema."""

    def __init__(self, schema: Schema, node: _Node) -> None:
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
        return AvroColumnWriter(schema, _node(schema, found, options, None))
    except _NoColumns:
        return None


def _node(schema: Schema, found: AvroType, options: AvroOptions, default: Any) -> _Node:
    """Returns the node for values that may be null; `default`: written instead of null, or None."""
    filled = None
    if default is not None:
        filled, errors, _ = to_arrow([default], schema)
        if errors:
            raise _NoColumns
    if found.kind != "union":
        return _Required(_inner(schema, found, options), filled)
    branch = None if is_union(schema) else branch_for(schema, found.branches, options)
    if branch is None:
        raise _NoColumns
    nothing = next((place for place, one in enumerate(found.branches) if one.kind == "null"), None)
    place = next(place for place, one in enumerate(found.branches) if one is branch)
    return _Optional(_inner(schema, branch, options), place, nothing, filled)


def _inner(schema: Schema, found: AvroType, options: AvroOptions) -> _Node:
    """Returns the node for non-null values."""
    if found.recursive or not fits(schema, found, options) or is_union(schema):
        raise _NoColumns
    if logical_name(schema) == Decimal.LOGICAL_NAME:
        return _Decimal(schema) if found.kind == "bytes" else _refused()
    if schema.type is Type.STRUCT:
        return _record(schema, found, options)
    if schema.type is Type.ARRAY or schema.type is Type.MAP:
        return _several(schema, found, options)
    if found.kind in _WHOLE and schema.type in _WHOLE[found.kind]:
        return _Whole(schema)
    make = _SCALARS.get((schema.type, found.kind))
    return _refused() if make is None else make(schema, found)


def _several(schema: Schema, found: AvroType, options: AvroOptions) -> _Node:
    assert found.items is not None, "arrays and maps have items"
    assert schema.value_schema is not None, "arrays and maps have items"
    if schema.type is Type.MAP and found.kind == "array":
        types = entry_types(found.items)
        if tuple(one.type for one in found.items.fields) != types:
            raise _NoColumns
        assert schema.key_schema is not None, "maps have keys"
        keys = _node(schema.key_schema, types[0], options, None)
        return _Entries(keys, _node(schema.value_schema, types[1], options, None))
    items = _node(schema.value_schema, found.items, options, None)
    return _List(items) if schema.type is Type.ARRAY else _Entries(_Required(_Text(), None), items)


def _refused() -> _Node:
    raise _NoColumns


def _record(schema: Schema, found: AvroType, options: AvroOptions) -> _Node:
    by_name = {options.name(field.name): field for field in schema.fields}
    parts: list[tuple[int, _Node]] = []
    for one in found.fields:
        field = next((by_name[name] for name in (one.name, *one.aliases) if name in by_name), None)
        if field is None:
            raise _NoColumns
        default = None if options.null_stays and field.schema.optional else field.schema.default
        parts.append((field.index, _node(field.schema, one.type, options, default)))
    return _Record(parts) if parts else _refused()


def _present(column: pa.Array) -> np.ndarray | None:
    """Marks the rows that have a value; None if all have one."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None


class _WithDefault:
    """Replaces nulls by a default: a column of it, or None."""

    def __init__(self, inner: _Node, default: pa.Array | None) -> None:
        self._inner = inner
        self._default = default

    def _filled(self, column: pa.Array) -> pa.Array:
        if self._default is None or not column.null_count:
            return column
        places = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.arange(len(column)), len(column))
        return pa.concat_arrays([column, self._default.cast(column.type)]).take(pa.array(places))


class _Required(_WithDefault):
    """Values that must not be null."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        column = self._filled(column)
        there = _present(column)
        if there is not None:
            rows.mark(~there)
        self._inner.write(column, rows, pieces)


class _Optional(_WithDefault):
    """A union whose values have the branch ``place`` or are null (``nothing``, the branch of null, if any)."""

    def __init__(self, inner: _Node, place: int, nothing: int | None, default: pa.Array | None) -> None:
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
        if isinstance(self._inner, _Scalar):
            self._inner.write(column, rows, pieces)
        elif there.any():
            # Items of null values take no bytes.
            which = np.flatnonzero(there)
            part = Pieces(len(which))
            self._inner.write(column.take(pa.array(which)), rows.some(which), part)
            places = np.zeros(len(column), dtype=np.int64)
            places[which] = np.arange(len(which))
            pieces.long(part.join().take(pa.array(places, mask=~there)).fill_null(b""))


class _Scalar:
    """Values whose nulls take no bytes."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        raise NotImplementedError


#: The Connect types that have number columns for an Avro type.
_WHOLE: Final[Mapping[str, frozenset[Type]]] = {
    "int": frozenset((Type.INT8, Type.INT16, Type.INT32)),
    "long": frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64)),
}


class _Whole(_Scalar):
    def __init__(self, schema: Schema) -> None:
        self._time = logical_name(schema) == Time.LOGICAL_NAME

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        numbers = (column if there is None else column.fill_null(0)).to_numpy().astype(np.int64)
        if self._time:
            rows.mark((numbers < 0) | (numbers > MILLIS_PER_DAY))
        pieces.varints(numbers, there)


class _Fixed(_Scalar):
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


class _Bytes(_Scalar):
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


class _Text(_Scalar):
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


class _Decimal(_Bytes):
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


class _Enum(_Scalar):
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


_SCALARS: Final[Mapping[tuple[Type, str], Callable[[Schema, AvroType], _Node]]] = {
    (Type.BOOLEAN, "boolean"): lambda *_: _Fixed("u1"),
    (Type.FLOAT32, "float"): lambda *_: _Fixed("<f4"),
    (Type.FLOAT64, "double"): lambda *_: _Fixed("<f8"),
    (Type.STRING, "string"): lambda *_: _Text(),
    (Type.STRING, "enum"): lambda _, found: _Enum(found.symbols),
    (Type.BYTES, "bytes"): lambda *_: _Bytes(),
    (Type.BYTES, "fixed"): lambda _, found: _Bytes(found.size),
}


@dataclass
class _Record:
    """A record: for each of its fields the position in the struct, and its writer."""

    fields: Sequence[tuple[int, _Node]]

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        for place, node in self.fields:
            node.write(column.field(place), rows, pieces)


class _Several:
    """Items after their count, followed by 0; only 0 for no items."""

    def __init__(self, *parts: _Node) -> None:
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


class _List(_Several):
    """Arrays."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        self._write(column, [column.values], rows, pieces)


class _Entries(_Several):
    """Maps, as maps or as lists of entries: both have the same bytes."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        if pa.types.is_map(column.type):
            self._write(column, [column.keys, column.items], rows, pieces)
        else:
            entries = column.values
            self._write(column, [entries.field(0), entries.field(1)], rows, pieces)
