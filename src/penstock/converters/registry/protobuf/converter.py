"""ProtobufConverter: Protobuf with its schema in the schema registry. Class ``ProtobufConverter``.

It works outside Spark, in Python: Spark's ``from_protobuf`` and ``to_protobuf`` need additional jars, and the first
bytes of each message select its schema and message type. Message types are compiled once for each id. Messages of a
flat type are read many at once (``blocks``); reading any other message, and every write, uses the protobuf library in C
and one function call for each value.

Thread: a task's pipeline thread.
Source: io.confluent.connect.protobuf.ProtobufConverter, ProtobufDataConfig.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.converters.registry.client import SchemaText, TextForm
from penstock.converters.registry.converter import RegistryConverter
from penstock.converters.registry.protobuf.names import ProtobufOptions
from penstock.converters.registry.settings import RegistryConfig
from penstock.data import Schema, Type

if TYPE_CHECKING:
    from penstock.converters.registry.protobuf.codec import ProtobufCodec

#: .proto texts always contain a space.
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class ProtobufConverterConfig(ProtobufOptions, RegistryConfig):
    """The settings of ``ProtobufConverter``."""


class ProtobufConverter(RegistryConverter["ProtobufCodec", ProtobufConverterConfig]):
    """Protobuf with its schema in the registry."""

    java_name: ClassVar[str] = "io.confluent.connect.protobuf.ProtobufConverter"
    format: ClassVar[str] = "PROTOBUF"
    text_form: ClassVar[TextForm | None] = TextForm(
        "PROTOBUF", "serialized", lambda text: bool(_BASE64.fullmatch(text))
    )

    needs: ClassVar[str] = "penstock.converters.registry.protobuf.codec"
    null_is_tombstone: ClassVar[bool] = True
    has_columns: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(ProtobufConverterConfig)

    def describe(self, schema: Schema) -> SchemaText:
        """See ``RegistryConverter``."""
        from penstock.converters.registry.protobuf.files import file_text
        from penstock.converters.registry.protobuf.schemas import as_java_writes, describe_file

        return SchemaText(self.format, file_text(as_java_writes(describe_file(schema, self.settings))))

    def parse(self, text: SchemaText, version: int | None) -> ProtobufCodec:
        """See ``RegistryConverter``."""
        from penstock.converters.registry.protobuf.codec import ProtobufCodec

        return ProtobufCodec(text.text, text.texts(), self.settings, version)

    def cannot_read(self, reader: ProtobufCodec, writer: ProtobufCodec) -> str | None:
        """See ``RegistryConverter``."""
        from penstock.converters.registry.protobuf.compatibility import cannot_read

        return cannot_read(reader.file, writer.file)

    def written_with(self, latest: ProtobufCodec, own: ProtobufCodec) -> ProtobufCodec:
        """See ``RegistryConverter``. As in Java, the bytes of the value's own schema if they mean the same in the
        latest one, so that fields which the latest one lacks are kept.
        """
        from penstock.converters.registry.protobuf.compatibility import numbered_alike

        return latest.with_bytes_of(own) if numbered_alike(latest.file, own.file) else latest

    def name_written(self, codec: ProtobufCodec, schema: Schema) -> str | None:
        """See ``RegistryConverter``. The wrapper message for plain values."""
        from penstock.converters.registry.protobuf.schemas import root_name

        return codec.record_name if schema.type is Type.STRUCT else root_name(schema, self.settings)

    def name_read(self, codec: ProtobufCodec, payload: bytes, where: str) -> str | None:
        """See ``RegistryConverter``. The message type that the payload names."""
        return codec.name_of(payload, where)
