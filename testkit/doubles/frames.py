"""Frames as the worker makes them of JSON without a schema, for tests of a sink of frames.

Main function: ``frame_of_json``. Thread: any; no Spark, no Kafka.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.api import SinkFrame
from penstock.converters.json.values import read_schemaless
from penstock.pipeline.columns.schemaless import column_of


def frame_of_json(*messages: str | None, topic: str = "t") -> SinkFrame:
    """The frame of some messages of one partition, whose offsets begin with 0.

    Args:
        messages: Their values as JSON; None: a tombstone.
        topic: Where they were read.

    Raises:
        ValueError: One is no JSON.

    >>> frame_of_json('{"a": 1}', '{"a": 2.5, "b": null}').objects()
    [{'a': 1}, {'a': 2.5, 'b': None}]
    """
    column, _ = column_of([None if one is None else read_schemaless(one.encode()) for one in messages])
    rows = len(messages)
    columns = {
        "topic": pa.array([topic] * rows, pa.string()),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([0] * rows, pa.int64()),
        "timestamp_type": pa.array([0] * rows, pa.int8()),
        "key": pa.nulls(rows),
        "value": column.array,
    }
    return SinkFrame(pa.table(columns), None, None, _marks=pa.table({"value": column.marks}))
