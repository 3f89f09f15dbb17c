"""A sink task with its threads: fetching, conversion and ``put`` overlap.

``task-<id>`` runs ``SinkLoop`` and all user code. ``fetch-<id>`` owns the consumer: the client needs regular polls to
stay in its group, and the next batch is fetched while the task writes the last one. ``convert-<id>`` owns the pipeline,
so that Spark works on one batch while the task writes the one before. All are started and joined from here.

Source: ``WorkerSinkTask`` of Kafka Connect.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.api import AnySinkTask, SinkRecord, TopicPartition
from penstock.kafka.consumer.offsets import Subscription
from penstock.model import State
from penstock.telemetry import BusyTimes
from penstock.worker.bulk.sink_driver import Around, BulkSinkDriver
from penstock.worker.errors import ConsumedMessage, ErrorCounts, ErrorReporter, message_as_text
from penstock.worker.sink.context import DeliveredMessages, ErrantRecords, WorkerSinkTaskContext
from penstock.worker.sink.deliveries import CommitProgress, SinkCommitter, SinkPartitions
from penstock.worker.sink.fetching import BatchConverter, Holder, PartitionHolders, SinkConverter, SinkFetcher
from penstock.worker.sink.loop import SinkLoop
from penstock.worker.sink.queues import SinkConsumer, SinkCounts, SinkStages
from penstock.worker.task.engine import StartPutOffException, TaskEngine, TaskServices, TaskSpec, state_after
from penstock.worker.task.waiting import Hints

logger = logging.getLogger(__name__)

#: The time that the two other threads of the task may take to end: a Spark job in progress is not interrupted.
_JOIN_S = 10.0


@dataclass(frozen=True)
class SinkServices:
    """The objects that one sink task works with; all of them are closed with the task.

    Attributes:
        consumer: A member of the connector's group that has not subscribed yet (``kafka.consumer.RecordConsumer``).
        make_reporters: Makes log reporter and dead letter queue, on the task's thread; creates the queue's topic. The
            counters are the task's; the queue counts into them.
        encode: Encodes a reported record whose original message is gone; any thread
            (``RecordEncoder``).
        holder: Separates the partitions of the worker's tasks that share a group.
        shares_id: See ``state_after``.
        bulk: The task itself, if executors do its work; else None.
    """

    pipeline: BatchConverter
    consumer: SinkConsumer
    subscription: Subscription
    make_reporters: Callable[[ErrorCounts], Sequence[ErrorReporter]] = lambda counts: ()
    encode: Callable[[SinkRecord], ConsumedMessage] = message_as_text
    holder: Holder = field(default_factory=lambda: PartitionHolders().holder("alone"))
    shares_id: bool = False
    bulk: BulkSinkDriver | None = None
    is_backfill: bool = False
    kafka_cluster_id: str | None = None


class SinkTaskRunner(TaskEngine[AnySinkTask]):
    """One sink task, from start to end.

    Args:
        services: The worker's services. Their probe is called at ``sink.started``, ``sink.after_put`` (before the
            offsets of the batch count as delivered), ``sink.closing`` and ``sink.closed`` (before and after the last
            commit of partitions that go away).
    """

    _retry_reason = "sink_retry"

    def __init__(self, spec: TaskSpec[AnySinkTask], services: TaskServices, sink: SinkServices) -> None:
        super().__init__(spec, services)
        self._sink = sink
        self._stages = SinkStages(spec.limits, services.load)
        self._fetcher = SinkFetcher(
            sink.consumer,
            sink.subscription,
            self._stages,
            name=f"fetch-{spec.id}",
            task_seen=lambda: self._round_began,
            holder=sink.holder,
        )
        self._converter = SinkConverter(sink.pipeline, self._stages, services.errors, services.load, task=str(spec.id))
        self._partitions = SinkPartitions()
        self.commits = CommitProgress(spec.offset_flush_interval_s, spec.offset_flush_timeout_s, time.monotonic())
        self._reporters: Sequence[ErrorReporter] = ()
        self._context: WorkerSinkTaskContext | None = None
        self._loop_of: SinkLoop | None = None

    # ---------------------------------------------------------------- the worker's questions
    @property
    def has_delivered(self) -> bool:
        return self.counts.puts > 0 or isinstance(self._life.failure, StartPutOffException)

    @property
    def counts(self) -> SinkCounts:
        return self._stages.counts

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The lag of ``put`` in each assigned partition whose end is known, in offsets."""
        return self._partitions.behind(self._fetcher.ends if self.bulk is None else self.bulk.ends)

    @property
    def consumer(self) -> SinkConsumer:
        return self._sink.consumer

    @property
    def delivered(self) -> dict[TopicPartition, int]:
        """The offset up to which each assigned partition was put. Thread: any."""
        return {place: at.offset for place, at in self._partitions.current(self._partitions.assigned).items()}

    @property
    def bulk(self) -> BulkSinkDriver | None:
        return self._sink.bulk

    @property
    def hints(self) -> Hints:
        return Hints(
            self._round_began,
            joined=self._fetcher.joined,
            assigned=len(self._partitions.assigned),
            retry=self.retries.waiting,
            progress=self._progress,
        )

    @property
    def busy(self) -> BusyTimes:
        return self._stages.busy

    # ---------------------------------------------------------------- task thread
    def _prepare(self) -> None:
        self._reporters = self._sink.make_reporters(self._services.errors.counts)
        self._services.errors.report_to(self._reporters)
        self._loop_of, self._context = self._make_loop()

    def _start(self) -> None:
        assert self._context is not None, "it was prepared"
        self._spec.task.initialize(self._context)
        self._call_start()
        self._round_began = time.monotonic()
        self.commits.schedule(time.monotonic())
        # Subscribing first and polling after start(), as in Java: the first assignment comes when the task is ready.
        self._fetcher.start()
        self._converter.start()
        self._services.probe("sink.started")

    def _make_loop(self) -> tuple[SinkLoop, WorkerSinkTaskContext]:
        spec, stages, partitions, errors = self._spec, self._stages, self._partitions, self._services.errors
        messages = DeliveredMessages(lambda: partitions.committed(partitions.assigned))
        errant = ErrantRecords(errors, messages, self._sink.encode)
        context = WorkerSinkTaskContext(
            spec.name,
            read_config=spec.read_config,
            assignment=lambda: partitions.assigned,
            reporter=errant if errant.has_reporters else None,
            errant=errant,
            wake=stages.wake_task,
            lost_session=self._services.session.lost_in_put,
            metrics=self._services.metrics,
            progress=self._set_progress,
            spark=self._services.session.session,
            is_backfill=self._sink.is_backfill,
            kafka_cluster_id=self._sink.kafka_cluster_id,
        )
        if self._sink.bulk is not None:
            self._sink.bulk.attach(
                Around(
                    positions=lambda: {tp: at.offset for tp, at in partitions.current(partitions.assigned).items()},
                    delivered=partitions.deliver_at_once,
                    ended=lambda: self._life.paused or self._life.is_ending,
                    tell=self._set_progress,
                    counts=stages.counts,
                )
            )
        committer = SinkCommitter(
            spec, context, partitions, stages, self.commits, reporters=self._reporters, probe=self._services.probe
        )
        loop = SinkLoop(
            spec,
            self._services,
            context,
            partitions,
            stages,
            self._fetcher,
            committer,
            errant,
            self.retries,
            cancelled=lambda: self._life.is_cancelled,
        )
        return loop, context

    def _round(self, *, resting: bool) -> None:
        assert self._loop_of is not None, "it was started"
        self._loop_of.round(rest=resting)

    def _drain(self) -> None:
        assert self._loop_of is not None, "it was started"
        self._stages.be_quiet()
        if self._life.failure is None:
            self._loop_of.close_partitions()
        else:
            # The first error matters more than errors of the closing after it.
            self._quietly("closing its partitions", self._loop_of.close_partitions)

    def _release(self) -> None:
        self._stages.close()
        self._fetcher.interrupt()
        if not self._fetcher.join(_JOIN_S):
            logger.error("%s: its consumer did not close in %.0f s and is abandoned", self._spec.name, _JOIN_S)
        if not self._converter.join(_JOIN_S):
            logger.error("%s: its conversion did not end in %.0f s and is abandoned", self._spec.name, _JOIN_S)
        self._quietly("closing converters and transforms", self._services.close)
        for reporter in self._reporters:
            self._quietly("closing an error reporter", reporter.close)
        if self._context is not None:
            self._context.close()

    # ---------------------------------------------------------------- any thread
    def pause(self) -> None:
        """See ``TaskRunner``. The task stays in its group, and the calls of ``put([])`` continue."""
        super().pause()
        self._stages.wake_task()

    def resume(self) -> None:
        super().resume()
        self._stages.wake_task()

    def _interrupt(self) -> None:
        # Invariant 2: records that are being retried are not delivered.
        self._services.errors.give_up()
        self._stages.wake_task()

    def _abandon(self) -> None:
        """See ``TaskEngine``; its partitions go to others at once. Invariant 4."""
        self._stages.close()
        self._fetcher.interrupt()
        if self._sink.bulk is not None:
            self._sink.bulk.abandon()

    def _state_after(self, error: BaseException) -> State:
        return state_after(error, shares_id=self._sink.shares_id)
