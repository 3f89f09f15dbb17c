"""From a converted batch to calls of ``put``: which rows still count, what is delivered, and how far that gets.

Main type: ``Delivery``, one batch in the course of being put. Functions ``rows_of``, ``prefix_ends`` and ``message_at``
read Arrow tables of consumed messages. Pure.

Owning thread: the task's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SinkFrame, SinkRecord, TopicPartition
from penstock.errors import ConnectException
from penstock.pipeline.batches import SinkBatch
from penstock.worker.error_report import ConsumedMessage


@dataclass
class Delivery:
    """A batch on its way into the task; kept and tried again while ``put`` asks for that.

    Attributes:
        table: The consumed rows it came from.
        records: For record tasks: what to put, without dropped and failed ones, and for each its row in ``table``.
        frames: For frame tasks: what is still to be put, in order.
        ends: The offset behind the last consumed row of each partition, whether that row is delivered or not.
        fatal: What the task fails with once this is delivered: the record behind it cannot be got over.
    """

    table: pa.Table
    records: Sequence[SinkRecord] | None
    frames: list[SinkFrame] | None
    ends: Mapping[TopicPartition, int]
    fatal: ConnectException | None = None

    @property
    def size(self) -> int:
        """How many records are still to be put."""
        if self.frames is not None:
            return sum(frame.num_rows for frame in self.frames)
        return len(self.records or ())

    def without(self, partitions: Collection[TopicPartition]) -> Delivery:
        """The same for record tasks, less the records of some partitions."""
        kept = [
            record
            for record in self.records or ()
            if (record.original_topic, record.original_kafka_partition) not in partitions
        ]
        ends = {partition: end for partition, end in self.ends.items() if partition not in partitions}
        table = self.table.filter(pc.invert(rows_of(self.table, partitions)))
        return Delivery(table, kept, self.frames, ends, self.fatal)


def records_by_row(batch: SinkBatch, rows: int) -> Sequence[object] | None:
    """What each consumed row became: its record or None; a list of records where transforms made several of one."""
    if batch.records is None or batch.origins is None:
        return batch.records
    found: list[list[SinkRecord]] = [[] for _ in range(rows)]
    for origin, record in zip(batch.origins.tolist(), batch.records, strict=True):
        if record is not None:
            found[origin].append(record)
    return found


def rows_of(table: pa.Table, partitions: Collection[TopicPartition]) -> pa.Array:
    """For each row whether it is of one of the partitions."""
    mask = pa.repeat(pa.scalar(False), table.num_rows)
    for topic, partition in partitions:
        mask = pc.or_(
            mask,
            pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], pa.scalar(partition, pa.int32()))),
        )
    return mask


def prefix_ends(table: pa.Table, rows: int) -> dict[TopicPartition, int]:
    """The offset behind the last of the first rows, for each partition."""
    if rows == 0:
        return {}
    last = table.slice(0, rows).group_by(["topic", "partition"]).aggregate([("offset", "max")])
    found = last.to_pydict()
    return {
        TopicPartition(topic, partition): offset + 1
        for topic, partition, offset in zip(found["topic"], found["partition"], found["offset_max"], strict=True)
    }


def place_of(table: pa.Table, most: int = 5) -> str:
    """Which messages these are, for an error.

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
