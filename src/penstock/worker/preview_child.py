"""Reads the first records of a source connector in a process of its own, so that one that blocks can be ended.

Main function: ``answer``, run in a process that ``preview_server`` has forked. It pickles what it finds onto a pipe:
``("records", list)``, ``("frame", table and schemas)``, ``("error", text)``. Nothing is committed.

Thread: the process's main thread; the worker's side is ``penstock.worker.preview_source``.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from penstock.api import OffsetStorageReader, PluginMetrics, SourceConnectorContext, SourceFrame, SourceTaskContext
from penstock.errors import RetriableException
from penstock.worker.plugin_metrics import InstanceMetrics

_PAUSE_S = 0.05


class _NoOffsets(OffsetStorageReader):
    """A preview begins at the beginning."""

    def offset(self, partition: Mapping[str, object]) -> dict[str, object] | None:
        return None

    def offsets(self, partitions: Sequence[Mapping[str, object]]) -> list[dict[str, object] | None]:
        return [None for _ in partitions]


class _ConnectorContext(SourceConnectorContext):
    def __init__(self) -> None:
        self._plugin_metrics = InstanceMetrics.unread().plugin()

    def plugin_metrics(self) -> PluginMetrics:
        return self._plugin_metrics

    def offset_storage_reader(self) -> OffsetStorageReader:
        return _NoOffsets()

    def request_task_reconfiguration(self) -> None:
        """There is one look, so nothing to configure again."""

    def raise_error(self, error: BaseException) -> None:
        raise error

    def restart_tasks(self, task_ids: Iterable[int] | None = None) -> None:
        """There is one task, once."""


class _TaskContext(SourceTaskContext):
    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self.stopping = threading.Event()
        self._plugin_metrics = InstanceMetrics.unread().plugin()

    def configs(self) -> dict[str, str]:
        return dict(self._config)

    def plugin_metrics(self) -> PluginMetrics:
        return self._plugin_metrics

    def offset_storage_reader(self) -> OffsetStorageReader:
        return _NoOffsets()


def answer(request: Mapping[str, Any], answers: IO[bytes]) -> None:
    """Reads until the limit; the worker has the process ended when the time is over.

    Args:
        request: Class and settings of the connector, limits, and where modules are.
        answers: Where what was read goes.
    """
    sys.path[:] = request["path"]
    try:
        _read(request, answers)
    except BaseException as error:
        _send(answers, ("error", f"{type(error).__name__}: {error}"))


def _read(request: Mapping[str, Any], answers: IO[bytes]) -> None:
    module, _, name = request["class"].partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    connector = found()
    connector.initialize(_ConnectorContext())
    connector.start(dict(request["config"]))
    configs = connector.task_configs(1)
    if not configs:
        return
    task = connector.task_class()()
    task.initialize(_TaskContext(configs[0]))
    task.start(dict(configs[0]))
    pause = threading.Event()
    left_records, left_bytes = int(request["records"]), int(request["bytes"])
    while left_records > 0 and left_bytes > 0:
        try:
            polled = task.poll()
        except RetriableException:
            polled = None
        if not polled:
            pause.wait(_PAUSE_S)
            continue
        count, size = _send_polled(answers, polled, left_records)
        left_records -= count
        left_bytes -= size


def _send_polled(answers: IO[bytes], polled: Any, limit: int) -> tuple[int, int]:
    if not isinstance(polled, SourceFrame):
        records = list(polled)[:limit]
        return len(records), _send(answers, ("records", records))
    import pyarrow as pa

    if not isinstance(polled.data, pa.Table):
        # Imports PySpark, which most previews do without.
        from penstock.pipeline.batch.frame import in_arrow

        polled = in_arrow(polled)
    if not isinstance(polled.data, pa.Table):
        raise TypeError("a source that returns Spark DataFrames cannot be previewed; one with Arrow tables can")
    # Written as a stream, because pickling a slice would send the memory of the whole table, and because taking rows
    # by their numbers imports pandas: ten times the work of all else here.
    table = polled.data.slice(0, limit)
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, table.schema) as stream:
        stream.write_table(table)
    content = rows.getvalue().to_pybytes()
    frame = (polled.topic, polled.value_schema, polled.key_schema, polled.timestamp, polled.partition)
    return table.num_rows, _send(answers, ("frame", (content, *frame, polled.value_fields)))


def _send(answers: IO[bytes], message: object) -> int:
    data = pickle.dumps(message)
    answers.write(len(data).to_bytes(8, "big") + data)
    answers.flush()
    return len(data)
