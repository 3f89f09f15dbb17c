"""What ``GET /cluster`` says of a simulated cluster."""

from contextlib import contextmanager

from testkit.simulated_cluster import SimulatedCluster

from penstock.herder import Health
from penstock.kafka.group.events import GroupRefusedException
from penstock.model import ConnectorTaskId

QUICK = {"heartbeat.interval.ms": "1000", "session.timeout.ms": "6000", "scheduled.rebalance.max.delay.ms": "20000"}


@contextmanager
def cluster(*names, seed=0):
    made = SimulatedCluster(seed, QUICK)
    try:
        for name in names:
            made.add(name)
        if names:
            made.settle()
        yield made
    finally:
        made.close()


def described(made, name):
    return made.answer(made.nodes[name].thread.submit(made.nodes[name].services.describe))


def test_the_leader_tells_what_every_member_runs_and_the_others_what_they_run():
    with cluster("a", "b") as made:
        made.put("x", 2)
        made.settle()
        leader = made.leader().name
        other = "b" if leader == "a" else "a"
        found, told = described(made, leader), described(made, other)

    assert (found["group_id"], found["config_topic"]) == ("simulated", "connect-configs")
    assert (found["is_leader"], told["is_leader"], "members" in told) == (True, False, False)
    assert told["leader"] == f"http://{leader}:8083/"
    by_url = {one["url"]: one for one in found["members"]}
    assert by_url.keys() == {"http://a:8083/", "http://b:8083/"}
    assert {key: by_url[f"http://{other}:8083/"][key] for key in ("connectors", "tasks")} == {
        key: told[key] for key in ("connectors", "tasks")
    }
    given = [(one["connector"], one["task"]) for member in by_url.values() for one in member["tasks"]]
    assert sorted(given) == [("x", 0), ("x", 1)]
    assert found["waiting"] == {"connectors": [], "tasks": []}
    assert (found["next_rebalance_in_ms"], found["obstacle"]) == (None, None)


def test_what_a_lost_worker_ran_waits_and_the_leader_says_for_how_long():
    with cluster("a", "b") as made:
        made.put("x", 4)
        made.settle()
        leader = made.leader().name
        other = "b" if leader == "a" else "a"
        lost = made.where()[other]
        made.nodes[other].crash()
        made.until(lambda: described(made, leader)["next_rebalance_in_ms"] is not None)
        found = described(made, leader)

    assert 0 < found["next_rebalance_in_ms"] <= 20_000
    assert found["waiting"] == {
        "connectors": sorted(unit for unit in lost if isinstance(unit, str)),
        "tasks": [unit.to_json() for unit in sorted(one for one in lost if isinstance(one, ConnectorTaskId))],
    }


def test_a_worker_without_a_place_says_so():
    with cluster("a") as made:
        made.nodes["a"].group.refused(GroupRefusedException("GROUP_AUTHORIZATION_FAILED", "Kafka does not let it in"))
        assert described(made, "a")["obstacle"] == "Kafka does not let it in"
        assert made.nodes["a"].herder.health() == (Health.STARTING, "Kafka does not let it in")
        made.add("b")
        made.settle()
        assert described(made, "a")["obstacle"] is None
        assert made.nodes["a"].herder.health()[0] is Health.HEALTHY
