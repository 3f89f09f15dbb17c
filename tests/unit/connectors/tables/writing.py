"""A table sink task in the test's own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.connectors.files.writing import HERE, Context, frame, records
from tests.unit.connectors.tables import lakes

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.connectors.tables.sink.task import TableSinkTask

__all__ = ["HERE", "Writing", "frame", "records"]


class _Context(Context):
    """A context that keeps where the task wants to go on."""

    def __init__(self, props: Mapping[str, str], tolerant: bool, places: Sequence[TopicPartition]) -> None:
        super().__init__(props, tolerant)
        self.places = places
        self.rewound: dict[TopicPartition, int] = {}

    def offset(self, offsets: Any, offset: int | None = None) -> None:
        self.rewound.update({offsets: offset} if offset is not None else offsets)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.places)


class Writing:
    """A started sink task.

    Args:
        path: Where its lake is.
        lake: The lake of its tables.
        tolerant: Whether bad rows may be reported.
        places: Its partitions.
        backfill: True for the task of a backfill.
        cluster: The id of the Kafka cluster.
        settings: Its settings beside those of ``lakes.settings``.
    """

    def __init__(
        self,
        path: Path,
        lake: str,
        tolerant: bool = True,
        places: Sequence[TopicPartition] = (HERE,),
        backfill: bool = False,
        cluster: str | None = None,
        **settings: str,
    ) -> None:
        self.path, self.lake = path, lake
        self.props = {"topics": "t", **lakes.settings(path, lake, **settings)}
        self.context = _Context(self.props, tolerant, places)
        self.context._is_backfill = backfill
        self.context._kafka_cluster_id = cluster
        self.task = TableSinkTask()
        self.task.initialize(self.context)
        self.task.start(self.props)
        self.task.open(places)
        self.kafka = 0

    def put(self, *args: Any, **named: Any) -> None:
        """Gives the task a frame."""
        self.task.put(frame(*args, context=self.context, **named))

    def tick(self) -> None:
        """Lets the time of the next commit come."""
        self.task._due = 0
        self.context.call()

    def safe(self, reached: int, place: TopicPartition = HERE) -> int:
        """The offset that may be committed."""
        return self.task.pre_commit({place: OffsetAndMetadata(reached)})[place].offset

    def close(self) -> None:
        """Ends the task as a worker does."""
        self.context.closing = True
        self.task.pre_commit(dict.fromkeys(self.context.places, OffsetAndMetadata(1 << 40)))
        self.task.close(self.context.places)
        self.task.stop()

    def rows(self, table: str = "t") -> list[dict[str, Any]]:
        """The rows of a table."""
        return lakes.rows(self.path, self.lake, table)

    def ids(self, table: str = "t") -> list[int]:
        """The ids in a table, in order."""
        return sorted(row["id"] for row in self.rows(table))
