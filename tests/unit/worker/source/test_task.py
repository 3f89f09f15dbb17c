"""The life of a source task, with stand-ins for Spark, Kafka and the store."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pytest
from testkit.doubles.source_doubles import (
    WAIT_S,
    FakePipeline,
    FakeProducer,
    FakeTransactions,
    HookedTask,
    MemoryOffsets,
    ScriptedTask,
    offset_committer,
    record,
)
from testkit.doubles.spark_doubles import FakeSessions
from testkit.waiting import await_true

from penstock.api import (
    FrameSourceTask,
    RecordMetadata,
    SampleWindow,
    SourceFrame,
    SourceRecord,
    TransactionBoundary,
)
from penstock.api.bulk import BulkFrame
from penstock.errors import (
    AlreadyExistsException,
    ConnectException,
    IllegalWorkerStateException,
    KafkaRetriableException,
    OffsetStoreException,
    RetriableException,
    SparkSessionLostException,
)
from penstock.kafka.admin import NewTopic, TopicCreator
from penstock.model import ConnectorTaskId, State
from penstock.stores.offsets import OffsetReader, connector_offsets
from penstock.telemetry import Metrics
from penstock.worker.bulk.engine import BulkEngine
from penstock.worker.bulk.runs import Totals
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy, FailedRecord
from penstock.worker.source import task as source_task
from penstock.worker.source.delivery_guarantee import Ownership, TransactionBeginning
from penstock.worker.source.exactly_once import TransactionCommitter, TransactionSizes
from penstock.worker.source.offset_commit import CommitHooks, Committer, wants_metadata
from penstock.worker.source.task import SourceServices, SourceTaskRunner
from penstock.worker.source.transaction_boundaries import Boundaries, TransactionRequests
from penstock.worker.task.bounded_queue import BatchLimits
from penstock.worker.task.engine import TaskServices, TaskSession, TaskSpec
from penstock.worker.task.plugin_metrics import InstanceMetrics


class Reports:
    def __init__(self) -> None:
        self.failed: list[FailedRecord] = []

    def report(self, failed: FailedRecord) -> None:
        self.failed.append(failed)

    def await_reports(self, partitions: object, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        pass


@dataclass
class Rig:
    """A runner and all it works with."""

    task: ScriptedTask = field(default_factory=ScriptedTask)
    tolerance_all: bool = False
    retry_timeout_ms: int = 0
    interval_s: float = 60.0
    timeout_s: float = 5.0
    limits: BatchLimits = field(default_factory=BatchLimits)
    paused: bool = False
    topics: TopicCreator | None = None
    metrics: InstanceMetrics = field(default_factory=InstanceMetrics.unread)
    boundary: TransactionBoundary | None = None
    transaction_timeout_s: float = 60.0
    ownership: Ownership = field(default_factory=Ownership)
    acknowledge: bool = True

    def __post_init__(self) -> None:
        self.pipeline = FakePipeline()
        self.sessions = FakeSessions()
        self.producer = FakeProducer() if self.boundary is None else FakeTransactions(acknowledge=self.acknowledge)
        self.store = MemoryOffsets()
        self.reports = Reports()
        self.states: list[tuple[State, str | None]] = []
        self.state_changed = threading.Condition()
        self.probes: list[str] = []
        self.closed: list[str] = []
        self.services = TaskServices(
            self.on_state,
            TaskSession("c-0", self.sessions),
            ErrorHandler(
                ErrorPolicy(tolerance_all=self.tolerance_all, retry_timeout_ms=self.retry_timeout_ms),
                [self.reports],
                counts=ErrorCounts(),
                clock=lambda: 0,
                random=random.Random(1).random,
            ),
            metrics=self.metrics,
            close=lambda: self.closed.append("transforms"),
            probe=self.probes.append,
        )
        self.source = SourceServices(
            pipeline=self.pipeline,
            producer=cast("Any", self.producer),
            topics=self.topics or TopicCreator("c-0", None, None),
            offset_reader=OffsetReader(self.store, "c"),
            committer=self.committer(),
            requests=TransactionRequests("c-0") if self.boundary is TransactionBoundary.CONNECTOR else None,
        )
        self.spec = TaskSpec(
            ConnectorTaskId("c", 0),
            self.task,
            {"file": "f"},
            lambda: {"secret": "new"},
            self.limits,
            offset_flush_timeout_s=self.timeout_s,
            paused=self.paused,
        )
        self.runner = SourceTaskRunner(self.spec, self.services, self.source)

    def committer(self) -> Committer:
        if self.boundary is None:
            return offset_committer(
                self.task, self.store, interval_s=self.interval_s, timeout_s=self.timeout_s, probe=self.probes.append
            )
        return TransactionCommitter(
            ConnectorTaskId("c", 0),
            CommitHooks(self.task),
            producer=cast("Any", self.transactions),
            offsets=self.store,
            start=TransactionBeginning("c-0", cast("Any", self.transactions), self.ownership),
            boundaries=Boundaries(self.boundary, self.interval_s, self.transaction_timeout_s, 1000, time.monotonic()),
            sizes=TransactionSizes(SampleWindow(), time.monotonic),
            clock=time.monotonic,
            probe=self.probes.append,
        )

    @property
    def transactions(self) -> FakeTransactions:
        assert isinstance(self.producer, FakeTransactions)
        return self.producer

    def on_state(self, state: State, trace: str | None) -> None:
        with self.state_changed:
            self.states.append((state, trace))
            self.state_changed.notify_all()

    def wait_state(self, state: State, times: int = 1) -> str | None:
        with self.state_changed:
            assert self.state_changed.wait_for(
                lambda: sum(found is state for found, _ in self.states) >= times, WAIT_S
            ), self.states
            return next(trace for found, trace in self.states if found is state)

    def stop(self) -> None:
        self.runner.stop()
        assert self.runner.join(WAIT_S)

    def committed(self) -> dict[object, object]:
        return {
            (partition or {}).get("file"): offset["position"]
            for partition, offset in connector_offsets(self.store, "c")
        }

    def state_names(self) -> list[str]:
        return [state.value for state, _ in self.states]


def started(rigs: list[Rig], rig: Rig) -> Rig:
    rigs.append(rig)
    rig.runner.start()
    return rig


def values(count: int, start: int = 1) -> list[SourceRecord]:
    return [record(position, f"v{position}") for position in range(start, start + count)]


def test_records_are_delivered_committed_and_the_task_is_stopped_last(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(values(3), values(2, 4))
    rig.producer.wait_sent(1)
    rig.wait_state(State.RUNNING)
    rig.stop()
    assert rig.producer.values() == ["v1", "v2", "v3", "v4", "v5"]
    assert rig.committed() == {"f": 5}
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert rig.task.calls == ["start", "stop"]
    assert rig.producer.closed
    assert rig.closed == ["transforms"]


def test_the_context_tells_newest_configs_offsets_and_stopping(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.store.data[b'["c",{"file":"f"}]'] = b'{"position":7}'
    started(rigs, rig)
    rig.wait_state(State.RUNNING)
    context = rig.task.context
    assert context.configs() == {"secret": "new"}
    assert context.offset_storage_reader().offset({"file": "f"}) == {"position": 7}
    assert not context.stopping.is_set()
    rig.stop()
    assert context.stopping.is_set()


def test_the_task_runs_before_spark_is_there(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.pipeline.hold.clear()
    started(rigs, rig)
    rig.task.give(values(1))
    rig.wait_state(State.RUNNING)
    assert rig.pipeline.entered.wait(WAIT_S)
    assert rig.producer.sent == []
    rig.pipeline.hold.set()
    rig.producer.wait_sent(1)


def test_polls_are_joined_while_spark_is_busy_and_a_lone_one_goes_at_once(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.pipeline.hold.clear()
    started(rigs, rig)
    rig.task.give(values(1))
    assert rig.pipeline.entered.wait(WAIT_S)
    rig.task.give(values(2, 2), values(2, 4), values(1, 6))
    for _ in range(6):
        assert rig.task.polled.acquire(timeout=WAIT_S)
    rig.pipeline.hold.set()
    rig.producer.wait_sent(2)
    assert [len(batch) for batch in rig.pipeline.batches] == [1, 5]


def test_batches_do_not_grow_beyond_the_limit_and_a_larger_poll_is_cut(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(limits=BatchLimits(max_records=4)))
    rig.task.give(values(10))
    rig.producer.wait_sent(3)
    rig.stop()
    assert [len(batch) for batch in rig.pipeline.batches] == [4, 4, 2]
    assert rig.committed() == {"f": 10}


def test_a_full_producer_makes_poll_wait(rigs: list[Rig]) -> None:
    rig = Rig(limits=BatchLimits(max_records=10, max_bytes=200))
    rig.producer.full = True
    started(rigs, rig)
    rig.task.give(*[[record(position, "x" * 100)] for position in range(1, 101)])
    rig.wait_state(State.RUNNING)
    while rig.task.polled.acquire(timeout=0.2):
        pass
    assert len(rig.task.polls) > 80
    with rig.producer.changed:
        rig.producer.full = False
        rig.producer.changed.notify_all()
    rig.producer.wait_sent(50)


def test_offsets_are_committed_on_schedule_and_the_hook_follows(rigs: list[Rig]) -> None:
    task = HookedTask()
    rig = started(rigs, Rig(task=task, interval_s=0.01))
    task.give(values(2))
    assert rig.store.wait_for(lambda: rig.store.attempts >= 1)
    with task.available:
        task.available.wait_for(lambda: ("commit", None) in task.told, WAIT_S)
    assert rig.committed() == {"f": 2}
    assert ("commit", None) in task.told


def test_a_failed_commit_keeps_the_offsets_for_the_next(rigs: list[Rig]) -> None:
    rig = Rig(interval_s=0.01)
    rig.store.fail = OffsetStoreException("the disk is full")
    started(rigs, rig)
    rig.task.give(values(2))
    assert rig.store.wait_for(lambda: rig.store.attempts >= 2)
    rig.store.fail = None
    rig.stop()
    assert rig.committed() == {"f": 2}
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert rig.runner.committer.counts.failures >= 2


def test_unacknowledged_records_are_not_committed_even_at_the_end(rigs: list[Rig]) -> None:
    rig = Rig(timeout_s=0.05)
    rig.producer.acknowledge = False
    started(rigs, rig)
    rig.task.give(values(1))
    rig.producer.wait_sent(1)
    rig.producer.answer()
    rig.task.give(values(1, 2))
    rig.producer.wait_sent(2)
    rig.stop()
    assert rig.committed() == {"f": 1}
    assert rig.producer.aborted


def test_what_is_acknowledged_is_committed_while_stop_waits_for_the_rest(
    rigs: list[Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_task, "_COMMIT_FIRST_S", 0.01)
    task = HookedTask()
    rig = Rig(task=task)
    rig.producer.acknowledge = False
    started(rigs, rig)
    task.give(values(1))
    rig.producer.wait_sent(1)
    rig.producer.answer()
    task.give(values(1, 2))
    rig.producer.wait_sent(2)
    rig.runner.stop()
    assert rig.store.wait_for(lambda: rig.committed() == {"f": 1})
    # Its slot abandons the task now, because the wait for the rest is too long: what was committed stays.
    rig.runner.cancel()
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {"f": 1}
    assert task.told[-1] == ("commit", None)


def test_stop_waits_for_what_is_in_flight(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.producer.acknowledge = False
    started(rigs, rig)
    rig.task.give(values(2))
    rig.producer.wait_sent(1)
    rig.runner.stop()
    assert rig.runner.join(0.05) is False
    rig.producer.answer()
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {"f": 2}


def test_hooks_come_in_order_with_and_without_metadata(rigs: list[Rig]) -> None:
    task = HookedTask()
    rig = started(rigs, Rig(task=task, tolerance_all=True))
    task.give([record(1, "a"), record(2, "drop"), record(3, "bad"), record(4, "refused"), record(5, "b")])
    rig.producer.wait_sent(1)
    rig.stop()
    assert [entry for entry in task.told if entry[0] != "commit"] == [
        ("acknowledged", ("a", 0)),
        ("record", "a"),
        ("record", "drop"),
        ("record", "bad"),
        ("record", "refused"),
        ("acknowledged", ("b", 1)),
        ("record", "b"),
    ]
    assert task.told[-1] == ("commit", None)
    assert rig.committed() == {"f": 5}
    assert [failed.error.stage for failed in rig.reports.failed] == ["VALUE_CONVERTER", "KAFKA_PRODUCE"]


def test_a_hook_that_raises_does_no_harm(rigs: list[Rig]) -> None:
    class Angry(HookedTask):
        def commit(self) -> None:
            raise ValueError("no")

        def commit_record(self, record: SourceRecord) -> None:
            raise ValueError("no")

    rig = started(rigs, Rig(task=Angry()))
    rig.task.give(values(2))
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.committed() == {"f": 2}
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]


def test_only_a_task_with_that_hook_wants_metadata() -> None:
    assert wants_metadata(HookedTask())
    assert not wants_metadata(ScriptedTask())


def noted(self: Any, *given: Any) -> bool:
    self.told.append(tuple(one.value if isinstance(one, SourceRecord) else one for one in given))
    return True


@pytest.mark.parametrize(
    ("written", "with_metadata"),
    [
        # Two arguments under whatever names, as in Java.
        (lambda self, one, two: noted(self, one, two) and None, True),
        (lambda self, record, metadata=None: noted(self, record, metadata), True),
        (lambda self, record, record_metadata=None: noted(self, record, record_metadata), True),
        (lambda self, record, m, more=1: noted(self, record, m), True),
        (lambda self, one: noted(self, one) and None, False),
        (lambda self, record, retries=3: noted(self, record), False),
        (lambda *given: noted(*given) and None, False),
    ],
)
def test_commit_record_is_called_as_it_is_written(rigs: list[Rig], written: Any, with_metadata: bool) -> None:
    task = type("Own", (ScriptedTask,), {"commit_record": written, "told": []})()
    assert wants_metadata(task) is with_metadata
    rig = started(rigs, Rig(task=task, tolerance_all=True))
    task.give([record(1, "a"), record(2, "drop"), record(3, "bad"), record(4, "b")])
    rig.producer.wait_sent(1)
    rig.stop()
    places = {"a": RecordMetadata("t", 0, 0), "b": RecordMetadata("t", 0, 1)}
    values = ("a", "drop", "bad", "b")
    assert task.told == [(value, places.get(value)) if with_metadata else (value,) for value in values]


def test_a_batch_that_is_dropped_as_a_whole_advances_offsets_and_hooks(rigs: list[Rig]) -> None:
    task = HookedTask()
    rig = started(rigs, Rig(task=task, interval_s=0.01))
    task.give([record(1, "drop"), record(2, "drop2")])
    assert rig.store.wait_for(lambda: bool(rig.store.data))
    rig.stop()
    assert rig.committed() == {"f": 2}
    assert [entry for entry in task.told if entry[0] != "commit"] == [("record", "drop"), ("record", "drop2")]
    assert rig.producer.sent == []


def test_records_before_a_failed_one_are_delivered_and_committed_then_the_task_fails(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give([record(1, "a"), record(2, "drop"), record(3, "bad"), record(4, "b")])
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert trace is not None
    assert "Tolerance exceeded in error handler" in trace
    assert "bad is bad" in trace
    assert rig.producer.values() == ["a"]
    assert rig.committed() == {"f": 2}
    assert rig.task.calls == ["start", "stop"]
    assert rig.state_names() == ["RUNNING", "FAILED"]


def test_tolerated_records_are_reported_skipped_and_committed(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(tolerance_all=True))
    rig.task.give([record(1, "a"), record(2, "bad"), record(3, "b")])
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.producer.values() == ["a", "b"]
    assert rig.committed() == {"f": 3}
    assert [failed.origin for failed in rig.reports.failed] == [record(2, "bad")]


def test_a_retriable_record_is_tried_again_while_there_is_time(rigs: list[Rig]) -> None:
    rig = Rig(retry_timeout_ms=-1)
    rig.pipeline.retriable_failures = 1
    started(rigs, rig)
    rig.task.give([record(1, "a"), record(2, "later"), record(3, "b")])
    rig.producer.wait_sent(1)
    assert rig.producer.values() == ["a", "later", "b"]
    assert rig.pipeline.batches == [["a", "later", "b"], ["later"]]
    assert rig.reports.failed == []


def test_a_refused_record_fails_the_task_and_holds_its_source_partition(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(
        [record(1, "a"), record(1, "x", source="g"), record(2, "refused"), record(3, "b"), record(2, "y", source="g")]
    )
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert trace is not None
    assert "Unrecoverable exception from producer send callback" in trace
    assert "source offset {'position': 2}" in trace
    assert rig.committed() == {"f": 1, "g": 2}
    assert rig.reports.failed == []


def test_nothing_is_sent_behind_a_refused_record(rigs: list[Rig]) -> None:
    rig = Rig(limits=BatchLimits(max_records=1))
    rig.producer.acknowledge = False
    started(rigs, rig)
    rig.task.give([record(1, "refused")])
    rig.producer.wait_sent(1)
    rig.producer.answer()
    rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert rig.producer.values() == ["refused"]
    assert rig.committed() == {}


def test_a_missing_topic_fails_the_task_whatever_is_tolerated(rigs: list[Rig]) -> None:
    rig = Rig(tolerance_all=True)
    rig.producer.unknown_topic = True
    started(rigs, rig)
    rig.task.give([record(1, "refused")])
    trace = rig.wait_state(State.FAILED)
    assert trace is not None
    assert "topic t: it does not exist and the broker does not create it" in trace
    assert "topic.creation.default.partitions" in trace
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (SourceRecord({"file": "f"}, {"position": 2}, "t", "v", timestamp=-5), "the timestamp is negative (-5)"),
        (SourceRecord({"file": "f"}, {"position": 2}, None, "v"), "the topic is null"),  # type: ignore[arg-type]
    ],
)
def test_a_record_that_no_producer_takes_fails_the_task_whatever_is_tolerated(
    rigs: list[Rig], wrong: SourceRecord, text: str
) -> None:
    rig = started(rigs, Rig(tolerance_all=True))
    rig.task.give([record(1, "a"), wrong, record(3, "b")])
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert trace is not None
    assert text in trace
    assert "Task c-0" in trace
    assert "source offset {'position': 2}" in trace
    assert rig.producer.values() == ["a"]
    assert rig.committed() == {"f": 1}


@pytest.mark.parametrize("error", [RetriableException("later"), KafkaRetriableException("later")])
def test_a_retriable_error_of_poll_counts_as_no_records(rigs: list[Rig], error: Exception) -> None:
    rig = started(rigs, Rig())
    rig.task.give(error, None, [], values(1))
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert rig.runner.counts.failures == 1


def test_another_error_of_poll_fails_the_task_after_what_was_polled_is_delivered(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(values(2), ValueError("broken"))
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert trace is not None
    assert "ValueError: broken" in trace
    assert rig.producer.values() == ["v1", "v2"]
    assert rig.committed() == {"f": 2}


def test_poll_must_return_records_or_a_frame(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(iter(values(1)))
    trace = rig.wait_state(State.FAILED)
    assert trace is not None
    assert "poll() of ScriptedTask (task c-0) must return a sequence of SourceRecords or None" in trace


def test_poll_must_not_return_anything_but_records(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give([record(1), "a line"])
    trace = str(rig.wait_state(State.FAILED))
    assert "poll() of ScriptedTask (task c-0) must return SourceRecords, found str among them" in trace


@pytest.mark.parametrize(
    ("malformed", "what"),
    [
        (SourceRecord({"f": 1}, {"p": 2}, 5, "v"), "the topic is 5"),  # type: ignore[arg-type]
        (SourceRecord({"f": 1}, {"p": 2}, "t", "v", partition=2**40), f"the partition is {2**40}"),
        (SourceRecord({"f": 1}, {"p": 2}, "t", "v", timestamp=2**70), f"the timestamp is {2**70}"),
    ],
)
def test_a_malformed_record_that_makes_a_batch_fail_is_named_with_its_place(
    rigs: list[Rig], malformed: SourceRecord, what: str
) -> None:
    rig = started(rigs, Rig())
    rig.pipeline.error = OverflowError("does not fit")
    rig.task.give([record(1), malformed])
    trace = str(rig.wait_state(State.FAILED))
    place = "source partition {'f': 1}, source offset {'p': 2}"
    assert f"Task c-0 returned a record that cannot be sent: {what} ({place})" in trace
    assert "OverflowError: does not fit" in trace


def test_a_source_partition_must_be_a_map(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give([SourceRecord("f", {"p": 1}, "t", "v")])  # type: ignore[arg-type]
    assert "cannot be sent: the source partition is 'f'" in str(rig.wait_state(State.FAILED))


def test_a_failed_start_is_followed_by_stop_and_no_commit(rigs: list[Rig]) -> None:
    class Broken(HookedTask):
        def start(self, props: object) -> None:
            raise ConnectException("no such file")

    task = Broken()
    rig = started(rigs, Rig(task=task))
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert trace is not None
    assert "no such file" in trace
    assert rig.task.calls == ["stop"]
    assert task.told == []
    assert rig.state_names() == ["FAILED"]


def test_a_poll_that_fails_after_its_session_was_lost_makes_the_task_start_again(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.wait_state(State.RUNNING)
    assert str(rig.task.context.spark()) == "session 1"
    rig.task.give(values(2))
    rig.producer.wait_sent(1)
    rig.sessions.lose()
    rig.task.give(ConnectionRefusedError("gone"))
    trace = rig.wait_state(State.RESTARTING)
    assert rig.runner.join(WAIT_S)
    assert "the Spark session that the task had used was lost, then: ConnectionRefusedError: gone" in (trace or "")
    assert rig.state_names() == ["RUNNING", "RESTARTING"]
    assert rig.committed() == {"f": 2}
    assert rig.runner.has_delivered
    assert rig.task.calls == ["start", "stop"]


def test_a_dataframe_that_died_with_its_session_is_not_committed_and_the_task_starts_again(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(values(2))
    rig.producer.wait_sent(1)
    rig.pipeline.error = SparkSessionLostException("the session was lost")
    lazy: Any = lambda session: session  # noqa: E731
    rig.task.give(SourceFrame(lazy, "t", None, {"file": "f"}, {"position": 9}), values(1, 10))
    rig.wait_state(State.RESTARTING)
    assert rig.runner.join(WAIT_S)
    assert rig.producer.values() == ["v1", "v2"]
    assert rig.committed() == {"f": 2}


def test_a_query_that_fails_on_a_new_session_because_of_what_the_task_kept_makes_it_start_again(
    rigs: list[Rig],
) -> None:
    rig = started(rigs, Rig())
    rig.wait_state(State.RUNNING)
    rig.pipeline.hold.clear()
    lazy: Any = lambda session: session  # noqa: E731
    rig.task.give(SourceFrame(lazy, "t", None, {"file": "f"}, {"position": 9}))
    assert rig.pipeline.entered.wait(WAIT_S)
    rig.sessions.replace()
    rig.pipeline.error = ConnectionRefusedError("gone")
    rig.pipeline.hold.set()
    rig.wait_state(State.RESTARTING)
    assert rig.committed() == {}


def test_an_error_on_a_healthy_session_fails_the_task(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.wait_state(State.RUNNING)
    rig.task.context.spark()
    rig.task.give(ValueError("no such column"))
    trace = rig.wait_state(State.FAILED)
    assert (trace or "").startswith("ValueError: no such column")


def test_a_task_that_waits_for_a_session_in_poll_can_be_stopped(rigs: list[Rig]) -> None:
    class Asking(ScriptedTask):
        def poll(self) -> None:
            self.context.spark()

    rig = Rig(task=Asking())
    rig.sessions.lose()
    started(rigs, rig)
    await_true(lambda: rig.sessions.asked > 0)
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]


def test_a_pipeline_that_cannot_run_fails_the_task(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.pipeline.error = ConnectException("no Spark session")
    started(rigs, rig)
    rig.task.give(values(1))
    assert "no Spark session" in str(rig.wait_state(State.FAILED))
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {}


def test_an_error_after_stop_was_asked_does_not_make_the_task_failed(rigs: list[Rig]) -> None:
    class Late(ScriptedTask):
        def poll(self) -> Sequence[SourceRecord] | None:
            assert self.context.stopping.wait(WAIT_S)
            raise ValueError("too late")

    rig = started(rigs, Rig(task=Late()))
    rig.wait_state(State.RUNNING)
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]


def test_a_paused_task_is_not_initialized_before_it_is_resumed(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(paused=True))
    rig.wait_state(State.PAUSED)
    assert rig.task.calls == []
    rig.runner.resume()
    rig.wait_state(State.RUNNING)
    assert rig.task.calls == ["start"]


def test_a_task_stopped_while_it_was_never_resumed_ends_without_stop(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(paused=True))
    rig.wait_state(State.PAUSED)
    rig.stop()
    assert rig.task.calls == []
    assert rig.state_names() == ["PAUSED", "UNASSIGNED"]


def test_pause_and_resume(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.wait_state(State.RUNNING)
    rig.runner.pause()
    rig.wait_state(State.PAUSED)
    rig.task.give(values(1))
    assert rig.producer.sent == []
    rig.runner.resume()
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.state_names() == ["RUNNING", "PAUSED", "RUNNING", "UNASSIGNED"]


def test_wakeup_is_called_once_on_another_thread_when_stop_is_asked(rigs: list[Rig]) -> None:
    class Sleeper(ScriptedTask):
        def __init__(self) -> None:
            super().__init__()
            self.woken = threading.Event()
            self.threads: list[str] = []

        def poll(self) -> Sequence[SourceRecord] | None:
            self.polled.release()
            assert self.woken.wait(WAIT_S)
            return values(1)

        def wakeup(self) -> None:
            self.threads.append(threading.current_thread().name)
            self.woken.set()

    task = Sleeper()
    rig = started(rigs, Rig(task=task))
    assert task.polled.acquire(timeout=WAIT_S)
    rig.stop()
    rig.runner.stop()
    assert task.threads == ["wakeup-c-0"]
    assert rig.committed() == {"f": 1}


class Blocking(ScriptedTask):
    """Waits in `poll` for its stream alone, as the documentation's first source: only `stop` ends that."""

    def __init__(self, ending: object = None) -> None:
        super().__init__()
        self.ending = ending
        self.stream_closed = threading.Event()
        self.threads: list[str] = []
        self.stop_may_return = threading.Event()
        self.stop_may_return.set()

    def poll(self) -> Sequence[SourceRecord] | None:
        self.polled.release()
        assert self.stream_closed.wait(WAIT_S)
        if isinstance(self.ending, Exception):
            raise self.ending
        return self.ending  # type: ignore[return-value]

    def stop(self) -> None:
        super().stop()
        self.threads.append(threading.current_thread().name)
        self.stream_closed.set()
        assert self.stop_may_return.wait(WAIT_S)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_task, "POLL_GRACE_S", 0.05)


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize(
    "ending",
    [None, values(2), RetriableException("closed"), ValueError("I/O operation on closed file"), OSError("closed")],
)
def test_a_poll_that_does_not_return_is_ended_by_stop_from_another_thread_once(
    rigs: list[Rig], ending: object, caplog: pytest.LogCaptureFixture
) -> None:
    task = Blocking(ending)
    rig = started(rigs, Rig(task=task))
    assert task.polled.acquire(timeout=WAIT_S)
    rig.stop()
    rig.runner.stop()
    rig.runner.cancel()
    assert task.threads == ["wakeup-c-0"]
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert rig.committed() == ({"f": 2} if isinstance(ending, list) else {})
    assert not task.polled.acquire(blocking=False), "it is not polled again"
    assert not [line for line in caplog.records if line.levelname in ("ERROR", "WARNING")]


@pytest.mark.usefixtures("short_grace")
def test_a_blocked_poll_does_not_keep_a_task_from_failing(rigs: list[Rig]) -> None:
    task = Blocking()
    rig = started(rigs, Rig(task=task))
    assert task.polled.acquire(timeout=WAIT_S)
    rig.runner.fail(ConnectException("no Spark session"))
    assert "no Spark session" in str(rig.wait_state(State.FAILED))
    assert rig.runner.join(WAIT_S)
    assert task.threads == ["wakeup-c-0"]


@pytest.mark.usefixtures("short_grace")
def test_a_blocked_poll_of_an_abandoned_task_is_ended_too(rigs: list[Rig]) -> None:
    task = Blocking(values(1))
    rig = started(rigs, Rig(task=task))
    assert task.polled.acquire(timeout=WAIT_S)
    rig.runner.cancel()
    assert rig.runner.join(WAIT_S)
    assert task.threads == ["wakeup-c-0"]
    assert rig.committed() == {}
    assert rig.state_names() == ["RUNNING"]


@pytest.mark.usefixtures("short_grace")
def test_a_task_has_not_ended_while_its_stop_runs_on_the_other_thread(rigs: list[Rig]) -> None:
    task = Blocking()
    task.stop_may_return.clear()
    rig = started(rigs, Rig(task=task))
    assert task.polled.acquire(timeout=WAIT_S)
    rig.runner.stop()
    assert task.stopped.wait(WAIT_S)
    assert not rig.runner.join(0.1)
    task.stop_may_return.set()
    assert rig.runner.join(WAIT_S)
    assert task.threads == ["wakeup-c-0"]


@pytest.mark.usefixtures("short_grace")
def test_start_and_a_rest_are_not_taken_for_a_poll(rigs: list[Rig]) -> None:
    class Starting(Blocking):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.go_on = threading.Event(), threading.Event()

        def start(self, props: object) -> None:
            self.begun.set()
            assert self.go_on.wait(WAIT_S)

    starting = Starting()
    rig = started(rigs, Rig(task=starting))
    assert starting.begun.wait(WAIT_S)
    rig.runner.stop()
    assert not starting.stopped.wait(0.2)
    starting.go_on.set()
    assert rig.runner.join(WAIT_S)
    resting = started(rigs, Rig())
    resting.wait_state(State.RUNNING)
    resting.runner.pause()
    resting.wait_state(State.PAUSED)
    resting.stop()
    assert starting.threads == ["task-c-0"]
    assert resting.task.calls == ["start", "stop"]


def test_a_stop_that_exits_keeps_the_task_from_nothing_at_its_end(rigs: list[Rig]) -> None:
    class Exiting(ScriptedTask):
        def stop(self) -> None:
            raise SystemExit(1)

    rig = started(rigs, Rig(task=Exiting()))
    rig.task.give(values(1))
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert rig.committed() == {"f": 1}
    assert rig.closed == ["transforms"]


@pytest.mark.parametrize("end", ["stop", "failure", "cancel"])
def test_metrics_that_the_task_adds_go_with_it(rigs: list[Rig], end: str) -> None:
    registry = Metrics()
    rig = started(rigs, Rig(metrics=InstanceMetrics(registry, {"connector": "c", "task": "0"})))
    own = rig.task.context.plugin_metrics()
    own.add_metric(own.metric_name("rows"), lambda: 1)
    assert registry.total("kafka_connect_plugins_rows", task="0") == 1
    if end == "failure":
        rig.runner.fail(ConnectException("broken"))
    elif end == "stop":
        rig.runner.stop()
    else:
        rig.runner.cancel()
        assert list(registry.read()) == []
    assert rig.runner.join(WAIT_S)
    assert list(registry.read()) == []
    with pytest.raises(IllegalWorkerStateException, match="closed: it has ended"):
        own.metric_name("rows")


def test_a_cancelled_task_commits_and_reports_nothing_more(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.producer.acknowledge = False
    started(rigs, rig)
    rig.task.give(values(1))
    rig.producer.wait_sent(1)
    reader = rig.task.context.offset_storage_reader()
    rig.runner.cancel()
    rig.producer.answer()
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {}
    assert rig.store.attempts == 0
    assert rig.state_names() == ["RUNNING"]
    assert rig.task.calls == ["start", "stop"]
    with pytest.raises(ConnectException, match="closed"):
        reader.offset({"file": "f"})


class FramesTask(ScriptedTask, FrameSourceTask):  # type: ignore[misc]
    """Returns frames and bulk frames."""


class Engine(BulkEngine):
    """Notes the committed offsets that each run sees, and those that its markers are removed at."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.told: list[tuple[str, object]] = []
        self.cancelled = 0

    def run(self, frame: BulkFrame, *_: object) -> Totals | None:
        self.told.append((frame.run, self._rig.committed().get("f")))
        if self.cancelled:
            self.cancelled -= 1
            return None
        return Totals(1, 10, 10)

    def forget_ended(self, offsets: object) -> None:
        self.told.append(("forgotten", self._rig.committed().get("f")))

    def close(self) -> None: ...


def bulk_rig(rigs: list[Rig], **own: Any) -> tuple[Rig, Engine]:
    rig = Rig(task=FramesTask(), **own)
    engine = Engine(rig)
    rig.source = replace(rig.source, bulk=engine)
    rig.runner = SourceTaskRunner(rig.spec, rig.services, rig.source)
    return started(rigs, rig), engine


def frame_at(position: int) -> SourceFrame:
    return SourceFrame(pa.table({"value": [f"v{position}"]}), "t", None, {"file": "f"}, {"position": position})


def run_to(position: int) -> BulkFrame:
    lazy: Any = lambda session: session  # noqa: E731
    return BulkFrame(
        data=lazy, topic="t", source_partition={"file": "f"}, source_offset={"position": position}, run=f"to-{position}"
    )


@pytest.mark.parametrize("boundary", [None, *TransactionBoundary])
def test_a_bulk_run_follows_the_committed_offset_of_all_that_was_polled_before(
    rigs: list[Rig], boundary: TransactionBoundary | None
) -> None:
    rig, engine = bulk_rig(rigs, boundary=boundary)
    rig.task.give(run_to(1), frame_at(2), frame_at(3), run_to(4), run_to(5))
    await_true(lambda: len(engine.told) == 6, "three runs")
    # A task that is killed at any point of a run finds the offset that its markers name.
    assert engine.told == [
        ("to-1", None),
        ("forgotten", 1),
        ("to-4", 3),
        ("forgotten", 4),
        ("to-5", 4),
        ("forgotten", 5),
    ]


def test_a_bulk_run_waits_for_the_answer_of_kafka_and_a_failed_commit(rigs: list[Rig]) -> None:
    rig, engine = bulk_rig(rigs)
    rig.producer.acknowledge = False
    rig.task.give(frame_at(2), run_to(4))
    rig.producer.wait_sent(1)
    rig.store.fail = OffsetStoreException("the disk is full")
    rig.producer.answer()
    assert rig.store.wait_for(lambda: rig.store.attempts >= 2)
    assert engine.told == []
    rig.store.fail = None
    await_true(lambda: len(engine.told) == 2, "the run")
    assert engine.told == [("to-4", 2), ("forgotten", 4)]


def test_a_task_that_ends_while_a_bulk_run_waits_for_commits_ends_at_once(rigs: list[Rig]) -> None:
    rig, engine = bulk_rig(rigs, timeout_s=0.05)
    rig.producer.acknowledge = False
    rig.task.give(frame_at(2), run_to(4))
    rig.producer.wait_sent(1)
    rig.stop()
    assert engine.told == [("forgotten", None)]
    assert rig.committed() == {}


def test_frames_are_committed_andnoted(rigs: list[Rig]) -> None:
    task = HookedTask()
    rig = started(rigs, Rig(task=task))
    task.give(
        SourceFrame(pa.table({"value": ["a", "drop", "b"]}), "t", None, {"file": "f"}, {"position": 30}),
        SourceFrame(pa.table({"value": ["c"]}), "t", None, {"file": "f"}, {"position": 40}),
    )
    rig.producer.wait_sent(2)
    rig.stop()
    assert rig.producer.values() == ["a", "b", "c"]
    assert rig.committed() == {"f": 40}
    assert [entry for entry in task.told if entry[0] != "commit"] == [("frame", 2), ("frame", 1)]


def test_a_frame_is_committed_up_to_its_failed_row(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    table = pa.table({"value": ["a", "b", "bad", "c"]})
    rig.task.give(
        SourceFrame(table, "t", None, {"file": "f"}, {"position": 4}, offset_after=lambda row: {"position": row + 1})
    )
    trace = rig.wait_state(State.FAILED)
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {"f": 2}
    place = "row 2 of a frame (topic t, source partition {'file': 'f'}, source offset {'position': 3})"
    assert place in str(trace)
    assert [failed.origin for failed in rig.reports.failed] == [place]


def test_a_frame_that_cannot_tell_its_positions_keeps_a_task_from_nothing_at_its_end(rigs: list[Rig]) -> None:
    def no_position(row: int) -> dict[str, object]:
        raise KeyError(row)

    rig = started(rigs, Rig())
    rig.task.give(values(3))
    rig.producer.wait_sent(1)
    table = pa.table({"value": ["a", "b", "bad", "c"]})
    rig.task.give(SourceFrame(table, "t", None, {"file": "g"}, {"position": 4}, offset_after=no_position))

    trace = rig.wait_state(State.FAILED)

    assert "row 2 of a frame (topic t, source partition {'file': 'g'}, row 2 of the frame that ends at" in str(trace)
    assert rig.runner.join(WAIT_S)
    assert rig.committed() == {"f": 3}
    assert rig.task.calls[-1] == "stop"
    assert rig.producer.closed


def test_the_named_points_of_the_data_path_arenoted(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(values(1))
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.probes == ["after-send-before-ack", "after-ack-before-offsets"]


class Admin:
    def __init__(self, existing: set[str], error: Exception | None = None) -> None:
        self.existing = existing
        self.error = error
        self.asked: list[str] = []
        self.created: list[NewTopic] = []

    def topic_exists(self, topic: str) -> bool:
        self.asked.append(topic)
        return topic in self.existing

    def create_topic(self, topic: NewTopic) -> None:
        if self.error is not None:
            raise self.error
        self.created.append(topic)


def creation(admin: Admin) -> TopicCreator:
    return TopicCreator("c-0", lambda topic: NewTopic(topic, 3, 1), admin)


def test_missing_topics_are_created_once_before_their_first_record(rigs: list[Rig]) -> None:
    admin = Admin({"there"})
    rig = started(rigs, Rig(topics=creation(admin), limits=BatchLimits(max_records=2)))
    rig.task.give([record(1, topic="there"), record(2, topic="new"), record(3, topic="new"), record(4, topic="there")])
    rig.producer.wait_sent(2)
    assert admin.created == [NewTopic("new", 3, 1)]
    assert sorted(admin.asked) == ["new", "there"]


def test_a_topic_that_somebody_else_created_meanwhile_is_fine(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(topics=creation(Admin(set(), AlreadyExistsException("t")))))
    rig.task.give(values(1))
    rig.producer.wait_sent(1)


def test_a_topic_that_cannot_be_created_fails_the_task(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig(topics=creation(Admin(set(), ConnectException("not authorized")))))
    rig.task.give(values(1))
    trace = rig.wait_state(State.FAILED)
    assert trace is not None
    assert "Task c-0 cannot write to topic t" in trace
    assert "not authorized" in trace
    assert rig.runner.join(WAIT_S)
    assert rig.producer.sent == []


def test_a_stop_before_the_start_ends_the_task_when_it_is_started(rigs: list[Rig]) -> None:
    rig = Rig()
    rig.runner.stop()
    started(rigs, rig)
    assert rig.runner.join(WAIT_S)
    assert rig.state_names() == ["UNASSIGNED"]
    assert rig.task.calls == []
    assert rig.closed == ["transforms"]


@pytest.mark.parametrize("name", ["a topic", "a/b", "..", "x" * 250])
def test_a_topic_whose_name_is_none_is_not_blamed_on_rights(name: str) -> None:
    creator = TopicCreator("c-0", lambda topic: NewTopic(topic, 1, 1), Admin(set()))
    with pytest.raises(ConnectException, match=r"is no name of a topic: it has 1 to 249 letters") as caught:
        creator.ensure([name])
    assert "rights" not in str(caught.value)
