"""``GET /connectors/{name}/explain``: settings with their origin, offsets with lag, and what is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testkit.connectors.probes import BOARD, ProbeSource
from testkit.doubles.control_plane import SINK, SOURCE
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

import penstock
from penstock.errors import ConnectException, stack_trace
from penstock.herder import queries as explanation
from penstock.model import State
from penstock.model.states import Progress
from penstock.telemetry import Wait
from penstock.worker.task.waiting import CodeLocation, Hints, StackEntry

FILE_SOURCE = "penstock.connectors.file.source.FileStreamSourceConnector"


def idle(monkeypatch: pytest.MonkeyPatch, wait: Wait | None = None) -> None:
    """Lets tasks stand where those stand that have nothing to do: the doubles have no threads."""
    polling = CodeLocation([StackEntry(f"{Path(penstock.__file__).parent}/worker/source/task.py", 1, "_poll")], wait)
    names = ("task-f-0", "task-a-0", "task-s-0")
    monkeypatch.setattr(explanation, "places", lambda: dict.fromkeys(names, polling))


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def test_settings_have_an_origin_and_secrets_are_hidden(api: Api) -> None:
    api.create("a", password="hunter2", extra="1")
    status, found = api.call("GET", "/connectors/a/explain")
    assert (status, found["type"], found["state"], found["target"]) == (200, "source", "RUNNING", "STARTED")
    settings = {one["name"]: (one["value"], one["origin"]) for one in found["settings"]}
    assert settings["name"] == ("a", "connector")
    assert settings["tasks.max"] == ("1", "default")
    assert settings["extra"] == ("1", "connector")
    assert settings["password"] == ("[hidden]", "connector")
    assert settings["value.converter"] == ("org.example.Worker", "worker")
    assert settings["must"] == ("", "default")
    assert found["next_commit"]["every_ms"] == 60000
    assert api.error("GET", "/connectors/x/explain") == (404, "Connector x not found")


def test_settings_of_the_worker_that_hold_for_a_connector_are_among_its_own(api: Api) -> None:
    def of_worker(name: str) -> dict[str, object]:
        found = api.call("GET", f"/connectors/{name}/explain")[1]["settings"]
        return {one["name"]: one["value"] for one in found if one["origin"] == "worker"}

    converter = {
        "value.converter": "org.example.Worker",
        "value.converter.schemas.enable": "false",
        "value.converter.basic.auth.user.info": "[hidden]",
    }
    api.create("a", **{"value.converter.schemas.enable": "true"})
    assert of_worker("a") == {**converter, "producer.linger.ms": "7", "producer.ssl.key.password": "[hidden]"}
    api.create("b", **{"value.converter": "org.example.Own", "producer.override.linger.ms": "8"})
    assert of_worker("b") == {"producer.ssl.key.password": "[hidden]"}
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    assert of_worker("s") == {**converter, "consumer.max.poll.records": "9"}
    found = {one["name"]: one for one in api.call("GET", "/connectors/s/explain")[1]["settings"]}
    assert found["topics"]["origin"] == "connector"


def test_a_sink_is_explained_while_kafka_does_not_answer(api: Api) -> None:
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    api.setup.await_state("s", "RUNNING", ["RUNNING"])
    api.setup.groups.away = True
    status, found = api.call("GET", "/connectors/s/explain")
    assert (status, found["offsets"], found["offsets_error"]) == (200, [], "No broker answers")


def waiting_of(api: Api, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a connector and its tasks wait for."""
    found = api.call("GET", f"/connectors/{name}/explain")[1]
    return found["waiting_for"], [task["waiting_for"] for task in found["tasks"]]


def failed_with(outer: Exception, inner: Exception) -> str:
    """The trace of an error that was made of another."""
    outer.__cause__ = inner
    return stack_trace(outer)


def test_a_failed_task_names_its_root_error_and_what_to_do(api: Api) -> None:
    api.create("a b")
    api.setup.await_state("a b", "RUNNING", ["RUNNING"])
    api.setup.tasks[-1].report(
        State.FAILED, failed_with(ConnectException("the rows cannot be read"), KeyError("price"))
    )
    api.setup.await_state("a b", "RUNNING", ["FAILED"])
    found = waiting_of(api, "a%20b")[1][0]
    assert found["reason"] == "failed"
    assert found["cause"].splitlines()[0] == "KeyError: 'price'"
    assert found["text"] == (
        "It has failed: KeyError: 'price', which led to org.apache.kafka.connect.errors.ConnectException: the rows "
        "cannot be read. Fix the cause, then restart it: penstock connectors restart 'a b' --task 0"
    )


def test_a_connector_that_failed_in_start_names_the_error(api: Api) -> None:
    BOARD.fail["a", "start"] = ConnectException("no such database")
    assert api.create("a")[0] == 500
    connector, tasks = waiting_of(api, "a")
    assert (connector["reason"], tasks) == ("failed", [])
    assert "It has failed: org.apache.kafka.connect.errors.ConnectException: no such database." in connector["text"]
    assert connector["text"].endswith("restart it: penstock connectors restart a")


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ({"topics": "t"}, None),
        ({"topics": "gone, t, gone-too"}, "the topic gone does not exist; the topic gone-too does not exist"),
        ({"topics.regex": "t.*"}, None),
        ({"topics.regex": "orders-.*"}, "no topic that this worker may see matches topics.regex=orders-.*"),
        (
            {"topics": "secret"},
            "the topic secret cannot be looked at: describing the topic secret failed: Topic authorization failed",
        ),
    ],
)
def test_a_sink_names_the_topics_that_are_missing(
    api: Api, monkeypatch: pytest.MonkeyPatch, config: dict[str, str], cause: str | None
) -> None:
    idle(monkeypatch)
    api.setup.groups.forbidden = {"secret"}
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, **config}})
    api.setup.await_state("s", "RUNNING", ["RUNNING"])
    found = waiting_of(api, "s")[1][0]
    assert found.get("cause") == cause
    assert found["reason"] == ("no_data" if cause is None else "topic_missing")
    assert cause is None or found["text"] == f"What it reads from Kafka is not there: {cause}."


@pytest.mark.parametrize(("joined", "reason"), [(False, "group_join"), (True, "no_partitions")])
def test_a_sink_without_partitions_says_whether_it_joins_its_group(
    api: Api, monkeypatch: pytest.MonkeyPatch, joined: bool, reason: str
) -> None:
    idle(monkeypatch)
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    api.setup.await_state("s", "RUNNING", ["RUNNING"])
    api.setup.tasks[-1].hints = Hints(joined=joined, assigned=0)
    assert waiting_of(api, "s")[1][0]["reason"] == reason


def test_status_and_explain_say_how_far_a_task_is(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    idle(monkeypatch)
    api.create("a")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    for path in ("explain", "status"):
        assert "progress" not in api.call("GET", f"/connectors/a/{path}")[1]["tasks"][0]
    api.setup.tasks[-1].hints = Hints(progress=Progress(5, 20, "rows"))
    wanted = {"done": 5, "total": 20, "unit": "rows"}
    for path in ("explain", "status"):
        assert api.call("GET", f"/connectors/a/{path}")[1]["tasks"][0]["progress"] == wanted
    assert api.call("GET", "/connectors/a/tasks/0/status")[1]["progress"] == wanted
    assert api.call("GET", "/connectors?expand=status")[1]["a"]["status"]["tasks"][0]["progress"] == wanted


def test_a_sink_names_what_keeps_kafka_from_answering(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    idle(monkeypatch)
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    api.setup.await_state("s", "RUNNING", ["RUNNING"])
    api.setup.groups.away = True
    found = waiting_of(api, "s")[1][0]
    assert (found["reason"], found["cause"]) == ("broker", "No broker answers")


def test_a_source_names_the_file_that_is_missing(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    idle(monkeypatch)
    path = tmp_path / "in.txt"
    config = {"connector.class": FILE_SOURCE, "file": str(path), "topic": "t"}
    api.call("POST", "/connectors", {"name": "f", "config": config})
    api.setup.await_state("f", "RUNNING", ["RUNNING"])
    found = waiting_of(api, "f")[1][0]
    assert found["reason"] == "input_missing"
    assert found["cause"] == f"the file {path} does not exist; it is read as soon as it does"
    path.write_text("a\n")
    assert waiting_of(api, "f")[1][0]["reason"] == "no_data"


def test_a_source_without_tasks_names_the_directory_that_is_missing(api: Api, tmp_path: Path) -> None:
    cls = "penstock.connectors.directory.DirectorySourceConnector"
    config = {"connector.class": cls, "directories": str(tmp_path / "gone"), "topic": "t"}
    api.call("POST", "/connectors", {"name": "d", "config": config})
    api.setup.await_state("d", "RUNNING", [])
    connector = waiting_of(api, "d")[0]
    assert connector["reason"] == "input_missing"
    assert connector["cause"] == f"Cannot list directory {tmp_path / 'gone'}: No such file or directory"
    (tmp_path / "gone").mkdir()
    assert waiting_of(api, "d")[0]["cause"] == f"no file in {tmp_path / 'gone'} matches file.pattern=*"


def test_a_connector_that_cannot_say_what_it_lacks_is_explained_all_the_same(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle(monkeypatch)

    def broken(self: object, props: object) -> list[str]:
        raise ValueError("no")

    monkeypatch.setattr(ProbeSource, "obstacles", broken, raising=False)
    api.create("a")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert waiting_of(api, "a")[1][0]["reason"] == "no_data"


def test_a_connector_blocked_in_start_says_where_and_since_when(api: Api) -> None:
    BOARD.block["a", "start"] = threading.Event()
    api.setup.herder.put_connector("a", {"connector.class": SOURCE})
    await_true(lambda: "start" in BOARD.of("a"))

    def waits() -> Any:
        return api.call("GET", "/connectors/a/explain")[1]["waiting_for"]

    await_true(lambda: waits()["reason"] == "user_code")
    waiting = waits()
    assert any(line.startswith("probes.py") and line.endswith("in start") for line in waiting["stack"])
    assert waiting["busy_with"].startswith("calling start() of connector a, which began at 2")


def test_what_rests_waits_for_its_user(api: Api) -> None:
    api.create("a")
    api.call("PUT", "/connectors/a/pause")
    api.setup.await_state("a", "PAUSED", ["PAUSED"])
    found = api.call("GET", "/connectors/a/explain")[1]
    assert found["waiting_for"]["reason"] == "paused"
    assert [task["waiting_for"]["reason"] for task in found["tasks"]] == ["paused"]
    api.call("PUT", "/connectors/a/stop")
    api.setup.await_state("a", "STOPPED", [])
    found = api.call("GET", "/connectors/a/explain")[1]
    assert (found["waiting_for"]["reason"], found["tasks"]) == ("stopped", [])


def test_what_has_failed_waits_for_its_user_and_what_does_not_run_says_so(api: Api) -> None:
    api.create("a", **{"tasks.max": "2"})
    api.setup.await_state("a", "RUNNING", ["RUNNING"] * 2)
    first, second = sorted(api.setup.tasks, key=lambda task: task.request.id.task)
    first.report(State.FAILED, "trace")
    second.report(State.UNASSIGNED, None)
    BOARD.instances["a"][0].context().raise_error(ConnectException("lost the database"))
    api.setup.await_state("a", "FAILED", ["FAILED", "UNASSIGNED"])
    found = api.call("GET", "/connectors/a/explain")[1]
    assert found["waiting_for"]["reason"] == "failed"
    assert [task["waiting_for"]["reason"] for task in found["tasks"]] == ["failed", "not_started"]


def test_a_task_whose_put_is_to_be_repeated_says_when(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    api.setup.await_state("s", "RUNNING", ["RUNNING"])
    idle(monkeypatch, Wait("sink_retry", 0.0, "1970-01-01T00:01:00.000+00:00"))
    waiting = api.call("GET", "/connectors/s/explain")[1]["tasks"][0]["waiting_for"]
    assert waiting["reason"] == "sink_retry"
    assert "1970-01-01T00:01:00.000+00:00" in waiting["text"]
