"""The common part of all converters with a schema registry: choice of subject and id, caches, meaning of null.

Main types: ``RegistryConverter``, with two hooks for a format: ``describe`` and ``parse``; ``Codec``, the result of
``parse``. Format code does not access the registry: it makes schema texts, compiles them, and converts values with the
result.

Thread: a task's pipeline thread.
Source: io.confluent.connect.avro.AvroConverter, io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe.
"""

from __future__ import annotations

import importlib
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import Converter
from penstock.config import ConfigDef
from penstock.converters.registry.client import RecentValues, RegistryClient, SchemaText, TextForm
from penstock.converters.registry.reading_columns import ColumnReader, no_columns, read_columns
from penstock.converters.registry.settings import RECORD_NAME, TOPIC_NAME, RegistryConfig
from penstock.converters.registry.wire import frame, unframe
from penstock.converters.settings import TYPE_CONFIG, use_of
from penstock.data import ConnectHeaders, Schema, SchemaAndValue
from penstock.errors import ConfigException, DataException
from penstock.pipeline.plan.step import RowConverter, Sorted, WrittenAtOnce


class ColumnWriter(Protocol):
    """Writes many values of one schema."""

    def write(self, head: bytes, values: Sequence[object] | pa.Array, /) -> WrittenAtOnce | None:
        """Messages with a head and the payloads of values; see ``RowConverter.write_at_once``."""


class Codec(Protocol):
    """A compiled schema of some format; each format has its own."""

    @property
    def record_name(self) -> str | None:
        """The full name of the record, message or title; None if the schema has none."""

    def encode(self, schema: Any, value: object, /) -> bytes:
        """The payload of a value, which is never None: the bytes after the schema's id.

        The value has the schema that ``describe`` received, or another schema if the user configured this one for
        writing.
        """

    def columns(self) -> ColumnReader | None:
        """Returns the reader of many payloads of the schema at once, or None if columns are not possible."""

    def column_writer(self, schema: Schema, /) -> ColumnWriter | None:
        """Returns the writer of many values of a Connect schema at once, or None if columns are not possible."""

    def decode(self, payload: bytes, where: str, /) -> SchemaAndValue:
        """Decodes a payload. ``where`` describes the message, for errors: "the value of topic t"."""


C = TypeVar("C", bound=Codec)
S = TypeVar("S", bound=RegistryConfig)


@dataclass(frozen=True)
class _Writer(Generic[C]):
    """The writer of values of one Connect schema to one topic."""

    id: int
    codec: C


class RegistryConverter(RowConverter, Converter, Generic[C, S]):
    """Base of the converters with a schema registry.

    A format defines ``format`` and the hooks ``describe`` and ``parse``. The hooks, and the codec of ``parse``, raise
    DataException for unsupported schemas and values.
    """

    #: Confluent's name of the converter.
    java_name: ClassVar[str]
    #: The registry's name of the format.
    format: ClassVar[str]
    #: The requested form of schemas, if registries have several; None = the registry's own.
    text_form: ClassVar[TextForm | None] = None
    #: The module that the converter requires; the extra ``penstock[registry]`` installs it.
    needs: ClassVar[str | None] = None
    #: True if schemaless values have a schema in this format.
    takes_schemaless: ClassVar[bool] = False
    #: True if some of its codecs read and write many payloads at once.
    has_columns: ClassVar[bool] = False
    #: True if a null is a tombstone even if its schema is not optional.
    null_is_tombstone: ClassVar[bool] = False

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind
        self._client: RegistryClient | None = None
        self._settings: S | None = None
        self._is_key = False
        self._side = "value"
        self._latest_ttl_s: float | None = None
        self._remember(1, 0)

    # ------------------------------------------------------------------ hooks
    @abstractmethod
    def describe(self, schema: Any) -> SchemaText:
        """The schema to register for values of a Connect schema. Called once for each cached schema.

        The Connect schema is None for schemaless values, if the format supports them.
        """

    @abstractmethod
    def parse(self, text: SchemaText, version: int | None) -> C:
        """Compiles a schema of the registry, or one that ``describe`` made.

        Args:
            text: The schema, with its references.
            version: Its version in the subject of this topic's messages; None = not known.
        """

    def cannot_read(self, reader: C, writer: C) -> str | None:
        """Returns why values written with one schema cannot be read with another one; None if they can, or if the
        format has no rules for it.
        """
        return None

    def written_with(self, latest: C, own: C) -> C:
        """Returns the codec that writes values with the latest schema of their subject instead of their own."""
        return latest

    def name_written(self, codec: C, schema: Any) -> str | None:
        """The full name of the record that values of a schema are written as; None if they are not records."""
        return codec.record_name

    def name_read(self, codec: C, payload: bytes, where: str) -> str | None:
        """The full name of the record in a payload; None if it is not a record."""
        return codec.record_name

    # ------------------------------------------------------------------ Converter
    def config(self) -> ConfigDef:
        """See ``Converter``. The settings of the registry, and the format's own."""
        return self._kind.definition()

    def configure(self, configs: Mapping[str, object], is_key: bool) -> None:
        """See ``Converter``. Makes no request to the registry; that happens with the first record."""
        settings = self._kind.parse({**configs, TYPE_CONFIG: use_of(is_key)})
        settings.warn_of_what_has_no_effect()
        if self.needs is not None:
            try:
                importlib.import_module(self.needs)
            except ImportError as error:
                raise ConfigException(
                    f"{type(self).__name__} needs more packages ({error}): pip install penstock[registry]"
                ) from error
        self._client = RegistryClient(settings, self.text_form)
        self._settings = settings
        self._is_key = is_key
        self._side = "key" if is_key else "value"
        self._latest_ttl_s = settings.latest_ttl_s
        self._remember(settings.cache_size, settings.missing_id_cache_ttl_sec)

    def _remember(self, size: int, refusal_s: float) -> None:
        clock = time.monotonic
        self._writers: RecentValues[tuple[str, Schema | None], _Writer[C]] = RecentValues(size, refusal_s, clock)
        self._readers: RecentValues[tuple[str, int], C] = RecentValues(size, refusal_s, clock)
        # Separate from writers, so that each record does not describe its schema again during an outage.
        self._own: RecentValues[Schema | None, tuple[SchemaText, C]] = RecentValues(size, refusal_s, clock)

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
        writer = self._writers.get((topic, schema), lambda: self._writer(topic, schema), self._latest_ttl_s)
        return frame(writer.id, writer.codec.encode(schema, value))

    def to_connect_data(self, topic: str, data: bytes | None, headers: ConnectHeaders | None = None) -> SchemaAndValue:
        """See ``Converter``. The id in the message selects its schema."""
        if data is None:
            return SchemaAndValue(None, None)
        where = f"the {self._side} of topic {topic}"
        schema_id, payload = unframe(data, where)
        codec = self._readers.get((topic, schema_id), lambda: self._reader(topic, schema_id, payload, where))
        return codec.decode(payload, where)

    def read_columns(
        self, column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool]
    ) -> Sorted:
        """See ``RowConverter``. Messages with the same topic and schema id form one column, if there are enough of
        them.
        """
        if not self.has_columns:
            return no_columns(len(column))
        return read_columns(column, topics, worth, self._column_reader)

    def write_at_once(
        self, topic: str, schema: Schema | None, values: Sequence[object] | pa.Array
    ) -> WrittenAtOnce | None:
        """See ``RowConverter``. Writes values with a schema if their format supports columns, and nulls without one."""
        if schema is None and all(one is None for one in values):
            return WrittenAtOnce(pa.nulls(len(values), pa.binary()), np.zeros(len(values), dtype=bool))
        if schema is None or not self.has_columns:
            return None
        try:
            writer = self._writers.get((topic, schema), lambda: self._writer(topic, schema), self._latest_ttl_s)
        except Exception:  # Each value then meets the error separately, where it fails only one record.
            return None
        columns = writer.codec.column_writer(schema)
        made = None if columns is None else columns.write(frame(writer.id, b""), values)
        if made is None or not (schema.optional and made.odd.any()):
            return made
        if isinstance(values, pa.Array):
            tombstones = values.is_null()
        else:
            tombstones = pa.array([one is None for one in values], pa.bool_())
        messages = pc.if_else(tombstones, pa.scalar(None, pa.binary()), made.messages)
        return WrittenAtOnce(messages, made.odd & ~tombstones.to_numpy(zero_copy_only=False))

    def _column_reader(self, topic: str, schema_id: int, payload: bytes) -> ColumnReader | None:
        where = f"the {self._side} of topic {topic}"
        codec = self._readers.get((topic, schema_id), lambda: self._reader(topic, schema_id, payload, where))
        return codec.columns()

    # ------------------------------------------------------------------ once for each schema
    def _reader(self, topic: str, schema_id: int, payload: bytes, where: str) -> C:
        client, settings = self._configured()
        text = client.by_id(schema_id, where)
        if text.format != self.format:
            raise DataException(
                f"Schema {schema_id} of {where} is a schema of format {text.format}, not {self.format}: set "
                f"{self._side}.converter to the converter for {text.format}"
            )
        by_topic = settings.strategy(self._is_key) == TOPIC_NAME
        name = None if by_topic else self.name_read(self.parse(text, None), payload, where)
        return self.parse(text, client.version_of(self._subject(topic, name), schema_id, where))

    def _writer(self, topic: str, schema: Schema | None) -> _Writer[C]:
        client, settings = self._configured()
        where = f"the {self._side} for topic {topic}"
        if settings.use_id is not None:
            text = client.by_id(settings.use_id, where)
            if text.format != self.format:
                raise ConfigException("use.schema.id", settings.use_id, f"It is a schema of format {text.format}")
            return _Writer(settings.use_id, self.parse(text, None))
        own, codec = self._own.get(schema, lambda: self._described(schema))
        subject = self._subject(topic, self.name_written(codec, schema))
        if settings.auto_register_schemas:
            return _Writer(client.register(subject, own, where), codec)
        if not settings.use_latest:
            return _Writer(client.look_up(subject, own, where), codec)
        return self._latest_writer(subject, own, codec, where)

    def _described(self, schema: Schema | None) -> tuple[SchemaText, C]:
        text = self.describe(schema)
        return text, self.parse(text, None)

    def _latest_writer(self, subject: str, own: SchemaText, own_codec: C, where: str) -> _Writer[C]:
        client, settings = self._configured()
        latest = client.latest(subject, where)
        codec = self.parse(latest.schema, None)
        if settings.latest_compatibility_strict and latest.schema != own:
            why = self.cannot_read(codec, own_codec)
            if why is not None:
                raise DataException(
                    f"The schema of {where} is not compatible with the latest one of subject {subject}, version "
                    f"{latest.version}: {why}. Register a newer one, or set {self._side}.converter."
                    "latest.compatibility.strict=false to write with the latest one all the same"
                )
        return _Writer(latest.id, self.written_with(codec, own_codec))

    def _subject(self, topic: str, record_name: str | None) -> str:
        settings = self.settings
        strategy = settings.strategy(self._is_key)
        if strategy == TOPIC_NAME:
            return f"{topic}-{self._side}"
        if record_name is None:
            raise DataException(
                f"{self._side}.subject.name.strategy is {strategy}, which needs a record with a name, and the "
                f"{self._side} of topic {topic} is none; set it to TopicNameStrategy or write a named struct"
            )
        return record_name if strategy == RECORD_NAME else f"{topic}-{record_name}"

    @property
    def settings(self) -> S:
        """The settings.

        Raises:
            ConfigException: The converter is not configured.
        """
        return self._configured()[1]

    def _configured(self) -> tuple[RegistryClient, S]:
        if self._client is None or self._settings is None:
            raise ConfigException(f"{type(self).__name__} is used before it was configured")
        return self._client, self._settings
