"""A heartbeat tells what answers from what refuses and from what is silent, and never waits longer than told."""

import threading

from penstock.pipeline.spark.jvm import JvmProbe


def test_what_answers_is_alive() -> None:
    heartbeat = JvmProbe(lambda: None)

    assert [heartbeat.answers(5.0) for _ in range(3)] == [True, True, True]
    assert heartbeat.refused is None


def test_what_refuses_is_told_with_its_reason_until_it_answers_again() -> None:
    errors = [OSError("gone")]

    def ask() -> None:
        if errors:
            raise errors.pop()

    heartbeat = JvmProbe(ask)

    assert not heartbeat.answers(5.0)
    assert str(heartbeat.refused) == "gone"
    assert not heartbeat.answers(5.0)
    assert heartbeat.refused is None
    assert heartbeat.answers(5.0)


def test_what_is_silent_is_asked_no_second_question_and_counts_once_it_answers() -> None:
    asked: list[int] = []
    go_on = threading.Event()

    def ask() -> None:
        asked.append(1)
        go_on.wait(30)

    heartbeat = JvmProbe(ask)

    assert [heartbeat.answers(0.01) for _ in range(3)] == [False, False, False]
    assert len(asked) == 1
    go_on.set()
    assert heartbeat.answers(5.0)
    assert len(asked) == 1
