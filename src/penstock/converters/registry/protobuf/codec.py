"""A Protobuf schema of the registry, with the functions compiled from it.

Main type: ``ProtobufCodec``. Needs the extra ``penstock[registry]``.

Thread: a task's pipeline thread.
Source: io.confluent.connect.protobuf.ProtobufConverter; AbstractKafkaProtobufSerializer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, EncodeError

from penstock.converters.registry.converter import read_indexes, write_indexes
from penstock.converters.registry.java_text import without_halves
from penstock.converters.registry.protobuf.blocks import ProtobufBlocks, protobuf_blocks
from penstock.converters.registry.protobuf.files import message_at, place_of, read_file
from penstock.converters.registry.protobuf.names import ProtobufOptions
from penstock.converters.registry.protobuf.packages import real_name
from penstock.converters.registry.protobuf.reading import Read, connect_schema, value_reader
from penstock.converters.registry.protobuf.schemas import root_name
from penstock.converters.registry.protobuf.writing import Write, message_writer
from penstock.data import Schema, SchemaAndValue
from penstock.errors import DataException

#: The number of cached Connect schemas for one file; more than one only with use.latest.version.
_MAX_WRITERS: Final = 100


@dataclass(frozen=True)
class _Reader:
    """The reader of messages of one type."""

    parse: Callable[[bytes], Any]
    schema: Schema
    read: Read


@dataclass(frozen=True)
class _Writer:
    """The writer of values with one Connect schema; ``head`` encodes the message type."""

    make: Callable[[], Any]
    write: Write
    head: bytes

    def written(self, value: object) -> bytes:
        """The message of a value."""
        message = self.make()
        self.write(message, value)
        return self.head + bytes(message.SerializeToString())


class ProtobufCodec:
    """A Protobuf file, compiled.

    Args:
        text: A serialized descriptor in base64, or .proto text.
        references: The files that it imports, at any depth, by the names in the imports.
        options: The converter's settings.
        version: Its version in the registry.

    Raises:
        DataException: The text is neither, or does not compile.
    """

    def __init__(self, text: str, references: Mapping[str, str], options: ProtobufOptions, version: int | None) -> None:
        self.file = read_file(text, references)
        self._options = options
        self._version = version
        self._readers: dict[tuple[int, ...], _Reader | DataException] = {}
        self._writers: dict[Schema, _Writer] = {}
        self._own: ProtobufCodec | None = None
        self._columns: tuple[ProtobufBlocks | None] | None = None

    @property
    def record_name(self) -> str | None:
        """The full name of the file's first message type; None for plain values, which each have their own type in the
        file.
        """
        if self.file.package == "google.protobuf":
            return None
        return next((real_name(one.full_name) for one in self.file.message_types_by_name.values()), None)

    def name_of(self, payload: bytes, where: str) -> str:
        """The full name of the message type of a payload.

        Raises:
            DataException: The payload names no type, or one that does not exist.
        """
        return real_name(message_at(self.file, read_indexes(payload, where)[0], where).full_name)

    # ------------------------------------------------------------------ writing
    def encode(self, schema: Schema, value: object) -> bytes:
        """The message of a value with a Connect schema, after the index of its type.

        Raises:
            DataException: The value does not fit the type.
        """
        writer = self._writers.get(schema)
        if writer is None:
            if len(self._writers) >= _MAX_WRITERS:
                self._writers.clear()
            writer = self._writers[schema] = self._writer(schema)
        try:
            try:
                return writer.written(value)
            except UnicodeEncodeError:
                return writer.written(without_halves(value))
        except (TypeError, ValueError, EncodeError) as error:
            raise DataException(f"The value has no Protobuf form: {error}") from error

    def with_bytes_of(self, own: ProtobufCodec) -> ProtobufCodec:
        """The same codec, but with the message bytes of another file."""
        self._own = own
        return self

    def _writer(self, schema: Schema) -> _Writer:
        chosen = self._chosen(schema)
        head = write_indexes(place_of(chosen))
        if self._own is not None:
            own = self._own._writer(schema)
            return _Writer(own.make, own.write, head)
        return _Writer(message_factory.GetMessageClass(chosen), message_writer(schema, chosen, self._options), head)

    def _chosen(self, schema: Schema) -> Descriptor:
        wanted = root_name(schema, self._options)
        types = list(self.file.message_types_by_name.values())
        if not types:
            raise DataException("The Protobuf schema to write with has no message types")
        # For a schema that somebody else registered: the type with the same name, or else the first.
        last = wanted.rpartition(".")[2]
        return next((one for one in types if real_name(one.full_name) == wanted), None) or next(
            (one for one in types if one.name == last), types[0]
        )

    # ------------------------------------------------------------------ reading
    def columns(self) -> ProtobufBlocks | None:
        """Returns the reader of many payloads of the file's first message type, or None if columns are not possible."""
        if self._columns is None:
            where = "a message"
            reader = self._reader_of((0,), where)
            found = None
            if isinstance(reader, _Reader):
                found = protobuf_blocks(message_at(self.file, (0,), where), reader.schema, self._options)
            self._columns = (found,)
        return self._columns[0]

    def column_writer(self, schema: Schema) -> None:
        """None: values are written one by one."""

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        """The Connect schema and value of a message.

        Raises:
            DataException: The message cannot be decoded.
        """
        indexes, data = read_indexes(payload, where)
        reader = self._reader_of(tuple(indexes), where)
        if isinstance(reader, DataException):
            raise DataException(f"Cannot read {where}: {reader}")
        try:
            return SchemaAndValue(reader.schema, reader.read(reader.parse(data)))
        except DecodeError as error:
            raise DataException(
                f"Cannot read {where}: it is no message of type {reader.schema.name}: {error}"
            ) from error
        except DataException as error:
            raise DataException(f"Cannot read {where}: {error}") from error

    def _reader_of(self, place: tuple[int, ...], where: str) -> _Reader | DataException:
        reader = self._readers.get(place)
        if reader is None:
            reader = self._readers[place] = self._reader(message_at(self.file, place, where))
        return reader

    def _reader(self, message: Descriptor) -> _Reader | DataException:
        # A type without a Connect schema fails each of its messages, but is compiled only once.
        try:
            schema = connect_schema(message, self._options, self._version)
            read = value_reader(schema, message, self._options)
        except DataException as error:
            return error
        return _Reader(message_factory.GetMessageClass(message).FromString, schema, read)
