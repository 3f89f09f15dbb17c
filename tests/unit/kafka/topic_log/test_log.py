"""What a log makes of what a cluster says of its topic, over clients that do what a test says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import confluent_kafka as ck
import pytest
from testkit.brokers.scripted_broker import ScriptedBroker
from testkit.waiting import await_true
from tests.unit.kafka.fake_clients import FakeConsumer, Message

from penstock.api import TopicPartition
from penstock.errors import KafkaException, KafkaRetriableException
from penstock.kafka.admin import TopicAdmin, TopicDescription
from penstock.kafka.topic_log.clients import LogRecord
from penstock.kafka.topic_log.internal_topics import config_log
from penstock.kafka.topic_log.log import TopicLog

E = ck.KafkaError
TOPIC = "connect-configs"


class FakeAdmin:
    """A topic whose ends a test sets."""

    def __init__(self) -> None:
        self.topic_id = "first"
        self.ends = {0: 0}
        self.errors: list[Exception] = []

    def describe_topics(self, topics: Iterable[str], *, timeout_s: float) -> dict[str, TopicDescription]:
        if self.errors:
            raise self.errors.pop(0)
        return {TOPIC: TopicDescription(TOPIC, len(self.ends), 1, self.topic_id)} if self.ends else {}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, committed_only: bool, timeout_s: float
    ) -> dict[TopicPartition, int]:
        return {at: self.ends[at.partition] for at in partitions}

    def beginning_offsets(self, partitions: Iterable[TopicPartition], *, timeout_s: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)


class Rig:
    """A log with all that is under it."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.admin, self.broker = FakeAdmin(), broker
        self.consumers: list[FakeConsumer] = []
        self.seen: list[LogRecord] = []
        self.now = 1000.0
        self.log = TopicLog(
            TOPIC,
            config_log({"bootstrap.servers": broker.bootstrap, "group.id": "team"}, transactional=False),
            cast(TopicAdmin, self.admin),
            make_consumer=self._make_consumer,
            clock=lambda: self.now,
        )

    def _make_consumer(self, conf: dict[str, Any], logger: object = None) -> FakeConsumer:
        self.consumers.append(FakeConsumer(conf))
        return self.consumers[-1]

    @property
    def consumer(self) -> FakeConsumer:
        return self.consumers[-1]

    def start(self, *messages: Message) -> None:
        if messages:
            make = self._make_consumer

            def filled(conf: dict[str, Any], logger: object = None) -> FakeConsumer:
                consumer = make(conf)
                consumer.batches.put(list(messages))
                return consumer

            self.log._make_consumer = filled
            self.admin.ends = {0: messages[-1].offset() + 1}
        self.log.start(self.seen.extend, 20)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ScriptedBroker({TOPIC: 1}) as broker:
        rig = Rig(broker)
        yield rig
        rig.log.stop()


def test_a_start_ends_when_the_end_was_handed_over(rig: Rig) -> None:
    rig.start(Message(0), Message(1))

    assert [record.offset for record in rig.seen] == [0, 1]
    rig.log.read_to_end(20)


def test_a_topic_that_is_shorter_than_what_was_read_is_read_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(Message(0), Message(1), Message(2))
    rig.admin.ends = {0: 1}
    rig.consumer.batches.put([])

    with pytest.raises(KafkaRetriableException):
        rig.log.read_to_end(0)
    await_true(lambda: rig.consumer.assigned[-1:] == [[(0, 0)]] and len(rig.consumer.assigned) == 2)
    rig.consumer.batches.put([Message(0, b"k", b"again")])
    await_true(lambda: len(rig.seen) == 4)

    rig.log.read_to_end(20)
    assert f"topic {TOPIC} was truncated" in caplog.text
    assert "partition 0 up to offset 3" in caplog.text


def test_an_end_that_was_overtaken_is_asked_for_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(Message(0), Message(1), Message(2))
    ends, told = rig.admin.end_offsets, [1]

    def overtaken(partitions: Iterable[TopicPartition], **asked: Any) -> dict[TopicPartition, int]:
        found = ends(partitions, **asked)
        return dict.fromkeys(found, told.pop()) if told else found

    rig.admin.end_offsets = overtaken  # type: ignore[method-assign]
    rig.log.read_to_end(20)

    assert "was truncated" not in caplog.text
    assert (told, len(rig.seen), len(rig.consumer.assigned)) == ([], 3, 1)


def test_another_topic_of_the_name_is_read_from_its_beginning(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(Message(0), Message(1))
    rig.admin.topic_id, rig.admin.ends = "second", {0: 5}
    # Nobody asks: the log looks by itself.
    rig.now += 31
    await_true(lambda: len(rig.consumer.assigned) == 2)

    assert rig.consumer.assigned[-1] == [(0, 0)]
    assert "was deleted and created again" in caplog.text


def test_records_beyond_the_end_that_was_asked_for_are_no_loss(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(Message(0))
    ends = rig.admin.end_offsets

    def late(partitions: Iterable[TopicPartition], **kwargs: Any) -> dict[TopicPartition, int]:
        found = ends(partitions, **kwargs)
        # They come between the answer and whoever gets it.
        rig.consumer.batches.put([Message(1), Message(2)])
        await_true(lambda: len(rig.seen) == 3)
        return found

    rig.admin.end_offsets = late  # type: ignore[method-assign]
    rig.log.read_to_end(20)

    assert len(rig.consumer.assigned) == 1
    assert caplog.messages == []


def test_partitions_that_were_added_are_waited_for(rig: Rig) -> None:
    rig.start(Message(0))
    rig.admin.ends = {0: 1, 1: 1}
    with pytest.raises(KafkaRetriableException, match="partition 1 is at 0 of 1"):
        rig.log.read_to_end(0)
    await_true(lambda: len(rig.consumer.assigned) == 2)
    rig.consumer.batches.put([Message(0, partition=1)])

    rig.log.read_to_end(20)
    assert sorted(rig.consumer.assigned[-1]) == [(0, 1), (1, 0)]


def test_a_topic_that_is_being_made_is_waited_for(rig: Rig) -> None:
    rig.admin.errors = [KafkaRetriableException("no leader yet"), KafkaRetriableException("no leader yet")]

    rig.start()

    assert rig.admin.errors == []


def test_a_question_that_is_refused_is_not_asked_again(rig: Rig) -> None:
    rig.admin.errors = [KafkaException("not allowed"), KafkaException("not asked for")]

    with pytest.raises(KafkaException, match="not allowed"):
        rig.start()

    assert len(rig.admin.errors) == 1


def test_a_topic_that_is_not_there_is_named_with_the_stage(rig: Rig) -> None:
    rig.start(Message(0))
    rig.admin.ends = {}

    with pytest.raises(KafkaRetriableException, match=f"{TOPIC}, being asked for its ends, .*does not exist"):
        rig.log.read_to_end(0)


def test_a_write_that_is_not_read_back_is_named_with_the_stage(rig: Rig) -> None:
    rig.start()
    # The clock of the log stands still until the broker is asked; then no time is left.
    rig.broker.on_produce = lambda seen: setattr(rig, "now", rig.now + 60)

    stage = f"{TOPIC}, reading back what was written, .*partition 0 is at 0 of 1"
    with pytest.raises(KafkaRetriableException, match=stage):
        rig.log.write([(b"a", b"1")], 30)


def test_whoever_waits_for_what_must_not_be_read_is_told_so(rig: Rig) -> None:
    rig.start()
    rig.admin.ends = {0: 5}
    rig.consumer.batches.put([Message(0, error=E.TOPIC_AUTHORIZATION_FAILED)])

    with pytest.raises(KafkaException, match=f"{TOPIC} cannot be read: .*Read and Describe"):
        rig.log.read_to_end(20)


def test_a_log_that_was_not_started_says_so(rig: Rig) -> None:
    told: list[Exception | None] = []

    rig.log.write_async(b"a", b"1", told.append)

    assert "is closed, or was not started" in str(told[0])
    with pytest.raises(KafkaException, match="is closed, or was not started"):
        rig.log.read_to_end(1)
