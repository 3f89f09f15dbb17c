"""The dead letter queue, with a producer that answers when told to."""

from typing import cast

import pytest
from testkit.doubles.sink_doubles import failure

from penstock.api import TopicPartition
from penstock.errors import AlreadyExistsException, ConnectException, KafkaException
from penstock.kafka.admin import NewTopic
from penstock.kafka.producer.record_batches import ProducerRecord
from penstock.kafka.producer.record_producer import Answer, RecordProducer
from penstock.model import ConnectorTaskId
from penstock.worker.errors import (
    ConsumedMessage,
    DeadLetterQueue,
    DeadLetterSettings,
    ErrorCounts,
    FailedRecord,
    create_topic,
)

TASK = ConnectorTaskId("sink", 3)
MESSAGE = ConsumedMessage("in", 2, 41, 5000, 0, b"\x00key", b"{bad", (("h", b"1"), ("none", None)))


class Sender:
    def __init__(self) -> None:
        self.sent: list[tuple[object, ...]] = []
        self.headers: dict[str, bytes | None] = {}
        self.answers: list[Answer] = []
        self.closed = False

    def send(self, record: ProducerRecord, answer: Answer) -> None:
        names = [name for name, _ in record.headers]
        self.sent.append((record.topic, record.key, record.value, names, record.timestamp))
        self.headers = dict(record.headers)
        self.answers.append(answer)

    def close(self, timeout_s: float) -> bool:
        self.closed = True
        return not self.answers


def queue(*, context: bool = True) -> tuple[DeadLetterQueue, Sender, ErrorCounts]:
    sender, counts = Sender(), ErrorCounts()
    return (
        DeadLetterQueue(DeadLetterSettings("dlq", 1, context), TASK, cast("RecordProducer", sender), counts),
        sender,
        counts,
    )


def test_a_message_goes_to_the_queue_byte_for_byte() -> None:
    letters, sender, counts = queue(context=False)
    letters.report(FailedRecord(failure(0), MESSAGE))
    assert sender.sent == [("dlq", b"\x00key", b"{bad", ["h", "none"], 5000)]
    assert counts.deadletterqueue_produce_requests == 1


def test_context_headers_come_after_the_messages_own() -> None:
    letters, sender, _ = queue()
    letters.report(FailedRecord(failure(0), MESSAGE))
    names = sender.sent[0][3]
    assert isinstance(names, list)
    assert names[:2] == ["h", "none"]
    prefix = "__connect.errors."
    trace = sender.headers.pop(prefix + "exception.stacktrace")
    assert trace is not None
    assert trace.startswith(b"org.apache.kafka.connect.errors.DataException: no JSON")
    assert {name.removeprefix(prefix): sender.headers[name] for name in names[2:-1]} == {
        "topic": b"in",
        "partition": b"2",
        "offset": b"41",
        "connector.name": b"sink",
        "task.id": b"3",
        "stage": b"VALUE_CONVERTER",
        "class.name": b"org.apache.kafka.connect.json.JsonConverter",
        "exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        "exception.message": b"no JSON",
    }


def test_offsets_wait_for_the_answers_of_their_own_partition() -> None:
    letters, sender, _ = queue()
    done = letters.report(FailedRecord(failure(0), MESSAGE))
    assert not letters.await_reports([TopicPartition("in", 2)], 0)
    assert not letters.await_reports(None, 0)
    assert letters.await_reports([TopicPartition("in", 1)], 0)
    sender.answers.pop()(None, None)
    assert letters.await_reports([TopicPartition("in", 2)], 0)
    assert done.done()


def test_a_failed_write_is_logged_and_counted_and_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    letters, sender, counts = queue()
    done = letters.report(FailedRecord(failure(0), MESSAGE))
    sender.answers.pop()(KafkaException("too large"), None)
    assert done.result() is None
    assert letters.await_reports(None, 0)
    assert counts.deadletterqueue_produce_failures == 1
    assert "message of in-2 at offset 41 to the dead letter topic dlq: too large" in caplog.text


def test_closing_says_when_letters_were_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    letters, sender, _ = queue()
    letters.report(FailedRecord(failure(0), MESSAGE))
    letters.close()
    assert sender.closed
    assert "not all dead letters were written to dlq" in caplog.text


class Maker:
    def __init__(self, *, exists: bool = False, error: Exception | None = None) -> None:
        self.exists = exists
        self.error = error
        self.created: list[tuple[str, int, int]] = []

    def topic_exists(self, topic: str) -> bool:
        return self.exists

    def create_topic(self, topic: NewTopic) -> None:
        self.created.append((topic.name, topic.partitions, topic.replication_factor))
        if self.error:
            raise self.error


def test_the_topic_is_made_with_one_partition_unless_it_is_there() -> None:
    maker = Maker()
    create_topic(DeadLetterSettings("dlq", 2), maker)
    assert maker.created == [("dlq", 1, 2)]
    there = Maker(exists=True)
    create_topic(DeadLetterSettings("dlq", 2), there)
    assert there.created == []
    create_topic(DeadLetterSettings("dlq", 2), Maker(error=AlreadyExistsException("race")))


def test_a_topic_that_cannot_be_made_fails_the_task() -> None:
    with pytest.raises(ConnectException, match="Could not initialize dead letter queue with topic=dlq"):
        create_topic(DeadLetterSettings("dlq"), Maker(error=KafkaException("replication factor: 3 larger than 1")))
