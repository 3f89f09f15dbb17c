"""What stands still is in the status of its task and in the message of ``/health``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.rest.api_client import Api, serving

from penstock.errors import RetriableException
from penstock.model import ConnectorTaskId
from penstock.telemetry.standstills import goes_on, stands_still
from penstock.worker.task.retries import Retries, RetryBackoff

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
