"""Frames that wait for Spark together become one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import SourceFrame
from penstock.data import INT64_SCHEMA, STRING_SCHEMA
from penstock.worker.source.batcher import Batcher, can_join_frames, join_frames
from penstock.worker.task.bounded_queue import BatchLimits


def frame(*values: str, start: int = 0, timestamp: int | None = 1) -> SourceFrame:
    return SourceFrame(
        data=pa.table({"value": list(values)}),
        topic="t",
        value_schema=STRING_SCHEMA,
        source_partition={"file": "f"},
        source_offset={"position": start + len(values)},
        timestamp=timestamp,
        offset_after=lambda row: {"position": start + row + 1},
    )


def rows(joined: SourceFrame) -> dict[str, list[object]]:
    table: Any = joined.data
    found: dict[str, list[object]] = table.to_pydict()
    return found


def test_joined_frames_have_all_rows_and_know_every_position() -> None:
    joined = join_frames([frame("a", "b"), frame("c", start=2), frame("d", "e", start=3)])
    assert rows(joined) == {"value": ["a", "b", "c", "d", "e"]}
    assert (joined.topic, joined.value_schema, joined.timestamp) == ("t", STRING_SCHEMA, 1)
    assert joined.source_offset == {"position": 5}
    assert joined.offset_after is not None
    assert [joined.offset_after(row)["position"] for row in range(5)] == [1, 2, 3, 4, 5]


def test_frames_of_different_moments_keep_their_timestamps() -> None:
    joined = join_frames([frame("a", "b", timestamp=5), frame("c", start=2, timestamp=7)])
    assert joined.timestamp is None
    assert rows(joined) == {"value": ["a", "b", "c"], "timestamp": [5, 5, 7]}


def test_a_plain_table_with_timestamps_says_which_columns_are_fields() -> None:
    first = replace(frame("a", timestamp=5), data=pa.table({"id": [1], "name": ["x"]}))
    second = replace(first, timestamp=7)
    joined = join_frames([first, second])
    assert rows(joined) == {"id": [1, 1], "name": ["x", "x"], "timestamp": [5, 7]}
    assert joined.value_fields == ["id", "name"]
    assert join_frames([first, first]).value_fields is None

    named = replace(first, data=pa.table({"timestamp": [1]}), value_fields=("timestamp",))
    assert can_join_frames(named, named)
    assert not can_join_frames(named, replace(named, timestamp=7))


@pytest.mark.parametrize(
    "other",
    [
        replace(frame("b"), topic="u"),
        replace(frame("b"), source_partition={"file": "g"}),
        replace(frame("b"), partition=1),
        replace(frame("b"), value_schema=INT64_SCHEMA),
        replace(frame("b"), timestamp=None),
        replace(frame("b"), offset_after=None),
        replace(frame("b"), data=pa.table({"value": ["b"], "key": ["k"]})),
        replace(frame("b"), data=object()),
        replace(frame("b"), value_fields=("value",)),
    ],
    ids=["topic", "source partition", "partition", "schema", "timestamp", "positions", "columns", "Spark", "fields"],
)
def test_frames_that_differ_in_more_than_their_rows_are_not_joined(other: SourceFrame) -> None:
    assert can_join_frames(frame("a"), frame("b"))
    assert not can_join_frames(frame("a"), other)
    assert not can_join_frames(other, frame("a"))


def test_waiting_frames_are_joined_up_to_the_limit_unless_the_task_counts_them() -> None:
    for joins, expected in ((True, [["a", "b"], ["c"]]), (False, [["a"], ["b"], ["c"]])):
        batcher = Batcher(BatchLimits(max_records=2), join_frames=joins)
        taken = []
        for position, value in enumerate("abc"):
            if position == 2:
                taken.append(batcher.take())
            assert batcher.put(frame(value, start=position))
        batcher.close()
        taken += iter(batcher.take, None)
        batches = [one.batch for one in taken if one is not None]
        assert [rows(batch)["value"] for batch in batches if isinstance(batch, SourceFrame)] == expected
