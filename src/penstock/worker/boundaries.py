"""Where the transactions of a source task end.

Main types: ``End`` (how a piece of polled records ends), ``Boundaries`` (decides what to do there, as
``transaction.boundary`` says), ``Then`` (the answers). Main function: ``whole_polls``. Pure: no I/O, the clock is an
argument.

Thread: the task's delivery thread.
Source: KIP-618; ExactlyOnceWorkerSourceTask.TransactionBoundaryManager of Kafka Connect; runtime.md section 6.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum, auto
from math import inf
from typing import Final

from penstock.api import TransactionBoundary

#: With the boundary ``poll``: polls that come within so many seconds of each other share transactions.
NEAR_S: Final = 0.1
#: How far apart their commits are. A commit costs each partition a marker and the brokers some milliseconds. A reader
#: that waits for the end of a partition finds it only in a pause of ``fetch.max.wait.ms``, which is 500 by default.
APART_S: Final = 0.75


class End(Enum):
    """How a piece of polled records ends: with a poll, or with a request of the task."""

    INSIDE = auto()
    """More of the same poll."""
    POLL = auto()
    """The end of the poll, or a place inside of it where the task asks for nothing."""
    COMMIT = auto()
    """A place where the task asks for a commit."""
    ABORT = auto()
    """A place where the task asks that all since the last commit is given up."""
    REST = auto()
    """The end of a poll behind which the task rests: it is paused."""


class Then(Enum):
    """What is done behind a piece."""

    GO_ON = auto()
    """The transaction stays open."""
    COMMIT = auto()
    """It is committed."""
    ABORT = auto()
    """It is aborted, and the source offsets of what was in it are committed in another one."""


class Boundaries:
    """The open transaction of one task, as far as it matters for when it ends.

    Args:
        boundary: ``transaction.boundary``.
        interval_s: ``transaction.boundary.interval.ms``, or the worker's ``offset.flush.interval.ms``.
        timeout_s: ``transaction.timeout.ms`` of the producer: what is open for longer is ended by Kafka.
        most_records: Polls share a transaction up to so many records.
        now: Monotonic seconds.
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
        self._end = End.POLL
        #: When the last poll with anything in it ended.
        self._polled = -inf

    @property
    def began(self) -> float | None:
        """When the open transaction began; None if none is open."""
        return self._began

    @property
    def records(self) -> int:
        """How many records the open transaction has."""
        return self._records

    @property
    def whole(self) -> bool:
        """Whether the open transaction may be committed at the end of the task, without a request for it."""
        return self._boundary is not TransactionBoundary.CONNECTOR and self._end is not End.INSIDE

    def after(
        self, end: End, records: int, now: float, *, moves: bool = True, waiting: bool = False, last: bool = False
    ) -> Then:
        """What to do behind a piece.

        Args:
            end: What is behind it.
            records: How many records of it were sent.
            now: Monotonic seconds.
            moves: Whether it has anything, records or a source offset alone.
            waiting: Whether the next piece is there already.
            last: Whether no other piece follows: a record behind it has failed the task.
        """
        if moves and self._began is None:
            self._began = now
        self._records += records
        if last and end is End.INSIDE and not records and self._end is End.POLL:
            # Nothing of the poll that has failed counts; what was polled before it does.
            end = End.POLL
        self._end = end
        if end is End.INSIDE:
            return Then.GO_ON
        if self._boundary is TransactionBoundary.CONNECTOR:
            return {End.COMMIT: Then.COMMIT, End.ABORT: Then.ABORT}.get(end, Then.GO_ON)
        if end is End.REST:
            return Then.COMMIT
        if self._boundary is TransactionBoundary.INTERVAL:
            return Then.COMMIT if self.due_in_s(now) == 0 else Then.GO_ON
        lone = now - self._polled >= NEAR_S and not waiting
        if moves:
            self._polled = now
        full = self._records >= self._most_records
        return Then.COMMIT if lone or full or last or not self.due_in_s(now) else Then.GO_ON

    def due_in_s(self, now: float) -> float | None:
        """Seconds until a commit is due without new records; 0 if it is due, None if it waits for records."""
        if self._boundary is TransactionBoundary.CONNECTOR or self._end is End.INSIDE:
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
        """The transaction is over."""
        self._last = now
        self._began = None
        self._records = 0


def whole_polls(polls: Sequence[int], record: int) -> int:
    """How many records of a batch belong to polls that end before a record.

    Args:
        polls: Behind how many records of the batch a poll ends, ascending.
        record: The position of the record.

    >>> whole_polls([3, 5], 4), whole_polls([3, 5], 5), whole_polls([3, 5], 2)
    (3, 5, 0)
    """
    index = bisect_right(polls, record)
    return polls[index - 1] if index else 0
