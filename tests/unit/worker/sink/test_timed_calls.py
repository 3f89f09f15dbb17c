"""When what a task wants called by the clock is due."""

from __future__ import annotations

import math

import pytest

from penstock.worker.sink.context import ClockCalls


def test_each_is_due_after_its_time_and_missed_ones_are_not_made_up_for() -> None:
    calls = ClockCalls()
    calls.add(5.0, list, now=100.0)

    assert calls.next_due(104.9) is None
    due = calls.next_due(121.0)
    assert due is not None
    due.began(121.0)
    assert calls.next_due(125.9) is None
    assert calls.wait_s(121.0) == 5.0


def test_the_one_that_is_due_longest_comes_first() -> None:
    calls = ClockCalls()
    calls.add(5.0, list, now=100.0)
    calls.add(2.0, dict, now=100.0)

    first = calls.next_due(110.0)
    assert first is not None
    assert first.call is dict
    first.began(110.0)
    second = calls.next_due(110.0)
    assert second is not None
    assert second.call is list


def test_one_that_asks_again_keeps_the_others_waiting() -> None:
    calls = ClockCalls()
    calls.add(1.0, list, now=100.0)
    calls.add(1.0, dict, now=100.0)
    first = calls.next_due(101.0)
    assert first is not None

    first.ask_again(130.0)

    assert calls.asks_again_at == 130.0
    assert calls.next_due(129.0) is None
    assert calls.next_due(130.0) is first


def test_calls_that_were_ended_are_not_due() -> None:
    calls = ClockCalls()
    end = calls.add(1.0, list, now=0.0)
    end()
    end()
    assert calls.next_due(10.0) is None
    assert calls.wait_s(10.0) == math.inf


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf])
def test_a_time_is_above_zero(seconds: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        ClockCalls().add(seconds, list, now=0.0)


def test_what_is_called_is_a_function() -> None:
    with pytest.raises(ValueError, match="not a int"):
        ClockCalls().add(1.0, 7, now=0.0)  # type: ignore[arg-type]
