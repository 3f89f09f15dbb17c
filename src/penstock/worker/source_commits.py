"""Chooses how a source task delivers, at least once or exactly once, and makes what that needs.

Main type: ``SourceCommits``. With exactly-once a task has a producer with transactions, a ``TransactionCommitter`` and
an offset store of its own; else a producer without, an ``OffsetCommitter`` and usually the worker's store.

Thread: the one that builds the task.
Source: org.apache.kafka.connect.runtime.Worker (SourceTaskBuilder, ExactlyOnceSourceTaskBuilder); KIP-618.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.api import FrameSourceTask, SampleWindow, SourceTask, TransactionBoundary
from penstock.kafka.client_settings import producer_settings, source_producer_id
from penstock.kafka.column_producer import ColumnProducer
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.transactional_producer import TransactionalProducer
from penstock.model import ConnectorTaskId
from penstock.settings import SourceSettings
from penstock.settings.worker import WorkerSettings
from penstock.stores.interface import OffsetStore
from penstock.stores.offsets import OffsetWriter
from penstock.worker.boundaries import Boundaries
from penstock.worker.commit_hooks import CommitHooks, wants_metadata
from penstock.worker.committer import Committer
from penstock.worker.offset_commit import OffsetCommitter
from penstock.worker.source_offsets import SourceOffsets
from penstock.worker.transaction_commit import TransactionCommitter
from penstock.worker.transaction_parts import TransactionParts, TransactionSizes
from penstock.worker.transaction_requests import TransactionRequests
from penstock.worker.transaction_start import Ownership, TransactionBeginning
from penstock.worker.worker import TaskRequest

log = logging.getLogger(__name__)


class SourceCommits:
    """Makes the producer, committer and offset store of one task, for its way of delivery.

    Args:
        worker: The worker's settings.
        offsets: Where source offsets are, and whether tasks write them in transactions.
        settings: The connector's.
        window: Over what time the sizes of transactions are looked at.
        probe: Told the named points of the data path, for kill tests.
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
        client.log_unused(log)
        make = TransactionalProducer if self._offsets.exactly_once else ColumnProducer
        return make(
            ColumnSettings.of(client),
            name=str(task_id),
            connector=task_id.connector,
            task=task_id.task,
            each_row=wants_metadata(task),
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
        parts = TransactionParts(
            request.id,
            producer,
            store,
            TransactionBeginning(str(request.id), producer, ownership),
            Boundaries(
                self._boundary,
                (self._worker.offset_flush_interval_ms if interval_ms is None else interval_ms) / 1000,
                producer.transaction_timeout_s,
                self._worker.batch_max_records,
                time.monotonic(),
            ),
            TransactionSizes(self._window, time.monotonic),
        )
        return store, TransactionCommitter(parts, hooks, clock=time.monotonic, probe=self._probe)
