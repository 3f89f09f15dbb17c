"""The engine of a task's bulk work over a Spark and a Kafka in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.unit.worker.bulk.test_executor import Memory, rows, values, work

from penstock.api.bulk import BulkFrame
from penstock.errors import ConnectException, RetriableException
from penstock.kafka.topic_log.clients import LogRecord
from penstock.model import ConnectorTaskId
from penstock.model.states import Progress
from penstock.worker.bulk import engine as jobs
from penstock.worker.bulk import engine as module
from penstock.worker.bulk.engine import BulkEngine, BulkServices
from penstock.worker.bulk.executor import PartitionWork
from penstock.worker.bulk.planning import Planned
from penstock.worker.bulk.runs import AttemptFailedException, Failure, Markers
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy

PARTITION, END = {"shop": "a"}, {"next": 100}
NOTHING: Any = None
FRAME = BulkFrame(data=lambda session: NOTHING, topic="t", source_partition=PARTITION, source_offset=END, run="first")
PARTITIONS = 3


class Spark:
    """A runtime, its session, and the rows of a query: each of the partitions has 95."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.jobs = memory, 0
        self.generation, self.parallelism = 1, 2
        #: Called in front of each partition; may raise what ends the job.
        self.before: Callable[[int, int], None] = lambda job, partition: None

    def run(self, job: Callable[[Any], Any]) -> Any:
        return job(self)

    def mapInArrow(self, todo: PartitionWork, schema: str) -> Spark:
        self.todo = todo
        return self

    def collect(self) -> list[Any]:
        self.jobs += 1
        for partition in range(PARTITIONS):
            self.before(self.jobs, partition)
            self.todo.write(partition, rows(95), self.memory.cluster)
        return []


class Work:
    """Python work that is under way as long as nobody ends it."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def under_way(self, session: object) -> Work:
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def end(self) -> None:
        self.ended.set()


class Log:
    def __init__(self, memory: Memory) -> None:
        self._memory, self._read = memory, 0

    def start(self, handle: Callable[[Sequence[LogRecord]], None], timeout_s: float) -> None:
        self._handle = handle

    def read_to_end(self, timeout_s: float) -> None:
        new = self._memory.entries[self._read :]
        self._read += len(new)
        self._handle([LogRecord(0, 0, key, value) for key, value in new])

    def write(self, entries: Sequence[tuple[bytes, bytes | None]], timeout_s: float) -> None:
        self._memory.entries += entries
        self.read_to_end(timeout_s)

    def stop(self) -> None: ...


class Offsets:
    """The committed offsets."""

    def __init__(self) -> None:
        self.committed: dict[str, Any] | None = None
        self.partition: dict[str, Any] = PARTITION

    def offset(self, partition: Mapping[str, object]) -> dict[str, Any] | None:
        return self.committed if dict(partition) == self.partition else None


class Lab:
    """A task's engine, made anew as often as asked, with what outlives it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **own: Any) -> None:
        self.memory, self.offsets = Memory(), Offsets()
        self.spark = Spark(self.memory)
        self.conf: dict[str, str] = {}
        self.topic_id = "topic-1"
        self.counts = ErrorCounts()
        self.told: list[Progress | None] = []
        self.partitions = PARTITIONS
        self.works: list[Work] = []
        self._own = own
        path = work().path
        nothing: Any = None
        monkeypatch.setattr(module, "MadeLog", lambda *_: Log(self.memory))
        monkeypatch.setattr(module, "PythonWork", self._work)
        monkeypatch.setattr(module, "run_session", lambda session, cores: session)
        monkeypatch.setattr(module, "planned", lambda *_: Planned(self.spark, path, self.partitions))  # type: ignore[arg-type]
        monkeypatch.setattr(module, "packed", lambda todo, what: todo)
        monkeypatch.setattr(module, "shipped", lambda payload, path: payload)
        monkeypatch.setattr(jobs, "probe_executors", lambda *_: None)
        monkeypatch.setattr(module, "fence_producers", lambda *_, **__: {})
        monkeypatch.setattr(module, "_LOOK_S", 0.005)
        monkeypatch.setattr(BulkEngine, "_topic_id", lambda engine, topic: self.topic_id)
        monkeypatch.setattr(BulkEngine, "_pause", lambda *_: None)
        self.chain: Any = type("Chain", (), {"pipeline": type("P", (), {"changes_topic": True})()})()
        self.nothing = nothing

    def _work(self) -> Work:
        self.works.append(Work())
        return self.works[-1]

    def engine(self) -> BulkEngine:
        tolerant = self._own.get("tolerant", False)
        handler = ErrorHandler(
            ErrorPolicy(tolerance_all=tolerant), [], counts=self.counts, clock=lambda: 0, random=lambda: 0.5
        )
        spark: Any = self.spark
        delivery = work(tolerant=tolerant).delivery
        services = BulkServices(lambda: "group", spark, self.conf, self.chain, delivery, self.nothing, handler)
        return BulkEngine(ConnectorTaskId("orders", 0), services)

    def run(self, engine: BulkEngine | None = None, frame: BulkFrame = FRAME, ended: Any = lambda: False) -> Any:
        offsets: Any = self.offsets
        return (engine or self.engine()).run(frame, offsets, ended, self.told.append)

    def markers(self) -> Markers:
        markers, log = Markers(), Log(self.memory)
        log.start(markers.take, 1.0)
        log.read_to_end(1.0)
        return markers

    def reset(self, partitions: set[str] | None) -> None:
        """Does what a change of the connector's offsets does to the markers."""
        self.memory.entries += self.markers().entries_of_connector("group", "orders", partitions)

    @property
    def each_once(self) -> bool:
        return sorted(self.memory.messages) == sorted(values(95) * PARTITIONS)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)


def lost(job: int, partition: int) -> None:
    """An executor goes in the second partition of the first job."""
    if (job, partition) == (1, 1):
        raise RuntimeError("ExecutorLostFailure")


def test_a_run_is_written_once_and_counted(lab: Lab) -> None:
    done = lab.run()
    assert (done.partitions, done.rows, done.sent, done.partitions) == (3, 285, 285, 3)
    assert lab.each_once
    assert lab.told[-1] is None


def test_a_job_that_fails_is_begun_again_behind_its_markers(lab: Lab) -> None:
    lab.spark.before = lost
    assert lab.run().sent == 285
    assert lab.spark.jobs == 2
    assert lab.each_once


def test_after_four_jobs_that_get_no_further_the_run_fails_and_a_restart_goes_on(lab: Lab) -> None:
    def always(job: int, partition: int) -> None:
        if partition == 2:
            raise RuntimeError("ExecutorLostFailure")

    lab.spark.before = always
    with pytest.raises(ConnectException, match=r"has failed: ExecutorLostFailure\. 190 rows of it are handled"):
        lab.run()
    assert lab.spark.jobs == 4
    lab.spark.before = lambda job, partition: None
    assert lab.run().sent == 285
    assert lab.each_once


def test_what_another_job_would_end_with_too_fails_at_once(lab: Lab) -> None:
    def refused(job: int, partition: int) -> None:
        raise AttemptFailedException(Failure(partition, True, "no right").to_text())

    lab.spark.before = refused
    with pytest.raises(ConnectException, match="has failed, Spark partition 0: no right"):
        lab.run()
    assert lab.spark.jobs == 1


def test_a_retriable_end_is_the_tasks_own(lab: Lab) -> None:
    def away(job: int, partition: int) -> None:
        raise RetriableException("later")

    lab.spark.before = away
    with pytest.raises(RetriableException, match="later"):
        lab.run()


def test_a_run_that_is_cancelled_goes_on_with_the_next_call(lab: Lab) -> None:
    stopped = threading.Event()

    def waits(job: int, partition: int) -> None:
        if (job, partition) == (1, 1):
            stopped.set()
            assert lab.works[-1].ended.wait(10)
            raise RuntimeError("cancelled")

    lab.spark.before = waits
    engine = lab.engine()
    assert lab.run(engine, ended=stopped.is_set) is None
    assert lab.memory.messages == values(95)
    assert lab.run(engine).sent == 285
    assert lab.each_once


def test_another_instance_of_the_task_finds_all_done_and_writes_nothing(lab: Lab) -> None:
    lab.run()
    assert lab.run().sent == 285
    assert lab.each_once


def test_a_run_that_has_ended_is_not_a_name_for_another_one(lab: Lab) -> None:
    engine = lab.engine()
    lab.run(engine)
    with pytest.raises(ConnectException, match="has ended, and was returned again"):
        lab.run(engine)


def test_markers_are_forgotten_once_the_offset_is_committed(lab: Lab) -> None:
    engine = lab.engine()
    lab.run(engine)
    offsets: Any = lab.offsets
    engine.forget_ended(offsets)
    assert lab.memory.markers(), "nothing is committed yet"

    again = lab.engine()
    lab.run(again)
    lab.offsets.committed = {"next": 100}
    again.forget_ended(offsets)
    assert lab.memory.markers() == {}


def frame_of(run: str, end: object, topic: str | None = "t", partition: dict[str, Any] = PARTITION) -> BulkFrame:
    return BulkFrame(data=FRAME.data, topic=topic, source_partition=partition, source_offset={"next": end}, run=run)


def test_markers_that_a_killed_task_has_left_are_removed_when_the_next_run_begins(lab: Lab) -> None:
    lab.run()
    lab.offsets.committed = {"next": 100}
    # Killed here, before it has removed them.
    lab.run(frame=frame_of("second", 200))
    assert {run.run for run in lab.markers().plans("group", "orders")} == {"second"}


@pytest.mark.parametrize("committed", [None, {"next": 50}])
@pytest.mark.parametrize("partitions", [None, {'{"shop": "a"}'}])
def test_after_a_reset_or_an_alteration_a_run_writes_all_of_its_rows_again(
    lab: Lab, committed: dict[str, Any] | None, partitions: set[str] | None
) -> None:
    lab.offsets.committed = committed
    lab.run()
    lab.offsets.committed = {"next": 100}
    lab.memory.messages.clear()
    # Killed before the markers were removed; then the offset is set to where it was when the run began.
    lab.reset(partitions)
    lab.offsets.committed = committed
    assert lab.run().sent == 285
    assert lab.each_once


def test_a_run_that_was_cut_off_begins_anew_after_a_reset_that_has_no_offset_to_remove(lab: Lab) -> None:
    stopped = threading.Event()

    def waits(job: int, partition: int) -> None:
        if (job, partition) == (1, 1):
            stopped.set()
            assert lab.works[-1].ended.wait(10)
            raise RuntimeError("cancelled")

    lab.spark.before = waits
    assert lab.run(ended=stopped.is_set) is None
    lab.memory.messages.clear()
    lab.reset(None)
    assert lab.run().sent == 285
    assert lab.each_once


def test_after_an_alteration_runs_of_other_boundaries_have_their_own_markers(lab: Lab) -> None:
    lab.run(frame=frame_of("0-100", 100))
    lab.offsets.committed = {"next": 100}
    lab.run(frame=frame_of("100-200", 200))
    lab.memory.messages.clear()
    lab.reset({'{"shop": "a"}'})
    lab.offsets.committed = {"next": 50}
    assert lab.run(frame=frame_of("50-200", 200)).sent == 285
    assert lab.each_once
    # A name that does not tell the boundaries is free again, too.
    lab.reset(None)
    lab.memory.messages.clear()
    assert lab.run(frame=frame_of("0-100", 80)).sent == 285
    assert lab.each_once


def test_offsets_that_were_moved_without_the_worker_begin_a_run_anew(lab: Lab) -> None:
    lab.offsets.committed = {"next": 0}
    lab.run()
    lab.memory.messages.clear()
    lab.offsets.committed = {"next": 7}
    assert lab.run().sent == 285
    assert lab.each_once


def test_a_connector_that_was_made_again_goes_on_and_its_rows_go_to_its_topic(lab: Lab) -> None:
    lab.spark.before = lost
    lab.run()
    # Its offsets and markers stay when it is deleted: each row once.
    assert lab.run().sent == 285
    assert lab.each_once
    # With another topic all rows go there, also if a broker tells no ids of topics.
    lab.topic_id = ""
    lab.memory.messages.clear()
    assert lab.run(frame=frame_of("first", 100, topic="renamed")).sent == 285
    assert lab.each_once


def test_a_run_of_another_source_partition_says_what_to_do(lab: Lab) -> None:
    lab.run()
    lab.offsets.partition = {"shop": "b"}
    with pytest.raises(ConnectException, match=r"no two runs .* one name\..* reset the connector's offsets"):
        lab.run(frame=frame_of("first", 100, partition={"shop": "b"}))
    lab.reset(None)
    lab.memory.messages.clear()
    assert lab.run(frame=frame_of("first", 100, partition={"shop": "b"})).sent == 285


def test_a_run_begins_anew_where_its_topic_was_made_anew(lab: Lab) -> None:
    lab.spark.before = lost
    lab.run()
    lab.memory.messages.clear()
    lab.topic_id = "topic-2"
    assert lab.run().sent == 285
    assert lab.each_once


def test_a_query_that_is_cut_otherwise_is_refused(lab: Lab) -> None:
    lab.run()
    lab.partitions = 4
    with pytest.raises(ConnectException, match="begun with 3 Spark partitions, and its query has 4 now"):
        lab.run()


def test_a_marker_that_is_missing_after_the_job_fails_the_run(lab: Lab) -> None:
    lab.partitions = 4
    with pytest.raises(ConnectException, match="has no marker of its Spark partition 3"):
        lab.run()


def test_speculation_without_transactions_is_refused(lab: Lab) -> None:
    lab.conf["spark.speculation"] = "true"
    frame = BulkFrame(
        data=FRAME.data, topic="t", source_partition=PARTITION, source_offset=END, run="first", transactions=False
    )
    with pytest.raises(ConnectException, match=r"Set spark\.speculation=false"):
        lab.run(frame=frame)
    assert lab.run().sent == 285


def test_left_out_rows_are_in_the_tasks_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, tolerant=True)
    lab.memory.refuses = frozenset([b"50"])
    lab.run()
    assert (lab.counts.total_records_skipped, lab.counts.total_record_errors) == (3, 3)
    lab.run()
    assert lab.counts.total_records_skipped == 3, "another instance finds them counted"
