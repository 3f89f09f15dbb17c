"""What a task says about its transactions, and how what it has polled is cut for it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from testkit.doubles.source_doubles import record

from penstock.api import SourceFrame, SourceRecord
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.pipeline.batch.batches import PolledBatch
from penstock.worker.source.transaction_boundaries import PieceEnd, TransactionRequests

A, B, C = record(1), record(2), record(3)
FRAME = SourceFrame(pa.table({"value": ["x"]}), "t", None, {"file": "f"}, {"position": 1})


def pieces(requests: TransactionRequests, polled: PolledBatch | None) -> list[tuple[list[object], PieceEnd]]:
    found = requests.pieces(polled)
    return [([one] if isinstance(one, SourceFrame) else list(one), end) for one, end in found]


def test_a_task_that_asks_for_nothing_goes_on_with_its_transaction() -> None:
    requests = TransactionRequests("c-0")
    assert pieces(requests, [A, B]) == [([A, B], PieceEnd.POLL)]
    assert pieces(requests, None) == []


def test_a_request_without_a_record_is_for_the_end_of_the_next_poll_also_of_one_that_is_empty() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction()
    assert pieces(requests, [A]) == [([A], PieceEnd.COMMIT)]
    requests.abort_transaction()
    assert pieces(requests, None) == [([], PieceEnd.ABORT)]
    assert pieces(requests, [A]) == [([A], PieceEnd.POLL)]


def test_a_poll_is_cut_behind_the_records_that_were_named() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction(A)
    requests.abort_transaction(C)
    assert pieces(requests, [A, B, C]) == [([A], PieceEnd.COMMIT), ([B, C], PieceEnd.ABORT)]
    requests.commit_transaction(A)
    requests.commit_transaction()
    assert pieces(requests, [A, B]) == [([A], PieceEnd.COMMIT), ([B], PieceEnd.COMMIT)]


def test_the_same_record_object_is_meant_and_not_an_equal_one() -> None:
    requests = TransactionRequests("c-0")
    equal = SourceRecord({"file": "f"}, {"position": 1}, "t", "v")
    requests.commit_transaction(equal)
    assert pieces(requests, [A]) == [([A], PieceEnd.POLL)]
    assert pieces(requests, [A, equal, B]) == [([A, equal], PieceEnd.COMMIT), ([B], PieceEnd.POLL)], (
        "it is still asked for"
    )


def test_an_end_that_stands_already_is_not_made_twice() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction(B)
    requests.commit_transaction()
    assert pieces(requests, [A, B]) == [([A, B], PieceEnd.COMMIT)]


def test_a_commit_and_an_abort_at_the_same_place_are_an_error() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction(A)
    requests.abort_transaction(A)
    with pytest.raises(ConnectException, match=r"c-0 asks for a commit and for an abort .* \{'position': 1\}"):
        requests.pieces([A])
    requests.commit_transaction()
    requests.abort_transaction()
    with pytest.raises(ConnectException, match="after the same batch"):
        requests.pieces(None)


def test_frames_end_transactions_as_a_whole() -> None:
    requests = TransactionRequests("c-0", frames=True)
    requests.commit_transaction()
    assert pieces(requests, FRAME) == [([FRAME], PieceEnd.COMMIT)]
    assert pieces(requests, FRAME) == [([FRAME], PieceEnd.POLL)]
    with pytest.raises(IllegalWorkerStateException, match="rows are no records"):
        requests.commit_transaction(A)


def test_what_is_no_record_is_refused_at_once() -> None:
    with pytest.raises(ConnectException, match="a str: give the SourceRecord"):
        TransactionRequests("c-0").commit_transaction("last")  # type: ignore[arg-type]
