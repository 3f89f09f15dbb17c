"""What a member makes of the answers of a broker that is played here; a real one is in tests/real/kafka."""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest
from testkit.brokers.group_owner import GroupOwner, run_member, say_back
from testkit.waiting import await_true

from penstock.kafka import protocol
from penstock.kafka.group import member as group_member
from penstock.kafka.group import rounds
from penstock.kafka.group.member import GroupMember
from penstock.kafka.group.rounds import GroupLife
from penstock.kafka.group.settings import group_settings
from penstock.kafka.network.transport import LinkLostException, _dead_machine_options
from penstock.kafka.protocol import Message

WORKER = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "workers",
    "heartbeat.interval.ms": "100",
    "session.timeout.ms": "500",
    "rebalance.timeout.ms": "5000",
    "retry.backoff.ms": "10",
    "retry.backoff.max.ms": "50",
}
CODES = {"": 0, **{ck.KafkaError(code).name(): code for code in range(-1, 100) if code}}
#: The fields of each request that the tests look at.
FIELDS = {
    "JoinGroup": ("group", "session", "rebalance", "member_id", "instance", "type", "protocols", "reason"),
    "SyncGroup": ("group", "generation", "member_id", "instance", "assignments"),
    "LeaveGroup": ("group", "members"),
}


class Broker:
    """Answers as a broker with one member does, but for what a test says.

    Attributes:
        requests: Kind and content of what was asked.
        reachable: Whether a connection stands.
        next: Answers to come, by kind: an error by name, None for later, a function of the request, or an exception if
            the connection is lost.
        pending: Requests that are to be answered later, and what waits for the answer.
        tend: Called when logins are renewed.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.reachable = True
        self.next: defaultdict[str, deque[Any]] = defaultdict(deque)
        self.pending: list[tuple[Any, Callable[[Any], None]]] = []
        self.generation = 0
        self.members = 0
        self.tend: Callable[[], None] = lambda: None

    def send(self, request: Any, answered: Callable[[Any], None], lost: Callable[[Any], None]) -> None:
        kind = request.message.api.name.title().replace("_", "")
        names = FIELDS.get(kind, ())
        asked = SimpleNamespace(**dict(zip(names, request.values, strict=False)))
        self.requests.append((kind, asked))
        answer = self.next[kind].popleft() if self.next[kind] else ""
        if answer is None:
            self.pending.append((asked, answered))
        elif isinstance(answer, Exception):
            lost(answer)
        elif callable(answer):
            answered(answer(asked))
        else:
            answered(getattr(self, kind)(asked, answer))

    def asked(self, kind: str) -> list[Any]:
        return [request for one, request in self.requests if one == kind]

    def Metadata(self, request: Any, error: str) -> list[Any]:
        return []

    def FindCoordinator(self, request: Any, error: str) -> list[Any]:
        return [0, CODES[error], None, 1, "broker", 9]

    def JoinGroup(self, request: Any, error: str) -> list[Any]:
        member = request.member_id
        if not member:
            self.members += 1
            member, error = f"member-{self.members}", error or "MEMBER_ID_REQUIRED"
        if not error:
            self.generation += 1
        name, metadata = request.protocols[0]
        return [0, CODES[error], self.generation, "connect", name, member, member, [[member, None, metadata]]]

    def SyncGroup(self, request: Any, error: str) -> list[Any]:
        return [0, CODES[error], dict(request.assignments).get(request.member_id, b"")]

    def Heartbeat(self, request: Any, error: str) -> list[Any]:
        return [0, CODES[error]]

    def LeaveGroup(self, request: Any, error: str) -> list[Any]:
        return [0, CODES[error], []]


class PlayedConnections:
    """Connections to that broker: an answer comes with the next wait."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.link = SimpleNamespace(versions=dict.fromkeys(range(50), (0, 99)))
        self.answers: deque[Callable[[], None]] = deque()
        self.woken = threading.Event()

    def usable(self, address: Any) -> Any:
        return self.link if self.broker.reachable else None

    def to(self, address: Any, now: float) -> Any:
        return self.usable(address)

    def any(self, now: float, known: Any, besides: Any) -> Any:
        return self.usable(None)

    def ask(self, link: Any, asked: Any, answered: Any, lost: Any = None, *, timeout: float = 0) -> None:
        self.answers.append(lambda: self.broker.send(asked, answered, lost))

    def tend(self, now: float) -> None:
        self.broker.tend()

    def times(self, now: float, *, waiting: bool) -> list[float]:
        return []

    def wait(self, timeout: float) -> None:
        if self.answers:
            self.answers.popleft()()
        else:
            self.woken.wait(max(0, min(timeout, 0.02)))
            self.woken.clear()

    def wake(self) -> None:
        self.woken.set()

    def drop(self, link: Any, error: Any) -> None:
        self.broker.pending.clear()

    def close(self) -> None:
        pass


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The broker that members in this test talk to."""
    broker = Broker()

    def request(message: Message, *values: Any) -> SimpleNamespace:
        return SimpleNamespace(message=message, values=values)

    monkeypatch.setattr(rounds, "ProducerConnections", lambda *_, **__: PlayedConnections(broker))
    monkeypatch.setattr(rounds, "request", request)
    monkeypatch.setattr(rounds, "metadata_request", lambda topics: request(protocol.METADATA, topics))
    monkeypatch.setattr(rounds, "metadata_response", lambda _: SimpleNamespace(brokers={}))
    monkeypatch.setattr(rounds, "find_group_coordinator_request", lambda one: request(protocol.FIND_COORDINATOR, one))
    monkeypatch.setattr(rounds, "response", lambda _, payload: payload)
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
    def late(request: Any) -> list[Any]:
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


@pytest.mark.parametrize("instead", ["NOT_COORDINATOR", "REBALANCE_IN_PROGRESS", LinkLostException("gone")])
def test_an_assignment_that_comes_after_the_session_counts_only_if_the_broker_says_so(
    played: Broker, instead: Any
) -> None:
    def late(request: Any) -> list[Any]:
        threading.Event().wait(0.7)
        played.next["Heartbeat"].append(instead)
        return played.SyncGroup(request, "")

    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        played.next["SyncGroup"].append(late)
        member.rejoin("to see what becomes of it")
        owner.wait("joined", lambda joined: joined.generation == 3)
        assert [told.about.generation for told in owner.all("joined")] == [1, 3]


def test_work_that_is_lost_while_the_owner_prepares_has_to_stop_before_the_member_joins(played: Broker) -> None:
    hold = threading.Event()

    def wait(generation: int) -> None:
        if generation == 1:
            hold.wait(10)

    with run_member(WORKER, owner := GroupOwner("one", before_join=wait)) as member:
        owner.wait_joined()
        member.rejoin("to see what becomes of it")
        await_true(lambda: len(owner.all("before_join")) == 2)
        played.reachable = False
        owner.wait("lost")
        played.reachable = True
        hold.set()
        owner.wait("joined", lambda joined: joined.generation == 2)
        assert kinds(owner)[-5:] == ["before_join", "lost", "before_join", "assign", "joined"]


def test_a_login_is_not_renewed_while_a_round_waits_for_others(played: Broker) -> None:
    def renew() -> None:
        # The broker answers in order, and a connection is out of use until its login is renewed.
        played.reachable = not played.pending

    with run_member(WORKER, owner := GroupOwner("one")) as member:
        owner.wait_joined()
        played.tend = renew
        played.next["JoinGroup"].append(None)
        member.rejoin("to see what becomes of it")
        await_true(lambda: len(played.pending) == 1)
        threading.Event().wait(0.3)
        request, waiting = played.pending.pop()
        member._life.post(lambda: waiting(played.JoinGroup(request, "")))
        owner.wait("joined", lambda joined: joined.generation == 2)
        assert not owner.all("lost")


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
        member._life.post(lambda: waiting(played.JoinGroup(request, "")))

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
    monkeypatch.setattr(rounds, "_REFUSED_FIRST_S", 0.02)
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
    monkeypatch.setattr(rounds, "_REFUSED_FIRST_S", 0.05)
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
        sound = GroupLife._protocols

        def broken(_: GroupLife) -> Any:
            monkeypatch.setattr(GroupLife, "_protocols", sound)
            raise AssertionError("a fault of the client")

        monkeypatch.setattr(GroupLife, "_protocols", broken)
        played.next["Heartbeat"].append("REBALANCE_IN_PROGRESS")
        lost = owner.wait("lost")
        assert lost.about == "the client of the group broke"
        assert owner.wait_joined(after=lost.at)
    assert "a fault of the client" in caplog.text


def test_a_life_that_cannot_begin_is_followed_by_another(
    played: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_member, "_BROKEN_FIRST_S", 0.01)
    with run_member(WORKER, owner := GroupOwner("one")) as member:
        joined = owner.wait_joined()
        sound, fails = vars(rounds)["ProducerConnections"], iter([OSError("Too many open files")])

        def connections(*given: Any, **more: Any) -> Any:
            for error in fails:
                raise error
            return sound(*given, **more)

        monkeypatch.setattr(rounds, "ProducerConnections", connections)

        def breaks() -> None:
            raise AssertionError("a fault of the client")

        member._life.post(breaks)
        assert owner.wait_joined(after=joined.at + 0.001)
    assert "Too many open files" in caplog.text


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
        assert request.members == [("member-1", None, "the config topic cannot be read")]
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
    options = dict(_dead_machine_options(10))
    probes = [options[name] for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)]
    assert probes[0] + probes[1] * options[socket.TCP_KEEPCNT] <= 10
    assert options[socket.TCP_USER_TIMEOUT] == 10_000


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
