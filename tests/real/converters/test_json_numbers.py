"""Numbers of JSON messages with a schema: as columns they are what they are one by one, to the last bit."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence

import pytest
from testkit.doubles.chains import consumed

from penstock.api import SinkRecord
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import Struct
from penstock.pipeline.batch.batches import PipelineSpec
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]

FIELDS = [
    {"field": "wide", "type": "double", "optional": True},
    {"field": "narrow", "type": "float", "optional": True},
    {"field": "whole", "type": "int64", "optional": True},
    {"field": "short", "type": "int16", "optional": True},
    {"field": "wides", "type": "array", "items": {"type": "double", "optional": True}, "optional": True},
    {"field": "narrows", "type": "array", "items": {"type": "float", "optional": True}, "optional": True},
]
SCHEMA = json.dumps({"type": "struct", "fields": FIELDS})
NUMBERS = [
    *(
        "0",
        "-0",
        "0.0",
        "-0.0",
        "-0.00",
        "-0e0",
        "-0.0e5",
        "-0.5",
        "10.0",
        "0.1",
        "1.10",
        "12",
        "1e5",
        "1E-3",
        "-1e-400",
    ),
    *("16777217", "16777217.0", "9007199254740993", "9223372036854775807"),
    *("9223372036854775808", "99999999999999999999", "1e300", "-1e300", "1.5e20", "9.3e18"),
    *("0.30000001192092896", "1.00000017881393432617187500001"),
    *(
        "0.00000000000000000000000000000000000001",
        "0.1234567890123456789012345678901234567890",
        "null",
        '"1.5"',
        "true",
    ),
]


#: Integers of more digits than a double or Spark's decimal has.
HUGE = ["3.5e38", "123456789012345678901234567890123456789", "-1e39", "9007199254740993.0", "123456789012345678.0"]


def bits(value: object) -> object:
    """Something that is equal only for the same bits."""
    if isinstance(value, Struct):
        return [bits(one) for one in value.values]
    if isinstance(value, list):
        return [bits(one) for one in value]
    return struct.pack(">d", value) if isinstance(value, float) else value


def read(runtime: SparkRuntime, converter: JsonConverter, messages: Sequence[str]) -> list[object]:
    key, header = StringConverter(), SimpleHeaderConverter()
    key.configure({}, True)
    header.configure({})
    batch = SinkPipeline(runtime, PipelineSpec(key, converter, header)).run(
        consumed([one.encode() for one in messages])
    )
    assert batch.errors == {}
    assert batch.records is not None
    assert all(isinstance(record, SinkRecord) for record in batch.records)
    return [record.value for record in batch.records if record is not None]


def test_numbers_in_columns_are_those_of_records(spark_runtime: SparkRuntime) -> None:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, False)
    random.seed(4)
    random_ones = [repr(random.uniform(-1e6, 1e6)) for _ in range(200)]
    messages = [
        f'{{"schema":{SCHEMA},"payload":{{"wide":{one},"narrow":{one},"whole":{one},"short":{one}}}}}'
        for one in [*NUMBERS, *random_ones]
    ]
    messages += [
        f'{{"schema":{SCHEMA},"payload":{{"wide":{one},"narrow":1.5,"whole":7,"short":7,"wides":[{one},2.5],"narrows":null}}}}'
        for one in [*NUMBERS, *random_ones]
    ]
    messages += [f'{{"schema":{SCHEMA},"payload":{{"wide":{one},"narrow":{one}}}}}' for one in HUGE]
    messages += [f'{{"schema":{SCHEMA},"payload":{{"narrows":[{one},0.1,16777217]}}}}' for one in NUMBERS]

    read_together = read(spark_runtime, converter, messages)

    for message, value in zip(messages, read_together, strict=True):
        alone = converter.to_connect_data("t", message.encode()).value
        assert bits(value) == bits(alone), message.partition('"payload":')[2]
