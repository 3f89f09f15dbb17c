"""Kafka's protocol as bytes: requests of the worker's own clients, and the brokers' responses. Pure functions.

``request`` encodes the fields of a request, which ``framed`` completes; ``response`` reads the fields of a response.
A string of more than 32,767 bytes raises ``ValueError``. A response that is truncated, or violates the protocol,
raises ``MalformedResponse``.

Source: Kafka protocol guide, "Protocol Primitive Types", "Common Request and Response Structure" and "The Messages";
KIP-467 (errors of single records), KIP-152 (logins), KIP-98 and KIP-360 (transactions), KIP-482 (compact strings).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

from penstock.errors import KafkaException

#: A topic and the number of one of its partitions.
Place = tuple[str, int]

_INTEGERS: Final = {kind: struct.Struct(f">{kind}") for kind in "bhiq"}
_INT32: Final = _INTEGERS["i"]
_HEADER: Final = struct.Struct(">hhi")
_LONGEST_STRING: Final = (1 << 15) - 1
_LARGEST_REQUEST: Final = (1 << 31) - 1
_LONGEST_VARINT_BITS: Final = 28
_NO_TAGS: Final = b"\0"


class Api(IntEnum):
    """The kinds of requests, by their API keys."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    OFFSET_DELETE = 47
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


class Message(NamedTuple):
    """One kind of request, and its response, in one version.

    Attributes:
        request, response: Their fields: b, h, i and q are integers, s is a string, S a nullable string, B bytes, and
            [...] an array with the fields of an item.
        flexible: True if lengths are compact and tagged fields follow (KIP-482).
    """

    api: Api
    version: int
    request: str
    response: str
    flexible: bool = False


#: The request has its own function, because record batches are not copied.
PRODUCE: Final = Message(Api.PRODUCE, 8, "", "[s[ihqqq[iS]S]]i")
METADATA: Final = Message(Api.METADATA, 1, "[s]", "[isiS]i[hsb[hii[i][i]]]")
FIND_COORDINATOR: Final = Message(Api.FIND_COORDINATOR, 2, "sb", "ihSisi")
SASL_HANDSHAKE: Final = Message(Api.SASL_HANDSHAKE, 1, "s", "h[s]")
API_VERSIONS: Final = Message(Api.API_VERSIONS, 0, "", "h[hhh]")
INIT_PRODUCER_ID: Final = Message(Api.INIT_PRODUCER_ID, 0, "Si", "ihqh")
#: The first version that sends the old id and epoch to the coordinator (KIP-360).
INIT_TRANSACTIONS: Final = Message(Api.INIT_PRODUCER_ID, 3, "siqh", "ihqh", flexible=True)
ADD_PARTITIONS: Final = Message(Api.ADD_PARTITIONS_TO_TXN, 2, "sqh[s[i]]", "i[s[ih]]")
END_TRANSACTION: Final = Message(Api.END_TXN, 2, "sqhb", "ih")
WRITE_MARKERS: Final = Message(Api.WRITE_TXN_MARKERS, 1, "[qhb[s[i]]i]", "[q[s[ih]]]", flexible=True)
SASL_AUTHENTICATE: Final = Message(Api.SASL_AUTHENTICATE, 1, "B", "hSBq")
OFFSET_DELETE: Final = Message(Api.OFFSET_DELETE, 0, "s[s[i]]", "hi[s[ih]]")
DESCRIBE_PRODUCERS: Final = Message(Api.DESCRIBE_PRODUCERS, 0, "[s[i]]", "i[s[ihS[qiiqiq]]]", flexible=True)
DESCRIBE_TRANSACTIONS: Final = Message(Api.DESCRIBE_TRANSACTIONS, 0, "[s]", "i[hssiqqh[s[i]]]", flexible=True)
LIST_TRANSACTIONS: Final = Message(Api.LIST_TRANSACTIONS, 0, "[s][q]", "ih[s][sqs]", flexible=True)

_PRODUCE_OPTIONS: Final = struct.Struct(">hii")
_PARTITION_RECORDS: Final = struct.Struct(">ii")
_TRANSACTION, _GROUP = 1, 0
_REPLICA_NOT_AVAILABLE: Final = 9


class MalformedResponse(KafkaException):
    """A response that violates Kafka's protocol."""

    java_name = "org.apache.kafka.common.protocol.types.SchemaException"


class UnsupportedVersionException(KafkaException):
    """A broker does not support the version of a request that this module sends."""

    java_name = "org.apache.kafka.common.errors.UnsupportedVersionException"


# ------------------------------------------------------------------------------------------------------------ fields
_Fields = tuple[Any, ...]


@cache
def _fields(text: str) -> _Fields:
    """The fields of a message; those of an array's items are a tuple.

    >>> _fields("s[ih]")
    ('s', ('i', 'h'))
    """
    stack: list[list[Any]] = [[]]
    for letter in text:
        if letter == "[":
            stack.append([])
        elif letter == "]":
            items = tuple(stack.pop())
            stack[-1].append(items)
        else:
            stack[-1].append(letter)
    return tuple(stack[0])


def _encoded(kinds: _Fields, values: Iterable[Any], flexible: bool) -> bytes:
    return b"".join(_field(kind, value, flexible) for kind, value in zip(kinds, values, strict=True))


def _field(kind: Any, value: Any, flexible: bool) -> bytes:
    if kind in _INTEGERS:
        return _INTEGERS[kind].pack(value)
    if isinstance(kind, tuple):
        if value is None:
            return _length(-1, "i", flexible)
        tags = _NO_TAGS if flexible and len(kind) > 1 else b""
        items = (_encoded(kind, one if len(kind) > 1 else (one,), flexible) + tags for one in value)
        return _length(len(value), "i", flexible) + b"".join(items)
    width = "i" if kind == "B" else "h"
    if value is None:
        return _length(-1, width, flexible)
    data: bytes = value if kind == "B" else value.encode()
    if width == "h" and len(data) > _LONGEST_STRING:
        raise ValueError(f"A string of {len(data)} bytes does not fit into a request: {value[:40]!r}...")
    return _length(len(data), width, flexible) + data


def _length(length: int, width: str, flexible: bool) -> bytes:
    """A number of bytes or items; -1 for null."""
    if not flexible:
        return _INTEGERS[width].pack(length)
    number = length + 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


class _Reader:
    """Reads a response field by field. An array item with one field is the value of that field."""

    __slots__ = ("_at", "_flexible", "_payload", "_what")

    def __init__(self, payload: memoryview, what: str, flexible: bool = False) -> None:
        self._payload = payload
        self._what = what
        self._flexible = flexible
        self._at = 0

    def integer(self, kind: str) -> int:
        layout, start = _INTEGERS[kind], self._at
        self._advance(layout.size)
        number: int = layout.unpack_from(self._payload, start)[0]
        return number

    def fields(self, kinds: _Fields) -> list[Any]:
        return [self._field(kind) for kind in kinds]

    def tags(self) -> None:
        """Skips tagged fields."""
        if self._flexible:
            for _ in range(self._unsigned()):
                self._unsigned()
                self._advance(self._unsigned())

    def end(self) -> None:
        if self._at != len(self._payload):
            raise self._malformed("more bytes than its fields have")

    def _field(self, kind: Any) -> Any:
        if kind in _INTEGERS:
            return self.integer(kind)
        if isinstance(kind, tuple):
            return self._array(kind)
        length = self._unsigned() - 1 if self._flexible else self.integer("i" if kind == "B" else "h")
        if length == -1 and kind == "S":
            return None
        if length == -1 and kind == "s":
            raise self._malformed("null where a string must be")
        if length < 0:
            raise self._malformed(f"{length} bytes" if kind == "B" else f"a string of {length} bytes")
        start = self._at
        self._advance(length)
        data = self._payload[start : self._at]
        if kind == "B":
            return bytes(data)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise self._malformed("a string that is not UTF-8") from error

    def _array(self, kinds: _Fields) -> list[Any]:
        length = self._unsigned() - 1 if self._flexible else self.integer("i")
        # Every item has at least one byte.
        if not 0 <= length <= len(self._payload) - self._at:
            raise self._malformed(f"an array of {length} items")
        if len(kinds) == 1:
            return [self._field(kinds[0]) for _ in range(length)]
        return [self._item(kinds) for _ in range(length)]

    def _item(self, kinds: _Fields) -> list[Any]:
        found = self.fields(kinds)
        self.tags()
        return found

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self.integer("b") & 0xFF
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > _LONGEST_VARINT_BITS:
                raise self._malformed("a number that does not end")

    def _advance(self, nbytes: int) -> None:
        if nbytes > len(self._payload) - self._at:
            raise self._malformed("fewer bytes than its fields have")
        self._at += nbytes

    def _malformed(self, found: str) -> MalformedResponse:
        return MalformedResponse(
            f"The answer to {self._what} is not what Kafka's protocol says: {found}"
            f" (at byte {self._at} of {len(self._payload)})"
        )


# ---------------------------------------------------------------------------------------------------------- messages
class BrokerRequest(NamedTuple):
    """The fields of a request, in buffers."""

    message: Message
    buffers: Sequence[bytes | memoryview]


def request(message: Message, *values: Any) -> BrokerRequest:
    """The request with the values of its fields."""
    tags = _NO_TAGS if message.flexible else b""
    return BrokerRequest(message, [_encoded(_fields(message.request), values, message.flexible) + tags])


def framed(request: BrokerRequest, correlation: int, client_id: str) -> list[bytes | memoryview]:
    """The buffers to write: size, header and fields; the buffers of record batches are not copied.

    Args:
        request: The fields.
        correlation: The number that the response begins with.
        client_id: The name of the client in the broker's log and quotas.
    """
    message = request.message
    head = _HEADER.pack(message.api, message.version, correlation) + _field("s", client_id, False)
    if message.flexible:
        head += _NO_TAGS
    size = len(head) + sum(map(len, request.buffers))
    if size > _LARGEST_REQUEST:
        raise ValueError(f"{size} bytes do not fit into one request")
    return [_INT32.pack(size) + head, *request.buffers]


def response(message: Message, payload: memoryview) -> list[Any]:
    """The values of a response's fields."""
    reader = _Reader(payload, f"{message.api.name} version {message.version}", message.flexible)
    reader.integer("i")  # the correlation id
    reader.tags()
    found = reader.fields(_fields(message.response))
    reader.tags()
    reader.end()
    return found


def correlation_of(payload: memoryview) -> int:
    """The number of the request that a response answers."""
    return _Reader(payload, "a request").integer("i")


def by_topic(places: Iterable[Place]) -> list[tuple[str, list[int]]]:
    """The topics of some partitions, each with the numbers of its partitions."""
    topics: dict[str, list[int]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())


def by_place(topics: Iterable[tuple[str, Iterable[Sequence[Any]]]]) -> dict[Place, Any]:
    """The reverse for a response: the value of each partition, or the list of its values."""
    return {
        (topic, number): rest[0] if len(rest) == 1 else rest
        for topic, partitions in topics
        for number, *rest in partitions
    }


# ---------------------------------------------------------------------------------------------- brokers and topics
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


class TopicMetadata(NamedTuple):
    """A topic as one broker knows it.

    Attributes:
        error_code: 0, or the reason why the broker does not describe the topic.
        leaders: The id of the broker that leads each partition; -1 if no listed broker does.
    """

    error_code: int
    leaders: Mapping[int, int]


class ClusterMetadata(NamedTuple):
    """The brokers of a cluster by id, and the topics that were asked for by name."""

    brokers: Mapping[int, BrokerEndpoint]
    topics: Mapping[str, TopicMetadata]


class FoundCoordinator(NamedTuple):
    """The broker that coordinates a transactional id or a group. Invalid if there is an error code."""

    error_code: int
    error_message: str | None
    address: BrokerEndpoint


def metadata_request(topics: Sequence[str] | None) -> BrokerRequest:
    """Asks for all brokers and for the leaders of some topics. The broker may create topics that do not exist.

    Args:
        topics: Names; empty for only the brokers, None for all topics that the user may see.
    """
    return request(METADATA, topics)


def metadata_response(payload: memoryview) -> ClusterMetadata:
    """The brokers and topics."""
    listed, _, topics = response(METADATA, payload)
    brokers = {node: BrokerEndpoint(host, port) for node, host, port, _ in listed}
    # A replica that is down does not matter for writing to the leader.
    usable = (0, _REPLICA_NOT_AVAILABLE)
    return ClusterMetadata(
        brokers,
        {
            name: TopicMetadata(
                error_code,
                {
                    index: leader if code in usable and leader in brokers else -1
                    for code, index, leader, _, _ in partitions
                },
            )
            for error_code, name, _, partitions in topics
        },
    )


def find_coordinator_request(transactional_id: str) -> BrokerRequest:
    """Asks which broker coordinates a transactional id."""
    return request(FIND_COORDINATOR, transactional_id, _TRANSACTION)


def find_group_coordinator_request(group: str) -> BrokerRequest:
    """Asks which broker coordinates a consumer group."""
    return request(FIND_COORDINATOR, group, _GROUP)


def find_coordinator_response(payload: memoryview) -> FoundCoordinator:
    """The broker that coordinates the id."""
    _, error_code, message, _, host, port = response(FIND_COORDINATOR, payload)
    return FoundCoordinator(error_code, message, BrokerEndpoint(host, port))


# --------------------------------------------------------------------------------------------------------- producers
class PartitionRecords(NamedTuple):
    """One record batch for one partition, in buffers: bytes, or views of single bytes."""

    topic: str
    partition: int
    buffers: tuple[bytes | memoryview, ...]


class PartitionAnswer(NamedTuple):
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


def produce_request(
    *, timeout_ms: int, records: Sequence[PartitionRecords], acks: int = -1, transactional_id: str | None = None
) -> BrokerRequest:
    """Sends record batches.

    Args:
        timeout_ms: The longest time that the broker waits for its replicas.
        records: At least one batch, and at most one for each partition; a topic's partitions need not be next to each
            other.
        acks: The replicas that must have the records before the broker answers: -1 for all in sync, 1 for the leader, 0
            for no answer.
        transactional_id: The id of the producer for a transaction.
    """
    if not records:
        raise ValueError("A produce request without records")
    topics: dict[str, list[PartitionRecords]] = {}
    for one in records:
        topics.setdefault(one.topic, []).append(one)
    # `fields` collects fields up to the buffers of the next batch.
    fields = bytearray(_field("S", transactional_id, False) + _PRODUCE_OPTIONS.pack(acks, timeout_ms, len(topics)))
    buffers: list[bytes | memoryview] = []
    for topic, batches in topics.items():
        fields += _field("s", topic, False) + _INT32.pack(len(batches))
        for batch in batches:
            nbytes = sum(map(len, batch.buffers))
            if nbytes > _LARGEST_REQUEST:
                raise ValueError(f"{nbytes} bytes do not fit into one request")
            fields += _PARTITION_RECORDS.pack(batch.partition, nbytes)
            buffers += (bytes(fields), *batch.buffers)
            fields.clear()
    return BrokerRequest(PRODUCE, buffers)


def produce_response(payload: memoryview) -> Sequence[PartitionAnswer]:
    """The result of each batch of a request.

    The throttle time is ignored: a broker that throttles a client does not read from it for that long (KIP-219).
    """
    topics, _ = response(PRODUCE, payload)
    return [
        PartitionAnswer(name, index, code, offset, time, [(row, text) for row, text in errors], message)
        for name, partitions in topics
        for index, code, offset, time, _, errors, message in partitions
    ]
