"""The common part of all converters with a schema registry: choice of subject and id, caches, meaning of null.

Main types: ``RegistryConverter``, with two hooks for a format: ``describe`` and ``parse``; ``Codec``, the result of
``parse``. Format code does not access the registry: it makes schema texts, compiles them, and converts values with the
result.

The bytes around a message are a zero, the schema's id in four bytes, and for Protobuf the index path of the message's
type (``frame``, ``unframe``). Messages with the same topic and schema id are read together as columns
(``read_columns``, ``ColumnReader``); the method for one message reads null and damaged messages, small groups, and
messages whose schema is unavailable or does not support columns, and raises all errors.

Thread: a task's pipeline thread.
Source: io.confluent.connect.avro.AvroConverter, io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe.
"""

from __future__ import annotations

import importlib
import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import Converter
from penstock.config import ConfigDef
from penstock.converters.registry.client import RecentValues, RegistryClient, SchemaText, TextForm
from penstock.converters.registry.cursors import Source
from penstock.converters.registry.settings import RECORD_NAME, TOPIC_NAME, RegistryConfig
from penstock.converters.settings import TYPE_CONFIG, use_of
from penstock.data import ConnectHeaders, Schema, SchemaAndValue, Type
from penstock.errors import ConfigException, DataException
from penstock.pipeline.columns.layout import Layout
from penstock.pipeline.plan.step import NOTHING, RowConverter, Side, Sorted, WrittenAtOnce

#: Smaller groups are as fast one by one, because each column costs some calls.
MIN_ROWS: Final = 128
_HEAD_BYTES: Final = 5
#: Messages up to this total size still have 32-bit offsets, including added bytes.
_MAX_BYTES: Final = 1 << 30


class ColumnReader(Protocol):
    """Reads many payloads of one schema."""

    @property
    def schema(self) -> Schema:
        """The Connect schema."""

    @property
    def physical(self) -> Layout:
        """The layout of the columns."""

    def read(self, source: Source, at: np.ndarray, ends: np.ndarray, /) -> tuple[pa.Array, np.ndarray] | None:
        """The values of payloads between given positions, and which payloads have to be read one by one.

        None if all have to be read one by one.
        """


#: Returns the reader for a topic and a schema id; it also receives the first payload.
ReaderOf: TypeAlias = Callable[[str, int, bytes], ColumnReader | None]


def no_columns(rows: int) -> Sorted:
    """All messages are read one by one."""
    return Sorted((None,), np.full(rows, -1, dtype=np.int32))


def read_columns(
    column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool], reader_of: ReaderOf
) -> Sorted:
    """Reads the messages of a batch; see ``RowConverter``.

    Args:
        column: The messages.
        topics: The topic of each.
        worth: Decides if columns are worthwhile for a number of schemas and messages.
        reader_of: Returns the readers. It raises an error again for a single message of that schema.
    """
    rows = len(column)
    if rows < MIN_ROWS or column.nbytes > _MAX_BYTES:
        found = no_columns(rows)
        codes = found.codes
    else:
        found, codes = _read(column, topics, worth, reader_of)
    assert codes is not None, "each message has a code"
    if column.null_count:
        read = {**found.read, len(found.hints): (NOTHING, column)}
        codes[column.is_null().to_numpy()] = len(found.hints)
        found = replace(found, hints=(*found.hints, None), read=read)
    return found


def _read(
    column: pa.ChunkedArray, topics: pa.ChunkedArray, worth: Callable[[int, int], bool], reader_of: ReaderOf
) -> tuple[Sorted, np.ndarray]:
    messages = column.combine_chunks()
    rows = len(messages)
    source = Source(messages)
    codes = np.full(rows, -1, dtype=np.int32)
    places = np.zeros(rows, dtype=np.int64)
    names, kinds = _kinds(source, topics)
    numbers, counts = np.unique(kinds[kinds >= 0], return_counts=True)
    read: dict[int, tuple[Side, pa.ChunkedArray]] = {}
    chosen = numbers[counts >= MIN_ROWS].tolist() if worth(len(numbers), rows) else []
    for kind in chosen:
        mine = np.flatnonzero(kinds == kind)
        at, ends = source.starts[mine] + _HEAD_BYTES, source.ends[mine]
        try:
            reader = reader_of(names[kind >> 32], kind & 0xFFFFFFFF, source.octets[at[0] : ends[0]].tobytes())
        except Exception:  # Each message then meets the error separately, where it fails only one record.
            continue
        made = None if reader is None else reader.read(source, at, ends)
        if made is None or reader is None:
            continue
        values, bad = made
        if bad.any():
            good = np.flatnonzero(~bad)
            mine, values = mine[good], values.take(pa.array(good))
        if not len(mine):
            continue
        codes[mine] = len(read)
        places[mine] = np.arange(len(mine))
        side = _side_of(reader, values)
        read[len(read)] = (side, pa.chunked_array([values]))
    return Sorted((None,) * max(1, len(read)), codes, read=read, places=places), codes


def _kinds(source: Source, topics: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The names of the topics; for each message the number of its topic and its schema id, -1 if it has none."""
    coded = topics.combine_chunks().dictionary_encode()
    there = (source.ends - source.starts >= _HEAD_BYTES) & (source.octets[source.starts] == MAGIC)
    numbers = source.words[source.starts]
    ids = ((numbers >> np.uint64(8)) & np.uint64(0xFFFFFFFF)).astype(np.uint32).byteswap().astype(np.int64)
    kinds = (coded.indices.to_numpy().astype(np.int64) << 32) | ids
    return coded.dictionary.to_pylist(), np.where(there, kinds, -1)


def _side_of(reader: ColumnReader, values: pa.Array) -> Side:
    """Returns the known properties of the values. No required nested value is null: the formats have no null for
    these.
    """
    schema = reader.schema
    worth = schema.type is Type.STRUCT or not schema.optional
    complete = bool(reader.physical.children)
    return Side.of(schema, reader.physical, present=worth and not values.null_count, complete=complete)


MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")
#: The meaning of the first byte of messages in other formats.
_TEXT_STARTS: Final = frozenset(b'{["')


def frame(schema_id: int, payload: bytes) -> bytes:
    """A message with its head.

    >>> frame(7, b"abc").hex()
    '0000000007616263'
    """
    return _HEAD.pack(MAGIC, schema_id) + payload


def unframe(data: bytes, where: str) -> tuple[int, bytes]:
    """The schema's id, and the bytes after the head.

    Raises:
        DataException: The head is missing or damaged.

    >>> unframe(bytes.fromhex("0000000007616263"), "the value of topic t")
    (7, b'abc')
    """
    if len(data) >= _HEAD.size and data[0] == MAGIC:
        return _HEAD.unpack_from(data)[1], data[_HEAD.size :]
    raise DataException(_refusal(data, where))


def _refusal(data: bytes, where: str) -> str:
    side = "key" if where.startswith("the key") else "value"
    if not data or data[0] == MAGIC:
        return (
            f"Unknown magic byte! {where} has {len(data)} bytes; a message of a schema registry begins with a zero "
            f"byte and a schema id, five bytes. It was written by something else: set {side}.converter to what wrote it"
        )
    text = data[0] in _TEXT_STARTS
    hint = (
        f"Is it JSON? Set {side}.converter=org.apache.kafka.connect.json.JsonConverter, with "
        f"{side}.converter.schemas.enable=false unless each message holds its schema"
        if text
        else f"Set {side}.converter to what wrote it, such as org.apache.kafka.connect.storage.StringConverter"
    )
    return (
        f"Unknown magic byte! {where} begins with 0x{data[0]:02x}; a message of a schema registry begins with 0x00 and "
        f"a schema id. {hint}"
    )


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Writes the index path of a message type in a Protobuf file: one index for each level of nesting, outermost first.

    >>> write_indexes([0]).hex(), write_indexes([1, 0]).hex()
    ('00', '040200')
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def read_indexes(payload: bytes, where: str) -> tuple[list[int], bytes]:
    """The index path, and the bytes after it.

    Raises:
        DataException: The bytes cannot be read.

    >>> read_indexes(bytes.fromhex("040200ff"), "the value of topic t")
    ([1, 0], b'\\xff')
    >>> read_indexes(bytes.fromhex("00ff"), "the value of topic t")
    ([0], b'\\xff')
    """
    count, at = _read_varint(payload, 0, where)
    if count == 0:
        return [0], payload[at:]
    if not 0 < count <= len(payload):
        raise DataException(f"{where} says that its message type is {count} levels deep: it is no Protobuf message")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(payload, at, where)
        if index < 0:
            raise DataException(f"{where} says that its message type is number {index}: it is no Protobuf message")
        indexes.append(index)
    return indexes, payload[at:]


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise DataException(f"{where} ends within the place of its message type: it is no Protobuf message")


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
        nulls = values.null_count if isinstance(values, pa.Array) else values.count(None)
        if schema is None and nulls == len(values):
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
                    "latest.compatibility.strict=false to write with the latest one anyway"
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
