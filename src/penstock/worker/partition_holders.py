"""Which task of this worker has a partition open: the next task opens it only after that one has closed it.

Main types: ``PartitionHolders`` (one for all tasks of a worker) and ``Holder`` (one task of a group). No I/O.

The group's coordinator waits for a member that gives partitions back, until it joins again. But librdkafka joins again
by itself when it notices new partitions or topics, even while its owner is still closing what it has to give back. The
coordinator then takes the closing for done, and assigns the partitions to another member. Where that one is a task of
this worker, it waits here.

Nobody waits for a task that has not polled for ``max.poll.interval.ms``: it has left the group, and may never return.

Thread: any; one lock guards everything.

Source: KIP-275, runtime.md section 8: `open` of a partition comes after the `close` before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable

from penstock.api import TopicPartition


class PartitionHolders:
    """Which task has which partition open, in all consumer groups of this worker's tasks.

    Args:
        clock: Seconds, for `max.poll.interval.ms`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._held: dict[tuple[str, TopicPartition], Holder] = {}

    def holder(self, group: str, max_poll_interval_s: float = 300.0) -> Holder:
        """A new member of a group, which holds nothing.

        Args:
            group: Tells groups apart, of all clusters.
            max_poll_interval_s: How long the member may stay away before the group goes on without it.
        """
        return Holder(group, max_poll_interval_s, self._held, self._changed, self._clock)


class Holder:
    """One task; made by ``PartitionHolders``."""

    def __init__(
        self,
        group: str,
        max_poll_interval_s: float,
        held: dict[tuple[str, TopicPartition], Holder],
        changed: threading.Condition,
        clock: Callable[[], float],
    ) -> None:
        self._group = group
        self._max_poll_interval_s = max_poll_interval_s
        self._held = held
        self._changed = changed
        self._clock = clock
        self._polled = clock()

    @property
    def patience_s(self) -> float:
        """How many seconds this task may wait for another one without losing its own place in the group."""
        return self._max_poll_interval_s * 0.9

    def polled(self) -> None:
        """The task's consumer polls now, and so is a member of its group."""
        self._polled = self._clock()

    def take(self, partitions: Collection[TopicPartition], timeout_s: float, *, anyway: bool = False) -> bool:
        """Hold these partitions, all or none, once no other task does.

        Args:
            partitions: Which.
            timeout_s: How long to wait for it.
            anyway: Do not wait; who holds them now does not any more.

        Returns:
            Whether they are held.
        """
        keys = [(self._group, partition) for partition in partitions]
        with self._changed:
            if not anyway and not self._changed.wait_for(lambda: self._free(keys), timeout_s):
                return False
            self._held.update(dict.fromkeys(keys, self))
            return True

    def give_back(self, partitions: Iterable[TopicPartition]) -> None:
        """The task has closed these partitions, and committed what it had to."""
        with self._changed:
            for partition in partitions:
                self._drop((self._group, partition))
            self._changed.notify_all()

    def leave(self) -> None:
        """The task has ended or was abandoned: it holds nothing."""
        with self._changed:
            for key in [key for key, holder in self._held.items() if holder is self]:
                self._drop(key)
            self._changed.notify_all()

    def _drop(self, key: tuple[str, TopicPartition]) -> None:
        if self._held.get(key) is self:
            del self._held[key]

    def _free(self, keys: Iterable[tuple[str, TopicPartition]]) -> bool:
        now = self._clock()
        holders = {holder for key in keys if (holder := self._held.get(key)) is not None and holder is not self}
        return all(now >= holder._polled + holder._max_poll_interval_s for holder in holders)
