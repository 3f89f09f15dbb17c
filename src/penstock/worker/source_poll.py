"""One call of a source task's ``poll``: what it may ask meanwhile, what it may return, and what its errors mean.

Main types: `Poller`, `RunnerSourceTaskContext`.

Thread: the task's, but for the context, which any thread may use.
Source: AbstractWorkerSourceTask.poll and WorkerSourceTaskContext of Kafka Connect; runtime.md section 5.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.api import (
    FrameSourceTask,
    OffsetStorageReader,
    PluginMetrics,
    SourceFrame,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
    TransactionContext,
)
from penstock.errors import ConnectException, KafkaRetriableException, RetriableException, SparkStoppedException
from penstock.pipeline.batch.frame import in_arrow
from penstock.worker.boundaries import End
from penstock.worker.source_services import SourceServices
from penstock.worker.source_stages import Polled
from penstock.worker.task_session import TaskSession
from penstock.worker.task_spec import TaskServices, TaskSpec
from penstock.worker.transaction_requests import TransactionRequests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


@dataclass
class PollCounts:
    """Plain counters; read by metrics from any thread."""

    records: int = 0
    failures: int = 0


class RunnerSourceTaskContext(SourceTaskContext):
    """The context a source task gets. Thread: any."""

    def __init__(
        self,
        spec: TaskSpec[SourceTask],
        services: TaskServices,
        source: SourceServices,
        stopping: threading.Event,
    ) -> None:
        self.stopping = stopping
        self._read_config = spec.read_config
        self._session = services.session
        self._source = source
        self._plugin_metrics = services.metrics.plugin()

    def configs(self) -> dict[str, str]:
        """See ``SourceTaskContext``."""
        return dict(self._read_config())

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceTaskContext``."""
        return self._source.offset_reader

    def transaction_context(self) -> TransactionContext | None:
        """See ``SourceTaskContext``."""
        return self._source.requests

    def plugin_metrics(self) -> PluginMetrics:
        """See ``SourceTaskContext``."""
        return self._plugin_metrics

    def spark(self) -> SparkSession:
        """See ``SourceTaskContext``."""
        return self._session.session()


class Poller:
    """Polls one task.

    Args:
        spec: The task.
        session: Spark's, as the task uses it.
        requests: What the task says of its transactions; None where it has no say.
    """

    def __init__(self, spec: TaskSpec[SourceTask], session: TaskSession, requests: TransactionRequests | None) -> None:
        self.counts = PollCounts()
        self._owner = str(spec.id)
        self._task = spec.task
        self._session = session
        self._requests = requests

    def poll(self, ended_by_stop: Callable[[], bool]) -> list[tuple[Polled, End]]:
        """What one ``poll`` has returned, cut where the task wants a transaction to end; empty for None.

        Args:
            ended_by_stop: Whether the task's ``stop`` was called, beside this ``poll``.

        Raises:
            Exception: What ends the task.
        """
        try:
            polled: object = self._task.poll()
        except SparkStoppedException:
            return []
        except Exception as error:
            if ended_by_stop():
                # What it waited on was closed under it: that is how such a task ends.
                logger.info(
                    "The poll() of task %s ended by its stop(): %s: %s", self._owner, type(error).__name__, error
                )
                return []
            if not isinstance(error, (RetriableException, KafkaRetriableException)):
                raise
            self.counts.failures += 1
            logger.warning("The task's poll() raised a retriable error and is called again: %s", error)
            return []
        found = self._checked(polled)
        if self._requests is not None:
            return self._requests.pieces(found)
        return [] if found is None else [(found, End.POLL)]

    def _checked(self, polled: object) -> Polled | None:
        """Checks the types of what was polled; None if there is nothing."""
        if polled is None:
            return None
        if isinstance(polled, SourceFrame):
            frame = in_arrow(polled)
            self.counts.records += frame.num_rows or 0
            if frame.num_rows is None:
                self._session.used()
            return frame
        if isinstance(self._task, FrameSourceTask) or not isinstance(polled, Sequence):
            wanted = "a SourceFrame" if isinstance(self._task, FrameSourceTask) else "a sequence of SourceRecords"
            raise ConnectException(
                f"poll() of {type(self._task).__name__} (task {self._owner}) must return {wanted} or None, "
                f"got {type(polled).__name__}"
            )
        strange = {kind for kind in set(map(type, polled)) if not issubclass(kind, SourceRecord)}
        if strange:
            raise ConnectException(
                f"poll() of {type(self._task).__name__} (task {self._owner}) must return SourceRecords, "
                f"found {', '.join(sorted(kind.__name__ for kind in strange))} among them"
            )
        self.counts.records += len(polled)
        return polled or None
