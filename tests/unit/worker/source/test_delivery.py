"""The deliveries of a source: rows of one record, and the topics that are noted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from testkit.doubles.source_doubles import MemoryOffsets, offset_committer

from penstock.api import SourceRecord, SourceTask
from penstock.errors import KafkaException
from penstock.kafka.producer.in_flight import FailedDelivery
from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, ProduceBatch
from penstock.worker.errors import ErrorCounts, ErrorHandler, ErrorPolicy
from penstock.worker.source.delivery import Outgoing, SourceDelivery


class Recorded(SourceTask):
    """Notes the records it is told are done."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def start(self, props: Any) -> None:
        """Nothing to do."""

    def poll(self) -> None:
        """Nothing to give."""

    def stop(self) -> None:
        """Nothing to do."""

    def commit_record(self, record: SourceRecord) -> None:
        self.done.append(record.value)


class Sender:
    """Keeps the receipts of what it was asked to send."""

    def __init__(self) -> None:
        self.receipts: Any = None

    def send(self, batch: ProduceBatch, receipts: Any, **_: object) -> None:
        self.receipts = receipts


class AnyTopic:
    """All topics are there."""

    def ensure(self, topics: list[str]) -> None:
        """Nothing to do."""


def spread_batch(origins: list[int]) -> ProduceBatch:
    rows = len(origins)
    columns = {field.name: pa.nulls(rows, field.type) for field in PRODUCE_SCHEMA}
    columns |= {"seq": pa.array(range(rows), pa.int64()), "topic": pa.array(["t"] * rows)}
    return ProduceBatch(
        table=pa.table(columns, schema=PRODUCE_SCHEMA),
        errors={},
        topic="t",
        has_headers=False,
        has_dropped=False,
        has_keys=False,
        has_partition=False,
        timestamp=None,
        origins=np.array(origins),
    )


def test_a_record_is_settled_with_the_last_of_its_rows() -> None:
    task, sender = Recorded(), Sender()
    committer = offset_committer(task, MemoryOffsets())
    delivery = SourceDelivery(
        "c-0",
        cast("Any", sender),
        cast("Any", AnyTopic()),
        cast("Any", None),
        committer=committer,
        fail=lambda error: None,
        probe=lambda point: None,
        note_topics=lambda topics: None,
    )
    records = [SourceRecord({"f": "x"}, {"at": at}, "t", f"record {at}") for at in (1, 2)]
    delivery.deliver(Outgoing(records, spread_batch([0, 0, 1]), None, [], None))

    sender.receipts.delivered(0, 1, [], None)
    assert committer.submitted.take_committable() == []
    assert task.done == []

    sender.receipts.delivered(1, 2, [], None)
    assert committer.submitted.take_committable() == [({"f": "x"}, {"at": 1})]
    assert task.done == ["record 1"]

    sender.receipts.delivered(2, 3, [], None)
    assert committer.submitted.take_committable() == [({"f": "x"}, {"at": 2})]
    assert task.done == ["record 1", "record 2"]
    assert delivery.records_written == 3


def test_topics_are_noted_when_kafka_has_a_row_of_them() -> None:
    sender, noted = Sender(), list[str]()
    delivery = SourceDelivery(
        "c-0",
        cast("Any", sender),
        cast("Any", AnyTopic()),
        ErrorHandler(ErrorPolicy(tolerance_all=True), [], counts=ErrorCounts(), clock=lambda: 0, random=lambda: 0.5),
        committer=offset_committer(Recorded(), MemoryOffsets()),
        fail=lambda error: None,
        probe=lambda point: None,
        note_topics=noted.extend,
    )
    records = [SourceRecord({"f": "x"}, {"at": at}, topic, "v") for at, topic in enumerate(("t", "u", "u", "w"))]
    batch = spread_batch([0, 1, 2, 3])
    topics = pa.array([record.topic for record in records])
    table = batch.table.set_column(batch.table.schema.get_field_index("topic"), "topic", topics)
    batch = replace(batch, table=table, topic=None, origins=None)
    delivery.deliver(Outgoing(records, batch, None, [], None))
    refused = FailedDelivery(3, "w", KafkaException("too large"), KafkaException.java_name)

    sender.receipts.delivered(3, 4, [refused], None)
    assert noted == []

    sender.receipts.delivered(1, 3, [FailedDelivery(1, "u", refused.error, refused.java_name)], None)
    assert noted == ["u"]

    sender.receipts.delivered(0, 1, [], None)
    assert noted == ["u", "t"]
