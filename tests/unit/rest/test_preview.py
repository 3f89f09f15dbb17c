"""Previews over REST: what is asked for, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from testkit.doubles.control_plane import SINK, SOURCE
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

from penstock.model import ConnectorType
from penstock.model.payloads import GivenRecord, PreviewLimits, PreviewRequest

PATH = "/connector-plugins/ProbeSource/preview"


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def test_a_preview_is_of_the_configuration_with_its_secrets(api: Api) -> None:
    config = {"connector.class": SOURCE, "password": "${env:SECRET}", "tasks.max": 1}
    assert api.call("POST", PATH, {"config": config}) == (200, {"type": "source", "ended_by": "end", "records": []})
    (asked,) = api.setup.previews
    assert asked.type is ConnectorType.SOURCE
    assert asked.config == {"connector.class": SOURCE, "password": "hunter2", "tasks.max": "1", "name": "preview"}
    assert (asked.records, asked.limits) == (None, PreviewLimits(10, 5.0, 1024 * 1024))
    assert api.call("GET", "/connectors") == (200, [])


def test_records_and_limits_can_be_given(api: Api) -> None:
    body = {
        "config": {"connector.class": SINK, "topics": "t"},
        "records": [{"topic": "t", "value": {"a": 1}, "key": "k", "headers": {"h": "v"}, "timestamp": 5}, {}],
        "limits": {"records": 3, "seconds": 0.5},
    }
    assert api.call("POST", "/connector-plugins/ProbeSink/preview", body)[0] == 200
    (asked,) = api.setup.previews
    assert asked.records == [GivenRecord("t", "k", {"a": 1}, None, 5, {"h": "v"}), GivenRecord("preview")]
    assert asked.limits == PreviewLimits(3, 0.5, 1024 * 1024)


def test_a_preview_that_takes_too_long_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = threading.Event()

    def slow(request: PreviewRequest) -> dict[str, object]:
        request.step("reads the source, and its process gives way to all other work (nice 10)")
        leave.wait(10)
        return {}

    with serving(timeout_s=0.5) as api:
        monkeypatch.setattr(api.setup.worker, "preview", slow)
        status, message = api.error("POST", PATH, {"config": {"connector.class": SOURCE, "name": "a"}})
        assert status == 500
        assert message == (
            "Request timed out. The worker is currently busy with a preview of connector a, which reads the source, "
            "and its process gives way to all other work (nice 10). What was begun for it is ended"
        )
        await_true(lambda: api.setup.herder.busy_with("a") is None)
        leave.set()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "must be a JSON object"),
        ({}, "has no config"),
        ({"config": {}}, "contains no connector type"),
        ({"config": {"connector.class": "Other"}}, "does not match request type ProbeSource"),
        ({"config": {"connector.class": SOURCE}, "more": 1}, "Unrecognized field more"),
        ({"config": {"connector.class": SOURCE}, "records": {}}, "records must be a JSON array"),
        ({"config": {"connector.class": SOURCE}, "records": [1]}, "Each of records must be"),
        ({"config": {"connector.class": SOURCE}, "records": [{"topic": 5}]}, "topic of a record must be a text"),
        ({"config": {"connector.class": SOURCE}, "records": [{"partition": -1}]}, "partition of a record"),
        ({"config": {"connector.class": SOURCE}, "limits": {"seconds": 600}}, "limits.seconds must be"),
        ({"config": {"connector.class": SOURCE}, "limits": {"hours": 1}}, "Unrecognized field hours"),
        ({"config": {"connector.class": SOURCE}, "limits": []}, "limits must be a JSON object"),
        ({"config": {"connector.class": SOURCE}, "records": [{"headers": []}]}, "headers an object of texts"),
    ],
)
def test_what_cannot_be_previewed_is_refused(api: Api, body: object, words: str) -> None:
    status, message = api.error("POST", PATH, body)
    assert status == 400
    assert words in message
    assert api.setup.previews == []
