"""What a member makes of the answers of a broker that is played here; a real one is in tests/real/kafka."""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict, deque
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from testkit.brokers.group_owner import GroupOwner, run_member, say_back
from testkit.waiting import await_true

from penstock.kafka.group import connections
from penstock.kafka.group import member as life
from penstock.kafka.group.member import GroupLife, GroupMember
from penstock.kafka.group.settings import group_settings

WORKER = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "workers",
    "heartbeat.interval.ms": "100",
    "session.timeout.ms": "500",
    "rebalance.timeout.ms": "5000",
    "retry.backoff.ms": "10",
    "retry.backoff.max.ms": "50",
}
ERRORS = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.BrokerResponseError)]
CODES: dict[str, int] = {vars(one)["message"]: vars(one)["errno"] for one in ERRORS if "errno" in vars(one)}


class Broker:
    """Answers as a broker with one member does, but for what a test says.

    Attributes:
        requests: Kind and content of what was asked.
        reachable: Whether a connection stands.
        next: Answers to come, by kind: an error by name, an exception, None for later, or a function of the request.
        pending: Requests that are to be answered later, and what waits for the answer.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.reachable = True
        self.next: defaultdict[str, deque[Any]] = defaultdict(deque)
        self.pending: list[tuple[Any, Future]] = []
        self.generation = 0
        self.members = 0

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Future:
        kind = type(request).__name__.removesuffix("Request")
        self.requests.append((kind, request))
        answer = self.next[kind].popleft() if self.next[kind] else ""
        future = Future()
        if answer is None:
            self.pending.append((request, future))
            return future
        if callable(answer):
            answer = answer(request)
        if not self.reachable:
            answer = errors.NodeNotReadyError("nobody is there")
        if isinstance(answer, Exception):
            return future.failure(answer)
        content = getattr(self, kind)(request, answer) if not isinstance(answer, SimpleNamespace) else answer
        return future.success(content)

    def asked(self, kind: str) -> list[Any]:
        return [request for one, request in self.requests if one == kind]

    def FindCoordinator(self, request: Any, error: str) -> SimpleNamespace:
        return SimpleNamespace(error_code=CODES.get(error, 0), coordinators=[], node_id=1, host="broker", port=9)

    def JoinGroup(self, request: Any, error: str) -> SimpleNamespace:
        member = request.member_id
        if not member:
            self.members += 1
            member, error = f"member-{self.members}", error or "MEMBER_ID_REQUIRED"
        if not error:
            self.generation += 1
        name, metadata = request.protocols[0]
        return SimpleNamespace(
            error_code=CODES.get(error, 0),
            generation_id=self.generation,
            protocol_type="connect",
            protocol_name=name,
            leader=member,
            member_id=member,
            members=[SimpleNamespace(member_id=member, metadata=metadata)],
        )

    def SyncGroup(self, request: Any, error: str) -> SimpleNamespace:
        assignment = dict(request.assignments).get(request.member_id, b"")
        return SimpleNamespace(
            error_code=CODES.get(error, 0),
            protocol_type="connect",
            protocol_name=request.protocol_name,
            assignment=assignment,
        )

    def Heartbeat(self, request: Any, error: str) -> SimpleNamespace:
        return SimpleNamespace(error_code=CODES.get(error, 0))

    def LeaveGroup(self, request: Any, error: str) -> SimpleNamespace:
        return SimpleNamespace(error_code=CODES.get(error, 0), members=[])


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The broker that members in this test talk to."""
    broker = Broker()
    monkeypatch.setattr(connections.GroupConnections, "send", lambda _, request, **how: broker.send(request, **how))
    monkeypatch.setattr(connections.GroupConnections, "bootstrap_async", lambda _: Future().success(True))
    monkeypatch.setattr(KafkaNetClient, "least_loaded_node", lambda _: 0)
    monkeypatch.setattr(KafkaNetClient, "maybe_connect", lambda *_: None)
    monkeypatch.setattr(KafkaNetClient, "connected", lambda *_: broker.reachable)
    return broker


def kinds(owner: GroupOwner) -> list[str]:
    return [told.kind for told in owner.told]


def test_a_member_that_the_broker_does_not_know_gives_up_its_work_and_joins_as_a_new_one(
    played: Broker,
) -> None:
    with run_member(WORKER, owner := GroupOwner("one")):
        owner.wait_joined()
        played.next["Heartbeat"].append("UNKNOWN_MEMBER_ID")
        lost = owner.wait("lost")
        assert lost.about == "the broker does not know this member any more"
        joined = owner.wait_joined(after=lost.at)
        assert joined.about.member_id == "member-2"
        # It asks whether the work has stopped before it joins.
        assert kinds(owner)[-4:] == ["lost", "before_join", "assign", "joined"]
        assert [request.member_id for request in played.asked("JoinGroup")] == ["", "member-1", "", "member-2"]


def test_a_member_that_has_missed_a_round_joins_again_with_its_work(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("one")):
        first = owner.wait_joined()
        played.next["Heartbeat"].append("ILLEGAL_GENERATION")
        second = owner.wait_joined(after=first.at + 0.001)
        # The broker knows it, so the round had what it had said before: nobody else has its work.
        assert second.about.member_id == first.about.member_id
        assert not owner.all("lost")


def test_a_round_that_others_have_begun_is_joined(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("one")):
        owner.wait_joined()
        played.next["Heartbeat"].append("REBALANCE_IN_PROGRESS")
        owner.wait("joined", lambda joined: joined.generation == 2)
        assert not owner.all("lost")
        assert played.asked("JoinGroup")[-1].reason == "another member has begun a round"


def test_the_brokers_log_is_told_why_a_member_joins(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        member.rejoin("a" * 300)
        owner.wait("joined", lambda joined: joined.generation == 2)
        assert [request.reason for request in played.asked("JoinGroup")] == [*["the worker starts"] * 2, "a" * 255]


@pytest.mark.parametrize("error", ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "COORDINATOR_LOAD_IN_PROGRESS"])
@pytest.mark.parametrize("request_kind", ["JoinGroup", "SyncGroup"])
def test_a_round_that_fails_for_now_is_tried_again(played: Broker, request_kind: str, error: str) -> None:
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        played.next[request_kind].append(error)
        member.rejoin("to see what becomes of it")
        assert owner.wait("joined", lambda joined: joined.generation >= 2)
        assert not owner.all("lost") + owner.all("refused")


def test_an_assignment_that_comes_after_the_session_is_not_believed_unasked(played: Broker) -> None:
    def late(request: Any) -> SimpleNamespace:
        # As for a process that was frozen before it has read the answer.
        threading.Event().wait(0.7)
        played.next["Heartbeat"].append("UNKNOWN_MEMBER_ID")
        return played.SyncGroup(request, "")

    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        played.next["SyncGroup"].append(late)
        member.rejoin("to see what becomes of it")
        owner.wait("joined", lambda joined: joined.member_id == "member-2")
        assert [told.about.generation for told in owner.all("joined")] == [1, 3]
        assert len(owner.all("lost")) == 1


def test_work_that_is_lost_during_a_round_is_not_given_back_by_it(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("with work")) as member:
        owner.wait_joined()
        played.next["JoinGroup"].append(None)
        member.rejoin("to see what becomes of it")
        await_true(lambda: len(played.pending) == 1)
        played.reachable = False
        lost = owner.wait("lost")
        owner.says = "without work"

        # The broker has got the request after all.
        played.reachable = True
        request, waiting = played.pending[0]
        assert member._life is not None
        member._life.post(lambda: waiting.success(played.JoinGroup(request, "")))

        back = owner.wait_joined("without work of 1", after=lost.at)
        assert owner.all("joined")[-2].about.generation == 1
        assert owner.wait("before_join", after=lost.at).at < back.at


def test_a_coordinator_that_is_away_for_less_than_a_heartbeat_costs_nothing(played: Broker) -> None:
    with run_member(
        WORKER | {"heartbeat.interval.ms": "400", "session.timeout.ms": "2000"}, owner := GroupOwner("one")
    ):
        owner.wait_joined()
        played.reachable = False
        threading.Event().wait(0.2)
        played.reachable = True
        threading.Event().wait(0.6)
        assert not owner.all("lost")


def test_a_coordinator_that_is_away_longer_costs_the_work_once(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        played.reachable = False
        lost = owner.wait("lost")
        threading.Event().wait(0.2)
        assert len(owner.all("lost")) == 1
        assert not member.view.joined
        assert member.metrics.losses == 1
        played.reachable = True
        assert owner.wait_joined(after=lost.at)
        assert member.view.coordinator == "broker:9"


def test_heartbeats_without_an_answer_end_the_session(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("one")):
        joined = owner.wait_joined()
        played.next["Heartbeat"].append(None)
        lost = owner.wait("lost")
        assert lost.about == "no heartbeat was answered"
        assert 0.4 < lost.at - joined.at < 2


def test_a_refusal_is_told_once_and_anew_when_the_member_was_in_between(
    played: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "_REFUSED_FIRST_S", 0.02)
    played.next["JoinGroup"].extend(["INVALID_GROUP_ID"] * 2)
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        assert [told.about.code for told in owner.all("refused")] == ["INVALID_GROUP_ID"]
        played.next["JoinGroup"].append("INVALID_GROUP_ID")
        member.rejoin("to be refused again")
        owner.wait("lost")
        await_true(lambda: len(owner.all("refused")) == 2)
        assert member.metrics.failed_rebalances == 3


def test_an_error_that_may_pass_does_not_cost_the_work(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        played.next["JoinGroup"].append("UNKNOWN")
        member.rejoin("to see what becomes of it")
        owner.wait("joined", lambda joined: joined.generation == 2)
        assert not owner.all("lost")
        assert [told.about.code for told in owner.all("refused")] == ["UNKNOWN"]


def test_an_owner_that_cannot_say_what_it_runs_is_out_of_the_group_until_it_can(
    played: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = GroupOwner("one")
    with run_member(WORKER, owner) as member:
        owner.wait_joined()
        can = owner.metadata

        def cannot() -> Any:
            monkeypatch.setattr(owner, "metadata", can)
            raise ValueError("no config yet")

        monkeypatch.setattr(owner, "metadata", cannot)
        member.rejoin("to see what becomes of it")
        lost = owner.wait("lost")
        assert owner.wait_joined(after=lost.at)
        assert len(played.asked("LeaveGroup")) == 1


def test_an_owner_that_fails_again_and_again_is_asked_at_growing_intervals(played: Broker) -> None:
    def fail(*_: Any) -> dict[str, bytes]:
        raise ValueError("still no config")

    slower = WORKER | {"retry.backoff.ms": "50", "retry.backoff.max.ms": "1000"}
    with run_member(slower, owner := GroupOwner("one", assign=fail)):
        await_true(lambda: len(owner.all("assign")) == 4)
    times = [told.at for told in owner.all("assign")]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] >= 0.04
    assert pauses[2] >= 0.16


def test_a_member_that_is_refused_asks_at_growing_intervals(played: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "_REFUSED_FIRST_S", 0.05)
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        # What it gives up wakes it; the pause is kept all the same.
        played.next["JoinGroup"].extend(["GROUP_AUTHORIZATION_FAILED"] * 4)
        began = time.monotonic()
        member.rejoin("to be refused")
        assert owner.wait_joined(after=began).at - began >= 0.04 + 0.08 + 0.16 + 0.32


def test_what_the_owner_raises_at_what_it_is_told_does_not_end_the_member(
    played: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(told: Any) -> None:
        if told.kind == "joined":
            raise ValueError("the owner is broken")

    with run_member(WORKER, owner := GroupOwner("one", heard=fail)) as member:
        owner.wait_joined()
        await_true(lambda: member.metrics.heartbeats.count >= 2)
    assert "the owner is broken" in caplog.text


def test_a_life_that_breaks_gives_up_the_work_and_is_followed_by_another(
    played: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with run_member(WORKER, owner := GroupOwner("one")):
        owner.wait_joined()
        sound = GroupLife.protocols

        def broken(_: GroupLife) -> Any:
            monkeypatch.setattr(GroupLife, "protocols", sound)
            raise AssertionError("a fault of the library")

        monkeypatch.setattr(GroupLife, "protocols", broken)
        played.next["Heartbeat"].append("REBALANCE_IN_PROGRESS")
        lost = owner.wait("lost")
        assert lost.about == "the client of the group broke"
        assert owner.wait_joined(after=lost.at)
    assert "a fault of the library" in caplog.text


def test_an_owner_whose_work_does_not_stop_in_time_is_waited_for_no_longer(played: Broker) -> None:
    hold = threading.Event()

    def wait(generation: int) -> None:
        if generation > 0:
            hold.wait(10)

    owner = GroupOwner("one", before_join=wait)
    with run_member(WORKER | {"rebalance.timeout.ms": "600"}, owner) as member:
        owner.wait_joined()
        member.rejoin("to see what becomes of it")
        await_true(lambda: len(played.asked("JoinGroup")) == 3)
        hold.set()
        owner.wait("joined", lambda joined: joined.generation == 2)


def test_an_owner_that_does_not_show_itself_is_put_out_until_it_does(played: Broker) -> None:
    with run_member(WORKER | {"rebalance.timeout.ms": "400"}, owner := GroupOwner("one"), polls=False) as member:
        owner.wait_joined()
        lost = owner.wait("lost")
        assert lost.about == "the worker's own loop has not answered for 400 ms (rebalance.timeout.ms)"
        threading.Event().wait(0.2)
        assert (len(owner.all("lost")), len(played.asked("LeaveGroup"))) == (1, 1)
        assert owner.all("joined")[-1].at < lost.at
        member.polled()
        owner.wait("joined", lambda joined: joined.member_id == "member-2")


def test_leaving_says_so_to_the_broker_and_is_no_loss(played: Broker) -> None:
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        member.leave("the config topic cannot be read")
        await_true(lambda: not member.view.joined and member.view.member_id == "")
        (request,) = played.asked("LeaveGroup")
        assert [(one.member_id, one.reason) for one in request.members] == [
            ("member-1", "the config topic cannot be read")
        ]
        threading.Event().wait(0.3)
        assert kinds(owner).count("joined") == 1
        member.rejoin("it can be read again")
        owner.wait("joined", lambda joined: joined.member_id == "member-2")
        assert not owner.all("lost")


def test_a_member_ends_although_the_broker_does_not_answer_to_that(played: Broker) -> None:
    owner = GroupOwner("one")
    with run_member(WORKER, owner) as member:
        owner.wait_joined()
        played.next["LeaveGroup"].append(None)
        began = time.monotonic()
        assert member.close(1)
        assert time.monotonic() - began < 1
        assert not owner.all("lost")


def test_a_member_that_was_never_started_ends_at_once() -> None:
    assert GroupMember(group_settings(WORKER, client_id="c"), GroupOwner()).close(1)


def test_a_connection_to_a_machine_that_has_gone_ends_within_the_session() -> None:
    settings = group_settings(WORKER | {"session.timeout.ms": "10000", "receive.buffer.bytes": "-1"}, client_id="c")
    options = {(level, name): value for level, name, value in connections._socket_options(settings.network, 10_000)}
    probes = [options[socket.IPPROTO_TCP, name] for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)]
    assert probes[0] + probes[1] * options[socket.IPPROTO_TCP, socket.TCP_KEEPCNT] <= 10
    assert options[socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT] == 10_000
    assert options[socket.SOL_SOCKET, socket.SO_SNDBUF] == 131_072
    assert (socket.SOL_SOCKET, socket.SO_RCVBUF) not in options


def test_the_leader_is_asked_with_what_it_needs(played: Broker) -> None:
    asked: list[tuple[Any, ...]] = []

    def note(*arguments: Any) -> dict[str, bytes]:
        asked.append(arguments)
        return say_back(*arguments)

    with run_member(WORKER, owner := GroupOwner("one", assign=note)) as member:
        owner.wait_joined()
        member.rejoin("once more")
        owner.wait("joined", lambda joined: joined.generation == 2)
    assert asked == [("sessioned", {"member-1": b"one"}, 1, -1), ("sessioned", {"member-1": b"one"}, 2, 1)]
