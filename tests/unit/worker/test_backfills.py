"""Backfills of sinks over a topic in memory: which messages, how they end, and what they leave alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest
from testkit.doubles.sink_doubles import FakePipeline, RecordingTask
from testkit.doubles.spark_doubles import FakeSessions
from testkit.waiting import await_true

from penstock.api import SinkTask, TopicPartition
from penstock.clients.reader import Fetched
from penstock.errors import AlreadyExistsException, BadRequestException, NotFoundException
from penstock.kafka.consumer.offsets import Subscription
from penstock.model import ConnectorTaskId, State
from penstock.model.payloads import BackfillRange, BackfillRequest, BackfillState, BackfillView
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, WIRE_HEADERS
from penstock.worker.backfill_tasks import RangeConsumer, SinkBackfill, sink_ranges
from penstock.worker.backfills import Backfills, backfill_task
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.sink.task import SinkServices, SinkTaskRunner
from penstock.worker.task.engine import TaskServices, TaskSession, TaskSpec

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 20.0


class Topics:
    """Messages by partition and offset, and a client that gives some at once."""

    def __init__(self, messages: Mapping[TopicPartition, Mapping[int, str]]) -> None:
        self.messages = messages
        self.positions: dict[TopicPartition, int] = {}
        self.closed = False
        self.gate = threading.Event()
        self.gate.set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = dict(positions)

    def fetch(self, timeout_s: float) -> list[Fetched]:
        if not self.gate.is_set():
            time.sleep(0.005)
            return []
        found = []
        for place, position in self.positions.items():
            offsets = [one for one in sorted(self.messages[place]) if one >= position][:3]
            if offsets:
                self.positions[place] = offsets[-1] + 1
                found.append(Fetched(place, _table(offsets, [self.messages[place][one] for one in offsets])))
        if not found:
            time.sleep(0.002)
        return found

    def at_end(self, place: TopicPartition) -> bool:
        return place in self.positions and all(one < self.positions[place] for one in self.messages[place])

    trouble = None

    def close(self) -> None:
        self.closed = True


def _table(offsets: list[int], values: list[str]) -> pa.Table:
    rows = len(offsets)
    columns = {
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([1_000] * rows, pa.int64()),
        "timestamp_type": pa.array([0] * rows, pa.int8()),
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array([one.encode() for one in values], pa.binary()),
        "headers": pa.nulls(rows, WIRE_HEADERS),
    }
    return pa.table({name: columns[name] for name in CONSUMED_SCHEMA.names if name in columns})


def messages(count: int, prefix: str = "") -> dict[int, str]:
    return {one: f"{prefix}{one}" for one in range(count)}


class Lab:
    """The backfills of a worker, and one task that they run."""

    def __init__(self, topics: Topics, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.topics, self.ranges = topics, ranges
        self.task = RecordingTask()
        self.gone: list[ConnectorTaskId] = []
        self.backfills = Backfills("here:8083", self.gone.append)
        self.policy = ErrorPolicy()

    def make(self, report: Callable[[State, str | None], None]) -> SinkBackfill:
        handler = ErrorHandler(self.policy, [], counts=ErrorCounts(), clock=lambda: 0, random=lambda: 0.5)
        consumer = RangeConsumer(cast("Any", self.topics), self.ranges)
        task: SinkTask = self.task
        runner = SinkTaskRunner(
            TaskSpec(backfill_task("lake"), task, {}, dict, offset_flush_timeout_s=1.0),
            TaskServices(report, TaskSession("lake", FakeSessions()), handler),
            SinkServices(FakePipeline(), consumer, Subscription.of(["t"])),
        )
        return SinkBackfill(runner, consumer)

    def start(self) -> Lab:
        total = sum(end - start for start, end in self.ranges.values())
        view = self.backfills.start("lake", [], total, self.make)
        assert (view.state, view.total, view.worker_id) == (BackfillState.RUNNING, total, "here:8083")
        return self

    def ended(self) -> BackfillView:
        def view() -> BackfillView | None:
            return self.backfills.view("lake")

        await_true(lambda: (now := view()) is not None and now.state is not BackfillState.RUNNING, "it does not end")
        found = view()
        assert found is not None
        assert self.topics.closed
        assert self.gone == [backfill_task("lake")]
        return found


def test_a_range_is_put_once_in_order_and_committed_by_the_task() -> None:
    lab = Lab(Topics({T0: messages(30), T1: messages(30, "b")}), {T0: (5, 14), T1: (0, 4)}).start()
    view = lab.ended()
    assert (view.state, view.records, view.trace) == (BackfillState.COMPLETED, 13, None)
    values = lab.task.values
    assert [one for one in values if not one.startswith("b")] == [str(one) for one in range(5, 14)]
    assert [one for one in values if one.startswith("b")] == ["b0", "b1", "b2", "b3"]
    assert lab.task.diary.of("pre_commit")[-1] == {T0: 14, T1: 4}
    assert view.ended is not None


@pytest.mark.parametrize("there", [[5, 9], [0, 1], [7, 8, 20]])
def test_offsets_that_are_missing_end_it_all_the_same(there: list[int]) -> None:
    lab = Lab(Topics({T0: {one: str(one) for one in there}}), {T0: (5, 14)}).start()
    assert lab.ended().state is BackfillState.COMPLETED
    assert lab.task.values == [str(one) for one in there if 5 <= one < 14]


def test_a_record_that_fails_ends_it_with_the_reason() -> None:
    lab = Lab(Topics({T0: {0: "a", 1: "bad", 2: "c"}}), {T0: (0, 3)}).start()
    view = lab.ended()
    assert view.state is BackfillState.FAILED
    assert "Tolerance exceeded" in str(view.trace)
    assert lab.task.values == ["a"]


def test_tolerated_records_are_left_out() -> None:
    lab = Lab(Topics({T0: {0: "a", 1: "bad", 2: "drop"}}), {T0: (0, 3)})
    lab.policy = ErrorPolicy(tolerance_all=True)
    assert lab.start().ended().state is BackfillState.COMPLETED
    assert lab.task.values == ["a"]


def test_a_task_that_does_not_commit_all_is_no_success() -> None:
    lab = Lab(Topics({T0: messages(3)}), {T0: (0, 3)})
    lab.task.hooks["pre_commit"] = lambda offsets: {}
    view = lab.start().ended()
    assert (view.state, view.trace) == (BackfillState.FAILED, "Not all is committed by the task: t-0")


def test_a_task_that_knows_other_offsets_is_refused_before_it_is_given_anything() -> None:
    lab = Lab(Topics({T0: messages(30)}), {T0: (5, 14)})
    lab.task.hooks["open"] = lambda partitions: lab.task.context.offset(T0, 25)
    view = lab.start().ended()
    assert view.state is BackfillState.FAILED
    assert "keeps offsets in its target, and has asked for other positions (t-0 at 25)" in str(view.trace)
    assert lab.task.values == []


def test_a_put_that_asks_for_it_and_a_rewind_within_the_range_read_again() -> None:
    lab = Lab(Topics({T0: messages(30)}), {T0: (5, 9)})
    left = [1]

    def rewinds(records: Any) -> None:
        if left and records[-1].value == "7":
            left.clear()
            lab.task.context.offset(T0, 6)

    lab.task.hooks["put"] = rewinds
    assert lab.start().ended().state is BackfillState.COMPLETED
    assert lab.task.values[-3:] == ["6", "7", "8"]


def test_one_at_a_time_and_it_can_be_ended() -> None:
    topics = Topics({T0: messages(5)})
    topics.gate.clear()
    lab = Lab(topics, {T0: (0, 5)}).start()
    with pytest.raises(AlreadyExistsException, match=r"Connector lake has a backfill that began at"):
        lab.backfills.start("lake", [], 5, lab.make)
    lab.backfills.cancel("lake")
    assert lab.ended().state is BackfillState.CANCELLED
    with pytest.raises(NotFoundException, match=r"Connector lake has no backfill that is running"):
        lab.backfills.cancel("lake")
    with pytest.raises(NotFoundException):
        lab.backfills.cancel("other")
    assert lab.backfills.view("other") is None


def test_it_ends_with_the_connectors_instance() -> None:
    topics = Topics({T0: messages(5)})
    topics.gate.clear()
    lab = Lab(topics, {T0: (0, 5)}).start()
    lab.backfills.end_all()
    view = lab.ended()
    assert view.state is BackfillState.FAILED
    assert "was stopped, changed, deleted or moved" in str(view.trace)


def test_a_task_that_cannot_be_built_is_a_failure() -> None:
    lab = Lab(Topics({}), {})

    def broken(report: object) -> SinkBackfill:
        raise BadRequestException("no such file")

    lab.backfills.start("lake", [], None, broken)
    lab.topics.closed = True
    view = lab.ended()
    assert view.state is BackfillState.FAILED
    assert "no such file" in str(view.trace)


# ------------------------------------------------------------------------------------------------------- which messages
class Kafka:
    """Each partition has the offsets 10 to 50; a message is as old, in milliseconds, as its offset."""

    def __init__(self, *places: TopicPartition) -> None:
        self._places = places

    def existing_partitions(self, topics: Any) -> set[TopicPartition]:
        return {one for one in self._places if topics is None or one.topic in topics}

    def beginning_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 10)

    def end_offsets(self, places: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 50)

    def offsets_at(self, places: Any, timestamp_ms: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, min(50, max(10, timestamp_ms)))


def kafka(*places: TopicPartition) -> Any:
    return Kafka(*places)


THERE = Subscription.of(["t"])


@pytest.mark.parametrize(
    ("begin", "end", "expected"), [(20, 30, (20, 30)), (0, None, (10, 50)), (45, 9_999, (45, 50)), (60, 70, None)]
)
def test_times_are_offsets_of_all_partitions(begin: int, end: int | None, expected: tuple[int, int] | None) -> None:
    found = sink_ranges(BackfillRequest(begin, end), THERE, kafka(T0, T1, TopicPartition("u", 0)))
    assert found == ([] if expected is None else [BackfillRange("t", number, *expected) for number in (0, 1)])


def test_a_pattern_has_the_topics_that_are_there() -> None:
    found = sink_ranges(BackfillRequest(20, 30), Subscription.matching("u.*"), kafka(T0, TopicPartition("u1", 0)))
    assert found == [BackfillRange("u1", 0, 20, 30)]


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([BackfillRange("t", 7, 10, 20)], "t-7 is no partition of the connector's topics"),
        ([BackfillRange("other", 0, 10, 20)], "other-0 is no partition"),
        ([BackfillRange("t", 0, 5, 20)], "t-0 has the offsets 10 to 50, and 5 to 20 was asked for"),
        ([BackfillRange("t", 0, 10, 51)], "10 to 51 was asked for"),
        ([BackfillRange("t", 0, 20, 20)], "20 to 20 was asked for"),
        ([BackfillRange("t", 0, 10, 20), BackfillRange("t", 0, 30, 40)], "A partition is there twice"),
    ],
)
def test_offsets_that_are_not_there_are_named(ranges: list[BackfillRange], text: str) -> None:
    with pytest.raises(BadRequestException, match=text):
        sink_ranges(BackfillRequest(ranges=ranges), THERE, kafka(T0, T1))


def test_offsets_of_a_source_and_topics_that_are_gone_are_named() -> None:
    with pytest.raises(BadRequestException, match="The offsets of a sink are ranges of topics"):
        sink_ranges(BackfillRequest(span=(1, 2)), THERE, kafka(T0))
    with pytest.raises(NotFoundException, match="None of the connector's topics exists"):
        sink_ranges(BackfillRequest(1, 2), THERE, kafka())
