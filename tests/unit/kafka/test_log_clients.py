"""The reader and the writers of a log, over clients and a broker that do what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
import pytest
from testkit.brokers.scripted_broker import (
    LOSE_REQUEST,
    NOT_LEADER_OR_FOLLOWER,
    SILENT,
    Delay,
    Refuse,
    ScriptedBroker,
)
from testkit.waiting import await_true
from tests.unit.kafka.fake_clients import FakeConsumer, FakeTransactions, Message

from penstock.errors import (
    CommitOutcomeUnknownException,
    KafkaException,
    KafkaRetriableException,
    ProducerFencedException,
    TransactionAbortableException,
    TransactionalIdAuthorizationException,
)
from penstock.kafka.protocol import Api
from penstock.kafka.settings.producer import ColumnSettings
from penstock.kafka.topic_log.clients import LogPositions, LogReader, LogRecord, LogWriter, TransactionalWriter
from penstock.kafka.topic_log.internal_topics import LogSettings, config_log

E = ck.KafkaError
TOPIC_NOT_ALLOWED = 29
TOPIC = "connect-configs"


# ---------------------------------------------------------------- reading
@contextmanager
def reading(handle: Callable[[Any], None]) -> Iterator[tuple[LogReader, FakeConsumer, LogPositions]]:
    positions, made = LogPositions(), []

    def make(conf: dict[str, Any], logger: object = None) -> FakeConsumer:
        made.append(FakeConsumer(conf))
        return made[-1]

    reader = LogReader(TOPIC, LogSettings("team-configs", {}, settings("a:1")), positions, handle, make_consumer=make)
    reader.add({0: 3, 1: 0})
    reader.start()
    try:
        yield reader, made[0], positions
    finally:
        reader.stop()
        assert made[0].closed.is_set()


def test_records_are_handed_over_before_the_position_moves() -> None:
    seen: list[tuple[int, LogRecord]] = []
    with reading(lambda records: seen.extend((positions.reached(0), one) for one in records)) as found:
        _, consumer, positions = found
        consumer.batches.put([Message(3), Message(5, b"x", None), Message(9, partition=1)])
        assert positions.wait({0: 6, 1: 10}, 20)

        assert seen == [
            (0, LogRecord(0, 3, b"k", b"v", 7)),
            (0, LogRecord(0, 5, b"x", None, 7)),
            (0, LogRecord(1, 9, b"k", b"v", 7)),
        ]
        assert consumer.assigned == [[(0, 3), (1, 0)]]


def test_an_end_that_holds_no_record_moves_the_position() -> None:
    with reading(lambda records: None) as (_, consumer, positions):
        consumer.batches.put([Message(3), Message(5, error=E._PARTITION_EOF)])

        assert positions.wait({0: 5}, 20)


def test_partitions_that_come_later_are_read_from_their_beginning_and_the_others_go_on() -> None:
    with reading(lambda records: None) as (reader, consumer, positions):
        consumer.batches.put([Message(3)])
        assert positions.wait({0: 4}, 20)
        reader.add({2: 0})
        await_true(lambda: len(consumer.assigned) == 2)

        assert sorted(consumer.assigned[-1]) == [(0, 4), (1, 0), (2, 0)]


def test_reading_anew_forgets_where_it_was() -> None:
    with reading(lambda records: None) as (reader, consumer, positions):
        consumer.batches.put([Message(3)])
        assert positions.wait({0: 4}, 20)
        reader.begin_anew({0: 0})
        await_true(lambda: len(consumer.assigned) == 2)
        consumer.batches.put([Message(0)])

        assert positions.wait({0: 1}, 20)
        assert consumer.assigned[-1] == [(0, 0)]
        assert positions.reached(0) == 1


def test_going_back_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with reading(lambda records: None) as (_, consumer, positions):
        consumer.batches.put([Message(30)])
        assert positions.wait({0: 31}, 20)
        consumer.batches.put([Message(2)])
        await_true(lambda: positions.reached(0) == 3)

    assert f"topic {TOPIC} has lost records: partition 0 was read up to offset 31, and goes on at 2" in caplog.text


def test_what_forbids_reading_is_told_until_something_is_read() -> None:
    with reading(lambda records: None) as (reader, consumer, positions):
        consumer.batches.put([Message(0, error=E.TOPIC_AUTHORIZATION_FAILED)])
        await_true(lambda: reader.refused is not None)
        consumer.batches.put([Message(0, error=E.GROUP_AUTHORIZATION_FAILED), Message(3)])
        assert positions.wait({0: 4}, 20)

        assert reader.refused is None


def test_a_thread_that_ends_by_an_error_lets_go_who_waits(caplog: pytest.LogCaptureFixture) -> None:
    with reading(lambda records: None) as (_, consumer, positions):
        consumer.batches.put([None])  # type: ignore[list-item]
        consumer.rest = []
        consumer.assign = consumer.poll = None  # type: ignore[assignment,method-assign]

        with pytest.raises(KafkaException, match="is not read any more"):
            positions.wait({0: 99}, 20)


# ---------------------------------------------------------------- writing
@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({TOPIC: 1}) as made:
        yield made


def settings(address: str, **own: str) -> ColumnSettings:
    worker = {"bootstrap.servers": address, "group.id": "team", "reconnect.backoff.ms": "10", **own}
    return config_log(worker, transactional=False).writer


@contextmanager
def writing(address: str, **own: str) -> Iterator[LogWriter]:
    writer = LogWriter(TOPIC, settings(address, **own), "team-configs")
    try:
        yield writer
    finally:
        writer.stop(0)


@pytest.fixture
def writer(broker: ScriptedBroker) -> Iterator[LogWriter]:
    with writing(broker.bootstrap) as made:
        yield made


def stored(broker: ScriptedBroker) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in broker.records(TOPIC, 0)]


def test_a_write_ends_when_all_is_stored(broker: ScriptedBroker, writer: LogWriter) -> None:
    assert writer.write([(b"a", b"1"), (b"b", None)], 20) == {0: 2}
    assert writer.write([(b"a", b"2")], 20) == {0: 3}
    assert stored(broker) == [(b"a", b"1"), (b"b", None), (b"a", b"2")]


def test_offsets_are_those_behind_the_last_record_of_each_partition() -> None:
    with ScriptedBroker({TOPIC: 5}) as broker, writing(broker.bootstrap) as writer:
        reached = writer.write([(b"k%d" % number, b"1") for number in range(40)], 20)

        ends = {number: len(broker.records(TOPIC, number)) for number in range(5)}
    assert reached == ends
    assert sum(ends.values()) == 40


def test_a_write_of_which_a_record_fails_says_which(broker: ScriptedBroker, writer: LogWriter) -> None:
    broker.answer_next(Api.PRODUCE, Refuse(TOPIC_NOT_ALLOWED))

    with pytest.raises(KafkaException, match=rf"record a could not be written to the topic {TOPIC}: .*may not write"):
        writer.write([(b"a", b"1")], 20)
    assert writer.write([(b"b", b"1")], 20) == {0: 1}


def test_a_record_that_is_too_large_says_what_to_do_about_it(broker: ScriptedBroker) -> None:
    advice = r"record b .*max\.request\.size allows; raise max\.request\.size of the worker and max\.message\.bytes"
    with (
        writing(broker.bootstrap, **{"max.request.size": "1000"}) as writer,
        pytest.raises(KafkaException, match=advice) as raised,
    ):
        writer.write([(b"a", b"1"), (b"b", b"x" * 2000)], 20)

    assert type(raised.value) is KafkaException


def test_a_write_that_is_not_answered_ends_in_time(broker: ScriptedBroker, writer: LogWriter) -> None:
    broker.answer_next(Api.PRODUCE, SILENT)

    with pytest.raises(KafkaRetriableException, match=rf"1 records for the topic {TOPIC} were not acknowledged"):
        writer.write([(b"a", b"1")], 0.3)


def test_a_write_without_a_broker_ends_in_time_and_says_why() -> None:
    with writing("127.0.0.1:1") as writer, pytest.raises(KafkaRetriableException, match="cannot be reached"):
        writer.write([(b"a", b"1")], 0.3)


def test_what_was_not_sent_when_its_writer_gave_up_is_not_sent_later(broker: ScriptedBroker) -> None:
    held = threading.Event()
    broker.answer_next(Api.METADATA, *[Delay(held)] * 2)
    with writing(broker.bootstrap) as writer:
        told: list[Exception | None] = []
        writer.send(b"first", b"1", told.append)
        broker.wait_until(lambda: any(seen.api == Api.METADATA for seen in broker.requests))
        with pytest.raises(KafkaRetriableException):
            writer.write([(b"late", b"1")], 0.1)
        held.set()
        assert writer.write([(b"b", b"1")], 20) == {0: 2}

    assert told == [None]
    assert stored(broker) == [(b"first", b"1"), (b"b", b"1")]


def test_room_is_waited_for_by_a_write_and_not_by_a_single_record(broker: ScriptedBroker) -> None:
    told: list[Exception | None] = []
    broker.answer_next(Api.PRODUCE, SILENT)
    with writing(broker.bootstrap, **{"buffer.memory": "10000"}) as writer:
        writer.send(b"a", b"x" * 9000, told.append)
        broker.wait_until(lambda: len(broker.produced) == 1)
        writer.send(b"b", b"x" * 9000, told.append)
        assert isinstance(told[0], KafkaRetriableException)
        with pytest.raises(KafkaRetriableException, match="no room"):
            writer.write([(b"c", b"x" * 9000)], 0.05)
        broker.release()

        assert writer.write([(b"d", b"x" * 9000)], 20) == {0: 2}
    assert told[1:] == [None]


def test_a_record_that_failed_for_now_is_sent_again_while_it_is_wanted(broker: ScriptedBroker) -> None:
    told: list[Exception | None] = []
    broker.answer_next(Api.PRODUCE, Refuse(NOT_LEADER_OR_FOLLOWER), LOSE_REQUEST)
    with writing(broker.bootstrap, retries="0") as writer:
        writer.send(b"a", b"1", told.append, lambda: True)
        await_true(lambda: len(told) == 1)

    assert told == [None]
    assert stored(broker) == [(b"a", b"1")]
    assert len(broker.produced) == 3


def test_a_record_for_which_there_was_no_room_is_sent_again(broker: ScriptedBroker) -> None:
    told: list[Exception | None] = []
    broker.answer_next(Api.PRODUCE, SILENT)
    with writing(broker.bootstrap, **{"buffer.memory": "10000"}) as writer:
        writer.send(b"a", b"x" * 9000, told.append)
        broker.wait_until(lambda: len(broker.produced) == 1)
        writer.send(b"b", b"x" * 9000, told.append, lambda: True)
        broker.release()
        await_true(lambda: len(told) == 2)

    assert told == [None, None]
    assert [key for key, _ in stored(broker)] == [b"a", b"b"]


def test_a_record_that_is_not_wanted_any_more_is_not_sent_again(broker: ScriptedBroker) -> None:
    told: list[Exception | None] = []
    wanted = [True, False, False]
    broker.answer_next(Api.PRODUCE, Refuse(NOT_LEADER_OR_FOLLOWER))
    with writing(broker.bootstrap, retries="0") as writer:
        writer.send(b"a", b"1", told.append, lambda: wanted.pop(0))
        await_true(lambda: len(told) == 1)

    assert isinstance(told[0], KafkaRetriableException)
    assert "record a could not be written" in str(told[0])
    assert len(broker.produced) == 1


def test_a_record_that_is_refused_for_good_is_not_sent_again(broker: ScriptedBroker, writer: LogWriter) -> None:
    told: list[Exception | None] = []
    broker.answer_next(Api.PRODUCE, Refuse(TOPIC_NOT_ALLOWED))

    writer.send(b"a", b"1", told.append, lambda: True)
    await_true(lambda: len(told) == 1)

    assert type(told[0]) is KafkaException
    assert len(broker.produced) == 1


def test_what_is_left_at_the_end_is_told(broker: ScriptedBroker) -> None:
    told: list[Exception | None] = []
    broker.on_produce = lambda seen: Refuse(NOT_LEADER_OR_FOLLOWER)
    with writing(broker.bootstrap, retries="0") as writer:
        writer.send(b"a", b"1", told.append, lambda: True)
        broker.wait_until(lambda: len(broker.produced) > 1)

        writer.stop(0.1)

        assert len(told) == 1
        with pytest.raises(KafkaException, match="is closed"):
            writer.write([(b"a", b"1")], 1)
    assert not [thread.name for thread in threading.enumerate() if "team-configs" in thread.name]


# ---------------------------------------------------------------- writing in transactions
@pytest.fixture
def producer() -> FakeTransactions:
    return FakeTransactions()


def leader(producer: FakeTransactions) -> TransactionalWriter:
    worker = {"bootstrap.servers": "a:1", "group.id": "team"}
    settings = config_log(worker, transactional=True).leader
    assert settings is not None
    return TransactionalWriter(TOPIC, settings, make_producer=producer)


def claimed(producer: FakeTransactions) -> TransactionalWriter:
    writer = leader(producer)
    writer.claim(20)
    producer.calls.clear()
    return writer


FENCED = ProducerFencedException("another producer has the id")


def test_the_records_of_a_call_are_one_transaction(producer: FakeTransactions) -> None:
    writer = leader(producer)
    writer.claim(20)

    assert writer.write([(b"a", b"1"), (b"b", b"2")], 20) == {0: 2}
    assert producer.calls == ["made", "init", "send", "commit"]
    assert producer.made_with == {"name": "team-configs-leader", "each_row": True, "stops_at_failure": True}


def test_a_claim_that_is_not_answered_says_so_and_leaves_nothing(producer: FakeTransactions) -> None:
    writer = leader(producer)
    producer.errors = {"init": [KafkaRetriableException("no coordinator in time")]}

    with pytest.raises(KafkaRetriableException, match=r"connect-cluster-team could not be claimed .*: no coordinator"):
        writer.claim(20)

    assert producer.calls == ["made", "init", "closed"]


def test_a_transactional_id_that_is_forbidden_says_which_rights_it_needs(producer: FakeTransactions) -> None:
    producer.errors = {"init": [TransactionalIdAuthorizationException("it needs an ACL that allows WRITE")]}

    with pytest.raises(KafkaException, match=r"connect-cluster-team could not be claimed.*it needs an ACL") as raised:
        leader(producer).claim(20)
    assert type(raised.value) is KafkaException


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (
            CommitOutcomeUnknownException("not answered"),
            r"whether its transaction was committed is not known \(frozen\)",
        ),
        (KafkaRetriableException("not stored in time"), "not stored in time"),
    ],
)
def test_a_commit_that_takes_too_long_costs_the_claim(
    producer: FakeTransactions, failure: KafkaException, text: str
) -> None:
    writer = claimed(producer)
    producer.errors, producer.trouble = {"commit": [failure]}, "frozen"

    with pytest.raises(KafkaRetriableException, match=rf"could not write \(topic {TOPIC}\): {text}"):
        writer.write([(b"a", b"1")], 20)
    with pytest.raises(ProducerFencedException, match="has to be claimed first"):
        writer.write([(b"a", b"1")], 20)
    assert producer.calls == ["send", "commit", "closed"]


@pytest.mark.parametrize("stage", ["send", "commit"])
def test_a_fenced_producer_is_told_so_until_it_claims_again(producer: FakeTransactions, stage: str) -> None:
    writer = claimed(producer)
    producer.errors = {stage: [FENCED]}

    with pytest.raises(ProducerFencedException, match=r"connect-cluster-team .*it can be claimed again"):
        writer.write([(b"a", b"1")], 20)
    with pytest.raises(ProducerFencedException, match="has to be claimed first"):
        writer.write([(b"a", b"1")], 20)
    writer.claim(20)

    assert writer.write([(b"a", b"1")], 20)


def test_a_record_that_is_refused_aborts_the_transaction_and_keeps_the_claim(producer: FakeTransactions) -> None:
    writer = claimed(producer)
    producer.refused = {b"b": KafkaException("not allowed")}
    producer.errors = {"commit": [TransactionAbortableException("a record failed")]}

    with pytest.raises(KafkaException, match=r"record b could not be written.*: not allowed"):
        writer.write([(b"a", b"1"), (b"b", b"1")], 20)
    writer.write([(b"c", b"1")], 20)

    assert producer.calls == ["send", "commit", "abort", "send", "commit"]


def test_a_transaction_that_cannot_be_committed_though_no_record_was_refused_says_why(
    producer: FakeTransactions,
) -> None:
    writer = claimed(producer)
    producer.errors = {"send": [TransactionAbortableException("not authorized to write to the topic")]}

    with pytest.raises(KafkaException, match=r"connect-cluster-team could not write .*not authorized") as raised:
        writer.write([(b"a", b"1")], 20)

    assert type(raised.value) is KafkaException
    assert producer.calls == ["send", "abort"]


def test_a_transaction_that_cannot_be_aborted_costs_the_claim(producer: FakeTransactions) -> None:
    writer = claimed(producer)
    producer.errors = {"commit": [TransactionAbortableException("id unknown")], "abort": [KafkaException("id unknown")]}

    # Nothing is stored, and to claim again is what helps, as after the id was forgotten because nobody used it.
    with pytest.raises(ProducerFencedException, match="id unknown; it can be claimed again"):
        writer.write([(b"a", b"1")], 20)
    with pytest.raises(ProducerFencedException, match="has to be claimed first"):
        writer.write([(b"a", b"1")], 20)


def test_what_an_error_has_left_open_is_not_committed_with_the_next(producer: FakeTransactions) -> None:
    writer = claimed(producer)
    producer.errors = {"send": [ValueError("a bug")]}

    with pytest.raises(ValueError, match="a bug"):
        writer.write([(b"a", b"1")], 20)
    with pytest.raises(ProducerFencedException, match="has to be claimed first"):
        writer.write([(b"b", b"1")], 20)


def test_who_claims_or_writes_is_let_go_when_the_writer_is_stopped(producer: FakeTransactions) -> None:
    writer = claimed(producer)
    writer.stop()

    assert producer.calls == ["given up", "closed"]
    for call in (lambda: writer.claim(1), lambda: writer.write([(b"a", b"1")], 1)):
        with pytest.raises(KafkaException, match="is closed"):
            call()
