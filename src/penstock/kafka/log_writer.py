"""Writes records to one topic: some and wait for them, or one and be told.

Main types: ``LogWriter``; ``Acknowledged`` collects the answers to several records. A record that failed for now can be
sent again by itself, as long as who sent it still wants that.

Threads: any may write; the answers come on those of a ``LetterProducer``, which is owned here.
Source: org.apache.kafka.connect.util.KafkaBasedLog.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.api import RecordMetadata
from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.deliveries import RecordTooLargeException
from penstock.kafka.letters import LetterProducer
from penstock.kafka.producer_records import ProducerRecord

Entry = tuple[bytes, "bytes | None"]
Done = Callable[["Exception | None"], None]

#: The pause before a record is sent again, at first and at last; it is doubled each time.
_AGAIN_S: Final = (0.1, 5.0)


def write_error(topic: str, key: bytes, error: Exception) -> KafkaException:
    """The error of a record that could not be written, with advice."""
    text = f"The record {key.decode(errors='replace')} could not be written to the topic {topic}: "
    if isinstance(error, RecordTooLargeException):
        advice = "raise max.request.size of the worker and max.message.bytes of the topic, or make it smaller"
        return KafkaException(f"{text}{error.what}; {advice}")
    passing = isinstance(error, KafkaRetriableException)
    return (KafkaRetriableException if passing else KafkaException)(f"{text}{error}")


class Acknowledged:
    """The answers to some records.

    Args:
        topic: Where they go, for messages.
        entries: The records.
    """

    def __init__(self, topic: str, entries: Sequence[Entry]) -> None:
        self._topic = topic
        self._keys = [key for key, _ in entries]
        self._changed = threading.Condition()
        self._open = len(entries)
        self._awaited = True
        #: What became of the first one that could not be stored.
        self.error: KafkaException | None = None
        #: The offset behind the last one of each partition.
        self.reached: dict[int, int] = {}

    def take(self, row: int, error: Exception | None, place: RecordMetadata | None) -> None:
        """Takes one answer."""
        with self._changed:
            self._open -= 1
            if error is not None:
                self.error = self.error or write_error(self._topic, self._keys[row], error)
            elif place is not None:
                self.reached[place.partition] = max(self.reached.get(place.partition, 0), place.offset + 1)
            self._changed.notify_all()

    def is_awaited(self) -> bool:
        """Whether anybody still waits for the answers."""
        return self._awaited

    def wait(self, timeout_s: float, trouble: Callable[[], str | None]) -> None:
        """Waits until all are stored.

        Args:
            timeout_s: For how long.
            trouble: What keeps them from being stored.

        Raises:
            KafkaException: One could not be stored, or was not in time.
        """
        with self._changed:
            in_time = self._changed.wait_for(lambda: not self._open, timeout_s)
            self._awaited = False
            if self.error is not None:
                raise self.error
            if not in_time:
                why = f" ({known})" if (known := trouble()) else ""
                raise KafkaRetriableException(
                    f"{self._open} records for the topic {self._topic} were not acknowledged in time{why}; they may be "
                    "stored all the same"
                )


class LogWriter:
    """The writing side of a log.

    Args:
        topic: Where to write.
        settings: Of the producer.
        name: What the producer is called, for its threads and messages.
        clock: Monotonic seconds.

    Raises:
        ConfigException: A key, a certificate or a package cannot be used.
    """

    def __init__(
        self, topic: str, settings: ColumnSettings, name: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._letters = LetterProducer(settings, name=name)

    def write(self, entries: Sequence[Entry], timeout_s: float) -> dict[int, int]:
        """Writes records and waits until they are stored.

        Returns:
            The offset behind the last one of each partition.

        Raises:
            KafkaException: One could not be stored, or was not in time. Others may be.
        """
        deadline = self._clock() + timeout_s
        answers = Acknowledged(self._topic, entries)
        for row, (key, value) in enumerate(entries):
            self._letters.send(
                ProducerRecord(self._topic, key, value),
                partial(answers.take, row),
                room_s=self._left(deadline),
                # What has waited in vain all that time is not sent any more.
                wanted=answers.is_awaited,
            )
        answers.wait(self._left(deadline), lambda: self._letters.trouble)
        return answers.reached

    def send(self, key: bytes, value: bytes | None, done: Done, wanted: Callable[[], bool] = lambda: False) -> None:
        """Writes one record; never waits.

        Args:
            key, value: The record.
            done: Told once what became of it, perhaps before this returns.
            wanted: Asked whether the record is sent again, after a failure that may pass.
        """
        self._send(ProducerRecord(self._topic, key, value), key, done, wanted, 0.0)

    def stop(self, timeout_s: float) -> None:
        """Waits for what is under way, then ends; what is left is answered with an error. Safe to call twice."""
        self._letters.close(timeout_s)

    def _send(self, record: ProducerRecord, key: bytes, done: Done, wanted: Callable[[], bool], after_s: float) -> None:
        def answer(error: Exception | None, _: RecordMetadata | None) -> None:
            if isinstance(error, KafkaRetriableException) and wanted():
                first_s, most_s = _AGAIN_S
                self._send(record, key, done, wanted, min(most_s, max(first_s, 2 * after_s)))
            else:
                done(None if error is None else write_error(self._topic, key, error))

        self._letters.send(record, answer, room_s=0, after_s=after_s, wanted=wanted if after_s else None)

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock())
