"""Writes many values of one schema as Avro, field by field over all values.

A tree of small writers is made once for a schema. Values of unsupported schemas (unions of several types, maps whose
keys are not texts, conversions between kinds of numbers) are written one by one, and so are values that do not seem to
fit their schema: ``value_writing`` writes them or reports the error.

Main type: ``AvroColumnWriter``. Main function: ``avro_column_writer``. Thread: a task's pipeline thread.
Source: the Avro specification, 1.12, "Binary Encoding"; docs/decisions/avro-in-blocks.md.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.converters.registry.avro.forms import (
    AvroOptions,
    AvroType,
    entry_types,
    is_union,
    logical_name,
    to_carried,
)
from penstock.converters.registry.avro.value_writing import branch_for, fits
from penstock.converters.registry.pieces import Pieces, TooMuch, WritableRows
from penstock.data import Date, Decimal, Schema, Struct, Time, Timestamp, Type
from penstock.errors import DataException
from penstock.pipeline.columns.layout import arrow_type
from penstock.pipeline.columns.sizes import exceeds
from penstock.pipeline.columns.temporal import MILLIS_PER_DAY
from penstock.pipeline.plan.step import WrittenAtOnce

#: More bytes do not fit 32-bit offsets.
MAX_BYTES: Final = 1 << 30
#: Columns are written in parts of this many bytes, because the matrices of numbers are several times as large.
PART_BYTES: Final = 4 << 20


class _NoColumns(Exception):
    """A schema without column support."""


class _Node(Protocol):
    """Writes the values of a type."""

    def column(self, values: Sequence[Any], rows: WritableRows) -> pa.Array:
        """Values as a column; null for None and for values that are marked because they do not have the type."""

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        """Appends the bytes of values; those of a null are arbitrary, the caller marks it if nulls are not allowed."""


class AvroColumnWriter:
    """Writes values of one schema.

    Args:
        node: Writes the values.
    """

    def __init__(self, node: _Node) -> None:
        self._node = node

    def write(self, head: bytes, values: Sequence[object] | pa.Array) -> WrittenAtOnce | None:
        """Messages of values.

        Args:
            head: The beginning of each message.
            values: The values, or a column of them in the narrowest layout of their schema.

        Returns:
            The messages; None if all values have to be written one by one.
        """
        if isinstance(values, pa.Array):
            # A null has no message of this schema.
            rows = WritableRows(values.is_null().to_numpy(zero_copy_only=False))
        else:
            rows = WritableRows(np.array([one is None for one in values], dtype=bool))
        try:
            column = values if isinstance(values, pa.Array) else self._node.column(values, rows)
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
    """Returns the writer of many values of a schema, or None if they are written one by one.

    Args:
        schema: The schema of the values.
        found: Their Avro type.
        options: The converter's settings.
    """
    # Top-level bytes are written without their length.
    if schema is None or found.kind == "bytes" or exceeds(schema):
        return None
    try:
        return AvroColumnWriter(_node(schema, found, options, None))
    except _NoColumns:
        return None


def _node(schema: Schema, found: AvroType, options: AvroOptions, default: Any) -> _Node:
    """Returns the node for values that may be null; `default`: written instead of null, or None."""
    if found.kind != "union":
        return _Required(_inner(schema, found, options), default)
    branch = None if is_union(schema) else branch_for(schema, found.branches, options)
    if branch is None:
        raise _NoColumns
    nothing = next((place for place, one in enumerate(found.branches) if one.kind == "null"), None)
    place = next(place for place, one in enumerate(found.branches) if one is branch)
    return _Optional(_inner(schema, branch, options), place, nothing, default)


def _inner(schema: Schema, found: AvroType, options: AvroOptions) -> _Node:
    """Returns the node for non-null values."""
    if found.recursive or not fits(schema, found, options) or is_union(schema):
        raise _NoColumns
    if logical_name(schema) == Decimal.LOGICAL_NAME:
        return _Decimal(schema, to_carried(schema)) if found.kind == "bytes" else _refused()
    if schema.type is Type.STRUCT:
        return _record(schema, found, options)
    if schema.type is Type.ARRAY or schema.type is Type.MAP:
        return _several(schema, found, options)
    if found.kind in _WHOLE and schema.type in _WHOLE[found.kind]:
        return _Whole(schema, to_carried(schema))
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
    return _List(items) if schema.type is Type.ARRAY else _Map(_Required(_Text(), None), items)


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
    return _Record(schema, parts) if parts else _refused()


# ------------------------------------------------------------------------------------------------------------ nulls
def _present(column: pa.Array) -> np.ndarray | None:
    """Marks the rows that have a value; None if all have one."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None


class _WithDefault:
    """Replaces nulls by a default.

    Args:
        inner: Writes the values.
        default: The default; None = there is none.
    """

    def __init__(self, inner: _Node, default: Any) -> None:
        self._inner = inner
        self._default: pa.Array | None = None
        if default is not None:
            rows = WritableRows(np.zeros(1, dtype=bool))
            self._default = inner.column([default], rows)
            if rows.wrong.any():
                raise _NoColumns

    def column(self, values: Sequence[Any], rows: WritableRows) -> pa.Array:
        return self._inner.column(values, rows)

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
    """A union whose values have one type or are null.

    Args:
        inner: Writes the values.
        place: The branch of the values.
        nothing: The branch of null; None = there is none.
        default: The value that is written for null.
    """

    def __init__(self, inner: _Node, place: int, nothing: int | None, default: Any) -> None:
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


# ---------------------------------------------------------------------------------------------------------- scalars
class _Scalar:
    """Values of one Python class, as one type of column; nulls take no bytes.

    Attributes:
        classes: The classes of values, besides None. Values of other classes, even subclasses, are written one by one.
        kind: The column.
    """

    classes: frozenset[type]
    kind: pa.DataType

    def column(self, values: Sequence[Any], rows: WritableRows) -> pa.Array:
        """See ``_Node``."""
        values = _of_classes(values, self.classes, rows)
        try:
            made = pa.array(self.carried(values, rows), self.kind)
        except (pa.ArrowException, OverflowError, ValueError):
            made = pa.array(self._fitting(values, rows), self.kind)
        if isinstance(made, pa.ChunkedArray):
            raise TooMuch
        return made

    def carried(self, values: Sequence[Any], rows: WritableRows) -> Sequence[Any]:
        """Returns the values for the column."""
        return values

    def _fitting(self, values: Sequence[Any], rows: WritableRows) -> list[Any]:
        found: list[Any] = []
        wrong = np.zeros(len(values), dtype=bool)
        for place, value in enumerate(self.carried(values, rows)):
            try:
                pa.array([value], self.kind)
            except (pa.ArrowException, OverflowError, ValueError):
                wrong[place] = True
            found.append(None if wrong[place] else value)
        rows.mark(wrong)
        return found

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        """See ``_Node``."""
        raise NotImplementedError


_NONE: Final[type] = type(None)


def _of_classes(values: Sequence[Any], classes: frozenset[type], rows: WritableRows) -> Sequence[Any]:
    """The values, with None for other classes, which are marked."""
    found = set(map(type, values))
    if found <= classes or found - classes == {_NONE}:
        return values
    wrong = np.array([type(one) is not _NONE and type(one) not in classes for one in values])
    rows.mark(wrong)
    return [None if bad else one for one, bad in zip(values, wrong.tolist(), strict=True)]


def _logically(
    convert: Callable[[Schema, Any], Any], schema: Schema, values: Sequence[Any], rows: WritableRows
) -> list[Any]:
    """Converts values of a logical type to raw values."""
    try:
        return [None if one is None else convert(schema, one) for one in values]
    except (AttributeError, TypeError, ValueError, OverflowError, DataException):
        pass
    found: list[Any] = []
    wrong = np.zeros(len(values), dtype=bool)
    for place, one in enumerate(values):
        try:
            found.append(None if one is None else convert(schema, one))
        except (AttributeError, TypeError, ValueError, OverflowError, DataException):
            found.append(None)
            wrong[place] = True
    rows.mark(wrong)
    return found


_TEMPORAL: Final[Mapping[str, frozenset[type]]] = {
    Timestamp.LOGICAL_NAME: frozenset((datetime.datetime,)),
    Time.LOGICAL_NAME: frozenset((datetime.time,)),
    Date.LOGICAL_NAME: frozenset((datetime.date, datetime.datetime)),
}
#: The Connect types that have number columns for an Avro type.
_WHOLE: Final[Mapping[str, frozenset[Type]]] = {
    "int": frozenset((Type.INT8, Type.INT16, Type.INT32)),
    "long": frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64)),
}


class _Whole(_Scalar):
    def __init__(self, schema: Schema, convert: Callable[[Schema, Any], Any] | None) -> None:
        name = logical_name(schema)
        self._schema = schema
        self._convert = convert
        self._time = name == Time.LOGICAL_NAME
        self.classes = frozenset((int,)) if name is None else _TEMPORAL[name]
        self.kind = arrow_type(schema)

    def carried(self, values: Sequence[Any], rows: WritableRows) -> Sequence[Any]:
        return values if self._convert is None else _logically(self._convert, self._schema, values, rows)

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        numbers = (column if there is None else column.fill_null(0)).to_numpy().astype(np.int64)
        if self._time:
            rows.mark((numbers < 0) | (numbers > MILLIS_PER_DAY))
        pieces.varints(numbers, there)


class _Boolean(_Scalar):
    classes = frozenset((bool,))
    kind = pa.bool_()

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        filled = column if there is None else column.fill_null(False)
        _fixed_width(filled.to_numpy(zero_copy_only=False).astype(np.uint8), there, pieces)


class _Float(_Scalar):
    classes = frozenset((float,))

    def __init__(self, kind: pa.DataType, layout: str) -> None:
        self.kind = kind
        self._layout = layout

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        _fixed_width((column if there is None else column.fill_null(0)).to_numpy().astype(self._layout), there, pieces)


def _fixed_width(values: np.ndarray, there: np.ndarray | None, pieces: Pieces) -> None:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    kept = np.ones(data.shape, dtype=bool) if there is None else np.repeat(there[:, np.newaxis], data.shape[1], axis=1)
    pieces.short(data, kept)


class _Bytes(_Scalar):
    """Bytes with their length, or of a fixed length."""

    classes = frozenset((bytes,))
    kind = pa.binary()

    def __init__(self, size: int | None = None) -> None:
        self._size = size

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        data = self.octets(column if there is None else column.fill_null(b""), rows)
        lengths = pc.binary_length(data).to_numpy().astype(np.int64)
        if self._size is None:
            pieces.varints(lengths, there)
        else:
            wrong = lengths != self._size
            rows.mark(wrong if there is None else wrong & there)
        pieces.long(data)

    def octets(self, column: pa.Array, rows: WritableRows) -> pa.BinaryArray:
        """Returns the bytes of values, none of which are null."""
        return column


class _Text(_Bytes):
    classes = frozenset((str,))
    kind = pa.string()

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        there = _present(column)
        data = (column if there is None else column.fill_null("")).cast(pa.binary())
        try:
            # A column may contain half of a surrogate pair.
            data.cast(pa.string())
        except pa.ArrowInvalid:
            rows.mark(np.array([not _is_text(one) for one in data.to_pylist()]))
        pieces.varints(pc.binary_length(data).to_numpy().astype(np.int64), there)
        pieces.long(data)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Decimal(_Bytes):
    """Numbers; columns contain their digits either as a number or as bytes."""

    classes = frozenset((decimal.Decimal,))

    def __init__(self, schema: Schema, convert: Callable[[Schema, Any], Any]) -> None:
        super().__init__()
        self._schema = schema
        self._convert = convert

    def carried(self, values: Sequence[Any], rows: WritableRows) -> Sequence[Any]:
        return _logically(self._convert, self._schema, values, rows)

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        if pa.types.is_decimal(column.type):
            column = pa.array(self.carried(column.to_pylist(), rows), pa.binary())
        super().write(column, rows, pieces)


class _Enum(_Scalar):
    classes = frozenset((str,))
    kind = pa.string()

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
    (Type.BOOLEAN, "boolean"): lambda *_: _Boolean(),
    (Type.FLOAT32, "float"): lambda *_: _Float(pa.float32(), "<f4"),
    (Type.FLOAT64, "double"): lambda *_: _Float(pa.float64(), "<f8"),
    (Type.STRING, "string"): lambda *_: _Text(),
    (Type.STRING, "enum"): lambda _, found: _Enum(found.symbols),
    (Type.BYTES, "bytes"): lambda *_: _Bytes(),
    (Type.BYTES, "fixed"): lambda _, found: _Bytes(found.size),
}


# ----------------------------------------------------------------------------------------------------------- nested
@dataclass
class _Record:
    """A record: its fields in order.

    Attributes:
        schema: The struct.
        fields: For each field of the record the position in the struct, and its writer.
    """

    schema: Schema
    fields: Sequence[tuple[int, _Node]]

    def column(self, values: Sequence[Any], rows: WritableRows) -> pa.Array:
        structs = _of_classes(values, frozenset((Struct,)), rows)
        schema = self.schema
        others = {id(one.schema): one.schema for one in structs if one is not None and one.schema is not schema}
        foreign = {key for key, one in others.items() if one != schema}
        if foreign:
            wrong = np.array([one is not None and id(one.schema) in foreign for one in structs])
            rows.mark(wrong)
            structs = [None if bad else one for one, bad in zip(structs, wrong.tolist(), strict=True)]
        there = np.array([one is not None for one in structs])
        whole = bool(there.all())
        inside = rows if whole else rows.some(np.flatnonzero(there))
        columns: Iterable[Sequence[Any]] = zip(*[one.values for one in structs if one is not None], strict=True)
        by_place: Sequence[Sequence[Any]] = list(columns) or [()] * len(schema.fields)
        nodes = dict(self.fields)
        made = [
            nodes[place].column(one, inside) if place in nodes else pa.nulls(len(inside))
            for place, one in enumerate(by_place)
        ]
        part = pa.StructArray.from_arrays(made, [field.name for field in schema.fields])
        if whole:
            return part
        places = np.zeros(len(there), dtype=np.int64)
        places[there] = np.arange(len(part))
        return part.take(pa.array(places, mask=~there))

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        for place, node in self.fields:
            node.write(column.field(place), rows, pieces)


def _counted(values: Sequence[Any], kind: type, rows: WritableRows) -> tuple[Sequence[Any], pa.Array, np.ndarray]:
    """Lists or dicts (None for other values), where the items of each begin (null for None), and the owner of each
    item.
    """
    values = _of_classes(values, frozenset((kind,)), rows)
    counts = np.fromiter((0 if one is None else len(one) for one in values), dtype=np.int64, count=len(values))
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    gone = [one is None for one in values]
    mask = np.array([*gone, False]) if any(gone) else None
    return values, pa.array(offsets, mask=mask), np.repeat(np.arange(len(values)), counts)


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

    def column(self, values: Sequence[Any], rows: WritableRows) -> pa.Array:
        lists, offsets, owners = _counted(values, list, rows)
        items = list(chain.from_iterable(one for one in lists if one))
        return pa.ListArray.from_arrays(offsets, self._parts[0].column(items, rows.some(owners)))

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        self._write(column, [column.values], rows, pieces)


class _Entries(_Several):
    """Maps as lists of entries."""

    def column(self, values: Sequence[Any], rows: WritableRows) -> pa.Array:
        offsets, *parts = self._columns(values, rows)
        return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(parts, ["key", "value"]))

    def _columns(self, values: Sequence[Any], rows: WritableRows) -> tuple[pa.Array, pa.Array, pa.Array]:
        maps, offsets, owners = _counted(values, dict, rows)
        inside = rows.some(owners)
        keys = self._parts[0].column(list(chain.from_iterable(one for one in maps if one)), inside)
        items = self._parts[1].column(list(chain.from_iterable(one.values() for one in maps if one)), inside)
        if keys.null_count and isinstance(self, _Map):
            # None, or of another class.
            inside.mark(keys.is_null().to_numpy(zero_copy_only=False))
            keys = keys.fill_null("")
        return offsets, keys, items

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        entries = column.values
        self._write(column, [entries.field(0), entries.field(1)], rows, pieces)


class _Map(_Entries):
    """Maps whose keys are texts."""

    def column(self, values: Sequence[Any], rows: WritableRows) -> pa.Array:
        return pa.MapArray.from_arrays(*self._columns(values, rows))

    def write(self, column: pa.Array, rows: WritableRows, pieces: Pieces) -> None:
        self._write(column, [column.keys, column.items], rows, pieces)
