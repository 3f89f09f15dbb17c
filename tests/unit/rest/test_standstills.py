"""What stands still is in the status of its task and in the message of ``/health``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testkit.connectors.probes import BOARD
from testkit.waiting import await_true
from tests.unit.rest.api_client import Api, serving

from penstock.errors import RetriableException
from penstock.model import ConnectorTaskId
from penstock.telemetry.waits import goes_on, stands_still
from penstock.worker.task.waiting import Retries, RetryBackoff

READY = "Worker has completed startup and is ready to handle requests."


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as started:
        yield started


def test_a_task_that_asks_again_is_in_its_status_and_in_health_until_it_does_not(api: Api) -> None:
    api.create("a")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert api.call("GET", "/health") == (200, {"status": "healthy", "message": READY})
    retries = Retries("a-0", "source_retry", RetryBackoff(60, "source.retry.delay.max.ms"))
    retries.failed("poll", RetriableException("the source is away"))
    for task in (
        api.call("GET", "/connectors/a/status")[1]["tasks"][0],
        api.call("GET", "/connectors/a/tasks/0/status")[1],
        api.call("GET", "/connectors?expand=status")[1]["a"]["status"]["tasks"][0],
    ):
        assert task["state"] == "RUNNING"
        waiting = task["waiting_for"]
        assert (waiting["reason"], waiting["count"]) == ("source_retry", 1)
        assert waiting["cause"] == "RetriableException: the source is away"
        assert waiting["next_try"] >= waiting["since"]
    status, health = api.call("GET", "/health")
    assert (status, health["status"]) == (200, "healthy")
    assert health["message"].startswith(f"{READY} These stand still: task a-0 (source_retry since 20")
    assert "the source is away" in health["message"]
    retries.succeeded()
    assert "waiting_for" not in api.call("GET", "/connectors/a/status")[1]["tasks"][0]
    assert api.call("GET", "/health") == (200, {"status": "healthy", "message": READY})


@pytest.mark.parametrize("call", ["start", "task_configs"])
def test_a_connector_whose_start_is_tried_again_is_created_and_shown_until_it_works(api: Api, call: str) -> None:
    state = {"start": "UNASSIGNED", "task_configs": "RUNNING"}[call]
    BOARD.fail["a", call] = RetriableException("the database of me:s3cret-word is away", retry_after_s=3600)
    api.create("a", password="s3cret-word")
    api.setup.await_state("a", state, [])
    await_true(lambda: "waiting_for" in api.call("GET", "/connectors/a/status")[1]["connector"])
    waits = api.call("GET", "/connectors/a/explain")[1]["waiting_for"]
    for waiting in (waits, api.call("GET", "/connectors/a/status")[1]["connector"]["waiting_for"]):
        assert (waiting["reason"], waiting["count"]) == ("source_retry", 1)
        assert waiting["text"].startswith(f"{call}() asked to be called again, once by now: RetriableException: the ")
        assert "me:[hidden] is away" in waiting["text"]
        assert waiting["next_try"] > waiting["since"]
    assert "connector a (source_retry since 20" in api.call("GET", "/health")[1]["message"]
    # A restart is answered as well, and tries at once.
    assert api.call("POST", "/connectors/a/restart")[0] == 204
    assert BOARD.of("a").count(call) == 2
    # So does another configuration; a pause and a resume do.
    config = api.call("GET", "/connectors/a/config")[1]
    assert api.call("PUT", "/connectors/a/config", {**config, "must": "x"})[0] == 200
    assert BOARD.of("a").count(call) == 3
    assert api.call("PUT", "/connectors/a/pause")[0] == 202
    api.setup.await_state("a", "PAUSED", [])
    assert api.call("GET", "/health")[1]["message"] == READY
    assert "waiting_for" not in api.call("GET", "/connectors/a/status")[1]["connector"]
    BOARD.fail.clear()
    assert api.call("PUT", "/connectors/a/resume")[0] == 202
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    assert api.call("GET", "/connectors/a/explain")[1]["waiting_for"]["reason"] == "no_data"


@pytest.mark.parametrize("call", ["start", "task_configs"])
def test_a_connector_whose_start_is_tried_again_can_be_deleted(api: Api, call: str) -> None:
    BOARD.fail["a", call] = RetriableException("away", retry_after_s=3600)
    api.create("a")
    assert api.call("DELETE", "/connectors/a")[0] == 204
    assert api.call("GET", "/connectors/a/status")[0] == 404
    assert api.call("GET", "/health")[1]["message"] == READY


def test_secrets_of_the_connector_are_in_neither(api: Api) -> None:
    api.create("a", password="s3cret-word")
    api.setup.await_state("a", "RUNNING", ["RUNNING"])
    retries = Retries(ConnectorTaskId("a", 0), "source_retry", RetryBackoff(60, "source.retry.delay.max.ms"))
    retries.failed("poll", RetriableException("the login of me:s3cret-word failed"))
    try:
        waiting = api.call("GET", "/connectors/a/status")[1]["tasks"][0]["waiting_for"]
        message = api.call("GET", "/health")[1]["message"]
        assert "s3cret-word" not in f"{waiting} {message}"
        assert waiting["cause"] == "RetriableException: the login of me:[hidden] failed"
        assert "me:[hidden] failed" in message
    finally:
        retries.ended()


def test_health_names_ten_of_them_at_most(api: Api) -> None:
    owners = [f"task many-{number}" for number in range(30)]
    try:
        for owner in owners:
            stands_still(owner, "source_retry", "busy")
        assert api.call("GET", "/health")[1]["message"].count("source_retry since") == 10
    finally:
        for owner in owners:
            goes_on(owner)
