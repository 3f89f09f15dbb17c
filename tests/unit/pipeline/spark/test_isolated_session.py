"""Batches that cost a session: which are suspected, how their bad records are found, and how much memory jobs share."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, cast

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

from penstock.errors import ConnectException, DataException, SparkOverdueException, SparkStoppedException
from penstock.pipeline.plan.isolated_jobs import (
    ISOLATION_S,
    LOST_PLACE,
    MAX_LOST_ROWS,
    Apart,
    in_parts,
    what_was_lost,
    with_error,
    without_content,
)
from penstock.pipeline.plan.jobs import _nulls
from penstock.pipeline.spark.gate import MemoryBudget, PythonWork, shares
from penstock.pipeline.spark.isolated_session import (
    SUSPECT_BYTES,
    IsolatedSessionLostException,
    Loss,
    SessionOrder,
    _sendable,
    goes_alone,
)
from penstock.telemetry import waits

if TYPE_CHECKING:
    from penstock.pipeline.spark.session import SparkRuntime

WAIT_S = 10.0
FULL = Loss(1, True, "the Spark JVM ran out of memory")


class Session:
    """Loses itself under some rows; writes down what it was given."""

    def __init__(self, bad: Sequence[int], loss: Loss = FULL) -> None:
        self.bad = set(bad)
        self.loss = loss
        self.asked: list[int] = []
        self.lost = 0

    def run(self, part: pa.Table) -> pa.Table:
        rows = part["row"].to_pylist()
        self.asked.append(len(rows))
        if self.bad & set(rows):
            self.lost += 1
            raise IsolatedSessionLostException(self.loss)
        return pa.table({"made": part["row"]})


def given_up(row: pa.Table, loss: Loss) -> pa.Table:
    made = pa.table({"made": pa.nulls(1, pa.int64())})
    return with_error(made, what_was_lost(row, loss))


def rows(count: int) -> pa.Table:
    return pa.table({"row": list(range(count))})


def found(table: pa.Table, session: Session) -> pa.Table:
    return pa.concat_tables(in_parts(table, session.run, given_up), promote_options="default")


def test_a_batch_that_passes_by_itself_is_run_once() -> None:
    session = Session([])
    assert found(rows(50_000), session)["made"].to_pylist() == list(range(50_000))
    assert session.asked == [50_000]


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 1_000, 32_768, 50_000])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_bad_record_is_found_at_the_cost_of_few_sessions(count: int, place: str) -> None:
    bad = {"first": 0, "middle": count // 2, "last": count - 1}[place]
    session = Session([bad])
    output = found(rows(count), session)
    assert output["made"].to_pylist() == [None if row == bad else row for row in range(count)]
    assert session.lost <= 5
    errors = output["error"].to_pylist()
    assert [row for row, error in enumerate(errors) if error is not None] == [bad]
    assert errors[bad]["place"] == LOST_PLACE
    assert "the Spark JVM ran out of memory" in errors[bad]["message"]
    assert "spark.driver.memory" in errors[bad]["message"]


def test_a_batch_of_which_every_record_costs_a_session_fails_after_few() -> None:
    session = Session(range(50_000))
    with pytest.raises(ConnectException, match=rf"^{MAX_LOST_ROWS} of 50000 records \(400,000 bytes in all\)"):
        in_parts(rows(50_000), session.run, given_up)
    assert session.lost <= 5 + MAX_LOST_ROWS


def test_a_batch_that_takes_too_long_says_so_and_what_to_look_for() -> None:
    session = Session(range(100), Loss(1, False, "it took longer than 60 s", overdue=True))
    with pytest.raises(ConnectException, match=r"^3 of 100 .*: it took longer than 60 s\. Look for expressions"):
        in_parts(rows(100), session.run, given_up)


class Apartment:
    """A session apart, which does what it is told."""

    def __init__(self) -> None:
        self.does: Callable[[], object] = lambda: "done"
        self.isolated = self

    def run(self, order: SessionOrder) -> object:
        return self.does()


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


class OfTheJvm(PySparkException):
    """An error that holds on to an object of the JVM, which is nowhere else."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("it cannot be pickled")

    def __str__(self) -> str:
        return "[DIVIDE_BY_ZERO] Division by zero.\n\nJVM stacktrace:\nat org.apache.spark"


class OfThePlan(OfTheJvm, AnalysisException):
    """An error of the plan."""


@pytest.mark.parametrize(("error", "whole"), [(OfTheJvm("x"), False), (OfThePlan("x"), True)])
def test_an_error_of_spark_is_of_its_kind_when_it_comes_from_the_session_apart(error: Exception, whole: bool) -> None:
    crossed = pickle.loads(pickle.dumps(_sendable(error)))
    assert isinstance(crossed, PySparkException)
    assert isinstance(crossed, AnalysisException) is whole
    assert str(crossed) == "[DIVIDE_BY_ZERO] Division by zero."


def test_other_errors_come_as_they_are_or_as_their_text() -> None:
    assert isinstance(_sendable(DataException("x")), DataException)
    told = _sendable(type("Local", (Exception,), {})("what it said"))
    assert type(told) is ConnectException
    assert "what it said" in str(told)


def keeps_away(apart: Apart) -> bool:
    return apart.has_all


def test_a_task_keeps_away_from_the_workers_session_for_a_while_since_its_last_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("penstock.pipeline.plan.isolated_jobs.time.monotonic", lambda: now[0])
    session, work, order = Apartment(), PythonWork(), SessionOrder("m", "f", ())
    apart = Apart(cast("SparkRuntime", session), work)
    assert not keeps_away(apart)
    assert apart.run(order) == "done"
    now[0] += ISOLATION_S - 1
    assert keeps_away(apart)
    # What goes well there is no reason to stay.
    apart.run(order)
    now[0] += 2
    assert not keeps_away(apart)
    for error in (IsolatedSessionLostException(FULL), SparkOverdueException("it took longer than 60 s")):
        session.does = failing(error)
        with pytest.raises(IsolatedSessionLostException) as caught:
            apart.run(order)
        assert caught.value.loss.overdue is isinstance(error, SparkOverdueException)
        now[0] += ISOLATION_S - 1
        assert keeps_away(apart)
    now[0] += 2
    assert not keeps_away(apart)
    work.end()
    with pytest.raises(SparkStoppedException, match="abandoned"):
        apart.run(order)


def test_where_even_an_empty_record_costs_a_session_the_batch_fails_at_once() -> None:
    session = Session([0])

    def lost(row: pa.Table, loss: Loss) -> pa.Table:
        raise IsolatedSessionLostException(loss)

    with pytest.raises(ConnectException, match=r"^1 of 1 records .* look at the connector's transforms$"):
        in_parts(rows(1), session.run, lost)


def test_two_bad_records_are_two_errors() -> None:
    session = Session([3, 900])
    output = found(rows(1_000), session)
    assert [row for row, error in enumerate(output["error"].to_pylist()) if error is not None] == [3, 900]


def test_the_row_of_a_lost_record_is_an_error_of_the_kind_its_plan_has_and_nothing_else() -> None:
    kind = pa.struct([("place", pa.int32()), ("message", pa.string())])
    output = pa.table({"value": ["x"], "error": pa.nulls(1, kind), "dropped": [True]})
    (row,) = with_error(output, "too large").to_pylist()
    assert row == {"value": "x", "error": {"place": LOST_PLACE, "message": "too large"}, "dropped": None}


def test_a_row_without_content_keeps_its_group_and_its_types() -> None:
    variant = pa.struct([pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), False)])
    table = pa.table(
        {
            "group": [7],
            "value": ["x" * 1_000],
            "list": [["a", "b"]],
            "variant": pa.array([{"value": b"1", "metadata": b"2"}], variant),
        }
    )
    bare = without_content(table, ("group",), _nulls)
    assert bare.to_pylist() == [{"group": 7, "value": None, "list": None, "variant": None}]
    assert bare.schema == table.schema


@pytest.mark.parametrize(
    ("loss", "nbytes", "passed", "alone"),
    [
        (Loss(1, True, "", jobs=3), SUSPECT_BYTES, SUSPECT_BYTES, True),
        (Loss(1, True, "", jobs=3), SUSPECT_BYTES - 1, 10, False),
        (Loss(1, True, "", jobs=3), 10, 0, True),
        (Loss(1, True, "", jobs=1), 10, 10, True),
        (Loss(1, False, "", jobs=1), 100 * SUSPECT_BYTES, 0, False),
        (Loss(2, False, "", jobs=3), 10, 10, True),
    ],
    ids=["large", "small among others", "of a new plan", "by itself", "killed from outside", "for the second time"],
)
def test_which_batches_are_tried_in_a_session_of_their_own(loss: Loss, nbytes: int, passed: int, alone: bool) -> None:
    assert goes_alone(loss, nbytes, passed) is alone


# ------------------------------------------------------------------------------------------------------------- memory
class Job:
    """Takes room in a budget on a thread of its own until it is told to end."""

    def __init__(self, budget: MemoryBudget, nbytes: int) -> None:
        self.runs, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(budget, nbytes), daemon=True)
        self._thread.start()

    def _run(self, budget: MemoryBudget, nbytes: int) -> None:
        with budget.room_for(nbytes):
            self.runs.set()
            assert self._end.wait(WAIT_S)

    @property
    def waits_for(self) -> str | None:
        """What it says of itself while it waits."""
        wait = waits().get(self._thread.ident or 0)
        return None if wait is None else wait.detail

    def await_waiting(self) -> str:
        deadline = time.monotonic() + WAIT_S
        while (detail := self.waits_for) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.005)
        return detail

    def end(self) -> None:
        self._end.set()
        self._thread.join(WAIT_S)


def test_jobs_share_the_memory_in_the_order_of_coming_and_say_that_they_wait() -> None:
    budget = MemoryBudget(12 * 100 * 2**20)
    first, second = Job(budget, 60 * 2**20), Job(budget, 30 * 2**20)
    assert first.runs.wait(WAIT_S)
    assert second.runs.wait(WAIT_S)
    large = Job(budget, 50 * 2**20)
    told = "90 MB of batches are in the session, and 50 MB do not fit beside them (spark.driver.memory)"
    assert large.await_waiting() == told
    behind = Job(budget, 5 * 2**20)
    behind.await_waiting()
    small = Job(budget, 2**20)
    assert small.runs.wait(WAIT_S), "it is not held up"
    first.end()
    assert large.runs.wait(WAIT_S)
    assert behind.runs.wait(WAIT_S)
    for job in (second, large, behind, small):
        job.end()
    assert budget.used == 0


def test_a_job_that_is_larger_than_all_the_room_goes_by_itself() -> None:
    budget = MemoryBudget(1_200)
    first = Job(budget, 5_000)
    assert first.runs.wait(WAIT_S)
    second = Job(budget, 5_000)
    second.await_waiting()
    first.end()
    assert second.runs.wait(WAIT_S)
    second.end()


def test_a_job_that_fails_leaves_its_room() -> None:
    budget = MemoryBudget(1_200)
    with pytest.raises(ValueError, match="bad"), budget.room_for(100):
        raise ValueError("bad")
    assert budget.used == 0


def test_a_server_of_others_has_no_bounds_and_a_session_that_comes_up_sets_them() -> None:
    budget = MemoryBudget()
    assert budget.job_bytes is None
    with budget.room_for(2**40), budget.room_for(2**40):
        assert budget.used == 2**41
    budget.set_heap(700 * 2**20)
    assert budget.job_bytes == shares(700 * 2**20)[0]
