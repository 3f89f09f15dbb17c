"""Queries about transactions of other clients, the marker that aborts one, and the fencing of their producers.

Main functions: a ``..._request`` and a ``..._response`` for each of DescribeProducers, ListTransactions,
DescribeTransactions and WriteTxnMarkers. Main types: ``ActiveProducer``, a partition leader's description of a
producer; ``TransactionDescription``, a coordinator's description of a transactional id. All four are requests with
compact strings and tagged fields; brokers since Kafka 3.0 take them.

``fence_producers`` aborts the open transactions of transactional ids and stops their producers from sending;
``fence_zombies`` does so for a connector's former tasks, on the cluster of these tasks and with the connector's client
settings.

Thread: any; fencing blocks, everything else is pure.

Source: Admin.fenceProducers of Kafka (KIP-618), which is InitProducerId with each id; Worker.fenceZombies of Kafka
Connect; the Kafka protocol guide, "The Messages"; KIP-664 (the first three), KIP-98 (the last), KIP-482 (compact
forms)."""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.network.connections import ProducerConnections
from penstock.kafka.producer.transaction import Transaction, TransactionPhase
from penstock.kafka.producer.transaction_coordinator import NEEDS, Coordinator
from penstock.kafka.protocol.messages import INT8, INT16, INT32, INT64, Api, FieldReader, body, header, sized
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

T = TypeVar("T")

#: A topic and the number of one of its partitions.
Place = tuple[str, int]

_NO_TAGS: Final = b"\0"
_ACTIVE: Final = struct.Struct(">qiiqiq")
_NO_TRANSACTION: Final = -1


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer, as the leader of a partition describes it.

    Attributes:
        producer_id: Its id.
        epoch: Its epoch.
        last_timestamp_ms: The timestamp in the last batch that it has written there.
        coordinator_epoch: The epoch of the coordinator that ended its last transaction there; -1 for none.
        start_offset: The start of its open transaction; None if it has none there.
    """

    producer_id: int
    epoch: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A coordinator's description of a transactional id; the other fields are invalid if there is an error code.

    Attributes:
        error_code: The reason why the coordinator has no description; 0 if it has one.
        transactional_id: The id.
        state: ``Ongoing``, ``PrepareCommit``, ``Empty`` and the like.
        timeout_ms: The time after which the coordinator ends a transaction.
        producer_id: The id of the producer that has the transactional id.
        epoch: The epoch of that producer.
        places: The partitions of its transaction that still need a marker; none if no transaction is open.
    """

    error_code: int
    transactional_id: str
    state: str
    timeout_ms: int
    producer_id: int
    epoch: int
    places: frozenset[Place] = field(default=frozenset())


def describe_producers_request(correlation: int, client_id: str, places: Iterable[Place]) -> bytes:
    """Asks the leader of these partitions for the producers that have written there."""
    return sized(_head(Api.DESCRIBE_PRODUCERS, correlation, client_id), _topics(places), _NO_TAGS)


def describe_producers_response(payload: memoryview) -> Mapping[Place, tuple[int, Sequence[ActiveProducer]]]:
    """For each partition its error code and its producers.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
    fields = _answer(payload, Api.DESCRIBE_PRODUCERS)
    fields.integer(INT32)  # throttle time

    def producer() -> ActiveProducer:
        number, epoch, _, timestamp, coordinator, start = fields.integers(_ACTIVE)
        return ActiveProducer(number, epoch, timestamp, coordinator, None if start == _NO_TRANSACTION else start)

    def partition() -> tuple[int, tuple[int, Sequence[ActiveProducer]]]:
        index, error_code = fields.integer(INT32), fields.integer(INT16)
        fields.compact_nullable_string()
        return index, (error_code, fields.compact_array(lambda: _tagged(fields, producer)))

    return dict(_by_place(fields, partition))


def list_transactions_request(correlation: int, client_id: str, producer_ids: Sequence[int]) -> bytes:
    """Asks a broker for the transactional ids with these producer ids that it coordinates."""
    numbers = b"".join(INT64.pack(one) for one in producer_ids)
    return sized(
        _head(Api.LIST_TRANSACTIONS, correlation, client_id),
        _count(0),
        _count(len(producer_ids)),
        numbers,
        _NO_TAGS,
    )


def list_transactions_response(payload: memoryview) -> tuple[int, Mapping[int, str]]:
    """The error code, and the transactional ids that the user may see, by producer id.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
    fields = _answer(payload, Api.LIST_TRANSACTIONS)
    fields.integer(INT32)  # throttle time
    error_code = fields.integer(INT16)
    fields.compact_array(fields.compact_string)  # states that the broker does not know

    def one() -> tuple[int, str]:
        name, number = fields.compact_string(), fields.integer(INT64)
        fields.compact_string()  # its state
        return number, name

    found = fields.compact_array(lambda: _tagged(fields, one))
    fields.tags()
    fields.end()
    return error_code, dict(found)


def describe_transactions_request(correlation: int, client_id: str, transactional_ids: Sequence[str]) -> bytes:
    """Asks the coordinator of these ids about their transactions."""
    names = b"".join(_string(one) for one in transactional_ids)
    return sized(
        _head(Api.DESCRIBE_TRANSACTIONS, correlation, client_id), _count(len(transactional_ids)), names, _NO_TAGS
    )


def describe_transactions_response(payload: memoryview) -> Sequence[TransactionDescription]:
    """Parses the coordinator's description of each id.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
    fields = _answer(payload, Api.DESCRIBE_TRANSACTIONS)
    fields.integer(INT32)  # throttle time

    def topic() -> list[Place]:
        name = fields.compact_string()
        return [(name, number) for number in fields.compact_array(lambda: fields.integer(INT32))]

    def one() -> TransactionDescription:
        error_code, name, state = fields.integer(INT16), fields.compact_string(), fields.compact_string()
        timeout_ms, _ = fields.integer(INT32), fields.integer(INT64)
        producer_id, epoch = fields.integer(INT64), fields.integer(INT16)
        topics = fields.compact_array(lambda: _tagged(fields, topic))
        places = frozenset(place for places in topics for place in places)
        return TransactionDescription(error_code, name, state, timeout_ms, producer_id, epoch, places)

    found = fields.compact_array(lambda: _tagged(fields, one))
    fields.tags()
    fields.end()
    return found


def abort_marker_request(
    correlation: int, client_id: str, producer: tuple[int, int], coordinator_epoch: int, places: Iterable[Place]
) -> bytes:
    """Asks the leader of these partitions to abort the transaction of a producer.

    Args:
        correlation: Number of the request.
        client_id: The name of the client for the broker's log and quotas.
        producer: Producer id and epoch. A leader rejects an epoch that is older than the one it knows.
        coordinator_epoch: The epoch of the coordinator.
        places: The partitions.
    """
    producer_id, epoch = producer
    return sized(
        _head(Api.WRITE_TXN_MARKERS, correlation, client_id),
        _count(1),
        INT64.pack(producer_id),
        INT16.pack(epoch),
        INT8.pack(0),  # an abort
        _topics(places),
        INT32.pack(coordinator_epoch),
        _NO_TAGS,
        _NO_TAGS,
    )


def abort_marker_response(payload: memoryview) -> Mapping[Place, int]:
    """The error code of each partition.

    Raises:
        MalformedResponse: The response violates the protocol.
    """
    fields = _answer(payload, Api.WRITE_TXN_MARKERS)

    def topic() -> list[tuple[Place, int]]:
        name = fields.compact_string()
        codes = fields.compact_array(lambda: _tagged(fields, lambda: (fields.integer(INT32), fields.integer(INT16))))
        return [((name, number), code) for number, code in codes]

    def marker() -> list[tuple[Place, int]]:
        fields.integer(INT64)  # the producer id
        topics = fields.compact_array(lambda: _tagged(fields, topic))
        return [one for ones in topics for one in ones]

    found = fields.compact_array(lambda: _tagged(fields, marker))
    fields.tags()
    fields.end()
    return {place: code for codes in found for place, code in codes}


def _by_place(fields: FieldReader, read_partition: Callable[[], tuple[int, T]]) -> list[tuple[Place, T]]:
    """The end of a response that is one array of topics: the entry of each partition."""

    def topic() -> list[tuple[Place, T]]:
        name = fields.compact_string()
        found = fields.compact_array(lambda: _tagged(fields, read_partition))
        return [((name, number), one) for number, one in found]

    topics = fields.compact_array(lambda: _tagged(fields, topic))
    fields.tags()
    fields.end()
    return [one for ones in topics for one in ones]


def _tagged(fields: FieldReader, read: Callable[[], T]) -> T:
    """An item followed by tagged fields."""
    found = read()
    fields.tags()
    return found


def _head(api: Api, correlation: int, client_id: str) -> bytes:
    return header(api, correlation, client_id) + _NO_TAGS


def _answer(payload: memoryview, api: Api) -> FieldReader:
    fields = body(payload, api)
    fields.tags()
    return fields


def _topics(places: Iterable[Place]) -> bytes:
    topics: dict[str, list[int]] = {}
    for name, number in places:
        topics.setdefault(name, []).append(number)
    parts = [_count(len(topics))]
    for name, numbers in topics.items():
        parts += [_string(name), _count(len(numbers)), struct.pack(f">{len(numbers)}i", *numbers), _NO_TAGS]
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _count(len(encoded)) + encoded


def _count(count: int) -> bytes:
    """A number of items or bytes, in the form in which 0 is null."""
    number = count + 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


#: The number of ids that are fenced at a time.
AT_A_TIME: Final = 8

Fenced = tuple[int, int] | KafkaException


def fence_producers(
    settings: ColumnSettings,
    transactional_ids: Iterable[str],
    timeout_s: float,
    *,
    name: str = "fencing",
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Fenced]:
    """Fences the producers that use these transactional ids.

    Args:
        settings: The settings of a producer: brokers, connections and login.
        transactional_ids: The ids; at most eight are fenced at a time.
        timeout_s: The timeout for all of them.
        name: A name for messages.
        clock: Monotonic seconds.

    Returns:
        For each id a new, unused producer id and epoch; or the reason why it could not be fenced:
        `TransactionalIdAuthorizationException` if the user has no right to it, `KafkaRetriableException` if the timeout
        expired.

    Raises:
        ConfigException: a key, a certificate or a package cannot be used.
    """
    waiting = deque(dict.fromkeys(transactional_ids))
    found: dict[str, Fenced] = {}
    if not waiting:
        return found
    deadline = clock() + timeout_s
    state = threading.Condition()
    connections = ProducerConnections(settings, name, NEEDS, clock, _nothing)
    asked: dict[str, tuple[Transaction, Coordinator]] = {}
    try:
        while (waiting or asked) and clock() < deadline and connections.fatal is None:
            while waiting and len(asked) < AT_A_TIME:
                one = waiting.popleft()
                transaction = Transaction(one, settings.retry_backoff, settings.retry_backoff_max)
                transaction.initialize()
                timeout = settings.transaction_timeout
                asked[one] = (
                    transaction,
                    Coordinator(transaction, connections, one, settings.client_id, timeout, state, clock),
                )
            now = clock()
            connections.tend(now)
            for _, coordinator in asked.values():
                coordinator.step(now, {})
            times = connections.times(now, waiting=True)
            times += [at for transaction, _ in asked.values() if (at := transaction.retry_at) > now]
            connections.wait(min([deadline, *times]) - now)
            _collect(asked, found)
        for one in (*asked, *waiting):
            found[one] = connections.fatal or KafkaRetriableException(
                f"The producer of the transactional id {one} was not fenced within {timeout_s:g} s: "
                f"{connections.trouble or 'its coordinator has not answered'}"
            )
    finally:
        connections.close()
    return found


def _collect(asked: dict[str, tuple[Transaction, Coordinator]], found: dict[str, Fenced]) -> None:
    """Moves the ids that are fenced, or failed permanently, from ``asked`` to ``found``."""
    for one, (transaction, _) in list(asked.items()):
        if transaction.phase is TransactionPhase.READY and transaction.identity is not None:
            found[one] = transaction.identity
        elif transaction.failure is not None:
            found[one] = transaction.failure
        else:
            continue
        del asked[one]


def _nothing() -> None:
    pass


def failed(fenced: Mapping[str, Fenced]) -> dict[str, KafkaException]:
    """The error of each id that could not be fenced."""
    return {one: result for one, result in fenced.items() if isinstance(result, KafkaException)}


#: The default timeout of Kafka's admin client for one call.
_TIMEOUT_S: Final = 60.0


def fence_zombies(
    worker: Mapping[str, str], connector: str, config: Mapping[str, str], ids: Sequence[str]
) -> dict[str, KafkaException]:
    """Fences the producers of a connector with these transactional ids.

    Args:
        worker: The worker's settings.
        connector: The name of the connector.
        config: Its settings, placeholders resolved.
        ids: The transactional ids.

    Returns:
        The error of each id that could not be fenced.

    Raises:
        ConfigException: the settings of the connector's producers cannot be used.
    """
    # The connector's producers may use another cluster than the worker's; their ids belong to that cluster.
    client = producer_settings(worker, config, client_id=f"connector-fencing-{connector}")
    return failed(fence_producers(ColumnSettings.of(client), ids, _TIMEOUT_S, name=f"{connector} (fencing)"))
