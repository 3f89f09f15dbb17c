"""Scenarios of groups that need no real worker: in virtual time, over the simulated log and coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from testkit.simulated_cluster import SimulatedCluster

from penstock.errors import BadRequestException, ConflictException, ConnectException, NotFoundException
from penstock.herder.control_plane import NotHereException
from penstock.kafka.group.events import RoundJoined
from penstock.model import ConnectorStatus, ConnectorTaskId, State, TargetState, TaskStatus
from penstock.model.cluster_config import connector_entries

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


def began(cluster: SimulatedCluster, mark: int = 0) -> list[str]:
    """The units that were started since a mark in the story."""
    return sorted(str(change.unit) for change in cluster.story[mark:] if change.began)


def test_each_state_follows_on_every_worker_and_each_instance_ends_once(cluster: SimulatedCluster) -> None:
    cluster.put("x", 3)
    cluster.settle()
    running, paused = (State.RUNNING,) * 4, (State.PAUSED,) * 4
    for request, wanted in (
        ("stop", (State.STOPPED,)),
        ("resume", running),
        ("pause", paused),
        ("stop", (State.STOPPED,)),
        ("pause", (State.PAUSED,)),
        ("resume", running),
    ):
        cluster.ask(lambda leader: getattr(leader, f"{request}_connector")("x"))  # noqa: B023
        cluster.until(lambda: states(cluster, "x") == {wanted})  # noqa: B023
        if wanted == (State.STOPPED,):
            assert [node.herder.connectors()["x"].task_configs for node in cluster.present()] == [()] * 3
    cluster.settle()
    cluster.delete("x")
    cluster.settle()
    ended = sorted(str(change.unit) for change in cluster.story if not change.began)
    # Each of two stops, and the deletion, ended the tasks.
    assert began(cluster) == ended == ["x", *(f"x-{task}" for task in range(3) for _ in range(3))]


def test_a_connector_that_fails_to_start_is_stopped_and_runs_again(cluster: SimulatedCluster) -> None:
    cluster.orders["x", "start"] = "fail"
    cluster.put("x", 2)
    cluster.until(lambda: states(cluster, "x") == {(State.FAILED,)})
    cluster.ask(lambda leader: leader.stop_connector("x"))
    cluster.until(lambda: states(cluster, "x") == {(State.STOPPED,)})
    del cluster.orders["x", "start"]
    cluster.ask(lambda leader: leader.resume_connector("x"))
    cluster.until(lambda: states(cluster, "x") == {(State.RUNNING,) * 3})


def test_a_restart_reaches_what_it_names_on_every_worker_and_nothing_else(cluster: SimulatedCluster) -> None:
    failed = (State.RUNNING, State.RUNNING, State.FAILED, State.RUNNING)
    cluster.orders["x-1", "start"] = "fail"
    cluster.put("x", 3)
    cluster.until(lambda: states(cluster, "x") == {failed})

    def restarted(make: Callable[[], Future[Any]], wanted: tuple[State, ...] = (State.RUNNING,) * 4) -> list[str]:
        mark = len(cluster.story)
        cluster.answer(make())
        cluster.loop.run_for(5)
        assert states(cluster, "x") == {wanted}
        return began(cluster, mark)

    def with_tasks(include: bool, failed: bool) -> Future[Any]:
        leader = cluster.leader()
        assert leader is not None
        return leader.herder.restart_connector_and_tasks("x", include_tasks=include, only_failed=failed)

    assert restarted(lambda: cluster.owner("x").herder.restart_connector("x"), failed) == ["x"]
    del cluster.orders["x-1", "start"]
    assert restarted(lambda: with_tasks(True, True)) == ["x-1"]
    assert restarted(lambda: with_tasks(False, True)) == []
    assert restarted(lambda: with_tasks(True, False)) == ["x", "x-0", "x-1", "x-2"]
    for task in range(3):
        unit = ConnectorTaskId("x", task)
        assert restarted(lambda: cluster.owner(unit).herder.restart_task("x", unit.task)) == [str(unit)]  # noqa: B023
        others = [node for node in cluster.present() if node is not cluster.owner(unit)]
        with pytest.raises(NotHereException):
            cluster.answer(others[0].herder.restart_task("x", task))


def test_what_is_blocked_on_one_worker_keeps_nothing_else_waiting(cluster: SimulatedCluster) -> None:
    cluster.orders |= {("x", "start"): "block", ("y-0", "start"): "block", ("y-1", "stop"): "block"}
    cluster.put("x", 1)
    cluster.put("y", 2)
    cluster.put("z", 3)
    cluster.until(lambda: states(cluster, "z") == {(State.RUNNING,) * 4})
    assert State.RUNNING not in next(iter(states(cluster, "x")))
    cluster.delete("y")
    cluster.delete("x")
    cluster.settle()
    assert states(cluster, "z") == {(State.RUNNING,) * 4}


@pytest.mark.parametrize("target", [TargetState.PAUSED, TargetState.STOPPED])
def test_a_connector_created_at_rest_has_no_tasks_until_it_is_resumed(
    cluster: SimulatedCluster, target: TargetState
) -> None:
    settings = {"connector.class": "Simulated", "tasks.max": "3"}
    cluster.ask(lambda leader: leader.put_connector("x", settings, target=target))
    cluster.until(lambda: states(cluster, "x") == {(State(target.value),)})
    assert cluster.configured() == {"x"}
    cluster.ask(lambda leader: leader.resume_connector("x"))
    cluster.until(lambda: states(cluster, "x") == {(State.RUNNING,) * 4})
    assert began(cluster).count("x") == 1


def test_the_status_has_as_many_tasks_as_there_are(cluster: SimulatedCluster) -> None:
    for tasks in (3, 4, 3):
        cluster.put("x", tasks)
        cluster.settle()
        cluster.until(lambda: states(cluster, "x") == {(State.RUNNING,) * (tasks + 1)})  # noqa: B023


def test_too_many_tasks_fail_the_connector_and_leave_running_tasks_where_they_are(cluster: SimulatedCluster) -> None:
    cluster.put("x", 2)
    cluster.settle()
    mark = len(cluster.story)
    cluster.orders["x", "tasks"] = "5"
    with pytest.raises(ConnectException, match=r"tasks\.max"):
        cluster.answer(cluster.owner("x").herder.restart_connector("x"))
    cluster.until(lambda: states(cluster, "x") == {(State.FAILED, State.RUNNING, State.RUNNING)})
    assert {change.unit for change in cluster.story[mark:]} == {"x"}
    del cluster.orders["x", "tasks"]
    cluster.put("x", 5)
    cluster.until(lambda: states(cluster, "x") == {(State.RUNNING,) * 6})


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


def test_tasks_are_restarted_by_their_connector_wherever_they_run(cluster: SimulatedCluster) -> None:
    cluster.put("x", 3)
    cluster.settle()
    for wanted in ([0, 2], None):
        mark = len(cluster.story)
        cluster.owner("x").herder.restart_tasks("x", wanted)
        cluster.loop.run_for(5)
        assert began(cluster, mark) == [f"x-{task}" for task in wanted or range(3)]
        assert states(cluster, "x") == {(State.RUNNING,) * 4}


def test_a_worker_that_cannot_read_the_config_topic_stops_what_it_runs_until_it_can(cluster: SimulatedCluster) -> None:
    cluster.put("x", 6)
    cluster.settle()
    blind = next(node for node in cluster.present() if node is not cluster.leader())
    blind.config.readable = False
    cluster.put("y", 3)
    cluster.until(lambda: not blind.worker.running)
    # The others have its work for as long as it is away.
    cluster.until(lambda: len({unit for node in cluster.present() for unit in node.worker.running}) == 11)
    blind.config.readable = True
    cluster.settle()
    assert blind.worker.running


def test_a_leader_that_cannot_read_what_a_member_has_read_gives_way_to_another(cluster: SimulatedCluster) -> None:
    cluster.put("x", 3)
    cluster.settle()
    leader = cluster.leader()
    assert leader is not None
    leader.config.readable = False
    settings = {"connector.class": "Simulated", "tasks.max": "2"}
    cluster.log.append(connector_entries("y", settings, TargetState.STARTED))
    cluster.add("d")
    cluster.until(lambda: "y" in {unit for node in cluster.present() for unit in node.worker.running})
    assert "y" not in leader.worker.running
    leader.config.readable = True
    cluster.until(lambda: cluster.stable() and states(cluster, "y") == {(State.RUNNING,) * 3})


def test_a_worker_that_cannot_read_its_assignment_asks_for_another(cluster: SimulatedCluster) -> None:
    cluster.put("x", 3)
    cluster.settle()
    node = cluster.present()[0]
    before = node.group.place
    node.group.joined(RoundJoined(before.generation, before.member_id, "penstock", b"\x00"))
    cluster.until(lambda: node.group.place.generation > before.generation)
    cluster.settle()


def test_requests_of_workers_to_each_other_that_cannot_be_are_refused(cluster: SimulatedCluster) -> None:
    with pytest.raises(NotFoundException, match="Connector x not found"):
        cluster.ask(lambda leader: leader.put_task_configs("x", [{}]))
    with pytest.raises(BadRequestException, match="disabled on this worker: there is nothing to fence"):
        cluster.ask(lambda leader: leader.fence_zombies("x"))
    cluster.ask(lambda leader: leader.put_connector("x", {"connector.class": "Simulated"}, target=TargetState.STOPPED))
    with pytest.raises(BadRequestException, match="it is stopped, and has no tasks"):
        cluster.ask(lambda leader: leader.put_task_configs("x", [{}]))


def test_a_log_level_of_the_cluster_reaches_every_worker(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str, str]] = []
    for node in cluster.present():
        monkeypatch.setattr(node.services, "_set_level", lambda *level, name=node.name: said.append((name, *level)))
    assert cluster.answer(cluster.present()[0].herder.set_cluster_level("penstock.x", "WARN"))
    cluster.until(lambda: sorted(said) == [(name, "penstock.x", "WARN") for name in "abc"])
