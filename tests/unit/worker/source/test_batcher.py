"""The queues between the stages of a source task, and what is decided about the rows of a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from testkit.doubles.source_doubles import MemoryOffsets, ScriptedTask, offset_committer, produce_batch, record

from penstock.api import SourceFrame, SourceRecord
from penstock.data import Schema, SchemaBuilder, Struct
from penstock.errors import OffsetStoreException
from penstock.kafka.admin import NewTopic, plan_of
from penstock.pipeline.batch.batches import PolledBatch, RecordError
from penstock.settings.topics import parse_topic_creation
from penstock.worker.source.batcher import Batcher, estimated_bytes
from penstock.worker.source.delivery import rows_to_send, with_rows_replaced
from penstock.worker.source.offset_commit import OffsetCommitter
from penstock.worker.source.submitted import Submission
from penstock.worker.task.bounded_queue import BatchLimits, BoundedQueue, SharedLoad


def frame(rows: int) -> SourceFrame:
    return SourceFrame(pa.table({"value": ["x"] * rows}), "t", None, {"file": "f"}, {"position": rows})


def batch_of(batcher: Batcher) -> PolledBatch:
    taken = batcher.take()
    assert taken is not None
    return taken.batch


def positions(batch: PolledBatch | None) -> list[object]:
    assert batch is not None
    assert not isinstance(batch, SourceFrame)
    return [(one.source_offset or {})["position"] for one in batch]


def test_polls_that_wait_are_joined_up_to_the_limit() -> None:
    batcher = Batcher(BatchLimits(max_records=5))
    assert batcher.put([record(1), record(2)])
    assert batcher.put([record(3)])
    assert positions(batch_of(batcher)) == [1, 2, 3]


def test_a_single_poll_is_passed_on_without_a_copy() -> None:
    batcher = Batcher(BatchLimits(max_records=5))
    polled = [record(1), record(2)]
    batcher.put(polled)
    batch = batch_of(batcher)
    assert not isinstance(batch, SourceFrame)
    assert batch[0] is polled[0]


def test_frames_keep_to_themselves_and_to_the_order() -> None:
    batcher = Batcher(BatchLimits())
    first, second = frame(3), frame(4)
    for polled in ([record(1)], first, second, [record(2)], [record(3)]):
        batcher.put(polled)
    assert positions(batch_of(batcher)) == [1]
    assert batch_of(batcher) is first
    assert batch_of(batcher) is second
    assert positions(batch_of(batcher)) == [2, 3]


def test_a_full_batcher_takes_nothing_until_there_is_room_or_the_time_is_over() -> None:
    now = [0.0]
    batcher = Batcher(BatchLimits(max_records=2), clock=lambda: now[0])
    assert batcher.put([record(1), record(2)])
    now[0] = 10.0
    batcher.end_at(10.0)
    assert batcher.put([record(3)]) is False
    assert positions(batch_of(batcher)) == [1, 2]
    assert batcher.put([record(3)]) is True


def test_bytes_bound_the_batcher_too() -> None:
    batcher = Batcher(BatchLimits(max_records=100, max_bytes=1000))
    batcher.end_at(0.0)
    assert batcher.put([record(1, "x" * 5000)]) is True
    assert batcher.put([record(2, "x")]) is False


def test_a_closed_batcher_gives_what_it_has_and_then_ends() -> None:
    batcher = Batcher(BatchLimits())
    batcher.put([record(1)])
    batcher.close()
    assert batcher.put([record(2)]) is False
    assert positions(batch_of(batcher)) == [1]
    assert batcher.take() is None


def test_a_discarded_batcher_wakes_whoever_waits() -> None:
    batcher = Batcher(BatchLimits(max_records=1))
    batcher.put([record(1)])
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(batcher.put([record(2)])))
    thread.start()
    batcher.discard()
    thread.join(10)
    assert answers == [False]
    assert batcher.take() is None


def test_a_stage_is_bounded_by_number_and_size_but_takes_one_large_item() -> None:
    queue: BoundedQueue[str] = BoundedQueue(2, BatchLimits(1_000_000, 100))
    assert queue.offer("large", 1, 1000)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(queue.offer("small", 1, 1)))
    thread.start()
    thread.join(0.05)
    assert answers == []
    assert queue.take_one(10) == "large"
    thread.join(10)
    assert answers == [True]
    assert queue.take_one(10) == "small"
    assert queue.take_one(0) is None
    ended = [queue.ended]
    queue.close()
    ended.append(queue.ended)
    assert ended == [False, True]
    assert queue.offer("late", 1, 1) is False


def test_sizes_are_guessed_by_a_sample() -> None:
    schema: Schema = SchemaBuilder.struct().field("a", SchemaBuilder.string().build()).build()
    struct = Struct(schema).put("a", "x" * 1000)
    assert estimated_bytes([record(1, "x" * 100)] * 1000) == pytest.approx(100_000, rel=0.5)
    nested = [SourceRecord(None, None, "t", value) for value in (struct, {"a": ["x" * 1000]})]
    assert 2000 <= estimated_bytes(nested) < 4000
    assert estimated_bytes([]) == 0


def error(row: int) -> RecordError:
    return RecordError(row, "VALUE_CONVERTER", "X", "E", "bad")


def test_all_rows_go_when_nothing_is_dropped_or_failed() -> None:
    assert rows_to_send(produce_batch(["a", "b"], ["t", "t"]), {}, 2) == (None, [])


def test_dropped_and_failed_rows_are_settled_and_rows_behind_the_limit_neither() -> None:
    batch = produce_batch(["a", "drop", "bad", "b", "fatal", "drop", "c"], ["t"] * 7, errors={2: error(2), 4: error(4)})
    rows, settled = rows_to_send(batch, {2: error(2), 4: error(4)}, 4)
    assert rows is not None
    assert rows.to_pylist() == [0, 3]
    assert settled == [1, 2]


def test_rows_that_passed_at_another_try_take_the_place_of_the_failed() -> None:
    batch = produce_batch(["a", "bad", "c", "bad"], ["t"] * 4, errors={1: error(1), 3: error(3)})
    again = replace(produce_batch(["b", "d"], ["u", "t"]), has_keys=True)
    joined = with_rows_replaced(batch, [1, 3], again)
    assert joined.table.column("value").to_pylist() == [b"a", b"b", b"c", b"d"]
    assert joined.table.column("topic").to_pylist() == ["t", "u", "t", "t"]
    assert joined.table.column("seq").to_pylist() == [0, 1, 2, 3]
    assert joined.topic is None
    assert joined.has_keys


def committer(store: MemoryOffsets, now: list[float]) -> OffsetCommitter:
    return offset_committer(ScriptedTask(), store, clock=lambda: now[0])


def test_the_next_commit_is_due_an_interval_after_the_end_of_the_last() -> None:
    now = [100.0]
    made = committer(MemoryOffsets(), now)
    assert made.due_in_s() == 60.0
    now[0] = 159.0
    made.run_if_due()
    assert made.counts.successes == 0
    now[0] = 161.0
    made.run_if_due()
    assert made.counts.successes == 1
    assert made.due_in_s() == 60.0


def test_a_newer_offset_wins_over_one_whose_write_failed() -> None:
    store = MemoryOffsets()
    made = committer(store, [0.0])
    store.fail = OffsetStoreException("full")
    for position in (1, 2):
        batch = Submission.of_records([record(position)], repr)
        made.submitted.add(batch)
        made.submitted.settle_range(batch, 0, 1)
        assert made.run() is (position == 2)
        store.fail = None
    assert store.data == {b'["c",{"file":"f"}]': b'{"position":2}'}
    assert (made.counts.successes, made.counts.failures) == (1, 1)


def test_topics_are_made_as_the_first_matching_group_says() -> None:
    plan = plan_of(
        parse_topic_creation(
            {
                "topic.creation.default.partitions": "2",
                "topic.creation.default.replication.factor": "1",
                "topic.creation.groups": "logs",
                "topic.creation.logs.include": "log-.*",
                "topic.creation.logs.partitions": "6",
                "topic.creation.logs.cleanup.policy": "compact",
            }
        )
    )
    assert plan("log-a") == NewTopic("log-a", 6, 1, {"cleanup.policy": "compact"}, "logs")
    assert plan("other") == NewTopic("other", 2, 1)


def test_what_other_tasks_have_waiting_leaves_a_task_one_poll() -> None:
    load = SharedLoad(waiting_bytes=40)
    others = Batcher(BatchLimits(), load=load)
    assert others.put([record(0, "x" * 40)])
    batcher = Batcher(BatchLimits(), load=load)
    assert batcher.put([record(1, "a")])
    batcher.end_at(0.0)
    assert not batcher.put([record(2, "b")])

    others.discard()
    assert batcher.put([record(2, "b")])


def oversubscribed() -> SharedLoad:
    """A load with more jobs than cores."""
    load = SharedLoad(jobs=1)
    load.begin()
    load.begin()
    return load


def until_done(wait: Callable[[], None]) -> threading.Thread:
    """A thread that waits; checks that it has to."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    return thread


@pytest.mark.parametrize("how", ["take", "discard", "close", "end"])
def test_where_tasks_wait_for_each_other_none_polls_on_top_of_a_poll_that_waits(how: str) -> None:
    batcher = Batcher(BatchLimits(), load=oversubscribed())
    batcher.wait_to_poll()
    assert batcher.put([record(1)])

    thread = until_done(batcher.wait_to_poll)
    if how == "end":
        batcher.end_at(0.0)
    else:
        getattr(batcher, how)()

    thread.join(10)
    assert not thread.is_alive()


def test_a_task_that_waits_for_nobody_polls_ahead() -> None:
    batcher = Batcher(BatchLimits(), load=SharedLoad())
    assert batcher.put([record(1)])

    batcher.wait_to_poll()


@pytest.mark.parametrize("how", ["close", "discard"])
def test_who_waits_until_a_stage_is_asked_goes_on_at_its_end(how: str) -> None:
    queue: BoundedQueue[str] = BoundedQueue(2, BatchLimits(1_000_000, 100))

    thread = until_done(queue.wait_until_asked)
    getattr(queue, how)()

    thread.join(10)
    assert not thread.is_alive()


def test_a_stage_is_asked_again_once_what_it_gave_is_done_with() -> None:
    queue: BoundedQueue[str] = BoundedQueue(2, BatchLimits(1_000_000, 100))
    queue.offer("one", 1, 1)
    assert queue.take_one(0) == "one"

    thread = until_done(queue.wait_until_asked)
    taker = threading.Thread(target=lambda: queue.take_one(10), daemon=True)
    taker.start()

    thread.join(10)
    assert not thread.is_alive()
    queue.close()
    taker.join(10)
