"""The source as a whole, without Kafka: a connector and its tasks over a store of offsets, killed where a test says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from testkit.doubles.contexts import FakeSourceConnectorContext, FakeSourceContext

from penstock.api import OffsetStorageReader, RetryPolicy
from penstock.connectors.jdbc import JdbcSource
from penstock.connectors.jdbc.source.task import JdbcSourceTask
from penstock.stores.offsets import MemoryOffsetStore, OffsetReader, OffsetWriter, connector_offsets

LIMIT_S = 60.0


class Store:
    """Committed offsets."""

    def __init__(self) -> None:
        self.kept = MemoryOffsetStore()
        self.kept.start()

    def commit(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        writer = OffsetWriter(self.kept, "c")
        writer.put(partition, offset)
        writer.flush()

    def reader(self) -> OffsetStorageReader:
        return OffsetReader(self.kept, "c")

    def all(self) -> list[tuple[Any, Mapping[str, object]]]:
        return list(connector_offsets(self.kept, "c"))

    def of(self, table: str) -> Mapping[str, object] | None:
        return self.reader().offset({"protocol": "1", "table": table})


class QuickTask(JdbcSourceTask):
    """Does not wait for long."""

    poll_limit_s = 0.02
    retry_policy = RetryPolicy(first_s=0.01)


class Worker:
    """Runs a source, one poll of each task at a time; what was polled counts at once, unless it is lost.

    Attributes:
        rows: How often each row was delivered, by what ``row_of`` makes of it.
        store: Committed offsets.
        shares: How many rows each task has delivered.
        most_ranges: How many ranges had an offset at once.
        told: The progress that tasks have told.
    """

    def __init__(self, settings: Mapping[str, str], row_of: Callable[[dict[str, Any]], Any], tasks: int = 1) -> None:
        self.props = {"topic.prefix": "t-", "poll.interval.ms": "10", "table.poll.interval.ms": "50", **settings}
        self.store = Store()
        self.rows: Counter[Any] = Counter()
        self.shares: Counter[int] = Counter()
        self.most_ranges = 0
        self.told: list[tuple[float | None, float | None]] = []
        self._row_of = row_of
        self._count = tasks
        self._tasks: list[tuple[QuickTask, FakeSourceContext]] = []
        self._connector: JdbcSource | None = None

    def start(self) -> None:
        self._connector = JdbcSource()
        self._context = FakeSourceConnectorContext(self.store.reader())
        self._connector.initialize(self._context)
        self._connector.start(self.props)
        self._configure()

    def kill(self) -> None:
        """Ends all; what was polled and not committed is lost."""
        for task, context in self._tasks:
            context.stopping.set()
            task.stop()
        self._tasks = []
        if self._connector is not None:
            self._connector.stop()
            self._connector = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def turn(self, *, lose: bool = False) -> int:
        """One poll of each task; how many rows came. With ``lose`` they reach Kafka, and their offsets do not."""
        if self._context.asked.acquire(blocking=False):
            self._configure()
        came = 0
        for number, (task, context) in enumerate(self._tasks):
            frame = task.poll()
            if frame is not None:
                assert isinstance(frame.data, pa.Table)
                values = frame.data.column("value").to_pylist()
                self.rows.update(map(self._row_of, values))
                self.shares[number] += len(values)
                came += len(values)
                if not lose:
                    self.store.commit(frame.source_partition, frame.source_offset)
            moves, context.moved = context.moved, []
            if not lose:
                for move in moves:
                    self.store.commit(*move)
        ranges = sum(1 for partition, _ in self.store.all() if "range" in partition)
        self.most_ranges = max(self.most_ranges, ranges)
        return came

    def run_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            self.turn()
            assert time.monotonic() < deadline, (self.store.all(), len(self.rows))

    def is_settled(self, table: str) -> bool:
        """True if a table is read on from a position, and nothing of its snapshot is left."""
        return self.store.of(table) is not None and len(self.store.all()) == 1

    def _configure(self) -> None:
        for task, context in self._tasks:
            context.stopping.set()
            task.stop()
        assert self._connector is not None
        self._tasks = []
        for config in self._connector.task_configs(self._count):
            task, context = QuickTask(), FakeSourceContext(self.store.reader())
            context.told = self.told
            task.initialize(context)
            task.start(config)
            self._tasks.append((task, context))
