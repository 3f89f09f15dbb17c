"""Questions that change nothing, asked of the herder: previews, validation and explanations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SINK, SOURCE, Setup, running

from penstock.api import TopicPartition
from penstock.errors import BadRequestException, ConnectException, NotFoundException
from penstock.herder.queries import effective_settings, explain_commit, explain_roads
from penstock.model import ConnectorType, State
from penstock.model.payloads import PreviewLimits, PreviewRequest
from penstock.validation.config_infos import ConfigInfos

LIMITS = PreviewLimits(10, 5.0, 1024)


@pytest.fixture
def setup() -> Iterator[Setup]:
    with running() as started:
        yield started


def explained(setup: Setup, name: str = "a") -> Any:
    return setup.herder.explain(name).result(10)


# ------------------------------------------------------------------ previews and validation
def test_a_preview_is_of_the_configuration_with_its_secrets_and_makes_no_connector(setup: Setup) -> None:
    config = {"connector.class": SOURCE, "password": "${env:SECRET}"}
    assert setup.herder.preview(config, None, LIMITS).result(10)["ended_by"] == "end"
    (asked,) = setup.previews
    assert (asked.type, asked.config["password"], asked.config["name"]) == (ConnectorType.SOURCE, "hunter2", "preview")
    assert dict(setup.herder.connectors()) == {}


def test_a_preview_shows_no_secret_in_its_answer_and_its_errors(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"connector.class": SOURCE, "password": "${env:SECRET}"}

    def answer(request: object) -> dict[str, object]:
        return {"records": [{"value": "hunter2 is it"}]}

    monkeypatch.setattr(setup.worker, "preview", answer)
    assert "hunter2" not in str(setup.herder.preview(config, None, LIMITS).result(10))

    def refuse(request: object) -> dict[str, object]:
        raise BadRequestException("hunter2 is wrong")

    monkeypatch.setattr(setup.worker, "preview", refuse)
    with pytest.raises(BadRequestException, match="is wrong") as caught:
        setup.herder.preview(config, None, LIMITS).result(10)
    assert "hunter2" not in str(caught.value)


def test_a_preview_leaves_the_step_of_a_request_about_its_connector(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str | None] = []

    def answer(request: PreviewRequest) -> dict[str, object]:
        request.step("reads the source")
        steps.append(setup.herder.busy_with("a"))
        return {}

    monkeypatch.setattr(setup.worker, "preview", answer)
    with setup.herder.plane.stage("a", "calling start()"):
        began = setup.herder.busy_with("a")
        setup.herder.preview({"connector.class": SOURCE, "name": "a"}, None, LIMITS).result(10)
        assert (steps, setup.herder.busy_with("a")) == ([began], began)
    setup.herder.preview({"connector.class": SOURCE, "name": "a"}, None, LIMITS).result(10)
    assert steps[1] == "busy with a preview of connector a, which reads the source"
    assert setup.herder.busy_with("a") is None


def test_a_preview_of_no_class_is_refused(setup: Setup) -> None:
    with pytest.raises(BadRequestException, match="contains no connector type"):
        setup.herder.preview({}, None, LIMITS).result(10)
    assert setup.previews == []


def test_a_validation_warns_of_placeholders_that_cannot_be_resolved(setup: Setup) -> None:
    found = setup.herder.validate_config({"connector.class": SOURCE, "name": "v", "must": "${env:NONE}"}).result(10)
    assert any("NONE" in str(one) for one in found.warnings)
    assert setup.herder.busy_with("v") is None


# ------------------------------------------------------------------ explanations
def test_a_connector_that_is_not_there_is_not_explained(setup: Setup) -> None:
    with pytest.raises(NotFoundException, match="Connector a not found"):
        explained(setup)


def test_a_source_tells_its_settings_its_offsets_and_its_next_commit(setup: Setup) -> None:
    setup.put("a", password="hunter2")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    found = explained(setup)
    settings = {one["name"]: (one["value"], one["origin"]) for one in found["settings"]}
    assert settings["password"] == ("[hidden]", "connector")
    assert settings["value.converter"] == ("org.example.Worker", "worker")
    assert (found["type"], found["state"], found["target"]) == ("source", "RUNNING", "STARTED")
    assert (found["offsets"], found["roads"], found["next_commit"]["every_ms"]) == ([], [], 60000)


def test_a_sink_tells_its_lag_or_that_kafka_does_not_answer(setup: Setup) -> None:
    setup.put("s", SINK, topics="t")
    setup.await_state("s", "RUNNING", ["RUNNING"])
    setup.groups.groups["connect-s"] = {TopicPartition("t", 0): 90}
    place = {"kafka_topic": "t", "kafka_partition": 0}
    assert explained(setup, "s")["offsets"] == [{"partition": place, "offset": {"kafka_offset": 90}, "lag": 10}]
    setup.groups.away = True
    found = explained(setup, "s")
    assert (found["offsets"], found["offsets_error"]) == ([], "No broker answers")


def test_what_has_failed_names_its_cause_and_what_to_do_without_secrets(setup: Setup) -> None:
    BOARD.fail["a", "start"] = ConnectException("no database for hunter2")
    with pytest.raises(ConnectException):
        setup.put("a", password="hunter2")
    setup.await_state("a", "FAILED", [])
    found = explained(setup)["waiting_for"]
    assert found["reason"] == "failed"
    assert "Fix the cause, then restart it: penstock connectors restart a" in found["text"]
    assert "hunter2" not in str(found)
    BOARD.fail.clear()
    setup.herder.restart_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    setup.tasks[-1].report(State.FAILED, "KeyError: 'price'")
    setup.await_state("a", "RUNNING", ["FAILED"])
    (task,) = explained(setup)["tasks"]
    assert (task["id"], task["state"], task["waiting_for"]["reason"]) == (0, "FAILED", "failed")
    assert "restart a --task 0" in task["waiting_for"]["text"]


@pytest.mark.parametrize(("request_", "state"), [("pause_connector", "PAUSED"), ("stop_connector", "STOPPED")])
def test_what_rests_is_explained(setup: Setup, request_: str, state: str) -> None:
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])
    getattr(setup.herder, request_)("a").result(10)
    setup.await_state("a", state, [state] if state == "PAUSED" else [])
    found = explained(setup)
    assert (found["state"], found["target"]) == (state, state)


# ------------------------------------------------------------------ their parts
@pytest.mark.parametrize(
    ("kind", "config", "exactly_once", "every_ms", "said"),
    [
        (ConnectorType.SOURCE, {}, False, 60000, "pause"),
        (ConnectorType.SINK, {}, True, 60000, "a rebalance of the group"),
        (ConnectorType.SOURCE, {}, True, None, "the end of each poll"),
        (ConnectorType.SOURCE, {"transaction.boundary": "INTERVAL"}, True, 60000, "stop"),
        (
            ConnectorType.SOURCE,
            {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "7"},
            True,
            7,
            "restart",
        ),
        (ConnectorType.SOURCE, {"transaction.boundary": "connector"}, True, None, "its tasks, through their"),
    ],
)
def test_the_next_commit_is_that_of_the_boundary(
    kind: ConnectorType, config: dict[str, str], exactly_once: bool, every_ms: int | None, said: str
) -> None:
    found: Any = explain_commit(kind, {"offset.flush.interval.ms": "60000"}, config, exactly_once=exactly_once)
    assert found["every_ms"] == every_ms
    assert any(said in one for one in found["or"])


def test_an_interval_that_is_no_number_is_not_told() -> None:
    found = explain_commit(ConnectorType.SINK, {"offset.flush.interval.ms": "soon"}, {}, exactly_once=False)
    assert found["every_ms"] is None


def test_roads_are_summed_and_the_one_of_most_records_comes_first() -> None:
    counts = [({"road": road, "why": why}, n) for road, why, n in (("rows", "odd", 1.0), ("columns", "", 3.0))]
    assert explain_roads([*counts, counts[0]]) == [
        {"road": "columns", "why": None, "records": 3},
        {"road": "rows", "why": "odd", "records": 2},
    ]


def test_settings_of_the_worker_that_hold_for_a_connector_are_among_its_own() -> None:
    worker = {"value.converter": "W", "value.converter.schemas.enable": "false", "producer.ssl.key.password": "x"}

    def taken(kind: ConnectorType = ConnectorType.SOURCE, **config: str) -> dict[str, object]:
        given = {name.replace("_", "."): text for name, text in config.items()}
        found = effective_settings(ConfigInfos("c", [], []), given, worker, frozenset(), kind)
        return {str(one["name"]): one["value"] for one in found if one["origin"] == "worker"}

    converter = {"value.converter": "W", "value.converter.schemas.enable": "false"}
    assert taken() == {**converter, "producer.ssl.key.password": "[hidden]"}
    assert taken(value_converter="Own") == {"producer.ssl.key.password": "[hidden]"}
    assert taken(ConnectorType.SINK) == converter
