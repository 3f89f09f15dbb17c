"""Callers who ask at the same time share an answer, and never one that is older than their question."""

import threading

import pytest
from testkit.waiting import await_true

from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.topic_log.log import SharedQuestion


class Oracle:
    """Answers with the number of the question, once it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.let = threading.Event()
        self.errors: list[Exception] = []

    def __call__(self, timeout_s: float) -> int:
        self.asked += 1
        number = self.asked
        if not self.let.wait(timeout_s):
            raise KafkaRetriableException("took too long")
        if self.errors:
            raise self.errors.pop(0)
        return number


def ask(question: SharedQuestion[int], answers: list[object], timeout_s: float = 20) -> threading.Thread:
    def call() -> None:
        try:
            answers.append(question.answer(timeout_s))
        except KafkaException as error:
            answers.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_those_who_come_while_a_question_is_under_way_share_the_next_one() -> None:
    oracle, first, later = Oracle(), list[object](), list[object]()
    question = SharedQuestion(oracle, "asking")
    threads = [ask(question, first)]
    await_true(lambda: oracle.asked == 1)
    threads += [ask(question, later) for _ in range(10)]

    await_true(lambda: len(question._changed._waiters) == 10)  # type: ignore[attr-defined]
    oracle.let.set()
    for thread in threads:
        thread.join(20)

    assert first == [1]
    assert later == [2] * 10
    assert oracle.asked == 2


def test_an_error_is_told_to_all_who_shared_the_question() -> None:
    oracle, answers = Oracle(), list[object]()
    oracle.errors = [KafkaException("first"), KafkaException("second")]
    question = SharedQuestion(oracle, "asking")
    threads = [ask(question, answers)]
    await_true(lambda: oracle.asked == 1)
    threads += [ask(question, answers) for _ in range(3)]
    await_true(lambda: len(question._changed._waiters) == 3)  # type: ignore[attr-defined]
    oracle.let.set()
    for thread in threads:
        thread.join(20)

    assert sorted(map(str, answers)) == ["first", "second", "second", "second"]
    assert question.answer(1) == 3


def test_whoever_has_more_time_asks_again() -> None:
    oracle, hasty, patient = Oracle(), list[object](), list[object]()
    question = SharedQuestion(oracle, "asking")
    threads = [ask(question, hasty, 0.05)]
    await_true(lambda: oracle.asked == 1)
    threads.append(ask(question, patient))
    threads[0].join(20)
    oracle.let.set()
    threads[1].join(20)

    assert hasty == ["took too long"]
    assert patient == [2]


def test_nobody_waits_longer_than_asked_for() -> None:
    oracle, answers = Oracle(), list[object]()
    question = SharedQuestion(oracle, "Asking for ends")
    thread = ask(question, answers)
    await_true(lambda: oracle.asked == 1)

    with pytest.raises(KafkaRetriableException, match=r"Asking for ends: no answer within 0\.01 s"):
        question.answer(0.01)

    oracle.let.set()
    thread.join(20)
    assert answers == [1]
