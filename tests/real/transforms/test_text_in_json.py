"""JSON behind each transform: only text that needs no escapes is put together without looking for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from testkit.doubles.chains import configured, record, stages

from penstock.api import BaseTransformation
from penstock.converters.json.converter import JsonConverter
from penstock.converters.string import SimpleHeaderConverter
from penstock.data import SchemaBuilder, Struct
from penstock.pipeline.batch.batches import PipelineSpec, PolledBatch
from penstock.pipeline.batch.source.path import SourcePipeline
from penstock.pipeline.plan.jobs import SparkJobs
from penstock.pipeline.spark.session import SparkRuntime
from penstock.transforms.extraction import ExtractFieldValue, HoistFieldValue
from penstock.transforms.field_values import InsertFieldValue, MaskFieldValue
from penstock.transforms.headers import HeaderFromValue
from penstock.transforms.restructuring import FlattenValue, ReplaceFieldValue, ValueToKey
from penstock.transforms.timestamp_converter import TimestampConverterValue
from penstock.transforms.types import CastValue, SetSchemaMetadataValue

pytestmark = [pytest.mark.java, pytest.mark.slow]

QUOTED = 'a "quoted" \\ 😀'
INNER = (
    SchemaBuilder.struct()
    .field("text", SchemaBuilder.string().optional().default_value(QUOTED).build())
    .field("real", SchemaBuilder.float32().build())
    .build()
)
OUTER = (
    SchemaBuilder.struct()
    .field("plain", SchemaBuilder.string().build())
    .field("text", SchemaBuilder.string().optional().default_value(QUOTED).build())
    .field("real", SchemaBuilder.float64().optional().build())
    .field("at", SchemaBuilder.int64().build())
    .field("inner", INNER)
    .build()
)
REALS = [0.1, -0.0, 1e300, float("nan"), float("inf"), None]

CHAINS: dict[str, list[BaseTransformation]] = {
    "none": [],
    "cast": [configured(CastValue(), {"spec": "text:string,real:string,at:float64"})],
    "extract": [configured(ExtractFieldValue(), {"field": "text"})],
    "flatten": [configured(FlattenValue())],
    "header": [configured(HeaderFromValue(), {"fields": "at", "headers": "at", "operation": "move"})],
    "hoist": [configured(HoistFieldValue(), {"field": "it"})],
    "insert": [configured(InsertFieldValue(), {"static.field": "new", "static.value": QUOTED})],
    "mask": [configured(MaskFieldValue(), {"fields": "plain", "replacement": QUOTED})],
    "replace": [configured(ReplaceFieldValue(), {"renames": "text:other", "exclude": "inner"})],
    "metadata": [configured(SetSchemaMetadataValue(), {"schema.name": "it"})],
    "to text": [
        configured(TimestampConverterValue(), {"field": "at", "target.type": "string", "format": "yyyy \"'\\'\" MMM"})
    ],
    "key": [configured(ValueToKey(), {"fields": "text,plain"})],
    "two": [
        configured(FlattenValue(), {"delimiter": "_"}),
        configured(ReplaceFieldValue(), {"include": "text,inner_text,real"}),
    ],
}


def values() -> list[Struct]:
    """Structs whose own text needs no escapes; some have none, and a default that does."""
    made = []
    for place, real in enumerate(REALS):
        inner = Struct(INNER).put("real", 0.5).put("text", None if place == 2 else "clean")
        value = Struct(OUTER).put("plain", "é").put("at", 1_700_000_000_000 * place).put("inner", inner)
        made.append(value.put("real", real).put("text", None if place % 2 else "clean"))
    return made


@pytest.mark.parametrize(("schemas", "defaults"), [("true", "true"), ("false", "false"), ("false", "true")])
def test_columns_write_the_bytes_that_single_records_give(
    schemas: str, defaults: str, spark_runtime: SparkRuntime
) -> None:
    jobs = SparkJobs(spark_runtime)
    batch = [record(value, schema=OUTER) for value in values()]
    for name, chain in CHAINS.items():
        json = [
            configured(JsonConverter(), {"schemas.enable": schemas, "replace.null.with.default": defaults})
            for _ in range(2)
        ]
        spec = PipelineSpec(json[0], json[1], SimpleHeaderConverter(), stages(*chain), "text")
        alone = replace(spec, without_spark=True)

        columns, records = (results(SourcePipeline(spark_runtime, one, jobs), batch) for one in (spec, alone))

        assert columns == records, name


def results(pipeline: SourcePipeline, batch: PolledBatch) -> list[Any]:
    """Keys and values that are sent, or the message of the error."""
    made = pipeline.run(batch)
    errors = {seq: error.message for seq, error in made.errors.items()}
    return [errors.get(row, one) for row, one in enumerate(made.table.select(["key", "value"]).to_pylist())]
