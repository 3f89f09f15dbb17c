"""States, restarts and blocked connectors, and the test plan of KIP-875 for states, with a probe that counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SOURCE
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

from penstock.errors import ConnectException
from penstock.model import State

C = "/connectors/a"


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def counts(name: str = "a") -> tuple[int, int]:
    """How often a connector was started and stopped."""
    calls = BOARD.of(name)
    return calls.count("start"), calls.count("stop")


def ask(api: Api, request: str, state: str, tasks: int = 0) -> None:
    """Makes a request about a state and waits for its outcome."""
    status = api.call("PUT", f"{C}/{request}")
    assert status == ((204, None) if request == "stop" else (202, None))
    api.setup.await_state("a", state, [state] * tasks)


def test_every_state_follows_and_instances_start_and_stop_the_right_number_of_times(api: Api) -> None:
    api.create("a", **{"tasks.max": "2"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    assert counts() == (1, 0)
    ask(api, "stop", "STOPPED")
    assert api.call("GET", f"{C}/tasks") == (200, [])
    assert counts() == (1, 1)
    ask(api, "resume", "RUNNING", 2)
    assert counts() == (2, 1)
    ask(api, "pause", "PAUSED", 2)
    assert counts() == (2, 2)
    ask(api, "stop", "STOPPED")
    ask(api, "pause", "PAUSED")
    assert counts() == (2, 2)
    ask(api, "resume", "RUNNING", 2)
    assert counts() == (3, 2)
    assert api.call("DELETE", C) == (204, None)
    assert counts() == (3, 3)
    assert api.call("GET", f"{C}/status")[0] == 404
    assert len(api.setup.tasks) == 6


def test_kip_875_a_running_connector_can_be_stopped(api: Api) -> None:
    api.create("a")
    ask(api, "stop", "STOPPED")
    assert counts() == (1, 1)


def test_kip_875_a_paused_connector_can_be_stopped(api: Api) -> None:
    api.create("a")
    ask(api, "pause", "PAUSED", 1)
    ask(api, "stop", "STOPPED")
    assert counts() == (1, 1)


def test_kip_875_stopping_a_stopped_connector_changes_nothing(api: Api) -> None:
    api.create("a")
    ask(api, "stop", "STOPPED")
    ask(api, "stop", "STOPPED")
    assert counts() == (1, 1)


def test_kip_875_a_stopped_connector_can_be_deleted(api: Api) -> None:
    api.create("a")
    ask(api, "stop", "STOPPED")
    assert api.call("DELETE", C) == (204, None)
    assert api.call("GET", "/connectors") == (200, [])
    assert counts() == (1, 1)


def test_kip_875_a_stopped_connector_shows_no_tasks(api: Api) -> None:
    api.create("a")
    ask(api, "stop", "STOPPED")
    assert api.call("GET", f"{C}/tasks") == (200, [])
    assert api.call("GET", C)[1]["tasks"] == []
    assert api.call("GET", f"{C}/status")[1]["tasks"] == []
    assert api.error("GET", f"{C}/tasks/0/status") == (404, "No status found for task a-0")


def test_kip_875_a_stopped_connector_can_be_resumed(api: Api) -> None:
    api.create("a")
    ask(api, "stop", "STOPPED")
    ask(api, "resume", "RUNNING", 1)
    assert counts() == (2, 1)


def test_kip_875_a_stopped_connector_can_be_paused(api: Api) -> None:
    api.create("a")
    ask(api, "stop", "STOPPED")
    ask(api, "pause", "PAUSED")
    assert counts() == (1, 1)


def test_kip_875_stopping_a_failed_connector_makes_it_stopped(api: Api) -> None:
    api.create("a")
    BOARD.instances["a"][0].context().raise_error(ConnectException("lost the database"))
    api.setup.await_state("a", "FAILED", ["RUNNING"])
    ask(api, "stop", "STOPPED")
    assert "trace" not in api.call("GET", f"{C}/status")[1]["connector"]


def test_kip_875_a_connector_that_fails_while_it_stops_becomes_stopped(api: Api) -> None:
    api.create("a")
    BOARD.fail["a", "stop"] = ConnectException("cannot let go")
    ask(api, "stop", "STOPPED")


def test_kip_875_failed_before_and_again_during_the_stop_then_resumed(api: Api) -> None:
    api.create("a")
    BOARD.instances["a"][0].context().raise_error(ConnectException("lost the database"))
    api.setup.await_state("a", "FAILED", ["RUNNING"])
    BOARD.fail["a", "stop"] = ConnectException("cannot let go")
    ask(api, "stop", "STOPPED")
    BOARD.fail.clear()
    ask(api, "resume", "RUNNING", 1)


def test_a_connector_that_failed_to_start_is_stopped_then_fixed_and_resumed(api: Api) -> None:
    BOARD.fail["a", "start"] = ConnectException("no such database")
    assert api.create("a")[0] == 500
    api.setup.await_state("a", "FAILED", [])
    ask(api, "stop", "STOPPED")
    BOARD.fail.clear()
    ask(api, "resume", "RUNNING", 1)


def test_restarting_the_connector_leaves_a_failed_task_and_restarting_the_task_brings_it_back(
    api: Api,
) -> None:
    api.setup.task_error = ConnectException("no such folder")
    api.create("a")
    api.setup.await_state("a", "RUNNING", ["FAILED"])
    trace = api.call("GET", f"{C}/status")[1]["tasks"][0]["trace"]
    assert "no such folder" in trace
    assert api.call("POST", f"{C}/restart") == (204, None)
    api.setup.await_state("a", "RUNNING", ["FAILED"])
    assert counts() == (2, 1)
    api.setup.task_error = None
    assert api.call("POST", f"{C}/tasks/0/restart") == (204, None)
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert "trace" not in api.call("GET", f"{C}/tasks/0/status")[1]


def test_only_what_failed_restarts(api: Api) -> None:
    api.create("a", **{"tasks.max": "3"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 3)
    failed = next(task for task in api.setup.tasks if task.request.id.task == 1)
    failed.report(State.FAILED, "trace")
    api.setup.await_state("a", "RUNNING", ["RUNNING", "FAILED", "RUNNING"])
    status, plan = api.call("POST", f"{C}/restart?includeTasks=true&onlyFailed=true")
    assert status == 202
    assert [task["state"] for task in plan["tasks"]] == ["RUNNING", "RESTARTING", "RUNNING"]
    assert plan["connector"]["state"] == "RUNNING"
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 3)
    assert counts() == (1, 0)
    assert len(api.setup.tasks) == 4


def test_nothing_restarts_when_nothing_failed(api: Api) -> None:
    api.create("a")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    status, plan = api.call("POST", f"{C}/restart?includeTasks=false&onlyFailed=true")
    assert (status, plan["connector"]["state"], plan["tasks"][0]["state"]) == (202, "RUNNING", "RUNNING")
    assert counts() == (1, 0)
    assert len(api.setup.tasks) == 1


def test_connector_and_tasks_restart_exactly_once(api: Api) -> None:
    api.create("a", **{"tasks.max": "2"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    assert api.call("POST", f"{C}/restart?includeTasks=true&onlyFailed=false")[0] == 202
    await_true(lambda: counts() == (2, 1) and len(api.setup.tasks) == 4)
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    assert counts() == (2, 1)
    assert len(api.setup.tasks) == 4


@pytest.mark.parametrize("query", ["", "?includeTasks=true", "?onlyFailed=true", "?includeTasks=true&onlyFailed=true"])
def test_restart_of_an_unknown_connector_is_404(api: Api, query: str) -> None:
    assert api.error("POST", f"/connectors/x/restart{query}") == (404, "Unknown connector: x")


def test_a_restart_with_an_unreadable_secret_fails_and_the_task_goes_on(api: Api) -> None:
    api.create("a", password="${env:SECRET}")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    resolve = api.setup.worker.resolve

    def unreadable(config: object) -> dict[str, str]:
        raise ConnectException("the vault does not answer")

    api.setup.worker.resolve = unreadable  # type: ignore[method-assign]
    for path in (f"{C}/restart", f"{C}/tasks/0/restart", f"{C}/restart?includeTasks=true"):
        status, message = api.error("POST", path)
        assert status == 500
        assert "vault" in message
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert counts() == (1, 0)
    api.setup.worker.resolve = resolve  # type: ignore[method-assign]
    assert api.call("POST", f"{C}/tasks/0/restart") == (204, None)
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert len(api.setup.tasks) == 2


def test_restart_of_an_unknown_task_is_404(api: Api) -> None:
    api.create("a")
    assert api.error("POST", f"{C}/tasks/5/restart") == (404, "Task a-5 not found")
    assert api.error("POST", f"{C}/tasks/x/restart") == (404, "HTTP 404 Not Found")


def test_a_new_configuration_gets_through_when_the_old_one_cannot_be_read(api: Api) -> None:
    api.create("a", password="${env:SECRET}")
    BOARD.fail["a", "task_configs"] = ConnectException("cannot list tables")
    api.call("POST", f"{C}/restart")
    api.setup.await_state("a", "FAILED", ["RUNNING"])
    api.setup.env.clear()
    BOARD.fail.clear()
    assert api.call("PUT", f"{C}/config", {"connector.class": SOURCE, "table": "t"})[0] == 200
    api.setup.await_state("a", "RUNNING", ["RUNNING"])


def create_in_time(api: Api, name: str) -> None:
    """Creates a connector, in another try when the busy machine lets a request take longer than it may here."""
    await_true(lambda: api.create(name)[0] in (201, 409))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("validate", "validating the configuration"),
        ("start", "start()"),
    ],
)
def test_a_blocked_connector_ends_its_request_with_a_timeout_that_names_the_step(method: str, words: str) -> None:
    with serving(timeout_s=0.5) as api:
        BOARD.block["a", method] = leave = threading.Event()
        status, message = api.error("POST", "/connectors", {"name": "a", "config": {"connector.class": SOURCE}})
        assert status == 500
        assert message.startswith("Request timed out. The worker is currently ")
        assert f"{words} of connector a, which began at 2" in message
        create_in_time(api, "b")
        api.setup.await_state("b", "RUNNING", ["RUNNING"])
        assert api.call("GET", "/connectors?expand=status&expand=info")[0] == 200
        leave.set()


def test_a_connector_blocked_in_config_ends_its_request_with_a_timeout() -> None:
    with serving(timeout_s=0.5) as api:
        api.setup.validator.strict = True
        # It has no name yet when it is asked what its settings are.
        BOARD.block["", "config"] = leave = threading.Event()
        status, message = api.error("POST", "/connectors", {"name": "a", "config": {"connector.class": SOURCE}})
        assert status == 500
        assert "validating the configuration of connector a, which began at 2" in message
        del BOARD.block["", "config"]
        create_in_time(api, "b")
        api.setup.await_state("b", "RUNNING", ["RUNNING"])
        assert [one["status"]["name"] for one in api.call("GET", "/connectors?expand=status")[1].values()] == ["b"]
        leave.set()


def test_a_connector_blocked_in_stop_is_abandoned_and_others_go_on(api: Api) -> None:
    api.create("a")
    BOARD.block["a", "stop"] = threading.Event()
    assert api.call("DELETE", C) == (204, None)
    assert api.create("b")[0] == 201
    api.setup.await_state("b", "RUNNING", ["RUNNING"])


@pytest.mark.parametrize(("method", "state"), [("start", "UNASSIGNED"), ("stop", "RUNNING")])
def test_a_blocked_task_does_not_keep_its_connector_from_being_deleted(api: Api, method: str, state: str) -> None:
    api.setup.stuck = method
    api.create("a")
    api.setup.await_state("a", "RUNNING", [state])
    api.setup.stuck = ""
    api.create("b")
    assert api.call("DELETE", C) == (204, None)
    assert api.setup.tasks[0].cancelled
    api.setup.await_state("b", "RUNNING", ["RUNNING"])
    assert api.create("a")[0] == 201
    api.setup.await_state("a", "RUNNING", ["RUNNING"])


def test_pausing_leaves_a_failed_task_failed(api: Api) -> None:
    api.create("a", **{"tasks.max": "2"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    failed = next(task for task in api.setup.tasks if task.request.id.task == 0)
    failed.report(State.FAILED, "trace")
    api.setup.await_state("a", "RUNNING", ["FAILED", "RUNNING"])
    api.call("PUT", f"{C}/pause")
    api.setup.await_state("a", "PAUSED", ["FAILED", "PAUSED"])


def test_a_restart_keeps_what_was_asked_for(api: Api) -> None:
    api.create("a")
    ask(api, "pause", "PAUSED", 1)
    assert api.call("POST", f"{C}/restart")[0] == 204
    api.setup.await_state("a", "PAUSED", ["PAUSED"])
    assert api.call("POST", f"{C}/tasks/0/restart")[0] == 204
    api.setup.await_state("a", "PAUSED", ["PAUSED"])
    ask(api, "stop", "STOPPED")
    assert api.call("POST", f"{C}/restart")[0] == 204
    assert api.call("POST", f"{C}/restart?includeTasks=true")[0] == 202
    api.setup.await_state("a", "STOPPED", [])
    assert api.error("POST", f"{C}/tasks/0/restart")[0] == 404
