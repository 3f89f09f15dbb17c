"""Groups that share a job have numbers: stable, different within a job, and bounded."""

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.data import Schema, Type
from penstock.errors import ConnectException
from penstock.pipeline.columns.records import table_bytes, table_of
from penstock.pipeline.plan.chain import ShapeGroup
from penstock.pipeline.plan.isolated_jobs import PlanOrder
from penstock.pipeline.plan.jobs import MAX_NUMBERS, MAX_SHARED_GROUPS, Plan, SparkJobs
from penstock.pipeline.plan.step import NOTHING, Shape, Side
from penstock.pipeline.spark.isolated_session import Loss, SessionOrder
from penstock.pipeline.spark.session import SparkRuntime


def group(name: str) -> ShapeGroup:
    return ShapeGroup((), Shape(NOTHING, Side.of(Schema(Type.STRING, name=name))), None, {})


def test_equal_groups_of_later_jobs_have_the_numbers_of_earlier_ones() -> None:
    jobs = SparkJobs(cast("SparkRuntime", None))

    first = jobs._slots([group("a"), group("b")])

    assert len(set(first)) == 2
    assert jobs._slots([group("b"), group("c"), group("a")]) == [first[1], 2, first[0]]


def test_two_groups_of_one_shape_in_one_job_have_different_numbers() -> None:
    jobs = SparkJobs(cast("SparkRuntime", None))

    assert len(set(jobs._slots([group("a"), group("a"), group("b"), group("a")]))) == 4
    assert jobs._slots([group("a"), group("a")]) == [0, 1]


def test_numbers_stay_bounded_however_many_schemas_come_by() -> None:
    jobs = SparkJobs(cast("SparkRuntime", None))

    for start in range(0, 5 * MAX_NUMBERS, MAX_SHARED_GROUPS):
        numbers = jobs._slots([group(str(start + index)) for index in range(MAX_SHARED_GROUPS)])
        assert len(set(numbers)) == MAX_SHARED_GROUPS
        assert max(numbers) < MAX_NUMBERS
    assert len(jobs._numbers) == MAX_NUMBERS


class Losing:
    """A runtime whose sessions are lost under a job."""

    def __init__(self, *losses: Loss) -> None:
        self._losses, self.tried = losses, 0

    def run(self, job: Callable[[Any], Any], instead: Callable[[Loss], Callable[[], Any] | None]) -> Any:
        for loss in self._losses:
            self.tried += 1
            if (other := instead(loss)) is not None:
                return other()
        return job(None)


ENDED = "the Spark JVM ran out of memory (spark.driver.memory is 700m)"


@pytest.mark.parametrize(
    ("losses", "tried"),
    [
        ([Loss(1, True, ENDED, jobs=1)], 1),
        # Another job may have been the one that was too large.
        ([Loss(1, True, ENDED, jobs=2), Loss(2, True, ENDED, jobs=2)], 2),
    ],
)
def test_a_frame_larger_than_the_jvm_fails_the_task_at_once_with_what_to_set(losses: list[Loss], tried: int) -> None:
    runtime: Any = Losing(*losses)
    make: Any = lambda session: session  # noqa: E731
    with pytest.raises(ConnectException, match=r"do not fit .* 700m\).* fewer rows .* raise spark\.driver\.memory"):
        SparkJobs(runtime).on_dataframe(make, lambda frame: frame)
    assert runtime.tried == tried


def test_a_frame_under_which_a_session_is_killed_is_made_again() -> None:
    runtime: Any = Losing(Loss(1, False, "was killed", jobs=1))
    make: Any = lambda session: "made"  # noqa: E731
    assert SparkJobs(runtime).on_dataframe(make, lambda frame: f"{frame} again") == "made again"


class Elsewhere:
    """A session of its own that doubles what it is sent."""

    def run(self, order: SessionOrder) -> Any:
        rows = table_of(order.arguments[1])
        return table_bytes(pa.table({"value": [2 * value for value in rows["value"].to_pylist()]}))


class Crashing:
    """A runtime whose session a batch has crashed twice."""

    generation, isolated = 1, Elsewhere()

    def run(self, job: Callable[[Any], Any], instead: Callable[[Loss], Callable[[], Any] | None] | None = None) -> Any:
        other = None if instead is None else instead(Loss(2, True, ENDED))
        return job(None) if other is None else other()


def test_a_batch_that_crashes_sessions_comes_back_from_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime: Any = Crashing()
    jobs = SparkJobs(runtime)
    monkeypatch.setattr(jobs, "_plan_of", lambda order: Plan((), (), (), True))
    order = PlanOrder.of([group("a")], apart=True)

    for _ in range(2):  # the next batch of the task goes there at once
        output, given, _ = jobs._run_order(order, lambda plan: pa.table({"value": [1, 2]}))
        assert (output["value"].to_pylist(), given["value"].to_pylist()) == ([2, 4], [1, 2])
