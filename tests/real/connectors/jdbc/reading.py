"""A source task in the test's own process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from testkit.doubles.contexts import FakeSourceContext, StoredOffsets
from testkit.processes.mariadb import MariaDb
from tests.real.connectors.jdbc.writing import Database

from penstock.api import SourceFrame
from penstock.api.partitioned import PARTITIONS_CONFIG
from penstock.broker.postgresql import PostgreSql
from penstock.connectors.jdbc.source.position import partition_of
from penstock.connectors.jdbc.source.task import JdbcSourceTask


class Context(FakeSourceContext):
    """The context of a task that runs in the test, with offsets as a test keeps them."""

    def __init__(self, kept: dict[str, dict[str, object]]) -> None:
        super().__init__(StoredOffsets(lambda one: None if "snapshot" in one else kept.get(str(one.get("table")))))
        self._kept = kept

    def advance(self, partition: Mapping[str, object], offset: Mapping[str, object] | None) -> None:
        assert offset is not None
        self._kept[str(partition["table"])] = dict(offset)


class Reading:
    """A task, and what its frames had."""

    def __init__(
        self,
        server: PostgreSql | MariaDb | Database,
        tables: Sequence[str],
        settings: Mapping[str, str],
        schema: str = "public",
    ) -> None:
        self.props = {
            "connection.url": server.url if isinstance(server, Database) else server.jdbc_url,
            "topic.prefix": "t-",
            # Two looks within the time of a poll; each has a connection of its own.
            "poll.interval.ms": "25",
            "table.include.list": ",".join(tables),
            **settings,
        }
        self.tables: list[str | None] = [None] if settings.get("query") else [f"{schema}.{table}" for table in tables]
        self.kept: dict[str, dict[str, object]] = {}
        self.task = JdbcSourceTask()

    def start(self) -> None:
        """A new task, which goes on where the frames before ended."""
        self.task.stop()
        self.task = JdbcSourceTask()
        self.task.initialize(Context(self.kept))
        self.task.start({**self.props, PARTITIONS_CONFIG: json.dumps([partition_of(table) for table in self.tables])})

    def frames(self) -> Iterator[SourceFrame]:
        """What there is now."""
        while True:
            frame = self.task.poll()
            if frame is None:
                return
            self.kept[str(frame.source_partition.get("table"))] = dict(frame.source_offset)
            yield frame

    def read(self, field: str) -> list[object]:
        """The values of a field of the rows that there are now."""
        found: list[object] = []
        for frame in self.frames():
            assert isinstance(frame.data, pa.Table)
            found += [row[field] for row in frame.data.column("value").to_pylist()]
        return found

    def read_until_error(self) -> None:
        """Polls until that raises."""
        while True:
            self.task.poll()
