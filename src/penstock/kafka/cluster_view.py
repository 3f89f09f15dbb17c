"""A producer's view of the cluster, and the meaning of the error codes in responses. No I/O.

Thread: the producer's own changes the view, under the producer's lock; the thread that sends reads ``partitions`` and
``fault`` under that lock.

Source: Metadata of the producer, KIP-361 and the protocol guide, "Metadata API" and "Error Codes".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from confluent_kafka import KafkaError

from penstock.kafka.protocol import BrokerEndpoint, ClusterMetadata

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
            topic_name_fault(topic) or f"The topic {topic} is one of Kafka's own: nobody may write to it"
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


#: A topic that a broker does not know may just have been created: it is requested again for this long.
PROPAGATION_S: Final = 30.0


@dataclass(frozen=True)
class TopicFault:
    """The reason why nothing can be sent to a topic.

    Attributes:
        unknown: True if the topic does not exist and the broker does not create it.
    """

    kind: ErrorKind
    unknown: bool


class ClusterView:
    """The latest known brokers and topics, and the requested topics."""

    def __init__(self, max_age_s: float, backoff_s: float, propagation_s: float = PROPAGATION_S) -> None:
        self._max_age_s = max_age_s
        self._backoff_s = backoff_s
        self._propagation_s = propagation_s
        self._brokers: Mapping[int, BrokerEndpoint] = {}
        self._leaders: dict[str, Mapping[int, int]] = {}
        self._faults: dict[str, TopicFault] = {}
        #: Topics that have lost partitions, with the time of a broker's first such response.
        self._shrunk: dict[str, float] = {}
        #: Requested topics that are unknown, with the time of a broker's first such response.
        self._asked: dict[str, float | None] = {}
        self._next_question = float("inf")
        self._last_question = float("-inf")

    @property
    def brokers(self) -> Mapping[int, BrokerEndpoint]:
        return self._brokers

    def want(self, topic: str, now: float) -> None:
        """Requests the metadata of a topic to send to, and forgets its earlier fault."""
        self._faults.pop(topic, None)
        if topic not in self._leaders and topic not in self._asked:
            self._asked[topic] = None
            self._next_question = now

    @property
    def awaited(self) -> list[str]:
        """Topics that a broker does not know, and that are requested again."""
        return sorted(topic for topic, since in self._asked.items() if since is not None)

    def partitions(self, topic: str) -> int | None:
        leaders = self._leaders.get(topic)
        return None if leaders is None else len(leaders)

    def fault(self, topic: str) -> TopicFault | None:
        """Returns the reason why nothing can be sent to a topic, or None if something can."""
        return self._faults.get(topic)

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition; None if there is none or it is unknown."""
        leader = self._leaders.get(topic, {}).get(partition, -1)
        return leader if leader in self._brokers else None

    def is_gone(self, topic: str, partition: int, now: float) -> bool:
        """True if a partition is gone permanently: its topic was created again with fewer partitions.

        Until the propagation time is over, False: a broker may not know all partitions of a new topic yet.
        """
        missing = topic in self._leaders and partition not in self._leaders[topic]
        return missing and now - self._shrunk.get(topic, now) >= self._propagation_s

    def doubt(self, now: float) -> None:
        """Requests metadata soon, because a response contradicts it; not more often than the backoff allows."""
        self._next_question = min(self._next_question, max(now, self._last_question + self._backoff_s))

    def question_at(self) -> float:
        """Returns the time of the next request (monotonic seconds)."""
        return self._next_question

    def question(self, now: float) -> list[str]:
        """Returns the topics to request now, and counts the request as sent."""
        self._last_question = now
        self._next_question = now + self._max_age_s
        return sorted({*self._leaders, *self._asked})

    def failed(self, now: float) -> None:
        self._next_question = now + self._backoff_s

    def learn(self, told: ClusterMetadata, now: float) -> None:
        if told.brokers:
            self._brokers = told.brokers
        again = False
        for topic, known in told.topics.items():
            if known.leaders and known.error_code == 0:
                before = len(self._leaders.get(topic, ()))
                if len(known.leaders) < before:
                    self._shrunk.setdefault(topic, now)
                elif len(known.leaders) > before:
                    self._shrunk.pop(topic, None)
                self._leaders[topic] = known.leaders
                self._asked.pop(topic, None)
                self._faults.pop(topic, None)
                again |= -1 in known.leaders.values()
                continue
            since = self._asked.get(topic)
            self._asked[topic] = since = now if since is None else since
            # A topic without partitions is about to be created.
            code = known.error_code or KafkaError.UNKNOWN_TOPIC_OR_PART
            kind = error_of(code)
            if kind.retriable and now - since < self._propagation_s:
                again = True
                continue
            self._leaders.pop(topic, None)
            del self._asked[topic]
            self._faults[topic] = TopicFault(kind, code == KafkaError.UNKNOWN_TOPIC_OR_PART)
        if again:
            self._next_question = now + self._backoff_s
