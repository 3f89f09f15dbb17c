"""Chooses how a source task delivers, at least once or exactly once, and builds the parts for it.

Main type: ``SourceCommits``. With exactly-once a task has a producer with transactions, a ``TransactionCommitter`` and
an offset store of its own; else a producer without, an ``OffsetCommitter`` and usually the worker's store.

`TransactionBeginning`, a `TransactionStart`, takes a transactional id, but never from its rightful owner; `Ownership`
reports the owner that the herder knows. Before a task starts the herder has ended the producers of former tasks. Then
`TransactionBeginning` proceeds in this order: an instance that replaces one that ended by itself waits until the worker
has heard that it still owns the task; a task that is to stop takes nothing; the id is taken, which fences older
instances of the same task; the herder confirms that nothing has changed. Invariant 7.

Thread: the one that builds the task; of a `TransactionBeginning` the task's.
Source: Worker (SourceTaskBuilder, ExactlyOnceSourceTaskBuilder) and ExactlyOnceWorkerSourceTask (initializeAndStart,
preProducerCheck, postProducerCheck) of Kafka Connect; KIP-618.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.api import FrameSourceTask, SampleWindow, SourceTask, TransactionBoundary
from penstock.errors import KafkaRetriableException
from penstock.kafka.producer.column_producer import ColumnProducer
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.client import producer_settings, source_producer_id
from penstock.kafka.settings.producer import ColumnSettings
from penstock.model import ConnectorTaskId
from penstock.settings import SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.stores.interface import OffsetStore
from penstock.stores.offsets import OffsetWriter
from penstock.telemetry import waiting_for
from penstock.worker.source.exactly_once import (
    TransactionCommitter,
    TransactionProducer,
    TransactionSizes,
)
from penstock.worker.source.offset_commit import (
    CommitHooks,
    Committer,
    OffsetCommitter,
    wants_batch_ends,
    wants_metadata,
)
from penstock.worker.source.offset_stores import SourceOffsets
from penstock.worker.source.transaction_boundaries import Boundaries, TransactionRequests
from penstock.worker.task.slot import (
    TaskRequest,
)

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
    """Takes the transactional id of one task.

    Args:
        owner: The task, for messages.
        producer: Its producer, which has no id yet.
        ownership: The owner of the task, as the herder knows it.
    """

    def __init__(self, owner: str, producer: TransactionProducer, ownership: Ownership) -> None:
        self._owner = owner
        self._producer = producer
        self._ownership = ownership

    def __call__(self, stopping: threading.Event) -> bool:
        """See `TransactionStart`.

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
    """Makes the producer, committer and offset store of one task, for its way of delivery.

    Args:
        worker: The worker's settings.
        offsets: The stores of source offsets, and whether tasks write them in transactions.
        settings: The connector's.
        window: The time window of the metrics of transaction sizes.
        probe: Called at the named points of the data path, for kill tests.
    """

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
        """The producer of a task.

        Raises:
            ConfigException: a setting of it cannot be used.
        """
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
