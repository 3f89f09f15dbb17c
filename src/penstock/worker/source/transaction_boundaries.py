"""The ends of a source task's transactions, and the requests of the task itself for them.

Pure: no I/O, the clock is an argument. Thread: the task's delivery thread. Any may ask a ``TransactionRequests``; its
``cut`` is called on the task's thread.

Source: KIP-618; ExactlyOnceWorkerSourceTask.TransactionBoundaryManager and WorkerTransactionContext of Kafka Connect.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum, auto
from math import inf
from typing import Final

from penstock.api import SourceFrame, SourceRecord, TransactionBoundary, TransactionContext
from penstock.errors import ConnectException, IllegalWorkerStateException
from penstock.pipeline.batch.batches import PolledBatch

#: With the boundary ``poll``: polls within this many seconds of each other share transactions.
NEAR_S: Final = 0.1
#: The seconds between their commits. A commit costs each partition a marker and the brokers some milliseconds. A reader
#: that waits for the end of a partition finds it only in a pause of ``fetch.max.wait.ms``, which is 500 by default.
APART_S: Final = 0.75


class PartEnd(Enum):
    """The end of a part of polled records: a poll, or a request of the task."""

    INSIDE = auto()
    """More of the same poll."""
    POLL = auto()
    """The end of the poll, or a place inside of it where the task asks for nothing."""
    COMMIT = auto()
    """A place where the task asks for a commit."""
    ABORT = auto()
    """A place where the task aborts everything since the last commit."""
    REST = auto()
    """The end of a poll after which the task is paused."""
    BULK = auto()
    """The end of the polls before a bulk run, or of the run itself: all of it counts now."""


class BoundaryAction(Enum):
    """The action that follows a part."""

    GO_ON = auto()
    """The transaction stays open."""
    COMMIT = auto()
    """It is committed."""
    ABORT = auto()
    """It is aborted, and the source offsets of what was in it are committed in another one."""


class Boundaries:
    """The open transaction of one task, as far as it matters for when it ends.

    Args:
        interval_s: ``transaction.boundary.interval.ms``, or the worker's ``offset.flush.interval.ms``.
        timeout_s: ``transaction.timeout.ms`` of the producer: Kafka aborts a transaction that is open for longer.
        most_records: The most records of polls that share a transaction.
    """

    def __init__(
        self, boundary: TransactionBoundary, interval_s: float, timeout_s: float, most_records: int, now: float
    ) -> None:
        self.timeout_s: Final = timeout_s
        self._boundary = boundary
        self._interval_s = interval_s
        self._most_records = most_records
        self._last = now
        self._began: float | None = None
        self._records = 0
        self._end = PartEnd.POLL
        #: When the last poll with anything in it ended.
        self._polled = -inf

    @property
    def began(self) -> float | None:
        return self._began

    @property
    def records(self) -> int:
        return self._records

    @property
    def whole(self) -> bool:
        """True if the open transaction may be committed at the end of the task, without a request for it."""
        return self._boundary is not TransactionBoundary.CONNECTOR and self._end is not PartEnd.INSIDE

    def after(
        self, end: PartEnd, records: int, now: float, *, moves: bool = True, waiting: bool = False, last: bool = False
    ) -> BoundaryAction:
        """Decides the action after a part.

        Args:
            records: The number of its records that were sent.
            moves: True if it has records, or at least a source offset.
            waiting: True if the next part is there already.
            last: True if no other part follows, because the record after it has failed the task.
        """
        if moves and self._began is None:
            self._began = now
        self._records += records
        if last and end is PartEnd.INSIDE and not records and self._end is PartEnd.POLL:
            # The failed poll does not count; the polls before it do.
            end = PartEnd.POLL
        self._end = end
        if end is PartEnd.INSIDE:
            return BoundaryAction.GO_ON
        if end is PartEnd.BULK:
            return BoundaryAction.COMMIT
        if self._boundary is TransactionBoundary.CONNECTOR:
            return {PartEnd.COMMIT: BoundaryAction.COMMIT, PartEnd.ABORT: BoundaryAction.ABORT}.get(
                end, BoundaryAction.GO_ON
            )
        if end is PartEnd.REST:
            return BoundaryAction.COMMIT
        if self._boundary is TransactionBoundary.INTERVAL:
            return BoundaryAction.COMMIT if self.due_in_s(now) == 0 else BoundaryAction.GO_ON
        lone = now - self._polled >= NEAR_S and not waiting
        if moves:
            self._polled = now
        full = self._records >= self._most_records
        return BoundaryAction.COMMIT if lone or full or last or not self.due_in_s(now) else BoundaryAction.GO_ON

    def due_in_s(self, now: float) -> float | None:
        """Seconds until a commit is due without new records; 0 if it is due, None if it waits for records."""
        if self._boundary is TransactionBoundary.CONNECTOR or self._end is PartEnd.INSIDE:
            return None
        if self._boundary is TransactionBoundary.INTERVAL:
            at = self._last + self._interval_s
        elif self._began is not None:
            at = min(self._last + APART_S, self._polled + NEAR_S)
        else:
            return None
        if self._began is not None:
            # An interval as long as the time-out, as by default, would have Kafka end the transaction.
            at = min(at, self._began + self.timeout_s / 2)
        return max(0.0, at - now)

    def over_in_s(self, now: float) -> float | None:
        """Seconds until the open transaction times out in Kafka; None if there is none, or if it has no records."""
        return None if self._began is None or not self._records else max(0.0, self._began + self.timeout_s - now)

    def ended(self, now: float) -> None:
        self._last = now
        self._began = None
        self._records = 0


def whole_polls(polls: Sequence[int], record: int) -> int:
    """Counts the records of a batch that belong to polls that end before a record.

    Args:
        polls: The numbers of records of the batch after which a poll ends, ascending.

    >>> whole_polls([3, 5], 4), whole_polls([3, 5], 5), whole_polls([3, 5], 2)
    (3, 5, 0)
    """
    index = bisect_right(polls, record)
    return polls[index - 1] if index else 0


class TransactionRequests(TransactionContext):
    """The requests of one task.

    Args:
        frames: True if it returns frames, whose rows it cannot name as records.
    """

    def __init__(self, owner: str, *, frames: bool = False) -> None:
        self._owner = owner
        self._frames = frames
        self._lock = threading.Lock()
        self._batch: set[PartEnd] = set()
        # The records themselves are kept, so that nothing else gets their ids.
        self._records: dict[int, tuple[SourceRecord, set[PartEnd]]] = {}

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self._ask(record, PartEnd.COMMIT)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self._ask(record, PartEnd.ABORT)

    def cut(self, polled: PolledBatch | None) -> list[tuple[PolledBatch, PartEnd]]:
        """Cuts the polled records where the task has requested the end of its transaction.

        Raises:
            ConnectException: The task asks for a commit and for an abort at the same place.
        """
        with self._lock:
            batch, self._batch = self._one(self._batch, "the same batch"), set()
            if polled is None or isinstance(polled, SourceFrame):
                if polled is None:
                    return [] if batch is None else [((), batch)]
                return [(polled, batch or PartEnd.POLL)]
            return self._cut(polled, batch) if self._records else _whole(polled, batch)

    def _ask(self, record: SourceRecord | None, end: PartEnd) -> None:
        if record is None:
            with self._lock:
                self._batch.add(end)
            return
        if self._frames:
            raise IllegalWorkerStateException(
                f"Task {self._owner} returns frames, whose rows are no records: it can end a transaction after the "
                "frame that it returns next, without naming a record"
            )
        if not isinstance(record, SourceRecord):
            raise ConnectException(
                f"Task {self._owner} wants its transaction to end after a {type(record).__name__}: give the "
                "SourceRecord that poll() returns, or nothing"
            )
        with self._lock:
            self._records.setdefault(id(record), (record, set()))[1].add(end)

    def _cut(self, polled: Sequence[SourceRecord], batch: PartEnd | None) -> list[tuple[PolledBatch, PartEnd]]:
        found: list[tuple[PolledBatch, PartEnd]] = []
        first = 0
        for row, record in enumerate(polled):
            asked = self._records.pop(id(record), None)
            if asked is None:
                continue
            end = self._one(asked[1], f"the same record ({record.source_partition}, {record.source_offset})")
            assert end is not None
            found.append((polled[first : row + 1], end))
            first = row + 1
        # Where a request for its last record stands already, one for the whole batch finds nothing left.
        return found if first == len(polled) and found else [*found, *_whole(polled[first:], batch)]

    def _one(self, ends: set[PartEnd], place: str) -> PartEnd | None:
        if len(ends) > 1:
            raise ConnectException(
                f"Task {self._owner} asks for a commit and for an abort of the transaction after {place}: it can be "
                "one of them"
            )
        return next(iter(ends), None)


def _whole(polled: Sequence[SourceRecord], batch: PartEnd | None) -> list[tuple[PolledBatch, PartEnd]]:
    return [(polled, batch or PartEnd.POLL)] if polled or batch else []
