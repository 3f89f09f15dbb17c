"""Groups that share a job have numbers: stable, different within a job, and bounded."""

from typing import cast

from penstock.data import Schema, Type
from penstock.pipeline.plan.chain import ShapeGroup
from penstock.pipeline.plan.jobs import MAX_NUMBERS, MAX_SHARED_GROUPS, SparkJobs
from penstock.pipeline.plan.step import NOTHING, Shape, Side
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
