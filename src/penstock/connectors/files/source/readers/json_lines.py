"""Files with a JSON object in each line, or consecutive objects. Main type: ``JsonLinesReader``. The task's thread.

PyArrow's reader reads lines. If a block has lines that are no objects, or fields whose type changes, Python reads this
block.

Source: https://jsonlines.org; the SpoolDir connector for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pajson

from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.lines import VALUE
from penstock.connectors.files.source.readers.reader import (
    BLOCK_BYTES,
    Bad,
    BadFileException,
    FileRows,
    FormatReader,
    Input,
)
from penstock.connectors.files.source.readers.text import TextBlock, blocks, open_text, rows_of
from penstock.files.widening import inferred, widened

_SAMPLE_BYTES = 1 << 20
_MOST_BYTES = 256 << 20
#: The depth of nested values that a line may have, and the one above which PyArrow's reader ends the process.
_DEEPEST = 200
_FATAL = 1000
#: The mark of a table of values that are no objects.
_SINGLE = {"single": "true"}


class JsonLinesReader(FormatReader):
    """JSON.

    Args:
        types: The known types of fields by their names; others are inferred from the data.
        charset: The encoding.
    """

    appends = True
    splits = True

    def __init__(self, types: Mapping[str, pa.DataType] | None = None, charset: str = "utf-8") -> None:
        self._given, self._charset = types or {}, charset

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``."""
        text = open_text(file, self._charset)
        try:
            sample = next(blocks(Input(file.found, file.open), text, FilePosition(), None, _SAMPLE_BYTES), None)
        finally:
            text.close()
        if sample is None:
            return
        if file.span is None and _is_document(sample.data):
            yield from self._document(file, place)
            return
        types = self._types(sample.data)
        text = open_text(file, self._charset)
        try:
            for block in blocks(file, text, place):
                piece, types = self._piece(block, types)
                yield piece
        finally:
            text.close()

    def _types(self, data: bytes) -> dict[str, pa.DataType]:
        """The types of a sample; texts that look like times stay text, as JSON has no times."""
        try:
            table = self._read(data, {})
            found = {field.name: _without_times(field.type) for field in table.schema}
        except (pa.ArrowInvalid, RecursionError):
            return dict(self._given)
        return found | dict(self._given)

    def _piece(self, block: TextBlock, types: dict[str, pa.DataType]) -> tuple[FileRows, dict[str, pa.DataType]]:
        start = FilePosition(block.at, 0, block.line)
        try:
            table = self._read(block.data, types)
            new = {one.name: _without_times(one.type) for one in table.schema if one.name not in types}
            if any(table.schema.field(name).type != kind for name, kind in new.items()) or _grew(table, types):
                types = {name: _without_times(table.schema.field(name).type) for name in table.schema.names} | {
                    name: kind for name, kind in types.items() if name in self._given
                }
                table = self._read(block.data, types)
            return FileRows(table, start, block.end), {**types, **new}
        except (pa.ArrowInvalid, RecursionError):
            table, bad, types = self._by_lines(block, types)
            return FileRows(table, start, block.end, bad, is_single=_is_single(table)), types

    def _read(self, data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
        if _is_deeper(data, _FATAL):
            raise pa.ArrowInvalid("values are nested too deep")
        schema = pa.schema([pa.field(name, kind) for name, kind in types.items()])
        return pajson.read_json(
            pa.BufferReader(data),
            read_options=pajson.ReadOptions(use_threads=False, block_size=max(len(data) + 1, BLOCK_BYTES)),
            parse_options=pajson.ParseOptions(explicit_schema=schema if types else None),
        )

    def _by_lines(
        self, block: TextBlock, types: dict[str, pa.DataType]
    ) -> tuple[pa.Table, list[Bad], dict[str, pa.DataType]]:
        """Reads lines one by one."""
        values: list[Any] = []
        bad: list[Bad] = []
        lines: list[tuple[int, bytes]] = []
        for start, end in rows_of(block.data, None):
            line = block.line + block.data.count(b"\n", 0, start) if block.line else 0
            raw = block.data[start:end].rstrip(b"\r\n")
            try:
                value = orjson.loads(raw)
                if _is_deeper(raw, _DEEPEST):
                    bad.append(Bad(line, raw, f"has values that are nested more than {_DEEPEST} deep", len(values)))
                    continue
                values.append(value)
                lines.append((line, raw))
            except orjson.JSONDecodeError as error:
                bad.append(Bad(line, raw, f"is no JSON: {error}", len(values)))
        return self._columns(values, lines, bad, types)

    def _columns(
        self, values: list[Any], lines: list[tuple[int, bytes]], bad: list[Bad], types: dict[str, pa.DataType]
    ) -> tuple[pa.Table, list[Bad], dict[str, pa.DataType]]:
        objects = [isinstance(value, dict) for value in values]
        if values and not any(objects):
            return pa.table({VALUE: inferred(values)}).replace_schema_metadata(_SINGLE), bad, types
        rows: list[dict[str, Any]] = []
        kept: list[Bad] = []
        # Both are in the order of the file.
        other = iter([*bad, None])
        late = next(other)
        for index, value in enumerate(values):
            while late is not None and late.before <= index:
                kept.append(Bad(late.line, late.text, late.reason, len(rows)))
                late = next(other)
            reason = self._misfit(value) if objects[index] else "is no JSON object, as other lines are"
            if reason:
                kept.append(Bad(*lines[index], reason, len(rows)))
            else:
                rows.append(value)
        while late is not None:
            kept.append(Bad(late.line, late.text, late.reason, len(rows)))
            late = next(other)
        table = table_of(rows, types, self._given)
        types = {**types, **{one.name: one.type for one in table.schema if not pa.types.is_null(one.type)}}
        return table, kept, types

    def _misfit(self, value: dict[str, Any]) -> str:
        """The reason why a value does not fit the given types; empty if it does."""
        for name, kind in self._given.items():
            if value.get(name) is not None:
                try:
                    _column([value[name]], kind)
                except (pa.ArrowException, ValueError, TypeError) as error:
                    return f'has a field "{name}" that is no {kind}: {" ".join(str(error).split())}'
        return ""

    def _document(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """Reads a file with objects over several lines, or in an array."""
        if file.found.size > _MOST_BYTES:
            raise BadFileException(
                f"has JSON over several lines and {file.found.size} bytes, and at most {_MOST_BYTES} can be read at "
                "once: write one object in each line"
            )
        text = open_text(file, self._charset)
        try:
            data = text.read(4 * _MOST_BYTES)
        finally:
            text.close()
        values = _values(data)
        table, bad, _ = self._columns(values, [(0, b"")] * len(values), [], dict(self._given))
        piece = FileRows(table, FilePosition(0, 0, 0), FilePosition(len(data), 0, 0), bad, is_single=_is_single(table))
        if place.at < len(data):
            yield piece


def table_of(
    rows: list[dict[str, Any]], types: Mapping[str, pa.DataType], given: Mapping[str, pa.DataType]
) -> pa.Table:
    """Converts objects to columns.

    Args:
        rows: The objects.
        types: The types of the columns of earlier rows, which widen.
        given: The types of columns that keep them.
    """
    names = dict.fromkeys([*types, *(str(name) for row in rows for name in row)])
    columns = {}
    for name in names:
        cells = [row.get(name) for row in rows]
        if name in given:
            columns[name] = _column(cells, given[name])
            continue
        found = inferred(cells)
        kind = widened(types[name], found.type) if name in types else found.type
        columns[name] = found if found.type == kind else inferred(cells, kind)
    return pa.table(columns)


def _column(cells: list[Any], kind: pa.DataType) -> pa.Array:
    """Converts cells to a given type, as PyArrow's reader does with their JSON."""
    if pa.types.is_string(kind) or pa.types.is_nested(kind):
        return pa.array(cells, kind)
    data = b"\n".join(orjson.dumps({"c": cell}) for cell in cells)
    options = pajson.ParseOptions(explicit_schema=pa.schema([("c", kind)]))
    return (
        pajson.read_json(pa.BufferReader(data), parse_options=options).column(0).combine_chunks()
        if cells
        else pa.array([], kind)
    )


def _is_single(table: pa.Table) -> bool:
    return b"single" in (table.schema.metadata or {})


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _without_times(one.type)) for one in kind])
    return pa.list_(_without_times(kind.value_type)) if pa.types.is_list(kind) else kind


def _grew(table: pa.Table, types: Mapping[str, pa.DataType]) -> bool:
    """True if a nested type has new fields, including texts that look like times."""
    return any(
        table.schema.field(name).type != kind
        and table.schema.field(name).type != _without_times(table.schema.field(name).type)
        for name, kind in types.items()
    )


def _is_deeper(data: bytes, depth: int) -> bool:
    """True if a line has values that are nested deeper; brackets in texts count, too.

    >>> _is_deeper(b"[[]]\\n[{}]", 1), _is_deeper(b"[[]]\\n[{}]", 2)
    (True, False)
    """
    raw = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(raw == ord("\n")), len(raw))
    if np.diff(ends, prepend=0).max() <= depth:
        return False
    opening = (raw & 0xDF) == ord("[")  # { differs from [ in one bit, and } from ].
    if np.diff(np.searchsorted(np.flatnonzero(opening), ends), prepend=0).max() <= depth:
        return False
    levels = np.cumsum(opening.astype(np.int64) - ((raw & 0xDF) == ord("]")))
    starts = np.append(0, ends[:-1] + 1)
    before = np.append(0, levels)[starts]
    return any(
        (levels[start:end].max(initial=0) - left) > depth for start, end, left in zip(starts, ends, before, strict=True)
    )


def _is_document(data: bytes) -> bool:
    """True if the first line is no JSON by itself, and the beginning looks like an object or an array."""
    first = data.lstrip()[:1]
    if first == b"[":
        return True
    if first != b"{":
        return False
    line = data.lstrip().split(b"\n", 1)[0]
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        # One of many lines of whole objects may be broken.
        return line.strip() == b"{" or (b"\n" in data.strip() and not line.rstrip().endswith(b"}"))
    return False


def _values(data: bytes) -> list[Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadFileException(f"is no UTF-8: {error}") from error
    decoder, at, found = json.JSONDecoder(), 0, list[Any]()
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at == len(text):
            return found
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise BadFileException(f"is no JSON: {error}") from error
        found += value if isinstance(value, list) else [value]
