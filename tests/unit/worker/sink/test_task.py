"""The sink task's loop over doubles: no broker, no Spark."""

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from testkit.doubles.sink_doubles import T0, T1, WAIT_S, FakePipeline, FrameTask, RecordingTask, Sink
from testkit.waiting import await_true

from penstock.api import OffsetAndMetadata, SinkRecord, TopicPartition
from penstock.errors import (
    ConnectException,
    KafkaRetriableException,
    OwnershipLostException,
    RetriableException,
    ToleranceExceededException,
)
from penstock.model import State
from penstock.pipeline.batch.batches import SinkBatch
from penstock.worker.errors import ErrorPolicy
from penstock.worker.sink import loop as sink_loop
from penstock.worker.sink import queues as sink_stages
from penstock.worker.sink.context import DeliveredMessages
from penstock.worker.task.bounded_queue import BatchLimits
from penstock.worker.task.waiting import WaitReason, places, task_waiting


class Sinks:
    """Makes sinks and ends them."""

    def __init__(self) -> None:
        self._made: list[Sink] = []

    def __call__(self, sink: Sink) -> Sink:
        self._made.append(sink)
        return sink

    def end(self) -> None:
        for sink in self._made:
            if sink.pipeline.gate is not None:
                sink.pipeline.gate.set()
            sink.stop()


class Gated(FakePipeline):
    """The batch that begins with a value waits for its gate; what is to happen after another one does; some fail."""

    def __init__(self, gated: str, *, frames: bool = False, flaky: int = 0) -> None:
        super().__init__(frames=frames, flaky=flaky)
        self.gates = {gated: threading.Event()}
        self.after: dict[str, Callable[[], None]] = {}
        self.errors: dict[str, Exception] = {}
        self.threads: dict[str, str] = {}

    def run(self, batch: pa.Table) -> SinkBatch:
        first = batch.column("value")[0].as_py().decode()
        self.threads[first] = threading.current_thread().name
        if first in self.gates:
            assert self.gates[first].wait(WAIT_S)
        try:
            if first in self.errors:
                raise self.errors[first]
            return super().run(batch)
        finally:
            self.after.get(first, lambda: None)()


@pytest.fixture
def run() -> Iterator[Sinks]:
    sinks = Sinks()
    yield sinks
    sinks.end()


def once(error: Exception) -> Callable[..., None]:
    """A hook that raises at its first call."""
    left = [error]

    def hook(*_: object) -> None:
        if left:
            raise left.pop()

    return hook


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task without records is called more often than once a second."""
    monkeypatch.setattr(sink_loop, "IDLE_ROUND_S", 0.2)


def told(sink: Sink, *, spark_up: bool = True) -> WaitReason:
    """What explain tells of a running task."""
    return task_waiting("sink-0", State.RUNNING, places(), spark_up=spark_up, hints=sink.runner.hints)


class TestLife:
    def test_a_task_goes_through_its_methods_in_kafkas_order_on_one_thread(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.add(T0, "a", "b")
        sink.wait_values("a", "b")
        sink.stop()
        names = [name for name in sink.task.diary.names if name != "empty put"]
        assert names == ["start", "open", "put", "pre_commit", "close", "stop"]
        assert sink.task.threads == {"task-sink-0"}
        assert sink.consumer.sync_commits == [{T0: 2}]
        assert sink.consumer.closed
        assert sink.states == ["RUNNING", "UNASSIGNED"]
        assert sink.points == ["sink.started", "sink.after_put", "sink.closing", "sink.closed"]
        assert set(sink.topics) == {"t"}
        assert sink.reporter.closed

    def test_a_task_of_a_paused_connector_is_not_initialized_before_it_is_resumed(self, run: Sinks) -> None:
        sink = run(Sink(paused=True)).start()
        sink.wait_state("PAUSED")
        assert sink.task.diary.names == []
        sink.runner.resume()
        sink.wait_state("RUNNING")
        assert sink.task.diary.names[0] == "start"

    def test_a_task_stopped_before_it_was_resumed_never_starts_and_closes_its_consumer(self, run: Sinks) -> None:
        sink = run(Sink(paused=True)).start()
        sink.wait_state("PAUSED")
        sink.stop()
        assert sink.task.diary.names == []
        assert sink.consumer.closed
        assert sink.states == ["PAUSED", "UNASSIGNED"]

    def test_a_failing_start_makes_the_task_failed_and_stop_is_still_called(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.task.hooks["start"] = once(ValueError("no disk"))
        sink.runner.start()
        sink.wait_state("FAILED")
        sink.runner.join(WAIT_S)
        assert str(sink.failure) == "no disk"
        assert sink.task.diary.names == ["start", "stop"]
        assert sink.consumer.closed

    def test_an_error_after_stop_was_asked_is_not_a_failure(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.hooks["close"] = once(ValueError("late"))
        sink.stop()
        assert sink.states == ["RUNNING", "UNASSIGNED"]

    def test_a_consumer_that_cannot_go_on_fails_the_task_after_a_last_commit(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.consumer.fetch_error = RuntimeError("not authorized")
        sink.wait_state("FAILED")
        assert str(sink.failure) == "not authorized"
        assert sink.consumer.sync_commits == [{T0: 1}]

    @pytest.mark.usefixtures("short_rounds")
    def test_an_idle_task_is_called_with_an_empty_list(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.diary.wait_for_entry("empty put")

    def test_a_cancelled_task_commits_and_reports_nothing_more(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        inside, go_on = threading.Event(), threading.Event()

        def block(_: object) -> None:
            inside.set()
            go_on.wait(WAIT_S)

        sink.task.hooks["put"] = block
        sink.consumer.add(T0, "a")
        assert inside.wait(WAIT_S)
        sink.runner.cancel()
        go_on.set()
        assert sink.runner.join(WAIT_S)
        assert sink.consumer.sync_commits == []
        assert sink.consumer.closed
        assert sink.states == ["RUNNING"]
        assert "pre_commit" not in sink.task.diary.names
        assert sink.task.diary.names[-1] == "stop"


class TestDelivery:
    def test_dropped_records_move_the_offset_but_are_not_put(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.add(T0, "a", "drop", "drop")
        sink.wait_values("a")
        sink.stop()
        assert sink.consumer.sync_commits == [{T0: 3}]

    def test_batches_are_fetched_and_converted_while_put_works(
        self, run: Sinks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sink_stages, "CONVERTED_BATCHES", 1)
        sink = run(Sink(limits=BatchLimits(max_records=2))).start({T0: 0})
        inside, go_on = threading.Event(), threading.Event()

        def block(_: object) -> None:
            inside.set()
            assert go_on.wait(WAIT_S)

        sink.task.hooks["put"] = block
        sink.consumer.add(T0, "a")
        assert inside.wait(WAIT_S)
        sink.consumer.add(T0, *"bcdefghijkl")
        await_true(lambda: len(sink.pipeline.runs) >= 3)
        # Put: one; converted: one batch, one without room, and one that was begun beside that; fetched: one batch, and
        # one more message in a fetch that had begun. The rest stays with the broker.
        await_true(lambda: sink.consumer.positions[T0] >= 5)
        assert sink.consumer.positions[T0] <= 1 + 4 * 2 + 1
        go_on.set()
        sink.wait_values(*"abcdefghijkl")

    @pytest.mark.parametrize("error", [RetriableException("busy"), KafkaRetriableException("busy")])
    def test_after_a_retriable_error_of_put_the_same_records_come_again_while_all_is_paused(
        self, run: Sinks, error: Exception
    ) -> None:
        sink = run(Sink()).start({T0: 0})
        raised: list[Exception] = []
        paused: list[set[TopicPartition]] = []

        def put(_: object) -> None:
            if not raised:
                raised.append(error)
                sink.task.context.timeout(80)
                raise error
            paused.append(set(sink.consumer.paused))

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, "a", "b")
        sink.wait_values("a", "b", "a", "b")
        sink.consumer.add(T0, "c")
        sink.wait_values("a", "b", "a", "b", "c")
        sink.stop()
        assert paused == [{T0}, set()]
        assert sink.states == ["RUNNING", "UNASSIGNED"]
        assert sink.consumer.sync_commits == [{T0: 3}]

    def test_when_put_is_called_again_can_be_asked_for_and_is_said(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})

        def put(_: object) -> None:
            sink.task.context.timeout(3_600_000)
            raise RetriableException("busy")

        sink.task.hooks["put"] = put
        assert told(sink).reason != "sink_retry"
        sink.consumer.add(T0, "a")
        await_true(lambda: told(sink).reason == "sink_retry")
        assert "That is done at 2" in told(sink).text
        sink.stop()

    def test_another_error_of_put_fails_the_task_and_commits_what_came_before(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.task.hooks["put"] = once(ValueError("full"))
        sink.consumer.add(T0, "b")
        sink.wait_state("FAILED")
        assert sink.failure is not None
        assert "unrecoverable exception" in str(sink.failure)
        assert isinstance(sink.failure.__cause__, ValueError)
        assert sink.consumer.sync_commits == [{T0: 1}]

    def test_a_frame_task_is_given_frames_and_only_the_rest_again_after_a_retriable_error(self, run: Sinks) -> None:
        sink = run(Sink(task=FrameTask(), pipeline=FakePipeline(frames=True))).start({T0: 0})
        sink.task.hooks["put"] = once(RetriableException("busy"))
        sink.task.hooks["open"] = lambda _: sink.task.context.timeout(1)
        sink.runner.commits._next_s = 0  # the default back-off is up to the next commit
        sink.consumer.add(T0, "a", "drop", "b")
        sink.wait_values("a", "b", "a", "b")
        sink.stop()
        assert sink.consumer.sync_commits == [{T0: 3}]


class TestALostSession:
    """The Spark session is lost while ``put`` works with it."""

    def test_the_frame_is_put_again_when_there_is_another_session(self, run: Sinks) -> None:
        sink = run(Sink(task=FrameTask(), pipeline=FakePipeline(frames=True))).start({T0: 0})
        got: list[str] = []
        paused: list[set[TopicPartition]] = []

        def put(_: object) -> None:
            got.append(str(sink.session.session()))
            paused.append(set(sink.consumer.paused))
            if len(got) == 1:
                sink.sessions.lose()
                raise ConnectionRefusedError("gone")

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, "a", "b")
        await_true(lambda: sink.consumer.paused == {T0})
        await_true(lambda: told(sink, spark_up=False).reason == "spark_starting")
        sink.consumer.add(T0, "c")
        sink.sessions.replace()
        sink.wait_values("a", "b", "a", "b", "c")
        sink.stop()
        assert got == ["session 1", "session 2", "session 2"]
        assert paused == [set(), {T0}, set()]
        assert sink.states == ["RUNNING", "UNASSIGNED"]
        assert sink.consumer.sync_commits == [{T0: 3}]

    def test_a_task_that_waits_for_the_next_session_can_be_stopped_and_commits_nothing_of_it(self, run: Sinks) -> None:
        sink = run(Sink(task=FrameTask(), pipeline=FakePipeline(frames=True))).start({T0: 0})

        def put(_: object) -> None:
            sink.session.session()
            sink.sessions.lose()
            raise ConnectionRefusedError("gone")

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, "a")
        await_true(lambda: sink.consumer.paused == {T0})
        sink.stop()
        assert sink.states == ["RUNNING", "UNASSIGNED"]
        assert sink.values == ["a"]
        assert sink.consumer.sync_commits == []

    def test_a_batch_whose_put_brings_down_each_session_fails_the_task(self, run: Sinks) -> None:
        sink = run(Sink(task=FrameTask(), pipeline=FakePipeline(frames=True))).start({T0: 0})

        def put(_: object) -> None:
            sink.session.session()
            sink.sessions.replace()
            raise ConnectionRefusedError("gone")

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, "a")
        sink.wait_state("FAILED")
        assert sink.task.diary.of("put") == [["a"]] * 3
        assert "put of t-0 from offset 0 to 0 was tried on 3 Spark sessions and each was lost" in str(sink.failure)

    def test_what_the_task_kept_of_a_lost_session_makes_it_start_again(self, run: Sinks) -> None:
        sink = run(Sink(task=FrameTask(), pipeline=FakePipeline(frames=True))).start({T0: 0})
        sink.task.hooks["put"] = lambda _: sink.session.session()
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.sessions.replace()
        sink.task.hooks["put"] = once(ConnectionRefusedError("gone"))
        sink.consumer.add(T0, "b")
        sink.wait_state("RESTARTING")
        assert sink.runner.join(WAIT_S)
        assert sink.runner.has_delivered
        assert sink.task.diary.names[-1] == "stop"
        assert sink.consumer.sync_commits == [{T0: 1}]

    def test_an_error_of_put_on_a_healthy_session_fails_the_task(self, run: Sinks) -> None:
        sink = run(Sink(task=FrameTask(), pipeline=FakePipeline(frames=True))).start({T0: 0})

        def put(_: object) -> None:
            sink.session.session()
            raise ValueError("no such column")

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, "a")
        sink.wait_state("FAILED")
        assert "unrecoverable exception in put of t-0 from offset 0 to 0: no such column" in str(sink.failure)


class TestTwoBatchesAtOnce:
    """Messages come faster than they are converted: with room for one, each fetch has to wait."""

    def test_they_are_converted_beside_each_other_and_put_in_order(self, run: Sinks) -> None:
        pipeline = Gated("a")
        # The first is done only when the second has been.
        pipeline.after["b"] = pipeline.gates["a"].set
        sink = run(Sink(pipeline=pipeline, limits=BatchLimits(max_records=1)))
        sink.consumer.add(T0, "a", "b", "c", "d")
        sink.start({T0: 0})
        sink.wait_values("a", "b", "c", "d")
        sink.stop()
        assert pipeline.runs[:2] == [["b"], ["a"]]
        assert pipeline.threads["a"] == pipeline.threads["b"] == "spark-sink-0"
        assert sink.consumer.sync_commits == [{T0: 4}]

    def test_a_record_that_is_tried_again_holds_up_the_batch_behind_it(self, run: Sinks) -> None:
        pipeline = Gated("flaky", flaky=1)
        pipeline.after["b"] = pipeline.gates["flaky"].set
        policy = ErrorPolicy(retry_timeout_ms=-1, retry_delay_max_ms=2)
        sink = run(Sink(pipeline=pipeline, limits=BatchLimits(max_records=1), policy=policy))
        sink.consumer.add(T0, "flaky", "b", "c")
        sink.start({T0: 0})
        sink.wait_values("flaky", "b", "c")

    def test_a_batch_that_cannot_be_converted_fails_the_task_behind_the_one_before_it(self, run: Sinks) -> None:
        pipeline = Gated("a")
        error = ConnectException("no Spark session")
        pipeline.errors["b"] = error
        pipeline.after["b"] = pipeline.gates["a"].set
        sink = run(Sink(pipeline=pipeline, limits=BatchLimits(max_records=1)))
        sink.consumer.add(T0, "a", "b", "c")
        sink.start({T0: 0})
        sink.wait_state("FAILED")
        assert sink.failure is error
        assert pipeline.runs == [["a"]]
        assert sink.consumer.sync_commits in ([{T0: 1}], [])

    def test_frames_are_made_again_without_a_partition_that_went_meanwhile(self, run: Sinks) -> None:
        pipeline = Gated("a", frames=True)
        sink = run(Sink(task=FrameTask(), pipeline=pipeline, limits=BatchLimits(max_records=2)))
        sink.consumer.add(T0, "a", "b")
        sink.consumer.add(T1, "A", "B")
        sink.start()
        sink.consumer.assign({T0: 0, T1: 0}, wait=False)
        await_true(lambda: "a" in pipeline.threads)
        sink.consumer.revoke(T1, wait=False)
        pipeline.gates["a"].set()
        await_true(lambda: [value for value in sink.values if value.islower()] == ["a", "b"])
        sink.stop()
        assert sink.consumer.sync_commits[-1][T0] == 2


class TestUnreadableRecords:
    @pytest.mark.parametrize("task", [RecordingTask, FrameTask])
    def test_with_tolerance_they_are_reported_once_and_passed_over(
        self, run: Sinks, task: type[RecordingTask | FrameTask]
    ) -> None:
        sink = run(
            Sink(
                task(), FakePipeline(frames=task is FrameTask), ErrorPolicy(tolerance_all=True), commit_interval_s=0.01
            )
        )
        sink.consumer.add(T0, "a", "lost", "lost", "b")
        sink.consumer.damaged[T0] = (1, 3)
        sink.start({T0: 0}).wait_values("a", "b")
        sink.task.diary.wait_for(lambda: {T0: 4} in sink.consumer.commits, "a commit behind them")
        (failed,) = sink.reporter.failed
        assert failed.error.stage == "KAFKA_CONSUME"
        assert failed.error.exception_class == "org.apache.kafka.common.KafkaException"
        assert "topic t, partition 0 at offsets 1 to 2" in str(failed.error.message)
        assert [(one.topic, one.partition, one.offset, one.value) for one in sink.reporter.messages] == [
            ("t", 0, 1, None)
        ]

    @pytest.mark.parametrize("task", [RecordingTask, FrameTask])
    def test_without_tolerance_records_before_them_are_committed_then_the_task_fails(
        self, run: Sinks, task: type[RecordingTask | FrameTask]
    ) -> None:
        sink = run(Sink(task(), FakePipeline(frames=task is FrameTask)))
        sink.consumer.add(T0, "a", "lost", "b")
        sink.consumer.damaged[T0] = (1, 2)
        sink.start({T0: 0}).wait_state("FAILED")
        assert sink.values == ["a"]
        assert sink.consumer.sync_commits[-1] == {T0: 1}
        assert isinstance(sink.failure, ToleranceExceededException)
        assert "offset 1 cannot be read: Invalid compressed data" in str(sink.failure.__cause__)


class TestErrors:
    def test_without_tolerance_records_before_the_first_error_are_committed_then_the_task_fails(
        self, run: Sinks
    ) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.add(T0, "a", "b", "bad", "c", "bad")
        sink.wait_state("FAILED")
        assert sink.values == ["a", "b"]
        assert sink.consumer.sync_commits == [{T0: 2}]
        assert isinstance(sink.failure, ToleranceExceededException)
        where = "(task sink-0, stage VALUE_CONVERTER, topic t, partition 0, offset 2)"
        assert str(sink.failure) == f"Tolerance exceeded in error handler {where}"
        assert [message.offset for message in sink.reporter.messages] == [2]

    def test_without_tolerance_a_frame_task_gets_the_frame_before_the_first_error(self, run: Sinks) -> None:
        sink = run(Sink(task=FrameTask(), pipeline=FakePipeline(frames=True))).start({T0: 0})
        sink.consumer.add(T0, "a", "b", "bad", "c")
        sink.wait_state("FAILED")
        assert sink.values == ["a", "b"]
        assert sink.consumer.sync_commits == [{T0: 2}]

    def test_with_tolerance_failed_records_are_reported_as_they_were_fetched_and_skipped(self, run: Sinks) -> None:
        sink = run(Sink(policy=ErrorPolicy(tolerance_all=True))).start({T0: 0})
        sink.consumer.add(T0, "a", "bad", "b", "bad")
        sink.wait_values("a", "b")
        sink.stop()
        assert sink.consumer.sync_commits == [{T0: 4}]
        first = sink.reporter.messages[0]
        assert (first.offset, first.key, first.value, first.headers) == (1, b"k1", b"bad", (("h", b"1"),))
        assert sink.runner.error_counts.total_records_skipped == 2

    @pytest.mark.parametrize("frames", [False, True])
    def test_a_record_that_fails_twice_and_then_works_passes_in_its_place(self, run: Sinks, frames: bool) -> None:
        task = FrameTask() if frames else RecordingTask()
        policy = ErrorPolicy(retry_timeout_ms=10_000, retry_delay_max_ms=2)
        sink = run(Sink(task=task, pipeline=FakePipeline(frames=frames, flaky=2), policy=policy)).start({T0: 0})
        sink.consumer.add(T0, "a", "flaky", "b")
        sink.wait_values("a", "flaky", "b")
        counts = sink.runner.error_counts
        assert (counts.total_retries, counts.total_record_failures, counts.total_record_errors) == (2, 2, 0)
        assert sink.reporter.failed == []

    def test_a_retriable_error_past_its_time_fails_the_task(self, run: Sinks) -> None:
        policy = ErrorPolicy(retry_timeout_ms=5, retry_delay_max_ms=2)
        sink = run(Sink(pipeline=FakePipeline(flaky=1_000_000), policy=policy)).start({T0: 0})
        sink.consumer.add(T0, "a", "flaky", "b")
        sink.wait_state("FAILED")
        assert sink.values == ["a"]
        assert sink.reporter.failed[0].attempt > 1

    def test_stop_during_retries_leaves_the_record_undelivered_and_uncommitted(self, run: Sinks) -> None:
        policy = ErrorPolicy(tolerance_all=True, retry_timeout_ms=-1)
        sink = run(Sink(pipeline=FakePipeline(flaky=1_000_000), policy=policy)).start({T0: 0})
        sink.consumer.add(T0, "flaky")
        assert sink.pipeline.entered.wait(WAIT_S)
        sink.stop()
        assert sink.values == []
        assert sink.consumer.sync_commits == []
        assert sink.reporter.failed == []

    def test_records_reported_by_the_task_reach_the_reporters_with_their_original_bytes(self, run: Sinks) -> None:
        sink = run(Sink(policy=ErrorPolicy(tolerance_all=True)))

        def put(records: list[SinkRecord]) -> None:
            reporter = sink.task.context.errant_record_reporter()
            assert reporter is not None
            for record in records:
                if record.value == "b":
                    assert reporter.report(record, ValueError("too long")).done()

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a", "b")
        sink.wait_values("a", "b")
        sink.stop()
        [failed] = sink.reporter.failed
        assert (failed.error.stage, failed.error.message) == ("TASK_PUT", "too long")
        assert failed.error.executing_class == "org.apache.kafka.connect.sink.SinkTask"
        assert [(message.key, message.value) for message in sink.reporter.messages] == [(b"k1", b"b")]
        assert sink.consumer.sync_commits == [{T0: 2}]

    @pytest.mark.usefixtures("short_rounds")
    def test_a_record_kept_over_a_retried_put_without_records_is_reported_with_its_original_bytes(
        self, run: Sinks
    ) -> None:
        sink = run(Sink(policy=ErrorPolicy(tolerance_all=True)))
        kept: list[SinkRecord] = []
        ask_again = once(RetriableException("not yet"))

        def empty_put() -> None:
            if kept:
                sink.task.context.timeout(1)
                ask_again()
                reporter = sink.task.context.errant_record_reporter()
                assert reporter is not None
                assert reporter.report(kept.pop(), ValueError("too long")).done()

        sink.task.hooks["put"] = kept.extend
        sink.task.hooks["empty put"] = empty_put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        await_true(lambda: bool(sink.reporter.failed))
        sink.stop()
        assert [(message.key, message.value) for message in sink.reporter.messages] == [(b"k0", b"a")]
        assert sink.states == ["RUNNING", "UNASSIGNED"]

    def test_a_batch_that_is_put_again_is_remembered_once(self, run: Sinks, monkeypatch: pytest.MonkeyPatch) -> None:
        remembered: list[int] = []
        monkeypatch.setattr(DeliveredMessages, "remember", lambda _, delivery: remembered.append(delivery.size))
        sink = run(Sink(policy=ErrorPolicy(tolerance_all=True)))
        left = [RetriableException("busy"), RetriableException("busy")]

        def put(_: object) -> None:
            if left:
                sink.task.context.timeout(1)
                raise left.pop()

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a", "b")
        sink.wait_values("a", "b", "a", "b", "a", "b")
        assert remembered == [2]

    def test_a_task_that_swallows_the_refusal_of_its_report_fails_after_put(self, run: Sinks) -> None:
        sink = run(Sink())

        def put(records: list[SinkRecord]) -> None:
            reporter = sink.task.context.errant_record_reporter()
            assert reporter is not None
            with pytest.raises(ToleranceExceededException):
                reporter.report(records[0], ValueError("x"))

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        sink.wait_state("FAILED")
        assert isinstance(sink.failure, ToleranceExceededException)
        assert sink.consumer.sync_commits == []

    def test_offsets_are_not_committed_while_reports_are_not_stored(self, run: Sinks) -> None:
        sink = run(Sink(policy=ErrorPolicy(tolerance_all=True))).start({T0: 0})
        sink.reporter.stored = False
        sink.consumer.add(T0, "bad", "a")
        sink.wait_values("a")
        sink.stop()
        assert sink.consumer.sync_commits == []
        assert sink.task.diary.of("close") == [[T0]]


class TestCommits:
    def test_a_requested_commit_asks_the_task_and_is_sent_without_waiting(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 5})
        sink.consumer.add(T0, *"0123456")
        sink.wait_values("5", "6")
        sink.task.context.request_commit()
        sink.task.diary.wait_for_entry("pre_commit")
        sink.task.context.request_commit()
        sink.task.diary.wait_for_entry("pre_commit", 2)
        sink.stop()
        assert sink.consumer.commits == [{T0: 7}]
        assert sink.consumer.sync_commits == []

    def test_the_task_may_hold_offsets_back_and_may_not_run_ahead(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0, T1: 0})
        sink.consumer.add(T0, "a", "b")
        sink.wait_values("a", "b")
        other = TopicPartition("other", 3)
        sink.task.hooks["pre_commit"] = lambda _: {
            T0: OffsetAndMetadata(1, "half"),
            T1: OffsetAndMetadata(99),
            other: OffsetAndMetadata(1),
        }
        sink.stop()
        assert sink.consumer.sync_commits == [{T0: 1, T1: 0}]

    def test_a_failing_pre_commit_rewinds_to_the_committed_offsets_and_drops_what_is_in_hand(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.task.context.request_commit()
        sink.task.diary.wait_for_entry("pre_commit")
        # Known bug of Java: the batch that waits for its next try must not survive the rewind.
        sink.task.hooks["put"] = once(RetriableException("busy"))
        sink.consumer.add(T0, "b", "c")
        sink.wait_values("a", "b", "c")
        sink.task.hooks["pre_commit"] = once(OSError("flush"))
        sink.task.context.request_commit()
        sink.wait_values("a", "b", "c", "b", "c")
        sink.stop()
        assert sink.consumer.seeks == [{T0: 1}]
        assert sink.consumer.commits == [{T0: 1}]
        assert sink.consumer.sync_commits == [{T0: 3}]
        assert sink.states == ["RUNNING", "UNASSIGNED"]

    @pytest.mark.parametrize("answer", ["all", {T0: 1}, {"t": OffsetAndMetadata(1)}, [T0]])
    def test_an_answer_of_pre_commit_that_is_no_map_of_offsets_commits_nothing_and_fails_no_task(
        self, run: Sinks, answer: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.hooks["pre_commit"] = lambda _: answer
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.task.context.request_commit()
        sink.wait_values("a", "a")
        sink.stop()
        assert sink.consumer.commits == sink.consumer.sync_commits == []
        assert sink.states == ["RUNNING", "UNASSIGNED"]
        assert f"pre_commit must return a map of TopicPartition to OffsetAndMetadata, got {answer!r}" in caplog.text

    def test_a_late_answer_to_an_older_commit_does_not_count(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.answer_commits = False
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.task.context.request_commit()
        sink.task.diary.wait_for_entry("pre_commit")
        sink.consumer.add(T0, "b")
        sink.wait_values("a", "b")
        threading.Event().wait(0.25)  # the first commit is given up after 200 ms
        sink.task.context.request_commit()
        sink.task.diary.wait_for_entry("pre_commit", 2)
        await_true(lambda: len(sink.consumer.answers) == 2)
        first, second = sink.consumer.answers
        second(None)
        first(None)
        sink.stop()
        assert sink.consumer.commits == [{T0: 1}, {T0: 2}]
        assert sink.consumer.sync_commits == []
        assert (sink.runner.commits.failures, sink.runner.commits.skipped) == (1, 1)

    def test_a_commit_that_fails_does_not_fail_the_task_and_is_made_again(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.commit_error = KafkaRetriableException("coordinator moved")
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.task.context.request_commit()
        sink.task.diary.wait_for_entry("pre_commit")
        await_true(lambda: bool(sink.consumer.commits))
        sink.consumer.commit_error = None
        sink.stop()
        assert sink.consumer.commits == [{T0: 1}]
        assert sink.consumer.sync_commits == [{T0: 1}]
        assert sink.states == ["RUNNING", "UNASSIGNED"]

    def test_is_closing_is_true_in_the_last_pre_commit_only(self, run: Sinks) -> None:
        sink = run(Sink())
        seen: list[tuple[str, bool]] = []
        for name in ("put", "pre_commit", "close", "stop", "open", "empty put"):
            sink.task.hooks[name] = lambda *_, name=name: seen.append((name, sink.task.context.is_closing()))
        sink.start({T0: 0, T1: 0})
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.task.context.request_commit()
        sink.task.diary.wait_for_entry("pre_commit")
        sink.consumer.revoke(T1)
        sink.stop()
        wanted = [("open", False), ("put", False), ("pre_commit", False)]
        wanted += [("pre_commit", True), ("close", False)] * 2 + [("stop", False)]
        assert [entry for entry in seen if entry[0] != "empty put"] == wanted
        assert ("empty put", True) not in seen

    def test_is_closing_is_reset_when_the_last_pre_commit_raises_and_close_is_still_called(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        closing: list[bool] = []
        sink.task.hooks["pre_commit"] = once(OSError("x"))
        sink.task.hooks["close"] = lambda _: closing.append(bool(sink.task.context.is_closing))
        sink.stop()
        assert closing == [False]
        assert sink.consumer.sync_commits == []


class TestRebalances:
    def test_revoked_partitions_are_committed_closed_and_forgotten(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0, T1: 0})
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.consumer.add(T1, "b", "c")
        sink.wait_values("a", "b", "c")
        sink.consumer.revoke(T1)
        assert sink.consumer.sync_commits == [{T1: 2}]
        assert sink.task.diary.of("close") == [[T1]]
        sink.stop()
        # Java names T1 again here, though the task does not own it any more.
        assert sink.task.diary.of("pre_commit") == [{T1: 2}, {T0: 1}]
        assert sink.task.diary.of("close") == [[T1], [T0]]

    def test_records_of_a_revoked_partition_that_are_on_their_way_are_dropped(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.pipeline.gate = threading.Event()
        sink.start({T0: 0, T1: 0})
        sink.consumer.add(T1, "x", "y")
        assert sink.pipeline.entered.wait(WAIT_S)
        sink.consumer.add(T0, "a")
        sink.consumer.revoke(T1)
        sink.pipeline.gate.set()
        sink.wait_values("a")
        sink.stop()
        assert {TopicPartition(*tp) for offsets in sink.consumer.sync_commits for tp in offsets} == {T0}

    @pytest.mark.parametrize("frames", [False, True])
    def test_rows_of_gone_partitions_are_taken_out_of_a_mixed_batch(self, run: Sinks, frames: bool) -> None:
        task = FrameTask() if frames else RecordingTask()
        sink = run(Sink(task=task, pipeline=FakePipeline(frames=frames), policy=ErrorPolicy(tolerance_all=True)))
        sink.pipeline.gate = threading.Event()
        sink.consumer.add(T1, "x", "bad", "y")
        sink.consumer.add(T0, "a", "bad", "b")
        sink.start({T0: 0, T1: 0})
        assert sink.pipeline.entered.wait(WAIT_S)
        sink.consumer.revoke(T1)
        sink.pipeline.gate.set()
        sink.wait_values("a", "b")
        sink.stop()
        assert [(message.partition, message.offset) for message in sink.reporter.messages] == [(0, 1)]
        assert sink.consumer.sync_commits[-1] == {T0: 3}

    def test_a_partition_that_comes_back_is_read_from_where_it_was_committed(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.pipeline.gate = threading.Event()
        sink.consumer.add(T0, "a", "b", "c")
        sink.start({T0: 0})
        assert sink.pipeline.entered.wait(WAIT_S)
        sink.consumer.revoke(T0)
        sink.consumer.assign({T0: 1})
        sink.pipeline.gate.set()
        sink.wait_values("b", "c")

    def test_lost_partitions_are_closed_without_a_commit(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.consumer.lose(T0)
        sink.stop()
        assert sink.task.diary.of("pre_commit") == []
        assert sink.task.diary.of("close") == [[T0]]
        assert sink.consumer.sync_commits == []

    def test_a_revoked_partition_is_taken_out_of_the_batch_that_waits_for_its_next_try(self, run: Sinks) -> None:
        sink = run(Sink())
        tries: list[list[str]] = []

        def put(records: list[SinkRecord]) -> None:
            tries.append([str(record.value) for record in records])
            if len(tries) == 1:
                sink.task.context.timeout(150)
                raise RetriableException("busy")

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, "a")
        sink.consumer.add(T1, "x")
        sink.start({T0: 0, T1: 0})
        sink.task.diary.wait_for_entry("put")
        sink.consumer.revoke(T1)
        sink.task.diary.wait_for_entry("put", 2)
        assert sorted(tries[0]) == ["a", "x"]
        assert tries[1] == ["a"]
        sink.stop()
        assert sink.consumer.sync_commits == [{T0: 1}]

    def test_an_error_of_open_fails_the_task_and_lets_the_group_go_on(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.task.hooks["open"] = once(OSError("no room"))
        sink.start({T0: 0})
        sink.wait_state("FAILED")
        assert str(sink.failure) == "no room"

    @pytest.fixture
    def soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.worker.sink.loop._MOST_CLAIM_S", 0.001)

    def test_a_task_whose_partitions_another_one_has_claimed_opens_them_again(self, run: Sinks, soon: None) -> None:
        sink = run(Sink())
        sink.consumer.add(T0, *"abcd")
        opened: list[list[TopicPartition]] = []

        def claim(partitions: list[TopicPartition]) -> None:
            opened.append(partitions)
            if len(opened) > 1:
                sink.task.context.offset({T0: 2})  # The other one has written "a" and "b".

        sink.task.hooks |= {"open": claim, "put": once(OwnershipLostException("another task"))}
        sink.start({T0: 0})
        sink.wait_values("a", "b", "c", "d", "c", "d")  # The first four were refused.
        assert opened == [[T0], [T0]]
        assert [call for call in sink.task.diary.names if call in ("open", "close")] == ["open", "close", "open"]
        sink.stop()
        assert sink.consumer.sync_commits == [{T0: 4}]

    def test_records_that_the_other_task_has_not_written_come_again(self, run: Sinks, soon: None) -> None:
        sink = run(Sink())
        sink.consumer.add(T0, *"ab")
        sink.task.hooks["put"] = once(OwnershipLostException("another task"))
        sink.start({T0: 0})
        sink.wait_values("a", "b", "a", "b")

    def test_a_task_that_loses_its_partitions_again_and_again_fails(self, run: Sinks, soon: None) -> None:
        sink = run(Sink())
        sink.consumer.add(T0, "a")

        def put(_: object) -> None:
            raise OwnershipLostException("another task")

        sink.task.hooks["put"] = put
        sink.start({T0: 0})
        sink.wait_state("FAILED")
        assert "after the partitions were opened 10 times: another task" in str(sink.failure)

    def test_offsets_set_in_open_are_where_reading_begins(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.consumer.add(T0, *"abcd")
        sink.task.hooks["open"] = lambda _: sink.task.context.offset({T0: 2})
        sink.start({T0: 0})
        sink.wait_values("c", "d")
        assert sink.consumer.seeks == []

    @pytest.mark.parametrize("offset", ["2", -5, 1.5])
    def test_an_offset_to_go_on_from_is_a_whole_number(self, run: Sinks, offset: object) -> None:
        sink = run(Sink())
        sink.task.hooks["open"] = lambda _: sink.task.context.offset({T0: offset})  # type: ignore[dict-item]
        sink.start({T0: 0})
        sink.wait_state("FAILED")
        assert (
            str(sink.failure)
            == f"sink task 0 cannot go on with t-0 at offset {offset!r}: it must be a whole number, 0 or more"
        )

    def test_assignment_names_the_owned_partitions(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        assert sink.task.context.assignment() == {T0}
        sink.consumer.assign({T1: 0})
        assert sink.task.context.assignment() == {T0, T1}
        assert sink.task.context.configs() == {"a": "2"}


class TestRewindAndPause:
    def test_a_rewind_brings_records_again_and_discards_what_is_on_its_way(self, run: Sinks) -> None:
        sink = run(Sink(limits=BatchLimits(max_records=1)))

        def put(records: list[SinkRecord]) -> None:
            if records[0].value == "b" and sink.values.count("b") == 1:
                sink.task.context.offset(T0, 0)

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, *"abcd")
        sink.start({T0: 0})
        sink.wait_values("a", "b", "a", "b", "c", "d")

    def test_a_rewind_of_a_strange_partition_is_ignored(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.hooks["put"] = lambda _: sink.task.context.offset(T1, 0)
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.consumer.add(T0, "b")
        sink.wait_values("a", "b")
        assert sink.consumer.seeks == []

    @pytest.mark.usefixtures("short_rounds")
    def test_records_of_a_partition_the_task_paused_come_after_resume_and_in_order(self, run: Sinks) -> None:
        sink = run(Sink(limits=BatchLimits(max_records=1)))

        def put(records: list[SinkRecord]) -> None:
            if records[0].value == "a":
                sink.task.context.pause(T0)
            if records[0].value == "x":
                sink.task.context.resume(T0)

        sink.task.hooks["put"] = put
        sink.consumer.add(T0, *"abc")
        sink.start({T0: 0, T1: 0})
        sink.task.diary.wait_for_entry("empty put")
        assert sink.values == ["a"]
        sink.consumer.add(T1, "x")
        sink.wait_values("a", "x", "b", "c")

    def test_pausing_a_partition_that_is_not_assigned_is_refused(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.hooks["put"] = lambda _: sink.task.context.pause(T1)
        sink.consumer.add(T0, "a")
        sink.wait_state("FAILED")
        assert "t-1: not assigned" in str(sink.failure)

    @pytest.mark.usefixtures("short_rounds")
    def test_a_paused_connector_delivers_nothing_commits_and_goes_on_where_it_was(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0, T1: 0})
        sink.consumer.add(T0, "a")
        sink.wait_values("a")
        sink.task.hooks["open"] = lambda _: None
        sink.runner.pause()
        sink.wait_state("PAUSED")
        sink.task.diary.wait_for_entry("pre_commit")
        sink.consumer.add(T0, "b")
        sink.task.diary.wait_for_entry("empty put")
        assert sink.values == ["a"]
        assert sink.consumer.paused == {T0, T1}
        sink.consumer.revoke(T1)
        sink.runner.resume()
        sink.wait_state("RUNNING")
        sink.wait_values("a", "b")
        await_true(lambda: sink.consumer.paused == set())

    def test_partitions_assigned_while_paused_do_not_deliver(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.runner.pause()
        sink.wait_state("PAUSED")
        sink.consumer.add(T1, "x")
        sink.consumer.assign({T1: 0})
        assert sink.consumer.paused == {T0, T1}
        sink.runner.resume()
        sink.wait_values("x")

    def test_what_the_task_paused_stays_paused_over_pause_and_resume_of_the_connector(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.task.hooks["open"] = lambda _: sink.task.context.pause(T0)
        sink.start({T0: 0, T1: 0})
        sink.runner.pause()
        sink.wait_state("PAUSED")
        sink.runner.resume()
        sink.wait_state("RUNNING")
        sink.consumer.add(T1, "x")
        sink.wait_values("x")
        assert sink.consumer.paused == {T0}


def test_offsets_of_the_last_pre_commit_are_those_delivered(run: Sinks) -> None:
    sink = run(Sink(commit_interval_s=0.02)).start({T0: 0})
    sink.consumer.add(T0, "a", "b")
    sink.wait_values("a", "b")
    sink.task.diary.wait_for_entry("pre_commit", 3)
    asked = sink.task.diary.of("pre_commit")
    assert asked[-1] == {T0: 2}
    assert sink.consumer.commits == [{T0: 2}]
