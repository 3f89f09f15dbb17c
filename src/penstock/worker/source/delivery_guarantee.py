"""Chooses how a source task delivers, at least once or exactly once, and where its offsets are stored.

With exactly-once a task has a producer with transactions, a ``TransactionCommitter`` and an offset store of its own;
else a producer without, an ``OffsetCommitter`` and usually the worker's store. A worker has one store that all
connectors share. In a cluster a connector may have a topic of its own instead (``offsets.storage.topic``). With
exactly-once each task reads the topic that it writes, also the shared one, with its connector's clients.

Thread: the one that builds the task; of a `TransactionBeginning` the task's. Stores: any; the caller that opens one
owns it.

Source: Worker (SourceTaskBuilder, ExactlyOnceSourceTaskBuilder, offsetStoreForRegularSourceTask,
offsetStoreForExactlyOnceSourceTask, offsetStoreForRegularSourceConnector) and ExactlyOnceWorkerSourceTask
(initializeAndStart, preProducerCheck, postProducerCheck) of Kafka Connect; KIP-618.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from penstock.api import FrameSourceTask, SampleWindow, SourceTask, TransactionBoundary
from penstock.errors import KafkaRetriableException
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.client import (
    admin_client_id,
    admin_settings,
    producer_settings,
    source_producer_id,
    task_transactional_id,
)
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.settings.values import items
from penstock.kafka.topic_log.internal_topics import InternalTopic, connector_offset_log, on_producers_cluster
from penstock.kafka.topic_log.log import MadeLog
from penstock.model import ConnectorTaskId
from penstock.settings import SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.stores.interface import OffsetStore, TransactionalOffsetStore
from penstock.stores.offsets import MergedOffsetStore, OffsetReader, OffsetTopicStore, OffsetWriter
from penstock.telemetry import waiting_for
from penstock.threads import NoThreadException, in_thread
from penstock.worker.source.exactly_once import TransactionCommitter, TransactionSizes
from penstock.worker.source.offset_commit import (
    CommitHooks,
    Committer,
    OffsetCommitter,
    wants_batch_ends,
    wants_metadata,
)
from penstock.worker.source.transaction_boundaries import Boundaries, TransactionRequests
from penstock.worker.task.slot import TaskRequest

log = logging.getLogger(__name__)

#: With the default of ``transaction.timeout.ms``, Kafka ends an abandoned transaction a little more than a minute
#: later. Until then its records in the offsets topic hide the records after them.
_READ_S: Final = 180.0


@dataclass(frozen=True)
class OffsetsPlace:
    """The offsets topic of a connector whose offsets are not only in the worker's store.

    Attributes:
        is_shared: True if it is the worker's own topic, in the worker's own cluster.
    """

    topic: str
    is_shared: bool


def place_of(worker: Mapping[str, str], config: Mapping[str, str], *, exactly_once: bool) -> OffsetsPlace | None:
    """Chooses the offsets topic of a connector; None for the worker's store only.

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
    """

    def __init__(
        self, shared: OffsetStore, worker: Mapping[str, str] | None = None, *, exactly_once: bool = False
    ) -> None:
        self._shared = shared
        self._worker = worker
        self.exactly_once: Final = exactly_once and worker is not None

    def transactional_id(self, task: ConnectorTaskId) -> str:
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
        """The offsets of a connector, for one request."""
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


logger = logging.getLogger(__name__)

#: The interval at which a wait checks for a stop of the task.
_SLICE_S: Final = 0.5


@dataclass(frozen=True)
class Ownership:
    """The herder's knowledge of a task's owner. Both calls may block for some seconds.

    Attributes:
        confirm: Raises ConnectException if the task has a newer configuration, or belongs to another worker.
        confirm_owner: True if the group has confirmed after a time (monotonic seconds) that this worker owns the task.
        again: True if the task has ended by itself before, so that another worker may own it by now.
    """

    confirm: Callable[[], None] = lambda: None
    confirm_owner: Callable[[float], bool] = lambda since_s: True
    again: bool = False


class TransactionBeginning:
    """Takes the transactional id of one task, but never from its rightful owner. Invariant 7.

    Before a task starts the herder has ended the producers of former tasks. Then an instance that replaces one that
    ended by itself waits until the worker has heard that it still owns the task; a task that is to stop takes nothing;
    the id is taken, which fences older instances of the same task; the herder confirms that nothing has changed.
    """

    def __init__(self, owner: str, producer: TransactionalProducer, ownership: Ownership) -> None:
        self._owner = owner
        self._producer = producer
        self._ownership = ownership

    def __call__(self, stopping: threading.Event) -> bool:
        """Blocks until the producer has the id; False when `stopping` was set before.

        Raises:
            ConnectException: The task does not belong to this worker any more.
            KafkaException: Kafka denies the use of the id, or all access.
        """
        if self._ownership.again:
            self._await_owner(stopping)
        while not stopping.is_set():
            try:
                with waiting_for("broker"):
                    self._producer.init_transactions(_SLICE_S)
            except KafkaRetriableException as error:
                logger.debug("Task %s waits for its transactional id: %s", self._owner, error)
            else:
                self._ownership.confirm()
                return True
        return False

    @waiting_for("ownership")
    def _await_owner(self, stopping: threading.Event) -> None:
        """Wait for word that the task is this worker's: taking its id would end a successor on another worker.

        Where it is another worker's, the herder will hear of that, and stop it.
        """
        since_s = time.monotonic()
        while not stopping.is_set() and not self._ownership.confirm_owner(since_s):
            stopping.wait(_SLICE_S)


class SourceCommits:
    """Makes the producer, committer and offset store of one task, for its way of delivery."""

    def __init__(
        self,
        worker: WorkerSettings,
        offsets: SourceOffsets,
        settings: SourceSettings,
        window: SampleWindow,
        probe: Callable[[str], None],
    ) -> None:
        self._worker = worker
        self._offsets = offsets
        self._settings = settings
        self._window = window
        self._probe = probe
        self._boundary = settings.transaction_boundary

    def producer(self, task_id: ConnectorTaskId, task: SourceTask) -> ColumnProducer:
        client = producer_settings(
            self._worker.raw,
            self._settings.raw,
            client_id=source_producer_id(*task_id),
            transactional_id=self._offsets.transactional_id(task_id) if self._offsets.exactly_once else None,
        )
        client.log_unused(logger)
        make = TransactionalProducer if self._offsets.exactly_once else ColumnProducer
        return make(
            ColumnSettings.of(client),
            name=str(task_id),
            connector=task_id.connector,
            task=task_id.task,
            each_row=wants_metadata(task),
            batch_ends=wants_batch_ends(task),
            stops_at_failure=not self._settings.errors_tolerance_all,
        )

    def committer(
        self, request: TaskRequest, producer: ColumnProducer, hooks: CommitHooks
    ) -> tuple[OffsetStore, Committer]:
        """The committer of a task, and the store of its offsets, which is not started yet."""
        if isinstance(producer, TransactionalProducer):
            return self._transactions(request, producer, hooks)
        store = self._offsets.of_task(request.id, self._settings.raw)
        return store, OffsetCommitter(
            hooks,
            OffsetWriter(store, request.id.connector),
            interval_s=self._worker.offset_flush_interval_ms / 1000,
            timeout_s=self._worker.offset_flush_timeout_ms / 1000,
            clock=time.monotonic,
            probe=self._probe,
            open_store=store.start,
        )

    def requests(self, task_id: ConnectorTaskId, task: SourceTask) -> TransactionRequests | None:
        """The transaction requests of the task; None unless ``transaction.boundary=connector``."""
        if not self._offsets.exactly_once or self._boundary is not TransactionBoundary.CONNECTOR:
            return None
        return TransactionRequests(str(task_id), frames=isinstance(task, FrameSourceTask))

    def _transactions(
        self, request: TaskRequest, producer: TransactionalProducer, hooks: CommitHooks
    ) -> tuple[OffsetStore, Committer]:
        store = self._offsets.of_transactions(request.id, self._settings.raw)
        interval_ms = self._settings.transaction_boundary_interval_ms
        ownership = Ownership(request.confirm, request.confirm_owner, request.again)
        return store, TransactionCommitter(
            request.id,
            hooks,
            producer=producer,
            offsets=store,
            start=TransactionBeginning(str(request.id), producer, ownership),
            boundaries=Boundaries(
                self._boundary,
                (self._worker.offset_flush_interval_ms if interval_ms is None else interval_ms) / 1000,
                producer.transaction_timeout_s,
                self._worker.batch_max_records,
                time.monotonic(),
            ),
            sizes=TransactionSizes(self._window, time.monotonic),
            clock=time.monotonic,
            probe=self._probe,
        )
