"""SimpleHeaderConverter: header values as plain text; their schema is inferred from the text.

It works on one value at a time, in Python: a batch has few different headers, and the pipeline caches the result of
each (see ``penstock.pipeline.batch.headers``).

Thread: one instance for each task, used on its pipeline thread.
Source: org.apache.kafka.connect.storage.SimpleHeaderConverter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from penstock.api import HeaderConverter
from penstock.config import ConfigDef
from penstock.converters.string import decode_text, encode_text
from penstock.data import NULL_VALUE, Schema, SchemaAndValue, Values
from penstock.errors import DataException

CONFIG: Final = ConfigDef()


class SimpleHeaderConverter(HeaderConverter):
    """Writes Java's text of a value; reads a text as the narrowest type that fits."""

    java_name: ClassVar[str] = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    #: Headers of frames then need no check.
    reads_any_bytes: ClassVar[bool] = True

    def configure(self, configs: Mapping[str, object]) -> None:
        """Takes no settings."""

    def config(self) -> ConfigDef:
        """See ``HeaderConverter``. The only setting is ``converter.type``."""
        return CONFIG

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: object) -> bytes | None:
        """See ``HeaderConverter``."""
        if value is None:
            return None
        text = Values.convert_to_string(schema, value)
        return None if text is None else encode_text(text)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """See ``HeaderConverter``. Bytes that are not text stay bytes, without a schema."""
        if data is None:
            return NULL_VALUE
        try:
            # Java's parser returns no value for the text null; its header then contains null.
            return Values.parse_string(decode_text(data)) or NULL_VALUE
        except (DataException, ValueError):
            return SchemaAndValue(None, data)
