"""What a producer tells of the rows it was given, whichever way it sends them.

Main types: `Receipts` (who is told), `FailedDelivery` (a row that Kafka will not store) and the exceptions of sending.

Thread: none; values. `Receipts` are called on a producer's own thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.api import RecordMetadata
from penstock.errors import KafkaException


class ProducerClosedException(KafkaException):
    """The producer was closed or aborted while records were being sent."""


class RecordTooLargeException(KafkaException):
    """A record that is larger than the client, the broker or the topic takes."""

    java_name = "org.apache.kafka.common.errors.RecordTooLargeException"


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """A row that Kafka will not store.

    Attributes:
        row: Position in the batch.
        topic: The topic it was for.
        error: Why.
        java_name: Kafka's name of that error.
        unknown_topic: The topic does not exist and the broker does not create it.
        fatal: The producer sends nothing any more.
    """

    row: int
    topic: str
    error: KafkaException
    java_name: str
    unknown_topic: bool = False
    fatal: bool = False


class Receipts(Protocol):
    """Is told what has become of the rows of one batch. Thread: the producer's own; must not raise."""

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        """All rows from `first` to `end - 1` that were to be sent are in Kafka, except those in `failures`.

        Args:
            first, end: positions in the batch; chunks of a batch do not overlap and may end in any order.
            failures: what failed for good, in order.
            metadata: where each delivered row is, by position; None unless each row is reported.
        """
        ...


def too_large(size: int, setting: str, limit: int | None) -> RecordTooLargeException:
    """Java's words, and what to do.

    Args:
        size: bytes of the record's key and value.
        setting: what does not allow it.
        limit: that setting's value in bytes, where it is known.
    """
    value = "" if limit is None else f" ({limit})"
    return RecordTooLargeException(
        f"The message is {size} bytes when serialized which is larger than {setting}{value} allows. Raise "
        "producer.override.max.request.size and producer.override.buffer.memory of the connector and max.message.bytes "
        "of the topic, or set errors.tolerance=all to leave such records out"
    )
