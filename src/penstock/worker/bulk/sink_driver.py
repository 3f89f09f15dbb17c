"""A bulk sink task as the worker's loop sees it: a sink task that is put nothing, and works by the clock.

Messages are fetched on executors (``range_work``). The task's own consumer holds the partitions, which are all paused,
so that rebalances, commits, pauses and the lag work as for every sink. The task's ``commit`` comes between a job and
the commit of its offsets; work that is lost before that is done again, and does not count.

Threads: the task's; ``abandon`` any. ``bulk-<id>``, owned here, has the job.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.api import OffsetAndMetadata, SinkRecord, SinkTask, SinkTaskContext, TopicPartition
from penstock.api.bulk import BulkSinkTask, TopicRange, WrittenRange
from penstock.errors import ConnectException, KafkaException, KafkaRetriableException
from penstock.kafka.admin import TopicAdmin
from penstock.model import ConnectorTaskId
from penstock.model.states import Progress
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.gate import PythonWork
from penstock.pipeline.spark.session import SparkRuntime
from penstock.telemetry import no_probe, waiting_for
from penstock.threads import OwnedThread, in_own_thread
from penstock.worker.bulk.engine import Executors, judged
from penstock.worker.bulk.planning import (
    checked_plan,
    ends_of_ranges,
    open_ranges,
    run_session,
    told_ranges,
    written_rows,
)
from penstock.worker.bulk.range_work import RangeAnswer, RangeWork, TopicReading
from penstock.worker.bulk.runs import AttemptCounter, Totals
from penstock.worker.bulk.shipping import packed, probe_for_executors
from penstock.worker.errors import ErrorHandler
from penstock.worker.sink.queues import SinkCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: The seconds between two requests to Kafka for new messages, and between two turns of the loop while a job works.
_ASK_S: Final = 1.0
_LOOK_S: Final = 0.2
#: The seconds between two requests to Spark for the progress of a job.
_COUNT_S: Final = 2.0
#: The time for which a partition may end before the task's position, before the topic is taken for another one.
_BEYOND_S: Final = 10.0
_END_S: Final = 30.0
#: Failed records that a job names on the worker's log.
_NAMED: Final = 5


@dataclass(frozen=True)
class BulkSinkServices:
    """The parts that a task's bulk work needs.

    Attributes:
        why_not: The reason why executors cannot read messages; None if they can.
        admin: Settings of the admin client; librdkafka's names.
        committed_only: True if messages of uncommitted transactions are not read.
        probe: Called at named points, for kill tests; executors get one, too.
    """

    task: ConnectorTaskId
    runtime: SparkRuntime
    why_not: str | None
    reading: TopicReading
    jobs: SparkJobs
    admin: Mapping[str, object]
    committed_only: bool
    errors: ErrorHandler
    note_topics: Callable[[Sequence[str]], None] = lambda topics: None
    probe: Callable[[str], None] = no_probe


@dataclass(frozen=True)
class Around:
    """The parts that the task's runner gives.

    Attributes:
        positions: The next offsets of the assigned partitions.
        delivered: Called with the written offsets, which are committed next.
        ended: True if the task is to pause or to end.
    """

    positions: Callable[[], Mapping[TopicPartition, int]]
    delivered: Callable[[Mapping[TopicPartition, int]], None]
    ended: Callable[[], bool]
    tell: Callable[[Progress | None], None]
    counts: SinkCounts


@dataclass
class _Job:
    """A job in progress, or one whose ranges are written and not committed."""

    ranges: list[TopicRange]
    work: PythonWork
    begun: float
    future: Future[list[RangeAnswer]] | None = None
    thread: OwnedThread | None = None
    session: SparkSession | None = None
    count_at: float = 0.0
    answers: list[RangeAnswer] | None = None
    gone: set[TopicPartition] = field(default_factory=set)


class BulkSinkDriver(SinkTask):
    """One bulk sink task."""

    def __init__(self, task: BulkSinkTask, services: BulkSinkServices) -> None:
        self.task = task
        self._services = services
        self._executors = Executors(services.runtime)
        self._admin: TopicAdmin | None = None
        self._around: Around | None = None
        self._job: _Job | None = None
        self._tries = AttemptCounter()
        self._next_look = 0.0
        self._ends: dict[TopicPartition, int] = {}
        #: Partitions that end before their positions, and since when.
        self._beyond: dict[TopicPartition, float] = {}
        self._abandoned = threading.Event()
        self._totals = Totals(), 0

    def attach(self, around: Around) -> None:
        """The runner is there; before ``initialize``."""
        self._around = around

    @property
    def totals(self) -> tuple[Totals, int]:
        """The sums over all jobs of this task, its present one not among them, and the number of their ranges."""
        return self._totals

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The known offsets after the last messages of partitions. Thread: any."""
        return self._ends

    # ------------------------------------------------------------------ the user's task
    def initialize(self, context: SinkTaskContext) -> None:
        super().initialize(context)
        self.task.initialize(context)

    def start(self, props: Mapping[str, str]) -> None:
        if self._services.why_not is not None:
            raise ConnectException(
                f"{type(self.task).__name__} has Spark's executors convert messages, and {self._services.why_not}. "
                "Declare it stateless if it is, leave it out, or take a connector that does not work in bulk"
            )
        self.task.start(props)

    def stop(self) -> None:
        self.task.stop()
        if self._admin is not None:
            self._admin.close()

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Takes partitions on; none of their messages comes here."""
        self.context.pause(*partitions)
        self.task.open(partitions)
        self._take_positions(partitions)

    def _take_positions(self, partitions: Collection[TopicPartition]) -> None:
        known: object = self.task.positions(partitions)
        if not isinstance(known, Mapping):
            raise ConnectException(f"positions() of {type(self.task).__name__} must return a map, got {known!r}")
        ahead = {
            TopicPartition(*place): int(offset)
            for place, offset in known.items()
            if place in partitions and offset > self._its.positions().get(TopicPartition(*place), 0)
        }
        if ahead:
            log.info(
                "Task %s: its target is ahead of the committed offsets; it continues at %s",
                self._services.task,
                ", ".join(f"{place.topic}-{place.partition} {offset}" for place, offset in sorted(ahead.items())),
            )
            self._its.delivered(ahead)
            self.context.request_commit()

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Releases partitions. A job that reads one of them ends, and its output does not count."""
        job = self._job
        if job is not None and any(one.place in partitions for one in job.ranges):
            if job.answers is None:
                self._cancel(job)
            else:
                job.gone.update(partitions)
        for place in partitions:
            self._ends.pop(place, None)
        self.task.close(partitions)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Accepts all offsets: the worker only knows offsets that the task's ``commit`` has passed."""
        return offsets

    # ------------------------------------------------------------------ rounds
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Checks the job in progress, or begins one.

        Raises:
            RetriableException: The task's ``commit`` asks for a retry.
            ConnectException: A job has failed for good.
        """
        assert not records, "its partitions are paused"
        job = self._job
        if job is not None and job.answers is None:
            if self._its.ended():
                self._cancel(job)
                return
            self._look_at(job)
            job = self._job
        if job is not None and job.answers is not None:
            self._commit(job, job.answers)
        if self._job is None and not self._its.ended() and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _ASK_S
            self._begin()
        if (job := self._job) is not None and job.future is not None:
            # The wait is announced here, so that ``explain`` shows it.
            with waiting_for("spark", f"{len(job.ranges)} ranges of its topics"):
                wait([job.future], _LOOK_S)
            self.context.timeout(1)

    def abandon(self) -> None:
        """The task was cancelled: its job ends, and nothing is committed. Thread: any. Invariant 4."""
        self._abandoned.set()
        if (job := self._job) is not None:
            in_own_thread(f"abandon-{self._services.task}", job.work.end)

    @property
    def _its(self) -> Around:
        assert self._around is not None, "the runner attaches itself"
        return self._around

    def _begin(self) -> None:
        ranges = self._open_ranges()
        if not ranges:
            return
        planned = checked_plan(ranges, self.task.plan(ranges), type(self.task).__name__)
        if not planned:
            return
        self._services.note_topics(sorted({one.topic for one in planned}))
        job = _Job(planned, PythonWork(), time.monotonic())
        job.future, job.thread = in_own_thread(f"bulk-{self._services.task}", lambda: self._written(job))
        self._job = job
        self._its.tell(told_ranges(0, planned, 0.0))

    def _open_ranges(self) -> list[TopicRange]:
        positions = self._its.positions()
        if not positions:
            return []
        if self._admin is None:
            self._admin = TopicAdmin(dict(self._services.admin), name=str(self._services.task))
        try:
            with waiting_for("broker"):
                ends = self._admin.end_offsets(positions, committed_only=self._services.committed_only)
                self._ends = {**self._ends, **ends}
                behind = [place for place, offset in positions.items() if offset < ends.get(place, 0)]
                begins = self._admin.beginning_offsets(behind)
        except KafkaRetriableException as error:
            log.warning("Task %s cannot ask for new messages and asks again: %s", self._services.task, error)
            return []
        except KafkaException as error:
            raise ConnectException(f"Task {self._services.task} cannot ask for new messages: {error}") from error
        self._check_beyond(positions, ends)
        for place, begin in begins.items():
            if begin > positions[place]:
                log.warning(
                    "Task %s: messages of %s-%d from offset %d on are gone, and it goes on at %d",
                    self._services.task,
                    *place,
                    positions[place],
                    begin,
                )
        return open_ranges(positions, begins, ends)

    def _check_beyond(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Fails the task if a partition keeps ending before its position: its messages would be passed over."""
        now = time.monotonic()
        beyond = [place for place, offset in positions.items() if offset > ends.get(place, offset)]
        self._beyond = {place: self._beyond.get(place, now) for place in beyond}
        for place, since in self._beyond.items():
            if now - since >= _BEYOND_S:
                raise ConnectException(
                    f"{place.topic}-{place.partition} ends at offset {ends[place]}, and the connector has written it "
                    f"up to {positions[place]}: the topic was deleted and made again, or has lost messages. Stop the "
                    "connector and reset its offsets (penstock connectors offsets reset) to have the messages written "
                    "that are there now, beside the rows of the old ones"
                )

    # ------------------------------------------------------------------ the job
    def _written(self, job: _Job) -> list[RangeAnswer]:
        """Has the ranges written. Thread: the job's."""
        services = self._services
        todo = RangeWork(self.task, tuple(job.ranges), services.reading, probe_for_executors(services.probe))
        what = f"The bulk work of task {services.task}, or what start() has set,"
        payload = packed(todo, what)

        def on_session(session: SparkSession) -> list[RangeAnswer]:
            own = run_session(session, max(1, services.runtime.parallelism))
            with job.work.under_way(own):
                self._executors.probe(own, payload)
                own.sparkContext.setJobGroup(job_group(job.work), f"ranges of {services.task}")
                job.session = own
                rows = written_rows(own, todo, payload, services.jobs, what).collect()
            return [pickle.loads(row[0]) for row in rows]

        return services.runtime.run(on_session)

    def _look_at(self, job: _Job) -> None:
        """Takes the outcome of a job that has ended."""
        assert job.future is not None
        if not job.future.done():
            self._tell(job)
            return
        self._its.tell(None)
        try:
            answers = job.future.result()
        except Exception as error:
            self._job = None
            failure = judged(error, self._tries, 0)
            if not failure.again:
                raise ConnectException(
                    f"A job of task {self._services.task} has failed: {failure.message}. Nothing of it is committed; "
                    "restart the task to have its ranges written again"
                ) from error
            pause_s = 2.0 ** (self._tries.count - 1)
            self._next_look = time.monotonic() + pause_s
            log.warning(
                "A job of task %s has failed and is started again in %.0f s: %s",
                self._services.task,
                pause_s,
                failure.message,
            )
            return
        job.answers = sorted(answers, key=lambda one: one.range)
        self._services.probe("bulk-sink.written")

    def _tell(self, job: _Job) -> None:
        now = time.monotonic()
        if job.session is None or now < job.count_at:
            return
        job.count_at = now + _COUNT_S
        try:
            done = ranges_done(job.session, job_group(job.work))
        except Exception as error:
            log.debug("Spark does not say how far the job of task %s is: %s", self._services.task, error)
            return
        self._its.tell(told_ranges(min(done, len(job.ranges)), job.ranges, now - job.begun))

    def _cancel(self, job: _Job) -> None:
        log.info("The job of task %s is cancelled; its ranges are written when it continues", self._services.task)
        self._job = None
        self._its.tell(None)
        job.work.end()
        assert job.future is not None
        assert job.thread is not None
        try:
            job.future.result(_END_S)
        except Exception as error:
            log.debug("The job of task %s has ended: %s", self._services.task, error)
        job.thread.join(_END_S)

    def _commit(self, job: _Job, answers: Sequence[RangeAnswer]) -> None:
        """Calls the task's ``commit`` to make the written rows visible, then hands on the offsets."""
        if self._abandoned.is_set():
            return
        kept = [one for one in answers if one.range.place not in job.gone]
        if kept:
            ends = ends_of_ranges([one.range for one in kept])
            files = [WrittenRange(one.range, one.file, one.rows) for one in kept if one.file is not None]
            self.task.commit(files, ends)
            if self._abandoned.is_set():
                return
            self._services.probe("bulk-sink.committed")
            # Invariant 2: after the target has all of it.
            self._its.delivered(ends)
            self.context.request_commit()
        self._job = None
        self._tries = AttemptCounter()
        self._next_look = 0.0
        self._count(job, kept)

    def _count(self, job: _Job, answers: Sequence[RangeAnswer]) -> None:
        counts, errors = self._its.counts, self._services.errors.counts
        counts.records_read += sum(one.read for one in answers)
        counts.records_put += sum(one.rows for one in answers)
        for one in answers:
            for name, value in one.counts.items():
                mine = getattr(errors, name)
                setattr(errors, name, max(mine, value) if name == "last_error_timestamp" else mine + value)
        for text in [text for one in answers for text in one.examples][:_NAMED]:
            log.error("%s", text)
            errors.total_errors_logged += 1
        rows, read = sum(one.rows for one in answers), sum(one.read for one in answers)
        nbytes, left_out = (
            sum(one.nbytes for one in answers),
            sum(one.counts["total_record_failures"] for one in answers),
        )
        before, ranges = self._totals
        self._totals = (
            Totals(
                before.partitions + len(answers),
                before.rows + read,
                before.sent + rows,
                before.nbytes + nbytes,
                before.failed + left_out,
            ),
            ranges + len(answers),
        )
        log.info(
            "A job of task %s is written and committed: %d messages in %d ranges, %.1f MB, %d left out; %.1f s",
            self._services.task,
            read,
            len(answers),
            nbytes / 1e6,
            left_out,
            time.monotonic() - job.begun,
        )


def job_group(work: PythonWork) -> str:
    """The name under which Spark knows the jobs of a work."""
    return f"penstock-ranges-{id(work):x}"


def ranges_done(session: Any, group: str) -> int:
    """Returns the number of tasks that Spark has done of a group's jobs."""
    tracker = session.sparkContext.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            found = tracker.getStageInfo(stage)
            done += 0 if found is None else found.numCompletedTasks
    return done
