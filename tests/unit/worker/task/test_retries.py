"""What is waited, logged and told while a call of a task asks to be made again."""

from __future__ import annotations

import logging

import pytest
from testkit.doubles.contexts import ManualClock

from penstock.errors import (
    KafkaRetriableException,
    RetriableException,
    SparkStoppedException,
    SparkUnavailableException,
    stack_trace,
)
from penstock.pipeline.batch.transfer import described, rebuilt
from penstock.telemetry.waits import standstill_of
from penstock.worker.task.waiting import Retries, RetryBackoff, asks_again


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def retries(clock: ManualClock) -> Retries:
    return Retries("orders-0", "source_retry", RetryBackoff(60, "source.retry.delay.max.ms", share=lambda: 0.0), clock)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == level]


def test_the_wait_grows_up_to_the_setting(retries: Retries) -> None:
    waits = [retries.failed("poll", RetriableException("busy")) for _ in range(12)]
    assert waits == [0.25, 0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert (retries.count, retries.total) == (12, 12)


def test_tasks_that_failed_together_do_not_come_back_together() -> None:
    assert RetryBackoff(60, "s", share=lambda: 0.999).delay_s(20) == pytest.approx(48, abs=0.1)


@pytest.mark.parametrize("after_s", [0, 0.5, 3600])
def test_the_error_says_when(retries: Retries, after_s: float) -> None:
    assert retries.failed("poll", RetriableException("limit", retry_after_s=after_s)) == after_s
    for _ in range(9):
        found = retries.failed("poll", RetriableException("limit", retry_after_s=after_s))
        assert found == max(after_s, 0.01), "one that always fails keeps no core busy"
    assert retries.failed("put", RetriableException("limit", retry_after_s=after_s), 5.0) == after_s
    assert retries.failed("put", RetriableException("limit"), 5.0) == 5.0


@pytest.mark.parametrize("wrong", ["30", -1, float("nan"), float("inf"), True, [1]])
def test_a_time_that_is_none_is_refused_where_it_is_given(wrong: float) -> None:
    with pytest.raises(ValueError, match="retry_after_s must be a number of seconds"):
        RetriableException("limit", retry_after_s=wrong)


def test_which_errors_ask() -> None:
    assert asks_again(KafkaRetriableException("busy"))
    assert asks_again(SparkUnavailableException("busy"))
    assert not asks_again(SparkStoppedException("the task is stopping"))
    assert not asks_again(TimeoutError())


def test_a_subclass_with_a_constructor_of_its_own_asks_without_a_time(retries: Retries) -> None:
    class Limited(RetriableException):
        def __init__(self, url: str) -> None:
            self.url = url

        def __str__(self) -> str:
            return f"{self.url} is limited"

    assert retries.failed("poll", Limited("u")) == 0.25
    assert "Limited: u is limited" in str(retries.waiting)


def test_it_is_told_once_and_then_seldom(
    retries: Retries, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(15):
            clock.now += retries.failed("poll", RetriableException("the source is away"))
        assert len(lines(caplog, logging.WARNING)) == 1
        first = lines(caplog, logging.WARNING)[0]
        assert "Task orders-0: poll() asks to be called again: RetriableException: the source is away" in first
        assert "60 s apart at most (source.retry.delay.max.ms)" in first
        clock.now += 600
        retries.failed("poll", RetriableException("the source is away"))
        assert len(lines(caplog, logging.WARNING)) == 2
        assert "for the 16th time" in lines(caplog, logging.WARNING)[1]
        retries.succeeded()
        retries.succeeded()
        assert len(lines(caplog, logging.INFO)) == 1
        assert "poll() works again, after it was tried 16 times" in lines(caplog, logging.INFO)[0]


def test_one_that_fails_every_second_call_is_told_once_a_minute(
    retries: Retries, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        assert retries.failed("poll", RetriableException("busy")) == 0.25
        retries.succeeded()
        clock.now += 0.3
    assert len(lines(caplog, logging.WARNING)) == 1
    clock.now += 60
    retries.failed("poll", RetriableException("busy"))
    assert len(lines(caplog, logging.WARNING)) == 2


def test_it_is_shown_until_a_call_succeeds(retries: Retries, clock: ManualClock) -> None:
    assert not retries.waiting
    retries.failed("poll", RetriableException("busy"))
    clock.now += 0.25
    retries.failed("poll", RetriableException("busy, still"))
    told = retries.waiting
    assert told is not None
    body = told.to_json()
    assert body["reason"] == "source_retry"
    assert body["cause"] == "RetriableException: busy, still"
    assert body["count"] == 2
    assert str(body["next_try"]) > str(body["since"])
    assert str(body["text"]).startswith(
        "poll() asked to be called again, 2 times by now: RetriableException: busy, still. That is done at "
    )
    standstill = standstill_of("task orders-0")
    assert standstill is not None
    assert standstill.details["count"] == 2
    clock.now += 1
    assert "That is being done." in str(retries.waiting)
    retries.succeeded()
    assert standstill_of("task orders-0") is None
    assert str(retries.waiting) == "None"


def test_what_a_former_instance_said_does_not_take_back_what_its_successor_says(clock: ManualClock) -> None:
    former, now = (Retries("a-0", "sink_retry", RetryBackoff(60, "s"), clock) for _ in range(2))
    former.failed("put", RetriableException("busy"))
    now.failed("put", RetriableException("busy"))
    former.ended()
    assert standstill_of("task a-0") is not None
    now.ended()
    assert standstill_of("task a-0") is None


def test_the_time_crosses_from_the_process_of_an_isolated_task() -> None:
    found = rebuilt(described(RetriableException("limit", retry_after_s=30)))
    assert isinstance(found, RetriableException)
    assert found.retry_after_s == 30
    assert rebuilt(described(RetriableException("limit"))).retry_after_s is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [KeyError("price"), StopIteration("x"), ValueError("7"), LookupError("a")])
def test_an_error_whose_message_says_nothing_keeps_its_class_in_the_first_line(error: Exception) -> None:
    outer = RuntimeError(f"c task 0: exiting due to unrecoverable exception in put of t-0: {error}")
    outer.__cause__ = error
    assert stack_trace(outer).splitlines()[0] == f"{type(error).__name__}: {error}"
