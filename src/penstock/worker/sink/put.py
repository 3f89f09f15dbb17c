"""Calls ``put``: with one batch after the other, again with the one in hand, and regularly without records.

Timed calls (``timed_calls``) come between two calls of ``put``.

Main types: ``SinkPut``; ``SinkParts``, what the loop of a sink task works with; ``SinkPauses``, which pauses partitions
of the consumer. A batch stays in hand while the task asks to retry it, or until a lost Spark session is back; fetching
stops until then. It also stops while the connector is paused; otherwise only the partitions that the task itself has
paused are left out.

Owning thread: the task's thread, but for the stages and for reading the counters.

Source: ``WorkerSinkTask`` (``deliverMessages``, ``pauseAll``, ``resumeAll``), ``WorkerSinkTaskContext``
(``pausedPartitions``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.api import AnySinkTask, FrameSinkTask, SinkTask, TopicPartition
from penstock.errors import ConnectException, OwnershipLostException, SparkStoppedException, SparkUnavailableException
from penstock.pipeline.batch.sink.frames import empty_frame
from penstock.pipeline.spark.driver.jvm import brief
from penstock.telemetry import waiting_for
from penstock.worker.sink.commit import CommitProgress, SinkCommitter
from penstock.worker.sink.context import WorkerSinkTaskContext
from penstock.worker.sink.deliveries import SinkDelivery, place_of
from penstock.worker.sink.errant_records import ErrantRecords
from penstock.worker.sink.fetching import SinkFetcher
from penstock.worker.sink.partitions import SinkPartitions
from penstock.worker.sink.queues import SinkConsumer, SinkStages
from penstock.worker.sink.timed_calls import ClockCall
from penstock.worker.task.retries import Retries, asks_again
from penstock.worker.task.spec import TaskServices, TaskSpec


@dataclass(frozen=True)
class SinkParts:
    """The parts of the loop; all but the stages belong to the task's thread."""

    spec: TaskSpec[AnySinkTask]
    services: TaskServices
    context: WorkerSinkTaskContext
    partitions: SinkPartitions
    stages: SinkStages
    fetcher: SinkFetcher
    committer: SinkCommitter
    errant: ErrantRecords
    retries: Retries

    @property
    def name(self) -> str:
        """The task, for messages."""
        return self.spec.name

    @property
    def progress(self) -> CommitProgress:
        """The schedule of commits, and which answers count."""
        return self.committer.progress


class SinkPauses:
    """Pauses and resumes partitions of the consumer.

    Args:
        parts: The parts of the loop.

    Attributes:
        resting: True if the connector is paused.
        holds_back: True if a batch waits for its retry.
        unopened: True if partitions wait to be opened. The next ``apply`` passes a change to the consumer.
    """

    def __init__(self, parts: SinkParts) -> None:
        self._name = parts.name
        self._context = parts.context
        self._partitions = parts.partitions
        self._stages = parts.stages
        self._fetcher = parts.fetcher
        self.resting = False
        self.holds_back = False
        self.unopened = False
        self._told_everything = False
        self._applied: frozenset[TopicPartition] = frozenset()
        # The partitions that the task has paused and whose consumer was sent back to undelivered messages.
        self._held: frozenset[TopicPartition] = frozenset()

    def rest(self, resting: bool) -> None:
        """Pauses or resumes for the connector."""
        self.resting = resting
        self.apply()

    def hold_back(self, waits: bool) -> None:
        """A batch waits for its next try, or none does any more."""
        self.holds_back = waits
        self.apply()

    def apply(self) -> None:
        """Applies the pauses to the consumer."""
        held = self._context.paused & self._partitions.assigned
        if new := held - self._held:
            self._hold(new)
        self._held = held
        wanted = self._wanted()
        if (wanted, self._everything) != (self._applied, self._told_everything):
            self._told_everything = self._everything
            self._fetcher.set_paused(wanted - self._applied, self._applied - wanted, everything=self._everything)
            self._applied = wanted

    def assigned(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Partitions have come, of which nothing was fetched; gives all that do not deliver for now."""
        self._held |= self._context.paused & frozenset(partitions)
        self._applied = self._wanted()
        return self._applied

    def forget(self, gone: frozenset[TopicPartition]) -> None:
        """Partitions have gone."""
        self._applied -= gone
        self._held -= gone

    def _wanted(self) -> frozenset[TopicPartition]:
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


logger = logging.getLogger(__name__)

#: ``put`` is called with an empty list at least this often.
IDLE_ROUND_S = 1.0
#: The number of Spark sessions that may be lost during ``put`` of one batch.
MAX_LOSSES = 3
#: The interval at which a task whose batch waits for a Spark session checks for one.
SESSION_ROUND_S = 0.2
_NO_ROWS = pa.table({})
#: A commit that is due and cannot be made now does not keep the thread busy.
_LEAST_S = 0.001


def _keeps(failure: Exception) -> bool:
    """True if the batch is kept for a retry; a task that is to end makes no retry."""
    return asks_again(failure) or isinstance(failure, SparkStoppedException)


class SinkPut:
    """One batch at a time, on its way into the task.

    Args:
        parts: The parts of the loop.
        pauses: Pauses fetching while a batch waits for its retry.
    """

    def __init__(
        self,
        parts: SinkParts,
        pauses: SinkPauses,
    ) -> None:
        self._parts = parts
        self._task = parts.spec.task
        self._session = parts.services.session
        self._stages = parts.stages
        self._partitions = parts.partitions
        self._pauses = pauses
        self._calls = parts.context.calls
        self._delivery: SinkDelivery | None = None
        # Kept by its frames, so that their messages are.
        self._messages: object = None
        self._retry_at: float | None = None
        # The number of Spark sessions lost during ``put`` of the batch in hand; True if it waits for the next session.
        self._losses = 0
        self._awaits_session = False
        self._last_put = time.monotonic()

    @property
    def has_batch(self) -> bool:
        """True if a batch is in hand, which comes before any other."""
        return self._delivery is not None

    def idle_s(self, now: float) -> float:
        """Returns the seconds until the regular call without records is due."""
        return max(0.0, self._last_put + IDLE_ROUND_S - now)

    def put(self, delivery: SinkDelivery) -> None:
        """Put a batch; keep it when the task asks for that.

        Raises:
            OwnershipLostException: Another task has claimed a partition; the batch is kept.
            Exception: The error that fails the task.
        """
        self._delivery = delivery
        self._messages = self._parts.errant.remember(delivery)
        self._deliver(delivery)

    def put_again(self, now: float) -> None:
        """Try the kept batch when its time has come; events are handled while waiting."""
        delivery = self._delivery
        assert delivery is not None
        if self._awaits_session:
            self._await_session(delivery, now)
            return
        left = 0.0 if self._retry_at is None else self._retry_at - now
        if left > 0:
            self._wait_for_retry(left, now)
        else:
            self._deliver(delivery)

    def _wait_for_retry(self, left: float, now: float) -> None:
        wait = min(left, IDLE_ROUND_S, max(_LEAST_S, min(self._parts.progress.wait_s(now), self._calls.wait_s(now))))
        with waiting_for("sink_retry"):
            self._stages.wait_in_task(wait, for_batches=False)

    def put_nothing(self, *, forced: bool) -> None:
        """The regular call without records, for time-driven work. Frame tasks get it only if forced."""
        now = time.monotonic()
        if self.idle_s(now) > 0 and not forced:
            return
        self._last_put = now
        if not isinstance(self._task, FrameSinkTask):
            self._put_empty(SinkDelivery(_NO_ROWS, [], None, {}))
        elif forced:
            self._put_empty(
                SinkDelivery(_NO_ROWS, None, [empty_frame(self._task.value_form, self._session.session)], {})
            )

    def _put_empty(self, delivery: SinkDelivery) -> None:
        self._delivery, self._messages = delivery, None
        self._deliver(delivery)

    def call_by_clock(self, now: float) -> bool:
        """Call a timed function of the task if one is due; True if one was.

        Raises:
            Exception: The error that fails the task.
        """
        call = self._calls.next_due(now)
        if call is None:
            return False
        self._call(call, now)
        return True

    def waits_for_call(self, now: float) -> bool:
        """Wait a moment if a function asks to be called again, before which nothing is put; True if one does."""
        again_at = self._calls.asks_again_at
        if again_at is None:
            return False
        self._wait_for_retry(max(_LEAST_S, again_at - now), now)
        return True

    def _call(self, call: ClockCall, now: float) -> None:
        call.began(now)
        self._session.begin_put()
        try:
            call.call()
        except BaseException as failure:
            if isinstance(failure, Exception) and _keeps(failure):
                call.ask_again(self._next_try("every", failure))
                return
            if isinstance(failure, Exception) and self._session.lost_in_put(failure):
                self._count_loss("a call by the clock", failure)
                call.ask_again(now + SESSION_ROUND_S)
                return
            if isinstance(failure, OwnershipLostException):
                raise
            raise ConnectException(
                f"{self._parts.name}: exiting due to unrecoverable exception in a call by the clock (context.every): "
                f"{failure}"
            ) from failure
        call.asks_again = False
        self._parts.retries.succeeded("every")
        if not self.has_batch:
            self._losses = 0
        self._raise_if_exceeded()

    def drop(self, gone: frozenset[TopicPartition]) -> None:
        """Remove the records of these partitions from the batch that waits for its retry, if any."""
        delivery = self._delivery
        if delivery is None or not gone & delivery.ends.keys():
            return
        if delivery.ends.keys() <= gone:
            fatal = delivery.fatal
            self._let_go()
            if fatal is not None:
                logger.info("%s: a record that could not be got over is read again: %s", self._parts.name, fatal)
            return
        self._delivery = delivery.without(gone)

    def _deliver(self, delivery: SinkDelivery) -> None:
        self._partitions.begin_delivery(delivery.ends)
        self._session.begin_put()
        started = time.monotonic()
        size = delivery.size
        try:
            if isinstance(self._task, FrameSinkTask):
                while delivery.frames:
                    self._task.put(replace(delivery.frames[0], _context=self._parts.context, _delivered=self._messages))
                    del delivery.frames[0]
            elif isinstance(self._task, SinkTask):
                self._task.put(list(delivery.records or ()))
        except BaseException as failure:
            if isinstance(failure, Exception) and _keeps(failure):
                self._keep_for_retry(failure)
                return
            if isinstance(failure, Exception) and self._session.lost_in_put(failure):
                self._keep_for_session(delivery, failure)
                return
            if isinstance(failure, OwnershipLostException):
                # The batch stays in hand until the partitions are open again.
                self._retry_at = None
                raise
            of = f" in put of {place_of(delivery.table)}" if delivery.ends else ""
            raise ConnectException(
                f"{self._parts.name}: exiting due to unrecoverable exception{of}: {failure}"
            ) from failure
        self._count_put(started, size)
        if delivery.ends:
            self._parts.services.probe("sink.after_put")
        self._raise_if_exceeded()
        self._parts.retries.succeeded("put")
        # Invariant 2: after the whole batch was put, never before.
        self._partitions.end_delivery()
        self._let_go()
        if delivery.fatal is not None:
            raise delivery.fatal

    def _keep_for_retry(self, failure: Exception) -> None:
        """The batch in hand comes before any other. Invariant 3."""
        self._retry_at = self._next_try("put", failure)
        self._pauses.hold_back(True)

    def _next_try(self, call: str, failure: Exception) -> float:
        """Returns when a call that raised RetriableException is repeated: as the task asked, or at the next commit."""
        now = time.monotonic()
        asked_ms = self._parts.context.take_timeout_ms()
        delay_s = self._parts.progress.wait_s(now) if asked_ms is None else asked_ms / 1000
        return now + self._parts.retries.failed(call, failure, delay_s)

    def _keep_for_session(self, delivery: SinkDelivery, failure: Exception) -> None:
        """The Spark session was lost under ``put``: it is not the task's fault, and the same batch goes to the next."""
        self._count_loss(f"put of {place_of(delivery.table)}", failure)
        self._retry_at, self._awaits_session = None, True
        self._pauses.hold_back(True)

    def _count_loss(self, what: str, failure: Exception) -> None:
        self._losses += 1
        if self._losses >= MAX_LOSSES:
            raise SparkUnavailableException(
                f"{self._parts.name}: {what} was tried on {self._losses} Spark sessions and "
                "each was lost; raise spark.driver.memory or lower batch.max.bytes"
            ) from failure
        logger.warning(
            "%s: the Spark session was lost during %s, which is called again on a new one: %s",
            self._parts.name,
            what,
            brief(failure),
        )

    def _await_session(self, delivery: SinkDelivery, now: float) -> None:
        """Put the kept batch when there is a session again. One that cannot start fails the task by an event."""
        if not self._session.up:
            wait = min(SESSION_ROUND_S, max(_LEAST_S, self._parts.progress.wait_s(now)))
            with waiting_for("spark"):
                self._stages.wait_in_task(wait, for_batches=False)
            return
        self._awaits_session = False
        self._deliver(delivery)

    def _raise_if_exceeded(self) -> None:
        self._parts.errant.raise_if_exceeded()

    def _count_put(self, started: float, size: int) -> None:
        took_ms = (time.monotonic() - started) * 1000
        counts = self._stages.counts
        counts.puts += 1
        counts.records_put += size
        self._stages.busy.add("put", took_ms / 1000)
        counts.put_time_ms += took_ms
        counts.put_time_max_ms = max(counts.put_time_max_ms, took_ms)
        self._last_put = time.monotonic()

    def _let_go(self) -> None:
        """The batch is no longer in hand; partitions that waited for it deliver again."""
        self._delivery = self._messages = None
        self._partitions.drop_delivery()
        self._retry_at, self._losses, self._awaits_session = None, 0, False
        self._parts.retries.ended("put")
        if self._pauses.holds_back:
            self._pauses.hold_back(False)
