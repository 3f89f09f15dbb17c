"""Runs the bulk work of one source task: plans it, starts its Spark job, counts, and says when all is in Kafka.

A run that a session, a job or the worker has lost continues after its markers. A cancelled run (pause, stop) continues
when the task does. ``Executors`` and ``judged`` serve sinks, too.

Threads: ``run`` and ``forget_ended`` belong to the task's thread. ``bulk-<id>``, owned here, has the job.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from penstock.errors import (
    ConnectException,
    KafkaException,
    KafkaRetriableException,
    SparkSessionLostException,
    SparkUnavailableException,
)
from penstock.kafka.admin import TopicAdmin, TopicCreator
from penstock.kafka.producer.transaction import fence_producers
from penstock.kafka.topic_log.log import MadeLog
from penstock.model import ConnectorTaskId
from penstock.model.states import Progress
from penstock.pipeline.batch.source.frame_input import misfit_of
from penstock.pipeline.spark.gate import PythonWork
from penstock.pipeline.spark.session import SparkRuntime
from penstock.telemetry import no_probe, waiting_for
from penstock.threads import in_own_thread
from penstock.worker.bulk.executor import MessageTarget, PartitionWork
from penstock.worker.bulk.planning import Chain, planned, run_session
from penstock.worker.bulk.runs import (
    AttemptCounter,
    Failure,
    Markers,
    RunKey,
    RunPlan,
    Totals,
    canonical,
    continues,
    is_over,
    same_partitions,
    told,
)
from penstock.worker.bulk.shipping import own_path, packed, probe_executors, shipped
from penstock.worker.errors import ErrorHandler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.api import OffsetStorageReader
    from penstock.api.bulk import BulkFrame


class Executors:
    """The executors of the sessions that a task has."""

    def __init__(self, runtime: SparkRuntime) -> None:
        self._runtime = runtime
        self._probed: int | None = None

    def probe(self, session: SparkSession, payload: bytes) -> None:
        """Probes the executors of a session once. Thread: the job's."""
        generation = self._runtime.generation
        if self._probed != generation:
            probe_executors(session, payload, own_path(), max(1, self._runtime.parallelism))
            self._probed = generation


@dataclass(frozen=True)
class JobFailure:
    """A job that has failed."""

    message: str
    partition: int | None
    again: bool


def judged(error: Exception, tries: AttemptCounter, dealt: int) -> JobFailure:
    """Decides between another job and failing the task.

    Args:
        tries: The count of jobs; this call adds the failed one.

    Raises:
        Exception: The error itself, if no other job can help and the error needs no explanation.
    """
    if isinstance(error, SparkUnavailableException | SparkSessionLostException):
        raise error
    if misfit := misfit_of(error):
        raise misfit from error
    failure = Failure.of(error)
    if failure is None and isinstance(error, ConnectException):
        raise error
    message = brief(error) if failure is None else failure.message
    again = (failure is None or not failure.final) and tries.again(dealt)
    return JobFailure(message, None if failure is None else failure.partition, again)


def brief(error: Exception) -> str:
    """The first line of an error's text; its class, where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


log = logging.getLogger(__name__)

_LOOK_S: Final = 0.5
#: The interval between two reads of the markers while a job runs.
_COUNT_EVERY_S: Final = 2.0
_READ_S: Final = 60.0
_END_S: Final = 30.0
_FENCE_S: Final = 10.0
#: Errors that a run names on the worker's log.
_NAMED: Final = 5


@dataclass(frozen=True)
class BulkServices:
    """The parts that a task's bulk work needs.

    Attributes:
        group: Gives the name under which this worker, or its group, writes; called in the first run.
        conf: The worker's ``spark.*`` properties.
        include_messages: True if the log shows records.
        probe: Called at named points, for kill tests; executors get it, too.
    """

    group: Callable[[], str]
    runtime: SparkRuntime
    conf: Mapping[str, str]
    chain: Chain
    delivery: MessageTarget
    topics: TopicCreator
    errors: ErrorHandler
    include_messages: bool = False
    probe: Callable[[str], None] = no_probe


class BulkEngine:
    """The bulk work of one task."""

    def __init__(self, task: ConnectorTaskId, services: BulkServices) -> None:
        self._task = task
        self._services = services
        self._log: MadeLog | None = None
        self._markers = Markers()
        self._ended: set[RunKey] = set()
        self._executors = Executors(services.runtime)
        self._lock = threading.Lock()
        self._totals: tuple[Totals, int] = Totals(), 0

    @property
    def totals(self) -> tuple[Totals, int]:
        """The progress of the present run, or the last one, and the number of its Spark partitions. Thread: any."""
        return self._totals

    # ------------------------------------------------------------------ the task's thread
    def run(
        self,
        frame: BulkFrame,
        offsets: OffsetStorageReader,
        ended: Callable[[], bool],
        tell: Callable[[Progress | None], None],
    ) -> Totals | None:
        """Does one run, or its rest; blocks until it is done.

        Args:
            offsets: The committed offsets, with those of all records that were polled before the run.
            ended: True if the task is to pause or to end; called twice a second.

        Returns:
            The counts of the run; None if it was cancelled: the next call continues it.

        Raises:
            ConnectException: The run is not possible; the message names the remedy.
        """
        run = RunKey(self._group, self._task.connector, frame.run)
        if run in self._ended:
            raise ConnectException(
                f"The run '{frame.run}' has ended, and was returned again: each run needs its own name. "
                "Derive the name, and the range to read, from the committed offset"
            )
        self._check_settings(frame)
        begun = time.monotonic()
        markers = self._opened()
        self.forget_ended(offsets)
        if frame.topic is not None and not self._services.chain.pipeline.changes_topic:
            self._services.topics.ensure([frame.topic])
        now = self._plan_now(frame, offsets)
        cores = self._begin(run, now, markers)
        tries = AttemptCounter()
        before = Totals.of(self._markers.of(run))
        try:
            while True:
                work = PythonWork()
                job = self._job(frame, run, replace(now, cores=cores), work)
                plan, error = self._await(job, run, work, before, begun, ended, tell)
                if plan is None and error is None:
                    return None
                markers.read_to_end(_READ_S)
                done = Totals.of(self._markers.of(run))
                if error is None:
                    assert plan is not None
                    return self._finished(run, plan, done, before, begun)
                self._judge(error, run, tries, done)
                self._pause(tries.count, ended)
        finally:
            tell(None)

    def forget_ended(self, offsets: OffsetStorageReader) -> None:
        """Removes the markers of the connector's runs whose offsets are committed: they are of no further use.

        They are markers of this task, or of a killed one.
        """
        if self._log is None:
            return
        for run, plan in self._markers.plans(self._group, self._task.connector).items():
            committed = _committed(offsets, plan.source_partition)
            if is_over(plan, committed) or (run in self._ended and committed == plan.end):
                self._log.write(self._markers.entries_of(run), _READ_S)

    def close(self) -> None:
        made, self._log = self._log, None
        if made is not None:
            made.stop()

    # ------------------------------------------------------------------ beginning
    @cached_property
    def _group(self) -> str:
        return self._services.group()

    def _check_settings(self, frame: BulkFrame) -> None:
        speculates = self._services.conf.get("spark.speculation", "false").strip().lower() == "true"
        if not self._transactions(frame) and speculates:
            raise ConnectException(
                f"The run '{frame.run}' is written without transactions, and spark.speculation is on: the copy of a "
                "slow attempt would write its rows again. Set spark.speculation=false in the worker's file, or let "
                "the connector use transactions"
            )

    def _transactions(self, frame: BulkFrame) -> bool:
        return frame.transactions and self._services.delivery.transactions

    def _opened(self) -> MadeLog:
        if self._log is None:
            delivery = self._services.delivery
            made = MadeLog(delivery.markers, delivery.log, delivery.admin)
            with waiting_for("broker"):
                made.start(self._markers.take, _READ_S)
            self._log = made
        with waiting_for("broker"):
            self._log.read_to_end(_READ_S)
        return self._log

    def _plan_now(self, frame: BulkFrame, offsets: OffsetStorageReader) -> RunPlan:
        partition, end = canonical(dict(frame.source_partition)), canonical(dict(frame.source_offset))
        cores = max(1, self._services.runtime.parallelism)
        start = _committed(offsets, partition)
        return RunPlan(0, cores, partition, start, end, self._topic_id(frame.topic), frame.topic or "")

    def _topic_id(self, topic: str | None) -> str:
        if topic is None:
            return ""
        admin = TopicAdmin(dict(self._services.delivery.admin), name=str(self._task))
        try:
            found = admin.describe_topics([topic]).get(topic)
        except KafkaRetriableException:
            # A topic that was made anew must not be taken for the one that has the written records.
            raise
        except KafkaException as error:
            log.debug("The topic %s cannot be described: %s", topic, error)
            return ""
        finally:
            admin.close()
        return "" if found is None else found.topic_id

    def _begin(self, run: RunKey, now: RunPlan, markers: MadeLog) -> int:
        """Removes markers of other runs; returns the number of cores by which Spark divides the run."""
        stored = self._markers.plan(run)
        if stored is not None and continues(run, stored, now):
            totals = Totals.of(self._markers.of(run))
            log.info(
                "The run '%s' of task %s continues: %d of %d Spark partitions, %d rows are in Kafka",
                run.run,
                self._task,
                totals.partitions,
                stored.partitions,
                totals.rows,
            )
            return stored.cores
        if gone := self._markers.entries_of(run):
            markers.write(gone, _READ_S)
        return now.cores

    # ------------------------------------------------------------------ the job
    def _job(self, frame: BulkFrame, run: RunKey, now: RunPlan, work: PythonWork) -> Callable[[], RunPlan]:
        services = self._services

        def on_session(session: SparkSession) -> RunPlan:
            own = run_session(session, now.cores)
            try:
                query = planned(own, frame, services.chain)
            except PySparkException as error:
                raise ConnectException(f"The query of the run '{run.run}' cannot be planned: {brief(error)}") from error
            plan = replace(now, partitions=query.partitions)
            self._note_plan(run, plan)
            todo = PartitionWork(
                run,
                replace(frame.as_source_frame(), data=None),
                query.path,
                replace(services.delivery, transactions=self._transactions(frame)),
                services.errors.policy,
                services.probe,
                services.include_messages,
            )
            payload = packed(todo, f"The bulk work of task {self._task}")
            with work.under_way(own):
                self._executors.probe(own, payload)
                query.rows.mapInArrow(shipped(payload, own_path()), "nothing int").collect()
            return plan

        return lambda: services.runtime.run(on_session)

    def _note_plan(self, run: RunKey, plan: RunPlan) -> None:
        """Stores the plan of the run before the first row is written. Thread: the job's."""
        stored = self._markers.plan(run)
        assert self._log is not None
        if stored is not None:
            same_partitions(run, stored, plan.partitions)
        else:
            self._log.write([(run.marker(None), plan.to_bytes())], _READ_S)
        self._totals = Totals.of(self._markers.of(run)), plan.partitions

    def _await(
        self,
        job: Callable[[], RunPlan],
        run: RunKey,
        work: PythonWork,
        before: Totals,
        begun: float,
        ended: Callable[[], bool],
        tell: Callable[[Progress | None], None],
    ) -> tuple[RunPlan | None, Exception | None]:
        """Waits for a job; returns the plan that was done, or the error; neither if it was cancelled."""
        future, thread = in_own_thread(f"bulk-{self._task}", job)
        count_at = 0.0
        while True:
            text = f"bulk run '{run.run}'"
            with waiting_for("spark", text):
                try:
                    return future.result(_LOOK_S), None
                except TimeoutError:
                    if future.done():
                        raise
                except Exception as error:
                    return None, error
            if ended():
                self._cancel(run, work, future)
                thread.join(_END_S)
                return None, None
            if time.monotonic() >= count_at:
                count_at = time.monotonic() + _COUNT_EVERY_S
                _, partitions = self._totals
                if partitions:
                    now = Totals.of(self._markers.of(run))
                    self._totals = now, partitions
                    tell(told(run.run, partitions, before, now, time.monotonic() - begun))

    def _cancel(self, run: RunKey, work: PythonWork, future: Future[Any]) -> None:
        log.info("The run '%s' of task %s is cancelled; it continues after its markers", run.run, self._task)
        work.end()
        try:
            future.result(_END_S)
        except Exception as error:
            log.debug("The job of the run '%s' has ended: %s", run.run, error)
        stored = self._markers.plan(run)
        if stored is None or not self._services.delivery.transactions:
            return
        # The Python workers were ended in the middle of a transaction, which hides later records from readers of
        # committed messages. Spark begins partitions in order.
        markers = self._markers.of(run)
        left = [one for one in range(stored.partitions) if one not in markers or not markers[one].done]
        ids = [run.transactional_id(one) for one in left[: max(1, self._services.runtime.parallelism)]]
        fenced = fence_producers(self._services.delivery.producer, ids, _FENCE_S, name=str(self._task))
        if failed := [str(one) for one in fenced.values() if isinstance(one, KafkaException)]:
            log.warning(
                "The open transactions of run '%s' could not be ended now; they end after transaction.timeout.ms: %s",
                run.run,
                failed[0],
            )

    # ------------------------------------------------------------------ the end
    def _judge(self, error: Exception, run: RunKey, tries: AttemptCounter, done: Totals) -> None:
        """Returns if another job may begin; otherwise raises the error that fails the task."""
        failure = judged(error, tries, done.rows)
        if failure.again:
            log.warning(
                "The job of the run '%s' of task %s has failed and is started again after its markers: %s",
                run.run,
                self._task,
                failure.message,
            )
            return
        where = "" if failure.partition is None else f", Spark partition {failure.partition}"
        raise ConnectException(
            f"The run '{run.run}' of task {self._task} has failed{where}: {failure.message}. {done.rows:,} rows of it "
            "are handled; restart the task to continue after them"
        ) from error

    def _pause(self, count: int, ended: Callable[[], bool]) -> None:
        """Waits before another job: a broker may be away for a moment."""
        pause, until = threading.Event(), time.monotonic() + 2.0 ** (count - 1)
        while time.monotonic() < until and not ended():
            pause.wait(_LOOK_S)

    def _finished(self, run: RunKey, plan: RunPlan, done: Totals, before: Totals, begun: float) -> Totals:
        markers = self._markers.of(run)
        missing = [one for one in range(plan.partitions) if one not in markers or not markers[one].done]
        if missing:
            raise ConnectException(
                f"Spark has done the run '{run.run}' of task {self._task}, but the topic "
                f"{self._services.delivery.markers.name} has no marker of its Spark partition {missing[0]}: somebody "
                "else writes this run, or the topic has lost records. Nothing is committed; restart the task"
            )
        self._totals = done, plan.partitions
        counts = self._services.errors.counts
        if failed := done.failed - before.failed:
            counts.total_record_failures += failed
            counts.total_record_errors += failed
            counts.total_records_skipped += failed
        examples = [text for marker in markers.values() for text in marker.examples]
        if examples and self._services.errors.policy.log_enable:
            for text in examples[:_NAMED]:
                log.error("%s", text)
                counts.total_errors_logged += 1
        seconds = max(1e-3, time.monotonic() - begun)
        log.info(
            "The run '%s' of task %s is in Kafka: %d records, %.1f MB, %d left out, %d Spark partitions; %d rows in "
            "%.1f s",
            run.run,
            self._task,
            done.sent,
            done.nbytes / 1e6,
            done.failed,
            plan.partitions,
            done.rows - before.rows,
            seconds,
        )
        self._ended.add(run)
        return done


def _committed(offsets: OffsetStorageReader, partition: str) -> str:
    """The committed offset of a source partition, as JSON."""
    found = offsets.offset(json.loads(partition))
    return canonical(None if found is None else dict(found))
