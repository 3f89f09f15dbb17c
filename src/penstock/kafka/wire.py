"""The requests of a producer and the broker's answers to them, as the bytes of Kafka's protocol.

Main functions: a `..._request` and a `..._response` for each of `Api`, `correlation_of`, and `error_of` for what a
broker's error code means. `VERSIONS` says which version of each request is spoken; brokers since Kafka 2.4 know them
all.

Requests begin with their size, answers are given without it: they begin with the number of the request (correlation
id). Answers are checked: one that is cut short, or that says what the protocol does not allow, is `MalformedResponse`.

Thread: any; everything is pure.

Source: Kafka protocol guide, "Protocol Primitive Types", "Common Request and Response Structure" (request header v1,
response header v0) and "The Messages"; KIP-467 for the errors of single records.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeVar

from penstock.errors import KafkaException

T = TypeVar("T")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")
_API_RANGE: Final = struct.Struct(">hhh")
_PARTITION_LEADER: Final = struct.Struct(">hii")
_PRODUCER_ID: Final = struct.Struct(">hqh")
_PARTITION_OFFSETS: Final = struct.Struct(">ihqqq")
_PRODUCE_OPTIONS: Final = struct.Struct(">hii")
_PARTITION_RECORDS: Final = struct.Struct(">ii")
_ALL_REPLICAS: Final = -1
_NO_LEADER: Final = -1
_NONE: Final = 0
_REPLICA_NOT_AVAILABLE: Final = 9
#: Only transactions use it, but a broker refuses what is not positive, or above its transaction.max.timeout.ms.
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_LONGEST_STRING: Final = (1 << 15) - 1
_LARGEST_REQUEST: Final = (1 << 31) - 1


class Api(IntEnum):
    """The kinds of requests, by their API keys."""

    PRODUCE = 0
    METADATA = 3
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22


#: The version in which each request is sent.
VERSIONS: Final[Mapping[Api, int]] = MappingProxyType(
    {Api.PRODUCE: 8, Api.METADATA: 1, Api.API_VERSIONS: 0, Api.INIT_PRODUCER_ID: 0}
)


class MalformedResponse(KafkaException):
    """An answer that is not what Kafka's protocol says."""

    java_name = "org.apache.kafka.common.protocol.types.SchemaException"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens.

    >>> str(Address("kafka.example.org", 9092)), str(Address("::1", 9092))
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
        error_code: 0, or why the broker says nothing of it.
        leaders: Partition to the id of the broker that takes its records; -1 when no listed broker does.
    """

    error_code: int
    leaders: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The brokers of a cluster by id, and the topics that were asked for by name."""

    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicMetadata]


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What makes a producer's batches known to brokers (KIP-98). Without meaning when there is an error code."""

    error_code: int
    producer_id: int
    producer_epoch: int


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
    """What has become of the batch for one partition.

    Attributes:
        error_code: 0 when the batch is stored.
        base_offset: Of its first record; -1 when it is not stored.
        log_append_time: Milliseconds since 1970 where the topic keeps the broker's time, else -1. For a batch that was
            stored before (a duplicate), brokers give its largest timestamp, whatever the topic keeps.
        record_errors: Records that made the broker refuse the batch, by index in it, with what is wrong if it says so.
        error_message: What is wrong with the batch, if the broker says so.
    """

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time: int
    record_errors: Sequence[tuple[int, str | None]]
    error_message: str | None


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """An error of the protocol.

    Attributes:
        code: Its number.
        name: The protocol's name.
        java_name: Simple name of Java's exception.
        retriable: Whether the same request may succeed later, as Java's class hierarchy says.
        text: What it means for a producer.
    """

    code: int
    name: str
    java_name: str
    retriable: bool
    text: str

    def saying(self, text: str | None) -> ErrorKind:
        """The same error with what a broker, or the producer itself, says of this case."""
        return replace(self, text=text) if text else self

    def about(self, topic: str) -> ErrorKind:
        """The same error of this topic: what is wrong with a topic that is refused, its name tells."""
        if self is not ERRORS.get(_INVALID_TOPIC):
            return self
        if _TOPIC_NAME.fullmatch(topic) and topic.strip("."):
            return self.saying(f"The topic {topic} is one of Kafka's own: nobody may write to it")
        return self.saying(
            f"{topic[:_LONGEST_NAME]!r} is no name of a topic: it has 1 to {_LONGEST_NAME} letters (a to z), digits, "
            "'.', '_' and '-', and is not '.' or '..'"
        )


# ---------------------------------------------------------------------------------------------------------- requests
def api_versions_request(correlation: int, client_id: str) -> bytes:
    """Asks for the versions of all requests that the broker takes.

    Args:
        correlation: Number of the request.
        client_id: What the broker's log and quotas call the client.

    Raises:
        ValueError: The client id has more than 32,767 bytes.
    """
    return _sized(_header(Api.API_VERSIONS, correlation, client_id))


def metadata_request(correlation: int, client_id: str, topics: Sequence[str]) -> bytes:
    """Asks for all brokers and for the leaders of some topics. The broker may create topics that do not exist.

    Args:
        correlation: Number of the request.
        client_id: What the broker's log and quotas call the client.
        topics: Names; none asks for the brokers alone.

    Raises:
        ValueError: A string has more than 32,767 bytes.
    """
    return _sized(
        _header(Api.METADATA, correlation, client_id), _INT32.pack(len(topics)), *(_string(topic) for topic in topics)
    )


def init_producer_id_request(correlation: int, client_id: str) -> bytes:
    """Asks for the identity of an idempotent producer without transactions (KIP-98).

    Args:
        correlation: Number of the request.
        client_id: What the broker's log and quotas call the client.

    Raises:
        ValueError: The client id has more than 32,767 bytes.
    """
    return _sized(
        _header(Api.INIT_PRODUCER_ID, correlation, client_id), _string(None), _INT32.pack(_TRANSACTION_TIMEOUT_MS)
    )


def produce_request(
    correlation: int, client_id: str, *, timeout_ms: int, records: Sequence[PartitionRecords]
) -> list[bytes | memoryview]:
    """Hands over record batches, to be answered when all in-sync replicas have them (acks=all).

    Args:
        correlation: Number of the request.
        client_id: What the broker's log and quotas call the client.
        timeout_ms: How long the broker may wait for its replicas.
        records: One batch for each of some partitions; a topic's partitions need not be next to each other.

    Returns:
        The buffers to write one after the other. Those of the batches are among them as they are.

    Raises:
        ValueError: There are no records, a string has more than 32,767 bytes, or the request more than 2 GiB.
    """
    if not records:
        raise ValueError("A produce request without records")
    topics: dict[str, list[PartitionRecords]] = {}
    for one in records:
        topics.setdefault(one.topic, []).append(one)
    # Fields gather in `fields` until the buffers of a batch come between them.
    fields = bytearray(_header(Api.PRODUCE, correlation, client_id) + _string(None))
    fields += _PRODUCE_OPTIONS.pack(_ALL_REPLICAS, timeout_ms, len(topics))
    buffers: list[bytes | memoryview] = []
    for topic, batches in topics.items():
        fields += _string(topic) + _INT32.pack(len(batches))
        for batch in batches:
            nbytes = _within_request(sum(map(len, batch.buffers)))
            fields += _PARTITION_RECORDS.pack(batch.partition, nbytes)
            buffers += (bytes(fields), *batch.buffers)
            fields.clear()
    buffers[0] = _INT32.pack(_within_request(sum(map(len, buffers)))) + buffers[0]
    return buffers


def _header(api: Api, correlation: int, client_id: str) -> bytes:
    return _HEADER.pack(api, VERSIONS[api], correlation) + _string(client_id)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    encoded = text.encode()
    if len(encoded) > _LONGEST_STRING:
        raise ValueError(f"A string of {len(encoded)} bytes does not fit into a request: {text[:40]!r}...")
    return _INT16.pack(len(encoded)) + encoded


def _sized(*parts: bytes) -> bytes:
    request = b"".join(parts)
    return _INT32.pack(_within_request(len(request))) + request


def _within_request(nbytes: int) -> int:
    if nbytes > _LARGEST_REQUEST:
        raise ValueError(f"{nbytes} bytes do not fit into one request")
    return nbytes


# ----------------------------------------------------------------------------------------------------------- answers
def correlation_of(payload: memoryview) -> int:
    """The number of the request that is answered.

    Raises:
        MalformedResponse: It has fewer than four bytes.
    """
    return _Fields(payload, "a request").integer(_INT32)


def api_versions_response(payload: memoryview) -> tuple[int, Mapping[int, tuple[int, int]]]:
    """The error code, and by API key the lowest and the highest version that the broker takes.

    Raises:
        MalformedResponse: It is not what the protocol says.
    """
    fields = _body(payload, Api.API_VERSIONS)
    error_code = fields.integer(_INT16)
    ranges = fields.array(lambda: fields.integers(_API_RANGE))
    fields.end()
    return error_code, {api: (lowest, highest) for api, lowest, highest in ranges}


def metadata_response(payload: memoryview) -> Metadata:
    """The brokers and topics.

    Raises:
        MalformedResponse: It is not what the protocol says.
    """
    fields = _body(payload, Api.METADATA)

    def broker() -> tuple[int, Address]:
        node, host, port = fields.integer(_INT32), fields.string(), fields.integer(_INT32)
        fields.nullable_string()  # its rack
        return node, Address(host, port)

    def partition() -> tuple[int, int]:
        error_code, index, leader = fields.integers(_PARTITION_LEADER)
        fields.array(lambda: fields.integer(_INT32))  # replicas
        fields.array(lambda: fields.integer(_INT32))  # in-sync replicas
        # A replica that is down concerns nobody who writes to the leader.
        known = error_code in (_NONE, _REPLICA_NOT_AVAILABLE) and leader in brokers
        return index, leader if known else _NO_LEADER

    def topic() -> tuple[str, TopicMetadata]:
        error_code, name = fields.integer(_INT16), fields.string()
        fields.integer(_INT8)  # whether it is one of Kafka's own
        return name, TopicMetadata(error_code, dict(fields.array(partition)))

    brokers = dict(fields.array(broker))
    fields.integer(_INT32)  # the controller
    topics = dict(fields.array(topic))
    fields.end()
    return Metadata(brokers, topics)


def init_producer_id_response(payload: memoryview) -> ProducerIdentity:
    """The identity that a producer is to use.

    Raises:
        MalformedResponse: It is not what the protocol says.
    """
    fields = _body(payload, Api.INIT_PRODUCER_ID)
    fields.integer(_INT32)  # throttle time
    error_code, producer_id, producer_epoch = fields.integers(_PRODUCER_ID)
    fields.end()
    return ProducerIdentity(error_code, producer_id, producer_epoch)


def produce_response(payload: memoryview) -> Sequence[PartitionAnswer]:
    """What has become of each batch of a request.

    The throttle time is not told: a broker that throttles a client reads nothing from it for that long (KIP-219).

    Raises:
        MalformedResponse: It is not what the protocol says.
    """
    fields = _body(payload, Api.PRODUCE)

    def record_error() -> tuple[int, str | None]:
        return fields.integer(_INT32), fields.nullable_string()

    def topic() -> list[PartitionAnswer]:
        name = fields.string()

        def partition() -> PartitionAnswer:
            index, error_code, base_offset, log_append_time, _ = fields.integers(_PARTITION_OFFSETS)
            errors = fields.array(record_error)
            message = fields.nullable_string()
            return PartitionAnswer(name, index, error_code, base_offset, log_append_time, errors, message)

        return fields.array(partition)

    topics = fields.array(topic)
    fields.integer(_INT32)  # throttle time
    fields.end()
    return [answer for answers in topics for answer in answers]


def _body(payload: memoryview, api: Api) -> _Fields:
    fields = _Fields(payload, f"{api.name} version {VERSIONS[api]}")
    fields.integer(_INT32)
    return fields


class _Fields:
    """Reads an answer field by field."""

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
        length = self.integer(_INT16)
        if length == -1:
            return None
        if length < 0:
            raise self._malformed(f"a string of {length} bytes")
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

    def array(self, read_item: Callable[[], T]) -> list[T]:
        length = self.integer(_INT32)
        # Every item has some bytes.
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


# ------------------------------------------------------------------------------------------------------------ errors
_INVALID_TOPIC: Final = 17
_LONGEST_NAME: Final = 249
_TOPIC_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{_LONGEST_NAME}}}")

#: Source: Kafka protocol guide, "Error Codes"; which of them are retriable: what extends Java's RetriableException.
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
     "Another operation of the same producer is under way"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TransactionalIdAuthorizationException", False,
     "The user may not use this transactional id"),
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
)  # fmt: skip

#: The errors that a producer may be answered with, by code.
ERRORS: Final[Mapping[int, ErrorKind]] = MappingProxyType({row[0]: ErrorKind(*row) for row in _ROWS})


def error_of(code: int) -> ErrorKind:
    """What an error code means. One that is not listed counts as an unexpected error of the broker, as it does in Java.

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
