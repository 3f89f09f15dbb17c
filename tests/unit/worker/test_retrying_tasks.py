"""Tasks whose calls ask to be made again, sources and sinks: when that is done, and what is told meanwhile."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import pytest
from testkit.doubles.sink_doubles import T0, T1, Sink
from testkit.doubles.source_doubles import WAIT_S, ScriptedTask
from testkit.waiting import await_true
from tests.unit.worker.sink.test_task import Sinks, told
from tests.unit.worker.source.test_task import Rig, started, values

from penstock.errors import KafkaRetriableException, RetriableException
from penstock.model import State
from penstock.telemetry.waits import standstill_of
from penstock.worker.task.waiting import places, task_waiting

LONG = RetriableException("not yet", retry_after_s=3600)


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    made: list[Rig] = []
    yield made
    for rig in made:
        rig.runner.cancel()
        rig.runner.join(WAIT_S)


@pytest.fixture
def run() -> Iterator[Sinks]:
    sinks = Sinks()
    yield sinks
    sinks.end()


def test_a_poll_that_asks_again_is_called_less_and_less_often_and_says_so(rigs: list[Rig]) -> None:
    rig = started(rigs, Rig())
    rig.task.give(*[RetriableException("busy")] * 50)
    await_true(lambda: rig.runner.retries.count >= 3)
    found = rig.runner.hints.retry
    assert found is not None
    assert (found.reason, found.cause) == ("source_retry", "RetriableException: busy")
    # 19 times a second it once was.
    assert rig.runner.counts.failures <= 5
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert rig.runner.retries.waiting is None


@pytest.mark.parametrize("asked", ["stop", "pause"])
def test_a_long_wait_for_the_next_call_is_cut_short_by_a_stop_and_a_pause(rigs: list[Rig], asked: str) -> None:
    rig = started(rigs, Rig())
    rig.task.give(RetriableException("limit", retry_after_s=3600))
    await_true(lambda: rig.runner.retries.count == 1)
    began = time.monotonic()
    if asked == "pause":
        rig.runner.pause()
        rig.wait_state(State.PAUSED)
        rig.runner.resume()
        rig.task.give(values(1))
        rig.producer.wait_sent(1)
    rig.stop()
    assert time.monotonic() - began < 1.0
    assert "FAILED" not in rig.state_names()


def test_a_start_that_asks_again_is_called_again_and_the_task_runs_then(rigs: list[Rig]) -> None:
    rig = Rig()
    errors = deque([RetriableException("not yet", retry_after_s=0.01), KafkaRetriableException("not yet")])
    own = rig.task.start

    def start(props: Mapping[str, str]) -> None:
        own(props)
        if errors:
            raise errors.popleft()

    rig.task.start = start  # type: ignore[method-assign]
    started(rigs, rig)
    rig.task.give(values(1))
    rig.producer.wait_sent(1)
    rig.stop()
    assert rig.state_names() == ["RUNNING", "UNASSIGNED"]
    assert rig.task.calls == ["start", "start", "start", "stop"]


@pytest.mark.parametrize(("asked", "last"), [("stop", "UNASSIGNED"), ("pause", "RESTARTING")])
def test_a_start_that_waits_to_be_called_again_ends_at_once(rigs: list[Rig], asked: str, last: str) -> None:
    rig = Rig()

    def start(props: Mapping[str, str]) -> None:
        raise RetriableException("not yet", retry_after_s=3600)

    rig.task.start = start  # type: ignore[method-assign]
    started(rigs, rig)
    await_true(lambda: rig.runner.retries.count == 1)
    found = task_waiting("c-0", State.UNASSIGNED, places(), spark_up=True, hints=rig.runner.hints)
    assert (found.reason, found.count) == ("source_retry", 1)
    assert "start() asked to be called again, once by now: RetriableException: not yet" in found.text
    began = time.monotonic()
    getattr(rig.runner, asked)()
    assert rig.runner.join(1.0)
    assert time.monotonic() - began < 1.0
    assert rig.state_names() == [last]
    assert rig.task.calls == ["stop"]


def test_a_start_that_runs_is_not_woken_and_sees_that_the_task_is_to_stop(rigs: list[Rig]) -> None:
    rig = Rig()
    woken: list[str] = []
    entered, leave = threading.Event(), threading.Event()

    def start(props: Mapping[str, str]) -> None:
        entered.set()
        rig.task.context.stopping.wait(WAIT_S)
        leave.wait(WAIT_S)

    class Woken(type(rig.task)):  # type: ignore[misc]
        def wakeup(self) -> None:
            woken.append("wakeup")

    rig.task.__class__ = Woken
    rig.task.start = start  # type: ignore[method-assign]
    started(rigs, rig)
    assert entered.wait(WAIT_S)
    rig.runner.stop()
    leave.set()
    assert rig.runner.join(WAIT_S)
    assert woken == []
    assert rig.task.calls == ["stop"]
    assert rig.state_names() == ["UNASSIGNED"]


class TestIdle:
    """A source that waits as its guide says has nothing to do; its code is to blame for nothing."""

    @pytest.mark.parametrize("seconds", [None, 30.0])
    def test_a_poll_that_waits_on_the_event_of_its_context_has_no_data(
        self, rigs: list[Rig], seconds: float | None
    ) -> None:
        class Idle(ScriptedTask):
            def poll(self) -> None:
                self.wait_inside()

            def wait_inside(self) -> None:
                self.context.stopping.wait(seconds)

        rig = started(rigs, Rig(task=Idle()))

        def reason() -> str:
            return task_waiting("c-0", State.RUNNING, places(), spark_up=True, hints=rig.runner.hints).reason

        await_true(lambda: any(one.name == "task-c-0" for one in threading.enumerate()))
        rig.wait_state(State.RUNNING)
        await_true(lambda: "wait_inside" in str(places().get("task-c-0")))
        assert reason() == "no_data"
        rig.stop()


class TestOpen:
    """Partitions whose ``open`` asks to be called again: nothing of them is put, committed or closed before."""

    def opens(self, sink: Sink) -> int:
        return len(sink.task.diary.of("open"))

    def test_open_is_called_again_before_anything_is_put(self, run: Sinks) -> None:
        sink = run(Sink())
        errors: deque[Exception] = deque(
            [RetriableException("locked", retry_after_s=0.01), KafkaRetriableException("locked")]
        )
        sink.task.hooks["open"] = raising_each(errors)
        sink.start({T0: 0})
        sink.consumer.add(T0, "a", "b")
        sink.wait_values("a", "b")
        assert self.opens(sink) == 3
        sink.stop()
        assert sink.states == ["RUNNING", "UNASSIGNED"]
        assert sink.consumer.sync_commits == [{T0: 2}]
        assert sink.task.diary.of("close") == [[T0]]

    def test_it_is_told_and_ends_at_once_without_a_close_of_what_was_never_opened(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.task.hooks["open"] = lambda _: raising(LONG)
        sink.start({T0: 0})
        sink.consumer.add(T0, "a")
        await_true(lambda: told(sink).reason == "sink_retry")
        assert "open() asked to be called again, once by now: RetriableException: not yet" in told(sink).text
        await_true(lambda: sink.consumer.paused == {T0})
        began = time.monotonic()
        sink.stop()
        assert time.monotonic() - began < 1.0
        assert sink.task.diary.of("close") == []
        assert sink.consumer.sync_commits == []
        assert sink.values == []

    def test_partitions_that_come_meanwhile_are_opened_with_them(self, run: Sinks) -> None:
        sink = run(Sink())
        errors: deque[Exception] = deque([RetriableException("locked", retry_after_s=0.3)])
        sink.task.hooks["open"] = raising_each(errors)
        sink.start({T0: 0})
        sink.consumer.assign({T1: 0})
        sink.consumer.add(T1, "b")
        sink.wait_values("b")
        assert sink.task.diary.of("open") == [[T0], [T0, T1]]
        sink.consumer.add(T0, "a")
        sink.wait_values("b", "a")

    def test_what_goes_before_it_was_opened_is_forgotten_and_the_rest_goes_on(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.hooks["open"] = lambda _: raising(LONG)
        sink.consumer.assign({T1: 0})
        await_true(lambda: told(sink).reason == "sink_retry")
        sink.consumer.add(T0, "a")
        sink.consumer.revoke(T1)
        sink.wait_values("a")
        assert told(sink).reason == "no_data"
        sink.stop()
        assert sink.task.diary.of("close") == [[T0]]

    def test_another_error_of_open_fails_the_task(self, run: Sinks) -> None:
        sink = run(Sink())
        sink.task.hooks["open"] = lambda _: raising(ValueError("broken"))
        sink.start({T0: 0})
        sink.wait_state("FAILED")


class TestPut:
    """A ``put`` that asks for the same records again."""

    def test_the_cause_the_count_and_the_next_try_are_told(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.hooks["put"] = lambda _: raising(RetriableException("the database is locked", retry_after_s=0.02))
        sink.consumer.add(T0, "a")
        await_true(lambda: sink.runner.retries.count >= 3)
        body = told(sink).to_json()
        assert body["reason"] == "sink_retry"
        assert body["cause"] == "RetriableException: the database is locked"
        assert int(str(body["count"])) >= 3
        assert "next_try" in body
        assert standstill_of("task sink-0") is not None
        sink.task.hooks["put"] = lambda _: None
        await_true(lambda: told(sink).reason == "no_data")
        assert standstill_of("task sink-0") is None

    def test_when_the_partition_goes_nothing_is_tried_any_more(self, run: Sinks) -> None:
        sink = run(Sink()).start({T0: 0})
        sink.task.hooks["put"] = lambda _: raising(LONG)
        sink.consumer.add(T0, "a")
        await_true(lambda: told(sink).reason == "sink_retry")
        sink.consumer.revoke(T0)
        await_true(lambda: told(sink).reason == "no_partitions")


def raising(error: Exception) -> None:
    raise error


def raising_each(errors: deque[Exception]) -> Callable[[object], None]:
    """A hook that raises these one after the other, then nothing."""

    def hook(_: object) -> None:
        if errors:
            raise errors.popleft()

    return hook


def test_while_a_put_that_asked_again_runs_its_cause_is_told_with_where_it_stands(run: Sinks) -> None:
    sink = run(Sink()).start({T0: 0})
    calls: list[int] = []
    leave = threading.Event()

    def put(_: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            leave.wait(WAIT_S)
        raise RetriableException("no connection", retry_after_s=0.01)

    sink.task.hooks["put"] = put
    sink.consumer.add(T0, "a")
    await_true(lambda: len(calls) == 2)
    found = told(sink)
    assert (found.reason, found.cause) == ("sink_retry", "RetriableException: no connection")
    assert "That is being done." in found.text
    assert any("in put" in line for line in found.stack)
    leave.set()
