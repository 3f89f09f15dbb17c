"""The choice of the stores for the offsets of source connectors, which is made only here.

Main types: ``SourceOffsets``, which has a store for each connector and task; ``OffsetsPlace`` with ``place_of``, the
decision; ``ConnectorOffsetReader``, the reader for connectors. A worker has one store that all connectors share. In a
cluster a connector may have a topic of its own instead (``offsets.storage.topic``). With exactly-once each task reads
the topic that it writes, also the shared one, with its connector's clients.

Threads: any; the caller that opens a store owns it.
Source: org.apache.kafka.connect.runtime.Worker (offsetStoreForRegularSourceTask,
offsetStoreForExactlyOnceSourceTask, offsetStoreForRegularSourceConnector); KIP-618.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from penstock.kafka.settings.client import admin_client_id, admin_settings, task_transactional_id
from penstock.kafka.settings.values import items
from penstock.kafka.topic_log.internal_topics import InternalTopic, MadeLog
from penstock.kafka.topic_log.settings import connector_offset_log, on_producers_cluster
from penstock.model import ConnectorTaskId
from penstock.stores.interface import OffsetStore, TransactionalOffsetStore
from penstock.stores.offset_topic import MergedOffsetStore, OffsetTopicStore
from penstock.stores.offsets import OffsetReader
from penstock.threads import NoThreadException, in_thread

log = logging.getLogger(__name__)

#: With the default of ``transaction.timeout.ms``, Kafka ends an abandoned transaction a little more than a minute
#: later. Until then its records in the offsets topic hide the records after them.
_READ_S: Final = 180.0


@dataclass(frozen=True)
class OffsetsPlace:
    """The offsets topic of a connector whose offsets are not only in the worker's store.

    Attributes:
        topic: The topic.
        is_shared: True if it is the worker's own topic, in the worker's own cluster.
    """

    topic: str
    is_shared: bool


def place_of(worker: Mapping[str, str], config: Mapping[str, str], *, exactly_once: bool) -> OffsetsPlace | None:
    """Chooses the offsets topic of a connector; None for the worker's store only.

    Args:
        worker: The worker's settings.
        config: The connector's, placeholders resolved.
        exactly_once: True if its tasks write offsets in transactions.

    >>> worker = {"bootstrap.servers": "a:9092", "offset.storage.topic": "offsets"}
    >>> place_of(worker, {}, exactly_once=False) is None
    True
    >>> place_of(worker, {}, exactly_once=True)
    OffsetsPlace(topic='offsets', is_shared=True)
    >>> place_of(worker, {"offsets.storage.topic": "mine"}, exactly_once=False)
    OffsetsPlace(topic='mine', is_shared=False)
    """
    own = (config.get("offsets.storage.topic") or "").strip()
    if not own and not exactly_once:
        return None
    shared = worker.get("offset.storage.topic", "")
    topic, workers = own or shared, worker.get("bootstrap.servers", "")
    written = config.get("producer.override.bootstrap.servers", worker.get("producer.bootstrap.servers", workers))
    return OffsetsPlace(topic, topic == shared and _servers(written) == _servers(workers))


def _servers(text: str) -> frozenset[str]:
    return frozenset(items(text))


class SourceOffsets:
    """The stores of a worker's connectors.

    Args:
        shared: The store that all connectors share; it is running.
        worker: The settings of a worker of a cluster; None for a standalone one, whose connectors have no other.
        exactly_once: True if tasks write their offsets in transactions.
    """

    def __init__(
        self, shared: OffsetStore, worker: Mapping[str, str] | None = None, *, exactly_once: bool = False
    ) -> None:
        self._shared = shared
        self._worker = worker
        self.exactly_once: Final = exactly_once and worker is not None

    def transactional_id(self, task: ConnectorTaskId) -> str:
        """The transactional id of a task's producer."""
        assert self._worker is not None
        return task_transactional_id(self._worker.get("group.id", "connect"), *task)

    def of_connector(self, connector: str, config: Mapping[str, str]) -> OffsetStore:
        """The offsets of a connector, for itself and for requests. To be started and stopped."""
        place = self._place(config)
        if place is None or place.is_shared:
            return _Borrowed(self._shared)
        return self._merged(self._own(place, config, connector))

    def of_task(self, task: ConnectorTaskId, config: Mapping[str, str]) -> OffsetStore:
        """The offsets of a task that delivers at least once. To be started and stopped."""
        place = self._place(config)
        if place is None:
            return _Borrowed(self._shared)
        own = self._own(place, config, *task)
        return own if place.is_shared else self._merged(own)

    def of_transactions(self, task: ConnectorTaskId, config: Mapping[str, str]) -> TransactionalOffsetStore:
        """The offsets of a task that delivers exactly once; its own producer writes them."""
        place = self._place(config)
        assert place is not None
        own = self._own(place, config, *task, read_only=True)
        return own if place.is_shared else self._merged(own)

    @contextmanager
    def opened(self, connector: str, config: Mapping[str, str]) -> Iterator[OffsetStore]:
        """The offsets of a connector, for one request.

        Raises:
            OffsetStoreException: they cannot be read.
        """
        store = self.of_connector(connector, config)
        store.start()
        try:
            yield store
        finally:
            store.stop()

    @contextmanager
    def opened_for_change(self, connector: str, config: Mapping[str, str]) -> Iterator[TransactionalOffsetStore]:
        """The same for a change in a transaction, where tasks write in transactions."""
        with self.opened(connector, config) as store:
            changed = store.store if isinstance(store, _Borrowed) else store
            assert isinstance(changed, OffsetTopicStore | MergedOffsetStore)
            yield changed

    def _place(self, config: Mapping[str, str]) -> OffsetsPlace | None:
        return None if self._worker is None else place_of(self._worker, config, exactly_once=self.exactly_once)

    def _own(
        self,
        place: OffsetsPlace,
        config: Mapping[str, str],
        connector: str,
        task: int | None = None,
        *,
        read_only: bool = False,
    ) -> OffsetTopicStore:
        assert self._worker is not None
        given = on_producers_cluster(config)
        settings = connector_offset_log(
            self._worker, given, connector, task, transactional=self.exactly_once, read_only=read_only
        )
        admin = admin_settings(self._worker, given, client_id=admin_client_id(connector, task)).checked()
        topic = InternalTopic.of_connector(self._worker, place.topic)
        return OffsetTopicStore(MadeLog(topic, settings, admin.librdkafka), place.topic, timeout_s=_READ_S)

    def _merged(self, own: OffsetTopicStore) -> MergedOffsetStore:
        assert isinstance(self._shared, OffsetTopicStore)
        return MergedOffsetStore(own, self._shared)


class _Borrowed:
    """The worker's own store; ``stop`` does not stop it."""

    def __init__(self, store: OffsetStore) -> None:
        self.store = store
        self.get = store.get
        self.set = store.set
        self.entries = store.entries

    def start(self) -> None: ...

    def stop(self) -> None: ...


class _Lazy:
    """A store that is opened by its first read or write."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.started = False
        self._stopped = False

    def start(self) -> None: ...

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self.started:
                self._store.stop()

    def get(self, keys: Iterable[bytes], timeout_s: float | None = None) -> dict[bytes, bytes | None]:
        return self._opened().get(keys, timeout_s)

    def set(self, entries: Mapping[bytes, bytes | None], timeout_s: float | None = None) -> None:
        self._opened().set(entries, timeout_s)

    def entries(self) -> dict[bytes, bytes]:
        return self._opened().entries()

    def _opened(self) -> OffsetStore:
        with self._lock:
            if not self.started and not self._stopped:
                self._store.start()
                self.started = True
        return self._store


class ConnectorOffsetReader(OffsetReader):
    """The reader of a connector instance; its store is opened when it is read first, and closed with the reader.

    Args:
        make_store: Makes the store.
        connector: The connector's name.

    Thread: any.
    """

    def __init__(self, make_store: Callable[[], OffsetStore], connector: str) -> None:
        self._lazy = _Lazy(make_store())
        self._name = connector
        super().__init__(self._lazy, connector)

    def close(self) -> None:
        """See ``OffsetReader``; does not wait for the end of the store's clients."""
        super().close()
        if not self._lazy.started:
            self._lazy.stop()
            return
        try:
            in_thread(f"close-offsets-{self._name}", self._lazy.stop)
        except NoThreadException:
            self._lazy.stop()
