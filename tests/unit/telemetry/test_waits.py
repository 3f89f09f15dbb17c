"""What threads say that they wait for."""

from __future__ import annotations

import threading
from threading import get_ident

import pytest

from penstock.telemetry import Wait, waiting_for, waits


def said() -> str | None:
    """What this thread says."""
    found = waits().get(get_ident())
    return None if found is None else found.reason


def test_a_wait_is_said_while_it_lasts_and_the_inner_one_counts() -> None:
    assert said() is None
    with waiting_for("outer", "detail"):
        assert waits()[get_ident()].detail == "detail"
        with waiting_for("inner"):
            assert said() == "inner"
        assert said() == "outer"
    assert said() is None


def test_a_wait_that_raises_is_over() -> None:
    with pytest.raises(ValueError, match="x"), waiting_for("something"):
        raise ValueError("x")
    assert said() is None


def test_a_function_waits_while_it_runs() -> None:
    @waiting_for("a call")
    def call(argument: str) -> tuple[str, str | None]:
        return argument, said()

    assert call("a") == ("a", "a call")
    assert said() is None


def test_each_thread_says_its_own() -> None:
    found: list[str | None] = []
    with waiting_for("here"):
        thread = threading.Thread(target=lambda: found.append(said()))
        thread.start()
        thread.join()
    assert found == [None]


def test_since_when_is_said() -> None:
    with waiting_for("a"):
        first: Wait = waits()[get_ident()]
    with waiting_for("a"):
        assert waits()[get_ident()].since_s >= first.since_s
