"""Sends the record batches of a ``ColumnProducer``: the loop of the producer's thread, and its view of the cluster.

A request carries the next record batch of each topic partition that its broker leads. Up to five requests to a broker
are in flight; sequence numbers keep their order and make retries safe (``PartitionQueue``).

Thread: the producer's own; only ``wake``, ``trouble`` and ``failure`` may be used from any thread. The producer's lock
guards the view: the thread that sends reads ``partitions`` and ``fault`` under it.

Source: Sender, Metadata and TransactionManager of Kafka's producer; KIP-98, KIP-360, KIP-361.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError

from penstock.errors import SaslAuthenticationException, SslAuthenticationException
from penstock.kafka.network.connections import ProducerConnections
from penstock.kafka.network.transport import Link, LinkLostException
from penstock.kafka.producer.accumulator import Owner, ProducerId, RecordAccumulator, Retry
from penstock.kafka.producer.in_flight import Encode, PartitionBatch
from penstock.kafka.producer.transaction import NEEDS, Coordinator, Transaction
from penstock.kafka.protocol import (
    INIT_PRODUCER_ID,
    LEADER_IN_DOUBT,
    PRODUCE,
    BrokerEndpoint,
    ClusterMetadata,
    ErrorKind,
    MalformedResponse,
    PartitionAnswer,
    PartitionRecords,
    error_of,
    metadata_request,
    metadata_response,
    produce_request,
    produce_response,
    request,
    response,
)
from penstock.kafka.settings.producer import PROPAGATION_S, ColumnSettings

logger = logging.getLogger(__name__)

#: The interval in which waiting batches are checked, if no event announces anything.
_LOOK_S: Final = 1.0
#: Only transactions use it, but a broker rejects values that are not positive, or above its transaction.max.timeout.ms.
_TRANSACTION_TIMEOUT_MS: Final = 60_000


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


class Sender:
    """Sends record batches, in order for each topic partition.

    Args:
        state: held while the view of the cluster changes, and notified afterwards.

    Attributes:
        transaction: The transaction of a producer with transactions; changes under `state`.
    """

    def __init__(
        self,
        settings: ColumnSettings,
        name: str,
        owner: Owner,
        encode: Encode,
        state: threading.Condition,
        clock: Callable[[], float],
    ) -> None:
        self.view = ClusterView(settings.metadata_max_age, settings.retry_backoff, settings.propagation)
        self._settings = settings
        self._name = name
        self._state = state
        self._clock = clock
        self._failure: ErrorKind | None = None
        needs = (PRODUCE, *(NEEDS if settings.transactional_id else ()))
        self._connections = ProducerConnections(settings, name, needs, clock, self._dropped)
        self.transaction: Transaction | None = None
        self._coordinator: Coordinator | None = None
        if (own := settings.transactional_id) is not None:
            self.transaction = Transaction(
                own, settings.retry_backoff, settings.retry_backoff_max, timeout_s=settings.transaction_timeout
            )
            self._coordinator = Coordinator(self.transaction, self._connections, state, clock)
        self._producer_id = ProducerId(
            idempotent=settings.idempotent,
            pause_s=settings.retry_backoff,
            transaction=self.transaction,
            state=state,
        )
        self._batches = RecordAccumulator(settings, owner, encode, self._producer_id)
        #: The number of aborts; answers to requests of an earlier generation are ignored.
        self._generation = 0
        #: The connection of the batches in flight, by topic partition.
        self._via: dict[tuple[str, int], Link] = {}

    def wake(self) -> None:
        """Ends the current or next wait. Thread: any."""
        self._connections.wake()

    @property
    def failure(self) -> ErrorKind | None:
        """The permanent error because of which nothing can be sent, or None. Thread: any."""
        return self._failure

    def add(self, pieces: Iterable[PartitionBatch]) -> None:
        self._batches.add(pieces)

    def step(self) -> None:
        """Does all work that is possible now, then waits for an event, `wake`, or the next due work."""
        now = self._clock()
        self._connections.tend(now)
        self._note_failure()
        self._ask(now)
        self._batches.expire(now)
        self._send(now)
        if self._coordinator is not None:
            # After record batches, which may need partitions in the transaction.
            self._coordinator.step(now, self.view.brokers)
        self._connections.wait(self._next_time(now) - self._clock())

    def discard(self) -> bool:
        """Drops everything without reporting it; True if some of it may be in flight to a broker."""
        self._generation += 1
        self._via.clear()
        return self._batches.discard()

    def close(self) -> None:
        """Ends all connections. Reports nothing."""
        self._batches.close()
        self._connections.close()

    def _dropped(self) -> None:
        with self._state:
            self.view.doubt(self._clock())

    def _note_failure(self) -> None:
        """Reports all current and future batches as lost if no connection will ever work."""
        error = self._connections.fatal
        if error is None:
            return
        if self._failure is None:
            kind = error_of(KafkaError.UNSUPPORTED_VERSION)
            if isinstance(error, SaslAuthenticationException | SslAuthenticationException):
                name = type(error).__name__
                kind = ErrorKind(KafkaError.SASL_AUTHENTICATION_FAILED, name, name, False, "")
            with self._state:
                self._failure = kind.saying(str(error))
                self._state.notify_all()
        self._batches.give_up_all(self._failure)

    # ---------------------------------------------------------------- cluster and producer id
    def _ask(self, now: float) -> None:
        if self._producer_id.given_up and not self._batches.under_way:
            self._producer_id.drop()
            self._batches.renumber()
        asks_cluster = now >= self.view.question_at()
        question_at = self._producer_id.question_at
        asks_identity = bool(self._batches.busy) and question_at is not None and now >= question_at
        if not asks_cluster and not asks_identity:
            return
        link = self._connections.any(now, self.view.brokers)
        if link is None:
            return
        if asks_cluster:
            with self._state:
                topics = self.view.question(now)
            self._connections.ask(link, metadata_request(topics), self._told, self._question_lost)
        if asks_identity:
            self._producer_id.asked()
            asked = request(INIT_PRODUCER_ID, None, _TRANSACTION_TIMEOUT_MS)
            self._connections.ask(link, asked, self._identified, self._identity_lost)

    def _told(self, payload: memoryview) -> None:
        now = self._clock()
        told = metadata_response(payload)
        with self._state:
            self.view.learn(told, now)
            self._state.notify_all()
        for place in list(self._batches.busy):
            fault = self.view.fault(place[0])
            if fault is not None:
                self._batches.give_up(place, fault.kind, unknown=fault.unknown)
            elif self.view.is_gone(*place, now):
                # Fails the task even if it tolerates failed records, because a restart sends the records elsewhere.
                self._batches.give_up(place, self._gone(*place), fatal=True)

    def _gone(self, topic: str, partition: int) -> ErrorKind:
        return error_of(KafkaError.UNKNOWN_TOPIC_OR_PART).saying(
            f"topic {topic} has lost partition {partition}, to which records were to go: it has "
            f"{self.view.partitions(topic)} now. Restart the task: it sends them to the partitions that are there"
        )

    def _question_lost(self, _: LinkLostException) -> None:
        with self._state:
            self.view.failed(self._clock())

    def _identified(self, payload: memoryview) -> None:
        self._producer_id.heard()
        _, code, producer_id, epoch = response(INIT_PRODUCER_ID, payload)
        if code == 0:
            self._producer_id.take(producer_id, epoch)
            return
        kind = error_of(code)
        self._producer_id.pause(self._clock())
        if kind.retriable:
            self._connections.warn(kind.name, " gets no producer id yet: %s", kind.text)
            return
        self._batches.give_up_all(kind)

    def _identity_lost(self, _: LinkLostException) -> None:
        self._producer_id.heard()
        self._producer_id.pause(self._clock())

    @property
    def trouble(self) -> str | None:
        """The known reason why records cannot be sent; None if there is none. Thread: any."""
        with self._state:
            topics = self.view.awaited
        if topics:
            return f"the broker does not know the topic {', '.join(topics)}; it may be about to be created"
        return self._connections.trouble

    # ---------------------------------------------------------------- record batches
    def _send(self, now: float) -> None:
        if self._producer_id.follow():
            self._batches.renumber()
        if self._producer_id.current is None or self._producer_id.given_up:
            return
        while ready := self._by_link(now):
            for link, places in ready:
                self._send_to(link, places)

    def _by_link(self, now: float) -> list[tuple[Link, list[tuple[str, int]]]]:
        """Returns the partitions with batches to send now, by connection."""
        found: dict[Link, list[tuple[str, int]]] = {}
        for place, queue in self._batches.busy.items():
            if queue.ready(now) is None:
                continue
            leader = self.view.leader(*place)
            if leader is None:
                with self._state:
                    self.view.want(place[0], now)
                    self.view.doubt(now)
                continue
            link = self._connections.to(self.view.brokers[leader], now)
            if link is None or not link.usable or link.under_way >= self._settings.requests:
                continue
            if not self._is_in_transaction(place):
                continue
            # The leader may have changed: wait for the answers of the previous leader.
            if not queue.under_way or self._via.get(place) is link:
                self._via[place] = link
                found.setdefault(link, []).append(place)
        return list(found.items())

    def _is_in_transaction(self, place: tuple[str, int]) -> bool:
        if self.transaction is None:
            return True
        with self._state:
            return self.transaction.may_send(place)

    def _send_to(self, link: Link, places: Iterable[tuple[str, int]]) -> None:
        """Sends one request with the next batch of each partition, up to the largest size."""
        identity = self._producer_id.current
        assert identity is not None
        records: list[PartitionRecords] = []
        pieces: deque[PartitionBatch] = deque()
        size = 0
        for place in places:
            queue = self._batches.busy[place]
            piece = queue.ready(float("inf"))
            if piece is None or (size and size + piece.encoded.size > self._settings.request_size):
                continue
            queue.send()
            piece.sent += 1
            size += piece.encoded.size
            assert piece.sequence is not None
            sequence = piece.sequence if self._settings.idempotent else -1
            header = piece.encoded.header(*identity, sequence, transactional=self.transaction is not None)
            records.append(PartitionRecords(piece.topic, piece.partition, (header, piece.encoded.body)))
            pieces.append(piece)
        if not pieces:
            return
        settings = self._settings
        has_answer = settings.acks != 0
        self._connections.ask(
            link,
            produce_request(
                timeout_ms=round(settings.request_timeout * 1000),
                records=records,
                acks=settings.acks,
                transactional_id=settings.transactional_id,
            ),
            partial(self._produced if has_answer else self._handed_over, self._generation, pieces),
            partial(self._produce_lost, self._generation, pieces),
            has_answer=has_answer,
        )

    def _handed_over(self, generation: int, pieces: Iterable[PartitionBatch], _: memoryview) -> None:
        """Counts batches as stored that were sent with ``acks=0``; brokers send no positions."""
        for piece in pieces:
            self._answered(piece, PartitionAnswer(piece.topic, piece.partition, 0, -1, -1, (), None))

    def _produced(self, generation: int, pieces: Iterable[PartitionBatch], payload: memoryview) -> None:
        if generation != self._generation:
            return
        answers = {(answer.topic, answer.partition): answer for answer in produce_response(payload)}
        if any(piece.place not in answers for piece in pieces):
            raise MalformedResponse("A broker's answer lacks topic partitions that something was sent to")
        for piece in pieces:
            self._answered(piece, answers[piece.place])

    def _answered(self, piece: PartitionBatch, answer: PartitionAnswer) -> None:
        now = self._clock()
        retry = self._batches.answered(piece, answer, now)
        if retry is None:
            return
        code = answer.error_code
        kind = error_of(code)
        if retry is Retry.WITH_NEW_ID:
            text = "The producer of %s: topic %s, partition %d: %s; it continues with a new producer id"
            logger.warning(text, self._name, piece.topic, piece.partition, kind.name)
            return
        text = ": topic %s, partition %d: %s (%s); it is sent again"
        self._connections.warn((code, piece.topic), text, piece.topic, piece.partition, kind.text, kind.name)
        if code in LEADER_IN_DOUBT:
            with self._state:
                self.view.doubt(now)

    def _produce_lost(self, generation: int, pieces: Iterable[PartitionBatch], error: LinkLostException) -> None:
        if generation == self._generation:
            self._batches.unanswered(pieces, str(error))

    # ---------------------------------------------------------------- waiting
    def _next_time(self, tried: float) -> float:
        """Returns the time of the next work that no event announces; all work due before `tried` was done."""
        times = self._connections.times(tried, waiting=bool(self._batches.busy) or self.view.question_at() <= tried)
        times.append(self.view.question_at())
        if self._batches.busy:
            # Waiting batches may expire.
            times.append(tried + _LOOK_S)
            if (question_at := self._producer_id.question_at) is not None:
                times.append(question_at)
        if self.transaction is not None:
            with self._state:
                times.append(self.transaction.retry_at)
        times += self._batches.retry_times()
        # Earlier work has just been done, or waits for its own event.
        return min((time for time in times if time > tried), default=tried + _LOOK_S)
