"""The middle stage of a source task: polled batches become bytes, failed records are dealt with.

Main types: `SourceConverter` and its result `Outgoing`: the converted batch, which rows of it are sent, which are
settled without being sent, and why the task ends behind them, if it does.

Thread: the task's pipeline thread.

Source: AbstractWorkerSourceTask.convertTransformedRecord and sendRecords of Kafka Connect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import SourceFrame
from penstock.errors import ConnectException, DataException
from penstock.pipeline.batches import ProduceBatch, RecordError, SourceRecords
from penstock.worker.source_stages import Batch
from penstock.worker.tolerance import ErrorHandler

logger = logging.getLogger(__name__)


class BatchPipeline(Protocol):
    """The part of ``penstock.pipeline.source.SourcePipeline`` that is needed here."""

    def run(self, batch: SourceRecords | SourceFrame) -> ProduceBatch:
        """Transform and convert a batch; blocks until Spark is there and has done it."""
        ...


@dataclass(frozen=True)
class Outgoing:
    """A converted batch on its way to the producer.

    Attributes:
        source: What was polled.
        batch: What it became.
        rows: Positions of the rows to send; None for all.
        settled: Positions that are not sent and count as acknowledged: dropped by a transform, or failed and skipped.
        failure: What the task fails with once the rows are sent; rows behind the failed one are neither sent nor
            settled.
    """

    source: Batch
    batch: ProduceBatch
    rows: pa.Array | None
    settled: Sequence[int]
    failure: Exception | None

    @property
    def size(self) -> int:
        """Number of rows of the batch, sent or not."""
        rows: int = self.batch.table.num_rows
        return rows

    @property
    def nbytes(self) -> int:
        """Size of the batch in memory."""
        nbytes: int = self.batch.table.nbytes
        return nbytes

    def to_send(self) -> pa.Table:
        """The rows to send."""
        return self.batch.table if self.rows is None else self.batch.table.take(self.rows)


class SourceConverter:
    """Runs batches through the pipeline and applies the error policy.

    Args:
        owner: the task, for messages.
        pipeline: transforms and converters.
        errors: what happens to failed records.
    """

    def __init__(self, owner: str, pipeline: BatchPipeline, errors: ErrorHandler) -> None:
        self._owner = owner
        self._pipeline = pipeline
        self._errors = errors

    def convert(self, source: Batch) -> Outgoing:
        """Convert one batch; retriable errors of records are retried here, so later batches wait. Invariant 3.

        Raises:
            ConnectException: the batch cannot be run at all.
        """
        batch = self._pipeline.run(source)
        limit: int = batch.table.num_rows
        failure: Exception | None = None
        errors: Mapping[int, RecordError] = batch.errors
        if errors:
            batch, errors, attempts = self._retried(source, batch)
            fatal = self._errors.handle_batch(errors, _describer(source), attempts=attempts)
            if fatal is not None:
                limit, failure = fatal.seq, fatal.exception
        rows, settled = rows_to_send(batch, errors, limit)
        outgoing = Outgoing(source, batch, rows, settled, failure)
        return self._checked(outgoing)

    def _retried(
        self, source: Batch, batch: ProduceBatch
    ) -> tuple[ProduceBatch, Mapping[int, RecordError], Mapping[int, int]]:
        """Run records with retriable errors again until they pass or time is up."""
        if not any(error.retriable for error in batch.errors.values()) or not _can_cut(source):
            return batch, batch.errors, {}
        current = batch

        def rerun(positions: list[int]) -> Mapping[int, RecordError]:
            nonlocal current
            again = self._pipeline.run(_cut(source, positions))
            current = with_rows_replaced(current, positions, again)
            return {positions[row]: replace(error, seq=positions[row]) for row, error in again.errors.items()}

        errors, attempts = self._errors.retry(batch.errors, rerun)
        return current, errors, attempts

    def _checked(self, outgoing: Outgoing) -> Outgoing:
        """Cut the batch before the first row that no producer can take: that is an error of the connector."""
        found = _first_impossible(outgoing.batch, outgoing.to_send())
        if found is None:
            return outgoing
        index, what = found
        row: int = index if outgoing.rows is None else outgoing.rows[index].as_py()
        topic = outgoing.batch.table.column("topic")[row].as_py()
        partition = outgoing.batch.table.column("partition")[row].as_py()
        failure = ConnectException(
            f"Task {self._owner} returned a record that cannot be sent: {what} (topic {topic}, partition {partition}, "
            f"{_place(outgoing.source, row)}). The connector or one of its transforms must be corrected."
        )
        failure.__cause__ = DataException(what)
        before = pa.array(range(row), pa.int64()) if outgoing.rows is None else outgoing.rows[:index]
        return replace(
            outgoing, rows=before, settled=[other for other in outgoing.settled if other < row], failure=failure
        )


def rows_to_send(batch: ProduceBatch, errors: Iterable[int], limit: int) -> tuple[pa.Array | None, list[int]]:
    """Which rows before `limit` are sent (None: all of the batch), and which are settled without being sent."""
    # Invariant 1: rows from the limit on, where the task ends, are in neither set.
    settled = {row for row in errors if row < limit}
    if batch.has_dropped:
        dropped = pc.indices_nonzero(pc.fill_null(batch.table.column("dropped"), False)).to_pylist()
        settled.update(row for row in dropped if row < limit)
    if not settled and limit == batch.table.num_rows:
        return None, []
    mask = np.ones(limit, dtype=bool)
    ordered = sorted(settled)
    mask[ordered] = False
    return pa.array(np.flatnonzero(mask), pa.int64()), ordered


def with_rows_replaced(batch: ProduceBatch, positions: Sequence[int], again: ProduceBatch) -> ProduceBatch:
    """The batch with these rows taken from another one, which has a row for each of them."""
    size = batch.table.num_rows
    order = np.arange(size)
    order[list(positions)] = size + np.arange(len(positions))
    table = pa.concat_tables([batch.table, again.table]).take(pa.array(order))
    table = table.set_column(table.column_names.index("seq"), "seq", pa.array(np.arange(size), pa.int64()))
    return replace(
        batch,
        table=table,
        topic=batch.topic if batch.topic == again.topic else None,
        has_headers=batch.has_headers or again.has_headers,
        has_dropped=batch.has_dropped or again.has_dropped,
        has_keys=batch.has_keys or again.has_keys,
        has_partition=batch.has_partition or again.has_partition,
        timestamp=batch.timestamp if batch.timestamp == again.timestamp else None,
    )


def _first_impossible(batch: ProduceBatch, table: pa.Table) -> tuple[int, str] | None:
    """The first of these rows that cannot be sent, and why."""
    found: list[tuple[int, str]] = []
    topics = table.column("topic")
    if batch.topic is None and topics.null_count:
        found.append((pc.index(pc.is_null(topics), True).as_py(), "the topic is null"))
    if batch.has_partition:
        partitions = table.column("partition")
        row = pc.index(pc.less(partitions, 0), True).as_py()
        if row >= 0:
            found.append((row, f"the partition is negative ({partitions[row]})"))
    timestamps = table.column("timestamp")
    if timestamps.null_count < len(timestamps):
        row = pc.index(pc.less(timestamps, -1), True).as_py()
        if row >= 0:
            found.append((row, f"the timestamp is negative ({timestamps[row]})"))
    return min(found) if found else None


def _can_cut(source: Batch) -> bool:
    return not isinstance(source, SourceFrame) or source.num_rows is not None


def _cut(source: Batch, positions: Sequence[int]) -> Batch:
    if isinstance(source, SourceFrame):
        table: pa.Table = source.data
        return replace(source, data=table.take(pa.array(positions, pa.int64())), offset_after=None)
    return SourceRecords([source.records[row] for row in positions])


def _describer(source: Batch) -> Callable[[int], object]:
    """The original of a row, for reports."""
    if isinstance(source, SourceFrame):
        return lambda row: f"row {row} of a frame ({_place(source, row)})"
    return source.records.__getitem__


def _place(source: Batch, row: int) -> str:
    if isinstance(source, SourceFrame):
        return f"source partition {source.source_partition}, row {row} of the frame that ends at {source.source_offset}"
    record = source.records[row]
    return f"source partition {record.source_partition}, source offset {record.source_offset}"
