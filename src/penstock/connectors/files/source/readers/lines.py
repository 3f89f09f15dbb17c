"""Lines of text, and whole files.

Main types: ``LinesReader``, ``JsonTextsReader``, ``WholeFileReader``. The task's thread.

Source: the SpoolDir connectors for lines and binary files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.reader import Bad, BadFileException, FileRows, FormatReader, Input
from penstock.connectors.files.source.readers.text import blocks, compression_of, isolated, open_text
from penstock.files.widening import inferred

#: The column of values that are no structs.
VALUE = "value"
_MOST_BYTES = 1 << 30


class JsonTextsReader(FormatReader):
    """Each line is a JSON value of any type: keys and headers of ``FileSink``.

    Args:
        charset: The encoding.
    """

    def __init__(self, charset: str = "utf-8") -> None:
        self._lines = LinesReader(charset, skip_empty=True)

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``: one piece."""
        found = [one for piece in self._lines.pieces(file, place) for one in piece.table.column(VALUE).to_pylist()]
        try:
            values = inferred([json.loads(text) for text in found])
        except (ValueError, RecursionError) as error:
            raise BadFileException(f"is no JSON: {error}") from error
        yield FileRows(pa.table({VALUE: values}), place, place, is_single=True)


class LinesReader(FormatReader):
    """Each line is a text.

    Args:
        charset: The encoding.
        skip_empty: True to leave out empty lines.
    """

    appends = True
    splits = True

    def __init__(self, charset: str = "utf-8", *, skip_empty: bool = False) -> None:
        self._charset, self._skip_empty = charset, skip_empty

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``."""
        text = open_text(file, self._charset)
        try:
            for block in blocks(file, text, place):
                bad: list[Bad] = []
                try:
                    table = self._table(block.data)
                except (pa.ArrowInvalid, UnicodeDecodeError):
                    found, bad = isolated(block.data, block.line, lambda data, _: (self._table(data), []))
                    table = pa.table({VALUE: pa.nulls(0, pa.string())}) if found is None else found
                yield FileRows(table, FilePosition(block.at, 0, block.line), block.end, bad, is_single=True)
        finally:
            text.close()

    def _table(self, data: bytes) -> pa.Table:
        body = data[:-1] if data.endswith(b"\n") else data
        # As bytes first, so that invalid UTF-8 is an error.
        whole = pa.array([body], pa.large_binary())
        lines = pc.split_pattern(whole.cast(pa.large_string()), "\n").values.cast(pa.string())
        if b"\r" in data:
            lines = pc.utf8_rtrim(lines, "\r")
        if self._skip_empty:
            lines = lines.filter(pc.not_equal(pc.utf8_trim_whitespace(lines), ""))
        return pa.table({VALUE: lines})


class WholeFileReader(FormatReader):
    """Each file is one value, its bytes."""

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``."""
        if place.at:
            return
        if file.found.size > _MOST_BYTES:
            raise BadFileException(f"has {file.found.size} bytes, and a record takes at most {_MOST_BYTES}")
        raw = file.open()
        try:
            stream = raw if compression_of(file.found.name) is None else open_text(file, "utf-8")
            data = stream.read(_MOST_BYTES)
        finally:
            raw.close()
        yield FileRows(
            pa.table({VALUE: pa.array([data], pa.binary())}),
            FilePosition(0, 0, 0),
            FilePosition(1, 0, 0),
            is_single=True,
        )
