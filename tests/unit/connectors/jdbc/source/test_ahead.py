"""Items that are made on a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.connectors.jdbc.source.ahead import Ahead


def test_items_come_in_order_and_only_so_many_are_made_ahead() -> None:
    made: list[int] = []
    third = threading.Event()

    def numbers() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            if number == 2:
                third.set()
            yield number

    ahead = Ahead(numbers, threading.Event(), most=1)
    assert next(ahead) == 0
    assert third.wait(10)
    assert made == [0, 1, 2], "one waits, and one is held"
    assert list(ahead) == [1, 2, 3, 4]
    ahead.close()


def test_an_error_comes_behind_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = Ahead(broken, threading.Event())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)
    ahead.close()


def test_closing_it_closes_the_generator_and_a_stop_ends_the_wait() -> None:
    closed, held, stopping = threading.Event(), threading.Event(), threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    ahead = Ahead(endless, stopping)
    assert next(ahead) == 1
    ahead.close()
    assert closed.wait(10)

    def waiting() -> Iterator[int]:
        held.wait(10)
        yield from ()

    slow = Ahead(waiting, stopping)
    threading.Timer(0.05, stopping.set).start()
    assert list(slow) == []
    held.set()
    slow.close()
