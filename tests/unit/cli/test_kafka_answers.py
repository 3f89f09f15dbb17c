"""What a worker makes of Kafka's answers while it starts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.cli.worker.worker import until_answered
from penstock.errors import ConfigException, KafkaException, KafkaRetriableException, OffsetStoreException


def failing(*errors: Exception) -> Callable[[], None]:
    """Fails with one after the other, then answers."""
    left = list(errors)

    def call() -> None:
        if left:
            raise left.pop(0)

    return call


def in_store(cause: Exception) -> Exception:
    """As a store tells what Kafka said."""
    error = OffsetStoreException(f"The source offsets cannot be read: {cause}")
    error.__cause__ = cause
    return error


def test_brokers_that_come_back_are_waited_for() -> None:
    away = KafkaRetriableException("No leaders found")
    told: list[Exception] = []

    assert until_answered(failing(away, in_store(away)), threading.Event(), told.append, pause_s=0)
    assert len(told) == 2


@pytest.mark.parametrize(
    "error",
    [
        KafkaException("the topic must not be read"),
        in_store(KafkaException("the topic must not be read")),
        ConfigException("offset.storage.topic", "x", "it is not compacted"),
    ],
)
def test_what_does_not_go_by_itself_ends_the_start(error: Exception) -> None:
    told: list[Exception] = []

    with pytest.raises(type(error)):
        until_answered(failing(error), threading.Event(), told.append, pause_s=0)

    assert told == []


def test_a_worker_that_is_to_stop_waits_no_longer() -> None:
    stopping, away = threading.Event(), KafkaRetriableException("timed out")

    assert not until_answered(failing(away, away), stopping, lambda error: stopping.set(), pause_s=60)
