"""JsonSchemaConverter: JSON with its schema in the schema registry. Class ``JsonSchemaConverter``.

It works record by record, in Python: the first bytes of each message select its schema, and Spark's JSON functions
accept only one schema for all rows; see ``writing``. Schemas are compiled to functions once for each id.

Thread: a task's pipeline thread.
Source: io.confluent.connect.json.JsonSchemaConverter, JsonSchemaDataConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.converters.registry.client import SchemaText
from penstock.converters.registry.converter import RegistryConverter
from penstock.converters.registry.json_schema.writing import JsonSchemaOptions, json_schema_text
from penstock.converters.registry.settings import RegistryConfig
from penstock.data import ConnectHeaders, Schema

if TYPE_CHECKING:
    from penstock.converters.registry.json_schema.codec import JsonSchemaCodec


class JsonSchemaConverterConfig(JsonSchemaOptions, RegistryConfig):
    """The settings of ``JsonSchemaConverter``."""


class JsonSchemaConverter(RegistryConverter["JsonSchemaCodec", JsonSchemaConverterConfig]):
    """JSON with its schema in the registry."""

    java_name: ClassVar[str] = "io.confluent.connect.json.JsonSchemaConverter"
    format: ClassVar[str] = "JSON"

    needs: ClassVar[str] = "penstock.converters.registry.json_schema.codec"
    null_is_tombstone: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(JsonSchemaConverterConfig)

    def describe(self, schema: Schema) -> SchemaText:
        """See ``RegistryConverter``."""
        return SchemaText(self.format, json_schema_text(schema, self.settings))

    def cannot_read(self, reader: JsonSchemaCodec, writer: JsonSchemaCodec) -> str | None:
        """See ``RegistryConverter``."""
        from penstock.converters.registry.json_schema.compatibility import cannot_read

        return cannot_read(reader.parsed, writer.parsed)

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``. A null is written as the default of its schema."""
        if value is None and schema is not None and not self.settings.ignore_defaults:
            value = schema.default
        return super().from_connect_data(topic, schema, value, headers)

    def parse(self, text: SchemaText, version: int | None) -> JsonSchemaCodec:
        """See ``RegistryConverter``."""
        from penstock.converters.registry.json_schema.codec import JsonSchemaCodec

        options = self.settings
        return JsonSchemaCodec(text.text, text.texts(), options, version, strict=options.fail_invalid)
