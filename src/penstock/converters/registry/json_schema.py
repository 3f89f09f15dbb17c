"""JsonSchemaConverter: JSON with its schema in the schema registry. Class ``JsonSchemaConverter``.

Record by record, in Python: which schema a message has stands in its first bytes, and Spark's JSON functions take one
schema for all rows; see ``json_schema_reading``. Schemas are compiled to functions once for each id.

Thread: a task's pipeline thread.
Source: io.confluent.connect.json.JsonSchemaConverter, JsonSchemaDataConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.converters.registry.base import RegistryConverter
from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.json_schema_names import JsonSchemaOptions
from penstock.converters.registry.json_schema_writing import json_schema_text
from penstock.converters.registry.settings import RegistryConfig
from penstock.data import Schema, SchemaAndValue
from penstock.errors import ConfigException, DataException

if TYPE_CHECKING:
    from penstock.converters.registry.json_schema_codec import JsonSchemaCodec


class JsonSchemaConverterConfig(JsonSchemaOptions, RegistryConfig):
    """The settings of ``JsonSchemaConverter``."""


class JsonSchemaConverter(RegistryConverter["JsonSchemaCodec", JsonSchemaConverterConfig]):
    """JSON with its schema in the registry."""

    java_name: ClassVar[str] = "io.confluent.connect.json.JsonSchemaConverter"
    format: ClassVar[str] = "JSON"

    def __init__(self) -> None:
        super().__init__(JsonSchemaConverterConfig)
        self._options: JsonSchemaOptions = JsonSchemaOptions()
        self._codec: type[JsonSchemaCodec] | None = None

    def open(self, settings: JsonSchemaConverterConfig) -> None:
        """See ``RegistryConverter``. Raises ``ConfigException`` without the extra ``penstock[registry]``."""
        try:
            from penstock.converters.registry.json_schema_codec import JsonSchemaCodec
        except ImportError as error:
            raise ConfigException(
                f"JsonSchemaConverter needs more packages ({error}): pip install penstock[registry]"
            ) from error
        self._codec = JsonSchemaCodec
        self._options = settings

    def describe(self, schema: Schema | None) -> SchemaText:
        """See ``RegistryConverter``. Values need a schema."""
        if schema is None:
            raise DataException(
                "JsonSchemaConverter writes values with a schema only, and this one has none; for values without use "
                "org.apache.kafka.connect.json.JsonConverter with schemas.enable=false"
            )
        return SchemaText(self.format, json_schema_text(schema, self._options))

    def parse(self, text: SchemaText, version: int | None) -> JsonSchemaCodec:
        """See ``RegistryConverter``."""
        if self._codec is None:
            raise ConfigException("JsonSchemaConverter is used before it was configured")
        return self._codec(text.text, text.texts(), self._options, version, strict=self._options.fail_invalid)

    def encode(self, codec: JsonSchemaCodec, schema: Schema | None, value: object) -> bytes:
        """See ``RegistryConverter``."""
        if schema is None:
            raise DataException("JsonSchemaConverter writes values with a schema only")
        return codec.encode(schema, value)

    def decode(self, codec: JsonSchemaCodec, payload: bytes, where: str) -> SchemaAndValue:
        """See ``RegistryConverter``."""
        return codec.decode(payload, where)
