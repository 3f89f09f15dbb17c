"""States, failures and restarts of connectors whose units run on several workers; all requests go to followers."""

from __future__ import annotations

import pytest
from testkit.connectors.journal_source import Probes
from testkit.processes.worker_group import WorkerGroup

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


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
