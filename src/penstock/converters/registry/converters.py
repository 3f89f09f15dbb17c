"""The converters with a schema registry: Avro, JSON Schema and Protobuf.

``RegistryConverter`` chooses subject and id, caches, and decides what null means. All of a format is in its ``Codec``,
a compiled schema, which never accesses the registry. Codecs are imported when a converter is configured, because the
extra may be missing. The converters work outside Spark, which needs additional jars for these formats, and because only
the id in a message identifies its schema. Messages with the same topic and schema id are read together as columns; the
method for one message reads null and damaged messages, small groups, and messages whose schema is unavailable or does
not support columns, and raises all errors.

Thread: a task's pipeline thread.
Source: io.confluent.connect.avro.AvroConverter, io.confluent.connect.json.JsonSchemaConverter,
io.confluent.connect.protobuf.ProtobufConverter, io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe.
"""

from __future__ import annotations

import importlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import Converter
from penstock.config import ConfigDef
from penstock.converters.primitives import TYPE_CONFIG, use_of
from penstock.converters.registry.avro.forms import AvroOptions
from penstock.converters.registry.client import RecentValues, RegistryClient, SchemaText, TextForm
from penstock.converters.registry.json_schema.values import JsonSchemaOptions
from penstock.converters.registry.protobuf.names import ProtobufOptions
from penstock.converters.registry.settings import RECORD_NAME, TOPIC_NAME, RegistryConfig
from penstock.converters.registry.wire import ColumnReader, frame, no_columns, read_columns, unframe
from penstock.data import ConnectHeaders, Schema, SchemaAndValue
from penstock.errors import ConfigException, DataException
from penstock.pipeline.plan.step import RowConverter, Sorted, WrittenAtOnce


class Codec(ABC):
    """A compiled schema of the registry. Everything raises ``DataException`` for unsupported schemas and values.

    Args:
        text: The schema, with its references.
        options: The converter's settings.
        version: Its version in the subject of the messages; None = not known.
    """

    @abstractmethod
    def __init__(self, text: SchemaText, options: Any, version: int | None) -> None: ...

    @staticmethod
    @abstractmethod
    def text_of(schema: Any, options: Any) -> str:
        """The schema to register for values of a Connect schema; None = schemaless, if the format takes them."""

    @property
    @abstractmethod
    def record_name(self) -> str | None:
        """The full name of the record, message or title; None if the schema has none."""

    @abstractmethod
    def encode(self, schema: Any, value: object) -> bytes:
        """The bytes after the schema's id for a value that is not None.

        The value has the schema of ``text_of``, or another one if the user configured this schema for writing.
        """

    @abstractmethod
    def decode(self, payload: bytes, where: str) -> SchemaAndValue:
        """Decodes a payload. ``where`` describes the message, for errors: "the value of topic t"."""

    @abstractmethod
    def cannot_read(self, writer: Any) -> str | None:
        """Returns why values written with another codec cannot be read with this one; None if they can."""

    def columns(self) -> ColumnReader | None:
        """Returns the reader of many payloads of the schema at once, or None if columns are not possible."""
        return None

    def write_at_once(self, schema: Schema, head: bytes, values: Sequence[object] | pa.Array) -> WrittenAtOnce | None:
        """Messages with a head and the payloads of values; None if they have to be written one by one."""
        return None

    def writing_for(self, own: Any) -> Codec:
        """Returns the codec that writes values with this latest schema of their subject instead of their own."""
        return self

    def name_written(self, schema: Any) -> str | None:
        """The full name of the record that values of a schema are written as; None if they are not records."""
        return self.record_name

    def name_read(self, payload: bytes, where: str) -> str | None:
        """The full name of the record in a payload; None if it is not a record."""
        return self.record_name


#: The id of the schema that values are written with, and its codec.
_Writer: TypeAlias = tuple[int, Codec]


class RegistryConverter(RowConverter, Converter):
    """Base of the converters with a schema registry."""

    #: Confluent's name of the converter.
    java_name: ClassVar[str]
    #: The registry's name of the format.
    format: ClassVar[str]
    #: Module and class of the codec; the extra ``penstock[registry]`` installs what it imports.
    codec: ClassVar[str]
    options: ClassVar[type[RegistryConfig]]
    #: The requested form of schemas, if registries have several; None = the registry's own.
    text_form: ClassVar[TextForm | None] = None
    #: True if schemaless values have a schema in this format.
    takes_schemaless: ClassVar[bool] = False
    #: True if some of its codecs read and write many payloads at once.
    has_columns: ClassVar[bool] = False
    #: True if a null is a tombstone even if its schema is not optional.
    null_is_tombstone: ClassVar[bool] = False

    def __init__(self) -> None:
        self._client: RegistryClient | None = None
        self._settings: Any = None
        self._is_key = False
        self._side = "value"
        self._remember(1, 0)

    def config(self) -> ConfigDef:
        """See ``Converter``. The settings of the registry, and the format's own."""
        return self.options.definition()

    def configure(self, configs: Mapping[str, object], is_key: bool) -> None:
        """See ``Converter``. Makes no request to the registry; that happens with the first record."""
        settings = self.options.parse({**configs, TYPE_CONFIG: use_of(is_key)})
        settings.warn_of_what_has_no_effect()
        try:
            self._codec = self.load_codec()
        except ImportError as error:
            raise ConfigException(
                f"{type(self).__name__} needs more packages ({error}): pip install penstock[registry]"
            ) from error
        self._client = RegistryClient(settings, self.text_form)
        self._settings = settings
        self._is_key = is_key
        self._side = "key" if is_key else "value"
        self._remember(settings.cache_size, settings.missing_id_cache_ttl_sec)

    def load_codec(self) -> type[Codec]:
        """Imports the class of the format's codecs."""
        module, name = self.codec.split(":")
        found: type[Codec] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return found

    def _remember(self, size: int, refusal_s: float) -> None:
        clock = time.monotonic
        self._writers: RecentValues[tuple[str, Schema | None], _Writer] = RecentValues(size, refusal_s, clock)
        self._readers: RecentValues[tuple[str, int], Codec] = RecentValues(size, refusal_s, clock)
        # Separate from writers, so that each record does not describe its schema again during an outage.
        self._own: RecentValues[Schema | None, tuple[SchemaText, Codec]] = RecentValues(size, refusal_s, clock)

    def close(self) -> None:
        """See ``Converter``. Closes the client of the registry."""
        if self._client is not None:
            self._client.close()

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``. A null without a schema is a tombstone, if the format allows it."""
        if value is None:
            if self.null_is_tombstone or schema is None or schema.optional:
                return None
            raise DataException(f"The {self._side} for topic {topic} is null, and its schema {schema} is not optional")
        if schema is None and not self.takes_schemaless:
            raise DataException(
                f"{type(self).__name__} writes values with a schema only, and this one has none; give it one, or use "
                "org.apache.kafka.connect.json.JsonConverter with schemas.enable=false"
            )
        schema_id, codec = self._writer_of(topic, schema)
        return frame(schema_id, codec.encode(schema, value))

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """See ``Converter``. The id in the message selects its schema."""
        if data is None:
            return SchemaAndValue(None, None)
        where = f"the {self._side} of topic {topic}"
        schema_id, payload = unframe(data, where)
        return self._reader_of(topic, schema_id, payload).decode(payload, where)

    def read_columns(
        self, column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool]
    ) -> Sorted:
        """See ``RowConverter``. Messages with the same topic and schema id form one column, if there are enough of
        them.
        """
        if not self.has_columns:
            return no_columns(len(column))
        return read_columns(column, topics, worth, lambda *message: self._reader_of(*message).columns())

    def write_at_once(
        self, topic: str, schema: Schema | None, values: Sequence[object] | pa.Array
    ) -> WrittenAtOnce | None:
        """See ``RowConverter``. Writes values with a schema if their format supports columns, and nulls without one."""
        nulls = values.null_count if isinstance(values, pa.Array) else values.count(None)
        if schema is None and nulls == len(values):
            return WrittenAtOnce(pa.nulls(len(values), pa.binary()), np.zeros(len(values), dtype=bool))
        if schema is None or not self.has_columns:
            return None
        try:
            schema_id, codec = self._writer_of(topic, schema)
        except Exception:  # Each value then meets the error separately, where it fails only one record.
            return None
        made = codec.write_at_once(schema, frame(schema_id, b""), values)
        if made is None or not (schema.optional and made.odd.any()):
            return made
        if isinstance(values, pa.Array):
            tombstones = values.is_null()
        else:
            tombstones = pa.array([one is None for one in values], pa.bool_())
        messages = pc.if_else(tombstones, pa.scalar(None, pa.binary()), made.messages)
        return WrittenAtOnce(messages, made.odd & ~tombstones.to_numpy(zero_copy_only=False))

    def _reader_of(self, topic: str, schema_id: int, payload: bytes) -> Codec:
        return self._readers.get((topic, schema_id), lambda: self._reader(topic, schema_id, payload))

    def _reader(self, topic: str, schema_id: int, payload: bytes) -> Codec:
        client, settings = self._configured()
        where = f"the {self._side} of topic {topic}"
        text = client.by_id(schema_id, where)
        if text.format != self.format:
            raise DataException(
                f"Schema {schema_id} of {where} is a schema of format {text.format}, not {self.format}: set "
                f"{self._side}.converter to the converter for {text.format}"
            )
        by_topic = settings.strategy(self._is_key) == TOPIC_NAME
        name = None if by_topic else self._codec(text, settings, None).name_read(payload, where)
        return self._codec(text, settings, client.version_of(self._subject(topic, name), schema_id, where))

    def _writer_of(self, topic: str, schema: Schema | None) -> _Writer:
        latest_ttl_s = self._configured()[1].latest_ttl_s
        return self._writers.get((topic, schema), lambda: self._writer(topic, schema), latest_ttl_s)

    def _writer(self, topic: str, schema: Schema | None) -> _Writer:
        client, settings = self._configured()
        where = f"the {self._side} for topic {topic}"
        if settings.use_id is not None:
            text = client.by_id(settings.use_id, where)
            if text.format != self.format:
                raise ConfigException("use.schema.id", settings.use_id, f"It is a schema of format {text.format}")
            return settings.use_id, self._codec(text, settings, None)
        own, codec = self._own.get(schema, lambda: self._described(schema))
        subject = self._subject(topic, codec.name_written(schema))
        if settings.auto_register_schemas:
            return client.register(subject, own, where), codec
        if not settings.use_latest:
            return client.look_up(subject, own, where), codec
        return self._latest_writer(subject, own, codec, where)

    def _described(self, schema: Schema | None) -> tuple[SchemaText, Codec]:
        text = SchemaText(self.format, self._codec.text_of(schema, self._settings))
        return text, self._codec(text, self._settings, None)

    def _latest_writer(self, subject: str, own: SchemaText, own_codec: Codec, where: str) -> _Writer:
        client, settings = self._configured()
        latest = client.latest(subject, where)
        codec = self._codec(latest.schema, settings, None)
        if settings.latest_compatibility_strict and latest.schema != own:
            why = codec.cannot_read(own_codec)
            if why is not None:
                raise DataException(
                    f"The schema of {where} is not compatible with the latest one of subject {subject}, version "
                    f"{latest.version}: {why}. Register a newer one, or set {self._side}.converter."
                    "latest.compatibility.strict=false to write with the latest one anyway"
                )
        return latest.id, codec.writing_for(own_codec)

    def _subject(self, topic: str, record_name: str | None) -> str:
        strategy = self._configured()[1].strategy(self._is_key)
        if strategy == TOPIC_NAME:
            return f"{topic}-{self._side}"
        if record_name is None:
            raise DataException(
                f"{self._side}.subject.name.strategy is {strategy}, which needs a record with a name, and the "
                f"{self._side} of topic {topic} is none; set it to TopicNameStrategy or write a named struct"
            )
        return record_name if strategy == RECORD_NAME else f"{topic}-{record_name}"

    def _configured(self) -> tuple[RegistryClient, Any]:
        if self._client is None:
            raise ConfigException(f"{type(self).__name__} is used before it was configured")
        return self._client, self._settings


class AvroConverterConfig(AvroOptions, RegistryConfig):
    """The settings of ``AvroConverter``."""


class AvroConverter(RegistryConverter):
    """Avro with its schemas in a schema registry."""

    java_name: ClassVar[str] = "io.confluent.connect.avro.AvroConverter"
    format: ClassVar[str] = "AVRO"
    codec: ClassVar[str] = "avro.codec:AvroCodec"
    options = AvroConverterConfig
    takes_schemaless: ClassVar[bool] = True
    has_columns: ClassVar[bool] = True


class JsonSchemaConverterConfig(JsonSchemaOptions, RegistryConfig):
    """The settings of ``JsonSchemaConverter``."""


class JsonSchemaConverter(RegistryConverter):
    """JSON with its schema in the schema registry."""

    java_name: ClassVar[str] = "io.confluent.connect.json.JsonSchemaConverter"
    format: ClassVar[str] = "JSON"
    codec: ClassVar[str] = "json_schema.codec:JsonSchemaCodec"
    options = JsonSchemaConverterConfig
    null_is_tombstone: ClassVar[bool] = True

    def from_connect_data(
        self, topic: str, schema: Schema | None, value: object, headers: ConnectHeaders | None = None
    ) -> bytes | None:
        """See ``Converter``. A null is written as the default of its schema."""
        if value is None and schema is not None and not self._configured()[1].ignore_defaults:
            value = schema.default
        return super().from_connect_data(topic, schema, value, headers)


class ProtobufConverterConfig(ProtobufOptions, RegistryConfig):
    """The settings of ``ProtobufConverter``."""


#: .proto texts always contain a space.
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class ProtobufConverter(RegistryConverter):
    """Protobuf with its schema in the schema registry."""

    java_name: ClassVar[str] = "io.confluent.connect.protobuf.ProtobufConverter"
    format: ClassVar[str] = "PROTOBUF"
    codec: ClassVar[str] = "protobuf.codec:ProtobufCodec"
    options = ProtobufConverterConfig
    text_form: ClassVar[TextForm | None] = TextForm(
        "PROTOBUF", "serialized", lambda text: bool(_BASE64.fullmatch(text))
    )
    null_is_tombstone: ClassVar[bool] = True
    has_columns: ClassVar[bool] = True
