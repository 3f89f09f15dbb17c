"""Runs one source task: poll, convert, send, commit, until stop.

The `Committer` decides when delivered records count: at-least-once and exactly-once differ only there.

Threads, owned by the runner: ``task-<id>`` calls the user's ``initialize``, ``start``, ``poll`` and ``stop``;
``convert-<id>`` runs polled batches through Spark and handles failed records; ``delivery-<id>`` creates topics, sends,
and commits offsets on the task's own schedule, with the user's ``commit``; ``wakeup-<id>`` calls ``wakeup``, and
``stop`` if ``poll`` does not return.

Source: AbstractWorkerSourceTask, WorkerSourceTask and WorkerSourceTaskContext of Kafka Connect.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.api import (
    FrameSourceTask,
    OffsetStorageReader,
    PluginMetrics,
    SourceFrame,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
    TransactionContext,
)
from penstock.api.bulk import BulkFrame
from penstock.errors import ConnectException, SparkStoppedException
from penstock.kafka.admin import TopicCreator
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.model.runner_life import RunnerPhase, RunnerSignal, StopCall
from penstock.model.states import Progress
from penstock.pipeline.batch.batches import PolledBatch
from penstock.pipeline.batch.source.frame_input import in_arrow
from penstock.stores.offsets import OffsetReader
from penstock.telemetry import BusyTimes, log_context, waiting_for
from penstock.threads import Deadline, OwnedThread
from penstock.worker.bulk.engine import BulkEngine
from penstock.worker.source.batcher import Batcher, TakenBatch, empty_poll_delay_s
from penstock.worker.source.delivery import BatchPipeline, Outgoing, SourceConverter, SourceDelivery
from penstock.worker.source.offset_commit import Committer
from penstock.worker.source.submitted import Move, Moves
from penstock.worker.source.transaction_boundaries import PartEnd, TransactionRequests
from penstock.worker.task.bounded_queue import BatchLimits, BoundedQueue, OverlappingBatches
from penstock.worker.task.engine import (
    StartPutOffException,
    TaskEngine,
    TaskServices,
    TaskSession,
    TaskSpec,
    TransactionLostException,
)
from penstock.worker.task.waiting import Hints, asks_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SourceServices:
    """The objects that one source task works with. The runner closes them, even if the task never starts.

    Attributes:
        committer: commits delivered records; ended when the task is cancelled.
        offset_reader: for the task's context; closed when the task is cancelled.
        requests: the task's requests for its transactions; None if it does not define their boundaries.
    """

    pipeline: BatchPipeline
    producer: ColumnProducer
    topics: TopicCreator
    committer: Committer
    offset_reader: OffsetReader
    requests: TransactionRequests | None = None
    bulk: BulkEngine | None = None


logger = logging.getLogger(__name__)


@dataclass
class PollCounts:
    """Plain counters; read by metrics from any thread."""

    records: int = 0
    failures: int = 0


class RunnerSourceTaskContext(SourceTaskContext):
    """The context a source task gets. Thread: any."""

    def __init__(
        self,
        spec: TaskSpec[SourceTask],
        services: TaskServices,
        source: SourceServices,
        stopping: threading.Event,
        moves: Moves,
        progress: Callable[[Progress | None], None],
    ) -> None:
        self.stopping = stopping
        self._read_config = spec.read_config
        self._session = services.session
        self._source = source
        self._plugin_metrics = services.metrics.plugin()
        self._moves = moves
        self._progress = progress

    def configs(self) -> dict[str, str]:
        return dict(self._read_config())

    def offset_storage_reader(self) -> OffsetStorageReader:
        return self._source.offset_reader

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        self._moves.add(partition, offset)

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        self._progress(None if done is None else Progress(done, total, unit))

    def transaction_context(self) -> TransactionContext | None:
        return self._source.requests

    def plugin_metrics(self) -> PluginMetrics:
        return self._plugin_metrics

    def spark(self) -> SparkSession:
        return self._session.session()


class Poller:
    """Polls one task."""

    def __init__(self, spec: TaskSpec[SourceTask], session: TaskSession, requests: TransactionRequests | None) -> None:
        self.counts = PollCounts()
        self.moves = Moves()
        #: A run that was polled, and is not done.
        self.bulk: BulkFrame | None = None
        self._owner = str(spec.id)
        self._task = spec.task
        self._session = session
        self._requests = requests

    def poll(self, ended_by_stop: Callable[[], bool]) -> tuple[list[tuple[PolledBatch, PartEnd]], list[Move]]:
        """Polls once and returns the records, cut at the requested ends of transactions, and the moved positions.

        Args:
            ended_by_stop: True if the task's ``stop`` was called during this ``poll``.

        Raises:
            Exception: The error that ends the task, or asks for a retry (``asks_again``).
        """
        try:
            polled: object = self._task.poll()
        except SparkStoppedException:
            return [], []
        except Exception as error:
            if ended_by_stop():
                # ``stop`` closed the object that ``poll`` waited on: that is how such a task ends.
                logger.info(
                    "The poll() of task %s ended by its stop(): %s: %s", self._owner, type(error).__name__, error
                )
                return [], []
            if asks_again(error):
                self.counts.failures += 1
            raise
        found = self._checked(polled)
        if self._requests is not None:
            parts = self._requests.cut(found)
        else:
            parts = [] if found is None else [(found, PartEnd.POLL)]
        moves = self.moves.take()
        return (parts or [((), PartEnd.POLL)] if moves else parts), moves

    def _checked(self, polled: object) -> PolledBatch | None:
        if polled is None:
            return None
        if isinstance(polled, BulkFrame) and isinstance(self._task, FrameSourceTask):
            self.bulk = polled
            return None
        if isinstance(polled, SourceFrame):
            frame = in_arrow(polled)
            self.counts.records += frame.num_rows or 0
            if frame.num_rows is None:
                self._session.used()
            return frame
        if isinstance(self._task, FrameSourceTask) or not isinstance(polled, Sequence):
            wanted = (
                "a SourceFrame, a BulkFrame"
                if isinstance(self._task, FrameSourceTask)
                else "a sequence of SourceRecords"
            )
            raise ConnectException(
                f"poll() of {type(self._task).__name__} (task {self._owner}) must return {wanted} or None, "
                f"got {type(polled).__name__}"
            )
        strange = {kind for kind in set(map(type, polled)) if not issubclass(kind, SourceRecord)}
        if strange:
            raise ConnectException(
                f"poll() of {type(self._task).__name__} (task {self._owner}) must return SourceRecords, "
                f"found {', '.join(sorted(kind.__name__ for kind in strange))} among them"
            )
        self.counts.records += len(polled)
        return polled or None


#: The converted batches that may wait for the producer: enough to keep it busy with small and large batches. More would
#: only cost memory, in addition to the producer's own buffer, when the broker stalls.
_WAITING_BATCHES = 8
_WAITING = BatchLimits(sys.maxsize, 4 * 1024 * 1024)
#: The stages, as ``BusyTimes`` names them. Sending includes the wait for room in the Kafka client.
STAGES: Final = ("poll", "spark", "send")
#: The time that a stopping task waits for its last records before it commits the acknowledged ones.
_COMMIT_FIRST_S = 0.5
#: The time that ``poll`` may continue after ``wakeup`` before ``stop`` is called during it: twice the longest wait that
#: it should make.
POLL_GRACE_S = 2.0
#: Fed at each poll.
_POLL_RETURNED: Final = RunnerSignal.POLL_RETURNED
#: The time that a stage may take to notice an abort.
_GIVE_UP_S = 1.0


class SourceTaskRunner(TaskEngine[SourceTask]):
    """One source task, from start to end. See the module for the threads."""

    _retry_reason = "source_retry"

    def __init__(self, spec: TaskSpec[SourceTask], services: TaskServices, source: SourceServices) -> None:
        super().__init__(spec, services)
        self._source = source
        self._poller = Poller(spec, services.session, source.requests)
        self.counts = self._poller.counts
        self.busy = BusyTimes(STAGES)
        self._empty_polls = 0
        #: Ends of parts for bulk runs: polled, and handed to the committer.
        self._bulk_ends = self._bulk_ends_passed = 0
        self.committer = source.committer
        self._batcher = Batcher(spec.limits, join_frames=not self.committer.hooks.wants_frames, load=services.load)
        self._handover: BoundedQueue[Outgoing] = BoundedQueue(_WAITING_BATCHES, _WAITING)
        converter = SourceConverter(
            str(spec.id), source.pipeline, services.errors, whole_polls=self.committer.whole_polls
        )
        self._overlapping = OverlappingBatches[TakenBatch, Outgoing](
            str(spec.id), self._batcher, converter.begin, self.busy, services.load
        )
        self.delivery = SourceDelivery(
            str(spec.id),
            source.producer,
            source.topics,
            services.errors,
            committer=self.committer,
            fail=self._delivery_failed,
            probe=services.probe,
            note_topics=services.note_topics,
        )
        self._wakeup_thread = OwnedThread(f"wakeup-{spec.id}", self._end_poll)
        self._convert_thread = OwnedThread(f"convert-{spec.id}", self._convert)
        self._delivery_thread = OwnedThread(f"delivery-{spec.id}", self._deliver)

    # ---------------------------------------------------------------- the worker's questions
    @property
    def has_delivered(self) -> bool:
        failure = self._life.failure
        outside = isinstance(failure, StartPutOffException)
        outside = outside or (isinstance(failure, TransactionLostException) and failure.outside)
        return outside or self.committer.has_committed

    @property
    def hints(self) -> Hints:
        return Hints(
            self._round_began,
            kafka=self._source.producer.trouble,
            transaction=self.committer.hint,
            retry=self.retries.waiting,
            held_up=self.committer.held_up,
            progress=self._progress,
        )

    @property
    def bulk(self) -> BulkEngine | None:
        return self._source.bulk

    # ---------------------------------------------------------------- task thread
    def _prepare(self) -> None:
        self.committer.begin(self._stopping)

    def _start(self) -> None:
        task = self._spec.task
        moves, stopping = self._poller.moves, self._stopping
        task.initialize(
            RunnerSourceTaskContext(self._spec, self._services, self._source, stopping, moves, self._set_progress)
        )
        self._call_start()
        logger.info("Source task %s has been initialized and started", self.id)
        self._convert_thread.start()
        self._delivery_thread.start()

    def _begin_rest(self) -> None:
        # A task that rests does not wait for its next try; it is polled when it is resumed.
        self.retries.ended()
        if self.committer.commits_at_rest:
            self._batcher.put((), PartEnd.REST)

    def _round(self, *, resting: bool) -> None:
        if resting:
            self._rest()
            return
        if (run := self._poller.bulk) is not None:
            self._feed(_POLL_RETURNED)
            try:
                self._do_bulk(run)
            except Exception as error:
                if not asks_again(error):
                    raise
                self._await_retry("poll", error)
            return
        started = self._round_began
        try:
            parts, moves = self._poll()
        except Exception as error:
            if not asks_again(error):
                raise
            self._await_retry("poll", error)
            return
        if self.retries.asked is not None:
            self.retries.succeeded()
        if self._poller.bulk is not None and not parts:
            # The next round does it: the task may be paused, or to end, by then.
            return
        took_s = time.monotonic() - started
        # A poll may have returned only an end of a transaction, or a position that moved.
        is_empty = all(polled == () for polled, _ in parts)
        if not is_empty:
            self.busy.add("poll", took_s)
        last = len(parts) - 1
        if not all(
            self._batcher.put(polled, end, moves if index == last else ()) for index, (polled, end) in enumerate(parts)
        ):
            logger.warning("The last records polled were not delivered: the task is ending")
        del parts
        if is_empty:
            self._empty_polls += 1
            self._stopping.wait(empty_poll_delay_s(self._empty_polls, took_s))
        else:
            self._empty_polls = 0
            self._batcher.wait_to_poll()

    def _do_bulk(self, frame: BulkFrame) -> None:
        """Lets executors write a run, between the commit of everything that was polled before and that of its offset.

        So a run always follows a committed offset, and its markers are only needed until its own is committed. A run
        that was cancelled stays, and continues when the task is resumed.
        """
        engine = self._source.bulk
        if engine is None:
            raise ConnectException(f"Task {self.id} has returned a BulkFrame, and there is no Spark session here")
        if not self._commit_polled(()):
            return
        done = engine.run(
            frame, self._source.offset_reader, lambda: self._life.paused or self._life.is_ending, self._set_progress
        )
        if done is None:
            return
        self._poller.bulk = None
        self.counts.records += done.rows
        self.delivery.records_written += done.sent
        self._poller.moves.add(frame.source_partition, frame.source_offset)
        if self._commit_polled(self._poller.moves.take()):
            engine.forget_ended(self._source.offset_reader)

    def _commit_polled(self, moves: Sequence[Move]) -> bool:
        """Commits everything that was polled, then these positions; False if the task is to pause or to end first."""
        self._bulk_ends += 1
        self._batcher.put((), PartEnd.BULK, moves)
        pause_s = 0.005
        while not (self._bulk_ends_passed == self._bulk_ends and self.committer.all_committed):
            if self._life.paused or self._life.is_ending:
                return False
            if self._bulk_ends_passed == self._bulk_ends and not self.committer.submitted.rows_left:
                self.committer.run_early(self._spec.offset_flush_timeout_s)
            with waiting_for("broker", "what was polled before is committed"):
                self._stopping.wait(pause_s)
            pause_s = min(1.0, pause_s * 1.5)
        return True

    def _poll(self) -> tuple[list[tuple[PolledBatch, PartEnd]], list[Move]]:
        try:
            return self._poller.poll(lambda: self._life.stop is not StopCall.NONE)
        finally:
            self._feed(_POLL_RETURNED)

    # ---------------------------------------------------------------- the end, on the task thread
    def _drain(self) -> None:
        drain = Deadline(self._spec.offset_flush_timeout_s)
        self._finish_stages(drain)
        if not self._life.is_cancelled:
            failure = self._life.failure
            failed = failure is not None and not isinstance(failure, SparkStoppedException)
            left_s = max(drain.remaining(), _GIVE_UP_S)
            self._quietly("the last commit", lambda: self.committer.finish(left_s, failed=failed))
            if self._source.bulk is not None:
                bulk = self._source.bulk
                self._quietly("forgetting bulk runs", lambda: bulk.forget_ended(self._source.offset_reader))

    def _finish_stages(self, drain: Deadline) -> None:
        """Wait for both stages and for Kafka; abandon the records that are not delivered in time."""
        self._batcher.close()
        if self._drained(Deadline(min(_COMMIT_FIRST_S, drain.remaining()))):
            return
        # The wait may outlast the task's deadline: the acknowledged offsets are committed now, so that those records
        # are not sent again.
        if not self._life.is_cancelled:
            self._quietly("a commit", lambda: self.committer.run_early(drain.remaining()))
        if self._drained(drain):
            return
        if not self._life.is_cancelled:
            logger.error(
                "Not all records of task %s were delivered within %.1f s (offset.flush.timeout.ms); their offsets are "
                "not committed and they are read again",
                self.id,
                self._spec.offset_flush_timeout_s,
            )
        self._give_up()
        self._delivery_thread.join(_GIVE_UP_S)
        if not self._convert_thread.join(0):
            logger.warning("A Spark job of task %s is still running; its result is thrown away", self.id)

    def _drained(self, deadline: Deadline) -> bool:
        """Wait until both stages have ended and Kafka has stored everything; True if that happened in time."""
        ended = self._convert_thread.join(deadline.remaining()) and self._delivery_thread.join(deadline.remaining())
        return ended and not self._life.is_cancelled and self._source.producer.wait_delivered(deadline.remaining())

    def _release(self) -> None:
        # A stage may run already if the start of the task failed.
        self._batcher.close()
        self._quietly("closing the producer", lambda: self._source.producer.close(0))
        self._quietly("closing the offset reader", self._source.offset_reader.close)
        if self._source.bulk is not None:
            self._quietly("closing bulk work", self._source.bulk.close)
        self._quietly("closing converters and transforms", self._services.close)

    # ---------------------------------------------------------------- conversion thread
    def _convert(self) -> None:
        with log_context(self.id.connector, self.id.task):
            try:
                while (outgoing := self._overlapping.next()) is not None:
                    if not self._handover.offer(outgoing, outgoing.size, outgoing.nbytes):
                        return
                    if outgoing.failure is not None:
                        # Polling ends now; the records before the failed one are still delivered.
                        self._batcher.discard()
                        self.fail(outgoing.failure)
                    # A batch is not to be kept in memory while waiting for the next.
                    del outgoing
                    if self._services.load.has_waiting_jobs:
                        self._handover.wait_until_asked()
            except BaseException as error:
                self._batcher.discard()
                self.fail(self._services.session.named(error))
            finally:
                self._overlapping.close()
                self._handover.close()

    # ---------------------------------------------------------------- delivery thread
    def _deliver(self) -> None:
        with log_context(self.id.connector, self.id.task):
            try:
                while not self._handover.ended:
                    # A failed task commits once more, at its end.
                    failed = self._life.failure is not None
                    outgoing = self._handover.take_one(None if failed else self.committer.due_in_s())
                    if outgoing is not None:
                        with self.busy.at_work("send"):
                            self._deliver_one(outgoing)
                    elif self._life.failure is None:
                        self.committer.run_if_due()
                    # A batch is not to be kept in memory while waiting for the next.
                    del outgoing
            except BaseException as error:
                self._delivery_failed(self.committer.named(error))

    def _deliver_one(self, outgoing: Outgoing) -> None:
        self.delivery.deliver(outgoing)
        self.committer.delivered(outgoing, waiting=len(self._handover) > 0)
        self._bulk_ends_passed += outgoing.end is PartEnd.BULK
        if outgoing.failure is not None:
            raise outgoing.failure

    def _delivery_failed(self, error: BaseException) -> None:
        """Stops sending after the failed record. Thread: delivery or the producer's."""
        self.committer.refuse()
        self.fail(error)
        self._batcher.discard()
        self._handover.discard()

    # ---------------------------------------------------------------- from any thread
    def _interrupt(self) -> None:
        self._batcher.end_at(time.monotonic() + self._spec.offset_flush_timeout_s)

    def _abandon(self) -> None:
        """See ``TaskEngine``. Invariant 4."""
        self.committer.cancel()
        self._source.offset_reader.close()
        self._give_up()

    def _give_up(self) -> None:
        """Forget all that is not delivered."""
        self._services.errors.give_up()
        self._batcher.discard()
        self._handover.discard()
        self._source.producer.abort()

    def _wake(self) -> None:
        self._wakeup_thread.start()

    def _end_poll(self) -> None:
        """Ends the poll in progress. Thread: wakeup."""
        with log_context(self.id.connector, self.id.task):
            if type(self._spec.task).wakeup is not SourceTask.wakeup:
                self._quietly("the task's wakeup()", self._spec.task.wakeup)
            with self._changed:
                ended = self._changed.wait_for(lambda: self._life.phase is not RunnerPhase.WORKING, POLL_GRACE_S)
            if not ended:
                logger.info("The poll() of task %s has not returned; stop() is called from another thread", self.id)
                self._feed(RunnerSignal.POLL_OVERDUE)
