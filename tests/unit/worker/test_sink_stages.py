"""The queues of a sink task: who waits, and for what."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from penstock.api import TopicPartition
from penstock.kafka.consumer import FetchedChunk
from penstock.pipeline.batches import SinkBatch
from penstock.worker.sink_stages import ConvertedBatch, FetchedBatch, SinkStages, StageLimits

WAIT_S = 0.05


def chunk(rows: int, size: int) -> FetchedChunk:
    table = pa.table({"value": pa.array([b"x" * size] * rows, pa.binary())})
    return FetchedChunk(table, {TopicPartition("t", 0): rows}, 1)


@pytest.mark.parametrize(("rows", "size"), [(10, 1), (1, 1_000)], ids=["records", "bytes"])
def test_fetching_rests_while_as_much_waits_as_may_wait(rows: int, size: int) -> None:
    stages = SinkStages(StageLimits(max_records=10, max_bytes=1_000))
    stages.add_fetched(chunk(rows, size))
    assert stages.room() == 0

    started = time.monotonic()
    stages.wait_in_fetch(WAIT_S)
    assert time.monotonic() - started >= WAIT_S

    stages.take_fetched()
    assert stages.room() == 10
    stages.wait_in_fetch(60)


def converted(size: int) -> ConvertedBatch:
    fetched = FetchedBatch(chunk(1, size).table, {}, 1)
    return ConvertedBatch(fetched, SinkBatch([None], None, {}, 1))


def test_a_batch_takes_no_more_chunks_than_it_has_room_for_in_bytes() -> None:
    stages = SinkStages(StageLimits(max_records=1_000, max_bytes=1_000))
    for _ in range(3):
        stages.add_fetched(chunk(1, 600))
    sizes = []
    while stages.room() < 1_000:
        batch = stages.take_fetched()
        assert isinstance(batch, FetchedBatch)
        sizes.append(batch.table.num_rows)
    assert sizes == [1, 1, 1]


@pytest.mark.parametrize(("size", "waiting"), [(100, 2), (600, 1), (5_000, 1)])
def test_converted_batches_wait_for_the_task_only_if_they_are_small_together(size: int, waiting: int) -> None:
    stages = SinkStages(StageLimits(max_bytes=1_000, converted_batches=2))
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
