"""The gate shares jobs between batches of one plan and never holds back a batch that could run."""

import threading

import pyarrow as pa
import pytest

from penstock.pipeline.spark import gate as gate_module
from penstock.pipeline.spark.gate import Gate
from penstock.telemetry import waits


def table(*numbers):
    return pa.table({"n": list(numbers)})


def double(batch):
    return pa.table({"n": [2 * n for n in batch["n"].to_pylist()]})


def run_all(gate, jobs):
    """Runs (key, table, execute) jobs on threads; returns results or errors in order."""
    results: list[object] = [None] * len(jobs)

    def work(index, key, batch, execute):
        try:
            results[index] = gate.run(key, batch, execute)["n"].to_pylist()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=work, args=(i, *job)) for i, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    return results


class Blocker:
    """A job that waits until it is let go, so that others queue up behind it."""

    def __init__(self):
        self.running = threading.Event()
        self.go = threading.Event()

    def __call__(self, batch):
        self.running.set()
        assert self.go.wait(10)
        return batch


def queue_behind_a_running_job(gate, jobs):
    blocker = Blocker()
    first = threading.Thread(target=gate.run, args=("blocker", table(0), blocker))
    first.start()
    assert blocker.running.wait(10)
    outcome: dict[str, list[object]] = {}
    rest = threading.Thread(target=lambda: outcome.update(results=run_all(gate, jobs)))
    rest.start()
    with gate._changed:
        assert gate._changed.wait_for(lambda: len(gate._waiting) == len(jobs), 10)
    blocker.go.set()
    first.join(10)
    rest.join(10)
    return outcome["results"]


def test_a_lone_batch_runs_at_once():
    gate = Gate(1)
    assert gate.run("k", table(1, 2), double)["n"].to_pylist() == [2, 4]
    assert (gate.jobs, gate.shared_batches) == (1, 0)


def test_waiting_batches_of_one_plan_share_a_job_and_get_their_own_rows_back():
    gate = Gate(1)
    results = queue_behind_a_running_job(gate, [("k", table(i, i + 100), double) for i in range(5)])
    assert results == [[2 * i, 2 * (i + 100)] for i in range(5)]
    assert (gate.jobs, gate.shared_batches) == (2, 5)


def test_batches_of_different_plans_do_not_share():
    gate = Gate(1)
    results = queue_behind_a_running_job(gate, [("a", table(1), double), ("b", table(2), double)])
    assert results == [[2], [4]]
    assert (gate.jobs, gate.shared_batches) == (3, 0)


def test_a_bad_batch_fails_alone():
    def fail_on_seven(batch):
        if 7 in batch["n"].to_pylist():
            raise ValueError("seven")
        return double(batch)

    gate = Gate(1)
    results = queue_behind_a_running_job(gate, [("k", table(n), fail_on_seven) for n in (6, 7, 8)])
    assert results[0] == [12]
    assert isinstance(results[1], ValueError)
    assert results[2] == [16]


def rows_of_jobs(gate, batches):
    """How many rows the jobs have that these batches share."""
    rows = []

    def note(batch):
        rows.append(batch.num_rows)
        return double(batch)

    queue_behind_a_running_job(gate, [("k", batch, note) for batch in batches])
    return sorted(rows)


def test_shared_jobs_stay_within_the_record_bound():
    assert rows_of_jobs(Gate(1, max_records=4), [table(1, 2)] * 5) == [2, 4, 4]


def test_a_job_that_loses_rows_is_an_error():
    gate = Gate(1)
    results = queue_behind_a_running_job(gate, [("k", table(1), lambda b: b.slice(0, 1)) for _ in range(3)])
    # the shared form returned one row for three, so each batch was run again alone
    assert results == [[1], [1], [1]]


def test_a_gate_needs_a_permit():
    with pytest.raises(ValueError, match="at least one permit, got 0"):
        Gate(0)


def test_shared_jobs_stay_within_the_byte_bound():
    assert rows_of_jobs(Gate(1, max_bytes=40), [*[table(1, 2)] * 4, table(*range(9))]) == [4, 4, 9]


def test_a_batch_that_is_not_let_in_yet_waits_for_spark():
    gate = Gate(permits=1)
    blocker = Blocker()
    first = threading.Thread(target=gate.run, args=("a", table(0), blocker))
    first.start()
    assert blocker.running.wait(10)
    second = threading.Thread(target=gate.run, args=("b", table(1), double))
    second.start()
    with gate._changed:
        assert gate._changed.wait_for(lambda: len(gate._waiting) == 1, 10)
    found = waits()
    assert second.ident is not None
    assert found[second.ident].reason == "spark"
    blocker.go.set()
    for thread in (first, second):
        thread.join(10)
    assert second.ident not in waits()


def test_small_batches_go_before_large_ones_but_not_for_ever():
    gate = Gate(1)
    order: list[str] = []

    def noted(name):
        def execute(batch):
            order.append(name)
            return batch

        return execute

    large = pa.table({"n": list(range(gate_module.SMALL_BYTES // 8 + 1))})
    jobs = [("large", large, noted("large"))]
    jobs += [(f"small {number}", table(number), noted("small")) for number in range(gate_module.MOST_BEFORE + 4)]
    blocker = Blocker()
    first = threading.Thread(target=gate.run, args=("blocker", table(0), blocker))
    first.start()
    assert blocker.running.wait(10)
    threads = [threading.Thread(target=gate.run, args=job) for job in jobs]
    for waiting, thread in enumerate(threads, 1):
        thread.start()
        with gate._changed:
            assert gate._changed.wait_for(lambda: len(gate._waiting) == waiting, 10)  # noqa: B023
    blocker.go.set()
    for thread in [first, *threads]:
        thread.join(10)
    assert order.index("large") == gate_module.MOST_BEFORE
    assert order.count("small") == gate_module.MOST_BEFORE + 4
