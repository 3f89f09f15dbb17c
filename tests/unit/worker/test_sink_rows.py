"""A frame sink reports rows, is called by the clock, and is given parts of frames, over doubles of broker and Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from testkit.doubles.sink_doubles import T0, T1, WAIT_S, FakePipeline, FrameTask, RecordingTask, Sink, row
from testkit.waiting import await_true

from penstock.api import Rows, SinkFrame, TopicPartition, isolate
from penstock.errors import ConnectException, DataException, RetriableException, ToleranceExceededException
from penstock.pipeline.batch.batches import SinkBatch
from penstock.worker.errors import ConsumedMessage, ErrorCounts, ErrorHandler, ErrorPolicy, message_as_text
from penstock.worker.sink import loop as sink_loop
from penstock.worker.sink.context import DeliveredMessages, ErrantRecords, WorkerSinkTaskContext

EVERYTHING = ErrorPolicy(tolerance_all=True)


class Routed(FakePipeline):
    """Frames whose rows are of another topic and partition than their messages."""

    def run(self, batch: pa.Table) -> SinkBatch:
        made = super().run(batch)
        return SinkBatch(None, [routed(frame) for frame in made.frames or ()], made.errors, made.count_dropped)


def routed(frame: SinkFrame) -> SinkFrame:
    table = frame.table.set_column(0, "topic", pa.array(["merged"] * frame.num_rows))
    table = table.set_column(1, "partition", pa.array([7] * frame.num_rows, pa.int32()))
    return SinkFrame(table, None, None, origin=frame.origin)


@pytest.fixture
def run() -> Iterator[Callable[..., Sink]]:
    made: list[Sink] = []

    def start(task: Any = None, *, pipeline: FakePipeline | None = None, **more: Any) -> Sink:
        sink = Sink(
            FrameTask() if task is None else task, Routed(frames=True) if pipeline is None else pipeline, **more
        )
        made.append(sink)
        return sink

    yield start
    for sink in made:
        sink.stop()


def values_of(frame: SinkFrame) -> list[str]:
    return [value.decode() for value in frame.table["value"].to_pylist()]


def message(tp: TopicPartition, offset: int, value: bytes) -> ConsumedMessage:
    return ConsumedMessage(tp.topic, tp.partition, offset, 1000 + offset, 0, b"k%d" % offset, value, (("h", b"1"),))


class TestReports:
    def test_dead_letters_of_routed_rows_are_the_messages_as_read(self, run: Callable[..., Sink]) -> None:
        sink = run(policy=EVERYTHING)

        def put(frame: SinkFrame) -> None:
            mask = [value.startswith("x") for value in values_of(frame)]
            assert sink.task.context.report(frame, mask, DataException("refused")).done()

        sink.task.hooks["put"] = put
        sink.start({T0: 0, T1: 0})
        sink.consumer.add(T0, "a", "x1", "x2")
        sink.consumer.add(T1, "x3", "b")
        await_true(lambda: len(sink.reporter.messages) == 3)

        found = sorted(sink.reporter.messages, key=lambda one: one.value or b"")
        assert found == [message(T0, 1, b"x1"), message(T0, 2, b"x2"), message(T1, 0, b"x3")]
        assert {one.error.exception_class for one in sink.reporter.failed} == {
            "org.apache.kafka.connect.errors.DataException"
        }
        assert {one.error.stage for one in sink.reporter.failed} == {"TASK_PUT"}

    def test_isolate_reports_to_the_task_and_writes_the_rest_in_order(self, run: Callable[..., Sink]) -> None:
        sink, written = run(policy=EVERYTHING), []

        def write(frame: SinkFrame) -> None:
            values = values_of(frame)
            if any(value.startswith("x") for value in values):
                raise ValueError("refused")
            written.extend(values)

        sink.task.hooks["put"] = lambda frame: isolate(write, frame)
        sink.start({T0: 0})
        sink.consumer.add(T0, "a", "x1", "b", "c", "x2")
        await_true(lambda: len(sink.reporter.messages) == 2)
        sink.stop()

        assert written == ["a", "b", "c"]
        assert sink.reporter.messages == [message(T0, 1, b"x1"), message(T0, 4, b"x2")]
        assert sink.consumer.sync_commits == [{T0: 5}]

    @pytest.mark.parametrize("swallowed", [False, True])
    def test_without_tolerance_a_reported_row_fails_the_task(self, run: Callable[..., Sink], swallowed: bool) -> None:
        sink = run()

        def put(frame: SinkFrame) -> None:
            try:
                sink.task.context.report(frame, 0, DataException("refused"))
            except ConnectException:
                if not swallowed:
                    raise

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        sink.wait_state("FAILED")

        cause = sink.failure
        while cause is not None and not isinstance(cause, ToleranceExceededException):
            cause = cause.__cause__
        assert "topic t, partition 0, offset 0" in str(cause)
        assert sink.reporter.messages == [message(T0, 0, b"a")]

    def test_a_frame_that_is_held_keeps_its_messages(
        self, run: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = run(policy=EVERYTHING)
        held: list[SinkFrame] = []

        def put(frame: SinkFrame) -> None:
            held.append(frame.slice(1) if frame.num_rows > 1 else frame)

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        messages = sink.runner._loop_of._put._errant._messages  # type: ignore[union-attr]
        monkeypatch.setattr(messages, "_recent_bytes", 1)
        for number in range(3):
            sink.consumer.add(T0, f"a{number}", f"b{number}")
            await_true(lambda number=number: len(held) > number)  # type: ignore[misc]
        del held[1]

        sink.task.context.report(held[0], 0, DataException("late"))

        assert sink.reporter.messages == [message(T0, 1, b"b0")]

    def test_a_frame_the_task_made_is_reported_by_its_origin(self, run: Callable[..., Sink]) -> None:
        sink = run(policy=EVERYTHING)

        def put(frame: SinkFrame) -> None:
            table = frame.table.select(["topic", "partition", "offset", "timestamp", "timestamp_type", "headers"])
            table = table.append_column("key", pa.nulls(frame.num_rows)).append_column(
                "value", pa.nulls(frame.num_rows)
            )
            sink.task.context.report(SinkFrame(table, None, None, origin=frame.origin), [1], DataException("own"))

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a", "b")
        await_true(lambda: bool(sink.reporter.messages))
        assert sink.reporter.messages == [message(T0, 1, b"b")]

    def test_a_row_that_is_not_there_is_the_task_s_error(self, run: Callable[..., Sink]) -> None:
        sink = run(policy=EVERYTHING)
        sink.task.hooks["put"] = lambda frame: sink.task.context.report(frame, [0, 9], DataException("x"))
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        sink.wait_state("FAILED")
        assert "There is no row 9 in a frame of 1 rows" in str(sink.failure)
        assert not sink.reporter.messages

    @pytest.mark.parametrize("tolerated", [False, True])
    def test_without_a_log_and_a_dead_letter_queue_tolerance_decides(self, tolerated: bool) -> None:
        counts = ErrorCounts()
        policy = ErrorPolicy(tolerance_all=tolerated)
        errors = ErrorHandler(policy, [], counts=counts, clock=lambda: 1, random=lambda: 0.5)
        errant = ErrantRecords(errors, DeliveredMessages(dict), message_as_text)
        context = WorkerSinkTaskContext(
            "t", read_config=dict, assignment=frozenset, reporter=None, wake=lambda: None, errant=errant
        )
        table = pa.Table.from_pylist([row(T0, 3, b"x")])
        frame = SinkFrame(table, None, None)

        assert context.errant_record_reporter() is None
        if tolerated:
            assert context.report(frame, 0, DataException("x")).done()
        else:
            with pytest.raises(ToleranceExceededException):
                context.report(frame, 0, DataException("x"))
        assert counts.total_record_errors == 1
        assert context.report(frame, [], DataException("x")).done()

    def test_rows_of_one_message_are_reported_once(self, run: Callable[..., Sink]) -> None:
        sink = run(policy=EVERYTHING)

        def put(frame: SinkFrame) -> None:
            twice: Rows = [0, 0]
            doubled = SinkFrame(frame.table.take(twice), None, None, origin=frame.origin.take(twice))
            sink.task.context.report(doubled, [0, 1], DataException("x"))

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        await_true(lambda: bool(sink.reporter.messages))
        assert sink.reporter.messages == [message(T0, 0, b"a")]


class TestOffsets:
    def test_a_sink_that_keeps_offsets_loses_nothing_behind_a_router(self, run: Callable[..., Sink]) -> None:
        sink = run()
        rows: list[str] = []
        places: dict[TopicPartition, int] = {}

        def put(frame: SinkFrame) -> None:
            new = frame.since(places)
            rows.extend(values_of(new))
            places.update(new.next_offsets())

        sink.task.hooks["put"] = put
        sink.start({T0: 0, T1: 0})
        sink.consumer.add(T0, *(f"a{number}" for number in range(50)))
        sink.consumer.add(T1, *(f"b{number}" for number in range(20)))
        await_true(lambda: places == {T0: 50, T1: 20})
        assert sorted(rows) == sorted([f"a{number}" for number in range(50)] + [f"b{number}" for number in range(20)])

    def test_frames_in_hand_lose_the_rows_of_a_partition_that_goes_and_no_other(self, run: Callable[..., Sink]) -> None:
        sink = run()
        refused = threading.Event()

        def put(frame: SinkFrame) -> None:
            if not refused.is_set() and len(frame.by_partition()) == 2:
                refused.set()
                sink.task.context.timeout(600_000)
                raise RetriableException("not now")

        sink.task.hooks["put"] = put
        gate = sink.pipeline.gate = threading.Event()
        sink.start({T0: 0, T1: 0})
        sink.consumer.add(T0, "a0")
        assert sink.pipeline.entered.wait(WAIT_S)
        sink.consumer.add(T0, "a1", "a2")
        sink.consumer.add(T1, "b0")
        await_true(lambda: sink.consumer.positions == {T0: 3, T1: 1})
        gate.set()
        assert refused.wait(WAIT_S)
        runs = len(sink.pipeline.runs)

        sink.consumer.revoke(T1)
        sink.runner._context.timeout(1)  # type: ignore[union-attr]

        delivery = sink.runner._loop_of._put._delivery  # type: ignore[union-attr]
        assert delivery is not None
        assert [values_of(frame) for frame in delivery.frames or ()] == [["a1", "a2"]]
        assert len(sink.pipeline.runs) == runs


class TestClock:
    @pytest.fixture(params=[FrameTask, RecordingTask])
    def sink(self, request: pytest.FixtureRequest, run: Callable[..., Sink]) -> Sink:
        task = request.param()
        frames = isinstance(task, FrameTask)
        return run(task, pipeline=FakePipeline(frames=frames))

    @staticmethod
    def every(sink: Sink, call: Callable[[], object], seconds: float = 0.02) -> list[Callable[[], None]]:
        """Has a function called; started in ``start``, as authors would."""
        ends: list[Callable[[], None]] = []
        sink.task.hooks["start"] = lambda: ends.append(sink.task.context.every(seconds, call))
        return ends

    def test_a_function_is_called_on_a_quiet_topic_on_the_thread_of_the_task(self, sink: Sink) -> None:
        threads: list[str] = []
        ends = self.every(sink, lambda: threads.append(threading.current_thread().name))
        sink.start({T0: 0})
        await_true(lambda: len(threads) >= 3)
        assert set(threads) == {"task-sink-0"}

        ends[0]()
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        called = len(threads)
        sink.consumer.add(T0, "b")
        sink.wait_values("a", "b")
        assert len(threads) <= called + 1

    def test_it_is_called_before_there_are_partitions_and_while_the_connector_is_paused(self, sink: Sink) -> None:
        times: list[float] = []
        self.every(sink, lambda: times.append(time.monotonic()))
        sink.start()
        await_true(lambda: len(times) >= 2)
        sink.runner.pause()
        sink.wait_state("PAUSED")
        paused = len(times)
        await_true(lambda: len(times) >= paused + 2)

    def test_it_is_called_while_put_waits_for_its_next_try(self, sink: Sink) -> None:
        called = threading.Event()
        refused = threading.Event()

        def put(_: object) -> None:
            refused.set()
            sink.task.context.timeout(600_000)
            raise RetriableException("not now")

        self.every(sink, lambda: called.set() if refused.is_set() else None)
        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        assert called.wait(WAIT_S)
        assert len(sink.task.diary.of("put")) == 1

    def test_an_error_of_it_fails_the_task(self, sink: Sink) -> None:
        self.every(sink, lambda: 1 / 0)
        sink.start({T0: 0})
        sink.wait_state("FAILED")
        assert "in a call by the clock (context.every): division by zero" in str(sink.failure)
        assert isinstance(sink.failure.__cause__, ZeroDivisionError)  # type: ignore[union-attr]

    def test_after_a_retriable_error_it_is_called_again_and_nothing_is_put_before(self, sink: Sink) -> None:
        sink.commit_interval_s = 600.0
        calls: list[str] = []
        may_pass = threading.Event()

        def call() -> None:
            calls.append("call")
            if not may_pass.is_set():
                sink.task.context.timeout(20)
                raise RetriableException("not now")

        self.every(sink, call)
        sink.start({T0: 0})
        await_true(lambda: len(calls) >= 1)
        sink.consumer.add(T0, "a")
        await_true(lambda: len(calls) >= 4)
        assert not sink.task.diary.of("put")

        may_pass.set()
        sink.wait_values("a")

    def test_a_batch_that_waits_for_its_next_try_waits_for_it_too(self, sink: Sink) -> None:
        refused, may_pass = threading.Event(), threading.Event()

        def put(_: object) -> None:
            if not refused.is_set():
                refused.set()
                sink.task.context.timeout(1)
                raise RetriableException("not now")

        def call() -> None:
            if refused.is_set() and not may_pass.is_set():
                calls.append(len(sink.task.diary.of("put")))
                sink.task.context.timeout(5)
                raise RetriableException("not now")

        calls: list[int] = []
        self.every(sink, call, seconds=0.001)
        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        await_true(lambda: len(calls) > 3)
        assert calls[1] == calls[-1]
        may_pass.set()
        await_true(lambda: sink.task.diary.of("put")[-1] == ["a"] and len(sink.task.diary.of("put")) > calls[-1])

    def test_one_that_takes_longer_than_its_time_does_not_keep_records_back(self, sink: Sink) -> None:
        self.every(sink, lambda: threading.Event().wait(0.01), seconds=0.001)
        sink.start({T0: 0})
        for value in "abc":
            sink.consumer.add(T0, value)
        sink.wait_values("a", "b", "c")

    def test_what_it_rewinds_counts_before_the_next_put(self, sink: Sink) -> None:
        rewound = threading.Event()

        def call() -> None:
            if len(sink.task.diary.of("put")) == 1 and not rewound.is_set():
                rewound.set()
                sink.task.context.offset(T0, 0)

        self.every(sink, call, seconds=0.001)
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        assert rewound.wait(WAIT_S)
        sink.wait_values("a", "a")

    def test_a_time_that_is_none_is_refused(self, sink: Sink) -> None:
        self.every(sink, list, seconds=0)
        sink.runner.start()
        sink.wait_state("FAILED")
        assert "above 0" in str(sink.failure)


class TestALostSession:
    def test_nothing_is_halved_or_reported_and_the_frame_comes_again(self, run: Callable[..., Sink]) -> None:
        sink, sizes = run(pipeline=FakePipeline(frames=True), policy=EVERYTHING), []

        def write(frame: SinkFrame) -> None:
            sink.session.session()
            sizes.append(frame.num_rows)
            if len(sizes) == 1:
                sink.sessions.lose()
                raise ValueError("what Spark says when it has gone")

        sink.task.hooks["put"] = lambda frame: isolate(write, frame)
        sink.start({T0: 0})
        sink.consumer.add(T0, "a", "b")
        await_true(lambda: sizes == [2])
        sink.sessions.replace()
        await_true(lambda: sizes == [2, 2])
        assert sink.reporter.messages == []

    def test_a_call_by_the_clock_is_made_again_on_the_next_session(self, run: Callable[..., Sink]) -> None:
        sink, sessions = run(pipeline=FakePipeline(frames=True)), []

        def call() -> None:
            sessions.append(str(sink.session.session()))
            if len(sessions) == 1:
                sink.sessions.lose()
                raise ValueError("what Spark says when it has gone")

        sink.task.hooks["start"] = lambda: sink.task.context.every(0.02, call)
        sink.start({T0: 0})
        await_true(lambda: sessions == ["session 1"])
        sink.sessions.replace()
        await_true(lambda: "session 2" in sessions)


class TestTimeout:
    def test_a_frame_task_that_asked_is_given_a_frame_without_rows_once(self, run: Callable[..., Sink]) -> None:
        sink = run(pipeline=FakePipeline(frames=True))
        frames: list[SinkFrame] = []
        sink.task.hooks["put"] = frames.append
        sink.task.hooks["start"] = lambda: sink.task.context.timeout(30)
        sink.start({T0: 0})

        await_true(lambda: bool(frames))
        sink.consumer.add(T0, "a")
        sink.wait_values("a")

        assert [frame.num_rows for frame in frames] == [0, 1]
        assert frames[0].table.column_names == [*frames[1].table.column_names]
        assert (frames[0].by_partition(), frames[0].next_offsets()) == ({}, {})

    def test_a_frame_task_that_did_not_ask_is_not_called_without_rows(
        self, run: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sink_loop, "IDLE_ROUND_S", 0.01)
        sink = run(pipeline=FakePipeline(frames=True))
        rounds: list[int] = []
        sink.task.hooks["start"] = lambda: sink.task.context.every(0.02, lambda: rounds.append(1))
        sink.start({T0: 0})
        await_true(lambda: len(rounds) > 5)
        assert not sink.task.diary.of("put")

    def test_it_holds_over_what_wakes_the_task_meanwhile(self, run: Callable[..., Sink]) -> None:
        sink = run(pipeline=FakePipeline(frames=True))
        sizes: list[int] = []
        sink.task.hooks["put"] = lambda frame: sizes.append(frame.num_rows)
        sink.task.hooks["start"] = lambda: sink.task.context.timeout(200)
        sink.start({T0: 0})
        for _ in range(5):
            sink.task.context.request_commit()
            threading.Event().wait(0.01)
        await_true(lambda: sizes == [0])

    def test_a_retriable_error_of_it_brings_the_same_call_again(self, run: Callable[..., Sink]) -> None:
        sink = run(pipeline=FakePipeline(frames=True))
        sizes: list[int] = []

        def put(frame: SinkFrame) -> None:
            sizes.append(frame.num_rows)
            if len(sizes) == 1:
                sink.task.context.timeout(1)
                raise RetriableException("not now")

        sink.task.hooks["put"] = put
        sink.task.hooks["start"] = lambda: sink.task.context.timeout(10)
        sink.start({T0: 0})
        await_true(lambda: sizes == [0, 0])
        sink.consumer.add(T0, "a")
        await_true(lambda: sizes == [0, 0, 1])
