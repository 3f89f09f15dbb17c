"""Batches that pass Spark by their lengths share jobs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from penstock.pipeline.spark import gate
from penstock.pipeline.spark.gate import Passing, lengths_of

WAIT_S = 20.0


def messages(*values: bytes | None) -> pa.Table:
    return pa.table({"key": pa.nulls(len(values), pa.binary()), "value": pa.array(values, pa.binary())})


class Jobs:
    """Notes the values' lengths of each job; holds the first one, and fails for rows that a test names."""

    def __init__(self) -> None:
        self.done: list[list[Any]] = []
        self.entered, self.hold = threading.Event(), threading.Event()
        self.hold.set()
        self.bad: list[int] | None = None

    def __call__(self, rows: pa.Table) -> None:
        found = rows.column("value").to_pylist()
        self.entered.set()
        assert self.hold.wait(WAIT_S)
        if self.bad in found:
            raise ValueError("bad")
        self.done.append(found)


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_a_row_has_the_lengths_in_bytes_of_a_part_of_a_longer_column_in_pieces(kind: pa.DataType) -> None:
    texts = ["a", "\u00e4", None, "", "abc" * 100]
    column = pa.chunked_array([pa.array(texts, kind), pa.array([], kind), pa.array(texts, kind)])
    table = pa.table({"key": column, "value": column}).slice(1, 7)

    [row] = lengths_of(table).to_pylist()

    assert row == {"key": [2, None, 0, 300, 1, 2, None], "value": [2, None, 0, 300, 1, 2, None]}


def test_a_column_without_any_value_has_no_lengths() -> None:
    assert lengths_of(messages(None, None)).to_pylist() == [{"key": None, "value": None}]


def test_a_lone_batch_has_a_job_at_once_on_the_thread_that_waits() -> None:
    jobs = Jobs()

    Passing().begin(messages(b"abc"), jobs)()

    assert jobs.done == [[[3]]]


def test_batches_that_come_while_a_job_runs_share_the_next_one() -> None:
    jobs, shared = Jobs(), Passing()
    jobs.hold.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shared.begin(messages(b"1"), jobs))
        assert jobs.entered.wait(WAIT_S)
        waits = [shared.begin(messages(b"x" * size), jobs) for size in (2, 3, 4)]
        jobs.hold.set()
        first.result(WAIT_S)

    for wait in waits:
        wait()
    assert jobs.done == [[[1]], [[2], [3], [4]]]


def test_no_job_has_more_messages_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_MESSAGES", 3)
    jobs, shared = Jobs(), Passing()
    sizes = (1, 1, 2, 5, 1)
    waits = [shared.begin(messages(*[b""] * size), jobs) for size in sizes]

    waits[-1]()

    assert [[len(one) for one in job] for job in jobs.done] == [[1, 1], [2], [5], [1]]


def test_only_the_batch_that_fails_is_failed_by_a_job_that_others_share() -> None:
    jobs, shared = Jobs(), Passing()
    jobs.bad = [7]
    good, bad, also = (shared.begin(messages(b"x" * size), jobs) for size in (1, 7, 2))

    good()
    also()
    with pytest.raises(ValueError, match="bad"):
        bad()
    assert jobs.done == [[[1]], [[2]]]
    shared.begin(messages(b"abc"), jobs)()
    assert jobs.done[-1] == [[3]]


def test_a_batch_that_nobody_waits_for_goes_along_and_holds_nobody_up() -> None:
    jobs, shared = Jobs(), Passing()
    shared.begin(messages(b"given up"), jobs)

    shared.begin(messages(b"abc"), jobs)()

    assert jobs.done == [[[8], [3]]]


def test_every_batch_of_many_threads_passes_once() -> None:
    jobs, shared = Jobs(), Passing()

    def some(task: int) -> None:
        for batch in range(50):
            shared.begin(messages(b"x" * (task * 50 + batch)), jobs)()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, range(4)))

    assert sorted(size for job in jobs.done for [size] in job) == list(range(200))


def test_a_patient_batch_waits_for_others_until_one_of_them_is_asked_for() -> None:
    times = [0.0]
    jobs, shared = Jobs(), Passing(clock=lambda: times[0])

    def job(rows: pa.Table) -> None:
        times[0] = 0.01
        jobs(rows)

    shared.begin(messages(b"1"), job)(patient=True)
    assert jobs.done == [[[1]]], "no job was there to rest after"

    with ThreadPoolExecutor(1) as pool:
        first = shared.begin(messages(b"22"), job)
        waiting = pool.submit(first, patient=True)
        second = shared.begin(messages(b"333"), job)
        first()
        waiting.result(WAIT_S)
    second(patient=True)

    assert jobs.done == [[[1]], [[2], [3]]]


def test_a_patient_batch_that_is_alone_waits_several_times_the_latest_job() -> None:
    times = [0.0]
    shared = Passing(clock=lambda: times[0])
    found: list[float] = []

    def job(rows: pa.Table) -> None:
        found.append(times[0])
        times[0] += 0.01

    shared.begin(messages(b"1"), job)(patient=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shared.begin(messages(b"2"), job), patient=True)
        times[0] += gate.REST * 0.01 / 2
        assert found == [0.0]
        times[0] += gate.REST * 0.01 / 2
        waiting.result(WAIT_S)

    assert found == [0.0, pytest.approx(0.01 + gate.REST * 0.01)]
