"""Finds open transactions that hide later records of a partition, identifies their producers, and aborts hanging ones.

A transaction is open in a partition from its first record to its marker. If the coordinator has it in progress, the
coordinator will write the marker, so readers wait. If the coordinator does not have it in progress, the transaction is
*hanging*: no client will ever end it, and readers of committed records wait forever. A broker that stops while
transactions end can leave hanging ones. This module aborts those of this group of workers with a marker in every
affected partition; for other transactions, and without the rights, it names the command that aborts them.

To prove that a coordinator does not have it, the module queries the leader for open transactions, then the coordinator,
then the leader again. A transaction that is open before and after, from the same offset, was open in between, when the
coordinator did not have it. It must also have been open for longer than the timeout of its id. The marker carries an
epoch that a live producer of that id does not have: one that is older than its own, which a leader refuses if that
producer has written meanwhile; or one that is newer, where the coordinator knows no newer one, which fences that
producer and makes it start again. So the transaction of a live producer is never aborted.

Source: KIP-664 (``kafka-transactions.sh find-hanging``, ``abort``), KIP-98 (markers), KIP-482 (compact forms).
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final, TypeVar

from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.cluster_view import error_of
from penstock.kafka.network.connections import Conversation
from penstock.kafka.protocol import (
    INT8,
    INT16,
    INT32,
    INT64,
    VERSIONS,
    Api,
    BrokerEndpoint,
    ClusterMetadata,
    FieldReader,
    UnsupportedVersionException,
    body,
    find_coordinator_request,
    find_coordinator_response,
    header,
    metadata_request,
    metadata_response,
    sized,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.telemetry.logs import SeldomLog

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
    """For each partition its error code and its producers."""
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
    """The error code, and the transactional ids that the user may see, by producer id."""
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
    """Parses the coordinator's description of each id."""
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
        producer: Producer id and epoch. A leader rejects an epoch that is older than the one it knows.
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
    """The error code of each partition."""
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


logger = logging.getLogger(__name__)

NEEDS: Final = {
    api: VERSIONS[api]
    for api in (
        Api.METADATA,
        Api.FIND_COORDINATOR,
        Api.DESCRIBE_PRODUCERS,
        Api.LIST_TRANSACTIONS,
        Api.DESCRIBE_TRANSACTIONS,
        Api.WRITE_TXN_MARKERS,
    )
}
#: The time limit of one search, and of the wait for another search of this process.
LOOK_S: Final = 5.0
#: The number of partitions of one transaction for which the message has commands.
_NAMED: Final = 3
#: The brokers' default for the longest timeout (``transaction.max.timeout.ms``), used for ids without a description.
_LONGEST_TIMEOUT_MS: Final = 900_000
_UNDER_WAY: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_NONE: Final = 0
_NO_RIGHT: Final = frozenset({29, 31, 53})
_ID_NOT_FOUND: Final = 105
_LARGEST_EPOCH: Final = (1 << 15) - 1

_one_at_a_time = threading.Lock()


class HeldUpException(KafkaRetriableException):
    """A log cannot be read to its end, because a transaction is open in it."""

    def __init__(self, held_up: str, took: str) -> None:
        super().__init__(f"{took}: {held_up}")
        self.held_up = held_up


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that is open in one partition."""

    place: Place
    producer: ActiveProducer

    @property
    def key(self) -> tuple[Place, int, int | None]:
        """The identity of the transaction, different even from later ones of the same producer."""
        return self.place, self.producer.producer_id, self.producer.start_offset


class TransactionVerdict(Enum):
    """The verdicts on an open transaction."""

    UNDER_WAY = auto()
    """Its coordinator has it in progress, and will end it."""
    YOUNG = auto()
    """Its coordinator does not have it in progress, but its timeout is not over yet."""
    HANGING = auto()
    """No client will ever end it."""
    UNKNOWN = auto()
    """Its coordinator reports no usable state."""


def judge(open_one: OpenTransaction, described: TransactionDescription | None, age_ms: float) -> TransactionVerdict:
    """Judges an open transaction.

    Args:
        described: The coordinator's later description of the transactional id with its producer id; None if no id has
            it.
    """
    if described is not None and described.error_code not in (_NONE, _ID_NOT_FOUND):
        return TransactionVerdict.UNKNOWN
    known = described is not None and described.error_code == _NONE
    if described is not None and known:
        if described.state not in _UNDER_WAY and described.state in ("", "Unknown"):
            return TransactionVerdict.UNKNOWN
        own = described.producer_id == open_one.producer.producer_id
        if own and described.state in _UNDER_WAY and open_one.place in described.places:
            return TransactionVerdict.UNDER_WAY
    timeout_ms = described.timeout_ms if described is not None and known else _LONGEST_TIMEOUT_MS
    return TransactionVerdict.HANGING if age_ms >= timeout_ms else TransactionVerdict.YOUNG


def marker_epoch(producer: ActiveProducer, described: TransactionDescription) -> int:
    """The epoch of the marker that ends a hanging transaction: one that no live producer of the id has."""
    newer = described.producer_id != producer.producer_id or described.epoch > producer.epoch
    return producer.epoch if newer else min(producer.epoch + 1, _LARGEST_EPOCH)


class OpenTransactions:
    """Finds open transactions of one cluster for one group of workers.

    Args:
        wall_ms: The time of day, in milliseconds since 1970.
    """

    def __init__(
        self,
        settings: ColumnSettings,
        group: str,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        self._settings = settings
        self._group = group
        self._name = name
        self._clock = clock
        self._wall_ms = wall_ms
        #: The time at which each open transaction was first seen.
        self._seen: dict[tuple[Place, int, int | None], float] = {}
        self._unsupported = False
        # Shared by all searches, so that an unreachable broker is not logged by each.
        self._seldom = SeldomLog(logger)

    def is_own(self, transactional_id: str) -> bool:
        """True if an id belongs to this group: to a task, to changes of offsets, or to its leader."""
        leaders = "connect-cluster-"
        if transactional_id.startswith(leaders) and not f"{self._group}-".startswith(leaders):
            # With a group called "connect", the ids of the leaders of all groups begin like this.
            return transactional_id == f"{leaders}{self._group}"
        return transactional_id.startswith(f"{self._group}-") or transactional_id == f"{leaders}{self._group}"

    def look(self, places: Collection[Place], timeout_s: float = LOOK_S) -> str | None:
        """Finds open transactions in these partitions, and aborts hanging ones of this group.

        Never raises: the text, or the log at DEBUG, mentions failed requests.

        Returns:
            A text for people about the transactions that block readers of committed records; None if there are none.
        """
        if self._unsupported or not _one_at_a_time.acquire(timeout=timeout_s):
            return None
        try:
            talk = Conversation(
                self._settings, f"{self._name} (open transactions)", NEEDS, timeout_s, self._seldom, self._clock
            )
            try:
                return "; ".join(self._look(_Cluster(talk), places)) or None
            finally:
                talk.close()
        except UnsupportedVersionException as error:
            self._unsupported = True
            logger.debug("%s cannot search for open transactions: %s", self._name, error)
        except KafkaException as error:
            logger.debug("%s cannot search for open transactions now: %s", self._name, error)
        finally:
            _one_at_a_time.release()
        return None

    def _look(self, cluster: _Cluster, places: Collection[Place]) -> list[str]:
        opened, refused = cluster.open_in(places)
        now = self._clock()
        self._seen = {one.key: self._seen.get(one.key, now) for one in opened}
        if not opened:
            return [refused] if refused else []
        owners = cluster.owners({one.producer.producer_id for one in opened})
        described = {one.transactional_id: one for one in cluster.describe(set(owners.values()))}
        groups: dict[tuple[int, TransactionVerdict], list[OpenTransaction]] = {}
        for one in opened:
            found = described.get(owners.get(one.producer.producer_id, ""))
            verdict = judge(one, found, self._age_ms(one))
            groups.setdefault((one.producer.producer_id, verdict), []).append(one)
        told: list[str] = []
        for (producer_id, verdict), group in groups.items():
            name = owners.get(producer_id)
            text = self._told(cluster, verdict, group, name, described.get(name or ""))
            told += [] if text is None else [text]
        return told

    def _told(
        self,
        cluster: _Cluster,
        verdict: TransactionVerdict,
        group: Sequence[OpenTransaction],
        name: str | None,
        described: TransactionDescription | None,
    ) -> str | None:
        """Returns the message about the open transaction of one producer, or None if it was ended."""
        if verdict is TransactionVerdict.HANGING:
            own = name is not None and self.is_own(name)
            why = self._end(cluster, group, name or "") if own else "it is none of this group of workers"
            return None if why is None else self._hanging(group, name, why)
        limit_s = (_LONGEST_TIMEOUT_MS if described is None else described.timeout_ms) / 1000
        state = "nothing" if described is None else described.state or error_of(described.error_code).name
        then = {
            TransactionVerdict.UNDER_WAY: f"is under way (transactional id {name}, {state}); its coordinator ends it "
            f"when it has been open for {limit_s:g} s",
            TransactionVerdict.YOUNG: f"is not known to its coordinator{_named(name)}; it is taken for a hanging one "
            f"when it has been open for {limit_s:g} s",
            TransactionVerdict.UNKNOWN: f"has the transactional id {name}, of which its coordinator says {state}",
        }
        return f"{_where(group)} {then[verdict]}"

    def _age_ms(self, one: OpenTransaction) -> float:
        watched_ms = (self._clock() - self._seen.get(one.key, self._clock())) * 1000
        return max(watched_ms, self._wall_ms() - one.producer.last_timestamp_ms)

    def _hanging(self, group: Sequence[OpenTransaction], name: str | None, why: str) -> str:
        servers = ",".join(map(str, self._settings.bootstrap))
        commands = [
            f"kafka-transactions.sh --bootstrap-server {servers} abort --topic {topic} --partition {partition} "
            f"--start-offset {one.producer.start_offset}"
            for one in group[:_NAMED]
            for topic, partition in [one.place]
        ]
        more = f" (and the same for {len(group) - _NAMED} more partitions)" if len(group) > _NAMED else ""
        return (
            f"{_where(group)} hangs: its coordinator has no such open transaction{_named(name)}, so no client will "
            f"end it. This worker does not abort it: {why}. A user with ALTER on the cluster can abort it: "
            f"{', '.join(commands)}{more}"
        )

    def _end(self, cluster: _Cluster, known: Sequence[OpenTransaction], name: str) -> str | None:
        """Aborts the hanging transaction of an id in all affected partitions.

        Returns:
            The reason why it was not aborted; None if it was.
        """
        producer_id = known[0].producer.producer_id
        cluster.extend(LOOK_S)
        try:
            held = [one for one in cluster.open_anywhere() if one.producer.producer_id == producer_id]
        except KafkaException as error:
            logger.debug("%s cannot ask for all partitions that hold a transaction: %s", self._name, error)
            held = list(known)
            cluster.extend(LOOK_S)
        described = next(iter(cluster.describe({name})), None)
        if described is None:
            return "its coordinator does not describe it"
        hanging = {one.key: one for one in held if judge(one, described, float("inf")) is TransactionVerdict.HANGING}
        # A transaction that is still open from the same offset was open when the coordinator reported none there.
        again, _ = cluster.open_in({one.place for one in hanging.values()})
        ended: list[OpenTransaction] = []
        for one in again:
            if one.key not in hanging:
                continue
            code = cluster.abort(one, marker_epoch(one.producer, described))
            if code in _NO_RIGHT:
                return f"its user has no right to ({error_of(code).name}); grant it ALTER on the cluster"
            if code == _NONE:
                ended.append(one)
            else:
                logger.debug("%s: %s was not ended: %s", self._name, _where([one]), error_of(code).name)
        if ended:
            logger.warning(
                "%s: a transaction of %s (producer id %d) was hanging: it was open in %s, and its coordinator had no "
                "such open transaction (%s). The worker aborted it there; its records are read again from their "
                "source. This can happen when a broker stops while transactions end",
                self._name,
                name,
                producer_id,
                _places(ended),
                described.state,
            )
        return None


class _Cluster:
    """The requests to the brokers during one search."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._metadata: ClusterMetadata | None = None

    def extend(self, seconds: float) -> None:
        """Gives the following requests this many seconds."""
        self._talk.extend(seconds)

    def _known(self, topics: Sequence[str] | None) -> ClusterMetadata:
        found = self._talk.ask(
            None,
            lambda number, client: metadata_request(number, client, topics),
            metadata_response,
            "Asking for the leaders of partitions",
        )
        self._metadata = found
        return found

    def open_in(self, places: Collection[Place]) -> tuple[list[OpenTransaction], str | None]:
        """The transactions that are open in these partitions, and the reason if some brokers did not answer."""
        if not places:
            return [], None
        return self._open(self._known(sorted({topic for topic, _ in places})), places)

    def open_anywhere(self) -> list[OpenTransaction]:
        """The transactions that are open in any partition that the user may see."""
        known = self._known(None)
        places = [(topic, number) for topic, found in known.topics.items() for number in found.leaders]
        return self._open(known, places)[0]

    def _open(self, known: ClusterMetadata, places: Iterable[Place]) -> tuple[list[OpenTransaction], str | None]:
        by_leader: dict[BrokerEndpoint, list[Place]] = {}
        for topic, number in places:
            leader = known.topics[topic].leaders.get(number, -1) if topic in known.topics else -1
            if leader in known.brokers:
                by_leader.setdefault(known.brokers[leader], []).append((topic, number))
        found: list[OpenTransaction] = []
        refused: str | None = None
        for address, asked in by_leader.items():
            answer = self._talk.ask(
                address,
                lambda number, client, asked=asked: describe_producers_request(number, client, asked),  # type: ignore[misc]
                describe_producers_response,
                "Asking for the producers of partitions",
            )
            for place, (code, producers) in answer.items():
                if code in _NO_RIGHT:
                    refused = (
                        f"a transaction may be open in {place[0]}-{place[1]}, and the user may not see whose "
                        f"({error_of(code).name}): grant it READ on the topic"
                    )
                found += [OpenTransaction(place, one) for one in producers if one.start_offset is not None]
        return found, refused

    def owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        """The transactional ids that have these producer ids and that the user may see.

        Raises:
            KafkaRetriableException: A coordinator does not know at the moment.
        """
        known = self._metadata
        assert known is not None, "partitions were asked for"
        found: dict[int, str] = {}
        for address in known.brokers.values():
            code, names = self._talk.ask(
                address,
                lambda number, client: list_transactions_request(number, client, sorted(producer_ids)),
                list_transactions_response,
                "Asking for transactional ids",
            )
            if code != _NONE:
                raise KafkaRetriableException(
                    f"The broker at {address} does not list transactions: {error_of(code).name}"
                )
            found.update(names)
        return found

    def describe(self, names: Collection[str]) -> list[TransactionDescription]:
        """Returns the coordinators' descriptions of these ids."""
        found: list[TransactionDescription] = []
        for name in sorted(names):
            coordinator = self._talk.ask(
                None,
                lambda number, client, name=name: find_coordinator_request(number, client, name),  # type: ignore[misc]
                find_coordinator_response,
                "Asking for the coordinator of a transactional id",
            )
            if coordinator.error_code != _NONE:
                found.append(TransactionDescription(coordinator.error_code, name, "", 0, -1, -1))
                continue
            found += self._talk.ask(
                coordinator.address,
                lambda number, client, name=name: describe_transactions_request(number, client, [name]),  # type: ignore[misc]
                describe_transactions_response,
                "Asking a coordinator for a transaction",
            )
        return found

    def abort(self, one: OpenTransaction, epoch: int) -> int:
        """Writes a marker that aborts the transaction in its partition; returns the error code."""
        known = self._metadata
        assert known is not None, "partitions were asked for"
        topic, number = one.place
        address = known.brokers[known.topics[topic].leaders[number]]
        producer = (one.producer.producer_id, epoch)
        codes: Mapping[Place, int] = self._talk.ask(
            address,
            lambda count, client: abort_marker_request(
                count, client, producer, max(0, one.producer.coordinator_epoch), [one.place]
            ),
            abort_marker_response,
            "Ending a hanging transaction",
        )
        return codes.get(one.place, -1)


def _where(group: Sequence[OpenTransaction]) -> str:
    producer = group[0].producer
    last_ms = max(0, *(one.producer.last_timestamp_ms for one in group))
    last = datetime.fromtimestamp(last_ms / 1000, UTC).isoformat(timespec="seconds")
    return (
        f"the transaction of producer id {producer.producer_id} (epoch {producer.epoch}) that is open in "
        f"{_places(group)}, last written to at {last},"
    )


def _places(group: Sequence[OpenTransaction]) -> str:
    return ", ".join(
        f"{topic}-{number} from offset {one.producer.start_offset}" for one in group for topic, number in [one.place]
    )


def _named(name: str | None) -> str:
    return ", and no transactional id that this user may see has it" if name is None else f" (transactional id {name})"
