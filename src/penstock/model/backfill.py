"""Backfills, which read ranges again while the connector runs: their requests, plans and progress.

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
        end: The offset after the last one.
    """

    topic: str
    partition: int
    start: int
    end: int

    def to_json(self) -> dict[str, object]:
        """The JSON of REST."""
        return {
            "kafka_topic": self.topic,
            "kafka_partition": self.partition,
            "start_offset": self.start,
            "end_offset": self.end,
        }


@dataclass(frozen=True)
class BackfillRequest:
    """A request to read a range again.

    Attributes:
        start_ms: The time of the first messages, or rows; None for a request by offsets.
        end_ms: The time before which they end; None for the time of the request.
        ranges: The messages of a sink, for a request by offsets.
        span: The first position of a source and the one after the last, for a request by offsets.
        of: A part of a source, such as a table or a file; None for all parts.
        dry_run: True to return the plan only.
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
        kind: The type of the connector: source or sink.
        config: Its settings, placeholders resolved.
        tasks: Functions that read the settings of each of its tasks, with placeholders resolved again.
        request: The request.
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
        parts: The parts to read.
    """

    read_config: Callable[[], Mapping[str, str]]
    parts: Sequence[BackfillPart]


@dataclass(frozen=True)
class BackfillView:
    """A backfill as readers see it.

    Attributes:
        state: Its state.
        worker_id: The worker that runs it.
        began: The time of its start, in ISO 8601.
        ended: The time of its end, in ISO 8601.
        reads: The ranges that it reads, in the shape of REST.
        records: The number of records that it has read.
        total: The maximum number of records; None if unknown.
        trace: The error that failed it.
        positions: For each source or topic partition the position after the delivered records.
        progress: The progress that its task reports, in the shape of REST; None if it reports none.
        waiting_for: The wait of its task for a retry, in the shape of REST; None if there is none.
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
        """The JSON of REST."""
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
        reads: The ranges to read, in the shape of REST.
        writes: A description of the target.
        total: The maximum number of records.
        ranges: The messages, for a sink.
        shares: The parts, for a source.
    """

    reads: Sequence[Mapping[str, object]]
    writes: str
    total: int | None
    ranges: Sequence[BackfillRange] = ()
    shares: Sequence[BackfillShare] = ()

    def to_json(self, name: str) -> dict[str, object]:
        """The answer to a dry run."""
        return {"name": name, "dry_run": True, "reads": list(self.reads), "total": self.total, "writes": self.writes}
