"""Transforms behind predicates that could not take the records they are not for."""

from collections.abc import Sequence

import pytest
from testkit.doubles.chains import configured

from penstock.api import SourceRecord, Transformation
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import Schema, SchemaBuilder, Struct
from penstock.pipeline.batch.batches import PipelineSpec, ProduceBatch, TransformStage
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.field_values import MaskFieldValue
from penstock.transforms.predicates import TopicNameMatches
from penstock.transforms.types import SetSchemaMetadataValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

NUMBER = SchemaBuilder.int32().build()
PERSON = SchemaBuilder.struct().field("name", SchemaBuilder.string().build()).build()


def record(topic: str, value: object, schema: Schema | None) -> SourceRecord:
    return SourceRecord({}, {}, topic, value, value_schema=schema)


def run(runtime: SparkRuntime, stage: TransformStage, records: Sequence[SourceRecord]) -> ProduceBatch:
    converter = configured_json()
    spec = PipelineSpec(converter, converter, SimpleHeaderConverter(), [stage], "conditional")
    return SourcePipeline(runtime, spec).run(records)


def configured_json() -> JsonConverter:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, False)
    return converter


def on_people(transform: Transformation) -> TransformStage:
    return TransformStage("t", transform, configured(TopicNameMatches(), {"pattern": "people"}))


def test_a_transform_that_cannot_take_a_schema_leaves_the_records_alone_that_it_is_not_for(
    spark_runtime: SparkRuntime,
) -> None:
    stage = on_people(configured(SetSchemaMetadataValue(), {"schema.name": "Person"}))
    ada = Struct(PERSON).put("name", "Ada")

    batch = run(
        spark_runtime, stage, [record("numbers", 5, NUMBER), record("people", 7, NUMBER), record("people", ada, PERSON)]
    )

    assert batch.table.column("value").to_pylist()[::2] == [b"5", b'{"name":"Ada"}']
    assert {row: error.message for row, error in batch.errors.items()} == {1: "Cannot list fields on non-struct type"}


def test_nulls_without_a_schema_pass_a_transform_that_is_not_for_them(spark_runtime: SparkRuntime) -> None:
    stage = on_people(configured(MaskFieldValue(), {"fields": "name"}))

    batch = run(spark_runtime, stage, [record("numbers", None, None), record("people", None, None)])

    assert list(batch.errors) == [1]
    assert str(batch.errors[1].message).endswith("[mask fields], found: null")
