"""Tasks in processes of their own: what crosses, errors, contexts, calls beside each other, and how a process ends.

A process imports for a third of a second: tests that leave it as it was share one (``kept``), where the task starts
again. Those that are not slow look at each side once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from testkit.doubles.sink_doubles import ListReporter
from testkit.waiting import await_true
from tests.unit.worker import isolated_tasks

from penstock.api import OffsetAndMetadata, RecordMetadata, SinkFrame, SinkRecord, SourceFrame, TopicPartition
from penstock.data import STRING_SCHEMA
from penstock.errors import ConnectException, RetriableException, ToleranceExceededException, stack_trace
from penstock.model import ConnectorTaskId
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA
from penstock.telemetry import Metrics, Wait, waits
from penstock.threads import StopEvent
from penstock.worker.errors import ConsumedMessage, ErrorCounts, ErrorHandler, ErrorPolicy, message_as_text
from penstock.worker.isolation.process import TaskProcess, isolated
from penstock.worker.sink.context import DeliveredMessages, ErrantRecords, WorkerSinkTaskContext
from penstock.worker.source.transaction_boundaries import PartEnd, TransactionRequests
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.slot import class_name

TASK = ConnectorTaskId("orders", 0)
PLACE = TopicPartition("t", 0)


class SourceContext:
    """What a source task may ask, of a worker with one committed offset."""

    def __init__(self, requests: TransactionRequests | None = None) -> None:
        self.stopping = StopEvent()
        self.requests = requests
        self.told: list[Any] = []
        self.metrics = Metrics()
        self._own = InstanceMetrics(self.metrics, {"connector": "orders", "task": "0"}).plugin()

    def configs(self) -> dict[str, str]:
        return {"name": "orders"}

    def offset_storage_reader(self) -> Any:
        return self

    def offsets(self, partitions: Any) -> list[Any]:
        return [{"n": 4} if one == {"f": 1} else None for one in partitions]

    def transaction_context(self) -> TransactionRequests | None:
        return self.requests

    def advance(self, partition: Any, offset: Any) -> None:
        self.told.append((partition, offset))

    def progress(self, *told: Any) -> None:
        self.told.append(told)

    def plugin_metrics(self) -> Any:
        return self._own


class Reporter:
    """Takes one record, and then no more."""

    def __init__(self) -> None:
        self.reported: list[tuple[SinkRecord, BaseException]] = []

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        if self.reported:
            raise ToleranceExceededException("no more errors")
        self.reported.append((record, error))
        stored: Future[None] = Future()
        threading.Timer(0.05, stored.set_result, [None]).start()
        return stored


@pytest.fixture
def started():
    """Starts tasks, and ends their processes."""
    with contextlib.ExitStack() as ended:

        def start(cls: type, props: dict[str, str], context: Any = None, memory_max: int | None = None) -> Any:
            process = TaskProcess(TASK, class_name(cls), memory_max)
            ended.callback(process.close)
            task = isolated(cls, process)
            task.process = process
            task.initialize(context or SourceContext())
            task.start(props)
            return task

        yield start


@pytest.fixture(scope="module")
def process() -> Iterator[Any]:
    """A task in a process that serves several tests, which leave it as it was."""
    process = TaskProcess(TASK, class_name(isolated_tasks.DoingSource))
    task = isolated(isolated_tasks.DoingSource, process)
    task.process, task.asked = process, SourceContext()
    task.initialize(task.asked)
    yield task
    process.close()


@pytest.fixture
def kept(process: Any) -> Callable[..., Any]:
    """Starts the task again, in the process that is there."""

    def start(what: str, **more: str) -> Any:
        process.start({"do": what, **more})
        return process

    return start


def doing(started: Any, what: str, **more: Any) -> Any:
    return started(isolated_tasks.DoingSource, {"do": what}, **more)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def sink_context(reporter: Reporter | None = None, errant: ErrantRecords | None = None) -> WorkerSinkTaskContext:
    return WorkerSinkTaskContext(
        "orders task 0",
        read_config=dict,
        assignment=lambda: frozenset({PLACE}),
        reporter=reporter,  # type: ignore[arg-type]
        wake=lambda: None,
        errant=errant,
        kafka_cluster_id="cluster",
    )


class TestTransactions:
    @pytest.mark.slow
    def test_a_task_ends_its_transactions_from_its_process(self, started):
        requests = TransactionRequests("orders-0")
        task = started(isolated_tasks.BoundedSource, {}, SourceContext(requests))

        def cut(polled: Any) -> list[tuple[int, PartEnd]]:
            parts: Any = requests.cut(polled)
            return [(len(part), end) for part, end in parts]

        assert cut(task.poll()) == [(1, PartEnd.COMMIT), (2, PartEnd.POLL)]
        assert cut(task.poll()) == [(1, PartEnd.COMMIT), (2, PartEnd.ABORT)]
        with pytest.raises(ConnectException, match="asks for a commit and for an abort"):
            task.poll()

    @pytest.mark.slow
    def test_a_task_without_a_say_has_no_transaction_context(self, started):
        assert started(isolated_tasks.BoundedSource, {}).poll() is None


class TestSource:
    def test_records_cross_equal_and_share_their_schema(self, kept):
        task = kept("poll")

        records = task.poll()

        assert records == [isolated_tasks.DoingSource().record(n) for n in range(3)]
        assert len({id(record.value_schema) for record in records}) == 1
        assert records[0].value.schema is records[0].value_schema
        assert records[0].headers.last_with_name("kind").value == "order"

    def test_hooks_are_told_of_the_task_s_own_records_in_order(self, kept):
        task = kept("poll")
        records = [*task.poll(), *task.poll()]

        task.commit_record(records[1], RecordMetadata("t", 0, 17))
        task.commit_record(records[3], None)

        with pytest.raises(ValueError, match=r"'n': 1. at 17.*'n': 0. at None"):
            task.commit()

    def test_the_context_answers(self, kept):
        task = kept("poll")

        assert task.process.call("version") == "orders {'n': 4}"

    def test_metrics_are_measured_in_the_process(self, kept):
        task = kept("poll")
        task.poll()

        shown = [(name, value) for name, _, value in task.asked.metrics.read() if "most_polled" in name]
        assert shown == [("kafka_connect_plugins_most_polled", 3.0)]

    @pytest.mark.slow
    def test_wakeup_ends_a_poll_that_waits_and_its_records_arrive(self, started):
        task = doing(started, "wait")
        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(task.poll)
            task.wakeup()

            assert polled.result(5)[0].value == "woken"

    @pytest.mark.slow
    def test_a_stop_is_seen_by_a_poll_that_waits_without_a_wakeup(self, started):
        task = doing(started, "idle")
        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(task.poll)
            task.context.stopping.set()

            assert polled.result(30)[0].value == "stopped"

    def test_stop_runs_beside_a_poll_that_waits(self, kept):
        task = kept("wait")
        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(task.poll)
            task.stop()

            assert polled.result(5)[0].value == "woken"

    def test_frames_cross_with_their_rows_alone_and_their_positions_are_asked_for(self, started):
        task = started(isolated_tasks.Frames, {})

        frame = task.poll()

        assert isinstance(frame, SourceFrame)
        assert isinstance(frame.data, pa.Table)
        assert frame.data["value"].to_pylist() == [10, 11, 12, 13, 14]
        assert frame.data.nbytes == 40
        assert frame.offset_after is not None
        assert (frame.topic, frame.source_partition, frame.source_offset) == ("t", {"f": 1}, {"n": 15})
        assert frame.offset_after(2) == {"n": 13}

    @pytest.mark.slow
    def test_a_spark_dataframe_is_refused_with_what_to_do(self, started):
        task = started(isolated_tasks.Frames, {"spark": "yes"})

        with pytest.raises(ConnectException, match=r"returned a Spark DataFrame.*task\.isolation=none"):
            task.poll()

    def test_what_poll_must_not_return_is_named_by_its_kind(self, kept):
        assert type(kept("generator").poll()).__name__ == "generator"

    def test_what_cannot_be_pickled_is_refused_and_the_task_goes_on(self, kept):
        task = kept("lock")

        with pytest.raises(ConnectException, match=r"poll takes or gives cannot cross.*lock"):
            task.poll()
        assert task.process.call("version") == "orders {'n': 4}"

    def test_log_lines_and_prints_are_lines_of_the_worker_s_log(self, kept, caplog):
        caplog.set_level(logging.INFO)
        task = kept("log")
        task.poll()

        await_true(lambda: "a printed line" in caplog.messages)
        assert ("orders.reader", logging.WARNING, "a line of the log") in caplog.record_tuples


class TestErrors:
    def test_a_retriable_error_is_one_here_too(self, kept):
        with pytest.raises(RetriableException, match="not now"):
            kept("retry").poll()

    def test_an_author_s_error_keeps_class_message_cause_and_frames(self, kept):
        with pytest.raises(Exception, match="no rows in orders") as raised:
            kept("own-error").poll()

        trace = stack_trace(raised.value)
        assert trace.startswith("KeyError: 'price'\nLed to: tests.unit.worker.isolated_tasks.NoRowsError: no rows in")
        assert 'isolated_tasks.py", line' in trace
        assert "in poll" in trace
        assert 'self.prices["price"]' in trace


class TestSink:
    def test_a_sink_task_is_given_records_and_asks_its_context(self, started):
        context = sink_context(reporter := Reporter())
        task = started(isolated_tasks.Sink, {}, context=context)
        task.open([PLACE])
        records = [SinkRecord("t", 0, n, text, value_schema=STRING_SCHEMA) for n, text in enumerate(["a", "bad"])]
        task.put(records)
        context.set_closing(True)

        assert task.pre_commit({PLACE: OffsetAndMetadata(9)}) == {PLACE: OffsetAndMetadata(2)}
        assert (context.take_rewinds(), context.take_timeout_ms()) == ({PLACE: 7}, 500)
        assert context.commit_requested
        (record, error) = reporter.reported[0]
        assert record == records[1]
        assert (type(error).__name__, str(error)) == ("NoRowsError", "no rows in bad")

    @pytest.mark.slow
    def test_what_the_reporter_raises_crosses_twice(self, started):
        task = started(isolated_tasks.Sink, {}, context=sink_context(Reporter()))
        bad = SinkRecord("t", 0, 1, "bad", value_schema=STRING_SCHEMA)

        with pytest.raises(ToleranceExceededException, match="no more errors"):
            task.put([bad, bad])

    @pytest.mark.slow
    def test_a_frame_sink_is_given_the_rows(self, started):
        task = started(isolated_tasks.FrameSink, {}, context=sink_context())

        with pytest.raises(ValueError, match=r"\[2, 3\]"):
            task.put(SinkFrame(pa.table({"value": [1, 2, 3]}).slice(1), None, None))

    def test_rows_know_their_messages_are_reported_and_parts_are_written(self, started, tmp_path):
        errors = ErrorHandler(
            ErrorPolicy(tolerance_all=True), [reporter := ListReporter()], counts=ErrorCounts(), clock=lambda: 1,
            random=lambda: 0.5,
        )  # fmt: skip
        errant = ErrantRecords(errors, DeliveredMessages(dict), message_as_text)
        task = started(isolated_tasks.RowSink, {"file": str(tmp_path / "out")}, context=sink_context(errant=errant))
        values = ["old", "a", "bad", "b"]
        origin = pa.table(
            {"topic": ["t"] * 4, "partition": pa.array([0] * 4, pa.int32()), "offset": range(4)}
        )  # fmt: skip
        headers = pa.array([[{"key": "h", "value": b"1"}]] * 4, CONSUMED_SCHEMA.field("headers").type)
        table = pa.table(
            {"topic": ["merged"] * 4, "partition": [9] * 4, "offset": range(4), "timestamp": [5] * 4,
             "timestamp_type": [0] * 4, "key": ["k"] * 4, "value": values, "headers": headers}
        )  # fmt: skip

        task.put(SinkFrame(table, STRING_SCHEMA, STRING_SCHEMA, origin=origin))

        assert (tmp_path / "out").read_text().splitlines() == ["a t-0", "b t-0"]
        assert reporter.messages == [ConsumedMessage("t", 0, 2, 5, 0, b"k", b"bad", (("h", b"1"),))]
        assert str(reporter.failed[0].error.message) == "no rows in bad"

    @pytest.mark.slow
    def test_a_function_is_called_by_the_clock_until_the_task_ends_that(self, started, tmp_path):
        context = sink_context()
        task = started(isolated_tasks.RowSink, {"file": str(tmp_path / "out")}, context=context)
        (tmp_path / "out.late").touch()

        def call() -> None:
            found = context.calls.next_due(time.monotonic() + 60)
            if found is not None:
                found.call()

        with pytest.raises(RetriableException, match="not now"):
            call()
        (tmp_path / "out.late").unlink()
        call()
        call()
        assert (tmp_path / "out.ended").exists()
        assert context.calls.next_due(time.monotonic() + 60) is None
        task.stop()


class TestDeath:
    @pytest.mark.parametrize(
        ("what", "said"),
        [
            ("exit", "ended by itself, with exit status 3"),
            pytest.param("kill", r"ended by signal 9 \(SIGKILL\)", marks=pytest.mark.slow),
        ],
    )
    def test_a_process_that_ends_fails_its_task_and_says_how(self, started, what, said):
        task = doing(started, what)
        told: list[Exception] = []
        task.process.on_death = told.append

        with pytest.raises(ConnectException, match=said):
            task.poll()
        with pytest.raises(ConnectException, match=said):
            task.poll()
        assert len(told) == 1
        assert is_gone(task.process.pid)

    @pytest.mark.slow
    def test_memory_beyond_the_limit_is_an_error_of_the_task(self, started):
        task = doing(started, "leak", memory_max=256 * 1024 * 1024)

        with pytest.raises(MemoryError):
            task.poll()

    def test_a_task_that_was_ended_before_its_start_is_not_started(self):
        process = TaskProcess(TASK, class_name(isolated_tasks.DoingSource))
        process.kill()

        with pytest.raises(ConnectException, match="the task is ending"):
            isolated(isolated_tasks.DoingSource, process).initialize(SourceContext())

    def test_settings_are_neither_in_the_command_line_nor_in_the_environment(self, kept):
        task = kept("poll", password="s3cret-word")

        for name in ("cmdline", "environ"):
            with open(f"/proc/{task.process.pid}/{name}", "rb") as file:
                assert b"s3cret-word" not in file.read()


class TestExplained:
    """What the worker can tell of a thread that waits for a task's method, and how it ends such a task."""

    def polling(self, task: Any) -> tuple[Future[Any], Callable[[], Wait | None]]:
        """The task's poll in a thread, and what it waits for."""
        polled: Future[Any] = Future()

        def poll() -> None:
            try:
                polled.set_result(task.poll())
            except ConnectException as error:
                polled.set_exception(error)

        thread = threading.Thread(target=poll)
        thread.start()
        return polled, lambda: waits().get(thread.ident or 0)

    def end(self, task: Any, polled: Future[Any]) -> None:
        told: list[Exception] = []
        task.process.on_death = told.append
        task.process.kill()
        with pytest.raises(ConnectException, match=r"task\.shutdown\.graceful\.timeout\.ms"):
            polled.result(5)
        task.process.close()
        assert is_gone(task.process.pid)
        assert told == []

    @pytest.mark.slow
    @pytest.mark.parametrize("what", ["wait", "python-loop"])
    def test_the_process_says_where_a_method_stands_and_is_killed(self, started, what):
        task = doing(started, what)
        polled, wait = self.polling(task)

        def stack() -> Any:
            found = wait()
            return [] if found is None or found.elsewhere is None else found.elsewhere()

        await_true(lambda: any(file == isolated_tasks.__file__ for file, _, _ in stack()))
        functions = [function for _, _, function in stack()]
        assert functions.index("handle") < functions.index("poll")
        found = wait()
        assert found is not None
        assert (found.reason, found.detail) == ("user_code", "poll")
        self.end(task, polled)
        assert found.elsewhere is not None
        assert found.elsewhere() == ()

    @pytest.mark.slow
    def test_a_process_that_holds_its_interpreter_says_nothing_and_is_killed(self, started):
        task = doing(started, "c-loop")
        polled, wait = self.polling(task)

        await_true(lambda: (found := wait()) is not None and found.elsewhere is not None and found.elsewhere() == ())

        self.end(task, polled)


@pytest.mark.slow
def test_positions_that_move_and_progress_reach_the_worker(started: Any) -> None:
    context = SourceContext()
    task = started(isolated_tasks.MovingSource, {}, context)
    assert task.poll() is None
    assert context.told == [({"f": 1}, {"n": 9}), ({"f": 2}, None), (9, 20, "rows")]
