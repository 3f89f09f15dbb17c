"""Formats of files: the form of rows in memory while a file is open, and the writing of a file.

Main types: ``Format`` and its kinds, ``ParquetFormat``, ``OrcFormat``, ``JsonLinesFormat``, ``CsvFormat``,
``BytesFormat``; Avro is in ``avro``. ``BesideValues`` has keys and headers in files next to those of the values. Their
only I/O is to the given file; any thread.

Source: the formats of Confluent's connectors (``ParquetFormat``, ``JsonFormat``, ``AvroFormat``, ``ByteArrayFormat``);
the documentation of Confluent's Amazon S3 sink, "Write raw keys and headers".
"""

from __future__ import annotations

import base64
import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.api import SinkFrame
from penstock.api.arrow import is_bytes, is_list, is_text, is_variant, one_array
from penstock.api.frames.variant_fields import Variants
from penstock.connectors.files.columns import VALUE, columns_of, metadata_of, metadata_of_schemas, values_of
from penstock.errors import DataException
from penstock.files import Beside
from penstock.files.widening import conform, json_text

#: The size of a row group, or of a block of text, in bytes.
_GROUP_BYTES: Final = 32 << 20
#: The column of formats that keep rows in their written form.
_LINE: Final = "line"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class Format(ABC):
    """A format of files.

    Args:
        metadata: Columns besides the fields of the values; see ``columns``.
        prefix: The beginning of the names of these columns.
        compression: The compression of the whole file: ``none``, ``gzip``, ``zstd`` and others of Arrow; Parquet and
            Avro have codecs of their own.

    Attributes:
        extension: The file extension, with its dot.
        has_schema: True if a file has one schema, so that records of other schemas go to other files.
    """

    extension: ClassVar[str]
    has_schema: ClassVar[bool] = True

    def __init__(self, metadata: Sequence[str] = (), prefix: str = "kafka_", compression: str = "none") -> None:
        self.metadata = tuple(metadata)
        self.prefix = prefix
        self.compression = compression

    def prepare(self, frame: SinkFrame) -> pa.Table:
        """Converts the rows to their form in memory.

        Args:
            frame: Rows without null values.

        Raises:
            DataException: The format does not take such values.
        """
        # Keys are also in separate files, which have no schemas.
        schemas = metadata_of_schemas(frame.value_schema, frame.key_schema)
        return columns_of(frame, self.metadata, self.prefix).replace_schema_metadata(schemas)

    @abstractmethod
    def write(self, tables: Iterator[pa.Table], schema: pa.Schema, out: Any) -> None:
        """Writes a whole file.

        Args:
            tables: The rows, all with this schema.
            schema: The schema.
            out: A file that is open for bytes; this method does not close it.
        """

    @property
    def name_end(self) -> str:
        """The end of a file's name, with its compression."""
        ends = {"none": "", "gzip": ".gz", "zstd": ".zst", "bz2": ".bz2", "lz4": ".lz4"}
        return self.extension + ends[self.compression]


class ParquetFormat(Format):
    """Parquet: a column for each field. ``compression`` is that of the columns."""

    extension = ".parquet"

    def write(self, tables: Iterator[pa.Table], schema: pa.Schema, out: Any) -> None:
        """See ``Format``. A column in which no row has a value is left out, as it has no type."""
        kept = _with_columns(schema).with_metadata(schema.metadata)
        codec = "none" if self.compression == "none" else self.compression
        with pq.ParquetWriter(out, kept, compression=codec) as writer:
            for table in _joined(tables):
                writer.write_table(_as(table, kept))

    @property
    def name_end(self) -> str:
        """The codec comes before the extension, as in Confluent's names."""
        return self.extension if self.compression == "none" else f".{self.compression}{self.extension}"


class OrcFormat(Format):
    """ORC: a column for each field, compressed with zstd. Times of day are milliseconds; ORC has none."""

    extension = ".orc"

    def write(self, tables: Iterator[pa.Table], schema: pa.Schema, out: Any) -> None:
        """See ``Format``. A column in which no row has a value is left out, as it has no type."""
        from pyarrow import orc

        kept = _with_columns(schema)
        timeless = pa.schema([one.with_type(_without_times(one.type)) for one in kept])
        with orc.ORCWriter(_Open(out), compression="zstd") as writer:
            for table in _joined(tables):
                columns = [_as_numbers(one_array(one)) for one in _as(table, kept).columns]
                writer.write(pa.table(columns, schema=timeless))


class CsvFormat(Format):
    """CSV with a line of names. Nested values are JSON, bytes are base64."""

    extension = ".csv"

    def prepare(self, frame: SinkFrame) -> pa.Table:
        """See ``Format``."""
        table = super().prepare(frame)
        return pa.table({name: _cell(one_array(table.column(name))) for name in table.column_names})

    def write(self, tables: Iterator[pa.Table], schema: pa.Schema, out: Any) -> None:
        """See ``Format``."""
        kept = pa.schema([one.with_type(pa.string()) if pa.types.is_null(one.type) else one for one in schema])
        with _compressed(out, self.compression) as file:
            writer = pyarrow.csv.CSVWriter(file, kept)
            for table in tables:
                writer.write_table(_as(table, kept))
            writer.close()


class _Lines(Format):
    """A format whose rows are kept as the bytes to write."""

    has_schema = False
    separator: bytes = b"\n"

    def write(self, tables: Iterator[pa.Table], schema: pa.Schema, out: Any) -> None:
        """See ``Format``."""
        with _compressed(out, self.compression) as file:
            for table in _joined(tables):
                for chunk in table.column(_LINE).chunks:
                    if len(chunk):
                        joined = pc.binary_join(pa.LargeListArray.from_arrays([0, len(chunk)], chunk), self.separator)
                        file.write(joined[0].as_buffer())
                        file.write(self.separator)


class JsonLinesFormat(_Lines):
    """A line of JSON for each row, as ``JsonConverter`` writes it without ``schemas.enable``; decimals are numbers."""

    extension = ".json"

    def prepare(self, frame: SinkFrame) -> pa.Table:
        """See ``Format``. Apart from Avro, the only format that makes Python objects of rows."""
        column = one_array(frame.table.column("value"))
        if is_variant(column.type):
            values = Variants.of(pa.chunked_array([column])).objects()
        else:
            values = values_of(frame.table.column("value"), frame.value_schema).to_pylist(maps_as_pydicts="lossy")
            if frame.value_schema is None:
                # Without a schema a field that is null here may be missing.
                values = [_without_nulls(value) for value in values]
        rows: list[Any] = values
        if self.metadata:
            more = {
                self.prefix + name: one.to_pylist(maps_as_pydicts="lossy")
                for name, one in metadata_of(frame, self.metadata)
            }
            rows = []
            for index, value in enumerate(values):
                fields = value if isinstance(value, dict) else {VALUE: value}
                rows.append({**fields, **{name: cells[index] for name, cells in more.items()}})
        lines = [orjson.dumps(row, default=_json, option=_OPTIONS) for row in rows]
        return pa.table({_LINE: pa.array(lines, pa.binary())})


class BytesFormat(_Lines):
    """The bytes of the values, or their text, each followed by a separator.

    Args:
        separator: The bytes after each value.
        extension: The file extension.
    """

    extension = ".bin"

    def __init__(self, separator: bytes = b"\n", extension: str = ".bin", compression: str = "none") -> None:
        super().__init__(compression=compression)
        self.separator = separator
        self.ending = extension

    def prepare(self, frame: SinkFrame) -> pa.Table:
        """See ``Format``. A null (possible only for keys) has no bytes."""
        column = one_array(frame.table.column("value"))
        if is_variant(column.type):
            texts = [_bytes_text(one) for one in Variants.of(pa.chunked_array([column])).objects()]
            return pa.table({_LINE: pa.array([one.encode() for one in texts], pa.binary())})
        if pa.types.is_null(column.type):
            column = column.cast(pa.binary())
        if not is_bytes(column.type) and not is_text(column.type):
            raise DataException(
                f"The format of bytes takes bytes and text, and the values are {column.type}: set "
                "value.converter=org.apache.kafka.connect.converters.ByteArrayConverter, or another format.class"
            )
        return pa.table({_LINE: pc.fill_null(column.cast(pa.binary()), b"")})

    @property
    def name_end(self) -> str:
        """The extension of the settings, and the compression."""
        return super().name_end.replace(self.extension, self.ending, 1)


def _bytes_text(value: Any) -> str:
    """A value without a schema as text; empty for null, which is possible only for keys."""
    if value is None or isinstance(value, str):
        return value or ""
    return value.decode("latin-1") if isinstance(value, bytes) else json_text(value)


def _with_columns(schema: pa.Schema) -> pa.Schema:
    """The columns that Parquet supports: all except those without a type."""
    fields = [pa.field(one.name, kind) for one in schema if (kind := _storable(one.type)) is not None]
    return pa.schema(fields or [pa.field(one.name, pa.string()) for one in schema])


def _storable(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        fields = [pa.field(one.name, found) for one in kind if (found := _storable(one.type)) is not None]
        return pa.struct(fields) if fields else None
    if is_list(kind):
        return pa.list_(_storable(kind.value_type) or pa.string())
    return kind


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_without_times(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_times(kind.key_type), _without_times(kind.item_type))
    return pa.list_(_without_times(kind.value_type)) if is_list(kind) else kind


def _as_numbers(array: pa.Array) -> pa.Array:
    """Times of day, at every depth, as milliseconds."""
    kind = _without_times(array.type)
    return array if kind == array.type else array.cast(kind)


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    return pa.table([conform(one_array(table.column(one.name)), one.type) for one in schema], schema=schema)


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of a good size."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        if held and size + table.nbytes > _GROUP_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
        held.append(table)
        size += table.nbytes
    if held:
        yield pa.concat_tables(held)


@contextmanager
def _compressed(out: Any, compression: str) -> Iterator[Any]:
    if compression == "none":
        yield out
        return
    # The file stays open: its owner uploads it.
    with pa.CompressedOutputStream(_Open(out), compression) as file:
        yield file


class _Open:
    """A file that stays open when the stream over it is closed."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None: ...

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _cell(array: pa.Array) -> pa.Array:
    kind = array.type
    if is_bytes(kind):
        return pa.array(
            [None if one is None else base64.b64encode(one).decode() for one in array.to_pylist()], pa.string()
        )
    return conform(array, pa.string()) if pa.types.is_nested(kind) else array


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS


def _json(value: Any) -> Any:
    """Converts a value for JSON: milliseconds and days, like JsonConverter."""
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=datetime.UTC)) - _EPOCH) // _MILLISECOND
    if isinstance(value, datetime.date):
        return value.toordinal() - 719_163
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if isinstance(value, int):
        return orjson.Fragment(str(value))
    return str(value)


#: The column of frames, and of files if it is no struct.
_COLUMNS: Final = {"keys": "key", "headers": "headers"}


class BesideValues:
    """The keys or the headers of records, in a format of their own.

    Args:
        what: ``keys`` or ``headers``.
        format: The format.

    Attributes:
        file: The file next to each file of values.
    """

    def __init__(self, what: str, format: Format) -> None:  # noqa: A002
        self._column = _COLUMNS[what]
        self._format = format
        self.file = Beside(f"\0{what}", f".{what}{format.name_end}", format.write)

    def prepare(self, frame: SinkFrame) -> pa.Array:
        """Converts the rows to their form in memory: structs, whose fields are columns of the file.

        Raises:
            DataException: The format does not take such keys.
        """
        at = frame.table.column_names.index("value")
        table = frame.table.set_column(at, "value", frame.table.column(self._column))
        schema = frame.key_schema if self._column == "key" else None
        made = self._format.prepare(replace(frame, table=table, value_schema=schema))
        names = [self._column if one == VALUE else one for one in made.column_names]
        columns = [one_array(one) for one in made.columns]
        return pa.StructArray.from_arrays(columns, names=names)
