"""Builds the bytes of many values at once, from left to right.

Short pieces, such as numbers, are collected in a matrix with a row for each value and a mask of its valid bytes; long
pieces, such as texts, in Arrow arrays. At the end one Arrow call joins the pieces of all values.

Main types: ``Pieces`` (the bytes of some values), ``WritableRows`` (which values they belong to). Thread: a task's
pipeline thread. Source: the Avro specification, 1.12, "Binary Encoding" (numbers).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class WritableRows:
    """A selection of the values to write, and the values that cannot be written here.

    Args:
        wrong: For each value of the batch, whether it has to be written separately.
        places: The positions of the selected values in the batch; None = all values.
    """

    def __init__(self, wrong: np.ndarray, places: np.ndarray | None = None) -> None:
        self.wrong = wrong
        self._places = np.arange(len(wrong)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    def mark(self, which: np.ndarray) -> None:
        """Marks values, given by a mask, that have to be written separately."""
        self.wrong[self._places[which]] = True

    def some(self, which: np.ndarray) -> WritableRows:
        """A selection by row numbers, which may repeat."""
        return WritableRows(self.wrong, self._places[which])


class Pieces:
    """The bytes of some values, from left to right."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._joined: list[pa.BinaryArray] = []
        self._data: list[np.ndarray] = []
        self._kept: list[np.ndarray] = []

    def short(self, data: np.ndarray, kept: np.ndarray) -> None:
        """Appends a row of a matrix to each value, without masked-out bytes."""
        self._data.append(data)
        self._kept.append(kept)

    def long(self, texts: pa.BinaryArray) -> None:
        """Appends bytes, none of which are null."""
        self._close()
        self._joined.append(texts)

    def varints(self, numbers: np.ndarray, there: np.ndarray | None) -> None:
        """Appends a zigzag number to each value; `there`: to these values only, None = to all."""
        zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        width = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
        if width == 1:
            data, kept = zigzag.astype(np.uint8)[:, np.newaxis], np.ones((self._count, 1), dtype=bool)
        else:
            bits = (7 * np.arange(width)).astype(np.uint64)
            rest = zigzag[:, np.newaxis] >> bits
            kept = rest != 0
            kept[:, 0] = True
            data = (rest & np.uint64(0x7F)).astype(np.uint8)
            data[:, :-1] |= kept[:, 1:].astype(np.uint8) << 7
        if there is not None:
            kept &= there[:, np.newaxis]
        self.short(data, kept)

    def _close(self) -> None:
        if not self._data:
            return
        data = self._data[0] if len(self._data) == 1 else np.hstack(self._data)
        kept = self._kept[0] if len(self._kept) == 1 else np.hstack(self._kept)
        offsets = np.zeros(self._count + 1, dtype=np.int32)
        np.cumsum(kept.sum(axis=1), out=offsets[1:])
        found = [None, pa.py_buffer(offsets), pa.py_buffer(data[kept])]
        self._joined.append(pa.Array.from_buffers(pa.binary(), self._count, found))
        self._data, self._kept = [], []

    def join(self, head: bytes = b"") -> pa.BinaryArray:
        """The bytes of each value, after a common head."""
        self._close()
        before = [pa.scalar(head, pa.binary())] if head else []
        if not self._joined:
            return pa.array([head] * self._count, pa.binary())
        if not before and len(self._joined) == 1:
            return self._joined[0]
        return pc.binary_join_element_wise(*before, *self._joined, pa.scalar(b"", pa.binary()))
