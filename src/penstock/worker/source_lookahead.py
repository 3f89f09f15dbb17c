"""Lets Spark work on two batches of a source task at once, when polling is faster than Spark.

A batch does not keep both cores busy from its beginning to its end: it is planned, sent to the JVM and received by one
thread each. So while a batch is under way the next one is begun, as soon as polling has to wait because of it. As long
as it does not, a batch is done before the next is taken: small ones would only become more, and slower.

Main type: `Lookahead`. Thread: `next` and `close` belong to the task's pipeline thread; the jobs of batches run on
threads ``spark-<task>`` of its own, which are started when they are first needed.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from penstock.telemetry import BusyTimes
from penstock.worker.source_convert import Outgoing, SourceConverter
from penstock.worker.source_stages import Batch, Batcher
from penstock.worker.threads import OwnedThread, as_future

T = TypeVar("T")

#: Batches that Spark has at once. More would only be memory: two keep its cores busy.
AT_ONCE: Final = 2


@dataclass(frozen=True)
class _Begun:
    """A batch under way: its job, if that runs on another thread, and what ends it."""

    job: Future[Any] | None
    finish: Callable[[], Outgoing]


class Lookahead:
    """The converted batches of a task, in the order they were polled. Invariant 3.

    Args:
        name: the task, for the threads.
        batcher: where polled records wait.
        converter: converts them.
        busy: told of the time that the stage ``spark`` is at work.
    """

    def __init__(self, name: str, batcher: Batcher, converter: SourceConverter, busy: BusyTimes) -> None:
        self._batcher = batcher
        self._converter = converter
        self._busy = busy
        self._under_way: deque[_Begun] = deque()
        self._threads = _JobThreads(f"spark-{name}")

    def next(self) -> Outgoing | None:
        """The next batch, once it is converted.

        Returns:
            None when polling has ended and nothing is left.

        Raises:
            ConnectException: the batch cannot be run at all.
        """
        batch = None if self._under_way else self._batcher.take()
        if batch is None and not self._under_way:
            return None
        with self._busy.at_work("spark"):
            if batch is not None:
                self._begin(batch)
            self._begin_more()
            return self._under_way.popleft().finish()

    def close(self) -> None:
        """Forgets what is under way and lets the threads end; does not wait for them."""
        self._under_way.clear()
        self._threads.close()

    def _begin_more(self) -> None:
        """Begin another batch, if polling waits for one to be taken before the first is done."""
        first = self._under_way[0].job
        while first is not None and len(self._under_way) < AT_ONCE:
            batch = self._batcher.take_crowded(first)
            if batch is None:
                return
            self._begin(batch)

    def _begin(self, batch: Batch) -> None:
        jobs: list[Future[Any]] = []

        def submit(call: Callable[[], T], /) -> Callable[[], T]:
            if not self._batcher.crowded and not self._under_way:
                return call
            future = self._threads.submit(call)
            jobs.append(future)
            return partial(_of, future)

        finish = self._converter.begin(batch, submit)
        self._under_way.append(_Begun(jobs[0] if jobs else None, finish))


def _of(future: Future[T]) -> T:
    """The result of a job, which ``penstock.worker.waiting`` sees waited for here."""
    return future.result()


class _JobThreads:
    """Threads that run what they are given; each is started when the first job for it comes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[OwnedThread] = []

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future, run = as_future(call)
        if len(self._threads) < AT_ONCE:
            thread = OwnedThread(self._name, self._work)
            self._threads.append(thread)
            thread.start()
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
