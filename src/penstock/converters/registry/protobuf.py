"""ProtobufConverter: Protobuf with its schema in the schema registry. Class ``ProtobufConverter``.

Record by record, in Python: Spark's ``from_protobuf`` and ``to_protobuf`` need jars that it does not come with, and
which schema and message type a message has stands in its first bytes. Message types are compiled once for each id, so a
message costs the protobuf library's parser in C and one function call for each of its values.

Thread: a task's pipeline thread.
Source: io.confluent.connect.protobuf.ProtobufConverter, ProtobufDataConfig.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.converters.registry.base import RegistryConverter
from penstock.converters.registry.client import SchemaText, TextForm
from penstock.converters.registry.protobuf_names import ProtobufOptions
from penstock.converters.registry.settings import RegistryConfig
from penstock.data import Schema, SchemaAndValue
from penstock.errors import ConfigException, DataException

if TYPE_CHECKING:
    from penstock.converters.registry.protobuf_codec import ProtobufCodec

#: No .proto text is written like this: those have spaces.
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_MISSING: Final = "ProtobufConverter needs more packages ({error}): pip install penstock[registry]"


class ProtobufConverterConfig(ProtobufOptions, RegistryConfig):
    """The settings of ``ProtobufConverter``."""


class ProtobufConverter(RegistryConverter["ProtobufCodec", ProtobufConverterConfig]):
    """Protobuf with its schema in the registry."""

    java_name: ClassVar[str] = "io.confluent.connect.protobuf.ProtobufConverter"
    format: ClassVar[str] = "PROTOBUF"
    text_form: ClassVar[TextForm | None] = TextForm(
        "PROTOBUF", "serialized", lambda text: bool(_BASE64.fullmatch(text))
    )

    def __init__(self) -> None:
        super().__init__(ProtobufConverterConfig)
        self._options: ProtobufOptions = ProtobufOptions()
        self._codec: type[ProtobufCodec] | None = None

    def open(self, settings: ProtobufConverterConfig) -> None:
        """See ``RegistryConverter``. Raises ``ConfigException`` without the extra ``penstock[registry]``."""
        try:
            from penstock.converters.registry.protobuf_codec import ProtobufCodec
        except ImportError as error:
            raise ConfigException(_MISSING.format(error=error)) from error
        self._codec = ProtobufCodec
        self._options = settings

    def describe(self, schema: Schema | None) -> SchemaText:
        """See ``RegistryConverter``. Values need a schema."""
        from penstock.converters.registry.protobuf_describing import describe_file
        from penstock.converters.registry.protobuf_files import file_text

        if schema is None:
            raise DataException(
                "ProtobufConverter writes values with a schema only, and this one has none; give it one, or use "
                "org.apache.kafka.connect.json.JsonConverter with schemas.enable=false"
            )
        return SchemaText(self.format, file_text(describe_file(schema, self._options)))

    def parse(self, text: SchemaText, version: int | None) -> ProtobufCodec:
        """See ``RegistryConverter``."""
        if self._codec is None:
            raise ConfigException("ProtobufConverter is used before it was configured")
        return self._codec(text.text, text.texts(), self._options, version)

    def encode(self, codec: ProtobufCodec, schema: Schema | None, value: object) -> bytes:
        """See ``RegistryConverter``."""
        if schema is None:
            raise DataException("ProtobufConverter writes values with a schema only")
        return codec.encode(schema, value)

    def decode(self, codec: ProtobufCodec, payload: bytes, where: str) -> SchemaAndValue:
        """See ``RegistryConverter``."""
        return codec.decode(payload, where)
