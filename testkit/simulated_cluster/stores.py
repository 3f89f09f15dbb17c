"""The topics of a simulated cluster, and each worker's view of them.

Main types: ``ConfigLog``, the config topic; ``LogConfigStore``, how one worker reads and writes it; ``SharedStatuses``.

Thread: that of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import KafkaRetriableException, ProducerFencedException
from penstock.model import ConnectorTaskId
from penstock.model.cluster_config import Change, ClusterConfig, ConfigRecord, Entry, fold
from penstock.stores.status import LocalStatusStore
from testkit.simulated_cluster.clock import NodeLoop, VirtualLoop

Listener = Callable[[ClusterConfig, Sequence[Change]], None]


class ConfigLog:
    """The config topic.

    Attributes:
        records: All of them.
        leader: Who may write as the leader; the last one that claimed it.
    """

    def __init__(self) -> None:
        self.records: list[ConfigRecord] = []
        self.readers: list[LogConfigStore] = []
        self.leader: object = None

    def fold(self) -> ClusterConfig:
        """Returns the configuration that all records give."""
        return fold(ClusterConfig(), self.records)[0]

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes records, and lets everybody know."""
        for key, value in entries:
            self.records.append(ConfigRecord(len(self.records), key, value))
            for reader in self.readers:
                reader.notice(len(self.records))


class LogConfigStore:
    """One worker's view of the config topic.

    Args:
        log: The topic.
        loop: The clock.
        node_loop: The worker's thread.
        delay_s: How long it takes until this worker has read what was written.
        fencing: Whether only the last one that claimed it may write as the leader.

    Attributes:
        readable: Whether the topic can be read now.
    """

    def __init__(
        self,
        log: ConfigLog,
        loop: VirtualLoop,
        node_loop: NodeLoop,
        delay_s: Callable[[], float],
        *,
        fencing: bool = False,
    ) -> None:
        self._log = log
        self._loop = loop
        self._node_loop = node_loop
        self._delay_s = delay_s
        self._fencing = fencing
        self._read = 0
        self._listener: Listener = lambda config, changes: None
        self.snapshot = ClusterConfig()
        self.readable = True
        log.readers.append(self)

    def start(self, listener: Listener) -> None:
        """See ``ConfigStore``."""
        self._catch_up()
        self._listener = listener

    def notice(self, end: int | None = None) -> None:
        """Something was written: it is read in a moment, up to there; what was written with it, perhaps later."""
        self._loop.call_later(self._delay_s(), self._node_loop.post, lambda: self._catch_up(end))

    def refresh(self, timeout_s: float) -> ClusterConfig:
        """See ``ConfigStore``."""
        if not self.readable:
            raise KafkaRetriableException("the config topic cannot be read")
        self._catch_up()
        return self.snapshot

    def write(self, entries: Sequence[Entry], *, leading: bool = False, timeout_s: float = 30) -> ClusterConfig:
        """See ``ConfigStore``."""
        if leading and self._fencing and self._log.leader is not self:
            raise ProducerFencedException("another leader writes")
        self._log.append(entries)
        return self.refresh(timeout_s)

    def claim(self) -> None:
        """See ``ConfigStore``."""
        self._log.leader = self

    def stop(self) -> None:
        """See ``ConfigStore``."""

    def _catch_up(self, end: int | None = None) -> None:
        if not self.readable:
            return
        new = self._log.records[self._read : end]
        if new:
            self._read += len(new)
            self.snapshot, changes = fold(self.snapshot, new)
            self._listener(self.snapshot, changes)


class SharedStatuses(LocalStatusStore):
    """The status topic: what anybody writes everybody sees at once.

    Attributes:
        forgotten: What was forgotten, also where nothing was known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[str | ConnectorTaskId] = []

    def forget(self, of: str | ConnectorTaskId) -> None:
        """See ``StatusStore``."""
        self.forgotten.append(of)
        super().forget(of)
