"""Files in blocks with a schema: Parquet, ORC and Avro. The task's thread.

Main types: ``ParquetReader``, ``OrcReader``, ``AvroReader``; the last one needs fastavro, which makes Python objects of
rows.

Source: the formats' specifications, by PyArrow's readers; the Avro specification, "Object Container Files" and "Logical
Types".
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.source.ledger import FilePosition
from penstock.connectors.files.source.readers.lines import VALUE
from penstock.connectors.files.source.readers.reader import (
    BLOCK_ROWS,
    BadFileException,
    FileRows,
    FormatReader,
    Input,
    parts_of,
    place_in,
    unit_of,
)
from penstock.files.widening import json_text


class ParquetReader(FormatReader):
    """Parquet; a block is a row group, which is read in parts."""

    splits = True

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``. A part of a file has the row groups that begin in it."""
        raw = file.open()
        try:
            try:
                found = pq.ParquetFile(raw)
            except (pa.ArrowInvalid, OSError) as error:
                raise _no_file("Parquet", error) from error
            first, skipped = unit_of(place)
            for group in range(first, found.metadata.num_row_groups):
                if _is_in(file.span, found.metadata.row_group(group)):
                    yield from self._group(found, group, skipped if group == first else 0)
        finally:
            raw.close()

    def _group(self, found: pq.ParquetFile, group: int, skipped: int) -> Iterator[FileRows]:
        total, at = found.metadata.row_group(group).num_rows, 0
        try:
            for batch in found.iter_batches(BLOCK_ROWS, row_groups=[group], use_threads=False):
                start, at = at, at + batch.num_rows
                if start < skipped:
                    continue
                after = place_in(group + 1) if at >= total else place_in(group, at)
                table = pa.Table.from_batches([batch]).replace_schema_metadata(found.schema_arrow.metadata)
                yield FileRows(table, place_in(group, start), after)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _no_file("Parquet", error) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise _no_file("Parquet", error) from error


class OrcReader(FormatReader):
    """ORC; a block is a stripe."""

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``."""
        from pyarrow import orc

        raw = file.open()
        try:
            try:
                found = orc.ORCFile(raw)
            except (pa.ArrowException, OSError) as error:
                raise _no_file("ORC", error) from error
            begin, skipped = unit_of(place)
            for stripe in range(begin, found.nstripes):
                try:
                    table = pa.Table.from_batches([found.read_stripe(stripe)])
                except pa.ArrowException as error:
                    raise _no_file("ORC", error) from error
                yield from parts_of(table, stripe, skipped if stripe == begin else 0)
        finally:
            raw.close()


def _is_in(span: tuple[int, int] | None, group: pq.RowGroupMetaData) -> bool:
    if span is None:
        return True
    column = group.column(0) if group.num_columns else None
    start = 0
    if column is not None:
        start = column.dictionary_page_offset or column.data_page_offset
    return span[0] <= start < span[1]


def _no_file(kind: str, error: Exception) -> BadFileException:
    return BadFileException(f"is no whole file of {kind}: {' '.join(str(error).split())}")


_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


class AvroReader(FormatReader):
    """Avro; a block is one of the file."""

    def pieces(self, file: Input, place: FilePosition) -> Iterator[FileRows]:
        """See ``FormatReader``. Rows before the position are read again, and left out."""
        import fastavro

        raw = file.open()
        try:
            try:
                blocks = fastavro.block_reader(raw)
                schema = blocks.writer_schema
            except (ValueError, EOFError, KeyError, StopIteration, fastavro.schema.SchemaParseException) as error:
                raise _no_avro(error) from error
            field = field_of(schema, {})
            begin, skipped = unit_of(place)
            metadata = {name: text for name, text in blocks.metadata.items() if name.startswith("penstock.")}
            number = -1
            while True:
                number += 1
                try:
                    block = next(blocks, None)
                    if block is None:
                        return
                    if number < begin:
                        continue
                    rows = list(block)
                except (ValueError, EOFError, KeyError, IndexError, TypeError, OSError) as error:
                    raise _no_avro(error) from error
                single = not pa.types.is_struct(field.type)
                for piece in parts_of(_table(rows, field), number, skipped if number == begin else 0):
                    yield replace(piece, table=piece.table.replace_schema_metadata(metadata), is_single=single)
        finally:
            raw.close()


def field_of(schema: Any, named: dict[str, Any]) -> pa.Field:
    """Converts an Avro schema to an Arrow field: its type, and if it may be null.

    Args:
        schema: The schema that fastavro has parsed.
        named: The named types so far.
    """
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) == 1:
            return field_of(others[0], named).with_nullable(len(others) < len(schema))
        # Values of several types: text, with JSON for values that are no texts.
        return pa.field("", pa.string(), nullable="null" in schema)
    if isinstance(schema, str):
        if schema in named:
            return pa.field("", named[schema], nullable=False)
        return pa.field("", _PLAIN.get(schema, pa.string()), nullable=schema == "null")
    kind = schema["type"]
    made = _logical(schema)
    if made is None and kind in ("record", "error"):
        named[schema["name"]] = pa.string()
        made = pa.struct([field_of(one["type"], named).with_name(one["name"]) for one in schema["fields"]])
    elif made is None and kind == "array":
        made = pa.list_(field_of(schema["items"], named).with_name("element"))
    elif made is None and kind == "map":
        item = field_of(schema["values"], named)
        made = pa.map_(pa.string(), item.with_name("value"))
    elif made is None:
        return field_of(kind, named) if not isinstance(kind, str) else pa.field("", _PLAIN[kind], nullable=False)
    if "name" in schema and kind in ("record", "error", "enum", "fixed"):
        named[schema["name"]] = made
    return pa.field("", made, nullable=False)


def _logical(schema: Mapping[str, Any]) -> pa.DataType | None:
    kind = schema.get("logicalType")
    if kind == "decimal" and schema.get("precision", 0) <= 76:
        precision, scale = schema["precision"], schema.get("scale", 0)
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return _LOGICAL.get(kind) if isinstance(kind, str) else None


def _table(rows: list[Any], field: pa.Field) -> pa.Table:
    values = pa.array([_shaped(row, field.type) for row in rows], field.type)
    if pa.types.is_struct(field.type) and field.type.num_fields:
        columns = [values.field(index) for index in range(field.type.num_fields)]
        return pa.Table.from_arrays(columns, schema=pa.schema(list(field.type)))
    return pa.Table.from_arrays([values], schema=pa.schema([field.with_name(VALUE)]))


def _shaped(value: Any, kind: pa.DataType) -> Any:
    """Converts a value for ``pa.array``."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {one.name: _shaped(value.get(one.name), one.type) for one in kind}
    if pa.types.is_list(kind):
        return [_shaped(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [(key, _shaped(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_string(kind) and not isinstance(value, str):
        return str(value) if isinstance(value, uuid.UUID) else json_text(value)
    if pa.types.is_binary(kind) and isinstance(value, (Decimal, datetime.timedelta)):
        return str(value).encode()
    return value


def _no_avro(error: Exception) -> BadFileException:
    return BadFileException(f"is no whole Avro container file: {type(error).__name__} {' '.join(str(error).split())}")
