"""Single records, each with its own answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from testkit.brokers.scripted_broker import SILENT, Delay, Refuse, ScriptedBroker
from testkit.brokers.scripted_login import ScriptedLogin

from penstock.api import RecordMetadata
from penstock.errors import KafkaRetriableException
from penstock.kafka.producer.record_batches import ProducerRecord
from penstock.kafka.producer.record_producer import RecordProducer
from penstock.kafka.protocol import Api
from penstock.kafka.settings.client import producer_settings
from penstock.kafka.settings.producer import ColumnSettings

WAIT_S = 10.0
TOPIC_NOT_ALLOWED = 29


class Answers:
    """Notes what is answered."""

    def __init__(self) -> None:
        self.told: list[str | None] = []
        self.errors: list[Exception] = []
        self.places: list[RecordMetadata] = []
        self.changed = threading.Condition()

    def __call__(self, error: Exception | None, place: RecordMetadata | None) -> None:
        with self.changed:
            self.told.append(None if error is None else str(error))
            if error is not None:
                self.errors.append(error)
            if place is not None:
                self.places.append(place)
            self.changed.notify_all()

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.told) >= count, WAIT_S), self.told


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({"dlq": 1}) as made:
        yield made


def letter(value: bytes) -> ProducerRecord:
    return ProducerRecord("dlq", None, value)


def producer(address: str, *, clock: Callable[[], float] = time.monotonic, **own: str) -> RecordProducer:
    worker = {"bootstrap.servers": address, "producer.retry.backoff.ms": "10", "producer.reconnect.backoff.ms": "10"}
    worker |= {f"producer.{name.replace('_', '.')}": text for name, text in own.items()}
    return RecordProducer(ColumnSettings.of(producer_settings(worker, {}, client_id="l")), name="c-0", clock=clock)


def test_a_record_arrives_as_it_was_with_its_headers_and_its_time(broker: ScriptedBroker) -> None:
    made, answers = producer(broker.bootstrap), Answers()
    made.send(ProducerRecord("dlq", b"k", b"v", [("a", b"1"), ("a", None)], 77), answers)
    answers.wait(1)
    made.send(ProducerRecord("dlq", None, None, [], -1), answers)
    assert made.close(WAIT_S)
    first, second = broker.records("dlq", 0)
    assert (first.key, first.value, first.headers, first.timestamp) == (b"k", b"v", (("a", b"1"), ("a", None)), 77)
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert second.timestamp > 1_600_000_000_000
    assert answers.told == [None, None]
    assert answers.places == [RecordMetadata("dlq", 0, 0, 77), RecordMetadata("dlq", 0, 1, second.timestamp)]


def test_records_that_come_while_others_are_sent_go_together_and_in_order(broker: ScriptedBroker) -> None:
    held = threading.Event()
    broker.answer_next(Api.METADATA, *[Delay(held)] * 2)
    made, answers = producer(broker.bootstrap), Answers()
    for number in range(500):
        made.send(letter(str(number).encode()), answers)
    held.set()
    assert made.close(WAIT_S)
    assert broker.values("dlq", 0) == [str(number).encode() for number in range(500)]
    assert answers.told == [None] * 500
    assert len(broker.produced) <= 5


def test_a_record_that_kafka_refuses_is_told_alone(broker: ScriptedBroker) -> None:
    made, refused, stored = producer(broker.bootstrap, max_request_size="1000"), Answers(), Answers()
    broker.answer_next(Api.PRODUCE, Refuse(TOPIC_NOT_ALLOWED))
    made.send(letter(b"a"), refused)
    refused.wait(1)
    made.send(letter(b"x" * 2000), refused)
    made.send(letter(b"b"), stored)
    assert made.close(WAIT_S)
    assert refused.told[0] == "The user may not write to the topic"
    assert "larger than the producer's max.request.size" in str(refused.told[1])
    assert stored.told == [None]
    assert broker.values("dlq", 0) == [b"b"]


def test_what_is_not_stored_in_time_is_answered_at_the_end_and_what_comes_later_too(broker: ScriptedBroker) -> None:
    made, answers = producer(broker.bootstrap), Answers()
    broker.answer_next(Api.PRODUCE, SILENT)
    made.send(letter(b"a"), answers)
    assert not made.close(0.3)
    made.send(letter(b"b"), answers)
    broker.release()
    assert answers.told == [
        "The producer of c-0 was closed before it was stored",
        "The producer of c-0 is closed",
    ]
    assert not [thread.name for thread in threading.enumerate() if thread.name.endswith("-c-0")]


def test_sending_does_not_wait_for_a_kafka_that_is_not_there_until_the_queue_is_full() -> None:
    made, answers = producer("127.0.0.1:1", buffer_memory="10000"), Answers()
    sent = threading.Event()

    def send() -> None:
        for _ in range(20):
            made.send(letter(b"x" * 1000), answers)
        sent.set()

    thread = threading.Thread(target=send)
    thread.start()
    assert not sent.wait(0.2)
    assert 8 <= len(made._open) <= 10
    assert not made.close(0)
    thread.join(WAIT_S)
    assert len(answers.told) == 20
    assert None not in answers.told


def test_who_must_not_wait_for_room_is_refused_and_told_why() -> None:
    made, waiting, refused = producer("127.0.0.1:1", buffer_memory="10000"), Answers(), Answers()
    made.send(letter(b"x" * 9000), waiting, room_s=0)
    made.send(letter(b"x" * 9000), refused, room_s=0)

    assert waiting.told == []
    assert isinstance(refused.errors[0], KafkaRetriableException)
    assert "c-0 has no room for more records" in str(refused.errors[0])
    made.close(0)


def test_a_record_may_be_sent_later_and_takes_no_room_until_then(broker: ScriptedBroker) -> None:
    made, later, others = producer(broker.bootstrap, buffer_memory="10000"), Answers(), Answers()
    began = time.monotonic()
    made.send(letter(b"x" * 9000), later, after_s=0.3)
    made.send(letter(b"y" * 9000), others, room_s=0)
    others.wait(1)
    later.wait(1)

    assert time.monotonic() - began >= 0.3
    assert later.told == others.told == [None]
    assert [value[:1] for value in broker.values("dlq", 0) if value] == [b"y", b"x"]
    made.close(0)


def test_a_record_is_asked_for_when_its_turn_has_come(broker: ScriptedBroker) -> None:
    made, answers = producer(broker.bootstrap), Answers()
    asked: list[bytes] = []

    def wanted(value: bytes) -> bool:
        asked.append(value)
        return value == b"b"

    made.send(letter(b"a"), answers, after_s=0.05, wanted=lambda: wanted(b"a"))
    made.send(letter(b"b"), answers, after_s=0.1, wanted=lambda: wanted(b"b"))
    answers.wait(2)

    assert asked == [b"a", b"b"]
    assert answers.told == ["It was not sent: it is not wanted any more", None]
    assert isinstance(answers.errors[0], KafkaRetriableException)
    assert broker.values("dlq", 0) == [b"b"]
    assert made.close(WAIT_S)


def test_what_is_to_be_sent_later_is_told_when_the_producer_is_closed(broker: ScriptedBroker) -> None:
    made, answers = producer(broker.bootstrap), Answers()
    made.send(letter(b"a"), answers, after_s=60)

    assert not made.close(WAIT_S)
    assert answers.told == ["The producer of c-0 was closed before it was stored"]


def test_a_login_that_was_refused_is_tried_again_for_what_comes_later(broker: ScriptedBroker) -> None:
    broker.login = ScriptedLogin({"me": "changed"})
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    made, answers = (
        producer(
            broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'{plain} required username="me" password="secret";',
        ),
        Answers(),
    )
    made.send(letter(b"a"), answers)
    answers.wait(1)
    broker.login.users["me"] = "secret"
    deadline = time.monotonic() + WAIT_S
    while answers.told[-1] is not None and time.monotonic() < deadline:
        made.send(letter(b"b"), answers)
        answers.wait(len(answers.told) + 1)
        threading.Event().wait(0.01)

    assert "has failed: Authentication failed" in str(answers.told[0])
    assert answers.told[-1] is None
    assert broker.values("dlq", 0) == [b"b"]
    assert made.close(WAIT_S)


def test_a_producer_that_ended_by_an_error_is_replaced_and_what_it_was_given_is_told(broker: ScriptedBroker) -> None:
    now = [1000.0]
    made, first, second = producer(broker.bootstrap, clock=lambda: now[0]), Answers(), Answers()
    broker.answer_next(Api.PRODUCE, SILENT)
    made.send(letter(b"a"), first)
    broker.wait_until(lambda: len(broker.produced) == 1)
    # What its thread does when it ends by an error.
    made._producer.abort()
    made.send(letter(b"b"), second)
    second.wait(1)
    now[0] += 2
    made.send(letter(b"c"), second)
    second.wait(2)

    assert "was closed while records were being sent" in str(second.told[0])
    assert second.told[1] is None
    assert first.told == ["The producer of c-0 has failed; it may be stored"]
    assert broker.values("dlq", 0) == [b"a", b"c"]
    assert made.close(WAIT_S)
