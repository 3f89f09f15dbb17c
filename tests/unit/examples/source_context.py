"""A source task's context over a store in memory, whose seconds take no time."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.api import OffsetStorageReader, SourceTaskContext
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader, OffsetWriter


class Stopping(threading.Event):
    """Waits are noted and end at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()


class Context(SourceTaskContext):
    def __init__(self) -> None:
        self.waiting = Stopping()
        self.stopping = self.waiting
        self.told: list[tuple[float | None, float | None, str]] = []
        self._store = MemoryOffsetStore()
        self._store.start()

    def commit(self, partition: Mapping[str, object] | None, offset: Mapping[str, object] | None) -> None:
        """Stores an offset as the worker does."""
        writer = OffsetWriter(self._store, "c")
        writer.put(partition, offset)
        writer.flush()

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        self.commit(partition, offset)

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        self.told.append((done, total, unit))

    def configs(self) -> dict[str, str]:
        return {}

    def offset_storage_reader(self) -> OffsetStorageReader:
        return OffsetReader(self._store, "c")
