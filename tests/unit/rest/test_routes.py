"""Backfills over REST, with doubles: what is asked for, what is refused, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from testkit.doubles.control_plane import SINK, SOURCE
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

from penstock.herder.control_plane import Membership, NotHereException
from penstock.rest.services import WorkerResponse

B = "/connectors/a/backfill"
RANGE = {"kafka_topic": "t", "kafka_partition": 0, "start_offset": 5, "end_offset": 12}


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def sink(api: Api, state: str = "RUNNING") -> None:
    body = {"name": "a", "config": {"connector.class": SINK, "topics": "t"}, "initial_state": state}
    assert api.call("POST", "/connectors", body)[0] == 201
    if state == "RUNNING":
        api.setup.await_state("a", "RUNNING", ["RUNNING"])


def ended(api: Api) -> Any:
    await_true(lambda: api.call("GET", B)[1]["state"] != "RUNNING", lambda: api.call("GET", B)[1])
    return api.call("GET", B)[1]


def test_a_dry_run_says_what_would_be_read_and_written_and_begins_nothing(api: Api) -> None:
    sink(api)
    plan = {"name": "a", "dry_run": True, "reads": [RANGE], "total": 7, "writes": "its target"}
    assert api.call("POST", f"{B}?dry_run=true", {"offsets": [RANGE]}) == (200, plan)
    assert api.call("GET", B) == (404, {"error_code": 404, "message": "Connector a has had no backfill on this worker"})
    status, body = api.call("POST", f"{B}?dry_run=true", {"from": 10, "to": "1970-01-01T00:00:00.020Z"})
    assert (status, body["reads"][0]["start_offset"], body["reads"][0]["end_offset"]) == (200, 10, 20)


def test_a_backfill_runs_beside_the_connector_and_is_seen_in_what_explains_it(api: Api) -> None:
    sink(api)
    status, body = api.call("POST", B, {"offsets": [RANGE]})
    assert (status, body["state"], body["total"], body["reads"]) == (202, "RUNNING", 7, [RANGE])
    status, refused = api.call("POST", B, {"offsets": [RANGE]})
    assert (status, refused["message"].partition(" that began")[0]) == (409, "Connector a has a backfill")
    assert api.call("GET", "/connectors/a/explain")[1]["backfill"]["state"] == "RUNNING"
    assert api.call("GET", "/connectors/a/status")[1]["connector"]["state"] == "RUNNING"
    task: Any = api.setup.tasks[-1]
    assert [(one.topic, one.start, one.end) for one in task.request.backfill.ranges] == [("t", 5, 12)]
    task.all_done = True
    body = ended(api)
    assert (body["state"], body["records"]) == ("COMPLETED", 7)
    assert api.call("POST", B, {"offsets": [RANGE]})[0] == 202, "another one may begin"


def test_a_backfill_is_cancelled(api: Api) -> None:
    sink(api)
    assert api.call("DELETE", B)[0] == 404
    api.call("POST", B, {"offsets": [RANGE]})
    assert api.call("DELETE", B)[0] == 202
    assert ended(api)["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([], "must be a JSON object with from and to, or offsets"),
        ({}, "has a time at which it begins, from, or offsets"),
        ({"to": 5}, "has a time at which it begins"),
        ({"from": "yesterday"}, "milliseconds since 1970 or a date"),
        ({"from": 20, "to": 10}, "A backfill ends after it begins"),
        ({"from": 20, "to": 20}, "A backfill ends after it begins"),
        ({"from": 20, "offsets": [RANGE]}, "either offsets or times"),
        ({"from": 20, "until": 30}, "Unrecognized field until"),
        ({"offsets": []}, "a JSON array of objects with kafka_topic"),
        ({"offsets": 7}, "a JSON array of objects with kafka_topic"),
        ({"offsets": [{"kafka_topic": "t"}]}, "must be a JSON object with kafka_topic, kafka_partition"),
        ({"offsets": [{**RANGE, "start_offset": -1}]}, "whole numbers from 0 on"),
        ({"offsets": [{**RANGE, "end_offset": "12"}]}, "whole numbers from 0 on"),
        ({"offsets": [{**RANGE, "kafka_partition": True}]}, "whole numbers from 0 on"),
        ({"offsets": [{**RANGE, "kafka_topic": None}]}, "a text for kafka_topic"),
        ({"offsets": {"from": 1}}, "an object with from and to for a source"),
        ({"offsets": {"from": 1, "to": 1.5}}, "from one text or whole number to another, not 1.5"),
        ({"offsets": {"from": True, "to": 2}}, "from one text or whole number to another, not True"),
        ({"offsets": {"from": "", "to": "b"}}, "from one text or whole number to another, not ''"),
        ({"from": 1, "of": 7}, "of is the name of a part of a source"),
    ],
)
def test_what_cannot_be_meant_is_named(api: Api, body: Any, text: str) -> None:
    sink(api)
    status, answer = api.call("POST", B, body)
    assert (status, text in answer["message"]) == (400, True), answer


def test_who_is_not_there_or_has_no_tasks_and_a_source_are_refused(api: Api) -> None:
    for method in ("POST", "GET", "DELETE"):
        status, answer = api.call(method, B, {"from": 1} if method == "POST" else None)
        assert (status, answer["message"]) == (404, "Connector a not found")
    sink(api, "STOPPED")
    status, answer = api.call("POST", B, {"from": 1})
    assert (status, "Resume it with PUT /connectors/a/resume" in answer["message"]) == (409, True), answer
    api.call("DELETE", "/connectors/a")
    api.call("POST", "/connectors", {"name": "a", "config": {"connector.class": SOURCE}})
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert api.call("POST", B, {"from": 1}) == (400, {"error_code": 400, "message": "Connector a goes by positions"})


class Owner:
    """Another worker, which notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []

    def ask(
        self, method: str, base_url: str, path: str, body: bytes = b"", headers: Any = None, *, timeout_s: Any = None
    ) -> WorkerResponse:
        self.asked.append((method, base_url + path, body))
        return WorkerResponse(202, {"content-type": "application/json"}, b'{"state":"RUNNING"}')


def test_requests_are_passed_on_to_the_worker_that_runs_the_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner()

    def elsewhere(member: object, unit: object) -> None:
        assert unit == "a"
        raise NotHereException("elsewhere", "http://owner:8083")

    with serving(workers=owner) as api:
        sink(api)
        monkeypatch.setattr(Membership, "require_owner", elsewhere)
        answers = [api.call("POST", f"{B}?dry_run=true", {"from": 1}), api.call("GET", B), api.call("DELETE", B)]
    assert [status for status, _ in answers] == [202, 202, 202]
    assert [(method, path) for method, path, _ in owner.asked] == [
        ("POST", f"http://owner:8083{B}?dry_run=true&forward=true"),
        ("GET", f"http://owner:8083{B}?forward=true"),
        ("DELETE", f"http://owner:8083{B}?forward=true"),
    ]
    assert owner.asked[0][2] == b'{"from": 1}' or owner.asked[0][2] == b'{"from":1}'
