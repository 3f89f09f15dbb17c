"""Which messages are kept for records that a task may report later, and for how long."""

import gc
import pickle

import pyarrow as pa
import pytest
from testkit.doubles.sink_doubles import row

from penstock.api import OffsetAndMetadata, SinkRecord, TopicPartition
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA
from penstock.worker.sink.context import DeliveredMessages
from penstock.worker.sink.deliveries import SinkDelivery

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH_BYTES = 10_000


def delivery(partition: TopicPartition, first: int, count: int = 2) -> SinkDelivery:
    """Messages of about ``BATCH_BYTES`` together, and the records made of them."""
    offsets = range(first, first + count)
    value = b"v" * (BATCH_BYTES // count)
    table = pa.Table.from_pylist([row(partition, offset, value) for offset in offsets], CONSUMED_SCHEMA)
    records = [SinkRecord(partition.topic, partition.partition, offset, "text") for offset in offsets]
    return SinkDelivery(table, records, None, {partition: first + count})


class Kept:
    """The messages of a task that keeps what a test tells it to."""

    def __init__(self, held_bytes: int = 1 << 30) -> None:
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {T0: OffsetAndMetadata(0), T1: OffsetAndMetadata(0)}
        self.messages = DeliveredMessages(lambda: self.committed, recent_bytes=3 * BATCH_BYTES, held_bytes=held_bytes)

    def deliver(self, partition: TopicPartition, first: int) -> list[SinkRecord]:
        made = delivery(partition, first)
        self.messages.remember(made)
        return list(made.records or ())

    def key(self, record: SinkRecord) -> bytes | None:
        found = self.messages.find(record)
        return None if found is None else found.key

    def alive(self) -> int:
        gc.collect()
        return sum(held() is not None for held in self.messages._held) + len(self.messages._recent)


def test_the_original_of_a_record_that_a_task_holds_is_found_however_much_came_since() -> None:
    kept = Kept()
    first = kept.deliver(T0, 0)
    for offset in range(2, 200, 2):
        kept.deliver(T0, offset)
    assert kept.key(first[1]) == b"k1"
    message = kept.messages.find(first[1])
    assert message is not None
    assert (message.offset, message.timestamp, message.headers) == (1, 1001, (("h", b"1"),))


def test_a_copy_of_a_record_has_the_original_too() -> None:
    kept = Kept()
    [copy] = [record.new_record(topic="elsewhere", value="changed") for record in kept.deliver(T0, 0)[:1]]
    for offset in range(2, 40, 2):
        kept.deliver(T0, offset)
    assert kept.key(copy) == b"k0"


def test_of_what_a_task_does_not_hold_only_the_newest_is_kept() -> None:
    kept = Kept()
    for offset in range(0, 200, 2):
        kept.deliver(T0, offset)
    assert kept.alive() <= 3
    assert kept.key(SinkRecord("t", 0, 0, "made anew")) is None
    assert kept.key(SinkRecord("t", 0, 199, "made anew")) == b"k199"


def test_the_original_goes_when_its_offset_is_committed_and_much_came_since() -> None:
    kept = Kept()
    held = kept.deliver(T0, 0) + kept.deliver(T1, 0)
    for offset in range(2, 40, 2):
        kept.deliver(T0, offset)
    kept.committed[T0] = OffsetAndMetadata(1)
    kept.deliver(T0, 40)
    assert [kept.key(record) for record in held] == [b"k0", b"k1", b"k0", b"k1"]
    kept.committed[T0] = OffsetAndMetadata(2)
    kept.deliver(T0, 42)
    assert [kept.key(record) for record in held] == [None, None, b"k0", b"k1"]
    del kept.committed[T1]
    kept.deliver(T0, 44)
    assert [kept.key(record) for record in held] == [None] * 4


def test_what_a_task_holds_is_bounded_and_the_newest_stays() -> None:
    kept = Kept(held_bytes=5 * BATCH_BYTES)
    held = [kept.deliver(T0, offset)[0] for offset in range(0, 40, 2)]
    found = [kept.key(record) for record in held]
    assert found[:12] == [None] * 12
    assert found[-6:] == [b"k28", b"k30", b"k32", b"k34", b"k36", b"k38"]


def test_the_last_batch_is_kept_whatever_its_size() -> None:
    messages = DeliveredMessages(dict, recent_bytes=1)
    made = delivery(T0, 0)
    messages.remember(made)
    assert messages.find(SinkRecord("t", 0, 1, "made anew")) is not None


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_record_can_be_pickled_and_leaves_its_message_behind(protocol: int) -> None:
    kept = Kept()
    record = kept.deliver(T0, 0)[0]
    data = pickle.dumps(record, protocol)
    assert len(data) < BATCH_BYTES
    assert pickle.loads(data) == record
