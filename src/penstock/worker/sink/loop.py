"""The loop of a sink task: events, commits, rewinds, ``put``, round after round.

``SinkPut`` calls ``put``: with one batch after the other, again with the one in hand, and regularly without records;
timed calls come between two calls of ``put``. A batch stays in hand while the task asks to retry it, or until a lost
Spark session is back; fetching stops until then.

Owning thread: the task's thread, for everything; all user code is called from here. The overlap with fetching and
conversion is safe: each batch carries the epoch of its fetch, only rows of partitions owned since then are put
(``SinkPartitions``), and offsets move after a whole batch was put, so a commit never covers a batch in flight.

Source: ``WorkerSinkTask`` (``iteration``, ``deliverMessages``, ``HandleRebalance``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from penstock.api import AnySinkTask, FrameSinkTask, SinkTask, TopicPartition
from penstock.errors import ConnectException, OwnershipLostException, SparkStoppedException, SparkUnavailableException
from penstock.kafka.consumer.consumer import Placement
from penstock.pipeline.batch.sink.frames import empty_frame
from penstock.pipeline.spark.jvm import brief
from penstock.telemetry import waiting_for
from penstock.worker.sink.context import ClockCall, ErrantRecords, WorkerSinkTaskContext
from penstock.worker.sink.deliveries import (
    CommitProgress,
    SinkCommitter,
    SinkDelivery,
    SinkPartitions,
    delivery_of,
    place_of,
)
from penstock.worker.sink.fetching import SinkFetcher, SinkPauses
from penstock.worker.sink.queues import Assigned, CommitAnswered, Event, Lost, Revoked, SinkStages, StageFailed
from penstock.worker.task.engine import TaskServices, TaskSpec
from penstock.worker.task.waiting import Retries, asks_again

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
    """One batch at a time, on its way into the task."""

    def __init__(
        self,
        spec: TaskSpec[AnySinkTask],
        services: TaskServices,
        context: WorkerSinkTaskContext,
        partitions: SinkPartitions,
        stages: SinkStages,
        progress: CommitProgress,
        errant: ErrantRecords,
        retries: Retries,
        pauses: SinkPauses,
    ) -> None:
        self._name = spec.name
        self._task = spec.task
        self._session = services.session
        self._probe = services.probe
        self._context = context
        self._partitions = partitions
        self._stages = stages
        self._progress = progress
        self._errant = errant
        self._retries = retries
        self._pauses = pauses
        self._calls = context.calls
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
        """
        self._delivery = delivery
        self._messages = self._errant.remember(delivery)
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
        wait = min(left, IDLE_ROUND_S, max(_LEAST_S, min(self._progress.wait_s(now), self._calls.wait_s(now))))
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
        """Call a timed function of the task if one is due; True if one was."""
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
        self._session.in_put = None
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
                f"{self._name}: exiting due to unrecoverable exception in a call by the clock (context.every): "
                f"{failure}"
            ) from failure
        call.asks_again = False
        self._retries.succeeded("every")
        if not self.has_batch:
            self._losses = 0
        self._errant.raise_if_exceeded()

    def drop(self, gone: frozenset[TopicPartition]) -> None:
        """Remove the records of these partitions from the batch that waits for its retry, if any."""
        delivery = self._delivery
        if delivery is None or not gone & delivery.ends.keys():
            return
        if delivery.ends.keys() <= gone:
            fatal = delivery.fatal
            self._let_go()
            if fatal is not None:
                logger.info("%s: the record that would have failed the task is read again: %s", self._name, fatal)
            return
        self._delivery = delivery.without(gone)

    def _deliver(self, delivery: SinkDelivery) -> None:
        self._partitions.begin_delivery(delivery.ends)
        self._session.in_put = None
        started = time.monotonic()
        size = delivery.size
        try:
            if isinstance(self._task, FrameSinkTask):
                while delivery.frames:
                    self._task.put(replace(delivery.frames[0], _context=self._context, _delivered=self._messages))
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
            raise ConnectException(f"{self._name}: exiting due to unrecoverable exception{of}: {failure}") from failure
        self._count_put(started, size)
        if delivery.ends:
            self._probe("sink.after_put")
        self._errant.raise_if_exceeded()
        if self._retries.asked is not None:
            self._retries.succeeded("put")
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
        asked_ms = self._context.take_timeout_ms()
        delay_s = self._progress.wait_s(now) if asked_ms is None else asked_ms / 1000
        return now + self._retries.failed(call, failure, delay_s)

    def _keep_for_session(self, delivery: SinkDelivery, failure: Exception) -> None:
        """The Spark session was lost under ``put``: it is not the task's fault, and the same batch goes to the next."""
        self._count_loss(f"put of {place_of(delivery.table)}", failure)
        self._retry_at, self._awaits_session = None, True
        self._pauses.hold_back(True)

    def _count_loss(self, what: str, failure: Exception) -> None:
        self._losses += 1
        if self._losses >= MAX_LOSSES:
            raise SparkUnavailableException(
                f"{self._name}: {what} was tried on {self._losses} Spark sessions and "
                "each was lost; raise spark.driver.memory or lower batch.max.bytes"
            ) from failure
        logger.warning(
            "%s: the Spark session was lost during %s, which is called again on a new one: %s",
            self._name,
            what,
            brief(failure),
        )

    def _await_session(self, delivery: SinkDelivery, now: float) -> None:
        """Put the kept batch when there is a session again. One that cannot start fails the task by an event."""
        if not self._session.up:
            wait = min(SESSION_ROUND_S, max(_LEAST_S, self._progress.wait_s(now)))
            with waiting_for("spark"):
                self._stages.wait_in_task(wait, for_batches=False)
            return
        self._awaits_session = False
        self._deliver(delivery)

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
        if self._retries.asked is not None:
            self._retries.ended("put")
        if self._pauses.holds_back:
            self._pauses.hold_back(False)


#: The number of times in a row that a task opens its partitions again after another task claimed one; a replaced task
#: ends sooner.
MAX_CLAIMS: Final = 10
_FIRST_CLAIM_S: Final = 0.25
_MOST_CLAIM_S: Final = 10.0


class SinkLoop:
    """Rounds of one task."""

    def __init__(
        self,
        spec: TaskSpec[AnySinkTask],
        services: TaskServices,
        context: WorkerSinkTaskContext,
        partitions: SinkPartitions,
        stages: SinkStages,
        fetcher: SinkFetcher,
        committer: SinkCommitter,
        errant: ErrantRecords,
        retries: Retries,
        *,
        cancelled: Callable[[], bool],
    ) -> None:
        self._name = spec.name
        self._task = spec.task
        self._context = context
        self._partitions = partitions
        self._stages = stages
        self._committer = committer
        self._progress = committer.progress
        self._retries = retries
        self._cancelled = cancelled
        self._pauses = SinkPauses(spec.name, context, partitions, stages, fetcher)
        self._services = services
        self._put = SinkPut(
            spec, services, context, partitions, stages, committer.progress, errant, retries, self._pauses
        )
        # The latest time of the next ``put``, with or without records.
        self._put_by: float | None = None
        # True if the last round has made a timed call.
        self._called = False
        # Partitions whose `open` asked to be called again, and the time of that call.
        self._unopened: tuple[TopicPartition, ...] = ()
        self._open_at = 0.0
        # The number of times in a row that the partitions were opened again because another task had claimed one.
        self._claims = 0

    # -- Rounds ------------------------------------------------------------------------------------------------------

    def round(self, *, rest: bool) -> None:
        self._handle_events()
        self._follow_target(rest)
        now = time.monotonic()
        if self._unopened:
            self._open_again(now, rest)
            return
        self._commit_if_due(now)
        self._rewind(self._context.take_rewinds())
        self._pauses.apply()
        if (timeout_ms := self._context.take_timeout_ms()) is not None:
            self._put_by = now + timeout_ms / 1000
        try:
            self._call_task(now)
        except OwnershipLostException as lost:
            self._claim_again(lost)

    def _call_task(self, now: float) -> None:
        """Makes the call that is due: a function by the clock, or ``put`` with a batch or without records."""
        # Timed calls alternate with puts: a timed call may rewind, which takes effect before the next put, and a slow
        # one is due again at once.
        self._called = not self._called and self._put.call_by_clock(now)
        if self._called or self._put.waits_for_call(now):
            return
        if self._put.has_batch:
            self._put_by = None
            self._put.put_again(now)
            self._count_claims()
            return
        delivery = self._next_delivery()
        if delivery is None:
            self._stages.wait_in_task(self._idle_s(now), for_batches=not self._pauses.resting)
            if self._handle_events():
                return
            delivery = self._next_delivery()
        forced = self._put_by is not None and self._put_by <= time.monotonic()
        if delivery is not None or forced:
            self._put_by = None
        if delivery is not None:
            self._put.put(delivery)
            self._count_claims()
        else:
            self._put.put_nothing(forced=forced)

    def _idle_s(self, now: float) -> float:
        """Returns how many seconds to wait for a batch: until the next commit or due call, or one second."""
        idle = min(self._progress.wait_s(now), self._put.idle_s(now), self._context.calls.wait_s(now))
        return idle if self._put_by is None else max(0.0, min(idle, self._put_by - now))

    def _follow_target(self, rest: bool) -> None:
        if rest == self._pauses.resting:
            return
        self._pauses.rest(rest)
        if rest:
            self._context.request_commit()

    def _next_delivery(self) -> SinkDelivery | None:
        """The next batch with anything that still counts; None when no more is ready."""
        while not self._pauses.resting and (converted := self._stages.take_converted()) is not None:
            services, counts = self._services, self._stages.counts
            delivery = delivery_of(converted, self._partitions, services.errors, counts, services.note_topics)
            if delivery is not None:
                return delivery
        return None

    # -- Commits and rewinds -------------------------------------------------------------------------------------------

    def _commit_if_due(self, now: float) -> None:
        progress = self._progress
        if progress.due(now, requested=self._context.commit_requested):
            self._context.clear_commit_request()
            progress.schedule(now)
            if not self._committer.commit(now):
                assigned = self._partitions.assigned
                self._rewind({tp: at.offset for tp, at in self._partitions.committed(assigned).items()})
        if progress.give_up_if_late(now):
            logger.warning("%s: offset commit %d had no answer in time", self._name, progress.sequence)

    def _rewind(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continues at other offsets: records of these partitions that were fetched, converted or are in hand are
        dropped.
        """
        assigned = self._partitions.assigned
        for partition in positions.keys() - assigned:
            logger.warning("%s: ignoring a rewind of %s: not assigned to this task", self._name, partition)
        wanted = {partition: offset for partition, offset in positions.items() if partition in assigned}
        if not wanted:
            return
        epoch = self._stages.answer_of(self._stages.submit(lambda consumer: consumer.seek(wanted)), self._name)
        for partition, offset in wanted.items():
            logger.info("%s: rewinding %s to offset %d", self._name, partition, offset)
            self._partitions.rewind(partition, offset, epoch)
        self._put.drop(frozenset(wanted))

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
                self._committer.answered(event)
            case StageFailed(error=error):
                raise error

    def _on_assigned(self, event: Assigned) -> None:
        placement = Placement(event.starts)
        try:
            self._partitions.assign(event.starts, event.epoch, unstored=event.at_end)
            self._context.retain(self._partitions.assigned)
            self._stages.counts.partitions = len(self._partitions.assigned)
            elsewhere: dict[TopicPartition, int] = {}
            starts = dict(event.starts)
            if starts:
                self._unopened += tuple(starts)
                if len(self._unopened) == len(starts):
                    self._open()
                for partition, offset in self._context.take_rewinds().items():
                    if partition in starts:
                        starts[partition] = offset
                        self._partitions.rewind(partition, offset, event.epoch)
                    else:
                        elsewhere[partition] = offset
            self._rewind(elsewhere)
            if event.at_end:
                self._context.request_commit()
            placement = Placement(starts, self._pauses.assigned(starts))
        finally:
            self._stages.answer(event, placement)

    def _open(self) -> None:
        """Open the new partitions. If ``open`` asks to be called again, they stay unopened and fetching stops until it
        succeeds.
        """
        logger.info("%s: opening %s", self._name, ", ".join(map(str, self._unopened)))
        try:
            self._task.open(list(self._unopened))
        except Exception as error:
            if not asks_again(error):
                raise
            self._open_at = time.monotonic() + self._retries.failed("open", error)
            self._pauses.unopened = True
            return
        self._unopened, self._pauses.unopened = (), False
        self._retries.succeeded("open")

    def _open_again(self, now: float, rest: bool) -> None:
        """Call ``open`` again when its time has come, and while the connector is not paused; else wait for that."""
        self._pauses.apply()
        if now < self._open_at or rest:
            wait = IDLE_ROUND_S if rest else min(IDLE_ROUND_S, self._open_at - now)
            with waiting_for("sink_retry"):
                self._stages.wait_in_task(wait, for_batches=False)
            return
        self._open()
        if not self._unopened:
            self._rewind(self._context.take_rewinds())

    def _claim_again(self, lost: OwnershipLostException) -> None:
        """Closes and opens all partitions after another task has claimed one: the newer of two tasks keeps them.

        A task that was frozen, and wakes, may claim the partitions of its successor before it hears that it was
        replaced. It is stopped soon; until then each of the two takes over from the other, and writes nothing twice.
        """
        self._claims += 1
        if self._claims > MAX_CLAIMS:
            raise ConnectException(
                f"{self._name}: exiting due to unrecoverable exception in put, after the partitions were opened "
                f"{MAX_CLAIMS} times: {lost}"
            ) from lost
        opened = [partition for partition in self._partitions.assigned if partition not in self._unopened]
        self._task.close(opened)
        self._unopened += tuple(opened)
        wait_s = min(_MOST_CLAIM_S, _FIRST_CLAIM_S * 2 ** (self._claims - 1))
        self._open_at = time.monotonic() + self._retries.failed("open", lost, wait_s)
        self._pauses.unopened = True
        self._pauses.apply()

    def _count_claims(self) -> None:
        if not self._put.has_batch:
            self._claims = 0

    def _on_revoked(self, event: Revoked) -> None:
        try:
            logger.info("%s: giving back %s", self._name, ", ".join(map(str, event.partitions)))
            self.close_partitions(event.partitions)
        finally:
            self._forget(event.partitions)
            self._stages.answer(event)

    def _on_lost(self, event: Lost) -> None:
        owned = [partition for partition in event.partitions if partition in self._partitions.assigned]
        try:
            logger.warning("%s: lost %s", self._name, ", ".join(map(str, event.partitions)))
            if opened := [partition for partition in owned if partition not in self._unopened]:
                self._task.close(opened)
        finally:
            self._forget(event.partitions)
            self._stages.answer(event)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing of these partitions is kept: offsets, records in hand, pauses of the consumer, rewinds."""
        gone = frozenset(partitions)
        if self._unopened:
            self._unopened = tuple(one for one in self._unopened if one not in gone)
            if not self._unopened:
                self._pauses.unopened = False
                self._retries.ended("open")
        self._partitions.remove(gone)
        self._context.forget_rewinds(gone)
        self._pauses.forget(gone)
        self._put.drop(gone)
        self._stages.counts.partitions = len(self._partitions.assigned)

    def close_partitions(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Commit and close partitions that go away; None: all of them, at the end of the task."""
        asked = self._partitions.assigned if partitions is None else partitions
        # Partitions that were never opened have no offsets to commit and are not closed.
        wanted = [partition for partition in asked if partition not in self._unopened]
        if self._cancelled():
            logger.info("%s: no last offset commit: the task was cancelled", self._name)
            if owned := [partition for partition in wanted if partition in self._partitions.assigned]:
                self._task.close(owned)
            return
        self._committer.commit_and_close(time.monotonic(), wanted, cancelled=self._cancelled)
        self._services.probe("sink.closed")
