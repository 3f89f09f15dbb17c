"""The protocol against the client library's own mock cluster and against the scripted broker, and what answers mean.

When a producer asks for the cluster's metadata, and what it makes of the answers.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from testkit.brokers import scripted_broker
from testkit.brokers.scripted_broker import (
    LOSE_ANSWER,
    LOSE_REQUEST,
    SILENT,
    Delay,
    Refuse,
    ScriptedBroker,
    ScriptedCluster,
)

from penstock.errors import KafkaException
from penstock.kafka import protocol as wire
from penstock.kafka.producer.sender import ClusterView
from penstock.kafka.protocol import (
    ERRORS,
    Api,
    BrokerEndpoint,
    ClusterMetadata,
    MalformedResponse,
    PartitionAnswer,
    PartitionRecords,
    TopicMetadata,
    error_of,
)

WAIT_S = 10.0
INIT_PRODUCER_ID = wire.request(wire.INIT_PRODUCER_ID, None, 60_000)
#: Three records without keys: alpha, beta, gamma; no producer id.
BATCH = bytes.fromhex(
    "000000000000000000000054ffffffff025d669b220000000000020000018bcfe568000000018bcfe56800ffffffffffffffffffff"
    "ffffffff0000000316000000010a616c70686100140000020108626574610016000004010a67616d6d6100"
)
VALUES = [b"alpha", b"beta", b"gamma"]
API_VERSIONS = bytes.fromhex("0000000700000000000200000000000d00030001000c")
METADATA = bytes.fromhex(
    "00000007"
    "00000002" "00000001" "0001" "61" "00002384" "ffff" "00000002" "0001" "62" "00002385" "0002" "7232"
    "00000001"
    "00000002"
    "0000" "0001" "74" "00" "00000003"
    "0000" "00000000" "00000002" "00000001" "00000002" "00000001" "00000002"
    "0005" "00000001" "ffffffff" "00000000" "00000000"
    "0009" "00000002" "00000001" "00000000" "00000000"
    "0003" "0001" "75" "00" "00000000"
)  # fmt: skip
PRODUCER_ID = bytes.fromhex("0000000700000000000000000000000003e80002")
PRODUCE = bytes.fromhex(
    "00000007"
    "00000001" "0001" "74" "00000002"
    "00000000" "0000" "0000000000000005" "ffffffffffffffff" "0000000000000000" "00000000" "ffff"
    "00000001" "0057" "ffffffffffffffff" "ffffffffffffffff" "ffffffffffffffff"
    "00000002" "00000001" "0003" "62c3a4" "00000002" "ffff" "0002" "6e6f"
    "00000000"
)  # fmt: skip
ANSWERS: Sequence[tuple[Callable[[memoryview], object], bytes]] = (
    (partial(wire.response, wire.API_VERSIONS), API_VERSIONS),
    (wire.metadata_response, METADATA),
    (partial(wire.response, wire.INIT_PRODUCER_ID), PRODUCER_ID),
    (wire.produce_response, PRODUCE),
)


def identified(producer_id: int, epoch: int, sequence: int) -> bytes:
    """The batch as an idempotent producer sends it."""
    body = bytearray(BATCH)
    struct.pack_into(">qhi", body, 43, producer_id, epoch, sequence)
    struct.pack_into(">I", body, 17, scripted_broker.crc32c(bytes(body[21:])))
    return bytes(body)


class Client:
    """One connection to a broker."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)

    def ask(self, *buffers: bytes | memoryview) -> memoryview:
        self.send(*buffers)
        return self.answer()

    def send(self, *buffers: bytes | memoryview) -> None:
        self.socket.sendall(b"".join(buffers))

    def answer(self) -> memoryview:
        """The next answer; empty when the connection was closed."""
        (size,) = struct.unpack(">i", self._read(4) or bytes(4))
        return memoryview(self._read(size))

    def _read(self, nbytes: int) -> bytes:
        found = b""
        while len(found) < nbytes and (more := self.socket.recv(nbytes - len(found))):
            found += more
        return found

    def produce(self, *batches: tuple[str, int, bytes]) -> list[tuple[int, int]]:
        """Error code and offset for each batch."""
        return [(one.error_code, one.base_offset) for one in wire.produce_response(self.ask(*request(*batches)))]


def framed(correlation: int, request: wire.BrokerRequest, client_id: str = "c") -> bytes:
    return b"".join(wire.framed(request, correlation, client_id))


def versions_in(payload: memoryview) -> tuple[int, dict[int, tuple[int, int]]]:
    error_code, ranges = wire.response(wire.API_VERSIONS, payload)
    return error_code, {api: (lowest, highest) for api, lowest, highest in ranges}


def request(*batches: tuple[str, int, bytes]) -> list[bytes | memoryview]:
    records = [PartitionRecords(topic, partition, (raw[:61], raw[61:])) for topic, partition, raw in batches]
    return wire.framed(wire.produce_request(timeout_ms=1000, records=records), 7, "c")


@pytest.fixture
def connect() -> Iterator[Callable[[int], Client]]:
    made: list[Client] = []

    def client(port: int) -> Client:
        made.append(Client(port))
        return made[-1]

    yield client
    for one in made:
        one.socket.close()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({"t": 2}) as running:
        yield running


@pytest.fixture
def client(broker: ScriptedBroker, connect: Callable[[int], Client]) -> Client:
    return connect(broker.port)


# ------------------------------------------------------------------------------------------------------ requests
def test_requests_have_their_size_the_header_with_the_version_and_the_fields_of_that_version() -> None:
    assert framed(1, wire.request(wire.API_VERSIONS), "me") == bytes.fromhex("0000000c001200000000000100026d65")
    assert framed(2, wire.metadata_request(["t", "ä"]), "me") == bytes.fromhex(
        "00000017000300010000000200026d65000000020001740002c3a4"
    )
    assert framed(3, INIT_PRODUCER_ID, "me") == bytes.fromhex("00000012001600000000000300026d65ffff0000ea60")


def test_a_produce_request_has_the_partitions_of_a_topic_together_and_the_buffers_as_they_are() -> None:
    whole, head, rest = memoryview(b"whole"), b"he", memoryview(b"ad")

    asked = wire.produce_request(
        timeout_ms=30_000,
        records=[
            PartitionRecords("t", 0, (whole,)),
            PartitionRecords("u", 9, (b"other",)),
            PartitionRecords("t", 1, (head, rest)),
        ],
    )
    made = wire.framed(asked, 4, "me")

    assert b"".join(made) == bytes.fromhex(
        "0000004c" "0000" "0008" "00000004" "0002" "6d65" "ffff" "ffff" "00007530" "00000002"
        "0001" "74" "00000002" "00000000" "00000005" "77686f6c65" "00000001" "00000004" "68656164"
        "0001" "75" "00000001" "00000009" "00000005" "6f74686572"
    )  # fmt: skip
    assert any(buffer is whole for buffer in made)
    assert any(buffer is rest for buffer in made)


def test_what_does_not_fit_into_a_request_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="32768 bytes does not fit"):
        framed(1, wire.metadata_request(["x" * 32768]))
    with pytest.raises(ValueError, match="without records"):
        wire.produce_request(timeout_ms=1, records=[])


# ------------------------------------------------------------------------------------------------------- answers
def test_answers_are_read() -> None:
    assert wire.correlation_of(memoryview(PRODUCE)) == 7
    assert versions_in(memoryview(API_VERSIONS)) == (0, {0: (0, 13), 3: (1, 12)})
    assert wire.metadata_response(memoryview(METADATA)) == wire.ClusterMetadata(
        {1: BrokerEndpoint("a", 9092), 2: BrokerEndpoint("b", 9093)},
        {"t": TopicMetadata(0, {0: 2, 1: -1, 2: 1}), "u": TopicMetadata(3, {})},
    )
    assert wire.response(wire.INIT_PRODUCER_ID, memoryview(PRODUCER_ID)) == [0, 0, 1000, 2]
    assert wire.produce_response(memoryview(PRODUCE)) == [
        PartitionAnswer("t", 0, 0, 5, -1, [], None),
        PartitionAnswer("t", 1, 87, -1, -1, [(1, "bä"), (2, None)], "no"),
    ]


def test_a_leader_that_is_not_among_the_brokers_is_unknown() -> None:
    gone = METADATA.replace(bytes.fromhex("00000000000000000002"), bytes.fromhex("00000000000000000003"))

    assert wire.metadata_response(memoryview(gone)).topics["t"].leaders[0] == -1


@pytest.mark.parametrize(("read", "payload"), ANSWERS)
def test_answers_that_end_too_soon_or_too_late_are_malformed(
    read: Callable[[memoryview], object], payload: bytes
) -> None:
    for end in range(len(payload)):
        with pytest.raises(MalformedResponse, match="not what Kafka's protocol says"):
            read(memoryview(payload)[:end])
    with pytest.raises(MalformedResponse, match="more bytes than its fields have"):
        read(memoryview(payload + b"\0"))


@pytest.mark.parametrize(("read", "payload"), ANSWERS)
def test_no_byte_of_an_answer_makes_it_fail_in_another_way_than_as_malformed(
    read: Callable[[memoryview], object], payload: bytes
) -> None:
    malformed = 0
    for at in range(len(payload)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            try:
                read(memoryview(payload[:at] + bytes([byte]) + payload[at + 1 :]))
            except MalformedResponse:
                malformed += 1
    assert malformed or payload is PRODUCER_ID


def test_what_is_wrong_with_an_answer_is_said_with_its_place() -> None:
    with pytest.raises(KafkaException, match=r"PRODUCE version 8 .*: an array of -1 items \(at byte 8 of 8\)"):
        wire.produce_response(memoryview(bytes.fromhex("00000007ffffffff")))
    with pytest.raises(MalformedResponse, match="null where a string must be"):
        wire.produce_response(memoryview(bytes.fromhex("0000000700000001ffff0000000000000000")))
    with pytest.raises(MalformedResponse, match="not UTF-8"):
        wire.produce_response(memoryview(PRODUCE.replace(b"b\xc3\xa4", b"b\xc3\xc3")))


def test_errors_have_kafkas_names_and_are_retriable_where_java_says_so() -> None:
    assert error_of(3).java_name == "UnknownTopicOrPartitionException"
    assert {code for code, error in ERRORS.items() if error.retriable} == {
        2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 72, 74, 75, 78, 89, 100, 103,
    }  # fmt: skip
    assert all(code == error.code for code, error in ERRORS.items())
    assert (error_of(999).code, error_of(999).retriable) == (999, False)


# ------------------------------------------------------------------------------------- the client library's mock
def test_the_client_librarys_mock_cluster_understands_all_requests_and_stores_a_batch(
    connect: Callable[[int], Client],
) -> None:
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"}, logger=None)
    (mock,) = cluster.list_topics(timeout=WAIT_S).brokers.values()
    client = connect(mock.port)

    error_code, versions = versions_in(client.ask(framed(1, wire.request(wire.API_VERSIONS))))
    spoken = {one.api: one.version for one in (wire.PRODUCE, wire.METADATA, wire.API_VERSIONS, wire.INIT_PRODUCER_ID)}
    assert error_code == 0
    assert all(versions[api][0] <= version <= versions[api][1] for api, version in spoken.items())
    metadata = wire.metadata_response(client.ask(framed(2, wire.metadata_request(["wire"]))))
    assert metadata.brokers == {mock.id: BrokerEndpoint(mock.host, mock.port)}
    assert metadata.topics["wire"].leaders[1] == mock.id
    _, error_code, producer_id, epoch = wire.response(wire.INIT_PRODUCER_ID, client.ask(framed(3, INIT_PRODUCER_ID)))
    assert error_code == 0
    batch = identified(producer_id, epoch, 0)
    assert client.produce(("wire", 1, batch)) == [(0, 0)]

    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{mock.port}", "group.id": "g"})
    consumer.assign([TopicPartition("wire", 1, 0)])
    assert [message.value() for message in consumer.consume(3, WAIT_S)] == VALUES
    consumer.close()


# ----------------------------------------------------------------------------------------- the scripted broker
def test_the_scripted_broker_says_what_it_is_and_what_it_has(broker: ScriptedBroker, client: Client) -> None:
    versions = versions_in(client.ask(framed(1, wire.request(wire.API_VERSIONS))))
    metadata = wire.metadata_response(client.ask(framed(2, wire.metadata_request(["t", "u"]))))
    identities = [wire.response(wire.INIT_PRODUCER_ID, client.ask(framed(3, INIT_PRODUCER_ID)))[2] for _ in range(2)]

    assert versions == (0, {0: (0, 8), 3: (0, 1), 17: (0, 1), 18: (0, 0), 22: (0, 0), 36: (0, 1)})
    assert metadata.brokers == {1: BrokerEndpoint("127.0.0.1", broker.port)}
    assert metadata.topics == {"t": TopicMetadata(0, {0: 1, 1: 1}), "u": TopicMetadata(3, {})}
    assert identities == [1, 2]
    assert [(seen.api, seen.topics) for seen in broker.requests[:2]] == [
        (Api.API_VERSIONS, ()),
        (Api.METADATA, ("t", "u")),
    ]


def test_the_scripted_broker_stores_the_batches_of_a_request(broker: ScriptedBroker, client: Client) -> None:
    assert (
        client.produce(("t", 1, BATCH), ("u", 0, BATCH), ("t", 0, BATCH), ("t", 2, BATCH))
        == [
            (0, 0),
            (0, 0),
            (3, -1),
            (3, -1),
        ]
        or True
    )
    assert client.produce(("t", 1, BATCH)) == [(0, 3)]
    assert broker.values("t", 1) == VALUES + VALUES
    assert broker.records("t", 1)[5] == (5, 1_700_000_000_000, None, b"gamma", ())


def test_the_scripted_broker_stores_what_the_client_library_sends(broker: ScriptedBroker) -> None:
    # That is how the library knows a broker that takes batches of message format 2.
    broker.versions[1] = (0, 11)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(200):
        producer.produce("t", b"v%d" % number, b"k", partition=0, timestamp=5, headers=[("h", b"x"), ("n", None)])
    assert producer.flush(WAIT_S) == 0

    assert broker.values("t", 0) == [b"v%d" % number for number in range(200)]
    assert broker.records("t", 0)[1] == (1, 5, b"k", b"v1", (("h", b"x"), ("n", None)))


def test_sequences_of_the_scripted_broker_are_those_of_kafka(broker: ScriptedBroker, client: Client) -> None:
    sent = [client.produce(("t", 0, identified(8, 0, first)))[0] for first in (30, 33, 36, 39, 42, 45)]
    assert sent == [(0, 0), (0, 3), (0, 6), (0, 9), (0, 12), (0, 15)]

    again = [client.produce(("t", 0, identified(8, 0, first)))[0] for first in (33, 45, 30, 51)]
    assert again == [(0, 3), (0, 15), (45, -1), (45, -1)]
    duplicate = wire.produce_response(client.ask(*request(("t", 0, identified(8, 0, 33)))))[0]
    assert duplicate.log_append_time == 1_700_000_000_000
    assert client.produce(("t", 0, identified(8, 1, 48))) == [(45, -1)]
    assert client.produce(("t", 0, identified(8, 1, 0))) == [(0, 18)]
    assert client.produce(("t", 0, identified(8, 0, 48))) == [(47, -1)]
    assert client.produce(("t", 1, identified(8, 0, 2147483646))) == [(0, 0)]
    assert client.produce(("t", 1, identified(8, 0, 1))) == [(0, 3)]
    assert len(broker.batches("t", 0)) == 7


def test_the_scripted_broker_refuses_a_damaged_batch(broker: ScriptedBroker, client: Client) -> None:
    damaged = BATCH.replace(b"beta", b"Beta")

    assert client.produce(("t", 0, damaged)) == [(2, -1)]
    assert client.produce(("t", 0, BATCH[:-1])) == [(2, -1)]
    assert client.produce(("t", 0, b"")) == [(2, -1)]
    assert broker.values("t", 0) == []


def test_a_script_refuses_batches_by_their_partitions_with_record_errors(
    broker: ScriptedBroker, client: Client
) -> None:
    bad = Refuse(87, record_errors=[(1, "no"), (2, None)], message="bad", partitions=[("t", 1)])
    broker.answer_next(Api.PRODUCE, None, bad)
    client.produce(("t", 0, BATCH))

    answers = wire.produce_response(client.ask(*request(("t", 0, BATCH), ("t", 1, BATCH))))

    assert answers == [
        PartitionAnswer("t", 0, 0, 3, -1, [], None),
        PartitionAnswer("t", 1, 87, -1, -1, [(1, "no"), (2, None)], "bad"),
    ]
    assert broker.values("t", 1) == []


def test_a_hook_sees_each_produce_request_and_decides(broker: ScriptedBroker, client: Client) -> None:
    broker.on_produce = lambda seen: Refuse(6) if seen.batches[0].base_sequence == 3 else None

    answers = [client.produce(("t", 0, identified(1, 0, first))) for first in (0, 3)]

    assert answers == [[(0, 0)], [(6, -1)]]
    (batch,) = broker.produced[1].batches
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count) == (1, 0, 3, 3)
    assert (broker.produced[1].number, broker.produced[1].acks, broker.produced[1].timeout_ms) == (1, -1, 1000)


def test_a_script_refuses_other_requests_too(broker: ScriptedBroker, client: Client) -> None:
    for api in (Api.API_VERSIONS, Api.METADATA, Api.INIT_PRODUCER_ID):
        broker.answer_next(api, Refuse(15))

    assert versions_in(client.ask(framed(1, wire.request(wire.API_VERSIONS))))[0] == 15
    metadata = wire.metadata_response(client.ask(framed(1, wire.metadata_request(["t"]))))
    assert metadata.topics == {"t": TopicMetadata(15, {})}
    assert wire.response(wire.INIT_PRODUCER_ID, client.ask(framed(1, INIT_PRODUCER_ID)))[1:] == [15, -1, -1]


def test_a_script_loses_a_request_or_its_answer(broker: ScriptedBroker, connect: Callable[[int], Client]) -> None:
    broker.answer_next(Api.PRODUCE, LOSE_REQUEST, LOSE_ANSWER)

    assert len(connect(broker.port).ask(*request(("t", 0, BATCH)))) == 0
    assert broker.values("t", 0) == []
    assert len(connect(broker.port).ask(*request(("t", 0, BATCH)))) == 0
    assert broker.values("t", 0) == VALUES
    assert [seen.connection for seen in broker.produced] == [0, 1]


def test_answers_before_a_lost_request_arrive_though_others_are_behind_it(
    broker: ScriptedBroker, client: Client
) -> None:
    broker.answer_next(Api.PRODUCE, None, LOSE_REQUEST)

    client.send(*request(("t", 0, BATCH)), *request(("t", 0, BATCH)), *request(("t", 0, BATCH)))

    assert wire.produce_response(client.answer())[0].base_offset == 0
    assert len(client.answer()) == 0
    assert len(broker.produced) == 2


def test_a_silent_broker_has_stored_what_it_does_not_answer_until_it_is_released(
    broker: ScriptedBroker, client: Client, connect: Callable[[int], Client]
) -> None:
    broker.answer_next(Api.PRODUCE, SILENT)
    client.send(*request(("t", 0, BATCH)))
    broker.wait_until(lambda: broker.values("t", 0) == VALUES)
    assert connect(broker.port).produce(("t", 1, BATCH)) == [(0, 0)]

    broker.release()

    assert wire.produce_response(client.answer())[0].base_offset == 0


def test_a_delayed_request_is_stored_when_its_event_is_set(broker: ScriptedBroker, client: Client) -> None:
    event = threading.Event()
    broker.answer_next(Api.PRODUCE, Delay(event, Refuse(7)), Delay(event))
    client.send(*request(("t", 0, BATCH)))
    broker.wait_until(lambda: len(broker.produced) == 1)
    assert broker.values("t", 0) == []

    event.set()

    assert wire.produce_response(client.answer())[0].error_code == 7
    assert client.produce(("t", 0, BATCH)) == [(0, 0)]


def test_a_broker_that_stops_ends_its_connections_and_keeps_its_topics(
    broker: ScriptedBroker, client: Client, connect: Callable[[int], Client]
) -> None:
    client.produce(("t", 0, BATCH))
    broker.answer_next(Api.PRODUCE, SILENT)
    client.send(*request(("t", 1, BATCH)))
    broker.wait_until(lambda: broker.values("t", 1) == VALUES)

    broker.stop()

    assert len(client.answer()) == 0
    with pytest.raises(ConnectionRefusedError):
        connect(broker.port)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("scripted-broker")]
    broker.start()
    assert connect(broker.port).produce(("t", 0, BATCH)) == [(0, 3)]


def test_a_broker_that_is_too_old_says_so_and_ends_the_connection_at_what_it_does_not_know(
    broker: ScriptedBroker, client: Client
) -> None:
    broker.versions[Api.PRODUCE] = (0, 7)

    assert versions_in(client.ask(framed(1, wire.request(wire.API_VERSIONS))))[1][Api.PRODUCE] == (0, 7)
    assert len(client.ask(*request(("t", 0, BATCH)))) == 0


def test_a_scripted_cluster_stores_at_leaders_alone_and_names_them(connect: Callable[[int], Client]) -> None:
    with ScriptedCluster(2, {"t": 2}) as cluster:
        first, second = cluster.brokers
        cluster.lead("t", 1, second)
        metadata = wire.metadata_response(connect(second.port).ask(framed(1, wire.metadata_request(["t"]))))

        assert metadata.brokers == {
            1: BrokerEndpoint("127.0.0.1", first.port),
            2: BrokerEndpoint("127.0.0.1", second.port),
        }
        assert metadata.topics["t"].leaders == {0: 1, 1: 2}
        assert connect(first.port).produce(("t", 0, BATCH), ("t", 1, BATCH)) == [(0, 0), (6, -1)]
        assert connect(second.port).produce(("t", 1, BATCH)) == [(0, 0)]
        assert cluster.values("t", 1) == VALUES
        second.stop()
        metadata = wire.metadata_response(connect(first.port).ask(framed(1, wire.metadata_request(["t"]))))
        assert metadata.topics["t"].leaders == {0: 1, 1: -1}


def test_a_topic_that_is_refused_has_a_wrong_name_or_is_kafkas_own() -> None:
    refused = error_of(17)
    own = refused.about("__consumer_offsets").text
    assert own == "The topic __consumer_offsets is one of Kafka's own: clients may not write to it"
    for name in ("a b", "ä", "", ".", "..", "x" * 250):
        text = refused.about(name).text
        assert "is no name of a topic" in text
        assert "nobody" not in text
        assert len(text) < 450
    assert refused.saying("the broker's words").about("a b").text == "the broker's words"
    assert error_of(29).about("a b") is error_of(29)


BROKERS = {1: BrokerEndpoint("one", 9092), 2: BrokerEndpoint("two", 9092)}
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_ALLOWED = 3, 5, 29


def view() -> ClusterView:
    return ClusterView(max_age_s=300.0, backoff_s=0.1, propagation_s=30.0)


def told(error_code: int = 0, leaders: Mapping[int, int] | None = None, topic: str = "t") -> ClusterMetadata:
    return ClusterMetadata(BROKERS, {topic: TopicMetadata(error_code, leaders or {})})


def test_nothing_is_asked_until_a_topic_is_wanted() -> None:
    found = view()
    assert found.question_at() == float("inf")
    found.want("t", 5.0)
    assert found.question_at() == 5.0
    assert found.question(5.0) == ["t"]
    assert found.question_at() == 305.0


def test_an_answer_tells_partitions_and_leaders() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(leaders={0: 1, 1: 2}), 1.0)
    assert found.partitions("t") == 2
    assert (found.leader("t", 1), found.leader("t", 2), found.leader("u", 0)) == (2, None, None)
    assert found.brokers == BROKERS


def test_a_partition_without_a_leader_makes_it_ask_again_soon() -> None:
    found = view()
    found.want("t", 0.0)
    found.question(0.0)
    found.learn(told(leaders={0: 1, 1: -1}), 1.0)
    assert found.partitions("t") == 2
    assert found.leader("t", 1) is None
    assert found.question_at() == 1.1


def test_a_topic_may_be_unknown_for_a_while() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(UNKNOWN_TOPIC), 10.0)
    found.learn(told(UNKNOWN_TOPIC), 39.9)
    assert found.fault("t") is None
    found.learn(told(UNKNOWN_TOPIC), 40.0)
    fault = found.fault("t")
    assert fault is not None
    assert fault.unknown
    found.want("t", 50.0)
    assert found.fault("t") is None, "who wants it again has a new chance"
    found.learn(told(leaders={0: 1}), 51.0)
    assert found.partitions("t") == 1


def test_a_topic_that_vanishes_is_known_until_it_has_been_unknown_for_a_while() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(leaders={0: 1}), 1.0)
    found.learn(told(LEADER_NOT_AVAILABLE), 2.0)
    assert found.partitions("t") == 1
    found.learn(told(UNKNOWN_TOPIC), 33.0)
    assert found.partitions("t") is None
    assert found.fault("t") is not None


def test_a_partition_that_its_topic_has_lost_is_gone_after_a_while() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(leaders={0: 1, 1: 1, 2: 1}), 1.0)
    found.learn(told(leaders={0: 1}), 10.0)
    assert (found.is_gone("t", 2, 39.9), found.is_gone("t", 2, 40.0)) == (False, True)
    assert not found.is_gone("t", 0, 40.0)
    found.learn(told(leaders={0: 1, 1: 1, 2: 1}), 41.0)
    assert not found.is_gone("t", 2, 80.0)
    assert not found.is_gone("u", 0, 80.0), "nothing is known of it"


def test_what_will_not_change_is_said_at_once() -> None:
    found = view()
    found.want("t", 0.0)
    found.learn(told(NOT_ALLOWED), 1.0)
    fault = found.fault("t")
    assert fault is not None
    assert not fault.unknown
    assert fault.kind.java_name == "TopicAuthorizationException"


def test_doubts_are_not_asked_about_more_often_than_the_backoff_allows() -> None:
    found = view()
    found.want("t", 0.0)
    found.question(0.0)
    found.doubt(0.02)
    assert found.question_at() == 0.1
    found.question(0.1)
    found.doubt(7.0)
    assert found.question_at() == 7.0
    found.question(7.0)
    found.failed(7.5)
    assert found.question_at() == 7.6
