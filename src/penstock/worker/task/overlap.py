"""Lets Spark work on two batches of a task at once, when they come faster than it converts them.

A batch does not keep both cores busy from its beginning to its end: one thread plans it, sends it to the JVM and
receives it. So the next batch begins while one is in progress, as soon as the supplier of batches (``poll``, or the
fetching of messages) has to wait for it. While the supplier does not wait, a batch ends before the next is taken:
overlapping would only make small batches more and slower. Other tasks that keep the cores busy also prevent it. Batches
that only wait for a shared job are begun side by side, up to eight: the more of them there are, the fewer jobs run.

Main types: `OverlappingBatches`, and `Inflow`, where batches wait for it; ``begun`` is for its callers.
Thread: `next` and `close` belong to the task's pipeline thread; the jobs of batches run on threads ``spark-<task>`` of
its own, which are started when they are first needed.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.errors import as_exception
from penstock.pipeline.batch.batches import Submit
from penstock.telemetry import BusyTimes, waiting_for
from penstock.threads import OwnedThread, as_future, start_within
from penstock.worker.task.bounded_queue import SharedLoad

T = TypeVar("T")
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


@dataclass(frozen=True)
class _Begun(Generic[Made]):
    """A batch in progress: its job, if that runs on another thread, and the function that ends it.

    Attributes:
        shares: The bytes that it holds while it waits for a job that it shares; None: it has its own.
    """

    job: Future[Any] | None
    finish: Callable[[], Made]
    shares: int | None


class OverlappingBatches(Generic[Taken, Made]):
    """The converted batches of a task, in the order they came. Invariant 3.

    Args:
        name: the task, for the threads.
        inflow: the queue of batches.
        begin: begins a batch and hands its job to the `Submit`; returns the function that ends it, which is called once
            for each batch, in their order.
        busy: records the busy time of the stage ``spark``.
        load: the load of all tasks; a second batch begins only if a core is idle.
    """

    def __init__(
        self,
        name: str,
        inflow: Inflow[Taken],
        begin: Callable[[Taken, Submit], Callable[[], Made]],
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
            return first.finish()

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
        jobs: list[Future[Any]] = []
        held: int | None = None

        def submit(call: Callable[[], T], /, *, shares: int | None = None) -> Callable[[], T]:
            nonlocal held
            if not self._inflow.crowded and not self._under_way:
                return call
            future = self._threads.submit(call)
            jobs.append(future)
            if shares is None:
                self._load.begin()
                future.add_done_callback(lambda _: self._load.end())
            else:
                held = shares
                self._load.let_wait(shares, anyway=True)
            return partial(_of, future)

        finish = self._begin_one(batch, submit)
        self._under_way.append(_Begun(jobs[0] if jobs else None, finish, held))


def begun(begin: Callable[[], Callable[[], T]]) -> Callable[[], T]:
    """Begins a batch. An error of that is raised when the batch is ended, so that batches before it end first."""
    try:
        return begin()
    except BaseException as error:
        failed = as_exception(error)

        def finish() -> T:
            raise failed

        return finish


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
