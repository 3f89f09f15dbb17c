"""The interface of readers: rows of a file as columns, block by block.

Main types: ``FormatReader``, ``Input``, ``FileRows``.

Owning thread: the task's. Source: Penstock's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from penstock.connectors.files.source.ledger import FilePosition
from penstock.errors import DataException
from penstock.files import Found

#: The size of a block of text, in bytes.
BLOCK_BYTES = 4 << 20
#: The number of rows of a block of columnar formats.
BLOCK_ROWS = 32_768


class BadFileException(DataException):
    """A file that cannot be read, even with retries: another format, columns that do not fit, damage."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that cannot be read.

    Attributes:
        line: Its line in the file, from 1; 0 = unknown.
        text: Its bytes in the file; empty if the format has none.
        reason: The error.
        before: The number of rows of the piece before it.
    """

    line: int
    text: bytes
    reason: str
    before: int


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """Rows of a file, in order.

    Attributes:
        table: The rows, without bad ones.
        place: The position of the first row.
        next: The position after the last row.
        bad: The bad ones.
        is_single: True if the rows are values that are no structs, in the column ``value``.
    """

    table: pa.Table
    place: FilePosition
    next: FilePosition
    bad: list[Bad] = field(default_factory=list)
    is_single: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """A file, or a part of one, to read.

    Attributes:
        found: The file.
        open: Opens it: PyArrow's ``NativeFile``.
        span: The bytes of the part; None: all.
        is_settled: False if the file has changed since the listing, so that a last line without an end may grow.
        warn: Called with messages for the user, once for each text.
    """

    found: Found
    open: Callable[[], Any]
    span: tuple[int, int] | None = None
    is_settled: Callable[[], bool] = lambda: True
    warn: Callable[[str], object] = lambda _: None


class FormatReader(ABC):
    """Reads files of one format.

    Attributes:
        appends: True if reading continues at the old end of a file that has grown.
        splits: True if several tasks can read parts of a file.
    """

    appends: ClassVar[bool] = False
    splits: ClassVar[bool] = False

    @abstractmethod
    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """Reads rows, starting with the block at a position. The same position gives the same rows, if the file is the
        same.

        Raises:
            BadFileException: The file cannot be read as this format.
        """


def rest(piece: FileRows, begin: FilePosition) -> FileRows | None:
    """Returns the rest of a piece after the rows that were read before; None if there is none.

    Args:
        piece: A block.
        begin: The start position; if it is in the block, with the number of rows that were read.
    """
    if piece.place.at != begin.at or not (begin.rows or begin.letters):
        return piece
    skipped = min(begin.rows, piece.table.num_rows)
    kept = [] if begin.letters else [one for one in piece.bad if one.before >= skipped]
    if piece.table.num_rows == skipped and not kept:
        return None
    bad = [replace(one, before=one.before - skipped) for one in kept]
    return replace(piece, table=piece.table.slice(skipped), place=replace(begin, line=piece.place.line), bad=bad)


def place_in(unit: int, row: int = 0) -> FilePosition:
    """A position in a file of row groups, stripes or blocks.

    Args:
        unit: The number of the row group, stripe or block.
        row: The row in it.
    """
    return FilePosition(unit << 32 | row, 0, 0)


def unit_of(place: FilePosition) -> tuple[int, int]:
    """The number of a row group, stripe or block, and the row in it.

    >>> unit_of(place_in(3, 17))
    (3, 17)
    """
    return place.at >> 32, place.at & 0xFFFFFFFF


def parts_of(table: pa.Table, unit: int, first: int) -> Iterator[FileRows]:
    """The rows of a stripe or a block of a file, in parts, starting with the part at a row."""
    for start in range(first, table.num_rows, BLOCK_ROWS):
        end = start + BLOCK_ROWS
        after = place_in(unit + 1) if end >= table.num_rows else place_in(unit, end)
        yield FileRows(table.slice(start, BLOCK_ROWS), place_in(unit, start), after)
