"""The bounded queue between two threads of a task, source or sink, and the batches that Spark takes from it at once.

A full queue makes the thread before it wait, up to the one that polls or fetches (``back_pressure``). `SharedLoad`, one
for all tasks of a worker, limits their work in progress: work ahead helps a single task, but only costs memory for
many.

A batch does not keep both cores busy from its beginning to its end, so the next one begins while one is in progress
(`OverlappingBatches`), if the supplier of batches would have to wait, and no other task keeps the cores busy. Batches
that only wait for a shared job are begun side by side: the more of them there are, the fewer jobs run.

Thread: one thread puts, one takes; `close`, `discard` and `end_at` come from any thread. `SharedLoad`: any. `next` and
`close` of `OverlappingBatches` belong to the task's pipeline thread; jobs run on threads ``spark-<task>`` of its own.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

from penstock.errors import as_exception
from penstock.pipeline.batch.batches import PendingBatch, Submit
from penstock.telemetry import BusyTimes, waiting_for
from penstock.threads import OwnedThread, as_future, start_within

#: Bytes of polled or fetched records of all tasks that wait for Spark, in addition to one poll or fetch of each task.
WAITING_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class BatchLimits:
    """The limits on the size of a batch; one larger poll, frame or message is still allowed."""

    max_records: int = 50_000
    max_bytes: int = 16 * 1024 * 1024


class SharedLoad:
    """Counts the work in progress of all tasks.

    Args:
        jobs: the number of jobs that keep Spark's cores busy.

    >>> load = SharedLoad(jobs=2, waiting_bytes=10)
    >>> load.begin()
    >>> load.has_idle_cores
    True
    >>> load.begin()
    >>> load.has_idle_cores, load.has_waiting_jobs
    (False, False)
    >>> load.begin()
    >>> load.has_waiting_jobs
    True
    >>> load.let_wait(8), load.let_wait(8), load.let_wait(8, anyway=True)
    (True, False, True)
    >>> load.bytes_left
    0
    """

    def __init__(self, jobs: int = 2, waiting_bytes: int = WAITING_BYTES) -> None:
        self._lock = threading.Lock()
        self._jobs = jobs
        self._waiting_bytes = waiting_bytes
        self._begun = 0
        self._waiting = 0

    @property
    def has_idle_cores(self) -> bool:
        """True if a task that has a batch in Spark may begin another."""
        return self._begun < self._jobs

    @property
    def has_waiting_jobs(self) -> bool:
        """True if jobs wait for each other: a task that works ahead of Kafka then only takes memory."""
        return self._begun > self._jobs

    def begin(self) -> None:
        """A job of a task that is crowded begins; `end` must follow."""
        with self._lock:
            self._begun += 1

    def end(self) -> None:
        """A job that was begun is done."""
        with self._lock:
            self._begun -= 1

    def let_wait(self, nbytes: int, *, anyway: bool = False) -> bool:
        """True if this many bytes may wait; after True, `release` must be called.

        Args:
            anyway: admits it above the limit; each task may always have one waiting poll, or it would never progress.
        """
        with self._lock:
            if not anyway and self._waiting + nbytes > self._waiting_bytes:
                return False
            self._waiting += nbytes
            return True

    @property
    def bytes_left(self) -> int:
        """The number of further bytes that may wait."""
        return max(0, self._waiting_bytes - self._waiting)

    def release(self, nbytes: int) -> None:
        """Notes that this many bytes wait no more."""
        with self._lock:
            self._waiting -= nbytes


T = TypeVar("T")

_UNBOUNDED: Final = BatchLimits(sys.maxsize, sys.maxsize)


class BoundedQueue(Generic[T]):
    """A queue. Invariant 3.

    Args:
        limits: The most records and bytes of all waiting items; a single larger item is still admitted.
        load: The load of all tasks, which counts its bytes; None: not counted.
        changed: Notified at each change; given if threads wait for several conditions at once.

    Attributes:
        changed: The caller holds it for the methods that say so.
    """

    def __init__(
        self,
        items: int = sys.maxsize,
        limits: BatchLimits = _UNBOUNDED,
        *,
        load: SharedLoad | None = None,
        changed: threading.Condition | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = threading.Condition() if changed is None else changed
        self.records = 0
        self.nbytes = 0
        self._items = items
        self._limits = limits
        self._load = load
        self._clock = clock
        self._waiting: deque[tuple[T, int, int]] = deque()
        self._closed = False
        # True if the offering thread waits for room, and its deadline; True if the taking thread waits for an item.
        self._full = False
        self._end: float | None = None
        self._is_asked = False

    def __len__(self) -> int:
        return len(self._waiting)

    # ---------------------------------------------------------------- the lock is held
    def fits(self, records: int, nbytes: int) -> bool:
        """True if the item fits in addition to the waiting ones."""
        limits = self._limits
        return not self._waiting or (
            len(self._waiting) < self._items
            and self.records + records <= limits.max_records
            and self.nbytes + nbytes <= limits.max_bytes
        )

    def add(self, item: T, records: int, nbytes: int) -> None:
        """Add an item above the limits, too."""
        if self._load is not None:
            self._load.let_wait(nbytes, anyway=True)
        self._append(item, records, nbytes)

    def pop(self) -> tuple[T, int, int]:
        """The first item, with its records and bytes."""
        taken = self._waiting.popleft()
        _, records, nbytes = taken
        self.records -= records
        self.nbytes -= nbytes
        if self._load is not None:
            self._load.release(nbytes)
        self.changed.notify_all()
        return taken

    def pop_joined(self, limits: BatchLimits, joins: Callable[[T, T, T], bool]) -> list[T]:
        """The first item, and the items after it that make one batch with it.

        Args:
            joins: True if an item joins the batch; called with the first item, the one before it, and the item.
        """
        item, records, nbytes = self.pop()
        taken = [item]
        while self._waiting:
            item, more_records, more_bytes = self._waiting[0]
            records += more_records
            nbytes += more_bytes
            if records > limits.max_records or nbytes > limits.max_bytes or not joins(taken[0], taken[-1], item):
                break
            taken.append(self.pop()[0])
        return taken

    def clear(self) -> None:
        self._waiting.clear()
        if self._load is not None:
            self._load.release(self.nbytes)
        self.records = self.nbytes = 0
        self.changed.notify_all()

    # ---------------------------------------------------------------- the thread that puts
    def offer(self, item: T, records: int, nbytes: int) -> bool:
        """Add an item; waits while there is no room.

        Returns:
            False if the item was not added: the queue was closed, or the time set by `end_at` is over.
        """
        with self.changed:
            while not self._closed:
                self._full = False
                if self._lets_wait(records, nbytes):
                    self._append(item, records, nbytes)
                    return True
                left = None if self._end is None else self._end - self._clock()
                if left is not None and left <= 0:
                    return False
                self._full = True
                self.changed.notify_all()
                with waiting_for("back_pressure"):
                    self.changed.wait(left)
            return False

    def wait_until_asked(self) -> None:
        """Waits until it is empty and its reader waits for the next item."""
        with self.changed, waiting_for("back_pressure"):
            self.changed.wait_for(lambda: self._closed or (self._is_asked and not self._waiting))

    # ---------------------------------------------------------------- the thread that takes
    @property
    def ended(self) -> bool:
        """True if it is closed and empty."""
        with self.changed:
            return self._closed and not self._waiting

    def take_one(self, timeout_s: float | None) -> T | None:
        """The next item; None when none came in time (timeout None: any time), or it has ended."""
        with self.changed:
            self._is_asked = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self._waiting or self._closed, timeout_s)
            self._is_asked = False
            return self.pop()[0] if self._waiting else None

    # ---------------------------------------------------------------- any thread
    def end_at(self, moment: float) -> None:
        """`offer` waits no longer than this moment of the clock."""
        with self.changed:
            self._end = moment
            self.changed.notify_all()

    def close(self) -> None:
        """Refuses further items; the waiting items can still be taken."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def discard(self) -> None:
        """Close, and drop all items."""
        with self.changed:
            self._closed = True
            self.clear()

    def _lets_wait(self, records: int, nbytes: int) -> bool:
        """True if there is room; if so, it is counted in the load of all tasks."""
        if not self.fits(records, nbytes):
            return False
        return self._load is None or self._load.let_wait(nbytes, anyway=not self._waiting)

    def _append(self, item: T, records: int, nbytes: int) -> None:
        self._waiting.append((item, records, nbytes))
        self.records += records
        self.nbytes += nbytes
        self.changed.notify_all()


Taken = TypeVar("Taken")
Waiting_co = TypeVar("Waiting_co", covariant=True)
Made = TypeVar("Made")

#: Batches that Spark has at once. More would only be memory: two keep its cores busy.
AT_ONCE: Final = 2
#: The most batches that wait for a shared job, and the bytes that they hold together.
SHARING: Final = 8
SHARING_BYTES: Final = 8 * 1024 * 1024


class Inflow(Protocol[Waiting_co]):
    """A queue of batches, in order."""

    def take(self) -> Waiting_co | None:
        """The next batch; waits for one. None when no more will come."""

    def take_crowded(self, job: Future[Any], /) -> Waiting_co | None:
        """A batch that is taken while Spark runs `job`, because the stage before waits for room.

        Returns:
            None when the job was done first, or no more will come.
        """

    @property
    def crowded(self) -> bool:
        """True if batches come faster than they are taken."""


class _Begun(Generic[Made]):
    """A batch in progress, and its job, if that runs on another thread.

    Attributes:
        shares: The bytes that it holds while it waits for a job that it shares; None: it has its own.
        batch: The batch; its result may be an error of its beginning, so that batches before it end first.
    """

    def __init__(self, threads: _JobThreads, load: SharedLoad, goes_aside: Callable[[], bool]) -> None:
        self._threads = threads
        self._goes_aside = goes_aside
        self._load = load
        self.job: Future[Any] | None = None
        self.shares: int | None = None
        self.batch: PendingBatch[Made]

    def submit(self, call: Callable[[], T], /, *, shares: int | None = None) -> PendingBatch[T]:
        """See ``Submit``: the job runs where its result is asked for, unless it goes aside."""
        if not self._goes_aside():
            return PendingBatch(call)
        self.job = future = self._threads.submit(call)
        self.shares = shares
        if shares is None:
            self._load.begin()
            future.add_done_callback(lambda _: self._load.end())
        else:
            self._load.let_wait(shares, anyway=True)
        return PendingBatch(partial(_of, future))


class OverlappingBatches(Generic[Taken, Made]):
    """The converted batches of a task, in the order they came. Invariant 3.

    Args:
        begin: begins a batch and hands its job to the `Submit`; the results of batches are asked for in their order.
        load: the load of all tasks; a second batch begins only if a core is idle.
    """

    def __init__(
        self,
        name: str,
        inflow: Inflow[Taken],
        begin: Callable[[Taken, Submit], PendingBatch[Made]],
        busy: BusyTimes,
        load: SharedLoad,
    ) -> None:
        self._inflow = inflow
        self._begin_one = begin
        self._busy = busy
        self._load = load
        self._under_way: deque[_Begun[Made]] = deque()
        self._threads = _JobThreads(f"spark-{name}")

    def next(self) -> Made | None:
        """The next batch, once it is converted.

        Returns:
            None when no more will come and nothing is left.

        Raises:
            ConnectException: the batch cannot be run at all.
        """
        batch = None if self._under_way else self._inflow.take()
        if batch is None and not self._under_way:
            return None
        with self._busy.at_work("spark"):
            if batch is not None:
                self._begin(batch)
            self._begin_more()
            first = self._under_way.popleft()
            self._load.release(first.shares or 0)
            return first.batch.result()

    def close(self) -> None:
        """Abandons the batches in progress and lets the threads end, without waiting for them."""
        self._load.release(sum(one.shares or 0 for one in self._under_way))
        self._under_way.clear()
        self._threads.close()

    def _begin_more(self) -> None:
        """Begin another batch, if the next has to wait before the first is done."""
        first = self._under_way[0].job
        while first is not None and self._has_room():
            batch = self._inflow.take_crowded(first)
            if batch is None:
                return
            self._begin(batch)

    def _has_room(self) -> bool:
        """True if another batch may be begun."""
        held = [one.shares for one in self._under_way if one.shares is not None]
        if len(held) == len(self._under_way):
            return len(held) < SHARING and sum(held) < SHARING_BYTES and self._load.bytes_left > 0
        return len(self._under_way) < AT_ONCE and self._load.has_idle_cores

    def _begin(self, batch: Taken) -> None:
        begun = _Begun[Made](self._threads, self._load, lambda: self._inflow.crowded or bool(self._under_way))
        try:
            begun.batch = self._begin_one(batch, begun.submit)
        except BaseException as error:
            begun.batch = PendingBatch(partial(_raise, as_exception(error)))
        self._under_way.append(begun)


def _raise(error: Exception) -> NoReturn:
    raise error


def _of(future: Future[T]) -> T:
    with waiting_for("spark"):
        return future.result()


class _JobThreads:
    """Threads that run jobs; each starts with its first job."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[OwnedThread] = []

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future, run = as_future(call)
        if len(self._threads) < AT_ONCE:
            self._threads.append(start_within(self._name, self._work))
        self._jobs.put(run)
        return future

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (run := self._jobs.get()) is not None:
            run()
            # The batch is not to be kept until the next one comes.
            del run
