"""Offsets that live as long as the worker.

Main type: `MemoryOffsetStore`.

Thread: any; one lock guards the map.
"""

import threading
from collections.abc import Iterable, Mapping

from penstock.errors import OffsetStoreException
from penstock.stores.offsets import OffsetEntries


class MemoryOffsetStore:
    """An `OffsetStore` without a disk: for tests, and as the base of other stores.

    Source: org.apache.kafka.connect.storage.MemoryOffsetBackingStore.
    """

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self._lock = threading.Lock()
        self._entries = OffsetEntries(entries)
        self._started = False

    def start(self) -> None:
        """Allow reads and writes."""
        self._started = True

    def stop(self) -> None:
        """Refuse reads and writes until the next start; the entries stay."""
        self._started = False

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """The value of each key, None where there is none."""
        with self._lock:
            self._require_started()
            return {key: self._entries.get(key) for key in keys}

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """Take over all entries; None removes a key."""
        with self._lock:
            self._require_started()
            self._entries.apply(self._entries.changes(entries))

    def entries(self) -> dict[bytes, bytes]:
        """A copy of all entries."""
        with self._lock:
            self._require_started()
            return self._entries.copy()

    def _require_started(self) -> None:
        if not self._started:
            raise OffsetStoreException("The offset store is not started: it was stopped, or start() was not called")
