"""What a sink task knows of its partitions: how far they were delivered and committed, and which fetches still count.

Main type: ``SinkPartitions``. Pure state: no thread, clock or I/O.

Fetching, conversion and delivery overlap, so records may be on their way when their partition is revoked or sought
to another offset. Each fetch carries an epoch, a number that grows with every assignment and seek; a partition accepts
only records fetched in or after the epoch of its own last assignment or seek. A partition that is not assigned
accepts none.

Owning thread: the task's thread, except where a method says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
            starts: These offsets. They count as committed.
            epoch: Records fetched before it do not count.
            unstored: Partitions whose offset the group does not have yet, although it has to be committed.
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
        """Go on from another offset; records fetched before ``epoch`` do not count any more."""
        known = self._positions.get(partition)
        self.assign({partition: offset}, epoch, unstored=() if known is None or known.stored else [partition])

    def discard_fetched(self, partition: TopicPartition, epoch: int) -> None:
        """Stop counting records fetched before ``epoch``; offsets stay as they are."""
        self._positions[partition].accepts_from = epoch

    def next_to_deliver(self, partition: TopicPartition) -> int:
        """The offset behind the last record that was delivered or is being delivered."""
        position = self._positions[partition]
        return position.current.offset if position.delivering is None else position.delivering

    def behind(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How many offsets delivery is behind the ends of partitions, for those that are assigned. Thread: any."""
        return {
            partition: max(0, ends[partition] - position.current.offset)
            for partition, position in self._positions.items()
            if partition in ends
        }

    def stale(self, partitions: Iterable[TopicPartition], epoch: int) -> set[TopicPartition]:
        """Those of the partitions whose records, fetched in ``epoch``, must not be delivered. Invariant 2."""
        return {
            partition
            for partition in partitions
            if (position := self._positions.get(partition)) is None or position.accepts_from > epoch
        }

    def begin_delivery(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note what a batch will have covered: the offset behind each partition's last record, dropped or not."""
        for partition, end in ends.items():
            if (position := self._positions.get(partition)) is not None:
                position.delivering = end

    def end_delivery(self) -> None:
        """The batch was delivered: what it covered may be committed. Invariant 2."""
        for position in self._positions.values():
            if position.delivering is not None:
                position.current = OffsetAndMetadata(position.delivering)
                position.delivering = None

    def drop_delivery(self) -> None:
        """The batch was given up; it will be fetched again."""
        for position in self._positions.values():
            position.delivering = None

    def current(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far delivery got, for those of the partitions that are assigned."""
        return {tp: self._positions[tp].current for tp in partitions if tp in self._positions}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The last committed offsets, for those of the partitions that are assigned."""
        return {tp: self._positions[tp].committed for tp in partitions if tp in self._positions}

    def unstored(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the group has yet to be told the offset of one of the partitions, even if it does not change."""
        return any((position := self._positions.get(tp)) is not None and not position.stored for tp in partitions)

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit was acknowledged; partitions that have gone meanwhile are left out."""
        for partition, offset in offsets.items():
            if (position := self._positions.get(partition)) is not None:
                position.committed = offset
                position.stored = True
