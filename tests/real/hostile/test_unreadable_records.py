"""Batches that the Kafka client cannot read: damaged on a broker's disk, or unpacked larger than it takes."""

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ClientTopic  # type: ignore[attr-defined]

from penstock.api import TopicPartition
from penstock.broker import EmbeddedBroker
from penstock.errors import KafkaException
from penstock.kafka.consumer.consumer import FetchedChunk, Placement, RecordConsumer
from penstock.kafka.consumer.offsets import Subscription

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAIT_S = 60.0
LIMITS = {"receive_message_max_bytes": 60_000_000, "fetch_max_bytes": 50_000_000}
#: Offset and size of the parts of a record batch's header that are looked at here; the records come behind it.
_LENGTH_AT, _LENGTH_BEHIND, _HEADER = 8, 12, 61


class Reader:
    """A consumer that owns whatever it is given, and what it has read."""

    def __init__(self, servers: str, topic: str, **settings: object) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._consumer = RecordConsumer(
            {"bootstrap.servers": servers, "group.id": f"g-{topic}", "auto.offset.reset": "earliest", **named},
            name="reader",
        )
        self._consumer.subscribe(Subscription.of([topic]), self)
        self.chunks: list[FetchedChunk] = []

    def before_assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    def on_assigned(
        self, starts: Mapping[TopicPartition, int], epoch: int, at_end: frozenset[TopicPartition] = frozenset()
    ) -> Placement:
        return Placement(starts)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None: ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None: ...

    def read(self, last: bytes) -> "Reader":
        """Reads until a message has this value."""
        deadline = time.monotonic() + WAIT_S
        while not any(chunk.table.column("value").to_pylist()[-1] == last for chunk in self.chunks):
            assert time.monotonic() < deadline, [chunk.ends for chunk in self.chunks]
            chunk = self._consumer.fetch(500, 0.2)
            self.chunks += [] if chunk is None else [chunk]
        return self

    def close(self) -> None:
        self._consumer.close()

    @property
    def offsets(self) -> list[int]:
        return [offset for chunk in self.chunks for offset in chunk.table.column("offset").to_pylist()]

    @property
    def unreadable(self) -> list[tuple[int, int]]:
        return [(one.unreadable.offset, one.unreadable.end) for one in self.chunks if one.unreadable is not None]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of its own: its files are damaged."""
    large = {"message.max.bytes": "300000000", "socket.request.max.bytes": "400000000"}
    with EmbeddedBroker(tmp_path_factory.mktemp("kafka"), properties=large, heap="1g") as broker:
        yield broker


def topic_of(broker: EmbeddedBroker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([ClientTopic(name, 1, 1)]).values():
        future.result(WAIT_S)
    return name


def write(broker: EmbeddedBroker, topic: str, codec: str, *batches: Sequence[bytes]) -> None:
    """Writes batches of messages, each compressed as a whole."""
    producer = ck.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            # Until it is flushed, so that each is one batch.
            "linger.ms": 60_000,
            "message.max.bytes": 300_000_000,
        }
    )
    for batch in batches:
        for value in batch:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0


def damage(broker: EmbeddedBroker, topic: str, number: int) -> None:
    """Turns bits of the records of a batch, on the broker's disk."""
    (path,) = Path(broker.data_dir).glob(f"**/{topic}-0/*.log")
    log, start = path.read_bytes(), 0
    for _ in range(number):
        start += int.from_bytes(log[start + _LENGTH_AT : start + _LENGTH_BEHIND], "big") + _LENGTH_BEHIND
    at = start + _HEADER + 4
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(255 - byte for byte in log[at : at + 20]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("checked", [True, False])
def test_a_damaged_batch_is_passed_over_as_one_and_nothing_else_is_lost_or_read_twice(
    node: EmbeddedBroker, codec: str, checked: bool
) -> None:
    if codec == "none" and not checked:
        # Nothing says that the bytes are not those that were written.
        codec, checked = "zstd", True
    topic = topic_of(node)
    middle = [b"middle%d" % number * 50 for number in range(5)]
    write(node, topic, codec, [b"first"], middle, [b"between"], middle, middle, [b"last"])
    for number in (1, 3, 4):
        damage(node, topic, number)
    reader = Reader(node.bootstrap_servers, topic, check_crcs=checked)
    try:
        reader.read(b"last")
    finally:
        reader.close()
    assert reader.offsets == [0, 1, 6, 7, 12, 17]
    assert reader.unreadable == [(1, 6), (7, 12), (12, 17)]
    (told,) = {str(one.unreadable) for one in reader.chunks if one.unreadable is not None and one.unreadable.end == 6}
    assert f"The records of topic {topic}, partition 0 at offsets 1 to 5, one batch, cannot be read: " in told


def test_a_damaged_batch_at_the_end_is_passed_over_and_what_comes_later_is_read(node: EmbeddedBroker) -> None:
    topic = topic_of(node)
    write(node, topic, "lz4", [b"first"], [b"damaged"])
    damage(node, topic, 1)
    reader = Reader(node.bootstrap_servers, topic)
    late = threading.Timer(3, write, (node, topic, "lz4", [b"later"]))
    late.start()
    try:
        reader.read(b"later")
    finally:
        reader.close()
        late.join()
    assert reader.offsets == [0, 1, 2]
    assert reader.unreadable == [(1, 2)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_text_of_a_hundred_megabytes_is_read_however_it_is_compressed(node: EmbeddedBroker, codec: str) -> None:
    topic = topic_of(node)
    write(node, topic, codec, [b"first"], [bytes(104_857_600)], [b"last"])
    reader = Reader(node.bootstrap_servers, topic)
    try:
        reader.read(b"last")
    finally:
        reader.close()
    assert reader.offsets == [0, 1, 2]
    assert reader.unreadable == []
    assert [len(value) for chunk in reader.chunks for value in chunk.table.column("value").to_pylist()] == [
        *(5, 104_857_600, 4)
    ]


def test_what_is_larger_than_the_user_lets_the_consumer_take_is_told_and_passed_over(node: EmbeddedBroker) -> None:
    topic = topic_of(node)
    write(node, topic, "zstd", [b"first"], [bytes(104_857_600)], [b"last"])
    reader = Reader(node.bootstrap_servers, topic, **LIMITS)
    try:
        reader.read(b"last")
    finally:
        reader.close()
    assert reader.offsets == [0, 1, 2]
    assert reader.unreadable == [(1, 2)]


def test_an_answer_that_is_larger_than_the_user_lets_the_consumer_take_ends_reading_with_the_setting(
    node: EmbeddedBroker,
) -> None:
    topic = topic_of(node)
    write(node, topic, "none", [b"first"], [bytes(104_857_600)], [b"last"])
    reader = Reader(node.bootstrap_servers, topic, **LIMITS)
    try:
        with pytest.raises(KafkaException, match=r"The setting is consumer\.override\.receive\.message\.max\.bytes"):
            reader.read(b"last")
    finally:
        reader.close()
    assert reader.offsets == [0]
