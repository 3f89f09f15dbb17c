"""Moments at the ends of 64 bits go through TimestampConverter as columns, and none of them fails its batch."""

from __future__ import annotations

import pytest

from penstock.api import SinkRecord, SourceRecord
from penstock.converters.as_json import JsonConverter
from penstock.data import INT64_SCHEMA
from penstock.pipeline.session import SparkRuntime
from penstock.testing.chains import Chain, configured, stages
from penstock.transforms.timestamp_converter import TimestampConverterValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

MOMENTS = [1_483_425_001_864, -(2**63), 2**63 - 1, 1 - 2**63, 9_000_000_000_000_001, -9_000_000_000_000_001, 0]
SETTINGS = [
    {"target.type": "Timestamp"},
    {"target.type": "Timestamp", "unix.precision": "seconds"},
    {"target.type": "Timestamp", "unix.precision": "nanoseconds"},
    {"target.type": "Time"},
    {"target.type": "unix", "unix.precision": "seconds"},
    {"target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_schemaless_moments_become_in_columns_what_they_become_one_by_one(
    spark_runtime: SparkRuntime, settings: dict[str, str]
) -> None:
    transform = configured(TimestampConverterValue(), settings)
    expected = [transform.apply(SinkRecord("t", 0, 0, moment)).value for moment in MOMENTS]

    made = Chain(spark_runtime, stages(transform)).sink([str(moment).encode() for moment in MOMENTS])

    assert not made.errors
    assert made.records is not None
    assert [record and record.value for record in made.records] == expected


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_moments_with_a_schema_become_in_columns_what_they_become_one_by_one(
    spark_runtime: SparkRuntime, settings: dict[str, str]
) -> None:
    transform = configured(TimestampConverterValue(), settings)
    json = configured(JsonConverter(), {"schemas.enable": "false", "converter.type": "value"})
    records = [SourceRecord({}, {}, "t", moment, value_schema=INT64_SCHEMA) for moment in MOMENTS]
    single = [transform.apply(record) for record in records]
    expected = [json.from_connect_data("t", one.value_schema, one.value) for one in single]

    made = Chain(spark_runtime, stages(transform)).source(records)

    assert not made.errors
    assert made.table.column("value").to_pylist() == expected
