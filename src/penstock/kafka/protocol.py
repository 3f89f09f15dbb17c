"""Kafka's protocol as bytes: requests of the worker's own clients, and the brokers' responses. Pure functions.

Requests begin with their size; a string of more than 32,767 bytes raises ``ValueError``. Responses come without their
size: they begin with the number of the request (correlation id). A response that is truncated, or violates the
protocol, raises ``MalformedResponse``.

Source: Kafka protocol guide, "Protocol Primitive Types", "Common Request and Response Structure" and "The Messages";
KIP-467 (errors of single records), KIP-152 (logins), KIP-98 and KIP-360 (transactions), KIP-482 (compact strings).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeVar

from penstock.errors import KafkaException

T = TypeVar("T")

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
_BYTE: Final = struct.Struct(">B")
_LONGEST_VARINT_BITS: Final = 28
_HEADER: Final = struct.Struct(">hhi")
_LONGEST_STRING: Final = (1 << 15) - 1
_LARGEST_REQUEST: Final = (1 << 31) - 1


class Api(IntEnum):
    """The kinds of requests, by their API keys."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    SASL_AUTHENTICATE = 36
    OFFSET_DELETE = 47
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


#: The version of each request; a producer with transactions requests its id in another version, see
#: `transaction_coordinator`.
VERSIONS: Final[Mapping[Api, int]] = MappingProxyType(
    {
        Api.PRODUCE: 8,
        Api.METADATA: 1,
        Api.FIND_COORDINATOR: 2,
        Api.SASL_HANDSHAKE: 1,
        Api.API_VERSIONS: 0,
        Api.INIT_PRODUCER_ID: 0,
        Api.ADD_PARTITIONS_TO_TXN: 2,
        Api.END_TXN: 2,
        Api.WRITE_TXN_MARKERS: 1,
        Api.SASL_AUTHENTICATE: 1,
        Api.OFFSET_DELETE: 0,
        Api.DESCRIBE_PRODUCERS: 0,
        Api.DESCRIBE_TRANSACTIONS: 0,
        Api.LIST_TRANSACTIONS: 0,
    }
)


class MalformedResponse(KafkaException):
    """A response that violates Kafka's protocol."""

    java_name = "org.apache.kafka.common.protocol.types.SchemaException"


class UnsupportedVersionException(KafkaException):
    """A broker does not support the version of a request that this module sends."""

    java_name = "org.apache.kafka.common.errors.UnsupportedVersionException"


def header(api: Api, correlation: int, client_id: str) -> bytes:
    """The header of a request."""
    return _HEADER.pack(api, VERSIONS[api], correlation) + string(client_id)


def string(text: str | None) -> bytes:
    """A string with its length."""
    if text is None:
        return INT16.pack(-1)
    encoded = text.encode()
    if len(encoded) > _LONGEST_STRING:
        raise ValueError(f"A string of {len(encoded)} bytes does not fit into a request: {text[:40]!r}...")
    return INT16.pack(len(encoded)) + encoded


def sized(*parts: bytes) -> bytes:
    """A request with its size in front."""
    request = b"".join(parts)
    return INT32.pack(within_request(len(request))) + request


def within_request(nbytes: int) -> int:
    """Returns a size if a request may have that many bytes; raises otherwise."""
    if nbytes > _LARGEST_REQUEST:
        raise ValueError(f"{nbytes} bytes do not fit into one request")
    return nbytes


def body(payload: memoryview, api: Api) -> FieldReader:
    """The fields of a response after its header."""
    fields = FieldReader(payload, f"{api.name} version {VERSIONS[api]}")
    fields.integer(INT32)
    return fields


class FieldReader:
    """Reads a response field by field."""

    __slots__ = ("_at", "_payload", "_what")

    def __init__(self, payload: memoryview, what: str) -> None:
        self._payload = payload
        self._what = what
        self._at = 0

    def integers(self, layout: struct.Struct) -> tuple[int, ...]:
        start = self._at
        self._advance(layout.size)
        return layout.unpack_from(self._payload, start)

    def integer(self, layout: struct.Struct) -> int:
        return self.integers(layout)[0]

    def nullable_string(self) -> str | None:
        length = self.integer(INT16)
        if length == -1:
            return None
        if length < 0:
            raise self._malformed(f"a string of {length} bytes")
        return self._text(length)

    def _text(self, length: int) -> str:
        start = self._at
        self._advance(length)
        try:
            return str(self._payload[start : self._at], "utf-8")
        except UnicodeDecodeError as error:
            raise self._malformed("a string that is not UTF-8") from error

    def string(self) -> str:
        found = self.nullable_string()
        if found is None:
            raise self._malformed("null where a string must be")
        return found

    def compact_nullable_string(self) -> str | None:
        """A string, or null, in the form of newer requests (KIP-482)."""
        length = self._unsigned() - 1
        if length < 0:
            return None
        return self._text(length)

    def compact_string(self) -> str:
        """A string in the form of newer requests."""
        found = self.compact_nullable_string()
        if found is None:
            raise self._malformed("null where a string must be")
        return found

    def compact_array(self, read_item: Callable[[], T]) -> list[T]:
        """Items after their count, in the form of newer requests."""
        length = self._unsigned() - 1
        if not 0 <= length <= len(self._payload) - self._at:
            raise self._malformed(f"an array of {length} items")
        return [read_item() for _ in range(length)]

    def tags(self) -> None:
        for _ in range(self._unsigned()):
            self._unsigned()
            self._advance(self._unsigned())

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.integers(_BYTE)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > _LONGEST_VARINT_BITS:
                raise self._malformed("a number that does not end")

    def chunk(self) -> bytes:
        length = self.integer(INT32)
        if length < 0:
            raise self._malformed(f"{length} bytes")
        start = self._at
        self._advance(length)
        return bytes(self._payload[start : self._at])

    def array(self, read_item: Callable[[], T]) -> list[T]:
        length = self.integer(INT32)
        # Every item has at least one byte.
        if not 0 <= length <= len(self._payload) - self._at:
            raise self._malformed(f"an array of {length} items")
        return [read_item() for _ in range(length)]

    def end(self) -> None:
        if self._at != len(self._payload):
            raise self._malformed("more bytes than its fields have")

    def _advance(self, nbytes: int) -> None:
        if nbytes > len(self._payload) - self._at:
            raise self._malformed("fewer bytes than its fields have")
        self._at += nbytes

    def _malformed(self, found: str) -> MalformedResponse:
        return MalformedResponse(
            f"The answer to {self._what} is not what Kafka's protocol says: {found}"
            f" (at byte {self._at} of {len(self._payload)})"
        )


_API_RANGE: Final = struct.Struct(">hhh")
_PARTITION_LEADER: Final = struct.Struct(">hii")
_PRODUCER_ID: Final = struct.Struct(">hqh")
_PARTITION_OFFSETS: Final = struct.Struct(">ihqqq")
_PRODUCE_OPTIONS: Final = struct.Struct(">hii")
_PARTITION_RECORDS: Final = struct.Struct(">ii")
_NO_LEADER: Final = -1
_NONE: Final = 0
_REPLICA_NOT_AVAILABLE: Final = 9
#: Only transactions use it, but a broker rejects values that are not positive, or above its transaction.max.timeout.ms.
_TRANSACTION_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The address at which a broker listens.

    >>> str(BrokerEndpoint("kafka.example.org", 9092)), str(BrokerEndpoint("::1", 9092))
    ('kafka.example.org:9092', '[::1]:9092')
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as one broker knows it.

    Attributes:
        error_code: 0, or the reason why the broker does not describe the topic.
        leaders: The id of the broker that leads each partition; -1 if no listed broker does.
    """

    error_code: int
    leaders: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The brokers of a cluster by id, and the topics that were asked for by name."""

    brokers: Mapping[int, BrokerEndpoint]
    topics: Mapping[str, TopicMetadata]


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The identity by which brokers recognize a producer's batches (KIP-98). Invalid if there is an error code."""

    error_code: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class LoginAnswer:
    """A broker's response to a login.

    Attributes:
        error_code: 0 if the login continues, or is complete.
        said: The bytes of the SASL mechanism.
        lifetime_ms: The time until the session ends; 0 for never.
    """

    error_code: int
    error_message: str | None
    said: bytes
    lifetime_ms: int


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """One record batch for one partition.

    Attributes:
        buffers: The batch, in parts: bytes, or views of single bytes.
    """

    topic: str
    partition: int
    buffers: tuple[bytes | memoryview, ...]


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The result of the batch for one partition.

    Attributes:
        error_code: 0 if the batch is stored.
        base_offset: The offset of its first record; -1 if it is not stored.
        log_append_time: Milliseconds since 1970 if the topic uses the broker's time, otherwise -1. For a duplicate
            batch, brokers return its largest timestamp in any case.
        record_errors: The records that made the broker reject the batch, by index, with the error if the broker names
            it.
    """

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time: int
    record_errors: Sequence[tuple[int, str | None]]
    error_message: str | None


# ---------------------------------------------------------------------------------------------------------- requests
def api_versions_request(correlation: int, client_id: str) -> bytes:
    """Asks for the request versions that the broker supports."""
    return sized(header(Api.API_VERSIONS, correlation, client_id))


def metadata_request(correlation: int, client_id: str, topics: Sequence[str] | None) -> bytes:
    """Asks for all brokers and for the leaders of some topics. The broker may create topics that do not exist.

    Args:
        topics: Names; empty for only the brokers, None for all topics that the user may see.
    """
    count = -1 if topics is None else len(topics)
    names = [string(topic) for topic in topics or ()]
    return sized(header(Api.METADATA, correlation, client_id), INT32.pack(count), *names)


def init_producer_id_request(correlation: int, client_id: str) -> bytes:
    """Asks for the identity of an idempotent producer without transactions (KIP-98)."""
    return sized(
        header(Api.INIT_PRODUCER_ID, correlation, client_id), string(None), INT32.pack(_TRANSACTION_TIMEOUT_MS)
    )


def sasl_handshake_request(correlation: int, client_id: str, mechanism: str) -> bytes:
    """Asks if the broker supports this mechanism of login."""
    return sized(header(Api.SASL_HANDSHAKE, correlation, client_id), string(mechanism))


def sasl_authenticate_request(correlation: int, client_id: str, said: bytes) -> bytes:
    """Sends a message of the mechanism."""
    return sized(header(Api.SASL_AUTHENTICATE, correlation, client_id), INT32.pack(len(said)), said)


def produce_request(
    correlation: int,
    client_id: str,
    *,
    timeout_ms: int,
    records: Sequence[PartitionRecords],
    acks: int = -1,
    transactional_id: str | None = None,
) -> list[bytes | memoryview]:
    """Sends record batches.

    Args:
        records: At most one batch for each partition; a topic's partitions need not be next to each other.
        acks: The replicas that must have the records before the broker answers: -1 for all in sync, 1 for the leader, 0
            for no answer.

    Returns:
        The buffers to write, in order; the buffers of the batches are not copied.
    """
    if not records:
        raise ValueError("A produce request without records")
    topics: dict[str, list[PartitionRecords]] = {}
    for one in records:
        topics.setdefault(one.topic, []).append(one)
    # `fields` collects fields up to the buffers of the next batch.
    fields = bytearray(header(Api.PRODUCE, correlation, client_id) + string(transactional_id))
    fields += _PRODUCE_OPTIONS.pack(acks, timeout_ms, len(topics))
    buffers: list[bytes | memoryview] = []
    for topic, batches in topics.items():
        fields += string(topic) + INT32.pack(len(batches))
        for batch in batches:
            nbytes = within_request(sum(map(len, batch.buffers)))
            fields += _PARTITION_RECORDS.pack(batch.partition, nbytes)
            buffers += (bytes(fields), *batch.buffers)
            fields.clear()
    buffers[0] = INT32.pack(within_request(sum(map(len, buffers)))) + buffers[0]
    return buffers


# ----------------------------------------------------------------------------------------------------------- answers
def correlation_of(payload: memoryview) -> int:
    """The number of the request that a response answers."""
    return FieldReader(payload, "a request").integer(INT32)


def api_versions_response(payload: memoryview) -> tuple[int, Mapping[int, tuple[int, int]]]:
    """The error code, and the lowest and highest version that the broker supports, by API key."""
    fields = body(payload, Api.API_VERSIONS)
    error_code = fields.integer(INT16)
    ranges = fields.array(lambda: fields.integers(_API_RANGE))
    fields.end()
    return error_code, {api: (lowest, highest) for api, lowest, highest in ranges}


def metadata_response(payload: memoryview) -> ClusterMetadata:
    """The brokers and topics."""
    fields = body(payload, Api.METADATA)

    def broker() -> tuple[int, BrokerEndpoint]:
        node, host, port = fields.integer(INT32), fields.string(), fields.integer(INT32)
        fields.nullable_string()  # its rack
        return node, BrokerEndpoint(host, port)

    def partition() -> tuple[int, int]:
        error_code, index, leader = fields.integers(_PARTITION_LEADER)
        fields.array(lambda: fields.integer(INT32))  # replicas
        fields.array(lambda: fields.integer(INT32))  # in-sync replicas
        # A replica that is down does not matter for writing to the leader.
        known = error_code in (_NONE, _REPLICA_NOT_AVAILABLE) and leader in brokers
        return index, leader if known else _NO_LEADER

    def topic() -> tuple[str, TopicMetadata]:
        error_code, name = fields.integer(INT16), fields.string()
        fields.integer(INT8)  # True for Kafka's own internal topics.
        return name, TopicMetadata(error_code, dict(fields.array(partition)))

    brokers = dict(fields.array(broker))
    fields.integer(INT32)  # the controller
    topics = dict(fields.array(topic))
    fields.end()
    return ClusterMetadata(brokers, topics)


def init_producer_id_response(payload: memoryview) -> ProducerIdentity:
    """Parses the identity that a producer must use."""
    fields = body(payload, Api.INIT_PRODUCER_ID)
    fields.integer(INT32)  # throttle time
    error_code, producer_id, producer_epoch = fields.integers(_PRODUCER_ID)
    fields.end()
    return ProducerIdentity(error_code, producer_id, producer_epoch)


def sasl_handshake_response(payload: memoryview) -> tuple[int, Sequence[str]]:
    """The error code, and the mechanisms that the broker supports."""
    fields = body(payload, Api.SASL_HANDSHAKE)
    error_code = fields.integer(INT16)
    mechanisms = fields.array(fields.string)
    fields.end()
    return error_code, mechanisms


def sasl_authenticate_response(payload: memoryview) -> LoginAnswer:
    """Parses the broker's answer to a login."""
    fields = body(payload, Api.SASL_AUTHENTICATE)
    error_code, message, said = fields.integer(INT16), fields.nullable_string(), fields.chunk()
    lifetime_ms = fields.integer(INT64)
    fields.end()
    return LoginAnswer(error_code, message, said, lifetime_ms)


def produce_response(payload: memoryview) -> Sequence[PartitionAnswer]:
    """Parses the result of each batch of a request.

    The throttle time is ignored: a broker that throttles a client does not read from it for that long (KIP-219).
    """
    fields = body(payload, Api.PRODUCE)

    def record_error() -> tuple[int, str | None]:
        return fields.integer(INT32), fields.nullable_string()

    def topic() -> list[PartitionAnswer]:
        name = fields.string()

        def partition() -> PartitionAnswer:
            index, error_code, base_offset, log_append_time, _ = fields.integers(_PARTITION_OFFSETS)
            errors = fields.array(record_error)
            message = fields.nullable_string()
            return PartitionAnswer(name, index, error_code, base_offset, log_append_time, errors, message)

        return fields.array(partition)

    topics = fields.array(topic)
    fields.integer(INT32)  # throttle time
    fields.end()
    return [answer for answers in topics for answer in answers]


#: The request versions that brokers must support for transactions; since Kafka 2.5 they do.
INIT_PRODUCER_ID_VERSION: Final = 3


_ID_AND_EPOCH: Final = struct.Struct(">qh")


_TRANSACTION: Final = 1


_GROUP: Final = 0


_NO_TAGS: Final = b"\0"


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """The broker that coordinates a transactional id. Invalid if there is an error code."""

    error_code: int
    error_message: str | None
    address: BrokerEndpoint


def find_coordinator_request(correlation: int, client_id: str, transactional_id: str) -> bytes:
    """Asks which broker coordinates a transactional id."""
    return _find_request(correlation, client_id, transactional_id, _TRANSACTION)


def find_group_coordinator_request(correlation: int, client_id: str, group: str) -> bytes:
    """Asks which broker coordinates a consumer group."""
    return _find_request(correlation, client_id, group, _GROUP)


def _find_request(correlation: int, client_id: str, key: str, kind: int) -> bytes:
    return sized(header(Api.FIND_COORDINATOR, correlation, client_id), string(key), INT8.pack(kind))


def find_coordinator_response(payload: memoryview) -> FoundCoordinator:
    """Parses the broker that coordinates the id."""
    fields = body(payload, Api.FIND_COORDINATOR)
    fields.integer(INT32)  # throttle time
    error_code, message = fields.integer(INT16), fields.nullable_string()
    fields.integer(INT32)  # its id
    host, port = fields.string(), fields.integer(INT32)
    fields.end()
    return FoundCoordinator(error_code, message, BrokerEndpoint(host, port))


def init_transactions_request(
    correlation: int, client_id: str, transactional_id: str, timeout_ms: int, identity: tuple[int, int]
) -> bytes:
    """Requests the identity of a producer with transactions, which fences older instances.

    Args:
        identity: The old producer id and epoch; both are -1 for a producer that has none.
    """
    head = _HEADER.pack(Api.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, correlation) + string(client_id) + _NO_TAGS
    text = transactional_id.encode()
    return sized(head, _unsigned(len(text) + 1), text, INT32.pack(timeout_ms), _ID_AND_EPOCH.pack(*identity), _NO_TAGS)


def init_transactions_response(payload: memoryview) -> ProducerIdentity:
    """Parses the identity that the producer must use."""
    fields = body(payload, Api.INIT_PRODUCER_ID)
    fields.tags()
    fields.integer(INT32)  # throttle time
    error_code, producer_id, epoch = fields.integers(_PRODUCER_ID)
    fields.tags()
    fields.end()
    return ProducerIdentity(error_code, producer_id, epoch)


def add_partitions_request(
    correlation: int,
    client_id: str,
    transactional_id: str,
    identity: tuple[int, int],
    partitions: Sequence[tuple[str, int]],
) -> bytes:
    """Adds topic partitions to the open transaction; begins one if none is open."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [header(Api.ADD_PARTITIONS_TO_TXN, correlation, client_id), string(transactional_id)]
    parts += [_ID_AND_EPOCH.pack(*identity), INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += [string(topic), INT32.pack(len(numbers)), struct.pack(f">{len(numbers)}i", *numbers)]
    return sized(*parts)


def add_partitions_response(payload: memoryview) -> Mapping[tuple[str, int], int]:
    """The error code of each topic partition."""
    fields = body(payload, Api.ADD_PARTITIONS_TO_TXN)
    fields.integer(INT32)  # throttle time

    def topic() -> list[tuple[tuple[str, int], int]]:
        name = fields.string()
        return [((name, number), code) for number, code in fields.array(partition)]

    def partition() -> tuple[int, int]:
        return fields.integer(INT32), fields.integer(INT16)

    found = fields.array(topic)
    fields.end()
    return {place: code for codes in found for place, code in codes}


def end_transaction_request(
    correlation: int, client_id: str, transactional_id: str, identity: tuple[int, int], commit: bool
) -> bytes:
    """Commits or aborts the open transaction."""
    return sized(
        header(Api.END_TXN, correlation, client_id),
        string(transactional_id),
        _ID_AND_EPOCH.pack(*identity),
        INT8.pack(commit),
    )


def end_transaction_response(payload: memoryview) -> int:
    """The error code."""
    fields: FieldReader = body(payload, Api.END_TXN)
    fields.integer(INT32)  # throttle time
    error_code = fields.integer(INT16)
    fields.end()
    return error_code


def _unsigned(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
