"""States, failures and restarts of connectors whose units run on several workers; all requests go to followers."""

from __future__ import annotations

import pytest
from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import WorkerGroup

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


def test_every_state_follows_on_every_worker_and_instances_are_counted(group: WorkerGroup, probes: Probes) -> None:
    group.create("s35", probes.config(3))
    group.wait_states("s35", *["RUNNING"] * 4)
    group.settled()
    requests = (
        ("stop", ["STOPPED"]),
        ("resume", ["RUNNING"] * 4),
        ("pause", ["PAUSED"] * 4),
        ("stop", ["STOPPED"]),
        ("pause", ["PAUSED"]),
        ("resume", ["RUNNING"] * 4),
    )
    for number, (request, states) in enumerate(requests):
        group.bring_to("s35", request, worker=group.workers[number % 3])
        group.wait_states("s35", *states)
        if states == ["STOPPED"]:
            assert [worker.get("/connectors/s35/tasks") for worker in group.workers] == [(200, [])] * 3
    group.settled()
    group.delete("s35")
    # Two stops and the deletion ended it; it was started once more after each stop that a resume followed.
    for unit in ("s35", "s35-0", "s35-1", "s35-2"):
        assert probes.count(unit, "start") == probes.count(unit, "stop")
    assert probes.count("s35", "start") == 3


def test_a_connector_that_fails_to_start_or_to_stop_is_stopped_and_runs_again(
    group: WorkerGroup, probes: Probes
) -> None:
    probes.order("s38", "start", "fail")
    group.create("s38", probes.config(2), worker=group.followers()[0])
    group.wait_states("s38", "FAILED")
    group.bring_to("s38", "stop", worker=group.followers()[0])
    group.wait_states("s38", "STOPPED")
    probes.order("s38", "start", None)
    group.bring_to("s38", "resume", worker=group.followers()[1])
    group.wait_states("s38", *["RUNNING"] * 3)
    probes.order("s38", "stop", "fail")
    group.bring_to("s38", "stop", worker=group.followers()[1])
    group.wait_states("s38", "STOPPED")
    group.bring_to("s38", "resume", worker=group.followers()[0])
    group.wait_states("s38", *["RUNNING"] * 3)


def test_scenarios_39_to_42_a_restart_reaches_what_it_names_on_every_worker_and_nothing_else(
    group: WorkerGroup, probes: Probes
) -> None:
    probes.order("s39-1", "start", "fail")
    group.create("s39", probes.config(3))
    group.wait_states("s39", "RUNNING", "RUNNING", "FAILED", "RUNNING")
    units = ("s39", "s39-0", "s39-1", "s39-2")

    def restarted(path: str, status: int, *states: str) -> list[int]:
        """How often each unit was started by a request."""
        before = [probes.count(unit, "start") for unit in units]
        assert group.ask("POST", f"/connectors/s39{path}", worker=group.followers()[0])[0] == status
        group.wait_states("s39", *states)
        group.wait(lambda: all(probes.count(unit, "start") for unit in units), "started")
        return [probes.count(unit, "start") - count for unit, count in zip(units, before, strict=True)]

    failed, running = ("RUNNING", "RUNNING", "FAILED", "RUNNING"), ["RUNNING"] * 4
    assert "told to fail" in group.workers[0].trace("s39", 1)
    # 39: the connector alone.
    group.settled(resting=["s39"])
    before = probes.count("s39", "start")
    assert group.ask("POST", "/connectors/s39/restart", worker=group.followers()[1])[0] == 204
    group.wait(lambda: probes.count("s39", "start") == before + 1, "the connector was restarted")
    group.wait_states("s39", *failed)
    probes.order("s39-1", "start", None)
    # 40: what has failed, and only that.
    assert restarted("/restart?includeTasks=true&onlyFailed=true", 202, *running) == [0, 0, 1, 0]
    # 41: nothing has.
    assert restarted("/restart?includeTasks=false&onlyFailed=true", 202, *running) == [0, 0, 0, 0]
    # 42: all of it, once each.
    before_all = {unit: probes.count(unit, "start") for unit in units}
    path = "/connectors/s39/restart?includeTasks=true&onlyFailed=false"
    status, body = group.ask("POST", path, worker=group.followers()[1])
    assert (status, body["name"], len(body["tasks"])) == (202, "s39", 3)
    group.wait(lambda: all(probes.count(unit, "start") > before_all[unit] for unit in units), "all were started again")
    group.wait_states("s39", *running)
    group.settled()
    assert {unit: probes.count(unit, "start") - before_all[unit] for unit in units} == dict.fromkeys(units, 1)
    # 39: the task alone, wherever it runs.
    for worker in group.workers:
        before = probes.count("s39-2", "start")
        assert group.ask("POST", "/connectors/s39/tasks/2/restart", worker=worker)[0] == 204
        group.wait(lambda: probes.count("s39-2", "start") == before + 1, "the task was restarted")  # noqa: B023
        group.wait_states("s39", *running)


def test_scenarios_47_and_48_what_is_blocked_on_one_worker_keeps_nothing_else_waiting(
    group: WorkerGroup, probes: Probes
) -> None:
    probes.order("s47", "start", "block")
    probes.order("s48-0", "start", "block")
    probes.order("s48-1", "stop", "block")
    group.create("s47", probes.config(1))
    group.create("s48", probes.config(2))
    group.wait(lambda: probes.count("s47", "start") and probes.count("s48-0", "start"), "they are blocked")
    group.create("s49", probes.config(3), worker=group.followers()[0])
    group.wait_states("s49", *["RUNNING"] * 4)
    group.delete("s48", "s47")
    group.wait_states("s49", *["RUNNING"] * 4)
    for unit, call in (("s47", "start"), ("s48-0", "start"), ("s48-1", "stop")):
        probes.order(unit, call, None)
    group.settled()
    for unit in ("s49", "s49-0", "s49-1", "s49-2"):
        assert probes.count(unit, "start") - probes.count(unit, "stop") == 1
