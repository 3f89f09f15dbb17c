"""One connector instance on its thread."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from testkit.connectors.probes import BOARD, ProbeSink
from testkit.waiting import await_true
from tools.chaos.cases.troublemakers import no_more_threads

from penstock.api import Connector, ConnectorContext
from penstock.errors import ConnectException, KafkaRetriableException, RetriableException
from penstock.model import State, TargetState
from penstock.telemetry.waits import standstill_of
from penstock.threads import NoThreadException
from penstock.worker.connector_runner import ConnectorRunner, ConnectorSpec, RunnerSinkContext
from penstock.worker.task.plugin_metrics import InstanceMetrics
from penstock.worker.task.waiting import Retries, RetryBackoff


class NoRequests:
    """A herder that serves nothing."""

    def request_task_reconfiguration(self, connector: str) -> None:
        """Nothing."""

    def restart_tasks(self, connector: str, task_ids: object) -> None:
        """Nothing."""


class Run:
    """A runner and what it reported."""

    def __init__(self, make: type[Connector] = ProbeSink, longest_s: float = 60.0) -> None:
        BOARD.clear()
        self.states: list[State] = []
        self.put_off = 0
        backoff = RetryBackoff(longest_s, "errors.retry.delay.max.ms", share=lambda: 0.0)
        retries = Retries("a", "sink_retry", backoff, of_connector=True)
        spec = ConnectorSpec("a", {"name": "a"}, make, self._context, TargetState.STARTED, retries)
        self.runner = ConnectorRunner(spec, lambda state, trace: self.states.append(state), self._on_put_off)

    def _on_put_off(self) -> None:
        self.put_off += 1

    def _context(self, raise_error: object) -> ConnectorContext:
        return RunnerSinkContext("a", NoRequests(), raise_error, InstanceMetrics.unread())  # type: ignore[arg-type]


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    for event in BOARD.block.values():
        event.set()
    made.runner.shut_down().result(30)


def test_calls_run_on_the_connectors_thread(run: Run) -> None:
    assert run.runner.start().result(30) is TargetState.STARTED
    plan = run.runner.task_plan(3).result(30)
    assert [config["part"] for config in plan.configs] == ["0", "1", "2"]
    run.runner.shut_down().result(30)
    assert run.states == [State.RUNNING, State.UNASSIGNED]
    assert BOARD.of("a") == ["start", "task_configs", "stop"]


def test_a_newer_request_pre_empts_one_that_has_not_begun(run: Run) -> None:
    BOARD.block["a", "start"] = threading.Event()
    started = run.runner.start()
    await_true(lambda: "start" in BOARD.of("a"))
    pause = run.runner.transition(TargetState.PAUSED)
    stop = run.runner.transition(TargetState.STOPPED)
    with pytest.raises(ConnectException, match="to PAUSED before another request to change it to STOPPED"):
        pause.result(30)
    BOARD.block["a", "start"].set()
    assert started.result(30) is TargetState.STARTED
    assert stop.result(30) is TargetState.STOPPED
    assert run.states == [State.RUNNING, State.STOPPED]


def test_tasks_are_not_configured_by_a_connector_that_is_not_running(run: Run) -> None:
    run.runner.start().result(30)
    run.runner.transition(TargetState.PAUSED).result(30)
    with pytest.raises(ConnectException, match="not running"):
        run.runner.task_plan(1).result(30)


def test_a_cancelled_instance_says_nothing_more_and_its_callers_are_told(run: Run) -> None:
    BOARD.block["a", "start"] = threading.Event()
    started = run.runner.start()
    await_true(lambda: "start" in BOARD.of("a"))
    plan = run.runner.task_plan(1)
    ended = run.runner.shut_down()
    with pytest.raises(ConnectException, match="shutting down"):
        plan.result(30)
    assert not ended.done()
    run.runner.cancel()
    ended.result(30)
    with pytest.raises(ConnectException, match="abandoned"):
        started.result(30)
    BOARD.block["a", "start"].set()
    await_true(lambda: BOARD.of("a") == ["start", "stop"])
    assert run.states == [State.UNASSIGNED]


def test_a_constructor_that_raises_fails_the_connector() -> None:
    class Broken(ProbeSink):
        def __init__(self) -> None:
            raise ValueError("no licence")

    made = Run(Broken)
    with pytest.raises(ConnectException, match="no licence"):
        made.runner.start().result(30)
    assert made.states == [State.FAILED]
    made.runner.shut_down().result(30)


def test_a_connector_that_gets_no_thread_fails_and_is_at_its_end() -> None:
    made = Run()
    with no_more_threads():
        started = made.runner.start()
        with pytest.raises(NoThreadException, match=r"the thread connector-a: .* Raise the limit"):
            started.result(0)
    assert made.states == [State.FAILED]
    made.runner.shut_down().result(0)


def test_a_connector_that_failed_to_initialize_is_initialized_again_when_stopped_and_resumed() -> None:
    class Flaky(ProbeSink):
        tries = 0

        def initialize(self, context: ConnectorContext) -> None:
            type(self).tries += 1
            if self.tries == 1:
                raise ConnectException("not yet")
            super().initialize(context)

    made = Run(Flaky)
    with pytest.raises(ConnectException, match="not yet"):
        made.runner.start().result(30)
    made.runner.transition(TargetState.STOPPED).result(30)
    made.runner.transition(TargetState.STARTED).result(30)
    assert made.states == [State.FAILED, State.STOPPED, State.RUNNING]
    made.runner.shut_down().result(30)


#: The database is away, and comes back before the test is over only if somebody takes the error from the board.
AWAY = RetriableException("the database is away", retry_after_s=3600)


def waiting_run(call: str = "start", error: Exception = AWAY) -> Run:
    made = Run()
    BOARD.fail["a", call] = error
    return made


@pytest.mark.parametrize("error", [RetriableException("away"), KafkaRetriableException("away")])
def test_a_start_that_asks_for_it_is_called_again_until_it_works(error: Exception, caplog: Any) -> None:
    made = Run(longest_s=0.02)
    BOARD.fail["a", "start"] = error
    started = made.runner.start()
    await_true(lambda: BOARD.of("a").count("start") >= 4)
    waiting, found = made.runner.waiting, standstill_of("connector a")
    assert waiting is not None
    assert found is not None
    assert (found.reason, found.connector, found.details["cause"]) == (
        "sink_retry",
        "a",
        f"{type(error).__name__}: away",
    )
    assert made.states == [State.UNASSIGNED], "the state is written once"
    assert made.put_off >= 3
    BOARD.fail.clear()
    assert started.result(30) is TargetState.STARTED
    assert made.states == [State.UNASSIGNED, State.RUNNING]
    assert made.runner.waiting is None
    assert standstill_of("connector a") is None
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(told) == 1
    assert told[0].startswith(f"Connector a: start() asks to be called again: {type(error).__name__}: away.")
    made.runner.shut_down().result(30)
    assert BOARD.of("a")[-1] == "stop"


def test_task_configurations_are_asked_for_again_while_the_connector_runs() -> None:
    made = Run(longest_s=0.02)
    made.runner.start().result(30)
    BOARD.fail["a", "task_configs"] = RetriableException("away")
    plan = made.runner.task_plan(2)
    await_true(lambda: made.put_off >= 2)
    waiting = made.runner.waiting
    assert waiting is not None
    assert waiting.text.startswith("task_configs() asked to be called again")
    BOARD.fail.clear()
    assert len(plan.result(30).configs) == 2
    assert (made.states, made.runner.waiting) == ([State.RUNNING], None)
    made.runner.shut_down().result(30)


@pytest.mark.parametrize("target", [TargetState.PAUSED, TargetState.STOPPED])
def test_a_change_of_state_ends_the_wait_at_once_and_a_resume_calls_start_again(target: TargetState) -> None:
    made = waiting_run()
    started = made.runner.start()
    await_true(lambda: made.put_off == 1)
    assert made.runner.transition(target).result(30) is target
    with pytest.raises(ConnectException, match=f"to STARTED before another request to change it to {target.value}"):
        started.result(30)
    assert (made.states[-1], made.runner.waiting, standstill_of("connector a")) == (State(target.value), None, None)
    BOARD.fail.clear()
    assert made.runner.transition(TargetState.STARTED).result(30) is TargetState.STARTED
    assert BOARD.of("a") == ["start", "start"]
    made.runner.shut_down().result(30)


@pytest.mark.parametrize("call", ["start", "task_configs"])
def test_the_end_of_an_instance_ends_the_wait_at_once(call: str) -> None:
    made = waiting_run(call)
    started = made.runner.start()
    plan = made.runner.task_plan(1)
    await_true(lambda: made.put_off == 1)
    made.runner.shut_down().result(30)
    with pytest.raises(ConnectException, match="shutting down"):
        plan.result(30)
    if call == "start":
        with pytest.raises(ConnectException, match="shutting down"):
            started.result(30)
    assert made.states[-1] is State.UNASSIGNED
    assert standstill_of("connector a") is None
    assert BOARD.of("a").count("stop") == (call == "task_configs"), "stop is owed only to one that has started"


@pytest.mark.parametrize("call", ["start", "task_configs"])
def test_an_error_that_the_connector_raises_ends_the_wait(call: str) -> None:
    made = waiting_run(call)
    started = made.runner.start()
    plan = made.runner.task_plan(1)
    await_true(lambda: made.put_off == 1)
    made.runner.raise_error(ValueError("the licence has ended"))
    if call == "start":
        with pytest.raises(ConnectException, match="the licence has ended"):
            started.result(30)
    with pytest.raises(ConnectException, match="not running"):
        plan.result(30)
    assert made.states[-1] is State.FAILED
    await_true(lambda: standstill_of("connector a") is None)
    made.runner.shut_down().result(30)


@pytest.mark.parametrize("call", ["start", "task_configs"])
def test_another_error_at_a_later_call_fails_it(call: str) -> None:
    made = Run(longest_s=0.02)
    BOARD.fail["a", call] = RetriableException("away")
    started = made.runner.start()
    plan = made.runner.task_plan(1)
    await_true(lambda: made.put_off >= 1)
    BOARD.fail["a", call] = ConnectException("the table was dropped")
    with pytest.raises(ConnectException, match="the table was dropped"):
        (started if call == "start" else plan).result(30)
    assert made.runner.waiting is None
    assert standstill_of("connector a") is None
    made.runner.shut_down().result(30)


def test_an_abandoned_instance_that_asks_again_is_not_called_again() -> None:
    threads: list[threading.Thread] = []

    class Noted(ProbeSink):
        def start(self, props: Mapping[str, str]) -> None:
            threads.append(threading.current_thread())
            super().start(props)

    made = Run(Noted)
    BOARD.fail["a", "start"] = AWAY
    BOARD.block["a", "start"] = threading.Event()
    made.runner.start()
    await_true(lambda: "start" in BOARD.of("a"))
    made.runner.shut_down()
    made.runner.cancel()
    BOARD.block["a", "start"].set()
    threads[0].join(30)
    assert (len(threads), threads[0].is_alive()) == (1, False)
    assert standstill_of("connector a") is None
