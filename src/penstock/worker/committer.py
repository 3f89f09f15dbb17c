"""Commits what a source task has delivered: when that counts, and where its source offsets go.

Main type: `Committer`. All else of a source task is the same whether it delivers at least once or exactly once: polls,
conversion, delivery, hooks, tolerance. `OffsetCommitter` writes offsets behind records that Kafka has acknowledged,
`TransactionCommitter` writes both in one transaction.

Thread: `begin` and `finish` belong to the task's thread, `settled` to the one that settles rows, `cancel` and the
properties to any, the rest to the delivery thread.

Source: WorkerSourceTask and ExactlyOnceWorkerSourceTask of Kafka Connect, as far as they differ.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.worker.commit_hooks import CommitHooks
from penstock.worker.submitted import SubmittedOffsets

if TYPE_CHECKING:
    from penstock.worker.source_convert import Outgoing


@dataclass
class CommitCounts:
    """Plain counters; read by metrics from any thread."""

    successes: int = 0
    failures: int = 0
    last_duration_s: float = 0.0


class Committer(Protocol):
    """Commits what a source task has delivered.

    Attributes:
        submitted: What is on its way to Kafka; rows are settled there.
        hooks: Tell the task about its records.
        counts: Commits.
        own_topic: The offsets topic that no record of the task may be for; None where that does no harm.
        whole_polls: Whether only whole polls ever count.
        commits_at_rest: Whether a pause of the task is to be seen here, behind what was polled.
    """

    submitted: SubmittedOffsets
    hooks: CommitHooks
    counts: CommitCounts
    own_topic: str | None
    whole_polls: bool
    commits_at_rest: bool

    @property
    def has_committed(self) -> bool:
        """Whether anything that the task has delivered counts by now."""

    @property
    def hint(self) -> str | None:
        """What an open transaction waits for, as a text; None if there is nothing to say."""

    def begin(self, stopping: threading.Event) -> bool:
        """Gets ready, before the task is initialized; may block until `stopping` is set.

        Returns:
            False when the task is to stop first.

        Raises:
            ConnectException, KafkaException: The task cannot run.
        """

    def settled(self) -> None:
        """Rows were settled."""

    def delivered(self, outgoing: Outgoing, *, waiting: bool) -> None:
        """A batch was handed to the producer.

        Args:
            outgoing: The batch.
            waiting: Whether the next one is there already.

        Raises:
            ConnectException, KafkaException: The task cannot go on.
        """

    def due_in_s(self) -> float | None:
        """Seconds until `run_if_due` is to be called without new records; None for never."""

    def run_if_due(self) -> None:
        """Commits when it is time; raises as `delivered`."""

    def refuse(self) -> None:
        """A row that is under way has failed the task: an open transaction must not be committed. Thread: any."""

    def named(self, error: BaseException) -> BaseException:
        """The error that the task fails with after sending or committing has raised; ends an open transaction."""

    def run_early(self, timeout_s: float) -> None:
        """Commits what needs no further waiting, while the end of the task takes long. Thread: task."""

    def finish(self, timeout_s: float, *, failed: bool) -> None:
        """Makes the last commit: everything was delivered by now, or given up.

        Args:
            timeout_s: How long it may take.
            failed: Whether the task ends by an error.
        """

    def cancel(self) -> None:
        """Nothing may be committed any more; returns at once. Invariant 4."""
