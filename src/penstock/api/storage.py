"""``OffsetStorageReader``: what a source has committed so far, for connectors and tasks that resume from it.

Owning thread: none; any thread may read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence


class OffsetStorageReader(ABC):
    """Reads the source offsets that this connector's tasks have committed.

    The worker implements it; connectors and tasks get it from their context. In a connector it sees what all its tasks
    have committed (they commit every ``offset.flush.interval.ms``), which lags behind what they have read.

    Thread: any; calls block while the store is read.
    Source: org.apache.kafka.connect.storage.OffsetStorageReader; KIP-131 for its use in connectors.
    """

    @abstractmethod
    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        """The committed offset of one source partition, or None when there is none.

        Numbers come back as int or float, whatever width they had.

        Raises:
            ConnectException: The store cannot be read, or the connector or task was closed meanwhile.
        """

    @abstractmethod
    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        """The committed offsets of many source partitions, in the order asked for, in one read of the store.

        Raises:
            ConnectException: The store cannot be read, or the connector or task was closed meanwhile.
        """
