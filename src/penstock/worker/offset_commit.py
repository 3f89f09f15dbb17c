"""When and how a source task commits its offsets that delivers at least once.

Main type: `OffsetCommitter`, a `Committer`: one for each task, on its own schedule, so that a slow store or a slow
``commit`` hook delays no other task.

Thread: as for `Committer`; `run` is also called by the task's thread when the task ends. One commit at a time: the
other thread waits.

Source: SourceTaskOffsetCommitter and WorkerSourceTask.commitOffsets of Kafka Connect.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import DataException, OffsetStoreException
from penstock.stores.offsets import OffsetWriter
from penstock.worker.commit_hooks import CommitHooks
from penstock.worker.committer import CommitCounts
from penstock.worker.submitted import SubmittedOffsets

if TYPE_CHECKING:
    from penstock.worker.source_convert import Outgoing

logger = logging.getLogger(__name__)

#: Name of the point between the acknowledgement of records and the write of their offsets, for `probe`.
AFTER_ACK_BEFORE_OFFSETS = "after-ack-before-offsets"


class OffsetCommitter:
    """Moves acknowledged offsets into the store, again and again.

    Args:
        hooks: the task's; its ``commit`` is called after each successful commit, also one with nothing new.
        writer: where offsets go; it keeps what could not be written.
        interval_s: time from the end of a commit to the next one.
        timeout_s: the longest wait for one write.
        clock: monotonic seconds.
        probe: told the named points a kill test stops at.
        open_store: called before the task is initialized.
    """

    def __init__(
        self,
        hooks: CommitHooks,
        writer: OffsetWriter,
        *,
        interval_s: float,
        timeout_s: float,
        clock: Callable[[], float],
        probe: Callable[[str], None],
        open_store: Callable[[], None] = lambda: None,
    ) -> None:
        self.submitted = SubmittedOffsets()
        self.hooks = hooks
        self.counts = CommitCounts()
        self.own_topic: str | None = None
        self.whole_polls = False
        self.commits_at_rest = False
        self._batches = 0
        self._writer = writer
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._probe = probe
        self._open_store = open_store
        self._next = clock() + interval_s
        self._one_at_a_time = threading.Lock()

    @property
    def has_committed(self) -> bool:
        """See `Committer`: what is delivered counts."""
        return self._batches > 0

    @property
    def hint(self) -> str | None:
        """See `Committer`: there are no transactions."""
        return None

    def begin(self, stopping: threading.Event) -> bool:
        """See `Committer`."""
        self._open_store()
        return True

    def settled(self) -> None:
        """See `Committer`: the task is told at once."""
        self.hooks.advance()

    def delivered(self, outgoing: Outgoing, *, waiting: bool) -> None:
        """See `Committer`. A task that has failed commits once more, at its end."""
        self._batches += 1
        if outgoing.failure is None:
            self.run_if_due()

    def due_in_s(self) -> float:
        """Seconds until the next commit; 0 when it is due."""
        return max(0.0, self._next - self._clock())

    def run_if_due(self) -> None:
        """Commit when it is time."""
        if self.due_in_s() == 0:
            self.run()

    def refuse(self) -> None:
        """See `Committer`: what has failed is never settled."""

    def named(self, error: BaseException) -> BaseException:
        """See `Committer`."""
        return error

    def run_early(self, timeout_s: float) -> None:
        """See `Committer`."""
        self.run(timeout_s)

    def finish(self, timeout_s: float, *, failed: bool) -> None:
        """See `Committer`: what is acknowledged is committed also where the task has failed."""
        self.run(timeout_s)

    def cancel(self) -> None:
        """See `Committer`. Invariant 4."""
        self._writer.fence(0)

    def run(self, timeout_s: float | None = None) -> bool:
        """Commit what is acknowledged now, and nothing else. Invariant 1.

        Args:
            timeout_s: the longest wait; None for ``offset.flush.timeout.ms``.

        Returns:
            Whether everything acknowledged is in the store. A failure is logged; the offsets are written next time.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        if self._writer.fenced or not self._one_at_a_time.acquire(timeout=limit):
            return False
        try:
            return self._run(limit)
        finally:
            self._one_at_a_time.release()

    def _run(self, timeout_s: float) -> bool:
        started = self._clock()
        taken = self.submitted.take_committable()
        try:
            for partition, offset in taken:
                self._writer.put(partition, offset)
            self._probe(AFTER_ACK_BEFORE_OFFSETS)
            written = self._writer.flush(timeout_s)
        except (OffsetStoreException, DataException) as error:
            self.counts.failures += 1
            text = "The offset commit failed; the offsets are kept and written with the next one (%s): %s"
            logger.error(text, _shown(taken), error)
            return False
        finally:
            now = self._clock()
            self.counts.last_duration_s = now - started
            self._next = now + self._interval_s
        self.counts.successes += 1
        if written:
            logger.debug("Committed the offsets of %d source partitions", written)
        self.hooks.committed()
        self._next = self._clock() + self._interval_s
        return True


def _shown(taken: Sequence[tuple[object, object]], most: int = 3) -> str:
    """What was to be committed, for an error."""
    places = [f"source partition {partition} up to source offset {offset}" for partition, offset in taken[:most]]
    more = [f"{len(taken) - most} more"] if len(taken) > most else []
    return "; ".join([*places, *more]) or "nothing new since the last one"
