"""Sending single records, each with its own answer: for dead letters, where batches are rare.

Main type: ``LetterProducer``. Source tasks use ``penstock.kafka.producer``, which sends whole batches.

Threads: ``send`` may be called from any thread; answers come on the producer's own thread, which it starts and joins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import confluent_kafka as ck

from penstock.errors import KafkaException
from penstock.kafka.client_log import CLIENT_LOG
from penstock.telemetry.seldom_log import SeldomLog

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.1


class LetterProducer:
    """A producer for records that come one at a time.

    Args:
        settings: Of librdkafka, translated from Java's names.
        name: Says whose producer this is, in thread names, logs and errors.
    """

    def __init__(self, settings: Mapping[str, object], *, name: str) -> None:
        self._name = name
        self._seldom = SeldomLog(logger)
        conf: dict[str, Any] = {**settings, "error_cb": self._on_error}
        try:
            self._producer = ck.Producer(conf, logger=CLIENT_LOG)
        except (ck.KafkaException, ValueError, TypeError) as failure:
            raise KafkaException(f"The producer of {name} cannot be made: {failure}") from failure
        self._changed = threading.Condition()
        self._under_way = 0
        self._ending = False
        self._thread = threading.Thread(target=self._serve, name=f"letters-{name}", daemon=True)
        self._thread.start()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp: int | None,
        answer: Callable[[Exception | None], None],
    ) -> None:
        """Queue one record. Waits only while the client's queue is full.

        Args:
            topic: Where to; the partition is the client's choice.
            key, value, headers, timestamp: The record.
            answer: Told once whether it is stored. A record that the client refuses at once is answered here.
        """

        def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
            self._done(answer, None if error is None else KafkaException(f"{error.str()} ({error.name()})"))

        with self._changed:
            if self._ending:
                refused: Exception | None = KafkaException(f"The producer of {self._name} is closed")
            else:
                refused = None
                self._under_way += 1
                self._changed.notify_all()
        if refused is not None:
            answer(refused)
            return
        arguments: dict[str, Any] = {"headers": list(headers), "on_delivery": delivered}
        if timestamp is not None and timestamp >= 0:
            arguments["timestamp"] = timestamp
        while True:
            try:
                self._producer.produce(topic, value, key, **arguments)
                return
            except BufferError:
                with self._changed:
                    before = self._under_way
                    self._changed.wait_for(lambda: self._ending or self._under_way < before, _POLL_S)  # noqa: B023
            except (ck.KafkaException, ValueError, TypeError) as failure:
                self._done(answer, KafkaException(str(failure)))
                return

    def close(self, timeout_s: float) -> bool:
        """Wait for what is under way, then end; the rest is answered with an error. Whether all was delivered."""
        with self._changed:
            delivered = self._changed.wait_for(lambda: self._under_way == 0, timeout_s)
            self._ending = True
            self._changed.notify_all()
        self._thread.join(timeout_s + 5.0)
        return delivered

    def _done(self, answer: Callable[[Exception | None], None], error: Exception | None) -> None:
        try:
            answer(error)
        except Exception:
            logger.exception("%s: an answer to a sent record failed", self._name)
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                # Idle, the client is still served once a second: it logs and reports errors through poll.
                self._changed.wait_for(lambda: self._under_way or self._ending, 1.0)
                if self._ending:
                    break
                busy = self._under_way > 0
            self._producer.poll(_POLL_S if busy else 0)
        self._producer.purge()
        deadline = time.monotonic() + 2.0
        while self._under_way and time.monotonic() < deadline:
            self._producer.poll(_POLL_S)

    def _on_error(self, error: ck.KafkaError) -> None:
        self._seldom.warning(error.code(), "%s: %s; the client keeps trying", self._name, error.str())
