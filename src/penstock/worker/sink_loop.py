"""The loop of a sink task: events, commits, rewinds, ``put``, round after round.

Main type: ``SinkLoop``; ``SinkCounts`` are the plain counters metrics read.

Owning thread: the task's thread, for everything; all user code is called from here. Batches and events come through
``SinkStages``. What makes overlapping safe: batches carry the epoch they were fetched in, and only rows of partitions
that are owned since are put (``SinkPartitions``); offsets move when a whole batch was put, so nothing in flight is
committed.

Source: ``WorkerSinkTask`` (``iteration``, ``deliverMessages``, ``HandleRebalance``); runtime.md section 8.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import AnySinkTask, FrameSinkTask, SinkFrame, SinkRecord, SinkTask, TopicPartition
from penstock.errors import ConnectException, KafkaRetriableException, RetriableException, SparkUnavailableException
from penstock.kafka.consumer import Placement
from penstock.pipeline.batches import SinkBatch
from penstock.pipeline.driver_jvm import brief
from penstock.worker.errant_records import DeliveredMessages, ErrantRecords
from penstock.worker.sink_commit import CommitProgress
from penstock.worker.sink_committer import SinkCommitter
from penstock.worker.sink_context import WorkerSinkTaskContext
from penstock.worker.sink_delivery import (
    Delivery,
    message_at,
    place_of,
    prefix_ends,
    records_by_row,
    rows_of,
)
from penstock.worker.sink_partitions import SinkPartitions
from penstock.worker.sink_stages import (
    Assigned,
    CommitAnswered,
    ConvertedBatch,
    Event,
    Lost,
    Revoked,
    SinkConsumer,
    SinkStages,
    StageFailed,
    StagesClosed,
)
from penstock.worker.sink_threads import SinkFetcher
from penstock.worker.task_session import TaskSession
from penstock.worker.tolerance import ErrorHandler

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: ``put`` is called with an empty list at least this often.
IDLE_ROUND_MS = 1000
#: So many Spark sessions may be lost under ``put`` of one batch.
MAX_LOSSES = 3
#: How often a task whose batch waits for a Spark session looks whether one is there.
SESSION_ROUND_MS = 200


@dataclass
class SinkCounts:
    """Plain counters (``sink-task-metrics``), read by metrics from any thread."""

    records_read: int = 0
    records_put: int = 0
    puts: int = 0
    put_time_ms: float = 0.0
    put_time_max_ms: float = 0.0
    partitions: int = 0


@dataclass(frozen=True)
class SinkParts:
    """What the loop works with; all of it belongs to the task's thread, but for the stages."""

    name: str
    task: AnySinkTask
    context: WorkerSinkTaskContext
    partitions: SinkPartitions
    stages: SinkStages
    fetcher: SinkFetcher
    progress: CommitProgress
    committer: SinkCommitter
    errors: ErrorHandler
    errant: ErrantRecords | None
    messages: DeliveredMessages
    session: TaskSession


class SinkLoop:
    """Rounds of one task.

    Args:
        parts: What it works with.
        clock: Milliseconds since the epoch.
        cancelled: Whether the task was abandoned.
        record_topic: Told once of each topic that records were read from.
        on_rest: Told when the task begins (True) and ends (False) to rest.
        probe: Called at named points, for tests that end the process there.
    """

    def __init__(
        self,
        parts: SinkParts,
        *,
        clock: Callable[[], int],
        cancelled: Callable[[], bool],
        record_topic: Callable[[str], None],
        on_rest: Callable[[bool], None],
        probe: Callable[[str], None],
    ) -> None:
        self._parts = parts
        self._task = parts.task
        self._context = parts.context
        self._partitions = parts.partitions
        self._stages = parts.stages
        self._clock = clock
        self._cancelled = cancelled
        self._record_topic = record_topic
        self._on_rest = on_rest
        self._probe = probe
        self._known_topics: set[str] = set()
        self._delivery: Delivery | None = None
        self._retry_at_ms: int | None = None
        # Spark sessions that were lost under ``put`` of the batch in hand, and whether it waits for the next one.
        self._losses = 0
        self._awaits_session = False
        self._resting = False
        self._applied_pauses: frozenset[TopicPartition] = frozenset()
        self._held: frozenset[TopicPartition] = frozenset()
        self._last_put_ms = clock()
        self.counts = SinkCounts()

    @property
    def retry_at_ms(self) -> int | None:
        """When the batch in hand is put again, if the task asked for that. Thread: any."""
        return self._retry_at_ms

    # -- Rounds ------------------------------------------------------------------------------------------------------

    def round(self, *, rest: bool) -> None:
        """One round: at most one batch is put.

        Args:
            rest: Whether the connector is to be paused.

        Raises:
            Exception: What the task fails with.
        """
        self._handle_events()
        self._follow_target(rest)
        now = self._clock()
        self._commit_if_due(now)
        self._rewind(self._context.take_rewinds())
        self._apply_pauses()
        timeout_ms = self._context.take_timeout_ms()
        if self._delivery is not None:
            self._deliver_again(now)
            return
        delivery = self._next_delivery()
        if delivery is None:
            self._stages.wait_in_task(self._idle_ms(now, timeout_ms) / 1000, for_batches=not self._resting)
            if self._handle_events():
                return
            delivery = self._next_delivery()
        if delivery is not None:
            self._delivery = delivery
            if self._parts.errant is not None:
                self._parts.messages.remember(delivery)
            self._deliver()
        else:
            self._put_nothing(forced=timeout_ms is not None)

    def _idle_ms(self, now: int, timeout_ms: int | None) -> int:
        """How long to wait for a batch: to the next commit, to the time the task asked for, or a second."""
        idle = min(self._parts.progress.wait_ms(now), max(0, self._last_put_ms + IDLE_ROUND_MS - now))
        return idle if timeout_ms is None else min(idle, timeout_ms)

    def _follow_target(self, rest: bool) -> None:
        if rest == self._resting:
            return
        self._resting = rest
        self._apply_pauses()
        if rest:
            self._context.request_commit()
        self._on_rest(rest)

    # -- Delivery ----------------------------------------------------------------------------------------------------

    def _next_delivery(self) -> Delivery | None:
        """The next batch with anything that still counts."""
        while not self._resting and (converted := self._stages.take_converted()) is not None:
            delivery = self._prepare(converted)
            if delivery is not None:
                return delivery
        return None

    def _prepare(self, converted: ConvertedBatch) -> Delivery | None:
        """Leave out rows of partitions that have gone or were rewound, handle failed records, cut at a fatal one."""
        fetched, batch = converted.fetched, converted.batch
        table, records, errors = fetched.table, records_by_row(batch, fetched.table.num_rows), dict(batch.errors)
        attempts = dict(converted.attempts)
        stale = self._partitions.stale(fetched.ends, fetched.epoch)
        if len(stale) == len(fetched.ends):
            return None
        ends = {partition: end for partition, end in fetched.ends.items() if partition not in stale}
        if stale:
            kept = pc.indices_nonzero(pc.invert(rows_of(table, stale))).to_pylist()
            table = table.take(pa.array(kept, pa.int64()))
            records = None if records is None else [records[row] for row in kept]
            attempts = {new: attempts[old] for new, old in enumerate(kept) if old in attempts}
            errors = {new: errors[old] for new, old in enumerate(kept) if old in errors}
        self.counts.records_read += table.num_rows
        self._note_topics(ends)
        fatal = self._parts.errors.handle_batch(errors, lambda row: message_at(table, row), attempts=attempts)
        whole = table
        if fatal is not None:
            # Invariant 2: what is put, and committed, ends in front of the record that ends the task.
            table = whole.slice(0, fatal.seq)
            ends = prefix_ends(whole, fatal.seq)
            records = None if records is None else records[: fatal.seq]
        fatal_error = None if fatal is None else fatal.exception
        if records is None:
            again = bool(stale) or fatal is not None
            frames = self._frames_of(table) if again else list(batch.frames or ())
            return Delivery(table, None, frames, ends, fatal_error)
        if batch.origins is not None:
            pieces = cast("Sequence[Sequence[SinkRecord]]", records)
            return Delivery(table, list(chain.from_iterable(pieces)), None, ends, fatal_error)
        if errors or batch.count_dropped:
            records = [record for record in records if record is not None]
        # Without errors and dropped ones every row has its record.
        return Delivery(table, cast("Sequence[SinkRecord]", records), None, ends, fatal_error)

    def _frames_of(self, table: pa.Table) -> list[SinkFrame]:
        """Frames of these rows only: converting again is simpler than cutting frames, and rare."""
        if table.num_rows == 0:
            return []
        batch: SinkBatch = self._answer_of(self._stages.convert_again(table))
        return list(batch.frames or ())

    def _note_topics(self, ends: Mapping[TopicPartition, int]) -> None:
        for topic in {partition.topic for partition in ends} - self._known_topics:
            self._known_topics.add(topic)
            self._record_topic(topic)

    def _deliver(self) -> None:
        """Put the batch in hand; keep it when the task asks for that."""
        delivery = self._delivery
        assert delivery is not None
        self._partitions.begin_delivery(delivery.ends)
        self._parts.session.begin_put()
        started = time.monotonic()
        size = delivery.size
        try:
            if isinstance(self._task, FrameSinkTask):
                while delivery.frames:
                    self._task.put(delivery.frames[0])
                    del delivery.frames[0]
            elif isinstance(self._task, SinkTask):
                self._task.put(list(delivery.records or ()))
        except (RetriableException, KafkaRetriableException) as failure:
            self._keep_for_retry(failure)
            return
        except Exception as failure:
            if self._parts.session.lost_in_put(failure):
                self._keep_for_session(delivery, failure)
                return
            raise ConnectException(
                f"{self._parts.name}: exiting due to unrecoverable exception in put of {place_of(delivery.table)}: "
                f"{failure}"
            ) from failure
        self._count_put(started, size)
        self._probe("sink.after_put")
        self._raise_if_exceeded()
        # Invariant 2: after the whole batch was put, never before.
        self._partitions.end_delivery()
        self._drop_delivery()
        if delivery.fatal is not None:
            raise delivery.fatal

    def _deliver_again(self, now: int) -> None:
        """Try the kept batch when its time has come; events are handled while waiting."""
        if self._awaits_session:
            self._await_session(now)
            return
        left = 0 if self._retry_at_ms is None else self._retry_at_ms - now
        if left > 0:
            wait = min(left, IDLE_ROUND_MS, max(1, self._parts.progress.wait_ms(now)))
            self._stages.wait_in_task(wait / 1000, for_batches=False)
        else:
            self._deliver()

    def _keep_for_retry(self, failure: Exception) -> None:
        """The batch in hand comes before any other. Invariant 3."""
        now = self._clock()
        wait = self._context.take_timeout_ms()
        self._retry_at_ms = now + (self._parts.progress.wait_ms(now) if wait is None else wait)
        logger.warning(
            "%s: put asks to be called again with the same records in %d ms: %s",
            self._parts.name,
            self._retry_at_ms - now,
            failure,
        )
        self._apply_pauses()

    def _keep_for_session(self, delivery: Delivery, failure: Exception) -> None:
        """The Spark session was lost under ``put``: it is not the task's fault, and the same batch goes to the next."""
        self._losses += 1
        if self._losses >= MAX_LOSSES:
            raise SparkUnavailableException(
                f"{self._parts.name}: put of {place_of(delivery.table)} was tried on {self._losses} Spark sessions and "
                "each was lost; raise spark.driver.memory or lower batch.max.bytes"
            ) from failure
        logger.warning(
            "%s: the Spark session was lost during put, which is called again on a new one with the same records (%s): "
            "%s",
            self._parts.name,
            place_of(delivery.table),
            brief(failure),
        )
        self._retry_at_ms, self._awaits_session = None, True
        self._apply_pauses()

    def _await_session(self, now: int) -> None:
        """Put the kept batch when there is a session again. One that cannot start fails the task by an event."""
        if not self._parts.session.up:
            wait = min(SESSION_ROUND_MS, max(1, self._parts.progress.wait_ms(now)))
            self._stages.wait_in_task(wait / 1000, for_batches=False)
            return
        self._awaits_session = False
        self._deliver()

    def _put_nothing(self, *, forced: bool) -> None:
        """The regular call without records, for work that depends on time. Frame tasks are not called."""
        now = self._clock()
        if now < self._last_put_ms + IDLE_ROUND_MS and not forced:
            return
        self._last_put_ms = now
        if not isinstance(self._task, SinkTask):
            return
        started = time.monotonic()
        try:
            self._task.put([])
        except (RetriableException, KafkaRetriableException) as failure:
            self._delivery = Delivery(pa.table({}), [], None, {})
            self._keep_for_retry(failure)
            return
        except Exception as failure:
            raise ConnectException(
                f"{self._parts.name}: exiting due to unrecoverable exception: {failure}"
            ) from failure
        self._count_put(started, 0)
        self._raise_if_exceeded()

    def _raise_if_exceeded(self) -> None:
        if self._parts.errant is not None:
            self._parts.errant.raise_if_exceeded()

    def _count_put(self, started: float, size: int) -> None:
        took_ms = (time.monotonic() - started) * 1000
        self.counts.puts += 1
        self.counts.records_put += size
        self._parts.stages.busy.add("put", took_ms / 1000)
        self.counts.put_time_ms += took_ms
        self.counts.put_time_max_ms = max(self.counts.put_time_max_ms, took_ms)
        self._last_put_ms = self._clock()

    def _drop_delivery(self) -> None:
        """Nothing is in hand any more; partitions that waited for it deliver again."""
        self._delivery = None
        self._partitions.drop_delivery()
        was_kept = self._retry_at_ms is not None or self._losses > 0
        self._retry_at_ms, self._losses, self._awaits_session = None, 0, False
        if was_kept:
            self._apply_pauses()

    # -- Commits, rewinds, pauses ------------------------------------------------------------------------------------

    def _commit_if_due(self, now: int) -> None:
        progress = self._parts.progress
        if progress.due(now, requested=self._context.commit_requested):
            self._context.clear_commit_request()
            progress.schedule(now)
            if not self._parts.committer.commit(now):
                assigned = self._partitions.assigned
                self._rewind({tp: at.offset for tp, at in self._partitions.committed(assigned).items()})
        if progress.give_up_if_late(now):
            logger.warning("%s: offset commit %d had no answer in time", self._parts.name, progress.sequence)

    def _rewind(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on from other offsets: what was fetched, converted or is in hand of these partitions is dropped."""
        assigned = self._partitions.assigned
        for partition in positions.keys() - assigned:
            logger.warning("%s: ignoring a rewind of %s: not assigned to this task", self._parts.name, partition)
        wanted = {partition: offset for partition, offset in positions.items() if partition in assigned}
        if not wanted:
            return
        epoch = self._seek(wanted)
        for partition, offset in wanted.items():
            logger.info("%s: rewinding %s to offset %d", self._parts.name, partition, offset)
            self._partitions.rewind(partition, offset, epoch)
        self._trim_delivery(frozenset(wanted))

    def _trim_delivery(self, gone: frozenset[TopicPartition]) -> None:
        """Take records of these partitions out of the batch that waits for its next try."""
        delivery = self._delivery
        if delivery is None or not gone & delivery.ends.keys():
            return
        if delivery.ends.keys() <= gone:
            fatal = delivery.fatal
            self._drop_delivery()
            if fatal is not None:
                logger.info("%s: a record that could not be got over is read again: %s", self._parts.name, fatal)
            return
        trimmed = delivery.without(gone)
        if trimmed.frames is not None:
            trimmed.frames = self._frames_of(trimmed.table)
        self._delivery = trimmed

    @property
    def _takes_nothing(self) -> bool:
        """Whether nothing is to be fetched: the connector rests, or a batch is kept that comes before any other."""
        return self._resting or self._retry_at_ms is not None or self._losses > 0

    def _wanted_pauses(self) -> frozenset[TopicPartition]:
        assigned = self._partitions.assigned
        return assigned if self._takes_nothing else self._context.paused & assigned

    def _apply_pauses(self) -> None:
        """Make the consumer pause what should be paused now."""
        held = self._context.paused & self._partitions.assigned
        if new := held - self._held:
            self._hold(new)
        self._held = held
        wanted = self._wanted_pauses()
        if wanted != self._applied_pauses:
            self._parts.fetcher.set_paused(
                wanted - self._applied_pauses,
                self._applied_pauses - wanted,
                everything=self._takes_nothing,
            )
            self._applied_pauses = wanted

    def _hold(self, partitions: frozenset[TopicPartition]) -> None:
        """Records on their way must not arrive after the task paused them: they are fetched again after ``resume``."""
        positions = {partition: self._partitions.next_to_deliver(partition) for partition in partitions}

        def seek_and_pause(consumer: SinkConsumer) -> int:
            epoch = consumer.seek(positions)
            consumer.pause(partitions)
            return epoch

        epoch = self._answer_of(self._stages.submit(seek_and_pause))
        for partition in partitions:
            self._partitions.discard_fetched(partition, epoch)
        self._applied_pauses |= partitions

    def _seek(self, positions: Mapping[TopicPartition, int]) -> int:
        return self._answer_of(self._stages.submit(lambda consumer: consumer.seek(positions)))

    def _answer_of(self, future: Future[T]) -> T:
        """Wait for another thread of this task, or for the end."""
        while True:
            try:
                return future.result(1.0)
            except FutureTimeout:
                if self._stages.closed:
                    raise StagesClosed(f"{self._parts.name} was ended") from None

    # -- Events ------------------------------------------------------------------------------------------------------

    def _handle_events(self) -> bool:
        events = self._stages.take_events()
        for index, event in enumerate(events):
            try:
                self._handle(event)
            except BaseException:
                # The fetch thread must not wait for answers that will not come.
                for unanswered in events[index + 1 :]:
                    if isinstance(unanswered, Assigned | Revoked | Lost):
                        self._stages.answer(unanswered)
                raise
        return bool(events)

    def _handle(self, event: Event) -> None:
        match event:
            case Assigned():
                self._on_assigned(event)
            case Revoked():
                self._on_revoked(event)
            case Lost():
                self._on_lost(event)
            case CommitAnswered():
                self._parts.committer.answered(event)
            case StageFailed(error=error):
                raise error

    def _on_assigned(self, event: Assigned) -> None:
        placement = Placement(event.starts)
        try:
            self._partitions.assign(event.starts, event.epoch, unstored=event.at_end)
            self._context.retain(self._partitions.assigned)
            self.counts.partitions = len(self._partitions.assigned)
            elsewhere: dict[TopicPartition, int] = {}
            starts = dict(event.starts)
            if starts:
                logger.info("%s: opening %s", self._parts.name, ", ".join(map(str, starts)))
                self._task.open(list(starts))
                for partition, offset in self._context.take_rewinds().items():
                    if partition in starts:
                        starts[partition] = offset
                        self._partitions.rewind(partition, offset, event.epoch)
                    else:
                        elsewhere[partition] = offset
            self._rewind(elsewhere)
            if event.at_end:
                self._context.request_commit()
            self._held |= self._context.paused & starts.keys()
            self._applied_pauses = self._wanted_pauses()
            placement = Placement(starts, self._applied_pauses)
        finally:
            self._stages.answer(event, placement)

    def _on_revoked(self, event: Revoked) -> None:
        try:
            logger.info("%s: giving back %s", self._parts.name, ", ".join(map(str, event.partitions)))
            self.close_partitions(event.partitions)
        finally:
            self._forget(event.partitions)
            self._stages.answer(event)

    def _on_lost(self, event: Lost) -> None:
        owned = [partition for partition in event.partitions if partition in self._partitions.assigned]
        try:
            logger.warning("%s: lost %s", self._parts.name, ", ".join(map(str, event.partitions)))
            if owned:
                self._task.close(owned)
        finally:
            self._forget(event.partitions)
            self._stages.answer(event)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing of these partitions is kept: offsets, records in hand, pauses of the consumer, rewinds."""
        gone = frozenset(partitions)
        self._partitions.remove(gone)
        self._context.forget_rewinds(gone)
        self._applied_pauses -= gone
        self._held -= gone
        self._trim_delivery(gone)
        self.counts.partitions = len(self._partitions.assigned)

    def close_partitions(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Commit and close partitions that go away; None: all of them, at the end of the task."""
        wanted = list(self._partitions.assigned) if partitions is None else list(partitions)
        if self._cancelled():
            logger.info("%s: no last offset commit: the task was cancelled", self._parts.name)
            if owned := [partition for partition in wanted if partition in self._partitions.assigned]:
                self._task.close(owned)
            return
        self._parts.committer.commit_and_close(self._clock(), wanted, cancelled=self._cancelled)
        self._probe("sink.closed")
