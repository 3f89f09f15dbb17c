"""Reads records for a sink task, as a group member whose messages come as Arrow tables.

Thread: the one that calls ``fetch`` (the sink task's fetch thread) makes all other calls too; only ``interrupt`` is
safe from other threads. Callbacks of the listener and of asynchronous commits run inside ``fetch``.

Source: org.apache.kafka.clients.consumer.KafkaConsumer, as a sink task of Kafka Connect uses it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import confluent_kafka as ck
import pyarrow as pa

from penstock.api import TopicPartition
from penstock.errors import KafkaException
from penstock.kafka.consumer.messages import (
    Troubles,
    UnreadableRecords,
    batch_start,
    collector_paused,
    end_of_batch,
    is_about_records,
    placeholder,
    to_arrow,
)
from penstock.kafka.consumer.offsets import (
    ConsumerCommits,
    Offsets,
    StartOffsets,
    Subscription,
    ends_reading,
    exception_of,
    for_client,
    is_usual,
)
from penstock.kafka.settings.client import CLIENT_LOG
from penstock.telemetry.logs import SeldomLog

logger = logging.getLogger(__name__)

#: The number of messages taken from the client at once: this many objects stay in a core's cache until they are
#: columns. Fifty thousand take twice the time, and memory that is not used again.
CHUNK_RECORDS: Final = 2_000
#: The maximum size of a response, and of an unpacked batch, that the client accepts: the largest value of the setting.
MOST_BYTES: Final = 2_147_483_647
_RETRY_S: Final = 0.2
_SEEK_RETRY_S: Final = 0.01
#: The wait for the response to a join before the client is closed without leaving the group: the default time limit
#: for slow members (``max.poll.interval.ms``).
_JOIN_S: Final = 300.0
#: The time in which the client may give its partitions back and leave.
_LEAVE_S: Final = 2.0
_LEAVE_SLICE_S: Final = 0.01


@dataclass(frozen=True)
class FetchedChunk:
    """Messages of one fetch.

    Attributes:
        table: Columns as in ``CONSUMED_SCHEMA``; offsets ascend within each partition.
        ends: The offset after the last message of each partition.
        epoch: Grows with every assignment and every seek: distinguishes messages before and after one.
        unreadable: The reason, if its only row, without key and value, represents records that the client could not
            read.
        more: True if the topic is known to have later messages.
    """

    table: pa.Table
    ends: Mapping[TopicPartition, int]
    epoch: int
    unreadable: UnreadableRecords | None = None
    more: bool = False


@dataclass(frozen=True)
class Placement:
    """The start positions of newly assigned partitions, and the partitions to pause."""

    starts: Mapping[TopicPartition, int]
    paused: frozenset[TopicPartition] = frozenset()


class RebalanceListener(Protocol):
    """Callbacks for assigned and revoked partitions, inside ``fetch``; the group waits until they return."""

    def before_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before partitions are assigned; the consumer reads their committed offsets when it returns."""

    def on_assigned(
        self, starts: Mapping[TopicPartition, int], epoch: int, at_end: frozenset[TopicPartition] = frozenset()
    ) -> Placement:
        """Handles new partitions (perhaps none) with their default start offsets; returns the actual start offsets.

        Partitions in ``at_end`` begin at their end, because the group has no offset for them
        (``auto.offset.reset=latest``): until an offset is committed, their next reader would skip messages that arrive
        meanwhile.
        """

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before partitions are revoked; commits for them are still accepted."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called after partitions were lost: another member may read them already."""


class RecordConsumer:
    """One member of a consumer group.

    Args:
        name: The owner of the consumer, for logs and errors (``connector task 0``).
        api_timeout_s: The timeout for start offsets, after which the task fails (``default.api.timeout.ms``).
        refresh_s: How often a pattern checks for new topics (``metadata.max.age.ms``).
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        name: str,
        api_timeout_s: float = 60.0,
        refresh_s: float = 300.0,
    ) -> None:
        self._name = name
        self._refresh_s = refresh_s
        assignors = str(settings.get("partition.assignment.strategy", ""))
        self._cooperative = "cooperative" in assignors or settings.get("group.protocol") == "consumer"
        self._listener: RebalanceListener | None = None
        self._subscription = Subscription()
        self._subscribed: frozenset[str] = frozenset()
        self._next_refresh = 0.0
        self._creates = settings.get("allow.auto.create.topics") is True
        self._missing: set[str] = set()
        self._next_request = 0.0
        self._epoch = 0
        self._owned: set[TopicPartition] = set()
        self._pending_error: ck.KafkaError | None = None
        self._seldom = SeldomLog(logger)
        self._interrupted = threading.Event()
        self._closing = False
        # True while a request to join has no response yet.
        self._joining = False
        # False while no broker answers, so that the group does not know this member.
        self._reachable = True
        self._static = bool(settings.get("group.instance.id"))
        self._settings = self.client_settings(settings)
        told = {"on_commit": self._on_commit, "error_cb": self._on_error}
        self._consumer = ck.Consumer({**self._settings, **told}, logger=CLIENT_LOG)
        # The next position of each partition, and unreadable records.
        self._positions: dict[TopicPartition, int] = {}
        self._troubles = Troubles()
        # Partitions that were sought after a wrong checksum. The client may have moved to an invented offset, and from
        # there to the beginning, by the user's setting for offsets that do not exist.
        self._shaken: set[TopicPartition] = set()
        # The results of the next calls of `fetch`.
        self._ready: deque[FetchedChunk] = deque()
        self._commits = ConsumerCommits(self._consumer, name, self._interrupted)
        self._start_offsets = StartOffsets(
            self._consumer,
            name,
            reset=str(settings.get("auto.offset.reset", "latest")),
            timeout_s=api_timeout_s,
            interrupted=self._interrupted,
            seldom=self._seldom,
        )

    @staticmethod
    def client_settings(settings: Mapping[str, object]) -> dict[str, object]:
        """Returns the client's configuration without callbacks: the given settings, and the worker's additions."""
        return {
            # Limits the client's queue, in addition to a fetch response, which is Java's only limit.
            "queued.max.messages.kbytes": 4096,
            # The client unpacks a whole fetch at once; unpacked messages of many partitions are many times as large.
            "max.partition.fetch.bytes": 262144,
            # Java's consumer has no limit for the size of records, so no record may be too large here.
            "receive.message.max.bytes": MOST_BYTES,
            # As in Java.
            "check.crcs": True,
            # Otherwise the client waits a second after its queue was full.
            "fetch.queue.backoff.ms": 10,
            **for_client(settings),
            # Invariant 2: whatever the user sets, the client commits and stores nothing by itself.
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": False,
        }

    # -- Subscription and rebalances ---------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        self._subscription = subscription
        self._listener = listener
        if subscription.pattern is None:
            self._subscribe_to(subscription.topics)

    def _subscribe_to(self, topics: Iterable[str]) -> None:
        self._subscribed = frozenset(topics)
        self._joining = True
        self._consumer.subscribe(
            sorted(self._subscribed), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _refresh_pattern(self) -> None:
        """Subscribes to the topics that match now. Java's client also matches at each refresh of its metadata."""
        now = time.monotonic()
        if self._subscription.pattern is None or now < self._next_refresh:
            return
        self._next_refresh = now + self._refresh_s
        try:
            metadata = self._consumer.list_topics(timeout=5.0)
        except ck.KafkaException as failure:
            self._next_refresh = now + min(1.0, self._refresh_s)
            self._seldom.warning("topics", "%s cannot list the topics of its pattern: %s", self._name, failure.args[0])
            return
        found = frozenset(topic for topic in metadata.topics if self._subscription.covers(topic))
        if found and found != self._subscribed:
            self._subscribe_to(found)

    def _ask_for_missing(self) -> None:
        """Requests missing topics, which makes brokers create them (``allow.auto.create.topics``).

        The client requests the topics of a subscription without permission to create them, despite the setting.
        """
        now = time.monotonic()
        if not (self._creates and self._missing) or now < self._next_request:
            return
        self._next_request = now + self._refresh_s
        for topic in sorted(self._missing & self._subscribed):
            try:
                found = self._consumer.list_topics(topic, timeout=5.0).topics[topic]
            except ck.KafkaException as failure:
                self._seldom.warning("create", "%s cannot ask for topic %s: %s", self._name, topic, failure.args[0])
                return
            if found.error is None:
                self._missing.discard(topic)

    def _on_assign(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        if self._closing or self._listener is None:
            self._joining = False
            return
        if not self._cooperative and self._owned:
            # The client joined again on its own, as it does when it notices new partitions.
            self._on_revoke(self._consumer, [ck.TopicPartition(*owned) for owned in sorted(self._owned)])
        self._joining = False
        self._reachable = True
        self._epoch += 1
        coming = [TopicPartition(p.topic, p.partition) for p in partitions]
        self._listener.before_assigned(coming)
        starts, at_end = self._start_offsets.of(coming)
        placement = self._listener.on_assigned(starts, self._epoch, at_end)
        begin = [ck.TopicPartition(tp.topic, tp.partition, placement.starts.get(tp, at)) for tp, at in starts.items()]
        self._positions.update({TopicPartition(one.topic, one.partition): one.offset for one in begin})
        if self._cooperative:
            self._consumer.incremental_assign(begin)
            self._owned.update(starts)
        else:
            self._consumer.assign(begin)
            self._owned = set(starts)
        if placement.paused:
            self.pause(placement.paused)

    def _on_revoke(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._let_go(partitions, lost=False)

    def _on_lost(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._let_go(partitions, lost=True)

    def _let_go(self, partitions: list[ck.TopicPartition], *, lost: bool) -> None:
        gone = [TopicPartition(p.topic, p.partition) for p in partitions]
        if gone and not self._closing and self._listener is not None:
            tell = self._listener.on_lost if lost else self._listener.on_revoked
            tell(gone)
        self._joining = lost or not self._cooperative
        self._epoch += 1
        self._owned.difference_update(gone)
        for partition in gone:
            self._positions.pop(partition, None)
            self._troubles.forget(partition)
            self._shaken.discard(partition)

    # -- Fetching ----------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._epoch

    def fetch(self, max_records: int, timeout_s: float) -> FetchedChunk | None:
        """Returns the messages that have arrived; waits for the first one if there are none.

        Callbacks run in here.

        Returns:
            None when nothing came.

        Raises:
            KafkaException, ConnectException: The consumer cannot continue (authorization, no offset to begin at, ...).
                An unreachable broker is not an error: the client keeps trying and logs.
        """
        if self._pending_error is not None:
            raise exception_of(self._name, self._pending_error)
        self._refresh_pattern()
        self._ask_for_missing()
        if self._ready:
            return self._ready.popleft()
        try:
            before = self._sole_owner()
            most = min(max_records, CHUNK_RECORDS)
            with collector_paused():
                messages = self._consumer.consume(most, 0)
                if messages:
                    return self._chunk(messages, one_partition=0 < before == self._sole_owner())
            first = self._consumer.poll(timeout_s)
            if first is None:
                return None
            epoch = self._epoch
            with collector_paused():
                messages = self._consumer.consume(most - 1, 0) if most > 1 else []
                if self._epoch == epoch or first.error() is not None:
                    return self._chunk([first, *messages], one_partition=0 < before == self._sole_owner())
                # Partitions were assigned or revoked between the two: the first message belongs to the earlier
                # assignment.
                if messages and (later := self._chunk(messages, one_partition=False)) is not None:
                    self._ready.append(later)
                table, ends = to_arrow([first], one_partition=False)
                return FetchedChunk(table, ends, epoch, more=True)
        except ck.KafkaException as failure:
            raise exception_of(self._name, failure.args[0]) from failure

    def _sole_owner(self) -> int:
        """The epoch if exactly one partition is owned, else 0. While it is constant, all messages are of that one."""
        return self._epoch if len(self._owned) == 1 else 0

    def _chunk(self, messages: list[ck.Message], *, one_partition: bool) -> FetchedChunk | None:
        if any(map(ck.Message.error, messages)):
            messages = self._without_errors(messages)
            if not messages:
                return self._ready.popleft() if self._ready else None
        if self._shaken and not (messages := [one for one in messages if self._is_ahead(one)]):
            return None
        table, ends = to_arrow(messages, one_partition=one_partition)
        self._positions.update(ends)
        return FetchedChunk(table, ends, self._epoch, more=any(self._is_behind(*one) for one in ends.items()))

    def _is_behind(self, partition: TopicPartition, offset: int) -> bool:
        """True if the client has seen later messages of the partition; makes no request."""
        try:
            _, high = self._consumer.get_watermark_offsets(ck.TopicPartition(*partition), cached=True)
        except ck.KafkaException:
            return False
        return bool(high > offset)

    def _without_errors(self, messages: Iterable[ck.Message]) -> list[ck.Message]:
        good: dict[TopicPartition | None, list[ck.Message]] = {}
        broken: dict[TopicPartition, ck.Message] = {}
        for message in messages:
            error, partition = message.error(), _partition_of(message)
            if partition in broken:
                # After a wrong checksum the client misreads bytes as records.
                continue
            if error is None:
                good.setdefault(partition, []).append(message)
                continue
            if error.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART and self._subscription.pattern is None:
                self._missing.add(message.topic() or "")
            if ends_reading(error):
                raise exception_of(self._name, error)
            if partition is not None and is_about_records(error, message.topic()):
                broken[partition] = message
            elif not is_usual(error):
                self._seldom.warning((error.code(), message.topic()), "%s: %s; waiting", self._name, error.str())
        for partition, message in broken.items():
            self._get_over(partition, message, good.get(partition, ()))
        return [message for some in good.values() for message in some]

    def _is_ahead(self, message: ck.Message) -> bool:
        """False for messages that were fetched before a seek."""
        partition = _partition_of(message)
        return partition not in self._shaken or (message.offset() or 0) >= self._positions.get(partition, 0)

    def _get_over(self, partition: TopicPartition, message: ck.Message, before: Sequence[ck.Message]) -> None:
        """Reads an unreadable batch again, or skips it."""
        error = message.error()
        if partition not in self._owned or error is None:
            return
        self._shaken.add(partition)
        position = (before[-1].offset() or 0) + 1 if before else self._positions.get(partition, 0)
        try:
            _, high = self._consumer.get_watermark_offsets(ck.TopicPartition(*partition), cached=True)
        except ck.KafkaException:
            high = -1
        told = message.offset()
        first = batch_start(-1 if told is None else told, position, high if high > 0 else None)
        end = None
        if self._troubles.is_final(partition, first):
            end = end_of_batch(self._settings, partition, first)
            if end is None:
                self._seldom.warning(
                    ("end", partition), "%s: %s; Kafka does not say where that batch ends", self._name, error.str()
                )
        if end is None:
            self._seek_one(ck.TopicPartition(*partition, first))
            return
        found = UnreadableRecords(partition, first, end, error.str())
        logger.warning("%s: %s", self._name, found)
        self._seek_one(ck.TopicPartition(*partition, end))
        self._positions[partition] = end
        self._ready.append(FetchedChunk(placeholder(partition, first), {partition: end}, self._epoch, found))

    def _on_error(self, error: ck.KafkaError) -> None:
        if error.code() == ck.KafkaError._ALL_BROKERS_DOWN:
            self._reachable = False
        if ends_reading(error):
            self._pending_error = error
        elif not is_usual(error):
            self._seldom.warning(error.code(), "%s: %s; the client keeps trying", self._name, error.str())

    # -- Positions ---------------------------------------------------------------------------------------------------

    def seek(self, positions: Mapping[TopicPartition, int]) -> int:
        """Continues from other offsets; partitions that are not assigned are ignored. Returns the epoch of messages
        that are fetched after this call.
        """
        self._epoch += 1
        self._positions.update(positions)
        for tp, offset in positions.items():
            self._troubles.forget(tp)
            if tp in self._owned:
                self._seek_one(ck.TopicPartition(tp.topic, tp.partition, offset))
        return self._epoch

    def _seek_one(self, position: ck.TopicPartition) -> None:
        """Seeks one partition; tries again for a moment, as the client refuses seeks right after an assignment."""
        deadline = time.monotonic() + 5.0
        while True:
            try:
                self._consumer.seek(position)
                return
            except ck.KafkaException as failure:
                error = failure.args[0]
                if time.monotonic() >= deadline or self._interrupted.wait(_SEEK_RETRY_S):
                    where = f"{position.topic}-{position.partition}"
                    raise KafkaException(f"{self._name} could not seek {where} to {position.offset}: {error}") from None

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops fetching these partitions until ``resume``; the group membership continues."""
        if asked := self._those_owned(partitions):
            self._consumer.pause(asked)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        if asked := self._those_owned(partitions):
            self._consumer.resume(asked)

    def _those_owned(self, partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
        return [ck.TopicPartition(tp.topic, tp.partition) for tp in partitions if tp in self._owned]

    # -- Commits -----------------------------------------------------------------------------------------------------

    def commit_async(self, offsets: Offsets, answer: Callable[[Exception | None], None]) -> None:
        """Commits without waiting; ``answer`` is called inside a later ``fetch``."""
        self._commits.commit_async(offsets, answer)

    def _on_commit(self, error: ck.KafkaError | None, partitions: list[ck.TopicPartition]) -> None:
        self._commits.answered(error, partitions)

    def commit_sync(self, offsets: Offsets) -> None:
        self._commits.commit_sync(offsets)

    # -- End ---------------------------------------------------------------------------------------------------------

    def ends(self) -> dict[TopicPartition, int]:
        """The offset after each partition's last message, from the latest fetch response; makes no request.

        Unknown partitions are left out. The end of a partition stays the same while it is paused or its queue in the
        client is full, because it is not fetched then.
        """
        found = {}
        for tp in self._owned:
            try:
                _, high = self._consumer.get_watermark_offsets(ck.TopicPartition(*tp), cached=True)
            except ck.KafkaException:
                continue
            if high >= 0:
                found[tp] = high
        return found

    def interrupt(self) -> None:
        """Ends waiting for the broker inside callbacks and seeks; call it before ``close``.

        Thread: any.
        """
        self._interrupted.set()

    def close(self) -> None:
        """Leaves the group, even as a static member; the listener is not called again.

        A group that waits for another member does not respond to this one before that, and would keep it as a member if
        it just disconnected. So this may take minutes: callers need not wait for it.
        """
        self._closing = True
        self._interrupted.set()
        try:
            self._await_join()
            if self._static:
                self._leave()
        except ck.KafkaException as failure:
            logger.debug("%s: while it waited to leave its group: %s", self._name, failure)
        self._consumer.close()

    def _await_join(self) -> None:
        deadline = time.monotonic() + _JOIN_S
        while self._joining and self._reachable and self._pending_error is None and time.monotonic() < deadline:
            # The offsets of messages that arrive now are not committed: the task has no partitions yet.
            self._consumer.poll(_RETRY_S)

    def _leave(self) -> None:
        """Leaves the group as a static member. Closing does not (KIP-345); a member that reads no topic any more
        leaves.
        """
        deadline = time.monotonic() + _LEAVE_S
        self._consumer.unsubscribe()
        while self._consumer.memberid() and self._pending_error is None and time.monotonic() < deadline:
            self._consumer.poll(_LEAVE_SLICE_S)


def _partition_of(message: ck.Message) -> TopicPartition | None:
    topic, number = message.topic(), message.partition()
    return None if topic is None or number is None or number < 0 else TopicPartition(topic, number)
