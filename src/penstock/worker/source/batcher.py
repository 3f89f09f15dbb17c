"""The queue of a source task between its polls and Spark: joins polls while Spark is busy.

A columnar task that follows a file returns one frame for every few appended lines. With a Spark job for each frame the
task could not keep up with a writer that appends often; joined frames cost one job.

Thread: one thread puts, one takes; see `BoundedQueue`.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.api import SourceFrame, SourceRecord
from penstock.pipeline.batch.batches import PolledBatch
from penstock.pipeline.columns.sizes import cut_at, nbytes_of, slices_of
from penstock.telemetry import waiting_for
from penstock.worker.source.submitted import FramePart, Move, position_after
from penstock.worker.source.transaction_boundaries import PartEnd
from penstock.worker.task.bounded_queue import BatchLimits, BoundedQueue, SharedLoad


def can_join_frames(first: SourceFrame, second: SourceFrame) -> bool:
    """True if the rows of both fit in one frame: Arrow tables that differ in nothing but their rows and timestamps.

    A position inside of the joined frame has to be known, so frames without ``offset_after`` are not joined.
    """
    return (
        isinstance(first.data, pa.Table)
        and isinstance(second.data, pa.Table)
        and first.offset_after is not None
        and second.offset_after is not None
        and first.topic == second.topic
        and first.partition == second.partition
        and (first.timestamp is None) == (second.timestamp is None)
        and first.source_partition == second.source_partition
        and first.value_schema == second.value_schema
        and first.key_schema == second.key_schema
        and first.value_fields == second.value_fields
        # Timestamps that differ become a column of that name.
        and (first.timestamp == second.timestamp or "timestamp" not in (first.value_fields or ()))
        and first.data.schema.equals(second.data.schema)
    )


def join_frames(frames: Sequence[SourceFrame]) -> SourceFrame:
    """One frame of several that can be joined, in order."""
    if len(frames) == 1:
        return frames[0]
    first, last = frames[0], frames[-1]
    timestamp, fields = first.timestamp, first.value_fields
    tables: list[pa.Table] = [frame.data for frame in frames]
    if any(frame.timestamp != timestamp for frame in frames) and "timestamp" not in tables[0].column_names:
        if fields is None and "value" not in tables[0].column_names:
            # A plain table: with one more column it has to say which are the fields.
            fields = tables[0].column_names
        tables = [_with_timestamp(frame) for frame in frames]
        timestamp = None
    ends = list(accumulate(table.num_rows for table in tables))

    def offset_after(row: int) -> Mapping[str, object]:
        index = bisect_right(ends, row)
        frame = frames[index]
        if row == ends[index] - 1:
            return frame.source_offset
        assert frame.offset_after is not None
        return frame.offset_after(row - (ends[index - 1] if index else 0))

    return SourceFrame(
        data=pa.concat_tables(tables).combine_chunks(),
        topic=first.topic,
        value_schema=first.value_schema,
        source_partition=first.source_partition,
        source_offset=last.source_offset,
        key_schema=first.key_schema,
        timestamp=timestamp,
        partition=first.partition,
        offset_after=offset_after,
        value_fields=fields,
    )


def _with_timestamp(frame: SourceFrame) -> pa.Table:
    table: pa.Table = frame.data
    return table.append_column("timestamp", pa.repeat(pa.scalar(frame.timestamp, pa.int64()), table.num_rows))


#: The number of records of a poll that are measured to estimate the size of all.
_SAMPLE: Final = 8
#: A poll without records that took at least this long has waited by itself.
_WAITED_S: Final = 0.001
_FREE_POLLS: Final = 2
#: Bytes that may wait for Spark after the first poll: the memory that a stalled broker costs.
_WAITING_BYTES: Final = 8 * 1024 * 1024
_MAX_DELAY_S: Final = 0.05


@dataclass(frozen=True)
class TakenBatch:
    """A batch taken from the queue.

    Attributes:
        polls: The numbers of records after which a poll ends, ascending.
        moves: Positions that moved after all of its records.
    """

    batch: PolledBatch
    end: PartEnd = PartEnd.POLL
    polls: Sequence[int] = ()
    moves: Sequence[Move] = ()


class _Entry(NamedTuple):
    """A poll, or a part of one, that waits."""

    polled: PolledBatch
    records: int
    end: PartEnd
    moves: Sequence[Move] = ()

    @property
    def is_empty(self) -> bool:
        return not isinstance(self.polled, SourceFrame) and not self.polled


def empty_poll_delay_s(empty_polls: int, took_s: float) -> float:
    """Returns the seconds to wait before the next poll, after this many polls in a row without records.

    A ``poll`` that waits by itself is not delayed; one that returns at once is delayed, a little more each time.

    >>> [round(empty_poll_delay_s(n, 0.0), 3) for n in (1, 2, 3, 4, 5, 100)]
    [0.0, 0.0, 0.001, 0.002, 0.004, 0.05]
    >>> empty_poll_delay_s(100, 0.2)
    0.0
    """
    if took_s >= _WAITED_S or empty_polls <= _FREE_POLLS:
        return 0.0
    return min(_MAX_DELAY_S, 0.001 * 2.0 ** min(empty_polls - _FREE_POLLS - 1, 10))


def estimated_bytes(records: Sequence[SourceRecord]) -> int:
    """Estimates the memory of the keys, values and headers of these records from a sample."""
    if not records:
        return 0
    sample = records[:: max(1, len(records) // _SAMPLE)]
    return sum(_record_size(record) for record in sample) * len(records) // len(sample)


def _record_size(record: SourceRecord) -> int:
    headers = record.raw_headers
    beside = sum(_size_of(header.value) for header in headers) if headers else 0
    return _size_of(record.key) + _size_of(record.value) + beside


def frame_bytes(frame: SourceFrame) -> int:
    """The size of an Arrow frame; 0 for a Spark DataFrame, which is not computed yet."""
    return nbytes_of(frame.data) if isinstance(frame.data, pa.Table) else 0


def parts_of_frame(frame: SourceFrame, limits: BatchLimits) -> list[SourceFrame]:
    """A frame in parts that fit a batch, slices of its table; one that fits, and a Spark DataFrame, is itself.

    Never raises an error of the task: if ``offset_after`` returns no position, the frame is split only at its end.
    """
    if not isinstance(frame.data, pa.Table):
        return [frame]
    starts = cut_at(frame.data, limits.max_bytes, limits.max_records)
    if len(starts) == 1:
        return [frame]
    ends = [*starts[1:], frame.data.num_rows]
    inner = [position_after(frame, end - 1) for end in ends[:-1]]
    known = None not in inner
    parts: list[SourceFrame] = []
    for start, end, table, position in zip(starts, ends, slices_of(frame.data, starts), [*inner, None], strict=True):
        is_last = end == ends[-1]
        parts.append(
            FramePart(
                table,
                frame.topic,
                frame.value_schema,
                frame.source_partition,
                frame.source_offset if position is None else position,
                frame.key_schema,
                frame.timestamp,
                frame.partition,
                partial(_position_in, frame, start) if known else None,
                frame.value_fields,
                whole=frame,
                first=start,
                is_last=is_last,
            )
        )
    return parts


def _position_in(frame: SourceFrame, start: int, row: int) -> Mapping[str, object]:
    assert frame.offset_after is not None, "it has told positions"
    return frame.offset_after(start + row)


def parts_of_records(records: Sequence[SourceRecord], limits: BatchLimits) -> list[Sequence[SourceRecord]]:
    """The records of a poll in parts that each fit a batch; a larger record is a part by itself."""
    step = limits.max_records
    parts: list[Sequence[SourceRecord]] = []
    for at in range(0, len(records), step):
        part = records[at : at + step]
        if estimated_bytes(part) <= limits.max_bytes:
            parts.append(part)
            continue
        start, nbytes = 0, 0
        for index, record in enumerate(part):
            size = estimated_bytes((record,))
            if index > start and nbytes + size > limits.max_bytes:
                parts.append(part[start:index])
                start, nbytes = index, 0
            nbytes += size
        parts.append(part[start:])
    return parts or [records]


class Batcher(BoundedQueue[_Entry]):
    """Polls on their way to Spark. Invariant 3.

    Whole polls are joined in order, up to the limits; a poll or a frame above them is cut. Frames are joined when they
    fit together, see ``can_join_frames``. Nothing is joined across a place where the task asks for the end of its
    transaction, and no records are across one where a position has moved without a record.

    Args:
        join_frames: False if the task's hooks get each frame that it returned.
        load: the load of all tasks; None: this is the only task.
    """

    def __init__(
        self,
        limits: BatchLimits,
        clock: Callable[[], float] = time.monotonic,
        *,
        join_frames: bool = True,
        load: SharedLoad | None = None,
    ) -> None:
        self._tasks = SharedLoad() if load is None else load
        waiting = BatchLimits(limits.max_records, min(limits.max_bytes, _WAITING_BYTES))
        super().__init__(limits=waiting, load=self._tasks, clock=clock)
        self._batch = limits
        self._join_frames = join_frames

    def put(self, polled: PolledBatch, end: PartEnd = PartEnd.POLL, moves: Sequence[Move] = ()) -> bool:
        """Add the result of a poll; waits while the queue is full.

        Args:
            polled: Records or a frame; empty if only the end matters.
            moves: Positions that moved after all of it.

        Returns:
            False when it was not taken, or not all of it; see `offer`.
        """
        sized: list[tuple[PolledBatch, int, int]]
        if isinstance(polled, SourceFrame):
            frames = parts_of_frame(polled, self._batch)
            sized = [(frame, frame.num_rows or 0, frame_bytes(frame)) for frame in frames]
        else:
            sized = [(part, len(part), estimated_bytes(part)) for part in parts_of_records(polled, self._batch)]
        last = len(sized) - 1
        return all(
            self.offer(
                _Entry(part, rows, end if index == last else PartEnd.INSIDE, moves if index == last else ()),
                # Moves count as rows, so that the queue stays bounded.
                rows + (len(moves) if index == last else 0),
                nbytes,
            )
            for index, (part, rows, nbytes) in enumerate(sized)
        )

    def wait_to_poll(self) -> None:
        """Waits while a poll is queued and the jobs of tasks wait for each other; not past the time of `end_at`."""
        if self._tasks.has_waiting_jobs:
            with self.changed, waiting_for("back_pressure"):
                self.changed.wait_for(lambda: not self._waiting or self._closed or self._end is not None)

    def take(self) -> TakenBatch | None:
        """Waits for the next batch: all that has arrived, within the limits.

        Returns:
            None when the queue is closed and empty.
        """
        return self._take(lambda: bool(self._waiting) or self._closed)

    @waiting_for("spark")
    def take_crowded(self, job: Future[Any]) -> TakenBatch | None:
        """A batch that is taken although Spark is busy, because polling has to wait for room.

        Args:
            job: Spark's present job.

        Returns:
            None when the job was done first.
        """
        job.add_done_callback(self._notify)
        return self._take(lambda: job.done() or (bool(self._waiting) and (self._full or self._closed)), unless=job.done)

    @property
    def crowded(self) -> bool:
        """True if more is waiting already, or polling waits for room."""
        with self.changed:
            return self._full or bool(self._waiting)

    def _notify(self, _: object) -> None:
        with self.changed:
            self.changed.notify_all()

    def _take(self, ready: Callable[[], bool], unless: Callable[[], bool] = lambda: False) -> TakenBatch | None:
        with self.changed:
            self.changed.wait_for(ready)
            if not self._waiting or unless():
                return None
            entries = self.pop_joined(self._batch, self._joins)
        # Joining copies, so not under the lock.
        ends = accumulate(entry.records for entry in entries)
        polls = [size for size, entry in zip(ends, entries, strict=True) if entry.end is not PartEnd.INSIDE]
        moves = [move for entry in entries for move in entry.moves]
        return TakenBatch(_joined([entry.polled for entry in entries]), entries[-1].end, polls, moves)

    def _joins(self, first: _Entry, last: _Entry, entry: _Entry) -> bool:
        if last.end not in (PartEnd.INSIDE, PartEnd.POLL) or (last.moves and not entry.is_empty):
            # A position that has moved is in front of the records that are polled later. Invariant 1.
            return False
        if isinstance(first.polled, SourceFrame) and isinstance(entry.polled, SourceFrame):
            return self._join_frames and can_join_frames(first.polled, entry.polled)
        return not isinstance(first.polled, SourceFrame) and not isinstance(entry.polled, SourceFrame)


def _joined(polled: Sequence[PolledBatch]) -> PolledBatch:
    frames = [one for one in polled if isinstance(one, SourceFrame)]
    if frames:
        return join_frames(frames)
    records = [one for one in polled if not isinstance(one, SourceFrame)]
    return records[0] if len(records) == 1 else list(chain.from_iterable(records))


def _size_of(value: object, depth: int = 0) -> int:
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if depth < 4 and isinstance(value, (list, tuple)):
        return 8 * len(value) + sum(_size_of(item, depth + 1) for item in value)
    if depth < 4 and isinstance(value, Mapping):
        return sum(_size_of(key, depth + 1) + _size_of(item, depth + 1) for key, item in value.items())
    fields = getattr(value, "values", None)
    if depth < 4 and isinstance(fields, (list, tuple)):
        return _size_of(fields, depth + 1)
    return sys.getsizeof(value)
