"""Decimals of JSON messages, and messages without JSON: as columns they are what they are one by one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from testkit.doubles.chains import configured, consumed

from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.errors import DataException
from penstock.pipeline.batch.batches import PipelineSpec
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]

DATA = "org.apache.kafka.connect.data"
DECIMAL = f'{{"type":"bytes","name":"{DATA}.Decimal","parameters":{{"scale":"2"}}}}'
NUMBERS = [
    *("0", "-0", "-0.00", "1.50", "1e5", "12.5E-3", "1e-400", "1e2000"),
    *("9" * 38, "9" * 39, "-" + "9" * 39, "1" + "0" * 60, "-1" + "0" * 60, "9" * 1000, "1." + "9" * 999),
    *('"AQ=="', '"/w=="', '"gAAAAAAAAAAAAAAAAAAAAAAAAA=="'),
]
BAD = {
    "1"
    * 1001: "Converting byte[] to Kafka Connect data failed due to serialization error: a number has 1001 digits, and "
    "1000 are allowed",
    "1e99999999999": "A decimal has 1000 digits (416 bytes) at most, and a scale of 32 bits",
    f'"{"AAAA" * 200}"': "A decimal has 1000 digits (416 bytes) at most, and a scale of 32 bits",
    '""': "Invalid bytes for Decimal field",
    '"="': "Invalid bytes for Decimal field",
    "true": "Invalid type for Decimal, underlying representation should be numeric or bytes but was BOOLEAN",
}


def read(runtime: SparkRuntime, settings: Mapping[str, str], messages: list[str]) -> list[object]:
    """Values, or the message of the error."""
    rows = len(messages)
    json = configured(JsonConverter(), settings)
    batch = SinkPipeline(runtime, PipelineSpec(json, json, SimpleHeaderConverter())).run(
        consumed([one.encode() for one in messages])
    )
    records = iter([one for one in batch.records or () if one is not None])
    return [batch.errors[row].message if row in batch.errors else next(records).value for row in range(rows)]


def in_envelopes(schema: str, payloads: list[str]) -> list[str]:
    return [f'{{"schema":{schema},"payload":{one}}}' for one in payloads]


def test_decimals_keep_all_their_digits(spark_runtime: SparkRuntime) -> None:
    messages = in_envelopes(DECIMAL, NUMBERS)
    alone = configured(JsonConverter(), {})

    found = read(spark_runtime, {}, messages)

    for message, value in zip(messages, found, strict=True):
        assert repr(value) == repr(alone.to_connect_data("t", message.encode()).value), message[-60:]


def test_what_is_no_decimal_is_an_error_of_its_record(spark_runtime: SparkRuntime) -> None:
    messages = in_envelopes(DECIMAL, list(BAD))
    assert read(spark_runtime, {}, messages) == list(BAD.values())
    for message, expected in zip(messages, BAD.values(), strict=True):
        with pytest.raises(DataException) as caught:
            configured(JsonConverter(), {}).to_connect_data("t", message.encode())
        assert str(caught.value) == expected


def test_a_schema_without_scale_reads_numbers_alone(spark_runtime: SparkRuntime) -> None:
    schema = f'{{"type":"bytes","name":"{DATA}.Decimal"}}'
    number, text = read(spark_runtime, {}, in_envelopes(schema, ["1.50", '"AQ=="']))
    assert str(number) == "1.50"
    assert text == "Invalid bytes for Decimal field: its schema has no scale, or one that is no number"


@pytest.mark.parametrize("kind", ["string", "bytes", "boolean", "double"])
def test_a_type_that_a_date_cannot_have_is_an_error_and_no_null(kind: str, spark_runtime: SparkRuntime) -> None:
    schema = f'{{"type":"{kind}","name":"{DATA}.Date"}}'
    for one in read(spark_runtime, {}, in_envelopes(schema, ["1", '"AQ=="', "true", "1.5"])):
        assert "cannot be named org.apache.kafka.connect.data.Date" in str(one)


def test_an_integer_that_carries_a_date_is_read_as_one(spark_runtime: SparkRuntime) -> None:
    schema = f'{{"type":"int64","name":"{DATA}.Date"}}'
    assert read(spark_runtime, {}, in_envelopes(schema, ["1", "1.5", '"x"'])) == [
        1,
        "Invalid type for Date, underlying representation should be integer but was NUMBER",
        "Invalid type for Date, underlying representation should be integer but was STRING",
    ]


def test_a_blank_message_of_a_fixed_schema_is_no_null(spark_runtime: SparkRuntime) -> None:
    assert read(spark_runtime, {"schema.content": '{"type":"int32"}'}, ["", "7", " ", "null"]) == [
        0,
        7,
        0,
        "Invalid null value for required INT32 field",
    ]
    struct = '{"type":"struct","fields":[]}'
    assert read(spark_runtime, {"schema.content": struct}, [""]) == [
        "Structs should be encoded as JSON objects, but found MISSING"
    ]
