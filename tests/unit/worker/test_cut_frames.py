"""Frames and polls that are larger than a batch: cut without a copy, their positions, and what the task is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.api import FrameSourceTask, RecordMetadata, SourceFrame, SourceRecord
from penstock.stores.offsets import partition_identity
from penstock.worker.source.batcher import Batcher, TakenBatch, parts_of_frame, parts_of_records
from penstock.worker.source.delivery import place_in_source
from penstock.worker.source.offset_commit import CommitHooks
from penstock.worker.source.submitted import FramePart, Submission, SubmittedOffsets
from penstock.worker.source.transaction_boundaries import PartEnd
from penstock.worker.task.bounded_queue import BatchLimits

PLACE = RecordMetadata("t", 0, 7, None)
LIMITS = BatchLimits(max_records=1_000, max_bytes=1_000_000)


def frame(table: pa.Table, *, inner: bool = True) -> SourceFrame:
    def offset_after(row: int) -> Mapping[str, object]:
        return {"position": row + 1}

    after = offset_after if inner else None
    return SourceFrame(table, "t", None, {"file": "f"}, {"position": table.num_rows}, offset_after=after)


def tables(parts: list[SourceFrame]) -> list[pa.Table]:
    return [part.data for part in parts]


def test_a_frame_of_many_rows_is_cut_by_records() -> None:
    table = pa.table({"value": list(range(2_500))})
    parts = parts_of_frame(frame(table), LIMITS)
    assert [part.num_rows for part in parts] == [1_000, 1_000, 500]
    assert pa.concat_tables(tables(parts)).equals(table)


def test_a_frame_of_large_rows_is_cut_by_bytes_and_without_a_copy() -> None:
    table = pa.table({"value": ["x" * 400_000] * 5})
    before = pa.total_allocated_bytes()
    parts = parts_of_frame(frame(table), LIMITS)
    assert pa.total_allocated_bytes() - before < 100_000
    assert [part.num_rows for part in parts] == [2, 2, 1]


def test_a_frame_whose_rows_share_a_large_text_is_cut_by_what_it_becomes() -> None:
    table = pa.table({"value": pa.array(["x" * 400_000] * 6).dictionary_encode()})
    assert [part.num_rows for part in parts_of_frame(frame(table), LIMITS)] == [2, 2, 2]


def test_a_small_frame_and_a_spark_dataframe_stay_as_they_are() -> None:
    small = frame(pa.table({"value": ["x"]}))
    assert parts_of_frame(small, LIMITS) == [small]
    later = replace(small, data=lambda session: session.range(1))
    assert parts_of_frame(later, LIMITS) == [later]


def test_parts_know_the_positions_of_their_rows() -> None:
    parts = parts_of_frame(frame(pa.table({"value": list(range(2_500))})), LIMITS)
    assert [part.source_offset["position"] for part in parts] == [1_000, 2_000, 2_500]
    assert [part.offset_after(3)["position"] for part in parts if part.offset_after] == [4, 1_004, 2_004]


@pytest.mark.parametrize("how", ["without positions", "with a position that cannot be told"])
def test_of_a_frame_without_positions_nothing_counts_before_its_end(how: str) -> None:
    whole = frame(pa.table({"value": list(range(2_500))}), inner=how != "without positions")
    if how != "without positions":
        whole = replace(whole, offset_after=lambda row: {"position": {1, 2}})
    offsets = SubmittedOffsets()
    submissions = [Submission.of_frame(part, part.num_rows or 0, partition_identity) for part in _parts(whole)]
    for submission in submissions:
        offsets.add(submission)
    for index, submission in enumerate(submissions):
        offsets.settle_range(submission, 0, submission.size)
        known = [offset for _, offset in offsets.take_committable()]
        assert known == ([{"position": 2_500}] if index == 2 else [])


def _parts(whole: SourceFrame) -> list[SourceFrame]:
    return parts_of_frame(whole, LIMITS)


def test_messages_name_the_row_of_the_frame_that_the_task_returned() -> None:
    parts = parts_of_frame(frame(pa.table({"value": list(range(2_500))}), inner=False), LIMITS)
    place = "source partition {'file': 'f'}, row 1007 of the frame that ends at {'position': 2500}"
    assert place_in_source(parts[1], 7) == place


class Told(FrameSourceTask):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[SourceFrame, int]] = []

    def start(self, props: Mapping[str, str]) -> None: ...

    def stop(self) -> None: ...

    def poll(self) -> SourceFrame | None:
        return None

    def commit_batch(self, frame: SourceFrame, acknowledged: int) -> None:
        self.told.append((frame, acknowledged))


def test_the_task_is_told_of_the_frame_it_returned_once_all_parts_are_stored() -> None:
    whole = frame(pa.table({"value": list(range(2_500))}))
    task, offsets = Told(), SubmittedOffsets()
    hooks = CommitHooks(task)
    submissions = []
    for part in _parts(whole):
        submission = Submission.of_frame(part, part.num_rows or 0, partition_identity)
        hooks.add(part, submission)
        offsets.add(submission)
        submissions.append(submission)
    # Kafka answers in any order; two rows of the second part were dropped.
    for index in (2, 0, 1):
        assert task.told == []
        size = submissions[index].size
        offsets.settle_range(submissions[index], 0, size)
        hooks.acknowledged(submissions[index], size - (2 if index == 1 else 0), None)
        hooks.advance()
    assert task.told == [(whole, 2_498)]


def test_the_task_is_told_where_rows_of_the_frame_are_once_all_parts_are_stored() -> None:
    class Places(Told):
        def frame_acknowledged(self, frame: SourceFrame, places: Mapping[int, RecordMetadata]) -> None:
            assert self.told == [], "before commit_batch"
            self.places = (frame, dict(places))

    whole = frame(pa.table({"value": list(range(2_500))}))
    task, offsets = Places(), SubmittedOffsets()
    hooks = CommitHooks(task)
    for part in _parts(whole):
        submission = Submission.of_frame(part, part.num_rows or 0, partition_identity)
        hooks.add(part, submission)
        offsets.add(submission)
        offsets.settle_range(submission, 0, submission.size)
        last = submission.size - 1
        hooks.acknowledged(submission, submission.size, {last: RecordMetadata("t", 0, last, None), 0: PLACE})
        hooks.advance()
    assert task.places[0] is whole
    assert list(task.places[1]) == [0, 999, 1000, 1999, 2000, 2499]
    assert (task.places[1][1000], task.places[1][2499].offset) == (PLACE, 499)
    assert task.told == [(whole, 2_500)]


def test_the_task_is_not_told_of_places_when_nothing_was_stored() -> None:
    class Places(Told):
        def frame_acknowledged(self, frame: SourceFrame, places: Mapping[int, RecordMetadata]) -> None:
            raise AssertionError("nothing is stored")

    whole = frame(pa.table({"value": [1, 2]}))
    task, offsets = Places(), SubmittedOffsets()
    hooks = CommitHooks(task)
    submission = Submission.of_frame(whole, 2, partition_identity)
    hooks.add(whole, submission)
    offsets.add(submission, [0, 1])
    hooks.advance()
    assert task.told == [(whole, 0)]


def test_records_of_a_poll_are_cut_by_bytes_too() -> None:
    records = [SourceRecord({}, {"at": at}, "t", value="x" * 300_000) for at in range(7)]
    parts = parts_of_records(records, LIMITS)
    assert [len(part) for part in parts] == [3, 3, 1]
    assert [one for part in parts for one in part] == records
    assert parts_of_records([], LIMITS) == [[]]
    large = [SourceRecord({}, {}, "t", value="x" * 3_000_000), *records[:1]]
    assert [len(part) for part in parts_of_records(large, LIMITS)] == [1, 1]


def test_parts_of_a_frame_wait_for_room_and_none_is_lost() -> None:
    batcher = Batcher(BatchLimits(max_records=2))
    whole = frame(pa.table({"value": [1, 2, 3, 4, 5]}), inner=False)
    putting = threading.Thread(target=batcher.put, args=(whole, PartEnd.COMMIT))
    putting.start()
    taken: list[TakenBatch] = []
    while len(taken) < 3:
        one = batcher.take()
        assert one is not None
        taken.append(one)
    putting.join(10)
    assert [one.end for one in taken] == [PartEnd.INSIDE, PartEnd.INSIDE, PartEnd.COMMIT]
    frames = [one.batch for one in taken]
    assert all(isinstance(one, FramePart) and one.whole is whole for one in frames)
    assert pa.concat_tables(tables([one for one in frames if isinstance(one, SourceFrame)])).equals(whole.data)
