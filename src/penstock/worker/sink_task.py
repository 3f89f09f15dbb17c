"""A sink task with its threads: fetching, conversion and ``put`` overlap.

Main types: ``SinkTaskRunner``, and what it is made from: ``SinkTaskSpec`` (the task and its settings),
``SinkTaskServices`` (what it uses), ``TaskCallbacks`` (who is told its states) and ``Timing``.

Threads, all started and joined from here:

- ``task-thread-<connector>-<n>``: runs ``SinkLoop`` and all user code: ``start``, ``open``, ``put``, ``flush``,
  ``pre_commit``, ``close``, ``stop``.
- ``fetch-<connector>-<n>``: owns the consumer. The client needs regular polls to stay in its group, and its callbacks
  run inside them; with a thread of its own the next batch is fetched while the task writes the last one. Rebalances
  hand over to the task's thread and wait (``sink_threads``).
- ``convert-<connector>-<n>``: owns the pipeline, so that Spark works on one batch while the task writes the one before.

Source: ``WorkerTask`` and ``WorkerSinkTask`` of Kafka Connect; runtime.md sections 4 and 8.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.api import AnySinkTask, SinkRecord, TopicPartition
from penstock.errors import SparkSessionLostException, SparkStoppedException, stack_trace
from penstock.kafka.subscription import Subscription
from penstock.model import ConnectorTaskId, State
from penstock.telemetry import BusyTimes, log_context
from penstock.worker.errant_records import DeliveredMessages, ErrantRecords
from penstock.worker.error_report import ConsumedMessage, ErrorCounts, ErrorReporter
from penstock.worker.partition_holders import Holder, PartitionHolders
from penstock.worker.plugin_metrics import InstanceMetrics
from penstock.worker.record_encoder import message_as_text
from penstock.worker.restarting import state_after
from penstock.worker.shared_load import SharedLoad
from penstock.worker.sink_commit import CommitProgress
from penstock.worker.sink_committer import SinkCommitter
from penstock.worker.sink_context import WorkerSinkTaskContext
from penstock.worker.sink_delivery import SinkCounts
from penstock.worker.sink_loop import SinkLoop
from penstock.worker.sink_partitions import SinkPartitions
from penstock.worker.sink_parts import SinkParts
from penstock.worker.sink_stages import SinkConsumer, SinkStages, StageFailed, StageLimits
from penstock.worker.sink_threads import BatchConverter, SinkConverter, SinkFetcher
from penstock.worker.task_session import TaskSession
from penstock.worker.threads import OwnedThread
from penstock.worker.tolerance import ErrorHandler, ErrorPolicy
from penstock.worker.waiting import Hints

logger = logging.getLogger(__name__)

#: How long the threads beside the task's own may take to end: a Spark job in progress is not interrupted.
_JOIN_S = 10.0


@dataclass(frozen=True)
class SinkTaskSpec:
    """The task and its settings.

    Attributes:
        id: Connector and number.
        task: The instance; not initialized yet.
        config: The task's own settings, placeholders resolved.
        read_config: Reads them again (``context.configs()``).
        subscription: ``topics`` or ``topics.regex``.
        policy: ``errors.*``.
        commit_interval_ms: ``offset.flush.interval.ms``.
        commit_timeout_ms: ``offset.flush.timeout.ms``.
        limits: Bounds of the queues.
        paused: Whether the connector is paused when the task starts.
    """

    id: ConnectorTaskId
    task: AnySinkTask
    config: Mapping[str, str]
    read_config: Callable[[], Mapping[str, str]]
    subscription: Subscription
    policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    commit_interval_ms: int = 60_000
    commit_timeout_ms: int = 5_000
    limits: StageLimits = field(default_factory=StageLimits)
    paused: bool = False


@dataclass(frozen=True)
class SinkTaskServices:
    """What the task uses; all of it is closed with the task.

    Attributes:
        consumer: A member of the connector's group that has not subscribed yet (``kafka.consumer.RecordConsumer``).
        pipeline: Converters and transforms (``pipeline.sink.SinkPipeline``).
        session: Spark's, as this instance of the task uses it.
        make_reporters: Makes log reporter and dead letter queue, on the task's thread; creates the queue's topic. The
            counters are the task's; the queue counts into them.
        record_topic: Told once of each topic that records were read from (any instance of the task; KIP-558).
        encode: Makes a message of a record that the task reports and whose original is not at hand; any thread
            (``record_encoder``).
        close: Closes converters and transforms; called at the end, on the task's thread.
        load: Of all tasks of the worker.
        metrics: Those that the task and its parts add themselves.
        abandoned: Called when the task is cancelled and commits nothing more; must not block.
        holder: The task among others of this worker that are in its group.
    """

    consumer: SinkConsumer
    pipeline: BatchConverter
    session: TaskSession
    make_reporters: Callable[[ErrorCounts], Sequence[ErrorReporter]] = lambda counts: ()
    record_topic: Callable[[str], None] = lambda topic: None
    encode: Callable[[SinkRecord], ConsumedMessage] = message_as_text
    close: Callable[[], None] = lambda: None
    load: SharedLoad = field(default_factory=SharedLoad)
    metrics: InstanceMetrics = field(default_factory=InstanceMetrics.unread)
    abandoned: Callable[[], None] = lambda: None
    holder: Holder = field(default_factory=lambda: PartitionHolders().holder("alone"))


@dataclass(frozen=True)
class TaskCallbacks:
    """Who is told the task's states; called on the task's thread, each must return at once."""

    on_running: Callable[[], None] = lambda: None
    on_paused: Callable[[], None] = lambda: None
    on_failure: Callable[[BaseException], None] = lambda error: None
    on_stopped: Callable[[], None] = lambda: None

    @classmethod
    def reporting(cls, report: Callable[[State, str | None], None], *, shares_id: bool = False) -> TaskCallbacks:
        """States as a ``TaskSlot`` takes them; see ``state_after``."""
        return cls(
            on_running=lambda: report(State.RUNNING, None),
            on_paused=lambda: report(State.PAUSED, None),
            on_failure=lambda error: report(state_after(error, shares_id=shares_id), stack_trace(error)),
            on_stopped=lambda: report(State.UNASSIGNED, None),
        )


@dataclass(frozen=True)
class Timing:
    """Clock and randomness: ``clock`` is milliseconds since the epoch, ``random`` uniform in [0, 1)."""

    clock: Callable[[], int] = field(default=lambda: int(time.time() * 1000))
    random: Callable[[], float] = random.random


class SinkTaskRunner:
    """Runs one sink task from its start to its end.

    Args:
        spec: The task and its settings.
        services: What it uses.
        callbacks: Who is told its states. A cancelled task reports nothing more.
        timing: Clock and randomness.
        probe: Called at ``sink.started``, ``sink.after_put`` (before the offsets of the batch count as delivered),
            ``sink.closing`` and ``sink.closed`` (before and after the last commit of partitions that go away); for
            tests that end the process there.

    Example::

        runner = SinkTaskRunner(
            SinkTaskSpec(
                ConnectorTaskId("files", 0), FileStreamSinkTask(), task_config, lambda: worker.resolve(raw),
                Subscription.of(["orders"]), ErrorPolicy(tolerance_all=True), paused=False,
            ),
            SinkTaskServices(
                RecordConsumer(client_settings, name="files task 0"),
                build_sink_pipeline(runtime, pipeline_spec),
                TaskSession("files-0", runtime),
                make_reporters=lambda counts: [LogReporter("files-0", counts, include_messages=True)],
            ),
            TaskCallbacks.reporting(report),
        )
        runner.start()
        runner.stop()
        runner.join(5.0) or runner.cancel()

    Thread: the public methods may be called from any thread and return at once, except ``join``.
    """

    def __init__(
        self,
        spec: SinkTaskSpec,
        services: SinkTaskServices,
        callbacks: TaskCallbacks = TaskCallbacks(),
        *,
        timing: Timing = Timing(),
        probe: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._spec = spec
        self._services = services
        self._callbacks = callbacks
        self._timing = timing
        self._probe = probe
        self._name = f"{spec.id.connector} task {spec.id.task}"
        self._stop_asked = threading.Event()
        self._cancelled = threading.Event()
        self._paused = spec.paused
        self._task_seen = time.monotonic()
        self.error_counts = ErrorCounts()
        self._stages = SinkStages(spec.limits, services.load)
        suffix = f"{spec.id.connector}-{spec.id.task}"
        self._fetcher = SinkFetcher(
            services.consumer,
            spec.subscription,
            self._stages,
            name=f"fetch-{suffix}",
            task_seen=lambda: self._task_seen,
            holder=services.holder,
        )
        self._loop: SinkLoop | None = None
        self._errors: ErrorHandler | None = None
        self._partitions = SinkPartitions()
        self._progress = CommitProgress(spec.commit_interval_ms, spec.commit_timeout_ms, timing.clock())
        self._thread = OwnedThread(f"task-thread-{suffix}", self._run)

    # -- Any thread --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the task's thread."""
        self._thread.start()

    def pause(self) -> None:
        """Rest: no records are delivered; the task stays in its group and ``put([])`` goes on."""
        self._paused = True
        self._stages.wake_task()

    def resume(self) -> None:
        """Go on."""
        self._paused = False
        self._stages.wake_task()

    def stop(self) -> None:
        """End after the call in progress: a last commit, ``close``, ``stop``."""
        self._stop_asked.set()
        self._services.session.end()
        self._stages.wake_task()

    def cancel(self) -> None:
        """Abandon the task: it commits and reports nothing more, its partitions go to others at once. Invariant 4."""
        self._cancelled.set()
        self._stop_asked.set()
        self._services.session.end()
        if (errors := self._errors) is not None:
            errors.abandon()
        self._stages.close()
        self._fetcher.interrupt()
        self._services.metrics.close()
        self._services.abandoned()

    def fail(self, error: Exception) -> None:
        """See ``TaskRunner``."""
        self._stages.post(StageFailed(error))

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the task; whether it came."""
        return self._thread.join(timeout_s)

    @property
    def has_delivered(self) -> bool:
        """See ``TaskRunner``."""
        return self.counts.puts > 0

    @property
    def counts(self) -> SinkCounts:
        """Records and puts."""
        return SinkCounts() if self._loop is None else self._loop.counts

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """For each assigned partition how many offsets ``put`` is behind its end, as far as the end is known."""
        return self._partitions.behind(self._fetcher.ends)

    @property
    def retry_at_ms(self) -> int | None:
        """See ``TaskRunner``."""
        return None if self._loop is None else self._loop.retry_at_ms

    @property
    def round_began(self) -> float:
        """See ``TaskRunner``."""
        return self._task_seen

    @property
    def hints(self) -> Hints:
        """See ``TaskRunner``."""
        return Hints(
            retried=None if self._errors is None else self._errors.retried,
            joined=self._fetcher.joined,
            assigned=len(self._partitions.assigned),
        )

    @property
    def busy(self) -> BusyTimes:
        """How long each stage was at work."""
        return self._stages.busy

    @property
    def commits(self) -> CommitProgress:
        """Successful, failed and late commits."""
        return self._progress

    # -- Task thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with log_context(self._spec.id.connector, self._spec.id.task):
            failure: BaseException | None = None
            was_stopping = False
            try:
                self._run_task()
            except BaseException as error:
                was_stopping = self._stop_asked.is_set()
                failure = self._services.session.named(error)
                self._log_end(failure, was_stopping=was_stopping)
            if self._cancelled.is_set():
                return
            if failure is None or was_stopping:
                self._callbacks.on_stopped()
            else:
                self._callbacks.on_failure(failure)

    def _log_end(self, error: BaseException, *, was_stopping: bool) -> None:
        if isinstance(error, SparkStoppedException):
            logger.info("%s: %s; what it had read and not yet delivered is read again", self._name, error)
            return
        if isinstance(error, SparkSessionLostException) and not was_stopping:
            logger.warning("%s: %s; it is started again where its committed offsets end", self._name, error)
            return
        logger.log(
            logging.INFO if self._cancelled.is_set() else logging.ERROR,
            "%s: ended by an error%s",
            self._name,
            " after it was asked to stop" if was_stopping else "; it stays FAILED until it is restarted",
            exc_info=error,
        )

    def _run_task(self) -> None:
        reporters: Sequence[ErrorReporter] = ()
        context: WorkerSinkTaskContext | None = None
        converter: SinkConverter | None = None
        initialized = False
        try:
            if not self._await_first_start():
                return
            reporters = self._services.make_reporters(self.error_counts)
            parts = self._make_parts(reporters)
            context = parts.context
            converter = SinkConverter(
                self._services.pipeline,
                self._stages,
                parts.errors,
                self._services.load,
                task=f"{self._spec.id.connector}-{self._spec.id.task}",
            )
            initialized = True
            self._spec.task.initialize(context)
            self._spec.task.start(dict(self._spec.config))
            self._run_loop(parts, converter)
        finally:
            self._end(reporters, context, converter, initialized=initialized)

    def _await_first_start(self) -> bool:
        """A task of a paused connector is not initialized before it is resumed; False when it is to end instead."""
        if self._paused and not self._stop_asked.is_set():
            self._callbacks.on_paused()
        while self._paused and not self._stop_asked.is_set():
            self._stages.wait_in_task(1.0, for_batches=False)
            self._stages.take_events()
        return not self._stop_asked.is_set()

    def _make_parts(self, reporters: Sequence[ErrorReporter]) -> SinkParts:
        spec, stages, timing = self._spec, self._stages, self._timing
        errors = ErrorHandler(
            spec.policy,
            reporters,
            counts=self.error_counts,
            clock=timing.clock,
            random=timing.random,
            cancelled=self._stop_asked,
            owner=str(spec.id),
        )
        self._errors = errors
        if self._cancelled.is_set():
            errors.abandon()
        partitions = self._partitions
        messages = DeliveredMessages(lambda: partitions.committed(partitions.assigned))
        errant = ErrantRecords(errors, messages, self._services.encode) if errors.has_reporters else None
        context = WorkerSinkTaskContext(
            self._name,
            read_config=spec.read_config,
            assignment=lambda: partitions.assigned,
            reporter=errant,
            wake=stages.wake_task,
            metrics=self._services.metrics,
        )
        committer = SinkCommitter(
            self._name,
            spec.task,
            context,
            partitions,
            stages,
            self._progress,
            reporters=reporters,
            timeout_s=spec.commit_timeout_ms / 1000,
            probe=self._probe,
        )
        return SinkParts(
            self._name,
            spec.task,
            context,
            partitions,
            stages,
            self._fetcher,
            self._progress,
            committer,
            errors,
            errant,
            messages,
            self._services.session,
        )

    def _run_loop(self, parts: SinkParts, converter: SinkConverter) -> None:
        loop = SinkLoop(
            parts,
            clock=self._timing.clock,
            cancelled=self._cancelled.is_set,
            record_topic=self._services.record_topic,
            on_rest=self._report_rest,
            probe=self._probe,
        )
        self._loop = loop
        self._task_seen = time.monotonic()
        self._progress.schedule(self._timing.clock())
        # Subscribing first and polling after start(), as in Java: the first assignment comes when the task is ready.
        self._fetcher.start()
        converter.start()
        self._callbacks.on_running()
        self._probe("sink.started")
        try:
            while not self._stop_asked.is_set():
                self._task_seen = time.monotonic()
                loop.round(rest=self._paused)
        except BaseException:
            # What failed matters more than what goes wrong while closing after it.
            self._stages.be_quiet()
            try:
                loop.close_partitions()
            except Exception:
                logger.exception("%s: closing its partitions failed", self._name)
            raise
        self._stages.be_quiet()
        loop.close_partitions()

    def _report_rest(self, resting: bool) -> None:
        if resting:
            self._callbacks.on_paused()
        else:
            self._callbacks.on_running()

    def _end(
        self,
        reporters: Sequence[ErrorReporter],
        context: WorkerSinkTaskContext | None,
        converter: SinkConverter | None,
        *,
        initialized: bool,
    ) -> None:
        """Close everything; what goes wrong here is logged and does not keep the rest from being closed."""
        if initialized:
            self._quietly("stop", self._spec.task.stop)
        self._stages.close()
        self._fetcher.interrupt()
        if not self._fetcher.join(_JOIN_S):
            logger.error("%s: its consumer did not close in %.0f s and is abandoned", self._name, _JOIN_S)
        if converter is not None and not converter.join(_JOIN_S):
            logger.error("%s: its conversion did not end in %.0f s and is abandoned", self._name, _JOIN_S)
        self._quietly("closing converters and transforms", self._services.close)
        self._services.metrics.close()
        for reporter in reporters:
            self._quietly("closing an error reporter", reporter.close)
        if context is not None:
            context.close()

    def _quietly(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            logger.exception("%s: %s failed", self._name, what)
