"""Kafka's protocol as bytes, and the meaning of its error codes. Pure functions.

``request`` encodes the fields of a request, which ``framed`` completes; ``response`` reads the fields of a response. A
string of more than 32,767 bytes raises ``ValueError``. A response that is truncated, or violates the protocol, raises
``MalformedResponse``.

Source: Kafka protocol guide, "Protocol Primitive Types", "Common Request and Response Structure", "The Messages" and
"Error Codes"; KIP-467 (errors of single records), KIP-152 (logins), KIP-98 and KIP-360 (transactions), KIP-482 (compact
strings).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from types import MappingProxyType
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


_INVALID_TOPIC: Final = 17
_LONGEST_NAME: Final = 249
_TOPIC_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{_LONGEST_NAME}}}")


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """An error of the protocol.

    Attributes:
        retriable: True if the same request may succeed later, as Java's class hierarchy says.
    """

    code: int
    name: str
    java_name: str
    retriable: bool
    text: str

    def saying(self, text: str | None) -> ErrorKind:
        return replace(self, text=text) if text else self

    def about(self, topic: str) -> ErrorKind:
        if self is not ERRORS.get(_INVALID_TOPIC):
            return self
        return self.saying(
            topic_name_fault(topic) or f"The topic {topic} is one of Kafka's own: clients may not write to it"
        )


def topic_name_fault(topic: str) -> str | None:
    """Returns the reason why a text is no name of a topic, or None if it is one.

    >>> topic_name_fault("a-1")
    """
    if _TOPIC_NAME.fullmatch(topic) and topic.strip("."):
        return None
    return (
        f"{topic[:_LONGEST_NAME]!r} is no name of a topic: it has 1 to {_LONGEST_NAME} letters (a to z), digits, "
        "'.', '_' and '-', and is not '.' or '..'"
    )


#: Source: Kafka protocol guide, "Error Codes". Retriable errors extend Java's RetriableException.
_ROWS: Final = (
    (-1, "UNKNOWN_SERVER_ERROR", "UnknownServerException", False, "The broker failed; its log says why"),
    (2, "CORRUPT_MESSAGE", "CorruptRecordException", True,
     "The batch arrived damaged, or holds a record that the topic does not take, as one without key if compacted"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", "UnknownTopicOrPartitionException", True,
     "The broker does not have this topic or partition"),
    (5, "LEADER_NOT_AVAILABLE", "LeaderNotAvailableException", True, "The partition has no leader at the moment"),
    (6, "NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollowerException", True, "Another broker leads the partition by now"),
    (7, "REQUEST_TIMED_OUT", "TimeoutException", True, "The replicas did not get the records in time"),
    (8, "BROKER_NOT_AVAILABLE", "BrokerNotAvailableException", False, "A broker that is needed is not there"),
    (9, "REPLICA_NOT_AVAILABLE", "ReplicaNotAvailableException", True, "A replica of the partition is not there"),
    (10, "MESSAGE_TOO_LARGE", "RecordTooLargeException", False,
     "The batch is larger than max.message.bytes of the topic, or message.max.bytes of the broker"),
    (13, "NETWORK_EXCEPTION", "NetworkException", True, "The broker lost a connection that it needed"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", "CoordinatorLoadInProgressException", True,
     "The broker is not ready yet to give out producer ids"),
    (15, "COORDINATOR_NOT_AVAILABLE", "CoordinatorNotAvailableException", True,
     "The broker that gives out producer ids is not there"),
    (16, "NOT_COORDINATOR", "NotCoordinatorException", True, "Another broker coordinates this producer"),
    (17, "INVALID_TOPIC_EXCEPTION", "InvalidTopicException", False,
     "The topic has a name that no producer may write to"),
    (18, "RECORD_LIST_TOO_LARGE", "RecordBatchTooLargeException", False,
     "The batch is larger than segment.bytes of the topic"),
    (19, "NOT_ENOUGH_REPLICAS", "NotEnoughReplicasException", True,
     "Fewer replicas than min.insync.replicas are in sync; nothing was stored"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NotEnoughReplicasAfterAppendException", True,
     "The leader has the records, but fewer replicas than min.insync.replicas do"),
    (21, "INVALID_REQUIRED_ACKS", "InvalidRequiredAcksException", False, "The broker does not know this value of acks"),
    (29, "TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException", False, "The user may not write to the topic"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", "ClusterAuthorizationException", False,
     "The user may not write idempotently to this cluster"),
    (32, "INVALID_TIMESTAMP", "InvalidTimestampException", False,
     "A timestamp is further from the broker's time than the topic allows"),
    (33, "UNSUPPORTED_SASL_MECHANISM", "UnsupportedSaslMechanismException", False,
     "The broker does not do this kind of authentication"),
    (34, "ILLEGAL_SASL_STATE", "IllegalSaslStateException", False, "The broker wants the client to authenticate first"),
    (35, "UNSUPPORTED_VERSION", "UnsupportedVersionException", False,
     "The broker does not know this version of the request"),
    (36, "TOPIC_ALREADY_EXISTS", "TopicExistsException", False, "The topic was being created already"),
    (37, "INVALID_PARTITIONS", "InvalidPartitionsException", False,
     "The topic cannot be created with the broker's num.partitions"),
    (38, "INVALID_REPLICATION_FACTOR", "InvalidReplicationFactorException", False,
     "The topic cannot be created: there are fewer brokers than default.replication.factor"),
    (40, "INVALID_CONFIG", "InvalidConfigurationException", False, "The topic cannot be created with these settings"),
    (41, "NOT_CONTROLLER", "NotControllerException", True, "Another broker is the controller by now"),
    (42, "INVALID_REQUEST", "InvalidRequestException", False, "The broker takes the request for malformed"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UnsupportedForMessageFormatException", False,
     "The topic keeps an old message format, which cannot hold these records"),
    (44, "POLICY_VIOLATION", "PolicyViolationException", False, "A policy of the broker does not allow it"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", "OutOfOrderSequenceException", False,
     "Batches of this producer are missing in front of this one"),
    (46, "DUPLICATE_SEQUENCE_NUMBER", "DuplicateSequenceException", False,
     "The batch is stored already, too long ago to tell where"),
    (47, "INVALID_PRODUCER_EPOCH", "InvalidProducerEpochException", False,
     "A later epoch of this producer has written already"),
    (48, "INVALID_TXN_STATE", "InvalidTxnStateException", False, "There is no transaction that this could belong to"),
    (49, "INVALID_PRODUCER_ID_MAPPING", "InvalidPidMappingException", False,
     "The producer id is not that of the transactional id"),
    (50, "INVALID_TRANSACTION_TIMEOUT", "InvalidTxnTimeoutException", False,
     "The transaction timeout is above transaction.max.timeout.ms of the broker"),
    (51, "CONCURRENT_TRANSACTIONS", "ConcurrentTransactionsException", True,
     "Another operation of the same producer is in progress"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorizationException", False,
     "The user may not use this transactional id"),
    (55, "OPERATION_NOT_ATTEMPTED", "OperationNotAttemptedException", False,
     "Nothing was tried because of another partition"),
    (56, "KAFKA_STORAGE_ERROR", "KafkaStorageException", True, "The broker cannot use the disk of the partition"),
    (58, "SASL_AUTHENTICATION_FAILED", "SaslAuthenticationException", False, "The broker does not accept the user"),
    (59, "UNKNOWN_PRODUCER_ID", "UnknownProducerIdException", False,
     "The broker has forgotten this producer, all of whose records have expired"),
    (60, "REASSIGNMENT_IN_PROGRESS", "ReassignmentInProgressException", False,
     "The partition is being moved to other brokers"),
    (72, "LISTENER_NOT_FOUND", "ListenerNotFoundException", True,
     "The leader has no listener of the kind that the client is connected to"),
    (74, "FENCED_LEADER_EPOCH", "FencedLeaderEpochException", True, "The partition has a newer leader"),
    (75, "UNKNOWN_LEADER_EPOCH", "UnknownLeaderEpochException", True,
     "The broker has not heard yet of the partition's newest leader"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", "UnsupportedCompressionTypeException", False,
     "The broker does not know this compression in this version of the request"),
    (78, "OFFSET_NOT_AVAILABLE", "OffsetNotAvailableException", True, "The partition's new leader is not ready yet"),
    (87, "INVALID_RECORD", "InvalidRecordException", False, "The topic does not take a record of this kind"),
    (89, "THROTTLING_QUOTA_EXCEEDED", "ThrottlingQuotaExceededException", True,
     "The user has asked for more than its quota"),
    (90, "PRODUCER_FENCED", "ProducerFencedException", False, "Another producer has taken the transactional id"),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", "PrincipalDeserializationException", False,
     "The controller cannot read who the user is"),
    (100, "UNKNOWN_TOPIC_ID", "UnknownTopicIdException", True, "The broker does not have a topic of this id"),
    (103, "INCONSISTENT_TOPIC_ID", "InconsistentTopicIdException", True, "The topic was deleted and created again"),
    (120, "TRANSACTION_ABORTABLE", "TransactionAbortableException", False,
     "The transaction cannot be committed any more"),
)  # fmt: skip

#: The errors in responses to a producer, by code.
ERRORS: Final[Mapping[int, ErrorKind]] = MappingProxyType({row[0]: ErrorKind(*row) for row in _ROWS})


#: The broker does not know the producer id (any more), or knows a newer epoch of it.
ID_GONE: Final = frozenset({47, 49, 59, 90})
#: A broker's errors for a whole batch because of some of its records: too large, or invalid.
BLAMES_SOME: Final = frozenset({10, 18, 32, 87})
#: After these errors a batch is certainly not stored; after other retriable errors it may be.
NOT_STORED: Final = frozenset({2, 3, 5, 6, 9, 19, 72, 74, 75, 78, 89, 100, 103})
#: After these errors the leader may have changed.
LEADER_IN_DOUBT: Final = frozenset({3, 5, 6, 9, 13, 56, 72, 74, 75, 100})


def error_of(code: int) -> ErrorKind:
    """Returns the meaning of an error code. An unlisted code counts as an unexpected error of the broker, as in Java.

    >>> error_of(6).name, error_of(6).retriable
    ('NOT_LEADER_OR_FOLLOWER', True)
    >>> error_of(4711).name, error_of(4711).text
    ('UNKNOWN_SERVER_ERROR', 'The broker answered with error 4711, which is not known here')
    """
    if (found := ERRORS.get(code)) is not None:
        return found
    unknown = ERRORS[-1]
    text = f"The broker answered with error {code}, which is not known here"
    return ErrorKind(code, unknown.name, unknown.java_name, unknown.retriable, text)
