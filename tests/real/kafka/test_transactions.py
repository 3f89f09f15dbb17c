"""The producer's transactions against a real broker that is restarted and frozen, and producers that are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import confluent_kafka as ck
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from testkit.brokers.cutting_proxy import CuttingProxy
from testkit.brokers.embedded import SecuredBroker, freeze, thaw
from testkit.doubles.contexts import Deliveries
from testkit.doubles.source_doubles import produce_batch
from testkit.processes.transaction_worker import (
    POINTS,
    ROWS,
    Ignored,
    last_position,
    producer,
    read_committed,
    write,
)
from testkit.waiting import await_true

from penstock.broker import EmbeddedBroker, free_port
from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    ProducerFencedException,
    TransactionAbortableException,
    TransactionalIdAuthorizationException,
)
from penstock.kafka.producer.partitioner import murmur2
from penstock.kafka.producer.transaction import failed, fence_producers
from penstock.kafka.producer.transactional import TransactionalProducer
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

pytestmark = [pytest.mark.broker, pytest.mark.slow]

WAIT_S = 60.0
#: How many transactions are timed.
SMALL = 50
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LOGIN = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f'{PLAIN} required user_me="secret";'}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    listeners = {"SASL_PLAINTEXT": LOGIN}
    with SecuredBroker(tmp_path_factory.mktemp("transactions"), properties=SECURED, listeners=listeners) as made:
        yield made


@pytest.fixture
def topics(broker: EmbeddedBroker) -> tuple[str, str]:
    return new_topics(broker)


def new_topics(
    broker: EmbeddedBroker, partitions: int = 1, config: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, str]:
    number = time.monotonic_ns()
    names = (f"numbers-{number}", f"positions-{number}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    made = [NewTopic(name, partitions, 1, config=dict(config)) for name in names]
    for done in admin.create_topics(made).values():
        done.result(30)
    return names


def values(broker: EmbeddedBroker, topic: str) -> list[str]:
    return values_at(broker.bootstrap_servers, topic)


def values_at(address: str, topic: str) -> list[str]:
    return [(value or b"").decode() for _, value in read_committed(address, topic)]


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def settings(broker: EmbeddedBroker, transactional_id: str, **own: str) -> ColumnSettings:
    worker = {"bootstrap.servers": broker.bootstrap_servers, **{f"producer.{name}": own[name] for name in own}}
    client = producer_settings(worker, {}, client_id="t", transactional_id=transactional_id)
    return ColumnSettings.of(client)


def send_on_its_way(made: TransactionalProducer, topic: str) -> None:
    """Send a record to a broker that does not answer, and wait until it has left."""
    made.send(produce_batch(["on its way"], [topic]), Ignored())
    queue = made._sender._batches._queues[topic, 0]
    await_true(lambda: queue.under_way)


# ------------------------------------------------------------------------------------------------------ what is visible
def test_readers_of_what_is_committed_see_whole_transactions_only(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    made = producer(broker.bootstrap_servers, "whole")
    try:
        write(made, "whole", topics, 0)
        made.send(produce_batch(["open"], [topics[0]]), Ignored())
        assert made.wait_delivered(WAIT_S)
        assert values(broker, topics[0]) == numbers(0, ROWS)
        made.abort_transaction(WAIT_S)
        write(made, "whole", topics, ROWS)
        assert values(broker, topics[0]) == numbers(0, 2 * ROWS)
        assert last_position(broker.bootstrap_servers, topics[1], "whole") == 2 * ROWS
        assert made.identity is not None
        assert made.identity[1] == 0, "nothing was on its way, so the epoch is the same"
    finally:
        made.close(0)


def test_offsets_go_to_the_partitions_that_java_chooses(broker: EmbeddedBroker) -> None:
    topic = new_topics(broker, partitions=5)[1]
    made = producer(
        broker.bootstrap_servers, "java", partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner"
    )
    keys = [json.dumps(["connector", {"file": number}]).encode() for number in range(20)]
    try:
        made.send_offsets_entries(topic, [(key, b"1") for key in keys])
        made.send_offsets_entries(topic, [(keys[0], None)])
        made.commit(WAIT_S)
    finally:
        made.close(0)
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "p"})
    found: list[tuple[bytes | None, int | None, bytes | None]] = []
    try:
        consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(5)])
        deadline = time.monotonic() + WAIT_S
        while len(found) < 21 and time.monotonic() < deadline:
            messages = consumer.consume(100, 1.0)
            found += [(one.key(), one.partition(), one.value()) for one in messages if one.error() is None]
    finally:
        consumer.close()
    chosen = [(hashed & 0x7FFFFFFF) % 5 for hashed in murmur2(pa.array(keys, pa.binary())).tolist()]
    assert {key: partition for key, partition, _ in found} == dict(zip(keys, chosen, strict=True))
    assert [value for key, _, value in found if key == keys[0]] == [b"1", None]


def test_a_record_that_kafka_refuses_can_be_left_out_or_ends_its_transaction(broker: EmbeddedBroker) -> None:
    topic = new_topics(broker, config={"max.message.bytes": "2000"})[0]
    tolerant, answers = producer(broker.bootstrap_servers, "tolerant"), Deliveries()
    try:
        tolerant.send(produce_batch(["a", "x" * 3000, "b"], [topic] * 3), answers)
        tolerant.commit(WAIT_S)
    finally:
        tolerant.close(0)
    assert [failed.row for failed in answers.failures] == [1]
    assert values(broker, topic) == ["a", "b"]

    strict = TransactionalProducer(settings(broker, "strict"), name="strict", stops_at_failure=True)
    try:
        strict.init_transactions(WAIT_S)
        strict.send(produce_batch(["c", "x" * 3000], [topic] * 2), Ignored())
        with pytest.raises(TransactionAbortableException, match="is 3000 bytes when serialized"):
            strict.commit(WAIT_S)
        strict.abort_transaction(WAIT_S)
        strict.send(produce_batch(["d"], [topic]), Ignored())
        strict.commit(WAIT_S)
    finally:
        strict.close(0)
    assert values(broker, topic) == ["a", "b", "d"]


# -------------------------------------------------------------------------------------------------- others with the id
def test_of_two_producers_with_one_id_the_later_one_writes(broker: EmbeddedBroker, topics: tuple[str, str]) -> None:
    first = producer(broker.bootstrap_servers, "two")
    first.send(produce_batch(["of the first"], [topics[0]]), Ignored())
    assert first.wait_delivered(WAIT_S)
    second = producer(broker.bootstrap_servers, "two")
    try:
        write(second, "two", topics, 0)
        for use in (
            lambda: first.commit(WAIT_S),
            lambda: first.abort_transaction(WAIT_S),
            lambda: first.send(produce_batch(["more"], [topics[0]]), Ignored()),
        ):
            with pytest.raises(ProducerFencedException):
                use()
        write(second, "two", topics, ROWS)
    finally:
        first.close(0)
        second.close(0)
    assert values(broker, topics[0]) == numbers(0, 2 * ROWS)


def test_an_abort_of_a_producer_that_was_replaced_does_not_fence_its_successor(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    first = producer(broker.bootstrap_servers, "zombie")
    first.send(produce_batch(["of the first"], [topics[0]]), Ignored())
    assert first.wait_delivered(WAIT_S)
    second = producer(broker.bootstrap_servers, "zombie")
    try:
        second.send(produce_batch(["0"], [topics[0]]), Ignored())
        assert second.wait_delivered(WAIT_S)
        identity = second.identity

        def write_late() -> None:
            first.send(produce_batch(["late"], [topics[0]]), Ignored())
            assert not first.wait_delivered(WAIT_S)
            first.commit(WAIT_S)

        with pytest.raises((ProducerFencedException, TransactionAbortableException)):
            write_late()
        with pytest.raises(ProducerFencedException):
            first.abort_transaction(WAIT_S)
        second.send(produce_batch(numbers(1, ROWS), [topics[0]] * (ROWS - 1)), Ignored())
        second.commit(WAIT_S)
        assert second.identity == identity
    finally:
        first.close(0)
        second.close(0)
    assert values(broker, topics[0]) == numbers(0, ROWS)


def test_fencing_ends_what_is_open_and_tells_each_id(broker: EmbeddedBroker, topics: tuple[str, str]) -> None:
    made = producer(broker.bootstrap_servers, "fenced-0")
    ids = [f"fenced-{number}" for number in range(20)]
    try:
        made.send(produce_batch(["open"], [topics[0]]), Ignored())
        assert made.wait_delivered(WAIT_S)
        began = time.monotonic()
        found = fence_producers(settings(broker, "fencing"), ids, WAIT_S)
        took = time.monotonic() - began
        assert sorted(found) == sorted(ids)
        assert failed(found) == {}
        with pytest.raises(ProducerFencedException):
            made.commit(WAIT_S)
    finally:
        made.close(0)
    assert values(broker, topics[0]) == []
    print(f"\n20 ids fenced in {took * 1000:.0f} ms")


def test_a_right_that_is_missing_is_named_with_the_id(broker: SecuredBroker) -> None:
    worker = {
        "bootstrap.servers": broker.bootstrap_of("SASL_PLAINTEXT"),
        "producer.security.protocol": "SASL_PLAINTEXT",
        "producer.sasl.mechanism": "PLAIN",
        "producer.sasl.jaas.config": f'{PLAIN} required username="me" password="secret";',
    }
    worker["producer.bootstrap.servers"] = worker["bootstrap.servers"]
    client = ColumnSettings.of(producer_settings(worker, {}, client_id="t", transactional_id="mine"))
    made = TransactionalProducer(client, name="mine")
    try:
        with pytest.raises(TransactionalIdAuthorizationException, match="WRITE and DESCRIBE on TransactionalId mine"):
            made.init_transactions(WAIT_S)
    finally:
        made.close(0)
    found = fence_producers(client, ["mine", "yours"], WAIT_S)
    assert {name: type(error) for name, error in found.items()} == {
        "mine": TransactionalIdAuthorizationException,
        "yours": TransactionalIdAuthorizationException,
    }


# --------------------------------------------------------------------------------------------------------- faults
def test_producers_that_are_killed_anywhere_leave_whole_transactions(broker: EmbeddedBroker) -> None:
    topics = {point: new_topics(broker) for point in POINTS}
    rounds = 2
    for _ in range(rounds):
        children = {
            point: subprocess.Popen(
                [
                    *(sys.executable, "-m", "testkit.processes.transaction_worker", broker.bootstrap_servers),
                    *(f"killed-{point}", *topics[point], point),
                ]
            )
            for point in POINTS
        }
        assert {point: child.wait(WAIT_S * 2) for point, child in children.items()} == dict.fromkeys(POINTS, -9)
    for point in POINTS:
        name = f"killed-{point}"
        made = producer(broker.bootstrap_servers, name)
        try:
            first = last_position(broker.bootstrap_servers, topics[point][1], name)
            write(made, name, topics[point], first)
        finally:
            made.close(0)
        assert values(broker, topics[point][0]) == numbers(0, first + ROWS), point
        # A commit that was sent may have come about; each other transaction that was ended by a kill has not.
        least, most = rounds * ROWS, 2 * rounds * ROWS
        expected = {"commit-answered": {most}, "commit-sent": set(range(least, most + 1, ROWS))}
        assert first in expected.get(point, {least}), point


@pytest.mark.parametrize("when", ["records are under way", "the commit is asked for"])
def test_a_coordinator_that_is_restarted_in_the_middle_loses_nothing(fragile_broker: EmbeddedBroker, when: str) -> None:
    topics = new_topics(fragile_broker)
    name = topics[0]
    made = producer(fragile_broker.bootstrap_servers, name)
    try:
        write(made, name, topics, 0)
        if when == "records are under way":
            made.send(produce_batch(numbers(ROWS, 30), [topics[0]] * 10), Ignored())
            assert made.wait_delivered(WAIT_S)
            fragile_broker.kill()
            made.send(produce_batch(numbers(30, 40), [topics[0]] * 10), Ignored())
            fragile_broker.start()
            made.send_offsets_entries(topics[1], [(name.encode(), b"40")])
            made.commit(WAIT_S)
        else:
            made.send(produce_batch(numbers(ROWS, 40), [topics[0]] * 20), Ignored())
            assert made.wait_delivered(WAIT_S)
            fragile_broker.kill()
            with pytest.raises(CommitOutcomeUnknownException, match="Commit again"):
                made.commit(0.5)
            with pytest.raises(CommitOutcomeUnknownException):
                made.abort_transaction(0.5)
            fragile_broker.start()
            made.commit(WAIT_S)
        write(made, name, topics, 40)
    finally:
        made.close(0)
    assert values(fragile_broker, topics[0]) == numbers(0, 60)


def test_a_producer_whose_transaction_was_ended_by_its_timeout_is_replaced(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    made = producer(broker.bootstrap_servers, "slow", transaction_timeout_ms="1000")
    try:
        made.send(produce_batch(["late"], [topics[0]]), Ignored())
        assert made.wait_delivered(WAIT_S)
        # The coordinator looks for such transactions every ten seconds.
        threading.Event().wait(13)
        with pytest.raises(TransactionAbortableException, match=r"open for longer than transaction\.timeout\.ms"):
            made.send(produce_batch(["later"], [topics[0]]), Ignored())
        with pytest.raises(ProducerFencedException, match=r"transaction\.timeout\.ms was over"):
            made.abort_transaction(WAIT_S)
    finally:
        made.close(0)
    again = producer(broker.bootstrap_servers, "slow", transaction_timeout_ms="1000")
    try:
        write(again, "slow", topics, 0)
    finally:
        again.close(0)
    assert values(broker, topics[0]) == numbers(0, ROWS)


def test_a_transaction_that_was_open_for_too_long_is_not_committed_and_the_next_one_is(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    made = producer(broker.bootstrap_servers, "too-late", transaction_timeout_ms="1000")
    try:
        made.send(produce_batch(["late"], [topics[0]]), Ignored())
        assert made.wait_delivered(WAIT_S)
        # The producer knows by itself; the coordinator looks for such transactions every ten seconds.
        await_true(lambda: made.ended is not None, timeout_s=WAIT_S)
        with pytest.raises(TransactionAbortableException, match=r"open for longer than transaction\.timeout\.ms"):
            made.commit(WAIT_S)
        made.abort_transaction(WAIT_S)
        write(made, "too-late", topics, 0)
    finally:
        made.close(0)
    assert values(broker, topics[0]) == numbers(0, ROWS)


def test_a_broker_that_is_frozen_loses_no_abort_and_nothing_late_counts(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    made = producer(broker.bootstrap_servers, "frozen")
    try:
        made.send(produce_batch(["open"], [topics[0]]), Ignored())
        assert made.wait_delivered(WAIT_S)
        freeze(broker)
        try:
            send_on_its_way(made, topics[0])
            with pytest.raises(KafkaException, match="has not answered the abort within"):
                made.abort_transaction(1.0)
        finally:
            thaw(broker)
        made.abort_transaction(WAIT_S)
        write(made, "frozen", topics, 0)
        assert made.identity is not None
        assert made.identity[1] > 0, "a new epoch keeps out what comes late"
    finally:
        made.close(0)
    assert values(broker, topics[0]) == numbers(0, ROWS)


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CuttingProxy]:
    """A proxy through which the clients of a broker speak to it."""
    with CuttingProxy(0) as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        own = EmbeddedBroker(tmp_path_factory.mktemp("proxied"), port=free_port(), properties=advertised)
        proxy.target = own.port
        # It is known to serve when it names its own port, which it does not; clients wait for it.
        monkeypatch = pytest.MonkeyPatch()
        monkeypatch.setattr("penstock.broker.process.await_serving", lambda *_: None)
        with own:
            monkeypatch.undo()
            yield proxy


@pytest.mark.parametrize("what", ["commit", "records"])
def test_what_reaches_a_frozen_broker_late_is_not_part_of_the_next_transaction(
    behind_proxy: CuttingProxy, what: str
) -> None:
    proxy = behind_proxy
    address = f"127.0.0.1:{proxy.port}"
    name = f"late-{what}"
    made = producer(address, name, request_timeout_ms="1000")
    try:
        write(made, name, (name, f"{name}-positions"), 0)
        made.send(produce_batch(numbers(ROWS, 30), [name] * 10), Ignored())
        assert made.wait_delivered(WAIT_S)
        proxy.hold()
        if what == "commit":
            with pytest.raises(CommitOutcomeUnknownException):
                made.commit(0.5)
            proxy.pass_new()
            made.commit(WAIT_S)
            expected = numbers(0, 30)
        else:
            send_on_its_way(made, name)
            with pytest.raises(KafkaException):
                made.commit(0.5)
            proxy.pass_new()
            made.abort_transaction(WAIT_S)
            expected = numbers(0, ROWS)
        made.send(produce_batch(["half of it"], [name]), Ignored())
        assert made.wait_delivered(WAIT_S)
        assert proxy.release() > 0
        threading.Event().wait(1)
        assert values_at(address, name) == expected, "what is open does not count"
        made.send(produce_batch(["the other half"], [name]), Ignored())
        made.commit(WAIT_S)
        assert values_at(address, name) == [*expected, "half of it", "the other half"]
    finally:
        made.close(0)


def test_an_older_coordinator_is_got_along_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def formatting(command: list[str], **options: object) -> object:
        if "format" in command:
            command = [*command, "--feature", "transaction.version=0"]
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", formatting)
    with EmbeddedBroker(tmp_path / "kafka") as own:
        monkeypatch.undo()
        topics = new_topics(own)
        made = producer(own.bootstrap_servers, "older")
        try:
            made.send(produce_batch(["open"], [topics[0]]), Ignored())
            assert made.wait_delivered(WAIT_S)
            freeze(own)
            try:
                send_on_its_way(made, topics[0])
                with pytest.raises(KafkaException):
                    made.abort_transaction(0.5)
            finally:
                thaw(own)
            made.abort_transaction(WAIT_S)
            assert made.identity is not None
            assert made.identity[1] == 2, "one for the abort, one for what comes"
            write(made, "older", topics, 0)
        finally:
            made.close(0)
        assert values(own, topics[0]) == numbers(0, ROWS)


def test_small_transactions_take_less_than_a_quarter_of_a_second(
    broker: EmbeddedBroker, topics: tuple[str, str]
) -> None:
    made = producer(broker.bootstrap_servers, "costs")
    took = []
    try:
        for number in range(SMALL):
            began = time.perf_counter()
            made.send(produce_batch([str(number)], [topics[0]]), Ignored())
            made.send_offsets_entries(topics[1], [(b"costs", str(number).encode())])
            made.commit(WAIT_S)
            took.append(time.perf_counter() - began)
    finally:
        made.close(0)
    assert len(values(broker, topics[0])) == SMALL
    assert sorted(took)[SMALL // 2] < 0.25
