"""Limits of what columns hold: the sizes of rows, the nesting of values and schemas; and a scan of a column's bytes.

A table may hold a text once for a thousand rows (a dictionary), and one row may be as large as all others together. So
parts are not counted in rows, and not in the bytes that Arrow has for the whole.

Python, Spark and Arrow go through nested data by recursion, each with its own limit, and exceeding one fails a whole
batch. So a value that is nested too deeply is rejected individually before that. Schemaless data: ``MAX_LEVELS``, which
is where Java's JSON parser stops. Python gets room for it (``make_room``), and the JVM larger stacks
(``spark.jvm.JVM_OPTIONS``). Data with a schema: Spark's time for a plan grows with some power of the depth of its
columns. Beyond ``PLAN_LEVELS`` a batch goes record by record where its task can (``penstock.pipeline.batch.groups``),
and beyond ``MAX_SCHEMA_LEVELS`` its records are refused where it cannot.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data import Schema, Struct, Type
from penstock.errors import DataException

MAX_LEVELS: Final = 1_000
PLAN_LEVELS: Final = 8
MAX_SCHEMA_LEVELS: Final = 20
#: A level takes two calls to read or write. A thread's stack of 8 MiB holds as many of the largest ones through C
#: (``sorted`` with a function that sorts); with more, code that recurses without end would kill the process.
_MAX_CALLS: Final = 3_000
TOO_DEEP_SCHEMA: Final = (
    f"The schema has more than {MAX_SCHEMA_LEVELS} levels of nesting, which is too much for columns: a struct and an "
    "array count one each, a map counts two. Deeper data can go without a schema"
)
_CONTAINERS: Final = frozenset((dict, list, tuple, Struct))
_NESTED: Final = frozenset((Type.ARRAY, Type.MAP, Type.STRUCT))


def make_room() -> None:
    """Lets Python's functions recurse as deeply as values may be nested."""
    if sys.getrecursionlimit() < _MAX_CALLS:
        sys.setrecursionlimit(_MAX_CALLS)


def anywhere(schema: Schema | None, holds: Callable[[Schema], bool]) -> bool:
    """True if something holds for a schema, or for one inside it.

    >>> inner = Schema(Type.INT8)
    >>> anywhere(Schema(Type.ARRAY, value_schema=inner), inner.__eq__), anywhere(None, inner.__eq__)
    (True, False)
    """
    return schema is not None and (holds(schema) or any(anywhere(one, holds) for one in parts_of(schema)))


def is_deep(value: object, most: int = MAX_LEVELS) -> bool:
    """True if a schemaless value is nested deeper than the given level, or contains itself.

    >>> is_deep({"a": [1]}, 1), is_deep({"a": [1]}, 2)
    (True, False)
    """
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(most):
        if not level:
            return False
        level = [item for one in level for item in _items(one) if type(item) in _CONTAINERS]
    return bool(level)


def _items(container: object) -> list[object]:
    if isinstance(container, dict):
        return list(container.values())
    if isinstance(container, Struct):
        return list(container.values)
    return list(container) if isinstance(container, (list, tuple)) else []


def value_too_deep() -> DataException:
    """The error of a schemaless value that is nested too deeply."""
    return DataException(f"A schemaless value has more than {MAX_LEVELS} levels of nesting, or contains itself")


def check_schema(schema: Schema | None) -> None:
    """Raises DataException if a schema is nested too deeply for columns."""
    if exceeds(schema, MAX_SCHEMA_LEVELS):
        raise DataException(TOO_DEEP_SCHEMA)


def exceeds(schema: Schema | None, most: int = PLAN_LEVELS) -> bool:
    """True if a schema is nested deeper than the given level."""
    return schema is not None and schema.type in _NESTED and not _fits(schema, most)


@lru_cache(maxsize=1024)
def _fits(schema: Schema, most: int) -> bool:
    level = [(schema, most)]
    while level:
        one, left = level.pop()
        left -= 2 if one.type is Type.MAP else 1
        if left < 0:
            return False
        level += [(part, left) for part in parts_of(one) if part is not None and part.type in _NESTED]
    return True


def parts_of(schema: Schema) -> list[Schema | None]:
    """The schemas right inside of one."""
    match schema.type:
        case Type.STRUCT:
            return [field.schema for field in schema.fields]
        case Type.MAP:
            return [schema.key_schema, schema.value_schema]
        case Type.ARRAY:
            return [schema.value_schema]
        case _:
            return []


def nbytes_of(table: pa.Table) -> int:
    """The size of the rows of a table, each with its own values.

    >>> plain = pa.table({"text": ["long " * 20] * 1_000})
    >>> nbytes_of(plain) == nbytes_of(pa.table({"text": plain["text"].dictionary_encode()}))
    True
    """
    if not _has_dictionary(table.schema):
        found: int = table.nbytes
        return found
    return int(sum(_ends(column)[-1] for column in table.columns))


def cut_at(table: pa.Table, max_bytes: int, max_rows: int | None = None) -> list[int]:
    """Returns where a table is cut into parts, in order: the first row of each part. A larger row is a part by itself.

    >>> cut_at(pa.table({"text": ["a" * 10, "b" * 30, "c" * 10, "d" * 10]}), 40)
    [0, 1, 2]
    >>> cut_at(pa.table({"number": range(5)}), 1_000, 2)
    [0, 2, 4]
    """
    rows: int = table.num_rows
    most = rows if max_rows is None else max(1, max_rows)
    if nbytes_of(table) <= max_bytes:
        return list(range(0, rows, most)) if rows > most else [0]
    ends = np.sum([_ends(column) for column in table.columns], axis=0)
    starts = [0]
    while True:
        start = starts[-1]
        end = int(np.searchsorted(ends, ends[start] + max_bytes, side="right")) - 1
        end = min(max(end, start + 1), start + most)
        if end >= rows:
            return starts
        starts.append(end)


def slices_of(table: pa.Table, starts: Sequence[int]) -> list[pa.Table]:
    """The parts of a table that begin at these rows, without a copy."""
    ends = [*starts[1:], table.num_rows]
    return [table.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _has_dictionary(fields: Any) -> bool:
    """True if a dictionary is among the types of a schema or of a nested type."""
    return any(
        pa.types.is_dictionary(field.type) or (field.type.num_fields > 0 and _has_dictionary(fields_of(field.type)))
        for field in fields
    )


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type, none of any other."""
    return [kind.field(index) for index in range(kind.num_fields)]


def _ends(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Returns the bytes that the rows of a column take together up to each row, from 0 before the first on."""
    if isinstance(column, pa.ChunkedArray):
        found = [np.zeros(1)]
        for chunk in column.chunks:
            found.append(found[-1][-1] + _ends(chunk)[1:])
        return np.concatenate(found)
    kind, rows = column.type, len(column)
    if isinstance(kind, pa.ExtensionType):
        return _ends(column.storage)
    if pa.types.is_dictionary(kind):
        each = np.diff(_ends(column.dictionary))
        places = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return _sums(each[places] if len(each) else np.zeros(rows))
    if pa.types.is_struct(kind):
        parts = [_ends(part) for part in column.flatten()]
        return np.sum(parts, axis=0) if parts else np.zeros(rows + 1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        inside = _ends(_values_of(column))
        offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        return np.asarray(inside[offsets] - inside[offsets[0]] + 4.0 * np.arange(rows + 1))
    if has_length(kind):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        return _sums(lengths + 4.0)
    # Of fixed width, or laid out in a way that the worker has no values in.
    return np.linspace(0.0, float(column.nbytes), rows + 1)


def _values_of(column: pa.Array) -> pa.Array:
    """The entries of lists or maps, of all that share them: offsets refer to these."""
    if not pa.types.is_map(column.type):
        return column.values
    keys, items = column.keys, column.items
    return pa.StructArray.from_arrays([keys, items], ["key", "value"])


def _sums(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1), np.cumsum(sizes, dtype=np.float64)])


def has_length(kind: pa.DataType) -> bool:
    """True for texts and bytes, with offsets of 32 or 64 bits."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


# ----------------------------------------------------------------------------------------------------- bytes of values
#: The number of bytes that are scanned together.
_BLOCK: Final = 256 * 1024


def bytes_of(chunk: pa.Array) -> np.ndarray:
    """The bytes of all strings or binary values of a chunk, in a row; not copied."""
    data = chunk.buffers()[2]
    if data is None or not len(chunk):
        return np.empty(0, np.uint8)
    ends = offsets_of(chunk)
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]


def offsets_of(chunk: pa.Array) -> np.ndarray:
    """The offsets of strings or binary values of a chunk that is not empty: one more than there are values."""
    width = np.int64 if pa.types.is_large_binary(chunk.type) or pa.types.is_large_string(chunk.type) else np.int32
    return np.frombuffer(chunk.buffers()[1], width)[chunk.offset : chunk.offset + len(chunk) + 1]


def has_byte(data: np.ndarray, byte: int) -> bool:
    """True if a byte is among these."""
    return any(marks.any() for _, marks in _marked(data, partial(np.equal, byte)))


def places_of(data: np.ndarray, byte: int, *, mask: int = 0xFF) -> np.ndarray:
    """Returns where a byte is among these, in order; only the bits of ``mask`` are compared."""

    def compare(block: np.ndarray, /, *, out: np.ndarray) -> None:
        np.equal(block if mask == 0xFF else block & np.uint8(mask), byte, out=out)

    return _places(data, compare)


def places_below(data: np.ndarray, limit: int) -> np.ndarray:
    """Returns where bytes are smaller than this one, in order."""
    return _places(data, partial(np.greater, limit))


def _places(data: np.ndarray, compare: Callable[..., object]) -> np.ndarray:
    """The places of marked bytes, as integers of 32 bits where these suffice.

    They are in memory from Arrow, which keeps what it had back for the next batch: the C library would ask the system.
    """
    found = [(first, np.flatnonzero(marks)) for first, marks in _marked(data, compare) if marks.any()]
    kind = np.dtype(np.int32 if len(data) < 1 << 31 else np.int64)
    count = sum(len(places) for _, places in found)
    made = np.frombuffer(pa.allocate_buffer(count * kind.itemsize), kind) if count else np.empty(0, kind)
    start = 0
    for first, places in found:
        np.add(places, first, out=made[start : start + len(places)], casting="same_kind")
        start += len(places)
    return made


def _marked(data: np.ndarray, compare: Callable[..., object]) -> Iterator[tuple[int, np.ndarray]]:
    """Marks bytes, block by block, each with the place of its first byte.

    The marks of every block lie in the same memory, and so stay in the cache. For a whole batch they would be as large
    as the batch, in pages that the system gives for this once. Blocks are not smaller, because each call gives Python's
    lock away and may wait to have it back.
    """
    marks = np.empty(min(_BLOCK, len(data)), np.bool_)
    for first in range(0, len(data), _BLOCK):
        block = data[first : first + _BLOCK]
        compare(block, out=marks[: len(block)])
        yield first, marks[: len(block)]
