"""The interfaces of the stores of offsets, configurations and states, for the worker and the herder.

Main types: `OffsetStore`, `TransactionalOffsetStore`, `ConfigStore`, `StatusStore`; `RecordLog` is the topic under the
stores of a cluster. The file, memory and topic stores implement `OffsetStore`; `penstock.stores.offsets` puts Kafka
Connect's JSON keys and values on top of it. An offset store does not interpret keys and values, except that keys which
are equal as JSON are one key.

Thread: implementations are called from many threads at once and synchronise themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from penstock.model import ConnectorStatus, ConnectorTaskId, TaskStatus
from penstock.model.cluster_config import Change, ClusterConfig, Entry

if TYPE_CHECKING:
    # Imports the Kafka client, which a standalone worker need not load.
    from penstock.kafka.topic_log.clients import LogRecord

ConfigListener: TypeAlias = Callable[[ClusterConfig, Sequence[Change]], None]


@runtime_checkable
class OffsetStore(Protocol):
    """A durable map from key bytes to value bytes, shared by all source tasks of a worker.

    A JSON key is found, written and removed in any spelling; it stays stored in its first spelling.

    Thread: any; every method may be called concurrently after `start` returned.
    Source: org.apache.kafka.connect.storage.OffsetBackingStore.
    """

    def start(self) -> None:
        """Opens the store and reads it to its end, so that `get` returns the committed offsets.

        Raises:
            OffsetStoreException: the stored data cannot be read, or another worker holds the store.
        """

    def stop(self) -> None:
        """Releases the resources of `start`. Safe to call twice, and after a failed `start`."""

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        """Reads the newest committed value of each key.

        Args:
            keys: key bytes.
            timeout_s: the longest wait, None for the store's own limit.

        Returns:
            One entry for each given key; None for a key without a value.

        Raises:
            OffsetStoreException: the read failed or took too long, or the store is stopped.
        """

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        """Writes all entries; durable on return. None removes a key.

        Args:
            entries: key bytes to value bytes or None.
            timeout_s: the longest wait, None for the store's own limit.

        Raises:
            OffsetStoreException: the write failed or took too long; the entries may be stored.
        """

    def entries(self) -> dict[bytes, bytes]:
        """A copy of all live entries, for listing and resetting the offsets of a connector.

        Raises:
            OffsetStoreException: as for `get`.
        """


class TransactionalOffsetStore(OffsetStore, Protocol):
    """An offset store whose entries a caller may write in its own transactions."""

    @property
    def topic(self) -> str:
        """The topic of the records."""

    def records(
        self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """Returns the records for these entries; first removes keys from other topics in which they must not remain.

        Raises:
            OffsetStoreException: a key could not be removed in time.
        """

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Called when the transaction is committed: copies entries that are also stored elsewhere. Does not wait."""


class ConfigStore(Protocol):
    """The store of the configuration: a snapshot that grows record by record, the same on every worker.

    Thread: any, except the listener's own, which must not wait for the store.
    Source: org.apache.kafka.connect.storage.ConfigBackingStore.
    """

    def start(self, listener: ConfigListener) -> None:
        """Reads the stored records; then calls the listener for every later batch.

        Args:
            listener: Called with the new snapshot and the changes, in order, on the store's thread; not called for the
                records read at the start.

        Raises:
            KafkaException: The store cannot be read.
            ConnectException: The file cannot be read.
        """

    def stop(self) -> None:
        """Closes the store. Safe to call twice, and after a failed start."""

    @property
    def snapshot(self) -> ClusterConfig:
        """The snapshot of the records read so far; never waits."""

    def refresh(self, timeout_s: float) -> ClusterConfig:
        """Returns the snapshot with everything that is in the store now; the listener was called with it.

        Raises:
            KafkaRetriableException: It took longer.
        """

    def write(self, entries: Sequence[Entry], *, leading: bool = False, timeout_s: float = 30.0) -> ClusterConfig:
        """Writes records (see `penstock.model.cluster_config`); a crash leaves none, or some that do not count yet.

        Args:
            entries: The last one makes the earlier ones count.
            leading: True if only the leader may write them.
            timeout_s: The time limit.

        Returns:
            A snapshot that has them. The listener was called before.

        Raises:
            ProducerFencedException: This worker has not claimed the right to write, or another worker has since.
            KafkaRetriableException: It took longer; the records may still be stored.
            DataException: A key is not valid Unicode.
        """

    def claim(self) -> None:
        """Takes the leader's right to write from any other worker; no effect if the leader needs none.

        Raises:
            KafkaException: The right could not be taken.
        """


class StatusStore(Protocol):
    """The store of the states of connectors and tasks, and of the topics they use; all workers see each report.

    Thread: any.
    Source: org.apache.kafka.connect.storage.StatusBackingStore; KIP-558.
    """

    def start(self) -> None:
        """Reads the stored states.

        Raises:
            KafkaException: The store cannot be read.
        """

    def stop(self) -> None:
        """Closes the store. Safe to call twice, and after a failed start."""

    def put(self, status: ConnectorStatus | TaskStatus, *, safe: bool = False) -> None:
        """Reports the state of a connector or task; never waits.

        Args:
            status: Its state.
            safe: True to report only if no other worker has reported in a later generation of the group.
        """

    def forget(self, of: str | ConnectorTaskId) -> None:
        """Removes the state of a connector, or of one task; never waits.

        The tasks of a connector are removed one by one: their records are in other partitions, so a worker may read
        the removal of a connector after the statuses of the tasks of a new connector with its name.
        """

    def connector(self, name: str) -> ConnectorStatus | None:
        """Returns the status of a connector, or None if none was reported."""

    def tasks(self, name: str) -> list[TaskStatus]:
        """Returns the statuses of the tasks of a connector, by their numbers."""

    def names(self) -> set[str]:
        """The connectors with a stored state, their own or of a task."""

    def listen(self, callback: Callable[[str], None]) -> None:
        """Registers a function that is called with the connector's name at each change, on any thread; it must not
        wait.
        """

    def note_topics(self, connector: str, topics: Iterable[str], task: int) -> None:
        """Notes that a task has written to or read from these topics; never waits. Called for each batch."""

    def topics(self, connector: str) -> list[str]:
        """The topics that a connector has used since they were reset, sorted."""

    def reset_topics(self, connector: str) -> None:
        """Forgets these topics; the next record of a topic notes it again. Never waits."""


class RecordLog(Protocol):
    """A compacted topic: `penstock.kafka.topic_log.log.TopicLog`, or its double in tests."""

    def start(self, handle: Callable[[Sequence[LogRecord]], None], timeout_s: float = 60.0) -> None:
        """Passes the stored records to the handler, and then new records as they arrive."""

    def stop(self) -> None:
        """Closes the topic."""

    def read_to_end(self, timeout_s: float) -> None:
        """Waits until the handler has received all records that exist now."""

    def write(
        self, entries: Sequence[tuple[bytes, bytes | None]], timeout_s: float = 30.0, *, transactional: bool = False
    ) -> None:
        """Writes records; on return they are stored, and the handler has received them."""

    def write_async(
        self,
        key: bytes,
        value: bytes | None,
        done: Callable[[Exception | None], None],
        *,
        wanted: Callable[[], bool] = ...,
    ) -> None:
        """Writes one record and never waits; retries after a transient failure while ``wanted`` is true."""

    def claim(self, timeout_s: float = 30.0) -> None:
        """Takes the right to write in transactions."""
