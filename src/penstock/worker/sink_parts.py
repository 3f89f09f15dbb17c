"""What the loop of a sink task works with.

Main type: ``SinkParts``, which ``SinkTaskRunner`` makes for each run of a task.

Owning thread: the task's thread, but for the stages and for reading the counters.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api import AnySinkTask
from penstock.worker.errant_records import ErrantRecords
from penstock.worker.sink_commit import CommitProgress
from penstock.worker.sink_committer import SinkCommitter
from penstock.worker.sink_context import WorkerSinkTaskContext
from penstock.worker.sink_partitions import SinkPartitions
from penstock.worker.sink_stages import SinkStages
from penstock.worker.sink_threads import SinkFetcher
from penstock.worker.task_spec import TaskServices, TaskSpec


@dataclass(frozen=True)
class SinkParts:
    """The parts of the loop; all but the stages belong to the task's thread."""

    spec: TaskSpec[AnySinkTask]
    services: TaskServices
    context: WorkerSinkTaskContext
    partitions: SinkPartitions
    stages: SinkStages
    fetcher: SinkFetcher
    committer: SinkCommitter
    errant: ErrantRecords | None

    @property
    def name(self) -> str:
        """The task, for messages."""
        return self.spec.name

    @property
    def progress(self) -> CommitProgress:
        """When a commit is due, and which answers count."""
        return self.committer.progress
