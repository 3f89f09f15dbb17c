"""Records, which source tasks return and sink tasks receive, and their coordinates.

Owning thread: a record belongs to the code that made it until that hands it over; after that it must not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, Final, Literal, NamedTuple, TypeVar

from penstock.data import ConnectHeaders, Schema, Struct

T = TypeVar("T")


class Unchanged(Enum):
    """The marker for "keep the original" in ``new_record``, where None is a value. Source: Penstock's own."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
_Keep = Literal[Unchanged.UNCHANGED]


class TopicPartition(NamedTuple):
    """A partition of a Kafka topic. Source: org.apache.kafka.common.TopicPartition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A consumer position (the next offset to read), and text kept with it.

    Source: org.apache.kafka.clients.consumer.OffsetAndMetadata.
    """

    offset: int
    metadata: str = ""


class RecordMetadata(NamedTuple):
    """The partition, offset and timestamp of a record in Kafka, after transforms (which may have changed its topic).

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The record's offset there; -1 where the broker does not say it (``acks=0``).
        timestamp: Milliseconds since 1970 UTC, or None.

    Source: org.apache.kafka.clients.producer.RecordMetadata.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None


class TimestampType(IntEnum):
    """The meaning of a consumed record's timestamp; the numbers are Kafka's.

    Source: org.apache.kafka.common.record.TimestampType.
    """

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConnectRecord(ABC):
    """The common base of source and sink records.

    Attributes:
        topic: The topic.
        kafka_partition: The partition, or None: the producer chooses.
        key_schema: Schema of the key; None = schemaless.
        key: The key.
        value_schema: Schema of the value; None = schemaless.
        value: The value; None is a tombstone.
        timestamp: Milliseconds since 1970 UTC, or None.
        raw_headers: The headers, or None when there are none; unlike ``headers``, reading it does not create an object.

    Source: org.apache.kafka.connect.connector.ConnectRecord.
    """

    __slots__ = (
        "kafka_partition",
        "key",
        "key_schema",
        "raw_headers",
        "timestamp",
        "topic",
        "value",
        "value_schema",
    )

    topic: str
    kafka_partition: int | None
    key_schema: Schema | None
    key: object
    value_schema: Schema | None
    value: object
    timestamp: int | None
    raw_headers: ConnectHeaders | None

    @property
    def headers(self) -> ConnectHeaders:
        """The headers; creates an empty, mutable ``Headers`` if the record has none."""
        headers = self.raw_headers
        if headers is None:
            headers = self.raw_headers = ConnectHeaders()
        return headers

    @abstractmethod
    def new_record(
        self,
        topic: str | _Keep = UNCHANGED,
        partition: int | _Keep | None = UNCHANGED,
        key_schema: Schema | _Keep | None = UNCHANGED,
        key: object = UNCHANGED,
        value_schema: Schema | _Keep | None = UNCHANGED,
        value: object = UNCHANGED,
        timestamp: int | _Keep | None = UNCHANGED,
        headers: ConnectHeaders | _Keep | None = UNCHANGED,
    ) -> ConnectRecord:
        """Returns a copy with changes; transforms change records with it. Positional arguments are in Java's order.

        The copy keeps the fields of the kind of record (source partition and offset; Kafka coordinates). Headers are
        copied if none are given, so changes to the copy's headers do not affect the original.
        """

    def _common(self) -> tuple[object, ...]:
        headers = self.raw_headers
        return (
            self.topic,
            self.kafka_partition,
            self.key_schema,
            self.key,
            self.value_schema,
            self.value,
            self.timestamp,
            None if headers is None or headers.is_empty() else headers,
        )


#: The positional arguments after the topic of a source record, for each of Java's constructors.
_SOURCE_FORMS: Final = (
    ("value_schema", "value"),
    ("partition", "value_schema", "value"),
    ("key_schema", "key", "value_schema", "value"),
    ("partition", "key_schema", "key", "value_schema", "value"),
    ("partition", "key_schema", "key", "value_schema", "value", "timestamp"),
    ("partition", "key_schema", "key", "value_schema", "value", "timestamp", "headers"),
)
#: The positional arguments after topic and partition of a sink record, for each of Java's constructors.
_SINK_FORM: Final = ("key_schema", "key", "value_schema", "value", "kafka_offset")
_SINK_TIME: Final = (*_SINK_FORM, "timestamp", "timestamp_type")
_SINK_ORIGIN: Final = ("original_topic", "original_kafka_partition", "original_kafka_offset")
_SINK_FORMS: Final = (_SINK_FORM, _SINK_TIME, (*_SINK_TIME, "headers"), (*_SINK_TIME, "headers", *_SINK_ORIGIN))


class SourceRecord(ConnectRecord):
    """A record for Kafka, with its place in the source.

    Use keyword arguments, ``SourceRecord(partition, offset, "topic", "text", value_schema=STRING_SCHEMA)``, or the
    order of Java's constructors: after the topic comes ``value_schema, value``, optionally with ``partition``, or
    ``key_schema, key``, or all three before it; after all of these ``timestamp`` and ``headers`` may follow.

    >>> from penstock.data import STRING_SCHEMA
    >>> record = SourceRecord({"file": "f"}, {"line": 1}, "topic", STRING_SCHEMA, "text")
    >>> record == SourceRecord({"file": "f"}, {"line": 1}, "topic", "text", value_schema=STRING_SCHEMA)
    True

    Args:
        source_partition: The part of the source that it comes from (a file, a table): a map of primitives, or None.
        source_offset: The position to resume from once this record is in Kafka: a map of primitives, or None.
        topic: The topic to write to.
        value: The value.
        value_schema: Its schema; None = schemaless, except for a Struct, which has its own.
        key: The key.
        key_schema: Its schema; None = schemaless, except for a Struct, which has its own.
        partition: The partition to write to; None: the producer chooses.
        timestamp: Milliseconds since 1970 UTC; None: the time of sending.
        headers: The headers.

    Source: org.apache.kafka.connect.source.SourceRecord.
    """

    __slots__ = ("source_offset", "source_partition")

    source_partition: Mapping[str, object] | None
    source_offset: Mapping[str, object] | None

    def __init__(
        self,
        source_partition: Mapping[str, object] | None,
        source_offset: Mapping[str, object] | None,
        topic: str,
        value: object,
        *more: Any,
        value_schema: Schema | None = None,
        key: object = None,
        key_schema: Schema | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: ConnectHeaders | None = None,
    ) -> None:
        if more:
            named = {
                "value_schema": value_schema,
                "key": key,
                "key_schema": key_schema,
                "partition": partition,
                "timestamp": timestamp,
                "headers": headers,
            }
            start = "SourceRecord(source_partition, source_offset, topic"
            given = _in_java_order(start, _SOURCE_FORMS, (value, *more), named)
            SourceRecord.__init__(self, source_partition, source_offset, topic, **given)
            return
        self.source_partition = source_partition
        self.source_offset = source_offset
        self.topic = topic
        self.value = value
        self.value_schema = value.schema if value_schema is None and isinstance(value, Struct) else value_schema
        self.key = key
        # Fast path: most records have no key, and a task makes several hundred thousand records a second.
        self.key_schema = key_schema if key is None or key_schema is not None else _schema_of(key)
        self.kafka_partition = partition
        self.timestamp = timestamp
        self.raw_headers = headers

    def new_record(
        self,
        topic: str | _Keep = UNCHANGED,
        partition: int | _Keep | None = UNCHANGED,
        key_schema: Schema | _Keep | None = UNCHANGED,
        key: object = UNCHANGED,
        value_schema: Schema | _Keep | None = UNCHANGED,
        value: object = UNCHANGED,
        timestamp: int | _Keep | None = UNCHANGED,
        headers: ConnectHeaders | _Keep | None = UNCHANGED,
    ) -> SourceRecord:
        """Returns a copy with changes and the same source partition and offset."""
        # Every transform copies every record here; this takes half as long as the constructor.
        copy = SourceRecord.__new__(SourceRecord)
        copy.source_partition = self.source_partition
        copy.source_offset = self.source_offset
        copy.topic = self.topic if topic is UNCHANGED else topic
        copy.value = self.value if value is UNCHANGED else value
        copy.value_schema = self.value_schema if value_schema is UNCHANGED else value_schema
        copy.key = self.key if key is UNCHANGED else key
        copy.key_schema = self.key_schema if key_schema is UNCHANGED else key_schema
        copy.kafka_partition = self.kafka_partition if partition is UNCHANGED else partition
        copy.timestamp = self.timestamp if timestamp is UNCHANGED else timestamp
        copy.raw_headers = _copied(self.raw_headers) if headers is UNCHANGED else headers
        return copy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SourceRecord):
            return NotImplemented
        return (
            self.source_partition == other.source_partition
            and self.source_offset == other.source_offset
            and self._common() == other._common()
        )

    # Like lists and dicts, which a record may hold, it is not hashable.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"SourceRecord(source_partition={self.source_partition}, source_offset={self.source_offset}, "
            f"topic={self.topic!r}, partition={self.kafka_partition}, key={self.key!r}, value={self.value!r}, "
            f"timestamp={self.timestamp})"
        )


class SinkRecord(ConnectRecord):
    """A record from Kafka.

    Use keyword arguments, or the order of Java's constructors: ``topic, partition, key_schema, key, value_schema,
    value, kafka_offset``, then optionally ``timestamp, timestamp_type``, ``headers``, and the three original
    coordinates.

    Args:
        topic: The topic, as transforms left it.
        partition: The partition, as transforms left it.
        kafka_offset: Its offset.
        value: The value; None is a tombstone.
        value_schema: Its schema; None = schemaless.
        key: The key.
        key_schema: Its schema; None = schemaless.
        timestamp: Milliseconds since 1970 UTC, or None.
        timestamp_type: The meaning of the timestamp.
        headers: The headers.
        original_topic: The topic it was read from; None: ``topic``.
        original_kafka_partition: The partition it was read from; None: ``partition``.
        original_kafka_offset: Its offset there; None: ``kafka_offset``.

    Offsets in ``pre_commit``, ``open``, ``close`` and the context always refer to the original topic and partition.

    Source: org.apache.kafka.connect.sink.SinkRecord, KIP-793.
    """

    __slots__ = (
        "_delivered",
        "kafka_offset",
        "original_kafka_offset",
        "original_kafka_partition",
        "original_topic",
        "timestamp_type",
    )

    kafka_offset: int
    timestamp_type: TimestampType
    original_topic: str
    original_kafka_partition: int | None
    original_kafka_offset: int
    # The worker's message batch, whose bytes must live as long as the record and its copies.
    _delivered: object

    def __init__(
        self,
        topic: str,
        partition: int | None,
        kafka_offset: int | Schema | None,
        value: object,
        *more: Any,
        value_schema: Schema | None = None,
        key: object = None,
        key_schema: Schema | None = None,
        timestamp: int | None = None,
        timestamp_type: TimestampType = TimestampType.NO_TIMESTAMP_TYPE,
        headers: ConnectHeaders | None = None,
        original_topic: str | None = None,
        original_kafka_partition: int | None = None,
        original_kafka_offset: int | None = None,
    ) -> None:
        if more:
            named = {
                "value_schema": value_schema,
                "key": key,
                "key_schema": key_schema,
                "timestamp": timestamp,
                "timestamp_type": None if timestamp_type is TimestampType.NO_TIMESTAMP_TYPE else timestamp_type,
                "headers": headers,
                "original_topic": original_topic,
                "original_kafka_partition": original_kafka_partition,
                "original_kafka_offset": original_kafka_offset,
            }
            given = _in_java_order("SinkRecord(topic, partition", _SINK_FORMS, (kafka_offset, value, *more), named)
            SinkRecord.__init__(self, topic, partition, **given)
            return
        self.topic = topic
        self.kafka_partition = partition
        self.kafka_offset = kafka_offset  # type: ignore[assignment]
        self.value = value
        self.value_schema = value_schema
        self.key = key
        self.key_schema = key_schema
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.raw_headers = headers
        self.original_topic = topic if original_topic is None else original_topic
        self.original_kafka_partition = partition if original_kafka_partition is None else original_kafka_partition
        self.original_kafka_offset = self.kafka_offset if original_kafka_offset is None else original_kafka_offset
        self._delivered = None

    def new_record(
        self,
        topic: str | _Keep = UNCHANGED,
        partition: int | _Keep | None = UNCHANGED,
        key_schema: Schema | _Keep | None = UNCHANGED,
        key: object = UNCHANGED,
        value_schema: Schema | _Keep | None = UNCHANGED,
        value: object = UNCHANGED,
        timestamp: int | _Keep | None = UNCHANGED,
        headers: ConnectHeaders | _Keep | None = UNCHANGED,
    ) -> SinkRecord:
        """Returns a copy with changes and the same offset and original coordinates."""
        copy = SinkRecord(
            self.topic if topic is UNCHANGED else topic,
            self.kafka_partition if partition is UNCHANGED else partition,
            self.kafka_offset,
            self.value if value is UNCHANGED else value,
            value_schema=self.value_schema if value_schema is UNCHANGED else value_schema,
            key=self.key if key is UNCHANGED else key,
            key_schema=self.key_schema if key_schema is UNCHANGED else key_schema,
            timestamp=self.timestamp if timestamp is UNCHANGED else timestamp,
            timestamp_type=self.timestamp_type,
            headers=_copied(self.raw_headers) if headers is UNCHANGED else headers,
            original_topic=self.original_topic,
            original_kafka_partition=self.original_kafka_partition,
            original_kafka_offset=self.original_kafka_offset,
        )
        copy._delivered = self._delivered
        return copy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SinkRecord):
            return NotImplemented
        return (
            self.kafka_offset == other.kafka_offset
            and self.timestamp_type == other.timestamp_type
            and self.original_topic == other.original_topic
            and self.original_kafka_partition == other.original_kafka_partition
            and self.original_kafka_offset == other.original_kafka_offset
            and self._common() == other._common()
        )

    # Like lists and dicts, which a record may hold, it is not hashable.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"SinkRecord(topic={self.topic!r}, partition={self.kafka_partition}, kafka_offset={self.kafka_offset}, "
            f"key={self.key!r}, value={self.value!r}, timestamp={self.timestamp})"
        )


def _schema_of(value: object) -> Schema | None:
    return value.schema if isinstance(value, Struct) else None


#: The checked types of positional arguments; they catch one argument too many or too few.
_KINDS: Final[Mapping[str, type]] = {
    "value_schema": Schema,
    "key_schema": Schema,
    "partition": int,
    "kafka_offset": int,
    "timestamp": int,
    "headers": ConnectHeaders,
}


def _in_java_order(
    start: str, forms: tuple[tuple[str, ...], ...], given: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, Any]:
    """Maps the positional arguments of one of Java's constructors to their names.

    Args:
        start: The beginning of the call, for errors.
        forms: The argument names of each constructor.
        given: The positional arguments.
        named: The keyword arguments; None counts as not given.

    Raises:
        TypeError: The number or a type of the arguments fits no constructor, or one is also given by name.
    """
    names = next((form for form in forms if len(form) == len(given)), None)
    if names is None:
        counts = ", ".join(str(len(form) + start.count(",") + 1) for form in forms)
        raise TypeError(
            f"{start}, ...) takes {counts} arguments by position in Java's order, got "
            f"{len(given) + start.count(',') + 1}; give all but the value by name: value_schema=..., key=..."
        )
    form = f"{start}, {', '.join(names)})"
    for name, value in zip(names, given, strict=True):
        kind = _KINDS.get(name, object)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise TypeError(
                f"{form}: {name} must be of type {kind.__name__} or None, got {type(value).__name__}; "
                "so many arguments by position are in Java's order"
            )
        if named.get(name) is not None:
            raise TypeError(f"{form}: {name} is given by position and by name")
    found = {**named, **dict(zip(names, given, strict=True))}
    return {name: one for name, one in found.items() if one is not None or name == "value"}


def _copied(headers: ConnectHeaders | None) -> ConnectHeaders | None:
    return None if headers is None else headers.duplicate()
