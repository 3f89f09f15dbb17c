"""A consumer that never reached a broker is gone soon after it was closed, and says little."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import pytest

from penstock.kafka.consumer.consumer import RecordConsumer
from penstock.kafka.consumer.offsets import Subscription

#: A group that waits for others is left after minutes; this has nobody to wait for.
SOON_S: Final = 20.0


class Nobody:
    """A listener that is never called."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize("static", [False, True])
def test_a_consumer_whose_brokers_have_no_address_ends_soon(static: bool, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"bootstrap.servers": "nowhere.invalid:9092", "group.id": "g"}
    consumer = RecordConsumer({**settings, **({"group.instance.id": "one"} if static else {})}, name="c-0")
    with caplog.at_level(logging.INFO):
        consumer.subscribe(Subscription.of(["t"]), Nobody())
        until = time.monotonic() + 1
        while time.monotonic() < until:
            consumer.fetch(10, 0.1)
        begun = time.monotonic()
        consumer.close()
    assert time.monotonic() - begun < SOON_S
    assert len(caplog.records) < 20
