"""StringConverter, and sinks that write text: every value is printed as it is by itself, beside any others."""

import datetime as dt
import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from testkit.doubles.chains import configured, consumed, stages

from penstock.api import SourceFrame, SourceRecord, ValueForm
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import (
    INT64_SCHEMA,
    STRING_SCHEMA,
    Date,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
)
from penstock.pipeline.batch.batches import PipelineSpec, ProduceBatch, TransformStage
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.extraction import HoistFieldValue
from penstock.transforms.predicates import TopicNameMatches
from penstock.transforms.timestamp_converter import TimestampConverterValue

pytestmark = pytest.mark.java

NOON = dt.datetime(2020, 1, 2, 12, 0, 5, tzinfo=dt.UTC)
LONG_AGO = dt.datetime(1500, 1, 2, tzinfo=dt.UTC)
POINT = SchemaBuilder.struct().field("x", INT64_SCHEMA).build()
EVENT = (
    SchemaBuilder.struct()
    .field("at", Timestamp.builder().optional().build())
    .field("days", SchemaBuilder.array(Date.SCHEMA).optional().build())
    .field("clocks", SchemaBuilder.map(STRING_SCHEMA, Time.SCHEMA).optional().build())
    .field("by", SchemaBuilder.map(Date.SCHEMA, INT64_SCHEMA).optional().build())
    .build()
)
LOOSE = [
    NOON,
    NOON.date(),
    NOON.time(),
    LONG_AGO,
    {"d": NOON, "UPDATED": 1},
    {"b": b"abc"},
    [NOON.date(), 1, "DATE"],
    {"t": {"u": [NOON.time()]}},
    {"a": {1: {"b": NOON}}},
    {1: 2, "x": "y"},
    {"s": Struct(POINT).put("x", 1)},
    {"plain": [1, "two", None]},
    "text",
    b"bytes",
    5,
    None,
]


def written(runtime: SparkRuntime, records: Sequence[SourceRecord] | SourceFrame) -> ProduceBatch:
    spec = PipelineSpec(StringConverter(), StringConverter(), SimpleHeaderConverter(), (), "text")
    return SourcePipeline(runtime, spec).run(records)


def alone(schema: Schema | None, value: object) -> bytes | None:
    return StringConverter().from_connect_data("t", schema, value)


def test_schemaless_values_of_every_class(spark_runtime: SparkRuntime) -> None:
    records = [SourceRecord(None, None, "t", value, key=value) for value in LOOSE]

    batch = written(spark_runtime, records)

    assert not batch.errors
    expected = [alone(None, value) for value in LOOSE]
    assert expected[4] == b"{d=Thu Jan 02 12:00:05 UTC 2020, UPDATED=1}"
    assert batch.table.column("value").to_pylist() == expected
    assert batch.table.column("key").to_pylist() == expected


def test_dates_of_any_year_at_any_depth(spark_runtime: SparkRuntime) -> None:
    values = [
        Struct(EVENT).put("at", LONG_AGO),
        Struct(EVENT).put("at", NOON).put("days", [NOON.date()]),
        Struct(EVENT).put("days", [NOON.date(), LONG_AGO.date()]),
        Struct(EVENT).put("clocks", {"a": NOON.time()}).put("by", {LONG_AGO.date(): 1}),
        Struct(EVENT).put("at", -99_999_999_999_999_999),
        Struct(EVENT),
    ]

    batch = written(spark_runtime, [SourceRecord(None, None, "t", one, value_schema=EVENT) for one in values])

    assert batch.table.column("value").to_pylist() == [alone(EVENT, one) for one in values]
    assert alone(EVENT, values[0]) == b"Struct{at=Tue Dec 24 00:00:00 UTC 1499}"


def test_several_schemas_in_one_job(spark_runtime: SparkRuntime) -> None:
    pairs: list[tuple[Schema | None, object]] = [
        (None, {"d": NOON}),
        (Timestamp.SCHEMA, LONG_AGO),
        (STRING_SCHEMA, "text"),
        (Date.SCHEMA, LONG_AGO.date()),
        (None, {"d": 5}),
        (Timestamp.SCHEMA, NOON),
    ]

    batch = written(spark_runtime, [SourceRecord(None, None, "t", one, value_schema=schema) for schema, one in pairs])

    assert batch.table.column("value").to_pylist() == [alone(schema, one) for schema, one in pairs]


def test_frames_of_columnar_sources(spark_runtime: SparkRuntime) -> None:
    millis = [int(LONG_AGO.timestamp()) * 1000, 0, None]
    frame = SourceFrame(
        pa.table({"value": pa.array(millis, pa.int64())}),
        topic="t",
        source_partition={"p": "1"},
        source_offset={"o": 1},
        value_schema=Timestamp.builder().optional().build(),
    )

    batch = written(spark_runtime, frame)

    assert batch.table.column("value").to_pylist() == [
        b"Tue Dec 24 00:00:00 UTC 1499",
        b"Thu Jan 01 00:00:00 UTC 1970",
        None,
    ]


def test_sinks_that_write_text(spark_runtime: SparkRuntime) -> None:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    to_dates = configured(TimestampConverterValue(), {"field": "at", "target.type": "Timestamp"})
    spec = PipelineSpec(
        StringConverter(),
        converter,
        SimpleHeaderConverter(),
        stages(to_dates),
        "text",
        value_form=ValueForm.TEXT,
    )
    messages = [json.dumps({"at": at}).encode() for at in (1577966405000, 0)]

    batch = SinkPipeline(spark_runtime, spec).run(consumed(messages))

    assert batch.frames is not None
    texts = [text for frame in batch.frames for text in frame.table["value"].to_pylist()]
    assert texts == ["{at=Thu Jan 02 12:00:05 UTC 2020}", "{at=Thu Jan 01 00:00:00 UTC 1970}"]


def test_records_that_go_several_ways_through_a_chain(spark_runtime: SparkRuntime) -> None:
    hoist = configured(HoistFieldValue(), {"field": "held"})
    named = configured(TopicNameMatches(), {"pattern": "held"})
    spec = PipelineSpec(
        StringConverter(),
        StringConverter(),
        SimpleHeaderConverter(),
        [TransformStage("hoist", hoist, predicate=named)],
        "text",
    )
    values = [LONG_AGO, NOON]
    records = [
        SourceRecord(None, None, topic, value, value_schema=Timestamp.SCHEMA)
        for value in values
        for topic in ("held", "plain")
    ]

    batch = SourcePipeline(spark_runtime, spec).run(records)

    expected = [text for value in values for text in (b"Struct{held=%s}" % alone(None, value), alone(None, value))]
    assert batch.table.column("value").to_pylist() == expected
