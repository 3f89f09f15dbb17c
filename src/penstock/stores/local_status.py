"""The states of connectors and tasks, in memory: the whole of them for a standalone worker.

Main type: `LocalStatusStore`. In a cluster it holds what `penstock.stores.status_topic` has read.

Thread: any.
Source: org.apache.kafka.connect.storage.MemoryStatusBackingStore; KIP-558.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from penstock.model import ConnectorStatus, ConnectorTaskId, TaskStatus

_NONE: Final[frozenset[str]] = frozenset()


class LocalStatusStore:
    """A `StatusStore` without a place where others could look.

    >>> store = LocalStatusStore()
    >>> store.note_topics("a", ["orders", "customers"], 0)
    >>> store.topics("a")
    ['customers', 'orders']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connectors: dict[str, ConnectorStatus] = {}
        self._tasks: dict[str, dict[int, TaskStatus]] = {}
        self._topics: dict[str, frozenset[str]] = {}
        self._listeners: tuple[Callable[[str], None], ...] = ()

    def start(self) -> None:
        """Nothing to read."""

    def stop(self) -> None:
        """Nothing to let go."""

    def put(self, status: ConnectorStatus | TaskStatus, *, safe: bool = False) -> None:
        """See `StatusStore`; nobody else says anything, so that everything is safe."""
        if isinstance(status, ConnectorStatus):
            name = status.name
            with self._lock:
                self._connectors[name] = status
        else:
            name = status.id.connector
            with self._lock:
                self._tasks.setdefault(name, {})[status.id.task] = status
        self._tell(name)

    def forget(self, of: str | ConnectorTaskId) -> None:
        """See `StatusStore`."""
        with self._lock:
            if isinstance(of, ConnectorTaskId):
                tasks = self._tasks.get(of.connector, {})
                found = tasks.pop(of.task, None) is not None
                if found and not tasks:
                    del self._tasks[of.connector]
            else:
                found = self._connectors.pop(of, None) is not None
        if found:
            self._tell(of.connector if isinstance(of, ConnectorTaskId) else of)

    def connector(self, name: str) -> ConnectorStatus | None:
        """See `StatusStore`."""
        return self._connectors.get(name)

    def task(self, task: ConnectorTaskId) -> TaskStatus | None:
        """Returns the status of one task, or None if none was reported."""
        with self._lock:
            return self._tasks.get(task.connector, {}).get(task.task)

    def tasks(self, name: str) -> list[TaskStatus]:
        """See `StatusStore`."""
        with self._lock:
            return [status for _, status in sorted(self._tasks.get(name, {}).items())]

    def names(self) -> set[str]:
        """See `StatusStore`."""
        with self._lock:
            return {*self._connectors, *self._tasks}

    def listen(self, callback: Callable[[str], None]) -> None:
        """See `StatusStore`."""
        with self._lock:
            self._listeners = (*self._listeners, callback)

    def note_topics(self, connector: str, topics: Iterable[str], task: int) -> None:
        """See `StatusStore`."""
        used = frozenset(topics)
        # Nearly every call brings nothing new; that is seen without the lock, on one immutable set.
        if used <= self._topics.get(connector, _NONE):
            return
        with self._lock:
            self._topics[connector] = self._topics.get(connector, _NONE) | used

    def forget_topic(self, connector: str, topic: str) -> None:
        """Forgets one topic of a connector."""
        with self._lock:
            if left := self._topics.pop(connector, _NONE) - {topic}:
                self._topics[connector] = left

    def topics(self, connector: str) -> list[str]:
        """See `StatusStore`."""
        return sorted(self._topics.get(connector, _NONE))

    def reset_topics(self, connector: str) -> None:
        """See `StatusStore`."""
        with self._lock:
            self._topics.pop(connector, None)

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)
