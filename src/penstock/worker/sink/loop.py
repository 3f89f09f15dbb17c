"""The loop of a sink task: events, commits, rewinds, ``put``, round after round.

Main type: ``SinkLoop``. Batches become deliveries in ``deliveries``, ``put`` makes the calls of ``put``, and
``SinkPauses`` pauses partitions.

Owning thread: the task's thread, for everything; all user code is called from here. Batches and events come through
``SinkStages``. The overlap is safe: each batch carries the epoch of its fetch, only rows of partitions owned since then
are put (``SinkPartitions``), and offsets move after a whole batch was put, so a commit never covers a batch in flight.

Source: ``WorkerSinkTask`` (``iteration``, ``HandleRebalance``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.api import TopicPartition
from penstock.errors import ConnectException, OwnershipLostException
from penstock.kafka.consumer.consumer import Placement
from penstock.telemetry import waiting_for
from penstock.worker.sink.deliveries import SinkDeliveries, SinkDelivery
from penstock.worker.sink.put import IDLE_ROUND_S, SinkParts, SinkPauses, SinkPut
from penstock.worker.sink.queues import Assigned, CommitAnswered, Event, Lost, Revoked, StageFailed
from penstock.worker.task.retries import asks_again

logger = logging.getLogger(__name__)

#: The number of times in a row that a task opens its partitions again after another task claimed one; a replaced task
#: ends sooner.
MAX_CLAIMS: Final = 10
_FIRST_CLAIM_S: Final = 0.25
_MOST_CLAIM_S: Final = 10.0


class SinkLoop:
    """Rounds of one task.

    Args:
        parts: The parts of the loop.
        cancelled: True if the task was abandoned.
    """

    def __init__(self, parts: SinkParts, *, cancelled: Callable[[], bool]) -> None:
        self._parts = parts
        self._task = parts.spec.task
        self._context = parts.context
        self._partitions = parts.partitions
        self._stages = parts.stages
        self._cancelled = cancelled
        self._pauses = SinkPauses(parts)
        services = parts.services
        self._deliveries = SinkDeliveries(
            parts.name, parts.partitions, parts.stages, services.errors, services.note_topics
        )
        self._put = SinkPut(parts, self._pauses)
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
        """One round: at most one batch is put.

        Args:
            rest: True if the connector is paused.

        Raises:
            Exception: The error that fails the task.
        """
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
        idle = min(self._parts.progress.wait_s(now), self._put.idle_s(now), self._context.calls.wait_s(now))
        return idle if self._put_by is None else max(0.0, min(idle, self._put_by - now))

    def _follow_target(self, rest: bool) -> None:
        if rest == self._pauses.resting:
            return
        self._pauses.rest(rest)
        if rest:
            self._context.request_commit()

    def _next_delivery(self) -> SinkDelivery | None:
        return None if self._pauses.resting else self._deliveries.next()

    # -- Commits and rewinds -------------------------------------------------------------------------------------------

    def _commit_if_due(self, now: float) -> None:
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
        """Continues at other offsets: records of these partitions that were fetched, converted or are in hand are
        dropped.
        """
        assigned = self._partitions.assigned
        for partition in positions.keys() - assigned:
            logger.warning("%s: ignoring a rewind of %s: not assigned to this task", self._parts.name, partition)
        wanted = {partition: offset for partition, offset in positions.items() if partition in assigned}
        if not wanted:
            return
        epoch = self._stages.answer_of(self._stages.submit(lambda consumer: consumer.seek(wanted)), self._parts.name)
        for partition, offset in wanted.items():
            logger.info("%s: rewinding %s to offset %d", self._parts.name, partition, offset)
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
                self._parts.committer.answered(event)
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
        logger.info("%s: opening %s", self._parts.name, ", ".join(map(str, self._unopened)))
        try:
            self._task.open(list(self._unopened))
        except Exception as error:
            if not asks_again(error):
                raise
            self._open_at = time.monotonic() + self._parts.retries.failed("open", error)
            self._pauses.unopened = True
            return
        self._unopened, self._pauses.unopened = (), False
        self._parts.retries.succeeded("open")

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
                f"{self._parts.name}: exiting due to unrecoverable exception in put, after the partitions were opened "
                f"{MAX_CLAIMS} times: {lost}"
            ) from lost
        opened = [partition for partition in self._partitions.assigned if partition not in self._unopened]
        self._task.close(opened)
        self._unopened += tuple(opened)
        wait_s = min(_MOST_CLAIM_S, _FIRST_CLAIM_S * 2 ** (self._claims - 1))
        self._open_at = time.monotonic() + self._parts.retries.failed("open", lost, wait_s)
        self._pauses.unopened = True
        self._pauses.apply()

    def _count_claims(self) -> None:
        if not self._put.has_batch:
            self._claims = 0

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
                self._parts.retries.ended("open")
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
            logger.info("%s: no last offset commit: the task was cancelled", self._parts.name)
            if owned := [partition for partition in wanted if partition in self._partitions.assigned]:
                self._task.close(owned)
            return
        self._parts.committer.commit_and_close(time.monotonic(), wanted, cancelled=self._cancelled)
        self._parts.services.probe("sink.closed")
