"""The counters of starts, over a herder with doubles for tasks."""

from collections.abc import Iterator

import pytest
from testkit.connectors.probes import BOARD
from testkit.doubles.control_plane import SOURCE, Setup, running
from testkit.waiting import await_true

from penstock.model import TargetState


@pytest.fixture
def setup() -> Iterator[Setup]:
    with running() as started:
        yield started


def counted(setup: Setup, what: str) -> tuple[float, float, float]:
    """Attempts, successes and failures."""
    attempts, successes, failures = (
        setup.metrics.total(f"kafka_connect_worker_{what}_startup_{part}_total")
        for part in ("attempts", "success", "failure")
    )
    return attempts, successes, failures


def test_they_are_there_from_the_beginning(setup: Setup) -> None:
    assert [name for name, _, _ in setup.metrics.read()] == [
        "kafka_connect_worker_connector_startup_attempts_total",
        "kafka_connect_worker_connector_startup_failure_total",
        "kafka_connect_worker_connector_startup_success_total",
        "kafka_connect_worker_task_startup_attempts_total",
        "kafka_connect_worker_task_startup_failure_total",
        "kafka_connect_worker_task_startup_success_total",
    ]
    assert counted(setup, "task") == (0, 0, 0)


def test_a_start_counts_once_whatever_comes_after_it(setup: Setup) -> None:
    setup.put("a", tasks_max="2")
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])
    setup.herder.pause_connector("a").result(10)
    setup.await_state("a", "PAUSED", ["PAUSED", "PAUSED"])
    setup.herder.resume_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])
    setup.tasks[0].fail(RuntimeError("later"))
    setup.await_state("a", "RUNNING", ["FAILED", "RUNNING"])
    assert (counted(setup, "connector"), counted(setup, "task")) == ((1, 1, 0), (2, 2, 0))

    setup.herder.restart_task("a", 0).result(10)
    setup.await_state("a", "RUNNING", ["RUNNING", "RUNNING"])
    assert (counted(setup, "connector"), counted(setup, "task")) == ((1, 1, 0), (3, 3, 0))


def test_failed_starts_count(setup: Setup) -> None:
    setup.task_error = RuntimeError("no such converter")
    setup.put("a")
    setup.await_state("a", "RUNNING", ["FAILED"])
    assert (counted(setup, "connector"), counted(setup, "task")) == ((1, 1, 0), (1, 0, 1))

    BOARD.fail["b", "start"] = RuntimeError("no such host")
    with pytest.raises(Exception, match="no such host"):
        setup.put("b")
    assert (counted(setup, "connector"), counted(setup, "task")) == ((2, 1, 1), (1, 0, 1))


def test_a_task_whose_secret_cannot_be_read_has_failed_to_start(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.put("a")
    setup.await_state("a", "RUNNING", ["RUNNING"])

    def refuse(config: object) -> dict[str, str]:
        raise RuntimeError("the secret is gone")

    BOARD.configs["a"] = [{"part": "other"}]
    monkeypatch.setattr(setup.worker, "resolve", refuse)
    BOARD.instances["a"][0].context().request_task_reconfiguration()
    setup.await_state("a", "RUNNING", ["FAILED"])
    assert counted(setup, "task") == (2, 1, 1)


def test_a_start_that_has_not_ended_is_an_attempt(setup: Setup) -> None:
    setup.stuck = "start"
    setup.put("a")
    await_true(lambda: counted(setup, "task") == (1, 0, 0))


def test_what_is_created_resting_begins_to_start_when_it_is_resumed(setup: Setup) -> None:
    setup.herder.put_connector("a", {"connector.class": SOURCE}, target=TargetState.PAUSED).result(10)
    setup.await_state("a", "PAUSED", [])
    assert counted(setup, "connector") == (0, 0, 0)
    setup.herder.resume_connector("a").result(10)
    setup.await_state("a", "RUNNING", ["RUNNING"])
    assert (counted(setup, "connector"), counted(setup, "task")) == ((1, 1, 0), (1, 1, 0))
