"""Messages of the client as columns.

What the client says of records that it cannot read, and where the batch ends that they are in.
"""

from __future__ import annotations

import threading
from unittest import mock

import confluent_kafka as ck
import pytest

from penstock.api import TopicPartition
from penstock.kafka.consumer import messages as unreadable
from penstock.kafka.consumer.messages import (
    Troubles,
    UnreadableRecords,
    batch_start,
    is_about_records,
    search_end,
    to_arrow,
)

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


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 1_000, 50_000, 2**31 - 1])
@pytest.mark.parametrize("start", [0, 1, 2**40])
def test_the_end_of_a_batch_is_found_with_few_questions(start: int, size: int) -> None:
    asked = []

    def is_readable(offset: int) -> bool:
        asked.append(offset)
        return offset >= start + size

    assert search_end(start, is_readable) == start + size
    assert len(asked) <= 2 * size.bit_length() + 1
    assert min(asked) > start, "what is known to be bad is not read again"


@pytest.mark.parametrize("silent_from", range(6))
def test_without_an_answer_the_end_is_not_known(silent_from: int) -> None:
    answers = iter([False] * 3 + [True, False, False])
    asked = iter(range(100))
    assert search_end(0, lambda _: None if next(asked) == silent_from else next(answers)) is None


def test_only_a_second_failure_at_the_same_place_is_final() -> None:
    troubles = Troubles()
    assert not troubles.is_final(P0, 5)
    assert not troubles.is_final(P1, 5), "another partition"
    assert not troubles.is_final(P0, 6), "another place"
    assert troubles.is_final(P0, 6)
    assert not troubles.is_final(P0, 6), "the next one begins anew"
    troubles.forget(P0)
    assert not troubles.is_final(P0, 6), "it was sought"


def test_an_offset_that_cannot_be_is_not_believed() -> None:
    assert batch_start(10, 10, 20) == 10
    assert batch_start(12, 10, 20) == 12, "there are gaps where records were compacted"
    assert batch_start(8, 10, 20) == 10, "reading began inside of the batch"
    assert batch_start(7234026083390941540, 10, 20) == 10
    assert batch_start(-1, 10, None) == 10


@pytest.mark.parametrize(
    ("code", "about"),
    [
        (ck.KafkaError._BAD_COMPRESSION, True),
        (ck.KafkaError._BAD_MSG, True),
        (ck.KafkaError._NOT_IMPLEMENTED, True),
        (ck.KafkaError._PARTITION_EOF, False),
        (ck.KafkaError._TRANSPORT, False),
        (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, False),
    ],
)
def test_which_errors_are_about_records(code: int, about: bool) -> None:
    assert is_about_records(ck.KafkaError(code), "t") is about
    assert not is_about_records(ck.KafkaError(code), None), "it is the client's own"


def test_the_error_says_where_and_what_to_do() -> None:
    one = str(UnreadableRecords(P0, 5, 6, "Invalid compressed data"))
    assert one.startswith("The record of topic t, partition 0 at offset 5 cannot be read: Invalid compressed data. ")
    assert "receive.message.max.bytes" in one
    assert "errors.tolerance=all" in one
    many = str(UnreadableRecords(P0, 5, 9, "Invalid compressed data"))
    assert many.startswith("The records of topic t, partition 0 at offsets 5 to 8, one batch, cannot be read: ")


def test_a_client_that_never_ends_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    client = mock.Mock(close=ended.wait)
    monkeypatch.setattr(unreadable, "_CLOSE_S", 0.01)
    unreadable._close(client)
    assert "did not close within 0.01 s" in caplog.text
    ended.set()
