"""Runs one source task: poll, convert, send, commit, until stop.

Main types: `SourceTaskRunner`, made with `SourceTaskServices` (what it works with) and `SourceTaskSettings`. Building
one starts nothing:

    runner = SourceTaskRunner(
        ConnectorTaskId("orders", 0),
        task,                                    # the user's SourceTask
        task_config,                             # for SourceTask.start
        SourceTaskSettings(offset_flush_interval_s=60.0, offset_flush_timeout_s=5.0),
        SourceTaskServices(
            pipeline=build_source_pipeline(runtime, spec),
            producer=RecordProducer(client_settings, name="orders-0", connector="orders", task=0),
            errors=error_handler,
            topics=TopicCreator("orders-0", plan_of(rules), admin),
            offset_reader=OffsetReader(store, "orders"),
            offset_writer=OffsetWriter(store, "orders"),
            read_configs=read_configs,
            session=TaskSession("orders-0", runtime),
            closers=(admin.close,),
        ),
        report,                                  # Callable[[State, str | None], None]
        paused=False,
    )

Threads, owned by the runner and named ``task-<id>``, ``pipeline-<id>``, ``delivery-<id>`` (the producer has one more):
- task: the user's ``initialize``, ``start``, ``poll`` and ``stop``; at the end it waits for the other two.
- pipeline: takes what was polled, runs it through Spark, deals with failed records.
- delivery: creates topics, sends, and commits offsets on the task's own schedule, with the user's ``commit``.
``wakeup`` is called on a short-lived thread ``wakeup-<id>``, and so is ``stop`` where ``poll`` does not return.

Source: WorkerTask, AbstractWorkerSourceTask and WorkerSourceTask of Kafka Connect; runtime.md sections 4 and 5.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.api import (
    FrameSourceTask,
    OffsetStorageReader,
    PluginMetrics,
    SourceFrame,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
)
from penstock.errors import (
    ConnectException,
    KafkaRetriableException,
    RetriableException,
    SparkSessionLostException,
    SparkStoppedException,
    stack_trace,
)
from penstock.model import ConnectorTaskId, State
from penstock.pipeline.frame import in_arrow
from penstock.stores.offsets import OffsetReader, OffsetWriter
from penstock.telemetry import BusyTimes, log_context
from penstock.worker.commit_hooks import CommitHooks
from penstock.worker.lookahead import Lookahead
from penstock.worker.offset_commit import OffsetCommitter
from penstock.worker.plugin_metrics import InstanceMetrics
from penstock.worker.shared_load import SharedLoad
from penstock.worker.source_convert import BatchPipeline, Outgoing, SourceConverter
from penstock.worker.source_delivery import BatchProducer, SourceDelivery
from penstock.worker.source_stages import Batch, Batcher, BatchLimits, Handover, Polled, empty_poll_delay_s
from penstock.worker.task_session import TaskSession, state_after
from penstock.worker.threads import Deadline, OwnedThread
from penstock.worker.tolerance import ErrorHandler
from penstock.worker.topic_creation import TopicCreator
from penstock.worker.waiting import Hints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Converted batches that may wait for the producer: enough to keep it busy, whether they are small or large. More would
#: only be memory, in addition to the producer's own buffer, when the broker stalls.
_WAITING_BATCHES = 8
_WAITING_BYTES = 4 * 1024 * 1024
#: The stages, as ``BusyTimes`` names them. Sending includes the wait for room in the Kafka client.
STAGES: Final = ("poll", "spark", "send")
#: After what time of waiting for the last records a stopping task commits what it can already.
_COMMIT_FIRST_S = 0.5
#: How long ``poll`` may go on after ``wakeup``, before ``stop`` is called beside it: twice what it should ever wait.
POLL_GRACE_S = 2.0
#: How long a stage that was told to give up may take to notice.
_GIVE_UP_S = 1.0


def no_probe(point: str) -> None:
    """The probe outside of kill tests."""


@dataclass(frozen=True)
class SourceTaskSettings:
    """Numbers that govern one source task.

    Attributes:
        limits: how large batches may grow.
        offset_flush_interval_s: ``offset.flush.interval.ms``.
        offset_flush_timeout_s: ``offset.flush.timeout.ms``: for one commit, and for what is in flight at the end.
    """

    limits: BatchLimits = field(default_factory=BatchLimits)
    offset_flush_interval_s: float = 60.0
    offset_flush_timeout_s: float = 5.0


@dataclass(frozen=True)
class SourceTaskServices:
    """What one source task works with. The runner ends what can be ended, also when the task never starts.

    Attributes:
        pipeline: transforms and converters.
        producer: the task's own.
        errors: what happens to failed records.
        topics: makes sure that topics exist.
        offset_reader: for the task's context; closed when the task is cancelled.
        offset_writer: fenced when the task is cancelled.
        read_configs: the task's newest configuration, placeholders resolved again.
        session: Spark's, as this instance of the task uses it.
        closers: called in order when all else has ended: transforms, reporters, admin client.
        load: of all tasks of the worker.
        metrics: those that the task and its parts add themselves.
        given_up: set when nothing more is to be waited for; make `errors` with the same event.
        abandoned: called when the task is cancelled and commits nothing more; must not block.
        clock: monotonic seconds.
        probe: told named points of the data path, for kill tests.
    """

    pipeline: BatchPipeline
    producer: BatchProducer
    errors: ErrorHandler
    topics: TopicCreator
    offset_reader: OffsetReader
    offset_writer: OffsetWriter
    read_configs: Callable[[], Mapping[str, str]]
    session: TaskSession
    closers: Sequence[Callable[[], None]] = ()
    load: SharedLoad = field(default_factory=SharedLoad)
    metrics: InstanceMetrics = field(default_factory=InstanceMetrics.unread)
    given_up: threading.Event = field(default_factory=threading.Event)
    abandoned: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    probe: Callable[[str], None] = no_probe


@dataclass
class PollCounts:
    """Plain counters; read by metrics from any thread."""

    records: int = 0
    failures: int = 0


class RunnerSourceTaskContext(SourceTaskContext):
    """The context a source task gets. Thread: any."""

    def __init__(self, services: SourceTaskServices, stopping: threading.Event) -> None:
        self.stopping = stopping
        self._services = services
        self._plugin_metrics = services.metrics.plugin()

    def configs(self) -> dict[str, str]:
        return dict(self._services.read_configs())

    def offset_storage_reader(self) -> OffsetStorageReader:
        return self._services.offset_reader

    def plugin_metrics(self) -> PluginMetrics:
        return self._plugin_metrics

    def spark(self) -> SparkSession:
        return self._services.session.session()


class SourceTaskRunner:
    """One source task, from start to end. See the module for an example and the threads.

    Args:
        task_id: the task.
        task: the user's task, made but not initialized.
        task_config: for its ``start``.
        settings: numbers.
        services: what it works with.
        report: told RUNNING, PAUSED and FAILED, and UNASSIGNED or RESTARTING at the end; on the runner's threads, must
            not block.
        paused: whether it rests from the beginning; it is not initialized before it is resumed then.

    Thread: the public methods come from any thread and return at once, except `join`.
    """

    def __init__(
        self,
        task_id: ConnectorTaskId,
        task: SourceTask,
        task_config: Mapping[str, str],
        settings: SourceTaskSettings,
        services: SourceTaskServices,
        report: Callable[[State, str | None], None],
        *,
        paused: bool = False,
    ) -> None:
        self.id = task_id
        self._task = task
        self._task_config = dict(task_config)
        self._settings = settings
        self._services = services
        self._report = report
        self._stopping = threading.Event()
        self._cancelled = threading.Event()
        self.counts = PollCounts()
        self.busy = BusyTimes(STAGES, services.clock)
        # Guards what other threads ask for and what stages report; notified at each change.
        self._control = threading.Condition()
        self._paused = paused
        self._stop_asked = False
        self._failure: BaseException | None = None
        self._failed_before_stop = False
        self._woken = False
        self._polling = False
        self._stop_called = False
        self._stop_returned = threading.Event()
        self._initialized = False
        self._started = False
        self._loop_ended = False
        self._hooks = CommitHooks(task)
        self._batcher = Batcher(
            settings.limits, services.clock, join_frames=not self._hooks.wants_frames, load=services.load
        )
        self._handover: Handover[Outgoing] = Handover(_WAITING_BATCHES, _WAITING_BYTES)
        converter = SourceConverter(str(task_id), services.pipeline, services.errors)
        self._lookahead = Lookahead[Batch, Outgoing](
            str(task_id), self._batcher, converter.begin, self.busy, services.load
        )
        self.delivery = SourceDelivery(
            str(task_id),
            services.producer,
            services.topics,
            services.errors,
            hooks=self._hooks,
            fail=self._delivery_failed,
            probe=services.probe,
        )
        self.committer = OffsetCommitter(
            self.delivery.submitted,
            services.offset_writer,
            task.commit,
            interval_s=settings.offset_flush_interval_s,
            timeout_s=settings.offset_flush_timeout_s,
            clock=services.clock,
            probe=services.probe,
        )
        self._round_began = time.monotonic()
        self._wakeup_thread = OwnedThread(f"wakeup-{task_id}", self._end_poll)
        self._task_thread = OwnedThread(f"task-{task_id}", self._run)
        self._pipeline_thread = OwnedThread(f"pipeline-{task_id}", self._run_pipeline)
        self._delivery_thread = OwnedThread(f"delivery-{task_id}", self._run_delivery)

    # ---------------------------------------------------------------- what the worker asks
    @property
    def has_delivered(self) -> bool:
        """See ``TaskRunner``."""
        return self.delivery.counts.batches > 0

    @property
    def retry_at_ms(self) -> int | None:
        """See ``TaskRunner``: a source has no ``put``."""
        return None

    @property
    def round_began(self) -> float:
        """See ``TaskRunner``."""
        return self._round_began

    @property
    def hints(self) -> Hints:
        """See ``TaskRunner``."""
        return Hints(retried=self._services.errors.retried, kafka=self._services.producer.trouble)

    def start(self) -> None:
        """Start the task's thread."""
        self._task_thread.start()

    def pause(self) -> None:
        """Rest after the poll that is under way; what was polled is still delivered."""
        with self._control:
            self._paused = True
            self._control.notify_all()

    def resume(self) -> None:
        """Go on polling."""
        with self._control:
            self._paused = False
            self._control.notify_all()

    def stop(self) -> None:
        """Finish what is in flight within ``offset.flush.timeout.ms``, commit, end."""
        with self._control:
            if self._stop_asked:
                return
            self._stop_asked = True
        self._end_polling()

    def fail(self, error: Exception) -> None:
        """See ``TaskRunner``."""
        self._fail(error)

    def cancel(self) -> None:
        """Abandon the task: it commits and reports nothing more, and its producer gives up. Invariant 4."""
        self._cancelled.set()
        self._services.errors.abandon()
        self._services.offset_writer.fence(0)
        self._services.offset_reader.close()
        self._services.metrics.close()
        self.stop()
        self._give_up()
        self._services.abandoned()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the task; False when it has not ended in time."""
        return self._task_thread.join(timeout_s)

    # ---------------------------------------------------------------- task thread
    def _run(self) -> None:
        with log_context(self.id.connector, self.id.task):
            try:
                if self._wait_while_paused(running=False):
                    self._start_task()
                    self._poll_until_stop()
            except BaseException as error:
                self._loop_ended = True
                self._fail(self._services.session.named(error))
            try:
                self._end()
            finally:
                self._report_end()

    def _start_task(self) -> None:
        self._initialized = True
        self._round_began = time.monotonic()
        self._task.initialize(RunnerSourceTaskContext(self._services, self._stopping))
        self._task.start(dict(self._task_config))
        self._started = True
        logger.info("Source task %s has been initialized and started", self.id)
        self._pipeline_thread.start()
        self._delivery_thread.start()
        self._report(State.RUNNING, None)

    def _poll_until_stop(self) -> None:
        empty_polls = 0
        while self._wait_while_paused(running=True):
            started = self._services.clock()
            self._round_began = time.monotonic()
            polled = self._poll()
            if polled is None:
                empty_polls += 1
                self._stopping.wait(empty_poll_delay_s(empty_polls, self._services.clock() - started))
                continue
            empty_polls = 0
            self.busy.add("poll", self._services.clock() - started)
            if not self._batcher.put(polled):
                logger.warning("The last records polled were not delivered: the task is ending")
            del polled
            self._batcher.wait_to_poll()

    def _poll(self) -> Polled | None:
        try:
            polled = self._task.poll()
        except SparkStoppedException:
            return None
        except Exception as error:
            with self._control:
                ended_by_stop = self._stop_called
            if ended_by_stop:
                # What it waited on was closed under it: that is how such a task ends.
                logger.info("The poll() of task %s ended by its stop(): %s: %s", self.id, type(error).__name__, error)
                return None
            if not isinstance(error, (RetriableException, KafkaRetriableException)):
                raise
            self.counts.failures += 1
            logger.warning("The task's poll() raised a retriable error and is called again: %s", error)
            return None
        finally:
            with self._control:
                self._polling = False
                self._control.notify_all()
        if polled is None:
            return None
        if isinstance(polled, SourceFrame):
            polled = in_arrow(polled)
            self.counts.records += polled.num_rows or 0
            if polled.num_rows is None:
                self._services.session.used()
            return polled
        if isinstance(self._task, FrameSourceTask) or not isinstance(polled, Sequence):
            wanted = "a SourceFrame" if isinstance(self._task, FrameSourceTask) else "a sequence of SourceRecords"
            raise ConnectException(
                f"poll() of {type(self._task).__name__} (task {self.id}) must return {wanted} or None, "
                f"got {type(polled).__name__}"
            )
        strange = {kind for kind in set(map(type, polled)) if not issubclass(kind, SourceRecord)}
        if strange:
            raise ConnectException(
                f"poll() of {type(self._task).__name__} (task {self.id}) must return SourceRecords, "
                f"found {', '.join(sorted(kind.__name__ for kind in strange))} among them"
            )
        self.counts.records += len(polled)
        return polled or None

    def _wait_while_paused(self, *, running: bool) -> bool:
        """Rest while paused; whether to go on, with a poll where it is running."""
        with self._control:
            if self._ending():
                return False
            if not self._paused:
                self._polling = running
                return True
        self._report(State.PAUSED, None)
        with self._control:
            self._control.wait_for(lambda: not self._paused or self._ending())
            if self._ending():
                return False
            self._polling = running
        if running:
            self._report(State.RUNNING, None)
        return True

    def _ending(self) -> bool:
        return self._stop_asked or self._failure is not None

    # ---------------------------------------------------------------- the end, on the task thread
    def _end(self) -> None:
        """Let the stages finish, commit, stop the user's task, close. Nothing here keeps the rest from being done."""
        self._loop_ended = True
        self._end_polling()
        drain = Deadline(self._settings.offset_flush_timeout_s, self._services.clock)
        self._finish_stages(drain)
        # A task whose start failed has nothing to commit, and its commit() may not be ready to be called.
        if self._started and not self._cancelled.is_set():
            self.committer.run(max(drain.remaining(), _GIVE_UP_S))
        if self._initialized:
            self._stop_task()
        self._quietly("closing the producer", lambda: self._services.producer.close(0))
        self._quietly("closing the offset reader", self._services.offset_reader.close)
        for close in self._services.closers:
            self._quietly("releasing what the task used", close)
        self._services.metrics.close()

    def _finish_stages(self, drain: Deadline) -> None:
        """Wait for both stages and for Kafka; give up what is not delivered in time."""
        self._batcher.close()
        if self._drained(Deadline(min(_COMMIT_FIRST_S, drain.remaining()), self._services.clock)):
            return
        # It takes longer, perhaps longer than the task is given: what is acknowledged is not to be sent again for that.
        if self._started and not self._cancelled.is_set():
            self.committer.run(drain.remaining())
        if self._drained(drain):
            return
        if not self._cancelled.is_set():
            logger.error(
                "Not all records of task %s were delivered within %.1f s (offset.flush.timeout.ms); their offsets are "
                "not committed and they are read again",
                self.id,
                self._settings.offset_flush_timeout_s,
            )
        self._give_up()
        self._delivery_thread.join(_GIVE_UP_S)
        if not self._pipeline_thread.join(0):
            logger.warning("A Spark job of task %s is still running; its result is thrown away", self.id)

    def _drained(self, deadline: Deadline) -> bool:
        """Wait until both stages have ended and Kafka has everything; whether that came in time."""
        ended = self._pipeline_thread.join(deadline.remaining()) and self._delivery_thread.join(deadline.remaining())
        return ended and not self._cancelled.is_set() and self._services.producer.wait_delivered(deadline.remaining())

    def _report_end(self) -> None:
        if self._cancelled.is_set():
            return
        if self._failure is not None and self._failed_before_stop:
            self._report(state_after(self._failure), stack_trace(self._failure))
        else:
            self._report(State.UNASSIGNED, None)

    def _quietly(self, what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            logger.exception("An error in %s of task %s", what, self.id)

    # ---------------------------------------------------------------- pipeline thread
    def _run_pipeline(self) -> None:
        with log_context(self.id.connector, self.id.task):
            try:
                while (outgoing := self._lookahead.next()) is not None:
                    if not self._handover.put(outgoing, outgoing.nbytes):
                        return
                    if outgoing.failure is not None:
                        # Polling ends now; what is before the failed record still goes its way.
                        self._batcher.discard()
                        self._fail(outgoing.failure)
                    # A batch is not to be kept in memory while waiting for the next.
                    del outgoing
                    if self._services.load.has_waiting_jobs:
                        self._handover.wait_until_asked()
            except BaseException as error:
                self._batcher.discard()
                self._fail(self._services.session.named(error))
            finally:
                self._lookahead.close()
                self._handover.close()

    # ---------------------------------------------------------------- delivery thread
    def _run_delivery(self) -> None:
        with log_context(self.id.connector, self.id.task):
            try:
                while not self._handover.ended:
                    # A failed task commits once more, at its end.
                    outgoing = self._handover.take(None if self._failure is not None else self.committer.due_in_s())
                    if outgoing is not None:
                        with self.busy.at_work("send"):
                            self.delivery.deliver(outgoing)
                    # A batch is not to be kept in memory while waiting for the next.
                    del outgoing
                    if self._failure is None:
                        self.committer.run_if_due()
            except BaseException as error:
                self._delivery_failed(error)

    def _delivery_failed(self, error: BaseException) -> None:
        """Nothing behind the failed record is sent. Thread: delivery or the producer's."""
        self._fail(error)
        self._batcher.discard()
        self._handover.discard()

    # ---------------------------------------------------------------- from any thread
    def _fail(self, error: BaseException) -> None:
        """Note what the task fails with, if it is the first, and end it."""
        with self._control:
            if self._failure is not None:
                return
            self._failure = error
            self._failed_before_stop = not self._stop_asked
            late = self._stop_asked
        if self._cancelled.is_set():
            logger.debug("Task %s ended by an error after it was cancelled: %s", self.id, error)
        elif isinstance(error, SparkStoppedException):
            logger.info("Task %s: %s; what it had read and not yet delivered is read again", self.id, error)
        elif late:
            logger.error("Task %s had an error while it was stopping", self.id, exc_info=error)
        elif isinstance(error, SparkSessionLostException):
            logger.warning("Task %s: %s; it is started again where its committed offsets end", self.id, error)
        else:
            logger.error("Task %s failed and will not go on before it is restarted", self.id, exc_info=error)
        self._end_polling()

    def _end_polling(self) -> None:
        """Let the loop end: tell the task, bound the wait for room behind what was polled."""
        with self._control:
            first = not self._stopping.is_set()
            wake = self._initialized and not self._woken and not self._loop_ended
            self._woken = self._woken or wake
            self._control.notify_all()
        if first:
            self._batcher.end_at(self._services.clock() + self._settings.offset_flush_timeout_s)
        self._stopping.set()
        self._services.session.end()
        if wake:
            self._wakeup_thread.start()

    def _end_poll(self) -> None:
        """Bring the poll that is under way to its end. Thread: wakeup."""
        with log_context(self.id.connector, self.id.task):
            if type(self._task).wakeup is not SourceTask.wakeup:
                self._quietly("the task's wakeup()", self._task.wakeup)
            with self._control:
                ended = self._control.wait_for(lambda: not self._polling, POLL_GRACE_S)
            if not ended:
                logger.info("The poll() of task %s has not returned; its stop() is called beside it", self.id)
                self._stop_task()

    def _stop_task(self) -> None:
        """Call the task's ``stop``, or wait for the call that is under way: there is one."""
        with self._control:
            first, self._stop_called = not self._stop_called, True
        if first:
            self._quietly("the task's stop()", self._task.stop)
            self._stop_returned.set()
        else:
            self._stop_returned.wait()

    def _give_up(self) -> None:
        """Forget all that is not delivered."""
        self._services.given_up.set()
        self._batcher.discard()
        self._handover.discard()
        self._services.producer.abort()
