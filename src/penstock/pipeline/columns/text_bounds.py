"""The bounds on the characters of the strings of a batch, found from their bytes: without escapes JSON needs less work.

Main functions: ``bounded`` (a layout with what is known of its strings) and ``unbounded`` (without); ``bytes_of``,
``offsets_of``, ``has_byte``, ``places_of`` and ``places_below``, for others that look at the bytes of a batch. A look
costs a twentieth of a microsecond a record; writing a string that needs no escapes as it is saves several times that.

Thread: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.pipeline.columns.layout import Layout, LayoutKind, TextBound

_FIRST_BEYOND_BMP = 0xF0
_FIRST_PRINTABLE = 0x20
#: The number of bytes that are scanned together.
_BLOCK: Final = 256 * 1024


class _Compare(Protocol):
    def __call__(self, block: np.ndarray, /, *, out: np.ndarray) -> object: ...


def bounded(physical: Layout, column: pa.Array | pa.ChunkedArray) -> Layout:
    """The layout of a column, with bounds on what its strings hold."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return _bounded(physical, [chunk for chunk in chunks if len(chunk)])


def unbounded(physical: Layout) -> Layout:
    """The same layout when nothing is known of the strings any more."""
    if physical.text is TextBound.ANY and not physical.children:
        return physical
    return replace(physical, text=TextBound.ANY, children=tuple(unbounded(child) for child in physical.children))


def with_bound(physical: Layout, bound: TextBound) -> Layout:
    """The same layout when this holds for all strings."""
    if not physical.children:
        return replace(physical, text=bound)
    return replace(physical, children=tuple(with_bound(child, bound) for child in physical.children))


def lowest_bound(physical: Layout) -> TextBound:
    """Returns the bound of all strings of a column; ``ANY`` if nothing is known of a part of it."""
    if physical.form is LayoutKind.VARIANT:
        return TextBound.ANY
    if physical.children:
        return min(lowest_bound(child) for child in physical.children)
    return physical.text


def text_bound(text: str) -> TextBound:
    """Returns the bound of one text."""
    return _bound_of(np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8))


def _bounded(physical: Layout, chunks: list[pa.Array]) -> Layout:
    match physical.form:
        case LayoutKind.SCALAR | LayoutKind.DECIMAL | LayoutKind.UNSCALED:
            kind = chunks[0].type if chunks else None
            if kind is not None and pa.types.is_string(kind):
                return replace(physical, text=min(_bound_of(bytes_of(chunk)) for chunk in chunks))
            # Numbers, and bytes in base64, are written without escapes; without rows nothing is there to escape.
            return replace(physical, text=TextBound.CLEAN)
        case LayoutKind.STRUCT | LayoutKind.OBJECT:
            parts = [
                _bounded(child, [chunk.field(index) for chunk in chunks])
                for index, child in enumerate(physical.children)
            ]
        case LayoutKind.ARRAY:
            parts = [_bounded(physical.children[0], [chunk.values for chunk in chunks])]
        case LayoutKind.MAP:
            parts = [
                _bounded(physical.children[0], [chunk.keys for chunk in chunks]),
                _bounded(physical.children[1], [chunk.items for chunk in chunks]),
            ]
        case LayoutKind.ENTRIES:
            parts = [
                _bounded(child, [chunk.values.field(index) for chunk in chunks])
                for index, child in enumerate(physical.children)
            ]
        case _:
            return physical
    return replace(physical, children=tuple(parts))


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
    """Returns where a byte is among these, in order.

    Args:
        data: The bytes.
        byte: The one that is looked for.
        mask: Only these bits of each of them are compared.
    """

    def compare(block: np.ndarray, /, *, out: np.ndarray) -> None:
        np.equal(block if mask == 0xFF else block & np.uint8(mask), byte, out=out)

    return _places(data, compare)


def places_below(data: np.ndarray, limit: int) -> np.ndarray:
    """Returns where bytes are smaller than this one, in order."""
    return _places(data, partial(np.greater, limit))


def _places(data: np.ndarray, compare: _Compare) -> np.ndarray:
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


def _marked(data: np.ndarray, compare: _Compare) -> Iterator[tuple[int, np.ndarray]]:
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


def _bound_of(data: np.ndarray) -> TextBound:
    if not len(data):
        return TextBound.CLEAN
    if data.max() >= _FIRST_BEYOND_BMP:
        return TextBound.ANY
    escapes = data.min() < _FIRST_PRINTABLE or has_byte(data, ord('"')) or has_byte(data, ord("\\"))
    return TextBound.BMP if escapes else TextBound.CLEAN
