"""Sends the requests of a `Transaction` to its coordinator, over the connections of a producer.

Main type: `Coordinator`; `NEEDS` are the requests that brokers must support. In addition, as the bytes of Kafka's
protocol, a `..._request` and a `..._response` for each of FindCoordinator, InitProducerId, AddPartitionsToTxn and
EndTxn. Requests and responses are as in `penstock.kafka.protocol.messages`. InitProducerId uses version 3, the only one
that sends the old id and epoch to the coordinator (KIP-360); it is the only request here with compact strings and
tagged fields.

Thread: that of its connections; the given lock guards the transaction. The functions are pure.

Source: the Kafka protocol guide, "The Messages"; KIP-98, KIP-360, KIP-482 (compact strings, tagged fields).
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from penstock.kafka.network.connections import ProducerConnections
from penstock.kafka.network.transport import Link, LinkLostException
from penstock.kafka.producer.transaction import AddPartitions, FindCoordinator, Initialize, Question, Transaction
from penstock.kafka.protocol.cluster_view import error_of
from penstock.kafka.protocol.messages import (
    INT8,
    INT16,
    INT32,
    VERSIONS,
    Api,
    BrokerEndpoint,
    FieldReader,
    ProducerIdentity,
    body,
    header,
    sized,
    string,
)

#: The request versions that brokers must support for transactions; since Kafka 2.5 they do.
INIT_PRODUCER_ID_VERSION: Final = 3
_HEADER: Final = struct.Struct(">hhi")
_ID_AND_EPOCH: Final = struct.Struct(">qh")
_PRODUCER_ID: Final = struct.Struct(">hqh")
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
    """Parses the broker that coordinates the id.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
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
        correlation: Number of the request.
        client_id: The name of the client in the broker's log and quotas.
        transactional_id: The producer's id.
        timeout_ms: The time after which the coordinator aborts a transaction.
        identity: The old producer id and epoch; both are -1 for a producer that has none.

    Raises:
        ValueError: A string has more than 32,767 bytes.
    """
    head = _HEADER.pack(Api.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, correlation) + string(client_id) + _NO_TAGS
    text = transactional_id.encode()
    return sized(head, _unsigned(len(text) + 1), text, INT32.pack(timeout_ms), _ID_AND_EPOCH.pack(*identity), _NO_TAGS)


def init_transactions_response(payload: memoryview) -> ProducerIdentity:
    """Parses the identity that the producer must use.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
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
    """The error code of each topic partition.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
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
    """The error code.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
    fields: FieldReader = body(payload, Api.END_TXN)
    fields.integer(INT32)  # throttle time
    error_code = fields.integer(INT16)
    fields.end()
    return error_code


def _unsigned(number: int) -> bytes:
    """An unsigned varint."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


NEEDS: Final[Mapping[Api, int]] = MappingProxyType(
    {
        Api.FIND_COORDINATOR: VERSIONS[Api.FIND_COORDINATOR],
        Api.INIT_PRODUCER_ID: INIT_PRODUCER_ID_VERSION,
        Api.ADD_PARTITIONS_TO_TXN: VERSIONS[Api.ADD_PARTITIONS_TO_TXN],
        Api.END_TXN: VERSIONS[Api.END_TXN],
    }
)


class Coordinator:
    """The coordinator of one transactional id.

    Args:
        transaction: gives the requests to send.
        connections: the connections to the brokers.
        transactional_id: the producer's id.
        client_id: the name of the client in the brokers' logs.
        timeout_s: the time after which the coordinator aborts a transaction.
        state: held while the transaction changes, and notified afterwards.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        transaction: Transaction,
        connections: ProducerConnections,
        transactional_id: str,
        client_id: str,
        timeout_s: float,
        state: threading.Condition,
        clock: Callable[[], float],
    ) -> None:
        self._transaction = transaction
        self._connections = connections
        self._id = transactional_id
        self._client_id = client_id
        self._timeout_ms = round(timeout_s * 1000)
        self._state = state
        self._clock = clock
        self._address: BrokerEndpoint | None = None

    def step(self, now: float, known: Mapping[int, BrokerEndpoint]) -> None:
        """Sends the next request of the transaction, if any.

        Args:
            now: monotonic seconds.
            known: the known brokers.
        """
        with self._state:
            if now < self._transaction.retry_at:
                return
            # Do not take a request that cannot be sent now.
            if self._transaction.has_coordinator and self._address is not None:
                link = self._connections.to(self._address, now)
            else:
                link = self._connections.any(now, known)
            if link is None or not link.usable:
                self._given_up_on(link)
                return
            question = self._transaction.question(now)
        if question is not None:
            self._ask(link, question)

    def _given_up_on(self, link: Link | None) -> None:
        """Makes the transaction look for its coordinator again if the known coordinator cannot be reached."""
        if link is None and self._transaction.has_coordinator:
            self._transaction.has_coordinator = False

    def _ask(self, link: Link, question: Question) -> None:
        client_id, own = self._client_id, self._id

        def make(number: int) -> Sequence[bytes]:
            match question:
                case FindCoordinator():
                    return [find_coordinator_request(number, client_id, own)]
                case Initialize(identity):
                    return [init_transactions_request(number, client_id, own, self._timeout_ms, identity)]
                case AddPartitions(identity, places):
                    return [add_partitions_request(number, client_id, own, identity, places)]
                case _:
                    return [end_transaction_request(number, client_id, own, question.identity, question.commit)]

        def answered(payload: memoryview) -> None:
            now = self._clock()
            match question:
                case FindCoordinator():
                    found = find_coordinator_response(payload)
                    self._address = found.address
                    self._tell(found.error_code)
                    self._change(lambda: self._transaction.found(found.error_code, now))
                case Initialize():
                    made = init_transactions_response(payload)
                    self._tell(made.error_code)
                    identity = (made.producer_id, made.producer_epoch)
                    self._change(lambda: self._transaction.initialized(made.error_code, identity, now))
                case AddPartitions():
                    codes = add_partitions_response(payload)
                    self._change(lambda: self._transaction.added(codes, now))
                case _:
                    code = end_transaction_response(payload)
                    self._tell(code)
                    self._change(lambda: self._transaction.ended(code, now))

        self._connections.ask(link, make, answered, self._lost)

    def _lost(self, _: LinkLostException) -> None:
        self._change(lambda: self._transaction.lost(self._clock()))

    def _change(self, change: Callable[[], None]) -> None:
        with self._state:
            change()
            self._state.notify_all()

    def _tell(self, code: int) -> None:
        kind = error_of(code)
        if code and kind.retriable and kind.name != "CONCURRENT_TRANSACTIONS":
            self._connections.warn(
                kind.name, ": the coordinator of its transactions says %s; it is asked again", kind.name
            )
