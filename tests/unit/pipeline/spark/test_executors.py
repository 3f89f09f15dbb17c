"""When a session on a cluster counts as lost for having no executor, and what is said of that."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.pipeline.spark.driver.jvm import JavaMissingException, SessionRefusedException
from penstock.pipeline.spark.executors import ExecutorWatch, NoExecutorsException
from penstock.pipeline.spark.session import SparkRuntime
from penstock.telemetry.standstills import goes_on, standstill_of

CLUSTER = {"spark.master": "spark://spark:7077"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield Clock()
    goes_on("Spark")


def test_one_without_executors_is_told_of_after_a_moment_and_lost_after_the_timeout(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = ExecutorWatch(CLUSTER, 30, clock)
    watch.count(2)
    for second in range(40):
        clock.now = second
        watch.count(0)
        assert (watch.trouble is None) == (second < 5)
        assert (watch.lost is None) == (second < 30)
    assert "has had no executor any more since" in str(watch.trouble)
    assert "none for 39 s (penstock.spark.executors.timeout.ms)" in str(watch.lost)
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    standstill = standstill_of("Spark")
    assert standstill is not None
    assert "spark://spark:7077" in standstill.text
    watch.count(1)
    assert (watch.trouble, watch.lost, standstill_of("Spark")) == (None, None, None)


def test_the_next_session_is_given_twice_the_time_and_the_first_moment_is_remembered(clock: Clock) -> None:
    watch = ExecutorWatch(CLUSTER, 30, clock)

    def lost_at(moment: float) -> bool:
        clock.now = moment
        watch.count(0)
        return watch.lost is not None

    assert [lost_at(0), lost_at(29), lost_at(30)] == [False, False, True]
    watch.replaced()
    watch.begin()
    assert [lost_at(50), lost_at(109), lost_at(110)] == [False, False, True]
    assert "has given this worker no executor since" in str(watch.trouble)
    watch.count(1)
    assert [lost_at(200), lost_at(230)] == [False, True]


def test_one_that_never_gets_any_is_given_ten_times_the_time_at_most(clock: Clock) -> None:
    watch = ExecutorWatch(CLUSTER, 30, clock)
    waits = []
    for _ in range(6):
        watch.begin()
        watch.count(0)
        began = clock.now
        while watch.lost is None:
            clock.now += 10
        waits.append(clock.now - began)
        watch.replaced()
    assert waits == [30, 60, 120, 240, 300, 300]


def test_with_dynamic_allocation_only_jobs_that_wait_count(clock: Clock) -> None:
    watch = ExecutorWatch({**CLUSTER, "spark.dynamicAllocation.enabled": "TRUE"}, 30, clock)
    watch.count(0, waits=False)
    clock.now = 100
    assert (watch.trouble, watch.lost) == (None, None)
    watch.count(0, waits=True)
    clock.now = 131
    assert watch.lost


def test_a_cluster_that_was_there_before_is_waited_for_and_one_that_never_was_is_not() -> None:
    runtime, local = SparkRuntime(CLUSTER), SparkRuntime({})
    refused, none = SessionRefusedException("no master"), NoExecutorsException("none")
    assert runtime._tries_again(none, 50, 9999)
    assert not runtime._tries_again(refused, 1, 0)
    runtime._generation = local._generation = 1
    assert runtime._tries_again(refused, 50, 9999)
    assert not runtime._tries_again(JavaMissingException("no Java"), 1, 0)
    assert not local._tries_again(refused, 1, 0)
