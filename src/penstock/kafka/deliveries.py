"""What a producer tells of the rows it was given, whichever way it sends them.

Main types: `Receipts` (who is told; `EachRow` tells of one row at a time), `FailedDelivery` (a row that Kafka will not
store), `Deliveries` (what of a task's rows is under way, the part that both producers have) and the exceptions of
sending.

Thread: see `Deliveries`; the others are values. `Receipts` are called on a producer's own thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from penstock.api import RecordMetadata
from penstock.errors import KafkaException


class ProducerClosedException(KafkaException):
    """The producer was closed or aborted while records were being sent."""


class RecordTooLargeException(KafkaException):
    """A record that is larger than the client, the broker or the topic takes.

    Attributes:
        what: The same without what the user of a connector can do about it.
    """

    java_name = "org.apache.kafka.common.errors.RecordTooLargeException"
    what = ""


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
    """Gets the outcome of the rows of one batch. Thread: the producer's own; must not raise."""

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


class EachRow:
    """`Receipts` that tell what became of each row by itself.

    Args:
        tell: Told a row, why it failed, and where it is; the last only where a producer reports each row.
    """

    def __init__(self, tell: Callable[[int, KafkaException | None, RecordMetadata | None], None]) -> None:
        self._tell = tell

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        """See `Receipts`."""
        failed = {one.row: one.error for one in failures}
        places = metadata or {}
        for row in range(first, end):
            self._tell(row, failed.get(row), places.get(row))


class SentTogether(Protocol):
    """Rows that are handed over together.

    Attributes:
        number: Ascending in the order of sending.
        nbytes: What counts as under way.
    """

    number: int
    nbytes: int


C = TypeVar("C", bound=SentTogether)


class Deliveries(Generic[C]):
    """The rows of a task that are under way, until they are stored, lost, or given up.

    Everything here changes under one condition, which is also what `send` of a producer waits for. Thread: any.

    Args:
        name: name of the task, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._state = threading.Condition()
        self._open: dict[int, C] = {}
        self._bytes = 0
        self._next_number = 0
        self._stopped = False
        self._aborted = False
        self._ending = False

    def wait_delivered(self, timeout_s: float) -> bool:
        """Wait until nothing is under way; False when the time is over or the producer was aborted."""
        with self._state:
            return self._state.wait_for(lambda: self._aborted or not self._open, timeout_s) and not self._aborted

    def abort(self) -> None:
        """Give up what is under way: a waiting `send` fails, nothing is reported any more. Does not block."""
        with self._state:
            self._aborted = True
            self._state.notify_all()

    def _check_open(self) -> None:
        if self._aborted:
            raise ProducerClosedException(f"The producer of {self._name} was closed while records were being sent")

    def _count_in(self, chunk: C) -> None:
        """Count rows as under way. The condition is held."""
        chunk.number = self._next_number
        self._next_number += 1
        self._open[chunk.number] = chunk
        self._bytes += chunk.nbytes


def too_large(size: int, setting: str, limit: int | None) -> RecordTooLargeException:
    """Java's words, and what to do.

    Args:
        size: bytes of the record's key and value.
        setting: what does not allow it.
        limit: that setting's value in bytes, where it is known.
    """
    value = "" if limit is None else f" ({limit})"
    what = f"The message is {size} bytes when serialized which is larger than {setting}{value} allows"
    error = RecordTooLargeException(
        f"{what}. Raise producer.override.max.request.size and producer.override.buffer.memory of the connector and "
        "max.message.bytes of the topic, or set errors.tolerance=all to leave such records out"
    )
    error.what = what
    return error
