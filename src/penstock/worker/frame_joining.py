"""Makes one frame of several that a task returned while Spark was busy.

A columnar task that follows a file returns a frame for each few lines that are appended. One Spark job for each could
not keep up with a writer that appends often; joined, they cost as much as one.

Main functions: ``can_join`` and ``join``. Pure; used by the task's pipeline thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pyarrow as pa

from penstock.api import SourceFrame


def can_join(first: SourceFrame, second: SourceFrame) -> bool:
    """Whether the rows of both fit in one frame: Arrow tables that differ in nothing but their rows and timestamps.

    A position inside of the joined frame has to be known, so frames without ``offset_after`` stay alone.
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


def join(frames: Sequence[SourceFrame]) -> SourceFrame:
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
