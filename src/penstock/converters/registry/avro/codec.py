"""A compiled Avro schema: fastavro encodes and decodes what ``values`` and ``blocks`` convert.

Everything that depends only on the schema is done once. The module also compares schemas.

Thread: a task's pipeline thread.
Source: io.confluent.connect.avro.AvroConverter, io.confluent.kafka.serializers.AbstractKafkaAvroSerializer; the Avro
specification, "Schema Resolution"; org.apache.avro.SchemaCompatibility.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from penstock.converters.registry.avro.blocks import AvroBlocks, AvroColumnWriter, avro_blocks, avro_column_writer
from penstock.converters.registry.avro.forms import MISSING, WIDE, AvroOptions, AvroType, plain, read_avro
from penstock.converters.registry.avro.schemas import avro_text, connect_schema
from penstock.converters.registry.avro.values import Convert, value_reader, value_writer
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converters import Codec
from penstock.converters.registry.formats import REPLACE, without_halves
from penstock.data import Schema, SchemaAndValue
from penstock.errors import DataException
from penstock.pipeline.plan.step import WrittenAtOnce

_read_value: Final[Any] = fastavro.schemaless_reader
_write_value: Final[Any] = fastavro.schemaless_writer
# Python has one integer and one float type: of two such types in a union, the wider one is marked.
fastavro.read.LOGICAL_READERS[f"long-{WIDE}"] = lambda value, *_: ("long", value)
fastavro.read.LOGICAL_READERS[f"double-{WIDE}"] = lambda value, *_: ("double", value)


class AvroCodec(Codec):
    """A compiled Avro schema."""

    def __init__(self, text: SchemaText, options: AvroOptions, version: int | None) -> None:
        self.found = found = read_avro(text)
        self.version = version
        self._options = options
        # The branches of a union one by one: fastavro parses a schema that is a list again each time.
        self._branches = found.branches if found.kind == "union" else (found,)
        self._schemas = [_compiled(one, plain(one)) for one in self._branches]
        self._read_schemas = [_compiled(one, plain(one, reading=True)) for one in self._branches]
        self._places = {one.branch_name: place for place, one in enumerate(self._branches)}
        self._reader: tuple[Schema | None, Convert | None] | None = None
        self._unreadable: str | None = None
        self._writers: dict[Schema | None, Convert] = {}
        self._columns: AvroBlocks | None = None
        self._column_writers: dict[Schema, AvroColumnWriter | None] = {}

    @staticmethod
    def text_of(schema: Schema | None, options: AvroOptions) -> str:
        return avro_text(schema, options)

    @property
    def record_name(self) -> str | None:
        """The full name of the record, even if it is optional."""
        member = self.found.nullable
        return self.found.name if member is None else member.name

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        schema, convert = self._made_reader(where)
        try:
            value = self._read(payload)
        except DataException:
            raise
        except Exception as error:  # fastavro has no error class of its own for invalid bytes.
            raise DataException(
                f"{where[:1].upper()}{where[1:]} cannot be read with its Avro schema {self.found.shown}: "
                f"{type(error).__name__}: {error}. It was written with another schema than its id says, or is damaged"
            ) from error
        return SchemaAndValue(schema, value if convert is None else convert(value))

    def columns(self) -> AvroBlocks | None:
        self._made_reader("a message")
        return self._columns

    def _made_reader(self, where: str) -> tuple[Schema | None, Convert | None]:
        """Only for reading: a schema without a Connect schema can still be used for writing."""
        if self._reader is None and self._unreadable is None:
            try:
                schema = connect_schema(self.found, self._options, self.version)
                self._reader = schema, value_reader(self.found, schema, self._options)
                self._columns = avro_blocks(self.found, schema, self._options)
            except DataException as error:
                self._unreadable = str(error)
        if self._reader is not None:
            return self._reader
        raise DataException(f"{where[:1].upper()}{where[1:]} cannot be read: {self._unreadable}")

    def _read(self, payload: bytes) -> Any:
        if self.found.kind == "bytes":
            # As in Confluent's serializers: without its length.
            return payload
        stream = io.BytesIO(payload)
        if self.found.kind != "union":
            return self._read_with(stream, 0)
        place: int = _read_value(stream, "long", None)
        if not 0 <= place < len(self._branches):
            raise DataException(f"There is no type number {place} in a union of {len(self._branches)}")
        value = self._read_with(stream, place)
        branch = self._branches[place]
        name = branch.kind if branch.kind in self.found.wide_branches else branch.read_name
        return value if name is None else (name, value)

    def _read_with(self, stream: io.BytesIO, place: int) -> Any:
        return _read_value(
            stream, self._read_schemas[place], None, return_named_type=True, handle_unicode_errors=REPLACE
        )

    def encode(self, schema: Schema | None, value: object) -> bytes:
        write = self._writers.get(schema)
        if write is None:
            write = self._writers[schema] = value_writer(schema, self.found, self._options)
        found: Any = write(value)
        if self.found.kind == "bytes":
            return bytes(found)
        try:
            try:
                return self._encoded(found)
            except UnicodeEncodeError:
                return self._encoded(without_halves(found))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise DataException(f"A value cannot be written as Avro type {self.found.shown}: {error}") from error

    def write_at_once(self, schema: Schema, head: bytes, values: Sequence[object] | pa.Array) -> WrittenAtOnce | None:
        if schema not in self._column_writers:
            self._column_writers[schema] = avro_column_writer(schema, self.found, self._options)
        writer = self._column_writers[schema]
        return None if writer is None else writer.write(head, values)

    def cannot_read(self, writer: AvroCodec) -> str | None:
        return cannot_read(self.found, writer.found)

    def _encoded(self, found: Any) -> bytes:
        stream = io.BytesIO()
        if self.found.kind != "union":
            _write_value(stream, self._schemas[0], found)
        else:
            name, found = ("null", None) if found is None else found
            place = self._places[name]
            _write_value(stream, "long", place)
            _write_value(stream, self._schemas[place], found)
        return stream.getvalue()


def _compiled(found: AvroType, schema: Any) -> Any:
    try:
        return parse_schema(schema)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise DataException(f"The Avro schema {found.shown} cannot be used: {error}") from error


#: The types from which a type can be read, besides itself.
_PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}


def cannot_read(reader: AvroType, writer: AvroType) -> str | None:
    """Returns why data of a schema cannot be read with another one, or None if it can."""
    return _Comparison().reason(reader, writer, "the value")


class _Comparison:
    def __init__(self) -> None:
        #: Pairs of records in progress or compared before: recursion ends here.
        self._seen: set[tuple[int, int]] = set()

    def reason(self, reader: AvroType, writer: AvroType, place: str) -> str | None:
        if writer.kind == "union":
            found = (self.reason(reader, one, place) for one in writer.branches)
            return next((one for one in found if one is not None), None)
        if reader.kind == "union":
            if any(self.reason(one, writer, place) is None for one in reader.branches):
                return None
            return f"{place} is no {writer.shown} there, but one of {', '.join(one.shown for one in reader.branches)}"
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTED.get(reader.kind, ()):
                return None
            return f"{place} is of type {reader.shown} there, and {writer.shown} here"
        if reader.name is not None:
            return self._named(reader, writer, place)
        if reader.items is not None and writer.items is not None:
            return self.reason(reader.items, writer.items, f"an element of {place}")
        return None

    def _named(self, reader: AvroType, writer: AvroType, place: str) -> str | None:
        names = {reader.name, *reader.aliases}
        if writer.name not in names and _short(reader) != _short(writer):
            return f"{place} is called {reader.name} there, and {writer.name} here"
        if reader.kind == "fixed":
            return None if reader.size == writer.size else f"{place} has {reader.size} bytes there"
        if reader.kind == "enum":
            missing = [one for one in writer.symbols if one not in reader.symbols]
            known = not missing or reader.default_symbol is not None
            return None if known else f"{place} has no symbol {', '.join(missing)} there"
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return None
        self._seen.add(pair)
        written = {one.name: one for one in writer.fields}
        for field in reader.fields:
            other = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
            if other is not None:
                why = self.reason(field.type, other.type, f"field {field.name} of {place}")
            else:
                why = None if field.default is not MISSING else f"{place} has a field {field.name} there, not here"
            if why is not None:
                self._seen.discard(pair)
                return why
        return None


def _short(found: AvroType) -> str:
    return (found.name or "").rpartition(".")[2]
