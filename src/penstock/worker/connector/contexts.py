"""The contexts that connectors get from the worker.

Main types: ``RunnerSourceContext``, ``RunnerSinkContext``, and ``ConnectorRequests`` (their requests to the herder).
Any thread may use a context; each is closed once, by its ``ConnectorRunner``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from penstock.api import OffsetStorageReader, PluginMetrics, SinkConnectorContext, SourceConnectorContext
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.worker.task.plugin_metrics import InstanceMetrics


class ConnectorRequests(Protocol):
    """The requests that a connector may make to the herder. Each call queues the work and returns at once."""

    def request_task_reconfiguration(self, connector: str) -> None:
        """Ask the connector for its task configurations again."""

    def restart_tasks(self, connector: str, task_ids: Sequence[int] | None) -> None:
        """Restart these tasks, or all."""


class _Calls:
    """The common calls of both contexts; open until ``close``."""

    def __init__(
        self,
        connector: str,
        requests: ConnectorRequests,
        raise_error: Callable[[BaseException], None],
        metrics: InstanceMetrics,
    ) -> None:
        self.connector = connector
        self._requests = requests
        self._raise_error = raise_error
        self._metrics = metrics
        self._plugin_metrics = metrics.plugin()
        self._closed = threading.Event()

    def check_open(self) -> None:
        if self._closed.is_set():
            raise IllegalWorkerStateException(f"the context of connector {self.connector} is closed: it was shut down")

    def request_task_reconfiguration(self) -> None:
        self.check_open()
        self._requests.request_task_reconfiguration(self.connector)

    def raise_error(self, error: BaseException) -> None:
        self.check_open()
        self._raise_error(error)

    def restart_tasks(self, task_ids: Iterable[int] | None) -> None:
        self.check_open()
        self._requests.restart_tasks(self.connector, None if task_ids is None else sorted(set(task_ids)))

    def plugin_metrics(self) -> PluginMetrics:
        self.check_open()
        return self._plugin_metrics

    def close(self) -> None:
        self._closed.set()
        self._metrics.close()


class RunnerSinkContext(SinkConnectorContext):
    """The context of a sink connector.

    Args:
        connector: Its name.
        requests: The herder.
        raise_error: Makes the connector FAILED.
        metrics: The metrics of this instance; closed with the context.
    """

    def __init__(
        self,
        connector: str,
        requests: ConnectorRequests,
        raise_error: Callable[[BaseException], None],
        metrics: InstanceMetrics,
    ) -> None:
        self._calls = _Calls(connector, requests, raise_error, metrics)

    def request_task_reconfiguration(self) -> None:
        """See ``ConnectorContext``."""
        self._calls.request_task_reconfiguration()

    def raise_error(self, error: BaseException) -> None:
        """See ``ConnectorContext``."""
        self._calls.raise_error(error)

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        """See ``ConnectorContext``."""
        self._calls.restart_tasks(task_ids)

    def plugin_metrics(self) -> PluginMetrics:
        """See ``ConnectorContext``."""
        return self._calls.plugin_metrics()

    def close(self) -> None:
        """Makes every later call fail and removes the connector's own metrics."""
        self._calls.close()


class RunnerSourceContext(SourceConnectorContext):
    """The context of a source connector: the above and a reader of its committed offsets."""

    def __init__(
        self,
        connector: str,
        requests: ConnectorRequests,
        raise_error: Callable[[BaseException], None],
        offsets: OffsetStorageReader,
        metrics: InstanceMetrics,
    ) -> None:
        self._calls = _Calls(connector, requests, raise_error, metrics)
        self._offsets = _ClosableReader(connector, offsets)

    def request_task_reconfiguration(self) -> None:
        """See ``ConnectorContext``."""
        self._calls.request_task_reconfiguration()

    def raise_error(self, error: BaseException) -> None:
        """See ``ConnectorContext``."""
        self._calls.raise_error(error)

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        """See ``ConnectorContext``."""
        self._calls.restart_tasks(task_ids)

    def plugin_metrics(self) -> PluginMetrics:
        """See ``ConnectorContext``."""
        return self._calls.plugin_metrics()

    def offset_storage_reader(self) -> OffsetStorageReader:
        """See ``SourceConnectorContext``. Raises once the context is closed."""
        self._calls.check_open()
        return self._offsets

    def close(self) -> None:
        """Makes every later call fail, including calls of the offset reader, and removes the connector's own
        metrics.
        """
        self._calls.close()
        self._offsets.close()


class _ClosableReader(OffsetStorageReader):
    def __init__(self, connector: str, reader: OffsetStorageReader) -> None:
        self._connector = connector
        self._reader = reader
        self._closed = threading.Event()

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        self._check_open()
        return self._reader.offset(partition)

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        self._check_open()
        return self._reader.offsets(partitions)

    def close(self) -> None:
        self._closed.set()
        close = getattr(self._reader, "close", None)
        if close is not None:
            close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ConnectException(f"the offset reader of connector {self._connector} is closed: it was shut down")
