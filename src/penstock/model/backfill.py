"""Backfills: what is to be read again beside a connector that runs, and how far that is.

Main types: ``BackfillRequest``, ``BackfillQuestion``, ``BackfillPlan``, ``BackfillView``. Values; any thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.states import ConnectorType

if TYPE_CHECKING:
    from penstock.api import BackfillPart


class BackfillState(enum.Enum):
    """The states of a backfill."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, order=True)
class BackfillRange:
    """Messages of one topic partition.

    Attributes:
        topic: The topic.
        partition: Its partition.
        start: The offset of the first message.
        end: The offset behind the last one.
    """

    topic: str
    partition: int
    start: int
    end: int

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        return {
            "kafka_topic": self.topic,
            "kafka_partition": self.partition,
            "start_offset": self.start,
            "end_offset": self.end,
        }


@dataclass(frozen=True)
class BackfillRequest:
    """A request to read again.

    Attributes:
        start_ms: Messages, or rows, that are not older than this; None where it goes by offsets.
        end_ms: Those that are older than this; None: than the request.
        ranges: The messages of a sink, where it goes by offsets.
        span: The first position of a source and the one behind the last, where it goes by offsets.
        of: The part of a source that is meant, a table or a file; None: all of them.
        dry_run: Only tell what would be read and written.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    ranges: Sequence[BackfillRange] = ()
    span: tuple[str | int, str | int] | None = None
    of: str | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class BackfillQuestion:
    """A request, and the connector that it is about.

    Attributes:
        name: The connector.
        kind: Source or sink.
        config: Its settings, placeholders resolved.
        tasks: Read the settings of each of its tasks, with placeholders resolved anew.
        request: What was asked for.
    """

    name: str
    kind: ConnectorType
    config: Mapping[str, str]
    tasks: Sequence[Callable[[], Mapping[str, str]]]
    request: BackfillRequest


@dataclass(frozen=True)
class BackfillShare:
    """The part of a source's backfill that has the settings of one of its tasks.

    Attributes:
        read_config: Reads the settings of that task.
        parts: What is read.
    """

    read_config: Callable[[], Mapping[str, str]]
    parts: Sequence[BackfillPart]


@dataclass(frozen=True)
class BackfillView:
    """A backfill as readers see it.

    Attributes:
        state: What it is doing.
        worker_id: Where it runs.
        began: When, in ISO 8601.
        ended: When it ended.
        reads: What it reads, in the shape of REST.
        records: How many records it has read.
        total: How many there are at most; None where that is not known.
        trace: What it has failed with.
        positions: How far it is: for each source or topic partition the position behind what is delivered.
        progress: How far its task says that it is, in the shape of REST; None if it does not.
        waiting_for: What its task waits for before it tries again, in the shape of REST; None if it does not.
    """

    state: BackfillState
    worker_id: str
    began: str
    reads: Sequence[Mapping[str, object]]
    records: int = 0
    total: int | None = None
    ended: str | None = None
    trace: str | None = None
    positions: Sequence[Mapping[str, object]] = ()
    progress: Mapping[str, object] | None = None
    waiting_for: Mapping[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        """The shape used by REST."""
        found: dict[str, object] = {
            "state": self.state.value,
            "worker_id": self.worker_id,
            "began": self.began,
            "ended": self.ended,
            "records": self.records,
            "total": self.total,
            "reads": [dict(one) for one in self.reads],
            "positions": [dict(one) for one in self.positions],
        }
        more = {"progress": self.progress, "waiting_for": self.waiting_for, "trace": self.trace}
        return {**found, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True)
class BackfillPlan:
    """The work of a backfill.

    Attributes:
        reads: What is read, in the shape of REST.
        writes: Where to, for people.
        total: How many records these are at most.
        ranges: The messages, of a sink.
        shares: The parts, of a source.
    """

    reads: Sequence[Mapping[str, object]]
    writes: str
    total: int | None
    ranges: Sequence[BackfillRange] = ()
    shares: Sequence[BackfillShare] = ()

    def to_json(self, name: str) -> dict[str, object]:
        """The answer to a dry run."""
        return {"name": name, "dry_run": True, "reads": list(self.reads), "total": self.total, "writes": self.writes}
