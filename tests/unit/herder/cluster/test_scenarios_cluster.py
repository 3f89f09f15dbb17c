"""Scenarios of groups that need no real worker: in virtual time, over the simulated log and coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testkit.simulated_cluster import SimulatedCluster

from penstock.errors import ConflictException
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TargetState, TaskStatus

QUICK = {"heartbeat.interval.ms": "1000", "session.timeout.ms": "6000", "scheduled.rebalance.max.delay.ms": "0"}


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(1, QUICK)
    for name in ("a", "b", "c"):
        made.add(name)
    made.settle()
    yield made
    made.close()


def states(cluster: SimulatedCluster, name: str) -> set[tuple[State | None, ...]]:
    """State of a connector and of its tasks, as each worker says: one element where they agree."""
    found = set()
    for node in cluster.present():
        view = node.herder.connectors().get(name)
        if view is None:
            return set()
        found.add((view.status.state if view.status else None, *(task.state for task in view.tasks)))
    return found


def test_every_worker_says_that_a_connector_and_its_tasks_are_paused(cluster: SimulatedCluster) -> None:
    cluster.put("x", 3)
    cluster.settle()
    cluster.ask(lambda leader: leader.pause_connector("x"))
    cluster.until(lambda: states(cluster, "x") == {(State.PAUSED,) * 4})
    cluster.ask(lambda leader: leader.resume_connector("x"))
    cluster.until(lambda: states(cluster, "x") == {(State.RUNNING,) * 4})


def test_what_rests_still_rests_when_the_whole_group_was_restarted(cluster: SimulatedCluster) -> None:
    cluster.put("x", 3)
    cluster.put("y", 2)
    cluster.settle()
    cluster.ask(lambda leader: leader.pause_connector("x"))
    cluster.ask(lambda leader: leader.stop_connector("y"))
    cluster.until(lambda: states(cluster, "x") == {(State.PAUSED,) * 4} and states(cluster, "y") == {(State.STOPPED,)})
    for node in list(cluster.present()):
        node.leave()
    for name in ("d", "e", "f"):
        cluster.add(name)
    cluster.until(lambda: states(cluster, "x") == {(State.PAUSED,) * 4} and states(cluster, "y") == {(State.STOPPED,)})
    for node in cluster.present():
        assert node.config.snapshot.target("x") is TargetState.PAUSED
    # They are given to workers all the same, and go on from there.
    cluster.ask(lambda leader: leader.resume_connector("x"))
    cluster.until(lambda: states(cluster, "x") == {(State.RUNNING,) * 4})
    where = {unit: name for name, units in cluster.where().items() for unit in units}
    assert {where[ConnectorTaskId("x", task)] for task in range(3)} <= {"d", "e", "f"}


def test_the_end_of_what_a_frozen_worker_had_belongs_to_the_generation_in_which_it_began(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put("x", 6)
    cluster.settle()
    frozen = next(node for node in cluster.present() if node is not cluster.leader())
    had, began = set(frozen.worker.running), frozen.group.place.generation
    # So slow that it is a member again before they have ended.
    monkeypatch.setattr(frozen.worker, "_stop_s", lambda: 4.0)
    frozen.freeze()
    cluster.loop.run_for(20)
    said: dict[str | ConnectorTaskId, int] = {}
    put = cluster.statuses.put

    def noted(status: ConnectorStatus | TaskStatus, **more: bool) -> None:
        if status.worker_id == frozen.herder.worker_id and status.state is State.UNASSIGNED:
            unit = status.name if isinstance(status, ConnectorStatus) else status.id
            said.setdefault(unit, status.generation)
        put(status, **more)

    monkeypatch.setattr(cluster.statuses, "put", noted)
    frozen.thaw()
    cluster.settle()
    # Later, it would count more than the word of who has it by now.
    assert {unit: generation <= began for unit, generation in said.items() if unit in had} == dict.fromkeys(had, True)


def test_connectors_and_tasks_are_spread_evenly_and_none_runs_twice(cluster: SimulatedCluster) -> None:
    cluster.put("x", 4)
    cluster.put("y", 5)
    cluster.settle()
    loads = [sum(not isinstance(unit, str) for unit in units) for units in cluster.where().values()]
    assert (sorted(loads), sum(loads)) == ([3, 3, 3], 9)
    running = [unit for units in cluster.where().values() for unit in units]
    assert len(running) == len(set(running)) == 11


def test_workers_that_come_back_within_the_delay_get_what_they_had() -> None:
    made = SimulatedCluster(2, {**QUICK, "scheduled.rebalance.max.delay.ms": "30000"})
    try:
        for name in ("a", "b", "c"):
            made.add(name)
        made.settle()
        made.put("x", 6)
        made.settle()
        before = {name: set(units) for name, units in made.where().items()}
        leader = made.leader()
        assert leader is not None
        # A new leader would not know what was lost, as with Java, and would deal it at once.
        lost = set(before) - {leader.name}
        for name in lost:
            made.nodes[name].crash()
        made.loop.run_for(10)
        mark = len(made.story)
        for name in ("d", "e"):
            made.add(name)
        made.settle()
        # What stayed was not touched; the new ones have just what was lost.
        assert {change.node for change in made.story[mark:]} <= {"d", "e"}
        after = {name: set(units) for name, units in made.where().items()}
        assert after[leader.name] == before[leader.name]
        assert after["d"] | after["e"] == set.union(*(before[name] for name in lost))
    finally:
        made.close()


def test_a_request_fails_once_when_somebody_has_fenced_the_leaders_producer() -> None:
    cluster = SimulatedCluster(1, {**QUICK, "exactly.once.source.support": "enabled"})
    try:
        for name in ("a", "b"):
            cluster.add(name)
        cluster.settle()
        cluster.put("x", 1)
        # Somebody else takes the transactional id of the leader, as one that was frozen might.
        cluster.log.leader = cluster.present()[0].config if cluster.leader() is not cluster.present()[0] else None
        with pytest.raises(ConflictException) as refused:
            cluster.ask(lambda leader: leader.put_connector("y", {"connector.class": "Simulated"}, replace=True))
        assert "try again" in str(refused.value).lower()
        cluster.put("y", 2)
        cluster.settle()
        assert {"x", "y"} <= cluster.configured()
    finally:
        cluster.close()
