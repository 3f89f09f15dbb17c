"""Two more threads of a sink task: one fetches (and owns the consumer), one converts (and owns the pipeline).

Rebalance callbacks run inside a fetch: they hand over to the task's thread and wait for its answer, serving its
consumer calls (a commit, a seek) meanwhile. So user code runs on the task's thread only, and the group waits for
``open``, ``pre_commit`` and ``close`` as with a Java worker. Fetching stops while the task's thread does not come
round: a task stuck in ``put`` loses its partitions after ``max.poll.interval.ms``.

librdkafka joins a group again by itself when it notices new partitions, even while its owner is still closing the
revoked ones; the coordinator then assigns these to another member. A task of this worker (``Holder``) waits here for
their close, unless the other task has not polled for ``max.poll.interval.ms`` and may never return.

``SinkPauses`` belongs to the task's thread; ``Holder``: any.

Source: ``WorkerSinkTask`` (``pauseAll``, ``resumeAll``), ``WorkerSinkTaskContext`` (``pausedPartitions``); KIP-275:
`open` of a partition comes after the `close` before it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from penstock.api import TopicPartition
from penstock.errors import KafkaException, as_exception
from penstock.kafka.consumer.consumer import FetchedChunk, Placement
from penstock.kafka.consumer.messages import UnreadableRecords
from penstock.kafka.consumer.offsets import Subscription
from penstock.pipeline.batch.batches import PendingBatch, RecordError, SinkBatch, Submit
from penstock.threads import OwnedThread, start_within
from penstock.worker.errors import KAFKA_CONSUME, ErrorHandler
from penstock.worker.sink.context import WorkerSinkTaskContext
from penstock.worker.sink.deliveries import SinkPartitions
from penstock.worker.sink.queues import (
    Assigned,
    ConvertedBatch,
    Lost,
    Request,
    Revoked,
    SinkConsumer,
    SinkStages,
    StageFailed,
)
from penstock.worker.task.bounded_queue import OverlappingBatches, SharedLoad

_CONSUMER_CLASS = "org.apache.kafka.clients.consumer.KafkaConsumer"


class PartitionHolders:
    """The registry of which task has which partition open, in all consumer groups of this worker's tasks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.changed = threading.Condition()
        self.held: dict[tuple[str, TopicPartition], Holder] = {}

    def holder(self, group: str, max_poll_interval_s: float = 300.0) -> Holder:
        """A new member of a group, which holds nothing.

        Args:
            group: Identifies the group among the groups of all clusters.
            max_poll_interval_s: Seconds without a poll after which the group removes the member.
        """
        return Holder(self, group, max_poll_interval_s)


class Holder:
    """One task; made by ``PartitionHolders``."""

    def __init__(self, holders: PartitionHolders, group: str, max_poll_interval_s: float) -> None:
        self._group = group
        self._max_poll_interval_s = max_poll_interval_s
        self._held, self._changed, self._clock = holders.held, holders.changed, holders.clock
        self._polled = self._clock()

    @property
    def patience_s(self) -> float:
        """The number of seconds this task may wait for another one without losing its own place in the group."""
        return self._max_poll_interval_s * 0.9

    def polled(self) -> None:
        """The task's consumer polls now, and so is a member of its group."""
        self._polled = self._clock()

    def take(self, partitions: Collection[TopicPartition], timeout_s: float, *, anyway: bool = False) -> bool:
        """Hold these partitions, all or none, once no other task does.

        Args:
            anyway: Take them from their present holder without waiting.

        Returns:
            True if this task holds them now.
        """
        keys = [(self._group, partition) for partition in partitions]
        with self._changed:
            if not anyway and not self._changed.wait_for(lambda: self._free(keys), timeout_s):
                return False
            self._held.update(dict.fromkeys(keys, self))
            return True

    def give_back(self, partitions: Iterable[TopicPartition]) -> None:
        """The task has closed these partitions and made its last commit for them."""
        with self._changed:
            for partition in partitions:
                self._drop((self._group, partition))
            self._changed.notify_all()

    def leave(self) -> None:
        """The task has ended or was abandoned: it holds nothing."""
        with self._changed:
            for key in [key for key, holder in self._held.items() if holder is self]:
                self._drop(key)
            self._changed.notify_all()

    def _drop(self, key: tuple[str, TopicPartition]) -> None:
        if self._held.get(key) is self:
            del self._held[key]

    def _free(self, keys: Iterable[tuple[str, TopicPartition]]) -> bool:
        now = self._clock()
        holders = {holder for key in keys if (holder := self._held.get(key)) is not None and holder is not self}
        return all(now >= holder._polled + holder._max_poll_interval_s for holder in holders)


class BatchConverter(Protocol):
    """The part of ``pipeline.sink.SinkPipeline`` that the converter needs."""

    def run(self, batch: pa.Table) -> SinkBatch:
        """Convert one batch; failed records are in its errors."""

    def begin(self, batch: pa.Table, submit: Submit) -> PendingBatch[SinkBatch]:
        """Begin a batch and hand its job to `submit`."""


class MessageConverter:
    """Converts fetched batches, and tries records with retriable errors again."""

    def __init__(self, pipeline: BatchConverter, errors: ErrorHandler) -> None:
        self._pipeline = pipeline
        self._errors = errors

    def begin(self, fetched: FetchedChunk, submit: Submit) -> PendingBatch[ConvertedBatch]:
        """Begin one batch; Spark can work on it while the previous batch is in progress."""
        if fetched.unreadable is not None:
            converted = ConvertedBatch(fetched, SinkBatch([None], None, {0: _unread(fetched.unreadable)}, 0))
            return PendingBatch(lambda: converted)
        return PendingBatch(partial(self._finish, fetched, self._pipeline.begin(fetched.table, submit)))

    def _finish(self, fetched: FetchedChunk, begun: PendingBatch[SinkBatch]) -> ConvertedBatch:
        batch = begun.result()
        if not any(error.retriable for error in batch.errors.values()):
            return ConvertedBatch(fetched, batch)
        latest = [batch]
        dropped_at_first = batch.count_dropped

        def rerun(rows: list[int]) -> Mapping[int, RecordError]:
            if latest[0].records is None or latest[0].origins is not None:
                # Frames, and records that became several, cannot be put together from parts: all is converted again.
                latest[0] = self._pipeline.run(fetched.table)
                return latest[0].errors
            part = self._pipeline.run(fetched.table.take(pa.array(rows, pa.int64())))
            records = list(latest[0].records)
            for index, record in enumerate(part.records or ()):
                records[rows[index]] = record
            latest[0] = SinkBatch(records, None, {}, dropped_at_first + part.count_dropped)
            return {rows[index]: error for index, error in part.errors.items()}

        errors, attempts = self._errors.retry(batch.errors, rerun)
        last = latest[0]
        return ConvertedBatch(
            fetched, SinkBatch(last.records, last.frames, errors, last.count_dropped, last.origins), attempts
        )


def _unread(records: UnreadableRecords) -> RecordError:
    error = KafkaException(str(records))
    return RecordError(0, KAFKA_CONSUME, _CONSUMER_CLASS, KafkaException.java_name, str(records), exception=error)


logger = logging.getLogger(__name__)

#: The longest wait for messages, and so the longest delay of a consumer call of the task.
_SLICE_S = 0.1
#: The time that the end of a task waits for its consumer to leave the group; a rebalance may delay that for minutes.
_LEAVE_S = 1.0
#: The interval between two lookups of the ends of partitions, for the lag metrics.
_ENDS_S = 1.0


class SinkFetcher:
    """Fetches while there is room, and calls the consumer for the task.

    Args:
        consumer: Owned, and closed, by the fetch thread after ``start``.
        task_seen: When the task's thread last came round (monotonic seconds).
        max_silence_s: Seconds without a round of the task's thread after which fetching stops.
    """

    def __init__(
        self,
        consumer: SinkConsumer,
        subscription: Subscription,
        stages: SinkStages,
        *,
        name: str,
        task_seen: Callable[[], float],
        holder: Holder,
        max_silence_s: float = 5.0,
    ) -> None:
        self._holder = holder
        self._consumer = consumer
        self._subscription = subscription
        self._stages = stages
        self._task_seen = task_seen
        self._max_silence_s = max_silence_s
        self._everything_paused = False
        #: True after the group has assigned partitions, perhaps none, to this member; read from any thread.
        self.joined = False
        self._record_bytes = 1024.0
        self._name = name
        self._thread: OwnedThread | None = None
        self._ended = threading.Event()
        self._next_ends = 0.0
        #: The ends of the assigned partitions, as far as they are known. Replaced as a whole; any thread may read.
        self.ends: Mapping[TopicPartition, int] = {}

    def start(self) -> None:
        self._thread = start_within(self._name, self._run)

    def interrupt(self) -> None:
        """End waits for the broker; for use with ``SinkStages.close``. Thread: any."""
        self._consumer.interrupt()

    def join(self, timeout_s: float) -> bool:
        """Wait until fetching has ended; True if it has.

        The thread may then still leave the group; this call waits for that for a moment only. If the thread was never
        started, it only closes the consumer.
        """
        if self._thread is None:
            self._consumer.close()
            return True
        if not self._ended.wait(timeout_s):
            return False
        if not self._thread.join(_LEAVE_S):
            logger.info("%s: its consumer leaves the group as soon as the group, or a broker, answers", self._name)
        return True

    def set_paused(
        self, pause: Iterable[TopicPartition], resume: Iterable[TopicPartition], *, everything: bool
    ) -> None:
        """Change the paused partitions; with ``everything``, fetching continues without room for records, to stay in
        the group.
        """
        stop, go = frozenset(pause), frozenset(resume)

        def change(consumer: SinkConsumer) -> None:
            self._everything_paused = everything
            consumer.pause(stop)
            consumer.resume(go)

        self._stages.submit(change)

    def _run(self) -> None:
        try:
            self._consumer.subscribe(self._subscription, self)
            while not self._stages.closed:
                self._serve_calls()
                self._note_ends()
                self._fetch_once()
        except BaseException as failure:
            self._stages.post(StageFailed(as_exception(failure)))
            # The task may still commit delivered records.
            while not self._stages.closed:
                self._serve_calls()
                self._stages.wait_in_fetch(_SLICE_S, until=Request())
        finally:
            self.ends = {}
            self._holder.leave()
            self._ended.set()
            self._consumer.close()

    def _note_ends(self) -> None:
        if time.monotonic() >= self._next_ends:
            self.ends = self._consumer.ends()
            self._next_ends = time.monotonic() + _ENDS_S

    def _fetch_once(self) -> None:
        room = self._stages.room()
        silent = time.monotonic() - self._task_seen() > self._max_silence_s
        if (room == 0 and not self._everything_paused) or silent:
            self._stages.wait_in_fetch(_SLICE_S, until=Request() if silent else None)
            return
        fitting = int(self._stages.room_bytes() / self._record_bytes)
        self._holder.polled()
        started = time.monotonic()
        chunk = self._consumer.fetch(max(1, min(room, fitting)), _SLICE_S)
        if chunk is not None:
            self._stages.busy.add("fetch", time.monotonic() - started)
            self._record_bytes = max(1.0, chunk.table.nbytes / chunk.table.num_rows)
            self._stages.add_fetched(chunk)

    def _serve_calls(self) -> None:
        for action, future in self._stages.take_calls():
            _fulfil(future, action, self._consumer)

    def _hand_over(self, request: Assigned | Revoked | Lost) -> None:
        self._stages.post(request)
        while not request.answered and not self._stages.closed:
            self._serve_calls()
            self._stages.wait_in_fetch(_SLICE_S, until=request)

    def before_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Rebalance: another task of this worker may have them open still; it commits and closes them first."""
        if self._holder.take(partitions, 0):
            return
        names = ", ".join(map(str, partitions))
        logger.info("%s: waiting until other tasks have closed their partitions of %s", self._name, names)
        give_up = time.monotonic() + self._holder.patience_s
        while not self._holder.take(partitions, _SLICE_S):
            self._serve_calls()
            if self._stages.closed:
                return
            if time.monotonic() >= give_up:
                logger.warning(
                    "%s: another task has not closed all of %s in time; this task opens them now", self._name, names
                )
                self._holder.take(partitions, 0, anyway=True)
                return

    def on_assigned(
        self, starts: Mapping[TopicPartition, int], epoch: int, at_end: frozenset[TopicPartition] = frozenset()
    ) -> Placement:
        """Rebalance: the task opens the partitions and says where they begin."""
        request = Assigned(starts, epoch, at_end)
        self._hand_over(request)
        self.joined = True
        return request.placement or Placement(starts)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Rebalance: the task commits and closes the partitions."""
        self._hand_over(Revoked(partitions))
        self._holder.give_back(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Rebalance: the task closes the partitions."""
        self.joined = False
        self._hand_over(Lost(partitions))
        self._holder.give_back(partitions)


class SinkConverter:
    """Converts fetched batches, in order, and tries records with retriable errors again."""

    def __init__(
        self, pipeline: BatchConverter, stages: SinkStages, errors: ErrorHandler, load: SharedLoad, *, task: str
    ) -> None:
        self._converter = MessageConverter(pipeline, errors)
        self._stages = stages
        self._errors = errors
        self._load = load
        self._task = task
        self._thread: OwnedThread | None = None

    def start(self) -> None:
        self._thread = start_within(f"convert-{self._task}", self._run)

    def join(self, timeout_s: float) -> bool:
        return self._thread is None or self._thread.join(timeout_s)

    def _run(self) -> None:
        overlapping = OverlappingBatches(self._task, self._stages, self._converter.begin, self._stages.busy, self._load)
        try:
            while (converted := overlapping.next()) is not None:
                if self._errors.ending and any(error.retriable for error in converted.batch.errors.values()):
                    # Invariant 2: the retries were cut short, so the outcome of these records is unknown.
                    return
                if not self._stages.offer_converted(converted):
                    return
        except BaseException as failure:
            self._stages.post(StageFailed(as_exception(failure)))
        finally:
            overlapping.close()


def _fulfil(future: Future[Any], action: Callable[[Any], object], argument: object) -> None:
    try:
        result = action(argument)
    except BaseException as failure:
        future.set_exception(as_exception(failure))
    else:
        future.set_result(result)


class SinkPauses:
    """Pauses and resumes partitions of the consumer.

    Attributes:
        resting: True if the connector is paused.
        holds_back: True if a batch waits for its retry.
        unopened: True if partitions wait to be opened. The next ``apply`` passes a change to the consumer.
    """

    def __init__(
        self,
        name: str,
        context: WorkerSinkTaskContext,
        partitions: SinkPartitions,
        stages: SinkStages,
        fetcher: SinkFetcher,
    ) -> None:
        self._name = name
        self._context = context
        self._partitions = partitions
        self._stages = stages
        self._fetcher = fetcher
        self.resting = False
        self.holds_back = False
        self.unopened = False
        self._told_everything = False
        self._applied: frozenset[TopicPartition] = frozenset()
        # The partitions that the task has paused and whose consumer was sent back to undelivered messages.
        self._held: frozenset[TopicPartition] = frozenset()

    def rest(self, resting: bool) -> None:
        self.resting = resting
        self.apply()

    def hold_back(self, waits: bool) -> None:
        """A batch waits for its next try, or none does any more."""
        self.holds_back = waits
        self.apply()

    def apply(self) -> None:
        held = self._context.paused & self._partitions.assigned
        if new := held - self._held:
            self._hold(new)
        self._held = held
        requested = self._to_pause()
        if (requested, self._everything) != (self._applied, self._told_everything):
            self._told_everything = self._everything
            self._fetcher.set_paused(requested - self._applied, self._applied - requested, everything=self._everything)
            self._applied = requested

    def assigned(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Partitions have come, of which nothing was fetched; gives all that do not deliver for now."""
        self._held |= self._context.paused & frozenset(partitions)
        self._applied = self._to_pause()
        return self._applied

    def forget(self, gone: frozenset[TopicPartition]) -> None:
        self._applied -= gone
        self._held -= gone

    def _to_pause(self) -> frozenset[TopicPartition]:
        assigned = self._partitions.assigned
        return assigned if self._everything else self._context.paused & assigned

    @property
    def _everything(self) -> bool:
        return self.resting or self.holds_back or self.unopened

    def _hold(self, partitions: frozenset[TopicPartition]) -> None:
        """Records on their way must not arrive after the task paused them: they are fetched again after ``resume``."""
        positions = {partition: self._partitions.next_to_deliver(partition) for partition in partitions}

        def seek_and_pause(consumer: SinkConsumer) -> int:
            epoch = consumer.seek(positions)
            consumer.pause(partitions)
            return epoch

        epoch = self._stages.answer_of(self._stages.submit(seek_and_pause), self._name)
        for partition in partitions:
            self._partitions.discard_fetched(partition, epoch)
        self._applied |= partitions
