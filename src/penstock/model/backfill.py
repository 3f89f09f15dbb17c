"""Backfills: what is to be read again beside a connector that runs, and how far that is.

Main types: ``BackfillRequest``, ``BackfillPlan``, ``BackfillView``. Values; any thread.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
        dry_run: Only tell what would be read and written.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    ranges: Sequence[BackfillRange] = ()
    span: tuple[object, object] | None = None
    dry_run: bool = False


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
    """

    state: BackfillState
    worker_id: str
    began: str
    reads: Sequence[Mapping[str, object]]
    records: int = 0
    total: int | None = None
    ended: str | None = None
    trace: str | None = None

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
        }
        return found if self.trace is None else {**found, "trace": self.trace}


@dataclass(frozen=True)
class BackfillPlan:
    """The work of a backfill.

    Attributes:
        reads: What is read, in the shape of REST.
        writes: Where to, for people.
        total: How many records these are at most.
        ranges: The messages, of a sink.
    """

    reads: Sequence[Mapping[str, object]]
    writes: str
    total: int | None
    ranges: Sequence[BackfillRange] = ()

    def to_json(self, name: str) -> dict[str, object]:
        """The answer to a dry run."""
        return {"name": name, "dry_run": True, "reads": list(self.reads), "total": self.total, "writes": self.writes}
