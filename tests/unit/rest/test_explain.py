"""``GET /connectors/{name}/explain``: settings with their origin, offsets with lag, and what is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.unit.rest.api_client import Api, serving

from penstock.api import TopicPartition
from penstock.errors import ConnectException
from penstock.model import State
from penstock.testing.control_plane import SINK, SOURCE, await_true
from penstock.testing.probes import BOARD


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


def test_a_sink_tells_its_lag(api: Api) -> None:
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    api.setup.groups.groups["connect-s"] = {TopicPartition("t", 0): 90}
    found = api.call("GET", "/connectors/s/explain")[1]
    place = {"kafka_topic": "t", "kafka_partition": 0}
    assert found["offsets"] == [{"partition": place, "offset": {"kafka_offset": 90}, "lag": 10}]


def test_a_sink_is_explained_while_kafka_does_not_answer(api: Api) -> None:
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    api.setup.await_state("s", "RUNNING", ["RUNNING"])
    api.setup.groups.away = True
    status, found = api.call("GET", "/connectors/s/explain")
    assert (status, found["offsets"], found["offsets_error"]) == (200, [], "No broker answers")


def test_a_connector_blocked_in_start_says_where_and_since_when(api: Api) -> None:
    BOARD.block["a", "start"] = threading.Event()
    api.setup.herder.put_connector("a", {"connector.class": SOURCE})
    await_true(lambda: "start" in BOARD.of("a"))
    waiting = api.call("GET", "/connectors/a/explain")[1]["waiting_for"]
    assert waiting["reason"] == "user_code"
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


def test_a_task_whose_put_is_to_be_repeated_says_when(api: Api) -> None:
    api.call("POST", "/connectors", {"name": "s", "config": {"connector.class": SINK, "topics": "t"}})
    api.setup.await_state("s", "RUNNING", ["RUNNING"])
    task = api.setup.tasks[-1]
    task.retry_at_ms = 60_000
    waiting = api.call("GET", "/connectors/s/explain")[1]["tasks"][0]["waiting_for"]
    assert waiting["reason"] == "sink_retry"
    assert "1970-01-01T00:01:00.000+00:00" in waiting["text"]
