"""Where the transactions of a source task end, without any Kafka."""

from __future__ import annotations

import pytest

from penstock.api import TransactionBoundary
from penstock.worker.source.transaction_boundaries import APART_S, NEAR_S, Boundaries, BoundaryAction, PartEnd

POLL, INTERVAL, CONNECTOR = TransactionBoundary.POLL, TransactionBoundary.INTERVAL, TransactionBoundary.CONNECTOR


def boundaries(boundary: TransactionBoundary, *, interval_s: float = 5.0, timeout_s: float = 60.0) -> Boundaries:
    return Boundaries(boundary, interval_s, timeout_s, most_records=100, now=0.0)


def test_with_poll_a_transaction_ends_behind_each_poll() -> None:
    made = boundaries(POLL)
    assert made.after(PartEnd.POLL, 3, 1.0) is BoundaryAction.COMMIT
    made.ended(1.0)
    assert made.began is None
    assert made.after(PartEnd.POLL, 3, 2.0) is BoundaryAction.COMMIT


def test_a_poll_that_is_cut_for_its_size_is_one_transaction() -> None:
    made = boundaries(POLL)
    assert made.after(PartEnd.INSIDE, 90, 1.0) is BoundaryAction.GO_ON
    assert made.after(PartEnd.INSIDE, 90, 2.0) is BoundaryAction.GO_ON
    assert not made.whole
    assert made.after(PartEnd.POLL, 90, 3.0) is BoundaryAction.COMMIT
    assert made.records == 270


def test_polls_that_follow_each_other_closely_share_transactions_whose_commits_are_apart() -> None:
    made = boundaries(POLL)
    assert made.after(PartEnd.POLL, 1, 1.0) is BoundaryAction.COMMIT, "the first one is alone"
    made.ended(1.01)
    commits = [1.01]
    for step in range(1, 150):
        now = 1.0 + step * 0.02
        then = made.after(PartEnd.POLL, 1, now)
        assert (then is BoundaryAction.COMMIT) is (now - commits[-1] >= APART_S)
        if then is BoundaryAction.COMMIT:
            commits.append(now)
            made.ended(now)
    assert len(commits) == 4


@pytest.mark.parametrize("gap_s", [NEAR_S, 0.3, 2.0])
def test_polls_that_are_apart_are_committed_at_once(gap_s: float) -> None:
    made = boundaries(POLL)
    for number in range(1, 20):
        now = number * gap_s * 1.001
        assert made.after(PartEnd.POLL, 1, now) is BoundaryAction.COMMIT
        made.ended(now)
        assert made.due_in_s(now) is None


def test_the_last_polls_of_a_row_are_committed_when_no_other_comes() -> None:
    made = boundaries(POLL)
    made.after(PartEnd.POLL, 1, 1.0)
    made.ended(1.0)
    assert made.after(PartEnd.POLL, 1, 1.05) is BoundaryAction.GO_ON
    assert made.due_in_s(1.05) == pytest.approx(NEAR_S)
    assert made.due_in_s(1.2) == 0.0


def test_polls_that_wait_share_a_transaction_up_to_a_size_and_a_time() -> None:
    made = boundaries(POLL)
    made.ended(1.0)
    assert made.after(PartEnd.POLL, 40, 1.0, waiting=True) is BoundaryAction.GO_ON
    assert made.after(PartEnd.POLL, 40, 1.01, waiting=True) is BoundaryAction.GO_ON
    assert made.after(PartEnd.POLL, 40, 1.02, waiting=True) is BoundaryAction.COMMIT, "it is large enough"
    made.ended(1.1)
    assert made.after(PartEnd.POLL, 1, 1.15, waiting=True) is BoundaryAction.GO_ON
    assert made.after(PartEnd.POLL, 1, 1.1 + APART_S, waiting=True) is BoundaryAction.COMMIT


def test_what_comes_before_a_record_that_fails_the_task_is_committed() -> None:
    made = boundaries(POLL)
    made.after(PartEnd.POLL, 1, 1.0)
    made.ended(1.0)
    assert made.after(PartEnd.POLL, 1, 1.05, last=True) is BoundaryAction.COMMIT
    made.ended(1.05)
    assert made.after(PartEnd.POLL, 1, 1.06) is BoundaryAction.GO_ON
    assert made.after(PartEnd.INSIDE, 0, 1.07, last=True) is BoundaryAction.COMMIT, (
        "nothing of the poll that has failed is in it"
    )
    made.ended(1.07)
    assert made.after(PartEnd.INSIDE, 1, 1.08) is BoundaryAction.GO_ON
    assert made.after(PartEnd.INSIDE, 0, 1.09, last=True) is BoundaryAction.GO_ON, (
        "a part of the poll that has failed is in it"
    )


def test_with_poll_a_commit_comes_before_kafka_ends_the_transaction() -> None:
    made = boundaries(POLL, timeout_s=0.1)
    made.after(PartEnd.POLL, 1, 1.0)
    made.ended(1.0)
    assert made.after(PartEnd.POLL, 1, 1.05) is BoundaryAction.GO_ON
    assert made.due_in_s(1.05) == pytest.approx(0.05)


def test_with_interval_a_commit_is_due_behind_a_whole_poll_or_when_nothing_comes() -> None:
    made = boundaries(INTERVAL)
    assert made.due_in_s(1.0) == 4.0
    assert made.after(PartEnd.POLL, 1, 3.0) is BoundaryAction.GO_ON
    assert made.due_in_s(4.5) == 0.5
    assert made.after(PartEnd.INSIDE, 1, 6.0) is BoundaryAction.GO_ON
    assert made.due_in_s(6.0) is None, "the rest of the poll comes first"
    assert made.after(PartEnd.POLL, 1, 6.5) is BoundaryAction.COMMIT
    made.ended(6.6)
    assert made.due_in_s(6.6) == 5.0


def test_an_interval_as_long_as_the_time_out_commits_before_kafka_ends_the_transaction() -> None:
    made = boundaries(INTERVAL, interval_s=60.0, timeout_s=60.0)
    made.after(PartEnd.POLL, 1, 10.0)
    assert made.due_in_s(10.0) == 30.0
    assert made.after(PartEnd.POLL, 1, 41.0) is BoundaryAction.COMMIT


def test_with_connector_only_the_task_ends_transactions() -> None:
    made = boundaries(CONNECTOR)
    assert made.after(PartEnd.POLL, 1, 1.0) is BoundaryAction.GO_ON
    assert made.after(PartEnd.REST, 0, 2.0, moves=False) is BoundaryAction.GO_ON
    assert made.due_in_s(99.0) is None
    assert not made.whole
    assert made.after(PartEnd.COMMIT, 1, 3.0) is BoundaryAction.COMMIT
    made.ended(3.0)
    assert made.after(PartEnd.ABORT, 1, 4.0) is BoundaryAction.ABORT


@pytest.mark.parametrize("boundary", [POLL, INTERVAL])
def test_a_task_that_rests_commits_what_is_open(boundary: TransactionBoundary) -> None:
    made = boundaries(boundary)
    made.after(PartEnd.POLL, 1, 1.0, waiting=True)
    assert made.after(PartEnd.REST, 0, 1.01, moves=False, waiting=True) is BoundaryAction.COMMIT


@pytest.mark.parametrize("boundary", list(TransactionBoundary))
def test_kafka_ends_what_is_open_for_too_long_and_has_records(boundary: TransactionBoundary) -> None:
    made = boundaries(boundary, timeout_s=60.0)
    assert made.over_in_s(5.0) is None
    made.after(PartEnd.INSIDE, 0, 5.0)
    assert made.over_in_s(50.0) is None, "offsets alone are sent with the commit"
    made.after(PartEnd.INSIDE, 1, 6.0)
    assert made.over_in_s(55.0) == 10.0
    assert made.over_in_s(99.0) == 0.0


def test_a_piece_that_is_nothing_but_an_end_opens_no_transaction() -> None:
    made = boundaries(POLL)
    assert made.after(PartEnd.REST, 0, 1.0, moves=False) is BoundaryAction.COMMIT
    assert made.began is None
