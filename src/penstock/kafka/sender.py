"""The I/O of a `ColumnProducer`: connections to brokers, what is asked of them, and what their answers mean.

Main types: `Sender`, and `Owner`, which is told what has become of record batches.

A request carries the next record batch of each topic partition that its broker leads. Up to five requests are under way
to a broker; numbers keep their order and make it safe to send them again (`PartitionQueue`). When a broker refuses a
batch for the sake of some of its records, those that it names are taken out, or the batch is halved until the bad ones
are alone. A producer id that a broker does not know any more is replaced once nothing is under way.

Thread: the producer's own; only `wake` may come from any.

Source: Sender, TransactionManager and RecordAccumulator (split batches) of Kafka's producer; KIP-98, KIP-360, KIP-467.
"""

from __future__ import annotations

import logging
import random
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from confluent_kafka import KafkaError

from penstock.errors import KafkaException
from penstock.kafka.chunks import Encode, Piece
from penstock.kafka.cluster_view import ClusterView
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.link import Expected, Link, LinkLostException
from penstock.kafka.partition_queue import PartitionQueue
from penstock.kafka.wire import (
    Address,
    Api,
    ErrorKind,
    MalformedResponse,
    PartitionAnswer,
    PartitionRecords,
    api_versions_request,
    api_versions_response,
    error_of,
    init_producer_id_request,
    init_producer_id_response,
    metadata_request,
    metadata_response,
    produce_request,
    produce_response,
)
from penstock.telemetry.seldom_log import SeldomLog

logger = logging.getLogger(__name__)

_PRODUCE_VERSION: Final = 8
#: The broker does not know the producer id (any more), or knows a newer epoch of it.
_ID_GONE: Final = frozenset(
    {
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.PRODUCER_FENCED,
    }
)
#: What a broker says to a whole batch because of some of its records: too large, or not valid.
_BLAMES_SOME: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
    }
)
#: After these the leader may be another one.
_LEADER_IN_DOUBT: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
#: A broker that failed may have done so before or after it stored the batch. Errors it has no name for count as this.
_BROKER_FAILED: Final = error_of(-1).name
_TIMED_OUT: Final = error_of(KafkaError.REQUEST_TIMED_OUT).saying("Local: Message timed out")


class Owner(Protocol):
    """Is told what has become of record batches. Thread: the producer's own."""

    def stored(self, piece: Piece, base_offset: int, append_time: int) -> None:
        """All records of a piece are in Kafka."""
        ...

    def replaced(self, piece: Piece, pieces: Sequence[Piece]) -> None:
        """A piece will be sent as these instead."""
        ...

    def lost(self, piece: Piece, positions: Iterable[int], kind: ErrorKind, *, unknown: bool, fatal: bool) -> None:
        """The records at these positions of a piece will never be stored.

        Args:
            piece: where they are.
            positions: of the records in it.
            kind: why.
            unknown: their topic does not exist.
            fatal: nothing can be sent any more.
        """
        ...


class Sender:
    """Sends pieces, in order for each topic partition.

    Args:
        settings: of the producer.
        name: of its task, for messages.
        owner: is told what has become of each piece.
        encode: makes record batches anew when one is refused.
        state: is held while what is known of the cluster changes, and notified afterwards.
        clock: monotonic seconds.

    Attributes:
        view: What is known of the cluster.
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
        self._owner = owner
        self._encode = encode
        self._state = state
        self._clock = clock
        self._seldom = SeldomLog(logger)
        self._queues: dict[tuple[str, int], PartitionQueue[Piece]] = {}
        #: Queues that are not empty.
        self._busy: dict[tuple[str, int], PartitionQueue[Piece]] = {}
        #: The connection that something is under way on.
        self._via: dict[tuple[str, int], Link] = {}
        self._links: dict[Address, Link] = {}
        self._failures: dict[Address, tuple[int, float]] = {}
        #: Topics whose records get the broker's time.
        self._stamped: set[str] = set()
        self._turn = 0
        self._identity: tuple[int, int] | None = None
        self._identity_at = 0.0
        self._asking_identity = False
        self._renewing = False
        self._correlation = 0
        self._selector = selectors.DefaultSelector()
        self._watched: dict[Link, tuple[socket.socket, int]] = {}
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def wake(self) -> None:
        """End the present or next wait. Thread: any."""
        # The lock keeps `close` away: the number of a closed socket may be that of another one at once.
        with self._state:
            try:
                self._waker.send(b"w")
            except OSError:
                # It is full, so it wakes anyway; or closed.
                return

    def add(self, pieces: Iterable[Piece]) -> None:
        """Pieces to be sent behind all that is here."""
        for piece in pieces:
            queue = self._queues.get(piece.place)
            if queue is None:
                queue = self._queues[piece.place] = PartitionQueue()
            queue.add(piece)
            self._busy[piece.place] = queue

    def step(self) -> None:
        """Do what can be done now, then wait until there is more to do, or `wake`."""
        now = self._clock()
        self._ask(now)
        self._expire(now)
        self._send(now)
        self._wait(max(0.0, self._next_time(now) - self._clock()))

    def close(self) -> None:
        """End all connections. Nothing is told any more."""
        self._busy.clear()
        self._queues.clear()
        for link in list(self._links.values()):
            self._drop(link, LinkLostException("The producer was closed"))
        self._selector.close()
        with self._state:
            self._waker.close()
        self._woken.close()

    # ---------------------------------------------------------------- cluster and producer id
    def _ask(self, now: float) -> None:
        if self._renewing and not any(queue.under_way for queue in self._queues.values()):
            self._renewing = False
            self._identity = None
            for queue in self._queues.values():
                queue.renumber()
        asks_cluster = now >= self.view.question_at()
        asks_identity = (
            bool(self._busy) and self._identity is None and not self._asking_identity and now >= self._identity_at
        )
        if not asks_cluster and not asks_identity:
            return
        link = self._any_link(now)
        if link is None:
            return
        if asks_cluster:
            with self._state:
                topics = self.view.question(now)
            number = self._next_correlation()
            request = metadata_request(number, self._settings.client_id, topics)
            self._request(link, [request], number, self._told, self._question_lost)
        if asks_identity:
            self._asking_identity = True
            number = self._next_correlation()
            request = init_producer_id_request(number, self._settings.client_id)
            self._request(link, [request], number, self._identified, self._identity_lost)

    def _told(self, payload: memoryview) -> None:
        now = self._clock()
        told = metadata_response(payload)
        with self._state:
            self.view.learn(told, now)
            self._state.notify_all()
        for place, queue in list(self._busy.items()):
            fault = self.view.fault(place[0])
            if fault is not None:
                self._give_up(queue, fault.kind, unknown=fault.unknown)
            elif self.view.is_gone(*place, now):
                # As an error of the task, also where it tolerates those of records: a restart sends them elsewhere.
                self._give_up(queue, self._gone(*place), fatal=True)

    def _gone(self, topic: str, partition: int) -> ErrorKind:
        return error_of(KafkaError.UNKNOWN_TOPIC_OR_PART).saying(
            f"topic {topic} has lost partition {partition}, to which records were to go: it has "
            f"{self.view.partitions(topic)} now. Restart the task: it sends them to the partitions that are there"
        )

    def _question_lost(self, _: LinkLostException) -> None:
        with self._state:
            self.view.failed(self._clock())

    def _identified(self, payload: memoryview) -> None:
        self._asking_identity = False
        answer = init_producer_id_response(payload)
        if answer.error_code == 0:
            self._identity = (answer.producer_id, answer.producer_epoch)
            return
        kind = error_of(answer.error_code)
        self._identity_at = self._clock() + self._settings.retry_backoff
        if kind.retriable:
            self._seldom.warning(kind.name, "The producer of %s gets no producer id yet: %s", self._name, kind.text)
            return
        for queue in list(self._busy.values()):
            self._give_up(queue, kind, fatal=True)

    def _identity_lost(self, _: LinkLostException) -> None:
        self._asking_identity = False
        self._identity_at = self._clock() + self._settings.retry_backoff

    def trouble(self) -> str | None:
        """What keeps records from being sent, as far as is known. Thread: any."""
        with self._state:
            topics = self.view.awaited
        if topics:
            return f"the broker does not know the topic {', '.join(topics)}; it may be about to be created"
        return self._seldom.last

    # ---------------------------------------------------------------- connections
    def _any_link(self, now: float) -> Link | None:
        """A connection that can be used; makes one where there is none."""
        usable = [link for link in self._links.values() if link.usable]
        if usable:
            # Answers come in the order of requests: one that has little to do, or is not stuck, is the first to tell.
            return min(usable, key=lambda link: link.under_way)
        if self._links:
            return None
        places = [*self.view.brokers.values(), *self._settings.bootstrap]
        for _ in places:
            place = places[self._turn % len(places)]
            self._turn += 1
            if self._link(place, now) is not None:
                break
        return None

    def _link(self, address: Address, now: float) -> Link | None:
        """The connection to a broker; begins one, where there is none and enough time has passed since it failed."""
        link = self._links.get(address)
        if link is not None:
            return link
        if now < self._failures.get(address, (0, 0.0))[1]:
            return None
        try:
            link = Link(address, now, self._settings.connect_timeout)
        except LinkLostException as error:
            self._note_failure(address, error)
            return None
        self._links[address] = link
        number = self._next_correlation()
        request = api_versions_request(number, self._settings.client_id)
        self._request(link, [request], number, partial(self._versions, link), lambda _: None)
        return link

    def _versions(self, link: Link, payload: memoryview) -> None:
        code, versions = api_versions_response(payload)
        lowest, highest = versions.get(Api.PRODUCE, (0, -1))
        if code or not lowest <= _PRODUCE_VERSION <= highest:
            raise MalformedResponse(
                f"The broker at {link.address} does not take produce requests of version {_PRODUCE_VERSION} (Kafka 2.4 "
                "and later do); set penstock.kafka.producer=librdkafka in the worker's properties"
            )
        link.usable = True
        self._failures.pop(link.address, None)

    def _note_failure(self, address: Address, error: KafkaException) -> None:
        failed = self._failures.get(address, (0, 0.0))[0]
        wait = _backoff(self._settings.reconnect_backoff, self._settings.reconnect_backoff_max, failed)
        self._failures[address] = (failed + 1, self._clock() + wait * random.uniform(0.8, 1.2))
        self._seldom.warning(address, "The producer of %s: %s; the client keeps trying", self._name, error)

    def _drop(self, link: Link, error: LinkLostException) -> None:
        """A connection is gone: what was under way on it is sent again."""
        if self._links.get(link.address) is link:
            del self._links[link.address]
        watched = self._watched.pop(link, None)
        if watched is not None:
            self._selector.unregister(watched[0])
        link.close(error)

    def _fail(self, link: Link, error: KafkaException) -> None:
        idle = not link.under_way and link.usable
        self._drop(link, error if isinstance(error, LinkLostException) else LinkLostException(str(error)))
        if idle:
            # Brokers close connections that are not used.
            logger.debug("The producer of %s: %s", self._name, error)
        else:
            self._note_failure(link.address, error)
        with self._state:
            self.view.doubt(self._clock())

    def _request(
        self,
        link: Link,
        buffers: Sequence[bytes | memoryview],
        correlation: int,
        answered: Callable[[memoryview], None],
        lost: Callable[[LinkLostException], None],
    ) -> None:
        deadline = self._clock() + self._settings.request_timeout
        try:
            link.request(buffers, Expected(correlation, deadline, answered, lost))
        except LinkLostException as error:
            self._fail(link, error)

    def _next_correlation(self) -> int:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return self._correlation

    # ---------------------------------------------------------------- record batches
    def _send(self, now: float) -> None:
        if self._identity is None or self._renewing:
            return
        while ready := self._by_link(now):
            for link, places in ready:
                self._send_to(link, places)

    def _by_link(self, now: float) -> list[tuple[Link, list[tuple[str, int]]]]:
        """What can be sent now, by connection."""
        found: dict[Link, list[tuple[str, int]]] = {}
        for place, queue in self._busy.items():
            if queue.ready(now) is None:
                continue
            leader = self.view.leader(*place)
            if leader is None:
                with self._state:
                    self.view.want(place[0], now)
                    self.view.doubt(now)
                continue
            link = self._link(self.view.brokers[leader], now)
            if link is None or not link.usable or link.under_way >= self._settings.requests:
                continue
            # The leader may have changed: what the one before has to answer comes first.
            if not queue.under_way or self._via.get(place) is link:
                self._via[place] = link
                found.setdefault(link, []).append(place)
        return list(found.items())

    def _send_to(self, link: Link, places: Iterable[tuple[str, int]]) -> None:
        """One request with the next batch of each of these, as far as it may be that large."""
        assert self._identity is not None
        records: list[PartitionRecords] = []
        pieces: deque[Piece] = deque()
        size = 0
        for place in places:
            queue = self._busy[place]
            piece = queue.ready(float("inf"))
            if piece is None or (size and size + piece.encoded.size > self._settings.request_size):
                continue
            queue.send()
            piece.sent += 1
            size += piece.encoded.size
            assert piece.sequence is not None
            header = piece.encoded.header(*self._identity, piece.sequence)
            records.append(PartitionRecords(piece.topic, piece.partition, (header, piece.encoded.body)))
            pieces.append(piece)
        if not pieces:
            return
        number = self._next_correlation()
        timeout = round(self._settings.request_timeout * 1000)
        buffers = produce_request(number, self._settings.client_id, timeout_ms=timeout, records=records)
        self._request(link, buffers, number, partial(self._produced, pieces), partial(self._produce_lost, pieces))

    def _produced(self, pieces: Iterable[Piece], payload: memoryview) -> None:
        answers = {(answer.topic, answer.partition): answer for answer in produce_response(payload)}
        if any(piece.place not in answers for piece in pieces):
            raise MalformedResponse("A broker's answer lacks topic partitions that something was sent to")
        for piece in pieces:
            self._answered(piece, answers[piece.place])

    def _answered(self, piece: Piece, answer: PartitionAnswer) -> None:
        queue = self._queues.get(piece.place)
        if queue is None:
            return
        code = answer.error_code
        if code in (0, KafkaError.DUPLICATE_SEQUENCE_NUMBER):
            queue.stored()
            self._owner.stored(piece, answer.base_offset, self._append_time(piece, answer))
        elif code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not queue.out_of_sequence():
                self._renew(piece, code)
        elif code in _ID_GONE:
            queue.not_now(0.0)
            self._renew(piece, code)
        elif error_of(code).retriable:
            self._put_off(queue, piece, code)
        else:
            self._refused(queue, piece, answer)
        if not queue:
            self._busy.pop(piece.place, None)

    def _append_time(self, piece: Piece, answer: PartitionAnswer) -> int:
        """The broker's time of a batch, or -1 where its records keep their own."""
        if answer.log_append_time >= 0 and piece.sent == 1:
            self._stamped.add(piece.topic)
        # Of a batch that it has already a broker tells the latest of the records' own times, too.
        return answer.log_append_time if piece.topic in self._stamped else -1

    def _produce_lost(self, pieces: Iterable[Piece], _: LinkLostException) -> None:
        # All that is under way of a partition is on one connection.
        for piece in pieces:
            queue = self._queues.get(piece.place)
            if queue is not None:
                queue.lost()

    def _put_off(self, queue: PartitionQueue[Piece], piece: Piece, code: int) -> None:
        now = self._clock()
        queue.not_now(now + _backoff(self._settings.retry_backoff, self._settings.retry_backoff_max, queue.attempts))
        kind = error_of(code)
        text = "The producer of %s: topic %s, partition %d: %s (%s); it is sent again"
        self._seldom.warning((code, piece.topic), text, self._name, piece.topic, piece.partition, kind.text, kind.name)
        if code in _LEADER_IN_DOUBT:
            with self._state:
                self.view.doubt(now)

    def _renew(self, piece: Piece, code: int) -> None:
        self._renewing = True
        # Brokers that do not take a new id either are not asked without a pause.
        self._identity_at = self._clock() + self._settings.retry_backoff
        text = "The producer of %s: topic %s, partition %d: %s; it goes on with a new producer id"
        logger.warning(text, self._name, piece.topic, piece.partition, error_of(code).name)

    def _refused(self, queue: PartitionQueue[Piece], piece: Piece, answer: PartitionAnswer) -> None:
        """The broker will not store this batch as it is."""
        named = sorted({position for position, _ in answer.record_errors if 0 <= position < piece.count})
        kind = error_of(answer.error_code)
        instead: list[Piece] = []
        lost: Sequence[int] = range(piece.count)
        if named:
            lost = named
            # A broker names the first few alone: the rest goes in halves, so that many bad ones are soon found.
            instead = piece.without(named, self._encode)
            said = next((text for position, text in answer.record_errors if position == named[0] and text), None)
            kind = kind.saying(said or answer.error_message)
        elif answer.error_code in _BLAMES_SOME and piece.count > 1:
            lost = ()
            instead = piece.halves(self._encode)
        else:
            kind = kind.saying(answer.error_message)
        may_be_stored = queue.refused(instead) or kind.name == _BROKER_FAILED
        self._renewing = self._renewing or may_be_stored
        if lost:
            self._owner.lost(piece, lost, kind, unknown=False, fatal=False)
        self._owner.replaced(piece, instead)

    def _expire(self, now: float) -> None:
        before = now - self._settings.delivery_timeout
        if before <= 0:
            return
        for queue in list(self._busy.values()):
            self._give_up(queue, _TIMED_OUT, before)

    def _give_up(
        self,
        queue: PartitionQueue[Piece],
        kind: ErrorKind,
        before: float | None = None,
        *,
        unknown: bool = False,
        fatal: bool = False,
    ) -> None:
        """Nothing that waits here, or that was made before that time, will be stored."""
        taken, may_be_stored = queue.take_out(before)
        self._renewing = self._renewing or may_be_stored
        for piece in taken:
            self._owner.lost(piece, range(piece.count), kind, unknown=unknown, fatal=fatal)
            self._owner.replaced(piece, ())
        if taken and not queue:
            self._busy.pop(taken[0].place, None)

    # ---------------------------------------------------------------- waiting
    def _next_time(self, tried: float) -> float:
        """When something is to be done though nothing happens; all that was to be done until `tried` was."""
        times = [link.deadline() for link in self._links.values()]
        times.append(self.view.question_at())
        if self._busy and self._identity is None and not self._asking_identity:
            times.append(self._identity_at)
        times += [queue.retry_at for queue in self._busy.values() if queue.retry_at]
        if self._busy or self.view.question_at() <= tried:
            times += [until for _, until in self._failures.values()]
        # What that waits for shows as something else that happens.
        return min((time for time in times if time > tried), default=tried + 1.0)

    def _wait(self, timeout: float) -> None:
        for link in list(self._links.values()):
            self._watch(link)
        happened = {key.fileobj for key, _ in self._selector.select(min(timeout, 1.0))}
        if self._woken in happened:
            self._drain_wakes()
        now = self._clock()
        for link in list(self._links.values()):
            watched = self._watched.get(link)
            if (watched is None or watched[0] not in happened) and now <= link.deadline():
                continue
            try:
                link.ready(now)
            except (LinkLostException, MalformedResponse) as error:
                self._fail(link, error)

    def _watch(self, link: Link) -> None:
        wanted = (link.socket, link.events)
        present = self._watched.get(link)
        if present == wanted:
            return
        if present is not None and present[0] is link.socket:
            self._selector.modify(link.socket, link.events)
        else:
            if present is not None:
                self._selector.unregister(present[0])
            self._selector.register(link.socket, link.events)
        self._watched[link] = wanted

    def _drain_wakes(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            return


def _backoff(first: float, longest: float, attempts: int) -> float:
    """Seconds to wait after this many attempts before: doubled each time."""
    return min(longest, first * 2.0 ** min(attempts, 30))
