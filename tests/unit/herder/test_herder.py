"""The standalone herder over a real worker with doubles for tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SINK, SOURCE, Setup, running
from testkit.waiting import await_true

from penstock.api import SourceConnectorContext
from penstock.errors import AlreadyExistsException, ConnectException, IllegalWorkerStateException, NotFoundException
from penstock.herder import Health, Herder
from penstock.herder.offset_changes import AlterRequest, OffsetEntry
from penstock.model import ConnectorTaskId, State, TargetState
from penstock.stores.offsets import OffsetReader


@pytest.fixture
def setup() -> Iterator[Setup]:
    with running() as started:
        yield started


def test_a_created_connector_runs_with_its_tasks(setup: Setup) -> None:
    created = setup.herder.put_connector("a", {"connector.class": SOURCE, "tasks.max": "2"}).result(10)

    assert created.created
    assert len(created.view.task_configs) == 2
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])
    assert setup.herder.connectors()["a"].task_configs[1] == {
        "part": "1",
        "task.class": "testkit.connectors.probes.ProbeTask",
    }
    assert BOARD.instances["a"][0].props == {"connector.class": SOURCE, "tasks.max": "2", "name": "a"}


def test_a_name_is_taken_once(setup: Setup) -> None:
    setup.put("a")
    with pytest.raises(AlreadyExistsException, match="Connector a already exists"):
        setup.herder.put_connector("a", {"connector.class": SOURCE}).result(10)


def test_tasks_of_a_sink_get_its_topics(setup: Setup) -> None:
    setup.put("s", SINK, topics="x,y")
    assert setup.herder.connectors()["s"].task_configs[0]["topics"] == "x,y"


def test_a_changed_configuration_makes_a_new_instance_and_new_tasks(setup: Setup) -> None:
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.put("a", value_converter="Other")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    assert BOARD.of("a") == ["start", "task_configs", "stop", "start", "task_configs"]
    await_true(lambda: len(setup.tasks) == 2)
    assert setup.tasks[1].request.connector_config["value.converter"] == "Other"


def test_the_same_configuration_again_leaves_the_tasks_alone(setup: Setup) -> None:
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    assert len(setup.tasks) == 1


def test_a_deleted_connector_leaves_nothing(setup: Setup) -> None:
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.herder.delete_connector("a").result(10)
    assert dict(setup.herder.connectors()) == {}
    assert BOARD.of("a")[-1] == "stop"
    with pytest.raises(NotFoundException, match="Connector a not found"):
        setup.herder.delete_connector("a").result(10)
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])


def test_a_connector_that_cannot_start_is_shown_and_its_error_told(setup: Setup) -> None:
    BOARD.fail["a", "start"] = ConnectException("no such database")
    with pytest.raises(ConnectException, match="no such database"):
        setup.put("a")
    setup.await_state("a", "FAILED", [])
    status = setup.herder.connectors()["a"].status
    assert status is not None
    assert status.trace is not None
    assert "no such database" in status.trace

    BOARD.fail.clear()
    setup.herder.restart_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])


def test_a_blocked_connector_blocks_neither_reads_nor_other_connectors(setup: Setup) -> None:
    BOARD.block["slow", "start"] = threading.Event()
    waiting = setup.herder.put_connector("slow", {"connector.class": SOURCE})
    await_true(lambda: "start" in BOARD.of("slow"))

    setup.put("quick")
    setup.await_state("quick", "RUNNING", ["RUNNING"])
    assert not waiting.done()
    assert "slow" in setup.herder.connectors()

    setup.herder.delete_connector("slow").result(10)
    with pytest.raises(ConnectException, match="slow"):
        waiting.result(10)
    assert set(setup.herder.connectors()) == {"quick"}


def test_more_tasks_than_allowed_fail_the_connector(setup: Setup) -> None:
    BOARD.configs["a"] = [{}, {}, {}]
    with pytest.raises(ConnectException, match=r"generated 3 task configs.*tasks\.max"):
        setup.put("a", tasks_max="2")
    setup.await_state("a", "FAILED", [])


def test_more_tasks_than_allowed_run_when_that_is_not_enforced(setup: Setup) -> None:
    BOARD.configs["a"] = [{}, {}, {}]
    setup.put("a", tasks_max="2", tasks_max_enforce="false")
    setup.await_state("a", "RUNNING", ["RUNNING"] * 3)


def test_a_request_for_reconfiguration_restarts_tasks_only_when_they_changed(setup: Setup) -> None:
    BOARD.configs["a"] = [{"file": "x"}]
    setup.put("a", tasks_max="2")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    context = BOARD.instances["a"][0].context()

    context.request_task_reconfiguration()
    await_true(lambda: BOARD.of("a").count("task_configs") == 2)
    assert len(setup.tasks) == 1

    BOARD.configs["a"] = []
    context.request_task_reconfiguration()
    setup.await_state("a", "RUNNING", [])
    BOARD.configs["a"] = [{"file": "x"}, {"file": "y"}]
    context.request_task_reconfiguration()
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])


def test_a_connector_reads_offsets_and_restarts_its_tasks(setup: Setup) -> None:
    setup.put("a", tasks_max="2")
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])
    context = BOARD.instances["a"][0].context()
    assert isinstance(context, SourceConnectorContext)
    assert context.offset_storage_reader().offset({"file": "f"}) == {"read": "f"}

    context.restart_tasks([1, 9])
    await_true(lambda: len(setup.tasks) == 3)
    assert setup.tasks[2].request.id == ConnectorTaskId("a", 1)
    context.restart_tasks()
    await_true(lambda: len(setup.tasks) == 5)


def test_a_closed_context_refuses_everything(setup: Setup) -> None:
    setup.put("a")
    context = BOARD.instances["a"][0].context()
    reader = context.offset_storage_reader()
    setup.herder.delete_connector("a").result(10)
    with pytest.raises(IllegalWorkerStateException):
        context.request_task_reconfiguration()
    with pytest.raises(ConnectException, match="closed"):
        reader.offset({"file": "f"})


def test_metrics_of_a_connector_stay_while_it_rests_and_go_with_its_instance(setup: Setup) -> None:
    setup.put("a")
    first = BOARD.instances["a"][0].context().plugin_metrics()
    first.add_metric(first.metric_name("tables"), lambda: 3)
    setup.herder.pause_connector("a").result(10)
    setup.await_state("a", "PAUSED", ["PAUSED"])
    assert setup.metrics.total("kafka_connect_plugins_tables", connector="a") == 3

    setup.herder.restart_connector("a").result(10)
    assert setup.metrics.total("kafka_connect_plugins_tables") == 0
    with pytest.raises(IllegalWorkerStateException, match="connector=a are closed: it has ended"):
        first.metric_name("tables")


def test_metrics_of_an_abandoned_connector_go_and_it_adds_no_more(setup: Setup) -> None:
    setup.put("s", SINK)
    context = BOARD.instances["s"][0].context()
    own = context.plugin_metrics()
    own.add_metric(own.metric_name("tables"), lambda: 3)
    BOARD.block["s", "stop"] = threading.Event()
    setup.herder.delete_connector("s").result(10)
    assert setup.metrics.total("kafka_connect_plugins_tables") == 0
    with pytest.raises(IllegalWorkerStateException):
        context.plugin_metrics()


def test_an_error_raised_by_a_connector_leaves_its_tasks_running(setup: Setup) -> None:
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    context = BOARD.instances["a"][0].context()
    context.raise_error(ConnectException("first"))
    context.raise_error(ConnectException("second"))
    setup.await_state("a", "FAILED", ["RUNNING"])
    status = setup.herder.connectors()["a"].status
    assert status is not None
    assert status.trace is not None
    assert "first" in status.trace


def test_pause_resume_and_stop_on_one_instance(setup: Setup) -> None:
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.herder.pause_connector("a").result(10)
    setup.await_state("a", "PAUSED", ["PAUSED"])
    setup.herder.resume_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.herder.stop_connector("a").result(10)
    setup.await_state("a", "STOPPED", [])
    setup.herder.pause_connector("a").result(10)
    setup.await_state("a", "PAUSED", [])
    setup.herder.resume_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    assert len(BOARD.instances["a"]) == 3
    assert len(set(map(id, BOARD.instances["a"]))) == 1


def test_a_request_that_a_newer_one_overtakes_is_no_error(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    setup.put("a")
    BOARD.block["a", "stop"] = leave = threading.Event()
    setup.herder.pause_connector("a").result(10)
    await_true(lambda: "stop" in BOARD.of("a"))

    def said() -> list[str]:
        return [one.levelname for one in caplog.records if "before another request" in one.getMessage()]

    with caplog.at_level("INFO"):
        for request in (setup.herder.resume_connector, setup.herder.pause_connector, setup.herder.resume_connector):
            request("a").result(10)
        leave.set()
        setup.await_state("a", "RUNNING", ["RUNNING"])
        await_true(lambda: said() == ["INFO", "INFO"])
    assert "ERROR" not in [record.levelname for record in caplog.records]


def test_a_connector_created_stopped_has_no_tasks_until_resumed(setup: Setup) -> None:
    setup.herder.put_connector("a", {"connector.class": SOURCE}, target=TargetState.STOPPED).result(10)
    setup.await_state("a", "STOPPED", [])
    assert BOARD.of("a") == []
    setup.put("a", value_converter="Other")
    setup.await_state("a", "STOPPED", [])
    setup.herder.resume_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])


def test_a_task_that_cannot_be_built_fails_and_can_be_restarted(setup: Setup) -> None:
    setup.task_error = ConnectException("bad converter")
    setup.put("a")
    setup.await_state("a", "RUNNING", ["FAILED"])
    assert "bad converter" in str(setup.herder.connectors()["a"].tasks[0].trace)

    setup.task_error = None
    setup.herder.restart_task("a", 0).result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    with pytest.raises(NotFoundException, match="Task a-5 not found"):
        setup.herder.restart_task("a", 5).result(10)
    with pytest.raises(NotFoundException, match="Unknown connector: b"):
        setup.herder.restart_task("b", 0).result(10)


def test_tasks_fail_with_what_they_all_need_and_can_be_restarted(setup: Setup) -> None:
    setup.put("a", tasks_max="2")
    setup.put("b")
    setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    setup.await_state("b", "RUNNING", ["RUNNING"])
    setup.worker.fail_tasks(ConnectException("no session"))
    setup.await_state("a", "RUNNING", ["FAILED"] * 2)
    setup.await_state("b", "RUNNING", ["FAILED"])
    assert "no session" in str(setup.herder.connectors()["b"].tasks[0].trace)
    setup.herder.restart_task("b", 0).result(10)
    setup.await_state("b", "RUNNING", ["RUNNING"])


def test_restart_of_failed_tasks_only_touches_those(setup: Setup) -> None:
    setup.put("a", tasks_max="2")
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])
    failed = next(task for task in setup.tasks if task.request.id.task == 1)
    failed.report(State.FAILED, "trace of old")
    setup.await_state("a", "RUNNING", ["RUNNING", "FAILED"])

    answer = setup.herder.restart_connector_and_tasks("a", include_tasks=True, only_failed=True).result(10)

    assert answer["connector"] == {"state": "RUNNING", "worker_id": "127.0.0.1:8083", "version": "7"}
    assert answer["tasks"] == [
        {"id": 0, "state": "RUNNING", "worker_id": "127.0.0.1:8083", "version": "7"},
        {"id": 1, "state": "RESTARTING", "worker_id": "127.0.0.1:8083", "version": "7", "trace": "trace of old"},
    ]
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])
    assert len(setup.tasks) == 3
    assert BOARD.of("a") == ["start", "task_configs"]


def test_a_stuck_task_is_abandoned_after_its_deadline_and_its_words_do_not_count(setup: Setup) -> None:
    setup.stuck = "stop"
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.stuck = ""
    setup.herder.restart_task("a", 0).result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    assert setup.tasks[0].cancelled
    setup.tasks[0].report(State.FAILED, "late")
    setup.herder.restart_task("a", 0).result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])


def test_placeholders_are_resolved_for_connector_and_task_and_shown_raw(setup: Setup) -> None:
    BOARD.configs["a"] = [{"password": "hunter2", "other": "hunter2"}]
    setup.put("a", password="${env:SECRET}")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    view = setup.herder.connectors()["a"]
    assert view.config["password"] == "${env:SECRET}"
    assert view.task_configs[0]["password"] == "${env:SECRET}"
    assert BOARD.instances["a"][0].props["password"] == "hunter2"
    assert setup.tasks[0].request.task_config["password"] == "hunter2"


def test_shutdown_stops_tasks_and_connectors_and_refuses_requests() -> None:
    with running() as setup:
        setup.put("a")
        setup.put("b", SINK, topics="t")
        setup.await_state("b", "RUNNING", ["RUNNING"])
        assert setup.herder.stop(10)
        assert BOARD.of("a")[-1] == "stop"
        assert BOARD.of("b")[-1] == "stop"
        with pytest.raises(ConnectException, match="shutting down"):
            setup.herder.delete_connector("a").result(10)


def test_requests_wait_until_the_worker_is_there() -> None:
    setup = Setup()
    BOARD.clear()
    setup.herder.start()
    try:
        assert setup.herder.health()[0] is Health.STARTING
        early = setup.herder.put_connector("a", {"connector.class": SOURCE})
        setup.serve()
        assert early.result(10).created
        assert setup.herder.health()[0] is Health.HEALTHY
        assert setup.herder.kafka_cluster_id == "cluster"
    finally:
        setup.herder.stop(10)


def offset_request() -> AlterRequest:
    return AlterRequest([OffsetEntry({"file": "f"}, {"position": 4})])


CHANGES: dict[str, Callable[[Herder], Future[Any]]] = {
    "resume": lambda herder: herder.resume_connector("a"),
    "pause": lambda herder: herder.pause_connector("a"),
    "stop": lambda herder: herder.stop_connector("a"),
    "restart": lambda herder: herder.restart_connector("a"),
    "restart with tasks": lambda herder: herder.restart_connector_and_tasks("a", include_tasks=True, only_failed=False),
    "delete": lambda herder: herder.delete_connector("a"),
    "config": lambda herder: herder.put_connector("a", {"connector.class": SOURCE, "x": "y"}, replace=True),
    "patch": lambda herder: herder.patch_connector("a", {"x": "y"}),
    "more offsets": lambda herder: herder.reset_offsets("a", dry_run=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_connector_wait_for_a_request_about_its_offsets(setup: Setup, change: str) -> None:
    setup.put("a")
    setup.herder.stop_connector("a").result(10)
    free = BOARD.block["a", "alter_offsets"] = threading.Event()
    altering = setup.herder.alter_offsets("a", offset_request())
    await_true(lambda: len(BOARD.altered) == 1)

    changing = CHANGES[change](setup.herder)
    # Another connector's requests go the whole way meanwhile.
    setup.put("b")
    setup.herder.pause_connector("b").result(10)
    assert not changing.done()
    assert setup.herder.connectors()["a"].target is TargetState.STOPPED
    free.set()

    assert "altered successfully" in str(altering.result(10)["message"])
    changing.result(10)
    offset = None if change == "more offsets" else {"position": 4}
    assert OffsetReader(setup.store, "a").offset({"file": "f"}) == offset


def test_a_connector_that_says_nothing_to_a_change_of_offsets_does_not_keep_others_waiting(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup.herder._questions, "_hook_timeout_s", 0.2)
    setup.put("a")
    setup.herder.stop_connector("a").result(10)
    free = BOARD.block["a", "alter_offsets"] = threading.Event()
    altering = setup.herder.alter_offsets("a", offset_request())
    await_true(lambda: len(BOARD.altered) == 1)

    setup.herder.resume_connector("a").result(10)

    with pytest.raises(ConnectException, match=r"did not answer within 0\.2 s .* nothing was changed"):
        altering.result(10)
    free.set()
    setup.await_state("a", "RUNNING", ["RUNNING"])
    assert OffsetReader(setup.store, "a").offset({"file": "f"}) is None


def test_a_worker_stops_while_a_request_about_offsets_is_under_way(setup: Setup) -> None:
    setup.put("a")
    setup.herder.stop_connector("a").result(10)
    free = BOARD.block["a", "alter_offsets"] = threading.Event()
    setup.herder.alter_offsets("a", offset_request())
    await_true(lambda: len(BOARD.altered) == 1)
    try:
        assert setup.herder.stop(10)
    finally:
        free.set()
