"""Frames that are held until they are worth a file."""

from __future__ import annotations

import pyarrow as pa

from penstock.api import FrameGatherer, OffsetAndMetadata, SinkFrame, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def frame(*places: tuple[int, int]) -> SinkFrame:
    rows = {"topic": ["t"] * len(places), "partition": [p for p, _ in places], "offset": [o for _, o in places]}
    return SinkFrame(pa.table({**rows, "value": [0] * len(places)}), None, None)


class Held(FrameGatherer):
    def __init__(self, min_rows: int, max_wait_ms: int = 1000, max_bytes: int = 1 << 20) -> None:
        self.now = 0.0
        super().__init__(min_rows, max_wait_ms, max_bytes=max_bytes, clock=lambda: self.now)


def safe(held: FrameGatherer, a: int = 100, b: int = 100) -> tuple[int, int]:
    found = held.safe({A: OffsetAndMetadata(a), B: OffsetAndMetadata(b)})
    return found[A].offset, found[B].offset


def test_nothing_is_due_while_nothing_is_held_however_long_it_takes() -> None:
    held = Held(1)
    held.now = 1e6
    assert not held.is_due
    held.add(frame())
    assert not held.is_due
    assert safe(held) == (100, 100)


def test_it_is_due_with_enough_rows_or_bytes_or_after_the_time_of_the_first_row() -> None:
    held = Held(3)
    held.add(frame((0, 1), (0, 2)))
    held.now = 0.5
    held.add(frame())
    due = [held.is_due]
    held.now = 1.0
    due.append(held.is_due)
    held.written()
    held.add(frame((0, 3)))
    held.now = 1.9
    due.append(held.is_due)
    held.add(frame((0, 4), (0, 5)))
    due.append(held.is_due)
    assert due == [False, True, False, True]
    tight = Held(1000, max_bytes=10)
    tight.add(frame((0, 1), (0, 2)))
    assert tight.is_due


def test_offsets_go_up_to_the_first_row_that_is_held_in_each_partition() -> None:
    held = Held(10)
    held.add(frame((0, 5), (1, 7), (0, 6)))
    held.add(frame((1, 8), (0, 9)))
    assert safe(held) == (5, 7)
    assert safe(held, a=3) == (3, 7)
    held.written(1)
    assert safe(held) == (9, 8)
    held.written()
    assert safe(held) == (100, 100)


def test_a_frame_that_put_is_given_again_is_held_once_and_one_that_looks_like_it_is_another() -> None:
    held, first = Held(10), frame((0, 1))
    held.add(first)
    held.add(first)
    assert held.rows == 1
    held.done()
    held.add(first)
    assert held.rows == 2


def test_rows_of_partitions_that_go_are_dropped_and_the_others_stay_in_order() -> None:
    held = Held(10)
    held.add(frame((0, 5), (1, 7), (0, 6)))
    held.add(frame((1, 8)))
    held.add(frame((0, 9)))
    held.forget([B])
    assert [one.table["offset"].to_pylist() for one in held.frames] == [[5, 6], [9]]
    assert safe(held) == (5, 100)
