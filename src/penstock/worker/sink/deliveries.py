"""The partitions of a sink task, and the batches that are delivered of them: which rows still count, up to which
offset.

Main types: ``SinkPartitions`` has the delivered and committed offsets of each partition; it is pure state without
thread, clock or I/O. ``PartitionHolders`` (one for all tasks of a worker) and ``Holder`` (one task of a group): the
next task opens a partition only after the one before has closed it. ``SinkDeliveries`` makes deliveries of converted
batches; ``SinkDelivery`` is one batch in the course of being put. Functions ``rows_of``, ``prefix_ends`` and
``message_at`` read Arrow tables of consumed messages; they are pure.

Fetching, conversion and delivery overlap, so records may be in flight when their partition is revoked or sought to
another offset. Each fetch carries an epoch, a number that grows with every assignment and seek; a partition accepts
only records fetched in or after the epoch of its own last assignment or seek. A partition that is not assigned
accepts none.

A member that gives partitions back keeps the group's coordinator waiting until it joins again. But librdkafka joins
again by itself when it notices new partitions or topics, even while its owner is still closing the revoked partitions.
The coordinator then regards them as closed, and assigns them to another member. If that member is a task of this
worker, it waits here for the close. It does not wait for a task that has not polled for ``max.poll.interval.ms``: that
task has left the group, and may never return.

Owning thread: the task's thread, except where a method says otherwise. ``Holder``: any; one lock guards everything.

Source: ``WorkerSinkTask`` (``convertMessages``); KIP-275: `open` of a partition comes after the `close` before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import OffsetAndMetadata, SinkFrame, SinkRecord, TopicPartition
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import SinkBatch
from penstock.worker.errors.reporters import ConsumedMessage
from penstock.worker.errors.tolerance import ErrorHandler
from penstock.worker.sink.queues import ConvertedBatch, SinkStages, ends_of


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


@dataclass
class SinkDelivery:
    """A batch on its way into the task; kept and tried again while ``put`` asks for that.

    Attributes:
        table: The consumed rows it came from.
        records: For record tasks: the records to put, without dropped and failed ones, each with its row in ``table``.
        frames: For frame tasks: the frames still to be put, in order.
        ends: The offset after the last consumed row of each partition, whether that row is delivered or not.
        fatal: The error that fails the task after this delivery; the next record caused it.
    """

    table: pa.Table
    records: Sequence[SinkRecord] | None
    frames: list[SinkFrame] | None
    ends: Mapping[TopicPartition, int]
    fatal: ConnectException | None = None

    @property
    def size(self) -> int:
        """The number of records that are still to be put."""
        if self.frames is not None:
            return sum(frame.num_rows for frame in self.frames)
        return len(self.records or ())

    def without(self, partitions: Collection[TopicPartition]) -> SinkDelivery:
        """The same without the records of some partitions."""
        ends = {partition: end for partition, end in self.ends.items() if partition not in partitions}
        table = self.table.filter(pc.invert(rows_of(self.table, partitions)))
        if self.frames is not None:
            return SinkDelivery(table, None, _frames_before(self.frames, ends), ends, self.fatal)
        kept = [
            record
            for record in self.records or ()
            if (record.original_topic, record.original_kafka_partition) not in partitions
        ]
        return SinkDelivery(table, kept, None, ends, self.fatal)


class SinkDeliveries:
    """Makes deliveries of converted batches.

    Args:
        name: The task, for error messages.
        partitions: Decides which rows still count.
        stages: The source of batches.
        errors: Handles failed records.
        note_topics: Gets the topics of each batch of which a record was converted.
    """

    def __init__(
        self,
        name: str,
        partitions: SinkPartitions,
        stages: SinkStages,
        errors: ErrorHandler,
        note_topics: Callable[[Sequence[str]], None],
    ) -> None:
        self._name = name
        self._partitions = partitions
        self._stages = stages
        self._errors = errors
        self._note_topics = note_topics

    def next(self) -> SinkDelivery | None:
        """The next batch with anything that still counts; None when no more is ready."""
        while (converted := self._stages.take_converted()) is not None:
            delivery = self._prepare(converted)
            if delivery is not None:
                return delivery
        return None

    def _prepare(self, converted: ConvertedBatch) -> SinkDelivery | None:
        """Leave out rows of partitions that have gone or were rewound, handle failed records, cut at a fatal one."""
        fetched, batch = converted.fetched, converted.batch
        table, records, errors = fetched.table, records_by_row(batch, fetched.table.num_rows), dict(batch.errors)
        attempts = dict(converted.attempts)
        stale = self._partitions.stale(fetched.ends, fetched.epoch)
        if len(stale) == len(fetched.ends):
            return None
        ends = {partition: end for partition, end in fetched.ends.items() if partition not in stale}
        if stale:
            kept = pc.indices_nonzero(pc.invert(rows_of(table, stale))).to_pylist()
            table = table.take(pa.array(kept, pa.int64()))
            records = None if records is None else [records[row] for row in kept]
            attempts = {new: attempts[old] for new, old in enumerate(kept) if old in attempts}
            errors = {new: errors[old] for new, old in enumerate(kept) if old in errors}
        self._stages.counts.records_read += table.num_rows
        if len(errors) < table.num_rows:
            self._note_topics(sorted({partition.topic for partition in ends}))
        fatal = self._errors.handle_batch(errors, lambda row: message_at(table, row), attempts=attempts)
        whole = table
        if fatal is not None:
            # Invariant 2: the delivered and committed rows end before the record that fails the task.
            table = whole.slice(0, fatal.seq)
            ends = prefix_ends(whole, fatal.seq)
            records = None if records is None else records[: fatal.seq]
        fatal_error = None if fatal is None else fatal.exception
        if records is None:
            frames = list(batch.frames or ())
            if stale or fatal is not None:
                frames = _frames_before(frames, ends)
            return SinkDelivery(table, None, frames, ends, fatal_error)
        if batch.origins is not None:
            pieces = cast("Sequence[Sequence[SinkRecord]]", records)
            return SinkDelivery(table, list(chain.from_iterable(pieces)), None, ends, fatal_error)
        if errors or batch.count_dropped:
            records = [record for record in records if record is not None]
        # Without errors and dropped ones every row has its record.
        return SinkDelivery(table, cast("Sequence[SinkRecord]", records), None, ends, fatal_error)


def records_by_row(batch: SinkBatch, rows: int) -> Sequence[object] | None:
    """Returns the result of each consumed row: its record or None; a list of records if transforms made several."""
    if batch.records is None or batch.origins is None:
        return batch.records
    found: list[list[SinkRecord]] = [[] for _ in range(rows)]
    for origin, record in zip(batch.origins.tolist(), batch.records, strict=True):
        if record is not None:
            found[origin].append(record)
    return found


def _frames_before(frames: Sequence[SinkFrame], ends: Mapping[TopicPartition, int]) -> list[SinkFrame]:
    """The rows of messages in front of the end of their partition; none of partitions that have no end here."""
    kept: list[SinkFrame] = []
    for frame in frames:
        read = frame.origin
        mask = pa.repeat(pa.scalar(False), frame.num_rows)
        for partition, end in ends.items():
            mask = pc.or_(mask, pc.and_(rows_of(read, [partition]), pc.less(read["offset"], end)))
        part = frame if pc.all(mask).as_py() else frame.take(mask)
        if part.num_rows:
            kept.append(part)
    return kept


def rows_of(table: pa.Table, partitions: Collection[TopicPartition]) -> pa.Array:
    """A mask of the rows that are of one of the partitions."""
    mask = pa.repeat(pa.scalar(False), table.num_rows)
    for topic, partition in partitions:
        mask = pc.or_(
            mask,
            pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], pa.scalar(partition, pa.int32()))),
        )
    return mask


def prefix_ends(table: pa.Table, rows: int) -> dict[TopicPartition, int]:
    """The offset after the last of the first ``rows`` rows, for each partition."""
    return ends_of(table.slice(0, rows)) if rows else {}


def place_of(table: pa.Table, most: int = 5) -> str:
    """The place of some messages, for an error message.

    >>> place_of(pa.table({"topic": ["t", "t"], "partition": [0, 0], "offset": [7, 9]}))
    't-0 from offset 7 to 9'
    """
    if table.num_rows == 0:
        return "no records"
    grouped = table.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    places = [f"{at['topic']}-{at['partition']} from offset {at['offset_min']} to {at['offset_max']}" for at in grouped]
    more = f" and {len(places) - most} more partitions" if len(places) > most else ""
    return ", ".join(places[:most]) + more


def message_at(table: pa.Table, row: int) -> ConsumedMessage:
    """The message of one row, as it was fetched."""
    found = table.slice(row, 1).to_pylist()[0]
    headers = tuple((header["key"], header["value"]) for header in found["headers"] or ())
    return ConsumedMessage(
        found["topic"],
        found["partition"],
        found["offset"],
        found["timestamp"],
        found["timestamp_type"],
        found["key"],
        found["value"],
        headers,
    )
