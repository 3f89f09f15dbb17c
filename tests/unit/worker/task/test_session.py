"""The Spark session as one instance of a task uses it."""

from __future__ import annotations

import threading

import pytest
from testkit.doubles.spark_doubles import FakeSessions
from testkit.waiting import await_true

from penstock.errors import (
    IllegalWorkerStateException,
    SparkSessionLostException,
    SparkStoppedException,
    SparkUnavailableException,
)
from penstock.model import State
from penstock.worker.task.engine import TaskSession, state_after

ERROR = ValueError("refused")


def test_who_asks_for_a_session_gets_the_one_of_this_moment() -> None:
    sessions = FakeSessions()
    session = TaskSession("c-0", sessions)

    assert str(session.session()) == "session 1"
    sessions.replace()
    assert str(session.session()) == "session 2"


def test_who_waits_for_a_session_gets_the_next_one() -> None:
    sessions = FakeSessions()
    sessions.lose()
    session = TaskSession("c-0", sessions)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(session.session()))
    waiting.start()
    await_true(lambda: sessions.asked > 0)
    sessions.replace()
    waiting.join(10)

    assert found == ["session 2"]


def test_nobody_waits_for_a_session_when_the_task_is_to_end_but_one_that_is_there_is_given() -> None:
    sessions = FakeSessions()
    session = TaskSession("c-0", sessions)
    session.end()

    assert str(session.session()) == "session 1"
    sessions.lose()
    with pytest.raises(SparkStoppedException, match="Task c-0 is stopping and does not wait for a Spark session"):
        session.session()


def test_a_session_that_cannot_start_is_told_with_its_cause() -> None:
    sessions = FakeSessions()
    sessions.failure = SparkUnavailableException("no Java")

    with pytest.raises(SparkUnavailableException, match="no Java"):
        TaskSession("c-0", sessions).session()


def test_a_process_without_spark_says_so() -> None:
    session = TaskSession("c-0")
    session.used()

    with pytest.raises(IllegalWorkerStateException, match="Task c-0 has no Spark session"):
        session.session()
    assert session.named(ERROR) is ERROR


def test_an_error_after_the_loss_of_a_session_that_was_used_is_that_loss() -> None:
    sessions = FakeSessions()
    session = TaskSession("c-0", sessions)
    session.session()
    assert session.named(ERROR) is ERROR

    sessions.lose()
    lost = session.named(ERROR)

    assert isinstance(lost, SparkSessionLostException)
    assert str(lost).startswith("the Spark session that the task had used was lost, then: ValueError: refused. ")
    assert lost.__cause__ is ERROR
    assert (state_after(lost), state_after(ERROR)) == (State.RESTARTING, State.FAILED)


def test_what_was_made_on_an_older_session_may_be_kept_still() -> None:
    sessions = FakeSessions()
    session = TaskSession("c-0", sessions)
    session.used()
    sessions.replace()
    session.session()

    assert isinstance(session.named(ERROR), SparkSessionLostException)


def test_who_has_used_no_session_has_lost_none() -> None:
    sessions = FakeSessions()
    session = TaskSession("c-0", sessions)
    sessions.replace()

    assert session.named(ERROR) is ERROR


def test_what_is_to_be_made_while_there_is_no_session_is_made_on_the_next() -> None:
    sessions = FakeSessions()
    sessions.lose()
    session = TaskSession("c-0", sessions)
    session.used()
    sessions.replace()

    assert session.named(ERROR) is ERROR


def test_that_no_session_can_be_had_is_no_loss_of_one() -> None:
    sessions = FakeSessions()
    session = TaskSession("c-0", sessions)
    session.session()
    sessions.lose()
    error = SparkUnavailableException("each was lost")

    assert session.named(error) is error


def test_a_put_has_lost_the_session_that_it_got_itself() -> None:
    sessions = FakeSessions()
    session = TaskSession("c-0", sessions)
    session.in_put = None
    session.session()
    assert not session.lost_in_put(ERROR)
    sessions.replace()
    assert session.lost_in_put(ERROR)

    session.in_put = None
    assert not session.lost_in_put(ERROR)
    session.session()
    assert not session.lost_in_put(ERROR)
