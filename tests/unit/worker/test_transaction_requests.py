"""What a task says about its transactions, and how what it has polled is cut for it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from testkit.doubles.source_doubles import record

from penstock.api import SourceFrame, SourceRecord
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.pipeline.batch.batches import PolledBatch
from penstock.worker.source.transaction_boundaries import PartEnd, TransactionRequests

A, B, C = record(1), record(2), record(3)
FRAME = SourceFrame(pa.table({"value": ["x"]}), "t", None, {"file": "f"}, {"position": 1})


def parts(requests: TransactionRequests, polled: PolledBatch | None) -> list[tuple[list[object], PartEnd]]:
    found = requests.cut(polled)
    return [([one] if isinstance(one, SourceFrame) else list(one), end) for one, end in found]


def test_a_task_that_asks_for_nothing_goes_on_with_its_transaction() -> None:
    requests = TransactionRequests("c-0")
    assert parts(requests, [A, B]) == [([A, B], PartEnd.POLL)]
    assert parts(requests, None) == []


def test_a_request_without_a_record_is_for_the_end_of_the_next_poll_also_of_one_that_is_empty() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction()
    assert parts(requests, [A]) == [([A], PartEnd.COMMIT)]
    requests.abort_transaction()
    assert parts(requests, None) == [([], PartEnd.ABORT)]
    assert parts(requests, [A]) == [([A], PartEnd.POLL)]


def test_a_poll_is_cut_behind_the_records_that_were_named() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction(A)
    requests.abort_transaction(C)
    assert parts(requests, [A, B, C]) == [([A], PartEnd.COMMIT), ([B, C], PartEnd.ABORT)]
    requests.commit_transaction(A)
    requests.commit_transaction()
    assert parts(requests, [A, B]) == [([A], PartEnd.COMMIT), ([B], PartEnd.COMMIT)]


def test_the_same_record_object_is_meant_and_not_an_equal_one() -> None:
    requests = TransactionRequests("c-0")
    equal = SourceRecord({"file": "f"}, {"position": 1}, "t", "v")
    requests.commit_transaction(equal)
    assert parts(requests, [A]) == [([A], PartEnd.POLL)]
    assert parts(requests, [A, equal, B]) == [([A, equal], PartEnd.COMMIT), ([B], PartEnd.POLL)], (
        "it is still asked for"
    )


def test_an_end_that_stands_already_is_not_made_twice() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction(B)
    requests.commit_transaction()
    assert parts(requests, [A, B]) == [([A, B], PartEnd.COMMIT)]


def test_a_commit_and_an_abort_at_the_same_place_are_an_error() -> None:
    requests = TransactionRequests("c-0")
    requests.commit_transaction(A)
    requests.abort_transaction(A)
    with pytest.raises(ConnectException, match=r"c-0 asks for a commit and for an abort .* \{'position': 1\}"):
        requests.cut([A])
    requests.commit_transaction()
    requests.abort_transaction()
    with pytest.raises(ConnectException, match="after the same batch"):
        requests.cut(None)


def test_frames_end_transactions_as_a_whole() -> None:
    requests = TransactionRequests("c-0", frames=True)
    requests.commit_transaction()
    assert parts(requests, FRAME) == [([FRAME], PartEnd.COMMIT)]
    assert parts(requests, FRAME) == [([FRAME], PartEnd.POLL)]
    with pytest.raises(IllegalWorkerStateException, match="rows are no records"):
        requests.commit_transaction(A)


def test_what_is_no_record_is_refused_at_once() -> None:
    with pytest.raises(ConnectException, match="a str: give the SourceRecord"):
        TransactionRequests("c-0").commit_transaction("last")  # type: ignore[arg-type]
