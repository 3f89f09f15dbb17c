"""Converts single records to the columns that a producer sends.

Main type: `ProducerRecord`; main function: `batch_of`.

Thread: none; values.

Source: org.apache.kafka.clients.producer.ProducerRecord.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.pipeline.batch.batches import PRODUCE_SCHEMA, ProduceBatch


class ProducerRecord(NamedTuple):
    """A record to send.

    Attributes:
        topic: Its topic.
        key, value: Its contents; None is null.
        headers: Names and values, in order.
        timestamp: Milliseconds since 1970; the time of sending if it is None or negative.
        partition: Its partition; the producer chooses one if it is None.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    partition: int | None = None


def batch_of(records: Sequence[ProducerRecord]) -> ProduceBatch:
    """The records as columns; row i is record i.

    >>> batch_of([ProducerRecord("t", b"k", None), ProducerRecord("u", None, b"v")]).table.column("topic").to_pylist()
    ['t', 'u']
    """
    times = [one.timestamp if one.timestamp is not None and one.timestamp >= 0 else None for one in records]
    columns: dict[str, Sequence[object]] = {
        "seq": range(len(records)),
        "topic": [one.topic for one in records],
        "partition": [one.partition for one in records],
        "timestamp": times,
        "key": [one.key for one in records],
        "value": [one.value for one in records],
        "headers": [[{"key": name, "value": value} for name, value in one.headers] for one in records],
        "dropped": [False] * len(records),
    }
    table = pa.table([pa.array(columns[one.name], one.type) for one in PRODUCE_SCHEMA], schema=PRODUCE_SCHEMA)
    topics = {one.topic for one in records}
    return ProduceBatch(
        table,
        {},
        topics.pop() if len(topics) == 1 else None,
        has_headers=any(one.headers for one in records),
        has_dropped=False,
        has_keys=any(one.key is not None for one in records),
        has_partition=any(one.partition is not None for one in records),
        timestamp=None,
    )
