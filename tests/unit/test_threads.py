"""Calls on threads of their own, and those who do not wait for them any more."""

import logging
import threading

import pytest

from penstock.threads import as_future, in_thread


def test_the_answer_and_the_error_of_a_call_come_as_a_future() -> None:
    assert in_thread("call", lambda: 7).result(10) == 7
    with pytest.raises(ZeroDivisionError):
        in_thread("call", lambda: 1 // 0).result(10)


def test_a_call_that_has_begun_goes_on_whoever_gives_it_up(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def call() -> str:
        begun.set()
        assert go_on.wait(10)
        return "done"

    future = in_thread("call", call)
    assert begun.wait(10)
    assert not future.cancel()
    go_on.set()

    assert future.result(10) == "done"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_call_that_was_given_up_before_it_began_does_not_run() -> None:
    ran: list[int] = []
    future, body = as_future(lambda: ran.append(1))
    assert future.cancel()

    body()

    assert ran == []
