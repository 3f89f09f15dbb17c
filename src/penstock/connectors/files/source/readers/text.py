"""Text as blocks of whole lines. The task's thread.

Main functions: ``open_text``, ``blocks``; ``isolated`` finds the bad rows of a block by halving it. Main type:
``TextBlock``.

Source: RFC 4180 for line ends inside of quotes.
"""

from __future__ import annotations

import codecs
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.reader import BLOCK_BYTES, Bad, BadFileException, Input

#: Compressions by the endings of names.
COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4", ".xz": "xz"}
#: The longest line: a file with a longer one is no text, or has other line ends.
_LONGEST_LINE: Final = 128 << 20
_BOM: Final = codecs.BOM_UTF8
_NEWLINE: Final = 10


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole lines of a file.

    Attributes:
        at: Its first byte in the file.
        line: The number of its first line.
        data: Its bytes, in UTF-8.
    """

    at: int
    line: int
    data: bytes

    @property
    def end(self) -> FilePosition:
        """The position after it."""
        return FilePosition(self.at + len(self.data), 0, self.line + self.data.count(b"\n") if self.line else 0)


def compression_of(name: str) -> str | None:
    """The compression for the extension of a name.

    >>> compression_of("a.csv.GZ"), compression_of("a.csv")
    ('gzip', None)
    """
    return COMPRESSIONS.get(f".{name.rpartition('.')[2].lower()}")


def open_text(file: Input, charset: str) -> TextInput:
    """Opens a file as UTF-8."""
    raw = file.open()
    compression = compression_of(file.found.name)
    plain = compression is None
    if compression == "xz":
        raw = lzma.open(raw)  # noqa: SIM115 - closed by its owner
    elif compression is not None:
        raw = pa.CompressedInputStream(raw, compression)
    if codecs.lookup(charset).name in ("utf-8", "ascii"):
        return TextInput(raw, seeks=plain)
    return TextInput(_Decoded(raw, charset, file.found.key), seeks=False)


class TextInput:
    """A file of text in UTF-8, read forward.

    Args:
        raw: The bytes.
        seeks: True if it can begin at any byte.
    """

    def __init__(self, raw: Any, *, seeks: bool) -> None:
        self._raw, self._seeks, self._at = raw, seeks, 0

    def read(self, count: int) -> bytes:
        """The next bytes; fewer only at the end."""
        found = []
        while count > 0:
            try:
                part = self._raw.read(count)
            except (EOFError, lzma.LZMAError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise BadFileException(f"cannot be unpacked after byte {self._at}: {error}") from error
            if not part:
                break
            found.append(part)
            count -= len(part)
            self._at += len(part)
        return b"".join(found)

    def go_to(self, at: int) -> None:
        """Skips the bytes before a position."""
        if self._seeks:
            self._raw.seek(at)
            self._at = at
            return
        while self._at < at and self.read(min(BLOCK_BYTES, at - self._at)):
            pass

    def close(self) -> None:
        """Closes the file."""
        self._raw.close()


class _Decoded:
    """Converts bytes of another encoding to UTF-8."""

    def __init__(self, raw: Any, charset: str, name: str) -> None:
        self._raw, self._charset, self._name = raw, charset, name
        self._decoder = codecs.getincrementaldecoder(charset)()

    def read(self, count: int) -> bytes:
        while True:
            part = self._raw.read(count)
            try:
                text = self._decoder.decode(part, final=not part)
            except UnicodeDecodeError as error:
                raise BadFileException(
                    f"is not in the encoding {self._charset}: {error.reason} "
                    f"({error.object[error.start : error.end]!r}); set charset to that of the file"
                ) from error
            if text or not part:
                return text.encode()

    def close(self) -> None:
        self._raw.close()


def blocks(
    file: Input, text: TextInput, place: FilePosition, quote: int | None = None, size: int = BLOCK_BYTES
) -> Iterator[TextBlock]:
    """Reads the file from a position, in blocks of whole lines.

    A byte order mark is left out. In a part of a file, the lines that begin in it are read. A last line without an end
    is a line, unless the file is still growing.

    Args:
        file: The file.
        text: The open file.
        place: Where to begin.
        quote: The character around line ends that do not count; None for none.
        size: The approximate number of bytes of a block.

    Raises:
        BadFileException: A line has no end.
    """
    at, end = place.at, None
    line = place.line
    if file.span is not None:
        first, end = file.span
        at = max(at, first)
        if at == first and first:
            at, line = _next_line(text, first), 0
        if end >= file.found.size:
            end = None
        elif at >= end:
            return
    text.go_to(at)
    held = b""
    while True:
        data = text.read(size)
        held += data
        is_end = len(data) < size
        if end is not None and at + len(held) >= end and (cut := held.find(b"\n", end - 1 - at) + 1):
            yield _block(at, line, held[:cut])
            return
        cut = last_line_end(held, quote)
        if is_end and held and file.is_settled():
            cut = len(held)
        if end is not None and not is_end and at + len(held) >= end:
            continue  # The last line of a part continues after it.
        if cut:
            block = _block(at, line, held[:cut])
            at, held = at + cut, held[cut:]
            line = line + block.data.count(b"\n") if line else 0
            yield block
        elif len(held) > _LONGEST_LINE:
            raise BadFileException(
                f"has a line of more than {_LONGEST_LINE >> 20} MiB, from line {line} on: it is no text, has other "
                "line ends, or a quote without its partner"
            )
        if is_end:
            return


def _block(at: int, line: int, data: bytes) -> TextBlock:
    if at == 0 and data.startswith(_BOM):
        return TextBlock(len(_BOM), line, data[len(_BOM) :])
    return TextBlock(at, line, data)


def _next_line(text: TextInput, at: int) -> int:
    """Returns the start of the first line at or after a byte."""
    text.go_to(at - 1)
    where = at - 1
    while data := text.read(1 << 16):
        found = data.find(b"\n")
        if found >= 0:
            return where + found + 1
        where += len(data)
    return where


def last_line_end(data: bytes, quote: int | None) -> int:
    """Returns the end of the last whole line; 0 if there is none."""
    if quote is None or bytes((quote,)) not in data:
        return data.rfind(b"\n") + 1
    ends = line_ends(data, quote)
    return int(ends[-1]) if len(ends) else 0


def line_ends(data: bytes, quote: int | None) -> np.ndarray:
    """The positions after all line ends that are not between quotes."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == _NEWLINE)
    if quote is not None:
        quotes = np.flatnonzero(raw == quote)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends + 1


def rows_of(data: bytes, quote: int | None) -> list[tuple[int, int]]:
    """The begin and end of each line that is not empty."""
    ends = line_ends(data, quote).tolist()
    if not ends or ends[-1] < len(data):
        ends.append(len(data))
    starts = [0, *ends[:-1]]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if data[start:end].strip(b"\r\n")]


#: Parses some whole lines: returns their rows, and bad ones.
Parse = Callable[[bytes, int], "tuple[pa.Table, list[Bad]]"]


def isolated(data: bytes, line: int, parse: Parse, quote: int | None = None) -> tuple[pa.Table | None, list[Bad]]:
    """The valid rows, in order, and the bad ones.

    Args:
        data: Whole lines.
        line: The number of the first one; 0 = unknown.
        parse: Reads lines; raises ``ArrowInvalid`` if one of them is bad.
        quote: See ``blocks``.

    Returns:
        None instead of a table if no row is good.
    """
    rows = rows_of(data, quote)
    tables: list[pa.Table] = []
    bad: list[Bad] = []
    count = 0
    # The ranges of rows to try, the first one last.
    todo = [(0, len(rows))]
    while todo:
        first, last = todo.pop()
        if first == last:
            continue
        start, end = rows[first][0], rows[last - 1][1]
        at = line + data.count(b"\n", 0, start) if line else 0
        try:
            table, more = parse(data[start:end], at)
        except pa.ArrowInvalid as error:
            if last - first == 1:
                bad.append(Bad(at, data[start:end].rstrip(b"\r\n"), _reason(error), count))
                continue
            middle = (first + last) // 2
            todo += [(middle, last), (first, middle)]
            continue
        bad += [Bad(one.line, one.text, one.reason, one.before + count) for one in more]
        tables.append(table)
        count += table.num_rows
    return (pa.concat_tables(tables, promote_options="default") if tables else None), bad


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.removesuffix(" in row 0")
