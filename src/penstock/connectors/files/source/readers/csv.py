"""CSV files. Main type: ``CsvReader``; the reader of PyArrow, and no Python object for a row. The task's thread.

Source: RFC 4180; the settings ``csv.*`` of the SpoolDir connectors.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.reader import (
    BLOCK_BYTES,
    Bad,
    BadFileException,
    FileRows,
    FormatReader,
    Input,
)
from penstock.connectors.files.source.readers.text import TextBlock, blocks, isolated, open_text, rows_of
from penstock.files.widening import widened

#: The number of bytes at the beginning of a file from which types are inferred.
_SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The dialect of the files.

    Attributes:
        separator: The character between fields.
        quote: The character around fields; None for none.
        escape: The escape character; None: a quote in quotes is doubled.
        skip_lines: The number of lines before the header.
        has_header: True if there is a line of names.
        names: The names, if there is no such line; empty: ``column_1`` and so on.
        charset: The encoding.
        empty_is_null: True if an empty field without quotes is null, also for text.
        quoted_is_null: True if one with quotes is null, too.
        infers: True to infer types from the data; False: all columns are text.
        zone: The time zone of times without one.
        timestamp_formats: Patterns of ``strptime``; empty: ISO 8601.
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    skip_lines: int = 0
    has_header: bool = True
    names: tuple[str, ...] = ()
    charset: str = "utf-8"
    empty_is_null: bool = True
    quoted_is_null: bool = False
    infers: bool = True
    zone: str = "UTC"
    timestamp_formats: tuple[str, ...] = ()


class CsvReader(FormatReader):
    """CSV.

    Args:
        dialect: The dialect of the files.
        types: The known types of columns by their names; others are inferred from the data.
    """

    appends = True

    def __init__(self, dialect: CsvDialect, types: Mapping[str, pa.DataType] | None = None) -> None:
        self._dialect, self._given = dialect, types or {}
        escaped = dialect.escape not in (None, dialect.quote)
        # If quotes may be escaped, counting quotes does not find line ends in quotes.
        self._quote = ord(dialect.quote) if dialect.quote and not escaped else None
        self._parse_options = {
            "delimiter": dialect.separator,
            "quote_char": dialect.quote or False,
            "escape_char": dialect.escape if escaped else False,
            "newlines_in_values": self._quote is not None,
        }

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``."""
        text = open_text(file, self._dialect.charset)
        try:
            sample = next(blocks(file, text, FilePosition(), self._quote, _SAMPLE_BYTES), None)
            if sample is None:
                return
            names, body = self._header(file, sample)
            types = self._types(names, body)
        finally:
            text.close()
        text = open_text(file, self._dialect.charset)
        try:
            start = place if place.at > body.at else FilePosition(body.at, 0, body.line)
            for block in blocks(file, text, start, self._quote):
                piece, types = self._piece(block, names, types)
                yield piece
        finally:
            text.close()

    def _header(self, file: Input, sample: TextBlock) -> tuple[list[str], TextBlock]:
        """The names of the columns, and the rest of the sample."""
        at = 0
        for _ in range(self._dialect.skip_lines):
            at = sample.data.find(b"\n", at) + 1 or len(sample.data)
        rows = rows_of(sample.data[at:], self._quote)
        first = self._cells(sample.data[at + rows[0][0] : at + rows[0][1]]) if rows else []
        if self._dialect.has_header and rows:
            at += rows[0][1]
            names = self._unique(file, first)
        else:
            names = list(self._dialect.names) or [f"column_{index + 1}" for index in range(len(first))]
        line = sample.line + sample.data.count(b"\n", 0, at)
        return names, TextBlock(sample.at + at, line, sample.data[at:])

    def _cells(self, row: bytes) -> list[str]:
        dialect = self._dialect
        try:
            text = row.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise BadFileException(f"has a header that is no UTF-8: {error}; set csv.file.charset") from error
        found = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=dialect.separator,
            quotechar=dialect.quote or None,
            quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
            escapechar=dialect.escape if dialect.escape != dialect.quote else None,
        )
        try:
            return next(found, [])
        except csv.Error as error:
            raise BadFileException(f"has no header that can be read: {error}; check csv.quote.char") from error

    def _unique(self, file: Input, names: Sequence[str]) -> list[str]:
        made: list[str] = []
        for index, name in enumerate(names, 1):
            own = name.strip() or f"column_{index}"
            while own in made:
                own = f"{own}_{index}"
            made.append(own)
            if name.strip() and own != name.strip():
                file.warn(f'has several columns called "{name.strip()}" in its header: one is called "{own}" here')
        return made

    def _types(self, names: Sequence[str], body: TextBlock) -> dict[str, pa.DataType]:
        types = {name: self._given.get(name, pa.string()) for name in names}
        if not self._dialect.infers or all(name in self._given for name in names):
            return types
        table, _ = isolated(body.data, body.line, lambda data, line: self._read(data, line, names, None), self._quote)
        for field in table.schema if table is not None else ():
            if field.name not in self._given and not pa.types.is_null(field.type):
                types[field.name] = field.type
        return types

    def _piece(
        self, block: TextBlock, names: Sequence[str], types: dict[str, pa.DataType]
    ) -> tuple[FileRows, dict[str, pa.DataType]]:
        bad: list[Bad] = []
        try:
            table, bad = self._read(block.data, block.line, names, types)
        except pa.ArrowInvalid:
            types = self._wider(block, names, types)
            found, bad = isolated(
                block.data, block.line, lambda data, line: self._read(data, line, names, types), self._quote
            )
            table = pa.table({name: pa.nulls(0, types[name]) for name in names}) if found is None else found
        return FileRows(self._with_zones(table), FilePosition(block.at, 0, block.line), block.end, bad), types

    def _wider(self, block: TextBlock, names: Sequence[str], types: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Widens inferred types so that they also hold the values of a block."""
        if not self._dialect.infers:
            return types
        found, _ = isolated(block.data, 0, lambda data, line: self._read(data, line, names, None), self._quote)
        if found is None:
            return types
        return {
            name: kind if name in self._given else widened(kind, found.schema.field(name).type)
            for name, kind in types.items()
        }

    def _read(
        self, data: bytes, line: int, names: Sequence[str], types: Mapping[str, pa.DataType] | None
    ) -> tuple[pa.Table, list[Bad]]:
        dialect = self._dialect
        invalid: list[tuple[int, str, str]] = []

        def skip(row: pacsv.InvalidRow) -> str:
            text = f"has {row.actual_columns} fields, and the header {row.expected_columns}"
            invalid.append((row.number, row.text, text))
            return "skip"

        table = (
            pacsv.read_csv(
                pa.BufferReader(data),
                read_options=pacsv.ReadOptions(
                    column_names=list(names), use_threads=False, block_size=max(len(data) + 1, BLOCK_BYTES)
                ),
                parse_options=pacsv.ParseOptions(**self._parse_options, invalid_row_handler=skip),
                convert_options=pacsv.ConvertOptions(
                    column_types={**self._given} if types is None else types,
                    null_values=[""],
                    strings_can_be_null=dialect.empty_is_null,
                    quoted_strings_can_be_null=dialect.quoted_is_null,
                    timestamp_parsers=[*dialect.timestamp_formats] or None,
                ),
            )
            if data.strip()
            else pa.table({name: pa.nulls(0, (types or {}).get(name, pa.null())) for name in names})
        )
        return table, self._bad(data, line, invalid)

    def _bad(self, data: bytes, line: int, invalid: Sequence[tuple[int, str, str]]) -> list[Bad]:
        if not invalid:
            return []
        rows = rows_of(data, self._quote)
        bad = []
        for index, (number, text, reason) in enumerate(invalid):
            row = number - 1
            start = rows[row][0] if 0 <= row < len(rows) else 0
            at = line + data.count(b"\n", 0, start) if line else 0
            bad.append(Bad(at, text.encode(), reason, row - index))
        return bad

    def _with_zones(self, table: pa.Table) -> pa.Table:
        if self._dialect.zone == "UTC":
            return table
        for index, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type) and (field.type.tz is None or field.name in self._given):
                local = table.column(index).cast(pa.timestamp(field.type.unit))
                moment = pc.assume_timezone(local, self._dialect.zone, ambiguous="earliest", nonexistent="latest")
                table = table.set_column(index, field.name, moment)
        return table
