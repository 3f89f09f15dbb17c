"""Runs one source task: poll, convert, send, commit, until stop.

Main type: `SourceTaskRunner`. Building one starts nothing:

    runner = SourceTaskRunner(
        ConnectorTaskId("orders", 0),
        task,                                    # the user's SourceTask
        task_config,                             # for SourceTask.start
        SourceTaskSettings(offset_flush_timeout_s=5.0),
        SourceTaskServices(
            pipeline=build_source_pipeline(runtime, spec),
            producer=ColumnProducer(settings, name="orders-0", connector="orders", task=0),
            errors=error_handler,
            topics=TopicCreator("orders-0", plan_of(rules), admin),
            committer=OffsetCommitter(CommitHooks(task), OffsetWriter(store, "orders"), ...),
            offset_reader=OffsetReader(store, "orders"),
            read_configs=read_configs,
            session=TaskSession("orders-0", runtime),
            closers=(admin.close,),
        ),
        report,                                  # Callable[[State, str | None], None]
        paused=False,
    )

What is delivered counts when the `Committer` says so: at-least-once and exactly-once differ in nothing else.

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
from collections.abc import Callable, Mapping
from typing import Final

from penstock.api import SourceTask
from penstock.errors import SparkStoppedException, stack_trace
from penstock.model import ConnectorTaskId, State
from penstock.telemetry import BusyTimes, log_context
from penstock.worker.boundaries import End
from penstock.worker.lookahead import Lookahead
from penstock.worker.restarting import TransactionLostException, state_after
from penstock.worker.source_convert import Outgoing, SourceConverter
from penstock.worker.source_delivery import SourceDelivery
from penstock.worker.source_poll import Poller, RunnerSourceTaskContext
from penstock.worker.source_services import SourceTaskServices, SourceTaskSettings
from penstock.worker.source_stages import Batcher, Handover, Polled, Taken, empty_poll_delay_s
from penstock.worker.threads import Deadline, OwnedThread
from penstock.worker.waiting import Hints

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
        self._poller = Poller(str(task_id), task, services)
        self.counts = self._poller.counts
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
        self.committer = services.committer
        self._batcher = Batcher(
            settings.limits,
            services.clock,
            join_frames=not self.committer.hooks.wants_frames,
            load=services.load,
        )
        self._handover: Handover[Outgoing] = Handover(_WAITING_BATCHES, _WAITING_BYTES)
        converter = SourceConverter(
            str(task_id), services.pipeline, services.errors, whole_polls=self.committer.whole_polls
        )
        self._lookahead = Lookahead[Taken, Outgoing](
            str(task_id), self._batcher, converter.begin, self.busy, services.load
        )
        self.delivery = SourceDelivery(
            str(task_id),
            services.producer,
            services.topics,
            services.errors,
            committer=self.committer,
            fail=self._delivery_failed,
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
        failure = self._failure
        outside = isinstance(failure, TransactionLostException) and failure.outside
        return outside or self.committer.has_committed

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
        return Hints(
            retried=self._services.errors.retried,
            kafka=self._services.producer.trouble,
            transaction=self.committer.hint,
        )

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
        self.committer.cancel()
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
                if self._wait_while_paused(running=False) and self._start_task():
                    self._poll_until_stop()
            except BaseException as error:
                self._loop_ended = True
                self._fail(self._services.session.named(error))
            try:
                self._end()
            finally:
                self._report_end()

    def _start_task(self) -> bool:
        """Start the user's task; False when it is to stop before."""
        self._round_began = time.monotonic()
        if not self.committer.begin(self._stopping):
            return False
        self._initialized = True
        self._round_began = time.monotonic()
        self._task.initialize(RunnerSourceTaskContext(self._services, self._stopping))
        self._task.start(dict(self._task_config))
        self._started = True
        logger.info("Source task %s has been initialized and started", self.id)
        self._pipeline_thread.start()
        self._delivery_thread.start()
        self._report(State.RUNNING, None)
        return True

    def _poll_until_stop(self) -> None:
        empty_polls = 0
        while self._wait_while_paused(running=True):
            started = self._services.clock()
            self._round_began = time.monotonic()
            pieces = self._poll()
            took_s = self._services.clock() - started
            # A place where a transaction is to end may be all that came.
            is_empty = all(polled == () for polled, _ in pieces)
            if not is_empty:
                self.busy.add("poll", took_s)
            if not all(self._batcher.put(polled, end) for polled, end in pieces):
                logger.warning("The last records polled were not delivered: the task is ending")
            del pieces
            if is_empty:
                empty_polls += 1
                self._stopping.wait(empty_poll_delay_s(empty_polls, took_s))
            else:
                empty_polls = 0
                self._batcher.wait_to_poll()

    def _poll(self) -> list[tuple[Polled, End]]:
        try:
            return self._poller.poll(self._is_stop_called)
        finally:
            with self._control:
                self._polling = False
                self._control.notify_all()

    def _is_stop_called(self) -> bool:
        with self._control:
            return self._stop_called

    def _wait_while_paused(self, *, running: bool) -> bool:
        """Rest while paused; whether to go on, with a poll where it is running."""
        with self._control:
            if self._ending():
                return False
            if not self._paused:
                self._polling = running
                return True
        if running and self.committer.commits_at_rest:
            self._batcher.put((), End.REST)
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
            failed = self._failure is not None and not isinstance(self._failure, SparkStoppedException)
            left_s = max(drain.remaining(), _GIVE_UP_S)
            self._quietly("the last commit", lambda: self.committer.finish(left_s, failed=failed))
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
            self._quietly("a commit", lambda: self.committer.run_early(drain.remaining()))
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
                            self._deliver(outgoing)
                    elif self._failure is None:
                        self.committer.run_if_due()
                    # A batch is not to be kept in memory while waiting for the next.
                    del outgoing
            except BaseException as error:
                self._delivery_failed(self.committer.named(error))

    def _deliver(self, outgoing: Outgoing) -> None:
        self.delivery.deliver(outgoing)
        self.committer.delivered(outgoing, waiting=self._handover.waiting)
        if outgoing.failure is not None:
            raise outgoing.failure

    def _delivery_failed(self, error: BaseException) -> None:
        """Nothing behind the failed record is sent. Thread: delivery or the producer's."""
        self.committer.refuse()
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
        elif state_after(error) is State.RESTARTING:
            logger.warning("Task %s: %s; it is started again where its committed offsets end", self.id, error)
        else:
            logger.error("Task %s failed and will not go on before it is restarted", self.id, exc_info=error)
        self._end_polling()

    def _end_polling(self) -> None:
        """Ends the loop: tells the task, and limits the wait for room for what was polled."""
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
        """Ends the poll that is under way. Thread: wakeup."""
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
