"""The state of a sink task's partitions: their delivered and committed offsets, and the fetches that still count.

Main types: ``SinkPartitions``, pure state: no thread, clock or I/O. ``PartitionHolders`` (one for all tasks of a
worker) and ``Holder`` (one task of a group): the next task opens a partition only after the one before has closed it.

Fetching, conversion and delivery overlap, so records may be on their way when their partition is revoked or sought
to another offset. Each fetch carries an epoch, a number that grows with every assignment and seek; a partition accepts
only records fetched in or after the epoch of its own last assignment or seek. A partition that is not assigned
accepts none.

A member that gives partitions back keeps the group's coordinator waiting until it joins again. But librdkafka joins
again by itself when it notices new partitions or topics, even while its owner is still closing the revoked partitions.
The coordinator then regards them as closed, and assigns them to another member. If that member is a task of this
worker, it waits here for the close. It does not wait for a task that has not polled for ``max.poll.interval.ms``: that
task has left the group, and may never return.

Owning thread: the task's thread, except where a method says otherwise. ``Holder``: any; one lock guards everything.

Source: KIP-275: `open` of a partition comes after the `close` before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.api import OffsetAndMetadata, TopicPartition


@dataclass
class _Position:
    current: OffsetAndMetadata
    committed: OffsetAndMetadata
    accepts_from: int
    delivering: int | None = None
    stored: bool = True


class SinkPartitions:
    """Offsets of the assigned partitions; nothing is kept of a partition that was revoked or lost.

    >>> t0 = TopicPartition("t", 0)
    >>> partitions = SinkPartitions()
    >>> partitions.assign({t0: 5}, epoch=1)
    >>> partitions.begin_delivery({t0: 9})
    >>> partitions.end_delivery()
    >>> partitions.current([t0])[t0].offset, partitions.committed([t0])[t0].offset
    (9, 5)
    """

    def __init__(self) -> None:
        # Replaced, never given or robbed of a partition, so that other threads can go through it.
        self._positions: Mapping[TopicPartition, _Position] = {}

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are owned now."""
        return frozenset(self._positions)

    def assign(
        self, starts: Mapping[TopicPartition, int], epoch: int, *, unstored: Collection[TopicPartition] = ()
    ) -> None:
        """Take partitions on, each at the offset its next record will have.

        Args:
            starts: The first offset of each; it counts as committed.
            epoch: Records of earlier epochs do not count.
            unstored: Partitions whose offset is still to be committed, because the group does not have it.
        """
        begun = {
            partition: _Position(
                OffsetAndMetadata(offset), OffsetAndMetadata(offset), epoch, stored=partition not in unstored
            )
            for partition, offset in starts.items()
        }
        self._positions = {**self._positions, **begun}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget everything about revoked or lost partitions."""
        gone = set(partitions)
        self._positions = {partition: at for partition, at in self._positions.items() if partition not in gone}

    def rewind(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Continues at another offset; records of earlier epochs do not count."""
        known = self._positions.get(partition)
        self.assign({partition: offset}, epoch, unstored=() if known is None or known.stored else [partition])

    def discard_fetched(self, partition: TopicPartition, epoch: int) -> None:
        """Stop counting records fetched before ``epoch``; offsets stay as they are."""
        self._positions[partition].accepts_from = epoch

    def next_to_deliver(self, partition: TopicPartition) -> int:
        """The offset after the last record that was delivered or is being delivered."""
        position = self._positions[partition]
        return position.current.offset if position.delivering is None else position.delivering

    def behind(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the lag of delivery after the ends of assigned partitions, in offsets. Thread: any."""
        return {
            partition: max(0, ends[partition] - position.current.offset)
            for partition, position in self._positions.items()
            if partition in ends
        }

    def stale(self, partitions: Iterable[TopicPartition], epoch: int) -> set[TopicPartition]:
        """Returns the partitions whose records, fetched in ``epoch``, must not be delivered. Invariant 2."""
        return {
            partition
            for partition in partitions
            if (position := self._positions.get(partition)) is None or position.accepts_from > epoch
        }

    def begin_delivery(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the end of a batch: the offset after each partition's last record, dropped or not."""
        for partition, end in ends.items():
            if (position := self._positions.get(partition)) is not None:
                position.delivering = end

    def end_delivery(self) -> None:
        """The batch was delivered: its offsets may be committed. Invariant 2."""
        for position in self._positions.values():
            if position.delivering is not None:
                position.current = OffsetAndMetadata(position.delivering)
                position.delivering = None

    def deliver_at_once(self, ends: Mapping[TopicPartition, int]) -> None:
        """Partitions were written up to these offsets by somebody else than the loop. Invariant 2."""
        for partition, end in ends.items():
            if (position := self._positions.get(partition)) is not None:
                position.current = OffsetAndMetadata(end)

    def drop_delivery(self) -> None:
        """The batch was abandoned; it will be fetched again."""
        for position in self._positions.values():
            position.delivering = None

    def current(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the delivered offsets of the assigned partitions among these."""
        return {tp: self._positions[tp].current for tp in partitions if tp in self._positions}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The last committed offsets of the assigned partitions among these."""
        return {tp: self._positions[tp].committed for tp in partitions if tp in self._positions}

    def unstored(self, partitions: Iterable[TopicPartition]) -> bool:
        """True if the offset of one of the partitions must be committed to the group, even if it does not change."""
        return any((position := self._positions.get(tp)) is not None and not position.stored for tp in partitions)

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit was acknowledged; partitions that the task has lost since are left out."""
        for partition, offset in offsets.items():
            if (position := self._positions.get(partition)) is not None:
                position.committed = offset
                position.stored = True


class PartitionHolders:
    """The registry of which task has which partition open, in all consumer groups of this worker's tasks.

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
            group: Identifies the group among the groups of all clusters.
            max_poll_interval_s: Seconds without a poll after which the group removes the member.
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
        """The number of seconds this task may wait for another one without losing its own place in the group."""
        return self._max_poll_interval_s * 0.9

    def polled(self) -> None:
        """The task's consumer polls now, and so is a member of its group."""
        self._polled = self._clock()

    def take(self, partitions: Collection[TopicPartition], timeout_s: float, *, anyway: bool = False) -> bool:
        """Hold these partitions, all or none, once no other task does.

        Args:
            partitions: The partitions to take.
            timeout_s: The longest wait for their present holder.
            anyway: Take them from their present holder without waiting.

        Returns:
            True if this task holds them now.
        """
        keys = [(self._group, partition) for partition in partitions]
        with self._changed:
            if not anyway and not self._changed.wait_for(lambda: self._free(keys), timeout_s):
                return False
            self._held.update(dict.fromkeys(keys, self))
            return True

    def give_back(self, partitions: Iterable[TopicPartition]) -> None:
        """The task has closed these partitions and made its last commit for them."""
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
