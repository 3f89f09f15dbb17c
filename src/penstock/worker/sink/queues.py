"""The shared state of the three threads of a sink task: fetched and converted batches, events, calls for the consumer.

::

    fetch thread --FetchedChunk--> conversion thread --ConvertedBatch--> task thread
         \\______________________________ events ___________________________/
          <____________________________ consumer calls ____________________/

Both queues are bounded, by records and bytes before the conversion, and by batches and bytes after it; all tasks
together share a limit before the conversion. One lock guards everything; a batch takes a few operations, so there is no
contention. Owning thread: any, see the methods.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar, cast

import pyarrow as pa

from penstock.api import OffsetAndMetadata, TopicPartition
from penstock.errors import ConnectException
from penstock.kafka.consumer.consumer import FetchedChunk, Placement, RebalanceListener
from penstock.kafka.consumer.offsets import Subscription
from penstock.pipeline.batch.batches import SinkBatch
from penstock.pipeline.columns.sizes import cut_at, slices_of
from penstock.telemetry import BusyTimes, waiting_for
from penstock.worker.task.bounded_queue import BatchLimits, BoundedQueue, SharedLoad

T = TypeVar("T")

#: Less than so much of a largest batch is not worth fetching; a task may fetch it while others take all the room.
_LEAST_SHARE: Final = 16
#: While the topic has more, a batch is gathered up to this part of its limit, for at most this time: a job costs some
#: ten milliseconds of processor time, the same as a thousand messages of 1 KB.
GATHER_SHARE: Final = 2
GATHER_S: Final = 0.25
#: The most converted batches that wait for the task; more than one only if they are together at most ``max_bytes``, as
#: fetched.
CONVERTED_BATCHES = 2
#: The stages of a sink task, as ``BusyTimes`` names them.
STAGES: Final = ("fetch", "spark", "put")


class StagesClosed(ConnectException):
    """The task has ended or was cancelled; nothing moves any more."""


class SinkConsumer(Protocol):
    """The part of ``penstock.kafka.consumer.consumer.RecordConsumer`` that a sink task needs; see there."""

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """Joins the group; ``fetch`` reports rebalances to ``listener``."""

    def fetch(self, max_records: int, timeout_s: float) -> FetchedChunk | None:
        """Returns the messages that have arrived, as columns, or None if there were none in that time."""

    def seek(self, positions: Mapping[TopicPartition, int]) -> int:
        """Sets the next offsets to fetch; returns the epoch of the fetches that follow."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops fetching these partitions until ``resume``."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetches these partitions again."""

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], answer: Callable[[Exception | None], None]
    ) -> None:
        """Commits without waiting; ``answer`` gets the error, or None."""

    def commit_sync(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits and waits for the answer."""

    def ends(self) -> dict[TopicPartition, int]:
        """The end offset of each assigned partition."""

    def interrupt(self) -> None:
        """Ends a ``fetch`` that waits. Any thread."""

    def close(self) -> None:
        """Leaves the group."""


@dataclass(frozen=True)
class ConvertedBatch:
    """Converted records on their way to the task.

    Attributes:
        fetched: The source messages; row i belongs to record i.
        attempts: The number of attempts of failed rows, if more than one.
    """

    fetched: FetchedChunk
    batch: SinkBatch
    attempts: Mapping[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Request:
    """A request of the fetch thread, which waits for the answer."""

    answered: bool = field(default=False, init=False)
    placement: Placement | None = field(default=None, init=False)


@dataclass(eq=False)
class Assigned(Request):
    """New partitions and where they would begin, see ``RebalanceListener``; the answer is a ``Placement``."""

    starts: Mapping[TopicPartition, int]
    epoch: int
    at_end: frozenset[TopicPartition] = frozenset()


@dataclass(eq=False)
class Revoked(Request):
    """Partitions are about to go; they can still be committed."""

    partitions: Sequence[TopicPartition]


@dataclass(eq=False)
class Lost(Request):
    """Partitions have gone."""

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True)
class CommitAnswered:
    """The broker answered an asynchronous commit."""

    sequence: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: Exception | None


@dataclass(frozen=True)
class StageFailed:
    """Fetching or converting has failed for good."""

    error: BaseException


Event = Assigned | Revoked | Lost | CommitAnswered | StageFailed


@dataclass
class SinkCounts:
    """Plain counters (``sink-task-metrics``), read by metrics from any thread."""

    records_read: int = 0
    records_put: int = 0
    puts: int = 0
    put_time_ms: float = 0.0
    put_time_max_ms: float = 0.0
    partitions: int = 0


def parts_of(chunk: FetchedChunk, max_bytes: int) -> list[FetchedChunk]:
    """Splits a chunk into parts of at most ``max_bytes``, unless a single message is larger.

    A fetch of some kilobytes may bring any number of bytes: the client decompresses all of it before the size of the
    messages is known.
    """
    starts = cut_at(chunk.table, max_bytes)
    if len(starts) == 1:
        return [chunk]
    return [replace(chunk, table=table, ends=ends_of(table)) for table in slices_of(chunk.table, starts)]


def ends_of(table: pa.Table) -> dict[TopicPartition, int]:
    """The offset after the last message of each partition; the offsets ascend."""
    last = table.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    found = last.to_pydict()
    return {
        TopicPartition(topic, partition): offset + 1
        for topic, partition, offset in zip(found["topic"], found["partition"], found["offset_max"], strict=True)
    }


def _joins(first: FetchedChunk, _: FetchedChunk, chunk: FetchedChunk) -> bool:
    """True if a chunk can join the batch of the first chunk: an unreadable chunk is a batch by itself."""
    return chunk.epoch == first.epoch and chunk.unreadable is None and first.unreadable is None


class SinkStages:
    """Queues between the threads of one sink task; order is kept. Invariant 3.

    Args:
        load: The load of all tasks; None: this is the only task.
    """

    def __init__(self, limits: BatchLimits, load: SharedLoad | None = None) -> None:
        self.limits = limits
        self._load = SharedLoad(waiting_bytes=limits.max_bytes) if load is None else load
        self.busy = BusyTimes(STAGES)
        self.counts = SinkCounts()
        self._changed = threading.Condition()
        self._chunks = BoundedQueue[FetchedChunk](load=self._load, changed=self._changed)
        self._converted = BoundedQueue[ConvertedBatch](
            CONVERTED_BATCHES, BatchLimits(sys.maxsize, limits.max_bytes), changed=self._changed
        )
        self._events: deque[Event] = deque()
        self._calls: deque[tuple[Callable[[SinkConsumer], object], Future[Any]]] = deque()
        self._woken = False
        self._quiet = False
        self._closed = False
        # True if the queue had no room for messages when the latest batch was taken.
        self._was_full = False
        # True if the topic has more messages after the last fetch; the time until which the queue waits for them.
        self._more = False
        self._gather_until = 0.0

    # -- Fetch thread ------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """Returns the number of records that may be fetched now. Thread: fetch."""
        with self._changed:
            return self._room()

    def _room(self) -> int:
        if self._quiet or not self._bytes_left():
            return 0
        return max(0, self.limits.max_records - self._chunks.records)

    def room_bytes(self) -> int:
        """Returns the number of bytes that the next fetch may bring, if there is room. Thread: fetch."""
        with self._changed:
            return self._bytes_left()

    def _bytes_left(self) -> int:
        left = min(self.limits.max_bytes - self._chunks.nbytes, self._load.bytes_left)
        least = self.limits.max_bytes // _LEAST_SHARE
        # A task with an empty queue may always fetch, whatever the other tasks have queued.
        return left if left > least else 0 if self._chunks else least

    def add_fetched(self, chunk: FetchedChunk) -> None:
        """Hand messages to the conversion, in parts that fit a batch; does not wait. Thread: fetch."""
        parts = parts_of(chunk, self.limits.max_bytes)
        with self._changed:
            if self._quiet or self._closed:
                return
            self._more = chunk.more
            if not self._chunks:
                self._gather_until = time.monotonic() + GATHER_S
            for part in parts:
                self._chunks.add(part, part.table.num_rows, part.table.nbytes)

    def post(self, event: Event) -> None:
        """Queue an event for the task's thread. Thread: fetch, conversion."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def take_calls(self) -> list[tuple[Callable[[SinkConsumer], object], Future[Any]]]:
        """Takes the task's calls for the consumer. Thread: fetch."""
        with self._changed:
            calls = list(self._calls)
            self._calls.clear()
            return calls

    def wait_in_fetch(self, timeout_s: float, until: Request | None = None) -> None:
        """Wait for calls, for room (without a request), for the answer to the request, or the end. Thread: fetch."""

        def ready() -> bool:
            if self._closed or self._calls:
                return True
            if until is not None:
                return until.answered
            return self._room() > 0

        with self._changed:
            self._changed.wait_for(ready, timeout_s)

    # -- Conversion thread -------------------------------------------------------------------------------------------

    def take(self) -> FetchedChunk | None:
        """Takes the next batch to convert: all chunks of one epoch that fit a batch.

        Waits until there is something, and a moment longer for more of a topic that has more; None at the end. Thread:
        conversion.
        """
        return self._take(self._has_gathered, gathers=True)

    def _has_gathered(self) -> bool:
        """True if the queued messages make a batch: enough of them, or no more can be had for now."""
        waiting = self._chunks
        return bool(waiting) and (
            not self._more
            or self._room() == 0
            or waiting.records >= self.limits.max_records // GATHER_SHARE
            or waiting.nbytes >= self.limits.max_bytes // GATHER_SHARE
            or time.monotonic() >= self._gather_until
        )

    @waiting_for("spark")
    def take_crowded(self, job: Future[Any]) -> FetchedChunk | None:
        """As ``take``, while a batch is being converted: only if fetching waits for room.

        Args:
            job: Converts the batch before. None when it is done first.

        Thread: conversion.
        """
        job.add_done_callback(self._notify)
        return self._take(lambda: bool(self._chunks) and self._room() == 0, unless=job.done)

    @property
    def crowded(self) -> bool:
        """True if fetching had to wait for room, or more is waiting already. Thread: conversion."""
        with self._changed:
            return self._was_full or bool(self._chunks)

    def _notify(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _take(
        self, ready: Callable[[], bool], unless: Callable[[], bool] = lambda: False, *, gathers: bool = False
    ) -> FetchedChunk | None:
        with self._changed:
            while not (self._closed or unless() or (not self._quiet and ready())):
                waits = gathers and self._chunks and not self._quiet
                self._changed.wait(max(0.0, self._gather_until - time.monotonic()) if waits else None)
            if self._closed or unless():
                return None
            self._was_full = self._room() == 0
            chunks = self._chunks.pop_joined(self.limits, _joins)
        ends: dict[TopicPartition, int] = {}
        for chunk in chunks:
            ends.update(chunk.ends)
        table = chunks[0].table if len(chunks) == 1 else pa.concat_tables([chunk.table for chunk in chunks])
        return FetchedChunk(table, ends, chunks[0].epoch, chunks[0].unreadable)

    def offer_converted(self, batch: ConvertedBatch) -> bool:
        """Hand a batch to the task as soon as there is room; False: the end has come. Thread: conversion."""
        nbytes = batch.fetched.table.nbytes
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._converted.fits(0, nbytes))
            if self._closed:
                return False
            self._converted.add(batch, 0, nbytes)
            return True

    # -- Task thread -------------------------------------------------------------------------------------------------

    def take_events(self) -> list[Event]:
        """Takes the events since the last call. Thread: task."""
        with self._changed:
            events = list(self._events)
            self._events.clear()
            self._woken = False
            return events

    def take_converted(self) -> ConvertedBatch | None:
        """The next batch, if one is ready. Thread: task."""
        with self._changed:
            return self._converted.pop()[0] if self._converted else None

    def wait_in_task(self, timeout_s: float, *, for_batches: bool) -> None:
        """Wait for an event, a wake-up, or (if wanted) a batch. Thread: task."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._woken or self._events or (for_batches and self._converted), timeout_s
            )

    def answer(self, request: Request, placement: Placement | None = None) -> None:
        """Answer the fetch thread's request. Thread: task."""
        with self._changed:
            request.placement = placement
            request.answered = True
            self._changed.notify_all()

    def submit(self, action: Callable[[SinkConsumer], T]) -> Future[T]:
        """Have the fetch thread call the consumer, between two fetches or inside a rebalance. Thread: task."""
        future: Future[T] = Future()
        with self._changed:
            # Invariant 4: a cancelled task has its stages closed, so no call of it reaches the consumer.
            if self._closed:
                future.set_exception(StagesClosed("The consumer of this task is closed"))
            else:
                self._calls.append((cast("Callable[[SinkConsumer], object]", action), future))
                self._changed.notify_all()
        return future

    def answer_of(self, future: Future[T], owner: str) -> T:
        """Waits for the answer of another thread of this task. Thread: task.

        Raises:
            StagesClosed: The task was ended before the answer came.
        """
        while True:
            try:
                return future.result(1.0)
            except FutureTimeout:
                if self.closed:
                    raise StagesClosed(f"{owner} was ended") from None

    def be_quiet(self) -> None:
        """Fetch and convert nothing more; consumer calls still work. Thread: task."""
        with self._changed:
            self._quiet = True
            self._chunks.clear()
            self._converted.clear()

    # -- Any thread --------------------------------------------------------------------------------------------------

    def wake_task(self) -> None:
        """Wakes the task's thread, which then looks at its requests. Thread: any."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """True if the stages are closed. Thread: any."""
        with self._changed:
            return self._closed

    def close(self) -> None:
        """Ends everything: every wait returns, and calls without an answer fail. Thread: any."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
            abandoned: list[Future[Any]] = [future for _, future in self._calls]
            self._calls.clear()
            self._changed.notify_all()
        for future in abandoned:
            future.set_exception(StagesClosed("The task was ended before this call was made"))
