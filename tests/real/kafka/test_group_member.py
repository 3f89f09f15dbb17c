"""The contract of a member of a workers' group, on a real broker."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from testkit.brokers.broker_cluster import EmbeddedCluster
from testkit.brokers.embedded import freeze, thaw
from testkit.brokers.group_member import group_member as consumer_of
from testkit.brokers.group_owner import QUICK, GroupOwner, MemberProcess, run_member, say_back
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker, free_ports
from penstock.kafka.group.member import GroupMember

pytestmark = [pytest.mark.broker, pytest.mark.slow]

HEARTBEAT_S = 1.0
SESSION_S = 6.0


@pytest.fixture
def worker(broker: EmbeddedBroker) -> dict[str, str]:
    """Settings of a worker in a group that nothing else uses."""
    return worker_of(broker.bootstrap_servers)


def worker_of(servers: str, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": servers, "group.id": f"workers-{uuid4().hex[:8]}", **QUICK} | {
        name.replace("_", "."): text for name, text in more.items()
    }


@pytest.fixture(scope="module", autouse=True)
def offsets_topic(broker: EmbeddedBroker) -> None:
    """The first group of a broker waits for the topic that keeps groups."""
    with run_member(worker_of(broker.bootstrap_servers), first := GroupOwner()):
        first.wait_joined()


@contextmanager
def led(
    worker: Mapping[str, str], leader: GroupOwner, follower: GroupOwner
) -> Iterator[tuple[GroupMember, GroupMember]]:
    """Two members in one round, of which the first leads."""
    with run_member(worker, leader) as first:
        leader.wait_joined()
        with run_member(worker, follower) as second:
            leader.wait_joined(f"{leader.says} of 2")
            follower.wait_joined(f"{follower.says} of 2")
            yield first, second


def test_a_first_member_leads_and_gets_what_it_assigns(worker: Mapping[str, str]) -> None:
    owner = GroupOwner("one")
    began = time.monotonic()
    with run_member(worker, owner, client_id="connect-host:8083") as member:
        joined = owner.wait_joined("one of 1").about

        assert joined.protocol == "sessioned"
        assert joined.generation == 1
        assert joined.member_id.startswith("connect-host:8083-")
        assert owner.all("assign")[0].about == ("sessioned", {joined.member_id: b"one"}, 1, -1)
        assert [told.kind for told in owner.told] == ["before_join", "assign", "joined"]
        assert (member.view.member_id, member.view.generation) == (joined.member_id, 1)
        assert member.view.joined
        assert member.view.coordinator == worker["bootstrap.servers"]
        assert owner.wait_joined().at - began < 5


def test_each_member_gets_its_own_assignment_from_the_leader(worker: Mapping[str, str]) -> None:
    one, two, three = GroupOwner("one"), GroupOwner("two"), GroupOwner("three")
    with ExitStack() as running:
        for owner in (one, two, three):
            running.enter_context(run_member(worker, owner))
            owner.wait_joined()
        for owner in (one, two, three):
            told = owner.wait_joined(f"{owner.says} of 3").about
            assert told.generation == 3
        # The first one leads as long as it is there.
        assert (two.all("assign"), three.all("assign")) == ([], [])
        assert [told.about[3] for told in one.all("assign")] == [-1, 1, 2]


def test_a_round_uses_what_all_members_offer(worker: Mapping[str, str]) -> None:
    new, old = GroupOwner("new"), GroupOwner("old", ["compatible", "default"])
    with run_member(worker, new), run_member(worker, old):
        assert new.wait_joined("new of 2").about.protocol == "compatible"
        assert old.wait_joined("old of 2").about.protocol == "compatible"


def test_what_a_follower_says_anew_reaches_the_leader_when_it_joins_again(worker: Mapping[str, str]) -> None:
    leader, follower = GroupOwner("leader"), GroupOwner("follower")
    with led(worker, leader, follower) as (_, member):
        generation = follower.wait_joined("follower of 2").about.generation

        follower.says = "changed"
        member.rejoin("its work has changed")

        told = follower.wait_joined("changed of 2", timeout_s=5).about
        assert told.generation == generation + 1
        assert leader.wait("joined", lambda joined: joined.generation == told.generation)
        assert not leader.all("lost") + follower.all("lost")


def test_a_leader_that_joins_again_begins_a_round_for_all(worker: Mapping[str, str]) -> None:
    leader, follower = GroupOwner("leader"), GroupOwner("follower")
    with led(worker, leader, follower) as (member, _):
        generation = follower.wait_joined("follower of 2").about.generation

        began = time.monotonic()
        member.rejoin("a connector was created")

        assert follower.wait("joined", lambda joined: joined.generation == generation + 1, timeout_s=5)
        # Asked at once; the other one hears of it with its next heartbeat.
        assert leader.wait("before_join", after=began).at - began < HEARTBEAT_S / 2
        assert leader.wait_joined(after=began).at - began < HEARTBEAT_S + 0.5


def test_a_member_that_joins_again_alone_has_its_round_at_once(worker: Mapping[str, str]) -> None:
    owner = GroupOwner("one")
    with run_member(worker, owner) as member:
        owner.wait_joined()
        began = time.monotonic()
        member.rejoin("to see how long it takes")
        assert owner.wait_joined(after=began).at - began < 0.5


def test_a_wish_that_comes_during_a_round_gets_a_round_of_its_own(worker: Mapping[str, str]) -> None:
    wished = threading.Event()
    # The first round may come before the test has the member.
    running = SimpleQueue[GroupMember]()

    def wish(protocol: str, members: Mapping[str, bytes], generation: int, last: int) -> Mapping[str, bytes]:
        if not wished.is_set():
            wished.set()
            owner.says = "later"
            running.get(timeout=30).rejoin("something has changed meanwhile")
        return say_back(protocol, members, generation, last)

    owner = GroupOwner("first", assign=wish)
    with run_member(worker, owner) as member:
        running.put(member)
        assert owner.wait_joined("first of 1").about.generation == 1
        assert owner.wait_joined("later of 1").about.generation == 2


def test_others_notice_within_a_heartbeat_that_a_member_has_left(worker: Mapping[str, str]) -> None:
    stays, goes = GroupOwner("stays"), GroupOwner("goes")
    with run_member(worker, stays), ExitStack() as running:
        member = running.enter_context(run_member(worker, goes))
        stays.wait_joined("stays of 2")
        goes.wait_joined("goes of 2")

        began = time.monotonic()
        assert member.close(5)
        left = time.monotonic()

        assert left - began < 2
        assert stays.wait_joined("stays of 1", after=began, timeout_s=5).at - began < HEARTBEAT_S + 0.3
        # It has left by itself: nothing was lost.
        assert not goes.all("lost")
        assert not member.view.joined


def test_a_leader_that_leaves_is_followed_by_another(worker: Mapping[str, str]) -> None:
    first, second = GroupOwner("first"), GroupOwner("second")
    with led(worker, first, second) as (leader, _):
        leader.close(5)
        assert second.wait_joined("second of 1", timeout_s=5)
        # It took part in the round before this one.
        _, _, generation, last_completed = second.all("assign")[-1].about
        assert last_completed == generation - 1


def test_who_has_left_for_a_while_is_back_when_it_joins_again(worker: Mapping[str, str]) -> None:
    stays, goes = GroupOwner("stays"), GroupOwner("goes")
    with run_member(worker, stays), run_member(worker, goes) as member:
        goes.wait_joined("goes of 2")
        stays.wait_joined("stays of 2")

        member.leave("the config topic cannot be read")
        stays.wait_joined("stays of 1", timeout_s=5)
        await_true(lambda: member.view.member_id == "")
        assert (member.view.joined, member.view.generation) == (False, -1)
        away = time.monotonic()
        member.rejoin("the config topic can be read")

        goes.wait_joined("goes of 2", after=away)
        # The owner knows of it: it keeps its work, or gives it up, as it likes.
        assert not goes.all("lost")


def test_the_work_of_a_killed_member_is_free_when_its_session_ends(worker: Mapping[str, str]) -> None:
    stays = GroupOwner("stays")
    with run_member(worker, stays), MemberProcess(worker, "goes") as goes:
        goes.owner.wait_joined("goes of 2")
        stays.wait_joined("stays of 2")

        began = time.monotonic()
        goes.kill()

        took_s = stays.wait_joined("stays of 1", after=began).at - began
        assert took_s < SESSION_S + 2


def test_a_frozen_member_gives_up_its_work_when_it_wakes_and_joins_again(worker: Mapping[str, str]) -> None:
    stays = GroupOwner("stays")
    with run_member(worker, stays), MemberProcess(worker, "sleeps") as sleeper:
        sleeper.owner.wait_joined("sleeps of 2")
        stays.wait_joined("stays of 2")

        sleeper.signal(signal.SIGSTOP)
        stays.wait_joined("stays of 1", after=time.monotonic())
        woken = time.monotonic()
        sleeper.signal(signal.SIGCONT)

        lost = sleeper.owner.wait("lost", after=woken)
        back = sleeper.owner.wait_joined("sleeps of 2", after=woken)
        # It knows by its own clock, before it has asked anybody.
        assert lost.about == "no heartbeat was answered"
        assert lost.at - woken < 2
        assert back.at - woken < HEARTBEAT_S + 4
        # Between the two the owner was asked whether its work has stopped.
        assert sleeper.owner.wait("before_join", after=lost.at).at < back.at


def test_a_member_whose_owner_is_stuck_leaves_and_is_back_when_the_owner_is(broker: EmbeddedBroker) -> None:
    worker = worker_of(broker.bootstrap_servers, rebalance_timeout_ms="3000")
    stays, stuck = GroupOwner("stays"), GroupOwner("stuck")
    with run_member(worker, stays), run_member(worker, stuck, polls=False) as member:
        began = time.monotonic()
        stuck.wait_joined("stuck of 2")

        lost = stuck.wait("lost")
        assert "rebalance.timeout.ms" in lost.about
        assert 2.5 < lost.at - began < 6
        # It says good-bye: nobody waits for the end of its session.
        assert stays.wait_joined("stays of 1", after=lost.at).at - lost.at < HEARTBEAT_S + 0.5
        assert not member.view.joined
        assert stuck.all("joined")[-1].at < lost.at

        member.polled()
        assert stuck.wait_joined("stuck of 2", after=lost.at)


def once_joined(call: Callable[[], object]) -> Callable[[int], None]:
    """What a member that has been in a round does before the next one."""

    def before_join(generation: int) -> None:
        if generation > 0:
            call()

    return before_join


def test_a_leader_may_take_longer_than_a_session_to_assign(worker: Mapping[str, str]) -> None:
    took = threading.Event()

    def slowly(protocol: str, members: Mapping[str, bytes], generation: int, last: int) -> Mapping[str, bytes]:
        if len(members) == 2:
            took.wait(SESSION_S + 2)
        return say_back(protocol, members, generation, last)

    leader, follower = GroupOwner("leader", assign=slowly), GroupOwner("follower")
    with run_member(worker, leader) as member:
        leader.wait_joined()
        with run_member(worker, follower):
            assert follower.wait_joined("follower of 2")
            assert leader.wait_joined("leader of 2")
            assert not leader.all("lost") + follower.all("lost")
            assert member.metrics.heartbeats.count >= SESSION_S


def test_members_wait_for_the_work_of_one_to_stop_longer_than_a_session(worker: Mapping[str, str]) -> None:
    waits = threading.Event()
    slow = GroupOwner("slow", before_join=once_joined(lambda: waits.wait(SESSION_S + 2)))
    quick = GroupOwner("quick")
    with run_member(worker, slow):
        slow.wait_joined()
        began = time.monotonic()
        with run_member(worker, quick):
            assert quick.wait_joined("quick of 2").at - began > SESSION_S + 1
            slow.wait_joined("slow of 2")
            assert not slow.all("lost")
            waits.set()


def test_a_leader_that_cannot_assign_leaves_and_tries_again(
    worker: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def badly(protocol: str, members: Mapping[str, bytes], generation: int, last: int) -> Mapping[str, bytes]:
        if len(owner.all("assign")) == 1:
            raise ValueError("the config topic is gone")
        return say_back(protocol, members, generation, last)

    owner = GroupOwner("one", assign=badly)
    with run_member(worker, owner) as member:
        owner.wait_joined("one of 1")
        assert member.metrics.failed_rebalances == 1
    assert "the config topic is gone" in caplog.text


def test_a_member_that_ends_while_a_round_waits_for_others_keeps_nobody(worker: Mapping[str, str]) -> None:
    hold = threading.Event()
    slow = GroupOwner("slow", before_join=once_joined(lambda: hold.wait(20)))
    comes = GroupOwner("comes")
    with run_member(worker, slow), ExitStack() as running:
        slow.wait_joined()
        member = running.enter_context(run_member(worker, comes))
        comes.wait("before_join")
        slow.wait("before_join", lambda generation: generation > 0)

        # Its JoinGroup is under way, and is answered when the slow one has joined.
        began = time.monotonic()
        assert member.close(5)
        assert time.monotonic() - began < 2
        hold.set()
        assert slow.wait_joined("slow of 1", after=began, timeout_s=5)


@pytest.fixture(scope="module")
def topic(broker: EmbeddedBroker) -> str:
    """A topic for consumers."""
    name = f"topic-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def test_a_group_of_consumers_is_refused_with_what_to_do(broker: EmbeddedBroker, topic: str) -> None:
    worker = worker_of(broker.bootstrap_servers)
    owner = GroupOwner()
    with consumer_of(broker.bootstrap_servers, worker["group.id"], topic), run_member(worker, owner):
        error = owner.wait("refused").about
        assert error.code == "INCONSISTENT_GROUP_PROTOCOL"
        assert "Consumers and workers cannot share a group: set group.id to a name that nothing else uses" in str(error)
        assert worker["group.id"] in str(error)


def test_a_member_that_was_refused_is_in_as_soon_as_that_has_changed(broker: EmbeddedBroker, topic: str) -> None:
    worker = worker_of(broker.bootstrap_servers)
    owner = GroupOwner("one")
    with ExitStack() as running:
        with consumer_of(broker.bootstrap_servers, worker["group.id"], topic):
            running.enter_context(run_member(worker, owner))
            owner.wait("refused")
        assert owner.wait_joined("one of 1", timeout_s=60)
        assert len(owner.all("refused")) == 1


def test_a_session_that_brokers_do_not_allow_is_refused_with_their_limits(broker: EmbeddedBroker) -> None:
    worker = worker_of(broker.bootstrap_servers, session_timeout_ms="2000", heartbeat_interval_ms="500")
    owner = GroupOwner()
    with run_member(worker, owner):
        error = owner.wait("refused").about
        assert error.code == "INVALID_SESSION_TIMEOUT"
        assert "does not allow session.timeout.ms=2000" in str(error)
        assert "group.min.session.timeout.ms=6000 and group.max.session.timeout.ms=1800000" in str(error)


def test_what_a_member_does_is_counted(worker: Mapping[str, str]) -> None:
    owner = GroupOwner("one")
    with run_member(worker, owner) as member:
        owner.wait_joined()
        member.rejoin("once more")
        owner.wait("joined", lambda joined: joined.generation == 2)
        await_true(lambda: member.metrics.heartbeats.count >= 2)
        counted = member.metrics
        assert (counted.joins.count, counted.syncs.count, counted.rebalances.count) == (2, 2, 2)
        assert (counted.failed_rebalances, counted.losses) == (0, 0)
        assert counted.heartbeats.count >= 2
        assert 0 < counted.heartbeats.max_ms <= counted.heartbeats.total_ms
        assert counted.last_rebalance_s is not None
        assert counted.last_heartbeat_s is not None
        assert counted.last_heartbeat_s > counted.last_rebalance_s


# --------------------------------------------------------------------------------------------------- brokers that fail
@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Two brokers, for tests that stop them."""
    with EmbeddedCluster(tmp_path_factory.mktemp("cluster")) as nodes:
        with run_member(worker_of(nodes.bootstrap_servers), first := GroupOwner()):
            first.wait_joined()
        yield nodes


def coordinated_by(cluster: EmbeddedCluster, broker: EmbeddedBroker) -> dict[str, str]:
    """Settings of a worker in a group that this broker leads, which is the only one that they name."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        worker = worker_of(broker.bootstrap_servers)
        with run_member(worker, owner := GroupOwner()) as member:
            owner.wait_joined()
            if member.view.coordinator == broker.bootstrap_servers:
                return worker
    raise TimeoutError("No group is led by that broker")


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill])
def test_a_member_goes_on_at_another_broker_when_its_own_ends(
    cluster: EmbeddedCluster, end: Callable[[EmbeddedBroker], None]
) -> None:
    other, leading = cluster.brokers
    worker = coordinated_by(cluster, leading)
    one, two = GroupOwner("one"), GroupOwner("two")
    with run_member(worker, one) as member, run_member(worker, two):
        one.wait_joined("one of 2")
        two.wait_joined("two of 2")
        try:
            ended = time.monotonic()
            end(leading)
            member.rejoin("to see that the group is led")

            assert one.wait_joined("one of 2", after=ended)
            assert two.wait_joined("two of 2", after=ended)
            assert member.view.coordinator == other.bootstrap_servers
            # Who was without a coordinator for longer than a heartbeat has given up its work before it was back.
            for owner in (one, two):
                for lost in owner.all("lost"):
                    assert lost.about == "the group's coordinator is out of reach"
                    assert owner.wait("before_join", after=lost.at)
        finally:
            leading.start()


def test_without_any_broker_the_work_is_given_up_after_a_heartbeat_and_comes_back(
    fragile_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_of(fragile_broker.bootstrap_servers)
    one, two = GroupOwner("one"), GroupOwner("two")
    with run_member(worker, one) as member, run_member(worker, two):
        one.wait_joined("one of 2")
        two.wait_joined("two of 2")

        killed = time.monotonic()
        fragile_broker.kill()
        try:
            for owner in (one, two):
                lost = owner.wait("lost", after=killed)
                assert lost.about == "the group's coordinator is out of reach"
                assert HEARTBEAT_S <= lost.at - killed < 3 * HEARTBEAT_S
            assert member.view.coordinator is None
            threading.Event().wait(3)
            # The library says that some hundred times.
            assert 2 <= len([line for line in caplog.records if line.name.startswith("penstock")]) < 10
        finally:
            fragile_broker.start()
        started = time.monotonic()
        for owner in (one, two):
            back = owner.wait_joined(f"{owner.says} of 2", after=killed)
            assert back.at - started < 10
            assert len(owner.all("lost")) == 1


def test_a_broker_that_answers_no_heartbeat_ends_the_session(fragile_broker: EmbeddedBroker) -> None:
    owner = GroupOwner("one")
    with run_member(worker_of(fragile_broker.bootstrap_servers), owner):
        owner.wait_joined()
        frozen = time.monotonic()
        freeze(fragile_broker)
        try:
            lost = owner.wait("lost", after=frozen)
            # The last heartbeat that was answered is up to one interval older.
            assert SESSION_S - HEARTBEAT_S - 0.5 < lost.at - frozen < SESSION_S + 1
            assert lost.about == "no heartbeat was answered"
        finally:
            thaw(fragile_broker)
        assert owner.wait_joined(after=lost.at)


def test_a_member_waits_for_brokers_that_are_not_there_yet_and_finds_those_with_other_addresses(tmp_path: Path) -> None:
    before, after = free_ports(2)
    owner = GroupOwner("one")
    with run_member(worker_of(f"127.0.0.1:{before},127.0.0.1:{after}"), owner) as member:
        threading.Event().wait(1)
        assert not member.view.joined
        with EmbeddedBroker(tmp_path / "kafka", port=before, heap="256m"):
            assert owner.wait_joined("one of 1")
            assert not owner.all("lost") + owner.all("refused")
        lost = owner.wait("lost")
        with EmbeddedBroker(tmp_path / "kafka", port=after, heap="256m"):
            assert owner.wait_joined(after=lost.at)
            assert member.view.coordinator == f"127.0.0.1:{after}"


def test_brokers_are_found_by_name_and_a_name_that_is_wrong_keeps_nobody(broker: EmbeddedBroker) -> None:
    owner = GroupOwner("one")
    with run_member(worker_of(f"nowhere.invalid:9092,localhost:{broker.port}"), owner):
        assert owner.wait_joined()


def test_a_member_ends_in_time_although_no_broker_answers(free_port: int) -> None:
    owner = GroupOwner()
    with run_member(worker_of(f"127.0.0.1:{free_port}"), owner) as member:
        owner_asked = time.monotonic()
        assert member.close(2)
        assert time.monotonic() - owner_asked < 2
