"""Workers that share work, in virtual time: what moves, what stays, and what holds whatever happens."""

import os
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testkit.simulated_cluster import SimulatedCluster
from testkit.simulated_cluster import cluster as cluster_parts
from testkit.simulated_cluster.disturbances import ACTIONS, Disturbed
from testkit.simulated_cluster.stores import LogConfigStore

from penstock.errors import ForbiddenException, KafkaRetriableException
from penstock.herder.control_plane import NotHereException
from penstock.kafka.group.events import RoundJoined
from penstock.model import ConnectorTaskId, TargetState
from penstock.model.cluster_config import SessionKey, connector_entries, session_key_entries

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "40"))
EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}
QUICK = {"heartbeat.interval.ms": "1000", "session.timeout.ms": "6000", "scheduled.rebalance.max.delay.ms": "0"}


@contextmanager
def cluster(*names, seed=0, **more):
    made = SimulatedCluster(seed, {**QUICK, **more})
    try:
        for name in names:
            made.add(name)
        made.settle()
        yield made
    finally:
        made.close()


def tasks(connector, *numbers):
    return [ConnectorTaskId(connector, number) for number in numbers]


def moved_since(made, mark):
    """The units that have begun or ended to run since a mark in the story."""
    return {change.unit for change in made.story[mark:]}


def test_the_work_of_a_connector_is_spread_over_all_workers():
    with cluster("a", "b", "c") as made:
        made.put("x", 6)
        made.put("y", 3)
        made.settle()
        loads = [len([unit for unit in units if isinstance(unit, ConnectorTaskId)]) for units in made.where().values()]
        assert loads == [3, 3, 3]


def test_a_worker_counts_its_rounds_from_the_join_until_the_assignment_is_in_force(monkeypatch):
    with cluster("a", "b") as made:
        rounds = [node.group.rounds for node in made.present()]
        before = [one.completed for one in rounds]
        assert min(before) >= 1
        assert not any(one.under_way for one in rounds)
        made.add("c")
        made.settle()
        assert all(one.completed > least for one, least in zip(rounds, before, strict=True))
        joining, lost, joined = made.present()
        ready = Future[None]()
        ready.set_result(None)
        monkeypatch.setattr(joining.thread, "submit", lambda request: ready)
        joining.group.before_join(1)
        lost.group.lost("its session has ended")
        joined.group.joined(RoundJoined(1000, "c", "sessioned", b""))
        assert all(node.group.rounds.under_way for node in made.present())


def test_a_new_connector_disturbs_no_other():
    with cluster("a", "b", "c") as made:
        made.put("x", 6)
        made.settle()
        mark = len(made.story)
        made.put("y", 3)
        made.settle()
        assert moved_since(made, mark) == {"y", *tasks("y", 0, 1, 2)}


def test_a_deleted_connector_disturbs_no_other_where_the_rest_is_even():
    with cluster("a", "b") as made:
        made.put("x", 2)
        made.put("y", 2)
        made.settle()
        mark = len(made.story)
        made.delete("y")
        made.settle()
        assert moved_since(made, mark) == {"y", *tasks("y", 0, 1)}


def test_another_configuration_with_as_many_tasks_makes_no_round_and_restarts_what_it_concerns():
    with cluster("a", "b") as made:
        made.put("x", 3)
        made.put("y", 3)
        made.settle()
        mark, generation, began = len(made.story), made.coordinator.generation, made.loop.time()
        made.put("x", 3, seed="other")
        made.until(lambda: made.stable() and len(made.story) == mark + 8)
        assert made.coordinator.generation == generation
        assert made.loop.time() - began < 2
        assert moved_since(made, mark) == {"x", *tasks("x", 0, 1, 2)}


@pytest.mark.parametrize("more", [{}, EXACTLY_ONCE])
def test_workers_get_tasks_though_the_first_leader_makes_the_key_of_the_group_late(monkeypatch, more):
    # As where the brokers are still making room for the first transactions.
    claim = LogConfigStore.claim
    refused: list[LogConfigStore] = []

    def late(store):
        claim(store)
        if len(refused) < 12:
            refused.append(store)
            raise KafkaRetriableException("COORDINATOR_NOT_AVAILABLE")

    monkeypatch.setattr(LogConfigStore, "claim", late)
    with cluster("a", "b", "c", **more) as made:
        for name in ("x", "y", "z"):
            made.put(name, 2)
        assert all(node.herder.plane.snapshot.session_key is None for node in made.present())
        made.settle()
        assert len(refused) == 12


def test_nobody_forgets_a_connector_of_which_the_target_state_alone_was_read_so_far():
    with cluster("a", "b", "c") as made:
        first, *rest = connector_entries("x", {"connector.class": "Simulated", "name": "x"}, TargetState.STARTED)
        made.log.append([first])
        made.loop.run_for(1)
        made.log.append(rest)
        made.until(lambda: made.statuses.connector("x") is not None)
        assert made.statuses.forgotten == []


def test_the_statuses_of_what_was_deleted_go_and_who_ran_nothing_of_it_writes_nothing():
    with cluster("a", "b", "c") as made:
        made.put("x", 1)
        made.settle()
        made.delete("x")
        made.until(lambda: made.statuses.names() == set())
        assert sorted(made.statuses.forgotten, key=str) == ["x", ConnectorTaskId("x", 0)]


def test_more_tasks_leave_those_that_run_alone_but_for_what_balance_needs():
    with cluster("a", "b") as made:
        made.put("x", 2)
        made.put("y", 2)
        made.settle()
        mark = len(made.story)
        made.put("x", 4)
        made.until(lambda: made.stable() and ConnectorTaskId("x", 3) in moved_since(made, mark))
        assert not moved_since(made, mark) & {"y", *tasks("y", 0, 1)}


def test_a_worker_that_joins_gets_its_share_and_nothing_else_moves():
    with cluster("a", "b") as made:
        made.put("x", 6)
        made.settle()
        before, began, mark = made.where(), made.loop.time(), len(made.story)
        made.add("c")
        made.until(lambda: made.stable() and bool(made.where()["c"]))
        assert made.loop.time() - began < 3
        assert moved_since(made, mark) == set(made.where()["c"])
        for name in ("a", "b"):
            assert set(made.where()[name]) < set(before[name])


def test_no_unit_runs_twice_while_work_moves():
    with cluster("a", "b") as made:
        made.put("x", 8)
        made.settle()
        made.add("c")
        made.until(lambda: made.stable() and bool(made.where()["c"]))
        made.nodes["b"].leave()
        made.settle()
        running = set()
        for change in made.story:
            if change.began:
                assert change.unit not in running, change
                running.add(change.unit)
            else:
                running.discard(change.unit)


@pytest.mark.parametrize(("fault", "within_s"), [("leave", 1.5), ("crash", 8.0)])
def test_the_work_of_a_worker_that_goes_is_taken_over_in_time(fault, within_s):
    with cluster("a", "b", "c") as made:
        made.put("x", 6)
        made.settle()
        began = made.loop.time()
        getattr(made.nodes["c"], fault)()
        made.settle()
        assert made.loop.time() - began < within_s


def test_lost_work_waits_for_its_worker_where_a_delay_is_set():
    with cluster("a", "b", **{"scheduled.rebalance.max.delay.ms": "20000"}) as made:
        made.put("x", 4)
        made.settle()
        lost = next(node for node in made.present() if not node.group.place.leads)
        gone, began = set(lost.worker.running), made.loop.time()
        lost.crash()
        made.loop.run_for(12)
        assert gone
        assert not gone & {unit for units in made.where().values() for unit in units}
        back = made.add("c")
        made.settle()
        assert 20 < made.loop.time() - began < 33
        assert set(back.worker.running) == gone


def test_a_frozen_worker_gives_up_what_it_had_when_it_wakes():
    with cluster("a", "b") as made:
        made.put("x", 4)
        made.settle()
        made.nodes["b"].freeze()
        made.settle()
        assert len(made.where()["b"]) > 0
        made.nodes["b"].thaw()
        made.until(lambda: made.stable() and not made.nodes["b"].thread.frozen)
        assert {len(units) for units in made.where().values()} <= {2, 3}


def test_when_the_coordinator_is_away_for_long_every_worker_stops_and_goes_on_later():
    with cluster("a", "b") as made:
        made.put("x", 4)
        made.settle()
        made.coordinator.reachable = False
        made.loop.run_for(5)
        assert made.where() == {"a": [], "b": []}
        made.coordinator.reachable = True
        made.settle()


def test_the_eager_protocol_stops_everything_before_it_deals():
    with cluster("a", "b", **{"connect.protocol": "eager"}) as made:
        made.put("x", 4)
        made.settle()
        mark = len(made.story)
        made.add("c")
        made.until(lambda: made.stable() and bool(made.where()["c"]))
        assert {change.unit for change in made.story[mark:] if not change.began} >= {"x", *tasks("x", 0, 1, 2, 3)}
        assert {node.group.place.protocol.value for node in made.present()} == {"default"}


def test_followers_say_who_leads():
    with cluster("a", "b") as made:
        follower = next(node for node in made.present() if not node.group.place.leads)
        with pytest.raises(NotHereException) as refused:
            made.answer(follower.herder.put_connector("x", {"connector.class": "S", "password": "p"}))
        assert refused.value.url == made.leader().url
        assert refused.value.config == {"connector.class": "S", "password": "p", "name": "x"}


def test_tasks_of_a_follower_get_their_configurations_stored_by_the_leader():
    with cluster("a", "b", "c") as made:
        for name in ("x", "y", "z"):
            made.put(name, 2)
        made.settle()
        assert len(made.configured()) == 9


def test_a_key_of_another_group_in_the_config_topic_is_noticed_and_answered_once():
    with cluster("a", "b") as made:
        made.loop.run_for(1)
        other = SessionKey(b"other", "HmacSHA256", made.loop.now_ms())
        made.log.append(session_key_entries(other))
        made.until(lambda: made.leader().duties.foreign_key)
        assert (made.answer(made.leader().herder.cluster()))["warning"].startswith("another group of workers")
        made.until(lambda: made.log.fold().session_key != other)
        made.log.append(session_key_entries(other))
        made.loop.run_for(30)
        assert made.log.fold().session_key == other


@pytest.mark.parametrize("fault", ["leave", "crash", "freeze"])
def test_a_leader_does_not_take_the_next_one_for_that_of_another_group(fault):
    with cluster("a", "b", "c") as made:
        made.loop.run_for(1)
        former, key = made.leader(), made.log.fold().session_key
        getattr(former, fault)()
        made.until(lambda: made.leader() not in (None, former) and made.log.fold().session_key != key)
        if fault == "freeze":
            former.thaw()
        made.loop.run_for(30)
        assert not any(node.duties.foreign_key for node in made.nodes.values())


def test_a_change_of_an_exactly_once_source_restarts_all_of_its_tasks_after_the_former_ones_were_fenced():
    with cluster("a", "b", **EXACTLY_ONCE) as made:
        made.put("x", 3)
        made.put("y", 1)
        made.settle()
        mark = len(made.story)
        made.put("x", 4)
        made.settle()
        assert moved_since(made, mark) == {"x", *tasks("x", 0, 1, 2, 3)}
        assert made.log.fold().fenced == {"x": 4, "y": 1}


def test_a_task_whose_fencing_was_signed_with_a_key_that_was_replaced_meanwhile_asks_again(monkeypatch):
    others = cluster_parts._Others
    refused: list[str] = []
    fence = others.fence

    def refuse_once(self, url, connector):
        if not refused:
            refused.append(connector)
            raise ForbiddenException("invalid signature")
        return fence(self, url, connector)

    monkeypatch.setattr(others, "fence", refuse_once)
    with cluster("a", "b", **EXACTLY_ONCE) as made:
        made.put("x", 4)
        made.settle()
        assert refused == ["x"]


def test_a_frozen_worker_does_not_fence_the_worker_that_has_its_tasks_now():
    with cluster("a", "b", **EXACTLY_ONCE) as made:
        made.put("x", 4)
        made.settle()
        frozen = next(node for node in made.present() if not node.group.place.leads)
        frozen.freeze()
        made.settle()
        epochs = made.producers.epochs()
        zombies = list(frozen.worker.writing)
        assert zombies
        assert not any(map(frozen.worker.writes, zombies))
        frozen.thaw()
        made.loop.run_for(0.5)
        assert made.producers.epochs() == epochs
        made.settle()


def test_what_a_deleted_connector_has_left_is_fenced_and_forgotten():
    with cluster("a", "b", **EXACTLY_ONCE) as made:
        made.put("x", 2)
        made.settle()
        made.delete("x")
        made.until(lambda: made.log.fold().fenced == {})


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES == 40, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 3),
    lost=st.sampled_from([0.0, 0.02, 0.1]),
    delay=st.sampled_from(["0", "20000"]),
    exactly_once=st.sampled_from(["disabled", "enabled"]),
    story=st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), st.sampled_from([0.01, 0.5, 3.0, 15.0])), max_size=20),
)
def test_whatever_happens_everything_comes_to_run_once_and_no_answered_request_is_lost(
    seed, workers, lost, delay, exactly_once, story
):
    settings = {"scheduled.rebalance.max.delay.ms": delay, "exactly.once.source.support": exactly_once}
    made = SimulatedCluster(seed, settings, lost=lost)
    try:
        for number in range(workers):
            made.add(f"w{number}")
        disturbed = Disturbed(made)
        for action, pause_s in story:
            disturbed.happen(action, pause_s)
        disturbed.settle()
    finally:
        made.close()
