"""Offsets that live as long as the worker.

Main type: `MemoryOffsetStore`.

Thread: any; one lock guards the map.
"""

import threading
from collections.abc import Iterable, Mapping

from penstock.errors import OffsetStoreException


class MemoryOffsetStore:
    """An `OffsetStore` without a disk: for tests, and as what other stores build on.

    Source: org.apache.kafka.connect.storage.MemoryOffsetBackingStore.
    """

    def __init__(self, entries: Mapping[bytes, bytes] | None = None) -> None:
        self._lock = threading.Lock()
        self._entries = dict(entries or {})
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
            apply_entries(self._entries, entries)

    def entries(self) -> dict[bytes, bytes]:
        """A copy of all entries."""
        with self._lock:
            self._require_started()
            return dict(self._entries)

    def _require_started(self) -> None:
        if not self._started:
            raise OffsetStoreException("The offset store is not started: it was stopped, or start() was not called")


def apply_entries(target: dict[bytes, bytes], entries: Mapping[bytes, bytes | None]) -> None:
    """Put the entries into the target; None removes a key."""
    for key, value in entries.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
