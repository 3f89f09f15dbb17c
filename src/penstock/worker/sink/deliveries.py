"""Turns converted batches into deliveries: the rows that still count, and the offsets that they reach.

Main types: ``SinkDeliveries`` makes deliveries of converted batches; ``SinkDelivery`` is one batch in the course of
being put. Functions ``rows_of``, ``prefix_ends`` and ``message_at`` read Arrow tables of consumed messages; they are
pure.

Owning thread: the task's thread.

Source: ``WorkerSinkTask`` (``convertMessages``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame, SinkRecord, TopicPartition
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import SinkBatch
from penstock.worker.errors.reporters import ConsumedMessage
from penstock.worker.errors.tolerance import ErrorHandler
from penstock.worker.sink.partitions import SinkPartitions
from penstock.worker.sink.queues import ConvertedBatch, SinkStages, ends_of


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
