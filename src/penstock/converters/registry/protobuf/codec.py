"""A compiled Protobuf file, and the comparison of files by Confluent's rules.

Messages of a flat type are read many at once (``blocks``); any other message, and every write, uses the protobuf
library in C and one function call for each value.

Source: io.confluent.connect.protobuf.ProtobufConverter; AbstractKafkaProtobufSerializer;
io.confluent.kafka.schemaregistry.protobuf.diff.SchemaDiff; "Updating A Message Type" in Protobuf's guide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, EncodeError

from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converters import Codec
from penstock.converters.registry.formats import without_halves
from penstock.converters.registry.protobuf.blocks import ProtobufBlocks, protobuf_blocks
from penstock.converters.registry.protobuf.files import (
    file_text,
    is_built_in_map,
    message_at,
    place_of,
    read_file,
    real_name,
    real_oneofs,
)
from penstock.converters.registry.protobuf.names import ProtobufOptions
from penstock.converters.registry.protobuf.schemas import as_java_writes, connect_schema, describe_file, root_name
from penstock.converters.registry.protobuf.values import Read, Write, message_writer, value_reader
from penstock.converters.registry.wire import read_indexes, write_indexes
from penstock.data import Schema, SchemaAndValue, Type
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


class ProtobufCodec(Codec):
    """A Protobuf file, compiled. Its text is a serialized descriptor in base64, or .proto text."""

    def __init__(self, text: SchemaText, options: ProtobufOptions, version: int | None) -> None:
        self.file = read_file(text.text, text.texts())
        self._options = options
        self._version = version
        self._readers: dict[tuple[int, ...], _Reader | DataException] = {}
        self._writers: dict[Schema, _Writer] = {}
        self._own: ProtobufCodec | None = None
        self._columns: tuple[ProtobufBlocks | None] | None = None

    @staticmethod
    def text_of(schema: Schema, options: ProtobufOptions) -> str:
        return file_text(as_java_writes(describe_file(schema, options)))

    @property
    def record_name(self) -> str | None:
        """The full name of the file's first message type; None for plain values, which each have their own type in the
        file.
        """
        if self.file.package == "google.protobuf":
            return None
        return next((real_name(one.full_name) for one in self.file.message_types_by_name.values()), None)

    def name_written(self, schema: Schema) -> str | None:
        """See ``Codec``. The wrapper message for plain values."""
        return self.record_name if schema.type is Type.STRUCT else root_name(schema, self._options)

    def name_read(self, payload: bytes, where: str) -> str:
        """See ``Codec``. The message type that the payload names."""
        return real_name(message_at(self.file, read_indexes(payload, where)[0], where).full_name)

    def encode(self, schema: Schema, value: object) -> bytes:
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

    def cannot_read(self, writer: ProtobufCodec) -> str | None:
        return cannot_read(self.file, writer.file)

    def writing_for(self, own: ProtobufCodec) -> ProtobufCodec:
        """See ``Codec``. As in Java, the bytes of the value's own schema if they mean the same in the latest one, so
        that fields which the latest one lacks are kept.
        """
        if numbered_alike(self.file, own.file):
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

    def columns(self) -> ProtobufBlocks | None:
        """See ``Codec``. For the file's first message type."""
        if self._columns is None:
            where = "a message"
            reader = self._reader_of((0,), where)
            found = None
            if isinstance(reader, _Reader):
                found = protobuf_blocks(message_at(self.file, (0,), where), reader.schema, self._options)
            self._columns = (found,)
        return self._columns[0]

    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
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


_F: Final = FieldDescriptor
#: Scalar types with the same encoding.
_FAMILIES: Final[Mapping[int, str]] = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM), "a number"
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "a signed number"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), "a text or bytes"),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "a number of 32 bits"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "a number of 64 bits"),
    _F.TYPE_FLOAT: "a float",
    _F.TYPE_DOUBLE: "a double",
}


def cannot_read(reader: FileDescriptor, writer: FileDescriptor) -> str | None:
    """Returns why messages of a file cannot be read with another one, or None if they can."""
    # Schemas that were read without a package do not name it.
    if writer.package and reader.package != writer.package:
        return f"its package is {real_name(reader.package)!r} there, and {real_name(writer.package)!r} here"
    return _types(reader.message_types_by_name.values(), writer.message_types_by_name.values())


def numbered_alike(reader: FileDescriptor, writer: FileDescriptor) -> bool:
    """True if messages have the same meaning with another file: fields with the same number have the same name in both,
    and fields that the other file lacks are ignored.
    """
    known = reader.message_types_by_name
    return all(_alike(known[name], one) for name, one in writer.message_types_by_name.items() if name in known)


def _alike(reader: Descriptor, writer: Descriptor) -> bool:
    known = {field.number: field for field in reader.fields}
    named = reader.fields_by_name
    for field in writer.fields:
        other = known.get(field.number)
        if other is None and field.name not in named:
            continue
        if other is None or other.name != field.name or _FAMILIES.get(other.type) != _FAMILIES.get(field.type):
            return False
        if other.is_repeated is not field.is_repeated or bool(other.enum_type) is not bool(field.enum_type):
            return False
        if (other.message_type is None) is not (field.message_type is None):
            return False
    inside = reader.nested_types_by_name
    return all(_alike(inside[name], one) for name, one in writer.nested_types_by_name.items() if name in inside)


def _types(readers: Iterable[Descriptor], writers: Iterable[Descriptor]) -> str | None:
    known = {one.name: one for one in readers}
    for writer in writers:
        if writer.GetOptions().map_entry:
            continue
        reader = known.get(writer.name)
        why = f"there is no message type {writer.name}" if reader is None else _messages(reader, writer)
        if why is not None:
            return why
    return None


def _messages(reader: Descriptor, writer: Descriptor) -> str | None:
    place = real_name(reader.full_name)
    written = {field.number: field for field in writer.fields}
    inside = {field.number: oneof.name for oneof in real_oneofs(writer) for field in oneof.fields}
    for oneof in real_oneofs(reader):
        numbers = [field.number for field in oneof.fields]
        moved = sum(number in written and number not in inside for number in numbers)
        if moved > 1 or (moved == 1 and any(number in inside for number in numbers)):
            return f"fields of {place} are in the oneof {oneof.name} there, and not here"
    # Members of a removed oneof may be removed; another oneof may then contain them.
    kept = {oneof.name for oneof in real_oneofs(reader)}
    known = {field.number: field for field in reader.fields}
    for number, field in written.items():
        other = known.get(number)
        if other is None and (field.is_required or inside.get(number) in kept):
            return f"{place} has no field {field.name} there"
        why = None if other is None else _fields(other, field)
        if why is not None:
            return f"the field {field.name} of {place} {why}"
    if any(field.is_required and field.number not in written for field in reader.fields):
        return f"{place} has a required field there that is not here"
    return _types(reader.nested_types, writer.nested_types)


def _fields(reader: FieldDescriptor, writer: FieldDescriptor) -> str | None:
    if is_built_in_map(reader) and is_built_in_map(writer):
        pairs = zip(reader.message_type.fields, writer.message_type.fields, strict=True)
        return next((why for pair in pairs if (why := _fields(*pair)) is not None), None)
    if (reader.message_type is None) is not (writer.message_type is None) or is_built_in_map(
        reader
    ) is not is_built_in_map(writer):
        return "is of another kind there"
    if reader.message_type is not None:
        one, other = (real_name(_local(field.message_type)) for field in (reader, writer))
        return None if one == other else f"is of type {one} there, and {other} here"
    one, other = (_FAMILIES[field.type] for field in (reader, writer))
    if one != other:
        return f"is {one} there, and {other} here"
    repeated = reader.is_repeated is not writer.is_repeated
    return "is repeated in one of them only" if repeated and one != "a text or bytes" else None


def _local(message: Any) -> str:
    """The name of a message type within its package."""
    return str(message.full_name).removeprefix(f"{message.file.package}.")
