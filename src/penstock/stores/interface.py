"""What the worker and the herder need from an offset store.

Main type: `OffsetStore`. The file, memory and topic stores implement it; `penstock.stores.offsets` puts Kafka
Connect's JSON keys and values on top of it. A store knows no more of them than that keys that are equal as JSON are one
key (`penstock.stores.entries`).

Thread: implementations are called from the threads of many tasks at once and synchronise themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class OffsetStore(Protocol):
    """A durable map from key bytes to value bytes, shared by all source tasks of a worker.

    A key that is JSON is found, written and removed in any spelling; it stays stored in the one that came first.

    Thread: any; every method may be called concurrently after `start` returned.
    Source: org.apache.kafka.connect.storage.OffsetBackingStore.
    """

    def start(self) -> None:
        """Open the store and read it to its end, so that `get` answers what was committed before.

        Raises:
            OffsetStoreException: the stored data cannot be read, or another worker holds the store.
        """

    def stop(self) -> None:
        """Release what `start` opened. Safe to call twice, and after a failed `start`."""

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """Read the newest committed value of each key.

        Args:
            keys: key bytes.
            timeout_s: the longest wait, None for the store's own limit.

        Returns:
            One entry for each key asked for; None for a key without a value.

        Raises:
            OffsetStoreException: the read failed or took too long, or the store is stopped.
        """

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """Write all entries, durable when this returns. None removes a key.

        Args:
            entries: key bytes to value bytes or None.
            timeout_s: the longest wait, None for the store's own limit.

        Raises:
            OffsetStoreException: the write failed or took too long; it may or may not have happened.
        """

    def entries(self) -> dict[bytes, bytes]:
        """A copy of all live entries, for listing and resetting the offsets of a connector.

        Raises:
            OffsetStoreException: as for `get`.
        """
