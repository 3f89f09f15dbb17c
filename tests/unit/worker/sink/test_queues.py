"""The queues of a sink task: who waits, and for what."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pyarrow as pa
import pytest

from penstock.api import TopicPartition
from penstock.kafka.consumer.consumer import FetchedChunk
from penstock.kafka.consumer.messages import UnreadableRecords, placeholder
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, SinkBatch
from penstock.worker.sink import queues as sink_stages
from penstock.worker.sink.queues import ConvertedBatch, SinkStages
from penstock.worker.task.bounded_queue import BatchLimits, SharedLoad

WAIT_S = 0.05


def chunk(rows: int, size: int, *, more: bool = False) -> FetchedChunk:
    table = pa.table({"value": pa.array([b"x" * size] * rows, pa.binary())})
    return FetchedChunk(table, {TopicPartition("t", 0): rows}, 1, more=more)


@pytest.mark.parametrize(("rows", "size"), [(10, 1), (1, 1_000)], ids=["records", "bytes"])
def test_fetching_rests_while_as_much_waits_as_may_wait(rows: int, size: int) -> None:
    stages = SinkStages(BatchLimits(max_records=10, max_bytes=1_000))
    stages.add_fetched(chunk(rows, size))
    assert stages.room() == 0

    started = time.monotonic()
    stages.wait_in_fetch(WAIT_S)
    assert time.monotonic() - started >= WAIT_S

    stages.take()
    assert stages.room() == 10
    stages.wait_in_fetch(60)


def rows_of(taken: FetchedChunk | None) -> int:
    assert taken is not None
    return int(taken.table.num_rows)


@pytest.mark.parametrize(("rows", "size"), [(1, 600), (24_999, 0)], ids=["bytes", "records"])
def test_a_batch_is_gathered_from_a_topic_that_has_more_until_its_job_is_worth_it(
    monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    monkeypatch.setattr(sink_stages, "GATHER_S", 3_600)
    stages = SinkStages(BatchLimits(max_records=50_000, max_bytes=1_200 if size else 10_000_000))
    taken: list[FetchedChunk | None] = []
    taking = threading.Thread(target=lambda: taken.append(stages.take()))
    taking.start()
    stages.add_fetched(chunk(1, 1, more=True))
    taking.join(WAIT_S)
    assert taking.is_alive()
    stages.add_fetched(chunk(rows, size, more=True))
    taking.join(10)
    assert rows_of(taken[0]) == rows + 1


def test_the_end_of_a_topic_is_not_waited_behind() -> None:
    stages = SinkStages(BatchLimits())
    stages.add_fetched(chunk(3, 1, more=True))
    stages.add_fetched(chunk(4, 1))
    assert rows_of(stages.take()) == 7


def test_more_of_a_topic_is_waited_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_stages, "GATHER_S", WAIT_S)
    stages = SinkStages(BatchLimits())
    started = time.monotonic()
    stages.add_fetched(chunk(3, 1, more=True))
    assert rows_of(stages.take()) == 3
    assert time.monotonic() - started >= WAIT_S


@pytest.mark.parametrize("how", ["close", "be_quiet"])
def test_who_gathers_is_told_of_the_end(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_stages, "GATHER_S", 3_600)
    stages = SinkStages(BatchLimits())
    stages.add_fetched(chunk(3, 1, more=True))
    taken: list[FetchedChunk | None] = []
    taking = threading.Thread(target=lambda: taken.append(stages.take()))
    taking.start()
    getattr(stages, how)()
    taking.join(WAIT_S)
    stages.close()
    taking.join(10)
    assert taken == [None]


def test_a_batch_is_not_gathered_beyond_the_room_that_all_tasks_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_stages, "GATHER_S", 3_600)
    load = SharedLoad(waiting_bytes=1_000)
    load.let_wait(990)
    stages = SinkStages(BatchLimits(), load)
    stages.add_fetched(chunk(3, 10, more=True))
    assert rows_of(stages.take()) == 3


def converted(size: int) -> ConvertedBatch:
    fetched = FetchedChunk(chunk(1, size).table, {}, 1)
    return ConvertedBatch(fetched, SinkBatch([None], None, {}, 1))


def test_a_batch_takes_no_more_chunks_than_it_has_room_for_in_bytes() -> None:
    stages = SinkStages(BatchLimits(max_records=1_000, max_bytes=1_000))
    for _ in range(3):
        stages.add_fetched(chunk(1, 600))
    sizes = []
    while stages.room() < 1_000:
        batch = stages.take()
        assert isinstance(batch, FetchedChunk)
        sizes.append(batch.table.num_rows)
    assert sizes == [1, 1, 1]


@pytest.mark.parametrize(("size", "waiting"), [(100, 2), (600, 1), (5_000, 1)])
def test_converted_batches_wait_for_the_task_only_if_they_are_small_together(size: int, waiting: int) -> None:
    stages = SinkStages(BatchLimits(max_bytes=1_000))
    for _ in range(waiting):
        assert stages.offer_converted(converted(size)) is True

    answers: list[object] = []
    offering = threading.Thread(target=lambda: answers.append(stages.offer_converted(converted(size))))
    offering.start()
    offering.join(WAIT_S)
    assert offering.is_alive()
    assert stages.take_converted() is not None
    offering.join(10)
    assert answers == [True]


def full_stages() -> SinkStages:
    """Stages with a message that waits and no room for another."""
    stages = SinkStages(BatchLimits(max_records=1))
    stages.add_fetched(chunk(1, 1))
    return stages


def test_beside_a_job_messages_are_taken_only_when_fetching_waits_for_room() -> None:
    job: Future[None] = Future()
    stages = SinkStages(BatchLimits(max_records=2))
    stages.add_fetched(chunk(1, 1))
    threading.Timer(WAIT_S, job.set_result, [None]).start()
    assert stages.take_crowded(job) is None

    assert isinstance(full_stages().take_crowded(Future()), FetchedChunk)


@pytest.mark.parametrize("how", ["close", "be_quiet"])
def test_beside_a_job_nothing_is_taken_at_the_end(how: str) -> None:
    stages = full_stages()
    getattr(stages, how)()
    job: Future[None] = Future()
    threading.Timer(WAIT_S, job.set_result, [None]).start()
    assert stages.take_crowded(job) is None


def test_it_is_crowded_when_fetching_had_to_wait_or_more_is_there() -> None:
    stages = full_stages()
    stages.take()
    assert stages.crowded

    stages = SinkStages(BatchLimits(max_records=3))
    stages.add_fetched(chunk(1, 1))
    stages.take()
    assert not stages.crowded
    stages.add_fetched(chunk(1, 1))
    assert stages.crowded


def test_what_other_tasks_have_waiting_leaves_a_task_a_small_fetch() -> None:
    load = SharedLoad(waiting_bytes=1_600)
    others, stages = (SinkStages(BatchLimits(max_records=100, max_bytes=1_600), load) for _ in range(2))
    assert stages.room_bytes() == 1_600

    others.add_fetched(chunk(1, 1_550))
    assert others.room() == 0
    assert stages.room() == 100
    assert stages.room_bytes() == 100
    stages.add_fetched(chunk(1, 20))
    assert stages.room() == 0

    others.take()
    assert others.room() == 100
    assert stages.room() == 99


@pytest.mark.parametrize("how", ["be_quiet", "close"])
def test_a_task_that_ends_leaves_its_room_to_others(how: str) -> None:
    load = SharedLoad(waiting_bytes=1_600)
    stages = SinkStages(BatchLimits(max_bytes=1_600), load)
    stages.add_fetched(chunk(1, 1_550))

    getattr(stages, how)()
    stages.add_fetched(chunk(1, 1_550))

    assert load.bytes_left == 1_600


def test_a_fetch_that_unpacks_to_more_than_a_batch_is_cut_and_each_part_knows_its_ends() -> None:
    rows = [{"topic": "t", "partition": at % 2, "offset": at // 2, "value": bytes(400_000)} for at in range(10)]
    ends = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 5}
    stages = SinkStages(BatchLimits(50_000, 1_000_000))
    stages.add_fetched(FetchedChunk(pa.Table.from_pylist(rows, CONSUMED_SCHEMA), ends, 1))
    assert stages.room() == 0, "nothing more is fetched before it has gone"
    seen: list[int] = []
    for _ in range(5):
        batch = stages.take()
        assert isinstance(batch, FetchedChunk)
        assert batch.table.nbytes < 1_000_000
        seen += batch.table.column("offset").to_pylist()
        done = len(seen) // 2
        assert batch.ends == {TopicPartition("t", 0): done, TopicPartition("t", 1): done}
    assert seen == [at // 2 for at in range(10)]


def test_what_cannot_be_read_is_a_batch_by_itself() -> None:
    at = TopicPartition("t", 0)
    lost = UnreadableRecords(at, 1, 3, "Invalid compressed data")
    stages = SinkStages(BatchLimits())
    stages.add_fetched(chunk(1, 10))
    stages.add_fetched(FetchedChunk(placeholder(at, 1), {at: 3}, 1, lost))
    stages.add_fetched(chunk(1, 10))
    batches = [stages.take() for _ in range(3)]
    assert [one.unreadable for one in batches if isinstance(one, FetchedChunk)] == [None, lost, None]
