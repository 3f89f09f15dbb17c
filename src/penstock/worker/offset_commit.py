"""When and how a source task commits its offsets.

Main type: `OffsetCommitter`: one for each task, on its own schedule, so that a slow store or a slow ``commit`` hook
delays no other task.

Thread: `due_in_s` and `run_if_due` belong to the task's delivery thread; `run` is also called by the task's thread when
the task ends. One commit at a time: the other thread waits.

Source: SourceTaskOffsetCommitter and WorkerSourceTask.commitOffsets of Kafka Connect.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.errors import DataException, OffsetStoreException
from penstock.stores.offsets import OffsetWriter
from penstock.worker.submitted import SubmittedOffsets

logger = logging.getLogger(__name__)

#: Name of the point between the acknowledgement of records and the write of their offsets, for `probe`.
AFTER_ACK_BEFORE_OFFSETS = "after-ack-before-offsets"


@dataclass
class CommitCounts:
    """Plain counters; read by metrics from any thread."""

    successes: int = 0
    failures: int = 0
    last_duration_s: float = 0.0


class OffsetCommitter:
    """Moves acknowledged offsets into the store, again and again.

    Args:
        submitted: where acknowledged offsets come from.
        writer: where they go; it keeps what could not be written.
        after_commit: the task's ``commit`` hook, called after each successful commit, also one with nothing new.
        interval_s: time from the end of a commit to the next one.
        timeout_s: the longest wait for one write.
        clock: monotonic seconds.
        probe: told the named points a kill test stops at.
    """

    def __init__(
        self,
        submitted: SubmittedOffsets,
        writer: OffsetWriter,
        after_commit: Callable[[], None],
        *,
        interval_s: float,
        timeout_s: float,
        clock: Callable[[], float],
        probe: Callable[[str], None],
    ) -> None:
        self.counts = CommitCounts()
        self._submitted = submitted
        self._writer = writer
        self._after_commit = after_commit
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._probe = probe
        self._next = clock() + interval_s
        self._one_at_a_time = threading.Lock()

    def due_in_s(self) -> float:
        """Seconds until the next commit; 0 when it is due."""
        return max(0.0, self._next - self._clock())

    def run_if_due(self) -> None:
        """Commit when it is time."""
        if self.due_in_s() == 0:
            self.run()

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
        taken = self._submitted.take_committable()
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
        self._call_hook()
        self._next = self._clock() + self._interval_s
        return True

    def _call_hook(self) -> None:
        try:
            self._after_commit()
        except Exception:
            logger.exception("The task's commit() raised; the offsets are committed all the same")


def _shown(taken: Sequence[tuple[object, object]], most: int = 3) -> str:
    """What was to be committed, for an error."""
    places = [f"source partition {partition} up to source offset {offset}" for partition, offset in taken[:most]]
    more = [f"{len(taken) - most} more"] if len(taken) > most else []
    return "; ".join([*places, *more]) or "nothing new since the last one"
