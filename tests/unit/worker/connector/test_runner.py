"""One connector instance on its thread."""

import threading
from collections.abc import Iterator

import pytest
from testkit.connectors.probes import BOARD, ProbeSink
from testkit.doubles.control_plane import await_true
from tools.chaos.cases.troublemakers import no_more_threads

from penstock.api import Connector, ConnectorContext
from penstock.errors import ConnectException
from penstock.model import State, TargetState
from penstock.threads import NoThreadException
from penstock.worker.connector.contexts import RunnerSinkContext
from penstock.worker.connector.runner import ConnectorRunner, ConnectorSpec
from penstock.worker.task.plugin_metrics import InstanceMetrics


class NoRequests:
    """A herder that serves nothing."""

    def request_task_reconfiguration(self, connector: str) -> None:
        """Nothing."""

    def restart_tasks(self, connector: str, task_ids: object) -> None:
        """Nothing."""


class Run:
    """A runner and what it reported."""

    def __init__(self, make: type[Connector] = ProbeSink, target: TargetState = TargetState.STARTED) -> None:
        BOARD.clear()
        self.states: list[State] = []
        spec = ConnectorSpec("a", {"name": "a"}, make, self._context, target)
        self.runner = ConnectorRunner(spec, lambda state, trace: self.states.append(state))

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
