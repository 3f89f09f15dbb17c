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
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.network.connections import Conversation
from penstock.kafka.protocol import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    LIST_TRANSACTIONS,
    METADATA,
    WRITE_MARKERS,
    BrokerEndpoint,
    ClusterMetadata,
    Place,
    UnsupportedVersionException,
    by_place,
    by_topic,
    error_of,
    find_coordinator_request,
    find_coordinator_response,
    metadata_request,
    metadata_response,
    request,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.telemetry.logs import SeldomLog

logger = logging.getLogger(__name__)

_NEEDS: Final = (
    METADATA,
    FIND_COORDINATOR,
    DESCRIBE_PRODUCERS,
    LIST_TRANSACTIONS,
    DESCRIBE_TRANSACTIONS,
    WRITE_MARKERS,
)
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
_NO_TRANSACTION: Final = -1

_one_at_a_time = threading.Lock()


class ActiveProducer(NamedTuple):
    """A producer, as the leader of a partition describes it.

    Attributes:
        last_timestamp_ms: The timestamp in the last batch that it has written there.
        coordinator_epoch: The epoch of the coordinator that ended its last transaction there; -1 for none.
        start_offset: The start of its open transaction.
    """

    producer_id: int
    epoch: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int


class TransactionDescription(NamedTuple):
    """A coordinator's description of a transactional id; the other fields are invalid if there is an error code.

    Attributes:
        error_code: The reason why the coordinator has no description; 0 if it has one.
        state: ``Ongoing``, ``PrepareCommit``, ``Empty`` and the like.
        timeout_ms: The time after which the coordinator ends a transaction.
        producer_id, epoch: The producer that has the transactional id.
        places: The partitions of its transaction that still need a marker; none if no transaction is open.
    """

    error_code: int
    transactional_id: str
    state: str
    timeout_ms: int
    producer_id: int
    epoch: int
    places: frozenset[Place] = frozenset()


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
    def key(self) -> tuple[Place, int, int]:
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
        self._seen: dict[tuple[Place, int, int], float] = {}
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
                self._settings, f"{self._name} (open transactions)", _NEEDS, timeout_s, self._seldom, self._clock
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
            why = self._end(cluster, group, name or "") if own else "it does not belong to this group of workers"
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
        """Aborts the hanging transaction of an id in all affected partitions. Returns the reason why it was not
        aborted; None if it was.
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
        self._metadata = ClusterMetadata({}, {})

    def extend(self, seconds: float) -> None:
        """Gives the following requests this many seconds."""
        self._talk.extend(seconds)

    def _look_up(self, topics: Sequence[str] | None) -> None:
        what = "Asking for the leaders of partitions"
        self._metadata = self._talk.ask(None, metadata_request(topics), what, metadata_response)

    def open_in(self, places: Collection[Place]) -> tuple[list[OpenTransaction], str | None]:
        """The transactions that are open in these partitions, and the reason if some brokers did not answer."""
        if not places:
            return [], None
        self._look_up(sorted({topic for topic, _ in places}))
        return self._open(places)

    def open_anywhere(self) -> list[OpenTransaction]:
        """The transactions that are open in any partition that the user may see."""
        self._look_up(None)
        return self._open((name, at) for name, found in self._metadata.topics.items() for at in found.leaders)[0]

    def _open(self, places: Iterable[Place]) -> tuple[list[OpenTransaction], str | None]:
        known = self._metadata
        by_leader: dict[BrokerEndpoint, list[Place]] = {}
        for topic, number in places:
            leader = known.topics[topic].leaders.get(number, -1) if topic in known.topics else -1
            if leader in known.brokers:
                by_leader.setdefault(known.brokers[leader], []).append((topic, number))
        found: list[OpenTransaction] = []
        refused: str | None = None
        for address, asked in by_leader.items():
            _, topics = self._talk.ask(
                address, request(DESCRIBE_PRODUCERS, by_topic(asked)), "Asking for the producers of partitions"
            )
            for place, (code, _, producers) in by_place(topics).items():
                if code in _NO_RIGHT:
                    refused = (
                        f"a transaction may be open in {place[0]}-{place[1]}, and the user may not see whose "
                        f"({error_of(code).name}): grant it READ on the topic"
                    )
                found += [
                    OpenTransaction(place, ActiveProducer(number, epoch, timestamp, coordinator, start))
                    for number, epoch, _, timestamp, coordinator, start in producers
                    if start != _NO_TRANSACTION
                ]
        return found, refused

    def owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        """The transactional ids that have these producer ids and that the user may see. Raises
        ``KafkaRetriableException`` if a coordinator does not know at the moment.
        """
        found: dict[int, str] = {}
        any_state = ()
        for address in self._metadata.brokers.values():
            asked = request(LIST_TRANSACTIONS, any_state, sorted(producer_ids))
            _, code, _, listed = self._talk.ask(address, asked, "Asking for transactional ids")
            if code != _NONE:
                raise KafkaRetriableException(
                    f"The broker at {address} does not list transactions: {error_of(code).name}"
                )
            found.update({number: name for name, number, _ in listed})
        return found

    def describe(self, names: Collection[str]) -> list[TransactionDescription]:
        """Returns the coordinators' descriptions of these ids."""
        found: list[TransactionDescription] = []
        for name in sorted(names):
            coordinator = self._talk.ask(
                None,
                find_coordinator_request(name),
                "Asking for the coordinator of a transactional id",
                find_coordinator_response,
            )
            if coordinator.error_code != _NONE:
                found.append(TransactionDescription(coordinator.error_code, name, "", 0, -1, -1))
                continue
            _, described = self._talk.ask(
                coordinator.address, request(DESCRIBE_TRANSACTIONS, [name]), "Asking a coordinator for a transaction"
            )
            for code, own, state, timeout_ms, _, producer_id, epoch, topics in described:
                places = frozenset((topic, number) for topic, numbers in topics for number in numbers)
                found.append(TransactionDescription(code, own, state, timeout_ms, producer_id, epoch, places))
        return found

    def abort(self, one: OpenTransaction, epoch: int) -> int:
        """Writes a marker that aborts the transaction in its partition; returns the error code."""
        topic, number = one.place
        leader = self._metadata.brokers[self._metadata.topics[topic].leaders[number]]
        aborts = 0
        marker = (
            one.producer.producer_id,
            epoch,
            aborts,
            by_topic([one.place]),
            max(0, one.producer.coordinator_epoch),
        )
        (markers,) = self._talk.ask(leader, request(WRITE_MARKERS, [marker]), "Ending a hanging transaction")
        codes: Mapping[Place, int] = by_place(topics for _, written in markers for topics in written)
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
