"""Contexts of connectors' tasks, offsets, clocks and receivers of deliveries that tests set and read.

Main types: `ManualClock`, `StoredOffsets`, `FakeSourceContext` and `FakeSourceConnectorContext`,
`ReportingSinkContext`, `Deliveries`. A task that is to
be run as a worker runs it has the contexts of the authors' kit (``penstock.testing``). Thread: the test's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from penstock.api import (
    OffsetStorageReader,
    RecordMetadata,
    SinkFrame,
    SourceConnectorContext,
    SourceTaskContext,
    TransactionContext,
)
from penstock.errors import ConnectException
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.worker.sink.context import WorkerSinkTaskContext

Offset = Mapping[str, Any]


class ManualClock:
    """A clock that only the test moves.

    Args:
        now: the first answer, in the unit of whoever asks.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> Any:
        return self.now


class StoredOffsets(OffsetStorageReader):
    """Committed offsets.

    Args:
        find: the offset of a partition, or the one of all partitions.
    """

    def __init__(self, find: Callable[[Mapping[str, Any]], Any] | Offset | None = None) -> None:
        self._find = find if callable(find) else lambda _: find

    def offset(self, partition: Mapping[str, object]) -> dict[str, Any] | None:
        """See ``OffsetStorageReader``."""
        found = self._find(partition)
        return None if found is None else dict(found)

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, Any] | None]:
        """See ``OffsetStorageReader``."""
        return [self.offset(one) for one in partitions]


class FakeSourceContext(SourceTaskContext):
    """The context of a source task.

    Args:
        reader: its offsets.
        requests: its transactions; None without exactly once.

    Attributes:
        moved: the positions that the task has moved without records.
        told: its progress, done and total.
    """

    def __init__(self, reader: OffsetStorageReader, requests: TransactionContext | None = None) -> None:
        self.stopping = threading.Event()
        self.moved: list[tuple[Mapping[str, object], Mapping[str, object] | None]] = []
        self.told: list[tuple[float | None, float | None]] = []
        self._reader, self._requests = reader, requests

    def configs(self) -> dict[str, str]:
        """See ``SourceTaskContext``."""
        return {}

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceTaskContext``."""
        return self._reader

    def transaction_context(self) -> TransactionContext | None:
        """See ``SourceTaskContext``."""
        return self._requests

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        """See ``SourceTaskContext``."""
        self.moved.append((partition, offset))

    def progress(self, done: float | None, total: float | None = None, unit: str = "records") -> None:
        """See ``SourceTaskContext``."""
        self.told.append((done, total))


class FakeSourceConnectorContext(SourceConnectorContext):
    """The context of a source connector that fails for nothing.

    Args:
        reader: its offsets.

    Attributes:
        asked: released with each request for other tasks.
    """

    def __init__(self, reader: OffsetStorageReader) -> None:
        self.asked = threading.Semaphore(0)
        self._reader = reader

    def request_task_reconfiguration(self) -> None:
        """See ``ConnectorContext``."""
        self.asked.release()

    def raise_error(self, error: BaseException) -> None:
        """See ``ConnectorContext``."""
        raise AssertionError(error)

    def restart_tasks(self, task_ids: object = None) -> None:
        """See ``ConnectorContext``."""
        raise AssertionError(task_ids)

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceConnectorContext``."""
        return self._reader


class ReportingSinkContext(WorkerSinkTaskContext):
    """The worker's context, which keeps what is reported.

    Args:
        props: the task's settings.
        tolerant: False if a report fails the task.

    Attributes:
        reported: the offset of each row, and its error's type and text.
        closing: the answer of ``is_closing``.
    """

    def __init__(self, props: Mapping[str, str] | None = None, tolerant: bool = True) -> None:
        super().__init__(
            "s task 0", read_config=lambda: dict(props or {}), assignment=frozenset, reporter=None, wake=lambda: None
        )
        self.tolerant = tolerant
        self.closing: Any = False
        self.reported: list[tuple[int, str]] = []

    @property
    def is_closing(self) -> Any:
        """See ``SinkTaskContext``."""
        return self.closing

    def report(self, frame: SinkFrame, rows: Any, error: BaseException) -> Any:
        """See ``SinkTaskContext``."""
        self.reported += [
            (one, f"{type(error).__name__}: {error}") for one in frame.take(rows).origin["offset"].to_pylist()
        ]
        if not self.tolerant:
            raise ConnectException("Tolerance exceeded") from error
        stored: Future[None] = Future()
        stored.set_result(None)
        return stored


class Deliveries:
    """Notes what a producer has delivered.

    Attributes:
        rows: of all deliveries, failed ones included.
        failures: those that failed.
        places: where rows are, as far as that was asked for.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.failures: list[FailedDelivery] = []
        self.places: dict[int, RecordMetadata] = {}

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        """See ``penstock.kafka.producer``."""
        self.rows += range(first, end)
        self.failures += failures
        self.places.update(metadata or {})
