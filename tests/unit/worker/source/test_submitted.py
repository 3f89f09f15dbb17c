"""Contiguous acknowledged offsets, by source partition."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import SourceFrame, SourceRecord
from penstock.stores.offsets import partition_identity
from penstock.worker.source.submitted import Submission, SubmittedOffsets


def records(*places: tuple[str, int]) -> list[SourceRecord]:
    return [SourceRecord({"file": name}, {"position": position}, "t", b"x") for name, position in places]


def submitted_records(offsets: SubmittedOffsets, *places: tuple[str, int], settled: tuple[int, ...] = ()) -> Submission:
    submission = Submission.of_records(records(*places), partition_identity)
    offsets.add(submission, settled)
    return submission


def taken(offsets: SubmittedOffsets) -> dict[str, object]:
    found = {}
    for partition, offset in offsets.take_committable():
        assert partition is not None
        found[str(partition["file"])] = None if offset is None else offset["position"]
    return found


def frame(rows: int, position: int, *, inner: bool = True) -> SourceFrame:
    return SourceFrame(
        pa.table({"value": [b"x"] * rows}),
        "t",
        None,
        {"file": "f"},
        {"position": position},
        offset_after=(lambda row: {"position": position - rows + row + 1}) if inner else None,
    )


def test_nothing_is_committable_before_an_acknowledgement() -> None:
    offsets = SubmittedOffsets()
    submitted_records(offsets, ("a", 1))
    assert offsets.take_committable() == []


def test_the_offset_stops_at_the_first_row_that_is_not_acknowledged() -> None:
    offsets = SubmittedOffsets()
    batch = submitted_records(offsets, ("a", 1), ("a", 2), ("a", 3), ("a", 4))
    offsets.settle_rows(batch, [0, 1, 3])
    assert taken(offsets) == {"a": 2}
    assert taken(offsets) == {}
    assert offsets.settle_rows(batch, [2]) is True
    assert taken(offsets) == {"a": 4}


def test_one_source_partition_does_not_hold_up_another_of_the_same_batch_or_a_later_one() -> None:
    offsets = SubmittedOffsets()
    first = submitted_records(offsets, ("a", 1), ("b", 1), ("a", 2), ("b", 2))
    second = submitted_records(offsets, ("a", 3), ("b", 3))
    offsets.settle_rows(first, [1, 2, 3])
    offsets.settle_rows(second, [0, 1])
    assert taken(offsets) == {"b": 3}
    offsets.settle_rows(first, [0])
    assert taken(offsets) == {"a": 3}


def test_a_complete_later_batch_waits_for_an_earlier_one_of_its_partition() -> None:
    offsets = SubmittedOffsets()
    first = submitted_records(offsets, ("a", 1))
    second = submitted_records(offsets, ("a", 2))
    offsets.settle_range(second, 0, 1)
    assert taken(offsets) == {}
    offsets.settle_range(first, 0, 1)
    assert taken(offsets) == {"a": 2}


def test_dropped_and_skipped_rows_count_as_acknowledged() -> None:
    offsets = SubmittedOffsets()
    submitted_records(offsets, ("a", 1), ("a", 2), settled=(0, 1))
    assert taken(offsets) == {"a": 2}
    assert offsets.rows_left == 0


def test_complete_batches_are_forgotten_without_a_commit() -> None:
    offsets = SubmittedOffsets()
    for position in range(1000):
        batch = submitted_records(offsets, ("a", position))
        offsets.settle_range(batch, 0, 1)
    assert offsets._queues == {}
    assert taken(offsets) == {"a": 999}


def test_a_null_source_offset_is_offered_so_that_it_becomes_a_tombstone() -> None:
    offsets = SubmittedOffsets()
    batch = Submission.of_records([SourceRecord(None, None, "t", b"x")], partition_identity)
    offsets.add(batch)
    offsets.settle_range(batch, 0, 1)
    assert offsets.take_committable() == [(None, None)]


def test_partitions_that_python_takes_for_equal_stay_apart() -> None:
    offsets = SubmittedOffsets()
    batch = Submission.of_records(
        [SourceRecord({"id": value}, {"p": 1}, "t", b"x") for value in (1, True, 1.0, 1)], partition_identity
    )
    offsets.add(batch)
    offsets.settle_range(batch, 0, 4)
    assert [repr(partition) for partition, _ in offsets.take_committable()] == [
        "{'id': 1}",
        "{'id': True}",
        "{'id': 1.0}",
    ]


def test_a_frame_is_committed_by_its_own_position_or_by_that_of_the_delivered_rows() -> None:
    offsets = SubmittedOffsets()
    batch = Submission.of_frame(frame(10, 100), 10, partition_identity)
    offsets.add(batch)
    assert offsets.settle_range(batch, 0, 4) is False
    assert taken(offsets) == {"f": 94}
    assert offsets.settle_range(batch, 4, 10) is True
    assert taken(offsets) == {"f": 100}


def test_a_frame_that_cannot_name_inner_positions_counts_when_it_is_complete() -> None:
    offsets = SubmittedOffsets()
    batch = Submission.of_frame(frame(10, 100, inner=False), 10, partition_identity)
    offsets.add(batch)
    offsets.settle_range(batch, 0, 9)
    assert taken(offsets) == {}
    offsets.settle_range(batch, 9, 10)
    assert taken(offsets) == {"f": 100}


def raising(row: int) -> Mapping[str, object]:
    raise KeyError(row)


@pytest.mark.parametrize(
    "offset_after",
    [raising, lambda row: row, lambda row: None, lambda row: {"position": [row]}, dict, lambda row: {row: 1}],
    ids=["raises", "a number", "nothing", "no primitive", "takes no row", "no name"],
)
def test_what_a_frame_cannot_tell_holds_up_no_other_source_partition(offset_after: Any) -> None:
    offsets = SubmittedOffsets()
    batch = Submission.of_frame(replace(frame(10, 100), offset_after=offset_after), 10, partition_identity)
    offsets.add(batch)
    other = submitted_records(offsets, ("a", 1))
    offsets.settle_range(batch, 0, 7)
    offsets.settle_rows(other, [0])

    assert taken(offsets) == {"a": 1}
    offsets.settle_range(batch, 7, 10)
    assert taken(offsets) == {"f": 100}


def test_a_frame_without_rows_moves_the_position_in_its_turn() -> None:
    offsets = SubmittedOffsets()
    first = Submission.of_frame(frame(1, 1), 1, partition_identity)
    offsets.add(first)
    offsets.add(Submission.of_frame(frame(0, 7), 0, partition_identity))
    assert taken(offsets) == {}
    offsets.settle_range(first, 0, 1)
    assert taken(offsets) == {"f": 7}


def test_settling_a_row_twice_counts_once() -> None:
    offsets = SubmittedOffsets()
    batch = submitted_records(offsets, ("a", 1), ("a", 2))
    offsets.settle_range(batch, 0, 1)
    offsets.settle_range(batch, 0, 1)
    offsets.settle_rows(batch, [0])
    assert offsets.rows_left == 1


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_of_acknowledgements_no_offset_overtakes_an_open_row(seed: int) -> None:
    chance = random.Random(seed)
    offsets = SubmittedOffsets()
    batches: list[tuple[Submission, list[tuple[str, int]]]] = []
    open_rows: list[tuple[int, int]] = []
    position = 0
    for number in range(12):
        places = []
        for _ in range(chance.randrange(1, 9)):
            position += 1
            places.append((chance.choice("abc"), position))
        batches.append((submitted_records(offsets, *places), places))
        open_rows += [(number, row) for row in range(len(places))]
    chance.shuffle(open_rows)
    committed: dict[str, object] = {}
    while open_rows:
        number, row = open_rows.pop()
        offsets.settle_rows(batches[number][0], [row])
        if chance.random() < 0.4:
            committed.update(taken(offsets))
        still_open = {batches[n][1][r] for n, r in open_rows}
        for name, reached in committed.items():
            assert not any(other == name and at <= int(str(reached)) for other, at in still_open)
    committed.update(taken(offsets))
    assert committed == {name: at for _, places in batches for name, at in places}


def test_offsets_that_count_with_their_records_do_not_wait_for_acknowledgements() -> None:
    offsets = SubmittedOffsets()
    first = submitted_records(offsets, ("a", 1), ("b", 1), ("a", 2))
    submitted_records(offsets, ("b", 2), settled=(0,))
    found = {str((partition or {})["file"]): (offset or {})["position"] for partition, offset in offsets.take_all()}
    assert found == {"a": 2, "b": 2}

    offsets.settle_range(first, 0, 3)
    assert offsets.take_all() == [], "what was taken is not taken again when it is acknowledged"
    assert offsets.rows_left == 0
    later = submitted_records(offsets, ("a", 3))
    assert offsets.take_committable() == []
    offsets.settle_range(later, 0, 1)
    assert taken(offsets) == {"a": 3}


def test_what_is_given_up_on_purpose_is_settled() -> None:
    offsets = SubmittedOffsets()
    first = submitted_records(offsets, ("a", 1), ("a", 2))
    offsets.settle_rows(first, [0])
    submitted_records(offsets, ("a", 3), ("b", 1))
    offsets.settle_all()
    assert offsets.rows_left == 0
    assert taken(offsets) == {"a": 3, "b": 1}
