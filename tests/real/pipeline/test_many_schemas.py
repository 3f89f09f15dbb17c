"""Small batches of many schemas go record by record, and give what plans give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.api import SourceRecord, Transformation
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter, StringConverter
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, ConnectHeaders, Header, Schema, SchemaBuilder, Struct
from penstock.pipeline.batch.batches import CONSUMED_SCHEMA, PipelineSpec, TransformStage, Why
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import InsertFieldValue
from penstock.transforms.predicates import RecordIsTombstone
from penstock.transforms.restructuring import ReplaceFieldValue
from penstock.transforms.topics import RegexRouter

pytestmark = [pytest.mark.java, pytest.mark.slow]

TABLES = 12
SCHEMAS = [
    SchemaBuilder.struct().name(f"t{n}").version(n + 1).field("id", INT32_SCHEMA).field(f"c{n}", STRING_SCHEMA).build()
    for n in range(TABLES)
]


def stage(alias: str, transform: Transformation, **settings: str) -> TransformStage:
    transform.configure(settings)
    return TransformStage(alias, transform, RecordIsTombstone(), negate=True)


def spec() -> PipelineSpec:
    key, value, header = StringConverter(), JsonConverter(), SimpleHeaderConverter()
    key.configure({}, True)
    value.configure({"schemas.enable": "true"}, False)
    header.configure({})
    router = RegexRouter()
    router.configure({"regex": "db-(.*)", "replacement": "$1"})
    transforms = [
        stage("insert", InsertFieldValue(), **{"static.field": "origin", "static.value": "db"}),
        stage("rename", ReplaceFieldValue(), renames="id:key", exclude="c3"),
        TransformStage("route", router),
    ]
    return PipelineSpec(key, value, header, transforms, "many")


def record(number: int) -> SourceRecord:
    schema: Schema = SCHEMAS[number % TABLES]
    value = None if number == 5 else Struct(schema).put("id", number).put(f"c{number % TABLES}", f"é{number}")
    return SourceRecord(
        {},
        {},
        f"db-{schema.name}",
        value,
        value_schema=None if value is None else schema,
        key=f"k{number}",
        key_schema=STRING_SCHEMA,
        timestamp=number,
        headers=ConnectHeaders([Header("n", number, INT32_SCHEMA)]) if number % 2 else None,
    )


RECORDS = [record(number) for number in range(3 * TABLES)]


def messages(values: list[bytes | None]) -> pa.Table:
    rows = len(values)
    columns: Mapping[str, list[object]] = {
        "topic": ["db-x"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": list(range(rows)),
        "timestamp_type": [0] * rows,
        "key": [b"k"] * rows,
        "value": list(values),
        "headers": [None] * rows,
    }
    return pa.table([pa.array(columns[one.name], one.type) for one in CONSUMED_SCHEMA], CONSUMED_SCHEMA)


def test_records_of_many_schemas_become_the_same_messages_as_in_plans(
    spark_runtime: SparkRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Mapping[Why | None, int]] = []
    pipeline = SourcePipeline(spark_runtime, spec(), moved=counted.append)
    plans = SourcePipeline(spark_runtime, replace(spec(), nothing_beside_spark=True))

    expected = plans.run(RECORDS)
    monkeypatch.setattr(SparkJobs, "run", no_plans)
    made = pipeline.run(RECORDS)

    assert not made.errors
    assert made.table.select(expected.table.column_names).to_pylist() == expected.table.to_pylist()
    assert counted == [{Why.MANY_SCHEMAS: len(RECORDS)}], "they went through Spark as bytes, and are counted once"


def test_messages_of_many_schemas_become_the_same_records_as_in_plans(spark_runtime: SparkRuntime) -> None:
    written = SourcePipeline(spark_runtime, spec()).run(RECORDS).table.column("value").to_pylist()
    batch = messages([*written, b"{no json"])
    counted: list[Mapping[Why | None, int]] = []
    seen = [stage("seen", InsertFieldValue(), **{"static.field": "seen", "static.value": "yes"})]
    pipeline = SinkPipeline(spark_runtime, replace(spec(), transforms=seen), moved=counted.append)
    plans = SinkPipeline(spark_runtime, replace(spec(), transforms=seen, nothing_beside_spark=True))

    read, expected = pipeline.run(batch), plans.run(batch)

    assert read.records == expected.records
    last = len(written)
    assert read.errors.keys() == expected.errors.keys() == {last}
    for found in (read.errors[last], expected.errors[last]):
        assert (found.stage, found.executing_class) == ("VALUE_CONVERTER", JsonConverter.java_name)
        assert (found.message or "").startswith(
            "Converting byte[] to Kafka Connect data failed due to serialization error"
        )
    assert counted == [{Why.MANY_SCHEMAS: last + 1}]


def no_plans(*_: object, **__: object) -> None:
    raise AssertionError("no plan is made for so many schemas")
