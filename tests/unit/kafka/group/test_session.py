"""Whether a member may still believe that it is one, and how long it waits before it tries again."""

import pytest

from penstock.kafka.group.session import Limits, LostReason, RejoinBackoff, Standing

LIMITS = Limits(heartbeat_s=3, session_s=10, poll_s=60)


def member(now: float = 0.0) -> Standing:
    """A member that has just joined, and reaches its coordinator."""
    standing = Standing(LIMITS, now)
    standing.enter(now)
    return standing


def test_a_member_whose_heartbeats_are_answered_and_whose_owner_polls_is_one():
    standing = member()
    for now in range(1, 1000, 3):
        standing.answered(now)
        standing.polled(now)
        assert standing.verdict(now + 2.9) is None


def test_without_a_sign_of_the_owner_it_is_none_after_the_rebalance_timeout():
    standing = member()
    standing.polled(5)
    standing.answered(65)
    assert standing.verdict(65.0) is None
    assert standing.verdict(65.1) is LostReason.NOT_POLLED
    standing.polled(70)
    assert standing.verdict(70.0) is None


def test_the_owner_counts_also_while_the_member_is_not_in_the_group():
    standing = Standing(LIMITS, 0)
    assert standing.verdict(60.1) is LostReason.NOT_POLLED


def test_a_session_ends_that_long_after_the_last_answered_heartbeat_was_sent():
    standing = member()
    standing.answered(4)
    assert standing.verdict(14.0) is None
    assert standing.verdict(14.1) is LostReason.SESSION_OVER


def test_answers_that_come_late_do_not_take_the_session_back():
    standing = member()
    standing.answered(8)
    standing.answered(5)
    assert standing.verdict(18.0) is None


def test_while_a_round_waits_for_others_the_session_goes_on_and_begins_anew_with_the_answer():
    standing = member()
    standing.waits(True, 1)
    standing.polled(50)
    assert standing.verdict(50) is None
    standing.waits(False, 50)
    assert standing.verdict(60.0) is None
    assert standing.verdict(60.1) is LostReason.SESSION_OVER


def test_a_coordinator_out_of_reach_for_one_heartbeat_ends_it_and_a_shorter_time_does_not():
    standing = member()
    standing.reached(False, 1)
    standing.reached(False, 3)
    assert standing.verdict(3.9) is None
    assert standing.verdict(4.0) is LostReason.OUT_OF_REACH
    standing.reached(True, 4)
    assert standing.verdict(4.0) is None
    standing.reached(False, 5)
    assert standing.verdict(7.9) is None


def test_a_coordinator_that_goes_during_a_round_counts_too():
    standing = member()
    standing.waits(True, 1)
    standing.reached(False, 2)
    assert standing.verdict(5) is LostReason.OUT_OF_REACH


def test_a_coordinator_that_was_out_of_reach_before_the_member_joined_does_not_count():
    standing = Standing(LIMITS, 0)
    standing.reached(False, 0)
    standing.enter(7)
    assert standing.verdict(7.1) is None
    standing.reached(False, 7.1)
    assert standing.verdict(10) is None
    assert standing.verdict(10.1) is LostReason.OUT_OF_REACH


def test_who_has_no_work_has_none_to_give_up():
    standing = member()
    standing.leave()
    standing.reached(False, 1)
    assert standing.verdict(59) is None


def test_a_process_that_was_frozen_knows_when_it_wakes():
    standing = member()
    standing.polled(0)
    assert standing.verdict(12) is LostReason.SESSION_OVER


@pytest.mark.parametrize(
    ("polled", "answered", "now", "expected"),
    [
        # Four looks in an interval.
        (0, 0, 0.5, 0.75),
        # The end of the session is nearer.
        (0, 0, 9.8, 0.201),
        # The owner's time is nearer.
        (0, 59, 59.9, 0.101),
        # Past a limit it is looked at once more at once, and no more often.
        (0, 70, 70.0, 0.001),
    ],
)
def test_it_is_looked_at_again_when_the_next_limit_is_near(polled, answered, now, expected):
    standing = member()
    standing.polled(polled)
    standing.answered(answered)
    assert standing.look_again_s(now) == pytest.approx(expected)


def test_pauses_grow_up_to_their_limit_and_begin_anew_after_success():
    backoff = RejoinBackoff(0.1, 1, lambda: 0.5)
    assert [round(backoff.next_s(), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert round(backoff.next_s(), 3) == 0.1


def test_pauses_differ_by_a_fifth_so_that_members_do_not_come_at_once():
    assert RejoinBackoff(1, 1, lambda: 0.0).next_s() == pytest.approx(0.8)
    assert RejoinBackoff(1, 1, lambda: 1.0).next_s() == pytest.approx(1.2)


def test_a_thousand_failures_are_no_reason_to_overflow():
    backoff = RejoinBackoff(0.1, 30, lambda: 0.5)
    assert [backoff.next_s() for _ in range(5000)][-1] == 30
