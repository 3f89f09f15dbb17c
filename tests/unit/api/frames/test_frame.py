"""What an author is given of a sink's frame: where rows come from, parts of it, and offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.api import SinkFrame, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
READ = [(A0, 5), (B0, 5), (A0, 6), (A1, 5), (B0, 7), (A0, 9)]


def origin_of(read: Sequence[tuple[TopicPartition, int]]) -> pa.Table:
    return pa.table(
        {
            "topic": pa.array([place.topic for place, _ in read], pa.string()),
            "partition": pa.array([place.partition for place, _ in read], pa.int32()),
            "offset": pa.array([offset for _, offset in read], pa.int64()),
        }
    )


def routed(read: Sequence[tuple[TopicPartition, int]] = READ, *, continued: bool = False) -> SinkFrame:
    """A frame behind a router: its rows are of topic "merged" now."""
    origin = origin_of(read)
    table = origin.set_column(0, "topic", pa.array(["merged"] * len(read), pa.string()))
    table = table.append_column("value", pa.array(range(len(read)), pa.int64()))
    return SinkFrame(table, None, None, origin=origin, continued=continued)


def values(frame: SinkFrame) -> list[int]:
    assert frame.origin.num_rows == frame.num_rows
    found: list[int] = frame.table["value"].to_pylist()
    return found


def test_a_frame_made_by_hand_has_its_own_coordinates_as_origin() -> None:
    frame = SinkFrame(origin_of(READ), None, None)

    assert frame.origin.equals(origin_of(READ))
    assert not frame.continued


def test_rows_by_partition_are_those_as_read_in_order_whatever_the_topic_is_now() -> None:
    parts = routed().by_partition()

    assert {place: values(part) for place, part in parts.items()} == {A0: [0, 2, 5], B0: [1, 4], A1: [3]}
    assert list(parts) == [A0, B0, A1]
    assert parts[A0].origin["offset"].to_pylist() == [5, 6, 9]


def test_long_runs_of_rows_are_not_copied() -> None:
    run = 200
    frame = routed([(place, offset) for place in (A0, B0, A0) for offset in range(run)])

    part = frame.by_partition()[A0]

    assert values(part) == [*range(run), *range(2 * run, 3 * run)]
    assert part.origin["offset"].to_pylist() == [*range(run), *range(run)]
    whole = frame.table["value"].chunk(0).buffers()[1]
    assert [chunk.buffers()[1].address for chunk in part.table["value"].chunks] == [whole.address] * 2


@pytest.mark.parametrize(
    "rows", [[5, 4, 3], [*range(300), 2, *range(250, 300)], [1, 1, 1], [], [*range(400, 600), *range(200)]]
)
def test_rows_are_taken_in_the_order_given_however_they_stand(rows: list[int]) -> None:
    frame = routed([(A0, offset) for offset in range(600)])

    assert values(frame.take(rows)) == rows
    assert frame.take(rows).origin["offset"].to_pylist() == rows


def test_a_frame_of_one_partition_is_itself_and_one_without_rows_has_no_partitions() -> None:
    frame = routed([(A0, 1), (A0, 2)])

    assert frame.by_partition()[A0] is frame
    assert routed([]).by_partition() == {}
    assert routed([]).next_offsets() == {}


@pytest.mark.parametrize(
    ("offsets", "left"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({A0: 0, B0: None}, [0, 1, 2, 3, 4, 5]),
        ({A0: 6}, [1, 2, 3, 4, 5]),
        ({A0: 7, B0: 6, A1: 6}, [4, 5]),
        ({A0: 10, B0: 8, A1: 6}, []),
        ({("a", 0): 9}, [1, 3, 4, 5]),
        ({TopicPartition("merged", 0): 100}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_rows_since_offsets_are_those_that_are_not_written_yet(
    offsets: dict[TopicPartition, int], left: list[int]
) -> None:
    assert values(routed().since(offsets)) == left


def test_what_is_all_new_is_the_frame_itself() -> None:
    frame = routed()
    assert frame.since({A0: 5}) is frame
    assert values(routed([]).since({A0: 3})) == []


def test_the_next_offsets_are_behind_the_last_row_of_each_partition() -> None:
    assert routed().next_offsets() == {A0: 10, B0: 8, A1: 6}
    assert routed().slice(0, 3).next_offsets() == {A0: 7, B0: 6}


def test_a_message_whose_rows_go_on_elsewhere_is_not_behind_the_next_offset() -> None:
    read = [(A0, 1), (A0, 2), (A0, 2), (B0, 1), (B0, 1)]
    frame = routed(read)

    assert frame.slice(0, 2).continued
    assert frame.slice(0, 2).next_offsets() == {A0: 2}
    assert frame.slice(0, 3).next_offsets() == {A0: 3}
    assert frame.slice(3, 1).next_offsets() == {B0: 1}
    assert frame.slice(3).next_offsets() == {B0: 2}
    assert routed(read, continued=True).next_offsets() == {A0: 3, B0: 1}
    assert routed(read, continued=True).by_partition()[A0].next_offsets() == {A0: 3}
    assert routed(read, continued=True).by_partition()[B0].next_offsets() == {B0: 1}
    assert frame.take([4]).continued is False


@pytest.mark.parametrize(
    "rows", [[1, 4], np.array([1, 4]), pa.array([1, 4]), [False, True, False, False, True, False],
             pa.array([False, True, False, False, True, False]), pa.chunked_array([[1], [4]])],
)  # fmt: skip
def test_rows_are_numbers_or_a_mask(rows: object) -> None:
    assert values(routed().take(rows)) == [1, 4]


def test_one_row_no_row_and_rows_one_behind_the_other() -> None:
    assert values(routed().take(3)) == [3]
    assert values(routed().take([])) == []
    assert values(routed().take([True] * 6)) == [0, 1, 2, 3, 4, 5]
    assert values(routed().take(range(2, 5))) == [2, 3, 4]
    assert values(routed().take([4, 2])) == [4, 2]
    assert values(routed().slice(4, 100)) == [4, 5]


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        (6, IndexError, "no row 6 in a frame of 6 rows"),
        ([0, -1], IndexError, "no row -1"),
        ([True], IndexError, "mask of 1 rows does not fit a frame of 6"),
        (["a"], TypeError, "one number, numbers, or a mask"),
        ([0.5], TypeError, "one number, numbers, or a mask"),
        (pa.array([True, None, True, True, True, True]), TypeError, "without nulls"),
        (None, TypeError, "one number"),
    ],
)
def test_rows_that_are_none_say_so(rows: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        routed().take(rows)
