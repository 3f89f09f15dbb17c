"""The contexts that tasks and connectors have in a test: the worker's answers, from memory.

Main types: ``KitSourceContext``, ``KitSinkContext``, ``KitSourceConnectorContext``, ``KitSinkConnectorContext``; and
``ShortWaits``, a ``stopping`` whose waits are short.

Owning thread: the test's; ``stopping`` and what connectors ask for may be used from any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from penstock.api import (
    ConnectorContext,
    ErrantRecordReporter,
    OffsetStorageReader,
    PluginMetrics,
    Rows,
    SinkConnectorContext,
    SinkFrame,
    SinkRecord,
    SourceConnectorContext,
    SourceTaskContext,
    TopicPartition,
)
from penstock.api.frames.frame import row_numbers
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.pipeline.batch.sink.frames import records_of_rows
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader
from penstock.worker.sink.context import WorkerSinkTaskContext
from penstock.worker.task.plugin_metrics import InstanceMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The longest wait, in seconds.
_MOMENT_S: Final = 0.002

Spark = Callable[[], "SparkSession"]


class ShortWaits(threading.Event):
    """An event whose waits end after a moment: the seconds that a source waits for data take no time in a test.

    Attributes:
        short: False: waits take as long as they say.
    """

    def __init__(self) -> None:
        super().__init__()
        self.short = True

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, for a moment at most."""
        if timeout is None:
            raise AssertionError("The task waits on context.stopping without a limit; poll has to return now and then")
        return super().wait(min(timeout, _MOMENT_S) if self.short else timeout)


class KitSourceContext(SourceTaskContext):
    """The context of a source task.

    Args:
        name: The connector's.
        props: What the task was given.
        store: The offsets that were committed.
        spark: Gives a session; None: there is none.

    Attributes:
        waits: The event ``stopping``.
        moved: The positions that the task has moved without records, since they were looked at last.
    """

    def __init__(
        self,
        name: str,
        props: Mapping[str, str],
        store: MemoryOffsetStore,
        spark: Spark | None,
    ) -> None:
        self.moved: list[tuple[Mapping[str, object], Mapping[str, object] | None]] = []
        self.stopping = self.waits = ShortWaits()
        self._props = dict(props)
        self._reader = OffsetReader(store, name)
        self._metrics = InstanceMetrics.unread().plugin()
        self._spark = spark

    def configs(self) -> dict[str, str]:
        """See ``SourceTaskContext``."""
        return dict(self._props)

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceTaskContext``."""
        return self._reader

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """See ``SourceTaskContext``."""
        self.moved.append((partition, offset))

    def plugin_metrics(self) -> PluginMetrics:
        """See ``SourceTaskContext``."""
        return self._metrics

    def spark(self) -> SparkSession:
        """See ``SourceTaskContext``."""
        return super().spark() if self._spark is None else self._spark()

    def end(self) -> None:
        """The task has ended: it can read no offsets any more."""
        self.stopping.set()
        self._reader.close()


class Reports(ErrantRecordReporter):
    """Keeps what a sink task reports.

    Args:
        tolerant: False: a report fails the task, as with ``errors.tolerance=none``.

    Attributes:
        found: The records, and their errors as text.
    """

    def __init__(self, *, tolerant: bool) -> None:
        self._tolerant = tolerant
        self.found: list[tuple[SinkRecord, str]] = []

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """See ``ErrantRecordReporter``."""
        self.found.append((record, f"{type(error).__name__}: {error}"))
        if not self._tolerant:
            raise ConnectException("Tolerance exceeded in error handler") from error
        done: Future[None] = Future()
        done.set_result(None)
        return done


class KitSinkContext(WorkerSinkTaskContext):
    """The context of a sink task: the worker's own, with reports that a test can read.

    Args:
        task: The task, for errors.
        props: What it was given.
        assignment: Its partitions now.
        reports: Where its reports go.
        spark: Gives a session; None: there is none.
    """

    def __init__(
        self,
        task: str,
        props: Mapping[str, str],
        assignment: Callable[[], frozenset[TopicPartition]],
        reports: Reports,
        spark: Spark | None = None,
    ) -> None:
        super().__init__(
            task, read_config=lambda: props, assignment=assignment, reporter=reports, wake=lambda: None, spark=spark
        )
        self._reports = reports

    def report(self, frame: SinkFrame, rows: Rows, error: BaseException) -> Future[None]:
        """See ``SinkTaskContext``."""
        done: Future[None] = Future()
        done.set_result(None)
        for record in records_of_rows(frame, row_numbers(rows, frame.num_rows)):
            done = self._reports.report(record, error)
        return done


class _ConnectorContext(ConnectorContext):
    """The part that the contexts of both kinds of connectors share."""

    def __init__(self) -> None:
        self.wants_tasks = threading.Event()
        self.error: BaseException | None = None
        self.closed = False
        self._metrics = InstanceMetrics.unread().plugin()

    def request_task_reconfiguration(self) -> None:
        """See ``ConnectorContext``."""
        self._check_open()
        self.wants_tasks.set()

    def raise_error(self, error: BaseException) -> None:
        """See ``ConnectorContext``."""
        self._check_open()
        self.error = self.error or error

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        """See ``ConnectorContext``. Tasks of a test are not stuck: it has no effect."""
        self._check_open()

    def plugin_metrics(self) -> PluginMetrics:
        """See ``ConnectorContext``."""
        return self._metrics

    def _check_open(self) -> None:
        if self.closed:
            raise IllegalWorkerStateException("The connector was shut down")


class KitSourceConnectorContext(_ConnectorContext, SourceConnectorContext):
    """The context of a source connector.

    Args:
        name: The connector's.
        store: The offsets that were committed.
    """

    def __init__(self, name: str, store: MemoryOffsetStore) -> None:
        super().__init__()
        self._reader = OffsetReader(store, name)

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceConnectorContext``."""
        return self._reader


class KitSinkConnectorContext(_ConnectorContext, SinkConnectorContext):
    """The context of a sink connector."""
