"""The producer against the client library's own mock cluster, which lives in this process, and against nobody."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.api import RecordMetadata
from penstock.errors import KafkaException
from penstock.kafka import producer as producer_module
from penstock.kafka.deliveries import FailedDelivery, ProducerClosedException
from penstock.kafka.produce_columns import ProduceColumns, columns_of
from penstock.kafka.producer import RecordProducer
from penstock.pipeline.batches import ProduceBatch
from penstock.testing.source_doubles import produce_batch

MOCK = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "linger.ms": 0}
WAIT_S = 10.0


class Answers:
    """Notes what arrives."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.failures: list[FailedDelivery] = []
        self.places: dict[int, RecordMetadata] = {}
        self.chunks = 0

    def delivered(
        self,
        first: int,
        end: int,
        failures: Sequence[FailedDelivery],
        metadata: Mapping[int, RecordMetadata] | None,
    ) -> None:
        self.chunks += 1
        self.rows += range(first, end)
        self.failures += failures
        self.places.update(metadata or {})


@pytest.fixture
def mock() -> Iterator[RecordProducer]:
    made = RecordProducer({**MOCK, "message.max.bytes": 2000}, name="c-0")
    yield made
    made.close(0)


@pytest.fixture
def each_row() -> Iterator[RecordProducer]:
    made = RecordProducer({**MOCK, "message.max.bytes": 2000}, name="c-0", each_row=True)
    yield made
    made.close(0)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


def batch(values: Sequence[str], keys: Sequence[bytes | None] | None = None) -> ProduceBatch:
    made = produce_batch(values, ["t"] * len(values))
    if keys is None:
        return made
    at = made.table.column_names.index("key")
    return replace(made, table=made.table.set_column(at, "key", pa.array(keys, pa.binary())), has_keys=True)


def test_every_row_is_reported_once_in_chunks(mock: RecordProducer) -> None:
    answers = Answers()
    rows = 2 * producer_module.CHUNK_ROWS + 500
    mock.send(batch([str(row) for row in range(rows)]), answers)
    assert mock.wait_delivered(WAIT_S)
    assert sorted(answers.rows) == list(range(rows))
    assert answers.chunks == 3
    assert answers.failures == []
    assert answers.places == {}


def test_metadata_tells_where_each_row_is(each_row: RecordProducer) -> None:
    answers = Answers()
    each_row.send(batch(["a", "b", "c"], [b"k", b"k", b"k"]), answers)
    assert each_row.wait_delivered(WAIT_S)
    assert [answers.places[row].offset for row in range(3)] == [0, 1, 2]
    assert {answers.places[row].topic for row in range(3)} == {"t"}


@pytest.mark.parametrize("setting", ["acks", "request.required.acks"])
def test_without_acknowledgements_no_row_has_an_offset(setting: str) -> None:
    # More than a thousand in one request: librdkafka counts up from -1001.
    rows = 3000
    client = {**MOCK, "enable.idempotence": False, "linger.ms": 200, setting: "0"}
    producer = RecordProducer(client, name="c-0", each_row=True)
    try:
        answers = Answers()
        producer.send(batch(["a"] * rows), answers)
        assert producer.wait_delivered(WAIT_S)
    finally:
        producer.close(0)
    assert {answers.places[row].offset for row in range(rows)} == {-1}
    assert answers.failures == []


def test_only_the_chosen_rows_are_sent(each_row: RecordProducer) -> None:
    answers = Answers()
    each_row.send(batch(["a", "b", "c", "d"]), answers, rows=pa.array([1, 3]))
    assert each_row.wait_delivered(WAIT_S)
    assert sorted(answers.places) == [1, 3]
    assert answers.rows == [1, 2, 3]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_goes_to_the_partition_that_java_chooses(each_row: RecordProducer, key: bytes, hashed: int) -> None:
    answers = Answers()
    each_row.send(batch(["v"], [key]), answers)
    assert each_row.wait_delivered(WAIT_S)
    partitions = 4  # of a topic that the mock cluster makes
    assert answers.places[0].partition == (hashed & 0x7FFFFFFF) % partitions


def test_a_row_the_client_refuses_is_named_and_the_others_go(each_row: RecordProducer) -> None:
    answers = Answers()
    each_row.send(batch(["a", "x" * 3000, "b", "y" * 3000]), answers)
    assert each_row.wait_delivered(WAIT_S)
    assert [failed.row for failed in answers.failures] == [1, 3]
    assert sorted(answers.places) == [0, 2]
    first = answers.failures[0]
    assert first.java_name == "org.apache.kafka.common.errors.RecordTooLargeException"
    assert "is 3000 bytes when serialized which is larger than the producer's max.request.size" in str(first.error)
    assert first.topic == "t"
    assert not first.fatal
    assert not first.unknown_topic


def test_a_row_larger_than_the_whole_queue_is_named_and_the_others_go() -> None:
    made = RecordProducer(
        {**MOCK, "queue.buffering.max.kbytes": 64, "message.max.bytes": 1_000_000}, name="c-0", each_row=True
    )
    answers = Answers()
    try:
        made.send(batch(["a", "x" * 70_000, "b"]), answers)
        assert made.wait_delivered(WAIT_S)
    finally:
        made.close(0)
    assert [failed.row for failed in answers.failures] == [1]
    assert sorted(answers.places) == [0, 2]
    assert answers.failures[0].java_name == "org.apache.kafka.common.errors.RecordTooLargeException"
    assert "The message is 70000 bytes when serialized which is larger than buffer.memory (65536)" in str(
        answers.failures[0].error
    )


def test_the_clients_queue_being_full_only_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    made = RecordProducer({**MOCK, "queue.buffering.max.messages": 10}, name="c-0", each_row=True)
    answers = Answers()
    made.send(batch([str(row) for row in range(500)]), answers)
    assert made.wait_delivered(WAIT_S)
    assert sorted(answers.places) == list(range(500))
    assert answers.failures == []
    assert made.close(1)


def test_rows_that_are_refused_are_named_though_only_failures_are_reported(mock: RecordProducer) -> None:
    answers = Answers()
    mock.send(batch(["a", "x" * 3000, "b", "y" * 3000]), answers)
    assert mock.wait_delivered(WAIT_S)
    assert [failed.row for failed in answers.failures] == [1, 3]
    assert answers.rows == [0, 1, 2, 3]


@pytest.fixture(params=[False, True], ids=["failures alone", "each row"])
def stopping(request: pytest.FixtureRequest) -> Iterator[RecordProducer]:
    """A producer for a task that tolerates no failure."""
    settings = {**MOCK, "message.max.bytes": 2000, "queue.buffering.max.kbytes": 64}
    made = RecordProducer(settings, name="c-0", each_row=request.param, stops_at_failure=True)
    yield made
    made.close(0)


def handed_over(producer: RecordProducer, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The values that the client has taken."""
    taken: list[object] = []
    produce = producer._produce

    def taking(topic: str, value: bytes, *more: Any) -> None:
        produce(topic, value, *more)
        taken.append(value)

    monkeypatch.setattr(producer, "_produce", taking)
    return taken


@pytest.mark.parametrize("size", [3_000, 70_000], ids=["larger than a request", "larger than the queue"])
def test_without_tolerance_nothing_behind_a_row_that_the_client_refuses_is_sent(
    stopping: RecordProducer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    taken = handed_over(stopping, monkeypatch)
    answers = Answers()
    stopping.send(batch(["a", "x" * size, "b", "y" * size]), answers)
    later = Answers()
    stopping.send(batch(["c"]), later)
    assert stopping.wait_delivered(WAIT_S)
    stopping.send(batch(["d"]), later)
    assert stopping.wait_delivered(WAIT_S)
    assert taken == [b"a"]
    assert [failed.row for failed in answers.failures] == [1]
    assert answers.rows == [0, 1], "what was not sent is not answered, so no offset passes it"
    assert later.rows == []


def test_without_tolerance_further_chunks_do_not_follow_a_row_that_the_client_refuses(
    stopping: RecordProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = handed_over(stopping, monkeypatch)
    answers = Answers()
    chunk = producer_module.CHUNK_ROWS
    stopping.send(batch([*["a"] * (chunk + 10), "x" * 3000, *["b"] * (2 * chunk)]), answers)
    assert stopping.wait_delivered(WAIT_S)
    assert taken == [b"a"] * (chunk + 10)
    assert sorted(answers.rows) == list(range(chunk + 11))
    assert [failed.row for failed in answers.failures] == [chunk + 10]


@pytest.mark.parametrize("each_row", [False, True])
def test_without_tolerance_a_batch_behind_one_that_kafka_did_not_take_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, each_row: bool
) -> None:
    made = RecordProducer(
        {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 300},
        name="c-0",
        each_row=each_row,
        stops_at_failure=True,
    )
    taken = handed_over(made, monkeypatch)
    answers = Answers()
    try:
        made.send(batch(["a", "b"]), answers)
        assert made.wait_delivered(WAIT_S)
        made.send(batch(["c"]), answers)
    finally:
        made.close(0)
    assert taken == [b"a", b"b"]
    assert [failed.row for failed in answers.failures] == [0, 1]
    assert answers.rows == [0, 1]


def test_a_batch_waits_until_the_one_before_it_is_stored(mock: RecordProducer) -> None:
    stored: list[int] = []

    class Noting(Answers):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def delivered(self, *args: object) -> None:
            stored.append(self.number)

    for number in range(5):
        mock.send(batch([str(row) for row in range(3 * producer_module.CHUNK_ROWS)]), Noting(number))
        assert stored == sorted(stored)
        assert stored.count(number - 1) == (3 if number else 0)
    assert mock.wait_delivered(WAIT_S)
    assert [stored.count(number) for number in range(5)] == [3] * 5


def test_failures_of_a_broker_are_told_when_nothing_else_is() -> None:
    made = RecordProducer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 300}, name="c-0")
    answers = Answers()
    try:
        made.send(batch(["a", "b", "a"]), answers)
        assert made.wait_delivered(WAIT_S)
    finally:
        made.close(0)
    assert [failed.row for failed in answers.failures] == [0, 1, 2]
    assert {failed.java_name for failed in answers.failures} == {"org.apache.kafka.common.errors.TimeoutException"}


def test_a_callback_that_raises_does_not_stop_the_producer(mock: RecordProducer) -> None:
    class Broken:
        def delivered(self, *args: object) -> None:
            raise ValueError("no")

    mock.send(batch(["a"]), Broken())
    assert mock.wait_delivered(WAIT_S)
    answers = Answers()
    mock.send(batch(["b"]), answers)
    assert mock.wait_delivered(WAIT_S)
    assert answers.rows == [0]


def test_a_silent_broker_makes_send_wait_with_little_memory_until_it_is_aborted(silent_port: int) -> None:
    made = RecordProducer(
        {"bootstrap.servers": f"127.0.0.1:{silent_port}", "queue.buffering.max.kbytes": 1024}, name="c-0"
    )
    outcome: list[BaseException] = []
    answers = Answers()

    def send() -> None:
        try:
            for _ in range(100):
                made.send(batch(["x" * 100] * 1000), answers)
        except ProducerClosedException as error:
            outcome.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert 0 < len(made._client or ()) * (100 + producer_module.RECORD_OVERHEAD_BYTES) <= 1024 * 1024
    started = time.monotonic()
    made.abort()
    thread.join(WAIT_S)
    assert len(outcome) == 1
    assert made.wait_delivered(0) is False
    made.close(0)
    assert time.monotonic() - started < 5
    assert answers.rows == []


def test_an_idle_producer_ends_at_once() -> None:
    # The quickest of three: what else the machine does may delay one of them, and not the claim.
    took = []
    for _ in range(3):
        made = RecordProducer(MOCK, name="c-0")
        started = time.monotonic()
        assert made.close(30) is True
        took.append(time.monotonic() - started)
    assert min(took) < 1, took
    assert not any(thread.name == "producer-c-0" for thread in threading.enumerate())


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(KafkaException, match=r"producer of c-0 cannot be made.*no\.such\.setting"):
        RecordProducer({"no.such.setting": 1}, name="c-0")


def test_large_rows_go_in_small_chunks(mock: RecordProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "CHUNK_BYTES", 1000)
    answers = Answers()
    mock.send(batch(["x" * 400] * 6), answers)
    assert mock.wait_delivered(WAIT_S)
    assert answers.chunks == 3


def columns(**changed: object) -> ProduceBatch:
    made = produce_batch(["a", "b", "c"], ["t"] * 3)
    table = made.table
    for name, value in changed.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(value, table.schema.field(name).type))
    return replace(made, table=table, has_headers="headers" in changed, has_partition="partition" in changed)


def taken(batch: ProduceBatch) -> ProduceColumns:
    return columns_of(batch)


def test_timestamps_are_told_apart_from_none() -> None:
    assert taken(columns()).timestamps == (0,)
    assert taken(columns(timestamp=[5, None, -1])).timestamps == [5, 0, 0]
    assert taken(columns(timestamp=[0, 1, 2])).timestamps == [1, 1, 2]
    assert taken(replace(columns(timestamp=[7, 7, 7]), timestamp=7)).timestamps == (7,)


def test_headers_are_taken_row_by_row() -> None:
    made = columns(headers=[[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []])
    assert taken(made).headers == [[("a", b"1"), ("a", None)], None, None]
    assert taken(replace(made, table=made.table.slice(1))).headers == [None, None]
    assert taken(replace(made, table=made.table.take(pa.array([1, 0])))).headers == [None, [("a", b"1"), ("a", None)]]


def test_null_partitions_are_left_to_the_client() -> None:
    assert taken(columns(partition=[3, None, 0])).partitions == [3, -1, 0]
