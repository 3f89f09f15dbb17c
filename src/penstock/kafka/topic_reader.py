"""Reads a topic's values from its start, without a consumer group: for the quickstart and for checks.

Main function: `read_values`. Thread: the caller's.
"""

from __future__ import annotations

import time
import uuid

import confluent_kafka as ck

_AT_ONCE = 100_000


def read_values(bootstrap_servers: str, topic: str, count: int, timeout_s: float) -> list[bytes | None]:
    """The first values of a topic, each partition in order.

    Args:
        bootstrap_servers: the brokers.
        topic: the topic; waits when it is not there yet.
        count: how many values to wait for.
        timeout_s: how long to wait for them.

    Returns:
        At most `count` values; fewer when the time is over.
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
