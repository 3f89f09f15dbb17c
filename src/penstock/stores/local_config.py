"""What a standalone worker is configured to run: the records of a config topic without a topic.

Main type: `LocalConfigStore`. Written records are folded at once, as they would be in a cluster; connectors and target
states outlive the worker in a file where there is one (`penstock.stores.connectors`), task configurations never do.

Thread: any; one write at a time. The listener is called on the thread of whoever writes, and must not write itself.
Source: org.apache.kafka.connect.storage.MemoryConfigBackingStore.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence

from penstock.errors import DataException
from penstock.model.cluster_config import ClusterConfig, ConfigRecord, fold
from penstock.model.config_records import Entry, connector_entries
from penstock.stores.connectors import ConnectorStore, StoredConnector
from penstock.stores.interface import ConfigListener

logger = logging.getLogger(__name__)


class LocalConfigStore:
    """A `ConfigStore` of one worker.

    Args:
        file: Where connectors outlive the worker; None to forget them at its end. It is started before this store, and
            stopped after it.
        except_for: Stored connectors that are passed over at the start: the command line has others of these names.
    """

    def __init__(self, file: ConnectorStore | None = None, *, except_for: Collection[str] = ()) -> None:
        self._file = file
        self._except_for = frozenset(except_for)
        self._lock = threading.Lock()
        self._snapshot = ClusterConfig()
        self._listener: ConfigListener = lambda config, changes: None
        self._in_memory: set[str] = set()

    def start(self, listener: ConfigListener) -> None:
        """See `ConfigStore`. A stored connector with text that is no valid Unicode is passed over, and stays stored."""
        entries: list[Entry] = []
        for name, one in (self._file.connectors() if self._file is not None else {}).items():
            if name in self._except_for:
                continue
            try:
                entries += connector_entries(name, one.config, one.target)
            except DataException as error:
                logger.error("The stored connector %r does not come back; create it again: %s", name, error)
        with self._lock:
            self._snapshot, _ = fold(self._snapshot, _records(self._snapshot, entries))
            self._listener = listener

    def stop(self) -> None:
        """See `ConfigStore`."""

    @property
    def snapshot(self) -> ClusterConfig:
        """See `ConfigStore`."""
        return self._snapshot

    def refresh(self, timeout_s: float) -> ClusterConfig:
        """See `ConfigStore`; nobody else writes."""
        return self._snapshot

    def in_memory(self, name: str) -> None:
        """Keeps a connector out of the file from its next write on: a file of the command line is its home.

        What is stored under that name goes with that write. When the connector is deleted, a later one of that name is
        stored again.
        """
        with self._lock:
            self._in_memory.add(name)

    def write(self, entries: Sequence[Entry], *, leading: bool = False, timeout_s: float = 30.0) -> ClusterConfig:
        """See `ConfigStore`.

        Raises:
            ConnectException: The disk refused; nothing has changed.
        """
        with self._lock:
            before = self._snapshot
            after, changes = fold(before, _records(before, entries))
            names = dict.fromkeys(name for key, _ in entries if (name := _stored_name(key)) is not None)
            for name in names:
                self._store(name, before, after)
            self._in_memory -= {name for name in names if name in before.connectors and name not in after.connectors}
            self._snapshot = after
            self._listener(after, changes)
            return after

    def claim(self) -> None:
        """See `ConfigStore`; there is nobody to take it from."""

    def _store(self, name: str, before: ClusterConfig, config: ClusterConfig) -> None:
        """Makes the file say of a connector what the snapshot says."""
        connector = config.connectors.get(name)
        if connector is not None and name in self._in_memory and name in before.connectors:
            logger.info("Connector %s is one of the command line: what is changed lasts until the worker ends", name)
        if self._file is None:
            return
        if connector is None or name in self._in_memory:
            self._file.remove(name)
        else:
            given = {key: text for key, text in connector.config.items() if text is not None}
            self._file.put(name, StoredConnector(given, config.target(name)))


def _records(config: ClusterConfig, entries: Sequence[Entry]) -> list[ConfigRecord]:
    """What is written, as records behind those of a snapshot."""
    first = max(config.offset, 0)
    return [ConfigRecord(first + number, key, value) for number, (key, value) in enumerate(entries)]


def _stored_name(key: str) -> str | None:
    """The connector that a record is about, if it is one of those that outlive the worker."""
    for prefix in ("target-state-", "connector-"):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return None
