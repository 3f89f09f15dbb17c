"""Converts rows of files to records: topic, key, headers, time, partition; bad rows to dead letter records.

Main type: ``FrameBuilder``. Main function: ``fitted``, which casts columns to a schema.

No I/O; the task's thread. Source: the metadata columns that ``FileSink`` writes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SourceFrame
from penstock.api.arrow import arrow_type, connect_schema, is_text, one_array, struct_column
from penstock.config.java_pattern import JavaPattern
from penstock.connectors.files.columns import schema_in
from penstock.connectors.files.source.archive import HEADERS as HEADERS_BESIDE
from penstock.connectors.files.source.archive import KEYS, commit_of
from penstock.connectors.files.source.readers.reader import Bad, BadFileException, FileRows
from penstock.data import OPTIONAL_STRING_SCHEMA, Schema, Type
from penstock.errors import ConnectException, DataException
from penstock.files import Found


def fitted(piece: FileRows, schema: Schema, beside: Sequence[str] = ()) -> FileRows:
    """The rows with the fields of a schema, in its order and types; other columns are left out.

    Rows with a value that does not fit are bad.

    Args:
        piece: The rows.
        schema: The schema of the values, a struct.
        beside: Columns that do not change.

    Raises:
        BadFileException: A field that must not be null has no column.
    """
    table = piece.table
    wanted = [(one.name, one.schema) for one in schema.fields]
    lacking = [
        name for name, one in wanted if name not in table.column_names and not one.optional and one.default is None
    ]
    if lacking:
        raise BadFileException(
            f"has no column {', '.join(lacking)}, which value.schema has and which must not be null; it has "
            f"{', '.join(table.column_names) or 'none'}"
        )
    reasons: dict[int, str] = {}
    columns: dict[str, pa.Array] = {}
    for name, one in wanted:
        if name not in table.column_names:
            if one.optional:
                columns[name] = pa.nulls(table.num_rows, arrow_type(one))
            continue
        columns[name] = _cast(one_array(table.column(name)), arrow_type(one), name, reasons)
        if not one.optional and one.default is None:
            for row in np.flatnonzero(pc.is_null(columns[name]).to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(row, f'has no value in "{name}", which must not be null')
    columns |= {name: one_array(table.column(name)) for name in beside}
    made = pa.table(columns) if columns else table.select([])
    if not reasons:
        return replace(piece, table=made)
    return _without(made, piece, reasons)


def _without(table: pa.Table, piece: FileRows, reasons: dict[int, str]) -> FileRows:
    rows = sorted(reasons)
    mask = np.ones(table.num_rows, bool)
    mask[rows] = False
    dropped = np.concatenate([[0], np.cumsum(~mask)])
    line = piece.place.line
    # If each row is one line, and none was left out before, the row gives the line.
    exact = bool(line) and piece.next.line - line == table.num_rows + len(piece.bad)
    bad = [
        Bad(
            line + row + sum(one.before <= row for one in piece.bad) + piece.place.rows if exact else 0,
            _text(piece.table, row),
            reasons[row],
            row - int(dropped[row]),
        )
        for row in rows
    ]
    moved = [Bad(one.line, one.text, one.reason, one.before - int(dropped[one.before])) for one in piece.bad]
    both = sorted([*bad, *moved], key=lambda one: one.before)
    return replace(piece, table=table.filter(pa.array(mask)), bad=both)


def _text(table: pa.Table, row: int) -> bytes:
    values: dict[str, Any] = table.slice(row, 1).to_pylist()[0]
    return str(values).encode()


def _cast(array: pa.Array, kind: pa.DataType, name: str, reasons: dict[int, str]) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return _converted(array, kind)
    except (pa.ArrowException, ValueError, TypeError):
        pass
    # The ranges of rows to try, the first one last.
    done: list[pa.Array] = []
    todo = [(0, len(array))]
    while todo:
        first, last = todo.pop()
        part = array.slice(first, last - first)
        try:
            done.append(_converted(part, kind))
        except (pa.ArrowException, ValueError, TypeError) as error:
            if last - first == 1:
                reasons.setdefault(first, f'has a value in "{name}" that is no {kind}: {" ".join(str(error).split())}')
                done.append(pa.nulls(1, kind))
                continue
            middle = (first + last) // 2
            todo += [(middle, last), (first, middle)]
    return pa.concat_arrays(done) if done else pa.nulls(0, kind)


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    given = array.type
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(kind):
        return array.cast(kind, safe=False)  # What is below a millisecond has no room in Connect.
    if pa.types.is_nested(given) and not given.equals(kind):
        return pa.array(array.to_pylist(maps_as_pydicts=None), kind)
    return array.cast(kind)


HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_VALUE: Final = "value"

Offset = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FrameBuilder:
    """Converts rows to frames.

    Attributes:
        topic: The topic of all files; empty: see the next ones.
        topics: Topics by regular expressions for keys of files.
        restores: True if the files have the layout of ``FileSink``.
        metadata: The columns that are no fields of values; None: all of them in a file.
        prefix: The beginning of their names.
        delimiter: The text between topic, partition and offset in the names of files.
        key: The fields of the value that are the key.
        key_schema: The schema of the keys.
        value_schema: The schema of the values; None: derived from the columns.
        key_name: The name of the keys' schema.
        value_name: The name of the values' schema.
        timestamp_mode: ``PROCESS_TIME``, ``FILE_TIME`` or ``FIELD``.
        timestamp_field: The field.
        with_headers: True if headers name the file.
        address: The address of the store, for headers.
    """

    topic: str = ""
    topics: tuple[tuple[str, JavaPattern], ...] = ()
    restores: bool = False
    metadata: tuple[str, ...] | None = ()
    prefix: str = "kafka_"
    delimiter: str = "+"
    key: tuple[str, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    key_name: str = ""
    value_name: str = ""
    timestamp_mode: str = "PROCESS_TIME"
    timestamp_field: str = ""
    with_headers: bool = False
    address: str = ""

    def topic_of(self, found: Found) -> str | None:
        """The topic of a file; None if it has none."""
        if self.restores:
            directory, _, rest = found.key.partition("/")
            return unquote(directory) if rest else None
        if self.topics:
            return next((topic for topic, pattern in self.topics if pattern.matches(found.key)), self.topic or None)
        return self.topic

    def place_of(self, found: Found) -> tuple[str, int] | None:
        """The topic and partition in the name of a file of ``FileSink``."""
        mark = re.escape(self.delimiter)
        match = re.fullmatch(rf"(.+){mark}(\d+){mark}\d+(-\d+)?(\.[A-Za-z0-9.]+)?", found.name)
        return (match[1], int(match[2])) if match else None

    def fitted(self, piece: FileRows) -> FileRows:
        """Casts the rows to the fields of ``value_schema``; rows that do not fit become bad ones.

        Raises:
            BadFileException: A column is missing.
        """
        if self.value_schema is None:
            return piece
        return fitted(piece, self.value_schema, self._metadata(piece.table))

    def frame(self, piece: FileRows, found: Found, partition: Offset, offset: Offset) -> SourceFrame:
        """Converts the rows to a frame.

        Raises:
            BadFileException: The columns cannot be records: a type is unsupported, or a field of the key is missing.
            ConnectException: The file has rows of several partitions, without a column for them.
        """
        table = piece.table
        columns, single = self._columns(piece)
        try:
            value, value_schema = self._value(columns, single)
            if self.restores and self.value_schema is None:
                value_schema = _told(table, "value", value.type) or value_schema
            made = {_VALUE: value}
            key_schema = self.key_schema
            if self.key:
                made["key"], key_schema = self._key(columns)
            beside = self._beside(table)
            if not self.key and (KEYS in table.column_names or "key" in beside):
                name = KEYS if KEYS in table.column_names else self.prefix + "key"
                keys = made["key"] = _typed(one_array(table.column(name)))
                key_schema = _told(table, "key", keys.type) or connect_schema(keys.type, optional=True)
        except DataException as error:
            raise BadFileException(f"has columns that are no records: {error}") from error
        if HEADERS_BESIDE in table.column_names or "headers" in beside:
            name = HEADERS_BESIDE if HEADERS_BESIDE in table.column_names else self.prefix + "headers"
            made["headers"] = _headers(one_array(table.column(name)))
        if self.with_headers:
            made["headers"] = _repeated(self._file_headers(found), table.num_rows)
        timestamp = self._timestamps(made, table, columns, found, beside)
        place = self.place_of(found) if self.restores else None
        if place is None and self.restores and self.metadata is None and "partition" not in beside:
            self._check_commit(found)
        if "partition" in beside:
            made["partition"] = table.column(self.prefix + "partition").cast(pa.int32())
        return SourceFrame(
            pa.table(made),
            self.topic_of(found),
            value_schema,
            partition,
            offset,
            key_schema=key_schema,
            timestamp=timestamp,
            partition=place[1] if place is not None and "partition" not in made else None,
        )

    def letters(self, topic: str, bad: Sequence[Bad], found: Found, partition: Offset, offset: Offset) -> SourceFrame:
        """Converts bad rows, or a bad file, to dead letter records."""
        headers = [
            [
                {"key": "file", "value": _bytes(f"{self.address}/{found.key}")},
                {"key": "line", "value": str(one.line).encode()},
                {"key": "error", "value": _bytes(one.reason)},
            ]
            for one in bad
        ]
        made = {
            _VALUE: pa.array([one.text.decode(errors="replace") for one in bad], pa.string()),
            "headers": pa.array(headers, HEADERS),
        }
        return SourceFrame(
            pa.table(made), topic, OPTIONAL_STRING_SCHEMA, partition, offset, offset_after=lambda _: offset
        )

    def _beside(self, table: pa.Table) -> set[str]:
        """The existing metadata columns."""
        wanted = ("key", "headers", "topic", "partition", "offset", "timestamp")
        return {
            one
            for one in (wanted if self.metadata is None else self.metadata)
            if self.prefix + one in table.column_names
        }

    def _metadata(self, table: pa.Table) -> list[str]:
        """The columns that are no fields of values."""
        joined = [name for name in (KEYS, HEADERS_BESIDE) if name in table.column_names]
        return [*joined, *(self.prefix + one for one in self._beside(table))]

    def _fields(self, table: pa.Table) -> list[str]:
        beside = set(self._metadata(table))
        return [name for name in table.column_names if name not in beside]

    def _check_commit(self, found: Found) -> None:
        if commit_of(found) is not None:
            raise ConnectException(
                f"{self.address}/{found.key} has rows of several partitions (layout=manifest), and no "
                f"column {self.prefix}partition that tells which: write with metadata.columns=key,headers,timestamp,"
                "partition, or give this connector metadata.columns without partition (key,headers,timestamp), so that "
                "the keys choose the partitions; then restart the task"
            )

    def _columns(self, piece: FileRows) -> tuple[pa.Table, bool]:
        names = self._fields(piece.table)
        told = schema_in(piece.table.schema.metadata, "value") if self.restores else None
        is_value = names == [_VALUE] and (told is None or told.type is not Type.STRUCT)
        single = piece.is_single or (self.restores and is_value)
        return piece.table.select(names), single

    def _value(self, columns: pa.Table, single: bool) -> tuple[pa.Array, Schema | None]:
        if single:
            value = _typed(one_array(columns.column(_VALUE)))
            return value, self.value_schema or connect_schema(value.type, optional=True)
        typed = pa.table({name: _typed(one_array(columns.column(name))) for name in columns.column_names})
        fields = [
            pa.field(name, typed.column(name).type, columns.schema.field(name).nullable) for name in typed.column_names
        ]
        arrays = [one_array(one) for one in typed.columns]
        value = (
            pa.StructArray.from_arrays(arrays, fields=fields)
            if fields
            else pa.array([{}] * columns.num_rows, pa.struct([]))
        )
        schema = self.value_schema or connect_schema(value.type)
        if self.value_name and self.value_schema is None and schema is not None:
            schema = Schema(Type.STRUCT, name=self.value_name, fields=schema.fields)
        return value, schema

    def _key(self, columns: pa.Table) -> tuple[pa.Array, Schema | None]:
        lacking = [name for name in self.key if name not in columns.column_names]
        if lacking:
            raise DataException(
                f"there is no field {', '.join(lacking)} for the key; there are {', '.join(columns.column_names)}"
            )
        keys = struct_column(columns, self.key)
        schema = self.key_schema or connect_schema(keys.type)
        if self.key_name and self.key_schema is None and schema is not None:
            schema = Schema(Type.STRUCT, name=self.key_name, fields=schema.fields)
        return keys, schema

    def _timestamps(
        self, made: dict[str, Any], table: pa.Table, columns: pa.Table, found: Found, beside: set[str]
    ) -> int | None:
        """Adds the column of times, or sets the time of all rows."""
        if self.timestamp_mode == "FILE_TIME":
            return found.time_ns // 1_000_000
        name = self.prefix + "timestamp" if "timestamp" in beside else ""
        source = table
        if self.timestamp_mode == "FIELD":
            name, source = self.timestamp_field, columns
            if name not in columns.column_names:
                raise BadFileException(f'has no field "{name}", which timestamp.field names')
        if name:
            made["timestamp"] = _times(one_array(source.column(name)), name)
        return None

    def _file_headers(self, found: Found) -> list[dict[str, Any]]:
        values = {
            "file.path": f"{self.address}/{found.key}",
            "file.name": found.name,
            "file.length": str(found.size),
            "file.last.modified": str(found.time_ns // 1_000_000),
        }
        return [{"key": name, "value": _bytes(value)} for name, value in values.items()]


def _bytes(text: str) -> bytes:
    """A text with names of files, whose bytes need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _told(table: pa.Table, side: str, kind: pa.DataType) -> Schema | None:
    """The schema of values or keys in a file's metadata, if it matches their fields."""
    schema = schema_in(table.schema.metadata, side)
    if schema is None or (schema.type is Type.STRUCT) != pa.types.is_struct(kind):
        return None
    if schema.type is Type.STRUCT and {one.name for one in schema.fields} != set(kind.names):
        return None
    return schema


def _times(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            return column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
        if pa.types.is_date(kind):
            return column.cast(pa.timestamp("ms")).cast(pa.int64())
        if is_text(kind):
            return column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        return column.cast(pa.int64())
    except pa.ArrowException as error:
        raise BadFileException(f'has a field "{name}" that is no time: {error}') from error


def _headers(column: pa.Array) -> pa.Array:
    """Converts headers for a frame; those of JSON files are objects with values in base64."""
    if column.type.equals(HEADERS):
        return column
    if pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
        fields = {one.name: one.type for one in column.type.value_type}
        if "value" in fields and is_text(fields["value"]):
            return pa.array(
                [
                    None
                    if row is None
                    else [
                        {"key": one["key"], "value": None if one["value"] is None else base64.b64decode(one["value"])}
                        for one in row
                    ]
                    for row in column.to_pylist()
                ],
                HEADERS,
            )
        if set(fields) == {"key", "value"}:
            return column.cast(HEADERS)
    if pa.types.is_null(column.type) or (pa.types.is_list(column.type) and pa.types.is_null(column.type.value_type)):
        return pa.array([[]] * len(column), HEADERS)
    if is_text(column.type):
        rows = [None if text is None else json.loads(text) for text in column.to_pylist()]
        return _headers(pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))))
    raise BadFileException(f"has headers of the type {column.type}, and not a list of keys and values")


def _repeated(value: Any, count: int) -> pa.Array:
    return pa.array([value], HEADERS).take(pa.array([0] * count, pa.int64()))


def _typed(array: pa.Array) -> pa.Array:
    """The same values, without Arrow's type of nulls."""
    kind = _type(array.type)
    if kind == array.type:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    return pa.array(array.to_pylist(maps_as_pydicts=None), kind)


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_type(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type(kind.value_type)))
    return kind
