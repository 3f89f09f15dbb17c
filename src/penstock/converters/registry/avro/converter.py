"""AvroConverter: Avro with its schemas in a schema registry. Class ``AvroConverter``.

Schemas are converted by ``schema_writing`` and ``reading``, values by ``value_writing`` and
``reading``; fastavro encodes and decodes values. Spark needs an additional jar for Avro, and only the id in a message
identifies its schema, so values are converted outside Spark, one by one or many at once (``block_writing``,
``blocks``). Everything that depends only on the schema is done once.

Thread: one instance for each task.
Source: io.confluent.connect.avro.AvroConverter, io.confluent.kafka.serializers.AbstractKafkaAvroSerializer.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from penstock.converters.registry.avro.block_writing import AvroColumnWriter, avro_column_writer
from penstock.converters.registry.avro.blocks import AvroBlocks, avro_blocks
from penstock.converters.registry.avro.compatibility import cannot_read
from penstock.converters.registry.avro.forms import WIDE, AvroOptions, AvroType, plain, read_avro
from penstock.converters.registry.avro.reading import Convert, connect_schema, reader
from penstock.converters.registry.avro.schema_writing import avro_text
from penstock.converters.registry.avro.value_writing import writer
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converter import RegistryConverter
from penstock.converters.registry.java_text import REPLACE, without_halves
from penstock.converters.registry.settings import RegistryConfig
from penstock.data import Schema, SchemaAndValue
from penstock.errors import DataException


class AvroConverterConfig(AvroOptions, RegistryConfig):
    """The settings of ``AvroConverter``."""


class AvroCodec:
    """A compiled Avro schema.

    Args:
        found: The schema.
        options: The converter's settings.
        version: The version of the Connect schema if the Avro schema has none.
    """

    def __init__(self, found: AvroType, options: AvroOptions, version: int | None) -> None:
        self.found = found
        self.version = version
        self._options = options
        # The branches of a union one by one: fastavro parses a schema that is a list again each time.
        self._branches = found.branches if found.kind == "union" else (found,)
        # Imported with the first codec, because the extra may be missing; and once, not for every value.
        import fastavro

        for kind in ("long", "double"):
            # Python has one integer and one float type: of two such types in a union, the wider one is marked.
            fastavro.read.LOGICAL_READERS[f"{kind}-{WIDE}"] = _TELLING[kind]
        self._read_value: Any = fastavro.schemaless_reader
        self._write_value: Any = fastavro.schemaless_writer
        self._schemas = [_compiled(one, plain(one)) for one in self._branches]
        self._read_schemas = [_compiled(one, plain(one, reading=True)) for one in self._branches]
        self._places = {one.branch_name: place for place, one in enumerate(self._branches)}
        self._reader: tuple[Schema | None, Convert | None] | None = None
        self._unreadable: str | None = None
        self._writers: dict[Schema | None, Convert] = {}
        self._columns: AvroBlocks | None = None
        self._column_writers: dict[Schema, AvroColumnWriter | None] = {}

    @property
    def record_name(self) -> str | None:
        """The full name of the record, even if it is optional."""
        member = self.found.nullable
        return self.found.name if member is None else member.name

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        """The Connect schema and value of a payload."""
        if self._reader is None:
            self._reader = self._make_reader(where)
            self._columns = avro_blocks(self.found, self._reader[0], self._options)
        schema, convert = self._reader
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
        """Returns the reader of many payloads at once, or None if columns are not possible.

        Raises:
            DataException: The schema has no Connect schema.
        """
        if self._reader is None:
            self._reader = self._make_reader("a message")
            self._columns = avro_blocks(self.found, self._reader[0], self._options)
        return self._columns

    def _make_reader(self, where: str) -> tuple[Schema | None, Convert | None]:
        """Only for reading: a schema without a Connect schema can still be used for writing."""
        if self._unreadable is None:
            try:
                schema = connect_schema(self.found, self._options, self.version)
                return schema, reader(self.found, schema, self._options)
            except DataException as error:
                self._unreadable = str(error)
        raise DataException(f"{where[:1].upper()}{where[1:]} cannot be read: {self._unreadable}")

    def _read(self, payload: bytes) -> Any:
        if self.found.kind == "bytes":
            # As in Confluent's serializers: without its length.
            return payload
        stream = io.BytesIO(payload)
        if self.found.kind != "union":
            return self._read_with(stream, 0)
        place: int = self._read_value(stream, "long", None)
        if not 0 <= place < len(self._branches):
            raise DataException(f"There is no type number {place} in a union of {len(self._branches)}")
        value = self._read_with(stream, place)
        branch = self._branches[place]
        name = branch.kind if branch.kind in self.found.wide_branches else branch.read_name
        return value if name is None else (name, value)

    def _read_with(self, stream: io.BytesIO, place: int) -> Any:
        return self._read_value(
            stream, self._read_schemas[place], None, return_named_type=True, handle_unicode_errors=REPLACE
        )

    def encode(self, schema: Schema | None, value: object) -> bytes:
        """The payload of a value that is not None."""
        write = self._writers.get(schema)
        if write is None:
            write = self._writers[schema] = writer(schema, self.found, self._options)
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

    def column_writer(self, schema: Schema) -> AvroColumnWriter | None:
        """Returns the writer of many values of a schema at once, or None if columns are not possible."""
        if schema not in self._column_writers:
            self._column_writers[schema] = avro_column_writer(schema, self.found, self._options)
        return self._column_writers[schema]

    def _encoded(self, found: Any) -> bytes:
        stream = io.BytesIO()
        if self.found.kind != "union":
            self._write_value(stream, self._schemas[0], found)
        else:
            name, found = ("null", None) if found is None else found
            place = self._places[name]
            self._write_value(stream, "long", place)
            self._write_value(stream, self._schemas[place], found)
        return stream.getvalue()


def _compiled(found: AvroType, schema: Any) -> Any:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse_schema(schema)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise DataException(f"The Avro schema {found.shown} cannot be used: {error}") from error


class AvroConverter(RegistryConverter[AvroCodec, AvroConverterConfig]):
    """Avro, with schemas in a schema registry."""

    java_name: ClassVar[str] = "io.confluent.connect.avro.AvroConverter"
    format: ClassVar[str] = "AVRO"

    needs: ClassVar[str] = "fastavro"
    takes_schemaless: ClassVar[bool] = True
    has_columns: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(AvroConverterConfig)

    def describe(self, schema: Schema | None) -> SchemaText:
        """See ``RegistryConverter``."""
        return SchemaText(self.format, avro_text(schema, self.settings))

    def cannot_read(self, reader: AvroCodec, writer: AvroCodec) -> str | None:
        """See ``RegistryConverter``."""
        return cannot_read(reader.found, writer.found)

    def parse(self, text: SchemaText, version: int | None) -> AvroCodec:
        """See ``RegistryConverter``."""
        return AvroCodec(read_avro(text), self.settings, version)


_TELLING: Final[Mapping[str, Any]] = {
    "long": lambda value, *_: ("long", value),
    "double": lambda value, *_: ("double", value),
}
