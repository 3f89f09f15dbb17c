"""What the loop of a sink task works with.

Main type: ``SinkParts``, which ``SinkTaskRunner`` makes for each run of a task.

Owning thread: the task's thread, but for the stages and for reading the counters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.api import AnySinkTask
from penstock.worker.errant_records import DeliveredMessages, ErrantRecords
from penstock.worker.sink_commit import CommitProgress
from penstock.worker.sink_committer import SinkCommitter
from penstock.worker.sink_context import WorkerSinkTaskContext
from penstock.worker.sink_delivery import SinkCounts
from penstock.worker.sink_partitions import SinkPartitions
from penstock.worker.sink_stages import SinkStages
from penstock.worker.sink_threads import SinkFetcher
from penstock.worker.task_session import TaskSession
from penstock.worker.tolerance import ErrorHandler


@dataclass(frozen=True)
class SinkParts:
    """The parts of the loop; all but the stages belong to the task's thread."""

    name: str
    task: AnySinkTask
    context: WorkerSinkTaskContext
    partitions: SinkPartitions
    stages: SinkStages
    fetcher: SinkFetcher
    progress: CommitProgress
    committer: SinkCommitter
    errors: ErrorHandler
    errant: ErrantRecords | None
    messages: DeliveredMessages
    session: TaskSession
    counts: SinkCounts = field(default_factory=SinkCounts)
