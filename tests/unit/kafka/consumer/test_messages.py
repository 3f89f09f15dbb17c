"""Messages of the client as columns."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from penstock.api import TopicPartition
from penstock.kafka.consumer.messages import to_arrow

NONE, CREATED, APPENDED = ck.TIMESTAMP_NOT_AVAILABLE, ck.TIMESTAMP_CREATE_TIME, ck.TIMESTAMP_LOG_APPEND_TIME


def message(offset: int, timestamp: tuple[int, int]) -> ck.Message:
    return ck.Message(topic="t", partition=0, offset=offset, value=b"v", timestamp=timestamp)


@pytest.mark.parametrize(
    ("given", "stamps", "kinds"),
    [
        ([(CREATED, 5), (CREATED, 0)], [5, 0], [0, 0]),
        ([(APPENDED, 7), (CREATED, 8), (NONE, -1)], [7, 8, None], [1, 0, -1]),
        ([(NONE, -1), (NONE, -1)], [None, None], [-1, -1]),
    ],
    ids=["all of one type", "mixed", "none"],
)
def test_timestamps_come_with_their_types(
    given: list[tuple[int, int]], stamps: list[int | None], kinds: list[int]
) -> None:
    table, ends = to_arrow([message(offset, one) for offset, one in enumerate(given)], one_partition=True)
    assert table["timestamp"].to_pylist() == stamps
    assert table["timestamp_type"].to_pylist() == kinds
    assert ends == {TopicPartition("t", 0): len(given)}
