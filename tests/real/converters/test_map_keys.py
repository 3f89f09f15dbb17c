"""Maps whose keys are structs or arrays, which JSON writes as pairs: in batches, alone, and there and back."""

from __future__ import annotations

import json

import pytest
from testkit.doubles.chains import configured, consumed

from penstock.api import SourceRecord
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import INT32_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder, Struct
from penstock.pipeline.batch.batches import PipelineSpec
from penstock.pipeline.batch.sink.path import SinkPipeline
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.spark.session import SparkRuntime

pytestmark = [pytest.mark.java, pytest.mark.slow]

POINT = SchemaBuilder.struct().field("x", INT32_SCHEMA).field("y", INT32_SCHEMA).build()
NAMES = SchemaBuilder.array(STRING_SCHEMA).build()
NESTED = SchemaBuilder.struct().field("at", POINT).field("names", NAMES).build()


def point(x: int, y: int) -> Struct:
    return Struct(POINT).put("x", x).put("y", y)


def nested(x: int, *names: str) -> Struct:
    return Struct(NESTED).put("at", point(x, 0)).put("names", list(names))


CASES: list[tuple[Schema, dict[object, object]]] = [
    (POINT, {point(1, 2): 3, point(2, 1): 4}),
    (NESTED, {nested(1, "a", "b"): 1, nested(1): 2}),
    (NAMES, {("a", "b"): 1, (): 2}),
    (SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build(), {}),
]


@pytest.mark.parametrize(("keys", "value"), CASES)
def test_a_map_with_such_keys_is_read_and_written_in_batches_and_alone(
    spark_runtime: SparkRuntime, keys: Schema, value: dict[object, object]
) -> None:
    schema = SchemaBuilder.map(keys, INT32_SCHEMA).build()
    converter = configured(JsonConverter(), {})
    data = converter.from_connect_data("t", schema, value)
    assert data is not None
    spec = PipelineSpec(converter, converter, SimpleHeaderConverter())

    read = SinkPipeline(spark_runtime, spec).run(consumed([data] * 3))
    sent = SourcePipeline(spark_runtime, spec).run(
        [SourceRecord({}, {}, "t", value, value_schema=schema) for _ in range(3)]
    )

    alone = converter.to_connect_data("t", data)
    assert (alone.schema, alone.value) == (schema, value)
    assert [(one.value_schema, one.value) for one in read.records or () if one is not None] == [(schema, value)] * 3
    assert sent.errors == {}
    assert [json.loads(one) for one in sent.table.column("value").to_pylist()] == [json.loads(data)] * 3
