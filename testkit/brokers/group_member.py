"""A foreign member of a consumer group, for tests of what a live group allows.

Main function: ``group_member``. Thread: the test's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import confluent_kafka as ck


@contextmanager
def group_member(bootstrap_servers: str, group: str, topic: str) -> Iterator[ck.Consumer]:
    """A consumer that has been given the partitions of a topic, and that leaves at the end.

    Args:
        bootstrap_servers: Where Kafka is.
        group: The group it joins.
        topic: What it reads; from the beginning, where the group has no offsets. It commits nothing by itself.
    """
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    assigned = Event()
    consumer.subscribe([topic], on_assign=lambda *_: assigned.set())
    try:
        while not assigned.is_set():
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()
