"""What the transactions of a source task are made with.

Main types: `TransactionParts`; `TransactionProducer` and `TransactionStart`, what is needed of Kafka;
`TransactionSizes`, for metrics.

Thread: see `TransactionCommitter`, which owns them, but for the sizes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.api import Avg, Max, Min, SampleWindow, Stat
from penstock.errors import KafkaException
from penstock.model import ConnectorTaskId
from penstock.stores.interface import TransactionalOffsetStore
from penstock.worker.boundaries import Boundaries


class TransactionProducer(Protocol):
    """The part of ``penstock.kafka.transactional_producer.TransactionalProducer`` that is needed here."""

    @property
    def trouble(self) -> str | None:
        """What keeps records from being sent, as far as is known."""

    @property
    def ended(self) -> KafkaException | None:
        """Why the open transaction cannot be committed; None as long as it can."""

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id. May be called again after a time-out."""

    def send_offsets_entries(self, topic: str, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Send records as they are in the open transaction."""

    def wait_delivered(self, timeout_s: float) -> bool:
        """Wait until nothing is under way; False when the time is over, or nothing more will be stored."""

    def commit(self, timeout_s: float) -> None:
        """Make the transaction count. May be called again when its outcome is not known."""

    def abort_transaction(self, timeout_s: float) -> None:
        """Give up the open transaction."""


class TransactionStart(Protocol):
    """Takes the task's transactional id."""

    def __call__(self, stopping: threading.Event) -> bool:
        """Blocks until the producer has it; False when `stopping` was set before."""


class TransactionSizes:
    """Records in each committed transaction. Thread: any."""

    def __init__(self, window: SampleWindow, clock: Callable[[], float]) -> None:
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._stats: Mapping[str, Stat] = {"min": Min(), "max": Max(), "avg": Avg()}

    def add(self, records: int) -> None:
        """A transaction was committed."""
        with self._lock:
            for stat in self._stats.values():
                stat.record(records, self._clock(), self._window)

    def measure(self, name: str) -> float:
        """`min`, `max` or `avg` of the latest ones."""
        with self._lock:
            return self._stats[name].measure(self._clock(), self._window)


@dataclass(frozen=True)
class TransactionParts:
    """What the transactions of one task are made with.

    Attributes:
        task: The task; its connector is the namespace of the offsets.
        producer: The task's own; the one that its records go to.
        offsets: Where its source offsets are.
        start: Takes the producer's id.
        boundaries: Where transactions end.
        sizes: Told of each committed transaction.
    """

    task: ConnectorTaskId
    producer: TransactionProducer
    offsets: TransactionalOffsetStore
    start: TransactionStart
    boundaries: Boundaries
    sizes: TransactionSizes
