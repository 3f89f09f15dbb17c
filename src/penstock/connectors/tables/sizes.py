"""Cuts rows into files of a target size, and divides them by values. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The bytes that the name of a directory, and a whole key, may have; file systems take 255, and S3 takes 1,024.
LONGEST_NAME: Final = 255
LONGEST_KEY: Final = 900


def fits_in_path(rows: pa.Table, names: Sequence[str]) -> bool:
    """True if the values of columns can be the names of directories, one in the other.

    >>> fits_in_path(pa.table({"a": ["x" * 200, "y"]}), ["a"]), fits_in_path(pa.table({"a": ["x" * 300]}), ["a"])
    (True, False)
    """
    total = 0
    for name in names:
        at = rows.schema.get_field_index(name)
        kind = None if at < 0 else rows.schema.field(at).type
        if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            continue
        begin, left = len(quote(name, safe="")) + 1, LONGEST_NAME
        longest = pc.max(pc.binary_length(rows.column(at))).as_py() or 0
        if begin + 3 * longest > left:
            # Only now it matters which characters are written as three.
            longest = max(len(quote(one or "", safe="")) for one in pc.unique(rows.column(at)).to_pylist())
        if begin + longest > left:
            return False
        total += begin + longest
    return total <= LONGEST_KEY


class Ratio:
    """The ratio of bytes in files to bytes of rows, from the latest files.

    Args:
        file_bytes: The target size of files.
    """

    def __init__(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        self._ratio = 0.5

    @property
    def most(self) -> int:
        """The bytes of rows for one file."""
        return max(1 << 20, int(self._file_bytes / self._ratio))

    def learn(self, rows: int, files: int) -> None:
        """Updates the ratio with the bytes of rows and of their files."""
        if rows > 1 << 16 and files:
            self._ratio = min(2.0, max(0.01, files / rows))


def windows(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Joins tables up to a size, so that many small ones make few files."""
    waiting: list[pa.Table] = []
    size = 0
    for one in tables:
        if not one.num_rows:
            continue
        waiting.append(one)
        size += one.nbytes
        if size >= most:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def parts(table: pa.Table, most: int) -> Iterator[pa.Table]:
    """Cuts a table into parts of about this size."""
    count = max(1, -(-table.nbytes // (most * 5 // 4)))
    rows = -(-table.num_rows // count)
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def groups(columns: Sequence[pa.Array]) -> Iterator[np.ndarray]:
    """Yields the numbers of the rows with the same values in all columns, in order; needs at least one row."""
    codes = np.zeros(len(columns[0]), np.int64)
    for cells in columns:
        encoded = pc.dictionary_encode(cells, null_encoding="encode")
        _, codes = np.unique(codes * len(encoded.dictionary) + encoded.indices.to_numpy(), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), len(order)]):
        yield order[start:end]
