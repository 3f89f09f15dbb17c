"""Plans of backfills out of the settings of connectors: what sources are asked, and what is refused with what to do.

Backfills of sources, with stand-ins for Spark and Kafka: what is read, how often, how they end, what stays alone.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from testkit.doubles.source_doubles import FakePipeline, FakeProducer
from testkit.doubles.spark_doubles import FakeSessions
from testkit.waiting import await_true

from penstock.api import (
    BackfillPart,
    BackfillSpan,
    Chunk,
    FrameSourceTask,
    SourceConnector,
    SourceFrame,
    SourceRecord,
    SourceTask,
    Task,
)
from penstock.api.bulk import BulkFrame
from penstock.errors import (
    BadRequestException,
    ConflictException,
    ConnectException,
    NotReadyException,
    RetriableException,
)
from penstock.kafka.admin import TopicCreator
from penstock.model import ConnectorType, State
from penstock.model.payloads import (
    BackfillPlan,
    BackfillQuestion,
    BackfillRange,
    BackfillRequest,
    BackfillShare,
    BackfillState,
    BackfillView,
)
from penstock.plugins import Plugins
from penstock.settings.worker import StandaloneSettings
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader, OffsetWriter
from penstock.worker import backfill_tasks as reading
from penstock.worker import backfills as runs
from penstock.worker.backfill_tasks import BackfillPlanner, PartsTask, SourceBackfill, parts_task, plan_parts
from penstock.worker.backfills import Backfills, backfill_task
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.source import offset_commit
from penstock.worker.source.offset_commit import CommitHooks, OffsetCommitter
from penstock.worker.source.task import SourceServices, SourceTaskRunner
from penstock.worker.task.engine import TaskServices, TaskSession, TaskSpec
from penstock.worker.task.slot import TASK_CLASS
from penstock.worker.task.waiting import RetryBackoff


class AskedTask(SourceTask):
    """Plans what its settings say."""

    spans: list[BackfillSpan] = []
    error: Exception | None = None

    def start(self, props: Mapping[str, str]) -> None:
        self.rows = props["rows"]

    def poll(self) -> Sequence[SourceRecord] | None:
        return None

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        type(self).spans.append(span)
        error = type(self).error
        if error is not None:
            raise error
        if not self.rows:
            return []
        return [BackfillPart({"rows": self.rows}, {}, None if self.rows == "?" else int(self.rows))]


class UnmadeTask(SourceTask):
    def __init__(self) -> None:
        raise AssertionError("it is made")

    def poll(self) -> Sequence[SourceRecord] | None:
        return None


class AskedSource(SourceConnector):
    def task_class(self) -> type[Task]:
        return AskedTask


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    AskedTask.spans, AskedTask.error = [], None


def plan(request: BackfillRequest, *rows: str, cls: type = AskedTask, **config: str) -> BackfillPlan:
    settings = StandaloneSettings.parse(
        {
            "bootstrap.servers": "localhost:9092",
            "offset.storage.file.filename": "/nowhere",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }
    )
    name = f"{AskedSource.__module__}.AskedSource"
    given = {"name": "a", "connector.class": name, **{key.replace("_", "."): value for key, value in config.items()}}

    def read(one: str) -> Mapping[str, str]:
        return {**given, TASK_CLASS: f"{cls.__module__}.{cls.__qualname__}", "rows": one}

    tasks = [lambda one=one: read(one) for one in rows]
    question = BackfillQuestion("a", ConnectorType.SOURCE, given, tasks, request)
    return BackfillPlanner(settings, Plugins(), FakeSessions())(question)


def test_the_parts_of_all_tasks_are_one_plan_with_the_settings_of_each() -> None:
    found = plan(BackfillRequest(span=("x", 7), of="t"), "3", "", "4")
    assert (found.reads, found.total) == ([{"partition": {"rows": one}, "rows": int(one)} for one in "34"], 7)
    assert found.writes == "Kafka, to the topics of connector a (AskedSource), through its transforms and converters"
    assert [one.read_config()["rows"] for one in found.shares] == ["3", "4"]
    assert AskedTask.spans == [BackfillSpan(first="x", end=7, of="t")] * 3
    assert plan(BackfillRequest(span=("x", 7)), "3", "?").total is None
    assert plan(BackfillRequest(span=("x", 7)), "").reads == []


def test_a_range_of_times_without_an_end_goes_up_to_now() -> None:
    before = time.time_ns() // 1_000_000
    plan(BackfillRequest(start_ms=5), "1")
    (span,) = AskedTask.spans
    assert (span.start_ms, before <= (span.end_ms or 0) <= time.time_ns() // 1_000_000) == (5, True)
    with pytest.raises(BadRequestException, match="is in the future"):
        plan(BackfillRequest(start_ms=2**50), "1")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (NotImplementedError("x"), BadRequestException, "its task AskedTask has no backfills: stop it, and set its"),
        (BadRequestException("give two numbers"), BadRequestException, "^give two numbers$"),
        (RetriableException("the database is away"), NotReadyException, "cannot be asked .* now: the database is away"),
        (
            ConnectException("no such table"),
            ConflictException,
            "cannot plan a backfill: ConnectException: no such table",
        ),
        (KeyError("x"), ConflictException, "cannot plan a backfill: KeyError: 'x'"),
    ],
)
def test_an_answer_says_what_to_do(error: Exception, kind: type[Exception], text: str) -> None:
    AskedTask.error = error
    with pytest.raises(kind, match=text):
        plan(BackfillRequest(span=(1, 2)), "1")


def test_sources_that_have_none_are_refused_before_one_of_their_tasks_is_made() -> None:
    with pytest.raises(
        BadRequestException, match=r"its task UnmadeTask has no backfills: stop it, and set its offsets back"
    ):
        plan(BackfillRequest(span=(1, 2)), "1", cls=UnmadeTask)
    with pytest.raises(BadRequestException, match=r"processes of their own \(task.isolation\)"):
        plan(BackfillRequest(span=(1, 2)), "1", task_isolation="process")
    ranges: Any = [BackfillRange("t", 0, 1, 2)]
    with pytest.raises(BadRequestException, match="is a source: the offsets of its backfill are an object with from"):
        plan(BackfillRequest(ranges=ranges), "1")
    assert AskedTask.spans == []


WAIT_S = 20.0


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_commit, "_SOON_S", 0.005)
    monkeypatch.setattr(runs, "_LOOK_S", 0.005)
    monkeypatch.setattr(reading, "_IDLE_S", 0.005)


class Numbers(FrameSourceTask):
    """Numbers of a list; a part is a range of them, read two at a time. Notes what is asked of its instances."""

    calls: list[str]
    failures: list[Exception]

    def start(self, props: Mapping[str, str]) -> None:
        self.name = props["name"]
        self.calls.append(f"start {self.name}")
        assert self.context.offset_storage_reader().offset({"list": self.name}) is None

    def plan_backfill(self, span: BackfillSpan) -> Sequence[BackfillPart]:
        first, end = span.numbers("give two numbers")
        return [BackfillPart({"list": self.name}, {"from": first, "to": end}, end - first)]

    def backfill(self, part: BackfillPart, offset: Mapping[str, object] | None) -> Iterator[Chunk]:
        first, end = int(str(part.reads["from"])), int(str(part.reads["to"]))
        begin = first if offset is None else int(str(offset["next"]))
        self.calls.append(f"read {self.name} from {begin}")
        self.context.advance(part.partition, {"next": 1_000_000})
        try:
            for number in range(begin, end, 2):
                if number == 4 and self.failures:
                    raise self.failures.pop(0)
                values = [f"{self.name}{one}" for one in range(number, min(number + 2, end))]
                yield Chunk(values, "t", offset={"next": min(number + 2, end)})
        finally:
            self.calls.append(f"close {self.name}")
        yield Chunk(None, offset={"next": end})

    def poll(self) -> SourceFrame | None:
        raise AssertionError("a backfill is not polled for")

    def commit(self) -> None:
        raise AssertionError("a backfill commits nothing of the connector's")

    def commit_batch(self, frame: SourceFrame, acknowledged: int) -> None:
        raise AssertionError("its hooks are told nothing of a backfill")

    def stop(self) -> None:
        self.calls.append(f"stop {getattr(self, 'name', '?')}")


def share(name: str, *ranges: tuple[int, int]) -> BackfillShare:
    parts = [BackfillPart({"list": name}, {"from": first, "to": end}, end - first) for first, end in ranges]
    return BackfillShare(lambda: {"name": name}, parts)


class Lab:
    """The backfills of a worker, and one that it runs."""

    def __init__(self, shares: Sequence[BackfillShare], kind: type[SourceTask] = Numbers, *failures: Exception) -> None:
        self.calls: list[str] = []
        made = type(kind.__name__, (kind,), {"calls": self.calls, "failures": list(failures)})
        self.shares, self.kind = shares, made
        self.producer = FakeProducer()
        self.store = MemoryOffsetStore()
        self.backfills = Backfills("here:8083", lambda task: None)
        self.task: PartsTask | None = None

    def make(self, report: Callable[[State, str | None], None]) -> SourceBackfill:
        task = self.task = parts_task(self.shares, lambda config: self.kind(), self.kind)
        handler = ErrorHandler(ErrorPolicy(), [], counts=ErrorCounts(), clock=lambda: 0, random=random.Random(1).random)
        committer = OffsetCommitter(
            CommitHooks(task),
            OffsetWriter(self.store, "c"),
            interval_s=60.0,
            timeout_s=5.0,
            clock=time.monotonic,
            probe=lambda point: None,
        )
        backoff = RetryBackoff(0.001, "source.retry.delay.max.ms")
        runner = SourceTaskRunner(
            TaskSpec(backfill_task("c"), task, {}, dict, offset_flush_timeout_s=1.0, backoff=backoff),
            TaskServices(report, TaskSession("c", FakeSessions()), handler),
            SourceServices(
                FakePipeline(),
                cast("Any", self.producer),
                TopicCreator("c", None, None),
                committer,
                OffsetReader(self.store, "c"),
            ),
        )
        return SourceBackfill(runner, task, self.shares, self.store)

    def start(self) -> Lab:
        self.backfills.start("c", [], None, self.make)
        return self

    def view(self) -> BackfillView:
        view = self.backfills.view("c")
        assert view is not None
        return view

    def ended(self) -> BackfillView:
        await_true(lambda: self.view().state is not BackfillState.RUNNING, "it does not end")
        return self.view()


def test_all_parts_of_all_tasks_are_read_once_in_order_each_by_a_task_with_its_settings() -> None:
    lab = Lab([share("a", (3, 8), (10, 11)), share("b", (0, 3))]).start()
    view = lab.ended()
    assert (view.state, view.trace, view.records) == (BackfillState.COMPLETED, None, 9)
    assert lab.producer.values() == ["a3", "a4", "a5", "a6", "a7", "a10", "b0", "b1", "b2"]
    assert view.positions == [
        {"partition": {"list": "a"}, "offset": {"next": 11}},
        {"partition": {"list": "b"}, "offset": {"next": 3}},
    ]
    assert [one for one in lab.calls if not one.startswith("read")] == [
        *("start a", "close a", "close a", "stop a", "start b", "close b", "stop b")
    ]


def test_a_call_that_is_asked_for_again_goes_on_behind_what_was_read() -> None:
    again = [RetriableException("the database is away")] * 3
    lab = Lab([share("a", (0, 9))], Numbers, *again).start()
    view = lab.ended()
    assert (view.state, view.records) == (BackfillState.COMPLETED, 9)
    assert lab.producer.values() == [f"a{one}" for one in range(9)]
    assert [one for one in lab.calls if one.startswith("read")] == ["read a from 0", *["read a from 4"] * 3]


def test_what_waits_for_another_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab([share("a", (0, 9))], Numbers, RetriableException("the database is away", retry_after_s=60.0)).start()
    await_true(lambda: lab.view().waiting_for)
    assert "the database is away" in str(lab.view().waiting_for)
    lab.backfills.cancel("c")
    assert lab.ended().state is BackfillState.CANCELLED


def test_an_error_ends_it_and_says_how_far_it_has_come(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab([share("a", (0, 9))], Numbers, ConnectException("the table is gone")).start()
    view = lab.ended()
    assert (view.state, "the table is gone" in str(view.trace)) == (BackfillState.FAILED, True)
    assert view.positions == [{"partition": {"list": "a"}, "offset": {"next": 4}}]
    assert lab.producer.values() == ["a0", "a1", "a2", "a3"]
    assert 'delivered up to [{"partition": {"list": "a"}, "offset": {"next": 4}}]' in caplog.text
    assert lab.calls[-1] == "stop a"


def test_it_has_not_ended_before_kafka_has_all_of_it() -> None:
    lab = Lab([share("a", (0, 4))])
    lab.producer.acknowledge = False
    lab.start()
    lab.producer.wait_sent(1)
    time.sleep(0.05)
    assert lab.view().state is BackfillState.RUNNING
    lab.producer.acknowledge = True
    while lab.producer.open:
        lab.producer.answer()
    assert lab.ended().state is BackfillState.COMPLETED


def test_one_that_is_cancelled_keeps_what_was_delivered() -> None:
    lab = Lab([share("a", (0, 4))])
    gate = threading.Event()

    class Slow(Numbers):
        def backfill(self, part: BackfillPart, offset: Mapping[str, object] | None) -> Iterator[Chunk]:
            for chunk in super().backfill(part, offset):
                yield chunk
                gate.set()
                self.context.stopping.wait(WAIT_S)
                return

    lab = Lab([share("a", (0, 4))], Slow).start()
    assert gate.wait(WAIT_S)
    lab.backfills.cancel("c")
    view = lab.ended()
    assert (view.state, lab.producer.values()) == (BackfillState.CANCELLED, ["a0", "a1"])
    assert view.positions == [{"partition": {"list": "a"}, "offset": {"next": 2}}]


class Records(SourceTask):
    """Gives records, not frames, and none at times."""

    calls: list[str]
    failures: list[Exception]

    def backfill(self, part: BackfillPart, offset: Mapping[str, object] | None) -> Iterator[Sequence[SourceRecord]]:
        yield []
        yield [SourceRecord(part.partition, {"next": one + 1}, "t", f"r{one}") for one in range(3)]
        yield [SourceRecord({"list": "other"}, {"next": 1}, "t", "r3")]

    def poll(self) -> Sequence[SourceRecord] | None:
        raise AssertionError("a backfill is not polled for")

    def commit_record(self, record: SourceRecord) -> None:
        raise AssertionError("its hooks are told nothing of a backfill")


def test_records_are_delivered_as_frames_are() -> None:
    lab = Lab([share("a", (0, 1))], Records).start()
    view = lab.ended()
    assert (view.state, view.trace, lab.producer.values()) == (BackfillState.COMPLETED, None, ["r0", "r1", "r2", "r3"])
    assert view.positions == [{"partition": {"list": "a"}, "offset": {"next": 3}}]


@pytest.mark.parametrize("place", ["the last", "not the last"])
def test_an_offset_that_cannot_be_stored_fails_it_and_does_not_keep_it_for_ever(place: str) -> None:
    class Wrong(Records):
        def backfill(self, part: BackfillPart, offset: object) -> Iterator[Sequence[SourceRecord]]:
            if place == "the last":
                yield [SourceRecord(part.partition, {"next": {}}, "t", "x")]
            else:
                yield [SourceRecord({"list": "x"}, {"next": {}}, "t", "x"), SourceRecord({}, {"next": 1}, "t", "y")]

    view = Lab([share("a", (0, 1))], Wrong).start().ended()
    assert (view.state, "stored" in str(view.trace) or "primitive" in str(view.trace)) == (BackfillState.FAILED, True)


def test_what_is_no_rows_is_named() -> None:
    class Wrong(Records):
        def backfill(self, part: BackfillPart, offset: object) -> Iterator[Any]:
            yield 7

    view = Lab([share("a", (0, 1))], Wrong).start().ended()
    assert view.state is BackfillState.FAILED
    assert "backfill() of Wrong must yield Chunks, SourceFrames, BulkFrames or lists of SourceRecords" in str(
        view.trace
    )


def test_a_start_that_fails_ends_it() -> None:
    class Wrong(Records):
        def start(self, props: Mapping[str, str]) -> None:
            raise ConnectException("no such host")

    view = Lab([share("a", (0, 1))], Wrong).start().ended()
    assert (view.state, "no such host" in str(view.trace)) == (BackfillState.FAILED, True)


# ------------------------------------------------------------------------------------------------------------- plans
def spark() -> Any:
    return "the session"


def test_a_task_plans_between_its_start_and_its_stop() -> None:
    calls: list[str] = []
    kind = type("Numbers", (Numbers,), {"calls": calls, "failures": []})
    parts = plan_parts(kind(), {"name": "a"}, BackfillSpan(first="3", end=8), spark)
    assert [one.to_json() for one in parts] == [{"partition": {"list": "a"}, "from": 3, "to": 8, "rows": 5}]
    assert calls == ["start a", "stop a"]


def test_a_plan_that_is_none_is_named() -> None:
    class Wrong(Records):
        def plan_backfill(self, span: BackfillSpan) -> Any:
            return [self.context.spark()]

    with pytest.raises(ConnectException, match=r"plan_backfill\(\) of Wrong must return a sequence of BackfillParts"):
        plan_parts(Wrong(), {}, BackfillSpan(), spark)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (BackfillSpan(start_ms=1, end_ms=2), "The range is one of times: give two numbers"),
        (BackfillSpan(first="a", end="b"), "of which one is no number: give two numbers"),
        (BackfillSpan(first=7, end="7"), "The range 7 to 7 is empty"),
    ],
)
def test_a_range_that_is_none_says_what_to_give(span: BackfillSpan, text: str) -> None:
    with pytest.raises(BadRequestException, match=text):
        span.numbers("give two numbers")
    with pytest.raises(BadRequestException, match="positions"):
        BackfillSpan(first=1, end=2).times("give times")


def test_a_run_of_executors_is_returned_once_and_the_next_part_follows_it() -> None:
    class Bulk(FrameSourceTask):
        def start(self, props: Mapping[str, str]) -> None: ...

        def backfill(self, part: BackfillPart, offset: Mapping[str, object] | None) -> Iterator[BulkFrame]:
            rows: Any = lambda session: None  # noqa: E731
            yield BulkFrame(
                data=rows, topic="t", source_partition=part.partition, source_offset={"done": True}, run="a"
            )

        def poll(self) -> SourceFrame | None:
            return None

    class Context:
        stopping = threading.Event()
        moved: list[object] = []

        def advance(self, partition: object, offset: object) -> None:
            self.moved.append(partition)

    context: Any = Context()
    task = parts_task([share("a", (0, 1), (1, 2))], lambda config: Bulk(), Bulk)
    assert isinstance(task, FrameSourceTask)
    task.initialize(context)
    assert [type(task.poll()), type(task.poll()), task.poll()] == [BulkFrame, BulkFrame, None]
    assert (task.is_read, context.moved) == (True, [{"backfill": "end"}])
