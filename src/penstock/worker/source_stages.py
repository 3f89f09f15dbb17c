"""The bounded queues between the three stages of a source task, polling, Spark and Kafka, which overlap in time.

Main types: `Batcher` (task thread -> pipeline thread: joins polls while Spark is busy, never waits for more when it is
free), `Taken` (what it gives) and `Handover` (pipeline thread -> delivery thread). A full queue makes the stage before
it wait: that is the back-pressure from Kafka to ``poll``. `empty_poll_delay_s` paces a ``poll`` that returns nothing
without waiting.

Thread: one thread puts, one takes; `close`, `discard` and `end_at` come from any thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

import pyarrow as pa

from penstock.api import SourceFrame, SourceRecord
from penstock.pipeline.batches import SourceRecords
from penstock.telemetry import waiting_for
from penstock.worker.boundaries import End
from penstock.worker.frame_joining import can_join, join
from penstock.worker.shared_load import SharedLoad
from penstock.worker.task_spec import BatchLimits

T = TypeVar("T")

Polled = Sequence[SourceRecord] | SourceFrame
Batch = SourceRecords | SourceFrame

#: How many records of a poll are looked at to guess the size of all.
_SAMPLE: Final = 8
#: A poll without records that took this long has waited by itself.
_WAITED_S: Final = 0.001
_FREE_POLLS: Final = 2
#: What may wait for Spark behind the first poll: memory that a stalled broker costs.
_WAITING_BYTES: Final = 8 * 1024 * 1024
_MAX_DELAY_S: Final = 0.05


@dataclass(frozen=True)
class Taken:
    """A batch as it is taken from those that wait.

    Attributes:
        batch: The records, or the frame.
        end: What is behind the batch.
        polls: Behind how many of its records a poll ends, ascending.
    """

    batch: Batch
    end: End = End.POLL
    polls: Sequence[int] = ()


class _Entry(NamedTuple):
    """A poll, or a part of one, that waits."""

    polled: Polled
    records: int
    nbytes: int
    end: End


def empty_poll_delay_s(empty_polls: int, took_s: float) -> float:
    """How long to wait before the next poll, after so many without records in a row.

    A ``poll`` that waits by itself is not delayed; one that returns at once is, a little more each time.

    >>> [round(empty_poll_delay_s(n, 0.0), 3) for n in (1, 2, 3, 4, 5, 100)]
    [0.0, 0.0, 0.001, 0.002, 0.004, 0.05]
    >>> empty_poll_delay_s(100, 0.2)
    0.0
    """
    if took_s >= _WAITED_S or empty_polls <= _FREE_POLLS:
        return 0.0
    return min(_MAX_DELAY_S, 0.001 * 2.0 ** min(empty_polls - _FREE_POLLS - 1, 10))


def estimated_bytes(records: Sequence[SourceRecord]) -> int:
    """About how much memory the keys and values of these records take, by a sample of them."""
    if not records:
        return 0
    sample = records[:: max(1, len(records) // _SAMPLE)]
    return sum(_size_of(record.key) + _size_of(record.value) for record in sample) * len(records) // len(sample)


def frame_bytes(frame: SourceFrame) -> int:
    """The size of an Arrow frame; 0 for a Spark DataFrame, which is not computed yet."""
    nbytes: int = frame.data.nbytes if isinstance(frame.data, pa.Table) else 0
    return nbytes


class Batcher:
    """Polls on their way to Spark. Invariant 3.

    Whole polls are joined in order, up to the limits; a poll above `max_records` is cut. Frames are joined when they
    fit together, see ``frame_joining``. Nothing is joined across a place where the task asks for the end of its
    transaction.

    Args:
        limits: how large a batch may grow, and how much may wait here.
        clock: monotonic seconds.
        join_frames: False when the task is to be told of the frames that it returned, each by itself.
        load: of all tasks; None = there are no others.
    """

    def __init__(
        self,
        limits: BatchLimits,
        clock: Callable[[], float] = time.monotonic,
        *,
        join_frames: bool = True,
        load: SharedLoad | None = None,
    ) -> None:
        self._limits = limits
        self._join_frames = join_frames
        self._load = SharedLoad() if load is None else load
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_Entry] = deque()
        self._records = 0
        self._bytes = 0
        self._closed = False
        # Whether a put waits for room. One thread puts.
        self._full = False
        self._end: float | None = None

    def put(self, polled: Polled, end: End = End.POLL) -> bool:
        """Add what a poll returned; waits while the queue is full.

        Args:
            polled: Records or a frame; nothing, where only the end matters.
            end: What is behind it.

        Returns:
            False when it was not taken, or not all of it: the queue was closed meanwhile, or the time set by `end_at`
            is over.
        """
        if isinstance(polled, SourceFrame):
            return self._put(_Entry(polled, polled.num_rows or 0, frame_bytes(polled), end))
        step = self._limits.max_records
        parts = [polled[at : at + step] for at in range(0, len(polled), step)] or [polled]
        return all(
            self._put(_Entry(part, len(part), estimated_bytes(part), end if part is parts[-1] else End.INSIDE))
            for part in parts
        )

    def wait_to_poll(self) -> None:
        """Waits while a poll is queued and the jobs of tasks wait for each other; not past the time of `end_at`."""
        if self._load.has_waiting_jobs:
            with self._changed, waiting_for("back_pressure"):
                self._changed.wait_for(lambda: not self._waiting or self._closed or self._end is not None)

    def take(self) -> Taken | None:
        """The next batch, as large as what has arrived and the limits allow; waits for one.

        Returns:
            None when the queue is closed and empty.
        """
        return self._take(lambda: bool(self._waiting) or self._closed)

    @waiting_for("spark")
    def take_crowded(self, job: Future[Any]) -> Taken | None:
        """A batch that is taken although Spark is busy, because polling has to wait for room.

        Args:
            job: What Spark is busy with.

        Returns:
            None when the job was done first.
        """
        job.add_done_callback(self._notify)
        return self._take(lambda: job.done() or (bool(self._waiting) and (self._full or self._closed)), unless=job.done)

    @property
    def full(self) -> bool:
        """Whether polling waits for room."""
        with self._changed:
            return self._full

    @property
    def crowded(self) -> bool:
        """Whether more is waiting already, or polling waits for room."""
        with self._changed:
            return self._full or bool(self._waiting)

    def _notify(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _take(self, ready: Callable[[], bool], unless: Callable[[], bool] = lambda: False) -> Taken | None:
        with self._changed:
            self._changed.wait_for(ready)
            if not self._waiting or unless():
                return None
            entries = self._pop_joined()
        # Joining copies, so not under the lock.
        ends = accumulate(entry.records for entry in entries)
        polls = [size for size, entry in zip(ends, entries, strict=True) if entry.end is not End.INSIDE]
        return Taken(_joined([entry.polled for entry in entries]), entries[-1].end, polls)

    def _pop_joined(self) -> list[_Entry]:
        """Takes the first entry, and those behind it that fit into one batch with it. The lock is held."""
        first = self._pop()
        entries, records, nbytes = [first], first.records, first.nbytes
        while self._waiting and entries[-1].end in (End.INSIDE, End.POLL):
            entry = self._waiting[0]
            if not self._fits(records, nbytes, entry) or not self._goes_with(first.polled, entry.polled):
                break
            entries.append(self._pop())
            records += entry.records
            nbytes += entry.nbytes
        return entries

    def _goes_with(self, first: Polled, following: Polled) -> bool:
        if isinstance(first, SourceFrame) and isinstance(following, SourceFrame):
            return self._join_frames and can_join(first, following)
        return not isinstance(first, SourceFrame) and not isinstance(following, SourceFrame)

    def end_at(self, moment: float) -> None:
        """A `put` waits no longer than this moment of the clock."""
        with self._changed:
            self._end = moment
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more comes; what is here can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def discard(self) -> None:
        """Close, and forget what is here."""
        with self._changed:
            self._waiting.clear()
            self._load.release(self._bytes)
            self._records = self._bytes = 0
            self._closed = True
            self._changed.notify_all()

    def _put(self, entry: _Entry) -> bool:
        with self._changed:
            while not self._closed:
                self._full = False
                if self._let_wait(entry):
                    self._waiting.append(entry)
                    self._records += entry.records
                    self._bytes += entry.nbytes
                    self._changed.notify_all()
                    return True
                left = None if self._end is None else self._end - self._clock()
                if left is not None and left <= 0:
                    return False
                self._full = True
                self._changed.notify_all()
                with waiting_for("back_pressure"):
                    self._changed.wait(left)
            return False

    def _pop(self) -> _Entry:
        entry = self._waiting.popleft()
        self._records -= entry.records
        self._bytes -= entry.nbytes
        self._load.release(entry.nbytes)
        self._changed.notify_all()
        return entry

    def _let_wait(self, entry: _Entry) -> bool:
        """Whether there is room for an entry; if so, it is counted."""
        if not self._waiting:
            return self._load.let_wait(entry.nbytes, anyway=True)
        if self._bytes + entry.nbytes > _WAITING_BYTES or not self._fits(self._records, self._bytes, entry):
            return False
        return self._load.let_wait(entry.nbytes)

    def _fits(self, records: int, nbytes: int, entry: _Entry) -> bool:
        return records + entry.records <= self._limits.max_records and nbytes + entry.nbytes <= self._limits.max_bytes


class Handover(Generic[T]):
    """A queue bounded by number and size, in order. Invariant 3.

    Args:
        max_items: how many may wait.
        max_bytes: how large they may be together; a single larger one still goes.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._closed = False
        # Whether the thread that takes waits for something to come.
        self._is_asked = False

    @property
    def ended(self) -> bool:
        """Whether it is closed and empty."""
        with self._changed:
            return self._closed and not self._items

    @property
    def waiting(self) -> bool:
        """Whether something can be taken at once."""
        with self._changed:
            return bool(self._items)

    def put(self, item: T, nbytes: int) -> bool:
        """Add an item; waits while the queue is full. False when it was closed."""
        with self._changed, waiting_for("back_pressure"):
            self._changed.wait_for(lambda: self._closed or self._has_room(nbytes))
            if self._closed:
                return False
            self._items.append((item, nbytes))
            self._bytes += nbytes
            self._changed.notify_all()
            return True

    @waiting_for("back_pressure")
    def wait_until_asked(self) -> None:
        """Waits until the queue is empty and its reader waits for the next item."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._is_asked and not self._items))

    def take(self, timeout_s: float | None) -> T | None:
        """The next item; None when none came in time (timeout None: any time), or the queue has ended."""
        with self._changed:
            self._is_asked = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._items or self._closed, timeout_s)
            self._is_asked = False
            if not self._items:
                return None
            item, nbytes = self._items.popleft()
            self._bytes -= nbytes
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Nothing more comes; what is here can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def discard(self) -> None:
        """Close, and forget what is here."""
        with self._changed:
            self._items.clear()
            self._bytes = 0
            self._closed = True
            self._changed.notify_all()

    def _has_room(self, nbytes: int) -> bool:
        return not self._items or (len(self._items) < self._max_items and self._bytes + nbytes <= self._max_bytes)


def _joined(polled: Sequence[Polled]) -> Batch:
    frames = [one for one in polled if isinstance(one, SourceFrame)]
    if frames:
        return join(frames)
    records = [one for one in polled if not isinstance(one, SourceFrame)]
    return SourceRecords(records[0] if len(records) == 1 else list(chain.from_iterable(records)))


def _size_of(value: object, depth: int = 0) -> int:
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if depth < 4 and isinstance(value, (list, tuple)):
        return 8 * len(value) + sum(_size_of(item, depth + 1) for item in value)
    if depth < 4 and isinstance(value, Mapping):
        return sum(_size_of(key, depth + 1) + _size_of(item, depth + 1) for key, item in value.items())
    fields = getattr(value, "values", None)
    if depth < 4 and isinstance(fields, (list, tuple)):
        return _size_of(fields, depth + 1)
    return sys.getsizeof(value)
