"""Reads topics without a consumer group and without committing anything, on the caller's thread."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck

from penstock.config.java_pattern import JavaPattern
from penstock.errors import KafkaException
from penstock.kafka.consumer.messages import is_about_records
from penstock.kafka.consumer.offsets import for_client


@dataclass(frozen=True)
class SampledMessage:
    """An unconverted message."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def sample(
    settings: Mapping[str, object],
    topics: Sequence[str] | JavaPattern,
    *,
    records: int,
    size: int,
    seconds: float,
) -> list[SampledMessage]:
    """The first messages of topics, each partition in order.

    Args:
        size: The maximum number of bytes.
    """
    deadline = time.monotonic() + seconds
    own = {
        "group.id": f"penstock-preview-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
    consumer = ck.Consumer({**for_client(settings), **own})
    found: list[SampledMessage] = []
    try:
        known = consumer.list_topics(timeout=max(0.1, deadline - time.monotonic())).topics
        chosen = [name for name in known if _wanted(name, topics)]
        places = [ck.TopicPartition(name, p, ck.OFFSET_BEGINNING) for name in chosen for p in known[name].partitions]
        if not places:
            return []
        consumer.assign(places)
        left_over = {(place.topic, place.partition) for place in places}
        while left_over and len(found) < records and size > 0 and (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(min(left, 0.2))
            if message is None:
                continue
            error = message.error()
            if error is not None:
                # An unreadable record also ends a partition: the client would read it again and again.
                if error.code() == ck.KafkaError._PARTITION_EOF or is_about_records(error, message.topic()):
                    left_over.discard((str(message.topic()), message.partition() or 0))
                continue
            found.append(_sampled(message))
            size -= len(message.value() or b"") + len(message.key() or b"")
    except ck.KafkaException as error:
        raise KafkaException(f"The topics of the preview cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()
    return found


def _wanted(name: str, topics: Sequence[str] | JavaPattern) -> bool:
    return topics.matches(name) if isinstance(topics, JavaPattern) else name in topics


def _sampled(message: ck.Message) -> SampledMessage:
    kind, moment = message.timestamp()
    types = {ck.TIMESTAMP_CREATE_TIME: 0, ck.TIMESTAMP_LOG_APPEND_TIME: 1}
    listed: Any = message.headers() or ()
    headers = [(name, _bytes(data)) for name, data in listed]
    return SampledMessage(
        str(message.topic()),
        int(message.partition() or 0),
        int(message.offset() or 0),
        moment if kind in types else None,
        types.get(kind, -1),
        _bytes(message.key()),
        _bytes(message.value()),
        headers,
    )


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else None if data is None else bytes(data)


_AT_ONCE = 100_000


def read_values(bootstrap_servers: str, topic: str, count: int, timeout_s: float) -> list[bytes | None]:
    """The first values of a topic, each partition in order. Returns at most `count` values; fewer at the end of the
    time limit.
    """
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"penstock-reader-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "log_level": 2,
        }
    )
    values: list[bytes | None] = []
    deadline = time.monotonic() + timeout_s
    assigned = False
    try:
        while len(values) < count and (left := deadline - time.monotonic()) > 0:
            if not assigned:
                found = consumer.list_topics(topic, timeout=max(0.1, min(left, 5))).topics[topic].partitions
                if found:
                    consumer.assign([ck.TopicPartition(topic, p, ck.OFFSET_BEGINNING) for p in found])
                    assigned = True
            messages = consumer.consume(min(count - len(values), _AT_ONCE), min(left, 0.2)) if assigned else []
            if not assigned:
                consumer.poll(min(left, 0.1))
            values.extend(message.value() for message in messages if message.error() is None)
    finally:
        consumer.close()
    return values
