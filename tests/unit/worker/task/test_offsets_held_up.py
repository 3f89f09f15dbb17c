"""What is said of a task that cannot read its offsets topic to its end."""

from __future__ import annotations

import logging

import pytest

from penstock.errors import KafkaRetriableException, OffsetStoreException
from penstock.kafka.open_transactions import HeldUpException
from penstock.model import ConnectorTaskId, State
from penstock.telemetry.waits import standstill_of
from penstock.worker.task.waiting import Hints, OffsetsHeldUp, task_waiting


def unread(cause: Exception) -> OffsetStoreException:
    error = OffsetStoreException(f"The source offsets could not be read: {cause}")
    error.__cause__ = cause
    return error


def test_it_is_a_warning_when_it_lasts_once_a_minute_and_is_shown_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    held_up = OffsetsHeldUp(ConnectorTaskId("a", 0), lambda: now[0])
    with caplog.at_level(logging.INFO):
        for second in range(0, 90, 5):
            now[0] = second
            held_up.waits(unread(HeldUpException("a transaction is open", "The topic took longer")))
        levels = [one.levelno for one in caplog.records]
        assert levels.count(logging.INFO) == 3
        assert levels.count(logging.WARNING) == 2
        assert "has waited for the end of its offsets topic for 15 s" in caplog.text
    standstill = standstill_of("task a-0")
    assert standstill is not None
    assert standstill.reason == "open_transaction"
    assert standstill.details["cause"] == "a transaction is open"
    for state in (State.UNASSIGNED, State.RESTARTING):
        found = task_waiting("a-0", state, {}, spark_up=True, hints=Hints(held_up=held_up.text))
        assert found.reason == "open_transaction"
        assert "it cannot read past that: a transaction is open." in found.text
    held_up.goes_on()
    assert held_up.text is None
    assert standstill_of("task a-0") is None


def test_what_is_not_known_to_be_a_transaction_is_the_broker() -> None:
    held_up = OffsetsHeldUp(ConnectorTaskId("a", 0), lambda: 0.0)
    held_up.waits(unread(KafkaRetriableException("took longer")))
    assert held_up.text is None
    standstill = standstill_of("task a-0")
    assert standstill is not None
    assert standstill.reason == "broker"
    held_up.goes_on()
