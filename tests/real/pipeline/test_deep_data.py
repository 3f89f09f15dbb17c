"""Data that is nested deeply: a batch with such a record ends, and the record alone fails where it is too deep."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from penstock.api import SourceRecord
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder, Struct
from penstock.errors import ConnectException
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, SinkBatch
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.columns.layout import VARIANT_ARROW
from penstock.pipeline.columns.variant import NO_KEYS, _write_array, encode
from penstock.pipeline.spark.prepared_plan import arrow_of
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(180)]


def spec(schemas: bool) -> PipelineSpec:
    key, value, header = StringConverter(), JsonConverter(), SimpleHeaderConverter()
    key.configure({}, True)
    value.configure({"schemas.enable": str(schemas).lower()}, False)
    header.configure({})
    return PipelineSpec(key, value, header, (), "deep")


def consumed(values: list[str]) -> pa.Table:
    columns: dict[str, list[object]] = {
        "topic": ["t"] * len(values),
        "offset": list(range(len(values))),
        "value": [value.encode() for value in values],
    }
    nothing: list[object] = [None] * len(values)
    zeros: list[object] = [0] * len(values)
    columns |= {"partition": zeros, "timestamp": zeros, "timestamp_type": zeros}
    arrays = [pa.array(columns.get(one.name, nothing), one.type) for one in CONSUMED_SCHEMA]
    return pa.table(arrays, CONSUMED_SCHEMA)


def objects(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def lists(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


def enveloped(levels: int, kind: str) -> str:
    schema: dict[str, object] = {"type": "int32"}
    value: object = 1
    for _ in range(levels):
        if kind == "struct":
            schema, value = {"type": "struct", "fields": [{**schema, "field": "a"}]}, {"a": value}
        else:
            schema, value = {"type": "array", "items": schema}, [value]
    return json.dumps({"schema": schema, "payload": value})


def found(batch: SinkBatch) -> list[type | None]:
    assert batch.records is not None
    return [None if record is None else type(record.value) for record in batch.records]


def test_plain_messages_of_a_thousand_levels_are_read_and_deeper_ones_fail_alone(spark_runtime: SparkRuntime) -> None:
    pipeline = SinkPipeline(spark_runtime, spec(schemas=False))

    made = pipeline.run(consumed(['{"x":1}', lists(1000), objects(1000), lists(1001), objects(1001), '{"a":' * 5000]))

    assert found(made) == [dict, list, dict, None, None, None]
    assert sorted(made.errors) == [3, 4, 5]
    assert made.errors[4].exception_class == "org.apache.kafka.connect.errors.DataException"
    assert "more than 1000 levels of nesting" in str(made.errors[4].message)


@pytest.mark.parametrize("kind", ["struct", "array"])
def test_messages_with_a_deep_schema_are_read_record_by_record(spark_runtime: SparkRuntime, kind: str) -> None:
    pipeline = SinkPipeline(spark_runtime, spec(schemas=True))

    made = pipeline.run(consumed([enveloped(0, kind), enveloped(200, kind), lists(1001)]))

    assert found(made) == [int, Struct if kind == "struct" else list, None]
    assert "more than 1000 levels of nesting" in str(made.errors[2].message)


def test_where_plans_have_to_be_taken_a_schema_that_is_too_deep_fails_alone(spark_runtime: SparkRuntime) -> None:
    pipeline = SinkPipeline(spark_runtime, replace(spec(schemas=True), nothing_beside_spark=True))

    made = pipeline.run(consumed([enveloped(0, "array"), enveloped(12, "array"), enveloped(21, "array")]))

    assert found(made) == [int, list, None]
    assert "more than 20 levels of nesting" in str(made.errors[2].message)


def nested(levels: int, kind: str) -> tuple[Schema, object]:
    schema: Schema = INT32_SCHEMA
    value: object = 1
    for _ in range(levels):
        if kind == "struct":
            schema = SchemaBuilder.struct().field("a", schema).build()
            value = Struct(schema).put("a", value)
        else:
            schema, value = SchemaBuilder.array(schema).build(), [value]
    return schema, value


@pytest.mark.parametrize("kind", ["struct", "array"])
@pytest.mark.parametrize(("beside", "levels"), [(True, 150), (False, 12)])
def test_values_of_a_deep_schema_are_written(spark_runtime: SparkRuntime, kind: str, beside: bool, levels: int) -> None:
    schema, value = nested(levels, kind)
    deep, too_deep = nested(21, kind)
    records = [
        SourceRecord({}, {}, "t", value, value_schema=schema),
        SourceRecord({}, {}, "t", "good", value_schema=STRING_SCHEMA),
        *([] if beside else [SourceRecord({}, {}, "t", too_deep, value_schema=deep)]),
    ]

    made = SourcePipeline(spark_runtime, replace(spec(False), nothing_beside_spark=not beside)).run(records)

    assert sorted(made.errors) == ([] if beside else [2])
    expected = objects(levels) if kind == "struct" else lists(levels)
    assert made.table.column("value").to_pylist()[:2] == [expected.encode(), b'"good"']


def test_a_job_whose_thread_dies_in_the_jvm_ends_with_an_error(spark_runtime: SparkRuntime) -> None:
    # Far deeper than what is let through: the thread that serves the rows ends with a stack overflow, and says nothing.
    deep = encode(1)[0]
    for _ in range(25_000):
        deep = _write_array([deep])
    table = pa.table({"v": pa.array([{"value": deep, "metadata": NO_KEYS}], VARIANT_ARROW)})
    session = spark_runtime.session(60)
    outcome: Future[pa.Table] = Future()

    def run() -> None:
        try:
            frame = session.createDataFrame(table)
            outcome.set_result(arrow_of(frame.select(F.length(F.schema_of_variant("v")).alias("n"))))
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()

    error = outcome.exception(60)
    assert isinstance(error, ConnectException)
    assert "the thread that worked on it has died" in str(error)
    assert arrow_of(session.range(1)).to_pydict() == {"id": [0]}
