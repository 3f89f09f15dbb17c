"""Small parts of a group's member: calls that take long, host names, what is counted, what refusals say."""

import socket
import threading
from types import SimpleNamespace

import pytest

from penstock.kafka.group import member
from penstock.kafka.group.events import refusal
from penstock.kafka.group.member import GroupCalls, HostNames
from penstock.kafka.group.session import GroupCounts, Timed
from penstock.kafka.group.settings import group_settings
from penstock.kafka.network.transport import NamePendingException

SETTINGS = group_settings({"bootstrap.servers": "a:1", "group.id": "workers"}, client_id="c")


# ------------------------------------------------------------------------------------------------------------- calls
def test_calls_run_one_after_the_other_away_from_who_asks():
    calls, ended = GroupCalls("calls"), []
    first, done = threading.Event(), threading.Event()

    def last(value, error):
        ended.append((value, error))
        done.set()

    calls.submit(lambda: first.wait(5), lambda value, error: ended.append((value, error)))
    calls.submit(lambda: threading.current_thread().name, last)
    assert ended == []
    first.set()
    assert done.wait(5)
    assert ended == [(True, None), ("calls", None)]
    assert calls.close(5)


def test_what_a_call_raises_is_handed_over():
    calls, done = GroupCalls("calls"), threading.Event()
    ended = []

    def told(_, error):
        ended.append(error)
        done.set()

    calls.submit(lambda: 1 // 0, told)
    assert done.wait(5)
    assert isinstance(ended[0], ZeroDivisionError)
    assert calls.close(5)


def test_a_call_that_does_not_end_is_told_and_those_behind_it_are_dropped():
    calls, runs, hold = GroupCalls("calls"), threading.Event(), threading.Event()
    begun = []

    def first():
        runs.set()
        hold.wait(10)

    calls.submit(first, lambda *_: None)
    calls.submit(lambda: begun.append(1), lambda *_: None)
    assert runs.wait(5)
    assert not calls.close(0.05)
    hold.set()
    assert calls.close(5)
    assert begun == []


# -------------------------------------------------------------------------------------------------------- host names
def test_a_host_is_looked_up_away_from_who_asks(monkeypatch):
    woken, hold = threading.Event(), threading.Event()
    found = [("family", "kind", 0, "", ("192.0.2.1", 1))]

    def resolve(*_, **how):
        if how.get("flags"):
            raise socket.gaierror
        hold.wait(10)
        return found

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    calls = GroupCalls("names")
    names = HostNames(calls, woken.set)
    for _ in range(2):
        with pytest.raises(NamePendingException):
            names.look_up("kafka.example.org", 1, type=1)
    hold.set()
    assert woken.wait(5)
    assert names.look_up("kafka.example.org", 1, type=1) == found
    assert calls.close(5)


def test_a_host_that_is_not_found_is_an_error_once_and_looked_up_again_then(monkeypatch):
    woken = threading.Event()

    def resolve(*_, **how):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    calls = GroupCalls("names")
    names = HostNames(calls, woken.set)
    with pytest.raises(NamePendingException):
        names.look_up("kafka.example.org", 1, type=1)
    assert woken.wait(5)
    with pytest.raises(OSError, match="not known"):
        names.look_up("kafka.example.org", 1, type=1)
    with pytest.raises(NamePendingException):
        names.look_up("kafka.example.org", 1, type=1)
    assert calls.close(5)


def test_an_address_that_was_found_long_ago_is_looked_up_again(monkeypatch):
    woken, now = threading.Event(), [100.0]
    addresses = iter(["192.0.2.1", "192.0.2.2"])

    def resolve(*_, **how):
        if how.get("flags"):
            raise socket.gaierror
        return [("family", "kind", 0, "", (next(addresses), 1))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(member, "time", SimpleNamespace(monotonic=lambda: now[0]))
    calls = GroupCalls("names")
    names = HostNames(calls, woken.set)
    for _ in range(2):
        with pytest.raises(NamePendingException):
            names.look_up("kafka.example.org", 1, type=1)
        assert woken.wait(5)
        woken.clear()
        now[0] += 3600
    now[0] -= 3600
    assert names.look_up("kafka.example.org", 1, type=1)[0][4] == ("192.0.2.2", 1)
    assert calls.close(5)


# ------------------------------------------------------------------------------------------------------------ numbers
def test_rounds_are_counted_from_the_wish_to_the_assignment():
    counts = GroupCounts()
    counts.round_began(10)
    # It is tried again before it succeeds.
    counts.round_began(11)
    counts.join_answered(0.5)
    counts.sync_answered(0.25)
    counts.round_ended(12)
    found = counts.snapshot
    assert found.rebalances == Timed(1, 2000, 2000)
    assert (found.joins, found.syncs) == (Timed(1, 500, 500), Timed(1, 250, 250))
    assert found.last_rebalance_s == 12


def test_a_failed_round_and_a_loss_are_counted_apart():
    counts = GroupCounts()
    counts.round_began(1)
    counts.round_failed()
    counts.round_began(5)
    counts.round_ended(6)
    counts.lost()
    found = counts.snapshot
    assert (found.failed_rebalances, found.losses, found.rebalances) == (1, 1, Timed(1, 1000, 1000))


def test_times_have_a_sum_and_a_maximum():
    counts = GroupCounts()
    before = counts.snapshot
    for took_s in (0.002, 0.010, 0.004):
        counts.heartbeat_sent(7)
        counts.heartbeat_answered(took_s)
    assert counts.snapshot.heartbeats.count == 3
    assert counts.snapshot.heartbeats.total_ms == pytest.approx(16)
    assert counts.snapshot.heartbeats.max_ms == pytest.approx(10)
    # A snapshot does not change any more.
    assert before.heartbeats.count == 0


# ----------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("code", "detail", "words"),
    [
        ("INCONSISTENT_GROUP_PROTOCOL", "", "set group.id to a name that nothing else uses"),
        ("INVALID_SESSION_TIMEOUT", "x=1 and y=2", "its limits are x=1 and y=2"),
        ("INVALID_SESSION_TIMEOUT", "", "6000 and 1800000 unless they were changed"),
        ("GROUP_AUTHORIZATION_FAILED", "", '--operation Read --group "workers"'),
        ("GROUP_MAX_SIZE_REACHED", "", "group.max.size"),
        ("INVALID_GROUP_ID", "", "Set another group.id"),
        ("SASL_AUTHENTICATION_FAILED", "bad password", "refuses the login: bad password. Check sasl.mechanism"),
        (
            "TLS_HANDSHAKE_FAILED",
            "unknown ca",
            "handshake with a broker fails: unknown ca. Check ssl.truststore.location",
        ),
        ("UNSUPPORTED_VERSION", "JoinGroup", "Kafka 2.4 and newer"),
        ("UNKNOWN", "[Error -1]", "the broker answers [Error -1]"),
    ],
)
def test_a_refusal_says_which_group_why_and_what_to_do(code, detail, words):
    error = refusal(SETTINGS, code, detail)
    assert error.code == code
    assert str(error).startswith("The worker cannot join the group workers: ")
    assert words in str(error)
