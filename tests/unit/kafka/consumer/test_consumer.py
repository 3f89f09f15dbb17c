"""Messages that arrive while partitions come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka as ck
import pytest

from penstock.kafka.consumer.consumer import FetchedChunk, RecordConsumer


class Client:
    """A client whose next calls give what a test says; each may be preceded by a callback."""

    def __init__(self, *answers: Any) -> None:
        self.answers = iter(answers)

    def _next(self) -> Any:
        callback, found = next(self.answers)
        callback()
        return found

    def poll(self, _: float) -> Any:
        return self._next()

    def consume(self, most: int, _: float) -> Any:
        return self._next()

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, 0


def message(offset: int, partition: int = 2) -> ck.Message:
    return ck.Message(
        topic="t", partition=partition, offset=offset, value=b"v", timestamp=(ck.TIMESTAMP_CREATE_TIME, 1)
    )


def nothing() -> None: ...


@pytest.fixture
def consumer() -> Iterator[RecordConsumer]:
    with closing(RecordConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, name="s task 0")) as made:
        yield made


def fetched(consumer: RecordConsumer) -> list[tuple[int, list[int]]]:
    """The chunks of the next calls: their epochs and offsets."""
    found: list[tuple[int, list[int]]] = []

    def take(chunk: FetchedChunk | None) -> None:
        if chunk is not None:
            found.append((chunk.epoch, chunk.table["offset"].to_pylist()))

    take(consumer.fetch(100, 0))
    while consumer._ready:
        take(consumer.fetch(100, 0))
    return found


def moved(consumer: RecordConsumer) -> Callable[[], None]:
    """Partitions are given back and assigned again, inside of a call."""

    def move() -> None:
        consumer._on_revoke(consumer._consumer, [])
        consumer._epoch += 1

    return move


def test_a_message_that_came_before_partitions_were_assigned_again_is_not_one_of_those_behind(
    consumer: RecordConsumer,
) -> None:
    """It would be taken for the first one of the new assignment, in front of those that come again."""
    client = consumer._consumer
    new = [message(0), message(1)]
    consumer._consumer = Client((nothing, []), (nothing, message(740)), (moved(consumer), new))  # type: ignore[assignment]
    epoch = consumer.epoch
    assert fetched(consumer) == [(epoch, [740]), (epoch + 2, [0, 1])]
    consumer._consumer = Client((nothing, []), (nothing, message(740)), (moved(consumer), []))  # type: ignore[assignment]
    assert fetched(consumer) == [(epoch + 2, [740])]
    consumer._consumer = client


def test_messages_between_which_nothing_has_moved_are_one_chunk(consumer: RecordConsumer) -> None:
    client = consumer._consumer
    consumer._consumer = Client((nothing, []), (moved(consumer), message(4)), (nothing, [message(5)]))  # type: ignore[assignment]
    assert fetched(consumer) == [(consumer.epoch, [4, 5])]
    consumer._consumer = client
