"""How far a log was read, and who waits for it."""

import threading

import pytest

from penstock.errors import KafkaException
from penstock.kafka.topic_log.clients import LogPositions


def test_what_was_reached_is_not_waited_for() -> None:
    positions = LogPositions()
    positions.advance(0, {0: 5, 3: 2})

    assert positions.wait({0: 5, 3: 1, 7: 0}, 0)
    assert not positions.wait({0: 6, 3: 9}, 0)
    assert positions.behind({0: 6, 3: 2, 4: 1}) == {0: 6, 4: 1}


def test_waiting_ends_when_the_reader_gets_there() -> None:
    positions, answers = LogPositions(), []
    waiter = threading.Thread(target=lambda: answers.append(positions.wait({0: 2, 1: 2}, 20)))
    waiter.start()
    positions.advance(0, {0: 2})
    positions.advance(0, {1: 3})
    waiter.join(20)

    assert answers == [True]


def test_what_is_said_of_the_time_before_reading_began_anew_does_not_count() -> None:
    positions = LogPositions()
    positions.advance(0, {0: 5})

    generation = positions.begin_anew()
    positions.advance(0, {0: 6})
    assert positions.reached(0) == 0
    positions.advance(generation, {0: 1})
    assert positions.reached(0) == 1


def test_waiting_ends_with_an_error_when_the_log_is_closed() -> None:
    positions = LogPositions()
    positions.advance(0, {0: 5})
    positions.close("the log was closed")

    assert positions.wait({0: 5}, 20)
    with pytest.raises(KafkaException, match="the log was closed"):
        positions.wait({0: 6}, 20)
