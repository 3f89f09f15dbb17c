"""The queues of a sink task: who waits, and for what."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from penstock.api import TopicPartition
from penstock.kafka.consumer import FetchedChunk
from penstock.worker.sink_stages import SinkStages, StageLimits

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
